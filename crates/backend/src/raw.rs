//! Pointers of C, checked as far as they can be: null and misaligned ones are errors.
#![allow(unsafe_code, reason = "memory of a caller in C is read and written by address")]

use crate::structs::{CEvent, Handler};
use std::ffi::{c_char, c_void};
use strandway_ffi::Failure;
use strandway_ffi::pointers;
pub(crate) use strandway_ffi::pointers::{check, texts, write};

/// Copies a text.
///
/// # Safety
/// A pointer that is not null leads to a text with a zero at its end.
pub(crate) unsafe fn text(from: *const c_char, what: &str) -> Result<String, Failure> {
    // SAFETY: the caller promises that a zero ends it.
    let text = unsafe { pointers::text(from, what) }?;
    text.ok_or_else(|| Failure::invalid(format!("{what} is a null pointer")))
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
        let function = handler.ok_or_else(|| Failure::invalid("handler is a null pointer"))?;
        Ok(Answers { function, context })
    }

    /// Lets the caller answer an event.
    pub(crate) fn answer(&self, event: &CEvent) {
        // SAFETY: the header asks for a function that takes these arguments and does not throw.
        unsafe { (self.function)(self.context, event) };
    }
}
