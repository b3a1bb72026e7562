//! A graph of GPUs, switches and links, understood as a leaf-spine fabric of equal servers; any other one is refused with
//! the reason. Topologies of SimAI and InfraGraph are read by it.

use super::trace::problem;
use crate::problem::Problems;
use std::collections::{BTreeMap, BTreeSet};
use strandway_proto::units::{Rate, Span};

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

/// The equal servers of a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EqualServers {
    /// GPUs of a server.
    pub gpus: u32,
    /// NICs of a server.
    pub nics: u32,
    /// Rate and latency of the links inside a server, if they are known.
    pub inside: Option<(Rate, Span)>,
    /// True: NIC `i` of each server is below leaf `i` of a group.
    pub rails: bool,
}

/// A link from a node, with the line that it is in, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) to: u32,
    pub(crate) rate: Rate,
    pub(crate) latency: Span,
    pub(crate) line: Option<usize>,
}

/// The graph of a file. `of` has the switches, `true` for NVSwitches.
pub(crate) struct Graph<'a> {
    pub(crate) file: &'a str,
    pub(crate) nodes: u32,
    pub(crate) gpus: u32,
    pub(crate) of: &'a BTreeMap<u32, bool>,
    pub(crate) around: &'a BTreeMap<u32, Vec<Link>>,
    /// The name of each node in messages; empty if they have numbers only.
    pub(crate) names: &'a [&'a str],
}

/// The servers that a file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// So many GPUs share a server, if links to NVSwitches join them.
    ByNvSwitches(u32),
    /// So many GPUs share a server.
    Known(u32),
}

