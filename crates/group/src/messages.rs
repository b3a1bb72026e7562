//! Collectives of messages on a team's connections: a schedule is prepared once and run any number of times.
//!
//! Each rank calls the ranks that it sends to, and those expose their staging areas to it. Two areas are used in turn.
//! A rank that has ended a run may be one run ahead of another rank, but no more, since each run needs a message of
//! every rank.

use crate::driver::{Driver, World, unless_busy};
use crate::error::GroupError;
use crate::space::RankSpace;
use crate::team::Team;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_collective::{CollectiveRank, Group, Plans, Rank, Schedule};
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::{Bytes, HostId, Message, MessageId, Time};
use strandway_udp::{Completion, Connection, Error, Operation, Reason, Region, RemoteRegion};

/// Bytes that the two ends of a connection send each other at its start: the caller sends its rank, the other end two
/// keys.
const WORDS: usize = 32;
/// The longest that a rank sleeps before it asks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A peer that this rank sends to.
struct Peer {
    connection: Connection,
    /// Its staging areas, once it has sent their keys.
    areas: Option<[RemoteRegion; 2]>,
}

/// A collective of messages that is ready to run, at one rank.
pub struct Prepared {
    /// The collective with the message numbers of even runs, and with those of odd runs.
    groups: [Arc<Group>; 2],
    spaces: [RankSpace; 2],
    peers: BTreeMap<u32, Peer>,
    /// Ranks that send to this one.
    callers: HashMap<Connection, u32>,
    /// The receive buffer of each connection.
    inboxes: HashMap<Connection, Region>,
    /// The memory of sends under way.
    saying: HashMap<Operation, Region>,
    /// The number of runs that have ended.
    runs: usize,
    /// Messages of the next run that have arrived already: their numbers and lengths.
    early: Vec<(u32, u64)>,
}

impl Team {
    /// Prepares a collective of messages: opens connections to all ranks that this one sends to, and allocates memory
    /// for all messages. All ranks must call it with the same schedule.
    ///
    /// # Errors
    /// If ranks cannot be reached in time, or the schedule is for another number of ranks.
    pub fn prepare(&mut self, schedule: Schedule, stop: &impl Fn() -> bool) -> Result<Prepared, GroupError> {
        let ranks = self.ranks();
        if schedule.ranks() != ranks {
            return Err(GroupError::Config(format!("a schedule of {} ranks for a team of {ranks}", schedule.ranks())));
        }
        let mut even = Group::new(Plans::Computed(schedule), (0..ranks).map(HostId).collect(), 1);
        even.starts.fill(Time::ZERO);
        let messages = u32::try_from(even.messages()).ok().filter(|&messages| messages < 1 << 31);
        let Some(messages) = messages else {
            return Err(GroupError::Config("a schedule of more than two billion messages: take fewer ranks".into()));
        };
        let rank = Rank(self.rank);
        let mut odd = even.clone();
        odd.first_message = messages;
        let groups = [Arc::new(even), Arc::new(odd)];
        let first = RankSpace::new(&mut self.node, &groups[0], schedule, rank);
        let second = first.twin(&mut self.node, &groups[1]);
        let mut prepared = Prepared {
            spaces: [first, second],
            peers: BTreeMap::new(),
            callers: HashMap::new(),
            inboxes: HashMap::new(),
            saying: HashMap::new(),
            runs: 0,
            early: Vec::new(),
            groups,
        };
        let to: BTreeSet<u32> = schedule.sends(rank).map(|send| send.to.0).collect();
        let from: BTreeSet<u32> = schedule.receives(rank).map(|receive| receive.from.0).collect();
        for peer in to {
            let connection = self.node.connect(&self.members[peer as usize])?;
            prepared.peers.insert(peer, Peer { connection, areas: None });
        }
        let until = Instant::now() + self.options.patience;
        let known = |prepared: &Prepared| {
            prepared.peers.values().all(|peer| peer.areas.is_some()) && prepared.callers.len() == from.len()
        };
        // A rank may begin once it knows its own peers and callers.
        let mut later = Vec::new();
        while !known(&prepared) {
            if stop() {
                return Err(GroupError::Stopped);
            }
            if Instant::now() > until {
                let silent = prepared.peers.iter().filter(|(_, peer)| peer.areas.is_none()).map(|(rank, _)| *rank);
                let came = |rank: &&u32| !prepared.callers.values().any(|caller| caller == *rank);
                let missing = silent.chain(from.iter().filter(came).copied());
                return Err(GroupError::Missing {
                    ranks: missing.collect(),
                    seconds: self.options.patience.as_secs_f64(),
                });
            }
            if let Some(completion) = self.next(LOOK)? {
                self.introduce(&mut prepared, completion, until, &mut later)?;
            }
        }
        self.others.extend(later);
        Ok(prepared)
    }

