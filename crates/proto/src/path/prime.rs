//! PRIME: pseudo-random round robin over the uplinks of every tier, with places left out for a while where congestion was
//! met.
//!
//! The entropy value is a tuple, one part per upward tier, each the number of an uplink at the switch that reads it. An
//! odometer over one permutation per tier visits every tuple once per full cycle, so balance needs no feedback; feedback
//! only puts penalties on parts, which decay with every packet sent.

use super::spread::{PORTS_MAX, next_port};
use super::{AnyPath, PathFeedback, PathPolicy, PathSelector};
use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::parameters;
use crate::profile::Routing;
use crate::rng::Random;
use crate::units::{Span, Time};

parameters! {
    /// PRIME. Penalties are multiples of the number of uplinks of their tier: rounds for which an uplink is left out.
    pub struct PrimeConfig {
        /// Put penalties on congested uplinks; without, plain round robin.
        penalties: bool = true, 0.0..=1.0, "Sobhani et al., arXiv 2507.23012; false is the round robin it is compared with";
        /// Rounds that a mark costs where there is one upward tier.
        penalty_marked: f64 = 4.0, 0.0..=10000.0, "ours: the paper gives no values; fitted on a public simulator, 4 n";
        /// Rounds that a trim before the last hop, or a loss, costs where there is one upward tier.
        penalty_trimmed: f64 = 16.0, 0.0..=10000.0, "ours: the paper says only much more than a mark; fitted likewise, 16 n";
        /// Rounds that a mark costs where there are two upward tiers.
        penalty_marked_tiers: f64 = 0.5, 0.0..=10000.0, "ours: a mark accuses both parts though one link is congested; fitted, n / 2";
        /// Rounds that a trim before the last hop, or a loss, costs where there are two upward tiers.
        penalty_trimmed_tiers: f64 = 2.0, 0.0..=10000.0, "ours: four times a mark's";
        /// How much every penalty decays with each packet sent.
        decay: u32 = 1, 0.0..=1000000.0, "Sobhani et al.: penalties decay; the quantum is ours";
        /// Decay with time rather than with packets sent: one quantum per packet time at line rate.
        decay_by_time: bool = false, 0.0..=1.0, "ours: idle connections forget, too";
        /// Accuse the pair of uplinks, and the first of the two only once pairs with different second ones are accused.
        pairs: bool = false, 0.0..=1.0, "ours: for fabrics of three tiers with an asymmetric core";
        /// A queueing delay beyond this many base RTTs counts as a mark; zero: delay says nothing.
        delay_limit: f64 = 0.0, 0.0..=1000.0, "ours: the paper speaks of various signals without naming delay";
        /// Penalties are not looked at for this many bandwidth-delay products at the start.
        explore_bdp: f64 = 1.0, 0.0..=1000.0, "Sobhani et al.: one BDP, since nothing is known before";
        /// Look at no more than so many tuples per packet; zero: as many as there are, one cycle.
        scan: u32 = 0, 0.0..=1000000.0, "ours: hardware may want 8";
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

/// Uplinks of one tier at the most.
const UPLINKS_MAX: u16 = 4096;
/// Where the uplinks are not known, or there is nothing to choose: so many opaque entropy values, as sprays have.
const UNKNOWN: u16 = 64;

/// PRIME on all ports of a NIC: one instance each.
#[derive(Clone, Debug)]
pub struct Prime {
    ports: Box<[Odometer]>,
    random: Random,
    weights: Weights,
    /// The port whose turn it is.
    turn: u8,
    /// Bits of the entropy value that the first tier's part takes.
    bits: u8,
    explore: u32,
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

/// One plane's uplinks: an order and a cursor per tier, and what is held against each.
#[derive(Clone, Debug)]
struct Odometer {
    tiers: [Tier; 2],
    /// Penalty of every pair of uplinks, if pairs are accused: first tier's row by row.
    pairs: Box<[u32]>,
    /// What has decayed so far; a penalty is what lies above it.
    clock: u32,
}

#[derive(Clone, Debug)]
struct Tier {
    order: Box<[u16]>,
    cursor: u16,
    /// The clock at which each uplink is clear.
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

    /// A mark only starts a penalty, a loss replaces whatever there is.
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

    /// The next tuple: the lowest tier moves every time, the next when it has come round. A round is followed by another
    /// order.
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

    /// The smallest sum of penalties that any tuple has; zero where that is not known without looking at each.
    fn least(&self) -> u32 {
        let first = self.tiers[0].least(self.clock);
        if self.pairs.is_empty() { first.saturating_add(self.tiers[1].least(self.clock)) } else { 0 }
    }

    /// The first tuple in order with the smallest penalty, looking at `limit` of them at the most.
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

    /// The clock moves on; long before it would overflow, all times move back.
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
        // A tier with one uplink has no choice to regret.
        let weigh = |rounds: f64| uplinks.map(|n| if n > 1 { (rounds * f64::from(n) + 0.5) as u32 } else { 0 });
        let count = u32::from(environment.ports.clamp(1, PORTS_MAX as u8));
        let pairs = config.pairs && uplinks[1] > 1;
        let packet = environment.packet.0.max(1);
        let explore = (environment.bdp().0 as f64 * config.explore_bdp) as u64;
        let off = Weights { marked: [0; 2], trimmed: [0; 2] };
        let on = Weights { marked: weigh(marked), trimmed: weigh(trimmed) };
        Prime {
            ports: (0..count).map(|_| Odometer::new(uplinks, pairs, &mut random)).collect(),
            random,
            weights: if config.penalties { on } else { off },
            turn: 0,
            bits: uplinks[0].next_power_of_two().ilog2() as u8,
            explore: explore.div_ceil(packet).min(u64::from(u32::MAX)) as u32,
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

    /// The port and tuple that a path stands for; a path made up by a peer stands for none.
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

    /// With decay by time, brings a port's clock up to now.
    #[inline]
    fn pass_time(&mut self, now: Time, port: usize) {
        let Some(quantum) = self.quantum else { return };
        let clock = (now.0 / quantum.0).wrapping_mul(u64::from(self.decay)) as u32 & (u32::MAX >> 1);
        let odometer = &mut self.ports[port];
        if clock < odometer.clock {
            // Half a billion packet times are over: whatever there was is forgotten.
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
        let tuple = if self.explore > 0 {
            self.explore -= 1;
            odometer.next(&mut self.random)
        } else {
            odometer.best(self.scan, &mut self.random)
        };
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
