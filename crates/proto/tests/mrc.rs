//! MRC's paths: the state machine against a model written to be read, and what is promised of ports, probes and timers.

mod pair_support;

use pair_support::{Outage, Post, RTT, World, check};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandway_proto::packet::{Data, Flags, Header, Nack, NackReason, Offset, Operation, Psn};
use strandway_proto::path::{
    AnyPath, MrcConfig, PathConfig, PathFeedback, PathProbe, PathSelector, PathState, PathStatus,
};
use strandway_proto::reliability::{MrcSackConfig, ReliabilityConfig};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, Event, HostId, Message, MessageId, OpenConnection, Packet, PathId,
    Ports, Profile, Rate, Span, Time,
};

const BASE: Span = Span::from_us(10);

fn environment(ports: u8, uplinks: u16) -> Environment {
    Environment {
        rate: Rate::from_gbps(800),
        ports,
        base_rtt: BASE,
        packet: Bytes(4262),
        trimming: true,
        uplinks: [uplinks, 0],
        paths_in_order: 0,
        queue: Bytes(1_000_000),
    }
}

fn build(config: MrcConfig, ports: u8, uplinks: u16) -> AnyPath {
    PathConfig::Mrc(config).build(&environment(ports, uplinks), Random::new(5, StreamKind::Connection, 3))
}

/// Every path's state, and whether it is in use.
type States = BTreeMap<PathId, (PathStatus, bool)>;

fn states(selector: &AnyPath) -> States {
    selector.path_states().iter().map(|s| (s.path, (s.status, s.active))).collect()
}

// ---- The state machine against a model -------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug)]
struct Suspect {
    at: Time,
    interval: Span,
    asked: Option<u32>,
    ok: u32,
}

/// The state machine as the specification tells it. It does not know in which order paths take turns, nor which of several
/// good paths in reserve is taken: there, any choice that is allowed is followed.
struct Model {
    config: MrcConfig,
    ports: u8,
    evs: States,
    suspects: BTreeMap<PathId, Suspect>,
    local: u32,
    peer: u32,
    floor: usize,
    pace: Time,
    turnover: [u64; 3],
}

const USED: [PathStatus; 2] = [PathStatus::Good, PathStatus::Skip];

impl Model {
    fn usable(&self) -> u32 {
        if self.local & self.peer != 0 { self.local & self.peer } else { self.local }
    }

    fn is_usable(&self, path: PathId) -> bool {
        self.usable() >> path.port() & 1 == 1
    }

    /// Paths in use that packets may take, on planes that lead somewhere.
    fn in_use(&self) -> usize {
        self.evs.iter().filter(|(p, (s, active))| *active && USED.contains(s) && self.is_usable(**p)).count()
    }

    /// The state with `out` in reserve and `into` in use instead.
    fn swapped(evs: &States, out: PathId, into: PathId) -> States {
        let mut evs = evs.clone();
        evs.get_mut(&out).expect("a path").1 = false;
        evs.get_mut(&into).expect("a path").1 = true;
        evs
    }

    /// `path` is of no use any more: every good one in reserve on its plane may take its place.
    fn replaced(evs: States, path: PathId) -> Vec<States> {
        let spare = |p: &PathId| p.port() == path.port() && evs[p] == (PathStatus::Good, false);
        let options: Vec<States> =
            evs.keys().copied().filter(spare).map(|into| Model::swapped(&evs, path, into)).collect();
        if evs[&path].1 && !options.is_empty() { options } else { vec![evs] }
    }

    /// `path` is good again: into use in place of any that is of no use, if its plane has one.
    fn restored(mut evs: States, path: PathId, status: PathStatus) -> Vec<States> {
        evs.get_mut(&path).expect("a path").0 = PathStatus::Good;
        let lame = |p: &PathId| p.port() == path.port() && evs[p].1 && !USED.contains(&evs[p].0);
        let mut options: Vec<States> =
            evs.keys().copied().filter(lame).map(|out| Model::swapped(&evs, out, path)).collect();
        if evs[&path].1 || options.is_empty() {
            options = vec![evs];
        }
        for option in &mut options {
            option.get_mut(&path).expect("a path").0 = status;
        }
        options
    }

