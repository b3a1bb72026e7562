//! Pointers of C, checked as far as they can be: null and misaligned ones are errors.
#![allow(unsafe_code, reason = "memory of a caller in C is read, written and lent by address")]

use crate::structs::{CEvent, Config, LogFunction};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Arc;
use strandway_mover::{Code, Event, Level, LogSink, MoverError};

fn invalid(what: &str) -> MoverError {
    MoverError::new(Code::Invalid, what.to_string())
}

/// Reads a value; `what` names it in the error.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to a value of the type.
pub(crate) unsafe fn read<T: Copy>(from: *const T, what: &str) -> Result<T, MoverError> {
    if from.is_null() || !from.is_aligned() {
        return Err(invalid(&format!("{what} is no pointer to a value")));
    }
    // SAFETY: the pointer is neither null nor misaligned, and the caller promises the rest.
    Ok(unsafe { from.read() })
}

/// Reads a configuration whose structure may be shorter: the caller was compiled with an older header.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to `size` bytes, and its first field is that size.
pub(crate) unsafe fn read_config(from: *const Config) -> Result<Config, MoverError> {
    // SAFETY: the first field is there in every version of the structure.
    let size = unsafe { read(from.cast::<u32>(), "config") }?;
    if size as usize != size_of::<Config>() {
        let text = format!("sw_config has {size} bytes, but {} here: call sw_config_init", size_of::<Config>());
        return Err(MoverError::new(Code::Version, text));
    }
    // SAFETY: the structure has the size that this library knows.
    unsafe { read(from, "config") }
}

/// Writes a result.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to room for a value of the type.
pub(crate) unsafe fn write<T>(to: *mut T, value: T, what: &str) -> Result<(), MoverError> {
    check(to, what)?;
    // SAFETY: the pointer is neither null nor misaligned, and the caller promises the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Is there a place for a result? Asked before a call does what the result tells of.
pub(crate) fn check<T>(to: *mut T, what: &str) -> Result<(), MoverError> {
    match to.is_null() || !to.is_aligned() {
        true => Err(invalid(&format!("{what} is no pointer to room for the result"))),
        false => Ok(()),
    }
}

/// Copies a text.
///
/// # Safety
/// A pointer that is not null leads to a text with a zero at its end.
pub(crate) unsafe fn text(from: *const c_char, what: &str) -> Result<Option<String>, MoverError> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises that a zero ends it.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(|text| Some(text.to_string())).map_err(|_| invalid(&format!("{what} is not UTF-8")))
}

/// Copies a list of texts, of which there are at most `most`.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to `count` pointers, each as for [`text`].
pub(crate) unsafe fn texts(
    from: *const *const c_char,
    count: usize,
    most: usize,
    what: &str,
) -> Result<Vec<String>, MoverError> {
    if count > most {
        return Err(invalid(&format!("{count} {what}: give at most {most}")));
    }
    if count > 0 {
        // SAFETY: a list that is not empty has a first entry.
        unsafe { read(from, what) }?;
    }
    (0..count)
        .map(|at| {
            // SAFETY: the list has `count` entries, as the caller promises; its beginning is checked.
            let one = unsafe { text(from.add(at).read(), what) }?;
            one.ok_or_else(|| invalid(&format!("entry {at} of {what} is null")))
        })
        .collect()
}

/// Copies bytes, of which there are at most `most`.
///
/// # Safety
/// A pointer that is not null leads to `count` bytes.
pub(crate) unsafe fn bytes(from: *const u8, count: usize, most: usize, what: &str) -> Result<Vec<u8>, MoverError> {
    if from.is_null() || count > most {
        return Err(invalid(&format!("{what}: give a pointer to at most {most} bytes, not {count}")));
    }
    // SAFETY: the pointer is not null, the count is small, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(from, count) }.to_vec())
}

/// Copies a list of values, of which there are at most `most`.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to `count` values.
pub(crate) unsafe fn values<T: Copy>(
    from: *const T,
    count: usize,
    most: usize,
    what: &str,
) -> Result<Vec<T>, MoverError> {
    if from.is_null() || !from.is_aligned() || count > most {
        return Err(invalid(&format!("{what}: give a pointer to at most {most} values, not {count}")));
    }
    // SAFETY: the pointer is neither null nor misaligned, the count is small, and the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(from, count) }.to_vec())
}

/// Writes a text with a zero at its end into `capacity` bytes.
///
/// # Safety
/// A pointer that is not null leads to room for `capacity` bytes.
pub(crate) unsafe fn write_text(to: *mut c_char, capacity: usize, text: &str) -> Result<(), MoverError> {
    check(to, "text")?;
    if text.len() >= capacity {
        return Err(invalid(&format!("the text needs {} bytes, but has room for {capacity}", text.len() + 1)));
    }
    // SAFETY: the text and its zero fit the room, and lie elsewhere.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Writes events.
///
/// # Safety
/// The pointer leads to room for all of them.
pub(crate) unsafe fn write_events(to: *mut CEvent, events: Vec<Event>) {
    for (at, event) in events.into_iter().enumerate() {
        // SAFETY: the room has that many entries.
        unsafe { to.add(at).write(event.into()) };
    }
}

/// Memory of the caller, for the node to read and write until it is released.
///
/// # Safety
/// The bytes are there until they are released or the node is closed, and the caller touches none of them while an
/// operation or a peer's write uses it. No part of them was lent before.
pub(crate) unsafe fn borrow(from: *mut c_void, length: usize) -> &'static mut [u8] {
    // SAFETY: the mover has checked that address and length are not zero, that the length is no more than `isize::MAX`,
    // and that no byte is lent twice. The program in C promises the rest: see strandway.h.
    unsafe { std::slice::from_raw_parts_mut(from.cast(), length) }
}

/// Memory of the caller, for the node to read until it is released.
///
/// # Safety
/// The bytes are there until they are released or the node is closed, and do not change while an operation uses them.
pub(crate) unsafe fn show(from: *const c_void, length: usize) -> &'static [u8] {
    // SAFETY: as for memory that may be written; see strandway.h.
    unsafe { std::slice::from_raw_parts(from.cast(), length) }
}

/// The first argument of a function for the log.
struct Context(*mut c_void);

// SAFETY: the library only hands the pointer back; the header says that the function is called from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A method, so that closures take the whole value.
    const fn get(&self) -> *mut c_void {
        self.0
    }
}

/// The function of the caller that takes lines of the log.
pub(crate) fn log_sink(function: LogFunction, context: *mut c_void) -> Option<LogSink> {
    let (function, context) = (function?, Context(context));
    Some(LogSink(Arc::new(move |level: Level, line: &str| {
        let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the header asks for a function that can be called from any thread until the node is closed, and does
        // not throw.
        unsafe { function(context.get(), level as u32, line.as_ptr()) };
    })))
}
