//! Workloads that are collectives: reads their keys from a scenario, and places their ranks on hosts.

pub(crate) mod bounds;
mod over_servers;
mod placement;

use super::job::Wish;
use super::maker::{CHANNELS_MAX, MESSAGES_MAX, Maker, ROWS_MAX, fits};
use super::planned::{self, Planned};
use super::plans::CollectivePlan;
use super::{fsdp, multicast, switch};
use crate::reader::Section;
use crate::scenario::Scenario;
use placement::Placed;
use std::ops::Range;
use std::sync::Arc;
use strandway_collective::{
    Algorithm, BroadcastTree, Collective, Group, Operation, Placement, Plans, Rank, Recipe, RecipeError, Schedule,
    ScheduleError,
};
use strandway_fabric::plan::Start;
use strandway_import::trace::Kind;
use strandway_import::{msccl, mscclpp};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span};

/// The keys of a collective in a scenario.
#[derive(Clone, Debug)]
pub(crate) struct CollectiveKeys {
    algorithm: AlgorithmKeys,
    /// How it runs over servers with several GPUs, if it can.
    over: Option<(Kind, Wish)>,
    /// Whether it is to use the links inside servers, if the scenario says so.
    servers: Option<bool>,
    ranks: Option<u32>,
    group: Option<u32>,
    parts: u32,
    placement: Placed,
}

/// The recipe of a collective.
#[derive(Clone, Debug)]
enum RecipeOf {
    /// For a number of ranks, cut into parts.
    Made(fn(u32, u32) -> Result<Recipe, RecipeError>),
    /// From a file, for as many ranks as the file has.
    File(Arc<Recipe>),
    /// The messages of process groups, with this rank as the root.
    Planned(Planned, Collective, u32),
}

/// The algorithm of a collective, with its keys.
#[derive(Clone, Debug)]
enum AlgorithmKeys {
    /// Messages that wait for each other, given by a schedule.
    Schedule(Algorithm),
    /// By multicast.
    Multicast(multicast::MulticastKeys),
    /// A broadcast over a tree of messages from this rank.
    Tree(BroadcastTree, u32),
    /// Messages from a table.
    Recipe(RecipeOf),
    /// Switches add gradients: once, or in training jobs.
    InNetwork(switch::SwitchKeys),
    /// A training job that gathers and scatters layer by layer.
    Sharded(fsdp::FsdpKeys),
}

impl CollectiveKeys {
    /// A broadcast from the first of these hosts to the others: over a tree of messages that forwards pieces, or by
    /// multicast (`None`).
    pub(crate) fn broadcast(hosts: Vec<HostId>, tree: Option<BroadcastTree>, pieces: u32) -> CollectiveKeys {
        CollectiveKeys {
            algorithm: match tree {
                Some(tree) => AlgorithmKeys::Tree(tree, 0),
                None => AlgorithmKeys::Multicast(multicast::MulticastKeys::broadcast()),
            },
            over: None,
            servers: None,
            ranks: Some(hosts.len() as u32),
            group: None,
            parts: pieces,
            placement: Placed::on(hosts),
        }
    }
}

/// The remedy for a number of ranks that a schedule does not allow.
fn remedy(error: ScheduleError, size: u32) -> String {
    match error {
        ScheduleError::NotAPowerOfTwo | ScheduleError::CannotDouble => {
            format!("write {}, or algorithm = \"ring\"", 1 << size.ilog2())
        }
        _ => "write fewer".to_string(),
    }
}

impl Maker<'_> {
    /// A collective of the job that is being made: what it is and its algorithm, its ranks and bytes. It has no name
    /// yet, and its messages are counted.
    pub(super) fn of_job(
        &self,
        (kind, algorithm): (Collective, &str),
        (ranks, bytes): (u32, u64),
        operation: usize,
        bound: Span,
    ) -> CollectivePlan {
        CollectivePlan {
            name: String::new(),
            group: None,
            kind,
            algorithm: algorithm.into(),
            ranks,
            bytes,
            operation: Some(operation),
            placement: String::new(),
            class: self.class,
            messages: 0..0,
            tallied: true,
            bound,
            job: Some(self.traffic.jobs.len() as u32),
        }
    }
}

