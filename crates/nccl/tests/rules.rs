//! Both ends in one process: every version of the interface, and calls against its rules.

use crate::net::{Net, Object, Room, library, log};
use nccl_net_strandway::{HANDLE_BYTES, Outcome, PTR_HOST, RECVS_MAX};
use std::ptr;
use std::time::{Duration, Instant};

fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "nothing comes: {:?}", log());
        std::thread::yield_now();
    }
}

fn loaded(version: u32) -> Net {
    let folder = tempfile::tempdir().expect("a folder");
    let net = Net::load(&library(folder.path()), version);
    // The library stays loaded, its file need not.
    drop(folder);
    net
}

fn pair(net: Net) -> (Object, Object, Object) {
    let (mut handle, listener) = net.listen(0).expect("a listener");
    assert!(net.accept(listener).expect("a listener").is_null(), "nobody has called");
    let (mut to, mut from): (Object, Object) = (ptr::null_mut(), ptr::null_mut());
    until(|| {
        if to.is_null() {
            to = net.connect(0, &mut handle).expect("a call");
        }
        if from.is_null() {
            from = net.accept(listener).expect("a listener");
        }
        (!to.is_null() && !from.is_null()).then_some(())
    });
    (to, from, listener)
}

#[test]
fn every_version_moves_bytes_and_refuses_what_is_against_the_rules() {
    // In a process of its own, since the library has one set of devices for a process.
    let program = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new(program);
    command
        .args(["--exact", "rules::a_process", "--nocapture", "--test-threads=1"])
        .env("STRANDWAY_TEST_NCCL_RULES", "1");
    command.env_remove("STRANDWAY_KEY").env_remove("STRANDWAY_KEY_FILE");
    assert!(command.status().expect("a process").success());
}

/// The program of that process runs when the variable is there.
#[test]
fn a_process() {
    if std::env::var_os("STRANDWAY_TEST_NCCL_RULES").is_none() {
        return;
    }
    let refused = loaded(12);
    assert_eq!(refused.init(), Outcome::Usage);
    assert!(log().iter().any(|line| line.starts_with("2 ") && line.contains("STRANDWAY_KEY_FILE")), "{:?}", log());
    assert_eq!(refused.devices(), 0);
    // SAFETY: no other thread of this process reads or writes the environment meanwhile.
    unsafe {
        std::env::set_var("STRANDWAY_KEY", "00112233445566778899aabbccddeeff");
        std::env::set_var("STRANDWAY_PLANES", "127.0.0.1,127.0.0.2");
        std::env::set_var("STRANDWAY_NCCL_DEVICES", "each");
    }
    for version in 8..=12 {
        let net = loaded(version);
        assert_eq!(net.init(), Outcome::Success, "{:?}", log());
        assert_eq!(net.devices(), 2);
        let (speed, pointers, receives, name, plane) = net.properties(1).expect("a device");
        assert_eq!((pointers, receives, name.as_str()), (PTR_HOST, RECVS_MAX as i32, "127.0.0.2"));
        assert!(speed >= 1_000, "{speed} Mb/s");
        assert_eq!(plane, if version == 12 { 1 } else { -1 });
        assert!(net.properties(2).is_none() && net.properties(-1).is_none() && net.listen(7).is_none());
        moves(net);
        rules(net);
    }
}

