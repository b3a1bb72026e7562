//! Memory that processes of one host share: written by the process that made it, and only read by the others.
//!
//! All of this crate's `unsafe` for shared memory is here. Another process may write a peer's memory at any moment, so
//! it is read by atomic operations only, never by reference, and each call checks its bounds. The kernel keeps the
//! promises that the checks rely on: a seal forbids to shorten the memory, and so to take pages away under a reader;
//! another one forbids everybody but the maker to write.
#![allow(unsafe_code, reason = "memory is mapped that other processes of this host read or write")]

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The seals of all memory that is shared here.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);
const WORD: usize = size_of::<u64>();

/// A mapped range of memory.
struct Mapping {
    first: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and other threads may use it as well as the one that made it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd, length: usize, protection: ProtFlags) -> Result<Mapping, Errno> {
        // SAFETY: the kernel chooses the place, so no memory in use is replaced.
        let first = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        Ok(Mapping { first: NonNull::new(first.cast()).ok_or(Errno::NOMEM)?, length })
    }

    /// The place of `length` bytes from `at` on.
    ///
    /// # Panics
    /// If they do not lie within.
    #[inline]
    fn at(&self, at: usize, length: usize) -> *mut u8 {
        assert!(at <= self.length && length <= self.length - at, "{length} bytes at {at} of {}", self.length);
        // SAFETY: the place lies within the mapping, or at its end.
        unsafe { self.first.as_ptr().add(at) }
    }

    /// A word of 8 bytes.
    #[inline]
    fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(WORD), "words are aligned");
        // SAFETY: the word lies within the mapping, is aligned, and is used by atomic operations only.
        unsafe { AtomicU64::from_ptr(self.at(at, WORD).cast()) }
    }

    /// A word of 4 bytes.
    #[inline]
    fn short(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "words are aligned");
        // SAFETY: as in `long`.
        unsafe { AtomicU32::from_ptr(self.at(at, 4).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and no reference to it is left.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast::<c_void>(), self.length) };
    }
}

/// Memory that this process writes, and that its peers read.
pub(super) struct Ours(Mapping);

impl Ours {
    /// New memory, and its file for the peers. All pages are there, so that a lack of memory shows here and not as the
    /// end of the process.
    pub(super) fn new(length: usize) -> Result<(OwnedFd, Ours), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match rustix::fs::memfd_create("strandway", flags | MemfdFlags::NOEXEC_SEAL) {
            // Kernels before 6.3 do not know this flag.
            Err(Errno::INVAL) => rustix::fs::memfd_create("strandway", flags)?,
            other => other?,
        };
        // Beyond the limit of files the kernel also sends a signal, which ends programs that do not expect it.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| length as u64 > most) {
            return Err(Errno::FBIG);
        }
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length as u64)?;
        let mapping = Mapping::new(&file, length, ProtFlags::READ | ProtFlags::WRITE)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        Ok((file, Ours(mapping)))
    }

    /// Sets a word that peers read; they see everything that was written before.
    #[inline]
    pub(super) fn publish(&self, at: usize, word: u64) {
        self.0.long(at).store(word, Ordering::Release);
    }

    /// As [`Ours::publish`], 4 bytes.
    #[inline]
    pub(super) fn publish_short(&self, at: usize, word: u32) {
        self.0.short(at).store(word, Ordering::Release);
    }

    /// Writes bytes.
    #[inline]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: the target lies within the mapping, and only this process writes it. A slice of Rust's cannot overlap
        // it, because none is ever made of it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.at(at, bytes.len()), bytes.len()) };
    }
}

/// Memory that a peer writes at any time.
pub(super) struct Theirs(Mapping);

impl Theirs {
    /// Maps a peer's memory; `None` if it is not what [`Ours::new`] makes, of one of these lengths.
    pub(super) fn open(file: &OwnedFd, fits: impl Fn(usize) -> bool) -> Option<Theirs> {
        let stat = rustix::fs::fstat(file).ok()?;
        let length = usize::try_from(stat.st_size).ok().filter(|length| fits(*length))?;
        // Memory in huge pages, which may be lacking at the first access, has blocks of their size.
        let plain = stat.st_blksize as usize == rustix::param::page_size();
        if !plain || !rustix::fs::fcntl_get_seals(file).ok()?.contains(SEALS) {
            return None;
        }
        Mapping::new(file, length, ProtFlags::READ).ok().map(Theirs)
    }

    pub(super) const fn length(&self) -> usize {
        self.0.length
    }

    /// A word that the peer has published, with everything that it wrote before.
    #[inline]
    pub(super) fn word(&self, at: usize) -> u64 {
        self.0.long(at).load(Ordering::Acquire)
    }

    /// As [`Theirs::word`], 4 bytes.
    #[inline]
    pub(super) fn short_word(&self, at: usize) -> u32 {
        self.0.short(at).load(Ordering::Acquire)
    }

    /// Copies bytes out, from a place that is a multiple of 8. The peer may change them meanwhile; then they are any
    /// bytes.
    ///
    /// # Panics
    /// If they do not lie within.
    #[inline]
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        let words = into.len().div_ceil(WORD);
        assert!(at.is_multiple_of(WORD), "words are aligned");
        let first = self.0.at(at, words * WORD).cast::<u64>();
        // SAFETY: the words lie within the mapping, are aligned, and are read by atomic operations only.
        let load = |word: usize| unsafe { AtomicU64::from_ptr(first.add(word)) }.load(Ordering::Relaxed).to_ne_bytes();
        let (whole, rest) = into.as_chunks_mut::<WORD>();
        let count = whole.len();
        for (word, bytes) in whole.iter_mut().enumerate() {
            *bytes = load(word);
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&load(count)[..rest.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4_096;

    #[test]
    fn a_peer_reads_what_was_written_and_can_neither_write_nor_shorten_it() {
        let (file, mut ours) = Ours::new(2 * PAGE).expect("memory");
        let theirs = Theirs::open(&file, |length| length == 2 * PAGE).expect("as it was made");
        let bytes: Vec<u8> = (0..5_003).map(|i| (i % 251) as u8).collect();
        ours.write(64, &bytes);
        ours.publish(8, 77);
        ours.publish_short(4, 5);
        let mut read = vec![0; bytes.len()];
        theirs.read(64, &mut read);
        assert_eq!((theirs.word(8), theirs.short_word(4), read), (77, 5, bytes));
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "sealed");
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err(), "sealed");
        assert!(Mapping::new(&file, PAGE, ProtFlags::READ | ProtFlags::WRITE).is_err(), "sealed");
    }

    #[test]
    fn memory_that_its_maker_could_shorten_is_refused() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).expect("memory");
        rustix::fs::ftruncate(&file, PAGE as u64).expect("long enough");
        assert!(Theirs::open(&file, |_| true).is_none(), "no seals");
        rustix::fs::fcntl_add_seals(&file, SEALS).expect("sealed");
        assert!(Theirs::open(&file, |_| true).is_some());
        assert!(Theirs::open(&file, |length| length > PAGE).is_none(), "another length");
        let plain: OwnedFd = tempfile::tempfile().expect("a file").into();
        assert!(Theirs::open(&plain, |_| true).is_none(), "no memory");
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn a_read_beyond_the_end_is_a_defect_of_ours() {
        let (file, _ours) = Ours::new(PAGE).expect("memory");
        let theirs = Theirs::open(&file, |_| true).expect("as it was made");
        theirs.read(PAGE - 8, &mut [0; 9]);
    }
}
