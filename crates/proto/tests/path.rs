//! Path selectors: each against a readable model, and their guarantees.
//!
//! The models are for one port, where a selector's choice does not depend on idle ports; for several ports there are
//! properties.

use super::operations::PathOperation;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandway_proto::path::{
    BitmapConfig, MixedConfig, ObliviousConfig, PathConfig, PathFeedback, PathSelector, RepsConfig,
};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{Bytes, Environment, PathId, Ports, Rate, Span, Time};

fn environment(ports: u8, trimming: bool) -> Environment {
    Environment {
        rate: Rate::from_gbps(400),
        ports,
        base_rtt: Span(8_340_000),
        packet: Bytes(4160),
        trimming,
        uplinks: [16, 0],
        paths_in_order: 0,
        queue: Bytes(417_000),
        packet_life: Span::from_ms(10),
    }
}

fn stream() -> Random {
    Random::new(11, StreamKind::Connection, 5)
}

fn every_config() -> Vec<PathConfig> {
    let mut all: Vec<PathConfig> =
        PathConfig::NAMES.iter().map(|name| PathConfig::named(name).expect("a name")).collect();
    all.push(PathConfig::Oblivious(ObliviousConfig { random: true, ..ObliviousConfig::default() }));
    all.push(PathConfig::Bitmap(BitmapConfig { original: true, ..BitmapConfig::default() }));
    all.push(PathConfig::Bitmap(BitmapConfig { entropies: 256, ..BitmapConfig::default() }));
    all.push(PathConfig::Reps(RepsConfig {
        entropies: 65_536,
        lifetime: 4,
        explore_bdp: 0.1,
        ..RepsConfig::default()
    }));
    all
}

const ONE: Ports = Ports::first(1);

/// An operation with mostly valid values; there are `ports` ports.
fn operation(ports: u8) -> impl Strategy<Value = PathOperation> {
    let feedback = prop_oneof![
        6 => Just(PathFeedback::Good),
        4 => Just(PathFeedback::Marked),
        2 => Just(PathFeedback::Trimmed),
        1 => Just(PathFeedback::Lost),
        1 => Just(PathFeedback::TimedOut),
        1 => Just(PathFeedback::Shunned),
    ];
    let mask = Ports::first(ports).data;
    prop_oneof![
        6 => (1..=mask).prop_map(PathOperation::Next),
        4 => (0u8..40, feedback).prop_map(|(ago, feedback)| PathOperation::Feedback(ago, feedback)),
        1 => (0u64..600_000_000).prop_map(PathOperation::Wait),
    ]
}

fn operations_on(ports: u8) -> impl Strategy<Value = Vec<PathOperation>> {
    prop::collection::vec(operation(ports), 1..600)
}

/// The order of an oblivious spray of `n` paths on one port, for `draws` draws: it ignores feedback.
fn rounds(n: u32, draws: usize) -> Vec<PathId> {
    let config = ObliviousConfig { entropies: n, ..ObliviousConfig::default() };
    let mut spray = PathConfig::Oblivious(config).build(&environment(1, true), stream());
    (0..draws).map(|_| spray.next(Time::ZERO, ONE).expect("a path")).collect()
}

/// Turns in a given order, without those of paths with penalties.
struct NaiveBitmap {
    order: VecDeque<PathId>,
    penalties: BTreeMap<PathId, u32>,
    paths: usize,
    original: bool,
}

impl NaiveBitmap {
    fn next(&mut self) -> PathId {
        let mut paid = false;
        let mut passed = 0;
        loop {
            let path = self.order.pop_front().expect("a long enough order");
            let penalty = self.penalties.entry(path).or_default();
            if *penalty == 0 || passed == self.paths {
                if *penalty > 0 && self.original {
                    *penalty = 0;
                }
                return path;
            }
            if self.original {
                *penalty = 0;
            } else if !paid {
                *penalty -= 1;
                paid = true;
            }
            passed += 1;
        }
    }

