//! DCQCN, the rate control of RoCEv2: cut on a congestion notification, recover by timer and by byte counter.
//!
//! No timer fires. The increases that are due are computed when the rate is read, and the decay of alpha when the next
//! notification arrives. Both computations are short even after an hour of idle time, because they end when the rate is
//! back at the line rate and alpha is negligible. The results equal those of a model that fires every timer.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, Cut, LossSample};
use crate::environment::Environment;
use crate::parameters;
use crate::units::{Bytes, Rate, Span, Time};

parameters! {
    /// Rate control of RoCEv2. The time between two notifications of a receiver is `cnp_interval` of the transport.
    pub struct DcqcnConfig {
        /// Weight g of a notification in alpha.
        gain: f64 = 0.00390625, 0.001..=1.0, "Zhu et al., SIGCOMM 2015: g = 1/256";
        /// Alpha decays once per this time (K) without a notification.
        alpha_timer: Span = Span::from_us(55), 1.0e5..=1.0e13, "Zhu et al., SIGCOMM 2015: K = 55 us";
        /// The rate increases once per this time.
        increase_timer: Span = Span::from_us(55), 1.0e5..=1.0e13, "Zhu et al., SIGCOMM 2015: T = 55 us";
        /// The rate increases once per this many wire bytes sent.
        byte_counter: Bytes = Bytes(10_000_000), 1.0..=1.0e15, "Zhu et al., SIGCOMM 2015: B = 10 MB";
        /// The first this many increases of either kind only halve the distance to the target rate (F).
        fast_recovery: u32 = 5, 0.0..=1000.0, "Zhu et al., SIGCOMM 2015: F = 5";
        /// Additive increase, as a share of the line rate (R_AI).
        additive: f64 = 0.001, 0.00001..=1.0, "ours: the paper's 40 Mb/s is a thousandth of its 40 Gb/s";
        /// Hyper increase, as a share of the line rate (R_HAI).
        hyper: f64 = 0.01, 0.0..=1.0, "ours: not published; ten times the additive one, as is common";
        /// The smallest rate.
        rate_min: Rate = Rate(100_000_000), 1.0e6..=1.0e13, "HPCC artefact (ns-3): 100 Mb/s; the paper has no floor";
        /// At most this many bandwidth-delay products in flight; zero sets no such cap.
        window_bdp: f64 = 0.0, 0.0..=1000.0, "DCQCN has no window; the HPCC artefact (ns-3) can add one of 1 BDP";
    }
}

impl CongestionPolicy for DcqcnConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::Dcqcn(Dcqcn::new(self, environment))
    }
}

impl DcqcnConfig {
    /// Faster increases, as in htsim's model: R_AI is a twentieth, R_HAI a tenth of the line rate.
    pub fn aggressive() -> DcqcnConfig {
        DcqcnConfig { additive: 0.05, hyper: 0.1, ..DcqcnConfig::default() }
    }
}

/// State of DCQCN for one connection. Rates are in bits per second.
#[derive(Clone, Copy, Debug)]
pub struct Dcqcn {
    // Constants.
    line: f64,
    rate_min: f64,
    gain: f64,
    alpha_timer: Span,
    increase_timer: Span,
    byte_counter: u64,
    fast_recovery: u32,
    additive: f64,
    hyper: f64,
    window: Bytes,
    // State.
    current: f64,
    target: f64,
    /// Alpha at the last notification.
    alpha: f64,
    notified: Option<Time>,
    /// When the increase timer fires next; never while the rate is the line rate.
    next_increase: Time,
    timer_stage: u32,
    byte_stage: u32,
    bytes: u64,
}

const _: () = assert!(size_of::<Dcqcn>() <= 192, "DCQCN's state per connection");

/// An alpha below this value changes nothing: `1 - alpha / 2` is exactly 1 for the rate, and `(1 - g) * alpha + g` is
/// exactly g for the next alpha.
const ALPHA_NEGLIGIBLE: f64 = 1.0 / (1u128 << 66) as f64;

