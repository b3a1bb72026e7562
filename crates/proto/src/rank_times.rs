//! How a training job's rank spent its time: a report of the job's program for a world that measures.

use crate::units::{Span, Time};

/// One rank of a job. All times are the world's time, simulated or real.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTimes {
    /// The job's number in the run.
    pub job: u32,
    /// The rank in the job.
    pub rank: u32,
    /// When the rank began; [`None`] if it has not.
    pub begun: Option<Time>,
    /// When each iteration ended, in order.
    pub iterations: Vec<Time>,
    /// The time that it has computed. In a graph this includes computation on other lanes, such as CPUs, while its
    /// compute stream waited for that.
    pub computed: Span,
    /// The time that its compute stream has waited for operations of each kind, by the kind's place in the job's list.
    /// Computing and waiting add up to the time from the beginning to the end of the last iteration.
    pub waited: Vec<Span>,
    /// When each step of its script began and ended, in the order in which they began; empty unless the job keeps them.
    pub steps: Vec<StepTimes>,
}

/// One step of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Its place in the script.
    pub step: u32,
    /// When it began.
    pub begun: Time,
    /// When it ended; [`Time::NEVER`] if it has not.
    pub ended: Time,
}
