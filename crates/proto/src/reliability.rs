//! Reliability: decides which packet is sent next, and finds losses.
//!
//! A reliability's file holds both halves, the sender's scoreboard and the receiver's tracker, because they change
//! together. Several reliabilities may share one implementation ([`AnyReliability`], [`AnyReceiver`]) and differ only
//! in its settings.

mod go_back_n;
mod mrc;
mod receive;
mod scoreboard;
mod selective_repeat;

pub use crate::connection::{Received, SentUpTo};
pub use go_back_n::{GoBackN, GoBackNConfig, GoBackNReceiver};
pub use mrc::MrcSackConfig;
pub(crate) use mrc::SACK_WORD;
pub use receive::{AnyReceiver, Arrival, Receiver};
pub use selective_repeat::{LossDetection, SelectiveReceiver, SelectiveRepeat, SelectiveRepeatConfig};

use crate::congestion::LossKind;
use crate::control_message::ControlMessage;
use crate::environment::{Environment, TransportConfig};
use crate::host::HostTraits;
use crate::message::{Message, Segment};
use crate::packet::{Ack, Flags, Nack, PathId};
use crate::parameter::ParameterSet;
use crate::partial::{PartialConfig, PartialSender};
use crate::policy::configurations;
use crate::profile::SwitchConfig;
use crate::repair::{
    Code, CodeError, Layout, RepairSender, Scheme, SdrAutoConfig, SdrMdsConfig, SdrNackConfig, SdrSrConfig,
    SdrXorConfig,
};
use crate::units::{Bytes, Span, Time};

/// The table of reliabilities. One row is everything this file knows about a reliability; `crate::policy` explains
/// rows.
macro_rules! reliabilities {
    ($make:ident $with:tt) => {
        $make! { $with
            /// Accepts packets in order only; after a loss, sends everything again from the lost packet on.
            go_back_n: GoBackN(GoBackNConfig),
            /// Accepts packets out of order; sends only missing packets again.
            selective_repeat: SelectiveRepeat(SelectiveRepeatConfig),
            /// Accepts packets out of order; finds losses by NACKs or lateness; has a budget of retries.
            mrc_sack: MrcSack(MrcSackConfig),
            /// None: bitmaps for programs (SDR-RDMA).
            partial: Partial(PartialConfig),
            /// Sends chunks again that are not acknowledged in time (SDR-RDMA).
            sdr_sr: SdrSr(SdrSrConfig),
            /// Sends chunks again that the receiver reports missing (SDR-RDMA).
            sdr_nack: SdrNack(SdrNackConfig),
            /// XOR parity; sends chunks again that parity cannot repair (SDR-RDMA).
            sdr_xor: SdrXor(SdrXorConfig),
            /// Reed-Solomon parity; sends chunks again that parity cannot repair (SDR-RDMA).
            sdr_mds: SdrMds(SdrMdsConfig),
            /// For each message, the scheme that a model expects to be fastest (SDR-RDMA).
            sdr_auto: SdrAuto(SdrAutoConfig),
        }
    };
}

/// A packet found lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// The path it was sent over.
    pub path: PathId,
    /// Its wire bytes.
    pub bytes: Bytes,
    /// How the loss became known.
    pub kind: LossKind,
}

/// The packets and bytes that an input acknowledged, or found lost: they are no longer in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settled {
    /// Wire bytes newly acknowledged.
    pub bytes: Bytes,
    /// Packets newly acknowledged.
    pub packets: u32,
    /// Round trip of the packet that caused the acknowledgement, if it is known beyond doubt.
    pub rtt: Option<Span>,
    /// Wire bytes newly found lost, if the receiver counts arriving packets.
    pub lost: Option<Bytes>,
}

/// The present state of a reliability, as far as its connection needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Wire bytes in flight.
    pub in_flight: u64,
    /// When to call [`Reliability::on_timeout`].
    pub deadline: Time,
    /// Is there a packet to send, if the window allows it?
    pub has_next: bool,
    /// May that packet be sent although the window is full?
    pub next_is_urgent: bool,
    /// Is a probe due?
    pub wants_probe: bool,
}

/// Odd input from the network: counted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// It acknowledges a packet that was never sent.
    BeyondSent,
    /// Its sequence number lies beyond the window.
    BeyondWindow,
}

