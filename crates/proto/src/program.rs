//! The seat for a program of a switch, or of a server beside it: an engine that consumes, keeps and sends fragments.
//!
//! Like a host's [`Application`](crate::Application) a program owns no socket, clock, thread or payload. It *names* sums: a world that
//! has bytes keeps numbered registers and does what the program's acts say, in their order; the simulator, which has no bytes, only sends
//! the packets. The same program runs in both.

use crate::aggregate::Counts;
use crate::packet::Packet;
use crate::units::Time;
use std::collections::BTreeMap;

/// What becomes of a packet that a program was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on as if there were no program.
    Forward,
    /// It goes no further.
    Consume,
}

/// Where numbers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lanes {
    /// There are none.
    None,
    /// From the packet that is being handled.
    Incoming,
    /// From a register.
    Register(u32),
    /// A worker's own fragment of this key.
    Own(u64),
    /// The result of this key, which a worker has.
    Result(u64),
}

/// Something that a program does. Acts take place in their order: what a register holds is what the acts before left there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Overwrites a register.
    Store {
        /// The register.
        to: u32,
        /// With these numbers.
        from: Lanes,
    },
    /// Adds to a register.
    Add {
        /// The register.
        to: u32,
        /// These numbers.
        from: Lanes,
    },
    /// A worker has the result of a key: the numbers of the packet that is being handled, if it is the key's owner.
    Take {
        /// The key, counted from 0 in 64 bits.
        key: u64,
        /// The packet brings the numbers; otherwise another worker owns them.
        here: bool,
    },
    /// Sends a packet to the host or the group that it names.
    Send {
        /// The packet.
        packet: Packet,
        /// Its numbers.
        lanes: Lanes,
    },
    /// A job cannot go on, since this worker forgot a key that another one needs.
    Fail {
        /// The job.
        job: u16,
        /// The key.
        key: u64,
    },
}

/// A program of a switch, or an engine of the same shape at a host.
///
/// A world shows it packets and calls `handle_timeout` at `poll_timeout`; after each call it polls `poll_act` until that returns `None`,
/// while the packet is still at hand ([`Lanes::Incoming`]). Time is an argument and never runs backwards.
pub trait Program: Send {
    /// A packet has come.
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate;

    /// The instant of [`Program::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Time);

    /// The next thing to do now.
    fn poll_act(&mut self) -> Option<Act>;

    /// When to come back at the latest; [`Time::NEVER`] to wait for packets only.
    fn poll_timeout(&self) -> Time;

    /// Adds what it has counted until `now`, job by job.
    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        let _ = (now, into);
    }

    /// The share of its slots that each job has held on average, one value per interval; for pictures.
    fn occupancy(&self) -> Vec<(u16, Vec<f64>)> {
        Vec::new()
    }
}
