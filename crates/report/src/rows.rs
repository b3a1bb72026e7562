//! Rows of comparisons and sweeps, and short names of the keys that they set.

use crate::report::Report;
use serde::Serialize;
use std::collections::BTreeMap;

/// One row of a comparison or sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name in tables.
    pub label: String,
    /// The keys that it sets, dotted.
    pub set: BTreeMap<String, String>,
    /// Its report.
    pub report: Report,
}

/// The fault that a key switches on and off: its name, or `fault 2` with its number.
pub fn switched_fault(key: &str) -> Option<String> {
    let rest = key.strip_prefix("faults.")?;
    let name = rest.strip_suffix(".enabled").or((rest == "enabled").then_some("0"))?;
    Some(if name.parse::<usize>().is_ok() { format!("fault {name}") } else { name.to_string() })
}

/// The short name of each dotted key: its last part, the fault that it switches, or the whole key if it would share a
/// name with another one.
pub fn short_names<'a>(keys: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let last = |key: &str| match key {
        "profile.name" => "profile".to_string(),
        key => key.rsplit('.').next().unwrap_or(key).to_string(),
    };
    let short = |key: &str| switched_fault(key).unwrap_or_else(|| last(key));
    let all: BTreeMap<String, String> = keys.map(|key| (key.to_string(), short(key))).collect();
    let twice = |name: &String| all.values().filter(|other| *other == name).count() > 1;
    all.iter().map(|(key, name)| (key.clone(), if twice(name) { key.clone() } else { name.clone() })).collect()
}
