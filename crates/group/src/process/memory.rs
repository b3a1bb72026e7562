//! Memory that callers lend to a process until a collective ends. All of this crate's `unsafe` is here.
//!
//! The node that moves bytes lives on a thread of its own, so it cannot borrow. A [`Buffer`] says which side promises
//! that the memory lives and that nothing else touches it: an owner that the buffer carries, or a caller that waits.
#![allow(unsafe_code, reason = "memory of a caller is lent to another thread for the time of a collective")]

use std::any::Any;

/// The bytes for one collective, lent or owned.
pub struct Buffer {
    pub(super) bytes: Bytes,
    /// Keeps the memory alive; dropped when the process is done with it.
    owner: Option<Box<dyn Any + Send>>,
}

pub(super) enum Bytes {
    Read(&'static [u8]),
    Write(&'static mut [u8]),
}

impl Buffer {
    /// Memory that a collective reads.
    ///
    /// # Safety
    /// `length` bytes from `first` on are readable, and nothing writes them, until the work of the collective has
    /// ended, or for as long as `owner` lives.
    pub unsafe fn read(first: *const u8, length: usize, owner: Option<Box<dyn Any + Send>>) -> Buffer {
        if length == 0 {
            return Buffer { bytes: Bytes::Read(&[]), owner };
        }
        // SAFETY: the caller promises that the bytes are there and do not change while the process has the slice.
        let bytes = unsafe { std::slice::from_raw_parts(first, length) };
        Buffer { bytes: Bytes::Read(bytes), owner }
    }

    /// Memory that a collective reads and writes.
    ///
    /// # Safety
    /// `length` bytes from `first` on are readable and writable, and nothing else touches them, until the work of the
    /// collective has ended, or for as long as `owner` lives.
    pub unsafe fn write(first: *mut u8, length: usize, owner: Option<Box<dyn Any + Send>>) -> Buffer {
        if length == 0 {
            return Buffer { bytes: Bytes::Write(&mut []), owner };
        }
        // SAFETY: the caller promises that the bytes are there and the process's alone while it has the slice.
        let bytes = unsafe { std::slice::from_raw_parts_mut(first, length) };
        Buffer { bytes: Bytes::Write(bytes), owner }
    }

    /// A borrowed slice to read, for a caller that waits for the end of the work before it returns.
    pub(super) fn borrow<T: bytemuck::Pod>(slice: &[T]) -> Buffer {
        let bytes: &[u8] = bytemuck::cast_slice(slice);
        // SAFETY: `Group`'s blocking calls, the only ones to call this, return when the work has ended and the process
        // has let go.
        unsafe { Buffer::read(bytes.as_ptr(), bytes.len(), None) }
    }

    /// A borrowed slice to write, for a caller that waits for the end of the work before it returns.
    pub(super) fn borrow_mut<T: bytemuck::Pod>(slice: &mut [T]) -> Buffer {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(slice);
        // SAFETY: as in `borrow`.
        unsafe { Buffer::write(bytes.as_mut_ptr(), bytes.len(), None) }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Read(bytes) => bytes.len(),
            Bytes::Write(bytes) => bytes.len(),
        }
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// May a collective write here?
    pub(super) fn is_writable(&self) -> bool {
        matches!(self.bytes, Bytes::Write(_)) || self.is_empty()
    }

    /// Does it begin at a multiple of `bytes`?
    pub(super) fn is_aligned(&self, bytes: usize) -> bool {
        let first = match &self.bytes {
            Bytes::Read(bytes) => bytes.as_ptr(),
            Bytes::Write(bytes) => bytes.as_ptr(),
        };
        self.is_empty() || first.addr().is_multiple_of(bytes)
    }

    pub(super) fn into_parts(self) -> (Bytes, Option<Box<dyn Any + Send>>) {
        (self.bytes, self.owner)
    }
}
