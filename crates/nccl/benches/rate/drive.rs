//! Sends and receives through a network plug-in, as NCCL's proxy does: several requests under way, of which the oldest is
//! tested, and the core given away when it has not ended.

use crate::{Job, child};
use nccl_net_strandway::{HANDLE_BYTES, NetV12, Outcome, PTR_HOST, ncclNet_v12};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write;
use std::ptr;
use std::time::Instant;

/// `RTLD_NOW`.
const NOW: c_int = 2;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The functions of our plug-in, or of the library at a path.
pub(crate) fn net(library: Option<&str>) -> &'static NetV12 {
    let Some(path) = library else { return &ncclNet_v12.0 };
    let path = CString::new(path).expect("a path");
    // SAFETY: the library is a plug-in for NCCL, so the symbol has this type; it is never closed.
    let table = unsafe {
        let library = dlopen(path.as_ptr(), NOW);
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        dlsym(library, c"ncclNet_v12".as_ptr()).cast::<NetV12>().as_ref()
    };
    table.expect("it has ncclNet_v12")
}

fn good(outcome: Outcome) {
    assert_eq!(outcome, Outcome::Success);
}

/// Asks until there is an object; none after an error.
fn object(ask: impl Fn(*mut *mut c_void) -> Outcome) -> Option<*mut c_void> {
    let mut found: *mut c_void = ptr::null_mut();
    while found.is_null() {
        if ask(&raw mut found) != Outcome::Success {
            return None;
        }
    }
    Some(found)
}

fn begin(net: &NetV12) -> *mut c_void {
    let mut context = ptr::null_mut();
    // -1: no traffic class.
    let config: c_int = -1;
    // SAFETY: as the interface says.
    good(unsafe { (net.init)(&raw mut context, 1, (&raw const config).cast(), None, ptr::null()) });
    context
}

/// Prints a handle, and receives until its input ends or its sender has gone.
pub(crate) fn receive(job: &Job, library: Option<&str>) {
    let net = net(library);
    let (mut handle, mut listener) = ([0u8; HANDLE_BYTES], ptr::null_mut());
    let context = begin(net);
    // SAFETY: as the interface says, here and below.
    unsafe {
        good((net.listen)(context, 0, handle.as_mut_ptr().cast(), &raw mut listener));
        println!("{}", handle.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let comm = object(|comm| (net.accept)(listener, comm, ptr::null())).expect("a connection");
        // All receives have the same memory, as all writes have.
        let room = vec![0u8; job.bytes].leak().as_mut_ptr();
        let mut memory = ptr::null_mut();
        good((net.reg_mr)(comm, room.cast(), job.bytes, PTR_HOST, &raw mut memory));
        let post = || {
            let (data, size, tag) = (room.cast::<c_void>(), job.bytes, 0);
            object(|request| {
                (net.irecv)(
                    comm,
                    1,
                    &raw const data,
                    &raw const size,
                    &raw const tag,
                    &raw const memory,
                    ptr::null(),
                    request,
                )
            })
        };
        let mut posted: VecDeque<_> = (0..job.requests).map_while(|_| post()).collect();
        while let Some(&oldest) = posted.front() {
            let (mut done, mut size) = (0, 0);
            if (net.test)(oldest, &raw mut done, &raw mut size) != Outcome::Success {
                return;
            }
            if done == 1 {
                assert_eq!(size as usize, job.bytes);
                posted.pop_front();
                posted.extend(post());
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Sends for a while: Gb/s.
pub(crate) fn send(job: &Job, library: Option<&str>) -> f64 {
    let words: Vec<&str> = std::iter::once("receive").chain(library).collect();
    let (mut receiver, mut input, text) = child(&words, job);
    let mut handle = [0u8; HANDLE_BYTES];
    for (at, byte) in handle.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("a handle");
    }
    let net = net(library);
    let context = begin(net);
    // SAFETY: as the interface says.
    let rate = unsafe {
        let bytes = handle.as_mut_ptr().cast();
        let comm = object(|comm| (net.connect)(context, 0, bytes, comm, ptr::null())).expect("a connection");
        let data = vec![1u8; job.bytes].leak().as_mut_ptr();
        let mut memory = ptr::null_mut();
        good((net.reg_mr)(comm, data.cast(), job.bytes, PTR_HOST, &raw mut memory));
        let post = || {
            object(|request| (net.isend)(comm, data.cast(), job.bytes, 0, memory, ptr::null(), request))
                .expect("posted")
        };
        let began = Instant::now();
        let mut posted: VecDeque<_> = (0..job.requests).map(|_| post()).collect();
        let mut ended = 0;
        while began.elapsed().as_secs_f64() < job.seconds {
            let (mut done, mut size) = (0, 0);
            good((net.test)(posted[0], &raw mut done, &raw mut size));
            if done == 1 {
                ended += 1;
                posted.pop_front();
                posted.push_back(post());
            } else {
                std::thread::yield_now();
            }
        }
        let rate = (ended * job.bytes) as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
        good((net.close_send)(comm));
        rate
    };
    let _ = input.write_all(b"\n");
    // Sends that have not ended die with this connection; the receiver sees it, or its input's end.
    drop(input);
    receiver.wait().expect("ends");
    rate
}
