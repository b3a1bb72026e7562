//! Parts of messages of one-way connections in bytes: the same in every format, as control messages are.
//!
//! Everything is big-endian. The first byte is one that no format begins a packet with (see [`super::control`]).
//!
//! ```text
//! byte 0       0xd1, mark and version (SDR-RDMA sheet, section 4.5)
//! byte 1       bit 0 parity, 1 last, 2 retransmitted, 3 ack request; the others zero
//! bytes 2-3    payload bytes
//! bytes 4-7    connection, as the receiver numbers it
//! bytes 8-11   six zero bits, generation 16 bits, slot 10 bits: the sequence number of the stretch
//! bytes 12-15  message (the user's immediate)
//! bytes 16-19  packet within the message
//! bytes 20-23  packets of the message
//! bytes 24-25  payload bytes of the message's last packet
//! byte 26      number of the plan by which the message is cut and coded
//! byte 27      zero
//! ```

use super::{Reader, WireError, bare};
use strandway_proto::packet::{Flags, Header, MessageId, Packet, Part, Wait};
use strandway_proto::partial::SEQUENCES;

/// The first byte of a part.
pub(super) const MARK: u8 = 0xd1;

/// Bytes of a part's header.
pub(super) const BYTES: usize = 28;

const PARITY: u8 = 1;
/// The flags of byte 1, each with its bit.
const BITS: [(Flags, u8); 3] = [(Flags::LAST, 2), (Flags::RETRANSMITTED, 4), (Flags::ACK_REQUEST, 8)];

/// Appends a part's header to `out`.
pub(super) fn encode(packet: &Packet, part: &Part, out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut rest = packet.flags.0 & !super::outer_flags(&packet.header).0;
    let mut bits = u8::from(part.parity);
    for (flag, bit) in BITS {
        if rest & flag.0 != 0 {
            bits |= bit;
            rest &= !flag.0;
        }
    }
    if rest != 0 || part.sequence >= SEQUENCES {
        return Err(WireError::Unencodable);
    }
    out.extend_from_slice(&[MARK, bits]);
    out.extend_from_slice(&{ part.length }.to_be_bytes());
    for word in [packet.connection.0, part.sequence, { part.message }.0, part.packet, part.packets] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&{ part.tail }.to_be_bytes());
    out.extend_from_slice(&[part.plan, 0]);
    Ok(())
}

/// Reads a part's header.
pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != MARK {
        return Err(WireError::Unknown);
    }
    let bits = reader.u8()?;
    let length = reader.u16()?;
    let connection = reader.u32()?;
    let part = Part {
        sequence: reader.u32()?,
        message: MessageId(reader.u32()?),
        packet: reader.u32()?,
        packets: reader.u32()?,
        tail: reader.u16()?,
        length,
        wait: Wait::default(),
        parity: bits & PARITY != 0,
        plan: reader.u8()?,
    };
    reader.zeros::<1>()?;
    if part.sequence >= SEQUENCES || bits >> 4 != 0 {
        return Err(WireError::Inconsistent);
    }
    let flags = BITS.iter().fold(Flags::NONE, |flags, &(flag, bit)| flags.with_if(bits & bit != 0, flag));
    Ok(bare(connection, flags.0, Header::Part(part)))
}
