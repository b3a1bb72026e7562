//! Our own layout of the fields that Ultra Ethernet and STrack carry.
//!
//! The fields are those that the sources describe. Their positions are ours, because STrack's layout is not public and
//! UEC's serves many features that are absent here. All fields are big-endian. Each packet begins with
//!
//! ```text
//! byte 0      version (high four bits, 1) and type (low four bits: 0 data, 1 ack, 2 nack, 3 cnp, 4 probe)
//! byte 1      flags: bit 0 ack request, 1 retransmitted, 2 last, 3 trimmed, 4 trimmed at the last hop, 5 marked,
//!             6 probe answer, 7 hole; 3 and 4 are zero on data, where the IP header tells
//! bytes 2-3   payload bytes of data (also once trimmed), 0 otherwise
//! bytes 4-7   connection, as the receiver numbers it
//! ```
//!
//! and goes on with
//!
//! ```text
//! data   psn 4, message 4, offset 8                                                               24 bytes in all
//! ack    cumulative 4, sack base 4, sack 8, acked 4, path 4, received 4, out of order 2, zero 2   40
//! nack   psn 4, cumulative 4, path 4                                                              20
//! cnp                                                                                              8
//! probe  number 4                                                                                 12
//! ```
//!
//! Sequence numbers have 24 bits in a field of 32. Acknowledgements contain the whole path, port included, because an
//! acknowledgement may arrive by another port than its data left by.

use super::{Reader, WireError, bare, outer_flags, psn};
use strandway_proto::packet::{Ack, Data, Header, MessageId, Nack, NackReason, Offset, Packet, PathId, SackBits, Wait};

const VERSION: u8 = 1;
const DATA: u8 = 0;
const ACK: u8 = 1;
const NACK: u8 = 2;
const CNP: u8 = 3;
const PROBE: u8 = 4;
/// The header of data.
const DATA_BYTES: usize = 24;

pub(super) const fn header_bytes(header: &Header) -> usize {
    match header {
        Header::Data(_) => DATA_BYTES,
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

#[inline]
pub(super) fn encode(packet: &Packet, out: &mut Vec<u8>) -> Result<(), WireError> {
    let flags = (packet.flags.0 & !outer_flags(&packet.header).0) as u8;
    if let Header::Data(data) = packet.header {
        let mut bytes = [0; DATA_BYTES];
        bytes[..8].copy_from_slice(&first(packet, DATA, flags, data.length));
        bytes[8..12].copy_from_slice(&data.psn.get().to_be_bytes());
        bytes[12..16].copy_from_slice(&{ data.message }.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&data.offset.get().to_be_bytes());
        out.extend_from_slice(&bytes);
        return Ok(());
    }
    encode_other(packet, flags, out)
}

/// The first 8 bytes.
#[inline]
fn first(packet: &Packet, kind: u8, flags: u8, length: u16) -> [u8; 8] {
    let [l0, l1] = length.to_be_bytes();
    let [c0, c1, c2, c3] = { packet.connection }.0.to_be_bytes();
    [VERSION << 4 | kind, flags, l0, l1, c0, c1, c2, c3]
}

/// All packets except data.
fn encode_other(packet: &Packet, flags: u8, out: &mut Vec<u8>) -> Result<(), WireError> {
    let kind = match packet.header {
        Header::Ack(_) => ACK,
        Header::Nack(_) => NACK,
        Header::Cnp => CNP,
        Header::Probe { .. } => PROBE,
        Header::Data(_)
        | Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => {
            return Err(WireError::Unencodable);
        }
    };
    out.extend_from_slice(&first(packet, kind, flags, 0));
    let mut word = |number: u32| out.extend_from_slice(&number.to_be_bytes());
    match packet.header {
        Header::Ack(ack) => {
            word(ack.cumulative.get());
            word(ack.sack_base.get());
            let sack = ack.sack.get();
            word((sack >> 32) as u32);
            word(sack as u32);
            word(ack.acked.get());
            word(ack.path.0);
            word(ack.received);
            word(u32::from(ack.out_of_order) << 16);
        }
        Header::Nack(nack) => {
            word(nack.psn.get());
            word(nack.cumulative.get());
            word(nack.path.0);
        }
        Header::Cnp => {}
        Header::Probe { number } => word(number),
        Header::Data(_)
        | Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => {}
    }
    Ok(())
}

#[inline]
pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    if let Some(bytes) = bytes.first_chunk::<DATA_BYTES>()
        && bytes[0] == VERSION << 4 | DATA
    {
        return decode_data(bytes);
    }
    decode_other(bytes)
}

#[inline]
fn decode_data(bytes: &[u8; DATA_BYTES]) -> Result<Packet, WireError> {
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let header = Header::Data(Data {
        psn: psn(word(8))?,
        message: MessageId(word(12)),
        offset: Offset::new(u64::from(word(16)) << 32 | u64::from(word(20))),
        length: u16::from_be_bytes([bytes[2], bytes[3]]),
        target: 0,
        wait: Wait::default(),
    });
    let flags = u16::from(bytes[1]);
    if flags & outer_flags(&header).0 != 0 {
        return Err(WireError::Inconsistent);
    }
    Ok(bare(word(4), flags, header))
}

/// All packets except data; data that is too short.
fn decode_other(bytes: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(bytes);
    let first = reader.u8()?;
    if first >> 4 != VERSION {
        return Err(WireError::Unknown);
    }
    let flags = u16::from(reader.u8()?);
    let length = reader.u16()?;
    let connection = reader.u32()?;
    let header = match first & 15 {
        DATA => return Err(WireError::Short),
        ACK => {
            let ack = Ack {
                cumulative: reader.psn()?,
                sack_base: reader.psn()?,
                sack: SackBits::new(reader.u64()?),
                acked: reader.psn()?,
                path: PathId(reader.u32()?),
                received: reader.u32()?,
                out_of_order: reader.u16()?,
                range: 0,
            };
            reader.zeros::<2>()?;
            Header::Ack(ack)
        }
        NACK => Header::Nack(Nack {
            psn: reader.psn()?,
            cumulative: reader.psn()?,
            path: PathId(reader.u32()?),
            reason: NackReason::Missing,
        }),
        CNP => Header::Cnp,
        PROBE => Header::Probe { number: reader.u32()? },
        _ => return Err(WireError::Unknown),
    };
    if flags & outer_flags(&header).0 != 0 || length != 0 {
        return Err(WireError::Inconsistent);
    }
    Ok(bare(connection, flags, header))
}
