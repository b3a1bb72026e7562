//! Window control by delay for long, shared, lossy links: random loss does not reduce its window, and equal connections
//! get equal shares.

use super::{AckSample, AnyCongestion, Congestion, CongestionPolicy, Cut, LossSample};
use crate::environment::Environment;
use crate::parameters;
use crate::units::{Bytes, Rate, Span, Time};

parameters! {
    /// Window control by delay for long links; random loss does not reduce its window.
    pub struct LongHaulConfig {
        /// Target queueing delay of a connection that sends 1 Gb/s; at a rate r, the target is sqrt(1 Gb/s / r) times
        /// this.
        delay: Span = Span::from_ms(3), 1.0..=1.0e12, "ours: well above what a busy host's clock adds, well below a long link's round trip";
        /// First window, in packets; it doubles every round trip until delay or loss shows congestion.
        window_initial: f64 = 64.0, 1.0..=1.0e6, "ours: a chunk; RFC 6928 allows 10 packets";
        /// Smallest window, in packets.
        window_min: f64 = 4.0, 1.0..=1000.0, "BBR: 4 packets";
        /// Share of lost packets, in excess of the share lost while queues are short, that counts as congestion.
        loss_excess: f64 = 0.05, 0.0..=1.0, "ours: bursts at a mean of 1 % stay below it";
        /// A base RTT that was not confirmed for this long is measured again, with few packets in flight.
        base_age: Span = Span::from_ms(5_000), 1.0e9..=1.0e15, "BBR: 10 s; ours is half, so that a copy of half a minute does it often";
        /// A queueing delay above this share of the base RTT in many rounds in a row comes from other flows, which do
        /// not react to delay.
        crowd: f64 = 0.5, 0.01..=100.0, "ours: CUBIC keeps a queue of one bandwidth-delay product at least 0.4 full";
    }
}

impl CongestionPolicy for LongHaulConfig {
    fn build(&self, environment: &Environment) -> AnyCongestion {
        AnyCongestion::LongHaul(Box::new(LongHaul::new(self, environment)))
    }
    fn wants_counts(&self) -> bool {
        true
    }
}

/// The target delay is at most this share of the base RTT. Ours.
const AIM_MAX: f64 = 0.5;
/// Share of the window that is used while the base RTT is measured. Ours.
const DRAINED: f64 = 0.25;
/// After this many rounds in a row with too much delay, the phase is `Crowd`. Ours.
const CROWDED_ROUNDS: u32 = 8;
/// The smallest headroom, as a share of the target delay. Ours.
const HEADROOM_MIN: f64 = 1.0 / 16.0;
/// The headroom grows by this share of the target delay per clean round. Ours.
const HEADROOM_STEP: f64 = 1.0 / 64.0;
/// Per round, the loss floor rises by this share of the difference between the loss and the floor. Ours.
const CREEP: f64 = 1.0 / 1024.0;
/// The window grows only if at least this share of it is used. Ours.
const USED: f64 = 0.75;
/// In a crowd, the window is this multiple of the bytes that the path holds without a queue. BBR: cwnd_gain.
const CROWD_GAIN: f64 = 2.0;
/// The best rate counts for this many rounds. BBR: 10.
const BEST_ROUNDS: u32 = 10;
/// The pacing rate is the window per round trip times this, so that the window is the limit. Ours.
const PACE_GAIN: f64 = 1.1;
/// The pacing rate is the window per round trip times this while the window doubles. Ours.
const START_GAIN: f64 = 1.25;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The window doubles every round trip.
    Start,
    /// The window follows the delay.
    Steady,
    /// Other flows fill the queue: the window is twice the bytes that the path holds.
    Crowd,
}

/// The measurements of one round trip.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The round ends with the first acknowledgement after this time.
    until: Time,
    /// The shortest round trip, in picoseconds.
    rtt: f64,
    /// The most bytes in flight.
    flight: f64,
    arrived: f64,
    lost: f64,
}

impl Round {
    const fn new(until: Time) -> Round {
        Round { until, rtt: f64::MAX, flight: 0.0, arrived: 0.0, lost: 0.0 }
    }
}

/// The parameters, scaled to a connection's environment.
#[derive(Clone, Copy, Debug)]
struct Constants {
    line: f64,
    delay: f64,
    window_min: f64,
    loss_excess: f64,
    crowd: f64,
    base_age: Span,
}

/// State of one connection. Sizes are bytes, times picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct LongHaul {
    constants: Constants,
    phase: Phase,
    window: f64,
    /// The shortest round trip, and when it is measured again.
    base: f64,
    drain_at: Time,
    is_measured: bool,
    /// The end of the present measurement of the base RTT; [`Time::NEVER`] outside a measurement. Then the shortest
    /// round trip of this measurement, and of the last one.
    drain_until: Time,
    drain_rtt: f64,
    drained_rtt: f64,
    round: Round,
    /// The shortest round trip of the last round, and the last four samples.
    rtt: f64,
    recent: [f64; 4],
    /// The share of lost packets, and its recent minimum.
    loss: f64,
    loss_floor: f64,
    /// Does the receiver count arriving packets?
    is_counted: bool,
    /// The share of the target delay that this connection uses now.
    headroom: f64,
    crowded: u32,
    /// The best rate of the last rounds, in bits per second, and its age in rounds.
    best: f64,
    best_age: u32,
    /// When the receiver last reported, and whether anything was in flight then.
    heard: Time,
    owed: bool,
    cut: Cut,
}

