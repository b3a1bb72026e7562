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
use std::sync::{Mutex, MutexGuard, PoisonError};
use strandway_collective::Programs;
use strandway_fabric::measure::{
    Captured, End, FlowTime, GroupSeries, LinkCounters, Measurements, PathCounters, Series, Shared, WatchPoint,
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
    let shared = if let [slice] = &mut slices[..] {
        slice.run_before(limit, control);
        Shared::default()
    } else if slices[0].phases() > 1 {
        run_in_phases(&mut slices, limit, control)
    } else {
        run_side_by_side(&mut slices, limit, control)
    };
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
    slices.iter_mut().for_each(Slice::drop_packets);
    let mut measured = merge(plan, &cut, slices, opened, end, Time(simulated));
    (measured.opened.left, measured.opened.closing) = left;
    measured.shared = Shared { crossed: measured.shared.crossed, ..shared };
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
        self.all(turn).min().unwrap_or(u64::MAX)
    }

    /// The greatest number of a set.
    fn most(&self, turn: usize) -> u64 {
        self.all(turn).max().unwrap_or(0)
    }

    fn all(&self, turn: usize) -> impl Iterator<Item = u64> + '_ {
        self.numbers[turn * self.slices..][..self.slices].iter().map(|n| n.load(Ordering::Relaxed))
    }
}

/// The meetings of threads, with what each did before.
struct CountingBarrier {
    barrier: Barrier,
    hops: Notes,
    shared: Mutex<Shared>,
}

impl CountingBarrier {
    fn new(slices: usize) -> CountingBarrier {
        let shared = Shared { threads: slices as u32, ..Shared::default() };
        CountingBarrier { barrier: Barrier::new(slices), hops: Notes::new(slices), shared: Mutex::new(shared) }
    }

    /// Waits for all threads; false if the meeting is broken. Two meetings in a row have different turns.
    fn wait(&self, turn: usize, index: usize, slice: &mut Slice<'_>) -> bool {
        self.hops.write(turn, index, slice.recorder.hops_since());
        let whole = self.barrier.wait();
        if index == 0 {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.meetings += 1;
            shared.longest += self.hops.most(turn);
        }
        whole
    }

    fn shared(self) -> Shared {
        self.shared.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs each slice on its own thread, in windows of three phases. The threads meet after the first phase and after the
/// second, and exchange packets there. Mostly the next window has events, as one of the threads says at the second
/// meeting; if none does, they meet a third time and agree on the next window.
fn run_in_phases(slices: &mut [Slice<'_>], limit: u64, control: &Control) -> Shared {
    let mailboxes = Mailboxes::new(slices.len());
    let notes = Notes::new(slices.len());
    let meeting = CountingBarrier::new(slices.len());
    let work = |index: usize, slice: &mut Slice<'_>| -> Option<()> {
        let _attendance = meeting.barrier.enter();
        let mut turn = 0;
        let meet = |turn, slice: &mut Slice<'_>| meeting.wait(turn, index, slice).then_some(());
        loop {
            notes.write(turn, index, if control.stopping() { u64::MAX } else { slice.next_time() });
            meet(turn, slice)?;
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
                meet(turn, slice)?;
                mailboxes.receive(turn, index, slice);
                turn = 1 - turn;
                slice.run_phase(1, from..end, limit);
                mailboxes.hand_over(turn, index, slice);
                let goes_on = slice.goes_on(end) && !control.stopping();
                notes.write(turn, index, u64::from(!goes_on));
                meet(turn, slice)?;
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
    meeting.shared()
}

/// Runs each slice on its own thread, in windows of one link latency. The threads meet once per window.
fn run_side_by_side(slices: &mut [Slice<'_>], limit: u64, control: &Control) -> Shared {
    let mailboxes = Mailboxes::new(slices.len());
    let next = Notes::new(slices.len());
    let meeting = CountingBarrier::new(slices.len());
    let work = |index: usize, slice: &mut Slice<'_>| {
        let _attendance = meeting.barrier.enter();
        let (mut turn, mut over, mut mailed) = (0, false, u64::MAX);
        loop {
            let time = if control.stopping() { u64::MAX } else { slice.next_time().min(mailed) };
            next.write(turn, index, time);
            if !meeting.wait(turn, index, slice) {
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
    meeting.shared()
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
        m.shared.crossed += slice.recorder.crossed;
        m.packets.copies += slice.recorder.copies[0];
        m.packets.copies_trimmed += slice.recorder.copies[1];
        m.packets += slice.recorder.packets;
        m.paths.resize(slice.recorder.paths.len(), PathCounters::default());
        for (all, one) in m.paths.iter_mut().zip(&slice.recorder.paths) {
            all.sent += one.sent;
            all.marked += one.marked;
            all.trimmed += one.trimmed;
        }
        slice.close_accounts(simulated.0);
        std::mem::take(&mut slice.recorder.times).each(|flow, time| m.times[flow as usize] = time);
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
                m.connections[c] += *host.endpoint.observe().stats(ends.0);
                m.path_counts
                    .extend(host.endpoint.observe().path_counts(ends.0).iter().map(|counts| (c as u32, *counts)));
                choices.extend(host.endpoint.choices(ends.0).map(|chosen| (c, *chosen)));
            }
            if let Some(host) = slice.host(connection.destination) {
                m.connections[c] += *host.endpoint.observe().stats(ends.1);
                m.waits[c] = host.endpoint.observe().waits(ends.1);
            }
        }
        slice.drop_hosts();
    }
    m.ranks.sort_unstable_by_key(|rank| (rank.job, rank.rank));
    m.path_counts.sort_by_key(|(connection, counts)| (*connection, counts.path));
    choices.sort_by_key(|&(connection, _)| connection);
    m.choices = choices.into_iter().map(|(_, chosen)| chosen).collect();
    // The counters of all links are allocated after all other memory was freed.
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
    m.opened.counters = opened;
    for c in m.connections.iter().chain([&m.opened.counters]) {
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
mod tests;
