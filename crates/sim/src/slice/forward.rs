//! Moves packets between ports: over a link to a switch, and to the port that routing chooses.

use super::Slice;
use super::fabric::Fabric;
use super::recorder::Recorder;
use super::run_config::RunConfig;
use super::visit::AtPort;
use crate::calendar::{Calendar, GROUP};
use crate::port::flag;
use crate::road::{Cargo, Transit};
use strandway_fabric::Members;
use strandway_fabric::plan::Plan;

/// The parts of a slice that are needed to send a packet on within it.
pub(super) struct Road<'s, 'a> {
    pub(super) config: &'s RunConfig<'a>,
    pub(super) calendar: &'s mut Calendar,
    pub(super) fabric: &'s mut Fabric,
    /// The numbers of whole and of trimmed packets made by copying.
    pub(super) copies: &'s mut [u64; 2],
}

impl Road<'_, '_> {
    /// Sends a packet over a link to `node`, where it arrives at `time`, in a later window. False if routing knows no
    /// way from there.
    #[inline(always)]
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit) -> bool {
        if node < self.config.cut.hosts {
            self.calendar.put(time, self.config.host_stop(node), link, packet);
        } else if self.config.special {
            return self.send_on_slowly(time, link, node, packet.words());
        } else {
            let port = self.fabric.router.place(node, &packet, &self.fabric.cargo);
            self.calendar.put(time, port - self.config.first_port, link, packet);
        }
        true
    }

    #[inline(never)]
    fn send_on_slowly(&mut self, time: u64, link: u32, node: u32, packet: [u64; 4]) -> bool {
        let packet = Transit::of_words(packet);
        let stations = &mut self.fabric.stations;
        if let Some(station) = stations.that_sees(&packet, node - self.config.cut.hosts) {
            stations.calendar.put(time, station * GROUP as u32, link, packet);
            return true;
        }
        self.send_past(time, link, node, packet)
    }

    /// Sends a packet over a link to `node` if it passes no program there, or has already passed it. False if routing
    /// knows no way from there.
    fn send_past(&mut self, time: u64, link: u32, node: u32, mut packet: Transit) -> bool {
        if let Some(switch) = self.fabric.switches.of_node.get((node - self.config.cut.hosts) as usize) {
            self.calendar.put(time, switch * GROUP as u32, link, packet);
            return true;
        }
        if let Some(group) = packet.group() {
            return self.copy_on(time, link, node, packet, &self.config.plan.multicast[group]);
        }
        let Fabric { router, cargo, .. } = &mut *self.fabric;
        let Some(port) = router.place_at(node, &mut packet, cargo, time) else { return false };
        self.calendar.put(time, port - self.config.first_port, link, packet);
        true
    }

    /// Sends a packet to a group over a link to `node`: a copy joins each port of its tree. Each copy is marked,
    /// trimmed, dropped or lost independently.
    fn copy_on(&mut self, time: u64, link: u32, node: u32, packet: Transit, members: &Members) -> bool {
        let Fabric { router, cargo, .. } = &mut *self.fabric;
        let source = cargo.packet(&packet).source;
        let (calendar, copies, first_port) = (&mut *self.calendar, &mut *self.copies, self.config.first_port);
        let mut only = true;
        router.copies(members, node, source, packet.uplinks(), |port| {
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

impl<'a> Slice<'a> {
    /// The stop of a switch's port: its own stop, or that of its switch if ports are eager.
    #[inline]
    pub(super) fn port_stop(&self, port: u32) -> u32 {
        match self.fabric.switches.of_port.get(port as usize) {
            Some(switch) => switch * GROUP as u32,
            None => port - self.config.first_port,
        }
    }

    /// A port, with the parts of the slice that it needs.
    #[inline]
    pub(super) fn at(&mut self, i: usize) -> AtPort<'_, 'a> {
        let port = &mut self.ports[i];
        let limits = &self.limits[usize::from(port.limits)];
        let cut_rate = self.config.cut_rate;
        AtPort {
            i,
            limits,
            cuts_through: cut_rate != 0 && limits.rate.0 == cut_rate && !port.has(flag::LAST),
            special: self.config.sampling || port.flags & flag::ON_DEPARTURE != 0,
            port,
            config: &self.config,
            calendar: &mut self.clock.calendar,
            fabric: &mut self.fabric,
            recorder: &mut self.recorder,
        }
    }

    fn road(&mut self) -> Road<'_, 'a> {
        Road {
            config: &self.config,
            calendar: &mut self.clock.calendar,
            fabric: &mut self.fabric,
            copies: &mut self.recorder.copies,
        }
    }

    /// Sends a packet from another slice over a link to `node`.
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit) {
        if !self.road().send_on(time, link, node, packet) {
            self.lead_nowhere(packet.words(), time);
        }
    }

    /// Sends a packet on from a switch whose program has seen or created it.
    pub(super) fn send_past(&mut self, time: u64, link: u32, node: u32, packet: Transit) {
        if !self.road().send_past(time, link, node, packet) {
            self.lead_nowhere(packet.words(), time);
        }
    }

    /// Loses a packet that arrives at a switch which knows no way for it.
    #[cold]
    pub(super) fn lead_nowhere(&mut self, packet: [u64; 4], time: u64) {
        lead_nowhere(self.config.plan, &mut self.recorder, &mut self.fabric.cargo, packet, time);
    }

    /// Processes all events of a lazy port from `from` up to `until`, which is a window or a part of one.
    #[inline]
    pub(super) fn visit_port(&mut self, i: usize, entries: &[Transit], from: u64, until: u64) {
        let mut entries = entries;
        if entries.last().is_some_and(|e| from.wrapping_add(e.offset()) >= until) {
            self.clock.cut_off = true;
            entries = &entries[..entries.partition_point(|e| from.wrapping_add(e.offset()) < until)];
        }
        let faults = self.config.sources.fault;
        while !self.config.fault_events.is_empty()
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
pub(super) fn lead_nowhere(plan: &Plan, recorder: &mut Recorder<'_>, cargo: &mut Cargo, packet: [u64; 4], time: u64) {
    let packet = &Transit::of_words(packet);
    if time <= plan.time_limit.0 {
        recorder.packets.lost += 1;
        recorder.packets.lost_control += u64::from(!packet.is_whole_data());
    }
    cargo.release(packet);
}
