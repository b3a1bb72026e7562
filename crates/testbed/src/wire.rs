//! Runs an experiment between real nodes and takes the same measurements as in the simulator.
//!
//! Each host has a thread. The thread opens a node, opens the plan's connections, and drives the host's program: the
//! same program that the simulator drives. Ranks of collectives send and add real numbers, and their results are
//! compared with arithmetic. Threads meet only before and after the run; during it they pass on signals of imported
//! triggers. The result is the same [`Measurements`] as in the simulator, so the same reports are made from it. Values
//! that only a simulator can measure (queues, links, events) are zero.

mod casts;
mod host;

pub use casts::Copying;

use casts::Teams;
use std::fmt;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use strandway_collective::{Operation, Programs};
use strandway_fabric::measure::{End, FlowRecord, LinkCounters, PacketCounters, PathRow};
use strandway_fabric::tally::Tally;
use strandway_fabric::{Measurements, Plan};
use strandway_lab::Experiment;
use strandway_proto::units::{Span, Time};
use strandway_proto::{ConnectionStats, HostId};
use strandway_scenario::CollectivePlan;
use strandway_udp::{Node, Reason, RemoteRegion};

/// Why a run has no result.
#[derive(Debug)]
pub enum WireError {
    /// The experiment needs a feature that real nodes do not have: the feature, and a remedy.
    Unsupported(String),
    /// A host's node could not be opened.
    Open {
        /// The host.
        host: u32,
        /// The error of `open`.
        what: String,
    },
    /// A call to a node failed.
    Node {
        /// The host.
        host: u32,
        /// The error.
        error: strandway_udp::Error,
    },
    /// A connection ended too early.
    Closed {
        /// The host that noticed it.
        host: u32,
        /// Why it ended.
        reason: Reason,
    },
    /// Connections were not established within [`SETUP_TIMEOUT`].
    NotConnected,
    /// A rank's result differs from the arithmetic result.
    WrongResult {
        /// The host that the rank runs on.
        host: u32,
        /// The collective's number in the run.
        collective: u32,
        /// The index of the first wrong byte.
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

/// Time limit for opening all connections.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// The shortest time limit of a run whose scenario has none: real nodes share their machine with other programs.
const PATIENCE: Time = Time(60_000_000_000_000);

/// Interval of the run's checks: faults begin at most this late.
const TICK: Duration = Duration::from_millis(2);

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireProgress {
    /// Number of flows.
    pub flows: usize,
    /// Flows that have finished.
    pub finished: usize,
}

/// The state that the threads of all hosts share.
struct Shared<'a> {
    plan: &'a Plan,
    operations: &'a [Operation],
    programs: &'a Programs<'a>,
    /// The addresses of each host, set when its node is open.
    addresses: Vec<OnceLock<Vec<SocketAddrV6>>>,
    /// By connection of the plan: the memory of the receiver into which the sender writes.
    remotes: Vec<OnceLock<RemoteRegion>>,
    /// Numbers of hosts that have finished each phase: opening, joining teams, trying planes, connecting, and the run.
    ready: [AtomicUsize; 5],
    start: OnceLock<Instant>,
    started: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
    finished: Vec<AtomicU64>,
    /// Number of messages that have not arrived, plus number of messages whose sender does not know about the arrival.
    /// A rank of a multicast counts like a message: first until it has everything, then until it may close.
    left: AtomicUsize,
    /// Number of hosts whose programs are not done.
    undone: AtomicUsize,
    /// Per host: signals from programs of other hosts, with the time of their arrival and their order.
    mail: Vec<Mutex<Vec<Signal>>>,
    has_mail: Vec<AtomicBool>,
    /// Ends the run early: interruption, time limit, or an error at another host.
    stop: AtomicBool,
    stats: Mutex<Vec<ConnectionStats>>,
    teams: Teams,
    /// By operation, as in [`Measurements::tallies`].
    tallies: Mutex<Vec<Tally>>,
    failure: Mutex<Option<WireError>>,
    /// The changes of MRC's paths, in the order in which hosts read them.
    path_events: Mutex<Vec<PathRow>>,
}

/// A signal in flight: time of arrival, order, and content.
type Signal = (Time, u32, u32);

/// Stores a flow time as picoseconds plus one; zero means "not yet".
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

    /// True if every message has arrived and every program is done.
    fn is_over(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0 && self.undone.load(Ordering::Acquire) == 0
    }

    fn failed(&self) -> bool {
        self.failure.lock().is_ok_and(|failure| failure.is_some())
    }

    /// Marks a phase as finished at this host, and waits until it is finished at all hosts. The node is
    /// not polled while its thread waits, so no other host may call it in this phase.
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

    /// Sends a signal to the program of another host.
    fn signal(&self, to: HostId, signal: Signal) {
        if let Ok(mut mail) = self.mail[to.0 as usize].lock() {
            mail.push(signal);
        }
        self.has_mail[to.0 as usize].store(true, Ordering::Release);
    }
}

