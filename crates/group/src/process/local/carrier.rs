//! What carries the engine's messages and writes: the node, and links with processes of this host.

use super::super::message::Id;
use super::super::record::Record;
use super::bell::Bell;
use super::greeting::{self, Greeter, Greeting, Step};
use super::link::{Arrived, Link, LinkError, Outgoing};
use super::ring::{RING_MAX, RING_MIN};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Connection, Error, Node, Operation, Region, RemoteRegion};

/// Numbers of operations of links, which the node's do not reach.
const OPERATIONS: u64 = 1 << 63;
/// A greeting that takes longer fails, and the connection of the node is used: ours.
const GREETING: Duration = Duration::from_secs(5);
/// Greetings of strangers at a time: ours. Others wait to be accepted.
const STRANGERS: usize = 256;
/// The longest sleep while a greeting is under way: ours.
const LOOK: Duration = Duration::from_millis(20);
/// While links are busy, the node has a turn, and ended peers are looked for, at least this often: ours.
const NODE_TURN: Duration = Duration::from_micros(50);
const ENDS_TURN: Duration = Duration::from_millis(5);
/// All rings that one process makes have about this length together: ours, so that they stay in the processor's cache.
const RINGS: usize = 4 << 20;
const RING_LONG: usize = 1 << 20;
/// How long a wait spins before it sleeps: at most, if each local process can have a core of its own, and otherwise.
const PATIENCE: Duration = Duration::from_micros(50);
const PATIENCE_CROWDED: Duration = Duration::from_micros(50);
/// The key of the listener in the list of descriptors that are watched.
const LISTENER: u64 = u64::MAX;

/// The node of a process, and its links.
pub(in super::super) struct Carrier {
    node: Node,
    local: Option<Local>,
}

/// What the engine hears.
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

/// Links, and what makes them.
pub(in super::super) struct Local {
    greeter: Greeter,
    bell: Bell,
    listener: OwnedFd,
    name: String,
    /// Watches the listener and the ends of all links.
    watch: Arc<OwnedFd>,
    /// Greetings by number; those of processes that have called us count as strangers.
    greetings: HashMap<u64, (Greeting, Origin)>,
    next_number: u64,
    next_operation: u64,
    links: Vec<(u64, Link)>,
    /// The link that has its turn next.
    turn: usize,
    /// Connections that wait for a greeting of ours.
    parked: HashMap<Id, Connection>,
    events: VecDeque<Event>,
    spare: Vec<u8>,
    /// The length of the rings that are made next.
    ring: usize,
    cores: usize,
    node_turn: Instant,
    ends_turn: Instant,
    /// The engine waits until peers have taken what was sent.
    wants_room: bool,
    descriptors: Arc<Mutex<Vec<i32>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Stranger,
    Ours(Id),
}

impl Local {
    /// Lets processes of this host make links with this one.
    pub(in super::super) fn open(id: Id, secret: &[u8; 32], descriptors: Arc<Mutex<Vec<i32>>>) -> Result<Local, Errno> {
        let (listener, name) = greeting::listen()?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let mut local = Local {
            greeter: Greeter::new(id, secret),
            bell: Bell::new()?,
            listener,
            name,
            watch: Arc::new(watch),
            greetings: HashMap::new(),
            next_number: 0,
            next_operation: OPERATIONS,
            links: Vec::new(),
            turn: 0,
            parked: HashMap::new(),
            events: VecDeque::new(),
            spare: Vec::new(),
            ring: RING_LONG,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            node_turn: Instant::now(),
            ends_turn: Instant::now(),
            wants_room: false,
            descriptors,
        };
        local.note_descriptor(local.listener.as_raw_fd());
        Ok(local)
    }

