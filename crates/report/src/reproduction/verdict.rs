//! Verdicts: our number and its interval beside a bound.

use super::Bound;
use super::interval::interval;
use serde::Serialize;

/// The verdict on a row.
///
/// A row's number is a mean over seeds. Its confidence interval of 95 % follows from the values of the single seeds by
/// Student's t distribution. The row is met if the whole interval is within the bound, missed if the whole interval is
/// outside of it, and undecided if the interval crosses an end of the bound. With one seed the number itself decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole confidence interval is within the bound.
    Met,
    /// The whole confidence interval is outside the bound, or there is no result.
    Missed,
    /// The confidence interval crosses an end of the bound: more seeds would decide.
    Undecided,
    /// No verdict.
    Unknown,
}

impl Verdict {
    /// The verdict on a mean with the numbers of single seeds, by the mean's confidence interval.
    pub fn of_seeds(
        bound: Bound,
        published: Option<f64>,
        ours: Option<f64>,
        seeds: &[Option<f64>],
        tolerance: f64,
    ) -> Verdict {
        let alone = Verdict::of(bound, published, ours, tolerance);
        let Some((published, [low, high])) = published.zip(ours.and_then(|ours| interval(ours, seeds))) else {
            return alone;
        };
        let [least, most] = ends(bound, published, tolerance);
        match alone {
            Verdict::Unknown => Verdict::Unknown,
            _ if least <= low && high <= most => Verdict::Met,
            _ if high < least || most < low => Verdict::Missed,
            _ => Verdict::Undecided,
        }
    }

    /// The verdict on one number. The tolerance is a share of the published value.
    pub fn of(bound: Bound, published: Option<f64>, ours: Option<f64>, tolerance: f64) -> Verdict {
        let Some(published) = published.filter(|_| bound != Bound::None) else { return Verdict::Unknown };
        let Some(ours) = ours else { return Verdict::Missed };
        let room = tolerance * published.abs();
        let met = match bound {
            // Not by the ends: 95 is within 5 % of 100, whatever the last bit of the ends is.
            Bound::Near => (ours - published).abs() <= room,
            Bound::AtLeast => ours >= published - room,
            Bound::AtMost => ours <= published + room,
            Bound::None => false,
        };
        if met { Verdict::Met } else { Verdict::Missed }
    }

    /// The verdict in a word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Undecided => "undecided",
            Verdict::Unknown => "unknown",
        }
    }
}

