//! The node: sockets, memory and connections, driven by calls of [`Node::poll`] and [`Node::wait`].

/// Collects the parts of a node that a session needs while it works. A macro, because the session itself is borrowed
/// from the node's slots.
macro_rules! node_context {
    ($node:expr, $now:expr) => {
        NodeContext {
            now: $now,
            routes: &$node.config.routes,
            planes: &mut $node.planes,
            memory: &mut $node.memory,
            completions: &mut $node.completions,
            monitors: &mut $node.monitors,
            windows: &mut $node.windows,
            requests: &mut $node.requests,
        }
    };
}

mod answers;
mod calls;
mod datagram;
mod dealing;
mod groups;
mod liveness;
mod mrc;
mod partial;
mod probe;
mod reads;
mod rest;
mod shard;
mod slots;
mod turn;
mod urgent;
mod wake;
mod watching;

pub use wake::Waker;

use crate::address::{is_ipv4, shown};
use crate::cipher;
use crate::clock::{Clock, span};
use crate::completion::{Completion, NodeCounters};
use crate::config::{Config, Waiting};
use crate::deadlines::Deadlines;
use crate::error::{Error, Reason};
use crate::frame::Descriptor;
use crate::handles::{Connection, Operation};
use crate::handshake::{Cookies, Terms};
use crate::layout::{Layout, Protection};
use crate::links::{self, Links};
use crate::memory::{Memory, Region, RemoteRegion};
use crate::peer_monitor::PeerMonitors;
use crate::plane::{Plane, PlaneCounters};
use crate::requests::Requests;
use crate::secure::random;
use crate::session::{Session, SessionCounters};
use crate::socket::Inbox;
use crate::ways::Ways;
use crate::windows::Windows;
use answers::Answers;
use calls::Calling;
use groups::Groups;
use probe::Askers;
use shard::Shard;
use slots::{Slot, State};
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use strandway_fabric::usid::Element;
use strandway_proto::path::PathState;
use strandway_proto::{ControlMessage, PathId, Span, Time};
use urgent::Urgent;
use watching::Watching;

/// The node remembers this number of answers to hellos for each of the connections it may have open: ours. More than
/// one, because a connection can end before the cookie of its hello expires.
const ANSWERS_PER_CONNECTION: usize = 4;

/// A host on the wire: a UDP port per plane, registered memory, connections to peers.
///
/// A node has no thread of its own: it runs on the thread that calls it. Packets move only in [`Node::poll`] and
/// [`Node::wait`], so call one of them at least as often as peers expect answers (a peer gives a node up after its
/// `peer_timeout` without one). To use more cores, run more nodes. A node is `Send`: a closure can move it to a thread
/// of its own.
pub struct Node {
    config: Config,
    ways: Ways,
    terms: Terms,
    clock: Clock,
    cookies: Cookies,
    planes: Vec<Plane>,
    inbox: Option<Inbox>,
    memory: Memory,
    slots: Vec<Slot>,
    /// Slots without a connection.
    free: Vec<u32>,
    /// Slots whose connection has something to do in the next turn, each once, in the order of turns.
    ready: VecDeque<u32>,
    /// When to look at the connections that are not ready, by slot.
    deadlines: Deadlines,
    monitors: PeerMonitors,
    windows: Windows,
    /// If two turns are further apart, the node itself may be the reason why it heard nothing.
    absence_max: Span,
    /// Slots of connections whose callers have not shown their keys.
    unconfirmed: Vec<u32>,
    open: usize,
    ids: HashMap<u64, u32>,
    /// Slots by queue pair, in MRC's layout.
    queues: HashMap<u32, u32>,
    requests: Requests,
    groups: Groups,
    askers: Askers,
    /// The connection of the last datagram, and its slot. The next datagram is likely to belong to it as well.
    recent: Option<(u64, u32)>,
    answered: Answers,
    completions: VecDeque<Completion>,
    operations: u64,
    counters: NodeCounters,
    last_turn: Time,
    /// The latest time that was given to an engine.
    latest: Time,
    /// Datagrams stay queued in the planes until the application had its chance to answer the last completion.
    held: bool,
    /// Did the application answer the completion before at once?
    answers: bool,
    /// Replies to strangers so far.
    replies: u32,
    /// The shard for which the next call asks, modulo the number of the peer's shards.
    wish: u8,
    /// Its place among the nodes that share its ports.
    shard: Option<Shard>,
    /// Which planes' ports are up, as connections were last told.
    ports: Vec<bool>,
    /// Reports ports that go down; `None` where the system has no such reports.
    links: Option<Links>,
    /// How long a wait spins at present before it sleeps.
    patience: Span,
    urgent: Urgent,
    /// Other threads wake the node with it; made at the first call of [`Node::waker`].
    waker: Option<Waker>,
    /// Descriptors of the program that end a sleep when they can be read.
    watched: Vec<Arc<OwnedFd>>,
    /// Present if the process serves its figures ([`crate::watch`]).
    watching: Option<Box<Watching>>,
}

