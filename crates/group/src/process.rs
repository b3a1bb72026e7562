//! Process groups: collectives on a caller's buffers, between processes that find each other through a store.
//!
//! A [`Process`] is this process on the wire: one node on a thread of its own, with one connection to each process that
//! it shares a group with. A [`Group`] is a set of ranks. All ranks call the same collectives in the same order; a call
//! blocks, or gives a [`Work`] to wait for. Many groups share a process.
//!
//! ```
//! use std::thread;
//! use strandway_group::process::{Group, GroupOptions, Process, ProcessOptions, Reduction, Values};
//!
//! // Two ranks: threads here, processes in real life, with a directory or a TCP store between them.
//! let store = Values::default();
//! let ranks: Vec<_> = (0..2)
//!     .map(|rank| {
//!         let mut store = store.clone();
//!         thread::spawn(move || {
//!             let options = ProcessOptions::on(vec!["[::1]:0".parse().unwrap()]);
//!             let process = Process::join(&mut store, rank, &options).unwrap();
//!             let group = Group::form(&process, &mut store, rank, 2, GroupOptions::default()).unwrap();
//!             let mut numbers = [1.0f32, rank as f32];
//!             group.all_reduce(&mut numbers, Reduction::Sum).unwrap();
//!             numbers
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().unwrap(), [2.0, 1.0]);
//! }
//! ```

mod algorithm_files;
mod commands;
mod delegate;
pub(crate) mod element;
mod engine;
mod failure;
mod group;
mod host;
mod launch;
mod local;
mod memory;
mod message;
mod offer;
mod paths;
mod planes;
mod probe;
mod progress_engine;
mod record;
mod recording;
mod registry;
mod rendezvous;
mod store;
mod task;
mod tune;
mod work;

pub use element::{Element, Reduction};
pub use failure::Failure;
pub use group::{Group, GroupOptions, Number};
pub use launch::{Launch, StoreAt, close_all, descriptors, waiting};
pub use memory::Buffer;
pub use store::{DirectoryStore, Prefixed, Store, TcpStore, Values};
pub use strandway_collective::plan::{Algorithms, BufferRange, CollectiveCall, DirectLengths, Tuning};
pub use tune::{Candidate, tune};
pub use work::Work;

use crate::aggregation::NetworkOptions;
use crate::error::GroupError;
use commands::Command;
pub use commands::Waiting;
use engine::{Delegates, Engine, Lost, Own};
use local::{Carrier, Local};
use progress_engine::ProgressEngine;
use record::{LocalName, Record, Terms, Wire};
use recording::Recorder;
use std::net::SocketAddrV6;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strandway_collective::plan::{Hosts, PlanAlgorithm, PlanMaker};
use strandway_proto::{Rate, Span};
use strandway_udp::address::kept;
use strandway_udp::{Config, Error, Limits, Node, Protection, Timeouts, random_secret};

/// Silence alone never ends a connection: a process that is stopped is waited for. Ours, a week.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A plane that is silent for this long, or for this number of round trips, while another one answers, is not used:
/// ours.
const PLANE_TIMEOUT: Duration = Duration::from_millis(40);
const PLANE_TRIPS: u32 = 4;
/// Connections of a process: ours, one per process that it shares a group with.
const CONNECTIONS: usize = 16_384;

/// A process's settings on the wire. Rank 0 chooses those that must be equal everywhere (payload, protection, profile,
/// tuning, key).
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The local address of each plane, in the same order on all hosts. Port 0 takes any free one.
    pub planes: Vec<SocketAddrV6>,
    /// The addresses by which others reach this host on each plane, if they are not its own: behind a NAT. Port 0
    /// stands for the port of the plane. Default: none.
    pub advertise: Vec<SocketAddrV6>,
    /// The UDP ports that it may take where a plane has port 0, so that a firewall's rule can name them. Default: any
    /// free one. If a process ends, and another one takes its port at once, its peers find its death more slowly.
    pub ports: Option<RangeInclusive<u16>>,
    /// Payload bytes of a full packet; default: what passes on all ways, and no more than
    /// 15,900 bytes.
    pub payload: Option<u32>,
    /// The protection of datagrams against reading, changes and forgery. Default: encrypted.
    pub protection: Protection,
    /// The protocol: a profile or a profile with other policies, such as `sdr_auto`. Default `uec`.
    pub profile: String,
    /// Which collectives go which way, by their length.
    pub tuning: Tuning,
    /// Processes of one host and one user talk through memory that they share, where the system allows it. Default yes.
    pub shared_memory: bool,
    /// The folder into which each process writes a recording of its calls, for the simulator (docs/replay.md).
    pub record: Option<PathBuf>,
    /// Line rate of all planes together. Default 40 Gb/s.
    pub rate: Rate,
    /// Round trip without queues, including the time to wake up the other side. Default 100 us.
    pub base_rtt: Span,
    /// How long the store is asked for ranks that come late. Default 5 minutes.
    pub patience: Duration,
    /// Bytes of short messages that one process may send to another one before a call there asks for them; rank 0
    /// chooses. Beyond it, a message waits at its sender, and so does a call that needs it to have left. Each process
    /// keeps at most twice as much for each peer. Default 4 MiB, at least 64 KiB.
    pub credit: u32,
    /// How long the end of a process waits until its last messages have arrived, as long as their receivers may live.
    /// Default 30 s.
    pub linger: Duration,
    /// The number of the multicast team, for switches that copy only for teams that they know. Default: none; then each
    /// group has a number of its own.
    pub team: Option<u16>,
    /// The switch that adds, at this rank. Default: none.
    pub switch: Option<NetworkOptions>,
}

