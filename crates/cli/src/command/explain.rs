//! `strandway explain`.

use crate::Failure;
use crate::args::{ExplainArgs, ImportArgs};
use crate::outputs::{print, terminal_width};
use std::path::Path;
use strandway_import::suggest;
use strandway_lab::Scenario;
use strandway_proto::Profile;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::parameter::ParameterSet;
use strandway_proto::path::PathConfig;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_scenario::keys::{KeyRow, key_rows, key_sections, keys_named};

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let text = match (args.name.as_deref(), &args.scenario) {
        (None, _) => list(),
        (Some("fabric"), Some(path)) => fabric(args, path)?,
        (Some(name), _) => named(name)?,
    };
    print(&text);
    Ok(())
}

/// `strandway import`.
pub(crate) fn import(args: &ImportArgs) -> Result<(), Failure> {
    print(&strandway_import::describe_file_for(&args.file, args.gpus)?);
    Ok(())
}

fn list() -> String {
    let mut text = String::from("Profiles (presets of all three policies and the wire format):\n");
    for name in Profile::NAMES {
        text.push_str(&format!("  {name:<12} {}\n", Profile::summary(name).unwrap_or_default()));
    }
    let row = |title: &str, names: &[&str]| format!("\n{title}:\n  {}\n", names.join(", "));
    text.push_str(&row("Congestion controls, `[profile] congestion`", &CongestionConfig::NAMES));
    text.push_str(&row("Path selectors, `[profile] path`", &PathConfig::NAMES));
    text.push_str(&row("Reliabilities, `[profile] reliability`", &ReliabilityConfig::NAMES));
    text.push_str(&row("Flow-size distributions, `[workload] sizes`", strandway_scenario::size_distributions()));
    text.push_str(&row("Sections of a scenario, with their keys", &key_sections()));
    text.push_str(
        "\n`strandway explain NAME` shows parameters or keys; `strandway explain job.recompute` shows one key;\n\
         `strandway explain fabric SCENARIO` shows values computed for a fabric.\n",
    );
    text
}

/// The explanation of a name: its parameters, then the keys of scenarios that have this name.
fn named(name: &str) -> Result<String, Failure> {
    let keys = keys_named(name);
    match parameters(name)? {
        Some(text) if keys.is_empty() => Ok(text),
        Some(text) => Ok(format!("{text}\n{}", key_text(&keys))),
        None if !keys.is_empty() => Ok(key_text(&keys)),
        None => {
            let lower = name.to_lowercase();
            let known = names();
            let hint = match known.iter().find(|known| **known == lower) {
                Some(known) => format!("did you mean `{known}`?"),
                None => suggest(name, &[known, every_key()].concat()),
            };
            Err(Failure::Usage(format!("`{name}` has no explanation; {hint}")))
        }
    }
}

/// The keys of all sections.
fn every_key() -> Vec<&'static str> {
    key_rows().iter().flat_map(|row| row.keys.iter().copied()).collect()
}

/// Rows of the scenario reference as text.
fn key_text(rows: &[&KeyRow]) -> String {
    let width = terminal_width().unwrap_or(100).max(40);
    let mut text = String::new();
    let mut heading = ("", "");
    for row in rows {
        if heading != (row.section, row.part) {
            heading = (row.section, row.part);
            let brackets = if row.section == "faults" { ("[[", "]]") } else { ("[", "]") };
            let part = if row.part.is_empty() { String::new() } else { format!(", {}", row.part) };
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{}{}{}{part}\n", brackets.0, row.section, brackets.1));
        }
        text.push_str(&format!("  {}\n", row.keys.join(", ")));
        let of = (!row.of.is_empty()).then(|| format!("of: {}", row.of));
        let default = match row.default.as_str() {
            "" => None,
            "required" => Some("required".to_string()),
            default => Some(format!("default: {default}")),
        };
        let meaning = (!row.meaning.is_empty()).then(|| row.meaning.clone());
        for line in [of, default, meaning].into_iter().flatten() {
            text.push_str(&wrapped(&line, width));
        }
    }
    text
}

/// A paragraph in lines of at most `width` characters, each indented by six.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut long) = (String::new(), width);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if long + 1 + length > width {
            let gap = if lines.is_empty() { "      " } else { "\n      " };
            lines.push_str(gap);
            long = 6;
        } else {
            lines.push(' ');
            long += 1;
        }
        lines.push_str(word);
        long += length;
    }
    lines + "\n"
}

/// The parameters of a profile, policy or distribution of this name; `None` if there is none.
fn parameters(name: &str) -> Result<Option<String>, Failure> {
    if name.contains('/') || Profile::preset(name).is_some() {
        let mut profile = strandway_scenario::profile_named(name).map_err(Failure::Usage)?;
        let preset = name.split('/').next().unwrap_or(name);
        let mut text = format!("{name}: {}\n", Profile::summary(preset).unwrap_or_default());
        text.push_str(&format!(
            "reliability {}, congestion control {}, path selector {}; switches' routing: {} (fabric.routing)\n",
            profile.reliability.name(),
            profile.congestion.name(),
            profile.path.name(),
            profile.routing().name()
        ));
        for (group, set) in profile.groups() {
            text.push_str(&table(group, set));
        }
        return Ok(Some(text));
    }
    if let Some(mut config) = CongestionConfig::named(name) {
        return Ok(Some(config.parameters().map(|set| table(name, set)).unwrap_or_default()));
    }
    if let Some(mut config) = PathConfig::named(name) {
        return Ok(Some(config.parameters().map(|set| table(name, set)).unwrap_or_default()));
    }
    if let Some(mut config) = ReliabilityConfig::named(name) {
        return Ok(Some(table(name, config.parameters())));
    }
    if name == "transport" || name == "switch" {
        let mut profile = Profile::preset("uec").ok_or_else(|| Failure::Run("the preset uec is missing".into()))?;
        let groups = profile.groups();
        let groups = groups.into_iter().filter(|(group, _)| *group == name);
        return Ok(Some(groups.map(|(group, set)| table(group, set)).collect()));
    }
    Ok(strandway_scenario::size_distribution(name))
}

/// All names that have an explanation, but keys.
pub(crate) fn names() -> Vec<&'static str> {
    let mut names = [
        &Profile::NAMES[..],
        &CongestionConfig::NAMES,
        &PathConfig::NAMES,
        &ReliabilityConfig::NAMES,
        strandway_scenario::size_distributions(),
        &["transport"],
        &key_sections(),
    ]
    .concat();
    names.sort_unstable();
    names.dedup();
    names
}

/// A group of parameters with the name of its section in a scenario.
fn table(group: &str, set: &dyn ParameterSet) -> String {
    let mut text = format!("\n[profile.{group}]\n");
    let rows = set.table();
    let width = rows.iter().map(|r| r.name.len()).max().unwrap_or(0);
    for row in rows {
        let now = set.get(row.name).map(|v| v.to_string()).unwrap_or_default();
        let default = row.default.to_string();
        let changed = if now == default { String::new() } else { format!(" (default {default})") };
        text.push_str(&format!("  {:<width$}  {now}{changed}\n", row.name));
        text.push_str(&format!("  {:width$}    {}\n  {:width$}    source: {}\n", "", row.what, "", row.source));
    }
    text
}

/// Values computed for the fabric of a scenario.
fn fabric(args: &ExplainArgs, path: &Path) -> Result<String, Failure> {
    let mut scenario = Scenario::load(path)?;
    for change in &args.set {
        scenario.set(change)?;
    }
    let experiment = strandway_lab::check(&scenario)?;
    Ok(strandway_lab::fabric_values(&experiment))
}
