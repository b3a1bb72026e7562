//! The functions and tables that NCCL finds in the library.
#![allow(unsafe_code, reason = "functions with names for C, and pointers as arguments")]

use crate::abi::*;
use crate::plugin::{self, Done, Failure, Part};
use std::ffi::{CString, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use strandway_mover::Level;

/// NCCL's function for lines of its log, as it gave it to the last `init`.
static LOGGER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// `NCCL_LOG_WARN` and `NCCL_LOG_INFO`.
const LOG_WARN: c_int = 2;
const LOG_INFO: c_int = 3;
/// `NCCL_INIT | NCCL_NET`.
const SUBSYSTEMS: std::ffi::c_ulong = 1 | 16;
const NAME: &std::ffi::CStr = c"Strandway";

fn log(level: Level, text: &str) {
    let logger = LOGGER.load(Ordering::Acquire);
    if logger.is_null() {
        return;
    }
    // SAFETY: `start_log` has stored a function of this type, or null.
    let logger = unsafe { std::mem::transmute::<*mut c_void, Logger>(logger) };
    let (Some(logger), Ok(text)) = (logger, CString::new(format!("NET/Strandway: {}", text.replace('\0', " ")))) else {
        return;
    };
    let level = if level == Level::Warning { LOG_WARN } else { LOG_INFO };
    // SAFETY: the format takes one text, and all texts end with a zero.
    unsafe { logger(level, SUBSYSTEMS, c"strandway".as_ptr(), 0, c"%s".as_ptr(), text.as_ptr()) };
}

fn start_log(logger: Logger) {
    LOGGER.store(logger.map_or(ptr::null_mut(), |logger| logger as *mut c_void), Ordering::Release);
}

/// Runs a call: a failure is a line of the log. A panic is a failure.
fn run(call: impl FnOnce() -> Done<()>) -> Outcome {
    let panicked = |_| Err(Failure { outcome: Outcome::Internal, text: "an error of the plug-in".into() });
    match catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked) {
        Ok(()) => Outcome::Success,
        Err(Failure { outcome, text }) => {
            log(Level::Warning, &text);
            outcome
        }
    }
}

fn is_room<T>(pointer: *const T) -> Done<()> {
    if !pointer.is_null() && pointer.is_aligned() {
        return Ok(());
    }
    Err(Failure { outcome: Outcome::Internal, text: "a null pointer where a value is needed".into() })
}

/// # Safety
/// A pointer that is neither null nor misaligned leads to room for the value.
unsafe fn put<T>(pointer: *mut T, value: T) -> Done<()> {
    is_room(pointer)?;
    // SAFETY: it was checked, and the caller promises the rest.
    unsafe { pointer.write(value) };
    Ok(())
}

