//! Turns a scenario into a checked plan.

use crate::facts;
use crate::ideal_fct::Alone;
use crate::reader::{Sink, show};
pub use crate::scenario::collective::{CollectivePlan, Execution};
pub use crate::scenario::expect::Bound;
pub use crate::scenario::fabric::Derived;
pub use crate::scenario::faults::FaultNote;
pub use crate::scenario::fsdp::{JobPlan, WholePlan};
pub use crate::scenario::generate::Message;
use crate::scenario::generate::{Context, ROWS_MAX, generate};
use crate::scenario::run::Sample;
use crate::scenario::{
    SECTIONS, Scenario, expect, fabric, faults, fsdp, profile, run, servers, sizes, switch, workload,
};
use std::sync::Arc;
use strandway_collective::{Group, Multicast, Pipe, Programs, Rank, RecipeCollective, ScriptedJob};
use strandway_fabric::plan::{PortSettings, Routing, Start, environment, environment_between};
use strandway_fabric::tally::Tally;
use strandway_fabric::{Measurements, Plan, Topology};
use strandway_import::htsim::StartUnit;
use strandway_import::suggest;
use strandway_proto::units::{Rate, Span, Time};
use strandway_proto::{HostId, Profile};
use strandway_report::Origin;
use strandway_report::numbers::count;
use strandway_switch::Aggregation;
use toml::Value;

/// With at most this many flows, the division of each flow's time is recorded by default. Ours: it needs about 50 MB
/// then.
const ACCOUNTS_MAX: usize = 1 << 18;

/// A checked scenario: the simulator's plan, and further facts for reports.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The scenario's name.
    pub name: String,
    /// The scenario's description, if it has one.
    pub description: String,
    /// The plan for the simulator.
    pub plan: Plan,
    /// True if the scenario has no `run.time_limit`: then the plan's follows from the workload, and runs between real
    /// nodes, which share their machine with other programs, may last longer.
    pub default_time_limit: bool,
    /// The kind of fabric as written.
    pub fabric: String,
    /// Numbers computed from fabric and profile.
    pub derived: Derived,
    /// The workload's messages; reports call them flows.
    pub messages: Vec<Message>,
    /// Names of the classes of flows.
    pub classes: Vec<String>,
    /// The workload's collectives.
    pub collectives: Vec<CollectivePlan>,
    /// The workload's collectives with their hosts, for the run.
    pub groups: Vec<Group>,
    /// The workload's multicast operations, for the run.
    pub multicasts: Vec<Multicast>,
    /// The workload's jobs whose gradients switches add, for the run.
    pub aggregation: Option<Aggregation>,
    /// The workload's training jobs that have scripts.
    pub jobs: Vec<JobPlan>,
    /// The workload's training jobs that have scripts, for the run.
    pub scripted: Vec<ScriptedJob>,
    /// Messages that ranks of jobs send each other outside collectives.
    pub pipes: Vec<Pipe>,
    /// Collectives that follow recipes.
    pub listed: Vec<RecipeCollective>,
    /// The bounds that the result must meet.
    pub expect: Vec<Bound>,
    /// The faults, in words.
    pub faults: Vec<FaultNote>,
    /// The names of the plan's triggers: their numbers in the matrix, or empty for triggers of other workloads.
    pub trigger_names: Vec<String>,
    /// Remarks that a reader of results needs beyond the scenario's text.
    pub notes: Vec<String>,
    /// The file of the scenario, and its text after all changes.
    pub origin: Origin,
    /// How long the busiest NIC would be busy without any waiting, from the run's start.
    pub ideal: Span,
    /// Each job is to run alone, too: what it is slowed down by is wanted.
    pub alone: bool,
    /// The run is to be repeated without the scenario's `[[faults]]`: what they cost is wanted.
    pub healthy: bool,
    /// The number of fault plans that come from `[[faults]]`; the others belong to the fabric.
    own_faults: usize,
    auto_sample: Span,
    sampled: bool,
    capture_limit: usize,
}

