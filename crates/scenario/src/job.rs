//! `[job]` or several `[[job]]`: training jobs, given by a model and its degrees of parallelism. This file reads the
//! keys. `job/steps.rs` makes the steps of each rank, and `job/place.rs` places ranks on servers.

mod choice;
mod dry_run;
mod gpus;
mod kinds;
pub(crate) mod model;
mod on_servers;
mod pipeline;
mod place;
mod recipes;
mod role;
mod source;
mod steps;
mod times;
mod traced;

use super::host_list::hosts_of;
use crate::reader::Section;
use crate::scenario::Scenario;
pub(super) use choice::Wish;
pub(crate) use gpus::GPUS;
use gpus::RANKS_MAX;
use model::Model;
pub(super) use on_servers::OnServers;
use pipeline::Pipeline;
use source::Source;
use std::sync::Arc;
use strandway_import::nccl_tuner::Tuner;
use strandway_import::simai::Workload;
use strandway_import::trace::Trace;
use strandway_proto::HostId;
use strandway_proto::units::Span;

/// The part of the forward pass that a backward pass computes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recompute {
    Nothing,
    /// The scores of attention.
    Scores,
    /// The whole forward pass.
    All,
}

/// The rule by which a job gets its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Placement {
    /// The first free ones.
    Packed,
    /// One server of each block in turn; a block is a leaf, or a group of leaves with a rail each.
    Spread,
    Random,
    /// The servers with these numbers; the text is the name of the file that lists them.
    List(Vec<u32>, String),
}

/// The degrees of parallelism: the ranks of a group of each kind.
#[derive(Clone, Copy, Debug)]
struct Degrees {
    tp: u32,
    cp: u32,
    pp: u32,
    dp: u32,
    ep: u32,
}

/// How fast GPUs compute.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Floating-point operations of a GPU per second: the peak, and the rate that is reached.
    peak: f64,
    reached: f64,
    /// Time of the forward pass of a layer for one micro-batch. It replaces the time that follows from the model.
    compute: Option<Span>,
    update: Span,
    /// Shares by which a rank computes longer, in a whole iteration and step by step.
    stragglers: f64,
    noise: f64,
}

/// A job as the scenario describes it.
#[derive(Clone, Debug)]
pub(crate) struct JobKeys {
    model: Model,
    /// In place of the model: one rank's layers, from a file.
    imported: Option<Arc<Workload>>,
    /// With a file: its layers that are there once per iteration, too.
    once: bool,
    /// In place of both: what each rank does.
    trace: Option<Arc<Trace>>,
    /// The name of its model in notes: `llama-70b`, `model`, or the name of the file.
    label: String,
    degrees: Degrees,
    zero: u32,
    micro_batches: u32,
    /// Sequences of a micro-batch.
    micro_batch: u64,
    schedule: Pipeline,
    chunks: u32,
    recompute: Recompute,
    buckets: Option<u32>,
    overlap: bool,
    prefetch: u32,
    imbalance: f64,
    pace: Pace,
    iterations: u32,
    /// Parts into which a ring divides a block.
    parts: u32,
    /// Limit on the transfers of an all-to-all under way at once.
    window: u32,
    /// Bytes of one gradient in messages. Parameters and activations have two.
    gradient_bytes: u64,
    /// Tokens travel to experts with a byte per element, and back with two.
    fp8_dispatch: bool,
    placement: Placement,
    /// How collectives between servers are done.
    algorithm: Wish,
    tuner: Option<Arc<Tuner>>,
}

