//! Moves packets between ports: over a link to a switch, and to the port that routing chooses.

use super::Slice;
use super::visit::AtPort;
use crate::calendar::{Calendar, GROUP};
use crate::road::{Cargo, Transit};
use crate::route::Router;
use strandway_fabric::Members;
use strandway_fabric::measure::PacketCounters;
use strandway_fabric::plan::Plan;

/// The parts of a slice that are needed to send a packet on within it.
pub(super) struct Road<'s> {
    pub(super) calendar: &'s mut Calendar,
    /// Switches that run a program, and the calendar of their events.
    of_station: &'s [u32],
    stations: &'s mut Calendar,
    router: &'s mut Router,
    /// The numbers of the switches of this slice, by node, if their ports are eager.
    switches: &'s [u32],
    first_host: u32,
    first_host_stop: u32,
    pub(super) first_port: u32,
    hosts: u32,
    /// True if switch ports are eager, routing sometimes knows dead links, packets go to groups, or switches run
    /// programs.
    special: bool,
    groups: &'s [Members],
    /// The numbers of whole and of trimmed packets made by copying.
    copies: &'s mut [u64; 2],
}

impl Road<'_> {
    /// Sends a packet over a link to `node`, where it arrives at `time`, in a later window. False if routing knows no
    /// way from there.
    #[inline(always)]
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit, cargo: &mut Cargo) -> bool {
        if node < self.hosts {
            self.calendar.put(time, self.first_host_stop + node - self.first_host, link, packet);
        } else if self.special {
            return self.send_on_slowly(time, link, node, packet, cargo);
        } else {
            let port = self.router.place(node, &packet, cargo);
            self.calendar.put(time, port - self.first_port, link, packet);
        }
        true
    }

    #[inline(never)]
    fn send_on_slowly(&mut self, time: u64, link: u32, node: u32, packet: Transit, cargo: &mut Cargo) -> bool {
        if packet.is_fragment()
            && let Some(&station) = self.of_station.get((node - self.hosts) as usize)
            && station != u32::MAX
        {
            self.stations.put(time, station * GROUP as u32, link, packet);
            return true;
        }
        self.send_past(time, link, node, packet, cargo)
    }

    /// The same for a packet that passes no program at `node`, or that has already passed it.
    fn send_past(&mut self, time: u64, link: u32, node: u32, mut packet: Transit, cargo: &mut Cargo) -> bool {
        if let Some(switch) = self.switches.get((node - self.hosts) as usize) {
            self.calendar.put(time, switch * GROUP as u32, link, packet);
            return true;
        }
        if let Some(group) = packet.group() {
            return self.copy_on(time, link, node, packet, &self.groups[group], cargo);
        }
        let Some(port) = self.router.place_at(node, &mut packet, cargo, time) else { return false };
        self.calendar.put(time, port - self.first_port, link, packet);
        true
    }

    /// The same for a packet to a group: a copy joins each port of its tree. Each copy is marked, trimmed, dropped or
    /// lost independently.
    fn copy_on(
        &mut self,
        time: u64,
        link: u32,
        node: u32,
        packet: Transit,
        members: &Members,
        cargo: &mut Cargo,
    ) -> bool {
        let source = cargo.packet(&packet).source;
        let (calendar, copies, first_port) = (&mut *self.calendar, &mut *self.copies, self.first_port);
        let mut only = true;
        self.router.copies(members, node, source, packet.uplinks(), |port| {
            // The first copy is the packet itself.
            let copy = if std::mem::take(&mut only) {
                packet
            } else {
                copies[usize::from(!packet.is_whole_data())] += 1;
                cargo.copy(&packet)
            };
            calendar.put(time, port - first_port, link, copy);
        });
        !only
    }
}

/// The [`Road`] of a slice. It is a macro because other fields of the slice are borrowed at the same time.
macro_rules! road {
    ($slice:expr) => {
        Road {
            calendar: &mut $slice.calendar,
            of_station: &$slice.stations.of_node,
            stations: &mut $slice.stations.calendar,
            router: &mut $slice.router,
            switches: &$slice.switches.of_node,
            first_host: $slice.first_host,
            first_host_stop: $slice.first_host_stop,
            first_port: $slice.first_port,
            hosts: $slice.cut.hosts,
            special: $slice.special,
            groups: &$slice.plan.multicast,
            copies: &mut $slice.copies,
        }
    };
}

