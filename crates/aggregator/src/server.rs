//! A job's parameter server as a process of its own. It joins the switch's admission address with the job's key, and
//! handles the fragments that the switch passes on.
//!
//! Its state is soft. With ESA a new process can continue in the middle of a session, because workers still have the
//! fragments and results that it needs. With ATP the session ends with its server.

use crate::permissions::name;
use crate::server_shard::ServerShard;
use std::collections::BTreeMap;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_group::GroupError;
use strandway_group::aggregation::message::{BYTES, Message, Refusal, Welcome};
use strandway_group::aggregation::read_elements;
use strandway_group::aggregation::terms::{self, Terms};
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Marks};
use strandway_proto::units::Time;
use strandway_switch::{Job, Server, System};
use strandway_udp::fragments::{FragmentOpener, FragmentSocket, From, Received, Sealing, channel_of};
use strandway_udp::{Completion, Connection, Node, Region};

/// The time between two attempts to reach the switch: ours.
const AGAIN: Duration = Duration::from_millis(100);
/// The longest sleep, which is the longest delay of messages of the switch: ours.
const NAP: Duration = Duration::from_millis(5);
/// Calls of the socket between two checks of timers: ours.
const CALLS: usize = 16;

/// The settings of a parameter server. [`ServerConfig::new`] gives defaults.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address from which it reaches the switch. Port 0 takes any free one.
    pub address: SocketAddrV6,
    /// The admission address of the job at the switch.
    pub admission: SocketAddrV6,
    /// The job's key.
    pub key: Vec<u8>,
    /// A switch that is silent for this time counts as gone. Default 1 s.
    pub silence: Duration,
    /// Bytes of the socket's buffers. Default 8 MiB.
    pub socket_buffer: usize,
    /// The share of arriving fragments that is dropped, for tests and experiments. Default 0.
    pub loss: f64,
}

impl ServerConfig {
    /// Defaults for the job with this admission address and key.
    pub fn new(address: SocketAddrV6, admission: SocketAddrV6, key: Vec<u8>) -> ServerConfig {
        ServerConfig { address, admission, key, silence: terms::GONE, socket_buffer: 8 << 20, loss: 0.0 }
    }
}

/// An event at a parameter server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A session begins to be served, from its beginning or from its middle on.
    Began {
        /// The number of its workers.
        workers: u16,
    },
    /// The switch is gone; the server tries to reach it again.
    Lost,
    /// The switch refused the server, which asks again.
    Refused {
        /// The reason.
        reason: Refusal,
    },
}

/// One session: the job, and for each port of the switch a part of the server.
struct Session {
    job: Arc<Job>,
    parts: Vec<Part>,
    began: Instant,
}

struct Part {
    shard: ServerShard,
    sealing: Sealing,
    opening: FragmentOpener,
    to: Arc<[SocketAddrV6]>,
}

enum State {
    /// There is no connection; the next attempt is due at this time.
    Away(Instant),
    Calling,
    Serving(Connection),
}

/// A running parameter server of one job.
pub struct ParameterServer {
    config: ServerConfig,
    pub(crate) node: Node,
    state: State,
    inbox: Region,
    hello: Region,
    socket: FragmentSocket,
    received: Received,
    session: Option<Session>,
    elements: Vec<i32>,
    strangers: u64,
    past: Counts,
    events: Vec<ServerEvent>,
}

impl ParameterServer {
    /// Opens its sockets. [`ParameterServer::turn`] then connects to the switch.
    ///
    /// # Errors
    /// If the address is not available, or the key is too short.
    pub fn start(config: ServerConfig) -> Result<ParameterServer, GroupError> {
        let address = SocketAddrV6::new(*config.address.ip(), 0, 0, config.address.scope_id());
        let mut control = terms::admission(&config.key, address, config.silence)?;
        control.accept = false;
        control.timeouts.handshake = terms::GONE;
        let mut socket = FragmentSocket::open(config.address, config.socket_buffer, config.socket_buffer)?;
        socket.lose(config.loss, 77);
        let mut node = Node::bind(control)?;
        let inbox = node.register(vec![0; BYTES]);
        let hello = node.register(Message::Serve { port: socket.address()?.port() }.encode());
        Ok(ParameterServer {
            config,
            node,
            state: State::Away(Instant::now()),
            inbox,
            hello,
            socket,
            received: Received::new(),
            session: None,
            elements: Vec::new(),
            strangers: 0,
            past: Counts::default(),
            events: Vec::new(),
        })
    }

