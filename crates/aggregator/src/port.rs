//! One port of a switch on the wire: a socket, the program with its slots, the jobs' parameter servers, and registers
//! with real numbers.
//!
//! Each fragment is compared with its channel before a program gets it: a peer may send only the fragments that
//! `permissions.rs` allows. Unknown datagrams are counted and use no memory.

use crate::permissions::{Peer, destination, name, place_of};
use crate::registers::Registers;
use crate::server_shard::ServerShard;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use strandway_group::aggregation::read_elements;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Marks};
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Fate};
use strandway_proto::units::{Span, Time};
use strandway_switch::{Job, JobProgram, Server, SlotShare, System};
use strandway_udp::fragments::{FragmentOpener, FragmentSocket, From, Received, Sealing, channel_of};

/// Calls of the socket between two checks of timers and orders: ours.
const CALLS: usize = 16;
/// The longest sleep, which is the longest delay of orders. Ours.
const NAP: Duration = Duration::from_millis(5);
/// The way to the switch that adds racks.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    /// The secret of our fragments, and that of its fragments.
    pub(crate) up: [u8; 32],
    pub(crate) down: [u8; 32],
    /// The addresses of its ports.
    pub(crate) ports: Vec<SocketAddrV6>,
}

/// The place of a session's parameter server.
#[derive(Clone, Debug)]
pub(crate) enum Above {
    /// This switch.
    Here,
    /// A process of its own.
    Apart,
    /// The switch that is the parent.
    Parent(Parent),
}

/// An order of the control plane to a port.
pub(crate) enum Order {
    /// A session of a job begins, with this switch as the leaf of this number; an earlier one of the same job ends.
    Admit { job: Arc<Job>, leaf: u8, share: SlotShare, down: [u8; 32], above: Above },
    /// The parameter server of a session is a process at this address, with this secret.
    Server { job: u16, up: [u8; 32], address: SocketAddrV6 },
    /// A peer has joined; its fragments come from this address.
    Member { job: u16, peer: Peer, up: [u8; 32], address: Ipv6Addr },
    /// A session has ended.
    Dismiss { job: u16 },
    /// Send the counters.
    Count(Sender<PortStatus>),
}

/// The counters of a port since the switch began.
#[derive(Clone, Debug, Default)]
pub struct PortStatus {
    /// Its UDP port.
    pub port: u16,
    /// Datagrams that came.
    pub received: u64,
    /// Datagrams that left.
    pub sent: u64,
    /// Bytes of elements from workers, in fragments that a program has handled.
    pub element_bytes: u64,
    /// Datagrams that belong to no channel.
    pub strangers: u64,
    /// Datagrams of a channel that are forged, repeated or malformed.
    pub refused: u64,
    /// Genuine fragments with contents that their sender may not send.
    pub odd: u64,
    /// Datagrams that were dropped because the socket was full.
    pub dropped: u64,
    /// By job: slots in use, registers of its server in use, and counters.
    pub jobs: BTreeMap<u16, (u32, u32, Counts)>,
}

struct PortMember {
    peer: Peer,
    opening: FragmentOpener,
    host: Ipv6Addr,
    to: Option<Arc<[SocketAddrV6]>>,
}

struct Session {
    job: Arc<Job>,
    /// Its parameter server, if this switch adds racks.
    shard: Option<ServerShard>,
    down: Sealing,
    /// The channels of the workers, and of the switches of racks, below this switch.
    workers: Vec<Option<u64>>,
    racks: Vec<Option<u64>>,
    /// The way to the parent, and the channel of its fragments.
    up: Option<(Sealing, Arc<[SocketAddrV6]>)>,
    parent: Option<u64>,
    /// The parameter server in a process of its own: its channel and its address.
    server: Option<u64>,
    server_at: Option<Arc<[SocketAddrV6]>>,
    /// The addresses of all members below that have sent something.
    all: Arc<[SocketAddrV6]>,
}

impl Session {
    fn place(&mut self, peer: Peer) -> Option<&mut Option<u64>> {
        match peer {
            Peer::Worker(worker) => self.workers.get_mut(usize::from(worker)),
            Peer::Rack(rack) => self.racks.get_mut(usize::from(rack)),
            Peer::Parent => Some(&mut self.parent),
            Peer::Server => Some(&mut self.server),
        }
    }
}

