//! Compares the hits on each link with those that its packets let expect, and scores the difference.

use super::{PathSample, Within, stretches};
use std::collections::BTreeMap;

/// How many times likelier a packet suffers on a gray link than elsewhere: ours. The score is averaged over these odds, so
/// none of them has to be right.
const ODDS: [f64; 4] = [2.0, 6.0, 30.0, 200.0];

/// The hits on one link, round by round.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    rounds: Vec<Round>,
}

/// Hits that depend on each other.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Those on the link.
    hits: f64,
    /// Those that its packets let expect.
    expected: f64,
    /// All that are compared.
    all: f64,
    /// The number of rounds like this one.
    times: f64,
}

impl Comparison {
    /// The logarithm of the factor by which the hits are likelier if the link is gray.
    pub(super) fn score(&self) -> f64 {
        let of = |odds: f64| -> f64 {
            let factor = |round: &Round| {
                let (x, p) = (round.hits / round.all, round.expected / round.all);
                round.times * ((1.0 + (odds - 1.0) * x) / (1.0 + (odds - 1.0) * p)).ln()
            };
            self.rounds.iter().map(factor).sum()
        };
        let scores = ODDS.map(of);
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        most + (scores.iter().map(|score| (score - most).exp()).sum::<f64>() / ODDS.len() as f64).ln()
    }

    /// The hits beyond those to expect: of two links that share paths, the one that explains more has more of them.
    pub(super) fn excess(&self) -> f64 {
        self.rounds.iter().map(|round| round.times * (round.hits - round.expected)).sum()
    }

    /// The number of rounds in which the link was hit.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds.iter().filter(|round| round.hits > 0.0).map(|round| round.times).sum::<f64>() as u32
    }
}

/// The hits on each link. `left` is in the order of groups.
pub(super) fn compare<L: Ord + Copy>(
    left: &[&PathSample<L>],
    hits: &[bool],
    weigh: &dyn Fn(usize) -> f64,
    within: Within,
) -> BTreeMap<L, Comparison> {
    match within {
        Within::Fabric => across_fabric(left, hits, weigh),
        Within::Pair => within_pairs(left, hits, weigh),
    }
}

/// Sums over some samples.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    hits: f64,
    paths: u32,
}

impl Sums {
    fn add(&mut self, weight: f64, hit: bool) {
        self.weight += weight;
        self.hits += f64::from(u8::from(hit));
        self.paths += 1;
    }
}

/// Adds a sample to each of its links, once.
fn add_to<L: Ord + Copy>(links: &mut BTreeMap<L, Sums>, sample: &PathSample<L>, weight: f64, hit: bool) {
    for (at, link) in sample.links.iter().enumerate() {
        // A probe to oneself crosses a link twice.
        if !sample.links[..at].contains(link) {
            links.entry(*link).or_default().add(weight, hit);
        }
    }
}

/// A round is a path that was hit; every link of the fabric could have been on it.
fn across_fabric<L: Ord + Copy>(
    left: &[&PathSample<L>],
    hits: &[bool],
    weigh: &dyn Fn(usize) -> f64,
) -> BTreeMap<L, Comparison> {
    let (mut all, mut links) = (Sums::default(), BTreeMap::new());
    for (at, sample) in left.iter().enumerate() {
        all.add(weigh(at), hits[at]);
        add_to(&mut links, sample, weigh(at), hits[at]);
    }
    let compared = |(link, sums): (L, Sums)| {
        let expected = (sums.weight / all.weight.max(1.0)).clamp(1e-9, 1.0);
        let round = |hits: f64, times: f64| Round { hits, expected, all: 1.0, times };
        (link, Comparison { rounds: vec![round(1.0, sums.hits), round(0.0, all.hits - sums.hits)] })
    };
    links.into_iter().map(compared).collect()
}

/// A round is an interval. A link is compared with the other paths of its plane, pair by pair; if all of them cross it,
/// with the pair's other planes.
fn within_pairs<L: Ord + Copy>(
    left: &[&PathSample<L>],
    hits: &[bool],
    weigh: &dyn Fn(usize) -> f64,
) -> BTreeMap<L, Comparison> {
    let mut rounds: BTreeMap<L, BTreeMap<u32, Round>> = BTreeMap::new();
    // Of each pair in each interval.
    for group in stretches(left, |a, b| a.group() == b.group()) {
        if !group.clone().any(|at| hits[at]) {
            continue;
        }
        let interval = left[group.start].interval;
        let (mut all, mut planes) = (Sums::default(), BTreeMap::<u8, Sums>::new());
        let mut links: BTreeMap<L, (u8, Sums)> = BTreeMap::new();
        for at in group {
            let (sample, weight) = (left[at], weigh(at));
            all.add(weight, hits[at]);
            planes.entry(sample.plane).or_default().add(weight, hits[at]);
            for (place, link) in sample.links.iter().enumerate() {
                if !sample.links[..place].contains(link) {
                    links.entry(*link).or_insert((sample.plane, Sums::default())).1.add(weight, hits[at]);
                }
            }
        }
        for (link, (plane, sums)) in links {
            let around = planes.get(&plane).filter(|around| sums.paths < around.paths).unwrap_or(&all);
            // No path is so little used that one hit on it proves much.
            let least = f64::from(sums.paths) / f64::from(around.paths) / 2.0;
            let share = (sums.weight / around.weight.max(1e-9)).max(least);
            if sums.paths == around.paths || around.hits == 0.0 || share >= 1.0 {
                continue;
            }
            let round = rounds.entry(link).or_default().entry(interval).or_default();
            round.times = 1.0;
            round.hits += sums.hits;
            round.all += around.hits;
            round.expected += around.hits * share;
        }
    }
    let compared =
        |(link, rounds): (L, BTreeMap<u32, Round>)| (link, Comparison { rounds: rounds.into_values().collect() });
    rounds.into_iter().map(compared).collect()
}
