//! One of two planes is cut in the middle of a transfer, and comes back: the time until the other plane is fully used,
//! and the time until both are.

use crate::Options;
use crate::contest::{Column, Contest, Row};
use crate::goodput::Meter;
use crate::multipath::Multipath;
use crate::network::{self, Network, Wire};
use crate::ours::Ours;
use crate::planes::{MTU, NOQ, PAYLOAD, RATE_MBPS};
use aws_lc_rs::digest::{SHA256, digest};
use std::time::{Duration, Instant};

const PLANES: usize = 2;
/// The plane that is cut.
const CUT: usize = 1;
/// The interval at which the receiver's counters are read, and the window of goodput.
const SAMPLE: Duration = Duration::from_millis(2);
const WINDOW: Duration = Duration::from_millis(10);
/// The share of the working planes' capacity that counts as recovered.
const ENOUGH: f64 = 0.9;
/// The plane is cut when this share has arrived, and healed after this time.
const BEGIN: f64 = 0.25;
const DURATION: Duration = Duration::from_millis(800);
/// A transfer that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes that had arrived on each plane at one time.
struct Sample {
    at: Instant,
    planes: [u64; PLANES],
}

impl Sample {
    fn total(&self) -> u64 {
        self.planes.iter().sum()
    }
}

/// The times of the cut and of the healing, from the commands that did it.
struct Moments {
    cut: Instant,
    healed: Instant,
}

/// The kind of the cut.
#[derive(Clone, Copy)]
enum How {
    /// The sender's own port goes down.
    Port,
    /// Packets are dropped on the way, in both directions.
    Silently,
}

fn cut(network: &Network, how: How, cut: bool) -> Result<(), String> {
    match how {
        How::Port => network.port(CUT, !cut),
        How::Silently => network.silence(CUT, cut),
    }
}

