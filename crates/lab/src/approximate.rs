//! Jobs of large clusters, approximately: smaller runs stand for the whole one, and their times are extrapolated.
//!
//! Three runs divide bytes and computation by different numbers. Multiplied by its divisor `d`, the time of a chain of
//! steps is `F + L d`: the part `F` that grows with bytes and computation, and latencies `L`, which are not divided. An
//! iteration lasts for its longest chain, so its time is a convex function of `d`, which never decreases. The line
//! through the runs with the smallest divisors gives the value at `d = 1`. Convex functions lie above it, and below
//! the time of the run with the smallest divisor: the difference is the error, if the lines through other pairs of
//! runs do not differ by more. The run with the largest divisor is repeated with another seed, which shows how much
//! times differ by chance. The method is ours.
//!
//! Where smaller runs cannot stand for the whole one, or leave a large error that the whole run is short enough to
//! avoid, the whole run is simulated, and the report says so.

use crate::run::run as simulate;
use crate::{Estimate, Experiment, Outcome, Scenario, check, facts};
use std::sync::Arc;
use std::time::Instant;
use strandway_import::Problems;
use strandway_report::approximate::ITERATION;
use strandway_report::numbers::percent;
use strandway_report::parts::place_of;
use strandway_report::{ApproximateFacts, ApproximateFigure, HeadFacts, JobFacts, OperationFacts, Report};
use strandway_scenario::Reduction;
use strandway_sim::Control;

/// Runs with fewer packet hops are simulated as a whole: ours.
const SMALL: u64 = 100_000_000;
/// Packet hops of the first three runs together: ours.
const BUDGET: u64 = 150_000_000;
/// Packet hops up to which runs are repeated with more bytes, if the error is large: ours.
const BUDGET_MAX: u64 = 4_000_000_000;
/// An error above this share of an iteration is large: ours.
const ERROR: f64 = 0.01;
/// The largest divisor, and the divisor of the run by which the work is estimated: ours.
const DIVISOR_MAX: u64 = 512;
/// The time of a kind of collective is left out of the report if its error is a larger share of it: ours.
const UNKNOWN: f64 = 0.1;
/// Replicas are left out by at most this factor: ours.
const REPLICAS_MAX: u32 = 64;

/// The smaller runs that stand for a scenario.
pub struct Approximation {
    scenario: Scenario,
    base: Reduction,
    /// The divisors that the scenario names, if it does.
    given: Vec<u64>,
    divisor: u64,
    /// About the packet hops of the whole run, without rails and replicas that are left out.
    hops: u64,
    /// Why the whole run is simulated, if it is.
    whole: Option<String>,
}

impl Approximation {
    /// Chooses the runs for a scenario. If smaller runs cannot stand for it, that is the whole run.
    ///
    /// # Errors
    /// The problems of the scenario.
    pub fn of(scenario: &Scenario) -> Result<Approximation, Problems> {
        let trial = |rails: u32, replicas: u32| {
            let reduction = Reduction { divisor: DIVISOR_MAX, rails, replicas };
            check(&scenario.reduced(reduction)).map(|experiment| (reduction, experiment))
        };
        let rails = scenario.rails();
        let replicas = || std::iter::successors(Some(REPLICAS_MAX), |fewer| Some(fewer / 2).filter(|fewer| *fewer > 0));
        let found = replicas().find_map(|replicas| trial(rails, replicas).ok()).filter(|_| rails > 1);
        let (base, experiment) = match found.map_or_else(|| trial(1, 1), Ok) {
            Ok(chosen) => chosen,
            Err(problems) => return Approximation::whole(scenario, problems),
        };
        let hops = Estimate::of(&experiment).packet_hops.saturating_mul(DIVISOR_MAX);
        // Three runs, by d, 1.5 d and 2 d: 13/6 of the first one.
        let divisor = (hops / 6 * 13).div_ceil(BUDGET).clamp(4, DIVISOR_MAX);
        let given = scenario.approximate().unwrap_or_default();
        let whole = given.is_empty() && hops.saturating_mul(base.hosts().into()) < SMALL;
        let divisor = if whole { 1 } else { divisor };
        let base = if whole { Reduction::NONE } else { base };
        let divisor = given.first().copied().unwrap_or(divisor);
        let whole = whole.then(|| "it is short".to_string());
        Ok(Approximation { scenario: scenario.clone(), base, given, divisor, hops, whole })
    }

