//! Topology files of SimAI and of ASTRA-sim's ns-3 variant: a list of nodes, switches and links. A graph that is a
//! leaf-spine fabric of equal servers becomes `[fabric]` and `[servers]`; any other one is refused with the reason.
//!
//! SimAI (`inputs/topo`, written by `gen_Topo_Template.py`): `nodes gpus_per_server nvswitches switches links
//! gpu_type`, the numbers of NVSwitches and switches, then `source destination rate latency error_rate` per link.
//! ASTRA-sim has `nodes switches links` in the first line.

use super::trace::problem;
use crate::problem::Problems;
use std::collections::{BTreeMap, BTreeSet};
use strandway_fabric::quantity;
use strandway_proto::units::{Rate, Span};

/// Limit on the nodes of a file: ours.
const NODES_MAX: u64 = 1 << 21;

/// Limit on the planes of a NIC: that of fabrics.
const PLANES_MAX: usize = 32;

/// A fabric that a file describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// GPUs.
    pub gpus: u32,
    /// GPUs of a server; 1 if there are no NVSwitches.
    pub gpus_per_server: u32,
    /// Rate and latency of the links inside a server, if it has some.
    pub inside: Option<(Rate, Span)>,
    /// NICs below a leaf.
    pub hosts_per_leaf: u32,
    /// Switches above the leaves; 0 if there is one leaf.
    pub spines: u32,
    /// Links between a leaf and a spine.
    pub bundle: u32,
    /// Planes: leaves of each NIC.
    pub planes: u32,
    /// True: NIC `i` of each server is below leaf `i` of a group.
    pub rails: bool,
    /// Rate and latency of a NIC's link, and the rate of an uplink.
    pub rate: Rate,
    /// Of one link.
    pub latency: Span,
    /// Rate of an uplink.
    pub uplink: Rate,
    /// The type of the GPUs, as written.
    pub gpu: String,
}

/// Is this such a file? The first line has three or six words, all but the last one numbers.
pub fn is_topology(text: &str) -> bool {
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_ascii_whitespace().collect();
    let numbers = words.iter().filter(|word| word.parse::<u64>().is_ok()).count();
    matches!((words.len(), numbers), (3, 3) | (6, 5 | 6))
}

/// A link from a node, with the line that it is in.
#[derive(Clone, Copy, Debug)]
struct Link {
    to: u32,
    rate: Rate,
    latency: Span,
    line: usize,
}

/// Parses a file called `file`.
///
/// # Errors
/// With file, line and a remedy; also if the graph is no leaf-spine fabric.
pub fn parse(file: &str, text: &str) -> Result<Described, Problems> {
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
        around.entry(from).or_default().push(Link { to, rate, latency, line });
        around.entry(to).or_default().push(Link { to: from, rate, latency, line });
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
    Graph { file, nodes, gpus, of: &of, around: &around }
        .understand(per_server, head.get(5).copied().unwrap_or_default())
}

/// The graph of a file. `of` has the switches, `true` for NVSwitches.
struct Graph<'a> {
    file: &'a str,
    nodes: u32,
    gpus: u32,
    of: &'a BTreeMap<u32, bool>,
    around: &'a BTreeMap<u32, Vec<Link>>,
}

