//! Flows one by one, for spreadsheets and notebooks.

use super::life::life;
use super::seen::{Alones, Seen};
use super::unlisted::Crowd;
use strandway_fabric::Measurements;
use strandway_report::csv::FlowRow;
use strandway_scenario::Experiment;

/// All flows in the workload's order; those of jobs come last. Messages of collectives whose times are not known one by
/// one have no row.
pub fn flow_rows<'a>(
    experiment: &'a Experiment,
    measured: &'a Measurements,
) -> impl ExactSizeIterator<Item = FlowRow<'a>> + 'a {
    let loose = Crowd::new(experiment, measured).into_rows();
    let left = experiment.messages.len() + loose.len();
    let alone = Alones::of(experiment);
    let planned = experiment.messages.iter();
    let planned = planned
        .map(|message| Seen::planned(experiment, message, life(message, &experiment.plan.flows, &measured.flows)));
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
