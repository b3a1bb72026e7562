//! Flow sizes from a distribution, given as points: bytes, and the share of flows that are at most that long.

use strandway_fabric::quantity;
use strandway_proto::rng::Random;

/// A distribution of flow sizes, linear between its points.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sizes {
    points: Vec<(f64, f64)>,
}

/// The names of the built-in distributions.
pub(crate) const NAMES: [&str; 2] = ["websearch", "hadoop"];

/// Web search: DCTCP (SIGCOMM 2010), figure 4, with the points that the HPCC artefact publishes.
const WEBSEARCH: [(f64, f64); 12] = [
    (1.0, 0.0),
    (10_000.0, 0.15),
    (20_000.0, 0.20),
    (30_000.0, 0.30),
    (50_000.0, 0.40),
    (80_000.0, 0.53),
    (200_000.0, 0.60),
    (1_000_000.0, 0.70),
    (2_000_000.0, 0.80),
    (5_000_000.0, 0.90),
    (10_000_000.0, 0.97),
    (30_000_000.0, 1.0),
];

/// Hadoop: "Inside the Social Network's (Datacenter) Network" (SIGCOMM 2015), with the points that the HPCC artefact
/// publishes.
const HADOOP: [(f64, f64); 20] = [
    (1.0, 0.0),
    (100.0, 0.01),
    (200.0, 0.02),
    (300.0, 0.05),
    (350.0, 0.15),
    (400.0, 0.20),
    (500.0, 0.30),
    (600.0, 0.40),
    (700.0, 0.50),
    (1_000.0, 0.60),
    (2_000.0, 0.67),
    (7_000.0, 0.70),
    (30_000.0, 0.72),
    (50_000.0, 0.82),
    (80_000.0, 0.87),
    (120_000.0, 0.90),
    (300_000.0, 0.95),
    (1_000_000.0, 0.975),
    (2_000_000.0, 0.99),
    (10_000_000.0, 1.0),
];

impl Sizes {
    pub(crate) fn fixed(bytes: u64) -> Sizes {
        Sizes { points: vec![(bytes as f64, 1.0)] }
    }

    pub(crate) fn named(name: &str) -> Option<Sizes> {
        match name {
            "websearch" => Some(Sizes { points: WEBSEARCH.to_vec() }),
            "hadoop" => Some(Sizes { points: HADOOP.to_vec() }),
            _ => None,
        }
    }

    /// Reads lines `bytes, share`. Shares end at 1, or at 100 if they are percent. `#` starts a comment; a first line
    /// of words is a heading. A first point of 0 bytes, as in HPCC's files, is 1 byte.
    ///
    /// # Errors
    /// The line, and the mistake in it.
    pub(crate) fn parse(text: &str) -> Result<Sizes, (Option<usize>, String)> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut above: Option<(usize, f64)> = None;
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() || (points.is_empty() && i == 0 && line.starts_with(|c: char| c.is_alphabetic())) {
                continue;
            }
            let fail = |what: String| Err((Some(i + 1), what));
            let marks: &[char] = if line.contains([',', ';', '\t']) { &[',', ';', '\t'] } else { &[' '] };
            let mut parts = line.split(marks).map(str::trim).filter(|p| !p.is_empty());
            let (Some(bytes), Some(share), None) = (parts.next(), parts.next(), parts.next()) else {
                return fail(format!("`{line}` is not `bytes, share`"));
            };
            let bytes = match bytes.parse::<f64>() {
                Ok(b) => b,
                Err(_) => match quantity::bytes(bytes) {
                    Ok(b) => b.0 as f64,
                    Err(e) => return fail(format!("`{bytes}`: {}", e.what)),
                },
            };
            let Ok(share) = share.parse::<f64>() else { return fail(format!("`{share}` is no share")) };
            let bytes = if bytes == 0.0 && points.is_empty() && share == 0.0 { 1.0 } else { bytes };
            if !bytes.is_finite() || !(1.0..=1e15).contains(&bytes) {
                return fail(format!("a size of {bytes} bytes is out of range"));
            }
            if !share.is_finite() || !(0.0..=100.0).contains(&share) {
                return fail(format!("a share of {share} is not between 0 and 1, or 100 in percent"));
            }
            if share > 1.0 {
                above = above.or(Some((i + 1, share)));
            }
            if points.last().is_some_and(|last| last.0 > bytes || last.1 > share) {
                return fail("sizes and shares must rise from line to line".into());
            }
            points.push((bytes, share));
            if points.len() > 100_000 {
                return fail("more than 100,000 points".into());
            }
        }
        if points.last().is_some_and(|last| last.1 == 100.0) {
            points.iter_mut().for_each(|(_, share)| *share /= 100.0);
        } else if let Some((line, share)) = above {
            let what =
                format!("a share of {share} is not between 0 and 1, and the last one is not 100 as with percent");
            return Err((Some(line), what));
        }
        match points.last() {
            None => Err((None, "the file has no line `bytes, share`".into())),
            Some(last) if last.1 != 1.0 => Err((None, format!("the last share is {}, not 1", last.1))),
            Some(_) => Ok(Sizes { points }),
        }
    }

    /// The mean size in bytes.
    pub(crate) fn mean(&self) -> f64 {
        let mut mean = self.points[0].0 * self.points[0].1;
        for pair in self.points.windows(2) {
            mean += (pair[0].0 + pair[1].0) / 2.0 * (pair[1].1 - pair[0].1);
        }
        mean
    }

    /// Draws a size in bytes, at least 1.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        let share = random.unit();
        let at = self.points.partition_point(|p| p.1 < share);
        let Some(&(high, above)) = self.points.get(at) else { return self.points[self.points.len() - 1].0 as u64 };
        if at == 0 {
            return (high as u64).max(1);
        }
        let (low, below) = self.points[at - 1];
        let part = if above > below { (share - below) / (above - below) } else { 1.0 };
        ((low + (high - low) * part) as u64).max(1)
    }
}

