//! A slice of the fabric: the hosts, switches and links that one thread owns, and its loop over windows of time.
//!
//! Leaves go to slices in contiguous runs together with their hosts (whole pods in three tiers), upper switches in
//! contiguous runs of their own. A slice shares no state with others; packets and signals to another slice are handed
//! over at window edges.
//!
//! Events at one port or host at the same instant have a fixed order, by their [`Sources`]: arrivals in order of their
//! links, then pause frames, signals between programs, wake-ups of programs, and faults.

mod adaptive;
mod crossing;
mod eager;
mod fault;
mod forward;
mod host;
mod layout;
mod seat;
mod setup;
mod station;
mod visit;
mod watch;

use crate::calendar::{Calendar, GROUP, Order};
use crate::control::Control;
use crate::fingerprint::Fingerprint;
use crate::port::{ColdPort, DATA, Limits, Port, flag};
use crate::queue::Arena;
use crate::records::Records;
use crate::road::{Cargo, Transit};
use crate::route::Router;
use crossing::Outbox;
use eager::Switches;
use fault::{FaultEvent, LinkFaults};
use host::Host;
use seat::{OpenMessage, Posted};
use setup::World;
use station::Stations;
use std::collections::{BTreeMap, VecDeque};
use strandway_collective::{AnyApplication, FlowTable, Programs};
use strandway_fabric::NodeId;
use strandway_fabric::measure::{Captured, FlowTime, LinkCounters, PacketCounters, PathCounters, Station};
use strandway_fabric::plan::Plan;
use strandway_fabric::tally::Tally;
use strandway_fabric::topology::{LinkEnds, LinkId};
use strandway_proto::ConnectionId;
use strandway_proto::RankTimes;
use strandway_proto::account::Waits;
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Application, Channel};
use strandway_proto::units::Time;

pub(crate) use crossing::Mail;
pub(crate) use fault::Faults;
pub(crate) use layout::Layout;
pub(crate) use setup::Cut;
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

/// State is read this many ports, hosts or packets before it is used, so that cache misses overlap with work.
const FETCH_PORTS: usize = 3;
const FETCH_HOSTS: usize = 2;
const FETCH_CARGO: usize = 3;

/// The state of one slice.
pub(crate) struct Slice<'a> {
    plan: &'a Plan,
    cut: &'a Cut,
    index: usize,
    sources: Sources,
    router: Router,
    /// The events of lazy ports and of hosts.
    calendar: Calendar,
    order: Order,
    arena: Arena,
    cargo: Cargo,
    /// Ports of the nodes that this slice owns, in the order of [`Layout`].
    ports: Vec<Port>,
    /// The rarely used fields of the same ports; only with faults, pauses or series.
    colds: Vec<ColdPort>,
    /// Stops are first the ports of switches, from `first_port` on (or, if ports are eager, whole switches, each in its
    /// own group), and then the hosts, from `first_host_stop` on.
    first_port: u32,
    first_host_stop: u32,
    /// For each plain first-in-first-out port, the start times and sizes of its waiting packets; empty if there is no
    /// such port.
    fifos: Vec<VecDeque<(u64, u32)>>,
    limits: Vec<Limits>,
    faults: BTreeMap<u32, LinkFaults>,
    fault_events: &'a [(u64, FaultEvent)],
    /// Switches with eager ports.
    switches: Switches,
    /// Switches that run programs.
    stations: Stations,
    hosts: Vec<Host>,
    /// For each port of the hosts, the time until which it is busy: see [`Port::busy_until`].
    nics: Vec<u64>,
    first_host: u32,
    /// The program of each host.
    programs: Vec<AnyApplication<'a>>,
    /// For each host, a hash of its program's posts and events.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// For each other slice, the packets and signals to hand over.
    outboxes: Vec<Outbox>,
    pub(crate) now: u64,
    /// The rows of all flows; hosts of all slices write into them.
    records: &'a Records,
    /// For messages without a row: the results by collective, and for each host the messages in progress with their
    /// start times.
    pub(crate) tallies: Vec<Tally>,
    open: Vec<Vec<OpenMessage>>,
    /// By host and connection: the last reading of the waits of packets that arrived, if the plan asks for accounts.
    heard: Vec<BTreeMap<ConnectionId, Waits>>,
    /// For each host: our ends of channels that opened at first use, and the number of ends opened in this way.
    opened: Vec<BTreeMap<Channel, ConnectionId>>,
    openings: Vec<u32>,
    /// The environment of the connections of each profile.
    environments: Vec<World>,
    all_programs: &'a Programs<'a>,
    /// The flows that this slice's hosts are sending, and the time accounts of those that ended.
    under_way: BTreeMap<u32, Posted>,
    pub(crate) times: Vec<(u32, FlowTime)>,
    pub(crate) packets: PacketCounters,
    pub(crate) paths: Vec<PathCounters>,
    pub(crate) captured: Vec<Captured>,
    /// True if switch ports are eager, routing sometimes knows dead links, packets go to groups, or switches run
    /// programs.
    special: bool,
    /// Some events were not processed because the run ends before them.
    cut_off: bool,
    /// Ports of switches are eager.
    eager: bool,
    /// PFC: count the bytes that come in by each port.
    accounting: bool,
    priority: bool,
    sampling: bool,
    /// The rate, in bits per second, of the links from which switches cut through; 0 if they store and forward.
    cut_rate: u64,
    planes: usize,
    pub(crate) events_done: u64,
    pub(crate) hops: u64,
    /// The numbers of whole and of trimmed packets that switches made by copying.
    pub(crate) copies: [u64; 2],
    pub(crate) finished: u64,
    pub(crate) finished_at: u64,
    reported: (u64, u64),
    sampler: watch::Sampler,
}

