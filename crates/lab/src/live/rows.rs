//! Messages from outside become messages of the experiment after the run, so that every report has them.

use super::PostedMessage;
use std::collections::BTreeMap;
use strandway_fabric::Measurements;
use strandway_fabric::measure::FlowRecord;
use strandway_fabric::plan::{ConnectionPlan, FlowPlan, Start};
use strandway_scenario::{Experiment, Message};

/// The class of messages from outside in reports.
const CLASS: &str = "posted";

/// Adds the messages that were posted.
pub(super) fn add(experiment: &mut Experiment, measured: &mut Measurements, messages: &[PostedMessage]) {
    if messages.is_empty() {
        return;
    }
    let class = experiment.classes.len() as u16;
    experiment.classes.push(CLASS.to_string());
    let plan = &mut experiment.plan;
    let mut known = super::channels(plan);
    let mut connection_of = |message: &PostedMessage, connections: &mut Vec<ConnectionPlan>| {
        *known.entry((message.from, message.to)).or_insert_with(|| {
            connections.push(ConnectionPlan { source: message.from, destination: message.to, profile: 0 });
            connections.len() as u32 - 1
        })
    };
    let mut shares = BTreeMap::new();
    for message in messages.iter().filter(|message| message.started.is_some()) {
        let connection = connection_of(message, &mut plan.connections);
        *shares.entry(message.from).or_insert(0u64) += message.bytes;
        let first = plan.flows.len() as u32;
        let (bytes, start) = (message.bytes, Start::Program);
        plan.flows.push(FlowPlan { connection, bytes, start, on_sent: None, on_received: None });
        experiment.messages.push(Message { first, pieces: 1, class, id: None, bytes });
        let (started, received, finished) = (message.started, message.received, message.finished);
        // Messages of collectives have higher numbers in the run, but no entries here.
        measured.flows.resize(first as usize, FlowRecord::default());
        measured.flows.push(FlowRecord { started, received, finished });
    }
    measured.connections.resize(plan.connections.len(), Default::default());
    measured.waits.resize(plan.connections.len(), Default::default());
    // How these messages spent their time is not recorded.
    plan.accounts = false;
    measured.times.clear();
    let busiest = shares.values().max().copied().unwrap_or(0);
    experiment.ideal = experiment.ideal.max(experiment.derived.rate.time_for(strandway_proto::Bytes(busiest)));
}
