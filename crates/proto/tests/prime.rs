//! PRIME: the odometer, penalties and their decay, exploration, and entropy values.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use strandway_proto::path::{AnyPath, PathConfig, PathFeedback, PathSelector, PrimeConfig};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{Bytes, Environment, PathId, Ports, Rate, Span, Time};

const ONE: Ports = Ports::first(1);

fn environment(uplinks: [u16; 2]) -> Environment {
    Environment {
        rate: Rate::from_gbps(400),
        ports: 1,
        base_rtt: Span(8_340_000),
        packet: Bytes(4160),
        trimming: true,
        uplinks,
        paths_in_order: 0,
        queue: Bytes(417_000),
        packet_life: Span::from_ms(10),
    }
}

/// No exploration, so that penalties count from the first packet on; scans long enough to see every tuple however
/// orders change on the way.
fn settled() -> PrimeConfig {
    PrimeConfig { explore_bdp: 0.0, scan: 1000, ..PrimeConfig::default() }
}

fn build(config: PrimeConfig, uplinks: [u16; 2]) -> AnyPath {
    PathConfig::Prime(config).build(&environment(uplinks), Random::new(5, StreamKind::Connection, 9))
}

fn next(prime: &mut AnyPath) -> PathId {
    prime.next(Time::ZERO, ONE).expect("a path")
}

/// The uplinks that an entropy value names, of `first` at the leaf.
fn tuple(path: PathId, first: u16) -> (u32, u32) {
    let bits = u32::from(first).next_power_of_two().ilog2();
    (path.entropy() & ((1 << bits) - 1), path.entropy() >> bits)
}

#[test]
fn two_by_two_uplinks_give_four_tuples_and_the_lowest_tier_moves_every_time() {
    let mut prime = build(settled(), [2, 2]);
    for _ in 0..100 {
        let tuples: Vec<(u32, u32)> = (0..4).map(|_| tuple(next(&mut prime), 2)).collect();
        assert_eq!(tuples.iter().collect::<BTreeSet<_>>().len(), 4, "{tuples:?}");
        assert_ne!(tuples[0].0, tuples[1].0);
        assert_ne!(tuples[2].0, tuples[3].0);
        assert_eq!(tuples[0].1, tuples[1].1);
        assert_eq!(tuples[2].1, tuples[3].1);
    }
}

#[test]
fn every_cycle_is_exact_and_in_another_order() {
    let mut prime = build(settled(), [16, 0]);
    let cycles: BTreeSet<Vec<u32>> = (0..50)
        .map(|_| {
            let cycle: Vec<u32> = (0..16).map(|_| tuple(next(&mut prime), 16).0).collect();
            assert_eq!(cycle.iter().collect::<BTreeSet<_>>().len(), 16, "{cycle:?}");
            cycle
        })
        .collect();
    assert_eq!(cycles.len(), 50, "an order came twice");

    let mut prime = build(settled(), [5, 3]);
    for _ in 0..20 {
        let cycle: BTreeSet<(u32, u32)> = (0..15).map(|_| tuple(next(&mut prime), 5)).collect();
        assert_eq!(cycle.len(), 15);
        assert!(cycle.iter().all(|&(first, second)| first < 5 && second < 3));
    }
}

#[test]
fn a_mark_starts_a_penalty_a_trim_replaces_it_and_each_packet_pays_one_off() {
    let config = PrimeConfig { penalty_marked: 2.0, penalty_trimmed: 5.0, ..settled() };
    let mut prime = build(config, [4, 0]);
    let path = next(&mut prime);
    let place = tuple(path, 4).0 as usize;
    let penalty = |prime: &AnyPath| prime.penalties()[place];
    assert_eq!(penalty(&prime), 0);
    prime.on_feedback(Time::ZERO, path, PathFeedback::Marked);
    assert_eq!(penalty(&prime), 8, "two rounds of four");
    next(&mut prime);
    prime.on_feedback(Time::ZERO, path, PathFeedback::Marked);
    assert_eq!(penalty(&prime), 7, "a mark changes nothing where there is a penalty");
    prime.on_feedback(Time::ZERO, path, PathFeedback::Trimmed);
    assert_eq!(penalty(&prime), 20, "a trim replaces it");
    prime.on_feedback(Time::ZERO, path, PathFeedback::Good);
    assert_eq!(penalty(&prime), 20, "good news changes nothing");
    for left in (0..20).rev() {
        assert_ne!(next(&mut prime), path, "left out while it has a penalty and others have none");
        assert_eq!(penalty(&prime), left);
    }
    let round: BTreeSet<PathId> = (0..8).map(|_| next(&mut prime)).collect();
    assert!(round.contains(&path), "forgiven");
}