/// # Safety
/// A pointer that is neither null nor misaligned leads to `count` values.
unsafe fn list<'a, T>(pointer: *const T, count: usize) -> Done<&'a [T]> {
    is_room(pointer)?;
    // SAFETY: it was checked, and the caller promises the rest; the count is small.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// A number of an object, as NCCL keeps it.
const fn as_pointer(number: u64) -> *mut c_void {
    ptr::without_provenance_mut(number as usize)
}

fn number(object: *mut c_void) -> u64 {
    object.addr() as u64
}

fn start(logger: Logger) -> Outcome {
    start_log(logger);
    run(|| plugin::init(log, |name| std::env::var(name).ok().filter(|value| !value.is_empty())))
}

unsafe extern "C" fn init_v8(logger: Logger) -> Outcome {
    start(logger)
}

unsafe extern "C" fn init_v10(logger: Logger, _profiler: Nothing) -> Outcome {
    start(logger)
}

unsafe extern "C" fn init_v11(
    context: *mut *mut c_void,
    _communicator: u64,
    _config: Nothing,
    logger: Logger,
    _profiler: Nothing,
) -> Outcome {
    match start(logger) {
        // SAFETY: NCCL gives room for a pointer.
        Outcome::Success => run(|| unsafe { put(context, as_pointer(1)) }),
        other => other,
    }
}

unsafe extern "C" fn devices(count: *mut c_int) -> Outcome {
    // SAFETY: NCCL gives room for a number.
    run(|| unsafe { put(count, plugin::count() as c_int) })
}

fn properties<const N: usize>(number: c_int) -> Done<PropertiesV9<N>> {
    let device = plugin::device(number)?;
    let mut list = [0; N];
    list[0] = number;
    Ok(PropertiesV9 {
        name: device.name.as_ptr(),
        pci_path: device.pci_path.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
        guid: number as u64,
        ptr_support: PTR_HOST,
        reg_is_global: 0,
        force_flush: 0,
        speed: device.speed as c_int,
        port: 0,
        latency: 0.0,
        max_comms: device.options.connections_max as c_int,
        max_recvs: RECVS_MAX as c_int,
        net_device_type: 0,
        net_device_version: 0,
        devices: 1,
        device: list,
        max_p2p_bytes: TRANSFER_MAX,
        max_coll_bytes: TRANSFER_MAX,
    })
}

unsafe extern "C" fn properties_v8(device: c_int, room: *mut PropertiesV8) -> Outcome {
    run(|| {
        let of = properties::<4>(device)?;
        let old = PropertiesV8 {
            name: of.name,
            pci_path: of.pci_path,
            guid: of.guid,
            ptr_support: of.ptr_support,
            reg_is_global: of.reg_is_global,
            speed: of.speed,
            port: of.port,
            latency: of.latency,
            max_comms: of.max_comms,
            max_recvs: of.max_recvs,
            net_device_type: of.net_device_type,
            net_device_version: of.net_device_version,
        };
        // SAFETY: NCCL gives room for the structure of its version.
        unsafe { put(room, old) }
    })
}

unsafe extern "C" fn properties_v9(device: c_int, room: *mut PropertiesV9<4>) -> Outcome {
    // SAFETY: NCCL gives room for the structure of its version.
    run(|| unsafe { put(room, properties(device)?) })
}

unsafe extern "C" fn properties_v11(device: c_int, room: *mut PropertiesV11) -> Outcome {
    run(|| {
        let of = PropertiesV11 { base: properties(device)?, max_multi_request_size: 1 };
        // SAFETY: NCCL gives room for the structure of its version.
        unsafe { put(room, of) }
    })
}

unsafe extern "C" fn properties_v12(device: c_int, room: *mut PropertiesV12) -> Outcome {
    run(|| {
        let plane = plugin::device(device)?.plane.unwrap_or(UNDEFINED);
        let of = PropertiesV12 { base: properties(device)?, max_multi_request_size: 1, rail: UNDEFINED, plane };
        // SAFETY: NCCL gives room for the structure of its version.
        unsafe { put(room, of) }
    })
}

unsafe extern "C" fn listen(device: c_int, handle: *mut c_void, listener: *mut *mut c_void) -> Outcome {
    run(|| {
        is_room(handle.cast::<u8>())?;
        is_room(listener)?;
        let (bytes, of) = plugin::listen(device)?;
        // SAFETY: NCCL gives room for a handle and for a pointer.
        unsafe {
            put(handle.cast::<[u8; HANDLE_BYTES]>(), bytes)?;
            put(listener, as_pointer(of))
        }
    })
}

unsafe extern "C" fn listen_v11(
    _context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    listener: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { listen(device, handle, listener) }
}

unsafe extern "C" fn connect(device: c_int, handle: *mut c_void, comm: *mut *mut c_void, _offload: Nothing) -> Outcome {
    run(|| {
        is_room(handle.cast::<u8>())?;
        // SAFETY: NCCL gives room for a pointer.
        unsafe { put(comm, ptr::null_mut()) }?;
        // SAFETY: NCCL gives a handle of a listener, in memory that it keeps from call to call.
        let mut bytes = unsafe { handle.cast::<[u8; HANDLE_BYTES]>().read() };
        let outcome = plugin::connect(device, &mut bytes);
        // SAFETY: as above.
        unsafe { put(handle.cast(), bytes) }?;
        let of = outcome?.map_or(ptr::null_mut(), as_pointer);
        // SAFETY: as above.
        unsafe { put(comm, of) }
    })
}

unsafe extern "C" fn connect_v10(
    device: c_int,
    _config: Nothing,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    offload: Nothing,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { connect(device, handle, comm, offload) }
}

unsafe extern "C" fn connect_v11(
    _context: *mut c_void,
    device: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
    offload: Nothing,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { connect(device, handle, comm, offload) }
}

unsafe extern "C" fn accept(listener: *mut c_void, comm: *mut *mut c_void, _offload: Nothing) -> Outcome {
    run(|| {
        // SAFETY: NCCL gives room for a pointer.
        unsafe { put(comm, ptr::null_mut()) }?;
        let of = plugin::accept(number(listener))?.map_or(ptr::null_mut(), as_pointer);
        // SAFETY: as above.
        unsafe { put(comm, of) }
    })
}

unsafe extern "C" fn reg_mr(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    kind: c_int,
    memory: *mut *mut c_void,
) -> Outcome {
    run(|| {
        is_room(memory)?;
        if kind != PTR_HOST {
            let text = "memory of a GPU: the plug-in takes host memory, and says so in its properties".into();
            return Err(Failure { outcome: Outcome::Internal, text });
        }
        // SAFETY: the plug-in calls it only for memory that is not lent yet, with an address, and no longer than
        // `isize::MAX`. NCCL keeps the memory until `deregMr`, and leaves it alone while requests use it.
        let lend = || unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), size) };
        let of = plugin::register(number(comm), data.addr(), size, lend)?;
        // SAFETY: NCCL gives room for a pointer.
        unsafe { put(memory, as_pointer(of)) }
    })
}

