//! The seat for the program of a host: the third engine, between an [`Endpoint`](crate::Endpoint) and whoever wants something.
//!
//! A program posts messages, hears what became of them, and decides what comes next. Like an endpoint it owns no socket, clock,
//! thread or payload: a world tells it what happened (`handle_…`) and asks what to do (`poll_…`). The simulator and the loop
//! over sockets drive the same program.

use crate::aggregate::Counts;
use crate::cast::{Cast, Rebuild};
use crate::letter::Letter;
use crate::message::Message;
use crate::packet::{HostId, MessageId, Packet};
use crate::rank_times::RankTimes;
use crate::units::{Bytes, Time};
use std::collections::BTreeMap;

/// One of the connections from this host to another: both programs and both worlds know it by this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    /// The host at the other end.
    pub peer: HostId,
    /// Which of the connections to that host. Numbers below the plan's number of connections are indices into the plan's
    /// connections, which are open from the start. Others open at first use.
    pub number: u32,
    /// Index of its profile; for channels that open at first use.
    pub profile: u16,
}

/// Something that a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of ours is wholly acknowledged.
    Sent {
        /// Our number for it.
        message: MessageId,
    },
    /// A peer's message is wholly here.
    Received {
        /// The peer's number for it.
        message: MessageId,
        /// Its length.
        bytes: Bytes,
    },
    /// A connection to or from this host ended: what is not finished on it never will be.
    Failed {
        /// The host at the other end.
        peer: HostId,
    },
    /// A letter is here.
    Letter {
        /// Its sender.
        from: HostId,
        /// What it says.
        letter: Letter,
    },
    /// A chunk is here, cast by another host to this one or to a group of it.
    Chunk {
        /// Who cast it.
        from: HostId,
        /// The operation that it is a part of.
        task: u32,
        /// Which piece it is, counted over the whole buffer of the operation.
        chunk: u32,
        /// The plane that it came by.
        plane: u8,
        /// The tree that it came along, if it was cast to a group and the world knows.
        tree: Option<u32>,
        /// Did a switch cut its payload off? Then only its name is here.
        trimmed: bool,
        /// Is it the last one of its sender's share?
        last: bool,
    },
    /// All chunks of a cast of ours have left ([`Action::Cast`]).
    Cast {
        /// To whom they went.
        to: HostId,
        /// The operation that they are a part of.
        task: u32,
        /// The chunk behind the last of them.
        end: u32,
    },
    /// A packet of a gradient or of a sum is here ([`crate::aggregate`]).
    Fragment(Packet),
    /// One of this host's ports went down or came back. Worlds that do not know say nothing.
    Ports {
        /// The ports that are up, one bit each.
        up: u32,
    },
    /// A signal is here ([`Action::Signal`]).
    Signal {
        /// Its place among signals that arrive at one instant.
        order: u32,
        /// What it says.
        word: u32,
    },
}

/// Something that a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Posts a message.
    Post {
        /// To whom, over which connection.
        channel: Channel,
        /// Its number and length. The number is unique among all that the run's programs post.
        message: Message,
    },
    /// Sends a letter. It may be lost.
    Letter {
        /// To whom, over which connection.
        channel: Channel,
        /// What it says.
        letter: Letter,
    },
    /// Sends chunks to a group or to one host, without any connection. They may be lost. Its chunks are at least one.
    Cast(Cast),
    /// Chunks that were lost are rebuilt from parity, at once: later casts may give them to others. A world without bytes does nothing.
    Rebuild(Rebuild),
    /// Sends a packet of a gradient or of a sum, without any connection, by the port that its path names. It may be lost.
    Fragment(Packet),
    /// Tells that this host's part in a collective has reached a stage. It is for measurements only.
    Stage {
        /// The number that the part has among the run's messages.
        message: MessageId,
        /// Which stage.
        stage: Stage,
    },
    /// Closes a channel that opened at first use, once nothing is under way on it. A later message opens it again.
    Close {
        /// Which one.
        channel: Channel,
    },
    /// Tells another program something outside the network, at an instant of the caller's choice: news of imported
    /// dependencies between hosts, which no packet carries. Not on real nodes in several processes.
    Signal {
        /// To whom.
        to: HostId,
        /// When it is there.
        at: Time,
        /// Its place among signals that arrive at one instant at one host: unique for each of them.
        order: u32,
        /// What it says.
        word: u32,
    },
}

/// How far a host's part in a collective has come that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It begins.
    Begun,
    /// The hosts have no plane in common: each passes on to the next one what it gets.
    Chained,
    /// Everything that it is to have is here.
    Complete,
    /// Nobody needs anything of it any more.
    Closed,
    /// It was given up, since this host did not answer any more.
    Aborted {
        /// The silent host.
        dead: HostId,
    },
}

/// A program at a host.
///
/// A world calls `handle_event` and `handle_timeout` as things happen, each followed by `poll_action` until that returns
/// `None`, and comes back at `poll_timeout`. Time is an argument and never runs backwards.
pub trait Application: Send {
    /// Something happened.
    fn handle_event(&mut self, now: Time, event: &Event);

    /// The instant of [`Application::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Time);

    /// The next thing to do now.
    fn poll_action(&mut self, now: Time) -> Option<Action>;

    /// When to come back at the latest; [`Time::NEVER`] to wait for events only.
    fn poll_timeout(&self) -> Time;

    /// Is this number one of its own messages', or of messages that it waits for? A host with several programs asks.
    fn owns(&self, message: MessageId) -> bool {
        let _ = message;
        false
    }

    /// Adds what it has counted of the aggregation of gradients until `now`, job by job.
    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        let _ = (now, into);
    }

    /// Begins now. For a part that another program of its host starts, rather than an instant; other programs do nothing.
    fn begin(&mut self, now: Time) {
        let _ = now;
    }

    /// Does this host have everything that the program was to get? Others may still need something of it.
    fn is_complete(&self) -> bool {
        self.is_done()
    }

    /// Adds where the time of a job's rank went until `now`.
    fn tell_times(&self, now: Time, into: &mut Vec<RankTimes>) {
        let _ = (now, into);
    }

    /// Has it done all that it set out to do? A run in which all programs are done has finished.
    fn is_done(&self) -> bool;
}
