//! One port: it queues, marks, trims or drops arriving packets, and sends departing ones on.

use super::fabric::Fabric;
use super::forward::{Road, lead_nowhere};
use super::recorder::Recorder;
use super::run_config::RunConfig;
use crate::calendar::Calendar;
use crate::port::{CONTROL, DATA, Limits, Port, flag};
use crate::road::Transit;
use strandway_fabric::judgement::{Candidate, Verdict};
use strandway_fabric::measure::Captured;
use strandway_fabric::plan::Plan;
use strandway_fabric::topology::{CUT_THROUGH_BYTES, Level, LinkId};
use strandway_proto::packet::Wait;
use strandway_proto::units::{Bytes, Time};

/// A port, and the parts of its slice that it needs.
pub(super) struct AtPort<'s, 'a> {
    /// Its number in the slice.
    pub(super) i: usize,
    pub(super) port: &'s mut Port,
    pub(super) limits: &'s Limits,
    /// A switch at the other end of its link cuts packets through that come from it.
    pub(super) cuts_through: bool,
    /// Departing packets are sampled, or pass [`AtPort::depart_special`].
    pub(super) special: bool,
    pub(super) config: &'s RunConfig<'a>,
    pub(super) calendar: &'s mut Calendar,
    pub(super) fabric: &'s mut Fabric,
    pub(super) recorder: &'s mut Recorder<'a>,
}

impl AtPort<'_, '_> {
    /// Plans the next visit of a lazy port that has something to do, at `from` or later.
    #[inline]
    pub(super) fn visit_later(&mut self, from: u64) {
        if self.fabric.backlogs.next_class(self.port).is_some() {
            let time = self.port.busy_until.max(from);
            self.calendar.visit(time, self.i as u32 - self.config.first_port);
        }
    }

    /// Processes all events of a lazy port before `until`: arrivals in order, and departures.
    #[inline]
    pub(super) fn work(&mut self, entries: &[Transit], from: u64, until: u64) {
        if self.config.sampling || self.port.flags & (flag::DOWN | flag::FIFO) != 0 {
            if self.config.sampling || self.port.has(flag::DOWN) {
                return self.work_slowly(entries, from, until);
            }
            return self.run_fifo(entries, from, until);
        }
        self.run(entries, from, until);
    }

    /// Processes all events before `until` of a lazy port that is not first-in-first-out. Most ports are of this kind.
    #[inline(never)]
    fn run(&mut self, entries: &[Transit], from: u64, until: u64) {
        let time_of = |entry: Option<&Transit>| entry.map_or(until, |e| from.wrapping_add(e.offset()));
        let mut entries = entries.iter();
        let mut next = entries.next();
        let mut next_at = time_of(next);
        loop {
            let (packet, start);
            if self.port.busy_until < next_at
                && let Some(class) = self.fabric.backlogs.next_class(self.port)
            {
                start = self.port.busy_until;
                packet = self.take(class, start);
            } else {
                let Some(arrival) = next else { return };
                let now = next_at;
                next = entries.next();
                next_at = time_of(next);
                let is_empty = self.port.is_empty();
                if self.port.busy_until > now || !is_empty {
                    let candidate = self.candidate(arrival);
                    let queued = &self.fabric.backlogs.of(self.port).queued;
                    let random = &mut self.port.random;
                    match self.limits.thresholds.judge(queued, candidate, |p| random.chance(p)) {
                        Verdict::Queue { marked } if is_empty && self.port.busy_until < next_at => {
                            start = self.port.busy_until;
                            packet = self.wait_alone(*arrival, candidate.class, now, marked);
                        }
                        Verdict::Queue { marked } => {
                            self.append(*arrival, 0, candidate.class, now, marked);
                            continue;
                        }
                        Verdict::Trim | Verdict::Drop => {
                            self.refuse(arrival, candidate.class, now);
                            continue;
                        }
                    }
                } else {
                    start = now;
                    packet = *arrival;
                }
            }
            self.transmit(packet, start);
        }
    }

    /// Processes all events before `until` of a lazy first-in-first-out port.
    #[inline(never)]
    fn run_fifo(&mut self, entries: &[Transit], from: u64, until: u64) {
        for entry in entries {
            let now = from.wrapping_add(entry.offset());
            self.drain_fifo(now);
            self.enqueue_fifo(*entry, now);
        }
        self.drain_fifo(until);
    }

    #[inline(never)]
    fn work_slowly(&mut self, entries: &[Transit], from: u64, until: u64) {
        for entry in entries {
            let time = from.wrapping_add(entry.offset());
            self.sample(time);
            self.enqueue(*entry, time);
        }
        self.sample(until);
        self.drain(until);
    }

