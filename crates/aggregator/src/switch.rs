//! The switch as a process. It has an admission address for each job, where its workers join, and a thread for each
//! port, which adds.
//!
//! A [`Node`] with the job's key listens at each admission address, so only workers with the key get in. Each worker
//! gets its own secret for its fragments. When a worker's connection ends, its session ends. The thread that calls
//! [`Switch::turn`] serves the admission addresses.
//!
//! A switch with a parent is a rack: it adds up its own workers, and the parent adds up the sums of racks.

use crate::admission::{JobAdmission, Setup};
use crate::port::{AggregatorPort, Order, PortStatus};
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use strandway_group::GroupError;
use strandway_group::aggregation::message::{PORTS_MAX, Refusal};
use strandway_group::aggregation::terms::{self, SLOTS_MAX};
use strandway_proto::units::Span;
use strandway_switch::System;
use strandway_udp::Node;
use strandway_udp::address::kept;
use strandway_udp::fragments::{FragmentSocket, LANES_MAX};

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
    /// Its address. The admission address of job `n` has this port plus `n`; the ports of fragments follow from this
    /// port plus [`SwitchConfig::FRAGMENTS`] on. Port 0 takes any free ones.
    pub address: SocketAddrV6,
    /// The system that it runs.
    pub system: System,
    /// Slots of all ports together. SwitchML counts both versions of each.
    pub slots: u32,
    /// The most elements of a fragment, at most 256. A slot has 4 bytes for each element.
    pub elements: u16,
    /// Ports; each has a thread and an equal part of the slots, and keys use them in turn. At most 16.
    pub ports: u16,
    /// The jobs.
    pub jobs: Vec<JobConfig>,
    /// Do switches with this one as their parent join as racks? Then a session begins when all workers have joined.
    pub racks: bool,
    /// The address of the switch that adds the sums of racks; the admission address of job `n` has its port plus `n`,
    /// and the same key. The parent must have the same system, slots and ports.
    pub parent: Option<SocketAddrV6>,
    /// Are the jobs' parameter servers processes of their own ([`ParameterServer`](crate::ParameterServer))? Then a
    /// session begins only if its server has joined.
    pub server_apart: bool,
    /// A round trip between a worker and the switch, including the time for which either side sleeps. Default 2 ms: a
    /// slice of the scheduler.
    pub rtt: Span,
    /// A peer that is silent for this time counts as gone. Default 1 s.
    pub silence: Duration,
    /// Bytes of a port's socket buffers. Default 8 MiB.
    pub socket_buffer: usize,
    /// The share of arriving fragments that is dropped, for tests and experiments. Default 0.
    pub loss: f64,
}

impl SwitchConfig {
    /// The distance from the switch's port to the first port of fragments.
    pub const FRAGMENTS: u16 = 1_000;

