//! Collectives of `[[workload]]` whose ranks are the GPUs of servers: they run over rails and the links inside
//! servers, like the collectives of jobs.
//!
//! Each such workload becomes a job without computation, whose ranks begin one collective at its start. Reports show
//! it among the collectives.

use super::choice::Wish;
use super::kinds::{KINDS, kind_of};
use super::place::{KEPT_MAX, Placer};
use super::role::Sort;
use super::{Degrees, JobKeys, Pace, Placement, model};
use crate::maker::Maker;
use crate::plans::CollectivePlan;
use crate::plans::JobPlan;
use strandway_collective::script::COMPUTE;
use strandway_collective::{Collective, Script, Step, Work};
use strandway_import::trace::Kind;
use strandway_proto::units::Span;

/// A collective workload on servers.
#[derive(Clone, Debug)]
pub(crate) struct OnServers {
    /// The operation.
    pub(crate) kind: Kind,
    /// Its algorithm between servers.
    pub(crate) algorithm: Wish,
    /// Ranks of all groups together.
    pub(crate) ranks: u32,
    /// Ranks of a group.
    pub(crate) size: u32,
    /// The buffer of a rank, as nccl-tests counts it.
    pub(crate) bytes: u64,
    /// Parts into which a ring cuts a block.
    pub(crate) parts: u32,
    /// Limit on the transfers of an all-to-all under way at once.
    pub(crate) window: u32,
    /// True: on random servers, otherwise on the first ones.
    pub(crate) random: bool,
}

impl OnServers {
    /// The job that runs it.
    fn written(&self) -> JobKeys {
        JobKeys {
            model: model::none(),
            imported: None,
            once: true,
            trace: None,
            label: String::new(),
            degrees: Degrees { tp: 1, cp: 1, pp: 1, dp: self.ranks, ep: 1 },
            zero: 0,
            micro_batches: 1,
            micro_batch: 1,
            schedule: super::Pipeline::OneForwardOneBackward,
            chunks: 1,
            recompute: super::Recompute::Nothing,
            buckets: None,
            overlap: true,
            prefetch: 0,
            imbalance: 1.0,
            pace: Pace { peak: 1.0, reached: 1.0, compute: None, update: Span::ZERO, stragglers: 0.0, noise: 0.0 },
            iterations: 1,
            parts: self.parts,
            window: self.window,
            gradient_bytes: 2,
            fp8_dispatch: false,
            placement: if self.random { Placement::Random } else { Placement::Packed },
            algorithm: self.algorithm.clone(),
            tuner: None,
        }
    }
}

/// The operation, as reports name it.
pub(super) fn collective_of(kind: Kind) -> Collective {
    match kind {
        Kind::AllReduce | Kind::Barrier => Collective::AllReduce,
        Kind::AllGather => Collective::AllGather,
        Kind::ReduceScatter => Collective::ReduceScatter,
        Kind::AllToAll => Collective::AllToAll,
        Kind::Broadcast => Collective::Broadcast,
        Kind::Reduce => Collective::Reduce,
        Kind::Gather => Collective::Gather,
        Kind::Scatter => Collective::Scatter,
    }
}

impl Maker<'_> {
    /// Adds all groups of a collective workload. Reports a problem if they do not fit the servers.
    pub(crate) fn on_servers(&mut self, made: OnServers, placement: &str) {
        let servers = self.context.servers.clone();
        let there = servers.count * servers.gpus;
        let (ranks, size, gpus) = (made.ranks, made.size, servers.gpus);
        let flat = "or write servers = false to use NICs only";
        if ranks > there {
            let what = format!("there are only {there} GPUs, in {} servers", servers.count);
            return self.complain("ranks", ranks, what, format!("write fewer, {flat}"));
        }
        if ranks > gpus && !ranks.is_multiple_of(gpus) {
            let what = format!("does not fill servers of {gpus} GPUs");
            return self.complain("ranks", ranks, what, format!("write a multiple of servers.gpus, {flat}"));
        }
        if !gpus.is_multiple_of(size) && !size.is_multiple_of(gpus) && ranks > gpus {
            let what = format!("spreads groups unevenly over servers of {gpus} GPUs");
            return self.complain(
                "group",
                size,
                what,
                format!("write a divisor or a multiple of servers.gpus, {flat}"),
            );
        }
        self.traffic.uses_servers = true;
        let written = made.written();
        // Other workloads and jobs may use the same servers.
        let taken: Vec<u32> = match written.placement {
            Placement::Random => {
                let mut all: Vec<u32> = (0..servers.count).collect();
                self.random.shuffle(&mut all);
                all
            }
            _ => (0..servers.count).collect(),
        };
        let taken = taken[..ranks.div_ceil(gpus) as usize].to_vec();
        let name = self.workload.class.clone();
        let plan = JobPlan { name: name.clone(), groups_of: size, ..JobPlan::default() };
        let class = self.class;
        let first = self.traffic.collectives.len();
        let mut placer = Placer::new(&written, &servers, taken, self, plan);
        let Some((operations, inside)) = placer.groups(&made) else { return };
        let step = Step {
            stream: COMPUTE,
            work: Work::Operation(0),
            after: Vec::new(),
            kind: kind_of(made.kind),
            layer: 0,
            ends_iteration: true,
        };
        let script = match Script::new(KINDS.iter().map(ToString::to_string).collect(), vec![step]) {
            Ok(script) => script,
            Err(error) => unreachable!("{error}"),
        };
        let rails = &placer.maker.traffic.collectives[first..];
        let bound = rails.iter().map(|rail| rail.bound).fold(inside, Span::max);
        let algorithm = rails.first().map_or("inside a server".to_string(), |rail| rail.algorithm.clone());
        (placer.plan.bound, placer.plan.longest) = (bound, Span(bound.0.saturating_mul(2)));
        let steps = u64::from(ranks).min(KEPT_MAX);
        placer.finish(vec![script], vec![0; ranks as usize], operations, steps);
        let operation = self.traffic.jobs.last().map(|job| job.operation);
        let groups = ranks / size;
        for group in 0..groups {
            let several = groups > 1;
            self.traffic.collectives.push(CollectivePlan {
                name: if several { format!("{name}/{group}") } else { name.clone() },
                group: several.then_some(group),
                kind: collective_of(made.kind),
                algorithm: algorithm.clone(),
                ranks: size,
                bytes: made.bytes,
                operation,
                placement: placement.to_string(),
                class,
                messages: 0..0,
                tallied: false,
                bound,
                job: None,
            });
        }
    }
}

impl Placer<'_, '_> {
    /// The operation of each rank, and the time of the links inside a server.
    fn groups(&mut self, made: &OnServers) -> Option<(Vec<Vec<strandway_collective::RankOperation>>, Span)> {
        let mut operations = Vec::with_capacity(made.ranks as usize);
        for group in 0..made.ranks / made.size {
            let members: Vec<u32> = (group * made.size..(group + 1) * made.size).collect();
            if !self.communicator(Sort::Listed, group, members) {
                return None;
            }
            let mut communicator = self.communicators.remove(&(Sort::Listed, group))?;
            let mine = self.make(&mut communicator, kind_of(made.kind), (made.kind, made.bytes, 1));
            self.communicators.insert((Sort::Listed, group), communicator);
            if self.failed {
                return None;
            }
            operations.extend(mine.into_iter().map(|operation| vec![operation]));
        }
        let inside = self.locals.iter().map(|local| local.span).max().unwrap_or(Span::ZERO);
        Some((operations, inside))
    }
}
