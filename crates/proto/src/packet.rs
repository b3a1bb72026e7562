//! Packets: typed headers and a payload *range*, never payload bytes.
//!
//! A [`Packet`] is `Copy` and at most 64 bytes. Bytes exist only in `strandway-wire`.

pub use crate::account::Wait;
use crate::aggregate::Fragment;
use crate::control_message::ControlMessage;
use crate::units::Bytes;

/// A host (one NIC, whatever its number of ports), numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    const GROUP: u32 = 1 << 31;
    const NEAR: u32 = 1 << 30;

    /// The address of the multicast group with this number in the run. A packet to this address reaches all members of
    /// the group except the sender.
    #[inline]
    pub const fn group(number: u32) -> HostId {
        HostId(number | HostId::GROUP)
    }

    /// The source address of packets that a switch near this host makes for a group. These packets reach all members,
    /// this host included.
    #[inline]
    pub const fn near(self) -> HostId {
        HostId(self.0 | HostId::NEAR)
    }

    /// The host that a source is at or near.
    #[inline]
    pub const fn place(self) -> HostId {
        HostId(self.0 & !HostId::NEAR)
    }

    /// The number of the group, if this is a group's address and not a host's.
    #[inline]
    pub const fn as_group(self) -> Option<u32> {
        if self.0 & HostId::GROUP != 0 { Some(self.0 & !HostId::GROUP) } else { None }
    }
}

/// The number that one endpoint gives to a connection: a slot in the endpoint's table, and a generation, which tells
/// apart the connections that use this slot one after the other.
///
/// A packet carries the number by which its *receiver* knows the connection. If the receiver did not open its end
/// before the first packet came, the packet carries the number of its *source* with the top bit set instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u32);

impl ConnectionId {
    /// An endpoint has at most this many connections at a time.
    pub const SLOTS: u32 = 1 << 20;

    /// A slot's generation starts again from 0 after this many connections.
    pub const GENERATIONS: u32 = 1 << 11;

    const BY_SOURCE: u32 = 1 << 31;

    /// The connection of a generation in a slot.
    #[inline]
    pub const fn new(slot: u32, generation: u32) -> ConnectionId {
        ConnectionId((generation & (ConnectionId::GENERATIONS - 1)) * ConnectionId::SLOTS + slot)
    }

    /// Its slot in the endpoint's table.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.0 & (ConnectionId::SLOTS - 1)
    }

    /// How many connections its slot held before, modulo [`ConnectionId::GENERATIONS`].
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 & !ConnectionId::BY_SOURCE) / ConnectionId::SLOTS
    }

    /// This number, marked as one that the packet's source has given.
    #[inline]
    pub const fn by_source(self) -> ConnectionId {
        ConnectionId(self.0 | ConnectionId::BY_SOURCE)
    }

    /// This number without the mark of [`ConnectionId::by_source`].
    #[inline]
    pub const fn by_receiver(self) -> ConnectionId {
        ConnectionId(self.0 & !ConnectionId::BY_SOURCE)
    }

    /// Is it a number of the packet's source?
    #[inline]
    pub const fn is_by_source(self) -> bool {
        self.0 & ConnectionId::BY_SOURCE != 0
    }
}

/// A message as the application numbers it on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u32);

/// The path of a packet: the NIC port by which it leaves (a plane) and an entropy value.
///
/// It is only a number. The simulated fabric hashes the entropy or reads it as a list of uplinks; on the wire it
/// selects a socket, a source port or a segment list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

impl PathId {
    /// Entropy values are below this.
    pub const ENTROPY_LIMIT: u32 = 1 << 24;

    /// The bit of the entropy value that says "keep my packets in order". A switch that indexes its uplinks by the
    /// entropy hashes packets with this bit instead. The bit itself is no entropy.
    pub const ORDERED: u32 = 1 << 23;

    /// The path that leaves by `port` and carries `entropy` (its low 24 bits).
    #[inline]
    pub const fn new(port: u8, entropy: u32) -> PathId {
        PathId((port as u32) << 24 | (entropy & (PathId::ENTROPY_LIMIT - 1)))
    }

    /// The NIC port (plane) it leaves by.
    #[inline]
    pub const fn port(self) -> u8 {
        (self.0 >> 24) as u8
    }

    /// The entropy value (EV).
    #[inline]
    pub const fn entropy(self) -> u32 {
        self.0 & (PathId::ENTROPY_LIMIT - 1)
    }
}

