//! Begins and ends the steps of a rank, and divides its time among them.

use super::TrainingRank;
use super::operations::pipe_of;
use crate::script::{COMPUTE, RankOperation, STREAMS_MAX, Step, Work};
use crate::transfer::Transfer;
use std::collections::BTreeSet;
use strandway_proto::RankTimes;
use strandway_proto::application::{Action, Application, Stage};
use strandway_proto::rank_times::StepTimes;
use strandway_proto::units::{Span, Time};

impl TrainingRank<'_> {
    /// Ends every step that has ended by `now` and begins every step that can begin.
    pub(super) fn advance(&mut self, now: Time) {
        if self.times.begun.is_none() {
            if now < self.job.start {
                return;
            }
            self.times.begun = Some(now);
            self.since = now;
            self.slow = 1.0 + self.job.stragglers * self.random.unit();
            self.stage(Stage::Begun);
        }
        let mut moves = true;
        while moves && self.left > 0 {
            moves = self.end_operations(now);
            for stream in 0..self.lanes.len() {
                moves |= self.end_computing(now, stream);
                moves |= match self.frontier {
                    Some(_) => self.begin_ready(now, stream),
                    None => self.begin_next(now, stream),
                };
            }
        }
    }

    /// Ends the steps whose operation is complete. Returns true if it ended at least one.
    fn end_operations(&mut self, now: Time) -> bool {
        let mut any = false;
        for at in 0..self.live.len() {
            let part = &mut self.live[at];
            if part.awaited.is_some()
                && part.program.is_complete()
                && let Some(step) = part.awaited.take()
            {
                any = true;
                self.end(now, step);
            }
        }
        any
    }

    /// Ends a compute step whose time is over. Returns true if it did.
    fn end_computing(&mut self, now: Time, stream: usize) -> bool {
        let Some((step, _)) = self.lanes[stream].runs.filter(|&(_, until)| until <= now) else { return false };
        self.end(now, step);
        true
    }

    /// Begins the next step of a stream if nothing blocks it. Returns true if it did.
    fn begin_next(&mut self, now: Time, stream: usize) -> bool {
        let lane = self.lanes[stream];
        let Some(&place) = self.script.streams()[stream].get(lane.next) else { return false };
        let step = &self.script.steps()[place as usize];
        if lane.runs.is_some() || !step.after.iter().all(|&before| self.ended[before as usize]) {
            return false;
        }
        if self.job.keeps_steps {
            self.times.steps.push(StepTimes { step: place, begun: now, ended: Time::NEVER });
        }
        let until = match step.work {
            Work::Compute(nominal) => now + self.length(nominal),
            Work::Operation(operation) => {
                let Some(at) = self.made(now, operation) else { return false };
                let part = &mut self.live[at];
                part.awaited = Some(place);
                part.begun = true;
                part.program.begin(now);
                Time::NEVER
            }
        };
        self.lanes[stream].runs = Some((place, until));
        if step.stream == COMPUTE {
            let blamed = self.blamed(step);
            self.times.waited[usize::from(blamed)] += now.since(self.since);
            self.since = now;
        }
        true
    }

    /// Begins the steps of a stream that nothing blocks, if the script is a graph. Returns true if it began at least
    /// one.
    fn begin_ready(&mut self, now: Time, stream: usize) -> bool {
        let free = self.script.is_free(stream as u8);
        let mut any = false;
        while free || self.lanes[stream].runs.is_none() {
            let Some(place) = self.frontier.as_mut().and_then(|frontier| frontier.take(stream)) else { return any };
            any = true;
            self.begin_step(now, stream, place);
        }
        any
    }

    /// Begins a step of a graph.
    fn begin_step(&mut self, now: Time, stream: usize, place: u32) {
        let script = self.script;
        let step = &script.steps()[place as usize];
        if self.job.keeps_steps {
            if let Some(frontier) = &mut self.frontier {
                frontier.kept[place as usize] = self.times.steps.len() as u32;
            }
            self.times.steps.push(StepTimes { step: place, begun: now, ended: Time::NEVER });
        }
        if step.stream == COMPUTE {
            self.charge(now, place);
        }
        let mut over = None;
        let until = match step.work {
            Work::Compute(nominal) => now + self.length(nominal),
            Work::Operation(operation) => match self.operations[operation as usize] {
                RankOperation::Send { pipe, index } => {
                    let pipe = pipe_of(self.all, pipe);
                    let mut sender = Transfer::new(pipe, index, true);
                    sender.begin(now);
                    while let Some(action) = sender.poll_action(now) {
                        self.out.push_back(action);
                    }
                    over = self.begin_message(operation, pipe.pieces);
                    Time::NEVER
                }
                RankOperation::Receive { pipe, .. } => {
                    over = self.begin_message(operation, pipe_of(self.all, pipe).pieces);
                    Time::NEVER
                }
                RankOperation::Hand { gives: false, .. } => {
                    over = self.begin_message(operation, 1);
                    Time::NEVER
                }
                RankOperation::Hand { local, gives: true } => self.hand(now, step.stream, local),
                _ => {
                    if let Some(at) = self.made(now, operation) {
                        let part = &mut self.live[at];
                        part.awaited = Some(place);
                        part.begun = true;
                        part.program.begin(now);
                    }
                    Time::NEVER
                }
            },
        };
        if !script.is_free(stream as u8) {
            self.lanes[stream].runs = Some((place, until));
        } else if until <= now {
            over = Some(place);
        }
        if let Some(frontier) = &mut self.frontier {
            frontier.begun(now, script, place);
        }
        if let Some(place) = over {
            self.end(now, place);
        }
    }

    /// Divides the time until `now`, in which the compute stream waited for `place`, a step of a graph. The time from
    /// the release of an operation until its end belongs to its kind. The time before belongs to the step that released
    /// it, and so on. The time of computation on another lane counts as computed.
    fn charge(&mut self, now: Time, place: u32) {
        let since = std::mem::replace(&mut self.since, now);
        let Some(frontier) = &self.frontier else { return };
        let (mut until, mut cause) = (now, frontier.cause(place));
        while let Some(place) = cause.filter(|_| until > since) {
            let step = &self.script.steps()[place as usize];
            let from = frontier.released(place).clamp(since, until);
            match step.work {
                Work::Operation(_) => self.times.waited[usize::from(step.kind)] += until.since(from),
                Work::Compute(_) => self.times.computed += until.since(from),
            }
            (until, cause) = (from, frontier.cause(place));
        }
    }

    /// Charges the time `rest` at the end of a run, before `place` has begun. It belongs to an operation that has not
    /// ended if `place` waits for one; otherwise it counts as computed.
    pub(super) fn charge_unfinished(&self, place: u32, rest: Span, times: &mut RankTimes) {
        let steps = self.script.steps();
        let (mut found, mut left) = (None, vec![place]);
        let mut seen = BTreeSet::new();
        while let Some(place) = left.pop().filter(|_| found.is_none()) {
            let unfinished = |before: &&u32| !self.ended[**before as usize];
            for &before in steps[place as usize].after.iter().rev().filter(unfinished) {
                if seen.insert(before) {
                    left.push(before);
                }
            }
            let step = &steps[place as usize];
            let waits = step.after.iter().any(|before| !self.ended[*before as usize]);
            found = Some(step.kind).filter(|_| matches!(step.work, Work::Operation(_)) && !waits);
        }
        match found {
            Some(kind) => times.waited[usize::from(kind)] += rest,
            None => times.computed += rest,
        }
    }

    fn begin_message(&mut self, operation: u32, pieces: u32) -> Option<u32> {
        self.frontier.as_mut()?.begin_message(operation, pieces)
    }

    /// Sends a message to a rank of the same server. Returns the time at which the last byte has left.
    fn hand(&mut self, now: Time, stream: u8, local: u32) -> Time {
        let made = self.job.locals[local as usize];
        let at = now + made.span + self.job.signal_latency;
        let seat = u32::from(self.job.seats[self.rank as usize]);
        let order = self.job.first_order + seat * u32::from(STREAMS_MAX) + u32::from(stream);
        for &to in &self.job.teams[made.team as usize].hosts {
            self.out.push_back(Action::Signal { to, at, order, word: self.job.first_word + local });
        }
        now + made.span
    }

    /// The length of a step with this iteration's slowdown and random noise.
    fn length(&mut self, nominal: Span) -> Span {
        if nominal == Span::ZERO {
            return nominal;
        }
        let noise = if self.job.noise > 0.0 { 1.0 + self.job.noise * self.random.normal() } else { 1.0 };
        nominal.scaled(self.slow * noise.max(0.0))
    }

    /// The kind of the step to which the waiting time before `step` is charged: the first step of another stream in
    /// `step.after` that has not ended. If all of them have ended, the last one in that list.
    pub(super) fn blamed(&self, step: &Step) -> u8 {
        let steps = self.script.steps();
        let waits =
            || step.after.iter().map(|&before| (before, &steps[before as usize])).filter(|(_, s)| s.stream != COMPUTE);
        let unfinished = waits().find(|(before, _)| !self.ended[*before as usize]);
        unfinished.or_else(|| waits().next_back()).map_or(step.kind, |(_, s)| s.kind)
    }

    pub(super) fn end(&mut self, now: Time, place: u32) {
        let script = self.script;
        let step = &script.steps()[place as usize];
        self.ended[place as usize] = true;
        self.left -= 1;
        if self.frontier.is_none() || !script.is_free(step.stream) {
            let lane = &mut self.lanes[usize::from(step.stream)];
            lane.runs = None;
            lane.next += 1;
        }
        if self.job.keeps_steps {
            let kept = match &self.frontier {
                Some(frontier) => self.times.steps.get_mut(frontier.kept[place as usize] as usize),
                None => self.times.steps.iter_mut().rev().find(|kept| kept.step == place),
            };
            kept.into_iter().for_each(|kept| kept.ended = now);
        }
        if let Some(frontier) = &mut self.frontier {
            frontier.ended(now, script, place);
        }
        if step.stream == COMPUTE {
            self.times.computed += now.since(self.since);
            self.since = now;
        }
        if step.ends_iteration {
            self.times.iterations.push(now);
            self.slow = 1.0 + self.job.stragglers * self.random.unit();
        }
        if self.left == 0 {
            self.stage(Stage::Complete);
            self.stage(Stage::Closed);
        }
    }
}
