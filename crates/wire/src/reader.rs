//! Numbers and bytes from the front of a message, without trust in its length.

use crate::WireError;
use std::fmt;

/// The bytes end before the field does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes end before the field does")
    }
}

impl std::error::Error for Short {}

impl From<Short> for WireError {
    fn from(_: Short) -> WireError {
        WireError::Short
    }
}

/// Reads fields one after the other; numbers are big-endian. A field that is not there takes nothing.
///
/// ```
/// use strandway_wire::{Reader, Short};
///
/// let mut reader = Reader::new(&[0, 7, 1, 2, 3]);
/// assert_eq!(reader.u16(), Ok(7));
/// assert_eq!(reader.u32(), Err(Short));
/// assert_eq!(reader.rest(), [1, 2, 3]);
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Begins at the front of these bytes.
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Is everything read?
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// If they are not there; this holds for all methods below.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (front, rest) = self.rest.split_first_chunk().ok_or(Short)?;
        self.rest = rest;
        Ok(*front)
    }

    /// The next bytes, where they lie.
    ///
    /// # Errors
    /// See [`Reader::array`].
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Short> {
        let (front, rest) = self.rest.split_at_checked(length).ok_or(Short)?;
        self.rest = rest;
        Ok(front)
    }

    /// All remaining bytes, where they lie.
    pub const fn rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// One byte.
    ///
    /// # Errors
    /// See [`Reader::array`].
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Short> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// See [`Reader::array`].
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// See [`Reader::array`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// See [`Reader::array`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }
}