/// Checks `scenario`; problems go into `sink`. The result is valid only if there are none.
pub(crate) fn build(scenario: &Scenario, sink: &Sink) -> Option<Experiment> {
    let root = &scenario.table;
    for (key, value) in root {
        if !SECTIONS.contains(&key.as_str()) {
            sink.add(key, show(value), "unknown section", suggest(key, &SECTIONS));
        }
    }
    let description = text(sink, root, "description");
    text(sink, root, "name");
    crate::sweep::check(scenario, sink);
    let run = run::read(sink, root);
    let profile = profile::read(sink, root);
    let switch = switch::read(sink, root, run.seed);
    let written = workload::read(sink, scenario);
    // A sink of its own, so that a bound with a wrong form does not prevent the check of other bounds' names.
    let bounds_sink = Sink::new(scenario.file());
    let bounds = expect::read(&bounds_sink, root);
    let nodes = workload::nodes(&written);
    let wanted = profile.as_ref().map(|p| (p.routing(), p.name.as_str()));
    let fabric = fabric::read(sink, scenario, nodes, wanted)?;
    let mut profile = profile?;
    packet_fits(sink, &profile);
    let (ports, derived) = fabric.ports(sink, &profile);
    let topology = fabric.topology.clone();
    profile::paths_suffice(sink, root, &profile, &topology);
    let whole = written.iter().all(Option::is_some);
    let mut workloads: Vec<_> = written.into_iter().flatten().collect();
    let mut notes = notes(&workloads, &profile, fabric.routing);
    if ports.pfc.is_some() {
        let table = root.get("profile").and_then(toml::Value::as_table);
        notes.extend(profile::wait_for_pauses(&mut profile, table, derived.rate));
        let own = workloads.iter_mut().filter_map(|workload| workload.profile.as_mut());
        notes.extend(own.filter_map(|own| profile::wait_for_pauses(own, None, derived.rate)));
        notes.dedup();
    }
    notes.extend(fabric.unused_settings(&ports));
    let has = |key: &str| root.get("fabric").is_some_and(|fabric| fabric.get(key).is_some());
    if !has("topo") {
        let sizes = ["k", "hosts_per_leaf", "leaves_per_pod", "aggs_per_pod", "cores_per_agg"];
        notes.extend(crate::cost::notes(&fabric.topology, sizes.into_iter().any(has)));
    }
    let profile = Arc::new(profile);
    let servers = servers::read(sink, scenario, &fabric);
    notes.extend(servers.assumed.iter().cloned());
    let context = Context {
        sink,
        servers: &servers,
        topology: &topology,
        rate: derived.rate,
        seed: run.seed,
        switch: &switch,
        rows: run.rows,
        pauses: ports.pfc.is_some(),
        profile: &profile,
    };
    let traffic = generate(&context, &workloads);
    notes.extend(traffic.notes.iter().cloned());
    notes.extend(unused(root, &traffic));
    let (busy, last) = traffic.ideal(topology.hosts(), derived.rate);
    let busy = busy.unwrap_or_else(|| {
        let what = format!("keeps a NIC of {} busy for longer than a run can last", derived.rate);
        sink.add("workload", "", what, "send less, or raise the rate");
        Span::ZERO
    });
    let ideal = Span(last.0.saturating_add(busy.0).saturating_add(derived.base_rtt.0));
    let chain = traffic.collectives.iter().map(|c| c.bound.0).max().unwrap_or(0);
    let chain = chain.max(fsdp::longest(&traffic.jobs, &traffic.scripted));
    let patience = time_allowance(&topology, &PortSettings { data_queue: derived.queue, ..ports }, &traffic.profiles);
    let time_limit = match run.time_limit {
        Some(limit) => Time(limit.0),
        None => Time(last.0.saturating_add((busy * 50).0.max(chain.saturating_mul(10)).max(patience.0))),
    };
    if last >= time_limit && whole {
        let what = format!("ends before the last flow starts, at {last}");
        sink.add("run.time_limit", format!("\"{time_limit}\""), what, "write a later end, or leave it out");
    }
    let mut faults = faults::read(sink, root, &topology, run.seed, time_limit);
    let own_faults = faults.plans.len();
    // If a link has several losses, the first one counts: losses in [[faults]] come before the permanent loss of links.
    faults.plans.extend(fabric.losses.plans.clone());
    faults.notes.extend(fabric.losses.notes.clone());
    let capture = run.capture.as_deref().and_then(|name| match run::capture(name, run.capture_limit, &topology) {
        Ok(capture) => Some(capture),
        Err((what, remedy)) => {
            sink.add("run.capture", format!("\"{name}\""), what, remedy);
            None
        }
    });
    let auto_sample =
        sample_interval(Span(ideal.0.max(last.0.saturating_add(chain))), derived.rate.time_for(derived.packet));
    let sample_every = match run.sample {
        Sample::Unset => None,
        Sample::Auto => Some(auto_sample),
        Sample::Every(span) => Some(span),
    };
    if !sink.is_empty() {
        sink.extend(bounds_sink.take());
        return None;
    }
    let accounts = run.why.unwrap_or(traffic.flows.len() <= ACCOUNTS_MAX);
    if !accounts && run.why.is_none() {
        notes.push(format!(
            "why flows took their time is not kept for more than {} flows; write why = true under [run] if memory allows",
            count(ACCOUNTS_MAX as u64)
        ));
    }
    let rows = run.rows || traffic.tallied <= ROWS_MAX;
    if traffic.tallied > 0 && !rows {
        notes.push(format!(
            "{} messages of collectives have no row each: percentiles are from a histogram, at most 0.4 % off, slowdowns, \
             received_us and why are not known; write rows = true under [run] if memory allows",
            count(traffic.tallied)
        ));
    }
    let plan = Plan {
        topology,
        ports,
        routing: fabric.routing,
        profiles: traffic.profiles,
        connections: traffic.connections,
        flows: traffic.flows,
        triggers: traffic.triggers,
        multicast: traffic.members,
        faults: faults.plans,
        seed: run.seed,
        time_limit,
        threads: run.threads,
        sample_every,
        watch: None,
        accounts,
        rows,
        capture,
    };
    notes.extend(unsupported(&plan));
    notes.extend(outreached(&plan));
    let mut experiment = Experiment {
        default_time_limit: run.time_limit.is_none(),
        name: scenario.name(),
        description,
        plan,
        fabric: fabric.kind.to_string(),
        derived,
        messages: traffic.messages,
        classes: traffic.classes,
        collectives: traffic.collectives,
        groups: traffic.groups,
        multicasts: traffic.multicasts,
        aggregation: traffic.aggregation,
        jobs: traffic.jobs,
        scripted: traffic.scripted,
        pipes: traffic.pipes,
        listed: traffic.listed,
        expect: bounds,
        faults: faults.notes,
        trigger_names: traffic.trigger_names,
        notes,
        origin: Origin {
            file: scenario.file().to_string(),
            command: scenario.command().to_string(),
            set: scenario.changes().clone(),
            scenario: scenario.text(),
        },
        ideal,
        alone: run.alone,
        healthy: run.healthy,
        own_faults,
        auto_sample,
        sampled: run.sample != Sample::Unset,
        capture_limit: run.capture_limit,
    };
    experiment.plan.watch = watched(sink, &experiment, run.watch.as_deref());
    let template = facts::report(&experiment, &Measurements::default(), 0.0).values();
    sink.extend(bounds_sink.take());
    expect::check(sink, &experiment.expect, &template, |name| experiment.message_named(name).is_some());
    Some(experiment)
}

