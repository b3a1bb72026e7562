//! A host in the fabric: an endpoint, its NIC ports, and the flows that start and end there.

use super::{Crossing, FaultEvent, Slice};
use crate::calendar::Note;
use crate::measure::{FlowTime, PATH_SLOTS, PathCounters};
use crate::plan::Start;
use crate::port::flag;
use crate::road::Transit;
use strandway_proto::account::Spent;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::units::{Span, Time};
use strandway_proto::{Endpoint, Event as Told, HostId, Message, MessageId, PathId, Ports};

/// A host. Like ports, hosts are lazy: everything that happens to one in a window is decided at once, in order of time.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    /// Flows that a trigger of its own has released: when each is posted, in order.
    released: Vec<(u64, u32)>,
    /// The window in which a visit is due; `u64::MAX` before the first.
    visit: u64,
    /// Brought up to here.
    now: u64,
    /// When it has something to do next: nothing happens before, unless it is told something.
    next_at: u64,
    /// Its endpoint had nothing for the ports that were free: no use in asking before this.
    ask_again_at: u64,
    /// Which of its ports were idle when that was last looked at, and when the first of the others falls idle.
    idle: u32,
    idle_next: u64,
    /// One of its ports is paused or down.
    blocked: bool,
}

/// A flow that is under way.
pub(super) struct Posted {
    at: u64,
    /// Where its connection's time had gone when it was posted, or when its first packet left.
    spent: Spent,
    /// Does it wait for earlier flows of its connection?
    behind: bool,
    /// For how long it did.
    waited: Span,
    /// Where its connection's time had gone when its last packet left for the first time.
    sent: Option<Spent>,
}

impl Host {
    /// When the last thing happened here.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn new(endpoint: Endpoint) -> Host {
        Host {
            endpoint,
            released: Vec::new(),
            visit: u64::MAX,
            now: 0,
            next_at: u64::MAX,
            ask_again_at: 0,
            idle: 0,
            idle_next: 0,
            blocked: false,
        }
    }
}

