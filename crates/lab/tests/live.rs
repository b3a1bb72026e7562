//! Runs whose messages come from outside: the same messages take the same times as in a run of a trace.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use strandway_fabric::measure::End;
use strandway_lab::facts::flow_rows;
use strandway_lab::live::{LiveError, LiveEvent, LiveOutcome, What};
use strandway_lab::{Experiment, Lab};
use strandway_proto::HostId;
use strandway_proto::units::{Span, Time};
use strandway_scenario::parse;
use support::*;

const KIB: u64 = 1024;

/// The work of a rank, one thing after the other.
#[derive(Clone, Copy)]
enum Does {
    /// Sends bytes to a rank, and goes on when they are acknowledged.
    Send(u32, u64),
    Receive(u32),
    Compute(u64),
}

/// A simulator of training in miniature: each rank does one thing after the other; sends and receives are matched by
/// their ends, in order.
struct Ranks {
    left: Vec<VecDeque<Does>>,
    /// Messages that have arrived and nobody waits for, by receiver and sender.
    arrived: BTreeMap<(u32, u32), u32>,
    waiting: Vec<Option<u32>>,
    ended: Vec<Time>,
}

impl Ranks {
    fn new(ranks: u32, of: impl Fn(u32) -> Vec<Does>) -> Ranks {
        let left = (0..ranks).map(|rank| of(rank).into()).collect();
        let count = ranks as usize;
        Ranks { left, arrived: BTreeMap::new(), waiting: vec![None; count], ended: vec![Time::ZERO; count] }
    }

    fn go_on(&mut self, lab: &Lab, rank: u32) {
        self.ended[rank as usize] = lab.now();
        while let Some(next) = self.left[rank as usize].pop_front() {
            match next {
                Does::Send(to, bytes) => drop(lab.post(HostId(rank), HostId(to), bytes, 7).expect("posted")),
                Does::Compute(us) => lab.schedule(HostId(rank), Span::from_us(us), 0).expect("scheduled"),
                Does::Receive(from) => match self.arrived.get_mut(&(rank, from)).filter(|count| **count > 0) {
                    Some(count) => {
                        *count -= 1;
                        continue;
                    }
                    None => self.waiting[rank as usize] = Some(from),
                },
            }
            return;
        }
    }

    fn answer(&mut self, lab: &Lab, event: &LiveEvent) {
        let rank = event.host.0;
        assert_eq!(lab.now(), event.at);
        match event.what {
            What::Received { message } => {
                let from = lab.message(message).expect("it was posted").from.0;
                if self.waiting[rank as usize] != Some(from) {
                    *self.arrived.entry((rank, from)).or_default() += 1;
                    return;
                }
                self.waiting[rank as usize] = None;
                self.go_on(lab, rank);
            }
            What::Sent { .. } | What::Timer { .. } => self.go_on(lab, rank),
            What::Failed { peer } => panic!("no connection to {peer:?} fails"),
        }
    }
}

