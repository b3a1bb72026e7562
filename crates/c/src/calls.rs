//! The functions of the header, in its order.
#![allow(unsafe_code, reason = "functions with names for C, and pointers as arguments")]

use crate::named;
use crate::raw;
use crate::registry::{NODES, error_text, run};
use crate::structs::{ABI_VERSION, CEvent, CSetting, CStep, Config, NO_IMMEDIATE, Remote, protection, rights};
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddrV6;
use std::time::Duration;
use strandway_ffi::last_error;
use strandway_mover::{Code, Event, Mover, MoverError, Options};
use strandway_udp::address::{parse, shown};
use strandway_udp::{PLANES_MAX, RemoteRegion};

/// The most bytes of a key; ours, far more than a key needs.
const KEY_MAX: usize = 4_096;
/// The most steps of one list; ours, as many as a connection has unfinished operations.
const LIST_MAX: usize = 16_384;
/// The most events of one call; ours.
const BATCH_MAX: usize = 4_096;

fn addresses(texts: &[String]) -> Result<Vec<SocketAddrV6>, MoverError> {
    let one = |text: &String| {
        parse(text, 0).ok_or_else(|| {
            let text = format!("{text}: no address; write it as 10.0.0.2:4000 or [fd00::2]:4000");
            MoverError::new(Code::Invalid, text)
        })
    };
    texts.iter().map(one).collect()
}

/// The version of the interface that this library has.
#[unsafe(no_mangle)]
pub extern "C" fn sw_abi_version() -> u32 {
    ABI_VERSION
}

/// The version of the library as a text.
#[unsafe(no_mangle)]
pub extern "C" fn sw_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The text of a code.
#[unsafe(no_mangle)]
pub extern "C" fn sw_error_text(code: i32) -> *const c_char {
    error_text(code)
}

/// The text of the last call of this thread that failed.
#[unsafe(no_mangle)]
pub extern "C" fn sw_last_error() -> *const c_char {
    last_error()
}

/// Fills a configuration with defaults.
///
/// # Safety
/// The pointer leads to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_config_init(config: *mut Config, size: usize) -> i32 {
    run(|| {
        if size != size_of::<Config>() {
            let text = format!("sw_config has {size} bytes, but {} here", size_of::<Config>());
            return Err(MoverError::new(Code::Version, text));
        }
        // SAFETY: the caller's structure has the size of ours.
        unsafe { raw::write(config, Config::new(), "config") }
    })
}

/// Opens a node.
///
/// # Safety
/// As strandway.h says for pointers: each is null, or leads to what it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_node_open(config: *const Config, node: *mut u64) -> i32 {
    run(|| {
        raw::check(node, "node")?;
        // SAFETY: the caller's structure begins with its size, and its pointers lead to what they name.
        let options = unsafe {
            let config = raw::read_config(config)?;
            let mut options = Options::new(&raw::bytes(config.key, config.key_length, KEY_MAX, "key")?);
            options.planes = addresses(&raw::texts(config.planes, config.planes_count, PLANES_MAX, "planes")?)?;
            if let Some(profile) = raw::text(config.profile, "profile")? {
                options.profile = profile;
            }
            if let Some(name) = raw::text(config.protection, "protection")? {
                options.protection = protection(&name)?;
            }
            config.apply(&mut options)?;
            options.log = raw::log_sink(config.log, config.log_context);
            options
        };
        let number = NODES.add(Mover::open(&options)?);
        // SAFETY: the pointer was checked above.
        unsafe { raw::write(node, number, "node") }
    })
}

/// Opens a node by settings with names and by variables of the environment.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_node_open_by_name(
    config: *const Config,
    settings: *const CSetting,
    count: usize,
    node: *mut u64,
) -> i32 {
    run(|| {
        raw::check(node, "node")?;
        // SAFETY: as for `sw_node_open`; the settings are `count` pairs of texts.
        let options = unsafe {
            let config = raw::read_config(config)?;
            let mut options = named::options(&raw::settings(settings, count)?, &config.defaults())?;
            Config { payload: 0, rate_mbps: 0, base_rtt_us: 0, ..config }.apply(&mut options)?;
            options.log = raw::log_sink(config.log, config.log_context);
            options
        };
        let number = NODES.add(Mover::open(&options)?);
        // SAFETY: the pointer was checked above.
        unsafe { raw::write(node, number, "node") }
    })
}

/// Closes a node.
#[unsafe(no_mangle)]
pub extern "C" fn sw_node_close(node: u64) -> i32 {
    run(|| {
        NODES.remove(node)?.shut();
        Ok(())
    })
}

/// Writes the address of a plane as a text.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_node_address(node: u64, plane: u32, text: *mut c_char, capacity: usize) -> i32 {
    run(|| {
        let all = NODES.find(node)?.addresses()?;
        let Some(address) = all.get(plane as usize) else {
            let planes = all.len();
            return Err(MoverError::new(Code::Invalid, format!("plane {plane}: the node has {planes}, from 0 on")));
        };
        // SAFETY: the caller gives room for `capacity` bytes.
        unsafe { raw::write_text(text, capacity, &shown(*address).to_string()) }
    })
}

