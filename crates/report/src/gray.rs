//! How well a localiser of gray failures did.

use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The results of runs with one random gray fault each, and of runs without.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrayStudy {
    /// Format of this document: 1.
    pub format: u32,
    /// Cables of the fabric.
    pub links: u32,
    /// Runs with a fault, by its kind.
    pub kinds: Vec<(String, GrayCounts)>,
    /// Runs without a fault.
    pub healthy: GrayCounts,
}

/// Counts of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrayCounts {
    /// Runs.
    pub runs: u32,
    /// Runs whose fault was named.
    pub named: u32,
    /// Runs whose fault was named, and no other cable together with it.
    pub alone: u32,
    /// Names that contain the fault.
    pub right: u32,
    /// Names that do not.
    pub wrong: u32,
    /// Simulated time of all runs.
    pub simulated_us: f64,
}

impl GrayCounts {
    /// The share of right names; 1 if there are none.
    pub fn precision(&self) -> f64 {
        let all = self.right + self.wrong;
        if all == 0 { 1.0 } else { f64::from(self.right) / f64::from(all) }
    }

    /// The share of faults that were named.
    pub fn recall(&self) -> f64 {
        if self.runs == 0 { 1.0 } else { f64::from(self.named) / f64::from(self.runs) }
    }
}

impl GrayStudy {
    /// All runs with a fault.
    pub fn all(&self) -> GrayCounts {
        self.kinds.iter().fold(GrayCounts::default(), |sum, (_, one)| GrayCounts {
            runs: sum.runs + one.runs,
            named: sum.named + one.named,
            alone: sum.alone + one.alone,
            right: sum.right + one.right,
            wrong: sum.wrong + one.wrong,
            simulated_us: sum.simulated_us + one.simulated_us,
        })
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("one random gray cable of {} per run\n\n", self.links);
        let heads = ["runs", "named", "alone", "wrong names", "precision", "recall"];
        let head: String = heads.iter().map(|head| format!("{head:>13}")).collect();
        let _ = writeln!(text, "{:<22}{head}", "fault");
        let mut row = |name: &str, counts: &GrayCounts, judged: bool| {
            let share = |value: f64| if judged { format!("{:.1} %", value * 100.0) } else { "–".to_string() };
            let cells = [counts.runs, counts.named, counts.alone, counts.wrong].map(|count| count.to_string());
            let cells = cells.into_iter().chain([share(counts.precision()), share(counts.recall())]);
            let _ = writeln!(text, "{name:<22}{}", cells.map(|cell| format!("{cell:>13}")).collect::<String>());
        };
        for (name, counts) in &self.kinds {
            row(name, counts, true);
        }
        row("all", &self.all(), true);
        row("none", &self.healthy, false);
        text
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
