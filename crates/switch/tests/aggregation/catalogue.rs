//! The list of what can go wrong (ESA sheet, section 7): a test for each line, with ESA, and also with ATP where ATP
//! differs.

use crate::world::{Engine, Place, Setting, World, gradient, is};
use strandway_proto::aggregate::{Fragment, Kind, Marks};
use strandway_proto::packet::Header;
use strandway_proto::units::{Span, Time};
use strandway_switch::{Aging, Esa, ResultPath, System};

fn esa() -> System {
    System::Esa(Esa::default())
}

/// Two workers and one key, with more slots than they need.
fn one_key(system: System) -> Setting {
    Setting { keys: 1, slots: 8, ..Setting::new(system) }
}

/// A world whose workers have sent all their fragments.
fn sent(setting: &Setting) -> World {
    let mut world = World::new(setting);
    let end = world.end();
    for node in world.workers() {
        world.produce(node, end);
    }
    world
}

/// Delivers all messages and then runs the next timer, again and again, until all results have arrived.
fn recover(world: &mut World) {
    for _ in 0..200 {
        world.settle();
        if world.is_done() {
            break;
        }
        let timers = world.timers();
        world.fire(timers[0], Span::ZERO);
    }
    assert!(world.is_done(), "all results are there");
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
}

fn from_worker(worker: u16) -> impl Fn(Place, &Fragment) -> bool {
    move |_, fragment| fragment.kind == Kind::Data && { fragment.sender } == worker
}

fn to_host(world: &World, worker: usize) -> Place {
    Place::Host(world.jobs[0].workers()[worker].0)
}

#[test]
fn line_1_a_lost_fragment_is_asked_for_and_only_that() {
    let mut world = sent(&one_key(esa()));
    world.lose(from_worker(1));
    recover(&mut world);
    let counts = world.counts()[&1];
    assert!(counts.flushes > 0 && counts.solicits == 1 && counts.resent == 1, "{counts:?}");
    let mut world = sent(&one_key(System::Atp));
    world.lose(from_worker(1));
    recover(&mut world);
    assert!(world.counts()[&1].resent >= 2, "all resend; the first one that hits takes the partial sum with it");
}

#[test]
fn line_2_a_lost_whole_sum_on_its_way_to_the_server_leaves_again() {
    let kept = System::Esa(Esa { results: ResultPath::ViaServer, ..Esa::default() });
    for system in [kept, System::Atp] {
        let mut world = sent(&one_key(system));
        world.settle_until(is(Kind::Partial));
        world.lose(is(Kind::Partial));
        recover(&mut world);
        assert_eq!(world.counts()[&1].server_completed, 1);
    }
}

#[test]
fn line_3_a_result_that_one_worker_lacks_comes_from_another_one() {
    for system in [esa(), System::Atp] {
        let mut world = sent(&one_key(system));
        world.settle_until(is(Kind::Result));
        while !world.flying.iter().any(|flight| flight.to == to_host(&world, 1)) {
            let (_, flight) = world.take(0);
            world.arrive(flight);
        }
        let host = to_host(&world, 1);
        world.lose(|to, fragment| to == host && fragment.kind == Kind::Result);
        recover(&mut world);
        let counts = world.counts()[&1];
        assert!(system == System::Atp || counts.solicits == 2 && counts.resent == 1, "{counts:?}");
    }
}

#[test]
fn line_4_a_result_that_nobody_got_is_added_again() {
    let mut world = sent(&one_key(esa()));
    world.settle_until(is(Kind::Result));
    for _ in 0..2 {
        world.lose(is(Kind::Result));
    }
    recover(&mut world);
    let counts = world.counts()[&1];
    assert_eq!((counts.resent, counts.server_completed), (2, 1), "{counts:?}");
}

#[test]
fn line_5_a_lost_evicted_sum_is_asked_for_exactly() {
    // Three workers. The slot holds key 0 with the fragments of two of them; then key 1 takes the slot.
    let setting =
        Setting { racks: vec![3], slots: 1, keys: 2, priorities: vec![1, 9], per_key: true, ..Setting::new(esa()) };
    let mut world = sent(&setting);
    let pick = |world: &World, worker: u16, number: u32| {
        world.flying.iter().position(|flight| match flight.packet.header {
            Header::Fragment(f) => f.sender == worker && f.number == number,
            _ => false,
        })
    };
    for (worker, number) in [(0, 1), (1, 1), (0, 2)] {
        let at = pick(&world, worker, number).expect("it is under way");
        let (_, flight) = world.take(at);
        world.arrive(flight);
    }
    world.lose(|_, fragment| fragment.marks.has(Marks::EVICTED) && fragment.workers == 0b11);
    recover(&mut world);
    let counts = world.counts()[&1];
    assert!(counts.preemptions >= 1 && counts.solicits >= 2, "{counts:?}");
}