/// A packet sequence number as headers carry it: 24 bits, wrapping. Engines count in `u64` and extend what they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// Sequence numbers wrap here.
    pub const MODULUS: u64 = 1 << 24;

    /// The low 24 bits of a full sequence number.
    #[inline]
    pub const fn new(full: u64) -> Psn {
        Psn((full & (Psn::MODULUS - 1)) as u32)
    }

    /// The 24 bits.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The full sequence number nearest to `near` that ends in these 24 bits.
    #[inline]
    pub const fn extend(self, near: u64) -> u64 {
        nearest(self.0, near, Psn::MODULUS)
    }
}

/// The full count nearest to `near` whose remainder modulo `modulus` is `low`; `modulus` is a power of two.
#[inline]
pub(crate) const fn nearest(low: u32, near: u64, modulus: u64) -> u64 {
    let ahead = (low as u64).wrapping_sub(near) & (modulus - 1);
    if ahead < modulus / 2 || near + ahead < modulus { near + ahead } else { near + ahead - modulus }
}

/// An offset within a message: 64 bits kept at four-byte alignment, so that [`Packet`] stays small.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Offset([u32; 2]);

impl Offset {
    /// `bytes` from the start of the message.
    #[inline]
    pub const fn new(bytes: u64) -> Offset {
        Offset([bytes as u32, (bytes >> 32) as u32])
    }

    /// Bytes from the start of the message.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0[0] as u64 | (self.0[1] as u64) << 32
    }
}

impl core::fmt::Debug for Offset {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.get())
    }
}

/// 64 acknowledgement bits; bit `i` stands for the base PSN plus `i`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SackBits([u32; 2]);

impl SackBits {
    /// These 64 bits.
    #[inline]
    pub const fn new(bits: u64) -> SackBits {
        SackBits([bits as u32, (bits >> 32) as u32])
    }

    /// All 64 bits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0[0] as u64 | (self.0[1] as u64) << 32
    }
}

impl core::fmt::Debug for SackBits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#018x}", self.get())
    }
}

/// A set of one-bit facts about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:expr;)*) => {
        impl Flags {
            $($(#[$doc])* pub const $name: Flags = Flags(1 << $bit);)*
            /// Every flag that has a meaning.
            pub const ALL: Flags = Flags(0 $(| 1 << $bit)*);
        }
    };
}

flags! {
    /// Data: the receiver must acknowledge at once (AR).
    ACK_REQUEST = 0;
    /// Data: the packet is a retransmission. Acknowledgement: the acknowledged packet had this flag, so that the sender
    /// can judge the RTT sample.
    RETRANSMITTED = 1;
    /// Data: the last packet of its message. A chunk: the last one of its sender's share.
    LAST = 2;
    /// Data: a switch cut the payload off.
    TRIMMED = 3;
    /// Data: the switch that trimmed it was the last one before the receiver, so no other path would have helped.
    TRIMMED_AT_LAST_HOP = 4;
    /// Acknowledgement or NACK: the packet it describes carried CE.
    MARKED = 5;
    /// Acknowledgement: answers a probe.
    PROBE_ANSWER = 6;
    /// Acknowledgement: the packet it describes arrived ahead of a hole (selective-repeat RoCE: "NACK with SACK").
    HOLE = 7;
    /// IP: the CE codepoint, set by a switch whose queue is long.
    CE = 8;
    /// Acknowledgement: the receiver considers the path of the packet it describes persistently bad (MRC: "always
    /// skip").
    ALWAYS_SKIP = 9;
}

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);

    /// Are all of `other`'s flags set?
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and `other`'s.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// These flags, and `other`'s where `condition` holds.
    #[inline]
    pub const fn with_if(self, condition: bool, other: Flags) -> Flags {
        if condition { self.with(other) } else { self }
    }
}

/// A piece of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    /// Sequence number of this packet on its connection.
    pub psn: Psn,
    /// The message it belongs to.
    pub message: MessageId,
    /// Where in the message its payload starts.
    pub offset: Offset,
    /// Payload bytes; kept when the payload is trimmed away.
    pub length: u16,
    /// Up to where the sender wants credit, as [`crate::congestion::RcccConfig`] has it; zero: it uses none. No wire format
    /// carries it.
    pub target: u16,
    /// Where a simulated packet waited longest. No wire format carries it.
    pub wait: Wait,
}

