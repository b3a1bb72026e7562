//! The answer of a search.

use crate::map::MapFacts;
use crate::report::{Origin, to_json};
use serde::Serialize;
use std::collections::BTreeMap;

/// The kind of part that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A cable between two switches.
    Link,
    /// A cable between a NIC and its leaf.
    Port,
    /// A switch, with all its links.
    Switch,
}

/// The answer of a search.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// Format of this document: 1.
    pub format: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The value that failures make worse, in words or by its dotted name.
    pub value: String,
    /// The values that are compared, by their dotted names, without a failure.
    pub baseline: BTreeMap<String, f64>,
    /// The number of faults that the scenario has itself; they are in every run, the one without a failure among them.
    pub own_faults: u64,
    /// The digest of the run without a failure.
    pub baseline_digest: String,
    /// Every part was tried, because packets of a connection keep one path.
    pub single_paths: bool,
    /// One step for each failure: the second one looks for a failure beside the worst one of the first.
    pub steps: Vec<StepFacts>,
    /// The fabric, if it is small enough for a picture.
    #[serde(skip)]
    pub map: Option<MapFacts>,
    /// The scenario.
    #[serde(skip)]
    pub origin: Origin,
}

/// The search for one failure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepFacts {
    /// The failures that are there already.
    pub beside: Vec<String>,
    /// Parts that may fail.
    pub parts: u64,
    /// Classes of parts that are alike.
    pub classes: u64,
    /// Parts that were tried.
    pub tried: u64,
    /// Runs: parts, moments and effects.
    pub runs: u64,
    /// All failures that were tried, the worst one first.
    pub failures: Vec<FailureFacts>,
    /// The links of every part; empty for large fabrics.
    #[serde(skip)]
    pub classes_of_links: Vec<ClassOfLinks>,
}

/// A part that may fail, and its links by the names of their lower and upper ends.
#[derive(Clone, Debug)]
pub struct ClassOfLinks {
    /// The kind of part.
    pub part: Part,
    /// Its name.
    pub name: String,
    /// The number of its class.
    pub class: u64,
    /// Its links, by the names of their lower and upper ends.
    pub links: Vec<(String, String)>,
}

/// One failure.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FailureFacts {
    /// The part: `leaf0 - spine3`, `spine2.p1`, `host5 - leaf0.p1`.
    pub name: String,
    /// `visible` or `silent`.
    pub effect: String,
    /// When it begins, microseconds.
    pub at_us: f64,
    /// The number of parts that are alike, this one included.
    pub alike: u64,
    /// The worst of the compared values divided by its value without a failure; absent if the run did not end.
    pub slowdown: Option<f64>,
    /// The dotted name of that value.
    pub key: Option<String>,
    /// That value.
    pub value: Option<f64>,
    /// How the run ended: `finished`, `time limit` or `stalled`.
    pub end: String,
    /// True if the run did not end because the failure leaves no path between some hosts.
    pub disconnects: bool,
    /// The share of all payload that was delivered.
    pub delivered: f64,
    /// The digest of the run.
    pub digest: String,
    /// The scenario that repeats it, as TOML.
    #[serde(skip)]
    pub scenario: String,
    /// The kind of part.
    #[serde(skip)]
    pub part: Option<Part>,
    /// The class of the parts that are alike.
    #[serde(skip)]
    pub class: u64,
}

impl FailureFacts {
    /// A number by which failures are ordered. Runs that do not end are the worst, those that deliver least first.
    pub fn badness(&self) -> f64 {
        self.slowdown.unwrap_or(1e12 * (2.0 - self.delivered))
    }
}

impl Found {
    /// As JSON.
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// The `top` worst failures of the last step, by the names of their files, such as `01-leaf0-spine3-silent.toml`.
    pub fn scenarios(&self, top: usize) -> Vec<(String, &str)> {
        let Some(last) = self.steps.last() else { return Vec::new() };
        let named = |(place, failure): (usize, &'_ FailureFacts)| {
            let plain: String =
                failure.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { ' ' }).collect();
            let words: Vec<&str> = plain.split_whitespace().collect();
            format!("{:02}-{}-{}.toml", place + 1, words.join("-"), failure.effect)
        };
        last.failures.iter().take(top).enumerate().map(|one| (named(one), one.1.scenario.as_str())).collect()
    }
}
