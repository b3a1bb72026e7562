//! The paths that are used, the paths that are left out, and the time when they come back.

use super::pair_support::{Post, RTT, Sent, check};
use super::{BASE, build, lone, planes, states};
use proptest::prelude::*;
use std::collections::BTreeSet;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::path::{MrcConfig, PathConfig, PathFeedback, PathManager, PathProbe, PathSelector};
use strandway_proto::{ConnectionId, HostId, Message, MessageId, Packet, PathId, Ports, Profile, Time};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn planes_carry_the_same_load_whatever_becomes_of_single_paths(
        ports in 1u8..9,
        losses in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let config = MrcConfig { active_min: 0.0, reverse: false, ..MrcConfig::default() };
        let mut selector = build(config, ports, 32);
        let paths: Vec<PathId> = states(&selector).into_keys().collect();
        for at in losses {
            selector.on_feedback(Time::ZERO, paths[at.index(paths.len())], PathFeedback::Lost);
        }
        let alive = selector.planes().iter().filter(|p| p.good > 0).count() as u32;
        let mut counts = vec![0u32; usize::from(ports)];
        for _ in 0..1000 {
            counts[usize::from(selector.next(Time::ZERO, Ports::first(ports)).expect("a path").port())] += 1;
        }
        for (plane, count) in selector.planes().iter().zip(&counts) {
            let share = if plane.good > 0 { 1000 / alive } else { 0 };
            prop_assert!(count.abs_diff(share) <= 1, "{counts:?}");
        }
    }
}

#[test]
fn the_set_is_128_paths_in_use_and_128_in_reserve_drawn_equally_from_all_planes() {
    let counts = |ports: u8, uplinks: u16| -> Vec<(u32, u32)> {
        build(MrcConfig::default(), ports, uplinks).planes().iter().map(|p| (p.good, p.backup)).collect()
    };
    assert_eq!(counts(8, 256), [(16, 16); 8]);
    assert_eq!(counts(4, 128), [(32, 32); 4]);
    assert_eq!(counts(1, 256), [(128, 128)]);
    // Fewer paths than that: those in use come first.
    assert_eq!(counts(8, 20), [(16, 4); 8]);
    assert_eq!(counts(8, 8), [(8, 0); 8]);
    // Without a choice, or without a known topology: opaque values, as sprays have.
    assert_eq!(counts(2, 1), [(1, 0); 2]);
    assert_eq!(counts(2, 0), [(64, 0); 2]);
    // A random subset, another one on each plane.
    let paths = states(&build(MrcConfig::default(), 8, 256));
    let on = |port: u8| paths.keys().filter(|p| p.port() == port).map(|p| p.entropy()).collect::<BTreeSet<_>>();
    assert!(on(0) != on(1) && on(0).len() == 32 && on(0).iter().all(|&e| e < 256));
}

#[test]
fn every_path_in_use_has_one_turn_per_round_in_a_new_order_each_time() {
    let mut selector = build(MrcConfig::default(), 4, 64);
    let mut orders = BTreeSet::new();
    for _ in 0..20 {
        let round: Vec<PathId> =
            (0..128).map(|_| selector.next(Time::ZERO, Ports::first(4)).expect("a path")).collect();
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 128);
        assert!(round.windows(2).all(|w| w[0].port() != w[1].port()), "ports take turns");
        orders.insert(round);
    }
    assert_eq!(orders.len(), 20);
}

#[test]
fn a_marked_path_loses_one_turn_however_often_it_is_marked() {
    let mut selector = build(MrcConfig::default(), 1, 8);
    let path = selector.next(Time::ZERO, Ports::first(1)).expect("a path");
    (0..5).for_each(|_| selector.on_feedback(Time::ZERO, path, PathFeedback::Marked));
    // The rest of this round; then a round without it, and one with it.
    (0..7).for_each(|_| assert!(selector.next(Time::ZERO, Ports::first(1)).is_some()));
    let mut turns = || (0..7).filter(|_| selector.next(Time::ZERO, Ports::first(1)) == Some(path)).count();
    assert_eq!(turns(), 0);
    let next: Vec<PathId> = (0..8).filter_map(|_| selector.next(Time::ZERO, Ports::first(1))).collect();
    assert!(next.contains(&path));
}

