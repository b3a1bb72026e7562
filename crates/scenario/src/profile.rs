//! `[profile]`: a preset, its three policies, and single parameters.

use crate::reader::{Section, Sink, show};
use strandway_fabric::Topology;
use strandway_fabric::quantity;
use strandway_import::suggest;
use strandway_proto::Profile;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::parameter::{ParameterError, ParameterSet, Value as Parameter};
use strandway_proto::path::PathConfig;
use strandway_proto::profile::UnknownName;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::units::Rate;
use toml::{Table, Value};

/// The keys of `[profile]` that are not groups of parameters.
pub(crate) const KEYS: [&str; 6] = ["name", "label", "reliability", "congestion", "path", "evs"];

/// Reads a profile name of `--profiles` or a sweep: a preset, perhaps with other policies, such as `uec/reps/swift`.
///
/// # Errors
/// A sentence with its remedy, if a part is not known, or the parts do not fit.
pub fn named(name: &str) -> Result<Profile, String> {
    let profile = Profile::named(name).map_err(|unknown| {
        let (part, remedy) = (unknown.part(), suggest(unknown.part(), &unknown.known()));
        match unknown {
            UnknownName::Preset(_) => format!("`{part}` is no profile; {remedy}"),
            UnknownName::Policy(_) => {
                format!("`{part}` is no path selector, congestion control or reliability; {remedy}")
            }
        }
    })?;
    match deaf(&profile) {
        Some(what) => Err(format!("{what}; {HEAR}")),
        None => Ok(profile),
    }
}

pub(crate) fn read(sink: &Sink, root: &Table) -> Option<Profile> {
    let section = Section::of(sink, root, "profile");
    let name = section.text("name").unwrap_or_else(|| "uec".to_string());
    let mut profile = match named(&name) {
        Ok(profile) => profile,
        Err(said) => {
            section.wrong("name", said, format!("`strandway explain` lists them all: {}", Profile::NAMES.join(", ")));
            return None;
        }
    };
    let mut changed = Vec::new();
    if let Some(reliability) = section.choice("reliability", &ReliabilityConfig::NAMES) {
        changed.push(reliability);
        if reliability != profile.reliability.name() {
            profile.reliability = ReliabilityConfig::named(reliability)?;
        }
    }
    if let Some(congestion) = section.choice("congestion", &CongestionConfig::NAMES) {
        changed.push(congestion);
        if congestion != profile.congestion.name() {
            profile.choose_congestion(CongestionConfig::named(congestion)?);
        }
    }
    if let Some(path) = section.choice("path", &PathConfig::NAMES) {
        changed.push(path);
        if path != profile.path.name() {
            profile.path = PathConfig::named(path)?;
        }
    }
    if !changed.is_empty() {
        profile.name = format!("{name}/{}", changed.join("/"));
    }
    if let Some(label) = section.text("label") {
        profile.name = label;
    }
    if let Some(Value::Table(table)) = root.get("profile") {
        groups(sink, table, &mut profile, &name);
    }
    if let Some(value) = root.get("profile").and_then(|profile| profile.get("evs")) {
        profile.evs = super::evs::read(sink, value, &profile.path);
    }
    repair_fits(sink, root, &profile);
    Some(profile)
}

/// The reason why a profile's congestion control cannot work, if it cannot: records of switches come back with
/// acknowledgements, and connections of SDR-RDMA have none. Nor do their packets ask for credit.
fn deaf(profile: &Profile) -> Option<String> {
    let (control, reliability) = (profile.congestion.name(), profile.reliability.name());
    let is_one_way = profile.reliability.is_one_way();
    let is_deaf = profile.congestion.needs_telemetry() && is_one_way;
    if profile.congestion.credit().is_some() && is_one_way {
        return Some(format!("`{control}` uses a receiver's credit, for which packets of `{reliability}` do not ask"));
    }
    if profile.congestion.credit().is_some() && profile.congestion.shares_window() {
        return Some(format!(
            "`{control}` uses a receiver's credit, which each connection has for itself, and shares windows"
        ));
    }
    is_deaf.then(|| format!("`{control}` reads records in acknowledgements, and `{reliability}` has none"))
}

/// The remedy for it.
const HEAR: &str = "take another congestion control, or a profile with acknowledgements, such as `rocev2/hpcc`";

