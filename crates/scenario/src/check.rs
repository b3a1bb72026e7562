//! Turns a scenario into an experiment; all mistakes are found here.

use crate::experiment::{Experiment, Recording};
use crate::generate::generate;
use crate::job::JobKeys;
use crate::keys::SECTIONS;
use crate::maker::{Context, ROWS_MAX, Traffic};
use crate::plans::Message;
use crate::reader::{Sink, show};
use crate::reduction::Reduction;
use crate::run::Sample;
use crate::scenario::Scenario;
use crate::{clustermapper, cost, expect, fabric, faults, fsdp, profile, run, servers, sweep, switch, workload};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandway_fabric::plan::{CapturePlan, PortSettings, Routing, environment, environment_between};
use strandway_fabric::{Plan, Topology};
use strandway_import::htsim::StartUnit;
use strandway_import::{Problems, suggest};
use strandway_proto::units::{Rate, Span, Time};
use strandway_proto::{HostId, Profile};
use strandway_report::Origin;
use strandway_report::numbers::count;
use toml::Value;

/// With at most this many flows, the division of each flow's time is recorded by default. Ours: it needs about 50 MB
/// then.
const ACCOUNTS_MAX: usize = 1 << 18;

/// The default time limit of a run whose messages come from outside: ours, more than an iteration of training takes.
const POSTED_LIMIT: Time = Time(1_000_000_000_000_000);

impl Scenario {
    /// Checks the scenario. All mistakes are found here; later steps cannot fail because of a wrong setting. `values`
    /// names the values that a report of the experiment has, by their dotted paths; `[expect]` may bound no others.
    /// `strandway_lab::check` calls this function with the values of its reports.
    ///
    /// # Errors
    /// All problems at once.
    pub fn check(&self, values: impl FnOnce(&Experiment) -> BTreeSet<String>) -> Result<Experiment, Problems> {
        let sink = Sink::new(self.file());
        match build(self, &sink, values) {
            Some(experiment) if sink.is_empty() => Ok(experiment),
            _ => Err(Problems(sink.take())),
        }
    }
}

/// Checks `scenario`; problems go into `sink`. The result is valid only if there are none.
fn build(scenario: &Scenario, sink: &Sink, values: impl FnOnce(&Experiment) -> BTreeSet<String>) -> Option<Experiment> {
    let root = &scenario.table;
    let unknown = root.iter().filter(|(key, _)| !SECTIONS.contains(&key.as_str()));
    unknown.for_each(|(key, value)| sink.add(key, show(value), "unknown section", suggest(key, &SECTIONS)));
    let description = text(sink, root, "description");
    text(sink, root, "name");
    sweep::check(scenario, sink);
    let run = run::read(sink, root);
    let profile = profile::read(sink, root);
    let switch = switch::settings::read(sink, root, run.seed);
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
    let mut notes = adapt_profiles(root, &fabric, &ports, (&mut profile, &mut workloads), derived.rate);
    let profile = Arc::new(profile);
    let servers = servers::read(sink, scenario, &fabric);
    if !can_reduce(sink, scenario, &workloads, &fabric, &servers) {
        return None;
    }
    notes.extend(fabric.assumed.iter().chain(&servers.assumed).cloned());
    let context = Context {
        sink,
        servers: &servers,
        topology: &topology,
        rate: derived.rate,
        seed: run.seed,
        switch: &switch,
        rows: run.rows,
        pauses: ports.pfc.is_some(),
        reduction: scenario.reduction,
        profile: &profile,
    };
    let traffic = generate(&context, &workloads);
    notes.extend(traffic.notes.iter().cloned());
    notes.extend(unused(root, &traffic));
    let limits = limits(scenario, sink, &run, &context, &traffic, (&ports, &derived));
    if limits.last >= limits.time_limit && whole {
        let what = format!("ends before the last flow starts, at {}", limits.last);
        sink.add("run.time_limit", format!("\"{}\"", limits.time_limit), what, "write a later end, or leave it out");
    }
    let tallied = traffic.tallied;
    let (faults, own_faults, note) = all_faults(scenario, sink, &fabric, limits.time_limit, run.seed);
    notes.extend(note);
    let capture = capture(sink, &run, &topology);
    if !sink.is_empty() {
        sink.extend(bounds_sink.take());
        return None;
    }
    let mut experiment = experiment(scenario, &run, (fabric, ports, derived), traffic, (faults, own_faults), &limits);
    experiment.plan.capture = capture;
    notes.extend(unkept(&run, &experiment.plan, tallied));
    notes.extend(unsupported(&experiment.plan));
    notes.extend(outreached(&experiment.plan));
    (experiment.description, experiment.expect, experiment.notes) = (description, bounds, notes);
    run::check_capture_layout(sink, run.capture_layout, &experiment.plan.profiles);
    experiment.plan.watch = watched(sink, &experiment, run.watch.as_deref());
    sink.extend(bounds_sink.take());
    if !experiment.expect.is_empty() {
        let named = |name: &str| experiment.message_named(name).is_some();
        expect::check(sink, &experiment.expect, &values(&experiment), named);
    }
    Some(experiment)
}

