//! A service after all checks: its replicas on hosts, its requests, and how its traffic travels.

use crate::batch::{Limits, Role};
use crate::requests::{Arrivals, Request};
use crate::router::Policy;
use crate::timing::{ServerLinks, Shape, Timing};
use std::ops::Range;
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Rate, Span};

/// A replica of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    /// Its work.
    pub role: Role,
    /// Its GPUs.
    pub shape: Shape,
    /// The limits of its scheduler.
    pub limits: Limits,
    /// Its NICs by stage: places in [`Service::hosts`]. The first NIC of each stage is that of the process that leads
    /// the stage; the first stage's leads the replica.
    pub stages: Vec<Vec<u32>>,
    /// The NICs that KV caches use.
    pub lanes: Vec<u32>,
    /// The messages that the NICs of a stage exchange in each step; `None` if all communication stays in servers.
    pub exchange: Option<Exchange>,
}

impl Replica {
    /// The NIC of the process that leads the replica.
    pub fn leader(&self) -> u32 {
        self.stages[0][0]
    }
}

/// The messages between the servers of a stage in each layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// Layers of a stage.
    pub layers: u32,
    /// Tensor parallelism over servers: bytes of the activations of a token.
    pub reduce: Option<u64>,
    /// Experts on several servers.
    pub experts: Option<Dispatch>,
}

impl Exchange {
    /// The rounds of a step.
    pub fn rounds(&self) -> u32 {
        self.layers * self.per_layer()
    }

    /// The rounds of a layer.
    pub fn per_layer(&self) -> u32 {
        4 * u32::from(self.reduce.is_some()) + 2 * u32::from(self.experts.is_some())
    }

    /// The layer of a round, and its kind.
    pub fn kind(&self, round: u32) -> (u32, Round) {
        let (layer, at) = (round / self.per_layer(), round % self.per_layer());
        let order: &[Round] = match (self.reduce.is_some(), self.experts.is_some()) {
            (true, true) => {
                &[Round::Scatter, Round::Gather, Round::Dispatch, Round::Combine, Round::Scatter, Round::Gather]
            }
            (false, true) => &[Round::Dispatch, Round::Combine],
            _ => &[Round::Scatter, Round::Gather, Round::Scatter, Round::Gather],
        };
        (layer, order[at as usize])
    }
}

/// A round of messages among the NICs of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Parts of activations, which their receivers add.
    Scatter,
    /// The sums.
    Gather,
    /// Tokens to the GPUs of their experts.
    Dispatch,
    /// The results of the experts.
    Combine,
}

/// Tokens between GPUs of different experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// Experts that each token visits.
    pub top_k: u64,
    /// Bytes of a token on its way to an expert.
    pub there: u64,
    /// Bytes of a token on its way back.
    pub back: u64,
    /// By layer and NIC of the stage: the share of all visits in millionths. Layers repeat.
    pub shares: Vec<Vec<u32>>,
    /// The part of a layer's computation that experts need, in a thousandth.
    pub compute: u32,
}

/// How KV caches travel from prefill to decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// True: the decode replica reads. False: the prefill replica writes.
    pub pull: bool,
    /// The number of messages per chunk of a prompt and NIC, each with the same number of layers, as soon as these are
    /// computed; 0: one message per NIC when the prompt is computed.
    pub groups: u32,
}

