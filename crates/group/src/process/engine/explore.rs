//! Finds out which lengths of datagrams pass to other processes, before a connection is opened.

use super::super::commands::{Explore, Found, Way};
use super::super::message::Id;
use super::{Engine, Outcome};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// IPv6 and UDP headers, which count for both families: see [`strandway_udp::Config`].
const IP_UDP: u32 = 48;
/// The next probes of a way follow after this time, then after twice the time, up to the second constant: ours.
const AGAIN: Duration = Duration::from_millis(25);
const AGAIN_MAX: Duration = Duration::from_millis(100);
/// From this round of probes on, all lengths are tried: ours. Most ways take the largest one at once.
const ALL: u32 = 2;

/// An exploration under way.
struct Exploration {
    explore: Explore,
    until: Instant,
    next: Instant,
    round: u32,
    /// Numbers of probes: the way and the size.
    probes: HashMap<u64, (usize, u32)>,
    /// For each way, the largest size that has passed, and when something passed first.
    passed: Vec<Option<(u32, Instant)>>,
}

/// The explorations under way.
pub(super) struct Explorations {
    all: Vec<Exploration>,
    /// The number of the newest probe.
    probe: u64,
}

impl Explorations {
    /// None yet. The first number of a probe is random, as the name of the process is: a process of an earlier meeting
    /// may answer late.
    pub(super) fn new(id: &Id) -> Explorations {
        Explorations { all: Vec::new(), probe: u64::from_be_bytes(*id.first_chunk().expect("16 bytes")) }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Exploration {
    /// Has the largest size passed, or was there enough time for it?
    fn is_done(&self, way: usize) -> bool {
        let Explore { ways, mtus, settle, .. } = &self.explore;
        let settled = |passed: &Option<(u32, Instant)>| passed.is_some_and(|(_, first)| first.elapsed() > *settle);
        let whole = self.passed[way].is_some_and(|(mtu, _)| Some(&mtu) == mtus.first());
        // Another plane leads to the process. If this one does not work, only the plane is lost.
        let beside = || ways.iter().zip(&self.passed).any(|(o, passed)| o.rank == ways[way].rank && settled(passed));
        whole || settled(&self.passed[way]) || beside()
    }
}

impl Engine {
    pub(super) fn explore(&mut self, explore: Explore) {
        let now = Instant::now();
        let passed = vec![None; explore.ways.len()];
        let until = now + explore.limit;
        self.explorations.all.push(Exploration { explore, until, next: now, round: 0, probes: HashMap::new(), passed });
    }

    /// The time until explorations need a look again.
    pub(super) fn next_exploration(&self) -> Option<Duration> {
        let next = self.explorations.all.iter().map(|one| one.next).min()?;
        Some(next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))
    }

    /// A probe was answered.
    pub(super) fn handle_probed(&mut self, number: u64) {
        for one in &mut self.explorations.all {
            let Some((way, mtu)) = one.probes.remove(&number) else { continue };
            let (largest, first) = one.passed[way].unwrap_or((0, Instant::now()));
            one.passed[way] = Some((largest.max(mtu), first));
            // The exploration may be at its end.
            one.next = one.next.min(Instant::now());
        }
    }

    /// Sends the probes that are due, and ends explorations.
    pub(super) fn go_exploring(&mut self) -> Outcome {
        let now = Instant::now();
        let mut at = 0;
        while let Some(one) = self.explorations.all.get_mut(at) {
            let ways = one.explore.ways.len();
            if one.until <= now || (0..ways).all(|way| one.is_done(way)) {
                let one = self.explorations.all.swap_remove(at);
                let found = one.explore.ways.iter().zip(&one.passed).map(|(way, passed)| Found {
                    way: *way,
                    mtu: passed.map(|(mtu, _)| mtu),
                    heard: self.node.was_probed_by(way.plane, way.to),
                });
                let _ = one.explore.answer.send(found.collect());
                continue;
            }
            at += 1;
            if one.next > now {
                continue;
            }
            let (first, last) = (one.explore.mtus.first().copied(), one.explore.mtus.last().copied());
            let mtus: Vec<u32> = one
                .explore
                .mtus
                .iter()
                .copied()
                .filter(|mtu| one.round >= ALL || [first, last].contains(&Some(*mtu)))
                .collect();
            for way in 0..ways {
                if one.is_done(way) {
                    continue;
                }
                let Way { plane, to, .. } = one.explore.ways[way];
                let passed = one.passed[way].map_or(0, |(mtu, _)| mtu);
                // The smallest first: an interface that drops a packet may hold up those behind it.
                for mtu in mtus.iter().rev().copied().filter(|mtu| *mtu > passed) {
                    let number = self.explorations.probe.wrapping_add(1);
                    self.explorations.probe = number;
                    one.probes.insert(number, (way, mtu));
                    self.node.probe(plane, to, number, mtu.saturating_sub(IP_UDP))?;
                }
            }
            one.next = now + (AGAIN * 2u32.saturating_pow(one.round.min(8))).min(AGAIN_MAX);
            one.round += 1;
        }
        Ok(())
    }
}
