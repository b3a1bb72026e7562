//! Simulations in huge pages: a run touches megabytes in every window of a microsecond, and pages of 4 KiB cost it a
//! tenth of its time and more in look-ups of addresses (`docs/measurements/simulator.md`, "Memory").
//!
//! Where the kernel gives huge pages only to programs that ask for them (`madvise`), glibc's allocator asks if a
//! [setting](crate::glibc) says so.

use crate::glibc::{Tunable, VARIABLE};
use std::env;
use std::fs;
use strandway_udp::doctor::{Finding, Verdict};

/// Ask for transparent huge pages: the manual of the GNU C Library, "Memory Allocation Tunables".
const ASK: Tunable = Tunable { name: "glibc.malloc.hugetlb", value: "1" };

/// The kernel's setting, such as `always [madvise] never`.
fn kernel() -> Option<String> {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()
}

/// The setting for commands that simulate, if it is of use.
pub(crate) fn wanted() -> Option<Tunable> {
    asking(&kernel()?)
}

fn asking(kernel: &str) -> Option<Tunable> {
    kernel.contains("[madvise]").then_some(ASK)
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
            Ok(set) if set.contains(ASK.name) && !set.contains(&format!("{}={}", ASK.name, ASK.value)) => {
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
    fn only_a_kernel_that_waits_to_be_asked_is_asked() {
        assert_eq!(asking("always [madvise] never\n"), Some(ASK));
        assert_eq!(asking("[always] madvise never\n"), None);
        assert_eq!(asking("always madvise [never]\n"), None);
    }
}
