//! A host in the fabric: an endpoint and its NIC ports.

use super::fabric::Fabric;
use super::host_program::{CHUNK, FRAGMENT};
use super::{FaultEvent, PACKETS_AHEAD, Slice};
use crate::calendar::LocalEvent;
use crate::port::flag;
use crate::road::Transit;
use strandway_fabric::measure::{PATH_SLOTS, PathCounters};
use strandway_proto::application::{Application, Event};
use strandway_proto::packet::{Chunk, Flags, Header};
use strandway_proto::units::Time;
use strandway_proto::{Blocked, ControlMessage, Endpoint, Handled, Packet, PathId, Ports};

/// A host. Like ports, hosts are lazy: all events of a host in one window are processed in one visit, in order of time.
pub(crate) struct Host {
    pub(crate) endpoint: Endpoint,
    /// When its program wants to be woken; `u64::MAX` if it only waits for events.
    pub(super) wake_at: u64,
    /// The window in which a visit is due; `u64::MAX` before the first.
    visit: u64,
    /// All its events up to this time are processed.
    pub(super) now: u64,
    /// When it has to do something next, if no event comes before.
    next_at: u64,
    /// Its endpoint had no packet for the free ports. Another poll is useless before this time.
    pub(super) ask_again_at: u64,
    /// The ports that were idle at the last check, and when the first of the others becomes idle.
    idle: u32,
    idle_next: u64,
    /// One of its ports is paused or down.
    blocked: bool,
}

impl Host {
    /// When the last thing happened here.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// A host whose program wants to be woken at `wake_at`.
    pub(super) fn new(endpoint: Endpoint, wake_at: u64) -> Host {
        Host {
            endpoint,
            wake_at,
            visit: u64::MAX,
            now: 0,
            next_at: wake_at,
            ask_again_at: 0,
            idle: 0,
            idle_next: 0,
            blocked: false,
        }
    }
}