/// Reads the keys of a job.
pub(super) fn read(section: &Section<'_>, scenario: &Scenario) -> Option<JobKeys> {
    let before = section.sink.count();
    let count = |key: &'static str, low: u64, most: u64, default: u32| {
        section.count(key, low, most).map_or(default, |n| n as u32)
    };
    let imported = match section.text("file") {
        None => None,
        Some(name) => Some((source::read(section, scenario, &name)?, name)),
    };
    let label = match &imported {
        Some((_, name)) => name.clone(),
        None => section.text("model").unwrap_or_else(|| "model".to_string()),
    };
    let (imported, trace) = match imported.map(|(source, _)| source) {
        Some(Source::Layers(workload)) => (Some(workload), None),
        Some(Source::Trace(trace)) => (None, Some(trace)),
        None => (None, None),
    };
    let ranks = match &trace {
        Some(trace) => Some(source::ranks_of(section, trace)?),
        None => None,
    };
    let file = imported.as_deref();
    let model = if imported.is_some() || trace.is_some() { Some(model::none()) } else { model::read(section) };
    let degree = |key: &'static str, most: u64, of: &dyn Fn(&Workload) -> u32| match file {
        Some(file) => of(file),
        None => count(key, 1, most, 1),
    };
    let (tp, cp) = (degree("tp", 1024, &|file| file.tp), degree("cp", 1024, &|_| 1));
    let pp = count("pp", 1, 1024, file.map_or(1, |file| file.pp));
    let ep = degree("ep", 1 << 16, &|file| file.ep);
    let replicas = u64::from(tp) * u64::from(cp) * u64::from(pp);
    let dp = copies(section, file, ranks, replicas)?;
    if replicas.saturating_mul(dp) > RANKS_MAX {
        let what = format!("makes {} ranks", replicas.saturating_mul(dp));
        section.wrong(if section.has("dp") { "dp" } else { "pp" }, what, format!("write at most {RANKS_MAX} in all"));
    }
    let micro_batches = count("micro_batches", 1, 1 << 16, file.map_or(1, |file| file.micro_batches));
    let (schedule, chunks) = pipeline(section, file, pp, micro_batches);
    let zero = match section.raw("zero") {
        None => 1,
        Some(toml::Value::Integer(n @ (0 | 1 | 3))) => *n as u32,
        Some(_) => {
            section.wrong("zero", "is no stage of ZeRO that is modelled", "write 0, 1 or 3");
            1
        }
    };
    let recompute = match section.choice("recompute", &["none", "selective", "full"]) {
        Some("full") => Recompute::All,
        Some("selective") => Recompute::Scores,
        _ => Recompute::Nothing,
    };
    let names: Vec<&'static str> = GPUS.iter().map(|(name, ..)| *name).collect();
    let gpu = section.choice("gpu", &names).unwrap_or("h100");
    let known = GPUS.iter().find(|(name, ..)| *name == gpu).map_or(989.0, |(_, peak, _)| *peak);
    let peak = 1e12 * section.ratio("tflops", 1e-3, 1e9).unwrap_or(known);
    let efficiency = section.ratio("efficiency", 1e-3, 1.0).unwrap_or(0.5);
    let (algorithm, tuner) = choice::read(section, scenario)?;
    let written = JobKeys {
        algorithm,
        tuner,
        model: model?,
        once: once(section, imported.is_some()),
        imported,
        trace,
        label,
        degrees: Degrees { tp, cp, pp, dp: dp as u32, ep },
        zero,
        micro_batches,
        micro_batch: section.count("micro_batch", 1, 1 << 20).unwrap_or(1),
        schedule,
        chunks,
        recompute,
        buckets: section.count("buckets", 1, 4096).map(|n| n as u32),
        overlap: section.flag("overlap").unwrap_or(true),
        prefetch: count("prefetch", 0, 4096, 1),
        imbalance: section.ratio("imbalance", 1.0, 1024.0).unwrap_or(1.0),
        pace: Pace {
            peak,
            reached: peak * efficiency,
            compute: section.span("compute"),
            update: section.span("update").unwrap_or(Span::ZERO),
            stragglers: section.ratio("stragglers", 0.0, 10.0).unwrap_or(0.0),
            noise: section.ratio("noise", 0.0, 0.2).unwrap_or(0.0),
        },
        iterations: count("iterations", 1, 1 << 16, 1),
        parts: count("pipeline", 1, 256, 1),
        window: count("window", 1, 1 << 16, 8),
        gradient_bytes: section.count("gradient_bytes", 1, 8).unwrap_or(2),
        fp8_dispatch: section.choice("dispatch", &["bf16", "fp8"]) == Some("fp8"),
        placement: placement(section, scenario)?,
    };
    fits(section, &written);
    (section.sink.count() == before).then_some(written)
}

