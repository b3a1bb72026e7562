//! All links of a process: bytes move by them, and the process may sleep when none has anything to do.

use super::super::launch::note_unshared;
use super::super::message::Id;
use super::bell::Bell;
use super::carrier::Event;
use super::link::{Arrived, Link, LinkError, Outgoing};
use super::meetings::{Found, LINK_ENDED, Meetings, UNUSED_MAX};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Connection, Error, Node, Operation};

/// Numbers of operations of links, which the node's do not reach.
const OPERATIONS: u64 = 1 << 63;

/// A process that ends loses its sockets first. The kernel says so within this time: ours.
const GRACE: Duration = Duration::from_millis(100);

/// Links, and what makes them.
pub(in super::super) struct Local {
    pub(super) bell: Bell,
    pub(super) meetings: Meetings,
    links: Vec<(u64, Link)>,
    /// The link that has its turn next.
    turn: usize,
    /// Connections that wait for a greeting of ours.
    parked: HashMap<Id, Connection>,
    events: VecDeque<Event>,
    /// Room for the next message.
    pub(super) spare: Vec<u8>,
    next_operation: u64,
    /// The engine waits until peers have taken what was sent.
    pub(super) wants_room: bool,
    /// When the node, and the ends of peers, were looked at last.
    pub(super) node_turn: Instant,
    pub(super) ends_turn: Instant,
}

impl Local {
    /// Lets processes of this host make links with this one. `descriptors`: those of all sockets of the process.
    pub(in super::super) fn open(id: Id, secret: &[u8; 32], descriptors: Arc<Mutex<Vec<i32>>>) -> Result<Local, Errno> {
        let now = Instant::now();
        Ok(Local {
            bell: Bell::new()?,
            meetings: Meetings::open(id, secret, descriptors)?,
            links: Vec::new(),
            turn: 0,
            parked: HashMap::new(),
            events: VecDeque::new(),
            spare: Vec::new(),
            next_operation: OPERATIONS,
            wants_room: false,
            node_turn: now,
            ends_turn: now,
        })
    }

    /// The name by which processes of this host call it.
    pub(in super::super) fn name(&self) -> &str {
        self.meetings.name()
    }

    /// Is there nothing but the listener to look at?
    pub(super) fn is_idle(&self) -> bool {
        self.links.is_empty() && self.meetings.is_idle() && self.events.is_empty()
    }

    /// The number of connections that have a link.
    pub(super) fn count(&self) -> usize {
        self.links.iter().filter(|(_, link)| link.connection.is_some()).count()
    }

    /// Looks for new links, and for ends of peers. True if anything was found.
    pub(super) fn poll_changes(&mut self) -> bool {
        let found = self.meetings.poll_changes(&self.bell);
        let any = !found.is_empty();
        for found in found {
            match found {
                Found::Link(number, link) => self.add(number, *link),
                Found::Refused(id, why) => {
                    note_unshared(why);
                    self.settle_parked(id, false);
                }
                Found::End(number) => self.end(number),
            }
        }
        self.end_left();
        any
    }

    fn settle_parked(&mut self, id: Id, linked: bool) {
        if let Some(connection) = self.parked.remove(&id) {
            self.events.push_back(Event::Settled { connection, linked });
        }
    }

    /// A link is there. One with the same peer that no connection uses is given up: the peer has called again.
    fn add(&mut self, number: u64, link: Link) {
        let id = link.id;
        if let Some(at) = self.links.iter().position(|(_, other)| other.id == id && other.connection.is_none()) {
            drop(self.remove(at));
        }
        let unused = self.links.iter().filter(|(_, other)| other.connection.is_none()).count();
        if unused >= UNUSED_MAX || self.links.iter().any(|(_, other)| other.id == id) {
            return self.meetings.release(&link);
        }
        self.links.push((number, link));
        self.settle_parked(id, true);
    }

    /// The socket of a link, or the process of its peer, has ended.
    fn end(&mut self, number: u64) {
        let Some(at) = self.links.iter().position(|(of, _)| *of == number) else { return };
        let link = &mut self.links[at].1;
        match self.meetings.evidence(link) {
            Some(evidence) => drop(link.ended.get_or_insert(evidence)),
            None => drop(link.left.get_or_insert(Instant::now())),
        }
        if link.connection.is_none() {
            drop(self.remove(at));
        }
    }

    /// Peers whose processes go on without their links.
    fn end_left(&mut self) {
        for (_, link) in &mut self.links {
            if link.left.is_some_and(|left| left.elapsed() > GRACE) {
                link.ended.get_or_insert(LINK_ENDED);
            }
        }
    }

    /// Is a greeting under way, or an end that is not clear yet?
    pub(super) fn must_look(&self) -> bool {
        !self.meetings.is_idle() || self.links.iter().any(|(_, link)| link.left.is_some() && link.ended.is_none())
    }

    fn remove(&mut self, at: usize) -> Link {
        let (_, link) = self.links.swap_remove(at);
        self.meetings.release(&link);
        link
    }

    /// Is there a link with a process, or a greeting?
    pub(super) fn knows(&self, id: Id) -> bool {
        self.meetings.is_calling(id) || self.links.iter().any(|(_, link)| link.id == id)
    }

