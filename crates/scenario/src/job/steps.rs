//! The steps of the ranks of one role in an iteration: computation, and operations of their groups.
//!
//! All ranks of one pipeline stage have the same steps. The computation of a whole pass is one step if only the
//! server's own links interrupt it. With experts, sharded parameters or a group over several servers, each layer has
//! its own steps.

use super::kinds::{
    ALL_TO_ALL, BACKWARD, BROADCAST, CP, EP, FORWARD, GATHER, RECEIVE, REDUCE, SCATTER, SEND, TP, UPDATE, WEIGHTS,
};
use super::pipeline::{Part, Pass};
use super::role::{Operation, Role, Sort};
use super::times::Times;
use super::{JobKeys, Recompute};
use strandway_collective::Work;
use strandway_collective::script::COMPUTE;
use strandway_import::simai::{Group, Phase, Workload};
use strandway_import::trace::Kind;
use strandway_proto::units::Span;

/// The streams other than the compute stream.
mod stream {
    pub(super) const TP: u8 = 1;
    pub(super) const CP: u8 = 2;
    pub(super) const EP: u8 = 3;
    pub(super) const SCATTER: u8 = 4;
    pub(super) const GATHER: u8 = 5;
    pub(super) const EXPERT_SCATTER: u8 = 6;
    pub(super) const EXPERT_GATHER: u8 = 7;
    /// Forward and backward.
    pub(super) const SEND: [u8; 2] = [8, 9];
    pub(super) const RECEIVE: [u8; 2] = [10, 11];
}

/// Writes the steps of a role.
pub(super) struct Writer<'a> {
    written: &'a JobKeys,
    times: Times,
    stage: u32,
    /// Layer by layer.
    fine: bool,
    role: Role,
    /// The last step of the previous iteration.
    updated: Option<u32>,
    /// Steps that must end before the next compute step.
    awaited: Vec<u32>,
    /// With sharded parameters: the layers computed in this iteration, in order.
    computed: Vec<u32>,
    /// Steps that must end before the update.
    gradients: Vec<u32>,
    /// The buckets of this iteration.
    buckets: Vec<Bucket>,
}

/// A bucket: gradients that are reduced together. The numbers are the rank's parameters that other ranks hold too:
/// dense ones, and those of experts.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    layer: u32,
    dense: u64,
    experts: u64,
}

/// A backward pass.
#[derive(Clone, Copy, Debug)]
struct Back {
    /// Without the gradients of weights, which a pass of their own computes.
    split: bool,
    /// Gradients are reduced behind it.
    reduced: bool,
}

/// Bytes of parameters and activations in bf16.
const BF16: u64 = 2;
/// Bytes of 32 elements in FP8 with their scales: one of 4 bytes for each 128 elements (arXiv 2412.19437, section 3.3.2).
const FP8_SCALED: (u64, u64) = (33, 32);

