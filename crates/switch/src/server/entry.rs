//! The state of one key in a server.

use crate::who::Who;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use strandway_proto::units::{Span, Time};

/// A sum of some workers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Part {
    pub(super) who: Who,
    /// The register with its elements.
    pub(super) register: u32,
}

/// The switches that are being asked for their partial sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Flushing {
    #[default]
    No,
    /// The switch that adds racks.
    All,
    /// The switches of these racks.
    Racks(u32),
}

/// A key that a server stores.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// The stored partial sums. Those that overlap are alternatives.
    pub(super) parts: Vec<Part>,
    /// For a key that is added from floats: the register of each worker's floats; empty after they are added.
    pub(super) floats: Option<Vec<Option<u32>>>,
    /// The register with the result.
    pub(super) done: Option<u32>,
    /// Workers that have sent a reminder for it.
    pub(super) askers: BTreeSet<u16>,
    pub(super) flushing: Flushing,
    pub(super) congested: bool,
    /// A switch had no slot for one of its fragments.
    pub(super) collided: bool,
    /// The slot in its fragments' headers.
    pub(super) slot: Option<u32>,
    /// The new slot of its place in the list.
    pub(super) given: Option<u32>,
    pub(super) timer: Option<Time>,
    /// When switches or workers were last asked for it.
    pub(super) asked: Option<Time>,
    pub(super) patience: Span,
    pub(super) repeats: u32,
    /// When its result left.
    pub(super) finished: Option<Time>,
    /// Workers that were asked for their fragments and have not answered, and when the first question left.
    pub(super) solicited: BTreeMap<u16, Time>,
}

/// Compares without times and register numbers.
impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.state().eq(other.state())
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.state().for_each(|word| word.hash(state));
    }
}

/// One fact about an entry, for comparing.
#[derive(PartialEq, Eq, Hash)]
enum Fact<'e> {
    Part(&'e Who),
    Float(Option<bool>),
    Asker(u16),
    Rest(bool, bool, Flushing, Option<u32>),
}

impl Entry {
    fn state(&self) -> impl Iterator<Item = Fact<'_>> {
        let mut parts: Vec<&Who> = self.parts.iter().map(|part| &part.who).collect();
        parts.sort_unstable();
        let floats = self.floats.iter().flatten().map(|float| Fact::Float(Some(float.is_some())));
        let rest = Fact::Rest(self.done.is_some(), self.timer.is_some(), self.flushing, self.slot);
        let begin = [rest, Fact::Float(self.floats.is_some().then_some(false))];
        let askers = self.askers.iter().map(|&worker| Fact::Asker(worker));
        begin.into_iter().chain(parts.into_iter().map(Fact::Part)).chain(floats).chain(askers)
    }

    /// All registers in use.
    pub(super) fn registers(&self) -> impl Iterator<Item = u32> + '_ {
        let floats = self.floats.iter().flatten().flatten().copied();
        self.parts.iter().map(|part| part.register).chain(floats).chain(self.done)
    }

    /// Takes out all registers, because its result is known.
    pub(super) fn take_registers(&mut self) -> Vec<u32> {
        let registers = self.registers().collect();
        self.parts.clear();
        if let Some(floats) = &mut self.floats {
            floats.clear();
        }
        registers
    }
}
