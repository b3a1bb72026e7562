//! Builds the fabric of a scenario from Linux network namespaces ([`strandway_namespaces`]), and runs experiments on
//! it.
//!
//! [`fabric_of`] makes the description of a fabric for a scenario. [`up`] builds it and gives each host its node file.
//! [`live`] runs an experiment between real nodes on it. The page for users is `docs/linux-fabric.md`.

mod export;
mod gray;
mod live;
mod nodes;

pub use export::export;
pub use gray::{GrayLook, GrayWatch};
pub use live::live;
pub use nodes::{PORT, allow, deny, node_file, up};
pub use strandway_namespaces::export::{Export, Gap, Limits, Need, System};
pub use strandway_namespaces::{
    Copied, Copying, FOLDER, Failures, Finding, HOSTS_MAX, LINE_RATE_MAX, LineStatus, LinuxError, LinuxFabric, Marking,
    Moment, NAMESPACES_MAX, Node, PLANES_MAX, Place, PodShape, Port, PortStatus, Probed, RATE_MAX, Running, Status,
    Step, T1Status, TEAM_MAX, Target, Team, Tool, Up, Way, broken, build, carry_lines, change, check, down, down_after,
    enter, fail, failed_lines, feasible, heal, is_carried, line, localise, moments, names, probe, probe_copies,
    set_team, status, teams,
};

use std::fmt;
use strandway_fabric::Topology;
use strandway_fabric::quantity;
use strandway_fabric::topology::Level;
use strandway_import::Problems;
use strandway_lab::{Experiment, Scenario};
use strandway_namespaces::line::Reorder;
use strandway_namespaces::{lines_of, name_fits};
use strandway_proto::profile::WireFormat;
use strandway_proto::{Bytes, HostId, Rate, Span};
use strandway_scenario::reader::Sink;
use toml::Value;

/// The rate that is assumed for an unshaped NIC. Measured: two cores move 10 Gb/s and more over three hops.
const UNSHAPED_RATE: Rate = Rate(10_000_000_000);

/// Added to the simulator's round trip, which does not include the time of software. Measured: 33 us one way over idle
/// namespaces; one packet in a hundred takes 54 us.
const SOFTWARE_RTT: Span = Span(100_000_000);

/// Limit on the bytes of a datagram besides its payload: IPv6, UDP, and our longest headers, with some reserve.
const HEADERS: u32 = 256;

/// The usual MTU of jumbo frames.
const MTU: u32 = 9000;

/// Options in addition to the scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rate of every port, with its unit; it replaces the scenario's rate.
    pub rate: Option<String>,
    /// True: no port is shaped.
    pub unshaped: bool,
    /// The share of a long link's frames that arrive late, and the delay, such as `1%:200us`.
    pub reorder: Option<String>,
    /// How switches copy multicast.
    pub copying: Copying,
    /// True: hosts send data in MRC's published layout ([`strandway_udp::Layout::Mrc`]).
    pub mrc_layout: bool,
}

