//! The engine of a process: one node, its peers, and all collectives under way in all groups. Its thread runs it, or a
//! caller that waits: see `helm.rs`.

mod arriving;
mod ends;
mod lines;
mod tasks;

use super::element::{Element, Reduction};
use super::failure::Failure;
use super::helm::Commands;
use super::memory::Buffer;
use super::message::{HEAD, Id, Landing};
use super::plan::{EAGER, Job, Span};
use super::probe::Probe;
use super::record::Record;
use super::task::{Pool, Task};
use super::tuning::Tuning;
use super::work::Work;
use arriving::parcel_bytes;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddrV6;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strandway_udp::{Connection, Error, Node, Operation, Region};

/// Room for one message.
const SLOT: usize = 16_384;
/// Messages that a peer may have under way at once: ours.
const SLOTS: usize = 16;
const _: () = assert!(EAGER + HEAD <= SLOT);
/// Limit on the bytes of all peers that arrive before a collective asks for them: ours. A peer that exceeds it is
/// disconnected.
const EARLY_MAX: usize = 256 << 20;
/// Groups that are remembered after their end, so that late messages are known as such: ours.
const ENDED_MAX: usize = 65_536;
/// How often silent peers are looked at: ours.
const TICK: Duration = Duration::from_millis(100);
/// If a peer that a task waits for is silent for this time, the engine probes whether the peer is gone: ours.
const SILENCE: Duration = Duration::from_millis(300);
/// Without any task, the thread looks around so often.
const QUIET: Duration = Duration::from_secs(60);

/// The work of a task.
pub(super) enum What {
    Job(Job),
    Send { to: u32, tag: u32, at: Span },
    Receive { from: Option<u32>, tag: u32, at: Span },
}

/// Requests of callers to the thread.
pub(super) enum Command {
    Meet {
        group: u64,
        rank: u32,
        members: Vec<Record>,
        failure: Arc<Mutex<Option<Failure>>>,
    },
    Begin(Box<Begin>),
    Abort {
        group: u64,
    },
    Leave {
        group: u64,
    },
    /// Ends the thread when all messages have arrived, or after this time.
    End(Duration),
}

pub(super) struct Begin {
    pub(super) group: u64,
    pub(super) number: Option<u64>,
    pub(super) what: What,
    pub(super) buffers: Vec<Buffer>,
    pub(super) element: Element,
    pub(super) reduction: Reduction,
    pub(super) timeout: Duration,
    pub(super) work: Work,
}

enum Line {
    Calling(Connection),
    /// The peer begins.
    Expected,
    Open(Connection),
    /// Why.
    Gone(String),
}

struct Peer {
    record: Record,
    line: Line,
    /// Messages that wait for the line, or for room on it.
    backlog: VecDeque<Vec<u8>>,
    met: Instant,
    /// It is silent, and was sent something that it would acknowledge.
    nudged: bool,
    probe: Option<Probe>,
}

struct Group {
    rank: u32,
    /// Peers by rank; our own place has nobody.
    members: Vec<Option<usize>>,
    ranks: HashMap<usize, u32>,
    /// Collectives with lower numbers have begun here.
    begun: u64,
    tasks: BTreeMap<u64, u64>,
    /// Receives that wait for a message, in the order of their calls: task, rank, tag.
    wanted: VecDeque<(u64, Option<u32>, u32)>,
    /// Messages that wait for a receive, in the order of their arrival.
    parcels: VecDeque<(u32, u32, Parcel)>,
    /// The first failure of a task, for those who ask.
    failure: Arc<Mutex<Option<Failure>>>,
    aborted: bool,
}

enum Parcel {
    Bytes(Vec<u8>),
    Offer { number: u64, length: u64 },
}

/// A message of a collective that has not begun here.
enum Early {
    Bytes(u32, Vec<u8>),
    Open(u32, Landing),
    Told(String),
}

/// Memory that is open to a peer: for a receive of a task.
struct Opened {
    task: u64,
    receive: usize,
    landing: Landing,
    /// The staging area, if it is not the caller's memory.
    staging: Option<Region>,
}

/// The purpose of a send of the node.
enum Sent {
    Message(Region),
    Long { task: u64, send: usize },
}

/// Memory of a task that has failed, which the wire still uses.
struct Remains {
    regions: Vec<Region>,
    uses: usize,
}

pub(super) struct Engine {
    node: Node,
    id: Id,
    ours: Vec<SocketAddrV6>,
    tuning: Tuning,
    peers: Vec<Peer>,
    by_id: HashMap<Id, usize>,
    by_connection: HashMap<Connection, usize>,
    /// Accepted, and not said who it is.
    strangers: HashSet<Connection>,
    groups: HashMap<u64, Group>,
    ended: (HashSet<u64>, VecDeque<u64>),
    tasks: HashMap<u64, Task>,
    next_task: u64,
    remains: HashMap<u64, Remains>,
    early: HashMap<(u64, u64), Vec<(usize, Early)>>,
    /// Messages for receives in groups that are not known here yet.
    unknown: HashMap<u64, Vec<(usize, u32, Parcel)>>,
    early_bytes: usize,
    landings: HashMap<(Connection, u32), Opened>,
    next_landing: u32,
    sent: HashMap<Operation, (Connection, Sent)>,
    slots: HashMap<Connection, Slots>,
    pool: Pool,
    ticked: Instant,
    ending: Option<Instant>,
}

/// Room for a connection's messages; filled in turn.
struct Slots {
    region: Region,
    next: usize,
}

