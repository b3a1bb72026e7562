//! Workloads of SimAI and AICB (the text format of ASTRA-sim 1): one rank of one pipeline stage, layer by layer, with
//! all its micro-batches.
//!
//! The reader is SimAI's `astra-sim/workload/Workload.cc`: a header of pairs, the number of layers, then twelve fields
//! per layer. Groups are those of Megatron-LM: tensor parallel fastest, then experts, data, stages outermost.

use super::trace::Kind;
use crate::problem::{Problem, Problems};
use std::collections::BTreeMap;

/// Layers of a file at the most: ours. The largest public file has 1,789.
const LAYERS_MAX: usize = 1 << 18;

/// Limit on the time of all layers together: ours, an hour.
const COMPUTE_MAX_NS: u64 = 3_600_000_000_000;

/// The members of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// No suffix, forward and backward.
    Tensor,
    /// No suffix, of weights' gradients.
    Data,
    /// `_EP`.
    Expert,
    /// `_DP_EP`.
    ExpertData,
}

/// A collective of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The operation.
    pub kind: Kind,
    /// Among whom.
    pub group: Group,
    /// The larger buffer of a rank, bytes.
    pub bytes: u64,
}

/// Computation, and a collective behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Nanoseconds.
    pub compute_ns: u64,
    /// None if it is `NONE` or moves no bytes.
    pub collective: Option<Collective>,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name, which repeats in each micro-batch.
    pub name: String,
    /// The forward pass.
    pub forward: Phase,
    /// Gradients of inputs.
    pub inputs: Phase,
    /// Gradients of weights.
    pub weights: Phase,
}

/// A file, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The policy that the header names.
    pub policy: String,
    /// Degrees of parallelism, and chunks of layers per stage.
    pub tp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Stages.
    pub pp: u32,
    /// Chunks per stage.
    pub chunks: u32,
    /// Micro-batches.
    pub micro_batches: u32,
    /// GPUs of the job; 0 if the file does not say.
    pub gpus: u32,
    /// Bytes of a message between stages.
    pub stage_bytes: u64,
    /// Layers of one micro-batch, in forward order.
    pub micro: Vec<Layer>,
    /// Layers that are there once: what happens at the end of an iteration.
    pub once: Vec<Layer>,
    /// Layers of other micro-batches that have other times or bytes than those of the last one.
    pub others: usize,
    /// Lines of layers in the file.
    pub layers: usize,
    /// Those that line 2 says beyond them: the file ends before they come.
    pub missing: usize,
}

/// Policies of SimAI and ASTRA-sim 1 whose passes or groups are others than those of a transformer's training.
const OTHER_POLICIES: [&str; 11] = [
    "MICRO",
    "DATA",
    "MODEL",
    "HYBRID",
    "HYBRID_DATA_MODEL",
    "HYBRID_MODEL_DATA",
    "HYBRID_DLRM",
    "HYBRID_DLRM_ENHANCED",
    "HYBRID_CUSTOMIZED",
    "DISTRIBUTED_INFERENCE",
    "TRANSFORMER",
];

/// Is this the first line of such a file?
pub fn is_workload(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default().trim();
    first.contains("model_parallel_NPU_group") || OTHER_POLICIES.contains(&first)
}

