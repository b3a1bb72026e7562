//! Places the ranks of a job on servers: the members of each group, and the bytes that leave a server.
//!
//! Ranks are numbered as Megatron-LM numbers them: tensor parallel fastest, then context, data, and the pipeline's stages outermost; rank `r`
//! runs on GPU `r mod gpus` of the job's server `r / gpus`. Expert-parallel groups are neighbours among the ranks that hold one share of a layer.

use super::choice::Chosen;
use super::steps::{KINDS, Operation as Does, SEND, Sort, Way, Writer};
use super::traced::TRACE_KINDS;
use super::{Placement, Written};
use crate::alone::Alone;
use crate::scenario::collective::{CollectivePlan, Execution};
use crate::scenario::fsdp::{JobPlan, STEPS_MAX};
use crate::scenario::generate::Maker;
use crate::scenario::servers::{Servers, Wiring};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_collective::{
    Algorithm, Between, Collective, Group, Local, Operation, Pipe, Recipe, RecipeError, Schedule, Script, ScriptedJob,
    Team,
};
use strandway_proto::HostId;
use strandway_proto::units::{Span, Time};

/// A job with at most this many steps of all ranks together records the times of each step: 24 B per step.
const KEPT_MAX: u64 = 1 << 21;

/// A group of ranks.
pub(super) struct Communicator {
    members: Vec<u32>,
    /// For each server the places of its members in `members`.
    servers: Vec<Vec<u32>>,
    /// The team of each server, if it has several members.
    teams: Vec<u32>,
    /// By rail and kind of step: the first collective. Later ones use its connections.
    first: BTreeMap<(u32, u8, Option<Way>), Between>,
}

/// A job during its placement.
pub(super) struct Placer<'a, 'm> {
    pub(super) written: &'a Written,
    pub(super) servers: &'a Servers,
    /// The servers that the job has taken.
    taken: Vec<u32>,
    pub(super) maker: &'a mut Maker<'m>,
    pub(super) name: String,
    pub(super) communicators: BTreeMap<(Sort, u32), Communicator>,
    /// Operations that exist already: one per member of a group.
    made: BTreeMap<(Sort, u32, u8, u32), Vec<Operation>>,
    /// Pipes that exist, by stage, direction and the sender's place in its stage.
    pipes: BTreeMap<(u32, bool, u32), Option<u32>>,
    teams: Vec<Team>,
    team_of: BTreeMap<Vec<u32>, u32>,
    pub(super) locals: Vec<Local>,
    /// Recipes that exist already, by what they do, the number of ranks, and parts.
    recipes: BTreeMap<(Way, u32, u32), Arc<Recipe>>,
    /// Messages inside a server that exist already, by the same key and the message's number.
    inside: BTreeMap<(u32, bool, u32, u32), u32>,
    pub(super) plan: JobPlan,
    /// True after the first error.
    pub(super) failed: bool,
}

impl Maker<'_> {
    /// Adds a job with a model.
    pub(in crate::scenario) fn job(&mut self, written: &Written) {
        let servers = self.context.servers.clone();
        let Some(taken) = self.take_servers(written, &servers) else { return };
        let name = self.workload.class.clone();
        if self.traffic.jobs.iter().any(|job| job.name == name) {
            return self.complain("name", &name, "is the name of another job", "give each job a name of its own");
        }
        self.traffic.notes.push(written.note(&name, taken.len() as u32));
        let plan = JobPlan {
            name: name.clone(),
            flops: written.flops() / f64::from(written.ranks()),
            peak: written.peak,
            tokens: written.all_tokens(),
            ..JobPlan::default()
        };
        let placer = Placer {
            written,
            servers: &servers,
            taken,
            maker: self,
            name,
            communicators: BTreeMap::new(),
            made: BTreeMap::new(),
            pipes: BTreeMap::new(),
            teams: Vec::new(),
            team_of: BTreeMap::new(),
            locals: Vec::new(),
            recipes: BTreeMap::new(),
            inside: BTreeMap::new(),
            plan,
            failed: false,
        };
        match &written.trace {
            Some(trace) => placer.place_trace(trace),
            None => placer.place(),
        }
    }

    /// Chooses the servers of a job and marks them as taken.
    fn take_servers(&mut self, written: &Written, servers: &Servers) -> Option<Vec<u32>> {
        let ranks = written.ranks();
        let needed = ranks.div_ceil(servers.gpus);
        if ranks > servers.gpus && !ranks.is_multiple_of(servers.gpus) {
            let what = format!("makes {ranks} ranks, which do not fill servers of {} GPUs", servers.gpus);
            self.complain("dp", written.dp, what, "write degrees whose product is a multiple of servers.gpus");
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
            self.complain("dp", written.dp, what, "enlarge the fabric, or write fewer ranks");
            return None;
        }
        chosen.truncate(needed as usize);
        self.traffic.taken.extend(&chosen);
        Some(chosen)
    }
}

