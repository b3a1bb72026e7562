//! NSCC, the network-signalled congestion control of Ultra Ethernet: a window steered by delay and marks together.
//!
//! There are four cases. Unmarked and delay below the target: grow in proportion to the distance from the target.
//! Unmarked and delay at the target or above: grow evenly. Marked and delay at the target or above: shrink in
//! proportion to the excess of the average delay. Marked and delay below the target: no change; the path selector
//! reacts. If very little data is acknowledged, the window falls at once to the amount that was ("quick adapt").

use super::{
    AckSample, AnyCongestion, Congestion, CongestionPolicy, CreditTerms, Cut, LossKind, LossSample, RcccConfig,
    at_least,
};
use crate::environment::Environment;
use crate::parameters;
use crate::units::{Bytes, Span, Time};

parameters! {
    /// Network-signalled congestion control. Scale `a` is the BDP over 100 Gb/s times 12 us, `b` the target over 12 us.
    pub struct NsccConfig {
        /// Largest and first window, as a multiple of the bandwidth-delay product.
        window_max_bdp: f64 = 1.5, 0.1..=1000.0, "UEC 1.0, NSCC table: MaxWnd = 1.5 BDP; first window as in its simulator";
        /// Target queueing delay if switches trim, as a multiple of the base RTT.
        target_trimming: f64 = 0.75, 0.01..=100.0, "UEC 1.0, NSCC table";
        /// Target queueing delay if switches drop, as a multiple of the base RTT.
        target_dropping: f64 = 1.0, 0.01..=100.0, "UEC 1.0, NSCC table";
        /// Proportional increase: packets per round trip at an empty queue, times a and b.
        proportional_increase: f64 = 4.0, 0.0..=1000.0, "UEC 1.0, NSCC table: alpha = 4 a b MTU / target";
        /// Fair increase: packets per round trip, times a.
        fair_increase: f64 = 5.0, 0.0..=1000.0, "UEC 1.0, NSCC table: fi = 5 a MTU";
        /// Steady increase: packets per adjustment period, times a.
        eta: f64 = 0.15, 0.0..=1000.0, "UEC 1.0, NSCC table: eta = 0.15 a MTU";
        /// Fast increase: window bytes per acknowledged byte while there is no queueing delay, times a.
        fast_increase: f64 = 0.25, 0.0..=1000.0, "UEC 1.0, NSCC table: fi_scale = 0.25 a";
        /// A queueing delay below this counts as zero.
        fast_delay: Span = Span::from_us(1), 0.0..=1.0e9, "UEC simulator: 1 us; UEC 1.0 says about zero";
        /// Multiplicative decrease: the factor of the relative excess over the target.
        gamma: f64 = 0.8, 0.0..=1.0, "UEC 1.0, NSCC table";
        /// One decrease keeps at least this share of the window.
        decrease_keep: f64 = 0.5, 0.0..=1.0, "UEC 1.0, NSCC table: max decrease 0.5";
        /// Increases are applied after this many packets of acknowledged bytes, or after one base RTT.
        adjust_packets: u32 = 8, 1.0..=100000.0, "UEC 1.0, NSCC table: adjust_bytes = 8 MTU";
        /// Quick adapt if switches drop: a delay above this many targets starts it.
        quick_delay_targets: f64 = 4.0, 0.0..=1.0e6, "UEC 1.0, NSCC table: qa_threshold = 4 targets; never where they trim";
        /// Quick adapt only if less than the largest window, halved this many times, was acknowledged.
        quick_gate: u32 = 3, 0.0..=30.0, "UEC 1.0, NSCC table: qa_gate = 3";
        /// Weight of a sample in the average delay.
        average_weight: f64 = 0.0125, 0.0001..=1.0, "UEC simulator: 0.0125; UEC 1.0 leaves the estimator open";
        /// A packet that was found lost without a NACK shrinks the window by its size, as a trimmed one does.
        shrink_on_loss: bool = false, 0.0..=1.0, "OCP MRC 1.0 and UEC 1.0: on; UEC simulator (SLEEK): off";
        /// Connections of a host to one other host share one window.
        per_destination: bool = false, 0.0..=1.0, "OCP MRC 1.0: a congestion context per destination; UEC simulator: per connection";
        /// Senders also need the receiver's credit (RCCC with its defaults); trims at the last hop then leave the window
        /// alone.
        receiver_credit: bool = false, 0.0..=1.0, "UEC simulator: a switch beside NSCC";
    }
}

