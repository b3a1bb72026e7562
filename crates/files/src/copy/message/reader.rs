//! Reads the parts of messages from bytes that a peer has sent, and checks every length.

use crate::copy::names::PATH_MAX;
use std::fmt;

/// The bytes are not a message or parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer sent bytes that are not a message of the protocol")
    }
}

impl std::error::Error for Malformed {}

/// Reads numbers and bytes from the front of a message; if bytes are missing, the result is [`Malformed`]. Numbers are
/// big-endian.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next bytes, where they lie.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(front)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// If they are not there; this holds for all methods below.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*front)
    }

    /// One byte.
    ///
    /// # Errors
    /// See [`Reader::array`].
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// See [`Reader::array`].
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// See [`Reader::array`].
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// See [`Reader::array`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// All remaining bytes.
    pub fn rest_of_bytes(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The next bytes.
    pub(in crate::copy) fn bytes(&mut self, length: usize) -> Result<Vec<u8>, Malformed> {
        self.take(length).map(<[u8]>::to_vec)
    }

    /// A flag: a byte that is 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// A flag and a text.
    pub(super) fn flagged(&mut self) -> Result<(bool, Vec<u8>), Malformed> {
        Ok((self.flag()?, self.text()?))
    }

    /// Bytes after a length of two bytes, which is below [`PATH_MAX`].
    pub(super) fn text(&mut self) -> Result<Vec<u8>, Malformed> {
        let length = usize::from(self.u16()?);
        if length >= PATH_MAX {
            return Err(Malformed);
        }
        self.take(length).map(<[u8]>::to_vec)
    }

    /// All remaining elements, one after the other; nothing is allocated for elements that are not there.
    pub(super) fn rest<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let mut list = Vec::new();
        while !self.0.is_empty() {
            list.push(one(self)?);
        }
        Ok(list)
    }
}

/// Adds a text, after its length of two bytes.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

/// Adds a flag and a text.
pub(super) fn put_flagged(out: &mut Vec<u8>, flag: bool, text: &[u8]) {
    out.push(u8::from(flag));
    put_text(out, text);
}
