//! The header and the library say the same: functions, numbers, structures.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use strandway_backend::{self as backend, CEvent, CResult};

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Names of functions that follow `before`, which ends with `swb_`, and have an argument list.
fn functions(text: &str, before: &str) -> BTreeSet<String> {
    let named = text.match_indices(before).filter_map(|(at, _)| {
        let rest = &text[at + before.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        rest[end..].starts_with('(').then(|| format!("swb_{}", &rest[..end]))
    });
    named.collect()
}

/// The header without its comments.
fn header() -> String {
    let text = std::fs::read_to_string(here("include/strandway_backend.h")).expect("the header");
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + part.split_once("*/").map_or("", |(_, code)| code))
}

#[test]
fn the_header_has_the_functions_of_the_library() {
    let source = std::fs::read_to_string(here("src/calls.rs")).expect("the source");
    let ours = functions(&source, "extern \"C\" fn swb_");
    assert!(ours.len() > 12, "{ours:?}");
    assert_eq!(ours, functions(&header(), "swb_"));
}

#[test]
fn the_library_has_the_symbols_of_the_header() {
    let library = crate::example::library();
    let Ok(nm) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() else {
        eprintln!("skipped: no nm");
        return;
    };
    let symbols = String::from_utf8_lossy(&nm.stdout);
    let names = symbols.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| name.starts_with("swb_"));
    assert_eq!(names.map(String::from).collect::<BTreeSet<_>>(), functions(&header(), "swb_"), "{}", library.display());
}

#[test]
fn structures_and_numbers_are_alike_in_both_languages() {
    let Some(compiler) = crate::example::compiler() else { return };
    let mut source = String::from("#include <strandway_backend.h>\n");
    let mut claim = |what: String| writeln!(source, "_Static_assert({what}, \"{what}\");").expect("room");
    macro_rules! layout {
        ($rust:ty, $c:literal, $($field:ident),*) => {
            claim(format!("sizeof({}) == {} && _Alignof({}) == {}", $c, size_of::<$rust>(), $c, align_of::<$rust>()));
            $(claim(format!("offsetof({}, {}) == {}", $c, stringify!($field), offset_of!($rust, $field)));)*
        };
    }
    layout!(CEvent, "swb_event", at, number, tag, bytes, kind, host, peer, reserved);
    layout!(CResult, "swb_result", digest, simulated, messages, packet_hops, end, reserved);
    macro_rules! numbers {
        ($prefix:literal, $($name:ident),*) => {
            $(claim(format!("SWB_{}{} == {}", $prefix, stringify!($name), backend::$name));)*
        };
    }
    numbers!("", OK, SENT, RECEIVED, TIMER, FAILED, FINISHED, TIME_LIMIT, INTERRUPTED, STALLED, ABI_VERSION);
    numbers!("ERROR_", INVALID, NO_LAB, SCENARIO, SYSTEM, INTERNAL);
    let work = tempfile::tempdir().expect("a folder");
    let file = work.path().join("layout.c");
    std::fs::write(&file, source).expect("written");
    let output =
        Command::new(compiler).args(["-std=c11", "-fsyntax-only", "-I"]).arg(here("include")).arg(&file).output();
    let output = output.expect("the compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
