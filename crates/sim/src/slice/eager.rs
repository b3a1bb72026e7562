//! Ports of switches that have to know at once what has left: PFC, and shared buffers.

use super::{Crossing, Slice};
use crate::event::Event;
use crate::port::{CONTROL, DATA, flag};
use crate::road::Transit;
use strandway_fabric::plan::SharedSettings;
use strandway_fabric::topology::LinkId;

/// Bytes of a PFC pause frame on the wire: a minimum Ethernet frame.
const PAUSE_FRAME: u16 = 64;

/// Stands for the bytes of a control packet in service: they are not accounted for.
const NOTHING_TO_RELEASE: u32 = u32::MAX;

impl Slice<'_> {
    /// A packet joins an eager port at `now`.
    pub(super) fn enqueue_eager(&mut self, i: usize, packet: Transit, ingress: u32, now: u64) {
        let size = u64::from(packet.size());
        let mut at = self.at(i);
        if at.port.has(flag::DOWN) {
            return at.lose_packet(&packet);
        }
        let class = at.class_of(&packet);
        if class == CONTROL {
            if at.port.queued[CONTROL] + size > at.limits.control {
                return at.drop_packet(&packet);
            }
        } else if self.room(i, ingress, size) {
            self.account(i, ingress, size, now);
        } else {
            let mut at = self.at(i);
            if at.trim(packet, ingress, now) {
                self.serve(i, now);
            } else {
                at.drop_packet(&packet);
            }
            return;
        }
        let port = &self.ports[i];
        let open = class == CONTROL || !port.has(flag::PAUSED);
        if open && port.serving_bytes == 0 && port.busy_until <= now && port.next_class().is_none() {
            self.begin(i, packet, ingress, class, now);
        } else {
            self.at(i).append(packet, ingress, class, now);
        }
    }

    /// Eager ports: a packet begins to leave now.
    fn begin(&mut self, i: usize, packet: Transit, ingress: u32, class: usize, now: u64) {
        let port = &mut self.ports[i];
        port.serving_ingress = ingress;
        port.serving_bytes = if class == DATA { u32::from(packet.size()) } else { NOTHING_TO_RELEASE };
        self.at(i).transmit(packet, now);
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
            let packet = self.at(i).take(class, now);
            self.begin(i, packet, packet.ingress(), class, now);
        }
        self.look_later(i);
    }

    /// Makes sure that an eager port is looked at when its transmission ends or its next one can begin.
    pub(super) fn look_later(&mut self, i: usize) {
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
