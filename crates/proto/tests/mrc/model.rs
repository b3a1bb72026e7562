//! The state machine as the specification describes it.

use super::{BASE, States};
use std::collections::{BTreeMap, BTreeSet};
use strandway_proto::path::{MrcConfig, PathFeedback, PathStatus, Turnover};
use strandway_proto::{PathId, Span, Time};

#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    pub(super) at: Time,
    pub(super) interval: Span,
    pub(super) asked: Option<u32>,
    pub(super) ok: u32,
}

/// The state machine as the specification describes it. It leaves open the order of paths, and the choice among several
/// good paths in reserve: the model follows any allowed choice.
pub(super) struct Model {
    pub(super) config: MrcConfig,
    pub(super) ports: u8,
    pub(super) evs: States,
    pub(super) suspects: BTreeMap<PathId, Suspect>,
    pub(super) local: u32,
    pub(super) peer: u32,
    pub(super) floor: usize,
    pub(super) pace: Time,
    pub(super) turnover: Turnover,
}

pub(super) const USED: [PathStatus; 2] = [PathStatus::Good, PathStatus::Skip];

impl Model {
    pub(super) fn usable(&self) -> u32 {
        if self.local & self.peer != 0 { self.local & self.peer } else { self.local }
    }

    pub(super) fn is_usable(&self, path: PathId) -> bool {
        self.usable() >> path.port() & 1 == 1
    }

    /// Paths in use that packets may take, on usable planes.
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

    /// `path` is no longer usable: any good one in reserve on its plane may take its place.
    pub(super) fn replaced(evs: States, path: PathId) -> Vec<States> {
        let spare = |p: &PathId| p.port() == path.port() && evs[p] == (PathStatus::Good, false);
        let options: Vec<States> =
            evs.keys().copied().filter(spare).map(|into| Model::swapped(&evs, path, into)).collect();
        if evs[&path].1 && !options.is_empty() { options } else { vec![evs] }
    }

    /// `path` is good again: it goes into use in place of any unusable one, if its plane has one.
    pub(super) fn restored(mut evs: States, path: PathId) -> Vec<States> {
        evs.get_mut(&path).expect("a path").0 = PathStatus::Good;
        let lame = |p: &PathId| p.port() == path.port() && evs[p].1 && !USED.contains(&evs[p].0);
        let mut options: Vec<States> =
            evs.keys().copied().filter(lame).map(|out| Model::swapped(&evs, out, path)).collect();
        if evs[&path].1 || options.is_empty() {
            options = vec![evs];
        }
        options
    }

    /// A mark on a path: one in use is skipped once, one in reserve has no turn to skip.
    fn marked(mut evs: States, path: PathId) -> States {
        if let Some(ev) = evs.get_mut(&path).filter(|ev| **ev == (PathStatus::Good, true)) {
            ev.0 = PathStatus::Skip;
        }
        evs
    }

    fn fail(&mut self, now: Time, path: PathId) -> Vec<States> {
        let same = vec![self.evs.clone()];
        let Some(&(status, active)) = self.evs.get(&path) else {
            self.turnover.unknown += 1;
            return same;
        };
        if !self.is_usable(path) {
            return same;
        }
        if let Some(suspect) = self.suspects.get_mut(&path) {
            suspect.ok = 0;
        }
        if !USED.contains(&status) {
            return same;
        }
        if active && self.in_use() <= self.floor {
            self.turnover.suppressed += 1;
            return same;
        }
        self.turnover.retired += 1;
        let first = BASE.scaled(self.config.probe_first);
        self.suspects.insert(path, Suspect { at: now + first, interval: first, asked: None, ok: 0 });
        let mut evs = self.evs.clone();
        evs.get_mut(&path).expect("a path").0 = PathStatus::AssumedBad;
        Model::replaced(evs, path)
    }

    pub(super) fn feedback(&mut self, now: Time, path: PathId, feedback: PathFeedback) -> Vec<States> {
        match feedback {
            PathFeedback::Good => vec![self.evs.clone()],
            PathFeedback::Marked | PathFeedback::Trimmed => {
                self.turnover.unknown += u64::from(!self.evs.contains_key(&path));
                vec![Model::marked(self.evs.clone(), path)]
            }
            PathFeedback::Lost | PathFeedback::TimedOut | PathFeedback::Shunned => self.fail(now, path),
        }
    }

    pub(super) fn answer(&mut self, now: Time, path: PathId, number: u32, feedback: PathFeedback) -> Vec<States> {
        let same = vec![self.evs.clone()];
        let Some(suspect) = self.suspects.get_mut(&path).filter(|suspect| suspect.asked == Some(number)) else {
            return if feedback == PathFeedback::Marked { vec![Model::marked(self.evs.clone(), path)] } else { same };
        };
        let first = BASE.scaled(self.config.probe_first);
        let good = feedback != PathFeedback::Shunned;
        let ok = if good { suspect.ok + 1 } else { 0 };
        *suspect = Suspect { at: now + first, interval: first, asked: None, ok };
        if ok < self.config.probe_successes {
            return same;
        }
        self.suspects.remove(&path);
        self.turnover.returned += 1;
        let options = Model::restored(self.evs.clone(), path);
        match feedback {
            PathFeedback::Marked => options.into_iter().map(|evs| Model::marked(evs, path)).collect(),
            _ => options,
        }
    }

    pub(super) fn wait(&mut self, now: Time) {
        for suspect in self.suspects.values_mut() {
            if suspect.asked.is_some() && suspect.at <= now {
                suspect.interval = (suspect.interval * 2).min(self.config.probe_max);
                *suspect = Suspect { at: now + suspect.interval, asked: None, ok: 0, ..*suspect };
            }
        }
    }

    pub(super) fn due(&self, now: Time, ports: u32) -> BTreeSet<PathId> {
        let due = |(path, s): (&PathId, &Suspect)| {
            let is = s.asked.is_none() && s.at <= now && self.pace <= now;
            (is && (ports & self.usable()) >> path.port() & 1 == 1).then_some(*path)
        };
        self.suspects.iter().filter_map(due).collect()
    }

    /// Checks that this path was an allowed choice for a packet by one of these ports, and that `after` has the states
    /// that follow from it.
    pub(super) fn check_next(&mut self, mask: u32, given: Option<PathId>, after: States) {
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
