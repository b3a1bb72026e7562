//! Results of `strandway perf collective --json`.

use super::{Measured, Point, kind_named};
use crate::problem::Problems;
use serde::Deserialize;

#[derive(Deserialize)]
struct Written {
    kind: String,
    collective: String,
    algorithm: String,
    ranks: u32,
    sizes: Vec<Size>,
}

#[derive(Deserialize)]
struct Size {
    size: u64,
    time_us: Times,
}

#[derive(Deserialize)]
struct Times {
    p50: f64,
}

/// Is this such a result?
pub(super) fn is_result(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"time_us\"") && text.contains("\"multicast_planes\"")
}

/// The medians of a result.
pub(super) fn parse(file: &str, text: &str) -> Result<Measured, Problems> {
    let written: Written = serde_json::from_str(text).map_err(|error| {
        let remedy = "take the file as strandway perf collective --json wrote it";
        super::wrong(file, error.line().max(1), "", format!("is no result of perf collective: {error}"), remedy)
    })?;
    let kind = kind_named(&written.collective).filter(|_| written.kind == "collective");
    let points = written.sizes.iter().filter(|row| row.time_us.p50 > 0.0 && row.time_us.p50 < 1e12);
    let point = |row: &Size| Point { kind, ranks: Some(written.ranks), bytes: row.size, us: row.time_us.p50 };
    Ok(Measured {
        file: file.to_string(),
        format: "a result of strandway perf collective",
        points: points.map(point).collect(),
        assumed: vec![format!("times are medians; the algorithm was {}", written.algorithm)],
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::trace::Kind;

    #[test]
    fn medians_are_read() {
        let text = r#"{"format":1,"kind":"collective","collective":"allreduce","algorithm":"ring","ranks":4,
            "multicast_planes":0,"sizes":[{"size":1024,"time_us":{"mean":9.0,"min":7.0,"p50":8.5,"max":20.0}}]}"#;
        let read = parse("r.json", text).expect("a result");
        let [point] = read.points[..] else { panic!("{read:?}") };
        assert_eq!((point.kind, point.ranks, point.bytes, point.us), (Some(Kind::AllReduce), Some(4), 1024, 8.5));
        assert!(parse("r.json", &text.replace("\"ranks\":4", "\"ranks\":-4")).is_err());
    }
}
