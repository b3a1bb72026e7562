//! The admission address of a job at a switch: workers and racks join there, and sessions begin and end.
//!
//! Without racks and without a parent, a session begins with its first worker, and each worker is answered at once. A
//! switch that takes racks answers when all workers have joined, its own and those of racks, because only then it knows
//! the workers of each rack. A switch with a parent passes on the request of each of its workers, and answers them when
//! the parent has answered.

mod uplink;

use crate::config::{JobConfig, SwitchConfig};
use crate::permissions::Peer;
use crate::port::{Above, Order};
use crate::status::{JobStatus, SwitchEvent};
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use strandway_group::GroupError;
use strandway_group::aggregation::message::{BYTES, Join, Layout, Message, Refusal, WORKERS_MAX, Welcome};
use strandway_group::aggregation::terms::{self, Terms};
use strandway_switch::who::RACK_MAX;
use strandway_switch::{SlotShare, SwitchMlProgram};
use strandway_udp::{Completion, Connection, Node, Region, random_secret};
use uplink::Uplink;

/// The most answers to one caller that are still on their way; a caller that asks for more is cut off.
const ANSWERS_MAX: usize = 8;

/// Completions that an admission address handles in one turn: ours.
const HEEDED_MAX: usize = 256;

/// The parts of a switch that its admission addresses need.
pub(crate) struct Setup {
    pub(crate) config: SwitchConfig,
    /// The UDP ports of fragments, and the orders of their threads.
    pub(crate) ports: Vec<u16>,
    pub(crate) orders: Vec<Sender<Order>>,
}

impl Setup {
    /// Slots of each port.
    pub(crate) fn slots(&self) -> u32 {
        self.config.slots / u32::from(self.config.ports)
    }

    fn share(&self, place: u32, job: &JobConfig) -> SlotShare {
        let slots = self.slots();
        let own = SwitchMlProgram::share(slots, self.config.jobs.len() as u32);
        let slots_max = match self.config.system.divides_slots() {
            true => 2 * own,
            false => ((f64::from(slots) * job.share) as u32).clamp(1, slots),
        };
        SlotShare { slots_max, first: place * 2 * own }
    }

    /// Does only the owner of a key get its sum? With SwitchML all workers get it.
    fn scatters(&self, join: &Join) -> bool {
        join.scatter && join.workers > 1 && self.config.system.has_server()
    }

    /// The window that this switch allows a job.
    fn window(&self, wanted: u32, share: SlotShare) -> u32 {
        let most = match (self.config.system.divides_slots(), self.config.racks) {
            // Each port has slots only for its own keys: two versions of each, and as many again for sums of racks.
            (true, true) => share.slots_max / 4,
            (true, false) => share.slots_max / 2,
            (false, _) => self.slots(),
        };
        terms::window(wanted, most.max(1), self.config.ports.into())
    }

    /// The place of the parameter servers, if there is no parent.
    fn above(&self) -> Above {
        if self.config.server_apart { Above::Apart } else { Above::Here }
    }

    fn send_order(&self, order: impl Fn() -> Order) {
        for orders in &self.orders {
            // A thread that has ended needs no orders.
            let _ = orders.send(order());
        }
    }
}

/// A session of a job: a team's workers, from the time when the first one joins until one of them leaves.
struct Session {
    join: Join,
    window: u32,
    down: [u8; 32],
    /// By worker: its connection, or that of its rack.
    members: BTreeMap<u16, Connection>,
    /// `None` until it begins.
    layout: Option<Layout>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Unknown,
    Worker(u16),
    Rack,
    /// A parameter server, with its UDP port.
    Server(u16),
}

struct Caller {
    host: Ipv6Addr,
    inbox: Region,
    /// Answers on their way.
    out: Vec<Region>,
    role: Role,
}

/// The place where the workers of one job join.
pub(crate) struct JobAdmission {
    job: JobConfig,
    pub(crate) node: Node,
    /// Its place among the jobs. In SwitchML it determines the job's registers.
    place: u32,
    callers: HashMap<Connection, Caller>,
    session: Option<Session>,
    uplink: Option<Uplink>,
    /// The job's parameter server, if it is a process of its own.
    server: Option<Connection>,
    sessions: u64,
    refused: u64,
    events: Vec<SwitchEvent>,
}

