//! Sites joined by long links. Every site is one switch per plane with its hosts. Every pair of sites has its own long
//! links, one or several in parallel.
//!
//! The switch of a site is a leaf whose uplinks lead directly to the other sites: the first uplinks to the site with
//! the lowest number, the following ones to the next site. Each site gets `bundle` uplinks. There is no tier above.

use super::{Level, LinkEnds, LinkId, NodeId, Shape, Topology};
use strandway_proto::units::{Bytes, Rate, Span};

/// Limit on the sites of a fabric (ours): 120 pairs.
pub const SITES_MAX: u32 = 16;

/// The shape of a fabric of sites. Counts are per plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SitesShape {
    /// Number of sites, 2 to [`SITES_MAX`].
    pub sites: u32,
    /// Hosts of one site.
    pub hosts_per_site: u32,
    /// Identical planes, at most 32. Every host has a port in each, and every plane has its own long links.
    pub planes: u8,
    /// Parallel long links between two sites, within a plane.
    pub bundle: u32,
}

/// The long links between two sites, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongLink {
    /// Rate of one link, and its propagation delay.
    pub level: Level,
    /// Limit on the bytes in the data queue of the ports at both ends.
    pub queue: Bytes,
}

impl SitesShape {
    /// The number of a pair of sites, below `sites * (sites - 1) / 2`; the order of the two does not matter.
    pub const fn pair(a: u32, b: u32) -> usize {
        let (low, high) = if a < b { (a, b) } else { (b, a) };
        (high * (high - 1) / 2 + low) as usize
    }

    /// All pairs of sites, in the order of [`SitesShape::pair`].
    pub fn pairs(self) -> impl Iterator<Item = (u32, u32)> {
        (1..self.sites).flat_map(|high| (0..high).map(move |low| (low, high)))
    }
}

impl Topology {
    /// Sites with hosts on one switch per plane. `local`: the links between hosts and their site's switch. `long`: the
    /// long links by pair of sites ([`SitesShape::pairs`]). `switch_latency`: the latency of the sites' switches.
    ///
    /// # Errors
    /// A sentence that names the wrong value.
    pub fn of_sites(
        sites: SitesShape,
        local: Level,
        long: Vec<LongLink>,
        switch_latency: Span,
    ) -> Result<Topology, String> {
        if !(2..=SITES_MAX).contains(&sites.sites) {
            return Err(format!("{} sites: long links join 2 to {SITES_MAX}", sites.sites));
        }
        let pairs = sites.pairs().count();
        if long.len() != pairs {
            return Err(format!("{} long links for {pairs} pairs of sites", long.len()));
        }
        if long.iter().any(|l| l.level.rate.0 == 0 || l.level.latency < Span::from_ns(1)) {
            return Err("a long link needs a rate above zero and a latency of at least 1 ns".into());
        }
        let shape = Shape {
            hosts: sites.sites * sites.hosts_per_site,
            planes: sites.planes,
            hosts_per_leaf: sites.hosts_per_site,
            spines: sites.sites - 1,
            leaf_bundle: sites.bundle,
            pods: None,
        };
        let slowest = long.iter().map(|l| l.level.rate).min().unwrap_or(local.rate);
        let longest = long.iter().map(|l| l.level.latency).max().unwrap_or(local.latency);
        let level = Level { rate: slowest, latency: longest };
        let clos = Topology::new(shape, [local, level, level], [switch_latency; 3])?;
        Ok(Topology { spines: 0, spine_down: 0, long, ..clos })
    }

    /// Number of sites; 0 if the fabric is one place.
    pub fn sites(&self) -> u32 {
        if self.long.is_empty() { 0 } else { self.leaves }
    }

    /// The long links between two sites; `None` if the fabric is one place or `a` equals `b`.
    pub fn long_link(&self, a: u32, b: u32) -> Option<&LongLink> {
        if a == b { None } else { self.long.get(SitesShape::pair(a, b)) }
    }

    /// The long link that a port feeds; `None` for other ports.
    pub fn long_link_of(&self, ends: &LinkEnds) -> Option<&LongLink> {
        if ends.level != 1 || self.long.is_empty() {
            return None;
        }
        self.long_link(self.describe(ends.from).1, self.describe(ends.to).1)
    }

    /// Rate and latency of the link with these ends.
    pub fn level_of(&self, ends: &LinkEnds) -> Level {
        let of_graph = self.graph().filter(|_| ends.level == 1).and_then(|graph| self.graph_level(graph, ends));
        of_graph.unwrap_or_else(|| *self.long_link_of(ends).map_or(self.level(ends.level), |long| &long.level))
    }

    /// Every directed long link, in the order of its number.
    pub fn long_links(&self) -> impl Iterator<Item = (LinkId, LinkEnds)> {
        let [_, leaf, spine, ..] = self.link_bases();
        let range = if self.long.is_empty() { 0..0 } else { leaf..spine };
        range.map(LinkId).filter_map(|link| Some((link, self.ends(link)?))).filter(|(_, ends)| ends.level == 1)
    }

