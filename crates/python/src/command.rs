//! The command line: `python -m strandway`, and the script `strandway` that the wheel installs.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command line, and returns its exit status. `program`: the words that start Python with the command once
/// more; `arguments`: those of the command. The caller has given SIGINT back to the system, and calls this once.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, program: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    // A panic in any thread ends the program, as it ends the one without Python.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
    py.detach(|| strandway_cli::run(program, arguments))
}
