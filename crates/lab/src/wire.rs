//! The other world: an experiment's flows between real nodes, measured as a simulated run is.
//!
//! One thread stands for each host. It opens a node, connects to whom the plan says, and drives the host's program, the very
//! same that the simulator drives. Ranks of collectives move and add real numbers, and their results are checked against
//! arithmetic. Threads meet only before and after; in between they pass on signals of imported triggers. The outcome is the same [`Measurements`] that the simulator gives, so the same reports are made
//! of it; what only a simulator can see (queues, links, events) is zero.

mod casts;
mod host;

pub use casts::Copying;

use crate::Experiment;
use casts::Teams;
use std::fmt;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use strandway_collective::{Group, Multicast, Programs};
use strandway_fabric::measure::{End, FlowRecord, LinkCounters, PacketCounters};
use strandway_fabric::tally::Tally;
use strandway_fabric::{Measurements, Plan};
use strandway_proto::units::{Span, Time};
use strandway_proto::{ConnectionStats, HostId};
use strandway_udp::{Node, Reason, RemoteRegion};

/// Why there is no measurement.
#[derive(Debug)]
pub enum WireError {
    /// The experiment asks for something that real nodes cannot do: what, and what to do instead.
    Unsupported(String),
    /// A host's node could not be opened.
    Open {
        /// Which host.
        host: u32,
        /// What its opener said.
        what: String,
    },
    /// A call to a node failed.
    Node {
        /// Whose.
        host: u32,
        /// How.
        error: strandway_udp::Error,
    },
    /// A connection ended before its time.
    Closed {
        /// The host that noticed.
        host: u32,
        /// Why it ended.
        reason: Reason,
    },
    /// Connections were not established within [`SETUP_TIMEOUT`].
    NotConnected,
    /// A rank's result is not what arithmetic says.
    WrongResult {
        /// The host that the rank runs on.
        host: u32,
        /// The collective's number in the run.
        collective: u32,
        /// The first byte that is wrong.
        byte: u64,
    },
    /// A thread could not be started.
    Thread(std::io::Error),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Unsupported(what) => f.write_str(what),
            WireError::Open { host, what } => write!(f, "host {host}: {what}"),
            WireError::Node { host, error } => write!(f, "host {host}: {error}"),
            WireError::Closed { host, reason } => write!(f, "host {host}: a connection ended: {reason}"),
            WireError::NotConnected => write!(
                f,
                "hosts did not reach each other within {} s: is every plane of the fabric up? (`strandway fabric status`)",
                SETUP_TIMEOUT.as_secs()
            ),
            WireError::WrongResult { host, collective, byte } => write!(
                f,
                "host {host}: byte {byte} of the result of collective {collective} is not what the ranks' numbers add up to: \
                 data was damaged on its way, or this is a defect of ours"
            ),
            WireError::Thread(error) => write!(f, "cannot start a thread for a host: {error}"),
        }
    }
}

impl std::error::Error for WireError {}

/// How long connections may take to be established.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// How often the run looks up: faults strike no later than this after their time.
const TICK: Duration = Duration::from_millis(2);

/// What a run tells while it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireProgress {
    /// Flows in all.
    pub flows: usize,
    /// Flows that have finished.
    pub finished: usize,
}

/// What the threads of all hosts share.
struct Shared<'a> {
    plan: &'a Plan,
    groups: &'a [Group],
    programs: &'a Programs<'a>,
    /// Each host's addresses, once its node is open.
    addresses: Vec<OnceLock<Vec<SocketAddrV6>>>,
    /// What the receiver of each connection of the plan gives its sender to write into.
    remotes: Vec<OnceLock<RemoteRegion>>,
    /// Hosts that are through with opening, joining teams, trying planes, connecting, and all else.
    ready: [AtomicUsize; 5],
    start: OnceLock<Instant>,
    started: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
    finished: Vec<AtomicU64>,
    /// Messages that have not arrived, and messages whose sender does not know that they have: both counted. Ranks of multicasts count like
    /// messages: until they have everything, and until they may go.
    left: AtomicUsize,
    /// Hosts whose programs are not done.
    undone: AtomicUsize,
    /// Per host: signals from programs of other hosts, by the time at which they are there and by their order.
    mail: Vec<Mutex<Vec<Signal>>>,
    has_mail: Vec<AtomicBool>,
    /// Ends the run early: interrupted, out of time, or an error elsewhere.
    stop: AtomicBool,
    stats: Mutex<Vec<ConnectionStats>>,
    multicasts: &'a [Multicast],
    teams: Teams,
    /// By collective, as in [`Measurements::tallies`].
    tallies: Mutex<Vec<Tally>>,
    failure: Mutex<Option<WireError>>,
}

