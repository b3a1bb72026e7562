//! ATP's program for a switch: the first fragment gets the slot, and keeps it until the server's answer passes.
//!
//! Lao et al., "ATP: In-network Aggregation for Multi-tenant Learning", NSDI 2021; the steps are those of the released
//! code (ESA sheet, section 11.2). Two levels are ours: the released code has one.

use crate::job::Job;
use crate::pool::{Slot, tag};
use crate::pooled::{Discipline, Pooled, ProgramView, slot_of};
use std::sync::Arc;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Fragment, Kind, Marks, key_of};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Fate};
use strandway_proto::units::{Span, Time};

/// The first fragment gets the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstCome;

/// The program of one switch that runs ATP.
pub type AtpProgram = Pooled<FirstCome>;

impl AtpProgram {
    /// The program of the switch above this leaf's hosts, with `slots` slots. `every` is the interval of the slot
    /// occupancy series.
    pub fn new(jobs: &[Arc<Job>], leaf: u32, slots: u32, rtt: Span, every: Span) -> AtpProgram {
        Pooled::with(FirstCome, jobs, leaf, slots, rtt, every)
    }
}

impl ProgramView<'_, FirstCome> {
    fn send_to_server(&mut self, job: &Job, fragment: Fragment, elements: Elements, plane: u8) {
        let fragment = Fragment { kind: Kind::Partial, ..fragment };
        let worker = job.workers().get(usize::from(fragment.sender)).copied();
        let source = worker.unwrap_or(job.server().near());
        self.send(job.packet(source, job.server(), plane, fragment), elements);
    }

    fn handle_data(&mut self, now: Time, job: &Job, fragment: Fragment, elements: Elements, plane: u8) {
        if fragment.marks.has(Marks::FLOAT) || fragment.marks.has(Marks::BYPASS) {
            return self.send_to_server(job, fragment, elements, plane);
        }
        let at = slot_of(&fragment, self.pool.len());
        let level = fragment.marks.has(Marks::LEVEL);
        let resend = fragment.marks.has(Marks::RESEND);
        let bits = if level { fragment.racks } else { fragment.workers };
        let slot = *self.pool.slot(at);
        let mut new = true;
        let mine = slot.key == tag(fragment.job, fragment.number) && slot.level == level;
        if !mine && (resend || slot.key != 0 || !self.pool.has_room(fragment.job)) {
            let marks = fragment.marks.with_if(!resend, Marks::COLLIDED);
            self.pool.counts(fragment.job).refused += u64::from(!resend);
            return self.send_to_server(job, Fragment { marks, ..fragment }, elements, plane);
        }
        if !mine {
            let slot = Slot {
                key: tag(fragment.job, fragment.number),
                bitmap: bits,
                racks: fragment.racks,
                fan_in: fragment.fan_in[usize::from(level)],
                fan_in_other: fragment.fan_in[usize::from(!level)],
                priority: 1,
                level,
                congested: fragment.marks.has(Marks::CONGESTED),
                elements: fragment.elements,
                ..Slot::default()
            };
            self.pool.install(now, at, slot);
            self.acts.push_back(Act::Store { to: at, from: elements });
        } else {
            new = slot.bitmap & bits == 0;
            self.pool.mark_used(now, at);
            self.pool.slot_mut(at).congested |= fragment.marks.has(Marks::CONGESTED);
            if new {
                self.pool.slot_mut(at).bitmap |= bits;
                self.acts.push_back(Act::Add { to: at, from: elements });
            } else {
                self.pool.counts(fragment.job).duplicates += 1;
            }
            if resend {
                // The slot's partial sum goes to the server with it, and the slot is free.
                self.give_out(now, job, at, fragment, plane);
                return self.pool.clear(now, at);
            }
        }
        if self.pool.slot(at).is_full() {
            if new {
                let counts = self.pool.counts(fragment.job);
                counts.completed += u64::from(level || fragment.fan_in[1] <= 1);
                counts.merged += if level { 0 } else { u64::from(fragment.fan_in[0]) };
            }
            self.give_out(now, job, at, fragment, plane);
        }
    }

    /// Sends a slot's sum: a rack's whole sum to the switch that adds racks, any other sum to the server.
    fn give_out(&mut self, now: Time, job: &Job, at: u32, fragment: Fragment, plane: u8) {
        let slot = *self.pool.slot(at);
        let marks = fragment.marks.with_if(slot.congested, Marks::CONGESTED);
        if slot.is_full() && !slot.level && slot.fan_in_other > 1 && !marks.has(Marks::RESEND) {
            let marks = Marks::LEVEL.with_if(slot.congested, Marks::CONGESTED);
            let up = Fragment { marks, workers: 0, sender: Fragment::SWITCH, watermark: 0, ..fragment };
            if self.jobs.adds(job, &up) {
                return self.handle_data(now, job, up, Elements::Register(at), plane);
            }
            return self.send(job.packet(job.server().near(), job.server(), plane, up), Elements::Register(at));
        }
        let whole = if slot.level { (0, slot.bitmap) } else { (slot.bitmap, slot.racks) };
        let out = Fragment { marks, workers: whole.0, racks: whole.1, ..fragment };
        self.send_to_server(job, out, Elements::Register(at), plane);
    }

    /// Frees the slot of a key at one level.
    fn forget(&mut self, now: Time, fragment: &Fragment, marks: Marks) {
        let level = marks == Marks::LEVEL;
        let at = slot_of(&Fragment { marks, ..*fragment }, self.pool.len());
        let slot = self.pool.slot(at);
        if slot.key == tag(fragment.job, fragment.number) && slot.level == level {
            self.pool.clear(now, at);
        }
    }

    /// A retransmitted fragment passes the switch that adds racks: this switch's partial sum of its key goes to the
    /// server as well.
    fn pull_racks(&mut self, now: Time, job: &Job, fragment: &Fragment, plane: u8) {
        let at = slot_of(&Fragment { marks: Marks::LEVEL, ..*fragment }, self.pool.len());
        let slot = *self.pool.slot(at);
        if slot.key == tag(fragment.job, fragment.number) && slot.level {
            let marks = Marks::LEVEL.with_if(slot.congested, Marks::CONGESTED);
            let out =
                Fragment { marks, workers: 0, racks: slot.bitmap, watermark: 0, sender: Fragment::SWITCH, ..*fragment };
            self.send_to_server(job, out, Elements::Register(at), plane);
            self.pool.clear(now, at);
        }
    }
}

