//! One port of a switch on the wire: a socket, the program with its slots, the jobs' parameter servers, and registers with
//! real numbers.
//!
//! Each fragment is compared with its channel before a program gets it: a worker may speak only for itself and its job, with
//! the kinds of fragments that workers send and the number of lanes of its job. Unknown datagrams are counted and use no
//! memory.

use super::lanes::{Registers, read};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};
use strandway_proto::aggregate::{Counts, Fragment, Kind, Marks};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Fate, Program};
use strandway_proto::units::{Span, Time};
use strandway_proto::{HostId, Packet};
use strandway_switch::{AtpProgram, EsaProgram, Job, Rules, Server, SwitchMlProgram, System};
use strandway_udp::fragments::{FragmentSocket, From, Opening, Received, Sealing, channel_of};

/// Calls of the socket between two checks of timers and orders: ours.
const CALLS: usize = 16;
/// The longest sleep, and so the longest delay of orders. Ours.
const NAP: Duration = Duration::from_millis(5);
/// The most bytes of one job's sums at its parameter server, per port: ours.
const SERVER_BYTES: usize = 64 << 20;
/// A server keeps no keys that are more than this many windows above the watermark: ours. Workers that are a window apart, and
/// watermarks every four windows, need a quarter of it.
const REACH: u64 = 24;

/// The host number of a job's server. Workers have the numbers from 0 on, in each job.
pub(super) const SERVER: HostId = HostId(32);

/// The program of a switch.
pub(super) enum AnyProgram {
    Esa(EsaProgram),
    Atp(AtpProgram),
    SwitchMl(SwitchMlProgram),
}

impl AnyProgram {
    pub(super) fn new(system: System, slots: u32, rtt: Span) -> AnyProgram {
        match system {
            System::Esa(esa) => AnyProgram::Esa(EsaProgram::new(&[], 0, slots, esa, rtt, Span::ZERO)),
            System::Atp => AnyProgram::Atp(AtpProgram::new(&[], 0, slots, rtt, Span::ZERO)),
            System::SwitchMl { strict_order } => {
                AnyProgram::SwitchMl(SwitchMlProgram::new(&[], 0, slots, strict_order, Span::ZERO))
            }
        }
    }

    fn admit(&mut self, job: &Arc<Job>, share: Share) {
        match self {
            AnyProgram::Esa(program) => program.admit(job, share.slots_max),
            AnyProgram::Atp(program) => program.admit(job, share.slots_max),
            AnyProgram::SwitchMl(program) => {
                program.admit(job, share.first);
            }
        }
    }

    fn dismiss(&mut self, now: Time, job: u16) {
        match self {
            AnyProgram::Esa(program) => program.dismiss(now, job),
            AnyProgram::Atp(program) => program.dismiss(now, job),
            AnyProgram::SwitchMl(program) => program.dismiss(now, job),
        }
    }

    fn held(&self, job: u16) -> u32 {
        match self {
            AnyProgram::Esa(program) => program.held(job),
            AnyProgram::Atp(program) => program.held(job),
            AnyProgram::SwitchMl(program) => program.held(job),
        }
    }

    fn engine(&mut self) -> &mut dyn Program {
        match self {
            AnyProgram::Esa(program) => program,
            AnyProgram::Atp(program) => program,
            AnyProgram::SwitchMl(program) => program,
        }
    }
}

/// A job's share of a port's slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// ESA and ATP: the most slots at a time.
    pub(super) slots_max: u32,
    /// SwitchML: its first register.
    pub(super) first: u32,
}

/// An order of the control plane to a port.
pub(super) enum Order {
    /// A session of a job begins; an earlier one of the same job ends.
    Admit { job: Arc<Job>, share: Share, down: [u8; 32] },
    /// A worker has joined; its fragments come from this address.
    Member { job: u16, worker: u16, up: [u8; 32], address: Ipv6Addr },
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
    /// Bytes of lanes from workers, in fragments that a program has handled.
    pub lane_bytes: u64,
    /// Datagrams that belong to no channel.
    pub strangers: u64,
    /// Datagrams of a channel that are forged, repeated or malformed.
    pub refused: u64,
    /// Genuine fragments whose contents their sender may not send.
    pub odd: u64,
    /// Datagrams that were dropped because the socket was full.
    pub dropped: u64,
    /// By job: slots in use, registers of its server in use, and counters.
    pub jobs: BTreeMap<u16, (u32, u32, Counts)>,
}

struct Member {
    worker: u16,
    opening: Opening,
    host: Ipv6Addr,
    to: Option<Arc<[SocketAddrV6]>>,
}

struct Session {
    job: Arc<Job>,
    server: Option<Server>,
    registers: Registers,
    down: Sealing,
    members: Vec<Option<u64>>,
    /// The addresses of all members that have sent something.
    all: Arc<[SocketAddrV6]>,
}

/// A packet on its way to a server, with its numbers.
type Leg = (Packet, Vec<i32>);

