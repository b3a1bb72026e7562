//! A slice of the fabric: the hosts, switches and links that one thread owns, and its loop over windows of time.
//!
//! Slices get leaves in turns, with their hosts (in three tiers: whole pods), and the switches of the top tier as well.
//! A slice shares no state with others; packets and signals to another slice are handed over at window edges.
//!
//! Events at one port or host at the same instant have a fixed order, by their [`Sources`]: arrivals in order of their
//! links, then pause frames, signals between programs, wake-ups of programs, and faults.

mod adaptive;
mod crossing;
mod cut;
mod eager;
mod event_clock;
mod fabric;
mod fault;
mod forward;
mod host;
mod host_program;
mod hosts;
mod layout;
mod link_credit;
mod looks;
mod programmable_switch;
mod recorder;
mod run_config;
mod setup;
mod tables;
mod visit;
mod watch;

use crate::backlog::Backlogs;
use crate::calendar::{Calendar, GROUP, Order};
use crate::control::Control;
use crate::port::{Limits, Port, flag};
use crate::prefetch::{prefetch, prefetch_all, prefetch_value};
use crate::queue::Arena;
use crate::road::{Cargo, Transit};
use event_clock::EventClock;
use fabric::Fabric;
use fault::FaultEvent;
use host::Host;
use hosts::Hosts;
use recorder::Recorder;
use run_config::RunConfig;
use std::collections::BTreeMap;
use std::ops::Range;
use strandway_collective::FlowTable;
use strandway_fabric::NodeId;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::measure::{LinkCounters, PathRow, SwitchProgramCounts};
use strandway_fabric::plan::Plan;
use strandway_fabric::topology::{LinkEnds, LinkId};
use strandway_proto::RankTimes;
use strandway_proto::aggregate::Counts;
use strandway_proto::application::Application;
use strandway_proto::units::Time;
use strandway_proto::{ConnectionId, HostId, PrefetchStep};

pub(crate) use crossing::Mail;
pub(crate) use cut::Cut;
pub(crate) use fault::Faults;
pub(crate) use layout::Layout;
pub(crate) use watch::Taken;

/// The first source number of each kind of event; the first kind (arrivals, by link) starts at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    /// Eager ports: the end of a transmission, by link.
    pub(crate) look: u32,
    pub(crate) pause: u32,
    /// Signals between programs, by their own order.
    pub(crate) signal: u32,
    pub(crate) fault: u32,
}

impl Sources {
    pub(crate) fn new(plan: &Plan) -> Sources {
        let links = plan.topology.links();
        let look = links;
        let pause = look + links;
        let signal = pause + links;
        Sources { look, pause, signal, fault: signal + FlowTable::orders(plan) }
    }
}

/// A host's memory is brought into the cache in this many steps, one for each of the visits before its own.
const STEPS: usize = 5;
/// A port's memory is brought into the cache in this many steps, one for each of the visits before its own.
const PORT_STEPS: usize = 4;

/// A packet is brought into the cache this many packets before its host receives it.
const PACKETS_AHEAD: usize = 4;

/// The state of one slice.
pub(crate) struct Slice<'a> {
    config: RunConfig<'a>,
    pub(crate) clock: EventClock,
    /// Ports of the nodes that this slice owns, in the order of [`Layout`].
    ports: Vec<Port>,
    /// The rates and thresholds that ports have.
    limits: Vec<Limits>,
    fabric: Fabric,
    pub(crate) hosts: Hosts<'a>,
    pub(crate) recorder: Recorder<'a>,
}

impl<'a> Slice<'a> {
    /// The start of the next window that has events; `u64::MAX` if there are no more events.
    pub(crate) fn next_time(&mut self) -> u64 {
        let next = self.clock.calendar.next_window();
        let at_stations =
            if self.fabric.stations.is_empty() { None } else { self.fabric.stations.calendar.next_window() };
        let first = next.into_iter().chain(at_stations).min();
        first.map_or(u64::MAX, |w| self.clock.calendar.start_of(w))
    }

    /// The end of the window of `time`.
    pub(crate) fn window_end(&self, time: u64) -> u64 {
        self.clock.calendar.end_of(time)
    }

    /// Have all events been processed, including those that a time limit may have cut off?
    pub(crate) fn is_over(&mut self) -> bool {
        !self.clock.cut_off && self.next_time() == u64::MAX
    }

    /// Runs window after window up to `limit`. Stops early if asked to.
    pub(crate) fn run_before(&mut self, limit: u64, control: &Control) {
        loop {
            let from = self.next_time();
            if from.saturating_sub(self.clock.calendar.early()) >= limit || control.stopping() {
                return;
            }
            let end = self.window_end(from);
            self.run_window(from, end, limit);
            self.report(control);
            if limit <= end - self.clock.calendar.early() {
                return;
            }
        }
    }