    fn feedback(&mut self, path: PathId, feedback: PathFeedback) {
        let (turns, most) = match (feedback, self.original) {
            (PathFeedback::Good | PathFeedback::Lost | PathFeedback::Shunned, _) => (0, 15),
            (_, true) => (1, 1),
            (PathFeedback::Marked, _) => (1, 15),
            (PathFeedback::Trimmed, _) => (4, 15),
            (PathFeedback::TimedOut, _) => (15, 15),
        };
        let penalty = self.penalties.entry(path).or_default();
        *penalty = (*penalty + turns).min(most).max(*penalty);
    }
}

/// At most eight good paths, oldest first; a path that is used up stays known until it is pushed out.
#[derive(Default)]
struct NaiveRing {
    entries: VecDeque<(PathId, u32)>,
    reused: usize,
}

impl NaiveRing {
    fn store(&mut self, path: PathId, uses: u32) {
        if self.entries.len() == 8 {
            self.entries.pop_front();
        }
        self.entries.push_back((path, uses));
    }

    fn take(&mut self) -> Option<PathId> {
        let (path, uses) = self.entries.iter_mut().find(|(_, uses)| *uses > 0)?;
        *uses -= 1;
        Some(*path)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_bitmap_is_turns_with_penalties_left_out(
        operations in operations_on(1),
        exponent in 2u32..=8,
        original in any::<bool>(),
    ) {
        let n = 1 << exponent;
        let config = BitmapConfig { entropies: n, original, ..BitmapConfig::default() };
        let mut spray = PathConfig::Bitmap(config).build(&environment(1, true), stream());
        let mut naive = NaiveBitmap {
            order: rounds(n, 600 * (n as usize + 1)).into(),
            penalties: BTreeMap::new(),
            paths: n as usize,
            original,
        };
        let (mut now, mut drawn) = (Time::ZERO, Vec::new());
        for operation in operations {
            if let PathOperation::Feedback(ago, feedback) = operation
                && let Some(&path) = drawn.iter().rev().nth(usize::from(ago))
            {
                naive.feedback(path, feedback);
            }
            if let Some(path) = operation.apply(&mut spray, &mut now, &mut drawn) {
                prop_assert_eq!(path, Some(naive.next()));
            }
        }
    }

    #[test]
    fn mixed_takes_a_recycled_path_first_and_the_bitmaps_turn_otherwise(operations in operations_on(1), lifetime in 1u32..4) {
        let config = MixedConfig { lifetime, ..MixedConfig::default() };
        let mut mixed = PathConfig::Mixed(config).build(&environment(1, true), stream());
        let mut bitmap = NaiveBitmap {
            order: rounds(64, 600 * 65).into(),
            penalties: BTreeMap::new(),
            paths: 64,
            original: false,
        };
        let mut ring = NaiveRing::default();
        let (mut now, mut drawn) = (Time::ZERO, Vec::new());
        for operation in operations {
            if let PathOperation::Feedback(ago, feedback) = operation
                && let Some(&path) = drawn.iter().rev().nth(usize::from(ago))
            {
                bitmap.feedback(path, feedback);
                if feedback == PathFeedback::Good {
                    ring.store(path, lifetime);
                }
            }
            if let Some(path) = operation.apply(&mut mixed, &mut now, &mut drawn) {
                prop_assert_eq!(path, Some(ring.take().unwrap_or_else(|| bitmap.next())));
            }
        }
    }

    #[test]
    fn reps_recycles_explores_and_freezes_as_its_model(
        operations in operations_on(1),
        lifetime in 1u32..4,
        explore in 0u32..30,
        trimming in any::<bool>(),
    ) {
        let environment = environment(1, trimming);
        let bdp = environment.bdp().0 as f64 / environment.packet.0 as f64;
        let freeze = Span::from_us(800);
        let config = RepsConfig { lifetime, freeze, explore_bdp: (f64::from(explore) + 0.5) / bdp, ..RepsConfig::default() };
        let mut reps = PathConfig::Reps(config).build(&environment, stream());
        let mut ring = NaiveRing::default();
        let mut to_explore = explore;
        let mut frozen_until: Option<Time> = None;
        let (mut now, mut drawn): (Time, Vec<PathId>) = (Time::ZERO, Vec::new());
        for operation in operations {
            let mut asked = matches!(operation, PathOperation::Next(_));
            if let PathOperation::Feedback(ago, feedback) = operation
                && let Some(&path) = drawn.iter().rev().nth(usize::from(ago))
            {
                asked = true;
                if feedback == PathFeedback::Good {
                    // The eight slots stay put while the oldest is replaced, so reuse goes on from the same slot.
                    if ring.entries.len() == 8 {
                        ring.reused = (ring.reused + 7) % 8;
                    }
                    ring.store(path, lifetime);
                }
                if feedback == PathFeedback::TimedOut && trimming && frozen_until.is_none() && to_explore == 0 {
                    frozen_until = Some(now + freeze);
                }
            }
            if asked && frozen_until.is_some_and(|until| now > until) {
                frozen_until = None;
                ring = NaiveRing::default();
                to_explore = explore;
            }
            let given = operation.apply(&mut reps, &mut now, &mut drawn);
            let Some(path) = given else { continue };
            let path = path.expect("a path");
            if to_explore > 0 {
                to_explore -= 1;
            } else if frozen_until.is_some() {
                if !ring.entries.is_empty() {
                    let slot = ring.reused % ring.entries.len();
                    ring.reused = (slot + 1) % ring.entries.len();
                    ring.entries[slot].1 = 0;
                    prop_assert_eq!(path, ring.entries[slot].0);
                }
            } else if let Some(known) = ring.take() {
                prop_assert_eq!(path, known);
            }
        }
    }

    #[test]
    fn paths_start_at_a_free_port_for_any_states_that_a_peer_invents(
        bytes in prop::collection::vec(any::<[u8; 6]>(), 1..300),
        ports in 1u8..=40,
    ) {
        let environment = environment(ports, true);
        let ours = Ports::first(ports.min(32)).data;
        for config in every_config() {
            let mut selector = config.build(&environment, stream());
            let (mut now, mut drawn) = (Time::ZERO, Vec::new());
            for &bytes in &bytes {
                let operation = PathOperation::from_bytes(bytes);
                let given = operation.apply(&mut selector, &mut now, &mut drawn);
                let (Some(given), PathOperation::Next(free)) = (given, operation) else { continue };
                if let Some(path) = given {
                    prop_assert!(free & ours & 1 << path.port() != 0, "{}: {path:?} is not free", config.name());
                    let entropy = path.entropy() & !PathId::ORDERED;
                    prop_assert!(entropy < 1 << 16, "{}: {path:?} does not fit the wire", config.name());
                } else {
                    prop_assert!(free & ours == 0 || config.name() == "single", "{}: none", config.name());
                }
            }
        }
    }

    #[test]
    fn on_several_ports_penalties_stay_with_their_paths(
        operations in operations_on(4),
        entropies in 4u32..=256,
    ) {
        // While there are only a few penalties, a path with a penalty is never drawn, because every port has others.
        let config = BitmapConfig { entropies: entropies.max(64), ..BitmapConfig::default() };
        let mut spray = PathConfig::Bitmap(config).build(&environment(4, true), stream());
        let (mut now, mut drawn): (Time, Vec<PathId>) = (Time::ZERO, Vec::new());
        let mut fresh: BTreeMap<PathId, usize> = BTreeMap::new();
        let mut draws = 0;
        for operation in operations.into_iter().take(60) {
            if let PathOperation::Feedback(ago, PathFeedback::TimedOut) = operation
                && let Some(&path) = drawn.iter().rev().nth(usize::from(ago))
            {
                fresh.insert(path, draws);
            }
            if let Some(path) = operation.apply(&mut spray, &mut now, &mut drawn) {
                draws += 1;
                let path = path.expect("a free port");
                // Fifteen penalty turns take at least fifteen packets.
                if let Some(&at) = fresh.get(&path) {
                    prop_assert!(draws - at > 15, "{path:?} drawn {} draws after its timeout", draws - at);
                }
            }
        }
    }
}

#[test]
fn a_round_visits_every_path_once_on_every_port() {
    for (ports, entropies) in
        [(1, 64), (1, 256), (2, 64), (4, 128), (8, 64), (3, 64), (5, 8), (7, 256), (32, 32), (32, 256)]
    {
        let config = ObliviousConfig { entropies, ..ObliviousConfig::default() };
        let mut spray = PathConfig::Oblivious(config).build(&environment(ports, true), stream());
        let mut orders = BTreeSet::new();
        for port in 0..ports {
            let count = (u32::from(port)..entropies).step_by(usize::from(ports)).count();
            for _ in 0..4 {
                let free = Ports { data: 1 << port, control: 0 };
                let round: Vec<PathId> = (0..count).map(|_| spray.next(Time::ZERO, free).expect("a path")).collect();
                assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), count, "{ports} ports, {entropies} paths");
                orders.insert(round);
            }
        }
        assert!(orders.len() > usize::from(ports) || entropies / u32::from(ports) < 4, "each round has its own order");
    }
}