/// The experiment of a scenario without mistakes; its description, bounds, notes and captures are missing.
fn experiment(
    scenario: &Scenario,
    run: &run::Run,
    (fabric, ports, derived): (fabric::Fabric, PortSettings, fabric::Derived),
    traffic: Traffic,
    (faults, own_faults): (faults::Faults, usize),
    limits: &Limits,
) -> Experiment {
    let accounts = run.why.unwrap_or(traffic.flows.len() <= ACCOUNTS_MAX);
    let plan = Plan {
        topology: fabric.topology,
        ports,
        routing: fabric.routing,
        profiles: traffic.profiles,
        connections: traffic.connections,
        flows: traffic.flows,
        triggers: traffic.triggers,
        multicast: traffic.members,
        faults: faults.plans,
        seed: run.seed,
        time_limit: limits.time_limit,
        threads: run.threads,
        sample_every: match run.sample {
            Sample::Unset => None,
            Sample::Auto => Some(limits.auto_sample),
            Sample::Every(span) => Some(span),
        },
        watch: None,
        accounts,
        rows: run.rows || traffic.tallied <= ROWS_MAX,
        capture: None,
        tally_paths: false,
    };
    Experiment {
        default_time_limit: run.time_limit.is_none(),
        name: scenario.name(),
        description: String::new(),
        plan,
        fabric: fabric.kind.to_string(),
        derived,
        messages: traffic.messages,
        classes: traffic.classes,
        collectives: traffic.collectives,
        operations: traffic.operations,
        aggregation: traffic.aggregation,
        jobs: traffic.jobs,
        services: traffic.services,
        expect: Vec::new(),
        faults: faults.notes,
        trigger_names: traffic.trigger_names,
        notes: Vec::new(),
        origin: Origin {
            file: scenario.file().to_string(),
            command: scenario.command().to_string(),
            set: scenario.changes().clone(),
            scenario: scenario.text(),
        },
        rows_wanted: run.rows,
        ideal: limits.ideal,
        alone: run.alone,
        healthy: run.healthy,
        own_faults,
        recording: Recording {
            auto_sample: limits.auto_sample,
            sampled: run.sample != Sample::Unset,
            capture_limit: run.capture_limit,
            capture_layout: run.capture_layout,
        },
    }
}

/// The place at which packets are recorded, if there is one.
fn capture(sink: &Sink, run: &run::Run, topology: &Topology) -> Option<CapturePlan> {
    let name = run.capture.as_deref()?;
    match run::capture(name, run.capture_limit, topology) {
        Ok(capture) => Some(capture),
        Err((what, remedy)) => {
            sink.add("run.capture", format!("\"{name}\""), what, remedy);
            None
        }
    }
}

/// Adapts the profiles to the ports; returns notes about them, the workloads and the fabric.
fn adapt_profiles(
    root: &toml::Table,
    fabric: &fabric::Fabric,
    ports: &PortSettings,
    (profile, workloads): (&mut Profile, &mut [workload::Workload]),
    rate: Rate,
) -> Vec<String> {
    let mut notes = notes(workloads, profile, fabric.routing);
    if ports.pfc.is_some() {
        let table = root.get("profile").and_then(toml::Value::as_table);
        notes.extend(profile::wait_for_pauses(profile, table, rate));
        let own = workloads.iter_mut().filter_map(|workload| workload.head.profile.as_mut());
        notes.extend(own.filter_map(|own| profile::wait_for_pauses(own, None, rate)));
        notes.dedup();
    }
    notes.extend(fabric.unused_settings(ports));
    let has = |key: &str| root.get("fabric").is_some_and(|fabric| fabric.get(key).is_some());
    if !has("topo") {
        let sizes = ["k", "hosts_per_leaf", "leaves_per_pod", "aggs_per_pod", "cores_per_agg"];
        notes.extend(cost::notes(&fabric.topology, sizes.into_iter().any(has)));
    }
    notes
}

/// Times that follow from the workload.
struct Limits {
    /// When the last flow with a start time starts.
    last: Time,
    /// How long the busiest NIC would be busy without any waiting, from the run's start.
    ideal: Span,
    time_limit: Time,
    auto_sample: Span,
}

