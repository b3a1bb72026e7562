//! Finds losses by the order of one path: what was sent over a path arrives in the order in which it was sent, or not at all.
//!
//! Paths differ by whatever their queues hold, so lateness among all of them takes its time to tell a loss (`lateness`). Where
//! the world says which paths keep their packets in order ([`Environment::paths_in_order`]), a hole is known for a loss as soon
//! as something sent well after it over the same path has arrived. Ours; the idea is that of RACK (RFC 8985), path by path.

use crate::environment::Environment;
use crate::packet::PathId;
use crate::units::{Span, Time};

/// Where a connection has more paths than this, order tells nothing before lateness does: packets of one path are too rare.
const PATHS_MAX: usize = 1024;

/// The latest sending time of anything known to have arrived, by path.
#[derive(Clone, Debug)]
pub(super) struct PathOrder {
    /// Something sent over the same path so much later proves a loss.
    pub(super) slack: Span,
    per_port: u32,
    latest: Box<[Time]>,
    /// The latest of them.
    newest: Time,
}

impl PathOrder {
    /// `None` where paths are not known to keep order, or `slack`, in base RTTs, is zero.
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

    /// Peers may make paths up.
    fn slot(&self, path: PathId) -> usize {
        usize::from(path.port()) * self.per_port as usize + (path.entropy() % self.per_port) as usize
    }

    /// Something sent over this path at this time has arrived.
    #[inline]
    pub(super) fn arrived(&mut self, path: PathId, sent: Time) {
        let slot = self.slot(path);
        if let Some(latest) = self.latest.get_mut(slot) {
            *latest = sent.max(*latest);
            self.newest = sent.max(self.newest);
        }
    }

    /// What was sent at this time or later, nothing has overtaken.
    pub(super) fn horizon(&self) -> Time {
        Time(self.newest.0.saturating_sub(self.slack.0))
    }

    /// Has something sent over this path well after `sent` arrived?
    #[inline]
    pub(super) fn overtook(&self, path: PathId, sent: Time) -> bool {
        self.latest.get(self.slot(path)).is_some_and(|&latest| sent + self.slack < latest)
    }
}
