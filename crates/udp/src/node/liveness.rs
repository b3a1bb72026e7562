//! Carries out the decisions of the peer monitors: sends pings by a monitor's connections, and tells all of them of
//! changes.

use super::{Node, State};
use crate::error::Reason;
use crate::peer_monitor::Found;
use crate::session::NodeContext;
use strandway_proto::{Span, Time};

impl Node {
    /// Looks at the peers whose deadline has come. `absence`: how long this node had no turn.
    pub(super) fn watch_peers(&mut self, now: Time, absence: Span) {
        if absence > self.turns.absence_max {
            // Before any peer is judged by its silence, all timers take into account that this node was away.
            self.monitors.excuse(now, absence);
            self.make_all_ready();
        }
        while let Some(monitor) = self.monitors.pop(now) {
            match self.monitors.check(now, monitor) {
                Found::Gone => self.end_all(monitor, Reason::PeerSilent),
                Found::Narrow => self.end_all(monitor, Reason::PayloadTooLarge),
                Found::Due(planes) => {
                    for plane in (0..self.planes.len()).filter(|plane| planes >> plane & 1 == 1) {
                        self.ping(now, monitor, plane);
                    }
                }
            }
            self.monitors.settle(now, monitor);
        }
        while let Some(monitor) = self.monitors.take_change() {
            let members = self.monitors.get(monitor).map_or(Vec::new(), |monitor| monitor.members.clone());
            for member in members {
                if let Some(State::Open(session)) = &mut self.table.slots[member as usize].state {
                    session.handle_monitor(now, &self.monitors);
                    self.make_ready(member);
                }
            }
        }
    }

    /// Pings a peer on a plane, by one of its connections.
    fn ping(&mut self, now: Time, monitor: u32, plane: usize) {
        let number = self.monitors.ping(now, monitor, plane);
        let Some(member) = self.monitors.next_member(monitor) else { return };
        let Some(State::Open(session)) = &mut self.table.slots[member as usize].state else { return };
        let mut around = node_context!(self, now);
        session.ping_for_monitor(&mut around, plane, number);
        if session.has_full_pings() && around.monitors.wants_full_ping(now, monitor, plane) {
            session.ping_in_full(&mut around, plane);
        }
        self.turns.deadlines.set(member, session.deadline(&self.monitors).min(self.turns.deadlines.of(member)));
    }

    /// The peer of a monitor is gone or out of reach: all connections with it end.
    fn end_all(&mut self, monitor: u32, reason: Reason) {
        let members = self.monitors.get(monitor).map_or(Vec::new(), |monitor| monitor.members.clone());
        for member in members {
            self.end(member as usize, reason, true);
        }
    }

    /// Connections that lead to the same node as others join the monitor of those.
    pub(super) fn join_monitors(&mut self, now: Time) {
        while let Some((member, monitor)) = self.monitors.joins.pop() {
            if let Some(State::Open(session)) = &mut self.table.slots[member as usize].state {
                session.join(now, &mut self.monitors, &mut self.windows, monitor);
                self.make_ready(member);
            }
        }
    }
}
