//! Makes a report from the measurements of a run.

use super::capacity::Capacity;
use super::seen::{Alones, Seen};
use super::spread::{cdf, spread};
use super::text::count;
use super::unlisted::{self, Crowd, Loose};
use super::{
    ClassFacts, CollectiveFacts, CostFacts, Expectation, FabricFacts, FaultFacts, FlowFacts, Goodput, GroupFacts,
    LinkFacts, Packets, ParameterFacts, PathFacts, Report, RunFacts, SlowFlow, Spread, series, why,
};
use crate::cost::Tables;
use crate::plan::{CollectivePlan, Execution, Experiment, FaultNote, Message};
use crate::scenario::expect::flow_key;
use std::collections::BTreeSet;
use strandway_collective::bandwidth;
use strandway_fabric::measure::{End, FlowRecord, LinkCounters, PATH_SLOTS};
use strandway_fabric::plan::Start;
use strandway_fabric::{LinkId, Measurements, Topology};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Span, Time};

impl Report {
    /// The report of a run that took `wall` seconds.
    pub fn new(experiment: &Experiment, measured: &Measurements, wall: f64) -> Report {
        Report::with_facts(experiment, measured, wall, &[])
    }

    /// The report of a run that took `wall` seconds. `singly` has the mean time of each job's iterations with the job
    /// alone on the fabric, in microseconds.
    pub(crate) fn with_facts(
        experiment: &Experiment,
        measured: &Measurements,
        wall: f64,
        singly: &[Option<f64>],
    ) -> Report {
        let plan = &experiment.plan;
        let lives: Vec<Life> = experiment.messages.iter().map(|m| life(m, &measured.flows)).collect();
        // Messages without entries in the plan. If their times are not known one by one, percentiles come from
        // histograms, and values that need the times of each message are absent.
        let crowd = Crowd::new(experiment, measured);
        let alone = Alones::of(experiment);
        let seen = Seen::all(experiment, &lives, crowd.rows());
        let fct = |keep: &dyn Fn(&Seen) -> bool| -> Vec<f64> {
            seen().filter(|m| keep(m)).filter_map(|m| Some(m.life.completion()?.as_us())).collect()
        };
        let slowdown = |keep: &dyn Fn(&Seen) -> bool| -> Vec<f64> {
            seen().filter(|m| keep(m)).filter_map(|m| Some(m.life.completion()?.as_us() / alone.us(&m))).collect()
        };
        let every = |_: &Seen| true;
        let unfinished = seen().filter(|m| m.life.finished.is_none()).count();
        let mut times = fct(&every);
        times.sort_unstable_by(f64::total_cmp);
        let received: Vec<f64> = seen().filter_map(|m| Some((m.life.received? - m.life.started?).as_us())).collect();
        let messages = seen().count();
        let not_received = messages - received.len();
        let classes = experiment.classes.iter().enumerate().map(|(i, name)| {
            let mine = |m: &Seen| usize::from(m.class) == i;
            let times = fct(&mine);
            let total = seen().filter(mine).count();
            let unfinished = total - times.len();
            let without = || crowd.of_class(i);
            let rows = without().next().is_none();
            ClassFacts {
                name: name.clone(),
                total: total as u64 + without().map(|p| p.total).sum::<u64>(),
                finished: times.len() as u64 + without().map(|p| p.finished()).sum::<u64>(),
                bytes: seen().filter(mine).map(|m| m.bytes).sum::<u64>() + without().map(|p| p.bytes).sum::<u64>(),
                fct_us: match rows {
                    true => spread(times, unfinished),
                    false => unlisted::spread(&times, unfinished as u64, without()).0,
                },
                slowdown: if rows { spread(slowdown(&mine), unfinished) } else { Spread::default() },
                fairness: match rows {
                    true => {
                        jain(seen().filter(mine).filter_map(|m| Some(m.bytes as f64 / m.life.completion()?.as_us())))
                    }
                    false => None,
                },
            }
        });
        let (fct_us, fct_cdf) = match crowd.is_empty() {
            true => (spread(times.clone(), unfinished), cdf(&times, messages)),
            false => unlisted::spread(&times, unfinished as u64, crowd.all()),
        };
        let p = measured.packets;
        let mut report = Report {
            format: 1,
            version: env!("CARGO_PKG_VERSION").to_string(),
            scenario: experiment.name.clone(),
            description: experiment.description.clone(),
            profile: experiment.profile().name.clone(),
            seed: plan.seed,
            digest: format!("{:016x}", measured.digest),
            world: super::SIMULATED.to_string(),
            end: match measured.end {
                End::Finished => "finished",
                End::TimeLimit => "time limit",
                End::Interrupted => "interrupted",
                End::Stalled => "stalled",
            }
            .to_string(),
            run: RunFacts {
                wall_s: wall,
                simulated_us: measured.simulated.as_us(),
                events: measured.events,
                packet_hops: measured.packet_hops,
                hops_per_s: if wall > 0.0 { measured.packet_hops as f64 / wall } else { 0.0 },
                threads: plan.threads,
                peak_rss_bytes: peak_rss(),
                hosts: plan.topology.hosts(),
            },
            fabric: fabric(experiment),
            flows: flows(experiment, measured, &lives, &crowd),
            fct_cdf,
            fct_us,
            received_us: if crowd.is_empty() { spread(received, not_received) } else { Spread::default() },
            slowdown: if crowd.is_empty() { spread(slowdown(&every), unfinished) } else { Spread::default() },
            goodput_gbps: goodput(experiment, measured, &lives, &crowd),
            packets: Packets {
                sent: p.sent,
                delivered: p.delivered,
                dropped: p.dropped,
                lost: p.lost,
                trimmed: p.trimmed,
                marked: p.marked,
                retransmitted: p.retransmitted,
                duplicates: p.duplicates,
                discarded: p.discarded,
                dropped_control: p.dropped_control,
                lost_control: p.lost_control,
                under_way: p.under_way(),
                acks: p.acks,
                nacks: p.nacks,
                notifications: p.notifications,
                timeouts: p.timeouts,
                pauses: p.pauses,
                retransmitted_share: share(p.retransmitted, p.sent),
                payload_link_bytes: payload_link_bytes(experiment, measured),
                chunks: p.chunks,
                repairs: p.repairs,
                copies: p.copies,
                chunks_arrived: p.chunks_arrived,
                rebuilt: p.rebuilt,
                fragments: p.fragments,
                fragments_arrived: p.fragments_arrived,
            },
            classes: classes.collect(),
            links: groups(experiment, measured),
            hottest: hottest(experiment, measured),
            long_links: super::long_links::facts(experiment, measured),
            choices: super::choice::facts(measured),
            ev_events: super::evs::facts(measured),
            switch: super::aggregation::facts(experiment, measured),
            jobs: super::job::facts(experiment, measured, singly),
            paths: paths(experiment, measured),
            series: series::series(experiment, measured),
            map: super::map::facts(experiment, measured),
            parameters: parameters(experiment),
            other_profiles: plan.profiles[1..].iter().map(|p| p.name.clone()).collect(),
            collectives: collectives(experiment, measured, &lives),
            why: why::why(experiment, measured),
            expect: Vec::new(),
            faults: experiment.faults.iter().map(|note| fault(note, measured)).collect(),
            fault_costs: Vec::new(),
            notes: experiment.notes.iter().cloned().chain(deaths(experiment, measured)).collect(),
            origin: experiment.origin.clone(),
        };
        report.notes.extend(super::aggregation::note(&report));
        report.notes.extend(needless(&report.packets));
        report.expect = expectations(experiment, &report, &lives);
        report
    }
}

