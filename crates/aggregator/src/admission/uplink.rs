//! The connection of an admission address to the switch that adds racks, for one session.

use super::{JobAdmission, Setup};
use crate::port::{Above, Parent};
use std::net::SocketAddrV6;
use strandway_group::GroupError;
use strandway_group::aggregation::message::{BYTES, Join, Message, Refusal};
use strandway_udp::{Connection, Region};

/// The connection to the parent.
pub(crate) struct Uplink {
    pub(crate) connection: Connection,
    inbox: Region,
    pub(crate) out: Vec<Region>,
    /// Requests that wait for the connection.
    waiting: Vec<Join>,
    open: bool,
}

impl JobAdmission {
    pub(crate) fn is_uplink(&self, connection: Connection) -> bool {
        self.uplink.as_ref().is_some_and(|uplink| uplink.connection == connection)
    }

    /// Passes a worker's request on to the parent.
    pub(crate) fn pass(&mut self, setup: &Setup, parent: SocketAddrV6, join: Join) {
        if self.uplink.is_none() {
            let port = parent.port().saturating_add(self.job.number);
            let admission = SocketAddrV6::new(*parent.ip(), port, 0, parent.scope_id());
            let Ok(connection) = self.node.connect(&[admission]) else {
                return self.refuse_all(setup, Refusal::NoParent);
            };
            let inbox = self.node.register(vec![0; BYTES]);
            self.uplink = Some(Uplink { connection, inbox, out: Vec::new(), waiting: Vec::new(), open: false });
        }
        let Some(uplink) = &mut self.uplink else { return };
        uplink.waiting.push(join);
        if uplink.open {
            self.send_wishes(setup);
        }
    }

    pub(crate) fn open_uplink(&mut self, setup: &Setup, connection: Connection) {
        let Some(uplink) = self.uplink.as_mut().filter(|uplink| uplink.connection == connection) else { return };
        uplink.open = true;
        match self.node.recv(connection, uplink.inbox, 0..BYTES) {
            Ok(_) => self.send_wishes(setup),
            Err(_) => self.lose_parent(setup),
        }
    }

    /// Passes on the requests that wait. A parent that has gone, or that takes no more messages, is lost.
    fn send_wishes(&mut self, setup: &Setup) {
        let Some(uplink) = &mut self.uplink else { return };
        for join in std::mem::take(&mut uplink.waiting) {
            let out = self.node.register(Message::Pass(join).encode());
            uplink.out.push(out);
            if self.node.send(uplink.connection, out, 0..BYTES).is_err() {
                return self.lose_parent(setup);
            }
        }
    }

    /// The parent is lost: the session ends, or does not begin.
    pub(crate) fn lose_parent(&mut self, setup: &Setup) {
        self.drop_uplink();
        match self.session.as_ref().is_some_and(|session| session.layout.is_some()) {
            true => self.end_session(setup),
            false => self.refuse_all(setup, Refusal::NoParent),
        }
    }

    /// The parent has answered.
    pub(crate) fn handle_parent_message(&mut self, setup: &Setup) -> Result<(), GroupError> {
        if let Some(reason) = self.follow_parent(setup)? {
            self.refuse_all(setup, reason);
        }
        Ok(())
    }

    /// Begins the session on the parent's terms, or returns the reason of a refusal.
    fn follow_parent(&mut self, setup: &Setup) -> Result<Option<Refusal>, GroupError> {
        let (Some(uplink), Some(session), Some(parent)) = (&self.uplink, &mut self.session, setup.config.parent) else {
            return Ok(None);
        };
        if session.layout.is_some() {
            return Ok(None);
        }
        let welcome = match Message::decode(self.node.memory(uplink.inbox)?) {
            Some(Message::Welcome(welcome)) => *welcome,
            Some(Message::Refused(reason)) => return Ok(Some(reason)),
            _ => return Ok(Some(Refusal::Version)),
        };
        let ours = (setup.config.system.number(), setup.slots(), setup.ports.len());
        let whole = welcome.layout.racks.len() == usize::from(session.join.workers)
            && session.members.keys().all(|&worker| welcome.layout.racks[usize::from(worker)] == welcome.rack);
        let window = (1..=session.window).contains(&welcome.window) && welcome.elements == session.join.elements;
        if ours != (welcome.system, welcome.slots, welcome.ports.len()) || !whole || !window {
            return Ok(Some(Refusal::Unlike));
        }
        (session.window, session.join.scatter) = (welcome.window, welcome.scatter);
        let members: Vec<Connection> = session.members.values().copied().collect();
        let at = |port: &u16| SocketAddrV6::new(*parent.ip(), *port, 0, parent.scope_id());
        let way = Parent { up: welcome.up, down: welcome.down, ports: welcome.ports.iter().map(at).collect() };
        if !self.begin(setup, welcome.layout, welcome.rack, Above::Parent(way))? {
            return Ok(Some(Refusal::Unlike));
        }
        members.into_iter().try_for_each(|connection| self.welcome(setup, connection, welcome.rack))?;
        Ok(None)
    }

    pub(crate) fn drop_uplink(&mut self) {
        let Some(uplink) = self.uplink.take() else { return };
        let _ = self.node.close(uplink.connection);
        for region in uplink.out.into_iter().chain([uplink.inbox]) {
            // A connection that has ended uses no memory.
            let _ = self.node.deregister(region);
        }
    }
}
