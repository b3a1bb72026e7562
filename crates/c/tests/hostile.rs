//! Calls that no program should make: each has a code, and the library goes on.

use crate::calls::{INVALID, NO_NODE, Settings, address, connect, last_error, next, open, pair, register, settings};
use std::ptr;
use std::sync::Barrier;
use strandway::*;

const NO_CONNECTION: i32 = -3;
const NO_MEMORY: i32 = -4;
const RANGE: i32 = -5;
const CONFIG: i32 = -12;
const VERSION: i32 = -26;

#[test]
fn null_and_misaligned_pointers_are_codes() {
    let ((node, connection), _) = pair();
    let memory = register(node, vec![0; 64].leak());
    let mut room = [0u64; 8];
    let odd = room.as_mut_ptr().cast::<u8>().wrapping_add(1);
    let mut remote = Remote { bytes: [0; 16] };
    let settings = settings();
    // SAFETY: pointers are null, misaligned, or lead to what they name.
    unsafe {
        assert_eq!(sw_config_init(ptr::null_mut(), size_of::<Config>()), INVALID);
        assert_eq!(sw_config_init(ptr::null_mut(), 1), VERSION);
        assert_eq!(sw_node_open(ptr::null(), room.as_mut_ptr()), INVALID);
        assert_eq!(sw_node_open(odd.cast(), room.as_mut_ptr()), INVALID);
        assert_eq!(sw_node_open(&raw const settings.config, ptr::null_mut()), INVALID);
        assert_eq!(sw_node_open(&raw const settings.config, odd.cast()), INVALID);
        assert_eq!(sw_node_address(node, 0, ptr::null_mut(), 64), INVALID);
        assert_eq!(sw_node_descriptor(node, ptr::null_mut()), INVALID);
        assert_eq!(sw_node_rest(node, ptr::null_mut()), INVALID);
        assert_eq!(sw_memory_register(node, ptr::null_mut(), 8, room.as_mut_ptr()), INVALID);
        assert_eq!(sw_memory_register(node, odd.cast(), 8, ptr::null_mut()), INVALID);
        assert_eq!(sw_memory_show(node, ptr::null(), 8, room.as_mut_ptr()), INVALID);
        assert_eq!(sw_memory_expose(node, connection, memory, 0, 8, ptr::null_mut()), INVALID);
        assert_eq!(sw_memory_revoke(node, ptr::null()), INVALID);
        assert_eq!(sw_memory_revoke(node, &raw const remote), NO_MEMORY);
        assert_eq!(sw_connect(node, ptr::null(), 1, 0, room.as_mut_ptr()), INVALID);
        assert_eq!(sw_connect(node, [ptr::null()].as_ptr(), 1, 0, room.as_mut_ptr()), INVALID);
        assert_eq!(sw_write(node, connection, memory, 0, 8, ptr::null(), 0, 0, 0), INVALID);
        assert_eq!(sw_read(node, connection, memory, 0, 8, ptr::null(), 0, 0), INVALID);
        assert_eq!(sw_fetch_add(node, connection, odd.cast_const().cast(), 0, 1, 0), RANGE, "bytes have no alignment");
        assert_eq!(sw_fetch_add(node, connection, ptr::null(), 0, 1, 0), INVALID);
        let step = CStep { memory, offset: 0, length: 8, remote, at: 0 };
        let mut posted = 9;
        assert_eq!(sw_read_list(node, connection, ptr::null(), 1, 0, &raw mut posted), INVALID);
        assert_eq!(sw_write_list(node, connection, &raw const step, usize::MAX, 0, &raw mut posted), INVALID);
        assert_eq!(sw_write_list(node, connection, &raw const step, 1, 0, ptr::null_mut()), INVALID);
        assert_eq!(sw_write_list(node, connection, &raw const step, 1, 0, &raw mut posted), RANGE);
        assert_eq!(posted, 0);
        assert_eq!(sw_compare_swap(node, connection, ptr::null(), 0, 1, 0, 0), INVALID);
        for rights in [0, 8, u32::MAX] {
            assert_eq!(sw_memory_expose_for(node, connection, memory, 0, 8, rights, &raw mut remote), INVALID);
        }
        assert_eq!(sw_memory_expose_for(node, connection, memory, 0, 8, 1, ptr::null_mut()), INVALID);
        assert_eq!(sw_poll(node, ptr::null_mut(), 8, room.as_mut_ptr().cast()), INVALID);
        assert_eq!(sw_poll(node, room.as_mut_ptr().cast(), 0, room.as_mut_ptr().cast()), INVALID);
        assert_eq!(sw_wait(node, room.as_mut_ptr().cast(), 1, 0, ptr::null_mut()), INVALID);
        assert_eq!(sw_memory_expose(node, connection, memory, 0, 8, &raw mut remote), 0);
        assert_eq!(sw_memory_revoke(node, &raw const remote), 0);
        assert_eq!(sw_memory_revoke(node, &raw const remote), NO_MEMORY);
    }
}