    /// Serves for at most `at_most` if nothing comes; returns its events.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn turn(&mut self, at_most: Duration) -> Result<Vec<ServerEvent>, GroupError> {
        self.call();
        while let Some(completion) = self.node.wait(Duration::ZERO)? {
            self.handle_completion(completion)?;
        }
        let mut moved = false;
        let mut received = std::mem::take(&mut self.received);
        for _ in 0..CALLS {
            if !self.socket.receive(&mut received) {
                break;
            }
            moved = true;
            received.each(|from, datagram| self.handle_datagram(from, datagram));
        }
        self.received = received;
        let nap = self.handle_timeouts();
        self.socket.flush();
        if !moved {
            self.socket.wait(nap.min(at_most).min(NAP));
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// Its counters in all sessions so far.
    pub fn counts(&self) -> Counts {
        let mut all = self.past;
        all += self.present();
        all
    }

    /// Datagrams that were not fragments of its switch.
    pub const fn strangers(&self) -> u64 {
        self.strangers
    }

    fn present(&self) -> Counts {
        let mut counts = BTreeMap::new();
        for part in self.session.iter().flat_map(|session| &session.parts) {
            part.shard.count(Time::ZERO, &mut counts);
        }
        counts.into_values().next().unwrap_or_default()
    }

    /// Connects to the switch, if it is time.
    pub(crate) fn call(&mut self) {
        if let State::Away(at) = self.state
            && Instant::now() >= at
        {
            self.state = match self.node.connect(&[self.config.admission]) {
                Ok(_) => State::Calling,
                Err(_) => State::Away(Instant::now() + AGAIN),
            };
        }
    }

    pub(crate) fn handle_completion(&mut self, completion: Completion) -> Result<(), GroupError> {
        match completion {
            Completion::Connected { connection } => {
                self.state = State::Serving(connection);
                // A connection can end in the turn in which it begins: `Closed` follows.
                if self.node.recv(connection, self.inbox, 0..BYTES).is_ok() {
                    let _ = self.node.send(connection, self.hello, 0..BYTES);
                }
            }
            Completion::Received { connection, .. } => match Message::decode(self.node.memory(self.inbox)?) {
                Some(Message::Welcome(welcome)) if self.begin(&welcome) => {
                    // If the connection has ended meanwhile, `Closed` follows.
                    let _ = self.node.recv(connection, self.inbox, 0..BYTES);
                }
                answer => {
                    let reason = if let Some(Message::Refused(reason)) = answer { reason } else { Refusal::Version };
                    self.events.push(ServerEvent::Refused { reason });
                    let _ = self.node.close(connection);
                    self.end();
                    self.state = State::Away(Instant::now() + AGAIN);
                }
            },
            Completion::Closed { connection, .. } => {
                if matches!(self.state, State::Serving(served) if served == connection) {
                    self.events.push(ServerEvent::Lost);
                }
                self.end();
                self.state = State::Away(Instant::now() + AGAIN);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) {
        let present = self.present();
        self.past += present;
        self.session = None;
    }

    /// A session begins; the one before is over. False if a switch cannot offer these terms.
    pub(crate) fn begin(&mut self, welcome: &Welcome) -> bool {
        self.end();
        let terms = Terms::of(welcome);
        if !terms.are_sound() {
            return false;
        }
        let Welcome { system, up, down, layout, ports, .. } = welcome;
        let workers = layout.racks.len() as u16;
        let (Ok(job), Some(system)) = (terms.job(), System::of_number(*system)) else { return false };
        let admission = self.config.admission;
        let part = |(port, &udp): (u16, &u16)| {
            Some(Part {
                shard: ServerShard::new(&job, system, Server::resumed)?,
                sealing: Sealing::new(up, port),
                opening: FragmentOpener::new(down, port),
                to: Arc::from([SocketAddrV6::new(*admission.ip(), udp, 0, admission.scope_id())]),
            })
        };
        let Some(parts) = (0..).zip(ports).map(part).collect() else { return false };
        self.session = Some(Session { job, parts, began: Instant::now() });
        self.events.push(ServerEvent::Began { workers });
        true
    }

    fn handle_datagram(&mut self, from: From, datagram: &mut [u8]) {
        let Some(session) = &mut self.session else { return };
        let now = now(session.began);
        let channel = channel_of(datagram);
        let port = session.parts.iter().position(|part| Some(part.opening.id()) == channel);
        let opened = port.map(|port| (port, session.parts[port].opening.open(datagram)));
        let Some((port, Ok((mut fragment, bytes)))) = opened else {
            self.strangers += 1;
            return;
        };
        let whole = !fragment.kind.has_elements() || { fragment.elements } == session.job.shape.elements;
        if !whole || { fragment.job } != session.job.shape.number || !Server::hears(fragment.kind) {
            self.strangers += 1;
            return;
        }
        let elements = read_elements(bytes, &mut self.elements);
        fragment.marks = fragment.marks.with_if(from.marked && fragment.kind.has_elements(), Marks::CONGESTED);
        let (job, socket) = (&session.job, &mut self.socket);
        let packet = job.packet(job.server(), job.server(), port as u8, fragment);
        let Part { shard, sealing, to, .. } = &mut session.parts[port];
        shard.handle(now, &packet, elements, &mut |packet, elements| push(socket, job, to, sealing, &packet, elements));
    }

    /// Runs timers; returns the time to the next one.
    fn handle_timeouts(&mut self) -> Duration {
        let Some(session) = &mut self.session else { return NAP };
        let (now, job, socket) = (now(session.began), &session.job, &mut self.socket);
        let mut next = Time::NEVER;
        for Part { shard, sealing, to, .. } in &mut session.parts {
            if shard.poll_timeout() <= now {
                shard.handle_timeout(now, &mut |packet, elements| push(socket, job, to, sealing, &packet, elements));
            }
            next = next.min(shard.poll_timeout());
        }
        if next == Time::NEVER { NAP } else { Duration::from_nanos(next.since(now.min(next)).0 / 1_000) }
    }
}

/// Sends a packet to the switch, with the name of its destination.
fn push(
    socket: &mut FragmentSocket,
    job: &Job,
    to: &Arc<[SocketAddrV6]>,
    sealing: &mut Sealing,
    packet: &Packet,
    elements: &[i32],
) {
    if let strandway_proto::packet::Header::Fragment(fragment) = packet.header {
        socket.push(to, sealing, &name(&fragment, job, packet.destination), elements);
    }
}

fn now(began: Instant) -> Time {
    Time(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX / 1_000).saturating_mul(1_000))
}
