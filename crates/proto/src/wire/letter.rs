//! Letters in bytes: the same in every format.
//!
//! Everything is big-endian. The first byte is one that no format begins a packet with: the formats of our own have their version
//! there, RoCEv2 and MRC an opcode below the manufacturers' range.
//!
//! ```text
//! byte 0       0xfe
//! byte 1       version, 1
//! bytes 2-3    which letter: 0 custom
//! bytes 4-7    connection, as the receiver numbers it
//! bytes 8-27   what the letter says
//!
//! custom       kind 2, zero 2, words 4 times 4
//! ```

use super::{Reader, WireError, bare};
use crate::letter::Letter;
use crate::packet::{Header, Packet};

/// What a letter begins with.
pub(super) const MARK: u8 = 0xfe;
const VERSION: u8 = 1;
const CUSTOM: u16 = 0;

/// Bytes of a letter.
pub(super) const BYTES: usize = 28;

/// Appends a letter to `out`. A letter has no flags of its own.
pub(super) fn encode(packet: &Packet, letter: &Letter, out: &mut Vec<u8>) -> Result<(), WireError> {
    if packet.flags.0 & !super::outer_flags(&packet.header).0 != 0 {
        return Err(WireError::Unencodable);
    }
    let Letter::Custom { kind, words } = letter;
    out.extend_from_slice(&[MARK, VERSION]);
    out.extend_from_slice(&CUSTOM.to_be_bytes());
    out.extend_from_slice(&packet.connection.0.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    Ok(())
}

/// Reads a letter.
pub(super) fn decode(bytes: &[u8]) -> Result<Packet, WireError> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != MARK || reader.u8()? != VERSION {
        return Err(WireError::Unknown);
    }
    let which = reader.u16()?;
    let connection = reader.u32()?;
    if which != CUSTOM {
        return Err(WireError::Unknown);
    }
    let kind = reader.u16()?;
    reader.zeros::<2>()?;
    let words = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
    Ok(bare(connection, 0, Header::Letter(Letter::Custom { kind, words })))
}