impl JobAdmission {
    pub(crate) fn new(job: JobConfig, place: u32, node: Node) -> JobAdmission {
        JobAdmission {
            job,
            node,
            place,
            callers: HashMap::new(),
            session: None,
            uplink: None,
            server: None,
            sessions: 0,
            refused: 0,
            events: Vec::new(),
        }
    }

    /// The number of the job.
    pub(crate) const fn number(&self) -> u16 {
        self.job.number
    }

    /// Serves the admission address once, for at most `at_most`; returns its events. A peer can end only itself and its
    /// session, so an error is one of this machine.
    pub(crate) fn turn(&mut self, setup: &Setup, at_most: Duration) -> Result<Vec<SwitchEvent>, GroupError> {
        let mut wait = at_most;
        // The other jobs' admission addresses get their turn even if the peers of this one never pause.
        for _ in 0..HEEDED_MAX {
            let Some(completion) = self.node.wait(wait)? else { break };
            self.handle_completion(setup, completion)?;
            wait = Duration::ZERO;
        }
        Ok(std::mem::take(&mut self.events))
    }

    pub(crate) fn status(&self, setup: &Setup) -> JobStatus {
        let session = self.session.as_ref();
        let layout = session.and_then(|session| session.layout.as_ref());
        JobStatus {
            number: self.job.number,
            joined: session.map_or(0, |session| session.members.len()),
            workers: session.map_or(0, |session| session.join.workers),
            racks: layout.map_or(0, |layout| layout.racks.iter().max().map_or(0, |&most| u16::from(most) + 1)),
            server: self.server.is_some(),
            sessions: self.sessions,
            refused: self.refused,
            slots_max: setup.share(self.place, &self.job).slots_max * u32::from(setup.config.ports),
        }
    }

    pub(crate) fn handle_completion(&mut self, setup: &Setup, completion: Completion) -> Result<(), GroupError> {
        match completion {
            Completion::Accepted { connection, from } => {
                let SocketAddr::V6(from) = from else { return Ok(()) };
                let inbox = self.node.register(vec![0; BYTES]);
                let caller = Caller { host: *from.ip(), inbox, out: Vec::new(), role: Role::Unknown };
                self.callers.insert(connection, caller);
                self.listen(setup, connection);
            }
            Completion::Connected { connection } => self.open_uplink(setup, connection),
            Completion::Received { connection, .. } if self.is_uplink(connection) => {
                self.handle_parent_message(setup)?
            }
            Completion::Received { connection, .. } => self.handle_message(setup, connection)?,
            Completion::Sent { connection, .. } => {
                let uplink = self.uplink.as_mut().filter(|uplink| uplink.connection == connection);
                let out = uplink.map(|uplink| &mut uplink.out);
                let out = out.or(self.callers.get_mut(&connection).map(|caller| &mut caller.out));
                // Sends of one connection end in the order of posting.
                if let Some(out) = out.filter(|out| !out.is_empty()) {
                    let sent = out.remove(0);
                    // Nothing uses it any more.
                    let _ = self.node.deregister(sent);
                }
            }
            Completion::Closed { connection, .. } if self.is_uplink(connection) => self.lose_parent(setup),
            Completion::Closed { connection, .. } => self.leave(setup, connection),
            _ => {}
        }
        Ok(())
    }

    /// Posts the receive for the next message of a caller; false if the caller has gone. A connection can end in the
    /// same turn in which its messages arrive.
    fn listen(&mut self, setup: &Setup, connection: Connection) -> bool {
        let Some(caller) = self.callers.get(&connection) else { return false };
        let posted = self.node.recv(connection, caller.inbox, 0..BYTES).is_ok();
        if !posted {
            self.cut_off(setup, connection);
        }
        posted
    }

    /// Ends a caller's connection, and with it the caller's session.
    fn cut_off(&mut self, setup: &Setup, connection: Connection) {
        // It may have ended by itself.
        let _ = self.node.close(connection);
        self.leave(setup, connection);
    }

