//! Facts of the choices of `sdr_auto` for the messages of a run.

use strandway_fabric::Measurements;
use strandway_proto::Span;
use strandway_proto::repair::Choices;
use strandway_report::{ChoiceFacts, ChoiceOption, PlanFacts};

/// The choices of all connections; `None` if no connection chose.
pub(super) fn facts(measured: &Measurements) -> Option<ChoiceFacts> {
    let all = &measured.choices;
    // The prediction is that of the connection with the most messages.
    let most = all.iter().max_by_key(|choices| choices.messages.iter().sum::<u64>())?;
    let count = all.len() as f64;
    let mean = |value: fn(&Choices) -> f64| all.iter().map(value).sum::<f64>() / count;
    let plans = (0..most.messages.len()).map(|plan| PlanFacts {
        plan: Choices::name(plan as u8),
        messages: all.iter().map(|choices| choices.messages[plan]).sum(),
    });
    let option = |(plan, mean, tail): (u8, Span, Span)| ChoiceOption {
        plan: Choices::name(plan),
        mean_us: mean.as_us(),
        p999_us: tail.as_us(),
    };
    Some(ChoiceFacts {
        connections: all.len() as u64,
        plans: plans.filter(|plan| plan.messages > 0).collect(),
        loss: mean(|choices| choices.loss),
        burst: mean(|choices| choices.burst),
        rtt_us: mean(|choices| choices.rtt.as_us()),
        last: most.last.map(option),
        next: most.next.map(option),
    })
}
