//! Algorithms of MSCCL (`.xml`): what the thread blocks of each GPU do, step by step. A file becomes a [`Recipe`].
//!
//! The writer is microsoft/msccl-tools (`msccl/language/ir.py`). A chunk is the buffer divided by `nchunksperloop`.
//! Thread blocks are sequences with one peer to send to and one to receive from; steps may also wait for a step of
//! another thread block of the same GPU.

use super::xml::{self, Element};
use crate::problem::Problems;
use std::collections::BTreeMap;
use strandway_collective::{Collective, Recipe, RecipeBuilder, RecipeError};

/// Limits: ours.
const GPUS_MAX: i64 = 1 << 16;
const CHUNKS_MAX: i64 = 1 << 20;
const STEPS_MAX: usize = 1 << 22;

/// An algorithm, and what the file says about it.
#[derive(Clone, Debug)]
pub struct Algorithm {
    /// The messages.
    pub recipe: Recipe,
    /// Its name.
    pub name: String,
    /// The protocol that it asks for: `Simple`, `LL` or `LL128`.
    pub protocol: String,
    /// Steps of all thread blocks.
    pub steps: usize,
    /// Thread blocks of all GPUs.
    pub blocks: usize,
    /// The file calls its collective `custom`: a workload says how its bytes count.
    pub custom: bool,
    /// The first step that the messages alone do not describe: its line, and what it does.
    elsewhere: Option<Elsewhere>,
}

/// Is this such a file?
pub fn is_algorithm(text: &str) -> bool {
    xml::root(text) == Some("algo")
}

/// A step of a thread block.
struct Step {
    receives: bool,
    reduces: bool,
    sends: bool,
    /// Its first chunk and their number.
    chunks: (u32, u32),
    /// The place of its first chunk in the working buffer: where it reads, and where it writes; `None` in scratch.
    places: [Option<i64>; 2],
    /// `cpy` or `re`: it copies or adds on its own GPU.
    local: Option<&'static str>,
    /// A thread block and a step of it.
    after: Option<(i64, i64)>,
    line: usize,
}

/// A thread block.
struct Block {
    send: i64,
    receive: i64,
    channel: i64,
    steps: Vec<Step>,
}

/// Parses a file called `file`.
///
/// # Errors
/// With file, line and a remedy.
pub fn parse(file: &str, text: &str) -> Result<Algorithm, Problems> {
    parse_as(file, text, Collective::AllToAll)
}

/// Parses a file; if it calls its collective `custom`, it counts as `custom`.
///
/// # Errors
/// As for [`parse`].
pub fn parse_as(file: &str, text: &str, custom: Collective) -> Result<Algorithm, Problems> {
    let document = xml::parse(file, text)?;
    let algo = Element { file, node: document.root_element() };
    if algo.name() != "algo" {
        return Err(algo.wrong(algo.name(), "is no algorithm of MSCCL", "the first element is <algo>"));
    }
    let ranks = algo.number("ngpus", None, 2, GPUS_MAX)?;
    let chunks = algo.number("nchunksperloop", None, 1, CHUNKS_MAX)?;
    let name = algo.text("coll").unwrap_or_default().replace(['_', '-'], "");
    let collective = match name.as_str() {
        "custom" => custom,
        "allreduce" => Collective::AllReduce,
        "allgather" => Collective::AllGather,
        "reducescatter" => Collective::ReduceScatter,
        "alltoall" => Collective::AllToAll,
        "broadcast" => Collective::Broadcast,
        "reduce" => Collective::Reduce,
        other => return Err(algo.wrong(other, "is no coll that is understood", "write, say, allreduce")),
    };
    let mut gpus: BTreeMap<i64, BTreeMap<i64, Block>> = BTreeMap::new();
    let (mut steps, mut blocks) = (0, 0);
    for gpu in algo.children().filter(|child| child.name() == "gpu") {
        let id = gpu.number("id", None, 0, ranks - 1)?;
        let mut mine = BTreeMap::new();
        for tb in gpu.children().filter(|child| child.name() == "tb") {
            let number = tb.number("id", None, 0, CHUNKS_MAX)?;
            let block = block(&tb, id, &Layout { collective, ranks, chunks })?;
            steps += block.steps.len();
            blocks += 1;
            if steps > STEPS_MAX {
                return Err(tb.wrong("", format!("there are more than {STEPS_MAX} steps"), "cut the algorithm"));
            }
            if mine.insert(number, block).is_some() {
                return Err(tb.wrong("", format!("is the second <tb id=\"{number}\"> of its GPU"), "number them"));
            }
        }
        if gpus.insert(id, mine).is_some() {
            return Err(gpu.wrong("", format!("is the second <gpu id=\"{id}\">"), "write each GPU once"));
        }
    }
    if gpus.len() as i64 != ranks {
        return Err(algo.wrong("", format!("has {} <gpu>, and ngpus is {ranks}", gpus.len()), "write all GPUs"));
    }
    let (recipe, elsewhere) = build(&algo, &gpus, chunks as u32, collective)?;
    let told = |name: &str| algo.text(name).unwrap_or_default().to_string();
    Ok(Algorithm {
        recipe,
        name: told("name"),
        protocol: told("proto"),
        steps,
        blocks,
        custom: name == "custom",
        elsewhere,
    })
}

