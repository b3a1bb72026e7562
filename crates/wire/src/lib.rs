//! Bytes: transport headers in four formats, Ethernet frames around them, and the published layouts of MRC and UET.
//!
//! [`encode`] and [`decode`] handle the transport header at the start of a UDP datagram. Addresses, entropy, CE and the
//! trimmed state are in the network's headers, where switches can read and change them. [`frame`] writes and reads
//! those; a node on sockets gets them from the socket and adds them with [`Outer::complete`].
//!
//! Bytes from the network are not trusted: decoding checks every bound, never panics and allocates no memory.
#![doc = include_str!("../README.md")]

pub mod aggregate;
mod control;
pub mod frame;
mod mrc;
pub mod ocp;
mod part;
mod reader;
mod rocev2;
mod strack;
mod uec;
pub mod uet;

pub use reader::{Reader, Short};

use strandway_proto::packet::{Flags, Header, HostId, NackReason, Packet, PathId};
use strandway_proto::profile::WireFormat;

/// Why bytes are not a packet, or a packet cannot become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end before the header does.
    Short,
    /// A version, opcode or packet type that does not exist here.
    Unknown,
    /// Bits that must be zero are not, or two fields contradict each other.
    Inconsistent,
    /// A length field does not agree with the number of bytes.
    Length,
    /// A checksum is wrong.
    Checksum,
    /// Not an IPv6 UDP datagram between addresses of this scheme on the port of this format.
    Foreign,
    /// The packet has a value that does not fit this format.
    Unencodable,
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            WireError::Short => "the bytes end before the header does",
            WireError::Unknown => "unknown version, opcode or packet type",
            WireError::Inconsistent => "fields contradict each other",
            WireError::Length => "a length field does not agree with the number of bytes",
            WireError::Checksum => "wrong checksum",
            WireError::Foreign => "not a datagram of this scheme",
            WireError::Unencodable => "a field does not fit this format",
        })
    }
}

impl core::error::Error for WireError {}

/// Flags that switches write; for a data packet they are in the network's headers.
const SWITCH_FLAGS: Flags = Flags(Flags::CE.0 | Flags::TRIMMED.0 | Flags::TRIMMED_AT_LAST_HOP.0);

/// The fields of a packet that the network's headers carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outer {
    /// The host it comes from.
    pub source: HostId,
    /// The host it goes to.
    pub destination: HostId,
    /// The path that it takes.
    pub path: PathId,
    /// Bytes on the wire, all headers included.
    pub size: u16,
    /// CE on any packet; trimmed and trimmed at the last hop on data.
    pub flags: Flags,
}

impl Outer {
    /// The network's part of a packet, that is, the fields that [`decode`] leaves at their defaults.
    pub fn of(packet: &Packet) -> Outer {
        Outer {
            source: packet.source,
            destination: packet.destination,
            path: packet.path,
            size: packet.size,
            flags: Flags(packet.flags.0 & outer_flags(&packet.header).0),
        }
    }

    /// Adds the network's part to a packet from [`decode`].
    pub fn complete(&self, packet: Packet) -> Packet {
        let mask = outer_flags(&packet.header).0;
        Packet {
            source: self.source,
            destination: self.destination,
            path: self.path,
            size: self.size,
            flags: Flags(packet.flags.0 & !mask | self.flags.0 & mask),
            ..packet
        }
    }
}

/// The flags that travel in the network's headers. A NACK's flags about trimming describe another packet, so they stay
/// in its transport header.
const fn outer_flags(header: &Header) -> Flags {
    if header.has_payload() { SWITCH_FLAGS } else { Flags::CE }
}

