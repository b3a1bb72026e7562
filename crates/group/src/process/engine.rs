//! The thread of a process: one node, its peers, and all collectives under way in all groups.

use super::element::{Element, Reduction};
use super::failure::Failure;
use super::memory::{Buffer, Bytes};
use super::message::{HEAD, Id, Landing, Message, Said};
use super::plan::{Arriving, EAGER, Gate, Into, Job, Outgoing, Plan, Span};
use super::probe::Probe;
use super::record::Record;
use super::task::{Pool, Stage, Start, Task};
use super::work::Work;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddrV6;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Connection, Error, Node, Operation, Reason, Region};

/// Room for one message.
const SLOT: usize = 16_384;
/// Messages that a peer may have under way at once: ours.
const SLOTS: usize = 16;
const _: () = assert!(EAGER + HEAD <= SLOT);
/// Limit on the bytes of all peers that arrive before a collective asks for them: ours. A peer that exceeds it is disconnected.
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

/// Where callers leave their commands.
#[derive(Default)]
pub(super) struct Commands {
    pub(super) list: VecDeque<Command>,
    /// The thread is no more: why.
    pub(super) ended: Option<String>,
}

pub(super) type Queue = Arc<Mutex<Commands>>;

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
    queue: Queue,
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
    pub(super) fn new(node: Node, id: Id, ours: Vec<SocketAddrV6>, queue: Queue) -> Engine {
        Engine {
            node,
            id,
            ours,
            queue,
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

    /// Until it is told to end.
    pub(super) fn run(mut self) -> Outcome {
        loop {
            loop {
                let command = self.queue.lock().unwrap_or_else(PoisonError::into_inner).list.pop_front();
                let Some(command) = command else { break };
                self.execute(command)?;
            }
            if self.ending.is_some_and(|until| self.sent.is_empty() || Instant::now() > until) {
                return Ok(());
            }
            let busy = !self.tasks.is_empty() || self.ending.is_some();
            let timeout = if busy { self.until_next() } else { QUIET };
            if let Some(completion) = self.node.wait(timeout)? {
                self.heed(completion)?;
            }
            if busy && self.ticked.elapsed() >= TICK.min(timeout) {
                self.ticked = Instant::now();
                self.tick()?;
            }
        }
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

    // Tasks.

    fn begin(&mut self, begin: Begin) -> Outcome {
        let Begin { group, number, what, buffers, element, reduction, timeout, work } = begin;
        let Some(one) = self.groups.get_mut(&group).filter(|group| !group.aborted) else {
            work.end(Err(Failure::Aborted));
            return Ok(());
        };
        let (rank, ranks) = (one.rank, one.members.len() as u32);
        let id = self.next_task;
        self.next_task += 1;
        if let Some(number) = number {
            one.begun = number + 1;
            one.tasks.insert(number, id);
        }
        let (mut regions, mut owners) = (Vec::with_capacity(buffers.len()), Vec::new());
        for buffer in buffers {
            let (bytes, owner) = buffer.into_parts();
            owners.extend(owner);
            regions.push(match bytes {
                Bytes::Read(bytes) => self.node.show(bytes),
                Bytes::Write(bytes) => self.node.lend(bytes),
            });
        }
        let (name, plan) = match &what {
            What::Job(job) => (job.name(), Plan::new(job, rank, ranks, element, regions.len())),
            What::Send { to, tag, at } => {
                let send = Outgoing { to: *to, tag: *tag, from: at.clone(), gate: Gate::Open };
                ("send", Plan { sends: vec![send], ..Plan::default() })
            }
            What::Receive { from, tag, at } => {
                let from = from.unwrap_or(u32::MAX);
                let receive = Arriving { from, tag: *tag, length: at.len(), into: Into::Place(at.clone()) };
                ("recv", Plan { receives: vec![receive], ..Plan::default() })
            }
        };
        let start =
            Start { group, number, what: name, work, timeout, rank, ranks, element, reduction, plan, regions, owners };
        let task = Task::new(&mut self.node, &mut self.pool, start)?;
        self.tasks.insert(id, task);
        match what {
            What::Job(_) => {
                let key = (group, number.unwrap_or_default());
                // This rank's blocks leave before anything is added to them in place.
                self.let_sends_leave(id)?;
                for (peer, early) in self.take_early(key) {
                    self.handle_early(id, peer, early)?;
                }
            }
            What::Send { to, tag, at } => self.begin_send(id, to, tag, &at)?,
            What::Receive { from, tag, .. } => self.begin_receive(id, from, tag)?,
        }
        if let Some(failure) = self.find_gone(id) {
            return self.fail(id, &failure);
        }
        self.progress(id)
    }

    fn take_early(&mut self, key: (u64, u64)) -> Vec<(usize, Early)> {
        let early = self.early.remove(&key).unwrap_or_default();
        self.early_bytes -= early.iter().map(|(_, early)| early_bytes(early)).sum::<usize>();
        early
    }

    /// A rank that a task waits for and that is known to be gone.
    fn find_gone(&self, id: u64) -> Option<Failure> {
        let task = self.tasks.get(&id)?;
        let group = self.groups.get(&task.group)?;
        task.waits_for().into_iter().find_map(|rank| {
            let peer = &self.peers[(*group.members.get(rank as usize)?)?];
            match &peer.line {
                Line::Gone(evidence) => {
                    Some(Failure::Gone { rank, host: peer.record.host.clone(), evidence: evidence.clone() })
                }
                _ => None,
            }
        })
    }

    fn begin_send(&mut self, id: u64, to: u32, tag: u32, at: &Span) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let group = task.group;
        let Some(Some(peer)) = self.groups.get(&group).and_then(|group| group.members.get(to as usize)).copied() else {
            return Ok(());
        };
        if at.len() <= EAGER {
            let bytes = self.node.memory(task.regions[at.buffer])?[at.bytes.clone()].to_vec();
            task.sent[0] = Stage::Done;
            task.left -= 1;
            self.say(peer, &Message { tag, group, number: id, said: Said::Parcel(&bytes) })
        } else {
            self.say(peer, &Message { tag, group, number: id, said: Said::Offer(at.len() as u64) })
        }
    }

    fn begin_receive(&mut self, id: u64, from: Option<u32>, tag: u32) -> Outcome {
        let Some(group) = self.tasks.get(&id).map(|task| task.group) else { return Ok(()) };
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        let fits = |of: u32, with: u32| with == tag && from.is_none_or(|from| from == of);
        match one.parcels.iter().position(|(of, with, _)| fits(*of, *with)) {
            Some(at) => {
                let Some((of, _, parcel)) = one.parcels.remove(at) else { return Ok(()) };
                self.early_bytes -= parcel_bytes(&parcel);
                self.deliver(id, of, parcel)
            }
            None => {
                one.wanted.push_back((id, from, tag));
                Ok(())
            }
        }
    }

    /// A message and the receive that it is for have met.
    fn deliver(&mut self, id: u64, from: u32, parcel: Parcel) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.source = Some(from);
        task.plan.receives[0].from = from;
        let length = match &parcel {
            Parcel::Bytes(bytes) => bytes.len() as u64,
            Parcel::Offer { length, .. } => *length,
        };
        if length != task.plan.receives[0].length as u64 {
            let room = task.plan.receives[0].length;
            let what =
                format!("rank {from} sends {length} bytes, and the receive has room for {room}: give both the same");
            return self.fail(id, &Failure::Mismatch(what));
        }
        match parcel {
            Parcel::Bytes(bytes) => {
                task.take(&mut self.node, &mut self.pool, 0, bytes)?;
                self.progress(id)
            }
            Parcel::Offer { number, .. } => {
                let (group, tag) = (task.group, task.plan.receives[0].tag);
                let Some(peer) = self.peer_of(group, from) else { return Ok(()) };
                if let Some(landing) = self.open(id, 0, peer)? {
                    self.say(peer, &Message { tag, group, number, said: Said::Accept(landing) })?;
                }
                Ok(())
            }
        }
    }

    fn peer_of(&self, group: u64, rank: u32) -> Option<usize> {
        self.groups.get(&group)?.members.get(rank as usize).copied().flatten()
    }

    /// Opens memory for a receive to the peer that fills it; not if the line to it is not there yet.
    fn open(&mut self, id: u64, receive: usize, peer: usize) -> Result<Option<Landing>, Error> {
        let (Line::Open(connection), Some(task)) = (&self.peers[peer].line, self.tasks.get_mut(&id)) else {
            return Ok(None);
        };
        let connection = *connection;
        let arriving = &task.plan.receives[receive];
        let (region, range, staging): (Region, Range<usize>, _) = match &arriving.into {
            Into::Place(span) => (task.regions[span.buffer], span.bytes.clone(), None),
            Into::Sum(_) => {
                let region = self.node.register(self.pool.take(arriving.length));
                (region, 0..arriving.length, Some(region))
            }
        };
        let number = self.next_landing;
        self.next_landing = self.next_landing.wrapping_add(1);
        let landing = Landing { number, region: self.node.expose(connection, region, range)? };
        task.received[receive] = Stage::Begun;
        self.landings.insert((connection, number), Opened { task: id, receive, landing, staging });
        Ok(Some(landing))
    }

    /// Sends and opens what may be sent and opened; ends a task that has nothing left.
    fn progress(&mut self, id: u64) -> Outcome {
        self.open_receives(id)?;
        self.let_sends_leave(id)?;
        let Some(task) = self.tasks.get(&id).filter(|task| task.left == 0) else { return Ok(()) };
        let source = task.source;
        let Some(mut task) = self.remove(id) else { return Ok(()) };
        for region in std::mem::take(&mut task.regions) {
            self.node.deregister(region)?;
        }
        // The caller's memory is its own again before it hears of the end.
        task.owners.clear();
        task.work.end(Ok(source));
        Ok(())
    }

    /// Takes a task off all lists.
    fn remove(&mut self, id: u64) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&task.group) {
            match task.number {
                Some(number) => drop(group.tasks.remove(&number)),
                None => group.wanted.retain(|(wanted, _, _)| *wanted != id),
            }
        }
        Some(task)
    }

    fn open_receives(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let Some(number) = task.number else { return Ok(()) };
        let (group, mut at, end) = (task.group, task.first_receive, task.plan.receives.len());
        let mut first = None;
        while at < end {
            let task = &self.tasks[&id];
            let receive = &task.plan.receives[at];
            if task.received[at] == Stage::Waiting && receive.length > EAGER {
                let (from, tag) = (receive.from, receive.tag);
                if !task.may_receive(at) {
                    first.get_or_insert(at);
                    break;
                }
                let Some(peer) = self.peer_of(group, from) else { return Ok(()) };
                match self.open(id, at, peer)? {
                    Some(landing) => self.say(peer, &Message { tag, group, number, said: Said::Open(landing) })?,
                    None => drop(first.get_or_insert(at)),
                }
            }
            at += 1;
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.first_receive = first.unwrap_or(at);
        }
        Ok(())
    }

    fn let_sends_leave(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let (group, number) = (task.group, task.number);
        let (mut at, end) = (task.first_send, task.plan.sends.len());
        let mut first = None;
        while at < end {
            let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
            if task.sent[at] == Stage::Waiting && !self.send_one(id, at, group, number)? {
                first.get_or_insert(at);
            }
            at += 1;
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.first_send = first.unwrap_or(at);
        }
        Ok(())
    }

    /// Lets one send leave; false if it has to wait.
    fn send_one(&mut self, id: u64, at: usize, group: u64, number: Option<u64>) -> Result<bool, Error> {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_open(at)) else { return Ok(false) };
        let Outgoing { to, tag, from, .. } = task.plan.sends[at].clone();
        let Some(Some(peer)) = self.groups.get(&group).and_then(|group| group.members.get(to as usize)).copied() else {
            return Ok(false);
        };
        if let Some(number) = number
            && from.len() <= EAGER
        {
            let bytes = match from.is_empty() {
                true => Vec::new(),
                false => self.node.memory(task.regions[from.buffer])?[from.bytes].to_vec(),
            };
            task.sent[at] = Stage::Done;
            task.left -= 1;
            self.say(peer, &Message { tag, group, number, said: Said::Bytes(&bytes) })?;
            return Ok(true);
        }
        let (Some(landing), Line::Open(connection)) = (task.opened.get(&(to, tag)).copied(), &self.peers[peer].line)
        else {
            return Ok(false);
        };
        if landing.region.bytes != from.len() as u64 {
            let (theirs, ours) = (landing.region.bytes, from.len());
            let what = format!("rank {to} expects {theirs} bytes where this rank sends {ours}: call all ranks alike");
            self.fail(id, &Failure::Mismatch(what))?;
            return Ok(true);
        }
        let (connection, region) = (*connection, task.regions[from.buffer]);
        match self.node.write(connection, region, from.bytes, landing.region, 0, Some(landing.number)) {
            Ok(operation) => {
                task.opened.remove(&(to, tag));
                task.sent[at] = Stage::Begun;
                self.sent.insert(operation, (connection, Sent::Long { task: id, send: at }));
                Ok(true)
            }
            // It is tried again when something of the task has ended.
            Err(Error::Busy { .. } | Error::NoConnection | Error::NotConnected) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A task has no result: says so to its caller and, unless it is this rank's own doing, to the others.
    fn fail(&mut self, id: u64, failure: &Failure) -> Outcome {
        let Some(mut task) = self.remove(id) else { return Ok(()) };
        // The wire may use its memory for a while; the caller has it back now.
        let mut regions = std::mem::take(&mut task.regions);
        for region in &regions {
            self.node.take_over(*region)?;
        }
        let uses = self.landings.values().filter(|opened| opened.task == id).count()
            + self.sent.values().filter(|(_, sent)| matches!(sent, Sent::Long { task, .. } if *task == id)).count();
        if uses == 0 {
            for region in regions.drain(..) {
                self.node.deregister(region)?;
            }
        } else {
            self.remains.insert(id, Remains { regions, uses });
        }
        task.owners.clear();
        if let Some(group) = self.groups.get(&task.group) {
            group.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| failure.clone());
            if let (Some(number), Failure::Gone { .. } | Failure::Mismatch(_)) = (task.number, failure) {
                let text: String = failure.to_string().chars().take(2_000).collect();
                let members: Vec<usize> = group.members.iter().flatten().copied().collect();
                for peer in members {
                    let told = Message { tag: 0, group: task.group, number, said: Said::Told(&text) };
                    self.say(peer, &told)?;
                }
            }
        }
        task.work.end(Err(failure.clone()));
        Ok(())
    }

    fn fail_group(&mut self, group: u64, failure: &Failure) -> Outcome {
        let ids: Vec<u64> = self.tasks.iter().filter(|(_, task)| task.group == group).map(|(id, _)| *id).collect();
        ids.into_iter().try_for_each(|id| self.fail(id, failure))
    }

    /// A use of a failed task's memory has ended.
    fn clear(&mut self, id: u64) -> Outcome {
        let Some(remains) = self.remains.get_mut(&id) else { return Ok(()) };
        remains.uses -= 1;
        if remains.uses == 0
            && let Some(remains) = self.remains.remove(&id)
        {
            for region in remains.regions {
                self.node.deregister(region)?;
            }
        }
        Ok(())
    }

    // The wire.

    fn say(&mut self, peer: usize, message: &Message<'_>) -> Outcome {
        let bytes = message.encode();
        let one = &mut self.peers[peer];
        match &one.line {
            Line::Open(connection) if one.backlog.is_empty() => {
                let connection = *connection;
                if let Some(bytes) = self.send(connection, bytes)? {
                    self.peers[peer].backlog.push_back(bytes);
                }
            }
            Line::Gone(_) => {}
            _ => one.backlog.push_back(bytes),
        }
        Ok(())
    }

    /// Gives the message back if the line has no room for it now.
    fn send(&mut self, connection: Connection, bytes: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        let length = bytes.len();
        let region = self.node.register(bytes);
        match self.node.send(connection, region, 0..length) {
            Ok(operation) => {
                self.sent.insert(operation, (connection, Sent::Message(region)));
                Ok(None)
            }
            Err(Error::Busy { .. }) => self.node.deregister(region).map(Some),
            // Its end is told elsewhere.
            Err(Error::NoConnection | Error::NotConnected) => self.node.deregister(region).map(|_| None),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self, peer: usize) -> Outcome {
        while let Line::Open(connection) = self.peers[peer].line {
            let Some(bytes) = self.peers[peer].backlog.pop_front() else { break };
            if let Some(bytes) = self.send(connection, bytes)? {
                self.peers[peer].backlog.push_front(bytes);
                break;
            }
        }
        Ok(())
    }

    fn heed(&mut self, completion: Completion) -> Outcome {
        match completion {
            Completion::Connected { connection } => {
                self.listen(connection)?;
                let Some(&peer) = self.by_connection.get(&connection) else { return Ok(()) };
                let hello = Message { tag: 0, group: 0, number: 0, said: Said::Hello(self.id) }.encode();
                self.send(connection, hello)?;
                self.set_open(peer, connection)
            }
            Completion::Accepted { connection, .. } => {
                self.strangers.insert(connection);
                self.listen(connection)
            }
            Completion::Received { connection, bytes, .. } => self.hear(connection, bytes as usize),
            Completion::Written { connection, immediate, bytes } => {
                let Some(opened) = self.landings.remove(&(connection, immediate)) else { return Ok(()) };
                self.node.revoke(opened.landing.region);
                let staged = opened.staging.map(|region| self.node.deregister(region)).transpose()?;
                let id = opened.task;
                let Some(task) = self.tasks.get_mut(&id) else { return self.clear(id) };
                if bytes != opened.landing.region.bytes {
                    let what = format!("{bytes} bytes came where {} were due", opened.landing.region.bytes);
                    return self.fail(id, &Failure::Mismatch(what));
                }
                match staged {
                    Some(bytes) => task.take(&mut self.node, &mut self.pool, opened.receive, bytes)?,
                    None => task.done(opened.receive),
                }
                self.progress(id)
            }
            Completion::Sent { operation, .. } => match self.sent.remove(&operation) {
                Some((connection, Sent::Message(region))) => {
                    self.node.deregister(region)?;
                    match self.by_connection.get(&connection) {
                        Some(&peer) if !self.peers[peer].backlog.is_empty() => self.flush(peer),
                        _ => Ok(()),
                    }
                }
                Some((_, Sent::Long { task: id, send })) => {
                    let Some(task) = self.tasks.get_mut(&id) else { return self.clear(id) };
                    task.sent[send] = Stage::Done;
                    task.left -= 1;
                    self.progress(id)
                }
                None => Ok(()),
            },
            Completion::Closed { connection, reason } => self.handle_closed(connection, reason),
            _ => Ok(()),
        }
    }

    fn listen(&mut self, connection: Connection) -> Outcome {
        let region = self.node.register(vec![0; SLOT * SLOTS]);
        for slot in 0..SLOTS {
            self.node.recv(connection, region, slot * SLOT..(slot + 1) * SLOT)?;
        }
        self.slots.insert(connection, Slots { region, next: 0 });
        Ok(())
    }

    fn set_open(&mut self, peer: usize, connection: Connection) -> Outcome {
        self.by_connection.insert(connection, peer);
        self.peers[peer].line = Line::Open(connection);
        self.flush(peer)?;
        // Tasks that have waited for the line.
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.progress(id))
    }

    /// A message is in the connection's next slot.
    fn hear(&mut self, connection: Connection, length: usize) -> Outcome {
        let Some(slots) = self.slots.get_mut(&connection) else { return Ok(()) };
        let (region, start) = (slots.region, slots.next * SLOT);
        slots.next = (slots.next + 1) % SLOTS;
        // Copied out: what it says changes the node that holds it.
        let bytes = self.node.memory(region)?[start..start + length.min(SLOT)].to_vec();
        self.node.recv(connection, region, start..start + SLOT)?;
        let Some(message) = Message::decode(&bytes) else { return self.cut_off(connection, "it breaks the protocol") };
        if let Said::Hello(id) = message.said {
            return self.handle_hello(connection, id);
        }
        let Some(&peer) = self.by_connection.get(&connection) else {
            return self.cut_off(connection, "it does not say who it is");
        };
        self.handle(peer, &message)
    }

    fn handle_hello(&mut self, connection: Connection, id: Id) -> Outcome {
        if !self.strangers.remove(&connection) {
            return self.cut_off(connection, "it says twice who it is");
        }
        let peer = match self.by_id.get(&id) {
            Some(&peer) => peer,
            None => {
                // Its group is not known here yet; its record comes with that.
                let record = Record { id, host: "an unknown host".into(), addresses: Vec::new() };
                let peer = self.peers.len();
                self.by_id.insert(id, peer);
                let met = Instant::now();
                self.peers.push(Peer {
                    record,
                    line: Line::Expected,
                    backlog: VecDeque::new(),
                    met,
                    nudged: false,
                    probe: None,
                });
                peer
            }
        };
        if !matches!(self.peers[peer].line, Line::Expected) {
            return self.cut_off(connection, "it has another connection");
        }
        self.set_open(peer, connection)
    }

    fn handle(&mut self, peer: usize, message: &Message<'_>) -> Outcome {
        let &Message { tag, group, number, said } = message;
        if self.ended.0.contains(&group) {
            return Ok(());
        }
        match said {
            Said::Bytes(bytes) => self.handle_collective(peer, (group, number), Early::Bytes(tag, bytes.to_vec())),
            Said::Open(landing) => self.handle_collective(peer, (group, number), Early::Open(tag, landing)),
            Said::Told(text) => self.handle_collective(peer, (group, number), Early::Told(text.into())),
            Said::Parcel(bytes) => self.handle_parcel(peer, group, tag, Parcel::Bytes(bytes.to_vec())),
            Said::Offer(length) => self.handle_parcel(peer, group, tag, Parcel::Offer { number, length }),
            Said::Accept(landing) => {
                let Some(task) = self.tasks.get_mut(&number) else { return Ok(()) };
                if task.group == group && task.number.is_none() && !task.plan.sends.is_empty() {
                    let to = task.plan.sends[0].to;
                    if self.groups.get(&group).and_then(|one| one.ranks.get(&peer)) == Some(&to) {
                        task.opened.insert((to, tag), landing);
                        return self.progress(number);
                    }
                }
                Ok(())
            }
            Said::Hello(_) | Said::Nudge => Ok(()),
        }
    }

    fn handle_collective(&mut self, peer: usize, key: (u64, u64), early: Early) -> Outcome {
        if let Some(group) = self.groups.get(&key.0) {
            if let Some(&id) = group.tasks.get(&key.1) {
                self.handle_early(id, peer, early)?;
                return self.progress(id);
            }
            if key.1 < group.begun {
                // It has failed here.
                return Ok(());
            }
        }
        let bytes = early_bytes(&early);
        if self.early_bytes + bytes > EARLY_MAX {
            return self.cut_off_peer(peer, "it sends more than anybody here has asked for");
        }
        self.early_bytes += bytes;
        self.early.entry(key).or_default().push((peer, early));
        Ok(())
    }

    /// A message of a collective that has begun here.
    fn handle_early(&mut self, id: u64, peer: usize, early: Early) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let Some(&from) = self.groups.get(&task.group).and_then(|group| group.ranks.get(&peer)) else { return Ok(()) };
        match early {
            Early::Bytes(tag, bytes) => match task.receive_of(from, tag) {
                Some(receive) if task.plan.receives[receive].length == bytes.len() => {
                    task.take(&mut self.node, &mut self.pool, receive, bytes)
                }
                Some(receive) => {
                    let (theirs, ours) = (bytes.len(), task.plan.receives[receive].length);
                    let what = format!(
                        "rank {from} sends {theirs} bytes where this rank expects {ours}: call all ranks alike"
                    );
                    self.fail(id, &Failure::Mismatch(what))
                }
                None => {
                    let what = format!(
                        "rank {from} sends {} bytes that {} does not expect: call all ranks alike",
                        bytes.len(),
                        task.what
                    );
                    self.fail(id, &Failure::Mismatch(what))
                }
            },
            Early::Open(tag, landing) => {
                if !task.plan.sends.iter().any(|send| send.to == from && send.tag == tag) {
                    let what =
                        format!("rank {from} expects bytes that {} does not send: call all ranks alike", task.what);
                    return self.fail(id, &Failure::Mismatch(what));
                }
                task.opened.insert((from, tag), landing);
                Ok(())
            }
            Early::Told(what) => self.fail(id, &Failure::Told { by: from, what }),
        }
    }

    fn handle_parcel(&mut self, peer: usize, group: u64, tag: u32, parcel: Parcel) -> Outcome {
        let bytes = parcel_bytes(&parcel);
        if self.early_bytes + bytes > EARLY_MAX {
            return self.cut_off_peer(peer, "it sends more than anybody here has asked for");
        }
        let Some(one) = self.groups.get_mut(&group) else {
            self.early_bytes += bytes;
            self.unknown.entry(group).or_default().push((peer, tag, parcel));
            return Ok(());
        };
        let Some(&from) = one.ranks.get(&peer) else { return Ok(()) };
        match one.wanted.iter().position(|(_, of, with)| *with == tag && of.is_none_or(|of| of == from)) {
            Some(at) => match one.wanted.remove(at) {
                Some((id, _, _)) => self.deliver(id, from, parcel),
                None => Ok(()),
            },
            None => {
                self.early_bytes += bytes;
                one.parcels.push_back((from, tag, parcel));
                Ok(())
            }
        }
    }

    // Ends.

    fn cut_off(&mut self, connection: Connection, why: &str) -> Outcome {
        match self.by_connection.get(&connection) {
            Some(&peer) => self.cut_off_peer(peer, why),
            None => {
                let _ = self.node.close(connection);
                self.forget(connection)
            }
        }
    }

    fn cut_off_peer(&mut self, peer: usize, why: &str) -> Outcome {
        if let Line::Open(connection) | Line::Calling(connection) = self.peers[peer].line {
            // It may have ended by itself.
            let _ = self.node.close(connection);
            self.forget(connection)?;
        }
        self.set_gone(peer, why.into())
    }

    /// A connection is no more: what it used is free.
    fn forget(&mut self, connection: Connection) -> Outcome {
        self.strangers.remove(&connection);
        self.by_connection.remove(&connection);
        if let Some(slots) = self.slots.remove(&connection) {
            self.node.deregister(slots.region)?;
        }
        let open: Vec<(Connection, u32)> = self.landings.keys().copied().filter(|(of, _)| *of == connection).collect();
        for key in open {
            if let Some(opened) = self.landings.remove(&key) {
                if let Some(region) = opened.staging {
                    self.node.deregister(region)?;
                }
                self.clear(opened.task)?;
            }
        }
        let lost: Vec<Operation> =
            self.sent.iter().filter(|(_, (of, _))| *of == connection).map(|(operation, _)| *operation).collect();
        for operation in lost {
            match self.sent.remove(&operation) {
                Some((_, Sent::Message(region))) => drop(self.node.deregister(region)?),
                Some((_, Sent::Long { task, .. })) => self.clear(task)?,
                None => {}
            }
        }
        Ok(())
    }

    fn handle_closed(&mut self, connection: Connection, reason: Reason) -> Outcome {
        let peer = self.by_connection.get(&connection).copied();
        self.forget(connection)?;
        let Some(peer) = peer else { return Ok(()) };
        match (&self.peers[peer].line, reason) {
            // It may be stopped; whether it is gone, its port says.
            (Line::Calling(_), Reason::NoAnswer | Reason::PeerFull) => {
                let again = self.node.connect(&self.peers[peer].record.addresses)?;
                self.by_connection.insert(again, peer);
                self.peers[peer].line = Line::Calling(again);
                Ok(())
            }
            (_, reason) => {
                if reason == Reason::ByPeer {
                    self.forgive_sends(peer)?;
                }
                self.set_gone(peer, reason.to_string())
            }
        }
    }

    /// A peer has left in good order: it has received what it wanted, and its last acknowledgements may have been overtaken.
    fn forgive_sends(&mut self, peer: usize) -> Outcome {
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        for id in ids {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let rank = self.groups.get(&task.group).and_then(|group| group.ranks.get(&peer)).copied();
            for (send, stage) in task.plan.sends.iter().zip(&mut task.sent) {
                if *stage == Stage::Begun && Some(send.to) == rank {
                    *stage = Stage::Done;
                    task.left -= 1;
                }
            }
            self.progress(id)?;
        }
        Ok(())
    }

    fn set_gone(&mut self, peer: usize, evidence: String) -> Outcome {
        self.peers[peer].line = Line::Gone(evidence);
        self.peers[peer].backlog.clear();
        self.peers[peer].probe = None;
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        for id in ids {
            if let Some(failure) = self.find_gone(id) {
                self.fail(id, &failure)?;
            }
        }
        Ok(())
    }

    /// Ends tasks whose time is over, and asks about peers that are silent.
    fn tick(&mut self) -> Outcome {
        let now = Instant::now();
        let over: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.deadline().is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            let Some(task) = self.tasks.get(&id) else { continue };
            let hosts = |rank: u32| match self.peer_of(task.group, rank) {
                Some(peer) => format!("rank {rank} at {}", self.peers[peer].record.host),
                None => "any rank".into(),
            };
            let waiting = task.waits_for().into_iter().take(8).map(hosts).collect();
            let failure = Failure::TimedOut { what: task.what.into(), after: task.timeout, waiting };
            self.fail(id, &failure)?;
        }
        let mut awaited = HashSet::new();
        for task in self.tasks.values().filter(|task| task.began.elapsed() >= SILENCE) {
            awaited.extend(task.waits_for().into_iter().filter_map(|rank| self.peer_of(task.group, rank)));
        }
        for peer in awaited {
            self.look_at(peer)?;
        }
        // Messages that found no room in their queue are tried again.
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.progress(id))
    }

    fn look_at(&mut self, peer: usize) -> Outcome {
        let one = &self.peers[peer];
        let silence = match &one.line {
            Line::Open(connection) => self.node.silence(*connection).unwrap_or(Duration::ZERO),
            Line::Calling(_) | Line::Expected => one.met.elapsed(),
            Line::Gone(_) => return Ok(()),
        };
        let is_open = matches!(one.line, Line::Open(_));
        if silence < SILENCE {
            (self.peers[peer].probe, self.peers[peer].nudged) = (None, false);
            return Ok(());
        }
        if is_open && !std::mem::replace(&mut self.peers[peer].nudged, true) {
            // A peer that has nothing to say acknowledges it: whoever forges refusals changes nothing then.
            return self.say(peer, &Message { tag: 0, group: 0, number: 0, said: Said::Nudge });
        }
        let (ours, one) = (&self.ours, &mut self.peers[peer]);
        let probe = one.probe.get_or_insert_with(|| Probe::new(ours, &one.record.addresses));
        let Some((plane, address)) = probe.ask() else { return Ok(()) };
        self.cut_off_peer(peer, &Failure::refused(plane, address, silence))
    }
}

fn parcel_bytes(parcel: &Parcel) -> usize {
    match parcel {
        Parcel::Bytes(bytes) => bytes.len() + 64,
        Parcel::Offer { .. } => 64,
    }
}

fn early_bytes(early: &Early) -> usize {
    match early {
        Early::Bytes(_, bytes) => bytes.len() + 64,
        Early::Open(..) | Early::Told(_) => 128,
    }
}
