//! The datagram: the header, descriptor and tag around a transport header of [`strandway_wire`] on a socket.
//!
//! Everything is big-endian. A datagram of an established connection is
//!
//! ```text
//! byte 0       version (upper four bits, 3) and kind (lower four bits)
//! byte 1       1: urgent, the receiver should read it before others; else zero. Only data is urgent.
//! bytes 2-3    credits: receives that the sender of this datagram has posted so far, modulo 65,536
//! bytes 4-7    path: the plane that it left by, and 24 bits of entropy that acknowledgements of data repeat
//! bytes 8-15   connection: a number that the *receiver* of this datagram chose: 56 random bits, and in byte 15 the receiver's
//!              shard, 0 if it shares its ports with none
//! bytes 16-23  counter: one more than in the datagram before, per direction; never repeated
//! then         the body, encrypted if the connection says so
//! last 16      authentication tag over all of the above, unless the connection goes without
//! ```
//!
//! and the body, by kind,
//!
//! ```text
//! 4 data      transport header, descriptor, payload
//! 5 control   transport header of an acknowledgement, NACK, CNP or probe
//! 6 ping      number 8, and perhaps a proof 8 that its connection leads to the same node as another; or zeros up to the
//!             length of a full packet
//! 7 pong      number 8, of the ping that it answers, and a proof 8 if that of the ping holds
//! 8 close     reason 1
//! ```
//!
//! Groups use the same header. Its connection is the number of a member, its counter counts that member's datagrams,
//! its path is plane and tree, and its credits are zero. Bodies of groups are
//!
//! ```text
//! 10 chunk    task 4, chunk 4, payload bytes 2, flags 1 (1: the last one of its share, 2: for all), zero 1, payload
//! 11 word     for whom 1 (0 one member, 1 all), zero 1, control message 34 as in `strandway_wire`
//! ```
//!
//! Fragments of gradients use it, too ([`crate::fragments`]). Its connection is the number of a channel, which goes one
//! way, its counter counts that channel's datagrams, its path is the number of the switch's port that it goes to. Their
//! body is
//!
//! ```text
//! 12 fragment  header 32 as in `strandway_wire::aggregate`, then its elements, 4 bytes each, little-endian
//! ```
//!
//! A connection whose reliability is `partial` has no descriptors: the transport headers of its parts say where they
//! belong.
//!
//! Each data packet carries a descriptor, which says where its message belongs. So a packet can be placed alone and
//! in any order: its payload goes `offset` bytes (transport header) behind that start.
//!
//! ```text
//! send                  operation 1 (0), zero 3, number of the send on its connection 4                 8 bytes
//! write                 operation 1 (1), zero 3, immediate 4 (0), key 8, start 8                       24
//! write with immediate  operation 1 (2), zero 3, immediate 4, key 8, start 8                           24
//! read                  operation 1 (3), zero 3, number of the request 4, key 8, start 8, bytes 8      32
//! fetch and add         operation 1 (4), zero 3, number of the request 4, key 8, start 8, number 8     32
//! compare and swap      operation 1 (5), zero 3, number of the request 4, key 8, start 8, expected 8,
//!                       new 8                                                                          40
//! answer                operation 1 (6), zero 3, number of the request 4                                8
//! word                  operation 1 (7), zero 3, number of the request 4, word 8                       16
//! refusal               operation 1 (8), reason 1, zero 2, number of the request 4                      8
//! ```
//!
//! Reads and atomic operations are messages without payload. The payload of an answer goes where the reader wants it; a
//! word answers an atomic operation. Requests have numbers from 0 on in each direction of a connection. A node asks only
//! peers that have given it a right to read, so a node that does not know these operations never sees them.
//!
//! Before a connection is established (see [`docs/security.md`](https://github.com/strandway/strandway) for the
//! reasons),
//!
//! ```text
//! 1 hello     byte 1 plane, zero 2, connection 8 (chosen by the caller), cookie 32, Noise message 80 (both zeros until a
//!             retry has come), shard 1 that the caller wishes (modulo the number of shards), then zeros up to the length
//!             of a full data packet
//! 2 retry     byte 1 plane, zero 2, connection 8, cookie 32
//! 3 welcome   byte 1 plane, zero 2, connection 8, Noise message 57
//! 9 refusal   byte 1 plane, reason 1, zero 1, connection 8: a hint, not authenticated
//! ```
//!
//! Whether datagrams of some length pass between two nodes with one key is asked and answered without a connection:
//!
//! ```text
//! 13 probe    zero 3, bytes of the datagram 4, number 8, proof 16, then zeros up to that length
//! 14 echo     the same with the number and length of the probe that it answers, and a proof of its own
//! ```
//!
//! The proof is a keyed hash of kind, length and number, so a stranger gets no echo. An echo is as long as its probe:
//! one exchange shows that the length passes both ways.
//!
//! The Noise prologue is `S`, the version 1, connection 8, cookie 32: so a hello is valid for one node, for one address
//! and for the life of its cookie. A refusal has this layout in every version, and carries the version of the hello
//! that it answers. In version 1 the Noise message was made without a cookie; in version 2 nothing was urgent.
//!
//! Decoding checks every bound, never panics and allocates nothing.