#[test]
fn free_ports_take_turns() {
    let mut spray = PathConfig::named("oblivious").expect("a name").build(&environment(4, true), stream());
    let ports = |spray: &mut dyn FnMut() -> u8| (0..8).map(|_| spray()).collect::<Vec<_>>();
    let all = ports(&mut || spray.next(Time::ZERO, Ports::first(4)).expect("a path").port());
    assert_eq!(all, [0, 1, 2, 3, 0, 1, 2, 3]);
    let some = ports(&mut || spray.next(Time::ZERO, Ports { data: 0b1010, control: 0 }).expect("a path").port());
    assert_eq!(some, [1, 3, 1, 3, 1, 3, 1, 3]);
}

#[test]
fn a_random_spray_is_even() {
    for (ports, free) in [(1, 1), (4, 0b1111), (3, 0b111), (4, 0b0100)] {
        let config = ObliviousConfig { random: true, ..ObliviousConfig::default() };
        let mut spray = PathConfig::Oblivious(config).build(&environment(ports, true), stream());
        let mut counts: BTreeMap<PathId, u32> = BTreeMap::new();
        let paths = (0..64).filter(|i| free & 1 << (i % u32::from(ports)) != 0).count() as u32;
        for _ in 0..paths * 1000 {
            *counts.entry(spray.next(Time::ZERO, Ports { data: free, control: 0 }).expect("a path")).or_default() += 1;
        }
        assert_eq!(counts.len() as u32, paths);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{ports} ports: {counts:?}");
    }
}

