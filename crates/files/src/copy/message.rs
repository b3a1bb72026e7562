//! The messages of the two sides of a copy, as bytes. Reading checks every length, allocates no more than was received,
//! and never panics.
//!
//! Messages are sends of at most [`MESSAGE_MAX`] bytes, numbers are big-endian. File contents travel in *parcels*,
//! writes into the server's memory, each a row of [`Piece`]s.

mod entry;
mod piece;
mod reader;

use super::file_error::FileError;
pub use entry::{Entry, Kind, Modified};
pub use piece::Piece;
pub use reader::Malformed;
pub(crate) use reader::flag;
use reader::{all, flagged, put_flagged, put_text, text};
use strandway_udp::RemoteRegion;
use strandway_wire::Reader;

/// The protocol's version of copies of contents, modes and times; both sides must have the same.
pub const VERSION: u16 = 1;
/// The version of copies that keep more, or delete. Its upper byte has [`WITH_OWNERS`] and [`WITH_DELETE`].
pub const VERSION_MORE: u16 = 2;
/// The client gives files their owners.
pub const WITH_OWNERS: u16 = 1 << 8;
/// The client lists and removes files.
pub const WITH_DELETE: u16 = 2 << 8;
/// The most bytes of a message.
pub const MESSAGE_MAX: usize = 65_536;
/// The most entries of one offer, so that the answer fits a message.
pub(super) const ENTRIES_MAX: usize = 512;
/// The most runs of missing blocks that one answer names; if there are more, the last one reaches to the end of the
/// file. 512 answers of 4 runs fit a message.
pub(super) const RUNS_MAX: usize = 4;
/// The largest size of a file: 4 TiB, 1 Mi blocks of 4 MiB.
pub(super) const SIZE_MAX: u64 = 1 << 42;
/// Bytes of a piece before its contents, for a parcel's size.
pub(super) const PIECE_HEAD: usize = 17;
/// Bytes of a piece that ends a file.
pub(super) const PIECE_END: usize = 37;

/// A server's answer to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server has it, or has just made it.
    Have,
    /// These blocks are missing: first and number, in order; an empty list for a file without blocks.
    Missing(Vec<(u32, u32)>),
    /// It cannot be copied.
    Failed(FileError),
}

/// The files, by their numbers, that got their names or failed.
pub type Results = Vec<(u32, Result<(), FileError>)>;

/// A message of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The client's first message: its request.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// Blocks have 2 to this power bytes.
        block_log2: u8,
        /// The number of parcels under way that the client would like.
        slots: u16,
        /// Only look, and change nothing.
        dry_run: bool,
        /// The directory of the copy, below the server's; empty for the server's own.
        directory: Vec<u8>,
    },
    /// The server's answer: the memory for parcels.
    Welcome {
        /// Memory of `slots` parcels.
        memory: RemoteRegion,
        /// The number of parcels that may be under way.
        slots: u16,
    },
    /// The server's answer if it refuses the copy.
    Refused(FileError),
    /// Entries; each directory comes before its contents.
    Offer(Vec<Entry>),
    /// An answer to each entry, by the entry's number.
    Answers(Vec<(u32, Answer)>),
    /// Directories whose contents are complete: the server sets their modes and times now.
    Settle(Vec<Entry>),
    /// News of parcels and files.
    Progress {
        /// Payload that the server rebuilt from parity so far, in bytes.
        rebuilt: u64,
        /// Slots whose parcels are on the server's disk.
        freed: Vec<u16>,
        /// Files that are complete and have their names, and files that failed.
        results: Results,
    },
    /// The client asks for the names in a directory that come after `after`.
    List {
        /// The directory.
        path: Vec<u8>,
        /// The last name that is known; empty at first.
        after: Vec<u8>,
    },
    /// The server's answer: names in order, and whether each is a directory.
    Names {
        /// There are others.
        more: bool,
        /// The names.
        names: Vec<(bool, Vec<u8>)>,
    },
    /// The client wants these paths removed; the flag is for directories, which must be empty. The answer has their places
    /// in the list for numbers.
    Remove(Vec<(bool, Vec<u8>)>),
}

/// The reason why a file was not copied.
fn read_error(reader: &mut Reader<'_>) -> Result<FileError, Malformed> {
    FileError::numbered(reader.u16()?).ok_or(Malformed)
}

/// The answer to an entry.
fn read_answer(reader: &mut Reader<'_>) -> Result<(u32, Answer), Malformed> {
    let id = reader.u32()?;
    let answer = match reader.u8()? {
        0 => Answer::Have,
        1 => Answer::Failed(read_error(reader)?),
        runs if usize::from(runs) <= RUNS_MAX + 2 => {
            let run = |_| Ok((reader.u32()?, reader.u32()?));
            Answer::Missing((2..runs).map(run).collect::<Result<_, Malformed>>()?)
        }
        _ => return Err(Malformed),
    };
    Ok((id, answer))
}

