//! `[clustermapper]`: agents that probe every cable, and a controller that denies broken ones.

use crate::keys;
use crate::reader::{Section, Sink};
use strandway_fabric::mapper::{Mapper, PROBES_MAX};
use strandway_fabric::{Topology, fault::FaultPlan};
use strandway_proto::units::{Span, Time};
use toml::Table;

/// Reads the section; `None` without one.
pub(crate) fn read(sink: &Sink, root: &Table) -> Option<Mapper> {
    root.get("clustermapper")?;
    let section = Section::of(sink, root, "clustermapper");
    let usual = Mapper::default();
    let enabled = section.flag("enabled").unwrap_or(true);
    let period = section.span("period").unwrap_or(usual.period);
    if period == Span::ZERO {
        section.wrong("period", "must be above zero", "write, say, \"1 ms\"");
    }
    let few = |key: &'static str, usual: u32| section.count(key, 1, 64).map_or(usual, |n| n as u32);
    let mapper = Mapper {
        period: Span(period.0.max(1)),
        misses: few("misses", usual.misses),
        window: few("window", usual.window),
        successes: few("successes", usual.successes),
        delay: section.span("delay").unwrap_or(usual.delay),
    };
    if mapper.misses > mapper.window {
        section.wrong(
            "misses",
            format!("is more than the window, {}", mapper.window),
            "write fewer, or a longer window",
        );
    }
    keys::finish(section, "clustermapper");
    enabled.then_some(mapper)
}

/// The denials that follow from the faults, and a sentence about them.
pub(crate) fn denials(
    sink: &Sink,
    mapper: &Mapper,
    topology: &Topology,
    faults: &[FaultPlan],
    limit: Time,
    seed: u64,
) -> (Vec<FaultPlan>, String) {
    let Some(denials) = mapper.denials(topology, faults, limit, seed) else {
        let what = format!("would probe more than {PROBES_MAX} times within run.time_limit, {limit}");
        sink.add(
            "clustermapper.period",
            format!("\"{}\"", mapper.period),
            what,
            "write a longer period or an earlier end",
        );
        return (Vec::new(), String::new());
    };
    let first = denials.iter().map(|denial| denial.from).min();
    let again = denials.iter().filter(|denial| denial.until != Time::NEVER).count();
    let note = match first {
        None => "Clustermapper denies no cable".to_string(),
        Some(first) => {
            format!(
                "Clustermapper denies {} times a cable, first at {first}, and allows it again {again} times",
                denials.len()
            )
        }
    };
    (denials.iter().map(|denial| denial.plan(topology)).collect(), note)
}
