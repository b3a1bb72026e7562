//! Marks along a time axis: begin and end of faults.

use super::chart::{Axis, escape, round};
use crate::FaultFacts;
use crate::numbers::us;
use std::fmt::Write;

/// Height of a row of mark labels, and the limit on such rows.
const ROW: f64 = 13.0;
const ROWS: usize = 3;

/// An event, or a range of time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mark {
    pub(super) from: f64,
    pub(super) until: Option<f64>,
    pub(super) label: String,
}

/// Faults as marks along a time axis with units of `size` microseconds, which ends at `end` units. Faults that last for
/// the whole run have no mark. Faults with the same times share a mark.
pub(super) fn of_faults(faults: &[FaultFacts], size: f64, end: f64) -> Vec<Mark> {
    let mut at: Vec<(f64, Option<f64>, Vec<&str>)> = Vec::new();
    for fault in faults.iter().filter(|f| (f.from_us > 0.0 || f.until_us.is_some()) && f.from_us / size < end) {
        match at.iter_mut().find(|(from, until, _)| *from == fault.from_us && *until == fault.until_us) {
            Some((.., names)) => names.push(fault.label()),
            None => at.push((fault.from_us, fault.until_us, vec![fault.label()])),
        }
    }
    let made = at.into_iter().map(|(from, until, names)| {
        let what = if let [one] = names[..] { one.to_string() } else { format!("{} faults", names.len()) };
        Mark { from: from / size, until: until.map(|u| u / size), label: format!("{what} at {}", us(Some(from))) }
    });
    made.collect()
}

/// The height of the mark labels above a plot.
pub(super) fn room(marks: &[Mark]) -> f64 {
    ROW * marks.len().min(ROWS) as f64
}

/// Draws marks as bands and lines, with labels above the plot. Each label is in the lowest row where it overlaps no
/// other.
pub(super) fn draw(marks: &[Mark], axis: &Axis, [left, top, right, bottom]: [f64; 4]) -> String {
    let mut out = String::new();
    let mut taken: Vec<(usize, f64, f64)> = Vec::new();
    for mark in marks.iter().filter(|m| m.from <= axis.high) {
        let x = |v: f64| left + axis.at(v) * (right - left);
        let from = x(mark.from);
        if let Some(until) = mark.until {
            let width = x(until) - from;
            let height = bottom - top;
            let _ = write!(
                out,
                "<rect class=\"mark\" x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\"/>"
            );
        }
        for edge in std::iter::once(mark.from).chain(mark.until).filter(|e| *e <= axis.high) {
            let _ = write!(out, "<path class=\"mark\" d=\"M{:.1} {top}V{bottom}\"/>", x(edge));
        }
        let width = mark.label.chars().count() as f64 * 6.1;
        let start = if from + width > right { (right - width).max(left) } else { from };
        let free = |row: &usize| taken.iter().all(|t| t.0 != *row || start >= t.2 || start + width <= t.1);
        let Some(row) = (0..ROWS.min(marks.len())).find(free) else { continue };
        taken.push((row, start - 6.0, start + width + 6.0));
        let (y, label) = (top - 5.0 - ROW * row as f64, escape(&mark.label));
        let _ = write!(out, "<text class=\"mark\" x=\"{start:.1}\" y=\"{y}\">{label}</text>");
    }
    out
}

/// A mark in the form that `charts.js` reads.
pub(super) fn data(mark: &Mark) -> serde_json::Value {
    let mut made = serde_json::json!({ "x": round(mark.from), "label": mark.label });
    if let Some(until) = mark.until {
        made["x2"] = round(until).into();
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_above_the_plot_in_rows_of_their_own() {
        let mark = |from, until, label: &str| Mark { from, until, label: label.into() };
        let marks =
            vec![mark(20.0, Some(60.0), "plane 2 down"), mark(22.0, None, "leaf3 <lossy>"), mark(200.0, None, "late")];
        let svg = draw(&marks, &Axis::new("time, us", 0.0, 100.0), [0.0, 51.0, 500.0, 200.0]);
        assert!(svg.contains("<rect class=\"mark\" x=\"100.0\" y=\"51\" width=\"200.0\" height=\"149\"/>"), "{svg}");
        assert_eq!(svg.matches("<path").count(), 3);
        assert!(
            svg.contains("x=\"100.0\" y=\"46\">plane 2 down") && svg.contains("y=\"33\">leaf3 &lt;lossy&gt;"),
            "{svg}"
        );
        assert!(!svg.contains("late"), "it lies beyond the axis");
        let wanted = serde_json::json!({ "x": 20.0, "x2": 60.0, "label": "plane 2 down" });
        assert_eq!(data(&marks[0]), wanted);
    }

    #[test]
    fn faults_that_come_or_go_are_marked() {
        let fault = |what: &str, from_us, until_us| FaultFacts {
            name: String::new(),
            what: what.into(),
            from_us,
            until_us,
            links: 1,
            avoided_after_us: None,
        };
        let faults = [
            fault("leaf0 - spine3 slow", 0.0, None),
            fault("plane 2 down", 20.0, Some(60.0)),
            fault("a lossy", 5000.0, None),
            fault("b lossy", 5000.0, None),
            fault("late", 9000.0, None),
        ];
        let wanted = [
            Mark { from: 0.02, until: Some(0.06), label: "plane 2 down at 20.0 us".into() },
            Mark { from: 5.0, until: None, label: "2 faults at 5,000.0 us".into() },
        ];
        assert_eq!(of_faults(&faults, 1000.0, 8.0), wanted);
    }
}