    /// Processes all events before `limit` in the window from `from` to `end`.
    fn run_window(&mut self, from: u64, end: u64, limit: u64) {
        self.begin_window(from);
        if !self.fabric.stations.is_empty() {
            self.visit_stations(from..end, limit);
        }
        for phase in 0..self.phases() {
            self.run_phase(phase, from..end, limit);
        }
        self.end_window(end, limit);
    }

    /// The number of phases of a window. With more than one, slices exchange packets after each phase but the last.
    pub(crate) fn phases(&self) -> usize {
        self.config.phases.len()
    }

    /// Moves on to the window that starts at `from`.
    pub(crate) fn begin_window(&mut self, from: u64) {
        self.clock.calendar.begin(self.clock.calendar.window_of(from));
    }

    /// Processes all events before `limit` at the stops of one phase of a window.
    pub(crate) fn run_phase(&mut self, phase: usize, window: Range<u64>, limit: u64) {
        let mut order = std::mem::take(&mut self.clock.order);
        for part in 0..self.config.phases[phase].len() {
            for group in self.config.phases[phase][part].clone() {
                self.run_group(group, &mut order, window.clone(), limit);
            }
        }
        self.clock.order = order;
    }

    /// Processes all events before `limit` at a group of stops in a window.
    #[inline]
    fn run_group(&mut self, group: usize, order: &mut Order, window: Range<u64>, limit: u64) {
        let batch = self.clock.calendar.take(group);
        self.clock.calendar.prefetch(group + 1);
        let count = batch.len();
        let early = self.clock.calendar.early_of((group * GROUP) as u32);
        if window.start >= limit.saturating_add(early) {
            self.clock.cut_off |= count > 0;
        } else if count > 0 {
            self.clock.events_done += count as u64;
            if group < self.fabric.switches.nodes.len() {
                order.arrange_one(&batch, self.clock.calendar.span());
                self.visit_switch(group, order.all(), window, limit);
            } else {
                order.arrange(&batch, self.clock.calendar.span());
                self.visit_group(group, order, window.start.wrapping_sub(early), limit.min(window.end - early));
            }
        }
        self.clock.calendar.give_back(batch);
    }

    /// All phases of the window that ends at `end` are over.
    pub(crate) fn end_window(&mut self, end: u64, limit: u64) {
        self.clock.now = self.clock.now.max(end.min(limit) - 1);
    }

    /// Has the window after the present one, which ends at `end`, any events?
    pub(crate) fn goes_on(&self, end: u64) -> bool {
        self.clock.calendar.is_due(self.clock.calendar.window_of(end))
    }

    /// The time by which the windows of switches begin and end before those of hosts, in ps.
    pub(crate) fn early(&self) -> u64 {
        self.clock.calendar.early()
    }

    /// Visits the ports and hosts of a group that have events before `until`, which is the end of their window or of
    /// the run. The first window of early stops begins before time zero; then `from` wraps below zero.
    fn visit_group(&mut self, group: usize, order: &Order, from: u64, until: u64) {
        // Stops are in order, and ports come before hosts; one group may have both.
        let (first, host) = (group * GROUP, self.config.first_host_stop as usize);
        let (ports, hosts) = order.stops().split_at(order.stops().partition_point(|&n| first + usize::from(n) < host));
        let first_port = first + self.config.first_port as usize;
        let at_port = |n: u8| first_port + usize::from(n);
        for at in 0..ports.len() + PORT_STEPS {
            // Written out, so that no jump has to be predicted.
            let ahead = |step: usize| ports.get(at.wrapping_sub(step)).map(|&n| at_port(n));
            self.prefetch_port::<0>(ahead(0));
            self.prefetch_port::<1>(ahead(1));
            self.prefetch_port::<2>(ahead(2));
            self.prefetch_port::<3>(ahead(3));
            if let Some(&n) = ports.get(at.wrapping_sub(PORT_STEPS)) {
                self.visit_port(at_port(n), order.of(n.into()), from, until);
            }
        }
        for at in 0..hosts.len() + STEPS {
            let ahead = |step: usize| {
                hosts.get(at.wrapping_sub(step)).map(|&n| (first + usize::from(n) - host, order.of(n.into())))
            };
            self.prefetch_host::<0>(ahead(0));
            self.prefetch_host::<1>(ahead(1));
            self.prefetch_host::<2>(ahead(2));
            self.prefetch_host::<3>(ahead(3));
            self.prefetch_host::<4>(ahead(4));
            if let Some(&n) = hosts.get(at.wrapping_sub(STEPS)) {
                self.visit_host(first + usize::from(n) - host, order.of(n.into()), from, until);
            }
        }
    }

