//! Priorities of ESA's fragments: one byte, computed from a job's remaining time, its share of communication, and the
//! layer's place.
//!
//! The paper's formula is not public; this one is ours (ESA sheet, section 4.2): `raw = (T_ref / T) * (Comm / Comp) *
//! (L / l)`, compressed to a byte by `128 + steps * log2(raw)`. All workers of a job compute the same priority, because
//! it depends only on the job's plan.

use strandway_proto::rng::mix64;
use strandway_proto::units::Span;

/// The factors that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// All factors; `T` is the remaining communication time.
    #[default]
    Full,
    /// Only the layer.
    IntraOnly,
    /// Only the job.
    InterOnly,
    /// None: all fragments have the same priority.
    Constant,
    /// A random byte for each layer of each iteration.
    Random,
    /// All factors, but `T` is the communication time so far: for jobs of unknown length.
    Las,
}

impl Policy {
    /// The names that scenarios use.
    pub const NAMES: [&str; 6] = ["full", "intra_only", "inter_only", "constant", "random", "las"];

    /// The policy with this name.
    pub fn named(name: &str) -> Option<Policy> {
        let all = [Policy::Full, Policy::IntraOnly, Policy::InterOnly, Policy::Constant, Policy::Random, Policy::Las];
        Policy::NAMES.iter().position(|known| *known == name).map(|at| all[at])
    }
}

/// How a job's fragments get their priorities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priorities {
    /// The factors that count.
    pub policy: Policy,
    /// Steps of the byte per factor of two. Ours: 4; with 16 the byte saturates.
    pub steps: f64,
    /// The time that stands for a factor of one. Ours: 1 s.
    pub reference: Span,
    /// The number of upper bits that count; the lower bits are set to zero.
    pub bits: u32,
    /// The job's number and the run's seed: for [`Policy::Random`].
    pub salt: u64,
}

impl Default for Priorities {
    fn default() -> Priorities {
        Priorities { policy: Policy::Full, steps: 4.0, reference: Span::from_ms(1000), bits: 8, salt: 0 }
    }
}

/// The values on which a priority depends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The iteration, from 0.
    pub iteration: u32,
    /// The number of iterations of the job.
    pub iterations: u32,
    /// The layer, from 0 at the input side.
    pub layer: u32,
    /// The number of layers of the job.
    pub layers: u32,
    /// Time to send one iteration's gradient at line rate.
    pub communication: Span,
    /// Time to compute one iteration; zero for a collective alone, whose priority then follows from the time left.
    pub computation: Span,
}

/// The binary logarithm of a positive number, by arithmetic that gives the same bits on every machine.
fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    let (mut fraction, mut weight) = (0.0, 0.5);
    for _ in 0..32 {
        mantissa *= mantissa;
        if mantissa >= 2.0 {
            mantissa /= 2.0;
            fraction += weight;
        }
        weight /= 2.0;
    }
    exponent as f64 + fraction
}

impl Priorities {
    /// The priority of a layer's fragments in an iteration: 1 to 255.
    pub fn of(&self, moment: &Moment) -> u8 {
        let Moment { iteration, iterations, layer, layers, communication, computation } = *moment;
        let communicates = communication.0.max(1) as f64;
        let left = f64::from(iterations.saturating_sub(iteration).max(1)) * communicates;
        let so_far = f64::from(iteration + 1) * communicates;
        let length = |time: f64| self.reference.0 as f64 / time;
        // A collective that nothing is computed beside has no share of communication: what is left decides.
        let between = match computation {
            Span::ZERO => 1.0,
            computation => communicates / computation.0 as f64,
        };
        let within = f64::from(layers) / f64::from(layer + 1);
        let raw = match self.policy {
            Policy::Full => length(left) * between * within,
            Policy::Las => length(so_far) * between * within,
            Policy::IntraOnly => within,
            Policy::InterOnly => length(left) * between,
            Policy::Constant => 1.0,
            Policy::Random => {
                let drawn = mix64(self.salt ^ mix64(u64::from(iteration) << 32 | u64::from(layer)));
                return self.rounded((drawn >> 56) as u8);
            }
        };
        // Round half away from zero.
        let scaled = self.steps * log2(raw);
        let whole = if scaled < 0.0 { (scaled - 0.5) as i64 } else { (scaled + 0.5) as i64 };
        self.rounded((128 + whole).clamp(1, 255) as u8)
    }

    fn rounded(&self, byte: u8) -> u8 {
        let kept = u8::MAX << (8 - self.bits.clamp(1, 8));
        (byte & kept).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(iteration: u32, layer: u32) -> Moment {
        let (communication, computation) = (Span::from_us(1700), Span::from_us(850));
        Moment { iteration, iterations: 30, layer, layers: 10, communication, computation }
    }

    #[test]
    fn the_logarithm_is_one() {
        for x in [1.0, 2.0, 0.5, 3.0, 1e-9, 7e12, 0.999] {
            assert!((log2(x) - f64::log2(x)).abs() < 1e-8, "{x}");
        }
    }

    #[test]
    fn layers_that_are_needed_first_and_jobs_that_end_soon_come_first() {
        let full = Priorities::default();
        // ESA sheet, section 4.2: 149 at the back layer of the first iteration; the front layer is log2(10) * 4 steps
        // above.
        assert_eq!((full.of(&moment(0, 9)), full.of(&moment(0, 0))), (149, 162));
        assert!((29..31).map(|i| full.of(&moment(i, 0))).all(|p| p > 162 && p < 255));
        let of = |policy| Priorities { policy, ..full };
        assert_eq!(of(Policy::Constant).of(&moment(3, 4)), 128);
        assert_eq!(of(Policy::IntraOnly).of(&moment(3, 9)), 128);
        assert!(of(Policy::Las).of(&moment(0, 0)) > of(Policy::Las).of(&moment(20, 0)));
        assert_eq!(of(Policy::InterOnly).of(&moment(5, 0)), of(Policy::InterOnly).of(&moment(5, 9)));
        let coarse = Priorities { bits: 1, ..full };
        assert_eq!(
            (coarse.of(&moment(0, 0)), Priorities { policy: Policy::IntraOnly, ..coarse }.of(&moment(0, 9))),
            (128, 128)
        );
    }

    #[test]
    fn collectives_that_nothing_is_computed_beside_differ_by_the_time_left() {
        let alone = |us: u64| Moment {
            iterations: 1,
            layers: 1,
            communication: Span::from_us(us),
            computation: Span::ZERO,
            ..moment(0, 0)
        };
        // Four steps for each factor of two, around a second.
        let of = |us| Priorities::default().of(&alone(us));
        assert_eq!((of(1_000_000), of(500_000), of(1_000), of(100)), (128, 132, 168, 181));
    }

    #[test]
    fn a_long_job_does_not_reach_the_floor_as_it_does_with_sixteen_steps() {
        let slow = Moment {
            iterations: 100_000,
            communication: Span::from_ms(107),
            computation: Span::from_ms(230),
            ..moment(0, 9)
        };
        assert_eq!(Priorities { steps: 16.0, ..Priorities::default() }.of(&slow), 1);
        let byte = Priorities::default().of(&slow);
        assert!(byte > 60 && byte < 84, "{byte}");
    }
}
