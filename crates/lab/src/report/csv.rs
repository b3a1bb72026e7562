//! Flows as CSV for spreadsheets and notebooks: one line per flow.

use super::make::life;
use super::seen::{Alones, Seen};
use super::unlisted::Crowd;
use crate::plan::Experiment;
use std::fmt::Write;
use strandway_fabric::Measurements;
use strandway_proto::HostId;
use strandway_proto::units::Time;

/// The columns of [`flows`]. Times are in microseconds, and empty if the event did not happen.
const HEAD: &str = "flow,id,source,destination,class,profile,bytes,start_us,received_us,finished_us,fct_us,slowdown";

/// One flow. Times are counted from the start of the run, and absent if the event did not happen.
#[derive(Clone, Copy, Debug)]
pub struct FlowRow<'a> {
    /// Its number in a traffic matrix, if it came from one.
    pub id: Option<u64>,
    /// The sender.
    pub source: HostId,
    /// The receiver.
    pub destination: HostId,
    /// The name of its workload.
    pub class: &'a str,
    /// The name of its connection's profile.
    pub profile: &'a str,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was posted.
    pub started: Option<Time>,
    /// When its receiver had the whole message.
    pub received: Option<Time>,
    /// When its sender knew that.
    pub finished: Option<Time>,
    /// Time from its start until its sender knew that the whole message had arrived, in microseconds.
    pub fct_us: Option<f64>,
    /// `fct_us` divided by the time of the flow alone, by arithmetic.
    pub slowdown: Option<f64>,
}

/// All flows in the workload's order; those of jobs come last. Messages of collectives whose times are not known one by
/// one have no row.
pub fn rows<'a>(
    experiment: &'a Experiment,
    measured: &'a Measurements,
) -> impl ExactSizeIterator<Item = FlowRow<'a>> + 'a {
    let loose = Crowd::new(experiment, measured).into_rows();
    let left = experiment.messages.len() + loose.len();
    let alone = Alones::of(experiment);
    let planned = experiment.messages.iter();
    let planned = planned.map(|message| Seen::planned(experiment, message, life(message, &measured.flows)));
    let behind = loose.into_iter().map(|message| Seen::loose(&message));
    let rows = planned.chain(behind).map(move |entry| {
        let (source, destination) = entry.ends;
        let fct_us = entry.life.completion().map(|span| span.as_us());
        let singly = alone.us(&entry);
        FlowRow {
            id: entry.id,
            source,
            destination,
            class: experiment.classes.get(usize::from(entry.class)).map_or("", String::as_str),
            profile: &experiment.plan.profiles[entry.profile].name,
            bytes: entry.bytes,
            started: entry.life.started,
            received: entry.life.received,
            finished: entry.life.finished,
            fct_us,
            slowdown: fct_us.map(|us| us / singly),
        }
    });
    Counted { rows, left }
}

/// An iterator whose length is known.
struct Counted<I> {
    rows: I,
    left: usize,
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.left = self.left.saturating_sub(1);
        self.rows.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

/// A line of column names, then one line per flow in the workload's order. `received_us` and `finished_us` are counted
/// from the start of the run. `fct_us` is the time from the flow's start until the sender knew that the whole message
/// had arrived.
pub fn flows(experiment: &Experiment, measured: &Measurements) -> String {
    let mut out = String::with_capacity(HEAD.len() + experiment.messages.len() * 96);
    out.push_str(HEAD);
    out.push('\n');
    let at = |time: Option<Time>| time.map_or(String::new(), |t| format!("{:.6}", t.as_us()));
    for (number, row) in rows(experiment, measured).enumerate() {
        let _ = writeln!(
            out,
            "{number},{},host{},host{},{},{},{},{},{},{},{},{}",
            row.id.map_or(String::new(), |id| id.to_string()),
            row.source.0,
            row.destination.0,
            field(row.class),
            field(row.profile),
            row.bytes,
            at(row.started),
            at(row.received),
            at(row.finished),
            row.fct_us.map_or(String::new(), |us| format!("{us:.6}")),
            row.slowdown.map_or(String::new(), |slowdown| format!("{slowdown:.4}")),
        );
    }
    out
}

/// A field of CSV, in quotes if it needs them (RFC 4180).
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