    /// Puts a packet into a lazy switch port at `now`.
    #[inline(never)]
    pub(super) fn enqueue(&mut self, packet: Transit, now: u64) {
        if self.port.has(flag::DOWN) {
            self.lose_packet(packet.words());
        } else if self.port.has(flag::FIFO) {
            self.drain_fifo(now);
            self.enqueue_fifo(packet, now);
        } else {
            self.run(&[packet.at(0, 0, 0)], now, now);
        }
    }

    /// The class of a packet's queue.
    #[inline]
    pub(super) fn class_of(&self, packet: &Transit) -> usize {
        if self.config.priority && packet.is_control() { CONTROL } else { DATA }
    }

    /// A packet, as far as the port judges it.
    #[inline]
    fn candidate(&self, packet: &Transit) -> Candidate {
        Candidate { class: self.class_of(packet), size: packet.size(), is_whole_data: packet.is_whole_data() }
    }

    /// Puts a packet at the end of a class's queue, and marks it if that is so decided.
    #[inline(always)]
    fn append(&mut self, packet: Transit, ingress: u32, class: usize, now: u64, marked: bool) {
        let port = &mut *self.port;
        let mut packet = packet.waiting(stamp(now), ingress);
        if marked {
            mark(port, &mut packet);
        }
        self.fabric.backlogs.push(port, class, packet, &mut self.fabric.arena);
    }

    /// A packet that came at `now` waits for the present transmission to end, and nothing else waits until then: it
    /// leaves as it would from the queue, but is never put there.
    #[inline(always)]
    fn wait_alone(&mut self, mut packet: Transit, class: usize, now: u64, marked: bool) -> Transit {
        let port = &mut *self.port;
        if marked {
            mark(port, &mut packet);
        }
        waited(port, &mut packet, stamp(port.busy_until).wrapping_sub(stamp(now)));
        if class == DATA {
            port.queue_max = port.queue_max.max(u64::from(packet.size()));
            self.mark_leaving(&mut packet, 0);
        }
        packet
    }

    /// Marks a data packet behind which `left` bytes wait, if packets are marked on leaving and that is so decided.
    #[inline(always)]
    fn mark_leaving(&mut self, packet: &mut Transit, left: u64) {
        let random = &mut self.port.random;
        if self.limits.thresholds.marks_leaving(left, packet.is_whole_data(), |p| random.chance(p)) {
            mark(self.port, packet);
        }
    }

    /// Puts a packet that has room at the end of a class's queue. Marks it if packets are marked on joining.
    #[inline(always)]
    pub(super) fn join(&mut self, packet: Transit, ingress: u32, class: usize, now: u64) {
        let with = self.fabric.backlogs.of(self.port).queued[class] + u64::from(packet.size());
        let random = &mut self.port.random;
        let marked =
            class == DATA && self.limits.thresholds.marks_joining(with, packet.is_whole_data(), |p| random.chance(p));
        self.append(packet, ingress, class, now, marked);
    }

    /// Handles a packet that does not fit its class. In a port with classes, either the new data packet or the one at
    /// the tail is trimmed (without trimming: dropped). A random choice decides, as in UEC's reference switch;
    /// otherwise one sender could lose every time because of its phase. A single queue drops the new packet.
    #[cold]
    fn refuse(&mut self, packet: &Transit, class: usize, now: u64) {
        let mut unlucky = packet.waiting(stamp(now), 0);
        if class == CONTROL {
            return self.drop_packet(packet.words());
        }
        if self.config.priority
            && let Some((tail, queued)) = self.fabric.backlogs.last_data(self.port, &mut self.fabric.arena)
            && self.port.random.chance(0.5)
        {
            let with = *queued - u64::from(tail.size()) + u64::from(packet.size());
            if with <= self.limits.thresholds.data {
                *queued = with;
                std::mem::swap(tail, &mut unlucky);
            }
        }
        if !self.trim(unlucky, unlucky.ingress(), now) {
            self.drop_packet(unlucky.words());
        }
    }

    /// Drops a packet for which this port has no room.
    #[cold]
    pub(super) fn drop_packet(&mut self, packet: [u64; 4]) {
        let packet = &Transit::of_words(packet);
        self.fabric.refused_at(self.i).dropped += 1;
        self.recorder.packets.dropped_control += u64::from(!packet.is_whole_data());
        self.fabric.cargo.release(packet);
    }

