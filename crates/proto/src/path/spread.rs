//! From entropy indices to paths and back, and the order in which a spray visits them.

use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::rng::{Random, mix64};

/// A NIC has at most this many ports.
pub(super) const PORTS_MAX: usize = 32;

/// The paths of one connection: indices below a power of two, spread over the ports by `index mod ports`.
///
/// The entropy value is 16 bits: the path's number among those of its port in the low ones, bits drawn once per connection in
/// the high ones, so that connections give the fabric's hashes different input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    high: u16,
    mask: u16,
    ports: u8,
}

impl Spread {
    /// At least `entropies` paths (rounded up to a power of two, at least one per port, at most `most`).
    pub(super) fn new(entropies: u32, most: u32, environment: &Environment, random: &mut Random) -> Spread {
        let ports = environment.ports.clamp(1, PORTS_MAX as u8);
        let count = entropies.max(u32::from(ports)).min(most).next_power_of_two().min(1 << 16);
        let mask = (count - 1) as u16;
        Spread { high: random.next_u64() as u16 & !mask, mask, ports }
    }

    /// Number of paths.
    pub(super) const fn count(self) -> u32 {
        self.mask as u32 + 1
    }

    #[inline]
    pub(super) const fn port(self, index: u16) -> u8 {
        if self.ports == 1 { 0 } else { (index % self.ports as u16) as u8 }
    }

    #[inline]
    pub(super) const fn path(self, index: u16) -> PathId {
        let number = if self.ports == 1 { index } else { index / self.ports as u16 };
        PathId::new(self.port(index), (self.high | number) as u32)
    }

    /// The index that a path carries; a path made up by a peer gives some index, too.
    #[inline]
    pub(super) const fn index(self, path: PathId) -> u16 {
        let number = path.entropy() as u16 & self.mask;
        if self.ports == 1 {
            return number;
        }
        (number as u32 * self.ports as u32 + path.port() as u32 % self.ports as u32) as u16 & self.mask
    }

    /// Those of our ports that are free for data, one bit each.
    #[inline]
    pub(super) const fn free(self, free: Ports) -> u32 {
        free.data & (u32::MAX >> (PORTS_MAX as u8 - self.ports))
    }

    /// A path drawn at random, by way of a free port. `free` must not be zero.
    #[inline]
    pub(super) fn draw(self, free: u32, random: &mut Random) -> u16 {
        let index = random.below(self.count()) as u16;
        let port = self.port(index);
        if free & (1 << port) != 0 {
            return index;
        }
        // The next free port upwards, in the same row of ports, or the row before where that is cut short.
        let moved = u32::from(index) - u32::from(port) + u32::from(next_port(free, port));
        if moved < self.count() { moved as u16 } else { (moved - u32::from(self.ports)) as u16 }
    }
}

/// The first free port from `port` on, cyclically. `free` must not be zero.
#[inline]
pub(super) const fn next_port(free: u32, port: u8) -> u8 {
    let ahead = free >> port;
    if ahead != 0 { port + ahead.trailing_zeros() as u8 } else { free.trailing_zeros() as u8 }
}

/// Visits the paths in rounds: ports in turn, and on each port every path once per round, in an order drawn anew for
/// each round.
///
/// Ports that are not free are passed over and keep their place, so that a round is even on each port however busy the
/// others are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    seed: u32,
    /// For each port, how many steps it has made; the low bits count within a round, the others are the round.
    steps: [u16; PORTS_MAX],
    /// The port whose turn it is.
    turn: u8,
    /// Steps of a round on each port, a power of two, as its exponent.
    round_bits: u8,
    /// The port and round whose order was needed last, and that order.
    known: (u32, u32),
}

impl Cycle {
    pub(super) fn new(spread: Spread, random: &mut Random) -> Cycle {
        let per_port = spread.count().div_ceil(u32::from(spread.ports)).next_power_of_two();
        Cycle {
            seed: random.next_u64() as u32,
            steps: [0; PORTS_MAX],
            turn: 0,
            round_bits: per_port.trailing_zeros() as u8,
            known: (u32::MAX, 0),
        }
    }

    /// The next path among the free ports. `free` must not be zero.
    #[inline]
    pub(super) fn next(&mut self, spread: Spread, free: u32) -> u16 {
        let port = next_port(free, self.turn);
        self.turn = if port + 1 < spread.ports { port + 1 } else { 0 };
        // Less than half of the steps of a round fall beyond the last path, and only if the ports do not divide them.
        loop {
            let step = u32::from(self.steps[usize::from(port)]);
            self.steps[usize::from(port)] = self.steps[usize::from(port)].wrapping_add(1);
            let row = (step ^ self.order(port, step >> self.round_bits)) & ((1 << self.round_bits) - 1);
            let index = row * u32::from(spread.ports) + u32::from(port);
            if index < spread.count() {
                return index as u16;
            }
        }
    }

    /// What the steps of this round are XORed with.
    #[inline]
    fn order(&mut self, port: u8, round: u32) -> u32 {
        let which = u32::from(port) << 16 ^ round;
        if self.known.0 != which {
            self.known = (which, mix64(u64::from(self.seed) << 32 ^ u64::from(which)) as u32);
        }
        self.known.1
    }
}