/// Remarks that a reader of results needs beyond the scenario's text.
fn notes(workloads: &[workload::Workload], profile: &Profile, routing: Routing) -> Vec<String> {
    let mut notes = Vec::new();
    for workload in workloads {
        if let workload::Kind::Matrix { matrix, file, unit: StartUnit::Unsaid } = &workload.kind
            && matrix.has_starts()
        {
            notes.push(format!(
                "{file}: `start` is taken as picoseconds, as htsim's generators write it; its main_uec reads microseconds \
                 (workload.start_unit = \"us\")"
            ));
        }
    }
    for workload in workloads {
        if let workload::Kind::Poisson { load, .. } = workload.kind
            && load > 1.0
        {
            notes.push(format!(
                "{} = {load} offers {load} times what the NICs carry: senders' queues grow as long as the run lasts",
                workload.section.clone() + ".load"
            ));
        }
    }
    let mixed = workloads.iter().filter_map(|w| w.profile.as_ref());
    for own in std::iter::once(profile).chain(mixed) {
        let wanted = own.routing();
        if routing == Routing::Adaptive
            && matches!(own.reliability, strandway_proto::reliability::ReliabilityConfig::GoBackN(_))
        {
            notes.push(format!(
                "{} takes packets out of order for lost ones, and fabric.routing = \"adaptive\" reorders the packets of a flow; \"flowlet\" \
                 keeps them in order",
                own.name
            ));
        }
        if wanted != routing && wanted != Routing::Hashed {
            notes.push(format!(
                "{} runs on {} switches here; it is made for fabric.routing = \"{}\"",
                own.name,
                routing.name(),
                wanted.name()
            ));
        }
    }
    notes.dedup();
    notes
}