/// The description of a built-in distribution of flow sizes: source, mean and points.
pub fn size_distribution(name: &str) -> Option<String> {
    let sizes = Sizes::named(name)?;
    let source = match name {
        "websearch" => "web search, DCTCP (SIGCOMM 2010), figure 4",
        _ => "Hadoop at Facebook, \"Inside the Social Network's (Datacenter) Network\" (SIGCOMM 2015)",
    };
    let points: String =
        sizes.points.iter().map(|(bytes, share)| format!("  {:>12} B  {:>6.1} %\n", bytes, 100.0 * share)).collect();
    let mean = strandway_report::numbers::bytes(sizes.mean() as u64);
    Some(format!(
        "{name}: {source}, in the points that the HPCC artefact publishes; mean {mean}\n\
         [workload] kind = \"poisson\", sizes = \"{name}\"; linear between these points:\n\
         {:>16}  flows at most as long\n{points}",
        "bytes"
    ))
}

/// The names of the built-in distributions of flow sizes.
pub fn size_distributions() -> &'static [&'static str] {
    &NAMES
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::rng::StreamKind;

    #[test]
    fn draws_have_the_distributions_mean() {
        for sizes in [
            Sizes::fixed(4096),
            Sizes::named("websearch").expect("built in"),
            Sizes::named("hadoop").expect("built in"),
        ] {
            let mut random = Random::new(1, StreamKind::Workload, 9);
            let n = 200_000;
            let mean = (0..n).map(|_| sizes.draw(&mut random) as f64).sum::<f64>() / f64::from(n);
            assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{mean} {}", sizes.mean());
        }
    }

    #[test]
    fn a_table_is_read_or_refused_with_its_line() {
        let sizes = Sizes::parse("bytes,cdf\n1000, 0.5\n3 kB;1.0\n").expect("sound");
        assert_eq!(sizes.mean(), 1000.0 * 0.5 + 2000.0 * 0.5);
        // As HPCC publishes them: percent, and a first point of 0 bytes.
        let sizes = Sizes::parse("0 0\n1000 50\n3000 100\n").expect("percent");
        assert_eq!(sizes.points, [(1.0, 0.0), (1000.0, 0.5), (3000.0, 1.0)]);
        for (text, fragment) in [
            ("1000, 0.5\n2000, 50\n3000, 99\n", "a share of 50 is not between 0 and 1"),
            ("1000, 0.5\n0, 1\n", "out of range"),
            ("", "the file has no line"),
            ("1000, 0.5\n", "the last share is 0.5"),
            ("1000, 0.5\n900, 1\n", "must rise"),
            ("1000, nan\n", "not between"),
            ("-5, 1\n", "out of range"),
            ("1000\n", "is not `bytes, share`"),
        ] {
            let said = Sizes::parse(text).expect_err(text).1;
            assert!(said.contains(fragment), "{text:?}: {said}");
        }
    }
}