#[test]
fn line_6_a_lost_refused_fragment_is_asked_for_exactly() {
    let settings = Esa { aging: Aging::Off, ..Esa::default() };
    let setting =
        Setting { slots: 1, keys: 2, priorities: vec![9, 1], per_key: true, ..Setting::new(System::Esa(settings)) };
    let mut world = sent(&setting);
    world.settle_until(|_, fragment| fragment.marks.has(Marks::COLLIDED));
    world.lose(|_, fragment| fragment.marks.has(Marks::COLLIDED));
    recover(&mut world);
    assert!(world.counts()[&1].refused > 0);
}

#[test]
fn line_7_a_lost_result_of_the_server_is_told_again() {
    for results in [ResultPath::ViaServer, ResultPath::ViaServerFree] {
        let mut world = sent(&one_key(System::Esa(Esa { results, ..Esa::default() })));
        world.settle_until(is(Kind::Result));
        world.lose(is(Kind::Result));
        recover(&mut world);
        assert_eq!(world.counts()[&1].server_completed, 1, "it is added once and told again");
    }
    let mut world = sent(&one_key(System::Atp));
    world.settle_until(is(Kind::Result));
    world.lose(is(Kind::Result));
    recover(&mut world);
}

#[test]
fn lines_8_and_9_every_lost_word_is_said_again() {
    let words = [
        Kind::Flush,
        Kind::FlushMiss,
        Kind::Flushed,
        Kind::Remind,
        Kind::Solicit,
        Kind::Hold,
        Kind::NotYet,
        Kind::ResultCopy,
        Kind::Watermark,
    ];
    for kind in words {
        let mut world = sent(&one_key(esa()));
        world.lose(from_worker(1));
        let mut lost = 0;
        for _ in 0..400 {
            if world.is_done() {
                break;
            }
            if world.flying.is_empty() {
                let timers = world.timers();
                world.fire(timers[0], Span::ZERO);
            } else if lost < 2
                && world.flying.iter().any(|f| matches!(f.packet.header, Header::Fragment(h) if h.kind == kind))
            {
                world.lose(is(kind));
                lost += 1;
            } else {
                let (_, flight) = world.take(0);
                world.arrive(flight);
            }
        }
        assert!(world.is_done() && world.wrong.is_empty(), "{kind:?}");
    }
}

#[test]
fn line_10_a_doubled_fragment_counts_once() {
    for system in [esa(), System::Atp, System::SwitchMl { strict_order: true }] {
        let mut world = sent(&one_key(system));
        let twin = world.flying[0].clone();
        world.flying.insert(1, twin);
        recover(&mut world);
        assert_eq!(world.counts()[&1].duplicates, 1, "{system:?}");
    }
}

/// The number of slots that are in use in the first switch.
fn used(world: &World) -> usize {
    match &world.nodes[0].engine {
        Engine::Esa(program) => program.used(),
        Engine::Atp(program) => program.used(),
        _ => 0,
    }
}

#[test]
fn line_11_a_late_double_leaves_a_ghost_that_a_sweep_takes_away() {
    for system in [esa(), System::Atp] {
        let mut world = sent(&one_key(system));
        let twin = world.flying[0].clone();
        recover(&mut world);
        assert_eq!(used(&world), 0);
        world.arrive(twin);
        world.settle();
        assert_eq!(used(&world), 1, "{system:?}: a ghost");
        match &mut world.nodes[0].engine {
            Engine::Esa(program) => program.sweep(Time(1 << 50), 1),
            Engine::Atp(program) => program.sweep(Time(1 << 50), 1),
            _ => {}
        }
        assert_eq!(used(&world), 0, "{system:?}");
        assert!(world.wrong.is_empty());
    }
}

#[test]
fn line_11_a_ghost_gives_way_to_whoever_wants_its_slot() {
    // Two keys share one slot. The ghost of the first key has the higher priority, but it ages.
    let setting =
        Setting { slots: 1, window: 1, keys: 2, priorities: vec![200, 1], per_key: true, ..Setting::new(esa()) };
    let mut world = World::new(&setting);
    let workers = world.workers();
    workers.iter().for_each(|&node| world.produce(node, 1));
    let ghost = world.flying[0].clone();
    world.settle();
    world.arrive(ghost);
    for &node in &workers {
        world.produce(node, 2);
    }
    recover(&mut world);
    let counts = world.counts()[&1];
    assert!(counts.refused >= 1, "{counts:?}");
}