    /// A message of a caller has arrived.
    fn handle_message(&mut self, setup: &Setup, connection: Connection) -> Result<(), GroupError> {
        let Some(caller) = self.callers.get_mut(&connection) else { return Ok(()) };
        let message = Message::decode(self.node.memory(caller.inbox)?);
        let (join, role) = match message {
            Some(Message::Join(join)) if caller.role == Role::Unknown => (join, Role::Worker(join.worker)),
            Some(Message::Pass(join)) if matches!(caller.role, Role::Unknown | Role::Rack) => (join, Role::Rack),
            Some(Message::Serve { port }) if caller.role == Role::Unknown => {
                caller.role = Role::Server(port);
                return self.handle_server_message(setup, connection);
            }
            _ => {
                self.refuse(connection, Refusal::Version);
                return Ok(());
            }
        };
        caller.role = role;
        let passed = role == Role::Rack;
        if passed && caller.out.len() >= ANSWERS_MAX {
            self.cut_off(setup, connection);
            return Ok(());
        }
        // A rack sends several messages; a worker sends one.
        if passed && setup.config.racks && !self.listen(setup, connection) {
            return Ok(());
        }
        match self.admit(setup, connection, join, passed) {
            Some(reason) => self.refuse(connection, reason),
            None => self.go_on(setup, connection, join)?,
        }
        Ok(())
    }

    /// A parameter server offers itself. A new one replaces an old one, whose end may not have been noticed yet.
    fn handle_server_message(&mut self, setup: &Setup, connection: Connection) -> Result<(), GroupError> {
        if !setup.config.server_apart {
            self.refuse(connection, Refusal::OwnServer);
            return Ok(());
        }
        if let Some(old) = self.server.replace(connection) {
            let _ = self.node.close(old);
            if let Some(caller) = self.callers.remove(&old) {
                self.forget(caller);
            }
            self.lose_server(setup);
        }
        self.introduce_server(setup)
    }

    /// The parameter server has ended or is replaced.
    fn lose_server(&mut self, setup: &Setup) {
        if setup.config.system.server_keeps_sums() {
            self.end_session(setup);
        }
    }

    /// Tells the parameter server and the ports about each other, if a session has begun.
    fn introduce_server(&mut self, setup: &Setup) -> Result<(), GroupError> {
        let Some((connection, caller)) = self.server.and_then(|server| Some((server, self.callers.get(&server)?)))
        else {
            return Ok(());
        };
        let Role::Server(port) = caller.role else { return Ok(()) };
        let address = SocketAddrV6::new(caller.host, port, 0, setup.config.address.scope_id());
        let Some(welcome) = self.terms(setup, 0)? else { return Ok(()) };
        let (up, job) = (welcome.up, self.job.number);
        setup.send_order(|| Order::Server { job, up, address });
        self.answer(connection, &Message::Welcome(Box::new(welcome)));
        Ok(())
    }

    /// Notes a worker in its job's session, or in a new one; or returns the reason of a refusal.
    fn admit(&mut self, setup: &Setup, connection: Connection, join: Join, passed: bool) -> Option<Refusal> {
        let Setup { config, .. } = setup;
        if passed && !config.racks {
            return Some(Refusal::NoRacks);
        }
        let deferred = config.racks || config.parent.is_some();
        let workers_max = if deferred { WORKERS_MAX } else { RACK_MAX };
        if join.workers == 0 || usize::from(join.workers) > workers_max || join.worker >= join.workers {
            return Some(Refusal::TooLarge);
        }
        if join.elements == 0 || join.elements > config.elements {
            return Some(Refusal::TooLarge);
        }
        if let Some(session) = &self.session {
            // Racks may allow different windows; the smallest one counts.
            let alike = |a: &Join, b: &Join| {
                let window = passed || config.racks || a.window == b.window;
                (a.workers, a.elements) == (b.workers, b.elements)
                    && (a.exponents, a.scatter) == (b.exponents, b.scatter)
                    && window
            };
            match (session.join.token == join.token, session.join.epoch.cmp(&join.epoch)) {
                (true, std::cmp::Ordering::Greater) => return Some(Refusal::Late),
                (true, std::cmp::Ordering::Equal) if !alike(&session.join, &join) => return Some(Refusal::Differs),
                (true, std::cmp::Ordering::Equal) if deferred && session.layout.is_some() => {
                    return Some(Refusal::Late);
                }
                (true, std::cmp::Ordering::Equal) => {}
                (false, _) => return Some(Refusal::Busy),
                (true, std::cmp::Ordering::Less) => self.end_session(setup),
            }
        }
        let window = setup.window(join.window, setup.share(self.place, &self.job));
        let session = self.session.get_or_insert_with(|| Session {
            join,
            window,
            down: [0; 32],
            members: BTreeMap::new(),
            layout: None,
        });
        if session.layout.is_none() {
            session.window = session.window.min(window);
        }
        session.members.insert(join.worker, connection);
        None
    }

