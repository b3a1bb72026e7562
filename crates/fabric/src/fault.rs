//! What breaks, and when.

use crate::loss::Burst;
use crate::topology::LinkId;
use strandway_proto::units::{Span, Time};

/// One fault on some links, from one instant to another.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// The directed links it strikes.
    pub links: Vec<LinkId>,
    /// What happens to them.
    pub kind: FaultKind,
    /// From when.
    pub from: Time,
    /// Until when; [`Time::NEVER`] for good.
    pub until: Time,
}

/// What happens to a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It delivers nothing, also not what was on its way when it broke.
    Down {
        /// `None`: nobody is told, packets vanish. `Some(delay)`: the port's own NIC or switch sees it at once (a NIC stops
        /// using it, a switch holds its packets no more and drops them), and routing avoids it after `delay`.
        visible: Option<Span>,
    },
    /// It runs at this fraction of its rate, its queue limits and marking thresholds scaled alike.
    Degraded {
        /// In (0, 1].
        fraction: f64,
    },
    /// It loses packets at random, silently.
    Loss {
        /// The share of packets that it loses, in [0, 1].
        probability: f64,
        /// How long losses last once they have begun.
        burst: Burst,
    },
}
