//! The interface of a host's program: the third engine, above an [`Endpoint`](crate::Endpoint).
//!
//! A program posts messages, gets an event when they are done, and decides what to do next. Like an endpoint it owns no
//! socket, clock, thread or payload: a world gives it events (`handle_*`) and takes actions (`poll_*`). The simulator
//! and the loop over sockets drive the same program.

use crate::account::{Spent, Waits};
use crate::aggregate::Counts;
use crate::cast::{Cast, Rebuild};
use crate::control_message::ControlMessage;
use crate::message::Message;
use crate::packet::{HostId, MessageId, Packet};
use crate::rank_times::RankTimes;
use crate::units::{Bytes, Time};
use std::collections::BTreeMap;

/// The name of a connection from this host to another. Both programs and both worlds use this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    /// The host at the other end.
    pub peer: HostId,
    /// The number of the connection. A number below the plan's number of connections is an index into the plan's
    /// connections, which are open from the start. Others open at first use.
    pub number: u32,
    /// The index of its profile, for channels that open at first use.
    pub profile: u16,
}

/// An event for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message of ours is wholly acknowledged.
    Sent {
        /// Our number for it.
        message: MessageId,
    },
    /// A peer's message has arrived completely.
    Received {
        /// The peer's number for it.
        message: MessageId,
        /// Its length.
        bytes: Bytes,
    },
    /// A connection to or from this host ended: its unfinished messages stay unfinished.
    Failed {
        /// The host at the other end.
        peer: HostId,
    },
    /// A control message has arrived.
    Control {
        /// Its sender.
        from: HostId,
        /// Its contents.
        control: ControlMessage,
    },
    /// A chunk has arrived, cast by another host to this host or to one of its groups.
    Chunk {
        /// The host that cast it.
        from: HostId,
        /// Its operation.
        task: u32,
        /// Its index among the chunks of the operation's whole buffer.
        chunk: u32,
        /// The plane by which it arrived.
        plane: u8,
        /// The tree along which it arrived, if it was cast to a group and the world knows the tree.
        tree: Option<u32>,
        /// Did a switch trim it? Then only its header has arrived.
        trimmed: bool,
        /// Is it the last one of its sender's share?
        last: bool,
    },
    /// All chunks of a cast of ours have been sent ([`Action::Cast`]).
    Cast {
        /// The host or group to which they were sent.
        to: HostId,
        /// Their operation.
        task: u32,
        /// The index after the last chunk.
        end: u32,
    },
    /// A packet of a gradient or of a sum has arrived ([`crate::aggregate`]).
    Fragment(Packet),
    /// One of this host's ports went down or came back. A world that does not know this never sends the event.
    Ports {
        /// The ports that are up, one bit each.
        up: u32,
    },
    /// A signal has arrived ([`Action::Signal`]).
    Signal {
        /// Its place among signals that arrive at one instant.
        order: u32,
        /// Its contents.
        word: u32,
    },
}

/// An action of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Posts a message.
    Post {
        /// To whom, over which connection.
        channel: Channel,
        /// Its number and length. The number must be unique among all messages of the run's programs.
        message: Message,
    },
    /// Sends a control message. It may be lost.
    Control {
        /// To whom, over which connection.
        channel: Channel,
        /// Its contents.
        control: ControlMessage,
    },
    /// Sends one or more chunks to a group or to one host, without a connection. They may be lost.
    Cast(Cast),
    /// Rebuilds lost chunks from parity at once, so that later casts may send them to others. A world without bytes
    /// does nothing.
    Rebuild(Rebuild),
    /// Sends a packet of a gradient or of a sum, without a connection, by the port in its path. It may be lost.
    Fragment(Packet),
    /// Reports that this host's part in a collective has reached a stage. For measurements only.
    Stage {
        /// The number of the part among the run's messages.
        message: MessageId,
        /// The stage.
        stage: Stage,
    },
    /// Closes a channel that opened at first use, when no message is in flight on it. A later message opens it again.
    Close {
        /// The channel.
        channel: Channel,
    },
    /// Sends a signal to another program outside the network, for an instant that the caller chooses. It is for
    /// imported dependencies between hosts, which no packet carries. It does not work for real nodes in several
    /// processes.
    Signal {
        /// To whom.
        to: HostId,
        /// When it arrives.
        at: Time,
        /// Its place among the signals that arrive at one host at the same instant; must be unique.
        order: u32,
        /// Its contents.
        word: u32,
    },
}

/// A stage of a host's part in a collective that is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It begins.
    Begun,
    /// The hosts have no plane in common: each host forwards the data that it gets to the next host.
    Chained,
    /// All its data has arrived.
    Complete,
    /// No other host needs data from it any more.
    Closed,
    /// It was given up, because the host `dead` no longer answered.
    Aborted {
        /// The silent host.
        dead: HostId,
    },
}

/// How the time of a message of a program was spent; for measurements only.
#[derive(Clone, Copy, Debug)]
pub enum Account<'a> {
    /// A message of ours is acknowledged: the time of its connection by activity, since the message was posted.
    Sent(&'a Spent),
    /// A peer's message has arrived: the waits of the packets of its connection now, and when they were last read.
    Received {
        /// The waits up to now.
        now: &'a Waits,
        /// The waits at an earlier reading.
        before: &'a Waits,
    },
}

/// The program of a host.
///
/// A world calls `handle_event` for each event and `handle_timeout` at `poll_timeout`; after each of these calls it
/// calls `poll_action` until that returns `None`. Time is an argument and never runs backwards.
pub trait Application: Send {
    /// Something happened.
    fn handle_event(&mut self, now: Time, event: &Event);

    /// The time of [`Application::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Time);

    /// The next thing to do now.
    fn poll_action(&mut self, now: Time) -> Option<Action>;

    /// When to call `handle_timeout`; [`Time::NEVER`] if only events matter.
    fn poll_timeout(&self) -> Time;

    /// Does this number belong to one of its own messages, or to one that it waits for? Used on a host with several
    /// programs.
    fn owns(&self, message: MessageId) -> bool {
        let _ = message;
        false
    }

    /// Adds its counters of gradient aggregation up to `now`, by job.
    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        let _ = (now, into);
    }

    /// Begins now. For a part that another program of its host starts, instead of a start time; other programs do
    /// nothing.
    fn begin(&mut self, now: Time) {
        let _ = now;
    }

    /// Does this host have all the data that the program was to get? Other hosts may still need data from it.
    fn is_complete(&self) -> bool {
        self.is_done()
    }

    /// How the time of a message was spent that has no row in the plan. It comes before the event
    /// [`Event::Sent`] or [`Event::Received`], and only if the plan asks for accounts. Decisions must not depend on it.
    fn note_account(&mut self, message: MessageId, account: &Account<'_>) {
        let _ = (message, account);
    }

    /// Adds how a job's rank spent its time up to `now`.
    fn append_times(&self, now: Time, into: &mut Vec<RankTimes>) {
        let _ = (now, into);
    }

    /// Has it finished its work? A run ends when all programs are done.
    fn is_done(&self) -> bool;
}
