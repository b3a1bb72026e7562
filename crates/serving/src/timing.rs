//! How long a replica computes: a roofline of its GPUs, or a measured table.

use crate::model::Model;
use strandway_proto::units::{Rate, Span};

/// A GPU, and the parts of its peaks that are reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Floating-point operations per second that are reached.
    pub flops: f64,
    /// Bytes per second that its memory reaches.
    pub memory: f64,
}

/// The work of a step, all requests of its batch together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tokens of prompts.
    pub prompt: u64,
    /// The sum over these tokens of the tokens before them.
    pub prompt_context: u64,
    /// Requests that get one token each.
    pub decodes: u64,
    /// The sum over these requests of the tokens before.
    pub context: u64,
}

impl Work {
    /// All tokens of the step.
    pub fn tokens(&self) -> u64 {
        self.prompt + self.decodes
    }
}

/// The GPUs that share a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// GPUs of one stage.
    pub gpus: u32,
    /// GPUs that share each layer's attention.
    pub tp: u32,
    /// Stages: each has the same share of the layers.
    pub stages: u32,
}

/// Links inside a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLinks {
    /// Rate per GPU and direction.
    pub rate: Rate,
    /// Latency of a step.
    pub latency: Span,
}

/// A roofline: the step takes as long as its floating-point operations, or as the bytes that it reads from memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub gpu: Gpu,
    /// Bytes of a parameter.
    pub weight_bytes: f64,
    /// Bytes of an element of the KV cache.
    pub kv_bytes: u64,
    /// Added to each step: launches, scheduling, sampling.
    pub overhead: Span,
    /// Bytes of an activation.
    pub activation_bytes: u64,
    /// Links inside a server, for the all-reduces of tensor parallelism.
    pub inside: ServerLinks,
    /// True if tensor-parallel groups span servers: then their all-reduces are messages of the fabric.
    pub tp_outside: bool,
}

impl Roofline {
    /// The time of one stage for this work, without communication between servers.
    pub fn stage(&self, shape: &Shape, work: &Work) -> Span {
        if work.tokens() == 0 {
            return Span::ZERO;
        }
        let (model, gpus, stages) = (&self.model, f64::from(shape.gpus), f64::from(shape.stages));
        let tokens = work.tokens() as f64;
        let pairs = model.pair_flops(false) * work.prompt_context as f64 + model.pair_flops(true) * work.context as f64;
        let sampled = work.decodes.max(1) as f64 * 2.0 * model.embedding() as f64;
        let flops = 2.0 * model.active() as f64 * tokens + pairs + sampled;
        let compute = flops / stages / gpus / self.gpu.flops;
        let experts = model.experts.map_or(0, |e| e.count) * model.expert() * u64::from(model.expert_layers());
        let dense = (model.dense() + model.embedding()) as f64 / f64::from(shape.tp);
        let visited = experts as f64 * model.visited(work.tokens()) / gpus;
        let copies = f64::from(shape.tp) / model.kv_split(shape.tp) as f64;
        let cache = (work.context * model.kv_bytes(self.kv_bytes)) as f64 * copies / gpus;
        let memory = ((dense + visited) * self.weight_bytes + cache) / stages / self.gpu.memory;
        let seconds = if compute > memory { compute } else { memory };
        Span((seconds * 1e12) as u64) + self.overhead + self.reductions(shape, work)
    }

    /// Time of the all-reduces inside a server: two per layer, each of which sends and receives the activations twice,
    /// without a GPU's own share. A switch inside the server adds nothing up.
    fn reductions(&self, shape: &Shape, work: &Work) -> Span {
        if shape.tp < 2 || self.tp_outside {
            return Span::ZERO;
        }
        let layers = u64::from(self.model.layers) / u64::from(shape.stages).max(1);
        let groups = u64::from(shape.gpus / shape.tp).max(1);
        let whole = work.tokens().div_ceil(groups) * self.model.hidden * self.activation_bytes;
        let bytes = 2 * whole * u64::from(shape.tp - 1) / u64::from(shape.tp);
        let one = self.inside.rate.time_for(strandway_proto::units::Bytes(bytes)) + self.inside.latency * 2;
        one * (2 * layers)
    }

    /// Tokens that fit the KV cache of a replica whose GPUs have `memory` bytes each for weights and cache.
    pub fn capacity(&self, shape: &Shape, memory: f64) -> u64 {
        let model = &self.model;
        let experts = model.experts.map_or(0, |e| e.count) * model.expert() * u64::from(model.expert_layers());
        let stages = f64::from(shape.stages);
        let dense = (model.dense() + 2 * model.embedding()) as f64 / f64::from(shape.tp);
        let weights = (dense + experts as f64 / f64::from(shape.gpus)) * self.weight_bytes / stages;
        let groups = f64::from(shape.gpus) / f64::from(shape.tp);
        let free = (memory - weights) * groups * model.kv_split(shape.tp) as f64 * stages;
        if free <= 0.0 { 0 } else { (free / model.kv_bytes(self.kv_bytes) as f64) as u64 }
    }
}

/// A measured time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// True for a step of decode.
    pub decode: bool,
    /// Requests of the step.
    pub requests: u64,
    /// In prefill: tokens of the step; in decode: the mean number of tokens before.
    pub tokens: u64,
    /// The time.
    pub time: Span,
}

/// Measured times of steps, which replace the roofline. Between two measured points times are linear; beyond the last
/// ones they go on like between the last two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Prefill: tokens and time in ps, in order of tokens.
    prefill: Vec<(f64, f64)>,
    /// Decode: numbers of requests in order, each with context and time in ps in order of context.
    decode: Vec<(f64, Vec<(f64, f64)>)>,
}

