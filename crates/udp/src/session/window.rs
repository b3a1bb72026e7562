//! A session's part in a window that it shares with other connections to its peer.

use super::{NodeContext, ONLY, Session};
use crate::windows::{Turn, Windows};

/// The part of a connection in a window that it shares.
#[derive(Default)]
pub(super) struct WindowShare {
    /// Does the profile have one window per destination?
    pub(super) shared: bool,
    /// Wire bytes of this connection that are in flight in the shared window, if there is one.
    in_flight: Option<u64>,
    /// It has something to send, and waits for its turn in the shared window.
    pub(super) waits: bool,
    /// Packets that it has sent in its present turn.
    sent: usize,
}

impl Session {
    /// Takes its shared window out of the table, if it shares one; [`Session::return_window`] gives it back.
    #[inline]
    pub(super) fn borrow_window(&mut self, around: &mut NodeContext<'_>) -> bool {
        self.sending.window.shared && self.borrow(around)
    }

    fn borrow(&mut self, around: &mut NodeContext<'_>) -> bool {
        if self.sending.window.in_flight.is_none() {
            if around.monitors.is_alone(self.paths.monitor) {
                return false;
            }
            // The first session that works brings its own window; each later one adds its bytes in flight.
            let (share, origin) = (self.endpoint.observe().in_flight(ONLY).0, self.origin);
            let endpoint = &mut self.endpoint;
            let begin = || endpoint.window_to_share(ONLY, 0).expect("its profile shares windows");
            around.windows.join(self.paths.monitor, share, origin, begin);
            self.sending.window.in_flight = Some(share);
        }
        let (Some(share), Some(shared)) = (self.sending.window.in_flight, around.windows.get_mut(self.paths.monitor))
        else {
            return false;
        };
        let ahead = shared.origin - self.origin;
        self.endpoint.grant_window(around.now, ONLY, &shared.window, share, ahead);
        true
    }

    /// Gives back what [`Session::borrow_window`] took.
    pub(super) fn return_window(&mut self, around: &mut NodeContext<'_>) {
        let Some(shared) = around.windows.get_mut(self.paths.monitor) else { return };
        let ahead = shared.origin - self.origin;
        self.sending.window.in_flight = Some(self.endpoint.take_window(ONLY, &mut shared.window, ahead));
        if around.monitors.is_alone(self.paths.monitor) {
            // The others are gone: the window belongs to this session alone again.
            self.leave_window(around.windows);
        }
    }

    /// Stops sharing a window: the session ends, or its peer turned out to be another node.
    pub(crate) fn leave_window(&mut self, windows: &mut Windows) {
        if let Some(share) = self.sending.window.in_flight.take() {
            windows.leave(self.paths.monitor, self.handle.index, share);
            self.endpoint.keep_window(ONLY);
            self.sending.window.waits = false;
        }
    }

    /// May it send data: does it have a window of its own, or is it its turn?
    pub(super) fn may_send(&self, around: &mut NodeContext<'_>) -> bool {
        self.sending.window.in_flight.is_none()
            || around.windows.get_mut(self.paths.monitor).is_none_or(|one| one.may_send(self.handle.index))
    }

    /// A packet has left. Does the turn end here? A turn has at least one full batch. It ends where the engine ends its
    /// own turn, since the last packet of an engine's turn is acknowledged at once.
    pub(super) fn ends_turn(&mut self) -> bool {
        self.sending.window.sent += 1;
        2 * self.sending.window.sent >= self.sending.turn && self.endpoint.is_between_turns(ONLY)
    }

    /// Ends its work for now. `hindered`: sockets or pacing kept it from sending more.
    pub(super) fn end_work(&mut self, around: &mut NodeContext<'_>, hindered: bool) {
        let over = 2 * self.sending.window.sent >= self.sending.turn && self.endpoint.is_between_turns(ONLY);
        let Some(shared) = around.windows.get_mut(self.paths.monitor) else { return };
        let turn = if !self.endpoint.has_next(ONLY) {
            Turn::Done
        } else if over || (shared.window.is_open() && !hindered) {
            Turn::Over
        } else {
            Turn::Kept
        };
        if turn != Turn::Kept {
            self.sending.window.sent = 0;
        }
        shared.note(self.handle.index, turn);
        self.sending.window.waits = turn != Turn::Done && !(hindered && shared.may_send(self.handle.index));
        around.windows.wake(self.paths.monitor);
    }
}
