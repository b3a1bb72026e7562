//! Broadcast and all-gather by multicast over a network that loses, delays and repeats packets. Every byte is right, or
//! every surviving rank names the dead rank, and no rank waits for ever. Multicast sheet, section 15.

mod net;

use net::{Disturbance, Ended, Test, operation, run, with_parity};
use proptest::prelude::*;
use strandway_collective::multicast::{Barrier, Multicast, MulticastMessage, Order, Outcome, Recovery, StartBarriers};
use strandway_proto::units::Time;

fn assert_closed(ended: &Ended, what: &str) {
    assert!(ended.quiet, "{what}: it does not come to an end");
    assert!(ended.outcomes.iter().flatten().all(|o| *o == Outcome::Closed), "{what}: {:?}", ended.outcomes);
    assert!(ended.wrong.is_empty(), "{what}: wrong bytes at {:?}", ended.wrong);
}

/// One barrier or two, depending on the seed.
fn opening(seed: u64) -> StartBarriers {
    if seed.is_multiple_of(2) { StartBarriers::OneBarrier } else { StartBarriers::TwoBarriers }
}

/// Three copies of an operation, which run one after the other.
fn three(op: &Multicast) -> Vec<Multicast> {
    (0..3).map(|task| Multicast { task, ..op.clone() }).collect()
}