#[test]
fn line_12_a_split_key_needs_no_worker_to_remind() {
    // The first fragment of key 1 is refused, and the second one finds the slot free. So neither the slot nor the
    // server can complete the key alone.
    let settings = Esa { aging: Aging::Off, ..Esa::default() };
    let setting =
        Setting { slots: 1, keys: 2, priorities: vec![9, 1], per_key: true, ..Setting::new(System::Esa(settings)) };
    let mut world = sent(&setting);
    for (worker, number) in [(0u16, 1u32), (0, 2), (1, 1), (1, 2)] {
        let at = world.flying.iter().position(|flight| match flight.packet.header {
            Header::Fragment(f) => f.kind == Kind::Data && f.sender == worker && f.number == number,
            _ => false,
        });
        let (_, flight) = world.take(at.expect("it is under way"));
        world.arrive(flight);
    }
    recover(&mut world);
    let counts = world.counts()[&1];
    assert!(counts.refused == 1 && counts.flushes >= 1 && counts.reminders == 0, "{counts:?}");
}

#[test]
fn line_13_of_parts_that_overlap_one_is_chosen() {
    // Worker 1's fragment is late, so a solicit asks for it. Then both copies arrive.
    let mut world = sent(&Setting { racks: vec![3], ..one_key(esa()) });
    let at = world.flying.iter().position(|flight| match flight.packet.header {
        Header::Fragment(f) => f.sender == 1,
        _ => false,
    });
    let (_, late) = world.take(at.expect("it is under way"));
    world.settle();
    while !world.flying.iter().any(|f| matches!(f.packet.header, Header::Fragment(h) if h.kind == Kind::Solicit)) {
        if world.flying.is_empty() {
            let timers = world.timers();
            world.fire(timers[0], Span::ZERO);
        } else {
            let (_, flight) = world.take(0);
            world.arrive(flight);
        }
    }
    world.arrive(late);
    recover(&mut world);
}

#[test]
fn line_14_a_straggler_costs_words_and_no_data() {
    let setting = Setting { racks: vec![4], ..one_key(esa()) };
    let mut world = World::new(&setting);
    let workers = world.workers();
    let end = world.end();
    workers[1..].iter().for_each(|&node| world.produce(node, end));
    for _ in 0..60 {
        world.settle();
        let timers = world.timers();
        world.fire(timers[0], Span::ZERO);
    }
    let counts = world.counts()[&1];
    assert!(counts.reminders > 0 && counts.solicits > 0, "{counts:?}");
    assert_eq!(counts.resent, 0, "nobody sent anything again");
    world.produce(workers[0], end);
    recover(&mut world);
    let counts = world.counts()[&1];
    assert!(counts.resent == 0 && counts.sent == 4, "{counts:?}");
}

#[test]
fn line_15_the_slots_of_a_dead_worker_are_taken_over() {
    // Job 1 has a slot that can never fill, because one of its workers never sends. Job 2 has the same priority and
    // needs the slot.
    let setting =
        Setting { jobs: 2, slots: 1, keys: 3, priorities: vec![100, 100], per_key: true, ..Setting::new(esa()) };
    let mut world = World::new(&setting);
    let workers = world.workers();
    let end = world.end();
    world.produce(workers[0], end);
    world.settle();
    for &node in &workers[2..] {
        world.produce(node, end);
    }
    for _ in 0..400 {
        world.settle();
        if workers[2..].iter().all(|&n| world.nodes[n].taken.len() == 3) {
            break;
        }
        let timers = world.timers();
        world.fire(timers[0], Span::ZERO);
    }
    assert!(workers[2..].iter().all(|&n| world.nodes[n].taken.len() == 3), "job 2 is done");
    assert!(world.wrong.is_empty());
}

#[test]
fn line_16_a_server_that_starts_again_knows_nothing_and_needs_nothing() {
    let mut world = sent(&one_key(esa()));
    world.lose(from_worker(1));
    while !world.flying.iter().any(|f| matches!(f.packet.header, Header::Fragment(h) if h.kind == Kind::Solicit)) {
        if world.flying.is_empty() {
            let timers = world.timers();
            world.fire(timers[0], Span::ZERO);
        } else {
            let (_, flight) = world.take(0);
            world.arrive(flight);
        }
    }
    world.server(1).restart();
    recover(&mut world);
}

