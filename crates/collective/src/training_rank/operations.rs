//! The operations of a rank: the one that an event belongs to, and the programs that perform them.

use super::{Part, State, TrainingRank};
use crate::collective_rank::CollectiveRank;
use crate::group::Group;
use crate::multicast::MulticastRank;
use crate::operation::Operation;
use crate::programs::AnyApplication;
use crate::schedule::Rank;
use crate::script::RankOperation;
use crate::server::IntraServer;
use crate::transfer::{Pipe, Transfer};
use std::ops::Range;
use strandway_proto::application::{Application, Event};
use strandway_proto::units::Time;

/// The key by which an event finds its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concern {
    /// The number of a message.
    Message(u32),
    /// The number of a multicast.
    Task(u32),
    /// The number of an [`InNetwork`](crate::InNetwork).
    InNetwork(u16),
    /// The index of an operation inside a server.
    Local(u32),
}

impl TrainingRank<'_> {
    /// The index, among this rank's operations, of the operation with this key.
    pub(super) fn place(&self, what: Concern) -> Option<u32> {
        match what {
            Concern::Message(message) => {
                let behind = self.numbers.partition_point(|&(first, ..)| first <= message);
                let &(_, end, place) = self.numbers.get(behind.checked_sub(1)?)?;
                (message < end).then_some(place)
            }
            Concern::Local(local) => {
                let at = self.locals.binary_search_by_key(&local, |&(local, _)| local).ok()?;
                Some(self.locals[at].1)
            }
            Concern::Task(_) | Concern::InNetwork(_) => {
                let place = self.operations.iter().position(|operation| concerns(self.all, operation, what))?;
                Some(place as u32)
            }
        }
    }

    /// Index in `live` of the operation that `what` belongs to. Makes the operation if it does not exist yet.
    pub(super) fn part(&mut self, now: Time, what: Concern) -> Option<usize> {
        let place = self.place(what)?;
        if let Some(at) = self.resting.iter().position(|part| part.place == place) {
            let part = self.resting.swap_remove(at);
            self.live.push(part);
            return Some(self.live.len() - 1);
        }
        self.made(now, place)
    }

    /// Index in `live` of the operation with this index among the rank's operations. Makes it if it does not exist yet.
    pub(super) fn made(&mut self, now: Time, place: u32) -> Option<usize> {
        match self.states[place as usize] {
            State::Made => return self.live.iter().position(|part| part.place == place),
            State::Over => return None,
            State::Unmade => {}
        }
        let mut program = match self.operations[place as usize] {
            RankOperation::Member { operation, rank } => match &self.all[operation as usize] {
                Operation::Messages(group) => {
                    AnyApplication::Collective(Box::new(CollectiveRank::new(group, Rank(rank))))
                }
                Operation::Multicast(multicast) => {
                    AnyApplication::Multicast(Box::new(MulticastRank::new(multicast, rank)))
                }
                Operation::InNetwork(network) => {
                    AnyApplication::Custom(self.make.and_then(|make| make(network.number, rank))?)
                }
                Operation::Job(_) | Operation::PointToPoint(_) => unreachable!("operation {operation} has no members"),
            },
            RankOperation::Send { pipe, index } => {
                AnyApplication::Transfer(Transfer::new(pipe_of(self.all, pipe), index, true))
            }
            RankOperation::Receive { pipe, index } => {
                AnyApplication::Transfer(Transfer::new(pipe_of(self.all, pipe), index, false))
            }
            // Frontiers count them.
            RankOperation::Hand { .. } => return None,
            RankOperation::Inside { local, messages } => {
                let job = self.job;
                let what = job.locals[local as usize];
                let member = messages.map(|(group, rank)| CollectiveRank::new(group_of(self.all, group), Rank(rank)));
                let (team, word) = (&job.teams[what.team as usize], job.first_word + local);
                AnyApplication::IntraServer(Box::new(IntraServer::new(team, what, job.signal_latency, word, member)))
            }
        };
        if let Some(up) = self.up {
            program.handle_event(now, &Event::Ports { up });
        }
        self.states[place as usize] = State::Made;
        self.live.push(Part { place, program, awaited: None, begun: false });
        Some(self.live.len() - 1)
    }

    /// Counts an event of a message that has no program of its own. Returns false if the event is of another kind.
    pub(super) fn count_message(&mut self, now: Time, event: &Event) -> bool {
        if self.frontier.is_none() {
            return false;
        }
        let concern = match event {
            Event::Sent { message } | Event::Received { message, .. } => Concern::Message(message.0),
            Event::Signal { order, word } if *order >= self.job.first_order => {
                Concern::Local(word.wrapping_sub(self.job.first_word))
            }
            _ => return false,
        };
        let Some(place) = self.place(concern) else { return false };
        let (pieces, ours) = match (self.operations[place as usize], event) {
            (RankOperation::Send { pipe, .. }, _) => {
                (pipe_of(self.all, pipe).pieces, matches!(event, Event::Sent { .. }))
            }
            (RankOperation::Receive { pipe, .. }, _) => {
                (pipe_of(self.all, pipe).pieces, matches!(event, Event::Received { .. }))
            }
            (RankOperation::Hand { .. }, Event::Signal { .. }) => (1, true),
            _ => return false,
        };
        let over = self.frontier.as_mut().filter(|_| ours).and_then(|frontier| frontier.count(place, pieces));
        if let Some(step) = over {
            self.end(now, step);
        }
        true
    }

    /// Removes complete operations from `live`: they do not act by themselves any more.
    pub(super) fn retire(&mut self) {
        let mut at = 0;
        while at < self.live.len() {
            let part = &self.live[at];
            let over = part.begun && part.awaited.is_none() && part.program.is_done();
            if !over || part.program.poll_timeout() != Time::NEVER {
                at += 1;
                continue;
            }
            let part = self.live.swap_remove(at);
            match part.program {
                // No other rank asks a member for messages that have arrived.
                AnyApplication::Collective(_) | AnyApplication::Transfer(_) | AnyApplication::IntraServer(_) => {
                    self.states[part.place as usize] = State::Over;
                }
                _ => self.resting.push(part),
            }
        }
    }

    pub(super) fn everywhere(&mut self, now: Time, event: &Event) {
        self.live.iter_mut().chain(&mut self.resting).for_each(|part| part.program.handle_event(now, event));
    }
}

