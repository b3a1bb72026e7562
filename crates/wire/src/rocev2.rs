//! RoCEv2: the base transport header (BTH) and its extensions, as a packet analyser expects them.
//!
//! InfiniBand architecture specification, volume 1, section 9 and annex A17. Our own fields are in places that a
//! dissector shows as reserved bits, manufacturer opcodes or payload:
//!
//! ```text
//! BTH, 12 bytes  opcode 1, SE M pad version 1 (0x40: migrated, version 0), partition key 2 (0xffff),
//!                BECN and reserved 1, connection as destination QP 3, acknowledge request and flags 1, PSN 3
//!   flags (reserved in the standard): bit 6 retransmitted, 5 last, 4 trimmed, 3 trimmed at the last hop, 2 marked,
//!   1 probe answer, 0 hole; 5, 4 and 3 are zero on data, where opcode and IP header tell
//!
//! data   0x06, 0x07, 0x08, 0x0a   RDMA WRITE First, Middle, Last, Only, then a RETH of 16 bytes: offset in the message
//!                                 as the address, message as the key, payload bytes of this packet as the length.
//!                                 The standard has it in First and Only; here each packet carries one, so that it can
//!                                 be placed alone, in any order
//! ack    0x11  PSN is the last one below the cumulative, AETH syndrome 0x1f (no credits), message count 0, then
//!              sack base 4, sack 8, acked 4, path 4, received 4, out of order 2, zero 2
//! nack   0x11  PSN is the cumulative, AETH syndrome 0x60 (PSN sequence error), message count 0, then psn 4, path 4
//! cnp    0x81  BECN set, PSN 0, 16 zero bytes
//! probe  0xc0  of the manufacturers' range; PSN 0, then number 4
//! ```
//!
//! The invariant checksum (ICRC) is not computed: its four bytes are zero in captures and are not checked.

use super::{Reader, WireError, bare, outer_flags, psn};
use strandway_proto::packet::{
    Ack, Data, Flags, Header, MessageId, Nack, NackReason, Offset, Packet, PathId, Psn, SackBits, Wait,
};

const WRITE_FIRST: u8 = 0x06;
const WRITE_MIDDLE: u8 = 0x07;
const WRITE_LAST: u8 = 0x08;
const WRITE_ONLY: u8 = 0x0a;
const ACKNOWLEDGE: u8 = 0x11;
const CNP: u8 = 0x81;
const PROBE: u8 = 0xc0;

const MIGRATED: u8 = 0x40;
const PARTITION: u16 = 0xffff;
const BECN: u8 = 0x40;
const SYNDROME_ACK: u8 = 0x1f;
const SYNDROME_SEQUENCE: u8 = 0x60;

pub(super) const fn header_bytes(header: &Header) -> usize {
    12 + match header {
        Header::Data(_) => 16,
        Header::Ack(_) => 4 + 28,
        Header::Nack(_) => 4 + 8,
        Header::Cnp => 16,
        Header::Probe { .. } => 4,
        Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => 0,
    }
}

/// The flags in the order of the acknowledge-request byte: our bit 0 is its bit 7, bit 1 its bit 6, and so on.
const fn reversed(flags: u8) -> u8 {
    flags.reverse_bits()
}

