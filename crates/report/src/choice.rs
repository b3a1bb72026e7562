//! The choices of `sdr_auto` for the messages of a run, and their reasons.

use crate::numbers::{number, us};
use serde::{Deserialize, Serialize};

/// The choices of `sdr_auto` for the messages of a run, over all connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChoiceFacts {
    /// Number of connections that chose.
    pub connections: u64,
    /// The repair schemes in use, and their messages.
    pub plans: Vec<PlanFacts>,
    /// Measured share of packets lost, mean over connections.
    pub loss: f64,
    /// Measured number of packets lost in a row, mean over connections.
    pub burst: f64,
    /// Measured round trip, mean over connections.
    pub rtt_us: f64,
    /// The last choice of the connection with the most messages, with the model's prediction for it.
    pub last: Option<ChoiceOption>,
    /// The next best scheme at that choice.
    pub next: Option<ChoiceOption>,
}

/// A repair scheme, and the number of messages that used it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanFacts {
    /// The name of the scheme.
    pub plan: String,
    /// Number of messages.
    pub messages: u64,
}

/// A repair scheme, and the model's prediction for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChoiceOption {
    /// The name of the scheme.
    pub plan: String,
    /// Predicted mean completion time.
    pub mean_us: f64,
    /// Predicted 99.9th percentile of the completion time.
    pub p999_us: f64,
}

/// The choices in two sentences.
pub(crate) fn sentences(facts: &ChoiceFacts) -> String {
    let mut plans: Vec<&PlanFacts> = facts.plans.iter().collect();
    plans.sort_by_key(|plan| std::cmp::Reverse(plan.messages));
    let plans: Vec<String> = plans.iter().map(|plan| format!("{} for {}", plan.plan, plan.messages)).collect();
    let measured = format!(
        "{} % of packets lost, {:.1} in a row, round trip {}",
        number(100.0 * facts.loss),
        facts.burst,
        us(Some(facts.rtt_us))
    );
    let mut text = format!("schemes by message: {}; measured: {measured}.", plans.join(", "));
    if let (Some(last), Some(next)) = (&facts.last, &facts.next) {
        let told = |option: &ChoiceOption| {
            format!("{}: mean {}, p99.9 {}", option.plan, us(Some(option.mean_us)), us(Some(option.p999_us)))
        };
        text += &format!("\nthe last choice was {}; next best {}.", told(last), told(next));
    }
    text
}
