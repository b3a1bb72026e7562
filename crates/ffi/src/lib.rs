#![doc = include_str!("../README.md")]

pub mod pointers;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The code of a call that succeeded.
pub const OK: i32 = 0;
/// The code of a call with a wrong argument.
pub const INVALID: i32 = -1;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its code, as the header names it.
    pub code: i32,
    /// One line for people.
    pub text: String,
}

impl Failure {
    /// A failure with this code.
    pub fn new(code: i32, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into() }
    }

    /// An argument is wrong.
    pub fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(INVALID, text)
    }
}

/// Values of a process by number. No number is used twice.
#[derive(Debug)]
pub struct Handles<T> {
    values: RwLock<Option<HashMap<u64, Arc<T>>>>,
    next: AtomicU64,
    missing: i32,
}

impl<T> Handles<T> {
    /// No values. `missing` is the code of a call with a number that no value has.
    pub const fn new(missing: i32) -> Handles<T> {
        Handles { values: RwLock::new(None), next: AtomicU64::new(1), missing }
    }

    /// Takes a value in and gives it a number.
    pub fn add(&self, value: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.get_or_insert_default().insert(number, Arc::new(value));
        number
    }

    /// The value with this number.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, number: u64) -> Result<Arc<T>, Failure> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        values.as_ref().and_then(|values| values.get(&number)).cloned().ok_or_else(|| self.none(number))
    }

    /// Takes a value out.
    ///
    /// # Errors
    /// If there is none.
    pub fn remove(&self, number: u64) -> Result<Arc<T>, Failure> {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.as_mut().and_then(|values| values.remove(&number)).ok_or_else(|| self.none(number))
    }

    fn none(&self, number: u64) -> Failure {
        Failure::new(self.missing, format!("nothing has the handle {number}: it was never opened, or it was closed"))
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call: its code, with the text kept for [`last_error`]. A panic is an error like others, with the code
/// `internal`.
pub fn run(internal: i32, call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let panicked = |_| Err(Failure::new(internal, "the library failed: please report it"));
    let Err(Failure { code, text }) = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked) else { return OK };
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| last.replace(CString::new(text.replace('\0', " ")).unwrap_or_default()));
    code
}

/// The text of the last call of this thread that failed; empty before the first.
pub fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
