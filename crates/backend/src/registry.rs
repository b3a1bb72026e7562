//! The labs of the process by number, and the text of the last error of each thread.

use crate::structs::{INTERNAL, NO_LAB, OK};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use strandway_lab::Lab;
use strandway_lab::live::{LiveOutcome, Steps};

/// Why a call failed: its code and a text.
pub(crate) struct Failure(pub(crate) i32, pub(crate) String);

/// A lab of the process.
pub(crate) struct Entry {
    pub(crate) lab: Lab,
    /// The run, for a caller that asks for one event after the other.
    pub(crate) steps: Mutex<Option<Steps>>,
    pub(crate) done: Mutex<Option<LiveOutcome>>,
}

static LABS: RwLock<Option<HashMap<u64, Arc<Entry>>>> = RwLock::new(None);
static NUMBERS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_lab(number: u64) -> Failure {
    Failure(NO_LAB, format!("no lab has the handle {number}"))
}

/// Takes a lab in and gives it a number.
pub(crate) fn add(lab: Lab) -> u64 {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let entry = Entry { lab, steps: Mutex::default(), done: Mutex::default() };
    let mut labs = LABS.write().unwrap_or_else(PoisonError::into_inner);
    labs.get_or_insert_default().insert(number, Arc::new(entry));
    number
}

/// The lab with this number.
pub(crate) fn find(number: u64) -> Result<Arc<Entry>, Failure> {
    let labs = LABS.read().unwrap_or_else(PoisonError::into_inner);
    labs.as_ref().and_then(|labs| labs.get(&number)).cloned().ok_or_else(|| no_lab(number))
}

/// Takes a lab out.
pub(crate) fn remove(number: u64) -> Result<Arc<Entry>, Failure> {
    let mut labs = LABS.write().unwrap_or_else(PoisonError::into_inner);
    labs.as_mut().and_then(|labs| labs.remove(&number)).ok_or_else(|| no_lab(number))
}

/// Runs a call: its code, with the text kept for [`last_error`]. A panic is an error like others.
pub(crate) fn run(call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let panicked = |_| Err(Failure(INTERNAL, "the library failed: please report it".to_string()));
    let Err(Failure(code, text)) = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked) else { return OK };
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| last.replace(CString::new(text.replace('\0', " ")).unwrap_or_default()));
    code
}

/// The text of the last call of this thread that failed; empty before the first.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