/// Notes on sections of the scenario that have no effect on the run.
fn unused(root: &toml::Table, traffic: &crate::scenario::generate::Traffic) -> Vec<String> {
    let mut notes = Vec::new();
    let told = traffic.notes.iter().any(|note| note.contains("[servers] has no effect"));
    if root.contains_key("servers") && !traffic.uses_servers && !told {
        notes
            .push("[servers] has no effect on this run: no job and no collective uses the links inside servers".into());
    }
    if root.contains_key("switch") && traffic.aggregation.is_none() {
        let what = "no workload has algorithm = \"in-network\" or kind = \"training\"";
        notes.push(format!("[switch] has no effect on this run: {what}"));
    }
    notes
}

/// Notes on profiles whose range of packet numbers is smaller than the BDP of the longest path.
fn outreached(plan: &Plan) -> Vec<String> {
    let topology = &plan.topology;
    let sites = topology.sites();
    let at = |site: u32| HostId(site * topology.shape().hosts_per_leaf);
    let told = |profile: &Arc<Profile>| {
        let all = environment(topology, &plan.ports, profile);
        let pairs = (1..sites).flat_map(|high| (0..high).map(move |low| (low, high)));
        let world = pairs
            .map(|(a, b)| environment_between(topology, &all, profile, at(a), at(b)))
            .max_by_key(|world| world.bdp())?;
        let range = profile.reliability.range()?;
        let room = world.bdp().0 / world.packet.0;
        let most = Rate(
            (u128::from(range) * u128::from(world.packet.0) * 8_000_000_000_000 / u128::from(world.base_rtt.0.max(1)))
                as u64,
        );
        (u64::from(range) < room).then(|| {
            format!(
                "{} has at most {} packets under way per connection, and the longest path has room for {}: no more than {most} there; \
                 raise {} if that is not meant",
                profile.name,
                count(range.into()),
                count(room),
                match profile.reliability.name() {
                    "mrc_sack" => "profile.mrc_sack.psn_range (255 at the most), or use several connections",
                    _ => "profile.selective_repeat.window_psn",
                },
            )
        })
    };
    plan.profiles.iter().filter_map(told).collect()
}

/// Notes on profiles of single workloads that need other settings of switches.
fn unsupported(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    for profile in plan.profiles.iter().skip(1) {
        let (wish, ports) = (&profile.switch, &plan.ports);
        let lacks = [
            ("PFC", wish.pfc && ports.pfc.is_none()),
            ("trimming", wish.trimming && !wish.pfc && ports.trim.is_none()),
            ("ECN marks", wish.ecn_high_bdp > 0.0 && ports.ecn.is_none()),
        ];
        let lacks: Vec<&str> = lacks.iter().filter(|(_, lacks)| *lacks).map(|(what, _)| *what).collect();
        if !lacks.is_empty() {
            notes.push(format!(
                "{} flows run without {} here: the switches are as [fabric] and [profile] say",
                profile.name,
                lacks.join(" and ")
            ));
        }
        if ports.pfc.is_some() && !wish.pfc {
            notes.push(format!("{} flows run over switches that pause (PFC) here", profile.name));
        }
    }
    notes.dedup();
    notes
}

