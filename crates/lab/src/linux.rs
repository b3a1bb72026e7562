//! A multi-plane Clos out of Linux network namespaces, from the scenario that the simulator runs.
//!
//! Hosts and switches are namespaces, links are veth pairs, and switches forward by static SRv6 micro segments
//! ([`strandway_fabric::usid`]): the address that a socket sends to is the path. [`LinuxFabric`] says what is to be
//! built, [`build`] turns that into steps, plain data that can be looked at without any privilege, and [`up`], [`fail`],
//! [`heal`] and [`down`] carry steps out with `ip`, `tc` and `nsenter`. `docs/linux-fabric.md` is the page for users.

mod check;
mod counted;
mod failure;
mod faults;
pub mod line;
mod lines;
mod live;
mod probe;
mod queue;
mod run;
mod state;
mod status;
mod steps;

pub use check::{Finding, check, feasible};
pub use failure::{Failures, Loss, Place, Target};
pub use faults::{Moment, moments};
pub use lines::{LineStatus, carry_lines, failed_lines, is_carried};
pub use live::live;
pub use probe::{Probed, probe};
pub use run::{LinuxError, Up, broken, down, down_after, enter, fail, heal, up};
pub use state::{FOLDER, Running, names};
pub use status::{PortStatus, Status, T1Status, status};
pub use steps::{Step, Tool, build, change};

use crate::linux::line::{Line, Reorder};
use crate::node_file::{Far, NodeFile};
use crate::problem::Problems;
use crate::quantity;
use crate::reader::Sink;
use crate::scenario::Scenario;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddrV6;
use strandway_fabric::Topology;
use strandway_fabric::topology::Level;
use strandway_fabric::usid::Clos;
use strandway_proto::{Bytes, HostId, Rate, Span};
use toml::Value;

/// The most hosts of a fabric on one machine. Ours: what two cores can still keep busy.
pub const HOSTS_MAX: u32 = 64;

/// The most namespaces of a fabric. Ours: building and looking stay a matter of seconds.
pub const NAMESPACES_MAX: usize = 200;

/// The most planes: as many as a node takes.
pub const PLANES_MAX: u8 = strandway_udp::PLANES_MAX as u8;

/// The fastest port that is shaped. Measured: above 1 Gb/s it is the processor that limits, not the shaper.
pub const RATE_MAX: Rate = Rate(1_000_000_000);

/// The fastest long link: what a delay line carries without a loss of its own (`docs/performance.md`).
pub const LINE_RATE_MAX: Rate = Rate(2_000_000_000);

/// What the rate of an unshaped NIC is taken for at the most. Measured: two cores move 10 Gb/s and more over three hops.
const UNSHAPED_RATE: Rate = Rate(10_000_000_000);

/// Added to the simulator's round trip, which knows no software. Measured: 33 us one way over idle namespaces, 54 us for
/// one packet in a hundred.
const SOFTWARE_RTT: Span = Span(100_000_000);

/// The UDP port of plane 0; the planes after it take the ports after it. 4791 is RoCEv2's.
pub const PORT: u16 = 4791;

/// Bytes that a datagram may have on top of its payload: IPv6, UDP, and the longest headers of ours, with some to spare.
const HEADERS: u32 = 256;

/// The usual MTU of jumbo frames.
const MTU: u32 = 9000;

/// What was asked for beyond the scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The rate of every port instead of the scenario's, with its unit.
    pub rate: Option<String>,
    /// No port is shaped.
    pub unshaped: bool,
    /// A share of a long link's frames that is late, and by how much, such as `1%:200us`.
    pub reorder: Option<String>,
}

