//! `[[faults]]`: faults of links, with their times.

use super::targets::{TARGETS, target};
use crate::keys;
use crate::reader::{Section, Sink, show};
use crate::reduction::Reduction;
use strandway_fabric::Topology;
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::quantity;
use strandway_fabric::topology::LinkId;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Rate, Span, Time};
use toml::{Table, Value};

/// Limit on the intervals of a flapping link.
const EXPANSION_MAX: u64 = 100_000;

/// One `[[faults]]` of a scenario, for reports.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultNote {
    /// Its name; empty if the scenario gives none.
    pub name: String,
    /// The links and the kind of fault, such as `plane 2 down, silent`.
    pub what: String,
    /// When it begins.
    pub from: Time,
    /// When it ends; [`Time::NEVER`] if it lasts for the whole run.
    pub until: Time,
    /// The directed links with the fault.
    pub links: Vec<LinkId>,
}

/// All faults of a scenario: for the simulator and for reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) plans: Vec<FaultPlan>,
    pub(crate) notes: Vec<FaultNote>,
}

impl Faults {
    /// Divides the times of all faults, in a run of smaller jobs.
    pub(crate) fn divide(&mut self, reduction: Reduction) {
        let divided = |time: Time| if time == Time::NEVER { time } else { Time(time.0 / reduction.divisor) };
        for plan in &mut self.plans {
            (plan.from, plan.until) = (divided(plan.from), divided(plan.until));
            if let FaultKind::Down { visible: Some(delay) } = &mut plan.kind {
                *delay = reduction.span(*delay);
            }
        }
        for note in &mut self.notes {
            (note.from, note.until) = (divided(note.from), divided(note.until));
        }
    }
}

/// Do all faults of a scenario strike planes or spines, and so all rails alike?
pub(crate) fn are_alike_on_rails(root: &Table) -> bool {
    let alike = |fault: &Value| {
        let spine = fault.get("switch").and_then(Value::as_str).is_some_and(|name| name.starts_with("spine"));
        fault.get("plane").is_some() || spine
    };
    match root.get("faults") {
        None => true,
        Some(Value::Array(faults)) => faults.iter().all(alike),
        Some(fault) => alike(fault),
    }
}

/// Reads all faults of a scenario.
pub(crate) fn read(sink: &Sink, root: &Table, topology: &Topology, seed: u64, time_limit: Time) -> Faults {
    let one;
    let items: &[Value] = match root.get("faults") {
        None => return Faults::default(),
        Some(Value::Array(items)) => items,
        Some(table @ Value::Table(_)) => {
            one = [table.clone()];
            &one
        }
        Some(other) => {
            sink.add("faults", show(other), "must be a list of tables", "write [[faults]] above each fault");
            return Faults::default();
        }
    };
    let mut faults = Faults::default();
    for (i, item) in items.iter().enumerate() {
        let name = if items.len() == 1 { "faults".to_string() } else { format!("faults[{i}]") };
        match item {
            Value::Table(table) => {
                let section = Section::new(sink, name, Some(table));
                let random = Random::new(seed, StreamKind::Fault, i as u64);
                let enabled = section.flag("enabled").unwrap_or(true);
                let (plans, note) = fault(section, topology, random, time_limit);
                if enabled {
                    faults.plans.extend(plans);
                    faults.notes.extend(note);
                }
            }
            other => sink.add(&name, show(other), "must be a table", "write [[faults]] above each fault"),
        }
    }
    faults
}

