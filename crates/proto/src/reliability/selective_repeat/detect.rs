//! How losses are found, timeouts aside: by reordering and probes (SLEEK), by lateness (ours), or by any hole (IRN).

use super::lateness::Lateness;
use super::order::PathOrder;
use super::{LossDetection, SelectiveRepeat};
use crate::congestion::LossKind;
use crate::packet::{Ack, Flags, Psn};
use crate::reliability::scoreboard::State;
use crate::units::{Bytes, Span, Time};
use std::num::NonZeroU64;

/// SLEEK: packets held out of order that mean a loss, at the least.
const REORDER_PACKETS_MIN: u64 = 5;

/// The latest probes whose answers mean something. Ours: at a new one every other round trip, answers may take sixteen.
pub(super) const PROBES: usize = 8;

/// An episode of fast recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// It ends when everything below is acknowledged.
    pub(super) until: NonZeroU64,
    /// Only what lies below may be sent again.
    pub(super) bound: u64,
}

/// Probes of a fabric without trimming.
#[derive(Debug)]
pub(super) struct Probe {
    /// When the next one is due; [`Time::NEVER`] while nothing is outstanding.
    pub(super) at: Time,
    pub(super) due: bool,
    pub(super) number: u32,
    /// Which bits numbers have.
    pub(super) numbers: u32,
    /// When each of the latest left, and `next` at that time: what its answer can judge. By number.
    pub(super) sent: [(Time, u64); PROBES],
    /// However large the window, no more wire bytes than this must have come behind a hole for it to be a loss.
    pub(super) window_max: u64,
    /// Where lateness tells of losses.
    pub(super) late: Lateness,
    /// ... and where paths are told apart.
    pub(super) order: Option<PathOrder>,
    /// ... the time to the next probe.
    pub(super) gap: Span,
    /// ... which never is longer than this; zero: four base RTTs, from half a one on.
    pub(super) gap_max: Span,
}

impl Default for Probe {
    fn default() -> Probe {
        let (late, gap) = (Lateness::new(Span(u64::MAX), 0.0), Span::ZERO);
        Probe {
            at: Time::NEVER,
            due: false,
            number: 0,
            numbers: u32::MAX,
            sent: [(Time::ZERO, 0); PROBES],
            window_max: u64::MAX,
            late,
            order: None,
            gap,
            gap_max: Span::ZERO,
        }
    }
}

impl SelectiveRepeat {
    fn enter_recovery(&mut self, from: u64, bound: u64) {
        let bound =
            if self.recover_all && self.detection == LossDetection::Reordering { self.board.next() } else { bound };
        self.recovery = NonZeroU64::new(self.board.next()).map(|until| Recovery { until, bound });
        self.mark = self.mark.max(from);
    }

    /// Sends again what the present episode says is missing.
    fn recover(&mut self, window: Bytes) {
        let Some(recovery) = self.recovery else { return };
        let una = self.board.una();
        let end = recovery.bound.min(una + (window.0 / u64::from(self.packet)).max(1)).min(self.board.next());
        let from = self.mark.max(una);
        for psn in from..end {
            self.lose(psn, LossKind::Inferred);
        }
        self.mark = self.mark.max(end);
    }

    pub(super) fn detect_by_holes(&mut self, flags: Flags, window: Bytes) {
        if flags.has(Flags::HOLE) && self.recovery.is_none() {
            let una = self.board.una();
            self.mark = una;
            self.enter_recovery(una, una);
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.bound = self.highest;
        }
        self.recover(Bytes(window.0.max(u64::from(self.window_psn) * u64::from(self.packet))));
    }

    pub(super) fn detect_by_reordering(&mut self, now: Time, ack: &Ack, flags: Flags, window: Bytes) {
        let una = self.board.una();
        // A probe that came back without much delay means that older data had the time to arrive.
        let judged = self.answered(ack, flags).filter(|p| now.since(p.0) < self.base_rtt * 2);
        let judged = judged.map(|p| p.1);
        self.arm_probe(now);
        if let Some(recovery) = &mut self.recovery {
            // A probe may tell of more than was known when the episode began.
            recovery.bound = recovery.bound.max(judged.unwrap_or(0));
        } else if let Some(covers) = judged {
            self.enter_recovery(una, covers);
        } else if u64::from(ack.out_of_order) >= self.reordering_allowed(window) && self.repairs.is_empty() {
            self.enter_recovery(una, self.highest);
        }
        self.recover(window);
    }

