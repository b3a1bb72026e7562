//! The packets in flight, parity and retransmissions included, for congestion control. Used when the receiver counts
//! arriving packets.

use crate::control_message::Heard;
use crate::packet::nearest;
use crate::reliability::{Invalid, Settled};
use crate::units::{Bytes, Span, Time};
use std::collections::VecDeque;

/// The largest number of packets in a run. Ours.
const RUN_MAX: u64 = 16;

/// Consecutive packets that were sent for the first time, one directly after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    sequence: u64,
    /// The first packet, and the number of packets after it.
    packet: u32,
    more: u32,
    /// The number of packets sent up to and including the first one.
    count: u64,
    /// When the first and the last packet were sent.
    from: Time,
    to: Time,
}

/// The packets in flight. All counts start with the connection's first packet.
#[derive(Debug)]
pub(super) struct Flight {
    /// Wire bytes of a packet.
    packet: Bytes,
    /// The longest time between two packets of a run.
    spacing: Span,
    runs: VecDeque<Run>,
    /// The number of packets sent, and the number of those that have arrived or are lost.
    sent: u64,
    resolved: u64,
    /// The number of packets that have arrived, and that are lost, by the receiver's reports.
    arrived: u64,
    lost: u64,
    /// When the last report came, or when the first packet was sent after all earlier ones were resolved.
    heard: Time,
}

impl Flight {
    pub(super) const fn new(packet: Bytes, base_rtt: Span) -> Flight {
        let spacing = Span(base_rtt.0 / 1024);
        let runs = VecDeque::new();
        Flight { packet, spacing, runs, sent: 0, resolved: 0, arrived: 0, lost: 0, heard: Time::ZERO }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.sent - self.resolved) * self.packet.0
    }

    /// A packet is sent; `again`: it is a retransmission.
    pub(super) fn leave(&mut self, now: Time, sequence: u64, packet: u32, again: bool) {
        if self.sent == self.resolved {
            self.heard = now;
        }
        self.sent += 1;
        if again {
            return;
        }
        let (sent, spacing) = (self.sent, self.spacing);
        match self.runs.back_mut() {
            Some(run)
                if run.sequence == sequence
                    && sent - run.count == u64::from(run.more) + 1
                    && packet.checked_sub(run.packet) == Some(run.more + 1)
                    && u64::from(run.more) + 1 < RUN_MAX
                    && now.since(run.to) <= spacing =>
            {
                (run.more, run.to) = (run.more + 1, now);
            }
            _ => self.runs.push_back(Run { sequence, packet, more: 0, count: sent, from: now, to: now }),
        }
    }

    /// The receiver reports the packets that have arrived. `sequence`: the full number of the part's stretch.
    ///
    /// # Errors
    /// If the report names a packet that was never sent.
    pub(super) fn handle_report(&mut self, now: Time, heard: &Heard, sequence: u64) -> Result<Settled, Invalid> {
        let packet = heard.packet;
        let after = self.runs.partition_point(|run| (run.sequence, run.packet) <= (sequence, packet));
        let Some(&run) = after.checked_sub(1).map(|at| &self.runs[at]).filter(|run| run.sequence == sequence) else {
            // An old report; a newer one came before it.
            return Ok(Settled::default());
        };
        let steps = packet - run.packet;
        if steps > run.more {
            return Err(Invalid::BeyondSent);
        }
        let count = run.count + u64::from(steps);
        let left = run.from + Span(run.to.since(run.from).0 / u64::from(run.more.max(1)) * u64::from(steps));
        self.runs.drain(..after - 1);
        self.heard = now;
        // Duplicates made by the network must not raise the count above the number of packets sent.
        let received = nearest(heard.received, self.arrived, 1 << 32).min(self.sent);
        let later = u64::from(heard.received.wrapping_sub(heard.before)).min(received);
        let arrived = received.saturating_sub(self.arrived);
        self.arrived = self.arrived.max(received);
        let missing = count.saturating_sub(received - later);
        let lost = missing.saturating_sub(self.lost);
        self.lost = self.lost.max(missing);
        self.resolved = self.resolved.max((count + later).min(self.sent));
        let held = Span::from_us(u64::from(heard.held));
        let rtt = Span(now.since(left).0.saturating_sub(held.0)).max(Span::from_us(1));
        let rtt = Some(rtt).filter(|_| heard.held < u16::MAX);
        let bytes = |packets: u64| Bytes(packets * self.packet.0);
        Ok(Settled { bytes: bytes(arrived), packets: arrived as u32, rtt, lost: Some(bytes(lost)) })
    }

    /// When all packets in flight count as lost, unless a report comes before.
    pub(super) fn deadline(&self, timeout: Span) -> Time {
        if self.sent == self.resolved { Time::NEVER } else { self.heard + timeout }
    }

    /// No report came before the deadline: no packet counts as in flight any more.
    pub(super) fn give_up(&mut self) {
        self.resolved = self.sent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sent_packets_have_arrived_or_are_lost_or_are_under_way(
            losses in prop::collection::vec(0u8..10, 40..400),
            every in 1usize..30,
            again in 2usize..50,
        ) {
            let mut flight = Flight::new(Bytes(1000), Span::from_ms(10));
            let (mut received, mut before, mut newest) = (0u32, 0, None);
            let (mut arrived, mut lost) = (0, 0);
            let mut fresh = 0u32;
            for (at, fate) in losses.iter().enumerate() {
                let now = Time(at as u64 * 1_000_000_000);
                let is_again = at % again == again - 1;
                // Stretches of 100 packets, the first one of the count 7.
                let (sequence, packet) = (7 + u64::from(fresh / 100), fresh);
                flight.leave(now, sequence, packet, is_again);
                fresh += u32::from(!is_again);
                if *fate > 0 {
                    received += 1;
                    if !is_again {
                        (newest, before) = (Some((sequence, packet, now)), received);
                    }
                }
                if at % every == every - 1 && let Some((sequence, packet, left)) = newest {
                    let heard = Heard { sequence: sequence as u32, packet, before, received, held: 0 };
                    let now = now + Span::from_ms(20);
                    let settled = flight.handle_report(now, &heard, sequence).expect("it is true");
                    prop_assert_eq!(settled.rtt, Some(now.since(left)));
                    arrived += settled.bytes.0 / 1000;
                    lost += settled.lost.expect("it counts").0 / 1000;
                    prop_assert_eq!(arrived, u64::from(received));
                    // Among packets sent again after the newest one, some may be lost without a report.
                    prop_assert!(arrived + lost + flight.bytes() / 1000 <= at as u64 + 1);
                    prop_assert_eq!(flight.bytes() / 1000, at as u64 + 1 - flight.resolved);
                    prop_assert_eq!(flight.resolved, arrived + lost);
                }
            }
            flight.give_up();
            prop_assert_eq!(flight.bytes(), 0);
        }
    }

    #[test]
    fn a_report_of_what_never_left_changes_nothing() {
        let mut flight = Flight::new(Bytes(1000), Span::from_ms(10));
        flight.leave(Time(1), 3, 0, false);
        for (sequence, packet) in [(3, 1), (3, 40), (4, 0), (2, 0), (3, u32::MAX)] {
            let heard = Heard { sequence, packet, before: 9, received: u32::MAX, held: 0 };
            let told = flight.handle_report(Time(5), &heard, u64::from(sequence));
            assert!(told.is_err() || told == Ok(Settled::default()), "{sequence} {packet}: {told:?}");
            assert_eq!(flight.bytes(), 1000);
        }
    }
}
