//! SwitchML's program for a switch: each job has its own slots, each with two versions.
//!
//! Sapio et al., "Scaling Distributed Machine Learning with In-Network Aggregation", NSDI 2021; the steps are those of
//! the reference program (ESA sheet, section 11.1). Two things are ours: the register of each worker's newest fragment,
//! which makes it safe when packets are reordered, and the exchange between two levels.

use crate::job::{Job, Jobs};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandway_proto::aggregate::{Counts, Fragment, Kind, Marks, key_of};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Fate, Program};
use strandway_proto::queue::take_oldest;
use strandway_proto::units::{Span, Time};
use strandway_proto::{HostId, Packet};

/// The bit of a slot's number that gives its version.
pub(crate) const VERSION: u32 = 1 << 31;

/// Two exponents in the form of a header, in place of a watermark. SwitchML has two bytes for them.
pub fn exponents(pair: [i8; 2]) -> u32 {
    u32::from(pair[0] as u8) << 8 | u32::from(pair[1] as u8)
}

/// The exponents of a header.
pub fn exponents_of(word: u32) -> [i8; 2] {
    [(word >> 8) as u8 as i8, word as u8 as i8]
}

/// One slot with its two versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Twin {
    /// The workers whose fragments are in each version.
    seen: [u32; 2],
    /// The number of missing fragments in each version; 0 for a complete or an unused one.
    left: [u8; 2],
    expo: [[i8; 2]; 2],
    /// The number of each sender's newest fragment.
    newest: Vec<u32>,
}

/// The slots of one job at one level.
#[derive(Clone, Debug, Default)]
struct Share {
    twins: Vec<Twin>,
    /// Its first register.
    first: u32,
    counts: Counts,
    /// The number of versions that are being filled, and since when it has this value.
    open: u32,
    since: Time,
    bins: Vec<u128>,
}

impl Share {
    fn change(&mut self, now: Time, every: Span, by: i32) {
        self.counts.slot_time += u128::from(now.since(self.since).0) * u128::from(self.open);
        while every > Span::ZERO && self.open > 0 && self.since < now {
            let bin = self.since.0 / every.0;
            let end = Time((bin + 1) * every.0).min(now);
            if bin as usize >= self.bins.len() {
                self.bins.resize(bin as usize + 1, 0);
            }
            self.bins[bin as usize] += u128::from(end.since(self.since).0) * u128::from(self.open);
            self.since = end;
        }
        self.since = now;
        self.open = self.open.saturating_add_signed(by);
    }
}

/// The program of one switch.
#[derive(Clone, Debug)]
pub struct SwitchMlProgram {
    jobs: Jobs,
    strict_order: bool,
    /// By job and level.
    shares: BTreeMap<(u16, bool), Share>,
    /// The slots of the switch; both versions of a slot count.
    slots: u32,
    every: Span,
    acts: VecDeque<Act>,
}

impl PartialEq for SwitchMlProgram {
    fn eq(&self, other: &SwitchMlProgram) -> bool {
        self.shares.values().map(|share| &share.twins).eq(other.shares.values().map(|share| &share.twins))
    }
}

impl Eq for SwitchMlProgram {}

impl Hash for SwitchMlProgram {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shares.values().for_each(|share| share.twins.hash(state));
    }
}

impl SwitchMlProgram {
    /// The program of the switch above this leaf's hosts. `slots` are divided evenly among the jobs, half of each share
    /// for each version (ours: `floor(slots / jobs / 2)`); `every` is the interval of the slot occupancy series.
    pub fn new(jobs: &[Arc<Job>], leaf: u32, slots: u32, strict_order: bool, every: Span) -> SwitchMlProgram {
        let (served, shares) = (Jobs::new(&[], leaf), BTreeMap::new());
        let mut program = SwitchMlProgram { jobs: served, strict_order, shares, slots, every, acts: VecDeque::new() };
        let mut first = 0;
        for job in jobs {
            first = program.admit(job, leaf, first);
        }
        program
    }

    /// Starts to serve a job as the switch above this leaf's hosts, in registers from `first` on. Returns the register
    /// after its last one.
    pub fn admit(&mut self, job: &Arc<Job>, leaf: u32, mut first: u32) -> u32 {
        for level in [false, true] {
            let here = match level {
                false => job.racks().iter().any(|rack| rack.leaf == leaf),
                true => job.racks().len() > 1 && job.server_leaf() == leaf,
            };
            if !here {
                continue;
            }
            let senders =
                if level { job.racks().len() } else { job.racks().iter().map(|r| r.workers.len()).max().unwrap_or(0) };
            let twin = Twin { newest: vec![0; senders], ..Twin::default() };
            let twins = vec![twin; job.shape.window as usize];
            let counts = self.shares.get(&(job.shape.number, level)).map(|share| share.counts).unwrap_or_default();
            self.shares.insert((job.shape.number, level), Share { twins, first, counts, ..Share::default() });
            first += 2 * job.shape.window;
        }
        self.jobs.insert(job, leaf);
        first
    }