#[test]
fn if_every_uplink_is_penalised_the_least_penalised_is_taken() {
    let config = PrimeConfig { penalty_marked: 4.0, penalty_trimmed: 16.0, ..settled() };
    let mut prime = build(config, [4, 0]);
    let paths: Vec<PathId> = (0..4).map(|_| next(&mut prime)).collect();
    for &path in &paths[..3] {
        prime.on_feedback(Time::ZERO, path, PathFeedback::Trimmed);
    }
    prime.on_feedback(Time::ZERO, paths[3], PathFeedback::Marked);
    for _ in 0..20 {
        assert_eq!(next(&mut prime), paths[3]);
    }
}

#[test]
fn round_robin_alone_knows_no_penalties() {
    let mut prime = build(PrimeConfig { penalties: false, ..settled() }, [8, 0]);
    let path = next(&mut prime);
    prime.on_feedback(Time::ZERO, path, PathFeedback::Trimmed);
    assert!(prime.penalties().iter().all(|&p| p == 0));
    for _ in 0..7 {
        next(&mut prime);
    }
    let cycle: BTreeSet<PathId> = (0..8).map(|_| next(&mut prime)).collect();
    assert_eq!(cycle.len(), 8);
}

#[test]
fn exploration_ends_with_the_packet_that_completes_a_bandwidth_delay_product() {
    // 417,000 B of 4,160 B: the 101st packet starts within the product, the 102nd beyond it.
    // Of packets half as long, twice as many.
    for (bytes, packets) in [(4160, 100), (2080, 200)] {
        let mut prime = build(PrimeConfig { penalty_trimmed: 1000.0, ..PrimeConfig::default() }, [4, 0]);
        let mut send = || {
            let path = next(&mut prime);
            prime.on_sent(bytes);
            prime.on_feedback(Time::ZERO, PathId::new(0, 0), PathFeedback::Trimmed);
            path == PathId::new(0, 0)
        };
        let bad: Vec<bool> = (0..600).map(|_| send()).collect();
        assert_eq!(bad[..packets].iter().filter(|&&bad| bad).count(), packets / 4, "a quarter of them");
        assert_eq!(bad[packets + 4..].iter().filter(|&&bad| bad).count(), 0);
    }
}

#[test]
fn with_decay_by_time_an_idle_connection_forgets() {
    let mut prime = build(PrimeConfig { decay_by_time: true, penalty_marked: 4.0, ..settled() }, [4, 0]);
    let path = next(&mut prime);
    prime.on_feedback(Time::ZERO, path, PathFeedback::Marked);
    let packet = Rate::from_gbps(400).time_for(Bytes(4160));
    let taken = |prime: &mut AnyPath, now: Time| (0..8).any(|_| prime.next(now, ONE) == Some(path));
    assert!(!taken(&mut prime, Time::ZERO + packet * 15));
    assert!(taken(&mut prime, Time::ZERO + packet * 16));
}

#[test]
fn with_pairs_an_uplink_of_the_leaf_is_accused_by_two_witnesses() {
    let config = PrimeConfig { pairs: true, penalty_trimmed_tiers: 10.0, ..settled() };
    let mut prime = build(config, [4, 4]);
    let all: BTreeMap<(u32, u32), PathId> =
        (0..16).map(|_| next(&mut prime)).map(|path| (tuple(path, 4), path)).collect();
    let leaf = |prime: &AnyPath, uplink: usize| prime.penalties()[uplink];
    prime.on_feedback(Time::ZERO, all[&(2, 1)], PathFeedback::Trimmed);
    assert_eq!(leaf(&prime, 2), 0, "one witness accuses the pair only");
    prime.on_feedback(Time::ZERO, all[&(2, 1)], PathFeedback::Trimmed);
    assert_eq!(leaf(&prime, 2), 0, "the same again is not a second one");
    let cycle: BTreeSet<PathId> = (0..16).map(|_| next(&mut prime)).collect();
    assert!(!cycle.contains(&all[&(2, 1)]) && cycle.contains(&all[&(2, 0)]));
    prime.on_feedback(Time::ZERO, all[&(2, 3)], PathFeedback::Trimmed);
    assert!(leaf(&prime, 2) > 0);
    let cycle: BTreeSet<u32> = (0..16).map(|_| tuple(next(&mut prime), 4).0).collect();
    assert_eq!(cycle, BTreeSet::from([0, 1, 3]));
}

