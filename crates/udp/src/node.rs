//! The node: sockets, memory and connections, driven by calls of [`Node::poll`] and [`Node::wait`].

/// Collects the parts of a node that a session needs while it works. A macro, because the session itself is borrowed
/// from the node's slots.
macro_rules! node_context {
    ($node:expr, $now:expr) => {
        NodeContext {
            now: $now,
            routes: &$node.config.routes,
            denied: &$node.config.denied.parts,
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
mod observer;
mod operations;
mod orders;
mod partial;
mod probe;
mod reads;
mod regions;
mod rest;
mod shard;
mod sizes;
mod slots;
mod turn;
mod urgent;
mod wake;
mod watching;

pub use observer::NodeObserver;
pub use wake::Waker;

use crate::cipher;
use crate::clock::{Clock, span};
use crate::completion::{Completion, NodeCounters};
use crate::config::Config;
use crate::error::{Error, Reason};
use crate::handles::{Connection, Operation};
use crate::layout::{Layout, Protection};
use crate::limits::Limits;
use crate::links::{self, Links};
use crate::memory::{Memory, Region, RemoteRegion};
use crate::peer_monitor::PeerMonitors;
use crate::plane::Plane;
use crate::requests::Requests;
use crate::secure::random;
use crate::socket::Inbox;
use crate::ways::Ways;
use crate::windows::Windows;
use calls::{Calling, Greeting};
use groups::Groups;
use orders::Orders;
use probe::Probing;
use rest::OwnPorts;
use shard::Shard;
use slots::{State, Table};
use std::collections::VecDeque;
use std::net::SocketAddr;
use turn::Turns;
use urgent::Urgent;
use wake::Waits;
use watching::Watching;

/// A host on the wire: a UDP port per plane, registered memory, connections to peers.
///
/// A node has no thread of its own: it runs on the thread that calls it. Packets move only in [`Node::poll`] and
/// [`Node::wait`], so call one of them at least as often as peers expect answers (a peer gives a node up after its
/// `Timeouts::peer` without one). To use more cores, run more nodes. A node is `Send`: a closure can move it to a thread
/// of its own.
///
/// Its calls are of five kinds:
///
/// - *Set-up*: [`Node::bind`], [`Node::bind_shards`], [`Node::connect`], [`Node::close`], [`Node::accept`],
///   [`Node::set_payload`], [`Node::find_payloads`]; groups begin with [`Node::join`] and end with [`Node::leave`].
/// - *Inputs and outputs*: a node reads its own sockets and clock. [`Node::poll`] moves packets and returns the next
///   [`Completion`]; [`Node::wait`] and [`Node::doze`] sleep until there is one. A program with a loop of its own calls
///   [`Node::turn`] and [`Node::take_completion`], asks [`Node::rest`] and [`Node::wait_for`] how long and on what to
///   sleep, and calls [`Node::rise`] afterwards. Other threads end a sleep by [`Node::waker`].
/// - *Memory*: [`Node::register`], [`Node::memory`], [`Node::expose`], [`Node::revoke`], [`Node::deregister`].
/// - *Operations*: [`Node::write`], [`Node::send`], [`Node::recv`], [`Node::read`], [`Node::fetch_add`],
///   [`Node::send_control`], [`Node::cast`]; streams and receives of partial completion ([`Node::begin_stream`],
///   [`Node::expect`] and so on); orders for paths ([`Node::deny_path`], [`Node::order`]). Each operation ends with one
///   completion, in the order that its connection promises.
/// - *Observers*, which change nothing: those of [`Node::observe`].
///
/// Packets may leave within a call that posts an operation; completions are only queued then. A completion that is
/// taken late loses nothing.
pub struct Node {
    config: Config,
    ways: Ways,
    clock: Clock,
    planes: Vec<Plane>,
    /// Its own ports.
    ports: OwnPorts,
    inbox: Option<Inbox>,
    memory: Memory,
    table: Table,
    turns: Turns,
    greeting: Greeting,
    monitors: PeerMonitors,
    windows: Windows,
    requests: Requests,
    groups: Groups,
    probing: Probing,
    completions: VecDeque<Completion>,
    operations: u64,
    counters: NodeCounters,
    /// Did the application answer the completion before at once?
    answers: bool,
    /// The shard for which the next call asks, modulo the number of the peer's shards.
    wish: u8,
    /// Its place among the nodes that share its ports.
    shard: Option<Shard>,
    urgent: Urgent,
    waits: Waits,
    /// The controller's orders in a file, if the configuration names one.
    orders: Option<Box<Orders>>,
    /// Present if the process serves its figures ([`crate::watch`]).
    watching: Option<Box<Watching>>,
}

/// Set-up.
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
    fn start(mut config: Config, planes: Vec<Plane>, shard: Option<Shard>) -> Result<Node, Error> {
        let opened = config.denied.file.as_deref().map(Orders::open).transpose()?;
        let (orders, parts) = opened.map_or((None, None), |(orders, parts)| (Some(Box::new(orders)), parts));
        config.denied.parts = parts.unwrap_or(config.denied.parts);
        let watching = Watching::begin()?;
        config.path_reports.counts |= watching.is_some();
        let buffer = planes.iter().map(Plane::buffer).min().unwrap_or(0);
        let clock = Clock::new();
        Ok(Node {
            ways: Ways::new(&config, buffer),
            ports: OwnPorts { up: vec![true; planes.len()], links: Links::watch(&config) },
            urgent: Urgent::new(planes.len()),
            planes,
            inbox: Some(Inbox::new()),
            memory: Memory::new(config.layout != Layout::Frame),
            table: Table::default(),
            turns: Turns::new(clock.now(), &config),
            greeting: Greeting::new(&config)?,
            monitors: PeerMonitors::new(span(config.timeouts.plane), span(config.timeouts.peer)),
            windows: Windows::default(),
            requests: Requests::default(),
            groups: Groups::default(),
            probing: Probing::default(),
            completions: VecDeque::new(),
            operations: 0,
            counters: NodeCounters::default(),
            answers: false,
            // A random one, so that callers with one connection each use all shards. It is below 128, so that the count
            // does not wrap during the first 128 calls: 256 is not a multiple of every number of shards.
            wish: random::<1>()?[0] / 2,
            shard,
            waits: Waits::new(config.waiting),
            orders,
            watching,
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

    /// The bounds of what may be under way.
    pub const fn limits(&self) -> Limits {
        self.config.limits
    }

    /// Payload bytes of a full packet: the configuration's, which groups have. [`NodeObserver::payload`] is that of a
    /// connection.
    pub const fn payload(&self) -> u32 {
        self.config.payload
    }
}

impl Drop for Node {
    /// Tells each peer once that its connection ends.
    fn drop(&mut self) {
        for index in 0..self.table.slots.len() {
            self.take_down(index, Reason::ByPeer, true);
        }
        self.flush();
    }
}

#[cfg(test)]
mod tests;