    fn fail(&mut self, now: Time, path: PathId) -> Vec<States> {
        let same = vec![self.evs.clone()];
        let Some(&(status, active)) = self.evs.get(&path) else { return same };
        if !USED.contains(&status) || !self.is_usable(path) {
            return same;
        }
        if active && self.in_use() <= self.floor {
            self.turnover[2] += 1;
            return same;
        }
        self.turnover[0] += 1;
        let first = BASE.scaled(self.config.probe_first);
        self.suspects.insert(path, Suspect { at: now + first, interval: first, asked: None, ok: 0 });
        let mut evs = self.evs.clone();
        evs.get_mut(&path).expect("a path").0 = PathStatus::AssumedBad;
        Model::replaced(evs, path)
    }

    fn feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback) -> Vec<States> {
        match feedback {
            PathFeedback::Good => vec![self.evs.clone()],
            PathFeedback::Marked | PathFeedback::Trimmed => {
                let mut evs = self.evs.clone();
                if let Some(ev) = evs.get_mut(&path)
                    && ev.0 == PathStatus::Good
                {
                    ev.0 = PathStatus::Skip;
                }
                vec![evs]
            }
            PathFeedback::Lost | PathFeedback::TimedOut | PathFeedback::Shunned => self.fail(now, path),
        }
    }

    fn answer(&mut self, now: Time, path: PathId, number: u32, feedback: PathFeedback) -> Vec<States> {
        let same = vec![self.evs.clone()];
        let Some(suspect) = self.suspects.get_mut(&path) else { return same };
        if suspect.asked != Some(number) {
            return same;
        }
        let first = BASE.scaled(self.config.probe_first);
        let good = feedback != PathFeedback::Shunned;
        let ok = if good { suspect.ok + 1 } else { 0 };
        *suspect = Suspect { at: now + first, interval: first, asked: None, ok };
        if ok < self.config.probe_successes {
            return same;
        }
        self.suspects.remove(&path);
        self.turnover[1] += 1;
        let status = if feedback == PathFeedback::Marked { PathStatus::Skip } else { PathStatus::Good };
        Model::restored(self.evs.clone(), path, status)
    }

    fn wait(&mut self, now: Time) {
        for suspect in self.suspects.values_mut() {
            if suspect.asked.is_some() && suspect.at <= now {
                suspect.interval = (suspect.interval * 2).min(self.config.probe_max);
                *suspect = Suspect { at: now + suspect.interval, asked: None, ok: 0, ..*suspect };
            }
        }
    }

    fn due(&self, now: Time, ports: u32) -> BTreeSet<PathId> {
        let due = |(path, s): (&PathId, &Suspect)| {
            let is = s.asked.is_none() && s.at <= now && self.pace <= now;
            (is && (ports & self.usable()) >> path.port() & 1 == 1).then_some(*path)
        };
        self.suspects.iter().filter_map(due).collect()
    }

    /// Was this path a proper choice for a packet by one of these ports, and are these the states that it leaves behind?
    fn check_next(&mut self, mask: u32, given: Option<PathId>, after: States) {
        let free = mask & self.usable();
        let used = |port: u8| self.evs.iter().any(|(p, (s, a))| p.port() == port && *a && USED.contains(s));
        let changed: Vec<PathId> = after.keys().copied().filter(|p| after[p] != self.evs[p]).collect();
        assert!(changed.len() <= 1, "at most one path is restored per packet: {changed:?}");
        for path in &changed {
            assert_eq!((self.evs[path].0, after[path].0), (PathStatus::Skip, PathStatus::Good));
            assert!(self.evs[path].1 && free >> path.port() & 1 == 1, "only those whose turn it is are restored");
        }
        match given {
            Some(path) => {
                assert!(free >> path.port() & 1 == 1, "{path:?} leads by a port that is free and up");
                let (status, active) = self.evs[&path];
                assert!(active, "only paths in use are taken");
                match status {
                    PathStatus::Good => {}
                    PathStatus::Skip => {
                        assert_eq!(changed, [path], "a path that is passed over may only be taken when met again");
                        let good = |p: &PathId| p.port() == path.port() && self.evs[p] == (PathStatus::Good, true);
                        assert!(!self.evs.keys().any(good), "... when its plane has no other");
                    }
                    PathStatus::AssumedBad => assert_eq!(self.in_use(), 0, "only when nothing else is left"),
                    PathStatus::Denied => panic!("a denied path is never taken"),
                }
            }
            None => {
                let ports = (0..self.ports).filter(|port| free >> port & 1 == 1);
                let bad = |port: u8| {
                    let bad = |(p, ev): (&PathId, &(PathStatus, bool))| {
                        p.port() == port && *ev == (PathStatus::AssumedBad, true)
                    };
                    self.evs.iter().any(bad)
                };
                for port in ports {
                    assert!(!used(port), "there was a path by port {port}");
                    assert!(self.in_use() > 0 || !bad(port), "better a path assumed bad than none");
                }
            }
        }
        self.evs = after;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Next(u32),
    Feedback(usize, PathFeedback),
    Invented(u32, PathFeedback),
    Deny(usize),
    Allow(usize),
    Local(u32),
    Peer(u32),
    Wait(u64),
    Probe(u32),
    Answer(usize, PathFeedback),
    Stale(usize, u32),
}

