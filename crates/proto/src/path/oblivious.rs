//! Oblivious spraying: uses all paths equally and ignores feedback.

use super::spread::{Cycle, Spread};
use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::rng::Random;
use crate::units::Time;

parameters! {
    /// Oblivious packet spraying.
    pub struct ObliviousConfig {
        /// Number of entropy values; rounded up to a power of two and to at least one per port.
        entropies: u32 = 64, 1.0..=65536.0, "UEC simulator: 64; its early versions 256";
        /// Draw every packet's path at random, instead of visiting all paths in rounds.
        random: bool = false, 0.0..=1.0, "UEC simulator: rounds in an order drawn for each";
    }
}

impl PathPolicy for ObliviousConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Oblivious(Oblivious::new(self, environment, random))
    }
}

/// The state of oblivious spraying.
#[derive(Clone, Copy, Debug)]
pub struct Oblivious {
    spread: Spread,
    cycle: Cycle,
    random: Option<Random>,
}

const _: () = assert!(size_of::<Oblivious>() <= 256, "the state of a spray");

impl Oblivious {
    /// A connection that has sent nothing.
    pub fn new(config: &ObliviousConfig, environment: &Environment, mut random: Random) -> Oblivious {
        let spread = Spread::new(config.entropies, 1 << 16, environment, &mut random);
        let cycle = Cycle::new(spread, &mut random);
        Oblivious { spread, cycle, random: config.random.then_some(random) }
    }
}

impl PathSelector for Oblivious {
    #[inline]
    fn next(&mut self, _: Time, free: Ports) -> Option<PathId> {
        let free = self.spread.free(free);
        if free == 0 {
            return None;
        }
        let index = match &mut self.random {
            None => self.cycle.next(self.spread, free),
            Some(random) => self.spread.draw(free, random),
        };
        Some(self.spread.path(index))
    }

    fn on_feedback(&mut self, _: Time, _: PathId, _: PathFeedback) {}
}
