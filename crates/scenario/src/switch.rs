//! Switches that add gradients: collectives in the network, and training jobs.

pub(crate) mod settings;

use super::maker::{Context, Maker, Traffic};
use super::plans::CollectivePlan;
use crate::reader::{Section, show};
use settings::{Spec, Switch};
use std::sync::Arc;
use strandway_collective::{Collective, InNetwork, Multicast, Operation};
use strandway_fabric::{Members, Topology};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span, Time};
use strandway_switch::{
    Aggregation, Job, JobError, Layer, Plan, Priorities, Shape, Sharing, SwitchMlProgram, System, Turns,
};
use toml::Value;

/// The keys of one collective in the network, or of training jobs.
#[derive(Clone, Debug)]
pub(super) struct SwitchKeys {
    server: Option<u32>,
    scatter: bool,
    /// `None`: those of the all-gather beside it, or one.
    chains: Option<u32>,
    /// The name of an all-gather by multicast that it keeps step with.
    beside: Option<String>,
    training: Option<Training>,
}

impl SwitchKeys {
    /// A copy of the keys with the server at this host, if a host is given.
    pub(super) fn at(&self, server: Option<u32>) -> SwitchKeys {
        SwitchKeys { server: server.or(self.server), ..self.clone() }
    }
}

/// The computation of training jobs.
#[derive(Clone, Debug)]
struct Training {
    layers: Vec<(u64, Span, Span)>,
    /// Values that jobs take in turn: the time of an iteration (empty if a model is given), and by which share a worker
    /// may take longer.
    compute: Vec<Span>,
    stragglers: Vec<f64>,
    noise: f64,
    iterations: u32,
    /// Jobs begin at random times within this span.
    arrivals: Span,
}

/// Reads the keys of a collective in the network.
pub(super) fn read_collective(section: &Section<'_>, scatter: bool) -> SwitchKeys {
    let most = strandway_import::HOSTS_MAX - 1;
    let server = section.count("server", 0, most).map(|n| n as u32);
    let chains = if scatter { section.count("chains", 1, most).map(|n| n as u32) } else { None };
    let beside = if scatter { section.text("beside") } else { None };
    SwitchKeys { server, scatter, chains, beside, training: None }
}

/// Parameters, and milliseconds forward and backward, for each block from the input on.
type Blocks = &'static [(u64, f64, f64)];

/// Models with their profiles on a V100 (ESA sheet, section 13.4).
const MODELS: [(&str, Blocks); 3] = [
    (
        "vgg16",
        &[
            (555_328, 76.99, 181.73),
            (7_079_936, 55.82, 82.79),
            (7_079_424, 10.33, 14.07),
            (102_764_544, 2.26, 0.06),
            (16_781_312, 0.43, 0.12),
            (4_097_000, 0.21, 0.45),
        ],
    ),
    (
        "resnet50",
        &[
            (405_824, 32.97, 81.77),
            (6_755_584, 43.80, 94.68),
            (7_417_344, 14.17, 31.10),
            (7_875_584, 6.57, 12.40),
            (3_102_696, 1.72, 3.96),
        ],
    ),
    (
        "alexnet",
        &[(330_688, 72.34, 49.44), (39_891_840, 54.18, 69.65), (16_781_312, 5.19, 2.73), (4_097_000, 1.30, 0.56)],
    ),
];

