//! Eager ports: for switches whose ports must know the departures of the other ports at once (PFC, shared buffers,
//! adaptive routing).
//!
//! Packets and pause frames reach the next switch at the earliest one link latency later. So within a window of that
//! length, a switch can process all its events independently: arrivals, ends of transmissions, pauses and faults, one
//! by one in order of time.

use super::Slice;
use super::adaptive::Adaptive;
use super::crossing::News;
use super::looks::Looks;
use crate::calendar::GROUP;
use crate::port::{CONTROL, DATA, Service, flag};
use crate::road::Transit;
use std::ops::Range;
use strandway_fabric::NodeId;
use strandway_fabric::plan::{PAUSE_FRAME, SharedSettings};
use strandway_fabric::topology::LinkId;

/// This bit marks an ingress that is not a port: the packet is one of several copies, and the other bits are the number
/// of their [`Share`].
const SHARED: u32 = 1 << 31;

/// The ingress of a packet that a program of the switch made on its own: no neighbour sent it, so none is paused for
/// it.
const NO_INGRESS: u32 = SHARED - 1;

/// The common account of one packet's copies. The packet takes room in the switch once, until its last copy has left.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The ingress port of the packet.
    ingress: u32,
    /// The number of copies in the switch, plus one while copies are being made.
    left: u32,
    /// True if its bytes are counted in the switch.
    accounted: bool,
}

/// A value of `bytes` for a control packet in service, whose bytes are not counted.
const NOTHING_TO_RELEASE: u32 = u32::MAX;

/// The switches of a slice, if their ports are eager; empty if ports are lazy.
#[derive(Debug, Default)]
pub(super) struct Switches {
    /// For each port, by place: the number of its switch. Ports of hosts have an entry that is never used.
    pub(super) of_port: Vec<u32>,
    /// For each node behind the hosts, in order: the number of its switch.
    pub(super) of_node: Vec<u32>,
    /// The nodes of the switches.
    pub(super) nodes: Vec<u32>,
    /// For each switch, its first link and the number of its ports.
    links: Vec<(u32, u32)>,
    /// The places of the switches' ports, by link from the first link of any switch on.
    places: Vec<u32>,
    /// PFC: for each link, the port that leads back to the link's source.
    ingress: Vec<u32>,
    /// For each switch, the data bytes in its shared buffer.
    buffered: Vec<u64>,
    services: Vec<Service>,
    /// The accounts of packets with several copies, and the free entries among them.
    shares: Vec<Share>,
    free_shares: Vec<u32>,
    /// The ports to which the present packet is copied.
    copy_to: Vec<u32>,
    /// The checks ("looks") of ports that are due in the present window.
    looks: Looks,
    /// The present window.
    window: Range<u64>,
    /// They choose uplinks by how busy these are.
    pub(super) adaptive: Option<Adaptive>,
}

