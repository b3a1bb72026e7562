//! One path for the whole life of a connection, as with RoCEv2 over ECMP.

use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::path::spread::PORTS_MAX;
use crate::rng::Random;
use crate::units::Time;

parameters! {
    /// One path for the whole life of a connection. It has no parameters.
    pub struct SingleConfig {}
}

impl PathPolicy for SingleConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Single(Single::new(self, environment, random))
    }
}

/// One path, drawn when the connection opens.
#[derive(Clone, Copy, Debug)]
pub struct Single {
    path: PathId,
}

const _: () = assert!(size_of::<Single>() <= 256, "the state of one path");

impl Single {
    /// Draws a 16-bit entropy value, which also determines the port. Switches that index by entropy hash this value
    /// instead.
    pub fn new(_: &SingleConfig, environment: &Environment, mut random: Random) -> Single {
        let entropy = random.next_u64() as u16;
        let ports = u16::from(environment.ports).clamp(1, PORTS_MAX as u16);
        Single { path: PathId::new((entropy % ports) as u8, u32::from(entropy) | PathId::ORDERED) }
    }
}

impl Single {
    /// The port by which its path leaves.
    pub(super) fn port(&self) -> u8 {
        self.path.port()
    }
}

impl PathSelector for Single {
    #[inline]
    fn next(&mut self, _: Time, free: Ports) -> Option<PathId> {
        if free.data & (1 << self.path.port()) != 0 { Some(self.path) } else { None }
    }

    fn on_feedback(&mut self, _: Time, _: PathId, _: PathFeedback) {}
}