    /// Answers a worker that was noted, begins the session, or asks the parent.
    fn go_on(&mut self, setup: &Setup, connection: Connection, join: Join) -> Result<(), GroupError> {
        let Some(session) = &self.session else { return Ok(()) };
        if let Some(parent) = setup.config.parent {
            let join = Join { window: session.window, ..join };
            self.pass(setup, parent, join);
            return Ok(());
        }
        if setup.config.server_apart && self.server.is_none() {
            self.refuse_all(setup, Refusal::NoServer);
            return Ok(());
        }
        if setup.config.racks {
            if session.members.len() < usize::from(session.join.workers) {
                return Ok(());
            }
            let (layout, racks) = self.layout();
            if !self.begin(setup, layout.clone(), layout.top, setup.above())? {
                self.refuse_all(setup, Refusal::TooLarge);
                return Ok(());
            }
            return racks.into_iter().try_for_each(|(connection, rack)| self.welcome(setup, connection, rack));
        }
        if session.layout.is_none() && !self.begin(setup, Layout::flat(join.workers), 0, setup.above())? {
            self.refuse_all(setup, Refusal::TooLarge);
            return Ok(());
        }
        self.welcome(setup, connection, 0)
    }

    /// The places of all workers, and the rack of each connection. Racks are numbered in the order of their first
    /// workers.
    fn layout(&self) -> (Layout, Vec<(Connection, u8)>) {
        let mut order: Vec<Option<Connection>> = Vec::new();
        let (mut racks, mut connections) = (Vec::new(), Vec::new());
        for &connection in self.session.iter().flat_map(|session| session.members.values()) {
            let own = !self.callers.get(&connection).is_some_and(|caller| caller.role == Role::Rack);
            let name = (!own).then_some(connection);
            let known = order.iter().position(|other| *other == name);
            let rack = known.unwrap_or_else(|| {
                order.push(name);
                order.len() - 1
            });
            // No job has more than 32 racks. 255 stands for all further ones.
            let rack = u8::try_from(rack).unwrap_or(u8::MAX);
            racks.push(rack);
            if own || known.is_none() {
                connections.push((connection, rack));
            }
        }
        let top = order.iter().position(Option::is_none).unwrap_or(order.len());
        (Layout { racks, top: u8::try_from(top).unwrap_or(u8::MAX) }, connections)
    }

    /// Begins the session with these places. `leaf` is the number of this switch's leaf. Returns false if the places
    /// make no valid job.
    fn begin(&mut self, setup: &Setup, layout: Layout, leaf: u8, above: Above) -> Result<bool, GroupError> {
        let Some(session) = &mut self.session else { return Ok(true) };
        let terms = Terms {
            number: self.job.number,
            layout: layout.clone(),
            elements: session.join.elements,
            window: session.window,
            slots: setup.slots(),
            ports: setup.config.ports.into(),
            rtt: setup.config.rtt,
            scatter: setup.scatters(&session.join),
        };
        let Ok(job) = terms.job() else { return Ok(false) };
        session.down = random_secret()?;
        session.layout = Some(layout);
        let (down, share) = (session.down, setup.share(self.place, &self.job));
        setup.send_order(|| Order::Admit { job: Arc::clone(&job), leaf, share, down, above: above.clone() });
        self.sessions += 1;
        self.events.push(SwitchEvent::Began { job: self.job.number, workers: session.join.workers });
        self.introduce_server(setup)?;
        Ok(true)
    }