mod descriptor;

use core::fmt;
use strandway_proto::packet::{Data, Flags, Header, MessageId, Offset, Part, Psn, Wait};
use strandway_proto::profile::WireFormat;
use strandway_proto::{ConnectionId, HostId, Packet, PathId};
use strandway_wire as wire;

pub use descriptor::{Change, Descriptor};
pub use strandway_fabric::datagram::TRIMMED;

/// The version of this layout; datagrams of other versions are refused.
pub const VERSION: u8 = 3;

/// Bytes before the body of an established connection's datagram.
pub const HEADER: usize = 24;
pub use crate::cipher::TAG;
/// Bytes of a write's descriptor, the longest of a packet that may have payload.
pub const DESCRIPTOR_MAX: usize = 24;
/// Bytes of the longest descriptor of all.
pub const REQUEST_MAX: usize = 40;
/// Bytes of a hello before its padding.
pub const HELLO: usize = 12 + COOKIE + NOISE_HELLO;
/// The byte of a hello that names the shard that the caller wishes. Callers without a wish leave a zero there.
pub(crate) const HELLO_SHARD: usize = HELLO;
/// The byte of a retry, welcome or refusal that names the caller's shard: the lowest one of the connection's number.
pub(crate) const OPENING_SHARD: usize = 11;
/// The byte of an established connection's datagram that names the receiver's shard.
pub(crate) const SEALED_SHARD: usize = 15;
/// The byte of an established connection's datagram that is 1 if it is urgent.
pub(crate) const SEALED_URGENT: usize = 1;
/// Kinds of datagrams before a connection is established, and of groups, whose numbers say nothing about shards.
pub(crate) const KIND_HELLO: u8 = 1;
pub(crate) const KIND_RETRY: u8 = 2;
pub(crate) const KIND_WELCOME: u8 = 3;
pub(crate) const KIND_DATA: u8 = 4;
pub(crate) const KIND_REFUSAL: u8 = 9;
pub(crate) const KIND_CHUNK: u8 = 10;
pub(crate) const KIND_WORD: u8 = 11;
pub(crate) const KIND_PROBE: u8 = 13;
pub(crate) const KIND_ECHO: u8 = 14;
/// Bytes of a probe or an echo before its padding.
pub const PROBE: usize = 32;
/// Bytes of the proof in a ping or a pong.
pub const PROOF: usize = 8;
/// Bytes of a retry.
pub const RETRY: usize = 12 + COOKIE;
/// Bytes of a welcome.
pub const WELCOME: usize = 12 + NOISE_WELCOME;
/// Bytes of a refusal.
pub const REFUSAL: usize = 12;
/// Bytes of a cookie.
pub const COOKIE: usize = 32;
/// A public key, an encrypted payload of [`TERMS`] bytes and its tag.
pub const NOISE_HELLO: usize = 32 + TERMS + TAG;
/// A public key, a status, a connection id and a tag.
pub const NOISE_WELCOME: usize = 32 + 9 + TAG;
/// The caller's terms for the connection: planes 1, flags 1, zero 2, payload bytes 4, wire format 1, layout 1 (1:
/// MRC's), UDP port of that layout 2, zero 4, fingerprint of the profile 8, zero 8.
pub const TERMS: usize = 32;

