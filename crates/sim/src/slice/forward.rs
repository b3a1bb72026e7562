//! Packets between ports: over a link, to a switch, out by the port that routing names.

use super::Slice;
use super::visit::AtPort;
use crate::calendar::Calendar;
use crate::event::{Event, EventQueue};
use crate::pool::{Pool, Slot};
use crate::port::flag;
use crate::road::{Cargo, Transit};
use crate::route::Router;

/// What it takes to send a packet on within a slice.
pub(super) struct Road<'s> {
    pub(super) calendar: &'s mut Calendar,
    router: &'s Router,
    events: &'s mut EventQueue,
    pool: &'s mut Pool,
    first_host: u32,
    first_host_stop: u32,
    pub(super) first_port: u32,
    hosts: u32,
    by_event: bool,
}

impl Road<'_> {
    /// A packet is on its way over a link to `node` and will be there at `time`, in a later window.
    #[inline(always)]
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit, cargo: &Cargo) {
        if node < self.hosts {
            self.calendar.put(time, self.first_host_stop + node - self.first_host, link, packet);
        } else if self.by_event {
            let data = self.pool.put(packet, node);
            self.events.push(Event { time, source: link, data });
        } else {
            let port = self.router.place(node, &packet, cargo);
            self.calendar.put(time, port - self.first_port, link, packet);
        }
    }
}

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

    /// A port, and all that it takes to work there.
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
            outbox: &mut self.outbox,
            plan: self.plan,
            cut: self.cut,
            priority: self.priority,
            sampling: self.sampling,
            cut_rate: self.cut_rate,
            road: Road {
                calendar: &mut self.calendar,
                router: &self.router,
                events: &mut self.events,
                pool: &mut self.pool,
                first_host: self.first_host,
                first_host_stop: self.first_host_stop,
                first_port: self.first_port,
                hosts: self.cut.hosts,
                by_event: self.by_event,
            },
        }
    }

    /// A packet from another slice is on its way over a link to `node`.
    pub(super) fn send_on(&mut self, time: u64, link: u32, node: u32, packet: Transit) {
        Road {
            calendar: &mut self.calendar,
            router: &self.router,
            events: &mut self.events,
            pool: &mut self.pool,
            first_host: self.first_host,
            first_host_stop: self.first_host_stop,
            first_port: self.first_port,
            hosts: self.cut.hosts,
            by_event: self.by_event,
        }
        .send_on(time, link, node, packet, &self.cargo);
    }

    /// A packet is at a switch, all of it, and either that switch must know at once or routing may have changed.
    pub(super) fn arrive(&mut self, event: Event) {
        let Slot { packet, node } = self.pool.take(event.data);
        let link = if self.router.ignores_faults() {
            Some(self.router.link(node, &packet, &self.cargo))
        } else {
            self.router.route(node, self.cargo.look(&packet))
        };
        let Some(link) = link else {
            self.packets.lost += 1;
            self.packets.lost_control += u64::from(!packet.is_whole_data());
            self.cargo.release(&packet);
            return;
        };
        let port = self.local(link);
        let ingress = if self.accounting { self.local(self.cut.reverse[event.source as usize]) as u32 } else { 0 };
        self.sample_port(port, event.time);
        if self.ports[port].has(flag::EAGER) {
            self.enqueue_eager(port, packet, ingress, event.time);
            self.look_later(port);
        } else {
            let mut at = self.at(port);
            at.enqueue(packet, event.time);
            at.visit_later(event.time);
        }
    }

    /// Decides everything that happens at a lazy port from `from` up to `until`, a window or its part.
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
