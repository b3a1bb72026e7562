//! The collectives of a job's groups: the members of a group, and one operation per member.

use super::super::choice::{Chosen, Wish};
use super::super::on_servers::collective_of;
use super::super::recipes::{recipe_of, slices};
use super::super::role::Sort;
use super::{Placer, RankPosition};
use crate::ideal_fct::Alone;
use crate::job::Degrees;
use crate::planned::DIRECT;
use crate::plans::WholePlan;
use crate::servers::Wiring;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_collective::{Algorithm, Local, Operation, Plans, Rank, RankOperation, Schedule};
use strandway_import::trace::Kind;
use strandway_proto::HostId;
use strandway_proto::units::{Span, Time};

/// The least number of steps to which a ring is shortened: ours.
const STEPS_MIN: u32 = 16;

/// A group of ranks.
pub(in crate::job) struct Communicator {
    members: Vec<u32>,
    /// For each server the places of its members in `members`.
    servers: Vec<Vec<u32>>,
    /// The team of each server, if it has several members.
    teams: Vec<u32>,
    /// The number of members of a server for which each one here stands, and the number of servers for which each one
    /// does.
    each: u64,
    fewer: u32,
    /// By rail and kind of step: the first collective. Later ones use its connections.
    first: BTreeMap<(u32, u8, Option<Kind>), usize>,
}

impl Placer<'_, '_> {
    /// The group of a rank: its number among groups of its sort, its members, and the rank's place in it.
    fn members(&self, rank: u32, sort: Sort) -> (u32, Vec<u32>, u32) {
        let seat = self.seat(rank);
        let Degrees { tp, cp, ep, .. } = self.written.degrees;
        let copies = self.copies();
        let of = |copies: Vec<u32>| -> Vec<u32> {
            copies.into_iter().map(|copy| self.rank(RankPosition { copy, ..seat })).collect()
        };
        // The first member identifies the group.
        let members = match sort {
            Sort::Tensor => {
                (0..tp / self.maker.context.reduction.rails).map(|tp| self.rank(RankPosition { tp, ..seat })).collect()
            }
            Sort::Context => of((seat.copy / cp * cp..(seat.copy / cp + 1) * cp).collect()),
            Sort::Expert => of((seat.copy / ep * ep..(seat.copy / ep + 1) * ep).collect()),
            Sort::Data => of((0..copies).collect()),
            Sort::Listed => Vec::new(),
            Sort::ExpertData => of((0..copies).filter(|copy| copy % ep == seat.copy % ep).collect()),
        };
        let at = members.iter().position(|&member| member == rank).unwrap_or(0) as u32;
        (members[0], members, at)
    }