/// The value at `x` of a line through points in order of their first number.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    match points {
        [] => 0.0,
        [(_, only)] => *only,
        _ => {
            let at = points.partition_point(|point| point.0 < x).clamp(1, points.len() - 1);
            let ((x0, y0), (x1, y1)) = (points[at - 1], points[at]);
            let y = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
            if y < 0.0 { 0.0 } else { y }
        }
    }
}

impl Table {
    /// A table of measured times. Of equal points, the last one counts.
    pub fn new(rows: &[Measured]) -> Table {
        let mut table = Table::default();
        let put = |points: &mut Vec<(f64, f64)>, x: f64, time: Span| {
            let at = points.partition_point(|point| point.0 < x);
            match points.get_mut(at).filter(|point| point.0 == x) {
                Some(point) => point.1 = time.0 as f64,
                None => points.insert(at, (x, time.0 as f64)),
            }
        };
        for row in rows {
            if !row.decode {
                put(&mut table.prefill, row.tokens as f64, row.time);
                continue;
            }
            let requests = row.requests as f64;
            let at = table.decode.partition_point(|(n, _)| *n < requests);
            if table.decode.get(at).is_none_or(|(n, _)| *n != requests) {
                table.decode.insert(at, (requests, Vec::new()));
            }
            put(&mut table.decode[at].1, row.tokens as f64, row.time);
        }
        table
    }

    /// True if it has times of this phase.
    pub fn has(&self, decode: bool) -> bool {
        if decode { !self.decode.is_empty() } else { !self.prefill.is_empty() }
    }

    /// The time of a step. Prompts and decodes in one step take as long as both alone.
    pub fn step(&self, work: &Work) -> Span {
        let mut time = 0.0;
        if work.prompt > 0 {
            time += between(&self.prefill, work.prompt as f64);
        }
        if work.decodes > 0 {
            let context = work.context as f64 / work.decodes as f64;
            let times: Vec<(f64, f64)> = self.decode.iter().map(|(n, points)| (*n, between(points, context))).collect();
            time += between(&times, work.decodes as f64);
        }
        Span(time as u64)
    }
}

/// Where times of steps come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Timing {
    /// A roofline.
    Roofline(Box<Roofline>),
    /// Measured times of whole steps; each stage takes an equal part.
    Table(Table),
}

impl Timing {
    /// The time of one stage.
    pub fn stage(&self, shape: &Shape, work: &Work) -> Span {
        match self {
            Timing::Roofline(roofline) => roofline.stage(shape, work),
            Timing::Table(table) => Span(table.step(work).0 / u64::from(shape.stages.max(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roofline() -> Roofline {
        let llama = Model {
            layers: 80,
            hidden: 8192,
            heads: 64,
            kv_heads: 8,
            head_dim: 128,
            ffn: 28_672,
            gated: true,
            vocabulary: 128_256,
            tied: false,
            experts: None,
            latent: None,
        };
        Roofline {
            model: llama,
            gpu: Gpu { flops: 989e12 * 0.5, memory: 3.35e12 * 0.8 },
            weight_bytes: 2.0,
            kv_bytes: 2,
            overhead: Span::ZERO,
            activation_bytes: 2,
            inside: ServerLinks { rate: Rate::from_gbps(3600), latency: Span::from_us(1) },
            tp_outside: false,
        }
    }

    /// Llama-3-70B on eight H100: 2 x 68.5e9 operations per token at half the peak, and 140 GB of weights read per
    /// decode step.
    #[test]
    fn prefill_is_bound_by_operations_and_decode_by_memory() {
        let (roofline, shape) = (roofline(), Shape { gpus: 8, tp: 8, stages: 1 });
        assert_eq!(roofline.model.kv_bytes(2), 327_680);
        let prompt = Work { prompt: 8192, prompt_context: 8192 * 8191 / 2, ..Work::default() };
        let seconds = roofline.stage(&shape, &prompt).0 as f64 / 1e12;
        let floor = 2.0 * 68.5e9 * 8192.0 / 8.0 / 494.5e12;
        assert!(seconds > floor && seconds < 1.6 * floor, "{seconds} {floor}");
        let one = Work { decodes: 1, context: 1000, ..Work::default() };
        let many = Work { decodes: 32, context: 32_000, ..Work::default() };
        let [one, many] = [one, many].map(|work| roofline.stage(&shape, &work).0 as f64 / 1e12);
        let reading = 137e9 / 8.0 / 2.68e12;
        assert!(one > reading && one < 1.2 * reading, "{one} {reading}");
        assert!(many < 1.6 * one, "a batch shares the weights: {many} {one}");
        let capacity = roofline.capacity(&shape, 72e9);
        assert!((1_300_000..1_400_000).contains(&capacity), "{capacity}");
    }

    #[test]
    fn measured_times_are_linear_between_points() {
        let row = |decode, requests, tokens, us| Measured { decode, requests, tokens, time: Span::from_us(us) };
        let table = Table::new(&[
            row(false, 1, 1000, 100),
            row(false, 1, 2000, 180),
            row(true, 1, 1000, 10),
            row(true, 1, 3000, 12),
            row(true, 9, 1000, 18),
            row(true, 9, 3000, 28),
        ]);
        let time = |work: Work| table.step(&work).as_us();
        assert_eq!(time(Work { prompt: 1500, ..Work::default() }), 140.0);
        assert_eq!(time(Work { prompt: 3000, ..Work::default() }), 260.0, "as between the last two");
        assert_eq!(time(Work { decodes: 5, context: 5 * 2000, ..Work::default() }), 17.0);
        assert_eq!(time(Work { prompt: 1000, decodes: 1, context: 1000, ..Work::default() }), 110.0);
    }
}
