//! The switch as a process: a door for each job, where its workers join, and a thread for each port, which adds.
//!
//! A door is a [`Node`] with the job's key, so only workers with the key get in. Each worker gets its own secret for its
//! fragments. When a worker's connection ends, its session ends. The thread that calls [`Switch::turn`] serves the doors.

use super::message::{BYTES, Join, Message, PORTS_MAX, Refusal, Welcome};
use super::station::{Order, PortStatus, SERVER, Share, Station};
use super::terms::{self, Terms};
use crate::error::GroupError;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use strandway_proto::units::Span;
use strandway_switch::{SwitchMlProgram, System};
use strandway_udp::fragments::{FragmentSocket, LANES_MAX};
use strandway_udp::{Completion, Connection, Node, Region, random_secret};

/// A job that a switch serves.
#[derive(Clone, Debug)]
pub struct JobConfig {
    /// Its number, from 1 on.
    pub number: u16,
    /// The key that its workers know, 16 bytes or more.
    pub key: Vec<u8>,
    /// ESA and ATP: the share of the slots that it may hold at a time, above 0 and up to 1.
    pub share: f64,
}

/// The settings of a switch. [`SwitchConfig::new`] gives defaults.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// Its address. The door of job `n` has this port plus `n`; the ports of fragments follow from this port plus
    /// [`SwitchConfig::FRAGMENTS`] on. Port 0 takes any free ones.
    pub address: SocketAddrV6,
    /// The system that it runs.
    pub system: System,
    /// Slots of all ports together. SwitchML counts both versions of each.
    pub slots: u32,
    /// The most lanes of a fragment, at most 256. A slot has 4 bytes for each lane.
    pub lanes: u16,
    /// Ports; each has a thread and an equal part of the slots, and keys use them in turn. At most 16.
    pub ports: u16,
    /// The jobs.
    pub jobs: Vec<JobConfig>,
    /// A round trip between a worker and the switch, including the time that either takes to wake up. Default 2 ms: a slice
    /// of the scheduler.
    pub rtt: Span,
    /// Bytes of a port's socket buffers. Default 8 MiB.
    pub socket_buffer: usize,
    /// The share of arriving fragments that is dropped, for tests and experiments. Default 0.
    pub loss: f64,
}

impl SwitchConfig {
    /// The distance from the switch's port to the first port of fragments.
    pub const FRAGMENTS: u16 = 1_000;

    /// Defaults: 4,096 slots of 256 lanes, one port, no job.
    pub fn new(address: SocketAddrV6, system: System) -> SwitchConfig {
        SwitchConfig {
            address,
            system,
            slots: 4_096,
            lanes: LANES_MAX,
            ports: 1,
            jobs: Vec::new(),
            rtt: terms::RTT,
            socket_buffer: 8 << 20,
            loss: 0.0,
        }
    }

    /// The default share of the slots that a job may hold: all slots for a single job, otherwise three quarters. Ours.
    pub const fn usual_share(jobs: usize) -> f64 {
        if jobs > 1 { 0.75 } else { 1.0 }
    }

    fn check(&self) -> Result<(), GroupError> {
        let wrong = |what: String| Err(GroupError::Config(what));
        if self.jobs.is_empty() {
            return wrong("a switch without a job: name one and its key".into());
        }
        if !(1..=LANES_MAX).contains(&self.lanes) {
            return wrong(format!("{} lanes: take 1 to {LANES_MAX}", self.lanes));
        }
        if !(1..=PORTS_MAX).contains(&usize::from(self.ports)) {
            return wrong(format!("{} ports: take 1 to {PORTS_MAX}", self.ports));
        }
        let least = 2 * u32::from(self.ports) * self.jobs.len() as u32;
        if !(least..=1 << 22).contains(&self.slots) {
            return wrong(format!("{} slots: take {least} (two for each job and port) to {}", self.slots, 1 << 22));
        }
        for (at, job) in self.jobs.iter().enumerate() {
            if !(1..SwitchConfig::FRAGMENTS).contains(&job.number) {
                return wrong(format!("job {}: take a number from 1 to {}", job.number, SwitchConfig::FRAGMENTS - 1));
            }
            if self.jobs[..at].iter().any(|other| other.number == job.number) {
                return wrong(format!("job {} is named twice: give each job its own number", job.number));
            }
            if !(job.share > 0.0 && job.share <= 1.0) {
                return wrong(format!("job {}: a share of {}: take more than 0 and at most 1", job.number, job.share));
            }
        }
        Ok(())
    }
}

