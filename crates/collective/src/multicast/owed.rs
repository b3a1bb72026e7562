//! Control messages that are repeated until they are acknowledged.

use super::messages::MulticastMessage;
use strandway_proto::units::{Span, Time};

/// A control message that has not been acknowledged, and its receiver.
#[derive(Clone, Copy, Debug)]
struct Entry {
    to: u32,
    word: MulticastMessage,
    /// When to send it again.
    at: Time,
    /// How often in a row it was sent without a sign of life from its receiver.
    silent: u32,
    sent: Time,
}

/// All control messages that have not been acknowledged.
#[derive(Debug, Default)]
pub(super) struct Owed(Vec<Entry>);

/// The action for a control message that was not acknowledged in time.
pub(super) enum Due {
    /// Send it again: the receiver, the control message, and how often in a row it was sent without a sign of life.
    Again(u32, MulticastMessage, u32),
    /// This receiver has been silent too often.
    Silent(u32),
}

impl Owed {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the next control message must be sent again.
    pub(super) fn next(&self) -> Time {
        self.0.iter().map(|entry| entry.at).min().unwrap_or(Time::NEVER)
    }

    /// Adds a control message that is sent for the first time.
    pub(super) fn push(&mut self, now: Time, to: u32, word: MulticastMessage, again: Span) {
        self.0.push(Entry { to, word, at: now + again, silent: 0, sent: now });
    }

    /// Removes a control message that a rank has acknowledged.
    pub(super) fn acknowledge(&mut self, from: u32, name: u16) {
        self.0.retain(|entry| entry.to != from || entry.word.name() != name);
    }

    /// True if one of our control messages with this name has not been acknowledged.
    pub(super) fn awaits(&self, name: u16) -> bool {
        self.0.iter().any(|entry| entry.word.name() == name)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The next control message whose time has come. A control message is removed if its receiver has been silent
    /// `most` times.
    pub(super) fn due(&mut self, now: Time, again: Span, most: u32, heard: impl Fn(u32) -> Time) -> Option<Due> {
        let at = self.0.iter().position(|entry| entry.at <= now)?;
        let entry = &mut self.0[at];
        entry.silent = if heard(entry.to) >= entry.sent { 1 } else { entry.silent + 1 };
        let (to, word, silent) = (entry.to, entry.word, entry.silent);
        if entry.silent >= most {
            self.0.swap_remove(at);
            return Some(Due::Silent(to));
        }
        (entry.sent, entry.at) = (now, now + again);
        Some(Due::Again(to, word, silent))
    }
}
