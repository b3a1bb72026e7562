//! The pace of a host's credit (RCCC): one grant at a time, at nearly the host's line rate.
//!
//! Connections whose senders want credit take turns. While there is none, those that had some get credit in advance, up
//! to what a sender may hold. Source: `UecPullPacer` of the UEC simulator.

use super::Endpoint;
use crate::control_message::ControlMessage;
use crate::credit::CreditQueue;
use crate::packet::{ConnectionId, Flags, Header};
use crate::units::{Bytes, Rate, Time};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// In the timer heap: an entry for the pace of credit.
pub(super) const CREDITS_TIMER: u32 = u32::MAX - 2;

/// A grant without new credit takes the time of this many bytes. UEC simulator: 1,024 B.
const EMPTY_GRANT: Bytes = Bytes(1024);

/// A host's credit.
#[derive(Default)]
pub(super) struct CreditPacer {
    active: VecDeque<ConnectionId>,
    idle: VecDeque<ConnectionId>,
    /// The rate of its credit.
    rate: Rate,
    /// The time of the next grant, while its timer runs.
    next: Option<Time>,
}

impl Endpoint {
    /// A connection's sender wants credit: the connection joins those that do.
    #[cold]
    pub(super) fn want_credit(&mut self, now: Time, slot: usize) {
        let id = self.connections.id(slot);
        let connection = &mut self.connections[slot];
        let Some(terms) = connection.kind().credit else { return };
        let rate = connection.kind().environment.rate.scaled(terms.pace);
        let Some(credit) = &mut connection.credit else { return };
        let was = std::mem::replace(&mut credit.receiver.queue, CreditQueue::Active);
        let pacer = self.credits.get_or_insert_default();
        if was == CreditQueue::Idle {
            pacer.idle.retain(|&other| other != id);
        }
        pacer.active.push_back(id);
        pacer.rate = rate;
        if pacer.next.is_none() {
            pacer.next = Some(now);
            self.timers.push(Reverse((now, CREDITS_TIMER)));
        }
    }

    /// The time of a grant has come.
    pub(super) fn handle_credits_timeout(&mut self, now: Time) {
        let Some(mut pacer) = self.credits.take() else { return };
        pacer.next = self.grant_credit(&mut pacer).map(|bytes| now + pacer.rate.time_for(bytes));
        if let Some(next) = pacer.next {
            self.timers.push(Reverse((next, CREDITS_TIMER)));
        }
        self.credits = Some(pacer);
    }

    /// Gives one grant, and returns the bytes that the pace counts for it; `None` if no connection is left.
    fn grant_credit(&mut self, pacer: &mut CreditPacer) -> Option<Bytes> {
        loop {
            let is_active = !pacer.active.is_empty();
            let id = pacer.active.pop_front().or_else(|| pacer.idle.pop_front())?;
            let connection = self.connections.find(id).and_then(|slot| self.connections.get_mut(slot));
            // A connection that has been closed or sleeps gets no more credit.
            let Some(connection) = connection else { continue };
            let Some(credit) = &mut connection.credit else { continue };
            let (pull, bytes) = credit.receiver.give(!is_active);
            let path = credit.receiver.path;
            credit.receiver.queue = if is_active && credit.receiver.wants_more() {
                pacer.active.push_back(id);
                CreditQueue::Active
            } else if is_active || (!credit.receiver.wants_more() && credit.receiver.may_idle()) {
                pacer.idle.push_back(id);
                CreditQueue::Idle
            } else {
                CreditQueue::None
            };
            let grant =
                connection.control(path, Flags::NONE, Header::Control(ControlMessage::Credit { granted: pull }));
            self.control.push(grant);
            return Some(if bytes == Bytes(0) { EMPTY_GRANT } else { bytes });
        }
    }
}
