//! The library, loaded as NCCL loads it, with one face for all versions of the interface.

use nccl_net_strandway::*;
use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Mutex;

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// An object of the plug-in.
pub(crate) type Object = *mut c_void;

/// A copy of the library under the name that NCCL looks for, in a folder of its own.
pub(crate) fn library(folder: &std::path::Path) -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let beside = tests.parent().expect("a folder");
    let built = ["libnccl_net_strandway.so", "../libnccl_net_strandway.so"].map(|name| beside.join(name));
    let built = built.iter().find(|path| path.exists()).expect("cargo builds the library for its tests");
    let named = folder.join("libnccl-net-strandway.so");
    std::fs::copy(built, &named).expect("copied");
    named
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Lines that the plug-in has written to NCCL's log.
pub(crate) fn log() -> Vec<String> {
    LOG.lock().expect("whole").clone()
}

/// NCCL's function has more arguments than those, which a function of fixed arguments may leave alone on this platform.
unsafe extern "C" fn take_line(
    level: c_int,
    _subsystems: c_ulong,
    _file: *const c_char,
    _line: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: both are texts.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!(format, c"%s");
    LOG.lock().expect("whole").push(format!("{level} {}", text.to_string_lossy()));
}

#[derive(Clone, Copy)]
enum Tables {
    V8(&'static NetV8),
    V9(&'static NetV9),
    V10(&'static NetV10),
    V11(&'static NetV11),
    V12(&'static NetV12),
}

/// A loaded plug-in, of one version.
#[derive(Clone, Copy)]
pub(crate) struct Net(Tables);

/// A buffer of a group of receives.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) data: *mut u8,
    pub(crate) size: usize,
    pub(crate) tag: c_int,
    pub(crate) memory: Object,
}

macro_rules! every {
    ($net:expr, $table:ident => $call:expr) => {
        match $net.0 {
            // SAFETY: the tables lead to functions of these types, and the tests' pointers to what they name.
            Tables::V8($table) => unsafe { $call },
            // SAFETY: as above.
            Tables::V9($table) => unsafe { $call },
            // SAFETY: as above.
            Tables::V10($table) => unsafe { $call },
            // SAFETY: as above.
            Tables::V11($table) => unsafe { $call },
            // SAFETY: as above.
            Tables::V12($table) => unsafe { $call },
        }
    };
}

impl Net {
    pub(crate) fn load(library: &std::path::Path, version: u32) -> Net {
        let name = CString::new(library.to_str().expect("a path")).expect("no zero");
        // SAFETY: RTLD_NOW | RTLD_LOCAL, and a library of ours.
        let opened = unsafe { dlopen(name.as_ptr(), 2) };
        assert!(!opened.is_null(), "{} is loaded", library.display());
        let symbol = CString::new(format!("ncclNet_v{version}")).expect("no zero");
        // SAFETY: the library is open.
        let table = unsafe { dlsym(opened, symbol.as_ptr()) };
        assert!(!table.is_null(), "{symbol:?}");
        // SAFETY: the symbol is a table of this version, and the library stays.
        let net = unsafe {
            Net(match version {
                8 => Tables::V8(&*table.cast()),
                9 => Tables::V9(&*table.cast()),
                10 => Tables::V10(&*table.cast()),
                11 => Tables::V11(&*table.cast()),
                _ => Tables::V12(&*table.cast()),
            })
        };
        // SAFETY: the name is a text of the library.
        assert_eq!(every!(net, table => CStr::from_ptr(table.name)), c"Strandway");
        net
    }

    pub(crate) fn init(self) -> Outcome {
        let logger: unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char) =
            take_line;
        // SAFETY: with the arguments that the plug-in gives, the platform passes them alike to both kinds of function.
        let logger: Logger = Some(unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char),
                unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...),
            >(logger)
        });
        let mut context = ptr::null_mut();
        // SAFETY: as the interface says.
        unsafe {
            match self.0 {
                Tables::V8(table) => (table.init)(logger),
                Tables::V9(table) => (table.init)(logger),
                Tables::V10(table) => (table.init)(logger, ptr::null()),
                Tables::V11(table) => (table.init)(&raw mut context, 7, ptr::null(), logger, ptr::null()),
                Tables::V12(table) => (table.init)(&raw mut context, 7, ptr::null(), logger, ptr::null()),
            }
        }
    }

