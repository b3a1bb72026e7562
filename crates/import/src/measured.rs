//! Measured times of collectives: tables of nccl-tests, records of NCCL Inspector, results of `strandway perf collective`,
//! and CSV files.

mod inspector;
mod perf;
mod table;

use crate::problem::Problems;
use crate::trace::{Kind, problem};
use std::collections::BTreeMap;

/// Limit on the points of a file: ours.
const POINTS_MAX: usize = 10_000;

/// A measured point: a collective of a size, and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The kind of collective; `None` if the file does not say it.
    pub kind: Option<Kind>,
    /// The number of ranks; `None` if the file does not say it.
    pub ranks: Option<u32>,
    /// Bytes as nccl-tests counts them.
    pub bytes: u64,
    /// The time in us.
    pub us: f64,
}

/// The points of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The file, in messages.
    pub file: String,
    /// `a table of nccl-tests`, and so on.
    pub format: &'static str,
    /// The points, by kind, ranks and size.
    pub points: Vec<Point>,
    /// The assumptions of the import, in sentences.
    pub assumed: Vec<String>,
}

/// Reads a file of measured points.
///
/// # Errors
/// If it is of no kind that is known, has a line that is wrong, or no points.
pub fn parse(file: &str, text: &str) -> Result<Measured, Problems> {
    let mut measured = if perf::is_result(text) {
        perf::parse(file, text)?
    } else if inspector::is_record(text) {
        inspector::parse(file, text)?
    } else if table::is_nccl_tests(text) {
        table::nccl_tests(file, text)?
    } else if table::is_csv(text) {
        table::csv(file, text)?
    } else {
        let remedy = "known are the output of nccl-tests and of strandway perf collective (also --json), NCCL Inspector's \
                      JSON, and CSV with a line `size,time_us` above the numbers";
        return Err(Problems::with_file(file, "has no measured points in a form that is known", remedy));
    };
    // A collective of no bytes measures nothing but the loop.
    measured.points.retain(|point| point.bytes > 0);
    if measured.points.is_empty() {
        return Err(Problems::with_file(file, "has no measured points", "was the run cut off?"));
    }
    if measured.points.len() > POINTS_MAX {
        let what = format!("has more than {POINTS_MAX} measured points");
        return Err(Problems::with_file(file, what, "leave sizes out"));
    }
    measured.points.sort_by_key(|point| (point.kind, point.ranks, point.bytes));
    Ok(measured)
}

/// Is this a file of measured points?
pub fn is_measured(text: &str) -> bool {
    perf::is_result(text) || inspector::is_record(text) || table::is_nccl_tests(text) || table::is_csv(text)
}

impl Measured {
    /// The contents of the file, what is assumed, and how to use it, as lines of text.
    pub fn describe(&self) -> String {
        let mut out = format!("measured points, {}: {}\n", self.format, self.points.len());
        // By collective: the number of points, and the least and the largest size.
        let mut rows: BTreeMap<_, (usize, u64, u64)> = BTreeMap::new();
        for point in &self.points {
            let row = rows.entry((point.kind, point.ranks)).or_insert((0, u64::MAX, 0));
            *row = (row.0 + 1, row.1.min(point.bytes), row.2.max(point.bytes));
        }
        for ((kind, ranks), (count, least, most)) in rows {
            let kind: Option<Kind> = kind;
            let kind = kind.map_or("a collective that is not named", Kind::name);
            let ranks = ranks.map_or("ranks that are not counted".to_string(), |ranks| format!("{ranks} ranks"));
            out.push_str(&format!("  {count} of {kind} among {ranks}, {least} to {most} B\n"));
        }
        if !self.assumed.is_empty() {
            out.push_str(&format!("assumed: {}\n", self.assumed.join("; ")));
        }
        out + "to use it: strandway calibrate FILE --scenario SCENARIO\n"
    }
}

/// The kind of collective with this name, however the name is written; `None` if it is no collective.
pub fn kind_named(name: &str) -> Option<Kind> {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let name = name.strip_suffix("perf").unwrap_or(&name);
    Some(match name {
        "allreduce" => Kind::AllReduce,
        "allgather" => Kind::AllGather,
        "reducescatter" => Kind::ReduceScatter,
        "alltoall" => Kind::AllToAll,
        "broadcast" => Kind::Broadcast,
        "reduce" => Kind::Reduce,
        _ => return None,
    })
}

/// A size in bytes: a whole number, perhaps with a unit (`64 MiB`, `64M` as nccl-tests takes it).
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * unit;
    (bytes.fract() == 0.0 && (0.0..1e15).contains(&bytes)).then_some(bytes as u64)
}

/// A time that can be measured.
fn time_of(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|us| us.is_finite() && *us > 0.0 && *us < 1e12)
}

fn wrong(file: &str, line: usize, value: &str, what: impl Into<String>, remedy: &str) -> Problems {
    problem(file, Some(line), value, what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_names_have_several_forms() {
        assert_eq!(
            ["8", "64 MiB", "64M", "1.5 kB", "2g", "x", "1.5"].map(bytes_of),
            [Some(8), Some(67_108_864), Some(67_108_864), Some(1500), Some(2_147_483_648), None, None]
        );
        for name in ["AllReduce", "all_reduce_perf", "allreduce", "all-reduce"] {
            assert_eq!(kind_named(name), Some(Kind::AllReduce));
        }
        assert_eq!((kind_named("sendrecv_perf"), kind_named("alltoall_perf")), (None, Some(Kind::AllToAll)));
    }

    #[test]
    fn other_files_are_refused() {
        for text in ["", "Nodes 4\n", "{}", "[fabric]\n", "size,time_us\n", "size,time_us\n0,3\n"] {
            assert!(parse("f", text).is_err(), "{text}");
        }
    }
}