    /// The whole run of a scenario for which smaller runs cannot stand; `problems` say why.
    fn whole(scenario: &Scenario, problems: Problems) -> Result<Approximation, Problems> {
        let plain = plain(scenario);
        let hops = Estimate::of(&check(&plain).map_err(|_| problems.clone())?).packet_hops;
        let why: Vec<String> =
            problems.0.into_iter().map(|problem| format!("{} {}", problem.key, problem.what)).collect();
        let (base, whole) = (Reduction::NONE, Some(why.join("; ")));
        Ok(Approximation { scenario: plain, base, given: Vec::new(), divisor: 1, hops, whole })
    }

    /// The packet hops and the time of all first runs together, and the memory of the largest one.
    ///
    /// # Errors
    /// The problems of the scenario.
    pub fn estimate(&self) -> Result<Estimate, Problems> {
        let runs = self.samples().into_iter();
        let all =
            runs.map(|sample| Ok(Estimate::of(&check(&self.reduced(&sample))?))).collect::<Result<Vec<_>, _>>()?;
        Ok(Estimate::together(&all, 1))
    }

    /// Its runs in one sentence.
    pub fn text(&self) -> String {
        match &self.whole {
            Some(why) => format!("the whole run is simulated, since {why}"),
            None => format!(
                "{} runs, with 1/{} of the bytes and less; one rail of {}, one replica of each {}",
                self.samples().len(),
                self.divisor,
                self.base.rails,
                self.base.replicas
            ),
        }
    }

    /// Runs them, and extrapolates. `watch` is called before each run; its result lives as long as the run. The second
    /// value is the experiment of the largest run, to which the measurements of the outcome belong.
    ///
    /// # Errors
    /// The problems of the scenario.
    pub fn run<W>(
        mut self,
        threads: Option<usize>,
        watch: impl Fn(&Experiment, Arc<Control>) -> W,
    ) -> Result<(Arc<Experiment>, Outcome), Problems> {
        let began = Instant::now();
        let mut hops = 0;
        loop {
            let mut runs = Vec::new();
            for sample in self.samples() {
                let mut experiment = check(&self.reduced(&sample))?;
                experiment.plan.threads = threads.unwrap_or(experiment.plan.threads);
                experiment.plan.capture = None;
                let control = Arc::new(Control::new());
                let watcher = watch(&experiment, Arc::clone(&control));
                let outcome = simulate(&experiment, &control);
                drop(watcher);
                hops += outcome.report.run.packet_hops;
                let ended = outcome.report.head.end == "finished";
                runs.push(Run { sample, experiment, outcome });
                if !ended {
                    break;
                }
            }
            let ended = runs.iter().all(|run| run.outcome.report.head.end == "finished");
            let facts = self.facts(&runs, hops);
            let error = facts.figures.iter().filter(|figure| figure.name == ITERATION);
            let error = error.map(|figure| figure.share(figure.us)).fold(0.0, f64::max);
            if ended && self.given.is_empty() && error > ERROR && self.refine() {
                continue;
            }
            return Ok(self.finish(runs, facts, began.elapsed().as_secs_f64()));
        }
    }

    /// Chooses runs with smaller errors, or the whole run. False if they are not affordable.
    fn refine(&mut self) -> bool {
        let whole = self.hops.saturating_mul(self.base.hosts().into());
        match self.divisor {
            1 => false,
            2 if whole < BUDGET_MAX => {
                self.whole = Some(format!("smaller runs leave an error of more than {}", percent(ERROR)));
                (self.base, self.divisor) = (Reduction::NONE, 1);
                true
            }
            divisor => {
                let next = (divisor / 4).max(2);
                let affordable = next < divisor && self.hops / next * 3 < BUDGET_MAX;
                self.divisor = if affordable { next } else { divisor };
                affordable
            }
        }
    }

