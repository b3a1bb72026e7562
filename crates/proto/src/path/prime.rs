//! PRIME: pseudo-random round robin over the uplinks of every tier, which leaves congested uplinks out for a while.
//!
//! The entropy value is a tuple with one part per upward tier. Each part is the number of an uplink at the switch that
//! reads it. An odometer over one permutation per tier visits every tuple once per full cycle, so the load is balanced
//! without feedback. Feedback only puts penalties on parts, and penalties decay with every packet sent.

use super::spread::{PORTS_MAX, next_port};
use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::profile::Routing;
use crate::rng::Random;
use crate::units::{Span, Time};

parameters! {
    /// PRIME. A penalty is a multiple of the number of uplinks of its tier: the number of rounds for which an uplink is
    /// left out.
    pub struct PrimeConfig {
        /// Put penalties on congested uplinks; false: plain round robin.
        penalties: bool = true, 0.0..=1.0, "Sobhani et al., arXiv 2507.23012; false is the round robin it is compared with";
        /// The penalty of a mark in rounds, with one upward tier.
        penalty_marked: f64 = 4.0, 0.0..=10000.0, "ours: the paper gives no values; fitted on a public simulator, 4 n";
        /// The penalty of a loss, or of a trim before the last hop, in rounds, with one upward tier.
        penalty_trimmed: f64 = 16.0, 0.0..=10000.0, "ours: the paper says only much more than a mark; fitted likewise, 16 n";
        /// The penalty of a mark in rounds, with two upward tiers.
        penalty_marked_tiers: f64 = 0.5, 0.0..=10000.0, "ours: a mark accuses both parts though one link is congested; fitted, n / 2";
        /// The penalty of a loss, or of a trim before the last hop, in rounds, with two upward tiers.
        penalty_trimmed_tiers: f64 = 2.0, 0.0..=10000.0, "ours: four times a mark's";
        /// The amount by which every penalty decays with each packet sent.
        decay: u32 = 1, 0.0..=1000000.0, "Sobhani et al.: penalties decay; the quantum is ours";
        /// Decay with time rather than with packets sent: one quantum per packet time at line rate.
        decay_by_time: bool = false, 0.0..=1.0, "ours: idle connections forget, too";
        /// Put the penalty on the pair of uplinks; the first uplink alone gets a penalty only if pairs with different
        /// second uplinks have one.
        pairs: bool = false, 0.0..=1.0, "ours: for fabrics of three tiers with an asymmetric core";
        /// A queueing delay longer than this many base RTTs counts as a mark; zero: delay is ignored.
        delay_limit: f64 = 0.0, 0.0..=1000.0, "ours: the paper speaks of various signals without naming delay";
        /// Penalties are ignored for the first this many bandwidth-delay products.
        explore_bdp: f64 = 1.0, 0.0..=1000.0, "Sobhani et al.: one BDP, since nothing is known before";
        /// Compare at most this many tuples per packet; zero: all tuples, one cycle.
        scan: u32 = 0, 0.0..=1000000.0, "ours: hardware may want 8";
        /// For switches that hash: the host finds out, for every tuple, an entropy value that their known hash sends
        /// over the tuple's uplinks, and sends that value. Switches that index need no table.
        table: bool = false, 0.0..=1.0, "ours: the paper expects switches that index; a host that knows the hash can do without";
    }
}

impl PathPolicy for PrimeConfig {
    fn build(&self, environment: &Environment, random: Random) -> AnyPath {
        AnyPath::Prime(Prime::new(self, environment, random))
    }
    fn routing(&self) -> Routing {
        // Its entropy is an index.
        Routing::Direct
    }
}

/// The largest number of uplinks of one tier.
const UPLINKS_MAX: u16 = 4096;
/// The number of opaque entropy values if the uplinks are not known; as sprays have.
const UNKNOWN: u16 = 64;

/// PRIME on all ports of a NIC: one odometer per port.
#[derive(Clone, Debug)]
pub struct Prime {
    ports: Box<[Odometer]>,
    random: Random,
    weights: Weights,
    /// The port that is used next.
    turn: u8,
    /// The number of bits of the first tier's part in the entropy value.
    bits: u8,
    /// Wire bytes still to be sent before penalties count.
    explore: u64,
    scan: u32,
    decay: u32,
    /// With decay by time: picoseconds per quantum.
    quantum: Option<Span>,
    delay_limit: Span,
}

const _: () = assert!(size_of::<Prime>() <= 256, "the state of PRIME beside its tables");

/// Penalties per tier, in units of decay.
#[derive(Clone, Copy, Debug)]
struct Weights {
    marked: [u32; 2],
    trimmed: [u32; 2],
}

/// One plane's uplinks: an order and a cursor per tier, and the penalties.
#[derive(Clone, Debug)]
struct Odometer {
    tiers: [Tier; 2],
    /// The penalty of every pair of uplinks, with `pairs`: one row per uplink of the first tier.
    pairs: Box<[u32]>,
    /// The total decay so far; the penalty of an uplink is `until` minus this.
    clock: u32,
}