fn feedbacks() -> impl Strategy<Value = PathFeedback> {
    prop_oneof![
        4 => Just(PathFeedback::Good),
        4 => Just(PathFeedback::Marked),
        1 => Just(PathFeedback::Trimmed),
        2 => Just(PathFeedback::Lost),
        1 => Just(PathFeedback::TimedOut),
        1 => Just(PathFeedback::Shunned),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let answers =
        prop_oneof![6 => Just(PathFeedback::Good), 2 => Just(PathFeedback::Marked), 1 => Just(PathFeedback::Shunned)];
    let step = prop_oneof![
        12 => (1u32..16).prop_map(Step::Next),
        10 => (any::<usize>(), feedbacks()).prop_map(|(i, f)| Step::Feedback(i, f)),
        1 => (any::<u32>(), feedbacks()).prop_map(|(p, f)| Step::Invented(p, f)),
        1 => any::<usize>().prop_map(Step::Deny),
        1 => any::<usize>().prop_map(Step::Allow),
        1 => (0u32..16).prop_map(Step::Local),
        1 => (0u32..16).prop_map(Step::Peer),
        6 => (0u64..30_000_000).prop_map(Step::Wait),
        6 => (1u32..16).prop_map(Step::Probe),
        6 => (any::<usize>(), answers).prop_map(|(i, f)| Step::Answer(i, f)),
        1 => (any::<usize>(), any::<u32>()).prop_map(|(i, n)| Step::Stale(i, n)),
    ];
    prop::collection::vec(step, 1..400)
}

fn run(config: MrcConfig, ports: u8, uplinks: u16, steps: &[Step]) {
    let mut selector = build(config, ports, uplinks);
    let all = Ports::first(ports).data;
    let evs = states(&selector);
    let paths: Vec<PathId> = evs.keys().copied().collect();
    let active = evs.values().filter(|ev| ev.1).count();
    let floor = ((evs.len() as f64 * config.active_min) as usize).clamp(1, active);
    let (local, peer) = (all, all);
    let mut model =
        Model { config, ports, evs, suspects: BTreeMap::new(), local, peer, floor, pace: Time::ZERO, turnover: [0; 3] };
    let gap = environment(ports, uplinks).rate.time_for(Bytes(4262)).scaled(1.0 / config.probe_share);
    let mut now = Time::ZERO;
    let mut statuses = 0;
    for step in steps {
        let options = match *step {
            Step::Next(mask) => {
                let given = selector.next(now, Ports { data: mask, control: mask });
                model.check_next(mask, given, states(&selector));
                continue;
            }
            Step::Feedback(at, feedback) => {
                let path = paths[at % paths.len()];
                selector.on_feedback(now, path, feedback);
                model.feedback(now, path, feedback)
            }
            Step::Invented(path, feedback) => {
                selector.on_feedback(now, PathId(path), feedback);
                model.feedback(now, PathId(path), feedback)
            }
            Step::Deny(at) => {
                let path = paths[at % paths.len()];
                assert!(selector.deny(now, path));
                model.suspects.remove(&path);
                let mut evs = model.evs.clone();
                evs.get_mut(&path).expect("a path").0 = PathStatus::Denied;
                Model::replaced(evs, path)
            }
            Step::Allow(at) => {
                let path = paths[at % paths.len()];
                assert!(selector.allow(now, path));
                if USED.contains(&model.evs[&path].0) {
                    vec![model.evs.clone()]
                } else {
                    model.suspects.remove(&path);
                    Model::restored(model.evs.clone(), path, PathStatus::Good)
                }
            }
            Step::Local(up) => {
                selector.on_ports(now, up);
                model.local = if up & all != 0 { up & all } else { all };
                vec![model.evs.clone()]
            }
            Step::Peer(up) => {
                statuses += 1;
                selector.on_peer_ports(now, statuses, up);
                // One that was overtaken changes nothing.
                selector.on_peer_ports(now, statuses.wrapping_sub(1), !up);
                model.peer = up;
                vec![model.evs.clone()]
            }
            Step::Wait(ps) => {
                now = now + Span(ps);
                if selector.deadline() <= now {
                    selector.on_timeout(now);
                }
                assert!(selector.deadline() > now, "a deadline that was seen to is over");
                model.wait(now);
                vec![model.evs.clone()]
            }
            Step::Probe(mask) => {
                let due = model.due(now, mask);
                match selector.take_probe(now, Ports { data: mask, control: mask }) {
                    Some(PathProbe::Connection { path, number }) => {
                        assert!(due.contains(&path), "{path:?} is not due");
                        assert!(number < 1 << 16, "a number has 16 bits on the wire");
                        let suspect = model.suspects.get_mut(&path).expect("a path assumed bad");
                        suspect.asked = Some(number);
                        suspect.at = now + BASE.scaled(config.probe_timeout);
                        model.pace = now + gap;
                    }
                    Some(PathProbe::Endpoint { .. }) => panic!("reverse paths are off"),
                    None => assert!(due.is_empty(), "{due:?} are due"),
                }
                vec![model.evs.clone()]
            }
            Step::Answer(at, feedback) => {
                let asked: Vec<(PathId, u32)> =
                    model.suspects.iter().filter_map(|(p, s)| s.asked.map(|number| (*p, number))).collect();
                if asked.is_empty() {
                    continue;
                }
                let (path, number) = asked[at % asked.len()];
                selector.on_probe_answer(now, path, number, feedback);
                model.answer(now, path, number, feedback)
            }
            Step::Stale(at, number) => {
                let path = paths[at % paths.len()];
                let number = number | 1 << 15;
                selector.on_probe_answer(now, path, number, PathFeedback::Good);
                model.answer(now, path, number, PathFeedback::Good)
            }
        };
        let after = states(&selector);
        assert!(options.contains(&after), "after {step:?}: {after:?} is none of {options:?}");
        model.evs = after;
        assert_eq!(selector.turnover(), model.turnover);
        assert_eq!(selector.wants_probe(true), !model.due(now, all).is_empty());
        assert!(!selector.wants_probe(false), "idle connections probe nothing");
        for plane in selector.planes() {
            let count = |status: PathStatus, active: &[bool]| {
                let counts = |(p, (s, a)): &(&PathId, &(PathStatus, bool))| {
                    p.port() == plane.port && *s == status && active.contains(a)
                };
                model.evs.iter().filter(counts).count() as u32
            };
            assert_eq!(plane.usable, model.usable() >> plane.port & 1 == 1);
            assert_eq!((plane.good, plane.skip), (count(PathStatus::Good, &[true]), count(PathStatus::Skip, &[true])));
            assert_eq!(plane.assumed_bad, count(PathStatus::AssumedBad, &[true, false]));
            assert_eq!(plane.denied, count(PathStatus::Denied, &[true, false]));
            assert_eq!(plane.backup, count(PathStatus::Good, &[false]) + count(PathStatus::Skip, &[false]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_state_machine_is_the_specifications(
        ports in 1u8..5,
        uplinks in prop_oneof![1u16..9, 20u16..40],
        active in 1u32..17,
        backup in 0u32..17,
        active_min in prop_oneof![Just(0.0), Just(0.25), Just(1.0)],
        steps in steps(),
    ) {
        let config = MrcConfig { active, backup, active_min, reverse: false, ..MrcConfig::default() };
        run(config, ports, uplinks, &steps);
    }

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
    // Nothing to choose, or nothing known: opaque values, as sprays have.
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
    // Nothing is known: the way the data came. A probe of a random path is called for, once per round trip.
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
    // Own data says more than probes, and spares them.
    let confirmed = states(&selector).into_keys().find(|p| p.port() == path.port() && *p != path).expect("another");
    let later = known + BASE;
    selector.on_feedback(later, confirmed, PathFeedback::Good);
    assert_eq!(selector.reply_path(later, by(3)), confirmed);
    selector.on_feedback(later + BASE * 2, PathId::new(path.port(), 999), PathFeedback::Good);
    assert_eq!(selector.reply_path(later + BASE * 2, by(3)), confirmed, "not by a path that is none of ours");
    assert_eq!(selector.reply_path(later + BASE * 6, by(3)), by(3), "what was not confirmed for long is not believed");
}

// ---- Endpoints -------------------------------------------------------------------------------------------------------------

/// Four planes with sixteen paths each.
fn planes() -> World {
    let mut world = World::new("mrc").ports(4).packets(6000);
    world.environment.uplinks = [16, 0];
    world
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
    // Probed one round trip later, then ever more rarely; three answers in a row, and it is used again.
    assert!(probes.len() >= 5 && probes.windows(2).all(|w| w[1] - w[0] >= RTT), "{probes:?}");
    let back = *data.iter().find(|&&at| at > last).expect("it comes back");
    let third = *probes.iter().filter(|&&at| at >= UNTIL).nth(2).expect("three probes");
    assert!(back >= third + RTT.scaled(0.9), "back at {back}, third probe at {third}");
    assert!(outcome.finished - clean.finished < RTT, "{} and {}", outcome.finished, clean.finished);
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
    // Until the last path's turn comes, a round trip, what others are late by, and the news of all of the window.
    assert!(*lost.last().expect("it was used") <= FROM + RTT * 3, "{} packets, {}", lost.len(), lost[lost.len() - 1]);
    // Nothing else was blamed: all that was taken out comes back.
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
fn what_peers_make_up_about_ports_does_not_hold_up_acknowledgements() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    for psn in 0..200u32 {
        let data = Data { psn: Psn::new(u64::from(psn)), message: MessageId(0), offset: Offset::new(0), length: 4096 };
        endpoint.handle_packet(
            Time::ZERO,
            &Packet {
                source: HostId(1),
                destination: HostId(0),
                connection: ConnectionId(0),
                path: PathId::new((psn * 7) as u8, psn),
                size: 4160,
                flags: Flags::CE,
                header: Header::Data(data),
            },
        );
    }
    let sent = std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, Ports::first(2)));
    assert!(sent.filter(|p| matches!(p.header, Header::Ack(_))).count() >= 200);
}

#[test]
fn a_port_that_goes_down_is_left_at_once_by_both_sides_and_used_again_after_it_has_stayed_up() {
    let mut world = planes().packets(60_000);
    let (from, until) = (Time(100_000_000), Time(1_500_000_000));
    world.outages = vec![Outage { side: 1, port: 2, from, until }];
    world.posts.push(Post { side: 1, connection: 0, bytes: 100_000_000, at: Time::ZERO });
    let outcome = check(&world, "", "delivered 84415");
    let hold = MrcConfig::default().port_hold;
    let by_port = |side: usize| outcome.sent.iter().filter(move |s| s.side == side && s.packet.path.port() == 2);
    // The side whose port it is stops at once, the other one when the news comes: half a round trip and a packet later.
    let down = |at: Time| at >= from && at < until + hold;
    let wrong: Vec<_> = by_port(1).filter(|s| down(s.at)).collect();
    assert!(wrong.is_empty(), "{} {:?}", wrong.len(), &wrong[..3]);
    let late: Vec<Time> = by_port(0).filter(|s| down(s.at) && !s.packet.is_control()).map(|s| s.at).collect();
    assert!(late.iter().all(|&at| at < from + RTT), "{:?}", late.last());
    // Three copies over the planes that are up.
    let told = |at: Time| {
        let status = |s: &&pair_support::Sent| {
            let told = matches!(s.packet.header, Header::Operation { operation: Operation::PortStatus(_), .. });
            told && s.side == 1 && s.at >= at && s.at < at + RTT
        };
        outcome.sent.iter().filter(status).map(|s| s.packet.path.port()).collect::<BTreeSet<u8>>()
    };
    assert_eq!(told(from), BTreeSet::from([0, 1, 3]));
    assert_eq!(told(until + hold), BTreeSet::from([0, 1, 2]));
    assert!(by_port(0).any(|s| s.at > until + hold && !s.packet.is_control()), "it is used again");
    assert!(by_port(1).any(|s| s.at > until + hold && !s.packet.is_control()), "it is used again");
    // What was lost with the port was found without a timeout, and no path was blamed for long.
    assert!(outcome.stats.timeouts <= 2, "{:?}", outcome.stats);
}

#[test]
fn a_flapping_port_is_not_used_before_it_holds() {
    let mut world = planes().packets(30_000);
    let outage = |i: u64| {
        let from = Time(100_000_000 + i * 300_000_000);
        Outage { side: 0, port: 1, from, until: from + Span::from_us(50) }
    };
    world.outages = (0..4).map(outage).collect();
    let outcome = check(&world, "", "delivered 30000");
    let last = outage(3).until + MrcConfig::default().port_hold;
    let used = |from: Time, until: Time| {
        outcome.data().filter(|(s, _)| s.packet.path.port() == 1 && s.at >= from && s.at < until).count()
    };
    assert_eq!(used(outage(0).from, last), 0);
    assert!(used(last, Time::NEVER) > 0 || outcome.finished < last + RTT);
}

fn lone(profile: Profile, ports: u8) -> Endpoint {
    let mut endpoint = Endpoint::new(HostId(0));
    endpoint.open(OpenConnection {
        environment: Environment { packet: profile.packet_bytes(), ..environment(ports, 16) },
        profile: Arc::new(profile),
        peer: HostId(1),
        peer_connection: ConnectionId(0),
        random: Random::new(1, StreamKind::Connection, 1),
    });
    endpoint
}

/// Times at which PSN 0 leaves while nothing ever comes back, and when the connection fails.
fn into_the_void(config: MrcSackConfig, until: Time) -> (Vec<Time>, Option<Time>) {
    let profile =
        Profile { reliability: ReliabilityConfig::MrcSack(config), ..Profile::preset("mrc").expect("a preset") };
    let mut endpoint = lone(profile, 4);
    endpoint.post(Time::ZERO, ConnectionId(0), Message { id: MessageId(1), bytes: 10_000 });
    let (mut now, mut left, mut failed) = (Time::ZERO, Vec::new(), None);
    loop {
        while let Some(packet) = endpoint.poll_transmit(now, Ports::first(4)) {
            if matches!(packet.header, Header::Data(data) if data.psn.get() == 0) {
                left.push(now);
            }
        }
        match endpoint.poll_timeout() {
            Some(at) if at < until => now = now.max(at),
            _ => return (left, failed),
        }
        endpoint.handle_timeout(now);
        while let Some(event) = endpoint.poll_event() {
            assert_eq!(event, Event::Failed { connection: ConnectionId(0) });
            assert_eq!(failed.replace(now), None, "told once");
            // A message posted afterwards goes nowhere.
            endpoint.post(now, ConnectionId(0), Message { id: MessageId(2), bytes: 10 });
            assert!(endpoint.poll_transmit(now, Ports::first(4)).is_none());
            assert_eq!(endpoint.in_flight(ConnectionId(0)), Bytes(0));
        }
    }
}

#[test]
fn timers_are_linear_then_exponential_and_then_the_budget_is_used_up() {
    let first = Span::from_ns(1024) * 64;
    let config = MrcSackConfig { retries_linear: 3, retries_exponential: 4, ..MrcSackConfig::default() };
    let (left, failed) = into_the_void(config, Time(10_000_000_000_000));
    let waits: Vec<u64> = left.windows(2).map(|w| (w[1] - w[0]).0 / first.0).collect();
    // 1.024 us * 2^6 is the smallest that is three times 10 us and 7.5 us.
    assert_eq!(waits, [1, 1, 1, 1, 2, 4, 8]);
    assert_eq!(failed, Some(*left.last().expect("it left") + first * 16));
    // 25 exponential retries mean: for ever, each of them no later than the longest timeout.
    let (left, failed) = into_the_void(MrcSackConfig::default(), Time(10_000_000_000_000));
    assert_eq!(failed, None);
    assert!(left.windows(2).all(|w| w[1] - w[0] <= MrcSackConfig::default().timeout_max));
    assert!(left.len() > 100, "{}", left.len());
}

#[test]
fn with_every_path_bad_or_all_but_denied_it_still_sends() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    let id = ConnectionId(0);
    endpoint.post(Time::ZERO, id, Message { id: MessageId(1), bytes: 1 << 20 });
    let paths: Vec<PathId> = endpoint.path_states(id).iter().map(|s| s.path).collect();
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
    assert_eq!(endpoint.planes(id).iter().map(|p| p.denied).sum::<u32>(), paths.len() as u32 - 1);
}

#[test]
fn what_the_receiver_was_short_of_goes_again_and_blames_no_path() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 2);
    let id = ConnectionId(0);
    endpoint.post(Time::ZERO, id, Message { id: MessageId(1), bytes: 40_000 });
    let sent: Vec<Packet> = std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, Ports::first(2))).collect();
    assert_eq!(sent.len(), 10);
    let (window, before) = (endpoint.window(id), endpoint.path_states(id));
    let nack = |reason| {
        let (psn, path) = (Psn::new(3), sent[3].path);
        let header = Header::Nack(Nack { psn, cumulative: psn, path, reason });
        Packet { source: HostId(1), destination: HostId(0), flags: Flags::NONE, size: 64, header, ..sent[3] }
    };
    for reason in [NackReason::NoTracker, NackReason::NoBuffer, NackReason::NoResource, NackReason::BeyondWindow] {
        endpoint.handle_packet(Time(1), &nack(reason));
        let again = endpoint.poll_transmit(Time(1), Ports::first(2)).expect("a retransmission");
        assert!(
            again.flags.has(Flags::RETRANSMITTED) && matches!(again.header, Header::Data(d) if d.psn == Psn::new(3))
        );
        assert_eq!(endpoint.window(id), window);
        let by_path =
            |states: Vec<PathState>| states.into_iter().map(|s| (s.path, s.status)).collect::<BTreeMap<_, _>>();
        assert_eq!(by_path(endpoint.path_states(id)), by_path(before.clone()));
    }
    // What the peer cannot get over ends the connection.
    endpoint.handle_packet(Time(2), &nack(NackReason::Fatal));
    assert_eq!(endpoint.poll_event(), Some(Event::Failed { connection: id }));
    assert_eq!((endpoint.poll_event(), endpoint.in_flight(id)), (None, Bytes(0)));
}

#[test]
fn what_lies_beyond_the_window_of_psns_is_refused() {
    let mut endpoint = lone(Profile::preset("mrc").expect("a preset"), 1);
    let data = |psn: u64| Packet {
        source: HostId(1),
        destination: HostId(0),
        connection: ConnectionId(0),
        path: PathId::new(0, 1),
        size: 4262,
        flags: Flags::NONE,
        header: Header::Data(Data {
            psn: Psn::new(psn),
            message: MessageId(0),
            offset: Offset::new(psn * 4096),
            length: 4096,
        }),
    };
    endpoint.handle_packet(Time::ZERO, &data(1023));
    let reply = endpoint.poll_transmit(Time::ZERO, Ports::first(1)).expect("an acknowledgement");
    assert!(matches!(reply.header, Header::Ack(_)));
    endpoint.handle_packet(Time::ZERO, &data(1024));
    let replies: Vec<Header> =
        std::iter::from_fn(|| endpoint.poll_transmit(Time::ZERO, Ports::first(1))).map(|p| p.header).collect();
    let refused = |h: &Header| matches!(h, Header::Nack(n) if n.reason == NackReason::BeyondWindow);
    assert!(replies.iter().any(refused), "{replies:?}");
}