    /// The scenario of a run.
    fn reduced(&self, sample: &Sample) -> Scenario {
        if sample.divisor == 1 {
            return plain(&self.scenario);
        }
        let mut scenario = self.scenario.reduced(Reduction { divisor: sample.divisor, ..self.base });
        if sample.again {
            let seed = scenario.value("run.seed").and_then(|seed| seed.as_integer()).unwrap_or(1);
            // It cannot fail: any whole number but a negative one is a seed.
            let _ = scenario.set_value("run.seed", seed.wrapping_add(1).max(0).into());
        }
        scenario
    }

    /// Its runs, the largest first. The last one repeats the one before it with another seed.
    fn samples(&self) -> Vec<Sample> {
        let divisors = self.divisors();
        let again =
            divisors.last().filter(|divisor| **divisor > 1).map(|divisor| Sample { divisor: *divisor, again: true });
        divisors.into_iter().map(|divisor| Sample { divisor, again: false }).chain(again).collect()
    }

    fn divisors(&self) -> Vec<u64> {
        match self.divisor {
            _ if !self.given.is_empty() => self.given.clone(),
            1 => vec![1],
            first => vec![first, first * 3 / 2, first * 2],
        }
    }

    fn facts(&self, runs: &[Run], hops: u64) -> ApproximateFacts {
        let jobs = runs.first().map_or(&[][..], |run| &run.outcome.report.jobs);
        let mut figures = Vec::new();
        for (at, job) in jobs.iter().enumerate() {
            let of_job = |again: bool| -> Vec<(u64, &JobFacts)> {
                let runs = runs.iter().filter(|run| run.sample.again == again);
                runs.filter_map(|run| Some((run.sample.divisor, run.outcome.report.jobs.get(at)?))).collect()
            };
            let (all, again) = (of_job(false), of_job(true));
            let mut add = |name: &str, of: &dyn Fn(&JobFacts) -> Option<f64>| {
                if let Some(fit) = fit(&all, of) {
                    let (job, name) = (job.name.clone(), name.to_string());
                    let last = all.last().zip(again.last());
                    let chance = last.and_then(|(one, other)| Some((of(one.1)? - of(other.1)?).abs() * one.0 as f64));
                    let chance_us = chance.unwrap_or(0.0);
                    figures.push(ApproximateFigure { job, name, us: fit.value, error_us: fit.error, chance_us });
                }
            };
            add(ITERATION, &|job| job.iteration_us);
            for part in &job.parts {
                add(&part.name, &|job| job.parts.iter().find(|one| one.name == part.name)?.us);
            }
        }
        ApproximateFacts {
            divisors: runs.iter().filter(|run| !run.sample.again).map(|run| run.sample.divisor).collect(),
            seeds: 1 + u32::from(runs.iter().any(|run| run.sample.again)),
            rails: self.base.rails,
            replicas: self.base.replicas,
            packet_hops: hops,
            whole_packet_hops: self.hops.saturating_mul(self.base.hosts().into()),
            figures,
        }
    }

