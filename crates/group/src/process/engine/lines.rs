//! Lines to peers: messages that leave, and completions of the node.

use super::super::failure::Failure;
use super::super::message::{Id, Message, Said};
use super::super::record::Record;
use super::super::task::Stage;
use super::{Engine, Line, Outcome, Peer, SLOT, SLOTS, Sent, Slots};
use std::collections::VecDeque;
use std::time::Instant;
use strandway_udp::{Completion, Connection, Error};

impl Engine {
    pub(super) fn say(&mut self, peer: usize, message: &Message<'_>) -> Outcome {
        let bytes = message.encode();
        let one = &mut self.peers[peer];
        match &one.line {
            Line::Open(connection) if one.backlog.is_empty() => {
                let connection = *connection;
                if let Some(bytes) = self.send(connection, bytes)? {
                    self.peers[peer].backlog.push_back(bytes);
                }
            }
            Line::Gone(_) => {}
            _ => one.backlog.push_back(bytes),
        }
        Ok(())
    }

    /// Gives the message back if the line has no room for it now.
    fn send(&mut self, connection: Connection, bytes: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
        let length = bytes.len();
        let region = self.node.register(bytes);
        match self.node.send(connection, region, 0..length) {
            Ok(operation) => {
                self.sent.insert(operation, (connection, Sent::Message(region)));
                Ok(None)
            }
            Err(Error::Busy { .. }) => self.node.deregister(region).map(Some),
            // Its end is told elsewhere.
            Err(Error::NoConnection | Error::NotConnected) => self.node.deregister(region).map(|_| None),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self, peer: usize) -> Outcome {
        while let Line::Open(connection) = self.peers[peer].line {
            let Some(bytes) = self.peers[peer].backlog.pop_front() else { break };
            if let Some(bytes) = self.send(connection, bytes)? {
                self.peers[peer].backlog.push_front(bytes);
                break;
            }
        }
        Ok(())
    }

    pub(super) fn heed(&mut self, completion: Completion) -> Outcome {
        match completion {
            Completion::Connected { connection } => {
                self.listen(connection)?;
                let Some(&peer) = self.by_connection.get(&connection) else { return Ok(()) };
                let hello = Message { tag: 0, group: 0, number: 0, said: Said::Hello(self.id) }.encode();
                self.send(connection, hello)?;
                self.set_open(peer, connection)
            }
            Completion::Accepted { connection, .. } => {
                self.strangers.insert(connection);
                self.listen(connection)
            }
            Completion::Received { connection, bytes, .. } => self.hear(connection, bytes as usize),
            Completion::Written { connection, immediate, bytes } => {
                let Some(opened) = self.landings.remove(&(connection, immediate)) else { return Ok(()) };
                self.node.revoke(opened.landing.region);
                let staged = opened.staging.map(|region| self.node.deregister(region)).transpose()?;
                let id = opened.task;
                let Some(task) = self.tasks.get_mut(&id) else { return self.clear(id) };
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
            Completion::Sent { operation, .. } => match self.sent.remove(&operation) {
                Some((connection, Sent::Message(region))) => {
                    self.node.deregister(region)?;
                    match self.by_connection.get(&connection) {
                        Some(&peer) if !self.peers[peer].backlog.is_empty() => self.flush(peer),
                        _ => Ok(()),
                    }
                }
                Some((_, Sent::Long { task: id, send })) => {
                    let Some(task) = self.tasks.get_mut(&id) else { return self.clear(id) };
                    task.sent[send] = Stage::Done;
                    task.left -= 1;
                    self.progress(id)
                }
                None => Ok(()),
            },
            Completion::Closed { connection, reason } => self.handle_closed(connection, reason),
            _ => Ok(()),
        }
    }

    fn listen(&mut self, connection: Connection) -> Outcome {
        let region = self.node.register(vec![0; SLOT * SLOTS]);
        for slot in 0..SLOTS {
            self.node.recv(connection, region, slot * SLOT..(slot + 1) * SLOT)?;
        }
        self.slots.insert(connection, Slots { region, next: 0 });
        Ok(())
    }

    fn set_open(&mut self, peer: usize, connection: Connection) -> Outcome {
        self.by_connection.insert(connection, peer);
        self.peers[peer].line = Line::Open(connection);
        self.flush(peer)?;
        // Tasks that have waited for the line.
        let ids: Vec<u64> = self.tasks.keys().copied().collect();
        ids.into_iter().try_for_each(|id| self.progress(id))
    }

    /// A message is in the connection's next slot.
    fn hear(&mut self, connection: Connection, length: usize) -> Outcome {
        let Some(slots) = self.slots.get_mut(&connection) else { return Ok(()) };
        let (region, start) = (slots.region, slots.next * SLOT);
        slots.next = (slots.next + 1) % SLOTS;
        // Copied out: what it says changes the node that holds it.
        let bytes = self.node.memory(region)?[start..start + length.min(SLOT)].to_vec();
        self.node.recv(connection, region, start..start + SLOT)?;
        let Some(message) = Message::decode(&bytes) else { return self.cut_off(connection, "it breaks the protocol") };
        if let Said::Hello(id) = message.said {
            return self.handle_hello(connection, id);
        }
        let Some(&peer) = self.by_connection.get(&connection) else {
            return self.cut_off(connection, "it does not say who it is");
        };
        self.handle(peer, &message)
    }

    fn handle_hello(&mut self, connection: Connection, id: Id) -> Outcome {
        if !self.strangers.remove(&connection) {
            return self.cut_off(connection, "it says twice who it is");
        }
        let peer = match self.by_id.get(&id) {
            Some(&peer) => peer,
            None => {
                // Its group is not known here yet; its record comes with that.
                let record = Record { id, host: "an unknown host".into(), addresses: Vec::new() };
                let peer = self.peers.len();
                self.by_id.insert(id, peer);
                let met = Instant::now();
                self.peers.push(Peer {
                    record,
                    line: Line::Expected,
                    backlog: VecDeque::new(),
                    met,
                    nudged: false,
                    probe: None,
                });
                peer
            }
        };
        if !matches!(self.peers[peer].line, Line::Expected) {
            return self.cut_off(connection, "it has another connection");
        }
        self.set_open(peer, connection)
    }
}
