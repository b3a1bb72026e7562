//! The operations of a run: one table that the experiment, the programs of hosts and the report share.

use crate::group::Group;
use crate::multicast::Multicast;
use crate::script::ScriptedJob;
use crate::transfer::Pipe;
use std::ops::Range;
use std::slice;
use strandway_proto::{HostId, Time};

/// One operation of a run. Scripts, plans and tallies name it by its index in the run's table.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A collective of messages: each rank has a plan of what it sends and receives.
    Messages(Box<Group>),
    /// A broadcast or an all-gather by multicast.
    Multicast(Box<Multicast>),
    /// A training job: the script of each rank begins other operations.
    Job(Box<ScriptedJob>),
    /// Messages from one host to another.
    PointToPoint(Pipe),
    /// A collective that programs of switches perform together with custom programs at its hosts.
    InNetwork(InNetwork),
}

/// A collective, or a training job, whose numbers switches add.
#[derive(Clone, Debug, PartialEq)]
pub struct InNetwork {
    /// Its number in packets, and for the makers of its programs.
    pub number: u16,
    /// The host of each rank.
    pub hosts: Vec<HostId>,
    /// The message number of rank 0's part; rank `r` has the number `first_message + r`.
    pub first_message: u32,
}

impl Operation {
    /// The collective of messages, if it is one.
    pub fn group(&self) -> Option<&Group> {
        if let Operation::Messages(group) = self { Some(group) } else { None }
    }

    /// The multicast, if it is one.
    pub fn multicast(&self) -> Option<&Multicast> {
        if let Operation::Multicast(multicast) = self { Some(multicast) } else { None }
    }

    /// The training job, if it is one.
    pub fn job(&self) -> Option<&ScriptedJob> {
        if let Operation::Job(job) = self { Some(job) } else { None }
    }

    /// The messages from one host to another, if it consists of such messages.
    pub fn pipe(&self) -> Option<&Pipe> {
        if let Operation::PointToPoint(pipe) = self { Some(pipe) } else { None }
    }

    /// The host of each rank; of messages from one host to another, the sender's and the receiver's.
    pub fn hosts(&self) -> &[HostId] {
        match self {
            Operation::Messages(group) => &group.hosts,
            Operation::Multicast(multicast) => multicast.ranks.hosts(),
            Operation::Job(job) => &job.hosts,
            Operation::PointToPoint(pipe) => &pipe.ends,
            Operation::InNetwork(network) => &network.hosts,
        }
    }

    /// How many message numbers it needs: one for each piece of a message between two hosts, and otherwise one for each
    /// rank.
    pub fn messages(&self) -> u64 {
        match self {
            Operation::Messages(group) => group.messages(),
            Operation::PointToPoint(pipe) => pipe.messages(),
            _ => self.hosts().len() as u64,
        }
    }

    /// Its message numbers.
    pub fn numbers(&self) -> Range<u32> {
        let first = match self {
            Operation::Messages(group) => group.first_message,
            Operation::Multicast(multicast) => multicast.first_message,
            Operation::Job(job) => job.first_message,
            Operation::PointToPoint(pipe) => pipe.first_message,
            Operation::InNetwork(network) => network.first_message,
        };
        first..u32::try_from(u64::from(first) + self.messages()).unwrap_or(u32::MAX)
    }

    /// Gives it the message numbers from `next` on, and moves `next` behind them.
    pub fn number_from(&mut self, next: &mut u32) {
        *match self {
            Operation::Messages(group) => &mut group.first_message,
            Operation::Multicast(multicast) => &mut multicast.first_message,
            Operation::Job(job) => &mut job.first_message,
            Operation::PointToPoint(pipe) => &mut pipe.first_message,
            Operation::InNetwork(network) => &mut network.first_message,
        } = *next;
        *next = self.numbers().end;
    }

    /// Payload bytes of all its messages together; unknown for jobs and for sums in switches.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Operation::Messages(group) => Some(group.plans().volume()),
            Operation::Multicast(multicast) => Some(multicast.heard()),
            Operation::PointToPoint(pipe) => Some(pipe.bytes.saturating_mul(pipe.count.into())),
            Operation::Job(_) | Operation::InNetwork(_) => None,
        }
    }

    /// When it starts: a time per rank, or one for all ranks. [`Time::NEVER`] if a job begins it. Empty if only other
    /// programs know it.
    pub fn starts(&self) -> &[Time] {
        match self {
            Operation::Messages(group) => &group.starts,
            Operation::Multicast(multicast) => &multicast.starts,
            Operation::Job(job) => slice::from_ref(&job.start),
            Operation::PointToPoint(_) | Operation::InNetwork(_) => &[],
        }
    }

    /// The start times of [`Operation::starts`], to be changed.
    pub fn starts_mut(&mut self) -> &mut [Time] {
        match self {
            Operation::Messages(group) => &mut group.starts,
            Operation::Multicast(multicast) => &mut multicast.starts,
            Operation::Job(job) => slice::from_mut(&mut job.start),
            Operation::PointToPoint(_) | Operation::InNetwork(_) => &mut [],
        }
    }

    /// The profile of its connections: an index into the plan's profiles.
    pub fn profile(&self) -> u16 {
        match self {
            Operation::Messages(group) => group.profile,
            Operation::Multicast(multicast) => multicast.profile,
            Operation::PointToPoint(pipe) => pipe.profile,
            Operation::Job(_) | Operation::InNetwork(_) => 0,
        }
    }
}
