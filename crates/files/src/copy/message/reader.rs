//! The parts of messages that several messages have, read from bytes that a peer has sent.

use crate::copy::names::PATH_MAX;
use std::fmt;
use strandway_wire::{Reader, Short};

/// The bytes are not a message or parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer sent bytes that are not a message of the protocol")
    }
}

impl std::error::Error for Malformed {}

impl From<Short> for Malformed {
    fn from(_: Short) -> Malformed {
        Malformed
    }
}

/// A flag: a byte that is 0 or 1.
pub(crate) fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

/// A flag and a text.
pub(super) fn flagged(reader: &mut Reader<'_>) -> Result<(bool, Vec<u8>), Malformed> {
    Ok((flag(reader)?, text(reader)?))
}

/// Bytes after a length of two bytes, which is below [`PATH_MAX`].
pub(super) fn text(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let length = usize::from(reader.u16()?);
    if length >= PATH_MAX {
        return Err(Malformed);
    }
    Ok(reader.take(length)?.to_vec())
}

/// All remaining elements, one after the other; nothing is allocated for elements that are not there.
pub(super) fn all<'a, T>(
    reader: &mut Reader<'a>,
    mut one: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut list = Vec::new();
    while !reader.is_empty() {
        list.push(one(reader)?);
    }
    Ok(list)
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