    /// Loses a packet to a fault of this port's link.
    #[cold]
    pub(super) fn lose_packet(&mut self, packet: [u64; 4]) {
        let packet = &Transit::of_words(packet);
        self.fabric.colds[self.i].lost += 1;
        self.recorder.packets.lost += 1;
        self.recorder.packets.lost_control += u64::from(!packet.is_whole_data());
        self.fabric.cargo.release(packet);
    }

    /// Cuts a data packet to its header and puts it into the control class, if there is room; false if it must be
    /// dropped.
    pub(super) fn trim(&mut self, unlucky: Transit, ingress: u32, now: u64) -> bool {
        let candidate = Candidate { class: DATA, size: unlucky.size(), is_whole_data: unlucky.is_whole_data() };
        let thresholds = &self.limits.thresholds;
        let queued = self.fabric.backlogs.of(self.port).queued;
        let (Verdict::Trim, Some(size)) = (thresholds.refuse(&queued, candidate), thresholds.trim) else {
            return false;
        };
        if !unlucky.may_be_trimmed() {
            return false;
        }
        let mut packet = unlucky;
        packet.trim(size, self.port.has(flag::LAST));
        self.fabric.refused_at(self.i).trimmed += 1;
        // The time that it would have waited.
        let wait = stamp(self.limits.rate.time_for(Bytes(queued[DATA])).0);
        waited(self.port, &mut packet, wait);
        self.append(packet, ingress, CONTROL, now, false);
        true
    }

    /// Puts a packet into a first-in-first-out port with one class: its departure is known at once.
    #[inline]
    fn enqueue_fifo(&mut self, mut packet: Transit, now: u64) {
        let size = u32::from(packet.size());
        let start = self.port.busy_until.max(now);
        let fifo = &mut self.fabric.fifos[self.i];
        if self.port.busy_until > now || !fifo.starts.is_empty() {
            let queued = fifo.queued + u64::from(size);
            if queued > self.limits.thresholds.data {
                return self.drop_packet(packet.words());
            }
            fifo.queued = queued;
            fifo.starts.push_back((start, size));
            let port = &mut *self.port;
            waited(port, &mut packet, stamp(start - now));
            port.queue_max = port.queue_max.max(queued);
            let random = &mut port.random;
            if self.limits.thresholds.marks_joining(queued, packet.is_whole_data(), |p| random.chance(p)) {
                mark(port, &mut packet);
            }
        }
        self.transmit(packet, start);
    }

    /// Removes from a first-in-first-out port's count the packets whose departure began before `until`.
    #[inline]
    fn drain_fifo(&mut self, until: u64) {
        let fifo = &mut self.fabric.fifos[self.i];
        while let Some(&(start, bytes)) = fifo.starts.front() {
            if start >= until {
                return;
            }
            fifo.starts.pop_front();
            fifo.queued -= u64::from(bytes);
        }
    }

    /// Decides every departure of a lazy port that begins before `until`.
    #[inline]
    pub(super) fn drain(&mut self, until: u64) {
        if self.port.flags & (flag::EAGER | flag::FIFO) != 0 {
            if self.port.has(flag::FIFO) {
                self.drain_fifo(until);
            }
            return;
        }
        self.run(&[], 0, until);
    }

    /// Takes the first packet of a class's queue. Marks it if packets are marked on leaving.
    #[inline(always)]
    pub(super) fn take(&mut self, class: usize, now: u64) -> Transit {
        let port = &mut *self.port;
        let (mut packet, left) = self.fabric.backlogs.pop(port, class, &mut self.fabric.arena);
        let since = packet.since();
        waited(port, &mut packet, stamp(now).wrapping_sub(since));
        if class == DATA {
            self.mark_leaving(&mut packet, left);
        }
        packet
    }

    /// Sends a packet of an eager port from `start` on, in a run with cut-through, faults, series or programs.
    #[inline(never)]
    pub(super) fn transmit_slowly(&mut self, packet: [u64; 4], start: u64) {
        self.transmit(Transit::of_words(packet), start);
    }

    /// Sends a packet from `start` on.
    #[inline(always)]
    pub(super) fn transmit(&mut self, packet: Transit, start: u64) {
        let port = &mut *self.port;
        let end = port.depart(packet.size(), start, self.limits);
        self.recorder.hops += 1;
        // A switch that cuts through acts as soon as it has the packet's header; a host needs the whole packet.
        let time = if self.cuts_through {
            start + port.transmission(packet.size().min(CUT_THROUGH_BYTES as u16), self.limits) + self.limits.delay
        } else {
            end + self.limits.delay
        };
        let (link, to) = (port.link, port.to);
        if self.special {
            return self.depart_special(packet.words(), start, time);
        }
        self.send_on(time, link, to, packet);
    }