impl Slice<'_> {
    /// Processes all events of a host from `from` up to `until`, which is a window or a part of one.
    pub(super) fn visit_host(&mut self, h: usize, entries: &[Transit], from: u64, until: u64) {
        for (n, entry) in entries.iter().enumerate() {
            if let Some(later) = entries.get(n + PACKETS_AHEAD).filter(|e| e.source() < self.config.sources.look) {
                self.fabric.cargo.prefetch(later);
            }
            let time = from + entry.offset();
            if time >= until {
                self.clock.cut_off = true;
                break;
            }
            if entry.source() < self.config.sources.look {
                if self.hosts.work.is_some() && entry.is_whole_data() {
                    self.queue_for_work(h, time, entry);
                } else {
                    self.deliver(h, time, entry);
                }
            } else {
                self.disturb(h, time, &LocalEvent { source: entry.source(), data: entry.cargo() });
            }
        }
        self.run_host(h, until);
        self.recorder.sampler.visited(h, &self.hosts.all[h].endpoint, until);
        self.come_back(h, until);
    }

    /// Plans the next visit to a host that still has something to do after `until`.
    #[inline]
    pub(super) fn come_back(&mut self, h: usize, until: u64) {
        let host = &mut self.hosts.all[h];
        if host.next_at != u64::MAX {
            let window = self.clock.calendar.window_of(host.next_at);
            // Timers move later with every packet, so one planned visit before them is enough. A window that the end of
            // the run cuts short does not count.
            let ahead = until.checked_sub(1).map_or(0, |last| self.clock.calendar.window_of(last) + 1);
            if window < ahead {
                self.clock.cut_off = true;
            } else if !(ahead..=window).contains(&host.visit) {
                host.visit = window;
                self.clock.calendar.visit(host.next_at, self.config.first_host_stop + h as u32);
            }
        }
    }

    /// Processes an event of a host that is not a packet.
    fn disturb(&mut self, h: usize, now: u64, note: &LocalEvent) {
        if self.hosts.all[h].next_at < now {
            self.run_host(h, now);
        }
        // A program wakes before a fault of the same instant. Its wake-up time is known only after all earlier events
        // are processed.
        if note.source >= self.config.sources.fault && self.hosts.all[h].wake_at == now {
            self.run_host(h, now + 1);
        }
        let host = &mut self.hosts.all[h];
        host.now = now;
        host.ask_again_at = 0;
        if note.source < self.config.sources.signal {
            let port = self.local(note.source - self.config.sources.pause);
            self.handle_link_news(port, now, note.data);
            self.notify_blocked(h, port, now);
        } else if note.source < self.config.sources.fault {
            let signal = Event::Signal { order: note.source - self.config.sources.signal, word: note.data };
            self.hosts.programs[h].handle_event(Time(now), &signal);
            self.act(h, now);
        } else {
            self.break_or_mend(note.data as usize, now);
            if let (_, FaultEvent::Seen(link, down)) = self.config.fault_events[note.data as usize] {
                let port = (link.0 % self.config.planes as u32) as u8;
                self.hosts.all[h].endpoint.handle_port(Time(now), port, !down);
                self.notify_blocked(h, h * self.config.planes + usize::from(port), now);
                let ports = &self.ports[h * self.config.planes..(h + 1) * self.config.planes];
                let up = ports.iter().zip(0..).fold(0, |up, (port, n)| up | u32::from(!port.has(flag::DOWN)) << n);
                self.hosts.programs[h].handle_event(Time(now), &Event::Ports { up });
                self.act(h, now);
            }
        }
        self.refresh_ports(h);
        self.run_host(h, now + 1);
    }

    /// Reads the state of a host's ports again, after it may have changed.
    fn refresh_ports(&mut self, h: usize) {
        let ports = &self.ports[h * self.config.planes..(h + 1) * self.config.planes];
        let host = &mut self.hosts.all[h];
        host.blocked = ports.iter().any(|p| p.flags & (flag::PAUSED | flag::DOWN) != 0);
        host.idle_next = 0;
        for (busy, port) in self.hosts.nics[h * self.config.planes..].iter_mut().zip(ports) {
            *busy = port.busy_until;
        }
    }

    /// The ports of a host that are idle at `now`, and when the first of the others becomes idle. Only valid if no port
    /// is blocked.
    #[inline]
    fn idle_ports(&mut self, h: usize, now: u64) -> (u32, u64) {
        let host = &mut self.hosts.all[h];
        if host.idle_next <= now {
            host.idle = 0;
            host.idle_next = u64::MAX;
            for (plane, &busy) in
                self.hosts.nics[h * self.config.planes..(h + 1) * self.config.planes].iter().enumerate()
            {
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
    fn notify_blocked(&mut self, h: usize, port: usize, now: u64) {
        let state = &self.ports[port];
        let blocked = match (state.has(flag::DOWN), state.has(flag::PAUSED)) {
            (true, _) => Some(Blocked::Down),
            (false, true) => Some(Blocked::Paused),
            (false, false) => None,
        };
        self.hosts.all[h].endpoint.handle_blocked(Time(now), (port % self.config.planes) as u8, blocked);
    }

    /// A packet has arrived at a host.
    #[inline]
    fn deliver(&mut self, h: usize, now: u64, transit: &Transit) {
        if self.hosts.all[h].next_at < now {
            self.run_host(h, now);
        }
        let packet = self.fabric.cargo.packet_with_marks(transit);
        let translated;
        let packet = match &self.hosts.tables {
            None => packet,
            Some(tables) => {
                translated = tables.translate_back(packet);
                &translated
            }
        };
        let is_data = matches!(packet.header, Header::Data(_));
        match &packet.header {
            Header::Chunk(chunk) => {
                let (chunk, packet) = (*chunk, *packet);
                return self.deliver_chunk(h, now, transit, &packet, chunk);
            }
            Header::Fragment(fragment) => {
                let what = u64::from(fragment.number) << 24 | u64::from(fragment.job) << 8 | fragment.kind as u64;
                let event = Event::Fragment(*packet);
                return self.deliver_fragment(h, now, transit, what, &event);
            }
            Header::Ack(ack) => note_feedback(&mut self.recorder.paths, ack.path, packet.flags, false),
            Header::Nack(nack) => note_feedback(&mut self.recorder.paths, nack.path, packet.flags, true),
            _ => {}
        }
        let host = &mut self.hosts.all[h];
        host.now = now;
        host.ask_again_at = 0;
        // The payload series do not include channels that open at first use.
        let sampled = self.config.sampling && host.endpoint.observe().is_open(packet.connection);
        let before = if sampled { host.endpoint.observe().stats(packet.connection).delivered_bytes } else { 0 };
        let handled = if self.config.telemetry {
            host.endpoint.handle_packet_with(Time(now), packet, self.fabric.carried.of(transit))
        } else {
            host.endpoint.handle_packet(Time(now), packet)
        };
        if sampled {
            // The packet may have closed the connection.
            let after = host
                .endpoint
                .observe()
                .is_open(packet.connection)
                .then(|| host.endpoint.observe().stats(packet.connection));
            let news = after.map_or(0, |stats| stats.delivered_bytes - before);
            if news > 0 {
                self.recorder.sampler.delivered(h, now, packet, news);
            }
        } else {
            match handled {
                Handled::Here | Handled::Fresh => {}
                Handled::Stray => self.recorder.packets.discarded += u64::from(transit.is_whole_data()),
                Handled::Unknown => {
                    let packet = *packet;
                    self.accept(h, now, &packet, transit);
                }
            }
        }
        self.fabric.cargo.release(transit);
        let told = self.notify(h, now);
        // Data that needs no answer yet does not change the host's next action. A part of a message may change it,
        // because its receiver has timers.
        let host = &self.hosts.all[h];
        let quiet = is_data && host.next_at > now && !told;
        if !quiet || host.endpoint.wants_control() {
            self.run_host(h, now + 1);
        }
    }

    /// A data packet has come to a host whose threads take time for it.
    fn queue_for_work(&mut self, h: usize, now: u64, transit: &Transit) {
        let (Some(work), Some(settings)) = (&mut self.hosts.work, self.config.plan.ports.receive) else { return };
        let work = &mut work[h];
        if work.waiting.len() >= settings.queue as usize {
            self.recorder.packets.discarded += 1;
            return self.fabric.cargo.release(transit);
        }
        work.busy_until = work.busy_until.max(now) + settings.per_packet.0;
        work.waiting.push_back((work.busy_until, *transit));
        let host = &mut self.hosts.all[h];
        host.next_at = host.next_at.min(work.busy_until);
    }

    /// When the work of the next waiting packet is done; `u64::MAX` if none waits.
    #[inline]
    fn next_work(&self, h: usize) -> u64 {
        let Some(work) = &self.hosts.work else { return u64::MAX };
        work[h].waiting.front().map_or(u64::MAX, |(time, _)| *time)
    }

    /// The work of the first waiting packet is done.
    #[cold]
    fn finish_work(&mut self, h: usize, now: u64) {
        if let Some((_, transit)) = self.hosts.work.as_mut().and_then(|work| work[h].waiting.pop_front()) {
            self.deliver(h, now, &transit);
        }
    }

    /// A chunk has arrived at a host, whole or trimmed: passes it to the program, because it belongs to no connection.
    fn deliver_chunk(&mut self, h: usize, now: u64, transit: &Transit, packet: &Packet, chunk: Chunk) {
        let trimmed = packet.flags.has(Flags::TRIMMED);
        self.recorder.packets.chunks_arrived += u64::from(!trimmed);
        if self.config.sampling && !trimmed {
            self.recorder.sampler.delivered(h, now, packet, u64::from(chunk.length));
        }
        self.fabric.cargo.release(transit);
        let host = &mut self.hosts.all[h];
        host.now = now;
        let wake_at = host.wake_at;
        let last = packet.flags.has(Flags::LAST);
        let (plane, Chunk { task, chunk: number, .. }) = (packet.path.port(), chunk);
        let tree = packet.destination.as_group().map(|_| packet.path.entropy());
        let event = Event::Chunk { from: packet.source, task, chunk: number, plane, tree, trimmed, last };
        self.hosts.fingerprints[h].add([CHUNK, u64::from(chunk.chunk) << 1 | u64::from(trimmed), now]);
        self.hosts.programs[h].handle_event(Time(now), &event);
        // Most chunks cause no action.
        if self.act(h, now) || self.hosts.all[h].wake_at < wake_at {
            self.run_host(h, now + 1);
        }
    }

    /// A fragment has arrived at a host: passes it to the program, because it belongs to no connection. `what` is its
    /// part of the fingerprint.
    fn deliver_fragment(&mut self, h: usize, now: u64, transit: &Transit, what: u64, event: &Event) {
        self.recorder.packets.fragments_arrived += u64::from(transit.is_whole_data());
        self.fabric.cargo.release(transit);
        let host = &mut self.hosts.all[h];
        host.now = now;
        let wake_at = host.wake_at;
        self.hosts.fingerprints[h].add([FRAGMENT, what, now]);
        self.hosts.programs[h].handle_event(Time(now), event);
        if self.act(h, now) || self.hosts.all[h].wake_at < wake_at {
            self.run_host(h, now + 1);
        }
    }

    /// Runs a host's own actions before `until` in order of time: timers, wake-ups of its program, and transmissions.
    #[inline]
    pub(super) fn run_host(&mut self, h: usize, until: u64) {
        loop {
            let host = &self.hosts.all[h];
            let timer = host.endpoint.poll_timeout().map_or(u64::MAX, |t| t.0);
            let wake = host.wake_at;
            let transmit = self.next_transmission(h);
            let work = self.next_work(h);
            let post = self.next_post(h);
            let next = timer.min(transmit).min(wake).min(work).min(post);
            let host = &mut self.hosts.all[h];
            host.next_at = next;
            if next >= until {
                return;
            }
            host.now = host.now.max(next);
            let now = host.now;
            if work == next {
                self.finish_work(h, now);
            } else if post == next {
                self.finish_post(h, now);
            } else if timer == next {
                host.endpoint.handle_timeout(Time(now));
                host.ask_again_at = 0;
                self.notify(h, now);
            } else if transmit == next {
                self.ask(h, now);
            } else {
                self.hosts.programs[h].handle_timeout(Time(now));
                self.act(h, now);
            }
        }
    }

    /// When a host with something to send will next have an idle port; `u64::MAX` if it has nothing to send.
    #[inline]
    fn next_transmission(&mut self, h: usize) -> u64 {
        let host = &self.hosts.all[h];
        if !host.endpoint.wants_transmit() {
            return u64::MAX;
        }
        let since = host.now.max(host.ask_again_at);
        if !host.blocked {
            let (idle, next) = self.idle_ports(h, self.hosts.all[h].now);
            return if idle != 0 { since } else { next.max(since) };
        }
        let planes = self.config.planes;
        let control = host.endpoint.wants_control();
        let idle = self.ports[h * planes..(h + 1) * planes]
            .iter()
            .filter(|p| !p.has(flag::DOWN) && (control || !p.has(flag::PAUSED)))
            .map(|p| p.busy_until)
            .min()
            .unwrap_or(u64::MAX);
        idle.max(since)
    }

    /// Polls a host for one packet for the ports that are idle at `now`.
    fn ask(&mut self, h: usize, now: u64) {
        let planes = self.config.planes;
        let first = h * planes;
        let (mut free, mut next_free) = (Ports { data: 0, control: 0 }, u64::MAX);
        if !self.hosts.all[h].blocked {
            let idle;
            (idle, next_free) = self.idle_ports(h, now);
            free = Ports { data: idle, control: idle };
        }
        let blocked = self.hosts.all[h].blocked;
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
        let place = self.fabric.cargo.open();
        let packet = self.fabric.cargo.at(place);
        if !self.hosts.all[h].endpoint.poll_transmit_into(Time(now), free, packet) {
            // Ready packets may have no free port. The next input or the next idle port can change that.
            self.hosts.all[h].ask_again_at = next_free;
            self.fabric.cargo.close(place);
            return;
        }
        let (path, flags, group) = (packet.path, packet.flags, packet.destination.as_group());
        let plane = usize::from(path.port());
        assert!(free.control >> plane & 1 == 1, "an endpoint sends only by ports that are free");
        let mut is_chunk = false;
        match &packet.header {
            Header::Data(data) => {
                let (message, first) = (data.message.0, data.offset.get() == 0);
                self.note_data(h, (path, flags), message, first, now);
            }
            // A parity packet is not the first packet of its message.
            Header::Part(part) => {
                let (message, first) = ({ part.message }.0, part.packet == 0 && !part.parity);
                self.note_data(h, (path, flags), message, first, now);
            }
            Header::Ack(_) | Header::Control(ControlMessage::Have(_) | ControlMessage::Recovered(_)) => {
                self.recorder.packets.acks += 1;
            }
            Header::Nack(_) | Header::Control(ControlMessage::Missing(_)) => self.recorder.packets.nacks += 1,
            Header::Cnp => self.recorder.packets.notifications += 1,
            Header::Chunk(_) => {
                is_chunk = true;
                self.recorder.packets.chunks += 1;
                self.recorder.packets.repairs += u64::from(group.is_none());
                self.note_sent(path);
            }
            Header::Fragment(fragment) => {
                self.recorder.packets.fragments += u64::from(fragment.kind.has_elements());
                self.note_sent(path);
            }
            _ => {}
        }
        let Fabric { router, cargo, .. } = &mut self.fabric;
        let packet = cargo.at(place);
        if let Some(tables) = &mut self.hosts.tables {
            tables.translate(router, packet);
        }
        let uplinks = match group {
            None => router.uplinks(packet),
            Some(_) => router.tree(&self.config.plan.multicast, packet, now),
        };
        let mut transit = cargo.sent(place, uplinks);
        if self.config.no_trim[usize::from(flags.has(Flags::RETRANSMITTED))] {
            transit.forbid_trimming();
        }
        if self.config.telemetry {
            let telemetry = self.hosts.all[h].endpoint.take_telemetry(cargo.packet_with_marks(&transit));
            self.fabric.carried.put(&transit, telemetry);
        }
        let is_paid = self.config.link_credit.is_some() && !transit.is_control();
        let lost_before = if is_paid { self.fabric.colds[first + plane].lost } else { 0 };
        let mut at = self.at(first + plane);
        at.transmit(transit, now);
        let busy = at.port.busy_until;
        self.hosts.nics[first + plane] = busy;
        if is_paid && self.spend_link_credit(first + plane, transit.size(), lost_before, now) {
            self.notify_blocked(h, first + plane, now);
            self.refresh_ports(h);
        }
        let host = &mut self.hosts.all[h];
        host.idle &= !(1 << plane);
        host.idle_next = host.idle_next.min(busy);
        if is_chunk {
            // It may be the last chunk of a cast, and then the program gets an event.
            self.notify(h, now);
        }
    }

    #[inline]
    fn note_sent(&mut self, path: PathId) {
        let slot = usize::from(path.port()) * PATH_SLOTS + path.entropy() as usize % PATH_SLOTS;
        self.recorder.paths[slot].sent += 1;
    }

    /// Counts a sent packet of a message; `first`: it is the message's first packet.
    #[inline]
    fn note_data(&mut self, h: usize, (path, flags): (PathId, Flags), message: u32, first: bool, now: u64) {
        self.note_sent(path);
        let last = flags.has(Flags::LAST);
        if (last || first) && !flags.has(Flags::RETRANSMITTED) {
            self.note_progress(h, message, now, last);
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
