//! Multicast teams: the hosts for which switches copy, the trees of copies, and the lines for `tc` that make switches
//! copy.
//!
//! A team has one group address per plane and tree ([`GroupAddress`]). A switch has a filter for this address at each
//! port at which such packets arrive; the filter sends a copy to every port further down the tree. The trees are those
//! of [`strandway_fabric::multicast`], walked link by link.

use crate::fabric::{Team, port_to};
use crate::faults::node;
use crate::{LinuxFabric, Node};
use std::collections::{BTreeMap, BTreeSet};
use strandway_fabric::multicast::{GroupAddress, Members, Tree};
use strandway_fabric::topology::{Level, LongLink, Pods, Shape, SitesShape};
use strandway_fabric::{NodeId, Topology};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Rate, Span};

/// The highest number of a team: the kernel orders filters by 16-bit numbers, and the lowest ones are used for losses.
/// Ours.
pub const TEAM_MAX: u16 = 65_000;

/// The most copies that one filter makes: the kernel allows 32 actions (`TCA_ACT_MAX_PRIO`).
const COPIES_MAX: usize = 32;

/// The preference of team 0 among a port's filters, after the filter that loses arriving packets (`queue.rs`).
const PREFERENCE: u32 = 2;

impl Team {
    /// The teams of a fabric with `hosts` hosts for these groups: the team of all hosts, and one for each other set of
    /// members.
    pub fn of_groups(hosts: u16, groups: &[Members]) -> Vec<Team> {
        let mut teams = vec![Team { number: Team::ALL, hosts: (0..hosts).collect() }];
        for group in groups {
            let hosts = sorted(group);
            if teams.iter().all(|team| team.hosts != hosts) {
                teams.push(Team { number: teams.len() as u16, hosts });
            }
        }
        teams
    }

    /// Reads members such as `h0,h2,host3`.
    ///
    /// # Errors
    /// With a sentence and a remedy, if they are not a team of this fabric.
    pub fn parse(fabric: &LinuxFabric, number: u16, hosts: &str) -> Result<Team, String> {
        let mut team = Team { number, hosts: Vec::new() };
        for name in hosts.split(',').map(str::trim) {
            let host = match Node::named(name) {
                Some(Node::Host(host)) if host < fabric.hosts => host,
                _ => return Err(format!("`{name}` is no host; hosts are h0 to h{}: write h0,h1", fabric.hosts - 1)),
            };
            if team.hosts.contains(&host) {
                return Err(format!("{name} is named twice; name each host once"));
            }
            team.hosts.push(host);
        }
        if team.hosts.len() < 2 {
            return Err("a team has two hosts or more; write, say, h0,h1".into());
        }
        team.hosts.sort_unstable();
        Ok(team)
    }
}

/// The numbers of a group's members, in rising order.
fn sorted(group: &Members) -> Vec<u16> {
    let mut hosts: Vec<u16> = group.hosts().iter().map(|host| host.0 as u16).collect();
    hosts.sort_unstable();
    hosts
}

impl LinuxFabric {
    /// The number of the team that has the members of this group, if it was built with the fabric.
    pub fn team_of(&self, group: &Members) -> Option<u16> {
        let hosts = sorted(group);
        self.teams.iter().find(|team| team.hosts == hosts).map(|team| team.number)
    }

    /// Trees of a plane: one per T1; with sites, one per parallel long link.
    pub fn trees(&self) -> u16 {
        Tree::count(&self.topology()) as u16
    }

    /// Its shape for the simulator's code; rates and latencies are placeholders.
    fn topology(&self) -> Topology {
        let level = Level { rate: Rate(1), latency: Span::from_ns(1) };
        let hosts_per_leaf = u32::from(self.hosts_per_t0);
        let made = if self.lines.is_empty() {
            let spines = u32::from(self.t1s);
            let pods = self.pods.map(|pods| Pods {
                leaves_per_pod: u32::from(pods.t0s),
                cores_per_spine: u32::from(pods.t2s_per_t1),
                core_bundle: 1,
            });
            let shape = Shape {
                hosts: u32::from(self.hosts),
                planes: self.planes,
                hosts_per_leaf,
                spines: self.pods.map_or(spines, |pods| u32::from(pods.t1s)),
                leaf_bundle: 1,
                pods,
            };
            Topology::new(shape, [level; 3], [Span::ZERO; 3])
        } else {
            let (sites, bundle) = (u32::from(self.t0s()), u32::from(self.clos().paths_between_t0s()));
            let shape = SitesShape { sites, hosts_per_site: hosts_per_leaf, planes: self.planes, bundle };
            let long = LongLink { level, queue: Bytes::ZERO };
            Topology::of_sites(shape, level, vec![long; shape.pairs().count()], Span::ZERO)
        };
        made.unwrap_or_else(|what| panic!("a checked fabric has a topology: {what}"))
    }

