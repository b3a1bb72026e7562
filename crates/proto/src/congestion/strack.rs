//! STrack's congestion control: marks decide the direction of a change, delay its size. In heavy congestion, the window
//! falls to the bytes acknowledged in the last base RTT.
//!
//! A mark alone means that one path is congested; the path selector avoids it. A high average delay over all paths
//! means that the network is congested; only then the window falls.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, Cut, LossKind, LossSample, at_least};
use crate::environment::Environment;
use crate::parameters;
use crate::units::{Bytes, Rate, Span, Time};

parameters! {
    /// STrack's window. Scale `a` is the BDP over 100 Gb/s times 12 us.
    pub struct StrackConfig {
        /// First window, as a multiple of the bandwidth-delay product.
        window_first_bdp: f64 = 1.5, 0.01..=1000.0, "UEC simulator, its first author's plans: 150 packets at a BDP of 100";
        /// Largest window, as a multiple of the bandwidth-delay product.
        window_max_bdp: f64 = 1.5, 0.1..=1000.0, "UEC 1.0 and its simulator: 1.5 BDP; STrack's own value is not public";
        /// Target queueing delay, as a multiple of the network's base RTT.
        target: f64 = 1.0, 0.01..=100.0, "Le et al., arXiv 2407.15266: target_Qdelay is one base RTT";
        /// Delay that means heavy congestion, in targets.
        target_high: f64 = 3.0, 1.0..=100.0, "Le et al., arXiv 2407.15266: 3 in the parameter table, 2 in the text";
        /// Proportional increase: packets per round trip at an empty queue, times a.
        alpha: f64 = 4.0, 0.0..=1000.0, "UEC simulator, by STrack's first author: alpha = 4 a MTU / target";
        /// Increase of a flow without a mark though its delay is at the target or above: packets per round trip, times
        /// a.
        beta: f64 = 5.0, 0.0..=1000.0, "Le et al., arXiv 2407.15266: beta = 5 a MTU";
        /// Fairness increase: packets per base RTT in every case, times a.
        eta: f64 = 0.15, 0.0..=1000.0, "Le et al., arXiv 2407.15266: eta = 0.15 a MTU";
        /// Gain of the decrease.
        gamma: f64 = 0.8, 0.0..=1.0, "Le et al., arXiv 2407.15266: 0.8";
        /// A decrease keeps at least this share of the window.
        decrease_keep: f64 = 0.5, 0.0..=1.0, "UEC simulator: max_mdf = 0.5";
        /// Gain of the average delay, per acknowledgement.
        average_gain: f64 = 0.0125, 0.0001..=1.0, "UEC simulator, by STrack's first author, who came down from 1/8; the paper's is not public";
        /// The sample that an unmarked packet with a delay above the target adds to the average, in base RTTs;
        /// negative: its own delay.
        drained_share: f64 = 0.25, -1.0..=10.0, "UEC simulator, by STrack's first author: its queue has drained";
        /// If more than this share of the largest window is lost within a base RTT, the lost bytes are subtracted from
        /// the window; zero: losses count only together with a delay.
        loss_share: f64 = 0.0, 0.0..=1.0, "ours: strack_fast, which would otherwise send it all again at once";
        /// Allow windows smaller than a packet, by pacing; false: the smallest window is one packet.
        pacing: bool = false, 0.0..=1.0, "ours: for incasts of more senders than the BDP has packets; Broadcom's sketch of 2023 paces";
    }
}

impl CongestionPolicy for StrackConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Strack(Strack::new(self, environment))
    }
    fn envelope(&self) -> Option<(f64, f64)> {
        Some((self.window_max_bdp, self.target))
    }
}

/// A sample above this many base RTTs enters the average with at most [`OUTLIER_GAIN`]: UEC simulator, by STrack's
/// first author.
const OUTLIER_RTTS: u64 = 5;
const OUTLIER_GAIN: f32 = 0.0125;
/// With pacing, the smallest window in packets: ours, as Swift's.
const PACED_WINDOW_MIN: f64 = 1.0 / 128.0;