impl<'a> Slice<'a> {
    /// The start of the next window that has events; `u64::MAX` if there are no more events.
    pub(crate) fn next_time(&mut self) -> u64 {
        let next = self.calendar.next_window();
        let at_stations = if self.stations.is_empty() { None } else { self.stations.calendar.next_window() };
        let first = next.into_iter().chain(at_stations).min();
        first.map_or(u64::MAX, |w| self.calendar.start_of(w))
    }

    /// The end of the window of `time`.
    pub(crate) fn window_end(&self, time: u64) -> u64 {
        self.calendar.end_of(time)
    }

    /// Have all events been processed, including those that a time limit may have cut off?
    pub(crate) fn is_over(&mut self) -> bool {
        !self.cut_off && self.next_time() == u64::MAX
    }

    /// Runs window after window up to `limit`. Stops early if asked to.
    pub(crate) fn run_before(&mut self, limit: u64, control: &Control) {
        loop {
            let from = self.next_time();
            if from.saturating_sub(self.calendar.early()) >= limit || control.stopping() {
                return;
            }
            let end = self.window_end(from);
            self.run_window(from, end, limit);
            self.report(control);
            if limit <= end - self.calendar.early() {
                return;
            }
        }
    }

    /// Processes all events before `limit` in the window from `from` to `end`.
    fn run_window(&mut self, from: u64, end: u64, limit: u64) {
        self.calendar.begin(self.calendar.window_of(from));
        let until = end.min(limit);
        if !self.stations.is_empty() {
            self.visit_stations(from..end, limit);
        }
        let mut order = std::mem::take(&mut self.order);
        for group in 0..self.calendar.groups() {
            let batch = self.calendar.take(group);
            let count = batch.len();
            let early = self.calendar.early_of((group * GROUP) as u32);
            if from >= limit.saturating_add(early) {
                self.cut_off |= count > 0;
            } else if count > 0 {
                self.events_done += count as u64;
                if group < self.switches.nodes.len() {
                    order.arrange_one(&batch, self.calendar.span());
                    self.visit_switch(group, order.all(), from..end, limit);
                } else {
                    order.arrange(&batch, self.calendar.span());
                    self.visit_group(group, &order, from.wrapping_sub(early), limit.min(end - early));
                }
            }
            self.calendar.give_back(batch);
        }
        self.order = order;
        self.now = self.now.max(until - 1);
    }

    /// Visits the ports and hosts of a group that have events before `until`, which is the end of their window or of
    /// the run. The first window of early stops begins before time zero; then `from` wraps below zero.
    fn visit_group(&mut self, group: usize, order: &Order, from: u64, until: u64) {
        for n in order.stops() {
            let entries = order.of(n);
            let stop = group * GROUP + n;
            match stop.checked_sub(self.first_host_stop as usize) {
                None => {
                    let port = stop + self.first_port as usize;
                    if let Some(next) = self.ports.get(port + FETCH_PORTS) {
                        std::hint::black_box(next.waiting[DATA].touch(&self.arena));
                    }
                    if let Some(later) = self.ports.get(port + 2 * FETCH_PORTS) {
                        std::hint::black_box(later.busy_until);
                    }
                    self.visit_port(port, entries, from, until);
                }
                Some(host) => {
                    self.fetch_cargo(order.of((n + FETCH_CARGO) % GROUP));
                    self.fetch_host(host + FETCH_HOSTS, order.of((n + FETCH_HOSTS) % GROUP));
                    self.visit_host(host, entries, from, until);
                }
            }
        }
    }

