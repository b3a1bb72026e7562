//! Drives a world: which packet arrives and which timer ends next.

use crate::world::{Flight, Place, World};
use strandway_proto::aggregate::Fragment;
use strandway_proto::packet::Header;
use strandway_proto::units::{Span, Time};

impl World {
    /// Runs the timer of a node, `late` after it is due.
    pub(crate) fn fire(&mut self, node: usize, late: Span) {
        let at = self.nodes[node].engine.program().poll_timeout();
        assert_ne!(at, Time::NEVER, "a timer runs");
        self.now = self.now.max(at) + late;
        let now = self.now;
        self.nodes[node].engine.program().handle_timeout(now);
        self.act(node, &[]);
    }

    /// The nodes whose timers run; the node whose timer is due first comes first.
    pub(crate) fn timers(&mut self) -> Vec<usize> {
        let mut timers: Vec<(Time, usize)> = Vec::new();
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let at = node.engine.program().poll_timeout();
            if at != Time::NEVER {
                timers.push((at, n));
            }
        }
        timers.sort_unstable();
        timers.into_iter().map(|timer| timer.1).collect()
    }

    /// Takes the flight at position `at` of the list. If packets keep their order, takes the first flight of the same
    /// hop instead.
    pub(crate) fn take(&mut self, at: usize) -> (usize, Flight) {
        let (to, from) = (self.flying[at].to, self.flying[at].from);
        let first = if self.setting.fifo {
            self.flying.iter().position(|f| f.to == to && f.from == from).unwrap_or(at)
        } else {
            at
        };
        (first, self.flying.remove(first))
    }

    /// Runs until all workers have all results; each next step is chosen at random. False if that does not happen.
    pub(crate) fn run(&mut self) -> bool {
        let workers = self.workers();
        let chunk = 1 + u64::from(self.random.below(4));
        for _ in 0..3_000_000u64 {
            if self.is_done() || self.failed || !self.wrong.is_empty() {
                return self.is_done();
            }
            let lacking: Vec<usize> =
                workers.iter().copied().filter(|&n| self.nodes[n].produced < self.end()).collect();
            let produces = !lacking.is_empty() && (self.flying.is_empty() || self.random.chance(0.05));
            if produces {
                let node = lacking[self.random.below(lacking.len() as u32) as usize];
                let end = (self.nodes[node].produced + chunk).min(self.end());
                self.produce(node, end);
            } else if self.flying.is_empty() || self.random.chance(0.002) {
                let timers = self.timers();
                let Some(&node) = timers.first() else { return false };
                self.fire(node, Span::ZERO);
            } else {
                let at = self.random.below(self.flying.len() as u32) as usize;
                let (place, flight) = self.take(at);
                if self.random.chance(self.setting.loss) {
                    continue;
                }
                if self.random.chance(self.setting.duplication) {
                    self.flying.insert(place, flight.clone());
                }
                self.arrive(flight);
            }
        }
        false
    }

    /// Delivers all packets in flight without losses, and runs no timer.
    pub(crate) fn settle(&mut self) {
        while !self.flying.is_empty() {
            let (_, flight) = self.take(0);
            self.arrive(flight);
        }
    }

    /// Loses the first packet in flight that fits.
    pub(crate) fn lose(&mut self, fits: impl Fn(Place, &Fragment) -> bool) {
        let at = self.flying.iter().position(|flight| match flight.packet.header {
            Header::Fragment(fragment) => fits(flight.to, &fragment),
            _ => false,
        });
        self.flying.remove(at.expect("there is such a packet"));
    }

    /// Delivers packets, first come, first served, until a packet that fits is in flight.
    pub(crate) fn settle_until(&mut self, fits: impl Fn(Place, &Fragment) -> bool) {
        loop {
            let found = self.flying.iter().any(|flight| match flight.packet.header {
                Header::Fragment(fragment) => fits(flight.to, &fragment),
                _ => false,
            });
            if found {
                return;
            }
            assert!(!self.flying.is_empty(), "such a packet comes");
            let (_, flight) = self.take(0);
            self.arrive(flight);
        }
    }
}