impl Slice<'_> {
    /// The stop of a host of this slice.
    #[inline]
    pub(super) fn host_stop(&self, host: u32) -> u32 {
        self.first_host_stop + host - self.first_host
    }

    /// The stop of a switch's port: its own stop, or that of its switch if ports are eager.
    #[inline]
    pub(super) fn port_stop(&self, port: u32) -> u32 {
        match self.switches.of_port.get(port as usize) {
            Some(switch) => switch * GROUP as u32,
            None => port - self.first_port,
        }
    }

    /// A port, with the parts of the slice that it needs.
    #[inline]
    pub(super) fn at(&mut self, i: usize) -> AtPort<'_> {
        let port = &mut self.ports[i];
        AtPort {
            i,
            limits: &self.limits[usize::from(port.limits)],
            port,
            colds: &mut self.colds,
            fifos: &mut self.fifos,
            arena: &mut self.arena,
            cargo: &mut self.cargo,
            packets: &mut self.packets,
            hops: &mut self.hops,
            sampler: &mut self.sampler,
            faults: &mut self.faults,
            captured: &mut self.captured,
            outboxes: &mut self.outboxes,
            plan: self.plan,
            cut: self.cut,
            priority: self.priority,
            sampling: self.sampling,
            cut_rate: self.cut_rate,
            road: road!(self),
        }
    }

    /// Sends a packet from another slice over a link to `node`.
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit) {
        let mut road = road!(self);
        if !road.send_on(time, link, node, packet, &mut self.cargo) {
            self.lead_nowhere(&packet, time);
        }
    }

    /// Sends a packet on from a switch whose program has seen or created it.
    pub(super) fn send_past(&mut self, time: u64, link: u32, node: u32, packet: Transit) {
        let mut road = road!(self);
        if !road.send_past(time, link, node, packet, &mut self.cargo) {
            self.lead_nowhere(&packet, time);
        }
    }

    /// Loses a packet that arrives at a switch which knows no way for it.
    #[cold]
    pub(super) fn lead_nowhere(&mut self, packet: &Transit, time: u64) {
        lead_nowhere(self.plan, &mut self.packets, &mut self.cargo, packet, time);
    }

    /// Processes all events of a lazy port from `from` up to `until`, which is a window or a part of one.
    #[inline]
    pub(super) fn visit_port(&mut self, i: usize, entries: &[Transit], from: u64, until: u64) {
        let mut entries = entries;
        if entries.last().is_some_and(|e| from.wrapping_add(e.offset()) >= until) {
            self.cut_off = true;
            entries = &entries[..entries.partition_point(|e| from.wrapping_add(e.offset()) < until)];
        }
        let faults = self.sources.fault;
        while !self.fault_events.is_empty()
            && let Some(next) = entries.iter().position(|e| e.source() >= faults)
        {
            let fault = &entries[next];
            let time = from.wrapping_add(fault.offset());
            self.at(i).work(&entries[..next], from, time);
            self.break_or_mend(fault.cargo() as usize, time);
            entries = &entries[next + 1..];
        }
        let mut at = self.at(i);
        at.work(entries, from, until);
        at.visit_later(until);
    }

    /// Decides every departure of a lazy port that begins before `until`.
    #[inline]
    pub(super) fn drain(&mut self, i: usize, until: u64) {
        self.at(i).drain(until);
    }
}

/// Loses a packet that arrives at `time` at a switch which knows no way for it.
#[cold]
pub(super) fn lead_nowhere(plan: &Plan, packets: &mut PacketCounters, cargo: &mut Cargo, packet: &Transit, time: u64) {
    if time <= plan.time_limit.0 {
        packets.lost += 1;
        packets.lost_control += u64::from(!packet.is_whole_data());
    }
    cargo.release(packet);
}
