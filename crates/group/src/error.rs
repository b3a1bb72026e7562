//! Errors of teams, with the rank that they concern.

use std::fmt;
use std::net::SocketAddrV6;
use strandway_udp::address::shown;
use strandway_udp::{Error, Reason};

/// Why a team could not form, or an operation ended without its result.
#[derive(Debug)]
pub enum GroupError {
    /// A call to our own node failed.
    Node(Error),
    /// Options or buffers are invalid; the text says which, and the valid ones.
    Config(String),
    /// These ranks did not come in time.
    Missing {
        /// The ranks.
        ranks: Vec<u32>,
        /// The time that they had, in seconds.
        seconds: f64,
    },
    /// Rank 0, which all ranks call first, cannot be reached.
    Unreachable {
        /// Its address on the first plane.
        address: SocketAddrV6,
        /// Why.
        reason: Reason,
    },
    /// A rank was started with other settings: the rank, the setting, and both values.
    Differs {
        /// The rank.
        rank: u32,
        /// The name of the setting.
        what: &'static str,
        /// Its value there.
        theirs: u64,
        /// Its value at rank 0.
        ours: u64,
    },
    /// These two ranks called an operation with buffers of different sizes.
    Sizes {
        /// The ranks.
        ranks: [u32; 2],
    },
    /// A rank does not answer any more: the operation has no result.
    Dead {
        /// The rank.
        rank: u32,
    },
    /// A switch that adds cannot be used; the text has the reason and the remedy.
    Switch(String),
    /// The caller asked it to stop.
    Stopped,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Node(error) => error.fmt(f),
            GroupError::Config(what) => f.write_str(what),
            GroupError::Missing { ranks, seconds } => {
                let some: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
                let more = if ranks.len() > 8 { ", ..." } else { "" };
                write!(
                    f,
                    "{} rank(s) did not come within {seconds:.0} s: {}{more}; start them, or wait longer",
                    ranks.len(),
                    some.join(", ")
                )
            }
            GroupError::Unreachable { address, reason } => {
                write!(f, "rank 0 at {}: {reason}; all ranks must reach rank 0", shown(*address))
            }
            GroupError::Differs { rank, what, theirs, ours } => {
                write!(f, "rank {rank} has {what} {theirs}, rank 0 has {ours}: start all ranks alike")
            }
            GroupError::Sizes { ranks: [a, b] } => {
                write!(f, "ranks {a} and {b} call with buffers of different sizes: all must have the same one")
            }
            GroupError::Dead { rank } => write!(f, "rank {rank} does not answer any more"),
            GroupError::Switch(why) => f.write_str(why),
            GroupError::Stopped => f.write_str("stopped"),
        }
    }
}

impl std::error::Error for GroupError {}

impl From<Error> for GroupError {
    fn from(error: Error) -> GroupError {
        GroupError::Node(error)
    }
}