#[test]
fn line_17_what_would_overflow_travels_as_floats_and_all_get_the_same() {
    for system in [esa(), System::Atp] {
        let setting = Setting { racks: vec![3], keys: 4, overflow: 0.5, slots: 8, ..Setting::new(system) };
        let mut world = sent(&setting);
        recover(&mut world);
        let counts = world.counts()[&1];
        assert!(counts.floats > 0, "{system:?} {counts:?}");
    }
}

#[test]
fn line_18_a_packet_of_an_earlier_key_does_nothing_where_numbers_have_gone_on() {
    let setting = Setting { keys: 12, window: 2, slots: 2, first: (1 << 32) - 6, ..Setting::new(esa()) };
    let mut world = World::new(&setting);
    let workers = world.workers();
    workers.iter().for_each(|&node| world.produce(node, setting.first + 1));
    let old = world.flying.clone();
    world.settle();
    let end = world.end();
    workers.iter().for_each(|&node| world.produce(node, end));
    recover(&mut world);
    for flight in old {
        world.arrive(flight);
        world.settle();
    }
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    assert!(workers.iter().all(|&n| world.nodes[n].taken.len() == 12));
}

#[test]
fn a_job_number_that_is_used_again_too_early_gives_a_wrong_sum_and_a_sweep_prevents_it() {
    for sweep in [false, true] {
        let mut old = World::new(&one_key(esa()));
        let workers = old.workers();
        let end = old.end();
        // Only one worker of the dead job sent its fragments.
        old.produce(workers[0], end);
        old.settle();
        if sweep && let Engine::Esa(program) = &mut old.nodes[0].engine {
            program.sweep(Time(1), 1);
        }
        // The next job with this number begins with the slots of the dead job. The gradients of the dead job were other
        // ones, but the slot cannot know that.
        let mut new = World::new(&one_key(esa()));
        new.nodes[0] = old.nodes[0].clone();
        new.spoil(0);
        new.produce(workers[1], end);
        new.settle();
        assert_eq!(new.wrong.is_empty(), sweep, "{:?}", new.wrong);
    }
}

#[test]
fn fragments_with_bypass_or_resend_change_no_slot() {
    let mut world = sent(&one_key(esa()));
    for marks in [Marks::BYPASS, Marks::RESEND, Marks::FLOAT] {
        let mut flight = world.flying[0].clone();
        let Header::Fragment(fragment) = flight.packet.header else { panic!("a fragment") };
        flight.packet.header = Header::Fragment(Fragment { marks, ..fragment });
        world.arrive(flight);
        assert_eq!(used(&world), 0, "{marks:?}");
    }
}

/// The number of refusals until a holder of the highest priority, `idle` after its last fragment, gives way to packets
/// of the lowest; `None` if it stays.
fn refusals(aging: Aging, idle: Span) -> Option<u64> {
    let system = System::Esa(Esa { aging, ..Esa::default() });
    let setting =
        Setting { slots: 1, window: 32, keys: 20, priorities: vec![255, 1], per_key: true, ..Setting::new(system) };
    let mut world = World::new(&setting);
    let workers = world.workers();
    world.produce(workers[0], setting.first + 1);
    world.settle();
    world.now = world.now + idle;
    for key in 1..20 {
        world.produce(workers[0], key + 1);
        let (_, flight) = world.take(0);
        let Header::Fragment(fragment) = flight.packet.header else { panic!("a fragment") };
        // All later packets have the lowest priority.
        let mut flight = flight;
        flight.packet.header = Header::Fragment(Fragment { priority: 1, ..fragment });
        world.arrive(flight);
        world.flying.clear();
        if world.counts()[&1].preemptions > 0 {
            return Some(key - 1);
        }
    }
    None
}

#[test]
fn a_holder_gives_way_after_at_most_eight_refusals_when_it_ages() {
    assert_eq!(refusals(Aging::Halve, Span::ZERO), Some(8));
    assert_eq!(refusals(Aging::Off, Span::from_ms(100)), None);
    // By default only one that nothing was added to for 32 round trips.
    assert_eq!(refusals(Aging::default(), Span::ZERO), None);
    assert_eq!(refusals(Aging::default(), Span::from_ms(100)), Some(8));
}

#[test]
fn with_room_for_all_nobody_is_refused_and_the_server_hears_nothing() {
    let setting = Setting { jobs: 3, racks: vec![4, 3], slots: 4096, window: 12, keys: 40, ..Setting::new(esa()) };
    let mut world = sent(&setting);
    let lists: Vec<u32> = world.jobs.iter().flat_map(|job| job.list().to_vec()).collect();
    let unique: std::collections::BTreeSet<u32> = lists.iter().copied().collect();
    assert_eq!(unique.len(), lists.len(), "the jobs' slots differ");
    world.settle();
    assert!(world.is_done() && world.wrong.is_empty());
    for (job, counts) in world.counts() {
        assert_eq!((counts.refused, counts.evicted, counts.server_packets), (0, 0, 0), "job {job}: {counts:?}");
        assert_eq!((counts.completed, counts.merged), (40, 280), "job {job}: {counts:?}");
    }
}