    /// Rate and latency of every kind of link in the fabric.
    pub fn kinds_of_link(&self) -> impl Iterator<Item = &Level> {
        let of_graph = self.graph().map_or(&[][..], |graph| &graph.kinds[..]);
        let tiers = if !of_graph.is_empty() {
            0
        } else if self.long.is_empty() {
            self.tiers()
        } else {
            1
        };
        self.levels[..tiers].iter().chain(of_graph).chain(self.long.iter().map(|long| &long.level))
    }

    /// The long links by pair of sites ([`SitesShape::pairs`]).
    pub fn long_queues(&self) -> impl Iterator<Item = &LongLink> {
        self.long.iter()
    }

    /// The site at the far end of the `nth` group of a site's uplinks.
    const fn neighbour(site: u32, nth: u32) -> u32 {
        nth + (nth >= site) as u32
    }

    /// The first uplink of a site towards another site, as an index among its uplinks.
    pub const fn uplinks_to(&self, site: u32, other: u32) -> u32 {
        (other - (other > site) as u32) * self.shape.leaf_bundle
    }

    /// The ends of uplink `up` of a site's switch in a plane.
    pub(super) fn long_ends(&self, from: NodeId, site: u32, plane: u8, up: u32) -> LinkEnds {
        let bundle = self.shape.leaf_bundle;
        let other = Topology::neighbour(site, up / bundle);
        let to = self.leaf(other, plane);
        let back = self.uplinks_to(other, site) + up % bundle;
        let reverse = LinkId(self.ports_of(to).0.0 + self.shape.hosts_per_leaf + back);
        LinkEnds { from, to, level: 1, up: site < other, plane, reverse }
    }

    /// The lowest rate of the stages between two sites in one plane; parallel links count together.
    pub fn narrowest(&self, site: u32, other: u32) -> Rate {
        let local = self.levels[0].rate;
        self.long_link(site, other)
            .map_or(local, |long| local.min(Rate(long.level.rate.0 * u64::from(self.shape.leaf_bundle))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::HostId;

    fn three() -> Topology {
        let sites = SitesShape { sites: 3, hosts_per_site: 2, planes: 2, bundle: 2 };
        let local = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let long = sites
            .pairs()
            .map(|(a, b)| LongLink {
                level: Level { rate: Rate::from_gbps(100), latency: Span::from_ms(u64::from(10 * a + b)) },
                queue: Bytes(1 << 30),
            })
            .collect();
        Topology::of_sites(sites, local, long, Span::ZERO).expect("a valid shape")
    }

    #[test]
    fn each_pair_of_sites_has_links_of_its_own() {
        let topology = three();
        let mut found = std::collections::BTreeMap::new();
        for (link, ends) in topology.long_links() {
            let (a, b) = (topology.describe(ends.from).1, topology.describe(ends.to).1);
            let far = topology.level_of(&ends).latency;
            assert_eq!(far, Span::from_ms(u64::from(10 * a.min(b) + a.max(b))), "{}", topology.link_name(link));
            *found.entry((a, b)).or_insert(0) += 1;
        }
        let all: Vec<(u32, u32)> = found.keys().copied().collect();
        assert_eq!(all, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        assert!(found.values().all(|&count| count == 4), "two planes of two links: {found:?}");
    }

    #[test]
    fn distances_between_sites_are_exact() {
        let topology = three();
        let (here, there) = (HostId(0), HostId(5));
        // 4,160 B at 400 Gb/s twice and at 100 Gb/s once; 1 us twice and 2 ms once.
        let way = 2 * 83_200 + 332_800 + 2_000_000 + 2_000_000_000;
        assert_eq!(topology.one_way_between(Bytes(4160), here, there), Span(way));
        assert_eq!(topology.one_way_between(Bytes(4160), here, HostId(1)), topology.one_way(Bytes(4160), 2));
        assert_eq!(topology.hops(here, there), 3);
        // The longest path is the one between the last two sites, 12 ms.
        let ack = 2 * 1_280 + 5_120 + 2_000_000;
        let data = 2 * 83_200 + 332_800 + 2_000_000;
        assert_eq!(topology.base_rtt(Bytes(4160), Bytes(64)), Span(data + ack + 2 * 12_000_000_000));
        assert_eq!(topology.narrowest(0, 1), Rate::from_gbps(200));
        assert_eq!(topology.narrowest(1, 1), Rate::from_gbps(400));
    }

    #[test]
    fn a_fabric_that_has_no_sites_says_so() {
        let sites = SitesShape { sites: 17, hosts_per_site: 1, planes: 1, bundle: 1 };
        let local = Level { rate: Rate::from_gbps(400), latency: Span::from_us(1) };
        let said = Topology::of_sites(sites, local, Vec::new(), Span::ZERO).expect_err("too many");
        assert!(said.contains("2 to 16"), "{said}");
        let said = Topology::of_sites(SitesShape { sites: 3, ..sites }, local, Vec::new(), Span::ZERO);
        assert!(said.expect_err("none").contains("0 long links for 3 pairs"));
    }
}