/// A fabric to be built of namespaces: nothing in it can be misconfigured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinuxFabric {
    /// What names of namespaces begin with.
    pub name: String,
    /// The scenario's file, for people.
    pub scenario: String,
    /// Planes.
    pub planes: u8,
    /// Hosts; each has a port into every plane.
    pub hosts: u16,
    /// Hosts below each T0; the last one may have fewer.
    pub hosts_per_t0: u16,
    /// T1 switches of each plane.
    pub t1s: u16,
    /// MTU of all ports, in bytes.
    pub mtu: u32,
    /// Bits per second of links between hosts and T0s; none if nothing is shaped.
    pub host_rate: Option<u64>,
    /// Bits per second of links between T0s and T1s; none if nothing is shaped.
    pub uplink_rate: Option<u64>,
    /// Bytes that wait at a switch's port at the most.
    pub queue: u64,
    /// When switch ports mark; none if they do not.
    pub marking: Option<Marking>,
    /// Switch ports cut what they have no room for, rather than drop it.
    pub trimming: bool,
    /// The protocol that nodes are told to speak.
    pub profile: String,
    /// Payload bytes of a full packet.
    pub payload: u32,
    /// Bits per second of a NIC, all planes together, as nodes are told.
    pub node_rate: u64,
    /// Round trip without queueing, as nodes are told, in nanoseconds.
    pub base_rtt_ns: u64,
    /// What the scenario asks for and namespaces do not do.
    pub notes: Vec<String>,
    /// The long links, plane by plane and pair by pair of sites, each in the T1 of that number: between it and the site with the
    /// higher number is a delay line. Empty for a fabric that is one place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
    /// How far sites are from each other and their hosts among themselves; empty for a fabric that is one place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<Way>,
}

/// The way between hosts of two sites, or of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// The sites, in order.
    pub sites: [u16; 2],
    /// Bits per second of its slowest stage, all planes and parallel links together.
    pub rate: u64,
    /// Round trip without queueing, in nanoseconds.
    pub base_rtt_ns: u64,
}

/// When a switch port marks (ECN), by the bytes that wait as a packet joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marking {
    /// Below so many it never does.
    pub low: u64,
    /// From so many on it always does.
    pub high: u64,
    /// Just below `high` it does with this probability in millionths, which rises from zero at `low`.
    pub chance_ppm: u32,
    /// So do ports that lead to hosts.
    pub last_hop: bool,
}

/// A host or a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A host.
    Host(u16),
    /// A switch below which hosts are: plane and number.
    T0(u8, u16),
    /// A switch that connects T0s: plane and number.
    T1(u8, u16),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Host(h) => write!(f, "h{h}"),
            Node::T0(p, i) => write!(f, "t0-p{p}-{i}"),
            Node::T1(p, j) => write!(f, "t1-p{p}-{j}"),
        }
    }
}

impl Node {
    /// The node of that name, whether or not some fabric has it: its own, such as `t0-p1-0`, or the scenario's, such as
    /// `leaf0.p1`, `spine2.p0` and `host3`. Without a plane, switches of plane 0 are meant.
    pub fn named(name: &str) -> Option<Node> {
        let number = |text: &str| text.parse::<u16>().ok().filter(|n| n.to_string() == text);
        if let Some(host) = name.strip_prefix("host") {
            return number(host).map(Node::Host);
        }
        type Switch = fn(u8, u16) -> Node;
        for (kind, switch) in [("leaf", Node::T0 as Switch), ("site", Node::T0), ("spine", Node::T1)] {
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
            _ => None,
        }
    }
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Whose it is.
    pub node: Node,
    /// What its namespace calls it: `p0` (a host's, into plane 0), `h3` (to host 3), `u1` (to T1 1), `d0` (to T0 0).
    pub name: String,
    /// The node at the other end.
    pub peer: Node,
    /// The plane that it belongs to.
    pub plane: u8,
}

