//! How well the localiser of gray failures does in the simulator: random faults of one link, and runs without any.

use crate::check;
use crate::run::simulate;
use std::collections::BTreeSet;
use strandway_fabric::gray::{GraySettings, PathSample, find};
use strandway_fabric::{LinkId, Measurements};
use strandway_import::Problems;
use strandway_proto::rng::{Random, StreamKind};
use strandway_report::gray::{GrayCounts, GrayStudy};
use strandway_scenario::{Experiment, Scenario};
use strandway_sim::Control;
use toml::{Table, Value};

/// The gray faults that are tried in turn: a name, and the keys of `[[faults]]`.
const KINDS: [(&str, &str, &str, f64); 2] =
    [("1 % loss", "loss", "probability", 0.01), ("a tenth of the rate", "degrade", "fraction", 0.1)];

/// Runs `faults` random faults of a cable, half of them losses and half slow links, and `healthy` runs without a fault,
/// each with a seed of its own. `each` is called after each run with their number so far; it ends the study by returning
/// false.
///
/// # Errors
/// If the scenario is wrong, or its senders do not choose paths.
pub fn gray_study(
    scenario: &Scenario,
    (faults, healthy): (u32, u32),
    mut each: impl FnMut(u32) -> bool,
) -> Result<GrayStudy, Problems> {
    let whole = check(scenario)?;
    let topology = &whole.plan.topology;
    // One direction names a cable.
    let cables: Vec<LinkId> =
        (0..topology.links()).map(LinkId).filter(|link| topology.ends(*link).is_some_and(|ends| ends.up)).collect();
    let mut random = Random::new(whole.plan.seed, StreamKind::Workload, u64::MAX);
    let mut study = GrayStudy { format: 1, links: cables.len() as u32, ..GrayStudy::default() };
    for run in 0..faults + healthy {
        let mut scenario = scenario.clone();
        let seed = i64::from(run) + whole.plan.seed as i64;
        scenario.set_value("run.seed", Value::Integer(seed))?;
        let fault = (run < faults).then(|| {
            let kind = KINDS[run as usize % KINDS.len()];
            (cables[random.below(cables.len() as u32) as usize], kind)
        });
        if let Some((cable, (_, kind, key, value))) = fault {
            let ends = topology.ends(cable).expect("a cable");
            let names = [ends.from, ends.to].map(|node| Value::String(topology.node_name(node)));
            let mut table = Table::new();
            // Between a host and its leaf there is a cable per plane.
            match topology.node_name(ends.from) {
                host if host.starts_with("host") => {
                    table.insert("port".into(), Value::String(format!("{host}.p{}", ends.plane)));
                }
                _ => {
                    table.insert("between".into(), Value::Array(names.to_vec()));
                }
            }
            table.insert("kind".into(), Value::String(kind.into()));
            table.insert(key.into(), Value::Float(value));
            scenario.set_value("faults", Value::Array(vec![Value::Table(table)]))?;
        }
        let mut experiment = check(&scenario)?;
        experiment.plan.tally_paths = true;
        let measured = simulate(&experiment, &Control::new());
        let samples = samples(&experiment, &measured);
        let found = find(&samples, &GraySettings::default());
        // Both directions of a cable are one part.
        let cable = |link: LinkId| topology.ends(link).map_or(link, |ends| if ends.up { link } else { ends.reverse });
        let named: BTreeSet<Vec<LinkId>> = found
            .iter()
            .map(|part| part.links.iter().map(|link| cable(*link)).collect::<BTreeSet<_>>().into_iter().collect())
            .collect();
        let counts = match fault {
            None => &mut study.healthy,
            Some((_, (name, ..))) => {
                if !study.kinds.iter().any(|(kind, _)| kind == name) {
                    study.kinds.push((name.into(), GrayCounts::default()));
                }
                let at = study.kinds.iter().position(|(kind, _)| kind == name).unwrap_or(0);
                &mut study.kinds[at].1
            }
        };
        let right = |parts: &Vec<LinkId>| fault.is_some_and(|(broken, _)| parts.contains(&broken));
        counts.runs += 1;
        counts.named += u32::from(named.iter().any(right));
        counts.alone += u32::from(named.iter().any(|parts| right(parts) && parts.len() == 1));
        counts.right += named.iter().filter(|parts| right(parts)).count() as u32;
        counts.wrong += named.iter().filter(|parts| !right(parts)).count() as u32;
        counts.simulated_us += measured.simulated.0 as f64 / 1e6;
        if !each(run + 1) {
            break;
        }
    }
    Ok(study)
}

/// The fate of the packets of each connection, path by path.
fn samples(experiment: &Experiment, measured: &Measurements) -> Vec<PathSample<LinkId>> {
    let sample = |(connection, counts): &(u32, strandway_proto::path::PathCounts)| {
        let plan = experiment.plan.connections[*connection as usize];
        PathSample {
            interval: 0,
            source: plan.source.0,
            destination: plan.destination.0,
            plane: counts.path.port(),
            links: experiment.plan.topology.source_route(plan.source, plan.destination, counts.path),
            sent: counts.sent,
            weight: counts.sent as f64,
            lost: counts.lost,
            late: 0,
            trimmed: counts.trimmed,
            measured: counts.measured,
            rtt: counts.rtts.0 as f64 / counts.measured.max(1) as f64,
        }
    };
    // Rows of packets that arrived have sent nothing.
    measured.path_counts.iter().filter(|(_, counts)| counts.sent > 0).map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FABRIC: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 16\nplanes = 2\nhosts_per_leaf = 4\nspines = 4\nrate = \"200 Gbps\"\n\
        routing = \"source\"\n[profile]\nname = \"uec\"\n[workload]\nkind = \"flows\"\n";

    #[test]
    fn random_gray_faults_are_named_and_healthy_fabrics_name_nobody() {
        let pairs = (0..16).flat_map(|a| (0..16).map(move |b| (a, b))).filter(|(a, b)| a != b);
        let flows: Vec<String> = pairs.map(|(a, b)| format!("{{ from = {a}, to = {b}, size = \"1 MB\" }}")).collect();
        let text = format!("{FABRIC}flows = [{}]\n", flows.join(", "));
        let scenario = strandway_scenario::parse(&text).expect("TOML");
        let study = gray_study(&scenario, (12, 4), |_| true).expect("right");
        assert_eq!(study.links, 64);
        assert_eq!((study.healthy.runs, study.healthy.wrong), (4, 0), "{study:?}");
        for (kind, counts) in &study.kinds {
            assert_eq!((counts.runs, counts.named, counts.alone, counts.wrong), (6, 6, 6, 0), "{kind}: {study:?}");
        }
    }
}
