//! Facts of runs: a report from the measurements of a run, and its flows one by one.

mod aggregation;
mod capacity;
mod choice;
mod collective_causes;
mod collectives;
mod cost;
mod evs;
mod flow_rows;
mod flows;
mod job;
mod life;
mod links;
mod long_links;
pub(crate) mod map;
mod parts;
mod seen;
mod series;
pub(crate) mod services;
mod unlisted;
mod why;

use life::{Life, life};
use seen::{Alones, Seen};
use strandway_fabric::Measurements;
use strandway_fabric::measure::End;
use strandway_proto::units::Time;
use strandway_report::numbers::count;
use strandway_report::spread::{cdf, spread};
use strandway_report::{
    ClassFacts, CodedPackets, CurveFacts, Expectation, FabricFacts, FaultFacts, HeadFacts, LoadFacts, NAMESPACES,
    Packets, ParameterFacts, Report, RunFacts, SIMULATED, Spread, SwitchFacts, TimeFacts,
};
use strandway_scenario::{Experiment, FaultNote, flow_key};
use unlisted::Crowd;

pub use flow_rows::flow_rows;

/// The report of a run that took `wall` seconds.
pub fn report(experiment: &Experiment, measured: &Measurements, wall: f64) -> Report {
    report_beside(experiment, measured, wall, &[])
}

/// The report of a run that took `wall` seconds. `singly` has the mean time of each job's iterations with the job
/// alone on the fabric, in microseconds.
pub(crate) fn report_beside(
    experiment: &Experiment,
    measured: &Measurements,
    wall: f64,
    singly: &[Option<f64>],
) -> Report {
    let plan = &experiment.plan;
    let lives: Vec<Life> =
        experiment.messages.iter().map(|m| life(m, &experiment.plan.flows, &measured.flows)).collect();
    // Messages without entries in the plan. If their times are not known one by one, percentiles come from
    // histograms, and values that need the times of each message are absent.
    let crowd = Crowd::new(experiment, measured);
    let alone = Alones::of(experiment);
    let seen = Seen::all(experiment, &lives, crowd.rows());
    let unfinished = seen().filter(|m| m.life.finished.is_none()).count();
    let mut times: Vec<f64> = seen().filter_map(|m| Some(m.life.completion()?.as_us())).collect();
    times.sort_unstable_by(f64::total_cmp);
    let received: Vec<f64> = seen().filter_map(|m| Some((m.life.received? - m.life.started?).as_us())).collect();
    let messages = seen().count();
    let not_received = messages - received.len();
    let classes = (0..experiment.classes.len()).map(|class| class_facts(experiment, &crowd, &seen, &alone, class));
    let (fct_us, fct_cdf) = match crowd.is_empty() {
        true => (spread(times.clone(), unfinished), cdf(&times, messages)),
        false => unlisted::spread(&times, unfinished as u64, crowd.all()),
    };
    let collectives = collectives::collectives(experiment, measured, &lives);
    let mut report = Report {
        head: HeadFacts {
            format: 1,
            version: env!("CARGO_PKG_VERSION").to_string(),
            scenario: experiment.name.clone(),
            description: experiment.description.clone(),
            profile: experiment.profile().name.clone(),
            seed: plan.seed,
            digest: format!("{:016x}", measured.digest),
            world: SIMULATED.to_string(),
            end: match measured.end {
                End::Finished => "finished",
                End::TimeLimit => "time limit",
                End::Interrupted => "interrupted",
                End::Stalled => "stalled",
            }
            .to_string(),
        },
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
        flows: flows::flows(experiment, measured, &lives, &crowd),
        curves: CurveFacts {
            fct_cdf,
            paths: links::paths(experiment, measured),
            series: series::series(experiment, measured),
            map: map::facts(experiment, measured),
        },
        times: TimeFacts {
            fct_us,
            received_us: if crowd.is_empty() { spread(received, not_received) } else { Spread::default() },
            slowdown: if crowd.is_empty() {
                spread(slowdowns(&seen, &alone, |_| true), unfinished)
            } else {
                Spread::default()
            },
            goodput_gbps: flows::goodput(experiment, measured, &lives, &crowd),
        },
        packets: packets(experiment, measured),
        classes: classes.collect(),
        load: LoadFacts {
            links: links::groups(experiment, measured),
            hottest: links::hottest(experiment, measured),
            long_links: long_links::facts(experiment, measured),
        },
        choices: choice::facts(measured),
        ev_events: evs::facts(measured),
        switch: aggregation::facts(experiment, measured),
        jobs: job::facts(experiment, measured, singly),
        services: services::services(experiment, measured, &collectives),
        parameters: parameters(experiment),
        other_profiles: plan.profiles[1..].iter().map(|p| p.name.clone()).collect(),
        collectives,
        why: why::why(experiment, measured),
        expect: Vec::new(),
        approximate: None,
        faults: experiment.faults.iter().map(|note| fault(note, measured)).collect(),
        fault_costs: Vec::new(),
        notes: experiment.notes.iter().cloned().chain(collectives::deaths(experiment, measured)).collect(),
        origin: experiment.origin.clone(),
    };
    report.notes.extend(report.switch.as_ref().and_then(SwitchFacts::note));
    report.notes.extend(needless(&report.packets));
    report.expect = expectations(experiment, &report, &lives);
    report
}