impl Message {
    /// As bytes: a kind, then its fields; lists reach to the end.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Message::Hello { version, block_log2, slots, dry_run, directory } => {
                out.push(1);
                out.extend_from_slice(&version.to_be_bytes());
                out.push(*block_log2);
                out.extend_from_slice(&slots.to_be_bytes());
                out.push(u8::from(*dry_run));
                put_text(&mut out, directory);
            }
            Message::Welcome { memory, slots } => {
                out.push(2);
                out.extend_from_slice(&memory.to_bytes());
                out.extend_from_slice(&slots.to_be_bytes());
            }
            Message::Refused(file_error) => {
                out.push(3);
                out.extend_from_slice(&file_error.number().to_be_bytes());
            }
            Message::Offer(entries) | Message::Settle(entries) => {
                out.push(if matches!(self, Message::Offer(_)) { 4 } else { 5 });
                entries.iter().for_each(|entry| entry.put(&mut out));
            }
            Message::Answers(answers) => {
                out.push(6);
                for (id, answer) in answers {
                    out.extend_from_slice(&id.to_be_bytes());
                    match answer {
                        Answer::Have => out.push(0),
                        Answer::Failed(file_error) => {
                            out.push(1);
                            out.extend_from_slice(&file_error.number().to_be_bytes());
                        }
                        Answer::Missing(runs) => {
                            out.push(2 + runs.len() as u8);
                            for (first, count) in runs {
                                out.extend_from_slice(&first.to_be_bytes());
                                out.extend_from_slice(&count.to_be_bytes());
                            }
                        }
                    }
                }
            }
            Message::Progress { rebuilt, freed, results } => {
                out.push(7);
                out.extend_from_slice(&rebuilt.to_be_bytes());
                out.push(freed.len() as u8);
                freed.iter().for_each(|slot| out.extend_from_slice(&slot.to_be_bytes()));
                for (id, result) in results {
                    out.extend_from_slice(&id.to_be_bytes());
                    out.extend_from_slice(&result.map_or_else(FileError::number, |()| 0).to_be_bytes());
                }
            }
            Message::List { path, after } => {
                out.push(8);
                put_text(&mut out, path);
                put_text(&mut out, after);
            }
            Message::Names { more, names } => {
                out.extend_from_slice(&[9, u8::from(*more)]);
                names.iter().for_each(|(is_directory, name)| put_flagged(&mut out, *is_directory, name));
            }
            Message::Remove(paths) => {
                out.push(10);
                paths.iter().for_each(|(is_directory, path)| put_flagged(&mut out, *is_directory, path));
            }
        }
        out
    }

    /// Reads a message that [`Message::encode`] wrote.
    ///
    /// # Errors
    /// If the bytes are not such a message.
    pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        if bytes.len() > MESSAGE_MAX {
            return Err(Malformed);
        }
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            1 => Message::Hello {
                version: reader.u16()?,
                block_log2: reader.u8()?,
                slots: reader.u16()?,
                dry_run: flag(&mut reader)?,
                directory: text(&mut reader)?,
            },
            2 => Message::Welcome { memory: RemoteRegion::from_bytes(reader.array()?), slots: reader.u16()? },
            3 => Message::Refused(read_error(&mut reader)?),
            4 => Message::Offer(Entry::read_all(&mut reader)?),
            5 => Message::Settle(Entry::read_all(&mut reader)?),
            6 => Message::Answers(all(&mut reader, read_answer)?),
            7 => {
                let (rebuilt, count) = (reader.u64()?, reader.u8()?);
                let freed = (0..count).map(|_| reader.u16()).collect::<Result<_, _>>()?;
                let result = |reader: &mut Reader<'_>| {
                    let (id, number) = (reader.u32()?, reader.u16()?);
                    let file_error = || FileError::numbered(number).ok_or(Malformed);
                    Ok((id, if number == 0 { Ok(()) } else { Err(file_error()?) }))
                };
                Message::Progress { rebuilt, freed, results: all(&mut reader, result)? }
            }
            8 => Message::List { path: text(&mut reader)?, after: text(&mut reader)? },
            9 => Message::Names { more: flag(&mut reader)?, names: all(&mut reader, flagged)? },
            10 => {
                let paths = all(&mut reader, flagged)?;
                if paths.len() > ENTRIES_MAX {
                    return Err(Malformed);
                }
                Message::Remove(paths)
            }
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests;