/// The sender's half: decides which packet is sent next, and tracks every packet until it is acknowledged or lost.
///
/// The connection calls `next` only if `has_next` is true and the window allows it, then `on_sent` for the packet that
/// it got. Every packet is in flight from `on_sent` until it is acknowledged or found lost.
pub trait Reliability: Send {
    /// Adds a message to send after those already posted.
    fn open(&mut self, message: Message);
    /// Is there a packet to send, if the window allows it?
    fn has_next(&self) -> bool;
    /// The number of packets that wait to be sent, retransmissions included. Those that ask for a receiver's credit tell.
    fn unsent(&self) -> u64 {
        0
    }
    /// True if `has_next` is false only because the range of PSNs or a cap on bytes in flight holds packets back. For
    /// reports.
    fn is_held(&self) -> bool {
        false
    }
    /// May the next packet be sent although the window is full (a retransmission in fast recovery)?
    fn next_is_urgent(&self) -> bool {
        false
    }
    /// The next packet: fresh or a repair.
    fn next(&mut self, now: Time) -> Option<Segment>;
    /// The packet `segment` was sent.
    fn on_sent(&mut self, now: Time, segment: &Segment, path: PathId, bytes: Bytes);
    /// An acknowledgement arrived; `window` is the present congestion window in wire bytes.
    ///
    /// # Errors
    /// If it makes no sense; the state is then unchanged.
    fn on_ack(&mut self, now: Time, ack: &Ack, flags: Flags, window: Bytes) -> Result<Settled, Invalid>;
    /// A NACK arrived.
    ///
    /// # Errors
    /// If it makes no sense; the state is then unchanged.
    fn on_nack(&mut self, now: Time, nack: &Nack, flags: Flags) -> Result<Settled, Invalid>;
    /// A control message of the other end arrived.
    ///
    /// # Errors
    /// If it makes no sense; the state is then unchanged.
    fn on_control(&mut self, _now: Time, _control: &ControlMessage, _flags: Flags) -> Result<Settled, Invalid> {
        Err(Invalid::BeyondSent)
    }
    /// Takes the next control message to send to the other end.
    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        None
    }
    /// The deadline has passed.
    fn on_timeout(&mut self, now: Time);
    /// The deadline has passed, but the NIC's port may have been paused: `paused` has the time since some instant in
    /// which it was. A retransmission timer does not run during pauses, so its deadline is set later.
    fn wait_for_pauses(&mut self, _now: Time, _paused: &dyn Fn(Time) -> Span) {}
    /// When to call `on_timeout`; may be early, never late. [`Time::NEVER`] if no timer runs.
    fn deadline(&self) -> Time;
    /// Takes one of the losses found by the last input.
    fn take_lost(&mut self) -> Option<Lost>;
    /// Is a probe due?
    fn wants_probe(&self) -> bool {
        false
    }
    /// Takes a probe that is due, by its number.
    fn take_probe(&mut self, _now: Time) -> Option<u32> {
        None
    }
    /// Takes one of the messages that are wholly acknowledged.
    fn take_finished(&mut self) -> Option<Message>;
    /// Wire bytes in flight.
    fn in_flight(&self) -> Bytes;
    /// If the next packet is a retransmission: the path by which it was last sent, if that is known.
    fn retry_path(&self) -> Option<PathId> {
        None
    }
    /// Has it given up? Then nothing is sent any more.
    fn failed(&self) -> bool {
        false
    }
    /// The answers to everything that a connection asks after an input, in one call.
    fn outlook(&self) -> Outlook {
        Outlook {
            in_flight: self.in_flight().0,
            deadline: self.deadline(),
            has_next: self.has_next(),
            next_is_urgent: self.next_is_urgent(),
            wants_probe: self.wants_probe(),
        }
    }
    /// The state that must survive a sleep; `None` while a message is posted or in flight.
    fn rest(&self) -> Option<SentUpTo> {
        None
    }
    /// Continues from the state that `rest` returned. Must be the first call.
    fn resume(&mut self, _from: SentUpTo) {}
    /// A new shortest round trip was measured: timers use it as their base RTT.
    fn on_base_rtt(&mut self, _base_rtt: Span) {}
}