/// Completion times of these messages as multiples of those alone in the fabric.
fn slowdowns<I: Iterator<Item = Seen>>(
    seen: &impl Fn() -> I,
    alone: &Alones<'_>,
    keep: impl Fn(&Seen) -> bool,
) -> Vec<f64> {
    seen().filter(|m| keep(m)).filter_map(|m| Some(m.life.completion()?.as_us() / alone.us(&m))).collect()
}

/// The facts of one class of flows.
fn class_facts<I: Iterator<Item = Seen>>(
    experiment: &Experiment,
    crowd: &Crowd<'_>,
    seen: &impl Fn() -> I,
    alone: &Alones<'_>,
    class: usize,
) -> ClassFacts {
    let mine = |m: &Seen| usize::from(m.class) == class;
    let times: Vec<f64> = seen().filter(mine).filter_map(|m| Some(m.life.completion()?.as_us())).collect();
    let total = seen().filter(mine).count();
    let unfinished = total - times.len();
    let without = || crowd.of_class(class);
    let rows = without().next().is_none();
    ClassFacts {
        name: experiment.classes[class].clone(),
        total: total as u64 + without().map(|p| p.total).sum::<u64>(),
        finished: times.len() as u64 + without().map(|p| p.finished()).sum::<u64>(),
        bytes: seen().filter(mine).map(|m| m.bytes).sum::<u64>() + without().map(|p| p.bytes).sum::<u64>(),
        slowdown: if rows { spread(slowdowns(seen, alone, mine), unfinished) } else { Spread::default() },
        fairness: match rows {
            true => {
                flows::jain(seen().filter(mine).filter_map(|m| Some(m.bytes as f64 / m.life.completion()?.as_us())))
            }
            false => None,
        },
        fct_us: match rows {
            true => spread(times, unfinished),
            false => unlisted::spread(&times, unfinished as u64, without()).0,
        },
    }
}

/// The run's counters of packets.
fn packets(experiment: &Experiment, measured: &Measurements) -> Packets {
    let p = measured.packets;
    Packets {
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
        retransmitted_share: flows::share(p.retransmitted, p.sent),
        payload_link_bytes: flows::payload_link_bytes(experiment, measured),
        coded: CodedPackets {
            chunks: p.chunks,
            repairs: p.repairs,
            copies: p.copies,
            chunks_arrived: p.chunks_arrived,
            rebuilt: p.rebuilt,
        },
        fragments: p.fragments,
        fragments_arrived: p.fragments_arrived,
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

/// The report of a run between real nodes that took `wall` seconds. Each of `notes` names a difference from a
/// simulated run.
pub fn report_of_namespaces(experiment: &Experiment, measured: &Measurements, wall: f64, notes: &[String]) -> Report {
    let mut report = self::report(experiment, measured, wall);
    report.head.world = NAMESPACES.to_string();
    report.head.digest = String::new();
    report.notes.extend(notes.iter().map(|note| format!("not as simulated: {note}")));
    report
}

fn fabric(experiment: &Experiment) -> FabricFacts {
    let topology = &experiment.plan.topology;
    let ports = &experiment.plan.ports;
    let planes = u32::from(topology.planes());
    let (cost, single_plane) = cost::both(topology);
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
        tables: cost::tables(topology),
    }
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

/// The bounds of a report that has no flows.
pub(crate) fn expected(experiment: &Experiment, report: &Report) -> Vec<Expectation> {
    expectations(experiment, report, &[])
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
                        let life = lives.get(i)?;
                        let end = if field == "received_us" { life.received } else { life.finished };
                        Some((end? - life.started?).as_us())
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