impl<'a> Writer<'a> {
    pub(super) fn new(written: &'a JobKeys, stage: u32, load: f64, fine: bool) -> Writer<'a> {
        Writer {
            written,
            times: Times::new(written, load),
            stage,
            fine: fine || written.zero == 3 || written.degrees.ep > 1 || written.degrees.cp > 1,
            role: Role::default(),
            updated: None,
            awaited: Vec::new(),
            computed: Vec::new(),
            gradients: Vec::new(),
            buckets: Vec::new(),
        }
    }

    /// Adds the steps of all iterations.
    pub(super) fn role(mut self) -> Role {
        let JobKeys { micro_batches, chunks, schedule, .. } = *self.written;
        let pp = self.written.degrees.pp;
        let passes = schedule.passes(self.stage, pp, micro_batches, chunks);
        for _ in 0..self.written.iterations {
            self.computed.clear();
            for pass in &passes {
                self.pass(*pass);
            }
            self.update();
        }
        self.role
    }

    /// Adds a compute step. It waits for the steps of `awaited`, for `also` and for the previous iteration.
    fn compute(&mut self, kind: u8, layer: u32, time: Span, also: Option<u32>) -> u32 {
        let after: Vec<Option<u32>> = self.awaited.drain(..).map(Some).chain([also, self.updated]).collect();
        self.role.step(COMPUTE, kind, layer, Work::Compute(time), &after)
    }

    /// Adds a collective, which begins after the steps of `after`.
    fn collective(&mut self, at: (u8, u8, u32), what: (Sort, Kind, u64, u32), after: &[Option<u32>]) -> u32 {
        let (stream, kind, layer) = at;
        let (sort, collective, bytes, times) = what;
        self.role.operate(stream, kind, layer, Operation::Collective { sort, collective, bytes, times }, after)
    }

    /// Like `collective`, but the next compute step waits for it.
    fn blocking(&mut self, at: (u8, u8, u32), what: (Sort, Kind, u64, u32), after: &[Option<u32>]) -> u32 {
        let step = self.collective(at, what, after);
        self.awaited.push(step);
        step
    }

    fn last_stage(&self) -> u32 {
        self.written.degrees.pp * self.written.chunks - 1
    }

    fn pass(&mut self, pass: Pass) {
        let place = pass.chunk * self.written.degrees.pp + self.stage;
        let layers = self.written.first_layer(place)..self.written.first_layer(place + 1);
        let (backward, micro) = (pass.part != Part::Forward, pass.micro);
        let reduced = micro + 1 == self.written.micro_batches;
        let imported = self.written.imported.as_deref();
        if pass.part == Part::Weights {
            return match imported {
                Some(file) => self.imported_weights(file, reduced),
                None => self.weights(&layers, place, reduced),
            };
        }
        let direction = usize::from(backward);
        let source = if backward { place < self.last_stage() } else { place > 0 };
        let target = if backward { place > 0 } else { place < self.last_stage() };
        if source {
            let from = if backward { place + 1 } else { place - 1 };
            let receive = Operation::Receive { from, backward, micro };
            let step = self.role.operate(stream::RECEIVE[direction], RECEIVE, layers.start, receive, &[]);
            self.awaited.push(step);
        }
        let back = Back { split: pass.part == Part::Inputs, reduced: pass.part == Part::Backward && reduced };
        let after = match (self.fine, backward) {
            _ if imported.is_some() => imported.and_then(|file| self.imported(file, pass)),
            (true, false) => layers.clone().map(|layer| self.layer_forward(layer, place)).last(),
            (true, true) => layers.clone().rev().map(|layer| self.layer_backward(layer, place, back)).last(),
            (false, false) => Some(self.whole_forward(&layers, place)),
            (false, true) => Some(self.whole_backward(&layers, place, back)),
        };
        if target {
            let send = Operation::Send { from: place, backward, micro };
            let after = [after, self.awaited.last().copied()];
            self.role.operate(stream::SEND[direction], SEND, layers.start, send, &after);
        }
    }

    /// A pass as a file describes it.
    fn imported(&mut self, file: &Workload, pass: Pass) -> Option<u32> {
        let chunks = self.written.chunks as usize;
        let cut = |chunk: usize| file.micro.len() * chunk / chunks;
        let lines = cut(pass.chunk as usize)..cut(pass.chunk as usize + 1);
        let last_micro = pass.micro + 1 == self.written.micro_batches;
        if pass.part == Part::Forward {
            return lines.map(|line| self.phase(FORWARD, line as u32, file.micro[line].forward, true)).last();
        }
        let mut end = None;
        for line in lines.rev() {
            end = Some(self.phase(BACKWARD, line as u32, file.micro[line].inputs, true));
            if pass.part == Part::Backward {
                end = Some(self.phase(BACKWARD, line as u32, file.micro[line].weights, last_micro));
            }
        }
        end
    }

    /// The gradients of weights as a file describes them.
    fn imported_weights(&mut self, file: &Workload, reduced: bool) {
        for (line, layer) in file.micro.iter().enumerate().rev() {
            self.phase(WEIGHTS, line as u32, layer.weights, reduced);
        }
    }

    /// The gradients of the weights of a stage's layers for one micro-batch. Those of the last one are reduced.
    fn weights(&mut self, layers: &std::ops::Range<u32>, place: u32, reduced: bool) {
        let count = layers.len() as u32;
        let buckets = match self.fine {
            true => count,
            false if reduced => self.written.buckets.unwrap_or(count).min(count),
            false => 1,
        };
        for bucket in (0..buckets).rev() {
            let cut = |b: u32| layers.start + (u64::from(count) * u64::from(b) / u64::from(buckets)) as u32;
            let part = cut(bucket)..cut(bucket + 1);
            let each = self.times.attention_weights + self.times.experts_weights;
            let logits = if part.end == layers.end { self.logits(place) } else { Span::ZERO };
            let step = self.compute(WEIGHTS, part.start, each * part.len() as u64 + logits, None);
            if reduced {
                self.reduce(part, step);
            }
        }
    }

    /// Computation, and a collective behind it, unless nothing is `reduced`.
    fn phase(&mut self, kind: u8, layer: u32, phase: Phase, reduced: bool) -> u32 {
        let step = self.compute(kind, layer, Span::from_ns(phase.compute_ns), None);
        let Some(made) = phase.collective else { return step };
        let (copies, ep) = (self.written.copies(), self.written.degrees.ep);
        let (sort, stream, own, ranks) = match made.group {
            Group::Tensor => (Sort::Tensor, stream::TP, TP, self.written.degrees.tp),
            Group::Expert => (Sort::Expert, stream::EP, EP, ep),
            Group::Data => (Sort::Data, stream::SCATTER, SCATTER, copies),
            Group::ExpertData => (Sort::ExpertData, stream::EXPERT_SCATTER, SCATTER, copies / ep),
        };
        let own = match made.kind {
            Kind::AllReduce if own == SCATTER => REDUCE,
            Kind::AllGather if own == SCATTER => GATHER,
            Kind::AllToAll if own == SCATTER => ALL_TO_ALL,
            Kind::Broadcast if own == SCATTER => BROADCAST,
            _ => own,
        };
        let data = matches!(sort, Sort::Data | Sort::ExpertData);
        if ranks < 2 || (data && !reduced) {
            return step;
        }
        let what = (sort, made.kind, made.bytes, 1);
        if data && matches!(kind, BACKWARD | WEIGHTS) {
            let made = self.collective((stream, own, layer), what, &[Some(step)]);
            self.gradients.push(made);
        } else {
            self.blocking((stream, own, layer), what, &[Some(step)]);
        }
        step
    }

    fn logits(&self, place: u32) -> Span {
        if place == self.last_stage() { self.times.logits } else { Span::ZERO }
    }

    /// Bytes of the activations of a micro-batch, which a tensor-parallel group reduces or gathers.
    fn activations(&self) -> u64 {
        self.written.tokens() * self.written.model.hidden * BF16
    }

    /// Per layer and pass, activations are reduced and gathered twice.
    fn tensor(&mut self, layer: u32, times: u32, after: u32) -> Option<u32> {
        let bytes = self.activations();
        (self.written.degrees.tp > 1).then(|| {
            self.blocking((stream::TP, TP, layer), (Sort::Tensor, Kind::AllReduce, bytes, times), &[Some(after)])
        })
    }

    fn times_back(&self) -> u32 {
        if self.written.recompute == Recompute::All { 4 } else { 2 }
    }

    /// Times of a backward pass: of attention, of experts, and of the output embedding as a multiple of its forward
    /// time.
    fn back(&self, back: Back) -> (Span, Span, u64) {
        let times = &self.times;
        match back.split {
            false => (times.attention_back, times.experts_back, 2),
            true => (times.attention_back - times.attention_weights, times.experts_back - times.experts_weights, 1),
        }
    }

    fn whole_forward(&mut self, layers: &std::ops::Range<u32>, place: u32) -> u32 {
        let count = layers.len() as u64;
        let time = self.times.attention * count + self.times.experts * count + self.logits(place);
        let step = self.compute(FORWARD, layers.start, time, None);
        self.tensor(layers.start, 2 * layers.len() as u32, step).unwrap_or(step)
    }

    fn whole_backward(&mut self, layers: &std::ops::Range<u32>, place: u32, back: Back) -> u32 {
        let count = layers.len() as u32;
        let (attention, experts, logits_times) = self.back(back);
        let buckets = if back.reduced { self.written.buckets.unwrap_or(count).min(count) } else { 1 };
        let mut end = 0;
        for bucket in (0..buckets).rev() {
            let cut = |b: u32| layers.start + (u64::from(count) * u64::from(b) / u64::from(buckets)) as u32;
            let part = cut(bucket)..cut(bucket + 1);
            let each = attention + experts;
            let logits = if part.end == layers.end { self.logits(place) * logits_times } else { Span::ZERO };
            let step = self.compute(BACKWARD, part.start, each * part.len() as u64 + logits, None);
            end = self.tensor(part.start, self.times_back() * part.len() as u32, step).unwrap_or(step);
            if back.reduced {
                self.reduce(part, end);
            }
        }
        end
    }

    /// With sharded parameters, a layer is gathered before it is computed.
    fn gather(&mut self, layer: u32) {
        if self.written.zero != 3 {
            return;
        }
        let before = self.computed.len().checked_sub(self.written.prefetch as usize + 1).map(|at| self.computed[at]);
        let after = [before.or(self.updated)];
        let (dense, experts) = self.parameters(layer);
        if self.written.copies() > 1 {
            let what = (Sort::Data, Kind::AllGather, dense * BF16, 1);
            self.blocking((stream::GATHER, GATHER, layer), what, &after);
        }
        if experts > 0 && self.written.copies() > self.written.degrees.ep {
            let what = (Sort::ExpertData, Kind::AllGather, experts * BF16, 1);
            self.blocking((stream::EXPERT_GATHER, GATHER, layer), what, &after);
        }
    }

    /// Keys and values of the whole sequence (arXiv 2407.21783, section 3.3.2: context parallelism by all-gathers).
    fn context(&mut self, layer: u32, collectives: &[Kind]) {
        if self.written.degrees.cp == 1 {
            return;
        }
        let model = &self.written.model;
        let tokens = self.written.micro_batch * model.sequence;
        let tp = u64::from(self.written.degrees.tp);
        let bytes = match model.latent {
            // All heads share it.
            Some(latent) => tokens * (latent.key_value + latent.rope) * BF16,
            None => 2 * tokens * model.kv_heads * model.head_dim * BF16 / tp,
        };
        let last = self.last_computed();
        for collective in collectives {
            let after = [last, self.awaited.last().copied()];
            self.blocking((stream::CP, CP, layer), (Sort::Context, *collective, bytes, 1), &after);
        }
    }

    /// An all-to-all that sends tokens to their experts, or back; `out`: they may have a byte per element then.
    fn experts(&mut self, layer: u32, after: u32, out: bool) {
        let bytes = self.activations() * self.written.model.top_k / u64::from(self.written.degrees.tp);
        let bytes = if out && self.written.fp8_dispatch { bytes / BF16 * FP8_SCALED.0 / FP8_SCALED.1 } else { bytes };
        if self.written.degrees.ep > 1 {
            let after = [Some(after), self.awaited.last().copied()];
            self.blocking((stream::EP, EP, layer), (Sort::Expert, Kind::AllToAll, bytes, 1), &after);
        }
    }

    fn layer_forward(&mut self, layer: u32, place: u32) -> u32 {
        self.gather(layer);
        self.context(layer, &[Kind::AllGather]);
        let last = layer + 1 == self.written.first_layer(place + 1);
        let logits = if last { self.logits(place) } else { Span::ZERO };
        let moe = self.written.model.experts > 0;
        let time = self.times.attention + if moe { Span::ZERO } else { logits };
        let mut end = self.compute(FORWARD, layer, time, None);
        self.tensor(layer, 2, end);
        if moe {
            self.experts(layer, end, true);
            end = self.compute(FORWARD, layer, self.times.experts + logits, None);
            self.experts(layer, end, false);
        }
        self.computed.push(end);
        self.awaited.last().copied().unwrap_or(end)
    }

    fn layer_backward(&mut self, layer: u32, place: u32, back: Back) -> u32 {
        let (attention, experts, logits_times) = self.back(back);
        // The last computed layer is still in memory.
        let end_layer = layer + 1 == self.written.first_layer(place + 1);
        if !end_layer || place != self.last_stage() {
            self.gather(layer);
        }
        let logits = if end_layer { self.logits(place) * logits_times } else { Span::ZERO };
        let moe = self.written.model.experts > 0;
        if moe {
            let before = self.compute(BACKWARD, layer, logits, None);
            self.experts(layer, before, true);
            let end = self.compute(BACKWARD, layer, experts, None);
            self.experts(layer, end, false);
        }
        self.context(layer, &[Kind::AllGather]);
        let time = attention + if moe { Span::ZERO } else { logits };
        let end = self.compute(BACKWARD, layer, time, None);
        self.tensor(layer, self.times_back(), end);
        self.context(layer, &[Kind::ReduceScatter]);
        self.computed.push(end);
        let after = self.awaited.last().copied().unwrap_or(end);
        if back.reduced || (self.written.zero == 3 && !back.split) {
            self.reduce(layer..layer + 1, end);
        }
        after
    }

    /// Parameters of a layer at one rank of which other ranks hold copies: dense ones, and those of its experts.
    fn parameters(&self, layer: u32) -> (u64, u64) {
        let model = &self.written.model;
        let tp = u64::from(self.written.degrees.tp);
        let embedding = |at: u32| if layer == at { model.embedding() } else { 0 };
        let dense = model.dense() + embedding(0) + embedding(model.layers - 1);
        (dense / tp, model.experts / u64::from(self.written.degrees.ep) * model.network() / tp)
    }

    /// Adds a bucket with the gradients of these layers. If they overlap with computation, their reduction begins here.
    fn reduce(&mut self, layers: std::ops::Range<u32>, after: u32) {
        let each: Vec<(u64, u64)> = layers.clone().map(|layer| self.parameters(layer)).collect();
        let bucket = Bucket {
            layer: layers.start,
            dense: each.iter().map(|(dense, _)| dense).sum(),
            experts: each.iter().map(|(_, experts)| experts).sum(),
        };
        if self.written.overlap || self.written.zero == 3 {
            self.scatter(bucket, after);
        }
        self.buckets.push(bucket);
    }

    /// Adds the operations that reduce the gradients of a bucket.
    fn scatter(&mut self, bucket: Bucket, after: u32) {
        let (collective, kind) = match self.written.zero {
            0 => (Kind::AllReduce, REDUCE),
            _ => (Kind::ReduceScatter, SCATTER),
        };
        let streams = [stream::SCATTER, stream::EXPERT_SCATTER];
        let steps = self.share((streams, kind), collective, (bucket, self.written.gradient_bytes), after);
        self.gradients.extend(steps);
    }

    /// A collective among all ranks that hold a bucket's dense parameters, and one among all that hold its experts.
    fn share(
        &mut self,
        (streams, kind): ([u8; 2], u8),
        collective: Kind,
        (bucket, each): (Bucket, u64),
        after: u32,
    ) -> Vec<u32> {
        let copies = self.written.copies();
        let all = [
            (Sort::Data, streams[0], bucket.dense, copies),
            (Sort::ExpertData, streams[1], bucket.experts, copies / self.written.degrees.ep),
        ];
        let there = all.into_iter().filter(|&(_, _, count, ranks)| ranks > 1 && count > 0);
        there
            .map(|(sort, stream, count, _)| {
                self.collective((stream, kind, bucket.layer), (sort, collective, count * each, 1), &[Some(after)])
            })
            .collect()
    }

    /// The end of an iteration: the remaining gradients, the optimizer's step, and the gathering of parameters.
    fn update(&mut self) {
        let buckets = std::mem::take(&mut self.buckets);
        if let (false, Some(last)) = (self.written.overlap || self.written.zero == 3, self.last_computed()) {
            buckets.iter().for_each(|bucket| self.scatter(*bucket, last));
        }
        // Of each stream only its last step is needed, since steps of a stream end in order.
        for step in std::mem::take(&mut self.gradients).into_iter().rev() {
            let steps = &self.role.steps;
            if self.awaited.iter().all(|&other| steps[other as usize].stream != steps[step as usize].stream) {
                self.awaited.push(step);
            }
        }
        if let Some(file) = self.written.imported.as_deref().filter(|_| self.written.once) {
            for (line, layer) in (0u32..).zip(&file.once) {
                for phase in [layer.forward, layer.inputs, layer.weights] {
                    self.phase(UPDATE, line, phase, true);
                }
            }
        }
        let mut end = self.compute(UPDATE, 0, self.written.pace.update, None);
        if self.written.zero == 1 {
            for bucket in buckets.iter().rev() {
                let streams = [stream::GATHER, stream::EXPERT_GATHER];
                let steps = self.share((streams, GATHER), Kind::AllGather, (*bucket, BF16), end);
                self.awaited.extend(steps);
            }
            end = self.compute(UPDATE, 0, Span::ZERO, None);
        }
        self.role.steps[end as usize].ends_iteration = true;
        self.updated = Some(end);
    }

    fn last_computed(&self) -> Option<u32> {
        self.role.steps.iter().rposition(|step| step.stream == COMPUTE).map(|at| at as u32)
    }
}
