//! Places the ranks of a trace on servers, and turns its operations into scripts.

use super::dry_run::{Call, Rehearsal, rehearse};
use super::kinds::{TRACE_CPU, TRACE_KINDS, TRACE_RECEIVING, TRACE_SENDING, trace_kind_of};
use super::place::Placer;
use super::role::Sort;
use crate::ideal_fct::Alone;
use crate::plans::CollectivePlan;
use crate::servers::Wiring;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_collective::script::{COMPUTE, FREE, INSIDE};
use strandway_collective::{Collective, Local, Operation, Pipe, RankOperation, Script, Step, Work};
use strandway_import::recording::Recorded;
use strandway_import::trace::{Does, Kind, Trace};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span};

/// Where a message travels.
#[derive(Clone, Copy)]
enum Channel {
    /// Its pipe and its number there.
    Pipe(u32, u32),
    /// Inside a server.
    Inside(u32),
}

/// The traces of all ranks, during their placement.
struct Traced {
    trace: Arc<Trace>,
    ranks: u32,
    calls: Vec<Call>,
    /// By rank and operation of the trace.
    call_of: BTreeMap<(u32, u32), u32>,
}

impl Traced {
    fn of(&self, rank: u32) -> &strandway_import::trace::RankTrace {
        &self.trace.ranks[if self.trace.alike { 0 } else { rank as usize }]
    }

    /// The members of a group.
    fn members(&self, group: u32) -> Vec<u32> {
        match self.trace.groups.get(group as usize) {
            Some(members) if !members.is_empty() => members.clone(),
            _ => (0..self.ranks).collect(),
        }
    }

    /// The number of members of a group.
    fn size(&self, group: u32) -> u32 {
        let listed = self.trace.groups.get(group as usize).map_or(0, Vec::len) as u32;
        if listed > 0 { listed } else { self.ranks }
    }

    /// The groups for which the members of one stand: if one rank stands for all, the groups of the same shape that
    /// make up all ranks; otherwise only itself.
    fn instances(&self, mut members: Vec<u32>) -> Vec<Vec<u32>> {
        let size = members.len() as u32;
        if !self.trace.alike || size == self.ranks {
            return vec![members];
        }
        members.sort_unstable();
        let stride = members.get(1).map_or(1, |second| second - members[0]);
        let firsts = (0..self.ranks).filter(|rank| (rank / stride).is_multiple_of(size));
        firsts.map(|first| (0..size).map(|place| first + place * stride).collect()).collect()
    }

    /// Whether groups of this shape (in order) make up all ranks.
    fn is_even(&self, members: &[u32]) -> bool {
        let size = members.len() as u64;
        let stride = members.get(1).map_or(1, |second| second - members[0]);
        let regular = members.windows(2).all(|pair| pair[1] - pair[0] == stride);
        regular && u64::from(self.ranks).is_multiple_of(size * u64::from(stride))
    }

    /// An operation in messages: `node 7 of rank 3`.
    fn named(&self, rank: u32, place: u32) -> String {
        let operation = self.of(rank).operations[place as usize];
        format!("{} {} of rank {rank}", self.trace.noun, operation.id)
    }
}