const _: () =
    assert!(RETRY < HELLO && WELCOME < HELLO && REFUSAL < HELLO, "a stranger is answered with less than it sent");

/// Why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// It ends before its header, body or tag does.
    Short,
    /// Another version of this layout.
    Version(u8),
    /// A kind or operation that does not exist.
    Unknown,
    /// Bits that must be zero are not, or a length does not fit.
    Inconsistent,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Short => f.write_str("the datagram ends too early"),
            FrameError::Version(version) => {
                write!(f, "version {version} of the datagram layout; this is version {VERSION}")
            }
            FrameError::Unknown => f.write_str("unknown kind of datagram or operation"),
            FrameError::Inconsistent => f.write_str("fields of the datagram contradict each other"),
        }
    }
}

impl core::error::Error for FrameError {}

/// The kind of an established connection's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A transport header of data, a descriptor and payload.
    Data,
    /// Any other transport header.
    Control,
    /// Asks whether this plane is alive.
    Ping,
    /// Answers a ping.
    Pong,
    /// The connection ends.
    Close,
    /// A piece of a buffer that all members of a group receive.
    Chunk,
    /// A control message from a member of a group to another one, or to all.
    Word,
    /// A fragment of a gradient or of a sum.
    Fragment,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Kind::Data => KIND_DATA,
            Kind::Control => 5,
            Kind::Ping => 6,
            Kind::Pong => 7,
            Kind::Close => 8,
            Kind::Chunk => KIND_CHUNK,
            Kind::Word => KIND_WORD,
            Kind::Fragment => 12,
        }
    }
}

/// The header of an established connection's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The kind of its body.
    pub kind: Kind,
    /// The receiver should read it before datagrams that are not urgent. Only data may be urgent.
    pub urgent: bool,
    /// The plane that it left by and its entropy.
    pub path: PathId,
    /// Receives that its sender has posted so far, modulo 65,536.
    pub credits: u16,
    /// The connection, by the number that the receiver chose.
    pub connection: u64,
    /// Counts the datagrams of this direction.
    pub counter: u64,
}

/// The parts of a datagram that can be read without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A caller wants a connection.
    Hello {
        /// The plane that it left by.
        plane: u8,
        /// The number by which the caller wants to be addressed.
        connection: u64,
        /// The cookie of a [`Frame::Retry`], or zeros.
        cookie: &'a [u8; COOKIE],
        /// The first Noise message, or zeros.
        noise: &'a [u8; NOISE_HELLO],
    },
    /// Asks the caller to prove that it receives datagrams at its address.
    Retry {
        /// The caller's number for the connection.
        connection: u64,
        /// The cookie that the next hello must repeat.
        cookie: &'a [u8; COOKIE],
    },
    /// The connection is accepted, or refused for an authenticated reason.
    Welcome {
        /// The caller's number for the connection.
        connection: u64,
        /// The second Noise message.
        noise: &'a [u8; NOISE_WELCOME],
    },
    /// A hint why no welcome will come; any host can send it.
    Refusal {
        /// The caller's number for the connection.
        connection: u64,
        /// 1 wrong key, 2 wrong version.
        reason: u8,
    },
    /// Asks whether datagrams of this length pass, or answers that.
    Probe {
        /// Is it an answer?
        echo: bool,
        /// Bytes of the datagram.
        length: u32,
        /// The number of the question.
        number: u64,
        /// Shows that its sender has the key.
        proof: &'a [u8; 16],
    },
    /// A datagram of an established connection; its body follows the first [`HEADER`] bytes and ends before the tag, if
    /// it has one.
    Sealed(Sealed),
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<&[u8; N], FrameError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).ok_or(FrameError::Short)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, FrameError> {
    array(bytes, at).map(|b| u64::from_be_bytes(*b))
}

