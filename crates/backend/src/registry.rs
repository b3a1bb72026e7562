//! The labs of the process by number.

use crate::structs::{INTERNAL, NO_LAB};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strandway_ffi::{Failure, Handles};
use strandway_lab::Lab;
use strandway_lab::live::{LiveOutcome, Steps};

/// A lab of the process.
pub(crate) struct Entry {
    pub(crate) lab: Lab,
    /// The run, for a caller that asks for one event after the other.
    pub(crate) steps: Mutex<Option<Steps>>,
    pub(crate) done: Mutex<Option<LiveOutcome>>,
}

/// The labs of the process.
pub(crate) static LABS: Handles<Entry> = Handles::new(NO_LAB);

pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lab in and gives it a number.
pub(crate) fn add(lab: Lab) -> u64 {
    LABS.add(Entry { lab, steps: Mutex::default(), done: Mutex::default() })
}

/// Runs a call: its code. A panic is an error like others.
pub(crate) fn run(call: impl FnOnce() -> Result<(), Failure>) -> i32 {
    strandway_ffi::run(INTERNAL, call)
}
