//! Figures of a process's groups for those who watch it: calls that wait, since when, and for which ranks.

use super::super::task::Task;
use super::{Engine, PeerConnection};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use strandway_udp::watch::{self, INTERVAL, Json, Part, Sample, Snapshot};
use strandway_udp::{Error, families};

/// The most calls under way that are served one by one, the oldest first: ours.
const CALLS_MAX: usize = 32;

/// The most ranks that a sentence names: ours.
const RANKS_MAX: usize = 4;

families! {
    RANKS "group_ranks" Gauge "Ranks of the group."
    UNDER_WAY "group_calls_under_way" Gauge "Calls of this rank that have begun and have not ended."
    FINISHED "group_calls_finished" Counter "Calls of this rank that have ended well, by kind."
    PROGRESS "group_last_progress_age_seconds" Gauge "Time since a call of this rank last moved."
    AGE "call_age_seconds" Gauge "Time since the call began at this rank."
    IDLE "call_idle_seconds" Gauge "Time since the call last moved at this rank."
    AWAITED "call_awaited_rank_silence_seconds" Gauge "A rank that the call waits for, and how long nothing has come from it."
}

/// The groups' part in what is served.
pub(super) struct Watching {
    part: Part,
    /// Steps left of each call at the last snapshot that had another number, and when that was.
    moved: HashMap<u64, (usize, Instant)>,
    /// Calls that have ended well, by group and kind, and the time of the last one of each group.
    finished: BTreeMap<(u64, &'static str), u64>,
    last: BTreeMap<u64, Instant>,
}

impl Watching {
    /// A process begins. `None` if nothing is served.
    pub(super) fn begin() -> Result<Option<Box<Watching>>, Error> {
        let begin = |part| Watching { part, moved: HashMap::new(), finished: BTreeMap::new(), last: BTreeMap::new() };
        Ok(watch::enrol("group")?.map(|part| Box::new(begin(part))))
    }

    /// A call has ended well.
    pub(super) fn note_finished(&mut self, task: &Task) {
        *self.finished.entry((task.call.group, task.call.what)).or_default() += 1;
        self.last.insert(task.call.group, Instant::now());
    }

    /// The time at which a call last moved, as far as snapshots tell.
    fn moved(&mut self, id: u64, task: &Task) -> Instant {
        let now = Instant::now();
        let entry = self.moved.entry(id).or_insert((task.left, task.began));
        if entry.0 != task.left {
            *entry = (task.left, now);
            self.last.insert(task.call.group, now);
        }
        entry.1
    }
}

/// A rank that a call waits for.
struct Awaited {
    rank: u32,
    host: String,
    /// How long nothing has come from it.
    silence: f64,
    /// The state of the way to it.
    way: String,
}

impl Engine {
    /// The longest wait of a turn, so that figures stay fresh while nothing happens.
    pub(super) fn watch_limit(&self) -> Option<std::time::Duration> {
        self.watching.as_ref().map(|_| INTERVAL)
    }

