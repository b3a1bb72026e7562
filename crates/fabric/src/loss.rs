//! Random loss on a link: independent for each packet, or in bursts that last for a number of packets or for a time.
//!
//! The simulator's links and the delay line between namespaces use the same model.

use strandway_proto::rng::Random;
use strandway_proto::units::{Span, Time};

/// The length of bursts of losses. (This is the model of Gilbert and Elliott: a good state without losses, and a bad
/// state in which every packet is lost.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Burst {
    /// The mean number of packets lost in a row; 1 for independent losses.
    Packets(f64),
    /// The mean time in the bad state; it passes with or without packets. So control packets that are far apart do not
    /// all fall into the same burst, and a burst costs more packets on a faster link.
    Time(Span),
}

impl Burst {
    /// Independent losses.
    pub const NONE: Burst = Burst::Packets(1.0);
}

/// Decides for each packet whether a link loses it. A copy continues from the same state.
#[derive(Clone, Debug)]
pub struct LossProcess {
    kind: Kind,
    /// True if the last packet was lost.
    lost: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Probability that a packet is lost: after a packet that was not lost, and after a lost one.
    Packets([f64; 2]),
    /// The share of time in the bad state; the time constant (ps) after which the correlation with the last state has
    /// fallen to 1/e; and the time of the last packet.
    Time { share: f64, memory: f64, last: Option<Time> },
}

impl LossProcess {
    /// A link that loses packets with `probability`, in [0, 1], in bursts of this length.
    pub fn new(probability: f64, burst: Burst) -> LossProcess {
        let kind = match burst {
            Burst::Packets(length) if length <= 1.0 => Kind::Packets([probability; 2]),
            Burst::Packets(_) if probability >= 1.0 => Kind::Packets([1.0; 2]),
            Burst::Packets(length) => {
                Kind::Packets([(probability / (length * (1.0 - probability))).min(1.0), 1.0 - 1.0 / length])
            }
            // Bad for `length` on average, good for length * (1 - p) / p: the sum of both rates is 1 / (length * (1 -
            // p)).
            Burst::Time(length) => {
                Kind::Time { share: probability, memory: length.0 as f64 * (1.0 - probability), last: None }
            }
        };
        LossProcess { kind, lost: false }
    }

    /// True if the packet that leaves at `now` is lost. Call it in the order in which packets leave.
    #[inline]
    pub fn loses(&mut self, now: Time, random: &mut Random) -> bool {
        let probability = match &mut self.kind {
            Kind::Packets(after) => after[usize::from(self.lost)],
            Kind::Time { share, memory, last } => {
                let before = last.replace(now);
                let kept = before.map_or(0.0, |before| decay(now.since(before).0 as f64 / *memory));
                *share + (f64::from(u8::from(self.lost)) - *share) * kept
            }
        };
        self.lost = probability > 0.0 && random.chance(probability);
        self.lost
    }
}

/// e to the power of `-x`, for `x` of zero or more. It has 12 correct digits for `x` up to 40; repeated squaring costs
/// some digits. The library's function differs between machines in the last bit; this one does not.
fn decay(x: f64) -> f64 {
    // Zero divided by zero is not a number: treat the two packets as far apart.
    if x.is_nan() || x > 700.0 {
        return 0.0;
    }
    let (mut small, mut squarings) = (x, 0);
    while small > 0.03125 {
        small *= 0.5;
        squarings += 1;
    }
    // Taylor series up to the seventh power; the eighth term is below 1e-16.
    let mut power = (1..=7).rev().fold(1.0, |sum, n| 1.0 - small / f64::from(n) * sum);
    for _ in 0..squarings {
        power *= power;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::rng::StreamKind;

    /// The share of packets lost, and the mean time from the first loss of a burst to the first packet that passes.
    fn measured(probability: f64, burst: Burst, every: Span, count: u64) -> (f64, f64) {
        let mut random = Random::new(5, StreamKind::Port, 0);
        let mut process = LossProcess::new(probability, burst);
        let (mut lost, mut runs, mut before) = (0u64, 0u64, false);
        for n in 0..count {
            let now = process.loses(Time(n * every.0), &mut random);
            lost += u64::from(now);
            runs += u64::from(now && !before);
            before = now;
        }
        (lost as f64 / count as f64, lost as f64 * every.0 as f64 / runs.max(1) as f64)
    }

    #[test]
    fn the_power_of_e_is_right_to_twelve_digits() {
        for n in 0..4000 {
            let x = f64::from(n) * 0.01;
            let exact = (-x).exp();
            assert!((decay(x) - exact).abs() <= 1e-12 * exact, "{x}: {} instead of {exact}", decay(x));
        }
        assert_eq!((decay(0.0), decay(1e9), decay(f64::INFINITY), decay(f64::NAN)), (1.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn independent_losses_have_their_mean() {
        // Four standard deviations of 1e6 draws at 1 %: 4e-4.
        let (share, _) = measured(0.01, Burst::NONE, Span::from_us(1), 1_000_000);
        assert!((share - 0.01).abs() < 4e-4, "{share}");
        assert_eq!(measured(0.0, Burst::NONE, Span::from_us(1), 1000).0, 0.0);
        assert_eq!(measured(1.0, Burst::Packets(5.0), Span::from_us(1), 1000).0, 1.0);
    }

    #[test]
    fn bursts_in_time_have_their_mean_and_length_at_any_rate_of_packets() {
        let burst = Burst::Time(Span::from_us(100));
        // Packets every microsecond for 10 s: 10,000 bursts expected, so 4 % are four standard deviations of an
        // exponential length.
        let (share, length) = measured(0.1, burst, Span::from_us(1), 10_000_000);
        assert!((share - 0.1).abs() < 0.005, "{share}");
        assert!((length / 1e6 - 100.0).abs() < 5.0, "{length} ps");
        // Packets one second apart are independent: the same share, in bursts of 1 / (1 - p).
        let (share, length) = measured(0.1, burst, Span::from_ms(1000), 1_000_000);
        assert!((share - 0.1).abs() < 0.0012, "{share}");
        assert!((length / 1e12 - 1.0 / 0.9).abs() < 0.02, "{length} ps");
    }

    #[test]
    fn bursts_of_packets_have_their_mean_and_length() {
        let (share, length) = measured(0.02, Burst::Packets(8.0), Span(1), 4_000_000);
        assert!((share - 0.02).abs() < 0.001, "{share}");
        assert!((length - 8.0).abs() < 0.4, "{length}");
    }
}