impl Slice<'_> {
    /// Gives numbers to the switches of this slice, whose ports are eager.
    pub(super) fn number_switches(&mut self) {
        let topology = &self.config.plan.topology;
        let mut switches = Switches {
            of_port: vec![u32::MAX; self.ports.len()],
            of_node: vec![u32::MAX; (topology.nodes() - topology.hosts()) as usize],
            services: vec![Service::IDLE; self.ports.len()],
            places: vec![u32::MAX; (topology.links() - self.config.cut.link_bases[1]) as usize],
            ..Switches::default()
        };
        for node in self.config.cut.nodes_of(self.config.index).iter().skip(1).flatten().copied() {
            let number = switches.nodes.len() as u32;
            switches.of_node[(node - topology.hosts()) as usize] = number;
            switches.nodes.push(node);
            let (LinkId(first), ports) = topology.ports_of(NodeId(node));
            switches.links.push((first, ports));
            for link in first..first + ports {
                let place = self.local(link);
                switches.of_port[place] = number;
                switches.places[(link - self.config.cut.link_bases[1]) as usize] = place as u32;
            }
        }
        switches.adaptive = Adaptive::new(self.config.plan, &switches.nodes);
        switches.buffered = vec![0; switches.nodes.len()];
        if self.config.accounting {
            switches.ingress = vec![u32::MAX; topology.links() as usize];
            for (place, port) in self.ports.iter().enumerate().filter(|(_, p)| p.link != u32::MAX) {
                if let Some(ends) = topology.ends(LinkId(port.link)) {
                    switches.ingress[ends.reverse.0 as usize] = place as u32;
                }
            }
        }
        self.fabric.switches = switches;
    }

    /// Processes all events of a switch in a window, up to `limit`.
    pub(super) fn visit_switch(&mut self, switch: usize, entries: &[Transit], window: Range<u64>, limit: u64) {
        let node = self.fabric.switches.nodes[switch];
        let from = window.start;
        let until = limit.min(window.end) - from;
        self.fabric.switches.window = window;
        let (first_link, ports) = self.fabric.switches.links[switch];
        self.fabric.switches.looks.begin(first_link, ports);
        let kind = u64::from(self.config.sources.look);
        let mut entries = entries.iter();
        let mut next = entries.next();
        loop {
            let entry = next.map_or(u64::MAX, Transit::key);
            let look = self.fabric.switches.looks.first_key().saturating_add(kind);
            let offset = entry.min(look) >> 32;
            if offset >= until || entry.min(look) == u64::MAX {
                break;
            }
            let now = from + offset;
            if look < entry {
                let link = self.fabric.switches.looks.pop();
                let port = self.fabric.switches.places[(link - self.config.cut.link_bases[1]) as usize];
                self.clock.events_done += 1;
                self.visit(port as usize, now);
            } else if let Some(entry) = next {
                next = entries.next();
                self.handle(node, entry, now);
            }
        }
        self.clock.cut_off |= next.is_some() | self.fabric.switches.looks.clear();
    }

    /// Processes one event at a switch.
    #[inline]
    fn handle(&mut self, node: u32, entry: &Transit, now: u64) {
        let source = entry.source();
        if source < self.config.sources.look {
            self.arrive(node, entry, now);
        } else if source < self.config.sources.pause {
            self.visit(entry.cargo() as usize, now);
        } else if source < self.config.sources.signal {
            let port = self.local(source - self.config.sources.pause);
            self.handle_link_news(port, now, entry.cargo());
        } else {
            self.break_or_mend(entry.cargo() as usize, now);
        }
    }

    /// A packet has completely arrived at a switch.
    #[inline]
    fn arrive(&mut self, node: u32, packet: &Transit, now: u64) {
        let ingress = if self.config.accounting { self.ingress(node, packet.source()) } else { 0 };
        if let Some(group) = packet.group() {
            return self.arrive_for_group(node, group, packet, ingress, now);
        }
        let (place, packet) = if self.fabric.router.needs_place_at() || self.fabric.switches.adaptive.is_some() {
            let mut packet = *packet;
            if self.fabric.router.chooses_by_queues() && !packet.is_control() {
                self.choose_by_queues(node, &mut packet, now);
            }
            let place = if self.fabric.switches.adaptive.is_some() && !packet.is_control() {
                self.place_adaptively(node, &mut packet, now)
            } else {
                self.place_usually(node, &mut packet, now)
            };
            let Some(place) = place else { return self.lead_nowhere(packet.words(), now) };
            (place, Transit::of_words(packet.words()))
        } else {
            (self.fabric.router.place(node, packet, &self.fabric.cargo), *packet)
        };
        let port = place as usize;
        self.sample_port(port, now);
        self.enqueue_eager(port, packet, ingress, now);
        self.visit_later(port);
    }

    /// The ingress of a packet at a switch, by the link that gives its place in the order of arrivals.
    #[inline]
    fn ingress(&self, node: u32, link: u32) -> u32 {
        let switches = &self.fabric.switches;
        let port = switches.ingress[link as usize];
        if self.fabric.stations.is_empty() {
            return port;
        }
        // A packet that the switch's program made on its own has the place of a link that leads elsewhere.
        let owner = switches.of_port.get(port as usize);
        let own = switches.of_node[(node - self.config.cut.hosts) as usize];
        if owner == Some(&own) { port } else { NO_INGRESS }
    }

    /// The place of the port that the router names for a packet; `None` if routing knows of no way.
    #[inline]
    pub(super) fn place_usually(&mut self, node: u32, packet: &mut Transit, now: u64) -> Option<u32> {
        if self.fabric.router.needs_place_at() {
            self.fabric.router.place_at(node, packet, &self.fabric.cargo, now)
        } else {
            Some(self.fabric.router.place(node, packet, &self.fabric.cargo))
        }
    }

    /// A packet to a group is at a switch: each copy joins its port if there is room, independently of the others.
    fn arrive_for_group(&mut self, node: u32, group: usize, packet: &Transit, ingress: u32, now: u64) {
        let source = self.fabric.cargo.packet(packet).source;
        let mut ports = std::mem::take(&mut self.fabric.switches.copy_to);
        let members = &self.config.plan.multicast[group];
        self.fabric.router.copies(members, node, source, packet.uplinks(), |port| ports.push(port));
        if ports.is_empty() {
            self.lead_nowhere(packet.words(), now);
        }
        self.recorder.copies[usize::from(!packet.is_whole_data())] += (ports.len() as u64).saturating_sub(1);
        let share = (ports.len() > 1).then(|| self.share(ingress));
        for (n, &port) in ports.iter().enumerate() {
            let last = n + 1 == ports.len();
            let copy = if last { *packet } else { self.fabric.cargo.copy(packet) };
            self.sample_port(port as usize, now);
            self.enqueue_eager(port as usize, copy, share.unwrap_or(ingress), now);
            self.visit_later(port as usize);
        }
        if let Some(share) = share {
            self.end_share(share);
        }
        ports.clear();
        self.fabric.switches.copy_to = ports;
    }

    /// Opens an account for a packet with several copies that came in by `ingress`. Returns the value that its copies
    /// carry in place of the port.
    fn share(&mut self, ingress: u32) -> u32 {
        let share = Share { ingress, left: 1, accounted: false };
        let switches = &mut self.fabric.switches;
        let number = switches.free_shares.pop().unwrap_or_else(|| {
            switches.shares.push(share);
            switches.shares.len() as u32 - 1
        });
        switches.shares[number as usize] = share;
        number | SHARED
    }

    /// Notes that one of several copies is gone. Returns the packet's ingress port if this was the last copy and the
    /// packet was counted.
    fn end_share(&mut self, shared: u32) -> Option<u32> {
        let share = &mut self.fabric.switches.shares[(shared & !SHARED) as usize];
        share.left -= 1;
        if share.left > 0 {
            return None;
        }
        self.fabric.switches.free_shares.push(shared & !SHARED);
        share.accounted.then_some(share.ingress)
    }

    /// Puts a packet into an eager port at `now`.
    #[inline(always)]
    fn enqueue_eager(&mut self, i: usize, packet: Transit, ingress: u32, now: u64) {
        let size = u64::from(packet.size());
        let port = &self.ports[i];
        if port.has(flag::DOWN) {
            if self.config.link_credit.is_some() && !packet.is_control() {
                self.return_link_credit_of(ingress, size, now);
            }
            return self.at(i).lose_packet(packet.words());
        }
        let class = if self.config.priority && packet.is_control() { CONTROL } else { DATA };
        if class == CONTROL {
            if self.fabric.backlogs.of(port).queued[CONTROL] + size
                > self.limits[usize::from(port.limits)].thresholds.control
            {
                return self.at(i).drop_packet(packet.words());
            }
        } else if self.room(i, ingress, size) {
            self.account(i, ingress, size, now);
        } else {
            return self.refuse(i, packet.words(), ingress, now);
        }
        let port = &self.ports[i];
        let open = class == CONTROL || !port.has(flag::PAUSED);
        if open
            && self.fabric.switches.services[i].bytes == 0
            && port.busy_until <= now
            && self.fabric.backlogs.next_class(port).is_none()
        {
            self.begin(i, packet, ingress, class, now);
        } else {
            self.at(i).join(packet, ingress, class, now);
        }
    }

    /// Trims or drops a packet for which the switch has no room.
    #[cold]
    fn refuse(&mut self, i: usize, packet: [u64; 4], ingress: u32, now: u64) {
        let packet = Transit::of_words(packet);
        let mut at = self.at(i);
        if at.trim(packet, ingress, now) {
            self.serve(i, now);
        } else {
            at.drop_packet(packet.words());
        }
    }

    /// Eager ports: begins to send a packet at `now`.
    #[inline(always)]
    fn begin(&mut self, i: usize, packet: Transit, ingress: u32, class: usize, now: u64) {
        let lost_before = (class == DATA && self.config.link_credit.is_some()).then(|| self.fabric.colds[i].lost);
        let port = &mut self.ports[i];
        if port.flags & flag::ON_DEPARTURE != 0 || self.config.slow_departures || packet.is_fragment() {
            self.at(i).transmit_slowly(packet.words(), now);
        } else {
            let limits = &self.limits[usize::from(port.limits)];
            let end = port.depart(packet.size(), now, limits);
            self.recorder.hops += 1;
            let stop = match self.fabric.switches.of_node.get((port.to.wrapping_sub(self.config.cut.hosts)) as usize) {
                Some(switch) => switch * GROUP as u32,
                None => self.config.host_stop(port.to),
            };
            self.clock.calendar.put(end + limits.delay, stop, port.link, packet);
        }
        if let Some(lost) = lost_before {
            self.spend_link_credit(i, packet.size(), lost, now);
        }
        let service = &mut self.fabric.switches.services[i];
        service.ingress = ingress;
        service.bytes = if class == DATA { u32::from(packet.size()) } else { NOTHING_TO_RELEASE };
        service.until = self.ports[i].busy_until;
    }

    /// The bytes of data that wait at a port.
    #[inline]
    pub(super) fn waiting_at(&self, i: usize) -> u64 {
        self.fabric.backlogs.of(&self.ports[i]).queued[DATA]
    }

    /// Does the switch have room for `size` more bytes of data?
    #[inline]
    fn room(&self, i: usize, ingress: u32, size: u64) -> bool {
        let limits = &self.limits[usize::from(self.ports[i].limits)];
        let mut ingress = ingress;
        if ingress & SHARED != 0 {
            let share = &self.fabric.switches.shares[(ingress & !SHARED) as usize];
            if share.accounted {
                // A further copy needs no more room in the switch. Without PFC, each queue also has its own limit.
                let Some(shared) = limits.shared.filter(|_| limits.pfc.is_none()) else { return true };
                let free = self.free_at(i, &shared);
                return (self.waiting_at(i) + size) as f64 <= shared.alpha * free as f64;
            }
            ingress = share.ingress;
        }
        if let Some(buffer) = limits.cbfc {
            // Packets that a program of the switch made have no neighbour that could wait.
            let held = |i: u32| self.fabric.switches.services[i as usize].ingress_bytes;
            return ingress == NO_INGRESS || held(ingress) + size <= buffer;
        }
        if let Some(pfc) = limits.pfc {
            if ingress == NO_INGRESS {
                return limits.shared.is_none_or(|shared| size <= self.free_at(i, &shared));
            }
            let port = &self.fabric.switches.services[ingress as usize];
            if limits.shared.is_some() {
                return self.fits_share(i, ingress as usize, size) || port.ingress_headroom + size <= pfc.headroom.0;
            }
            return port.ingress_bytes + size <= self.pause_above(i) + pfc.headroom.0;
        }
        let Some(shared) = limits.shared else { return self.waiting_at(i) + size <= limits.thresholds.data };
        let free = self.free_at(i, &shared);
        size <= free && (self.waiting_at(i) + size) as f64 <= shared.alpha * free as f64
    }

    /// PFC over a shared buffer: do the ingress port's bytes stay below its threshold with `size` more?
    fn fits_share(&self, i: usize, ingress: usize, size: u64) -> bool {
        let port = &self.fabric.switches.services[ingress];
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

    /// The bytes in the shared buffer of a port's switch.
    fn buffered_at(&mut self, i: usize) -> &mut u64 {
        &mut self.fabric.switches.buffered[self.fabric.switches.of_port[i] as usize]
    }

    /// The free bytes in the shared buffer of a port's switch.
    fn free_at(&self, i: usize, shared: &SharedSettings) -> u64 {
        shared.buffer.0.saturating_sub(self.fabric.switches.buffered[self.fabric.switches.of_port[i] as usize])
    }

    /// Counts data that came into the switch, and pauses the neighbour that sent it if its bytes exceed the threshold.
    #[inline]
    fn account(&mut self, i: usize, ingress: u32, size: u64, now: u64) {
        let mut ingress = ingress as usize;
        if ingress & SHARED as usize != 0 {
            let share = &mut self.fabric.switches.shares[ingress & !(SHARED as usize)];
            share.left += 1;
            if std::mem::replace(&mut share.accounted, true) {
                return;
            }
            ingress = share.ingress as usize;
        }
        if self.config.plan.ports.shared.is_some() {
            if self.config.accounting && ingress != NO_INGRESS as usize && !self.fits_share(i, ingress, size) {
                self.fabric.switches.services[ingress].ingress_headroom += size;
            } else {
                *self.buffered_at(i) += size;
            }
        }
        if !self.config.accounting || ingress == NO_INGRESS as usize {
            return;
        }
        self.fabric.switches.services[ingress].ingress_bytes += size;
        if self.config.link_credit.is_none()
            && !self.fabric.switches.services[ingress].ingress_paused
            && self.fabric.switches.services[ingress].ingress_bytes > self.pause_above(i)
        {
            self.fabric.switches.services[ingress].ingress_paused = true;
            self.recorder.packets.pauses += 1;
            self.send_pause(ingress, now, true);
        }
    }

    /// Counts data that has left the switch, and lets the neighbour resume if its bytes are low enough.
    #[inline]
    fn release(&mut self, i: usize, ingress: usize, size: u64, now: u64) {
        let mut ingress = ingress;
        if ingress & SHARED as usize != 0 {
            let Some(real) = self.end_share(ingress as u32) else { return };
            ingress = real as usize;
        }
        if self.config.link_credit.is_some() {
            if ingress != NO_INGRESS as usize {
                self.fabric.switches.services[ingress].ingress_bytes -= size;
                self.return_link_credit(ingress, size, now);
            }
            return;
        }
        let Some(pfc) = self.limits[0].pfc else {
            if self.config.plan.ports.shared.is_some() {
                *self.buffered_at(i) -= size;
            }
            return;
        };
        if ingress == NO_INGRESS as usize {
            if self.config.plan.ports.shared.is_some() {
                *self.buffered_at(i) -= size;
            }
            return;
        }
        self.fabric.switches.services[ingress].ingress_bytes -= size;
        let resume_at = if self.config.plan.ports.shared.is_some() {
            // The headroom is emptied first, so that it is free for the next pause.
            let from_headroom = self.fabric.switches.services[ingress].ingress_headroom.min(size);
            self.fabric.switches.services[ingress].ingress_headroom -= from_headroom;
            *self.buffered_at(i) -= size - from_headroom;
            self.pause_above(i).saturating_sub(pfc.xon.0)
        } else {
            pfc.xon.0
        };
        // The headroom must hold all that arrives during the next pause, so the neighbour stays paused until it is
        // empty. Without a shared buffer it is empty always.
        if self.fabric.switches.services[ingress].ingress_paused
            && self.fabric.switches.services[ingress].ingress_headroom == 0
            && self.fabric.switches.services[ingress].ingress_bytes <= resume_at
        {
            self.fabric.switches.services[ingress].ingress_paused = false;
            self.send_pause(ingress, now, false);
        }
    }

    /// Sends a pause frame by a port after the packet on the wire. It takes effect at the port at the other end.
    fn send_pause(&mut self, i: usize, now: u64, on: bool) {
        let port = &mut self.ports[i];
        let start = port.busy_until.max(now);
        port.busy_until = start + port.transmission(PAUSE_FRAME, &self.limits[usize::from(port.limits)]);
        let ends = self.config.plan.topology.ends(LinkId(port.link)).expect("a port in use leads somewhere");
        let time = port.busy_until + self.config.plan.topology.level(ends.level).latency.0;
        let target = self.config.cut.slice_of(ends.to);
        if target == self.config.index {
            self.send_pause_on(time, ends.reverse.0, u32::from(on));
        } else {
            self.fabric.outboxes[target].send_news(News::Pause { time, link: ends.reverse.0, word: u32::from(on) });
        }
        self.visit_later(i);
    }

    /// Adds the arrival of a pause frame, or of credit, at the port that feeds `link`.
    pub(super) fn send_pause_on(&mut self, time: u64, link: u32, word: u32) {
        let source = self.config.sources.pause + link;
        let stop = if link < self.config.cut.link_bases[1] {
            self.config.host_stop(link / self.config.planes as u32)
        } else {
            self.port_stop(self.local(link) as u32)
        };
        self.clock.calendar.note(time, stop, source, word);
    }

    /// Handles a pause frame at this port.
    pub(super) fn pause(&mut self, i: usize, now: u64, on: bool) {
        let port = &mut self.ports[i];
        if on == port.has(flag::PAUSED) {
            return;
        }
        port.set(flag::PAUSED, on);
        let cold = &mut self.fabric.colds[i];
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

    /// Checks an eager port at the time that was planned. All arrivals of this instant are already processed.
    #[inline]
    fn visit(&mut self, i: usize, now: u64) {
        if self.fabric.switches.services[i].look_at != now {
            return;
        }
        self.sample_port(i, now);
        let service = &mut self.fabric.switches.services[i];
        service.look_at = u64::MAX;
        if service.bytes > 0 && service.until <= now {
            let (ingress, size) = (service.ingress as usize, service.bytes);
            service.bytes = 0;
            if size != NOTHING_TO_RELEASE {
                self.release(i, ingress, u64::from(size), now);
            }
        }
        self.serve(i, now);
    }

    /// Eager ports: begins the next transmission if the port is idle.
    #[inline]
    fn serve(&mut self, i: usize, now: u64) {
        let port = &mut self.ports[i];
        if self.fabric.switches.services[i].bytes == 0
            && port.busy_until <= now
            && let Some(class) = self.fabric.backlogs.next_class(port)
        {
            let packet = self.at(i).take(class, now);
            self.begin(i, packet, packet.ingress(), class, now);
        }
        self.visit_later(i);
    }

    /// Plans the next check of an eager port: when its transmission ends, or when its next one can begin.
    #[inline(always)]
    fn visit_later(&mut self, i: usize) {
        let (port, service) = (&self.ports[i], &mut self.fabric.switches.services[i]);
        let at = if service.bytes > 0 {
            service.until
        } else if self.fabric.backlogs.next_class(port).is_some() {
            port.busy_until
        } else {
            return;
        };
        if at < service.look_at {
            service.look_at = at;
            let switches = &mut self.fabric.switches;
            if at < switches.window.end {
                debug_assert!(at >= switches.window.start, "a look at {at} ps lies before its window");
                // A look that moves counts as an event at both times.
                let is_moved = switches.looks.set(port.link, (at - switches.window.start) as u32);
                self.clock.events_done += u64::from(is_moved);
            } else {
                let stop = switches.of_port[i] * GROUP as u32;
                self.clock.calendar.note(at, stop, self.config.sources.look + port.link, i as u32);
            }
        }
    }
}
