//! Many scenarios of one: all combinations of a `[sweep]`, or one per profile.

use crate::keys::SECTIONS;
use crate::reader::{Sink, show};
use crate::scenario::{Scenario, value_of};
use crate::targets::TARGETS;
use crate::{faults, profile};
use std::collections::BTreeMap;
use strandway_import::{Problem, Problems};
use strandway_report::lines::SEED;
use strandway_report::rows::short_names;
use toml::{Table, Value};

/// Limit on the runs of a sweep.
const VARIANTS_MAX: usize = 10_000;

/// One of the runs.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub label: String,
    /// The keys that it sets, dotted, with values as text.
    pub set: BTreeMap<String, String>,
    /// The scenario with these settings.
    pub scenario: Scenario,
}

/// All combinations of the scenario's `[sweep]`, not checked; the last key varies fastest.
///
/// # Errors
/// If there is no sweep, or it is wrong.
pub fn combinations(scenario: &Scenario) -> Result<Vec<Variant>, Problems> {
    let sink = Sink::new(scenario.file());
    let axes = axes(scenario, &sink);
    if axes.is_empty() && sink.is_empty() {
        let remedy = "add, say, [sweep] and below it \"profile.path\" = [\"oblivious\", \"reps\"]";
        sink.add("sweep", "", "there is nothing to sweep", remedy);
    }
    if !sink.is_empty() {
        return Err(Problems(sink.take()));
    }
    let base = Variant { label: String::new(), set: BTreeMap::new(), scenario: without_sweep(scenario) };
    expand(vec![base], axes)
}

/// Combines every variant with all combinations of the values of `axes`; the last key varies fastest.
///
/// # Errors
/// If a key does not exist.
fn expand(mut variants: Vec<Variant>, axes: Vec<(String, Vec<Value>)>) -> Result<Vec<Variant>, Problems> {
    let names = match variants.first() {
        Some(first) => axes.iter().map(|(key, _)| with_name(&first.scenario, key)).collect(),
        None => Vec::new(),
    };
    let shorts = short_names(names.iter().map(String::as_str));
    for ((key, values), name) in axes.into_iter().zip(&names) {
        let short = shorts.get(name).unwrap_or(name);
        let mut next = Vec::with_capacity(variants.len() * values.len());
        for variant in &variants {
            for value in &values {
                let mut made = variant.clone();
                let shown = plain(value);
                made.scenario.put(&key, value.clone()).map_err(|what| {
                    Problems(vec![Problem {
                        file: variant.scenario.file().to_string(),
                        line: None,
                        key: format!("sweep.\"{key}\""),
                        value: shown.clone(),
                        what,
                        remedy: "sweep keys that the scenario has".into(),
                    }])
                })?;
                let separator = if made.label.is_empty() { "" } else { ", " };
                made.label.push_str(&format!("{separator}{short}={shown}"));
                made.set.insert(name.clone(), shown);
                next.push(made);
            }
        }
        variants = next;
    }
    variants.iter_mut().for_each(|variant| variant.scenario.list_own_files());
    Ok(variants)
}

/// A key with the name of its fault instead of the fault's number, if it has one.
fn with_name(scenario: &Scenario, key: &str) -> String {
    let Some((number, rest)) = key.strip_prefix("faults.").and_then(|rest| rest.split_once('.')) else {
        return key.to_string();
    };
    let named = || {
        let fault = scenario.table.get("faults")?.as_array()?.get(number.parse::<usize>().ok()?)?;
        Some(format!("faults.{}.{rest}", fault.get("name")?.as_str()?))
    };
    named().unwrap_or_else(|| key.to_string())
}

/// The scenario once per profile, not checked. A profile is a preset, perhaps with other policies (`uec/reps`), or `.`
/// for the scenario's own profile. Changes of keys may follow, each after a plus sign: `prime+routing=hashed` changes
/// `fabric.routing`, and `uec+workload.size=1MB` changes a key of any section. Keys of the scenario's `[sweep]` are
/// varied as well, except those of `[profile]`.
///
/// # Errors
/// If a profile is not known.
pub fn per_profile(scenario: &Scenario, profiles: &[String]) -> Result<Vec<Variant>, Problems> {
    let mut problems = Vec::new();
    let mut variants = Vec::new();
    let wrong = |asked: &str, what: String| Problem {
        file: String::new(),
        line: None,
        key: "--profiles".into(),
        value: asked.to_string(),
        what,
        remedy: "write keys behind plus signs, such as prime+routing=hashed or uec+workload.size=1MB".into(),
    };
    let sink = Sink::new(scenario.file());
    let mut axes = axes(scenario, &sink);
    problems.extend(sink.take());
    // The profile differs between rows, so the sweep must not vary it.
    axes.retain(|(key, _)| !key.starts_with("profile."));
    for (i, asked) in profiles.iter().map(|p| p.trim()).enumerate() {
        if profiles[..i].iter().any(|before| before.trim() == asked) {
            problems.push(wrong(asked, "is in the list twice".into()));
            continue;
        }
        let (name, keys) = match asked.split_once('+') {
            None => (asked, Vec::new()),
            Some((name, keys)) => (name, keys.split('+').collect()),
        };
        let mut made = Variant {
            label: asked.to_string(),
            set: BTreeMap::from([("profile.name".to_string(), name.to_string())]),
            scenario: without_sweep(scenario),
        };
        if name == "." && keys.is_empty() {
            made.label = "as written".into();
        } else if name != "." {
            match profile::named(name) {
                Ok(mut profile) => {
                    let groups: Vec<&'static str> = profile.groups().iter().map(|(name, _)| *name).collect();
                    keep_groups(&mut made.scenario, name, &groups);
                }
                Err(what) => {
                    problems.push(Problem {
                        file: String::new(),
                        line: None,
                        key: "--profiles".into(),
                        value: name.to_string(),
                        what,
                        remedy: "write presets with commas between, such as rocev2,uec,uec/reps".into(),
                    });
                    continue;
                }
            }
        }
        for change in keys {
            if let Err(what) = change_key(&mut made, change) {
                problems.push(wrong(asked, what));
            }
        }
        for (key, _) in axes.iter().filter(|(key, _)| made.set.contains_key(key)) {
            problems.push(wrong(asked, format!("sets {key}, which the scenario's [sweep] varies")));
        }
        variants.push(made);
    }
    if problems.is_empty() { expand(variants, axes) } else { Err(Problems(problems)) }
}

