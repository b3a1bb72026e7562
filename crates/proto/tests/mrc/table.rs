//! The table of states and events of entropy values, row by row, and the record of their changes.

use super::{BASE, build, states};
use strandway_proto::path::{
    EvProfile, Mrc, MrcConfig, PATH_EVENTS_MAX, PathChange, PathFeedback, PathManager, PathProbe, PathSelector,
    PathStatus,
};
use strandway_proto::{PathId, Ports, Span, Time};

/// The states of the table's columns.
const COLUMNS: [&str; 5] = ["good", "skip", "bad", "denied", "backup"];

const ONE: Ports = Ports { data: 1, control: 1 };

/// A plane with three active paths and two in reserve, and the path that is in the column's state.
struct Bench {
    mrc: Mrc,
    path: PathId,
    now: Time,
}

impl Bench {
    fn new(column: &str, backup: u32) -> Bench {
        let config = MrcConfig { active: 3, backup, reverse: false, ..MrcConfig::default() };
        let mut mrc = build(config, 1, 5);
        let paths = states(&mrc);
        let wanted = column != "backup";
        let path = *paths.iter().find(|(_, (_, active))| *active == wanted).expect("a path").0;
        let mut bench = Bench { mrc, path, now: Time(1) };
        match column {
            "skip" => bench.mrc.on_feedback(bench.now, path, PathFeedback::Marked),
            "bad" => bench.mrc.on_feedback(bench.now, path, PathFeedback::Lost),
            "denied" => assert!(bench.mrc.deny(bench.now, path)),
            _ => {}
        }
        mrc = bench.mrc;
        while mrc.take_event().is_some() {}
        Bench { mrc, ..bench }
    }

    /// The column in which the path is now.
    fn column(&self) -> &'static str {
        match states(&self.mrc).get(&self.path) {
            Some((PathStatus::Good, false)) => "backup",
            Some((PathStatus::Good, true)) => "good",
            Some((PathStatus::Skip, _)) => "skip",
            Some((PathStatus::AssumedBad, _)) => "bad",
            Some((PathStatus::Denied, _)) => "denied",
            None => "gone",
        }
    }

    fn feedback(&mut self, feedback: PathFeedback) {
        self.mrc.on_feedback(self.now, self.path, feedback);
    }

    /// The number of the probe of the path, which is due.
    fn probe(&mut self) -> Option<u32> {
        self.now = self.now + BASE * 50_000;
        self.mrc.on_timeout(self.now);
        match self.mrc.take_probe(self.now, ONE)? {
            PathProbe::Connection { path, number } if path == self.path => Some(number),
            other => panic!("a probe of another path: {other:?}"),
        }
    }

    /// An answered probe of the path: its own if it is probed, else one of the connection.
    fn answer(&mut self, feedback: PathFeedback) {
        let number = self.probe().unwrap_or(7);
        self.mrc.on_probe_answer(self.now, self.path, number, feedback);
    }

    /// The number of answered probes after which the path is good again.
    fn answers_to_return(&mut self) -> u32 {
        (1..10)
            .find(|_| {
                self.answer(PathFeedback::Good);
                self.column() != "bad"
            })
            .expect("it returns")
    }

    fn changes(&mut self) -> Vec<PathChange> {
        std::iter::from_fn(|| self.mrc.take_event()).map(|event| event.change).collect()
    }
}

/// An event of the table.
type Happens = fn(&mut Bench);

