//! Execution plans of MSCCL++ (`.json`): what the thread blocks of each GPU do with channels to other GPUs. A file becomes a
//! [`Recipe`].
//!
//! The writer is microsoft/mscclpp (`python/mscclpp/language`). GPUs write into each other's memory (`put`, `res`) and read
//! it (`get`, `rre`), and tell each other by signals. A write is a message; a signal is a message of one byte behind the
//! writes of its thread block to that GPU, and who waits for it has them all. Memory that is read is sent by its owner at the
//! signal that the reader has waited for last. Packets carry their own flags: who reads them waits for them.

mod made;
mod writer;

use crate::problem::Problems;
use crate::trace::problem;
use made::Made;
use serde::Deserialize;
use strandway_collective::{Collective, Recipe};
use writer::Writer;

/// Limits: ours.
const GPUS_MAX: usize = 1 << 12;
const STEPS_MAX: usize = 1 << 21;
const CHUNKS_MAX: u32 = 1 << 20;

#[derive(Deserialize)]
struct Plan {
    #[serde(default)]
    name: String,
    #[serde(default)]
    collective: String,
    #[serde(default)]
    protocol: String,
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
struct Gpu {
    id: u32,
    #[serde(default)]
    input_chunks: u32,
    #[serde(default)]
    output_chunks: u32,
    threadblocks: Vec<Block>,
    #[serde(default)]
    channels: Vec<Channels>,
    #[serde(default)]
    remote_buffers: Vec<Remote>,
}

#[derive(Deserialize)]
struct Channels {
    channel_type: String,
    #[serde(default)]
    connected_to: Vec<u32>,
}

#[derive(Deserialize)]
struct Remote {
    rank: u32,
    #[serde(rename = "type", default)]
    buffer: String,
}

#[derive(Deserialize)]
struct Block {
    ops: Vec<Op>,
    #[serde(default)]
    channels: Vec<OwnChannels>,
    #[serde(default)]
    remote_buffer_refs: Vec<References>,
}

#[derive(Deserialize)]
struct OwnChannels {
    channel_type: String,
    #[serde(default)]
    channel_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct References {
    access_channel_type: String,
    #[serde(default)]
    remote_buffer_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Op {
    name: String,
    #[serde(default)]
    src_buff: Vec<Buffer>,
    #[serde(default)]
    dst_buff: Vec<Buffer>,
    #[serde(default)]
    channel_ids: Vec<u32>,
    #[serde(default)]
    channel_type: String,
    #[serde(default)]
    ops: Vec<Op>,
    #[serde(default)]
    semaphore_ids: Vec<u32>,
    barrier_id: Option<u32>,
    tbg_info: Option<Part>,
}

#[derive(Deserialize)]
struct Part {
    tb_id: u32,
}

#[derive(Deserialize)]
struct Buffer {
    #[serde(rename = "type")]
    own: Option<String>,
    buffer_id: Option<u32>,
    #[serde(default)]
    index: u32,
    #[serde(default)]
    size: u32,
}

/// A plan, and what the file says about it.
#[derive(Clone, Debug)]
pub struct Algorithm {
    /// The messages.
    pub recipe: Recipe,
    /// Its name.
    pub name: String,
    /// `Simple` or `LL`.
    pub protocol: String,
    /// Operations of all thread blocks.
    pub steps: usize,
    /// The file calls its collective by another name than those that are known: a workload says how its bytes count.
    pub custom: bool,
}

/// Is this the beginning of such a file?
pub fn is_plan(text: &str) -> bool {
    text.trim_start().starts_with('{')
        && ["\"gpus\"", "\"threadblocks\"", "\"ops\""].iter().all(|key| text.contains(key))
}

/// Parses a file; a collective without a known name counts as `custom`.
///
/// # Errors
/// With the file, what is wrong, and a remedy.
pub fn parse_as(file: &str, text: &str, custom: Collective) -> Result<Algorithm, Problems> {
    let plan: Plan = serde_json::from_str(text).map_err(|error| {
        let line = Some(error.line()).filter(|line| *line > 0);
        problem(file, line, "", format!("is no plan of MSCCL++: {error}"), "was the file cut off?")
    })?;
    let wrong = |what: String, remedy: &str| problem(file, None, "", what, remedy);
    let name: String = plan.collective.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    let known = match name.as_str() {
        "allreduce" => Some(Collective::AllReduce),
        "allgather" => Some(Collective::AllGather),
        "reducescatter" => Some(Collective::ReduceScatter),
        "alltoall" => Some(Collective::AllToAll),
        "broadcast" => Some(Collective::Broadcast),
        "reduce" => Some(Collective::Reduce),
        _ => None,
    };
    if !(2..=GPUS_MAX).contains(&plan.gpus.len()) {
        return Err(wrong(format!("has {} GPUs", plan.gpus.len()), &format!("write 2 to {GPUS_MAX}")));
    }
    let chunks = plan.gpus.iter().map(|gpu| gpu.input_chunks.max(gpu.output_chunks)).max().unwrap_or(0);
    if !(1..=CHUNKS_MAX).contains(&chunks) {
        return Err(wrong(format!("cuts its buffers into {chunks} chunks"), &format!("write 1 to {CHUNKS_MAX}")));
    }
    let mut made = Made { chunks, ..Made::default() };
    made.nodes = vec![Vec::new(); plan.gpus.len()];
    for (place, gpu) in plan.gpus.iter().enumerate() {
        if gpu.id as usize != place {
            return Err(wrong(format!("has GPU {} at place {place}", gpu.id), "write the GPUs in order, from 0 on"));
        }
        for (number, block) in gpu.threadblocks.iter().enumerate() {
            let (pending, waited, barriers) = Default::default();
            let mut writer =
                Writer { made: &mut made, plan: &plan, gpu, block, previous: None, pending, waited, barriers };
            let done = writer.ops(&block.ops);
            done.map_err(|(what, remedy)| wrong(format!("GPU {place}, thread block {number}: {what}"), remedy))?;
        }
    }
    let steps = made.steps;
    let recipe = made.recipe(known.unwrap_or(custom)).map_err(|(what, remedy)| wrong(what, remedy))?;
    Ok(Algorithm { recipe, name: plan.name, protocol: plan.protocol, steps, custom: known.is_none() })
}

/// A complaint, and a remedy.
type Wrong = (String, &'static str);

impl Algorithm {
    /// The file's contents and our assumptions, as lines of text.
    pub fn describe(&self) -> String {
        let (kind, custom) = match (self.custom, self.recipe.collective()) {
            (true, _) => (
                "all-to-all",
                "; its collective is custom: it runs with any kind, and size is the buffer of all its chunks",
            ),
            (false, Collective::AllReduce) => ("all-reduce", ""),
            (false, Collective::AllGather) => ("all-gather", ""),
            (false, Collective::ReduceScatter) => ("reduce-scatter", ""),
            (false, Collective::AllToAll) => ("all-to-all", ""),
            (false, _) => ("broadcast", ""),
        };
        format!(
            "an execution plan of MSCCL++ (`{}`, {}): {kind} of {} GPUs in {} chunks; {} operations, {} messages over {} channels \
             between GPUs\n\
             assumed: every GPU has a host of its own; a signal is a message of a byte; memory that is read is sent by its owner at \
             the signal before; copies and sums of a GPU take no time{custom}\n\
             to run it: [workload]\n         kind = \"{kind}\"\n         algorithm = \"msccl\"\n         file = \"FILE\"\n",
            self.name,
            if self.protocol.is_empty() { "no protocol" } else { &self.protocol },
            self.recipe.ranks(),
            self.recipe.blocks(),
            self.steps,
            self.recipe.messages().len(),
            self.recipe.channels().len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two GPUs: each puts its chunk into the other's output, signals, waits, and reads a chunk of the other.
    const PLAN: &str = r#"{"name": "swap", "collective": "allgather", "protocol": "Simple", "gpus": [
      {"id": 0, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0, "threadblocks": [{"id": 0, "ops": [
        {"name": "put", "src_buff": [{"type": "i", "index": 0, "size": 1}], "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}],
         "channel_ids": [0], "channel_type": "memory"},
        {"name": "signal", "channel_ids": [0], "channel_type": "memory"},
        {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
        {"name": "get", "src_buff": [{"buffer_id": 0, "index": 1, "size": 1}], "dst_buff": [{"type": "o", "index": 1, "size": 1}],
         "channel_ids": [0], "channel_type": "memory"}],
        "channels": [{"channel_type": "memory", "channel_ids": [0]}],
        "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]}],
       "channels": [{"channel_type": "memory", "connected_to": [1]}],
       "remote_buffers": [{"rank": 1, "type": "o", "access_channel_types": ["memory"]}]},
      {"id": 1, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0, "threadblocks": [{"id": 0, "ops": [
        {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
        {"name": "signal", "channel_ids": [0], "channel_type": "memory"}],
        "channels": [{"channel_type": "memory", "channel_ids": [0]}], "remote_buffer_refs": []}],
       "channels": [{"channel_type": "memory", "connected_to": [0]}], "remote_buffers": []}]}"#;

    #[test]
    fn writes_signals_and_reads_become_messages() {
        assert!(is_plan(PLAN));
        let made = parse_as("p.json", PLAN, Collective::AllToAll).expect("sound");
        let ends: Vec<(u32, u32)> = made.recipe.messages().iter().map(|one| (one.from, one.to)).collect();
        // The put, the signal, what is read, and the signal of the other GPU.
        assert_eq!(ends, [(0, 1), (0, 1), (1, 0), (1, 0)]);
        let lengths: Vec<u64> = (0..4).map(|message| made.recipe.length(message, 2000)).collect();
        assert_eq!(lengths, [1000, 1, 1000, 1]);
        // One after the other: the signal and the put at once, the signal back, and then the read.
        let steps =
            made.recipe.bound(2000, |_| strandway_proto::Span::ZERO, |_, _, _| strandway_proto::Span::from_us(1));
        assert_eq!(steps, strandway_proto::Span::from_us(2));
        assert!(
            made.describe().contains("all-gather of 2 GPUs in 2 chunks; 6 operations, 4 messages"),
            "{}",
            made.describe()
        );
    }

    #[test]
    fn plans_that_cannot_be_read_are_explained() {
        for (from, to, said) in [
            ("\"put\"", "\"glres\"", "in the switch of a server"),
            ("\"put\"", "\"fly\"", "`fly` is no operation"),
            ("\"wait\", \"channel_ids\": [0]", "\"wait\", \"channel_ids\": [7]", "names a channel that is not there"),
            ("\"connected_to\": [1]", "\"connected_to\": [5]", "a channel leads to GPU 5"),
            ("\"rank\": 1", "\"rank\": 0", "a remote buffer is at GPU 0"),
            ("\"signal\", \"channel_ids\": [0]", "\"nop\", \"channel_ids\": [0]", "that is never sent"),
            ("\"id\": 1, \"input", "\"id\": 4, \"input", "has GPU 4 at place 1"),
            ("0, \"index\": 0, \"size\": 1", "0, \"index\": 0, \"size\": 4000000000", "a buffer of 4000000000 chunks"),
        ] {
            let text = PLAN.replacen(from, to, 1);
            let error = parse_as("p.json", &text, Collective::AllToAll).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
        for end in (0..PLAN.len()).step_by(7) {
            assert!(parse_as("p.json", &PLAN[..end], Collective::AllToAll).is_err(), "{end}");
        }
    }
}
