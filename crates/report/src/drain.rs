//! The cost of draining parts of a fabric for a scenario.

use crate::numbers::us;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The runs of a scenario with parts in and out, and an order of draining.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drained {
    /// Format of this document: 1.
    pub format: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The parts to drain, as they were asked for.
    pub parts: Vec<String>,
    /// Faults of the fabric as it is, which all runs have.
    pub state: Vec<String>,
    /// The meaning of `time_us`: `iteration` of the slowest job, or `slowest flow`.
    pub value: String,
    /// The bound on the slowdown of a wave.
    pub bound: f64,
    /// The runs: with all parts in, with all out, and with each one alone out if there are several.
    pub runs: Vec<DrainedRun>,
    /// Waves: the parts of a wave are out together, and in again before the next wave begins. No wave is slower than
    /// the bound.
    pub waves: Vec<Wave>,
    /// Parts that exceed the bound alone.
    pub above: Vec<String>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DrainedRun {
    /// `all in`, `all out`, or the part that is out.
    pub label: String,
    /// Did it finish?
    pub finished: bool,
    /// The compared time.
    pub time_us: Option<f64>,
    /// That time, divided by the time with all parts in.
    pub slowdown: Option<f64>,
    /// Completion time of the slowest flow.
    pub slowest_flow_us: Option<f64>,
    /// Mean iteration of the slowest job.
    pub iteration_us: Option<f64>,
    /// Bounds of the scenario's `[expect]` that it misses.
    pub missed: Vec<String>,
    /// The planes' mean utilisation of links between switches, in order.
    pub planes: Vec<f64>,
    /// The busiest links, and their utilisation.
    pub limits: Vec<(String, f64)>,
}

/// Parts that may be out together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wave {
    /// The parts.
    pub parts: Vec<String>,
    /// The slowdown while they are out.
    pub slowdown: f64,
}

impl Drained {
    /// As text.
    pub fn text(&self) -> String {
        let mut text = format!("{}: what if {} is drained?\n", self.scenario, self.parts.join(", "));
        let state = if self.state.is_empty() { "whole".to_string() } else { self.state.join(", ") };
        let _ = writeln!(text, "the fabric as it is: {state}\n");
        let head = ["time", "slowdown", "slowest flow", "iteration"].map(|head| format!("{head:>13}")).concat();
        let _ = writeln!(text, "{:<18}{head}  planes' load   busiest links", "out");
        for run in &self.runs {
            let slowdown = run.slowdown.map_or("–".to_string(), |factor| format!("{factor:.3}x"));
            let times = [us(run.time_us), slowdown, us(run.slowest_flow_us), us(run.iteration_us)];
            let times = times.map(|cell| format!("{cell:>13}")).concat();
            let planes: Vec<String> = run.planes.iter().map(|load| format!("{:.0} %", load * 100.0)).collect();
            let limits: Vec<String> =
                run.limits.iter().map(|(name, load)| format!("{name} {:.0} %", load * 100.0)).collect();
            let _ = writeln!(text, "{:<18}{times}  {:<13}  {}", run.label, planes.join(" "), limits.join(", "));
            if !run.finished {
                let _ = writeln!(text, "  does not finish");
            }
            for missed in &run.missed {
                let _ = writeln!(text, "  misses {missed}");
            }
        }
        let _ = writeln!(text, "\nin waves of at most {:.3}x, each wave back before the next one:", self.bound);
        for (number, wave) in (1..).zip(&self.waves) {
            let _ = writeln!(text, "  {number}. {} ({:.3}x)", wave.parts.join(", "), wave.slowdown);
        }
        for part in &self.above {
            let _ = writeln!(text, "  {part} alone is above the bound");
        }
        text
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