#[test]
fn a_single_path_never_changes_and_waits_for_its_port() {
    let mut single = PathConfig::named("single").expect("a name").build(&environment(4, true), stream());
    let path = single.next(Time::ZERO, Ports::first(4)).expect("a path");
    single.on_feedback(Time::ZERO, path, PathFeedback::TimedOut);
    for port in 0..4 {
        let given = single.next(Time::ZERO, Ports { data: 1 << port, control: 0 });
        assert_eq!(given, (port == path.port()).then_some(path));
    }
}

#[test]
fn a_bitmap_with_penalties_everywhere_still_sends() {
    for original in [false, true] {
        let config = BitmapConfig { original, ..BitmapConfig::default() };
        let mut spray = PathConfig::Bitmap(config).build(&environment(1, true), stream());
        let paths: BTreeSet<PathId> = (0..64).map(|_| spray.next(Time::ZERO, ONE).expect("a path")).collect();
        for &path in &paths {
            spray.on_feedback(Time::ZERO, path, PathFeedback::TimedOut);
        }
        for _ in 0..1000 {
            assert!(paths.contains(&spray.next(Time::ZERO, ONE).expect("a path")));
        }
    }
}

/// The share of one path, in thousandths of its fair share, if each of its packets comes back with `feedback`.
fn share(config: BitmapConfig, feedback: PathFeedback) -> u32 {
    let mut spray = PathConfig::Bitmap(config).build(&environment(1, true), stream());
    let bad = spray.next(Time::ZERO, ONE).expect("a path");
    let mut count = 0;
    for _ in 0..64 * 1000 {
        let path = spray.next(Time::ZERO, ONE).expect("a path");
        if path == bad {
            count += 1;
            spray.on_feedback(Time::ZERO, path, feedback);
        }
    }
    count
}

