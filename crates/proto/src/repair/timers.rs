//! The timers of the two ends of a repair scheme.

use super::Scheme;
use crate::units::Span;

/// A sender gives up after this many timeouts without a control message of the peer, but not before [`SILENCE_MIN`].
/// Ours.
pub(super) const SILENT_TIMEOUTS: u64 = 10;
pub(super) const SILENCE_MIN: Span = Span::from_ms(5_000);
/// The last acknowledgement is sent a second time after this long. Ours.
pub(super) const SECOND_COPY: Span = Span::from_ms(1);

/// The quantities from which a scheme's times follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The round trip: the environment's base RTT at first, later the measured average.
    pub(super) rtt: Span,
    /// The time of one chunk at line rate.
    pub(super) chunk: Span,
    alpha: f64,
    beta: f64,
    /// The peer may answer this late.
    pub(super) late: Span,
    /// A congestion window may hold the sender back, for a round trip at a time.
    is_held_back: bool,
}

fn times(span: Span, factor: f64) -> Span {
    Span((span.0 as f64 * factor) as u64)
}

impl Timing {
    pub(super) fn new(rtt: Span, chunk: Span, scheme: &Scheme) -> Timing {
        let Scheme { alpha, beta, late, .. } = *scheme;
        Timing { rtt: rtt.max(Span::from_us(1)), chunk: chunk.max(Span(1)), alpha, beta, late, is_held_back: false }
    }

    /// The time between two acknowledgements: the time of 64 chunks, but at least a sixteenth and at most a fourth of a
    /// round trip; and at least a sixteenth of `late`. Ours.
    pub(super) fn ack_interval(&self) -> Span {
        (self.chunk * 64).max(Span(self.rtt.0 / 16)).min(Span(self.rtt.0 / 4)).max(Span(self.late.0 / 16)).max(Span(1))
    }

    /// The shortest time between two NACKs. Ours.
    pub(super) fn nack_interval(&self) -> Span {
        Span((self.rtt.0 / 16).max(self.late.0 / 16).max(1))
    }

    /// The time between two reports of arrived packets: a sixteenth of a round trip, or the time of 16 packets if that
    /// is longer. Ours.
    pub(super) fn report_interval(&self, packet: Span) -> Span {
        self.nack_interval().max(packet * 16)
    }

    /// The retransmission timeout: (1 + alpha) round trips, but at least as long as an acknowledgement may take.
    /// SDR-RDMA, section 4.1.
    pub(crate) fn rto(&self) -> Span {
        (self.rtt + times(self.rtt, self.alpha)).max(self.rtt + self.ack_interval() * 2) + self.late
    }

    /// The receiver of a coded message waits this much longer than the message's sending time: beta round trips.
    /// SDR-RDMA, section 5.
    pub(super) fn grace(&self) -> Span {
        times(self.rtt, self.beta) + self.late
    }

    /// Notes that a congestion window may hold the sender back.
    pub(super) fn hold_back(&mut self) {
        self.is_held_back = true;
    }

    /// If a coded message takes longer than expected, the receiver goes on waiting while the time between its packets
    /// is at most this. Ours.
    pub(super) fn quiet(&self) -> Span {
        let held_back = if self.is_held_back { self.rtt * 2 } else { Span::ZERO };
        Span(self.grace().0 / 2).max(self.chunk * 8).max(held_back)
    }

    /// If no control message comes, the sender of a coded message asks this long after its last packet. Ours.
    pub(super) fn ask_after(&self) -> Span {
        self.rtt * 2 + self.grace()
    }

    /// With NACKs: if no packet arrives for this long, the rest of a message counts as lost. Ours.
    pub(super) fn tail(&self) -> Span {
        let share = if self.is_held_back { 1 } else { 4 };
        Span(self.rtt.0 / share) + self.late
    }

    /// Adds a measured round trip to the average.
    pub(super) fn measured(&mut self, sample: Span) {
        self.rtt = Span(self.rtt.0 - self.rtt.0 / 8 + sample.0 / 8).max(Span::from_us(1));
    }
}
