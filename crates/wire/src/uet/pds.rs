//! The packet delivery sublayer (PDS): the first header of a datagram.
//!
//! Every header begins with a prologue of 16 bits, table 3-32: `type` 5, `next_hdr` 4 (in a control packet its kind),
//! `flags` 7. Reserved bits are zero; others are refused.

pub(super) mod bytes;

use super::codes::{ControlKind, NackCode};

/// The first header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pds {
    /// A packet of a delivery context, with a sequence number: types 2, 3, 13, 14.
    Request(Request),
    /// An acknowledgement: types 7, 8, 9.
    Ack(Ack),
    /// A refusal: types 10, 12.
    Nack(Nack),
    /// A packet of the sublayer itself, without a semantic header: type 11.
    Control(Control),
    /// Reliable and unordered for idempotent operations, without a context: types 4, 5.
    Rudi(Rudi),
    /// Unreliable and unordered, without a context: type 6. It has no fields.
    Uud,
}

/// How a delivery context delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reliable unordered delivery (RUD).
    Unordered,
    /// Reliable ordered delivery (ROD).
    Ordered,
}

/// The context at the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Its number (`dpdcid`) is known.
    Known(u16),
    /// The SYN flag: it is not known yet, and may not exist.
    Opening {
        /// `pdc_info`, 4 bits. Sources disagree about the place of its only flag: send 0.
        info: u8,
        /// Distance from the first sequence number of the context, 12 bits.
        psn_offset: u16,
    },
}

/// Tables 3-33 and 3-34.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The mode of the context.
    pub mode: Mode,
    /// It was sent before.
    pub retransmitted: bool,
    /// The target must acknowledge at once (AR).
    pub ack_request: bool,
    /// From the sequence number to the highest one whose response the sender has dealt with (CLEAR_PSN).
    pub clear_offset: i16,
    /// Sequence number.
    pub psn: u32,
    /// The sender's number of the context (`spdcid`); 0 is reserved.
    pub source: u16,
    /// The receiver's context.
    pub target: Context,
    /// Types 13 and 14: the sender's wish to a receiver that gives credit.
    pub credit: Option<CreditRequest>,
}

/// Table 3-34: as Wireshark and a reading have it; 32 opaque bits in the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditRequest {
    /// Congestion control context (`ccc_id`).
    pub context: u8,
    /// `credit_target`, 24 bits.
    pub target: u32,
}

/// The cause of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A packet, by the distance of its sequence number from the cumulative one (`ack_psn_offset`).
    Packet(i16),
    /// A probe: its `probe_opaque`.
    Probe(u16),
}

/// A target's request in an acknowledgement: REQ, table 3-44.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    #[default]
    None,
    /// A cleared sequence number.
    Clear,
    /// The end of the context.
    Close,
}

/// Tables 3-35 to 3-37.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The packet that caused it carried CE (M).
    pub marked: bool,
    /// The packet that caused it was a retransmission.
    pub retransmitted: bool,
    /// Its cause.
    pub cause: Cause,
    /// The target's request.
    pub wish: Wish,
    /// Everything up to here, and including it, has arrived (`cack_psn`).
    pub cumulative: u32,
    /// The number of the context at the sender of the acknowledgement (`spdcid`).
    pub source: u16,
    /// The number of the context at its receiver (`dpdcid`).
    pub target: u16,
    /// Types 8 and 9: single packets, and the state of congestion control.
    pub congestion: Option<Congestion>,
    /// Type 7: the first sequence number of the sender's next secured context (EPSN; the reference's only).
    pub expected: Option<u32>,
}

/// The part of an acknowledgement that types 8 and 9 add: table 3-36.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// `cc_flags`, 4 bits: 0.
    pub flags: u8,
    /// The target takes sequence numbers up to this many times 128 beyond the cumulative one; 0: no limit (`mpr`).
    pub range: u8,
    /// From the cumulative sequence number to that of bit 0 (`sack_psn_offset`). SUET sends multiples of 8.
    pub base_offset: i16,
    /// Bit `i`: base + `i` has arrived. A zero bit says nothing.
    pub bitmap: u64,
    /// The state itself.
    pub state: State,
}