impl Graph<'_> {
    fn odd(&self, line: Option<usize>, what: String) -> Problems {
        let remedy =
            "only leaf-spine fabrics of equal servers become [fabric] and [servers]; describe this one there by hand";
        problem(self.file, line, "", what, remedy)
    }

    fn links(&self, node: u32) -> &[Link] {
        self.around.get(&node).map_or(&[], |links| links)
    }

    /// The links of a node to nodes of a sort: `None` for GPUs, or switches, `true` for NVSwitches.
    fn to(&self, node: u32, sort: Option<bool>) -> Vec<Link> {
        self.links(node).iter().copied().filter(|link| self.of.get(&link.to).copied() == sort).collect()
    }

    fn understand(&self, per_server: u32, gpu: &str) -> Result<Described, Problems> {
        if self.gpus < 2 {
            return Err(self.odd(Some(1), format!("has {} GPUs of {} nodes", self.gpus, self.nodes)));
        }
        let hosts: Vec<u32> = (0..self.nodes).filter(|node| !self.of.contains_key(node)).collect();
        let mut inside: Option<(Rate, Span)> = None;
        let (mut nics, mut leaves_of): (Option<Link>, Vec<Vec<u32>>) = (None, Vec::new());
        let mut leaves: BTreeMap<u32, u32> = BTreeMap::new();
        for &host in &hosts {
            if let Some(link) = self.to(host, None).first() {
                return Err(self.odd(Some(link.line), format!("links GPU {host} to GPU {}", link.to)));
            }
            for link in self.to(host, Some(true)) {
                let sum = inside.get_or_insert((link.rate, link.latency));
                if *sum != (link.rate, link.latency) {
                    return Err(self.odd(Some(link.line), "is another rate or latency inside a server".into()));
                }
            }
            let mine = self.to(host, Some(false));
            for link in &mine {
                let first = nics.get_or_insert(*link);
                if (first.rate, first.latency) != (link.rate, link.latency) {
                    let what = format!("is another rate or latency of a NIC than in line {}", first.line);
                    return Err(self.odd(Some(link.line), what));
                }
                *leaves.entry(link.to).or_default() += 1;
            }
            leaves_of.push(mine.iter().map(|link| link.to).collect());
        }
        let Some(nic) = nics else { return Err(self.odd(None, "no GPU is linked to a switch".into())) };
        let planes = leaves_of[0].len();
        if let Some(at) = leaves_of.iter().position(|leaves| leaves.len() != planes) {
            return Err(self.odd(
                None,
                format!(
                    "GPU {} has {} links to switches, and GPU {} has {planes}",
                    hosts[at],
                    leaves_of[at].len(),
                    hosts[0]
                ),
            ));
        }
        if planes > PLANES_MAX {
            return Err(
                self.odd(None, format!("GPU {} has {planes} links to switches, more than {PLANES_MAX}", hosts[0]))
            );
        }
        let hosts_per_leaf = leaves.values().copied().max().unwrap_or(1);
        if let Some((leaf, count)) = leaves.iter().find(|(_, count)| **count != hosts_per_leaf) {
            return Err(
                self.odd(None, format!("switch {leaf} has {count} GPUs below it, and others have {hosts_per_leaf}"))
            );
        }
        let (spines, bundle, uplink) = self.spines(&leaves, nic)?;
        self.by_plane(&leaves, &hosts, &mut leaves_of, spines > 0)?;
        let per_server = if inside.is_some() { per_server.max(1) } else { 1 };
        if !self.gpus.is_multiple_of(per_server) {
            return Err(self.odd(Some(1), format!("{} GPUs do not fill servers of {per_server}", self.gpus)));
        }
        let rails = self.rails(&leaves_of, per_server, hosts_per_leaf)?;
        Ok(Described {
            gpus: self.gpus,
            gpus_per_server: per_server,
            inside,
            hosts_per_leaf,
            spines: spines / planes as u32,
            bundle,
            planes: planes as u32,
            rails,
            rate: Rate(nic.rate.0 * planes as u64),
            latency: nic.latency,
            uplink,
            gpu: gpu.to_string(),
        })
    }

    /// The number of spines, the links between a leaf and a spine, and their rate.
    fn spines(&self, leaves: &BTreeMap<u32, u32>, nic: Link) -> Result<(u32, u32, Rate), Problems> {
        let mut spines: BTreeSet<u32> = BTreeSet::new();
        let mut first: Option<(Link, u32, usize)> = None;
        for &leaf in leaves.keys() {
            let ups = self.to(leaf, Some(false));
            if let Some(link) = ups.iter().find(|link| leaves.contains_key(&link.to)) {
                return Err(self.odd(Some(link.line), format!("links leaf {leaf} to leaf {}", link.to)));
            }
            let mut bundles: BTreeMap<u32, u32> = BTreeMap::new();
            for link in &ups {
                *bundles.entry(link.to).or_default() += 1;
                let (known, ..) = first.get_or_insert((*link, 0, 0));
                if (known.rate, known.latency) != (link.rate, link.latency) || link.latency != nic.latency {
                    let what =
                        "is another rate or latency than that of other uplinks, or a latency other than that of NICs";
                    return Err(self.odd(Some(link.line), what.into()));
                }
            }
            spines.extend(bundles.keys());
            let bundle = bundles.values().copied().next().unwrap_or(0);
            if let Some((_, known, count)) = &mut first {
                if *count == 0 {
                    (*known, *count) = (bundle, bundles.len());
                }
                if bundles.len() != *count || bundles.values().any(|links| links != known) {
                    return Err(
                        self.odd(None, format!("leaf {leaf} has another number of uplinks than the first leaf"))
                    );
                }
            }
        }
        let own = |spine: &u32| self.to(*spine, Some(false)).iter().any(|link| !leaves.contains_key(&link.to));
        if let Some(spine) = spines.iter().find(|spine| own(spine)) {
            return Err(self.odd(None, format!("switch {spine} is linked to switches above it: a third tier")));
        }
        let switches = self.of.values().filter(|inside| !**inside).count();
        if switches != leaves.len() + spines.len() {
            return Err(self.odd(None, format!("{} switches have no link", switches - leaves.len() - spines.len())));
        }
        match first {
            Some((link, bundle, _)) => Ok((spines.len() as u32, bundle, link.rate)),
            None if leaves.len() == 1 || self.planes(leaves) => Ok((0, 1, nic.rate)),
            None => Err(self.odd(None, format!("{} leaves have no uplinks", leaves.len()))),
        }
    }

    /// Checks that the leaves of a plane are linked to the same spines and that planes share no spine, and sorts the
    /// leaves of each GPU by plane.
    fn by_plane(
        &self,
        leaves: &BTreeMap<u32, u32>,
        hosts: &[u32],
        leaves_of: &mut [Vec<u32>],
        spines: bool,
    ) -> Result<(), Problems> {
        if !spines {
            leaves_of.iter_mut().for_each(|leaves| leaves.sort_unstable());
            return Ok(());
        }
        let above = |leaf: u32| -> BTreeSet<u32> { self.to(leaf, Some(false)).iter().map(|link| link.to).collect() };
        // The first leaf below each set of spines, and the plane of each leaf.
        let mut planes: Vec<(u32, BTreeSet<u32>)> = Vec::new();
        let mut plane_of: BTreeMap<u32, usize> = BTreeMap::new();
        for &leaf in leaves.keys() {
            let mine = above(leaf);
            let known = planes.iter().position(|(_, set)| *set == mine);
            let part = planes.iter().find(|(_, set)| *set != mine && !set.is_disjoint(&mine));
            if let (None, Some((other, _))) = (known, part) {
                let what = format!("leaves {other} and {leaf} are linked to some of the same spines, and not to all");
                return Err(self.odd(None, what));
            }
            plane_of.insert(leaf, known.unwrap_or(planes.len()));
            if known.is_none() {
                planes.push((leaf, mine));
            }
        }
        let wanted = leaves_of[0].len();
        for (host, mine) in hosts.iter().zip(leaves_of) {
            mine.sort_by_key(|leaf| plane_of[leaf]);
            if let Some(pair) = mine.windows(2).find(|pair| plane_of[&pair[0]] == plane_of[&pair[1]]) {
                let what = format!(
                    "GPU {host} is linked to leaves {} and {}, which have the same spines: two leaves in one plane (dual ToR)",
                    pair[0], pair[1]
                );
                return Err(self.odd(None, what));
            }
        }
        if planes.len() != wanted {
            let what = format!(
                "leaves {} and {} have no spine in common, and each GPU is linked to {wanted} of {} such groups: islands \
                 without a link between them",
                planes[0].0,
                planes[1].0,
                planes.len()
            );
            return Err(self.odd(None, what));
        }
        Ok(())
    }

    /// True if each leaf has all GPUs below it: one leaf per plane.
    fn planes(&self, leaves: &BTreeMap<u32, u32>) -> bool {
        leaves.values().all(|count| *count == self.gpus)
    }

    /// Whether leaves are rails: GPU `i` of all servers of a group below leaf `i`.
    fn rails(&self, leaves_of: &[Vec<u32>], per_server: u32, hosts_per_leaf: u32) -> Result<bool, Problems> {
        let (per_server, per_leaf) = (per_server as usize, hosts_per_leaf as usize);
        let side_by_side = leaves_of.chunks(per_leaf).all(|chunk| chunk.iter().all(|leaves| *leaves == chunk[0]));
        if side_by_side {
            return Ok(false);
        }
        let group = per_server * per_leaf;
        let in_rail = |gpu: usize| {
            let first = gpu / group * group + gpu % per_server;
            leaves_of[gpu] == leaves_of[first]
        };
        if (self.gpus as usize).is_multiple_of(group) && (0..self.gpus as usize).all(in_rail) {
            return Ok(true);
        }
        Err(self.odd(None, "GPUs are below leaves neither in order nor by rail".into()))
    }
}

