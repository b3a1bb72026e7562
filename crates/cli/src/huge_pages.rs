//! Simulations in huge pages: a run touches megabytes in every window of a microsecond, and pages of 4 KiB cost it a
//! tenth of its time and more in look-ups of addresses (`docs/measurements/simulator.md`, "Memory").
//!
//! Where the kernel gives huge pages only to programs that ask for them (`madvise`), glibc's allocator asks if a
//! variable of the environment tells it to at the start of the process. So a command that simulates starts itself once
//! more with this variable.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use strandway_udp::doctor::{Finding, Verdict};

/// The variable that glibc reads: `man 7 ld.so`, and the manual of the GNU C Library, "Memory Allocation Tunables".
const VARIABLE: &str = "GLIBC_TUNABLES";

/// The tunable, and its value: ask for transparent huge pages.
const TUNABLE: &str = "glibc.malloc.hugetlb";
const ASK: &str = "glibc.malloc.hugetlb=1";

/// The kernel's setting, such as `always [madvise] never`.
fn kernel() -> Option<String> {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()
}

/// The new value of the variable; `None` if it is no use, or if the user has set the tunable.
fn asking(kernel: &str, present: Option<OsString>) -> Option<OsString> {
    let useful = cfg!(target_env = "gnu") && kernel.contains("[madvise]");
    let mut present = present.unwrap_or_default();
    if !useful || present.to_string_lossy().contains(TUNABLE) {
        return None;
    }
    if !present.is_empty() {
        present.push(":");
    }
    present.push(ASK);
    Some(present)
}

/// Starts this process once more, with an allocator that asks for huge pages, if that is of use. Returns if it is not,
/// or fails.
pub(crate) fn restart() {
    let Some(value) = kernel().and_then(|kernel| asking(&kernel, env::var_os(VARIABLE))) else { return };
    let Some((program, words)) = crate::invocation::again() else { return };
    // Without huge pages a run only takes longer.
    let _ = Command::new(program).args(words).env(VARIABLE, value).exec();
}

/// The line of `strandway doctor` about them.
pub(crate) fn finding() -> Finding {
    let what = "huge pages for simulations";
    let slow = |value: &str, advice: &str| Finding {
        what,
        value: value.to_string(),
        verdict: Verdict::Slow,
        advice: advice.to_string(),
    };
    let good = |value: &str| Finding { what, value: value.to_string(), verdict: Verdict::Good, advice: String::new() };
    let allow =
        "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` as root: simulations take a tenth less time";
    match kernel() {
        None => slow("this kernel has none", ""),
        Some(kernel) if kernel.contains("[always]") => good("the kernel gives them to every program"),
        Some(kernel) if !kernel.contains("[madvise]") => slow("off in the kernel", allow),
        Some(_) if !cfg!(target_env = "gnu") => slow("this build's C library does not ask for them", ""),
        Some(_) => match env::var(VARIABLE) {
            Ok(set) if set.contains(TUNABLE) && !set.contains(ASK) => {
                slow(&format!("{VARIABLE}={set} turns them off"), &format!("unset {VARIABLE}"))
            }
            _ => good("simulations ask the kernel for them"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_starts_again_only_where_the_kernel_waits_to_be_asked_and_the_user_has_not_decided() {
        let asked = |kernel: &str, present: Option<&str>| {
            let value = asking(kernel, present.map(OsString::from))?;
            Some(value.into_string().expect("ASCII"))
        };
        let waits = "always [madvise] never\n";
        assert_eq!(asked(waits, None).as_deref(), Some(ASK));
        let other = "glibc.malloc.arena_max=2";
        assert_eq!(asked(waits, Some(other)), Some(format!("{other}:{ASK}")));
        // Once more would be for ever.
        assert_eq!(asked(waits, Some(ASK)), None);
        assert_eq!(asked(waits, Some("glibc.malloc.hugetlb=0")), None);
        assert_eq!(asked("[always] madvise never\n", None), None);
        assert_eq!(asked("always madvise [never]\n", None), None);
    }
}
