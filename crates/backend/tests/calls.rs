//! The functions, called as C does: what is wrong is a code, and never a crash.

use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use strandway_backend::*;

fn said() -> String {
    // SAFETY: the text is there until the thread's next call that fails.
    unsafe { CStr::from_ptr(swb_last_error()) }.to_string_lossy().into_owned()
}

fn scenario(folder: &Path, text: &str) -> CString {
    let file = folder.join("scenario.toml");
    std::fs::write(&file, text).expect("written");
    CString::new(file.display().to_string()).expect("no zero")
}

fn open(text: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, mut lab) = (scenario(folder.path(), text), 0);
    // SAFETY: all pointers lead to what they name.
    let code = unsafe { swb_open(file.as_ptr(), null(), 0, &raw mut lab) };
    assert_eq!(code, OK, "{}", said());
    lab
}

const FABRIC: &str = "[fabric]\nhosts = 16\n[run]\ncapture = \"host0\"\n";

/// Posts an answer to each message of host 0.
unsafe extern "C" fn answer(context: *mut c_void, event: *const CEvent) {
    // SAFETY: the test gives the address of its numbers, and the library that of an event.
    let (numbers, event) = unsafe { (&mut *context.cast::<(u64, Vec<CEvent>)>(), *event) };
    numbers.1.push(event);
    if event.kind == RECEIVED && event.peer == 0 {
        let mut message = 0;
        // SAFETY: the pointer leads to room for a number.
        let code = unsafe { swb_post(numbers.0, event.host, 0, 2 * event.bytes, event.tag + 1, &raw mut message) };
        assert_eq!((code, message), (OK, 1));
        assert_eq!(swb_schedule(numbers.0, event.host, 0, 77), OK);
    }
}

#[test]
fn a_message_is_answered_at_the_instant_of_its_arrival() {
    let lab = open(FABRIC);
    let (mut hosts, mut message, mut rate) = (0, 9, 0);
    let mut numbers: (u64, Vec<CEvent>) = (lab, Vec::new());
    // SAFETY: all pointers lead to what they name.
    unsafe {
        assert_eq!((swb_hosts(lab, &raw mut hosts), hosts), (OK, 16));
        assert_eq!(swb_rate(lab, &raw mut rate), OK);
        assert!(rate >= 100_000_000_000);
        assert_eq!((swb_post(lab, 0, 9, 5000, 40, &raw mut message), message), (OK, 0));
        assert_eq!(swb_run(lab, Some(answer), (&raw mut numbers).cast()), OK, "{}", said());
    }
    let kinds: Vec<(u32, u32, u64, u64)> =
        numbers.1.iter().map(|event| (event.kind, event.host, event.tag, event.bytes)).collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    assert_eq!(kinds[..2], [(RECEIVED, 9, 40, 5000), (TIMER, 9, 0, 0)]);
    assert!(kinds.contains(&(SENT, 0, 40, 5000)) && kinds.contains(&(RECEIVED, 0, 41, 10_000)));
    assert_eq!(numbers.1[0].at, numbers.1[1].at);
    let mut result = CResult::default();
    // SAFETY: the pointer leads to room for a result.
    assert_eq!(unsafe { swb_result_of(lab, &raw mut result) }, OK);
    assert_eq!((result.end, result.messages), (FINISHED, 2));
    let last = numbers.1.iter().map(|event| event.at).max();
    assert_eq!(Some(result.simulated), last);
    let folder = tempfile::tempdir().expect("a folder");
    for ending in ["html", "json", "md", "txt", "csv", "pcapng"] {
        let file = folder.path().join(format!("report.{ending}"));
        let name = CString::new(file.display().to_string()).expect("no zero");
        // SAFETY: the pointer leads to a text.
        assert_eq!(unsafe { swb_report(lab, name.as_ptr()) }, OK, "{}", said());
        assert!(std::fs::metadata(&file).expect("a file").len() > 100, "{ending}");
    }
    let rows = std::fs::read_to_string(folder.path().join("report.csv")).expect("a table");
    assert_eq!(rows.lines().count(), 3, "{rows}");
    assert_eq!(swb_close(lab), OK);
    assert_eq!(swb_close(lab), NO_LAB);
}

#[test]
fn wrong_calls_are_codes() {
    let folder = tempfile::tempdir().expect("a folder");
    let bad = scenario(folder.path(), "[fabric]\nhosts = -3\n");
    let (mut lab, mut number) = (0, 0);
    // SAFETY: all pointers are null, or lead to what they name.
    unsafe {
        assert_eq!(swb_open(bad.as_ptr(), null(), 0, &raw mut lab), SCENARIO);
        assert!(said().contains("hosts"), "{}", said());
        let change = CString::new("fabric.hosts=12").expect("no zero");
        assert_eq!(swb_open(bad.as_ptr(), [change.as_ptr()].as_ptr(), 1, &raw mut lab), OK, "{}", said());
        assert_eq!(swb_open(null(), null(), 0, &raw mut lab), INVALID);
        assert_eq!(swb_open(bad.as_ptr(), null(), 0, null_mut()), INVALID);
        assert_eq!(swb_post(lab, 0, 12, 1, 0, &raw mut number), INVALID);
        assert!(said().contains("12"), "{}", said());
        assert_eq!(swb_post(lab, 0, 1, 1, 0, null_mut()), INVALID);
        assert_eq!(swb_run(lab, None, null_mut()), INVALID);
        assert_eq!(swb_result_of(lab, null_mut()), INVALID);
        assert_eq!(swb_hosts(u64::MAX, null_mut()), NO_LAB);
        let mut result = CResult::default();
        assert_eq!(swb_result_of(lab, &raw mut result), INVALID);
        assert!(said().contains("not over"), "{}", said());
        assert_eq!(swb_connect(lab, 3, 3), INVALID);
        assert_eq!(swb_report(lab, null()), INVALID);
    }
    assert_eq!(swb_schedule(lab, 99, 0, 0), INVALID);
    assert_eq!(swb_schedule(lab, 0, 5, 0), OK);
    let (mut event, mut any) = (CEvent::default(), 0);
    // SAFETY: all pointers lead to what they name.
    unsafe {
        assert_eq!((swb_next_event(lab, &raw mut event, &raw mut any), any), (OK, 1));
        assert_eq!((event.kind, event.at), (TIMER, 5));
        assert_eq!((swb_next_event(lab, &raw mut event, &raw mut any), any), (OK, 0));
        assert_eq!((swb_next_event(lab, &raw mut event, &raw mut any), any), (OK, 0));
        assert_eq!(swb_run(lab, Some(answer), null_mut()), INVALID);
    }
    assert_eq!(swb_post_late(lab), INVALID);
    assert_eq!(swb_close(lab), OK);
}

fn swb_post_late(lab: u64) -> i32 {
    let mut number = 0;
    // SAFETY: the pointer leads to room for a number.
    unsafe { swb_post(lab, 0, 1, 1, 0, &raw mut number) }
}