    /// Publishes the figures of all groups if they are due.
    pub(super) fn publish(&mut self) {
        let Some(mut watching) = self.watching.take_if(|watching| watching.part.is_due()) else { return };
        watching.moved.retain(|id, _| self.tasks.contains_key(id));
        let mut snapshot = Snapshot::default();
        let mut calls: Vec<u64> = self.tasks.keys().copied().collect();
        calls.sort_by_key(|id| self.tasks[id].began);
        let moved: HashMap<u64, Instant> = calls.iter().map(|id| (*id, watching.moved(*id, &self.tasks[id]))).collect();
        let mut groups: Vec<(u64, u32, usize)> =
            self.groups.iter().map(|(id, group)| (*id, group.rank, group.members.len())).collect();
        groups.sort_unstable();
        let mut rows = Vec::new();
        for (id, rank, ranks) in groups {
            let labels = [("group", format!("{id:x}")), ("rank", rank.to_string())];
            let own: Vec<u64> = calls.iter().copied().filter(|call| self.tasks[call].call.group == id).collect();
            let mut push = |family, more: &[(&'static str, String)], value: f64| {
                snapshot.samples.push(Sample::new(family, &[&labels[..], more].concat(), value));
            };
            push(&RANKS, &[], ranks as f64);
            push(&UNDER_WAY, &[], own.len() as f64);
            for ((_, what), count) in watching.finished.iter().filter(|((of, _), _)| *of == id) {
                push(&FINISHED, &[("call", what.to_string())], *count as f64);
            }
            let last = watching.last.get(&id).map(|at| at.elapsed().as_secs_f64());
            if let Some(last) = last {
                push(&PROGRESS, &[], last);
            }
            let mut shown = Vec::new();
            for call in own.into_iter().take(CALLS_MAX) {
                let task = &self.tasks[&call];
                let [age, idle] = [task.began, moved[&call]].map(|at| at.elapsed().as_secs_f64());
                // Sends and receives have no number of their own: the engine's tells them apart.
                let number = task.call.number.map_or(format!("task {call}"), |number| number.to_string());
                let more = [("call", task.call.what.to_string()), ("number", number.clone())];
                push(&AGE, &more, age);
                push(&IDLE, &more, idle);
                let awaited = self.awaited(task);
                for one in &awaited {
                    let more = [&more[..], &[("awaited", one.rank.to_string())]].concat();
                    push(&AWAITED, &more, one.silence);
                }
                shown.push((task.call.what, number, age, idle, awaited));
            }
            for (what, number, _, idle, awaited) in &shown {
                if *idle >= 1.0 {
                    snapshot.sentences.push(sentence(rank, what, number, *idle, awaited));
                }
            }
            let calls = shown.into_iter().map(|(what, number, age, idle, awaited)| {
                let ranks = awaited.into_iter().map(|one| {
                    Json::Object(vec![
                        ("rank", Json::from(u64::from(one.rank))),
                        ("host", Json::from(one.host)),
                        ("silence_s", Json::Number(one.silence)),
                        ("way", Json::from(one.way)),
                    ])
                });
                Json::Object(vec![
                    ("call", Json::from(what)),
                    ("number", Json::from(number)),
                    ("age_s", Json::Number(age)),
                    ("idle_s", Json::Number(idle)),
                    ("waits_for", Json::List(ranks.collect())),
                ])
            });
            rows.push(Json::Object(vec![
                ("group", Json::from(format!("{id:x}"))),
                ("rank", Json::from(u64::from(rank))),
                ("ranks", Json::from(ranks as u64)),
                ("last_progress_s", last.map_or(Json::Null, Json::Number)),
                ("calls", Json::List(calls.collect())),
            ]));
        }
        snapshot.status = Json::Object(vec![("groups", Json::List(rows))]);
        watching.last.retain(|group, _| self.groups.contains_key(group));
        watching.finished.retain(|(group, _), _| self.groups.contains_key(group));
        watching.part.publish(snapshot);
        self.watching = Some(watching);
    }

    /// The ranks that a call waits for, those first that have been silent longest.
    fn awaited(&self, task: &Task) -> Vec<Awaited> {
        let mut all: Vec<Awaited> = task
            .waits_for()
            .into_iter()
            .filter_map(|rank| {
                let peer = &self.peers[self.peer_of(task.call.group, rank)?];
                let (silence, way) = match &peer.line {
                    PeerConnection::Open(connection) => {
                        let silence = self.node.silence(*connection).map_or(0.0, |silence| silence.as_secs_f64());
                        let planes = self.node.observe().connection_counters(*connection).map(|counters| counters.up);
                        let state =
                            |(plane, up): (usize, &bool)| format!("plane p{plane} {}", if *up { "up" } else { "down" });
                        let planes: Vec<String> = planes.unwrap_or_default().iter().enumerate().map(state).collect();
                        (silence, if planes.is_empty() { "shared memory".into() } else { planes.join(", ") })
                    }
                    PeerConnection::Calling(_) => (peer.met.elapsed().as_secs_f64(), "calls it, no answer yet".into()),
                    PeerConnection::Expected => (peer.met.elapsed().as_secs_f64(), "it has not called yet".into()),
                    PeerConnection::Gone(why) => (peer.met.elapsed().as_secs_f64(), format!("gone: {why}")),
                };
                Some(Awaited { rank, host: peer.record.host.clone(), silence, way })
            })
            .collect();
        all.sort_by(|a, b| b.silence.total_cmp(&a.silence));
        all
    }
}

/// A rank that was heard within this many seconds is there: ours, longer than pings are apart.
const PRESENT: f64 = 1.0;

/// `rank 0: all_reduce 7 has not moved for 2.3 s; it waits for rank 3 at h3 (nothing from it for 2.3 s; plane p0 up)`.
fn sentence(rank: u32, what: &str, number: &str, idle: f64, awaited: &[Awaited]) -> String {
    let of = |one: &Awaited| {
        let heard = match one.silence < PRESENT {
            true => "it answers, but has not sent its part".to_string(),
            false => format!("nothing from it for {:.1} s", one.silence),
        };
        format!("rank {} at {} ({heard}; {})", one.rank, one.host, one.way)
    };
    let mut ranks: Vec<String> = awaited.iter().take(RANKS_MAX).map(of).collect();
    if awaited.len() > RANKS_MAX {
        ranks.push(format!("{} more", awaited.len() - RANKS_MAX));
    }
    let ranks = if ranks.is_empty() { "its own part".to_string() } else { ranks.join(", ") };
    format!("rank {rank}: {what} {number} has not moved for {idle:.1} s; it waits for {ranks}")
}
