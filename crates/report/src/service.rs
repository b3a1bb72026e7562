//! Inference services: times of requests, what the slowest ones waited for, and the load of replicas.

use crate::flows::Spread;
use crate::grid::{ALWAYS, Grid};
use crate::numbers::{bytes, count, percent, us};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Column heads of the table of requests.
pub(crate) const HEAD: [&str; 7] = ["requests", "mean", "p50", "p90", "p99", "p99.9", "max"];

/// Column heads of the table of what the slowest requests waited for.
pub(crate) const PARTS_HEAD: [&str; 3] = ["time to first token, slowest 1 %", "mean", "share"];

/// A service.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceFacts {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Requests that got all their tokens.
    pub ended: u64,
    /// GPUs of all replicas.
    pub gpus: u32,
    /// Time to first token: from a request's arrival at the router to its first token.
    pub ttft_us: Spread,
    /// Time between two tokens of a request, all tokens together; percentiles are at most 0.4 % off.
    pub tbt_us: Spread,
    /// Mean time between the tokens of a request, by request.
    pub tpot_us: Spread,
    /// End to end: from a request's arrival to its last token.
    pub whole_us: Spread,
    /// From a request's arrival until its prompt is computed.
    pub computed_us: Spread,
    /// From the end of the computation of a prompt until its KV cache has arrived.
    pub transfer_us: Spread,
    /// The same times on a network that is a formula: each message takes its time alone in the fabric. Absent if the
    /// run did not end.
    pub formula: FormulaFacts,
    /// Bounds of answers, and the requests that keep them.
    #[serde(flatten)]
    pub slo: SloFacts,
    /// Requests per second.
    pub requests_per_s: Option<f64>,
    /// Tokens that requests got, per second and GPU.
    pub tokens_per_s_gpu: Option<f64>,
    /// The share of prompt tokens that prefill replicas had in their caches.
    pub cached_share: Option<f64>,
    /// Bytes of KV caches that were sent.
    pub kv_bytes: u64,
    /// From the beginning of a weight update until all replicas had the weights; absent without one, and if it did not
    /// end.
    pub update_us: Option<f64>,
    /// The parts of the slowest requests' time to first token: the mean over the slowest percent. The shares add
    /// up to 1.
    pub parts: Vec<ServicePart>,
    /// Time of the messages of these requests' KV caches by cause, as shares that add up to 1: `line`, queues
    /// (`collision`, `slow_link`, `incast`, `fabric`), `window`, `recovery`, `timeout`, `paused`, `propagation`; absent
    /// without accounts (`run.why`), and if they sent nothing.
    pub shares: BTreeMap<String, Option<f64>>,
    /// The link at which their packets waited, if one stands out.
    pub link: Option<String>,
    /// The parts of the slowest requests' time to first token, and the causes of their transfers, in words.
    pub why: String,
    /// Completion times of messages by class.
    pub messages: Vec<MessageFacts>,
    /// The load of each replica.
    pub replicas: Vec<ReplicaFacts>,
    /// Its requests one by one; only if the scenario asks for rows (`run.rows`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RequestRow>,
}

/// Bounds of answers, and the requests that keep them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SloFacts {
    /// The bounds of the service: time to first token, and mean time between tokens of a request.
    pub slo_ttft_us: f64,
    /// See [`SloFacts::slo_ttft_us`].
    pub slo_tbt_us: f64,
    /// The share of requests that met both bounds.
    pub slo_share: Option<f64>,
    /// Requests per second that met both bounds, from the first arrival to the last token.
    pub goodput_per_s: Option<f64>,
}

/// Times of requests on a network that is a formula.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FormulaFacts {
    /// Time to first token.
    pub ttft_us: Spread,
    /// Time between two tokens, all tokens together.
    pub tbt_us: Spread,
    /// End to end.
    pub whole_us: Spread,
    /// From the end of the computation of a prompt until its KV cache has arrived.
    pub transfer_us: Spread,
    /// The share of requests that met both bounds.
    pub slo_share: Option<f64>,
}

/// A part of the time to first token.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServicePart {
    /// `routing`, `prefill_queue`, `prefill`, `decode_memory`, `transfer`, `decode_queue` or `first_step`.
    pub name: String,
    /// Mean time.
    pub us: Option<f64>,
    /// The share of the time to first token.
    pub share: Option<f64>,
}

/// Messages of one class.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageFacts {
    /// `control`, `kv`, `exchange` or `stage`.
    pub name: String,
    /// Messages that were posted.
    pub posted: u64,
    /// Messages that were acknowledged.
    pub finished: u64,
    /// From posting until the last acknowledgement reached the sender.
    pub time_us: Spread,
}

/// The load of a replica.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplicaFacts {
    /// `prefill-0`, `decode-1`, or `replica-0` if replicas do both.
    pub name: String,
    /// GPUs.
    pub gpus: u32,
    /// The largest number of requests that waited.
    pub waiting_max: u32,
    /// The largest number of requests in its batch.
    pub running_max: u32,
    /// The largest share of its KV cache that requests held.
    pub held_max: f64,
    /// When the points of the series were taken, in us.
    pub at_us: Vec<f64>,
    /// Requests that waited then.
    pub waiting: Vec<u32>,
    /// Requests in the batch then.
    pub running: Vec<u32>,
    /// The share of the KV cache that requests held then.
    pub held: Vec<f64>,
}