/// The smallest and the largest number within a bound.
fn ends(bound: Bound, published: f64, tolerance: f64) -> [f64; 2] {
    let room = tolerance * published.abs();
    let least = if bound == Bound::AtMost { f64::NEG_INFINITY } else { published - room };
    let most = if bound == Bound::AtLeast { f64::INFINITY } else { published + room };
    [least, most]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bound: Bound, published: f64, tolerance: f64, seeds: &[f64]) -> Verdict {
        let mean = seeds.iter().sum::<f64>() / seeds.len() as f64;
        let seeds: Vec<Option<f64>> = seeds.iter().map(|seed| Some(*seed)).collect();
        Verdict::of_seeds(bound, Some(published), Some(mean), &seeds, tolerance)
    }

    #[test]
    fn the_mean_and_its_interval_decide_and_not_the_single_seeds() {
        let at_least = |seeds: &[f64]| judged(Bound::AtLeast, 6.0, 0.0, seeds);
        // Two seeds of ten are below 6, but the mean is 6.5 within 0.36.
        assert_eq!(at_least(&[5.9, 7.1, 6.5, 5.8, 6.9, 6.3, 6.7, 6.5, 7.2, 6.1]), Verdict::Met);
        assert_eq!(at_least(&[6.1, 6.9]), Verdict::Undecided, "two seeds: 6.5 within 5.1");
        assert_eq!(at_least(&[5.1, 5.6, 5.4, 5.5]), Verdict::Missed);
        assert_eq!(at_least(&[5.7, 6.5, 5.3, 6.1]), Verdict::Undecided);
        assert_eq!(at_least(&[6.0]), Verdict::Met, "one seed decides alone");
        assert_eq!(at_least(&[5.9]), Verdict::Missed);
        assert_eq!(Verdict::of_seeds(Bound::None, None, Some(1.0), &[Some(2.0), Some(3.0)], 0.0), Verdict::Unknown);
        assert_eq!(Verdict::of_seeds(Bound::AtMost, Some(1.0), None, &[Some(0.5), None], 0.0), Verdict::Missed);
    }

    #[test]
    fn an_interval_must_lie_within_the_tolerance() {
        let near = |seeds: &[f64]| judged(Bound::Near, 100.0, 0.05, seeds);
        assert_eq!(near(&[97.0, 99.0, 101.0, 103.0]), Verdict::Met);
        assert_eq!(near(&[95.0, 97.0, 99.0]), Verdict::Undecided);
        assert_eq!(near(&[110.0, 111.0, 112.0]), Verdict::Missed);
        assert_eq!(near(&[60.0, 140.0, 100.0]), Verdict::Undecided, "wider than the tolerance on both sides");
        assert_eq!(judged(Bound::Near, 0.0, 0.0, &[0.0, 0.0, 0.0]), Verdict::Met);
        assert_eq!(judged(Bound::Near, 0.0, 0.0, &[0.0, 0.0, 1.0]), Verdict::Undecided);
    }

    #[test]
    fn more_seeds_of_the_same_spread_never_turn_a_verdict_round() {
        for bound in [Bound::Near, Bound::AtLeast, Bound::AtMost] {
            for mean in [88, 94, 95, 96, 100, 104, 105, 106, 112].map(f64::from) {
                for deviation in [0.0, 0.5, 2.0, 8.0] {
                    let mut before = Verdict::Undecided;
                    for pairs in 1..40 {
                        // Pairs around the mean whose sample has this standard deviation.
                        let count = 2.0 * f64::from(pairs);
                        let step = deviation * ((count - 1.0) / count).sqrt();
                        let seeds: Vec<f64> = (0..pairs).flat_map(|_| [mean - step, mean + step]).collect();
                        let seeds: Vec<Option<f64>> = seeds.into_iter().map(Some).collect();
                        let now = Verdict::of_seeds(bound, Some(100.0), Some(mean), &seeds, 0.05);
                        let kept = before == Verdict::Undecided || now == before;
                        assert!(kept, "{bound:?} {mean} {deviation}: {before:?} became {now:?} with {count} seeds");
                        if now != Verdict::Undecided {
                            assert_eq!(now, Verdict::of(bound, Some(100.0), Some(mean), 0.05), "the mean's own side");
                        }
                        before = now;
                    }
                }
            }
        }
    }

    #[test]
    fn verdicts_are_arithmetic() {
        for (bound, published, ours, tolerance, verdict) in [
            (Bound::Near, Some(100.0), Some(105.0), 0.05, Verdict::Met),
            (Bound::Near, Some(100.0), Some(95.0), 0.05, Verdict::Met),
            (Bound::Near, Some(100.0), Some(105.1), 0.05, Verdict::Missed),
            (Bound::Near, Some(0.0), Some(0.0), 0.05, Verdict::Met),
            (Bound::Near, Some(0.0), Some(1.0), 0.05, Verdict::Missed),
            (Bound::AtLeast, Some(6.0), Some(9.0), 0.0, Verdict::Met),
            (Bound::AtLeast, Some(6.0), Some(5.9), 0.0, Verdict::Missed),
            (Bound::AtLeast, Some(6.0), Some(5.9), 0.05, Verdict::Met),
            (Bound::AtMost, Some(1.3), Some(1.0), 0.0, Verdict::Met),
            (Bound::AtMost, Some(1.3), Some(1.31), 0.0, Verdict::Missed),
            (Bound::Near, Some(1.0), None, 0.05, Verdict::Missed),
            (Bound::Near, None, Some(1.0), 0.05, Verdict::Unknown),
            (Bound::None, Some(1.0), Some(9.0), 0.05, Verdict::Unknown),
        ] {
            assert_eq!(Verdict::of(bound, published, ours, tolerance), verdict, "{bound:?} {published:?} {ours:?}");
        }
    }
}
