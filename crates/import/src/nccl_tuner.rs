//! Configurations of NCCL's example tuner (`.conf`, `.csv`): the algorithm, the protocol and the channels of a
//! collective by its kind, size, servers and ranks.
//!
//! Format: NVIDIA/nccl `plugins/tuner/example/README.md`:
//! `collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps,regBuff]`; -1 stands for any.
//! The first line that fits counts.

use super::trace::{Kind, problem};
use crate::problem::Problems;

/// Limit on the lines of a file: ours.
const LINES_MAX: usize = 1 << 16;

/// An algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Two binary trees.
    Tree,
    /// A ring.
    Ring,
    /// Parallel aggregated trees.
    Pat,
    /// One that needs switches which compute: CollNet or NVLS. Strandway uses a ring for it.
    Switches,
}

/// A protocol. It says how many bytes travel for a byte of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Four bytes of data with four of flags.
    Ll,
    /// 120 bytes of data with eight of flags.
    Ll128,
    /// Data only.
    Simple,
}

impl Protocol {
    /// Bytes on the wire for this many bytes of data.
    pub fn on_wire(self, bytes: u64) -> u64 {
        match self {
            Protocol::Simple => bytes,
            Protocol::Ll => bytes.saturating_mul(2),
            Protocol::Ll128 => bytes.saturating_add(bytes.div_ceil(15)),
        }
    }
}

/// The choice that a line makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels; `None` leaves them as they are.
    pub channels: Option<u32>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    kind: Kind,
    bytes: (u64, u64),
    servers: Option<u32>,
    ranks: Option<u32>,
    choice: Choice,
}

/// A file, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuner {
    rules: Vec<Rule>,
}

/// Is this such a file? Its first line that is no comment begins with a collective and has eight fields or more.
pub fn is_tuner(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        (8..=10).contains(&fields.len()) && (kind(fields[0]).is_some() || fields[0] == "collective_type")
    })
}

fn kind(name: &str) -> Option<Kind> {
    Some(match name {
        "allreduce" => Kind::AllReduce,
        "allgather" => Kind::AllGather,
        "reducescatter" => Kind::ReduceScatter,
        "broadcast" => Kind::Broadcast,
        "reduce" => Kind::Reduce,
        _ => return None,
    })
}

/// Parses a file called `file`.
///
/// # Errors
/// With file, line and a remedy.
pub fn parse(file: &str, text: &str) -> Result<Tuner, Problems> {
    let mut rules = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with("collective_type") {
            continue;
        }
        let bad = |value: &str, what: &str, remedy: &str| problem(file, Some(at), value, what, remedy);
        if rules.len() == LINES_MAX {
            return Err(bad("", "is one line more than are read", "write fewer"));
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if !(8..=10).contains(&fields.len()) {
            let remedy = "write collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks";
            return Err(bad("", &format!("has {} fields and not 8 to 10", fields.len()), remedy));
        }
        let known = "known: allreduce, allgather, reducescatter, broadcast, reduce";
        let kind = kind(fields[0]).ok_or_else(|| bad(fields[0], "is no collective", known))?;
        let bytes = |at: usize| {
            let fits = fields[at].parse::<u64>().ok();
            fits.ok_or_else(|| bad(fields[at], "is no number of bytes", "write a whole number"))
        };
        let any = |at: usize| match fields[at].parse::<i64>() {
            Ok(-1) => Ok(None),
            Ok(n) if (1..=1 << 20).contains(&n) => Ok(Some(n as u32)),
            _ => Err(bad(fields[at], "is neither -1 nor a number from 1 to 1048576", "write -1 for any")),
        };
        let algorithm = match fields[3] {
            "tree" => Algorithm::Tree,
            "ring" => Algorithm::Ring,
            "pat" => Algorithm::Pat,
            "collnet_direct" | "collnet_chain" | "nvls" | "nvls_tree" => Algorithm::Switches,
            other => {
                let remedy = "known: tree, ring, pat, collnet_direct, collnet_chain, nvls, nvls_tree";
                return Err(bad(other, "is no algorithm", remedy));
            }
        };
        let protocol = match fields[4] {
            "ll" => Protocol::Ll,
            "ll128" => Protocol::Ll128,
            "simple" => Protocol::Simple,
            other => return Err(bad(other, "is no protocol", "known: ll, ll128, simple")),
        };
        let channels = any(5)?;
        if channels.is_some_and(|channels| channels > 256) {
            return Err(bad(fields[5], "are more channels than 256", "write fewer, or -1"));
        }
        let range = (bytes(1)?, bytes(2)?);
        if range.0 > range.1 {
            return Err(bad(fields[1], "is more than the most bytes of the line", "swap them"));
        }
        let choice = Choice { algorithm, protocol, channels };
        rules.push(Rule { kind, bytes: range, servers: any(6)?, ranks: any(7)?, choice });
    }
    if rules.is_empty() {
        return Err(problem(file, None, "", "has no rule", "write collective,min_bytes,max_bytes,algorithm,.."));
    }
    Ok(Tuner { rules })
}