impl LinuxFabric {
    /// What is to be built for a scenario.
    ///
    /// # Errors
    /// With everything that is wrong with the scenario, or that namespaces cannot be.
    pub fn of(scenario: &Scenario, name: &str, options: &Options) -> Result<LinuxFabric, Problems> {
        let sink = Sink::new(scenario.file());
        if let Err(e) = state::name_fits(name) {
            sink.add("--name", "", e.0, "");
        }
        let scenario = rated(scenario, options)?;
        let experiment = scenario.check()?;
        let topology = &experiment.plan.topology;
        let (shape, ports) = (*topology.shape(), &experiment.plan.ports);
        let file = |key: &str, value: &dyn fmt::Display, what: String, remedy: &str| sink.add(key, value, what, remedy);
        if shape.pods.is_some() {
            let what = "has three tiers; a source route over namespaces has two".into();
            file("fabric.kind", &experiment.fabric, what, "choose \"multi-plane\" or \"leaf-spine\"");
        }
        let t1s = t1s(topology);
        if shape.leaf_bundle > 1 && topology.sites() == 0 {
            let what = "parallel links cannot be told apart by micro segments".into();
            file("fabric.bundle", &shape.leaf_bundle, what, "leave it out and write more `spines`");
        }
        if shape.planes > PLANES_MAX {
            let what = format!("a node has at most {PLANES_MAX} planes");
            file("fabric.planes", &shape.planes, what, "write fewer planes");
        }
        if shape.hosts > HOSTS_MAX {
            let what = format!("one machine runs at most {HOSTS_MAX} hosts as namespaces");
            file("fabric.hosts", &shape.hosts, what, "add --set fabric.hosts=8, or take a smaller scenario");
        }
        let namespaces = shape.hosts as usize + usize::from(shape.planes) * (topology.leaves() as usize + t1s as usize);
        if shape.hosts <= HOSTS_MAX && namespaces > NAMESPACES_MAX {
            let what = format!("hosts and switches would be {namespaces} namespaces; {NAMESPACES_MAX} is the most");
            let remedy = if topology.sites() > 0 {
                "write fewer sites, hosts, planes or parallel links"
            } else {
                "write fewer hosts, planes or spines"
            };
            file("fabric", &"", what, remedy);
        }
        let rates = [topology.level(0).rate, topology.level(1).rate];
        let reorder = match options.reorder.as_deref().map(Reorder::parse) {
            Some(Err((what, remedy))) => {
                file("--reorder", &options.reorder.as_deref().unwrap_or_default(), what, &remedy);
                None
            }
            Some(Ok(_)) if topology.sites() == 0 => {
                let what = "is for long links; this fabric has none".into();
                file("--reorder", &options.reorder.as_deref().unwrap_or_default(), what, "leave it out");
                None
            }
            other => other.and_then(Result::ok),
        };
        let shaped_rates = if topology.sites() > 0 { &rates[..1] } else { &rates[..] };
        let fastest = topology.long_queues().map(|long| long.level.rate).max();
        if let Some(rate) = fastest.filter(|rate| *rate > LINE_RATE_MAX && !options.unshaped) {
            let what = format!("{rate} is faster than a delay line carries; {LINE_RATE_MAX} is the most");
            file("fabric.long_rate", &"", what, "write \"1 Gbps\", or pass --unshaped for as fast as it goes");
        }
        if let Some(rate) = shaped_rates.iter().find(|rate| **rate > RATE_MAX).filter(|_| !options.unshaped) {
            let what = format!("a port of {rate} is faster than software carries; {RATE_MAX} is the most");
            file("fabric.rate", &"", what, "pass --rate 500Mbps (per port), or --unshaped for as fast as it goes");
        }
        if !sink.is_empty() {
            return Err(Problems(sink.take()));
        }
        let profile = experiment.profile();
        let derived = &experiment.derived;
        let payload = profile.transport.mtu;
        let narrowest = Rate(widest(topology).0 * u64::from(shape.planes));
        let node_rate = if options.unshaped { derived.rate.0.min(UNSHAPED_RATE.0) } else { narrowest.0 };
        let shaped = |rate: Rate| (!options.unshaped).then_some(rate.0);
        let fabric = LinuxFabric {
            name: name.to_string(),
            scenario: scenario.file().to_string(),
            planes: shape.planes,
            hosts: shape.hosts as u16,
            hosts_per_t0: shape.hosts_per_leaf.min(shape.hosts) as u16,
            t1s: t1s as u16,
            mtu: MTU.max(payload + HEADERS),
            host_rate: shaped(rates[0]),
            // At a long link its line shapes.
            uplink_rate: shaped(rates[1]).filter(|_| topology.sites() == 0),
            queue: derived.queue.0,
            marking: ports.ecn.filter(|_| !options.unshaped).map(|ecn| Marking {
                low: ecn.low.0,
                high: ecn.high.0,
                chance_ppm: (ecn.probability * 1e6).round() as u32,
                last_hop: ecn.last_hop,
            }),
            trimming: ports.trim.is_some() && !options.unshaped,
            profile: profile.name.clone(),
            payload,
            node_rate,
            base_rtt_ns: (base_rtt(&experiment).0 + SOFTWARE_RTT.0) / 1000,
            notes: notes(&scenario, &experiment, options),
            lines: lines::of(&experiment, options.unshaped, reorder),
            ways: ways(&experiment, node_rate),
        };
        // What the limits above let through fits micro segments.
        let clos = fabric.clos();
        assert_eq!(clos.holds(u32::from(fabric.planes), u32::from(fabric.hosts)), Ok(()));
        Ok(fabric)
    }

