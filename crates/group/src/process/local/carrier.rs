//! Carriers of the engine's messages and writes: the node, and links with processes of this host.

use super::super::launch::note_unshared;
use super::super::message::Id;
use super::super::record::Record;
use super::link::Outgoing;
use super::links::Local;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Connection, Error, Node, Operation, Region, RemoteRegion};

/// The longest sleep while a greeting is under way, or the end of a peer is not clear: ours.
const LOOK: Duration = Duration::from_millis(20);
/// While links are busy, the node has a turn, and ended peers are looked for, at least this often: ours.
const NODE_TURN: Duration = Duration::from_micros(50);
const ENDS_TURN: Duration = Duration::from_millis(5);
/// A wait gives its core away between looks after this time: ours. Without giving it away, short calls take ten times
/// as long where ranks share cores. Not at once: another program's turn takes longer than most answers.
const SPIN: Duration = Duration::from_micros(5);

/// The node of a process, and its links.
pub(in super::super) struct Carrier {
    node: Node,
    local: Option<Local>,
}

/// News for the engine.
pub(in super::super) enum Event {
    /// A completion of the node, or of a link in its place.
    Node(Completion),
    /// A message has come by a link.
    Message { connection: Connection, bytes: Vec<u8> },
    /// A connection that we began may be used: with a link from now on, or without one.
    Settled { connection: Connection, linked: bool },
    /// The peer of a link is gone, or breaks the protocol.
    Ended { connection: Connection, evidence: &'static str },
}

impl Carrier {
    /// A carrier with links, or without any.
    pub(in super::super) fn new(mut node: Node, local: Option<Local>) -> Carrier {
        if let Some(local) = &local {
            node.watch(Arc::clone(&local.bell.event));
            node.watch(Arc::clone(&local.meetings.watch));
        }
        Carrier { node, local }
    }

    /// The next event; `None` if none comes within `timeout`, or if another thread wakes the node. With links, it
    /// sleeps when it has looked for something to do for `patience`.
    pub(in super::super) fn wait(&mut self, timeout: Duration, patience: Duration) -> Result<Option<Event>, Error> {
        let Some(local) = self.local.as_mut().filter(|local| !local.is_idle()) else {
            let completion = self.node.wait(timeout)?;
            if completion.is_none()
                && let Some(local) = &mut self.local
            {
                local.bell.drain();
                local.poll_changes();
                return Ok(local.next_event());
            }
            return Ok(completion.map(Event::Node));
        };
        let mut now = Instant::now();
        let until = now + timeout;
        let mut idle_since = now;
        let all_linked = local.count() >= self.node.observe().connections();
        loop {
            let (mut moved, event) = local.work(&mut self.node)?;
            if event.is_some() {
                return Ok(event);
            }
            if !all_linked || now.duration_since(local.node_turn) >= NODE_TURN {
                local.node_turn = now;
                if let Some(completion) = self.node.poll() {
                    match local.hold_back(completion) {
                        Some(completion) => return Ok(Some(Event::Node(completion))),
                        None => moved = true,
                    }
                }
            }
            if now.duration_since(local.ends_turn) >= ENDS_TURN {
                local.ends_turn = now;
                moved |= local.poll_changes();
            }
            if self.node.take_call() {
                return Ok(None);
            }
            now = Instant::now();
            if now >= until {
                return Ok(None);
            }
            if moved {
                idle_since = now;
                continue;
            }
            let idle = now.duration_since(idle_since);
            if idle < patience {
                if idle < SPIN {
                    std::hint::spin_loop();
                } else {
                    // The peer may need this core.
                    std::thread::yield_now();
                }
                continue;
            }
            if local.lie_down() {
                let longest = if local.must_look() { (until - now).min(LOOK) } else { until - now };
                let woken = self.node.doze(longest);
                local.bell.get_up();
                local.bell.drain();
                if let Some(completion) = woken?
                    && let Some(completion) = local.hold_back(completion)
                {
                    return Ok(Some(Event::Node(completion)));
                }
                local.poll_changes();
            } else {
                local.bell.get_up();
            }
            now = Instant::now();
            idle_since = now;
        }
    }

    /// Do all connections have links?
    pub(in super::super) fn is_local(&self) -> bool {
        let links = self.local.as_ref().map_or(0, Local::count);
        links > 0 && links >= self.node.observe().connections()
    }

