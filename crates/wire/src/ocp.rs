//! MRC's datagrams as publicly laid out: from the inner IPv6 header to the invariant CRC (ICRC).
//!
//! `wire::mrc` carries an engine's packet in MRC's headers and puts numbers of ours into reserved fields. This module
//! has the same headers with nothing of ours in them: OCP MRC 1.0, tables 6-3 to 6-9 and 7-10 to 7-23, as public
//! implementations read them alike. Where they differ, one form is written and both are read. Everything is big-endian
//! except the ICRC.
//!
//! ```text
//! IPv6, 40 bytes  traffic class, flow label (its low 16 bits: the upper half of the EV), next header 17, the NICs' addresses
//! UDP, 8          source port (the lower half of the EV), destination port 4791, checksum 0
//! BTH, 12         opcode 1, pad 2 bits, transport version 4 bits (0), partition key 2 (0xffff), reserved 1, destination QP 3,
//!                 flags 1 (0x80 acknowledge request, 0x20 retransmission, 0x10 TSETH), PSN 3
//!
//! 0xc6 0xc7 0xc8 0xca  WRITE first, middle, last, only: METH 4 (RQMSN 2, MSN 2), TSETH 4 if the flag says so, RETH 16 (address
//!                      8, key 4, bytes of the whole message 4), payload, pad
//! 0xc9 0xcb            WRITE last and only with immediate: the immediate 4 behind the RETH
//! 0xd1                 transport acknowledgement: AETH 4 (syndrome 1, messages completed 3); PSN: the last one accepted
//! 0xd8 0xd9            request and response between NICs, to QP 2: ERTH 16, EETH 36; PSN: the request's number
//! 0xdc 0xdd 0xde       SACK: SETH 28 and CC_STATE 8; NACK: NETH 20; reliability probe: PETH 16
//! ICRC, 4         CRC-32 over all of it with the changeable fields as ones, least significant byte first
//! ```
//!
//! The outer IPv6 header, whose destination is the path, is not part of it: a node's raw socket writes that. CE and
//! trims are in the outer header, too.
//!
//! No capture of a NIC is public. These bytes are held against an independent ICRC and two reference packets, and not
//! against hardware.

mod body;
mod icrc;
#[cfg(test)]
mod tests;

pub use body::{Body, Cause, Nack, Place, Probe, Request, Response, Sack, Skip, Stamp, TransportAck, Write};
pub use icrc::icrc;

use super::{Reader, WireError};
use strandway_proto::packet::{PathId, Psn};

/// RoCEv2's UDP port, which MRC shares. A site may choose another one for all its NICs.
pub const PORT: u16 = 4791;
/// The queue pair of requests and responses between NICs.
pub const NIC_QUEUE: u32 = 2;
/// Bytes of the inner IPv6 header, UDP and BTH.
pub const FIXED: usize = IPV6 + UDP + BTH;
/// Bytes of the ICRC.
pub const ICRC: usize = 4;
/// The most bytes besides payload and pad, from the inner IPv6 header on: those of a WRITE with TSETH and immediate.
pub const WRITE_MAX: usize = FIXED + 4 + 4 + 16 + 4 + ICRC;
/// The bytes that a switch must keep of a trimmed packet, from the inner IPv6 header on: through the TSETH.
pub const TRIMMED: usize = FIXED + 4 + 4;

const IPV6: usize = 40;
const UDP: usize = 8;
const BTH: usize = 12;
const NEXT_HEADER_UDP: u8 = 17;
/// Ours: enough for any fabric.
const HOP_LIMIT: u8 = 64;
/// The default partition: one implementation writes it, another one zero.
const PARTITION: u16 = 0xffff;
const ACK_REQUEST: u8 = 0x80;
const RETRANSMISSION: u8 = 0x20;
const TIMESTAMP: u8 = 0x10;