impl Data {
    /// Where in the message its payload ends. The sum saturates at `u64::MAX`, because the offset may come from a
    /// faulty peer.
    #[inline]
    pub const fn end(&self) -> u64 {
        self.offset.get().saturating_add(self.length as u64)
    }
}

/// A piece of a message on a one-way connection ([`crate::partial`]). The header alone tells where it belongs, so parts
/// may arrive in any order, and earlier parts may be missing. Packed as [`Ack`] is: read its fields by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, packed(2))]
pub struct Part {
    /// The stretch of a message that it belongs to, as the sender counts stretches: modulo
    /// [`crate::partial::SEQUENCES`].
    pub sequence: u32,
    /// The sender's number for the message. The receiver's program gets this number: SDR's user immediate.
    pub message: MessageId,
    /// Its index among the message's data packets, or among its parity packets if `parity` is set.
    pub packet: u32,
    /// The number of packets of the message, without parity.
    pub packets: u32,
    /// Payload bytes of the message's last packet. All other packets of a connection have the same length.
    pub tail: u16,
    /// Payload bytes; kept when the payload is trimmed away.
    pub length: u16,
    /// Where a simulated packet waited longest. No wire format carries it.
    pub wait: Wait,
    /// Is it parity, rather than a piece of the message itself?
    pub parity: bool,
    /// The number of the plan by which the message is cut and coded: 0 where a profile has only one.
    pub plan: u8,
}

/// A piece of a buffer that every member of a group is to receive ([`crate::cast`]). It belongs to no connection; its
/// header alone tells where it belongs. No wire format carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The operation that it is a part of.
    pub task: u32,
    /// Its index among the chunks of the operation's whole buffer.
    pub chunk: u32,
    /// Payload bytes; kept when the payload is trimmed away.
    pub length: u16,
    /// Where a simulated packet waited longest. No wire format carries it.
    pub wait: Wait,
}

/// An acknowledgement: the packets that a receiver has. Packed, so that the header's tag fits beside it: read its
/// fields by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, packed)]
pub struct Ack {
    /// The next PSN expected (EPSN): all lower ones have arrived.
    pub cumulative: Psn,
    /// PSN of bit 0 of `sack`.
    pub sack_base: Psn,
    /// Bit `i` is set if PSN `sack_base + i` has arrived.
    pub sack: SackBits,
    /// PSN of the packet that caused this acknowledgement.
    pub acked: Psn,
    /// The path of that packet.
    pub path: PathId,
    /// New payload bytes received so far on this connection, in units of 256 B, rounded up, wrapping.
    pub received: u32,
    /// The number of packets that the receiver holds above `cumulative`.
    pub out_of_order: u16,
    /// The range of PSNs in units of 128 that the receiver takes at present (MRC: dynamic MPR); 0: the range is fixed.
    pub range: u8,
}

/// Why a receiver wants a packet again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NackReason {
    /// It is missing: trimmed (the flags say where) or never seen.
    #[default]
    Missing,
    /// There was no tracker for it.
    NoTracker,
    /// There was no packet buffer for it.
    NoBuffer,
    /// Some other resource was short.
    NoResource,
    /// Its sequence number lies beyond the window.
    BeyondWindow,
    /// The connection cannot go on.
    Fatal,
}

/// A negative acknowledgement: a packet that a receiver lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nack {
    /// The PSN to send again: a trimmed packet's own, or the first missing one (go-back-N).
    pub psn: Psn,
    /// The next PSN expected (EPSN).
    pub cumulative: Psn,
    /// The path of the packet that caused it.
    pub path: PathId,
    /// Why.
    pub reason: NackReason,
}

/// A request or a notice from one NIC to another: MRC's endpoint operations, and the end of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks whether this path works.
    PathProbe,
    /// Tells which of the sender's ports are up: bit `i` stands for port `i`.
    PortStatus(u32),
    /// The sender closes the connection; the receiver answers with [`Operation::Closed`] to the connection named here.
    /// No wire format carries it: sessions over sockets have their own ending.
    Close(ConnectionId),
    /// The sender has no such connection any more. No wire format carries it.
    Closed,
}

/// The answer to an [`Operation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// True if it answers a port status, false if it answers a path probe.
    pub port_status: bool,
    /// The number of the operation.
    pub number: u16,
    /// The path by which the operation came.
    pub path: PathId,
}

