//! REPS: uses the entropy values again whose packets were acknowledged without a mark.
//!
//! The path of a marked packet is not stored, so congested paths go out of use. After a timeout the selector freezes:
//! it uses only paths known to work, and explores no others until routing has had time to change.

use super::ring::Ring;
use super::spread::Spread;
use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::rng::Random;
use crate::units::{Span, Time};

parameters! {
    /// Recycled entropy packet spraying.
    pub struct RepsConfig {
        /// Number of entropy values; rounded up to a power of two and to at least one per port.
        entropies: u32 = 64, 1.0..=65536.0, "UEC simulator: 64; Bonato et al. (arXiv 2407.21625) go up to 65536";
        /// The number of times that one acknowledgement's path is used again.
        lifetime: u32 = 1, 1.0..=255.0, "UEC simulator: 1; more if acknowledgements are coalesced";
        /// The time for which it uses only known paths after a timeout, if switches trim; zero: never freezes.
        freeze: Span = Span::from_ms(1), 0.0..=1.0e13, "ours: about the time routing takes; the UEC simulator has 10 ms";
        /// Packets sent at random at the start and after a freeze, as a multiple of the bandwidth-delay product.
        explore_bdp: f64 = 1.0, 0.0..=1000.0, "Bonato et al., EuroSys 2026: one BDP of packets";
    }
}

impl PathPolicy for RepsConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Reps(Reps::new(self, environment, random))
    }
}

/// Recycled entropy values.
#[derive(Clone, Copy, Debug)]
pub struct Reps {
    spread: Spread,
    random: Random,
    ring: Ring,
    /// Packets still to send at random.
    explore: u32,
    explore_packets: u32,
    freeze: Span,
    frozen_until: Option<Time>,
    lifetime: u8,
}

const _: () = assert!(size_of::<Reps>() <= 256, "the state of REPS");

impl Reps {
    /// A connection that has sent nothing.
    pub fn new(config: &RepsConfig, environment: &Environment, mut random: Random) -> Reps {
        let spread = Spread::new(config.entropies, 1 << 16, environment, &mut random);
        let bdp = environment.bdp().0 as f64 / environment.packet.0.max(1) as f64;
        let explore_packets = (bdp * config.explore_bdp) as u32;
        Reps {
            spread,
            random,
            ring: Ring::default(),
            explore: explore_packets,
            explore_packets,
            // If switches drop packets, a timeout may also mean congestion, so the selector does not freeze.
            freeze: if environment.trimming { config.freeze } else { Span::ZERO },
            frozen_until: None,
            lifetime: config.lifetime.clamp(1, 255) as u8,
        }
    }

    /// Ends a freeze that has lasted long enough. The known paths are old by then, so it explores again.
    fn thaw(&mut self, now: Time) {
        if self.frozen_until.is_some_and(|until| now > until) {
            self.frozen_until = None;
            self.ring.clear();
            self.explore = self.explore_packets;
        }
    }
}

impl PathSelector for Reps {
    #[inline]
    fn next(&mut self, now: Time, free: Ports) -> Option<PathId> {
        let free = self.spread.free(free);
        if free == 0 {
            return None;
        }
        self.thaw(now);
        let known = if self.explore > 0 {
            self.explore -= 1;
            None
        } else if self.frozen_until.is_some() {
            self.ring.reuse(self.spread, free)
        } else {
            self.ring.take(self.spread, free)
        };
        let index = match known {
            Some(index) => index,
            None => self.spread.draw(free, &mut self.random),
        };
        Some(self.spread.path(index))
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback) {
        match feedback {
            PathFeedback::Good => self.ring.store(self.spread.index(path), self.lifetime),
            PathFeedback::Marked | PathFeedback::Trimmed | PathFeedback::Lost | PathFeedback::Shunned => {}
            PathFeedback::TimedOut => {
                if self.freeze > Span::ZERO && self.frozen_until.is_none() && self.explore == 0 {
                    self.frozen_until = Some(now + self.freeze);
                }
            }
        }
        self.thaw(now);
    }
}
