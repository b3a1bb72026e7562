//! Files, directories and links, as a message describes them.

use super::ENTRIES_MAX;
use super::reader::{Malformed, all, put_text, text};
use crate::copy::more::More;
use strandway_wire::Reader;

/// The bit of an entry's kind that says that [`More`] follows.
const KEEPS: u8 = 0x80;

/// The time of a file's last change, as the file system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modified {
    /// Seconds since 1970, which may be negative.
    pub seconds: i64,
    /// Nanoseconds beyond, below 10^9.
    pub nanoseconds: u32,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of this many bytes.
    File(u64),
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Link(Vec<u8>),
    /// Another name of the file with this path, which the copy has brought before.
    Hard(Vec<u8>),
}

/// A file, directory or link that a client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The client's number for it.
    pub id: u32,
    /// Its place below the directory of the copy.
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u16,
    /// The time of its last change.
    pub modified: Modified,
    /// Its kind.
    pub kind: Kind,
    /// Its other properties that are kept.
    pub more: More,
}

impl Entry {
    /// Its length in a message, in bytes.
    pub(in crate::copy) fn length(&self) -> usize {
        let kind = match &self.kind {
            Kind::File(_) => 8,
            Kind::Directory => 0,
            Kind::Link(target) | Kind::Hard(target) => 2 + target.len(),
        };
        21 + self.path.len() + kind + self.more.length()
    }

    /// Adds it to a message.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let number = match self.kind {
            Kind::File(_) => 0,
            Kind::Directory => 1,
            Kind::Link(_) => 2,
            Kind::Hard(_) => 3,
        };
        out.extend_from_slice(&self.id.to_be_bytes());
        out.push(number | if self.more.is_nothing() { 0 } else { KEEPS });
        out.extend_from_slice(&self.mode.to_be_bytes());
        out.extend_from_slice(&self.modified.seconds.to_be_bytes());
        out.extend_from_slice(&self.modified.nanoseconds.to_be_bytes());
        put_text(out, &self.path);
        match &self.kind {
            Kind::File(size) => out.extend_from_slice(&size.to_be_bytes()),
            Kind::Directory => {}
            Kind::Link(target) | Kind::Hard(target) => put_text(out, target),
        }
        self.more.put(out);
    }

    /// Reads it from the front of a message.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
        let (id, kind, mode) = (reader.u32()?, reader.u8()?, reader.u16()?);
        let modified = Modified { seconds: reader.u64()? as i64, nanoseconds: reader.u32()? };
        if mode > 0o777 || modified.nanoseconds >= 1_000_000_000 {
            return Err(Malformed);
        }
        let path = text(reader)?;
        let (kind, keeps) = (kind & !KEEPS, kind & KEEPS != 0);
        let kind = match kind {
            0 => Kind::File(reader.u64()?),
            1 => Kind::Directory,
            2 => Kind::Link(text(reader)?),
            3 => Kind::Hard(text(reader)?),
            _ => return Err(Malformed),
        };
        let more = if keeps { More::read(reader)? } else { More::default() };
        Ok(Entry { id, path, mode, modified, kind, more })
    }

    /// Reads the rest of a message as entries, at most [`ENTRIES_MAX`].
    pub(super) fn read_all(reader: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
        let entries = all(reader, Entry::read)?;
        if entries.len() > ENTRIES_MAX { Err(Malformed) } else { Ok(entries) }
    }
}
