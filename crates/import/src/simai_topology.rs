//! Topology files of SimAI and of ASTRA-sim's ns-3 variant: a list of nodes, switches and links. A graph that is a
//! leaf-spine fabric of equal servers becomes `[fabric]` and `[servers]`, any other one a graph of switches.
//!
//! SimAI (`inputs/topo`, written by `gen_Topo_Template.py`): `nodes gpus_per_server nvswitches switches links
//! gpu_type`, the numbers of NVSwitches and switches, then `source destination rate latency error_rate` per link.
//! ASTRA-sim has `nodes switches links` in the first line.

use super::leaf_spine::{Described, EqualServers, Graph, Grouping, Link};
use super::switch_graph::Fabric;
use super::trace::problem;
use crate::problem::Problems;
use std::collections::BTreeMap;
use strandway_fabric::quantity;

/// Limit on the nodes of a file: ours.
const NODES_MAX: u64 = 1 << 21;

/// Is this such a file? The first line has three or six words, all but the last one numbers.
pub fn is_topology(text: &str) -> bool {
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    let numbers = words.iter().filter(|word| word.parse::<u64>().is_ok()).count();
    matches!((words.len(), numbers), (3, 3) | (6, 5 | 6))
}

/// The contents of a file, and how to run it, as lines of text.
pub fn describe(made: &Fabric) -> String {
    let (what, kind) = ("a topology of SimAI or ASTRA-sim", "simai");
    match made {
        Fabric::LeafSpine(made) => made.describe(what, kind),
        Fabric::Graph(made) => made.describe(what, kind),
    }
}

/// Nodes and links of a file.
struct NodesAndLinks {
    nodes: u32,
    gpus: u32,
    /// Switches; true for NVSwitches.
    of: BTreeMap<u32, bool>,
    around: BTreeMap<u32, Vec<Link>>,
    per_server: u32,
    gpu: String,
}

impl NodesAndLinks {
    fn graph<'a>(&'a self, file: &'a str) -> Graph<'a> {
        Graph { file, nodes: self.nodes, gpus: self.gpus, of: &self.of, around: &self.around, names: &[] }
    }

    fn leaf_spine(&self, file: &str) -> Result<Described, Problems> {
        self.graph(file).understand(Grouping::ByNvSwitches(self.per_server), &self.gpu)
    }
}

/// The fabric of a file called `file`, and its servers, if they are known.
///
/// # Errors
/// With file, line and a remedy.
pub fn read(file: &str, text: &str) -> Result<(Fabric, Option<EqualServers>), Problems> {
    let listed = listed(file, text)?;
    let why = match listed.leaf_spine(file) {
        Ok(made) => {
            let servers = made.servers();
            return Ok((Fabric::LeafSpine(made), Some(servers)));
        }
        Err(why) => why.0.into_iter().next().map(|problem| problem.what).unwrap_or_default(),
    };
    let graph = listed.graph(file);
    let (switches, is_in_order) = graph.switches(why)?;
    let inside = graph.inside();
    let servers = inside.filter(|_| is_in_order).map(|inside| EqualServers {
        gpus: listed.per_server.max(1),
        nics: listed.per_server.max(1),
        inside: Some(inside),
        rails: false,
    });
    Ok((Fabric::Graph(switches), servers))
}

/// The leaf-spine fabric of a file called `file`.
///
/// # Errors
/// With file, line and a remedy; also if the graph is no leaf-spine fabric.
pub fn parse(file: &str, text: &str) -> Result<Described, Problems> {
    listed(file, text)?.leaf_spine(file)
}

