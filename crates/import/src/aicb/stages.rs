//! Lists of AICB for runs with pipelines: a list per stage, each below a line `[ pp_stage0: [rank0, rank1, ...] ]`.

use super::shape::{Shape, Stage, assemble};
use super::{Action, Group, Line, read};
use crate::problem::Problems;
use crate::trace::{OPERATIONS_MAX, RANKS_MAX, Trace, problem};

/// Does a list per stage begin here?
pub(super) fn begins(line: &str) -> bool {
    line.trim_start().strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with("pp_stage"))
}

/// The ranks in `[ pp_stage0: [rank0, rank1] ]`.
fn ranks_of(line: &str) -> Option<Vec<u32>> {
    let list = line.split_once(':')?.1.trim().strip_prefix('[')?.split_once(']')?.0;
    let rank = |word: &str| word.trim().strip_prefix("rank")?.parse::<u32>().ok().filter(|rank| *rank < RANKS_MAX);
    list.split(',').map(rank).collect()
}

/// Parses the lists of all stages. `gpus` is the number of ranks that a job wants; it must be that of the file.
///
/// # Errors
/// With file, line and a remedy.
pub(super) fn parse(file: &str, text: &str, gpus: Option<u32>) -> Result<Trace, Problems> {
    let bad = |line: usize, what: String, remedy: &str| problem(file, Some(line), "", what, remedy);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).peekable();
    let mut stages: Vec<Stage> = Vec::new();
    while let Some((number, head)) = lines.next() {
        let Some(ranks) = ranks_of(head).filter(|_| begins(head)) else {
            let what = "names no ranks of a stage".to_string();
            return Err(bad(number, what, "write [ pp_stage0: [rank0, rank1, ...] ] above the list of each stage"));
        };
        let mut mine = std::iter::from_fn(|| lines.next_if(|(_, line)| !begins(line)));
        let (read, sizes) = read(file, &mut mine, true)?;
        stages.push(Stage { number, ranks, lines: read, sizes });
    }
    check_ranks(file, &stages, gpus)?;
    let unpaired = leave_out_unpaired(&mut stages);
    let shapes = stages.iter().map(|stage| shape(file, stage)).collect::<Result<Vec<Shape>, Problems>>()?;
    let mut trace = Trace {
        file: file.to_string(),
        format: "lists of AICB (.csv), one per stage",
        noun: "line",
        assumed: vec![
            format!(
                "every rank of a stage does what its list says, one operation after the other; groups in Megatron-LM's order: {}",
                shapes[0].described()
            ),
            "a message goes to the rank at the same place of the next or the previous stage, and its sender does not wait for it"
                .into(),
            "msg_size is the whole buffer; operations of 0 bytes and the end of an epoch take no time; computations take their \
             _elapsed_time (ms), and none if it is not there"
                .into(),
        ],
        ..Trace::default()
    };
    if unpaired > 0 {
        let what = "collectives of the embedding group are in the list of one of its two stages only, and are left out";
        trace.assumed.push(format!("{unpaired} {what}"));
    }
    assemble(file, &stages, &shapes, trace)
}

/// Have all stages as many ranks, is each rank in one stage, and is their number the one that is wanted?
fn check_ranks(file: &str, stages: &[Stage], gpus: Option<u32>) -> Result<(), Problems> {
    let bad = |line: usize, what: String, remedy: &str| Err(problem(file, Some(line), "", what, remedy));
    let width = stages[0].ranks.len();
    let count = stages.len() * width;
    if let Some(stage) = stages.iter().find(|stage| stage.ranks.len() != width) {
        let what = format!("has {} ranks, and the first stage has {width}", stage.ranks.len());
        return bad(stage.number, what, "all stages have as many ranks");
    }
    let mut seen = vec![false; count];
    for stage in stages {
        for &rank in &stage.ranks {
            match seen.get_mut(rank as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    let what = format!("has rank {rank} twice, or beyond the {count} ranks of all stages");
                    return bad(stage.number, what, "each rank is in one stage, from rank0 on");
                }
            }
        }
    }
    if let Some(gpus) = gpus.filter(|gpus| *gpus as usize != count) {
        return bad(1, format!("has {count} ranks in its stages, not {gpus}"), "leave gpus out");
    }
    let operations: usize = stages.iter().map(|stage| stage.lines.len() * width).sum();
    if count < 1 || count > RANKS_MAX as usize || operations > OPERATIONS_MAX {
        return bad(1, format!("makes {count} ranks with {operations} operations"), "cut the list");
    }
    Ok(())
}

/// Leaves collectives of the embedding group out if the first and the last stage do not have as many: AICB's lists have
/// them in the last stage only. Returns their number in the lists.
fn leave_out_unpaired(stages: &mut [Stage]) -> usize {
    let is = |line: &Line| matches!(line.does, Action::Collective(_, Group::Embedding));
    let count = |stage: &Stage| stage.lines.iter().filter(|line| is(line)).count();
    let (first, last) = (count(&stages[0]), count(&stages[stages.len() - 1]));
    if first == last {
        return 0;
    }
    stages.iter_mut().for_each(|stage| stage.lines.retain(|line| !is(line)));
    first + last
}