/// The schedule of the pipeline, and the chunks of each stage.
fn pipeline(section: &Section<'_>, file: Option<&Workload>, pp: u32, micro_batches: u32) -> (Pipeline, u32) {
    let interleaves = |file: &Workload| {
        pp > 1 && file.chunks > 1 && file.micro.len() >= file.chunks as usize && micro_batches.is_multiple_of(pp)
    };
    let schedule = match section.choice("schedule", &["1f1b", "gpipe", "interleaved", "zero-bubble"]) {
        None if file.is_some_and(interleaves) => Pipeline::Interleaved,
        Some("gpipe") => Pipeline::Gpipe,
        Some("interleaved") => Pipeline::Interleaved,
        Some("zero-bubble") => Pipeline::ZeroBubble,
        _ => Pipeline::OneForwardOneBackward,
    };
    let chunks = section.count("chunks", 1, 256).map(|n| n as u32);
    let chunks = match (schedule, chunks) {
        (Pipeline::Interleaved, chunks) => chunks.unwrap_or(file.map_or(2, |file| file.chunks)),
        (_, Some(2..)) => {
            section.wrong(
                "chunks",
                "has a meaning with interleaved pipelines only",
                "write schedule = \"interleaved\"",
            );
            1
        }
        _ => 1,
    };
    (schedule, chunks)
}

/// The ranks that hold one share of a layer, besides those of context parallelism.
fn copies(section: &Section<'_>, file: Option<&Workload>, ranks: Option<u32>, replicas: u64) -> Option<u64> {
    let (gpus, dp) = match (file, ranks) {
        (Some(file), _) if file.gpus > 0 => (None, Some(u64::from(file.copies()))),
        (Some(_), _) => {
            let gpus = section.count("gpus", 1, RANKS_MAX);
            if gpus.is_none() && !section.has("gpus") {
                let what = "is missing: the header of the file has no all_gpus";
                section.sink.add(&section.path("gpus"), "", what, "write the number of ranks");
                return None;
            }
            (gpus, None)
        }
        (None, Some(ranks)) => (None, Some(u64::from(ranks))),
        (None, None) => (section.count("gpus", 1, RANKS_MAX), section.count("dp", 1, RANKS_MAX)),
    };
    Some(match (dp, gpus) {
        (Some(dp), None) => dp,
        (None, None) => 1,
        (None, Some(gpus)) if gpus.is_multiple_of(replicas) => gpus / replicas,
        (None, Some(_)) => {
            section.wrong("gpus", format!("is no multiple of tp x cp x pp = {replicas}"), "correct it, or write dp");
            1
        }
        (Some(_), Some(_)) => {
            section.wrong("gpus", "is given together with `dp`", "write one of the two");
            1
        }
    })
}

/// Whether the end of the iteration is part of a job from a file.
fn once(section: &Section<'_>, imported: bool) -> bool {
    let once = section.flag("once");
    if once.is_some() && !imported {
        section.wrong("once", "has a meaning with a file only", "leave it out, or write file");
    }
    once.unwrap_or(true)
}

