//! ESA's program for a switch: slots that fragments of a higher priority take over.
//!
//! H. Wang et al., "Efficient Data-Plane Memory Scheduling for In-Network Aggregation", arXiv 2201.06398. Only the
//! abstract was available: preemption and priorities are the paper's, all details are ours (`docs/protocols/esa.md`).

use crate::job::Job;
use crate::pool::{Slot, tag};
use crate::pooled::{Discipline, Pooled, ProgramView, slot_of};
use crate::settings::{Aging, Esa, Refresh, ResultPath};
use std::sync::Arc;
use strandway_proto::aggregate::{Fragment, Kind, Marks, key_of};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Fate};
use strandway_proto::units::{Span, Time};
use strandway_proto::{HostId, Packet};

/// After this many round trips without a fragment, a slot's holder ages with every refusal. Ours.
const IDLE_RTTS: u64 = 32;

/// The program of one switch that runs ESA.
pub type EsaProgram = Pooled<Esa>;

/// An arriving fragment, with the source of its elements.
#[derive(Clone, Copy)]
struct Arrival {
    fragment: Fragment,
    elements: Elements,
    plane: u8,
}

impl EsaProgram {
    /// The program of the switch above this leaf's hosts, with `slots` slots. `every` is the interval of the slot
    /// occupancy series.
    pub fn new(jobs: &[Arc<Job>], leaf: u32, slots: u32, settings: Esa, rtt: Span, every: Span) -> EsaProgram {
        Pooled::with(settings, jobs, leaf, slots, rtt, every)
    }

    /// Checks the conditions that slots must always meet. For tests.
    pub fn check(&self) {
        for at in 0..self.pool.len() {
            let slot = self.pool.slot(at);
            assert_eq!(slot.key == 0, slot.bitmap == 0, "slot {at}: an empty slot has nobody");
            assert!(slot.bitmap.count_ones() <= u32::from(slot.fan_in), "slot {at}: no more than its fan-in");
            assert!(slot.key != 0 || slot.priority == 0, "slot {at}: an empty slot has priority 0");
        }
    }
}

/// The header of a slot's sum. All its fields come from the slot, none from the packet that caused the sending.
fn header(slot: &Slot, at: u32, slots: u32, kind: Kind, marks: Marks) -> Fragment {
    let marks = marks.with_if(slot.level, Marks::LEVEL).with_if(slot.congested, Marks::CONGESTED);
    let away = if slot.level { slots - slots / 2 } else { 0 };
    Fragment {
        kind,
        marks,
        priority: slot.priority.max(1),
        job: slot.job(),
        fan_in: if slot.level { [slot.fan_in_other, slot.fan_in] } else { [slot.fan_in, slot.fan_in_other] },
        number: slot.number(),
        workers: if slot.level { 0 } else { slot.bitmap },
        racks: if slot.level { slot.bitmap } else { slot.racks },
        slot: (at + away) % slots,
        watermark: 0,
        elements: slot.elements,
        sender: Fragment::SWITCH,
    }
}