impl Placer<'_, '_> {
    /// Places a trace.
    pub(super) fn place_trace(mut self, trace: &Arc<Trace>) {
        let ranks = self.written.ranks();
        let mut traced = Traced { trace: Arc::clone(trace), ranks, calls: Vec::new(), call_of: BTreeMap::new() };
        let complain = |placer: &Self, what: String, remedy: &str| {
            placer.maker.complain("file", &placer.written.label, what, remedy);
        };
        if let Err((what, remedy)) = traced.call().and_then(|()| traced.peers()) {
            return complain(&self, what, remedy);
        }
        if let Some(rank) = self.too_long(&traced) {
            let what = format!("makes rank {rank} compute and send for longer than a run can last, 51 hours");
            return complain(&self, what, "correct the times and bytes of the trace");
        }
        let rehearsal = self.rehearse(&traced);
        if let Some((rank, place)) = rehearsal.stuck {
            let waits = match traced.of(rank).operations[place as usize].does {
                Does::Collective { .. } => "waits for ranks that never begin this collective",
                _ => "waits for a message that is never sent",
            };
            let what = format!("{} {waits}", traced.named(rank, place));
            return complain(&self, what, "correct the trace: sender, tag or group, or the order of operations");
        }
        if rehearsal.unheard > 0 {
            let note = format!("{}: {} messages are sent that no rank waits for", self.name, rehearsal.unheard);
            self.maker.traffic.notes.push(note);
        }
        self.plan.recorded = trace.recorded_us.map(|us| {
            let of = |one: &Recorded| (self.label(trace_kind_of(one.kind)).to_string(), one.mean_us, one.count);
            (us, trace.recorded.iter().map(of).collect())
        });
        let Some(roads) = self.roads(&traced) else { return };
        let Some(calls) = self.calls(&traced) else { return };
        let mut scripts = Vec::new();
        let mut all = Vec::with_capacity(ranks as usize);
        let mut steps = 0;
        for rank in 0..ranks {
            let (script, mine) = script_of(&traced, rank, &rehearsal, &roads, &calls);
            steps += script.steps().len() as u64;
            if !trace.alike || rank == 0 {
                scripts.push(script);
            }
            all.push(mine);
        }
        let roles = (0..ranks).map(|rank| if trace.alike { 0 } else { rank }).collect();
        self.bounds_of_trace(&scripts, &rehearsal);
        self.finish(scripts, roles, all, steps);
    }

    /// The first rank whose computation and bytes, one after the other, take longer than a run can last.
    fn too_long(&self, traced: &Traced) -> Option<u32> {
        let rate = self.maker.context.rate.0.min(self.servers.rate.0).max(1);
        let wire = |bytes: u64| u128::from(bytes) * 8_000_000_000_000 / u128::from(rate);
        let ranks = (0u32..).zip(&traced.trace.ranks);
        let sums = ranks.map(|(rank, trace)| {
            let time = trace.operations.iter().map(|operation| match operation.does {
                Does::Compute { span, .. } => u128::from(span.0),
                Does::Send { bytes, .. } => wire(bytes),
                Does::Collective { group, kind: Kind::AllGather | Kind::Gather, bytes } => {
                    wire(bytes) * u128::from(traced.size(group))
                }
                Does::Collective { bytes, .. } => wire(bytes),
                Does::Receive { .. } => 0,
            });
            (rank, time.sum::<u128>())
        });
        sums.filter(|(_, sum)| *sum > u128::from(u64::MAX / 100)).map(|(rank, _)| rank).next()
    }

    /// The time of a message between two ranks without queues.
    fn rehearse(&self, traced: &Traced) -> Rehearsal {
        let profile = &self.maker.traffic.profiles[usize::from(self.maker.profile)];
        let alone = Alone::new(profile, self.maker.context.topology, self.maker.context.rate);
        let transfer = |from: u32, to: u32, bytes: u64| match self.server(from) == self.server(to) {
            true => self.servers.time(bytes.max(1), 1),
            false => alone.transfer(self.host(from), self.host(to), bytes.max(1)),
        };
        let members = |group: u32| traced.size(group);
        rehearse(&traced.trace, &traced.calls, &traced.call_of, members, transfer)
    }

