//! Congestion contexts: connections to one host that share one window, as MRC's do (QPCC).
//!
//! A context begins when a second connection to the same host, with the same profile, posts its first message; until
//! then a connection has its own window. Before each call that needs the window, the context's state is copied into the
//! connection ([`Endpoint::grant`]), unless the connection was the last one that used it. Only one member at a time is
//! in the endpoint's ready list, so that a destination counts once, whatever its number of connections; the other
//! members wait. A turn has the number of bytes that the receiver acknowledges together (`ack_every`). With shorter
//! turns, unacknowledged packets of many connections would fill the window while their connections wait for the next
//! turn.

use super::Endpoint;
use crate::congestion::Nscc;
use crate::connection::{Connection, Polled};
use crate::packet::{HostId, Packet, Ports};
use crate::units::Time;
use std::collections::BTreeMap;

/// One window for several connections.
pub(super) struct Context {
    /// The window's state, unless a member keeps it.
    congestion: Nscc,
    /// Wire bytes in flight, all members together; out of date while a member keeps the window.
    in_flight: u64,
    /// The member that used the window last: its connection has the window's state.
    keeper: Option<u32>,
    members: Vec<WindowMember>,
    /// Does the window have room for a packet?
    pub(super) is_open: bool,
    /// The member that has the turn; it is in the endpoint's ready list.
    holder: Option<u32>,
    /// The number of members that wait for a turn, and the index at which the search for the next one starts.
    waiting: u32,
    turn: usize,
}

/// A connection that shares a window.
#[derive(Clone, Copy)]
struct WindowMember {
    id: u32,
    /// It waits for a turn.
    waiting: bool,
}

/// Connections to one host with one profile: the host, and the profile's fingerprint.
type Destination = (HostId, u64);

/// For each destination, a connection. Most hosts of a large fabric have one destination, which is not worth a tree.
#[derive(Default)]
pub(super) struct Destinations {
    one: Option<(Destination, u32)>,
    others: BTreeMap<Destination, u32>,
}

impl Destinations {
    fn get(&self, key: &Destination) -> Option<u32> {
        match self.one {
            Some((one, id)) if one == *key => Some(id),
            _ => self.others.get(key).copied(),
        }
    }

    fn insert(&mut self, key: Destination, id: u32) {
        if self.one.is_none_or(|(one, _)| one == key) && !self.others.contains_key(&key) {
            self.one = Some((key, id));
        } else {
            self.others.insert(key, id);
        }
    }

    fn remove(&mut self, key: &Destination) {
        if self.one.is_some_and(|(one, _)| one == *key) {
            self.one = None;
        } else {
            self.others.remove(key);
        }
    }
}

impl Endpoint {
    /// Joins a connection to the window of its destination, when it posts its first message.
    #[cold]
    pub(super) fn join(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        connection.sharing = Some(Box::default());
        let key = connection.destination();
        let Some(first) = self.destinations.get(&key) else {
            self.destinations.insert(key, id);
            return;
        };
        let context = self.connections[first as usize].context().unwrap_or_else(|| self.begin(first));
        self.set_context(id, context);
    }

    /// Begins a context with the state of its first member.
    fn begin(&mut self, first: u32) -> u32 {
        let connection = &mut self.connections[first as usize];
        let in_flight = connection.in_flight().0;
        let congestion = *connection.nscc().expect("only NSCC's windows are shared");
        let begun = Context {
            congestion,
            in_flight,
            keeper: None,
            members: Vec::new(),
            is_open: true,
            holder: None,
            waiting: 0,
            turn: 0,
        };
        let context = if let Some(free) = self.free_contexts.pop() {
            self.contexts[free as usize] = begun;
            free
        } else {
            self.contexts.push(begun);
            self.contexts.len() as u32 - 1
        };
        self.set_context(first, context);
        context
    }

    fn set_context(&mut self, id: u32, context: u32) {
        if let Some(sharing) = &mut self.connections[id as usize].sharing {
            let members = &mut self.contexts[context as usize].members;
            (sharing.context, sharing.place) = (Some(context), members.len() as u32);
            members.push(WindowMember { id, waiting: false });
        }
    }

    /// Copies the shared window into a connection, if another one used it last. [`Endpoint::take_back`] must follow
    /// after the call that uses it.
    #[inline]
    pub(super) fn grant(&mut self, id: u32) -> Option<u32> {
        let context = self.connections[id as usize].context()?;
        if self.contexts[context as usize].keeper != Some(id) {
            self.hand_on(context, id);
        }
        Some(context)
    }

    /// Hands the shared window from the member that used it last to another one.
    #[inline(never)]
    fn hand_on(&mut self, context: u32, id: u32) {
        self.collect(context);
        let context = &mut self.contexts[context as usize];
        context.grant_to(&mut self.connections[id as usize]);
        context.keeper = Some(id);
    }

    /// Copies the shared window from the member that used it last back into the context.
    fn collect(&mut self, context: u32) {
        let context = &mut self.contexts[context as usize];
        if let Some(keeper) = context.keeper.take() {
            context.collect(&mut self.connections[keeper as usize]);
        }
    }

    /// A connection has used the window that [`Endpoint::grant`] gave it: notes whether the window has room now.
    #[inline]
    pub(super) fn take_back(&mut self, id: u32, context: Option<u32>) {
        if let Some(context) = context {
            self.contexts[context as usize].is_open = self.connections[id as usize].window_open();
        }
    }

