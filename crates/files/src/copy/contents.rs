//! The bytes of a file on their way from the disk, and to it: past the page cache if that is wanted, and around pages of
//! zeros.

use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a page of zeros that is left out of a file with holes. Memory, offset and length of a write past the page
/// cache are multiples of it, too: no disk has larger sectors.
pub(super) const PAGE: usize = 4096;
/// The least bytes of a block that is hashed while it is written; ours: the thread that hashes costs about 30 us.
const BESIDE_MIN: usize = 1 << 20;

/// A file that is written by blocks.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) file: File,
    /// The same file, opened with O_DIRECT.
    direct: Option<File>,
}

impl Contents {
    pub(super) const fn new(file: File) -> Contents {
        Contents { file, direct: None }
    }

    /// Writes past the page cache where that is possible. `name` is the file's in `folder`.
    pub(super) fn past_the_cache(self, folder: &OwnedFd, name: &str) -> Contents {
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let same = |direct: &OwnedFd| {
            let of = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
            matches!((rustix::fs::fstat(direct), rustix::fs::fstat(&self.file)), (Ok(a), Ok(b)) if of(a) == of(b))
        };
        // File systems without O_DIRECT refuse it.
        let direct = rustix::fs::openat(folder, name, flags, Mode::empty()).ok().filter(same).map(File::from);
        Contents { direct, ..self }
    }

    /// Writes all bytes.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let aligned = bytes.as_ptr().align_offset(PAGE) == 0 && bytes.len().is_multiple_of(PAGE);
        if let Some(direct) = self.direct.as_ref().filter(|_| aligned && offset.is_multiple_of(PAGE as u64)) {
            match direct.write_all_at(bytes, offset) {
                // The disk wants another alignment, or wrote a part that ends within a page.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                other => return other,
            }
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Writes the pages that are not all zero.
    pub(super) fn write_around_zeros(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let pages = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        let mut run: Option<(usize, usize)> = None;
        let write = |(from, until): (usize, usize)| self.file.write_all_at(&bytes[from..until], offset + from as u64);
        for (place, page) in pages {
            let (from, until) = (place * PAGE, place * PAGE + page.len());
            run = match run {
                Some((first, end)) if end == from => Some((first, until)),
                Some(before) => {
                    write(before)?;
                    Some((from, until))
                }
                None => Some((from, until)),
            };
        }
        run.map_or(Ok(()), write)
    }
}

/// Bytes to leave free at the beginning of `buffer`, so that the byte `head` bytes behind them begins a page.
pub(super) fn padding(buffer: &[u8], head: usize) -> usize {
    buffer.as_ptr().wrapping_add(head).align_offset(PAGE)
}

/// Appends `length` bytes of a file from `offset` on, into memory that need not be zeroed before.
pub(super) fn append(file: &File, offset: u64, length: usize, to: &mut Vec<u8>) -> io::Result<()> {
    let start = to.len();
    to.reserve(length);
    while to.len() < start + length {
        let at = offset + (to.len() - start) as u64;
        match rustix::io::pread(file, spare_capacity(to), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    to.truncate(start + length);
    Ok(())
}

/// The results of `hash` and `write`, which work on `bytes` bytes; if these are many, at the same time.
pub(super) fn both<A: Send, B>(bytes: usize, hash: impl Fn() -> A + Sync, write: impl FnOnce() -> B) -> (A, B) {
    if bytes < BESIDE_MIN {
        return (hash(), write());
    }
    std::thread::scope(|scope| {
        let hashing = std::thread::Builder::new().name("hash".into()).spawn_scoped(scope, &hash);
        let written = write();
        // Without a thread it is computed here.
        let hashed = hashing.ok().and_then(|thread| thread.join().ok());
        (hashed.unwrap_or_else(&hash), written)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_past_the_page_cache_and_through_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("file");
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).expect("a file");
        let at = OwnedFd::from(File::open(folder.path()).expect("a folder"));
        let contents = Contents::new(open()).past_the_cache(&at, "file");
        let mut buffer = Vec::with_capacity(4 * PAGE);
        let pad = padding(&buffer, 0);
        buffer.resize(pad, 0);
        buffer.extend((0..3 * PAGE).map(|i| (i * 7) as u8));
        let bytes = &buffer[pad..];
        assert_eq!(bytes.as_ptr().align_offset(PAGE), 0);
        contents.write(0, bytes).expect("whole pages");
        contents.write(3 * PAGE as u64, &bytes[..100]).expect("a part of a page");
        contents.write(5, &bytes[PAGE..][..10]).expect("in the middle");
        let mut wanted = [bytes, &bytes[..100]].concat();
        wanted[5..15].copy_from_slice(&bytes[PAGE..][..10]);
        assert_eq!(std::fs::read(&path).expect("the file"), wanted);
    }

    #[test]
    fn another_file_of_the_name_is_not_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = |name| File::create(folder.path().join(name)).expect("a file");
        let (ours, _other) = (file("ours"), file("other"));
        let at = OwnedFd::from(File::open(folder.path()).expect("a folder"));
        assert!(Contents::new(ours).past_the_cache(&at, "other").direct.is_none());
    }

    #[test]
    fn a_large_block_is_hashed_while_it_is_written() {
        for bytes in [10, BESIDE_MIN] {
            let mut written = 0;
            let (hashed, ()) = both(bytes, || bytes + 1, || written = bytes);
            assert_eq!((hashed, written), (bytes + 1, bytes));
        }
    }
}
