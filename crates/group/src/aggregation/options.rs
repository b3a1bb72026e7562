//! The settings of a worker of a switch, and the outcome of a reduction.

use super::terms;
use std::fmt;
use std::net::SocketAddrV6;
use std::time::Duration;
use strandway_udp::fragments::LANES;

/// How a team uses a switch; all ranks must have the same. [`NetworkOptions::new`] gives defaults.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// The admission address of the job at the switch.
    pub admission: SocketAddrV6,
    /// The job's key.
    pub key: Vec<u8>,
    /// Numbers in a fragment, 1 to 2,048, and no more than the switch allows; more than 256 need an MTU above 1,500.
    /// Default 256.
    pub elements: u16,
    /// The most fragments under way; the switch may allow fewer. Default 0: the number that fills two round trips of 2
    /// ms at the team's rate, 32 to 512. More fragments would only wait in queues and make timers longer.
    pub window: u32,
    /// Numbers up to this size become integers; larger ones are added as floats by the parameter server. Default 16:
    /// ESA sheet, section 9.
    pub max_abs: f32,
    /// SwitchML: each block of numbers (a fragment) has factors of its own, by the largest numbers of its two halves.
    /// The workers agree on them one window ahead. Then `max_abs` is not used. Default false.
    pub exponents: bool,
    /// ESA: the priority in the competition for slots, 1 to 255. Default 128.
    pub priority: u8,
    /// The longest wait for the switch's answer; a quarter of it when a lost switch is tried again. Default 2 s.
    pub patience: Duration,
    /// A switch that is silent for this time counts as gone. Default 1 s.
    pub silence: Duration,
    /// Bytes of the socket's buffers. Default 4 MiB.
    pub socket_buffer: usize,
    /// The share of arriving fragments that is dropped, for tests and experiments. Default 0.
    pub loss: f64,
    /// Begin with a session for reduce-scatters and not for all-reduces. Default false.
    pub scatter: bool,
}

impl NetworkOptions {
    /// Defaults for the job with this admission address and key.
    pub fn new(admission: SocketAddrV6, key: Vec<u8>) -> NetworkOptions {
        NetworkOptions {
            admission,
            key,
            elements: LANES,
            window: 0,
            max_abs: 16.0,
            exponents: false,
            priority: 128,
            patience: Duration::from_secs(2),
            silence: terms::GONE,
            socket_buffer: 4 << 20,
            loss: 0.0,
            scatter: false,
        }
    }
}

/// The reason why an operation did not go by the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no switch, or it did not let a rank in.
    NoSwitch,
    /// The switch or the session has ended.
    Gone,
    /// The switch lives, but no result came during the team's patience.
    Stalled,
    /// Numbers would overflow, and the system cannot add floats (SwitchML).
    Overflow,
    /// A sum has overflowed, because a worker sent too large a number.
    Unsound,
}

impl Why {
    pub(super) const ALL: [Why; 5] = [Why::NoSwitch, Why::Gone, Why::Stalled, Why::Overflow, Why::Unsound];

    pub(super) fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::NoSwitch => "it has no switch",
            Why::Gone => "the switch is gone",
            Why::Stalled => "the switch lives, but no results come",
            Why::Overflow => "numbers are too large for this system",
            Why::Unsound => "a sum has overflowed",
        })
    }
}

/// How the sums were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The switch. Sums are sums of integers, so the order of fragments does not change them.
    Switch,
    /// A ring of messages among the ranks, in floats.
    Ring {
        /// The first rank that could not use the switch.
        rank: u32,
        /// Why.
        why: Why,
    },
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Switch => f.write_str("by the switch"),
            By::Ring { rank, why } => write!(f, "by a ring, since rank {rank} says: {why}"),
        }
    }
}

/// The result of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Reduced {
    /// How the sums were made.
    pub by: By,
    /// From the call until the sums are here.
    pub time: Duration,
    /// Fragments that were added as floats.
    pub floats: u64,
}