/// A session of a job: a team's workers, from the time when the first one joins until one of them leaves.
struct Session {
    join: Join,
    window: u32,
    down: [u8; 32],
    members: BTreeMap<u16, Connection>,
}

struct Caller {
    host: Ipv6Addr,
    inbox: Region,
    /// The single answer that it gets.
    answer: Option<Region>,
    worker: Option<u16>,
}

/// The place where the workers of one job join.
struct Door {
    job: JobConfig,
    node: Node,
    /// Its place among the jobs, which determines its registers in SwitchML.
    place: u32,
    callers: HashMap<Connection, Caller>,
    session: Option<Session>,
    sessions: u64,
    refused: u64,
}

impl Door {
    /// Releases the memory of a caller that has gone.
    fn forget(&mut self, caller: &Caller) {
        for region in [Some(caller.inbox), caller.answer].into_iter().flatten() {
            // A connection that has ended uses no memory.
            let _ = self.node.deregister(region);
        }
    }
}

/// An event at a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchEvent {
    /// A session of a job has begun, for this many workers.
    Began {
        /// The job.
        job: u16,
        /// Its workers.
        workers: u16,
    },
    /// A session is over.
    Ended {
        /// The job.
        job: u16,
    },
    /// A worker was refused.
    Refused {
        /// The job.
        job: u16,
        /// Why.
        reason: Refusal,
    },
}

/// The counters of a switch.
#[derive(Clone, Debug)]
pub struct SwitchStatus {
    /// The system's name.
    pub system: &'static str,
    /// Slots of all ports.
    pub slots: u32,
    /// The jobs.
    pub jobs: Vec<JobStatus>,
    /// The ports.
    pub ports: Vec<PortStatus>,
}

/// The state of a job at its door.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// Its number.
    pub number: u16,
    /// Workers that have joined the session.
    pub joined: usize,
    /// Workers that the session has; 0 if there is none.
    pub workers: u16,
    /// Sessions so far.
    pub sessions: u64,
    /// Workers that were refused.
    pub refused: u64,
    /// The most slots that it may hold, all ports together.
    pub slots_max: u32,
}

/// A running switch.
pub struct Switch {
    config: SwitchConfig,
    doors: Vec<Door>,
    ports: Vec<u16>,
    orders: Vec<Sender<Order>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    events: Vec<SwitchEvent>,
}

impl Switch {
    /// Opens doors and ports and starts a thread for each port.
    ///
    /// # Errors
    /// If the configuration is invalid, or an address or port is not available.
    pub fn start(config: SwitchConfig) -> Result<Switch, GroupError> {
        config.check()?;
        let at = |above: u16| {
            let (address, first) = (config.address, config.address.port());
            let port = if first == 0 { Some(0) } else { first.checked_add(above) };
            let there = port.map(|port| SocketAddrV6::new(*address.ip(), port, 0, address.scope_id()));
            there.ok_or_else(|| GroupError::Config(format!("port {first}: take one below 64,000; others follow it")))
        };
        let mut doors = Vec::new();
        for (place, job) in (0..).zip(&config.jobs) {
            let node = Node::bind(terms::door(&job.key, at(job.number)?)?)?;
            let (callers, session) = (HashMap::new(), None);
            doors.push(Door { job: job.clone(), node, place, callers, session, sessions: 0, refused: 0 });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut ports, mut orders, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        let slots = config.slots / u32::from(config.ports);
        for number in 0..config.ports {
            let mut socket = FragmentSocket::open(at(SwitchConfig::FRAGMENTS + number)?, config.socket_buffer)?;
            socket.lose(config.loss, u64::from(number) + 1);
            ports.push(socket.address()?.port());
            let (sender, receiver) = channel();
            orders.push(sender);
            let station = Station::new(number, config.system, slots, config.lanes, config.rtt, socket, receiver);
            let stop = Arc::clone(&stop);
            threads.push(std::thread::spawn(move || station.run(&stop)));
        }
        Ok(Switch { config, doors, ports, orders, threads, stop, events: Vec::new() })
    }

    /// The address where workers of a job join; workers need it to start.
    ///
    /// # Errors
    /// If there is no such job, or the system cannot report the address.
    pub fn door(&self, job: u16) -> Result<SocketAddrV6, GroupError> {
        let door = self.doors.iter().find(|door| door.job.number == job);
        let door = door.ok_or_else(|| GroupError::Config(format!("job {job}: the switch has no such job")))?;
        match door.node.addresses()?.first() {
            Some(SocketAddr::V6(address)) => Ok(*address),
            _ => Err(GroupError::Config("a door without an IPv6 address".into())),
        }
    }

    /// The UDP ports of fragments.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Serves the doors once, for at most `at_most`; returns their events.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn turn(&mut self, at_most: Duration) -> Result<Vec<SwitchEvent>, GroupError> {
        let each = at_most / self.doors.len() as u32;
        for at in 0..self.doors.len() {
            let mut wait = each;
            while let Some(completion) = self.doors[at].node.wait(wait)? {
                self.heed(at, completion)?;
                wait = Duration::ZERO;
            }
        }
        Ok(std::mem::take(&mut self.events))
    }

