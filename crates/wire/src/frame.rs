//! Ethernet, IPv6 and UDP around a transport header, as in a capture file.
//!
//! ```text
//! Ethernet  destination 02:plane:host, source likewise (locally administered), type 0x86dd
//! IPv6      traffic class: DSCP by class (data 26, control 48, trimmed 44, trimmed at the last hop 45) and the ECN
//!           bits: data ECT(0) or CE, control not-ECT or CE; flow label: bits 23-12 and 7-0 of the entropy value;
//!           addresses fd53:7472:616e:PLANE::HOST, a unique local prefix whose 40 bits spell "Stran"
//! UDP       source port: 0xf000 and bits 11-0 of the entropy value; destination port 4791 (RoCEv2, MRC),
//!           49407 (STrack), 49408 (UEC, our layout) or 4793 (UEC, as UET)
//! then      the transport header, the payload (not written), and for RoCEv2 and MRC zeros up to a multiple of four bytes,
//!           counted in the BTH's pad bits, and four zero bytes for the ICRC
//! ```
//!
//! Source ports from 0xf000 on are in the range that RoCEv2 NICs use, and packet analysers assign no protocol to them.
//!
//! A frame differs from [`encode`] in three fields of RoCEv2 and MRC, so that analysers read it like a NIC's frame:
//! queue pairs count from 2 (MRC: from 3), because lower ones are reserved; the pad bits are set; and the RETH of a
//! RoCEv2 First contains the length of the whole message if [`write_within()`] gets it. [`read()`] then takes the
//! length of the packet's payload from the datagram.
//!
//! [`write_uet`] writes an engine's packet as Ultra Ethernet Transport ([`super::uet`]), without the CRC, for which the
//! payload would be needed. An acknowledgement or a NACK then has the source port of the packet that it answers:
//! this is how UET echoes an entropy value.
//!
//! Both addresses contain the plane by which the packet leaves. The UDP checksum is correct for a payload of zeros:
//! captures carry no payload, and zeros add nothing to the sum, so the headers alone determine it.

use super::{Outer, Reader, WireError, decode, encode, header_bytes, uet};
use strandway_proto::packet::{ConnectionId, Flags, Header, HostId, Packet, PathId};
use strandway_proto::profile::WireFormat;

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: usize = 8;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const NEXT_HEADER_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;
/// RFC 4193: fd00::/8 and 40 bits of our choice.
const PREFIX: [u8; 6] = [0xfd, 0x53, 0x74, 0x72, 0x61, 0x6e];

const DSCP_DATA: u8 = 26;
const DSCP_CONTROL: u8 = 48;
const DSCP_TRIMMED: u8 = 44;
const DSCP_TRIMMED_AT_LAST_HOP: u8 = 45;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// UDP destination port of a format: IANA's for RoCEv2, which MRC shares; ours, from the dynamic range, for our layouts
/// of STrack and UEC. Ultra Ethernet's own port is [`uet::PORT`].
pub const fn udp_port(format: WireFormat) -> u16 {
    match format {
        WireFormat::Rocev2 | WireFormat::Mrc => 4791,
        WireFormat::Strack => 49_407,
        WireFormat::Uec => 49_408,
    }
}

/// The IPv6 address of a host on a plane.
pub const fn address(plane: u8, host: HostId) -> [u8; 16] {
    let h = host.0.to_be_bytes();
    let p = PREFIX;
    [p[0], p[1], p[2], p[3], p[4], p[5], 0, plane, 0, 0, 0, 0, h[0], h[1], h[2], h[3]]
}

/// The first UDP source port of frames; the low bits of the entropy value are added.
const SOURCE_PORTS: u16 = 0xf000;

/// The number of bits of the entropy value in the source port.
const PORT_BITS: u32 = 12;

/// Bytes of the RETH's DMA length within a RoCEv2 header, and that header's opcode of a message's first packet.
const RETH_LENGTH: core::ops::Range<usize> = 24..28;
const WRITE_FIRST: u8 = 0x06;

/// The pad bits, within the second byte of a BTH.
const PAD_BITS: u8 = 0x30;

/// Bytes of the ICRC.
const ICRC: usize = 4;

/// The longest transport header.
const HEADER_MAX: usize = 64;

/// The queue pair in a frame for connection 0. The lowest numbers are reserved: 0 and 1 for management, and 2 for MRC's
/// operations between NICs, which belong to no connection of the frame.
const fn first_queue_pair(format: WireFormat, header: &Header) -> u32 {
    match (format, header) {
        (WireFormat::Mrc, Header::Operation { .. } | Header::Answer(_)) => 0,
        (WireFormat::Rocev2, _) => 2,
        (WireFormat::Mrc, _) => 3,
        (WireFormat::Uec | WireFormat::Strack, _) => 0,
    }
}