#[test]
fn without_loss_nothing_is_fetched_whatever_the_ranks_and_chains() {
    for ranks in 1..=16 {
        for chains in 1..=ranks {
            for recovery in [Recovery::FAST, Recovery::RING] {
                for pace in [Some(0.95), None] {
                    let mut op = operation(ranks, None, 6_007, chains, recovery);
                    op.pace = pace;
                    let what = format!("{ranks} ranks, {chains} chains, pace {pace:?}");
                    let ended = run(&three(&op), Disturbance::default(), 1);
                    assert_closed(&ended, &what);
                    let c = ended.counts;
                    assert_eq!((c.fetches, c.repaired, c.again, c.duplicates, c.unready), (0, 0, 0, 0, 0), "{what}");
                }
            }
        }
        for root in [0, ranks - 1] {
            let ended = run(&three(&operation(ranks, Some(root), 3_001, 1, Recovery::FAST)), Disturbance::default(), 2);
            assert_closed(&ended, "broadcast");
            assert_eq!(ended.counts.fetches, 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_whatever_is_lost(
        ranks in 1u32..8, chains in 1u32..4, bytes in 0u64..3_000, loss in 0.0f64..0.2, near in 0.0f64..0.1, late in 0.0f64..0.1,
        broadcast: bool, ring: bool, trees in 0u32..3, silent in 0u32..3, since in 0u64..3_000_000_000, seed: u64,
    ) {
        let recovery = if ring { Recovery::RING } else { Recovery::FAST };
        let root = broadcast.then_some(seed as u32 % ranks);
        let silent = Some(((0, silent), Time(since))).filter(|_| trees == 2);
        let trouble = Disturbance { loss, near_root: near, late, silent, ..Disturbance::default() };
        let op = Multicast { tree_count: trees, opening: opening(seed), ..operation(ranks, root, bytes, chains, recovery) };
        let ended = run(&three(&op), trouble, seed);
        assert_closed(&ended, "a bad network");
        prop_assert_eq!(ended.counts.unready, 0);
    }

    #[test]
    fn every_byte_arrives_or_is_rebuilt_whatever_is_lost(
        ranks in 1u32..8, chains in 1u32..4, bytes in 0u64..6_000, loss in 0.0f64..0.2, near in 0.0f64..0.1, late in 0.0f64..0.1,
        broadcast: bool, ring: bool, k in 1usize..20, m in 1usize..6, seed: u64,
    ) {
        let recovery = if ring { Recovery::RING } else { Recovery::FAST };
        let root = broadcast.then_some(seed as u32 % ranks);
        let trouble = Disturbance { loss, near_root: near, late, ..Disturbance::default() };
        let op = Multicast { opening: opening(seed), ..with_parity(operation(ranks, root, bytes, chains, recovery), k, m) };
        let ended = run(&three(&op), trouble, seed);
        assert_closed(&ended, "a bad network");
        prop_assert_eq!(ended.counts.unready, 0);
    }

    #[test]
    fn without_a_common_plane_every_byte_goes_from_rank_to_rank(
        ranks in 2u32..8, bytes in 0u64..6_000, loss in 0.0f64..0.15, late in 0.0f64..0.1, broadcast: bool, ring: bool, parity: bool,
        lacks in prop::collection::vec(0u32..3, 8), seed: u64,
    ) {
        // Each rank lacks one of three planes: any two ranks have a common plane.
        let ports: Vec<u32> = lacks[..ranks as usize].iter().map(|lacks| 0b111 & !(1 << lacks)).collect();
        let common = ports.iter().fold(0b111, |all, ports| all & ports);
        let recovery = if ring { Recovery::RING } else { Recovery::FAST };
        let root = broadcast.then_some(seed as u32 % ranks);
        let op = Multicast { planes: 0b111, ..operation(ranks, root, bytes, 2, recovery) };
        let op = if parity { with_parity(op, 8, 2) } else { op };
        let ended = run(&three(&op), Disturbance { loss, late, ports, ..Disturbance::default() }, seed);
        assert_closed(&ended, "planes that differ");
        prop_assert_eq!(ended.grouped > 0, common != 0 && bytes > 0);
    }

    #[test]
    fn all_survivors_finish_or_name_the_dead(
        ranks in 2u32..8, chains in 1u32..4, bytes in 0u64..3_000, loss in 0.0f64..0.1, dead in 0u32..8, at in 0u64..300_000_000, broadcast: bool,
        seed: u64,
    ) {
        let dead = dead % ranks;
        let root = broadcast.then_some(seed as u32 % ranks);
        let trouble = Disturbance { loss, near_root: loss / 2.0, death: Some((dead, Time(at))), ..Disturbance::default() };
        let ended = run(&[Multicast { opening: opening(seed), ..operation(ranks, root, bytes, chains, Recovery::FAST) }], trouble, seed);
        prop_assert!(ended.quiet, "nobody waits for ever");
        for (rank, outcome) in ended.outcomes[0].iter().enumerate().filter(|(rank, _)| *rank as u32 != dead) {
            let fine = matches!(outcome, Outcome::Closed) || *outcome == Outcome::Aborted { dead };
            prop_assert!(fine, "rank {} ends with {:?}, {} being dead", rank, outcome, dead);
        }
        prop_assert!(ended.wrong.iter().all(|w| w.1 == dead), "{:?}", ended.wrong);
    }
}

#[test]
fn a_chunk_that_nobody_got_is_cast_again_once() {
    let op = operation(8, Some(3), 4_000, 1, Recovery::FAST);
    let ended = run(std::slice::from_ref(&op), Disturbance { lost_runs: vec![(7, 1)], ..Disturbance::default() }, 4);
    assert_closed(&ended, "one chunk");
    // The root's neighbour gets it alone; the second rank that asks makes the root cast it to all.
    assert_eq!(ended.counts.again, 1, "{:?}", ended.counts);
    assert!(ended.counts.repaired <= 3, "{:?}", ended.counts);
}

#[test]
fn chunks_that_parity_rebuilds_are_not_fetched() {
    // 40 groups of 8 chunks. Each chunk is lost near the root, for all receivers at once, with probability 3 %.
    let op = operation(6, Some(0), 320 * 32, 1, Recovery::FAST);
    let near = |near_root| Disturbance { near_root, ..Disturbance::default() };
    let ended = run(std::slice::from_ref(&op), near(0.03), 8);
    assert_closed(&ended, "without parity");
    assert!(ended.counts.fetches > 0 && ended.counts.rebuilt == 0, "{:?}", ended.counts);
    let ended = run(&[with_parity(op.clone(), 8, 4)], near(0.03), 8);
    assert_closed(&ended, "with parity");
    assert_eq!((ended.counts.fetches, ended.counts.repaired, ended.counts.again), (0, 0, 0), "{:?}", ended.counts);
    assert!(ended.counts.rebuilt >= 5, "{:?}", ended.counts);
    // If a group loses more chunks than parity can replace, exactly the difference is fetched.
    let losses = Disturbance { lost_runs: vec![(16, 7)], ..Disturbance::default() };
    let ended = run(&[with_parity(op, 8, 4)], losses, 8);
    assert_closed(&ended, "seven of a group");
    let c = ended.counts;
    assert!(c.again == 3 && c.repaired <= 3, "three chunks, each to the first that asks and then to all: {c:?}");
    assert_eq!(c.rebuilt, 5 * 4, "{c:?}");
}

#[test]
fn without_loss_nothing_is_rebuilt_and_parity_is_all_that_more_is_sent() {
    for ranks in [1, 2, 3, 7] {
        for chains in 1..=ranks {
            for (k, m) in [(1, 1), (4, 1), (32, 4), (200, 56)] {
                let op = with_parity(operation(ranks, None, 6_007, chains, Recovery::FAST), k, m);
                let ended = run(&three(&op), Disturbance::default(), 1);
                assert_closed(&ended, "no loss");
                let c = ended.counts;
                assert_eq!(
                    (c.fetches, c.repaired, c.again, c.rebuilt),
                    (0, 0, 0, 0),
                    "{ranks} ranks, {chains} chains, {k}+{m}"
                );
            }
        }
    }
}

#[test]
fn lost_tokens_barriers_and_last_words_are_repeated() {
    type Kind = (&'static str, Test, Recovery);
    let kinds: [Kind; 6] = [
        ("token", |w| *w == MulticastMessage::Token, Recovery::FAST),
        ("first barrier", |w| matches!(w, MulticastMessage::Barrier { barrier: Barrier::Here, .. }), Recovery::FAST),
        ("second barrier", |w| matches!(w, MulticastMessage::Barrier { barrier: Barrier::Armed, .. }), Recovery::FAST),
        ("close", |w| matches!(w, MulticastMessage::Barrier { barrier: Barrier::Close, .. }), Recovery::FAST),
        ("fin", |w| *w == MulticastMessage::Fin, Recovery::RING),
        ("acknowledgement", |w| matches!(w, MulticastMessage::Ack(_)), Recovery::FAST),
    ];
    for (name, test, recovery) in kinds {
        for lost in [1, 10] {
            let trouble = Disturbance { lost_controls: Some((test, lost)), ..Disturbance::default() };
            let ended = run(&three(&operation(5, None, 2_000, 2, recovery)), trouble, 5);
            assert_closed(&ended, name);
        }
    }
}

/// Missing shares: bit `i` of `set` stands for the i-th pair of a rank and another rank's share.
fn missing(ranks: u32, set: u32) -> Vec<(u32, u32)> {
    let pairs = (0..ranks).flat_map(|q| (0..ranks).filter(move |s| *s != q).map(move |s| (q, s)));
    pairs.zip(0..).filter(|(_, bit)| set >> bit & 1 == 1).map(|(pair, _)| pair).collect()
}

#[test]
fn no_set_of_missing_shares_deadlocks_but_farthest_first_does() {
    let blocking = |order| Recovery { order, ..Recovery::RING };
    for (ranks, farthest) in [(2, 0), (3, 1), (4, 257)] {
        let sets = 1u32 << (ranks * (ranks - 1));
        let mut deadlocks = [0; 3];
        for set in 0..sets {
            // Runs that end do so within 0.4 ms.
            let until = Some(Time(1_500_000_000));
            let trouble = Disturbance { missing: missing(ranks, set), until, ..Disturbance::default() };
            for (n, order) in [Order::Ascending, Order::NearestFirst, Order::FarthestFirst].into_iter().enumerate() {
                let op = operation(ranks, None, 32 * u64::from(ranks), ranks, blocking(order));
                let ended = run(std::slice::from_ref(&op), trouble.clone(), 6);
                deadlocks[n] += u32::from(ended.outcomes[0].iter().any(|o| *o != Outcome::Closed));
            }
        }
        assert_eq!(deadlocks, [0, 0, farthest], "{ranks} ranks");
    }
}

#[test]
fn a_tree_that_falls_silent_is_left_out_and_all_bytes_arrive() {
    // 4,000 chunks over two planes of four trees in 300 us: a tree has 500 of them.
    for (trees, left_out) in [(4, true), (0, false)] {
        for silent in [(0, 3), (1, 0)] {
            for loss in [0.0, 0.1] {
                for since in [0, 60_000_000] {
                    let op = Multicast {
                        planes: 0b11,
                        tree_count: trees,
                        ..operation(4, Some(1), 4_000 * 32, 1, Recovery::FAST)
                    };
                    let silent = if trees == 0 { (silent.0, 0) } else { silent };
                    let trouble = Disturbance { silent: Some((silent, Time(since))), loss, ..Disturbance::default() };
                    let ended = run(&[op], trouble, 10);
                    assert_closed(&ended, "a silent tree");
                    let c = ended.counts;
                    assert_eq!(c.silent > 0, left_out, "{c:?}");
                    if left_out {
                        // Three stretches of 256 chunks, and the chunks that leave before the root learns of it.
                        assert!(ended.swallowed < 150, "{silent:?} since {since}: {} swallowed", ended.swallowed);
                    } else {
                        assert!(ended.swallowed > 350, "{} swallowed", ended.swallowed);
                    }
                }
            }
        }
    }
    let op = Multicast { planes: 0b11, tree_count: 4, ..operation(4, Some(1), 4_000 * 32, 1, Recovery::FAST) };
    let ended = run(&[op], Disturbance { loss: 0.1, ..Disturbance::default() }, 10);
    assert_eq!((ended.counts.silent, ended.wrong.len()), (0, 0), "losses alone silence nothing");
}

#[test]
fn a_buffer_of_another_size_is_an_error_at_once_that_names_its_rank() {
    for ranks in [2, 3, 7, 8] {
        for odd in 0..ranks {
            for loss in [0.0, 0.1] {
                let op = operation(ranks, None, 3_000, 2, Recovery::FAST);
                let other = operation(ranks, None, 3_001, 2, Recovery::FAST);
                let trouble = Disturbance { odd: Some((odd, other)), loss, ..Disturbance::default() };
                let ended = run(std::slice::from_ref(&op), trouble, 9);
                assert!(ended.quiet, "{ranks} ranks, {odd} is odd");
                for outcome in &ended.outcomes[0] {
                    let named = matches!(outcome, Outcome::Differs { ranks } if ranks.contains(&odd));
                    assert!(named, "{ranks} ranks, {odd} is odd: {outcome:?}");
                }
                assert_eq!(ended.counts.unready, 0, "nothing was sent");
            }
        }
    }
}

#[test]
fn a_neighbours_word_does_not_protect_buffers_from_direct_fetches() {
    let wrong = |close: bool| {
        let recovery = Recovery { close, ..Recovery::FAST };
        let runs = (0..100).map(|seed| {
            let trouble = Disturbance { loss: 0.15, near_root: 0.07, ..Disturbance::default() };
            run(&[operation(7, None, 3_000, 2, recovery)], trouble, seed)
        });
        runs.filter(|ended| !ended.wrong.is_empty()).count()
    };
    assert_eq!(wrong(true), 0);
    assert!(wrong(false) > 5, "only {} runs of 100 read a buffer that its owner had got back", wrong(false));
}

#[test]
fn without_barriers_chunks_come_before_slow_ranks_are_ready() {
    let all = [(StartBarriers::TwoBarriers, false), (StartBarriers::OneBarrier, false), (StartBarriers::AtOnce, true)];
    for (opening, expected) in all {
        let mut op = operation(5, Some(0), 2_000, 1, Recovery::FAST);
        op.opening = opening;
        op.starts[3] = Time(50_000_000);
        let ended = run(&[op], Disturbance::default(), 7);
        assert_closed(&ended, "a slow rank");
        assert_eq!(ended.counts.unready > 0, expected);
    }
}
