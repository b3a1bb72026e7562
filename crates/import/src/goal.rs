//! Schedules in GOAL, the language of LogGOPSim and ATLAHS, as text and in binary form.
//!
//! Both are read once from front to back, rank by rank, so a file may be far larger than memory if only its contents
//! are asked for. The reader of reference is `src/LogGOPSim/txt2bin.re` of spcl/LogGOPSim.

mod binary;
mod text;

use super::trace::{Circle, Contents, Does, LANES_MAX, OPERATIONS_MAX, RankTrace, Trace, problem};
use crate::problem::Problems;
use std::io::BufRead;

pub use binary::MAGIC;

/// A function that takes the operations of each rank, in the order of ranks.
type Each<'a> = &'a mut dyn FnMut(u32, RankTrace) -> Result<(), Problems>;

/// Is this the beginning of a file in binary form?
pub fn is_binary(start: &[u8]) -> bool {
    let magic: Option<[u8; 8]> = start.get(..8).and_then(|bytes| bytes.try_into().ok());
    magic.is_some_and(|magic| [MAGIC, binary::SPOILT].contains(&u64::from_le_bytes(magic)))
}

/// Is this the beginning of a file in text form?
pub fn is_text(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    let mut rest = text.trim_start();
    loop {
        rest = match rest.strip_prefix("//") {
            Some(comment) => comment.split_once('\n').map_or("", |(_, rest)| rest),
            None => match rest.strip_prefix("/*") {
                Some(comment) => comment.split_once("*/").map_or("", |(_, rest)| rest),
                None => return rest.starts_with("num_ranks"),
            },
        }
        .trim_start();
    }
}

fn read(file: &str, mut bytes: impl BufRead, each: Each<'_>) -> Result<u32, Problems> {
    let start = bytes
        .fill_buf()
        .map_err(|error| problem(file, None, "", format!("cannot be read: {error}"), "check the path"))?;
    if is_binary(start) { binary::read(file, &mut bytes, each) } else { text::read(file, &mut bytes, each) }
}

/// Reads a whole schedule.
///
/// # Errors
/// With file, line (or rank and node), and a remedy; if there are too many operations to run; or if operations wait for
/// each other in a circle.
pub fn parse(file: &str, bytes: impl BufRead) -> Result<Trace, Problems> {
    let mut ranks = Vec::new();
    let mut operations = 0;
    let is_text = std::cell::Cell::new(true);
    let mut bytes = bytes;
    is_text.set(!bytes.fill_buf().is_ok_and(is_binary));
    read(file, bytes, &mut |number, mut rank| {
        fit_lanes(&mut rank).map_err(|cpus| {
            let what = format!("rank {number} computes on {cpus} CPUs besides CPU 0");
            problem(file, None, "", what, &format!("up to {} are possible: merge some", LANES_MAX - 1))
        })?;
        operations += rank.operations.len();
        if operations > OPERATIONS_MAX {
            let what = format!("has more than {OPERATIONS_MAX} operations");
            return Err(problem(file, None, "", what, "cut it to fewer iterations or ranks"));
        }
        ranks.push(rank);
        Ok(())
    })?;
    let mut trace = Trace {
        file: file.to_string(),
        format: if is_text.get() { "a GOAL schedule (text)" } else { "a GOAL schedule (binary)" },
        noun: if is_text.get() { "line" } else { "node" },
        ranks,
        assumed: assumed(),
        ..Trace::default()
    };
    trace.sort()?;
    Ok(trace)
}

/// Numbers the lanes of a rank without gaps if some number is no lane: CPU 0 stays lane 0.
///
/// # Errors
/// If there are too many: their number.
fn fit_lanes(rank: &mut RankTrace) -> Result<(), usize> {
    let of = |does: &Does| if let Does::Compute { lane, .. } = does { *lane } else { 0 };
    let mut used: Vec<u8> =
        rank.operations.iter().map(|operation| of(&operation.does)).filter(|cpu| *cpu > 0).collect();
    used.sort_unstable();
    used.dedup();
    if used.last().is_none_or(|last| *last < LANES_MAX) {
        return Ok(());
    }
    if used.len() >= usize::from(LANES_MAX) {
        return Err(used.len());
    }
    for operation in &mut rank.operations {
        if let Does::Compute { lane, .. } = &mut operation.does
            && let Ok(place) = used.binary_search(lane)
        {
            *lane = place as u8 + 1;
        }
    }
    Ok(())
}

fn assumed() -> Vec<String> {
    [
        "times are nanoseconds",
        "messages cost no CPU time, and the number of a NIC is not read: rank r has the NIC of its GPU",
        "a send ends when the receiver has acknowledged it",
        "messages match by sender and tag in the order in which they are sent; a rank that waits for any sender gets the message that \
         is sent first on a network without queues",
        "a message of 0 bytes has 1",
    ]
    .map(String::from)
    .to_vec()
}

/// The contents of a schedule as lines of text. Only one rank at a time is in memory.
///
/// # Errors
/// Those of [`parse`], without a limit on operations.
pub fn describe(file: &str, mut bytes: impl BufRead) -> Result<String, Problems> {
    let form = if bytes.fill_buf().is_ok_and(is_binary) { "binary" } else { "text" };
    let noun = if form == "text" { "line" } else { "node" };
    let mut contents = Contents::default();
    let ranks = read(file, bytes, &mut |number, rank| {
        rank.operations.iter().for_each(|operation| contents.count(&operation.does, 1));
        match rank.sorted() {
            Ok(_) => Ok(()),
            Err(Circle(ids)) => {
                let shown: Vec<String> = ids.iter().take(12).map(u64::to_string).collect();
                let what = format!("{noun}s of rank {number} wait for each other in a circle: {}", shown.join(", "));
                Err(problem(file, None, "", what, "remove one of these dependencies"))
            }
        }
    })?;
    Ok(format!(
        "a GOAL schedule ({form}): {ranks} ranks\n{}assumed: {}\nto run it: [job]\n         file = \"FILE\"\n",
        contents.summary(),
        assumed().join("; ")
    ))
}
