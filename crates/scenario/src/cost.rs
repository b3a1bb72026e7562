//! The parts of a fabric (switches, links, hops, static tables), and the parts that the same NICs would need on one
//! plane.
//!
//! A switch chip has a fixed capacity. With many slow ports it reaches more neighbours than with few fast ports. So a
//! multi-plane fabric needs fewer tiers than one plane of fast ports (Araujo et al., arXiv 2605.04333, section 2).

use strandway_fabric::Topology;
use strandway_proto::HostId;

/// Limit on tiers in these calculations. A single plane may need one tier more than the fabrics of this project have.
pub const TIERS: usize = 4;

/// The parts of a fabric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Switch tiers.
    pub tiers: usize,
    /// NICs.
    pub hosts: u64,
    /// Ports of a leaf switch in use.
    pub leaf_ports: u64,
    /// Switches of each tier, from the leaves on, all planes together.
    pub switches: [u64; TIERS],
    /// Links between hosts and leaves, and between each tier and the next, all planes together.
    pub links: [u64; TIERS],
    /// Number of links over which one NIC's traffic is spread: its planes.
    pub split: u64,
    /// Switches on the longest path.
    pub longest: u64,
    /// Other hosts under the same leaf, one switch away.
    pub neighbours: u64,
    /// Distinct paths between two hosts at the largest distance.
    pub paths: u64,
    /// Rate of a leaf's hosts divided by the rate of its uplinks.
    pub oversubscription: f64,
}

/// Entries of the static tables of a source-routed fabric: one's own segment and one route per neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// In a leaf (T0).
    pub leaf: u64,
    /// In a switch of tier 1 (T1).
    pub spine: u64,
    /// In a core (T2); 0 without cores.
    pub core: u64,
}

impl Cost {
    /// The parts of this fabric.
    pub fn of(topology: &Topology) -> Cost {
        let shape = topology.shape();
        let planes = u64::from(topology.planes());
        let (leaves, spines, cores) = (
            u64::from(topology.leaves()) * planes,
            u64::from(topology.spines()) * planes,
            u64::from(topology.cores()) * planes,
        );
        let hosts = u64::from(topology.hosts());
        let (leaf_up, spine_up) = (u64::from(topology.leaf_up()), u64::from(topology.spine_up()));
        let tiers = topology.tiers();
        let down = f64::from(shape.hosts_per_leaf) * topology.level(0).rate.0 as f64;
        let up = leaf_up as f64 * topology.level(1).rate.0 as f64;
        let far = topology.hops(HostId(0), HostId(topology.hosts() - 1)) as u64;
        let between = topology.graph().map(|graph| graph.links() as u64 / 2 * planes);
        let paths = match far {
            // Every switch on the way has a choice of its own.
            _ if between.is_some() => planes,
            0..=2 => planes,
            3 => planes * u64::from(shape.leaf_bundle),
            4 => planes * leaf_up,
            _ => planes * leaf_up * spine_up,
        };
        Cost {
            tiers,
            hosts,
            leaf_ports: u64::from(topology.leaf_ports()),
            switches: [leaves, spines, cores, 0],
            // A link between sites is an uplink at both ends.
            links: [
                hosts * planes,
                between.unwrap_or(leaves * leaf_up / if far == 3 { 2 } else { 1 }),
                spines * spine_up,
                0,
            ],
            split: planes,
            longest: far - 1,
            neighbours: u64::from(shape.hosts_per_leaf) - 1,
            paths,
            oversubscription: if up > 0.0 { down / up } else { 1.0 },
        }
    }

