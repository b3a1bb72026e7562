//! Times of computation.

use super::{JobKeys, Recompute};
use strandway_proto::units::Span;

/// Compute times of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Forward, per layer: attention (with a dense network), and experts.
    pub(super) attention: Span,
    pub(super) experts: Span,
    /// Backward pass of attention, and of experts, per layer.
    pub(super) attention_back: Span,
    pub(super) experts_back: Span,
    /// The part of both for the gradients of weights: the products of the forward pass that have weights.
    pub(super) attention_weights: Span,
    pub(super) experts_weights: Span,
    /// The output embedding, forward.
    pub(super) logits: Span,
}

impl Times {
    /// The times of a rank whose experts get `load` times the average number of tokens.
    pub(super) fn new(written: &JobKeys, load: f64) -> Times {
        let model = &written.model;
        if let Some(layer) = written.pace.compute {
            let experts = if model.experts > 0 { layer.scaled(0.5) } else { Span::ZERO };
            let attention = layer - experts;
            let again = if written.recompute == Recompute::All { 3 } else { 2 };
            let experts = experts.scaled(load);
            let (attention_back, experts_back) = (attention * again, experts * again);
            let (attention_weights, experts_weights) = (attention, experts);
            return Times {
                attention,
                experts,
                attention_back,
                experts_back,
                attention_weights,
                experts_weights,
                logits: Span::ZERO,
            };
        }
        let rank = written.tokens() as f64 / f64::from(written.degrees.tp) / written.pace.reached;
        let time = |flops: f64| Span((flops * rank * 1e12).round() as u64);
        let dense = if model.experts == 0 { model.network_flops() } else { model.shared_flops() };
        let attention = model.attention_flops() + dense;
        let experts = if model.experts > 0 { model.network_flops() * load } else { 0.0 };
        let again = if written.recompute == Recompute::All { 3.0 } else { 2.0 };
        let scores = if written.recompute == Recompute::Scores { model.scores_flops() } else { 0.0 };
        Times {
            attention: time(attention),
            experts: time(experts),
            attention_back: time(attention * again + scores),
            experts_back: time(experts * again),
            attention_weights: time(attention - model.scores_flops()),
            experts_weights: time(experts),
            logits: time(model.logits_flops()),
        }
    }
}