/// The calls that a reliability's parameters must answer.
pub(crate) trait ReliabilityPolicy: ParameterSet {
    /// The sender's half for one connection.
    fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability;
    /// The receiver's half for one connection.
    fn build_receiver(&self, transport: &TransportConfig, environment: &Environment) -> AnyReceiver;
    /// How long a sender waits for an acknowledgement before it sends again: the first timeout, with many packets in
    /// flight.
    fn timeout(&self, environment: &Environment) -> Span;
    /// The most packets that a sender is ahead of the oldest one not acknowledged; `None` without such a bound.
    fn range(&self) -> Option<u32> {
        None
    }
    /// The packets that all connections of a receiving host may hold above their first missing one; 0 without a limit.
    fn trackers(&self) -> u32 {
        0
    }
    /// May switches trim its data? `again`: retransmissions.
    fn may_trim(&self, _again: bool) -> bool {
        true
    }
    /// Do its connections run one way, with control messages instead of acknowledgements?
    fn is_one_way(&self) -> bool {
        false
    }
    /// SDR-RDMA's repair scheme, if it is one.
    fn scheme(&self) -> Option<Scheme> {
        None
    }
    /// The erasure code, if it has one.
    ///
    /// # Errors
    /// If its parameters make no code.
    fn code(&self) -> Result<Option<Code>, CodeError> {
        Ok(None)
    }
    /// Adapts the parameters to a host with these traits, in a profile with these settings.
    fn adapt_to(&mut self, _host: &HostTraits, _transport: &TransportConfig, _switch: &SwitchConfig) {}
}

reliabilities!(configurations [
    /// A choice of reliability, with its parameters.
    ReliabilityConfig: ReliabilityPolicy
]);

/// A sender's reliability, stored without a box.
#[allow(missing_docs, reason = "each variant holds the type it is named after")]
pub enum AnyReliability {
    GoBackN(GoBackN),
    SelectiveRepeat(SelectiveRepeat),
    Partial(Box<PartialSender>),
    Repair(Box<RepairSender>),
}

impl ReliabilityConfig {
    /// Its parameters.
    pub fn parameters(&mut self) -> &mut dyn ParameterSet {
        self.policy_mut().expect("no reliability comes from outside")
    }

    fn known(&self) -> &dyn ReliabilityPolicy {
        self.policy().expect("no reliability comes from outside")
    }

    /// The most packets that a sender is ahead of the oldest one not acknowledged; `None` without such a bound.
    pub fn range(&self) -> Option<u32> {
        self.known().range()
    }

    /// The packets that all connections of a receiving host may hold above their first missing one; 0 without a limit.
    pub(crate) fn trackers(&self) -> u32 {
        self.known().trackers()
    }

    /// How long a sender waits for an acknowledgement before it sends again: the first timeout, with many packets in
    /// flight. No less than two base RTTs.
    pub fn timeout(&self, environment: &Environment) -> Span {
        self.known().timeout(environment)
    }

    /// The erasure code of its parameters, if it has one.
    ///
    /// # Errors
    /// If they make no code.
    pub fn code(&self) -> Result<Option<Code>, CodeError> {
        self.known().code()
    }

    /// How plan number `plan` cuts a message of `packets` packets; `None` if that plan has no erasure code.
    pub fn coded_layout(&self, plan: u8, packets: u32) -> Option<Layout> {
        let plan = self.known().scheme()?.plan(plan)?;
        plan.code.map(|_| plan.layout(packets))
    }

    /// May switches trim its data? `again`: retransmissions. If not, they travel in a class that switches drop.
    pub fn may_trim(&self, again: bool) -> bool {
        self.known().may_trim(again)
    }

    /// The largest number of packets that are acknowledged together; 0 if each packet is acknowledged by itself.
    pub(crate) fn chunk_packets(&self) -> u64 {
        self.known().scheme().map_or(0, |scheme| u64::from(scheme.chunk_max()))
    }

    /// Do its connections run one way, with control messages instead of acknowledgements?
    pub fn is_one_way(&self) -> bool {
        self.known().is_one_way()
    }

    /// The sender's half for one connection.
    pub fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability {
        self.known().build(transport, environment)
    }

    /// The receiver's half for one connection.
    pub fn build_receiver(&self, transport: &TransportConfig, environment: &Environment) -> AnyReceiver {
        self.known().build_receiver(transport, environment)
    }
}

macro_rules! each {
    ($self:expr, $r:ident => $call:expr) => {
        match $self {
            AnyReliability::GoBackN($r) => $call,
            AnyReliability::SelectiveRepeat($r) => $call,
            AnyReliability::Partial($r) => $call,
            AnyReliability::Repair($r) => $call,
        }
    };
}

impl AnyReliability {
    /// Calls `fetch` with the addresses of memory outside the reliability that the next packet or acknowledgement will
    /// need.
    #[inline]
    pub(crate) fn name_memory(&self, fetch: impl Fn(*const u8)) {
        if let AnyReliability::SelectiveRepeat(sender) = self {
            sender.name_window(fetch);
        }
    }