#[test]
fn an_evicted_sum_carries_nothing_of_the_packet_that_displaced_it() {
    let setting = Setting { jobs: 2, slots: 1, keys: 1, priorities: vec![1, 9], per_key: true, ..Setting::new(esa()) };
    let mut world = World::new(&setting);
    let workers = world.workers();
    world.produce(workers[0], 1);
    world.settle();
    world.produce(workers[2], 1);
    let (_, flight) = world.take(0);
    world.arrive(flight);
    let out = world.flying.iter().find_map(|flight| match flight.packet.header {
        Header::Fragment(fragment) if fragment.marks.has(Marks::EVICTED) => Some((flight.clone(), fragment)),
        _ => None,
    });
    let (flight, fragment) = out.expect("the victim leaves");
    assert_eq!(({ fragment.job }, { fragment.watermark }, { fragment.sender }), (1, 0, Fragment::SWITCH));
    assert_eq!(flight.to, Place::Host(world.jobs[0].server().0), "to its own server");
    assert_eq!(flight.elements, gradient(1, 0, 0));
}

#[test]
fn a_hostile_packet_neither_costs_memory_nor_changes_a_sum() {
    let mut world = sent(&one_key(esa()));
    let good = world.flying[0].clone();
    let Header::Fragment(fragment) = good.packet.header else { panic!("a fragment") };
    let bad = [
        Fragment { job: 77, ..fragment },
        Fragment { priority: 0, ..fragment },
        Fragment { number: 0, ..fragment },
        Fragment { workers: 0, ..fragment },
        Fragment { workers: 0b100, ..fragment },
        Fragment { racks: 0b10, ..fragment },
        Fragment { fan_in: [1, 1], ..fragment },
        Fragment { fan_in: [2, 9], ..fragment },
        Fragment { racks: u32::MAX, marks: Marks::LEVEL, ..fragment },
    ];
    for header in bad {
        let mut flight = good.clone();
        flight.packet.header = Header::Fragment(header);
        world.arrive(flight);
        assert_eq!(used(&world), 0, "{header:?}");
    }
    recover(&mut world);
}

#[test]
fn with_equal_priorities_and_without_aging_esa_leaves_the_trace_of_atp() {
    // ESA sheet, section 14, invariant 7.
    let settings = Esa { results: ResultPath::ViaServer, aging: Aging::Off, ..Esa::default() };
    for seed in 0..40 {
        let of = |system| Setting {
            jobs: 1 + (seed % 3) as u16,
            racks: vec![2 + (seed % 4) as u32],
            slots: 1 + (seed % 7) as u32,
            window: 6,
            keys: 30,
            priorities: vec![5],
            flush_timer: false,
            per_key: true,
            seed,
            ..Setting::new(system)
        };
        let trace = |system: System| {
            let mut world = World::new(&of(system));
            world.trace = Some(Vec::new());
            let end = world.end();
            for node in world.workers() {
                world.produce(node, end);
            }
            // All packets are delivered, first come, first served, and no timer runs.
            world.settle();
            let mut slots = used(&world);
            slots += world.nodes.iter().map(|node| node.taken.len() << 8).sum::<usize>();
            let name = |(from, to, fragment): (Place, Place, Fragment)| {
                let marks = fragment.marks.without(Marks::COLLIDED);
                let Fragment { kind, job, number, workers, racks, slot, .. } = fragment;
                (from, to, kind, marks.without(Marks::EVICTED), job, number, workers, racks, slot)
            };
            let trace = world.trace.take().unwrap_or_default();
            // Only ESA's workers send their watermark without being asked, so those packets are left out.
            let trace = trace.into_iter().filter(|(.., fragment)| fragment.kind != Kind::Watermark);
            let trace: Vec<_> = trace.map(name).collect();
            (trace, slots)
        };
        let (ours, theirs) = (trace(System::Esa(settings)), trace(System::Atp));
        let differ = ours.0.iter().zip(&theirs.0).position(|(a, b)| a != b);
        assert!(differ.is_none(), "seed {seed}: {:?} {:?}", ours.0[differ.unwrap_or(0)], theirs.0[differ.unwrap_or(0)]);
        assert_eq!((ours.0.len(), ours.1), (theirs.0.len(), theirs.1), "seed {seed}");
    }
}
