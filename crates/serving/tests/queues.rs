//! Queues whose waiting times are known: a replica that computes one prompt at a time is an M/D/1 queue, and one with
//! `c` places in its batch and steps of equal length is an M/M/c queue.

use std::sync::Arc;
use strandway_fabric::requests::RequestTimes;
use strandway_proto::HostId;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Rate, Span, Time};
use strandway_serving::batch::Progress;
use strandway_serving::plan::{Slo, Transfer};
use strandway_serving::router::Policy;
use strandway_serving::timing::{Measured, ServerLinks, Shape, Table, Timing};
use strandway_serving::{Arrivals, Batcher, Limits, Replica, Request, Role, Service, formula};

const REQUESTS: usize = 100_000;

/// A number from an exponential distribution with mean 1.
fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.unit()).ln()
}

/// Requests of a Poisson process, `gap` ps apart on average.
fn poisson(gap: f64, input: u32, seed: u64) -> Vec<Request> {
    let mut random = Random::new(seed, StreamKind::Workload, 0);
    let mut at = 0.0;
    let one = |_| {
        at += exponential(&mut random) * gap;
        Request { at: Time(at as u64), input, output: 1, hashes: Arc::from([]) }
    };
    (0..REQUESTS).map(one).collect()
}

/// A service of one replica that does both phases, on one host.
fn service(limits: Limits, prefill: Span, requests: Vec<Request>) -> Service {
    let row = |decode| Measured { decode, requests: 1, tokens: 100, time: prefill };
    Service {
        name: "queue".into(),
        hosts: vec![HostId(0)],
        servers: vec![0],
        replicas: vec![Replica {
            role: Role::Both,
            shape: Shape { gpus: 1, tp: 1, stages: 1 },
            limits,
            stages: vec![vec![0]],
            lanes: vec![0],
            exchange: None,
        }],
        prefill: 1,
        timing: Timing::Table(Table::new(&[row(false), row(true)])),
        kv_bytes: 1,
        activation: 1,
        inside: ServerLinks { rate: Rate::from_gbps(1), latency: Span(1) },
        transfer: Transfer { pull: false, groups: 1 },
        policy: Policy::Load,
        router: 0,
        requests,
        arrivals: Arrivals::Open,
        slo: Slo { ttft: Span(1), tbt: Span(1) },
        sample: Span(u64::MAX / 2),
        first_message: 0,
        width: 1 << 20,
        first_channel: 0,
        profile: 0,
        connections: 1,
        order: 0,
    }
}

fn check(what: &str, load: f64, wanted: f64, found: f64) {
    let off = found / wanted - 1.0;
    println!("{what:<8} load {load:.2}  theory {wanted:8.4}  measured {found:8.4}  {:+.2} %", 100.0 * off);
    assert!(off.abs() < 0.03, "{what} at load {load}: {found} instead of {wanted}");
}

/// Mean wait: `load / (2 (1 - load))` service times.
#[test]
fn one_prompt_at_a_time_is_m_d_1() {
    let limits = Limits { budget: 100, batch: 1 << 20, tokens: 1 << 40, block: 16, chunked: false };
    let prefill = Span::from_us(1000);
    for (load, seed) in [(0.3, 1), (0.5, 2), (0.7, 3), (0.8, 5)] {
        let requests = poisson(prefill.0 as f64 / load, 100, seed);
        let service = service(limits, prefill, requests);
        let times = formula::run(&service, &|_, _, _| (Span::ZERO, Span::ZERO), Time(u64::MAX - 1));
        let waits: Vec<f64> = times.requests.iter().map(|r: &RequestTimes| r.begun.since(r.arrived).as_us()).collect();
        assert!(times.requests.iter().all(|request| request.ended != Time::NEVER));
        let mean = waits.iter().sum::<f64>() / waits.len() as f64 / prefill.as_us();
        check("M/D/1", load, load / (2.0 * (1.0 - load)), mean);
    }
}

/// Mean wait of an M/M/c queue in mean service times, by Erlang's C formula.
fn erlang(places: u32, load: f64) -> f64 {
    let offered = load * f64::from(places);
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 0..places {
        sum += term;
        term *= offered / f64::from(k + 1);
    }
    let waits = term / (1.0 - load);
    waits / (sum + waits) / (f64::from(places) * (1.0 - load))
}

/// A batch of `c` places, answers of exponential lengths, and steps of one unit of time each.
#[test]
fn a_batch_of_equal_steps_is_m_m_c() {
    const TOKENS: f64 = 200.0;
    for (places, load, seed) in [(1, 0.5, 1), (4, 0.7, 2), (16, 0.8, 3)] {
        let limits = Limits { budget: 1 << 20, batch: places, tokens: 1 << 40, block: 16, chunked: true };
        let mut replica = Batcher::new(Role::Both, limits);
        let mut random = Random::new(seed, StreamKind::Workload, 1);
        let gap = TOKENS / load / f64::from(places);
        let (mut next, mut arrived, mut now) = (exponential(&mut random) * gap, Vec::new(), 0.0f64);
        let (mut waits, mut began, mut lengths) = (0.0, 0usize, 0.0);
        while began < REQUESTS {
            while next <= now && arrived.len() < REQUESTS {
                let output = (exponential(&mut random) * TOKENS + 0.5) as u32;
                lengths += f64::from(output.max(1));
                replica.push(arrived.len() as u32, 1, output.max(1), Arc::from([]));
                arrived.push(next);
                next += exponential(&mut random) * gap;
            }
            replica.admit();
            let Some(step) = replica.next_step() else {
                now = next;
                continue;
            };
            for part in step.parts.iter().filter(|part| part.prompt > 0) {
                waits += now - arrived[part.request as usize];
                began += 1;
            }
            let ends = replica.finish(&step);
            debug_assert!(ends.iter().all(|end| !matches!(end, Progress::Computed(r) if *r as usize >= arrived.len())));
            now += 1.0;
        }
        // Half a step passes on average until a request can join a batch that computes.
        let service = lengths / arrived.len() as f64;
        let busy = load.min(1.0);
        let load = load * service / TOKENS;
        let wanted = erlang(places, load) + 0.5 * busy / service;
        check(&format!("M/M/{places}"), load, wanted, waits / began as f64 / service);
    }
}
