//! The nodes of the process by number, and the text of the last error of each thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use strandway_mover::{Code, Mover, MoverError};

static NODES: RwLock<Option<HashMap<u64, Arc<Mover>>>> = RwLock::new(None);
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The texts of all codes, in the order of their numbers.
static TEXTS: LazyLock<Vec<CString>> =
    LazyLock::new(|| Code::ALL.iter().map(|code| CString::new(code.text()).unwrap_or_default()).collect());

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Takes a node in and gives it a number.
pub(crate) fn add(node: Mover) -> u64 {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let mut nodes = NODES.write().unwrap_or_else(PoisonError::into_inner);
    nodes.get_or_insert_default().insert(number, Arc::new(node));
    number
}

/// The node with this number.
pub(crate) fn find(number: u64) -> Result<Arc<Mover>, MoverError> {
    let nodes = NODES.read().unwrap_or_else(PoisonError::into_inner);
    nodes.as_ref().and_then(|nodes| nodes.get(&number)).cloned().ok_or_else(|| MoverError::of(Code::NoNode))
}

/// Takes a node out.
pub(crate) fn remove(number: u64) -> Result<Arc<Mover>, MoverError> {
    let mut nodes = NODES.write().unwrap_or_else(PoisonError::into_inner);
    nodes.as_mut().and_then(|nodes| nodes.remove(&number)).ok_or_else(|| MoverError::of(Code::NoNode))
}

/// Runs a call: its code, with the text kept for [`last_error`]. A panic is an error like others.
pub(crate) fn run(call: impl FnOnce() -> Result<(), MoverError>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(MoverError::of(Code::Internal)));
    let Err(error) = outcome else { return Code::Ok as i32 };
    // A thread that ends has no text any more.
    let _ = LAST.try_with(|last| {
        let text = CString::new(error.text.replace('\0', " ")).unwrap_or_default();
        last.replace(text);
    });
    error.code as i32
}

/// The text of the last call of this thread that failed; empty before the first.
pub(crate) fn last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The text of a code.
pub(crate) fn error_text(code: i32) -> *const c_char {
    let at = usize::try_from(code.unsigned_abs()).ok().filter(|_| code <= 0);
    at.and_then(|at| TEXTS.get(at)).map_or(c"an unknown code".as_ptr(), |text| text.as_ptr())
}