/// A packet on its way to a server, with its numbers.
type Leg = (Packet, Vec<i32>);

pub(crate) struct AggregatorPort {
    number: u16,
    system: System,
    socket: FragmentSocket,
    program: Box<dyn JobProgram>,
    registers: Registers,
    sessions: BTreeMap<u16, Session>,
    /// By the number of their channel.
    members: BTreeMap<u64, (u16, PortMember)>,
    legs: VecDeque<Leg>,
    spare: Vec<Vec<i32>>,
    orders: Receiver<Order>,
    began: Instant,
    status: PortStatus,
    /// The counters of sessions that have ended.
    past: BTreeMap<u16, Counts>,
}

impl AggregatorPort {
    pub(crate) fn new(
        number: u16,
        system: System,
        slots: u32,
        elements: u16,
        rtt: Span,
        socket: FragmentSocket,
        orders: Receiver<Order>,
    ) -> AggregatorPort {
        let port = socket.address().map_or(0, |address| address.port());
        AggregatorPort {
            number,
            system,
            socket,
            program: system.program(&[], 0, slots, rtt, Span::ZERO),
            registers: Registers::new(elements, slots),
            sessions: BTreeMap::new(),
            members: BTreeMap::new(),
            legs: VecDeque::new(),
            spare: Vec::new(),
            orders,
            began: Instant::now(),
            status: PortStatus { port, ..PortStatus::default() },
            past: BTreeMap::new(),
        }
    }

