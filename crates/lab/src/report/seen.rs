//! All messages whose times are known one by one, with or without an entry in the plan.

use super::crowd::Loose;
use super::make::Life;
use crate::alone::Alone;
use crate::plan::Experiment;
use strandway_proto::HostId;

/// For each profile of a plan: the times of messages alone in the fabric.
pub(super) struct Alones<'a>(Vec<Alone<'a>>);

impl<'a> Alones<'a> {
    pub(super) fn of(experiment: &'a Experiment) -> Alones<'a> {
        Alones(experiment.alone())
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
                life: *life,
                alone,
            });
            let loose = loose.iter().map(move |message| Seen {
                class: message.class,
                profile: usize::from(message.profile),
                ends: message.ends,
                bytes: message.bytes,
                life: message.life,
                alone,
            });
            Box::new(entries.chain(loose))
        }
    }

    /// The completion time of the message alone in the fabric, in microseconds, by arithmetic.
    pub(super) fn alone(&self) -> f64 {
        self.alone.0[self.profile].completion(self.ends.0, self.ends.1, self.bytes).as_us()
    }
}
