//! RCCC, the receiver credit congestion control of Ultra Ethernet: a receiver shares its link among its senders.
//!
//! The sender's and the receiver's counts are in `crate::credit`; the pace of a host's credit is the endpoint's. What is
//! left here has no window: a sender with credit may send.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, LossSample};
use crate::credit::CreditTerms;
use crate::environment::Environment;
use crate::parameters;
use crate::units::Bytes;

parameters! {
    /// Receiver credit congestion control.
    pub struct RcccConfig {
        /// The most credit that a sender holds or asks for, and its credit at the start, as a multiple of the
        /// bandwidth-delay product.
        window_max_bdp: f64 = 1.5, 0.1..=100.0, "UEC simulator: 1.5 BDP";
        /// The rate of a host's credit, as a share of its line rate.
        pace: f64 = 0.99, 0.01..=1.0, "UEC simulator: 0.99";
        /// The number of full packets that one grant allows.
        grant_packets: u32 = 4, 1.0..=64.0, "UEC simulator: 4 packets per pull, as UEC 1.0 by its comment";
    }
}

impl CongestionPolicy for RcccConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Rccc(Rccc::new(self, environment))
    }
    fn paces(&self) -> bool {
        false
    }
    fn credit(&self) -> Option<CreditTerms> {
        Some(CreditTerms {
            window_max_bdp: self.window_max_bdp,
            pace: self.pace,
            grant_packets: self.grant_packets,
            follows_window: false,
        })
    }
}

/// Senders with credit may have this many bandwidth-delay products in flight, times `window_max_bdp`. Ours: credit keeps
/// them below it; the bound is for a faulty peer, whose grants have none.
const FLIGHT_MAX: f64 = 8.0;

/// RCCC's part at the sender that is not credit: a bound that does not change.
#[derive(Clone, Copy, Debug)]
pub struct Rccc {
    window: Bytes,
}

impl Rccc {
    /// The bound in this environment; at least two packets.
    pub fn new(config: &RcccConfig, environment: &Environment) -> Rccc {
        let window = (environment.bdp().0 as f64 * config.window_max_bdp * FLIGHT_MAX) as u64;
        Rccc { window: Bytes(window.max(2 * environment.packet.0)) }
    }
}

impl Congestion for Rccc {
    fn on_ack(&mut self, _: &AckSample) {}
    fn on_loss(&mut self, _: &LossSample) {}
    fn window(&self) -> Bytes {
        self.window
    }
}