    /// The parts of one plane for the same NICs: switches with the same chips, whose ports are joined to the NICs' full
    /// rate. The plane has the fewest tiers that are enough for the NICs, and no oversubscription. `None` if a chip has
    /// too few ports left, or four tiers are not enough.
    pub fn single_plane(&self) -> Option<Cost> {
        let radix = self.leaf_ports / self.split / 2 * 2;
        let half = radix / 2;
        if half == 0 {
            return None;
        }
        // A tree of n tiers holds 2 (k/2)^n NICs.
        let held = |tiers: usize| (0..tiers).fold(2u64, |held, _| held.saturating_mul(half));
        let tiers = (1..=TIERS).find(|&tiers| self.hosts <= held(tiers))?;
        let leaves = self.hosts.div_ceil(half);
        let (mut switches, mut links) = ([0; TIERS], [0; TIERS]);
        for tier in 0..tiers {
            switches[tier] = if tier + 1 == tiers { leaves.div_ceil(2) } else { leaves };
            links[tier] = self.hosts;
        }
        Some(Cost {
            tiers,
            hosts: self.hosts,
            leaf_ports: radix,
            switches,
            links,
            split: 1,
            longest: 2 * tiers as u64 - 1,
            neighbours: if tiers == 1 { self.hosts - 1 } else { half - 1 },
            paths: held(tiers - 1) / 2,
            oversubscription: 1.0,
        })
    }

    /// Sum over all tiers.
    pub fn all_switches(&self) -> u64 {
        self.switches.iter().sum()
    }

    /// Links per NIC, over all tiers, counted in links of a NIC's full rate.
    pub fn links_per_host(&self) -> f64 {
        self.links.iter().sum::<u64>() as f64 / self.split as f64 / self.hosts as f64
    }

    /// Optics (transceivers) per NIC, counted in optics of a NIC's full rate: one at each end of each link.
    pub fn optics_per_host(&self) -> f64 {
        2.0 * self.links_per_host()
    }

    /// The share of a leaf's uplinks that fails with one link.
    pub fn uplink_share(&self) -> f64 {
        let leaves = self.switches[0];
        if self.links[1] == 0 { 0.0 } else { leaves as f64 / self.links[1] as f64 }
    }
}

/// Notes on the switches of a fat tree: cores with ports that nothing uses, and, if the scenario does not choose the
/// number of ports (`chosen`), switches that are not sold.
pub(crate) fn notes(topology: &Topology, chosen: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(pods) = topology.shape().pods else { return notes };
    let cost = Cost::of(topology);
    let ports = topology.leaf_ports();
    let fits = |times: u32| topology.core_ports() * times <= ports && pods.cores_per_spine.is_multiple_of(times);
    if let Some(times) = (2..=pods.cores_per_spine).rev().find(|times| fits(*times)) {
        let [_, _, cores, _] = cost.switches;
        let fewer = cost.all_switches() - cores + cores / u64::from(times);
        notes.push(format!(
            "fabric: cores use {} of {ports} ports, since there are {} pods; core_bundle = {} and cores_per_agg = {} have the \
             same links with {fewer} switches instead of {}",
            topology.core_ports(),
            topology.pods(),
            pods.core_bundle * times,
            pods.cores_per_spine / times,
            cost.all_switches(),
        ));
    }
    if !chosen && ports > SOLD[0] && !SOLD.contains(&ports) {
        let next = SOLD.iter().find(|sold| **sold > ports).map_or(String::new(), |next| format!("; write k = {next}"));
        notes.push(format!(
            "fabric: k = {ports} is the fewest ports with which a fat tree holds {} hosts, and such switches are not sold{next}",
            topology.hosts()
        ));
    }
    notes
}

/// Numbers of ports with which switches are sold, at one or the other rate.
const SOLD: [u32; 7] = [16, 32, 36, 40, 64, 128, 144];

