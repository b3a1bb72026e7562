//! The parts of a parcel: contents of files, and their ends.

use super::reader::Malformed;
use strandway_wire::Reader;

/// A part of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Contents of a file: a whole block, or the shorter last one.
    Block {
        /// The file.
        id: u32,
        /// The block's first byte in the file.
        offset: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// All blocks of the file were sent; this is its BLAKE3 hash.
    End {
        /// The file.
        id: u32,
        /// The hash of all its bytes.
        hash: [u8; 32],
    },
    /// A block of zeros.
    Zeros {
        /// The file.
        id: u32,
        /// The block's first byte in the file.
        offset: u64,
        /// Its length.
        length: u32,
    },
    /// The client cannot continue with a file: the server must discard its bytes.
    Abandon {
        /// The file.
        id: u32,
    },
}

impl Piece<'_> {
    /// Adds it to a parcel.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Piece::Block { id, offset, bytes } => {
                out.push(1);
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                out.extend_from_slice(bytes);
            }
            Piece::End { id, hash } => {
                out.push(2);
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(hash);
            }
            Piece::Zeros { id, offset, length } => {
                out.push(4);
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
            }
            Piece::Abandon { id } => {
                out.push(3);
                out.extend_from_slice(&id.to_be_bytes());
            }
        }
    }

    /// Takes the first piece from the front of a parcel; `None` at its end.
    ///
    /// # Errors
    /// If the parcel does not start with a piece.
    pub fn next<'a>(parcel: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Malformed> {
        if parcel.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(parcel);
        let piece = match reader.u8()? {
            1 => {
                let (id, offset, length) = (reader.u32()?, reader.u64()?, reader.u32()?);
                Piece::Block { id, offset, bytes: reader.take(length as usize)? }
            }
            2 => Piece::End { id: reader.u32()?, hash: reader.array()? },
            3 => Piece::Abandon { id: reader.u32()? },
            4 => Piece::Zeros { id: reader.u32()?, offset: reader.u64()?, length: reader.u32()? },
            _ => return Err(Malformed),
        };
        *parcel = reader.rest();
        Ok(Some(piece))
    }
}