/// The state of congestion control in an acknowledgement (`cc_type` and `ack_cc_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Type 0: sender-based control (NSCC), table 3-74.
    Nscc(Nscc),
    /// Type 1: credit of the receiver, table 3-75.
    Credit {
        /// Credit, 24 bits.
        credit: u32,
        /// Packets above a hole.
        out_of_order: u16,
    },
    /// Another type.
    Other {
        /// 2 to 15; 14 and 15 are proprietary.
        kind: u8,
        /// The state.
        state: u64,
    },
    /// ACK_CCX: 16 B of state. Four codes have 40 B for the header, a reading 32 B.
    Extended {
        /// 4 bits.
        kind: u8,
        /// The state.
        state: [u64; 2],
    },
}

/// Table 3-74; units after a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nscc {
    /// From the packet's arrival to the acknowledgement's departure, in units of 128 ns; 0: not known.
    pub service_time: u16,
    /// The window before the penalty is valid again.
    pub restore: bool,
    /// The receiver's penalty for the window, 7 bits.
    pub penalty: u8,
    /// Bytes received, in units of 256 B, rounded up: 24 bits, wrapping.
    pub received: u32,
    /// Packets above a hole; 0xffff: not computed.
    pub out_of_order: u16,
}

/// Tables 3-40 and 3-41.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The packet carried CE (M).
    pub marked: bool,
    /// The packet was a retransmission.
    pub retransmitted: bool,
    /// Why.
    pub code: NackCode,
    /// More about it, by the vendor's numbers.
    pub vendor: u8,
    /// The packet.
    pub about: Refused,
    /// By code: 0x11 packets outstanding, 0x17 the sequence number to start from (the reference).
    pub payload: u32,
    /// Type 12: `nccx_type` and 124 bits of state. Two codes have 32 B for the header, a reading 24 B.
    pub extended: Option<NackState>,
}

/// The packet that a NACK is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A packet of a context.
    Packet {
        /// Its sequence number.
        psn: u32,
        /// The number of the context at the sender of the NACK; 0 if it has none.
        source: u16,
        /// The number of the context at the receiver of the NACK.
        target: u16,
    },
    /// A RUDI packet (NT flag).
    Rudi {
        /// Its number.
        packet: u32,
    },
}

/// The part that NACK_CCX adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackState {
    /// `nccx_type`, 4 bits.
    pub kind: u8,
    /// 60 and 64 bits.
    pub state: [u64; 2],
}

/// Table 3-38.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Its meaning.
    pub kind: ControlKind,
    /// The context's mode (ISROD). By the reference for no operation and negotiation only; SUET sets it always.
    pub mode: Mode,
    /// It was sent before.
    pub retransmitted: bool,
    /// The receiver must acknowledge at once (AR).
    pub ack_request: bool,
    /// Probe: comes back in the acknowledgement. Others: 0.
    pub opaque: u16,
    /// Sequence number, or the one that it is about; 0 or any value in kinds that have none.
    pub psn: u32,
    /// The sender's number of the context.
    pub source: u16,
    /// The receiver's context.
    pub target: Context,
    /// By kind: a cleared sequence number, a base, credit, or 0.
    pub payload: u32,
}

/// Table 3-39.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rudi {
    /// A response rather than a request.
    pub response: bool,
    /// A response to a request that carried CE.
    pub marked: bool,
    /// It was sent before.
    pub retransmitted: bool,
    /// The number of the packet (`pkt_id`).
    pub packet: u32,
}

impl Request {
    /// All responses up to this one, and including it, may be forgotten by the target.
    pub const fn clear_psn(&self) -> u32 {
        self.psn.wrapping_add_signed(self.clear_offset as i32)
    }

    /// The first sequence number of the context, if the packet opens it.
    pub const fn start_psn(&self) -> Option<u32> {
        match self.target {
            Context::Opening { psn_offset, .. } => Some(self.psn.wrapping_sub(psn_offset as u32)),
            Context::Known(_) => None,
        }
    }
}

impl Ack {
    /// The sequence number of the packet that caused it.
    pub const fn acked_psn(&self) -> Option<u32> {
        match self.cause {
            Cause::Packet(offset) => Some(self.cumulative.wrapping_add_signed(offset as i32)),
            Cause::Probe(_) => None,
        }
    }

    /// The sequence number of bit 0 of the bitmap.
    pub fn base_psn(&self) -> Option<u32> {
        self.congestion.map(|congestion| self.cumulative.wrapping_add_signed(i32::from(congestion.base_offset)))
    }
}