/// Says on which descriptor to wait.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_node_descriptor(node: u64, descriptor: *mut c_int) -> i32 {
    run(|| {
        let number = NODES.find(node)?.descriptor();
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(descriptor, number, "descriptor") }
    })
}

/// Prepares a wait on the descriptor.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_node_rest(node: u64, milliseconds: *mut u32) -> i32 {
    run(|| {
        raw::check(milliseconds, "milliseconds")?;
        let rest = NODES.find(node)?.rest()?.as_nanos().div_ceil(1_000_000) as u32;
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(milliseconds, rest, "milliseconds") }
    })
}

/// Registers memory.
///
/// # Safety
/// The memory is there until it is released or the node is closed, as strandway.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_memory_register(node: u64, first: *mut c_void, length: usize, memory: *mut u64) -> i32 {
    run(|| {
        raw::check(memory, "memory")?;
        // SAFETY: the mover calls it only for memory that is not lent yet, and the caller promises the rest.
        let number = NODES.find(node)?.register(first.addr(), length, || unsafe { raw::borrow(first, length) })?;
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(memory, number, "memory") }
    })
}

/// Registers memory that is only read.
///
/// # Safety
/// As for `sw_memory_register`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_memory_show(node: u64, first: *const c_void, length: usize, memory: *mut u64) -> i32 {
    run(|| {
        raw::check(memory, "memory")?;
        // SAFETY: as for memory that is written.
        let number = NODES.find(node)?.show(first.addr(), length, || unsafe { raw::show(first, length) })?;
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(memory, number, "memory") }
    })
}

/// Gives memory back.
#[unsafe(no_mangle)]
pub extern "C" fn sw_memory_release(node: u64, memory: u64) -> i32 {
    run(|| NODES.find(node)?.release(memory))
}

/// Opens memory to the peer of a connection.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_memory_expose(
    node: u64,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    remote: *mut Remote,
) -> i32 {
    run(|| {
        raw::check(remote, "remote")?;
        let opened = NODES.find(node)?.expose(connection, memory, offset, length)?;
        // SAFETY: the caller gives room for the structure.
        unsafe { raw::write(remote, Remote { bytes: opened.to_bytes() }, "remote") }
    })
}

/// Opens memory to the peer of a connection, or to all, for some things.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_memory_expose_for(
    node: u64,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    bits: u32,
    remote: *mut Remote,
) -> i32 {
    run(|| {
        raw::check(remote, "remote")?;
        let opened = NODES.find(node)?.expose_for(connection, memory, offset, length, rights(bits)?)?;
        // SAFETY: the caller gives room for the structure.
        unsafe { raw::write(remote, Remote { bytes: opened.to_bytes() }, "remote") }
    })
}

/// Takes back what `sw_memory_expose` gave.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_memory_revoke(node: u64, remote: *const Remote) -> i32 {
    run(|| {
        // SAFETY: the caller gives a structure.
        let remote = RemoteRegion::from_bytes(unsafe { raw::read(remote, "remote") }?.bytes);
        if NODES.find(node)?.revoke(remote)? {
            return Ok(());
        }
        Err(MoverError::new(Code::NoMemory, "nothing is exposed by this value, or not any more"))
    })
}

/// Begins a connection.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_connect(
    node: u64,
    planes: *const *const c_char,
    planes_count: usize,
    service: u64,
    connection: *mut u64,
) -> i32 {
    run(|| {
        raw::check(connection, "connection")?;
        // SAFETY: the caller gives that many texts.
        let peer = addresses(&unsafe { raw::texts(planes, planes_count, PLANES_MAX, "planes") }?)?;
        let number = NODES.find(node)?.connect(&peer, service)?;
        // SAFETY: the caller gives room for a number.
        unsafe { raw::write(connection, number, "connection") }
    })
}

/// Ends a connection.
#[unsafe(no_mangle)]
pub extern "C" fn sw_close(node: u64, connection: u64) -> i32 {
    run(|| NODES.find(node)?.close(connection))
}

/// Writes into the peer's memory.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "a place here, a place there, and a number for each side")]
pub unsafe extern "C" fn sw_write(
    node: u64,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    remote: *const Remote,
    at: u64,
    immediate: u32,
    context: u64,
) -> i32 {
    run(|| {
        // SAFETY: the caller gives a structure.
        let remote = RemoteRegion::from_bytes(unsafe { raw::read(remote, "remote") }?.bytes);
        let immediate = (immediate != NO_IMMEDIATE).then_some(immediate);
        NODES.find(node)?.write(connection, memory, offset, length, remote, at, immediate, context)
    })
}

/// Reads the peer's memory.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "a place here, a place there, and a number")]
pub unsafe extern "C" fn sw_read(
    node: u64,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    remote: *const Remote,
    at: u64,
    context: u64,
) -> i32 {
    run(|| {
        // SAFETY: the caller gives a structure.
        let remote = RemoteRegion::from_bytes(unsafe { raw::read(remote, "remote") }?.bytes);
        NODES.find(node)?.read(connection, memory, offset, length, remote, at, context)
    })
}

