//! The functions, as a program in C would call them, and helpers for other tests.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::{Duration, Instant};
use strandway::*;

pub(crate) const NO_NODE: i32 = -2;
pub(crate) const INVALID: i32 = -1;
pub(crate) const CONNECTED: u32 = 1;
pub(crate) const ACCEPTED: u32 = 2;
pub(crate) const CLOSED: u32 = 3;
const SEND_DONE: u32 = 5;
const RECEIVE_DONE: u32 = 6;

/// A configuration with its lists, which live as long as it.
pub(crate) struct Settings {
    pub(crate) config: Config,
    _planes: Vec<CString>,
    _list: Vec<*const c_char>,
    _key: Vec<u8>,
}

pub(crate) fn settings() -> Settings {
    let planes = vec![CString::new("127.0.0.1:0").expect("no zero")];
    let list: Vec<*const c_char> = planes.iter().map(|plane| plane.as_ptr()).collect();
    let key = vec![5; 32];
    let config = Config { planes: list.as_ptr(), planes_count: 1, key: key.as_ptr(), key_length: 32, ..Config::new() };
    Settings { config, _planes: planes, _list: list, _key: key }
}

pub(crate) fn open(settings: &Settings) -> Result<u64, i32> {
    let mut node = 0;
    // SAFETY: the settings' pointers lead to what they name.
    match unsafe { sw_node_open(&raw const settings.config, &raw mut node) } {
        0 => Ok(node),
        code => Err(code),
    }
}

pub(crate) fn address(node: u64) -> CString {
    let mut text = [0 as c_char; 64];
    // SAFETY: the room is as large as said.
    assert_eq!(unsafe { sw_node_address(node, 0, text.as_mut_ptr(), text.len()) }, 0);
    // SAFETY: the call has written a text with a zero.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_owned()
}

pub(crate) fn connect(node: u64, to: &CStr, service: u64) -> u64 {
    let (list, mut connection) = ([to.as_ptr()], 0);
    // SAFETY: the list has one text.
    assert_eq!(unsafe { sw_connect(node, list.as_ptr(), 1, service, &raw mut connection) }, 0, "{}", last_error());
    connection
}

pub(crate) fn last_error() -> String {
    // SAFETY: the text ends with a zero, and no other call of this thread comes between.
    unsafe { CStr::from_ptr(sw_last_error()) }.to_string_lossy().into_owned()
}

pub(crate) fn next(node: u64) -> CEvent {
    let began = Instant::now();
    loop {
        let (mut event, mut count) = (CEvent::default(), 0);
        // SAFETY: there is room for one event.
        assert_eq!(unsafe { sw_wait(node, &raw mut event, 1, 100, &raw mut count) }, 0, "{}", last_error());
        if count == 1 {
            return event;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "no event");
    }
}

/// Registers memory that lives as long as the process.
pub(crate) fn register(node: u64, bytes: &'static mut [u8]) -> u64 {
    let mut memory = 0;
    // SAFETY: the memory stays, and the test leaves it alone but through the pointers of its events.
    assert_eq!(unsafe { sw_memory_register(node, bytes.as_mut_ptr().cast(), bytes.len(), &raw mut memory) }, 0);
    memory
}

/// Two nodes, and a connection of the first to the second: both handles of it.
pub(crate) fn pair() -> ((u64, u64), (u64, u64)) {
    let settings = settings();
    let (a, b) = (open(&settings).expect("a node"), open(&settings).expect("a node"));
    let to = connect(a, &address(b), 3);
    let accepted = next(b);
    assert_eq!((accepted.kind, accepted.service), (ACCEPTED, 3));
    let connected = next(a);
    assert_eq!((connected.kind, connected.connection, connected.service), (CONNECTED, to, 3));
    ((a, to), (b, accepted.connection))
}

#[test]
fn messages_pass_between_nodes_and_memory_comes_back() {
    let ((a, to), (b, from)) = pair();
    let out = register(a, (0..200).collect::<Vec<u8>>().leak());
    let room = vec![0u8; 200].leak();
    let first = room.as_ptr();
    let into = register(b, room);
    assert_eq!(sw_receive(b, from, into, 0, 200, 9, 1), 0);
    assert_eq!(sw_send(a, to, out, 100, 100, 9, 2), 0);
    let received = next(b);
    assert_eq!((received.kind, received.code, received.context, received.bytes), (RECEIVE_DONE, 0, 1, 100));
    let sent = next(a);
    assert_eq!((sent.kind, sent.code, sent.context, sent.tag), (SEND_DONE, 0, 2, 9));
    assert_eq!(sw_memory_release(b, into), 0);
    // SAFETY: the memory was given back, and nothing else uses it.
    assert_eq!(unsafe { std::slice::from_raw_parts(first, 100) }, (100..200).collect::<Vec<u8>>());
    assert_eq!(sw_memory_release(b, into), -4);
    assert_eq!(sw_node_close(a), 0);
    assert_eq!((next(b).kind, sw_node_close(b)), (CLOSED, 0));
}

#[test]
fn codes_and_versions_have_texts() {
    // SAFETY: texts of the library end with a zero and stay.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_str().expect("a text");
    assert_eq!(text(sw_error_text(0)), "no error");
    assert!(text(sw_error_text(-6)).contains("try again"));
    for code in [1, -1_000, i32::MIN, i32::MAX] {
        assert_eq!(text(sw_error_text(code)), "an unknown code");
    }
    assert_eq!((sw_abi_version(), text(sw_version())), (ABI_VERSION, env!("CARGO_PKG_VERSION")));
    assert!(std::thread::spawn(last_error).join().expect("a text").is_empty(), "of another thread");
}

#[test]
fn the_log_has_a_line_for_each_end() {
    unsafe extern "C" fn count(context: *mut std::ffi::c_void, level: u32, line: *const c_char) {
        // SAFETY: the test gives a counter that stays, and the library a text with a zero.
        let (counter, line) =
            unsafe { (&*context.cast::<std::sync::atomic::AtomicU32>(), CStr::from_ptr(line).to_string_lossy()) };
        if level == 1 && line.contains("no answer") {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let counter: &'static std::sync::atomic::AtomicU32 = Box::leak(Box::default());
    let mut settings = settings();
    settings.config.log = Some(count);
    settings.config.log_context = ptr::from_ref(counter).cast_mut().cast();
    settings.config.handshake_timeout_ms = 100;
    let node = open(&settings).expect("a node");
    connect(node, c"127.0.0.1:1", 0);
    assert_eq!((next(node).kind, sw_node_close(node)), (CLOSED, 0));
    assert_eq!(counter.load(std::sync::atomic::Ordering::Relaxed), 1);
}
