//! The table of connections: each has a slot, which is found by handle or by the number in the peer's datagrams.

use super::{Calling, Completion, Connection, Node};
use crate::error::{Error, Reason};
use crate::frame::NOISE_HELLO;
use crate::layout::Layout;
use crate::secure::random;
use crate::session::{NodeContext, Session, queue_of};
use std::collections::HashMap;
use strandway_proto::Time;

pub(super) enum State {
    Calling(Box<Calling>),
    Open(Box<Session>),
}

pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) state: Option<State>,
    /// The number by which the peer addresses us.
    pub(super) id: u64,
    /// The hello that it began with, until its caller has shown the keys.
    pub(super) hello: Option<[u8; NOISE_HELLO]>,
    /// Is it in [`Turns::ready`](super::turn::Turns::ready)?
    pub(super) ready: bool,
}

/// The connections of a node.
#[derive(Default)]
pub(super) struct Table {
    pub(super) slots: Vec<Slot>,
    /// Slots without a connection.
    pub(super) free: Vec<u32>,
    /// Slots of connections whose callers have not shown their keys.
    pub(super) unconfirmed: Vec<u32>,
    /// The number of connections.
    pub(super) open: usize,
    pub(super) ids: HashMap<u64, u32>,
    /// Slots by queue pair, in MRC's layout.
    pub(super) queues: HashMap<u32, u32>,
    /// The connection of the last datagram, and its slot. The next datagram is likely to belong to it as well.
    pub(super) recent: Option<(u64, u32)>,
}

impl Node {
    /// A random number that this node does not use yet. Its lowest byte is our shard.
    pub(super) fn fresh_id(&self) -> Result<u64, Error> {
        loop {
            let id = u64::from_be_bytes(random()?) & !0xff | u64::from(self.shard());
            let id = if self.config.layout == Layout::Frame { id } else { super::mrc::number_with_queue(id) };
            if !self.table.ids.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// The handle that [`Node::occupy`] will give next.
    pub(super) fn next_handle(&self) -> Connection {
        match self.table.free.last() {
            Some(&index) => Connection { index, generation: self.table.slots[index as usize].generation },
            None => Connection { index: self.table.slots.len() as u32, generation: 0 },
        }
    }

    pub(super) fn occupy(&mut self, id: u64, state: State) -> Result<Connection, Error> {
        let limit = self.config.limits.connections;
        if self.table.open >= limit {
            return Err(Error::TooManyConnections { limit });
        }
        let handle = self.next_handle();
        if self.table.free.pop().is_none() {
            self.table.slots.push(Slot { generation: 0, state: None, id, hello: None, ready: false });
        }
        let slot = &mut self.table.slots[handle.index as usize];
        (slot.state, slot.id, slot.hello) = (Some(state), id, None);
        self.table.ids.insert(id, handle.index);
        if self.config.layout != Layout::Frame {
            self.table.queues.insert(queue_of(id), handle.index);
        }
        self.table.open += 1;
        self.make_ready(handle.index);
        Ok(handle)
    }

    /// Ends the connection in a slot and tells the application; `tell`: the peer as well.
    pub(super) fn end(&mut self, index: usize, reason: Reason, tell: bool) {
        if let (Reason::PayloadTooLarge, Some(sizes)) = (reason, &mut self.probing.sizes) {
            sizes.forget();
        }
        if let Some(connection) = self.take_down(index, reason, tell) {
            self.completions.push_back(Completion::Closed { connection, reason });
        }
    }

    /// Takes the connection out of a slot. Returns its handle, if the application knows of the connection.
    pub(super) fn take_down(&mut self, index: usize, reason: Reason, tell: bool) -> Option<Connection> {
        let slot = &mut self.table.slots[index];
        let connection = Connection { index: index as u32, generation: slot.generation };
        let state = slot.state.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.table.free.push(index as u32);
        self.turns.deadlines.set(index as u32, Time::NEVER);
        self.table.ids.remove(&slot.id);
        self.table.queues.remove(&queue_of(slot.id));
        if let Some(hello) = slot.hello.take() {
            // The welcome did not arrive in time; the next hello must get one for a connection that exists.
            self.greeting.answered.forget(&hello);
        }
        self.table.recent = None;
        self.table.open -= 1;
        self.memory.revoke_all(connection);
        let mut known = true;
        if let State::Open(mut session) = state {
            session.leave_window(&mut self.windows);
            self.monitors.leave(session.monitor(), index as u32, session.is_counted());
            known = session.is_confirmed();
            if !known {
                self.table.unconfirmed.retain(|&other| other as usize != index);
            }
            let carried = session.counters();
            self.counters.ended_received_bytes += carried.received_bytes.iter().sum::<u64>();
            self.counters.ended_fresh_bytes += carried.fresh_bytes;
            self.counters.ended_retransmitted += carried.engine.retransmitted;
            if tell {
                let mut around = node_context!(self, self.clock.now());
                session.send_goodbye(&mut around, reason);
            }
            session.release(&mut self.memory);
        }
        // If the application has not taken the completion of its beginning, it gets neither that nor one of its end.
        let before = self.completions.len();
        self.completions.retain(|c| !matches!(c, Completion::Accepted { connection: it, .. } if *it == connection));
        (known && self.completions.len() == before).then_some(connection)
    }

    /// The connection in a slot works in the next turn.
    pub(super) fn make_ready(&mut self, index: u32) {
        let slot = &mut self.table.slots[index as usize];
        if !std::mem::replace(&mut slot.ready, true) {
            self.turns.ready.push_back(index);
        }
    }

    /// Connections whose turn in a shared window has come work in the next turn.
    pub(super) fn wake_waiting(&mut self) {
        while let Some(index) = self.windows.take_woken() {
            self.make_ready(index);
        }
    }

    pub(super) fn slot(&self, connection: Connection) -> Result<&State, Error> {
        let slot =
            self.table.slots.get(connection.index as usize).filter(|slot| slot.generation == connection.generation);
        slot.and_then(|slot| slot.state.as_ref()).ok_or(Error::NoConnection)
    }

    pub(super) fn session(&self, connection: Connection) -> Result<&Session, Error> {
        match self.slot(connection)? {
            State::Open(session) => Ok(session),
            State::Calling(_) => Err(Error::NotConnected),
        }
    }

    pub(super) fn session_mut(&mut self, connection: Connection) -> Result<&mut Session, Error> {
        self.session(connection)?;
        match &mut self.table.slots[connection.index as usize].state {
            Some(State::Open(session)) => Ok(session),
            _ => Err(Error::NotConnected),
        }
    }
}