/// Reports settings of a job that do not fit together.
fn fits(section: &Section<'_>, written: &JobKeys) {
    let JobKeys { model, degrees: Degrees { tp, cp, pp, dp, ep }, chunks, micro_batches, .. } = written;
    let stages = pp * chunks;
    let imported = written.imported.is_some() || written.trace.is_some();
    let must = |key: &str, holds: bool, what: String, remedy: &str| {
        if !holds {
            let shown = if section.has(key) { String::new() } else { "not written".to_string() };
            match section.has(key) {
                true => section.wrong(key, what, remedy),
                false => section.sink.add(&section.path(key), shown, what, remedy),
            }
        }
    };
    must(
        "pp",
        imported || stages <= model.layers,
        format!("makes {stages} stages of {} layers", model.layers),
        "write less",
    );
    let sharing = u64::from(*tp);
    must(
        "tp",
        imported || model.heads.is_multiple_of(sharing),
        format!("does not divide {} heads", model.heads),
        "write a divisor",
    );
    must(
        "cp",
        model.sequence.is_multiple_of((*cp).into()),
        format!("does not divide a sequence of {}", model.sequence),
        "write a divisor",
    );
    if *ep > 1 {
        must(
            "ep",
            imported || model.experts > 0,
            "needs a model with experts".into(),
            "write experts and top_k, or name such a model",
        );
        must(
            "ep",
            imported || model.experts.is_multiple_of((*ep).into()),
            format!("does not divide {} experts", model.experts),
            "write a divisor",
        );
        must(
            "ep",
            (cp * dp).is_multiple_of(*ep),
            format!("does not divide cp x dp = {}, the ranks that hold one share of a layer", cp * dp),
            "write a divisor",
        );
    }
    if written.imbalance > 1.0 {
        must("imbalance", *ep > 1, "needs experts on several ranks".into(), "write ep");
        must(
            "imbalance",
            written.imbalance <= f64::from(*ep),
            format!("is more than all tokens of {ep} ranks"),
            "write less",
        );
    }
    if written.zero == 3 {
        must("zero", *pp == 1, "shards parameters, which pipelines keep".into(), "write pp = 1, or zero = 1");
    }
    if written.schedule == Pipeline::ZeroBubble {
        must("pp", *pp > 1, "fills the bubble of a pipeline of several stages".into(), "write pp = 2 or more");
    }
    if written.schedule == Pipeline::Interleaved {
        must("pp", *pp > 1, "interleaves the chunks of one stage".into(), "write pp = 2 or more");
        must(
            "micro_batches",
            micro_batches.is_multiple_of(*pp),
            format!("is no multiple of pp = {pp}, as interleaved pipelines need"),
            "write a multiple",
        );
    }
}

fn placement(section: &Section<'_>, scenario: &Scenario) -> Option<Placement> {
    let Some(name) = section.text("placement") else {
        return (!section.has("placement")).then_some(Placement::Packed);
    };
    match name.as_str() {
        "packed" => return Some(Placement::Packed),
        "spread" => return Some(Placement::Spread),
        "random" => return Some(Placement::Random),
        _ => {}
    }
    if !name.contains(['.', '/']) {
        let remedy = "write \"packed\", \"spread\", \"random\" or a file, the number of a server per line";
        section.wrong("placement", "is no placement", remedy);
        return None;
    }
    match scenario.read(&name).and_then(|(file, text)| hosts_of(&file, &text)) {
        Ok(list) => Some(Placement::List(list.into_iter().map(|(HostId(server), _)| server).collect(), name)),
        Err(problems) => {
            section.sink.extend(problems.0);
            None
        }
    }
}

impl JobKeys {
    /// Ranks that hold one share of a layer's parameters: data and context parallel.
    fn copies(&self) -> u32 {
        self.degrees.cp * self.degrees.dp
    }

    /// Can a run with less bytes and computation stand for the whole one?
    pub(crate) fn can_shrink(&self) -> bool {
        self.trace.is_none() && !matches!(self.algorithm, Wish::Planned(_))
    }

    /// Do all ranks that do the same compute equally long? Otherwise they wait for the slowest of them.
    pub(crate) fn has_equal_ranks(&self) -> bool {
        self.pace.stragglers == 0.0 && self.pace.noise == 0.0
    }

    /// Do some replicas stand for all, if there are `fewer` times less of them? Those of a stage that are left must fill
    /// whole blocks of servers.
    pub(crate) fn has_equal_replicas(&self, fewer: u32, block: u32) -> bool {
        let (left, even) = (self.copies() / fewer, self.copies().is_multiple_of(fewer));
        let alike = self.has_equal_ranks() && self.imbalance == 1.0;
        let plain = self.algorithm == Wish::Ring && self.tuner.is_none() && self.placement == Placement::Packed;
        let sharing = self.zero != 3 && self.imported.is_none();
        let groups =
            left.is_multiple_of(self.degrees.ep) && left.is_multiple_of(self.degrees.cp) && left / self.degrees.ep >= 2;
        even && alike && plain && sharing && groups && left >= 2 * block && left.is_multiple_of(block)
    }

