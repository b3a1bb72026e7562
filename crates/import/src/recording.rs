//! Recordings of process groups: a folder with a file for each rank (`rank-R.jsonl`), as `STRANDWAY_RECORD` makes it.
//! docs/replay.md has the format.
//!
//! The time between the calls of a program, without its waits, is computation. A call begins when the
//! program makes it; what the program does after it has waited for a call comes after that call.

use super::trace::{
    ANY, BYTES_MAX, Does, Kind, OPERATIONS_MAX, Operation, RANKS_MAX, RankTrace, SPAN_MAX_NS, Trace, problem,
};
use crate::problem::Problems;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use strandway_proto::units::Span;

/// The version of the format.
const VERSION: u64 = 1;

/// Limit on the bytes of a line: ours. A group of 131,072 ranks takes 5 MB.
const LINE_MAX: u64 = 16 << 20;

/// The times of recorded collectives of one kind. A collective lasts from its begin at the first rank until its end at
/// the last one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recorded {
    /// The kind.
    pub kind: Kind,
    /// Number of them.
    pub count: u64,
    /// Mean time.
    pub mean_us: f64,
    /// Longest time.
    pub max_us: f64,
}

fn file_of(folder: &Path, rank: u32) -> PathBuf {
    folder.join(format!("rank-{rank}.jsonl"))
}

/// Is this a folder with a recording?
pub fn is_recording(path: &Path) -> bool {
    file_of(path, 0).is_file()
}

/// A call of a rank.
#[derive(Clone, Debug)]
struct Posted {
    line: usize,
    us: f64,
    group: String,
    what: String,
    bytes: u64,
    /// Root, receiver or sender.
    other: Option<u32>,
    tag: u32,
    start: Option<f64>,
    end: Option<f64>,
}

/// The recording of one rank.
#[derive(Default)]
struct RankFile {
    process: String,
    ranks: u32,
    unix_us: f64,
    groups: BTreeMap<String, Vec<String>>,
    calls: BTreeMap<u64, Posted>,
    /// Begin and end of each wait, the call, and whether it had ended.
    waits: Vec<(f64, f64, u64, bool)>,
}

/// Reads a recording.
///
/// # Errors
/// With file, line and a remedy.
pub fn read(folder: &Path) -> Result<Trace, Problems> {
    let first = read_rank(&file_of(folder, 0), 0)?;
    let name = folder.display().to_string();
    if first.ranks < 2 || first.ranks > RANKS_MAX {
        let what = format!("has {} ranks", first.ranks);
        return Err(problem(&name, None, "", what, &format!("2 to {RANKS_MAX} are possible")));
    }
    let count = first.ranks;
    let mut ranks = vec![first];
    for rank in 1..count {
        let next = read_rank(&file_of(folder, rank), rank)?;
        if next.ranks != count {
            let what = format!("is of a run of {} ranks, and rank 0 of one of {count}", next.ranks);
            return Err(problem(
                &file_of(folder, rank).display().to_string(),
                None,
                "",
                what,
                "record into an empty folder",
            ));
        }
        ranks.push(next);
    }
    Maker::new(&name, &ranks)?.trace(&ranks)
}

/// A line, read.
struct Line<'a> {
    file: &'a str,
    number: usize,
    value: Value,
}

impl Line<'_> {
    fn wrong(&self, what: impl Into<String>) -> Problems {
        problem(self.file, Some(self.number), "", what, "take the file as STRANDWAY_RECORD has written it")
    }

    fn number(&self, key: &str) -> Result<u64, Problems> {
        self.value[key].as_u64().ok_or_else(|| self.wrong(format!("{key} is no whole number")))
    }

    fn rank(&self, key: &str) -> Result<u32, Problems> {
        u32::try_from(self.number(key)?).map_err(|_| self.wrong(format!("{key} is too large")))
    }

    fn us(&self, key: &str) -> Result<f64, Problems> {
        let us = self.value[key].as_f64().filter(|us| (0.0..SPAN_MAX_NS as f64 / 1e3).contains(us));
        us.ok_or_else(|| self.wrong(format!("{key} is no time in us")))
    }

    fn text(&self, key: &str) -> Result<String, Problems> {
        self.value[key].as_str().map(str::to_string).ok_or_else(|| self.wrong(format!("{key} is no text")))
    }
}

