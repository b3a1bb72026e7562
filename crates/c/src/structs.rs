//! The structures of the header.

use crate::named::Settings;
use std::ffi::{c_char, c_void};
use std::time::Duration;
use strandway_mover::{Code, Event, EventKind, MoverError, Options, Progress, Step};
use strandway_proto::{Rate, Span};
use strandway_udp::{Protection, RemoteRegion, Rights};

/// The version of the structures and functions: `SW_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;
/// Packets are moved by a thread of the node: `SW_PROGRESS_THREAD`.
pub const PROGRESS_THREAD: u32 = 0;
/// Packets are moved by callers: `SW_PROGRESS_CALLERS`.
pub const PROGRESS_CALLERS: u32 = 1;
/// A write without an immediate: `SW_NO_IMMEDIATE`.
pub const NO_IMMEDIATE: u32 = u32::MAX;

/// The right to write: `SW_RIGHT_WRITE`.
pub const RIGHT_WRITE: u32 = 1;
/// The right to read: `SW_RIGHT_READ`.
pub const RIGHT_READ: u32 = 2;
/// The right to atomic operations: `SW_RIGHT_ATOMIC`.
pub const RIGHT_ATOMIC: u32 = 4;

/// Takes lines of the log: `sw_log_function`.
pub type LogFunction = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char)>;

/// The settings of a node: `struct sw_config`. Zeros and null pointers stand for defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the structure.
    pub size: u32,
    /// The mover of packets: the caller, or a thread.
    pub progress: u32,
    /// The local address of each plane.
    pub planes: *const *const c_char,
    /// How many there are.
    pub planes_count: usize,
    /// The key.
    pub key: *const u8,
    /// Bytes of the key.
    pub key_length: usize,
    /// The name of the protocol.
    pub profile: *const c_char,
    /// The name of the protection.
    pub protection: *const c_char,
    /// Payload bytes of a full packet.
    pub payload: u32,
    /// Rate of all planes together, in Mb/s.
    pub rate_mbps: u32,
    /// Round trip without queueing, in microseconds.
    pub base_rtt_us: u32,
    /// The most connections.
    pub connections_max: u32,
    /// The most unfinished operations of a connection.
    pub operations_max: u32,
    /// How long to try to reach a peer.
    pub handshake_timeout_ms: u32,
    /// How long a peer may be silent.
    pub peer_timeout_ms: u32,
    /// How long a plane may be silent.
    pub plane_timeout_ms: u32,
    /// Takes lines of the log.
    pub log: LogFunction,
    /// Its first argument.
    pub log_context: *mut c_void,
}

impl Config {
    /// The defaults.
    pub fn new() -> Config {
        Config {
            size: size_of::<Config>() as u32,
            progress: PROGRESS_THREAD,
            planes: std::ptr::null(),
            planes_count: 0,
            key: std::ptr::null(),
            key_length: 0,
            profile: std::ptr::null(),
            protection: std::ptr::null(),
            payload: 0,
            rate_mbps: 0,
            base_rtt_us: 0,
            connections_max: 0,
            operations_max: 0,
            handshake_timeout_ms: 0,
            peer_timeout_ms: 0,
            plane_timeout_ms: 0,
            log: None,
            log_context: std::ptr::null_mut(),
        }
    }

    /// The numbers that settings by name stand above.
    pub(crate) fn defaults(&self) -> Settings {
        let mbps = f64::from(self.rate_mbps) / 1_000.0;
        let all = [
            ("payload", self.payload, self.payload.to_string()),
            ("rate", self.rate_mbps, mbps.to_string()),
            ("base_rtt_us", self.base_rtt_us, self.base_rtt_us.to_string()),
        ];
        all.into_iter().filter(|(_, set, _)| *set > 0).map(|(name, _, value)| (name.to_string(), value)).collect()
    }

