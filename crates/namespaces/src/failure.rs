//! Deliberate failures, and their effect on each port.

use crate::{LinuxFabric, Node, Port};
use std::collections::BTreeSet;
use std::fmt;
use strandway_fabric::quantity;

/// Millionths of a whole.
pub(crate) const WHOLE: u32 = 1_000_000;

/// The forms of targets.
const FORMS: &str = "write link:p0:t0-0:t1-1, port:h0:p1, plane:p1, switch:p0:t1-1, loss:p0:2%, loss:all:1%:8 (in runs of 8), \
    loss:p0:t0-0:t1-1:2% (one link) or degrade:p0:t0-0:to:t1-1:25% (one direction of it); \
    or, by the scenario's names, spine1.p0 (a switch), host0.p1 (a host's port) or leaf0.p0-spine1.p0 (a link)";

/// Something that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Both directions of a link, silently. The node nearer to the hosts first.
    Link(Node, Node),
    /// A host's own port, into this plane; the host sees it.
    Port(u16, u8),
    /// All switches of a plane, silently.
    Plane(u8),
    /// A switch, silently.
    Switch(Node),
    /// Random loss of arriving packets.
    Loss(Place, Loss),
    /// Ports run at this share of their rate, in millionths; limits and thresholds are scaled alike.
    Degrade(Place, u32),
}

/// The place of random losses and lower rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All planes: losses at every switch port, rates at every port.
    All,
    /// One plane: losses at its switch ports, rates at all its ports.
    Plane(u8),
    /// Both directions of a link. The node nearer to the hosts first.
    Link(Node, Node),
    /// One direction of a link.
    Way(Node, Node),
}

/// How packets are lost at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The share that is lost, in millionths.
    pub ppm: u32,
    /// The average number of packets lost in a row, in thousandths: 1,000 for independent losses.
    pub run: u32,
}

impl Loss {
    /// The probabilities of a loss after a packet that was not lost, and after one that was; `None` if losses are
    /// independent. They are those of the simulator, from the two states of the Gilbert-Elliott model.
    pub(crate) fn after(&self) -> Option<[f64; 2]> {
        if self.run <= 1_000 || self.ppm >= WHOLE {
            return None;
        }
        let (share, run) = (f64::from(self.ppm) / f64::from(WHOLE), f64::from(self.run) / 1_000.0);
        Some([(share / (run * (1.0 - share))).min(1.0), 1.0 - 1.0 / run])
    }
}

/// The two ends of a link that is written `leaf0.p0-spine1.p0`.
fn split_link(name: &str) -> Option<(&str, &str)> {
    let (a, b) = name.split_once('-')?;
    let is_node =
        |word: &str| ["leaf", "spine", "agg", "core", "host"].iter().any(|kind| word.trim().starts_with(kind));
    (is_node(a) && is_node(b)).then_some((a, b))
}

/// A node by a name that contains its plane.
fn named(fabric: &LinuxFabric, text: &str, name: &str) -> Result<Node, String> {
    if Node::named(name).is_none() && !name.starts_with("agg") {
        return Err(format!("`{text}` is nothing that can fail; {FORMS}"));
    }
    fabric.says_plane(name).map_err(|said| format!("`{text}`: {said}"))?;
    if let Some(node) = fabric.named(name) {
        return Ok(node);
    }
    let (leaves, hosts) = (fabric.t0s() - 1, fabric.hosts - 1);
    let above = match fabric.pods {
        None => format!("spine0 to spine{}", fabric.t1s - 1),
        Some(pods) => {
            let (pod, last) = (fabric.t1s / pods.t1s - 1, pods.t1s - 1);
            format!("agg0.0 to agg{pod}.{last}, core0 to core{}", fabric.t2s() - 1)
        }
    };
    Err(format!(
        "`{text}`: there is no {name}; each of the {} planes has leaf0 to leaf{leaves} and {above}, and there are \
         host0 to host{hosts}",
        fabric.planes
    ))
}