type Outcome = Result<(), Error>;

impl Engine {
    pub(super) fn new(node: Node, id: Id, ours: Vec<SocketAddrV6>, tuning: Tuning) -> Engine {
        Engine {
            node,
            id,
            ours,
            tuning,
            peers: Vec::new(),
            by_id: HashMap::new(),
            by_connection: HashMap::new(),
            strangers: HashSet::new(),
            groups: HashMap::new(),
            ended: Default::default(),
            tasks: HashMap::new(),
            next_task: 1,
            remains: HashMap::new(),
            early: HashMap::new(),
            unknown: HashMap::new(),
            early_bytes: 0,
            landings: HashMap::new(),
            next_landing: 0,
            sent: HashMap::new(),
            slots: HashMap::new(),
            pool: Pool::default(),
            ticked: Instant::now(),
            ending: None,
        }
    }

    /// Carries out commands, moves packets or waits for some for at most `longest`, and acts on what has come. False if
    /// it was told to end, and has said everything.
    pub(super) fn turn(&mut self, commands: &Commands, longest: Duration) -> Result<bool, Error> {
        self.obey(commands)?;
        if self.ending.is_some_and(|until| self.sent.is_empty() || Instant::now() > until) {
            return Ok(false);
        }
        let busy = !self.tasks.is_empty() || self.ending.is_some();
        let timeout = if busy { self.until_next() } else { QUIET };
        if let Some(completion) = self.node.wait(timeout.min(longest))? {
            self.heed(completion)?;
        }
        if busy && self.ticked.elapsed() >= TICK.min(timeout) {
            self.ticked = Instant::now();
            self.tick()?;
        }
        Ok(true)
    }

    /// Carries out the commands that wait.
    pub(super) fn obey(&mut self, commands: &Commands) -> Outcome {
        while let Some(command) = commands.take() {
            self.execute(command)?;
        }
        Ok(())
    }

    /// Is anything under way?
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Was it told to end?
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Lets datagrams leave that the node holds back for an answer of its program.
    pub(super) fn let_go(&mut self) {
        self.node.let_go();
    }

    /// Until the next look at peers or the next task whose time is over.
    fn until_next(&self) -> Duration {
        let first = self.tasks.values().filter_map(Task::deadline).min();
        let left = first.map_or(TICK, |at| at.saturating_duration_since(Instant::now()));
        left.clamp(Duration::from_millis(1), TICK)
    }

    fn execute(&mut self, command: Command) -> Outcome {
        match command {
            Command::Meet { group, rank, members, failure } => self.meet(group, rank, members, failure)?,
            Command::Begin(begin) => self.begin(*begin)?,
            Command::Abort { group } => {
                if let Some(one) = self.groups.get_mut(&group) {
                    one.aborted = true;
                }
                self.fail_group(group, &Failure::Aborted)?;
            }
            Command::Leave { group } => {
                self.fail_group(group, &Failure::Aborted)?;
                if let Some(one) = self.groups.remove(&group) {
                    for (_, _, parcel) in one.parcels {
                        self.early_bytes -= parcel_bytes(&parcel);
                    }
                }
                let late: Vec<(u64, u64)> = self.early.keys().copied().filter(|(of, _)| *of == group).collect();
                late.into_iter().for_each(|key| drop(self.take_early(key)));
                self.ended.0.insert(group);
                self.ended.1.push_back(group);
                if self.ended.1.len() > ENDED_MAX
                    && let Some(oldest) = self.ended.1.pop_front()
                {
                    self.ended.0.remove(&oldest);
                }
            }
            Command::End(patience) => self.ending = Some(Instant::now() + patience),
        }
        Ok(())
    }

    fn meet(&mut self, group: u64, rank: u32, members: Vec<Record>, failure: Arc<Mutex<Option<Failure>>>) -> Outcome {
        let mut one = Group {
            rank,
            members: Vec::with_capacity(members.len()),
            ranks: HashMap::new(),
            begun: 0,
            tasks: BTreeMap::new(),
            wanted: VecDeque::new(),
            parcels: VecDeque::new(),
            failure,
            aborted: false,
        };
        for (at, record) in (0..).zip(members) {
            if at == rank {
                one.members.push(None);
                continue;
            }
            let peer = match self.by_id.get(&record.id) {
                Some(&peer) => {
                    if self.peers[peer].record.addresses.is_empty() {
                        // It has called before this group was known here.
                        self.peers[peer].record = record;
                    }
                    peer
                }
                None => self.add_peer(record)?,
            };
            one.members.push(Some(peer));
            one.ranks.insert(peer, at);
        }
        self.groups.insert(group, one);
        for (peer, tag, parcel) in self.unknown.remove(&group).unwrap_or_default() {
            self.early_bytes -= parcel_bytes(&parcel);
            self.handle_parcel(peer, group, tag, parcel)?;
        }
        Ok(())
    }

    fn add_peer(&mut self, record: Record) -> Result<usize, Error> {
        let peer = self.peers.len();
        // One of the two calls.
        let line = if self.id < record.id {
            let connection = self.node.connect(&record.addresses)?;
            self.by_connection.insert(connection, peer);
            Line::Calling(connection)
        } else {
            Line::Expected
        };
        self.by_id.insert(record.id, peer);
        self.peers.push(Peer {
            record,
            line,
            backlog: VecDeque::new(),
            met: Instant::now(),
            nudged: false,
            probe: None,
        });
        Ok(peer)
    }
}
