//! Connections to peers: messages that leave, and completions of the node.

use super::super::failure::Failure;
use super::super::local::Event;
use super::super::message::{Id, Message, PeerMessage};
use super::super::record::Record;
use super::super::task::Stage;
use super::{About, Engine, Outcome, OutgoingMessage, PeerConnection, SLOT, SLOTS, Sent, Slots, while_connected};
use strandway_udp::{Completion, Connection, Error, Operation, Reason};

impl Engine {
    /// Sends a message that keeps the two sides in step.
    pub(super) fn send_message(&mut self, peer: usize, message: &Message<'_>) -> Outcome {
        self.post(peer, message, About::Control)
    }

    pub(super) fn post(&mut self, peer: usize, message: &Message<'_>, about: About) -> Outcome {
        let control = OutgoingMessage { bytes: message.encode(), about };
        let one = &mut self.peers[peer];
        match &one.line {
            PeerConnection::Open(connection) if one.backlog.is_empty() => {
                let connection = *connection;
                if let Some(control) = self.send(connection, control)? {
                    self.peers[peer].backlog.push_back(control);
                }
            }
            PeerConnection::Gone(_) => {}
            _ => one.backlog.push_back(control),
        }
        Ok(())
    }

    /// Gives the message back if the connection has no room for it now, or has just ended.
    fn send(&mut self, connection: Connection, control: OutgoingMessage) -> Result<Option<OutgoingMessage>, Error> {
        let OutgoingMessage { bytes, about } = control;
        if self.node.is_linked(connection) {
            let sent = self.node.send_by_link(connection, bytes, matches!(about, About::Send { .. }))?;
            if let Some((position, operation)) = sent {
                self.note_sent_by_link(connection, about, position, operation);
            }
            return Ok(None);
        }
        self.send_by_node(connection, OutgoingMessage { bytes, about })
    }

    /// As [`Engine::send`], by the node in any case.
    pub(super) fn send_by_node(
        &mut self,
        connection: Connection,
        control: OutgoingMessage,
    ) -> Result<Option<OutgoingMessage>, Error> {
        let OutgoingMessage { bytes, about } = control;
        let length = bytes.len();
        let region = self.node.register(bytes);
        match self.node.send(connection, region, 0..length) {
            Ok(operation) => {
                if about != About::Control
                    && let Some(peer) = self.peers.of(connection)
                {
                    self.peers[peer].posted.messages += 1;
                }
                self.sent.insert(operation, (connection, Sent::Message(region, about)));
                Ok(None)
            }
            // `Completion::Closed` reports the end of a connection.
            Err(Error::Busy { .. } | Error::NoConnection | Error::NotConnected) => {
                let bytes = self.node.deregister(region)?;
                Ok(Some(OutgoingMessage { bytes, about }))
            }
            Err(error) => Err(error),
        }
    }

    /// A message has gone by a link: it is in memory that the peer has.
    fn note_sent_by_link(&mut self, connection: Connection, about: About, position: u64, operation: Operation) {
        let Some(peer) = self.peers.of(connection) else { return };
        match about {
            About::Control => return,
            About::Call { .. } => {
                let by_link = &mut self.peers[peer].by_link;
                while by_link.front().is_some_and(|(end, _)| self.node.is_taken(connection, *end)) {
                    by_link.pop_front();
                }
                by_link.push_back((position, about));
            }
            About::Send { task } => drop(self.sent.insert(operation, (connection, Sent::Parcel { task }))),
        }
        self.peers[peer].posted.messages += 1;
    }

