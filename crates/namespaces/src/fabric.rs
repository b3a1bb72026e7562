//! The description of a fabric: hosts, switches and their ports, by number.

use crate::line::Line;
use serde::{Deserialize, Serialize};
use std::fmt;
use strandway_fabric::datagram;
use strandway_fabric::usid::{Clos, ClosError, Pods};
use strandway_proto::Rate;

/// The place of all fabrics' state: a folder each, with `fabric.toml` and a node file per host.
pub const FOLDER: &str = "/run/strandway";

/// The most hosts of a fabric on one machine. Ours: two cores can still keep them busy.
pub const HOSTS_MAX: u32 = 64;

/// The most namespaces of a fabric. Ours: building and reading the state take only seconds.
pub const NAMESPACES_MAX: usize = 200;

/// The most planes, the same as a node's.
pub const PLANES_MAX: u8 = datagram::PLANES_MAX as u8;

/// The fastest port that is shaped. Measured: above 1 Gb/s the processor limits the rate, not the shaper.
pub const RATE_MAX: Rate = Rate(1_000_000_000);

/// The fastest long link: the highest rate at which a delay line loses no frames by itself (`docs/performance.md`).
pub const LINE_RATE_MAX: Rate = Rate(2_000_000_000);

/// A checked fabric to be built of namespaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinuxFabric {
    /// The prefix of the names of its namespaces.
    pub name: String,
    /// The scenario's file, for display.
    pub scenario: String,
    /// Planes.
    pub planes: u8,
    /// Hosts; each has a port into every plane.
    pub hosts: u16,
    /// Hosts below each T0; the last one may have fewer.
    pub hosts_per_t0: u16,
    /// T1 switches of each plane, all pods together.
    pub t1s: u16,
    /// MTU of all ports, in bytes.
    pub mtu: u32,
    /// Bits per second of links between hosts and T0s; `None` if ports are not shaped.
    pub host_rate: Option<u64>,
    /// Bits per second of links between T0s and T1s; `None` if ports are not shaped.
    pub uplink_rate: Option<u64>,
    /// Bits per second of links between T1s and T2s; `None` if ports are not shaped, or with two tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_rate: Option<u64>,
    /// The most bytes that wait at a switch's port.
    pub queue: u64,
    /// The marking at switch ports; `None` if they do not mark.
    pub marking: Option<Marking>,
    /// Do switch ports trim packets for which they have no room, instead of dropping them?
    pub trimming: bool,
    /// The protocol profile in the node files.
    pub profile: String,
    /// Do hosts send data in MRC's published layout, IPv6 in IPv6?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mrc_layout: bool,
    /// Payload bytes of a full packet.
    pub payload: u32,
    /// Bits per second of a NIC, all planes together, for the node files.
    pub node_rate: u64,
    /// Round trip without queueing, in nanoseconds, for the node files.
    pub base_rtt_ns: u64,
    /// Requests of the scenario that namespaces do not fulfil, each in a sentence.
    pub notes: Vec<String>,
    /// The third tier; `None` with two tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodShape>,
    /// The long links, plane by plane and pair by pair of sites. Long link `i` of a plane runs through T1 `i`; a delay
    /// line lies between this T1 and the site with the higher number. Empty for a fabric without sites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
    /// Rates and round trips between sites and within them; empty for a fabric without sites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
    /// The multicast teams for which switches copy: that of all hosts, and the scenario's. Empty if switches cannot
    /// copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<Team>,
    /// How switches copy multicast.
    #[serde(default, skip_serializing_if = "Copying::is_default")]
    pub copying: Copying,
}

/// The third tier of a fabric, in each plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodShape {
    /// T0 switches of a pod; the last pod may have fewer.
    pub t0s: u16,
    /// T1 switches of a pod.
    pub t1s: u16,
    /// T2 switches that each T1 is linked to.
    pub t2s_per_t1: u16,
}

/// How switches copy multicast packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copying {
    /// By filters at their ports, for every member of a team.
    #[default]
    Filters,
    /// By the kernel's multicast routing (`ip6mr`) with static routes per source, as routers of other networks do.
    Routers,
}

impl Copying {
    fn is_default(&self) -> bool {
        *self == Copying::default()
    }
}

/// The way between the hosts of two sites, or of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The two sites, in rising order.
    pub sites: [u16; 2],
    /// Bits per second of its slowest stage, all planes and parallel links together.
    pub rate: u64,
    /// Round trip without queueing, in nanoseconds.
    pub base_rtt_ns: u64,
}