/// Reads the parts of a datagram that need no key.
///
/// # Errors
/// If it does not have this layout.
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let &[first, plane, b2, b3] = array::<4>(bytes, 0)?;
    let number = first & 15;
    if first >> 4 != VERSION && (number != KIND_REFUSAL || bytes.len() != REFUSAL) {
        return Err(FrameError::Version(first >> 4));
    }
    let zeros = |flag: bool| if flag { Ok(()) } else { Err(FrameError::Inconsistent) };
    let connection = u64_at(bytes, if matches!(number, 4..=8 | 10..=12) { 8 } else { 4 })?;
    let kind = match number {
        KIND_HELLO => {
            zeros(b2 == 0 && b3 == 0)?;
            return Ok(Frame::Hello {
                plane,
                connection,
                cookie: array(bytes, 12)?,
                noise: array(bytes, 12 + COOKIE)?,
            });
        }
        KIND_RETRY => {
            zeros(b2 == 0 && b3 == 0 && bytes.len() == RETRY)?;
            return Ok(Frame::Retry { connection, cookie: array(bytes, 12)? });
        }
        KIND_WELCOME => {
            zeros(b2 == 0 && b3 == 0 && bytes.len() == WELCOME)?;
            return Ok(Frame::Welcome { connection, noise: array(bytes, 12)? });
        }
        KIND_REFUSAL => {
            zeros(b3 == 0 && bytes.len() == REFUSAL)?;
            return Ok(Frame::Refusal { connection, reason: b2 });
        }
        KIND_PROBE | KIND_ECHO => {
            let length = u32::from_be_bytes(*array(bytes, 4)?);
            zeros(plane == 0 && b2 == 0 && b3 == 0 && length as usize == bytes.len())?;
            let echo = number == KIND_ECHO;
            return Ok(Frame::Probe { echo, length, number: u64_at(bytes, 8)?, proof: array(bytes, 16)? });
        }
        KIND_DATA => Kind::Data,
        5 => Kind::Control,
        6 => Kind::Ping,
        7 => Kind::Pong,
        8 => Kind::Close,
        KIND_CHUNK => Kind::Chunk,
        KIND_WORD => Kind::Word,
        12 => Kind::Fragment,
        _ => return Err(FrameError::Unknown),
    };
    if bytes.len() < HEADER {
        return Err(FrameError::Short);
    }
    zeros(plane == 0 || (plane == 1 && kind == Kind::Data))?;
    let urgent = plane == 1;
    let path = PathId(u32::from_be_bytes(*array(bytes, 4)?));
    let credits = u16::from_be_bytes([b2, b3]);
    Ok(Frame::Sealed(Sealed { kind, urgent, path, credits, connection, counter: u64_at(bytes, 16)? }))
}

impl Sealed {
    /// The header as the first bytes of the datagram.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION << 4 | self.kind.number();
        bytes[SEALED_URGENT] = u8::from(self.urgent);
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.path.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.connection.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.counter.to_be_bytes());
        bytes
    }
}

/// Appends the header of an established connection's datagram.
pub fn encode_sealed(sealed: &Sealed, out: &mut Vec<u8>) {
    out.extend_from_slice(&sealed.to_bytes());
}

/// The most bytes before the descriptor of a datagram of data in this format.
pub(crate) fn data_headers(format: WireFormat) -> usize {
    headers(
        format,
        Header::Data(Data {
            psn: Psn::new(0),
            message: MessageId(0),
            offset: Offset::new(0),
            length: 0,
            target: 0,
            wait: Wait::default(),
        }),
    )
}

/// Bytes before the payload of a datagram of a connection whose reliability is `partial`.
pub(crate) fn part_headers(format: WireFormat) -> usize {
    headers(
        format,
        Header::Part(Part {
            sequence: 0,
            message: MessageId(0),
            packet: 0,
            packets: 1,
            tail: 0,
            length: 0,
            wait: Wait::default(),
            parity: false,
            plan: 0,
        }),
    )
}

fn headers(format: WireFormat, header: Header) -> usize {
    // Where headers differ in length, that of a message's last packet is the longest.
    let packet = Packet {
        source: HostId(0),
        destination: HostId(0),
        connection: ConnectionId(0),
        path: PathId(0),
        size: 0,
        flags: Flags::LAST,
        header,
    };
    HEADER + wire::header_bytes(format, &packet)
}

/// A hello, padded with zeros to `length` bytes; longer if it does not fit those. `shard`: the one that the caller
/// wishes.
pub(crate) fn hello(
    plane: u8,
    connection: u64,
    shard: u8,
    cookie: &[u8; COOKIE],
    noise: &[u8; NOISE_HELLO],
    length: usize,
) -> Vec<u8> {
    let mut out = opening(KIND_HELLO, plane, 0, connection);
    out.extend_from_slice(cookie);
    out.extend_from_slice(noise);
    out.push(shard);
    out.resize(length.max(HELLO + 1), 0);
    out
}