    /// Serves until `stop` is set.
    pub(crate) fn run(mut self, stop: &AtomicBool) {
        let mut received = Received::new();
        let mut elements = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            while let Ok(order) = self.orders.try_recv() {
                self.handle_order(order);
            }
            let mut moved = false;
            for _ in 0..CALLS {
                if !self.socket.receive(&mut received) {
                    break;
                }
                moved = true;
                let now = self.now();
                received.each(|from, datagram| self.handle_datagram(now, from, datagram, &mut elements));
            }
            self.handle_timeouts();
            self.socket.flush();
            if !moved {
                self.socket.wait(self.nap());
            }
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 1_000).saturating_mul(1_000))
    }

    fn nap(&self) -> Duration {
        let now = self.now();
        let shards = self.sessions.values().filter_map(|session| session.shard.as_ref());
        let at = shards.map(ServerShard::poll_timeout).min().unwrap_or(Time::NEVER);
        if at == Time::NEVER { NAP } else { NAP.min(Duration::from_nanos(at.since(now.min(at)).0 / 1_000)) }
    }

    fn handle_order(&mut self, order: Order) {
        match order {
            Order::Admit { job, leaf, share, down, above } => self.admit(job, leaf, share, &down, above),
            Order::Server { job, up, address } => {
                if let Some(session) = self.sessions.get_mut(&job) {
                    session.server_at = Some(Arc::from([address]));
                }
                self.join(job, Peer::Server, FragmentOpener::new(&up, self.number), *address.ip());
            }
            Order::Member { job, peer, up, address } => {
                self.join(job, peer, FragmentOpener::new(&up, self.number), address)
            }
            Order::Dismiss { job } => self.dismiss(job),
            // The asker may have gone.
            Order::Count(to) => drop(to.send(self.count())),
        }
    }

    fn join(&mut self, job: u16, peer: Peer, opening: FragmentOpener, host: Ipv6Addr) {
        let Some(place) = self.sessions.get_mut(&job).and_then(|session| session.place(peer)) else { return };
        if let Some(old) = place.replace(opening.id()) {
            self.members.remove(&old);
        }
        self.members.insert(opening.id(), (job, PortMember { peer, opening, host, to: None }));
    }

    fn admit(&mut self, job: Arc<Job>, leaf: u8, share: SlotShare, down: &[u8; 32], above: Above) {
        let number = job.shape.number;
        self.dismiss(number);
        self.program.admit(&job, leaf.into(), share);
        let parent = if let Above::Parent(parent) = &above { Some(parent) } else { None };
        let way = parent.and_then(|parent| Some((parent, *parent.ports.get(usize::from(self.number))?)));
        let session = Session {
            shard: if matches!(above, Above::Here) {
                ServerShard::new(&job, self.system, |server| server)
            } else {
                None
            },
            down: Sealing::new(down, self.number),
            workers: vec![None; job.workers().len()],
            racks: vec![None; job.racks().len()],
            up: way.map(|(parent, port)| (Sealing::new(&parent.up, self.number), Arc::from([port]))),
            parent: None,
            server: None,
            server_at: None,
            all: Arc::new([]),
            job,
        };
        let host = way.map(|(parent, port)| (FragmentOpener::new(&parent.down, self.number), *port.ip()));
        self.sessions.insert(number, session);
        if let Some((opening, host)) = host {
            self.join(number, Peer::Parent, opening, host);
        }
    }

    fn dismiss(&mut self, job: u16) {
        let now = self.now();
        let Some(session) = self.sessions.remove(&job) else { return };
        let channels = [session.workers, session.racks, vec![session.parent, session.server]].concat();
        channels.iter().flatten().for_each(|id| drop(self.members.remove(id)));
        if let Some(shard) = &session.shard {
            shard.count(now, &mut self.past);
        }
        self.legs.retain(|(packet, _)| job_of(packet) != Some(job));
        self.program.dismiss(now, job);
    }

    fn count(&mut self) -> PortStatus {
        let now = self.now();
        let mut counts = self.past.clone();
        self.program.count(now, &mut counts);
        self.sessions.values().filter_map(|s| s.shard.as_ref()).for_each(|shard| shard.count(now, &mut counts));
        let registers = |job: &u16| self.sessions.get(job)?.shard.as_ref().map(|shard| shard.held() as u32);
        let jobs = counts
            .into_iter()
            .map(|(job, counts)| (job, (self.program.held(job), registers(&job).unwrap_or(0), counts)));
        let sockets = self.socket.counters();
        PortStatus {
            received: sockets.received,
            sent: sockets.sent,
            dropped: self.socket.dropped(),
            jobs: jobs.collect(),
            ..self.status.clone()
        }
    }

    /// Handles a datagram.
    fn handle_datagram(&mut self, now: Time, from: From, datagram: &mut [u8], elements: &mut Vec<i32>) {
        let member = channel_of(datagram).and_then(|id| self.members.get_mut(&id));
        let Some((job, member)) = member else {
            self.status.strangers += 1;
            return;
        };
        let Some(session) = self.sessions.get_mut(job) else { return };
        if member.host != *from.address.ip() {
            self.status.refused += 1;
            return;
        }
        let Ok((mut fragment, bytes)) = member.opening.open(datagram) else {
            self.status.refused += 1;
            return;
        };
        let below = matches!(member.peer, Peer::Worker(_) | Peer::Rack(_));
        if below && member.to.as_ref().is_none_or(|to| to[0] != from.address) {
            // This is the member's first datagram, or its host has changed its port.
            let old = member.to.replace(Arc::new([from.address]));
            let gone = old.map(|old| old[0]);
            let others = session.all.iter().copied().filter(|&address| Some(address) != gone);
            session.all = others.chain([from.address]).collect();
        }
        let Some(to) = destination(&fragment, &session.job, self.system, member.peer) else {
            self.status.odd += 1;
            return;
        };
        self.status.element_bytes += bytes.len() as u64;
        let elements = read_elements(bytes, elements);
        fragment.marks = fragment.marks.with_if(from.marked && fragment.kind.has_elements(), Marks::CONGESTED);
        let packet = session.job.packet(session.job.server(), to, self.number as u8, fragment);
        self.pass(now, &packet, elements);
        self.serve(now);
    }

    fn handle_timeouts(&mut self) {
        let now = self.now();
        let due = |session: &Session| session.shard.as_ref().is_some_and(|shard| shard.poll_timeout() <= now);
        let jobs: Vec<u16> = self.sessions.iter().filter(|(_, session)| due(session)).map(|(&job, _)| job).collect();
        for job in jobs {
            self.with_desk(now, job, |shard, send| shard.handle_timeout(now, send));
            self.serve(now);
        }
    }

    /// Passes a packet to the program and executes its acts.
    fn pass(&mut self, now: Time, packet: &Packet, incoming: &[i32]) {
        let fate = self.program.handle_packet(now, packet);
        while let Some(act) = self.program.poll_act() {
            match act {
                Act::Store { to, from } => self.registers.store(to, from, incoming, false),
                Act::Add { to, from } => self.registers.add(to, from, incoming),
                Act::Send { packet, elements } => {
                    let elements = self.registers.get(elements, incoming);
                    let out = (&mut self.sessions, &self.members, &mut self.socket);
                    forward(out, &mut self.legs, &mut self.spare, &packet, elements);
                }
                Act::Take { .. } | Act::Fail { .. } => {}
            }
        }
        if fate == Fate::Forward {
            let out = (&mut self.sessions, &self.members, &mut self.socket);
            forward(out, &mut self.legs, &mut self.spare, packet, incoming);
        }
    }

    /// Passes packets to the servers that they are addressed to.
    fn serve(&mut self, now: Time) {
        while let Some((packet, elements)) = self.legs.pop_front() {
            if let Some(job) = job_of(&packet) {
                self.with_desk(now, job, |shard, send| shard.handle(now, &packet, &elements, send));
            }
            self.spare.push(elements);
        }
    }

    /// Calls a server, and passes its packets to the program.
    fn with_desk(&mut self, now: Time, job: u16, what: impl FnOnce(&mut ServerShard, &mut dyn FnMut(Packet, &[i32]))) {
        let Some(shard) = self.sessions.get_mut(&job).and_then(|session| session.shard.as_mut()) else { return };
        let (mut out, spare) = (Vec::new(), &mut self.spare);
        what(shard, &mut |packet, elements| out.push((packet, copied(spare, elements))));
        for (packet, elements) in out {
            self.pass(now, &packet, &elements);
            self.spare.push(elements);
        }
    }
}