    /// Rings that are made from now on are for this number of processes of this host.
    pub(in super::super) fn plan_links(&mut self, processes: usize) {
        if let Some(local) = &mut self.local {
            local.meetings.plan(processes);
        }
    }

    /// Begins to make a link with a process, if it is one of this host. `place`: that of this process.
    pub(in super::super) fn link_to(&mut self, record: &Record, place: &str) {
        let Some(local) = &mut self.local else { return };
        let Some(theirs) = record.local.as_ref().filter(|theirs| theirs.place == place) else { return };
        if !local.knows(record.id)
            && let Err(why) = local.meetings.call(record.id, &theirs.name)
        {
            note_unshared(why);
        }
    }

    /// A connection that we began is there. Is there a link beside it? `None` if that is not known yet;
    /// [`Event::Settled`] follows then.
    pub(in super::super) fn settle(&mut self, connection: Connection, id: Id) -> Option<bool> {
        self.local.as_mut().map_or(Some(false), |local| local.settle(connection, id))
    }

    /// From now on a connection's messages and writes go by the link with that process. False if there is none.
    pub(in super::super) fn attach(&mut self, connection: Connection, id: Id) -> bool {
        self.local.as_mut().is_some_and(|local| local.attach(connection, id))
    }

    /// Is there a link beside a connection?
    pub(in super::super) fn is_linked(&mut self, connection: Connection) -> bool {
        self.local.as_mut().is_some_and(|local| local.of(connection).is_some())
    }

    /// Sends a message by the link beside a connection. Returns the position at which it ends there, and the operation
    /// that will be completed if that is wanted; `None` if there is no link.
    pub(in super::super) fn send_by_link(
        &mut self,
        connection: Connection,
        bytes: Vec<u8>,
        completes: bool,
    ) -> Result<Option<(u64, Operation)>, Error> {
        let Some(local) = &mut self.local else { return Ok(None) };
        let operation = local.next_operation();
        let position = local.post(connection, &self.node, Outgoing::Message(bytes), completes.then_some(operation))?;
        Ok(position.map(|position| (position, operation)))
    }

    /// As [`Node::write`], from the first byte that a key opens. With a link the operation is completed when its bytes
    /// are in memory that the peer has.
    pub(in super::super) fn write(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        landing: u32,
    ) -> Result<Operation, Error> {
        if let Some(local) = &mut self.local {
            let operation = local.next_operation();
            let what = Outgoing::Write { region, range: range.clone(), remote, landing };
            if local.post(connection, &self.node, what, Some(operation))?.is_some() {
                return Ok(operation);
            }
        }
        self.node.write(connection, region, range, remote, 0, Some(landing))
    }

    /// Has the peer of a connection taken everything up to a position of its link? True if there is no link.
    pub(in super::super) fn is_taken(&mut self, connection: Connection, position: u64) -> bool {
        let link = self.local.as_mut().and_then(|local| local.of(connection));
        // A fault shows at the next work.
        link.is_none_or(|link| link.is_taken(position).unwrap_or(false))
    }

    /// Has the peer of a connection taken everything that was sent by its link? True if there is none.
    pub(in super::super) fn is_all_taken(&mut self, connection: Connection) -> bool {
        let link = self.local.as_mut().and_then(|local| local.of(connection));
        link.is_none_or(|link| link.is_all_taken().unwrap_or(false))
    }

    /// From now on, a wait also ends when peers have taken what was sent.
    pub(in super::super) fn want_all_taken(&mut self) {
        if let Some(local) = &mut self.local {
            local.wants_room = true;
        }
    }

    /// Gives the memory of a message back.
    pub(in super::super) fn keep(&mut self, bytes: Vec<u8>) {
        if let Some(local) = &mut self.local {
            local.spare = bytes;
        }
    }

    /// Ends the link of a connection, if it has one.
    pub(in super::super) fn unlink(&mut self, connection: Connection) {
        if let Some(local) = &mut self.local {
            local.unlink(connection);
        }
    }

    /// How long nothing has come from a peer, by the node or by the link.
    pub(in super::super) fn silence(&self, connection: Connection) -> Result<Duration, Error> {
        let silence = self.node.observe().silence(connection)?;
        let link = self.local.as_ref().and_then(|local| local.silence(connection));
        Ok(link.map_or(silence, |link| silence.min(link)))
    }
}

impl Deref for Carrier {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for Carrier {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}
