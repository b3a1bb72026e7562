//! Runs a plan: slices side by side in windows, then one set of measurements.
//!
//! Several slices exchange packets and signals in one of two ways. Usually packets cross only before and after the top
//! tier of switches; then a window has three phases (up, top, down with the hosts), and slices exchange packets after
//! the first and the second ([`run_in_phases`]). Where news is faster than packets, a window is at most as long as the
//! shortest delay of a link. So a packet that leaves a slice in a window cannot arrive at another slice in the same
//! window; each slice processes a window independently, then the slices exchange packets and signals
//! ([`run_side_by_side`]). Events and their order depend neither on the number of slices nor on the length of windows.

use crate::barrier::Barrier;
use crate::control::Control;
use crate::fingerprint::Fingerprint;
use crate::records::Records;
use crate::slice::{Cut, Faults, Mail, Slice, Taken};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use strandway_collective::Programs;
use strandway_fabric::measure::{
    Captured, End, FlowTime, GroupSeries, LinkCounters, Measurements, PacketCounters, PathCounters, Series, WatchPoint,
};
use strandway_fabric::plan::Plan;
use strandway_fabric::tally::Tally;
use strandway_proto::account::Waits;
use strandway_proto::units::{Span, Time};
use strandway_proto::{ConnectionStats, HostId};

/// Runs the flows of `plan` to their end, to the time limit, or until `control` requests a stop.
pub fn simulate(plan: &Plan, control: &Control) -> Measurements {
    simulate_programs(plan, &Programs::new(plan, &[]), control)
}

/// Runs the flows of `plan` with the given programs at the hosts, to their end, to the time limit, or until `control`
/// requests a stop.
pub fn simulate_programs(plan: &Plan, programs: &Programs<'_>, control: &Control) -> Measurements {
    run(plan, programs, control, Cut::new(plan))
}

