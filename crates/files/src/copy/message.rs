//! The messages of the two sides of a copy, as bytes. Reading checks every length, allocates no more than was received,
//! and never panics.
//!
//! Messages are sends of at most [`MESSAGE_MAX`] bytes, numbers are big-endian. File contents travel in *parcels*,
//! writes into the server's memory, each a row of [`Piece`]s.

use super::file_error::FileError;
use super::more::More;
use super::names::PATH_MAX;
use std::fmt;
use strandway_udp::RemoteRegion;

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
/// The bit of an entry's kind that says that [`More`] follows.
const KEEPS: u8 = 0x80;
/// Bytes of a piece that ends a file.
pub(super) const PIECE_END: usize = 37;

/// The bytes are not a message or parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peer sent bytes that are not a message of the protocol")
    }
}

impl std::error::Error for Malformed {}

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

/// Reads numbers and bytes from the front of a message; if bytes are missing, the result is [`Malformed`]. Numbers are
/// big-endian.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
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
    pub(super) fn bytes(&mut self, length: usize) -> Result<Vec<u8>, Malformed> {
        self.take(length).map(<[u8]>::to_vec)
    }

    /// A flag and a text.
    fn flagged(&mut self) -> Result<(bool, Vec<u8>), Malformed> {
        let flag = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed),
        };
        Ok((flag, self.text()?))
    }

    /// Bytes after a length of two bytes, which is below [`PATH_MAX`].
    fn text(&mut self) -> Result<Vec<u8>, Malformed> {
        let length = usize::from(self.u16()?);
        if length >= PATH_MAX {
            return Err(Malformed);
        }
        self.take(length).map(<[u8]>::to_vec)
    }

    /// All remaining elements, one after the other; nothing is allocated for elements that are not there.
    fn rest<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let mut list = Vec::new();
        while !self.0.is_empty() {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let (id, kind, mode) = (self.u32()?, self.u8()?, self.u16()?);
        let modified = Modified { seconds: self.u64()? as i64, nanoseconds: self.u32()? };
        if mode > 0o777 || modified.nanoseconds >= 1_000_000_000 {
            return Err(Malformed);
        }
        let path = self.text()?;
        let (kind, keeps) = (kind & !KEEPS, kind & KEEPS != 0);
        let kind = match kind {
            0 => Kind::File(self.u64()?),
            1 => Kind::Directory,
            2 => Kind::Link(self.text()?),
            3 => Kind::Hard(self.text()?),
            _ => return Err(Malformed),
        };
        let more = if keeps { More::read(self)? } else { More::default() };
        Ok(Entry { id, path, mode, modified, kind, more })
    }

    fn file_error(&mut self) -> Result<FileError, Malformed> {
        FileError::numbered(self.u16()?).ok_or(Malformed)
    }

    fn answer(&mut self) -> Result<(u32, Answer), Malformed> {
        let id = self.u32()?;
        let answer = match self.u8()? {
            0 => Answer::Have,
            1 => Answer::Failed(self.file_error()?),
            runs if usize::from(runs) <= RUNS_MAX + 2 => {
                let run = |_| Ok((self.u32()?, self.u32()?));
                Answer::Missing((2..runs).map(run).collect::<Result<_, _>>()?)
            }
            _ => return Err(Malformed),
        };
        Ok((id, answer))
    }

    fn entries(&mut self) -> Result<Vec<Entry>, Malformed> {
        let entries = self.rest(Reader::entry)?;
        if entries.len() > ENTRIES_MAX { Err(Malformed) } else { Ok(entries) }
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text);
}

fn put_flagged(out: &mut Vec<u8>, flag: bool, text: &[u8]) {
    out.push(u8::from(flag));
    put_text(out, text);
}

impl Entry {
    /// Its length in a message, in bytes.
    pub(super) fn length(&self) -> usize {
        let kind = match &self.kind {
            Kind::File(_) => 8,
            Kind::Directory => 0,
            Kind::Link(target) | Kind::Hard(target) => 2 + target.len(),
        };
        21 + self.path.len() + kind + self.more.length()
    }