    /// Stops serving a job, and forgets the sums in its slots.
    pub fn dismiss(&mut self, now: Time, job: u16) {
        self.jobs.remove(job);
        for level in [false, true] {
            if let Some(share) = self.shares.get_mut(&(job, level)) {
                let open = i32::try_from(share.open).unwrap_or(i32::MAX);
                share.change(now, self.every, -open);
                share.twins = Vec::new();
            }
        }
    }

    /// The number of a job's slots that are being filled; each version counts.
    pub fn held(&self, job: u16) -> u32 {
        [false, true].iter().filter_map(|&level| self.shares.get(&(job, level))).map(|share| share.open).sum()
    }

    /// The slots of a job in one version, if a switch with `slots` slots serves `jobs` jobs.
    pub fn share(slots: u32, jobs: u32) -> u32 {
        (slots / jobs.max(1) / 2).max(1)
    }

    fn send(&mut self, packet: Packet, elements: Elements) {
        self.acts.push_back(Act::Send { packet, elements });
    }

    fn handle_data(&mut self, now: Time, job: &Arc<Job>, fragment: Fragment, elements: Elements, plane: u8) {
        let level = fragment.marks.has(Marks::LEVEL);
        let Some(share) = self.shares.get_mut(&(fragment.job, level)) else { return };
        let bits = if level { fragment.racks } else { fragment.workers };
        let (i, v) = ((fragment.slot & !VERSION) as usize, (fragment.slot >> 31) as usize);
        let sender = bits.trailing_zeros() as usize;
        let known = share.twins.get(i).is_some_and(|twin| sender < twin.newest.len());
        if !known || !bits.is_power_of_two() {
            share.counts.odd += 1;
            return;
        }
        let register = share.first + 2 * i as u32 + v as u32;
        let twin = &mut share.twins[i];
        let number = { fragment.number };
        if self.strict_order {
            let newest = twin.newest[sender];
            // Serial number arithmetic: a number up to half the range below the newest is old.
            if newest != 0 && number != newest && newest.wrapping_sub(number) < 1 << 31 {
                share.counts.odd += 1;
                return;
            }
            twin.newest[sender] = number;
        }
        let fan_in = fragment.fan_in[usize::from(level)];
        let before = twin.seen[v];
        twin.seen[v] |= bits;
        twin.seen[1 - v] &= !bits;
        let expo = exponents_of(fragment.watermark);
        if before & bits != 0 {
            share.counts.duplicates += 1;
            if twin.left[v] != 0 {
                return;
            }
            let whole = twin.expo[v];
            return self.repeat(now, job, Fragment { watermark: exponents(whole), ..fragment }, register, plane);
        }
        let last = twin.left[v] == 1 || fan_in == 1;
        twin.left[v] = if fan_in == 1 {
            0
        } else if twin.left[v] == 0 {
            fan_in - 1
        } else {
            twin.left[v] - 1
        };
        if before == 0 {
            twin.expo[v] = expo;
        } else {
            twin.expo[v] = [0, 1].map(|n| twin.expo[v][n].max(expo[n]));
        }
        let whole = twin.expo[v];
        if before == 0 {
            share.change(now, self.every, 1);
            self.acts.push_back(Act::Store { to: register, from: elements });
        } else {
            self.acts.push_back(Act::Add { to: register, from: elements });
        }
        if last {
            share.change(now, self.every, -1);
            share.counts.merged += if level { 0 } else { u64::from(fan_in) };
            share.counts.completed += u64::from(level || fragment.fan_in[1] <= 1);
            let out = Fragment { watermark: exponents(whole), sender: Fragment::SWITCH, ..fragment };
            self.complete(now, job, out, register, plane);
        }
    }

