//! Values that follow from a checked scenario, as text: what `strandway explain FILE` prints.

use crate::estimate::Estimate;
use crate::facts;
use strandway_fabric::Measurements;
use strandway_report::numbers::{bytes, count, percent};
use strandway_report::text::{fabric_line, fabric_parts};
use strandway_scenario::Experiment;

/// Values that follow from a scenario's fabric and profile.
pub fn fabric_values(experiment: &Experiment) -> String {
    let template = facts::report(experiment, &Measurements::default(), 0.0);
    let topology = &experiment.plan.topology;
    let ports = &experiment.plan.ports;
    let d = &experiment.derived;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: String| rows.push((name.to_string(), value));
    row("fabric", fabric_line(&template));
    row("routing", format!("{}, as switches choose among equal uplinks", experiment.plan.routing.name()));
    row("directed links", count(template.fabric.directed_links.into()));
    let above_leaves = if topology.tiers() == 2 { "leaf to spine" } else { "leaf to aggregation switch" };
    for (level, name) in
        ["host to leaf", above_leaves, "aggregation switch to core"].iter().enumerate().take(topology.tiers())
    {
        let l = topology.level(level);
        if level > 0 && (topology.sites() > 0 || topology.graph().is_some()) {
            break;
        }
        row(&format!("links, {name}"), format!("{} each, {} of propagation", l.rate, l.latency));
    }
    if topology.sites() > 0 {
        for (a, b) in (1..topology.sites()).flat_map(|high| (0..high).map(move |low| (low, high))) {
            let Some(long) = topology.long_link(a, b) else { continue };
            let l = long.level;
            let name = format!("long link, site {a} to site {b}");
            row(&name, format!("{} each, {} one way, queues of {}", l.rate, l.latency, bytes(long.queue.0)));
        }
    }
    if let Some(graph) = topology.graph() {
        row("switches", format!("{}, at most {} links apart", count(graph.switches().into()), graph.diameter()));
        row("links between switches", format!("{}, each both ways", count(graph.links() as u64 / 2)));
    }
    let uplinks = if topology.graph().is_some() { "links of a switch" } else { "uplinks of a leaf" };
    row(uplinks, format!("{} for {} hosts", topology.leaf_up(), topology.shape().hosts_per_leaf));
    row("full packet", format!("{} B on the wire", d.packet.0));
    row("base RTT", format!("{} over {} links each way", d.base_rtt, topology.longest_hops()));
    let packets = d.bdp.0 as f64 / d.packet.0 as f64;
    row("BDP of a plane", format!("{} ({packets:.1} packets)", bytes(d.bdp.0)));
    let queue = if ports.pfc.is_some() {
        "unlimited: PFC decides at the ingress".to_string()
    } else {
        bytes(ports.data_queue.0)
    };
    row("data queue of a port", queue);
    row("control queue of a port", bytes(ports.control_queue.0));
    row("overflow", if ports.trim.is_some() { "packets are trimmed" } else { "packets are dropped" }.to_string());
    row(
        "ECN",
        ports.ecn.map_or("off".to_string(), |e| {
            let when = if e.at_dequeue { "as packets leave" } else { "as packets arrive" };
            let chance = percent(e.probability);
            format!(
                "from {} with rising probability up to {chance}, always from {}, {when}",
                bytes(e.low.0),
                bytes(e.high.0)
            )
        }),
    );
    row(
        "PFC",
        ports.pfc.map_or("off".to_string(), |p| {
            format!("pauses above {}, resumes at {}, headroom {}", bytes(p.xoff.0), bytes(p.xon.0), bytes(p.headroom.0))
        }),
    );
    row(
        "shared buffer",
        ports.shared.map_or("none: every port has its own".to_string(), |s| {
            format!("{} per switch, dynamic threshold with alpha {}", bytes(s.buffer.0), s.alpha)
        }),
    );
    row("priority of control packets", if ports.priority { "strict" } else { "none" }.to_string());
    row("connections", count(experiment.plan.connections.len() as u64));
    row("flows", format!("{} of {} in all", count(template.flows.total), bytes(template.flows.bytes)));
    row("busiest NIC", format!("could be done at {} if nothing ever waited", experiment.ideal));
    row("time limit", experiment.plan.time_limit.to_string());
    row("estimate of a run", Estimate::of(experiment).text(experiment.plan.threads));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = rows.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect();
    let notes = experiment.notes.iter().filter(|note| note.starts_with("fabric: "));
    let notes: String = notes.map(|note| format!("\nNote: {note}\n")).collect();
    format!("{lines}\n{}{notes}", fabric_parts(&template.fabric))
}
