//! Systems without the commands for real hosts.

use crate::Failure;
use crate::args::Command;

/// Refuses a command for real hosts: it needs sockets and namespaces of Linux.
pub(crate) fn execute(_: &Command) -> Result<(), Failure> {
    let wanted = crate::invocation::arguments().first().map(|word| word.to_string_lossy()).unwrap_or_default();
    Err(Failure::Usage(format!(
        "`{wanted}` works on Linux only: real hosts need its sockets; run, compare, sweep, search, explain, import, reproduce and model work here"
    )))
}
