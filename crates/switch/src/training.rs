//! A worker of a training job as the program of a host: it computes layers, and cuts their gradients into fragments.
//!
//! The forward step of a layer needs the layer's result of the iteration before. Backward steps run from the last layer
//! to the first, and a layer's gradient exists when its backward step ends (ESA sheet, section 13.4). A collective is a
//! job of one layer and one iteration without computation.

use crate::job::{Job, Sharing};
use crate::priority::{Moment, Priorities};
use crate::self_clocked::SelfClocked;
use crate::worker::Worker;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Action, Application, Event, Stage};
use strandway_proto::cast::Layout;
use strandway_proto::program::{Act, Fate, Program};
use strandway_proto::queue::take_oldest;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Span, Time};
use strandway_proto::{MessageId, Packet};

/// A layer of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Fragments of its gradient.
    pub keys: u64,
    /// Time of its forward step.
    pub forward: Span,
    /// Time of its backward step.
    pub backward: Span,
}

/// The turns of an all-gather by multicast, which a reduce-scatter keeps step with: at any time, the owners whose shares
/// are reduced are the roots that cast (multicast sheet, section 8.2). Otherwise a root's port, which is full with its
/// casts, delays its fragments, and with them the sums of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The number of the all-gather.
    pub task: u32,
    /// The chunks of its shares.
    pub layout: Layout,
    /// By share: its step in its chain. All shares of a step are cast at the same time.
    pub steps: Vec<u32>,
}

impl Turns {
    /// The step that an event shows to have begun, if it shows one.
    fn begun(&self, event: &Event) -> Option<u32> {
        match *event {
            Event::Chunk { task, chunk, .. } if task == self.task && chunk < self.layout.numbers() => {
                self.steps.get(self.layout.share_of(chunk) as usize).copied()
            }
            _ => None,
        }
    }
}

/// The computation of a job, and its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The job, with its workers and its server.
    pub job: Arc<Job>,
    /// Its layers, the input side first.
    pub layers: Vec<Layer>,
    /// The number of iterations.
    pub iterations: u32,
    /// When it begins.
    pub start: Time,
    /// Each worker's computation of an iteration takes longer by a random share of up to this.
    pub jitter: f64,
    /// Each step's time has this relative standard deviation.
    pub noise: f64,
    /// How its fragments get their priorities.
    pub priorities: Priorities,
    /// Time to send one iteration's gradient at line rate.
    pub communication: Span,
    /// Every random stream derives from this.
    pub seed: u64,
    /// A reduce-scatter that keeps step with an all-gather on the same hosts, in the order of the workers.
    pub turns: Option<Turns>,
    /// The number of worker 0's part among the run's messages; the other workers' parts follow.
    pub first_message: u32,
}

impl Plan {
    /// Keys of one iteration.
    pub fn keys(&self) -> u64 {
        self.layers.iter().map(|layer| layer.keys).sum()
    }

    /// Time to compute one iteration, without jitter.
    pub fn computation(&self) -> Span {
        self.layers.iter().fold(Span::ZERO, |sum, layer| sum + layer.forward + layer.backward)
    }

    /// The first key after the shares of the first `steps` steps of the chains, if the job keeps step with an
    /// all-gather.
    fn end_of_steps(&self, steps: u32) -> u64 {
        match (&self.turns, self.job.shape.sharing) {
            (Some(_), Sharing::Scatter { per_share, chains }) => {
                let chains = u64::from(chains).clamp(1, self.job.workers().len() as u64);
                self.job.shape.first + u64::from(steps) * chains * per_share
            }
            _ => u64::MAX,
        }
    }

    /// The priority of a layer's fragments in an iteration.
    pub fn priority(&self, iteration: u32, layer: usize) -> u8 {
        self.priorities.of(&Moment {
            iteration,
            iterations: self.iterations,
            layer: layer as u32,
            layers: self.layers.len() as u32,
            communication: self.communication,
            computation: self.computation(),
        })
    }
}

/// The transport of a worker.
#[derive(Clone, Debug)]
pub enum AnyWorker {
    /// Of ATP or ESA.
    Windowed(Worker),
    /// Of SwitchML.
    SelfClocked(SelfClocked),
}

/// Calls the same method on any transport.
macro_rules! each {
    ($any:expr, $worker:ident => $call:expr) => {
        match $any {
            AnyWorker::Windowed($worker) => $call,
            AnyWorker::SelfClocked($worker) => $call,
        }
    };
}

impl AnyWorker {
    /// Produces all keys below `end`; the new ones get this priority, if the system has priorities.
    pub fn produce(&mut self, now: Time, end: u64, priority: u8) {
        match self {
            AnyWorker::Windowed(worker) => worker.produce(now, end, priority),
            AnyWorker::SelfClocked(worker) => worker.produce(now, end),
        }
    }

    /// The next act, if it is that a result has arrived: its key.
    fn take_result(&mut self) -> Option<u64> {
        let acts = each!(self, worker => worker.acts_mut());
        let Some(&Act::Take { key, .. }) = acts.front() else { return None };
        take_oldest(acts);
        Some(key)
    }