fn read_rank(path: &Path, rank: u32) -> Result<RankFile, Problems> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        problem(&file, None, "", format!("cannot be read: {error}"), "a recording has a file for each rank")
    };
    let mut bytes = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut read = RankFile::default();
    let mut text = String::new();
    for number in 1.. {
        text.clear();
        if bytes.by_ref().take(LINE_MAX).read_line(&mut text).map_err(unreadable)? == 0 {
            break;
        }
        // A process that was killed may leave half a line at the end.
        if !text.ends_with('\n') {
            break;
        }
        let wrong = |what: String| problem(&file, Some(number), "", what, "take the file as it was written");
        let value: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
        let line = Line { file: &file, number, value };
        if number == 1 {
            if line.number("strandway_recording")? != VERSION {
                return Err(line.wrong(format!("is a recording of a version other than {VERSION}")));
            }
            if line.rank("rank")? != rank {
                return Err(line.wrong("is of another rank than its name says"));
            }
            (read.ranks, read.process) = (line.rank("ranks")?, line.text("process")?);
            read.unix_us = line.number("unix_us")? as f64;
            continue;
        }
        read.take(&line)?;
        if read.calls.len() > OPERATIONS_MAX {
            return Err(line.wrong(format!("has more than {OPERATIONS_MAX} calls")));
        }
    }
    if read.ranks == 0 {
        return Err(problem(&file, None, "", "is empty", "did the program form a group?"));
    }
    Ok(read)
}

impl RankFile {
    fn take(&mut self, line: &Line<'_>) -> Result<(), Problems> {
        let has = |key: &str| line.value.get(key).is_some();
        if has("members") {
            let members = line.value["members"].as_array();
            let members = members.and_then(|all| all.iter().map(|one| one.as_str().map(str::to_string)).collect());
            self.groups.insert(line.text("group")?, members.ok_or_else(|| line.wrong("members is no list of texts"))?);
        } else if has("post") {
            let what = line.text("what")?;
            let other = match what.as_str() {
                "send" => Some(line.rank("to")?),
                "recv" if line.value["from"].is_null() => None,
                "recv" => Some(line.rank("from")?),
                _ => Some(line.rank("root")?),
            };
            let tag = if has("tag") { line.rank("tag")? } else { 0 };
            let bytes = line.number("bytes")?;
            if bytes > BYTES_MAX {
                return Err(line.wrong(format!("more than {BYTES_MAX} bytes")));
            }
            let posted = Posted {
                line: line.number,
                us: line.us("us")?,
                group: line.text("group")?,
                what,
                bytes,
                other,
                tag,
                start: None,
                end: None,
            };
            self.calls.insert(line.number("post")?, posted);
        } else if has("wait") {
            let ended = line.value["ended"].as_bool().unwrap_or(false);
            self.waits.push((line.us("us")?, line.us("until_us")?, line.number("wait")?, ended));
        } else if has("start") || has("end") {
            let is_end = has("end");
            let number = line.number(if is_end { "end" } else { "start" })?;
            let us = line.us("us")?;
            let call =
                self.calls.get_mut(&number).ok_or_else(|| line.wrong(format!("call {number} was never made")))?;
            *if is_end { &mut call.end } else { &mut call.start } = Some(us);
            if line.value["failed"].as_bool() == Some(true) {
                let what = format!("call {number} ({}) failed", call.what);
                return Err(problem(line.file, Some(line.number), "", what, "record a run that ends well"));
            }
        }
        // Other lines are of later versions, and say more.
        Ok(())
    }
}

/// A collective of all its ranks: when it began at the first one, and ended at the last one, since the first rank
/// began.
struct Seen {
    kind: Kind,
    begin: f64,
    end: f64,
}

struct Maker<'a> {
    name: &'a str,
    /// The rank of each process.
    rank_of: BTreeMap<&'a str, u32>,
    /// When the first call of any rank was made, in us since 1970.
    zero: f64,
    groups: Vec<Vec<u32>>,
    group_of: BTreeMap<Vec<u32>, u32>,
    tags: BTreeMap<(String, u32), u32>,
    seen: BTreeMap<(String, u64), Seen>,
    last: f64,
}

