//! `[[service]]`: inference of a model. This file reads the keys; `service/place.rs` puts replicas on servers,
//! `service/requests.rs` makes the requests, and `service/model.rs` knows the models.

mod model;
mod place;
mod requests;
mod times;
mod updates;

use super::job::GPUS;
use crate::reader::Section;
use crate::scenario::Scenario;
use requests::Source;
use strandway_proto::units::{Bytes, Span};
use strandway_serving::Model;
use strandway_serving::plan::{Slo, Transfer};
use strandway_serving::router::Policy;
use strandway_serving::timing::{Gpu, Table};
pub(crate) use updates::Update;

/// Limit on the replicas of a pool: ours.
const REPLICAS_MAX: u64 = 4096;

/// A pool of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    replicas: u32,
    tp: u32,
    pp: u32,
    /// GPUs among which a layer's experts are spread; 0 if the scenario does not say it.
    ep: u32,
}

impl Pool {
    /// GPUs of a stage.
    fn stage(&self) -> u32 {
        self.tp.max(self.ep)
    }

    /// GPUs of a replica.
    fn gpus(&self) -> u32 {
        self.stage() * self.pp
    }
}

/// How tokens choose among experts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Skew {
    Uniform,
    /// The `k`-th most popular expert of a layer gets `1 / k` of what the first one gets.
    Zipf,
    /// One expert of each layer gets this share of all visits.
    Hot(f64),
}

/// A service as the scenario describes it.
#[derive(Clone, Debug)]
pub(crate) struct ServiceKeys {
    model: Model,
    label: &'static str,
    gpu: Gpu,
    /// Bytes of a GPU for weights and caches.
    memory: f64,
    weight_bits: u32,
    kv_bits: u32,
    overhead: Span,
    times: Option<Table>,
    prefill: Pool,
    decode: Pool,
    budget: u32,
    batch: u32,
    chunked: bool,
    block: u32,
    kv_tokens: Option<u64>,
    policy: Policy,
    transfer: Transfer,
    kv_nics: Option<u32>,
    skew: Skew,
    source: Source,
    slo: Slo,
    spread: bool,
    sample: Option<Span>,
    update: Option<Update>,
}

/// Memory of GPUs in GB (data sheets), in the order of [`GPUS`].
const MEMORY: [f64; 6] = [80.0, 80.0, 141.0, 192.0, 192.0, 192.0];

/// Reads the keys of a service.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<ServiceKeys> {
    let before = section.sink.count();
    let count = |key: &'static str, low: u64, most: u64, default: u32| {
        section.count(key, low, most).map_or(default, |n| n as u32)
    };
    let (label, model) = model::read(section);
    let names: Vec<&'static str> = GPUS.iter().map(|(name, ..)| *name).collect();
    let gpu = section.choice("gpu", &names).unwrap_or("h100");
    let at = names.iter().position(|name| *name == gpu).unwrap_or(1);
    let peak = 1e12 * section.ratio("tflops", 1e-3, 1e9).unwrap_or(GPUS[at].1);
    let bandwidth = match section.bytes("memory_rate") {
        Some(bytes) => bytes.0 as f64,
        None => GPUS[at].2 * 1e12,
    };
    let efficiency = section.ratio("efficiency", 1e-3, 1.0).unwrap_or(0.5);
    let memory_efficiency = section.ratio("memory_efficiency", 1e-3, 1.0).unwrap_or(0.8);
    let memory = section.bytes("memory").map_or(MEMORY[at] * 1e9, |Bytes(bytes)| bytes as f64);
    let share = section.ratio("memory_share", 0.01, 1.0).unwrap_or(0.9);
    let gpu = Gpu { flops: peak * efficiency, memory: bandwidth * memory_efficiency };
    let weights = if label == "deepseek-v3" { 8 } else { 16 };
    let bits = |key: &'static str, default: u32| match section.count(key, 4, 32) {
        Some(bits) if ![4, 8, 16, 32].contains(&bits) => {
            section.wrong(key, "is no width of numbers on GPUs", "write 4, 8, 16 or 32");
            default
        }
        bits => bits.map_or(default, |bits| bits as u32),
    };
    let (weight_bits, kv_bits) = (bits("weight_bits", weights), bits("kv_bits", 16).max(8));
    let (prefill, decode) = pools(section, scenario, &model);
    let policy = match section.choice("route", &["load", "prefix", "round-robin"]) {
        Some("prefix") => Policy::Prefix,
        Some("round-robin") => Policy::RoundRobin,
        _ => Policy::Load,
    };
    let layered = section.choice("transfer", &["layers", "end"]) != Some("end");
    let messages = section.count("messages", 1, 1024);
    if messages.is_some() && !layered {
        section.wrong("messages", "has a meaning with transfer = \"layers\" only", "leave it out");
    }
    let groups = messages.map_or(8, |n| n as u32).min(model.layers);
    let transfer = Transfer { pull: section.flag("pull").unwrap_or(false), groups: if layered { groups } else { 0 } };
    let skew = match section.choice("skew", &["uniform", "zipf", "hot"]) {
        Some("zipf") => Skew::Zipf,
        Some("hot") => Skew::Hot(section.ratio("hot", 1e-3, 1.0).unwrap_or(0.1)),
        _ => Skew::Uniform,
    };
    if section.has("hot") && !matches!(skew, Skew::Hot(_)) {
        section.wrong("hot", "is the share of one expert", "write skew = \"hot\", or leave it out");
    }
    let slo = Slo {
        ttft: section.span("slo_ttft").unwrap_or(Span::from_ms(2000)),
        tbt: section.span("slo_tbt").unwrap_or(Span::from_ms(100)),
    };
    let written = ServiceKeys {
        model,
        label,
        gpu,
        memory: memory * share,
        weight_bits,
        kv_bits,
        overhead: section.span("overhead").unwrap_or(Span::ZERO),
        times: times::read(section, scenario, decode.replicas > 0),
        prefill,
        decode,
        budget: count("budget", 1, 1 << 24, 8192),
        batch: count("batch", 1, 1 << 20, 256),
        chunked: section.flag("chunked").unwrap_or(true),
        block: count("block", 1, 1 << 20, 512),
        kv_tokens: section.count("kv_tokens", 1, 1 << 40),
        policy,
        transfer,
        kv_nics: section.count("kv_nics", 1, 1024).map(|n| n as u32),
        skew,
        slo,
        spread: section.choice("placement", &["packed", "spread"]) == Some("spread"),
        sample: section.span("sample"),
        update: updates::read(section),
        source: requests::read(section, scenario)?,
    };
    (section.sink.count() == before).then_some(written)
}

