//! The controller's orders for a connection's paths.

use super::{ONLY, Session};
use crate::routes::Routes;
use strandway_fabric::usid::Element;
use strandway_proto::path::PathState;
use strandway_proto::{PathId, Time};

impl Session {
    /// Denies or allows the paths across these parts of the fabric; returns their number.
    pub(crate) fn order(&mut self, node_now: Time, routes: &Routes, parts: &[Element], denied: bool) -> usize {
        let crossing = |state: &PathState| {
            let peer = self.paths.peer(usize::from(state.path.port()));
            let peer = peer.or_else(|| self.paths.planes.iter().find_map(|side| side.peer));
            peer.is_some_and(|peer| routes.crosses(peer, state.path, parts))
        };
        let paths: Vec<PathId> = self
            .endpoint
            .observe()
            .path_states(ONLY)
            .iter()
            .filter(|state| crossing(state))
            .map(|state| state.path)
            .collect();
        for path in &paths {
            if denied {
                self.deny_path(node_now, *path);
            } else {
                self.allow_path(node_now, *path);
            }
        }
        paths.len()
    }

    pub(crate) fn path_states(&self) -> Vec<PathState> {
        self.endpoint.observe().path_states(ONLY)
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
