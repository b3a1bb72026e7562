//! Random worlds, where packets are lost, doubled and overtaken: every worker must still get every sum, and every sum
//! must be exact.

use crate::world::{Engine, Setting, World};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::Span;
use strandway_switch::{Aging, Esa, Refresh, ResultPath, System};

fn draw(seed: u64, system: System, random: &mut Random) -> Setting {
    let mut pick = |below: u32| random.below(below);
    let racks = 1 + pick(3);
    let racks: Vec<u32> = (0..racks).map(|_| 1 + pick(if racks == 1 { 8 } else { 3 })).collect();
    let total: u32 = racks.iter().sum();
    let racks = if total == 1 { vec![2] } else { racks };
    let keys = 4 + u64::from(pick(40));
    let few = [3, 16, 64][pick(3) as usize];
    Setting {
        jobs: 1 + pick(4) as u16,
        racks,
        near: pick(2) == 0,
        slots: 1 + pick(few),
        window: 2 + pick(11),
        keys,
        first: if pick(2) == 0 { 0 } else { (1 << 32) - 25 + u64::from(pick(30)) },
        loss: f64::from(pick(4)) * 0.1,
        duplication: f64::from(pick(3)) * 0.1,
        overflow: [0.0, 0.0, 0.1, 0.2][pick(4) as usize],
        flush_timer: pick(3) > 0,
        priorities: (0..1 + pick(4)).map(|_| 1 + pick(255) as u8).collect(),
        per_key: pick(4) == 0,
        seed,
        ..Setting::new(system)
    }
}

fn check(setting: &Setting) -> World {
    let mut world = World::new(setting);
    let done = world.run();
    assert!(world.wrong.is_empty(), "{setting:?}: {}", world.wrong[0]);
    assert!(done, "{setting:?}: stuck, failed {}", world.failed);
    world
}

#[test]
fn esa_gives_every_worker_exact_sums() {
    let (mut preempted, mut floats, mut holds) = (0, 0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed, StreamKind::Workload, 1);
        let results = [ResultPath::Direct, ResultPath::ViaServerFree, ResultPath::ViaServer][random.below(3) as usize];
        let aging =
            [Aging::Idle, Aging::Halve, Aging::HalfPer(Span::from_us(10)), Aging::Off][random.below(4) as usize];
        let refresh = [Refresh::Highest, Refresh::Keep][random.below(2) as usize];
        let mut setting = draw(seed, System::Esa(Esa { results, aging, refresh }), &mut random);
        // A reduce-scatter has no floats here: its owners send nothing.
        setting.scatter = setting.overflow == 0.0 && random.below(4) == 0;
        let mut world = check(&setting);
        for counts in world.counts().values() {
            preempted += counts.preemptions;
            floats += counts.floats;
            holds += counts.reminders;
        }
    }
    assert!(preempted > 1000 && floats > 1000 && holds > 1000, "{preempted} {floats} {holds}");
}

#[test]
fn atp_gives_every_worker_exact_sums() {
    let (mut refused, mut resent) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed, StreamKind::Workload, 2);
        let setting = draw(seed, System::Atp, &mut random);
        let mut world = check(&setting);
        for counts in world.counts().values() {
            refused += counts.refused;
            resent += counts.resent;
        }
    }
    assert!(refused > 1000 && resent > 1000, "{refused} {resent}");
}

/// The owner of a key sends no fragment of it, so it has nothing to send again if its result is lost.
#[test]
fn a_reduce_scatter_of_atp_gives_every_owner_its_exact_sums() {
    let (mut reminders, mut resent) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed, StreamKind::Workload, 6);
        let drawn = draw(seed, System::Atp, &mut random);
        let mut world = check(&Setting { overflow: 0.0, scatter: true, ..drawn });
        for counts in world.counts().values() {
            reminders += counts.reminders;
            resent += counts.resent;
        }
    }
    assert!(reminders > 500 && resent > 1000, "{reminders} {resent}");
}

