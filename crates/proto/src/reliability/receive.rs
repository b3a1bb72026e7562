//! The receiver's half of reliability: what to tell the sender, what to tell the application.

use super::{GoBackNReceiver, Invalid, Received, SelectiveReceiver};
use crate::letter::Letter;
use crate::packet::{Ack, Data, Flags, Header, MessageId, Part, PathId};
use crate::partial::PartialReceiver;
use crate::repair::RepairReceiver;
use crate::units::{Span, Time};

/// What one arrival calls for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Was it new (rather than a duplicate, out of order for go-back-N, or trimmed)?
    pub fresh: bool,
    /// Was its payload here already?
    pub duplicate: bool,
}

/// Tracks what has arrived on one connection.
pub trait Receiver {
    /// A data packet arrived, whole or trimmed (see its flags). An acknowledgement or NACK that is to be sent at once goes to
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
    /// If it belongs to no message that there can be; the state is then unchanged.
    fn on_part(&mut self, _now: Time, _part: &Part, _flags: Flags) -> Result<Arrival, Invalid> {
        Err(Invalid::BeyondWindow)
    }
    /// A letter of the sender arrived.
    ///
    /// # Errors
    /// If it makes no sense; the state is then unchanged.
    fn on_letter(&mut self, _now: Time, _letter: &Letter) -> Result<(), Invalid> {
        Err(Invalid::BeyondWindow)
    }
    /// Takes a letter to the sender.
    fn take_letter(&mut self) -> Option<(Letter, Flags)> {
        None
    }
    /// When to call `on_timeout`; may be early, never late. [`Time::NEVER`] when nothing is owed.
    fn deadline(&self) -> Time {
        Time::NEVER
    }
    /// The deadline has passed.
    fn on_timeout(&mut self, _now: Time) {}
    /// A measured round trip shorter than all before lowers what timers build on.
    fn on_base_rtt(&mut self, _base_rtt: Span) {}
    /// A probe of this number arrived: what to answer. The answer's `acked` echoes the number's low 24 bits.
    fn on_probe(&mut self, number: u32, path: PathId, marked: bool) -> (Ack, Flags);
    /// Takes one of the messages that are wholly here, with its length in bytes. In order of posting.
    fn take_received(&mut self) -> Option<(MessageId, u64)>;
    /// Takes how many bytes never came and can be rebuilt from parity since this was last asked.
    fn take_rebuilt(&mut self) -> u64 {
        0
    }
    /// The first sequence number that is missing.
    fn cumulative(&self) -> u64;
    /// What must outlive a sleep, if nothing is missing and nothing is owed; `None` otherwise.
    fn rest(&self) -> Option<Received> {
        None
    }
    /// Begins where another one rested. Called before anything else.
    fn resume(&mut self, _from: Received) {}
    /// Reads what the next packet will touch, so that it is in the cache by then; the value means nothing.
    fn prefetch(&self) -> u64 {
        self.cumulative()
    }
}

/// A receiver, in place.
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
    /// From now on the sender is told how much arrives, if this is a repair scheme. Called before anything else.
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
    fn on_letter(&mut self, now: Time, letter: &Letter) -> Result<(), Invalid> {
        each!(self, r => r.on_letter(now, letter))
    }
    fn take_letter(&mut self) -> Option<(Letter, Flags)> {
        each!(self, r => r.take_letter())
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
    fn rest(&self) -> Option<Received> {
        each!(self, r => r.rest())
    }
    fn resume(&mut self, from: Received) {
        each!(self, r => r.resume(from))
    }
    #[inline]
    fn prefetch(&self) -> u64 {
        each!(self, r => r.prefetch())
    }
}