/// Reads the keys of training jobs; `size` is that of the gradient.
pub(super) fn read_training(section: &Section<'_>, size: Bytes) -> SwitchKeys {
    let models = MODELS.map(|model| model.0);
    let model = section.choice("model", &models).and_then(|name| MODELS.iter().find(|model| model.0 == name));
    let layers = section.count("layers", 1, 4096).unwrap_or(10);
    let compute = spans(section, "compute");
    if model.is_some() {
        for key in ["layers", "size", "compute"].into_iter().filter(|key| section.has(key)) {
            section.wrong(key, "is given together with `model`, which has its own", "write one of the two");
        }
    }
    let layers: Vec<(u64, Span, Span)> = match model {
        Some((_, blocks)) => {
            let span = |ms: f64| Span((ms * 1e9).round() as u64);
            blocks.iter().map(|&(parameters, fwd, bwd)| (4 * parameters, span(fwd), span(bwd))).collect()
        }
        None => {
            let cut = |layer: u64| (u128::from(size.0) * u128::from(layer) / u128::from(layers)) as u64;
            (0..layers).map(|layer| (cut(layer + 1) - cut(layer), Span::ZERO, Span::ZERO)).collect()
        }
    };
    let training = Training {
        layers,
        compute,
        stragglers: numbers(section, "stragglers", 10.0),
        noise: section.ratio("noise", 0.0, 0.2).unwrap_or(0.02),
        iterations: section.count("iterations", 1, 1 << 20).unwrap_or(1) as u32,
        arrivals: section.span("arrivals").unwrap_or(Span::ZERO),
    };
    let most = strandway_import::HOSTS_MAX - 1;
    let server = section.count("server", 0, most).map(|n| n as u32);
    SwitchKeys { server, scatter: false, chains: None, beside: None, training: Some(training) }
}

/// A time, or a list of times that the jobs take in turn.
fn spans(section: &Section<'_>, key: &'static str) -> Vec<Span> {
    let Some(Value::Array(items)) = section.raw(key) else { return section.span(key).into_iter().collect() };
    let read = |item: &Value| match item {
        Value::String(text) => strandway_fabric::quantity::span(text).ok(),
        _ => None,
    };
    let all: Option<Vec<Span>> = items.iter().map(read).collect();
    all.filter(|all| !all.is_empty()).unwrap_or_else(|| {
        section.wrong(key, "is no list of times", "write, say, [\"850 us\", \"3.4 ms\"]");
        Vec::new()
    })
}

/// A number, or a list of numbers that the jobs take in turn.
fn numbers(section: &Section<'_>, key: &'static str, most: f64) -> Vec<f64> {
    let Some(Value::Array(items)) = section.raw(key) else {
        return vec![section.ratio(key, 0.0, most).unwrap_or(0.0)];
    };
    let number = |item: &Value| item.as_float().or(item.as_integer().map(|n| n as f64));
    let all: Option<Vec<f64>> = items.iter().map(|item| number(item).filter(|x| (0.0..=most).contains(x))).collect();
    all.filter(|all| !all.is_empty()).unwrap_or_else(|| {
        let values: Vec<String> = items.iter().map(show).collect();
        section.wrong(
            key,
            format!("is no list of numbers from 0 to {most}: {}", values.join(", ")),
            "write, say, [0, 0.3]",
        );
        vec![0.0]
    })
}

/// The times of a layer, forward and backward, as shares of an iteration: a third forward, two thirds backward (ESA
/// sheet, section 13.4).
pub(super) fn split(compute: Span, layers: u64) -> (Span, Span) {
    (Span(compute.0 / 3 / layers), Span(compute.0 * 2 / 3 / layers))
}