/// Parses a file called `file`.
///
/// # Errors
/// With file, line, what is wrong and a remedy.
pub fn parse(file: &str, text: &str) -> Result<Workload, Problems> {
    let problem = |line: usize, value: &str, what: String, remedy: &str| {
        Problems(vec![Problem {
            file: file.to_string(),
            line: Some(line),
            key: String::new(),
            value: if value.is_empty() { String::new() } else { format!("`{}`", shortened(value)) },
            what,
            remedy: remedy.to_string(),
        }])
    };
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let mut words = header.split_whitespace();
    let policy = words.next().unwrap_or_default().to_string();
    if OTHER_POLICIES.contains(&policy.as_str()) {
        let remedy = "only HYBRID_TRANSFORMER and HYBRID_TRANSFORMER_FWD_IN_BCKWD are modelled; describe it by [workload] or a trace";
        return Err(problem(1, &policy, "is a policy whose passes and groups are not modelled".into(), remedy));
    }
    let words: Vec<&str> = words.collect();
    let field = |name: &str, default: Option<u64>, most: u64| -> Result<u64, Problems> {
        let at = words.iter().position(|word| word.trim_end_matches(':') == name);
        let Some(at) = at else {
            let missing = || problem(1, "", format!("the header has no {name}"), "write it as `name: number`");
            return default.ok_or_else(missing);
        };
        let text = words.get(at + 1).copied().unwrap_or_default();
        let range = "write a whole number that a cluster can have";
        // AICB divides in Python, which makes `8388608.0` of whole numbers.
        let whole =
            text.split_once('.').filter(|(_, rest)| rest.bytes().all(|digit| digit == b'0')).map_or(text, |(n, _)| n);
        match whole.parse::<u64>() {
            Ok(n) if n <= most && (n > 0 || default == Some(0)) => Ok(n),
            _ => Err(problem(1, text, format!("is no {name} from 1 to {most}"), range)),
        }
    };
    const MOST: u64 = 1 << 17;
    let number = |name: &str, default: Option<u64>| field(name, default, MOST).map(|n| n as u32);
    let tp = number("model_parallel_NPU_group", None)?;
    let (ep, pp) = (number("ep", Some(1))?, number("pp", Some(1))?);
    let (chunks, micro_batches, gpus) = (number("vpp", Some(1))?, number("ga", Some(1))?, number("all_gpus", Some(0))?);
    let stage_bytes = field("pp_comm", Some(0), 1 << 48)?;
    let product = u64::from(tp) * u64::from(pp);
    if !u64::from(gpus).is_multiple_of(product) {
        let what = format!("{gpus} GPUs are no multiple of {tp} x {pp}, the model's parts");
        return Err(problem(1, "", what, "correct all_gpus, pp or model_parallel_NPU_group"));
    }
    let count = lines.next().unwrap_or_default().trim();
    let Some(count) = count.parse::<usize>().ok().filter(|n| (1..=LAYERS_MAX).contains(n)) else {
        return Err(problem(2, count, format!("is no number of layers from 1 to {LAYERS_MAX}"), "write their number"));
    };
    let mut layers = Vec::new();
    for (at, line) in (3..).zip(lines).filter(|(_, line)| !line.trim().is_empty()) {
        if layers.len() == count {
            return Err(problem(at, "", format!("there are more than {count} layers"), "correct line 2"));
        }
        match layer(line) {
            Ok(layer) => layers.push(layer),
            Err((value, what)) => {
                let remedy =
                    "write name, dependency, and for forward, inputs and weights: ns, collective, bytes; then ns";
                return Err(problem(at, &value, what, remedy));
            }
        }
    }
    let all = layers.iter().flat_map(|layer: &Layer| [layer.forward, layer.inputs, layer.weights]);
    if all.map(|phase| u128::from(phase.compute_ns)).sum::<u128>() > u128::from(COMPUTE_MAX_NS) {
        let what = format!("the layers compute for more than {COMPUTE_MAX_NS} ns in all");
        return Err(problem(2, "", what, "correct the times of the layers"));
    }
    // A public file of AICB's says 839 where 33 follow; SimAI reads those that are there.
    let (there, missing) = (layers.len(), count - layers.len());
    if there == 0 {
        return Err(problem(2, "", "no layer follows".into(), "the file was cut off: fetch it again"));
    }
    let Cut { micro, once, others } = cut(layers, micro_batches)
        .map_err(|what| problem(1, "", what, "every micro-batch must have the same layers; correct ga"))?;
    Ok(Workload {
        policy,
        tp,
        ep,
        pp,
        chunks,
        micro_batches,
        gpus,
        stage_bytes,
        micro,
        once,
        others,
        layers: there,
        missing,
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn layer(line: &str) -> Result<Layer, (String, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if !(12..=13).contains(&words.len()) {
        return Err((String::new(), format!("a layer has 12 fields, here are {}", words.len())));
    }
    let number = |at: usize, most: u64| -> Result<u64, (String, String)> {
        let fits = words[at].parse::<u64>().ok().filter(|n| *n <= most);
        fits.ok_or_else(|| (words[at].to_string(), format!("is no whole number up to {most}")))
    };
    let phase = |at: usize, plain: Group| -> Result<Phase, (String, String)> {
        let compute_ns = number(at, 1 << 50)?;
        let bytes = number(at + 2, 1 << 48)?;
        Ok(Phase { compute_ns, collective: collective(words[at + 1], plain, bytes)? })
    };
    Ok(Layer {
        name: words[0].to_string(),
        forward: phase(2, Group::Tensor)?,
        inputs: phase(5, Group::Tensor)?,
        weights: phase(8, Group::Data)?,
    })
}

fn collective(word: &str, plain: Group, bytes: u64) -> Result<Option<Collective>, (String, String)> {
    let (name, group) = match word {
        _ if word.ends_with("_DP_EP") => (word.trim_end_matches("_DP_EP"), Group::ExpertData),
        _ if word.ends_with("_EP") => (word.trim_end_matches("_EP"), Group::Expert),
        _ => (word, plain),
    };
    let kind = match name {
        "NONE" => return Ok(None),
        "ALLREDUCE" => Kind::AllReduce,
        "ALLGATHER" => Kind::AllGather,
        "REDUCESCATTER" => Kind::ReduceScatter,
        "ALLTOALL" => Kind::AllToAll,
        "BROADCAST" => Kind::Broadcast,
        _ => return Err((word.to_string(), "is no collective that is understood".to_string())),
    };
    Ok((bytes > 0).then_some(Collective { kind, group, bytes }))
}

/// The layers of a file, cut.
struct Cut {
    micro: Vec<Layer>,
    once: Vec<Layer>,
    others: usize,
}

/// Whether AICB writes a layer of this name once per iteration, and not once per micro-batch
/// (`SimAI_training_workload_generator.py`).
fn is_once(name: &str) -> bool {
    let starts = ["grad_", "moe_grad_", "optimizer", "cross_entropy"];
    starts.iter().any(|start| name.starts_with(start)) || ["embedding_grads", "layernorm"].contains(&name)
}

/// The layers of one micro-batch, and those that are there once. A micro-batch begins with the first name that is there
/// once per micro-batch, and holds the names that repeat. The values are those of the last one: the first has what is
/// done once.
fn cut(layers: Vec<Layer>, micros: u32) -> Result<Cut, String> {
    if micros <= 1 {
        // Nothing repeats, so only the name tells what is there once.
        let (once, micro): (Vec<Layer>, Vec<Layer>) = layers.into_iter().partition(|layer| is_once(&layer.name));
        return Ok(match micro.is_empty() {
            true => Cut { micro: once, once: Vec::new(), others: 0 },
            false => Cut { micro, once, others: 0 },
        });
    }
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for layer in &layers {
        *counts.entry(&layer.name).or_default() += 1;
    }
    let once: Vec<Layer> = layers.iter().filter(|layer| counts[layer.name.as_str()] < micros).cloned().collect();
    let repeated: Vec<&Layer> = layers.iter().filter(|layer| counts[layer.name.as_str()] >= micros).collect();
    let each = repeated.len() / micros as usize;
    if each == 0 || !repeated.len().is_multiple_of(micros as usize) {
        return Err(format!("{} layers repeat, which is no multiple of {micros} micro-batches", repeated.len()));
    }
    let last = &repeated[repeated.len() - each..];
    let names = |micro: &[&Layer]| -> Vec<String> { micro.iter().map(|layer| layer.name.clone()).collect() };
    let wanted = names(last);
    if let Some(odd) = repeated.chunks(each).position(|micro| names(micro) != wanted) {
        return Err(format!("micro-batch {odd} has other layers than the last one"));
    }
    let other = |micro: &[&Layer]| micro.iter().zip(last).filter(|(one, of_last)| one != of_last).count();
    let others = repeated.chunks(each).map(other).sum();
    Ok(Cut { micro: last.iter().map(|layer| (*layer).clone()).collect(), once, others })
}

impl Workload {
    /// Multiplies the time of every computation, for another GPU than the measured one.
    pub fn scale_compute(&mut self, factor: f64) {
        for layer in self.micro.iter_mut().chain(&mut self.once) {
            for phase in [&mut layer.forward, &mut layer.inputs, &mut layer.weights] {
                phase.compute_ns = (phase.compute_ns as f64 * factor).round() as u64;
            }
        }
    }

    /// Oddities of the file: it ends before all layers have come that it says it has.
    pub fn note(&self) -> Option<String> {
        let (there, said) = (self.layers, self.layers + self.missing);
        let remedy = "these are read, as SimAI does; fetch the file again if it was cut off";
        (self.missing > 0).then(|| format!("line 2 says {said} layers, but {there} follow: {remedy}"))
    }

    /// Ranks that have the same part of the model; 0 if the file does not say.
    pub fn copies(&self) -> u32 {
        self.gpus / (self.tp * self.pp)
    }

    /// The contents of the file, and the assumptions about it, as lines of text.
    pub fn describe(&self) -> String {
        let phases = |layers: &[Layer], of: &dyn Fn(&Layer) -> [Phase; 3]| {
            let mut compute = 0u128;
            let mut bytes: BTreeMap<String, (u64, u128)> = BTreeMap::new();
            for phase in layers.iter().flat_map(of) {
                compute += u128::from(phase.compute_ns);
                if let Some(made) = phase.collective {
                    let entry = bytes.entry(format!("{:?} among {:?}", made.kind, made.group)).or_default();
                    entry.0 += 1;
                    entry.1 += u128::from(made.bytes);
                }
            }
            (compute, bytes)
        };
        let all = |layer: &Layer| [layer.forward, layer.inputs, layer.weights];
        let gpus = if self.gpus > 0 { self.gpus.to_string() } else { "an unknown number of".to_string() };
        let mut out = format!(
            "a SimAI/AICB workload ({}): one rank of one stage\n{} GPUs: TP {}, EP {}, PP {}, DP {}; {} micro-batches, {} chunks per stage, {} B between stages\n",
            self.policy,
            gpus,
            self.tp,
            self.ep,
            self.pp,
            self.copies(),
            self.micro_batches,
            self.chunks,
            self.stage_bytes
        );
        for (what, layers) in [("each micro-batch", &self.micro), ("the end of the iteration", &self.once)] {
            let (compute, bytes) = phases(layers, &all);
            out.push_str(&format!("{what}: {} layers, {:.3} ms of computation\n", layers.len(), compute as f64 / 1e6));
            for (name, (count, bytes)) in bytes {
                out.push_str(&format!("  {count} x {name}, {:.3} MB in all\n", bytes as f64 / 1e6));
            }
        }
        if let Some(note) = self.note() {
            out.push_str(&format!("{note}\n"));
        }
        if self.others > 0 {
            out.push_str(&format!("{} layers of other micro-batches have other times or bytes\n", self.others));
        }
        out.push_str(
            "assumed: BROADCAST comes from the first rank of its group; every stage and every rank does the same; groups in Megatron-LM's order (tensor, expert, data, stages); layers that are there once \
             run behind the last backward pass, in the file's order; every micro-batch has the times and bytes of the last one; the last field of a layer (update) and checkpoints are not read\n\
             to run it: [job] file = \"FILE\" beside [servers] and [fabric]; pp and micro_batches may be lowered\n",
        );
        if self.chunks > 1 && self.pp > 1 {
            out.push_str(&format!(
                "vpp: {} makes an interleaved pipeline if ga is a multiple of pp; AICB writes the number of layers there, asked or not: \
                 [job] schedule = \"1f1b\" runs without it\n",
                self.chunks
            ));
        }
        if self.gpus == 0 {
            out.push_str("the header has no all_gpus: write gpus = N there\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 1 ga: 2 all_gpus: 8 checkpoints: 0 pp_comm 1000\n5\n\
        grad -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER 4000 100\n\
        attention -1 500 ALLREDUCE 100 400 ALLREDUCE 200 300 NONE 0 100\n\
        moe -1 600 ALLTOALL_EP 300 1 NONE 0 1 NONE 0 100\n\
        attention -1 500 ALLREDUCE 100 400 ALLREDUCE 200 300 NONE 0 100\n\
        moe -1 600 ALLTOALL_EP 300 1 NONE 0 1 NONE 0 100\n";

    #[test]
    fn layers_that_repeat_are_a_micro_batch() {
        let small = parse("a.txt", SMALL).expect("sound");
        assert_eq!((small.tp, small.ep, small.pp, small.micro_batches, small.copies()), (2, 2, 2, 2, 2));
        assert_eq!((small.micro.len(), small.once.len(), small.stage_bytes), (2, 1, 1000));
        let made = small.micro[1].forward.collective.expect("an all-to-all");
        assert_eq!((made.kind, made.group, made.bytes), (Kind::AllToAll, Group::Expert, 300));
        let told = small.describe();
        assert!(told.contains("8 GPUs: TP 2, EP 2, PP 2, DP 2; 2 micro-batches"), "{told}");
        assert!(told.contains("1 x ReduceScatter among Data"), "{told}");
    }

    #[test]
    fn a_file_that_ends_before_its_layers_is_read_with_a_note() {
        let made = parse("a.txt", &SMALL.replacen("\n5\n", "\n839\n", 1)).expect("read as far as it goes");
        assert_eq!((made.layers, made.missing), (5, 834));
        assert!(made.describe().contains("line 2 says 839 layers, but 5 follow"), "{}", made.describe());
        assert_eq!(parse("a.txt", SMALL).expect("sound").note(), None);
        let none: String = SMALL.split_inclusive('\n').take(2).collect();
        assert!(parse("a.txt", &none).expect_err("no layer").to_string().contains("no layer follows"));
    }

    #[test]
    fn a_size_that_python_has_divided_is_a_whole_number() {
        let text = SMALL.replace("pp_comm 1000", "pp_comm: 8388608.0");
        assert_eq!(parse("a.txt", &text).expect("a whole number").stage_bytes, 8_388_608);
        let said = parse("a.txt", &SMALL.replace("pp_comm 1000", "pp_comm: 1000.5")).expect_err("half a byte");
        assert!(said.to_string().contains("`1000.5`: is no pp_comm"), "{said}");
    }

    #[test]
    fn policies_that_are_not_modelled_are_named() {
        for policy in ["MICRO", "DISTRIBUTED_INFERENCE", "HYBRID_CUSTOMIZED"] {
            let text = SMALL.replacen("HYBRID_TRANSFORMER", policy, 1);
            let said = parse("a.txt", &text).expect_err(policy).to_string();
            assert!(said.contains(&format!("a.txt:1: `{policy}`: is a policy")), "{said}");
        }
        assert!(is_workload("MICRO\n1\n"));
        assert!(!is_workload("1 2 MICRO\n"));
    }

    #[test]
    fn layers_of_the_end_of_an_iteration_are_told_by_name_if_there_is_one_micro_batch() {
        let text = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 pp: 2 vpp: 4 ga: 1 all_gpus: 4\n3\n\
            grad_norm -1 1 ALLGATHER 4000 1 NONE 0 1 NONE 0 100\n\
            attention -1 500 NONE 0 400 NONE 0 300 NONE 0 100\n\
            optimizer1 -1 1 NONE 0 1 NONE 0 1 NONE 0 100\n";
        let made = parse("a.txt", text).expect("sound");
        let names = |layers: &[Layer]| layers.iter().map(|layer| layer.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&made.micro), ["attention"]);
        assert_eq!(names(&made.once), ["grad_norm", "optimizer1"]);
        assert!(made.describe().contains("schedule = \"1f1b\""), "{}", made.describe());
    }

    /// Cut anywhere, and with each number made absurd: an error with file and line, or a sound file; never a panic.
    #[test]
    fn bad_files_are_explained() {
        for end in (0..SMALL.len()).filter(|end| SMALL.is_char_boundary(*end)) {
            if let Err(problems) = parse("a.txt", &SMALL[..end]) {
                assert!(problems.to_string().starts_with("a.txt:"), "{problems}");
            }
        }
        let words: Vec<&str> = SMALL.split(' ').collect();
        for at in 0..words.len() {
            for absurd in ["-7", "18446744073709551615", "99999999999999999999999", "", "x"] {
                let mut changed = words.clone();
                changed[at] = absurd;
                if let Err(problems) = parse("a.txt", &changed.join(" ")) {
                    assert!(problems.to_string().starts_with("a.txt:"), "{problems}");
                }
            }
        }
        for (from, to, wanted) in [
            ("ALLTOALL_EP", "ALLREDUCEALLTOALL", "is no collective that is understood"),
            ("all_gpus: 8", "all_gpus: 7", "are no multiple of 2 x 2"),
            ("ga: 2", "ga: 3", "no multiple of 3 micro-batches"),
            ("\n5\n", "\n4\n", "there are more than 4 layers"),
        ] {
            let said = parse("a.txt", &SMALL.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
