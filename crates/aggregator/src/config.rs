//! The settings of a switch, and the jobs that it serves.

use std::net::SocketAddrV6;
use std::time::Duration;
use strandway_group::GroupError;
use strandway_group::aggregation::message::PORTS_MAX;
use strandway_group::aggregation::terms::{self, SLOTS_MAX};
use strandway_proto::units::Span;
use strandway_switch::System;
use strandway_udp::fragments::{LANES, LANES_MAX};

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
    /// The most elements of a fragment, at most 2,048; more than 256 need an MTU above 1,500. Default 256. A slot has 4
    /// bytes for each element.
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
            elements: LANES,
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

    /// Checks all settings; the error names the setting and the valid values.
    pub(crate) fn check(&self) -> Result<(), GroupError> {
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
        if self.server_apart && (self.parent.is_some() || !self.system.has_server()) {
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
