//! Measurements of a service: the times of its requests, and the load of its replicas.

use crate::tally::{Histogram, Waited};
use strandway_proto::account::Spent;
use strandway_proto::units::{Span, Time};

/// The times of one request. [`Time::NEVER`]: it did not come so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// Tokens of its prompt.
    pub input: u32,
    /// Tokens that it was to get.
    pub output: u32,
    /// Tokens of its prompt that the prefill replica had in its cache.
    pub cached: u32,
    /// The replica that computed its prompt.
    pub prefill: u32,
    /// The replica that computed its tokens, if there is a decode pool.
    pub decode: Option<u32>,
    /// It arrived at the router.
    pub arrived: Time,
    /// It arrived at the prefill replica.
    pub queued: Time,
    /// The first step with a part of its prompt began.
    pub begun: Time,
    /// Its prompt was computed.
    pub computed: Time,
    /// The decode replica had memory for it.
    pub reserved: Time,
    /// Its KV cache had arrived there.
    pub transferred: Time,
    /// Its first step there began.
    pub joined: Time,
    /// It had its first token.
    pub first: Time,
    /// It had all its tokens.
    pub ended: Time,
    /// The longest time between two of its tokens.
    pub gap_max: Span,
    /// Bytes of its KV cache that were sent.
    pub cache_bytes: u64,
    /// Messages of its KV cache that arrived.
    pub messages: u32,
    /// Time of the connections that sent its KV cache by activity, summed over messages; zero without accounts.
    pub spent: Spent,
    /// Where the packets of these messages waited; likewise.
    pub waited: Waited,
}

impl RequestTimes {
    /// A request of which nothing has happened.
    pub fn new(input: u32, output: u32) -> RequestTimes {
        RequestTimes {
            input,
            output,
            cached: 0,
            prefill: 0,
            decode: None,
            arrived: Time::NEVER,
            queued: Time::NEVER,
            begun: Time::NEVER,
            computed: Time::NEVER,
            reserved: Time::NEVER,
            transferred: Time::NEVER,
            joined: Time::NEVER,
            first: Time::NEVER,
            ended: Time::NEVER,
            gap_max: Span::ZERO,
            cache_bytes: 0,
            messages: 0,
            spent: Spent::default(),
            waited: Waited::default(),
        }
    }

    /// The time between two of its times; `None` if one of them did not come.
    pub fn between(from: Time, to: Time) -> Option<Span> {
        (from != Time::NEVER && to != Time::NEVER).then(|| to.since(from))
    }

    /// Time to first token.
    pub fn ttft(&self) -> Option<Span> {
        RequestTimes::between(self.arrived, self.first)
    }

    /// Mean time between its tokens; zero for a single token.
    pub fn tbt(&self) -> Option<Span> {
        let all = RequestTimes::between(self.first, self.ended)?;
        Some(Span(all.0 / u64::from(self.output.saturating_sub(1)).max(1)))
    }

    /// Time from its arrival to its last token.
    pub fn whole(&self) -> Option<Span> {
        RequestTimes::between(self.arrived, self.ended)
    }
}

/// The load of a replica at the beginning of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadPoint {
    /// When.
    pub at: Time,
    /// Requests that wait for memory or for a place in the batch.
    pub waiting: u32,
    /// Requests in the batch.
    pub running: u32,
    /// Tokens of KV cache that requests hold.
    pub held: u64,
}

/// The measurements of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceTimes {
    /// By request.
    pub requests: Vec<RequestTimes>,
    /// By replica.
    pub load: Vec<Vec<LoadPoint>>,
    /// Times between tokens, all requests together.
    pub gaps: Histogram,
}
