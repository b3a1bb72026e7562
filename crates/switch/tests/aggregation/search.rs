//! Every order of events of two workers, one slot and one or two keys: no sum is ever wrong, and from every state all
//! results can come.
//!
//! Messages are delivered in any order, lost or doubled within a budget; timers fire when no packet is in flight, and a
//! few times early (ESA sheet, appendix A).

use crate::world::{Setting, World};
use std::collections::HashMap;
use strandway_proto::units::Span;
use strandway_switch::{Aging, Esa, ResultPath, System};

/// How often something may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    loss: u8,
    duplication: u8,
    early: u8,
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    states: usize,
    wrong: usize,
    /// States from which not all results can come.
    stuck: usize,
}

type State = ((u64, u64), Budget);

fn search(setting: &Setting, budget: Budget, in_sequence: bool) -> Found {
    let mut begin = World::new(setting);
    let first = if in_sequence { setting.first + 1 } else { begin.end() };
    for node in begin.workers() {
        begin.produce(node, first);
    }
    let mut known: HashMap<State, u32> = HashMap::new();
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let mut done: Vec<u32> = Vec::new();
    let mut wrong = 0;
    known.insert((begin.state(), budget), 0);
    let mut open = vec![(0u32, begin, budget)];
    while let Some((from, world, budget)) = open.pop() {
        if !world.wrong.is_empty() {
            wrong += 1;
            continue;
        }
        if world.is_done() {
            done.push(from);
            continue;
        }
        let mut next: Vec<(World, Budget)> = Vec::new();
        let mut seen = Vec::new();
        for at in 0..world.flying.len() {
            if seen.contains(&&world.flying[at]) {
                continue;
            }
            seen.push(&world.flying[at]);
            let mut lost = world.clone();
            let (place, flight) = lost.take(at);
            let mut arrived = lost.clone();
            arrived.arrive(flight.clone());
            next.push((arrived.clone(), budget));
            if budget.loss > 0 {
                next.push((lost, Budget { loss: budget.loss - 1, ..budget }));
            }
            if budget.duplication > 0 {
                arrived.flying.insert(place.min(arrived.flying.len()), flight);
                next.push((arrived, Budget { duplication: budget.duplication - 1, ..budget }));
            }
        }
        let idle = world.flying.is_empty();
        if idle || budget.early > 0 {
            let mut firing = world.clone();
            for node in firing.timers() {
                let mut fired = world.clone();
                fired.fire(node, Span::from_ms(1000));
                let early = if idle { budget.early } else { budget.early - 1 };
                next.push((fired, Budget { early, ..budget }));
            }
        }
        for (mut world, budget) in next {
            if in_sequence {
                // A worker has the next key as soon as it has the result of the one before.
                for node in world.workers() {
                    let taken = world.nodes[node].taken.len() as u64;
                    let end = (setting.first + taken + 1).min(world.end());
                    if world.nodes[node].produced < end {
                        world.produce(node, end);
                    }
                }
            }
            let count = known.len() as u32;
            let to = *known.entry((world.state(), budget)).or_insert(count);
            edges.push((from, to));
            if to == count {
                open.push((to, world, budget));
            }
        }
    }
    // Searches backwards from the states in which all results have arrived.
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); known.len()];
    for (from, to) in edges {
        before[to as usize].push(from);
    }
    let mut ends = vec![false; known.len()];
    while let Some(state) = done.pop() {
        if !std::mem::replace(&mut ends[state as usize], true) {
            done.extend(&before[state as usize]);
        }
    }
    Found { states: known.len(), wrong, stuck: ends.iter().filter(|&&ends| !ends).count() - wrong }
}

fn setting(results: ResultPath, keys: u64, priorities: [u8; 2]) -> Setting {
    // A search has no times, so slots that age with time would not age.
    let system = System::Esa(Esa { results, aging: Aging::Halve, ..Esa::default() });
    Setting { slots: 1, window: 4, keys, priorities: priorities.to_vec(), per_key: true, ..Setting::new(system) }
}

fn holds(setting: &Setting, budget: [u8; 3], least: usize) {
    let [loss, duplication, early] = budget;
    let found = search(setting, Budget { loss, duplication, early }, false);
    println!("{:?} {} keys {budget:?}: {found:?}", setting.system, setting.keys);
    assert_eq!((found.wrong, found.stuck), (0, 0), "{setting:?} {budget:?}");
    assert!(found.states >= least, "{} states", found.states);
}

#[test]
fn one_key_comes_to_all_whatever_is_lost_doubled_or_early() {
    for results in [ResultPath::Direct, ResultPath::ViaServer, ResultPath::ViaServerFree] {
        holds(&setting(results, 1, [1, 1]), [2, 1, 1], 10_000);
    }
}

#[test]
fn two_keys_in_one_slot_take_it_from_each_other_and_both_come() {
    for priorities in [[2, 1], [1, 2]] {
        for results in [ResultPath::Direct, ResultPath::ViaServer, ResultPath::ViaServerFree] {
            holds(&setting(results, 2, priorities), [1, 0, 0], 1000);
        }
    }
    holds(&setting(ResultPath::Direct, 2, [2, 1]), [1, 1, 0], 10_000);
    holds(&setting(ResultPath::Direct, 2, [1, 2]), [2, 0, 0], 10_000);
    let patient = Setting { flush_timer: false, ..setting(ResultPath::Direct, 2, [2, 1]) };
    holds(&patient, [1, 0, 0], 1000);
}

#[test]
fn atp_ends_with_one_key_and_a_loss() {
    let one = Setting { slots: 1, window: 1, keys: 1, per_key: true, ..Setting::new(System::Atp) };
    holds(&one, [1, 0, 1], 100);
    holds(&one, [1, 1, 0], 100);
}

#[test]
fn switchml_ends_with_two_chunks_of_one_slot_in_any_order() {
    let two = Setting { window: 1, keys: 2, ..Setting::new(System::SwitchMl { strict_order: true }) };
    holds(&two, [1, 1, 0], 300);
    holds(&two, [1, 0, 1], 300);
}

#[test]
fn the_literal_switchml_has_an_order_of_events_with_a_wrong_sum() {
    let three = Setting { window: 1, keys: 2, ..Setting::new(System::SwitchMl { strict_order: false }) };
    let found = search(&three, Budget { loss: 0, duplication: 1, early: 2 }, false);
    assert!(found.wrong > 0, "{found:?}");
}

#[test]
fn results_of_the_iteration_before_have_to_be_kept() {
    // ESA sheet, section 6.2: a worker that forgets at its barrier leaves the other one without the result.
    let kept = setting(ResultPath::Direct, 2, [1, 1]);
    let found = search(&kept, Budget { loss: 1, duplication: 0, early: 0 }, true);
    assert_eq!((found.wrong, found.stuck), (0, 0), "{found:?}");
    let forgotten = Setting { retain: 0, ..kept };
    let found = search(&forgotten, Budget { loss: 1, duplication: 0, early: 0 }, true);
    assert!(found.wrong == 0 && found.stuck > 0, "{found:?}");
}
