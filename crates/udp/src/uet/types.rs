//! Settings, events and counters of a node of UET.

use super::{Mode, NackCode, ReturnCode};
use std::net::SocketAddr;
use strandway_proto::{Rate, Span};

/// How an acknowledgement names packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// ACK: only what came without a hole, as SUET without selective repeat.
    Plain,
    /// ACK_CC with a bitmap and the state of NSCC.
    Selective,
}

/// The limit on the packets in flight, besides [`Config::window`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Nothing: the window is fixed, as SUET's is.
    Fixed,
    /// NSCC, by marks and delay. Datagrams say that switches may mark them.
    Nscc {
        /// The rate of the network.
        rate: Rate,
        /// Round trip without queues, with the time to wake the peer.
        base_rtt: Span,
    },
}

/// The marks and times of a datagram, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// A switch has marked it: CE.
    pub marked: bool,
    /// How long it has waited in this host for the call that hands it over.
    pub age: Span,
}

/// Settings of a node. Ends may differ in all but `payload`, which SUET must share.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of payload of a full packet. SUET counts packets, so both ends must cut alike: 1,416 over UDP.
    pub payload: u16,
    /// The mode of contexts that this end opens.
    pub mode: Mode,
    /// How this end acknowledges.
    pub acks: Acks,
    /// May losses be looked for with probes, if nothing is left to send? SUET answers none.
    pub probes: bool,
    /// Packets in flight, 64 or more; SUET takes 128.
    pub window: u32,
    /// A further limit on the packets in flight.
    pub control: Control,
    /// After this time a packet that is not acknowledged is sent again, or later if round trips are long or the peer is
    /// silent.
    pub timeout: Span,
    /// After this time without any answer, a context ends in error.
    pub patience: Span,
    /// Bytes of messages that are arriving, together. A packet beyond is refused, and comes again.
    pub incoming_max: usize,
    /// Contexts that peers may have open together.
    pub contexts_max: usize,
    /// This end's process and queue (`pid_on_fep`, `resource_index`), 12 bits each. SUET expects its own.
    pub process: [u16; 2],
    /// Seed of sequence numbers.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            payload: 1_416,
            mode: Mode::Unordered,
            acks: Acks::Selective,
            probes: false,
            window: 128,
            control: Control::Fixed,
            timeout: Span::from_ms(5),
            patience: Span::from_ms(30_000),
            incoming_max: 1 << 28,
            contexts_max: 1_024,
            process: [0; 2],
            seed: 1,
        }
    }
}

/// The number of a send, write or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation(pub u64);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A send or write has arrived as a whole.
    Completed {
        /// Which one.
        operation: Operation,
    },
    /// The bytes of a read have arrived.
    Read {
        /// Which one.
        operation: Operation,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The peer refused a send, write or read.
    Refused {
        /// Which one.
        operation: Operation,
        /// Why.
        code: ReturnCode,
    },
    /// A peer's message has arrived.
    Message {
        /// Its sender.
        from: SocketAddr,
        /// Its tag, if it is a tagged send.
        tag: Option<u64>,
        /// Data for the completion.
        header_data: Option<u64>,
        /// The message.
        bytes: Vec<u8>,
    },
    /// A peer has written.
    Written {
        /// The peer.
        from: SocketAddr,
        /// The memory's key.
        key: u64,
        /// Where it starts: in the memory, or an address where it has one.
        offset: u64,
        /// Bytes.
        bytes: u32,
        /// Data for the completion.
        header_data: Option<u64>,
    },
    /// A context that we closed is closed.
    Closed {
        /// The peer.
        peer: SocketAddr,
    },
    /// A context of ours ended in error; its unfinished operations stay unfinished.
    Broken {
        /// The peer.
        peer: SocketAddr,
        /// Why; `None`: there was no answer for too long.
        code: Option<NackCode>,
    },
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that are none of UET's, or that this end has no use for.
    pub malformed: u64,
    /// Datagrams that no node of the domain has sealed, or that came again, at a node with security.
    pub forged: u64,
    /// Datagrams of contexts that do not exist.
    pub strays: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// NACKs received.
    pub nacks_received: u64,
    /// Requests sent again, and data of responses.
    pub retransmissions: u64,
    /// Bytes of payload that have arrived, each once.
    pub received: u64,
    /// Bytes of payload sent, also again.
    pub sent: u64,
    /// Bytes of payload sent again.
    pub sent_again: u64,
    /// Marked packets that peers have reported.
    pub marks: u64,
}
