//! The round trip of 64 bytes, also with nodes that share cores.

use crate::bandwidth::name_of;
use crate::contest::{Column, Contest, Row};
use crate::network::{self, Network, Role, Wire};
use crate::ours::{MESSAGE, Ours};
use crate::{Options, ceiling, tcp};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandway_perf as perf;
use strandway_perf::{Stretch};
use strandway_udp::{Protection, Waiting};

/// The most round trips that are kept.
const KEPT: usize = 1 << 20;
/// Round trips that are left out at the beginning.
const WARM_UP: usize = 100;
const PING: u64 = 64;

/// Round trips of one measurement, shared by both sides.
#[derive(Default)]
pub(crate) struct RoundTrips {
    over: AtomicBool,
    micros: Mutex<Vec<f64>>,
}

impl RoundTrips {
    /// Adds a round trip.
    pub(crate) fn add(&self, time: Duration) {
        // One thread adds, and the list is read only after the end.
        if let Ok(mut micros) = self.micros.lock()
            && micros.len() < KEPT
        {
            micros.push(time.as_secs_f64() * 1e6);
        }
    }

    /// Is the measurement over?
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Ends a measurement when dropped, so that the other side ends as well if one side fails.
struct Ending<'a>(&'a RoundTrips);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Median, 99th percentile, and round trips per second.
fn measure(
    seconds: f64,
    ping: impl FnOnce(&RoundTrips) -> Result<(), String> + Send,
    pong: impl FnOnce(&RoundTrips) -> Result<(), String> + Send,
) -> Result<Vec<f64>, String> {
    let trips = &RoundTrips::default();
    let watch = || {
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < seconds && !trips.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
        trips.end();
    };
    let ping = || {
        let _ending = Ending(trips);
        ping(trips)
    };
    let pong = || {
        let _ending = Ending(trips);
        pong(trips)
    };
    network::both(ping, pong, watch)?;
    let micros = trips.micros.lock().map_err(|_| "a thread panicked")?;
    let mut rest = micros.get(WARM_UP..).unwrap_or_default().to_vec();
    rest.sort_by(f64::total_cmp);
    let quantile = |share: f64| rest.get((rest.len().saturating_sub(1) as f64 * share).round() as usize).copied();
    match (quantile(0.5), quantile(0.99)) {
        (Some(p50), Some(p99)) => Ok(vec![p50, p99, rest.len() as f64 / seconds / 1e3]),
        _ => Err("fewer than a hundred round trips".into()),
    }
}

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
