//! Finds losses without timeouts: by reordering and probes (SLEEK), by lateness (ours), or by any hole (IRN).

use super::lateness::Lateness;
use super::order::PathOrder;
use super::{LossDetection, SelectiveRepeat};
use crate::congestion::LossKind;
use crate::packet::{Ack, Flags, Psn};
use crate::reliability::scoreboard::State;
use crate::units::{Bytes, Span, Time};
use std::num::NonZeroU64;

/// SLEEK: at least this many packets held out of order mean a loss.
const REORDER_PACKETS_MIN: u64 = 5;

/// The number of latest probes whose answers are used. Ours: with a new probe every two round trips, an answer may take
/// 16 round trips.
pub(super) const PROBES: usize = 8;

/// An episode of fast recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// It ends when all PSNs below this one are acknowledged.
    pub(super) until: NonZeroU64,
    /// Only PSNs below this one may be sent again.
    pub(super) bound: u64,
}

/// Probes of a fabric without trimming.
#[derive(Debug)]
pub(super) struct Probe {
    /// When the next one is due; [`Time::NEVER`] while nothing is outstanding.
    pub(super) at: Time,
    pub(super) due: bool,
    pub(super) number: u32,
    /// The mask of a probe's number.
    pub(super) numbers: u32,
    /// For each of the latest probes, by number: when it was sent, and `next` at that time. Its answer can judge PSNs
    /// below that. `None` before the first probe.
    pub(super) sent: Option<Box<[(Time, u64); PROBES]>>,
    /// The upper limit, in wire bytes, of the reordering that is allowed before a hole counts as lost, even with a
    /// larger window.
    pub(super) window_max: u64,
    /// For detection by lateness: the lateness of packets.
    pub(super) late: Lateness,
    /// For detection by lateness with paths that keep order: the latest arrival by path.
    pub(super) order: Option<PathOrder>,
    /// For detection by lateness: the time to the next probe.
    pub(super) gap: Span,
    /// For detection by lateness: the upper limit of `gap`; zero: `gap` starts at half a base RTT and grows to four.
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
            sent: None,
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

    /// Marks the packets as lost that the present recovery covers and that are still missing.
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
        self.recover(Bytes(window.0.max(u64::from(self.range.most) * u64::from(self.packet))));
    }

    pub(super) fn detect_by_reordering(&mut self, now: Time, ack: &Ack, flags: Flags, window: Bytes) {
        let una = self.board.una();
        // If the answer to a probe came within a base RTT and the target, data sent before it had enough time to arrive.
        let judged = self.answered(ack, flags).filter(|p| now.since(p.0) < self.patience());
        let judged = judged.map(|p| p.1);
        self.arm_probe(now);
        if let Some(recovery) = &mut self.recovery {
            // The answer may cover more PSNs than were known when the recovery began.
            recovery.bound = recovery.bound.max(judged.unwrap_or(0));
        } else if let Some(covers) = judged {
            self.enter_recovery(una, covers);
        } else if u64::from(ack.out_of_order) >= self.reordering_allowed(window) && self.repairs.is_empty() {
            self.enter_recovery(una, self.highest);
        }
        self.recover(window);
    }

    /// If the acknowledgement answers one of the latest probes: when that probe was sent, and the PSN below which it
    /// can judge.
    fn answered(&self, ack: &Ack, flags: Flags) -> Option<(Time, u64)> {
        let probe = self.probe.as_deref()?;
        let acked = { ack.acked }.get();
        let ago = probe.number.wrapping_sub(acked) & probe.numbers & (Psn::MODULUS - 1) as u32;
        let known = acked <= probe.numbers && flags.has(Flags::PROBE_ANSWER) && ago < probe.number.min(PROBES as u32);
        let sent = probe.sent.as_ref().filter(|_| known)?;
        Some(sent[(probe.number - ago) as usize % PROBES])
    }

    /// Finds the packets lost that are missing in the acknowledgement and were sent more than the limit before a packet
    /// that has arrived. Where paths keep order, a packet is also lost if a packet sent `slack` later over the same
    /// path has arrived.
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
        // Packets sent before `due` are late.
        let last = self.board.next() == self.backlog.end();
        let due = Time(probe.late.latest().0.saturating_sub(probe.late.limit(last).0));
        // Packets sent at `horizon` or later cannot be found lost yet.
        let horizon = due.max(probe.order.as_ref().map_or(Time::ZERO, PathOrder::horizon));
        let una = self.board.una();
        let base = ack.sack_base.extend(una);
        let missing = !ack.sack.get();
        let reported = (0..64).filter(|i| missing >> i & 1 == 1).map(|i| base + i).filter(|&psn| psn > una);
        for psn in std::iter::once(una).chain(reported) {
            let Some(&sent) = self.board.get(psn) else { break };
            if sent.at >= horizon {
                if sent.sends == 1 {
                    // All packets above were sent even later.
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

    /// The number of packets held out of order that mean a loss: one and a half windows, at most `window_max`, at least
    /// `REORDER_PACKETS_MIN`.
    fn reordering_allowed(&self, window: Bytes) -> u64 {
        let most = self.probe.as_ref().map_or(u64::MAX, |p| p.window_max);
        ((window.0.saturating_mul(3) / 2).min(most) / u64::from(self.packet)).max(REORDER_PACKETS_MIN)
    }

    /// Sets the time of the next probe. When nothing is left to send, only a probe can report the last packets, so it
    /// comes after two base RTTs; otherwise acknowledgements report them, and it comes after three.
    pub(super) fn arm_probe(&mut self, now: Time) {
        let Some(probe) = &mut self.probe else { return };
        if self.detection == LossDetection::Lateness && self.board.una() != self.board.next() {
            // The last packet can be found late only by a packet sent after it; `on_sent` has set the probe's time.
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