#[derive(Clone, Debug)]
struct Tier {
    order: Box<[u16]>,
    cursor: u16,
    /// The clock at which each uplink's penalty ends.
    until: Box<[u32]>,
}

impl Tier {
    fn new(uplinks: u16, random: &mut Random) -> Tier {
        let mut order: Box<[u16]> = (0..uplinks).collect();
        random.shuffle(&mut order);
        Tier { cursor: 0, until: vec![0; order.len()].into(), order }
    }

    #[inline]
    fn left(&self, uplink: u16, clock: u32) -> u32 {
        self.until[usize::from(uplink)].saturating_sub(clock)
    }

    fn least(&self, clock: u32) -> u32 {
        self.until.iter().map(|u| u.saturating_sub(clock)).min().unwrap_or(0)
    }

    /// A mark sets a penalty only if there is none; a loss replaces the present penalty.
    fn charge(&mut self, uplink: u16, clock: u32, marked: bool, penalty: u32) {
        if !marked || self.left(uplink, clock) == 0 {
            self.until[usize::from(uplink)] = clock.saturating_add(penalty);
        }
    }
}

impl Odometer {
    fn new(uplinks: [u16; 2], pairs: bool, random: &mut Random) -> Odometer {
        let tiers = uplinks.map(|n| Tier::new(n, random));
        let count = if pairs { usize::from(uplinks[0]) * usize::from(uplinks[1]) } else { 0 };
        Odometer { tiers, pairs: vec![0; count].into(), clock: 0 }
    }

    /// The next tuple. The lowest tier moves every time, the next tier after each round of the lowest. Each round has a
    /// new random order.
    #[inline]
    fn next(&mut self, random: &mut Random) -> [u16; 2] {
        let tuple = [0, 1].map(|t| self.tiers[t].order[usize::from(self.tiers[t].cursor)]);
        for tier in &mut self.tiers {
            tier.cursor += 1;
            if usize::from(tier.cursor) < tier.order.len() {
                break;
            }
            tier.cursor = 0;
            random.shuffle(&mut tier.order);
        }
        tuple
    }

    #[inline]
    fn left(&self, tuple: [u16; 2]) -> u32 {
        let first = self.tiers[0].left(tuple[0], self.clock);
        let second = if self.pairs.is_empty() {
            self.tiers[1].left(tuple[1], self.clock)
        } else {
            self.pairs[self.pair(tuple)].saturating_sub(self.clock)
        };
        first.saturating_add(second)
    }

    fn pair(&self, [first, second]: [u16; 2]) -> usize {
        usize::from(first) * self.tiers[1].order.len() + usize::from(second)
    }

    /// The smallest sum of penalties of any tuple; zero with `pairs`, where only a search would find it.
    fn least(&self) -> u32 {
        let first = self.tiers[0].least(self.clock);
        if self.pairs.is_empty() { first.saturating_add(self.tiers[1].least(self.clock)) } else { 0 }
    }

    /// The first tuple with the smallest penalty among the next `limit` tuples.
    fn best(&mut self, limit: u32, random: &mut Random) -> [u16; 2] {
        let first = self.next(random);
        let mut best = (self.left(first), first);
        if best.0 == 0 {
            return first;
        }
        let least = self.least();
        for _ in 1..limit {
            if best.0 <= least {
                break;
            }
            let tuple = self.next(random);
            let left = self.left(tuple);
            if left < best.0 {
                best = (left, tuple);
            }
        }
        best.1
    }

    fn charge(&mut self, tuple: [u16; 2], marked: bool, penalties: [u32; 2]) {
        let clock = self.clock;
        if self.pairs.is_empty() {
            for (t, uplink) in tuple.into_iter().enumerate() {
                self.tiers[t].charge(uplink, clock, marked, penalties[t]);
            }
            return;
        }
        let at = self.pair(tuple);
        if !marked || self.pairs[at] <= clock {
            self.pairs[at] = clock.saturating_add(penalties[1]);
        }
        let width = self.tiers[1].order.len();
        let row = usize::from(tuple[0]) * width;
        if self.pairs[row..row + width].iter().filter(|&&until| until > clock).count() >= 2 {
            self.tiers[0].charge(tuple[0], clock, marked, penalties[0]);
        }
    }

    /// Advances the clock. Long before it overflows, all times are set back.
    #[inline]
    fn advance(&mut self, by: u32) {
        self.clock = self.clock.saturating_add(by);
        if self.clock > u32::MAX / 2 {
            let all = self.tiers.iter_mut().flat_map(|t| t.until.iter_mut()).chain(self.pairs.iter_mut());
            all.for_each(|until| *until = until.saturating_sub(self.clock));
            self.clock = 0;
        }
    }
}