    pub(in crate::job) fn communicator(&mut self, sort: Sort, number: u32, members: Vec<u32>) -> bool {
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
            self.maker.complain("tp", self.written.degrees.tp, what, remedy);
            self.failed = true;
            return false;
        }
        let each = if sort == Sort::Tensor { self.maker.context.reduction.rails.into() } else { 1 };
        let teams = match servers[0].len() as u64 * each {
            1 => Vec::new(),
            _ => {
                let of = |server: &Vec<u32>| server.iter().map(|&at| members[at as usize]).collect::<Vec<u32>>();
                let all: Vec<Vec<u32>> = servers.iter().map(of).collect();
                all.into_iter().map(|ranks| self.team(ranks)).collect()
            }
        };
        let fewer = match sort {
            Sort::Data | Sort::ExpertData => self.maker.context.reduction.replicas,
            _ => 1,
        };
        let made = Communicator { members, servers, teams, each, fewer, first: BTreeMap::new() };
        self.communicators.insert((sort, number), made);
        true
    }

    pub(super) fn collective(
        &mut self,
        rank: u32,
        (sort, kind, count): (Sort, u8, u32),
        what: (Kind, u64, u32),
    ) -> Option<RankOperation> {
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
    pub(in crate::job) fn make(
        &mut self,
        group: &mut Communicator,
        kind: u8,
        (collective, bytes, times): (Kind, u64, u32),
    ) -> Vec<RankOperation> {
        let ranks = group.members.len() as u64;
        let (here, servers) = (group.servers[0].len() as u64, group.servers.len() as u64);
        let mut made: Vec<Option<RankOperation>> = vec![None; ranks as usize];
        let first_rail = self.maker.traffic.collectives.len();
        // Rails: the n-th members of all servers.
        if servers > 1 {
            let whole = bytes.saturating_mul(times.into());
            let hosts: Vec<HostId> =
                group.servers.iter().map(|server| self.host(group.members[server[0] as usize])).collect();
            let chosen = self.choose(collective, whole, (servers as u32, ranks as u32), (&hosts, whole / here));
            let whole = self.maker.context.reduction.bytes(whole);
            let by = Some(collective).filter(|_| chosen.recipe);
            let rails = self.rails_per_nic(group);
            for rail in 0..here as u32 {
                let members: Vec<u32> = group.servers.iter().map(|server| server[rail as usize]).collect();
                let whole = whole / if collective == Kind::AllToAll { 1 } else { here };
                let hosts: Vec<HostId> = members.iter().map(|&at| self.host(group.members[at as usize])).collect();
                let first = group.first.get(&(rail, kind, by)).copied();
                let all = hosts.len() as u32 * group.fewer;
                let Some(place) = self.rail((collective, chosen), (whole, rails), (&hosts, all), kind, first) else {
                    return Vec::new();
                };
                group.first.entry((rail, kind, by)).or_insert(place);
                for (member, &at) in (0u32..).zip(&members) {
                    made[at as usize] = Some(RankOperation::Member { operation: place as u32, rank: member });
                }
            }
        }
        // Inside a server, each GPU sends the others the data that its rail brings.
        let here = here * group.each;
        if here > 1 {
            let share = bytes / here * (here - 1);
            let (share, steps) = match collective {
                Kind::AllReduce | Kind::Barrier => (2 * share, 2 * (here - 1)),
                Kind::AllGather | Kind::ReduceScatter | Kind::Broadcast | Kind::Reduce => (share, here - 1),
                Kind::AllToAll | Kind::Gather | Kind::Scatter => (share, 1),
            };
            let span = self.servers.time(share, steps) * u64::from(times);
            let span = self.maker.context.reduction.span(span);
            let first = self.locals.len() as u32;
            for (server, &team) in group.servers.iter().zip(&group.teams) {
                self.locals.push(Local { team, span });
                let local = self.locals.len() as u32 - 1;
                for &at in server {
                    let messages = made[at as usize].and_then(|operation| operation.member());
                    made[at as usize] = Some(RankOperation::Inside { local, messages });
                }
            }
            let rails = &self.maker.traffic.collectives[first_rail..];
            let whole = WholePlan {
                label: self.label(kind),
                kind: collective_of(collective),
                algorithm: match rails.first() {
                    Some(rail) => format!("{} on {here} rails", rail.algorithm),
                    None => "inside a server".to_string(),
                },
                ranks: ranks as u32,
                each: group.each as u32,
                bytes: self.maker.context.reduction.bytes(bytes.saturating_mul(times.into())),
                bound: rails.iter().map(|rail| rail.bound).fold(span, Span::max),
                locals: first..self.locals.len() as u32,
            };
            self.plan.wholes.push(whole);
        }
        made.into_iter().flatten().collect()
    }

    /// The number of a group's rails that share the busiest NIC.
    fn rails_per_nic(&self, group: &Communicator) -> u64 {
        let mut nics: BTreeMap<HostId, u64> = BTreeMap::new();
        for &at in group.servers.iter().flatten() {
            *nics.entry(self.host(group.members[at as usize])).or_default() += 1;
        }
        nics.into_values().max().unwrap_or(1)
    }

    /// A collective of messages on one rail; returns its index among the collectives of the run. `first` has the
    /// connections that it uses, if it is not the first of its kind. `all` is the number of ranks for which `hosts`
    /// stand.
    fn rail(
        &mut self,
        (collective, chosen): (Kind, Chosen),
        (bytes, rails): (u64, u64),
        (hosts, all): (&[HostId], u32),
        kind: u8,
        first: Option<usize>,
    ) -> Option<usize> {
        let ranks = hosts.len() as u32;
        let algorithm = match collective {
            _ if chosen.recipe => return self.follow((collective, chosen), (bytes, rails), hosts, kind, first),
            Kind::AllReduce | Kind::Barrier => Algorithm::RingAllReduce,
            Kind::AllGather => Algorithm::RingAllGather,
            Kind::ReduceScatter => Algorithm::RingReduceScatter,
            Kind::AllToAll => Algorithm::AllToAll { window: self.written.window.min(ranks) },
            Kind::Broadcast | Kind::Reduce | Kind::Gather | Kind::Scatter => {
                return self.follow((collective, chosen), (bytes, rails), hosts, kind, first);
            }
        };
        let parts = if collective == Kind::AllToAll { 1 } else { chosen.parts.unwrap_or(self.written.parts) };
        let wire = chosen.protocol.on_wire(bytes).max(u64::from(all));
        let made = Schedule::new(algorithm, all, wire, parts);
        let schedule = match made {
            Ok(schedule) => schedule,
            Err(error) => {
                self.maker.complain("dp", self.written.degrees.dp, error, "write fewer ranks, or a smaller pipeline");
                self.failed = true;
                return None;
            }
        };
        let whole = schedule;
        let schedule = self.shortened(whole, ranks);
        let connections = u64::from(self.maker.workload.common.connections);
        if !self.maker.without_rows(u64::from(ranks) * u64::from(schedule.messages()) * connections) {
            self.failed = true;
            return None;
        }
        let first = first.and_then(|first| self.maker.traffic.operations[first].group());
        let mut group = match first.filter(|first| first.schedule().is_some()) {
            Some(first) => first.with(Plans::Computed(schedule)),
            None => self.maker.group(&schedule, hosts, (true, false)).0.with(Plans::Computed(schedule)),
        };
        group.starts.fill(Time::NEVER);
        group.pause = self.pause(&whole, &schedule, hosts);
        let bound = self.maker.bound_beside(&group, rails);
        let place = self.maker.traffic.add(Operation::Messages(Box::new(group)));
        self.plan_of(
            self.label(kind),
            self.maker.of_job((algorithm.collective(), algorithm.name()), (ranks, bytes), place, bound),
        );
        Some(place)
    }

    /// In a run of smaller jobs, a ring or an all-to-all with less steps instead of shorter messages, as far as that
    /// goes: the share of latencies stays right. If some ranks begin late, all steps count, because each rank waits for
    /// all others. `ranks` may be less than those of the whole operation.
    fn shortened(&self, whole: Schedule, ranks: u32) -> Schedule {
        let divisor = self.maker.context.reduction.divisor;
        let apart = self.written.pace.stragglers > 0.0 || self.written.pace.noise > 0.0 || self.written.imbalance > 1.0;
        let least = match whole.algorithm() {
            Algorithm::AllToAll { window } => window,
            _ => STEPS_MIN,
        };
        let all = whole.steps();
        let by = divisor.min(u64::from(all / least));
        let fewer = ranks < whole.ranks();
        if (!fewer && (apart || by <= 1)) || !whole.has_equal_steps() {
            return whole;
        }
        let Ok(small) = Schedule::new(whole.algorithm(), ranks, 0, whole.parts()) else { return whole };
        let some = (u64::from(all).div_ceil(by.max(1)) as u32).min(small.steps());
        // As many bytes in all its steps as there are in those of the whole operation.
        let bytes = u128::from(whole.bytes()) * u128::from(all) / u128::from(some);
        let bytes = (bytes * u128::from(ranks) / u128::from(whole.ranks())) as u64;
        Schedule::new(whole.algorithm(), ranks, bytes, whole.parts()).map_or(whole, |made| made.shortened(some))
    }

    /// The latency of the steps that a shortened schedule leaves out, for each step that it has. A step stands for
    /// several, and its own latency counts once.
    fn pause(&self, whole: &Schedule, schedule: &Schedule, hosts: &[HostId]) -> Span {
        let (all, some) = (u64::from(whole.steps()), u64::from(schedule.steps()));
        let divisor = self.maker.context.reduction.divisor;
        if some >= all {
            return Span::ZERO;
        }
        let profile = &self.maker.traffic.profiles[usize::from(self.maker.profile)];
        let alone = Alone::new(profile, self.maker.context.topology, self.maker.context.rate);
        // Around a ring, a step lasts for the way to the next rank; a transfer of an all-to-all also for the way back.
        let ring = schedule.peers() == 1;
        let bytes = schedule.shortest();
        let latency = |from: usize| {
            let to = schedule.send(Rank(from as u32), 0).to.0 as usize;
            let time = match ring {
                true => alone.transfer(hosts[from], hosts[to], bytes),
                false => alone.completion(hosts[from], hosts[to], bytes),
            };
            time.0.saturating_sub(alone.busy(bytes).0)
        };
        let mean = (0..hosts.len()).map(latency).sum::<u64>() / hosts.len().max(1) as u64;
        Span((u128::from(mean) * u128::from(all - some) / u128::from(some) / u128::from(divisor)) as u64)
    }

    /// Places a collective of a job that follows a recipe.
    fn follow(
        &mut self,
        (collective, chosen): (Kind, Chosen),
        (bytes, rails): (u64, u64),
        hosts: &[HostId],
        kind: u8,
        first: Option<usize>,
    ) -> Option<usize> {
        let ranks = hosts.len() as u32;
        let whole = bytes.saturating_mul(self.maker.context.reduction.divisor);
        let parts = slices(collective, whole, chosen.parts.unwrap_or(self.written.parts));
        let wire = chosen.protocol.on_wire(bytes);
        // Plans of process groups are for one length, and their parts are chosen by it.
        let planned = match &self.written.algorithm {
            Wish::Planned(planned) => Some((planned, collective_of(collective))),
            _ => None,
        };
        let key = (collective, ranks, if planned.is_some() { wire } else { parts.into() });
        let recipe = match self.recipes.get(&key) {
            Some(recipe) => Arc::clone(recipe),
            None => {
                let made = match planned {
                    Some((planned, collective)) => planned.recipe(collective, (ranks, wire), 0),
                    None => recipe_of(collective, ranks, parts),
                };
                let recipe = match made {
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
        let shares = planned.is_some() && recipe.name() == DIRECT;
        let earlier = match first {
            _ if shares => self.connected.get(hosts).copied(),
            _ => first
                .filter(|&first| self.maker.traffic.operations[first].group().is_none_or(|g| g.schedule().is_none())),
        };
        let Some(made) = self.maker.tabled(&recipe, wire, hosts, earlier) else {
            self.failed = true;
            return None;
        };
        let bound = self.maker.bound_beside(&made, rails);
        let place = self.maker.traffic.add(Operation::Messages(Box::new(made)));
        if shares {
            self.connected.entry(hosts.to_vec()).or_insert(place);
        }
        let plan = self.maker.of_job((recipe.collective(), recipe.name()), (ranks, bytes), place, bound);
        self.plan_of(self.label(kind), plan);
        Some(place)
    }
}