    pub(super) fn handle_event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Node(completion) => self.handle_completion(completion),
            Event::Message { connection, bytes } => {
                let handled = self.handle_message(connection, &bytes);
                self.node.keep(bytes);
                handled
            }
            Event::Settled { connection, linked } => self.greet(connection, linked),
            Event::Ended { connection, evidence } => {
                let peer = self.peers.of(connection);
                if peer.is_some_and(|peer| self.peers[peer].bye.is_some()) {
                    let _ = self.node.close(connection);
                    return self.handle_closed(connection, Reason::ByPeer);
                }
                self.cut_off(connection, evidence)
            }
        }
    }

    /// Says on a connection that we began who we are, and by which way we talk from now on.
    fn greet(&mut self, connection: Connection, linked: bool) -> Outcome {
        let Some(peer) = self.peers.of(connection) else { return Ok(()) };
        let said = if linked { PeerMessage::HelloByLink(self.own.id) } else { PeerMessage::Hello(self.own.id) };
        let bytes = Message::of_process(said).encode();
        self.send(connection, OutgoingMessage { bytes, about: About::Control })?;
        if linked && !self.node.attach(connection, self.peers[peer].record.id) {
            return self.cut_off_peer(peer, "it has let go of the memory that it shares with this process");
        }
        self.set_open(peer, connection)
    }

    fn flush(&mut self, peer: usize) -> Outcome {
        while let PeerConnection::Open(connection) = self.peers[peer].line {
            let Some(control) = self.peers[peer].backlog.pop_front() else { break };
            if let Some(control) = self.send(connection, control)? {
                self.peers[peer].backlog.push_front(control);
                break;
            }
        }
        Ok(())
    }

    pub(super) fn handle_completion(&mut self, completion: Completion) -> Outcome {
        match completion {
            Completion::Connected { connection } => {
                self.listen(connection)?;
                let Some(peer) = self.peers.of(connection) else { return Ok(()) };
                match self.node.settle(connection, self.peers[peer].record.id) {
                    Some(linked) => self.greet(connection, linked),
                    None => Ok(()),
                }
            }
            Completion::Accepted { connection, .. } => {
                self.peers.accept(connection);
                self.listen(connection)
            }
            Completion::Received { connection, bytes, .. } => self.handle_bytes(connection, bytes as usize),
            Completion::Written { connection, immediate, bytes } => {
                let Some(opened) = self.landings.open.remove(&(connection, immediate)) else { return Ok(()) };
                self.node.revoke(opened.landing.region);
                let staged = opened.staging.map(|region| self.node.deregister(region)).transpose()?;
                if let Some(waiting) = self.keyless.pop_first() {
                    self.progress(waiting)?;
                }
                let id = opened.task;
                self.clear(id)?;
                let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
                if let Some(peer) = self.peers.of(connection) {
                    self.peers[peer].accepted.writes += 1;
                }
                if bytes != opened.landing.region.bytes {
                    let what = format!("{bytes} bytes came where {} were due", opened.landing.region.bytes);
                    return self.fail(id, &Failure::Mismatch(what));
                }
                match staged {
                    Some(bytes) => task.take(&mut self.node, &mut self.pool, opened.receive, bytes)?,
                    None => task.done(opened.receive),
                }
                self.progress(id)
            }
            Completion::Sent { operation, .. } => {
                let Some((connection, sent)) = self.sent.remove(&operation) else { return Ok(()) };
                let peer = self.peers.of(connection);
                match sent {
                    Sent::Message(region, about) => {
                        self.node.deregister(region)?;
                        if let About::Send { task } = about {
                            self.end_send(task, 0)?;
                        }
                    }
                    Sent::Parcel { task } => self.end_send(task, 0)?,
                    Sent::Long { task, send } => {
                        self.clear(task)?;
                        self.end_send(task, send)?;
                    }
                }
                let Some(peer) = peer else { return Ok(()) };
                if !self.peers[peer].backlog.is_empty() {
                    self.flush(peer)?;
                }
                // There is room for one more operation.
                match self.peers[peer].crowded.pop_first() {
                    Some(waiting) => self.progress(waiting),
                    None => Ok(()),
                }
            }
            Completion::Closed { connection, reason } => self.handle_closed(connection, reason),
            Completion::Probed { number, .. } => {
                self.handle_probed(number);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A send has arrived.
    fn end_send(&mut self, id: u64, send: usize) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        if task.sent[send] != Stage::Done {
            task.sent[send] = Stage::Done;
            task.left -= 1;
        }
        self.progress(id)
    }

    fn listen(&mut self, connection: Connection) -> Outcome {
        let region = self.node.register(vec![0; SLOT * SLOTS]);
        self.slots.insert(connection, Slots { region, next: 0 });
        for slot in 0..SLOTS {
            if while_connected(self.node.recv(connection, region, slot * SLOT..(slot + 1) * SLOT))?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn set_open(&mut self, peer: usize, connection: Connection) -> Outcome {
        self.peers.connect(connection, peer);
        self.peers[peer].line = PeerConnection::Open(connection);
        self.flush(peer)?;
        // Tasks may have waited for the connection.
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.progress(id))
    }

    /// A message has arrived in the connection's next slot.
    fn handle_bytes(&mut self, connection: Connection, length: usize) -> Outcome {
        let Some(slots) = self.slots.get_mut(&connection) else { return Ok(()) };
        let (region, start) = (slots.region, slots.next * SLOT);
        slots.next = (slots.next + 1) % SLOTS;
        // The bytes are copied out, because the message may change the node that holds them.
        let mut bytes = std::mem::take(&mut self.heard);
        bytes.clear();
        bytes.extend_from_slice(&self.node.memory(region)?[start..start + length.min(SLOT)]);
        // The connection may have ended behind this message.
        while_connected(self.node.recv(connection, region, start..start + SLOT))?;
        let handled = self.handle_message(connection, &bytes);
        self.heard = bytes;
        handled
    }

    fn handle_message(&mut self, connection: Connection, bytes: &[u8]) -> Outcome {
        let Some(message) = Message::decode(bytes) else { return self.cut_off(connection, "it breaks the protocol") };
        match message.said {
            PeerMessage::Hello(id) => return self.handle_hello(connection, id, false),
            PeerMessage::HelloByLink(id) => return self.handle_hello(connection, id, true),
            _ => {}
        }
        let Some(peer) = self.peers.of(connection) else {
            return self.cut_off(connection, "it does not say who it is");
        };
        self.handle(peer, &message)
    }

    fn handle_hello(&mut self, connection: Connection, id: Id, by_link: bool) -> Outcome {
        if !self.peers.introduce(connection) {
            return self.cut_off(connection, "it says twice who it is");
        }
        let peer = match self.peers.named(&id) {
            Some(peer) => peer,
            None => {
                // Its group is not known here yet; its record comes with the group.
                let record =
                    Record { id, host: "an unknown host".into(), addresses: Vec::new(), settled: None, local: None };
                self.peers.add(record)
            }
        };
        if !matches!(self.peers[peer].line, PeerConnection::Expected) {
            return self.cut_off(connection, "it has another connection");
        }
        if by_link && !self.node.attach(connection, id) {
            return self.cut_off(connection, "it shares no memory with this process, and says that it does");
        }
        self.set_open(peer, connection)
    }
}
