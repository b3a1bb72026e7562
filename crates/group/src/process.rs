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

mod element;
mod engine;
mod failure;
mod group;
mod helm;
mod launch;
mod memory;
mod message;
mod plan;
mod probe;
mod record;
mod store;
mod task;
mod tuning;
mod work;

pub use element::{Element, Reduction};
pub use failure::Failure;
pub use group::{Group, GroupOptions, Number};
pub use launch::{Launch, StoreAt, close_all};
pub use memory::Buffer;
pub use plan::{Job, Span};
pub use store::{DirectoryStore, Prefixed, Store, TcpStore, Values};
pub use tuning::{Candidate, Tuning, tune};
pub use work::Work;

use crate::error::GroupError;
use engine::{Command, Engine};
use helm::Helm;
use record::{Record, Terms, Wire};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strandway_proto::{Rate, Span as TimeSpan};
use strandway_udp::{Config, Node, Protection, random_secret};

/// Silence alone never ends a connection: a process that is stopped is waited for. Ours, a week.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// A plane that is silent for this long, or for this number of round trips, while another one answers, is not used:
/// ours.
const PLANE_TIMEOUT: Duration = Duration::from_millis(40);
const PLANE_TRIPS: u32 = 4;
/// How long the end of a process waits for what it has said last to arrive: ours.
const LINGER: Duration = Duration::from_secs(2);
/// Connections of a process: ours, one per process that it shares a group with.
const CONNECTIONS: usize = 16_384;

/// A process's settings on the wire. Rank 0 chooses those that must be equal everywhere (payload, protection, profile,
/// tuning, key).
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    /// The local address of each plane, in the same order on all hosts. Port 0 takes any free one.
    pub planes: Vec<SocketAddrV6>,
    /// Payload bytes of a full packet; default: what fits the MTU of every plane's device.
    pub payload: Option<u32>,
    /// The protection of datagrams against reading, changes and forgery. Default: encrypted.
    pub protection: Protection,
    /// The protocol: a profile or a profile with other policies, such as `sdr_auto`. Default `uec`.
    pub profile: String,
    /// Which collectives go which way, by their length.
    pub tuning: Tuning,
    /// Line rate of all planes together. Default 40 Gb/s.
    pub rate: Rate,
    /// Round trip without queues, including the time to wake up the other side. Default 100 us.
    pub base_rtt: TimeSpan,
    /// How long the store is asked for ranks that come late. Default 5 minutes.
    pub patience: Duration,
}

impl ProcessOptions {
    /// Defaults on these planes.
    pub fn on(planes: Vec<SocketAddrV6>) -> ProcessOptions {
        ProcessOptions {
            planes,
            payload: None,
            protection: Protection::default(),
            profile: "uec".into(),
            tuning: Tuning::default(),
            rate: Rate::from_gbps(40),
            base_rtt: TimeSpan::from_us(100),
            patience: Duration::from_secs(300),
        }
    }

    fn payload(&self) -> Result<u32, GroupError> {
        if let Some(payload) = self.payload {
            return Ok(payload);
        }
        let mtu = self.planes.iter().map(|plane| launch::mtu_of(*plane.ip())).min().flatten().unwrap_or(1_500);
        let config = Config { protection: self.protection, ..Config::new(&[0; 32])?.profile(&self.profile)? };
        // Beyond this a packet costs more in the cache than it saves in calls.
        Ok(config.mtu(mtu)?.payload.min(PAYLOAD_MAX))
    }
}

/// The largest payload that is taken by default: ours. Four such packets fill a system call. On loopback, encrypted,
/// payloads of 12 to 21 kB take the least processor time of 4 to 32 kB, 3 to 5 % less than 8 kB.
const PAYLOAD_MAX: u32 = 15_900;