const _: () = assert!(size_of::<LongHaul>() <= 272, "long-haul state per connection");

impl LongHaul {
    /// A connection that has sent nothing.
    pub fn new(config: &LongHaulConfig, environment: &Environment) -> LongHaul {
        let packet = environment.packet.0.max(1) as f64;
        let base = environment.base_rtt.0.max(1_000_000) as f64;
        LongHaul {
            constants: Constants {
                line: environment.rate.0.max(1) as f64,
                delay: config.delay.0 as f64,
                window_min: config.window_min * packet,
                loss_excess: config.loss_excess,
                crowd: config.crowd,
                base_age: config.base_age,
            },
            phase: Phase::Start,
            window: config.window_initial.max(config.window_min) * packet,
            base,
            drain_at: Time::NEVER,
            is_measured: false,
            drain_until: Time::NEVER,
            drain_rtt: f64::MAX,
            drained_rtt: 0.0,
            round: Round::new(Time::ZERO),
            rtt: base,
            recent: [0.0; 4],
            loss: 0.0,
            loss_floor: 1.0,
            is_counted: false,
            headroom: 1.0,
            crowded: 0,
            best: 0.0,
            best_age: 0,
            heard: Time::ZERO,
            owed: false,
            cut: Cut::Never,
        }
    }

    /// The target queueing delay of a connection that sends `rate` bits per second.
    fn aim(&self, rate: f64) -> f64 {
        (self.constants.delay * (1e9 / rate.max(1.0)).sqrt()).min(AIM_MAX * self.base)
    }

    fn set_window(&mut self, window: f64) {
        // No phase needs more than twice the bytes that the line carries in a base RTT and the target delay.
        let most = (self.constants.line * (self.base + self.aim(self.constants.line)) / 8e12 * CROWD_GAIN)
            .max(self.constants.window_min);
        self.window = window.clamp(self.constants.window_min, most);
    }

    /// A round trip was measured.
    fn measured(&mut self, now: Time, rtt: f64) {
        if !self.is_measured || rtt <= self.base {
            (self.base, self.is_measured) = (rtt, true);
            if self.phase != Phase::Start {
                self.drain_at = now + self.constants.base_age;
            }
        }
        self.recent = [self.recent[1], self.recent[2], self.recent[3], rtt];
        self.round.rtt = self.round.rtt.min(rtt);
        self.drain_rtt = self.drain_rtt.min(rtt);
    }

    /// Begins or ends a measurement of the base RTT if it is time.
    fn drain(&mut self, now: Time) {
        if self.drain_until != Time::NEVER {
            if now >= self.drain_until {
                self.drain_until = Time::NEVER;
                // On a path that has become longer, two measurements give the same round trip. A queue of other flows
                // gives different ones.
                let longer = self.drain_rtt > self.base;
                if self.drain_rtt < f64::MAX && (!longer || (self.drain_rtt / self.drained_rtt - 1.0).abs() < 0.02) {
                    self.base = self.drain_rtt;
                }
                (self.drained_rtt, self.drain_at) = (self.drain_rtt, now + self.constants.base_age);
            }
        } else if now >= self.drain_at {
            // One round trip until fewer packets are in flight, and one for the measurement.
            self.drain_until = now + Span((2.0 * self.rtt) as u64);
            self.drain_rtt = f64::MAX;
        }
    }

    /// A round trip has passed.
    fn end_round(&mut self, now: Time) {
        let Round { rtt, flight, arrived, lost, .. } = self.round;
        let was_drained = self.drain_until != Time::NEVER;
        self.drain(now);
        self.round = Round::new(now + Span(rtt as u64));
        self.rtt = rtt;
        if was_drained {
            // A round of the measurement says nothing about the window.
            return;
        }
        let share = if lost > 0.0 { lost / (lost + arrived) } else { 0.0 };
        self.loss = if self.loss_floor > 1.0 - f64::EPSILON { share } else { 0.75 * self.loss + 0.25 * share };
        self.loss_floor = if self.loss < self.loss_floor {
            self.loss
        } else {
            self.loss_floor + (self.loss - self.loss_floor) * CREEP
        };
        let flight = flight.min(self.window);
        let used = flight >= USED * self.window;
        let rate = (flight * 8e12 / rtt).min(self.constants.line);
        let congested =
            self.loss > self.loss_floor + self.constants.loss_excess || share > 0.25 && share > 2.0 * self.loss_floor;
        let queue = rtt - self.base;
        if self.best_age >= BEST_ROUNDS || rate * (1.0 - share) >= self.best {
            (self.best, self.best_age) = (rate * (1.0 - share), 0);
        } else {
            self.best_age += 1;
        }
        match self.phase {
            Phase::Start if congested => {
                self.shrink_headroom();
                self.settle(now, rate * (1.0 - share));
            }
            Phase::Start if used => self.set_window(2.0 * self.window),
            Phase::Start => {}
            Phase::Steady if congested => self.yield_to(rate * (1.0 - (share - self.loss_floor).max(0.0))),
            Phase::Steady => self.follow(rate, used, queue),
            Phase::Crowd if queue < self.crowding() / 2.0 => {
                (self.phase, self.crowded) = (Phase::Steady, 0);
                self.set_window(self.needed(rate));
            }
            Phase::Crowd => self.set_window(CROWD_GAIN * self.best * self.base / 8e12),
        }
    }