/// Checks that real nodes can run this experiment.
///
/// # Errors
/// The feature that nodes do not have, and a remedy.
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
    if let Some(made) = experiment.services.first() {
        return no(format!(
            "the service `{}` runs in the simulator only, where computation takes time: use `strandway run`",
            made.service.name
        ));
    }
    let is_tabled = |plan: &&CollectivePlan| {
        let group = experiment.operation_of(plan).and_then(Operation::group);
        group.is_some_and(|group| group.schedule().is_none())
    };
    let tabled = experiment.collectives.iter().find(is_tabled);
    if let Some(plan) = tabled.filter(|plan| plan.job.is_none()) {
        return no(format!(
            "the collective `{}` with algorithm = \"{}\" runs in the simulator only: write algorithm = \"ring\", or use \
             `strandway run`",
            plan.name, plan.algorithm
        ));
    }
    if let Some(made) = experiment.jobs.iter().find(|job| job.groups_of > 0) {
        return no(format!(
            "the collective `{}` uses the links inside [servers], which only the simulator has: write servers = false, or use \
             `strandway run`",
            made.name
        ));
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

/// Runs the experiment between real nodes. `open` makes the node of a host; it is called on the host's own thread,
/// which it may move into another network namespace first. The profile is the experiment's. `each` is called every two
/// milliseconds; if it returns false, the run ends early. `copying` says how the fabric copies packets to the plan's
/// multicast groups.
///
/// # Errors
/// If the plan needs a feature that real nodes do not have, a node cannot be opened or used, or connections break.
pub fn run(
    experiment: &Experiment,
    copying: &Copying,
    open: impl Fn(u32) -> Result<Node, String> + Sync,
    each: impl FnMut(WireProgress, Duration) -> bool,
) -> Result<Measurements, WireError> {
    supported(experiment)?;
    execute(experiment, &experiment.programs(), copying, open, each)
}

/// Runs an experiment as [`run`] does, with custom programs at the hosts. They use the plan's channels and no
/// multicast.
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
    execute(experiment, programs, &Copying::default(), open, each)
}

fn execute(
    experiment: &Experiment,
    programs: &Programs<'_>,
    copying: &Copying,
    open: impl Fn(u32) -> Result<Node, String> + Sync,
    mut each: impl FnMut(WireProgress, Duration) -> bool,
) -> Result<Measurements, WireError> {
    let plan = &experiment.plan;
    let hosts = plan.topology.hosts() as usize;
    let rows = plan.flows.len();
    let operations = programs.operations();
    let multicasts = operations.iter().filter_map(Operation::multicast);
    let count = rows + multicasts.map(|multicast| multicast.ranks.count() as usize).sum::<usize>();
    let stamps = || (0..rows).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared {
        plan,
        operations,
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
        teams: Teams::new(plan, operations, copying)?,
        tallies: Mutex::new(vec![Tally::default(); operations.len()]),
        failure: Mutex::new(None),
        path_events: Mutex::default(),
    };
    let (mut end, mut stopped) = (End::Finished, Time::ZERO);
    let time_limit = if experiment.default_time_limit { plan.time_limit.max(PATIENCE) } else { plan.time_limit };
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
            if !over && shared.start.get().is_some() && shared.now() >= time_limit {
                end = End::TimeLimit;
                stopped = time_limit;
                shared.stop.store(true, Ordering::Release);
            }
        }
    });
    if let Some(error) = shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    Ok(measurements(plan, shared, end, stopped))
}

/// The measurements of a run that ended in this way. `stopped`: when, if it did not end by itself.
fn measurements(plan: &Plan, shared: Shared<'_>, end: End, stopped: Time) -> Measurements {
    let rows = plan.flows.len();
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
    let mut path_events = shared.path_events.into_inner().unwrap_or_default();
    path_events.sort_by_key(|row| (row.event.at, row.host, row.peer));
    let [chunks, repairs, chunks_arrived, trimmed, rebuilt] = shared.teams.counted();
    let packets = sum(&connections);
    Measurements {
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
        path_events,
        links: vec![LinkCounters::default(); plan.topology.links() as usize],
        ..Measurements::default()
    }
}

/// In runs between real nodes, switches cannot add gradients.
fn no_switch_programs() -> WireError {
    WireError::Unsupported(
        "the workload has switches that add, which run in the simulator only: write another algorithm, or use `strandway run`".into(),
    )
}

fn sum(connections: &[ConnectionStats]) -> PacketCounters {
    let mut sum = ConnectionStats::NONE;
    connections.iter().for_each(|one| sum += *one);
    let ConnectionStats { sent, delivered, trimmed, marked, retransmitted, duplicates, .. } = sum;
    let ConnectionStats { acks, nacks, notifications, timeouts, .. } = sum;
    PacketCounters {
        sent,
        delivered,
        trimmed,
        marked,
        retransmitted,
        duplicates,
        acks,
        nacks,
        notifications,
        timeouts,
        ..PacketCounters::NONE
    }
}

/// Converts a span to the standard library's type.
fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0.div_ceil(1_000))
}