#[test]
fn switchml_gives_every_worker_exact_sums_in_any_order() {
    let (mut late, mut repeated) = (0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed, StreamKind::Workload, 3);
        let mut setting = draw(seed, System::SwitchMl { strict_order: true }, &mut random);
        setting.overflow = 0.0;
        setting.exponents = random.below(2) == 0;
        let mut world = check(&setting);
        for counts in world.counts().values() {
            late += counts.odd;
            repeated += counts.duplicates;
        }
    }
    assert!(late > 300 && repeated > 1000, "{late} {repeated}");
}

#[test]
fn the_literal_switchml_is_exact_where_paths_keep_their_order_and_wrong_where_they_do_not() {
    let mut wrong = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed, StreamKind::Workload, 4);
        let mut setting = draw(seed, System::SwitchMl { strict_order: false }, &mut random);
        setting.overflow = 0.0;
        setting.racks.truncate(1);
        setting.racks[0] = setting.racks[0].max(2);
        setting.fifo = true;
        check(&setting);
        setting.fifo = false;
        setting.window = 1;
        let mut world = World::new(&setting);
        world.run();
        wrong += usize::from(!world.wrong.is_empty());
    }
    assert!(wrong > 5, "{wrong} runs with a wrong sum");
}

#[test]
fn servers_that_forget_and_restart_do_no_harm() {
    for seed in 0..40 {
        let mut random = Random::new(seed, StreamKind::Workload, 5);
        let results = [ResultPath::Direct, ResultPath::ViaServerFree, ResultPath::ViaServer][random.below(3) as usize];
        let mut setting = draw(seed, System::Esa(Esa { results, ..Esa::default() }), &mut random);
        // A forgotten key counts as lost too.
        setting.loss = setting.loss.min(0.1);
        let mut world = World::new(&setting);
        let end = world.end();
        for node in world.workers() {
            world.produce(node, end);
        }
        for step in 0..2_000_000u64 {
            if world.is_done() {
                break;
            }
            let job = 1 + world.random.below(u32::from(setting.jobs)) as u16;
            if world.random.chance(0.002) && step < 100_000 {
                world.server(job).restart();
            } else if world.random.chance(0.002) {
                world.server(job).forget_below(end);
            }
            if world.flying.is_empty() {
                let timers = world.timers();
                world.fire(timers[0], Span::ZERO);
                continue;
            }
            let at = world.random.below(world.flying.len() as u32) as usize;
            let (_, flight) = world.take(at);
            if !world.random.chance(setting.loss) {
                world.arrive(flight);
            }
        }
        assert!(world.wrong.is_empty(), "{setting:?}: {}", world.wrong[0]);
        assert!(world.is_done(), "{setting:?}: stuck");
    }
}

#[test]
fn after_a_job_nothing_is_left_but_what_the_sweep_takes() {
    for seed in 0..60 {
        let mut random = Random::new(seed, StreamKind::Workload, 6);
        let setting = draw(seed, System::Esa(Esa::default()), &mut random);
        let mut world = check(&setting);
        for node in world.workers() {
            if let Engine::Worker(worker) = &mut world.nodes[node].engine {
                worker.send_watermark();
            }
            world.produce(node, setting.first + setting.keys);
        }
        // Packets in flight arrive, and timers end.
        for _ in 0..100_000 {
            world.settle();
            let Some(&node) = world.timers().first() else { break };
            world.fire(node, Span::ZERO);
        }
        assert!(world.timers().is_empty(), "{setting:?}: timers end");
        let now = world.now;
        let jobs: Vec<u16> = world.jobs.iter().map(|job| job.shape.number).collect();
        for node in &mut world.nodes {
            if let Engine::Esa(program) = &mut node.engine {
                jobs.iter().for_each(|&job| program.sweep(now, job));
                assert_eq!(program.used(), 0, "{setting:?}");
            }
        }
        for job in jobs {
            assert_eq!(world.server(job).entries(), 0, "{setting:?}");
        }
        assert!(world.wrong.is_empty());
    }
}
