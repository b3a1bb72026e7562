//! By how much our times differ from the reference's on the whole: what the verdicts of single rows do not show.

use super::{Bound, Kind, Row, Source};
use serde::Serialize;

/// The judged times of one family of rows, beside those of their reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bias {
    /// The family: the beginning of its rows' ids, such as `prime/three-tier/degraded`, and whether they are means.
    pub family: String,
    /// The number of rows.
    pub rows: usize,
    /// The share of rows in which our time is the shorter one.
    pub sooner: f64,
    /// The median of our time over the reference's, minus 1: negative if ours are shorter.
    pub median: f64,
}

impl Bias {
    /// One entry per family, in the order of the rows. Rows count whose number is a time, and which must be near a
    /// published or a measured one.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Bias> {
        let mut families: Vec<(String, Vec<f64>)> = Vec::new();
        for row in rows {
            let theirs = !matches!(row.source, Source::Arithmetic | Source::Ours);
            let Some(ratio) = row.ratio.filter(|_| theirs && row.unit == "us") else { continue };
            if row.kind != Kind::Relation || row.bound != Bound::Near {
                continue;
            }
            let family = family(&row.id);
            match families.iter_mut().find(|(name, _)| *name == family) {
                Some((_, ratios)) => ratios.push(ratio),
                None => families.push((family, vec![ratio])),
            }
        }
        families.into_iter().map(|(family, ratios)| Bias::new(family, ratios)).collect()
    }

    fn new(family: String, mut ratios: Vec<f64>) -> Bias {
        ratios.sort_by(f64::total_cmp);
        let rows = ratios.len();
        let sooner = ratios.iter().filter(|ratio| **ratio < 1.0).count() as f64 / rows as f64;
        let median = (ratios[(rows - 1) / 2] + ratios[rows / 2]) / 2.0 - 1.0;
        Bias { family, rows, sooner, median }
    }
}

/// The set, the first part of the id, and the second part if it has no digit and others follow.
fn family(id: &str) -> String {
    let (id, mean) = match id.strip_suffix(".mean") {
        Some(id) => (id, ", means"),
        None => (id, ""),
    };
    let parts: Vec<&str> = id.split('/').collect();
    let second = parts.len() > 3 && !parts[2].contains(|c: char| c.is_ascii_digit());
    let of = if second { 3 } else { 2 }.min(parts.len());
    format!("{}{mean}", parts[..of].join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_the_beginnings_of_ids() {
        for (id, expected) in [
            ("prime/healthy/512/reps", "prime/healthy"),
            ("prime/three-tier/degraded/prime-1-4.mean", "prime/three-tier/degraded, means"),
            ("strack/incast/8/2mb/nscc", "strack/incast"),
            ("strack/alone/nscc", "strack/alone"),
            ("strack/alone", "strack/alone"),
        ] {
            assert_eq!(family(id), expected);
        }
    }

    #[test]
    fn the_median_and_the_share_of_shorter_times() {
        let bias = |ratios: &[f64]| {
            let Bias { rows, sooner, median, .. } = Bias::new(String::new(), ratios.to_vec());
            (rows, sooner, (median * 1e6).round() / 1e6)
        };
        assert_eq!(bias(&[1.1, 0.9, 0.95]), (3, 2.0 / 3.0, -0.05));
        assert_eq!(bias(&[1.2, 1.0]), (2, 0.0, 0.1));
    }
}