    /// Brings memory into the cache that the visit to a port will need. Each step needs what the one before it has
    /// brought.
    #[inline(always)]
    fn prefetch_port<const STEP: usize>(&self, port: Option<usize>) {
        let Some(port) = port.and_then(|port| self.ports.get(port)) else { return };
        match STEP {
            0 => prefetch_value(port),
            1 => prefetch_value(self.fabric.backlogs.of(port)),
            2 => self.fabric.backlogs.prefetch_ends(port, &self.fabric.arena),
            3 => self.fabric.backlogs.prefetch_second(port, &self.fabric.arena),
            _ => {}
        }
    }

    /// Brings memory into the cache that the visit to a host will need. Each step needs what the one before it has
    /// brought.
    #[inline(always)]
    fn prefetch_host<const STEP: usize>(&self, visit: Option<(usize, &[Transit])>) {
        let Some((h, entries)) = visit else { return };
        let Some(host) = self.hosts.all.get(h) else { return };
        let mut packets = entries.iter().filter(|e| e.source() < self.config.sources.look);
        let step = match STEP {
            0 => {
                prefetch_value(host);
                prefetch_all(&self.ports[h * self.config.planes..(h + 1) * self.config.planes]);
                return packets.take(PACKETS_AHEAD).for_each(|entry| self.fabric.cargo.prefetch(entry));
            }
            1 => PrefetchStep::Lists,
            2 => PrefetchStep::Connections,
            3 => PrefetchStep::Parts,
            _ => return host.endpoint.prefetch_ready(PrefetchStep::Paths, prefetch),
        };
        host.endpoint.prefetch_ready(step, prefetch);
        for entry in packets.by_ref().take(2) {
            host.endpoint.prefetch(step, self.fabric.cargo.packet(entry), prefetch);
        }
    }

    /// Reports the progress to `control`.
    pub(crate) fn report(&mut self, control: &Control) {
        self.recorder.report(self.clock.now, control);
    }

    /// The local number of a link's port.
    #[inline]
    fn local(&self, link: u32) -> usize {
        self.fabric.router.layout().place(link)
    }

    /// Applies a fault event to a port of this slice.
    fn break_or_mend(&mut self, index: usize, now: u64) {
        let (_, event) = self.config.fault_events[index];
        match event {
            FaultEvent::Rate(link, fraction) => {
                let i = self.local(link.0);
                self.drain(i, now);
                let Some(ends) = self.config.plan.topology.ends(link) else { return };
                let limits = self.limits_at(&ends, fraction, self.ports[i].has(flag::LAST));
                let port = &mut self.ports[i];
                port.set_rate(self.limits[usize::from(limits)].rate);
                port.limits = limits;
            }
            FaultEvent::Seen(link, down) => {
                let i = self.local(link.0);
                self.drain(i, now);
                self.ports[i].set(flag::DOWN, down);
            }
            FaultEvent::Ordered(link, fault, denied) => {
                let h = self.config.cut.place_of(link.0 / self.config.planes as u32) as usize;
                self.apply_fault(h, fault as usize, denied, now);
            }
        }
    }

    /// A host's connections obey the controller, which denies or allows every path across the links of a fault.
    fn apply_fault(&mut self, h: usize, fault: usize, denied: bool, now: u64) {
        let connections = self.hosts.all[h].endpoint.observe().awake();
        for (connection, peer) in connections {
            self.apply_fault_on(h, connection, peer, (fault, denied), now);
        }
    }

    /// One connection of a host obeys the controller, which denies or allows every path across the links of a fault.
    fn apply_fault_on(
        &mut self,
        h: usize,
        connection: ConnectionId,
        peer: HostId,
        (fault, denied): (usize, bool),
        now: u64,
    ) {
        let (host, topology) = (self.config.host(h), &self.config.plan.topology);
        let links = &self.config.plan.faults[fault].links;
        let endpoint = &mut self.hosts.all[h].endpoint;
        for state in endpoint.observe().path_states(connection) {
            if topology.source_route(host, peer, state.path).iter().any(|link| links.contains(link)) {
                if denied {
                    endpoint.deny_path(Time(now), connection, state.path);
                } else {
                    endpoint.allow_path(Time(now), connection, state.path);
                }
            }
        }
    }

    /// A connection that opens obeys the denials that are in force.
    #[cold]
    fn apply_faults(&mut self, h: usize, connection: ConnectionId, peer: HostId, now: u64) {
        let plan = self.config.plan;
        for (fault, index) in plan.faults.iter().zip(0..) {
            if fault.kind == FaultKind::Denied && (fault.from.0..fault.until.0).contains(&now) {
                self.apply_fault_on(h, connection, peer, (index, true), now);
            }
        }
    }

