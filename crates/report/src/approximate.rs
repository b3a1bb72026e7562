//! Figures of runs that stand for a larger one.

use crate::numbers::{count, percent, us};
use serde::{Deserialize, Serialize};

/// How the figures of a report were found, if only smaller runs were simulated.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ApproximateFacts {
    /// The numbers by which the runs divide bytes and computation, the smallest first.
    pub divisors: Vec<u64>,
    /// With how many seeds the smallest run was simulated.
    pub seeds: u32,
    /// Of this number of rails one was simulated.
    pub rails: u32,
    /// Of this number of data-parallel replicas one was simulated.
    pub replicas: u32,
    /// Packet hops of all these runs, and about those of the whole run.
    pub packet_hops: u64,
    /// About the packet hops of the whole run.
    pub whole_packet_hops: u64,
    /// The figures of jobs, each with its error.
    pub figures: Vec<ApproximateFigure>,
}

/// A time per iteration of a job, and its error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApproximateFigure {
    /// The name of the job.
    pub job: String,
    /// `iteration`, or a part of it, such as `dp`.
    pub name: String,
    /// The time.
    pub us: f64,
    /// The largest difference to the values that other pairs of runs give, and to the time of the largest run. An
    /// iteration is no shorter than `us`, and no longer than that run's, apart from chance.
    pub error_us: f64,
    /// How much it differs with another seed, in the smallest run, as a time of the whole run.
    pub chance_us: f64,
}

impl ApproximateFigure {
    /// The error as a share of an iteration of `iteration_us`.
    pub fn share(&self, iteration_us: f64) -> f64 {
        if iteration_us > 0.0 { self.error_us / iteration_us } else { 0.0 }
    }
}

impl ApproximateFacts {
    /// How it was made, and the error of each figure, as sentences without a full stop.
    pub fn sentences(&self) -> Vec<String> {
        let divisors: Vec<String> = self.divisors.iter().map(|divisor| format!("1/{divisor}")).collect();
        let (last, others) = divisors.split_last().map_or(("1", &[][..]), |(last, others)| (last.as_str(), others));
        let list = if others.is_empty() { last.to_string() } else { format!("{} and {last}", others.join(", ")) };
        let mut parts = vec![format!("{list} of the bytes and of the computation")];
        if self.rails > 1 {
            parts.push(format!("one rail of {}", self.rails));
        }
        if self.replicas > 1 {
            parts.push(format!("one data-parallel replica of each {}", self.replicas));
        }
        let share = self.packet_hops as f64 / self.whole_packet_hops.max(1) as f64;
        let mut all = vec![format!(
            "approximate: {} {}{}: {} packet hops, {} of the whole run's; times are extrapolated to the whole",
            if self.divisors.len() == 1 {
                "one run simulates".to_string()
            } else {
                format!("{} runs simulate", self.divisors.len())
            },
            parts.join(", "),
            if self.seeds > 1 { format!(", the last one with {} seeds", self.seeds) } else { String::new() },
            count(self.packet_hops),
            percent(share)
        )];
        for figure in self.figures.iter().filter(|figure| figure.name == ITERATION) {
            let parts = self.figures.iter().filter(|part| part.job == figure.job && part.name != ITERATION);
            let told: Vec<String> = parts
                .filter(|part| part.share(figure.us) >= 0.0005)
                .map(|part| format!("{} {}", part.name, us(Some(part.error_us))))
                .collect();
            let parts = if told.is_empty() { String::new() } else { format!("; of its parts: {}", told.join(", ")) };
            all.push(format!(
                "{}: iteration {}, at most {} ({}) longer; {} of chance (another seed){parts}",
                figure.job,
                us(Some(figure.us)),
                us(Some(figure.error_us)),
                percent(figure.share(figure.us)),
                us(Some(figure.chance_us)),
            ));
        }
        all
    }
}

/// [`ApproximateFigure::name`] of the iteration itself.
pub const ITERATION: &str = "iteration";
