//! The facts of inference services: percentiles, bounds, and what the slowest requests waited for.

use super::collective_causes::{Causes, causes};
use strandway_fabric::Measurements;
use strandway_fabric::requests::{RequestTimes, ServiceTimes};
use strandway_fabric::tally::{Histogram, Waited};
use strandway_proto::account::Spent;
use strandway_proto::units::{Span, Time};
use strandway_report::numbers::{percent, us};
use strandway_report::spread::{place, spread};
use strandway_report::{
    CollectiveFacts, FormulaFacts, MessageFacts, ReplicaFacts, RequestRow, ServiceFacts, ServicePart, SloFacts, Spread,
};
use strandway_scenario::{Experiment, ServicePlan};
use strandway_serving::plan::{Class, Slo};
use strandway_serving::{Role, Service, formula};

/// The share of requests that count as the slowest ones.
const SLOWEST: f64 = 0.01;

/// The facts of all services.
pub(super) fn services(
    experiment: &Experiment,
    measured: &Measurements,
    collectives: &[CollectiveFacts],
) -> Vec<ServiceFacts> {
    // Without a run, a report has the names of all values.
    let nothing = |plan: &ServicePlan| ServiceTimes {
        requests: plan.service.requests.iter().take(1).map(|r| RequestTimes::new(r.input, r.output)).collect(),
        load: vec![Vec::new(); plan.service.replicas.len()],
        ..ServiceTimes::default()
    };
    let one = |(number, plan): (usize, &ServicePlan)| match measured.services.get(number) {
        Some(times) => facts(experiment, measured, number, plan, times, collectives),
        None => facts(experiment, measured, number, plan, &nothing(plan), collectives),
    };
    experiment.services.iter().enumerate().map(one).collect()
}

/// The time of a weight update: that of the longest of its broadcasts.
fn update(experiment: &Experiment, service: &Service, collectives: &[CollectiveFacts]) -> Option<f64> {
    let prefix = format!("{}-weights-", service.name);
    let mine = |name: &str| name.strip_prefix(&prefix).is_some_and(|rail| rail.parse::<u32>().is_ok());
    let started = experiment.collectives.iter().any(|plan| mine(&plan.name));
    let times = collectives.iter().filter(|one| mine(&one.name)).map(|one| one.time_us);
    let longest = times.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp);
    longest.filter(|_| started)
}

/// The spread of a time of requests. A request without it counts as longer than all others.
fn of(times: &ServiceTimes, what: impl Fn(&RequestTimes) -> Option<Span>) -> Spread {
    let values: Vec<f64> = times.requests.iter().filter_map(|request| Some(what(request)?.as_us())).collect();
    let missing = times.requests.len() - values.len();
    spread(values, missing)
}

/// The spread of a histogram.
pub(super) fn of_histogram(histogram: &Histogram) -> Spread {
    let nth = |share: f64| histogram.nth(place(histogram.len(), share)).map(Span::as_us);
    Spread {
        min: histogram.min().map(Span::as_us),
        mean: histogram.mean().map(|ps| ps / 1e6),
        p50: nth(0.5),
        p90: nth(0.9),
        p99: nth(0.99),
        p999: nth(0.999),
        max: histogram.max().map(Span::as_us),
        unfinished: 0,
    }
}

/// Did a request meet both bounds?
fn met(request: &RequestTimes, slo: &Slo) -> bool {
    request.ttft().is_some_and(|time| time <= slo.ttft) && request.tbt().is_some_and(|time| time <= slo.tbt)
}

/// The time for which a KV cache was awaited: from the end of the prompt's computation until the cache had arrived.
fn transfer(request: &RequestTimes) -> Option<Span> {
    RequestTimes::between(request.computed, request.transferred)
}