impl Described {
    /// The sections of a scenario that say the same.
    pub fn sections(&self) -> String {
        let rails = if self.rails { "wiring = \"rail-optimised\"\n" } else { "" };
        let servers = match self.inside {
            Some((rate, latency)) => format!(
                "[servers]\ngpus = {}\nrate = \"{rate}\"\nlatency = \"{} ns\"\n{rails}",
                self.gpus_per_server,
                latency.0 as f64 / 1e3
            ),
            None => String::new(),
        };
        let planes =
            if self.planes > 1 { format!("kind = \"multi-plane\"\nplanes = {}\n", self.planes) } else { String::new() };
        let bundle = if self.bundle > 1 { format!("bundle = {}\n", self.bundle) } else { String::new() };
        format!(
            "[fabric]\n{planes}hosts = {}\nhosts_per_leaf = {}\nspines = {}\n{bundle}rate = \"{}\"\nuplink_rate = \"{}\"\nlatency = \"{} ns\"\n{servers}",
            self.gpus,
            self.hosts_per_leaf,
            self.spines.max(1),
            self.rate,
            self.uplink,
            self.latency.0 as f64 / 1e3,
        )
    }

    /// The contents of the file, and the sections of a scenario, as lines of text.
    pub fn describe(&self) -> String {
        let gpu = if self.gpu.is_empty() { String::new() } else { format!(" ({})", self.gpu) };
        format!(
            "a topology of SimAI or ASTRA-sim: {} GPUs{gpu}, a NIC each, {} per server; {} below a leaf, {} spines, {} planes\n\
             assumed: switches forward without a delay of their own; all links are as long as those of NICs\n\
             to run it: [fabric] kind = \"simai\", topo = \"FILE\"; or write:\n{}",
            self.gpus,
            self.gpus_per_server,
            self.hosts_per_leaf,
            self.spines,
            self.planes,
            self.sections()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(made.describe().contains("wiring = \"rail-optimised\""));
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