fn fault(
    section: Section<'_>,
    topology: &Topology,
    random: Random,
    time_limit: Time,
) -> (Vec<FaultPlan>, Option<FaultNote>) {
    let links = target(&section, topology, random);
    let kind = section.choice("kind", &["down", "flap", "degrade", "loss", "deny"]);
    if !section.has("kind") {
        section.sink.add(&section.path("kind"), "", "is missing", "write down, flap, degrade, loss or deny");
    }
    let from = Time(section.span("at").unwrap_or(Span::ZERO).0);
    let until = section.span("until").map_or(Time::NEVER, |s| Time(s.0));
    if until <= from {
        section.wrong("until", format!("is not after the start, {from}"), "write a later time, or leave it out");
        keys::finish(section, "faults");
        return (Vec::new(), None);
    }
    let name = section.text("name").unwrap_or_default();
    let note = links.as_ref().map(|l| FaultNote { name, what: described(&section), from, until, links: l.clone() });
    let mut plans = Vec::new();
    let mut add = |kind, from, until| {
        if let Some(links) = &links {
            plans.push(FaultPlan { links: links.clone(), kind, from, until });
        }
    };
    let down = |section: &Section<'_>| {
        let silent = section.flag("silent").unwrap_or(false);
        let reconverge = section.span("reconverge");
        if silent && reconverge.is_some() {
            section.wrong(
                "reconverge",
                "routing never learns of a silent fault",
                "leave it out, or set silent = false",
            );
        }
        FaultKind::Down { visible: (!silent).then(|| reconverge.unwrap_or(Span::from_ms(1))) }
    };
    match kind {
        Some("down") => add(down(&section), from, until),
        Some("deny") => add(FaultKind::Denied, from, until),
        Some("flap") => {
            let period = section.span("period").unwrap_or(Span::from_us(100));
            let duty = section.ratio("duty", 0.0, 1.0).unwrap_or(0.5);
            let kind = down(&section);
            let end = until.min(time_limit);
            let count = end.since(from).0 / period.0.max(1);
            let dark = Span((period.0 as f64 * (1.0 - duty)) as u64);
            if count > EXPANSION_MAX || period == Span::ZERO {
                let what = format!("the link would go down more than {EXPANSION_MAX} times");
                section.wrong("period", what, "write a longer period or an earlier `until`");
            } else if dark > Span::ZERO {
                // Each period begins with the link down and ends with the link up.
                let mut at = from;
                while at < end {
                    add(kind, at, (at + dark).min(end));
                    at = at + period;
                }
            }
        }
        Some("degrade") => {
            let rate = section.rate("rate");
            let fraction = section.ratio("fraction", 1e-6, 1.0);
            let full = links.as_ref().and_then(|l| l.first()).and_then(|l| topology.ends(*l));
            let fraction = match (fraction, rate, full) {
                (Some(fraction), None, _) => Some(fraction),
                (None, Some(rate), Some(ends)) => of_rate(&section, rate, topology.level_of(&ends).rate),
                (Some(_), Some(_), _) => {
                    section.wrong("rate", "is given together with `fraction`", "write one of the two");
                    None
                }
                (None, None, _) => {
                    let remedy = "write, say, fraction = 0.25 or rate = \"100 Gbps\"";
                    section.sink.add(&section.path("fraction"), "", "is missing", remedy);
                    None
                }
                (None, Some(_), None) => None,
            };
            if let Some(fraction) = fraction {
                add(FaultKind::Degraded { fraction }, from, until);
            }
        }
        Some("loss") => match section.ratio("probability", 0.0, 1.0) {
            Some(probability) => {
                let burst = burst_of(&section).unwrap_or(Burst::NONE);
                add(FaultKind::Loss { probability, burst }, from, until);
            }
            None if section.has("probability") => {}
            None => section.sink.add(&section.path("probability"), "", "is missing", "write, say, probability = 0.01"),
        },
        _ => {}
    }
    keys::finish(section, "faults");
    (plans, note)
}

/// A fault of a swept list in a few words: its name, or its kind, links and times.
pub(crate) fn short_name(table: &Table) -> String {
    let text = |key: &str| table.get(key).map(|value| value.as_str().map_or_else(|| show(value), str::to_string));
    if let Some(name) = text("name") {
        return name;
    }
    let sink = Sink::new("");
    let when = [("at", "at"), ("until", "until")].map(|(key, word)| text(key).map(|time| format!(" {word} {time}")));
    let enabled = table.get("enabled") != Some(&Value::Boolean(false));
    let off = if enabled { "" } else { " (off)" };
    format!(
        "{}{}{off}",
        described(&Section::new(&sink, "faults", Some(table))),
        when.into_iter().flatten().collect::<String>()
    )
}

