//! GOAL in binary form (LogGOPSim, `src/LogGOPSim/Parser.hpp`): all numbers little endian, nothing aligned.
//!
//! `u64` magic; then, with positions counted from here, `u32` ranks, `u8` CPUs, `u8` NICs, and begin and end of each
//! rank as `u64`. A rank: `u32` nodes, `u32` roots, a `u32` per root, 39 bytes per node, and the lists of all nodes
//! that wait for another one, as `u32` each.

use super::Each;
use crate::problem::Problems;
use crate::trace::{ANY, BYTES_MAX, Does, Operation, RANKS_MAX, RankTrace, SPAN_MAX_NS, problem};
use std::io::{BufRead, Read};
use strandway_proto::units::Span;

/// The first number of a file.
pub const MAGIC: u64 = 4223;
/// The magic of a file that its reader has changed in place.
pub(super) const SPOILT: u64 = 2342;

/// The length of a node.
const NODE: usize = 39;

/// Reads from front to back and knows the position.
struct Source<'a> {
    bytes: &'a mut dyn BufRead,
    at: u64,
}

/// The file ends here, or cannot be read.
struct Ended(String);

impl Source<'_> {
    fn exactly<const N: usize>(&mut self) -> Result<[u8; N], Ended> {
        let mut taken = [0; N];
        self.bytes.read_exact(&mut taken).map_err(|error| {
            Ended(match error.kind() {
                std::io::ErrorKind::UnexpectedEof => "the file ends".to_string(),
                _ => format!("cannot be read: {error}"),
            })
        })?;
        self.at += N as u64;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, Ended> {
        Ok(u32::from_le_bytes(self.exactly()?))
    }

    fn u64(&mut self) -> Result<u64, Ended> {
        Ok(u64::from_le_bytes(self.exactly()?))
    }

    /// Goes on to a later position.
    fn skip_to(&mut self, at: u64) -> Result<(), Ended> {
        let gap = at.saturating_sub(self.at);
        let skipped = std::io::copy(&mut (&mut *self.bytes).take(gap), &mut std::io::sink());
        match skipped {
            Ok(count) if count == gap => {
                self.at += gap;
                Ok(())
            }
            Ok(_) => Err(Ended("the file ends".to_string())),
            Err(error) => Err(Ended(format!("cannot be read: {error}"))),
        }
    }
}

/// Where the lists of a node begin and how long they are: of nodes that wait for its end, and for its begin.
type Lists = [(u32, u32); 2];

/// Reads all ranks; returns their number.
pub(super) fn read(file: &str, bytes: &mut dyn BufRead, each: Each<'_>) -> Result<u32, Problems> {
    const WHOLE: &str = "was the file copied whole? txt2bin makes it from a text";
    let bad = |what: String| problem(file, None, "", what, WHOLE);
    let mut source = Source { bytes, at: 0 };
    let head = |Ended(why): Ended| bad(format!("{why} in its head"));
    match source.u64().map_err(head)? {
        MAGIC => {}
        SPOILT => {
            let remedy = "make it anew with txt2bin: LogGOPSim changes a file while it runs it";
            return Err(problem(file, None, "", "was changed by the program that ran it", remedy));
        }
        other => return Err(bad(format!("begins with {other} and not with {MAGIC}"))),
    }
    source.at = 0;
    let ranks = source.u32().map_err(head)?;
    if ranks == 0 || ranks > RANKS_MAX {
        return Err(bad(format!("has {ranks} ranks, and 1 to {RANKS_MAX} are possible")));
    }
    source.exactly::<2>().map_err(head)?;
    let mut places = Vec::new();
    for _ in 0..ranks {
        places.push((source.u64().map_err(head)?, source.u64().map_err(head)?));
    }
    for (rank, (from, until)) in (0..ranks).zip(places) {
        let wrong = |what: String| bad(format!("rank {rank}: {what}"));
        if from < source.at || until < from {
            return Err(wrong(format!("lies at {from} to {until}, behind {}", source.at)));
        }
        source.skip_to(from).map_err(|Ended(why)| wrong(why))?;
        let trace = one(&mut source, ranks, until).map_err(wrong)?;
        each(rank, trace)?;
    }
    Ok(ranks)
}