/// Reads the keys that only collectives have.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario, kind: &str, size: Bytes) -> Option<CollectiveKeys> {
    let many = |key: &'static str, most: u32| section.count(key, 1, u64::from(most)).map(|n| n as u32);
    let most = strandway_import::HOSTS_MAX as u32;
    let schedule = AlgorithmKeys::Schedule;
    let algorithm = match kind {
        _ if planned::NAMES.iter().any(|name| section.text_is("algorithm", name))
            && collective_named(kind).is_some() =>
        {
            section.choice("algorithm", &planned::NAMES);
            let root = if kind == "broadcast" { multicast::read_root(section) } else { 0 };
            AlgorithmKeys::Recipe(RecipeOf::Planned(planned::read(section, scenario)?, collective_named(kind)?, root))
        }
        _ if section.text_is("algorithm", "msccl") => {
            AlgorithmKeys::Recipe(RecipeOf::File(recipe_of_file(section, scenario, kind)?))
        }
        "all-to-all" => schedule(Algorithm::AllToAll { window: many("window", most).unwrap_or(4) }),
        "training" => AlgorithmKeys::InNetwork(switch::read_training(section, size)),
        "fsdp" => AlgorithmKeys::Sharded(fsdp::read(section)),
        "all-reduce" => match section
            .choice("algorithm", &["ring", "tree", "halving-doubling", "in-network", "direct", "auto", "msccl"])
        {
            Some("tree") => AlgorithmKeys::Recipe(RecipeOf::Made(Recipe::tree)),
            Some("in-network") => AlgorithmKeys::InNetwork(switch::read_collective(section, false)),
            Some("halving-doubling") => schedule(Algorithm::HalvingDoubling),
            _ => schedule(Algorithm::RingAllReduce),
        },
        "broadcast" => match multicast::read_broadcast(section) {
            (Some(tree), root) => AlgorithmKeys::Tree(tree, root),
            (None, root) => AlgorithmKeys::Multicast(multicast::read(section, Some(root))),
        },
        "reduce-scatter" => {
            match section.choice("algorithm", &["ring", "pat", "in-network", "direct", "auto", "msccl"]) {
                Some("pat") => AlgorithmKeys::Recipe(RecipeOf::Made(Recipe::pat_reduce_scatter)),
                Some("in-network") => AlgorithmKeys::InNetwork(switch::read_collective(section, true)),
                _ => schedule(Algorithm::RingReduceScatter),
            }
        }
        _ => {
            match section.choice(
                "algorithm",
                &["ring", "pat", "recursive-doubling", "linear", "multicast", "direct", "auto", "msccl"],
            ) {
                Some("pat") => AlgorithmKeys::Recipe(RecipeOf::Made(Recipe::pat_all_gather)),
                Some("recursive-doubling") => schedule(Algorithm::RecursiveDoubling),
                Some("linear") => schedule(Algorithm::LinearAllGather),
                Some("multicast") => AlgorithmKeys::Multicast(multicast::read(section, None)),
                _ => schedule(Algorithm::RingAllGather),
            }
        }
    };
    let whole = matches!(
        algorithm,
        AlgorithmKeys::Schedule(Algorithm::AllToAll { .. } | Algorithm::RecursiveDoubling)
            | AlgorithmKeys::Multicast(_)
            | AlgorithmKeys::InNetwork(_)
            | AlgorithmKeys::Sharded(_)
            | AlgorithmKeys::Recipe(RecipeOf::Planned(..))
    );
    let over = over(kind, &algorithm);
    let servers = section.flag("servers");
    let parts = if whole { None } else { many("pipeline", 256) };
    let ranks = section.count("ranks", 2, u64::from(most)).map(|n| n as u32);
    if ranks.is_some() && section.has("hosts") {
        section.wrong("hosts", "is given together with `ranks`", "write one of the two");
    }
    let group = many("group", most);
    let placement = placement::read(section, scenario)?;
    Some(CollectiveKeys { algorithm, over, servers, ranks, group, parts: parts.unwrap_or(1), placement })
}