/// The recipe of a collective among `ranks` ranks, with blocks of `parts` parts; the first rank is the root.
pub(super) fn recipe_of(way: Way, ranks: u32, parts: u32) -> Result<Recipe, RecipeError> {
    match way {
        Way::AllReduce => Recipe::tree(ranks, parts),
        Way::AllGather => Recipe::pat_all_gather(ranks, parts),
        Way::ReduceScatter => Recipe::pat_reduce_scatter(ranks, parts),
        Way::Reduce => Recipe::chain_reduce(ranks, parts, 0),
        Way::Gather => Recipe::gather(ranks, 0),
        Way::Scatter => Recipe::scatter(ranks, 0),
        Way::Broadcast | Way::AllToAll => Recipe::chain(ranks, parts, 0),
    }
}

/// Parts of a block in a recipe: at least `wanted`. Along chains and trees NCCL sends slices of 512 KiB at the least
/// (`NCCL_BUFFSIZE` over eight steps).
pub(super) fn slices(way: Way, bytes: u64, wanted: u32) -> u32 {
    match way {
        Way::Broadcast | Way::Reduce => wanted.max((bytes >> 19).min(64) as u32),
        Way::AllReduce => wanted.max((bytes >> 20).min(64) as u32),
        _ => wanted,
    }
}

/// The position of a rank in each dimension of parallelism.
#[derive(Clone, Copy)]
struct Seat {
    tp: u32,
    /// Its number among the ranks that hold the same share of a layer.
    copy: u32,
    stage: u32,
}

impl Placer<'_, '_> {
    fn seat(&self, rank: u32) -> Seat {
        let (tp, copies) = (self.written.tp, self.written.copies());
        Seat { tp: rank % tp, copy: rank / tp % copies, stage: rank / tp / copies }
    }

