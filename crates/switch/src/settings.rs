//! The settings of aggregating switches: systems, result paths, aging.

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
    /// It is halved.
    #[default]
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

/// The system that a switch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// ESA: slots may be taken over.
    Esa(Esa),
    /// ATP: the first fragment gets the slot.
    Atp,
    /// SwitchML: slots are divided among jobs.
    SwitchMl {
        /// Drop a fragment that arrives after a newer one of its worker and slot. If false, each worker's path must
        /// keep packets in order.
        strict_order: bool,
    },
}

impl System {
    /// The name of the system.
    pub const fn name(&self) -> &'static str {
        match self {
            System::Esa(_) => "esa",
            System::Atp => "atp",
            System::SwitchMl { .. } => "switchml",
        }
    }
}