/// Does this event (`what`) belong to this operation?
fn concerns(all: &[Operation], operation: &RankOperation, what: Concern) -> bool {
    let Some((operation, _)) = operation.member() else { return false };
    match (&all[operation as usize], what) {
        (Operation::Multicast(multicast), Concern::Task(task)) => multicast.task == task,
        (Operation::InNetwork(network), Concern::InNetwork(number)) => network.number == number,
        _ => false,
    }
}

/// The collective of messages with this index in the table.
fn group_of(all: &[Operation], operation: u32) -> &Group {
    all[operation as usize].group().unwrap_or_else(|| unreachable!("operation {operation} has no messages"))
}

/// The messages from one host to another with this index in the table.
pub(super) fn pipe_of(all: &[Operation], operation: u32) -> &Pipe {
    all[operation as usize].pipe().unwrap_or_else(|| unreachable!("operation {operation} is no pipe"))
}

/// The numbers of the messages of an operation, if it has any.
pub(super) fn numbers(all: &[Operation], operation: &RankOperation) -> Option<Range<u32>> {
    if let RankOperation::Send { pipe, index } | RankOperation::Receive { pipe, index } = *operation {
        return Some(pipe_of(all, pipe).numbers_of(index));
    }
    let (operation, rank) = operation.member()?;
    match &all[operation as usize] {
        Operation::Messages(group) => Some(group.numbers()),
        Operation::Multicast(multicast) => {
            let message = multicast.message(rank).0;
            Some(message..message + 1)
        }
        _ => None,
    }
}
