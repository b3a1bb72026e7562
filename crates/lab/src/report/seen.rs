//! All messages whose times are known one by one, with or without an entry in the plan.

use super::crowd::Loose;
use super::make::Life;
use crate::alone::Alone;
use crate::plan::Experiment;
use strandway_proto::HostId;
use strandway_proto::path::PathConfig;

/// The times of messages alone in the fabric.
pub(super) struct Alones<'a> {
    experiment: &'a Experiment,
    /// For each profile of the plan.
    of_profiles: Vec<Alone<'a>>,
}

impl<'a> Alones<'a> {
    pub(super) fn of(experiment: &'a Experiment) -> Alones<'a> {
        Alones { experiment, of_profiles: experiment.alone() }
    }

    /// The completion time of a message alone in the fabric, in microseconds, by arithmetic.
    pub(super) fn us(&self, profile: usize, (from, to): (HostId, HostId), bytes: u64, pieces: u32) -> f64 {
        let alone = &self.of_profiles[profile];
        // A connection of this kind keeps its path. Several of them together may use all planes.
        match self.experiment.plan.profiles[profile].path {
            PathConfig::Single(_) if pieces == 1 => alone.completion_on_one_path(from, to, bytes).as_us(),
            _ => alone.completion(from, to, bytes).as_us(),
        }
    }
}

/// One message.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    /// The number of its class.
    pub(super) class: u16,
    /// Index of its profile.
    profile: usize,
    /// Sender and receiver.
    ends: (HostId, HostId),
    pub(super) bytes: u64,
    /// The connections that share it.
    pieces: u32,
    pub(super) life: Life,
    alone: &'a Alones<'a>,
}

impl<'a> Seen<'a> {
    /// A function that gives all messages, in the workload's order; those without an entry come last.
    pub(super) fn all<'b: 'a>(
        experiment: &'b Experiment,
        lives: &'a [Life],
        loose: &'a [Loose],
        alone: &'a Alones<'a>,
    ) -> impl Fn() -> Box<dyn Iterator<Item = Seen<'a>> + 'a> {
        move || {
            let entries = experiment.messages.iter().zip(lives).map(move |(message, life)| Seen {
                class: message.class,
                profile: experiment.profile_index(message),
                ends: experiment.ends(message),
                bytes: message.bytes,
                pieces: message.pieces,
                life: *life,
                alone,
            });
            let loose = loose.iter().map(move |message| Seen {
                class: message.class,
                profile: usize::from(message.profile),
                ends: message.ends,
                bytes: message.bytes,
                pieces: 1,
                life: message.life,
                alone,
            });
            Box::new(entries.chain(loose))
        }
    }

    /// The completion time of the message alone in the fabric, in microseconds, by arithmetic.
    pub(super) fn alone(&self) -> f64 {
        self.alone.us(self.profile, self.ends, self.bytes, self.pieces)
    }
}
