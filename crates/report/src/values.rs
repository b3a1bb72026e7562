//! The numbers of a report by their dotted paths, as `[expect]` names them.

use crate::flows::CollectiveFacts;
use crate::report::Report;
use std::collections::BTreeMap;

impl Report {
    /// Every number of the report by its dotted path. Entries of lists are named by their `name`.
    pub fn values(&self) -> BTreeMap<String, Option<f64>> {
        let mut values = BTreeMap::new();
        if let Ok(value) = serde_json::to_value(self) {
            flatten("", &value, &mut values);
        }
        for slowest in self.slowest_collectives() {
            let mut note = |field: &str, value| {
                values.insert(format!("collectives.{}.{field}", slowest.name), value);
            };
            note("time_us", slowest.time_us);
            note("bound_us", Some(slowest.bound_us));
            note("algbw_GBps", slowest.algbw);
            note("busbw_GBps", slowest.busbw);
        }
        values
    }

    /// For each workload the slowest of its groups, under the workload's name. It counts as unfinished if one of its
    /// groups is.
    pub fn slowest_collectives(&self) -> Vec<CollectiveFacts> {
        let mut slowest: Vec<CollectiveFacts> = Vec::new();
        for collective in &self.collectives {
            let mut one = collective.clone();
            if one.group.is_some() {
                one.name = one.name.rsplit_once('/').map_or(one.name.clone(), |(name, _)| name.to_string());
            }
            let Some(all) = slowest.iter_mut().find(|s| s.name == one.name) else {
                slowest.push(one);
                continue;
            };
            let worse = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| a.zip(b).map(|(a, b)| of(a, b));
            all.group = all.group.max(one.group);
            all.messages += one.messages;
            all.received += one.received;
            all.started_us = all.started_us.into_iter().chain(one.started_us).min_by(f64::total_cmp);
            all.time_us = worse(all.time_us, one.time_us, f64::max);
            all.bound_us = all.bound_us.max(one.bound_us);
            all.algbw = worse(all.algbw, one.algbw, f64::min);
            all.busbw = worse(all.busbw, one.busbw, f64::min);
        }
        slowest
    }
}

fn flatten(prefix: &str, value: &serde_json::Value, values: &mut BTreeMap<String, Option<f64>>) {
    use serde_json::Value;
    let below = |name: &str| if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
    match value {
        Value::Number(n) => {
            values.insert(prefix.to_string(), n.as_f64());
        }
        Value::Null => {
            values.insert(prefix.to_string(), None);
        }
        Value::Bool(b) => {
            values.insert(prefix.to_string(), Some(f64::from(u8::from(*b))));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "faults" {
                    // Faults have no names, only numbers.
                    for (i, fault) in field.as_array().into_iter().flatten().enumerate() {
                        let avoided = fault.get("avoided_after_us").and_then(Value::as_f64);
                        values.insert(format!("{}.{i}.avoided_after_us", below(name)), avoided);
                    }
                } else if !matches!(
                    name.as_str(),
                    "expect"
                        | "timeline"
                        | "hottest"
                        | "slowest"
                        | "parameters"
                        | "series"
                        | "fct_cdf"
                        | "origin"
                        | "map"
                ) {
                    flatten(&below(name), field, values);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                if let Some(name) = item.get("name").and_then(Value::as_str) {
                    flatten(&below(name), item, values);
                }
            }
        }
        Value::String(_) => {}
    }
}