pub(super) struct Station {
    number: u16,
    system: System,
    socket: FragmentSocket,
    program: AnyProgram,
    registers: Registers,
    sessions: BTreeMap<u16, Session>,
    /// By the number of their channel.
    members: BTreeMap<u64, (u16, Member)>,
    legs: VecDeque<Leg>,
    spare: Vec<Vec<i32>>,
    orders: Receiver<Order>,
    began: Instant,
    status: PortStatus,
    /// The counters of sessions that have ended.
    past: BTreeMap<u16, Counts>,
}

impl Station {
    pub(super) fn new(
        number: u16,
        system: System,
        slots: u32,
        lanes: u16,
        rtt: Span,
        socket: FragmentSocket,
        orders: Receiver<Order>,
    ) -> Station {
        let port = socket.address().map_or(0, |address| address.port());
        Station {
            number,
            system,
            socket,
            program: AnyProgram::new(system, slots, rtt),
            registers: Registers::new(lanes, slots),
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
    pub(super) fn run(mut self, stop: &AtomicBool) {
        let mut received = Received::new();
        let mut lanes = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            while let Ok(order) = self.orders.try_recv() {
                self.obey(order);
            }
            let mut moved = false;
            for _ in 0..CALLS {
                if !self.socket.receive(&mut received) {
                    break;
                }
                moved = true;
                let now = self.now();
                received.each(|from, datagram| self.handle_datagram(now, from, datagram, &mut lanes));
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
        let servers = self.sessions.values().filter_map(|session| session.server.as_ref());
        let at = servers.map(Program::poll_timeout).min().unwrap_or(Time::NEVER);
        if at == Time::NEVER { NAP } else { NAP.min(Duration::from_nanos(at.since(now.min(at)).0 / 1_000)) }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Admit { job, share, down } => self.admit(job, share, &down),
            Order::Member { job, worker, up, address } => {
                let Some(session) = self.sessions.get_mut(&job) else { return };
                let Some(place) = session.members.get_mut(usize::from(worker)) else { return };
                let opening = Opening::new(&up, self.number);
                if let Some(old) = place.replace(opening.id()) {
                    self.members.remove(&old);
                }
                self.members.insert(opening.id(), (job, Member { worker, opening, host: address, to: None }));
            }
            Order::Dismiss { job } => self.dismiss(job),
            // The sender of the question may have gone.
            Order::Count(to) => drop(to.send(self.count())),
        }
    }

    fn admit(&mut self, job: Arc<Job>, share: Share, down: &[u8; 32]) {
        let number = job.shape.number;
        self.dismiss(number);
        self.program.admit(&job, share);
        let server = match self.system {
            System::SwitchMl { .. } => None,
            System::Esa(_) => Some(Rules::Cover { flush_timer: true }),
            System::Atp => Some(Rules::Discard { readdress: true }),
        };
        let reach = REACH * u64::from(job.shape.window);
        let session = Session {
            server: server.map(|rules| Server::new(&job, rules, u64::from(number)).within(reach)),
            registers: Registers::new(job.shape.lanes, 0),
            down: Sealing::new(down, self.number),
            members: vec![None; job.workers().len()],
            all: Arc::new([]),
            job,
        };
        self.sessions.insert(number, session);
    }

    fn dismiss(&mut self, job: u16) {
        let now = self.now();
        let Some(session) = self.sessions.remove(&job) else { return };
        session.members.iter().flatten().for_each(|id| drop(self.members.remove(id)));
        if let Some(server) = &session.server {
            server.count(now, &mut self.past);
        }
        self.legs.retain(|(packet, _)| job_of(packet) != Some(job));
        self.program.dismiss(now, job);
    }

    fn count(&mut self) -> PortStatus {
        let now = self.now();
        let mut counts = self.past.clone();
        self.program.engine().count(now, &mut counts);
        self.sessions.values().filter_map(|s| s.server.as_ref()).for_each(|server| server.count(now, &mut counts));
        let registers = |job: &u16| self.sessions.get(job)?.server.as_ref().map(|server| server.held() as u32);
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
    fn handle_datagram(&mut self, now: Time, from: From, datagram: &mut [u8], lanes: &mut Vec<i32>) {
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
        let Ok((fragment, bytes)) = member.opening.open(datagram) else {
            self.status.refused += 1;
            return;
        };
        if member.to.as_ref().is_none_or(|to| to[0] != from.address) {
            // The worker's first datagram, or its host has changed its port.
            let old = member.to.replace(Arc::new([from.address]));
            let gone = old.map(|old| old[0]);
            let others = session.all.iter().copied().filter(|&address| Some(address) != gone);
            session.all = others.chain([from.address]).collect();
        }
        if !may_say(&fragment, &session.job, member.worker) {
            self.status.odd += 1;
            return;
        }
        self.status.lane_bytes += bytes.len() as u64;
        read(bytes, lanes);
        let host = HostId(u32::from(member.worker));
        let mut packet = session.job.packet(host, SERVER, self.number as u8, fragment);
        packet.flags = if from.marked { Flags::CE } else { Flags::NONE };
        self.pass(now, &packet, lanes);
        self.serve(now);
    }

    fn handle_timeouts(&mut self) {
        let now = self.now();
        let due = |session: &Session| session.server.as_ref().is_some_and(|server| server.poll_timeout() <= now);
        let jobs: Vec<u16> = self.sessions.iter().filter(|(_, session)| due(session)).map(|(&job, _)| job).collect();
        for job in jobs {
            self.with_server(now, job, |server| server.handle_timeout(now), &[], false);
            self.serve(now);
        }
    }

    /// Passes a packet to the program and executes its acts.
    fn pass(&mut self, now: Time, packet: &Packet, incoming: &[i32]) {
        let fate = self.program.engine().handle_packet(now, packet);
        while let Some(act) = self.program.engine().poll_act() {
            match act {
                Act::Store { to, from } => self.registers.store(to, from, incoming, false),
                Act::Add { to, from } => self.registers.add(to, from, incoming),
                Act::Send { packet, lanes } => {
                    let lanes = self.registers.get(lanes, incoming);
                    let out = (&mut self.sessions, &self.members, &mut self.socket);
                    forward(out, &mut self.legs, &mut self.spare, &packet, lanes);
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
        while let Some((packet, lanes)) = self.legs.pop_front() {
            if let Header::Fragment(fragment) = packet.header {
                let float = fragment.marks.has(Marks::FLOAT);
                let handle = |server: &mut Server| {
                    server.handle_packet(now, &packet);
                };
                self.with_server(now, fragment.job, handle, &lanes, float);
            }
            self.spare.push(lanes);
        }
    }

    /// Calls a server and executes its acts.
    fn with_server(&mut self, now: Time, job: u16, what: impl FnOnce(&mut Server), incoming: &[i32], float: bool) {
        let Some(session) = self.sessions.get_mut(&job) else { return };
        let Some(server) = &mut session.server else { return };
        let registers_max = SERVER_BYTES / (4 * usize::from(session.job.shape.lanes).max(1));
        if !incoming.is_empty() && server.held() >= registers_max {
            // The fragment counts as lost: this job's workers have too many unfinished keys.
            return;
        }
        what(server);
        let mut out = Vec::new();
        while let Some(act) = server.poll_act() {
            match act {
                Act::Store { to, from } => session.registers.store(to, from, incoming, float),
                Act::Add { to, from } => session.registers.add(to, from, incoming),
                Act::Send { packet, lanes } => {
                    let mut copy = self.spare.pop().unwrap_or_default();
                    copy.clear();
                    copy.extend_from_slice(session.registers.get(lanes, incoming));
                    out.push((packet, copy));
                }
                Act::Take { .. } | Act::Fail { .. } => {}
            }
        }
        for (packet, lanes) in out {
            self.pass(now, &packet, &lanes);
            self.spare.push(lanes);
        }
    }
}

fn job_of(packet: &Packet) -> Option<u16> {
    match packet.header {
        Header::Fragment(fragment) => Some(fragment.job),
        _ => None,
    }
}

/// The sessions, members and socket, which forwarding a packet needs.
type Ways<'a> = (&'a mut BTreeMap<u16, Session>, &'a BTreeMap<u64, (u16, Member)>, &'a mut FragmentSocket);

/// Forwards a packet: to the job's server here, to one worker, or to all of them.
fn forward(
    (sessions, members, socket): Ways<'_>,
    legs: &mut VecDeque<Leg>,
    spare: &mut Vec<Vec<i32>>,
    packet: &Packet,
    lanes: &[i32],
) {
    let Header::Fragment(fragment) = packet.header else { return };
    let Some(session) = sessions.get_mut(&{ fragment.job }) else { return };
    // Registers have room for the most lanes that the switch allows.
    let lanes = &lanes[..lanes.len().min(usize::from(fragment.lanes))];
    if packet.destination == SERVER {
        if session.server.is_some() && Server::hears(fragment.kind) {
            let mut copy = spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(lanes);
            legs.push_back((*packet, copy));
        }
        return;
    }
    if packet.destination == HostId::group(session.job.shape.group) {
        return socket.push(&session.all, &mut session.down, &fragment, lanes);
    }
    let member = session.members.get(packet.destination.0 as usize).copied().flatten().and_then(|id| members.get(&id));
    if let Some(to) = member.and_then(|(_, member)| member.to.as_ref()) {
        socket.push(to, &mut session.down, &fragment, lanes);
    }
}

/// May a worker of a job send this fragment? Its fields about the sender must be those of that worker.
fn may_say(fragment: &Fragment, job: &Job, worker: u16) -> bool {
    let kind = matches!(
        fragment.kind,
        Kind::Data | Kind::Remind | Kind::ResultCopy | Kind::NotYet | Kind::Obsolete | Kind::Watermark
    );
    let (rack, bit) = job.place(worker);
    let lanes = !fragment.kind.has_lanes() || { fragment.lanes } == job.shape.lanes;
    let marks = Marks::BYPASS.with(Marks::RESEND).with(Marks::FLOAT).with(Marks::CONGESTED);
    kind && lanes
        && { fragment.job } == job.shape.number
        && { fragment.sender } == worker
        && { fragment.workers } == 1 << bit
        && { fragment.racks } == 1 << rack
        && { fragment.number } != 0
        && marks.has(fragment.marks)
}