impl<'a> Maker<'a> {
    fn new(name: &'a str, ranks: &'a [RankFile]) -> Result<Maker<'a>, Problems> {
        let firsts = ranks.iter().filter_map(|rank| Some(rank.unix_us + rank.calls.values().next()?.us));
        let zero = firsts.fold(f64::INFINITY, f64::min);
        if !zero.is_finite() {
            return Err(problem(name, None, "", "has no calls", "record a run with collectives"));
        }
        let rank_of = ranks.iter().map(|rank| rank.process.as_str()).zip(0..).collect();
        Ok(Maker {
            name,
            rank_of,
            zero,
            groups: Vec::new(),
            group_of: BTreeMap::new(),
            tags: BTreeMap::new(),
            seen: BTreeMap::new(),
            last: 0.0,
        })
    }

    fn trace(mut self, ranks: &[RankFile]) -> Result<Trace, Problems> {
        let mut made = Vec::with_capacity(ranks.len());
        for (rank, file) in (0..).zip(ranks) {
            made.push(self.rank(rank, file)?);
        }
        let mut trace = Trace {
            file: self.name.to_string(),
            format: "a recording of process groups",
            noun: "line",
            ranks: made,
            groups: self.groups,
            recorded: recorded(self.seen.values()),
            recorded_us: Some(self.last),
            assumed: vec![
                "time in which a program neither makes a call nor waits for one is computation".into(),
                "the clocks of the ranks' hosts agree".into(),
            ],
            ..Trace::default()
        };
        trace.sort()?;
        Ok(trace)
    }

    /// The operations of one rank: its calls, and its computation between them.
    fn rank(&mut self, rank: u32, file: &RankFile) -> Result<RankTrace, Problems> {
        let path = file_of(Path::new(self.name), rank).display().to_string();
        let offset = file.unix_us - self.zero;
        // Posts and waits, in the order of time; a post takes none.
        let mut events: Vec<(f64, f64, u64, Option<bool>)> =
            file.calls.iter().map(|(&number, call)| (call.us, call.us, number, None)).collect();
        events.extend(file.waits.iter().map(|&(from, until, number, ended)| (from, until, number, Some(ended))));
        events.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
        let mut made = RankTrace::default();
        let mut place_of: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut last, mut busy, mut collectives): (Option<u32>, f64, BTreeMap<&str, u64>) =
            (None, -offset, BTreeMap::new());
        for (from, until, number, wait) in events {
            let call = file.calls.get(&number);
            let Some(call) = call else {
                return Err(problem(
                    &path,
                    None,
                    "",
                    format!("waits for call {number}, which was never made"),
                    "take the file as it was written",
                ));
            };
            let id = call.line as u64;
            if from - busy > 1e-3 {
                let span = Span(((from - busy) * 1e6) as u64);
                let before = last.replace(made.operations.len() as u32);
                made.add(Operation { id, does: Does::Compute { span, lane: 0 } }, before);
            }
            busy = busy.max(until);
            match wait {
                None => {
                    let does = self.does(&path, file, call)?;
                    place_of.insert(number, made.operations.len() as u32);
                    made.add(Operation { id, does }, last);
                    let end = call.end.ok_or_else(|| {
                        problem(
                            &path,
                            Some(call.line),
                            "",
                            format!("{} never ended", call.what),
                            "record a run that ends well",
                        )
                    })?;
                    self.last = self.last.max(end + offset);
                    if let Does::Collective { kind, .. } = does {
                        let turn = collectives.entry(&call.group).or_default();
                        let begin = call.start.unwrap_or(call.us) + offset;
                        let seen =
                            self.seen.entry((call.group.clone(), *turn)).or_insert(Seen { kind, begin, end: 0.0 });
                        (seen.begin, seen.end) = (seen.begin.min(begin), seen.end.max(end + offset));
                        *turn += 1;
                    }
                }
                Some(true) => {
                    let needs: Vec<u32> = last.into_iter().chain(place_of.get(&number).copied()).collect();
                    last = Some(made.operations.len() as u32);
                    made.add(Operation { id, does: Does::Compute { span: Span::ZERO, lane: 0 } }, needs);
                }
                Some(false) => {}
            }
        }
        Ok(made)
    }

    /// The action of a call, with the ranks of the whole run.
    fn does(&mut self, path: &str, file: &RankFile, call: &Posted) -> Result<Does, Problems> {
        let wrong = |what: String| problem(path, Some(call.line), "", what, "take the file as it was written");
        let members = file.groups.get(&call.group).ok_or_else(|| wrong(format!("group {} is unknown", call.group)))?;
        let members: Option<Vec<u32>> =
            members.iter().map(|member| self.rank_of.get(member.as_str()).copied()).collect();
        let mut members = members.ok_or_else(|| wrong("a group has a process of no rank".into()))?;
        let other = |at: u32| members.get(at as usize).copied().ok_or_else(|| wrong(format!("there is no rank {at}")));
        let next = self.tags.len() as u32;
        let tag = || (call.group.clone(), call.tag);
        let does = match (call.what.as_str(), call.other) {
            ("send", Some(to)) => {
                let tag = *self.tags.entry(tag()).or_insert(next);
                return Ok(Does::Send { to: other(to)?, bytes: call.bytes.max(1), tag });
            }
            ("recv", from) => {
                let tag = *self.tags.entry(tag()).or_insert(next);
                return Ok(Does::Receive { from: from.map(other).transpose()?.unwrap_or(ANY), tag });
            }
            ("all_reduce", _) => Kind::AllReduce,
            ("all_gather", _) => Kind::AllGather,
            ("reduce_scatter", _) => Kind::ReduceScatter,
            ("all_to_all", _) => Kind::AllToAll,
            ("broadcast", _) => Kind::Broadcast,
            ("reduce", _) => Kind::Reduce,
            ("gather", _) => Kind::Gather,
            ("scatter", _) => Kind::Scatter,
            ("barrier", _) => Kind::Barrier,
            (what, _) => return Err(wrong(format!("{what} is an unknown call"))),
        };
        // The first rank of a group is the root.
        let root = call.other.unwrap_or(0);
        other(root)?;
        let ranks = members.len() as u64;
        members.rotate_left(root as usize);
        let next = self.groups.len() as u32;
        let group = *self.group_of.entry(members.clone()).or_insert(next);
        if group == next {
            self.groups.push(members);
        }
        // A gather is given what one rank contributes.
        let bytes = if matches!(does, Kind::AllGather | Kind::Gather) { call.bytes / ranks } else { call.bytes };
        Ok(Does::Collective { group, kind: does, bytes })
    }
}

