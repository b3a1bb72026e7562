//! Measured times: of results at workers, and of answers at servers.

use strandway_proto::units::Span;

/// The least of the last samples: the time of a path without waiting. Ours.
///
/// A worker's result waits for the slowest worker, so an average of its times says how long others take. The least one
/// of a window of results is close to the time of the path with its queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeastTime {
    before: Span,
    now: Span,
    samples: u32,
    window: u32,
}

impl LeastTime {
    /// Before `window` samples have come, the least time is at most `first`.
    pub(crate) fn new(first: Span, window: u32) -> LeastTime {
        LeastTime { before: first, now: Span(u64::MAX), samples: 0, window: window.max(1) }
    }

    pub(crate) fn add(&mut self, sample: Span) {
        self.now = self.now.min(sample);
        self.samples += 1;
        if self.samples == self.window {
            *self = LeastTime::new(self.now, self.window);
        }
    }

    /// The least of the last samples: at least one window of them, and less than two.
    pub(crate) fn get(&self) -> Span {
        self.before.min(self.now)
    }
}

/// How long an answer may take: the smoothed time and four deviations (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerTime(Option<(Span, Span)>);

impl AnswerTime {
    pub(crate) fn add(&mut self, sample: Span) {
        self.0 = Some(match self.0 {
            None => (sample, Span(sample.0 / 2)),
            Some((smoothed, deviation)) => {
                let off = smoothed.0.abs_diff(sample.0);
                (Span((smoothed.0 * 7 + sample.0) / 8), Span((deviation.0 * 3 + off) / 4))
            }
        });
    }

    /// `None` before the first answer.
    pub(crate) fn get(&self) -> Option<Span> {
        self.0.map(|(smoothed, deviation)| smoothed + deviation * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_does_not_raise_the_least_time() {
        let us = Span::from_us;
        let mut least = LeastTime::new(us(10), 4);
        assert_eq!(least.get(), us(10));
        [300, 900, 30, 800].into_iter().for_each(|sample| least.add(us(sample)));
        assert_eq!(least.get(), us(30), "of a whole window");
        [700, 600, 500].into_iter().for_each(|sample| least.add(us(sample)));
        assert_eq!(least.get(), us(30));
        least.add(us(400));
        assert_eq!(least.get(), us(400), "a path that became slow is known after a window");
        least.add(us(20));
        assert_eq!(least.get(), us(20));
    }

    #[test]
    fn answers_are_waited_for_as_long_as_they_take() {
        let mut answers = AnswerTime::default();
        assert_eq!(answers.get(), None);
        answers.add(Span::from_us(100));
        assert_eq!(answers.get(), Some(Span::from_us(300)));
        (0..50).for_each(|_| answers.add(Span::from_us(100)));
        assert!(answers.get().is_some_and(|wait| wait < Span::from_us(101)));
        answers.add(Span::from_us(900));
        assert!(answers.get().is_some_and(|wait| wait > Span::from_us(900)));
    }
}
