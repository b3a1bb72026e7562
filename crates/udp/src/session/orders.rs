//! The controller's orders for a connection's paths.

use super::{ONLY, Session};
use crate::routes::Routes;
use strandway_fabric::usid::Element;
use strandway_proto::path::{PathCounts, PathState, PathStatus};
use strandway_proto::{PathId, Time};

impl Session {
    /// The denied parts of the fabric were `before` and are `after`: denies the paths across the latter, and allows
    /// those that were denied for the former only. Returns the number of paths whose state changes.
    pub(crate) fn order(&mut self, node_now: Time, routes: &Routes, before: &[Element], after: &[Element]) -> usize {
        let crosses = |state: &PathState, parts: &[Element]| {
            let peer = self.paths.peer(usize::from(state.path.port()));
            let peer = peer.or_else(|| self.paths.planes.iter().find_map(|side| side.peer));
            peer.is_some_and(|peer| routes.crosses(peer, state.path, parts))
        };
        let order = |state: PathState| {
            let is_denied = state.status == PathStatus::Denied;
            if crosses(&state, after) {
                return (!is_denied).then_some((state.path, true));
            }
            (is_denied && crosses(&state, before)).then_some((state.path, false))
        };
        let changes: Vec<(PathId, bool)> = self.path_states().into_iter().filter_map(order).collect();
        for (path, denied) in &changes {
            if *denied {
                self.deny_path(node_now, *path);
            } else {
                self.allow_path(node_now, *path);
            }
        }
        changes.len()
    }

    pub(crate) fn path_states(&self) -> Vec<PathState> {
        self.endpoint.observe().path_states(ONLY)
    }

    /// A number that no other connection of the node has.
    pub(crate) const fn number(&self) -> u64 {
        (self.handle.generation as u64) << 32 | self.handle.index as u64
    }

    /// The data packets by path.
    pub(crate) fn path_counts(&self) -> &[PathCounts] {
        self.endpoint.observe().path_counts(ONLY)
    }

    pub(crate) fn deny_path(&mut self, node_now: Time, path: PathId) -> bool {
        let now = self.own(node_now);
        self.endpoint.deny_path(now, ONLY, path)
    }

    pub(crate) fn allow_path(&mut self, node_now: Time, path: PathId) -> bool {
        let now = self.own(node_now);
        self.endpoint.allow_path(now, ONLY, path)
    }
}
