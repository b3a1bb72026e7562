//! Settings of glibc, which it reads from the environment at the start of a process: a command that wants some starts
//! itself once more with them.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The variable that glibc reads: `man 7 ld.so`, and the manual of the GNU C Library, "Tunables".
pub(crate) const VARIABLE: &str = "GLIBC_TUNABLES";

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunable {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
}

/// Blocks below 256 MiB are copied without `rep movsb`.
const COPIES: Tunable = Tunable { name: "glibc.cpu.x86_rep_movsb_threshold", value: "0x10000000" };

/// The setting for commands with large copies of other programs' code, such as the records of TLS. AMD's Zen 3 and 4
/// (family 25) say that `rep movsb` is fast, and glibc believes them; where the target lies 1 to 15 bytes after the
/// source within pages, it copies 3.5 GB/s instead of 100 (`docs/real-hosts.md`, "TCP and TLS beside ours").
pub(crate) fn copies() -> Option<Tunable> {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    has_slow_copies(&processor).then_some(COPIES)
}

/// Does this text of `/proc/cpuinfo` describe one of these processors?
fn has_slow_copies(processor: &str) -> bool {
    let value = |key: &str| {
        let mut lines = processor.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
    };
    value("vendor_id") == Some("AuthenticAMD") && value("cpu family") == Some("25")
}

/// Adds to the value of the variable the tunables that it does not name. Returns `None` if it names all of them, or if the
/// C library is another one.
fn with(wanted: &[Tunable], present: Option<OsString>) -> Option<OsString> {
    let mut value = present.unwrap_or_default();
    let before = value.len();
    for tunable in wanted {
        if value.to_string_lossy().contains(tunable.name) {
            continue;
        }
        if !value.is_empty() {
            value.push(":");
        }
        value.push(format!("{}={}", tunable.name, tunable.value));
    }
    (cfg!(target_env = "gnu") && value.len() > before).then_some(value)
}

/// Starts this process once more with settings that it does not have yet. Returns if it has all, or if that fails.
pub(crate) fn restart(wanted: &[Tunable]) {
    let Some(value) = with(wanted, env::var_os(VARIABLE)) else { return };
    let Some((program, words)) = crate::invocation::again() else { return };
    // Without the settings a command only takes longer.
    let _ = Command::new(program).args(words).env(VARIABLE, value).exec();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_added_once_and_those_of_the_user_stay() {
        let two = [Tunable { name: "glibc.a.b", value: "1" }, Tunable { name: "glibc.c.d", value: "0x2" }];
        let added = |wanted: &[Tunable], present: Option<&str>| {
            let value = with(wanted, present.map(OsString::from))?;
            Some(value.into_string().expect("ASCII"))
        };
        assert_eq!(added(&two, None).as_deref(), Some("glibc.a.b=1:glibc.c.d=0x2"));
        assert_eq!(added(&two, Some("glibc.x=1")).as_deref(), Some("glibc.x=1:glibc.a.b=1:glibc.c.d=0x2"));
        assert_eq!(added(&two, Some("glibc.a.b=0")).as_deref(), Some("glibc.a.b=0:glibc.c.d=0x2"));
        // Once more would be for ever.
        assert_eq!(added(&two, Some("glibc.a.b=1:glibc.c.d=0x2")), None);
        assert_eq!(added(&[], None), None);
    }

    #[test]
    fn slow_copies_are_those_of_one_family_of_amd() {
        let processor = |vendor: &str, family: &str| {
            has_slow_copies(&format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 25\n"))
        };
        assert!(processor("AuthenticAMD", "25"));
        assert!(!processor("AuthenticAMD", "23") && !processor("AuthenticAMD", "26"));
        assert!(!processor("GenuineIntel", "25"));
        assert!(!has_slow_copies("CPU implementer\t: 0x41\n") && !has_slow_copies(""));
    }
}