/// A note on timeouts if no packet was lost.
fn needless(p: &Packets) -> Option<String> {
    let lost = p.dropped + p.lost + p.trimmed + p.dropped_control + p.lost_control;
    (p.timeouts > 0 && p.retransmitted > 0 && lost == 0).then(|| {
        format!(
            "{} timeouts expired although no packet was lost, and {} packets were sent again for nothing: they or their \
             acknowledgements waited longer than the timeout; raise it (rto in [profile])",
            count(p.timeouts),
            count(p.retransmitted)
        )
    })
}

fn fault(note: &FaultNote, measured: &Measurements) -> FaultFacts {
    let lost = note.links.iter().filter_map(|link| measured.links.get(link.0 as usize)).map(|link| link.lost_data_last);
    let last = lost.filter(|&at| at > note.from && at <= note.until).max();
    FaultFacts {
        name: note.name.clone(),
        what: note.what.clone(),
        from_us: note.from.as_us(),
        until_us: (note.until != Time::NEVER).then(|| note.until.as_us()),
        links: note.links.len() as u64,
        avoided_after_us: last.map(|at| at.since(note.from).as_us()),
    }
}

impl Report {
    /// The report of a run between real nodes that took `wall` seconds. Each of `notes` names a difference from a
    /// simulated run.
    pub fn of_namespaces(experiment: &Experiment, measured: &Measurements, wall: f64, notes: &[String]) -> Report {
        let mut report = Report::new(experiment, measured, wall);
        report.world = super::NAMESPACES.to_string();
        report.digest = String::new();
        report.notes.extend(notes.iter().map(|note| format!("not as simulated: {note}")));
        report
    }
}

