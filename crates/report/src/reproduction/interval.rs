//! Confidence intervals of means over few seeds.

/// The 97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
const QUANTILES: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
];

/// The 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// The 97.5 % quantile of Student's t distribution, which bounds an interval of 95 % on both sides; infinite without a
/// degree of freedom.
fn quantile(freedom: usize) -> f64 {
    match freedom {
        0 => f64::INFINITY,
        1..=30 => QUANTILES[freedom - 1],
        // The first terms of its expansion around the normal distribution (Abramowitz and Stegun, 26.7.5).
        _ => {
            let (z, n) = (NORMAL, freedom as f64);
            z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
        }
    }
}

/// The confidence interval of 95 % around a mean of the values of several seeds, by Student's t distribution. `None`
/// with fewer than two values, or if a seed has no value.
///
/// `mean` may differ slightly from the mean of `seeds`: the ratio of two means is not the mean of the ratios.
pub fn interval(mean: f64, seeds: &[Option<f64>]) -> Option<[f64; 2]> {
    let values: Vec<f64> = seeds.iter().copied().collect::<Option<_>>()?;
    let (count, freedom) = (values.len() as f64, values.len().checked_sub(1).filter(|freedom| *freedom > 0)?);
    let centre = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - centre) * (value - centre)).sum::<f64>() / freedom as f64;
    let half = quantile(freedom) * (variance / count).sqrt();
    Some([mean - half, mean + half])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, expected) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)] {
            assert!((quantile(freedom) - expected).abs() < 1e-3, "{freedom}: {}", quantile(freedom));
        }
        for (freedom, expected) in [(31, 2.0395), (40, 2.0211), (60, 2.0003), (120, 1.9799), (1_000_000, 1.9600)] {
            assert!((quantile(freedom) - expected).abs() < 1e-4, "{freedom}: {}", quantile(freedom));
        }
        assert!((1..200).all(|freedom| quantile(freedom) > quantile(freedom + 1)));
    }

    #[test]
    fn the_interval_of_a_known_sample() {
        // Mean 10, standard deviation 2, five values: 2.776 * 2 / sqrt(5) = 2.483.
        let spread = 1.6f64.sqrt();
        let seeds = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|step: f64| Some(10.0 + step * spread));
        let [low, high] = interval(10.0, &seeds).expect("five values");
        assert!((low - 7.517).abs() < 1e-3 && (high - 12.483).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn one_value_or_a_missing_one_has_no_interval() {
        assert_eq!(interval(1.0, &[]), None);
        assert_eq!(interval(1.0, &[Some(1.0)]), None);
        assert_eq!(interval(1.0, &[Some(1.0), None]), None);
        assert_eq!(interval(1.0, &[Some(1.0), Some(1.0)]), Some([1.0, 1.0]));
    }
}