    /// The session's terms for one receiver, with a new secret for its fragments; `None` if no session has begun.
    fn terms(&self, setup: &Setup, rack: u8) -> Result<Option<Welcome>, GroupError> {
        let Some((session, layout)) =
            self.session.as_ref().and_then(|session| Some((session, session.layout.clone()?)))
        else {
            return Ok(None);
        };
        Ok(Some(Welcome {
            system: setup.config.system.number(),
            job: self.job.number,
            elements: session.join.elements,
            rack,
            window: session.window,
            slots: setup.slots(),
            up: random_secret()?,
            down: session.down,
            layout,
            rtt: u32::try_from(setup.config.rtt.0 / 1_000_000).unwrap_or(u32::MAX),
            ports: setup.ports.clone(),
            scatter: setup.scatters(&session.join),
        }))
    }

    /// Tells a caller that it takes part.
    fn welcome(&mut self, setup: &Setup, connection: Connection, rack: u8) -> Result<(), GroupError> {
        let (Some(welcome), Some(caller)) = (self.terms(setup, rack)?, self.callers.get(&connection)) else {
            return Ok(());
        };
        let peer = match caller.role {
            Role::Worker(worker) => Peer::Worker(worker),
            _ => Peer::Rack(rack),
        };
        let (up, address, job) = (welcome.up, caller.host, self.job.number);
        setup.send_order(|| Order::Member { job, peer, up, address });
        self.answer(connection, &Message::Welcome(Box::new(welcome)));
        Ok(())
    }

    fn answer(&mut self, connection: Connection, message: &Message) {
        let Some(caller) = self.callers.get_mut(&connection) else { return };
        let out = self.node.register(message.encode());
        match self.node.send(connection, out, 0..BYTES) {
            Ok(_) => caller.out.push(out),
            // The caller has gone.
            Err(_) => drop(self.node.deregister(out)),
        }
    }

    fn refuse(&mut self, connection: Connection, reason: Refusal) {
        self.refused += 1;
        self.events.push(SwitchEvent::Refused { job: self.job.number, reason });
        self.answer(connection, &Message::Refused(reason));
    }

    /// Tells all members of a session why it cannot begin.
    fn refuse_all(&mut self, setup: &Setup, reason: Refusal) {
        // A rack may appear several times among the members.
        let mut told: Vec<Connection> = Vec::new();
        for connection in self.session.take().into_iter().flat_map(|session| session.members.into_values()) {
            if !told.contains(&connection) {
                told.push(connection);
                self.refuse(connection, reason);
            }
        }
        self.end_session(setup);
    }

    /// A connection has ended. A session that has lost a member ends, and the connections of the others are closed.
    fn leave(&mut self, setup: &Setup, connection: Connection) {
        let Some(caller) = self.callers.remove(&connection) else { return };
        self.forget(caller);
        if self.server == Some(connection) {
            self.server = None;
            self.lose_server(setup);
        }
        let member = |session: &Session| session.members.values().any(|&member| member == connection);
        if self.session.as_ref().is_some_and(member) {
            self.end_session(setup);
        }
    }

    /// Releases the memory of a caller that has gone.
    fn forget(&mut self, caller: Caller) {
        for region in caller.out.into_iter().chain([caller.inbox]) {
            let _ = self.node.deregister(region);
        }
    }

    fn end_session(&mut self, setup: &Setup) {
        self.drop_uplink();
        let Some(session) = self.session.take() else { return };
        for connection in session.members.values() {
            if let Some(caller) = self.callers.remove(connection) {
                let _ = self.node.close(*connection);
                self.forget(caller);
            }
        }
        if session.layout.is_some() {
            let job = self.job.number;
            setup.send_order(|| Order::Dismiss { job });
            self.events.push(SwitchEvent::Ended { job });
        }
    }
}
