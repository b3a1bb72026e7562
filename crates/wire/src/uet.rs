//! Datagrams of Ultra Ethernet Transport (UET), from the header of packet delivery to the end of the payload.
//!
//! `wire::uec` carries an engine's packet in a layout of ours. This module has the layout that public implementations
//! agree about, with nothing of ours in it. Nobody here has the specification's text: tables are numbered as the public
//! sources number them, a comment names the source where only one has a field, and [UET's page](#sources) lists where
//! they differ. Everything is big-endian, and bit fields begin with the most significant bit.
//!
//! ```text
//! UDP, or IP and entropy header 4    destination port 4793, the source port is the entropy; without UDP: protocol 253
//! [security header 12 or 16]         then all that follows is encrypted: `SecurityHeader`
//! PDS     2-3 request 12   7 ACK 12   8 ACK_CC 32   9 ACK_CCX 40   10 NACK 16   11 control packet 16   12 NACK_CCX 32
//!         4-5 RUDI 8   6 UUD 4   13-14 request with credit 16
//! SES     1 small request 20   2 medium request 32   3 standard request 44 and an extension of 4, 24 or 36
//!         4 response 12   5 response with data 20   6 small response with data 12
//! payload
//! CRC 4                              only without the security header; SUET has none
//! ```
//!
//! Reserved bits are zero when written, and a datagram with others is refused: what is read can be written to the same
//! bytes.
//!
//! # Sources
//!
//! SUET (`miharulidze/suet-fork`, ETH Zurich), whose recorded datagrams are read and written to the same bytes; the UEC
//! reference provider (`ultraethernet/uet-ref-prov`); Wireshark's `packet-uet.c`; public readings of versions 1.0.1 to
//! 1.0.3. `docs/protocols/uet.md` has the differences.

pub mod codes;
mod engine;
mod outer;
pub mod pds;
pub mod ses;
#[cfg(test)]
mod tests;
mod tss;

pub use engine::{Conversation, START_PSN, interpret, translate};
pub use outer::{Addresses, CRC, ENTROPY, IP_PROTOCOL, PORT, crc, entropy_header, read_entropy, without_crc};
pub use pds::Pds;
pub use ses::Ses;
pub use tss::SecurityHeader;

use super::{Reader, WireError};

/// A datagram, from the first header to the end of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The header of packet delivery.
    pub pds: Pds,
    /// The semantic header.
    pub ses: Ses,
    /// The payload.
    pub payload: &'a [u8],
}

/// Appends a datagram, without CRC, to `out`.
///
/// # Errors
/// [`WireError::Unencodable`] if a number does not fit its field, or the headers do not fit each other or the payload;
/// `out` is then as it was.
pub fn encode(datagram: &Datagram<'_>, out: &mut Vec<u8>) -> Result<(), WireError> {
    encode_headers(&datagram.pds, &datagram.ses, datagram.payload.len(), out)?;
    out.extend_from_slice(datagram.payload);
    Ok(())
}

/// Appends the headers of a datagram with a payload of this length.
///
/// # Errors
/// As [`encode`].
pub fn encode_headers(pds: &Pds, ses: &Ses, payload: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
    let ends_here = matches!(ses, Ses::None);
    if !(ends_here || pds.may_continue()) || !ses.allows(payload) {
        return Err(WireError::Unencodable);
    }
    let start = out.len();
    let written = pds.write(ses.number(), out).and_then(|()| ses.write(payload, out));
    if written.is_err() {
        out.truncate(start);
    }
    written
}

/// Reads a datagram without CRC.
///
/// # Errors
/// [`WireError::Short`] if the bytes end within a header, [`WireError::Unknown`] for types and operations whose layout
/// is not known, a security header among them, [`WireError::Inconsistent`] for reserved bits that are not zero, and
/// [`WireError::Length`] if the payload does not have the length that its headers give.
pub fn decode(bytes: &[u8]) -> Result<Datagram<'_>, WireError> {
    let mut reader = Reader::new(bytes);
    let (pds, next) = Pds::read(&mut reader)?;
    let ses = Ses::read(next, &mut reader)?;
    let payload = reader.rest;
    if ses.allows(payload.len()) { Ok(Datagram { pds, ses, payload }) } else { Err(WireError::Length) }
}

/// Reads the first header of a datagram that a switch has trimmed; the rest may be cut anywhere.
///
/// # Errors
/// If the bytes are not the beginning of a request.
pub fn decode_trimmed(bytes: &[u8]) -> Result<pds::Request, WireError> {
    match Pds::read(&mut Reader::new(bytes))? {
        (Pds::Request(request), _) => Ok(request),
        _ => Err(WireError::Unknown),
    }
}