unsafe extern "C" fn dereg_mr(comm: *mut c_void, memory: *mut c_void) -> Outcome {
    run(|| plugin::deregister(number(comm), number(memory)))
}

unsafe extern "C" fn isend(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    memory: *mut c_void,
    request: *mut *mut c_void,
) -> Outcome {
    run(|| {
        // SAFETY: NCCL gives room for a pointer.
        unsafe { put(request, ptr::null_mut()) }?;
        let part = Part { address: data.addr(), length: size as u64, tag, memory: number(memory) };
        let of = plugin::start(number(comm), &[part], false)?.map_or(ptr::null_mut(), as_pointer);
        // SAFETY: as above.
        unsafe { put(request, of) }
    })
}

unsafe extern "C" fn isend_v8(
    comm: *mut c_void,
    data: *mut c_void,
    size: c_int,
    tag: c_int,
    memory: *mut c_void,
    request: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the same arguments. A negative size is more than any memory has.
    unsafe { isend(comm, data, size as usize, tag, memory, request) }
}

unsafe extern "C" fn isend_v10(
    comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    tag: c_int,
    memory: *mut c_void,
    _profiler: Nothing,
    request: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { isend(comm, data, size, tag, memory, request) }
}

/// `irecv` with sizes of either type.
///
/// # Safety
/// As NCCL's interface says: `count` entries in each list, room for a request.
unsafe fn receive<S: Copy>(
    comm: *mut c_void,
    count: c_int,
    (data, sizes, tags): (*const *mut c_void, *const S, *const c_int),
    memory: *const *mut c_void,
    request: *mut *mut c_void,
    length: fn(S) -> u64,
) -> Outcome {
    run(|| {
        // SAFETY: NCCL gives room for a pointer.
        unsafe { put(request, ptr::null_mut()) }?;
        let wrong = || Failure { outcome: Outcome::Internal, text: format!("{count} receives: give 1 to {RECVS_MAX}") };
        let entries = usize::try_from(count).ok().filter(|count| (1..=RECVS_MAX).contains(count)).ok_or_else(wrong)?;
        // SAFETY: NCCL gives lists of that many entries.
        let (data, sizes, tags, memory) =
            unsafe { (list(data, entries)?, list(sizes, entries)?, list(tags, entries)?, list(memory, entries)?) };
        let part = |at: usize| Part {
            address: data[at].addr(),
            length: length(sizes[at]),
            tag: tags[at],
            memory: number(memory[at]),
        };
        let parts: Vec<Part> = (0..entries).map(part).collect();
        let of = plugin::start(number(comm), &parts, true)?.map_or(ptr::null_mut(), as_pointer);
        // SAFETY: as above.
        unsafe { put(request, of) }
    })
}

unsafe extern "C" fn irecv_v8(
    comm: *mut c_void,
    count: c_int,
    data: *const *mut c_void,
    sizes: *const c_int,
    tags: *const c_int,
    memory: *const *mut c_void,
    request: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the same arguments. A negative size is more than any memory has.
    unsafe { receive(comm, count, (data, sizes, tags), memory, request, |size| size as u64) }
}

unsafe extern "C" fn irecv_v9(
    comm: *mut c_void,
    count: c_int,
    data: *const *mut c_void,
    sizes: *const usize,
    tags: *const c_int,
    memory: *const *mut c_void,
    request: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { receive(comm, count, (data, sizes, tags), memory, request, |size| size as u64) }
}

