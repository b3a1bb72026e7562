//! How much may be under way on a node, and how long it waits.

use crate::error::Error;
use std::time::Duration;
use strandway_proto::read::ReadLimits;

/// The largest [`Limits::operations`]: ours, so that 16 bits of credits always tell which receives are new.
const OPERATIONS_MAX: usize = 16_384;

/// Bounds of what peers and the application may have under way on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections, including those that are being established. Default 1,024; at most 65,536.
    pub connections: usize,
    /// The most unfinished operations of one connection: for sends and writes together, and for receives. Default
    /// 4,096; at most 16,384.
    pub operations: usize,
    /// The most messages of one peer that have begun to arrive and are not complete; a peer that begins more breaks the
    /// protocol. Must not be less than the peers' `operations`. Default 16,384, the largest possible `operations`.
    pub incoming: usize,
    /// Reads and atomic operations on one connection. Both sides should have the same number: further ones of ours wait,
    /// further ones of the peer are refused. While answers of `bytes` to one peer are under way, its further reads wait;
    /// our own writes wait behind no more bytes than these. Default 1,024 and 64 MiB; at most 16,384.
    pub reads: ReadLimits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 1_024, operations: 4_096, incoming: OPERATIONS_MAX, reads: ReadLimits::DEFAULT }
    }
}

impl Limits {
    /// Refuses bounds outside their ranges.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bounds = [
            ("connections", self.connections, 65_536),
            ("operations", self.operations, OPERATIONS_MAX),
            ("incoming", self.incoming, OPERATIONS_MAX),
            ("reads.reads", self.reads.reads, OPERATIONS_MAX),
        ];
        for (name, value, most) in bounds {
            if !(1..=most).contains(&value) {
                return Err(Error::Config(format!("limits.{name} is {value}: take 1 to {most}")));
            }
        }
        if self.reads.bytes == 0 {
            return Err(Error::Config("limits.reads.bytes is 0: take 1 or more".into()));
        }
        Ok(())
    }
}

/// How long a node waits for peers and planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// How long to try to reach a peer. Default 3 s.
    pub handshake: Duration,
    /// A peer is given up if nothing was heard of it for this time. Default 3 s.
    pub peer: Duration,
    /// If a plane does not answer for this time while another one does, it is not used until it answers again. Default
    /// 40 ms.
    pub plane: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts { handshake: Duration::from_secs(3), peer: Duration::from_secs(3), plane: Duration::from_millis(40) }
    }
}

impl Timeouts {
    /// Refuses times that no timer keeps.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.handshake.min(self.peer).min(self.plane) < Duration::from_millis(1) {
            return Err(Error::Config("timeouts of handshake, peer and plane must be at least 1 ms".into()));
        }
        Ok(())
    }
}
