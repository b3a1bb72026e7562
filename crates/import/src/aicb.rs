//! AICB's own lists (`.csv`): one operation of rank 0 per line, all micro-batches in order, as aliyun/aicb writes them
//! (`log_analyzer/log.py`): before a run without times, after a run with the time of each operation in milliseconds.
//! Runs with pipelines have a list per stage (`stages.rs`).

mod shape;
mod stages;

use super::trace::{BYTES_MAX, Kind, RANKS_MAX, Trace, problem};
use crate::problem::Problems;
use shape::{Shape, Stage, assemble};
use std::collections::BTreeMap;
use strandway_proto::units::Span;

/// The columns that are read; a file may have others. `comm_group_size` may be missing.
const COLUMNS: [&str; 6] = ["comm_type", "comm_group", "comm_group_size", "msg_size", "stage", "_elapsed_time"];

/// The column with the size of a group.
const SIZE: usize = 2;

/// Limit on the lines of a file: ours. A public file has 183.
const LINES_MAX: usize = 1 << 20;

/// Groups in Megatron-LM's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Tensor,
    Expert,
    ExpertData,
    Data,
    All,
    /// The ranks of all stages at the same place.
    Pipeline,
    /// The first and the last stage at the same place.
    Embedding,
}

/// Is this the beginning of such a list?
pub fn is_list(text: &str) -> bool {
    text.lines().take(2).any(|line| line.trim_start().starts_with("comm_type,comm_group"))
}

/// The action of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Compute,
    Collective(Kind, Group),
    /// A message to the next stage, or to the previous one.
    Send {
        next: bool,
    },
    Receive {
        next: bool,
    },
}

/// A line, parsed.
struct Line {
    number: usize,
    does: Action,
    bytes: u64,
    span: Span,
}

/// The size of each group, if there is one, with the line that says it.
type Sizes = BTreeMap<Group, (Option<u32>, usize)>;

/// Parses a list. `gpus` is the number of ranks; without it the first line of the file says it.
///
/// # Errors
/// With file, line and a remedy.
pub fn parse(file: &str, text: &str, gpus: Option<u32>) -> Result<Trace, Problems> {
    let bad = |line: usize, value: &str, what: String, remedy: &str| problem(file, Some(line), value, what, remedy);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).peekable();
    if lines.peek().is_some_and(|(_, line)| stages::begins(line)) {
        return stages::parse(file, text, gpus);
    }
    let mut said = None;
    if let Some((number, line)) = lines.next_if(|(_, line)| line.trim_start().starts_with('[')) {
        said = Some(ranks_of(line).ok_or_else(|| {
            bad(number, line, "names no ranks".into(), "write [rank0 ~ rankN], N being the last rank")
        })?);
    }
    let (read, sizes) = read(file, &mut lines, false)?;
    build(file, read, sizes, gpus.or(said))
}

/// Reads the head of a list and its lines. `stages`: it is of one stage of several.
fn read(
    file: &str,
    lines: &mut dyn Iterator<Item = (usize, &str)>,
    stages: bool,
) -> Result<(Vec<Line>, Sizes), Problems> {
    let bad = |line: usize, value: &str, what: String, remedy: &str| problem(file, Some(line), value, what, remedy);
    let (number, head) = lines.next().unwrap_or((1, ""));
    let columns: Vec<&str> = head.split(',').map(str::trim).collect();
    let mut place = [None; COLUMNS.len()];
    for (name, place) in COLUMNS.iter().zip(&mut place) {
        *place = columns.iter().position(|column| column == name);
        if place.is_none() && *name != COLUMNS[SIZE] {
            return Err(bad(number, name, "is a column that is missing".into(), "keep AICB's first lines"));
        }
    }
    let mut read = Vec::new();
    let mut sizes = Sizes::new();
    for (number, line) in lines {
        if read.len() == LINES_MAX {
            return Err(bad(number, "", format!("is one line more than {LINES_MAX}"), "cut the list"));
        }
        let fields = fields(line);
        if fields.len() < columns.len() {
            let what = format!("has {} fields, and there are {} columns", fields.len(), columns.len());
            return Err(bad(number, "", what, "was the file cut off?"));
        }
        let at = |column: usize| place[column].map_or("", |place| fields[place].trim());
        let more = columns.iter().position(|column| *column == "additional").map_or("", |place| fields[place].trim());
        let does =
            action(at(0), at(1), more, stages).map_err(|(value, what, remedy)| bad(number, value, what, remedy))?;
        let Some(does) = does else { continue };
        let milliseconds = match at(5) {
            "" | "None" => 0.0,
            text => text
                .parse::<f64>()
                .ok()
                .filter(|ms| (0.0..1e9).contains(ms))
                .ok_or_else(|| bad(number, text, "is no time in milliseconds".into(), "write a number, or None"))?,
        };
        if does == Action::Compute {
            read.push(Line { number, does, bytes: 0, span: Span((milliseconds * 1e9).round() as u64) });
            continue;
        }
        let whole = |column: usize, most: u64| {
            let text = at(column);
            let fits = text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && (0.0..=most as f64).contains(n));
            let what = format!("is no {} from 0 to {most}", COLUMNS[column]);
            fits.map(|n| n as u64).ok_or_else(|| bad(number, text, what, "write a whole number"))
        };
        let Action::Collective(kind, group) = does else {
            let bytes = whole(3, BYTES_MAX)?.max(1);
            read.push(Line { number, does, bytes, span: Span::ZERO });
            continue;
        };
        // Micro tests have no sizes, and logs of runs write None for some groups.
        let size = if matches!(at(SIZE), "" | "None") { None } else { Some(whole(SIZE, RANKS_MAX.into())? as u32) };
        let bytes = if kind == Kind::Barrier { 0 } else { whole(3, BYTES_MAX)? };
        let first = sizes.entry(group).or_insert((size, number));
        if first.0.is_none() && size.is_some() {
            *first = (size, number);
        }
        if size.is_some_and(|size| first.0 != Some(size) || size == 0) {
            let what = format!("is not the size of this group in line {}", first.1);
            return Err(bad(number, at(SIZE), what, "a group has one size in the whole file"));
        }
        if bytes > 0 || kind == Kind::Barrier {
            read.push(Line { number, does, bytes, span: Span::ZERO });
        }
    }
    if read.is_empty() {
        return Err(bad(number, "", "is followed by no operation".into(), "was the file cut off?"));
    }
    Ok((read, sizes))
}