impl Node {
    /// Opens the sockets of each plane.
    ///
    /// # Errors
    /// If the configuration is invalid or an address cannot be bound; the message says what would work.
    pub fn bind(config: Config) -> Result<Node, Error> {
        Node::check(&config)?;
        let mut planes: Vec<Plane> =
            config.planes.iter().map(|&address| Plane::open(address, &config)).collect::<Result<_, _>>()?;
        urgent::listen(&mut planes, &config);
        Node::start(config, planes, None)
    }

    fn check(config: &Config) -> Result<(), Error> {
        config.check()?;
        if config.protection != Protection::None {
            cipher::check()?;
        }
        links::check(config)
    }

    /// A node with these sockets.
    fn start(config: Config, planes: Vec<Plane>, shard: Option<Shard>) -> Result<Node, Error> {
        let buffer = planes.iter().map(Plane::buffer).min().unwrap_or(0);
        let terms = Terms::new(&config.profile, config.payload, planes.len(), config.protection, config.layout);
        let patience = match config.waiting {
            Waiting::Spin => Span(u64::MAX),
            Waiting::Sleep => Span::ZERO,
            Waiting::Adaptive(longest) => span(longest),
        };
        let clock = Clock::new();
        Ok(Node {
            ways: Ways::new(&config, buffer),
            terms,
            cookies: Cookies::new()?,
            ports: vec![true; planes.len()],
            urgent: Urgent::new(planes.len()),
            planes,
            inbox: Some(Inbox::new()),
            memory: Memory::new(config.layout != Layout::Frame),
            slots: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            deadlines: Deadlines::default(),
            monitors: PeerMonitors::new(span(config.plane_timeout), span(config.peer_timeout)),
            windows: Windows::default(),
            absence_max: span(config.plane_timeout).min(Span(span(config.peer_timeout).0 / 2)),
            unconfirmed: Vec::new(),
            open: 0,
            ids: HashMap::new(),
            queues: HashMap::new(),
            requests: Requests::default(),
            groups: Groups::default(),
            askers: Askers::default(),
            recent: None,
            answered: Answers::new(ANSWERS_PER_CONNECTION * config.connections_max),
            completions: VecDeque::new(),
            operations: 0,
            counters: NodeCounters::default(),
            last_turn: clock.now(),
            latest: clock.now(),
            held: false,
            answers: false,
            replies: 0,
            // A random one, so that callers with one connection each use all shards. It is below 128, so that the count
            // does not wrap during the first 128 calls: 256 is not a multiple of every number of shards.
            wish: random::<1>()?[0] / 2,
            shard,
            links: Links::watch(&config),
            patience,
            waker: None,
            watched: Vec::new(),
            watching: Watching::begin()?,
            clock,
            config,
        })
    }