/// How a collective runs over the rails of servers and the links inside them; `None` if it has no such form.
fn over(kind: &str, algorithm: &AlgorithmKeys) -> Option<(Kind, Wish)> {
    let made = matches!(algorithm, AlgorithmKeys::Recipe(RecipeOf::Made(_)));
    match (kind, algorithm) {
        (_, AlgorithmKeys::Recipe(RecipeOf::Planned(planned, collective, 0))) => {
            let kind = match collective {
                Collective::AllReduce => Kind::AllReduce,
                Collective::AllGather => Kind::AllGather,
                Collective::ReduceScatter => Kind::ReduceScatter,
                Collective::AllToAll => Kind::AllToAll,
                Collective::Broadcast => Kind::Broadcast,
                _ => return None,
            };
            Some((kind, Wish::Planned(planned.clone())))
        }
        ("all-reduce", AlgorithmKeys::Schedule(Algorithm::RingAllReduce)) => Some((Kind::AllReduce, Wish::Ring)),
        ("all-reduce", _) if made => Some((Kind::AllReduce, Wish::Tree)),
        ("all-gather", AlgorithmKeys::Schedule(Algorithm::RingAllGather)) => Some((Kind::AllGather, Wish::Ring)),
        ("all-gather", _) if made => Some((Kind::AllGather, Wish::Pat)),
        ("reduce-scatter", AlgorithmKeys::Schedule(_)) => Some((Kind::ReduceScatter, Wish::Ring)),
        ("reduce-scatter", _) if made => Some((Kind::ReduceScatter, Wish::Pat)),
        ("all-to-all", AlgorithmKeys::Schedule(_)) => Some((Kind::AllToAll, Wish::Ring)),
        _ => None,
    }
}

/// The collective of a kind of workload.
fn collective_named(kind: &str) -> Option<Collective> {
    Some(match kind {
        "all-reduce" => Collective::AllReduce,
        "reduce-scatter" => Collective::ReduceScatter,
        "all-gather" => Collective::AllGather,
        "all-to-all" => Collective::AllToAll,
        "broadcast" => Collective::Broadcast,
        _ => return None,
    })
}

