//! Places the ranks of a job on servers: `groups` makes their collectives, `messages` the messages between pipeline
//! stages.
//!
//! Ranks are numbered as Megatron-LM numbers them: tensor parallel fastest, then context, data, and the pipeline's
//! stages outermost; rank `r` runs on GPU `r mod gpus` of the job's server `r / gpus`. Expert-parallel groups are
//! neighbours among the ranks that hold one share of a layer.

mod groups;
mod messages;

use super::kinds::{KINDS, TRACE_KINDS};
use super::role::{Operation as Does, Role, Sort};
use super::steps::Writer;
use super::{JobKeys, Placement};
use crate::collective::bounds::add_bytes;
use crate::fsdp::STEPS_MAX;
use crate::maker::{Maker, fits};
use crate::plans::CollectivePlan;
use crate::plans::JobPlan;
use crate::reduction::Reduction;
use crate::servers::Servers;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_collective::{Local, Operation, RankOperation, Recipe, Script, ScriptedJob, Team};
use strandway_import::trace::Kind;
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span};

pub(super) use groups::Communicator;

/// A job with at most this many steps of all ranks together records the times of each step: 24 B per step.
pub(super) const KEPT_MAX: u64 = 1 << 21;

/// A job during its placement.
pub(super) struct Placer<'a, 'm> {
    pub(super) written: &'a JobKeys,
    pub(super) servers: &'a Servers,
    /// The servers that the job has taken.
    taken: Vec<u32>,
    pub(super) maker: &'a mut Maker<'m>,
    pub(super) name: String,
    pub(super) communicators: BTreeMap<(Sort, u32), Communicator>,
    /// Operations that exist already: one per member of a group.
    made: BTreeMap<(Sort, u32, u8, u32), Vec<RankOperation>>,
    /// Pipes that exist, by stage, direction and the sender's place in its stage.
    pipes: BTreeMap<(u32, bool, u32), Option<u32>>,
    teams: Vec<Team>,
    team_of: BTreeMap<Vec<u32>, u32>,
    pub(super) locals: Vec<Local>,
    /// Recipes that exist already, by what they do, the number of ranks, and parts or bytes.
    recipes: BTreeMap<(Kind, u32, u64), Arc<Recipe>>,
    /// The first collective of process groups with direct messages among these hosts: later ones share its connections,
    /// as processes do.
    connected: BTreeMap<Vec<HostId>, usize>,
    /// Messages inside a server that exist already, by the same key and the message's number.
    inside: BTreeMap<(u32, bool, u32, u32), u32>,
    pub(super) plan: JobPlan,
    /// True after the first error.
    pub(super) failed: bool,
}