/// A node in a word without its plane.
fn inside(node: Node) -> String {
    match node {
        Node::Host(h) => format!("h{h}"),
        Node::T0(_, i) => format!("t0-{i}"),
        Node::T1(_, j) => format!("t1-{j}"),
        Node::T2(_, m) => format!("t2-{m}"),
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Place::All => f.write_str("all"),
            Place::Plane(plane) => write!(f, "p{plane}"),
            Place::Link(a, b) => write!(f, "p{}:{}:{}", plane_of(a).max(plane_of(b)), inside(a), inside(b)),
            Place::Way(a, b) => write!(f, "p{}:{}:to:{}", plane_of(a).max(plane_of(b)), inside(a), inside(b)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ppm: u32| f64::from(ppm) / 10_000.0;
        match *self {
            Target::Link(a, b) => write!(f, "link:{}", Place::Link(a, b)),
            Target::Port(host, plane) => write!(f, "port:h{host}:p{plane}"),
            Target::Plane(plane) => write!(f, "plane:p{plane}"),
            Target::Switch(node) => write!(f, "switch:p{}:{}", plane_of(node), inside(node)),
            Target::Loss(place, Loss { ppm, run: 1_000 }) => write!(f, "loss:{place}:{}%", percent(ppm)),
            Target::Loss(place, Loss { ppm, run }) => {
                write!(f, "loss:{place}:{}%:{}", percent(ppm), f64::from(run) / 1_000.0)
            }
            Target::Degrade(place, ppm) => write!(f, "degrade:{place}:{}%", percent(ppm)),
        }
    }
}

fn plane_of(node: Node) -> u8 {
    match node {
        Node::Host(_) => 0,
        Node::T0(p, _) | Node::T1(p, _) | Node::T2(p, _) => p,
    }
}

/// The error of a text that names no target.
fn unknown(text: &str) -> String {
    format!("`{text}` is nothing that can fail; {FORMS}")
}

impl Target {
    /// Reads a target of this fabric.
    ///
    /// # Errors
    /// With a sentence and a remedy, if the form is unknown or the fabric has no such part.
    pub fn parse(fabric: &LinuxFabric, text: &str) -> Result<Target, String> {
        let unknown = || unknown(text);
        let parts: Vec<&str> = text.split(':').collect();
        let plane = |word: &str| -> Result<u8, String> {
            let number = word.strip_prefix('p').and_then(|n| n.parse::<u8>().ok()).ok_or_else(unknown)?;
            if number < fabric.planes {
                return Ok(number);
            }
            Err(format!("`{text}`: there is no plane {number}; planes are p0 to p{}", fabric.planes - 1))
        };
        let node = |plane: u8, word: &str| -> Result<Node, String> {
            let in_plane = |node| match node {
                Node::Host(h) => Node::Host(h),
                Node::T0(_, i) => Node::T0(plane, i),
                Node::T1(_, j) => Node::T1(plane, j),
                Node::T2(_, m) => Node::T2(plane, m),
            };
            let node = match word.split_once('-') {
                Some((kind, number)) => Node::named(&format!("{kind}-p{plane}-{number}")),
                // The scenario's names: `leaf0`, `spine1`, `host3`.
                None => fabric.named(word).or_else(|| Node::named(word)).map(in_plane),
            };
            let node = node.ok_or_else(unknown)?;
            if fabric.nodes().contains(&node) {
                return Ok(node);
            }
            let (t0s, t1s, hosts) = (fabric.t0s() - 1, fabric.t1s - 1, fabric.hosts - 1);
            let t2s = fabric.t2s().checked_sub(1).map_or(String::new(), |last| format!("t2-0 to t2-{last}, "));
            Err(format!(
                "`{text}`: there is no {word}; there are t0-0 to t0-{t0s}, t1-0 to t1-{t1s}, {t2s}h0 to h{hosts}"
            ))
        };
        let link = |p: &str, a: &str, b: &str| -> Result<(Node, Node), String> {
            let p = plane(p)?;
            let (a, b) = (node(p, a)?, node(p, b)?);
            if fabric.ports(a).iter().any(|port| port.peer == b) {
                return Ok((a, b));
            }
            let linked = match (fabric.lines.is_empty(), fabric.pods) {
                (true, None) => "all T1s of their plane",
                (true, Some(_)) => "all T1s of their pod (and T1s to their own T2s)",
                (false, _) => "the T1s of their own long links",
            };
            Err(format!("`{text}`: no link joins these two; T0s are linked to {linked} and to their hosts"))
        };
        let is_node = |word: &str| word.starts_with(['h', 't', 'l', 's', 'a', 'c']);
        match parts[..] {
            [name] if name.contains("->") => {
                let both = name.replace("->", "-");
                Err(format!("`{text}`: links of namespaces break in both directions; write {both}"))
            }
            [name] => match split_link(name) {
                Some((a, b)) => {
                    let (a, b) = (named(fabric, text, a.trim())?, named(fabric, text, b.trim())?);
                    let switches = [a, b].into_iter().filter(|node| !matches!(node, Node::Host(_)));
                    let planes: BTreeSet<u8> = switches.map(plane_of).collect();
                    if planes.len() > 1 {
                        return Err(format!("`{text}`: no link joins switches of two planes"));
                    }
                    let p = format!("p{}", plane_of(a).max(plane_of(b)));
                    link(&p, &inside(a), &inside(b)).map(|(a, b)| Target::Link(a.min(b), a.max(b)))
                }
                None => match name.split_once(".p").filter(|_| name.starts_with("host")) {
                    Some((host, p)) => match named(fabric, text, host)? {
                        Node::Host(host) => Ok(Target::Port(host, plane(&format!("p{p}"))?)),
                        _ => Err(unknown()),
                    },
                    None => match named(fabric, text, name)? {
                        Node::Host(_) => Err(format!("`{text}`: a host does not fail here; its port does: {name}.p0")),
                        switch => Ok(Target::Switch(switch)),
                    },
                },
            },
            ["link", p, a, b] => link(p, a, b).map(|(a, b)| Target::Link(a.min(b), a.max(b))),
            ["port", host, p] => match (node(0, host)?, plane(p)?) {
                (Node::Host(host), plane) => Ok(Target::Port(host, plane)),
                _ => Err(unknown()),
            },
            ["plane", p] => Ok(Target::Plane(plane(p)?)),
            ["switch", p, switch] => match node(plane(p)?, switch)? {
                Node::Host(_) => Err(unknown()),
                node => Ok(Target::Switch(node)),
            },
            [kind @ ("loss" | "degrade"), ref rest @ ..] => {
                let (place, numbers) = match *rest {
                    ["all", ref numbers @ ..] => (Place::All, numbers),
                    [p, a, "to", b, ref numbers @ ..] => (link(p, a, b).map(|(a, b)| Place::Way(a, b))?, numbers),
                    [p, a, b, ref numbers @ ..] if is_node(a) => {
                        (link(p, a, b).map(|(a, b)| Place::Link(a.min(b), a.max(b)))?, numbers)
                    }
                    [p, ref numbers @ ..] => (Place::Plane(plane(p)?), numbers),
                    [] => return Err(unknown()),
                };
                Target::with_numbers(fabric, text, kind, (place, numbers))
            }
            _ => Err(unknown()),
        }
    }

    /// Losses or a lower rate of a place: `numbers` are a share, and the mean length of a run of losses.
    fn with_numbers(
        fabric: &LinuxFabric,
        text: &str,
        kind: &str,
        (place, numbers): (Place, &[&str]),
    ) -> Result<Target, String> {
        let ratio = |word: &str, unit: f64| -> Result<u32, String> {
            let number = quantity::ratio(word).map_err(|e| format!("`{text}`: {}; {}", e.what, e.remedy))?;
            Ok((number * unit).round() as u32)
        };
        let whole = f64::from(WHOLE);
        match (kind, numbers) {
            // A place without a number is enough to heal it.
            ("loss", []) => Ok(Target::Loss(place, Loss { ppm: 0, run: 1_000 })),
            ("degrade", []) => Ok(Target::Degrade(place, 0)),
            ("loss", &[share, ref run @ ..]) if run.len() <= 1 => {
                let ppm = ratio(share, whole)?;
                let run = run.first().map_or(Ok(1_000), |run| ratio(run, 1_000.0))?;
                if !(1..=WHOLE).contains(&ppm) {
                    return Err(format!("`{text}`: loss is above 0% and at most 100%; {FORMS}"));
                }
                if run < 1_000 {
                    return Err(format!("`{text}`: runs of losses have a mean length of 1 or more; {FORMS}"));
                }
                Ok(Target::Loss(place, Loss { ppm, run }))
            }
            ("degrade", &[share]) => {
                let ppm = ratio(share, whole)?;
                if !(1..WHOLE).contains(&ppm) {
                    let what = "a degraded port runs at more than 0% and less than 100% of its rate";
                    return Err(format!("`{text}`: {what}; {FORMS}"));
                }
                if fabric.host_rate.is_none() {
                    let what = "the ports of this fabric have no rate; build it without --unshaped";
                    return Err(format!("`{text}`: {what}"));
                }
                Ok(Target::Degrade(place, ppm))
            }
            _ => Err(unknown(text)),
        }
    }

    /// Is it a target without a number, which only names a place to heal?
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Target::Loss(_, Loss { ppm: 0, .. }) | Target::Degrade(_, 0))
    }

    /// Do both name the same kind of failure and place, with any numbers?
    fn same(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Loss(a, _), Target::Loss(b, _)) | (Target::Degrade(a, _), Target::Degrade(b, _)) => a == b,
            _ => self == other,
        }
    }
}

