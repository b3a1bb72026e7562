//! Faults of links and the times at which they begin and end.

use crate::loss::Burst;
use crate::topology::LinkId;
use strandway_proto::units::{Span, Time};

/// One fault on a set of links, with its begin and end.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// The directed links with the fault.
    pub links: Vec<LinkId>,
    /// The kind of fault.
    pub kind: FaultKind,
    /// When it begins.
    pub from: Time,
    /// When it ends; [`Time::NEVER`] if it lasts for the whole run.
    pub until: Time,
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The link delivers nothing. Packets on the link when it breaks are lost, too.
    Down {
        /// `None`: the fault is not reported, and packets vanish. `Some(delay)`: the NIC or switch at the link's port
        /// sees the fault at once. A NIC stops using the port; a switch drops the port's packets instead of holding
        /// them. Routing avoids the link after `delay`.
        visible: Option<Span>,
    },
    /// It runs at this fraction of its rate. Its queue limits and marking thresholds shrink by the same fraction.
    Degraded {
        /// In (0, 1].
        fraction: f64,
    },
    /// It loses packets at random, without a report.
    Loss {
        /// The probability that a packet is lost, in [0, 1].
        probability: f64,
        /// Whether losses are independent or come in bursts.
        burst: Burst,
    },
    /// The link works, but the controller denies every entropy value whose path crosses it (MRC: DENIED), at all
    /// senders. At the end it allows them.
    Denied,
}