    pub(crate) fn devices(self) -> c_int {
        let mut count = -1;
        assert_eq!(every!(self, table => (table.devices)(&raw mut count)), Outcome::Success);
        count
    }

    /// Speed, kinds of pointers, receives of a group, name, plane.
    pub(crate) fn properties(self, device: c_int) -> Option<(c_int, c_int, c_int, String, i16)> {
        macro_rules! of {
            ($table:ident, $properties:ty, $base:ident => $plane:expr) => {{
                let mut room = std::mem::MaybeUninit::<$properties>::uninit();
                // SAFETY: there is room, which is filled if the call succeeds; the name is a text.
                unsafe {
                    if ($table.get_properties)(device, room.as_mut_ptr()) != Outcome::Success {
                        return None;
                    }
                    let all = room.assume_init();
                    let $base = &all;
                    let (plane, $base) = $plane;
                    let name = CStr::from_ptr($base.name).to_string_lossy().into_owned();
                    Some(($base.speed, $base.ptr_support, $base.max_recvs, name, plane))
                }
            }};
        }
        match self.0 {
            Tables::V8(table) => of!(table, PropertiesV8, all => (UNDEFINED, all)),
            Tables::V9(table) => of!(table, PropertiesV9<4>, all => (UNDEFINED, all)),
            Tables::V10(table) => of!(table, PropertiesV9<4>, all => (UNDEFINED, all)),
            Tables::V11(table) => of!(table, PropertiesV11, all => (UNDEFINED, &all.base)),
            Tables::V12(table) => of!(table, PropertiesV12, all => (all.plane, &all.base)),
        }
    }

    pub(crate) fn listen(self, device: c_int) -> Option<([u8; HANDLE_BYTES], Object)> {
        let (mut handle, mut listener) = ([0u8; HANDLE_BYTES], ptr::null_mut());
        let (bytes, of) = (handle.as_mut_ptr().cast(), &raw mut listener);
        // SAFETY: as the interface says.
        let outcome = unsafe {
            match self.0 {
                Tables::V8(table) => (table.listen)(device, bytes, of),
                Tables::V9(table) => (table.listen)(device, bytes, of),
                Tables::V10(table) => (table.listen)(device, bytes, of),
                Tables::V11(table) => (table.listen)(ptr::null_mut(), device, bytes, of),
                Tables::V12(table) => (table.listen)(ptr::null_mut(), device, bytes, of),
            }
        };
        (outcome == Outcome::Success).then_some((handle, listener))
    }

    pub(crate) fn connect(self, device: c_int, handle: &mut [u8; HANDLE_BYTES]) -> Result<Object, Outcome> {
        let mut comm = ptr::without_provenance_mut(1);
        let (bytes, of, none) = (handle.as_mut_ptr().cast(), &raw mut comm, ptr::null());
        // SAFETY: as the interface says.
        let outcome = unsafe {
            match self.0 {
                Tables::V8(table) => (table.connect)(device, bytes, of, none),
                Tables::V9(table) => (table.connect)(device, bytes, of, none),
                Tables::V10(table) => (table.connect)(device, none, bytes, of, none),
                Tables::V11(table) => (table.connect)(ptr::null_mut(), device, bytes, of, none),
                Tables::V12(table) => (table.connect)(ptr::null_mut(), device, bytes, of, none),
            }
        };
        if outcome == Outcome::Success { Ok(comm) } else { Err(outcome) }
    }

    pub(crate) fn accept(self, listener: Object) -> Result<Object, Outcome> {
        let mut comm = ptr::without_provenance_mut(1);
        let outcome = every!(self, table => (table.accept)(listener, &raw mut comm, ptr::null()));
        if outcome == Outcome::Success { Ok(comm) } else { Err(outcome) }
    }

    pub(crate) fn register(self, comm: Object, data: *mut u8, size: usize, kind: c_int) -> Result<Object, Outcome> {
        let mut memory = ptr::null_mut();
        let outcome = every!(self, table => (table.reg_mr)(comm, data.cast(), size, kind, &raw mut memory));
        if outcome == Outcome::Success { Ok(memory) } else { Err(outcome) }
    }

