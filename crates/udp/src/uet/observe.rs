//! The counters and events of a node.

use super::initiator::Initiator;
use super::{Counters, Uet};
use std::net::SocketAddr;

impl Uet {
    /// Bytes with headers that the open context to a peer may have in flight, if it has one.
    pub fn window(&self, to: SocketAddr) -> Option<u64> {
        self.open.get(&to).and_then(|number| self.initiators.get(number)).map(Initiator::window)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.shared.counters
    }

    /// Has the peer of an open context answered?
    pub fn has_answered(&self, to: SocketAddr) -> bool {
        self.open.get(&to).and_then(|number| self.initiators.get(number)).is_some_and(Initiator::is_answered)
    }

    /// The peers that have opened contexts, each once for each context.
    pub fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        self.targets.values().map(|target| target.peer)
    }

    /// Contexts of ours, and those of peers.
    pub fn contexts(&self) -> [usize; 2] {
        [self.initiators.len(), self.targets.len()]
    }
}
