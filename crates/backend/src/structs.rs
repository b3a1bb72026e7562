//! The structures and numbers of the header.

use std::ffi::c_void;
use strandway_lab::Lab;
use strandway_lab::live::{LiveEvent, LiveOutcome, What};

/// The version of the structures and functions: `SWB_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;
/// A call succeeded.
pub const OK: i32 = 0;
/// A pointer, a host, a length or the moment of a call is wrong.
pub const INVALID: i32 = -1;
/// No lab has this handle.
pub const NO_LAB: i32 = -2;
/// The scenario has problems.
pub const SCENARIO: i32 = -3;
/// A file cannot be written.
pub const SYSTEM: i32 = -4;
/// A failure inside the library.
pub const INTERNAL: i32 = -5;
/// The kind of an event: a message is acknowledged.
pub const SENT: u32 = 1;
/// The kind of an event: a message has arrived.
pub const RECEIVED: u32 = 2;
/// The kind of an event: a timer has expired.
pub const TIMER: u32 = 3;
/// The kind of an event: a connection was given up.
pub const FAILED: u32 = 4;
/// A run ended because everything was done.
pub const FINISHED: u32 = 0;
/// A run ended at its time limit.
pub const TIME_LIMIT: u32 = 1;
/// A run ended because it was asked to.
pub const INTERRUPTED: u32 = 2;
/// A run ended with unfinished messages, because nothing more would have happened.
pub const STALLED: u32 = 3;

/// Answers events: `swb_handler`.
pub type Handler = Option<unsafe extern "C" fn(*mut c_void, *const CEvent)>;

/// An event: `struct swb_event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CEvent {
    /// Its time, in ps.
    pub at: u64,
    /// The number of the message or timer.
    pub number: u64,
    /// The tag of the message.
    pub tag: u64,
    /// The length of the message.
    pub bytes: u64,
    /// Its kind.
    pub kind: u32,
    /// Its host.
    pub host: u32,
    /// The host at the other end.
    pub peer: u32,
    /// Zero.
    pub reserved: u32,
}

impl CEvent {
    /// An event of a lab.
    pub(crate) fn of(lab: &Lab, event: &LiveEvent) -> CEvent {
        let mut made = CEvent { at: event.at.0, host: event.host.0, ..CEvent::default() };
        match event.what {
            What::Sent { message } | What::Received { message } => {
                let sent = matches!(event.what, What::Sent { .. });
                made.number = message;
                made.kind = if sent { SENT } else { RECEIVED };
                if let Some(message) = lab.message(message) {
                    (made.tag, made.bytes) = (message.tag, message.bytes);
                    made.peer = if sent { message.to.0 } else { message.from.0 };
                }
            }
            What::Timer { word } => (made.kind, made.number) = (TIMER, word),
            What::Failed { peer } => (made.kind, made.peer) = (FAILED, peer.0),
        }
        made
    }
}

/// The result of a run: `struct swb_result`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CResult {
    /// A digest of the run.
    pub digest: u64,
    /// The time of the last event, in ps.
    pub simulated: u64,
    /// The number of messages that the program posted.
    pub messages: u64,
    /// The number of packets times links.
    pub packet_hops: u64,
    /// Why it ended.
    pub end: u32,
    /// Zero.
    pub reserved: u32,
}

impl CResult {
    /// The result of a run.
    pub(crate) fn of(done: &LiveOutcome) -> CResult {
        let measured = &done.outcome.measurements;
        let end = match done.outcome.report.head.end.as_str() {
            "finished" => FINISHED,
            "time limit" => TIME_LIMIT,
            "interrupted" => INTERRUPTED,
            _ => STALLED,
        };
        CResult {
            digest: measured.digest,
            simulated: measured.simulated.0,
            messages: done.messages.len() as u64,
            packet_hops: measured.packet_hops,
            end,
            reserved: 0,
        }
    }
}
