//! MRC: the base transport header (BTH) of the InfiniBand family with extension headers of its own.
//!
//! OCP MRC 1.0, tables 6-3 to 6-9 and 7-10 to 7-23, as two implementations read them alike. Everything is big-endian.
//!
//! ```text
//! BTH, 12 bytes  opcode 1, SE M pad tver 1 (0x01), partition key 2 (0xffff), flags of ours 1 (reserved in the standard),
//!                connection as destination QP 3, flags 1 (0x80 acknowledge request, 0x20 retransmission, 0x10 TSETH), PSN 3
//!   flags of ours: bit 0 last, 1 trimmed, 2 trimmed at the last hop, 3 marked, 4 probe answer, 5 hole, 6 always skip, each
//!   only where no field of the standard says it; all zero on what an MRC NIC sends
//!
//! data      0xc6, 0xc7, 0xc9, 0xcb  WRITE first, middle, last and only with immediate, then METH 4 (RQMSN 2, MSN 2: the low
//!                                   half of the message's number each), TSETH 4, RETH 16 (offset in the message as the
//!                                   address, message as the key, payload bytes of this packet as the length) and, on last
//!                                   and only, the immediate 4: the message's number, which the receiver's application is told
//! ack       0xdc  SETH 28 and CC_STATE 8; PSN is the last one below the cumulative; a probe's answer has the probe's number
//!                 where others have the offset of the PSN that called for it
//! nack      0xdd  NETH 20; PSN is the one wanted again, how far it lies above the cumulative is in its reserved bytes
//! probe     0xde  PETH 16
//! operation 0xd8  to QP 2; PSN is its number; ERTH 16 with our connection in the reserved word
//! answer    0xd9  to QP 2; PSN is its number; EETH 36 with connection and path in the reserved words
//! cnp       0x81  16 zero bytes, as RoCEv2's: MRC has none, this is there so that every combination of policies has bytes
//! ```
//!
//! Senders here store the times of their packets, so timestamps are written as zero and not read. The invariant
//! checksum (ICRC) is zero in captures and is not checked.

use super::{Reader, WireError, bare, outer_flags};
use strandway_proto::packet::{
    Ack, Answer, Data, Flags, Header, MessageId, Nack, NackReason, Offset, Operation, Packet, PathId, Psn, SackBits,
    Wait,
};

const WRITE_FIRST: u8 = 0xc6;
const WRITE_MIDDLE: u8 = 0xc7;
const WRITE_LAST_IMMEDIATE: u8 = 0xc9;
const WRITE_ONLY_IMMEDIATE: u8 = 0xcb;
const REQUEST: u8 = 0xd8;
const RESPONSE: u8 = 0xd9;
const SACK: u8 = 0xdc;
const NACK: u8 = 0xdd;
const PROBE: u8 = 0xde;
const CNP: u8 = 0x81;

/// Transport version 1, the only one defined.
const VERSION: u8 = 1;
const PARTITION: u16 = 0xffff;
const ACK_REQUEST: u8 = 0x80;
const RETRANSMISSION: u8 = 0x20;
const TIMESTAMP: u8 = 0x10;
/// The reserved QP of operations between NICs.
const ENDPOINT_QP: u32 = 2;
/// Frame type of a timestamp header; the tick bit and the reserved bits above it are zero.
const TIMESTAMP_TYPE: u16 = 1;
/// Bits of SETH's first word: skip once, always skip, answer to a probe.
const SKIP_ONCE: u16 = 1 << 5;
const SKIP_ALWAYS: u16 = 2 << 5;
const PROBE_REPLY: u16 = 1 << 1;
/// NETH: congestion control type 2, no flags.
const NACK_CC: u8 = 0x20;

/// Flags with a bit in the BTH's reserved byte, from bit 0 on.
const OURS: [Flags; 7] = [
    Flags::LAST,
    Flags::TRIMMED,
    Flags::TRIMMED_AT_LAST_HOP,
    Flags::MARKED,
    Flags::PROBE_ANSWER,
    Flags::HOLE,
    Flags::ALWAYS_SKIP,
];

pub(super) const fn header_bytes(header: &Header, last: bool) -> usize {
    12 + match header {
        Header::Data(_) if last => 4 + 4 + 16 + 4,
        Header::Data(_) => 4 + 4 + 16,
        Header::Ack(_) => 28 + 8,
        Header::Nack(_) => 20,
        Header::Cnp
        | Header::Probe { .. }
        | Header::Operation { .. }
        | Header::Control(_)
        | Header::Part(_)
        | Header::Chunk(_)
        | Header::Fragment(_) => 16,
        Header::Answer(_) => 36,
    }
}

