//! The interface of a switch's or a server's program: an engine that consumes, stores and sends fragments.
//!
//! Like a host's [`Application`](crate::Application) a program owns no socket, clock, thread or payload. It only
//! *names* sums: a world with bytes keeps numbered registers and executes the program's acts in order; the simulator,
//! which has no bytes, only sends the packets. The same program runs in both.

use crate::aggregate::Counts;
use crate::packet::Packet;
use crate::units::Time;
use std::collections::BTreeMap;

/// The fate of a packet after the program has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The world forwards it, as without a program.
    Forward,
    /// The world drops it: the program has used it.
    Consume,
}

/// The packets that a switch shows to its program. All others pass as without a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Fragments: packets with gradients, and their control packets.
    #[default]
    Fragments,
    /// Every packet that arrives at the switch: data, trimmed or whole, acknowledgements, probes, fragments. A packet
    /// to a group is shown once, before it is copied. A consumed packet that is no fragment counts as lost.
    All,
}

/// The source of elements (the numbers of a fragment).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Elements {
    /// No elements.
    None,
    /// The packet that is being handled.
    Incoming,
    /// This register.
    Register(u32),
    /// The worker's own fragment of this key.
    Own(u64),
    /// The result of this key, which the worker has.
    Result(u64),
}

/// An act of a program. Acts are executed in order, so a register has the value that earlier acts left in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Overwrites a register.
    Store {
        /// The register.
        to: u32,
        /// The elements to store.
        from: Elements,
    },
    /// Adds to a register.
    Add {
        /// The register.
        to: u32,
        /// The elements to add.
        from: Elements,
    },
    /// The worker has the result of a key: the elements of the packet that is being handled, if `here` is set.
    Take {
        /// The key, counted from 0 in 64 bits.
        key: u64,
        /// True if the packet has the elements; false if another worker owns them.
        here: bool,
    },
    /// Sends a packet to the host or the group that it names.
    Send {
        /// The packet.
        packet: Packet,
        /// Its elements.
        elements: Elements,
    },
    /// A job cannot go on, because this worker no longer has a key that another worker needs.
    Fail {
        /// The job.
        job: u16,
        /// The key.
        key: u64,
    },
}

/// A program of a switch, or an engine of the same shape at a host.
///
/// A world calls `handle_packet` for each packet and `handle_timeout` at `poll_timeout`. After each of these calls it
/// calls `poll_act` until that returns `None`, while it still has the packet ([`Elements::Incoming`]). Time is an
/// argument and never runs backwards.
pub trait Program: Send {
    /// The packets that it is to see. The simulator asks once, before the run; the switch process of
    /// `strandway-aggregator` gets no packets but fragments.
    fn scope(&self) -> Scope {
        Scope::Fragments
    }

    /// A packet has arrived.
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate;

    /// The time of [`Program::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Time);

    /// The next act.
    fn poll_act(&mut self) -> Option<Act>;

    /// When to call `handle_timeout`; [`Time::NEVER`] if only packets matter.
    fn poll_timeout(&self) -> Time;

    /// Adds its counters up to `now`, by job.
    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        let _ = (now, into);
    }

    /// The average share of its slots that each job held, one value per interval; for pictures.
    fn occupancy(&self) -> Vec<(u16, Vec<f64>)> {
        Vec::new()
    }
}