#[test]
fn acknowledgements_go_by_a_path_that_is_known_to_work_and_no_longer_than_it_is() {
    let mut selector = build(MrcConfig::default(), 2, 16);
    let arrived = PathId::new(1, 3);
    // Nothing is known: the answer takes the path of the data. A probe of a random path is due, once per round trip.
    assert_eq!(selector.reply_path(Time::ZERO, arrived), arrived);
    assert!(selector.wants_probe(false));
    let Some(PathProbe::Endpoint { path, number }) = selector.take_probe(Time::ZERO, Ports::first(2)) else {
        panic!("a probe from NIC to NIC")
    };
    assert!(!selector.wants_probe(false));
    selector.on_answer(Time::ZERO, path, number.wrapping_add(1));
    assert_eq!(selector.reply_path(Time(1), arrived), arrived, "an answer to nothing");
    let known = Time::ZERO + BASE;
    selector.on_answer(known, path, number);
    let by = |entropy: u32| PathId::new(path.port(), entropy);
    assert_eq!(selector.reply_path(known, by(3)), path);
    // Own data confirms paths, so that no probes are needed.
    let confirmed = states(&selector).into_keys().find(|p| p.port() == path.port() && *p != path).expect("another");
    let later = known + BASE;
    selector.on_feedback(later, confirmed, PathFeedback::Good);
    assert_eq!(selector.reply_path(later, by(3)), confirmed);
    selector.on_feedback(later + BASE * 2, PathId::new(path.port(), 999), PathFeedback::Good);
    assert_eq!(selector.reply_path(later + BASE * 2, by(3)), confirmed, "not by a path that is none of ours");
    assert_eq!(selector.reply_path(later + BASE * 6, by(3)), by(3), "what was not confirmed for long is not believed");
}

#[test]
fn a_path_that_dies_costs_less_than_a_round_trip_and_is_not_used_again_before_probes_succeed() {
    const DEAD: PathId = PathId::new(2, 5);
    const FROM: Time = Time(60_000_000);
    const UNTIL: Time = Time(200_000_000);
    let mut world = planes();
    world.dead = |at, packet| packet.path == DEAD && at >= FROM && at < UNTIL;
    let clean = check(&planes(), "", "again 0, timeouts 0");
    let outcome = check(&world, "", "timeouts 0, duplicates 0, again 1..12");
    let data: Vec<Time> = outcome.data().filter(|(s, _)| s.packet.path == DEAD).map(|(s, _)| s.at).collect();
    let probes: Vec<Time> = outcome
        .sent
        .iter()
        .filter(|s| s.packet.path == DEAD && matches!(s.packet.header, Header::Probe { .. }))
        .map(|s| s.at)
        .collect();
    let last = *data.iter().filter(|&&at| at < UNTIL).max().expect("it was used");
    let detection = RTT + RTT.scaled(0.75) + RTT;
    assert!(last >= FROM && last <= FROM + detection, "last used at {last}");
    // Probed one round trip later, then more rarely; after three answers in a row it is used again.
    assert!(probes.len() >= 5 && probes.windows(2).all(|w| w[1] - w[0] >= RTT), "{probes:?}");
    let back = *data.iter().find(|&&at| at > last).expect("it comes back");
    let third = *probes.iter().filter(|&&at| at >= UNTIL).nth(2).expect("three probes");
    assert!(back >= third + RTT.scaled(0.9), "back at {back}, third probe at {third}");
    assert!(outcome.finished - clean.finished < RTT, "{} and {}", outcome.finished, clean.finished);
}

#[test]
fn idle_connections_probe_bad_paths_if_told_to_until_none_is_left() {
    const DEAD: PathId = PathId::new(2, 5);
    const IDLE: Time = Time(200_000_000);
    const UNTIL: Time = Time(2_000_000_000);
    const AGAIN: Time = Time(8_000_000_000);
    let run = |probe_idle: bool| {
        let mut world = planes().packets(1500).with(|profile| {
            profile.path = PathConfig::Mrc(MrcConfig { probe_idle, ..MrcConfig::default() });
        });
        world.dead = |at, packet| packet.path == DEAD && at >= Time(60_000_000) && at < UNTIL;
        // While a message is to come, the wire waits for timers, too.
        world.posts.push(Post { side: 0, connection: 0, bytes: 6_000_000, at: AGAIN });
        // Afterwards its checker verifies that nothing is left to do.
        let outcome = check(&world, "", "");
        let probe = |s: &&Sent| !s.packet.is_control() && s.data().is_none() && s.at >= IDLE && s.at < AGAIN;
        let probes: Vec<Sent> = outcome.sent.iter().filter(probe).copied().collect();
        let back = outcome.data().find(|(s, _)| s.at >= AGAIN && s.packet.path == DEAD).expect("it comes back").0.at;
        (probes, back)
    };
    let (probes, back) = run(false);
    assert!(probes.is_empty(), "{probes:?}");
    assert!(back > AGAIN + RTT * 3, "three probes and their answers take their time: {back}");
    let (probes, back) = run(true);
    assert!(back < AGAIN + RTT, "good when it was needed: {back}");
    // The probes become rarer while it is dead, and three in a row follow when it works again.
    assert!(probes.iter().all(|p| p.packet.path == DEAD && p.side == 0), "{probes:?}");
    let alive = probes.iter().filter(|p| p.at >= UNTIL).count();
    assert!(alive == 3 && (5..12).contains(&(probes.len() - alive)), "{probes:?}");
}

