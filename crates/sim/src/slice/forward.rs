//! What a switch does with a packet: routes it, queues it, marks, trims, pauses, and sends it on.

use super::{Crossing, Slice};
use crate::calendar::{Batch, Turn};
use crate::event::Event;
use crate::pool::Slot;
use crate::port::{CONTROL, DATA, Port, flag};
use crate::queue::Waiting;
use strandway_fabric::measure::Captured;
use strandway_fabric::plan::SharedSettings;
use strandway_fabric::topology::CUT_THROUGH_BYTES;
use strandway_fabric::topology::LinkId;
use strandway_proto::Packet;
use strandway_proto::packet::{Flags, Header, Wait};
use strandway_proto::units::{Bytes, Rate, Time};

/// Bytes of a PFC pause frame on the wire: a minimum Ethernet frame.
const PAUSE_FRAME: u16 = 64;

/// Stands for the bytes of a control packet in service: they are not accounted for.
const NOTHING_TO_RELEASE: u32 = u32::MAX;

impl Slice<'_> {
    /// The stop that a host of this slice is.
    #[inline]
    pub(super) fn host_stop(&self, host: u32) -> u32 {
        self.first_host_stop + host - self.first_host
    }

    /// The stop that a switch's port is.
    #[inline]
    pub(super) fn port_stop(&self, port: u32) -> u32 {
        port - self.first_port
    }

    /// A packet is on its way over a link to `node` and will be there at `time`, in a later window.
    #[inline]
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: &Packet) {
        if node < self.cut.hosts {
            self.calendar.put(time, self.host_stop(node), link, packet);
        } else if self.by_event {
            let data = self.pool.put(*packet, node);
            self.events.push(Event { time, source: link, data });
        } else {
            let port = self.router.place(node, packet);
            self.calendar.put(time, self.port_stop(port), link, packet);
        }
    }

    /// A packet is at a switch, all of it, and either that switch must know at once or routing may have changed.
    pub(super) fn arrive(&mut self, event: Event) {
        let Slot { packet, node } = self.pool.take(event.data);
        let Some(link) = self.router.route(node, &packet) else {
            self.packets.lost += 1;
            self.packets.lost_control += u64::from(!is_whole_data(&packet));
            return;
        };
        let port = self.local(link);
        let ingress = if self.accounting { self.local(self.cut.reverse[event.source as usize]) as u32 } else { 0 };
        self.sample_port(port, event.time);
        self.enqueue(port, &packet, ingress, event.time);
        if self.ports[port].has(flag::EAGER) { self.look_later(port) } else { self.visit_later(port, event.time) }
    }

    /// Decides everything that happens at a lazy port from `from` up to `until`, a window or its part.
    #[inline]
    pub(super) fn visit_port(&mut self, i: usize, batch: &Batch, turns: &[Turn], from: u64, until: u64) {
        for turn in turns {
            let time = from.wrapping_add(turn.offset());
            if time >= until {
                self.cut_off = true;
                break;
            }
            if let Some(arrival) = batch.arrival(turn.index as usize) {
                self.sample_port(i, time);
                self.enqueue(i, &arrival.packet, 0, time);
            } else if turn.source() >= self.sources.fault {
                self.sample_port(i, time);
                self.break_or_mend(batch.notes[turn.index as usize - batch.arrivals()].data as usize, time);
            }
        }
        self.sample_port(i, until);
        self.drain(i, until);
        self.visit_later(i, until);
    }

    /// Makes sure that a lazy port with something to do is visited when it can next do it, at `from` or later.
    #[inline]
    fn visit_later(&mut self, i: usize, from: u64) {
        let port = &mut self.ports[i];
        if port.next_class().is_none() {
            return;
        }
        let time = port.busy_until.max(from);
        let stop = i as u32 - self.first_port;
        let window = self.calendar.window_at(time, stop);
        if !(self.calendar.window_at(from, stop)..=window).contains(&port.visit) {
            port.visit = window;
            self.calendar.note(time, stop, self.sources.visit, 0);
        }
    }

    /// A packet joins a switch port at `now`.
    #[inline]
    fn enqueue(&mut self, i: usize, packet: &Packet, ingress: u32, now: u64) {
        let port = &self.ports[i];
        if port.flags & (flag::DOWN | flag::FIFO | flag::EAGER) != 0 {
            return self.enqueue_special(i, packet, ingress, now);
        }
        if port.busy_until < now {
            self.drain(i, now);
        }
        let port = &self.ports[i];
        if port.busy_until <= now && port.is_empty() {
            return self.transmit(i, packet, now);
        }
        let limits = &self.limits[usize::from(port.limits)];
        let class = if self.priority && packet.is_control() { CONTROL } else { DATA };
        let room = if class == DATA { limits.data } else { limits.control };
        if port.queued[class] + u64::from(packet.size) <= room {
            self.append(i, packet, ingress, class, now);
        } else {
            self.refuse(i, packet, ingress, class, now);
        }
    }

    /// Puts a packet at the end of a class's queue, marking it if marks are set there.
    #[inline]
    fn append(&mut self, i: usize, packet: &Packet, ingress: u32, class: usize, now: u64) {
        let port = &mut self.ports[i];
        let mut packet = *packet;
        port.queued[class] += u64::from(packet.size);
        if class == DATA {
            port.counters.queue_max = port.counters.queue_max.max(port.queued[DATA]);
            let ecn = self.limits[usize::from(port.limits)].ecn.filter(|e| !e.at_dequeue);
            if ecn.is_some_and(|e| is_whole_data(&packet) && e.marks(port.queued[DATA], &mut port.random)) {
                mark(port, &mut packet);
            }
        }
        port.waiting[class].push(&mut self.arena, Waiting { packet, ingress, since: stamp(now) });
    }

    /// A packet does not fit its class. In a port with classes a coin decides whether a new data packet or the one at the tail
    /// is trimmed (or, without trimming, dropped), as UEC's reference switch does, so that no sender is singled out by its
    /// phase. A single queue drops the newcomer.
    #[cold]
    fn refuse(&mut self, i: usize, packet: &Packet, ingress: u32, class: usize, now: u64) {
        let port = &mut self.ports[i];
        let mut unlucky = Waiting { packet: *packet, ingress, since: stamp(now) };
        if class == CONTROL {
            return self.drop_packet(i, packet);
        }
        if self.priority && !port.waiting[DATA].is_empty() && port.random.chance(0.5) {
            let limit = self.limits[usize::from(port.limits)].data;
            if let Some(tail) = port.waiting[DATA].back_mut(&mut self.arena) {
                let queued = port.queued[DATA] - u64::from(tail.packet.size) + u64::from(packet.size);
                if queued <= limit {
                    port.queued[DATA] = queued;
                    std::mem::swap(tail, &mut unlucky);
                }
            }
        }
        if !self.trim(i, unlucky, now) {
            self.drop_packet(i, &unlucky.packet);
        }
    }

    /// There is no room for a packet at this port.
    #[cold]
    fn drop_packet(&mut self, i: usize, packet: &Packet) {
        self.ports[i].counters.dropped += 1;
        self.packets.dropped_control += u64::from(!is_whole_data(packet));
    }

    /// A fault at this port's link swallows a packet.
    #[cold]
    fn lose_packet(&mut self, i: usize, packet: &Packet) {
        self.colds[i].lost += 1;
        self.packets.lost += 1;
        self.packets.lost_control += u64::from(!is_whole_data(packet));
    }

    /// Cuts a data packet to its header and puts it into the control class, if there is room; false if it must be dropped.
    fn trim(&mut self, i: usize, mut unlucky: Waiting, now: u64) -> bool {
        let port = &mut self.ports[i];
        let limits = &self.limits[usize::from(port.limits)];
        let packet = &mut unlucky.packet;
        let Some(size) = limits.trim.filter(|_| is_whole_data(packet)) else { return false };
        if port.queued[CONTROL] + u64::from(size) > limits.control {
            return false;
        }
        packet.size = size.min(packet.size);
        packet.flags = packet.flags.with(Flags::TRIMMED).with_if(port.has(flag::LAST), Flags::TRIMMED_AT_LAST_HOP);
        port.counters.trimmed += 1;
        // What it would have waited.
        let wait = stamp(Rate(port.rate).time_for(Bytes(port.queued[DATA])).0);
        waited(packet, wait, port);
        let packet = *packet;
        self.append(i, &packet, unlucky.ingress, CONTROL, now);
        true
    }

    /// The rarer kinds of port.
    fn enqueue_special(&mut self, i: usize, packet: &Packet, ingress: u32, now: u64) {
        if self.ports[i].has(flag::DOWN) {
            self.lose_packet(i, packet);
        } else if self.ports[i].has(flag::FIFO) {
            self.drain_fifo(i, now);
            self.enqueue_fifo(i, packet, now);
        } else {
            self.enqueue_eager(i, packet, ingress, now);
        }
    }

    /// First in, first out, one class: the departure is known at once.
    fn enqueue_fifo(&mut self, i: usize, packet: &Packet, now: u64) {
        let mut packet = *packet;
        let size = u32::from(packet.size);
        let port = &mut self.ports[i];
        let start = port.busy_until.max(now);
        if port.busy_until > now || !self.fifos[i].is_empty() {
            let limits = &self.limits[usize::from(port.limits)];
            if port.queued[DATA] + u64::from(size) > limits.data {
                return self.drop_packet(i, &packet);
            }
            port.queued[DATA] += u64::from(size);
            waited(&mut packet, stamp(start - now), port);
            port.counters.queue_max = port.counters.queue_max.max(port.queued[DATA]);
            self.fifos[i].push_back((start, size));
            if limits.ecn.is_some_and(|e| is_whole_data(&packet) && e.marks(port.queued[DATA], &mut port.random)) {
                mark(port, &mut packet);
            }
        }
        self.transmit(i, &packet, start);
    }

    /// Takes out of a first-in-first-out port's count what has begun to leave before `until`.
    fn drain_fifo(&mut self, i: usize, until: u64) {
        while let Some(&(start, bytes)) = self.fifos[i].front() {
            if start >= until {
                return;
            }
            self.fifos[i].pop_front();
            self.ports[i].queued[DATA] -= u64::from(bytes);
        }
    }

    /// A port of a switch that has to know at once what has left: PFC or a shared buffer.
    fn enqueue_eager(&mut self, i: usize, packet: &Packet, ingress: u32, now: u64) {
        let size = u64::from(packet.size);
        let class = if packet.is_control() && self.priority { CONTROL } else { DATA };
        if class == CONTROL {
            if self.ports[i].queued[CONTROL] + size > self.limits[usize::from(self.ports[i].limits)].control {
                return self.drop_packet(i, packet);
            }
        } else if self.room(i, ingress, size) {
            self.account(i, ingress, size, now);
        } else {
            if self.trim(i, Waiting { packet: *packet, ingress, since: stamp(now) }, now) {
                self.serve(i, now);
            } else {
                self.drop_packet(i, packet);
            }
            return;
        }
        let port = &self.ports[i];
        let open = class == CONTROL || !port.has(flag::PAUSED);
        if open && port.serving_bytes == 0 && port.busy_until <= now && port.next_class().is_none() {
            self.begin(i, packet, ingress, class, now);
        } else {
            self.append(i, packet, ingress, class, now);
        }
    }

    /// Eager ports: a packet begins to leave now.
    fn begin(&mut self, i: usize, packet: &Packet, ingress: u32, class: usize, now: u64) {
        let port = &mut self.ports[i];
        port.serving_ingress = ingress;
        port.serving_bytes = if class == DATA { u32::from(packet.size) } else { NOTHING_TO_RELEASE };
        self.transmit(i, packet, now);
        self.ports[i].serving_until = self.ports[i].busy_until;
    }

    /// Is there room in the switch for this much more data?
    fn room(&self, i: usize, ingress: u32, size: u64) -> bool {
        let limits = &self.limits[usize::from(self.ports[i].limits)];
        if let Some(pfc) = limits.pfc {
            let port = &self.ports[ingress as usize];
            if limits.shared.is_some() {
                return self.fits_share(i, ingress as usize, size) || port.ingress_headroom + size <= pfc.headroom.0;
            }
            return port.ingress_bytes + size <= self.pause_above(i) + pfc.headroom.0;
        }
        let Some(shared) = limits.shared else { return self.ports[i].queued[DATA] + size <= limits.data };
        let free = self.free_at(i, &shared);
        size <= free && (self.ports[i].queued[DATA] + size) as f64 <= shared.alpha * free as f64
    }

    /// PFC over a shared buffer: does this much more data from an ingress port stay below its threshold?
    fn fits_share(&self, i: usize, ingress: usize, size: u64) -> bool {
        let port = &self.ports[ingress];
        port.ingress_bytes - port.ingress_headroom + size <= self.pause_above(i)
    }

    /// The number of buffered bytes per ingress port above which the neighbour is paused.
    fn pause_above(&self, i: usize) -> u64 {
        let limits = &self.limits[0];
        let reserve = limits.pfc.map_or(0, |p| p.xoff.0);
        match limits.shared {
            None => reserve,
            Some(shared) => {
                let free = self.free_at(i, &shared);
                reserve + (shared.alpha * free as f64) as u64
            }
        }
    }

    /// The bytes that the switch of a port has in its shared buffer.
    fn buffered_at(&mut self, i: usize) -> &mut u64 {
        &mut self.buffered[self.switches[i] as usize]
    }

    /// What is free in the shared buffer of a port's switch.
    fn free_at(&self, i: usize, shared: &SharedSettings) -> u64 {
        shared.buffer.0.saturating_sub(self.buffered[self.switches[i] as usize])
    }

    /// Data came into the switch: counts it, and pauses the neighbour that it came from if that is too much.
    fn account(&mut self, i: usize, ingress: u32, size: u64, now: u64) {
        let ingress = ingress as usize;
        if self.plan.ports.shared.is_some() {
            if self.accounting && !self.fits_share(i, ingress, size) {
                self.ports[ingress].ingress_headroom += size;
            } else {
                *self.buffered_at(i) += size;
            }
        }
        if !self.accounting {
            return;
        }
        self.ports[ingress].ingress_bytes += size;
        if !self.ports[ingress].ingress_paused && self.ports[ingress].ingress_bytes > self.pause_above(i) {
            self.ports[ingress].ingress_paused = true;
            self.packets.pauses += 1;
            self.send_pause(ingress, now, true);
        }
    }

    /// Data has left the switch: counts it, and lets the neighbour go on if enough has.
    fn release(&mut self, i: usize, ingress: usize, size: u64, now: u64) {
        let Some(pfc) = self.limits[0].pfc else {
            if self.plan.ports.shared.is_some() {
                *self.buffered_at(i) -= size;
            }
            return;
        };
        self.ports[ingress].ingress_bytes -= size;
        let resume_at = if self.plan.ports.shared.is_some() {
            // The headroom empties first, so that it is there for the next pause.
            let from_headroom = self.ports[ingress].ingress_headroom.min(size);
            self.ports[ingress].ingress_headroom -= from_headroom;
            *self.buffered_at(i) -= size - from_headroom;
            self.pause_above(i).saturating_sub(pfc.xon.0)
        } else {
            pfc.xon.0
        };
        if self.ports[ingress].ingress_paused && self.ports[ingress].ingress_bytes <= resume_at {
            self.ports[ingress].ingress_paused = false;
            self.send_pause(ingress, now, false);
        }
    }

    /// A pause frame leaves by a port as soon as the packet on the wire is through, and strikes the port at the other end.
    fn send_pause(&mut self, i: usize, now: u64, on: bool) {
        let port = &mut self.ports[i];
        let start = port.busy_until.max(now);
        port.busy_until = start + port.transmission(PAUSE_FRAME);
        let ends = self.plan.topology.ends(LinkId(port.link)).expect("a port in use leads somewhere");
        let time = port.busy_until + self.plan.topology.level(ends.level).latency.0;
        let target = self.cut.slice_of(ends.to);
        if target == self.index {
            self.send_pause_on(time, ends.reverse.0, on);
        } else {
            self.outbox[target].push(Crossing::Pause { time, link: ends.reverse.0, on });
        }
        self.look_later(i);
    }

    /// A pause frame is on its way to the port that feeds `link`.
    pub(super) fn send_pause_on(&mut self, time: u64, link: u32, on: bool) {
        let source = self.sources.pause + link;
        if link < self.cut.link_bases[1] {
            let stop = self.host_stop(link / self.planes as u32);
            self.calendar.note(time, stop, source, u32::from(on));
        } else {
            self.events.push(Event { time, source, data: u32::from(on) });
        }
    }

    /// A pause frame has reached this port.
    pub(super) fn pause(&mut self, i: usize, now: u64, on: bool) {
        let port = &mut self.ports[i];
        if on == port.has(flag::PAUSED) {
            return;
        }
        port.set(flag::PAUSED, on);
        let cold = &mut self.colds[i];
        if on {
            cold.paused_since = now;
        } else {
            cold.paused += now - cold.paused_since;
            port.busy_until = port.busy_until.max(now);
        }
        if port.has(flag::EAGER) {
            self.serve(i, now);
        }
    }

    /// The look at an eager port that was due at `now`; all arrivals of this instant are in.
    pub(super) fn look(&mut self, i: usize, now: u64) {
        if self.ports[i].look_at != now {
            return;
        }
        self.sample_port(i, now);
        let port = &mut self.ports[i];
        port.look_at = u64::MAX;
        if port.serving_bytes > 0 && port.serving_until <= now {
            let (ingress, size) = (port.serving_ingress as usize, port.serving_bytes);
            port.serving_bytes = 0;
            if size != NOTHING_TO_RELEASE {
                self.release(i, ingress, u64::from(size), now);
            }
        }
        self.serve(i, now);
    }

    /// Eager ports: begins the next transmission if the port is idle.
    fn serve(&mut self, i: usize, now: u64) {
        let port = &mut self.ports[i];
        if port.serving_bytes == 0
            && port.busy_until <= now
            && let Some(class) = port.next_class()
        {
            let Waiting { packet, ingress, .. } = self.take(i, class, now);
            self.begin(i, &packet, ingress, class, now);
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
            let Waiting { packet, .. } = self.take(i, class, start);
            self.transmit(i, &packet, start);
        }
    }

    /// Takes the first packet of a class's queue, marking it if marks are set there.
    #[inline]
    fn take(&mut self, i: usize, class: usize, now: u64) -> Waiting {
        let port = &mut self.ports[i];
        let mut waiting = port.waiting[class].pop(&mut self.arena).expect("a class that is next has a packet");
        port.queued[class] -= u64::from(waiting.packet.size);
        waited(&mut waiting.packet, stamp(now).wrapping_sub(waiting.since), port);
        if class == DATA {
            let ecn = self.limits[usize::from(port.limits)].ecn.filter(|e| e.at_dequeue);
            if ecn.is_some_and(|e| is_whole_data(&waiting.packet) && e.marks(port.queued[DATA], &mut port.random)) {
                mark(port, &mut waiting.packet);
            }
        }
        waiting
    }

    /// A packet leaves by port `i` from `start` on.
    #[inline]
    pub(super) fn transmit(&mut self, i: usize, packet: &Packet, start: u64) {
        let port = &mut self.ports[i];
        let end = start + port.transmission(packet.size);
        port.busy_until = end;
        port.counters.packets += 1;
        port.counters.bytes += u64::from(packet.size);
        self.hops += 1;
        // A switch that cuts through has its turn as soon as it knows where the packet goes; a host wants all of it.
        let time = if self.cut_rate != 0 && port.rate == self.cut_rate && !port.has(flag::LAST) {
            start + port.transmission(packet.size.min(CUT_THROUGH_BYTES as u16)) + port.delay
        } else {
            end + port.delay
        };
        let (link, to) = (port.link, port.to);
        if self.sampling {
            self.sampler.left(port.group, start, u64::from(packet.size));
        }
        if port.flags & flag::ON_DEPARTURE != 0 {
            return self.depart_special(i, packet, start, time);
        }
        self.send_on(time, link, to, packet);
    }

    /// Departures from ports whose link is faulty, recorded, or leads to another slice.
    fn depart_special(&mut self, i: usize, packet: &Packet, start: u64, time: u64) {
        let (link, to) = (self.ports[i].link, self.ports[i].to);
        if self.ports[i].has(flag::CAPTURED) {
            self.capture(Time(start), link, *packet);
        }
        let port = &mut self.ports[i];
        if port.has(flag::FAULTY) {
            let faults = self.faults.get_mut(&(i as u32)).expect("a faulty port has its faults");
            let cut = faults.down.iter().any(|r| r.start < time && start < r.end);
            if cut || faults.loses(start, &mut port.random) {
                self.colds[i].bytes_down += if cut { u64::from(packet.size) } else { 0 };
                return self.lose_packet(i, packet);
            }
        }
        if port.has(flag::REMOTE) {
            let target = self.cut.slice_of(strandway_fabric::NodeId(to));
            self.outbox[target].push(Crossing::Packet { time, link, node: to, packet: *packet });
        } else {
            self.send_on(time, link, to, packet);
        }
    }

    fn capture(&mut self, at: Time, link: u32, packet: Packet) {
        let limit = self.plan.capture.as_ref().map_or(0, |c| c.limit);
        // To the end of the last one's window: only then is it known which were the first.
        let last = limit.checked_sub(1).and_then(|l| self.captured.get(l));
        if limit > 0 && last.is_none_or(|l| at.0 < self.window_end(l.at.0)) {
            // Which profile it is of, the end of the run looks up for all of them.
            self.captured.push(Captured { at, link: LinkId(link), packet, profile: 0 });
        }
    }

    /// Makes sure that an eager port is looked at when its transmission ends or its next one can begin.
    fn look_later(&mut self, i: usize) {
        let port = &mut self.ports[i];
        let at = if port.serving_bytes > 0 {
            port.serving_until
        } else if port.next_class().is_some() {
            port.busy_until
        } else {
            return;
        };
        debug_assert!(at >= self.now, "a look at {at} ps is late at {} ps", self.now);
        if at < port.look_at {
            port.look_at = at;
            self.events.push(Event { time: at, source: self.sources.look + port.link, data: 0 });
        }
    }
}

/// When a packet began to wait, in units of 1,024 ps.
#[inline]
fn stamp(now: u64) -> u32 {
    (now >> Wait::SHIFT) as u32
}

/// A packet has waited at a port for so many units. It remembers its longest wait.
#[inline]
fn waited(packet: &mut Packet, length: u32, port: &Port) {
    if let Header::Data(data) = &mut packet.header
        && length > data.wait.length
    {
        let last = if port.has(flag::LAST) { Wait::LAST_HOP } else { 0 };
        data.wait = Wait { length, link: port.link | last };
    }
}

/// Only whole data packets are marked and trimmed.
#[inline]
fn is_whole_data(packet: &Packet) -> bool {
    matches!(packet.header, Header::Data(_)) && !packet.flags.has(Flags::TRIMMED)
}

#[inline]
fn mark(port: &mut Port, packet: &mut Packet) {
    packet.flags = packet.flags.with(Flags::CE);
    port.counters.marked += 1;
}