/// The event, and the state that follows in each column.
const TABLE: [(&str, Happens, [&str; 5]); 16] = [
    ("SACK m=00", |b| b.feedback(PathFeedback::Good), COLUMNS),
    ("SACK m=01", |b| b.feedback(PathFeedback::Marked), ["skip", "skip", "bad", "denied", "backup"]),
    ("SACK m=10", |b| b.feedback(PathFeedback::Shunned), ["bad", "bad", "bad", "denied", "bad"]),
    ("NACK TRIMMED", |b| b.feedback(PathFeedback::Trimmed), ["skip", "skip", "bad", "denied", "backup"]),
    ("loss", |b| b.feedback(PathFeedback::Lost), ["bad", "bad", "bad", "denied", "bad"]),
    ("timeout", |b| b.feedback(PathFeedback::TimedOut), ["bad", "bad", "bad", "denied", "bad"]),
    ("answered probe m=00", |b| b.answer(PathFeedback::Good), COLUMNS),
    ("answered probe m=01", |b| b.answer(PathFeedback::Marked), ["skip", "skip", "bad", "denied", "backup"]),
    // With two in reserve the plane is not short, so a path that returns stays in reserve.
    (
        "three answered probes",
        |b| (0..3).for_each(|_| b.answer(PathFeedback::Good)),
        ["good", "skip", "backup", "denied", "backup"],
    ),
    ("controller sets DENIED", |b| assert!(b.mrc.deny(b.now, b.path)), ["denied"; 5]),
    ("controller sets GOOD", |b| assert!(b.mrc.allow(b.now, b.path)), ["good", "good", "backup", "backup", "backup"]),
    ("plane masked", |b| b.mrc.on_peer_ports(b.now, 1, 0), COLUMNS),
    (
        "loss on a masked plane",
        |b| {
            // A NIC with one port uses it in any case, so two planes are needed.
            let (column, config) =
                (b.column(), MrcConfig { active: 6, backup: 4, reverse: false, ..MrcConfig::default() });
            let mut mrc = build(config, 2, 5);
            let wanted = column != "backup";
            b.path =
                *states(&mrc).iter().find(|(p, (_, active))| p.port() == 1 && *active == wanted).expect("a path").0;
            match column {
                "skip" => mrc.on_feedback(b.now, b.path, PathFeedback::Marked),
                "bad" => mrc.on_feedback(b.now, b.path, PathFeedback::Lost),
                "denied" => assert!(mrc.deny(b.now, b.path)),
                _ => {}
            }
            mrc.on_ports(b.now, 0b01);
            mrc.on_feedback(b.now, b.path, PathFeedback::Lost);
            b.mrc = mrc;
        },
        COLUMNS,
    ),
    (
        "controller replaces it by a good one",
        |b| {
            let new = PathId::new(0, 99);
            assert!(b.mrc.substitute(b.now, b.path, new, PathStatus::Good));
            assert_eq!((b.column(), b.mrc.substitute(b.now, b.path, new, PathStatus::Good)), ("gone", false));
            b.path = new;
        },
        ["good", "good", "backup", "backup", "backup"],
    ),
    (
        "controller replaces it by a bad one",
        |b| {
            let new = PathId::new(0, 99);
            assert!(b.mrc.substitute(b.now, b.path, new, PathStatus::AssumedBad));
            b.path = new;
        },
        ["bad"; 5],
    ),
    (
        "controller replaces it by a denied one",
        |b| {
            let new = PathId::new(0, 99);
            assert!(b.mrc.substitute(b.now, b.path, new, PathStatus::Denied));
            b.path = new;
        },
        ["denied"; 5],
    ),
];

#[test]
fn every_event_in_every_state_leads_where_the_table_says() {
    for (name, happens, after) in TABLE {
        for (column, wanted) in COLUMNS.iter().zip(after) {
            let mut bench = Bench::new(column, 2);
            assert_eq!(bench.column(), *column, "the bench");
            happens(&mut bench);
            assert_eq!(bench.column(), wanted, "{name} in state {column}");
        }
    }
}

#[test]
fn the_scan_uses_good_ones_passes_over_others_and_restores_one_that_is_to_be_skipped() {
    for (column, used, after) in [
        ("good", true, "good"),
        ("skip", false, "good"),
        ("bad", false, "bad"),
        ("denied", false, "denied"),
        ("backup", false, "backup"),
    ] {
        let mut bench = Bench::new(column, 2);
        // One round over the three active paths.
        let round: Vec<PathId> = (0..3).filter_map(|_| bench.mrc.next(bench.now, ONE)).collect();
        // The path to be skipped is met once in this round; a fourth packet begins the next one.
        assert_eq!((round.contains(&bench.path) && column != "skip", bench.column()), (used, after), "{column}");
    }
}

#[test]
fn a_plane_that_is_short_takes_a_returning_path_into_use() {
    for (column, event) in [
        ("denied", (|b| assert!(b.mrc.allow(b.now, b.path))) as Happens),
        ("bad", |b| assert!(b.mrc.allow(b.now, b.path))),
        ("bad", |b| (0..3).for_each(|_| b.answer(PathFeedback::Good))),
    ] {
        let mut bench = Bench::new(column, 0);
        event(&mut bench);
        assert_eq!(bench.column(), "good", "{column}");
    }
}

#[test]
fn probes_that_are_not_answered_and_new_losses_start_the_count_again() {
    let mut bench = Bench::new("bad", 2);
    assert_eq!(bench.answers_to_return(), 3);
    assert_eq!(bench.changes(), [[PathChange::Answered; 3].as_slice(), &[PathChange::Returned]].concat());
    for spoil in [
        (|b| b.feedback(PathFeedback::Shunned)) as Happens,
        |b| b.feedback(PathFeedback::Lost),
        |b| b.feedback(PathFeedback::TimedOut),
        |b| {
            b.probe().expect("due");
            // Its answer does not come in four round trips.
            b.now = b.now + BASE * 5;
            b.mrc.on_timeout(b.now);
        },
    ] {
        let mut bench = Bench::new("bad", 2);
        (0..2).for_each(|_| bench.answer(PathFeedback::Good));
        spoil(&mut bench);
        assert_eq!((bench.column(), bench.answers_to_return()), ("bad", 3));
        assert!(!bench.changes().contains(&PathChange::Failed), "no second event");
    }
    // The interval doubles with each probe that is not answered.
    let mut bench = Bench::new("bad", 2);
    bench.probe().expect("due");
    for doubled in [2, 4, 8] {
        let lost = bench.now + BASE * 4;
        bench.mrc.on_timeout(lost);
        assert_eq!(bench.mrc.deadline(), lost + BASE * doubled);
        bench.now = lost + BASE * doubled;
        bench.mrc.on_timeout(bench.now);
        assert!(bench.mrc.take_probe(bench.now, ONE).is_some());
    }
}

