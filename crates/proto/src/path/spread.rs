//! Maps entropy indices to paths and back, and gives the order in which a spray visits them.

use crate::environment::Environment;
use crate::packet::{PathId, Ports};
use crate::rng::{Random, mix64};

/// A NIC has at most this many ports.
pub(super) const PORTS_MAX: usize = 32;

/// The paths of one connection: indices below a power of two, spread over the ports by `index mod ports`.
///
/// The entropy value has 16 bits. The low bits are the path's number among the paths of its port. The high bits are
/// drawn once per connection, so that connections give the fabric's hashes different inputs.
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

    /// The index of a path. Any path, even one that a peer invents, gives an index below `count`.
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

    /// The index of a random path that leaves by a free port. `free` must not be zero.
    #[inline]
    pub(super) fn draw(self, free: u32, random: &mut Random) -> u16 {
        let index = random.below(self.count()) as u16;
        let port = self.port(index);
        if free & (1 << port) != 0 {
            return index;
        }
        // Take the next free port upwards in the same row of indices, or in the row before if the last row has no such
        // index.
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

/// Visits the paths in rounds. Ports take turns; on each port every path comes once per round, in a new random order
/// for each round.
///
/// A port that is not free is skipped and keeps its place in its round. So every path of a port is used equally often,
/// even if other ports are busy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    seed: u32,
    /// For each port, the number of steps made: the low bits are the step within the round, the others are the round.
    steps: [u16; PORTS_MAX],
    /// The port that is used next.
    turn: u8,
    /// The binary logarithm of the number of steps in a round on each port.
    round_bits: u8,
    /// The port and round of the last order computed, and that order.
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
        // If the number of ports does not divide the number of paths, some steps give no path; fewer than half of a
        // round's steps do.
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

    /// The number with which the steps of this round are XORed.
    #[inline]
    fn order(&mut self, port: u8, round: u32) -> u32 {
        let which = u32::from(port) << 16 ^ round;
        if self.known.0 != which {
            self.known = (which, mix64(u64::from(self.seed) << 32 ^ u64::from(which)) as u32);
        }
        self.known.1
    }
}