    /// When the probe left that this answers, and what it can judge, if it is one of the latest.
    fn answered(&self, ack: &Ack, flags: Flags) -> Option<(Time, u64)> {
        let probe = self.probe.as_deref()?;
        let acked = { ack.acked }.get();
        let ago = probe.number.wrapping_sub(acked) & probe.numbers & (Psn::MODULUS - 1) as u32;
        let known = acked <= probe.numbers && flags.has(Flags::PROBE_ANSWER) && ago < probe.number.min(PROBES as u32);
        known.then(|| probe.sent[(probe.number - ago) as usize % PROBES])
    }

    /// Whatever the acknowledgement says is missing, and was sent long before something that is there, is lost; where paths
    /// are told apart, also what something sent a little later over the same path has overtaken.
    pub(super) fn detect_by_lateness(&mut self, now: Time, ack: &Ack, flags: Flags, rtt: Option<Span>) {
        let sent = match rtt {
            Some(rtt) => Some(Time(now.0 - rtt.0)),
            None => self.answered(ack, flags).map(|p| p.0),
        };
        let Some(probe) = &mut self.probe else { return };
        if let Some(sent) = sent {
            probe.late.arrived(sent);
            if let Some(order) = probe.order.as_mut().filter(|_| flags.has(Flags::PROBE_ANSWER)) {
                order.arrived(ack.path, sent);
            }
        }
        if !probe.late.is_newest(ack.received) {
            return;
        }
        // What was sent before this is late.
        let last = self.board.next() == self.backlog.end();
        let due = Time(probe.late.latest().0.saturating_sub(probe.late.limit(last).0));
        // Nothing that was sent from here on is lost for all that is known.
        let horizon = due.max(probe.order.as_ref().map_or(Time::ZERO, PathOrder::horizon));
        let una = self.board.una();
        let base = ack.sack_base.extend(una);
        let missing = !ack.sack.get();
        let reported = (0..64).filter(|i| missing >> i & 1 == 1).map(|i| base + i).filter(|&psn| psn > una);
        for psn in std::iter::once(una).chain(reported) {
            let Some(&sent) = self.board.get(psn) else { break };
            if sent.at >= horizon {
                if sent.sends == 1 {
                    // All above were sent later still.
                    break;
                }
                continue;
            }
            let order = self.probe.as_ref().and_then(|probe| probe.order.as_ref());
            let lost = sent.at < due || order.is_some_and(|order| order.overtook(sent.path, sent.at));
            if lost && sent.state == State::InFlight {
                self.lose(psn, LossKind::Inferred);
            }
        }
    }

    /// As many packets held above a hole mean a loss: one and a half windows of them, at most the largest window.
    fn reordering_allowed(&self, window: Bytes) -> u64 {
        let most = self.probe.as_ref().map_or(u64::MAX, |p| p.window_max);
        ((window.0.saturating_mul(3) / 2).min(most) / u64::from(self.packet)).max(REORDER_PACKETS_MIN)
    }

    /// With nothing left to send, only a probe brings news of the tail; otherwise acknowledgements do for a while.
    pub(super) fn arm_probe(&mut self, now: Time) {
        let Some(probe) = &mut self.probe else { return };
        if self.detection == LossDetection::Lateness && self.board.una() != self.board.next() {
            // What was sent last can be late only by comparison with something sent later.
            return;
        }
        probe.due = false;
        probe.at = if self.board.una() == self.board.next() {
            Time::NEVER
        } else if self.board.next() == self.backlog.end() {
            now + self.base_rtt * 2
        } else {
            now + self.base_rtt * 3
        };
    }
}
