//! The fabric as it is: faults from a status, from findings of the localiser, or from node's own reports.

use super::part::Part;
use serde_json::Value as Json;
use strandway_fabric::Topology;
use strandway_import::Problem;
use toml::{Table, Value};

/// Faults of a fabric as it is, with a text for each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FabricState {
    pub(crate) faults: Vec<Table>,
    pub(crate) texts: Vec<String>,
}

/// Losses below this share count as none: a localiser's rest of chance. Ours.
const LOSS_MIN: f64 = 1e-6;

impl FabricState {
    /// Reads what `strandway fabric status --json` or `fabric localise --json` print. `denies`: denied parts are denied
    /// to senders, too; otherwise they are down.
    ///
    /// # Errors
    /// With the entry that is wrong.
    pub(crate) fn read(topology: &Topology, text: &str, denies: bool) -> Result<FabricState, Box<Problem>> {
        let wrong = |value: &str, what: String, remedy: &str| {
            let (key, value, remedy) = ("--from".into(), value.into(), remedy.into());
            Box::new(Problem { key, value, what, remedy, ..Problem::default() })
        };
        let json: Json = serde_json::from_str(text).map_err(|e| {
            wrong("", format!("is no JSON: {e}"), "write it by: strandway fabric status --json state.json")
        })?;
        let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
        let known = ["failures", "denied", "suspicions"];
        if !known.iter().any(|key| json[*key].is_array()) {
            let what = "has none of failures, denied and suspicions".to_string();
            return Err(wrong("", what, "write it by: strandway fabric status --json, or fabric localise --json"));
        }
        let mut state = FabricState::default();
        for entry in list("failures").iter().filter_map(Json::as_str) {
            let (target, keys) = failure(entry);
            if target == "all" {
                for plane in 0..topology.planes() {
                    state.add(topology, &format!("p{plane}"), &keys, entry)?;
                }
            } else {
                state.add(topology, &target, &keys, entry)?;
            }
        }
        for entry in list("denied").iter().filter_map(Json::as_str) {
            let keys = if denies { Table::from_iter([text_of("kind", "deny")]) } else { down() };
            state.add(topology, entry, &keys, &format!("{entry} denied"))?;
        }
        for suspicion in list("suspicions") {
            let parts: Vec<&str> =
                suspicion["parts"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
            // Of parts that the probes cannot tell apart, the first one stands for all.
            let Some(part) = parts.first() else { continue };
            let lost = suspicion["lost"].as_f64().unwrap_or(1.0);
            if lost < LOSS_MIN {
                continue;
            }
            let keys = if lost > 0.99 { silent() } else { losing(lost) };
            state.add(topology, part, &keys, &format!("{} loses {:.2} %", parts.join(" or "), lost * 100.0))?;
        }
        Ok(state)
    }

    fn add(&mut self, topology: &Topology, target: &str, keys: &Table, text: &str) -> Result<(), Box<Problem>> {
        let part =
            Part::read(topology, target).map_err(|problem| Box::new(Problem { key: "--from".into(), ..*problem }))?;
        for target in part.targets {
            let mut fault = keys.clone();
            fault.extend(target);
            self.faults.push(fault);
        }
        self.texts.push(text.to_string());
        Ok(())
    }
}

fn text_of(key: &str, value: &str) -> (String, Value) {
    (key.to_string(), Value::String(value.into()))
}

/// A visible fault that routing avoids from the start.
pub(crate) fn down() -> Table {
    Table::from_iter([text_of("kind", "down"), text_of("reconverge", "0 us")])
}

fn silent() -> Table {
    Table::from_iter([text_of("kind", "down"), ("silent".to_string(), Value::Boolean(true))])
}

fn losing(share: f64) -> Table {
    Table::from_iter([text_of("kind", "loss"), ("probability".to_string(), Value::Float(share))])
}

/// A failure of a fabric of namespaces: its target, and the keys of the same fault in a scenario.
fn failure(entry: &str) -> (String, Table) {
    let share = |text: &str| text.trim_end_matches('%').trim().parse::<f64>().unwrap_or(0.0) / 100.0;
    for (kind, key) in [("loss", "probability"), ("degrade", "fraction")] {
        let Some(rest) = entry.strip_prefix(kind).and_then(|rest| rest.strip_prefix(':')) else { continue };
        // The share is the first word with a per cent sign; one behind it is the mean length of a burst.
        let words: Vec<&str> = rest.split(':').filter(|word| *word != "to").collect();
        let at = words.iter().position(|word| word.ends_with('%')).unwrap_or(words.len());
        let value = words.get(at).map_or(0.0, |word| share(word));
        let mut keys = Table::from_iter([text_of("kind", kind), (key.to_string(), Value::Float(value))]);
        if let Some(burst) = words.get(at + 1).and_then(|word| word.parse::<f64>().ok()) {
            keys.insert("burst".into(), Value::Float(burst));
        }
        return (words[..at].join(":"), keys);
    }
    let seen = entry.starts_with("port:");
    (entry.to_string(), if seen { down() } else { silent() })
}