    /// The name by which processes of this host call it.
    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    fn note_descriptor(&mut self, descriptor: i32) {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner).push(descriptor);
    }

    fn forget_descriptor(&self, descriptor: i32) {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner).retain(|one| *one != descriptor);
    }

    /// Rings for this number of processes of this host.
    fn plan(&mut self, processes: usize) {
        let ring = (RINGS / processes.max(1)).next_power_of_two().clamp(RING_MIN, RING_LONG.min(RING_MAX));
        self.ring = self.ring.min(ring);
    }

    /// Begins a greeting, and waits for what the other side says.
    fn begin(&mut self, greeting: Greeting, origin: Origin) {
        let number = self.next_number;
        self.next_number += 1;
        let socket = &greeting.ends.socket;
        let added = epoll::add(&self.watch, socket, EventData::new_u64(number), EventFlags::IN | EventFlags::RDHUP);
        if added.is_err() {
            return self.give_up(origin);
        }
        self.note_descriptor(socket.as_raw_fd());
        self.greetings.insert(number, (greeting, origin));
    }

    /// There will be no link.
    fn give_up(&mut self, origin: Origin) {
        if let Origin::Ours(id) = origin
            && let Some(connection) = self.parked.remove(&id)
        {
            self.events.push_back(Event::Settled { connection, linked: false });
        }
    }

    /// Something has come for a greeting.
    fn go_on(&mut self, number: u64) {
        let Some((greeting, origin)) = self.greetings.remove(&number) else { return };
        let descriptor = greeting.ends.socket.as_raw_fd();
        let step = greeting.go_on(&self.greeter, &self.bell);
        match step {
            Ok(Step::Waits(greeting)) => drop(self.greetings.insert(number, (greeting, origin))),
            Ok(Step::Done(link)) if self.links.iter().all(|(_, other)| other.id != link.id) => {
                self.add(number, link, origin);
            }
            Ok(Step::Done(_)) | Err(_) => {
                // A closed descriptor is watched no longer.
                self.forget_descriptor(descriptor);
                self.give_up(origin);
            }
        }
    }

    fn add(&mut self, number: u64, link: Link, origin: Origin) {
        let data = EventData::new_u64(number);
        // Nothing else is said by the socket from now on; its end is always reported.
        let watched = epoll::modify(&self.watch, &link.ends.socket, data, EventFlags::RDHUP);
        let process = link.ends.process.as_ref();
        let process = process.map_or(Ok(()), |process| epoll::add(&self.watch, process, data, EventFlags::IN));
        if watched.is_err() || process.is_err() {
            self.forget_descriptor(link.ends.socket.as_raw_fd());
            return self.give_up(origin);
        }
        if let Origin::Ours(id) = origin
            && let Some(connection) = self.parked.remove(&id)
        {
            self.events.push_back(Event::Settled { connection, linked: true });
        }
        self.links.push((number, link));
    }

    /// Looks at the listener, greetings and ends of peers.
    fn look(&mut self) -> bool {
        let mut events = Vec::with_capacity(16);
        let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut events), Some(&nothing)).is_err() {
            return false;
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => self.accept(),
                number if self.greetings.contains_key(&number) => self.go_on(number),
                number => self.end(number),
            }
        }
        let late = |(_, (greeting, _)): &(&u64, &(Greeting, Origin))| greeting.began.elapsed() > GREETING;
        let late: Vec<u64> = self.greetings.iter().filter(late).map(|(number, _)| *number).collect();
        for number in late {
            if let Some((greeting, origin)) = self.greetings.remove(&number) {
                self.forget_descriptor(greeting.ends.socket.as_raw_fd());
                self.give_up(origin);
            }
        }
        !events.is_empty()
    }

    fn accept(&mut self) {
        while self.greetings.values().filter(|(_, origin)| *origin == Origin::Stranger).count() < STRANGERS
            && let Some(called) = greeting::accept(&self.listener)
        {
            if let Ok(greeting) = called {
                self.begin(greeting, Origin::Stranger);
            }
        }
    }

    /// The peer of a link has ended.
    fn end(&mut self, number: u64) {
        let Some(at) = self.links.iter().position(|(of, _)| *of == number) else { return };
        let link = &mut self.links[at].1;
        // Once is enough.
        let _ = epoll::delete(&self.watch, &link.ends.socket);
        let ended = match &link.ends.process {
            Some(process) => {
                let mut polled = [rustix::event::PollFd::new(process, rustix::event::PollFlags::IN)];
                let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
                let ended = rustix::event::poll(&mut polled, Some(&nothing)).is_ok_and(|count| count > 0);
                let _ = epoll::delete(&self.watch, process);
                ended
            }
            None => false,
        };
        link.ended.get_or_insert(if ended { PROCESS_ENDED } else { LINK_ENDED });
        if link.connection.is_none() {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) -> Link {
        let (_, link) = self.links.swap_remove(at);
        let _ = epoll::delete(&self.watch, &link.ends.socket);
        if let Some(process) = &link.ends.process {
            let _ = epoll::delete(&self.watch, process);
        }
        self.forget_descriptor(link.ends.socket.as_raw_fd());
        link
    }

    fn of(&self, connection: Connection) -> Option<usize> {
        self.links.iter().position(|(_, link)| link.connection == Some(connection))
    }

    /// Moves the bytes of all links once. Returns whether anything moved, and an event if there is one.
    fn work(&mut self, node: &mut Node) -> Result<(bool, Option<Event>), Error> {
        if let Some(event) = self.events.pop_front() {
            return Ok((true, Some(event)));
        }
        let (mut moved, count) = (false, self.links.len());
        for step in 0..count {
            let at = (self.turn + step) % count;
            let link = &mut self.links[at].1;
            let Some(connection) = link.connection else { continue };
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
            let link = self.remove(at);
            return Ok((
                true,
                Some(link.closed.map_or(Event::Ended { connection, evidence }, |reason| {
                    Event::Node(Completion::Closed { connection, reason })
                })),
            ));
        }
        Ok((moved || !self.events.is_empty(), self.events.pop_front()))
    }

    /// Is nothing left to do? Then this process may sleep, and peers know it.
    fn lie_down(&mut self) -> bool {
        let wants_room = self.wants_room;
        self.bell.lie_down(wants_room || self.links.iter().any(|(_, link)| link.is_crowded()));
        // A fault shows at the next work.
        let ready = |(_, link): &mut (u64, Link)| {
            link.connection.is_some() && (link.ended.is_some() || link.is_ready(wants_room).unwrap_or(true))
        };
        !self.links.iter_mut().any(ready)
    }

    /// Does each process of this host have a core of its own?
    fn is_crowded(&self) -> bool {
        self.links.len() + 1 > self.cores
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

const PROCESS_ENDED: &str = "its process has ended, as the kernel of this host says";
const LINK_ENDED: &str = "it has let go of the memory that it shares with this process";

impl Carrier {
    /// A carrier with links, or without any.
    pub(in super::super) fn new(mut node: Node, local: Option<Local>) -> Carrier {
        if let Some(local) = &local {
            node.watch(Arc::clone(&local.bell.event));
            node.watch(Arc::clone(&local.watch));
        }
        Carrier { node, local }
    }

    /// The next event; `None` if none comes within `timeout`, or if another thread wakes the node.
    pub(in super::super) fn wait(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        let Some(local) = self.local.as_mut().filter(|local| !local.is_idle()) else {
            let completion = self.node.wait(timeout)?;
            if completion.is_none()
                && let Some(local) = &mut self.local
            {
                local.look();
                return Ok(local.events.pop_front());
            }
            return Ok(completion.map(Event::Node));
        };
        let mut now = Instant::now();
        let until = now + timeout;
        let mut idle_since = now;
        let all_linked =
            local.links.iter().filter(|(_, link)| link.connection.is_some()).count() >= self.node.connections();
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
                moved |= local.look();
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
            let (crowded, patience) = if local.is_crowded() { (true, PATIENCE_CROWDED) } else { (false, PATIENCE) };
            if now.duration_since(idle_since) < patience {
                if crowded {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
                continue;
            }
            if local.lie_down() {
                let longest = if local.greetings.is_empty() { until - now } else { (until - now).min(LOOK) };
                let woken = self.node.doze(longest);
                local.bell.get_up();
                local.bell.drain();
                if let Some(completion) = woken?
                    && let Some(completion) = local.hold_back(completion)
                {
                    return Ok(Some(Event::Node(completion)));
                }
                local.look();
            } else {
                local.bell.get_up();
            }
            now = Instant::now();
            idle_since = now;
        }
    }

    /// Rings that are made from now on are for this number of processes of this host.
    pub(in super::super) fn plan_links(&mut self, processes: usize) {
        if let Some(local) = &mut self.local {
            local.plan(processes);
        }
    }

    /// Begins to make a link with a process, if it is one of this host. `place`: that of this process.
    pub(in super::super) fn link_to(&mut self, record: &Record, place: &str) {
        let Some(local) = &mut self.local else { return };
        let Some(theirs) = record.local.as_ref().filter(|theirs| theirs.place == place) else { return };
        let id = record.id;
        let begun = |(_, origin): &(Greeting, Origin)| *origin == Origin::Ours(id);
        if local.greetings.values().any(begun) || local.links.iter().any(|(_, link)| link.id == id) {
            return;
        }
        if let Ok(greeting) = local.greeter.call(id, &theirs.name, local.ring) {
            local.begin(greeting, Origin::Ours(id));
        }
    }

    /// A connection that we began is there. Is there a link beside it? `None` if that is not known yet;
    /// [`Event::Settled`] follows then.
    pub(in super::super) fn settle(&mut self, connection: Connection, id: Id) -> Option<bool> {
        let Some(local) = &mut self.local else { return Some(false) };
        if local.greetings.values().any(|(_, origin)| *origin == Origin::Ours(id)) {
            local.parked.insert(id, connection);
            return None;
        }
        Some(local.links.iter().any(|(_, link)| link.id == id && link.connection.is_none()))
    }

    /// From now on a connection's messages and writes go by the link with that process. False if there is none.
    pub(in super::super) fn attach(&mut self, connection: Connection, id: Id) -> bool {
        let free = |link: &&mut (u64, Link)| link.1.id == id && link.1.connection.is_none();
        let Some((_, link)) = self.local.as_mut().and_then(|local| local.links.iter_mut().find(free)) else {
            return false;
        };
        link.connection = Some(connection);
        link.heard = Instant::now();
        true
    }

    /// Sends a message by the link beside a connection. Returns the position at which it ends, and the operation that
    /// will be completed if one is wanted; or the message, if there is no link.
    pub(in super::super) fn send_by_link(
        &mut self,
        connection: Connection,
        bytes: Vec<u8>,
        completes: bool,
    ) -> Result<Result<(u64, Operation), Vec<u8>>, Error> {
        let Some((local, at)) = self.local.as_mut().and_then(|local| local.of(connection).map(|at| (local, at))) else {
            return Ok(Err(bytes));
        };
        let operation = local.next_operation();
        let position = local.post(at, &self.node, Outgoing::Message(bytes), completes.then_some(operation))?;
        Ok(Ok((position, operation)))
    }

    /// As [`Node::write`]. The operation is completed when its bytes are in memory that the peer has.
    pub(in super::super) fn write(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        landing: u32,
    ) -> Result<Operation, Error> {
        let Some((local, at)) = self.local.as_mut().and_then(|local| local.of(connection).map(|at| (local, at))) else {
            return self.node.write(connection, region, range, remote, 0, Some(landing));
        };
        let operation = local.next_operation();
        local.post(at, &self.node, Outgoing::Write { region, range, remote, landing }, Some(operation))?;
        Ok(operation)
    }

    /// Has the peer of a connection taken everything up to a position of its link? True if there is no link any more.
    pub(in super::super) fn is_taken(&mut self, connection: Connection, position: u64) -> bool {
        let Some(local) = &mut self.local else { return true };
        // A fault shows at the next work.
        local.of(connection).is_none_or(|at| local.links[at].1.is_taken(position).unwrap_or(false))
    }

    /// Has the peer of a connection taken everything that was sent by its link? True if there is none.
    pub(in super::super) fn is_all_taken(&mut self, connection: Connection) -> bool {
        let Some(local) = &mut self.local else { return true };
        local.of(connection).is_none_or(|at| local.links[at].1.is_all_taken().unwrap_or(false))
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
            local.parked.retain(|_, parked| *parked != connection);
            if let Some(at) = local.of(connection) {
                drop(local.remove(at));
            }
        }
    }

    /// How long nothing has come from a peer, by the node or by the link.
    pub(in super::super) fn silence(&self, connection: Connection) -> Result<Duration, Error> {
        let silence = self.node.silence(connection)?;
        let link = self.local.as_ref().and_then(|local| local.of(connection).map(|at| &local.links[at].1));
        Ok(link.map_or(silence, |link| silence.min(link.heard.elapsed())))
    }
}

impl Local {
    /// Is there nothing but the listener to look at?
    fn is_idle(&self) -> bool {
        self.links.is_empty() && self.greetings.is_empty() && self.events.is_empty()
    }

    fn next_operation(&mut self) -> Operation {
        self.next_operation += 1;
        Operation(self.next_operation)
    }

    fn post(&mut self, at: usize, node: &Node, what: Outgoing, operation: Option<Operation>) -> Result<u64, Error> {
        let link = &mut self.links[at].1;
        let position = link.post(what, operation);
        let Some(connection) = link.connection else { return Ok(position) };
        match send(link, node, connection, &mut self.events) {
            Ok(_) => Ok(position),
            Err(LinkError::Node(error)) => Err(error),
            // It shows at the next work.
            Err(LinkError::Nonsense(_)) => Ok(position),
        }
    }

    /// The end of a connection waits until what its peer has sent before by a link is taken.
    fn hold_back(&mut self, completion: Completion) -> Option<Completion> {
        let Completion::Closed { connection, reason } = completion else { return Some(completion) };
        let Some(at) = self.of(connection) else { return Some(completion) };
        let link = &mut self.links[at].1;
        link.ended.get_or_insert(LINK_ENDED);
        link.closed = Some(reason);
        None
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
