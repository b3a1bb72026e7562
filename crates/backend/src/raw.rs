//! Pointers of C, checked as far as they can be: null and misaligned ones are errors.
#![allow(unsafe_code, reason = "memory of a caller in C is read and written by address")]

use crate::registry::Failure;
use crate::structs::{CEvent, Handler, INVALID};
use std::ffi::{CStr, c_char, c_void};

fn invalid(what: &str) -> Failure {
    Failure(INVALID, what.to_string())
}

/// Is there a place for a result? Asked before a call does what the result tells of.
pub(crate) fn check<T>(to: *mut T, what: &str) -> Result<(), Failure> {
    match to.is_null() || !to.is_aligned() {
        true => Err(invalid(&format!("{what} is no pointer to room for the result"))),
        false => Ok(()),
    }
}

/// Writes a result.
///
/// # Safety
/// A pointer that is neither null nor misaligned leads to room for a value of the type.
pub(crate) unsafe fn write<T>(to: *mut T, value: T, what: &str) -> Result<(), Failure> {
    check(to, what)?;
    // SAFETY: the pointer is neither null nor misaligned, and the caller promises the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Copies a text.
///
/// # Safety
/// A pointer that is not null leads to a text with a zero at its end.
pub(crate) unsafe fn text(from: *const c_char, what: &str) -> Result<String, Failure> {
    if from.is_null() {
        return Err(invalid(&format!("{what} is a null pointer")));
    }
    // SAFETY: the caller promises that a zero ends it.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map(str::to_string).map_err(|_| invalid(&format!("{what} is not UTF-8")))
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
) -> Result<Vec<String>, Failure> {
    if count > most || (count > 0 && (from.is_null() || !from.is_aligned())) {
        return Err(invalid(&format!("{what}: give a pointer to at most {most} texts, not {count}")));
    }
    // SAFETY: the list has `count` entries, as the caller promises; its beginning is checked.
    (0..count).map(|at| unsafe { text(from.add(at).read(), what) }).collect()
}

/// The function of the caller that answers events, with its first argument.
pub(crate) struct Answers {
    function: unsafe extern "C" fn(*mut c_void, *const CEvent),
    context: *mut c_void,
}

// SAFETY: the library hands the pointer back on the thread that called, and on no other.
unsafe impl Send for Answers {}

impl Answers {
    /// The caller's function; none is an error.
    pub(crate) fn new(handler: Handler, context: *mut c_void) -> Result<Answers, Failure> {
        let function = handler.ok_or_else(|| invalid("handler is a null pointer"))?;
        Ok(Answers { function, context })
    }

    /// Lets the caller answer an event.
    pub(crate) fn answer(&self, event: &CEvent) {
        // SAFETY: the header asks for a function that takes these arguments and does not throw.
        unsafe { (self.function)(self.context, event) };
    }
}