/// The description of the namespaces for a scenario.
///
/// # Errors
/// All problems of the scenario, and all its properties that namespaces cannot have.
pub fn fabric_of(scenario: &Scenario, name: &str, options: &Options) -> Result<LinuxFabric, Problems> {
    let sink = Sink::new(scenario.file());
    if let Err(e) = name_fits(name) {
        sink.add("--name", "", e.0, "");
    }
    let scenario = rated(scenario, options)?;
    let experiment = strandway_lab::check(&scenario)?;
    let topology = &experiment.plan.topology;
    let shape = *topology.shape();
    let file = |key: &str, value: &dyn fmt::Display, what: String, remedy: &str| sink.add(key, value, what, remedy);
    let t1s = t1s(topology);
    let bundle = shape.leaf_bundle.max(shape.pods.map_or(1, |pods| pods.core_bundle));
    if topology.graph().is_some() {
        let what = "graphs of switches have no source routes, by which namespaces forward".into();
        file("fabric.kind", &experiment.fabric, what, "take a leaf-spine fabric, a fat tree, planes or sites");
        return Err(Problems(sink.take()));
    }
    if bundle > 1 && topology.sites() == 0 {
        let what = "parallel links cannot be told apart by micro segments".into();
        file("fabric.bundle", &bundle, what, "leave it out and write more switches of the tier above");
    }
    if shape.planes > PLANES_MAX {
        let what = format!("a node has at most {PLANES_MAX} planes");
        file("fabric.planes", &shape.planes, what, "write fewer planes");
    }
    if shape.hosts > HOSTS_MAX {
        let what = format!("one machine runs at most {HOSTS_MAX} hosts as namespaces");
        file("fabric.hosts", &shape.hosts, what, "add --set fabric.hosts=8, or take a smaller scenario");
    }
    let namespaces =
        shape.hosts as usize + usize::from(shape.planes) * (topology.leaves() + t1s + topology.cores()) as usize;
    if shape.hosts <= HOSTS_MAX && namespaces > NAMESPACES_MAX {
        let what = format!("hosts and switches would be {namespaces} namespaces; {NAMESPACES_MAX} is the most");
        let remedy = if topology.sites() > 0 {
            "write fewer sites, hosts, planes or parallel links"
        } else {
            "write fewer hosts, planes or spines"
        };
        file("fabric", &"", what, remedy);
    }
    let rates = [0, 1, 2].map(|level| topology.level(level).rate);
    let reorder = match options.reorder.as_deref().map(Reorder::parse) {
        Some(Err((what, remedy))) => {
            file("--reorder", &options.reorder.as_deref().unwrap_or_default(), what, &remedy);
            None
        }
        Some(Ok(_)) if topology.sites() == 0 => {
            let what = "is for long links; this fabric has none".into();
            file("--reorder", &options.reorder.as_deref().unwrap_or_default(), what, "leave it out");
            None
        }
        other => other.and_then(Result::ok),
    };
    let shaped_rates = if topology.sites() > 0 { &rates[..1] } else { &rates[..topology.tiers()] };
    let fastest = topology.long_queues().map(|long| long.level.rate).max();
    if let Some(rate) = fastest.filter(|rate| *rate > LINE_RATE_MAX && !options.unshaped) {
        let what = format!("{rate} is faster than a delay line carries; {LINE_RATE_MAX} is the most");
        file("fabric.long_rate", &"", what, "write \"1 Gbps\", or pass --unshaped for as fast as it goes");
    }
    if let Some(rate) = shaped_rates.iter().find(|rate| **rate > RATE_MAX).filter(|_| !options.unshaped) {
        let what = format!("a port of {rate} is faster than software carries; {RATE_MAX} is the most");
        file("fabric.rate", &"", what, "pass --rate 500Mbps (per port), or --unshaped for as fast as it goes");
    }
    if options.mrc_layout && experiment.profile().wire != WireFormat::Mrc {
        let what = "only MRC has the layout mrc".into();
        file("profile.name", &experiment.profile().name, what, "write name = \"mrc\", or leave --layout out");
    }
    if !sink.is_empty() {
        return Err(Problems(sink.take()));
    }
    let fabric = describe(&scenario, &experiment, name, options, reorder);
    // Fabrics within the limits above fit micro segments.
    let clos = fabric.clos();
    assert_eq!(clos.holds(u32::from(fabric.planes), u32::from(fabric.hosts)), Ok(()));
    Ok(fabric)
}

