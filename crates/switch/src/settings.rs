//! What can be chosen about how switches add: systems, result paths, aging.

use strandway_proto::units::Span;

/// Where the sum of all workers goes from the switch that completes it. ESA sheet, section 3.5.
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

/// What a refused fragment does to the priority of the slot's holder. ESA sheet, section 3.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aging {
    /// It is halved.
    #[default]
    Halve,
    /// It is halved at most once in this time.
    HalfPer(Span),
    /// Nothing.
    Off,
}

/// What a fragment that joins a slot does to its priority. ESA sheet, section 3.4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refresh {
    /// The higher one counts.
    #[default]
    Highest,
    /// The slot's stays.
    Keep,
}

/// How ESA is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Esa {
    /// Where sums go.
    pub results: ResultPath,
    /// How holders lose priority.
    pub aging: Aging,
    /// How they regain it.
    pub refresh: Refresh,
}

/// Which system a switch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// ESA: slots may be taken over.
    Esa(Esa),
    /// ATP: slots are for who comes first.
    Atp,
    /// SwitchML: slots are divided among jobs.
    SwitchMl {
        /// Drop what comes behind a newer fragment of its worker and slot. Without it each worker's path must keep the order.
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
