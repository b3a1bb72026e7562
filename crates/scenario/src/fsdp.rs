//! Training jobs with sharded layers (FSDP, ZeRO-3): reads their keys from a scenario and makes the scripts of their
//! ranks.
//!
//! The parameters of every layer are spread over all ranks. Ranks gather a layer before they compute with it, in the
//! forward pass and again in the backward pass. After the backward step they scatter the sum of its gradients. Each
//! rank has three streams that run at the same time: compute, gather, scatter.

use super::maker::{Maker, Traffic};
use super::plans::{CollectivePlan, JobPlan};
use super::{multicast, switch};
use crate::ideal_fct::Alone;
use crate::reader::Section;
use strandway_collective::script::COMPUTE;
use strandway_collective::{Algorithm, Operation, Plans, RankOperation, Schedule, Script, ScriptedJob, Step, Work};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span, Time};

/// Limit on the steps of one rank's script: ours.
pub(super) const STEPS_MAX: u64 = 1 << 20;

/// Step times are recorded if ranks times steps is at most this number. Ours: 24 B each, so about 24 MB.
const KEPT_MAX: u64 = 1 << 20;

/// The streams besides the compute stream.
const GATHER: u8 = 1;
const SCATTER: u8 = 2;

/// The kinds of steps. A script names a kind by its index in this list.
pub(crate) const KINDS: [&str; 5] = ["forward", "backward", "all-gather", "reduce-scatter", "update"];
const FORWARD: u8 = 0;
const BACKWARD: u8 = 1;
const GATHERING: u8 = 2;
const SCATTERING: u8 = 3;
const UPDATE: u8 = 4;

/// The keys of a job in a scenario.
#[derive(Clone, Debug)]
pub(super) struct FsdpKeys {
    gather: Gather,
    /// `Some`: switches add the gradients. `None`: a ring reduces them.
    scatter: Option<switch::SwitchKeys>,
    layers: u32,
    gradients: Option<Bytes>,
    compute: Span,
    iterations: u32,
    prefetch: u32,
    reshard: bool,
    stragglers: f64,
    noise: f64,
    parts: u32,
}

/// The way in which layers are gathered.
#[derive(Clone, Debug)]
enum Gather {
    Schedule(Algorithm),
    Multicast(multicast::MulticastKeys),
}

/// Reads the keys of a job.
pub(super) fn read(section: &Section<'_>) -> FsdpKeys {
    let count = |key: &'static str, low: u64, most: u64, default: u32| {
        section.count(key, low, most).map_or(default, |n| n as u32)
    };
    let gather = match section.choice("gather", &["ring", "recursive-doubling", "linear", "multicast"]) {
        Some("multicast") => Gather::Multicast(multicast::read(section, None)),
        Some("recursive-doubling") => Gather::Schedule(Algorithm::RecursiveDoubling),
        Some("linear") => Gather::Schedule(Algorithm::LinearAllGather),
        _ => Gather::Schedule(Algorithm::RingAllGather),
    };
    let scatter = match section.choice("scatter", &["ring", "in-network"]) {
        Some("in-network") => Some(switch::read_collective(section, true)),
        _ => None,
    };
    let reshard = section.flag("reshard").unwrap_or(true);
    FsdpKeys {
        scatter,
        layers: count("layers", 1, 4096, 10),
        gradients: section.bytes("gradients"),
        compute: section.span("compute").unwrap_or(Span::ZERO),
        iterations: count("iterations", 1, 1 << 16, 1),
        prefetch: count("prefetch", 0, 4096, 1),
        reshard,
        stragglers: section.ratio("stragglers", 0.0, 10.0).unwrap_or(0.0),
        noise: section.ratio("noise", 0.0, 0.2).unwrap_or(0.0),
        parts: count("pipeline", 1, 256, 1),
        gather,
    }
}

/// Appends steps to a script and returns their indices.
#[derive(Default)]
struct Writer {
    steps: Vec<Step>,
    /// Number of operations so far.
    operations: u32,
}

impl Writer {
    fn step(&mut self, stream: u8, kind: u8, layer: u32, work: Work, after: &[Option<u32>]) -> u32 {
        let after = after.iter().flatten().copied().collect();
        self.steps.push(Step { stream, work, after, kind, layer, ends_iteration: false });
        self.steps.len() as u32 - 1
    }