/// Plane and host of an address made by [`address`].
pub fn host_of(address: [u8; 16]) -> Option<(u8, HostId)> {
    let [prefix @ .., 0, plane, 0, 0, 0, 0, a, b, c, d] = address else { return None };
    if prefix == PREFIX { Some((plane, HostId(u32::from_be_bytes([a, b, c, d])))) } else { None }
}

fn mac(plane: u8, host: HostId) -> [u8; 6] {
    let [a, b, c, d] = host.0.to_be_bytes();
    [0x02, plane, a, b, c, d]
}

/// Payload bytes that follow the transport header of `packet`.
fn payload(packet: &Packet) -> usize {
    match packet.header {
        Header::Data(data) if !packet.flags.has(Flags::TRIMMED) => usize::from(data.length),
        Header::Part(part) if !packet.flags.has(Flags::TRIMMED) => usize::from(part.length),
        _ => 0,
    }
}

/// The number of zeros after the payload of `packet`: the InfiniBand family pads to a multiple of four bytes.
fn padding(format: WireFormat, packet: &Packet) -> usize {
    match format {
        WireFormat::Rocev2 | WireFormat::Mrc => payload(packet).wrapping_neg() % 4,
        WireFormat::Uec | WireFormat::Strack => 0,
    }
}

/// Payload, padding and checksum bytes that follow the transport header of `packet`.
fn trailing(format: WireFormat, packet: &Packet) -> usize {
    let icrc = match format {
        WireFormat::Rocev2 | WireFormat::Mrc => ICRC,
        WireFormat::Uec | WireFormat::Strack => 0,
    };
    payload(packet) + padding(format, packet) + icrc
}

/// Differentiated services and ECN bits of `packet`.
fn traffic_class(packet: &Packet) -> Result<u8, WireError> {
    let is_data = packet.header.has_payload();
    let trimmed = is_data && packet.flags.has(Flags::TRIMMED);
    let at_last_hop = is_data && packet.flags.has(Flags::TRIMMED_AT_LAST_HOP);
    let dscp = match (trimmed, at_last_hop) {
        (true, false) => DSCP_TRIMMED,
        (true, true) => DSCP_TRIMMED_AT_LAST_HOP,
        (false, true) => return Err(WireError::Unencodable),
        (false, false) if packet.is_control() => DSCP_CONTROL,
        (false, false) => DSCP_DATA,
    };
    let ecn = match (packet.flags.has(Flags::CE), packet.is_control()) {
        (true, _) => CE,
        (false, true) if !trimmed => 0,
        (false, _) => ECT_0,
    };
    Ok(dscp << 2 | ecn)
}

/// Appends the headers of the frame of `packet` to `out`. Returns the frame's whole length on the wire, payload
/// included, but without preamble, frame check sequence and gap.
///
/// # Errors
/// [`WireError::Unencodable`] if a field does not fit; `out` is then as it was.
pub fn write(format: WireFormat, packet: &Packet, out: &mut Vec<u8>) -> Result<usize, WireError> {
    write_within(format, packet, None, out)
}

/// [`write()`] for a packet whose message has `message` bytes, if that is known: the RETH of a RoCEv2 First contains
/// this length. A packet alone does not tell the length of its message.
///
/// # Errors
/// As [`write()`].
pub fn write_within(
    format: WireFormat,
    packet: &Packet,
    message: Option<u64>,
    out: &mut Vec<u8>,
) -> Result<usize, WireError> {
    let trailing = trailing(format, packet);
    let start = out.len();
    begin(packet, packet.path, udp_port(format), header_bytes(format, packet) + trailing, out)?;
    let queue_pair = packet.connection.0.saturating_add(first_queue_pair(format, &packet.header));
    if let Err(error) = encode(format, &Packet { connection: ConnectionId(queue_pair), ..*packet }, out) {
        out.truncate(start);
        return Err(error);
    }
    dress(format, packet, message, &mut out[start + ETHERNET + IPV6 + UDP..]);
    Ok(finish(packet, trailing, start, out))
}