fn run(plan: &Plan, programs: &Programs<'_>, control: &Control, cut: Cut) -> Measurements {
    let faults = Faults::new(plan);
    let records = Records::new(plan.flows.len());
    let make = |i| Slice::new(plan, &cut, i, programs, &records, &faults);
    let mut slices: Vec<Slice<'_>> = if cut.slices == 1 {
        vec![make(0)]
    } else {
        std::thread::scope(|scope| {
            let make = &make;
            let threads: Vec<_> = (0..cut.slices).map(|i| scope.spawn(move || make(i))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    };
    // Events at the limit itself belong to the run.
    let limit = plan.time_limit.0.saturating_add(1);
    if let [slice] = &mut slices[..] {
        slice.run_before(limit, control);
    } else if slices[0].phases() > 1 {
        run_in_phases(&mut slices, limit, control);
    } else {
        run_side_by_side(&mut slices, limit, control);
    }
    for slice in &mut slices {
        slice.report(control);
    }
    let over = slices.iter_mut().all(Slice::is_over);
    let reached = slices.iter().map(|s| s.clock.now).max().unwrap_or(0);
    let end = if slices.iter().all(Slice::is_done) {
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
        End::Finished => slices.iter().map(|s| s.recorder.finished_at).max().unwrap_or(0),
        End::TimeLimit => plan.time_limit.0,
        End::Interrupted => reached,
        End::Stalled => slices.iter().map(Slice::last_at).max().unwrap_or(0),
    };
    let mut opened = ConnectionStats::NONE;
    let mut left = (0, 0);
    for slice in &mut slices {
        opened += slice.count_opened();
        let (open, closing) = slice.opened_left();
        left = (left.0 + open, left.1 + closing);
    }
    let fingerprint =
        |host: u32| slices[cut.slice_of_host(HostId(host))].hosts.fingerprints[cut.place_of(host) as usize];
    let hosts: Vec<Fingerprint> = (0..cut.hosts).map(fingerprint).collect();
    let mut measured = merge(plan, &cut, slices, opened, end, Time(simulated));
    (measured.opened_left, measured.closing_left) = left;
    measured.flows = records.into_flows();
    measured.digest = digest(&hosts, &measured);
    measured
}

/// The mailboxes of slices, in two sets: one is read while the other is filled. `turn` names the set.
struct Mailboxes {
    slices: usize,
    boxes: Vec<Mutex<Mail>>,
}

impl Mailboxes {
    fn new(slices: usize) -> Mailboxes {
        Mailboxes { slices, boxes: (0..2 * slices * slices).map(|_| Mutex::default()).collect() }
    }

    fn of(&self, turn: usize, from: usize, to: usize) -> MutexGuard<'_, Mail> {
        self.boxes[(turn * self.slices + to) * self.slices + from].lock().expect("no thread panics holding a mailbox")
    }

    /// Puts the packets and signals of a slice into the mailboxes of the others. Returns the time of the first,
    /// `u64::MAX` if there are none.
    fn hand_over(&self, turn: usize, index: usize, slice: &mut Slice<'_>) -> u64 {
        let others = (0..self.slices).filter(|&to| to != index);
        others.fold(u64::MAX, |first, to| first.min(slice.hand_over(to, &mut self.of(turn, index, to))))
    }

    /// Gives a slice the packets and signals of the others.
    fn receive(&self, turn: usize, index: usize, slice: &mut Slice<'_>) {
        for from in (0..self.slices).filter(|&from| from != index) {
            slice.receive(&mut self.of(turn, from, index));
        }
    }
}

/// A number from each slice, in two sets like [`Mailboxes`].
struct Notes {
    slices: usize,
    numbers: Vec<AtomicU64>,
}

impl Notes {
    fn new(slices: usize) -> Notes {
        Notes { slices, numbers: (0..2 * slices).map(|_| AtomicU64::new(0)).collect() }
    }

    fn write(&self, turn: usize, index: usize, number: u64) {
        self.numbers[turn * self.slices + index].store(number, Ordering::Relaxed);
    }

    /// The least number of a set. After a meeting all threads read the same numbers, until they meet again.
    fn least(&self, turn: usize) -> u64 {
        let all = self.numbers[turn * self.slices..][..self.slices].iter();
        all.map(|n| n.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX)
    }
}

/// Runs each slice on its own thread, in windows of three phases. The threads meet after the first phase and after the
/// second, and exchange packets there. Mostly the next window has events, as one of the threads says at the second
/// meeting; if none does, they meet a third time and agree on the next window.
fn run_in_phases(slices: &mut [Slice<'_>], limit: u64, control: &Control) {
    let mailboxes = Mailboxes::new(slices.len());
    let notes = Notes::new(slices.len());
    let meeting = Barrier::new(slices.len());
    let work = |index: usize, slice: &mut Slice<'_>| -> Option<()> {
        let _attendance = meeting.enter();
        let mut turn = 0;
        let meet = || meeting.wait().then_some(());
        loop {
            notes.write(turn, index, if control.stopping() { u64::MAX } else { slice.next_time() });
            meet()?;
            let mut from = notes.least(turn);
            turn = 1 - turn;
            if from.saturating_sub(slice.early()) >= limit {
                return None;
            }
            loop {
                let end = slice.window_end(from);
                slice.begin_window(from);
                slice.run_phase(0, from..end, limit);
                mailboxes.hand_over(turn, index, slice);
                meet()?;
                mailboxes.receive(turn, index, slice);
                turn = 1 - turn;
                slice.run_phase(1, from..end, limit);
                mailboxes.hand_over(turn, index, slice);
                let goes_on = slice.goes_on(end) && !control.stopping();
                notes.write(turn, index, u64::from(!goes_on));
                meet()?;
                mailboxes.receive(turn, index, slice);
                let go_on = notes.least(turn) == 0;
                turn = 1 - turn;
                slice.run_phase(2, from..end, limit);
                slice.end_window(end, limit);
                slice.report(control);
                if limit <= end - slice.early() {
                    return None;
                }
                if !go_on {
                    break;
                }
                from = end;
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

/// Runs each slice on its own thread, in windows of one link latency. The threads meet once per window.
fn run_side_by_side(slices: &mut [Slice<'_>], limit: u64, control: &Control) {
    let mailboxes = Mailboxes::new(slices.len());
    let next = Notes::new(slices.len());
    let meeting = Barrier::new(slices.len());
    let work = |index: usize, slice: &mut Slice<'_>| {
        let _attendance = meeting.enter();
        let (mut turn, mut over, mut mailed) = (0, false, u64::MAX);
        loop {
            let time = if control.stopping() { u64::MAX } else { slice.next_time().min(mailed) };
            next.write(turn, index, time);
            if !meeting.wait() {
                return;
            }
            mailboxes.receive(turn, index, slice);
            // All threads read the same values and stop together.
            let from = next.least(turn);
            if over || from >= limit {
                return;
            }
            turn = 1 - turn;
            let end = slice.window_end(from);
            slice.run_before(limit.min(end), control);
            mailed = mailboxes.hand_over(turn, index, slice);
            // The part of the last window after the limit does not belong to the run.
            over = limit <= end;
        }
    };
    std::thread::scope(|scope| {
        for (index, slice) in slices.iter_mut().enumerate() {
            let work = &work;
            scope.spawn(move || work(index, slice));
        }
    });
}

fn merge(
    plan: &Plan,
    cut: &Cut,
    mut slices: Vec<Slice<'_>>,
    opened: ConnectionStats,
    end: End,
    simulated: Time,
) -> Measurements {
    let mut m = Measurements {
        end,
        simulated,
        times: vec![FlowTime::default(); if plan.accounts { plan.flows.len() } else { 0 }],
        waits: vec![Waits::default(); plan.connections.len()],
        connections: vec![ConnectionStats::default(); plan.connections.len()],
        ..Measurements::default()
    };
    let mut choices = Vec::new();
    let mut series = Series { every: plan.sample_every.unwrap_or(Span::ZERO), ..Series::default() };
    for slice in &mut slices {
        m.events += slice.clock.events_done;
        m.packet_hops += slice.recorder.hops;
        m.packets.copies += slice.recorder.copies[0];
        m.packets.copies_trimmed += slice.recorder.copies[1];
        add_packets(&mut m.packets, &slice.recorder.packets);
        m.paths.resize(slice.recorder.paths.len(), PathCounters::default());
        for (all, one) in m.paths.iter_mut().zip(&slice.recorder.paths) {
            all.sent += one.sent;
            all.marked += one.marked;
            all.trimmed += one.trimmed;
        }
        slice.close_accounts(simulated.0);
        for (flow, time) in std::mem::take(&mut slice.recorder.times) {
            m.times[flow as usize] = time;
        }
        m.tallies.resize(slice.recorder.tallies.len(), Tally::default());
        for (all, one) in m.tallies.iter_mut().zip(&slice.recorder.tallies) {
            all.merge(one);
        }
        m.captured.append(&mut slice.recorder.captured);
        slice.count_aggregation(simulated.0, &mut m.aggregation);
        slice.append_times(simulated.0, &mut m.ranks);
        m.stations.extend(slice.occupancy());
        add_series(&mut series, slice.take_series());
        slice.path_events(&mut m.path_events);
        for (c, (connection, ends)) in plan.connections.iter().zip(&cut.ends).enumerate() {
            if let Some(host) = slice.host(connection.source) {
                m.connections[c] += *host.endpoint.stats(ends.0);
                m.path_counts.extend(host.endpoint.path_counts(ends.0).iter().map(|counts| (c as u32, *counts)));
                choices.extend(host.endpoint.choices(ends.0).map(|chosen| (c, *chosen)));
            }
            if let Some(host) = slice.host(connection.destination) {
                m.connections[c] += *host.endpoint.stats(ends.1);
                m.waits[c] = host.endpoint.waits(ends.1);
            }
        }
        slice.drop_hosts();
    }
    m.ranks.sort_unstable_by_key(|rank| (rank.job, rank.rank));
    m.path_counts.sort_by_key(|(connection, counts)| (*connection, counts.path));
    choices.sort_by_key(|&(connection, _)| connection);
    m.choices = choices.into_iter().map(|(_, chosen)| chosen).collect();
    // The counters of all links are allocated after the hosts' memory was freed.
    m.links = vec![LinkCounters::default(); plan.topology.links() as usize];
    for slice in slices {
        for (link, counters) in slice.counters() {
            m.links[link.0 as usize] = counters;
        }
    }
    if plan.sample_every.is_some() {
        m.series = series;
    }
    m.path_events.sort_by_key(|row| (row.event.at, row.host, row.peer));
    m.stations.sort_by_key(|station| station.node);
    m.captured.sort_by_key(|c| (c.at, c.link));
    m.captured.truncate(plan.capture.as_ref().map_or(0, |c| c.limit));
    name_profiles(plan, cut, &mut m.captured);
    m.opened = opened;
    for c in m.connections.iter().chain([&m.opened]) {
        m.packets.sent += c.sent;
        m.packets.delivered += c.delivered;
        m.packets.retransmitted += c.retransmitted;
        m.packets.duplicates += c.duplicates;
        m.packets.discarded += c.discarded;
        m.packets.timeouts += c.timeouts;
    }
    for w in &m.waits {
        m.last_arrival = m.last_arrival.max(w.last_arrival);
    }
    for l in &m.links {
        m.packets.dropped += u64::from(l.dropped);
        m.packets.trimmed += u64::from(l.trimmed);
        m.packets.marked += u64::from(l.marked);
    }
    m
}

/// Finds profile and sender's number of each recorded packet. A packet carries its receiver's number for the
/// connection.
fn name_profiles(plan: &Plan, cut: &Cut, captured: &mut [Captured]) {
    if captured.is_empty() {
        return;
    }
    let mut known = BTreeMap::new();
    for (c, ends) in plan.connections.iter().zip(&cut.ends) {
        known.insert((c.destination, ends.1), (c.profile, ends.0));
        known.insert((c.source, ends.0), (c.profile, ends.1));
    }
    for c in captured {
        if let Some((profile, sender)) = known.get(&(c.packet.destination, c.packet.connection)) {
            (c.profile, c.sender) = (*profile, Some(*sender));
        }
    }
}

/// Adds the time series of one slice.
fn add_series(series: &mut Series, one: Taken) {
    add_points(&mut series.delivered, &one.delivered);
    add_all(&mut series.planes, &one.planes);
    add_all(&mut series.watched_planes, &one.watched_planes);
    add_watched(&mut series.watched, one.watched);
    series.links.merge(one.links);
    series.groups.resize(one.groups.len(), GroupSeries::default());
    for (all, one) in series.groups.iter_mut().zip(&one.groups) {
        add_points(&mut all.bytes, &one.bytes);
        add_points(&mut all.queued, &one.queued);
        all.queued_max.resize(all.queued_max.len().max(one.queued_max.len()), 0);
        for (a, b) in all.queued_max.iter_mut().zip(&one.queued_max) {
            *a = (*a).max(*b);
        }
    }
}

/// Only one slice has the watched connection. A point without a visit repeats the state before it.
fn add_watched(all: &mut Vec<WatchPoint>, one: Vec<Option<WatchPoint>>) {
    for point in one {
        let point = point.or_else(|| all.last().cloned()).unwrap_or_default();
        all.push(point);
    }
}

fn add_points(all: &mut Vec<u64>, one: &[u64]) {
    all.resize(all.len().max(one.len()), 0);
    for (a, b) in all.iter_mut().zip(one) {
        *a += b;
    }
}

fn add_all(all: &mut Vec<Vec<u64>>, one: &[Vec<u64>]) {
    all.resize(all.len().max(one.len()), Vec::new());
    for (a, b) in all.iter_mut().zip(one) {
        add_points(a, b);
    }
}

fn add_packets(all: &mut PacketCounters, one: &PacketCounters) {
    all.lost += one.lost;
    all.discarded += one.discarded;
    all.lost_control += one.lost_control;
    all.dropped_control += one.dropped_control;
    all.acks += one.acks;
    all.nacks += one.nacks;
    all.notifications += one.notifications;
    all.pauses += one.pauses;
    all.chunks += one.chunks;
    all.repairs += one.repairs;
    all.chunks_arrived += one.chunks_arrived;
    all.rebuilt += one.rebuilt;
    all.fragments += one.fragments;
    all.fragments_arrived += one.fragments_arrived;
}

/// A fingerprint of the run: for each host, its program's posts and events with their times; then the counters of every
/// connection and every link, in the plan's order.
fn digest(hosts: &[Fingerprint], m: &Measurements) -> u64 {
    let mut hash = Fingerprint::new();
    for host in hosts {
        hash.add([host.value()]);
    }
    add_counters(&mut hash, m);
    for (job, c) in &m.aggregation {
        hash.add([u64::from(*job), c.sent, c.resent, c.merged, c.completed, c.preemptions, c.evicted, c.refused]);
        hash.add([c.server_packets, c.server_completed, c.reminders, c.flushes, c.solicits, c.slot_time as u64]);
    }
    hash.value()
}

fn add_counters(hash: &mut Fingerprint, m: &Measurements) {
    for c in &m.connections {
        hash.add([c.sent, c.retransmitted, c.acks, c.delivered_bytes, c.duplicates, c.marked, c.trimmed, c.timeouts]);
    }
    for l in &m.links {
        hash.add([l.packets, l.bytes, u64::from(l.marked), u64::from(l.dropped), u64::from(l.trimmed), l.queue_max.0]);
    }
    hash.add([m.packet_hops]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use strandway_fabric::fault::{FaultKind, FaultPlan};
    use strandway_fabric::loss::Burst;
    use strandway_fabric::measure::FlowRecord;
    use strandway_fabric::plan::{
        ConnectionPlan, EcnSettings, FlowPlan, PfcSettings, PortSettings, Routing, SharedSettings, Start,
    };
    use strandway_fabric::topology::LinkId;
    use strandway_fabric::topology::{Level, Shape, Topology};
    use strandway_proto::path::PathConfig;
    use strandway_proto::rng::{Random, StreamKind};
    use strandway_proto::units::{Bytes, Rate};
    use strandway_proto::{HostId, Profile};

    /// Flows between random hosts over a fabric whose ports may be plain first-in-first-out queues.
    fn random_plan(seed: u64) -> Plan {
        let mut random = Random::new(seed, StreamKind::Workload, 0);
        let mut pick = |below: u32| random.below(below);
        let shape =
            Shape { hosts: 12, planes: 1 + pick(2) as u8, hosts_per_leaf: 3, spines: 2, leaf_bundle: 1, pods: None };
        let gbps = [100, 400, 300][pick(3) as usize];
        let level = Level { rate: Rate::from_gbps(gbps), latency: Span::from_ns([1000, 317][pick(2) as usize]) };
        let inside = Span::from_ns(u64::from(pick(2) * 250));
        let topology = Topology::new(shape, [level; 3], [inside; 3]).expect("a valid shape");
        let path = PathConfig::named(PathConfig::NAMES[pick(5) as usize]).expect("a known name");
        let mut profile = Profile::preset(Profile::NAMES[pick(3) as usize]).expect("a preset");
        profile.path = path;
        let step = u64::from(20_000 + pick(40_000));
        let ecn = EcnSettings {
            low: Bytes(step),
            high: Bytes(step * [1, 3][pick(2) as usize]),
            probability: 0.3,
            at_dequeue: false,
            last_hop: true,
        };
        let count = 4 + pick(20);
        let ends = (0..count).map(|_| {
            let source = pick(12);
            // Many of them to host 0, so that queues fill up.
            let to = if source != 0 && pick(2) == 0 { 0 } else { (source + 1 + pick(11)) % 12 };
            (source, to, u64::from(pick(300_000)), u64::from(pick(20_000_000)))
        });
        let ends: Vec<_> = ends.collect();
        let connection = |&(from, to, ..): &(u32, u32, u64, u64)| ConnectionPlan {
            source: HostId(from),
            destination: HostId(to),
            profile: 0,
        };
        let flow = |(i, &(.., bytes, at)): (usize, &(u32, u32, u64, u64))| FlowPlan {
            connection: i as u32,
            bytes,
            start: Start::At(Time(at)),
            on_sent: None,
            on_received: None,
        };
        Plan {
            topology,
            ports: PortSettings {
                priority: false,
                data_queue: Bytes([40_000, 100_000, 1_000_000][pick(3) as usize]),
                control_queue: Bytes(0),
                trim: None,
                ecn: (pick(3) > 0).then_some(ecn),
                pfc: None,
                shared: None,
                adaptive_queue: Bytes(0),
            },
            routing: Routing::Hashed,
            profiles: vec![Arc::new(profile)],
            connections: ends.iter().map(connection).collect(),
            flows: ends.iter().enumerate().map(flow).collect(),
            triggers: vec![],
            multicast: vec![],
            faults: vec![],
            seed,
            time_limit: Time(200_000_000_000),
            threads: 1 + pick(3) as usize,
            sample_every: None,
            watch: None,
            accounts: true,
            rows: false,
            capture: None,
            tally_paths: false,
        }
    }

    /// A random plan with faults that are seen, lasting or flapping, which routing learns of a little later; perhaps
    /// with PFC or shared buffers.
    fn random_failing_plan(seed: u64) -> Plan {
        let mut plan = random_plan(seed);
        let mut random = Random::new(seed, StreamKind::Workload, 1);
        let mut pick = |below: u32| random.below(below);
        for _ in 0..1 + pick(4) {
            let link = LinkId(pick(plan.topology.links()));
            let (from, delay) = (u64::from(pick(15_000_000)), Span(u64::from(pick(3_000_000))));
            let kind = match pick(4) {
                0 => FaultKind::Loss { probability: 0.05, burst: Burst::Packets(1.0 + f64::from(pick(4))) },
                1 => FaultKind::Degraded { fraction: 0.5 },
                _ => FaultKind::Down { visible: Some(delay) },
            };
            let periods = [1, 30][pick(2) as usize];
            let length = u64::from(pick(20_000_000)) / periods + 1;
            plan.faults.extend((0..periods).map(|n| FaultPlan {
                links: vec![link],
                kind,
                from: Time(from + 2 * n * length),
                until: Time(from + 2 * n * length + length),
            }));
        }
        let packets = |n: u64| Bytes(n * 4160);
        if pick(2) == 0 {
            plan.ports.pfc = Some(PfcSettings { xoff: packets(15), xon: packets(12), headroom: packets(40) });
        }
        if pick(3) == 0 {
            plan.ports.shared = Some(SharedSettings { buffer: packets(200), alpha: 0.5 });
        }
        plan.time_limit = Time(2_000_000_000);
        plan
    }

    #[test]
    fn windows_of_any_length_change_nothing_where_links_fail_and_ports_pause() {
        let (mut lost, mut paused, mut finished) = (0, 0, 0);
        for seed in 0..150 {
            let plan = random_failing_plan(seed);
            let run = |parts: u64, threads: usize| {
                let mut plan = plan.clone();
                plan.threads = threads;
                let mut cut = Cut::new(&plan);
                cut.narrow = parts > 0;
                cut.parts = parts.max(1);
                run(&plan, &Programs::new(&plan, &[]), &Control::new(), cut)
            };
            let usual = run(0, 1);
            for (parts, threads) in [(1, 1), (7, 1), (0, 3), (5, 2)] {
                let other = run(parts, threads);
                let what = format!("seed {seed}, {parts} parts, {threads} threads");
                assert_eq!(usual.flows, other.flows, "{what}");
                assert_eq!(usual.links, other.links, "{what}");
                assert_eq!(usual.packets, other.packets, "{what}");
                assert_eq!(
                    (usual.digest, usual.end, usual.simulated),
                    (other.digest, other.end, other.simulated),
                    "{what}"
                );
            }
            lost += usual.packets.lost;
            paused += usual.packets.pauses;
            finished += u32::from(usual.end == End::Finished);
        }
        assert!(lost > 1000 && paused > 100 && finished > 50, "{lost} lost, {paused} pauses, {finished} finished");
    }

    #[test]
    fn threads_that_would_do_little_but_meet_are_not_started() {
        let mut plan = random_plan(0);
        plan.threads = 3;
        assert_eq!(Cut::new(&plan).slices, 3);
        let shape = *plan.topology.shape();
        let level = Level { rate: Rate::from_gbps(400), latency: Span::from_ns(1) };
        plan.topology = Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape");
        assert_eq!(Cut::new(&plan).slices, 1);
    }

    #[test]
    fn neighbouring_leaves_belong_to_different_threads() {
        let mut plan = random_plan(0);
        plan.threads = 3;
        let cut = Cut::new(&plan);
        // Leaves of three hosts: 0 to 2, 3 to 5, and so on.
        let slices: Vec<usize> = (0..12).map(|host| cut.slice_of_host(HostId(host))).collect();
        assert_eq!(slices, [0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0]);
        let places: Vec<u32> = (0..12).map(|host| cut.place_of(host)).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5]);
        assert_eq!(cut.nodes_of(0)[0], [0, 1, 2, 9, 10, 11]);
    }

    #[test]
    fn wide_windows_change_nothing() {
        let (mut wide, mut in_phases) = (0, 0);
        let mut cut_short = 0;
        for seed in 0..120 {
            let mut plan = random_plan(seed);
            plan.threads = 1;
            if seed % 2 == 1 {
                plan.time_limit = Time(20_000_000 + 317_123 * seed);
            }
            let mut narrow = Cut::new(&plan);
            narrow.narrow = true;
            let run = |cut| run(&plan, &Programs::new(&plan, &[]), &Control::new(), cut);
            let (a, b) = (run(Cut::new(&plan)), run(narrow));
            assert_eq!(a.flows, b.flows, "seed {seed}");
            assert_eq!(a.links, b.links, "seed {seed}");
            assert_eq!((a.digest, a.end, a.simulated), (b.digest, b.end, b.simulated), "seed {seed}");
            let mut phases = Cut::new(&Plan { threads: 3, ..plan.clone() });
            let c = run(phases.clone());
            phases.narrow = true;
            let d = run(phases);
            for other in [&c, &d] {
                assert_eq!(a.flows, other.flows, "seed {seed}, three slices");
                assert_eq!(a.links, other.links, "seed {seed}, three slices");
                let ends = (other.digest, other.end, other.simulated);
                assert_eq!((a.digest, a.end, a.simulated), ends, "seed {seed}, three slices");
            }
            in_phases += u32::from(c.events < d.events);
            wide += u32::from(a.events < b.events);
            cut_short += u32::from(a.end == End::TimeLimit);
        }
        assert!(wide > 100 && cut_short > 20, "wide windows in {wide} runs, {cut_short} cut short");
        assert!(in_phases > 100, "windows of three phases in {in_phases} runs");
    }

    #[test]
    fn plain_and_queued_ports_agree_where_both_apply() {
        let (mut drops, mut marks) = (0, 0);
        for seed in 0..60 {
            let plan = random_plan(seed);
            let run = |cut| run(&plan, &Programs::new(&plan, &[]), &Control::new(), cut);
            let plain = run(Cut::new(&plan));
            let mut cut = Cut::new(&plan);
            cut.queued_only = true;
            let queued = run(cut);
            let late: Vec<(usize, &FlowRecord, &FlowRecord)> = plain
                .flows
                .iter()
                .zip(&queued.flows)
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(i, (a, b))| (i, a, b))
                .collect();
            assert!(late.is_empty(), "seed {seed}: {late:?}");
            assert_eq!(plain.links, queued.links, "seed {seed}");
            assert_eq!(plain.digest, queued.digest, "seed {seed}");
            assert_eq!(plain.end, End::Finished, "seed {seed}");
            drops += plain.packets.dropped;
            marks += plain.packets.marked;
        }
        assert!(drops > 100 && marks > 100, "{drops} drops and {marks} marks compared");
    }
}