/// Least [`ProcessOptions::credit`]: ours, room for a few short messages.
const CREDIT_MIN: u32 = 1 << 16;

impl ProcessOptions {
    /// Defaults on these planes.
    pub fn on(planes: Vec<SocketAddrV6>) -> ProcessOptions {
        ProcessOptions {
            planes,
            advertise: Vec::new(),
            ports: None,
            payload: None,
            protection: Protection::default(),
            profile: "uec".into(),
            tuning: Tuning::default(),
            shared_memory: true,
            record: None,
            rate: Rate::from_gbps(40),
            base_rtt: Span::from_us(100),
            patience: Duration::from_secs(300),
            credit: 4 << 20,
            linger: Duration::from_secs(30),
            team: None,
            switch: None,
        }
    }

    fn payload(&self) -> Result<u32, GroupError> {
        if let Some(payload) = self.payload {
            return Ok(payload);
        }
        let config = Config { protection: self.protection, ..Config::new(&[0; 32])?.profile(&self.profile)? };
        self.fits(config)
    }

    /// The payload of the largest packets that every plane's device takes.
    fn fits(&self, config: Config) -> Result<u32, GroupError> {
        let mtu = self.planes.iter().map(|plane| strandway_udp::mtu_of(*plane.ip())).min().flatten().unwrap_or(1_500);
        // Beyond this a packet costs more in the cache than it saves in calls.
        Ok(config.mtu(mtu)?.payload.min(PAYLOAD_MAX))
    }

    /// The planes with ports from the range, the next ones at each attempt; `None` beyond the last attempt.
    fn with_ports(&self, first: u16, attempt: u32) -> Option<Vec<SocketAddrV6>> {
        let Some(range) = &self.ports else { return (attempt == 0).then(|| self.planes.clone()) };
        let count = u32::from(range.end() - range.start()) + 1;
        if attempt >= count {
            return None;
        }
        let port = |plane: u32| range.start() + ((u32::from(first) + attempt + plane) % count) as u16;
        let mut planes = self.planes.clone();
        for (number, plane) in (0..).zip(&mut planes).filter(|(_, plane)| plane.port() == 0) {
            plane.set_port(port(number));
        }
        Some(planes)
    }

    /// The addresses that others use, of a node at these.
    fn advertised(&self, ours: &[SocketAddrV6]) -> Result<Vec<SocketAddrV6>, GroupError> {
        if self.advertise.is_empty() {
            return Ok(ours.to_vec());
        }
        let (given, planes) = (self.advertise.len(), ours.len());
        if given != planes {
            let what =
                format!("{given} addresses to advertise for {planes} planes: give one for each (STRANDWAY_ADVERTISE)");
            return Err(GroupError::Config(what));
        }
        let one = |(given, ours): (&SocketAddrV6, &SocketAddrV6)| {
            let port = if given.port() == 0 { ours.port() } else { given.port() };
            SocketAddrV6::new(*given.ip(), port, 0, given.scope_id())
        };
        Ok(self.advertise.iter().zip(ours).map(one).collect())
    }