    /// The road of each message, by the rank and the place of its send.
    fn roads(&mut self, traced: &Traced) -> Option<Vec<BTreeMap<u32, Channel>>> {
        let connections = self.maker.workload.common.connections;
        let mut roads = vec![BTreeMap::new(); traced.trace.ranks.len()];
        let mut pipes: BTreeMap<(u32, u32, u64), u32> = BTreeMap::new();
        let mut channels: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let first = self.maker.traffic.operations.len();
        for (from, rank) in (0u32..).zip(&traced.trace.ranks) {
            for (place, operation) in (0u32..).zip(&rank.operations) {
                let Does::Send { to, bytes, .. } = operation.does else { continue };
                let bytes = bytes.max(1);
                if self.server(from) == self.server(to) {
                    let team = self.team(vec![to]);
                    self.locals.push(Local { team, span: self.servers.rate.time_for(Bytes(bytes)) });
                    roads[from as usize].insert(place, Channel::Inside(self.locals.len() as u32 - 1));
                    continue;
                }
                if self.servers.wiring == Wiring::RailOnly && self.gpu(from) != self.gpu(to) {
                    let what = format!("{} sends to rank {to} on another rail", traced.named(from, place));
                    let remedy = "write wiring = \"rail-optimised\": rails have no link in common";
                    self.maker.complain("file", &self.written.label, what, remedy);
                    return None;
                }
                let pipe = match pipes.get(&(from, to, bytes)) {
                    Some(&pipe) => pipe,
                    None => {
                        let ends = [self.host(from), self.host(to)];
                        let first_channel = match channels.get(&(from, to)) {
                            Some(&channel) => channel,
                            None => self.maker.open(ends[0].0, ends[1].0).start,
                        };
                        channels.insert((from, to), first_channel);
                        let pipe = Pipe {
                            ends,
                            bytes,
                            count: 0,
                            pieces: u64::from(connections).min(bytes) as u32,
                            first_message: 0,
                            first_channel,
                            profile: self.maker.profile,
                        };
                        let pipe = self.maker.traffic.add(Operation::PointToPoint(pipe)) as u32;
                        pipes.insert((from, to, bytes), pipe);
                        pipe
                    }
                };
                if let Operation::PointToPoint(made) = &mut self.maker.traffic.operations[pipe as usize] {
                    roads[from as usize].insert(place, Channel::Pipe(pipe, made.count));
                    made.count += 1;
                }
            }
        }
        for place in first..self.maker.traffic.operations.len() {
            let Some(&pipe) = self.maker.traffic.operations[place].pipe() else { continue };
            if !self.maker.without_rows(pipe.messages()) {
                return None;
            }
            let bound = self.ideal_fct(pipe.ends[0], pipe.ends[1], pipe.bytes);
            self.plan_of(
                TRACE_KINDS[usize::from(TRACE_SENDING)],
                self.maker.of_job((Collective::SendReceive, "messages"), (2, pipe.bytes), place, bound),
            );
        }
        Some(roads)
    }

    fn ideal_fct(&self, from: HostId, to: HostId, bytes: u64) -> Span {
        let profile = &self.maker.traffic.profiles[usize::from(self.maker.profile)];
        Alone::new(profile, self.maker.context.topology, self.maker.context.rate).completion(from, to, bytes)
    }

    /// The operation of each member of each collective.
    fn calls(&mut self, traced: &Traced) -> Option<Vec<BTreeMap<u32, RankOperation>>> {
        let mut all = Vec::with_capacity(traced.calls.len());
        for call in &traced.calls {
            let members = traced.members(call.group);
            let Does::Collective { kind, bytes, .. } = call.does else { continue };
            if members.len() < 2 {
                all.push(BTreeMap::new());
                continue;
            }
            let step = trace_kind_of(kind);
            // A barrier is an all-reduce without bytes.
            let collective = if kind == Kind::Barrier { Kind::AllReduce } else { kind };
            let bytes = match kind {
                Kind::AllGather | Kind::Gather => bytes.saturating_mul(members.len() as u64),
                _ => bytes.max(members.len() as u64),
            };
            let mut operations = BTreeMap::new();
            for (instance, members) in (0u32..).zip(traced.instances(members)) {
                let number = call.group + instance * traced.trace.groups.len() as u32;
                if !self.communicator(Sort::Listed, number, members.clone()) {
                    return None;
                }
                let mut group = self.communicators.remove(&(Sort::Listed, number))?;
                let made = self.make(&mut group, step, (collective, bytes, 1));
                self.communicators.insert((Sort::Listed, number), group);
                if self.failed {
                    return None;
                }
                operations.extend(members.into_iter().zip(made));
            }
            all.push(operations);
        }
        Some(all)
    }