impl CongestionPolicy for NsccConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Nscc(Nscc::new(self, environment))
    }
    fn paces(&self) -> bool {
        false
    }
    fn is_per_destination(&self) -> bool {
        self.per_destination
    }
    fn envelope(&self) -> Option<(f64, f64)> {
        Some((self.window_max_bdp, self.target_dropping))
    }
    fn credit(&self) -> Option<CreditTerms> {
        let window_max_bdp = self.window_max_bdp;
        let terms = RcccConfig { window_max_bdp, ..RcccConfig::default() }.credit()?;
        self.receiver_credit.then_some(CreditTerms { follows_window: true, ..terms })
    }
}

/// Up to this base RTT steps grow with the BDP and the target as UEC 1.0 has it. Source: MRC sheet, section 11.1
/// (ours).
const UNSCALED_MAX: Span = Span::from_us(50);
/// Beyond [`UNSCALED_MAX`], a and b are at most these: a step is then at most 40 packets per round trip. Without this
/// limit, the step of a host with 10 Gb/s and 1 ms would be seven times its BDP. Source: MRC sheet, section 11.1
/// (ours).
const SCALE_MAX: (f64, f64) = (10.0, 1.0);

/// The queue of a late packet without a mark has drained since, so its delay counts as this share of the base RTT. UEC
/// simulator: 0.25.
const DRAINED_SHARE: f64 = 0.25;

/// Two parameters in one byte: NSCC's state has no byte to spare.
#[derive(Clone, Copy, Debug)]
struct Choices(u8);

impl Choices {
    const SHRINKS_ON_LOSS: u8 = 1 << 7;
    const HAS_CREDIT: u8 = 1 << 6;

    fn new(config: &NsccConfig) -> Choices {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let loss = bit(config.shrink_on_loss, Choices::SHRINKS_ON_LOSS);
        Choices(config.quick_gate.min(63) as u8 | loss | bit(config.receiver_credit, Choices::HAS_CREDIT))
    }

    fn quick_gate(self) -> u8 {
        self.0 & !(Choices::SHRINKS_ON_LOSS | Choices::HAS_CREDIT)
    }

    /// Does the receiver answer for trims at the last hop?
    fn has_credit(self) -> bool {
        self.0 & Choices::HAS_CREDIT != 0
    }

    /// Does a loss that no NACK tells of shrink the window?
    fn shrinks_on_loss(self) -> bool {
        self.0 & Choices::SHRINKS_ON_LOSS != 0
    }
}

/// NSCC's parameters, scaled to a connection's environment.
#[derive(Clone, Copy, Debug)]
struct Constants {
    alpha: f64,
    fair: f64,
    eta: f64,
    gamma: f64,
    keep: f64,
    fast_scale: f64,
    weight: f64,
    /// Largest window per picosecond of base RTT.
    window_per_ps: f64,
    target: Span,
    quick_delay: Span,
    fast_delay: Span,
    config_base_rtt: Span,
}

/// State of NSCC for one connection. Times are in picoseconds, sizes in wire bytes.
#[derive(Clone, Copy, Debug)]
pub struct Nscc {
    constants: Constants,
    window: f64,
    /// Average queueing delay.
    average: f64,
    /// The increase that is not applied yet, times the window.
    increment: f64,
    base_rtt: Span,
    last_adjust: Time,
    last_decrease: Time,
    /// When the present quick-adapt period ends; [`Time::NEVER`] before the first.
    quick_end: Time,
    /// Bytes acknowledged in this quick-adapt period.
    achieved: u64,
    /// Bytes of the old window that still have to drain after a quick adapt.
    to_ignore: u64,
    /// Bytes acknowledged in a row without queueing delay.
    fast_count: u64,
    /// Bytes acknowledged since increases were last applied; saturates.
    received: u32,
    adjust_bytes: u32,
    packet: u32,
    choices: Choices,
    fast: bool,
    trigger: bool,
    cut: Cut,
}

const _: () = assert!(size_of::<Nscc>() <= 192, "NSCC's state per connection");

impl Nscc {
    /// This state for a clock that is `ahead` picoseconds ahead.
    pub(crate) fn shifted(self, ahead: i128) -> Nscc {
        let shift = |time: Time| match time {
            Time::NEVER => time,
            Time(at) => Time((i128::from(at) + ahead).clamp(0, i128::from(u64::MAX - 1)) as u64),
        };
        let (last_adjust, last_decrease) = (shift(self.last_adjust), shift(self.last_decrease));
        Nscc { last_adjust, last_decrease, quick_end: shift(self.quick_end), ..self }
    }