    /// The counters so far. Ports answer within some milliseconds.
    pub fn status(&self) -> SwitchStatus {
        let ports = self.orders.iter().map(|orders| {
            let (to, from) = channel();
            // A port that has ended has no counters.
            let _ = orders.send(Order::Count(to));
            from.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
        });
        let jobs = self.doors.iter().map(|door| JobStatus {
            number: door.job.number,
            joined: door.session.as_ref().map_or(0, |session| session.members.len()),
            workers: door.session.as_ref().map_or(0, |session| session.join.workers),
            sessions: door.sessions,
            refused: door.refused,
            slots_max: self.share(door).slots_max * u32::from(self.config.ports),
        });
        let jobs = jobs.collect();
        SwitchStatus { system: self.config.system.name(), slots: self.config.slots, jobs, ports: ports.collect() }
    }

    fn heed(&mut self, at: usize, completion: Completion) -> Result<(), GroupError> {
        let door = &mut self.doors[at];
        match completion {
            Completion::Accepted { connection, from } => {
                let SocketAddr::V6(from) = from else { return Ok(()) };
                let inbox = door.node.register(vec![0; BYTES]);
                door.node.recv(connection, inbox, 0..BYTES)?;
                door.callers.insert(connection, Caller { host: *from.ip(), inbox, answer: None, worker: None });
            }
            Completion::Received { connection, .. } => {
                let Some(caller) = door.callers.get(&connection) else { return Ok(()) };
                let message = Message::decode(door.node.memory(caller.inbox)?);
                let answer = match message {
                    Some(Message::Join(join)) => self.admit(at, connection, join)?,
                    _ => Err(Refusal::Version),
                };
                let door = &mut self.doors[at];
                let answer = match answer {
                    Ok(welcome) => Message::Welcome(Box::new(welcome)),
                    Err(reason) => {
                        door.refused += 1;
                        self.events.push(SwitchEvent::Refused { job: door.job.number, reason });
                        Message::Refused(reason)
                    }
                };
                let out = door.node.register(answer.encode());
                if let Some(caller) = door.callers.get_mut(&connection) {
                    caller.answer = Some(out);
                }
                // The caller may have gone.
                let _ = door.node.send(connection, out, 0..BYTES);
            }
            Completion::Sent { .. } => {}
            Completion::Closed { connection, .. } => self.leave(at, connection),
            _ => {}
        }
        Ok(())
    }

    fn share(&self, door: &Door) -> Share {
        let slots = self.config.slots / u32::from(self.config.ports);
        let own = SwitchMlProgram::share(slots, self.config.jobs.len() as u32);
        let slots_max = match self.config.system {
            System::SwitchMl { .. } => 2 * own,
            _ => ((f64::from(slots) * door.job.share) as u32).clamp(1, slots),
        };
        Share { slots_max, first: door.place * 2 * own }
    }

