//! STrack's fields in a layout of ours, since the paper's is not public.
//!
//! All fields are big-endian. Each packet begins with
//!
//! ```text
//! byte 0      version (high five bits, 1) and type (low three: 0 data, 1 retransmission, 2 probe, 3 ack, 4 nack, 5 cnp)
//! byte 1      flags: bit 0 ack request, 1 last, 2 marked (ECN echo), 3 retransmitted (echo), 4 probe answer, 5 hole,
//!             6 trimmed, 7 trimmed at the last hop; 6 and 7 are zero on data, where the IP header tells
//! bytes 2-3   payload bytes of data, 0 otherwise
//! bytes 4-7   connection, as the receiver numbers it (24 bits), and eight zero bits
//! ```
//!
//! and goes on with
//!
//! ```text
//! data, retransmission   psn 3, zero 1, message 4, offset 8                                            24 bytes in all
//! probe                  number 4                                                                      12
//! ack                    cumulative 3, zero 1, sack base 3, zero 1, sack 8, acked 3, zero 1,
//!                        path 4, received 4, out of order 2, zero 2                                    40
//! nack                   psn 3, zero 1, cumulative 3, zero 1, path 4                                   20
//! cnp                                                                                                   8
//! ```
//!
//! The entropy value of a data packet is the UDP source port; an acknowledgement echoes it with the plane and the
//! entropy's upper bits. STrack itself has no NACK and no CNP; the format has them so that every combination of
//! policies can be encoded.

use super::{Reader, WireError, bare, outer_flags};
use strandway_proto::packet::{
    Ack, Data, Flags, Header, MessageId, Nack, NackReason, Offset, Packet, PathId, Psn, SackBits, Wait,
};

const VERSION: u8 = 1;
const DATA: u8 = 0;
const RETRANSMISSION: u8 = 1;
const PROBE: u8 = 2;
const ACK: u8 = 3;
const NACK: u8 = 4;
const CNP: u8 = 5;

/// The flags of byte 1, from bit 0 on. On data, "retransmitted" is the packet's type.
const BITS: [Flags; 8] = [
    Flags::ACK_REQUEST,
    Flags::LAST,
    Flags::MARKED,
    Flags::RETRANSMITTED,
    Flags::PROBE_ANSWER,
    Flags::HOLE,
    Flags::TRIMMED,
    Flags::TRIMMED_AT_LAST_HOP,
];

pub(super) const fn header_bytes(header: &Header) -> usize {
    match header {
        Header::Data(_) => 24,
        Header::Ack(_) => 40,
        Header::Nack(_) => 20,
        Header::Cnp => 8,
        Header::Probe { .. } => 12,
        Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => 0,
    }
}

pub(super) fn encode(packet: &Packet, out: &mut Vec<u8>) -> Result<(), WireError> {
    if packet.connection.0 >> 24 != 0 {
        return Err(WireError::Unencodable);
    }
    let mut rest = packet.flags.0 & !outer_flags(&packet.header).0;
    let (kind, length) = match packet.header {
        Header::Data(data) => {
            let again = rest & Flags::RETRANSMITTED.0 != 0;
            rest &= !Flags::RETRANSMITTED.0;
            (if again { RETRANSMISSION } else { DATA }, data.length)
        }
        Header::Probe { .. } => (PROBE, 0),
        Header::Ack(_) => (ACK, 0),
        Header::Nack(_) => (NACK, 0),
        Header::Cnp => (CNP, 0),
        Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => {
            return Err(WireError::Unencodable);
        }
    };
    let flags = BITS.iter().enumerate().fold(0, |bits, (i, flag)| bits | u8::from(rest & flag.0 != 0) << i);
    out.extend_from_slice(&[VERSION << 3 | kind, flags]);
    out.extend_from_slice(&length.to_be_bytes());
    let mut word = |number: u32| out.extend_from_slice(&number.to_be_bytes());
    word(packet.connection.0 << 8);
    match packet.header {
        Header::Data(data) => {
            word(data.psn.get() << 8);
            word(data.message.0);
            let offset = data.offset.get();
            word((offset >> 32) as u32);
            word(offset as u32);
        }
        Header::Ack(ack) => {
            let sack = ack.sack.get();
            word(ack.cumulative.get() << 8);
            word(ack.sack_base.get() << 8);
            word((sack >> 32) as u32);
            word(sack as u32);
            word(ack.acked.get() << 8);
            word(ack.path.0);
            word(ack.received);
            word(u32::from(ack.out_of_order) << 16);
        }
        Header::Nack(nack) => {
            word(nack.psn.get() << 8);
            word(nack.cumulative.get() << 8);
            word(nack.path.0);
        }
        Header::Cnp => {}
        Header::Probe { number } => word(number),
        Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => {}
    }
    Ok(())
}

/// 24 bits and eight zero bits.
fn upper(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    let word = reader.u32()?;
    if word & 0xff == 0 { Ok(word >> 8) } else { Err(WireError::Inconsistent) }
}

fn psn(reader: &mut Reader<'_>) -> Result<Psn, WireError> {
    upper(reader).map(|number| Psn::new(u64::from(number)))
}

pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(bytes);
    let first = reader.u8()?;
    if first >> 3 != VERSION {
        return Err(WireError::Unknown);
    }
    let bits = reader.u8()?;
    let mut flags = BITS.iter().enumerate().fold(0, |all, (i, flag)| all | if bits >> i & 1 == 1 { flag.0 } else { 0 });
    let length = reader.u16()?;
    let connection = upper(&mut reader)?;
    let kind = first & 7;
    let header = match kind {
        DATA | RETRANSMISSION => {
            // The type says so; a second word on it would be one too many.
            if flags & Flags::RETRANSMITTED.0 != 0 {
                return Err(WireError::Inconsistent);
            }
            if kind == RETRANSMISSION {
                flags |= Flags::RETRANSMITTED.0;
            }
            Header::Data(Data {
                psn: psn(&mut reader)?,
                message: MessageId(reader.u32()?),
                offset: Offset::new(reader.u64()?),
                length,
                target: 0,
                wait: Wait::default(),
            })
        }
        PROBE => Header::Probe { number: reader.u32()? },
        ACK => {
            let ack = Ack {
                cumulative: psn(&mut reader)?,
                sack_base: psn(&mut reader)?,
                sack: SackBits::new(reader.u64()?),
                acked: psn(&mut reader)?,
                path: PathId(reader.u32()?),
                received: reader.u32()?,
                out_of_order: reader.u16()?,
                range: 0,
            };
            reader.zeros::<2>()?;
            Header::Ack(ack)
        }
        NACK => Header::Nack(Nack {
            psn: psn(&mut reader)?,
            cumulative: psn(&mut reader)?,
            path: PathId(reader.u32()?),
            reason: NackReason::Missing,
        }),
        CNP => Header::Cnp,
        _ => return Err(WireError::Unknown),
    };
    let is_data = matches!(header, Header::Data(_));
    if flags & outer_flags(&header).0 != 0 || (!is_data && length != 0) {
        return Err(WireError::Inconsistent);
    }
    Ok(bare(connection, flags, header))
}