    /// For each switch, and each neighbour from which packets of this group come: the neighbours that get a copy.
    pub(crate) fn copies(&self, team: &Team, plane: u8, tree: u16) -> BTreeMap<(Node, Node), Vec<Node>> {
        team.hosts.iter().flat_map(|&host| self.copies_from(team, host, plane, tree)).collect()
    }

    /// For each switch, and each neighbour from which casts of one member come: the neighbours that get a copy.
    pub(crate) fn copies_from(
        &self,
        team: &Team,
        host: u16,
        plane: u8,
        tree: u16,
    ) -> BTreeMap<(Node, Node), Vec<Node>> {
        let topology = self.topology();
        let members = Members::new(&topology, team.hosts.iter().map(|&h| HostId(u32::from(h))).collect());
        let numbered = Tree::numbered(&topology, u32::from(tree));
        let mut copies = BTreeMap::new();
        let source = HostId(u32::from(host));
        let mut at: Vec<(Node, NodeId)> = vec![(Node::Host(host), topology.leaf(topology.leaf_of(source), plane))];
        while let Some((from, switch)) = at.pop() {
            let here = node(&topology, switch);
            let mut next = Vec::new();
            members.copies(&topology, switch, source, numbered, |port| {
                let ends = topology.ends(port.link(&topology, switch)).expect("a port in use has a link");
                let far = node(&topology, ends.to);
                let mut from = here;
                if let (Node::T0(_, a), Node::T0(_, b)) = (here, far) {
                    // A long link runs through a T1 of its own here, which the simulator does not have.
                    let pair = SitesShape::pair(u32::from(a), u32::from(b)) as u16;
                    from = Node::T1(plane, pair * self.clos().paths_between_t0s() + tree);
                    copies.insert((from, here), vec![far]);
                    next.push(from);
                } else {
                    next.push(far);
                }
                if !matches!(far, Node::Host(_)) {
                    at.push((from, ends.to));
                }
            });
            if !next.is_empty() {
                copies.insert((here, from), next);
            }
        }
        copies
    }
}

/// The lines that make switches copy for a team, switch by switch.
pub(crate) fn form(fabric: &LinuxFabric, team: &Team) -> BTreeMap<Node, Vec<String>> {
    let mut lines: BTreeMap<Node, Vec<String>> = BTreeMap::new();
    for plane in 0..fabric.planes {
        for tree in 0..fabric.trees() {
            let group = GroupAddress { plane, tree, team: team.number };
            for ((switch, from), to) in fabric.copies(team, plane, tree) {
                lines.entry(switch).or_default().extend(filters(fabric, group, switch, from, &to));
            }
        }
    }
    lines
}

/// The lines that remove a team, switch by switch.
pub(crate) fn disband(fabric: &LinuxFabric, team: &Team) -> BTreeMap<Node, Vec<String>> {
    let mut places: BTreeSet<(Node, Node)> = BTreeSet::new();
    for plane in 0..fabric.planes {
        places.extend((0..fabric.trees()).flat_map(|tree| fabric.copies(team, plane, tree).into_keys()));
    }
    let mut lines: BTreeMap<Node, Vec<String>> = BTreeMap::new();
    for (switch, from) in places {
        lines.entry(switch).or_default().push(format!("filter del {}", at(switch, from, team.number)));
    }
    lines
}

/// The place of a switch's filters for a team, for packets from one neighbour.
fn at(switch: Node, from: Node, team: u16) -> String {
    format!("dev {} ingress pref {} protocol ipv6", port_to(switch, from), PREFERENCE + u32::from(team))
}

/// The filters that copy packets of a group from one neighbour to other neighbours. If that neighbour is a host, only
/// packets with its own source address are copied.
fn filters(fabric: &LinuxFabric, group: GroupAddress, switch: Node, from: Node, to: &[Node]) -> Vec<String> {
    let source = match from {
        Node::Host(host) => format!("match ip6 src {}/128 ", fabric.clos().host(group.plane, u32::from(host))),
        _ => String::new(),
    };
    let head = format!("filter add {} u32 {source}match ip6 dst {}/128", at(switch, from, group.team), group.address());
    let last = to.len() - 1;
    let action = |(place, peer): (usize, &Node)| {
        let what = match place {
            // The last neighbour gets the packet itself.
            _ if place == last => "redirect",
            _ => "mirror",
        };
        // A full filter passes the packet on to the next one, which matches as well.
        let then = match (place + 1) % COPIES_MAX {
            _ if place == last => "",
            0 => " continue",
            _ => " pipe",
        };
        format!(" action mirred egress {what} dev {}{then}", port_to(switch, *peer))
    };
    let actions: Vec<String> = to.iter().enumerate().map(action).collect();
    actions.chunks(COPIES_MAX).map(|chunk| format!("{head}{}", chunk.concat())).collect()
}
