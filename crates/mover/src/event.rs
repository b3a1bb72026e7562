//! The events of a mover: ends of operations, and news of connections.

use crate::code::Code;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// A connection that we began is established.
    Connected = 1,
    /// A peer has begun a connection.
    Accepted = 2,
    /// A connection has ended; the code says why. All its operations have had their events.
    Closed = 3,
    /// A write of ours has ended. If its code is [`Code::Ok`], all its bytes are in the peer's memory.
    WriteDone = 4,
    /// A send of ours has ended. If its code is [`Code::Ok`], all its bytes are in the peer's memory.
    SendDone = 5,
    /// A receive of ours has ended. If its code is [`Code::Ok`], the message is in our memory.
    ReceiveDone = 6,
    /// A peer's write with an immediate is in our memory.
    Written = 7,
    /// A read of ours has ended. If its code is [`Code::Ok`], all its bytes are in our memory.
    ReadDone = 8,
    /// An atomic operation of ours has ended. If its code is [`Code::Ok`], it happened once.
    AtomicDone = 9,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub kind: EventKind,
    /// How an operation or a connection ended.
    pub code: Code,
    /// On this connection.
    pub connection: u64,
    /// The number that the caller gave to the operation.
    pub context: u64,
    /// The tag of a message.
    pub tag: u64,
    /// The word as it was before an atomic operation.
    pub word: u64,
    /// Bytes of the message, write or read. A receive may be longer than its message.
    pub bytes: u64,
    /// The number that came with a peer's write.
    pub immediate: u32,
    /// The service that a caller asked for ([`crate::Mover::connect`]).
    pub service: u64,
}

impl Event {
    pub(crate) const fn new(kind: EventKind, connection: u64) -> Event {
        Event { kind, code: Code::Ok, connection, context: 0, tag: 0, word: 0, bytes: 0, immediate: 0, service: 0 }
    }
}
