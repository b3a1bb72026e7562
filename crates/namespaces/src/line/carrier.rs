//! One direction of a long link: computes the fate of each frame.

use super::Line;
use strandway_fabric::loss::LossProcess;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{Bytes, Rate, Time};

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It leaves at the other end at this time.
    Due(Time),
    /// It leaves at the other end at this time, but other frames may overtake it.
    Late(Time),
    /// It is lost by the link's random losses.
    Lost,
    /// It does not fit the queue at the link's beginning.
    Dropped,
}

/// Bytes that an Ethernet frame takes on a wire in addition to those that sockets see: checksum, preamble and gap.
const WIRE_EXTRA: u64 = 24;

/// The state of one direction.
#[derive(Debug)]
pub(super) struct Carrier {
    line: Line,
    loss: LossProcess,
    random: Random,
    /// When the last frame will have left the queue.
    busy_until: Time,
}

impl Carrier {
    /// The direction `way` (0 or 1) of a line; `number` gives each line random numbers of its own.
    pub(super) fn new(line: &Line, number: u64, way: u64) -> Carrier {
        Carrier {
            loss: line.loss[way as usize].process(),
            random: Random::new(line.seed, StreamKind::Port, number * 2 + way),
            busy_until: Time::ZERO,
            line: line.clone(),
        }
    }

    /// A frame of `bytes` has come in at `now`. Frames come in order of time.
    pub(super) fn take(&mut self, now: Time, bytes: usize) -> Fate {
        let mut leaves = now;
        if let Some(rate) = self.line.rate.map(Rate) {
            let start = now.max(self.busy_until);
            let waits = rate.bytes_in(start.since(now));
            if start > now && waits.0 + bytes as u64 > self.line.queue {
                return Fate::Dropped;
            }
            leaves = start + rate.time_for(Bytes(bytes as u64 + WIRE_EXTRA));
            self.busy_until = leaves;
        }
        if self.loss.loses(leaves, &mut self.random) {
            return Fate::Lost;
        }
        let due = leaves + self.line.latency();
        match self.line.reorder {
            Some(reorder) if self.random.chance(f64::from(reorder.ppm) / 1e6) => {
                Fate::Late(due + strandway_proto::Span(reorder.by_ns * 1000))
            }
            _ => Fate::Due(due),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Losses, Reorder};
    use super::*;
    use strandway_fabric::loss::Burst;
    use strandway_proto::Span;

    fn line() -> Line {
        Line {
            name: "long".into(),
            latency_ns: 5_000_000,
            rate: Some(1_000_000_000),
            queue: 30_000,
            loss: [Losses::new(0.0, Burst::NONE); 2],
            reorder: None,
            seed: 1,
        }
    }

    #[test]
    fn frames_leave_at_the_links_rate_and_arrive_after_its_latency() {
        let mut carrier = Carrier::new(&line(), 0, 0);
        // 1,226 B and 24 B more at 1 Gb/s take 10 us.
        let second = Time(1_000_000);
        assert_eq!(carrier.take(Time::ZERO, 1226), Fate::Due(Time(5_010_000_000)));
        assert_eq!(carrier.take(second, 1226), Fate::Due(Time(5_020_000_000)));
        assert_eq!(carrier.take(Time(30_000_000), 1226), Fate::Due(Time(5_040_000_000)));
        let mut free = Carrier::new(&Line { rate: None, ..line() }, 0, 0);
        assert_eq!(free.take(second, 1226), Fate::Due(second + Span::from_ms(5)));
    }

    #[test]
    fn packets_beyond_the_queue_are_dropped_and_take_no_time() {
        let mut carrier = Carrier::new(&line(), 0, 0);
        let fates: Vec<Fate> = (0..40).map(|_| carrier.take(Time::ZERO, 1226)).collect();
        let kept = fates.iter().filter(|f| matches!(f, Fate::Due(_))).count();
        // With n frames of 1,250 B in the queue there is room as long as n * 1,250 + 1,226 fit.
        assert_eq!(kept, (30_000 - 1226) / 1250 + 1);
        assert_eq!(fates.iter().filter(|f| **f == Fate::Dropped).count(), 40 - kept);
        assert!(matches!(carrier.take(Time(10_000_000), 1226), Fate::Due(_)), "one has left meanwhile");
    }

    #[test]
    fn losses_are_those_of_the_model_in_each_direction() {
        let loss = [0.02, 0.0].map(|share| Losses::new(share, Burst::NONE));
        let line = Line { loss, rate: None, ..line() };
        for (way, expected) in [(0, 2000.0), (1, 0.0)] {
            let mut carrier = Carrier::new(&line, 7, way);
            let lost = (0..100_000).filter(|n| carrier.take(Time(n * 1_000_000), 1226) == Fate::Lost).count();
            assert!((lost as f64 - expected).abs() < 180.0, "{lost} in direction {way}");
        }
        let again = |seed| {
            let mut carrier = Carrier::new(&Line { seed, ..line.clone() }, 7, 0);
            (0..5000).filter(|n| carrier.take(Time(n * 1_000_000), 1226) == Fate::Lost).collect::<Vec<_>>()
        };
        assert_eq!(again(1), again(1));
        assert_ne!(again(1), again(2));
    }

    #[test]
    fn a_share_of_frames_is_late() {
        let reorder = Some(Reorder { ppm: 100_000, by_ns: 200_000 });
        let mut carrier = Carrier::new(&Line { reorder, rate: None, ..line() }, 0, 0);
        let late = (0..10_000).filter(|_| carrier.take(Time::ZERO, 100) == Fate::Late(Time(5_200_000_000))).count();
        assert!((880..1120).contains(&late), "{late}");
    }
}