/// The marking (ECN) of a switch port, by the bytes that wait when a packet joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marking {
    /// Below this many bytes it never marks.
    pub low: u64,
    /// From this many bytes on it always marks.
    pub high: u64,
    /// The probability just below `high`, in millionths; it rises from zero at `low`.
    pub chance_ppm: u32,
    /// Do ports that lead to hosts mark as well?
    pub last_hop: bool,
}

/// A set of hosts for which switches copy packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    /// Its number in group addresses ([`GroupAddress::team`](strandway_fabric::multicast::GroupAddress::team)).
    pub number: u16,
    /// Its members, in rising order.
    pub hosts: Vec<u16>,
}

impl Team {
    /// The number of the team of all hosts.
    pub const ALL: u16 = 0;
}

impl fmt::Display for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("h{host}")).collect();
        write!(f, "{} ({})", self.number, hosts.join(" "))
    }
}

/// A host or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A host.
    Host(u16),
    /// A switch to which hosts are connected: plane and number.
    T0(u8, u16),
    /// A switch that connects T0s: plane and number.
    T1(u8, u16),
    /// A switch that connects the T1s of pods: plane and number.
    T2(u8, u16),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Host(h) => write!(f, "h{h}"),
            Node::T0(p, i) => write!(f, "t0-p{p}-{i}"),
            Node::T1(p, j) => write!(f, "t1-p{p}-{j}"),
            Node::T2(p, m) => write!(f, "t2-p{p}-{m}"),
        }
    }
}

impl Node {
    /// The node of that name, whether or not a fabric has it. The name is its own, such as `t0-p1-0`, or the
    /// scenario's, such as `leaf0.p1`, `spine2.p0`, `core1.p0` and `host3`. A switch without a plane is in plane 0. The
    /// scenario's names of aggregation switches contain a pod: [`LinuxFabric::named`] reads them.
    pub fn named(name: &str) -> Option<Node> {
        let number = |text: &str| text.parse::<u16>().ok().filter(|n| n.to_string() == text);
        if let Some(host) = name.strip_prefix("host") {
            return number(host).map(Node::Host);
        }
        type Switch = fn(u8, u16) -> Node;
        for (kind, switch) in
            [("leaf", Node::T0 as Switch), ("site", Node::T0), ("spine", Node::T1), ("core", Node::T2)]
        {
            if let Some(rest) = name.strip_prefix(kind) {
                let (at, plane) = rest.split_once(".p").unwrap_or((rest, "0"));
                return Some(switch(u8::try_from(number(plane)?).ok()?, number(at)?));
            }
        }
        if let Some(host) = name.strip_prefix('h') {
            return number(host).map(Node::Host);
        }
        let (kind, rest) = name.split_once("-p")?;
        let (plane, at) = rest.split_once('-')?;
        let (plane, at) = (u8::try_from(number(plane)?).ok()?, number(at)?);
        match kind {
            "t0" => Some(Node::T0(plane, at)),
            "t1" => Some(Node::T1(plane, at)),
            "t2" => Some(Node::T2(plane, at)),
            _ => None,
        }
    }
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The node that has the port.
    pub node: Node,
    /// Its name in its namespace: `p0` (a host's, into plane 0), `h3` (to host 3), `u1` (up to T1 1 or T2 1), `d0`
    /// (down to T0 0 or T1 0).
    pub name: String,
    /// The node at the other end.
    pub peer: Node,
    /// The plane that it belongs to.
    pub plane: u8,
}

/// The name of a switch's port to this neighbour.
pub(crate) fn port_to(switch: Node, peer: Node) -> String {
    match peer {
        Node::Host(h) => format!("h{h}"),
        Node::T1(_, j) if matches!(switch, Node::T2(..)) => format!("d{j}"),
        Node::T0(_, i) => format!("d{i}"),
        Node::T1(_, n) | Node::T2(_, n) => format!("u{n}"),
    }
}

impl LinuxFabric {
    /// The address plan of the fabric.
    pub fn clos(&self) -> Clos {
        self.try_clos().expect("numbers of a checked fabric")
    }

