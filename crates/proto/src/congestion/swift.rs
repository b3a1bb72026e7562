//! Swift: a window steered by delay against a target that is longer for small windows.
//!
//! This form uses the queueing delay, that is, the round trip minus the base RTT, because targets made for hosts that
//! take 20 us do not fit a fabric with a round trip of 8 us.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, Cut, LossKind, LossSample};
use crate::environment::Environment;
use crate::parameters;
use crate::units::{Bytes, Rate, Span, Time};

parameters! {
    /// Window control by delay.
    pub struct SwiftConfig {
        /// Target queueing delay, as a multiple of the base RTT.
        target: f64 = 1.0, 0.001..=1000.0, "ours: production values are private; a public port also uses 1 RTT";
        /// The largest addition to the target for a small window (fs_range), as a multiple of the base RTT.
        flow_range: f64 = 0.5, 0.0..=1000.0, "ours: production values are private; a public port also uses 0.5 RTT";
        /// The window in packets below which the whole addition applies (fs_min_cwnd).
        flow_window_min: f64 = 0.1, 0.0001..=1.0e6, "htsim's Swift model: 0.1 packets";
        /// The window in packets above which there is no addition (fs_max_cwnd).
        flow_window_max: f64 = 100.0, 0.001..=1.0e6, "htsim's Swift model: 100 packets";
        /// Additive increase in packets per round trip (ai).
        additive: f64 = 1.0, 0.0..=1000.0, "htsim's Swift model: 1";
        /// Factor of the relative excess delay in a decrease (beta).
        beta: f64 = 0.8, 0.0..=1.0, "htsim's Swift model: 0.8";
        /// The largest share of the window that one decrease removes (max_mdf).
        decrease_max: f64 = 0.5, 0.0..=0.99, "htsim's Swift model: 0.5";
        /// After this many timeouts in a row the window falls to its minimum (RETX_RESET_THRESHOLD).
        timeouts_max: u32 = 5, 1.0..=1000.0, "htsim's Swift model: 5";
        /// Smallest window in packets; a window below one packet is paced.
        window_min: f64 = 0.01, 0.0001..=1.0, "ours: a packet every hundred round trips; not published";
        /// Largest window in packets.
        window_max: f64 = 1000.0, 1.0..=1.0e9, "htsim's Swift model: 1000 packets";
        /// First window, as a multiple of the bandwidth-delay product.
        window_initial_bdp: f64 = 1.0, 0.001..=1000.0, "ours: from htsim's 15 packets, 400 Gb/s take 85 round trips to fill";
    }
}

impl CongestionPolicy for SwiftConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Swift(Swift::new(self, environment))
    }
}

/// State of Swift for one connection. The window is in packets.
#[derive(Clone, Copy, Debug)]
pub struct Swift {
    // Constants; the delays in picoseconds.
    packet: f64,
    target: f64,
    range: f64,
    /// `fa` and `fb` of the flow scaling `fa / sqrt(window) + fb`.
    scale: f64,
    shift: f64,
    additive: f64,
    beta: f64,
    decrease_max: f64,
    window_min: f64,
    window_max: f64,
    timeouts_max: u32,
    // State.
    timeouts: u32,
    window: f64,
    base_rtt: Span,
    rtt: Span,
    last_decrease: Option<Time>,
    last_timeout: Option<Time>,
    cut: Cut,
}

const _: () = assert!(size_of::<Swift>() <= 192, "Swift's state per connection");

impl Swift {
    /// A connection that has sent nothing.
    pub fn new(config: &SwiftConfig, environment: &Environment) -> Swift {
        let packet = environment.packet.0.max(1) as f64;
        let base_rtt = Span(environment.base_rtt.0.max(1));
        let rtt = base_rtt.0 as f64;
        let range = config.flow_range * rtt;
        let (low, high) = (1.0 / config.flow_window_max.sqrt(), 1.0 / config.flow_window_min.sqrt());
        let scale = if high > low { range / (high - low) } else { 0.0 };
        let mut swift = Swift {
            packet,
            target: config.target * rtt,
            range,
            scale,
            shift: -scale * low,
            additive: config.additive,
            beta: config.beta,
            decrease_max: config.decrease_max,
            window_min: config.window_min,
            window_max: config.window_max,
            timeouts_max: config.timeouts_max,
            timeouts: 0,
            window: config.window_initial_bdp * environment.bdp().0 as f64 / packet,
            base_rtt,
            rtt: base_rtt,
            last_decrease: None,
            last_timeout: None,
            cut: Cut::Never,
        };
        swift.window = within(swift.window, 1.0, swift.window_max);
        swift
    }

    fn target(&self) -> f64 {
        self.target + within(self.scale / self.window.sqrt() + self.shift, 0.0, self.range)
    }

    /// Has a round trip passed since the last decrease? The first one may come at once.
    fn may_decrease(&self, now: Time) -> bool {
        self.last_decrease.is_none_or(|last| now.since(last) >= self.rtt)
    }

    fn decrease(&mut self, now: Time, factor: f64, cut: Cut) {
        if self.may_decrease(now) {
            self.cut = cut;
            self.window = within(self.window * factor, self.window_min, self.window_max);
            self.last_decrease = Some(now);
        }
    }
}

fn within(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

impl Congestion for Swift {
    fn on_ack(&mut self, sample: &AckSample) {
        self.timeouts = 0;
        let Some(rtt) = sample.rtt else { return };
        self.rtt = Span(rtt.0.max(1));
        if self.rtt < self.base_rtt {
            self.base_rtt = self.rtt;
        }
        let delay = (self.rtt.0 - self.base_rtt.0) as f64;
        let target = self.target();
        if delay < target {
            let step = self.additive * f64::from(sample.packets);
            self.window += if self.window >= 1.0 { step / self.window } else { step };
            self.window = within(self.window, self.window_min, self.window_max);
        } else {
            let factor = 1.0 - self.beta * (delay - target) / delay;
            self.decrease(sample.now, within(factor, 1.0 - self.decrease_max, 1.0), Cut::Delay);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if loss.kind == LossKind::TimedOut && self.last_timeout != Some(loss.now) {
            // All packets found overdue at the same time count as one timeout.
            self.last_timeout = Some(loss.now);
            self.timeouts = self.timeouts.saturating_add(1);
        }
        if self.timeouts >= self.timeouts_max {
            self.cut = Cut::Loss;
            self.window = self.window_min;
            self.last_decrease = Some(loss.now);
        } else {
            self.decrease(loss.now, 1.0 - self.decrease_max, Cut::Loss);
        }
    }

    fn window(&self) -> Bytes {
        Bytes((within(self.window, 1.0, self.window_max) * self.packet) as u64)
    }

    /// Below one packet per round trip, one packet every `rtt / window`.
    fn rate(&mut self, _: Time) -> Option<Rate> {
        if self.window >= 1.0 {
            return None;
        }
        let bits_per_second = self.packet * self.window * 8e12 / self.rtt.0 as f64;
        Some(Rate(within(bits_per_second, 1.0, 1e15) as u64))
    }

    fn last_cut(&self) -> Cut {
        self.cut
    }
}