/// One request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestRow {
    /// Its number in the service.
    pub request: u32,
    /// Tokens of its prompt.
    pub input: u32,
    /// Tokens that it was to get.
    pub output: u32,
    /// Tokens of its prompt that were in the prefill replica's cache.
    pub cached: u32,
    /// The replica of its prompt.
    pub prefill: u32,
    /// The replica of its tokens, if there is a decode pool.
    pub decode: Option<u32>,
    /// When it arrived at the router.
    pub arrived_us: f64,
    /// When its prompt began to be computed.
    pub begun_us: Option<f64>,
    /// When its prompt was computed.
    pub computed_us: Option<f64>,
    /// When the decode replica had memory for it.
    pub reserved_us: Option<f64>,
    /// When its KV cache had arrived.
    pub transferred_us: Option<f64>,
    /// When its first step in the decode pool began.
    pub joined_us: Option<f64>,
    /// When it had its first token.
    pub first_us: Option<f64>,
    /// When it had all its tokens.
    pub ended_us: Option<f64>,
    /// The longest time between two of its tokens.
    pub gap_max_us: f64,
    /// Bytes of its KV cache that were sent.
    pub kv_bytes: u64,
}

impl ServicePart {
    /// Its name in tables.
    pub fn summary(&self) -> &'static str {
        match self.name.as_str() {
            "routing" => "on the way to the replica",
            "prefill_queue" => "waiting for a prefill slot",
            "prefill" => "computing the prompt",
            "decode_memory" => "waiting for decode memory",
            "transfer" => "KV transfer",
            "decode_queue" => "waiting for a decode slot",
            _ => "first decode step",
        }
    }
}

/// Names and spreads of the rows of the table of requests.
pub(crate) fn spreads(service: &ServiceFacts) -> Vec<(String, &Spread)> {
    let name = &service.name;
    let formula = &service.formula;
    let mut all = vec![
        (format!("{name}: time to first token"), &service.ttft_us),
        ("  by formula".to_string(), &formula.ttft_us),
        (format!("{name}: time between tokens"), &service.tbt_us),
        ("  by formula".to_string(), &formula.tbt_us),
        (format!("{name}: end to end"), &service.whole_us),
        ("  by formula".to_string(), &formula.whole_us),
    ];
    if service.kv_bytes > 0 {
        all.push((format!("{name}: prompt computed to KV cache there"), &service.transfer_us));
        all.push(("  by formula".to_string(), &formula.transfer_us));
    }
    all
}

/// The rows of the table of requests.
pub(crate) fn rows(service: &ServiceFacts) -> Vec<[String; 7]> {
    let row = |(name, s): (String, &Spread)| {
        let [mean, p50, p90, p99, p999, max] = [s.mean, s.p50, s.p90, s.p99, s.p999, s.max].map(us);
        [name, mean, p50, p90, p99, p999, max]
    };
    spreads(service).into_iter().map(row).collect()
}

/// The rows of the table of parts.
pub(crate) fn part_rows(service: &ServiceFacts) -> Vec<[String; 3]> {
    let told = service.parts.iter().filter(|part| part.share.is_some_and(|share| share > 0.0));
    told.map(|part| {
        let share = part.share.map_or("–".to_string(), percent);
        [format!("{}: {}", service.name, part.summary()), us(part.us), share]
    })
    .collect()
}

/// Sentences about a service.
pub(crate) fn lines(service: &ServiceFacts) -> Vec<String> {
    let rate = |value: Option<f64>| value.map_or("–".to_string(), |value| format!("{value:.2}"));
    let share = |value: Option<f64>| value.map_or("–".to_string(), percent);
    let mut lines = vec![format!(
        "{}: {} of {} requests ended; {} met both bounds ({} to the first token, {} between tokens; by formula {}): goodput {} of {} requests/s; {} tokens/s per GPU on {} GPUs",
        service.name,
        count(service.ended),
        count(service.requests),
        share(service.slo.slo_share),
        us(Some(service.slo.slo_ttft_us)),
        us(Some(service.slo.slo_tbt_us)),
        share(service.formula.slo_share),
        rate(service.slo.goodput_per_s),
        rate(service.requests_per_s),
        service.tokens_per_s_gpu.map_or("–".to_string(), |value| format!("{value:.1}")),
        count(service.gpus.into()),
    )];
    let most = |of: fn(&ReplicaFacts) -> f64| service.replicas.iter().map(of).fold(0.0, f64::max);
    lines.push(format!(
        "{}: {} of KV caches sent, {} of prompt tokens found in prefix caches; at most {} requests waited at a replica, {} ran in its batch, and {} of its KV memory was held",
        service.name,
        bytes(service.kv_bytes),
        share(service.cached_share),
        count(most(|replica| replica.waiting_max.into()) as u64),
        count(most(|replica| replica.running_max.into()) as u64),
        percent(most(|replica| replica.held_max)),
    ));
    if let Some(time) = service.update_us {
        lines.push(format!("{}: new weights had reached all replicas after {}", service.name, us(Some(time))));
    }
    if !service.why.is_empty() {
        lines.push(service.why.clone());
    }
    lines
}

/// All services, as tables for a terminal of `width` characters.
pub(crate) fn table(services: &[ServiceFacts], width: Option<usize>) -> String {
    let (mut times, mut parts) = (Grid::default(), Grid::default());
    for (head, rank) in HEAD.iter().zip([ALWAYS, 2, 4, 3, ALWAYS, 5, 1]) {
        times.column(*head, rank, *head != HEAD[0]);
    }
    for head in PARTS_HEAD {
        parts.column(head, ALWAYS, head != PARTS_HEAD[0]);
    }
    let mut told = String::new();
    let mut any = false;
    for service in services {
        rows(service).into_iter().for_each(|row| times.row(row));
        for row in part_rows(service) {
            any = true;
            parts.row(row);
        }
        lines(service).iter().for_each(|line| told.push_str(&format!("{line}\n")));
    }
    format!("{}{}{told}", times.text(width), if any { parts.text(width) } else { String::new() })
}
