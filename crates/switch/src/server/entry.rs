//! What a server keeps of one key.

use crate::who::Who;
use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use strandway_proto::units::{Span, Time};

/// A sum of some workers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Part {
    pub(super) who: Who,
    /// Where its numbers are.
    pub(super) register: u32,
}

/// Which switches are being asked for what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Flushing {
    #[default]
    No,
    /// The one that adds racks.
    All,
    /// Those of these racks.
    Racks(u32),
}

/// A key that a server has heard of.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// Sums that are here. Those that overlap are alternatives.
    pub(super) parts: Vec<Part>,
    /// Of a key that is added up from floats: where each worker's are; empty once they are added.
    pub(super) floats: Option<Vec<Option<u32>>>,
    /// Where the result is.
    pub(super) done: Option<u32>,
    /// Workers that wait for it and said so.
    pub(super) askers: BTreeSet<u16>,
    pub(super) flushing: Flushing,
    pub(super) congested: bool,
    /// A switch had no slot for one of its fragments.
    pub(super) collided: bool,
    /// The slot that its fragments name.
    pub(super) slot: Option<u32>,
    /// The slot that its place in the list has from now on.
    pub(super) given: Option<u32>,
    pub(super) timer: Option<Time>,
    pub(super) patience: Span,
    pub(super) repeats: u32,
}

/// Times and the numbers of registers aside.
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

    /// All registers that it uses.
    pub(super) fn registers(&self) -> impl Iterator<Item = u32> + '_ {
        let floats = self.floats.iter().flatten().flatten().copied();
        self.parts.iter().map(|part| part.register).chain(floats).chain(self.done)
    }

    /// Gives up all registers, as its result is known.
    pub(super) fn take_registers(&mut self) -> Vec<u32> {
        let registers = self.registers().collect();
        self.parts.clear();
        if let Some(floats) = &mut self.floats {
            floats.clear();
        }
        registers
    }
}