/// Where chunks of the buffers of a GPU lie in the working buffer, in which all chunks of the collective have a place.
struct Layout {
    collective: Collective,
    ranks: i64,
    chunks: i64,
}

impl Layout {
    /// The place of a chunk: the input of an all-gather and the output of a reduce-scatter begin at the GPU's own part,
    /// and other inputs and outputs are one. `None` for scratch memory.
    fn place(&self, buffer: &str, offset: i64, gpu: i64) -> Option<i64> {
        let part = match (self.collective, buffer) {
            (Collective::AllGather, "i") | (Collective::ReduceScatter, "o") => gpu * (self.chunks / self.ranks),
            (_, "i" | "o") => 0,
            _ => return None,
        };
        Some((part + offset) % self.chunks)
    }
}

/// An effect of a step that the messages alone do not describe, and its line.
type Elsewhere = (usize, &'static str);

impl Step {
    /// Its effect besides sending and receiving chunks that keep their place of the working buffer. `sent`: the place
    /// that its sender reads, if it receives. A message has the same place at both ends.
    fn elsewhere(&self, sent: Option<i64>) -> Option<Elsewhere> {
        let [from, into] = self.places;
        let reads = self.sends || self.reduces;
        let what = match self.local {
            Some("re") => "adds on its own GPU",
            Some(_) if from != into || from.is_none() => "copies to another place of its own GPU",
            _ if (reads && from.is_none()) || (self.receives && into.is_none()) => "uses scratch memory",
            _ if self.receives && reads && from != into => "reads and writes different chunks",
            _ if self.receives && sent != into => "writes to another place than its sender reads",
            _ => return None,
        };
        Some((self.line, what))
    }
}

/// Parses a file for processes that send real numbers by its messages: each chunk keeps its place.
///
/// # Errors
/// As for [`parse`], or if a step does what messages between ranks do not say, such as a sum in scratch memory.
pub fn for_data(file: &str, text: &str) -> Result<Recipe, Problems> {
    let made = parse(file, text)?;
    if made.custom {
        let remedy = "process groups need a collective that they know, such as allreduce";
        return Err(super::trace::problem(file, None, "custom", "is no collective of process groups", remedy));
    }
    match made.elsewhere {
        None => Ok(made.recipe),
        Some((line, what)) => {
            let what = format!("{what}, which process groups do not do");
            let remedy = "write the algorithm in place, from chunks of input and output to the same chunks";
            Err(super::trace::problem(file, Some(line), "", what, remedy))
        }
    }
}

fn block(tb: &Element<'_, '_>, gpu: i64, layout: &Layout) -> Result<Block, Problems> {
    let (ranks, chunks) = (layout.ranks, layout.chunks);
    let (send, receive) = (tb.number("send", Some(-1), -1, ranks - 1)?, tb.number("recv", Some(-1), -1, ranks - 1)?);
    if send == gpu || receive == gpu {
        return Err(tb.wrong(&gpu.to_string(), "is the GPU itself", "name another GPU, or -1"));
    }
    let channel = tb.number("chan", Some(0), 0, CHUNKS_MAX)?;
    let mut steps = Vec::new();
    for step in tb.children().filter(|child| child.name() == "step") {
        step.number("s", Some(steps.len() as i64), steps.len() as i64, steps.len() as i64)?;
        let (receives, reduces, sends) = match step.text("type").unwrap_or_default() {
            "nop" | "cpy" | "re" => (false, false, false),
            "s" => (false, false, true),
            "r" => (true, false, false),
            "rcs" => (true, false, true),
            "rrs" | "rrcs" => (true, true, true),
            "rrc" => (true, true, false),
            other => return Err(step.wrong(other, "is no type of a step", "known: nop s r rcs rrs rrc rrcs cpy re")),
        };
        for (needs, peer, name) in [(sends, send, "send"), (receives, receive, "recv")] {
            if needs && peer < 0 {
                return Err(step.wrong("", format!("needs a peer, and its <tb> has no {name}"), "name a GPU there"));
            }
        }
        let count = step.number("cnt", Some(if sends || receives { 1 } else { 0 }), -1, chunks)?;
        if (sends || receives) && count < 1 {
            return Err(step.wrong(
                &count.to_string(),
                "is no number of chunks to send or receive",
                "write at least 1",
            ));
        }
        let offset = step.number("srcoff", Some(0), -1, CHUNKS_MAX)?.max(0);
        let (block, other) =
            (step.number("depid", Some(-1), -1, CHUNKS_MAX)?, step.number("deps", Some(-1), -1, CHUNKS_MAX)?);
        let after = (block >= 0 && other >= 0).then_some((block, other));
        let goal = step.number("dstoff", Some(0), -1, CHUNKS_MAX)?.max(0);
        let place = |buffer: &str, offset: i64| layout.place(step.text(buffer).unwrap_or("i"), offset, gpu);
        let places = [place("srcbuf", offset), place("dstbuf", goal)];
        let local = ["cpy", "re"].into_iter().find(|local| step.text("type") == Some(local));
        let first = if sends { places[0] } else { places[1] };
        let chunks = (first.unwrap_or(offset % chunks) as u32, count.max(0) as u32);
        steps.push(Step { receives, reduces, sends, chunks, places, local, after, line: step.line() });
    }
    Ok(Block { send, receive, channel, steps })
}

/// Messages on the way from one GPU to another over a channel: their number and chunks, the line of the step, and the
/// place that it reads.
type Messages = BTreeMap<(i64, i64, i64), Vec<(u32, u32, usize, Option<i64>)>>;

/// Adds all messages of the file to the algorithm.
fn messages(made: &mut RecipeBuilder, gpus: &BTreeMap<i64, BTreeMap<i64, Block>>, chunks: u32) -> Messages {
    // Whether the receiver adds a message to its own chunks: by its place among those of its channel.
    let mut reduces: BTreeMap<(i64, i64, i64), Vec<bool>> = BTreeMap::new();
    for (&gpu, blocks) in gpus {
        for block in blocks.values() {
            let adds = block.steps.iter().filter(|step| step.receives).map(|step| step.reduces);
            reduces.entry((block.receive, gpu, block.channel)).or_default().extend(adds);
        }
    }
    let mut messages = Messages::new();
    for (&gpu, blocks) in gpus {
        for block in blocks.values() {
            let key = (gpu, block.send, block.channel);
            for step in block.steps.iter().filter(|step| step.sends) {
                let there = messages.entry(key).or_default();
                let adds = reduces.get(&key).and_then(|adds| adds.get(there.len())).copied().unwrap_or(false);
                let (first, count) = step.chunks;
                let list: Vec<u32> = (0..count).map(|n| (first + n) % chunks).collect();
                let lane = block.channel as u32;
                let message = made.message((gpu as u32, block.send as u32, lane), &list, adds);
                there.push((message, count, step.line, step.places[0]));
            }
        }
    }
    messages
}

fn build(
    algo: &Element<'_, '_>,
    gpus: &BTreeMap<i64, BTreeMap<i64, Block>>,
    chunks: u32,
    collective: Collective,
) -> Result<(Recipe, Option<Elsewhere>), Problems> {
    let at = |line: usize, what: String, remedy: &str| super::trace::problem(algo.file, Some(line), "", what, remedy);
    let mut made = RecipeBuilder::new(gpus.len() as u32, chunks);
    let messages = messages(&mut made, gpus, chunks);
    let mut elsewhere = None;
    let mut taken: BTreeMap<(i64, i64, i64), usize> = BTreeMap::new();
    let mut sent: BTreeMap<(i64, i64, i64), usize> = BTreeMap::new();
    for (&gpu, blocks) in gpus {
        // The last node of each step is known before nodes are made: one or two nodes per step.
        let mut last_of: BTreeMap<(i64, i64), u32> = BTreeMap::new();
        let mut nodes = 0;
        for (&number, block) in blocks {
            for (place, step) in (0i64..).zip(&block.steps) {
                nodes += if step.receives && step.sends { 2 } else { 1 };
                last_of.insert((number, place), nodes - 1);
            }
        }
        for block in blocks.values() {
            let mut before: Option<u32> = None;
            for step in &block.steps {
                let mut after: Vec<u32> = before.into_iter().collect();
                if let Some(other) = step.after {
                    let Some(&node) = last_of.get(&other) else {
                        let what = format!("waits for step {} of <tb id=\"{}\">, which is not there", other.1, other.0);
                        return Err(at(step.line, what, "correct depid and deps"));
                    };
                    after.push(node);
                }
                let mut read = None;
                if step.receives {
                    let key = (block.receive, gpu, block.channel);
                    let place = taken.entry(key).or_insert(0);
                    let Some(&(message, count, line, from)) = messages.get(&key).and_then(|all| all.get(*place)) else {
                        let what = format!("waits for a message from GPU {} that is never sent", block.receive);
                        return Err(at(step.line, what, "correct send, recv and chan of the thread blocks"));
                    };
                    if count != step.chunks.1 {
                        let what = format!("receives {} chunks, and line {line} sends {count}", step.chunks.1);
                        return Err(at(step.line, what, "correct cnt"));
                    }
                    *place += 1;
                    read = from;
                    after = vec![made.node(gpu as u32, strandway_collective::recipe::Does::Receive(message), &after)];
                }
                elsewhere = elsewhere.or_else(|| step.elsewhere(read));
                let does = match step.sends {
                    true => {
                        let key = (gpu, block.send, block.channel);
                        let place = sent.entry(key).or_insert(0);
                        *place += 1;
                        strandway_collective::recipe::Does::Send(messages[&key][*place - 1].0)
                    }
                    false if step.receives => {
                        before = after.first().copied();
                        continue;
                    }
                    false => strandway_collective::recipe::Does::Nothing,
                };
                before = Some(made.node(gpu as u32, does, &after));
            }
        }
    }
    for (key, all) in &messages {
        if let Some((_, _, line, _)) = all.get(taken.get(key).copied().unwrap_or(0)) {
            let what = format!("sends a message to GPU {} that is never received", key.1);
            return Err(at(*line, what, "correct send, recv and chan of the thread blocks"));
        }
    }
    let recipe = made.finish("msccl", collective).map_err(|error| {
        let what = match error {
            RecipeError::Circle(gpu, _) => format!("steps of GPU {gpu} wait for each other in a circle"),
            other => other.to_string(),
        };
        algo.wrong("", what, "correct the steps")
    })?;
    Ok((recipe, elsewhere))
}

impl Algorithm {
    /// The file's contents and our assumptions, as lines of text.
    pub fn describe(&self) -> String {
        let collective = match self.recipe.collective() {
            Collective::AllReduce => "all-reduce",
            Collective::AllGather => "all-gather",
            Collective::ReduceScatter => "reduce-scatter",
            Collective::AllToAll => "all-to-all",
            Collective::Reduce => "reduce",
            _ => "broadcast",
        };
        let collective = if self.custom { "custom" } else { collective };
        let (kind, custom) = match self.custom {
            true => {
                ("all-to-all", "; a custom collective runs with any kind, and size is the buffer of all its chunks")
            }
            false => (collective, ""),
        };
        format!(
            "an algorithm of MSCCL (`{}`, {}): {collective} of {} GPUs in {} chunks; {} thread blocks, {} steps, {} messages over {} \
             channels between GPUs\n\
             assumed: every GPU has a host of its own; a step takes the time of its messages; the protocol is not modelled; a send \
             has happened as soon as it is handed out{custom}\n\
             to run it: [workload]\n         kind = \"{kind}\"\n         algorithm = \"msccl\"\n         file = \"FILE\"\n",
            self.name,
            if self.protocol.is_empty() { "no protocol" } else { &self.protocol },
            self.recipe.ranks(),
            self.recipe.blocks(),
            self.blocks,
            self.steps,
            self.recipe.messages().len(),
            self.recipe.channels().len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three GPUs: a chain of sums to the last one, and back.
    const CHAIN: &str = r#"<algo name="chain" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="3" coll="allreduce" inplace="1">
<gpu id="0" i_chunks="2" o_chunks="0" s_chunks="0">
<tb id="0" send="1" recv="-1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
</tb>
<tb id="1" send="-1" recv="1" chan="0">
<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="0" deps="0" hasdep="0"/>
</tb>
</gpu>
<gpu id="1">
<tb id="0" send="2" recv="0" chan="0">
<step s="0" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
</tb>
<tb id="1" send="0" recv="2" chan="0">
<step s="0" type="nop" cnt="0" depid="0" deps="0"/>
<step s="1" type="rcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
</tb>
</gpu>
<gpu id="2">
<tb id="0" send="1" recv="1" chan="0">
<step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
</tb>
</gpu>
</algo>
"#;

    #[test]
    fn steps_become_messages() {
        let made = parse("a.xml", CHAIN).expect("sound");
        assert_eq!((made.steps, made.blocks, made.recipe.messages().len()), (7, 5, 4));
        let ends: Vec<(u32, u32, bool)> = made.recipe.messages().iter().map(|p| (p.from, p.to, p.reduces)).collect();
        assert_eq!(ends, [(0, 1, true), (1, 2, true), (1, 0, false), (2, 1, false)]);
        // Four messages of the whole buffer behind each other.
        let span = made
            .recipe
            .bound(1000, strandway_proto::units::Span, |_, _, bytes| strandway_proto::units::Span(bytes + 5));
        assert_eq!(span.0, 4 * 1005);
        assert!(made.describe().contains("all-reduce of 3 GPUs in 2 chunks; 5 thread blocks, 7 steps, 4 messages"));
    }

    #[test]
    fn a_custom_collective_counts_as_the_workload_says() {
        let text = CHAIN.replace("coll=\"allreduce\"", "coll=\"custom\"");
        let made = parse_as("a.xml", &text, Collective::AllGather).expect("sound");
        assert!(made.custom && made.recipe.collective() == Collective::AllGather);
        assert!(made.describe().contains("custom of 3 GPUs"), "{}", made.describe());
        let said = for_data("a.xml", &text).expect_err("no data").to_string();
        assert!(said.contains("is no collective of process groups"), "{said}");
    }

    #[test]
    fn files_that_keep_every_chunk_in_its_place_serve_for_data() {
        let recipe = for_data("a.xml", CHAIN).expect("in place");
        assert_eq!(recipe.verify(), Ok(()));
        for (from, to, said) in [
            ("srcbuf=\"i\"", "srcbuf=\"s\"", "a.xml:4: uses scratch memory"),
            ("type=\"rrc\" srcbuf=\"i\" srcoff=\"0\"", "type=\"rrc\" srcbuf=\"i\" srcoff=\"1\"", "different chunks"),
            (
                "dstoff=\"0\" cnt=\"2\" depid=\"0\" deps=\"0\"",
                "dstoff=\"1\" cnt=\"2\" depid=\"0\" deps=\"0\"",
                "than its sender",
            ),
            ("type=\"nop\" cnt=\"0\"", "type=\"re\" cnt=\"0\"", "adds on its own GPU"),
            ("type=\"nop\" cnt=\"0\"", "type=\"cpy\" srcoff=\"1\" cnt=\"1\"", "copies to another place"),
        ] {
            let changed = CHAIN.replacen(from, to, 1);
            parse("a.xml", &changed).expect("for the simulator");
            let error = for_data("a.xml", &changed).expect_err(to).to_string();
            assert!(error.contains(said) && error.contains("write the algorithm in place"), "{error}");
        }
        // The file of another project, where it is at hand.
        let theirs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/msccl/custom_allreduce_8npus.xml");
        match std::fs::read_to_string(theirs) {
            Ok(text) => {
                assert_eq!(for_data("theirs.xml", &text).expect("in place").verify(), Ok(()));
            }
            Err(_) => println!("skipped: {theirs} is not here"),
        }
    }

    #[test]
    fn bad_files_are_explained() {
        for end in (0..CHAIN.len()).filter(|end| CHAIN.is_char_boundary(*end)) {
            if let Err(problems) = parse("a.xml", &CHAIN[..end]) {
                assert!(problems.to_string().starts_with("a.xml:"), "{problems}");
            }
        }
        for (at, _) in CHAIN.match_indices(|c: char| c.is_ascii_digit()) {
            for absurd in ["-7", "18446744073709551615", "99999999999999999999999", "", "x", "65536"] {
                let changed = format!("{}{absurd}{}", &CHAIN[..at], &CHAIN[at + 1..]);
                if let Err(problems) = parse("a.xml", &changed) {
                    assert!(problems.to_string().starts_with("a.xml:"), "{problems}");
                }
            }
        }
        for (from, to, wanted) in [
            ("type=\"rrcs\"", "type=\"rrx\"", "a.xml:12: `rrx`: is no type of a step"),
            ("type=\"rrcs\"", "type=\"rrc\"", "waits for a message from GPU 1 that is never sent"),
            ("type=\"rrc\"", "type=\"nop\"", "a.xml:12: sends a message to GPU 2 that is never received"),
            (
                "srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"2\"",
                "srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\"",
                "receives 2 chunks, and line 4 sends 1",
            ),
            ("depid=\"0\" deps=\"0\"", "depid=\"7\" deps=\"0\"", "waits for step 0 of <tb id=\"7\">"),
            ("coll=\"allreduce\"", "coll=\"magic\"", "`magic`: is no coll"),
            ("ngpus=\"3\"", "ngpus=\"4\"", "has 3 <gpu>, and ngpus is 4"),
            ("<tb id=\"0\" send=\"1\" recv=\"-1\"", "<tb id=\"0\" send=\"0\" recv=\"-1\"", "is the GPU itself"),
        ] {
            let said = parse("a.xml", &CHAIN.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(said.contains(wanted), "{said}");
        }
        // A step that waits for a later one.
        let circle = CHAIN.replacen("cnt=\"2\" depid=\"-1\" deps=\"-1\"", "cnt=\"2\" depid=\"1\" deps=\"0\"", 1);
        let said = parse("a.xml", &circle).expect_err("a circle").to_string();
        assert!(said.contains("wait for each other in a circle"), "{said}");
    }
}
