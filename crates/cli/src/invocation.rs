//! How this program was started, so that it can start itself again: with huge pages, or to carry the long links of a
//! fabric. The path of the process does not say it where the program is `python -m strandway`.

#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::sync::OnceLock;

static INVOCATION: OnceLock<Invocation> = OnceLock::new();

struct Invocation {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only commands of Linux start the program again"))]
    program: Vec<OsString>,
    arguments: Vec<OsString>,
}

/// Remembers both; the first call counts.
pub(crate) fn remember(program: Vec<OsString>, arguments: Vec<OsString>) {
    let _ = INVOCATION.set(Invocation { program, arguments });
}

/// The words that start this program, without arguments; empty if they are unknown.
#[cfg(target_os = "linux")]
pub(crate) fn program() -> &'static [OsString] {
    INVOCATION.get().map_or(&[], |invocation| &invocation.program)
}

/// The words after the name of the program.
pub(crate) fn arguments() -> &'static [OsString] {
    INVOCATION.get().map_or(&[], |invocation| &invocation.arguments)
}

/// The program and the words with which it does the same once more. `None` if they are unknown.
#[cfg(target_os = "linux")]
pub(crate) fn again() -> Option<(&'static OsStr, impl Iterator<Item = &'static OsString>)> {
    let (first, rest) = program().split_first()?;
    Some((first, rest.iter().chain(arguments())))
}