/// The description of a fabric whose numbers fit.
fn describe(
    scenario: &Scenario,
    experiment: &Experiment,
    name: &str,
    options: &Options,
    reorder: Option<Reorder>,
) -> LinuxFabric {
    let topology = &experiment.plan.topology;
    let (shape, ports) = (*topology.shape(), &experiment.plan.ports);
    let rates = [0, 1, 2].map(|level| topology.level(level).rate);
    let profile = experiment.profile();
    let derived = &experiment.derived;
    let payload = profile.transport.mtu;
    let narrowest = Rate(widest(topology).0 * u64::from(shape.planes));
    let node_rate = if options.unshaped { derived.rate.0.min(UNSHAPED_RATE.0) } else { narrowest.0 };
    let shaped = |rate: Rate| (!options.unshaped).then_some(rate.0);
    LinuxFabric {
        name: name.to_string(),
        scenario: scenario.file().to_string(),
        planes: shape.planes,
        hosts: shape.hosts as u16,
        hosts_per_t0: shape.hosts_per_leaf.min(shape.hosts) as u16,
        t1s: t1s(topology) as u16,
        mtu: MTU.max(payload + HEADERS),
        host_rate: shaped(rates[0]),
        // A long link is shaped by its delay line.
        uplink_rate: shaped(rates[1]).filter(|_| topology.sites() == 0),
        core_rate: shaped(rates[2]).filter(|_| topology.tiers() == 3),
        queue: derived.queue.0,
        marking: ports.ecn.filter(|_| !options.unshaped).map(|ecn| Marking {
            low: ecn.low.0,
            high: ecn.high.0,
            chance_ppm: (ecn.probability * 1e6).round() as u32,
            last_hop: ecn.last_hop,
        }),
        trimming: ports.trim.is_some() && !options.unshaped,
        profile: profile.name.clone(),
        mrc_layout: options.mrc_layout,
        payload,
        node_rate,
        base_rtt_ns: (base_rtt(experiment).0 + SOFTWARE_RTT.0) / 1000,
        notes: notes(scenario, experiment, options),
        pods: shape.pods.map(|pods| PodShape {
            t0s: pods.leaves_per_pod.min(topology.leaves()) as u16,
            t1s: shape.spines as u16,
            t2s_per_t1: pods.cores_per_spine as u16,
        }),
        lines: lines_of(&experiment.plan, options.unshaped, reorder),
        ways: ways(experiment, node_rate),
        teams: Team::of_groups(shape.hosts as u16, &experiment.plan.multicast),
        copying: options.copying,
    }
}

/// T1 switches of each plane: the spines, of all pods; for sites, one for each long link.
fn t1s(topology: &Topology) -> u32 {
    let sites = topology.sites();
    let bundle = topology.shape().leaf_bundle;
    if sites > 0 { sites * (sites - 1) / 2 * bundle } else { topology.spines() }
}

/// The highest rate, in one plane, between two hosts of different leaves; with one leaf, between any two hosts.
fn widest(topology: &Topology) -> Rate {
    let leaves = topology.leaves();
    let pairs = (1..leaves).flat_map(|high| (0..high).map(move |low| (low, high)));
    pairs.map(|(low, high)| topology.narrowest(low, high)).max().unwrap_or(topology.narrowest(0, 0))
}

/// The scenario with the rate of the options.
///
/// # Errors
/// If the text is not a rate, or the scenario is wrong.
pub fn rated(scenario: &Scenario, options: &Options) -> Result<Scenario, Problems> {
    let mut scenario = scenario.clone();
    if let Some(rate) = &options.rate {
        let sink = Sink::new(scenario.file());
        set_rate(&mut scenario, rate, &sink)?;
    }
    Ok(scenario)
}

/// `--rate` changes the scenario, so that all values that depend on rates (queues, round trips) use the new rate.
fn set_rate(scenario: &mut Scenario, text: &str, sink: &Sink) -> Result<(), Problems> {
    let rate = match quantity::rate(text) {
        Ok(rate) if rate.0 > 0 => rate,
        Ok(_) => {
            sink.add("--rate", text, "a rate must be above zero", "write, say, 500Mbps");
            return Err(Problems(sink.take()));
        }
        Err(e) => {
            sink.add("--rate", text, e.what, e.remedy);
            return Err(Problems(sink.take()));
        }
    };
    let planes = u64::from(strandway_lab::check(scenario)?.plan.topology.planes());
    let bits = |rate: u64| Value::String(format!("{rate} bps"));
    let has_uplinks = scenario.table().get("fabric").is_some_and(|f| f.get("uplink_rate").is_some());
    let puts =
        [("fabric.rate", rate.0 * planes)].into_iter().chain(has_uplinks.then_some(("fabric.uplink_rate", rate.0)));
    for (key, rate) in puts {
        if let Err(Problems(found)) = scenario.set_value(key, bits(rate)) {
            let what: String = found.into_iter().map(|problem| problem.what).collect();
            sink.add(key, text, what, "write the rate into the scenario");
            return Err(Problems(sink.take()));
        }
    }
    Ok(())
}