fn limits(
    scenario: &Scenario,
    sink: &Sink,
    run: &run::Run,
    context: &Context<'_>,
    traffic: &Traffic,
    (ports, derived): (&PortSettings, &fabric::Derived),
) -> Limits {
    let topology = context.topology;
    let (busy, last) = traffic.ideal(topology.hosts(), derived.rate);
    let busy = busy.unwrap_or_else(|| {
        let what = format!("keeps a NIC of {} busy for longer than a run can last", derived.rate);
        sink.add("workload", "", what, "send less, or raise the rate");
        Span::ZERO
    });
    let ideal = Span(last.0.saturating_add(busy.0).saturating_add(derived.base_rtt.0));
    let chain = traffic.collectives.iter().map(|c| c.bound.0).max().unwrap_or(0);
    let chain = chain.max(fsdp::longest(traffic));
    let chain = traffic.services.iter().map(|plan| plan.longest.0).fold(chain, u64::max);
    let patience = time_allowance(topology, &PortSettings { data_queue: derived.queue, ..*ports }, &traffic.profiles);
    // At most all messages are posted one after the other.
    let posting = u128::from(ports.message_cost.0) * (traffic.flows.len() as u128 + u128::from(traffic.tallied));
    let posting = u64::try_from(posting).unwrap_or(u64::MAX);
    let time_limit = match run.time_limit {
        Some(limit) => Time(scenario.reduction.span(limit).0),
        None if scenario.posted => POSTED_LIMIT,
        None => Time(
            last.0.saturating_add((busy * 50).0.max(chain.saturating_mul(10)).max(patience.0)).saturating_add(posting),
        ),
    };
    let auto_sample =
        sample_interval(Span(ideal.0.max(last.0.saturating_add(chain))), derived.rate.time_for(derived.packet));
    Limits { last, ideal, time_limit, auto_sample }
}

/// All faults of the run, the number of those from `[[faults]]`, and a note on the clustermapper's.
fn all_faults(
    scenario: &Scenario,
    sink: &Sink,
    fabric: &fabric::Fabric,
    time_limit: Time,
    seed: u64,
) -> (faults::Faults, usize, Option<String>) {
    let (root, topology) = (&scenario.table, &fabric.topology);
    let whole_limit = Time(time_limit.0.saturating_mul(scenario.reduction.divisor));
    let mut faults = faults::read(sink, root, topology, seed, whole_limit);
    faults.divide(scenario.reduction);
    let own_faults = faults.plans.len();
    // If a link has several losses, the first one counts: losses in [[faults]] come before the permanent loss of links.
    faults.plans.extend(fabric.losses.plans.clone());
    faults.notes.extend(fabric.losses.notes.clone());
    let note = clustermapper::read(sink, root).map(|mapper| {
        let (denials, note) = clustermapper::denials(sink, &mapper, topology, &faults.plans, time_limit, seed);
        faults.plans.extend(denials);
        note
    });
    (faults, own_faults, note)
}

/// Notes on what a run of this size does not keep.
fn unkept(run: &run::Run, plan: &Plan, tallied: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if !plan.accounts && run.why.is_none() {
        notes.push(format!(
            "why flows took their time is not kept for more than {} flows; write why = true under [run] if memory allows",
            count(ACCOUNTS_MAX as u64)
        ));
    }
    if tallied > 0 && !plan.rows {
        notes.push(format!(
            "{} messages of collectives have no row each: percentiles are from a histogram, at most 0.4 % off, slowdowns, \
             received_us and why are not known; write rows = true under [run] if memory allows",
            count(tallied)
        ));
    }
    notes
}

/// Complains, and returns false, if a smaller run cannot stand for the whole one.
fn can_reduce<'a>(
    sink: &Sink,
    scenario: &Scenario,
    workloads: &'a [workload::Workload],
    fabric: &fabric::Fabric,
    servers: &servers::Servers,
) -> bool {
    let reduction = scenario.reduction;
    if reduction == Reduction::NONE {
        return true;
    }
    let refuse = |what: &str| {
        sink.add("run.approximate", "true", what, "leave it out");
        false
    };
    let job = |workload: &'a workload::Workload| match &workload.kind {
        workload::Kind::Job(job) if job.can_shrink() => Some(&**job),
        _ => None,
    };
    let Some(jobs) = workloads.iter().map(job).collect::<Option<Vec<&JobKeys>>>() else {
        return refuse(
            "works for jobs with a model and without algorithms of process groups, and for nothing beside them",
        );
    };
    if reduction.hosts() == 1 {
        return true;
    }
    let whole = |job: &&JobKeys| job.fills_servers(servers.gpus * reduction.rails) && job.has_equal_ranks();
    let fewer = |job: &&JobKeys| job.has_equal_replicas(reduction.replicas, servers.per_block);
    if !servers.has_rails() || !matches!(fabric.kind, "leaf-spine" | "multi-plane") {
        return refuse("needs rails with leaves of their own: servers.wiring, and two tiers of switches");
    } else if !jobs.iter().all(whole) {
        return refuse("needs tensor-parallel groups that are whole servers, whose ranks compute equally long");
    } else if !faults::are_alike_on_rails(&scenario.table) {
        return refuse("needs faults of planes or spines, which all rails have");
    } else if reduction.replicas > 1 && !(jobs.len() == 1 && jobs.iter().all(fewer)) {
        return refuse(
            "needs one job whose replicas are equal, collectives around rings, and stages that fill whole leaves",
        );
    }
    true
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
                workload.head.section.clone() + ".load"
            ));
        }
    }
    let mixed = workloads.iter().filter_map(|w| w.head.profile.as_ref());
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
fn unused(root: &toml::Table, traffic: &Traffic) -> Vec<String> {
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
