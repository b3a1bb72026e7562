//! Carries out the decisions of watches: sends pings by a watch's connections, and tells all of them of changes.

use super::{Node, State};
use crate::error::Reason;
use crate::peer_monitor::Found;
use crate::session::NodeContext;
use strandway_proto::{Span, Time};

impl Node {
    /// Looks at the peers whose deadline has come. `absence`: how long this node had no turn.
    pub(super) fn watch_peers(&mut self, now: Time, absence: Span) {
        if absence > self.absence_max {
            // Before any peer is judged by its silence, all timers take into account that this node was away.
            self.watches.excuse(now, absence);
            self.make_all_ready();
        }
        while let Some(watch) = self.watches.pop(now) {
            match self.watches.check(now, watch) {
                Found::Gone => self.end_all(watch, Reason::PeerSilent),
                Found::Narrow => self.end_all(watch, Reason::PayloadTooLarge),
                Found::Due(planes) => {
                    for plane in (0..self.planes.len()).filter(|plane| planes >> plane & 1 == 1) {
                        self.ping(now, watch, plane);
                    }
                }
            }
            self.watches.settle(now, watch);
        }
        while let Some(watch) = self.watches.take_change() {
            let members = self.watches.get(watch).map_or(Vec::new(), |watch| watch.members.clone());
            for member in members {
                if let Some(State::Open(session)) = &mut self.slots[member as usize].state {
                    session.handle_watch(now, &self.watches);
                    self.make_ready(member);
                }
            }
        }
    }

    /// Pings a peer on a plane, by one of its connections.
    fn ping(&mut self, now: Time, watch: u32, plane: usize) {
        let number = self.watches.ping(now, watch, plane);
        let Some(member) = self.watches.next_member(watch) else { return };
        let Some(State::Open(session)) = &mut self.slots[member as usize].state else { return };
        let mut around = node_context!(self, now);
        session.ping_for_watch(&mut around, plane, number);
        if session.has_full_pings() && around.watches.wants_full_ping(now, watch, plane) {
            session.ping_in_full(&mut around, plane);
        }
        self.deadlines.set(member, session.deadline(&self.watches).min(self.deadlines.of(member)));
    }

    /// The peer of a watch is gone or out of reach: all connections with it end.
    fn end_all(&mut self, watch: u32, reason: Reason) {
        let members = self.watches.get(watch).map_or(Vec::new(), |watch| watch.members.clone());
        for member in members {
            self.end(member as usize, reason, true);
        }
    }

    /// Connections that turned out to lead to the same node as others join their watch.
    pub(super) fn join_watches(&mut self, now: Time) {
        while let Some((member, watch)) = self.watches.joins.pop() {
            if let Some(State::Open(session)) = &mut self.slots[member as usize].state {
                session.join(now, &mut self.watches, &mut self.windows, watch);
                self.make_ready(member);
            }
        }
    }
}
