//! The common part of ESA's and ATP's programs: one pool of slots for all jobs of a switch.

use crate::job::{Job, Jobs};
use crate::pool::Pool;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Fragment, Marks};
use strandway_proto::program::{Act, Elements, Fate, Program};
use strandway_proto::queue::take_oldest;
use strandway_proto::units::{Span, Time};

/// The slot of a fragment. The slots for sums of racks are shifted by half the number of slots, so that a switch that
/// adds both workers and racks keeps them apart. ESA sheet, section 10.
pub(crate) fn slot_of(fragment: &Fragment, slots: u32) -> u32 {
    let away = if fragment.marks.has(Marks::LEVEL) { slots / 2 } else { 0 };
    ((u64::from(fragment.slot) + u64::from(away)) % u64::from(slots)) as u32
}

/// The rules by which fragments get slots of a pool.
pub trait Discipline: Send + Sized {
    /// Handles a packet for a program with this discipline.
    fn handle_packet(program: &mut Pooled<Self>, now: Time, packet: &Packet) -> Fate;
}

/// The program of one switch whose jobs share one pool of slots.
#[derive(Clone, Debug)]
pub struct Pooled<D> {
    discipline: D,
    jobs: Jobs,
    pub(crate) pool: Pool,
    acts: VecDeque<Act>,
}

impl<D> PartialEq for Pooled<D> {
    fn eq(&self, other: &Pooled<D>) -> bool {
        self.pool == other.pool
    }
}

impl<D> Eq for Pooled<D> {}

impl<D> Hash for Pooled<D> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pool.hash(state);
    }
}

impl<D: Discipline> Pooled<D> {
    /// The program of the switch above this leaf's hosts, with `slots` slots. `every` is the interval of the slot
    /// occupancy series.
    pub(crate) fn with(discipline: D, jobs: &[Arc<Job>], leaf: u32, slots: u32, rtt: Span, every: Span) -> Pooled<D> {
        Pooled { discipline, jobs: Jobs::new(jobs, leaf), pool: Pool::new(slots, rtt, every), acts: VecDeque::new() }
    }

    /// The number of slots in use.
    pub fn used(&self) -> usize {
        (0..self.pool.len()).filter(|&at| self.pool.slot(at).key != 0).count()
    }

    /// The number of slots that a job holds.
    pub fn held(&self, job: u16) -> u32 {
        self.pool.held(job)
    }

    /// Empties all slots of a job that has left. The control plane calls this.
    pub fn sweep(&mut self, now: Time, job: u16) {
        for at in 0..self.pool.len() {
            if self.pool.slot(at).job() == job {
                self.pool.clear(now, at);
            }
        }
    }

    /// Starts to serve a job, as the switch above this leaf's hosts. The job holds at most `slots_max` slots at a time;
    /// further fragments go to its server.
    pub fn admit(&mut self, job: &Arc<Job>, leaf: u32, slots_max: u32) {
        self.pool.limit(job.shape.number, slots_max);
        self.jobs.insert(job, leaf);
    }

    /// Stops serving a job, and empties its slots.
    pub fn dismiss(&mut self, now: Time, job: u16) {
        self.sweep(now, job);
        self.jobs.remove(job);
    }

    /// The program at work.
    pub(crate) fn view(&mut self) -> ProgramView<'_, D> {
        let Pooled { discipline, jobs, pool, acts } = self;
        ProgramView { discipline, jobs, pool, acts }
    }
}

/// A program at work on a packet. It reads a job while it changes slots, so it borrows the two apart.
pub(crate) struct ProgramView<'a, D> {
    pub(crate) discipline: &'a D,
    pub(crate) jobs: &'a Jobs,
    pub(crate) pool: &'a mut Pool,
    pub(crate) acts: &'a mut VecDeque<Act>,
}

impl<D> ProgramView<'_, D> {
    pub(crate) fn send(&mut self, packet: Packet, elements: Elements) {
        self.acts.push_back(Act::Send { packet, elements });
    }
}

impl<D: Discipline> Program for Pooled<D> {
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        D::handle_packet(self, now, packet)
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_act(&mut self) -> Option<Act> {
        take_oldest(&mut self.acts)
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.pool.count(now, into);
    }

    fn occupancy(&self) -> Vec<(u16, Vec<f64>)> {
        self.pool.occupancy()
    }
}
