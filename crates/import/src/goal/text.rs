//! GOAL as text: `num_ranks N`, then `rank R { ... }` with a statement per line.

use super::Each;
use crate::problem::Problems;
use crate::trace::{ANY, BYTES_MAX, Does, Operation, RANKS_MAX, RankTrace, SPAN_MAX_NS, problem};
use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use strandway_proto::units::Span;

/// Limit on the length of a line: ours.
const LINE_MAX: u64 = 1 << 16;

/// The remedy for a statement that is not understood.
const FORMS: &str =
    "write `[label:] send Nb to R [tag T] [cpu C] [nic N]`, `recv Nb from R ..`, `calc NS [cpu C]`, or `a requires b`";

/// A rank while it is read.
#[derive(Default)]
struct Reading {
    rank: u32,
    operations: Vec<Operation>,
    labels: BTreeMap<String, u32>,
    /// The waiting label, the awaited one, true for `irequires`, and the line.
    requires: Vec<(String, String, bool, usize)>,
}

/// The error of a statement: the wrong value, and the reason.
type Wrong = (String, String);

fn wrong(value: &str, what: &str) -> Wrong {
    (value.to_string(), what.to_string())
}

fn number(word: Option<&str>, name: &str, most: u64) -> Result<u64, Wrong> {
    let word = word.ok_or_else(|| wrong("", &format!("ends before {name}")))?;
    match word.parse::<u64>() {
        Ok(n) if n <= most && word.bytes().all(|byte| byte.is_ascii_digit()) => Ok(n),
        _ => Err(wrong(word, &format!("is no {name}: a whole number up to {most}"))),
    }
}

fn is_label(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads all ranks; returns their number.
pub(super) fn read(file: &str, bytes: &mut dyn BufRead, each: Each<'_>) -> Result<u32, Problems> {
    let mut ranks: Option<u32> = None;
    let mut next = 0;
    let mut reading: Option<Reading> = None;
    let mut comment = false;
    let mut line = Vec::new();
    let mut at = 0;
    loop {
        line.clear();
        at += 1;
        let bad = |(value, what): Wrong, remedy: &str| Err(problem(file, Some(at), &value, what, remedy));
        match bytes.take(LINE_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(length) if length as u64 > LINE_MAX => {
                return bad(wrong("", &format!("is longer than {LINE_MAX} bytes")), "write a statement per line");
            }
            Ok(_) => {}
            Err(error) => return bad(wrong("", &format!("cannot be read: {error}")), "check the file"),
        }
        let Ok(text) = std::str::from_utf8(&line) else {
            return bad(wrong("", "is not text"), "is it a GOAL schedule?");
        };
        let text = without_comments(text, &mut comment).replace('{', " { ").replace('}', " } ").replace(':', " : ");
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut rest = &words[..];
        while let Some((&first, more)) = rest.split_first() {
            match (first, &mut reading, ranks) {
                ("num_ranks", None, None) => {
                    match number(more.first().copied(), "number of ranks", RANKS_MAX.into()) {
                        Ok(count) if count > 0 => ranks = Some(count as u32),
                        Ok(_) => return bad(wrong("0", "is no number of ranks"), "write at least one"),
                        Err(said) => return bad(said, "write num_ranks N"),
                    }
                    rest = &more[1..];
                }
                ("rank", None, Some(count)) => {
                    let rank = match number(more.first().copied(), "rank", u64::from(count) - 1) {
                        Ok(rank) if rank == u64::from(next) => next,
                        Ok(rank) => {
                            let what = format!("is the wrong rank: the next one is {next}");
                            return bad((rank.to_string(), what), "write all ranks, in order");
                        }
                        Err(said) => return bad(said, "write rank R {"),
                    };
                    if more.get(1) != Some(&"{") {
                        return bad(wrong("", "has no { behind the rank"), "write rank R {");
                    }
                    reading = Some(Reading { rank, ..Reading::default() });
                    rest = &more[2..];
                }
                ("}", now @ Some(_), _) => {
                    let done = now.take().map(Reading::finish).unwrap_or_else(|| Ok(Default::default()));
                    match done {
                        Ok((rank, trace)) => each(rank, trace)?,
                        Err((line, label)) => {
                            let what = "is a label that this rank does not have";
                            return Err(problem(file, Some(line), &label, what, "name a label of the same rank"));
                        }
                    }
                    next += 1;
                    rest = more;
                }
                (_, Some(now), Some(count)) => match now.statement(rest, at, count) {
                    Ok(used) => rest = &rest[used..],
                    Err(said) => return bad(said, FORMS),
                },
                (_, None, None) => return bad(wrong(first, "comes before num_ranks"), "begin with num_ranks N"),
                _ => return bad(wrong(first, "is outside of a rank"), "write rank R { .. }"),
            }
        }
    }
    let end = |what: String, remedy: &str| Err(problem(file, Some(at), "", what, remedy));
    match ranks {
        _ if comment => end("the file ends in a comment".into(), "close it with */; was the file cut off?"),
        None => end("has no num_ranks".into(), "begin with num_ranks N"),
        Some(_) if reading.is_some() => {
            end(format!("the file ends in rank {next}"), "close it with }; was the file cut off?")
        }
        Some(count) if next < count => {
            end(format!("the file ends after {next} of {count} ranks"), "write all of them; was the file cut off?")
        }
        Some(count) => Ok(count),
    }
}

/// A line without its comments. `inside`: it begins in a comment; afterwards, that it ends in one.
fn without_comments(line: &str, inside: &mut bool) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    loop {
        if *inside {
            let Some((_, behind)) = rest.split_once("*/") else { return out };
            *inside = false;
            rest = behind;
        }
        let (short, long) = (rest.find("//"), rest.find("/*"));
        match (short, long) {
            (Some(short), long) if long.is_none_or(|long| short < long) => {
                out.push_str(&rest[..short]);
                return out;
            }
            (_, Some(long)) => {
                out.push_str(&rest[..long]);
                out.push(' ');
                *inside = true;
                rest = &rest[long + 2..];
            }
            _ => {
                out.push_str(rest);
                return out;
            }
        }
    }
}