/// The flags for which the standard has fields in such a header, except the acknowledge request and the retransmission.
const fn standard_flags(header: &Header) -> u16 {
    match header {
        Header::Data(_) => Flags::LAST.0,
        Header::Ack(_) => Flags::MARKED.0 | Flags::ALWAYS_SKIP.0 | Flags::PROBE_ANSWER.0,
        Header::Nack(Nack { reason: NackReason::Missing, .. }) => Flags::TRIMMED_AT_LAST_HOP.0,
        _ => 0,
    }
}

/// The distance of `psn` above `from`, if it fits into 16 bits with a sign.
fn offset(psn: Psn, from: Psn) -> Result<u16, WireError> {
    let above = i64::from(psn.get()) - i64::from(from.get());
    // Both have 24 bits, so take the shorter of the two distances.
    let wrapped = (above + 3 * (1 << 23)).rem_euclid(1 << 24) - (1 << 23);
    i16::try_from(wrapped).map(|offset| offset as u16).map_err(|_| WireError::Unencodable)
}

fn at_offset(from: Psn, offset: u16) -> Psn {
    Psn::new(u64::from(from.get()).wrapping_add(i64::from(offset as i16) as u64))
}

/// The code of a NACK's reason.
pub(super) const fn reason_code(reason: NackReason, at_last_hop: bool) -> u8 {
    match reason {
        NackReason::Missing if at_last_hop => 0x02,
        NackReason::Missing => 0x01,
        NackReason::NoTracker => 0x06,
        NackReason::NoBuffer => 0x07,
        NackReason::NoResource => 0x0a,
        NackReason::BeyondWindow => 0x0b,
        NackReason::Fatal => 0x19,
    }
}

/// The reason of a NACK's code.
pub(super) fn reason_of(code: u8) -> Result<NackReason, WireError> {
    Ok(match code {
        0x01 | 0x02 => NackReason::Missing,
        0x06 => NackReason::NoTracker,
        0x07 => NackReason::NoBuffer,
        0x0a => NackReason::NoResource,
        0x0b => NackReason::BeyondWindow,
        0x19 => NackReason::Fatal,
        _ => return Err(WireError::Unknown),
    })
}

/// Does the code say that the last switch trimmed the packet?
pub(super) const fn is_at_last_hop(code: u8) -> bool {
    code == 0x02
}

/// A buffer for the largest header: the whole header is built before it is appended.
struct Writer {
    bytes: [u8; 48],
    length: usize,
}

impl Writer {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        self.bytes[self.length..self.length + N].copy_from_slice(&field);
        self.length += N;
    }
    fn u8(&mut self, field: u8) {
        self.put([field]);
    }
    fn u16(&mut self, field: u16) {
        self.put(field.to_be_bytes());
    }
    fn u32(&mut self, field: u32) {
        self.put(field.to_be_bytes());
    }
    fn u64(&mut self, field: u64) {
        self.put(field.to_be_bytes());
    }
    fn zeros(&mut self, count: usize) {
        self.length += count;
    }
}

/// The opcode of a header, and the number in its BTH.
fn opcode(header: &Header, flags: Flags) -> Result<(u8, Psn), WireError> {
    Ok(match header {
        Header::Data(data) => {
            let opcode = match (data.offset.get() == 0, flags.has(Flags::LAST)) {
                (true, false) => WRITE_FIRST,
                (false, false) => WRITE_MIDDLE,
                (false, true) => WRITE_LAST_IMMEDIATE,
                (true, true) => WRITE_ONLY_IMMEDIATE,
            };
            (opcode, data.psn)
        }
        Header::Ack(ack) => (SACK, at_offset(ack.cumulative, u16::MAX)),
        Header::Nack(nack) => (NACK, nack.psn),
        Header::Cnp => (CNP, Psn::new(0)),
        Header::Probe { .. } => (PROBE, Psn::new(0)),
        Header::Operation { number, .. } => (REQUEST, Psn::new(u64::from(*number))),
        Header::Answer(answer) => (RESPONSE, Psn::new(u64::from(answer.number))),
        Header::Control(_) | Header::Part(_) | Header::Chunk(_) | Header::Fragment(_) => {
            return Err(WireError::Unencodable);
        }
    })
}