#[test]
fn dead_handles_and_hostile_lengths_are_codes() {
    let ((node, connection), (other, theirs)) = pair();
    let memory = register(node, vec![0; 64].leak());
    let mut number = 0;
    for handle in [0, u64::MAX, memory, theirs] {
        assert_eq!(sw_send(node, handle, memory, 0, 1, 0, 0), NO_CONNECTION);
        assert_eq!(sw_close(node, handle), NO_CONNECTION);
    }
    for handle in [0, u64::MAX, connection] {
        assert_eq!(sw_send(node, connection, handle, 0, 1, 0, 0), NO_MEMORY);
        assert_eq!(sw_receive(node, connection, handle, 0, 1, 0, 0), NO_MEMORY);
        assert_eq!(sw_memory_release(node, handle), NO_MEMORY);
    }
    for (offset, length) in [(0, 65), (65, 0), (64, 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(sw_send(node, connection, memory, offset, length, 0, 0), RANGE);
        assert_eq!(sw_receive(node, connection, memory, offset, length, 0, 0), RANGE);
    }
    assert_eq!(sw_send(other, theirs, memory, 0, 1, 0, 0), NO_MEMORY, "of another node");
    // SAFETY: such memory is refused before it is lent.
    unsafe {
        let first = ptr::without_provenance_mut(4_096);
        for length in [0, usize::MAX, usize::MAX - 4_095, isize::MAX as usize + 1] {
            assert_eq!(sw_memory_register(node, first, length, &raw mut number), INVALID);
        }
        let list = [c"127.0.0.1:1".as_ptr(); 9];
        assert_eq!(sw_connect(node, list.as_ptr(), 9, 0, &raw mut number), INVALID);
        assert_eq!(sw_connect(node, list.as_ptr(), usize::MAX, 0, &raw mut number), INVALID);
        assert_eq!(sw_connect(node, list.as_ptr(), 2, 0, &raw mut number), CONFIG);
        assert!(last_error().contains("2 addresses for 1 planes"), "{}", last_error());
        assert_eq!(sw_connect(node, [c"nowhere".as_ptr()].as_ptr(), 1, 0, &raw mut number), INVALID);
    }
    assert_eq!(sw_node_close(node), 0);
    for _ in 0..2 {
        assert_eq!(sw_node_close(node), NO_NODE);
        assert_eq!(sw_send(node, connection, memory, 0, 1, 0, 0), NO_NODE);
        assert_eq!(sw_progress(node), NO_NODE);
    }
    assert_eq!(sw_node_close(other), 0);
}

#[test]
fn configurations_that_cannot_work_are_codes_with_a_remedy() {
    let refused = |change: fn(&mut Settings), code: i32, says: &str| {
        let mut settings = settings();
        change(&mut settings);
        assert_eq!(open(&settings), Err(code), "{says}");
        assert!(last_error().contains(says), "{} without {says}", last_error());
    };
    refused(|s| s.config.key_length = 15, CONFIG, "at least 16");
    refused(|s| s.config.key_length = usize::MAX, INVALID, "key");
    refused(|s| s.config.key = ptr::null(), INVALID, "key");
    refused(|s| s.config.planes_count = 0, CONFIG, "0 planes");
    refused(|s| s.config.planes_count = usize::MAX, INVALID, "planes");
    refused(|s| s.config.progress = 2, CONFIG, "SW_PROGRESS");
    refused(|s| s.config.payload = 1, CONFIG, "payload");
    refused(|s| s.config.operations_max = u32::MAX, CONFIG, "operations_max");
    refused(|s| s.config.profile = c"no_such".as_ptr(), CONFIG, "no_such");
    refused(|s| s.config.profile = c"sdr".as_ptr(), CONFIG, "");
    refused(|s| s.config.protection = c"rot13".as_ptr(), CONFIG, "rot13");
    refused(|s| s.config.protection = c"\xff".as_ptr(), INVALID, "UTF-8");
    refused(|s| s.config.size = 8, VERSION, "sw_config_init");
    refused(|s| s.config.size = u32::MAX, VERSION, "sw_config_init");
}

#[test]
fn threads_may_close_what_others_use() {
    for _ in 0..4 {
        let ((a, to), (b, from)) = pair();
        let out = register(a, vec![1; 1 << 16].leak());
        let into = register(b, vec![0; 1 << 16].leak());
        let all = Barrier::new(6);
        std::thread::scope(|scope| {
            for tag in 0..4 {
                let all = &all;
                scope.spawn(move || {
                    all.wait();
                    for context in 0..500 {
                        let codes = [
                            sw_receive(b, from, into, 0, 1 << 16, tag, context),
                            sw_send(a, to, out, 0, 1 << 16, tag, context),
                        ];
                        assert!(codes.iter().all(|code| matches!(code, 0 | -2 | -3 | -6)), "{codes:?}");
                    }
                });
            }
            let all = &all;
            scope.spawn(move || {
                all.wait();
                let (mut events, mut count) = ([CEvent::default(); 16], 0);
                // SAFETY: there is room for 16 events.
                while unsafe { sw_wait(a, events.as_mut_ptr(), 16, 10_000, &raw mut count) } != NO_NODE {}
            });
            scope.spawn(move || {
                all.wait();
                std::thread::sleep(std::time::Duration::from_millis(3));
                assert_eq!(sw_close(b, from), 0);
                assert_eq!(sw_node_close(a), 0);
            });
        });
        assert_eq!(sw_node_close(b), 0);
    }
}

#[test]
fn a_peer_with_another_key_is_one_event() {
    let (mut ours, theirs) = (settings(), settings());
    ours.config.key_length = 16;
    ours.config.handshake_timeout_ms = 200;
    let (a, b) = (open(&ours).expect("a node"), open(&theirs).expect("a node"));
    connect(a, &address(b), 0);
    let closed = next(a);
    assert_eq!((closed.kind, closed.code), (crate::calls::CLOSED, -18));
    assert_eq!((sw_node_close(a), sw_node_close(b)), (0, 0));
}