#[test]
fn a_path_that_is_always_bad_gets_the_share_its_penalty_leaves() {
    let default = BitmapConfig::default();
    let original = BitmapConfig { original: true, ..default };
    // One turn of two, of five and of sixteen; a skipped turn makes rounds a little shorter.
    assert!((495..=515).contains(&share(original, PathFeedback::Marked)), "{}", share(original, PathFeedback::Marked));
    assert!((495..=515).contains(&share(original, PathFeedback::TimedOut)));
    assert!((495..=515).contains(&share(default, PathFeedback::Marked)));
    assert!((198..=206).contains(&share(default, PathFeedback::Trimmed)));
    assert!((61..=66).contains(&share(default, PathFeedback::TimedOut)));
    assert!((990..=1010).contains(&share(BitmapConfig { penalty_timed_out: 0, ..default }, PathFeedback::TimedOut)));
}

/// REPS past its exploration, with every packet acknowledged at once as `feedback` says.
fn explored(config: RepsConfig, feedback: impl Fn(PathId) -> PathFeedback) -> strandway_proto::path::AnyPath {
    let mut reps = PathConfig::Reps(config).build(&environment(1, true), stream());
    for _ in 0..200 {
        let path = reps.next(Time::ZERO, ONE).expect("a path");
        reps.on_feedback(Time::ZERO, path, feedback(path));
    }
    reps
}

#[test]
fn reps_leaves_congested_paths() {
    let good = |path: PathId| path.entropy().is_multiple_of(4);
    let feedback = |path| if good(path) { PathFeedback::Good } else { PathFeedback::Marked };
    let mut reps = explored(RepsConfig::default(), feedback);
    let mut bad = 0;
    for _ in 0..1000 {
        let path = reps.next(Time::ZERO, ONE).expect("a path");
        reps.on_feedback(Time::ZERO, path, feedback(path));
        bad += u32::from(!good(path));
    }
    assert_eq!(bad, 0, "good paths are recycled for ever while each packet is acknowledged");
}

#[test]
fn reps_when_frozen_uses_known_good_paths_only_and_explores_when_it_thaws() {
    let good = |path: PathId| path.entropy() % 8 == 3;
    let feedback = |path| if good(path) { PathFeedback::Good } else { PathFeedback::Marked };
    let mut reps = explored(RepsConfig::default(), feedback);
    let now = Time::ZERO + Span::from_us(10);
    reps.on_feedback(now, PathId::new(0, 0), PathFeedback::TimedOut);
    let frozen: BTreeSet<PathId> = (0..1000).map(|_| reps.next(now, ONE).expect("a path")).collect();
    assert!(frozen.iter().all(|&path| good(path)), "{frozen:?}");
    // After 1 ms it sends a BDP of packets at random: about seven of eight take a path that is not in the ring.
    let later = now + Span::from_us(1001);
    let strangers = (0..100).filter(|_| !good(reps.next(later, ONE).expect("a path"))).count();
    assert!((75..100).contains(&strangers), "{strangers}");
}

#[test]
fn reps_does_not_freeze_where_switches_drop() {
    let mut reps = PathConfig::Reps(RepsConfig { explore_bdp: 0.0, ..RepsConfig::default() })
        .build(&environment(1, false), stream());
    let first = reps.next(Time::ZERO, ONE).expect("a path");
    reps.on_feedback(Time::ZERO, first, PathFeedback::Good);
    reps.on_feedback(Time::ZERO, first, PathFeedback::TimedOut);
    let after: BTreeSet<PathId> = (0..100).map(|_| reps.next(Time::ZERO, ONE).expect("a path")).collect();
    assert!(after.len() > 20, "a frozen selector would know one path only");
}

#[test]
fn connections_give_hashes_different_input() {
    for config in every_config() {
        // The values of PRIME and MRC are not hash inputs.
        if matches!(
            config,
            PathConfig::Reps(RepsConfig { entropies: 65_536, .. }) | PathConfig::Prime(_) | PathConfig::Mrc(_)
        ) {
            continue;
        }
        let entropies: BTreeSet<u32> = (0..256)
            .map(|id| {
                let random = Random::new(1, StreamKind::Connection, id);
                let mut selector = config.build(&environment(1, true), random);
                selector.next(Time::ZERO, ONE).expect("a path").entropy() >> 8
            })
            .collect();
        assert!(entropies.len() > 130, "{}: {}", config.name(), entropies.len());
    }
}