    /// A node on ports of the range.
    fn bind(&self, config: &Config) -> Result<Node, GroupError> {
        // Processes of one host begin at different places, so that they do not ask for each other's ports.
        let first = u16::from_be_bytes(*random_secret()?.first_chunk().expect("32 bytes"));
        let mut refused = None;
        for attempt in 0.. {
            let Some(planes) = self.with_ports(first, attempt) else { break };
            match Node::bind(Config { planes, ..config.clone() }) {
                Ok(node) => return Ok(node),
                Err(error @ Error::Socket { .. }) => refused = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let error = refused.expect("there was an attempt");
        Err(match &self.ports {
            Some(range) => {
                GroupError::Config(format!("no free UDP port in {}-{}: {error}", range.start(), range.end()))
            }
            None => error.into(),
        })
    }
}

/// The largest payload that is taken by default: ours. Four such packets fill a system call. On loopback, encrypted,
/// payloads of 12 to 21 kB take the least processor time of 4 to 32 kB, 3 to 5 % less than 8 kB.
const PAYLOAD_MAX: u32 = 15_900;

/// This process on the wire. A clone is the same one.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    progress_engine: Arc<ProgressEngine>,
    record: Record,
    wire: Wire,
    /// The local address of each plane, as it was asked for.
    planes: Vec<SocketAddrV6>,
    /// The payload that its devices take, and whether the user has set the one in `wire`.
    fits: u32,
    fixed: bool,
    /// The payload of its packets, once it has met others; before that zero.
    settled: AtomicU32,
    base_rtt: Span,
    /// The range of its ports, for messages.
    ports: Option<String>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The operating system process that it was started in.
    pid: u32,
    linger: Duration,
    lost: Lost,
    /// The terms with which it has joined, until a group is formed.
    invitation: Mutex<Option<Terms>>,
    /// Descriptors of its sockets at present.
    descriptors: Arc<Mutex<Vec<i32>>>,
    recorder: Option<Arc<Recorder>>,
    /// Says by which algorithm a call runs.
    plans: PlanMaker,
}

impl Process {
    fn start(options: &ProcessOptions, wire: Wire) -> Result<Process, GroupError> {
        if wire.credit < CREDIT_MIN {
            let credit = wire.credit;
            return Err(GroupError::Config(format!("a credit of {credit} bytes: give at least {CREDIT_MIN}")));
        }
        let config = Config {
            planes: options.planes.clone(),
            payload: wire.payload,
            protection: wire.protection,
            rate: options.rate,
            base_rtt: options.base_rtt,
            timeouts: Timeouts {
                plane: PLANE_TIMEOUT.max(Duration::from_nanos(options.base_rtt.0 / 1_000) * PLANE_TRIPS),
                peer: PATIENCE,
                // A process may be stopped in the middle of a handshake, too. One side alone must not give it up.
                handshake: PATIENCE,
            },
            limits: Limits { connections: CONNECTIONS, ..Limits::default() },
            hear_refusals: true,
            // Not before its payload is settled.
            accept: false,
            ..Config::new(&wire.secret)?.profile(&wire.profile)?
        };
        let fits = options.fits(config.clone())?;
        let mut node = options.bind(&config)?;
        let waker = node.waker()?;
        let ours: Vec<SocketAddrV6> = node.addresses()?.into_iter().map(kept).collect();
        let addresses = options.advertised(&ours)?;
        let id = *random_secret()?.first_chunk().expect("32 bytes");
        let descriptors = Arc::new(Mutex::new(node.descriptors()));
        let local = options.shared_memory.then(|| Local::open(id, &wire.secret, Arc::clone(&descriptors)));
        let local = local.and_then(|local| local.inspect_err(|error| launch::note_unshared(&error.to_string())).ok());
        let name = local.as_ref().and_then(|local| LocalName::new(local.name()));
        let record = Record { id, host: host::label(), addresses, settled: None, local: name.clone() };
        let lost = Lost::default();
        let plans = PlanMaker::new(wire.tuning.algorithms.clone(), wire.tuning.lengths);
        let limits = (wire.tuning.clone(), wire.credit as usize);
        let place = name.map(|name| name.place);
        let delegates = Delegates::new(options, &config, wire.secret);
        let carrier = Carrier::new(node, local);
        let engine = Engine::new(carrier, Own { id, place, addresses: ours }, limits, delegates, Arc::clone(&lost))?;
        let progress_engine = Arc::new(ProgressEngine::new(engine, waker));
        let driven = Arc::clone(&progress_engine);
        let thread = std::thread::Builder::new().name("strandway-wire".into()).spawn(move || driven.run());
        let thread = thread.map_err(|error| GroupError::Config(format!("no thread for the wire: {error}")))?;
        let process = Process(Arc::new(Inner {
            progress_engine,
            record,
            wire,
            planes: options.planes.clone(),
            fits,
            fixed: options.payload.is_some(),
            settled: AtomicU32::new(0),
            base_rtt: options.base_rtt,
            ports: options.ports.as_ref().map(|range| format!("{}-{}", range.start(), range.end())),
            thread: Mutex::new(Some(thread)),
            pid: std::process::id(),
            linger: options.linger,
            lost,
            invitation: Mutex::new(None),
            descriptors,
            recorder: options.record.as_deref().map(Recorder::new).transpose()?.map(Arc::new),
            plans,
        }));
        registry::note(&process);
        Ok(process)
    }

