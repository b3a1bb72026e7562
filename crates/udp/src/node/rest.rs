//! For programs that sleep in a loop of their own: a turn without waiting, the sockets that end a sleep, and its
//! longest time.

use super::{Completion, Node};
use crate::links::Links;
use crate::plane::Plane;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Our own ports, as the kernel reports them.
pub(super) struct OwnPorts {
    /// Which planes' ports are up, as connections were last told.
    pub(super) up: Vec<bool>,
    /// Reports ports that go down; `None` where the system has no such reports.
    pub(super) links: Option<Links>,
}

/// Turns without waiting.
impl Node {
    /// Moves packets once, unless completions wait. True if a completion waits or anything moved; then call
    /// [`Node::take_completion`] until it returns `None`, and this again.
    pub fn turn(&mut self) -> bool {
        self.let_go();
        !self.completions.is_empty() || self.work()
    }

    /// The oldest completion. Moves no packets.
    pub fn take_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// How long the program may sleep after a [`Node::turn`] that moved nothing, if no socket of
    /// [`Node::wait_for`] is ready sooner. Operations that are posted meanwhile need a turn as well.
    pub fn rest(&mut self) -> Duration {
        self.let_go();
        if !self.completions.is_empty() {
            return Duration::ZERO;
        }
        let at = self.turns.deadlines.first().min(self.monitors.deadline()).min(self.groups.due());
        let at = self.orders.as_ref().map_or(at, |orders| at.min(orders.due));
        Duration::from_nanos(at.since(self.clock.now().min(at)).0.div_ceil(1_000))
    }

    /// The sockets that end a sleep when they can be read, each with whether it also ends when the socket can be
    /// written.
    pub fn wait_for(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        let sends = !self.turns.ready.is_empty() || self.groups.wait();
        let full = |plane: &Plane| plane.is_blocked() || (sends && !plane.is_free());
        let mut sockets: Vec<(BorrowedFd<'_>, bool)> =
            self.planes.iter().map(|plane| (plane.as_fd(), full(plane))).collect();
        let tunnels = self.planes.iter().filter_map(|plane| Some((plane.tunnel_fd()?, plane.is_tunnel_blocked())));
        sockets.extend(tunnels);
        sockets.extend(self.planes.iter().filter_map(Plane::urgent_fd).map(|socket| (socket, false)));
        sockets.extend(self.groups.sockets().map(|socket| (socket.as_fd(), false)));
        sockets.extend(self.ports.links.as_ref().map(|links| (links.as_fd(), false)));
        sockets
    }

    /// Call after each sleep. The sockets were listened to meanwhile, so the silence of a peer counts.
    pub fn rise(&mut self) {
        if let Some(links) = &mut self.ports.links {
            links.read();
        }
        self.turns.last = self.clock.now();
    }
}
