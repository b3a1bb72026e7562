//! The receiver's half of reliability: it answers the sender, and reports received messages to the application.

use super::{GoBackNReceiver, Invalid, Received, SelectiveReceiver};
use crate::control_message::ControlMessage;
use crate::packet::{Ack, Data, Flags, Header, MessageId, Part, PathId};
use crate::partial::PartialReceiver;
use crate::repair::RepairReceiver;
use crate::units::{Span, Time};

/// The result of one arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// True if it was new; false for a duplicate, a trimmed packet, or one out of order with go-back-N.
    pub fresh: bool,
    /// True if its payload had already arrived.
    pub duplicate: bool,
}

/// Tracks what has arrived on one connection.
pub trait Receiver {
    /// A data packet arrived, whole or trimmed (see its flags). An acknowledgement or NACK to send at once goes into
    /// `answer`.
    ///
    /// # Errors
    /// If it lies beyond the window; the state is then unchanged.
    fn on_data(
        &mut self,
        data: &Data,
        flags: Flags,
        path: PathId,
        answer: &mut Option<(Header, Flags)>,
    ) -> Result<Arrival, Invalid>;
    /// A part of a message arrived, whole or trimmed (see its flags).
    ///
    /// # Errors
    /// If no message can have this part; the state is then unchanged.
    fn on_part(&mut self, _now: Time, _part: &Part, _flags: Flags) -> Result<Arrival, Invalid> {
        Err(Invalid::BeyondWindow)
    }
    /// A control message of the sender arrived.
    ///
    /// # Errors
    /// If it makes no sense; the state is then unchanged.
    fn on_control(&mut self, _now: Time, _control: &ControlMessage) -> Result<(), Invalid> {
        Err(Invalid::BeyondWindow)
    }
    /// Takes the next control message for the sender.
    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        None
    }
    /// When to call `on_timeout`; may be early, never late. [`Time::NEVER`] if no timer runs.
    fn deadline(&self) -> Time {
        Time::NEVER
    }
    /// The deadline has passed.
    fn on_timeout(&mut self, _now: Time) {}
    /// A new shortest round trip was measured: timers use it as their base RTT.
    fn on_base_rtt(&mut self, _base_rtt: Span) {}
    /// A probe with this number arrived: returns the answer, whose `acked` echoes the number's low 24 bits.
    fn on_probe(&mut self, number: u32, path: PathId, marked: bool) -> (Ack, Flags);
    /// Takes the next message that has arrived completely, with its length in bytes, in order of posting.
    fn take_received(&mut self) -> Option<(MessageId, u64)>;
    /// The number of bytes that did not arrive and can be rebuilt from parity, since the last call.
    fn take_rebuilt(&mut self) -> u64 {
        0
    }
    /// The first sequence number that is missing.
    fn cumulative(&self) -> u64;
    /// The number of packets that it holds above the first missing one.
    fn held(&self) -> u32 {
        0
    }
    /// The state that must survive a sleep; `None` while packets are missing or an answer is due.
    fn rest(&self) -> Option<Received> {
        None
    }
    /// Continues from the state that `rest` returned. Must be the first call.
    fn resume(&mut self, _from: Received) {}
}

/// A receiver, stored without an outer box.
#[allow(missing_docs, reason = "each variant holds the type it is named after")]
pub enum AnyReceiver {
    GoBackN(GoBackNReceiver),
    Selective(SelectiveReceiver),
    Partial(Box<PartialReceiver>),
    Repair(Box<RepairReceiver>),
}

macro_rules! each {
    ($self:expr, $r:ident => $call:expr) => {
        match $self {
            AnyReceiver::GoBackN($r) => $call,
            AnyReceiver::Selective($r) => $call,
            AnyReceiver::Partial($r) => $call,
            AnyReceiver::Repair($r) => $call,
        }
    };
}

impl AnyReceiver {
    /// Calls `fetch` with the address of memory outside the receiver that the next packet will need.
    #[inline]
    pub(crate) fn name_memory(&self, fetch: impl Fn(*const u8)) {
        if let AnyReceiver::Selective(receiver) = self {
            fetch(receiver.next_word());
        }
    }

    /// For a repair scheme: counts arriving packets and reports them to the sender. Must be the first call.
    pub(crate) fn count_arrivals(&mut self) {
        if let AnyReceiver::Repair(receiver) = self {
            receiver.count_arrivals();
        }
    }
}

impl Receiver for AnyReceiver {
    #[inline]
    fn on_data(
        &mut self,
        data: &Data,
        flags: Flags,
        path: PathId,
        answer: &mut Option<(Header, Flags)>,
    ) -> Result<Arrival, Invalid> {
        each!(self, r => r.on_data(data, flags, path, answer))
    }
    fn on_part(&mut self, now: Time, part: &Part, flags: Flags) -> Result<Arrival, Invalid> {
        each!(self, r => r.on_part(now, part, flags))
    }
    fn on_control(&mut self, now: Time, control: &ControlMessage) -> Result<(), Invalid> {
        each!(self, r => r.on_control(now, control))
    }
    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        each!(self, r => r.take_control())
    }
    fn deadline(&self) -> Time {
        each!(self, r => r.deadline())
    }
    fn on_timeout(&mut self, now: Time) {
        each!(self, r => r.on_timeout(now))
    }
    fn on_base_rtt(&mut self, base_rtt: Span) {
        each!(self, r => r.on_base_rtt(base_rtt))
    }
    fn on_probe(&mut self, number: u32, path: PathId, marked: bool) -> (Ack, Flags) {
        each!(self, r => r.on_probe(number, path, marked))
    }
    #[inline]
    fn take_received(&mut self) -> Option<(MessageId, u64)> {
        each!(self, r => r.take_received())
    }
    fn take_rebuilt(&mut self) -> u64 {
        each!(self, r => r.take_rebuilt())
    }
    fn cumulative(&self) -> u64 {
        each!(self, r => r.cumulative())
    }
    #[inline]
    fn held(&self) -> u32 {
        each!(self, r => r.held())
    }
    fn rest(&self) -> Option<Received> {
        each!(self, r => r.rest())
    }
    fn resume(&mut self, from: Received) {
        each!(self, r => r.resume(from))
    }
}