    /// Is each tensor-parallel group a whole server with this number of GPUs?
    pub(crate) fn fills_servers(&self, gpus: u32) -> bool {
        self.degrees.tp == gpus
    }

    fn ranks(&self) -> u32 {
        self.degrees.tp * self.copies() * self.degrees.pp
    }

    /// Tokens of a micro-batch at one rank.
    fn tokens(&self) -> u64 {
        self.micro_batch * self.model.sequence / u64::from(self.degrees.cp)
    }

    /// Tokens of an iteration.
    fn all_tokens(&self) -> u64 {
        self.micro_batch * self.model.sequence * u64::from(self.micro_batches) * u64::from(self.degrees.dp)
    }

    /// The first layer of a virtual stage. For the stage after the last one it is the number of layers.
    fn first_layer(&self, stage: u32) -> u32 {
        (u64::from(self.model.layers) * u64::from(stage) / u64::from(self.degrees.pp * self.chunks)) as u32
    }

    /// Floating-point operations that the model needs in an iteration, all ranks together: those of the forward pass,
    /// and twice as many backward.
    fn flops(&self) -> f64 {
        if self.imported.is_some() || self.trace.is_some() {
            return 0.0;
        }
        let model = &self.model;
        let token = f64::from(model.layers) * (model.attention_flops() + model.network_flops()) + model.logits_flops();
        3.0 * token * self.all_tokens() as f64
    }

    /// A note for the report, which describes the job.
    fn note(&self, name: &str, servers: u32) -> String {
        let Degrees { tp, cp, pp, dp, ep } = self.degrees;
        let degrees = [("TP", tp), ("CP", cp), ("PP", pp), ("DP", dp), ("EP", ep)];
        let degrees: Vec<String> =
            degrees.iter().filter(|(_, n)| *n > 1).map(|(label, n)| format!("{label} {n}")).collect();
        if let Some(trace) = &self.trace {
            let how = if trace.alike { "all ranks do what the file says of one" } else { "each rank has its own" };
            let (format, ranks) = (trace.format, self.ranks());
            return format!("{name}: {}, {format}, {ranks} ranks on {servers} servers; {how}", self.label);
        }
        if let Some(file) = &self.imported {
            let end = match self.once {
                true => format!("whose end of an iteration has {} layers of its own", file.once.len()),
                false => format!("without the {} layers at the end of an iteration", file.once.len()),
            };
            let said = format!(
                "{name}: {}, {} GPUs of {servers} servers ({}); {} micro-batches; all stages do what the file says of one, {end}",
                self.label,
                self.ranks(),
                degrees.join(", "),
                self.micro_batches,
            );
            return file.note().map_or(said.clone(), |note| format!("{said}; {note}"));
        }
        let compute = match self.pace.compute {
            Some(span) => format!("a layer computes for {span} forward"),
            None => format!("GPUs reach {:.0} TFLOP/s", self.pace.reached / 1e12),
        };
        format!(
            "{name}: {}, {} parameters on {} GPUs of {servers} servers ({}, ZeRO-{}); {} micro-batches of {} x {} tokens; {compute}",
            self.label,
            parameters(self.model.parameters() as f64),
            self.ranks(),
            degrees.join(", "),
            self.zero,
            self.micro_batches,
            self.micro_batch,
            self.model.sequence,
        )
    }
}

/// A number of parameters in words.
fn parameters(count: f64) -> String {
    match count {
        n if n >= 1e9 => format!("{:.1} billion", n / 1e9),
        n if n >= 1e6 => format!("{:.1} million", n / 1e6),
        n => format!("{n:.0}"),
    }
}
