//! A rate that never changes: for paths with leased capacity, and for comparisons with models without congestion.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, LossSample};
use crate::environment::Environment;
use crate::host::HostTraits;
use crate::parameters;
use crate::units::{Bytes, Rate, Time};

parameters! {
    /// A rate that never changes, and no window.
    pub struct PacedConfig {
        /// The rate, at most the NIC's line rate; zero: the NIC's line rate.
        rate: Rate = Rate(0), 0.0..=1.0e14, "SDR-RDMA has no congestion control: its model sends at line rate";
    }
}

impl CongestionPolicy for PacedConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Paced(Paced::new(self, environment))
    }
    fn adapt_to(&mut self, host: &HostTraits) {
        // A kernel accepts packets faster than the line rate, so the engine must pace in place of the NIC.
        if self.rate.0 == 0 {
            self.rate = host.rate;
        }
    }
}

/// A rate that never changes, and no window.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// `None` if the NIC paces by itself.
    rate: Option<Rate>,
}

impl Paced {
    /// The rate in this environment.
    pub const fn new(config: &PacedConfig, environment: &Environment) -> Paced {
        let line = environment.rate;
        let asked = config.rate;
        Paced { rate: if asked.0 == 0 { None } else { Some(if asked.0 < line.0 { asked } else { line }) } }
    }
}

impl Congestion for Paced {
    fn on_ack(&mut self, _: &AckSample) {}
    fn on_loss(&mut self, _: &LossSample) {}
    fn window(&self) -> Bytes {
        // Half of the range, so that a sum with a packet's size does not overflow.
        Bytes(u64::MAX / 2)
    }
    fn rate(&mut self, _: Time) -> Option<Rate> {
        self.rate
    }
}