    fn finish(&self, mut runs: Vec<Run>, facts: ApproximateFacts, wall: f64) -> (Arc<Experiment>, Outcome) {
        let reports: Vec<(Sample, Report)> = runs.iter().map(|run| (run.sample, run.outcome.report.clone())).collect();
        let Run { sample: Sample { divisor, .. }, experiment, mut outcome } = runs.remove(0);
        let report = &mut outcome.report;
        report.origin.scenario = self.scenario.text();
        if let Some(why) = &self.whole {
            report.notes.insert(0, format!("not approximate: the whole run was simulated, since {why}"));
            return (Arc::new(experiment), outcome);
        }
        let all = reports.iter().filter(|(sample, _)| !sample.again).map(|(sample, one)| (sample.divisor, one));
        let all: Vec<(u64, &Report)> = all.collect();
        for (at, job) in report.jobs.iter_mut().enumerate() {
            let all: Vec<(u64, &JobFacts)> =
                all.iter().filter_map(|(divisor, one)| Some((*divisor, one.jobs.get(at)?))).collect();
            *job = whole(&all, self.base);
        }
        // Everything else is that of a smaller run, and says nothing about the whole one.
        let digests = reports.iter().map(|(_, one)| u64::from_str_radix(&one.head.digest, 16).unwrap_or_default());
        let digest = digests.fold(0u64, |all, one| all.rotate_left(7).wrapping_mul(0x100_0000_01b3) ^ one);
        let ended = reports.iter().find(|(_, one)| one.head.end != "finished");
        *report = Report {
            head: HeadFacts {
                digest: format!("{digest:016x}"),
                end: ended.map_or(&report.head.end, |(_, one)| &one.head.end).clone(),
                ..std::mem::take(&mut report.head)
            },
            run: report.run.clone(),
            fabric: report.fabric.clone(),
            jobs: std::mem::take(&mut report.jobs),
            parameters: std::mem::take(&mut report.parameters),
            other_profiles: std::mem::take(&mut report.other_profiles),
            faults: std::mem::take(&mut report.faults),
            notes: std::mem::take(&mut report.notes),
            origin: std::mem::take(&mut report.origin),
            ..Report::default()
        };
        for fault in &mut report.faults {
            fault.from_us *= divisor as f64;
            fault.until_us = fault.until_us.map(|until| until * divisor as f64);
            fault.avoided_after_us = None;
        }
        let fewer = self.base.hosts();
        report.fabric.leaves *= fewer;
        report.fabric.directed_links = 0;
        report.run.hosts *= fewer;
        report.run.wall_s = wall;
        report.run.packet_hops = facts.packet_hops;
        report.run.hops_per_s = facts.packet_hops as f64 / wall.max(1e-9);
        report.run.events = reports.iter().map(|(_, one)| one.run.events).sum();
        report.run.simulated_us = report.jobs.iter().filter_map(|job| job.time_us).fold(0.0, f64::max);
        report.notes.splice(0..0, facts.sentences());
        report.approximate = Some(facts);
        report.expect = facts::expected(&experiment, report);
        (Arc::new(experiment), outcome)
    }
}

/// One of the runs.
#[derive(Clone, Copy)]
struct Sample {
    divisor: u64,
    /// It has another seed than the scenario.
    again: bool,
}

struct Run {
    sample: Sample,
    experiment: Experiment,
    outcome: Outcome,
}

/// The scenario for a plain run.
fn plain(scenario: &Scenario) -> Scenario {
    let mut plain = scenario.clone();
    plain.remove("run.approximate");
    plain
}

/// A time of the whole run, and its error: see the head of this file.
struct Fit {
    value: f64,
    error: f64,
}