pub(super) fn encode(packet: &Packet, out: &mut Vec<u8>) -> Result<(), WireError> {
    let ends = matches!(packet.header, Header::Operation { operation: Operation::Close(_) | Operation::Closed, .. });
    if packet.connection.0 >= 1 << 24 || ends {
        return Err(WireError::Unencodable);
    }
    let flags = Flags(packet.flags.0 & !outer_flags(&packet.header).0);
    let (opcode, number) = opcode(&packet.header, flags)?;
    let rest = flags.0 & !standard_flags(&packet.header);
    let ours = OURS.iter().enumerate().fold(0, |bits, (i, flag)| bits | u8::from(rest & flag.0 != 0) << i);
    let is_endpoint = matches!(packet.header, Header::Operation { .. } | Header::Answer(_));
    let mut bits = if matches!(packet.header, Header::Data(_)) { TIMESTAMP } else { 0 };
    bits |= if flags.has(Flags::ACK_REQUEST) { ACK_REQUEST } else { 0 };
    bits |= if flags.has(Flags::RETRANSMITTED) { RETRANSMISSION } else { 0 };
    let mut w = Writer { bytes: [0; 48], length: 0 };
    w.put([opcode, VERSION]);
    w.u16(PARTITION);
    w.u32(u32::from(ours) << 24 | if is_endpoint { ENDPOINT_QP } else { packet.connection.0 });
    w.u32(u32::from(bits) << 24 | number.get());
    let short = packet.connection.0 as u16;
    match packet.header {
        Header::Data(data) => {
            let message = data.message.0;
            w.u16(message as u16);
            w.u16(message as u16);
            w.u16(0);
            w.u16(TIMESTAMP_TYPE);
            w.u64(data.offset.get());
            w.u32(message);
            w.u32(u32::from(data.length));
            if flags.has(Flags::LAST) {
                w.u32(message);
            }
        }
        Header::Ack(ack) => put_ack(&mut w, &ack, (flags, number, short))?,
        Header::Nack(nack) => put_nack(&mut w, &nack, flags, short)?,
        Header::Cnp | Header::Control(_) | Header::Part(_) | Header::Chunk(_) | Header::Fragment(_) => w.zeros(16),
        Header::Probe { number } => {
            let number = u16::try_from(number).map_err(|_| WireError::Unencodable)?;
            w.u32(0);
            w.u16(number);
            w.u16(0);
            w.u16(0);
            w.u16(short);
            w.u16(0);
            w.u16(TIMESTAMP_TYPE);
        }
        Header::Operation { operation, .. } => {
            let (kind, mask) = match operation {
                Operation::PortStatus(mask) => (0, mask),
                Operation::PathProbe => (1, 0),
                Operation::Close(_) | Operation::Closed => return Err(WireError::Unencodable),
            };
            w.put([0, kind, 0, 0]);
            w.u32(mask);
            w.u32(packet.connection.0);
            w.u16(0);
            w.u16(TIMESTAMP_TYPE);
        }
        Header::Answer(answer) => {
            w.put([0, u8::from(!answer.port_status) << 2, 0, 0]);
            w.u32(packet.connection.0);
            w.u32(answer.path.0);
            w.zeros(24);
        }
    }
    out.extend_from_slice(&w.bytes[..w.length]);
    Ok(())
}

/// SETH and CC_STATE. `number` is the PSN of the BTH, `short` the lower half of the connection.
fn put_ack(w: &mut Writer, ack: &Ack, (flags, number, short): (Flags, Psn, u16)) -> Result<(), WireError> {
    let mut first = 0;
    first |= if flags.has(Flags::MARKED) { SKIP_ONCE } else { 0 };
    first |= if flags.has(Flags::ALWAYS_SKIP) { SKIP_ALWAYS } else { 0 };
    let acked = if flags.has(Flags::PROBE_ANSWER) {
        first |= PROBE_REPLY;
        u16::try_from({ ack.acked }.get()).map_err(|_| WireError::Unencodable)?
    } else {
        offset(ack.acked, number)?
    };
    if ack.out_of_order >= 1 << 15 || ack.received >= 1 << 24 {
        return Err(WireError::Unencodable);
    }
    w.u16(first);
    w.u16(acked);
    w.u32(ack.path.0);
    w.u16(0);
    w.u16(short);
    w.u32(number.get());
    w.put([0, ack.range]);
    w.u16(offset(ack.sack_base, number)?);
    w.u64(ack.sack.get());
    w.u16(0);
    w.u16(ack.out_of_order);
    w.u32(ack.received);
    Ok(())
}

