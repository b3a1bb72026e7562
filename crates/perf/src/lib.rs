//! Measures bandwidth and latency between two nodes, with the conventions of perftest and iperf3.
//!
//! For bandwidth, the client writes into the server's memory, again and again; in the bidirectional mode the server
//! does the same. For latency, it writes a message and waits until the server has written it back. To verify, it waits
//! for the server's digest of the message. [`serve`] answers any number of clients. [`uet`] has both sides for nodes of
//! Ultra Ethernet Transport. [`run_baseline`] measures TCP and TLS between the same hosts.

mod baseline;
mod client;
mod server;
mod threads;
pub mod uet;

pub use baseline::{
    BASELINE_ECHO_MAX, Baseline, BaselineError, BaselineResult, BaselineServer, check_baseline, run_baseline,
};
pub use client::{run, run_to_shard};
pub use server::{Interval, PlaneInterval, Served, serve, serve_all, serve_every};
pub use threads::run_all;

use std::fmt;
use std::time::Duration;
use strandway_udp::{Error, Reason, RemoteRegion};

/// The largest message that a server accepts, in bytes: 1 GiB.
pub const SIZE_MAX: u64 = 1 << 30;
/// Bytes of the messages beside which round trips can be measured: [`Options::bulk`].
pub const BULK_SIZE: u64 = 1 << 20;
/// Memory that a server gives to all its clients together, in bytes: 4 GiB.
const MEMORY_MAX: u64 = 4 << 30;
const REQUEST: usize = 32;
/// Bytes of the digest of a message that arrived.
const DIGEST: usize = 32;
/// Messages under way that a server writes back at a time; ours, the default of clients.
const BACK_DEPTH: usize = 8;

/// The settings of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of one message, 1 to [`SIZE_MAX`].
    pub size: u64,
    /// Connections, 1 to 256.
    pub connections: usize,
    /// The length of the measurement.
    pub duration: Duration,
    /// Messages under way per connection, for bandwidth.
    pub depth: usize,
    /// The kind of the measurement.
    pub mode: Mode,
    /// Further connections of each node that write messages of [`BULK_SIZE`] meanwhile, `depth` under way: 0 to 64, for
    /// latency only.
    pub bulk: usize,
    /// The interval between reports.
    pub interval: Duration,
    /// End after this number of messages per connection, if the time is not up before.
    pub messages: Option<u64>,
}

/// The kind of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Writes into the server's memory, several under way.
    Bandwidth,
    /// Writes into the server's memory, several under way, while the server writes the same amount back.
    Bidirectional,
    /// Round trips of messages, one at a time.
    Latency,
    /// Writes of new contents each time, one at a time; the server returns a digest of the bytes that arrived, which
    /// must equal ours.
    Verify,
}

impl Mode {
    const fn number(self) -> u8 {
        match self {
            Mode::Bandwidth => 0,
            Mode::Latency => 1,
            Mode::Bidirectional => 2,
            Mode::Verify => 3,
        }
    }

    const fn numbered(number: u8) -> Option<Mode> {
        Some(match number {
            0 => Mode::Bandwidth,
            1 => Mode::Latency,
            2 => Mode::Bidirectional,
            3 => Mode::Verify,
            _ => return None,
        })
    }
}

/// An interval of the measurement, or all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Its begin, in seconds since the start.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Payload of finished messages, in Gb/s. For an interval: payload that left for the first time, which is ahead of
    /// the payload that has arrived by less than a window.
    pub goodput_gbps: f64,
    /// Payload that arrived from the server, in Gb/s: [`Mode::Bidirectional`].
    pub back_gbps: f64,
    /// Payload that each plane carried, retransmissions included, in Gb/s.
    pub plane_gbps: Vec<f64>,
    /// Is each plane in use at the end of the stretch, on every connection?
    pub planes_up: Vec<bool>,
    /// Paths in use of each plane at the end of the stretch, of the first connection; empty if the profile keeps no
    /// list of paths.
    pub active_paths: Vec<u32>,
    /// Messages that were finished.
    pub messages: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Median of the round trips: those of messages (latency) or those of pings; in microseconds, 0 if there was none.
    pub rtt_p50_us: f64,
    /// 99th percentile of the same round trips.
    pub rtt_p99_us: f64,
    /// 99.9th percentile of the same round trips.
    pub rtt_p999_us: f64,
    /// Payload bytes of a full packet, of the first connection; 0 over Ultra Ethernet Transport, where it is the
    /// configuration's.
    pub payload: u32,
}

/// Why there is no result.
#[derive(Debug)]
pub enum PerfError {
    /// A call failed.
    Call(Error),
    /// A connection ended.
    Closed(Reason),
    /// The server stopped answering.
    Stalled,
    /// Bytes arrived changed, in the message of this number, counted from 0.
    Corrupt(u64),
    /// A server of Ultra Ethernet Transport has not answered at all.
    Silent,
    /// The peer refused a message or ended the context; the text says why.
    Refused(&'static str),
    /// An option is out of its range; the text says which, and the range.
    Option(String),
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PerfError::Call(error) => error.fmt(f),
            PerfError::Closed(reason) => reason.fmt(f),
            PerfError::Stalled => {
                f.write_str("the server stopped answering: is `strandway perf server` running there?")
            }
            PerfError::Corrupt(number) => {
                write!(f, "message {number} arrived with changed contents: please report this")
            }
            PerfError::Silent => f.write_str(
                "no answer: is `strandway perf server --layout uet` running there, with the same key and --protection?",
            ),
            PerfError::Refused(why) => {
                write!(
                    f,
                    "the server refused a message: {why}; is `strandway perf server --layout uet` running there, and has \
                     it not been started again meanwhile?"
                )
            }
            PerfError::Option(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PerfError {}

impl From<Error> for PerfError {
    fn from(error: Error) -> PerfError {
        PerfError::Call(error)
    }
}

impl From<std::io::Error> for PerfError {
    fn from(error: std::io::Error) -> PerfError {
        PerfError::Call(Error::Wait(error))
    }
}

/// A client's request: kind 1, zero 7, size 8, and the memory to write back to 16.
fn request(mode: Mode, size: u64, back: RemoteRegion) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[0] = mode.number();
    bytes[8..16].copy_from_slice(&size.to_be_bytes());
    bytes[16..].copy_from_slice(&back.to_bytes());
    bytes
}
