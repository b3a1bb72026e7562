//! Uses a recycled path if there is one, otherwise the bitmap's next path: the default of the Ultra Ethernet simulator.

use super::bitmap::{BitmapConfig, BitmapSpray};
use super::ring::Ring;
use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::rng::Random;
use crate::units::Time;

parameters! {
    /// Recycled paths first, then spraying over paths without penalties.
    pub struct MixedConfig {
        /// Number of entropy values; rounded up to a power of two and to at least one per port.
        entropies: u32 = 64, 1.0..=256.0, "UEC simulator: 64";
        /// Penalty of a marked packet, in turns.
        penalty_marked: u32 = 1, 0.0..=15.0, "UEC simulator: 1";
        /// Penalty of a packet trimmed before its last hop, in turns.
        penalty_trimmed: u32 = 4, 0.0..=15.0, "UEC simulator: 4";
        /// Penalty of a packet that timed out, in turns; zero ignores such packets.
        penalty_timed_out: u32 = 15, 0.0..=15.0, "ours: the UEC simulator's value, but it cannot tell the path; our sender can";
        /// The number of times that one acknowledgement's path is used again.
        lifetime: u32 = 1, 1.0..=255.0, "UEC simulator: 1";
    }
}

impl PathPolicy for MixedConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Mixed(Box::new(Mixed::new(self, environment, random)))
    }
}

/// Recycled paths first, then the bitmap's paths.
#[derive(Clone, Debug)]
pub struct Mixed {
    bitmap: BitmapSpray,
    ring: Ring,
    lifetime: u8,
}

const _: () = assert!(size_of::<Mixed>() <= 256, "the state of a spray");

impl Mixed {
    /// A connection that has sent nothing.
    pub fn new(config: &MixedConfig, environment: &Environment, random: Random) -> Mixed {
        let bitmap = BitmapConfig {
            entropies: config.entropies,
            penalty_marked: config.penalty_marked,
            penalty_trimmed: config.penalty_trimmed,
            penalty_timed_out: config.penalty_timed_out,
            ..BitmapConfig::default()
        };
        Mixed {
            bitmap: BitmapSpray::new(&bitmap, environment, random),
            ring: Ring::default(),
            lifetime: config.lifetime.clamp(1, 255) as u8,
        }
    }
}

impl PathSelector for Mixed {
    #[inline]
    fn next(&mut self, _: Time, free: Ports) -> Option<PathId> {
        let spread = self.bitmap.spread;
        let free = spread.free(free);
        if free == 0 {
            return None;
        }
        let index = match self.ring.take(spread, free) {
            Some(index) => index,
            None => self.bitmap.next_index(free),
        };
        Some(spread.path(index))
    }

    #[inline]
    fn on_feedback(&mut self, _: Time, path: PathId, feedback: PathFeedback) {
        if feedback == PathFeedback::Good {
            self.ring.store(self.bitmap.spread.index(path), self.lifetime);
        }
        self.bitmap.charge(path, feedback);
    }

    fn penalties(&self) -> Vec<u32> {
        self.bitmap.penalties()
    }
}