/// NETH.
fn put_nack(w: &mut Writer, nack: &Nack, flags: Flags, short: u16) -> Result<(), WireError> {
    let above = (u64::from(nack.psn.get()) + Psn::MODULUS - u64::from(nack.cumulative.get())) % Psn::MODULUS;
    let [high, low] = u16::try_from(above).map_err(|_| WireError::Unencodable)?.to_be_bytes();
    w.u16(0);
    w.u8(reason_code(nack.reason, flags.has(Flags::TRIMMED_AT_LAST_HOP)));
    w.u8(0);
    w.u32(nack.path.0);
    w.u16(0);
    w.u16(short);
    w.u32(u32::from(high) << 24 | nack.psn.get());
    w.put([NACK_CC, low]);
    w.u16(0);
    Ok(())
}

/// A PSN in 24 bits after a byte that must be zero.
fn psn_of(word: u32) -> Result<Psn, WireError> {
    super::psn(word)
}

/// The rest of a data packet's header, and the flags that it says.
fn take_data(reader: &mut Reader<'_>, opcode: u8, number: Psn) -> Result<(Header, u16), WireError> {
    reader.u32()?;
    reader.u16()?;
    // The tick bit is the sender's choice.
    if reader.u16()? & 0x7fff != TIMESTAMP_TYPE {
        return Err(WireError::Inconsistent);
    }
    let offset = reader.u64()?;
    let message = reader.u32()?;
    let length = u16::try_from(reader.u32()?).map_err(|_| WireError::Length)?;
    let starts = opcode == WRITE_FIRST || opcode == WRITE_ONLY_IMMEDIATE;
    let ends = opcode == WRITE_LAST_IMMEDIATE || opcode == WRITE_ONLY_IMMEDIATE;
    if starts != (offset == 0) || (ends && reader.u32()? != message) {
        return Err(WireError::Inconsistent);
    }
    let standard = if ends { Flags::LAST.0 } else { 0 };
    Ok((
        Header::Data(Data {
            psn: number,
            message: MessageId(message),
            offset: Offset::new(offset),
            length,
            target: 0,
            wait: Wait::default(),
        }),
        standard,
    ))
}

/// SETH and CC_STATE, and the flags that they say.
fn take_ack(reader: &mut Reader<'_>, number: Psn) -> Result<(Header, u16), WireError> {
    let first = reader.u16()?;
    let acked = reader.u16()?;
    let path = PathId(reader.u32()?);
    reader.u32()?;
    let before = psn_of(reader.u32()?)?;
    // Another kind of congestion control would have other fields. The penalty is not read.
    let kind = reader.u8()?;
    let range = reader.u8()?;
    let base = reader.u16()?;
    let sack = SackBits::new(reader.u64()?);
    reader.u16()?;
    let out_of_order = reader.u16()?;
    let received = reader.u32()? & 0xff_ffff;
    if first & !(SKIP_ONCE | SKIP_ALWAYS | PROBE_REPLY) != 0
        || kind >> 4 != 0
        || before != number
        || out_of_order >= 1 << 15
    {
        return Err(WireError::Inconsistent);
    }
    let mut standard = if first & SKIP_ONCE != 0 { Flags::MARKED.0 } else { 0 };
    standard |= if first & SKIP_ALWAYS != 0 { Flags::ALWAYS_SKIP.0 } else { 0 };
    standard |= if first & PROBE_REPLY != 0 { Flags::PROBE_ANSWER.0 } else { 0 };
    let is_probe = first & PROBE_REPLY != 0;
    let acked = if is_probe { Psn::new(u64::from(acked)) } else { at_offset(before, acked) };
    let (cumulative, sack_base) = (at_offset(before, 1), at_offset(before, base));
    Ok((Header::Ack(Ack { cumulative, sack_base, sack, acked, path, received, out_of_order, range }), standard))
}