/// The times of a message: those of all its pieces together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    pub(super) started: Option<Time>,
    pub(super) received: Option<Time>,
    pub(super) finished: Option<Time>,
}

impl Life {
    pub(super) fn completion(&self) -> Option<Span> {
        Some(self.finished? - self.started?)
    }
}

/// Jain's fairness index; `None` without a value.
fn jain(rates: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for rate in rates {
        count += 1.0;
        sum += rate;
        squares += rate * rate;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

pub(super) fn life(message: &Message, flows: &[FlowRecord]) -> Life {
    let first = message.first as usize;
    let pieces = flows.get(first..first + message.pieces as usize).unwrap_or_default();
    let last = |of: fn(&FlowRecord) -> Option<Time>| -> Option<Time> {
        let times: Option<Vec<Time>> = pieces.iter().map(of).collect();
        times.and_then(|t| t.into_iter().max())
    };
    Life {
        started: pieces.iter().filter_map(|p| p.started).min(),
        received: last(|p| p.received),
        finished: last(|p| p.finished),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn fabric(experiment: &Experiment) -> FabricFacts {
    let topology = &experiment.plan.topology;
    let ports = &experiment.plan.ports;
    let planes = u32::from(topology.planes());
    let (cost, single_plane) = CostFacts::of(topology);
    FabricFacts {
        kind: experiment.fabric.clone(),
        tiers: topology.tiers(),
        sites: topology.sites(),
        planes: topology.planes(),
        leaves: topology.leaves() * planes,
        spines: topology.spines() * planes,
        cores: topology.cores() * planes,
        directed_links: topology.groups().iter().map(|g| g.links).sum(),
        rate_gbps: experiment.derived.rate.as_gbps(),
        base_rtt_us: experiment.derived.base_rtt.as_us(),
        bdp_bytes: experiment.derived.bdp.0,
        queue_bytes: experiment.derived.queue.0,
        ecn_low_bytes: ports.ecn.map_or(0, |e| e.low.0),
        ecn_high_bytes: ports.ecn.map_or(0, |e| e.high.0),
        trimming: ports.trim.is_some(),
        pfc: ports.pfc.is_some(),
        routing: experiment.plan.routing.name().to_string(),
        cost,
        single_plane,
        tables: Tables::of(topology).into(),
    }
}

fn flows(experiment: &Experiment, measured: &Measurements, lives: &[Life], crowd: &Crowd<'_>) -> FlowFacts {
    let pairs = || experiment.messages.iter().zip(lives);
    let loose = crowd.rows();
    let unfinished = pairs().filter(|(_, l)| l.finished.is_none()).map(|(m, _)| experiment.message_name(m));
    let behind = loose.iter().filter(|m| m.life.finished.is_none()).map(Loose::name);
    let unfinished = unfinished.chain(behind).take(100);
    let all = || lives.iter().chain(loose.iter().map(|m| &m.life));
    let mut slowest: Vec<(Span, usize)> = all().enumerate().filter_map(|(i, l)| Some((l.completion()?, i))).collect();
    slowest.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    slowest.truncate(10);
    let rows = slowest.into_iter().map(|(fct, i)| {
        let (name, bytes, life) = match i.checked_sub(lives.len()) {
            None => (experiment.message_name(&experiment.messages[i]), experiment.messages[i].bytes, lives[i]),
            Some(behind) => (loose[behind].name(), loose[behind].bytes, loose[behind].life),
        };
        SlowFlow { name, bytes, start_us: life.started.unwrap_or_default().as_us(), fct_us: fct.as_us() }
    });
    let mut slowest: Vec<SlowFlow> = rows.collect();
    slowest.extend(crowd.slowest());
    slowest.sort_by(|a, b| b.fct_us.total_cmp(&a.fct_us));
    slowest.truncate(10);
    let more = |of: fn(&unlisted::Part<'_>) -> u64| crowd.all().map(of).sum::<u64>();
    FlowFacts {
        total: all().count() as u64 + more(|p| p.total),
        finished: all().filter(|l| l.finished.is_some()).count() as u64 + more(|p| p.finished()),
        never_started: all().filter(|l| l.started.is_none()).count() as u64 + more(|p| p.total - p.started()),
        bytes: experiment.messages.iter().map(|m| m.bytes).chain(loose.iter().map(|m| m.bytes)).sum::<u64>()
            + more(|p| p.bytes),
        delivered_bytes: delivered(experiment, measured),
        unfinished: unfinished.collect(),
        waiting: pairs()
            .filter(|(_, l)| l.started.is_none())
            .filter_map(|(m, _)| waits(experiment, m))
            .take(100)
            .collect(),
        slowest,
    }
}

/// The trigger that a message waits for, if it was never posted and a matrix names the trigger.
fn waits(experiment: &Experiment, message: &Message) -> Option<String> {
    let Start::On(trigger, _) = experiment.plan.flows[message.first as usize].start else { return None };
    let name = experiment.trigger_names.get(trigger as usize).filter(|name| !name.is_empty())?;
    Some(format!("{} waits for trigger {name}", experiment.message_name(message)))
}

/// Payload bytes sent onto links. `None` unless the header of every packet has the size of a control packet; otherwise
/// the sum cannot be computed.
fn payload_link_bytes(experiment: &Experiment, measured: &Measurements) -> Option<u64> {
    let transports = || experiment.plan.profiles.iter().map(|p| &p.transport);
    let header = u64::from(transports().next()?.header);
    let same = transports().all(|t| u64::from(t.header) == header && u64::from(t.control) == header);
    let trims = experiment.plan.ports.trim.is_none_or(|trim| u64::from(trim.size) == header);
    (same && trims).then(|| measured.links.iter().map(|l| l.bytes - header * l.packets).sum())
}

/// Notes on multicasts that were given up, with the silent host, and on those that had to use a chain of ranks.
fn deaths(experiment: &Experiment, measured: &Measurements) -> Vec<String> {
    let told = |plan: &CollectivePlan| -> Vec<String> {
        let aborted = experiment.tally_of(plan, measured).map(|tally| &tally.aborted);
        let dead = aborted.into_iter().flatten();
        let tell = |(host, ranks): (&HostId, &u64)| {
            format!("{}: {ranks} of {} ranks gave up, since host{} did not answer", plan.name, plan.ranks, host.0)
        };
        let chained = experiment.tally_of(plan, measured).is_some_and(|tally| tally.chained > 0).then(|| {
            format!(
                "{}: no plane is common to all ranks, so chunks went from rank to rank instead of by multicast",
                plan.name
            )
        });
        dead.map(tell).chain(chained).collect()
    };
    experiment.collectives.iter().flat_map(told).collect()
}

/// Payload bytes that arrived for the first time. Of multicasts, only the bytes of ranks that have everything.
fn delivered(experiment: &Experiment, measured: &Measurements) -> u64 {
    let multicast = experiment.collectives.iter().map(|plan| {
        let complete = experiment.tally_of(plan, measured).map_or(0, |tally| tally.received);
        if let Execution::InNetwork(_) = plan.execution {
            return plan.bytes.saturating_mul(complete);
        }
        let Execution::Multicast(multicast) = plan.execution else { return 0 };
        let whole = u128::from(experiment.multicasts[multicast].heard()) * u128::from(complete);
        (whole / u128::from(plan.ranks)) as u64
    });
    let connections = measured.connections.iter().chain([&measured.opened]).map(|c| c.delivered_bytes);
    connections.chain(multicast).sum()
}

fn goodput(experiment: &Experiment, measured: &Measurements, lives: &[Life], crowd: &Crowd<'_>) -> Goodput {
    let bytes = delivered(experiment, measured);
    let tallies = || measured.tallies.iter().filter(|t| t.started > 0);
    let first =
        lives.iter().filter_map(|l| l.started).chain(tallies().filter_map(|t| t.first)).min().unwrap_or_default();
    let last = if tallies().next().is_none() && lives.iter().all(|l| l.received.is_some()) {
        lives.iter().filter_map(|l| l.received).max().unwrap_or_default()
    } else {
        tallies().filter_map(|t| t.last).max().unwrap_or_default().max(measured.last_arrival)
    };
    let span = last.since(first);
    let total = if span == Span::ZERO { 0.0 } else { bytes as f64 * 8e3 / span.0 as f64 };
    let mut senders: BTreeSet<u32> = experiment.plan.connections.iter().map(|c| c.source.0).collect();
    senders.extend(experiment.groups.iter().flat_map(|g| g.hosts.iter().map(|h| h.0)));
    let jobs = experiment.aggregation.iter().flat_map(|all| &all.plans);
    senders.extend(jobs.flat_map(|plan| plan.job.workers().iter().map(|host| host.0)));
    senders.extend(experiment.multicasts.iter().flat_map(|m| m.ranks.hosts().iter().map(|h| h.0)));
    let rate =
        |bytes: u64, life: &Life| life.completion().map_or(0.0, |time| bytes as f64 * 8e3 / time.0.max(1) as f64);
    let single = experiment.messages.iter().zip(lives).map(|(m, life)| rate(m.bytes, life));
    let single = single.chain(crowd.rows().iter().map(|m| rate(m.bytes, &m.life)));
    let per_flow = if crowd.is_empty() { spread(single.collect(), 0) } else { Spread::default() };
    Goodput { mean_per_host: total / senders.len().max(1) as f64, total, per_flow }
}

fn groups(experiment: &Experiment, measured: &Measurements) -> Vec<GroupFacts> {
    let topology = &experiment.plan.topology;
    let capacity = Capacity::new(&experiment.plan, measured);
    let mut facts: Vec<GroupFacts> = topology
        .groups()
        .into_iter()
        .map(|g| GroupFacts {
            name: g.name,
            level: g.level,
            up: g.up,
            plane: g.plane,
            links: g.links,
            rate_gbps: g.rate.as_gbps(),
            utilisation_min: f64::INFINITY,
            ..GroupFacts::default()
        })
        .collect();
    for (i, link) in measured.links.iter().enumerate() {
        let Some(ends) = topology.ends(LinkId(i as u32)) else { continue };
        let group = &mut facts[topology.group_index(&ends)];
        let used = capacity.share(LinkId(i as u32), link);
        group.bytes += link.bytes;
        group.utilisation += used;
        group.utilisation_max = group.utilisation_max.max(used);
        group.utilisation_min = group.utilisation_min.min(used);
        group.dropped += u64::from(link.dropped);
        group.trimmed += u64::from(link.trimmed);
        group.marked += u64::from(link.marked);
        group.lost += u64::from(link.lost);
        group.queue_max_bytes = group.queue_max_bytes.max(link.queue_max.0);
        group.paused_us += link.paused.as_us();
    }
    for group in &mut facts {
        group.utilisation /= f64::from(group.links.max(1));
        if !group.utilisation_min.is_finite() {
            group.utilisation_min = 0.0;
        }
    }
    facts
}

/// Number of links in the list of the hottest ones.
const HOTTEST: usize = 10;

fn hottest(experiment: &Experiment, measured: &Measurements) -> Vec<LinkFacts> {
    let topology = &experiment.plan.topology;
    let capacity = Capacity::new(&experiment.plan, measured);
    let heat = |i: usize, l: &LinkCounters| (l.packets > 0).then(|| capacity.share(LinkId(i as u32), l));
    let by_heat =
        |a: &(f64, u64, usize), b: &(f64, u64, usize)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2));
    // Fabrics may have millions of links, so only the hottest ones are kept in order.
    let mut order: Vec<(f64, u64, usize)> = Vec::with_capacity(HOTTEST + 1);
    for link in measured.links.iter().enumerate().filter_map(|(i, l)| Some((heat(i, l)?, l.queue_max.0, i))) {
        let place = order.partition_point(|other| by_heat(other, &link).is_lt());
        if place < HOTTEST {
            order.insert(place, link);
            order.truncate(HOTTEST);
        }
    }
    order
        .into_iter()
        .map(|(utilisation, _, i)| link_facts(topology, LinkId(i as u32), &measured.links[i], utilisation))
        .collect()
}

/// One link in a report.
pub(super) fn link_facts(topology: &Topology, link: LinkId, counters: &LinkCounters, utilisation: f64) -> LinkFacts {
    LinkFacts {
        name: topology.link_name(link),
        utilisation,
        bytes: counters.bytes,
        packets: counters.packets,
        queue_max_bytes: counters.queue_max.0,
        dropped: counters.dropped.into(),
        trimmed: counters.trimmed.into(),
        marked: counters.marked.into(),
        lost: counters.lost.into(),
        paused_us: counters.paused.as_us(),
    }
}

fn paths(experiment: &Experiment, measured: &Measurements) -> Vec<PathFacts> {
    let planes = usize::from(experiment.plan.topology.planes());
    (0..planes)
        .map(|port| {
            let first = port * PATH_SLOTS;
            let slots = measured.paths.get(first..first + PATH_SLOTS).unwrap_or_default();
            let used = slots.iter().filter(|s| s.sent > 0).count() as u64;
            let sent: u64 = slots.iter().map(|s| s.sent).sum();
            let most = slots.iter().map(|s| s.sent).max().unwrap_or(0);
            PathFacts {
                name: format!("port{port}"),
                used,
                sent,
                marked: slots.iter().map(|s| s.marked).sum(),
                trimmed: slots.iter().map(|s| s.trimmed).sum(),
                imbalance: share(most * used, sent),
                sent_by_entropy: slots.iter().map(|s| s.sent).collect(),
            }
        })
        .collect()
}

fn collectives(experiment: &Experiment, measured: &Measurements, lives: &[Life]) -> Vec<CollectiveFacts> {
    let facts = |plan: &CollectivePlan| {
        let lives = &lives[plan.messages.clone()];
        let tally = experiment.tally_of(plan, measured);
        let messages = experiment.messages_of(plan);
        let received =
            tally.map_or_else(|| lives.iter().filter(|l| l.received.is_some()).count() as u64, |t| t.received);
        let started = tally.map_or_else(|| lives.iter().filter_map(|l| l.started).min(), |t| t.first);
        let last = tally.map_or_else(|| lives.iter().filter_map(|l| l.received).max(), |t| t.last);
        let (received, started, last) = match plan.execution {
            Execution::OnServers { job, group } => on_servers(experiment, measured, job, group),
            _ => (received, started, last),
        };
        let last = last.filter(|_| received == messages);
        let time = last.zip(started).map(|(last, first)| last.since(first));
        let rates = time.and_then(|t| bandwidth(plan.kind, plan.ranks, Bytes(plan.bytes), t));
        CollectiveFacts {
            name: plan.name.clone(),
            group: plan.group,
            kind: plan.kind.name().to_string(),
            algorithm: plan.algorithm.clone(),
            placement: plan.placement.clone(),
            ranks: plan.ranks,
            bytes: plan.bytes,
            messages,
            received,
            started_us: started.map(Time::as_us),
            time_us: time.map(Span::as_us),
            bound_us: plan.bound.as_us(),
            algbw: rates.map(|r| r.algorithm),
            busbw: rates.map(|r| r.bus),
        }
    };
    experiment.collectives.iter().filter(|plan| plan.job.is_none()).map(facts).collect()
}

/// Of a group of a collective on servers: the messages between servers that have arrived, the start of its first rank,
/// and the end of its last one.
fn on_servers(
    experiment: &Experiment,
    measured: &Measurements,
    job: usize,
    group: u32,
) -> (u64, Option<Time>, Option<Time>) {
    let rails = experiment.rails(job, group).filter_map(|rail| experiment.tally_of(rail, measured));
    let received = rails.map(|tally| tally.received).sum();
    let size = experiment.jobs[job].groups_of;
    let number = experiment.scripted[job].number;
    let mine = || measured.ranks.iter().filter(move |rank| rank.job == number && rank.rank / size == group);
    let ends: Option<Vec<Time>> = mine().map(|rank| rank.iterations.last().copied()).collect();
    let all = ends.filter(|ends| ends.len() == size as usize);
    (received, mine().filter_map(|rank| rank.begun).min(), all.and_then(|ends| ends.into_iter().max()))
}

fn parameters(experiment: &Experiment) -> Vec<ParameterFacts> {
    let mut profile = experiment.profile().clone();
    let mut facts = Vec::new();
    for (group, set) in profile.groups() {
        for row in set.table() {
            facts.push(ParameterFacts {
                group: group.to_string(),
                name: row.name.to_string(),
                value: set.get(row.name).map(|v| v.to_string()).unwrap_or_default(),
                default: row.default.to_string(),
                what: row.what.to_string(),
                source: row.source.to_string(),
            });
        }
    }
    facts
}

fn expectations(experiment: &Experiment, report: &Report, lives: &[Life]) -> Vec<Expectation> {
    if experiment.expect.is_empty() {
        return Vec::new();
    }
    let values = report.values();
    experiment
        .expect
        .iter()
        .map(|bound| {
            let value = match flow_key(&bound.key) {
                // If several flows have this name, the slowest one counts, and all must have finished.
                Some((name, field)) => experiment.message_named(name).and_then(|which| {
                    let times = which.into_iter().map(|i| {
                        let end = if field == "received_us" { lives[i].received } else { lives[i].finished };
                        Some((end? - lives[i].started?).as_us())
                    });
                    times.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
                }),
                None => values.get(&bound.key).copied().flatten(),
            };
            Expectation { key: bound.key.clone(), bound: bound.text.clone(), value, met: bound.met(value) }
        })
        .collect()
}

/// The process's peak resident memory so far.
fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