impl Tuner {
    /// The choice for a collective; `None` if no line fits.
    pub fn choice(&self, kind: Kind, bytes: u64, servers: u32, ranks: u32) -> Option<Choice> {
        let any = |wanted: Option<u32>, there: u32| wanted.is_none_or(|wanted| wanted == there);
        let fits = |rule: &&Rule| {
            rule.kind == kind
                && (rule.bytes.0..=rule.bytes.1).contains(&bytes)
                && any(rule.servers, servers)
                && any(rule.ranks, ranks)
        };
        self.rules.iter().find(fits).map(|rule| rule.choice)
    }

    /// The file's contents and our assumptions, as lines of text.
    pub fn describe(&self) -> String {
        let mut out = format!("a configuration of NCCL's example tuner: {} rules\n", self.rules.len());
        for rule in &self.rules {
            let any = |n: Option<u32>| n.map_or("any".to_string(), |n| n.to_string());
            out.push_str(&format!(
                "  {} of {} to {} B on {} servers, {} ranks: {:?}, {:?}, {} channels\n",
                rule.kind.name(),
                rule.bytes.0,
                rule.bytes.1,
                any(rule.servers),
                any(rule.ranks),
                rule.choice.algorithm,
                rule.choice.protocol,
                any(rule.choice.channels)
            ));
        }
        out.push_str(
            "assumed: the first rule that fits counts; CollNet and NVLS run as rings; LL sends two bytes for one, LL128 16 for 15; a channel \
             is a part of each block that travels on its own; numPipeOps and regBuff are not read\n\
             to run it: [job] tuner = \"FILE\"\n",
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "# small ones\nallreduce,0,65536,tree,ll,2,-1,-1\nallreduce,65537,4294967295,ring,simple,-1,4,-1,-1,-1\n\
        allgather,0,1000000,pat,ll128,-1,-1,32\n";

    #[test]
    fn the_first_rule_that_fits_counts() {
        let tuner = parse("a.conf", SMALL).expect("sound");
        let of = |kind, bytes, servers, ranks| tuner.choice(kind, bytes, servers, ranks).map(|choice| choice.algorithm);
        assert_eq!(of(Kind::AllReduce, 65536, 9, 72), Some(Algorithm::Tree));
        assert_eq!(of(Kind::AllReduce, 65537, 4, 32), Some(Algorithm::Ring));
        assert_eq!(of(Kind::AllReduce, 65537, 5, 40), None);
        assert_eq!(of(Kind::AllGather, 10, 4, 32), Some(Algorithm::Pat));
        assert_eq!(of(Kind::AllGather, 10, 4, 16), None);
        assert_eq!((Protocol::Ll.on_wire(10), Protocol::Ll128.on_wire(120), Protocol::Simple.on_wire(7)), (20, 128, 7));
        assert!(is_tuner(SMALL) && !is_tuner("comm_type,comm_group\n"));
        assert!(
            tuner.describe().contains("all-reduce of 0 to 65536 B on any servers, any ranks: Tree, Ll, 2 channels")
        );
    }

    #[test]
    fn bad_files_are_explained() {
        for end in 0..SMALL.len() {
            if let Err(problems) = parse("a.conf", &SMALL[..end]) {
                assert!(problems.to_string().starts_with("a.conf:"), "{problems}");
            }
        }
        for (at, _) in SMALL.match_indices(|c: char| c.is_ascii_digit()) {
            for absurd in ["-7", "18446744073709551616", "", "x"] {
                let changed = format!("{}{absurd}{}", &SMALL[..at], &SMALL[at + 1..]);
                if let Err(problems) = parse("a.conf", &changed) {
                    assert!(problems.to_string().starts_with("a.conf:"), "{problems}");
                }
            }
        }
        for (from, to, wanted) in [
            ("tree", "bush", "a.conf:2: `bush`: is no algorithm"),
            ("ll,", "hh,", "a.conf:2: `hh`: is no protocol"),
            ("0,65536", "70000,65536", "is more than the most bytes"),
            (",2,-1,-1", ",2,-1", "has 7 fields"),
            (",2,-1,-1", ",999,-1,-1", "are more channels"),
        ] {
            let said = parse("a.conf", &SMALL.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