    /// The next completion; completions that operations of the team have set aside come first.
    pub(crate) fn next(&mut self, timeout: Duration) -> Result<Option<Completion>, GroupError> {
        match self.others.pop_front() {
            Some(completion) => Ok(Some(completion)),
            None => Ok(self.node.wait(timeout)?),
        }
    }

    /// Exchanges ranks and keys on a new connection.
    fn introduce(
        &mut self,
        prepared: &mut Prepared,
        completion: Completion,
        until: Instant,
        later: &mut Vec<Completion>,
    ) -> Result<(), GroupError> {
        match completion {
            Completion::Connected { connection } => {
                self.listen(prepared, connection)?;
                let mut words = vec![0; WORDS];
                words[..4].copy_from_slice(&self.rank.to_be_bytes());
                self.send_words(prepared, connection, words)?;
            }
            Completion::Accepted { connection, .. } => self.listen(prepared, connection)?,
            Completion::Received { connection, .. } => {
                let Some(&inbox) = prepared.inboxes.get(&connection) else { return Ok(()) };
                let words = self.node.memory(inbox)?[..WORDS].to_vec();
                match prepared.peers.values_mut().find(|peer| peer.connection == connection) {
                    Some(peer) => {
                        let (first, second) = words.split_at(16);
                        let area = |words: &[u8]| words.first_chunk().map(|words| RemoteRegion::from_bytes(*words));
                        peer.areas = area(first).zip(area(second)).map(|(first, second)| [first, second]);
                    }
                    None => {
                        let rank = words.first_chunk().map_or(u32::MAX, |rank| u32::from_be_bytes(*rank));
                        prepared.callers.insert(connection, rank);
                        let mut keys = Vec::with_capacity(WORDS);
                        for space in &prepared.spaces {
                            let area = self.node.expose(connection, space.staging, 0..space.staged())?;
                            keys.extend_from_slice(&area.to_bytes());
                        }
                        self.send_words(prepared, connection, keys)?;
                    }
                }
            }
            Completion::Closed { connection, reason } => {
                let peer = prepared.peers.iter_mut().find(|(_, peer)| peer.connection == connection);
                let Some((&rank, peer)) = peer else { return Ok(()) };
                if !matches!(reason, Reason::NoAnswer | Reason::PeerFull) || Instant::now() > until {
                    return Err(GroupError::Dead { rank });
                }
                peer.connection = self.node.connect(&self.members[rank as usize])?;
            }
            Completion::Word { from, control, to_all: false, .. } => self.handle_control(from, &control)?,
            Completion::Written { .. } => later.push(completion),
            _ => {}
        }
        Ok(())
    }

    fn listen(&mut self, prepared: &mut Prepared, connection: Connection) -> Result<(), GroupError> {
        let inbox = self.node.register(vec![0; WORDS]);
        self.node.recv(connection, inbox, 0..WORDS)?;
        prepared.inboxes.insert(connection, inbox);
        Ok(())
    }

    fn send_words(
        &mut self,
        prepared: &mut Prepared,
        connection: Connection,
        words: Vec<u8>,
    ) -> Result<(), GroupError> {
        let region = self.node.register(words);
        let operation = self.node.send(connection, region, 0..WORDS)?;
        prepared.saying.insert(operation, region);
        Ok(())
    }

    /// Runs a prepared collective once, until this rank has its result and its buffer may change. All ranks must call
    /// it the same number of times. `stop` is asked repeatedly.
    ///
    /// # Errors
    /// If a connection ends; the error names the rank at its other end.
    pub fn run(&mut self, prepared: &mut Prepared, stop: &impl Fn() -> bool) -> Result<Duration, GroupError> {
        let began = Instant::now();
        let group = prepared.groups[prepared.runs % 2].clone();
        let mut program = CollectiveRank::new(&group, Rank(self.rank));
        let mut driver = Driver::default();
        let early = std::mem::take(&mut prepared.early);
        let mut run = Run { team: self, prepared, group: &group };
        for (number, bytes) in early {
            if let Some(event) = run.arrived(number, bytes)? {
                driver.handle_event(&mut run, &mut program, &event)?;
            }
        }
        while !program.is_done() {
            if stop() {
                return Err(GroupError::Stopped);
            }
            driver.turn(&mut run, &mut program, LOOK)?;
        }
        prepared.runs += 1;
        Ok(began.elapsed())
    }

