//! The settings of a mover.

use crate::OPERATIONS_MAX;
use crate::channel::CONTROLS;
use crate::code::{Code, MoverError};
use std::fmt;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;
use strandway_proto::{Rate, Span};
use strandway_udp::{Config, Protection, Waiting};

/// Which threads move packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A thread of the mover's, which rests while a caller waits or asks for progress.
    Thread,
    /// Those that call [`crate::Mover::progress`] or [`crate::Mover::wait`], and no other.
    Callers,
}

/// The weight of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Level {
    /// Something failed.
    Warning = 1,
    /// Connections begin and end.
    Info = 2,
}

/// A function that takes lines.
type Sink = dyn Fn(Level, &str) + Send + Sync;

/// Takes the lines of the log. It may call the mover.
#[derive(Clone)]
pub struct LogSink(pub Arc<Sink>);

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSink")
    }
}

/// The settings of a [`crate::Mover`]. [`Options::new`] gives defaults; fields may be changed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The key that all nodes share; at least 16 bytes.
    pub key: Vec<u8>,
    /// The local address of each plane. Port 0 takes any free one.
    pub planes: Vec<SocketAddrV6>,
    /// The protocol. Default `uec`.
    pub profile: String,
    /// Default: encrypted.
    pub protection: Protection,
    /// Payload bytes of a full packet; both sides must have the same. Default: what fits an MTU of 1,500.
    pub payload: Option<u32>,
    /// Rate of all planes together. Default: that of [`Config`].
    pub rate: Option<Rate>,
    /// Round trip without queueing. Default: that of [`Config`].
    pub base_rtt: Option<Span>,
    /// The most connections. Default 1,024.
    pub connections_max: usize,
    /// The most unfinished sends and writes of a connection, and the most receives. Default [`OPERATIONS_MAX`].
    pub operations_max: u32,
    /// How long to try to reach a peer. Default 3 s.
    pub handshake_timeout: Duration,
    /// A peer is given up if nothing was heard of it for this time. Default 3 s.
    pub peer_timeout: Duration,
    /// A plane is left if it is silent for this time while others are not. Default 40 ms.
    pub plane_timeout: Duration,
    /// The mover of packets. Default: a thread.
    pub progress: Progress,
    /// Takes the log's lines. Default: they are dropped.
    pub log: Option<LogSink>,
}

impl Options {
    /// The defaults, with this key and without planes.
    pub fn new(key: &[u8]) -> Options {
        Options {
            key: key.to_vec(),
            planes: Vec::new(),
            profile: "uec".to_string(),
            protection: Protection::default(),
            payload: None,
            rate: None,
            base_rtt: None,
            connections_max: 1_024,
            operations_max: OPERATIONS_MAX,
            handshake_timeout: Duration::from_secs(3),
            peer_timeout: Duration::from_secs(3),
            plane_timeout: Duration::from_millis(40),
            progress: Progress::Thread,
            log: None,
        }
    }

    /// The configuration of the node.
    pub(crate) fn config(&self) -> Result<Config, MoverError> {
        let most = 16_384 - CONTROLS as u32;
        if !(1..=most).contains(&self.operations_max) {
            let text = format!("operations_max is {}: take 1 to {most}", self.operations_max);
            return Err(MoverError::new(Code::Config, text));
        }
        let mut config = Config::new(&self.key)?.profile(&self.profile)?;
        if config.profile.reliability.is_one_way() {
            let text = format!("profile {} acknowledges nothing: take another one", self.profile);
            return Err(MoverError::new(Code::Config, text));
        }
        config.planes.clone_from(&self.planes);
        config.protection = self.protection;
        config.payload = self.payload.unwrap_or(config.payload);
        config.rate = self.rate.unwrap_or(config.rate);
        config.base_rtt = self.base_rtt.unwrap_or(config.base_rtt);
        config.limits.connections = self.connections_max;
        config.limits.operations = self.operations_max as usize + CONTROLS;
        config.timeouts.handshake = self.handshake_timeout;
        config.timeouts.peer = self.peer_timeout;
        config.timeouts.plane = self.plane_timeout;
        // The mover sleeps itself.
        config.waiting = Waiting::Sleep;
        Ok(config)
    }
}