    /// The address plan of a fabric whose numbers are not checked yet.
    ///
    /// # Errors
    /// If planes, switches or hosts do not fit micro segments.
    pub fn try_clos(&self) -> Result<Clos, ClosError> {
        let clos = match (self.pods, self.t1s_per_pair()) {
            (Some(pods), _) => {
                let above = Pods { t0s: pods.t0s, t2s_per_t1: pods.t2s_per_t1 };
                Clos::of_pods(u16::from(self.planes), pods.t1s, self.hosts_per_t0, above)
            }
            (None, 0) => Clos::new(self.t1s, self.hosts_per_t0),
            (None, per_pair) => Clos::of_sites(self.t0s(), per_pair, self.hosts_per_t0),
        }?;
        clos.holds(u32::from(self.planes), u32::from(self.hosts))?;
        Ok(clos)
    }

    /// T0 switches of each plane.
    pub fn t0s(&self) -> u16 {
        self.hosts.div_ceil(self.hosts_per_t0)
    }

    /// T2 switches of each plane; 0 with two tiers.
    pub fn t2s(&self) -> u16 {
        self.pods.map_or(0, |pods| pods.t1s * pods.t2s_per_t1)
    }

    /// The node of that name, in the fabric's own form or the scenario's ([`Node::named`]), such as `agg1.0.p0` for the
    /// first aggregation switch of pod 1. `None` if the fabric has no such node.
    pub fn named(&self, name: &str) -> Option<Node> {
        let number = |text: &str| text.parse::<u16>().ok().filter(|n| n.to_string() == text);
        let node = match (name.strip_prefix("agg"), self.pods) {
            (Some(rest), Some(pods)) => {
                let (at, plane) = rest.split_once(".p").unwrap_or((rest, "0"));
                let (pod, at) = at.split_once('.')?;
                let at = number(at).filter(|at| *at < pods.t1s)?;
                let t1 = number(pod)?.checked_mul(pods.t1s)?.checked_add(at)?;
                Node::T1(u8::try_from(number(plane)?).ok()?, t1)
            }
            _ => Node::named(name)?,
        };
        self.nodes().contains(&node).then_some(node)
    }

    /// The number of T1 switches between two sites of each plane, which is also that of long links; 0 for a fabric
    /// without sites.
    fn t1s_per_pair(&self) -> u16 {
        let pairs = self.t0s() * (self.t0s() - 1) / 2;
        if self.lines.is_empty() { 0 } else { self.t1s / pairs }
    }