impl Prime {
    /// A connection that has sent nothing.
    pub fn new(config: &PrimeConfig, environment: &Environment, mut random: Random) -> Prime {
        let uplinks = match environment.uplinks {
            [0, _] => [UNKNOWN, 1],
            [first, second] => [first.min(UPLINKS_MAX), second.clamp(1, UPLINKS_MAX)],
        };
        let (marked, trimmed) = if uplinks[1] > 1 {
            (config.penalty_marked_tiers, config.penalty_trimmed_tiers)
        } else {
            (config.penalty_marked, config.penalty_trimmed)
        };
        // A tier with one uplink gets no penalty, because there is no other choice.
        let weigh = |rounds: f64| uplinks.map(|n| if n > 1 { (rounds * f64::from(n) + 0.5) as u32 } else { 0 });
        let count = u32::from(environment.ports.clamp(1, PORTS_MAX as u8));
        let pairs = config.pairs && uplinks[1] > 1;
        let explore = (environment.bdp().0 as f64 * config.explore_bdp) as u64;
        let off = Weights { marked: [0; 2], trimmed: [0; 2] };
        let on = Weights { marked: weigh(marked), trimmed: weigh(trimmed) };
        Prime {
            ports: (0..count).map(|_| Odometer::new(uplinks, pairs, &mut random)).collect(),
            random,
            weights: if config.penalties { on } else { off },
            turn: 0,
            bits: uplinks[0].next_power_of_two().ilog2() as u8,
            explore,
            scan: match config.scan {
                0 => u32::from(uplinks[0]) * u32::from(uplinks[1]),
                scan => scan,
            },
            decay: config.decay,
            quantum: config.decay_by_time.then(|| Span(environment.rate.time_for(environment.packet).0.max(1))),
            delay_limit: match config.delay_limit {
                0.0 => Span(u64::MAX),
                rounds => environment.base_rtt.scaled(rounds),
            },
        }
    }

    /// The entropy value of a tuple.
    #[inline]
    fn path(&self, port: u8, [first, second]: [u16; 2]) -> PathId {
        PathId::new(port, u32::from(first) | u32::from(second) << self.bits)
    }

    /// The port and tuple of a path; `None` if there is no such path, because a peer may name any path.
    #[inline]
    fn tuple(&self, path: PathId) -> Option<(usize, [u16; 2])> {
        let port = usize::from(path.port());
        let parts = [path.entropy() & ((1 << self.bits) - 1), path.entropy() >> self.bits];
        let tiers = &self.ports.get(port)?.tiers;
        let sound = (0..2).all(|t| (parts[t] as usize) < tiers[t].order.len());
        sound.then(|| (port, parts.map(|p| p as u16)))
    }

    #[inline]
    fn charge(&mut self, now: Time, path: PathId, marked: bool) {
        let Some((port, tuple)) = self.tuple(path) else { return };
        let penalties = if marked { self.weights.marked } else { self.weights.trimmed };
        if penalties == [0; 2] {
            return;
        }
        self.pass_time(now, port);
        self.ports[port].charge(tuple, marked, penalties);
    }

    /// With decay by time, advances a port's clock to `now`.
    #[inline]
    fn pass_time(&mut self, now: Time, port: usize) {
        let Some(quantum) = self.quantum else { return };
        let clock = (now.0 / quantum.0).wrapping_mul(u64::from(self.decay)) as u32 & (u32::MAX >> 1);
        let odometer = &mut self.ports[port];
        if clock < odometer.clock {
            // The clock has wrapped, after 2^31 units of decay: all penalties are cleared.
            odometer.clock = 0;
            odometer.tiers.iter_mut().for_each(|t| t.until.fill(0));
            odometer.pairs.fill(0);
        }
        odometer.clock = clock;
    }
}

impl PathSelector for Prime {
    #[inline]
    fn next(&mut self, now: Time, free: Ports) -> Option<PathId> {
        let free = free.data & (u32::MAX >> (PORTS_MAX - self.ports.len()));
        if free == 0 {
            return None;
        }
        let port = next_port(free, self.turn);
        self.turn = if usize::from(port) + 1 < self.ports.len() { port + 1 } else { 0 };
        self.pass_time(now, usize::from(port));
        let odometer = &mut self.ports[usize::from(port)];
        let tuple =
            if self.explore > 0 { odometer.next(&mut self.random) } else { odometer.best(self.scan, &mut self.random) };
        if self.quantum.is_none() {
            odometer.advance(self.decay);
        }
        Some(self.path(port, tuple))
    }

    #[inline]
    fn on_feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback) {
        match feedback {
            PathFeedback::Good => {}
            PathFeedback::Marked => self.charge(now, path, true),
            PathFeedback::Trimmed | PathFeedback::Lost | PathFeedback::TimedOut | PathFeedback::Shunned => {
                self.charge(now, path, false);
            }
        }
    }

    #[inline]
    fn on_delay(&mut self, now: Time, path: PathId, delay: Span) {
        if delay > self.delay_limit {
            self.charge(now, path, true);
        }
    }

    #[inline]
    fn on_sent(&mut self, bytes: u32) {
        self.explore = self.explore.saturating_sub(u64::from(bytes));
    }

    fn penalties(&self) -> Vec<u32> {
        let of = |o: &Odometer| -> Vec<u32> {
            (0..2)
                .filter(|&t| o.tiers[t].order.len() > 1)
                .flat_map(|t| (0..o.tiers[t].order.len()).map(move |i| o.tiers[t].left(i as u16, o.clock)))
                .collect()
        };
        self.ports.iter().flat_map(of).collect()
    }
}