    /// Its address on each plane.
    pub fn addresses(&self) -> &[SocketAddrV6] {
        &self.0.record.addresses
    }

    fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.0.recorder.as_ref()
    }

    /// The name of the algorithm by which a call on such numbers runs.
    fn algorithm(
        &self,
        call: &CollectiveCall,
        (ranks, hosts): (u32, &Hosts),
        numbers: (Element, Reduction),
    ) -> &'static str {
        match self.0.plans.algorithm(call, ranks, hosts) {
            chosen if chosen.is_of_team() && delegate::Kind::of(chosen, numbers).is_none() => PlanAlgorithm::Direct,
            chosen => chosen,
        }
        .name()
    }

    /// Its own address on each plane, as it was asked for.
    fn planes(&self) -> &[SocketAddrV6] {
        &self.0.planes
    }

    /// The record by which others know it.
    fn record(&self) -> Record {
        Record { settled: self.settled(), ..self.0.record.clone() }
    }

    /// The payload of its packets, once it has met others.
    fn settled(&self) -> Option<u32> {
        Some(self.0.settled.load(Ordering::Acquire)).filter(|payload| *payload > 0)
    }

    fn note_settled(&self, payload: u32) {
        self.0.settled.store(payload, Ordering::Release);
    }

    /// Does its thread run?
    pub(crate) fn is_alive(&self) -> bool {
        self.0.progress_engine.is_alive()
    }

    /// Is this a child of the operating system process that it was started in? Its threads are not here then.
    pub(crate) fn is_forked(&self) -> bool {
        self.0.pid != std::process::id()
    }

    /// The descriptors of its sockets. A child of a fork that keeps them open hides the death of its parent from the
    /// other ranks.
    pub fn descriptors(&self) -> Vec<i32> {
        self.0.descriptors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep_invitation(&self, terms: Option<Terms>) {
        *self.0.invitation.lock().unwrap_or_else(PoisonError::into_inner) = terms;
    }

    fn take_invitation(&self) -> Option<Terms> {
        self.0.invitation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The operations under way in all groups, the oldest first; empty if the process has ended.
    pub fn waiting(&self) -> Vec<Waiting> {
        let (answer, report) = std::sync::mpsc::channel();
        self.submit(Command::Report(answer));
        report.recv_timeout(Duration::from_secs(10)).unwrap_or_default()
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.0.wire.secret
    }

    /// Leaves a command for the thread. Returns false in the child of a fork: there no thread carries it out, and a
    /// lock may be held for ever. The test for a fork is a system call, so each command makes it once.
    fn submit(&self, command: Command) -> bool {
        let ours = !self.is_forked();
        if ours {
            self.0.progress_engine.submit(command);
        }
        ours
    }

    /// The progress engine that moves its packets.
    fn progress_engine(&self) -> Arc<ProgressEngine> {
        Arc::clone(&self.0.progress_engine)
    }

    /// Tells the others good-bye, once all that was said has arrived, and ends the thread. Groups of the process fail
    /// from now on.
    ///
    /// # Errors
    /// [`Failure::Undelivered`] if messages did not arrive whose calls had ended well here: their receivers are gone,
    /// or have not answered for [`ProcessOptions::linger`].
    pub fn close(&self) -> Result<(), Failure> {
        self.0.close();
        if self.is_forked() {
            return Ok(());
        }
        let lost = std::mem::take(&mut *self.0.lost.lock().unwrap_or_else(PoisonError::into_inner));
        if lost.is_empty() { Ok(()) } else { Err(Failure::Undelivered(lost)) }
    }
}

impl Inner {
    fn close(&self) {
        if self.pid != std::process::id() {
            // The node is the parent's. Its threads are not here, and nothing may leave by its sockets.
            std::mem::forget(Arc::clone(&self.progress_engine));
            return;
        }
        self.progress_engine.submit(Command::End(self.linger));
        self.progress_engine.call_back();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there was told to those that waited.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
        if self.pid != std::process::id() {
            // A thread of this process may have the place of the parent's thread by now. Dropping the handle would
            // detach it: its own handle may then name a third thread, and joining it may never end.
            std::mem::forget(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        let lost = std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner));
        launch::note_undelivered(lost);
    }
}