#[test]
fn a_plane_that_dies_silently_is_left_within_three_round_trips() {
    const FROM: Time = Time(60_000_000);
    const UNTIL: Time = Time(600_000_000);
    let mut world = planes().packets(12_000);
    world.dead = |at, packet| packet.path.port() == 2 && at >= FROM && at < UNTIL;
    let outcome = check(&world, "", "timeouts 0, delivered 12000");
    let lost: Vec<Time> = outcome
        .data()
        .filter(|(s, _)| s.packet.path.port() == 2 && s.at >= FROM && s.at < UNTIL)
        .map(|(s, _)| s.at)
        .collect();
    // The time until the last path's turn, a round trip, the lateness limit, and the time to report the whole window.
    assert!(*lost.last().expect("it was used") <= FROM + RTT * 3, "{} packets, {}", lost.len(), lost[lost.len() - 1]);
    // Every path that was taken out comes back.
    let back = outcome.data().filter(|(s, _)| s.packet.path.port() == 2 && s.at >= UNTIL).count();
    assert!(back > 0 || outcome.finished < UNTIL + RTT * 20);
}

#[test]
fn acknowledgements_leave_paths_that_are_dead_in_their_direction_only() {
    let mut world = planes().packets(30_000);
    world.dead = |_, packet| packet.source == HostId(1) && packet.path.entropy() % 16 < 8;
    let outcome = check(&world, "", "again 0, timeouts 0, delivered 30000");
    let acks: Vec<bool> =
        outcome.acks().filter(|(s, _)| s.at > Time::ZERO + RTT * 8).map(|(s, _)| s.packet.path.entropy() < 8).collect();
    let lost = acks.iter().filter(|&&dead| dead).count();
    assert!(lost * 4 < acks.len(), "{lost} of {}: half of them would be by the way of the data", acks.len());
}

#[test]
fn with_every_path_bad_or_all_but_denied_it_still_sends() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    let id = ConnectionId(0);
    endpoint.post(Time::ZERO, id, Message { id: MessageId(1), bytes: 1 << 20 });
    let paths: Vec<PathId> = endpoint.observe().path_states(id).iter().map(|s| s.path).collect();
    for &path in &paths[1..] {
        assert!(endpoint.deny_path(Time::ZERO, id, path));
    }
    for _ in 0..10 {
        let packet = endpoint.poll_transmit(Time::ZERO, Ports::first(2)).expect("a packet");
        assert_eq!(packet.path, paths[0]);
    }
    endpoint.deny_path(Time::ZERO, id, paths[0]);
    assert_eq!(endpoint.poll_transmit(Time::ZERO, Ports::first(2)), None, "the controller forbids them all");
    assert!(!endpoint.deny_path(Time::ZERO, id, PathId::new(9, 9)));
    assert!(endpoint.allow_path(Time::ZERO, id, paths[3]));
    assert_eq!(endpoint.poll_transmit(Time::ZERO, Ports::first(2)).expect("a packet").path, paths[3]);
    assert_eq!(endpoint.observe().planes(id).iter().map(|p| p.denied).sum::<u32>(), paths.len() as u32 - 1);
}

#[test]
fn a_path_that_marks_everything_is_shunned_if_the_receiver_is_to_say_so_and_only_if_others_do_not() {
    const BUSY: PathId = PathId::new(2, 5);
    let run = |shun_marks: u32, marked: fn(&Packet) -> bool| {
        let mut world = planes().packets(12_000).with(|profile| {
            profile.path = PathConfig::Mrc(MrcConfig { shun_marks, ..MrcConfig::default() });
        });
        world.marked = marked;
        let outcome = check(&world, "", "again 0, timeouts 0, delivered 12000");
        let said = outcome.acks().filter(|(s, _)| s.packet.flags.has(Flags::ALWAYS_SKIP));
        let said: Vec<PathId> = said.map(|(_, ack)| ack.path).collect();
        assert!(said.iter().all(|&path| path == BUSY), "{said:?}");
        (said.len(), outcome.data().filter(|(s, _)| s.packet.path == BUSY).count())
    };
    let one: fn(&Packet) -> bool = |packet| packet.path == BUSY && matches!(packet.header, Header::Data(_));
    let plane: fn(&Packet) -> bool = |packet| packet.path.port() == 2 && matches!(packet.header, Header::Data(_));
    let (said, without) = run(0, one);
    assert_eq!(said, 0);
    let (said, with) = run(8, one);
    // After every eight packets by it, until probes bring it back.
    assert!(said > 3 && with.abs_diff(said * 8) <= 8, "{said} times, {with} packets");
    assert!(with * 4 < without * 3, "{with} packets by it, and {without} without");
    assert_eq!(run(8, plane).0, 0, "a plane all of which is busy has no bad path");
}