/// The shape of a stage, whose groups must divide its ranks.
fn shape(file: &str, stage: &Stage) -> Result<Shape, Problems> {
    let width = stage.ranks.len();
    let size = |group: Group| stage.sizes.get(&group).and_then(|(size, _)| *size).map(|size| size as usize);
    let wrong = |group: Group, what: String| {
        let line = stage.sizes.get(&group).map_or(stage.number, |(_, line)| *line);
        Err(problem(file, Some(line), "", what, "correct comm_group_size, or the ranks of the stage"))
    };
    let tp = size(Group::Tensor).or(size(Group::Data).map(|dp| (width / dp.max(1)).max(1))).unwrap_or(1);
    if !width.is_multiple_of(tp) {
        return wrong(Group::Tensor, format!("{width} ranks of a stage are no multiple of groups of {tp}"));
    }
    let copies = width / tp;
    if let Some(dp) = size(Group::Data).filter(|dp| *dp != copies) {
        return wrong(
            Group::Data,
            format!("{width} ranks in tensor groups of {tp} make data groups of {copies}, not {dp}"),
        );
    }
    let ep = size(Group::Expert).or(size(Group::ExpertData).map(|size| (copies / size.max(1)).max(1))).unwrap_or(1);
    if !copies.is_multiple_of(ep) || size(Group::ExpertData).is_some_and(|size| size != copies / ep) {
        return wrong(Group::Expert, format!("{copies} copies of a stage do not divide into expert groups of {ep}"));
    }
    Ok(Shape { width, tp, ep })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use crate::trace::{Does, Kind};

    const HEAD: &str =
        "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n";

    fn two_stages() -> String {
        let row = |kind: &str, group: &str, size: u32, bytes: u64, more: &str| {
            format!("CommType.{kind},CommGroup.{group},{size},{bytes},x,None,None,{more},None,None,None,1\n")
        };
        let tp = row("all_reduce", "tp_group", 2, 64, "");
        let first = format!(
            "{tp}{}{}{}",
            row("isend", "pp_group", 1, 4096, "send_next"),
            row("irecv", "pp_group", 1, 4096, "recv_next"),
            row("all_reduce", "embedding_group", 2, 8, "")
        );
        let last = format!(
            "{}{tp}{}{}",
            row("irecv", "pp_group", 1, 4096, "recv_prev"),
            row("isend", "pp_group", 1, 4096, "send_prev"),
            row("all_reduce", "embedding_group", 2, 8, "")
        );
        let sums = row("all_reduce", "dp_group", 2, 16, "") + &row("all_reduce", "pp_group", 2, 8, "");
        format!(
            "[ pp_stage0: [rank0, rank1, rank2, rank3] ]\n{HEAD}{sums}{first}[ pp_stage1: [rank4, rank5, rank6, rank7] ]\n{HEAD}{sums}{last}"
        )
    }

    #[test]
    fn stages_send_to_the_same_place_of_the_next_stage() {
        let trace = parse("s.csv", &two_stages(), None).expect("sound");
        assert_eq!(trace.ranks.len(), 8);
        let does = |rank: usize, place: usize| trace.ranks[rank].operations[place].does;
        assert_eq!(does(1, 3), Does::Send { to: 5, bytes: 4096, tag: 1 });
        assert_eq!(does(5, 2), Does::Receive { from: 1, tag: 1 });
        assert_eq!(does(5, 4), Does::Send { to: 1, bytes: 4096, tag: 0 });
        assert_eq!(does(1, 4), Does::Receive { from: 5, tag: 0 });
        // The receive waits for the tensor group's sum, not for the message that was sent.
        assert_eq!(trace.ranks[1].needs_of(4), [2]);
        let group = |rank: usize, place: usize| match does(rank, place) {
            Does::Collective { group, kind: Kind::AllReduce, .. } => trace.groups[group as usize].clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!((group(6, 0), group(6, 1), group(6, 3)), (vec![4, 6], vec![2, 6], vec![6, 7]));
        assert_eq!(group(6, 5), [2, 6]);
    }

    #[test]
    fn wrong_stages_are_named() {
        let text = two_stages();
        for (from, to, said) in [
            ("rank7]", "rank3]", "has rank 3 twice"),
            (", rank7]", "]", "has 3 ranks, and the first stage has 4"),
            ("send_next", "send_prev", "s.csv:6: is a message of the previous stage"),
            ("rank6", "ronk6", "names no ranks of a stage"),
            ("tp_group,2", "tp_group,3", "no multiple of groups of 3"),
        ] {
            let error = parse("s.csv", &text.replacen(from, to, 1), None).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(parse("s.csv", &text, Some(9)).is_err());
        // As AICB writes it: the first stage does not have the embedding group's sum.
        let one = "CommType.all_reduce,CommGroup.embedding_group,2,8,x,None,None,,None,None,None,1\n";
        let trace = parse("s.csv", &text.replacen(one, "", 1), None).expect("sound");
        assert!(trace.assumed.iter().any(|told| told.starts_with("1 collectives of the embedding group")));
        assert_eq!((trace.ranks[0].operations.len(), trace.ranks[4].operations.len()), (5, 5));
        for end in (0..text.len()).step_by(3) {
            let _ = parse("s.csv", &text[..end], None);
        }
    }
}
