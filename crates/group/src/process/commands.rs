//! Requests of callers to the engine of a process, and the list in which they wait.

use super::delegate::{Ended, Kind};
use super::element::{Element, Reduction};
use super::failure::Failure;
use super::memory::Buffer;
use super::record::Record;
use super::work::Work;
use crate::error::GroupError;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strandway_collective::plan::{BufferRange, CollectiveCall};
use strandway_udp::Error;

/// The work of a task.
pub(super) enum What {
    Call(CollectiveCall),
    Send { to: u32, tag: u32, at: BufferRange },
    Receive { from: Option<u32>, tag: u32, at: BufferRange },
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
    /// A call was refused here because its arguments are wrong. It takes its number, and the other ranks hear of it.
    Refuse {
        group: u64,
        number: u64,
        text: String,
    },
    /// Asks which packet sizes pass.
    Explore(Explore),
    /// Sets the payload of full packets, and answers whether it could.
    Payload(u32, Sender<Result<(), Error>>),
    /// Asks for the operations under way.
    Report(Sender<Vec<Waiting>>),
    /// Asks whether a team of a group works as it should.
    Team {
        group: u64,
        kind: Kind,
        answer: Sender<bool>,
    },
    /// A delegate has given back the memory of a task.
    Delegated {
        task: u64,
        outcome: Result<Ended, GroupError>,
    },
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

/// An operation under way, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The operation: `all_reduce`, `send`, ...
    pub what: String,
    /// The time since it began.
    pub since: Duration,
    /// The ranks that it waits for, as `rank R at HOST`.
    pub ranks: Vec<String>,
}

/// A way to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The rank of the process, for the caller.
    pub(super) rank: u32,
    pub(super) plane: usize,
    pub(super) to: SocketAddrV6,
}

/// The finding on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) way: Way,
    /// The largest packet that passes there and back, IP headers included; `None` if there was no answer at all.
    pub(super) mtu: Option<u32>,
    /// Have probes of the other process come?
    pub(super) heard: bool,
}

/// A request of a caller: which of these sizes pass on these ways?
pub(super) struct Explore {
    pub(super) ways: Vec<Way>,
    /// Packet sizes, IP headers included, the largest one first.
    pub(super) mtus: Vec<u32>,
    /// A way that has answered is given this time to answer larger ones.
    pub(super) settle: Duration,
    /// A process that has not answered by then is not reached.
    pub(super) limit: Duration,
    pub(super) answer: Sender<Vec<Found>>,
}

/// Where callers leave their commands.
#[derive(Default)]
pub(super) struct Commands(Mutex<List>);

#[derive(Default)]
pub(super) struct List {
    pub(super) list: VecDeque<Command>,
    /// The reason why the engine has ended.
    pub(super) ended: Option<String>,
}

impl Commands {
    pub(super) fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest one.
    pub(super) fn take(&self) -> Option<Command> {
        self.lock().list.pop_front()
    }

    /// Leaves one. If the engine has ended, gives it back with the reason.
    pub(super) fn leave(&self, command: Command) -> Result<(), (Command, String)> {
        let mut list = self.lock();
        match &list.ended {
            Some(why) => Err((command, why.clone())),
            None => {
                list.list.push_back(command);
                Ok(())
            }
        }
    }
}