fn facts(
    experiment: &Experiment,
    measured: &Measurements,
    number: usize,
    plan: &ServicePlan,
    times: &ServiceTimes,
    collectives: &[CollectiveFacts],
) -> ServiceFacts {
    let service = &plan.service;
    let requests = &times.requests;
    let count = |of: &dyn Fn(&&RequestTimes) -> bool| requests.iter().filter(of).count() as u64;
    let ended = count(&|request| request.ended != Time::NEVER);
    let good = count(&|request| met(request, &service.slo));
    let first = requests.iter().map(|request| request.arrived).min().unwrap_or_default();
    let last = requests.iter().map(|request| request.ended).filter(|at| *at != Time::NEVER).max();
    let seconds = last.map(|last| last.since(first).as_us() / 1e6).filter(|seconds| *seconds > 0.0);
    let tokens: u64 = requests.iter().filter(|r| r.ended != Time::NEVER).map(|r| u64::from(r.output)).sum();
    let prompts: u64 = requests.iter().map(|request| u64::from(request.input)).sum();
    let cached: u64 = requests.iter().map(|request| u64::from(request.cached)).sum();
    let per_second = |n: f64| seconds.map(|seconds| n / seconds);
    let whole = ended == requests.len() as u64 && ended > 0;
    let mut facts = ServiceFacts {
        name: service.name.clone(),
        requests: requests.len() as u64,
        ended,
        gpus: service.gpus(),
        ttft_us: of(times, RequestTimes::ttft),
        tbt_us: of_histogram(&times.gaps),
        tpot_us: of(times, RequestTimes::tbt),
        whole_us: of(times, RequestTimes::whole),
        computed_us: of(times, |request| RequestTimes::between(request.arrived, request.computed)),
        transfer_us: if service.replicas[0].role == Role::Both { Spread::default() } else { of(times, transfer) },
        formula: if whole { by_formula(experiment, service) } else { FormulaFacts::default() },
        slo: SloFacts {
            slo_ttft_us: service.slo.ttft.as_us(),
            slo_tbt_us: service.slo.tbt.as_us(),
            slo_share: (!requests.is_empty()).then(|| good as f64 / requests.len() as f64),
            goodput_per_s: per_second(good as f64),
        },
        requests_per_s: per_second(ended as f64),
        tokens_per_s_gpu: per_second(tokens as f64 / f64::from(service.gpus().max(1))),
        cached_share: (prompts > 0).then(|| cached as f64 / prompts as f64),
        kv_bytes: requests.iter().map(|request| request.cache_bytes).sum(),
        update_us: update(experiment, service, collectives),
        messages: messages(experiment, measured, number),
        replicas: (0..).zip(&times.load).map(|(at, points)| replica(service, at, points)).collect(),
        rows: if experiment.plan.rows && experiment.rows_wanted { rows(requests) } else { Vec::new() },
        ..ServiceFacts::default()
    };
    why(experiment, measured, requests, &mut facts);
    facts
}

/// The times on a network that is a formula.
fn by_formula(experiment: &Experiment, service: &Service) -> FormulaFacts {
    let alone = experiment.ideal_fcts();
    let alone = &alone[usize::from(service.profile)];
    let delay = |from, to, bytes| (alone.transfer(from, to, bytes), alone.completion(from, to, bytes));
    let times = formula::run(service, &delay, experiment.plan.time_limit);
    let good = times.requests.iter().filter(|request| met(request, &service.slo)).count();
    FormulaFacts {
        ttft_us: of(&times, RequestTimes::ttft),
        tbt_us: of_histogram(&times.gaps),
        whole_us: of(&times, RequestTimes::whole),
        transfer_us: if service.replicas[0].role == Role::Both { Spread::default() } else { of(&times, transfer) },
        slo_share: (!times.requests.is_empty()).then(|| good as f64 / times.requests.len() as f64),
    }
}

fn messages(experiment: &Experiment, measured: &Measurements, number: usize) -> Vec<MessageFacts> {
    let one = |(class, name): (Class, &str)| {
        let tally = experiment.service_tally(number, class, measured)?;
        (tally.started > 0).then(|| MessageFacts {
            name: name.to_string(),
            posted: tally.started,
            finished: tally.finished,
            time_us: of_histogram(&tally.completion),
        })
    };
    Class::ALL.into_iter().filter_map(one).collect()
}

/// The name of a replica in reports.
pub(crate) fn replica_name(service: &Service, at: u32) -> String {
    match service.replicas[at as usize].role {
        Role::Both => format!("replica-{at}"),
        Role::Prefill => format!("prefill-{at}"),
        Role::Decode => format!("decode-{}", at - service.prefill),
    }
}

fn replica(service: &Service, at: u32, points: &[strandway_fabric::requests::LoadPoint]) -> ReplicaFacts {
    let plan = &service.replicas[at as usize];
    let share = |held: u64| held as f64 / plan.limits.tokens.max(1) as f64;
    ReplicaFacts {
        name: replica_name(service, at),
        gpus: plan.shape.gpus * plan.shape.stages,
        waiting_max: points.iter().map(|point| point.waiting).max().unwrap_or(0),
        running_max: points.iter().map(|point| point.running).max().unwrap_or(0),
        held_max: points.iter().map(|point| share(point.held)).fold(0.0, f64::max),
        at_us: points.iter().map(|point| point.at.as_us()).collect(),
        waiting: points.iter().map(|point| point.waiting).collect(),
        running: points.iter().map(|point| point.running).collect(),
        held: points.iter().map(|point| share(point.held)).collect(),
    }
}

