//! A slice of the fabric: the hosts, switches and links that one thread owns, and its event loop.
//!
//! Leaves go to slices in contiguous runs together with their hosts (whole pods in three tiers), upper switches in
//! contiguous runs of their own. A slice shares nothing with others; what crosses between them is handed over at window
//! edges.
//!
//! Events are ordered by (time, source). Sources are numbered so that at one instant arrivals come first, in order of
//! their links, then looks at ports, then hosts' wake-ups, pause frames, triggers, flow starts, and last faults.

mod forward;
mod host;
mod setup;
mod watch;

use crate::control::Control;
use crate::event::{Event, EventQueue};
use crate::fault::FaultKind;
use crate::measure::{Captured, FlowRecord, GroupSeries, PacketCounters, PathCounters};
use crate::plan::Plan;
use crate::pool::{NIL, Pool, Stop};
use crate::port::{Arrival, DATA, Limits, Port, flag};
use crate::route::Router;
use crate::topology::{LinkId, NodeId};
use host::Host;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use strandway_proto::Packet;

pub(crate) use setup::Cut;

/// First source number of each kind of event; the first kind (arrivals, by link) starts at 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    pub(crate) look: u32,
    pub(crate) wake: u32,
    pub(crate) pause: u32,
    pub(crate) trigger: u32,
    pub(crate) flow: u32,
    pub(crate) fault: u32,
}

impl Sources {
    pub(crate) fn new(plan: &Plan) -> Sources {
        let links = plan.topology.links();
        let look = links;
        let wake = look + links;
        let pause = wake + plan.topology.hosts();
        let trigger = pause + links;
        let flow = trigger + 2 * plan.flows.len() as u32;
        Sources { look, wake, pause, trigger, flow, fault: flow + plan.flows.len() as u32 }
    }
}

/// What crosses from one slice to another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crossing {
    /// A packet on a link.
    Packet { time: u64, link: u32, node: u32, packet: Packet },
    /// A pause frame for the port that feeds a link.
    Pause { time: u64, link: u32, on: bool },
    /// A flow fired a trigger; `source` orders it.
    Trigger { time: u64, source: u32, trigger: u32 },
    /// A trigger released a flow.
    Release { time: u64, flow: u32 },
}

/// An instant at which something of the fault plan begins or ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultEvent {
    /// A port's rate becomes this fraction of its nominal one.
    Rate(LinkId, f64),
    /// A port's own NIC or switch learns that its link is down, or up again.
    Seen(LinkId, bool),
    /// Routing learns that a link is dead, or alive again.
    Routed(LinkId, bool),
}

/// When a faulty link delivers nothing, or loses some.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkFaults {
    pub(crate) down: Vec<Range<u64>>,
    pub(crate) loss: Vec<(Range<u64>, f64)>,
}

/// Events whose state is fetched together: enough to overlap their misses, few enough to stay in the cache.
const FETCH_BATCH: usize = 32;

/// The state of one slice.
pub(crate) struct Slice<'a> {
    plan: &'a Plan,
    cut: &'a Cut,
    index: usize,
    sources: Sources,
    router: Router,
    events: EventQueue,
    pool: Pool,
    /// Ports of the hosts, leaves, tier-1 switches and cores that this slice owns, in that order.
    ports: Vec<Port>,
    /// What to subtract from a link's number to find its port here, per kind of node.
    offsets: [i64; 4],
    /// Starts and sizes of the packets that wait in each plain first-in-first-out port; empty if there is none.
    fifos: Vec<VecDeque<(u64, u32)>>,
    limits: Vec<Limits>,
    faults: BTreeMap<u32, LinkFaults>,
    fault_events: &'a [(u64, FaultEvent)],
    /// Data bytes buffered per switch (shared buffers), by local switch number.
    buffered: Vec<u64>,
    hosts: Vec<Host>,
    first_host: u32,
    /// Flows of each trigger, and how often it must still fire.
    triggers: Vec<(u32, Vec<u32>)>,
    pub(crate) outbox: Vec<Vec<Crossing>>,
    pub(crate) now: u64,
    pub(crate) flows: Vec<FlowRecord>,
    pub(crate) packets: PacketCounters,
    pub(crate) paths: Vec<PathCounters>,
    pub(crate) captured: Vec<Captured>,
    /// Routing changes during the run, so that packets are routed when they arrive.
    route_late: bool,
    /// The state is too large for the caches: fetch ahead.
    fetching: bool,
    /// Packets that have left and whose next stops are not told yet.
    leaving: Vec<(Arrival, Stop)>,
    /// When they have to be; `u64::MAX` if there are none.
    tell_by: u64,
    /// Half the shortest delay: the least time from deciding a departure to the arrival.
    lookahead: u64,
    /// Ports of switches are eager.
    eager: bool,
    /// PFC: account for what comes in by each port.
    accounting: bool,
    priority: bool,
    sampling: bool,
    planes: usize,
    pub(crate) events_done: u64,
    pub(crate) hops: u64,
    pub(crate) finished: u64,
    pub(crate) finished_at: u64,
    reported: (u64, u64),
    sampler: watch::Sampler,
}