    /// Admits a worker to its job's session, or begins a session with it.
    fn admit(&mut self, at: usize, connection: Connection, join: Join) -> Result<Result<Welcome, Refusal>, GroupError> {
        let ports = u32::from(self.config.ports);
        let slots = self.config.slots / ports;
        let share = self.share(&self.doors[at]);
        let most = match self.config.system {
            // Each port has slots only for its own keys.
            System::SwitchMl { .. } => share.slots_max / 2,
            _ => slots,
        };
        let door = &mut self.doors[at];
        if join.workers == 0 || join.workers > 32 || join.worker >= join.workers {
            return Ok(Err(Refusal::TooLarge));
        }
        if join.lanes == 0 || join.lanes > self.config.lanes {
            return Ok(Err(Refusal::TooLarge));
        }
        if let Some(session) = &door.session {
            let alike = |a: &Join, b: &Join| (a.workers, a.lanes, a.window) == (b.workers, b.lanes, b.window);
            match (session.join.token == join.token, session.join.epoch.cmp(&join.epoch)) {
                (true, std::cmp::Ordering::Greater) => return Ok(Err(Refusal::Late)),
                (true, std::cmp::Ordering::Equal) if !alike(&session.join, &join) => {
                    return Ok(Err(Refusal::Differs));
                }
                (true, std::cmp::Ordering::Equal) => {}
                (false, _) => return Ok(Err(Refusal::Busy)),
                (true, std::cmp::Ordering::Less) => self.end_session(at),
            }
        }
        let number = self.doors[at].job.number;
        // Keys use ports in turn, and so do the entries of the list of slots.
        let window = terms::window(join.window, most, ports);
        let terms = Terms { number, workers: join.workers, lanes: join.lanes, window, slots, ports };
        let door = &mut self.doors[at];
        if door.session.is_none() {
            let down = random_secret()?;
            let job = terms.job().map_err(|error| GroupError::Config(format!("job {number} {error}")))?;
            debug_assert_eq!(job.server(), SERVER, "the server's host number");
            for orders in &self.orders {
                let _ = orders.send(Order::Admit { job: Arc::clone(&job), share, down });
            }
            door.session = Some(Session { join, window, down, members: BTreeMap::new() });
            door.sessions += 1;
            self.events.push(SwitchEvent::Began { job: number, workers: join.workers });
        }
        let (Some(session), Some(caller)) = (&mut door.session, door.callers.get_mut(&connection)) else {
            return Ok(Err(Refusal::Late));
        };
        let up = random_secret()?;
        caller.worker = Some(join.worker);
        session.members.insert(join.worker, connection);
        for orders in &self.orders {
            let _ = orders.send(Order::Member { job: number, worker: join.worker, up, address: caller.host });
        }
        Ok(Ok(Welcome {
            system: terms::system_number(self.config.system),
            job: number,
            lanes: join.lanes,
            window: session.window,
            slots,
            up,
            down: session.down,
            ports: self.ports.clone(),
        }))
    }

    /// A connection has ended. A session that has lost a worker ends, and the connections of the other workers are closed.
    fn leave(&mut self, at: usize, connection: Connection) {
        let door = &mut self.doors[at];
        let Some(caller) = door.callers.remove(&connection) else { return };
        door.forget(&caller);
        let left = caller
            .worker
            .zip(door.session.as_ref())
            .is_some_and(|(worker, session)| session.members.get(&worker) == Some(&connection));
        if left {
            self.end_session(at);
        }
    }

    fn end_session(&mut self, at: usize) {
        let door = &mut self.doors[at];
        let Some(session) = door.session.take() else { return };
        for connection in session.members.values() {
            if let Some(caller) = door.callers.remove(connection) {
                let _ = door.node.close(*connection);
                door.forget(&caller);
            }
        }
        for orders in &self.orders {
            let _ = orders.send(Order::Dismiss { job: door.job.number });
        }
        self.events.push(SwitchEvent::Ended { job: door.job.number });
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of a port was printed on standard error.
            let _ = thread.join();
        }
    }
}