/// STrack's parameters, scaled to a connection's environment.
#[derive(Clone, Copy, Debug)]
struct Constants {
    alpha: f64,
    beta: f64,
    eta: f64,
    gamma: f32,
    keep: f32,
    gain: f32,
    drained: f32,
    window_max: f64,
    target: Span,
    target_high: Span,
    packet: u32,
    loss_limit: u32,
}

/// STrack's window.
#[derive(Clone, Copy, Debug)]
pub struct Strack {
    constants: Constants,
    window: f64,
    /// Average queueing delay over all paths, picoseconds.
    average: f64,
    base_rtt: Span,
    /// The queueing delay of the last certain round trip.
    delay: Span,
    meter_at: Time,
    acked_at: Time,
    decreased_at: Time,
    eta_at: Time,
    lost_since: Time,
    /// Wire bytes acknowledged in the last base RTT; 0 if not known.
    achieved: u32,
    received: u32,
    /// Wire bytes lost since `lost_since`; above `loss_limit` they are subtracted from the window.
    lost: u32,
    pacing: bool,
    cut: Cut,
}

const _: () = assert!(size_of::<Strack>() <= 176, "the state of a window");

impl Strack {
    /// A connection that has sent nothing.
    pub fn new(config: &StrackConfig, environment: &Environment) -> Strack {
        let packet = environment.packet.0.max(1) as f64;
        let base_rtt = Span(environment.base_rtt.0.max(1));
        let target = Span(base_rtt.scaled(config.target).0.max(1));
        let a = environment.bdp_scale();
        let bdp = environment.bdp().0 as f64;
        let window_max = at_least(config.window_max_bdp * bdp, packet);
        Strack {
            constants: Constants {
                alpha: config.alpha * a * packet / target.0 as f64,
                beta: config.beta * a * packet,
                eta: config.eta * a * packet,
                gamma: config.gamma as f32,
                keep: config.decrease_keep as f32,
                gain: config.average_gain as f32,
                drained: config.drained_share as f32,
                window_max,
                target,
                target_high: target.scaled(config.target_high),
                packet: environment.packet.0.clamp(1, u64::from(u32::MAX)) as u32,
                loss_limit: if config.loss_share > 0.0 { (window_max * config.loss_share) as u32 } else { u32::MAX },
            },
            window: at_least(config.window_first_bdp * bdp, packet).min(window_max),
            average: 0.0,
            base_rtt,
            delay: Span::ZERO,
            achieved: 0,
            received: 0,
            meter_at: Time::ZERO,
            acked_at: Time::ZERO,
            decreased_at: Time::ZERO,
            eta_at: Time::ZERO,
            lost_since: Time::ZERO,
            lost: 0,
            pacing: config.pacing,
            cut: Cut::Never,
        }
    }

    /// Adds a round trip to the average. Returns its queueing delay, or the average if there is no certain round trip.
    fn delay(&mut self, rtt: Option<Span>, marked: bool) -> Span {
        let Some(rtt) = rtt else { return Span(self.average as u64) };
        self.base_rtt = Span(self.base_rtt.0.min(rtt.0.max(1)));
        let delay = Span(rtt.0.saturating_sub(self.base_rtt.0));
        self.delay = delay;
        let drained = !marked && delay > self.constants.target && self.constants.drained >= 0.0;
        let sample = if drained { f64::from(self.constants.drained) * self.base_rtt.0 as f64 } else { delay.0 as f64 };
        let outlier = delay.0 > self.base_rtt.0.saturating_mul(OUTLIER_RTTS);
        let gain = if outlier && self.constants.gain > OUTLIER_GAIN { OUTLIER_GAIN } else { self.constants.gain };
        self.average += f64::from(gain) * (sample - self.average);
        delay
    }

    /// Measures the bytes acknowledged in a base RTT. An idle flow has no measurement.
    fn meter(&mut self, now: Time) {
        if now.since(self.meter_at) >= self.base_rtt {
            let busy = now.since(self.acked_at) < self.base_rtt;
            self.achieved = if busy { self.received } else { 0 };
            self.received = 0;
            self.meter_at = now;
        }
        self.acked_at = now;
    }

