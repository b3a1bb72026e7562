//! Writes a run as a trace for Perfetto (<https://ui.perfetto.dev>) and Chrome's `about:tracing`. The format is
//! Chrome's "JSON Array Format": one event per line, with times in microseconds of simulated time.

use crate::facts::flow_rows;
use crate::facts::services::replica_name;
use crate::run::Outcome;
use serde_json::{Value, json};
use std::io::{self, Write};
use strandway_collective::ScriptedJob;
use strandway_collective::Work;
use strandway_collective::script::{COMPUTE, STREAMS_MAX};
use strandway_fabric::Measurements;
use strandway_fabric::requests::ServiceTimes;
use strandway_proto::RankTimes;
use strandway_proto::units::Time;
use strandway_report::Report;
use strandway_scenario::Experiment;
use strandway_serving::Service;

/// Limit on the flows of a trace: ours. Perfetto needs some seconds for a million events.
const FLOWS_MAX: usize = 200_000;

/// Processes of a trace, in the order of display; jobs follow after these.
const FAULTS: u32 = 1;
const FABRIC: u32 = 2;
const COLLECTIVES: u32 = 3;
const FLOWS: u32 = 4;
const JOBS: u32 = 5;

/// Limit on the threads of messages that a rank sends and receives at once: ours.
const LANES_MAX: usize = 64;

/// Number of thread ids per rank of a job: one per stream.
const STREAMS: u32 = STREAMS_MAX as u32;

/// The contents of a trace, and what is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traced {
    /// Events that were written.
    pub events: u64,
    /// Flows that were left out because there are more than a trace has.
    pub flows_left_out: u64,
    /// Flows that were left out because the run kept no row for them.
    pub flows_without_rows: u64,
    /// Ranks whose steps were not recorded, because there are too many.
    pub ranks_left_out: u64,
}

/// Writes the steps of ranks, collectives, flows, time series and faults of a run.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write(experiment: &Experiment, outcome: &Outcome, out: &mut dyn Write) -> io::Result<Traced> {
    let (report, measured) = (&outcome.report, &outcome.measurements);
    let mut file = File { out, told: Traced::default() };
    file.out.write_all(b"[")?;
    faults(&mut file, report)?;
    series(&mut file, report)?;
    collectives(&mut file, report)?;
    flows(&mut file, experiment, measured, report)?;
    for (pid, plan) in (JOBS..).zip(&experiment.jobs) {
        let job = experiment.script_of(plan);
        file.process(pid, &format!("job {}", plan.name))?;
        for rank in measured.ranks.iter().filter(|rank| rank.job == job.number) {
            steps(&mut file, pid, job, rank, report.run.simulated_us)?;
        }
    }
    let first = JOBS + experiment.jobs.len() as u32;
    for (pid, (plan, times)) in (first..).zip(experiment.services.iter().zip(&measured.services)) {
        requests(&mut file, pid, &plan.service, times, report.run.simulated_us)?;
    }
    file.out.write_all(b"\n]\n")?;
    file.out.flush()?;
    Ok(file.told)
}

struct File<'a> {
    out: &'a mut dyn Write,
    told: Traced,
}