    /// Defaults: 4,096 slots of 256 elements, one port, no job.
    pub fn new(address: SocketAddrV6, system: System) -> SwitchConfig {
        SwitchConfig {
            address,
            system,
            slots: 4_096,
            elements: LANES_MAX,
            ports: 1,
            jobs: Vec::new(),
            racks: false,
            parent: None,
            server_apart: false,
            rtt: terms::RTT,
            silence: terms::GONE,
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
        if !(1..=LANES_MAX).contains(&self.elements) {
            return wrong(format!("{} elements in a fragment (lanes): take 1 to {LANES_MAX}", self.elements));
        }
        if !(1..=PORTS_MAX).contains(&usize::from(self.ports)) {
            return wrong(format!("{} ports: take 1 to {PORTS_MAX}", self.ports));
        }
        let least = 2 * u32::from(self.ports) * self.jobs.len() as u32;
        if !(least..=SLOTS_MAX).contains(&self.slots) {
            return wrong(format!("{} slots: take {least} (two for each job and port) to {SLOTS_MAX}", self.slots));
        }
        if self.racks && self.parent.is_some() {
            return wrong("a switch that takes racks has no parent: there are two levels".into());
        }
        if self.server_apart && (self.parent.is_some() || matches!(self.system, System::SwitchMl { .. })) {
            return wrong(
                "parameter servers apart: SwitchML has none, and those of a switch with a parent are the parent's"
                    .into(),
            );
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

/// An event at an admission address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchEvent {
    /// A session of a job has begun.
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

/// The state of a job at its admission address.
#[derive(Clone, Debug)]
pub struct JobStatus {
    /// Its number.
    pub number: u16,
    /// Workers that have joined the session.
    pub joined: usize,
    /// The number of the session's workers; 0 if there is none.
    pub workers: u16,
    /// The number of the session's racks; 0 if there is none, or if it has not begun.
    pub racks: u16,
    /// Is there a parameter server in a process of its own?
    pub server: bool,
    /// Sessions so far.
    pub sessions: u64,
    /// Workers that were refused.
    pub refused: u64,
    /// The most slots that it may hold, all ports together.
    pub slots_max: u32,
}

/// A running switch.
pub struct Switch {
    pub(crate) setup: Setup,
    pub(crate) admissions: Vec<JobAdmission>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Switch {
    /// Opens admission addresses and ports and starts a thread for each port.
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
        let mut admissions = Vec::new();
        for (place, job) in (0..).zip(&config.jobs) {
            let node = Node::bind(terms::admission(&job.key, at(job.number)?, config.silence)?)?;
            admissions.push(JobAdmission::new(job.clone(), place, node));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut ports, mut orders, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        let slots = config.slots / u32::from(config.ports);
        for number in 0..config.ports {
            let mut socket = FragmentSocket::open(
                at(SwitchConfig::FRAGMENTS + number)?,
                config.socket_buffer,
                config.socket_buffer,
            )?;
            socket.lose(config.loss, u64::from(number) + 1);
            ports.push(socket.address()?.port());
            let (sender, receiver) = channel();
            orders.push(sender);
            let port = AggregatorPort::new(number, config.system, slots, config.elements, config.rtt, socket, receiver);
            let stop = Arc::clone(&stop);
            threads.push(std::thread::spawn(move || port.run(&stop)));
        }
        Ok(Switch { setup: Setup { config, ports, orders }, admissions, threads, stop })
    }

    /// The address where workers of a job join; workers need it to start.
    ///
    /// # Errors
    /// If there is no such job, or the system cannot report the address.
    pub fn admission(&self, job: u16) -> Result<SocketAddrV6, GroupError> {
        let admission = self.admissions.iter().find(|admission| admission.number() == job);
        let admission =
            admission.ok_or_else(|| GroupError::Config(format!("job {job}: the switch has no such job")))?;
        let address = admission.node.addresses()?.first().copied().map(kept);
        address.ok_or_else(|| GroupError::Config(format!("job {job} has no admission address")))
    }

    /// The UDP ports of fragments.
    pub fn ports(&self) -> &[u16] {
        &self.setup.ports
    }

    /// Serves the admission addresses once, for at most `at_most`; returns their events.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn turn(&mut self, at_most: Duration) -> Result<Vec<SwitchEvent>, GroupError> {
        let each = at_most / self.admissions.len() as u32;
        let mut events = Vec::new();
        for admission in &mut self.admissions {
            events.append(&mut admission.turn(&self.setup, each)?);
        }
        Ok(events)
    }

    /// The counters so far. Ports answer within some milliseconds.
    pub fn status(&self) -> SwitchStatus {
        let ports = self.setup.orders.iter().map(|orders| {
            let (to, from) = channel();
            // A port that has ended has no counters.
            let _ = orders.send(Order::Count(to));
            from.recv_timeout(Duration::from_secs(1)).unwrap_or_default()
        });
        let jobs = self.admissions.iter().map(|admission| admission.status(&self.setup)).collect();
        let config = &self.setup.config;
        SwitchStatus { system: config.system.name(), slots: config.slots, jobs, ports: ports.collect() }
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