impl Graph<'_> {
    fn odd(&self, line: Option<usize>, what: String) -> Problems {
        let remedy =
            "only leaf-spine fabrics of equal servers become [fabric] and [servers]; describe this one there by hand";
        problem(self.file, line, "", what, remedy)
    }

    pub(crate) fn name(&self, node: u32) -> String {
        self.names.get(node as usize).map_or_else(|| node.to_string(), |name| (*name).to_string())
    }

    fn links(&self, node: u32) -> &[Link] {
        self.around.get(&node).map_or(&[], |links| links)
    }

    /// The links of a node to nodes of a sort: `None` for GPUs, or switches, `true` for NVSwitches.
    pub(crate) fn to(&self, node: u32, sort: Option<bool>) -> Vec<Link> {
        self.links(node).iter().copied().filter(|link| self.of.get(&link.to).copied() == sort).collect()
    }

    /// Rate and latency of the links to NVSwitches, if all have the same.
    pub(crate) fn inside(&self) -> Option<(Rate, Span)> {
        let gpus = (0..self.nodes).filter(|node| !self.of.contains_key(node));
        let mut all = gpus.flat_map(|gpu| self.to(gpu, Some(true))).map(|link| (link.rate, link.latency));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// The leaf-spine fabric that it is. `gpu`: the type of the GPUs.
    ///
    /// # Errors
    /// If it is none, with the reason.
    pub(crate) fn understand(&self, grouping: Grouping, gpu: &str) -> Result<Described, Problems> {
        if self.gpus < 2 {
            return Err(self.odd(Some(1), format!("has {} GPUs of {} nodes", self.gpus, self.nodes)));
        }
        let hosts: Vec<u32> = (0..self.nodes).filter(|node| !self.of.contains_key(node)).collect();
        let mut inside: Option<(Rate, Span)> = None;
        let (mut nics, mut leaves_of): (Option<Link>, Vec<Vec<u32>>) = (None, Vec::new());
        let mut leaves: BTreeMap<u32, u32> = BTreeMap::new();
        for &host in &hosts {
            if let Some(link) = self.to(host, None).first() {
                return Err(self.odd(link.line, format!("links GPU {} to GPU {}", self.name(host), self.name(link.to))));
            }
            for link in self.to(host, Some(true)) {
                let sum = inside.get_or_insert((link.rate, link.latency));
                if *sum != (link.rate, link.latency) {
                    return Err(self.odd(link.line, "is another rate or latency inside a server".into()));
                }
            }
            let mine = self.to(host, Some(false));
            for link in &mine {
                let first = nics.get_or_insert(*link);
                if (first.rate, first.latency) != (link.rate, link.latency) {
                    let before = first.line.map_or("before".to_string(), |line| format!("in line {line}"));
                    let what = format!("is another rate or latency of a NIC than {before}");
                    return Err(self.odd(link.line, what));
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
                    self.name(hosts[at]),
                    leaves_of[at].len(),
                    self.name(hosts[0])
                ),
            ));
        }
        if planes > PLANES_MAX {
            return Err(self.odd(
                None,
                format!("GPU {} has {planes} links to switches, more than {PLANES_MAX}", self.name(hosts[0])),
            ));
        }
        let hosts_per_leaf = leaves.values().copied().max().unwrap_or(1);
        if let Some((leaf, count)) = leaves.iter().find(|(_, count)| **count != hosts_per_leaf) {
            return Err(self.odd(
                None,
                format!("switch {} has {count} GPUs below it, and others have {hosts_per_leaf}", self.name(*leaf)),
            ));
        }
        let (spines, bundle, uplink) = self.spines(&leaves, nic)?;
        self.by_plane(&leaves, &hosts, &mut leaves_of, spines > 0)?;
        let per_server = match grouping {
            Grouping::Known(count) => count.max(1),
            Grouping::ByNvSwitches(count) if inside.is_some() => count.max(1),
            Grouping::ByNvSwitches(_) => 1,
        };
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
                return Err(
                    self.odd(link.line, format!("links leaf {} to leaf {}", self.name(leaf), self.name(link.to)))
                );
            }
            let mut bundles: BTreeMap<u32, u32> = BTreeMap::new();
            for link in &ups {
                *bundles.entry(link.to).or_default() += 1;
                let (known, ..) = first.get_or_insert((*link, 0, 0));
                if (known.rate, known.latency) != (link.rate, link.latency) || link.latency != nic.latency {
                    let what =
                        "is another rate or latency than that of other uplinks, or a latency other than that of NICs";
                    return Err(self.odd(link.line, what.into()));
                }
            }
            spines.extend(bundles.keys());
            let bundle = bundles.values().copied().next().unwrap_or(0);
            if let Some((_, known, count)) = &mut first {
                if *count == 0 {
                    (*known, *count) = (bundle, bundles.len());
                }
                if bundles.len() != *count || bundles.values().any(|links| links != known) {
                    return Err(self.odd(
                        None,
                        format!("leaf {} has another number of uplinks than the first leaf", self.name(leaf)),
                    ));
                }
            }
        }
        let own = |spine: &u32| self.to(*spine, Some(false)).iter().any(|link| !leaves.contains_key(&link.to));
        if let Some(spine) = spines.iter().find(|spine| own(spine)) {
            return Err(
                self.odd(None, format!("switch {} is linked to switches above it: a third tier", self.name(*spine)))
            );
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
                let what = format!(
                    "leaves {} and {} are linked to some of the same spines, and not to all",
                    self.name(*other),
                    self.name(leaf)
                );
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
                    "GPU {} is linked to leaves {} and {}, which have the same spines: two leaves in one plane (dual ToR)",
                    self.name(*host),
                    self.name(pair[0]),
                    self.name(pair[1])
                );
                return Err(self.odd(None, what));
            }
        }
        if planes.len() != wanted {
            let what = format!(
                "leaves {} and {} have no spine in common, and each GPU is linked to {wanted} of {} such groups: islands \
                 without a link between them",
                self.name(planes[0].0),
                self.name(planes[1].0),
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
    /// Its servers: a NIC for each GPU.
    pub fn servers(&self) -> EqualServers {
        let count = self.gpus_per_server;
        EqualServers { gpus: count, nics: count, inside: self.inside, rails: self.rails }
    }

    /// The sections of a scenario that say the same.
    pub fn sections(&self) -> String {
        let rails = if self.rails { "wiring = \"rail-optimised\"\n" } else { "" };
        let servers = match self.inside {
            Some((rate, latency)) => format!(
                "[servers]\ngpus = {}\nrate = \"{rate}\"\nlatency = \"{} ns\"\n{rails}",
                self.gpus_per_server,
                latency.0 as f64 / 1e3
            ),
            None if self.gpus_per_server > 1 => format!("[servers]\ngpus = {}\n{rails}", self.gpus_per_server),
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

    /// The contents of the file, and the sections of a scenario, as lines of text. `what`: the format; `kind`: the kind of
    /// fabric that reads it.
    pub fn describe(&self, what: &str, kind: &str) -> String {
        let gpu = if self.gpu.is_empty() { String::new() } else { format!(" ({})", self.gpu) };
        format!(
            "{what}: {} GPUs{gpu}, a NIC each, {} per server; {} below a leaf, {} spines, {} planes\n\
             assumed: switches forward without a delay of their own; all links are as long as those of NICs\n\
             to run it: [fabric] kind = \"{kind}\", topo = \"FILE\"; or write:\n{}",
            self.gpus,
            self.gpus_per_server,
            self.hosts_per_leaf,
            self.spines,
            self.planes,
            self.sections()
        )
    }
}