impl File<'_> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        let before: &[u8] = if self.told.events == 0 { b"\n" } else { b",\n" };
        self.out.write_all(before)?;
        self.told.events += 1;
        write!(self.out, "{event}")
    }

    fn process(&mut self, pid: u32, name: &str) -> io::Result<()> {
        self.event(&json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": name } }))?;
        self.event(&json!({ "ph": "M", "name": "process_sort_index", "pid": pid, "args": { "sort_index": pid } }))
    }

    fn thread(&mut self, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        self.event(&json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": { "name": name } }))?;
        let sort = json!({ "sort_index": tid });
        self.event(&json!({ "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": sort }))
    }

    /// A span of time; spans of one thread must not overlap.
    fn slice(&mut self, (pid, tid): (u32, u32), name: &str, from: f64, until: f64, args: Value) -> io::Result<()> {
        let long = (until - from).max(0.0);
        self.event(&json!({ "ph": "X", "pid": pid, "tid": tid, "name": name, "ts": from, "dur": long, "args": args }))
    }

    /// A span of time that may overlap other spans of its process.
    fn span(&mut self, (pid, id): (u32, u64), name: &str, from: f64, until: f64, args: Value) -> io::Result<()> {
        let category = if pid == FLOWS { "flow" } else { "collective" };
        let event = |phase: &str, at: f64, args: Value| json!({ "ph": phase, "cat": category, "id": id, "pid": pid, "tid": 0, "name": name, "ts": at, "args": args });
        self.event(&event("b", from, args))?;
        self.event(&event("e", until.max(from), json!({})))
    }
}

fn faults(file: &mut File<'_>, report: &Report) -> io::Result<()> {
    if report.faults.is_empty() {
        return Ok(());
    }
    file.process(FAULTS, "faults")?;
    for (tid, fault) in (0..).zip(&report.faults) {
        file.thread(FAULTS, tid, fault.label())?;
        let until = fault.until_us.unwrap_or(report.run.simulated_us).min(report.run.simulated_us);
        file.slice((FAULTS, tid), fault.label(), fault.from_us, until, json!({ "links": fault.links }))?;
    }
    Ok(())
}

/// Goodput, and the utilisation and the longest queue of each group of links.
fn series(file: &mut File<'_>, report: &Report) -> io::Result<()> {
    let Some(series) = &report.curves.series else { return Ok(()) };
    file.process(FABRIC, "fabric")?;
    let mut counter = |name: &str, unit: &str, values: &mut dyn Iterator<Item = f64>| -> io::Result<()> {
        for (step, value) in values.enumerate() {
            let at = series.every_us * step as f64;
            file.event(&json!({ "ph": "C", "pid": FABRIC, "name": name, "ts": at, "args": { unit: value } }))?;
        }
        Ok(())
    };
    counter("goodput", "Gb/s", &mut series.goodput_gbps.iter().copied())?;
    for group in &series.groups {
        counter(&format!("use of {}", group.name), "share", &mut group.utilisation.iter().copied())?;
        let queue = &mut group.queued_max_bytes.iter().map(|v| *v as f64);
        counter(&format!("longest queue of {}", group.name), "B", queue)?;
    }
    Ok(())
}

fn collectives(file: &mut File<'_>, report: &Report) -> io::Result<()> {
    if report.collectives.is_empty() {
        return Ok(());
    }
    file.process(COLLECTIVES, "collectives")?;
    for (id, one) in (0..).zip(&report.collectives) {
        let Some(from) = one.started_us else { continue };
        let until = one.time_us.map_or(report.run.simulated_us, |time| from + time);
        let args = json!({
            "kind": one.kind, "algorithm": one.algorithm, "ranks": one.ranks, "bytes": one.bytes, "bound_us": one.bound_us,
            "finished": one.time_us.is_some(),
        });
        file.span((COLLECTIVES, id), &one.name, from, until, args)?;
    }
    Ok(())
}

fn flows(file: &mut File<'_>, experiment: &Experiment, measured: &Measurements, report: &Report) -> io::Result<()> {
    let rows = flow_rows(experiment, measured);
    file.told.flows_left_out = rows.len().saturating_sub(FLOWS_MAX) as u64;
    file.told.flows_without_rows = report.flows.total.saturating_sub(rows.len() as u64);
    if rows.len() == 0 {
        return Ok(());
    }
    file.process(FLOWS, "flows")?;
    for (id, row) in (0..).zip(rows.take(FLOWS_MAX)) {
        let Some(from) = row.started.map(Time::as_us) else { continue };
        let until = row.finished.map_or(report.run.simulated_us, Time::as_us);
        let args = json!({
            "class": row.class, "profile": row.profile, "bytes": row.bytes, "received_us": row.received.map(Time::as_us),
            "slowdown": row.slowdown, "finished": row.finished.is_some(),
        });
        let name = format!("host{}->host{}", row.source.0, row.destination.0);
        file.span((FLOWS, id), &name, from, until, args)?;
    }
    Ok(())
}

/// Limit on the requests of a service in a trace: ours.
const REQUESTS_MAX: usize = 50_000;

/// The requests of a service, each with its parts below it, and the load of its replicas.
fn requests(file: &mut File<'_>, pid: u32, service: &Service, times: &ServiceTimes, end: f64) -> io::Result<()> {
    file.process(pid, &format!("service {}", service.name))?;
    for (id, request) in (0..).zip(times.requests.iter().take(REQUESTS_MAX)) {
        if request.arrived == Time::NEVER {
            continue;
        }
        let at = |time: Time| if time == Time::NEVER { end } else { time.as_us() };
        let args = json!({
            "input": request.input, "output": request.output, "cached": request.cached, "prefill": request.prefill,
            "decode": request.decode, "finished": request.ended != Time::NEVER,
        });
        file.span((pid, id), &format!("request {id}"), at(request.arrived), at(request.ended), args)?;
        let parts = [
            ("waiting for prefill", request.arrived, request.begun),
            ("prefill", request.begun, request.computed),
            ("KV transfer", request.computed, request.transferred),
            ("waiting for decode", request.transferred, request.joined),
            ("decode", if request.joined == Time::NEVER { request.computed } else { request.joined }, request.ended),
        ];
        for (name, from, until) in parts.into_iter().filter(|(_, from, until)| *from.max(until) != Time::NEVER) {
            file.span((pid, id), name, from.as_us(), until.as_us(), json!({}))?;
        }
    }
    for (at, points) in (0..).zip(&times.load) {
        let name = replica_name(service, at);
        for point in points {
            let mut counter = |what: &str, unit: &str, value: u64| {
                let (name, ts) = (format!("{name}: {what}"), point.at.as_us());
                file.event(&json!({ "ph": "C", "pid": pid, "name": name, "ts": ts, "args": { unit: value } }))
            };
            counter("waiting", "requests", point.waiting.into())?;
            counter("running", "requests", point.running.into())?;
            counter("KV cache", "tokens", point.held)?;
        }
    }
    Ok(())
}

/// One rank of a job, with a thread for each stream.
fn steps(file: &mut File<'_>, pid: u32, job: &ScriptedJob, rank: &RankTimes, end: f64) -> io::Result<()> {
    if rank.steps.is_empty() {
        file.told.ranks_left_out += u64::from(rank.begun.is_some());
        return Ok(());
    }
    let script = job.script(rank.rank);
    let host = job.hosts.get(rank.rank as usize).map_or(0, |host| host.0);
    for (stream, places) in (0..STREAMS).zip(script.streams()) {
        let Some(first) = places.first().map(|&place| &script.steps()[place as usize]) else { continue };
        let does = if first.stream == COMPUTE { "compute" } else { script.kinds()[usize::from(first.kind)].as_str() };
        file.thread(pid, rank.rank * STREAMS + stream, &format!("rank {} on host{host}: {does}", rank.rank))?;
    }
    // Steps of a graph that overlap get threads of their own, behind those of all ranks.
    let mut lanes: Vec<f64> = Vec::new();
    let graph = script.is_graph();
    for kept in &rank.steps {
        let step = &script.steps()[kept.step as usize];
        let until = if kept.ended == Time::NEVER { end } else { kept.ended.as_us() };
        let mut thread = (pid, rank.rank * STREAMS + u32::from(step.stream));
        if graph && script.is_free(step.stream) {
            if matches!(step.work, Work::Compute(_)) {
                continue;
            }
            let begun = kept.begun.as_us();
            let lane = lanes.iter().position(|free| *free <= begun).unwrap_or(lanes.len()).min(LANES_MAX - 1);
            lanes.resize(lanes.len().max(lane + 1), 0.0);
            lanes[lane] = until;
            thread.1 += lane as u32 * job.hosts.len() as u32 * STREAMS;
        }
        let name = &script.kinds()[usize::from(step.kind)];
        file.slice(thread, name, kept.begun.as_us(), until, json!({ "layer": step.layer, "step": kept.step }))?;
    }
    Ok(())
}