    /// Are all produced keys done?
    pub fn is_done(&self) -> bool {
        each!(self, worker => worker.is_done())
    }
}

impl Program for AnyWorker {
    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        each!(self, worker => worker.handle_packet(now, packet))
    }

    fn handle_timeout(&mut self, now: Time) {
        each!(self, worker => worker.handle_timeout(now))
    }

    #[inline]
    fn poll_act(&mut self) -> Option<Act> {
        each!(self, worker => worker.poll_act())
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        each!(self, worker => worker.poll_timeout())
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        each!(self, worker => worker.count(now, into));
    }
}

/// The present activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// It waits for the result of a layer.
    Waiting(usize),
    Forward(usize),
    Backward(usize),
    /// All is computed; it waits for results.
    Ending,
    Done,
}

/// One worker.
#[derive(Debug)]
pub struct Training {
    plan: Arc<Plan>,
    number: u16,
    worker: AnyWorker,
    phase: Phase,
    iteration: u32,
    /// The end of the step that is being computed.
    until: Time,
    /// The factor by which this iteration's steps take longer.
    slow: f64,
    random: Random,
    /// The first key of each layer within an iteration. Keys begin with the last layer, in the order in which gradients
    /// are produced.
    begins: Vec<u64>,
    /// The number of results that each layer still lacks.
    missing: Vec<u64>,
    /// Steps of the all-gather that have begun, and the first key whose gradient does not exist yet, with its priority.
    steps: u32,
    wanted: (u64, u8),
    /// A layer, and its keys of an iteration: those of the last result. The next result most often belongs to it, too.
    recent: (usize, Range<u64>),
    /// Stages to tell of. The acts of the transport stay there until an action is polled, since copies of packets are a
    /// large part of the work.
    out: VecDeque<Action>,
}

impl Training {
    /// A new worker.
    pub fn new(plan: &Arc<Plan>, number: u16, worker: AnyWorker) -> Training {
        let mut begins = vec![0; plan.layers.len()];
        let mut next = 0;
        for (layer, begin) in plan.layers.iter().zip(&mut begins).rev() {
            *begin = next;
            next += layer.keys;
        }
        let stream = u64::from(plan.job.shape.number) << 32 | u64::from(number) | 1 << 62;
        Training {
            plan: Arc::clone(plan),
            number,
            worker,
            phase: Phase::Idle,
            iteration: 0,
            until: plan.start,
            slow: 1.0,
            random: Random::new(plan.seed, StreamKind::Workload, stream),
            missing: vec![0; plan.layers.len()],
            begins,
            steps: plan.turns.as_ref().map_or(0, |turns| u32::from(turns.steps.get(usize::from(number)) == Some(&0))),
            wanted: (0, 0),
            recent: (0, 0..0),
            out: VecDeque::new(),
        }
    }

    /// The time of a step, with this iteration's jitter and noise.
    fn length(&mut self, nominal: Span) -> Span {
        if nominal == Span::ZERO {
            return Span::ZERO;
        }
        let noise = if self.plan.noise > 0.0 { (1.0 + self.plan.noise * self.random.normal()).max(0.0) } else { 1.0 };
        nominal.scaled(self.slow * noise)
    }

    fn stage(&mut self, stage: Stage) {
        let message = MessageId(self.plan.first_message + u32::from(self.number));
        self.out.push_back(Action::Stage { message, stage });
    }

    /// Advances as far as possible at this time.
    fn advance(&mut self, now: Time) {
        loop {
            match self.phase {
                Phase::Idle if now >= self.until => {
                    self.stage(Stage::Begun);
                    self.slow = 1.0 + self.plan.jitter * self.random.unit();
                    self.phase = Phase::Waiting(0);
                }
                Phase::Waiting(layer) if self.missing[layer] == 0 => {
                    let step = self.length(self.plan.layers[layer].forward);
                    self.until = now + step;
                    self.phase = Phase::Forward(layer);
                }
                Phase::Forward(layer) if now >= self.until => {
                    if layer + 1 < self.plan.layers.len() {
                        self.phase = Phase::Waiting(layer + 1);
                    } else {
                        if let (AnyWorker::Windowed(worker), true) = (&mut self.worker, self.iteration > 0) {
                            // All results of the iteration before have arrived.
                            worker.send_watermark();
                        }
                        self.begin_backward(now, layer);
                    }
                }
                Phase::Backward(layer) if now >= self.until => {
                    self.produce(now, layer);
                    if layer > 0 {
                        self.begin_backward(now, layer - 1);
                    } else if self.iteration + 1 < self.plan.iterations {
                        self.iteration += 1;
                        self.slow = 1.0 + self.plan.jitter * self.random.unit();
                        self.phase = Phase::Waiting(0);
                    } else {
                        self.phase = Phase::Ending;
                    }
                }
                Phase::Ending if self.missing.iter().all(|&missing| missing == 0) => {
                    if let AnyWorker::Windowed(worker) = &mut self.worker {
                        worker.send_watermark();
                    }
                    self.stage(Stage::Complete);
                    self.stage(Stage::Closed);
                    self.phase = Phase::Done;
                }
                _ => return,
            }
        }
    }