/// Checks rules that involve several parameters: erasure codes must exist, and connections without repair need programs
/// that a scenario cannot have.
fn repair_fits(sink: &Sink, root: &Table, profile: &Profile) {
    if let Some(what) = deaf(profile) {
        let shown = root.get("profile").and_then(|p| p.get("congestion").or(p.get("reliability"))).map(show);
        sink.add("profile.congestion", shown.unwrap_or_default(), what, HEAR.to_string());
    }
    let written = |key: &str| root.get("profile")?.get(profile.reliability.name())?.get(key);
    if let Err(error) = profile.reliability.code() {
        let (name, shown) = (profile.reliability.name(), written("m").or(written("k")).map(show));
        let remedy = "write fewer of them: (32, 8) is the usual code".to_string();
        sink.add(&format!("profile.{name}.m"), shown.unwrap_or_default(), format!("makes no code: {error}"), remedy);
    }
    if let ReliabilityConfig::Partial(_) = &profile.reliability {
        let what = "repairs nothing: it is for programs that read the bitmaps themselves".to_string();
        let remedy = "write \"sdr_auto\", \"sdr_sr\", \"sdr_nack\", \"sdr_xor\" or \"sdr_mds\"".to_string();
        sink.add("profile.reliability", "\"partial\"".to_string(), what, remedy);
    }
}

/// Checks that there are enough paths. If a scenario asks for more entropy values than there are paths, that is an
/// error; defaults are reduced to the number of paths.
pub(crate) fn paths_suffice(sink: &Sink, root: &Table, profile: &Profile, topology: &Topology) {
    let PathConfig::Mrc(config) = &profile.path else { return };
    super::evs::fit(sink, profile, topology);
    let written = |key: &str| root.get("profile")?.get("mrc")?.get(key);
    let planes = u64::from(topology.planes());
    let (first, second) = (u64::from(topology.leaf_up()), u64::from(topology.spine_up()).max(1));
    let paths = planes * first * second;
    let ways = if second > 1 { format!("{first} x {second}") } else { first.to_string() };
    let each = if planes == 1 { "one plane".to_string() } else { format!("{planes} planes") };
    let of = format!("{paths} paths between distant hosts ({each} of {ways})");
    let wider = if topology.tiers() == 2 { "fabric.spines" } else { "fabric.aggs_per_pod or fabric.cores_per_agg" };
    let (active, backup) = (u64::from(config.active), u64::from(config.backup));
    let complain = |key: &str, what: String, remedy: String| {
        sink.add(&format!("profile.mrc.{key}"), written(key).map(show).unwrap_or_default(), what, remedy);
    };
    if written("active").is_some() && active > paths {
        let what = format!("is more than the fabric has: {of}");
        let remedy = format!("write at most {paths}, leave it out to use them all, or raise {wider} or fabric.planes");
        complain("active", what, remedy);
    } else if written("active").is_some() && active < planes {
        let what = format!("is less than one for each of the {planes} planes");
        complain("active", what, format!("write at least {planes}, or lower fabric.planes"));
    }
    let used = active.min(paths);
    if written("backup").is_some() && backup > 0 && used + backup > paths {
        let what = format!("is too many: {used} are in use of the fabric's {of}");
        let lower = if used > planes { ", lower profile.mrc.active" } else { "" };
        let remedy =
            format!("write at most {}, leave it out to use the default{lower}, or raise {wider}", paths - used);
        complain("backup", what, remedy);
    }
}

/// Lengthens the timeout of go-back-N on switches that pause, unless the scenario sets it: its 1 ms suits 400 Gb/s. At
/// a lower rate, packets that wait behind pauses would be sent again although none is lost. Returns a note.
pub(crate) fn wait_for_pauses(profile: &mut Profile, written: Option<&Table>, rate: Rate) -> Option<String> {
    const USUAL: Rate = Rate::from_gbps(400);
    let name = profile.name.clone();
    let ReliabilityConfig::GoBackN(config) = &mut profile.reliability else { return None };
    let set = written.and_then(|table| table.get("go_back_n")?.get("rto")).is_some();
    if set || rate >= USUAL || rate.0 == 0 {
        return None;
    }
    config.rto = config.rto.scaled(USUAL.0 as f64 / rate.0 as f64);
    Some(format!(
        "{name}: go_back_n.rto is {} at {rate}, in proportion to 1 ms at {USUAL}, since packets wait while switches pause (PFC)",
        config.rto
    ))
}