    /// Sends a packet from a port whose link is sampled, faulty or observed, or leads to another slice.
    #[inline(never)]
    fn depart_special(&mut self, packet: [u64; 4], start: u64, mut time: u64) {
        let packet = &Transit::of_words(packet);
        let (link, to) = (self.port.link, self.port.to);
        if self.config.sampling {
            self.recorder.sampler.left(self.limits.group, link, start, u64::from(packet.size()));
        }
        if self.port.has(flag::OBSERVED) {
            if self.config.telemetry {
                let queued = self.fabric.backlogs.of(self.port).queued;
                self.fabric.carried.note(packet, self.port, self.limits, queued[CONTROL] + queued[DATA], start);
            }
            self.capture(Time(start), link, packet);
        }
        if self.port.has(flag::FAULTY) {
            let faults = self.fabric.faults.get_mut(&(self.i as u32)).expect("a faulty port has its faults");
            let cut = faults.cuts(start, time);
            let end = self.port.busy_until;
            let mut lost = !cut && faults.loses(start, &mut self.port.random);
            if lost && self.config.llr {
                // The receiver asks for the packet when it has come; until it comes again, it accepts no later one.
                let level = topology_level(self.config.plan, link);
                let again = 2 * level.latency.0 + self.port.transmission(packet.size(), self.limits);
                for _ in 0..LLR_TRIES {
                    time += again;
                    self.port.busy_until += again;
                    lost = faults.loses(start + (self.port.busy_until - end), &mut self.port.random);
                    if !lost {
                        break;
                    }
                }
            }
            if cut || lost {
                let cold = &mut self.fabric.colds[self.i];
                cold.bytes_down += if cut { u64::from(packet.size()) } else { 0 };
                if packet.is_whole_data() {
                    cold.lost_data_last = start;
                }
                return self.lose_packet(packet.words());
            }
        }
        if self.port.has(flag::REMOTE) {
            let target = self.config.cut.slice_of(strandway_fabric::NodeId(to));
            self.fabric.outboxes[target].send(time, link, to, packet);
        } else {
            self.send_on(time, link, to, *packet);
        }
    }

    /// Sends a packet over a link to `node`, where it arrives at `time`.
    #[inline(always)]
    fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit) {
        let mut road = Road {
            config: self.config,
            calendar: self.calendar,
            fabric: self.fabric,
            copies: &mut self.recorder.copies,
        };
        if !road.send_on(time, link, node, packet) {
            lead_nowhere(self.config.plan, self.recorder, &mut self.fabric.cargo, packet.words(), time);
        }
    }

    fn capture(&mut self, at: Time, link: u32, packet: &Transit) {
        let Some(wanted) = &self.config.plan.capture else { return };
        let limit = wanted.limit;
        if self.config.telemetry && !wanted.links.contains(&LinkId(link)) {
            return;
        }
        // Recording goes on to the end of the window of the last packet wanted. Only then it is known which packets
        // were first.
        let last = limit.checked_sub(1).and_then(|l| self.recorder.captured.get(l));
        if limit > 0 && last.is_none_or(|l| at.0 < self.calendar.end_of(l.at.0)) {
            // Profile and sender's number are filled in for all packets at the end of the run.
            self.recorder.captured.push(Captured {
                at,
                link: LinkId(link),
                packet: *self.fabric.cargo.packet_with_marks(packet),
                profile: 0,
                sender: None,
            });
        }
    }
}

/// A link repeats a packet this many times; then it gives up. Ours: with a loss of one in ten never in practice.
const LLR_TRIES: u32 = 16;

/// The level of a link.
fn topology_level(plan: &Plan, link: u32) -> Level {
    *plan.topology.level(plan.topology.ends(LinkId(link)).expect("a port in use leads somewhere").level)
}

/// When a packet began to wait, in units of 1,024 ps.
#[inline]
pub(super) fn stamp(now: u64) -> u32 {
    (now >> Wait::SHIFT) as u32
}

#[inline]
fn mark(port: &mut Port, packet: &mut Transit) {
    packet.mark();
    port.marked += 1;
}

/// Notes that a packet has waited here for `length` units of 1,024 ps.
#[inline]
fn waited(port: &Port, packet: &mut Transit, length: u32) {
    let last = if port.has(flag::LAST) { Wait::LAST_HOP } else { 0 };
    packet.waited(length, port.link | last);
}