/// The ways within each site and between any two sites. They are those of the simulator, but with local cables as short
/// as those between namespaces. No way is faster than a node.
fn ways(experiment: &Experiment, node_rate: u64) -> Vec<Way> {
    let topology = &experiment.plan.topology;
    let control = Bytes(u64::from(experiment.profile().transport.control));
    let (packet, sites, per_site) = (experiment.derived.packet, topology.sites(), topology.shape().hosts_per_leaf);
    let way = |a: u32, b: u32| {
        let long = topology.rtt_between(packet, control, HostId(a * per_site), HostId(b * per_site));
        Way {
            sites: [a as u16, b as u16],
            rate: (topology.narrowest(a, b).0 * u64::from(topology.planes())).min(node_rate),
            base_rtt_ns: (long.0 - topology.level(0).latency.0 * 4 + SOFTWARE_RTT.0) / 1000,
        }
    };
    (0..sites).flat_map(|b| (0..=b).map(move |a| (a, b))).map(|(a, b)| way(a, b)).collect()
}

/// The simulator's base round trip, but with cables as short as those between namespaces.
fn base_rtt(experiment: &Experiment) -> Span {
    let topology = &experiment.plan.topology;
    let control = Bytes(u64::from(experiment.profile().transport.control));
    let packet = experiment.derived.packet;
    if topology.sites() > 0 {
        // The latency of short cables between namespaces is negligible compared with that of the long link.
        let within = topology.level(0).latency.0 * 4;
        return Span(topology.base_rtt(packet, control).0 - within);
    }
    let level = |l: usize| Level { rate: topology.level(l).rate, latency: Span::from_ns(1) };
    let short = Topology::new(*topology.shape(), [level(0), level(1), level(2)], [Span::ZERO; 3]);
    short.map_or(experiment.derived.base_rtt, |short| short.base_rtt(packet, control))
}

/// Notes on the properties of a simulated run that namespaces do not have.
fn notes(scenario: &Scenario, experiment: &Experiment, options: &Options) -> Vec<String> {
    let unshaped = options.unshaped;
    let ports = &experiment.plan.ports;
    let classes = !unshaped && (ports.ecn.is_some() || ports.trim.is_some());
    let topology = &experiment.plan.topology;
    let mut notes = vec![format!(
        "latency: links of {} are not modelled; a veth hop adds microseconds, a round trip tens of microseconds",
        topology.level(0).latency
    )];
    for (wanted, what) in [
        (
            topology.sites() > 0 && classes,
            "ECN, trimming: off at the ends of long links, whose queues drop packets when they are full",
        ),
        (options.reorder.is_some(), "order: frames of long links overtake each other; in the simulator they never do"),
        (unshaped && ports.ecn.is_some(), "ECN: off, no packet waits at a port without a rate"),
        (unshaped && ports.trim.is_some(), "trimming: off, no packet waits at a port without a rate"),
        (ports.pfc.is_some(), "PFC: off, ports drop rather than pause"),
        (ports.message_cost > Span::ZERO, "message_cost: hosts take the time that they need"),
        (ports.shared.is_some(), "shared buffer: every port has its own queue"),
        (ports.priority && classes, "priority: control packets wait among data at hosts' own ports"),
        (ports.priority && !classes, "priority: control packets wait among data"),
        (!ports.priority && classes, "priority: control packets go before data"),
    ] {
        if wanted {
            notes.push(what.to_string());
        }
    }
    let groups = scenario.table().get("profile").and_then(Value::as_table);
    if groups.is_some_and(|table| table.values().any(Value::is_table)) {
        notes.push("parameters: node files name the profile, without the scenario's [profile.GROUP] values".into());
    }
    notes
}

#[cfg(test)]
mod tests;
