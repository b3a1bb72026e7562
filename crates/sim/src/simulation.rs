//! Runs a plan: slices side by side in windows, then one set of measurements.
//!
//! A window is no longer than the shortest delay of a link, so that nothing that leaves one slice in a window can arrive at
//! another within it. So all slices run through a window on their own, exchange what crosses, and go on. What is in a
//! window, and in which order, does not depend on how many slices there are.

use crate::control::Control;
use crate::measure::{End, FlowRecord, GroupSeries, LinkCounters, Measurements, PacketCounters, PathCounters, Series};
use crate::meeting::Meeting;
use crate::plan::Plan;
use crate::slice::{Crossing, Cut, Slice};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use strandway_proto::rng::mix64;
use strandway_proto::units::{Span, Time};
use strandway_proto::{ConnectionStats, HostId};

/// Runs `plan` to its end, its time limit, or until `control` says stop.
pub fn simulate(plan: &Plan, control: &Control) -> Measurements {
    run(plan, control, Cut::new(plan))
}

fn run(plan: &Plan, control: &Control, cut: Cut) -> Measurements {
    let (faults, fault_events) = Slice::schedule(plan);
    let mut slices: Vec<Slice<'_>> =
        (0..cut.slices).map(|i| Slice::new(plan, &cut, i, &faults, &fault_events)).collect();
    // The limit itself belongs to the run.
    let limit = plan.time_limit.0.saturating_add(1);
    if let [slice] = &mut slices[..] {
        slice.run_before(limit, control);
    } else {
        run_side_by_side(&mut slices, limit, control);
    }
    for slice in &mut slices {
        slice.report(control);
    }
    let over = slices.iter_mut().all(|s| s.next_time() == u64::MAX);
    let reached = slices.iter().map(|s| s.now).max().unwrap_or(0);
    let finished: u64 = slices.iter().map(|s| s.finished).sum();
    let end = if finished == plan.flows.len() as u64 {
        End::Finished
    } else if control.stopping() {
        End::Interrupted
    } else if over {
        End::Stalled
    } else {
        End::TimeLimit
    };
    if end != End::Interrupted {
        let until = if over { reached + 1 } else { limit };
        for slice in &mut slices {
            slice.settle(until);
        }
    }
    let simulated = match end {
        End::Finished => slices.iter().map(|s| s.finished_at).max().unwrap_or(0),
        End::TimeLimit => plan.time_limit.0,
        End::Interrupted | End::Stalled => reached,
    };
    merge(plan, &cut, slices, end, Time(simulated))
}

/// What slices have for each other at the end of a window, by receiver.
type Mailbox = Mutex<Vec<Crossing>>;

/// Each slice on its own thread.
fn run_side_by_side(slices: &mut [Slice<'_>], limit: u64, control: &Control) {
    let mailboxes: Vec<Mailbox> = slices.iter().map(|_| Mutex::new(Vec::new())).collect();
    let next: Vec<AtomicU64> = slices.iter().map(|_| AtomicU64::new(0)).collect();
    let meeting = Meeting::new(slices.len());
    let work = |index: usize, slice: &mut Slice<'_>| {
        let _attendance = meeting.attend();
        loop {
            let time = if control.stopping() { u64::MAX } else { slice.next_time() };
            next[index].store(time, Ordering::Relaxed);
            if !meeting.wait() {
                return;
            }
            // Between the barriers nobody writes `next`, so that all threads leave together.
            let from = next.iter().map(|n| n.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX);
            if from >= limit {
                return;
            }
            slice.run_before(limit.min(slice.window_end(from)), control);
            for (mailbox, crossings) in mailboxes.iter().zip(&mut slice.outbox) {
                if !crossings.is_empty() {
                    mailbox.lock().expect("no thread panics holding a mailbox").append(crossings);
                }
            }
            if !meeting.wait() {
                return;
            }
            let mut mail = mailboxes[index].lock().expect("no thread panics holding a mailbox");
            for crossing in mail.drain(..) {
                slice.receive(crossing);
            }
        }
    };
    std::thread::scope(|scope| {
        for (index, slice) in slices.iter_mut().enumerate() {
            let work = &work;
            scope.spawn(move || work(index, slice));
        }
    });
}