/// A fault in words, from its keys: `leaf0 - spine3 at 25 % of its rate`.
fn described(section: &Section<'_>) -> String {
    let text = |key: &'static str| match section.raw(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => Some(show(other)),
        None => None,
    };
    let flag = |key| section.raw(key) == Some(&Value::Boolean(true));
    let place = TARGETS.iter().find_map(|key| Some((*key, section.raw(key)?)));
    let place = match place {
        Some(("between", Value::Array(ends))) => ends.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" - "),
        Some(("plane", plane)) => format!("plane {}", show(plane)),
        Some(("tier", Value::String(tier))) => match text("count") {
            Some(count) if flag("per_switch") => format!("{count} of each switch's {tier} links"),
            Some(count) => format!("{count} {tier} links"),
            None => format!("{tier} links"),
        },
        Some((_, Value::String(name))) => name.clone(),
        _ => String::new(),
    };
    let silent = if flag("silent") { ", silent" } else { "" };
    let effect = match text("kind").as_deref() {
        Some("down") => format!("down{silent}"),
        Some("deny") => "denied by the controller".to_string(),
        Some("flap") => format!("flapping every {}{silent}", text("period").unwrap_or_else(|| "100 us".into())),
        Some("degrade") => match (text("fraction"), text("rate")) {
            (Some(fraction), _) => match quantity::ratio(&fraction) {
                Ok(share) => format!("at {} % of its rate", share * 100.0),
                Err(_) => format!("at {fraction} of its rate"),
            },
            (None, rate) => format!("at {}", rate.unwrap_or_default()),
        },
        Some("loss") => {
            let share = text("probability").and_then(|p| quantity::ratio(&p).ok()).unwrap_or(0.0);
            loses(share, written_burst(section.raw("burst")).unwrap_or(Burst::NONE))
        }
        other => other.unwrap_or_default().to_string(),
    };
    format!("{place} {effect}")
}

/// The losses of a link in words.
pub(super) fn loses(share: f64, burst: Burst) -> String {
    let burst = match burst {
        Burst::NONE => String::new(),
        Burst::Packets(length) => format!(", {length} in a row on average"),
        Burst::Time(length) => format!(", for {length} at a time on average"),
    };
    format!("loses {} % of packets{burst}", share * 100.0)
}

/// `burst = 8` or `burst = "100 us"`; `None` if it is wrong.
fn written_burst(value: Option<&Value>) -> Option<Burst> {
    match value? {
        Value::String(text) => match quantity::span(text) {
            Ok(length) => Some(Burst::Time(length)),
            Err(_) => quantity::ratio(text).ok().map(Burst::Packets),
        },
        Value::Integer(n) => Some(Burst::Packets(*n as f64)),
        Value::Float(x) => Some(Burst::Packets(*x)),
        _ => None,
    }
}

/// The length of bursts: a number of packets, or a time.
pub(super) fn burst_of(section: &Section<'_>) -> Option<Burst> {
    match written_burst(section.raw("burst")) {
        Some(Burst::Time(Span::ZERO)) => {
            section.wrong("burst", "must be above zero", "write, say, \"100 us\" or, in packets, 4");
            None
        }
        Some(burst @ Burst::Time(_)) => Some(burst),
        _ => section.ratio("burst", 1.0, 1e6).map(Burst::Packets),
    }
}

fn of_rate(section: &Section<'_>, rate: Rate, full: Rate) -> Option<f64> {
    if rate > full {
        section.wrong("rate", format!("is more than the link's {full}"), "write less");
        return None;
    }
    Some(rate.0 as f64 / full.0 as f64)
}
