//! Rows for spreadsheets and notebooks: one per flow.

use super::make::{alone, life};
use crate::plan::Experiment;
use std::fmt::Write;
use strandway_fabric::Measurements;
use strandway_proto::units::Time;

/// The columns of [`flows`]; times in microseconds, empty where something did not happen.
const HEAD: &str = "flow,id,source,destination,class,profile,bytes,start_us,received_us,finished_us,fct_us,slowdown";

/// One row per flow, in the workload's order, below a row of names. `received_us` and `finished_us` are instants of the run;
/// `fct_us` is from the start until the sender knew that all had arrived.
pub fn flows(experiment: &Experiment, measured: &Measurements) -> String {
    let mut out = String::with_capacity(HEAD.len() + experiment.messages.len() * 96);
    out.push_str(HEAD);
    out.push('\n');
    let alone = alone(experiment);
    let at = |time: Option<Time>| time.map_or(String::new(), |t| format!("{:.6}", t.as_us()));
    for (number, message) in experiment.messages.iter().enumerate() {
        let life = life(message, &measured.flows);
        let (from, to) = experiment.ends(message);
        let fct = life.completion().map(|span| span.as_us());
        let class = experiment.classes.get(usize::from(message.class)).map_or("", String::as_str);
        let _ = writeln!(
            out,
            "{number},{},host{},host{},{},{},{},{},{},{},{},{}",
            message.id.map_or(String::new(), |id| id.to_string()),
            from.0,
            to.0,
            field(class),
            field(&experiment.profile_of(message).name),
            message.bytes,
            at(life.started),
            at(life.received),
            at(life.finished),
            fct.map_or(String::new(), |us| format!("{us:.6}")),
            fct.map_or(String::new(), |us| format!("{:.4}", us / alone(message))),
        );
    }
    out
}

/// A field of CSV, quoted where it must be (RFC 4180).
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (text, wanted) in [("a", "a"), ("a,b", "\"a,b\""), ("a \"b\"", "\"a \"\"b\"\"\"")] {
            assert_eq!(field(text), wanted);
        }
    }
}