/// Reads the sizes of both pools.
fn pools(section: &Section<'_>, scenario: &Scenario, model: &Model) -> (Pool, Pool) {
    let of_server = scenario.value("servers.gpus").and_then(|gpus| gpus.as_integer());
    let whole = match (of_server, scenario.table.contains_key("servers")) {
        (Some(gpus), _) => gpus.clamp(1, 1024) as u32,
        (None, true) => 8,
        (None, false) => 1,
    };
    let degree = |key: &'static str, all: Option<u64>, default: u32| {
        section.count(key, 1, 1024).or(all).map_or(default, |n| n as u32)
    };
    let [tp, pp, ep] = ["tp", "pp", "ep"].map(|key| section.count(key, 1, 1024));
    let replicas = |key: &'static str, low: u64| section.count(key, low, REPLICAS_MAX).map_or(1, |n| n as u32);
    let wish = section.count("prefill_tp", 1, 1024).or(tp).map_or(whole, |n| n as u32);
    let prefill = Pool {
        replicas: replicas("prefill", 1),
        tp: wish,
        pp: degree("prefill_pp", pp, 1),
        ep: degree("prefill_ep", ep, 0),
    };
    let decode = Pool {
        replicas: replicas("decode", 0),
        tp: degree("decode_tp", tp, whole),
        pp: degree("decode_pp", pp, 1),
        ep: degree("decode_ep", ep, 0),
    };
    // A degree of both pools is told once.
    let mut told = Vec::new();
    for (pool, name) in [(&prefill, "prefill"), (&decode, "decode")] {
        let key = |degree: &str| {
            let own = format!("{name}_{degree}");
            if section.has(&own) || !section.has(degree) { own } else { degree.to_string() }
        };
        let mut wrong = |degree: &str, value: u32, what: String, remedy: &str| {
            let path = section.path(&key(degree));
            if !told.contains(&path) {
                section.sink.add(&path, value, what, remedy);
                told.push(path);
            }
        };
        if !model.heads.is_multiple_of(pool.tp.into()) {
            wrong("tp", pool.tp, format!("does not divide the model's {} heads", model.heads), "write a divisor");
        }
        if !model.layers.is_multiple_of(pool.pp) {
            wrong("pp", pool.pp, format!("does not divide the model's {} layers", model.layers), "write a divisor");
        }
        let Some(experts) = model.experts else {
            if pool.ep > 0 {
                wrong("ep", pool.ep, "needs a model with experts".into(), "leave it out, or name such a model");
            }
            continue;
        };
        if pool.ep > 0 && (!pool.ep.is_multiple_of(pool.tp) || !experts.count.is_multiple_of(pool.ep.into())) {
            let what = format!("must be a multiple of tp = {} and divide the {} experts", pool.tp, experts.count);
            wrong("ep", pool.ep, what, "write such a number");
        }
    }
    (prefill, decode)
}

impl ServiceKeys {
    /// Bytes of a parameter.
    fn weight_bytes(&self) -> f64 {
        f64::from(self.weight_bits) / 8.0
    }

    /// Bytes of all weights.
    pub(crate) fn weights(&self) -> u64 {
        (self.model.parameters() as f64 * self.weight_bytes()) as u64
    }
}