/// All failures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(pub Vec<Target>);

/// The effect of failures on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortState {
    /// Arriving packets are lost, and neither end notices. The port at the other end has the same state.
    pub(crate) silent: bool,
    /// It is down, and its node notices.
    pub(crate) down: bool,
    /// The random loss of arriving packets.
    pub(crate) loss: Option<Loss>,
    /// It sends at this share of its rate, in millionths.
    pub(crate) share: u32,
}

impl Default for PortState {
    fn default() -> PortState {
        PortState { silent: false, down: false, loss: None, share: WHOLE }
    }
}

impl Place {
    /// Does this place include the packets that arrive at this port?
    fn receives(&self, port: &Port) -> bool {
        match *self {
            Place::Way(from, to) => (port.peer, port.node) == (from, to),
            Place::All | Place::Plane(_) => !matches!(port.node, Node::Host(_)) && self.sends(port),
            Place::Link(..) => self.sends(port),
        }
    }

    /// Does this place include the packets that leave by this port?
    fn sends(&self, port: &Port) -> bool {
        match *self {
            Place::All => true,
            Place::Plane(plane) => plane == port.plane,
            Place::Link(a, b) => [(a, b), (b, a)].contains(&(port.node, port.peer)),
            Place::Way(from, to) => (port.node, port.peer) == (from, to),
        }
    }
}