    /// The lower bound of the time, and about the longest time.
    fn bounds_of_trace(&mut self, scripts: &[Script], rehearsal: &Rehearsal) {
        let lanes = |script: &Script| {
            let mut sums = vec![Span::ZERO; script.streams().len()];
            for step in script.steps() {
                if let Work::Compute(span) = step.work {
                    sums[usize::from(step.stream)] += span;
                }
            }
            sums.into_iter().max().unwrap_or(Span::ZERO)
        };
        let compute = scripts.iter().map(lanes).max().unwrap_or(Span::ZERO);
        let job = self.maker.traffic.jobs.len() as u32;
        let mine = self.maker.traffic.collectives.iter().filter(|plan| plan.job == Some(job));
        let pipe_of = |plan: &CollectivePlan| self.maker.traffic.operations[plan.operation?].pipe();
        let collectives = mine.clone().filter(|plan| pipe_of(plan).is_none());
        let longest = collectives.map(|plan| plan.bound).max().unwrap_or(Span::ZERO);
        self.plan.bound = rehearsal.end.max(compute).max(longest).max(self.nic_bound());
        let network: u128 = mine
            .map(|plan| u128::from(plan.bound.0) * u128::from(pipe_of(plan).map_or(plan.ranks, |pipe| pipe.count)))
            .sum();
        let inside: u128 = self.locals.iter().map(|local| u128::from(local.span.0)).sum();
        let shared = ((network + inside) / u128::from(self.written.ranks())).min(u128::from(u64::MAX >> 8)) as u64;
        let serial = Span(rehearsal.end.0.saturating_add(compute.0).saturating_add(shared));
        self.plan.longest = serial.scaled(1.0 + self.written.pace.stragglers + 4.0 * self.written.pace.noise);
    }
}

/// A complaint: what, and the remedy.
type Wrong = (String, &'static str);

impl Traced {
    /// Numbers the collectives: the n-th of a group at one member is the n-th at all others.
    fn call(&mut self) -> Result<(), Wrong> {
        const REMEDY: &str = "the members of a group take part in its collectives in the same order";
        let mut known: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, trace) in (0u32..).zip(&self.trace.ranks) {
            for (place, operation) in (0u32..).zip(&trace.operations) {
                let Does::Collective { group, .. } = operation.does else { continue };
                let group_members = members.entry(group).or_insert_with(|| {
                    let mut members = self.members(group);
                    members.sort_unstable();
                    members
                });
                if group_members.last().is_some_and(|last| *last >= self.ranks)
                    || group_members.windows(2).any(|pair| pair[0] == pair[1])
                {
                    let what = format!(
                        "{} has a group with a rank twice, or above {}",
                        self.named(rank, place),
                        self.ranks - 1
                    );
                    return Err((what, "correct the list of groups"));
                }
                if self.trace.alike && !self.is_even(group_members) {
                    let what = format!(
                        "{} has a group like which {} ranks cannot be divided",
                        self.named(rank, place),
                        self.ranks
                    );
                    return Err((what, "write another number of gpus, or give the files of all ranks"));
                }
                if !self.trace.alike && group_members.binary_search(&rank).is_err() {
                    return Err((
                        format!("{} is not in the group of its collective", self.named(rank, place)),
                        "correct the group",
                    ));
                }
                let number = counts.entry((group, rank)).or_insert(0);
                let key = (group, *number);
                *number += 1;
                let call = *known.entry(key).or_insert_with(|| {
                    self.calls.push(Call { group, does: operation.does, first: (rank, place) });
                    self.calls.len() as u32 - 1
                });
                let first = &self.calls[call as usize];
                if first.does != operation.does {
                    let others = self.named(first.first.0, first.first.1);
                    let what =
                        format!("{} is another collective, or has other bytes, than {others}", self.named(rank, place));
                    return Err((what, REMEDY));
                }
                self.call_of.insert((rank, place), call);
            }
        }
        if !self.trace.alike {
            for (&(group, rank), &count) in &counts {
                let of = |member: &u32| counts.get(&(group, *member)).copied().unwrap_or(0);
                if let Some(other) = members[&group].iter().find(|member| of(member) != count) {
                    let what = format!(
                        "rank {rank} takes part in {count} collectives of a group, and rank {other} in {}",
                        of(other)
                    );
                    return Err((what, REMEDY));
                }
            }
        }
        Ok(())
    }

    /// Checks that the peers of messages exist.
    fn peers(&self) -> Result<(), Wrong> {
        for (rank, trace) in (0u32..).zip(&self.trace.ranks) {
            for (place, operation) in (0u32..).zip(&trace.operations) {
                let peer = match operation.does {
                    Does::Send { to, .. } => to,
                    Does::Receive { from, .. } if from == strandway_import::trace::ANY => continue,
                    Does::Receive { from, .. } => from,
                    _ => continue,
                };
                if self.trace.alike {
                    let what =
                        format!("{} sends or receives, and there is only one rank's trace", self.named(rank, place));
                    return Err((what, "give the files of all ranks: PREFIX.RANK.et"));
                }
                if peer >= self.ranks {
                    let what = format!("{} names rank {peer} of {}", self.named(rank, place), self.ranks);
                    return Err((what, "ranks are numbered from 0"));
                }
            }
        }
        Ok(())
    }
}

