//! A window that never changes: the null hypothesis of congestion control.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, LossSample};
use crate::environment::Environment;
use crate::parameters;
use crate::units::Bytes;

parameters! {
    /// A window that never changes.
    pub struct FixedConfig {
        /// The window as a multiple of the bandwidth-delay product.
        window_bdp: f64 = 1.5, 0.001..=1000.0, "ours: NSCC's largest window, so that only the reaction differs";
    }
}

impl CongestionPolicy for FixedConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Fixed(Fixed::new(self, environment))
    }
    fn paces(&self) -> bool {
        false
    }
}

/// A window that never changes.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    window: Bytes,
}

impl Fixed {
    /// The window in this environment; at least one packet.
    pub fn new(config: &FixedConfig, environment: &Environment) -> Fixed {
        let window = (environment.bdp().0 as f64 * config.window_bdp) as u64;
        Fixed { window: Bytes(window.max(environment.packet.0)) }
    }
}

impl Congestion for Fixed {
    fn on_ack(&mut self, _: &AckSample) {}
    fn on_loss(&mut self, _: &LossSample) {}
    fn window(&self) -> Bytes {
        self.window
    }
}