/// The transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// A piece of a message.
    Data(Data),
    /// A piece of a message on a one-way connection.
    Part(Part),
    /// Packets that the receiver has.
    Ack(Ack),
    /// A packet that the receiver lacks.
    Nack(Nack),
    /// Congestion notification packet (CNP) of DCQCN.
    Cnp,
    /// Asks the receiver for an acknowledgement, which it sends at once; travels in the data class.
    Probe {
        /// Counts probes on this connection, wrapping.
        number: u32,
    },
    /// From NIC to NIC, answered at once ([`Operation::Closed`] is an answer itself); the connection says between
    /// which.
    Operation {
        /// Counts operations of one kind, wrapping.
        number: u16,
        /// The request or notice itself.
        operation: Operation,
    },
    /// Answers an operation.
    Answer(Answer),
    /// A short word from one program to another.
    Control(ControlMessage),
    /// A piece of a buffer for all members of a group.
    Chunk(Chunk),
    /// A piece of a gradient or of a sum, or a notice about one.
    Fragment(Fragment),
}

impl Header {
    /// Does payload follow it, unless it is trimmed?
    #[inline]
    pub const fn has_payload(&self) -> bool {
        match self {
            Header::Data(_) | Header::Part(_) | Header::Chunk(_) => true,
            Header::Fragment(fragment) => fragment.kind.has_elements(),
            _ => false,
        }
    }
}

/// A packet as it travels over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// The host it comes from.
    pub source: HostId,
    /// The host it goes to.
    pub destination: HostId,
    /// The destination's number for its connection.
    pub connection: ConnectionId,
    /// The path that it takes.
    pub path: PathId,
    /// Bytes on the wire, all headers included.
    pub size: u16,
    /// One-bit facts, among them CE.
    pub flags: Flags,
    /// The transport header.
    pub header: Header,
}

const _: () = assert!(size_of::<Packet>() <= 52, "a packet and its 12 bytes of fabric state share a cache line");

impl Packet {
    /// A packet without meaning, whose place another one will take.
    pub const BLANK: Packet = Packet {
        source: HostId(0),
        destination: HostId(0),
        connection: ConnectionId(0),
        path: PathId(0),
        size: 0,
        flags: Flags::NONE,
        header: Header::Cnp,
    };

    /// Bytes on the wire.
    #[inline]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.size as u64)
    }

    /// Does it travel in the control class? Everything but whole data packets and probes does.
    #[inline]
    pub const fn is_control(&self) -> bool {
        match self.header {
            Header::Data(_) | Header::Part(_) | Header::Chunk(_) => self.flags.has(Flags::TRIMMED),
            Header::Fragment(fragment) => !fragment.kind.has_elements() || self.flags.has(Flags::TRIMMED),
            // A probe of a path travels in the same class as data.
            Header::Probe { .. } | Header::Operation { operation: Operation::PathProbe, .. } => false,
            Header::Ack(_)
            | Header::Nack(_)
            | Header::Cnp
            | Header::Operation { .. }
            | Header::Answer(_)
            | Header::Control(_) => true,
        }
    }
}

/// Which of a NIC's ports are idle now, for each class. Bit `i` stands for port `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Ports that would take a data packet.
    pub data: u32,
    /// Ports that would take a control packet; a port paused by PFC still does.
    pub control: u32,
}

impl Ports {
    /// The first `count` ports, all idle.
    pub const fn first(count: u8) -> Ports {
        let mask = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        Ports { data: mask, control: mask }
    }

    /// Is no port idle for anything?
    #[inline]
    pub const fn none(self) -> bool {
        self.data | self.control == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_truncated_psn_extends_to_the_full_one(near in 0u64..1 << 40, away in -4_000_000i64..4_000_000) {
            let full = near as i64 + away;
            prop_assume!(full >= 0);
            prop_assert_eq!(Psn::new(full as u64).extend(near), full as u64);
        }
    }

    #[test]
    fn a_group_has_an_address_that_no_host_has() {
        assert_eq!(HostId::group(7).as_group(), Some(7));
        assert_eq!(HostId(7).as_group(), None);
        assert_ne!(HostId::group(7), HostId(7));
    }

    #[test]
    fn a_path_is_a_port_and_an_entropy_value() {
        let path = PathId::new(7, 0xabcdef);
        assert_eq!((path.port(), path.entropy()), (7, 0xabcdef));
    }
}