fn merge(plan: &Plan, cut: &Cut, slices: Vec<Slice<'_>>, end: End, simulated: Time) -> Measurements {
    let mut m = Measurements {
        end,
        simulated,
        flows: vec![FlowRecord::default(); plan.flows.len()],
        connections: vec![ConnectionStats::default(); plan.connections.len()],
        links: vec![LinkCounters::default(); plan.topology.links() as usize],
        ..Measurements::default()
    };
    let mut series = Series { every: plan.sample_every.unwrap_or(Span::ZERO), ..Series::default() };
    for mut slice in slices {
        m.events += slice.events_done;
        m.packet_hops += slice.hops;
        for (all, one) in m.flows.iter_mut().zip(&slice.flows) {
            all.started = all.started.or(one.started);
            all.received = all.received.or(one.received);
            all.finished = all.finished.or(one.finished);
        }
        for port in slice.ports() {
            m.links[port.link as usize] = port.counters();
        }
        add_packets(&mut m.packets, &slice.packets);
        m.paths.resize(slice.paths.len(), PathCounters::default());
        for (all, one) in m.paths.iter_mut().zip(&slice.paths) {
            all.sent += one.sent;
            all.marked += one.marked;
            all.trimmed += one.trimmed;
        }
        m.captured.append(&mut slice.captured);
        let (delivered, groups) = slice.take_series();
        add_points(&mut series.delivered, &delivered);
        series.groups.resize(groups.len(), GroupSeries::default());
        for (all, one) in series.groups.iter_mut().zip(&groups) {
            add_points(&mut all.bytes, &one.bytes);
            add_points(&mut all.queued, &one.queued);
            all.queued_max.resize(all.queued_max.len().max(one.queued_max.len()), 0);
            for (a, b) in all.queued_max.iter_mut().zip(&one.queued_max) {
                *a = (*a).max(*b);
            }
        }
        let (first, hosts) = slice.hosts();
        for (c, (connection, ends)) in plan.connections.iter().zip(&cut.ends).enumerate() {
            for (HostId(host), id) in [(connection.source, ends.0), (connection.destination, ends.1)] {
                if let Some(host) = host.checked_sub(first).and_then(|h| hosts.get(h as usize)) {
                    add_stats(&mut m.connections[c], host.endpoint.stats(id));
                }
            }
        }
    }
    if plan.sample_every.is_some() {
        m.series = series;
    }
    m.captured.sort_by_key(|c| (c.at, c.link));
    for c in &m.connections {
        m.packets.sent += c.sent;
        m.packets.delivered += c.delivered;
        m.packets.retransmitted += c.retransmitted;
        m.packets.duplicates += c.duplicates;
        m.packets.timeouts += c.timeouts;
    }
    for l in &m.links {
        m.packets.dropped += u64::from(l.dropped);
        m.packets.trimmed += u64::from(l.trimmed);
        m.packets.marked += u64::from(l.marked);
    }
    m.digest = digest(&m);
    m
}

fn add_points(all: &mut Vec<u64>, one: &[u64]) {
    all.resize(all.len().max(one.len()), 0);
    for (a, b) in all.iter_mut().zip(one) {
        *a += b;
    }
}

fn add_packets(all: &mut PacketCounters, one: &PacketCounters) {
    all.lost += one.lost;
    all.acks += one.acks;
    all.nacks += one.nacks;
    all.notifications += one.notifications;
    all.pauses += one.pauses;
}

fn add_stats(all: &mut ConnectionStats, one: &ConnectionStats) {
    all.sent += one.sent;
    all.retransmitted += one.retransmitted;
    all.acks += one.acks;
    all.acks_marked += one.acks_marked;
    all.nacks += one.nacks;
    all.notifications += one.notifications;
    all.timeouts += one.timeouts;
    all.probes += one.probes;
    all.delivered += one.delivered;
    all.delivered_bytes += one.delivered_bytes;
    all.duplicates += one.duplicates;
    all.marked += one.marked;
    all.trimmed += one.trimmed;
    all.invalid += one.invalid;
}

/// A fingerprint of every flow's times, every connection's and every link's counters, in their order.
fn digest(m: &Measurements) -> u64 {
    let mut hash = 0x5354_5241_4e44_5741;
    let mut add = |value: u64| hash = mix64(hash ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for flow in &m.flows {
        for time in [flow.started, flow.received, flow.finished] {
            add(time.map_or(u64::MAX, |t| t.0));
        }
    }
    for c in &m.connections {
        for value in [c.sent, c.retransmitted, c.acks, c.delivered_bytes, c.duplicates, c.marked, c.trimmed, c.timeouts]
        {
            add(value);
        }
    }
    for l in &m.links {
        for value in
            [l.packets, l.bytes, u64::from(l.marked), u64::from(l.dropped), u64::from(l.trimmed), l.queue_max.0]
        {
            add(value);
        }
    }
    add(m.packet_hops);
    hash
}
