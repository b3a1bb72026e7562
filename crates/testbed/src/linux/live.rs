//! Runs a scenario's flows and faults between the hosts of a fabric that is up.

use crate::NodeFile;
use crate::linux::{LinuxError, LinuxFabric, Node, t1s};
use crate::wire::{self, Copying, WireProgress};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use strandway_fabric::fault::FaultPlan;
use strandway_fabric::measure::LinkCounters;
use strandway_fabric::{Measurements, Members};
use strandway_lab::Experiment;
use strandway_namespaces::{
    Moment, folder, is_carried, lines_of, links, moments, move_into, netns, prepare, set_failures, standing, status,
};
use strandway_proto::Rate;
use strandway_udp::Timeouts;

/// Pings of all nodes of a fabric per second, at most, while all have something under way: ours. They share one machine,
/// which has no time for their packets if they send ten times as many.
const PINGS_MAX: u64 = 4_000;

/// Pings per plane timeout, as nodes send them.
const PINGS: u64 = 4;

/// The longest wait for a peer: ours.
const PATIENCE: Duration = Duration::from_secs(10);

/// Timeouts at which the nodes of an experiment send no more than [`PINGS_MAX`]: the usual ones if at most 20 pairs of hosts
/// exchange something over two planes. All are longer by the same factor, since a machine that runs more nodes also
/// answers later.
fn timeouts(experiment: &Experiment, usual: Timeouts) -> Timeouts {
    let ends = experiment.plan.connections.iter().flat_map(|c| [(c.source, c.destination), (c.destination, c.source)]);
    let peers = ends.collect::<BTreeSet<_>>().len() as u64;
    let planes = u64::from(experiment.plan.topology.shape().planes);
    let least = Duration::from_micros(peers * planes * PINGS * 1_000_000 / PINGS_MAX);
    let factor = least.as_secs_f64() / usual.plane.as_secs_f64();
    let longer = |time: Duration| time.max(time.mul_f64(factor).min(PATIENCE));
    Timeouts { handshake: longer(usual.handshake), peer: longer(usual.peer), plane: longer(usual.plane) }
}

/// Runs the experiment on the fabric `name`, with a thread for each host in the host's namespace. Faults begin and end
/// at their times. `each` is called with the progress; if it returns false, the run ends early. The second result is
/// how long after its time the latest change of the faults was complete: commands of the system make each change.
///
/// # Errors
/// If the fabric is not up, has another shape, or cannot have one of the faults; if namespaces cannot be entered, or
/// hosts do not reach each other.
pub fn live(
    name: &str,
    experiment: &Experiment,
    mut each: impl FnMut(WireProgress) -> bool,
) -> Result<(Measurements, Option<Duration>), LinuxError> {
    let (fabric, before) = standing(name)?;
    let fabric = &fabric;
    fits(name, fabric, experiment)?;
    let topology = &experiment.plan.topology;
    let struck = experiment.plan.faults.iter().filter(|fault| !is_carried(topology, fault)).cloned();
    let struck: Vec<FaultPlan> = struck.collect();
    let reorder = fabric.lines.first().and_then(|line| line.reorder);
    if fabric.lines != lines_of(&experiment.plan, fabric.host_rate.is_none(), reorder) {
        return Err(other(name, fabric));
    }
    let mut moments = moments(fabric, topology, &struck).map_err(LinuxError)?;
    prepare(name, moments.iter().map(|moment| &moment.broken))?;
    moments.reverse();
    let profile = &experiment.plan.profiles[0];
    let open = |host: u32| -> Result<strandway_udp::Node, String> {
        let host = host as u16;
        move_into(&netns(&fabric.namespace(Node::Host(host)))).map_err(|e| format!("{e}; run it as root"))?;
        let path = folder(name).join(format!("{}.toml", Node::Host(host)));
        let file = NodeFile::load(&path).map_err(|problems| problems.to_string())?;
        let mut config = file.config(None)?;
        // Use the scenario's parameters.
        config.profile = (**profile).clone();
        config.payload = profile.transport.mtu;
        config.path_reports.events = true;
        config.timeouts = timeouts(experiment, config.timeouts);
        strandway_udp::Node::bind(config).map_err(|e| e.to_string())
    };
    let team = |group: &Members| fabric.team_of(group).ok_or_else(|| no_team(name, group));
    let copying = Copying {
        teams: experiment.plan.multicast.iter().map(team).collect::<Result<_, _>>()?,
        rate_max: Rate(fabric.node_rate),
    };
    let (mut failure, mut late) = (None, None);
    let counted = status(name)?;
    let measured = wire::run(experiment, &copying, open, |progress, since| {
        let called = Instant::now();
        let time = |moment: &Moment| Duration::from_nanos(moment.at.0 / 1_000);
        while let Some(moment) = moments.pop_if(|moment| time(moment) <= since) {
            let broken = moment.broken.0.iter().fold(before.clone(), |all, &target| all.with(target));
            if let Err(error) = set_failures(name, &broken) {
                failure = Some(error);
                return false;
            }
            late = late.max(Some(since + called.elapsed() - time(&moment)));
        }
        each(progress)
    });
    let after = status(name);
    set_failures(name, &before)?;
    if let Some(error) = failure {
        return Err(error);
    }
    let mut measured = measured.map_err(|error| LinuxError(error.to_string()))?;
    measured.links = links(fabric, &experiment.plan.topology, &counted, &after?);
    let sum = |of: fn(&LinkCounters) -> u32| measured.links.iter().map(|link| u64::from(of(link))).sum::<u64>();
    (measured.packets.dropped, measured.packets.lost) = (sum(|link| link.dropped), sum(|link| link.lost));
    Ok((measured, late))
}

/// Checks that the fabric that is up is the experiment's.
fn fits(name: &str, fabric: &LinuxFabric, experiment: &Experiment) -> Result<(), LinuxError> {
    let shape = experiment.plan.topology.shape();
    let topology = &experiment.plan.topology;
    let pods = fabric.pods.map_or([0; 3], |pods| [pods.t0s, pods.t1s, pods.t2s_per_t1].map(u32::from));
    let wanted_pods = shape.pods.map_or([0; 3], |pods| [pods.leaves_per_pod, shape.spines, pods.cores_per_spine]);
    let theirs = (u32::from(fabric.hosts), fabric.planes, u32::from(fabric.hosts_per_t0), u32::from(fabric.t1s), pods);
    let wanted = (shape.hosts, shape.planes, shape.hosts_per_leaf, t1s(topology), wanted_pods);
    // With one T0, the number of hosts that it could have does not matter.
    if theirs == wanted || (fabric.t0s() == 1 && (theirs.0, theirs.1) == (wanted.0, wanted.1)) {
        return Ok(());
    }
    Err(other(name, fabric))
}

fn no_team(name: &str, group: &Members) -> LinuxError {
    let hosts: Vec<String> = group.hosts().iter().map(|host| format!("h{}", host.0)).collect();
    LinuxError(format!(
        "the switches of fabric `{name}` do not copy for the hosts {}: take it down first (strandway fabric down --name {name})",
        hosts.join(",")
    ))
}

fn other(name: &str, fabric: &LinuxFabric) -> LinuxError {
    let down = format!("strandway fabric down --name {name}");
    LinuxError(format!(
        "the fabric `{name}` that is up, from {}, is not the scenario's; take it down first ({down}) or choose another --name",
        fabric.scenario
    ))
}
