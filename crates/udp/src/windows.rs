//! Congestion windows that the connections with one peer node share, and the order in which those connections send.
//!
//! A profile may have one window per destination (`mrc`: NSCC with `per_destination`). Each connection has an endpoint
//! of its own here, so the node keeps the window and lends it to the connection that works. While the window is full,
//! connections with something to send wait in a queue. The first of them has the turn, until it has sent a full batch
//! that its peer acknowledges at once.

use std::collections::{HashMap, VecDeque};
use strandway_proto::SharedWindow;

/// The window of one peer.
pub(crate) struct Shared {
    pub(crate) window: SharedWindow,
    /// The node's time at the window's time zero.
    pub(crate) origin: i128,
    members: u32,
    /// Slots of connections that have something to send, in the order of their turns.
    waiting: VecDeque<u32>,
}

/// The windows of a node, by the number of the peer's monitor.
#[derive(Default)]
pub(crate) struct Windows {
    shared: HashMap<u32, Shared>,
    /// Slots of connections whose turn has come.
    woken: Vec<u32>,
}

impl Windows {
    /// The window of a peer, if it is shared.
    pub(crate) fn get_mut(&mut self, monitor: u32) -> Option<&mut Shared> {
        self.shared.get_mut(&monitor)
    }

    /// From now on a connection shares the window of a peer, and adds its `share` bytes in flight. The first connection
    /// makes the window with `begin`.
    pub(crate) fn join(&mut self, monitor: u32, share: u64, origin: i128, begin: impl FnOnce() -> SharedWindow) {
        let shared = self.shared.entry(monitor).or_insert_with(|| {
            let (window, waiting) = (begin(), VecDeque::new());
            Shared { window, origin, members: 0, waiting }
        });
        shared.members += 1;
        shared.window.join(share);
    }

    /// A connection stops sharing the window, or has ended.
    pub(crate) fn leave(&mut self, monitor: u32, slot: u32, share: u64) {
        let Some(shared) = self.shared.get_mut(&monitor) else { return };
        shared.members -= 1;
        shared.window.leave(share);
        shared.waiting.retain(|&other| other != slot);
        if shared.members == 0 {
            self.shared.remove(&monitor);
        } else {
            self.wake(monitor);
        }
    }

    /// If a window has room, wakes the first connection that waits for it.
    pub(crate) fn wake(&mut self, monitor: u32) {
        if let Some(shared) = self.shared.get(&monitor)
            && shared.window.is_open()
            && let Some(&first) = shared.waiting.front()
        {
            self.woken.push(first);
        }
    }

    /// A connection whose turn has come.
    pub(crate) fn take_woken(&mut self) -> Option<u32> {
        self.woken.pop()
    }
}

/// The result of a connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It has nothing more to send.
    Done,
    /// It has more to send, and stays the first when there is room.
    Kept,
    /// It has more to send, and goes behind all others.
    Over,
}

impl Shared {
    /// May this connection send now: is no other one before it?
    pub(crate) fn may_send(&self, slot: u32) -> bool {
        self.waiting.front().is_none_or(|&first| first == slot)
    }

    /// A connection has worked.
    pub(crate) fn note(&mut self, slot: u32, turn: Turn) {
        let is_first = self.waiting.front() == Some(&slot);
        match turn {
            Turn::Done => self.waiting.retain(|&other| other != slot),
            Turn::Over if is_first => self.waiting.rotate_left(1),
            Turn::Kept | Turn::Over if self.waiting.contains(&slot) => {}
            Turn::Kept | Turn::Over => self.waiting.push_back(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use strandway_proto::rng::{Random, StreamKind};
    use strandway_proto::{ConnectionId, Endpoint, HostId, OpenConnection, Time};

    fn window() -> SharedWindow {
        let config = crate::Config::new(&[7; 32]).and_then(|config| config.profile("mrc")).expect("a preset");
        let profile = Arc::new(config.wire_profile());
        let environment = config.environment_over(config.rate, config.base_rtt, &profile, 1 << 20);
        let mut endpoint = Endpoint::new(HostId(0));
        let random = Random::new(1, StreamKind::Connection, 0);
        let (peer, peer_connection) = (HostId(1), Some(ConnectionId(0)));
        endpoint.open(Time::ZERO, OpenConnection { profile, environment, peer, peer_connection, random });
        endpoint.window_to_share(ConnectionId(0), 0).expect("it shares its window")
    }

    #[test]
    fn turns_go_round_and_nobody_waits_twice() {
        let mut windows = Windows::default();
        (0..3).for_each(|_| windows.join(9, 0, 0, window));
        let shared = windows.get_mut(9).expect("three members");
        assert!((0..3).all(|slot| shared.may_send(slot)), "no connection waits");
        for slot in [2, 0, 1, 0, 1] {
            shared.note(slot, if slot == 2 { Turn::Kept } else { Turn::Over });
        }
        assert!(shared.may_send(2) && !shared.may_send(0));
        let order: Vec<u32> = (0..6)
            .map(|_| {
                let first = (0..3).find(|&slot| shared.may_send(slot)).expect("one connection is first");
                shared.note(first, Turn::Over);
                first
            })
            .collect();
        assert_eq!(order, [2, 0, 1, 2, 0, 1]);
        shared.note(2, Turn::Done);
        assert!(shared.may_send(0));
        windows.leave(9, 0, 0);
        assert_eq!(windows.take_woken(), Some(1), "the next connection is woken");
        windows.leave(9, 2, 0);
        windows.leave(9, 1, 0);
        assert!(windows.get_mut(9).is_none(), "the window is removed with its last member");
    }

    #[test]
    fn bytes_in_flight_of_members_add_up_and_leave_with_them() {
        let mut windows = Windows::default();
        windows.join(1, 700, 0, window);
        windows.join(1, 300, 0, window);
        assert_eq!(windows.get_mut(1).map(|shared| shared.window.in_flight()), Some(1_000));
        windows.leave(1, 5, 700);
        assert_eq!(windows.get_mut(1).map(|shared| shared.window.in_flight()), Some(300));
    }
}
