//! The header and the library say the same: functions, numbers, structures.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use strandway::{
    ABI_VERSION, CEvent, CSetting, CStep, Config, NO_IMMEDIATE, PROGRESS_CALLERS, PROGRESS_THREAD, RIGHT_ATOMIC,
    RIGHT_READ, RIGHT_WRITE, Remote,
};
use strandway_mover::{Code, EventKind, Level};

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Names of functions that begin with `sw_` and have an argument list.
fn functions(text: &str, before: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(before) {
        let name: String =
            text[at + before.len()..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let name = format!("sw_{name}");
        let follows = text[at + before.len()..].chars().nth(name.len() - 3);
        if follows == Some('(') {
            found.insert(name);
        }
    }
    found
}

/// The header without its comments.
fn header() -> String {
    let text = std::fs::read_to_string(here("include/strandway.h")).expect("the header");
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |all, part| all + part.split_once("*/").map_or("", |(_, code)| code))
}

#[test]
fn the_header_has_the_functions_of_the_library() {
    let source = std::fs::read_to_string(here("src/calls.rs")).expect("the source");
    let ours = functions(&source, "extern \"C\" fn sw_");
    let theirs: BTreeSet<String> = functions(&header(), "sw_");
    assert!(ours.len() > 20, "{ours:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn the_library_has_the_symbols_of_the_header() {
    let Some(library) = crate::example::library() else { return };
    let Ok(nm) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() else {
        eprintln!("skipped: no nm");
        return;
    };
    let symbols = String::from_utf8_lossy(&nm.stdout);
    let names: BTreeSet<String> = symbols
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter(|name| name.starts_with("sw_"))
        .map(String::from)
        .collect();
    assert_eq!(names, functions(&header(), "sw_"), "{}", library.display());
}

#[test]
fn structures_and_numbers_are_alike_in_both_languages() {
    let Some(compiler) = crate::example::compilers().into_iter().next() else { return };
    let mut source = String::from("#include <strandway.h>\n#include <stddef.h>\n");
    let mut claim =
        |what: String| writeln!(source, "_Static_assert({what}, \"{}\");", what.replace('"', "")).expect("room");
    macro_rules! layout {
        ($rust:ty, $c:literal, $($field:ident),*) => {
            claim(format!("sizeof({}) == {} && _Alignof({}) == {}", $c, size_of::<$rust>(), $c, align_of::<$rust>()));
            $(claim(format!("offsetof({}, {}) == {}", $c, stringify!($field), offset_of!($rust, $field)));)*
        };
    }
    layout!(
        Config,
        "sw_config",
        size,
        progress,
        planes,
        planes_count,
        key,
        key_length,
        profile,
        protection,
        payload,
        rate_mbps,
        base_rtt_us,
        connections_max,
        operations_max,
        handshake_timeout_ms,
        peer_timeout_ms,
        plane_timeout_ms,
        log,
        log_context
    );
    layout!(CEvent, "sw_event", kind, code, connection, context, tag, bytes, service, immediate, reserved);
    layout!(Remote, "sw_remote", bytes);
    layout!(CStep, "sw_step", memory, offset, length, remote, at);
    layout!(CSetting, "sw_setting", name, value);
    let upper = |name: String| {
        let mut words = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !words.is_empty() {
                words.push('_');
            }
            words.push(c.to_ascii_uppercase());
        }
        words
    };
    for &code in Code::ALL {
        let name = if code == Code::Ok { "SW_OK".into() } else { format!("SW_ERROR_{}", upper(format!("{code:?}"))) };
        claim(format!("{name} == {}", code as i32));
    }
    use EventKind::{Accepted, AtomicDone, Closed, Connected, ReadDone, ReceiveDone, SendDone, WriteDone, Written};
    for kind in [Connected, Accepted, Closed, WriteDone, SendDone, ReceiveDone, Written, ReadDone, AtomicDone] {
        claim(format!("SW_{} == {}u", upper(format!("{kind:?}")), kind as u32));
    }
    claim(format!("SW_LOG_WARNING == {}u && SW_LOG_INFO == {}u", Level::Warning as u32, Level::Info as u32));
    claim(format!("SW_ABI_VERSION == {ABI_VERSION}u && SW_NO_IMMEDIATE == {NO_IMMEDIATE}u"));
    claim(format!("SW_RIGHT_WRITE == {RIGHT_WRITE}u && SW_RIGHT_READ == {RIGHT_READ}u"));
    claim(format!("SW_RIGHT_ATOMIC == {RIGHT_ATOMIC}u && SW_ALL_CONNECTIONS == 0u"));
    claim(format!("SW_PROGRESS_THREAD == {PROGRESS_THREAD}u && SW_PROGRESS_CALLERS == {PROGRESS_CALLERS}u"));
    let work = tempfile::tempdir().expect("a folder");
    let file = work.path().join("layout.c");
    std::fs::write(&file, source).expect("written");
    let status =
        Command::new(compiler).args(["-std=c11", "-fsyntax-only", "-I"]).arg(here("include")).arg(&file).status();
    assert!(status.expect("the compiler").success());
}
