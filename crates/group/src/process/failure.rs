//! The reasons why a collective ends without its result.

use std::fmt;
use std::net::SocketAddrV6;
use std::time::Duration;

/// The reason why a collective has no result. The texts name rank, host and plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A rank's process has ended.
    Gone {
        /// The rank.
        rank: u32,
        /// Its host and process.
        host: String,
        /// The evidence: a plane and the address whose port refuses, or the reason for the end of the connection.
        evidence: String,
    },
    /// Another rank has found that a rank is gone.
    Told {
        /// The rank that reported it.
        by: u32,
        /// The text of its report.
        what: String,
    },
    /// The timeout is over. The collective waited for these ranks; they live as far as is known.
    TimedOut {
        /// The collective that was under way.
        what: String,
        /// The timeout.
        after: Duration,
        /// The ranks that it waited for, as `rank R at HOST`, at most eight.
        waiting: Vec<String>,
    },
    /// The group was aborted here.
    Aborted,
    /// Ranks called with buffers or jobs that do not fit each other, or buffers do not fit the job.
    Mismatch(String),
    /// The team that computes some of the group's collectives (by multicast or a switch) cannot go on, for this reason.
    Team(String),
    /// The process's node does not work any more, for this reason.
    Node(String),
    /// These messages did not arrive before the process ended, although their calls had ended well.
    Undelivered(Vec<String>),
}

impl Failure {
    /// The text for a refused port.
    pub(super) fn refused(plane: usize, address: SocketAddrV6, silence: Duration) -> String {
        format!(
            "on plane {plane} its port {address} refuses, and nothing was heard of it for {:.1} s",
            silence.as_secs_f64()
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Gone { rank, host, evidence } => {
                write!(f, "rank {rank} at {host} is gone: {evidence}. Connection closed by peer")
            }
            Failure::Told { by, what } => write!(f, "rank {by} has given up: {what}"),
            Failure::TimedOut { what, after, waiting } => {
                write!(
                    f,
                    "{what} timed out after {:.1} s: its timeout was over while it waited for ",
                    after.as_secs_f64()
                )?;
                match waiting.as_slice() {
                    [] => f.write_str("the wire"),
                    some => f.write_str(&some.join(", ")),
                }
            }
            Failure::Aborted => f.write_str("the group was aborted"),
            Failure::Mismatch(what) | Failure::Team(what) => f.write_str(what),
            Failure::Undelivered(lines) => write!(f, "these did not arrive: {}", lines.join("; ")),
            Failure::Node(what) => write!(f, "the node of this process has stopped: {what}"),
        }
    }
}

impl std::error::Error for Failure {}