    /// Its addresses.
    pub fn clos(&self) -> Clos {
        let clos = match self.t1s_per_pair() {
            0 => Clos::new(self.t1s, self.hosts_per_t0),
            per_pair => Clos::of_sites(self.t0s(), per_pair, self.hosts_per_t0),
        };
        clos.expect("numbers of a checked fabric")
    }

    /// T0 switches of each plane.
    pub fn t0s(&self) -> u16 {
        self.hosts.div_ceil(self.hosts_per_t0)
    }

    /// T1 switches of each plane, hence long links, between two sites; 0 for a fabric that is one place.
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
        }
        nodes
    }

    /// Is there a delay line at this port? It is between the T1 of a long link and the site with the higher number.
    pub(crate) fn is_at_line(&self, port: &Port) -> bool {
        let ((Node::T0(_, t0), Node::T1(_, t1)) | (Node::T1(_, t1), Node::T0(_, t0))) = (port.node, port.peer) else {
            return false;
        };
        self.clos().joined(t1).is_some_and(|(_, high)| t0 == high)
    }

    /// Do its switch ports mark or trim?
    pub fn has_program(&self) -> bool {
        self.trimming || self.marking.is_some()
    }

    /// The same without marks and trimming; why, for people.
    pub(crate) fn without_program(mut self, why: &str) -> LinuxFabric {
        for (wanted, what) in [(self.marking.is_some(), "ECN"), (self.trimming, "trimming")] {
            if wanted {
                self.notes.push(format!("{what}: off, {why}"));
            }
        }
        (self.marking, self.trimming) = (None, false);
        self
    }

    /// The folder that it is remembered in.
    pub(crate) fn folder(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    /// The namespace of a node.
    pub fn namespace(&self, node: Node) -> String {
        format!("{}-{node}", self.name)
    }

    /// The ports of a node, those to hosts first.
    pub fn ports(&self, node: Node) -> Vec<Port> {
        let port = |name: String, peer: Node, plane: u8| Port { node, name, peer, plane };
        match node {
            Node::Host(h) => {
                let t0 = h / self.hosts_per_t0;
                (0..self.planes).map(|p| port(format!("p{p}"), Node::T0(p, t0), p)).collect()
            }
            Node::T0(p, i) => {
                let below = (0..self.hosts).filter(|h| h / self.hosts_per_t0 == i);
                let down = below.map(|h| port(format!("h{h}"), Node::Host(h), p));
                down.chain(self.clos().t1s_of(i).map(|j| port(format!("u{j}"), Node::T1(p, j), p))).collect()
            }
            Node::T1(p, j) => {
                self.clos().t0s_of(j, self.t0s()).map(|i| port(format!("d{i}"), Node::T0(p, i), p)).collect()
            }
        }
    }

    /// What a host's node is told.
    pub fn node_file(&self, host: u16) -> NodeFile {
        let clos = self.clos();
        let plane = |p: u8| SocketAddrV6::new(clos.host(host), PORT + u16::from(p), 0, 0);
        NodeFile {
            name: Node::Host(host).to_string(),
            host,
            hosts: Some(self.hosts),
            planes: (0..self.planes).map(plane).collect(),
            devices: self.ports(Node::Host(host)).into_iter().map(|port| port.name).collect(),
            key: Some("key".into()),
            profile: self.profile.clone(),
            payload: self.payload,
            rate: Rate(self.node_rate),
            base_rtt: Span(self.base_rtt_ns * 1000),
            trimming: self.trimming,
            srv6: Some(clos),
            distances: self.distances(clos.t0_of(host)),
        }
    }

    /// How far the hosts of each site are from those of this one.
    fn distances(&self, site: u16) -> Vec<Far> {
        let far = |way: &Way| {
            let other = way.sites.into_iter().find(|other| *other != site).unwrap_or(site);
            let first = other * self.hosts_per_t0;
            Far {
                hosts: [first, first + self.hosts_per_t0 - 1],
                rate: Rate(way.rate),
                base_rtt: Span(way.base_rtt_ns * 1000),
            }
        };
        self.ways.iter().filter(|way| way.sites.contains(&site)).map(far).collect()
    }

    /// Does the name of a switch say its plane, where there are several?
    ///
    /// # Errors
    /// With a sentence, if it does not.
    pub(crate) fn says_plane(&self, name: &str) -> Result<(), String> {
        let switch = ["leaf", "site", "spine"].iter().any(|kind| name.starts_with(kind));
        if self.planes > 1 && switch && !name.contains(".p") {
            return Err(format!("there are {} planes; write {name}.p0 or another plane", self.planes));
        }
        Ok(())
    }

    /// In what another fabric differs from this one, from whichever file it came; empty if in nothing.
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
            ("rate of an uplink", rate(a.uplink_rate), rate(b.uplink_rate)),
            ("queue", format!("{} B", a.queue), format!("{} B", b.queue)),
            ("marking", marking(&a.marking), marking(&b.marking)),
            ("trimming", a.trimming.to_string(), b.trimming.to_string()),
            ("profile", a.profile.clone(), b.profile.clone()),
            ("long links", format!("{}", a.lines.len()), format!("{}", b.lines.len())),
            ("payload", format!("{} B", a.payload), format!("{} B", b.payload)),
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

/// T1 switches of each plane: spines; of sites one for each long link.
pub(crate) fn t1s(topology: &Topology) -> u32 {
    let sites = topology.sites();
    let bundle = topology.shape().leaf_bundle;
    if sites > 0 { sites * (sites - 1) / 2 * bundle } else { topology.shape().spines }
}

/// The rate in one plane of the widest way between two hosts of different leaves, or of any two if there is one leaf.
fn widest(topology: &Topology) -> Rate {
    let leaves = topology.leaves();
    let pairs = (1..leaves).flat_map(|high| (0..high).map(move |low| (low, high)));
    pairs.map(|(low, high)| topology.narrowest(low, high)).max().unwrap_or(topology.narrowest(0, 0))
}

/// The scenario at the rate that the options ask for.
///
/// # Errors
/// If that is no rate, or the scenario is wrong.
pub fn rated(scenario: &Scenario, options: &Options) -> Result<Scenario, Problems> {
    let mut scenario = scenario.clone();
    if let Some(rate) = &options.rate {
        let sink = Sink::new(scenario.file());
        set_rate(&mut scenario, rate, &sink)?;
    }
    Ok(scenario)
}

/// `--rate` is a change of the scenario, so that all that follows from rates (queues, round trips) follows from this one.
fn set_rate(scenario: &mut Scenario, text: &str, sink: &Sink) -> Result<(), Problems> {
    let rate = match quantity::rate(text) {
        Ok(rate) if rate.0 > 0 => rate,
        Ok(_) => {
            sink.add("--rate", text, "a rate must be above zero", "write, say, 500Mbps");
            return Err(Problems(sink.take()));
        }
        Err(e) => {
            sink.add("--rate", text, e.what, e.remedy);
            return Err(Problems(sink.take()));
        }
    };
    let planes = u64::from(scenario.check()?.plan.topology.planes());
    let bits = |rate: u64| Value::String(format!("{rate} bps"));
    let has_uplinks = scenario.table.get("fabric").is_some_and(|f| f.get("uplink_rate").is_some());
    let puts =
        [("fabric.rate", rate.0 * planes)].into_iter().chain(has_uplinks.then_some(("fabric.uplink_rate", rate.0)));
    for (key, rate) in puts {
        if let Err(what) = scenario.put(key, bits(rate)) {
            sink.add(key, text, what, "write the rate into the scenario");
            return Err(Problems(sink.take()));
        }
    }
    Ok(())
}

/// The ways within each site and between each two, as the simulator knows them but over cables as short as those between namespaces.
/// None is faster than a node.
fn ways(experiment: &crate::Experiment, node_rate: u64) -> Vec<Way> {
    let topology = &experiment.plan.topology;
    let control = Bytes(u64::from(experiment.profile().transport.control));
    let (packet, sites, per_site) = (experiment.derived.packet, topology.sites(), topology.shape().hosts_per_leaf);
    let way = |a: u32, b: u32| {
        let long = topology.rtt_between(packet, control, HostId(a * per_site), HostId(b * per_site));
        Way {
            sites: [a as u16, b as u16],
            rate: (topology.narrowest(a, b).0 * u64::from(topology.planes())).min(node_rate),
            base_rtt_ns: (long.0 - topology.level(0).latency.0 * 4 + SOFTWARE_RTT.0) / 1000,
        }
    };
    (0..sites).flat_map(|b| (0..=b).map(move |a| (a, b))).map(|(a, b)| way(a, b)).collect()
}

/// The simulator's base round trip, but over cables as short as those between namespaces.
fn base_rtt(experiment: &crate::Experiment) -> Span {
    let topology = &experiment.plan.topology;
    let control = Bytes(u64::from(experiment.profile().transport.control));
    let packet = experiment.derived.packet;
    if topology.sites() > 0 {
        // Short cables are negligible beside the long one.
        let within = topology.level(0).latency.0 * 4;
        return Span(topology.base_rtt(packet, control).0 - within);
    }
    let level = |l: usize| Level { rate: topology.level(l).rate, latency: Span::from_ns(1) };
    let short = Topology::new(*topology.shape(), [level(0), level(1), level(1)], [Span::ZERO; 3]);
    short.map_or(experiment.derived.base_rtt, |short| short.base_rtt(packet, control))
}

/// What the simulator does for this scenario and namespaces do not.
fn notes(scenario: &Scenario, experiment: &crate::Experiment, options: &Options) -> Vec<String> {
    let unshaped = options.unshaped;
    let ports = &experiment.plan.ports;
    let classes = !unshaped && (ports.ecn.is_some() || ports.trim.is_some());
    let topology = &experiment.plan.topology;
    let mut notes = vec![format!(
        "latency: links of {} are not modelled; a veth hop adds microseconds, and a round trip tens of them",
        topology.level(0).latency
    )];
    for (wanted, what) in [
        (
            topology.sites() > 0 && classes,
            "ECN, trimming: not at the ends of long links, whose queue drops what does not fit",
        ),
        (options.reorder.is_some(), "order: frames of long links overtake each other, which simulated ones never do"),
        (unshaped && ports.ecn.is_some(), "ECN: off, no packet waits at a port without a rate"),
        (unshaped && ports.trim.is_some(), "trimming: off, no packet waits at a port without a rate"),
        (ports.pfc.is_some(), "PFC: off, ports drop rather than pause"),
        (ports.shared.is_some(), "shared buffer: every port has its own queue"),
        (ports.priority && classes, "priority: control packets wait among data at hosts' own ports"),
        (ports.priority && !classes, "priority: control packets wait among data"),
        (!ports.priority && classes, "priority: control packets go before data"),
    ] {
        if wanted {
            notes.push(what.to_string());
        }
    }
    let groups = scenario.table.get("profile").and_then(Value::as_table);
    if groups.is_some_and(|table| table.values().any(Value::is_table)) {
        notes.push("parameters: node files name the profile, without the scenario's [profile.GROUP] values".into());
    }
    notes
}

#[cfg(test)]
mod tests;