/// Time that a run may take in addition to its work: ten base round trips, each with the longest retransmission timeout
/// of the profiles; at least 10 ms.
fn time_allowance(topology: &Topology, ports: &PortSettings, profiles: &[Arc<Profile>]) -> Span {
    let round = |profile: &Arc<Profile>| {
        let environment = environment(topology, ports, profile);
        (environment.base_rtt + profile.reliability.timeout(&environment)) * 10
    };
    // Over long links a flow may take many round trips; simulating them costs nothing while no packet moves.
    let least = if topology.sites() > 0 { 4000 } else { 0 };
    let rounds = |profile: &Arc<Profile>| round(profile).max(environment(topology, ports, profile).base_rtt * least);
    profiles.iter().map(rounds).fold(Span::from_ms(10), Span::max)
}

/// The connection that the time series watch. It belongs to the flow `name`; without a name, to the first flow from or
/// to a host whose own link has a fault; without such a flow, to the first flow.
fn watched(sink: &Sink, experiment: &Experiment, name: Option<&str>) -> Option<u32> {
    if let Some(name) = name {
        let found = experiment.connection_of(name);
        if found.is_none() {
            let few: Vec<String> = experiment.messages.iter().take(3).map(|m| experiment.message_name(m)).collect();
            let all = experiment.messages.len();
            let remedy = format!("write a flow's name, or its id in a matrix; there are {all}: {}", few.join(", "));
            let more = if all > few.len() { ", ..." } else { "" };
            sink.add("run.watch", format!("\"{name}\""), format!("there is no flow \"{name}\""), remedy + more);
        }
        return found;
    }
    let plan = &experiment.plan;
    let mut struck = vec![false; plan.topology.hosts() as usize];
    for link in plan.faults.iter().flat_map(|fault| &fault.links) {
        if let Some(ends) = plan.topology.ends(*link) {
            for host in [ends.from, ends.to] {
                if let Some(struck) = struck.get_mut(host.0 as usize) {
                    *struck = true;
                }
            }
        }
    }
    let touched = |m: &&Message| {
        let (from, to) = experiment.ends(m);
        struck[from.0 as usize] || struck[to.0 as usize]
    };
    let message = experiment.messages.iter().find(touched).or(experiment.messages.first())?;
    Some(plan.flows[message.first as usize].connection)
}

/// Interval for about 200 points in a run with little contention, rounded. It is at least the time of twelve packets;
/// otherwise a point would show single packets instead of a rate.
fn sample_interval(ideal: Span, packet: Span) -> Span {
    let wanted = ((ideal.0 + ideal.0 / 4) / 200).max(packet.0 * 12);
    let mut power = 1;
    while power * 10 <= wanted {
        power *= 10;
    }
    Span([1, 2, 5, 10].map(|m| m * power).into_iter().find(|s| *s >= wanted).unwrap_or(wanted))
}

fn text(sink: &Sink, root: &toml::Table, key: &str) -> String {
    match root.get(key) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => {
            sink.add(key, show(other), "must be text", "put it between quotes");
            String::new()
        }
    }
}

/// Sizes on the wire are 16-bit numbers.
fn packet_fits(sink: &Sink, profile: &Profile) {
    let bytes = profile.packet_bytes().0;
    if bytes > u64::from(u16::MAX) {
        let what = format!("a packet of {bytes} bytes does not fit the wire");
        sink.add("profile.transport.mtu", profile.transport.mtu, what, "mtu and header together may be 65,535");
    }
}

impl Experiment {
    /// The profile of the run; single workloads may use another.
    pub fn profile(&self) -> &Profile {
        &self.plan.profiles[0]
    }