/// A signal on its way: when it is there, its order, and what it says.
type Signal = (Time, u32, u32);

/// Flow times are kept as picoseconds plus one, zero for "not yet".
fn stamp(slot: &AtomicU64, at: Time) {
    slot.store(at.0 + 1, Ordering::Relaxed);
}

fn read_stamp(slot: &AtomicU64) -> Option<Time> {
    slot.load(Ordering::Relaxed).checked_sub(1).map(Time)
}

impl Shared<'_> {
    fn now(&self) -> Time {
        let since = self.start.get().map_or(Duration::ZERO, Instant::elapsed);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 1_000).saturating_mul(1_000))
    }

    fn fail(&self, error: WireError) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(error);
        }
        self.stop.store(true, Ordering::Release);
    }

    /// Has every message arrived, and has every program done what it set out to do?
    fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0 && self.undone.load(Ordering::Acquire) == 0
    }

    fn failed(&self) -> bool {
        self.failure.lock().is_ok_and(|failure| failure.is_some())
    }

    /// Tells that a host is through with a phase in which nobody calls it, and waits until all are.
    fn meet(&self, phase: usize) -> Result<(), WireError> {
        let began = Instant::now();
        self.ready[phase].fetch_add(1, Ordering::AcqRel);
        while self.ready[phase].load(Ordering::Acquire) < self.addresses.len() {
            if self.stops() || began.elapsed() > SETUP_TIMEOUT {
                return Err(WireError::NotConnected);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// A program signals another host's.
    fn signal(&self, to: HostId, signal: Signal) {
        if let Ok(mut mail) = self.mail[to.0 as usize].lock() {
            mail.push(signal);
        }
        self.has_mail[to.0 as usize].store(true, Ordering::Release);
    }
}

/// Can real nodes run this experiment?
///
/// # Errors
/// With what they cannot do, and what to do instead.
pub fn supported(experiment: &Experiment) -> Result<(), WireError> {
    let plan = &experiment.plan;
    let no = |what: String| Err(WireError::Unsupported(what));
    if plan.profiles.len() > 1 {
        let names: Vec<&str> = plan.profiles.iter().map(|p| p.name.as_str()).collect();
        return no(format!(
            "the workload uses the profiles {}: a node speaks one; run them one after the other",
            names.join(", ")
        ));
    }
    if experiment.aggregation.is_some() {
        return Err(no_switch_programs());
    }
    if let Some(job) = experiment.jobs.first() {
        return no(format!(
            "the workload `{}` is of kind = \"fsdp\", which runs in the simulator only: write kind = \"all-gather\" or \
             \"reduce-scatter\" for one of its operations, or use `strandway run`",
            job.name
        ));
    }
    Ok(())
}

/// Runs the experiment between real nodes. `open` makes the node of a host on that host's own thread, which it may
/// move into another network namespace first; the profile is the experiment's. `each` is called every two milliseconds, and
/// ends the run early by returning false. `copying` says what the fabric knows of the plan's multicast groups.
///
/// # Errors
/// If the plan needs what real nodes do not have, a node cannot be opened or used, or connections break.
pub fn run(
    experiment: &Experiment,
    copying: &Copying,
    open: impl Fn(u32) -> Result<Node, String> + Sync,
    each: impl FnMut(WireProgress, Duration) -> bool,
) -> Result<Measurements, WireError> {
    supported(experiment)?;
    execute(experiment, &experiment.multicasts, &experiment.programs(), copying, open, each)
}

/// The same with programs of one's choice at the hosts. They use the channels of the plan, and cast nothing.
///
/// # Errors
/// As [`run`].
pub fn run_programs(
    experiment: &Experiment,
    programs: &Programs<'_>,
    open: impl Fn(u32) -> Result<Node, String> + Sync,
    each: impl FnMut(WireProgress, Duration) -> bool,
) -> Result<Measurements, WireError> {
    supported(experiment)?;
    execute(experiment, &[], programs, &Copying::default(), open, each)
}

fn execute(
    experiment: &Experiment,
    multicasts: &[Multicast],
    programs: &Programs<'_>,
    copying: &Copying,
    open: impl Fn(u32) -> Result<Node, String> + Sync,
    mut each: impl FnMut(WireProgress, Duration) -> bool,
) -> Result<Measurements, WireError> {
    let plan = &experiment.plan;
    let hosts = plan.topology.hosts() as usize;
    let rows = plan.flows.len();
    let count = rows + multicasts.iter().map(|multicast| multicast.ranks.count() as usize).sum::<usize>();
    let stamps = || (0..rows).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared {
        plan,
        groups: &experiment.groups,
        programs,
        addresses: (0..hosts).map(|_| OnceLock::new()).collect(),
        remotes: plan.connections.iter().map(|_| OnceLock::new()).collect(),
        ready: Default::default(),
        start: OnceLock::new(),
        started: stamps(),
        received: stamps(),
        finished: stamps(),
        left: AtomicUsize::new(2 * count),
        undone: AtomicUsize::new(hosts),
        mail: (0..hosts).map(|_| Mutex::default()).collect(),
        has_mail: (0..hosts).map(|_| AtomicBool::new(false)).collect(),
        stop: AtomicBool::new(false),
        stats: Mutex::new(vec![ConnectionStats::default(); plan.connections.len()]),
        multicasts,
        teams: Teams::new(plan, multicasts, copying)?,
        tallies: Mutex::new(vec![Tally::default(); programs.groups()]),
        failure: Mutex::new(None),
    };
    let (mut end, mut stopped) = (End::Finished, Time::ZERO);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for host in 0..hosts as u32 {
            let (shared, open) = (&shared, &open);
            let named = std::thread::Builder::new().name(format!("host {host}"));
            match named.spawn_scoped(scope, move || host::live(shared, HostId(host), open)) {
                Ok(thread) => threads.push(thread),
                Err(error) => shared.fail(WireError::Thread(error)),
            }
        }
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(TICK);
            let left = shared.left.load(Ordering::Acquire);
            let since = shared.start.get().map_or(Duration::ZERO, Instant::elapsed);
            let over = shared.is_over();
            if !over && !each(WireProgress { flows: count, finished: count - left.div_ceil(2) }, since) {
                end = End::Interrupted;
                stopped = shared.now();
                shared.stop.store(true, Ordering::Release);
            }
            if !over && shared.start.get().is_some() && shared.now() >= plan.time_limit {
                end = End::TimeLimit;
                stopped = plan.time_limit;
                shared.stop.store(true, Ordering::Release);
            }
        }
    });
    if let Some(error) = shared.failure.into_inner().unwrap_or(None) {
        return Err(error);
    }
    let flows: Vec<FlowRecord> = (0..rows)
        .map(|i| FlowRecord {
            started: read_stamp(&shared.started[i]),
            received: read_stamp(&shared.received[i]),
            finished: read_stamp(&shared.finished[i]),
        })
        .collect();
    let tallies = shared.tallies.into_inner().unwrap_or_default();
    let received = flows.iter().filter_map(|flow| flow.received).chain(tallies.iter().filter_map(|tally| tally.last));
    let last_arrival = received.max().unwrap_or(Time::ZERO);
    let last = flows.iter().filter_map(|flow| flow.finished).max().unwrap_or(Time::ZERO).max(last_arrival);
    let connections = shared.stats.into_inner().unwrap_or_default();
    let [chunks, repairs, chunks_arrived, trimmed, rebuilt] = shared.teams.counted();
    let packets = sum(&connections);
    Ok(Measurements {
        end,
        simulated: if end == End::Finished { last } else { stopped.max(last) },
        last_arrival,
        packets: PacketCounters {
            chunks,
            repairs,
            chunks_arrived,
            rebuilt,
            trimmed: packets.trimmed + trimmed,
            ..packets
        },
        flows,
        tallies,
        connections,
        links: vec![LinkCounters::default(); plan.topology.links() as usize],
        ..Measurements::default()
    })
}

/// Between real nodes no switch adds.
fn no_switch_programs() -> WireError {
    WireError::Unsupported(
        "the workload has switches that add, which run in the simulator only: write another algorithm, or use `strandway run`".into(),
    )
}

fn sum(connections: &[ConnectionStats]) -> PacketCounters {
    connections.iter().fold(PacketCounters::default(), |sum, c| PacketCounters {
        sent: sum.sent + c.sent,
        delivered: sum.delivered + c.delivered,
        trimmed: sum.trimmed + c.trimmed,
        marked: sum.marked + c.marked,
        retransmitted: sum.retransmitted + c.retransmitted,
        duplicates: sum.duplicates + c.duplicates,
        acks: sum.acks + c.acks,
        nacks: sum.nacks + c.nacks,
        notifications: sum.notifications + c.notifications,
        timeouts: sum.timeouts + c.timeouts,
        ..sum
    })
}

/// A span as the standard library has it.
fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0.div_ceil(1_000))
}