/// Bounds on the times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// Time to first token.
    pub ttft: Span,
    /// Mean time between tokens.
    pub tbt: Span,
}

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its hosts: NICs of servers.
    pub hosts: Vec<HostId>,
    /// The server of each host.
    pub servers: Vec<u32>,
    /// Its replicas: those of prefill (or of both), then those of decode.
    pub replicas: Vec<Replica>,
    /// The number of replicas that compute prompts.
    pub prefill: u32,
    /// How long they compute.
    pub timing: Timing,
    /// Bytes of KV cache per token.
    pub kv_bytes: u64,
    /// Bytes of the activations of a token.
    pub activation: u64,
    /// Links inside servers. Their latency is at least the shortest latency of the fabric's links.
    pub inside: ServerLinks,
    /// How KV caches travel.
    pub transfer: Transfer,
    /// The rule of the router.
    pub policy: Policy,
    /// The place of the router's host.
    pub router: u32,
    /// The requests.
    pub requests: Vec<Request>,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// The bounds that requests should meet.
    pub slo: Slo,
    /// Interval between the points of the series of queues and memory.
    pub sample: Span,
    /// Message numbers: `width` for each of [`Class::COUNT`] classes, from `first_message` on.
    pub first_message: u32,
    /// See [`Service::first_message`].
    pub width: u32,
    /// The first of its numbers of channels.
    pub first_channel: u32,
    /// The profile of its connections.
    pub profile: u16,
    /// Connections between two hosts, which messages use in turn.
    pub connections: u32,
    /// The order of its signals between hosts of a server.
    pub order: u32,
}

/// A class of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Requests, and what processes tell each other.
    Control,
    /// KV caches.
    Cache,
    /// Between the GPUs of a stage.
    Exchange,
    /// Between stages.
    Stage,
}

impl Class {
    /// The number of classes.
    pub const COUNT: u32 = 4;

    /// All classes, in the order of their numbers, with their names.
    pub const ALL: [(Class, &'static str); 4] =
        [(Class::Control, "control"), (Class::Cache, "kv"), (Class::Exchange, "exchange"), (Class::Stage, "stage")];
}

/// Bytes of a message with which processes coordinate: ours.
pub const CONTROL_BYTES: u64 = 64;

impl Service {
    /// The message numbers of a class.
    pub fn numbers(&self, class: Class) -> Range<u32> {
        let first = self.first_message + class as u32 * self.width;
        first..first + self.width
    }

    /// All message numbers.
    pub fn all_numbers(&self) -> Range<u32> {
        self.first_message..self.first_message + Class::COUNT * self.width
    }

    /// The place of a host among those of the service.
    pub fn place_of(&self, host: HostId) -> Option<u32> {
        self.hosts.binary_search(&host).ok().map(|at| at as u32)
    }

    /// The lanes of a KV cache from one replica to another: the places of both NICs.
    pub fn lanes(&self, prefill: u32, decode: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (from, to) = (&self.replicas[prefill as usize].lanes, &self.replicas[decode as usize].lanes);
        let lanes = from.len().max(to.len());
        (0..lanes).map(move |lane| (from[lane * from.len() / lanes], to[lane * to.len() / lanes]))
    }

    /// The most lanes of a KV cache that share one NIC, if these NICs have one between them.
    pub fn lanes_per_nic(&self, from: u32, to: u32) -> u64 {
        let lanes = |nic: u32| {
            let mine = self.replicas.iter().find(|replica| replica.stages.iter().any(|stage| stage.contains(&nic)));
            mine.map_or(1, |replica| replica.lanes.len() as u64)
        };
        let (from, to) = (lanes(from), lanes(to));
        from.max(to).div_ceil(from.min(to).max(1))
    }

    /// The bytes of one of `parts` equal parts.
    pub fn part(bytes: u64, parts: u64, at: u64) -> u64 {
        bytes / parts + u64::from(at < bytes % parts)
    }

    /// The time of `bytes` bytes of a GPU inside a server.
    pub fn inside(&self, bytes: u64) -> Span {
        self.inside.rate.time_for(Bytes(bytes)) + self.inside.latency
    }

    /// GPUs of all replicas.
    pub fn gpus(&self) -> u32 {
        self.replicas.iter().map(|replica| replica.shape.gpus * replica.shape.stages).sum()
    }

    /// The bytes of the longest message under way at a time per NIC rate, for lower bounds: the KV cache of a request.
    pub fn cache_time(&self, input: u32, rate: Rate, lanes: u64) -> Span {
        rate.time_for(Bytes((u64::from(input) * self.kv_bytes).div_ceil(lanes.max(1))))
    }
}