/// All requests.
fn rows(requests: &[RequestTimes]) -> Vec<RequestRow> {
    let at = |time: Time| (time != Time::NEVER).then(|| time.as_us());
    let row = |(number, request): (u32, &RequestTimes)| RequestRow {
        request: number,
        input: request.input,
        output: request.output,
        cached: request.cached,
        prefill: request.prefill,
        decode: request.decode,
        arrived_us: request.arrived.as_us(),
        begun_us: at(request.begun),
        computed_us: at(request.computed),
        reserved_us: at(request.reserved),
        transferred_us: at(request.transferred),
        joined_us: at(request.joined),
        first_us: at(request.first),
        ended_us: at(request.ended),
        gap_max_us: request.gap_max.as_us(),
        kv_bytes: request.cache_bytes,
    };
    (0..).zip(requests).filter(|(_, request)| request.arrived != Time::NEVER).map(row).collect()
}

/// The parts of a request's time to first token; they add up to it.
fn parts(request: &RequestTimes) -> Option<[(&'static str, Span); 7]> {
    request.ttft()?;
    let r = request;
    if r.decode.is_none() {
        let decode = Span::ZERO;
        return Some([
            ("routing", r.queued.since(r.arrived)),
            ("prefill_queue", r.begun.since(r.queued)),
            ("prefill", r.first.since(r.begun)),
            ("decode_memory", decode),
            ("transfer", decode),
            ("decode_queue", decode),
            ("first_step", decode),
        ]);
    }
    let reserved = r.reserved.max(r.computed).min(r.transferred);
    Some([
        ("routing", r.queued.since(r.arrived)),
        ("prefill_queue", r.begun.since(r.queued)),
        ("prefill", r.computed.since(r.begun)),
        ("decode_memory", reserved.since(r.computed)),
        ("transfer", r.transferred.since(reserved)),
        ("decode_queue", r.joined.since(r.transferred)),
        ("first_step", r.first.since(r.joined)),
    ])
}

/// Finds the parts of the slowest requests' time to first token.
fn why(experiment: &Experiment, measured: &Measurements, requests: &[RequestTimes], facts: &mut ServiceFacts) {
    let mut slowest: Vec<&RequestTimes> = requests.iter().filter(|request| request.ttft().is_some()).collect();
    slowest.sort_by_key(|request| std::cmp::Reverse(request.ttft()));
    slowest.truncate(((slowest.len() as f64 * SLOWEST).ceil() as usize).max(1));
    let names = ["routing", "prefill_queue", "prefill", "decode_memory", "transfer", "decode_queue", "first_step"];
    let (mut sums, mut all) = ([0.0; 7], 0.0);
    let (mut spent, mut waited) = (Spent::default(), Waited::default());
    for request in &slowest {
        for (sum, (_, span)) in sums.iter_mut().zip(parts(request).into_iter().flatten()) {
            *sum += span.as_us();
        }
        all += request.ttft().map_or(0.0, Span::as_us);
        spent += request.spent;
        waited.merge(&request.waited);
    }
    let known = all > 0.0;
    let each = slowest.len() as f64;
    facts.parts = names
        .iter()
        .zip(sums)
        .map(|(name, sum)| ServicePart {
            name: (*name).to_string(),
            us: known.then_some(sum / each),
            share: known.then_some(sum / all),
        })
        .collect();
    let found = causes(experiment, measured, &spent, &waited);
    facts.shares =
        Causes::names().map(|name| (name.to_string(), found.as_ref().map(|found| found.share(name)))).collect();
    facts.link = found.as_ref().and_then(|found| found.link.clone());
    if known {
        facts.why = words(facts, all / each, found.as_ref());
    }
}

/// The sentence: the main parts, and what the KV transfers of these requests waited for.
fn words(facts: &ServiceFacts, mean: f64, found: Option<&Causes>) -> String {
    let mut parts: Vec<&ServicePart> = facts.parts.iter().collect();
    parts.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
    let share = |value: f64| percent(value).replace(".0 %", " %");
    let told = parts.iter().filter(|part| part.share.is_some_and(|share| share >= 0.02)).take(4);
    let told: Vec<String> =
        told.map(|part| format!("{} {}", share(part.share.unwrap_or(0.0)), part.summary())).collect();
    let mut sentence = format!(
        "{}: the slowest 1 % of requests had their first token after {}: {}",
        facts.name,
        us(Some(mean)),
        told.join(", ")
    );
    let transfer = facts.parts.iter().find(|part| part.name == "transfer").and_then(|part| part.share).unwrap_or(0.0);
    if let Some(found) = found.filter(|_| transfer >= 0.02) {
        sentence.push_str(&format!("; the messages of their KV caches spent {}", found.words().join(", ")));
    }
    sentence
}
