//! DCTCP: a window cut in proportion to the share of marked bytes.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, Cut, LossKind, LossSample, at_least};
use crate::environment::Environment;
use crate::parameters;
use crate::units::Bytes;

parameters! {
    /// Window control by the share of marked packets.
    pub struct DctcpConfig {
        /// Weight g of a window in the estimate of the marked share.
        gain: f64 = 0.0625, 0.0001..=1.0, "Alizadeh et al., SIGCOMM 2010: g = 1/16";
        /// First estimate of the marked share.
        alpha_initial: f64 = 0.0, 0.0..=1.0, "htsim's DCTCP model: 0";
        /// First window, as a multiple of the bandwidth-delay product.
        window_initial_bdp: f64 = 1.0, 0.001..=1000.0, "ours: RDMA senders start at line rate, not with ten packets";
        /// Largest window, as a multiple of the bandwidth-delay product.
        window_max_bdp: f64 = 1.5, 0.01..=1000.0, "ours: NSCC's largest window, so that only the reaction differs";
    }
}

impl CongestionPolicy for DctcpConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Dctcp(Dctcp::new(self, environment))
    }
    fn paces(&self) -> bool {
        false
    }
}

/// State of DCTCP for one connection, in wire bytes.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    gain: f64,
    packet: f64,
    window_max: f64,
    window: f64,
    /// Slow start ends here.
    threshold: f64,
    /// Estimate of the marked share.
    alpha: f64,
    /// Bytes acknowledged, and those of them marked, in this observation window.
    acked: u64,
    marked: u64,
    /// Length of this observation window.
    observed: u64,
    /// Was the window cut in this observation window? It then neither shrinks again nor grows.
    reduced: bool,
    cut: Cut,
}

const _: () = assert!(size_of::<Dctcp>() <= 192, "DCTCP's state per connection");

impl Dctcp {
    /// A connection that has sent nothing.
    pub fn new(config: &DctcpConfig, environment: &Environment) -> Dctcp {
        let packet = environment.packet.0.max(1) as f64;
        let bdp = environment.bdp().0 as f64;
        let window_max = at_least(config.window_max_bdp * bdp, packet);
        let window = at_least(config.window_initial_bdp * bdp, packet);
        let window = if window > window_max { window_max } else { window };
        Dctcp {
            gain: config.gain,
            packet,
            window_max,
            window,
            threshold: window_max,
            alpha: config.alpha_initial,
            acked: 0,
            marked: 0,
            observed: window as u64,
            reduced: false,
            cut: Cut::Never,
        }
    }

    /// Ends an observation window: alpha moves towards the marked share of its bytes.
    fn end_window(&mut self) {
        if self.acked > 0 {
            let share = self.marked as f64 / self.acked as f64;
            self.alpha = (1.0 - self.gain) * self.alpha + self.gain * share;
        }
        self.observe();
    }

    /// Starts a new observation window: one window of bytes from here on.
    fn observe(&mut self) {
        self.acked = 0;
        self.marked = 0;
        self.observed = self.window as u64;
        self.reduced = false;
    }

    /// Multiplies the window, once per observation window.
    fn reduce(&mut self, factor: f64, cut: Cut) {
        if !self.reduced {
            self.cut = cut;
            self.window = at_least(self.window * factor, self.packet);
            self.threshold = self.window;
            self.reduced = true;
        }
    }
}

impl Congestion for Dctcp {
    fn on_ack(&mut self, sample: &AckSample) {
        let bytes = sample.bytes.0;
        self.acked += bytes;
        if sample.marked {
            self.marked += bytes;
            self.reduce(1.0 - self.alpha / 2.0, Cut::Marks);
        } else if !self.reduced {
            let growth = bytes as f64;
            self.window += if self.window < self.threshold { growth } else { self.packet * growth / self.window };
            if self.window > self.window_max {
                self.window = self.window_max;
            }
        }
        if self.acked >= self.observed {
            self.end_window();
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if loss.kind != LossKind::TimedOut {
            // A lost packet counts as acknowledged with a mark. Otherwise, under heavy loss, the observation window
            // would hardly end.
            self.acked += loss.bytes.0;
            self.marked += loss.bytes.0;
            self.reduce(0.5, Cut::Loss);
            if self.acked >= self.observed {
                self.end_window();
            }
        } else if self.window > self.packet {
            // Slow start from one packet up to the threshold, in a new observation window. The old one is as long as
            // the old window, and there would be no growth until its end. Further packets of the same timeout change
            // nothing.
            self.reduce(0.5, Cut::Loss);
            self.window = self.packet;
            self.observe();
        }
    }

    fn window(&self) -> Bytes {
        Bytes(self.window as u64)
    }

    fn last_cut(&self) -> Cut {
        self.cut
    }
}
