//! The operations on a policy, as one list per kind of policy: property tests draw such lists, fuzz targets read them
//! from bytes. Each list is meaningful however it is cut or shuffled.
#![allow(dead_code, reason = "each test and fuzz target uses some of it")]

use strandway_proto::congestion::{AckSample, Congestion, LossKind, LossSample};
use strandway_proto::path::{PathFeedback, PathSelector};
use strandway_proto::{Bytes, PathId, Ports, Span, Time};

/// Something that happens to a congestion control.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CongestionOperation {
    /// This many picoseconds pass.
    Wait(u64),
    /// A packet of this many bytes leaves.
    Send(u32),
    /// `packets` packets of `bytes` bytes are acknowledged, perhaps with a round trip and a mark.
    Ack { packets: u32, bytes: u32, rtt: Option<u64>, marked: bool },
    /// A packet is lost.
    Lose { kind: LossKind, bytes: u32 },
    /// A CNP arrives.
    Notify,
}

impl CongestionOperation {
    /// Reads one operation from eight bytes; any bytes are one.
    pub(crate) fn from_bytes(bytes: [u8; 8]) -> CongestionOperation {
        let [kind, flags, a, b, c, d, e, f] = bytes;
        let number = u32::from_le_bytes([a, b, c, d]);
        match kind % 6 {
            0 => CongestionOperation::Wait(u64::from(number) * u64::from(e).max(1)),
            1 => CongestionOperation::Send(number % 65_536),
            2 => CongestionOperation::Ack {
                packets: u32::from(e),
                bytes: u32::from(e) * 4160,
                rtt: (flags & 2 != 0).then_some(u64::from(number)),
                marked: flags & 1 != 0,
            },
            3 => CongestionOperation::Lose { kind: LossKind::Trimmed { last_hop: f & 1 != 0 }, bytes: number % 65_536 },
            4 => {
                let kind = if f & 1 != 0 { LossKind::TimedOut } else { LossKind::Inferred };
                CongestionOperation::Lose { kind, bytes: number % 65_536 }
            }
            _ => CongestionOperation::Notify,
        }
    }

    /// Does it to a congestion control; keeps the time and the bytes in flight.
    pub(crate) fn apply(self, policy: &mut impl Congestion, now: &mut Time, in_flight: &mut u64) {
        match self {
            CongestionOperation::Wait(ps) => *now = *now + Span(ps),
            CongestionOperation::Send(bytes) => {
                *in_flight += u64::from(bytes);
                policy.on_sent(*now, Bytes(u64::from(bytes)), Bytes(*in_flight));
            }
            CongestionOperation::Ack { packets, bytes, rtt, marked } => {
                let bytes = u64::from(bytes).min(*in_flight);
                *in_flight -= bytes;
                policy.on_ack(&AckSample {
                    now: *now,
                    rtt: rtt.map(Span),
                    bytes: Bytes(bytes),
                    packets,
                    marked,
                    lost: None,
                    in_flight: Bytes(*in_flight),
                });
            }
            CongestionOperation::Lose { kind, bytes } => {
                let bytes = u64::from(bytes).min(*in_flight);
                *in_flight -= bytes;
                let (bytes, in_flight) = (Bytes(bytes), Bytes(*in_flight));
                policy.on_loss(&LossSample { now: *now, kind, bytes, in_flight });
            }
            CongestionOperation::Notify => policy.on_notification(*now),
        }
    }
}

/// Something that happens to a path selector.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathOperation {
    /// This many picoseconds pass.
    Wait(u64),
    /// A path is wanted; these ports are free for data.
    Next(u32),
    /// Feedback for a packet on the path of an earlier draw, `ago` draws back.
    Feedback(u8, PathFeedback),
    /// A peer makes up a path.
    Invented(u32, PathFeedback),
}

impl PathOperation {
    /// Reads one operation from six bytes; any bytes are one.
    pub(crate) fn from_bytes(bytes: [u8; 6]) -> PathOperation {
        let [kind, flags, a, b, c, d] = bytes;
        let number = u32::from_le_bytes([a, b, c, d]);
        let feedback = match flags % 5 {
            0 => PathFeedback::Good,
            1 => PathFeedback::Marked,
            2 => PathFeedback::Trimmed,
            3 => PathFeedback::Lost,
            _ => PathFeedback::TimedOut,
        };
        match kind % 4 {
            0 => PathOperation::Wait(u64::from(number)),
            1 => PathOperation::Next(number),
            2 => PathOperation::Feedback(a, feedback),
            _ => PathOperation::Invented(number, feedback),
        }
    }

    /// Does it to a path selector; keeps the time and the paths drawn, latest last. Gives the path if one was wanted.
    pub(crate) fn apply(
        self,
        policy: &mut impl PathSelector,
        now: &mut Time,
        drawn: &mut Vec<PathId>,
    ) -> Option<Option<PathId>> {
        match self {
            PathOperation::Wait(ps) => *now = *now + Span(ps),
            PathOperation::Next(free) => {
                let path = policy.next(*now, Ports { data: free, control: free });
                drawn.extend(path);
                return Some(path);
            }
            PathOperation::Feedback(ago, feedback) => {
                if let Some(&path) = drawn.iter().rev().nth(usize::from(ago)) {
                    policy.on_feedback(*now, path, feedback);
                }
            }
            PathOperation::Invented(path, feedback) => policy.on_feedback(*now, PathId(path), feedback),
        }
        None
    }
}
