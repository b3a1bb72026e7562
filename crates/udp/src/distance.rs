//! Distances of peers: their rate and round trip.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use strandway_proto::{Rate, Span};

/// Peers whose way has another rate or round trip than [`Config::rate`](crate::Config::rate) and
/// [`Config::base_rtt`](crate::Config::base_rtt), such as those of another site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distance {
    /// The peers' addresses on any plane, the first and the last.
    pub peers: RangeInclusive<Ipv6Addr>,
    /// The rate of the slowest stage of the way, all planes together. A value above the node's rate is reduced to it.
    pub rate: Rate,
    /// Round trip without queueing. A value above the node's is reduced to it, since socket buffers are sized by that.
    pub base_rtt: Span,
}