    fn begin_backward(&mut self, now: Time, layer: usize) {
        let step = self.length(self.plan.layers[layer].backward);
        self.until = now + step;
        self.phase = Phase::Backward(layer);
    }

    /// Produces the gradient of a layer.
    fn produce(&mut self, now: Time, layer: usize) {
        let keys = self.plan.layers[layer].keys;
        self.missing[layer] += keys;
        let first = self.plan.job.shape.first + u64::from(self.iteration) * self.plan.keys();
        let priority = self.plan.priority(self.iteration, layer);
        self.wanted = (first + self.begins[layer] + keys, priority);
        self.produce_due(now);
    }

    /// Produces the keys whose gradients exist and whose turn has come.
    fn produce_due(&mut self, now: Time) {
        let (end, priority) = self.wanted;
        self.worker.produce(now, end.min(self.plan.end_of_steps(self.steps)), priority);
    }

    /// A step of the all-gather has begun. A worker sends no fragments of its own share, but it must expect their sums;
    /// so the step in which it casts counts as begun with the one before.
    fn begin_step(&mut self, now: Time, step: u32) {
        if step < self.steps {
            return;
        }
        self.steps = step + 1;
        let own = self.plan.turns.as_ref().and_then(|turns| turns.steps.get(usize::from(self.number)));
        self.steps += u32::from(own == Some(&self.steps));
        if self.phase != Phase::Idle {
            self.produce_due(now);
        }
    }

    /// The layer of a key.
    #[inline]
    fn layer_of(&mut self, key: u64) -> usize {
        if !self.recent.1.contains(&key) {
            self.recent = self.find_layer(key);
        }
        self.recent.0
    }

    /// The layer of a key, and its keys of the same iteration.
    fn find_layer(&self, key: u64) -> (usize, Range<u64>) {
        let at = (key - self.plan.job.shape.first) % self.plan.keys().max(1);
        // `begins` decreases from the first layer to the last; layers without keys share a beginning.
        let layer = self.begins.partition_point(|&begin| begin > at);
        let own = (layer..self.begins.len()).find(|&l| at < self.begins[l] + self.plan.layers[l].keys);
        let layer = own.unwrap_or(layer);
        let first = key - at + self.begins[layer];
        (layer, first..first + self.plan.layers[layer].keys)
    }

    /// A result has arrived.
    fn count_result(&mut self, key: u64) {
        let layer = self.layer_of(key);
        self.missing[layer] -= 1;
    }
}

impl Application for Training {
    fn handle_event(&mut self, now: Time, event: &Event) {
        if let Event::Fragment(packet) = event {
            self.worker.handle_packet(now, packet);
            // Not left to `poll_action`: a job that runs this program as one of its steps reads its phase after each
            // event.
            while let Some(key) = self.worker.take_result() {
                self.count_result(key);
            }
            self.advance(now);
        } else if let Some(step) = self.plan.turns.as_ref().and_then(|turns| turns.begun(event)) {
            self.begin_step(now, step);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.worker.poll_timeout() <= now {
            self.worker.handle_timeout(now);
        }
        self.advance(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        loop {
            if let Some(stage) = take_oldest(&mut self.out) {
                return Some(stage);
            }
            match self.worker.poll_act()? {
                Act::Send { packet, .. } => return Some(Action::Fragment(packet)),
                Act::Take { key, .. } => {
                    self.count_result(key);
                    self.advance(now);
                }
                Act::Store { .. } | Act::Add { .. } | Act::Fail { .. } => {}
            }
        }
    }

    fn poll_timeout(&self) -> Time {
        let computes = matches!(self.phase, Phase::Idle | Phase::Forward(_) | Phase::Backward(_));
        let step = if computes { self.until } else { Time::NEVER };
        step.min(self.worker.poll_timeout())
    }

    fn owns(&self, message: MessageId) -> bool {
        message.0 == self.plan.first_message + u32::from(self.number)
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.worker.count(now, into);
    }

    fn begin(&mut self, now: Time) {
        self.until = now;
        self.handle_timeout(now);
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregation::{Aggregation, Settings};
    use crate::system::System;
    use crate::tests::plan;

    #[test]
    fn noise_is_the_relative_deviation_of_a_steps_time() {
        for noise in [0.0, 0.1] {
            let plan = plan(noise);
            let all = Aggregation { settings: Settings::new(System::Atp, 64), plans: vec![Arc::clone(&plan)] };
            let mut training = Training::new(&plan, 0, all.worker(&plan, 0));
            let times: Vec<f64> = (0..2_000)
                .map(|_| training.length(Span::from_us(100)).0 as f64 / Span::from_us(100).0 as f64)
                .collect();
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64;
            assert!((mean - 1.0).abs() < 0.01 && (variance.sqrt() - noise).abs() < 0.01, "{mean} {variance}");
        }
    }
}