impl<'a> Slice<'a> {
    /// Time of the next event; `u64::MAX` if there is none.
    pub(crate) fn next_time(&mut self) -> u64 {
        self.tell();
        self.events.peek()
    }

    /// Processes every event before `limit`. Stops early if asked to.
    pub(crate) fn run_before(&mut self, limit: u64, control: &Control) {
        let mut countdown = 0u32;
        loop {
            if self.events.is_bucket_done() {
                self.tell();
                if countdown > 4096 {
                    countdown = 0;
                    self.report(control);
                    if control.stopping() {
                        return;
                    }
                }
                if self.events.is_bucket_done() && !self.events.advance() {
                    return;
                }
            }
            if self.fetching {
                self.fetch_ahead();
            }
            let Some(event) = self.events.pop_before(limit.min(self.tell_by)) else {
                if self.tell_by == u64::MAX {
                    return;
                }
                self.tell();
                continue;
            };
            if event.time >= self.sampler.next {
                self.sample_before(event.time);
            }
            self.now = event.time;
            self.events_done += 1;
            countdown += 1;
            self.handle(event);
        }
    }

    /// Reads what the next events are about to touch, all at once, so that their cache misses overlap. Changes nothing.
    #[inline]
    fn fetch_ahead(&mut self) {
        if !self.events.begin_batch(FETCH_BATCH) {
            return;
        }
        self.tell();
        let batch = self.events.batch();
        let (look, wake, pause) = (self.sources.look, self.sources.wake, self.sources.pause);
        let mut sum = 0u64;
        let mut inboxes: [&[Arrival]; FETCH_BATCH] = [&[]; FETCH_BATCH];
        let mut waiting = [NIL; FETCH_BATCH];
        for ((event, inbox), first) in batch.iter().zip(&mut inboxes).zip(&mut waiting) {
            if (look..wake).contains(&event.source) {
                let port = &self.ports[self.local(event.source - look)];
                sum = sum.wrapping_add(port.busy_until ^ port.paused);
                *inbox = &port.inbox;
                *first = port.head[DATA];
            } else if (wake..pause).contains(&event.source) {
                let host = &self.hosts[(event.source - wake - self.first_host) as usize];
                sum = sum.wrapping_add(host.touch());
                *inbox = host.inbox();
            }
        }
        for arrival in inboxes.iter().flat_map(|inbox| inbox.iter().take(16)) {
            sum = sum.wrapping_add(u64::from(self.pool[arrival.slot].packet.size));
        }
        for arrival in inboxes.iter().flat_map(|inbox| inbox.iter().take(3)) {
            let slot = &self.pool[arrival.slot];
            if let Some(host) = slot.stop.as_host() {
                sum = sum.wrapping_add(self.hosts[host].endpoint.touch(slot.packet.connection));
            }
        }
        // Queues are chains: follow all of them in step.
        for _ in 0..8 {
            for slot in waiting.iter_mut().filter(|slot| **slot != NIL) {
                *slot = self.pool[*slot].next;
            }
        }
        std::hint::black_box(sum);
    }

    /// Tells whoever watches how far we are.
    pub(crate) fn report(&mut self, control: &Control) {
        control.reached(strandway_proto::Time(self.now));
        control.add(self.finished - self.reported.0, self.hops - self.reported.1);
        self.reported = (self.finished, self.hops);
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        let source = event.source;
        if source < self.sources.look {
            self.arrive(event);
        } else if source < self.sources.wake {
            let port = self.local(source - self.sources.look);
            self.look(port, event.time);
        } else if source < self.sources.pause {
            let host = (source - self.sources.wake - self.first_host) as usize;
            self.wake(host, event.time);
        } else if source < self.sources.trigger {
            let port = self.local(source - self.sources.pause);
            self.pause(port, event.time, event.data != 0);
        } else if source < self.sources.flow {
            self.fire_here(event.data, event.time);
        } else if source < self.sources.fault {
            self.start(event.data, event.time);
        } else {
            self.break_or_mend(event.data as usize, event.time);
        }
    }

    /// Takes over what another slice sent.
    pub(crate) fn receive(&mut self, crossing: Crossing) {
        let event = match crossing {
            Crossing::Packet { time, link, node, packet } => {
                let slot = self.pool.put(packet);
                self.pool[slot].stop = self.stop(node, &packet);
                return self.send_on(time, link, slot);
            }
            Crossing::Pause { time, link, on } => Event { time, source: self.sources.pause + link, data: u32::from(on) },
            Crossing::Trigger { time, source, trigger } => Event { time, source, data: trigger },
            Crossing::Release { time, flow } => Event { time, source: self.sources.flow + flow, data: flow },
        };
        self.events.push(event);
    }