fn copied(spare: &mut Vec<Vec<i32>>, elements: &[i32]) -> Vec<i32> {
    let mut copy = spare.pop().unwrap_or_default();
    copy.clear();
    copy.extend_from_slice(elements);
    copy
}

fn job_of(packet: &Packet) -> Option<u16> {
    match packet.header {
        Header::Fragment(fragment) => Some(fragment.job),
        _ => None,
    }
}

/// The sessions, members and socket: everything that forwarding a packet needs.
type Ways<'a> = (&'a mut BTreeMap<u16, Session>, &'a BTreeMap<u64, (u16, PortMember)>, &'a mut FragmentSocket);

/// Forwards a packet: to the job's server, here or in its process, or to the parent; to one worker, or to all of them.
fn forward(
    (sessions, members, socket): Ways<'_>,
    legs: &mut VecDeque<Leg>,
    spare: &mut Vec<Vec<i32>>,
    packet: &Packet,
    elements: &[i32],
) {
    let Header::Fragment(fragment) = packet.header else { return };
    let Some(session) = sessions.get_mut(&{ fragment.job }) else { return };
    // Registers have room for the most elements that the switch allows.
    let elements = &elements[..elements.len().min(usize::from(fragment.elements))];
    if packet.destination == session.job.server() {
        if let Some((sealing, to)) = &mut session.up {
            socket.push(to, sealing, &fragment, elements);
        } else if let Some(to) = &session.server_at {
            socket.push(to, &mut session.down, &fragment, elements);
        } else if session.shard.is_some() && Server::hears(fragment.kind) {
            legs.push_back((*packet, copied(spare, elements)));
        }
        return;
    }
    let fragment = name(&fragment, &session.job, packet.destination);
    let Some((rack, bit)) = place_of(&session.job, packet.destination) else {
        return socket.push(&session.all, &mut session.down, &fragment, elements);
    };
    let worker = session.job.racks()[usize::from(rack)].workers[usize::from(bit)];
    let channel = session.workers[usize::from(worker)].or(session.racks[usize::from(rack)]);
    if let Some(to) = channel.and_then(|id| members.get(&id)).and_then(|(_, member)| member.to.as_ref()) {
        socket.push(to, &mut session.down, &fragment, elements);
    }
}