/// Appends the transport header of `packet` to `out`. The caller must append the payload.
///
/// # Errors
/// [`WireError::Unencodable`] if a field does not fit; `out` is then as it was. RoCEv2, STrack and MRC have 24 bits for
/// a connection.
#[inline]
pub fn encode(format: WireFormat, packet: &Packet, out: &mut Vec<u8>) -> Result<(), WireError> {
    if packet.flags.0 & !Flags::ALL.0 != 0 || (format != WireFormat::Mrc && is_mrc_only(packet)) {
        return Err(WireError::Unencodable);
    }
    if let Header::Control(control) = &packet.header {
        return control::encode(packet, control, out);
    }
    if let Header::Part(part) = &packet.header {
        return part::encode(packet, part, out);
    }
    if let Header::Chunk(_) | Header::Fragment(_) = &packet.header {
        return Err(WireError::Unencodable);
    }
    match format {
        WireFormat::Rocev2 => rocev2::encode(packet, out),
        WireFormat::Uec => uec::encode(packet, out),
        WireFormat::Strack => strack::encode(packet, out),
        WireFormat::Mrc => mrc::encode(packet, out),
    }
}

/// Reads a transport header from the start of `bytes`; the payload follows it.
///
/// The network's part of the packet ([`Outer`]) is left at its default.
///
/// # Errors
/// If the bytes are not a header of this format.
#[inline]
pub fn decode(format: WireFormat, bytes: &[u8]) -> Result<Packet, WireError> {
    match bytes.first() {
        Some(&control::MARK) => return control::decode(bytes),
        Some(&part::MARK) => return part::decode(bytes),
        _ => {}
    }
    match format {
        WireFormat::Rocev2 => rocev2::decode(bytes),
        WireFormat::Uec => uec::decode(bytes),
        WireFormat::Strack => strack::decode(bytes),
        WireFormat::Mrc => mrc::decode(bytes),
    }
}

/// Is it a packet that only MRC's format can encode?
const fn is_mrc_only(packet: &Packet) -> bool {
    let odd = match packet.header {
        Header::Nack(nack) => !matches!(nack.reason, NackReason::Missing),
        Header::Operation { .. } | Header::Answer(_) => true,
        _ => false,
    };
    odd || packet.flags.has(Flags::ALWAYS_SKIP)
}

/// The length in bytes of the packet's transport header. Zero if the format cannot encode the packet.
pub const fn header_bytes(format: WireFormat, packet: &Packet) -> usize {
    let header = &packet.header;
    match header {
        Header::Control(_) => return control::BYTES,
        Header::Part(_) => return part::BYTES,
        Header::Chunk(_) => return 0,
        Header::Fragment(_) => return aggregate::BYTES,
        _ => {}
    }
    match format {
        WireFormat::Rocev2 => rocev2::header_bytes(header),
        WireFormat::Uec => uec::header_bytes(header),
        WireFormat::Strack => strack::header_bytes(header),
        WireFormat::Mrc => mrc::header_bytes(header, packet.flags.has(Flags::LAST)),
    }
}

/// A packet without the network's part.
const fn bare(connection: u32, flags: u16, header: Header) -> Packet {
    Packet {
        source: HostId(0),
        destination: HostId(0),
        connection: strandway_proto::packet::ConnectionId(connection),
        path: PathId(0),
        size: 0,
        flags: Flags(flags),
        header,
    }
}

impl Reader<'_> {
    /// A sequence number in 32 bits, the upper eight of which must be zero.
    pub(crate) fn psn(&mut self) -> Result<strandway_proto::packet::Psn, WireError> {
        psn(self.u32()?)
    }

    /// Bytes that must be zero.
    pub(crate) fn zeros<const N: usize>(&mut self) -> Result<(), WireError> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(WireError::Inconsistent) }
    }
}

/// A sequence number of at most 24 bits.
const fn psn(number: u32) -> Result<strandway_proto::packet::Psn, WireError> {
    if (number as u64) < strandway_proto::packet::Psn::MODULUS {
        Ok(strandway_proto::packet::Psn::new(number as u64))
    } else {
        Err(WireError::Inconsistent)
    }
}
