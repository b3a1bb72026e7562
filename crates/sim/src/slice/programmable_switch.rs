//! Programmable switches: switches that run a program. The program gets each packet of its scope, usually each
//! fragment, before the packet joins a port; all other packets pass.
//!
//! With programmable switches, a window has one link latency, so a packet that leaves a port or a host in a window
//! cannot reach a programmable switch in the same window. Programmable switches are visited before all ports, because
//! the packets that they send join ports at the same instant.

use super::{PACKETS_AHEAD, Slice};
use crate::calendar::{Calendar, GROUP, Order};
use crate::road::Transit;
use std::ops::Range;
use strandway_collective::Programs;
use strandway_fabric::NodeId;
use strandway_fabric::topology::LinkId;
use strandway_proto::Packet;
use strandway_proto::program::{Act, Fate, Program, Scope};
use strandway_proto::units::Time;

/// The programmable switches of a slice.
pub(super) struct Stations {
    /// For each switch, by node without the hosts, its programmable switch number; [`u32::MAX`] for a switch that is no
    /// programmable switch. Empty if there are no programmable switches.
    pub(super) of_node: Vec<u32>,
    pub(super) nodes: Vec<u32>,
    pub(super) programs: Vec<Box<dyn Program>>,
    /// For each program: true if it sees all packets.
    sees_all: Vec<bool>,
    /// Their events; each programmable switch has its own group of stops.
    pub(super) calendar: Calendar,
    order: Order,
}

impl Stations {
    /// The programmable switches among these switches, in windows of this length.
    pub(super) fn new(
        programs: &Programs<'_>,
        switches: impl Iterator<Item = u32>,
        hosts: u32,
        nodes: u32,
        (span, ahead): (u64, u64),
    ) -> Stations {
        let found: Vec<(u32, Box<dyn Program>)> =
            switches.filter_map(|node| Some((node, programs.switch_at(NodeId(node))?))).collect();
        let mut of_node = Vec::new();
        if !found.is_empty() {
            of_node.resize((nodes - hosts) as usize, u32::MAX);
        }
        for (number, (node, _)) in (0..).zip(&found) {
            of_node[(node - hosts) as usize] = number;
        }
        let (nodes, programs): (Vec<u32>, Vec<Box<dyn Program>>) = found.into_iter().unzip();
        let sees_all = programs.iter().map(|program| program.scope() == Scope::All).collect();
        let calendar = Calendar::new(programs.len() * GROUP, span, ahead, (0, 0));
        Stations { of_node, nodes, programs, sees_all, calendar, order: Order::default() }
    }

    /// The programmable switch that sees a packet at a node, which is counted without the hosts.
    #[inline]
    pub(super) fn that_sees(&self, packet: &Transit, node: u32) -> Option<u32> {
        let station = *self.of_node.get(node as usize)?;
        (packet.is_fragment() || *self.sees_all.get(station as usize)?).then_some(station).filter(|s| *s != u32::MAX)
    }

    /// True if a program sees packets that are no fragments.
    pub(super) fn see_all(&self) -> bool {
        self.sees_all.contains(&true)
    }

    /// True if there are no programmable switches.
    pub(super) fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }
}

impl Slice<'_> {
    /// Processes all events of programmable switches in a window, up to `limit`.
    pub(super) fn visit_stations(&mut self, window: Range<u64>, limit: u64) {
        let number = self.fabric.stations.calendar.window_of(window.start);
        self.fabric.stations.calendar.begin(number);
        let mut order = std::mem::take(&mut self.fabric.stations.order);
        for station in 0..self.fabric.stations.programs.len() {
            let batch = self.fabric.stations.calendar.take(station);
            let count = batch.len();
            if count > 0 {
                self.clock.events_done += count as u64;
                order.arrange_one(&batch, self.fabric.stations.calendar.span());
                self.visit_station(station, order.all(), window.start, window.end.min(limit));
            }
            self.fabric.stations.calendar.give_back(batch);
        }
        self.fabric.stations.order = order;
    }

    /// Processes all events of a programmable switch from `from` up to `until`.
    fn visit_station(&mut self, station: usize, entries: &[Transit], from: u64, until: u64) {
        for (n, entry) in entries.iter().enumerate() {
            if let Some(later) = entries.get(n + PACKETS_AHEAD) {
                self.fabric.cargo.prefetch(later);
            }
            let now = from + entry.offset();
            if now >= until {
                self.clock.cut_off = true;
                break;
            }
            self.wake_station(station, now);
            let packet = *self.fabric.cargo.packet_with_marks(entry);
            let link = entry.source();
            let fate = self.fabric.stations.programs[station].handle_packet(Time(now), &packet);
            self.act_at_station(station, link, now);
            match fate {
                Fate::Forward => self.send_past(now, link, self.fabric.stations.nodes[station], *entry),
                Fate::Consume if !entry.is_fragment() => self.lead_nowhere(entry.words(), now),
                Fate::Consume => {
                    self.recorder.packets.fragments_arrived += u64::from(entry.is_whole_data());
                    self.fabric.cargo.release(entry);
                }
            }
        }
        self.wake_station(station, until);
        let next = self.fabric.stations.programs[station].poll_timeout().0;
        if next != u64::MAX {
            self.fabric.stations.calendar.visit(next, (station * GROUP) as u32);
        }
    }

    /// Runs the timers of a programmable switch that are due before `until`.
    fn wake_station(&mut self, station: usize, until: u64) {
        loop {
            let due = self.fabric.stations.programs[station].poll_timeout();
            if due.0 >= until {
                return;
            }
            self.fabric.stations.programs[station].handle_timeout(due);
            let (LinkId(own), _) = self.config.plan.topology.ports_of(NodeId(self.fabric.stations.nodes[station]));
            self.act_at_station(station, own, due.0);
        }
    }

    /// Sends the packets of a programmable switch's program. In the order of arrivals at a port, the first packet takes
    /// the place of `link`, further ones that of the reverse link.
    fn act_at_station(&mut self, station: usize, link: u32, now: u64) {
        let mut place = link;
        while let Some(act) = self.fabric.stations.programs[station].poll_act() {
            if let Act::Send { packet, .. } = act {
                self.emit(station, place, now, &packet);
                place = self.config.plan.topology.ends(LinkId(link)).map_or(link, |ends| ends.reverse.0);
            }
        }
    }

    /// Sends a packet that a program made.
    fn emit(&mut self, station: usize, place: u32, now: u64, packet: &Packet) {
        let node = self.fabric.stations.nodes[station];
        let uplinks = match packet.destination.as_group() {
            None => self.fabric.router.uplinks_at(node, packet),
            Some(_) => self.fabric.router.tree(&self.config.plan.multicast, packet, now),
        };
        let transit = self.fabric.cargo.put(packet, uplinks);
        self.recorder.packets.fragments += u64::from(transit.is_whole_data());
        self.send_past(now, place, node, transit);
    }
}