#[test]
fn changes_are_recorded_with_their_times_and_counted_when_nothing_reads_them() {
    let mut bench = Bench::new("good", 2);
    let (path, now) = (bench.path, bench.now);
    bench.feedback(PathFeedback::Lost);
    bench.mrc.deny(now, path);
    bench.mrc.deny(now, path);
    bench.mrc.allow(now, path);
    bench.feedback(PathFeedback::Marked);
    let events: Vec<_> = std::iter::from_fn(|| bench.mrc.take_event()).collect();
    assert_eq!(
        events.iter().map(|e| e.change).collect::<Vec<_>>(),
        [PathChange::Failed, PathChange::Denied, PathChange::Allowed]
    );
    assert!(events.iter().all(|e| (e.at, e.path, e.lost) == (now, path, 0)));
    // Verdicts about paths outside the set are only counted.
    let before = bench.mrc.turnover();
    bench.mrc.on_feedback(now, PathId::new(0, 77), PathFeedback::Lost);
    bench.mrc.on_feedback(now, PathId::new(9, 1), PathFeedback::Marked);
    assert_eq!((bench.mrc.turnover().unknown - before.unknown, bench.mrc.take_event()), (2, None));
    for _ in 0..PATH_EVENTS_MAX {
        bench.mrc.deny(now, path);
        bench.mrc.allow(now, path);
    }
    assert_eq!(std::iter::from_fn(|| bench.mrc.take_event()).count(), PATH_EVENTS_MAX);
    bench.mrc.deny(now + Span(9), path);
    assert_eq!(bench.mrc.take_event().map(|e| (e.at, e.lost)), Some((now + Span(9), PATH_EVENTS_MAX as u32)));
}

#[test]
fn a_profile_fixes_the_paths_and_planes_may_have_different_numbers_of_them() {
    let named =
        |paths: &[(u8, u32)]| paths.iter().map(|(plane, number)| PathId::new(*plane, *number)).collect::<Vec<_>>();
    let config = MrcConfig { active: 4, backup: 4, reverse: false, ..MrcConfig::default() };
    let mut mrc = build(config, 2, 16);
    let paths = named(&[(0, 3), (0, 5), (0, 9), (1, 12)]);
    mrc.use_profile(&EvProfile::Explicit(paths.clone()));
    assert_eq!(states(&mrc).into_keys().collect::<Vec<_>>(), paths);
    // Two active ones for each plane as before; the other is in reserve, and plane 1 has only one.
    let counts: Vec<(u32, u32, u32)> = mrc.planes().iter().map(|p| (p.good, p.backup, p.denied)).collect();
    assert_eq!(counts, [(2, 1, 0), (1, 0, 0)]);
    let both = Ports { data: 3, control: 3 };
    let used: Vec<PathId> = (0..400).filter_map(|_| mrc.next(Time(1), both)).collect();
    assert_eq!(used.len(), 400);
    assert!(used.iter().all(|path| paths.contains(path)));
    assert_eq!(used.iter().filter(|path| path.port() == 1).count(), 200, "planes take turns");
    // The only path of a plane is never taken out below the floor, and can be denied.
    assert!(mrc.deny(Time(1), PathId::new(1, 12)));
    assert!((0..100).filter_map(|_| mrc.next(Time(1), both)).all(|path| path.port() == 0));
}

/// The world's probes find a plane silent: it has no part in anything until it answers again.
#[test]
fn a_silent_plane_is_not_used_and_keeps_its_states() {
    const TWO: Ports = Ports { data: 0b11, control: 0b11 };
    let mut now = Time(1);
    let mut mrc = build(MrcConfig { active: 6, backup: 4, reverse: false, ..MrcConfig::default() }, 2, 5);
    let before = states(&mrc);
    mrc.on_silence(now, 0b10);
    assert!((0..20).all(|_| mrc.next(now, TWO).is_some_and(|path| path.port() == 0)));
    before.keys().filter(|path| path.port() == 1).for_each(|&path| mrc.on_feedback(now, path, PathFeedback::Lost));
    assert_eq!(states(&mrc), before, "losses of a silent plane say nothing about its paths");
    assert_eq!(mrc.reply_path(now, PathId::new(1, 0)).port(), 0);
    // Its good paths do not keep the other plane from the last resort: a bad path.
    before.keys().filter(|path| path.port() == 0).for_each(|&path| mrc.on_feedback(now, path, PathFeedback::Lost));
    assert!(mrc.next(now, TWO).is_some_and(|path| path.port() == 0));
    now = now + Span::from_ms(1);
    mrc.on_silence(now, 0b11);
    let mut used = [false; 2];
    (0..20).filter_map(|_| mrc.next(now, TWO)).for_each(|path| used[usize::from(path.port())] = true);
    assert!(used[1], "if all are silent, any may be used");
    mrc.on_silence(now, 0);
    assert!((0..20).filter_map(|_| mrc.next(now, TWO)).any(|path| path.port() == 1));
}
