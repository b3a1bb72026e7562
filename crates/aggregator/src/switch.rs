//! The switch as a process. It has an admission address for each job, where its workers join, and a thread for each
//! port, which adds.
//!
//! A [`Node`] with the job's key listens at each admission address, so only workers with the key get in. Each worker
//! gets its own secret for its fragments. When a worker's connection ends, its session ends. The thread that calls
//! [`Switch::turn`] serves the admission addresses.
//!
//! A switch with a parent is a rack: it adds up its own workers, and the parent adds up the sums of racks.

use crate::admission::{JobAdmission, Setup};
use crate::config::SwitchConfig;
use crate::port::{AggregatorPort, Order};
use crate::status::{SwitchEvent, SwitchStatus};
use crate::watching::snapshot;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use strandway_group::GroupError;
use strandway_group::aggregation::terms;
use strandway_udp::Node;
use strandway_udp::address::kept;
use strandway_udp::fragments::FragmentSocket;
use strandway_udp::watch::{self, Part};

/// A running switch.
pub struct Switch {
    pub(crate) setup: Setup,
    pub(crate) admissions: Vec<JobAdmission>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    /// Present if the process serves its figures.
    watching: Option<Part>,
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
        Ok(Switch {
            setup: Setup { config, ports, orders },
            admissions,
            threads,
            stop,
            watching: watch::enrol("switch")?,
        })
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
        if let Some(mut part) = self.watching.take_if(|part| part.is_due()) {
            part.publish(snapshot(&self.status()));
            self.watching = Some(part);
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
