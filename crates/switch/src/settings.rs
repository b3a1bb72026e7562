//! The settings of ESA: result paths, aging.

use strandway_proto::units::Span;

/// The path of the sum of all workers from the switch that completes it. ESA sheet, section 3.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultPath {
    /// To the workers; the slot is free at once.
    #[default]
    Direct,
    /// To the parameter server, which sends it to the workers; the slot is free at once.
    ViaServerFree,
    /// To the parameter server; the slot is kept until the result passes.
    ViaServer,
}

/// The effect of a refused fragment on the priority of the slot's holder. ESA sheet, section 3.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aging {
    /// It is halved if nothing was added to the slot for 32 round trips, as when a worker is dead. Ours: where every
    /// refusal counts, keys of equal priority displace each other, and the server completes them.
    #[default]
    Idle,
    /// It is halved.
    Halve,
    /// It is halved at most once in this time.
    HalfPer(Span),
    /// No effect.
    Off,
}

/// The effect of a fragment that joins a slot on the slot's priority. ESA sheet, section 3.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refresh {
    /// The higher one counts.
    #[default]
    Highest,
    /// The slot's priority does not change.
    Keep,
}

/// The settings of ESA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Esa {
    /// The path of sums.
    pub results: ResultPath,
    /// How slots lose priority.
    pub aging: Aging,
    /// How they regain it.
    pub refresh: Refresh,
}