    /// This experiment with one of its jobs, and nothing beside it. Everything keeps its place and its numbers.
    pub(crate) fn only_job(&self, job: usize) -> Experiment {
        let mut only = self.clone();
        only.plan.flows.iter_mut().for_each(|flow| flow.start = Start::Program);
        only.groups.iter_mut().for_each(|group| group.starts.fill(Time::NEVER));
        only.multicasts.iter_mut().for_each(|multicast| multicast.starts.fill(Time::NEVER));
        only.listed.iter_mut().for_each(|listed| listed.starts.fill(Time::NEVER));
        let others = only.scripted.iter_mut().enumerate().filter(|(other, _)| *other != job);
        others.for_each(|(_, other)| other.start = Time::NEVER);
        only.plan.sample_every = None;
        only.plan.capture = None;
        only
    }

    /// This experiment without the scenario's `[[faults]]`; `None` if it has none.
    pub(crate) fn without_faults(&self) -> Option<Experiment> {
        let mut whole = self.clone();
        whole.plan.faults.drain(..self.own_faults);
        whole.plan.sample_every = None;
        whole.plan.capture = None;
        (self.own_faults > 0).then_some(whole)
    }

    /// Records time series with about 200 points, unless the scenario sets its own interval.
    pub fn with_series(&mut self) {
        if !self.sampled {
            self.plan.sample_every = Some(self.auto_sample);
        }
    }

    /// Records packets at the place that the scenario names, or at the first host.
    pub fn with_capture(&mut self) {
        if self.plan.capture.is_none() {
            self.plan.capture = run::capture("host0", self.capture_limit, &self.plan.topology).ok();
        }
    }

    /// Approximate number of packet hops of the run without retransmissions; progress is measured against it.
    pub fn expected_hops(&self) -> u64 {
        let hops = |m: &Message| {
            let (from, to) = self.ends(m);
            let transport = &self.profile_of(m).transport;
            let mtu = u64::from(transport.mtu);
            let acks = mtu as f64 / transport.ack_every.0.max(mtu) as f64;
            let data = m.bytes.div_ceil(mtu).max(1) * self.plan.topology.hops(from, to) as u64;
            data as f64 * (1.0 + acks)
        };
        let rows = self.messages.iter().map(hops).sum::<f64>();
        let tallied = self.collectives.iter().filter(|c| c.tallied).map(|c| match c.execution {
            Execution::Schedule(group) => self.hops_of(&self.groups[group]),
            Execution::Multicast(multicast) => self.hops_of_multicast(&self.multicasts[multicast]),
            Execution::InNetwork(job) => self.hops_in_network(job),
            Execution::Pipe(pipe) => self.hops_of_pipe(&self.pipes[pipe]),
            Execution::Listed(listed) => self.hops_of_listed(&self.listed[listed]),
            Execution::Flows | Execution::OnServers { .. } => 0.0,
        });
        (rows + tallied.sum::<f64>()) as u64
    }