unsafe extern "C" fn irecv_v10(
    comm: *mut c_void,
    count: c_int,
    data: *const *mut c_void,
    sizes: *const usize,
    tags: *const c_int,
    memory: *const *mut c_void,
    _profiler: Nothing,
    request: *mut *mut c_void,
) -> Outcome {
    // SAFETY: the same arguments.
    unsafe { irecv_v9(comm, count, data, sizes, tags, memory, request) }
}

unsafe extern "C" fn iflush(
    _comm: *mut c_void,
    _count: c_int,
    _data: Nothing,
    _sizes: Nothing,
    _memory: Nothing,
    request: *mut *mut c_void,
) -> Outcome {
    // Host memory needs no flush: no request is one that has ended.
    // SAFETY: NCCL gives room for a pointer.
    run(|| unsafe { put(request, ptr::null_mut()) })
}

unsafe extern "C" fn test(request: *mut c_void, done: *mut c_int, sizes: *mut c_int) -> Outcome {
    run(|| {
        // SAFETY: NCCL gives room for a number.
        unsafe { put(done, 0) }?;
        let Some((bytes, count)) = plugin::test(number(request))? else { return Ok(()) };
        if !sizes.is_null() {
            for (at, bytes) in bytes.into_iter().take(count).enumerate() {
                // SAFETY: NCCL gives room for as many sizes as the request has buffers.
                unsafe { put(sizes.add(at), bytes as c_int) }?;
            }
        }
        // SAFETY: as above.
        unsafe { put(done, 1) }
    })
}

unsafe extern "C" fn close_comm(comm: *mut c_void) -> Outcome {
    run(|| plugin::close(number(comm)))
}

unsafe extern "C" fn close_listen(listener: *mut c_void) -> Outcome {
    run(|| plugin::close_listener(number(listener)))
}

unsafe extern "C" fn finalize(_context: *mut c_void) -> Outcome {
    Outcome::Success
}

unsafe extern "C" fn set_net_attr(_context: *mut c_void, _attributes: Nothing) -> Outcome {
    Outcome::Success
}

/// A table of functions, which never changes.
#[repr(transparent)]
#[derive(Debug)]
pub struct Table<T>(pub T);

// SAFETY: its pointers lead to functions and to a text of the library, or are null.
unsafe impl<T> Sync for Table<T> {}

macro_rules! export {
    ($(#[$doc:meta] $symbol:ident: $table:ident {
        $init:ident, $properties:ident, $listen:ident, $connect:ident, $isend:ident, $irecv:ident $(, $last:ident: $value:expr)*
    })*) => {
        $(
            #[$doc]
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "NCCL looks for this name")]
            pub static $symbol: Table<$table> = Table($table {
                name: NAME.as_ptr(),
                init: $init,
                devices,
                get_properties: $properties,
                listen: $listen,
                connect: $connect,
                accept,
                reg_mr,
                reg_mr_dma_buf: ptr::null(),
                dereg_mr,
                isend: $isend,
                irecv: $irecv,
                iflush,
                test,
                close_send: close_comm,
                close_recv: close_comm,
                close_listen,
                get_device_mr: ptr::null(),
                irecv_consumed: ptr::null(),
                $($last: $value,)*
            });
        )*
    };
}

export! {
    /// The table of version 8.
    ncclNet_v8: NetV8 { init_v8, properties_v8, listen, connect, isend_v8, irecv_v8 }
    /// The table of version 9.
    ncclNet_v9: NetV9 { init_v8, properties_v9, listen, connect, isend, irecv_v9, make_v_device: ptr::null() }
    /// The table of version 10.
    ncclNet_v10: NetV10 {
        init_v10, properties_v9, listen, connect_v10, isend_v10, irecv_v10, make_v_device: ptr::null()
    }
    /// The table of version 11.
    ncclNet_v11: NetV11 {
        init_v11, properties_v11, listen_v11, connect_v11, isend_v10, irecv_v10,
        make_v_device: ptr::null(), finalize: finalize, set_net_attr: set_net_attr
    }
    /// The table of version 12.
    ncclNet_v12: NetV12 {
        init_v11, properties_v12, listen_v11, connect_v11, isend_v10, irecv_v10,
        make_v_device: ptr::null(), finalize: finalize, set_net_attr: set_net_attr
    }
}