fn listed(file: &str, text: &str) -> Result<NodesAndLinks, Problems> {
    let bad = |line: usize, value: &str, what: String, remedy: &str| problem(file, Some(line), value, what, remedy);
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let (_, head) = lines.next().unwrap_or((1, ""));
    let head: Vec<&str> = head.split_ascii_whitespace().collect();
    let count = |at: usize, name: &str| -> Result<u32, Problems> {
        let text = head.get(at).copied().unwrap_or_default();
        let fits = text.parse::<u64>().ok().filter(|n| *n <= NODES_MAX).map(|n| n as u32);
        let remedy = "write `nodes gpus_per_server nvswitches switches links gpu_type`, or `nodes switches links`";
        fits.ok_or_else(|| bad(1, text, format!("is no {name} from 0 to {NODES_MAX}"), remedy))
    };
    let simai = head.len() >= 5;
    let nodes = count(0, "number of nodes")?;
    let (per_server, nvswitches) = match simai {
        true => (count(1, "number of GPUs per server")?, count(2, "number of NVSwitches")?),
        false => (1, 0),
    };
    let (switches, links) = match simai {
        true => (count(3, "number of switches")?, count(4, "number of links")?),
        false => (count(1, "number of switches")?, count(2, "number of links")?),
    };
    let (second, ids) = lines.next().unwrap_or((2, ""));
    let mut of: BTreeMap<u32, bool> = BTreeMap::new();
    for (place, word) in (0u32..).zip(ids.split_ascii_whitespace()) {
        let id = word.parse::<u32>().ok().filter(|id| *id < nodes);
        let id = id.ok_or_else(|| {
            bad(second, word, format!("is no node from 0 to {}", nodes.saturating_sub(1)), "correct the list")
        })?;
        if of.insert(id, place < nvswitches).is_some() {
            return Err(bad(second, word, "is named twice".into(), "name each switch once"));
        }
    }
    if of.len() as u64 != u64::from(nvswitches) + u64::from(switches) {
        let what = format!("names {} switches, and line 1 has {nvswitches} + {switches}", of.len());
        return Err(bad(second, "", what, "name the NVSwitches, then the switches"));
    }
    let mut around: BTreeMap<u32, Vec<Link>> = BTreeMap::new();
    let mut found = 0;
    for (line, text) in lines {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // As ns-3 does, notes behind the stated links are not read.
        if found == links && words.first().is_some_and(|word| word.parse::<u32>().is_err()) {
            break;
        }
        let &[from, to, rate, latency, ..] = &words[..] else {
            return Err(bad(
                line,
                "",
                format!("has {} words", words.len()),
                "write `source destination rate latency error_rate`",
            ));
        };
        let node = |word: &str| {
            let id = word.parse::<u32>().ok().filter(|id| *id < nodes);
            id.ok_or_else(|| bad(line, word, format!("is no node from 0 to {}", nodes.saturating_sub(1)), "correct it"))
        };
        let (from, to) = (node(from)?, node(to)?);
        let rate = quantity::rate(rate).ok().filter(|rate| rate.0 > 0);
        let rate = rate.ok_or_else(|| bad(line, words[2], "is no rate".into(), "write, say, 400Gbps"))?;
        let latency =
            quantity::span(latency).map_err(|_| bad(line, words[3], "is no latency".into(), "write, say, 0.0005ms"))?;
        if let Some(loss) = words.get(4)
            && loss.parse::<f64>().ok() != Some(0.0)
        {
            let remedy = "write 0, and losses in [[faults]]";
            return Err(bad(line, loss, "is an error rate that is not 0".into(), remedy));
        }
        if from == to {
            return Err(bad(line, words[0], "is linked to itself".into(), "remove the line"));
        }
        around.entry(from).or_default().push(Link { to, rate, latency, line: Some(line) });
        around.entry(to).or_default().push(Link { to: from, rate, latency, line: Some(line) });
        found += 1;
    }
    if found != links {
        return Err(bad(
            1,
            "",
            format!("claims {links} links, and there are {found}"),
            "correct it, or the file was cut off",
        ));
    }
    let gpus = nodes - of.len() as u32;
    let gpu = head.get(5).copied().unwrap_or_default().to_string();
    Ok(NodesAndLinks { nodes, gpus, of, around, per_server, gpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use strandway_proto::units::Rate;

    /// Four servers of two GPUs on two rails of four, and two spines.
    fn rails() -> String {
        let mut links = Vec::new();
        for gpu in 0..8 {
            links.push(format!("{gpu} {} 2880Gbps 0.000025ms 0", 8 + gpu / 2));
            links.push(format!("{gpu} {} 400Gbps 0.0005ms 0", 12 + gpu % 2));
        }
        for leaf in [12, 13] {
            links.extend([14, 15].map(|spine| format!("{leaf} {spine} 800Gbps 0.0005ms 0")));
        }
        format!("16 2 4 4 {} H100\n8 9 10 11 12 13 14 15\n{}\n", links.len(), links.join("\n"))
    }

    #[test]
    fn rails_and_servers_are_recognised() {
        let made = parse("topo", &rails()).expect("sound");
        let wanted = (8, 2, 4, 2, 1, 1, true);
        assert_eq!(
            (made.gpus, made.gpus_per_server, made.hosts_per_leaf, made.spines, made.bundle, made.planes, made.rails),
            wanted
        );
        assert_eq!((made.rate, made.uplink), (Rate::from_gbps(400), Rate::from_gbps(800)));
        assert!(describe(&Fabric::LeafSpine(made)).contains("wiring = \"rail-optimised\""));
        // ASTRA-sim's variant: no servers, one switch.
        let star =
            "5 1 4\n4\n0 4 100Gbps 0.001ms 0\n1 4 100Gbps 0.001ms 0\n2 4 100Gbps 0.001ms 0\n3 4 100Gbps 0.001ms 0\n";
        let made = parse("star", star).expect("sound");
        assert_eq!((made.gpus, made.gpus_per_server, made.hosts_per_leaf, made.spines), (4, 1, 4, 0));
        // Notes behind the links, as in HPCC's sample.
        let noted = format!("{star}\nFirst line: all nodes, switches, links\nThen: a link per line\n");
        assert_eq!(parse("star", &noted).expect("sound"), made);
        let said = parse("star", &format!("{star}0 4 100Gbps 0.001ms 0\n")).expect_err("a link too many").to_string();
        assert!(said.contains("claims 4 links, and there are 5"), "{said}");
    }

    #[test]
    fn odd_graphs_and_bad_files_are_explained() {
        let text = rails();
        for end in 0..text.len() {
            if let Err(problems) = parse("topo", &text[..end]) {
                assert!(problems.to_string().starts_with("topo"), "{problems}");
            }
        }
        for (at, _) in text.match_indices(|c: char| c.is_ascii_digit()) {
            for absurd in ["-7", "18446744073709551615", "", "x", "0", "99"] {
                let changed = format!("{}{absurd}{}", &text[..at], &text[at + 1..]);
                if let Err(problems) = parse("topo", &changed) {
                    assert!(problems.to_string().starts_with("topo"), "{problems}");
                }
            }
        }
        // Two leaves below each of two pairs of spines; each of four GPUs below one leaf, or below two.
        let fabric = |below: [&[u32]; 4], above: [&[u32]; 4]| {
            let mut links = Vec::new();
            for (gpu, leaves) in below.iter().enumerate() {
                links.extend(leaves.iter().map(|leaf| format!("{gpu} {leaf} 100Gbps 0.0005ms 0")));
            }
            for (leaf, spines) in (4..).zip(above) {
                links.extend(spines.iter().map(|spine| format!("{leaf} {spine} 100Gbps 0.0005ms 0")));
            }
            let spines: BTreeSet<u32> = above.iter().flat_map(|spines| spines.iter().copied()).collect();
            let ids: Vec<String> = (4..8).chain(spines.iter().copied()).map(|id| id.to_string()).collect();
            format!("{} {} {}\n{}\n{}\n", 4 + ids.len(), ids.len(), links.len(), ids.join(" "), links.join("\n"))
        };
        let singly: [&[u32]; 4] = [&[4], &[5], &[6], &[7]];
        let dual: [&[u32]; 4] = [&[4, 6], &[6, 4], &[5, 7], &[5, 7]];
        let apart: [&[u32]; 4] = [&[8, 9], &[8, 9], &[10, 11], &[10, 11]];
        for (text, wanted) in [
            (fabric(dual, [&[8, 9]; 4]), "GPU 0 is linked to leaves 4 and 6, which have the same spines"),
            (fabric(singly, apart), "leaves 4 and 6 have no spine in common"),
            (
                fabric(singly, [&[8, 9], &[9, 10], &[10, 11], &[8, 11]]),
                "linked to some of the same spines, and not to all",
            ),
        ] {
            let said = parse("topo", &text).expect_err(wanted).to_string();
            assert!(said.contains(wanted), "{said}");
        }
        // Two planes of two spines each are one fabric, whichever leaf a GPU names first.
        let made = parse("topo", &fabric(dual, apart)).expect("two planes");
        assert_eq!((made.planes, made.spines, made.hosts_per_leaf), (2, 2, 2));
        for (from, to, wanted) in [
            ("0 12 400Gbps", "0 13 400Gbps", "has 3 GPUs below it, and others have 5"),
            ("0 12 400Gbps", "0 12 200Gbps", "is another rate or latency of a NIC"),
            ("0.0005ms 0\n1", "0.0005ms 0.1\n1", "`0.1`: is an error rate that is not 0"),
            ("12 14 800Gbps", "12 13 800Gbps", "links leaf 12 to leaf 13"),
            ("16 2 4 4 20", "16 2 4 4 21", "claims 21 links, and there are 20"),
            ("8 9 10 11", "8 9 10 10", "is named twice"),
        ] {
            let said = parse("topo", &text.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(said.contains(wanted), "{said}");
        }
    }
}