    /// The index of the limits of the port with these ends at this fraction of its rate.
    fn limits_at(&mut self, ends: &LinkEnds, fraction: f64, last_hop: bool) -> u16 {
        let topology = &self.config.plan.topology;
        let nominal = topology.level_of(ends).rate;
        let delay = topology.level_of(ends).latency + topology.latency_inside(topology.describe(ends.to).0);
        let link = (topology.group_index(ends) as u16, delay);
        let long = topology.long_link_of(ends).map(|long| self.config.plan.ports.with_queue(long.queue));
        let limits = Limits::new(long.as_ref().unwrap_or(&self.config.plan.ports), link, nominal, fraction, last_hop);
        // Neighbours mostly have the same limits.
        let index = self.limits.iter().rposition(|l| *l == limits).unwrap_or_else(|| {
            self.limits.push(limits);
            self.limits.len() - 1
        });
        u16::try_from(index).expect("at most 65,535 different degradations in one run")
    }

    /// Processes every port and host up to `limit`, so that all counters have their values of that instant.
    pub(crate) fn settle(&mut self, limit: u64) {
        for i in 0..self.ports.len() {
            self.drain(i, limit);
        }
        for host in 0..self.hosts.all.len() {
            self.run_host(host, limit);
        }
        for (port, cold) in self.ports.iter().zip(&mut self.fabric.colds) {
            if port.has(flag::PAUSED) {
                cold.paused += limit.saturating_sub(cold.paused_since);
                cold.paused_since = limit;
            }
        }
    }

    /// Time series of this slice's links and arrivals.
    pub(crate) fn take_series(&mut self) -> Taken {
        self.recorder.sampler.take()
    }

    /// The counters of this slice's links, each with the link's number in the topology.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (LinkId, LinkCounters)> {
        let all = self.ports.iter().enumerate().filter(|(_, p)| p.link != u32::MAX);
        all.map(|(i, port)| (LinkId(port.link), port.counters(self.fabric.refused.get(&i), self.fabric.colds.get(i))))
    }

    /// Adds the counters of gradient aggregation of all programs of switches, servers and workers, by job.
    pub(crate) fn count_aggregation(&self, now: u64, into: &mut BTreeMap<u16, Counts>) {
        self.fabric.stations.programs.iter().for_each(|program| program.count(Time(now), into));
        self.hosts.programs.iter().for_each(|program| program.count(Time(now), into));
    }

    /// Adds how the ranks of training jobs spent their time up to `now`.
    pub(crate) fn append_times(&self, now: u64, into: &mut Vec<RankTimes>) {
        self.hosts.programs.iter().for_each(|program| program.append_times(Time(now), into));
    }

    /// For each programmable switch, the share of its slots that each job held over time.
    pub(crate) fn occupancy(&self) -> impl Iterator<Item = SwitchProgramCounts> {
        let stations = self.fabric.stations.nodes.iter().zip(&self.fabric.stations.programs);
        stations.map(|(&node, program)| SwitchProgramCounts { node: NodeId(node), occupancy: program.occupancy() })
    }

    /// The time of the latest event at a host of this slice.
    pub(crate) fn last_at(&self) -> u64 {
        self.hosts.all.iter().map(Host::now).max().unwrap_or(0)
    }

    /// The changes of paths at this slice's hosts.
    pub(crate) fn path_events(&mut self, into: &mut Vec<PathRow>) {
        for (host, &h) in self.hosts.all.iter_mut().zip(self.config.hosts) {
            host.endpoint.take_path_events(|peer, event| into.push(PathRow { host: HostId(h), peer, event }));
        }
    }

    /// Frees the memory of the hosts.
    pub(crate) fn drop_hosts(&mut self) {
        self.hosts.all = Vec::new();
        self.hosts.programs = Vec::new();
    }

    /// Frees the memory of all packets, after the last event.
    pub(crate) fn drop_packets(&mut self) {
        self.clock.calendar = Calendar::new(0, 1, 0, (0, 0));
        self.clock.order = Order::default();
        self.fabric.cargo = Cargo::default();
        self.fabric.arena = Arena::default();
        self.fabric.backlogs = Backlogs::new();
    }

    /// A host, if it belongs to this slice.
    pub(crate) fn host(&self, host: HostId) -> Option<&Host> {
        let cut = self.config.cut;
        let mine = cut.slice_of_host(host) == self.config.index;
        mine.then(|| &self.hosts.all[cut.place_of(host.0) as usize])
    }
}