impl Tables {
    /// The tables of this fabric's switches if they forwarded by static source routes.
    pub fn of(topology: &Topology) -> Tables {
        let entries = |ports: u32| u64::from(ports) + 1;
        Tables {
            leaf: entries(topology.leaf_ports()),
            spine: entries(topology.spine_ports()),
            core: if topology.cores() == 0 { 0 } else { entries(topology.core_ports()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_fabric::topology::{Level, Shape};
    use strandway_proto::{Rate, Span};

    fn multi_plane(planes: u8, per_leaf: u32) -> Topology {
        let hosts = 2 * per_leaf * per_leaf;
        let shape = Shape { hosts, planes, hosts_per_leaf: per_leaf, spines: per_leaf, leaf_bundle: 1, pods: None };
        let level = Level { rate: Rate::from_gbps(100), latency: Span::from_us(1) };
        Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape")
    }

    #[test]
    fn notes_tell_of_idle_ports_and_of_switches_that_nobody_sells() {
        let tree = |text: &str| {
            let text = format!("[fabric]\nkind = \"fat-tree\"\n{text}");
            let experiment = crate::parse(&text).expect("TOML").check(|_| Default::default());
            experiment.unwrap_or_else(|e| panic!("{e}"))
        };
        let told = |text: &str| {
            let notes = tree(text).notes;
            notes.into_iter().filter(|note| note.starts_with("fabric: ")).collect::<Vec<_>>().join("\n")
        };
        let said = told("hosts = 4096\nk = 64\n");
        assert!(
            said.contains("cores use 4 of 64 ports") && said.contains("with 320 switches instead of 1280"),
            "{said}"
        );
        let bundled = tree("hosts = 4096\nk = 64\ncore_bundle = 16\ncores_per_agg = 2\n");
        assert_eq!(Cost::of(&bundled.plan.topology).all_switches(), 320);
        assert_eq!(told("hosts = 4096\nk = 64\ncore_bundle = 16\ncores_per_agg = 2\n"), "");
        // The page of several planes counts one plane of 32-port switches: the same 640.
        let said = told("hosts = 4096\nk = 32\n");
        assert!(said.contains("with 640 switches instead of 768"), "{said}");
        let said = told("hosts = 4096\n");
        assert!(said.contains("k = 26 is the fewest ports") && said.contains("write k = 32"), "{said}");
        assert_eq!(told("hosts = 128\n"), "");
    }

    #[test]
    fn the_published_comparison_comes_out() {
        // 131,072 NICs of 8 x 100 Gb/s on switches of 512 ports: 4,096 T0 and 2,048 T1.
        let cost = Cost::of(&multi_plane(8, 256));
        assert_eq!((cost.hosts, cost.switches, cost.paths), (131_072, [4096, 2048, 0, 0], 2048));
        assert_eq!((cost.longest, cost.neighbours), (3, 255));
        assert_eq!(Tables::of(&multi_plane(8, 256)), Tables { leaf: 513, spine: 513, core: 0 });
        // One plane of 800 Gb/s and three tiers can hold 65,536 NICs: more NICs need a fourth tier, with seven switches
        // on the way.
        let single = cost.single_plane().expect("four tiers");
        assert_eq!((single.tiers, single.switches, single.longest), (4, [4096, 4096, 4096, 2048], 7));
        // At 65,536 NICs: 5,120 switches against 3,072, three links per NIC against two.
        let half = Cost { hosts: 65_536, switches: [2048, 1024, 0, 0], links: [65_536 * 8, 65_536 * 8, 0, 0], ..cost };
        let single = half.single_plane().expect("three tiers");
        assert_eq!((single.tiers, single.switches, single.longest), (3, [2048, 2048, 1024, 0], 5));
        assert_eq!((single.paths, single.neighbours), (1024, 31));
        let ratio = |x: u64, y: u64| x as f64 / y as f64;
        assert!((ratio(half.all_switches(), single.all_switches()) - 0.6).abs() < 1e-9);
        assert_eq!((half.links_per_host(), single.links_per_host()), (2.0, 3.0));
        assert_eq!((half.optics_per_host(), single.optics_per_host()), (4.0, 6.0));
        assert!((cost.uplink_share() - 1.0 / 256.0).abs() < 1e-9);
        assert!((single.uplink_share() - 1.0 / 32.0).abs() < 1e-9);
    }

    #[test]
    fn a_single_plane_has_as_few_tiers_as_hold_the_hosts() {
        let cost = Cost::of(&multi_plane(4, 8));
        assert_eq!((cost.hosts, cost.switches), (128, [64, 32, 0, 0]));
        assert_eq!(cost.single_plane(), None, "four-port switches hold no 128 hosts");
        let on = |hosts| Cost { hosts, ..Cost::of(&multi_plane(2, 8)) }.single_plane().expect("eight-port switches");
        for (hosts, tiers, switches, paths) in [
            (8, 1, [1, 0, 0, 0], 1),
            (32, 2, [8, 4, 0, 0], 4),
            (33, 3, [9, 9, 5, 0], 16),
            (128, 3, [32, 32, 16, 0], 16),
            (512, 4, [128, 128, 128, 64], 64),
        ] {
            let single = on(hosts);
            assert_eq!((single.tiers, single.switches, single.paths), (tiers, switches, paths), "{hosts} hosts");
        }
    }
}