impl Failures {
    /// A copy with this failure added. A loss or a rate replaces an earlier one of the same place.
    #[must_use]
    pub fn with(&self, target: Target) -> Failures {
        if self.0.contains(&target) {
            return self.clone();
        }
        let mut failures = self.without(Some(target));
        failures.0.push(target);
        failures
    }

    /// A copy without this failure; `None` removes all failures.
    #[must_use]
    pub fn without(&self, target: Option<Target>) -> Failures {
        Failures(target.map_or(Vec::new(), |t| self.0.iter().filter(|f| !f.same(&t)).copied().collect()))
    }

    /// The effect of all failures on a port.
    pub(crate) fn state(&self, port: &Port) -> PortState {
        let mut state = PortState::default();
        let ends = [port.node, port.peer];
        for failure in &self.0 {
            match *failure {
                Target::Link(a, b) => state.silent |= ends.contains(&a) && ends.contains(&b),
                Target::Switch(node) => state.silent |= ends.contains(&node),
                Target::Plane(plane) => state.silent |= port.plane == plane,
                Target::Port(host, plane) => state.down |= port.node == Node::Host(host) && port.plane == plane,
                Target::Loss(place, loss) => {
                    if place.receives(port) && state.loss.is_none_or(|other| other.ppm < loss.ppm) {
                        state.loss = Some(loss);
                    }
                }
                Target::Degrade(place, share) => {
                    if place.sends(port) {
                        state.share = state.share.min(share);
                    }
                }
            }
        }
        state
    }
}