    fn rank(&self, seat: Seat) -> u32 {
        seat.tp + self.written.tp * (seat.copy + self.written.copies() * seat.stage)
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
        let ranks = self.written.ranks();
        let fine = self.written.tp > self.servers.gpus;
        // Ranks with the most loaded experts are the first of each group.
        let ep = self.written.ep;
        let skewed = ep > 1 && self.written.imbalance > 1.0;
        let cold = if skewed { (f64::from(ep) - self.written.imbalance) / f64::from(ep - 1) } else { 1.0 };
        let loads = if skewed { vec![self.written.imbalance, cold] } else { vec![1.0] };
        let mut roles = Vec::new();
        for stage in 0..self.written.pp {
            for load in &loads {
                let role = Writer::new(self.written, stage, *load, fine).role();
                if role.steps.len() as u64 > STEPS_MAX {
                    let what = format!("makes {} steps per rank", role.steps.len());
                    let remedy = "write fewer micro_batches or iterations";
                    return self.maker.complain("micro_batches", self.written.micro_batches, what, remedy);
                }
                roles.push(role);
            }
        }
        let role_of = |seat: Seat| {
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
        let scripts: Vec<Script> = roles.into_iter().map(super::steps::Role::script).collect();
        self.estimate(&scripts);
        self.finish(scripts, role_of_rank, all, steps);
    }

    /// Adds the job to the run. `steps` is the number of steps of all ranks together.
    pub(super) fn finish(self, scripts: Vec<Script>, roles: Vec<u32>, operations: Vec<Vec<Operation>>, steps: u64) {
        let ranks = self.written.ranks();
        let hosts: Vec<HostId> = (0..ranks).map(|rank| self.host(rank)).collect();
        let seats = (0..ranks).map(|rank| self.gpu(rank) as u16).collect();
        let shortest = self.maker.context.topology.shortest_latency();
        let start = self.maker.workload.common.start;
        let Placer { written, servers, maker, plan, teams, locals, .. } = self;
        let number = maker.traffic.jobs.len() as u32;
        let start = maker.moment(start);
        maker.traffic.jobs.push(plan);
        maker.traffic.scripted.push(ScriptedJob {
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
            stragglers: written.stragglers,
            noise: written.noise,
            seed: maker.context.seed,
            keeps_steps: steps <= KEPT_MAX,
            // Set when all workloads are known.
            first_message: 0,
            first_word: 0,
            first_order: 0,
        });
    }

    fn operation(
        &mut self,
        rank: u32,
        does: Does,
        kind: u8,
        counts: &mut BTreeMap<(Sort, u8), u32>,
    ) -> Option<Operation> {
        match does {
            Does::Collective { sort, way, bytes, times } => {
                let count = counts.entry((sort, kind)).or_insert(0);
                *count += 1;
                self.collective(rank, (sort, kind, *count), (way, bytes, times))
            }
            Does::Send { from, backward, micro } => self.message(rank, (from, backward, micro), true, counts),
            Does::Receive { from, backward, micro } => self.message(rank, (from, backward, micro), false, counts),
        }
    }

    /// The group of a rank: its number among groups of its sort, its members, and the rank's place in it.
    fn members(&self, rank: u32, sort: Sort) -> (u32, Vec<u32>, u32) {
        let seat = self.seat(rank);
        let Written { tp, cp, ep, .. } = *self.written;
        let copies = self.written.copies();
        let of = |copies: Vec<u32>| -> Vec<u32> {
            copies.into_iter().map(|copy| self.rank(Seat { copy, ..seat })).collect()
        };
        // The first member identifies the group.
        let members = match sort {
            Sort::Tensor => (0..tp).map(|tp| self.rank(Seat { tp, ..seat })).collect(),
            Sort::Context => of((seat.copy / cp * cp..(seat.copy / cp + 1) * cp).collect()),
            Sort::Expert => of((seat.copy / ep * ep..(seat.copy / ep + 1) * ep).collect()),
            Sort::Data => of((0..copies).collect()),
            Sort::Listed => Vec::new(),
            Sort::ExpertData => of((0..copies).filter(|copy| copy % ep == seat.copy % ep).collect()),
        };
        let at = members.iter().position(|&member| member == rank).unwrap_or(0) as u32;
        (members[0], members, at)
    }

    pub(super) fn communicator(&mut self, sort: Sort, number: u32, members: Vec<u32>) -> bool {
        if self.communicators.contains_key(&(sort, number)) {
            return true;
        }
        let mut servers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (at, &member) in (0u32..).zip(&members) {
            servers.entry(member / self.servers.gpus).or_default().push(at);
        }
        let servers: Vec<Vec<u32>> = servers.into_values().collect();
        let gpus =
            |server: &Vec<u32>| -> Vec<u32> { server.iter().map(|&at| self.gpu(members[at as usize])).collect() };
        let even = servers.windows(2).all(|pair| pair[0].len() == pair[1].len());
        let same = servers.windows(2).all(|pair| gpus(&pair[0]) == gpus(&pair[1]));
        if !even || (!same && (servers[0].len() > 1 || self.servers.wiring == Wiring::RailOnly)) {
            let what = format!("spreads a group of {} ranks unevenly over servers", members.len());
            let remedy = "choose tp, cp, ep and dp that divide servers.gpus, or are multiples of it";
            self.maker.complain("tp", self.written.tp, what, remedy);
            self.failed = true;
            return false;
        }
        let teams = match servers[0].len() {
            1 => Vec::new(),
            _ => {
                let of = |server: &Vec<u32>| server.iter().map(|&at| members[at as usize]).collect::<Vec<u32>>();
                let all: Vec<Vec<u32>> = servers.iter().map(of).collect();
                all.into_iter().map(|ranks| self.team(ranks)).collect()
            }
        };
        let made = Communicator { members, servers, teams, first: BTreeMap::new() };
        self.communicators.insert((sort, number), made);
        true
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

    fn collective(
        &mut self,
        rank: u32,
        (sort, kind, count): (Sort, u8, u32),
        what: (Way, u64, u32),
    ) -> Option<Operation> {
        let (number, members, at) = self.members(rank, sort);
        let key = (sort, number, kind, count);
        if let Some(made) = self.made.get(&key) {
            return made.get(at as usize).copied();
        }
        if !self.communicator(sort, number, members) {
            return None;
        }
        let mut communicator = self.communicators.remove(&(sort, number))?;
        let made = self.make(&mut communicator, kind, what);
        self.communicators.insert((sort, number), communicator);
        let mine = made.get(at as usize).copied();
        self.made.insert(key, made);
        mine
    }

    /// One collective of a group: the operation of each member.
    pub(super) fn make(
        &mut self,
        group: &mut Communicator,
        kind: u8,
        (way, bytes, times): (Way, u64, u32),
    ) -> Vec<Operation> {
        let ranks = group.members.len() as u64;
        let (here, servers) = (group.servers[0].len() as u64, group.servers.len() as u64);
        let mut made: Vec<Option<Operation>> = vec![None; ranks as usize];
        // Rails: the n-th members of all servers.
        if servers > 1 {
            let whole = bytes.saturating_mul(times.into());
            let hosts: Vec<HostId> =
                group.servers.iter().map(|server| self.host(group.members[server[0] as usize])).collect();
            let chosen = self.choose(way, whole, (servers as u32, ranks as u32), (&hosts, whole / here));
            let by = Some(way).filter(|_| chosen.recipe);
            for rail in 0..here as u32 {
                let members: Vec<u32> = group.servers.iter().map(|server| server[rail as usize]).collect();
                let whole = bytes.saturating_mul(times.into()) / if way == Way::AllToAll { 1 } else { here };
                let hosts: Vec<HostId> = members.iter().map(|&at| self.host(group.members[at as usize])).collect();
                let first = group.first.get(&(rail, kind, by)).copied();
                let Some(place) = self.rail((way, chosen), whole, &hosts, kind, first) else { return Vec::new() };
                group.first.entry((rail, kind, by)).or_insert(place);
                for (member, &at) in (0u32..).zip(&members) {
                    made[at as usize] = Some(match place {
                        Between::Group(group, _) => Operation::Messages { group, rank: member },
                        Between::Listed(listed, _) => Operation::Listed { listed, rank: member },
                    });
                }
            }
        }
        // Inside a server, each GPU sends the others the data that its rail brings.
        if here > 1 {
            let share = bytes / here * (here - 1);
            let (share, steps) = match way {
                Way::AllReduce => (2 * share, 2 * (here - 1)),
                Way::AllGather | Way::ReduceScatter | Way::Broadcast | Way::Reduce => (share, here - 1),
                Way::AllToAll | Way::Gather | Way::Scatter => (share, 1),
            };
            let span = self.servers.time(share, steps) * u64::from(times);
            for (server, &team) in group.servers.iter().zip(&group.teams) {
                self.locals.push(Local { team, span });
                let local = self.locals.len() as u32 - 1;
                for &at in server {
                    let messages = made[at as usize].and_then(|operation| operation.between());
                    made[at as usize] = Some(Operation::Inside { local, messages });
                }
            }
        }
        made.into_iter().flatten().collect()
    }

    /// A collective of messages on one rail; returns its index among the collectives of the run. `first` has the
    /// connections that it uses, if it is not the first of its kind.
    fn rail(
        &mut self,
        (way, chosen): (Way, Chosen),
        bytes: u64,
        hosts: &[HostId],
        kind: u8,
        first: Option<Between>,
    ) -> Option<Between> {
        let ranks = hosts.len() as u32;
        let algorithm = match way {
            _ if chosen.recipe => return self.follow((way, chosen), bytes, hosts, kind, first),
            Way::AllReduce => Algorithm::RingAllReduce,
            Way::AllGather => Algorithm::RingAllGather,
            Way::ReduceScatter => Algorithm::RingReduceScatter,
            Way::AllToAll => Algorithm::AllToAll { window: self.written.window.min(ranks) },
            Way::Broadcast | Way::Reduce | Way::Gather | Way::Scatter => {
                return self.follow((way, chosen), bytes, hosts, kind, first);
            }
        };
        let parts = if way == Way::AllToAll { 1 } else { chosen.parts.unwrap_or(self.written.parts) };
        let wire = chosen.protocol.on_wire(bytes).max(u64::from(ranks));
        let made = Schedule::new(algorithm, ranks, wire, parts);
        let schedule = match made {
            Ok(schedule) => schedule,
            Err(error) => {
                self.maker.complain("dp", self.written.dp, error, "write fewer ranks, or a smaller pipeline");
                self.failed = true;
                return None;
            }
        };
        let connections = u64::from(self.maker.workload.common.connections);
        if !self.maker.without_rows(u64::from(ranks) * u64::from(schedule.messages()) * connections) {
            self.failed = true;
            return None;
        }
        let place = self.maker.traffic.groups.len() as u32;
        let mut group: Group = match first {
            Some(Between::Group(first, _)) => self.maker.traffic.groups[first as usize].clone(),
            _ => self.maker.group(&schedule, hosts, (true, false)).0,
        };
        group.schedule = schedule;
        group.number = place;
        group.starts.fill(Time::NEVER);
        self.maker.traffic.groups.push(group);
        let bound = self.maker.bound(&schedule, hosts);
        self.plan_of(
            self.label(kind),
            self.maker.of_job(
                (algorithm.collective(), algorithm.name()),
                (ranks, bytes),
                Execution::Schedule(place as usize),
                bound,
            ),
        );
        Some(Between::Group(place, 0))
    }

    /// The name of a kind of step.
    fn label(&self, kind: u8) -> &'static str {
        match self.written.trace {
            Some(_) => TRACE_KINDS[usize::from(kind)],
            None => KINDS[usize::from(kind)],
        }
    }

    /// The same by a recipe.
    fn follow(
        &mut self,
        (way, chosen): (Way, Chosen),
        bytes: u64,
        hosts: &[HostId],
        kind: u8,
        first: Option<Between>,
    ) -> Option<Between> {
        let ranks = hosts.len() as u32;
        let parts = slices(way, bytes, chosen.parts.unwrap_or(self.written.parts));
        let key = (way, ranks, parts);
        let recipe = match self.recipes.get(&key) {
            Some(recipe) => Arc::clone(recipe),
            None => {
                let recipe = match recipe_of(way, ranks, parts) {
                    Ok(recipe) => Arc::new(recipe),
                    Err(error) => {
                        self.maker.complain("pipeline", parts, error, "write fewer parts");
                        self.failed = true;
                        return None;
                    }
                };
                self.recipes.insert(key, Arc::clone(&recipe));
                recipe
            }
        };
        let earlier = match first {
            Some(Between::Listed(first, _)) => Some(first as usize),
            _ => None,
        };
        let wire = chosen.protocol.on_wire(bytes);
        let Some(place) = self.maker.listed(&recipe, wire, hosts, earlier) else {
            self.failed = true;
            return None;
        };
        let bound = self.maker.bound_of(&self.maker.traffic.listed[place]);
        let plan =
            self.maker.of_job((recipe.collective(), recipe.name()), (ranks, bytes), Execution::Listed(place), bound);
        self.plan_of(self.label(kind), plan);
        Some(Between::Listed(place as u32, 0))
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

    /// One end of a message between stages.
    fn message(
        &mut self,
        rank: u32,
        (from, backward, micro): (u32, bool, u32),
        sends: bool,
        counts: &mut BTreeMap<(Sort, u8), u32>,
    ) -> Option<Operation> {
        let seat = self.seat(rank);
        let pp = self.written.pp;
        let target = if backward { from - 1 } else { from + 1 };
        let place = seat.tp + self.written.tp * seat.copy;
        let ends = [from, target].map(|stage| self.rank(Seat { stage: stage % pp, ..seat }));
        // The number of messages in this direction so far; the iteration follows from it.
        let counted = counts.entry((Sort::Tensor, 128 | u8::from(backward) | u8::from(sends) << 1)).or_insert(0);
        *counted += 1;
        let per_iteration = self.per_iteration(seat.stage, backward, sends);
        let index = (*counted - 1) / per_iteration.max(1) * self.written.micro_batches + micro;
        if pp == 1 || self.server(ends[0]) == self.server(ends[1]) {
            let key = (from, backward, place, index);
            let local = match self.inside.get(&key) {
                Some(&local) => local,
                None => {
                    let team = self.team(ends.to_vec());
                    self.locals.push(Local { team, span: self.servers.time(self.message_bytes(), 1) });
                    let local = self.locals.len() as u32 - 1;
                    self.inside.insert(key, local);
                    local
                }
            };
            return Some(Operation::Inside { local, messages: None });
        }
        if self.servers.wiring == Wiring::RailOnly && self.gpu(ends[0]) != self.gpu(ends[1]) {
            let remedy = "write wiring = \"rail-optimised\", or degrees that keep stages on their rails";
            self.maker.complain("pp", pp, "sends from one rail to another, which have no link in common", remedy);
            self.failed = true;
            return None;
        }
        let pipe = match self.pipes.get(&(from, backward, place)) {
            Some(&pipe) => pipe,
            None => {
                let pipe = self.pipe(ends);
                self.pipes.insert((from, backward, place), pipe);
                pipe
            }
        };
        let Some(pipe) = pipe else {
            self.failed = true;
            return None;
        };
        Some(if sends { Operation::Send { pipe, index } } else { Operation::Receive { pipe, index } })
    }

    /// The number of messages that a rank of a stage sends or receives in one direction per iteration.
    fn per_iteration(&self, stage: u32, backward: bool, sends: bool) -> u32 {
        let last = self.written.pp * self.written.chunks - 1;
        let with = |place: u32| match (backward, sends) {
            (false, true) | (true, false) => place < last,
            (false, false) | (true, true) => place > 0,
        };
        let chunks = (0..self.written.chunks).filter(|chunk| with(chunk * self.written.pp + stage)).count() as u32;
        chunks * self.written.micro_batches
    }

    /// Bytes of the activations of a micro-batch that one rank sends: with tensor parallelism its share.
    fn message_bytes(&self) -> u64 {
        if let Some(file) = &self.written.imported {
            return file.stage_bytes.max(1);
        }
        (self.written.tokens() * self.written.model.hidden * 2 / u64::from(self.written.tp)).max(1)
    }

    fn pipe(&mut self, [from, to]: [u32; 2]) -> Option<u32> {
        let (from, to) = (self.host(from), self.host(to));
        let bytes = self.message_bytes();
        let connections = self.maker.workload.common.connections;
        let count = self.written.micro_batches * self.written.iterations;
        let made = Pipe {
            from,
            to,
            bytes,
            count,
            pieces: u64::from(connections).min(bytes) as u32,
            first_message: 0,
            first_channel: self.maker.traffic.connections.len() as u32,
            profile: self.maker.profile,
        };
        if !self.maker.without_rows(made.messages()) {
            return None;
        }
        self.maker.open(from.0, to.0);
        let place = self.maker.traffic.pipes.len();
        self.maker.traffic.pipes.push(made);
        let context = self.maker.context;
        let profile = &self.maker.traffic.profiles[usize::from(self.maker.profile)];
        let bound = Alone::new(profile, context.topology, context.rate).completion(from, to, bytes);
        self.plan_of(
            KINDS[usize::from(SEND)],
            self.maker.of_job((Collective::SendReceive, "messages"), (2, bytes), Execution::Pipe(place), bound),
        );
        Some(place as u32)
    }

    /// Sets the lower bound of the job's time, and about the longest time.
    fn estimate(&mut self, scripts: &[Script]) {
        let compute = scripts.iter().map(Script::computation).max().unwrap_or(Span::ZERO);
        let micros = f64::from(self.written.micro_batches * self.written.chunks);
        let filled = compute.scaled(1.0 + f64::from(self.written.pp - 1) / micros);
        self.plan.bound = if scripts.iter().all(|script| script.computation() == compute) { filled } else { compute };
        // The work of an average rank without overlap: computation, network, links inside servers.
        let mut serial = filled;
        let ranks = u64::from(self.written.ranks());
        let mut network = 0u128;
        for (_, places) in &self.plan.operations {
            for made in places.iter().map(|&place| &self.maker.traffic.collectives[place]) {
                let times = match made.execution {
                    Execution::Pipe(_) => u64::from(self.written.micro_batches * self.written.iterations),
                    _ => u64::from(made.ranks),
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
        self.plan.longest = serial.scaled(1.0 + self.written.stragglers + 4.0 * self.written.noise);
    }
}
