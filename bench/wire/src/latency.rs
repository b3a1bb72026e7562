//! The round trip of 64 bytes, also with nodes that share cores.

use crate::contest::{Column, Contest, Row};
use crate::network::{self, Network, Role, Wire};
use crate::ours::{MESSAGE, Ours, name_of};
use crate::round_trips::measure;
use crate::{Options, ceiling, tcp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_perf as perf;
use strandway_perf::Stretch;
use strandway_udp::{Protection, Waiting};

const PING: u64 = 64;

/// `pairs` clients on the sender's core and the same number of servers on the receiver's core, each with its own node.
pub(crate) fn nodes(ours: &Ours, pairs: u16, options: &perf::Options) -> Result<Vec<Stretch>, String> {
    let gone = AtomicBool::new(false);
    // A new thread inherits namespace and core from the thread that starts it.
    let together = |work: &(dyn Fn(u16) -> Result<Option<Stretch>, String> + Sync)| {
        std::thread::scope(|scope| {
            let working: Vec<_> = (0..pairs).map(|pair| scope.spawn(move || work(pair))).collect();
            let join = |one: std::thread::ScopedJoinHandle<'_, Result<Option<Stretch>, String>>| {
                one.join().unwrap_or_else(|_| Err("a thread panicked".into()))
            };
            working.into_iter().map(join).collect::<Result<Vec<_>, String>>()
        })
    };
    let serve = |pair: u16| {
        let mut node = ours.node(Role::Receiver, pair)?;
        let outcome = perf::serve(&mut node, || gone.load(Ordering::Relaxed), |_| {});
        outcome.map(|()| None).map_err(|error| error.to_string())
    };
    let ask = |pair: u16| {
        let mut node = ours.node(Role::Sender, pair)?;
        let outcome = perf::run(&mut node, &ours.peer(pair), options, || false, |_| {});
        outcome.map(Some).map_err(|error| error.to_string())
    };
    let sender = || {
        let outcome = together(&ask);
        gone.store(true, Ordering::Relaxed);
        outcome
    };
    let (stretches, _, ()) = network::both(sender, || together(&serve), || ())?;
    Ok(stretches.into_iter().flatten().collect())
}

/// The same three numbers for our nodes: the mean of the medians, the worst 99th percentile, and all round trips per
/// second.
fn round_trips(ours: &Ours, pairs: u16, seconds: f64) -> Result<Vec<f64>, String> {
    let duration = Duration::from_secs_f64(seconds);
    let options = perf::Options {
        size: PING,
        connections: 1,
        duration,
        depth: 1,
        mode: perf::Mode::Latency,
        interval: Duration::from_secs(1),
        messages: None,
        bulk: 0,
    };
    let each = nodes(ours, pairs, &options)?;
    let p50 = each.iter().map(|one| one.rtt_p50_us).sum::<f64>() / each.len() as f64;
    let p99 = each.iter().map(|one| one.rtt_p99_us).fold(0.0, f64::max);
    Ok(vec![p50, p99, each.iter().map(|one| one.messages as f64 / one.to_s).sum::<f64>() / 1e3])
}

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let seconds = options.seconds;
    let columns = [Column::new("p50", "us"), Column::new("p99", "us"), Column::new("round trips", "thousands/s")];
    let wire = Wire::plain(1_500);
    let table = "64 B there and back";
    let mut rows = Vec::new();
    let (spin, sleep) = ("bare UDP, spinning", "bare UDP, sleeping");
    for (name, spins) in [(spin, true), (sleep, false)] {
        rows.push(Row::new(table, name, &columns, move || {
            network.set(wire)?;
            measure(seconds, |trips| ceiling::ping(trips, spins), |trips| ceiling::pong(trips, spins))
        }));
    }
    for (name, spins) in [("TCP, spinning", true), ("TCP, sleeping", false)] {
        let row = Row::new(table, name, &columns, move || {
            network.set(wire)?;
            measure(seconds, |trips| tcp::ping(trips, spins), |trips| tcp::pong(trips, spins))
        });
        rows.push(row.against(if spins { spin } else { sleep }));
    }
    for protection in [Protection::None, Protection::Encrypted] {
        let mut ours = Ours::new("uec", 1_344)?;
        ours.config.protection = protection;
        let adaptive = ours.config.waiting;
        let ways =
            [("spinning", Waiting::Spin, spin), ("sleeping", Waiting::Sleep, sleep), ("adaptive", adaptive, spin)];
        for (how, waiting, against) in ways {
            let mut ours = ours.clone();
            ours.config.waiting = waiting;
            let row = Row::new(table, format!("uec, {}, {how}", name_of(protection)), &columns, move || {
                network.set(wire)?;
                round_trips(&ours, 1, seconds)
            });
            rows.push(row.against(against));
        }
    }
    let table = "64 B there and back, nodes that share cores (adaptive, unprotected)";
    let mut ours = Ours::new("uec", 1_344)?;
    ours.config.protection = Protection::None;
    let names = ["one pair", "two pairs"];
    for (pairs, name) in (1..).zip(names) {
        let ours = ours.clone();
        let row = Row::new(table, name, &columns, move || {
            network.set(wire)?;
            round_trips(&ours, pairs, seconds)
        });
        rows.push(if pairs == 1 { row } else { row.against(names[0]) });
    }
    let table = "writes of 1 MiB, nodes that share cores (adaptive, unprotected)";
    for (pairs, name) in (1..).zip(names) {
        let ours = ours.clone();
        let row = Row::new(table, name, &[Column::new("goodput together", "Gb/s")], move || {
            network.set(wire)?;
            let duration = Duration::from_secs_f64(seconds);
            let options = perf::Options {
                size: MESSAGE as u64,
                connections: 1,
                duration,
                depth: 8,
                mode: perf::Mode::Bandwidth,
                interval: Duration::from_secs(1),
                messages: None,
                bulk: 0,
            };
            Ok(vec![nodes(&ours, pairs, &options)?.iter().map(|one| one.goodput_gbps).sum()])
        });
        rows.push(if pairs == 1 { row } else { row.against(names[0]) });
    }
    Ok(Contest { section: "latency", rows })
}
