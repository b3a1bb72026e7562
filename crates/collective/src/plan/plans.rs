//! The plans of all ranks of a collective for the simulator: messages with numbers and lengths, made when asked for.

use crate::recipe::Recipe;
use crate::schedule::{Rank, Schedule};
use std::sync::Arc;

/// The messages of all ranks of a collective, and what each one waits for. An [`Executor`](crate::Executor) follows the
/// part of one rank.
///
/// Messages are numbered from 0: those of a schedule rank by rank, in the order of the sender; those of a recipe as in
/// its table.
#[derive(Clone, Debug)]
pub enum Plans {
    /// Every message is computed; no number of ranks needs a table.
    Computed(Schedule),
    /// A table of messages.
    Tabled {
        /// The table.
        recipe: Arc<Recipe>,
        /// The length of the buffer.
        bytes: u64,
    },
}

/// One message of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMessage {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// Its length.
    pub bytes: u64,
    /// The number of its channel, from 0. Several messages may share it.
    pub channel: u32,
}

impl Plans {
    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        match self {
            Plans::Computed(schedule) => schedule.ranks(),
            Plans::Tabled { recipe, .. } => recipe.ranks(),
        }
    }

    /// The schedule, if messages are computed.
    pub fn schedule(&self) -> Option<&Schedule> {
        match self {
            Plans::Computed(schedule) => Some(schedule),
            Plans::Tabled { .. } => None,
        }
    }

    /// The number of messages of all ranks.
    pub fn messages(&self) -> u64 {
        match self {
            Plans::Computed(schedule) => u64::from(schedule.ranks()) * u64::from(schedule.messages()),
            Plans::Tabled { recipe, .. } => recipe.messages().len() as u64,
        }
    }

    /// The number of channels of all ranks.
    pub fn channels(&self) -> u64 {
        match self {
            Plans::Computed(schedule) => u64::from(schedule.ranks()) * u64::from(schedule.peers()),
            Plans::Tabled { recipe, .. } => recipe.channels().len() as u64,
        }
    }

    /// The message with this number.
    pub fn message(&self, number: u32) -> PlannedMessage {
        match self {
            Plans::Computed(schedule) => {
                let (from, index) = (Rank(number / schedule.messages()), number % schedule.messages());
                let send = schedule.send(from, index);
                let channel = from.0 * schedule.peers() + schedule.peer(schedule.step_of(index));
                PlannedMessage { from, to: send.to, bytes: send.bytes, channel }
            }
            Plans::Tabled { recipe, bytes } => {
                let entry = recipe.messages()[number as usize];
                let (from, to, channel) = (Rank(entry.from), Rank(entry.to), entry.channel);
                PlannedMessage { from, to, bytes: recipe.length(number, *bytes), channel }
            }
        }
    }

    /// Bytes of all messages.
    pub fn volume(&self) -> u64 {
        match self {
            Plans::Computed(schedule) => schedule.volume(),
            Plans::Tabled { recipe, bytes } => recipe.volume(*bytes),
        }
    }

    /// The length of the shortest message; 0 if there is none.
    pub fn shortest(&self) -> u64 {
        match self {
            Plans::Computed(schedule) => schedule.shortest(),
            Plans::Tabled { recipe, bytes } => {
                let lengths = (0..recipe.messages().len() as u32).map(|message| recipe.length(message, *bytes));
                lengths.min().unwrap_or(0)
            }
        }
    }
}