    /// See [`super::Carrier::settle`].
    pub(super) fn settle(&mut self, connection: Connection, id: Id) -> Option<bool> {
        if self.meetings.is_calling(id) {
            self.parked.insert(id, connection);
            return None;
        }
        Some(self.links.iter().any(|(_, link)| link.id == id && link.connection.is_none()))
    }

    /// See [`super::Carrier::attach`].
    pub(super) fn attach(&mut self, connection: Connection, id: Id) -> bool {
        let mut free = self.links.iter_mut().filter(|(_, link)| link.id == id && link.connection.is_none());
        let Some((_, link)) = free.next() else { return false };
        link.connection = Some(connection);
        link.heard = Instant::now();
        true
    }

    /// Ends the link of a connection, if it has one.
    pub(super) fn unlink(&mut self, connection: Connection) {
        self.parked.retain(|_, parked| *parked != connection);
        if let Some(at) = self.place(connection) {
            drop(self.remove(at));
        }
    }

    fn place(&self, connection: Connection) -> Option<usize> {
        self.links.iter().position(|(_, link)| link.connection == Some(connection))
    }

    /// The link of a connection.
    pub(super) fn of(&mut self, connection: Connection) -> Option<&mut Link> {
        self.place(connection).map(|at| &mut self.links[at].1)
    }

    /// How long nothing has come by the link of a connection.
    pub(super) fn silence(&self, connection: Connection) -> Option<Duration> {
        self.place(connection).map(|at| self.links[at].1.heard.elapsed())
    }

    /// An event that waits.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Moves the bytes of all links once. Returns whether anything moved, and an event if there is one.
    pub(super) fn work(&mut self, node: &mut Node) -> Result<(bool, Option<Event>), Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok((true, Some(event)));
        }
        let (mut moved, count) = (false, self.links.len());
        for step in 0..count {
            let at = (self.turn + step) % count;
            let link = &mut self.links[at].1;
            let Some(connection) = link.connection.filter(|_| !link.is_over) else { continue };
            let outcome = send(link, node, connection, &mut self.events).and_then(|sent| {
                link.receive(node, &mut self.spare).map(|(received, arrived)| (sent | received, arrived))
            });
            let evidence = match outcome {
                Ok((now, arrived)) => {
                    moved |= now;
                    if now {
                        link.heard = Instant::now();
                    }
                    let event = arrived.map(|arrived| match arrived {
                        Arrived::Message(bytes) => Event::Message { connection, bytes },
                        Arrived::Written { landing, bytes } => {
                            Event::Node(Completion::Written { connection, immediate: landing, bytes })
                        }
                    });
                    if event.is_some() {
                        self.turn = (at + 1) % count;
                        return Ok((true, event));
                    }
                    match link.ended {
                        Some(evidence) if !now => evidence,
                        _ => continue,
                    }
                }
                Err(LinkError::Nonsense(nonsense)) => nonsense.0,
                Err(LinkError::Node(error)) => return Err(error),
            };
            // The engine ends the link when it has heard of it.
            link.is_over = true;
            let event = match link.closed {
                Some(reason) => Event::Node(Completion::Closed { connection, reason }),
                None => Event::Ended { connection, evidence },
            };
            return Ok((true, Some(event)));
        }
        Ok((moved || !self.events.is_empty(), self.events.pop_front()))
    }

    /// Is nothing left to do? Then this process may sleep, and peers know it.
    pub(super) fn lie_down(&mut self) -> bool {
        let wants_room = self.wants_room;
        self.bell.lie_down(wants_room || self.links.iter().any(|(_, link)| link.is_crowded()));
        // A fault shows at the next work.
        let ready = |(_, link): &mut (u64, Link)| {
            link.connection.is_some()
                && !link.is_over
                && (link.ended.is_some() || link.is_ready(wants_room).unwrap_or(true))
        };
        !self.links.iter_mut().any(ready)
    }

    pub(super) fn next_operation(&mut self) -> Operation {
        self.next_operation += 1;
        Operation(self.next_operation)
    }

    /// Posts a message or write at the link of a connection. Returns its end there; `None` if there is no link.
    pub(super) fn post(
        &mut self,
        connection: Connection,
        node: &Node,
        what: Outgoing,
        operation: Option<Operation>,
    ) -> Result<Option<u64>, Error> {
        let Some(at) = self.place(connection) else { return Ok(None) };
        let link = &mut self.links[at].1;
        let position = link.post(what, operation);
        match send(link, node, connection, &mut self.events) {
            Err(LinkError::Node(error)) => Err(error),
            // A fault shows at the next work.
            Ok(_) | Err(LinkError::Nonsense(_)) => Ok(Some(position)),
        }
    }

    /// The end of a connection waits until what its peer has sent before by a link is taken.
    pub(super) fn hold_back(&mut self, completion: Completion) -> Option<Completion> {
        let Completion::Closed { connection, reason } = completion else { return Some(completion) };
        let Some(link) = self.of(connection) else { return Some(completion) };
        link.ended.get_or_insert(LINK_ENDED);
        link.closed = Some(reason);
        None
    }
}

/// Sends what waits at a link.
fn send(link: &mut Link, node: &Node, connection: Connection, events: &mut VecDeque<Event>) -> Result<bool, LinkError> {
    if !link.is_crowded() {
        return Ok(false);
    }
    let mut done = VecDeque::new();
    let moved = link.send(node, &mut done)?;
    events.extend(done.into_iter().map(|operation| Event::Node(Completion::Sent { connection, operation })));
    Ok(moved)
}