pub(super) fn encode(packet: &Packet, out: &mut Vec<u8>) -> Result<(), WireError> {
    if packet.connection.0 >= 1 << 24 {
        return Err(WireError::Unencodable);
    }
    let mut flags = packet.flags.0 & !outer_flags(&packet.header).0;
    let (opcode, congestion, number) = match packet.header {
        Header::Data(data) => {
            flags &= !Flags::LAST.0;
            let opcode = match (data.offset.get() == 0, packet.flags.has(Flags::LAST)) {
                (true, false) => WRITE_FIRST,
                (false, false) => WRITE_MIDDLE,
                (false, true) => WRITE_LAST,
                (true, true) => WRITE_ONLY,
            };
            (opcode, 0, data.psn)
        }
        Header::Ack(ack) => (ACKNOWLEDGE, 0, Psn::new(u64::from(ack.cumulative.get()) + Psn::MODULUS - 1)),
        Header::Nack(nack) => (ACKNOWLEDGE, 0, nack.cumulative),
        Header::Cnp => (CNP, BECN, Psn::new(0)),
        Header::Probe { .. } => (PROBE, 0, Psn::new(0)),
        Header::Operation { .. }
        | Header::Answer(_)
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => {
            return Err(WireError::Unencodable);
        }
    };
    let mut word = |number: u32| out.extend_from_slice(&number.to_be_bytes());
    word(u32::from(opcode) << 24 | u32::from(MIGRATED) << 16 | u32::from(PARTITION));
    word(u32::from(congestion) << 24 | packet.connection.0);
    word(u32::from(reversed(flags as u8)) << 24 | number.get());
    match packet.header {
        Header::Data(data) => {
            let offset = data.offset.get();
            word((offset >> 32) as u32);
            word(offset as u32);
            word(data.message.0);
            word(u32::from(data.length));
        }
        Header::Ack(ack) => {
            word(u32::from(SYNDROME_ACK) << 24);
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
            word(u32::from(SYNDROME_SEQUENCE) << 24);
            word(nack.psn.get());
            word(nack.path.0);
        }
        Header::Cnp => out.extend_from_slice(&[0; 16]),
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

pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(bytes);
    let opcode = reader.u8()?;
    if reader.u8()? != MIGRATED || reader.u16()? != PARTITION {
        return Err(WireError::Unknown);
    }
    let queue = reader.u32()?;
    let (congestion, connection) = ((queue >> 24) as u8, queue & 0xff_ffff);
    let last = reader.u32()?;
    let mut flags = u16::from(reversed((last >> 24) as u8));
    let number = psn(last & 0xff_ffff)?;
    let header = match opcode {
        WRITE_FIRST | WRITE_MIDDLE | WRITE_LAST | WRITE_ONLY => {
            let offset = reader.u64()?;
            let message = MessageId(reader.u32()?);
            let length = u16::try_from(reader.u32()?).map_err(|_| WireError::Length)?;
            let starts = opcode == WRITE_FIRST || opcode == WRITE_ONLY;
            if starts != (offset == 0) || flags & Flags::LAST.0 != 0 {
                return Err(WireError::Inconsistent);
            }
            if opcode == WRITE_LAST || opcode == WRITE_ONLY {
                flags |= Flags::LAST.0;
            }
            Header::Data(Data {
                psn: number,
                message,
                offset: Offset::new(offset),
                length,
                target: 0,
                wait: Wait::default(),
            })
        }
        ACKNOWLEDGE => {
            let syndrome = reader.u8()?;
            reader.zeros::<3>()?;
            match syndrome {
                SYNDROME_ACK => {
                    let ack = Ack {
                        cumulative: Psn::new(u64::from(number.get()) + 1),
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
                SYNDROME_SEQUENCE => Header::Nack(Nack {
                    psn: reader.psn()?,
                    cumulative: number,
                    path: PathId(reader.u32()?),
                    reason: NackReason::Missing,
                }),
                _ => return Err(WireError::Unknown),
            }
        }
        CNP => {
            reader.zeros::<16>()?;
            Header::Cnp
        }
        PROBE => Header::Probe { number: reader.u32()? },
        _ => return Err(WireError::Unknown),
    };
    let (becn, numbered) = match header {
        Header::Cnp => (BECN, false),
        Header::Probe { .. } => (0, false),
        _ => (0, true),
    };
    if congestion != becn || (!numbered && number.get() != 0) || flags & outer_flags(&header).0 != 0 {
        return Err(WireError::Inconsistent);
    }
    Ok(bare(connection, flags, header))
}