    /// Fills in again the numbers against which the result is checked.
    ///
    /// # Errors
    /// If the memory is not registered any more.
    pub fn refill(&mut self, prepared: &Prepared) -> Result<(), GroupError> {
        Ok(prepared.spaces[0].refill(&mut self.node)?)
    }

    /// The first byte of the result that differs from the expected one, after one run from fresh numbers.
    ///
    /// # Errors
    /// If the memory is not registered any more.
    pub fn first_wrong(&self, prepared: &Prepared) -> Result<Option<u64>, GroupError> {
        Ok(prepared.spaces[0].first_wrong(&self.node)?)
    }

    /// Puts bytes at the start of the buffer that the next run reads, and zeros after them.
    ///
    /// # Errors
    /// If the memory is not registered any more.
    pub fn load(&mut self, prepared: &Prepared, bytes: &[u8]) -> Result<(), GroupError> {
        let buffer = prepared.spaces[0].buffer_mut(&mut self.node)?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        buffer[length..].fill(0);
        Ok(())
    }

    /// The result of the last run at this rank.
    ///
    /// # Errors
    /// If the memory is not registered any more.
    pub fn result(&self, prepared: &Prepared) -> Result<&[u8], GroupError> {
        Ok(prepared.spaces[0].result(&self.node)?)
    }

    /// Releases connections and memory. All ranks must call it, after all have run it for the last time.
    ///
    /// # Errors
    /// If memory is in use.
    pub fn retire(&mut self, prepared: Prepared) -> Result<(), GroupError> {
        for peer in prepared.peers.values() {
            // The connection may have ended by itself.
            let _ = self.node.close(peer.connection);
        }
        for connection in prepared.callers.keys() {
            let _ = self.node.close(*connection);
        }
        for region in prepared.inboxes.into_values().chain(prepared.saying.into_values()) {
            let _ = self.node.deregister(region);
        }
        let [first, second] = prepared.spaces;
        second.release(&mut self.node, false)?;
        Ok(first.release(&mut self.node, true)?)
    }
}

/// A run of a prepared collective.
struct Run<'a> {
    team: &'a mut Team,
    prepared: &'a mut Prepared,
    group: &'a Group,
}

impl Run<'_> {
    /// A message has arrived: puts it into its place. Those of the next run wait.
    fn arrived(&mut self, number: u32, bytes: u64) -> Result<Option<Event>, GroupError> {
        if !self.group.numbers().contains(&number) {
            if self.prepared.groups.iter().any(|group| group.numbers().contains(&number)) {
                self.prepared.early.push((number, bytes));
            }
            return Ok(None);
        }
        let space = &self.prepared.spaces[self.prepared.runs % 2];
        space.settle(&mut self.team.node, number)?;
        Ok(Some(Event::Received { message: MessageId(number), bytes: Bytes(bytes) }))
    }
}

impl World for Run<'_> {
    type Error = GroupError;

    fn now(&self) -> Time {
        self.team.now()
    }

    fn next(&mut self, timeout: Duration) -> Result<Option<Completion>, GroupError> {
        self.team.next(timeout)
    }

    fn post(&mut self, channel: Channel, message: &Message) -> Result<Option<Operation>, GroupError> {
        let (which, number, rank) = (self.prepared.runs % 2, message.id.0, channel.peer.0);
        let source = self.prepared.spaces[which].source(number);
        let peer = self.prepared.peers.get(&rank).and_then(|peer| Some((peer.connection, peer.areas?[which])));
        let (Some((region, range, at)), Some((connection, area))) = (source, peer) else {
            return Err(GroupError::Dead { rank });
        };
        let written = self.team.node.write(connection, region, range, area, at, Some(number));
        unless_busy(written).map_err(|error| match error {
            Error::NoConnection | Error::NotConnected => GroupError::Dead { rank },
            other => other.into(),
        })
    }

    fn act(&mut self, _now: Time, _action: Action) -> Result<(), GroupError> {
        Ok(())
    }

    fn event(&mut self, completion: Completion) -> Result<Option<Event>, GroupError> {
        match completion {
            Completion::Written { immediate, bytes, .. } => return self.arrived(immediate, bytes),
            Completion::Closed { connection, .. } => {
                let peer = self.prepared.peers.iter().find(|(_, peer)| peer.connection == connection);
                let peer = peer.map(|(rank, _)| *rank);
                if let Some(rank) = peer.or_else(|| self.prepared.callers.get(&connection).copied()) {
                    return Err(GroupError::Dead { rank });
                }
            }
            Completion::Word { from, control, to_all: false, .. } => self.team.handle_control(from, &control)?,
            _ => {}
        }
        Ok(None)
    }
}