impl Reading {
    /// Reads a statement; returns how many words it has.
    fn statement(&mut self, words: &[&str], line: usize, ranks: u32) -> Result<usize, Wrong> {
        let (label, mut used) = match words {
            [label, ":", ..] if is_label(label) => (Some(*label), 2),
            _ => (None, 0),
        };
        let word = |at: usize| words.get(at).copied();
        let does = match word(used) {
            Some(kind @ ("send" | "recv")) => {
                let sends = kind == "send";
                let size = word(used + 1).unwrap_or_default();
                // `8b`, or `8 b`.
                let joined = size.ends_with('b') || word(used + 2) != Some("b");
                let digits = size.strip_suffix('b').or((!joined).then_some(size));
                let bytes =
                    number(Some(digits.ok_or_else(|| wrong(size, "is no size: bytes, as in 8b"))?), "size", BYTES_MAX)?;
                used += if joined { 2 } else { 3 };
                let wanted = if sends { "to" } else { "from" };
                if word(used) != Some(wanted) {
                    return Err(wrong(word(used).unwrap_or_default(), &format!("stands where `{wanted}` is expected")));
                }
                let peer = match word(used + 1) {
                    Some("-1") if !sends => ANY,
                    other => number(other, "rank", u64::from(ranks) - 1)? as u32,
                };
                used += 2;
                let (tag, _, more) = options(&words[used..], !sends)?;
                used += more;
                if sends { Does::Send { to: peer, bytes, tag } } else { Does::Receive { from: peer, tag } }
            }
            Some("calc") => {
                let span = Span::from_ns(number(word(used + 1), "time in ns", SPAN_MAX_NS)?);
                used += 2;
                let (_, lane, more) = options(&words[used..], false)?;
                used += more;
                Does::Compute { span, lane }
            }
            Some(first) if label.is_none() && is_label(first) => {
                let start = match word(used + 1) {
                    Some("requires") => false,
                    Some("irequires") => true,
                    other => return Err(wrong(other.unwrap_or(first), "is no statement")),
                };
                let before = word(used + 2).filter(|label| is_label(label));
                let before = before.ok_or_else(|| wrong(word(used + 2).unwrap_or_default(), "is no label"))?;
                self.requires.push((first.to_string(), before.to_string(), start, line));
                return Ok(3);
            }
            other => return Err(wrong(other.unwrap_or_default(), "is no statement")),
        };
        let place = self.operations.len() as u32;
        if let Some(label) = label
            && self.labels.insert(label.to_string(), place).is_some()
        {
            return Err(wrong(label, "is the label of another operation of this rank"));
        }
        self.operations.push(Operation { id: line as u64, does });
        Ok(used)
    }

    /// The rank; or the line of a dependency, and a label that is not there.
    fn finish(self) -> Result<(u32, RankTrace), (usize, String)> {
        let mut needs: Vec<(u32, u32)> = Vec::new();
        let mut trace = RankTrace::default();
        for (later, before, start, line) in self.requires {
            let find = |label: String| self.labels.get(&label).copied().ok_or((line, label));
            let pair = (find(later)?, find(before)?);
            if start { trace.begins.push(pair) } else { needs.push(pair) }
        }
        needs.sort_unstable();
        needs.dedup();
        let mut needs = needs.into_iter().peekable();
        for (place, operation) in (0u32..).zip(self.operations) {
            let mine = std::iter::from_fn(|| needs.next_if(|(later, _)| *later == place).map(|(_, before)| before));
            trace.add(operation, mine);
        }
        Ok((self.rank, trace))
    }
}

/// Reads `tag T`, `cpu C` and `nic N`, in any order: the tag, the CPU, and the number of words.
fn options(words: &[&str], any_tag: bool) -> Result<(u32, u8, usize), Wrong> {
    let (mut tag, mut cpu, mut used) = (0, 0, 0);
    loop {
        let value = words.get(used + 1).copied();
        match words.get(used) {
            Some(&"tag") if any_tag && value == Some("-1") => tag = ANY,
            Some(&"tag") => tag = number(value, "tag", u64::from(u32::MAX) - 1)? as u32,
            Some(&"cpu") => cpu = number(value, "CPU", 255)? as u8,
            Some(&"nic") => drop(number(value, "NIC", 255)?),
            _ => return Ok((tag, cpu, used)),
        }
        used += 2;
    }
}