/// This process on the wire. A clone is the same one.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    helm: Arc<Helm>,
    record: Record,
    wire: Wire,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Process {
    /// Reads from a group's store what all have in common, or writes it as rank 0, and starts a process on the wire.
    ///
    /// # Errors
    /// If the store or an address does not work.
    pub fn join(store: &mut impl Store, rank: u32, options: &ProcessOptions) -> Result<Process, GroupError> {
        Process::join_or(store, rank, options, |_| None)
    }

    /// The same, with a process that exists if `known` has one with the group's key.
    pub(crate) fn join_or(
        store: &mut impl Store,
        rank: u32,
        options: &ProcessOptions,
        known: impl Fn(Option<&[u8; 32]>) -> Option<Process>,
    ) -> Result<Process, GroupError> {
        let wire = if rank == 0 {
            let process = known(None);
            let wire = match &process {
                Some(process) => process.0.wire.clone(),
                None => {
                    let secret = random_secret()?;
                    Wire {
                        secret,
                        payload: options.payload()?,
                        protection: options.protection,
                        profile: options.profile.clone(),
                        tuning: options.tuning,
                    }
                }
            };
            let group = u64::from_be_bytes(*random_secret()?.first_chunk().expect("32 bytes"));
            let terms = Terms { group, wire: wire.clone() };
            store.set("group", &terms.encode()).map_err(broken)?;
            wire
        } else {
            terms(store, options.patience)?.wire
        };
        match known(Some(&wire.secret)) {
            Some(process) => Ok(process),
            None => Process::start(options, wire),
        }
    }

    fn start(options: &ProcessOptions, wire: Wire) -> Result<Process, GroupError> {
        let config = Config {
            planes: options.planes.clone(),
            payload: wire.payload,
            protection: wire.protection,
            rate: options.rate,
            base_rtt: options.base_rtt,
            plane_timeout: PLANE_TIMEOUT.max(Duration::from_nanos(options.base_rtt.0 / 1_000) * PLANE_TRIPS),
            peer_timeout: PATIENCE,
            // A process may be stopped in the middle of a handshake, too. One side alone must not give it up.
            handshake_timeout: PATIENCE,
            connections_max: CONNECTIONS,
            ..Config::new(&wire.secret)?.profile(&wire.profile)?
        };
        let mut node = Node::bind(config)?;
        let waker = node.waker()?;
        let addresses: Vec<SocketAddrV6> = node
            .addresses()?
            .into_iter()
            .filter_map(|address| match address {
                SocketAddr::V6(address) => Some(address),
                SocketAddr::V4(_) => None,
            })
            .collect();
        let id = *random_secret()?.first_chunk().expect("32 bytes");
        let host = format!("{} (process {})", launch::host_name(), std::process::id());
        let record = Record { id, host, addresses };
        let helm = Arc::new(Helm::new(Engine::new(node, id, record.addresses.clone(), wire.tuning), waker));
        let steered = Arc::clone(&helm);
        let thread = std::thread::Builder::new().name("strandway-wire".into()).spawn(move || steered.run());
        let thread = thread.map_err(|error| GroupError::Config(format!("no thread for the wire: {error}")))?;
        Ok(Process(Arc::new(Inner { helm, record, wire, thread: Mutex::new(Some(thread)) })))
    }

    /// Its address on each plane.
    pub fn addresses(&self) -> &[SocketAddrV6] {
        &self.0.record.addresses
    }

    /// Does its thread run?
    pub(crate) fn is_alive(&self) -> bool {
        self.0.helm.is_alive()
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.0.wire.secret
    }

    /// Leaves a command for the thread.
    fn submit(&self, command: Command) {
        self.0.helm.submit(command);
    }

    /// The helm that moves its packets.
    fn helm(&self) -> Arc<Helm> {
        Arc::clone(&self.0.helm)
    }

    /// Tells the others good-bye, once all that was said has arrived, and ends the thread. Groups of the process fail
    /// from now on.
    pub fn close(&self) {
        self.0.close();
    }
}

impl Inner {
    fn close(&self) {
        self.helm.submit(Command::End(LINGER));
        self.helm.call_back();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there was told to those who waited.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

fn broken(error: std::io::Error) -> GroupError {
    GroupError::Config(format!("the store of the group: {error}"))
}

/// The record of rank 0.
fn terms(store: &mut impl Store, patience: Duration) -> Result<Terms, GroupError> {
    let text = store.get("group", patience).map_err(broken)?;
    Terms::decode(&text).ok_or_else(|| {
        GroupError::Config("the store's value `group` is none of this version: start all ranks alike".into())
    })
}