impl Discipline for FirstCome {
    fn handle_packet(program: &mut AtpProgram, now: Time, packet: &Packet) -> Fate {
        let Header::Fragment(fragment) = packet.header else { return Fate::Forward };
        let mut view = program.view();
        let Some(job) = view.jobs.get(fragment.job) else { return Fate::Consume };
        let marks = fragment.marks.with_if(packet.flags.has(Flags::CE), Marks::CONGESTED);
        let fragment = Fragment { marks, ..fragment };
        let plane = packet.path.port();
        match fragment.kind {
            Kind::Data if packet.flags.has(Flags::TRIMMED) => Fate::Consume,
            Kind::Data if view.jobs.adds(job, &fragment) => {
                if key_of(fragment.number, job.shape.first).is_some_and(|key| job.admits(&fragment, key)) {
                    view.handle_data(now, job, fragment, Elements::Incoming, plane);
                } else {
                    view.pool.counts(fragment.job).odd += 1;
                }
                Fate::Consume
            }
            Kind::Partial if marks.has(Marks::RESEND) => {
                if view.jobs.adds(job, &Fragment { marks: Marks::LEVEL, ..fragment }) {
                    view.pull_racks(now, job, &fragment, plane);
                }
                Fate::Forward
            }
            Kind::Result | Kind::Credit => {
                for marks in [Marks::NONE, Marks::LEVEL] {
                    view.forget(now, &fragment, marks);
                }
                Fate::Forward
            }
            _ => Fate::Forward,
        }
    }
}