impl ProgramView<'_, Esa> {
    /// Sends a fragment on to the job's server.
    fn send_to_server(&mut self, job: &Job, arrival: Arrival, marks: Marks) {
        let Arrival { fragment, elements, plane } = arrival;
        let fragment = Fragment { kind: Kind::Partial, marks: fragment.marks.with(marks), ..fragment };
        // A worker's own packet keeps its source. A packet that a switch makes has a source near the server; no
        // receiver checks it.
        let source = match fragment.sender {
            Fragment::SWITCH => job.server().near(),
            worker => job.workers().get(usize::from(worker)).copied().unwrap_or(job.server()),
        };
        self.send(job.packet(source, job.server(), plane, fragment), elements);
    }

    /// Sends a slot's sum to the server of the slot's job.
    fn give_out(&mut self, at: u32, kind: Kind, marks: Marks, plane: u8) {
        let slot = *self.pool.slot(at);
        let Some(job) = self.jobs.get(slot.job()) else { return };
        let fragment = header(&slot, at, self.pool.len(), kind, marks);
        self.send(job.packet(job.server().near(), job.server(), plane, fragment), Elements::Register(at));
    }

    fn install(&mut self, now: Time, at: u32, arrival: &Arrival) {
        let Fragment { marks, priority, job, fan_in, number, workers, racks, elements, .. } = arrival.fragment;
        let level = marks.has(Marks::LEVEL);
        let slot = Slot {
            key: tag(job, number),
            bitmap: if level { racks } else { workers },
            racks,
            fan_in: fan_in[usize::from(level)],
            fan_in_other: fan_in[usize::from(!level)],
            priority,
            level,
            congested: marks.has(Marks::CONGESTED),
            elements,
            ..Slot::default()
        };
        self.pool.install(now, at, slot);
        self.acts.push_back(Act::Store { to: at, from: arrival.elements });
    }

    fn handle_data(&mut self, now: Time, job: &Job, arrival: Arrival) {
        let fragment = arrival.fragment;
        let at = slot_of(&fragment, self.pool.len());
        if fragment.priority == 0 {
            // Priority 0 is reserved for empty slots.
            self.pool.counts(fragment.job).odd += 1;
            return;
        }
        if fragment.marks.has(Marks::BYPASS) || fragment.marks.has(Marks::FLOAT) || fragment.marks.has(Marks::RESEND) {
            return self.send_to_server(job, arrival, Marks::NONE);
        }
        let level = fragment.marks.has(Marks::LEVEL);
        let bits = if level { fragment.racks } else { fragment.workers };
        let slot = *self.pool.slot(at);
        if slot.key == tag(fragment.job, fragment.number) && slot.level == level {
            if slot.fan_in != fragment.fan_in[usize::from(level)] || slot.elements != fragment.elements {
                self.pool.counts(fragment.job).odd += 1;
                return self.send_to_server(job, arrival, Marks::NONE);
            }
            if slot.bitmap & bits != 0 {
                self.pool.counts(fragment.job).duplicates += 1;
                return;
            }
            self.pool.mark_used(now, at);
            let slot = self.pool.slot_mut(at);
            slot.bitmap |= bits;
            slot.congested |= fragment.marks.has(Marks::CONGESTED);
            if self.discipline.refresh == Refresh::Highest {
                slot.priority = slot.priority.max(fragment.priority);
            }
            self.acts.push_back(Act::Add { to: at, from: arrival.elements });
        } else if !self.pool.has_room(fragment.job) {
            self.pool.counts(fragment.job).refused += 1;
            return self.send_to_server(job, arrival, Marks::COLLIDED);
        } else if slot.key == 0 {
            self.install(now, at, &arrival);
        } else if fragment.priority > slot.priority {
            self.pool.counts(fragment.job).preemptions += 1;
            self.pool.counts(slot.job()).evicted += 1;
            self.give_out(at, Kind::Partial, Marks::EVICTED, arrival.plane);
            self.pool.clear(now, at);
            self.install(now, at, &arrival);
        } else {
            self.age(now, at);
            self.pool.counts(fragment.job).refused += 1;
            return self.send_to_server(job, arrival, Marks::COLLIDED);
        }
        if self.pool.slot(at).is_full() {
            self.complete(now, job, at, arrival.plane);
        }
    }

    /// Lowers the priority of a slot that another fragment wanted.
    fn age(&mut self, now: Time, at: u32) {
        let idle = self.pool.rtt() * IDLE_RTTS;
        let slot = self.pool.slot_mut(at);
        let halves = match self.discipline.aging {
            Aging::Idle => now.since(slot.touched) >= idle,
            Aging::Halve => true,
            Aging::HalfPer(rtt) => slot.aged == Time::ZERO || now.since(slot.aged) >= rtt,
            Aging::Off => false,
        };
        if halves && slot.priority > 0 {
            slot.priority >>= 1;
            slot.aged = now;
            let (job, decayed) = (slot.job(), slot.priority == 0);
            self.pool.counts(job).decayed += u64::from(decayed);
        }
    }

    /// A slot is complete.
    fn complete(&mut self, now: Time, job: &Job, at: u32, plane: u8) {
        let slot = *self.pool.slot(at);
        if !slot.level && slot.fan_in_other > 1 {
            // The rack is complete: its sum goes to the switch that adds racks, with the rack's bit.
            let header = header(&slot, at, self.pool.len(), Kind::Data, Marks::LEVEL);
            let fragment = Fragment { workers: 0, ..header };
            let counts = self.pool.counts(slot.job());
            counts.merged += u64::from(slot.fan_in);
            self.pool.clear(now, at);
            if self.jobs.adds(job, &fragment) {
                return self.handle_data(now, job, Arrival { fragment, elements: Elements::Register(at), plane });
            }
            return self.send(job.packet(job.server().near(), job.server(), plane, fragment), Elements::Register(at));
        }
        let counts = self.pool.counts(slot.job());
        counts.completed += 1;
        counts.merged += if slot.level { 0 } else { u64::from(slot.fan_in) };
        match self.discipline.results {
            ResultPath::Direct => {
                self.send_result(job, &slot, at, plane);
                self.pool.clear(now, at);
            }
            ResultPath::ViaServerFree => {
                self.give_out(at, Kind::Partial, Marks::NONE, plane);
                self.pool.clear(now, at);
            }
            ResultPath::ViaServer => self.give_out(at, Kind::Partial, Marks::NONE, plane),
        }
    }

    /// Sends the sum of all workers to its receivers.
    fn send_result(&mut self, job: &Job, slot: &Slot, at: u32, plane: u8) {
        let header = header(slot, at, self.pool.len(), Kind::Result, Marks::NONE);
        let fragment = Fragment { marks: header.marks.without(Marks::LEVEL), ..header };
        send_to_owners(job, fragment, plane, Elements::Register(at), &mut |act| self.acts.push_back(act));
    }

    fn handle_flush(&mut self, now: Time, job: &Job, fragment: Fragment, plane: u8) {
        let at = slot_of(&fragment, self.pool.len());
        let slot = self.pool.slot(at);
        let level = fragment.marks.has(Marks::LEVEL);
        if slot.key == tag(fragment.job, fragment.number) && slot.level == level {
            self.give_out(at, Kind::Flushed, Marks::NONE, plane);
            self.pool.clear(now, at);
        } else {
            let marks = Marks::NONE.with_if(level, Marks::LEVEL);
            let miss = Fragment { kind: Kind::FlushMiss, marks, sender: Fragment::SWITCH, elements: 0, ..fragment };
            self.send(job.packet(job.server().near(), job.server(), plane, miss), Elements::None);
        }
    }

    /// A result passes: frees the slots that still hold its key.
    fn forget(&mut self, now: Time, fragment: &Fragment) {
        for marks in [Marks::NONE, Marks::LEVEL] {
            let level = marks == Marks::LEVEL;
            let at = slot_of(&Fragment { marks, ..*fragment }, self.pool.len());
            let slot = self.pool.slot(at);
            if slot.key == tag(fragment.job, fragment.number) && slot.level == level {
                self.pool.clear(now, at);
            }
        }
    }
}