/// Keys of `[run]` that users may forget to qualify.
const RUN_KEYS: [&str; 3] = ["seed", "time_limit", "threads"];

/// Applies `key=value` to one row. A key without a section is a key of `[fabric]`.
fn change_key(made: &mut Variant, change: &str) -> Result<(), String> {
    let (key, value) = change.split_once('=').ok_or_else(|| format!("`{change}` is no key and value"))?;
    let first = key.split(['.', '[']).next().unwrap_or_default();
    if !key.contains('.') && RUN_KEYS.contains(&first) {
        return Err(format!("`{key}` is no key of [fabric]; did you mean run.{key}?"));
    }
    let key = if key.contains('.') { key.to_string() } else { format!("fabric.{key}") };
    made.scenario.put(&key, value_of(value))?;
    made.set.insert(key, value.to_string());
    Ok(())
}

/// Reports an error if `--seed` has no effect because the sweep varies the seed.
///
/// # Errors
/// If the scenario sweeps the seed.
pub fn seed_counts(scenario: &Scenario, seed: u64) -> Result<(), Problems> {
    let axes = axes(scenario, &Sink::new(scenario.file()));
    if !axes.iter().any(|(key, _)| key == SEED) {
        return Ok(());
    }
    Err(Problems(vec![Problem {
        file: scenario.file().to_string(),
        line: None,
        key: "--seed".into(),
        value: seed.to_string(),
        what: "has no effect: the scenario sweeps run.seed".into(),
        remedy: format!("write --set sweep.run.seed='[{seed}]'"),
    }]))
}

/// Replaces `[profile]` by the preset `name`. The scenario's parameters are kept for those groups that the preset has.
fn keep_groups(scenario: &mut Scenario, name: &str, groups: &[&str]) {
    let mut kept = Table::new();
    if let Some(Value::Table(old)) = scenario.table.get("profile") {
        kept.extend(old.iter().filter(|(key, _)| groups.contains(&key.as_str())).map(|(k, v)| (k.clone(), v.clone())));
    }
    kept.insert("name".into(), Value::String(name.to_string()));
    // Setting a table at the top of a scenario cannot fail.
    let _ = scenario.put("profile", Value::Table(kept));
    scenario.note_change("profile", "profile.name", name);
}

fn without_sweep(scenario: &Scenario) -> Scenario {
    let mut made = scenario.clone();
    made.table.remove("sweep");
    made
}

/// Reports all problems of `[sweep]`.
pub(crate) fn check(scenario: &Scenario, sink: &Sink) {
    axes(scenario, sink);
}

fn axes(scenario: &Scenario, sink: &Sink) -> Vec<(String, Vec<Value>)> {
    let mut axes = Vec::new();
    match scenario.table.get("sweep") {
        None => {}
        Some(Value::Table(table)) => walk(sink, "", table, &mut axes),
        Some(other) => sink.add("sweep", show(other), "must be a table", "write a section [sweep]"),
    }
    let runs = axes.iter().map(|(_, values)| values.len()).try_fold(1usize, usize::checked_mul);
    if runs.is_none_or(|n| n > VARIANTS_MAX) {
        sink.add("sweep", "", format!("makes more than {VARIANTS_MAX} runs"), "take values or keys out");
        axes.clear();
    }
    axes
}

fn walk(sink: &Sink, prefix: &str, table: &Table, axes: &mut Vec<(String, Vec<Value>)>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => walk(sink, &key, inner, axes),
            Value::Array(values) if !values.is_empty() => {
                let section = key.split('.').next().unwrap_or_default();
                let whole = matches!(key.as_str(), "faults" | "workload");
                if SECTIONS.contains(&section)
                    && section != "sweep"
                    && section != "expect"
                    && (whole || key.contains('.'))
                {
                    for (i, value) in values.iter().enumerate() {
                        if values[..i].contains(value) {
                            let remedy = "take it out; a second run would give the same result";
                            sink.add(&format!("sweep.\"{key}\""), show(value), "is in the list twice", remedy);
                        }
                    }
                    axes.push((key, values.clone()));
                } else {
                    let remedy = "write a dotted key such as \"profile.path\" or \"workload.size\"";
                    sink.add(&format!("sweep.\"{key}\""), show(value), "is no key of a scenario", remedy);
                }
            }
            other => {
                let remedy = "write a list of values in brackets";
                sink.add(&format!("sweep.\"{key}\""), show(other), "must be a list that is not empty", remedy);
            }
        }
    }
}

/// True for an entry of `[[faults]]`: it has a target.
fn is_fault(table: &Table) -> bool {
    TARGETS.iter().any(|key| table.contains_key(*key))
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_string(),
        Value::Array(items) if items.iter().any(Value::is_table) => {
            items.iter().map(plain).collect::<Vec<_>>().join(" and ")
        }
        Value::Table(table) if table.contains_key("kind") && is_fault(table) => faults::short_name(table),
        Value::Table(table) => {
            let keys: Vec<String> = table.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect();
            format!("({})", keys.join(" "))
        }
        other => show(other),
    }
}
