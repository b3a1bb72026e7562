//! Processor time per gibibyte while the wire, not the processor, is the limit.

use crate::contest::{Column, Contest, Row};
use crate::goodput::{Meter, goodput};
use crate::network::{Network, Wire};
use crate::ours::{Ours, name_of};
use crate::quic::Identity;
use crate::{Options, tcp};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use strandway_udp::{Protection, Waiting};

const RATES_MBPS: [u32; 4] = [100, 500, 1_000, 5_000];
const MTU: u32 = 1_500;
/// Bytes.
pub(crate) const GIB: f64 = (1_u64 << 30) as f64;
/// `USER_HZ`: the unit of /proc/stat on Linux.
const TICKS_PER_S: f64 = 100.0;

/// Processor time of the calling thread, in nanoseconds.
pub(crate) fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Seconds that the cores of this machine have been busy since it started, interrupts included.
fn busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut numbers = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let mut next = || numbers.next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0);
    let (user, nice, system) = (next(), next(), next());
    let (_idle, _waiting) = (next(), next());
    (user + nice + system + next() + next()) / TICKS_PER_S
}

/// Runs a transfer: processor seconds per gibibyte of both threads, of all cores of the machine, and the goodput in
/// Mb/s.
fn cost(
    seconds: f64,
    sender: impl FnOnce(&Meter) -> Result<(), String> + Send,
    receiver: impl FnOnce(&Meter) -> Result<(), String> + Send,
) -> Result<Vec<f64>, String> {
    let (spent, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let timed = |side: &mut dyn FnMut() -> Result<(), String>| {
        let began = thread_time();
        let outcome = side();
        spent.fetch_add(thread_time() - began, Ordering::Relaxed);
        outcome
    };
    let (mut sender, mut receiver) = (Some(sender), Some(receiver));
    let before = busy();
    let gbps = goodput(
        seconds,
        |meter| timed(&mut || sender.take().map_or(Ok(()), |send| send(meter))),
        |meter| {
            let outcome = timed(&mut || receiver.take().map_or(Ok(()), |receive| receive(meter)));
            bytes.store(meter.total(), Ordering::Relaxed);
            outcome
        },
    )?[0];
    let all = busy() - before;
    let gib = bytes.load(Ordering::Relaxed) as f64 / GIB;
    Ok(vec![spent.load(Ordering::Relaxed) as f64 / 1e9 / gib, all / gib, gbps * 1e3])
}

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let columns = [
        Column::new("both threads", "s/GiB"),
        Column::new("all cores of the machine", "s/GiB"),
        Column::new("goodput", "Mb/s"),
    ];
    let (seconds, mut rows) = (options.seconds, Vec::new());
    for (rate, whole) in RATES_MBPS.into_iter().flat_map(|rate| [(rate, false), (rate, true)]) {
        let what = if whole { ", batches in one piece" } else { "" };
        let table = format!("processor time at {rate} Mb/s{what}");
        let wire = if whole { Wire::shaped_whole(MTU, rate) } else { Wire::shaped(MTU, rate) };
        let (plain, sealed) = ("TCP cubic", "TCP cubic, TLS 1.3");
        rows.push(Row::new(&table, plain, &columns, move || {
            network.set(wire)?;
            cost(seconds, |meter| tcp::send(meter, "cubic"), |meter| tcp::receive(meter, "cubic"))
        }));
        let identity = Identity::new()?;
        rows.push(Row::new(&table, sealed, &columns, move || {
            network.set(wire)?;
            let send = |meter: &Meter| tcp::send_tls(meter, "cubic", &identity);
            cost(seconds, send, |meter| tcp::receive_tls(meter, "cubic", &identity))
        }));
        for (protection, against) in [(Protection::None, plain), (Protection::Encrypted, sealed)] {
            let ours = Ours::fitting("uec", protection, MTU)?.over(1, rate, options.base_rtt);
            for (how, waiting) in [("adaptive", ours.config.waiting), ("sleeping", Waiting::Sleep)] {
                let mut ours = ours.clone();
                ours.config.waiting = waiting;
                let row = Row::new(&table, format!("uec, {}, {how}", name_of(protection)), &columns, move || {
                    network.set(wire)?;
                    cost(seconds, |meter| ours.send_on(meter), |meter| ours.receive_on(meter))
                });
                rows.push(row.against(against));
            }
        }
    }
    Ok(Contest { section: "idle", rows })
}
