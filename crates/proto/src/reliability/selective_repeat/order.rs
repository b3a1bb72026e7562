//! Finds losses by the order of one path: packets sent over one path arrive in the order in which they were sent, or
//! not at all.
//!
//! The delays of different paths differ by their queues, so `lateness`, which compares all paths, needs a long limit.
//! If the world tells which paths keep their packets in order ([`Environment::paths_in_order`]), a packet is lost as
//! soon as a packet sent `slack` later over the same path has arrived. Ours; the idea is that of RACK (RFC 8985),
//! applied to each path.

use crate::environment::Environment;
use crate::packet::PathId;
use crate::units::{Span, Time};

/// With more paths than this, order is not used: packets of one path are so rare that lateness finds losses first.
const PATHS_MAX: usize = 1024;

/// For each path, the latest sending time of the packets known to have arrived.
#[derive(Clone, Debug)]
pub(super) struct PathOrder {
    /// The arrival of a packet sent this much later over the same path proves a loss.
    pub(super) slack: Span,
    per_port: u32,
    latest: Box<[Time]>,
    /// The latest of them.
    newest: Time,
}

impl PathOrder {
    /// `slack` is in base RTTs. `None` if it is zero, or if paths are not known to keep order.
    pub(super) fn new(slack: f64, environment: &Environment) -> Option<PathOrder> {
        let per_port = u32::from(environment.paths_in_order);
        let count = per_port as usize * usize::from(environment.ports);
        (1..=PATHS_MAX).contains(&count).then_some(())?;
        let slack = environment.base_rtt.scaled(slack);
        (slack > Span::ZERO).then(|| PathOrder {
            slack,
            per_port,
            latest: vec![Time::ZERO; count].into(),
            newest: Time::ZERO,
        })
    }

    /// The slot of a path; outside `latest` for a port that does not exist, because a peer may name any path.
    fn slot(&self, path: PathId) -> usize {
        usize::from(path.port()) * self.per_port as usize + (path.entropy() % self.per_port) as usize
    }

    /// A packet sent over `path` at `sent` has arrived.
    #[inline]
    pub(super) fn arrived(&mut self, path: PathId, sent: Time) {
        let slot = self.slot(path);
        if let Some(latest) = self.latest.get_mut(slot) {
            *latest = sent.max(*latest);
            self.newest = sent.max(self.newest);
        }
    }

    /// No packet sent at this time or later can have been overtaken.
    pub(super) fn horizon(&self) -> Time {
        Time(self.newest.0.saturating_sub(self.slack.0))
    }

    /// Has a packet arrived that was sent over this path more than `slack` after `sent`?
    #[inline]
    pub(super) fn overtook(&self, path: PathId, sent: Time) -> bool {
        self.latest.get(self.slot(path)).is_some_and(|&latest| sent + self.slack < latest)
    }
}