/// One rank, which ends at `until`.
fn one(source: &mut Source<'_>, ranks: u32, until: u64) -> Result<RankTrace, String> {
    let cut = |Ended(why): Ended| why;
    let (nodes, roots) = (source.u32().map_err(cut)?, source.u32().map_err(cut)?);
    let needed = 8 + 4 * u64::from(roots) + NODE as u64 * u64::from(nodes);
    let there = until.saturating_add(8).saturating_sub(source.at);
    if needed > there {
        return Err(format!("claims {nodes} nodes and {roots} roots, for which {there} bytes are too few"));
    }
    source.skip_to(source.at + 4 * u64::from(roots)).map_err(cut)?;
    let (mut operations, mut lists, mut waits) = (Vec::new(), Vec::<Lists>::new(), Vec::new());
    for node in 0..nodes {
        let bytes: [u8; NODE] = source.exactly().map_err(|Ended(why)| format!("{why} in node {node} of {nodes}"))?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let size = u64::from(word(9)) | u64::from(word(13)) << 32;
        let (peer, tag, cpu) = (word(5), word(17), bytes[21]);
        let refuse = |what: String| Err(format!("node {node} {what}"));
        if bytes[4] != 3 && size > BYTES_MAX {
            return refuse(format!("has {size} bytes, more than {BYTES_MAX}"));
        }
        if bytes[4] != 3 && peer >= ranks && !(bytes[4] == 2 && peer == ANY) {
            return refuse(format!("names rank {peer} of {ranks}"));
        }
        let does = match bytes[4] {
            1 if tag == ANY => return refuse("sends with any tag".into()),
            1 => Does::Send { to: peer, bytes: size, tag },
            2 => Does::Receive { from: peer, tag },
            3 if size > SPAN_MAX_NS => return refuse(format!("computes for {size} ns, more than {SPAN_MAX_NS}")),
            3 => Does::Compute { span: Span::from_ns(size), lane: cpu },
            other => return refuse(format!("has type {other}, which does not exist")),
        };
        operations.push(Operation { id: node.into(), does });
        waits.push(word(0));
        lists.push([(word(27), word(23)), (word(35), word(31))]);
    }
    let left = until.saturating_sub(source.at);
    let mut appendix = Vec::new();
    // Memory grows with the bytes that are there, not with the length that is claimed.
    (&mut *source.bytes).take(left).read_to_end(&mut appendix).map_err(|error| format!("cannot be read: {error}"))?;
    source.at += appendix.len() as u64;
    if (appendix.len() as u64) < left {
        return Err("the file ends in its dependencies".to_string());
    }
    let entries = (appendix.len() / 4) as u64;
    let entry = |at: u64| {
        let at = at as usize * 4;
        u32::from_le_bytes([appendix[at], appendix[at + 1], appendix[at + 2], appendix[at + 3]])
    };
    let mut pairs: [Vec<(u32, u32)>; 2] = [Vec::new(), Vec::new()];
    // Lists may not overlap, or a short file could claim a huge graph.
    let mut listed = 0u64;
    for (node, lists) in (0u32..).zip(&lists) {
        for (&(first, count), pairs) in lists.iter().zip(&mut pairs) {
            listed += u64::from(count);
            if listed > entries || (count > 0 && u64::from(first) + u64::from(count) > entries) {
                return Err(format!("node {node} names dependencies behind the end of the list of {entries}"));
            }
            for at in 0..u64::from(count) {
                let later = entry(u64::from(first) + at);
                if later >= nodes {
                    return Err(format!("node {node} names node {later} of {nodes}"));
                }
                pairs.push((later, node));
            }
        }
    }
    let [mut needs, begins] = pairs;
    for (later, _) in needs.iter().chain(&begins) {
        let left = &mut waits[*later as usize];
        *left = left.wrapping_sub(1);
    }
    if let Some(node) = waits.iter().position(|left| *left != 0) {
        return Err(format!("node {node} waits for another number of nodes than name it"));
    }
    needs.sort_unstable();
    needs.dedup();
    let mut trace = RankTrace { begins, ..RankTrace::default() };
    let mut needs = needs.into_iter().peekable();
    for (place, operation) in (0u32..).zip(operations) {
        let mine = std::iter::from_fn(|| needs.next_if(|(later, _)| *later == place).map(|(_, before)| before));
        trace.add(operation, mine);
    }
    Ok(trace)
}