    /// All hosts, then the switches plane by plane.
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = (0..self.hosts).map(Node::Host).collect();
        for plane in 0..self.planes {
            nodes.extend((0..self.t0s()).map(|i| Node::T0(plane, i)));
            nodes.extend((0..self.t1s).map(|j| Node::T1(plane, j)));
            nodes.extend((0..self.t2s()).map(|m| Node::T2(plane, m)));
        }
        nodes
    }

    /// Is there a delay line at this port? It lies between the T1 of a long link and the site with the higher number.
    pub(crate) fn is_at_line(&self, port: &Port) -> bool {
        let ((Node::T0(_, t0), Node::T1(_, t1)) | (Node::T1(_, t1), Node::T0(_, t0))) = (port.node, port.peer) else {
            return false;
        };
        self.clos().joined(t1).is_some_and(|(_, high)| t0 == high)
    }

    /// The rate of the long link behind this port, in bits per second; `None` if there is none, or it has no rate.
    pub(crate) fn line_rate(&self, port: &Port) -> Option<u64> {
        let ((Node::T1(plane, t1), _) | (_, Node::T1(plane, t1))) = (port.node, port.peer) else { return None };
        let line = self.lines.get(usize::from(plane) * usize::from(self.t1s) + usize::from(t1))?;
        line.rate
    }

    /// Do its switch ports mark or trim?
    pub fn has_program(&self) -> bool {
        self.trimming || self.marking.is_some()
    }

    /// The fabric without marks and trimming; `why` is added to the notes.
    #[must_use]
    pub fn without_program(mut self, why: &str) -> LinuxFabric {
        for (wanted, what) in [(self.marking.is_some(), "ECN"), (self.trimming, "trimming")] {
            if wanted {
                self.notes.push(format!("{what}: off, {why}"));
            }
        }
        (self.marking, self.trimming) = (None, false);
        self
    }

    /// The fabric with switches that do not copy multicast; `why` is added to the notes.
    #[must_use]
    pub fn without_copies(mut self, why: &str) -> LinuxFabric {
        if !std::mem::take(&mut self.teams).is_empty() {
            self.notes.push(format!("multicast: off, {why}"));
        }
        self
    }

    /// The folder that holds its state.
    pub(crate) fn folder(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    /// The namespace of a node.
    pub fn namespace(&self, node: Node) -> String {
        format!("{}-{node}", self.name)
    }

    /// The ports of a node, those to hosts first.
    pub fn ports(&self, node: Node) -> Vec<Port> {
        let clos = self.clos();
        let port = |name: String, peer: Node, plane: u8| Port { node, name, peer, plane };
        match node {
            Node::Host(h) => {
                let t0 = h / self.hosts_per_t0;
                (0..self.planes).map(|p| port(format!("p{p}"), Node::T0(p, t0), p)).collect()
            }
            Node::T0(p, i) => {
                let below = (0..self.hosts).filter(|h| h / self.hosts_per_t0 == i).map(Node::Host);
                let peers = below.chain(clos.t1s_of(i).map(|j| Node::T1(p, j)));
                peers.map(|peer| port(port_to(node, peer), peer, p)).collect()
            }
            Node::T1(p, j) => {
                let below = clos.t0s_of(j, self.t0s()).map(|i| Node::T0(p, i));
                let peers = below.chain(clos.t2s_of(j).map(|m| Node::T2(p, m)));
                peers.map(|peer| port(port_to(node, peer), peer, p)).collect()
            }
            Node::T2(p, m) => {
                let below = clos.t1s_below(m, self.t0s()).map(|j| Node::T1(p, j));
                below.map(|peer| port(port_to(node, peer), peer, p)).collect()
            }
        }
    }

    /// Checks that the name of a switch contains its plane, if there are several planes.
    ///
    /// # Errors
    /// With a sentence, if it does not contain it.
    pub(crate) fn says_plane(&self, name: &str) -> Result<(), String> {
        let switch = ["leaf", "site", "spine", "agg", "core"].iter().any(|kind| name.starts_with(kind));
        if self.planes > 1 && switch && !name.contains(".p") {
            return Err(format!("there are {} planes; write {name}.p0 or another plane", self.planes));
        }
        Ok(())
    }

    /// The differences from another fabric; the scenario's file name does not count. Empty if there are none.
    pub fn differences(&self, other: &LinuxFabric) -> Vec<String> {
        let (a, b) = (self, other);
        let rate = |bits: Option<u64>| bits.map_or("unshaped".to_string(), |bits| Rate(bits).to_string());
        let marking = |m: &Option<Marking>| m.map_or("off".to_string(), |m| format!("{} to {} B", m.low, m.high));
        let mut found = Vec::new();
        for (what, here, there) in [
            ("hosts", a.hosts.to_string(), b.hosts.to_string()),
            ("planes", a.planes.to_string(), b.planes.to_string()),
            ("hosts below a leaf", a.hosts_per_t0.to_string(), b.hosts_per_t0.to_string()),
            ("spines of a plane", a.t1s.to_string(), b.t1s.to_string()),
            ("rate of a host's port", rate(a.host_rate), rate(b.host_rate)),
            ("cores of a plane", a.t2s().to_string(), b.t2s().to_string()),
            ("rate of an uplink", rate(a.uplink_rate), rate(b.uplink_rate)),
            ("queue", format!("{} B", a.queue), format!("{} B", b.queue)),
            ("marking", marking(&a.marking), marking(&b.marking)),
            ("trimming", a.trimming.to_string(), b.trimming.to_string()),
            ("profile", a.profile.clone(), b.profile.clone()),
            ("MRC's layout", a.mrc_layout.to_string(), b.mrc_layout.to_string()),
            ("long links", format!("{}", a.lines.len()), format!("{}", b.lines.len())),
            ("payload", format!("{} B", a.payload), format!("{} B", b.payload)),
            ("multicast teams", format!("{}", a.teams.len()), format!("{}", b.teams.len())),
            ("copies by", format!("{:?}", a.copying).to_lowercase(), format!("{:?}", b.copying).to_lowercase()),
        ] {
            if here != there {
                found.push(format!("{what} {here} instead of {there}"));
            }
        }
        let bare = |f: &LinuxFabric| LinuxFabric { scenario: String::new(), ..f.clone() };
        if found.is_empty() && bare(a) != bare(b) {
            found.push("details of its ports".to_string());
        }
        found
    }
}
