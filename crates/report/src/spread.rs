//! Distributions of flow times, including flows that did not finish.

use crate::flows::Spread;

/// Number of points of the completion-time curve.
const CDF_POINTS: usize = 200;

/// A percentile by nearest rank: the smallest value that is at least as large as `share` of `all` values. `sorted`
/// holds the smallest of them; the rest are larger, and a percentile among those is `None`.
fn rank(sorted: &[f64], all: usize, share: f64) -> Option<f64> {
    sorted.get(place(all as u64, share) as usize - 1).copied()
}

/// The position of that value, counted from 1, among `all` sorted values.
pub fn place(all: u64, share: f64) -> u64 {
    ((share * all as f64).ceil() as u64).clamp(1, all.max(1))
}

/// The spread of these values and of `unfinished` further values, which are larger.
pub fn spread(mut values: Vec<f64>, unfinished: usize) -> Spread {
    values.sort_unstable_by(f64::total_cmp);
    let all = values.len() + unfinished;
    let whole = unfinished == 0 && all > 0;
    let mean = values.iter().sum::<f64>() / all as f64;
    let rank = |share| rank(&values, all, share);
    Spread {
        min: values.first().copied(),
        mean: whole.then_some(mean),
        p50: rank(0.5),
        p90: rank(0.9),
        p99: rank(0.99),
        p999: rank(0.999),
        max: values.last().copied().filter(|_| whole),
        unfinished: unfinished as u64,
    }
}

/// The share of `all` flows that had finished by each of these times.
pub fn cdf(sorted: &[f64], all: usize) -> Vec<[f64; 2]> {
    let n = sorted.len();
    let step = n.div_ceil(CDF_POINTS).max(1);
    let share = |finished: usize| finished as f64 / all as f64;
    let mut points: Vec<[f64; 2]> = (0..n).step_by(step).map(|i| [sorted[i], share(i + 1)]).collect();
    if let Some(&last) = sorted.last()
        && points.last().is_some_and(|p| p[1] < share(n))
    {
        points.push([last, share(n)]);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let s = spread(values, 0);
        assert_eq!(
            (s.min, s.p50, s.p90, s.p99, s.p999, s.max),
            (Some(1.0), Some(50.0), Some(90.0), Some(99.0), Some(100.0), Some(100.0))
        );
        assert_eq!(s.mean, Some(50.5));
        assert_eq!(spread(vec![7.0], 0).p999, Some(7.0));
        assert_eq!(spread(Vec::new(), 0).max, None);
    }

    #[test]
    fn a_flow_that_did_not_finish_takes_for_ever() {
        let s = spread((1..=98).map(f64::from).collect(), 2);
        assert_eq!((s.min, s.p50, s.p90, s.p99, s.p999), (Some(1.0), Some(50.0), Some(90.0), None, None));
        assert_eq!((s.mean, s.max, s.unfinished), (None, None, 2));
        assert_eq!(spread(Vec::new(), 3).p50, None);
        assert_eq!(cdf(&[1.0, 2.0], 4), [[1.0, 0.25], [2.0, 0.5]]);
    }

    #[test]
    fn the_curve_ends_at_one() {
        let times: Vec<f64> = (0..1003).map(f64::from).collect();
        let curve = cdf(&times, times.len());
        assert!(curve.len() <= CDF_POINTS + 1);
        assert_eq!(curve.last(), Some(&[1002.0, 1.0]));
        assert!(cdf(&[], 0).is_empty());
    }
}