pub(crate) fn retry(plane: u8, connection: u64, cookie: &[u8; COOKIE]) -> Vec<u8> {
    let mut out = opening(KIND_RETRY, plane, 0, connection);
    out.extend_from_slice(cookie);
    out
}

pub(crate) fn welcome(plane: u8, connection: u64, noise: &[u8; NOISE_WELCOME]) -> Vec<u8> {
    let mut out = opening(KIND_WELCOME, plane, 0, connection);
    out.extend_from_slice(noise);
    out
}

/// `version`: that of the hello that is refused.
pub(crate) fn refusal(version: u8, plane: u8, connection: u64, reason: u8) -> Vec<u8> {
    let mut out = opening(KIND_REFUSAL, plane, reason, connection);
    out[0] = version << 4 | KIND_REFUSAL;
    out
}

/// A probe or an echo of this length, at least [`PROBE`] bytes.
pub(crate) fn probe(echo: bool, number: u64, length: u32, proof: &[u8; 16]) -> Vec<u8> {
    let length = length.max(PROBE as u32);
    let kind = if echo { KIND_ECHO } else { KIND_PROBE };
    let mut out = vec![VERSION << 4 | kind, 0, 0, 0];
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(proof);
    out.resize(length as usize, 0);
    out
}

fn opening(kind: u8, plane: u8, third: u8, connection: u64) -> Vec<u8> {
    let mut out = vec![VERSION << 4 | kind, plane, third, 0];
    out.extend_from_slice(&connection.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sealed_header_survives_the_wire(path: u32, credits: u16, connection: u64, counter: u64, kind in 0usize..7, urgent: bool) {
            let kind = [Kind::Data, Kind::Control, Kind::Ping, Kind::Pong, Kind::Close, Kind::Chunk, Kind::Word][kind];
            let urgent = urgent && kind == Kind::Data;
            let sealed = Sealed { kind, urgent, path: PathId(path), credits, connection, counter };
            let mut bytes = Vec::new();
            encode_sealed(&sealed, &mut bytes);
            prop_assert_eq!(bytes.len(), HEADER);
            prop_assert_eq!(decode(&bytes[..HEADER - 1]), Err(FrameError::Short));
            prop_assert_eq!(decode(&bytes), Ok(Frame::Sealed(sealed)));
            bytes[SEALED_URGENT] = if kind == Kind::Data { 2 } else { 1 };
            prop_assert_eq!(decode(&bytes), Err(FrameError::Inconsistent));
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..12) {
            let _ = decode(&bytes);
            let _ = Descriptor::decode(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION << 4 | kind;
                let _ = decode(&bytes);
            }
        }
    }

    #[test]
    fn a_trimmed_packet_holds_the_header_of_data_in_every_format() {
        let longest = [WireFormat::Rocev2, WireFormat::Uec, WireFormat::Strack, WireFormat::Mrc].map(data_headers);
        assert_eq!(longest.into_iter().max(), Some(TRIMMED));
    }

    #[test]
    fn the_frames_of_a_handshake_survive_the_wire() {
        let (cookie, noise, second) = ([3; COOKIE], [4; NOISE_HELLO], [5; NOISE_WELCOME]);
        let bytes = hello(2, 77, 9, &cookie, &noise, 900);
        assert_eq!((bytes.len(), bytes[HELLO_SHARD]), (900, 9));
        assert_eq!(decode(&bytes), Ok(Frame::Hello { plane: 2, connection: 77, cookie: &cookie, noise: &noise }));
        assert_eq!(decode(&retry(0, 7, &cookie)), Ok(Frame::Retry { connection: 7, cookie: &cookie }));
        assert_eq!(decode(&welcome(0, 7, &second)), Ok(Frame::Welcome { connection: 7, noise: &second }));
        assert_eq!(decode(&refusal(VERSION + 1, 0, 7, 2)), Ok(Frame::Refusal { connection: 7, reason: 2 }));
        assert_eq!(decode(&[0x41, 0, 0, 0]), Err(FrameError::Version(4)));
    }
}
