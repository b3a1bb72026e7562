//! How long the two ends of a repair scheme wait.

use super::Scheme;
use crate::units::Span;

/// Without any sign of the peer for so many timeouts, and no less than [`SILENCE_MIN`], a sender gives up. Ours.
pub(super) const SILENT_TIMEOUTS: u64 = 10;
pub(super) const SILENCE_MIN: Span = Span::from_ms(5_000);
/// The last acknowledgement goes out twice, this far apart. Ours.
pub(super) const SECOND_COPY: Span = Span::from_ms(1);

/// The quantities that a scheme's times follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// The round trip: at first what the world says, then what acknowledgements measure.
    pub(super) rtt: Span,
    /// The time of one chunk at line rate.
    pub(super) chunk: Span,
    alpha: f64,
    beta: f64,
    /// The peer may answer this late.
    pub(super) late: Span,
    /// A window may keep the sender back, for a round trip at a time.
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

    /// Acknowledgements are this far apart: the time of 64 chunks or a sixteenth of a round trip if that is more, but never more
    /// than a fourth of a round trip, unless hosts are that late. Ours.
    pub(super) fn ack_interval(&self) -> Span {
        (self.chunk * 64).max(Span(self.rtt.0 / 16)).min(Span(self.rtt.0 / 4)).max(Span(self.late.0 / 16)).max(Span(1))
    }

    /// NACKs are no closer than this. Ours.
    pub(super) fn nack_interval(&self) -> Span {
        Span((self.rtt.0 / 16).max(self.late.0 / 16).max(1))
    }

    /// The receiver reports how much has come so often: a sixteenth of a round trip, or the time of 16 packets. Ours.
    pub(super) fn report_interval(&self, packet: Span) -> Span {
        self.nack_interval().max(packet * 16)
    }

    /// The retransmission timeout: (1 + alpha) round trips, but no less than the acknowledgement takes. SDR-RDMA, section 4.1.
    pub(crate) fn rto(&self) -> Span {
        (self.rtt + times(self.rtt, self.alpha)).max(self.rtt + self.ack_interval() * 2) + self.late
    }

    /// The receiver of coded messages waits this much longer than the message takes: beta round trips. SDR-RDMA, section 5.
    pub(super) fn grace(&self) -> Span {
        times(self.rtt, self.beta) + self.late
    }

    /// From now on a window may keep the sender back.
    pub(super) fn hold_back(&mut self) {
        self.is_held_back = true;
    }

    /// A coded message that takes longer than expected is waited for as long as its packets come no further apart than this. Ours.
    pub(super) fn quiet(&self) -> Span {
        let held_back = if self.is_held_back { self.rtt * 2 } else { Span::ZERO };
        Span(self.grace().0 / 2).max(self.chunk * 8).max(held_back)
    }

    /// The sender of a coded message that hears nothing asks so long after the last packet left. Ours.
    pub(super) fn ask_after(&self) -> Span {
        self.rtt * 2 + self.grace()
    }

    /// Without progress for so long, the rest of a message is lost (with NACKs). Ours.
    pub(super) fn tail(&self) -> Span {
        let share = if self.is_held_back { 1 } else { 4 };
        Span(self.rtt.0 / share) + self.late
    }

    /// A measured round trip.
    pub(super) fn measured(&mut self, sample: Span) {
        self.rtt = Span(self.rtt.0 - self.rtt.0 / 8 + sample.0 / 8).max(Span::from_us(1));
    }
}