    /// Removes a closed connection from its shared window.
    pub(super) fn leave_context(&mut self, id: u32) {
        if let Some(context) = self.connections[id as usize].context() {
            self.collect(context);
        }
        let connection = &mut self.connections[id as usize];
        let Some(sharing) = connection.sharing.take() else { return };
        let (key, in_flight) = (connection.destination(), connection.own_in_flight());
        let mut heir = None;
        if let Some(number) = sharing.context {
            let context = &mut self.contexts[number as usize];
            let gone = context.members.remove(sharing.place as usize);
            context.in_flight -= in_flight;
            context.waiting -= u32::from(gone.waiting);
            context.turn = 0;
            if context.holder == Some(id) {
                context.holder = None;
            }
            heir = context.members.first().map(|member| member.id);
            for member in &self.contexts[number as usize].members[sharing.place as usize..] {
                if let Some(later) = &mut self.connections[member.id as usize].sharing {
                    later.place -= 1;
                }
            }
        }
        if self.destinations.get(&key) == Some(id) {
            match heir {
                Some(other) => self.destinations.insert(key, other),
                None => self.destinations.remove(&key),
            };
        }
        match (heir, sharing.context) {
            (Some(other), _) => {
                // The bytes in flight of the closed connection no longer count, so the window may be open now.
                let context = self.grant(other);
                self.take_back(other, context);
                self.call(other);
            }
            (None, Some(number)) => self.free_contexts.push(number),
            (None, None) => {}
        }
    }

    /// Lets a connection that shares its window wait for a turn if it has something to send.
    pub(super) fn queue_up(&mut self, id: u32) {
        let connection = &mut self.connections[id as usize];
        let wants = connection.has_next();
        if let Some(sharing) = &mut connection.sharing
            && let Some(context) = sharing.context
        {
            let context = &mut self.contexts[context as usize];
            let has_turn = context.holder == Some(id);
            if has_turn && !connection.ready {
                context.holder = None;
                sharing.turn_left = 0;
            }
            let member = &mut context.members[sharing.place as usize];
            if wants && !member.waiting && context.holder != Some(id) {
                member.waiting = true;
                context.waiting += 1;
            }
        }
        self.call(id);
    }

    /// Polls a connection of the ready list that may share its window.
    #[inline(never)]
    pub(super) fn poll_sharing(&mut self, now: Time, id: u32, free: Ports, into: &mut Packet) -> Polled {
        let context = self.grant(id);
        let polled = self.connections[id as usize].poll_transmit(now, free, into);
        self.take_back(id, context);
        match polled {
            Polled::Packet { more } => {
                let goes_on = more && self.keeps_turn(id);
                self.connections[id as usize].ready = goes_on;
                if goes_on {
                    self.ready.push_back(id);
                } else if more {
                    self.queue_up(id);
                } else {
                    self.end_turn(id);
                }
                self.arm(now, id);
            }
            Polled::Blocked => {
                self.connections[id as usize].ready = false;
            }
            Polled::NoPort => self.ready.push_back(id),
        }
        polled
    }

    /// Does the turn go on, or is there something to send that needs no turn?
    fn keeps_turn(&self, id: u32) -> bool {
        let connection = &self.connections[id as usize];
        let Some(sharing) = &connection.sharing else { return true };
        let Some(context) = sharing.context else { return true };
        let has_turn = self.contexts[context as usize].holder == Some(id);
        (has_turn && sharing.turn_left > 0) || connection.wants_at_once()
    }

    /// Ends a connection's turn: the next member of its context gets the turn. True if there is one.
    pub(super) fn end_turn(&mut self, id: u32) -> bool {
        if self.connections[id as usize].context().is_none() {
            return false;
        }
        self.queue_up(id);
        let context = self.connections[id as usize].context();
        context.and_then(|c| self.contexts[c as usize].holder).is_some_and(|holder| holder != id)
    }

    /// Gives the turn to the next waiting member, if the shared window is open and no member has the turn.
    fn call(&mut self, id: u32) {
        let Some(context) = self.connections[id as usize].context() else { return };
        let context = &mut self.contexts[context as usize];
        if context.waiting == 0 || context.holder.is_some() || !context.is_open {
            return;
        }
        let count = context.members.len();
        for step in 0..count {
            let at = context.turn + step;
            let at = if at < count { at } else { at - count };
            let Some(WindowMember { id, waiting }) = context.members.get_mut(at).filter(|member| member.waiting) else {
                continue;
            };
            *waiting = false;
            let id = *id;
            let connection = &mut self.connections[id as usize];
            context.waiting -= 1;
            context.turn = at + 1;
            context.holder = Some(id);
            // It may already be in the ready list, for something that needs no turn.
            if !connection.ready {
                connection.ready = true;
                self.ready.push_back(id);
            }
            return;
        }
    }

    /// The window of a connection's context, if it shares one.
    pub(super) fn shared_window(&self, id: u32) -> Option<u64> {
        let context = &self.contexts[self.connections[id as usize].context()? as usize];
        let kept = context.keeper.and_then(|keeper| self.connections[keeper as usize].kept_nscc());
        Some(kept.unwrap_or(&context.congestion).window_bytes())
    }
}

impl Context {
    fn grant_to(&self, connection: &mut Connection) {
        let beside = self.in_flight - connection.in_flight().0;
        if let Some(sharing) = &mut connection.sharing {
            sharing.beside = beside;
        }
        if let Some(nscc) = connection.nscc() {
            *nscc = self.congestion;
        }
        connection.read_window();
    }

    fn collect(&mut self, connection: &mut Connection) {
        self.in_flight = connection.in_flight().0;
        if let Some(sharing) = &mut connection.sharing {
            sharing.beside = 0;
        }
        if let Some(nscc) = connection.nscc() {
            self.congestion = *nscc;
        }
    }
}