/// Appends the headers of the frame of `packet` in the layout of Ultra Ethernet Transport to `out`. Returns the frame's
/// whole length on the wire. There is no CRC.
///
/// # Errors
/// [`WireError::Unencodable`] if UET cannot say what the packet says; `out` is then as it was.
pub fn write_uet(packet: &Packet, conversation: &uet::Conversation, out: &mut Vec<u8>) -> Result<usize, WireError> {
    let (pds, ses, bytes) = uet::translate(packet, conversation)?;
    let mut headers = Vec::with_capacity(HEADER_MAX);
    uet::encode_headers(&pds, &ses, bytes, &mut headers)?;
    let port_of = match packet.header {
        Header::Ack(ack) => ack.path,
        Header::Nack(nack) => nack.path,
        _ => packet.path,
    };
    let (start, trailing) = (out.len(), payload(packet));
    begin(packet, port_of, uet::PORT, headers.len() + trailing, out)?;
    out.extend_from_slice(&headers);
    Ok(finish(packet, trailing, start, out))
}

/// Appends the headers before a transport header and its payload, which have `length` bytes. The source port is that of
/// the entropy of `port_of`; the UDP checksum is zero.
fn begin(packet: &Packet, port_of: PathId, to: u16, length: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    let traffic_class = traffic_class(packet)?;
    let Ok(udp_length) = u16::try_from(UDP + length) else { return Err(WireError::Unencodable) };
    let (plane, entropy) = (packet.path.port(), packet.path.entropy());
    out.extend_from_slice(&mac(plane, packet.destination));
    out.extend_from_slice(&mac(plane, packet.source));
    out.extend_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
    let label = (entropy >> PORT_BITS) << 8 | entropy & 0xff;
    out.extend_from_slice(&(6 << 28 | u32::from(traffic_class) << 20 | label).to_be_bytes());
    out.extend_from_slice(&udp_length.to_be_bytes());
    out.extend_from_slice(&[NEXT_HEADER_UDP, HOP_LIMIT]);
    out.extend_from_slice(&address(plane, packet.source));
    out.extend_from_slice(&address(plane, packet.destination));
    out.extend_from_slice(&(SOURCE_PORTS | (port_of.entropy() as u16) & !SOURCE_PORTS).to_be_bytes());
    out.extend_from_slice(&to.to_be_bytes());
    out.extend_from_slice(&udp_length.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    Ok(())
}

/// Sets the UDP checksum of the frame from `start` on, and writes what follows the headers if that is no payload.
/// Returns the frame's whole length.
fn finish(packet: &Packet, trailing: usize, start: usize, out: &mut Vec<u8>) -> usize {
    let sum = checksum(&out[start + ETHERNET + 8..]);
    out[start + ETHERNET + IPV6 + 6..][..2].copy_from_slice(&sum.to_be_bytes());
    let whole = out.len() - start + trailing;
    if !packet.header.has_payload() || packet.flags.has(Flags::TRIMMED) {
        // Only the empty ICRC follows. Write it, so that the capture of a control packet is complete.
        out.resize(start + whole, 0);
    }
    whole
}

/// Sets the fields of a transport header that only frames have: the pad bits, and the length of the message.
fn dress(format: WireFormat, packet: &Packet, message: Option<u64>, header: &mut [u8]) {
    header[1] |= (padding(format, packet) as u8) << PAD_BITS.trailing_zeros();
    let is_whole_data = matches!(packet.header, Header::Data(_)) && !packet.flags.has(Flags::TRIMMED);
    if let (WireFormat::Rocev2, true, WRITE_FIRST, Some(bytes)) = (format, is_whole_data, header[0], message) {
        // The field has 32 bits; a NIC would split a longer message.
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        header[RETH_LENGTH].copy_from_slice(&length.to_be_bytes());
    }
}

/// Undoes [`dress`], so that [`decode`] can read the header. `datagram` is the number of bytes after the UDP header,
/// this header included. Returns the padding that the header claims.
fn undress(format: WireFormat, is_trimmed: bool, datagram: usize, header: &mut [u8]) -> Result<usize, WireError> {
    if !matches!(format, WireFormat::Rocev2 | WireFormat::Mrc) || header.len() < 2 {
        return Ok(0);
    }
    let padding = usize::from((header[1] & PAD_BITS) >> PAD_BITS.trailing_zeros());
    header[1] &= !PAD_BITS;
    if format == WireFormat::Rocev2 && header[0] == WRITE_FIRST && !is_trimmed && header.len() >= RETH_LENGTH.end {
        let payload = datagram.checked_sub(RETH_LENGTH.end + padding + ICRC).ok_or(WireError::Length)?;
        header[RETH_LENGTH].copy_from_slice(&(payload as u32).to_be_bytes());
    }
    Ok(padding)
}

/// UDP checksum over the two addresses and the datagram, with a payload of zeros. The pseudo-header has the length from
/// the UDP header, and UDP as its next header.
fn checksum(addresses_and_datagram: &[u8]) -> u16 {
    let mut sum = u32::from(NEXT_HEADER_UDP);
    for pair in addresses_and_datagram.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
    }
    // The pseudo-header repeats the length, which is at bytes 4 and 5 of the UDP header, after 32 bytes of addresses.
    if let Some(&[high, low]) = addresses_and_datagram.get(36..38) {
        sum += u32::from(high) << 8 | u32::from(low);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Over IPv6 a checksum of zero is sent as all ones (RFC 8200, section 8.1).
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}

/// Reads the frame of a packet. The payload is ignored and may be missing.
///
/// The packet's `size` is the frame's whole length on the wire.
///
/// # Errors
/// If [`write()`] cannot have written this frame for this format. Hop limit and Ethernet addresses may differ, because
/// they change on the path.
pub fn read(format: WireFormat, frame: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(frame);
    reader.array::<12>()?;
    if reader.u16()? != ETHERTYPE_IPV6 {
        return Err(WireError::Foreign);
    }
    let first = reader.u32()?;
    let length = reader.u16()?;
    let next_header = reader.u8()?;
    reader.u8()?;
    if first >> 28 != 6 || next_header != NEXT_HEADER_UDP {
        return Err(WireError::Foreign);
    }
    let summed = reader.rest;
    let (plane, source) = host_of(reader.array()?).ok_or(WireError::Foreign)?;
    let (_, destination) = host_of(reader.array()?).ok_or(WireError::Foreign)?;
    let source_port = reader.u16()?;
    if reader.u16()? != udp_port(format) || source_port & SOURCE_PORTS != SOURCE_PORTS {
        return Err(WireError::Foreign);
    }
    if reader.u16()? != length {
        return Err(WireError::Length);
    }
    let sum = reader.u16()?;
    let mut header = [0; HEADER_MAX];
    let present = reader.rest.len().min(HEADER_MAX);
    let header = &mut header[..present];
    header.copy_from_slice(&reader.rest[..present]);
    let datagram = usize::from(length).checked_sub(UDP).ok_or(WireError::Length)?;
    let is_trimmed = matches!((first >> 22) as u8 & 0x3f, DSCP_TRIMMED | DSCP_TRIMMED_AT_LAST_HOP);
    let claimed = undress(format, is_trimmed, datagram, header)?;
    let mut packet = decode(format, header)?;
    let queue_pair = packet.connection.0;
    let connection = queue_pair.checked_sub(first_queue_pair(format, &packet.header)).ok_or(WireError::Inconsistent)?;
    packet.connection = ConnectionId(connection);
    let headers = header_bytes(format, &packet);
    let entropy = (first >> 8 & 0xfff) << PORT_BITS | u32::from(source_port & !SOURCE_PORTS);
    let flags = switch_flags((first >> 20) as u8, &packet.header)?;
    let size = u16::try_from(ETHERNET + IPV6 + usize::from(length)).map_err(|_| WireError::Length)?;
    let outer = Outer { source, destination, path: PathId::new(plane, entropy), size, flags };
    let packet = outer.complete(packet);
    if datagram != headers + trailing(format, &packet) {
        return Err(WireError::Length);
    }
    if claimed != padding(format, &packet) {
        return Err(WireError::Inconsistent);
    }
    let mut datagram = [0; 32 + UDP + HEADER_MAX];
    let datagram = &mut datagram[..32 + UDP + headers];
    datagram.copy_from_slice(&summed[..32 + UDP + headers]);
    datagram[38..40].fill(0);
    if checksum(datagram) != sum {
        return Err(WireError::Checksum);
    }
    Ok(packet)
}

/// The flags that switches write, read from the traffic class.
fn switch_flags(traffic_class: u8, header: &Header) -> Result<Flags, WireError> {
    let is_data = header.has_payload();
    let flags = match (traffic_class >> 2, is_data) {
        (DSCP_TRIMMED, true) => Flags::TRIMMED,
        (DSCP_TRIMMED_AT_LAST_HOP, true) => Flags::TRIMMED.with(Flags::TRIMMED_AT_LAST_HOP),
        (DSCP_DATA, true) | (DSCP_DATA | DSCP_CONTROL, false) => Flags::NONE,
        _ => return Err(WireError::Inconsistent),
    };
    Ok(flags.with_if(traffic_class & 3 == CE, Flags::CE))
}