/// Sends a result to all workers of its job; or to its owner, and a credit to the others.
pub(crate) fn send_to_owners(job: &Job, fragment: Fragment, plane: u8, elements: Elements, send: &mut impl FnMut(Act)) {
    let group = HostId::group(job.shape.group);
    let source = job.server().near();
    let owner = key_of(fragment.number, job.shape.first).and_then(|key| job.owner(key));
    let Some(owner) = owner else {
        return send(Act::Send { packet: job.packet(source, group, plane, fragment), elements });
    };
    let host = job.workers()[usize::from(owner)];
    send(Act::Send { packet: job.packet(source, host, plane, fragment), elements });
    let credit = Fragment { kind: Kind::Credit, elements: 0, ..fragment };
    send(Act::Send { packet: job.packet(source, group, plane, credit), elements: Elements::None });
}

impl Discipline for Esa {
    fn handle_packet(program: &mut EsaProgram, now: Time, packet: &Packet) -> Fate {
        let Header::Fragment(mut fragment) = packet.header else { return Fate::Forward };
        let mut view = program.view();
        let Some(job) = view.jobs.get(fragment.job) else { return Fate::Consume };
        fragment.marks = fragment.marks.with_if(packet.flags.has(Flags::CE), Marks::CONGESTED);
        let plane = packet.path.port();
        match fragment.kind {
            Kind::Data if packet.flags.has(Flags::TRIMMED) => Fate::Consume,
            Kind::Data if view.jobs.adds(job, &fragment) => {
                if key_of(fragment.number, job.shape.first).is_some_and(|key| job.admits(&fragment, key)) {
                    view.handle_data(now, job, Arrival { fragment, elements: Elements::Incoming, plane });
                } else {
                    view.pool.counts(fragment.job).odd += 1;
                }
                Fate::Consume
            }
            Kind::Flush if view.jobs.adds(job, &fragment) => {
                view.handle_flush(now, job, fragment, plane);
                Fate::Consume
            }
            Kind::Result | Kind::Credit => {
                view.forget(now, &fragment);
                Fate::Forward
            }
            _ => Fate::Forward,
        }
    }
}