/// A datagram without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The address of the NIC that sends it, in the inner header.
    pub source: [u8; 16],
    /// The address of the NIC that it is for, in the inner header.
    pub destination: [u8; 16],
    /// Traffic class of the inner header: DSCP and ECN as they were sent.
    pub class: u8,
    /// The entropy value (EV).
    pub entropy: u32,
    /// The destination queue pair (QP), 24 bits.
    pub queue: u32,
    /// The PSN of data, the last accepted one of acknowledgements, the offending one of a NACK, the number of a
    /// request.
    pub psn: Psn,
    /// Its receiver must acknowledge at once.
    pub ack_request: bool,
    /// Data: it was sent before. SACK: the packet that caused it had this flag.
    pub retransmission: bool,
    /// The headers behind the BTH.
    pub body: Body,
}

/// The part of a trimmed WRITE that a switch leaves. Nothing in it is protected by the ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// The address of the NIC that sent it.
    pub source: [u8; 16],
    /// The address of the NIC that it is for.
    pub destination: [u8; 16],
    /// Its entropy value.
    pub entropy: u32,
    /// Its destination queue pair.
    pub queue: u32,
    /// The packet to send again.
    pub psn: Psn,
    /// It was a retransmission.
    pub retransmission: bool,
    /// Its time stamp, if it has one.
    pub stamp: Option<Stamp>,
}

/// The entropy value of a path: in its lower half the plane (4 bits) and the uplink (12), which is the sheet's form; in
/// its upper half the other bits of the path's number, which are zero for 16 planes and 4,096 uplinks.
pub const fn entropy_of(path: PathId) -> u32 {
    let (port, entropy) = (path.port() as u32, path.entropy());
    (port >> 4) << 28 | (entropy >> 12) << 16 | (port & 0xf) << 12 | (entropy & 0xfff)
}

/// The path of an entropy value. Every value has one, so those of other senders can be echoed, too.
pub const fn path_of(entropy: u32) -> PathId {
    let (high, low) = (entropy >> 16, entropy & 0xffff);
    PathId::new(((high >> 12) << 4 | low >> 12) as u8, (high & 0xfff) << 12 | (low & 0xfff))
}

/// Appends a datagram with its payload, pad and ICRC to `out`.
///
/// # Errors
/// [`WireError::Unencodable`] if a number does not fit its field, and for a payload behind anything but a WRITE; `out`
/// is then as it was.
pub fn write(datagram: &Datagram, port: u16, payload: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    let is_write = matches!(datagram.body, Body::Write(_));
    let pad = payload.len().wrapping_neg() % 4;
    let length = UDP + BTH + datagram.body.bytes() + payload.len() + pad + ICRC;
    if datagram.queue >= 1 << 24 || (!is_write && !payload.is_empty()) || !datagram.body.is_encodable() {
        return Err(WireError::Unencodable);
    }
    let length = u16::try_from(length).map_err(|_| WireError::Unencodable)?;
    let start = out.len();
    let first = 6 << 28 | u32::from(datagram.class) << 20 | datagram.entropy >> 16;
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[NEXT_HEADER_UDP, HOP_LIMIT]);
    out.extend_from_slice(&datagram.source);
    out.extend_from_slice(&datagram.destination);
    for word in [datagram.entropy as u16, port, length, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    let mut flags = 0;
    flags |= if datagram.ack_request { ACK_REQUEST } else { 0 };
    flags |= if datagram.retransmission { RETRANSMISSION } else { 0 };
    flags |= if datagram.body.is_stamped() { TIMESTAMP } else { 0 };
    out.extend_from_slice(&[datagram.body.opcode(), (pad as u8) << 4]);
    out.extend_from_slice(&PARTITION.to_be_bytes());
    out.extend_from_slice(&datagram.queue.to_be_bytes());
    out.extend_from_slice(&(u32::from(flags) << 24 | datagram.psn.get()).to_be_bytes());
    datagram.body.write(out);
    out.extend_from_slice(payload);
    out.extend_from_slice(&[0; 3][..pad]);
    let sum = icrc(&out[start..]).ok_or(WireError::Unencodable)?;
    out.extend_from_slice(&sum);
    Ok(())
}