impl Maker<'_> {
    /// Makes one collective in the network, or one training job, with its workers at these hosts.
    pub(super) fn in_network(
        &mut self,
        written: &SwitchKeys,
        bytes: u64,
        hosts: &[HostId],
        name: (String, Option<u32>),
        placement: String,
    ) {
        if self.is_refused_in_network(written) {
            return;
        }
        let topology = self.context.topology;
        let switch = self.context.switch;
        let ranks = hosts.len() as u64;
        let Ok(beside) = self.beside(written, hosts, name.1) else { return };
        let Some(server) = self.server_of(written, hosts) else { return };
        let job = name.1.unwrap_or(0) as usize;
        let keys = |bytes: u64| bytes.div_ceil(switch.payload()).max(1);
        let mut sharing = Sharing::All;
        let nothing = Layer { keys: keys(bytes), forward: Span::ZERO, backward: Span::ZERO };
        let (mut layers, mut iterations, mut jitter, mut noise) = (vec![nothing], 1, 0.0, 0.0);
        let mut start = self.moment(self.workload.common.start);
        if written.scatter {
            let per_share = keys(bytes.div_ceil(ranks));
            let given = written.chains;
            let chains = given.or(beside.map(|(_, chains)| chains)).unwrap_or(1);
            if let Some((_, theirs)) = beside.filter(|(_, theirs)| *theirs != chains) {
                let remedy = format!("write {theirs}, or leave it out");
                return self.complain("chains", chains, "is not the number of chains of `beside`", remedy);
            }
            sharing = Sharing::Scatter { per_share, chains };
            layers[0].keys = per_share * ranks;
        }
        if let Some(training) = &written.training {
            let count = training.layers.len() as u64;
            let compute = training.compute.get(job % training.compute.len().max(1)).copied();
            layers = training
                .layers
                .iter()
                .map(|&(bytes, forward, backward)| {
                    let (forward, backward) = compute.map_or((forward, backward), |compute| split(compute, count));
                    Layer { keys: keys(bytes), forward, backward }
                })
                .collect();
            iterations = training.iterations;
            jitter = training.stragglers[job % training.stragglers.len()];
            noise = training.noise;
            start = Time(start.0 + (self.random.unit() * training.arrivals.0 as f64) as u64);
        }
        let all: u64 = layers.iter().map(|layer| layer.keys).sum();
        let spec = Spec {
            hosts: hosts.to_vec(),
            server,
            group: self.traffic.members.len() as u32,
            sharing,
            layers,
            iterations,
            start,
            jitter,
            noise,
            beside: beside.map(|(index, _)| index),
        };
        if let Err(error) = build(&spec, 1, switch, topology, switch.window) {
            let remedy = "place fewer ranks below one leaf, or write algorithm = \"ring\"";
            return self.complain("ranks", hosts.len(), error, remedy);
        }
        let wire = all * (switch.payload() + u64::from(switch.header)) * u64::from(iterations);
        let computed = spec.layers.iter().fold(Span::ZERO, |sum, layer| sum + layer.forward + layer.backward);
        self.traffic.members.push(Members::new(topology, hosts.to_vec()));
        self.traffic.specs.push(spec);
        let number = self.traffic.specs.len() as u16;
        let network = InNetwork { number, hosts: hosts.to_vec(), first_message: 0 };
        let operation = self.traffic.add(Operation::InNetwork(network));
        let kind = if written.scatter { Collective::ReduceScatter } else { Collective::AllReduce };
        let bytes = if written.training.is_some() {
            all.saturating_mul(switch.payload()).saturating_mul(u64::from(iterations))
        } else {
            bytes
        };
        self.traffic.collectives.push(CollectivePlan {
            name: name.0,
            group: name.1,
            kind,
            algorithm: switch.settings.system.name().into(),
            ranks: hosts.len() as u32,
            bytes,
            operation: Some(operation),
            placement,
            class: self.class,
            messages: 0..0,
            tallied: true,
            // Computing and sending overlap, so the longer one counts.
            bound: self.context.rate.time_for(Bytes(wire)).max(computed * u64::from(iterations)),
            job: None,
        });
    }

    /// Refuses a workload that switches cannot perform.
    fn is_refused_in_network(&self, written: &SwitchKeys) -> bool {
        if self.is_refused_on_graph("sums in switches") {
            return true;
        }
        let common = &self.workload.common;
        let given = [("connections", common.connections > 1), ("ordered", self.workload.ordered.is_some())];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
            let what = "is for unicast algorithms; fragments have no connections";
            self.complain(key, "", what, "leave it out");
            return true;
        }
        let refused = written.scatter && matches!(self.context.switch.settings.system, System::SwitchMl { .. });
        if refused {
            let remedy = "write switch.system = \"esa\" or \"atp\", or algorithm = \"ring\"";
            self.complain("algorithm", "in-network", "can only be an all-reduce with SwitchML", remedy);
        }
        refused
    }

    /// The all-gather by multicast that a reduce-scatter keeps step with: its index and the number of its chains.
    fn beside(
        &mut self,
        written: &SwitchKeys,
        hosts: &[HostId],
        group: Option<u32>,
    ) -> Result<Option<(usize, u32)>, ()> {
        let Some(name) = &written.beside else { return Ok(None) };
        let found =
            self.traffic.collectives.iter().filter(|plan| plan.name == *name && plan.group == group).find_map(|plan| {
                let index = plan.operation?;
                Some((index, self.traffic.operations[index].multicast()?))
            });
        let Some((index, gather)) = found.filter(|(_, gather)| gather.root.is_none()) else {
            let what = "is not the name of an all-gather by multicast above this workload";
            self.complain("beside", name, what, "write that all-gather first, with a name, and give its name here");
            return Err(());
        };
        if gather.ranks.hosts() != hosts {
            let remedy = "give both the same `ranks` and `placement`, or leave `beside` out";
            self.complain("beside", name, "runs on other hosts", remedy);
            return Err(());
        }
        Ok(Some((index, gather.chains.count())))
    }

    /// The host of a job's server. It is the host in the scenario; without one, the last host that has no rank of this
    /// workload and no server; without such a host, the host of rank 0, which then runs both.
    fn server_of(&mut self, written: &SwitchKeys, hosts: &[HostId]) -> Option<HostId> {
        let there = self.context.topology.hosts();
        if let Some(server) = written.server {
            if server >= there {
                let what = format!("there are only {there} hosts, numbered from 0 to {}", there - 1);
                self.complain("server", server, what, "name one of them");
                return None;
            }
            return Some(HostId(server));
        }
        let last = self.placed.iter().max().map_or(0, |host| host.0 + 1);
        let taken = |host: u32| self.traffic.specs.iter().any(|spec| spec.server.0 == host);
        let free = (last..there).rev().find(|&host| !taken(host));
        Some(free.map_or(hosts[0], HostId))
    }
}