    /// A slot is complete: it has all workers of a rack, or all racks.
    fn complete(&mut self, now: Time, job: &Arc<Job>, fragment: Fragment, register: u32, plane: u8) {
        let marks = fragment.marks.without(Marks::RESEND);
        if !marks.has(Marks::LEVEL) && fragment.fan_in[1] > 1 {
            let up = Fragment { kind: Kind::Data, marks: marks.with(Marks::LEVEL), workers: 0, ..fragment };
            if self.jobs.adds_racks(job) {
                return self.handle_data(now, job, up, Elements::Register(register), plane);
            }
            return self.send(job.packet(job.server().near(), job.server(), plane, up), Elements::Register(register));
        }
        let result = Fragment { kind: Kind::Result, marks: marks.without(Marks::LEVEL), ..fragment };
        let group = HostId::group(job.shape.group);
        self.send(job.packet(job.server().near(), group, plane, result), Elements::Register(register));
    }

    /// A retransmitted fragment has arrived for a complete version. Its sender lacks the result, which the version
    /// still has.
    fn repeat(&mut self, now: Time, job: &Arc<Job>, fragment: Fragment, register: u32, plane: u8) {
        if !fragment.marks.has(Marks::LEVEL) && fragment.fan_in[1] > 1 {
            // Send the rack's sum up again with the worker's name: the switch that adds racks has the whole sum.
            let up = Fragment { kind: Kind::Data, marks: fragment.marks.with(Marks::LEVEL), workers: 0, ..fragment };
            if self.jobs.adds_racks(job) {
                return self.handle_data(now, job, up, Elements::Register(register), plane);
            }
            return self.send(job.packet(job.server().near(), job.server(), plane, up), Elements::Register(register));
        }
        let Some(&host) = job.workers().get(usize::from(fragment.sender)) else { return };
        let marks = fragment.marks.without(Marks::LEVEL);
        let result = Fragment { kind: Kind::Result, marks, ..fragment };
        self.send(job.packet(job.server().near(), host, plane, result), Elements::Register(register));
    }
}

impl Program for SwitchMlProgram {
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        let Header::Fragment(fragment) = packet.header else { return Fate::Forward };
        let Some(job) = self.jobs.get(fragment.job).map(Arc::clone) else { return Fate::Consume };
        if fragment.kind != Kind::Data {
            return Fate::Forward;
        }
        if !self.jobs.adds(&job, &fragment) {
            return Fate::Forward;
        }
        let key = key_of(fragment.number, job.shape.first);
        if packet.flags.has(Flags::TRIMMED) || !key.is_some_and(|key| job.admits(&fragment, key)) {
            return Fate::Consume;
        }
        self.handle_data(now, &job, fragment, Elements::Incoming, packet.path.port());
        Fate::Consume
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_act(&mut self) -> Option<Act> {
        take_oldest(&mut self.acts)
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        for (&(job, _), share) in &self.shares {
            let counts = into.entry(job).or_default();
            *counts += share.counts;
            counts.slot_time += u128::from(now.since(share.since).0) * u128::from(share.open);
        }
    }

    fn occupancy(&self) -> Vec<(u16, Vec<f64>)> {
        let whole = self.every.0 as f64 * f64::from(self.slots.max(1));
        let share = |share: &Share| share.bins.iter().map(|&area| area as f64 / whole).collect();
        let levels = self.shares.iter().filter(|((_, level), _)| !level);
        levels.map(|(&(job, _), one)| (job, share(one))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{flat, shape};
    use strandway_proto::HostId;

    #[test]
    fn slots_are_counted_over_time_until_their_job_is_dismissed() {
        let topology = flat(8, 8);
        let job = Arc::new(Job::new(shape(3), &topology, vec![HostId(0), HostId(1)], HostId(7)).expect("a job"));
        let mut program = SwitchMlProgram::new(&[Arc::clone(&job)], 0, 64, true, Span::ZERO);
        let send = |program: &mut SwitchMlProgram, now: u64, key: u64| {
            let fragment =
                Fragment { workers: 1, racks: 1, fan_in: [2, 1], sender: 0, ..job.fragment(Kind::Data, key) };
            let packet = job.packet(HostId(0), job.server(), 0, Fragment { slot: key as u32, ..fragment });
            assert_eq!(program.handle_packet(Time(now), &packet), Fate::Consume);
        };
        let time = |program: &SwitchMlProgram, now: u64| {
            let mut counts = BTreeMap::new();
            program.count(Time(now), &mut counts);
            counts[&3].slot_time
        };
        send(&mut program, 100, 0);
        assert_eq!((program.held(3), time(&program, 350)), (1, 250));
        send(&mut program, 400, 1);
        assert_eq!((program.held(3), time(&program, 500)), (2, 300 + 2 * 100));
        program.dismiss(Time(600), 3);
        assert_eq!((program.held(3), time(&program, 900)), (0, 300 + 2 * 200), "nothing is held any more");
    }
}