fn moves(net: Net) {
    let (to, from, listener) = pair(net);
    let out = (0..=255u8).cycle().take(100_000).collect::<Vec<u8>>().leak().as_mut_ptr();
    let into = vec![0u8; 100_000].leak().as_mut_ptr();
    let out_memory = net.register(to, out, 100_000, PTR_HOST).expect("memory");
    let into_memory = net.register(from, into, 100_000, PTR_HOST).expect("memory");
    // Two receives of a group; their sends come in the other order, and before them.
    let room = |data: *mut u8, at: usize, size: usize, tag: i32, memory: Object| Room {
        // SAFETY: within the memory.
        data: unsafe { data.add(at) },
        size,
        tag,
        memory,
    };
    let second = net.send(to, room(out, 5, 20_000, 4, out_memory)).expect("posted");
    let first = net.send(to, room(out, 0, 10, 3, out_memory)).expect("posted");
    assert!(net.test(second).expect("a request").is_none(), "its receive is not there");
    let rooms = [room(into, 0, 100, 3, into_memory), room(into, 1_000, 50_000, 4, into_memory)];
    let group = net.receive(from, &rooms).expect("posted");
    let sizes = until(|| net.test(group).expect("a request"));
    assert_eq!(sizes[..2], [10, 20_000]);
    assert_eq!(until(|| net.test(first).expect("a request"))[0], 10);
    assert_eq!(until(|| net.test(second).expect("a request"))[0], 20_000);
    // SAFETY: the requests have ended.
    let (got, sent) = unsafe {
        (std::slice::from_raw_parts(into.add(1_000), 20_000), std::slice::from_raw_parts(out.add(5), 20_000))
    };
    assert!(got == sent);
    // A message of no bytes.
    let nothing = net.receive(from, &[room(into, 0, 0, 1, into_memory)]).expect("posted");
    net.send(to, room(out, 0, 0, 1, out_memory)).expect("posted");
    assert_eq!(until(|| net.test(nothing).expect("a request"))[0], 0);
    assert_eq!(net.close_listen(listener), Outcome::Success);
    assert_eq!(net.close_receive(from), Outcome::Success);
    assert_eq!(net.deregister(from, into_memory), Outcome::Success);
    assert_eq!(net.deregister(to, out_memory), Outcome::Success);
    assert_eq!(net.close_send(to), Outcome::Success);
}

fn rules(net: Net) {
    let (to, from, listener) = pair(net);
    let data = vec![0u8; 1_000].leak().as_mut_ptr();
    let nowhere: Object = ptr::null_mut();
    let memory = net.register(from, data, 1_000, PTR_HOST).expect("memory");
    let room = Room { data, size: 1_000, tag: 0, memory };
    let internal = Err(Outcome::Internal);
    assert_eq!(net.register(to, data, 1_000, 2), internal, "memory of a GPU");
    assert_eq!(net.register(to, ptr::null_mut(), 8, PTR_HOST), internal);
    assert_eq!(net.register(to, data, 0, PTR_HOST), internal);
    for object in [nowhere, memory, listener, ptr::without_provenance_mut(usize::MAX)] {
        assert_eq!(net.send(object, room), internal);
        assert_eq!(net.receive(object, &[room]), internal);
        assert_eq!(net.test(object), Err(Outcome::Internal));
        assert_eq!((net.close_send(object), net.close_receive(object)), (Outcome::Internal, Outcome::Internal));
    }
    assert_eq!(net.accept(from), internal);
    assert_eq!(net.close_listen(to), Outcome::Internal);
    assert_eq!(net.send(from, room), internal, "a receiver sends nothing");
    assert_eq!(net.receive(to, &[room]), internal, "a sender receives nothing");
    assert_eq!(net.receive(from, &[]), internal);
    assert_eq!(net.receive(from, &[room; RECVS_MAX + 1]), internal);
    for (size, memory) in [(1_001, memory), (usize::MAX, memory), (8, nowhere), (8, to)] {
        assert_eq!(net.send(to, Room { size, memory, ..room }), internal, "{size} bytes");
    }
    let before = Room { data: data.wrapping_sub(1), size: 1, ..room };
    assert_eq!(net.send(to, before), internal);
    assert_eq!(net.connect(0, &mut [0; HANDLE_BYTES]), Err(Outcome::Usage));
    assert_eq!(net.test_without_room(nowhere), Outcome::Internal);
    // Memory that requests use goes away: their connection ends, and nothing touches the memory any more.
    let waits = net.receive(from, &[room]).expect("posted");
    assert_eq!(net.deregister(from, memory), Outcome::Success);
    assert_eq!(until(|| net.test(waits).err()), Outcome::Internal, "{:?}", log());
    assert_eq!(net.deregister(from, memory), Outcome::Internal);
    assert_eq!((net.close_send(to), net.close_receive(from)), (Outcome::Success, Outcome::Success));
    assert_eq!((net.close_send(to), net.close_listen(listener)), (Outcome::Internal, Outcome::Success));
}
