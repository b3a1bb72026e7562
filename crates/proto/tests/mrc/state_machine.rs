//! The state machine against the model, step by step.

use super::model::{Model, USED};
use super::{BASE, build, environment, states};
use proptest::prelude::*;
use std::collections::BTreeMap;
use strandway_proto::path::{MrcConfig, PathFeedback, PathManager, PathProbe, PathSelector, PathStatus, Turnover};
use strandway_proto::{Bytes, PathId, Ports, Span, Time};

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
    let mut model = Model {
        config,
        ports,
        evs,
        suspects: BTreeMap::new(),
        local,
        peer,
        floor,
        pace: Time::ZERO,
        turnover: Turnover::default(),
    };
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
                    let mut evs = model.evs.clone();
                    evs.get_mut(&path).expect("a path").0 = PathStatus::Good;
                    vec![evs]
                } else {
                    model.suspects.remove(&path);
                    Model::restored(model.evs.clone(), path)
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
                // An old status that a newer one has overtaken changes nothing.
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
                    Some(probe) => {
                        let (path, number) = match probe {
                            PathProbe::Connection { path, number } => (path, number),
                            PathProbe::Endpoint { path, number } => (path, u32::from(number)),
                        };
                        let endpoint = matches!(probe, PathProbe::Endpoint { .. });
                        assert_eq!(endpoint, config.probe_idle, "reverse paths are off");
                        assert!(due.contains(&path), "{path:?} is not due");
                        assert!(number < 1 << 16, "a number has 16 bits on the wire");
                        let suspect = model.suspects.get_mut(&path).expect("a path assumed bad");
                        suspect.asked = Some(number);
                        suspect.at = now + BASE.scaled(config.probe_timeout);
                        model.pace = now + gap;
                    }
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
                if config.probe_idle {
                    // The answer from NIC to NIC only shows that the path works.
                    selector.on_answer(now, path, number as u16);
                    model.answer(now, path, number, PathFeedback::Good)
                } else {
                    selector.on_probe_answer(now, path, number, feedback);
                    model.answer(now, path, number, feedback)
                }
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
        assert!(!selector.wants_probe(false), "without work that is the connection's to decide");
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
        probe_idle in any::<bool>(),
    ) {
        let config = MrcConfig { active, backup, active_min, probe_idle, reverse: false, ..MrcConfig::default() };
        run(config, ports, uplinks, &steps);
    }
}