    /// Our address on each plane, with the ports that the system chose. Peers pass them to [`Node::connect`]. An IPv4
    /// address has its mapped form; [`crate::address::shown`] is the usual one.
    ///
    /// # Errors
    /// If the system cannot report them.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        self.planes.iter().map(|plane| plane.address().map(Into::into)).collect()
    }

    /// The plane and address of a port that has refused a datagram of this node (ICMP "port unreachable"), once for
    /// each refusal, while [`Config::hear_refusals`] is set. The kernel of the other host limits how many it sends. A
    /// refusal can be forged: count it only while nothing genuine is heard of the peer.
    pub fn take_refusal(&mut self) -> Option<(usize, SocketAddr)> {
        self.planes.iter_mut().enumerate().find_map(|(plane, one)| Some((plane, one.take_refusal()?.into())))
    }

    /// The descriptors of all sockets. A child of a fork that does not close them keeps the node's ports open.
    pub fn descriptors(&self) -> Vec<i32> {
        self.planes.iter().flat_map(Plane::descriptors).collect()
    }

    /// A handle with which other threads wake this node while it sleeps in [`Node::wait`].
    ///
    /// # Errors
    /// If the system has no descriptor left.
    pub fn waker(&mut self) -> Result<Waker, Error> {
        let waker = self.waker.take().map_or_else(Waker::new, Ok)?;
        Ok(self.waker.insert(waker).clone())
    }

    /// Has another thread woken the node since the last call, or since [`Node::wait`] reported it? For programs that call
    /// [`Node::poll`].
    pub fn take_call(&mut self) -> bool {
        self.waker.as_ref().is_some_and(Waker::answer)
    }

    /// A sleep of the node also ends when this descriptor can be read: [`Node::wait`] then returns `None`.
    pub fn watch(&mut self, descriptor: Arc<OwnedFd>) {
        self.watched.push(descriptor);
    }

    /// The bytes that a key opens to the peer of a connection, `length` of them from `at` on; `None` if the key does not
    /// open them. For programs that get a peer's bytes by another way than the node.
    pub fn exposed(&mut self, connection: Connection, key: u64, at: u64, length: usize) -> Option<&mut [u8]> {
        let place = self.memory.open(key, connection, at, length)?;
        Some(self.memory.bytes_at(place))
    }

    /// Takes a buffer into the node. Peers can write to no part of it before it is exposed or posted as a receive.
    pub fn register(&mut self, buffer: Vec<u8>) -> Region {
        self.memory.register(buffer)
    }

    /// Takes memory into the node that stays with its owner. Nothing else touches it while it is registered. Nothing is
    /// copied.
    pub fn register_static(&mut self, buffer: &'static mut [u8]) -> Region {
        self.memory.register_static(buffer)
    }

    /// Takes memory into the node that it only reads, for sends and writes. The region takes no receives and has no
    /// keys.
    pub fn show(&mut self, buffer: &'static [u8]) -> Region {
        self.memory.show(buffer)
    }

    /// Copies lent or shown memory into the node, which works on with the copy: operations and keys stay valid, and the
    /// lender has its memory back.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn take_over(&mut self, region: Region) -> Result<(), Error> {
        self.memory.take_over(region)
    }

    /// Gives a buffer back; lent or shown memory gives nothing. Its keys are void.
    ///
    /// # Errors
    /// If it is not registered, or unfinished operations use it: our own, or reads of peers whose answers are under way.
    pub fn deregister(&mut self, region: Region) -> Result<Vec<u8>, Error> {
        self.memory.deregister(region)
    }

    /// The bytes of a region. Peers' bytes appear in it only during calls of [`Node::poll`] and [`Node::wait`].
    ///
    /// # Errors
    /// If it is not registered.
    pub fn memory(&self, region: Region) -> Result<&[u8], Error> {
        self.memory.bytes(region)
    }

    /// The bytes of a region, to change them. If an unfinished send or write reads a byte that changes, the peer may
    /// get the old or the new one.
    ///
    /// # Errors
    /// If it is not registered.
    pub fn memory_mut(&mut self, region: Region) -> Result<&mut [u8], Error> {
        self.memory.bytes_mut(region)
    }

    /// Copies a range of a region to a place in another one, or in the same.
    ///
    /// # Errors
    /// If one is not registered or the ranges do not fit.
    pub fn copy_within(&mut self, from: Region, range: Range<usize>, to: Region, at: usize) -> Result<(), Error> {
        self.memory.copy_within(from, range, to, at)
    }

    /// Allows the peer of one connection to write into a range of a region, until [`Node::revoke`],
    /// [`Node::deregister`] or the end of the connection.
    ///
    /// # Errors
    /// If the range is not within the region, or too many keys are in use.
    pub fn expose(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
    ) -> Result<RemoteRegion, Error> {
        self.session(connection)?;
        self.memory.expose(region, &range, connection)
    }

    /// Takes a key back; false if it was not valid. A write under way that still names the key ends its connection; a
    /// read whose answer has not begun is refused.
    pub fn revoke(&mut self, remote: RemoteRegion) -> bool {
        self.memory.revoke(remote.key)
    }

    /// Begins a connection; [`Completion::Connected`] or [`Completion::Closed`] follows. `peer`: its address on each
    /// plane, in the order of ours. If several nodes share these addresses ([`Node::bind_shards`]), successive calls
    /// ask for them in turn.
    ///
    /// # Errors
    /// If the addresses are not those of our planes in number and family, or too many connections are open.
    pub fn connect(&mut self, peer: &[SocketAddrV6]) -> Result<Connection, Error> {
        self.wish = self.wish.wrapping_add(1);
        self.connect_to_shard(peer, self.wish)
    }

    /// Begins a connection as [`Node::connect`] does, and asks for shard `shard` modulo the number of nodes that share
    /// the peer's addresses. A node that shares them with no other ignores the wish.
    ///
    /// # Errors
    /// As for [`Node::connect`].
    pub fn connect_to_shard(&mut self, peer: &[SocketAddrV6], shard: u8) -> Result<Connection, Error> {
        if peer.len() != self.planes.len() {
            let (theirs, ours) = (peer.len(), self.planes.len());
            return Err(Error::Config(format!(
                "{theirs} addresses for {ours} planes: give one for each plane, in order"
            )));
        }
        for (number, (ours, theirs)) in self.config.planes.iter().zip(peer).enumerate() {
            // A plane at `::` serves both families.
            if is_ipv4(*ours.ip()) != is_ipv4(*theirs.ip()) && *ours.ip() != Ipv6Addr::UNSPECIFIED {
                return Err(Error::Config(format!(
                    "plane {number} is at {}, the peer at {}: take addresses of one family, IPv4 or IPv6",
                    shown(*ours),
                    shown(*theirs)
                )));
            }
        }
        let id = self.fresh_id()?;
        let calling = Calling::new(self.clock.now(), id, peer, shard);
        self.occupy(id, State::Calling(Box::new(calling)))
    }

    /// Ends a connection and tells the peer with one datagram, which may be lost. No completion follows.
    ///
    /// # Errors
    /// If there is no such connection.
    pub fn close(&mut self, connection: Connection) -> Result<(), Error> {
        self.slot(connection)?;
        self.take_down(connection.index as usize, Reason::ByPeer, true);
        self.flush();
        Ok(())
    }

    /// Writes a range of a region of ours into the peer's memory, `at` bytes from the start of what its key opens. With
    /// an immediate the peer gets [`Completion::Written`] when all bytes are there; without one it gets no completion.
    ///
    /// # Errors
    /// If the range or `at` does not fit, the connection is not established, or too many operations are unfinished.
    pub fn write(
        &mut self,
        connection: Connection,
        region: Region,
        range: Range<usize>,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
    ) -> Result<Operation, Error> {
        let end = at.saturating_add(range.len() as u64);
        if end > remote.bytes {
            return Err(Error::Range { end, bytes: remote.bytes });
        }
        self.post(connection, region, &range, Descriptor::Write { key: remote.key, start: at, immediate })
    }

    /// Sends a range of a region of ours into the next receive that the peer has posted. The send waits for that
    /// receive; later sends and writes of this connection wait behind it.
    ///
    /// # Errors
    /// As for [`Node::write`].
    pub fn send(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<Operation, Error> {
        self.post(connection, region, &range, Descriptor::Send { number: 0 })
    }

    /// Sends the peer's program a control message: one packet, which may be lost and is not repeated. It does not wait
    /// behind operations.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn send_control(&mut self, connection: Connection, control: ControlMessage) -> Result<(), Error> {
        let now = self.clock.now();
        self.session_mut(connection)?.control(now, control);
        self.latest = now;
        self.let_one_work(connection.index as usize, now, Span::ZERO);
        self.flush();
        Ok(())
    }

    /// Posts a receive for one send of the peer; receives are filled in the order of posting. A send that is longer
    /// than its receive ends the connection.
    ///
    /// # Errors
    /// As for [`Node::write`].
    pub fn recv(&mut self, connection: Connection, region: Region, range: Range<usize>) -> Result<Operation, Error> {
        self.memory.writable(region)?;
        let place = self.memory.place(region, &range)?;
        let limit = self.config.operations_max;
        let operation = Operation(self.operations);
        let session = self.session_mut(connection)?;
        if session.is_partial() {
            return Err(Error::IsPartial);
        }
        if session.receiving() >= limit {
            return Err(Error::Busy { limit });
        }
        session.receive(operation, place);
        self.memory.hold(place);
        self.operations += 1;
        self.make_ready(connection.index);
        Ok(operation)
    }

    fn post(
        &mut self,
        connection: Connection,
        region: Region,
        range: &Range<usize>,
        descriptor: Descriptor,
    ) -> Result<Operation, Error> {
        let place = self.memory.place(region, range)?;
        if let (Layout::Mrc { .. }, Err(_)) = (self.config.layout, u32::try_from(place.len())) {
            // A message's length has 32 bits there.
            return Err(Error::Range { end: place.len() as u64, bytes: u64::from(u32::MAX) });
        }
        let (operation, now) = (Operation(self.operations), self.clock.now());
        let alone = self.may_post(connection)?;
        self.session_mut(connection)?.post(now, operation, place, descriptor);
        self.memory.hold(place);
        self.begin_posted(connection, now, place.len(), alone);
        Ok(operation)
    }

    /// The session has taken over the next operation, of so many bytes. `alone`: it has no other one.
    fn begin_posted(&mut self, connection: Connection, now: Time, bytes: usize, alone: bool) {
        self.operations += 1;
        self.handle_answer(now);
        self.urgent.post(now, bytes);
        self.latest = now;
        self.make_ready(connection.index);
        if alone {
            // Nothing is queued before it, so it leaves now; operations posted while it is under way gather into fuller
            // batches.
            self.let_one_work(connection.index as usize, now, Span::ZERO);
            self.flush();
        }
    }

    /// The counters of a connection.
    ///
    /// # Errors
    /// If there is no such connection, or it is not established.
    pub fn connection_counters(&self, connection: Connection) -> Result<SessionCounters, Error> {
        self.session(connection).map(Session::counters)
    }

    /// The round trips that pings of a connection measured since the last call, at most 1,024 of them. They include the
    /// time that the other side takes to wake up. Each plane is pinged four times per `plane_timeout` while anything is
    /// under way; the connections with that peer take turns at pinging.
    ///
    /// # Errors
    /// As for [`Node::connection_counters`].
    pub fn take_round_trips(&mut self, connection: Connection) -> Result<Vec<Span>, Error> {
        self.session_mut(connection).map(Session::take_rtts)
    }

    /// The paths of a connection with profile `mrc`, each with its state; empty with other profiles.
    ///
    /// # Errors
    /// As for [`Node::connection_counters`].
    pub fn path_states(&self, connection: Connection) -> Result<Vec<PathState>, Error> {
        self.session(connection).map(Session::path_states)
    }

    /// Denies a path of a connection (MRC's DENIED): no packet takes it until it is allowed. False if the connection
    /// has no such path.
    ///
    /// # Errors
    /// As for [`Node::connection_counters`].
    pub fn deny_path(&mut self, connection: Connection, path: PathId) -> Result<bool, Error> {
        let now = self.clock.now();
        self.session_mut(connection).map(|session| session.deny_path(now, path))
    }

    /// Declares a path of a connection good, whatever its state was. False if the connection has no such path.
    ///
    /// # Errors
    /// As for [`Node::connection_counters`].
    pub fn allow_path(&mut self, connection: Connection, path: PathId) -> Result<bool, Error> {
        let now = self.clock.now();
        self.session_mut(connection).map(|session| session.allow_path(now, path))
    }

    /// Denies or allows every path of all connections that crosses a part of the fabric, now and for connections that
    /// begin later. Only with [`Routes::Srv6`](crate::Routes::Srv6) and profile `mrc`. Returns the number of paths.
    pub fn order(&mut self, part: Element, denied: bool) -> usize {
        self.config.denied.retain(|other| *other != part);
        if denied {
            self.config.denied.push(part);
        }
        let (now, routes) = (self.clock.now(), &self.config.routes);
        let open = self.slots.iter_mut().filter_map(|slot| match &mut slot.state {
            Some(State::Open(session)) => Some(session),
            _ => None,
        });
        open.map(|session| session.order(now, routes, &[part], denied)).sum()
    }

    /// How long nothing genuine has come from the node at the other end of a connection, by any connection with it.
    ///
    /// # Errors
    /// As for [`Node::connection_counters`].
    pub fn silence(&self, connection: Connection) -> Result<Duration, Error> {
        let heard = self.monitors.heard(self.session(connection)?.monitor());
        Ok(Duration::from_nanos(self.clock.now().since(heard).0 / 1_000))
    }

    /// The counters of each plane.
    pub fn plane_counters(&self) -> Vec<PlaneCounters> {
        self.planes.iter().map(|plane| plane.counters).collect()
    }

    /// Bytes that have left by all planes, with UDP and IP headers, and Ethernet frames (38 bytes each, preamble,
    /// checksum and gap included).
    pub fn wire_bytes(&self) -> u64 {
        let each = self.planes.iter().zip(&self.config.planes).map(|(plane, ours)| {
            let headers = if is_ipv4(*ours.ip()) { 28 } else { 48 };
            plane.counters.sent_bytes + plane.counters.sent * (headers + 38)
        });
        each.sum()
    }

    /// Is the port of each plane up, as far as the system tells?
    pub fn ports_up(&self) -> &[bool] {
        &self.ports
    }

    /// The most unfinished operations of a connection, and the most connections.
    pub(crate) const fn limits(&self) -> (usize, usize) {
        (self.config.operations_max, self.config.connections_max)
    }

    /// Payload bytes of a full packet.
    pub const fn payload(&self) -> u32 {
        self.config.payload
    }

    /// Connections at present, including those that are being established.
    pub const fn connections(&self) -> usize {
        self.open
    }

    /// Number of peer nodes. Connections that are known to lead to one node count as one peer and are watched as one.
    pub fn peers(&self) -> usize {
        self.monitors.count_peers()
    }

    /// Counters of events that belong to no open connection.
    pub const fn counters(&self) -> NodeCounters {
        self.counters
    }

    /// The most datagrams per sending call; 1 where the kernel has no GSO.
    pub fn segments_per_send(&self) -> usize {
        self.planes.iter().map(Plane::segments).min().unwrap_or(1)
    }

    /// The time since the node was bound.
    pub fn uptime(&self) -> Duration {
        self.clock.age()
    }
}

impl Drop for Node {
    /// Tells each peer once that its connection ends.
    fn drop(&mut self) {
        for index in 0..self.slots.len() {
            self.take_down(index, Reason::ByPeer, true);
        }
        self.flush();
    }
}

#[cfg(test)]
mod tests;
