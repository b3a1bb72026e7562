//! The engine of a process: one node, its peers, and all collectives under way in all groups. Its thread runs it, or a
//! caller that waits: see `progress_engine.rs`.

mod arriving;
mod connections;
mod credit;
mod delegated;
mod delegates;
mod ends;
mod explore;
mod failing;
mod local;
mod peers;
mod remains;
mod state;
mod tasks;
mod watching;

use super::commands::{Begin, Command, Commands, Waiting, What};
use super::failure::Failure;
use super::local::Carrier;
use super::message::{HEAD, Id, Message, PeerMessage, Signature};
use super::record::{Record, hosts_of};
use super::task::{Pool, Task};
pub(super) use delegated::Delegated;
pub(super) use delegates::Delegates;
use explore::Explorations;
use local::{LocalMap, LocalSet};
use peers::Peers;
use remains::AllRemains;
use state::{
    About, Counts, Early, Ending, Group, Landings, Opened, OutgoingMessage, PeerConnection, QueuedMessage, Refusals,
    Sent, Slots, Starved, cost,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use strandway_collective::plan::PlanMaker;
use strandway_collective::plan::Tuning;
use strandway_collective::plan::direct::EAGER;
use strandway_udp::{Connection, Error, Operation};
use watching::Watching;

/// Room for one message.
const SLOT: usize = 16_384;
/// Messages that a peer may have under way at once: ours.
const SLOTS: usize = 16;
const _: () = assert!(EAGER + HEAD <= SLOT);
/// The limit on the bytes of a peer's announcements, reports and requests that wait here, beyond its credit: ours. Only
/// a peer that breaks the protocol exceeds it; it is disconnected.
const NOTES_MAX: usize = 64 << 20;
/// The limit on the memory of failed operations that peers may still write to or read from: ours. Beyond it, the peers
/// that have kept such memory longest are disconnected.
const REMAINS_MAX: usize = 256 << 20;
/// A process may have left before a group here names it, and its messages may be for such a group. These are the limits
/// on such processes, and on the bytes of their messages. Ours.
const DEPARTED_MAX: usize = 1_024;
const DEPARTED_BYTES_MAX: usize = 64 << 20;
/// The number of failed calls of a group that are remembered: ours.
const FAILED_MAX: usize = 4_096;
/// The most lines of a report on messages that did not arrive: ours.
const LOST_MAX: usize = 64;
/// A process that ends waits this long until its good-byes are acknowledged: ours.
const FAREWELL: Duration = Duration::from_secs(2);
/// The number of groups that are remembered after their end, so that late messages are known as such: ours.
const ENDED_MAX: usize = 65_536;
/// The engine looks for silent peers this often: ours.
const TICK: Duration = Duration::from_millis(100);
/// If a peer that a task waits for is silent for this time, the engine probes whether the peer is gone: ours.
const SILENCE: Duration = Duration::from_millis(300);
/// Without any task, the thread wakes up this often.
const QUIET: Duration = Duration::from_secs(60);

/// This process, as its peers know it.
pub(super) struct Own {
    pub(super) id: Id,
    /// Its place, if other processes there may share memory with it.
    pub(super) place: Option<String>,
    /// The node's addresses, plane by plane.
    pub(super) addresses: Vec<SocketAddrV6>,
}

pub(super) struct Engine {
    node: Carrier,
    own: Own,
    plans: PlanMaker,
    /// Bytes of short messages that a peer may send before a call here takes them.
    credit: usize,
    peers: Peers,
    groups: LocalMap<u64, Group>,
    ended: (LocalSet<u64>, VecDeque<u64>),
    tasks: LocalMap<u64, Task>,
    /// The deadline of each task.
    deadlines: BTreeSet<(Instant, u64)>,
    next_task: u64,
    remains: AllRemains,
    early: HashMap<(u64, u64), Vec<(usize, Early)>>,
    /// Messages for receives in groups that are not known here yet.
    unknown: HashMap<u64, Vec<(usize, u32, QueuedMessage)>>,
    /// Room for the message that is handled now.
    heard: Vec<u8>,
    landings: Landings,
    /// Tasks with receives that found no free key.
    keyless: BTreeSet<u64>,
    sent: LocalMap<Operation, (Connection, Sent)>,
    slots: LocalMap<Connection, Slots>,
    pool: Pool,
    ticked: Instant,
    explorations: Explorations,
    ending: Option<Ending>,
    delegates: Delegates,
    /// Messages that have not arrived, although their senders went on.
    lost: Lost,
    /// Present if the process serves its figures.
    watching: Option<Box<Watching>>,
}

/// Lines that name messages that did not arrive. The engine writes them, and the caller that closes the process reads
/// them.
pub(super) type Lost = Arc<Mutex<Vec<String>>>;

type Outcome = Result<(), Error>;

/// An error of one connection must not end the others, so this returns `None` if the connection has ended.
/// [`strandway_udp::Completion::Closed`] reports its end.
fn while_connected<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoConnection | Error::NotConnected) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Engine {
    pub(super) fn new(
        node: Carrier,
        own: Own,
        (tuning, credit): (Tuning, usize),
        delegates: Delegates,
        lost: Lost,
    ) -> Result<Engine, Error> {
        Ok(Engine {
            watching: Watching::begin()?,
            node,
            explorations: Explorations::new(&own.id),
            own,
            plans: PlanMaker::new(tuning.algorithms, tuning.lengths),
            credit,
            peers: Peers::default(),
            groups: LocalMap::default(),
            ended: Default::default(),
            tasks: LocalMap::default(),
            deadlines: BTreeSet::new(),
            next_task: 1,
            remains: AllRemains::default(),
            early: HashMap::new(),
            unknown: HashMap::new(),
            heard: Vec::new(),
            landings: Landings::default(),
            keyless: BTreeSet::new(),
            sent: LocalMap::default(),
            slots: LocalMap::default(),
            pool: Pool::default(),
            ticked: Instant::now(),
            ending: None,
            delegates,
            lost,
        })
    }

    /// Carries out commands, moves packets, or waits for packets for at most `longest`, and acts on those that have
    /// come. While anything is under way, it looks for `patience` before it sleeps, if peers share memory with it. Returns
    /// false if the engine was told to end, and has sent everything.
    pub(super) fn turn(&mut self, commands: &Commands, longest: Duration, patience: Duration) -> Result<bool, Error> {
        self.handle_commands(commands)?;
        if self.may_end()? {
            return Ok(false);
        }
        let busy = !self.tasks.is_empty() || self.ending.is_some();
        let mut timeout = if busy { self.until_next() } else { QUIET };
        if let Some(next) = self.next_exploration().into_iter().chain(self.watch_limit()).min() {
            timeout = timeout.min(next);
        }
        if let Some(event) = self.node.wait(timeout.min(longest), if busy { patience } else { Duration::ZERO })? {
            self.handle_event(event)?;
        }
        while let Some((plane, address)) = self.node.take_refusal() {
            self.handle_refusal(plane, address);
        }
        if !self.explorations.is_empty() {
            self.go_exploring()?;
        }
        if busy && self.ticked.elapsed() >= TICK.min(timeout) {
            self.tick()?;
            // The interval counts from the end of the tick: with thousands of tasks a tick takes as long as the
            // interval, and packets must move meanwhile.
            self.ticked = Instant::now();
        }
        self.publish();
        Ok(true)
    }

    /// Carries out the commands that wait.
    pub(super) fn handle_commands(&mut self, commands: &Commands) -> Outcome {
        while let Some(command) = commands.take() {
            self.execute(command)?;
        }
        Ok(())
    }

    /// Is anything under way?
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Are all peers reached through shared memory?
    pub(super) fn is_local(&self) -> bool {
        self.node.is_local()
    }

    /// Has a command told it to end?
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Sends the datagrams that the node holds back for an answer of its program.
    pub(super) fn let_go(&mut self) {
        self.node.let_go();
    }

    /// The time until the next look at peers or the next deadline of a task.
    fn until_next(&self) -> Duration {
        let left = self.deadlines.first().map_or(TICK, |(at, _)| at.saturating_duration_since(Instant::now()));
        left.clamp(Duration::from_millis(1), TICK)
    }

    fn execute(&mut self, command: Command) -> Outcome {
        match command {
            Command::Meet { group, rank, members, failure } => self.meet(group, rank, members, failure)?,
            Command::Begin(begin) => self.begin(*begin)?,
            Command::Refuse { group, number, text } => self.refuse(group, number, &text)?,
            Command::Explore(explore) => self.explore(explore),
            Command::Payload(payload, answer) => {
                let outcome = self.node.set_payload(payload);
                // Another rank that already knows the payload may connect before this one does.
                self.node.accept(true);
                drop(answer.send(outcome));
            }
            Command::Report(answer) => drop(answer.send(self.report())),
            Command::Team { group, kind, answer } => drop(answer.send(self.uses_team(group, kind))),
            Command::Delegated { task, outcome } => self.handle_delegated(task, outcome)?,
            Command::Abort { group } => {
                if let Some(one) = self.groups.get_mut(&group) {
                    one.aborted = true;
                }
                self.fail_group(group, &Failure::Aborted)?;
            }
            Command::Leave { group } => self.leave(group)?,
            Command::End(patience) => {
                self.leave_all_teams();
                self.ending = Some(Ending { until: Instant::now() + patience, bye: None });
            }
        }
        Ok(())
    }

    /// Every operation under way, the oldest first.
    fn report(&self) -> Vec<Waiting> {
        let mut all: Vec<Waiting> = self
            .tasks
            .values()
            .map(|task| Waiting {
                what: task.call.what.into(),
                since: task.began.elapsed(),
                ranks: self.names_of(task).collect(),
            })
            .collect();
        all.sort_by_key(|waiting| std::cmp::Reverse(waiting.since));
        all
    }

    /// The ranks that a task waits for, with their hosts.
    fn names_of<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = String> + 'a {
        task.waits_for().into_iter().map(|rank| match self.peer_of(task.call.group, rank) {
            Some(peer) => format!("rank {rank} at {}", self.peers[peer].record.host),
            None => "any rank".into(),
        })
    }

    fn meet(&mut self, group: u64, rank: u32, members: Vec<Record>, failure: Arc<Mutex<Option<Failure>>>) -> Outcome {
        let mut one = Group {
            rank,
            hosts: hosts_of(&members),
            members: Vec::with_capacity(members.len()),
            ranks: LocalMap::default(),
            begun: 0,
            tasks: BTreeMap::new(),
            failed: BTreeSet::new(),
            wanted: HashMap::new(),
            messages: HashMap::new(),
            failure,
            broken: None,
            aborted: false,
            delegates: BTreeMap::new(),
        };
        let shared = |record: &&Record| record.local.as_ref().map(|local| &local.place) == self.own.place.as_ref();
        let count = members.iter().filter(shared).count();
        self.node.plan_links(count);
        for (at, record) in (0..).zip(members) {
            if at == rank {
                one.members.push(None);
                continue;
            }
            let peer = match self.peers.named(&record.id) {
                Some(peer) => {
                    if self.peers[peer].record.addresses.is_empty() {
                        // It has connected before this group was known here.
                        self.peers.complete(peer, record);
                    }
                    peer
                }
                None => self.add_peer(record)?,
            };
            one.members.push(Some(peer));
            one.ranks.insert(peer, at);
        }
        self.groups.insert(group, one);
        for (peer, tag, message) in self.unknown.remove(&group).unwrap_or_default() {
            self.peers[peer].early -= message.bytes();
            self.handle_queued(peer, group, tag, message)?;
        }
        Ok(())
    }

    /// This process leaves a group: from now on nothing waits for its messages.
    fn leave(&mut self, group: u64) -> Outcome {
        self.fail_group(group, &Failure::Aborted)?;
        self.leave_teams(group);
        if let Some(one) = self.groups.remove(&group) {
            for (tag, list) in one.messages {
                for (from, message) in list {
                    let Some(peer) = one.members.get(from as usize).copied().flatten() else { continue };
                    self.peers[peer].early -= message.bytes();
                    self.reject(peer, group, tag, &message)?;
                }
            }
        }
        let late: Vec<(u64, u64)> = self.early.keys().copied().filter(|(of, _)| *of == group).collect();
        for key in late {
            drop(self.take_early(key)?);
        }
        self.ended.0.insert(group);
        self.ended.1.push_back(group);
        if self.ended.1.len() > ENDED_MAX
            && let Some(oldest) = self.ended.1.pop_front()
        {
            self.ended.0.remove(&oldest);
        }
        Ok(())
    }

    /// No call will take a message: its sender gets its credit back, or hears that its offer is refused.
    fn reject(&mut self, peer: usize, group: u64, tag: u32, message: &QueuedMessage) -> Outcome {
        match message {
            QueuedMessage::Bytes(bytes) => self.give_back(peer, bytes.len()),
            QueuedMessage::Offer { number, .. } => {
                let signature = Signature::default();
                self.send_message(peer, &Message { signature, tag, group, number: *number, said: PeerMessage::Refuse })
            }
        }
    }

    fn add_peer(&mut self, record: Record) -> Result<usize, Error> {
        // One of the two peers begins the connection.
        let calls = self.own.id < record.id;
        let peer = self.peers.add(record);
        if calls {
            self.call(peer)?;
        }
        Ok(peer)
    }

    /// A peer has left before a group here had it: see [`Peers::depart`].
    fn depart(&mut self, peer: usize) {
        let gone = self.peers.depart(peer);
        if gone.is_empty() {
            return;
        }
        self.early.retain(|_, list| {
            list.retain(|(peer, _)| !gone.contains(peer));
            !list.is_empty()
        });
        self.unknown.retain(|_, list| {
            list.retain(|(peer, ..)| !gone.contains(peer));
            !list.is_empty()
        });
    }

    /// Connects to a peer. If the node has no room for another connection, the peer counts as gone.
    fn call(&mut self, peer: usize) -> Outcome {
        if let Some(place) = &self.own.place {
            self.node.link_to(&self.peers[peer].record, place);
        }
        match self.node.connect(&self.peers[peer].record.addresses) {
            Ok(connection) => {
                self.peers.connect(connection, peer);
                self.peers[peer].line = PeerConnection::Calling(connection);
                Ok(())
            }
            Err(error @ (Error::TooManyConnections { .. } | Error::Config(_))) => {
                self.set_gone(peer, error.to_string())
            }
            Err(error) => Err(error),
        }
    }

    /// A port has refused a datagram of ours.
    fn handle_refusal(&mut self, plane: usize, address: SocketAddr) {
        let SocketAddr::V6(address) = address else { return };
        let Some(peer) = self.peers.at(&address) else { return };
        let one = &mut self.peers[peer];
        let silence = match one.line {
            PeerConnection::Open(connection) => self.node.silence(connection).unwrap_or(Duration::ZERO),
            _ => one.met.elapsed(),
        };
        // Refusals that came before the last datagram of the peer prove nothing.
        let known = one.refusals.take().filter(|known| known.first.elapsed() <= silence);
        let before = known.unwrap_or_else(|| Refusals { plane, address, first: Instant::now(), count: 0 });
        one.refusals = Some(Refusals { count: before.count + 1, ..before });
    }

    fn note_lost(&self, line: String) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.len() < LOST_MAX {
            lost.push(line);
        }
    }
}