    /// A connection that has sent nothing: the window is at its largest.
    pub fn new(config: &NsccConfig, environment: &Environment) -> Nscc {
        let packet = environment.packet.0.clamp(1, u64::from(u32::MAX)) as f64;
        let base_rtt = Span(environment.base_rtt.0.max(1));
        let target =
            base_rtt.scaled(if environment.trimming { config.target_trimming } else { config.target_dropping });
        let target = Span(target.0.max(1));
        let (mut a, mut b) = (environment.bdp_scale(), target.0 as f64 / Span::from_us(12).0 as f64);
        if base_rtt > UNSCALED_MAX {
            (a, b) = (a.min(SCALE_MAX.0), b.min(SCALE_MAX.1));
        }
        let never = Span(u64::MAX);
        let mut nscc = Nscc {
            constants: Constants {
                alpha: config.proportional_increase * a * b * packet / target.0 as f64,
                fair: config.fair_increase * a * packet,
                eta: config.eta * a * packet,
                gamma: config.gamma,
                keep: config.decrease_keep,
                fast_scale: config.fast_increase * a,
                weight: config.average_weight,
                window_per_ps: config.window_max_bdp * environment.rate.0 as f64 / 8e12,
                target,
                quick_delay: if environment.trimming { never } else { target.scaled(config.quick_delay_targets) },
                fast_delay: config.fast_delay,
                config_base_rtt: base_rtt,
            },
            window: 0.0,
            average: 0.0,
            increment: 0.0,
            base_rtt,
            last_adjust: Time::ZERO,
            last_decrease: Time::ZERO,
            quick_end: Time::NEVER,
            achieved: 0,
            to_ignore: 0,
            fast_count: 0,
            received: 0,
            adjust_bytes: (u64::from(config.adjust_packets) * packet as u64).min(u64::from(u32::MAX)) as u32,
            packet: packet as u32,
            choices: Choices::new(config),
            fast: false,
            trigger: false,
            cut: Cut::Never,
        };
        nscc.window = nscc.window_max();
        nscc
    }

    /// The window in wire bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window as u64
    }

    fn packet(&self) -> f64 {
        f64::from(self.packet)
    }

    /// The largest window, for the base RTT measured so far.
    fn window_max(&self) -> f64 {
        let window = self.constants.window_per_ps * self.base_rtt.0 as f64;
        if window < self.packet() { self.packet() } else { window }
    }

    fn average_in(&mut self, delay: f64) {
        self.average = self.constants.weight * delay + (1.0 - self.constants.weight) * self.average;
    }

    /// Adds a round trip to the average. Returns its queueing delay, or the average if there is no certain round trip.
    fn delay(&mut self, rtt: Option<Span>, marked: bool) -> Span {
        let Some(rtt) = rtt else { return Span(self.average as u64) };
        if rtt < self.base_rtt {
            self.base_rtt = rtt;
        }
        let delay = Span(rtt.0 - self.base_rtt.0);
        if !marked && delay > self.constants.target {
            self.average_in(DRAINED_SHARE * self.base_rtt.0 as f64);
        } else {
            self.average_in(delay.0 as f64);
        }
        delay
    }

    fn forget_increase(&mut self) {
        self.increment = 0.0;
        self.received = 0;
    }

    /// If very little was acknowledged in this period, sets the window to that amount. True if the sample must not be
    /// used further.
    fn quick_adapt(&mut self, now: Time, loss: bool, marked: bool, delay: Span, in_flight: Bytes) -> bool {
        let mut done = false;
        if self.to_ignore > 0 && marked {
            done = true;
        } else if self.quick_end == Time::NEVER || now >= self.quick_end {
            let suspicious = self.trigger || loss || delay > self.constants.quick_delay;
            let gate = self.window_max() / (1u64 << self.choices.quick_gate()) as f64;
            if self.quick_end != Time::NEVER && suspicious && (self.achieved as f64) < gate {
                self.cut = if self.trigger || loss { Cut::Loss } else { Cut::Delay };
                self.window = at_least(self.achieved as f64, self.packet());
                self.to_ignore = in_flight.0;
                self.trigger = false;
                done = true;
            }
            self.achieved = 0;
            self.quick_end = now + self.base_rtt + self.constants.target;
        }
        if done {
            self.forget_increase();
        }
        done
    }

    /// After a whole window without queueing delay, grows in proportion to the acknowledged bytes.
    fn fast_increase(&mut self, bytes: Bytes, delay: Span) -> bool {
        if delay < self.constants.fast_delay {
            self.fast_count += bytes.0;
            if self.fast || self.fast_count as f64 > self.window {
                self.window += bytes.0 as f64 * self.constants.fast_scale;
                self.limit();
                self.fast = true;
                return true;
            }
        } else {
            self.fast_count = 0;
        }
        self.fast = false;
        false
    }

    fn decrease(&mut self, now: Time) {
        self.fast = false;
        self.fast_count = 0;
        let target = self.constants.target.0 as f64;
        if self.average > target && now.since(self.last_decrease) > self.base_rtt {
            let factor = 1.0 - self.constants.gamma * (self.average - target) / self.average;
            self.window = at_least(self.window * at_least(factor, self.constants.keep), self.packet());
            self.last_decrease = now;
            self.cut = Cut::Delay;
        }
    }

    fn limit(&mut self) {
        let most = self.window_max();
        if self.window > most {
            self.window = most;
        }
    }

    /// Applies the increases collected so far.
    fn fulfil(&mut self, now: Time) {
        self.window += self.increment / self.window;
        if now.since(self.last_adjust) >= self.constants.config_base_rtt {
            self.window += self.constants.eta;
            self.last_adjust = now;
        }
        self.limit();
        self.forget_increase();
    }

    fn lose(&mut self, bytes: Bytes) {
        self.cut = Cut::Loss;
        self.window = at_least(self.window - bytes.0 as f64, self.packet());
    }
}