impl Slice<'_> {
    /// Decides everything that happens to a host from `from` up to `until`, a window or its part.
    pub(super) fn visit_host(&mut self, h: usize, entries: &[Transit], from: u64, until: u64) {
        for entry in entries {
            let time = from + entry.offset();
            if time >= until {
                self.cut_off = true;
                break;
            }
            if entry.source() < self.sources.look {
                self.deliver(h, time, entry);
            } else {
                self.disturb(h, time, &Note { source: entry.source(), data: entry.cargo() });
            }
        }
        self.run_host(h, until);
        self.sampler.visited(h, &self.hosts[h].endpoint, until);
        let host = &mut self.hosts[h];
        if host.next_at != u64::MAX {
            let window = self.calendar.window_of(host.next_at);
            // Timers move on with every packet: one visit ahead of them is enough.
            if !(self.calendar.window_of(until)..=window).contains(&host.visit) {
                host.visit = window;
                self.calendar.visit(host.next_at, self.first_host_stop + h as u32);
            }
        }
    }

    /// Something other than a packet comes to a host.
    fn disturb(&mut self, h: usize, now: u64, note: &Note) {
        if self.hosts[h].next_at < now {
            self.run_host(h, now);
        }
        let host = &mut self.hosts[h];
        host.now = now;
        host.ask_again_at = 0;
        if note.source < self.sources.trigger {
            let port = self.local(note.source - self.sources.pause);
            self.pause(port, now, note.data != 0);
            self.tell_blocked(h, port, now);
        } else if note.source < self.sources.flow {
            self.fire(note.data, HostId(self.first_host + h as u32), now);
        } else if note.source < self.sources.fault {
            self.post(h, note.data, now);
        } else {
            self.break_or_mend(note.data as usize, now);
            if let (_, FaultEvent::Seen(link, down)) = self.fault_events[note.data as usize] {
                let port = (link.0 % self.planes as u32) as u8;
                self.hosts[h].endpoint.handle_port(Time(now), port, !down);
                self.tell_blocked(h, h * self.planes + usize::from(port), now);
            }
        }
        self.look_at_ports(h);
        self.run_host(h, now + 1);
    }

    /// Something has happened to a host's ports, perhaps.
    fn look_at_ports(&mut self, h: usize) {
        let ports = &self.ports[h * self.planes..(h + 1) * self.planes];
        let host = &mut self.hosts[h];
        host.blocked = ports.iter().any(|p| p.flags & (flag::PAUSED | flag::DOWN) != 0);
        host.idle_next = 0;
        for (busy, port) in self.nics[h * self.planes..].iter_mut().zip(ports) {
            *busy = port.busy_until;
        }
    }

    /// The ports of a host that are idle at `now`, if none is blocked, and when the first of the others falls idle.
    #[inline]
    fn idle_ports(&mut self, h: usize, now: u64) -> (u32, u64) {
        let host = &mut self.hosts[h];
        if host.idle_next <= now {
            host.idle = 0;
            host.idle_next = u64::MAX;
            for (plane, &busy) in self.nics[h * self.planes..(h + 1) * self.planes].iter().enumerate() {
                if busy <= now {
                    host.idle |= 1 << plane;
                } else {
                    host.idle_next = host.idle_next.min(busy);
                }
            }
        }
        (host.idle, host.idle_next)
    }

    /// Tells a host whether one of its ports takes data.
    fn tell_blocked(&mut self, h: usize, port: usize, now: u64) {
        let blocked = self.ports[port].flags & (flag::PAUSED | flag::DOWN) != 0;
        self.hosts[h].endpoint.handle_blocked(Time(now), (port % self.planes) as u8, blocked);
    }

    /// A packet has arrived at a host.
    #[inline]
    fn deliver(&mut self, h: usize, now: u64, transit: &Transit) {
        if self.hosts[h].next_at < now {
            self.run_host(h, now);
        }
        let packet = self.cargo.look(transit);
        match &packet.header {
            Header::Ack(ack) => note_feedback(&mut self.paths, ack.path, packet.flags, false),
            Header::Nack(nack) => note_feedback(&mut self.paths, nack.path, packet.flags, true),
            Header::Data(_) | Header::Cnp | Header::Probe { .. } | Header::Operation { .. } | Header::Answer(_) => {}
        }
        let host = &mut self.hosts[h];
        host.now = now;
        host.ask_again_at = 0;
        if self.sampling {
            let before = host.endpoint.stats(packet.connection).delivered_bytes;
            host.endpoint.handle_packet(Time(now), packet);
            let news = host.endpoint.stats(packet.connection).delivered_bytes - before;
            if news > 0 {
                self.sampler.delivered(h, now, packet, news);
            }
        } else {
            host.endpoint.handle_packet(Time(now), packet);
        }
        let is_data = transit.is_data();
        self.cargo.release(transit);
        while let Some(told) = self.hosts[h].endpoint.poll_event() {
            self.told(h, now, told);
        }
        // Data that calls for no answer yet changes nothing about what the host does next.
        let host = &self.hosts[h];
        let quiet = is_data && host.next_at > now && host.released.is_empty();
        if !quiet || host.endpoint.wants_control() {
            self.run_host(h, now + 1);
        }
    }

    /// Lets a host do everything of its own accord before `until`: timers, releases and transmissions in order of time.
    #[inline]
    pub(super) fn run_host(&mut self, h: usize, until: u64) {
        loop {
            let host = &self.hosts[h];
            let timer = host.endpoint.poll_timeout().map_or(u64::MAX, |t| t.0);
            let release = host.released.first().map_or(u64::MAX, |r| r.0);
            let transmit = self.next_transmission(h);
            let next = timer.min(release).min(transmit);
            let host = &mut self.hosts[h];
            host.next_at = next;
            if next >= until {
                return;
            }
            host.now = host.now.max(next);
            let now = host.now;
            if timer == next {
                host.endpoint.handle_timeout(Time(now));
                host.ask_again_at = 0;
            } else if release == next {
                let (_, flow) = host.released.remove(0);
                self.post(h, flow, now);
            } else {
                self.ask(h, now);
            }
        }
    }

    /// When a host with something to send will next have an idle port for it; `u64::MAX` if it has nothing.
    #[inline]
    fn next_transmission(&mut self, h: usize) -> u64 {
        let host = &self.hosts[h];
        if !host.endpoint.wants_transmit() {
            return u64::MAX;
        }
        let since = host.now.max(host.ask_again_at);
        if !host.blocked {
            let (idle, next) = self.idle_ports(h, self.hosts[h].now);
            return if idle != 0 { since } else { next.max(since) };
        }
        let planes = self.planes;
        let control = host.endpoint.wants_control();
        let idle = self.ports[h * planes..(h + 1) * planes]
            .iter()
            .filter(|p| !p.has(flag::DOWN) && (control || !p.has(flag::PAUSED)))
            .map(|p| p.busy_until)
            .min()
            .unwrap_or(u64::MAX);
        idle.max(since)
    }

    /// Asks a host for one packet for the ports that are idle at `now`.
    fn ask(&mut self, h: usize, now: u64) {
        let planes = self.planes;
        let first = h * planes;
        let (mut free, mut next_free) = (Ports { data: 0, control: 0 }, u64::MAX);
        if !self.hosts[h].blocked {
            let idle;
            (idle, next_free) = self.idle_ports(h, now);
            free = Ports { data: idle, control: idle };
        }
        let blocked = self.hosts[h].blocked;
        let ports = if blocked { &self.ports[first..first + planes] } else { &[] };
        for (plane, port) in ports.iter().enumerate() {
            if port.has(flag::DOWN) {
                continue;
            }
            if port.busy_until <= now {
                free.control |= 1 << plane;
                free.data |= u32::from(!port.has(flag::PAUSED)) << plane;
            } else {
                next_free = next_free.min(port.busy_until);
            }
        }
        let Some(packet) = self.hosts[h].endpoint.poll_transmit(Time(now), free) else {
            // What is ready may have no free port to leave by; the next input or idle port can change that.
            self.hosts[h].ask_again_at = next_free;
            return;
        };
        let plane = usize::from(packet.path.port());
        assert!(free.control >> plane & 1 == 1, "an endpoint sends only by ports that are free");
        match packet.header {
            Header::Data(data) => {
                let slot = plane * PATH_SLOTS + packet.path.entropy() as usize % PATH_SLOTS;
                self.paths[slot].sent += 1;
                let last = packet.flags.has(Flags::LAST);
                if (last || data.offset.get() == 0) && !packet.flags.has(Flags::RETRANSMITTED) {
                    self.note_progress(h, data.message.0, now, last);
                }
            }
            Header::Ack(_) => self.packets.acks += 1,
            Header::Nack(_) => self.packets.nacks += 1,
            Header::Cnp => self.packets.notifications += 1,
            Header::Probe { .. } | Header::Operation { .. } | Header::Answer(_) => {}
        }
        let transit = self.cargo.put(&packet, self.router.uplinks(&packet));
        let mut at = self.at(first + plane);
        at.transmit(transit, now);
        let busy = at.port.busy_until;
        self.nics[first + plane] = busy;
        let host = &mut self.hosts[h];
        host.idle &= !(1 << plane);
        host.idle_next = host.idle_next.min(busy);
    }

    /// The application's part: flows end, and what waited for them begins.
    fn told(&mut self, h: usize, now: u64, told: Told) {
        let host = HostId(self.first_host + h as u32);
        match told {
            Told::Sent { message, .. } => {
                let record = &mut self.flows[message.0 as usize];
                record.finished = Some(Time(now));
                self.end_flow(h, message.0, now);
                self.finished += 1;
                self.finished_at = self.finished_at.max(now);
                if let Some(trigger) = self.plan.flows[message.0 as usize].on_sent {
                    self.pull(host, now, trigger, 2 * message.0);
                }
            }
            // What is not finished stays unfinished, and the report says so.
            Told::Failed { .. } => {}
            Told::Received { message, .. } => {
                self.flows[message.0 as usize].received = Some(Time(now));
                if let Some(trigger) = self.plan.flows[message.0 as usize].on_received {
                    self.pull(host, now, trigger, 2 * message.0 + 1);
                }
            }
        }
    }

    /// How long news takes from one host to another: nothing within a host, else the shortest link.
    fn news(&self, from: HostId, to: HostId) -> u64 {
        if from == to { 0 } else { self.plan.topology.shortest_latency().0 }
    }

    /// The host that counts a trigger: where the first flow that waits for it starts.
    fn home(&self, trigger: u32) -> Option<HostId> {
        let flow = *self.triggers[trigger as usize].1.first()?;
        Some(self.plan.connections[self.plan.flows[flow as usize].connection as usize].source)
    }

    /// A flow that ended at `host` fires a trigger.
    fn pull(&mut self, host: HostId, now: u64, trigger: u32, order: u32) {
        let Some(home) = self.home(trigger) else { return };
        if home == host {
            return self.fire(trigger, home, now);
        }
        let time = now + self.news(host, home);
        let source = self.sources.trigger + order;
        let target = self.cut.slice_of_host(home);
        if target == self.index {
            self.send_news(time, source, trigger);
        } else {
            self.outbox[target].push(Crossing::Trigger { time, source, trigger });
        }
    }

    /// News of a trigger fired elsewhere is on its way to the host that counts it.
    pub(super) fn send_news(&mut self, time: u64, source: u32, trigger: u32) {
        if let Some(home) = self.home(trigger) {
            self.calendar.note(time, self.host_stop(home.0), source, trigger);
        }
    }

    /// A flow will begin.
    pub(super) fn send_release(&mut self, time: u64, flow: u32) {
        let source = self.plan.connections[self.plan.flows[flow as usize].connection as usize].source;
        self.calendar.note(time, self.host_stop(source.0), self.sources.flow + flow, flow);
    }

    /// A trigger was fired; when that was the last time it needed, its flows begin.
    fn fire(&mut self, trigger: u32, home: HostId, now: u64) {
        let needed = &mut self.triggers[trigger as usize].0;
        if *needed == 0 {
            return;
        }
        *needed -= 1;
        if *needed > 0 {
            return;
        }
        for flow in self.triggers[trigger as usize].1.clone() {
            let plan = &self.plan.flows[flow as usize];
            let source = self.plan.connections[plan.connection as usize].source;
            let Start::On(_, delay) = plan.start else { continue };
            let time = now + delay.0 + self.news(home, source);
            let target = self.cut.slice_of_host(source);
            if source == home {
                let released = &mut self.hosts[(home.0 - self.first_host) as usize].released;
                let at = released.partition_point(|&(t, f)| (t, f) < (time, flow));
                released.insert(at, (time, flow));
            } else if target == self.index {
                self.send_release(time, flow);
            } else {
                self.outbox[target].push(Crossing::Release { time, flow });
            }
        }
        if let Some(then) = self.plan.triggers[trigger as usize].then {
            let there = self.home(then);
            assert!(there.is_none_or(|h| h == home), "trigger {then} is not counted where {trigger} is");
            self.fire(then, home, now);
        }
    }

    /// A flow's message is posted.
    fn post(&mut self, h: usize, flow: u32, now: u64) {
        let plan = &self.plan.flows[flow as usize];
        self.flows[flow as usize].started = Some(Time(now));
        let message = Message { id: MessageId(flow), bytes: plan.bytes };
        let connection = self.cut.ends[plan.connection as usize].0;
        let host = &mut self.hosts[h];
        let behind = self.plan.accounts && host.endpoint.has_unsent(connection);
        host.endpoint.post(Time(now), connection, message);
        host.ask_again_at = 0;
        if !self.plan.accounts {
            return;
        }
        let spent = host.endpoint.spent(Time(now), connection);
        self.under_way.insert(flow, Posted { at: now, spent, behind, waited: Span::ZERO, sent: None });
    }

    /// The first or the last packet of a flow leaves for the first time. If its connection was busy with earlier flows until
    /// the first one, it waited for them; after the last one, what the connection does is done for later flows.
    fn note_progress(&mut self, h: usize, flow: u32, now: u64, last: bool) {
        let connection = self.cut.ends[self.plan.flows[flow as usize].connection as usize].0;
        let Some(posted) = self.under_way.get_mut(&flow) else { return };
        let spent = self.hosts[h].endpoint.spent(Time(now), connection);
        if posted.behind {
            posted.behind = false;
            posted.waited = Span(now - posted.at);
            posted.spent = spent;
        }
        if last {
            posted.sent = Some(spent);
        }
    }

    /// Where the time of a flow went that has finished at `now`, or is under way.
    fn end_flow(&mut self, h: usize, flow: u32, now: u64) {
        let Some(posted) = self.under_way.remove(&flow) else { return };
        let connection = self.cut.ends[self.plan.flows[flow as usize].connection as usize].0;
        let time = if posted.behind {
            FlowTime { behind: Span(now.saturating_sub(posted.at)), spent: Spent::default() }
        } else {
            let spent = self.hosts[h].endpoint.spent(Time(now), connection);
            let sent = posted.sent.unwrap_or(spent);
            let mut mine = sent.since(&posted.spent);
            mine += spent.since(&sent).awaiting();
            FlowTime { behind: posted.waited, spent: mine }
        };
        debug_assert_eq!(time.total(), Span(now - posted.at), "the time of flow {flow} adds up");
        self.times.push((flow, time));
    }

    /// Ends the accounts of all flows that are not finished at `now`.
    pub(crate) fn close_accounts(&mut self, now: u64) {
        let left: Vec<u32> = self.under_way.keys().copied().collect();
        for flow in left {
            let source = self.plan.connections[self.plan.flows[flow as usize].connection as usize].source;
            let h = (source.0 - self.first_host) as usize;
            self.end_flow(h, flow, now.max(self.hosts[h].now));
        }
    }
}

#[inline]
fn note_feedback(paths: &mut [PathCounters], path: PathId, flags: Flags, trimmed: bool) {
    let slot = usize::from(path.port()) * PATH_SLOTS + path.entropy() as usize % PATH_SLOTS;
    if let Some(counters) = paths.get_mut(slot) {
        counters.marked += u64::from(flags.has(Flags::MARKED));
        counters.trimmed += u64::from(trimmed);
    }
}
