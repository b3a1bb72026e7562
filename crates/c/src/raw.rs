//! Pointers of C, checked as far as they can be: null and misaligned ones are errors.
#![allow(unsafe_code, reason = "memory of a caller in C is read, written and lent by address")]

use crate::named::Settings;
use crate::structs::{CEvent, CSetting, Config, LogFunction};
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use strandway_ffi::pointers;
pub(crate) use strandway_ffi::pointers::{bytes, check, read, text, texts, values};
use strandway_mover::{Code, Event, Level, LogSink, MoverError};

/// The most settings of one call; ours, more than there are names.
const SETTINGS_MAX: usize = 64;

/// Writes a result.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to room for a value of the type.
pub(crate) unsafe fn write<T>(to: *mut T, value: T, what: &str) -> Result<(), MoverError> {
    // SAFETY: as the caller promises.
    Ok(unsafe { pointers::write(to, value, what) }?)
}

/// Writes a text with a zero at its end into `capacity` bytes.
///
/// # Safety
/// A pointer that is not null leads to room for `capacity` bytes.
pub(crate) unsafe fn write_text(to: *mut c_char, capacity: usize, text: &str) -> Result<(), MoverError> {
    // SAFETY: as the caller promises.
    Ok(unsafe { pointers::write_text(to, capacity, text) }?)
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
    Ok(unsafe { read(from, "config") }?)
}

/// Copies settings.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to `count` settings, each with pointers to texts or null.
pub(crate) unsafe fn settings(from: *const CSetting, count: usize) -> Result<Settings, MoverError> {
    if count == 0 {
        return Ok(Settings::new());
    }
    // SAFETY: as the caller promises, here and for the texts.
    let all = unsafe { values(from, count, SETTINGS_MAX, "settings") }?;
    let one = |setting: CSetting| {
        // SAFETY: as above.
        let (name, value) = unsafe { (text(setting.name, "a setting's name")?, text(setting.value, "a setting")?) };
        Ok((name.unwrap_or_default(), value.unwrap_or_default()))
    };
    all.into_iter().map(one).collect()
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