impl Maker<'_> {
    /// Adds a job with a model.
    pub(crate) fn job(&mut self, written: &JobKeys) {
        self.traffic.uses_servers = true;
        let servers = self.context.servers.clone();
        let Some(taken) = self.take_servers(written, &servers) else { return };
        let name = self.workload.class.clone();
        if self.traffic.jobs.iter().any(|job| job.name == name && job.groups_of == 0) {
            return self.complain("name", &name, "is the name of another job", "give each job a name of its own");
        }
        self.traffic.notes.push(written.note(&name, taken.len() as u32));
        let plan = JobPlan {
            name: name.clone(),
            flops: written.flops() / f64::from(written.ranks()),
            peak: written.pace.peak,
            tokens: written.all_tokens(),
            ..JobPlan::default()
        };
        let placer = Placer::new(written, &servers, taken, self, plan);
        match &written.trace {
            Some(trace) => placer.place_trace(trace),
            None => placer.place(),
        }
    }

    /// Chooses the servers of a job and marks them as taken.
    fn take_servers(&mut self, written: &JobKeys, servers: &Servers) -> Option<Vec<u32>> {
        let ranks = written.ranks() / self.context.reduction.hosts();
        let needed = ranks.div_ceil(servers.gpus);
        if ranks > servers.gpus && !ranks.is_multiple_of(servers.gpus) {
            let what = format!("makes {ranks} ranks, which do not fill servers of {} GPUs", servers.gpus);
            self.complain("dp", written.degrees.dp, what, "write degrees whose product is a multiple of servers.gpus");
            return None;
        }
        let free = |taken: &Vec<u32>, server: &u32| !taken.contains(server);
        let there: Vec<u32> = match &written.placement {
            Placement::Packed => (0..servers.count).collect(),
            Placement::Spread => servers.spread(),
            Placement::Random => {
                let mut all: Vec<u32> = (0..servers.count).collect();
                self.random.shuffle(&mut all);
                all
            }
            Placement::List(list, file) => {
                let twice = |at: usize| list[..at].contains(&list[at]);
                for (at, server) in list.iter().enumerate() {
                    if *server >= servers.count || twice(at) || self.traffic.taken.contains(server) {
                        let what = format!("names server {server}, which is not there, not free, or named twice");
                        let remedy = format!("name free servers from 0 to {}", servers.count - 1);
                        self.complain("placement", file, what, remedy);
                        return None;
                    }
                }
                list.clone()
            }
        };
        let mut chosen: Vec<u32> = there.into_iter().filter(|server| free(&self.traffic.taken, server)).collect();
        if chosen.len() < needed as usize {
            let what = format!("needs {needed} servers, and {} of {} are free", chosen.len(), servers.count);
            self.complain("dp", written.degrees.dp, what, "enlarge the fabric, or write fewer ranks");
            return None;
        }
        chosen.truncate(needed as usize);
        self.traffic.taken.extend(&chosen);
        Some(chosen)
    }
}

/// The position of a rank in each dimension of parallelism.
#[derive(Clone, Copy)]
struct RankPosition {
    tp: u32,
    /// Its number among the ranks that hold the same share of a layer.
    copy: u32,
    stage: u32,
}

impl<'a, 'm> Placer<'a, 'm> {
    /// The placer of a job that has taken these servers.
    pub(super) fn new(
        written: &'a JobKeys,
        servers: &'a Servers,
        taken: Vec<u32>,
        maker: &'a mut Maker<'m>,
        plan: JobPlan,
    ) -> Placer<'a, 'm> {
        Placer {
            written,
            servers,
            taken,
            maker,
            name: plan.name.clone(),
            communicators: BTreeMap::new(),
            made: BTreeMap::new(),
            pipes: BTreeMap::new(),
            teams: Vec::new(),
            team_of: BTreeMap::new(),
            locals: Vec::new(),
            recipes: BTreeMap::new(),
            connected: BTreeMap::new(),
            inside: BTreeMap::new(),
            plan,
            failed: false,
        }
    }
}

impl Placer<'_, '_> {
    fn seat(&self, rank: u32) -> RankPosition {
        let (tp, copies) = (self.tp(), self.copies());
        RankPosition { tp: rank % tp, copy: rank / tp % copies, stage: rank / tp / copies }
    }

    fn rank(&self, seat: RankPosition) -> u32 {
        seat.tp + self.tp() * (seat.copy + self.copies() * seat.stage)
    }

    /// The ranks of a tensor-parallel group that are simulated: those on the rails that are.
    fn tp(&self) -> u32 {
        self.written.degrees.tp / self.maker.context.reduction.rails
    }

    /// The ranks that hold one share of a layer and are simulated.
    fn copies(&self) -> u32 {
        self.written.copies() / self.maker.context.reduction.replicas
    }

    /// The number of ranks that are simulated.
    fn ranks(&self) -> u32 {
        self.written.ranks() / self.maker.context.reduction.hosts()
    }

    pub(super) fn server(&self, rank: u32) -> u32 {
        self.taken[(rank / self.servers.gpus) as usize]
    }

    pub(super) fn gpu(&self, rank: u32) -> u32 {
        rank % self.servers.gpus
    }

    pub(super) fn host(&self, rank: u32) -> HostId {
        self.servers.host(self.server(rank), self.gpu(rank))
    }