/// The script of a rank, and its operations.
fn script_of(
    traced: &Traced,
    rank: u32,
    rehearsal: &Rehearsal,
    roads: &[BTreeMap<u32, Channel>],
    calls: &[BTreeMap<u32, RankOperation>],
) -> (Script, Vec<RankOperation>) {
    let trace = traced.of(rank);
    let own = if traced.trace.alike { 0 } else { rank };
    let mut operations: Vec<RankOperation> = Vec::new();
    let mut steps: Vec<Step> = Vec::with_capacity(trace.operations.len() + 1);
    let mut needed = vec![false; trace.operations.len()];
    for (place, operation) in (0u32..).zip(&trace.operations) {
        let after = trace.needs_of(place as usize).to_vec();
        after.iter().for_each(|need| needed[*need as usize] = true);
        let idle = (FREE, 0, Work::Compute(Span::ZERO));
        let mut operate = |stream: u8, kind: u8, operation: RankOperation| {
            operations.push(operation);
            (stream, kind, Work::Operation(operations.len() as u32 - 1))
        };
        let (stream, kind, work) = match operation.does {
            Does::Compute { span: Span::ZERO, .. } => idle,
            Does::Compute { span, lane } => (lane, if lane == COMPUTE { 0 } else { TRACE_CPU }, Work::Compute(span)),
            Does::Send { .. } => match roads[own as usize][&place] {
                Channel::Pipe(pipe, index) => operate(FREE, TRACE_SENDING, RankOperation::Send { pipe, index }),
                Channel::Inside(local) => operate(INSIDE, TRACE_SENDING, RankOperation::Hand { local, gives: true }),
            },
            Does::Receive { .. } => {
                let (from, sent) = rehearsal.senders[own as usize][&place];
                match roads[from as usize][&sent] {
                    Channel::Pipe(pipe, index) => {
                        operate(FREE, TRACE_RECEIVING, RankOperation::Receive { pipe, index })
                    }
                    Channel::Inside(local) => {
                        operate(FREE, TRACE_RECEIVING, RankOperation::Hand { local, gives: false })
                    }
                }
            }
            Does::Collective { kind, .. } => match calls[traced.call_of[&(own, place)] as usize].get(&rank) {
                Some(&operation) => operate(FREE, trace_kind_of(kind), operation),
                None => idle,
            },
        };
        steps.push(Step { stream, work, after, kind, layer: operation.id as u32, ends_iteration: false });
    }
    // The end waits for everything that nothing else waits for.
    let after = (0u32..).zip(&needed).filter(|(_, needed)| !**needed).map(|(place, _)| place).collect();
    let work = Work::Compute(Span::ZERO);
    steps.push(Step { stream: COMPUTE, work, after, kind: 0, layer: 0, ends_iteration: true });
    let kinds = TRACE_KINDS.iter().map(ToString::to_string).collect();
    match Script::graph(kinds, steps, &trace.begins) {
        Ok(script) => (script, operations),
        Err(error) => unreachable!("{error}"),
    }
}