fn open(text: &str) -> Lab {
    Lab::open(&parse(text).expect("TOML")).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs ranks on a fabric. `early`: connections are open from the start, as those of traces are.
fn run_ranks(text: &str, ranks: Ranks, early: bool) -> (LiveOutcome, Vec<Time>) {
    let lab = open(text);
    let count = ranks.left.len() as u32;
    for rank in (0..count).filter(|_| early) {
        let mut peers: Vec<u32> = Vec::new();
        for does in &ranks.left[rank as usize] {
            if let Does::Send(to, _) = *does
                && !peers.contains(&to)
            {
                peers.push(to);
                lab.connect(HostId(rank), HostId(to)).expect("before the run");
            }
        }
    }
    let ranks = Arc::new(Mutex::new(ranks));
    (0..count).for_each(|rank| ranks.lock().expect("whole").go_on(&lab, rank));
    let answers = Arc::clone(&ranks);
    let done = lab.run(move |lab, event| answers.lock().expect("whole").answer(lab, event)).expect("the first run");
    let ended = ranks.lock().expect("whole").ended.clone();
    (done, ended)
}

/// The times of all messages, in ps.
fn times(experiment: &Experiment, measured: &strandway_fabric::Measurements) -> Vec<(u32, u32, u64, [u64; 3])> {
    let of = |time: Option<Time>| time.expect("it ended").0;
    let mut rows: Vec<_> = flow_rows(experiment, measured)
        .map(|row| {
            let times = [of(row.started), of(row.received), of(row.finished)];
            (row.source.0, row.destination.0, row.bytes, times)
        })
        .collect();
    rows.sort_unstable();
    rows
}

/// The trace of the same ranks, for `[job] file`.
fn trace_of(does: &[Does]) -> Vec<Node> {
    let node = |(id, does): (u64, &Does)| {
        let before: Vec<u64> = id.checked_sub(1).into_iter().collect();
        match *does {
            Does::Send(to, bytes) => {
                Node::new(id, SEND, &before).int("comm_dst", to.into()).int("comm_tag", 7).int("comm_size", bytes)
            }
            Does::Receive(from) => {
                Node::new(id, RECEIVE, &before).int("comm_src", from.into()).int("comm_tag", 7).int("comm_size", 1)
            }
            Does::Compute(us) => Node::new(id, COMPUTE, &before).lasting(us),
        }
    };
    (0..).zip(does).map(node).collect()
}

fn ring(ranks: u32, steps: u32) -> impl Fn(u32) -> Vec<Does> {
    move |rank| {
        let step =
            |_| [Does::Send((rank + 1) % ranks, 64 * KIB), Does::Receive((rank + ranks - 1) % ranks), Does::Compute(5)];
        (0..steps).flat_map(step).collect()
    }
}

/// Every rank sends to each other one, then waits for all.
fn all_to_all(ranks: u32) -> impl Fn(u32) -> Vec<Does> {
    move |rank| {
        let others = || (1..ranks).map(move |away| (rank + away) % ranks);
        others().map(|to| Does::Send(to, 100 * KIB)).chain(others().map(Does::Receive)).collect()
    }
}

#[test]
fn messages_from_outside_take_the_times_of_a_trace_to_the_picosecond() {
    // One leaf, then four; then a spine whose links are slow, loss, and other profiles.
    let slow = "[[faults]]\nlink = \"leaf0->spine1\"\nkind = \"degrade\"\nfraction = 0.25\n";
    for (ranks, more) in [(8, ""), (24, ""), (24, slow)] {
        for profile in ["uec", "rocev2", "strack"] {
            let fabric = format!("{}{more}", FABRIC.replace("\"uec\"", &format!("{profile:?}")));
            for of in [Box::new(ring(ranks, 6)) as Box<dyn Fn(u32) -> Vec<Does>>, Box::new(all_to_all(ranks))] {
                let folder = Folder::new("live");
                (0..ranks).for_each(|rank| drop(folder.write(&format!("set.{rank}.et"), trace(&trace_of(&of(rank))))));
                let text = format!("{fabric}[job]\nfile = {:?}\n", folder.0.join("set").display().to_string());
                let experiment = check(&text, &[]).unwrap_or_else(|e| panic!("{e}"));
                let native = strandway_lab::run(&experiment, &strandway_sim::Control::new());
                let (live, ended) = run_ranks(&fabric, Ranks::new(ranks, &of), true);
                let what = format!("{profile} {ranks} {more}");
                assert_eq!(live.outcome.report.head.end, "finished", "{what}");
                assert_eq!(
                    times(&live.experiment, &live.outcome.measurements),
                    times(&experiment, &native.measurements),
                    "{what}"
                );
                assert_eq!(live.outcome.measurements.simulated, native.measurements.simulated, "{what}");
                assert_eq!(live.outcome.measurements.links, native.measurements.links, "{what}");
                let last = ended.into_iter().max().expect("ranks").as_us();
                near(last, native.report.jobs[0].time_us.expect("it ended"), 1e-12);
            }
        }
    }
}

#[test]
fn one_run_is_like_the_other_and_like_one_that_is_asked_for_each_event() {
    let of = all_to_all(16);
    let digest = |early| run_ranks(FABRIC, Ranks::new(16, &of), early).0.outcome.report.head.digest;
    let (first, early) = (digest(false), digest(true));
    assert_eq!(first, digest(false));
    assert_ne!(first, early, "connections that open at first use have other random numbers");
    let lab = open(FABRIC);
    let mut ranks = Ranks::new(16, &of);
    (0..16).for_each(|rank| ranks.go_on(&lab, rank));
    let mut steps = lab.steps();
    let mut at = vec![Time::ZERO; 32];
    while let Some(event) = steps.next_event() {
        assert!(at[event.host.0 as usize] <= event.at, "time goes back at {:?}", event.host);
        at[event.host.0 as usize] = event.at;
        ranks.answer(&lab, &event);
    }
    let done = steps.finish().expect("the first run");
    assert_eq!(done.outcome.report.head.digest, first);
    assert_eq!(done.outcome.report.flows.finished, 16 * 15);
    // A caller that loses interest leaves no thread behind.
    let lab = open(FABRIC);
    lab.post(HostId(0), HostId(1), 1 << 40, 0).expect("posted");
    lab.schedule(HostId(0), Span::from_us(1), 0).expect("scheduled");
    let mut steps = lab.steps();
    assert_eq!(steps.next_event().map(|event| event.at), Some(Time::ZERO + Span::from_us(1)));
    drop(steps);
    assert_eq!(lab.run(|_, _| {}).err(), Some(LiveError::TooLate));
}

#[test]
fn an_event_reaches_another_host_after_a_link_latency() {
    let lab = open(FABRIC);
    lab.schedule(HostId(3), Span::from_us(2), 1).expect("scheduled");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let done = lab.run(move |lab, event| {
        notes.lock().expect("whole").push(*event);
        match event.what {
            What::Timer { word: 1 } => {
                lab.schedule(HostId(20), Span::ZERO, 2).expect("scheduled");
                lab.schedule(HostId(20), Span::from_us(9), 3).expect("scheduled");
                lab.post(HostId(20), HostId(3), 1000, 0).expect("posted");
                lab.schedule(HostId(3), Span::ZERO, 4).expect("scheduled");
            }
            What::Timer { word: 2 } => assert_eq!(lab.message(0).expect("posted").started, None),
            _ => {}
        }
    });
    let done = done.expect("the first run");
    let at = |word| {
        let seen = seen.lock().expect("whole");
        let event = seen.iter().find(|event| event.what == What::Timer { word }).copied();
        let event = event.expect("it expired");
        (event.host.0, event.at.0 / 1000)
    };
    assert_eq!([at(1), at(4), at(2), at(3)], [(3, 2000), (3, 2000), (20, 2500), (20, 11_000)]);
    assert_eq!(done.messages[0].started, Some(Time::ZERO + Span::from_ns(2500)));
    assert_eq!(done.outcome.measurements.end, End::Finished);
}

#[test]
fn messages_from_outside_run_beside_a_workload_and_are_in_its_report() {
    let text = format!("{FABRIC}[workload]\nkind = \"all-reduce\"\nranks = 16\nsize = \"1 MiB\"\nrows = false\n");
    let lab = open(&text.replace("rows = false\n", ""));
    lab.post(HostId(30), HostId(2), 1 << 20, 5).expect("posted");
    let done = lab.run(|_, _| {}).expect("the first run");
    let report = &done.outcome.report;
    let posted = report.classes.iter().find(|class| class.name == "posted").expect("a class of its own");
    assert_eq!((posted.total, posted.finished, posted.bytes), (1, 1, 1 << 20));
    assert_eq!(report.collectives.len(), 1);
    assert!(done.messages[0].received < done.messages[0].finished);
    let alone = open(FABRIC);
    alone.post(HostId(30), HostId(2), 1 << 20, 5).expect("posted");
    let alone = alone.run(|_, _| {}).expect("the first run");
    assert!(alone.messages[0].finished < done.messages[0].finished, "they share links");
    near(alone.outcome.report.times.slowdown.max.expect("one message"), 1.0, 0.02);
}

#[test]
fn wrong_calls_are_refused() {
    let lab = open(FABRIC);
    assert_eq!(lab.hosts(), 32);
    assert_eq!(lab.post(HostId(0), HostId(32), 1, 0), Err(LiveError::NoHost(HostId(32), 32)));
    assert_eq!(lab.post(HostId(4), HostId(4), 1, 0), Err(LiveError::ToItself(HostId(4))));
    assert_eq!(lab.post(HostId(4), HostId(5), u64::MAX, 0), Err(LiveError::TooLong(u64::MAX)));
    assert_eq!(lab.schedule(HostId(99), Span::ZERO, 0), Err(LiveError::NoHost(HostId(99), 32)));
    assert_eq!(lab.run(|_, _| {}).expect("an empty run").messages, []);
    assert_eq!(lab.post(HostId(0), HostId(1), 1, 0), Err(LiveError::TooLate));
    assert_eq!(lab.connect(HostId(0), HostId(1)), Err(LiveError::TooLate));
    let problem = Lab::open(&parse("[fabric]\nhosts = 0\n").expect("TOML"));
    assert!(problem.is_err());
}
