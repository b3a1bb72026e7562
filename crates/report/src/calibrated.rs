//! Constants of a scenario that were fitted to measured points, and what they predict.

use crate::numbers;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The result of a calibration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// Format of this document: 1.
    pub format: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The files of measured points, and what they are.
    pub measured: Vec<String>,
    /// The constants that were fitted.
    pub constants: Vec<FittedConstant>,
    /// Constants that were not fitted and keep their values, with reasons; and assumptions.
    pub notes: Vec<String>,
    /// All points.
    pub points: Vec<CalibratedPoint>,
}

/// A constant and its fitted value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FittedConstant {
    /// The name, such as `rate`.
    pub name: String,
    /// The key of a scenario.
    pub key: String,
    /// The meaning of the constant.
    pub meaning: String,
    /// The value before, as a scenario has it.
    pub before: String,
    /// The fitted value, as a scenario has it.
    pub value: String,
    /// One standard error of the fit, as a share of the value; `None` if the points do not tell it.
    pub error: Option<f64>,
}

/// A measured point beside the simulated one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibratedPoint {
    /// Its file.
    pub file: String,
    /// The kind of collective.
    pub kind: String,
    /// The number of ranks.
    pub ranks: u32,
    /// Bytes as nccl-tests counts them.
    pub bytes: u64,
    /// The measured time.
    pub measured_us: f64,
    /// The time with the scenario's own constants.
    pub before_us: f64,
    /// The time with the fitted constants.
    pub simulated_us: f64,
    /// Was it one of the points to which the constants were fitted? Otherwise its time is predicted.
    pub fitted: bool,
    /// Is the time extended in a straight line from two smaller sizes?
    pub extended: bool,
}

impl CalibratedPoint {
    /// The simulated time's error, as a share of the measured time.
    pub fn error(&self) -> f64 {
        self.simulated_us / self.measured_us - 1.0
    }
}

/// The middle and the largest of the absolute errors.
fn errors<'a>(points: impl Iterator<Item = &'a CalibratedPoint>) -> Option<(usize, f64, f64)> {
    let mut all: Vec<f64> = points.map(|point| point.error().abs()).collect();
    all.sort_by(f64::total_cmp);
    Some((all.len(), *all.get(all.len() / 2)?, *all.last()?))
}

impl Calibrated {
    /// The number of points that were predicted, and the middle and the largest of their absolute errors, as shares;
    /// `None` if there are none.
    pub fn predicted(&self) -> Option<(usize, f64, f64)> {
        errors(self.points.iter().filter(|point| !point.fitted))
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("{}: constants fitted to {}\n\n", self.scenario, self.measured.join(", "));
        let head = ["before", "fitted"].map(|head| format!("{head:>16}")).concat();
        let _ = writeln!(text, "{:<16}{head}{:>10}   meaning", "constant", "+-");
        for one in &self.constants {
            let error = one.error.map_or("?".to_string(), |error| format!("{:.1} %", 100.0 * error));
            let _ = writeln!(text, "{:<16}{:>16}{:>16}{error:>10}   {}", one.name, one.before, one.value, one.meaning);
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let head = ["measured", "simulated", "error"].map(|head| format!("{head:>14}")).concat();
        let _ = writeln!(text, "\n{:<16}{:>6}{:>14}{head}", "collective", "ranks", "bytes");
        for point in &self.points {
            let extended = if point.extended { ", extended" } else { "" };
            let _ = writeln!(
                text,
                "{:<16}{:>6}{:>14}{:>14}{:>14}{:>12.1} %   {}{extended}",
                point.kind,
                point.ranks,
                point.bytes,
                numbers::us(Some(point.measured_us)),
                numbers::us(Some(point.simulated_us)),
                100.0 * point.error(),
                if point.fitted { "fitted" } else { "predicted" },
            );
        }
        text.push('\n');
        for (name, told) in
            [("fitted", errors(self.points.iter().filter(|point| point.fitted))), ("predicted", self.predicted())]
        {
            if let Some((count, middle, largest)) = told {
                let (middle, largest) = (100.0 * middle, 100.0 * largest);
                let _ =
                    writeln!(text, "{count} points {name}: error {middle:.1} % in the middle, {largest:.1} % at most");
            }
        }
        if self.points.iter().any(|point| point.extended) {
            text.push_str("extended: in a straight line from two smaller sizes (--size-max)\n");
        }
        text
    }

    /// The fitted constants as TOML, which a scenario includes.
    pub fn toml(&self) -> String {
        let mut text = format!("# Fitted by strandway calibrate to {}.\n", self.measured.join(", "));
        if let Some((count, middle, largest)) = self.predicted() {
            let (middle, largest) = (100.0 * middle, 100.0 * largest);
            let _ =
                writeln!(text, "# {count} other points: error {middle:.1} % in the middle, {largest:.1} % at most.");
        }
        text.push_str("# In a scenario: include = \"THIS FILE\", and none of these keys.\n");
        for section in ["fabric", "servers"] {
            let mine =
                self.constants.iter().filter_map(|one| Some((one.key.strip_prefix(section)?.strip_prefix('.')?, one)));
            let rows: Vec<String> =
                mine.map(|(key, one)| format!("{key} = \"{}\"  # {}\n", one.value, one.meaning)).collect();
            if !rows.is_empty() {
                let _ = write!(text, "\n[{section}]\n{}", rows.concat());
            }
        }
        text
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