/// The number of ranks in `[rank0 ~ rank127]`.
fn ranks_of(line: &str) -> Option<u32> {
    let last = line.trim().strip_suffix(']')?.rsplit_once("rank")?.1;
    last.parse::<u32>().ok().filter(|last| *last < RANKS_MAX).map(|last| last + 1)
}

/// The fields of a line; commas in quotes and in brackets separate none.
fn fields(line: &str) -> Vec<&str> {
    let (mut fields, mut from, mut depth, mut quoted) = (Vec::new(), 0, 0i32, false);
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if !quoted && depth <= 0 => {
                fields.push(&line[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    fields.push(&line[from..]);
    fields
}

/// A field, what is wrong with it, and the remedy.
type Wrong<'a> = (&'a str, String, &'static str);

/// The action of a line; `None` if it has none. `more` says to which stage a message goes.
fn action<'a>(name: &'a str, group: &'a str, more: &'a str, stages: bool) -> Result<Option<Action>, Wrong<'a>> {
    let kind = match name.trim_start_matches("CommType.") {
        "epoch_end" => return Ok(None),
        "computation" => return Ok(Some(Action::Compute)),
        "all_reduce" => Kind::AllReduce,
        "all_gather" | "all_gather_into_tensor" => Kind::AllGather,
        "reduce_scatter" | "reduce_scatter_tensor" => Kind::ReduceScatter,
        "all_to_all" => Kind::AllToAll,
        "broadcast" => Kind::Broadcast,
        "reduce" => Kind::Reduce,
        "barrier" => Kind::Barrier,
        "isend" if stages && more.starts_with("send_") => return Ok(Some(Action::Send { next: more == "send_next" })),
        "irecv" if stages && more.starts_with("recv_") => {
            return Ok(Some(Action::Receive { next: more == "recv_next" }));
        }
        "isend" | "irecv" => {
            let what = "is a message between stages, and the list of rank 0 does not tell what other stages do";
            return Err((name, what.into(), "import the layers (.txt) of the same run, whose header has the stages"));
        }
        _ => return Err((name, "is no operation that is understood".into(), "correct comm_type")),
    };
    let group = match group.trim_start_matches("CommGroup.") {
        "tp_group" => Group::Tensor,
        "ep_group" | "ep_tp_group" => Group::Expert,
        "ep_dp_group" => Group::ExpertData,
        "dp_group" => Group::Data,
        "all" => Group::All,
        "pp_group" if stages => Group::Pipeline,
        "embedding_group" if stages => Group::Embedding,
        "pp_group" | "embedding_group" => {
            let what = "is a group of stages, and the list of rank 0 does not tell what other stages do";
            let remedy = "remove its lines if it has one rank, or import the layers (.txt) of the same run";
            return Err((group, what.into(), remedy));
        }
        _ => return Err((group, "is no group that is understood".into(), "correct comm_group")),
    };
    Ok(Some(Action::Collective(kind, group)))
}

/// The groups of all ranks, from the sizes that the list has. `lines`: the number of its operations.
fn shape(file: &str, lines: usize, sizes: &Sizes, gpus: Option<u32>) -> Result<Shape, Problems> {
    let size = |group: Group| sizes.get(&group).and_then(|(size, _)| *size);
    let unsized_group = |group: Group| sizes.get(&group).is_some_and(|(size, _)| size.is_none());
    let dp = size(Group::Data);
    let sized_tp = size(Group::Tensor).unwrap_or(1);
    let product = u64::from(sized_tp) * u64::from(dp.unwrap_or(1));
    let stated = gpus.or(size(Group::All));
    if stated.is_none()
        && let Some((_, line)) = sizes.iter().find(|(group, _)| unsized_group(**group)).map(|(_, found)| *found)
    {
        let what = "has a group without a size, and the file does not say the number of ranks";
        let remedy = "write it: gpus in [job], `strandway import --gpus N`, or a first line [rank0 ~ rankN]";
        return Err(problem(file, Some(line), "", what, remedy));
    }
    let ranks = stated.unwrap_or(u32::try_from(product).unwrap_or(u32::MAX));
    // A tensor group without a size has all ranks, or those that data groups leave.
    let tp = match dp {
        _ if !unsized_group(Group::Tensor) => sized_tp,
        Some(dp) => (ranks / dp.max(1)).max(1),
        None if sizes.contains_key(&Group::Data) => {
            let line = sizes.get(&Group::Tensor).map(|(_, line)| *line);
            let what = "is a tensor group without a size, and no data group has a size either";
            return Err(problem(file, line, "", what, "write comm_group_size for one of them"));
        }
        None => ranks,
    };
    let line = |group: Group| sizes.get(&group).map(|(_, line)| *line);
    let wrong = |group: Group, what: String| {
        let remedy = "correct comm_group_size, the first line or gpus: groups are those of Megatron-LM";
        Err(problem(file, line(group), "", what, remedy))
    };
    if !(1..=RANKS_MAX).contains(&ranks) {
        return wrong(Group::Data, format!("makes {ranks} ranks, and 1 to {RANKS_MAX} are possible"));
    }
    if !ranks.is_multiple_of(tp) {
        return wrong(Group::Tensor, format!("{ranks} ranks are no multiple of groups of {tp}"));
    }
    let copies = ranks / tp;
    if dp.is_some_and(|dp| dp != copies) {
        return wrong(
            Group::Data,
            format!("{ranks} ranks in tensor groups of {tp} make data groups of {copies}, not {}", dp.unwrap_or(1)),
        );
    }
    let ep = size(Group::Expert).unwrap_or_else(|| match size(Group::ExpertData) {
        Some(size) => (copies / size).max(1),
        None if unsized_group(Group::Expert) => copies,
        None => 1,
    });
    if !copies.is_multiple_of(ep) || size(Group::ExpertData).is_some_and(|size| size != copies / ep) {
        return wrong(Group::Expert, format!("{copies} copies of the model do not divide into expert groups of {ep}"));
    }
    if size(Group::All).is_some_and(|all| all != ranks) {
        return wrong(Group::All, format!("has another size than {ranks} ranks"));
    }
    if lines as u64 * u64::from(ranks) > super::trace::OPERATIONS_MAX as u64 {
        return wrong(Group::Data, format!("makes {} operations of all ranks", lines as u64 * u64::from(ranks)));
    }
    Ok(Shape { width: ranks as usize, tp: tp as usize, ep: ep as usize })
}

/// The trace of all ranks.
fn build(file: &str, lines: Vec<Line>, sizes: Sizes, gpus: Option<u32>) -> Result<Trace, Problems> {
    let shape = shape(file, lines.len(), &sizes, gpus)?;
    let Shape { width, tp, ep } = shape;
    let trace = Trace {
        file: file.to_string(),
        format: "a list of AICB (.csv)",
        noun: "line",
        assumed: [
            "every rank does what rank 0 does, one operation after the other; groups in Megatron-LM's order (tensor, expert, data)",
            "msg_size is the whole buffer; operations of 0 bytes and the end of an epoch take no time",
            "computations take their _elapsed_time (ms), and none if it is not there",
        ]
        .into_iter()
        .map(String::from)
        .chain(sizes.values().any(|(size, _)| size.is_none()).then(|| {
            format!(
                "groups without comm_group_size follow from the {width} ranks: tensor groups of {tp}, expert groups of {ep}, data \
                 groups of {}",
                width / tp
            )
        }))
        .collect(),
        ..Trace::default()
    };
    let stage = Stage { number: 1, ranks: (0..width as u32).collect(), lines, sizes };
    assemble(file, &[stage], &[shape], trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Does;

    const SMALL: &str = "[rank0 ~ rank7]\n\
        comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n\
        CommType.all_reduce,CommGroup.dp_group,4,8,init,None,None,,None,None,None,1\n\
        CommType.broadcast,CommGroup.tp_group,2,4096,forward_step,None,0,,None,None,None,1\n\
        CommType.computation,CommGroup.all,1,\"((1, 2), (3, 4))\",forward,None,None,,1.5,None,None,1\n\
        CommType.all_to_all,CommGroup.ep_group,2,8192,forward,None,None,,None,None,None,1\n\
        CommType.all_gather,CommGroup.dp_group,4,4096,step,None,None,,None,None,None,1\n\
        CommType.all_reduce,CommGroup.tp_group,2,0,step,None,None,,None,None,None,1\n\
        CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n";

    #[test]
    fn every_rank_does_what_rank_0_does_in_its_own_groups() {
        let trace = parse("a.csv", SMALL, None).expect("sound");
        assert_eq!((trace.ranks.len(), trace.ranks[5].operations.len()), (8, 5));
        let group = |rank: usize, place: usize| match trace.ranks[rank].operations[place].does {
            Does::Collective { group, .. } => trace.groups[group as usize].clone(),
            _ => Vec::new(),
        };
        assert_eq!((group(5, 0), group(5, 1), group(5, 3)), (vec![1, 3, 5, 7], vec![4, 5], vec![5, 7]));
        assert_eq!(trace.ranks[5].operations[2].does, Does::Compute { span: Span::from_us(1500), lane: 0 });
        let Does::Collective { kind: Kind::AllGather, bytes, .. } = trace.ranks[0].operations[4].does else {
            panic!("{:?}", trace.ranks[0].operations[4]);
        };
        assert_eq!((bytes, trace.ranks[0].operations[4].id, trace.ranks[0].needs_of(4)), (1024, 7, &[3][..]));
    }

    #[test]
    fn groups_without_a_size_follow_from_the_number_of_ranks() {
        let micro = "comm_type,comm_group,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n\
            CommType.all_reduce,CommGroup.dp_group,4096,warmup,None,None,,None,None,None,1\n";
        let trace = parse("a.csv", micro, Some(8)).expect("sound");
        assert_eq!((trace.ranks.len(), &trace.groups[..]), (8, &[(0..8).collect::<Vec<u32>>()][..]));
        assert!(trace.assumed.iter().any(|told| told.contains("data groups of 8")), "{:?}", trace.assumed);
        let said = parse("a.csv", micro, None).expect_err("no number of ranks").to_string();
        assert!(said.contains("a.csv:2: has a group without a size") && said.contains("--gpus N"), "{said}");
        // Some sizes are None: experts are divided over all data ranks.
        let log = SMALL.replace("ep_group,2,", "ep_group,None,").replace("tp_group,2,0", "tp_group,None,0");
        let trace = parse("a.csv", &log, None).expect("sound");
        let Does::Collective { group, .. } = trace.ranks[5].operations[3].does else { panic!("no collective") };
        assert_eq!(trace.groups[group as usize], [1, 3, 5, 7]);
        // Which of two groups without sizes is larger is unknown.
        let log = SMALL.replace("dp_group,4,", "dp_group,None,").replace("tp_group,2,", "tp_group,None,");
        let said = parse("a.csv", &log, None).expect_err("two unknown sizes").to_string();
        assert!(said.contains("a tensor group without a size"), "{said}");
    }

    #[test]
    fn bad_lists_are_explained() {
        for end in (0..SMALL.len()).filter(|end| SMALL.is_char_boundary(*end)) {
            if let Err(problems) = parse("a.csv", &SMALL[..end], None) {
                assert!(problems.to_string().starts_with("a.csv"), "{problems}");
            }
        }
        for (at, _) in SMALL.match_indices(|c: char| c.is_ascii_digit()) {
            for absurd in ["-7", "18446744073709551615", "1e300", "", "x", "NaN"] {
                let changed = format!("{}{absurd}{}", &SMALL[..at], &SMALL[at + 1..]);
                if let Err(problems) = parse("a.csv", &changed, None) {
                    assert!(problems.to_string().starts_with("a.csv"), "{problems}");
                }
            }
        }
        for (from, to, wanted) in [
            ("all_to_all", "isend", "a.csv:6: `CommType.isend`: is a message between stages"),
            ("all_to_all", "guess", "a.csv:6: `CommType.guess`: is no operation"),
            ("ep_group", "pp_group", "is a group of stages"),
            ("ep_group", "xp_group", "is no group"),
            ("dp_group,4,4096", "dp_group,2,4096", "a.csv:7: `2`: is not the size of this group in line 3"),
            ("rank7", "rank8", "9 ranks are no multiple of groups of 2"),
            ("rank7", "rank5", "make data groups of 3, not 4"),
            ("msg_size,", "", "`msg_size`: is a column that is missing"),
        ] {
            let said = parse("a.csv", &SMALL.replacen(from, to, 1), None).expect_err(to).to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