/// NETH, and the flags that it says.
fn take_nack(reader: &mut Reader<'_>, number: Psn) -> Result<(Header, u16), WireError> {
    reader.zeros::<2>()?;
    let code = reader.u8()?;
    let reason = reason_of(code)?;
    reader.u8()?;
    let path = PathId(reader.u32()?);
    reader.u32()?;
    let word = reader.u32()?;
    let psn = psn_of(word & 0xff_ffff)?;
    let kind = reader.u8()?;
    let above = u64::from(word >> 24) << 8 | u64::from(reader.u8()?);
    reader.u16()?;
    if kind >> 4 != NACK_CC >> 4 || psn != number {
        return Err(WireError::Inconsistent);
    }
    let standard = if is_at_last_hop(code) { Flags::TRIMMED_AT_LAST_HOP.0 } else { 0 };
    let cumulative = Psn::new(u64::from(psn.get()) + Psn::MODULUS - above);
    Ok((Header::Nack(Nack { psn, cumulative, path, reason }), standard))
}

pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(bytes);
    let opcode = reader.u8()?;
    if reader.u8()? != VERSION || reader.u16()? != PARTITION {
        return Err(WireError::Unknown);
    }
    let queue = reader.u32()?;
    let (ours, mut connection) = ((queue >> 24) as u8, queue & 0xff_ffff);
    let last = reader.u32()?;
    let (bits, number) = ((last >> 24) as u8, psn_of(last & 0xff_ffff)?);
    let mut flags = OURS.iter().enumerate().fold(0, |all, (i, flag)| all | if ours >> i & 1 == 1 { flag.0 } else { 0 });
    let (header, standard) = match opcode {
        WRITE_FIRST | WRITE_MIDDLE | WRITE_LAST_IMMEDIATE | WRITE_ONLY_IMMEDIATE => {
            take_data(&mut reader, opcode, number)?
        }
        SACK => take_ack(&mut reader, number)?,
        NACK => take_nack(&mut reader, number)?,
        PROBE => {
            reader.u32()?;
            let number = reader.u16()?;
            reader.zeros::<2>()?;
            reader.u32()?;
            reader.u16()?;
            if reader.u16()? & 0x7fff != TIMESTAMP_TYPE {
                return Err(WireError::Inconsistent);
            }
            (Header::Probe { number: u32::from(number) }, 0)
        }
        REQUEST => {
            let kind = reader.u16()?;
            reader.u16()?;
            let mask = reader.u32()?;
            let operation = match (kind, mask) {
                (0, mask) => Operation::PortStatus(mask),
                (1, 0) => Operation::PathProbe,
                _ => return Err(WireError::Unknown),
            };
            connection = endpoint_connection(connection, reader.u32()?)?;
            reader.u16()?;
            if reader.u16()? & 0x7fff != TIMESTAMP_TYPE {
                return Err(WireError::Inconsistent);
            }
            (Header::Operation { number: request_number(number)?, operation }, 0)
        }
        RESPONSE => {
            let kind = reader.u16()?;
            reader.u16()?;
            if kind != 0 && kind != 1 << 2 {
                return Err(WireError::Unknown);
            }
            connection = endpoint_connection(connection, reader.u32()?)?;
            let path = PathId(reader.u32()?);
            reader.array::<24>()?;
            (Header::Answer(Answer { port_status: kind == 0, number: request_number(number)?, path }), 0)
        }
        CNP => {
            reader.zeros::<16>()?;
            (Header::Cnp, 0)
        }
        _ => return Err(WireError::Unknown),
    };
    let is_data = matches!(header, Header::Data(_));
    let numbered = !matches!(header, Header::Cnp | Header::Probe { .. });
    // A flag for which the standard has a field must not be in our byte as well.
    let twice = flags & (standard_flags(&header) | outer_flags(&header).0) != 0;
    let known = ACK_REQUEST | RETRANSMISSION | if is_data { TIMESTAMP } else { 0 };
    let stamped = bits & TIMESTAMP != 0;
    if twice || ours >> 7 != 0 || bits & !known != 0 || stamped != is_data || (!numbered && number.get() != 0) {
        return Err(WireError::Inconsistent);
    }
    flags |= standard;
    flags |= if bits & ACK_REQUEST != 0 { Flags::ACK_REQUEST.0 } else { 0 };
    flags |= if bits & RETRANSMISSION != 0 { Flags::RETRANSMITTED.0 } else { 0 };
    Ok(bare(connection, flags, header))
}

/// The connection of an operation between NICs, which goes to a queue pair of its own.
const fn endpoint_connection(queue: u32, connection: u32) -> Result<u32, WireError> {
    if queue == ENDPOINT_QP && connection < 1 << 24 { Ok(connection) } else { Err(WireError::Inconsistent) }
}

fn request_number(psn: Psn) -> Result<u16, WireError> {
    u16::try_from(psn.get()).map_err(|_| WireError::Inconsistent)
}
