//! The structures of `ncclNet`, versions 8 to 12, as far as a plug-in for host memory needs them.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// `ncclResult_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Outcome {
    /// `ncclSuccess`.
    Success = 0,
    /// `ncclSystemError`: the system refused something.
    System = 2,
    /// `ncclInternalError`: the caller broke the interface's rules.
    Internal = 3,
    /// `ncclInvalidUsage`: the configuration is wrong.
    Usage = 5,
    /// `ncclRemoteError`: the peer has gone.
    Remote = 6,
}

/// `NCCL_PTR_HOST`.
pub const PTR_HOST: c_int = 1;
/// `NCCL_NET_HANDLE_MAXSIZE`.
pub const HANDLE_BYTES: usize = 128;
/// The most receives of a group.
pub const RECVS_MAX: usize = 8;
/// An unknown rail or plane.
pub const UNDEFINED: i16 = -1;
/// The largest transfer: NCCL's own limit.
pub const TRANSFER_MAX: usize = 1 << 40;

/// `ncclDebugLogger_t`: level, subsystems, file, line, format.
pub type Logger = Option<unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...)>;
/// A function that is not there, or that this plug-in does not call.
pub type Nothing = *const c_void;

/// Properties of a device, version 8.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the interface")]
pub struct PropertiesV8 {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub ptr_support: c_int,
    pub reg_is_global: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: f32,
    pub max_comms: c_int,
    pub max_recvs: c_int,
    pub net_device_type: c_int,
    pub net_device_version: c_int,
}

/// Properties of a device, versions 9 and 10, with at most `N` devices in one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the interface")]
pub struct PropertiesV9<const N: usize> {
    pub name: *const c_char,
    pub pci_path: *const c_char,
    pub guid: u64,
    pub ptr_support: c_int,
    pub reg_is_global: c_int,
    pub force_flush: c_int,
    pub speed: c_int,
    pub port: c_int,
    pub latency: f32,
    pub max_comms: c_int,
    pub max_recvs: c_int,
    pub net_device_type: c_int,
    pub net_device_version: c_int,
    pub devices: c_int,
    pub device: [c_int; N],
    pub max_p2p_bytes: usize,
    pub max_coll_bytes: usize,
}

/// Properties of a device, version 11.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the interface")]
pub struct PropertiesV11 {
    pub base: PropertiesV9<4>,
    pub max_multi_request_size: c_int,
}

/// Properties of a device, version 12.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of the interface")]
pub struct PropertiesV12 {
    pub base: PropertiesV9<8>,
    pub max_multi_request_size: c_int,
    pub rail: i16,
    pub plane: i16,
}

/// Functions that all versions have alike.
pub type Devices = unsafe extern "C" fn(*mut c_int) -> Outcome;
/// `getProperties`.
pub type GetProperties<P> = unsafe extern "C" fn(c_int, *mut P) -> Outcome;
/// `accept`.
pub type Accept = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, Nothing) -> Outcome;
/// `regMr`.
pub type RegMr = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut *mut c_void) -> Outcome;
/// `deregMr`.
pub type DeregMr = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Outcome;
/// `iflush`.
pub type Flush = unsafe extern "C" fn(*mut c_void, c_int, Nothing, Nothing, Nothing, *mut *mut c_void) -> Outcome;
/// `test`.
pub type Test = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> Outcome;
/// `closeSend`, `closeRecv` and `closeListen`.
pub type Close = unsafe extern "C" fn(*mut c_void) -> Outcome;

/// `connect` and `listen`, versions 8 and 9.
pub type ConnectV8 = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, Nothing) -> Outcome;
/// `listen`, versions 8 to 10.
pub type ListenV8 = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> Outcome;
/// `connect`, version 10.
pub type ConnectV10 = unsafe extern "C" fn(c_int, Nothing, *mut c_void, *mut *mut c_void, Nothing) -> Outcome;
/// `listen`, versions 11 and 12.
pub type ListenV11 = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> Outcome;
/// `connect`, versions 11 and 12.
pub type ConnectV11 = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void, Nothing) -> Outcome;

/// `isend`, version 8.
pub type SendV8 =
    unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int, *mut c_void, *mut *mut c_void) -> Outcome;
/// `irecv`, version 8.
pub type RecvV8 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const *mut c_void,
    *const c_int,
    *const c_int,
    *const *mut c_void,
    *mut *mut c_void,
) -> Outcome;
/// `isend`, version 9.
pub type SendV9 =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut c_void, *mut *mut c_void) -> Outcome;
/// `irecv`, version 9.
pub type RecvV9 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const *mut c_void,
    *const usize,
    *const c_int,
    *const *mut c_void,
    *mut *mut c_void,
) -> Outcome;
/// `isend`, versions 10 to 12, with a handle of the profiler.
pub type SendV10 =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut c_void, Nothing, *mut *mut c_void) -> Outcome;
/// `irecv`, versions 10 to 12, with handles of the profiler.
pub type RecvV10 = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *const *mut c_void,
    *const usize,
    *const c_int,
    *const *mut c_void,
    Nothing,
    *mut *mut c_void,
) -> Outcome;
/// `init`, versions 8 and 9.
pub type InitV8 = unsafe extern "C" fn(Logger) -> Outcome;
/// `init`, version 10, with the profiler's function.
pub type InitV10 = unsafe extern "C" fn(Logger, Nothing) -> Outcome;
/// `init`, versions 11 and 12.
pub type InitV11 = unsafe extern "C" fn(*mut *mut c_void, u64, Nothing, Logger, Nothing) -> Outcome;

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident { $init:ty, $properties:ty, $listen:ty, $connect:ty, $send:ty, $recv:ty $(, $last:ident: $kind:ty)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            #[allow(missing_docs, reason = "the names are those of the interface")]
            pub struct $table {
                pub name: *const c_char,
                pub init: $init,
                pub devices: Devices,
                pub get_properties: GetProperties<$properties>,
                pub listen: $listen,
                pub connect: $connect,
                pub accept: Accept,
                pub reg_mr: RegMr,
                pub reg_mr_dma_buf: Nothing,
                pub dereg_mr: DeregMr,
                pub isend: $send,
                pub irecv: $recv,
                pub iflush: Flush,
                pub test: Test,
                pub close_send: Close,
                pub close_recv: Close,
                pub close_listen: Close,
                pub get_device_mr: Nothing,
                pub irecv_consumed: Nothing,
                $(pub $last: $kind,)*
            }
        )*
    };
}

tables! {
    /// `ncclNet_v8_t`.
    NetV8 { InitV8, PropertiesV8, ListenV8, ConnectV8, SendV8, RecvV8 }
    /// `ncclNet_v9_t`.
    NetV9 { InitV8, PropertiesV9<4>, ListenV8, ConnectV8, SendV9, RecvV9, make_v_device: Nothing }
    /// `ncclNet_v10_t`.
    NetV10 { InitV10, PropertiesV9<4>, ListenV8, ConnectV10, SendV10, RecvV10, make_v_device: Nothing }
    /// `ncclNet_v11_t`.
    NetV11 {
        InitV11, PropertiesV11, ListenV11, ConnectV11, SendV10, RecvV10,
        make_v_device: Nothing, finalize: Close, set_net_attr: unsafe extern "C" fn(*mut c_void, Nothing) -> Outcome
    }
    /// `ncclNet_v12_t`.
    NetV12 {
        InitV11, PropertiesV12, ListenV11, ConnectV11, SendV10, RecvV10,
        make_v_device: Nothing, finalize: Close, set_net_attr: unsafe extern "C" fn(*mut c_void, Nothing) -> Outcome
    }
}