    fn may_decrease(&self, now: Time) -> bool {
        now.since(self.decreased_at) >= self.base_rtt
    }

    /// Sets the window to the bytes acknowledged in the last base RTT, if they are known and fewer.
    fn reset(&mut self, now: Time) -> bool {
        if self.achieved == 0 {
            return false;
        }
        self.window = self.window.min(f64::from(self.achieved));
        self.decreased_at = now;
        true
    }

    fn decrease(&mut self, now: Time, delay: Span) {
        let target = self.constants.target.0 as f64;
        if delay <= self.constants.target || self.average <= target || !self.may_decrease(now) {
            return;
        }
        self.cut = Cut::Delay;
        if delay > self.constants.target_high && self.reset(now) {
            return;
        }
        let factor = 1.0 - f64::from(self.constants.gamma) * (self.average - target) / self.average;
        self.window *= at_least(factor, f64::from(self.constants.keep));
        self.decreased_at = now;
    }

    /// Subtracts losses from the window if they exceed `loss_limit`.
    fn shed(&mut self, loss: &LossSample) {
        if loss.now.since(self.lost_since) >= self.base_rtt {
            self.lost_since = loss.now;
            self.lost = 0;
        }
        let before = self.lost;
        let bytes = loss.bytes.0.min(u64::from(u32::MAX)) as u32;
        self.lost = before.saturating_add(bytes);
        if self.lost > self.constants.loss_limit {
            self.cut = Cut::Loss;
            self.window -= f64::from(if before > self.constants.loss_limit { bytes } else { self.lost });
        }
    }

    fn limit(&mut self) {
        let packet = f64::from(self.constants.packet);
        let least = if self.pacing { packet * PACED_WINDOW_MIN } else { packet };
        self.window = at_least(self.window, least).min(self.constants.window_max);
    }
}

impl Congestion for Strack {
    fn on_ack(&mut self, sample: &AckSample) {
        let AckSample { now, bytes, marked, .. } = *sample;
        self.received = self.received.saturating_add(bytes.0.min(u64::from(u32::MAX)) as u32);
        let delay = self.delay(sample.rtt, marked);
        self.meter(now);
        let share = bytes.0 as f64 / self.window;
        if marked {
            self.decrease(now, delay);
        } else if delay > self.constants.target_high {
            // A long delay without a mark: the queue has drained meanwhile, so the window grows.
            self.window += self.constants.beta * share;
        } else if delay < self.constants.target {
            self.window += self.constants.alpha * (self.constants.target.0 - delay.0) as f64 * share;
        }
        if now.since(self.eta_at) >= self.base_rtt {
            self.window += self.constants.eta;
            self.eta_at = now;
        }
        self.limit();
    }

    fn on_loss(&mut self, loss: &LossSample) {
        match loss.kind {
            // A loss found by later packets counts as heavy congestion only if the delay is high too.
            LossKind::Inferred => {
                if self.delay > self.constants.target_high && self.may_decrease(loss.now) {
                    self.cut = Cut::Loss;
                    self.reset(loss.now);
                }
                self.shed(loss);
            }
            LossKind::TimedOut | LossKind::Trimmed { .. } => {
                self.cut = Cut::Loss;
                self.window -= loss.bytes.0 as f64;
            }
        }
        self.limit();
    }

    fn window(&self) -> Bytes {
        Bytes(self.window as u64)
    }

    fn rate(&mut self, _: Time) -> Option<Rate> {
        if !self.pacing || self.window >= f64::from(self.constants.packet) {
            return None;
        }
        let rtt = self.base_rtt + self.delay;
        let bits_per_second = self.window * 8e12 / rtt.0 as f64;
        Some(Rate(at_least(bits_per_second, 1.0) as u64))
    }

    fn last_cut(&self) -> Cut {
        self.cut
    }
}