impl Dcqcn {
    /// A connection at line rate that has never been notified. Its timers start with the first notification, which
    /// therefore finds alpha at 1 and halves the rate.
    pub fn new(config: &DcqcnConfig, environment: &Environment) -> Dcqcn {
        let line = environment.rate.0 as f64;
        let window = match config.window_bdp {
            0.0 => u64::MAX,
            bdp => ((environment.bdp().0 as f64 * bdp) as u64).max(environment.packet.0),
        };
        Dcqcn {
            line,
            rate_min: if (config.rate_min.0 as f64) < line { config.rate_min.0 as f64 } else { line },
            gain: config.gain,
            alpha_timer: Span(config.alpha_timer.0.max(1)),
            increase_timer: Span(config.increase_timer.0.max(1)),
            byte_counter: config.byte_counter.0.max(1),
            fast_recovery: config.fast_recovery,
            additive: config.additive * line,
            hyper: config.hyper * line,
            window: Bytes(window),
            current: line,
            target: line,
            alpha: 1.0,
            notified: None,
            next_increase: Time::NEVER,
            timer_stage: 0,
            byte_stage: 0,
            bytes: 0,
        }
    }

    /// Alpha at `now`, after one decay for each whole timer period since the last notification.
    fn decayed_alpha(&self, now: Time) -> f64 {
        let Some(notified) = self.notified else { return self.alpha };
        let mut alpha = self.alpha;
        for _ in 0..now.since(notified).0 / self.alpha_timer.0 {
            if alpha < ALPHA_NEGLIGIBLE {
                return 0.0;
            }
            alpha *= 1.0 - self.gain;
        }
        alpha
    }

    fn increase(&mut self) {
        let (fewer, more) = (self.timer_stage.min(self.byte_stage), self.timer_stage.max(self.byte_stage));
        if more >= self.fast_recovery {
            if fewer > self.fast_recovery {
                self.target += f64::from(fewer - self.fast_recovery) * self.hyper;
            } else {
                self.target += self.additive;
            }
        }
        if self.target > self.line {
            self.target = self.line;
        }
        self.current = (self.target + self.current) / 2.0;
        if self.current >= self.line {
            // Both rates equal the line rate until the next notification, which resets the stages.
            self.current = self.line;
            self.next_increase = Time::NEVER;
        }
    }

    #[inline]
    fn catch_up(&mut self, now: Time) {
        while self.next_increase <= now {
            self.next_increase = self.next_increase + self.increase_timer;
            self.timer_stage += 1;
            self.increase();
        }
    }
}

impl Congestion for Dcqcn {
    fn on_sent(&mut self, now: Time, bytes: Bytes, _: Bytes) {
        self.catch_up(now);
        if self.next_increase == Time::NEVER {
            return;
        }
        self.bytes += bytes.0;
        while self.bytes >= self.byte_counter {
            self.bytes -= self.byte_counter;
            self.byte_stage += 1;
            self.increase();
        }
    }

    fn on_ack(&mut self, _: &AckSample) {}

    fn on_loss(&mut self, _: &LossSample) {}

    fn on_notification(&mut self, now: Time) {
        self.catch_up(now);
        let alpha = self.decayed_alpha(now);
        self.target = self.current;
        self.current *= 1.0 - alpha / 2.0;
        if self.current < self.rate_min {
            self.current = self.rate_min;
        }
        self.alpha = (1.0 - self.gain) * alpha + self.gain;
        self.notified = Some(now);
        self.next_increase = now + self.increase_timer;
        self.timer_stage = 0;
        self.byte_stage = 0;
        self.bytes = 0;
    }

    fn window(&self) -> Bytes {
        self.window
    }

    fn last_cut(&self) -> Cut {
        if self.notified.is_some() { Cut::Marks } else { Cut::Never }
    }

    #[inline]
    fn rate(&mut self, now: Time) -> Option<Rate> {
        self.catch_up(now);
        if self.current < self.line { Some(Rate(self.current as u64)) } else { None }
    }
}