    fn operate(&mut self, stream: u8, kind: u8, layer: u32, after: &[Option<u32>]) -> u32 {
        self.operations += 1;
        self.step(stream, kind, layer, Work::Operation(self.operations - 1), after)
    }
}

/// The kinds and layers of all operations of a script, in order.
fn operations(script: &Script) -> Vec<(u8, u32)> {
    let of = |step: &Step| matches!(step.work, Work::Operation(_)).then_some((step.kind, step.layer));
    script.steps().iter().filter_map(of).collect()
}

/// The script of every rank.
///
/// A gather begins when the compute step `prefetch + 1` places before the step that needs it has ended. So up to
/// `prefetch` layers are gathered ahead. The backward pass begins with the last layer, which is still in memory.
/// Iterations do not overlap: an update waits for all gradients, and the next iteration waits for the update.
fn script(written: &FsdpKeys) -> Script {
    let layers = written.layers;
    let (forward, backward) = switch::split(written.compute, layers.into());
    let mut writer = Writer::default();
    let mut updated = None;
    for _ in 0..written.iterations {
        // The compute steps in order: layer, and true for the backward pass.
        let order = (0..layers).map(|layer| (layer, false)).chain((0..layers).rev().map(|layer| (layer, true)));
        let mut computed: Vec<u32> = Vec::new();
        let mut scattered = None;
        for (place, (layer, back)) in (0usize..).zip(order) {
            let is_here = back && (!written.reshard || layer + 1 == layers);
            let before = place.checked_sub(written.prefetch as usize + 1).map(|before| computed[before]);
            let gathered = (!is_here).then(|| writer.operate(GATHER, GATHERING, layer, &[before.or(updated)]));
            let (kind, time) = if back { (BACKWARD, backward) } else { (FORWARD, forward) };
            let step = writer.step(COMPUTE, kind, layer, Work::Compute(time), &[gathered, updated]);
            computed.push(step);
            if back {
                scattered = Some(writer.operate(SCATTER, SCATTERING, layer, &[Some(step)]));
            }
        }
        let update = writer.step(COMPUTE, UPDATE, 0, Work::Compute(Span::ZERO), &[scattered]);
        writer.steps[update as usize].ends_iteration = true;
        updated = Some(update);
    }
    let kinds = KINDS.iter().map(ToString::to_string).collect();
    match Script::new(kinds, writer.steps) {
        Ok(script) => script,
        Err(error) => unreachable!("{error}"),
    }
}