    /// The local number of a link's port.
    #[inline]
    fn local(&self, link: u32) -> usize {
        let bases = &self.cut.link_bases;
        let kind = usize::from(link >= bases[1]) + usize::from(link >= bases[2]) + usize::from(link >= bases[3]);
        (i64::from(link) - self.offsets[kind]) as usize
    }

    fn break_or_mend(&mut self, index: usize, now: u64) {
        let (_, event) = self.fault_events[index];
        match event {
            FaultEvent::Routed(link, dead) => self.router.set_dead(link, dead),
            FaultEvent::Rate(link, fraction) => {
                let i = self.local(link.0);
                self.advance(i, now);
                let Some(ends) = self.plan.topology.ends(link) else { return };
                let nominal = self.plan.topology.level(ends.level).rate;
                let limits = self.limits_at(fraction);
                let port = &mut self.ports[i];
                port.set_rate(if fraction == 1.0 { nominal } else { nominal.scaled(fraction) });
                port.limits = limits;
            }
            FaultEvent::Seen(link, down) => {
                let i = self.local(link.0);
                self.advance(i, now);
                self.ports[i].set(flag::DOWN, down);
                if link.0 < self.cut.link_bases[1] {
                    let host = (link.0 / u32::from(self.plan.topology.planes()) - self.first_host) as usize;
                    self.ports_changed(host, now);
                }
            }
        }
    }

    /// The index of the limits of ports at this fraction of their rate.
    fn limits_at(&mut self, fraction: f64) -> u8 {
        let limits = Limits::new(&self.plan.ports, fraction);
        let index = self.limits.iter().position(|l| *l == limits).unwrap_or_else(|| {
            self.limits.push(limits);
            self.limits.len() - 1
        });
        u8::try_from(index).expect("at most 255 different degradations in one run")
    }

    fn node_of(&self, port: usize) -> NodeId {
        self.plan.topology.ends(LinkId(self.ports[port].link)).expect("a port in use leads somewhere").from
    }

    /// Faults that the plan holds, as what each link and each instant needs.
    pub(crate) fn schedule(plan: &Plan) -> (BTreeMap<u32, LinkFaults>, Vec<(u64, FaultEvent)>) {
        let mut links: BTreeMap<u32, LinkFaults> = BTreeMap::new();
        let mut events = Vec::new();
        for fault in &plan.faults {
            let range = fault.from.0..fault.until.0;
            for &link in &fault.links {
                match fault.kind {
                    FaultKind::Down { visible } => {
                        links.entry(link.0).or_default().down.push(range.clone());
                        if let Some(delay) = visible {
                            events.push((range.start, FaultEvent::Seen(link, true)));
                            events.push((range.start.saturating_add(delay.0), FaultEvent::Routed(link, true)));
                            events.push((range.end, FaultEvent::Seen(link, false)));
                            events.push((range.end.saturating_add(delay.0), FaultEvent::Routed(link, false)));
                        }
                    }
                    FaultKind::Degraded { fraction } => {
                        events.push((range.start, FaultEvent::Rate(link, fraction)));
                        events.push((range.end, FaultEvent::Rate(link, 1.0)));
                    }
                    FaultKind::Loss { probability } => {
                        links.entry(link.0).or_default().loss.push((range.clone(), probability));
                    }
                }
            }
        }
        events.retain(|(time, _)| *time != u64::MAX);
        events.sort_by_key(|(time, _)| *time);
        (links, events)
    }

    /// Brings every port and host up to `limit`, so that all counters stand at that instant.
    pub(crate) fn settle(&mut self, limit: u64) {
        for i in 0..self.ports.len() {
            self.advance(i, limit);
        }
        for host in 0..self.hosts.len() {
            self.advance_host(host, limit);
        }
        for port in &mut self.ports {
            if port.has(flag::PAUSED) {
                port.paused += limit.saturating_sub(port.paused_since);
                port.paused_since = limit;
            }
        }
    }

    /// Time series of this slice's links and arrivals.
    pub(crate) fn take_series(&mut self) -> (Vec<u64>, Vec<GroupSeries>) {
        self.sampler.take()
    }

    /// This slice's ports, each with its number in the topology.
    pub(crate) fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// This slice's hosts, and the number of the first.
    pub(crate) fn hosts(&self) -> (u32, &[Host]) {
        (self.first_host, &self.hosts)
    }

    /// Packets still inside the fabric.
    pub(crate) fn packets_inside(&self) -> usize {
        self.pool.used()
    }
}