/// Applies the sub-tables of `[profile]`, one for each group of parameters.
fn groups(sink: &Sink, table: &Table, profile: &mut Profile, preset: &str) {
    let mut groups = profile.groups();
    let names: Vec<&'static str> = groups.iter().map(|(name, _)| *name).collect();
    for (key, value) in table {
        if KEYS.contains(&key.as_str()) {
            continue;
        }
        let path = format!("profile.{key}");
        let Some((name, group)) = groups.iter_mut().find(|(name, _)| *name == key) else {
            let every: Vec<&str> = KEYS.iter().copied().chain(names.iter().copied()).collect();
            let what = if exists(key) {
                format!("the profile `{preset}` as set here does not use `{key}`")
            } else {
                "unknown key".to_string()
            };
            let remedy = if exists(key) {
                format!("its groups are {}; choose {key} with `reliability`, `congestion` or `path`", names.join(", "))
            } else {
                suggest(key, &every)
            };
            sink.add(&path, show(value), what, remedy);
            continue;
        };
        let Value::Table(parameters) = value else {
            sink.add(&path, show(value), "must be a table of parameters", format!("write a section [profile.{name}]"));
            continue;
        };
        for (parameter, value) in parameters {
            set(sink, &format!("{path}.{parameter}"), *group, parameter, value);
        }
    }
}

/// True if some profile has a group with this name.
fn exists(name: &str) -> bool {
    PathConfig::NAMES.contains(&name)
        || CongestionConfig::NAMES.contains(&name)
        || ReliabilityConfig::NAMES.contains(&name)
}

fn set(sink: &Sink, path: &str, group: &mut dyn ParameterSet, name: &str, value: &Value) {
    let complain = |what: &str, remedy: String| sink.add(path, show(value), what, remedy);
    let Some(now) = group.get(name) else {
        let table = group.table();
        let known: Vec<&str> = table.iter().map(|p| p.name).collect();
        return complain("unknown parameter", suggest(name, &known));
    };
    let new = match convert(value, now) {
        Ok(new) => new,
        Err((what, remedy)) => return complain(&what, remedy),
    };
    match group.set(name, new) {
        Ok(()) => {}
        Err(ParameterError::Range(low, high)) => {
            let (low, high) = (in_unit(low, now), in_unit(high, now));
            complain("is out of range", format!("write a value from {low} to {high}"));
        }
        Err(ParameterError::Kind(wanted)) => complain("is of the wrong kind", format!("write {}", wanted.kind())),
        Err(ParameterError::Unknown) => complain("unknown parameter", String::new()),
    }
}

/// Converts a TOML value to a parameter of the same kind as `like`.
fn convert(value: &Value, like: Parameter) -> Result<Parameter, (String, String)> {
    let wrong = || (format!("must be {}", like.kind()), format!("its default is {}", written(like)));
    let unit = |e: quantity::QuantityError| (e.what, e.remedy);
    Ok(match (like, value) {
        (Parameter::Count(_), Value::Integer(n)) => match u64::try_from(*n) {
            Ok(n) => Parameter::Count(n),
            Err(_) => return Err(("cannot be negative".into(), format!("its default is {}", written(like)))),
        },
        (Parameter::Ratio(_), Value::Float(x)) if !x.is_finite() => {
            return Err(("must be a finite number".into(), format!("its default is {}", written(like))));
        }
        (Parameter::Ratio(_), Value::Float(x)) => Parameter::Ratio(*x),
        (Parameter::Ratio(_), Value::Integer(n)) => Parameter::Ratio(*n as f64),
        (Parameter::Ratio(_), Value::String(text)) => Parameter::Ratio(quantity::ratio(text).map_err(unit)?),
        (Parameter::Flag(_), Value::Boolean(flag)) => Parameter::Flag(*flag),
        (Parameter::Span(_), Value::String(text)) => Parameter::Span(quantity::span(text).map_err(unit)?),
        (Parameter::Rate(_), Value::String(text)) => Parameter::Rate(quantity::rate(text).map_err(unit)?),
        (Parameter::Bytes(_), Value::String(text)) => Parameter::Bytes(quantity::bytes(text).map_err(unit)?),
        (Parameter::Span(_) | Parameter::Rate(_) | Parameter::Bytes(_), Value::Integer(_) | Value::Float(_)) => {
            return Err(("needs a unit".into(), format!("write {}; its default is {}", like.kind(), written(like))));
        }
        _ => return Err(wrong()),
    })
}

/// A parameter's value as scenarios write it.
fn written(value: Parameter) -> String {
    match value {
        Parameter::Span(_) | Parameter::Rate(_) | Parameter::Bytes(_) => format!("\"{value}\""),
        _ => value.to_string(),
    }
}

/// A limit of a range, with the unit of `like`.
fn in_unit(bound: f64, like: Parameter) -> String {
    use strandway_proto::units::{Bytes, Rate, Span};
    match like {
        Parameter::Span(_) => Span(bound as u64).to_string(),
        Parameter::Rate(_) => Rate(bound as u64).to_string(),
        Parameter::Bytes(_) => Bytes(bound as u64).to_string(),
        _ => bound.to_string(),
    }
}