    /// Reads the stored packets that arrive at a host, to bring them into the cache.
    #[inline]
    fn fetch_cargo(&self, entries: &[Transit]) {
        let mut sum = 0;
        for entry in entries.iter().filter(|e| e.source() < self.sources.look) {
            sum ^= self.cargo.packet(entry).connection.0;
        }
        std::hint::black_box(sum);
    }

    /// Reads the memory that a visit to a host will use, all at once, so that its cache misses overlap. Changes
    /// nothing.
    #[inline]
    fn fetch_host(&self, host: usize, entries: &[Transit]) {
        let Some(host) = self.hosts.get(host) else { return };
        let mut sum = host.endpoint.prefetch_ready();
        for entry in entries.iter().take(2).filter(|e| e.source() < self.sources.look) {
            sum ^= host.endpoint.prefetch(self.cargo.packet(entry));
        }
        std::hint::black_box(sum);
    }

    /// Reports the progress to `control`.
    pub(crate) fn report(&mut self, control: &Control) {
        control.reached(strandway_proto::Time(self.now));
        control.add(self.finished - self.reported.0, self.hops - self.reported.1);
        self.reported = (self.finished, self.hops);
    }

    /// The local number of a link's port.
    #[inline]
    fn local(&self, link: u32) -> usize {
        self.router.layout().place(link)
    }

    /// Applies a fault event to a port of this slice.
    fn break_or_mend(&mut self, index: usize, now: u64) {
        let (_, event) = self.fault_events[index];
        match event {
            FaultEvent::Rate(link, fraction) => {
                let i = self.local(link.0);
                self.drain(i, now);
                let Some(ends) = self.plan.topology.ends(link) else { return };
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
        }
    }

    /// The index of the limits of the port with these ends at this fraction of its rate.
    fn limits_at(&mut self, ends: &LinkEnds, fraction: f64, last_hop: bool) -> u8 {
        let topology = &self.plan.topology;
        let nominal = topology.level_of(ends).rate;
        let long = topology.long_link_of(ends).map(|long| self.plan.ports.with_queue(long.queue));
        let limits = Limits::new(long.as_ref().unwrap_or(&self.plan.ports), nominal, fraction, last_hop);
        let index = self.limits.iter().position(|l| *l == limits).unwrap_or_else(|| {
            self.limits.push(limits);
            self.limits.len() - 1
        });
        u8::try_from(index).expect("at most 255 different degradations in one run")
    }

    /// Processes every port and host up to `limit`, so that all counters have their values of that instant.
    pub(crate) fn settle(&mut self, limit: u64) {
        for i in 0..self.ports.len() {
            self.drain(i, limit);
        }
        for host in 0..self.hosts.len() {
            self.run_host(host, limit);
        }
        for (port, cold) in self.ports.iter().zip(&mut self.colds) {
            if port.has(flag::PAUSED) {
                cold.paused += limit.saturating_sub(cold.paused_since);
                cold.paused_since = limit;
            }
        }
    }

    /// Time series of this slice's links and arrivals.
    pub(crate) fn take_series(&mut self) -> Taken {
        self.sampler.take()
    }

    /// The counters of this slice's links, each with the link's number in the topology.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (LinkId, LinkCounters)> {
        let all = self.ports.iter().enumerate().filter(|(_, p)| p.link != u32::MAX);
        all.map(|(i, port)| (LinkId(port.link), port.counters(self.colds.get(i))))
    }

    /// Adds the counters of gradient aggregation of all programs of switches, servers and workers, by job.
    pub(crate) fn count_aggregation(&self, now: u64, into: &mut BTreeMap<u16, Counts>) {
        self.stations.programs.iter().for_each(|program| program.count(Time(now), into));
        self.programs.iter().for_each(|program| program.count(Time(now), into));
    }

    /// Adds how the ranks of training jobs spent their time up to `now`.
    pub(crate) fn tell_times(&self, now: u64, into: &mut Vec<RankTimes>) {
        self.programs.iter().for_each(|program| program.tell_times(Time(now), into));
    }

    /// For each station, the share of its slots that each job held over time.
    pub(crate) fn occupancy(&self) -> impl Iterator<Item = Station> {
        let stations = self.stations.nodes.iter().zip(&self.stations.programs);
        stations.map(|(&node, program)| Station { node: NodeId(node), occupancy: program.occupancy() })
    }

    /// The time of the latest event at a host of this slice.
    pub(crate) fn last_at(&self) -> u64 {
        self.hosts.iter().map(Host::now).max().unwrap_or(0)
    }

    /// Frees the memory of the hosts.
    pub(crate) fn drop_hosts(&mut self) {
        self.hosts = Vec::new();
    }

    /// This slice's hosts, and the number of the first.
    pub(crate) fn hosts(&self) -> (u32, &[Host]) {
        (self.first_host, &self.hosts)
    }
}