    /// Detectors of losses by reordering follow the congestion control: its largest window as a multiple of the
    /// bandwidth-delay product, and its target as a multiple of the base RTT. Must be the first call.
    pub(crate) fn follow(&mut self, environment: &Environment, window_max_bdp: f64, target: f64) {
        if let AnyReliability::SelectiveRepeat(sender) = self {
            sender.follow(environment, window_max_bdp, target);
        }
    }

    /// See [`crate::Endpoint::set_timeout`].
    pub(crate) fn set_timeout(&mut self, now: Time, timeout: Span) {
        if let AnyReliability::SelectiveRepeat(sender) = self {
            sender.set_timeout(now, timeout);
        }
    }

    /// For a repair scheme: tells the sender that the receiver counts arriving packets. Must be the first call.
    pub(crate) fn count_arrivals(&mut self, environment: &Environment) {
        if let AnyReliability::Repair(sender) = self {
            sender.count_arrivals(environment);
        }
    }

    /// Sends the next packet by `path`, with `header` bytes before its payload. Returns the packet and the outlook
    /// after it; `None` if there is no next packet.
    #[inline]
    pub(crate) fn send(&mut self, now: Time, path: PathId, header: u16) -> Option<(Segment, Outlook)> {
        each!(self, r => {
            let segment = r.next(now)?;
            r.on_sent(now, &segment, path, Bytes(u64::from(header + segment.length)));
            Some((segment, r.outlook()))
        })
    }
}

impl Reliability for AnyReliability {
    fn open(&mut self, message: Message) {
        each!(self, r => r.open(message))
    }
    #[inline]
    fn has_next(&self) -> bool {
        each!(self, r => r.has_next())
    }
    fn unsent(&self) -> u64 {
        each!(self, r => r.unsent())
    }
    #[inline]
    fn is_held(&self) -> bool {
        each!(self, r => r.is_held())
    }
    #[inline]
    fn next_is_urgent(&self) -> bool {
        each!(self, r => r.next_is_urgent())
    }
    #[inline]
    fn next(&mut self, now: Time) -> Option<Segment> {
        each!(self, r => r.next(now))
    }
    #[inline]
    fn on_sent(&mut self, now: Time, segment: &Segment, path: PathId, bytes: Bytes) {
        each!(self, r => r.on_sent(now, segment, path, bytes))
    }
    #[inline]
    fn on_ack(&mut self, now: Time, ack: &Ack, flags: Flags, window: Bytes) -> Result<Settled, Invalid> {
        each!(self, r => r.on_ack(now, ack, flags, window))
    }
    fn on_nack(&mut self, now: Time, nack: &Nack, flags: Flags) -> Result<Settled, Invalid> {
        each!(self, r => r.on_nack(now, nack, flags))
    }
    fn on_control(&mut self, now: Time, control: &ControlMessage, flags: Flags) -> Result<Settled, Invalid> {
        each!(self, r => r.on_control(now, control, flags))
    }
    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        each!(self, r => r.take_control())
    }
    fn on_timeout(&mut self, now: Time) {
        each!(self, r => r.on_timeout(now))
    }
    fn wait_for_pauses(&mut self, now: Time, paused: &dyn Fn(Time) -> Span) {
        each!(self, r => r.wait_for_pauses(now, paused))
    }
    #[inline]
    fn deadline(&self) -> Time {
        each!(self, r => r.deadline())
    }
    #[inline]
    fn take_lost(&mut self) -> Option<Lost> {
        each!(self, r => r.take_lost())
    }
    #[inline]
    fn wants_probe(&self) -> bool {
        each!(self, r => r.wants_probe())
    }
    #[inline]
    fn take_probe(&mut self, now: Time) -> Option<u32> {
        each!(self, r => r.take_probe(now))
    }
    #[inline]
    fn take_finished(&mut self) -> Option<Message> {
        each!(self, r => r.take_finished())
    }
    #[inline]
    fn in_flight(&self) -> Bytes {
        each!(self, r => r.in_flight())
    }
    #[inline]
    fn retry_path(&self) -> Option<PathId> {
        each!(self, r => r.retry_path())
    }
    fn failed(&self) -> bool {
        each!(self, r => r.failed())
    }
    #[inline]
    fn outlook(&self) -> Outlook {
        each!(self, r => r.outlook())
    }
    fn rest(&self) -> Option<SentUpTo> {
        each!(self, r => r.rest())
    }
    fn resume(&mut self, from: SentUpTo) {
        each!(self, r => r.resume(from))
    }
    fn on_base_rtt(&mut self, base_rtt: Span) {
        each!(self, r => r.on_base_rtt(base_rtt))
    }
}
