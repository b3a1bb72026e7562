//! Counts arriving packets and reports the counts to the sender, for its congestion control.

use crate::control_message::{ControlMessage, Heard};
use crate::packet::Part;
use crate::units::{Span, Time};

/// The counts of parts that have arrived, and the next report.
#[derive(Debug)]
pub(super) struct Hearing {
    /// The time between two reports.
    interval: Span,
    /// When the next report is due.
    pub(super) at: Time,
    heard: Heard,
    /// When the part arrived that the next report will name; `None` before the first one.
    since: Option<Time>,
}

impl Hearing {
    pub(super) fn new(interval: Span) -> Hearing {
        Hearing { interval, at: Time::NEVER, heard: Heard::default(), since: None }
    }

    /// A part has arrived with its payload; `again`: it is a retransmission.
    pub(super) fn note(&mut self, now: Time, part: &Part, again: bool) {
        self.heard.received = self.heard.received.wrapping_add(1);
        if !again {
            (self.heard.sequence, self.heard.packet) = (part.sequence, part.packet);
            self.heard.before = self.heard.received;
            self.since = Some(now);
        }
        if self.at == Time::NEVER && self.since.is_some() {
            self.at = now + self.interval;
        }
    }

    /// The report, if it is due.
    pub(super) fn report(&mut self, now: Time) -> Option<ControlMessage> {
        let since = self.since.filter(|_| self.at <= now)?;
        self.at = Time::NEVER;
        let held = (now.since(since).0 / 1_000_000).min(u64::from(u16::MAX)) as u16;
        Some(ControlMessage::Heard(Heard { held, ..self.heard }))
    }
}