    /// Packet hops of a collective without entries, computed from a sample of its ranks and all their peers.
    fn hops_of(&self, group: &Group) -> f64 {
        let schedule = &group.schedule;
        let some = (0..schedule.ranks()).step_by((schedule.ranks() / 64).max(1) as usize).map(Rank);
        let pairs = some.flat_map(|rank| (0..schedule.peers()).map(move |peer| (rank, peer)));
        let lengths = pairs.map(|(rank, peer)| {
            let to = schedule.send(rank, peer * schedule.parts()).to;
            self.plan.topology.hops(group.hosts[rank.0 as usize], group.hosts[to.0 as usize]) as f64
        });
        let (sum, count) = lengths.fold((0.0, 0.0), |(sum, count), hops| (sum + hops, count + 1.0));
        let transport = &self.plan.profiles[usize::from(group.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let packets = (schedule.volume() as f64 / group.messages() as f64 / mtu).ceil().max(1.0);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        // Every message has at least one acknowledgement.
        group.messages() as f64 * (packets * (1.0 + acks)).max(packets + 1.0) * sum / count
    }

    /// Packet hops of messages between two ranks of a job.
    fn hops_of_pipe(&self, pipe: &Pipe) -> f64 {
        let transport = &self.plan.profiles[usize::from(pipe.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let packets = (pipe.bytes as f64 / f64::from(pipe.pieces) / mtu).ceil().max(1.0);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        let hops = self.plan.topology.hops(pipe.from, pipe.to) as f64;
        pipe.messages() as f64 * (packets * (1.0 + acks)).max(packets + 1.0) * hops
    }

    /// Packet hops of a collective that follows a recipe, computed from a sample of its messages.
    fn hops_of_listed(&self, listed: &RecipeCollective) -> f64 {
        let transport = &self.plan.profiles[usize::from(listed.profile)].transport;
        let mtu = f64::from(transport.mtu);
        let acks = mtu / (transport.ack_every.0 as f64).max(mtu);
        let all = listed.recipe.messages().len() as u32;
        let some = (0..all).step_by((all as usize / 1024).max(1));
        let hops = some.map(|message| {
            let (from, to) = listed.ends(message);
            let packets = (listed.length(message, 0) as f64 / mtu).ceil().max(1.0);
            (packets * (1.0 + acks)).max(packets + 1.0) * self.plan.topology.hops(from, to) as f64
        });
        let (sum, count) = hops.fold((0.0, 0.0), |(sum, count), hops| (sum + hops, count + 1.0));
        listed.messages() as f64 * sum / f64::max(count, 1.0)
    }

    /// Packet hops of a multicast: every chunk crosses each cable to a rank, leaf and pod once (multicast sheet,
    /// section 8.3).
    fn hops_of_multicast(&self, multicast: &Multicast) -> f64 {
        let topology = &self.plan.topology;
        let mut leaves: Vec<u32> = multicast.ranks.hosts().iter().map(|&host| topology.leaf_of(host)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        let crossed = f64::from(multicast.ranks.count()) + if leaves.len() > 1 { leaves.len() as f64 } else { 0.0 };
        let layout = &multicast.layout;
        let chunks: f64 = (0..layout.shares()).map(|share| f64::from(layout.chunks(share))).sum();
        // Letters of three barriers, each with its acknowledgement.
        let ranks = f64::from(multicast.ranks.count());
        chunks * crossed + ranks * 6.0 * ranks.log2().ceil() * 4.0
    }

    /// Packet hops of a job whose gradients switches add: every fragment crosses its worker's cable upwards, and every
    /// result downwards.
    fn hops_in_network(&self, job: usize) -> f64 {
        let Some(plan) = self.aggregation.as_ref().and_then(|all| all.plans.get(job)) else { return 0.0 };
        let racks = plan.job.racks().len() as f64;
        let between = if racks > 1.0 { 4.0 * racks } else { 0.0 };
        (plan.keys() * u64::from(plan.iterations)) as f64 * (2.0 * plan.job.workers().len() as f64 + between)
    }

    /// The profile of a message's connections.
    pub fn profile_of(&self, message: &Message) -> &Profile {
        &self.plan.profiles[self.profile_index(message)]
    }

    pub(crate) fn profile_index(&self, message: &Message) -> usize {
        let flow = &self.plan.flows[message.first as usize];
        usize::from(self.plan.connections[flow.connection as usize].profile)
    }

    /// For each profile of the plan: the times of messages alone in the fabric.
    pub(crate) fn ideal_fcts(&self) -> Vec<Alone<'_>> {
        let alone = |p: &Arc<Profile>| Alone::new(p, &self.plan.topology, self.derived.rate);
        self.plan.profiles.iter().map(alone).collect()
    }

    /// The sender and the receiver of a message.
    pub fn ends(&self, message: &Message) -> (HostId, HostId) {
        let flow = &self.plan.flows[message.first as usize];
        let connection = &self.plan.connections[flow.connection as usize];
        (connection.source, connection.destination)
    }

    /// The name of a message in reports: `host0->host13`, after its id if it comes from an imported matrix.
    pub fn message_name(&self, message: &Message) -> String {
        let (from, to) = self.ends(message);
        match message.id {
            Some(id) => format!("{id}: host{}->host{}", from.0, to.0),
            None => format!("host{}->host{}", from.0, to.0),
        }
    }

    /// The messages with this name: a pair such as `host0->host13` or `0->13`, or an id of an imported matrix.
    pub fn message_named(&self, name: &str) -> Option<Vec<usize>> {
        let short = name.replace("host", "");
        let found: Vec<usize> = self
            .messages
            .iter()
            .enumerate()
            .filter(|(_, m)| {
                let (from, to) = self.ends(m);
                m.id.is_some_and(|id| id.to_string() == name) || short == format!("{}->{}", from.0, to.0)
            })
            .map(|(i, _)| i)
            .collect();
        (!found.is_empty()).then_some(found)
    }

    /// Number of messages of a collective; for multicast and for aggregation in switches, its number of ranks.
    pub fn messages_of(&self, plan: &CollectivePlan) -> u64 {
        match plan.execution {
            Execution::Schedule(group) if plan.tallied => self.groups[group].messages(),
            Execution::Pipe(pipe) => self.pipes[pipe].messages(),
            Execution::Listed(listed) => self.listed[listed].messages(),
            Execution::Multicast(_) | Execution::InNetwork(_) => u64::from(plan.ranks),
            Execution::OnServers { job, group } => self.rails(job, group).map(|rail| self.messages_of(rail)).sum(),
            Execution::Schedule(_) | Execution::Flows => plan.messages.len() as u64,
        }
    }

    /// The collectives between servers of one group of a collective on servers: one per rail.
    pub(crate) fn rails(&self, job: usize, group: u32) -> impl Iterator<Item = &CollectivePlan> {
        let plan = &self.jobs[job];
        let all = plan.operations.first().map_or(&[][..], |(_, places)| places);
        let groups = self.scripted[job].hosts.len() / (plan.groups_of.max(1) as usize);
        let each = all.len() / groups.max(1);
        all.iter().skip(group as usize * each).take(each).map(|&place| &self.collectives[place])
    }

    /// The counts of a collective without entries.
    pub fn tally_of<'m>(&self, plan: &CollectivePlan, measured: &'m Measurements) -> Option<&'m Tally> {
        let place = match plan.execution {
            Execution::Schedule(group) => plan.tallied.then_some(group)?,
            Execution::Multicast(multicast) => self.groups.len() + multicast,
            Execution::Pipe(pipe) => self.groups.len() + self.multicasts.len() + self.scripted.len() + pipe,
            Execution::Listed(listed) => {
                self.groups.len() + self.multicasts.len() + self.scripted.len() + self.pipes.len() + listed
            }
            Execution::InNetwork(job) => {
                let before = self.groups.len() + self.multicasts.len() + self.scripted.len() + self.pipes.len();
                before + self.listed.len() + job
            }
            Execution::Flows | Execution::OnServers { .. } => return None,
        };
        measured.tallies.get(place)
    }

    /// The programs of all hosts.
    pub fn programs(&self) -> Programs<'_> {
        let programs = Programs::new(&self.plan, &self.groups).with_multicasts(&self.multicasts);
        programs.with_jobs(&self.scripted, &self.pipes).with_listed(&self.listed)
    }

    /// The collective that a flow of the plan belongs to.
    pub(crate) fn group_of(&self, flow: u32) -> Option<&Group> {
        self.groups.iter().find(|g| g.numbers().contains(&flow))
    }

    /// The connection of the first message with this name. If the message is striped over several connections, the
    /// first of them.
    pub fn connection_of(&self, name: &str) -> Option<u32> {
        let message = *self.message_named(name)?.first()?;
        Some(self.plan.flows[self.messages[message].first as usize].connection)
    }

    /// The time at which a message is posted, if it is fixed.
    pub fn start_of(&self, message: &Message) -> Option<Time> {
        match self.plan.flows[message.first as usize].start {
            Start::At(at) => Some(at),
            Start::On(..) | Start::Program => None,
        }
    }
}

/// The description of a built-in distribution of flow sizes: source, mean and points.
pub fn size_distribution(name: &str) -> Option<String> {
    sizes::Sizes::explained(name)
}

/// The names of the built-in distributions of flow sizes.
pub fn size_distributions() -> &'static [&'static str] {
    &sizes::NAMES
}