    pub(crate) fn deregister(self, comm: Object, memory: Object) -> Outcome {
        every!(self, table => (table.dereg_mr)(comm, memory))
    }

    /// A request, which is null if the call is to be repeated.
    pub(crate) fn send(self, comm: Object, room: Room) -> Result<Object, Outcome> {
        let mut request = ptr::without_provenance_mut(1);
        let (data, of) = (room.data.cast::<c_void>(), &raw mut request);
        let (size, tag, memory) = (room.size, room.tag, room.memory);
        // SAFETY: as the interface says.
        let outcome = unsafe {
            match self.0 {
                Tables::V8(table) => (table.isend)(comm, data, size as c_int, tag, memory, of),
                Tables::V9(table) => (table.isend)(comm, data, size, tag, memory, of),
                Tables::V10(table) => (table.isend)(comm, data, size, tag, memory, ptr::null(), of),
                Tables::V11(table) => (table.isend)(comm, data, size, tag, memory, ptr::null(), of),
                Tables::V12(table) => (table.isend)(comm, data, size, tag, memory, ptr::null(), of),
            }
        };
        if outcome == Outcome::Success { Ok(request) } else { Err(outcome) }
    }

    /// A request for a group, which is null if the call is to be repeated.
    pub(crate) fn receive(self, comm: Object, rooms: &[Room]) -> Result<Object, Outcome> {
        let mut request = ptr::without_provenance_mut(1);
        let (of, count, none) = (&raw mut request, rooms.len() as c_int, ptr::null());
        let data: Vec<*mut c_void> = rooms.iter().map(|room| room.data.cast()).collect();
        let sizes: Vec<usize> = rooms.iter().map(|room| room.size).collect();
        let small: Vec<c_int> = sizes.iter().map(|&size| size as c_int).collect();
        let tags: Vec<c_int> = rooms.iter().map(|room| room.tag).collect();
        let memory: Vec<Object> = rooms.iter().map(|room| room.memory).collect();
        let (data, sizes, small, tags, memory) =
            (data.as_ptr(), sizes.as_ptr(), small.as_ptr(), tags.as_ptr(), memory.as_ptr());
        // SAFETY: as the interface says: lists of `count` entries.
        let outcome = unsafe {
            match self.0 {
                Tables::V8(table) => (table.irecv)(comm, count, data, small, tags, memory, of),
                Tables::V9(table) => (table.irecv)(comm, count, data, sizes, tags, memory, of),
                Tables::V10(table) => (table.irecv)(comm, count, data, sizes, tags, memory, none, of),
                Tables::V11(table) => (table.irecv)(comm, count, data, sizes, tags, memory, none, of),
                Tables::V12(table) => (table.irecv)(comm, count, data, sizes, tags, memory, none, of),
            }
        };
        if outcome == Outcome::Success { Ok(request) } else { Err(outcome) }
    }

    pub(crate) fn flush(self, comm: Object) -> Object {
        let (mut request, none) = (ptr::without_provenance_mut(1), ptr::null());
        let outcome = every!(self, table => (table.iflush)(comm, 1, none, none, none, &raw mut request));
        assert_eq!(outcome, Outcome::Success);
        request
    }

    /// The sizes of a request that has ended.
    pub(crate) fn test(self, request: Object) -> Result<Option<[c_int; RECVS_MAX]>, Outcome> {
        let (mut done, mut sizes) = (-1, [-1; RECVS_MAX]);
        match every!(self, table => (table.test)(request, &raw mut done, sizes.as_mut_ptr())) {
            Outcome::Success => Ok((done == 1).then_some(sizes)),
            other => Err(other),
        }
    }

    /// `test` without room for what it says.
    pub(crate) fn test_without_room(self, request: Object) -> Outcome {
        every!(self, table => (table.test)(request, ptr::null_mut(), ptr::null_mut()))
    }

    pub(crate) fn close_send(self, comm: Object) -> Outcome {
        every!(self, table => (table.close_send)(comm))
    }

    pub(crate) fn close_receive(self, comm: Object) -> Outcome {
        every!(self, table => (table.close_recv)(comm))
    }

    pub(crate) fn close_listen(self, listener: Object) -> Outcome {
        every!(self, table => (table.close_listen)(listener))
    }
}