impl Congestion for Nscc {
    fn on_ack(&mut self, sample: &AckSample) {
        let AckSample { now, bytes, marked, in_flight, .. } = *sample;
        self.to_ignore = self.to_ignore.saturating_sub(bytes.0);
        self.received = self.received.saturating_add(bytes.0.min(u64::from(u32::MAX)) as u32);
        self.achieved += bytes.0;
        let delay = self.delay(sample.rtt, marked);
        if self.quick_adapt(now, false, marked, delay, in_flight) {
            return;
        }
        match (marked, delay >= self.constants.target) {
            (false, true) => self.increment += self.constants.fair * bytes.0 as f64,
            (false, false) => {
                if !self.fast_increase(bytes, delay) {
                    self.increment +=
                        self.constants.alpha * bytes.0 as f64 * (self.constants.target.0 - delay.0) as f64;
                }
            }
            (true, true) => self.decrease(now),
            // A mark without delay: one path is busy, not all. The path selector reacts.
            (true, false) => {}
        }
        if now.since(self.last_adjust) >= self.constants.config_base_rtt || self.received > self.adjust_bytes {
            self.fulfil(now);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        self.to_ignore = self.to_ignore.saturating_sub(loss.bytes.0);
        match loss.kind {
            LossKind::Trimmed { last_hop } => {
                self.average_in(self.constants.config_base_rtt.0 as f64);
                self.trigger = true;
                let exempt = last_hop && self.choices.has_credit();
                if !self.quick_adapt(loss.now, true, true, Span::ZERO, loss.in_flight) && !exempt {
                    self.lose(loss.bytes);
                }
            }
            LossKind::Inferred if !self.choices.shrinks_on_loss() => {}
            LossKind::Inferred | LossKind::TimedOut => self.lose(loss.bytes),
        }
    }

    fn window(&self) -> Bytes {
        Bytes(self.window_bytes())
    }

    fn last_cut(&self) -> Cut {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nscc() -> Nscc {
        let environment = Environment {
            rate: crate::units::Rate::from_gbps(100),
            ports: 1,
            base_rtt: Span::from_us(10),
            packet: Bytes(4160),
            trimming: false,
            uplinks: [0; 2],
            paths_in_order: 0,
            queue: Bytes(1_000_000),
            packet_life: Span::from_ms(10),
        };
        Nscc::new(&NsccConfig::default(), &environment)
    }

    proptest! {
        /// A window that goes from clock to clock is the window that stays with one.
        #[test]
        fn a_window_does_not_depend_on_the_clock_that_it_is_lent_by(
            steps in prop::collection::vec((1u64..30, 10u64..60, any::<bool>(), 0u8..20), 1..200),
            ahead in prop_oneof![Just(0i128), 1i128..1 << 62, (1i128..1 << 40).prop_map(|back| -back)],
        ) {
            let (mut stays, mut goes) = (nscc(), nscc());
            // Late enough to look back by either clock.
            let mut now = Time(1 << 61);
            for (wait, rtt, marked, fate) in steps {
                now = now + Span::from_us(wait);
                let there = Time((i128::from(now.0) + ahead) as u64);
                let mut lent = goes.shifted(ahead);
                let in_flight = Bytes(100_000);
                if fate == 0 {
                    let lost = |now| LossSample { now, kind: LossKind::TimedOut, bytes: Bytes(4160), in_flight };
                    stays.on_loss(&lost(now));
                    lent.on_loss(&lost(there));
                } else {
                    let rtt = Span::from_us(rtt);
                    let (rtt, bytes) = (Some(rtt), Bytes(4160));
                    let acked = |now| AckSample { now, rtt, bytes, packets: 1, lost: None, marked, in_flight };
                    stays.on_ack(&acked(now));
                    lent.on_ack(&acked(there));
                }
                goes = lent.shifted(-ahead);
                prop_assert_eq!(stays.window(), goes.window());
            }
        }
    }
}