    fn put(&self, out: &mut Vec<u8>) {
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
        let mut reader = Reader(bytes);
        let message = match reader.u8()? {
            1 => Message::Hello {
                version: reader.u16()?,
                block_log2: reader.u8()?,
                slots: reader.u16()?,
                dry_run: match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                },
                directory: reader.text()?,
            },
            2 => Message::Welcome { memory: RemoteRegion::from_bytes(reader.array()?), slots: reader.u16()? },
            3 => Message::Refused(reader.file_error()?),
            4 => Message::Offer(reader.entries()?),
            5 => Message::Settle(reader.entries()?),
            6 => Message::Answers(reader.rest(Reader::answer)?),
            7 => {
                let (rebuilt, count) = (reader.u64()?, reader.u8()?);
                let freed = (0..count).map(|_| reader.u16()).collect::<Result<_, _>>()?;
                let result = |reader: &mut Reader<'_>| {
                    let (id, number) = (reader.u32()?, reader.u16()?);
                    let file_error = || FileError::numbered(number).ok_or(Malformed);
                    Ok((id, if number == 0 { Ok(()) } else { Err(file_error()?) }))
                };
                Message::Progress { rebuilt, freed, results: reader.rest(result)? }
            }
            8 => Message::List { path: reader.text()?, after: reader.text()? },
            9 => {
                let more = match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                };
                Message::Names { more, names: reader.rest(Reader::flagged)? }
            }
            10 => {
                let paths = reader.rest(Reader::flagged)?;
                if paths.len() > ENTRIES_MAX {
                    return Err(Malformed);
                }
                Message::Remove(paths)
            }
            _ => return Err(Malformed),
        };
        if reader.0.is_empty() { Ok(message) } else { Err(Malformed) }
    }
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
        let mut reader = Reader(parcel);
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
        *parcel = reader.0;
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file_error() -> impl Strategy<Value = FileError> {
        prop_oneof![1u16..20, 256u16..400].prop_map(|number| FileError::numbered(number).expect("a number of one"))
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let kind = prop_oneof![
            any::<u64>().prop_map(Kind::File),
            Just(Kind::Directory),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Kind::Link),
            prop::collection::vec(any::<u8>(), 0..40).prop_map(Kind::Hard)
        ];
        let value = prop::collection::vec(any::<u8>(), 0..20);
        let attributes = prop::collection::vec(("user[.][a-z]{1,8}", value), 0..3);
        let attributes = prop::option::of(attributes.prop_map(|all| {
            all.into_iter().map(|(name, value)| (name.into_bytes(), value)).collect::<Vec<(Vec<u8>, Vec<u8>)>>()
        }));
        let more = (any::<bool>(), prop::option::of(any::<(u32, u32)>()), attributes)
            .prop_map(|(sparse, owner, attributes)| More { sparse, owner, attributes });
        let path = prop::collection::vec(any::<u8>(), 0..60);
        (any::<u32>(), path, 0u16..0o1000, any::<i64>(), 0u32..1_000_000_000, kind, more).prop_map(
            |(id, path, mode, seconds, nanoseconds, kind, more)| {
                let modified = Modified { seconds, nanoseconds };
                Entry { id, path, mode, modified, kind, more }
            },
        )
    }

    fn message() -> impl Strategy<Value = Message> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
        let runs = prop::collection::vec((any::<u32>(), any::<u32>()), 0..=RUNS_MAX);
        let answer =
            prop_oneof![Just(Answer::Have), runs.prop_map(Answer::Missing), file_error().prop_map(Answer::Failed)];
        let result = prop_oneof![Just(Ok(())), file_error().prop_map(Err)];
        prop_oneof![
            (any::<u16>(), any::<u8>(), any::<u16>(), any::<bool>(), bytes(50)).prop_map(
                |(version, block_log2, slots, dry_run, directory)| Message::Hello {
                    version,
                    block_log2,
                    slots,
                    dry_run,
                    directory
                }
            ),
            (any::<u64>(), any::<u64>(), any::<u16>()).prop_map(|(key, bytes, slots)| Message::Welcome {
                memory: RemoteRegion::to_write(key, bytes >> 3),
                slots
            }),
            file_error().prop_map(Message::Refused),
            prop::collection::vec(entry(), 0..9).prop_map(Message::Offer),
            prop::collection::vec(entry(), 0..9).prop_map(Message::Settle),
            prop::collection::vec((any::<u32>(), answer), 0..9).prop_map(Message::Answers),
            (
                any::<u64>(),
                prop::collection::vec(any::<u16>(), 0..9),
                prop::collection::vec((any::<u32>(), result), 0..9)
            )
                .prop_map(|(rebuilt, freed, results)| Message::Progress { rebuilt, freed, results }),
            (bytes(50), bytes(50)).prop_map(|(path, after)| Message::List { path, after }),
            (any::<bool>(), prop::collection::vec((any::<bool>(), bytes(20)), 0..9))
                .prop_map(|(more, names)| Message::Names { more, names }),
            prop::collection::vec((any::<bool>(), bytes(20)), 0..9).prop_map(Message::Remove),
        ]
    }

    proptest! {
        #[test]
        fn written_files_are_read_back(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn the_length_of_an_entry_is_what_it_takes(entry in entry()) {
            let mut out = Vec::new();
            entry.put(&mut out);
            prop_assert_eq!(out.len(), entry.length());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic_and_what_is_read_is_written_alike(message in message(), at: prop::sample::Index, byte: u8) {
            let mut bytes = message.encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(read) = Message::decode(&bytes) {
                prop_assert_eq!(read.encode(), bytes.clone());
            }
            bytes.truncate(at);
            if let Ok(read) = Message::decode(&bytes) {
                prop_assert_eq!(read.encode(), bytes);
            }
        }

        #[test]
        fn a_parcel_is_read_piece_by_piece(lengths in prop::collection::vec(0usize..2_000, 0..6), cut: prop::sample::Index) {
            let contents = vec![7; 2_000];
            let mut parcel = Vec::new();
            let mut pieces = Vec::new();
            for (i, length) in lengths.iter().enumerate() {
                pieces.push(Piece::Block { id: i as u32, offset: 1 << (40 + i), bytes: &contents[..*length] });
                pieces.push(Piece::Zeros { id: i as u32, offset: 1 << i, length: *length as u32 });
                pieces.push(Piece::End { id: i as u32, hash: [i as u8; 32] });
                pieces.push(Piece::Abandon { id: i as u32 });
            }
            pieces.iter().for_each(|piece| piece.put(&mut parcel));
            let mut rest = &parcel[..];
            for piece in &pieces {
                prop_assert_eq!(Piece::next(&mut rest), Ok(Some(*piece)));
            }
            prop_assert_eq!(Piece::next(&mut rest), Ok(None));
            let mut short = &parcel[..if parcel.is_empty() { 0 } else { cut.index(parcel.len()) }];
            while let Ok(Some(_)) = Piece::next(&mut short) {}
        }
    }
}