/// Extrapolates a time to the whole run. `None` if a run does not have it.
fn fit<'a>(all: &[(u64, &'a JobFacts)], of: impl Fn(&'a JobFacts) -> Option<f64>) -> Option<Fit> {
    let point = |(divisor, job): &(u64, &'a JobFacts)| Some((*divisor as f64, *divisor as f64 * of(job)?));
    let points: Vec<(f64, f64)> = all.iter().map(point).collect::<Option<_>>()?;
    let mut lines = points.iter().enumerate().flat_map(|(at, &(d, time))| {
        points[at + 1..].iter().map(move |&(e, other)| time - (d - 1.0) * (other - time) / (e - d))
    });
    let value = lines.next().or(points.first().map(|(_, time)| *time))?;
    let nearest = points.first().map_or(value, |(_, time)| *time);
    let error = lines.chain([nearest]).map(|other| (other - value).abs()).fold(0.0, f64::max);
    Some(Fit { value: value.max(0.0), error })
}

/// The facts of a job of the whole run. The first run has the smallest divisor.
fn whole(all: &[(u64, &JobFacts)], base: Reduction) -> JobFacts {
    let (first, small) = (all[0].0 as f64, all[0].1);
    let over = |of: &dyn Fn(&JobFacts) -> Option<f64>| fit(all, of).map(|fit| fit.value);
    let mut job = small.clone();
    job.ranks *= base.hosts();
    job.time_us = over(&|job| job.time_us);
    job.iteration_us = over(&|job| job.iteration_us);
    job.iteration_max_us = over(&|job| job.iteration_max_us);
    job.bound_us = over(&|job| Some(job.bound_us)).unwrap_or(0.0);
    job.computed_us = over(&|job| Some(job.computed_us)).unwrap_or(0.0);
    for exposed in &mut job.exposed {
        let of = |job: &JobFacts| job.exposed.iter().find(|one| one.name == exposed.name).map(|one| one.us);
        exposed.us = over(&|job| Some(of(job).unwrap_or(0.0))).unwrap_or(0.0);
    }
    let all_us = job.computed_us + job.exposed.iter().map(|exposed| exposed.us).sum::<f64>();
    job.exposed.iter_mut().for_each(|exposed| exposed.share = exposed.us / all_us.max(1e-9));
    for part in &mut job.parts {
        part.us = over(&|job| job.parts.iter().find(|one| one.name == part.name)?.us);
    }
    let parts: f64 = job.parts.iter().filter_map(|part| part.us).sum();
    job.parts.iter_mut().for_each(|part| part.share = part.us.map(|us| us / parts.max(1e-9)));
    if let (Some(time), true) = (job.time_us, job.iterations_ended > 0) {
        job.bubble = (1.0 - job.computed_us * f64::from(job.iterations_ended) / time).max(0.0);
    }
    // Both are numbers of the whole job, divided by the time of a smaller one.
    let rate = small.iteration_us.zip(job.iteration_us).map(|(small, whole)| small / whole);
    job.mfu = small.mfu.zip(rate).map(|(mfu, rate)| mfu * rate);
    job.tokens_per_second = small.tokens_per_second.zip(rate).map(|(tokens, rate)| tokens * rate);
    // Messages and groups of the same ranks are on each rail and in each replica; groups of all replicas on each rail;
    // groups on servers in each replica.
    let times = |one: &OperationFacts| match place_of(&one.name, false) == place_of("all-reduce", false) {
        true => base.rails,
        false => base.hosts(),
    };
    let messages = |at: usize| operation(all, first, &times, &|job| job.operations.get(at));
    job.operations = (0..small.operations.len()).filter_map(messages).collect();
    let servers = |at: usize| operation(all, first, &|_| base.replicas, &|job| job.on_servers.get(at));
    job.on_servers = (0..small.on_servers.len()).filter_map(servers).collect();
    job.timeline = Vec::new();
    job.lanes = Vec::new();
    job
}

/// The facts of an operation of the whole run.
fn operation(
    all: &[(u64, &JobFacts)],
    first: f64,
    times: &dyn Fn(&OperationFacts) -> u32,
    of: &dyn for<'a> Fn(&'a JobFacts) -> Option<&'a OperationFacts>,
) -> Option<OperationFacts> {
    let small = of(all[0].1)?;
    let over = |time: &dyn Fn(&OperationFacts) -> Option<f64>| {
        let fit = fit(all, |job| time(of(job)?))?;
        (fit.error <= UNKNOWN * fit.value).then_some(fit.value)
    };
    let time_us = over(&|one| one.time_us);
    let bound = over(&|one| Some(one.bound_us));
    let times = |count: u64| count * u64::from(times(small));
    let rate = |rate: Option<f64>, small: Option<f64>, whole: Option<f64>| Some(rate? * first * small? / whole?);
    Some(OperationFacts {
        name: small.name.clone(),
        algorithm: small.algorithm.clone(),
        count: times(small.count),
        ended: times(small.ended),
        bytes: (small.bytes as f64 * first) as u64,
        time_us,
        time_max_us: over(&|one| one.time_max_us),
        bound_us: bound.unwrap_or(0.0),
        busbw: rate(small.busbw, small.time_us, time_us),
        bound_busbw: rate(small.bound_busbw, Some(small.bound_us), bound),
        late_us: over(&|one| one.late_us),
        ..OperationFacts::default()
    })
}