    fn place(mut self) {
        let ranks = self.ranks();
        let reduction = self.maker.context.reduction;
        let fine = self.written.degrees.tp > self.servers.gpus * reduction.rails;
        // Ranks with the most loaded experts are the first of each group.
        let ep = self.written.degrees.ep;
        let skewed = ep > 1 && self.written.imbalance > 1.0;
        let cold = if skewed { (f64::from(ep) - self.written.imbalance) / f64::from(ep - 1) } else { 1.0 };
        let loads = if skewed { vec![self.written.imbalance, cold] } else { vec![1.0] };
        let mut roles = Vec::new();
        for stage in 0..self.written.degrees.pp {
            for load in &loads {
                let mut role = Writer::new(self.written, stage, *load, fine).role();
                role.divide(reduction);
                if role.steps.len() as u64 > STEPS_MAX {
                    let what = format!("makes {} steps per rank", role.steps.len());
                    let remedy = "write fewer micro_batches or iterations";
                    return self.maker.complain("micro_batches", self.written.micro_batches, what, remedy);
                }
                roles.push(role);
            }
        }
        let role_of = |seat: RankPosition| {
            let loads = loads.len() as u32;
            seat.stage * loads + u32::from(loads > 1 && !seat.copy.is_multiple_of(ep))
        };
        let mut all = Vec::with_capacity(ranks as usize);
        let mut role_of_rank = Vec::with_capacity(ranks as usize);
        let mut steps = 0;
        for rank in 0..ranks {
            let number = role_of(self.seat(rank));
            let role = &roles[number as usize];
            let mut counts = BTreeMap::new();
            let mut mine = Vec::with_capacity(role.operations.len());
            for &(does, kind) in &role.operations {
                let made = self.operation(rank, does, kind, &mut counts);
                if self.failed {
                    return;
                }
                mine.extend(made);
            }
            steps += role.steps.len() as u64;
            role_of_rank.push(number);
            all.push(mine);
        }
        let scripts: Vec<Script> = roles.into_iter().map(Role::script).collect();
        self.estimate(&scripts);
        self.finish(scripts, role_of_rank, all, steps);
    }

    /// Adds the job to the run. `steps` is the number of steps of all ranks together.
    pub(super) fn finish(self, scripts: Vec<Script>, roles: Vec<u32>, operations: Vec<Vec<RankOperation>>, steps: u64) {
        let ranks = self.ranks();
        let hosts: Vec<HostId> = (0..ranks).map(|rank| self.host(rank)).collect();
        let seats = (0..ranks).map(|rank| self.gpu(rank) as u16).collect();
        let shortest = self.maker.context.topology.shortest_latency();
        let start = self.maker.context.reduction.span(self.maker.workload.common.start);
        // The times of steps are most of what is known of such a run.
        let reduced = self.maker.context.reduction != Reduction::NONE;
        let Placer { written, servers, maker, plan, teams, locals, .. } = self;
        let number = maker.traffic.jobs.len() as u32;
        let start = maker.moment(start);
        let job = ScriptedJob {
            number,
            scripts,
            roles,
            hosts,
            operations,
            teams,
            locals,
            seats,
            signal_latency: servers.latency.max(shortest),
            start,
            stragglers: written.pace.stragglers,
            noise: written.pace.noise,
            seed: maker.context.seed,
            keeps_steps: steps <= if reduced { 8 * KEPT_MAX } else { KEPT_MAX },
            // Set when all workloads are known.
            first_message: 0,
            first_word: 0,
            first_order: 0,
        };
        maker.traffic.add_job(plan, job);
    }

    fn operation(
        &mut self,
        rank: u32,
        does: Does,
        kind: u8,
        counts: &mut BTreeMap<(Sort, u8), u32>,
    ) -> Option<RankOperation> {
        match does {
            Does::Collective { sort, collective, bytes, times } => {
                let count = counts.entry((sort, kind)).or_insert(0);
                *count += 1;
                self.collective(rank, (sort, kind, *count), (collective, bytes, times))
            }
            Does::Send { from, backward, micro } => self.message(rank, (from, backward, micro), true, counts),
            Does::Receive { from, backward, micro } => self.message(rank, (from, backward, micro), false, counts),
        }
    }

