//! The operations on a policy, as one list per kind of policy: property tests draw such lists, fuzz targets read them
//! from bytes. Each list is meaningful however it is cut or shuffled.
#![allow(dead_code, reason = "each test and fuzz target uses some of it")]

use strandway_proto::congestion::{AckSample, Congestion, LossKind, LossSample};
use strandway_proto::path::{PathFeedback, PathSelector};
use strandway_proto::profile::WireFormat;
use strandway_proto::wire::{self, frame, ocp, uet};
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

/// Decodes bytes from the network: the first says as what (bit 0: UEC rather than RoCEv2, bit 2: STrack, bits 0 and 2:
/// MRC, bit 1: a frame rather than a transport header). A decoded packet must encode to bytes that decode to the same
/// packet.
pub(crate) fn check_wire(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let format = match kind & 5 {
        0 => WireFormat::Rocev2,
        1 => WireFormat::Uec,
        4 => WireFormat::Strack,
        _ => WireFormat::Mrc,
    };
    let mut again = Vec::new();
    if kind & 2 == 0 {
        let Ok(packet) = wire::decode(format, bytes) else { return };
        wire::encode(format, &packet, &mut again).expect("a packet that was read can be written");
        // MRC has fields that are not read here, such as timestamps.
        assert!(format == WireFormat::Mrc || again == bytes[..again.len()], "a header has one spelling");
        assert_eq!(wire::decode(format, &again), Ok(packet));
    } else {
        let Ok(packet) = frame::read(format, bytes) else { return };
        let whole = frame::write(format, &packet, &mut again).expect("a packet that was read can be written");
        assert_eq!(whole, usize::from(packet.size));
        assert_eq!(frame::read(format, &again), Ok(packet));
    }
}

/// Reads the bytes as a datagram in MRC's published layout, as they are and with the lengths, the port and the ICRC
/// made right, so that the bodies are read, too. A datagram that can be read can be written, and then says the same.
pub(crate) fn check_ocp(bytes: &[u8]) {
    read_ocp(bytes);
    let mut right = bytes.to_vec();
    if right.len() < ocp::FIXED + ocp::ICRC {
        return;
    }
    let Ok(length) = u16::try_from(right.len() - 40) else { return };
    (right[0], right[6]) = (0x60 | right[0] & 0xf, 17);
    right[4..6].copy_from_slice(&length.to_be_bytes());
    right[42..44].copy_from_slice(&ocp::PORT.to_be_bytes());
    right[44..46].copy_from_slice(&length.to_be_bytes());
    let at = right.len() - ocp::ICRC;
    let sum = ocp::icrc(&right[..at]).expect("it is long enough");
    right[at..].copy_from_slice(&sum);
    read_ocp(&right);
}

fn read_ocp(bytes: &[u8]) {
    let trimmed = ocp::read_trimmed(bytes, ocp::PORT);
    if let Ok((datagram, payload)) = ocp::read(bytes, ocp::PORT) {
        let mut again = Vec::new();
        ocp::write(&datagram, ocp::PORT, payload, &mut again).expect("what was read fits");
        assert_eq!(ocp::read(&again, ocp::PORT), Ok((datagram, payload)), "it says the same");
        assert_eq!(again.len(), bytes.len());
        assert_eq!(trimmed.is_ok(), matches!(datagram.body, ocp::Body::Write(_)));
    }
}

/// Reads the bytes as a datagram of UET, bare, trimmed, and over native IP. A datagram that can be read is written to
/// the same bytes.
pub(crate) fn check_uet(bytes: &[u8]) {
    let trimmed = uet::decode_trimmed(bytes);
    if let Ok(datagram) = uet::decode(bytes) {
        let mut again = Vec::new();
        uet::encode(&datagram, &mut again).expect("what was read fits");
        assert_eq!(again, bytes, "a datagram has one spelling");
        match datagram.pds {
            uet::Pds::Request(request) => assert_eq!(trimmed, Ok(request)),
            _ => assert!(trimmed.is_err()),
        }
    }
    let addresses = uet::Addresses::V6([1; 16], [2; 16]);
    let mut native = bytes.to_vec();
    native.extend(uet::crc(&addresses, bytes));
    assert_eq!(uet::without_crc(&addresses, &native), Ok(bytes));
    let _ = uet::read_entropy(bytes).map(|(_, rest)| uet::decode(rest));
}