/// Reads a datagram from its inner IPv6 header on, and returns it with its payload. The UDP checksum is not read,
/// because the ICRC covers more.
///
/// # Errors
/// [`WireError::Foreign`] for anything but UDP to `port`; otherwise, if the bytes are not such a datagram.
pub fn read(bytes: &[u8], port: u16) -> Result<(Datagram, &[u8]), WireError> {
    let Fixed { opcode, pad, stamped, length, mut datagram } = Fixed::read(bytes, port)?;
    if bytes.len() != IPV6 + length || length < UDP + BTH + ICRC {
        return Err(WireError::Length);
    }
    let (covered, sum) = bytes.split_at(bytes.len() - ICRC);
    if icrc(covered).is_none_or(|real| real != *sum) {
        return Err(WireError::Checksum);
    }
    let mut reader = Reader::new(&covered[FIXED..]);
    datagram.body = Body::read(opcode, stamped, &mut reader)?;
    let Some(payload) = reader.rest.len().checked_sub(pad) else { return Err(WireError::Length) };
    let (payload, zeros) = reader.rest.split_at(payload);
    let is_write = matches!(datagram.body, Body::Write(_));
    if zeros.iter().any(|byte| *byte != 0) || !(is_write || (payload.is_empty() && pad == 0)) {
        return Err(WireError::Inconsistent);
    }
    if covered.len() % 4 != 0 {
        return Err(WireError::Length);
    }
    Ok((datagram, payload))
}

/// Reads what a switch left of a WRITE. Lengths and ICRC of the original packet do not hold any more.
///
/// # Errors
/// If it is not the beginning of a WRITE to `port`, or ends before its PSN and time stamp.
pub fn read_trimmed(bytes: &[u8], port: u16) -> Result<Trimmed, WireError> {
    let Fixed { opcode, stamped, datagram, .. } = Fixed::read(bytes, port)?;
    if !body::is_write(opcode) {
        return Err(WireError::Unknown);
    }
    let mut reader = Reader::new(&bytes[FIXED..]);
    reader.u32()?;
    let stamp = if stamped { Some(Stamp::read(&mut reader)?) } else { None };
    let Datagram { source, destination, entropy, queue, psn, retransmission, .. } = datagram;
    Ok(Trimmed { source, destination, entropy, queue, psn, retransmission, stamp })
}

/// IPv6, UDP and BTH.
struct Fixed {
    opcode: u8,
    /// Bytes of pad behind the payload.
    pad: usize,
    stamped: bool,
    /// Bytes of the UDP datagram as its header says.
    length: usize,
    /// The body is not read yet.
    datagram: Datagram,
}

impl Fixed {
    fn read(bytes: &[u8], port: u16) -> Result<Fixed, WireError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u32()?;
        let inner = reader.u16()?;
        let next = reader.u8()?;
        reader.u8()?;
        let (source, destination) = (reader.array::<16>()?, reader.array::<16>()?);
        if first >> 28 != 6 || next != NEXT_HEADER_UDP {
            return Err(WireError::Foreign);
        }
        let (low, to, length) = (reader.u16()?, reader.u16()?, reader.u16()?);
        reader.u16()?;
        if to != port {
            return Err(WireError::Foreign);
        }
        if inner != length {
            return Err(WireError::Length);
        }
        let (opcode, second) = (reader.u8()?, reader.u8()?);
        // Implementations differ in the partition; it is not checked.
        reader.u16()?;
        let queue = reader.u32()? & 0xff_ffff;
        let last = reader.u32()?;
        // Two readers of the specification differ in the version: zero as in RoCE, or one.
        if second & 0xf > 1 {
            return Err(WireError::Unknown);
        }
        let flags = (last >> 24) as u8;
        Ok(Fixed {
            opcode,
            pad: usize::from(second >> 4 & 3),
            stamped: flags & TIMESTAMP != 0,
            length: usize::from(length),
            datagram: Datagram {
                source,
                destination,
                class: (first >> 20) as u8,
                entropy: (first & 0xffff) << 16 | u32::from(low),
                queue,
                psn: Psn::new(u64::from(last & 0xff_ffff)),
                ack_request: flags & ACK_REQUEST != 0,
                retransmission: flags & RETRANSMISSION != 0,
                body: Body::TransportAck(TransportAck { syndrome: 0, completed: 0 }),
            },
        })
    }
}