    pub(super) fn team(&mut self, ranks: Vec<u32>) -> u32 {
        if let Some(&team) = self.team_of.get(&ranks) {
            return team;
        }
        let mut hosts: Vec<HostId> = ranks.iter().map(|&rank| self.host(rank)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        self.teams.push(Team { ranks: ranks.len() as u32, hosts });
        let team = self.teams.len() as u32 - 1;
        self.team_of.insert(ranks, team);
        team
    }

    /// The name of a kind of step.
    pub(super) fn label(&self, kind: u8) -> &'static str {
        match self.written.trace {
            Some(_) => TRACE_KINDS[usize::from(kind)],
            None => KINDS[usize::from(kind)],
        }
    }

    /// Stores a collective of the job. Reports name it by its kind.
    pub(super) fn plan_of(&mut self, label: &'static str, made: CollectivePlan) {
        let place = self.maker.traffic.collectives.len();
        let name = format!("{}/{label}/{place}", self.name);
        self.maker.traffic.collectives.push(CollectivePlan { name, ..made });
        match self.plan.operations.iter_mut().find(|(known, _)| known == label) {
            Some((_, places)) => places.push(place),
            None => self.plan.operations.push((label.to_string(), vec![place])),
        }
    }

    /// The time in which the busiest NIC sends the bytes of the job.
    pub(super) fn nic_bound(&self) -> Span {
        let traffic = &self.maker.traffic;
        let mut sent: BTreeMap<HostId, u64> = BTreeMap::new();
        let mut add = |host: HostId, bytes: u64| {
            let sum = sent.entry(host).or_default();
            *sum = sum.saturating_add(bytes);
        };
        let places = self.plan.operations.iter().flat_map(|(_, places)| places);
        for operation in places.filter_map(|&place| traffic.collectives[place].operation) {
            match &traffic.operations[operation] {
                Operation::Messages(group) => add_bytes(group.plans(), |rank, [sent, _]| add(group.host(rank), sent)),
                Operation::PointToPoint(pipe) => add(pipe.ends[0], pipe.bytes.saturating_mul(pipe.count.into())),
                Operation::Multicast(_) | Operation::Job(_) | Operation::InNetwork(_) => {}
            }
        }
        let most = sent.into_values().max().unwrap_or(0);
        fits(self.maker.context.rate, Bytes(most)).unwrap_or(Span::ZERO)
    }

    /// Sets the lower bound of the job's time, and about the longest time.
    fn estimate(&mut self, scripts: &[Script]) {
        let compute = scripts.iter().map(Script::computation).max().unwrap_or(Span::ZERO);
        let micros = f64::from(self.written.micro_batches * self.written.chunks);
        let filled = compute.scaled(1.0 + f64::from(self.written.degrees.pp - 1) / micros);
        let bound = if scripts.iter().all(|script| script.computation() == compute) { filled } else { compute };
        self.plan.bound = bound.max(self.nic_bound());
        // The work of an average rank without overlap: computation, network, links inside servers.
        let mut serial = filled;
        let ranks = u64::from(self.ranks());
        let mut network = 0u128;
        for (_, places) in &self.plan.operations {
            for made in places.iter().map(|&place| &self.maker.traffic.collectives[place]) {
                let times = match made.operation.and_then(|place| self.maker.traffic.operations[place].pipe()) {
                    Some(_) => u64::from(self.written.micro_batches * self.written.iterations),
                    None => u64::from(made.ranks),
                };
                network += u128::from(made.bound.0) * u128::from(times);
            }
        }
        let inside: u128 = self
            .locals
            .iter()
            .map(|local| u128::from(local.span.0) * u128::from(self.teams[local.team as usize].ranks))
            .sum();
        serial += Span(((network + inside) / u128::from(ranks)) as u64);
        self.plan.longest = serial.scaled(1.0 + self.written.pace.stragglers + 4.0 * self.written.pace.noise);
    }
}
