//! What a switch does with a packet: routes it, queues it, marks, trims, pauses, and sends it on.

use super::{Crossing, Slice};
use crate::event::Event;
use crate::measure::Captured;
use crate::pool::{NIL, Stop};
use crate::port::{Arrival, CONTROL, DATA, flag, sort_arrivals};
use crate::topology::LinkId;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::Packet;
use strandway_proto::units::{Bytes, Time};

/// Bytes of a PFC pause frame on the wire: a minimum Ethernet frame.
const PAUSE_FRAME: u16 = 64;

/// Stands for the bytes of a control packet in service: they are not accounted for.
const NOTHING_TO_RELEASE: u32 = u32::MAX;

/// What becomes of a packet that does not fit.
#[derive(PartialEq)]
enum Verdict {
    Drop,
    Trimmed,
}

impl Slice<'_> {
    /// What happens to a packet at the node that it is on its way to.
    #[inline]
    pub(super) fn stop(&self, node: u32, packet: &Packet) -> Stop {
        if node < self.cut.hosts {
            Stop::host(node - self.first_host)
        } else if self.route_late {
            Stop::late(node)
        } else {
            self.router.route(node, packet).map_or(Stop::NOWHERE, |link| Stop::port(self.local(link)))
        }
    }

    /// A packet is on its way and will be at its next stop at `time`. It need not be told there before half the shortest
    /// delay from now; until then it is kept with others, so that the misses of telling overlap.
    #[inline]
    pub(super) fn send_on(&mut self, time: u64, link: u32, slot: u32) {
        let stop = self.pool[slot].stop;
        if self.leaving.is_empty() {
            self.tell_by = self.now + self.lookahead;
        }
        self.leaving.push((Arrival { time, link, slot }, stop));
    }

    /// Tells the next stops of the packets that have left lately.
    pub(super) fn tell(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        if self.fetching {
            self.fetch_stops(&leaving);
        }
        for &(arrival, stop) in &leaving {
            if let Some(port) = stop.as_port().filter(|_| !self.eager) {
                let port = &mut self.ports[port];
                port.inbox.push(arrival);
                let look = arrival.time + port.delay / 2;
                if look < port.look_at {
                    port.look_at = look;
                    self.events.push(Event { time: look, source: self.sources.look + port.link, data: 0 });
                }
            } else if let Some(host) = stop.as_host() {
                self.send_to_host(host, arrival);
            } else {
                self.events.push(Event { time: arrival.time, source: arrival.link, data: arrival.slot });
            }
        }
        self.leaving = leaving;
        self.leaving.clear();
        self.tell_by = u64::MAX;
    }

    /// Reads what telling is about to touch. Changes nothing.
    fn fetch_stops(&self, leaving: &[(Arrival, Stop)]) {
        let mut sum = 0u64;
        for (_, stop) in leaving {
            if let Some(port) = stop.as_port() {
                sum = sum.wrapping_add(self.ports[port].look_at);
            } else if let Some(host) = stop.as_host() {
                sum = sum.wrapping_add(self.hosts[host].touch_inbox());
            }
        }
        for (_, stop) in leaving {
            if let Some(last) = stop.as_port().and_then(|port| self.ports[port].inbox.last()) {
                sum = sum.wrapping_add(last.time);
            }
        }
        std::hint::black_box(sum);
    }

    /// A packet is at a switch, all of it, and either that switch must know at once or routing may have changed.
    pub(super) fn arrive(&mut self, event: Event) {
        let slot = event.data;
        let stop = self.pool[slot].stop;
        let port = match stop.as_port() {
            Some(port) => port,
            None => match stop.as_late().and_then(|node| self.router.route(node, &self.pool[slot].packet)) {
                Some(link) => self.local(link),
                None => {
                    self.packets.lost += 1;
                    return self.pool.release(slot);
                }
            },
        };
        if self.accounting {
            self.pool[slot].ingress = self.local(self.cut.reverse[event.source as usize]) as u32;
        }
        self.enqueue(port, slot, event.time);
        self.look_later(port);
    }

    /// Decides everything that happens at a lazy port before `until`.
    #[inline]
    pub(super) fn advance(&mut self, i: usize, until: u64) {
        if !self.ports[i].inbox.is_empty() {
            let mut inbox = std::mem::take(&mut self.ports[i].inbox);
            sort_arrivals(&mut inbox);
            let mut done = 0;
            while let Some(arrival) = inbox.get(done).filter(|a| a.time < until) {
                self.enqueue(i, arrival.slot, arrival.time);
                done += 1;
            }
            inbox.drain(..done);
            self.ports[i].inbox = inbox;
        }
        self.drain(i, until);
    }

    /// A packet joins a switch port at `now`.
    #[inline]
    fn enqueue(&mut self, i: usize, slot: u32, now: u64) {
        let port = &self.ports[i];
        if port.flags & (flag::DOWN | flag::FIFO | flag::EAGER) != 0 {
            return self.enqueue_special(i, slot, now);
        }
        if port.busy_until < now {
            self.drain(i, now);
        }
        let port = &self.ports[i];
        if port.busy_until <= now && port.is_empty() {
            return self.transmit(i, slot, now);
        }
        let packet = &self.pool[slot].packet;
        let limits = &self.limits[usize::from(port.limits)];
        let class = if self.priority && packet.is_control() { CONTROL } else { DATA };
        let room = if class == DATA { limits.data } else { limits.control };
        if port.queued[class] + u32::from(packet.size) <= room {
            self.append(i, slot, class);
        } else if self.refuse(i, slot, class) == Verdict::Drop {
            self.discard(i, slot);
        }
    }

    /// Puts a packet at the end of a class's queue, marking it if marks are set there.
    #[inline]
    fn append(&mut self, i: usize, slot: u32, class: usize) {
        let port = &mut self.ports[i];
        let size = u32::from(self.pool[slot].packet.size);
        self.pool[slot].next = NIL;
        let tail = port.tail[class];
        if tail == NIL { port.head[class] = slot } else { self.pool[tail].next = slot }
        let port = &mut self.ports[i];
        port.tail[class] = slot;
        port.queued[class] += size;
        if class == DATA {
            port.counters.queue_max = port.counters.queue_max.max(port.queued[DATA]);
            if let Some(ecn) = self.limits[usize::from(port.limits)].ecn.filter(|e| !e.at_dequeue) {
                let data = matches!(self.pool[slot].packet.header, Header::Data(_));
                if data && ecn.marks(port.queued[DATA], &mut port.random) {
                    self.mark(i, slot);
                }
            }
        }
    }

    #[inline]
    fn mark(&mut self, i: usize, slot: u32) {
        let packet = &mut self.pool[slot].packet;
        packet.flags = packet.flags.with(Flags::CE);
        self.ports[i].counters.marked += 1;
    }

    /// A packet does not fit its class. In a port with classes a coin decides whether a new data packet or the one at the tail
    /// is trimmed (or, without trimming, dropped), as UEC's reference switch does, so that no sender is singled out by its
    /// phase. A single queue drops the newcomer.
    #[cold]
    fn refuse(&mut self, i: usize, slot: u32, class: usize) -> Verdict {
        if class == CONTROL {
            return Verdict::Drop;
        }
        let port = &mut self.ports[i];
        let tail = port.tail[DATA];
        if self.priority && tail != NIL && port.random.chance(0.5) {
            let (old, new) = (self.pool[tail].packet, self.pool[slot].packet);
            let (old_ingress, new_ingress) = (self.pool[tail].ingress, self.pool[slot].ingress);
            let fits = port.queued[DATA] - u32::from(old.size) + u32::from(new.size)
                <= self.limits[usize::from(port.limits)].data;
            if fits {
                port.queued[DATA] = port.queued[DATA] - u32::from(old.size) + u32::from(new.size);
                self.pool[tail].packet = new;
                self.pool[tail].ingress = new_ingress;
                self.pool[slot].packet = old;
                self.pool[slot].ingress = old_ingress;
            }
        }
        self.trim(i, slot)
    }

    /// Cuts a data packet to its header and puts it into the control class, if there is room.
    fn trim(&mut self, i: usize, slot: u32) -> Verdict {
        let port = &mut self.ports[i];
        let limits = &self.limits[usize::from(port.limits)];
        let packet = &mut self.pool[slot].packet;
        let Some(size) = limits.trim.filter(|_| matches!(packet.header, Header::Data(_))) else { return Verdict::Drop };
        if port.queued[CONTROL] + u32::from(size) > limits.control {
            return Verdict::Drop;
        }
        packet.size = size.min(packet.size);
        packet.flags = packet.flags.with(Flags::TRIMMED).with_if(port.has(flag::LAST), Flags::TRIMMED_AT_LAST_HOP);
        port.counters.trimmed += 1;
        self.append(i, slot, CONTROL);
        Verdict::Trimmed
    }

    fn discard(&mut self, i: usize, slot: u32) {
        self.ports[i].counters.dropped += 1;
        self.pool.release(slot);
    }

    /// The rarer kinds of port.
    fn enqueue_special(&mut self, i: usize, slot: u32, now: u64) {
        if self.ports[i].has(flag::DOWN) {
            self.ports[i].counters.lost += 1;
            self.packets.lost += 1;
            self.pool.release(slot);
        } else if self.ports[i].has(flag::FIFO) {
            self.drain_fifo(i, now);
            self.enqueue_fifo(i, slot, now);
        } else {
            self.enqueue_eager(i, slot, now);
        }
    }

    /// First in, first out, one class: the departure is known at once.
    fn enqueue_fifo(&mut self, i: usize, slot: u32, now: u64) {
        let size = u32::from(self.pool[slot].packet.size);
        let port = &mut self.ports[i];
        let start = port.busy_until.max(now);
        if port.busy_until > now || !self.fifos[i].is_empty() {
            let limits = &self.limits[usize::from(port.limits)];
            if port.queued[DATA] + size > limits.data {
                return self.discard(i, slot);
            }
            port.queued[DATA] += size;
            port.counters.queue_max = port.counters.queue_max.max(port.queued[DATA]);
            self.fifos[i].push_back((start, size));
            let data = matches!(self.pool[slot].packet.header, Header::Data(_));
            if data && limits.ecn.is_some_and(|ecn| ecn.marks(port.queued[DATA], &mut port.random)) {
                self.mark(i, slot);
            }
        }
        self.transmit(i, slot, start);
    }

    /// Takes out of a first-in-first-out port's count what has begun to leave before `until`.
    fn drain_fifo(&mut self, i: usize, until: u64) {
        while let Some(&(start, bytes)) = self.fifos[i].front() {
            if start >= until {
                return;
            }
            self.fifos[i].pop_front();
            self.ports[i].queued[DATA] -= bytes;
        }
    }

    /// A port of a switch that has to know at once what has left: PFC or a shared buffer.
    fn enqueue_eager(&mut self, i: usize, slot: u32, now: u64) {
        let packet = &self.pool[slot].packet;
        let size = u32::from(packet.size);
        let class = if packet.is_control() && self.priority { CONTROL } else { DATA };
        if class == CONTROL {
            if self.ports[i].queued[CONTROL] + size > self.limits[usize::from(self.ports[i].limits)].control {
                return self.discard(i, slot);
            }
        } else if !self.room(i, slot, size) {
            match self.trim(i, slot) {
                Verdict::Trimmed => self.serve(i, now),
                Verdict::Drop => self.discard(i, slot),
            }
            return;
        } else {
            self.account(i, slot, size, now);
        }
        let port = &self.ports[i];
        let open = class == CONTROL || !port.has(flag::PAUSED);
        if open && port.serving_bytes == 0 && port.busy_until <= now && port.is_empty() {
            self.begin(i, slot, class, now);
        } else {
            self.append(i, slot, class);
        }
    }

    /// Eager ports: a packet begins to leave now.
    fn begin(&mut self, i: usize, slot: u32, class: usize, now: u64) {
        let (ingress, size) = (self.pool[slot].ingress, u32::from(self.pool[slot].packet.size));
        let port = &mut self.ports[i];
        port.serving_ingress = ingress;
        port.serving_bytes = if class == DATA { size } else { NOTHING_TO_RELEASE };
        self.transmit(i, slot, now);
        self.ports[i].serving_until = self.ports[i].busy_until;
    }

    /// Is there room in the switch for this much more data?
    fn room(&self, i: usize, slot: u32, size: u32) -> bool {
        let limits = &self.limits[usize::from(self.ports[i].limits)];
        if limits.pfc.is_some() {
            let ingress = &self.ports[self.pool[slot].ingress as usize];
            let headroom = limits.pfc.map_or(0, |p| p.headroom.0);
            return u64::from(ingress.ingress_bytes + size) <= self.pause_above(i) + headroom;
        }
        let used = self.buffered[self.switch_of(i)];
        let Some(shared) = limits.shared else { return self.ports[i].queued[DATA] + size <= limits.data };
        let free = shared.buffer.0.saturating_sub(used);
        u64::from(size) <= free && u64::from(self.ports[i].queued[DATA] + size) as f64 <= shared.alpha * free as f64
    }

    /// The number of buffered bytes per ingress port above which the neighbour is paused.
    fn pause_above(&self, i: usize) -> u64 {
        let limits = &self.limits[0];
        let reserve = limits.pfc.map_or(0, |p| p.xoff.0);
        match limits.shared {
            None => reserve,
            Some(shared) => {
                let free = shared.buffer.0.saturating_sub(self.buffered[self.switch_of(i)]);
                reserve + (shared.alpha * free as f64) as u64
            }
        }
    }

    /// The local number of the switch that a port belongs to.
    fn switch_of(&self, i: usize) -> usize {
        let node = self.node_of(i).0;
        let mut before = 0;
        for range in &self.cut.nodes_of(self.index)[1..] {
            if range.contains(&node) {
                return before + (node - range.start) as usize;
            }
            before += range.len();
        }
        unreachable!("a switch port belongs to a switch of this slice")
    }

    /// Data came into the switch: counts it, and pauses the neighbour that it came from if that is too much.
    fn account(&mut self, i: usize, slot: u32, size: u32, now: u64) {
        let shared = self.plan.ports.shared.is_some();
        if shared {
            let switch = self.switch_of(i);
            self.buffered[switch] += u64::from(size);
        }
        if self.plan.ports.pfc.is_none() {
            return;
        }
        let ingress = self.pool[slot].ingress as usize;
        self.ports[ingress].ingress_bytes += size;
        if !self.ports[ingress].ingress_paused && u64::from(self.ports[ingress].ingress_bytes) > self.pause_above(i) {
            self.ports[ingress].ingress_paused = true;
            self.packets.pauses += 1;
            self.send_pause(ingress, now, true);
        }
    }

    /// Data has left the switch: counts it, and lets the neighbour go on if enough has.
    fn release(&mut self, i: usize, ingress: usize, size: u32, now: u64) {
        let Some(pfc) = self.limits[0].pfc else {
            if self.plan.ports.shared.is_some() {
                let switch = self.switch_of(i);
                self.buffered[switch] -= u64::from(size);
            }
            return;
        };
        self.ports[ingress].ingress_bytes -= size;
        let resume_at = if self.plan.ports.shared.is_some() {
            let switch = self.switch_of(i);
            self.buffered[switch] -= u64::from(size);
            self.pause_above(i).saturating_sub(pfc.xon.0)
        } else {
            pfc.xon.0
        };
        if self.ports[ingress].ingress_paused && u64::from(self.ports[ingress].ingress_bytes) <= resume_at {
            self.ports[ingress].ingress_paused = false;
            self.send_pause(ingress, now, false);
        }
    }

    /// A pause frame leaves by `port` as soon as the packet on the wire is through, and strikes the port at the other end.
    fn send_pause(&mut self, i: usize, now: u64, on: bool) {
        let port = &mut self.ports[i];
        let start = port.busy_until.max(now);
        port.busy_until = start + port.transmission(PAUSE_FRAME);
        let ends = self.plan.topology.ends(LinkId(port.link)).expect("a port in use leads somewhere");
        let time = port.busy_until + self.plan.topology.level(ends.level).latency.0;
        let target = self.cut.slice_of(ends.to);
        if target == self.index {
            let source = self.sources.pause + ends.reverse.0;
            self.events.push(Event { time, source, data: u32::from(on) });
        } else {
            self.outbox[target].push(Crossing::Pause { time, link: ends.reverse.0, on });
        }
        self.look_later(i);
    }

    /// A pause frame has reached this port.
    pub(super) fn pause(&mut self, i: usize, now: u64, on: bool) {
        let port = &mut self.ports[i];
        if on == port.has(flag::PAUSED) {
            return;
        }
        port.set(flag::PAUSED, on);
        if on {
            port.paused_since = now;
        } else {
            port.paused += now - port.paused_since;
            port.busy_until = port.busy_until.max(now);
        }
        let link = port.link;
        if link < self.cut.link_bases[1] {
            let host = (link / u32::from(self.plan.topology.planes()) - self.first_host) as usize;
            self.ports_changed(host, now);
        } else {
            self.serve(i, now);
        }
    }

    /// The look at a port that was due at `now`; all arrivals of this instant are in.
    pub(super) fn look(&mut self, i: usize, now: u64) {
        if self.ports[i].look_at != now {
            return;
        }
        self.ports[i].look_at = u64::MAX;
        if self.ports[i].has(flag::EAGER) {
            let port = &mut self.ports[i];
            if port.serving_bytes > 0 && port.serving_until <= now {
                let (ingress, size) = (port.serving_ingress as usize, port.serving_bytes);
                port.serving_bytes = 0;
                if size != NOTHING_TO_RELEASE {
                    self.release(i, ingress, size, now);
                }
            }
            self.serve(i, now);
        } else {
            self.advance(i, now + 1);
            self.look_later(i);
        }
    }

    /// Eager ports: begins the next transmission if the port is idle.
    fn serve(&mut self, i: usize, now: u64) {
        let port = &mut self.ports[i];
        if port.serving_bytes == 0 && port.busy_until <= now {
            if let Some(class) = port.next_class() {
                let slot = self.take(i, class);
                self.begin(i, slot, class, now);
            }
        }
        self.look_later(i);
    }

    /// Decides every departure of a lazy port that begins before `until`.
    #[inline]
    pub(super) fn drain(&mut self, i: usize, until: u64) {
        loop {
            let port = &self.ports[i];
            if port.flags & (flag::EAGER | flag::FIFO) != 0 {
                if port.has(flag::FIFO) {
                    self.drain_fifo(i, until);
                }
                return;
            }
            if port.busy_until >= until || port.is_empty() {
                return;
            }
            let Some(class) = port.next_class() else { return };
            let start = port.busy_until;
            let slot = self.take(i, class);
            self.transmit(i, slot, start);
        }
    }

    /// Takes the first packet of a class's queue, marking it if marks are set there.
    #[inline]
    fn take(&mut self, i: usize, class: usize) -> u32 {
        let port = &mut self.ports[i];
        let slot = port.head[class];
        let entry = &self.pool[slot];
        port.head[class] = entry.next;
        if entry.next == NIL {
            port.tail[class] = NIL;
        }
        port.queued[class] -= u32::from(entry.packet.size);
        if class == DATA {
            if let Some(ecn) = &self.limits[usize::from(port.limits)].ecn {
                let data = matches!(entry.packet.header, Header::Data(_));
                if ecn.at_dequeue && data && ecn.marks(port.queued[DATA], &mut port.random) {
                    self.mark(i, slot);
                }
            }
        }
        slot
    }

    /// A packet leaves by port `i` from `start` on.
    #[inline]
    pub(super) fn transmit(&mut self, i: usize, slot: u32, start: u64) {
        let port = &mut self.ports[i];
        let size = self.pool[slot].packet.size;
        let end = start + port.transmission(size);
        port.busy_until = end;
        port.counters.packets += 1;
        port.counters.bytes += u64::from(size);
        self.hops += 1;
        let time = end + port.delay;
        if port.flags & flag::ON_DEPARTURE != 0 {
            return self.depart_special(i, slot, start, time);
        }
        let (link, to) = (port.link, port.to);
        let stop = self.stop(to, &self.pool[slot].packet);
        self.pool[slot].stop = stop;
        self.send_on(time, link, slot);
    }

    /// Departures from ports whose link is faulty, recorded, or leads to another slice.
    fn depart_special(&mut self, i: usize, slot: u32, start: u64, time: u64) {
        let port = &mut self.ports[i];
        let (link, to) = (port.link, port.to);
        let packet = self.pool[slot].packet;
        if port.has(flag::CAPTURED) {
            self.capture(Time(start), link, packet);
        }
        let port = &mut self.ports[i];
        if port.has(flag::FAULTY) {
            let faults = &self.faults[&(i as u32)];
            let cut = faults.down.iter().any(|r| r.start < time && start < r.end);
            let loss = faults.loss.iter().find(|(r, _)| r.contains(&start)).map_or(0.0, |&(_, p)| p);
            if cut || (loss > 0.0 && port.random.chance(loss)) {
                port.counters.lost += 1;
                self.packets.lost += 1;
                self.pool.release(slot);
                return;
            }
        }
        if port.has(flag::REMOTE) {
            let target = self.cut.slice_of(crate::NodeId(to));
            self.outbox[target].push(Crossing::Packet { time, link, node: to, packet });
            self.pool.release(slot);
        } else {
            self.pool[slot].stop = self.stop(to, &packet);
            self.send_on(time, link, slot);
        }
    }

    fn capture(&mut self, at: Time, link: u32, packet: Packet) {
        let limit = self.plan.capture.as_ref().map_or(0, |c| c.limit);
        if self.captured.len() < limit {
            let connection = self.connection_of(&packet);
            let profile = connection.map_or(0, |c| self.plan.connections[c as usize].profile);
            self.captured.push(Captured { at, link: LinkId(link), packet, profile });
        }
    }

    /// Makes sure that a port with something to do is looked at in time.
    #[inline]
    fn look_later(&mut self, i: usize) {
        let port = &mut self.ports[i];
        let mut at = if port.serving_bytes > 0 {
            port.serving_until
        } else if port.next_class().is_some() {
            port.busy_until + port.slack()
        } else {
            u64::MAX
        };
        if let Some(first) = port.inbox.iter().map(|a| a.time).min() {
            at = at.min(first + port.slack());
        }
        if at < port.look_at {
            port.look_at = at;
            self.events.push(Event { time: at, source: self.sources.look + port.link, data: 0 });
        }
    }

    /// Bytes of data that wait at a port.
    pub(super) fn waiting(&self, i: usize) -> Bytes {
        Bytes(u64::from(self.ports[i].queued[DATA]))
    }
}
