//! The nodes of the process by number, and the texts of codes.

use std::ffi::{CString, c_char};
use std::sync::LazyLock;
use strandway_ffi::{Failure, Handles};
use strandway_mover::{Code, Mover, MoverError};

/// The nodes of the process.
pub(crate) static NODES: Handles<Mover> = Handles::new(Code::NoNode as i32);

/// The texts of all codes, in the order of their numbers.
static TEXTS: LazyLock<Vec<CString>> =
    LazyLock::new(|| Code::ALL.iter().map(|code| CString::new(code.text()).unwrap_or_default()).collect());

/// Runs a call: its code. A panic is an error like others.
pub(crate) fn run(call: impl FnOnce() -> Result<(), MoverError>) -> i32 {
    strandway_ffi::run(Code::Internal as i32, || call().map_err(Failure::from))
}

/// The text of a code.
pub(crate) fn error_text(code: i32) -> *const c_char {
    let at = usize::try_from(code.unsigned_abs()).ok().filter(|_| code <= 0);
    at.and_then(|at| TEXTS.get(at)).map_or(c"an unknown code".as_ptr(), |text| text.as_ptr())
}