impl Maker<'_> {
    /// One job on these hosts.
    pub(super) fn fsdp(
        &mut self,
        written: &FsdpKeys,
        hosts: &[HostId],
        (name, group): (String, Option<u32>),
        placement: &str,
    ) {
        let ranks = hosts.len() as u32;
        let steps = u64::from(written.iterations) * (6 * u64::from(written.layers) + 1);
        if steps > STEPS_MAX {
            let what = format!("makes {steps} steps per rank with {} layers", written.layers);
            return self.complain("iterations", written.iterations, what, "write at most a million steps");
        }
        let layers = u64::from(written.layers);
        let part = |bytes: u64, layer: u32| {
            let cut = |layer: u64| (u128::from(bytes) * u128::from(layer) / u128::from(layers)) as u64;
            cut(u64::from(layer) + 1) - cut(layer.into())
        };
        let parameters = self.workload.common.size.0;
        let gradients = written.gradients.map_or(parameters, |bytes| bytes.0);
        if parameters < layers * u64::from(ranks) || gradients < layers * u64::from(ranks) {
            let what = "has layers of less than a byte per rank".to_string();
            return self.complain("size", Bytes(parameters.min(gradients)), what, "write more, or fewer layers");
        }
        let script = script(written);
        let mut plan = JobPlan { name: name.clone(), ..JobPlan::default() };
        let mut all: Vec<Vec<RankOperation>> = vec![Vec::new(); ranks as usize];
        let (mut gathering, mut scattering) = (Shared::default(), Shared::default());
        for (kind, layer) in operations(&script) {
            let label = KINDS[usize::from(kind)];
            let first = self.traffic.collectives.len();
            let named = (format!("{name}/{label}/{}", all[0].len()), group);
            let made = match (kind, &written.gather, &written.scatter) {
                (GATHERING, Gather::Schedule(algorithm), _) => {
                    let parts = if matches!(algorithm, Algorithm::RecursiveDoubling) { 1 } else { written.parts };
                    self.messages(*algorithm, (part(parameters, layer), parts), hosts, named, placement, &mut gathering)
                }
                (GATHERING, Gather::Multicast(keys), _) => {
                    self.cast(keys, part(parameters, layer), hosts, named, placement, &mut gathering)
                }
                (_, _, Some(keys)) => {
                    self.add_up(keys, part(gradients, layer), hosts, named, placement, &mut scattering)
                }
                _ => {
                    let ring = Algorithm::RingReduceScatter;
                    let size = (part(gradients, layer), written.parts);
                    self.messages(ring, size, hosts, named, placement, &mut scattering)
                }
            };
            let Some(operation) = made.map(|place| place as u32) else { return };
            for (rank, mine) in (0..ranks).zip(&mut all) {
                mine.push(RankOperation::Member { operation, rank });
            }
            match plan.operations.iter_mut().find(|(known, _)| known == label) {
                Some((_, places)) => places.push(first),
                None => plan.operations.push((label.to_string(), vec![first])),
            }
        }
        plan.bound = self.least(written, &plan, &script);
        let compute = script.computation().scaled(1.0 + written.stragglers + 4.0 * written.noise);
        plan.longest = Span(compute.0.saturating_add(plan.bound.0.saturating_mul(2)));
        let number = self.traffic.jobs.len() as u32;
        let start = self.moment(self.workload.common.start);
        let job = ScriptedJob {
            number,
            keeps_steps: steps * u64::from(ranks) <= KEPT_MAX,
            scripts: vec![script],
            roles: vec![0; hosts.len()],
            hosts: hosts.to_vec(),
            operations: all,
            start,
            stragglers: written.stragglers,
            noise: written.noise,
            seed: self.context.seed,
            teams: Vec::new(),
            locals: Vec::new(),
            seats: Vec::new(),
            signal_latency: Span::ZERO,
            // Set when all workloads are known.
            first_message: 0,
            first_word: 0,
            first_order: 0,
        };
        self.traffic.add_job(plan, job);
    }

    /// Lower bound of a job's time. It is the longest of these: its computation; the collectives of one kind, one after
    /// the other; and the traffic of a NIC in one direction.
    fn least(&self, written: &FsdpKeys, plan: &JobPlan, script: &Script) -> Span {
        let alone =
            Alone::new(&self.traffic.profiles[usize::from(self.profile)], self.context.topology, self.context.rate);
        let (mut sent, mut received, mut longest) = (Span::ZERO, Span::ZERO, script.computation());
        for (kind, places) in &plan.operations {
            let gathers = kind == KINDS[usize::from(GATHERING)];
            let mut all = Span::ZERO;
            for made in places.iter().map(|&place| &self.traffic.collectives[place]) {
                all += made.bound;
                let own = made.bytes / u64::from(made.ranks);
                let rest = alone.busy(made.bytes - own);
                let (out, back) = match (gathers, &written.gather, &written.scatter) {
                    // A rank casts its own share once and receives the shares of all other ranks.
                    (true, Gather::Multicast(_), _) => (alone.busy(own), rest),
                    // For a reduction in switches, a rank sends all its gradients and receives only the sum of its own
                    // part.
                    (false, _, Some(_)) => (made.bound, Span::ZERO),
                    _ => (rest, rest),
                };
                sent += out;
                received += back;
            }
            longest = longest.max(all);
        }
        longest.max(sent).max(received)
    }

    /// Makes a collective of unicast messages. All collectives of one kind use the same connections, which keeps them
    /// in order.
    fn messages(
        &mut self,
        algorithm: Algorithm,
        (bytes, parts): (u64, u32),
        hosts: &[HostId],
        (name, group): (String, Option<u32>),
        placement: &str,
        shared: &mut Shared,
    ) -> Option<usize> {
        let ranks = hosts.len() as u32;
        let schedule = match Schedule::new(algorithm, ranks, bytes, parts) {
            Ok(schedule) => schedule,
            Err(error) => {
                self.complain("ranks", ranks, error, format!("write {}, or gather = \"ring\"", 1 << ranks.ilog2()));
                return None;
            }
        };
        let flows = u64::from(ranks) * u64::from(schedule.messages()) * u64::from(self.workload.common.connections);
        if !self.without_rows(flows) {
            return None;
        }
        let mut made = match shared.group.and_then(|first| self.traffic.operations[first].group()) {
            Some(first) => first.with(Plans::Computed(schedule)),
            None => self.group(&schedule, hosts, (true, false)).0.with(Plans::Computed(schedule)),
        };
        made.starts.fill(Time::NEVER);
        let place = self.traffic.add(Operation::Messages(Box::new(made)));
        shared.group.get_or_insert(place);
        let bound = self.bound(&schedule, hosts);
        let plan = self.of_job((algorithm.collective(), algorithm.name()), (ranks, bytes), place, bound);
        self.traffic.collectives.push(CollectivePlan { name, group, placement: placement.to_string(), ..plan });
        Some(place)
    }

    /// Makes an all-gather by multicast. All all-gathers have one group of members.
    fn cast(
        &mut self,
        keys: &multicast::MulticastKeys,
        bytes: u64,
        hosts: &[HostId],
        name: (String, Option<u32>),
        placement: &str,
        shared: &mut Shared,
    ) -> Option<usize> {
        if self.is_refused_on_graph("multicast") {
            return None;
        }
        let place = self.traffic.operations.len();
        self.multicast(keys, bytes, hosts, name, placement.to_string());
        let group = self.share_members(shared);
        let Operation::Multicast(made) = self.traffic.operations.get_mut(place)? else { return None };
        made.starts.fill(Time::NEVER);
        made.group = group;
        self.own_last();
        Some(place)
    }

    /// Makes a reduce-scatter by switches. All reduce-scatters have one server and one group of members.
    fn add_up(
        &mut self,
        keys: &switch::SwitchKeys,
        bytes: u64,
        hosts: &[HostId],
        name: (String, Option<u32>),
        placement: &str,
        shared: &mut Shared,
    ) -> Option<usize> {
        let (place, spec) = (self.traffic.operations.len(), self.traffic.specs.len());
        if spec >= usize::from(u16::MAX) {
            self.complain("scatter", "in-network", "makes more than 65,535 operations", "write fewer iterations");
            return None;
        }
        if self.is_refused_on_graph("sums in switches") {
            return None;
        }
        let keys = keys.at(shared.server);
        self.in_network(&keys, bytes, hosts, name, placement.to_string());
        let group = self.share_members(shared);
        let spec = self.traffic.specs.get_mut(spec)?;
        spec.begin_when_told();
        spec.join(group);
        shared.server = Some(spec.server());
        self.own_last();
        Some(place)
    }

    /// The group that all collectives of a kind use: the group of the first one. Removes the newest group if it is
    /// another one.
    fn share_members(&mut self, shared: &mut Shared) -> u32 {
        let last = self.traffic.members.len() as u32 - 1;
        let first = *shared.members.get_or_insert(last);
        self.traffic.members.truncate(if first == last { last + 1 } else { last } as usize);
        first
    }

    /// Marks the newest collective as a part of the job that is being made.
    fn own_last(&mut self) {
        let job = self.traffic.jobs.len() as u32;
        if let Some(plan) = self.traffic.collectives.last_mut() {
            plan.job = Some(job);
        }
    }
}

/// The parts that collectives of one kind share.
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    /// The first collective of messages; the others use its connections.
    group: Option<usize>,
    /// The multicast group of all members.
    members: Option<u32>,
    /// The host of the parameter server.
    server: Option<u32>,
}

/// The longest time of a job, from the start of the run.
pub(crate) fn longest(traffic: &Traffic) -> u64 {
    let of = |plan: &JobPlan| {
        let start = traffic.operations[plan.operation].starts().iter().find(|start| **start != Time::NEVER);
        start.map_or(0, |start| start.0).saturating_add(plan.longest.0)
    };
    traffic.jobs.iter().map(of).max().unwrap_or(0)
}
