//! Partial completion: one-way connections that send no acknowledgements, place every packet, and show which packets
//! have arrived.
//!
//! The base layer of SDR-RDMA (Khalilov et al., arXiv 2505.05366, sections 2 to 5). A message travels as one or more
//! *stretches*. A stretch takes a slot at each end, in order: the sender's i-th stretch arrives in the receiver's i-th
//! receive. [`Progress`] shows which of its packets and chunks have arrived. The layer above decides what to do about
//! the missing ones ([`crate::repair`], or another program).
//!
//! Over sockets, `strandway_udp::Node` has the same calls; there `mr_reg` is `Node::register`, and the payload is
//! written to its place in memory.
//!
//! | SDR's call | here |
//! |---|---|
//! | `context_create`, `qp_create`, `qp_info_get`, `qp_connect` | [`Endpoint::open`](crate::Endpoint::open) with the reliability `partial` |
//! | `mr_reg` | the world's: an endpoint holds no bytes |
//! | `send_stream_start`, `send_stream_continue`, `send_stream_end` | [`Endpoint::begin_stream`](crate::Endpoint::begin_stream), [`Endpoint::push_stream`](crate::Endpoint::push_stream), [`Endpoint::end_stream`](crate::Endpoint::end_stream) |
//! | `send_post`, `send_poll` | [`Endpoint::post`](crate::Endpoint::post), [`Event::Sent`](crate::Event::Sent) |
//! | `recv_post` | [`Endpoint::expect`](crate::Endpoint::expect) |
//! | `recv_bitmap_get`, `recv_imm_get` | [`Endpoint::progress`](crate::Endpoint::progress) |
//! | `recv_complete` | [`Endpoint::complete`](crate::Endpoint::complete) |
//! | none | [`Endpoint::has_stream`](crate::Endpoint::has_stream), [`Endpoint::length`](crate::Endpoint::length) |

mod config;
mod progress;
mod receiving;
mod sending;

pub use config::{PartialConfig, PartialReceiver, PartialSender};
pub use progress::{Inserted, Progress};
pub use receiving::{Placed, ReceiveTable};
pub use sending::{SendTable, Stretch};

use crate::packet::{Ack, PathId, Psn, SackBits, nearest};

/// Slots of a connection at each end: the largest number of stretches in progress. SDR-RDMA, section 3.2: 10 bits.
pub const SLOTS: u64 = 1 << 10;

/// On the wire, stretches count modulo this: 10 bits for the slot and 16 for the generation (ours; SDR-RDMA has 4
/// generations).
pub const SEQUENCES: u32 = 1 << 26;

/// The largest number of packets of a message on a one-way connection: 4 TiB at 4 KiB. Ours.
pub const PACKETS_MAX: u32 = 1 << 30;

/// All slots are taken: try again when one is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl core::fmt::Display for Busy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "all {SLOTS} slots are taken: try again when one of them is complete")
    }
}

impl core::error::Error for Busy {}

/// The number of a stretch as it travels on the wire.
#[inline]
pub(crate) const fn truncated(full: u64) -> u32 {
    (full % SEQUENCES as u64) as u32
}

/// The full number nearest to `near` that travels as `sequence`.
#[inline]
pub(crate) const fn extend(sequence: u32, near: u64) -> u64 {
    nearest(sequence, near, SEQUENCES as u64)
}

/// The answer to a probe on a connection that has no acknowledgements.
pub(crate) const fn nothing_acknowledged(path: PathId) -> Ack {
    let (none, sack) = (Psn::new(0), SackBits::new(0));
    Ack { cumulative: none, sack_base: none, sack, acked: none, path, received: 0, out_of_order: 0, range: 0 }
}

/// The number of chunks of `chunk` packets in `packets` packets.
#[inline]
pub(crate) const fn chunks_of(packets: u32, chunk: u32) -> u32 {
    packets.div_ceil(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_truncated_count_extends_to_the_full_one(near in 0u64..1 << 40, away in -30_000_000i64..30_000_000) {
            let full = near as i64 + away;
            prop_assume!(full >= 0);
            prop_assert_eq!(extend(truncated(full as u64), near), full as u64);
        }
    }

    #[test]
    fn counts_wrap_at_their_ends() {
        let last = u64::from(SEQUENCES) - 1;
        assert_eq!((truncated(last), truncated(last + 1)), (SEQUENCES - 1, 0));
        assert_eq!((extend(0, last), extend(SEQUENCES - 1, last + 1)), (last + 1, last));
    }
}