#[test]
fn delay_counts_as_a_mark_where_a_limit_is_set() {
    for (limit, penalised) in [(0.0, false), (2.0, true)] {
        let mut prime = build(PrimeConfig { delay_limit: limit, ..settled() }, [4, 0]);
        let path = next(&mut prime);
        prime.on_delay(Time::ZERO, path, Span(2 * 8_340_000));
        assert!(prime.penalties().iter().all(|&p| p == 0), "at the limit");
        prime.on_delay(Time::ZERO, path, Span(2 * 8_340_000 + 1));
        assert_eq!(prime.penalties().iter().any(|&p| p > 0), penalised);
    }
}

/// The rules, word by word: decrements every entry for every packet, and looks at every tuple.
struct Naive {
    penalties: [Vec<u32>; 2],
    weights: [[u32; 2]; 2],
    decay: u32,
}

impl Naive {
    fn charge(&mut self, (first, second): (u32, u32), marked: bool) {
        for (t, part) in [first, second].into_iter().enumerate() {
            let entry = &mut self.penalties[t][part as usize];
            match marked {
                true if *entry == 0 => *entry = self.weights[0][t],
                true => {}
                false => *entry = self.weights[1][t],
            }
        }
    }

    fn decay(&mut self) {
        for entry in self.penalties.iter_mut().flatten() {
            *entry = entry.saturating_sub(self.decay);
        }
    }

    fn sum(&self, (first, second): (u32, u32)) -> u32 {
        self.penalties[0][first as usize] + self.penalties[1][second as usize]
    }
}

proptest! {
    #[test]
    fn the_chosen_path_has_the_smallest_penalty_of_all(
        uplinks in (1u16..9, 1u16..6),
        decay in 0u32..4,
        steps in prop::collection::vec((any::<bool>(), 0usize..8, 0u8..4), 1..400),
    ) {
        let config = PrimeConfig { decay, penalty_marked: 1.5, penalty_trimmed: 4.0, ..settled() };
        let config = PrimeConfig { penalty_marked_tiers: 1.5, penalty_trimmed_tiers: 4.0, ..config };
        let mut prime = build(config, [uplinks.0, uplinks.1]);
        let weigh = |rounds: f64| [uplinks.0, uplinks.1].map(|n| if n > 1 { (rounds * f64::from(n) + 0.5) as u32 } else { 0 });
        let mut naive = Naive {
            penalties: [vec![0; usize::from(uplinks.0)], vec![0; usize::from(uplinks.1)]],
            weights: [weigh(1.5), weigh(4.0)],
            decay,
        };
        let mut sent = Vec::new();
        for (send, ago, kind) in steps {
            if send || sent.is_empty() {
                let path = next(&mut prime);
                let chosen = tuple(path, uplinks.0);
                let least = (0..u32::from(uplinks.0))
                    .flat_map(|i| (0..u32::from(uplinks.1)).map(move |j| (i, j)))
                    .map(|t| naive.sum(t))
                    .min()
                    .expect("a tuple");
                prop_assert_eq!(naive.sum(chosen), least);
                naive.decay();
                sent.push(path);
            } else {
                let path = sent[sent.len() - 1 - ago % sent.len()];
                let feedback = [PathFeedback::Good, PathFeedback::Marked, PathFeedback::Trimmed, PathFeedback::Lost][usize::from(kind)];
                prime.on_feedback(Time::ZERO, path, feedback);
                if kind > 0 {
                    naive.charge(tuple(path, uplinks.0), kind == 1);
                }
            }
            let shown: Vec<u32> = (0..2).filter(|&t| naive.penalties[t].len() > 1).flat_map(|t| naive.penalties[t].clone()).collect();
            prop_assert_eq!(prime.penalties(), shown);
        }
    }

    #[test]
    fn paths_that_a_peer_makes_up_do_no_harm(paths in prop::collection::vec(any::<u32>(), 1..100), ports in 1u8..9) {
        let environment = Environment { ports, ..environment([6, 3]) };
        let mut prime = PathConfig::Prime(settled()).build(&environment, Random::new(1, StreamKind::Connection, 1));
        for path in paths {
            prime.on_feedback(Time::ZERO, PathId(path), PathFeedback::Trimmed);
            let given = prime.next(Time::ZERO, Ports::first(ports)).expect("a path");
            prop_assert!(given.port() < ports);
            prop_assert!(given.entropy() & 7 < 6 && given.entropy() >> 3 < 3);
        }
    }
}

#[test]
fn every_port_has_its_own_odometer() {
    let environment = Environment { ports: 4, ..environment([8, 0]) };
    let mut prime = PathConfig::Prime(settled()).build(&environment, Random::new(1, StreamKind::Connection, 1));
    let cycle: BTreeSet<(u8, u32)> = (0..32)
        .map(|_| prime.next(Time::ZERO, Ports::first(4)).expect("a path"))
        .map(|path| (path.port(), path.entropy()))
        .collect();
    assert_eq!(cycle.len(), 32, "four ports times eight uplinks");
}