/// Writes a list.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_write_list(
    node: u64,
    connection: u64,
    steps: *const CStep,
    count: usize,
    context: u64,
    posted: *mut usize,
) -> i32 {
    // SAFETY: the caller gives `count` steps, and room for a number.
    run(|| unsafe { post_list(node, connection, false, (steps, count), context, posted) })
}

/// Reads a list.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_read_list(
    node: u64,
    connection: u64,
    steps: *const CStep,
    count: usize,
    context: u64,
    posted: *mut usize,
) -> i32 {
    // SAFETY: the caller gives `count` steps, and room for a number.
    run(|| unsafe { post_list(node, connection, true, (steps, count), context, posted) })
}

/// Posts the steps of a list until one is refused.
///
/// # Safety
/// `steps` leads to that many values, `posted` to room for a number.
unsafe fn post_list(
    node: u64,
    connection: u64,
    reads: bool,
    (steps, count): (*const CStep, usize),
    context: u64,
    posted: *mut usize,
) -> Result<(), MoverError> {
    raw::check(posted, "posted")?;
    // SAFETY: the caller gives that many steps.
    let steps = unsafe { raw::values(steps, count, LIST_MAX, "steps") }?;
    let (done, stopped) = NODES.find(node)?.post_all(connection, reads, steps.into_iter().map(CStep::into), context)?;
    // SAFETY: the pointer was checked above.
    unsafe { raw::write(posted, done, "posted") }?;
    stopped.map_or(Ok(()), Err)
}

/// Adds to a word of the peer's memory.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_fetch_add(
    node: u64,
    connection: u64,
    remote: *const Remote,
    at: u64,
    number: u64,
    context: u64,
) -> i32 {
    run(|| {
        // SAFETY: the caller gives a structure.
        let remote = RemoteRegion::from_bytes(unsafe { raw::read(remote, "remote") }?.bytes);
        NODES.find(node)?.fetch_add(connection, remote, at, number, context)
    })
}

/// Compares and swaps a word of the peer's memory.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_compare_swap(
    node: u64,
    connection: u64,
    remote: *const Remote,
    at: u64,
    expected: u64,
    swapped: u64,
    context: u64,
) -> i32 {
    run(|| {
        // SAFETY: the caller gives a structure.
        let remote = RemoteRegion::from_bytes(unsafe { raw::read(remote, "remote") }?.bytes);
        NODES.find(node)?.compare_swap(connection, remote, at, expected, swapped, context)
    })
}

/// Sends a message.
#[unsafe(no_mangle)]
pub extern "C" fn sw_send(
    node: u64,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    tag: u64,
    context: u64,
) -> i32 {
    run(|| NODES.find(node)?.send(connection, memory, offset, length, tag, context))
}

/// Receives a message.
#[unsafe(no_mangle)]
pub extern "C" fn sw_receive(
    node: u64,
    connection: u64,
    memory: u64,
    offset: u64,
    length: u64,
    tag: u64,
    context: u64,
) -> i32 {
    run(|| NODES.find(node)?.receive(connection, memory, offset, length, tag, context))
}

/// Moves packets once.
#[unsafe(no_mangle)]
pub extern "C" fn sw_progress(node: u64) -> i32 {
    run(|| NODES.find(node)?.progress().map(drop))
}

/// Takes events.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_poll(node: u64, events: *mut CEvent, capacity: usize, count: *mut usize) -> i32 {
    // SAFETY: the caller gives room for `capacity` events.
    run(|| unsafe { take(events, capacity, count, |most| NODES.find(node)?.poll(most)) })
}

/// Waits for events.
///
/// # Safety
/// As strandway.h says for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sw_wait(
    node: u64,
    events: *mut CEvent,
    capacity: usize,
    timeout_ms: u32,
    count: *mut usize,
) -> i32 {
    let timeout = Duration::from_millis(timeout_ms.into());
    // SAFETY: the caller gives room for `capacity` events.
    run(|| unsafe { take(events, capacity, count, |most| NODES.find(node)?.wait(most, timeout)) })
}

/// Takes events by a call, which is not made if there is no room for its results.
///
/// # Safety
/// `events` leads to room for `capacity` events, `count` to room for a number.
unsafe fn take(
    events: *mut CEvent,
    capacity: usize,
    count: *mut usize,
    call: impl FnOnce(usize) -> Result<Vec<Event>, MoverError>,
) -> Result<(), MoverError> {
    raw::check(count, "count")?;
    raw::check(events, "events")?;
    if capacity == 0 {
        return Err(MoverError::new(Code::Invalid, "room for no event: give some"));
    }
    let taken = call(capacity.min(BATCH_MAX))?;
    // SAFETY: there are no more events than the caller has room for.
    unsafe {
        raw::write(count, taken.len(), "count")?;
        raw::write_events(events, taken);
    }
    Ok(())
}