/// Bytes that differ from those around them, and from those at the same place in other messages.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend(state.to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// Waits until `so` holds, unless the measurement is over.
fn await_that(meter: &Meter, so: impl Fn() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !so() {
        if meter.is_over() {
            return Err("it ended before".into());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("it hangs: {} bytes have arrived", meter.total()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A program that is cut.
trait Subject: Sync {
    /// Writes all of `memory` once.
    fn send(&self, meter: &Meter, memory: Vec<u8>) -> Result<(), String>;

    /// Receives as many bytes. Returns them, and whether the last one is here; `each` gets the bytes that arrived on
    /// each plane, at intervals.
    fn receive(
        &self,
        meter: &Meter,
        bytes: usize,
        each: impl FnMut(Instant, &[u64]),
    ) -> Result<(Vec<u8>, bool), String>;

    /// The payload that a wire carries when it is full of its packets, as a share of its rate.
    fn payload_share(&self) -> f64;
}

impl Subject for Ours {
    fn send(&self, meter: &Meter, memory: Vec<u8>) -> Result<(), String> {
        self.send(meter, memory, true)
    }

    fn receive(
        &self,
        meter: &Meter,
        bytes: usize,
        each: impl FnMut(Instant, &[u64]),
    ) -> Result<(Vec<u8>, bool), String> {
        self.receive(meter, bytes, SAMPLE, each)
    }

    fn payload_share(&self) -> f64 {
        self.payload_share()
    }
}

impl Subject for Multipath {
    fn send(&self, meter: &Meter, memory: Vec<u8>) -> Result<(), String> {
        self.send(meter, &memory, true)
    }

    fn receive(
        &self,
        meter: &Meter,
        bytes: usize,
        each: impl FnMut(Instant, &[u64]),
    ) -> Result<(Vec<u8>, bool), String> {
        self.receive(meter, bytes, true, SAMPLE, each)
    }

    fn payload_share(&self) -> f64 {
        self.payload_share()
    }
}

fn transfer(network: &Network, subject: &impl Subject, how: How, bytes: usize) -> Result<Vec<f64>, String> {
    let memory = content(bytes);
    let wanted = digest(&SHA256, &memory);
    let meter = &Meter::default();
    let mut samples = Vec::new();
    let interfere = || -> Result<Moments, String> {
        await_that(meter, || meter.total() >= (bytes as f64 * BEGIN) as u64)?;
        let at = Instant::now();
        cut(network, how, true)?;
        std::thread::sleep(DURATION);
        let healed = Instant::now();
        cut(network, how, false)?;
        Ok(Moments { cut: at, healed })
    };
    let watch = || {
        let moments = interfere();
        if moments.is_err() {
            meter.end();
        }
        let ended = await_that(meter, || meter.is_over());
        meter.end();
        // In any case, heal the wires for the next row.
        cut(network, how, false)?;
        moments.and_then(|moments| ended.map(|()| moments))
    };
    let sender = || {
        let outcome = subject.send(meter, memory);
        meter.end();
        outcome
    };
    let receiver = || {
        let outcome = subject.receive(meter, bytes, |at, planes| {
            samples.push(Sample { at, planes: [planes[0], planes[1]] });
        });
        meter.end();
        outcome
    };
    let ((), (memory, complete), moments) = network::both(sender, receiver, watch)?;
    let moments = moments?;
    if !complete {
        return Err("the last message did not arrive".into());
    }
    if digest(&SHA256, &memory).as_ref() != wanted.as_ref() {
        return Err("WRONG BYTES ARRIVED".into());
    }
    let plane = f64::from(RATE_MBPS) * 1e6 / 8.0 * subject.payload_share();
    judge(&samples, &moments, plane)
}

/// Milliseconds from cut and from healing to recovery, and the time that was lost in between. `plane`: bytes per second
/// of one plane.
fn judge(samples: &[Sample], moments: &Moments, plane: f64) -> Result<Vec<f64>, String> {
    // The command takes effect some time after it began, at the latest with the last arrival on the plane.
    let pairs = samples.windows(2).filter(|pair| pair[0].at >= moments.cut && pair[1].at < moments.healed);
    let mut arrived = pairs.filter(|pair| pair[1].planes[CUT] > pair[0].planes[CUT]);
    let cut = arrived.next_back().map_or(moments.cut, |pair| pair[1].at);
    let after_cut = recovery(samples, cut, moments.healed, plane);
    let after_healing = recovery(samples, moments.healed, moments.healed + PATIENCE, plane * PLANES as f64);
    let between = |from: Instant, to: Instant| {
        let mut inside = samples.iter().filter(|sample| sample.at >= from && sample.at <= to);
        let (first, last) = (inside.next()?, inside.next_back()?);
        Some((last.total() - first.total()) as f64 / (last.at - first.at).as_secs_f64())
    };
    let begin = samples.first().map(|sample| sample.at);
    let first = begin.and_then(|begin| between(begin, moments.cut));
    let (Some(first), Some(during)) = (first, between(cut, moments.healed)) else {
        return Err("too few samples".into());
    };
    let last = samples.last().and_then(|end| between(moments.healed, end.at)).unwrap_or(f64::NAN);
    // The capacity of the remaining plane that was not used, as time of that plane.
    let missed = (plane - during) / plane * (moments.healed - cut).as_secs_f64() * 1e3;
    let full = plane * PLANES as f64;
    Ok(vec![after_cut, after_healing, missed, first / full, during / plane, last / full])
}

/// Milliseconds until goodput over a window that begins after `from` is enough of `rate`; infinite if that does not
/// happen before `to`.
fn recovery(samples: &[Sample], from: Instant, to: Instant, rate: f64) -> f64 {
    let begins = samples.iter().enumerate().filter(|(_, sample)| sample.at >= from);
    for (i, begin) in begins {
        let Some(end) = samples[i..].iter().find(|end| end.at >= begin.at + WINDOW) else { break };
        if end.at > to {
            break;
        }
        let goodput = (end.total() - begin.total()) as f64 / (end.at - begin.at).as_secs_f64();
        if goodput >= ENOUGH * rate {
            return (end.at - from).as_secs_f64() * 1e3;
        }
    }
    f64::INFINITY
}

pub(crate) fn contest<'a>(network: &'a Network, options: &Options) -> Result<Contest<'a>, String> {
    let columns = [
        Column::new("from cut to 90 % of one plane", "ms"),
        Column::new("from healing to 90 % of both", "ms"),
        Column::new("missed during the cut", "ms of one plane"),
        Column::new("before", "share of both"),
        Column::new("during", "share of one"),
        Column::new("after", "share of both"),
    ];
    let (bytes, mut rows) = (options.bytes, Vec::new());
    for (how, table) in [
        (How::Port, "the sender's own port goes down"),
        (How::Silently, "packets of the plane vanish on the way, both ways"),
    ] {
        for profile in ["uec", "mrc"] {
            let ours = Ours::new(profile, PAYLOAD)?.over(PLANES, RATE_MBPS, options.base_rtt);
            rows.push(Row::new(table, profile, &columns, move || {
                network.set(Wire::shaped(MTU, RATE_MBPS))?;
                transfer(network, &ours, how, bytes)
            }));
        }
        let noq = Multipath::new(PLANES, MTU)?;
        rows.push(Row::new(table, NOQ, &columns, move || {
            network.set(Wire::shaped(MTU, RATE_MBPS))?;
            transfer(network, &noq, how, bytes)
        }));
    }
    Ok(Contest { section: "cut", rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_that_takes_twenty_milliseconds_to_take_over_is_seen_to() {
        let began = Instant::now();
        let ms = |ms: u64| began + Duration::from_millis(ms);
        // 1,000 bytes per millisecond and plane; no bytes from 100 to 120, one plane until 200, then two.
        let arrived = |t: u64| match t {
            0..=100 => [1_000 * t, 1_000 * t],
            101..=120 => [100_000, 100_000],
            121..=200 => [100_000 + 1_000 * (t - 120), 100_000],
            _ => [100_000 + 1_000 * (t - 120), 100_000 + 1_000 * (t - 200)],
        };
        let samples: Vec<Sample> = (0..=150).map(|i| Sample { at: ms(2 * i), planes: arrived(2 * i) }).collect();
        let moments = Moments { cut: ms(98), healed: ms(200) };
        let found = judge(&samples, &moments, 1e6).expect("samples enough");
        // No bytes until 120, then nine tenths of a window; the command took until 100.
        assert_eq!(found[0].round(), 30.0, "{found:?}");
        assert_eq!(found[1].round(), 10.0, "{found:?}");
        assert_eq!(found[2].round(), 20.0, "{found:?}");
        assert_eq!(recovery(&samples, ms(200), ms(300), 3e6), f64::INFINITY);
    }
}
