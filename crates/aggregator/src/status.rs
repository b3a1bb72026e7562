//! The events and counters of a switch.

use crate::port::PortStatus;
use strandway_group::aggregation::message::Refusal;

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
