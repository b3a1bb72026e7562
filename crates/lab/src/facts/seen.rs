//! All messages whose times are known one by one, with or without an entry in the plan.

use super::life::Life;
use super::unlisted::Loose;
use strandway_proto::HostId;
use strandway_proto::path::PathConfig;
use strandway_scenario::ideal_fct::Alone;
use strandway_scenario::{Experiment, Message};

/// The times of messages alone in the fabric.
pub(super) struct Alones<'a> {
    experiment: &'a Experiment,
    /// For each profile of the plan.
    of_profiles: Vec<Alone<'a>>,
}

impl<'a> Alones<'a> {
    pub(super) fn of(experiment: &'a Experiment) -> Alones<'a> {
        Alones { experiment, of_profiles: experiment.ideal_fcts() }
    }

    /// The completion time of a message alone in the fabric, in microseconds, by arithmetic.
    pub(super) fn us(&self, message: &Seen) -> f64 {
        let (from, to) = message.ends;
        let alone = &self.of_profiles[message.profile];
        // A connection of this kind keeps its path. Several of them together may use all planes.
        match self.experiment.plan.profiles[message.profile].path {
            PathConfig::Single(_) if message.pieces == 1 => {
                alone.completion_on_one_path(from, to, message.bytes).as_us()
            }
            _ => alone.completion(from, to, message.bytes).as_us(),
        }
    }
}

/// One message.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Its number in a traffic matrix, if it came from one.
    pub(super) id: Option<u64>,
    /// The number of its class.
    pub(super) class: u16,
    /// Index of its profile.
    pub(super) profile: usize,
    /// Sender and receiver.
    pub(super) ends: (HostId, HostId),
    pub(super) bytes: u64,
    /// The connections that share it.
    pieces: u32,
    pub(super) life: Life,
}

impl Seen {
    /// A message of the plan.
    pub(super) fn planned(experiment: &Experiment, message: &Message, life: Life) -> Seen {
        Seen {
            id: message.id.map(u64::from),
            class: message.class,
            profile: experiment.profile_index(message),
            ends: experiment.ends(message),
            bytes: message.bytes,
            pieces: message.pieces,
            life,
        }
    }

    /// A message without an entry in the plan.
    pub(super) fn loose(message: &Loose) -> Seen {
        Seen {
            id: None,
            class: message.class,
            profile: usize::from(message.profile),
            ends: message.ends,
            bytes: message.bytes,
            pieces: 1,
            life: message.life,
        }
    }

    /// A function that gives all messages, in the workload's order; those without an entry come last.
    pub(super) fn all<'a>(
        experiment: &'a Experiment,
        lives: &'a [Life],
        loose: &'a [Loose],
    ) -> impl Fn() -> Box<dyn Iterator<Item = Seen> + 'a> {
        move || {
            let planned = experiment.messages.iter().zip(lives);
            let planned = planned.map(|(message, life)| Seen::planned(experiment, message, *life));
            Box::new(planned.chain(loose.iter().map(Seen::loose)))
        }
    }
}