    /// Ends the doubling as soon as the last samples show a queueing delay above the target.
    fn stop_doubling(&mut self, now: Time) {
        let rtt = self.recent.iter().fold(f64::MAX, |least, &rtt| least.min(rtt));
        let rate = (self.window * 8e12 / rtt.max(1.0)).min(self.constants.line);
        if rtt - self.base > self.aim(rate) {
            self.cut = Cut::Delay;
            self.settle(now, rate);
        }
    }

    /// Ends the doubling of the window.
    fn settle(&mut self, now: Time, rate: f64) {
        self.phase = Phase::Steady;
        // A connection that starts later measures the queues of others as part of its base RTT, so it measures again
        // soon.
        self.drain_at = now + Span(self.constants.base_age.0 / 4);
        self.set_window(self.needed(rate));
    }

    /// A queueing delay above this is not caused by connections that react to delay.
    fn crowding(&self) -> f64 {
        (self.constants.crowd * self.base).max(2.0 * self.aim(self.best))
    }

    fn shrink_headroom(&mut self) {
        self.headroom = (self.headroom / 2.0).max(HEADROOM_MIN);
        self.loss = self.loss_floor;
        self.cut = Cut::Loss;
    }

    /// The window that `rate` needs: the bytes that the path holds, and those queued at the target delay.
    fn needed(&self, rate: f64) -> f64 {
        rate * (self.base + self.headroom * self.aim(rate)) / 8e12
    }

    /// The queue overflows: sets the window to the amount needed for the rate that arrived.
    fn yield_to(&mut self, rate: f64) {
        self.shrink_headroom();
        self.set_window(self.needed(rate).min(self.window));
    }

    /// Moves the window half the way to the amount that this rate needs.
    fn follow(&mut self, rate: f64, used: bool, queue: f64) {
        self.headroom = (self.headroom + HEADROOM_STEP).min(1.0);
        let mut target = self.needed(rate);
        if target < self.window {
            self.cut = Cut::Delay;
        } else if !used {
            target = self.window;
        }
        self.set_window(self.window + 0.5 * (target - self.window));
        self.crowded = if queue > self.crowding() { self.crowded + 1 } else { 0 };
        if self.crowded >= CROWDED_ROUNDS {
            self.phase = Phase::Crowd;
        }
    }
}

impl Congestion for LongHaul {
    fn on_sent(&mut self, now: Time, bytes: Bytes, in_flight: Bytes) {
        let silent = now.since(self.heard).0 as f64 > 4.0 * self.rtt;
        if in_flight <= bytes && silent {
            if self.owed {
                // All packets in flight are lost, or all their acknowledgements.
                self.cut = Cut::Loss;
                self.set_window(0.5 * self.window);
            }
            self.heard = now;
            self.round = Round::new(now + Span(self.rtt as u64));
        }
        self.owed = true;
        self.round.flight = self.round.flight.max(in_flight.0 as f64);
    }

    fn on_ack(&mut self, sample: &AckSample) {
        let now = sample.now;
        self.heard = now;
        self.owed = sample.in_flight.0 > 0;
        self.round.arrived += sample.bytes.0 as f64;
        if let Some(lost) = sample.lost {
            self.is_counted = true;
            self.round.lost += lost.0 as f64;
        }
        if let Some(rtt) = sample.rtt {
            self.measured(now, rtt.0.max(1) as f64);
            if self.phase == Phase::Start {
                self.stop_doubling(now);
            }
        }
        if now >= self.round.until && self.round.rtt < f64::MAX {
            self.end_round(now);
        }
    }

    fn on_loss(&mut self, loss: &LossSample) {
        if !self.is_counted {
            self.round.lost += loss.bytes.0 as f64;
        }
    }

    fn window(&self) -> Bytes {
        let window = if self.drain_until == Time::NEVER { self.window } else { DRAINED * self.window };
        Bytes(window.max(self.constants.window_min) as u64)
    }

    fn rate(&mut self, _: Time) -> Option<Rate> {
        let gain = if self.phase == Phase::Start { START_GAIN } else { PACE_GAIN };
        let rate = gain * self.window().0 as f64 * 8e12 / self.rtt.max(self.base);
        (rate < self.constants.line).then_some(Rate(rate.max(1.0) as u64))
    }

    fn last_cut(&self) -> Cut {
        self.cut
    }
}