/// The algorithm of MSCCL, or the plan of MSCCL++, that `file` names.
fn recipe_of_file(section: &Section<'_>, scenario: &Scenario, kind: &str) -> Option<Arc<Recipe>> {
    let Some(name) = section.text("file") else {
        if !section.has("file") {
            let remedy = "name an algorithm of MSCCL: file = \"FILE.xml\"";
            section.sink.add(&section.path("file"), "", "is missing", remedy);
        }
        return None;
    };
    // A file's `custom` stands for the workload's kind.
    let custom = collective_named(kind)?;
    let read = scenario.read(&name).and_then(|(file, text)| {
        if mscclpp::is_plan(&text) {
            return mscclpp::parse_as(&file, &text, custom).map(|made| made.recipe);
        }
        msccl::parse_as(&file, &text, custom).map(|made| made.recipe)
    });
    match read {
        Ok(recipe) if recipe.collective().name() != kind.replace('-', "") => {
            let what = format!("computes {}, and the workload is {kind}", recipe.collective().name());
            section.wrong("file", what, "correct kind, or name another file");
            None
        }
        Ok(recipe) => Some(Arc::new(recipe)),
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

impl Maker<'_> {
    /// Makes all groups of a collective workload. `limit` is its key `hosts`.
    pub(super) fn collectives(&mut self, written: &CollectiveKeys, limit: Option<u32>) {
        if self.runs_on_servers(written) {
            return self.over_servers(written, limit);
        }
        let there = self.context.topology.hosts();
        let listed = match &written.placement.placement {
            Placement::List(list) => Some(list.len() as u32),
            _ => None,
        };
        let ranks = written.ranks.or(limit).or(listed).unwrap_or(there);
        let Some(hosts) = self.place(&written.placement, ranks) else { return };
        self.placed = hosts.clone();
        let size = written.group.unwrap_or(ranks);
        if size < 2 || size > ranks {
            let what = format!("must be between 2 and the {ranks} hosts");
            return self.complain(if written.group.is_some() { "group" } else { "ranks" }, size, what, "correct it");
        }
        if !ranks.is_multiple_of(size) {
            let what = format!("does not divide the {ranks} hosts");
            return self.complain("group", size, what, "choose a divisor, or set `ranks`");
        }
        let bytes = self.workload.common.size.0;
        let groups = ranks / size;
        let name = |group: u32| match groups {
            1 => (self.workload.class.clone(), None),
            _ => (format!("{}/{group}", self.workload.class), Some(group)),
        };
        let algorithm = match &written.algorithm {
            AlgorithmKeys::Schedule(algorithm) => *algorithm,
            other => {
                if fits(self.context.rate, Bytes(bytes.saturating_mul(u64::from(size)))).is_none() {
                    return self.complain("size", Bytes(bytes), "takes longer than a run can last", "write less");
                }
                for (group, hosts) in (0u32..).zip(hosts.chunks(size as usize)) {
                    let placement = written.placement.name.clone();
                    match other {
                        AlgorithmKeys::Recipe(make) => {
                            if !self.recipe(make, (bytes, written.parts), hosts, name(group), &placement) {
                                return;
                            }
                        }
                        AlgorithmKeys::Multicast(keys) => self.multicast(keys, bytes, hosts, name(group), placement),
                        AlgorithmKeys::Tree(tree, root) => {
                            self.broadcast((*tree, *root, written.parts), hosts, name(group), placement);
                        }
                        AlgorithmKeys::InNetwork(keys) => self.in_network(keys, bytes, hosts, name(group), placement),
                        AlgorithmKeys::Sharded(keys) => self.fsdp(keys, hosts, name(group), &placement),
                        AlgorithmKeys::Schedule(_) => {}
                    }
                }
                return;
            }
        };
        // The size of an all-to-all is that of one message.
        let copies = if matches!(algorithm, Algorithm::AllToAll { .. }) { size } else { 1 };
        let whole = bytes.saturating_mul(u64::from(copies));
        if fits(self.context.rate, Bytes(whole)).is_none() {
            return self.complain("size", Bytes(bytes), "takes longer than a run can last", "write less");
        }
        let schedule = match Schedule::new(algorithm, size, whole, written.parts) {
            Ok(schedule) => schedule,
            Err(error) => {
                let key = if written.group.is_some() { "group" } else { "ranks" };
                return self.complain(key, size, error, remedy(error, size));
            }
        };
        let flows = u64::from(ranks) * u64::from(schedule.messages()) * u64::from(self.workload.common.connections);
        let tallied =
            !self.context.rows && self.workload.ordered.is_none() && self.traffic.flows.len() as u64 + flows > ROWS_MAX;
        if !(if tallied { self.without_rows(flows) } else { self.room(flows) }) {
            return;
        }
        let channels = u64::from(ranks) * u64::from(schedule.peers()) * u64::from(self.workload.common.connections);
        // Entries in the table of messages name connections of the plan, so connections open on demand only without
        // such entries.
        let on_demand = tallied && channels > CHANNELS_MAX;
        for (group, hosts) in (0u32..).zip(hosts.chunks(size as usize)) {
            let (placed, messages) = self.group(&schedule, hosts, (tallied, on_demand));
            let operation = Some(self.traffic.add(Operation::Messages(Box::new(placed))));
            let (name, group) = name(group);
            let bound = self.bound(&schedule, hosts);
            let (placement, class) = (written.placement.name.clone(), self.class);
            self.traffic.collectives.push(CollectivePlan {
                name,
                group,
                kind: algorithm.collective(),
                algorithm: algorithm.name().into(),
                ranks: size,
                bytes: whole,
                operation,
                placement,
                class,
                messages,
                tallied,
                bound,
                job: None,
            });
        }
    }

    /// Adds a collective of the workload that follows a recipe of `bytes` bytes, cut into parts. False after a mistake.
    fn recipe(
        &mut self,
        make: &RecipeOf,
        (bytes, parts): (u64, u32),
        hosts: &[HostId],
        name: (String, Option<u32>),
        placement: &str,
    ) -> bool {
        let size = hosts.len() as u32;
        // The size of an all-to-all is that of one message.
        let whole = |collective| match collective {
            Collective::AllToAll => bytes.saturating_mul(u64::from(size)),
            _ => bytes,
        };
        let made = match make {
            RecipeOf::Made(make) => make(size, parts).map(Arc::new),
            RecipeOf::File(recipe) => Ok(Arc::clone(recipe)),
            RecipeOf::Planned(planned, collective, root) => {
                planned.recipe(*collective, (size, whole(*collective)), *root).map(Arc::new)
            }
        };
        match made {
            Ok(recipe) if recipe.ranks() != size => {
                let what = format!("is not the number of GPUs in the file, {}", recipe.ranks());
                self.complain("ranks", size, what, "write that number, or a file for more");
                return false;
            }
            Ok(recipe) => self.follow(&recipe, whole(recipe.collective()), hosts, name, placement),
            Err(error) => {
                self.complain("ranks", size, error, "write fewer, or algorithm = \"ring\"");
                return false;
            }
        }
        true
    }

    /// Checks that there are numbers for this many more messages without entries. Reports a problem if not.
    pub(super) fn without_rows(&mut self, messages: u64) -> bool {
        self.traffic.tallied += messages;
        let fits = self.traffic.tallied <= MESSAGES_MAX;
        if !fits {
            let remedy = "lower hosts, ranks, pipeline, iterations or connections";
            self.context.sink.add(&self.workload.section, "", "makes more than 4 billion messages", remedy);
        }
        fits
    }

    /// Places one collective on these hosts: makes its connections and, unless it is `tallied`, an entry for every
    /// message and every piece.
    pub(super) fn group(&mut self, schedule: &Schedule, hosts: &[HostId], how: (bool, bool)) -> (Group, Range<usize>) {
        let (tallied, on_demand) = how;
        let first = self.traffic.messages.len();
        let starts = hosts.iter().map(|_| self.moment(self.workload.common.start)).collect();
        let mut group = self.placed(Plans::Computed(*schedule), hosts);
        (group.starts, group.on_demand) = (starts, on_demand);
        if on_demand {
            return (group, first..first);
        }
        if tallied {
            for rank in (0..schedule.ranks()).map(Rank) {
                for peer in 0..schedule.peers() {
                    let to = schedule.send(rank, peer * schedule.parts()).to;
                    self.open(hosts[rank.0 as usize].0, hosts[to.0 as usize].0);
                }
            }
            return (group, first..first);
        }
        let (ranks, each) = (schedule.ranks(), schedule.messages() as usize);
        self.traffic.messages.reserve(ranks as usize * each);
        self.traffic.flows.reserve(ranks as usize * each * group.pieces() as usize);
        let mut opened = 0;
        for message in (0..ranks * schedule.messages()).map(|number| group.plans().message(number)) {
            if message.channel == opened {
                self.open(group.host(message.from).0, group.host(message.to).0);
                opened += 1;
            }
            let over = group.channel(&message, 0).number;
            self.post(over..over + group.pieces(), Bytes(message.bytes), Start::Program, None);
        }
        (group, first..self.traffic.messages.len())
    }

    /// A collective of messages on these hosts whose ranks do not start by themselves, with the next numbers of
    /// messages and connections.
    fn placed(&self, plans: Plans, hosts: &[HostId]) -> Group {
        let mut group = Group::new(plans, hosts.to_vec(), self.workload.common.connections);
        group.first_message = self.traffic.flows.len() as u32;
        group.first_channel = self.traffic.connections.len() as u32;
        group.profile = self.profile;
        group
    }

    /// Adds a collective of the workload that follows a recipe.
    fn follow(
        &mut self,
        recipe: &Arc<Recipe>,
        bytes: u64,
        hosts: &[HostId],
        (name, group): (String, Option<u32>),
        placement: &str,
    ) {
        let Some(mut made) = self.tabled(recipe, bytes, hosts, None) else { return };
        made.starts = hosts.iter().map(|_| self.moment(self.workload.common.start)).collect();
        let bound = self.bound_of(&made);
        let operation = Some(self.traffic.add(Operation::Messages(Box::new(made))));
        self.traffic.collectives.push(CollectivePlan {
            name,
            group,
            kind: recipe.collective(),
            algorithm: recipe.name().to_string(),
            ranks: recipe.ranks(),
            bytes,
            operation,
            placement: placement.to_string(),
            class: self.class,
            messages: 0..0,
            tallied: true,
            bound,
            job: None,
        });
    }

    /// Places a collective that follows a recipe, with the connections of an earlier one of the same recipe and hosts,
    /// or with its own.
    pub(super) fn tabled(
        &mut self,
        recipe: &Arc<Recipe>,
        bytes: u64,
        hosts: &[HostId],
        earlier: Option<usize>,
    ) -> Option<Group> {
        let mut group = self.placed(Plans::Tabled { recipe: Arc::clone(recipe), bytes }, hosts);
        match earlier.and_then(|earlier| self.traffic.operations[earlier].group()) {
            Some(earlier) => group.first_channel = earlier.first_channel,
            None => {
                for &(from, to) in recipe.channels() {
                    self.open(hosts[from as usize].0, hosts[to as usize].0);
                }
            }
        }
        self.without_rows(group.messages()).then_some(group)
    }
}
