//! `strandway explain`.

use crate::Failure;
use crate::args::{ExplainArgs, ImportArgs};
use crate::outputs::print;
use strandway_import::suggest;
use strandway_lab::{Scenario, report};
use strandway_proto::Profile;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::parameter::ParameterSet;
use strandway_proto::path::PathConfig;
use strandway_proto::reliability::ReliabilityConfig;

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let text = match args.name.as_deref() {
        None => list(),
        Some("fabric") => fabric(args)?,
        Some(name) => named(name)?,
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
    text.push_str(&row("Flow-size distributions, `[workload] sizes`", strandway_lab::plan::size_distributions()));
    text.push_str("\n`strandway explain NAME` shows parameters; `strandway explain fabric SCENARIO` shows values computed for a fabric.\n");
    text
}

fn named(name: &str) -> Result<String, Failure> {
    if name.contains('/') || Profile::preset(name).is_some() {
        let mut profile = strandway_lab::profile_named(name).map_err(Failure::Usage)?;
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
        return Ok(text);
    }
    if let Some(mut config) = CongestionConfig::named(name) {
        return Ok(config.parameters().map(|set| table(name, set)).unwrap_or_default());
    }
    if let Some(mut config) = PathConfig::named(name) {
        return Ok(config.parameters().map(|set| table(name, set)).unwrap_or_default());
    }
    if let Some(mut config) = ReliabilityConfig::named(name) {
        return Ok(table(name, config.parameters()));
    }
    if name == "transport" || name == "switch" {
        let mut profile = Profile::preset("uec").ok_or_else(|| Failure::Run("the preset uec is missing".into()))?;
        let groups = profile.groups();
        return Ok(groups
            .into_iter()
            .filter(|(group, _)| *group == name)
            .map(|(group, set)| table(group, set))
            .collect());
    }
    if let Some(text) = strandway_lab::plan::size_distribution(name) {
        return Ok(text);
    }
    let lower = name.to_lowercase();
    let known = names();
    let hint = match known.iter().find(|known| **known == lower) {
        Some(known) => format!("did you mean `{known}`?"),
        None => suggest(name, &known),
    };
    Err(Failure::Usage(format!("`{name}` has no explanation; {hint}")))
}

/// All names that have an explanation.
pub(crate) fn names() -> Vec<&'static str> {
    [
        &Profile::NAMES[..],
        &CongestionConfig::NAMES,
        &PathConfig::NAMES,
        &ReliabilityConfig::NAMES,
        strandway_lab::plan::size_distributions(),
        &["transport", "switch", "fabric"],
    ]
    .concat()
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

fn fabric(args: &ExplainArgs) -> Result<String, Failure> {
    let Some(path) = &args.scenario else {
        return Err(Failure::Usage(
            "explain fabric: needs a scenario; write `strandway explain fabric my.toml`".into(),
        ));
    };
    let mut scenario = Scenario::load(path)?;
    for change in &args.set {
        scenario.set(change)?;
    }
    let experiment = scenario.check()?;
    Ok(report::text::fabric(&experiment))
}
