#![doc = include_str!("../README.md")]

mod cauchy;
mod decoder;
mod encoder;
mod field;
mod kernel;
mod matrix;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use kernel::{Kernel, KernelUnavailable};
pub use strandway_proto::repair::{Code, CodeError, CodeKind, PIECES_MAX, Pieces};

use std::fmt;

/// Why pieces could not be encoded or rebuilt. In this case nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceError {
    /// More pieces of data or parity were given than the code has.
    Count {
        /// The code.
        code: Code,
        /// Pieces of data that were given.
        data: usize,
        /// Pieces of parity that were given.
        parity: usize,
    },
    /// A piece has another length than the others. Only the last piece of data may be shorter.
    Length {
        /// Number of the piece: data first, then parity.
        piece: usize,
        /// Its length in bytes.
        length: usize,
        /// The length that it needs, in bytes.
        needed: usize,
    },
    /// Too many pieces are lost: the code cannot rebuild the missing data.
    Undecodable {
        /// The code, shortened to the group.
        code: Code,
        /// The number of missing pieces of data and parity.
        missing: usize,
    },
}

impl fmt::Display for PieceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PieceError::Count { code, data, parity } => {
                write!(f, "{data} pieces of data and {parity} of parity do not fit {code}")
            }
            PieceError::Length { piece, length, needed } => {
                write!(
                    f,
                    "piece {piece} has {length} bytes, it needs {needed}; only the last piece of data may be shorter"
                )
            }
            PieceError::Undecodable { code, missing } => write!(f, "{code} cannot repair these {missing} losses"),
        }
    }
}

impl std::error::Error for PieceError {}