    /// Puts the numbers into options; texts and lists were read before. Zeros leave what is there.
    pub(crate) fn apply(&self, options: &mut Options) -> Result<(), MoverError> {
        options.progress = match self.progress {
            PROGRESS_THREAD => Progress::Thread,
            PROGRESS_CALLERS => Progress::Callers,
            other => {
                let text = format!("progress is {other}: take SW_PROGRESS_THREAD or SW_PROGRESS_CALLERS");
                return Err(MoverError::new(Code::Config, text));
            }
        };
        let some = |value: u32| (value > 0).then_some(value);
        let rate = some(self.rate_mbps).map(|mbps| Rate::from_gbps(1).scaled(f64::from(mbps) / 1_000.0));
        options.payload = some(self.payload).or(options.payload);
        options.rate = rate.or(options.rate);
        options.base_rtt = some(self.base_rtt_us).map(|us| Span::from_us(us.into())).or(options.base_rtt);
        if let Some(most) = some(self.connections_max) {
            options.connections_max = most as usize;
        }
        options.operations_max = some(self.operations_max).unwrap_or(options.operations_max);
        for (value, timeout) in [
            (self.handshake_timeout_ms, &mut options.handshake_timeout),
            (self.peer_timeout_ms, &mut options.peer_timeout),
            (self.plane_timeout_ms, &mut options.plane_timeout),
        ] {
            if let Some(ms) = some(value) {
                *timeout = Duration::from_millis(ms.into());
            }
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

/// The rights with these bits.
pub(crate) fn rights(bits: u32) -> Result<Rights, MoverError> {
    let all = [(RIGHT_WRITE, Rights::WRITE), (RIGHT_READ, Rights::READ), (RIGHT_ATOMIC, Rights::ATOMIC)];
    let known = bits & !(RIGHT_WRITE | RIGHT_READ | RIGHT_ATOMIC) == 0;
    let chosen = all.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, right)| right);
    chosen.reduce(|some, more| some | more).filter(|_| known).ok_or_else(|| {
        let text = format!("rights are {bits:#x}: take SW_RIGHT_WRITE, SW_RIGHT_READ, SW_RIGHT_ATOMIC, or several");
        MoverError::new(Code::Invalid, text)
    })
}

/// The protection with this name.
pub(crate) fn protection(name: &str) -> Result<Protection, MoverError> {
    Protection::named(name).ok_or_else(|| {
        MoverError::new(Code::Config, format!("protection {name}: take encrypted, authenticated or none"))
    })
}

/// The right to write into a range of a peer's memory: `struct sw_remote`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The same bytes on every host.
    pub bytes: [u8; 16],
}

/// A setting of a node by name: `struct sw_setting`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSetting {
    /// Its name.
    pub name: *const c_char,
    /// Its value as a text; null or empty: not set.
    pub value: *const c_char,
}

/// A write or a read of a list: `struct sw_step`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CStep {
    /// Our memory.
    pub memory: u64,
    /// Where it begins there.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The peer's memory.
    pub remote: Remote,
    /// Where it begins there.
    pub at: u64,
}

impl From<CStep> for Step {
    fn from(step: CStep) -> Step {
        let CStep { memory, offset, length: bytes, remote, at } = step;
        Step { memory, offset, bytes, remote: RemoteRegion::from_bytes(remote.bytes), at }
    }
}

/// An event: `struct sw_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CEvent {
    /// `SW_CONNECTED` and so on.
    pub kind: u32,
    /// How it ended.
    pub code: i32,
    /// The connection.
    pub connection: u64,
    /// The caller's number for the operation.
    pub context: u64,
    /// The tag of a message; the word as it was before an atomic operation.
    pub tag: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// The service that a caller asked for.
    pub service: u64,
    /// The number that came with a write.
    pub immediate: u32,
    /// Zero.
    pub reserved: u32,
}

impl From<Event> for CEvent {
    fn from(event: Event) -> CEvent {
        CEvent {
            kind: event.kind as u32,
            code: event.code as i32,
            connection: event.connection,
            context: event.context,
            tag: if event.kind == EventKind::AtomicDone { event.word } else { event.tag },
            bytes: event.bytes,
            service: event.service,
            immediate: event.immediate,
            reserved: 0,
        }
    }
}