/// The times of collectives, by kind.
fn recorded<'a>(all: impl Iterator<Item = &'a Seen>) -> Vec<Recorded> {
    let mut kinds: BTreeMap<Kind, (u64, f64, f64)> = BTreeMap::new();
    for seen in all {
        let (count, sum, max) = kinds.entry(seen.kind).or_default();
        let time = seen.end - seen.begin;
        (*count, *sum, *max) = (*count + 1, *sum + time, max.max(time));
    }
    let of = |(kind, (count, sum, max_us)): (Kind, (u64, f64, f64))| Recorded {
        kind,
        count,
        mean_us: sum / count as f64,
        max_us,
    };
    kinds.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks: each computes for 100 us, starts an all-gather, computes for 50 us, waits until the all-gather is
    /// over, and computes for 25 us before it sends or receives a message. Rank 1 begins 10 us later.
    fn write(folder: &Path, edit: impl Fn(u32, String) -> String) {
        for rank in 0..2u32 {
            let (at, message) = (rank, if rank == 0 { "send\",\"to\":1" } else { "recv\",\"from\":null" });
            let text = format!(
                "{{\"strandway_recording\":1,\"rank\":{rank},\"ranks\":2,\"process\":\"p{rank}\",\"unix_us\":{}}}\n\
                 {{\"group\":\"g\",\"members\":[\"p0\",\"p1\"]}}\n\
                 {{\"post\":0,\"us\":0.0,\"group\":\"g\",\"what\":\"barrier\",\"bytes\":0,\"root\":0,\"algorithm\":\"direct\"}}\n\
                 {{\"start\":0,\"us\":1.0}}\n{{\"wait\":0,\"us\":0.0,\"until_us\":5.0,\"ended\":true}}\n\
                 {{\"end\":0,\"us\":5.0,\"failed\":false}}\n\
                 {{\"post\":1,\"us\":105.0,\"group\":\"g\",\"what\":\"all_gather\",\"bytes\":8000,\"root\":0,\"algorithm\":\"direct\"}}\n\
                 {{\"start\":1,\"us\":106.0}}\n{{\"end\":1,\"us\":200.0,\"failed\":false}}\n\
                 {{\"wait\":1,\"us\":155.0,\"until_us\":180.0,\"ended\":false}}\n\
                 {{\"wait\":1,\"us\":180.0,\"until_us\":200.0,\"ended\":true}}\n\
                 {{\"post\":2,\"us\":225.0,\"group\":\"g\",\"what\":\"{message},\"bytes\":40,\"tag\":7}}\n\
                 {{\"start\":2,\"us\":225.0}}\n{{\"end\":2,\"us\":230.0,\"failed\":false}}\n",
                1_000_000 + 10 * at
            );
            std::fs::write(file_of(folder, rank), edit(rank, text)).expect("written");
        }
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn calls_computation_and_waits_become_a_trace() {
        let folder = folder();
        write(folder.path(), |_, text| text);
        assert!(is_recording(folder.path()));
        let trace = read(folder.path()).expect("a trace");
        let us = |us: u64| Does::Compute { span: Span::from_us(us), lane: 0 };
        let gather = Does::Collective { group: 0, kind: Kind::AllGather, bytes: 4_000 };
        let barrier = Does::Collective { group: 0, kind: Kind::Barrier, bytes: 0 };
        let does: Vec<Does> = trace.ranks[0].operations.iter().map(|operation| operation.does).collect();
        let message = Does::Send { to: 1, bytes: 40, tag: 0 };
        assert_eq!(does, [barrier, us(0), us(100), gather, us(50), us(0), us(25), message]);
        // The program waits for the all-gather, the fourth operation, and then goes on.
        assert_eq!(trace.ranks[0].needs_of(5), [4, 3]);
        assert_eq!(trace.ranks[0].needs_of(6), [5]);
        // Rank 1 has 10 us of other work before its first call.
        assert_eq!(trace.ranks[1].operations[0].does, us(10));
        assert_eq!(trace.ranks[1].operations.last().expect("some").does, Does::Receive { from: ANY, tag: 0 });
        assert_eq!(trace.recorded_us, Some(240.0));
        let of = |kind| trace.recorded.iter().find(|one| one.kind == kind).copied();
        assert_eq!(
            of(Kind::AllGather),
            Some(Recorded { kind: Kind::AllGather, count: 1, mean_us: 104.0, max_us: 104.0 })
        );
    }

    #[test]
    fn wrong_recordings_are_named_with_file_and_line() {
        for (from, to, said) in [
            ("\"failed\":false", "\"failed\":true", "rank-0.jsonl:6: call 0 (barrier) failed; record a run that ends"),
            ("{\"end\":2,\"us\":230.0,\"failed\":false}\n", "", "send never ended"),
            ("\"strandway_recording\":1", "\"strandway_recording\":9", "a version other than 1"),
            ("\"ranks\":2", "\"ranks\":1", "has 1 ranks"),
            ("\"what\":\"all_gather\"", "\"what\":\"all_sing\"", "all_sing is an unknown call"),
            ("\"us\":105.0", "\"us\":-1", "us is no time"),
            ("\"root\":0", "\"root\":7", "there is no rank 7"),
            ("{\"group\":\"g\"", "{\"group\":\"h\"", "group g is unknown"),
            ("{\"start\":1,", "{\"start\":8,", "call 8 was never made"),
            ("{\"start\":1,", "{start:1,", "is no JSON"),
        ] {
            let folder = folder();
            write(folder.path(), |_, text| text.replacen(from, to, 1));
            let error = read(folder.path()).expect_err(said).to_string();
            assert!(error.contains(said), "{from}: {error}");
        }
        let folder = folder();
        write(folder.path(), |_, text| text);
        std::fs::remove_file(file_of(folder.path(), 1)).expect("removed");
        let error = read(folder.path()).expect_err("a rank is missing").to_string();
        assert!(error.contains("rank-1.jsonl") && error.contains("a file for each rank"), "{error}");
    }

    #[test]
    fn damaged_recordings_are_read_or_refused() {
        let folder = folder();
        write(folder.path(), |_, text| text);
        let text = std::fs::read(file_of(folder.path(), 0)).expect("written");
        let mut state = 1u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut refused = 0;
        for _ in 0..1_000 {
            let mut damaged = text.clone();
            for _ in 0..=next(3) {
                let at = next(damaged.len());
                match next(3) {
                    0 => damaged[at] = next(256) as u8,
                    1 => damaged.truncate(at.max(1)),
                    _ => damaged[at] = b"0123456789-.e\"{}[],:"[next(20)],
                }
            }
            std::fs::write(file_of(folder.path(), 0), damaged).expect("written");
            refused += u32::from(read(folder.path()).is_err());
        }
        assert!((500..1_000).contains(&refused), "{refused} of 1,000");
    }
}