fn build(spec: &Spec, number: u16, switch: &Switch, topology: &Topology, window: u32) -> Result<Job, JobError> {
    let data = Bytes(switch.payload() + u64::from(switch.header));
    let control = Bytes(u64::from(switch.control));
    let farthest = spec.hosts.iter().map(|&host| topology.rtt_between(data, control, host, spec.server)).max();
    let shape = Shape {
        number,
        group: spec.group,
        elements: switch.lanes,
        data_bytes: data.0 as u16,
        control_bytes: switch.control,
        window,
        slots: switch.settings.slots,
        index: switch.index,
        sharing: spec.sharing,
        first: 0,
        rtt: farthest.unwrap_or(Span::ZERO) + switch.settings.pace.turnaround,
    };
    Job::new(shape, topology, spec.hosts.clone(), spec.server)
}

/// The turns of an all-gather.
fn turns(gather: &Multicast) -> Turns {
    let steps = (0..gather.layout.shares()).map(|share| gather.chains.link(gather.root_of(share)).step).collect();
    Turns { task: gather.task, layout: gather.layout, steps }
}

/// Makes all jobs of a run.
pub(super) fn assemble(context: &Context<'_>, traffic: &Traffic) -> Option<Aggregation> {
    if traffic.specs.is_empty() {
        return None;
    }
    let switch = context.switch;
    let jobs = traffic.specs.len() as u32;
    let window = match switch.settings.system.divides_slots() {
        true => SwitchMlProgram::share(switch.settings.slots, jobs).min(1 << 16),
        false => switch.window,
    };
    let mut plans = Vec::new();
    let networks = traffic.operations.iter().filter_map(|operation| match operation {
        Operation::InNetwork(network) => Some(network),
        _ => None,
    });
    for (spec, &InNetwork { number, first_message, .. }) in traffic.specs.iter().zip(networks) {
        let job = match build(spec, number, switch, context.topology, window) {
            Ok(job) => Arc::new(job),
            // This job was built before with another window.
            Err(error) => unreachable!("a job that was sound {error}"),
        };
        let keys: u64 = spec.layers.iter().map(|layer| layer.keys).sum();
        plans.push(Arc::new(Plan {
            job,
            layers: spec.layers.clone(),
            iterations: spec.iterations,
            start: spec.start,
            jitter: spec.jitter,
            noise: spec.noise,
            priorities: Priorities { salt: switch.priorities.salt ^ u64::from(number) << 32, ..switch.priorities },
            communication: context.rate.time_for(Bytes(keys * (switch.payload() + u64::from(switch.header)))),
            seed: context.seed,
            turns: spec.beside.and_then(|index| traffic.operations[index].multicast()).map(turns),
            first_message,
        }));
    }
    Some(Aggregation { settings: switch.settings, plans })
}
