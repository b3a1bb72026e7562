//! What is broken on purpose, and what that means for each port.

use crate::linux::{LinuxFabric, Node, Port};
use crate::quantity;
use std::fmt;

/// How targets are written.
const FORMS: &str = "write link:p0:t0-0:t1-1, port:h0:p1, plane:p1, switch:p0:t1-1, loss:p0:2% or loss:all:1%";

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
    /// Random loss of what comes in at every switch port of a plane, or of all planes, in millionths.
    Loss(Option<u8>, u32),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = |node: Node| match node {
            Node::Host(h) => format!("h{h}"),
            Node::T0(_, i) => format!("t0-{i}"),
            Node::T1(_, j) => format!("t1-{j}"),
        };
        match *self {
            Target::Link(a, b) => write!(f, "link:p{}:{}:{}", plane_of(b), inside(a), inside(b)),
            Target::Port(host, plane) => write!(f, "port:h{host}:p{plane}"),
            Target::Plane(plane) => write!(f, "plane:p{plane}"),
            Target::Switch(node) => write!(f, "switch:p{}:{}", plane_of(node), inside(node)),
            Target::Loss(plane, ppm) => {
                let place = plane.map_or("all".to_string(), |p| format!("p{p}"));
                write!(f, "loss:{place}:{}%", f64::from(ppm) / 10_000.0)
            }
        }
    }
}

fn plane_of(node: Node) -> u8 {
    match node {
        Node::Host(_) => 0,
        Node::T0(p, _) | Node::T1(p, _) => p,
    }
}

impl Target {
    /// Reads a target of this fabric.
    ///
    /// # Errors
    /// With a sentence and a remedy, if it is not of a known form or the fabric has no such thing.
    pub fn parse(fabric: &LinuxFabric, text: &str) -> Result<Target, String> {
        let unknown = || format!("`{text}` is nothing that can fail; {FORMS}");
        let parts: Vec<&str> = text.split(':').collect();
        let plane = |word: &str| -> Result<u8, String> {
            let number = word.strip_prefix('p').and_then(|n| n.parse::<u8>().ok()).ok_or_else(unknown)?;
            if number < fabric.planes {
                return Ok(number);
            }
            Err(format!("`{text}`: there is no plane {number}; planes are p0 to p{}", fabric.planes - 1))
        };
        let node = |plane: u8, word: &str| -> Result<Node, String> {
            let node = match word.split_once('-') {
                Some((kind, number)) => Node::named(&format!("{kind}-p{plane}-{number}")),
                None => Node::named(word),
            };
            let node = node.ok_or_else(unknown)?;
            if fabric.nodes().contains(&node) {
                return Ok(node);
            }
            let (t0s, t1s, hosts) = (fabric.t0s() - 1, fabric.t1s - 1, fabric.hosts - 1);
            Err(format!("`{text}`: there is no {word}; there are t0-0 to t0-{t0s}, t1-0 to t1-{t1s}, h0 to h{hosts}"))
        };
        match parts[..] {
            ["link", p, a, b] => {
                let p = plane(p)?;
                let (mut a, mut b) = (node(p, a)?, node(p, b)?);
                if a > b {
                    (a, b) = (b, a);
                }
                if fabric.ports(a).iter().any(|port| port.peer == b) {
                    return Ok(Target::Link(a, b));
                }
                Err(format!(
                    "`{text}`: no link joins these two; T0s are linked to all T1s of their plane and to their hosts"
                ))
            }
            ["port", host, p] => match (node(0, host)?, plane(p)?) {
                (Node::Host(host), plane) => Ok(Target::Port(host, plane)),
                _ => Err(unknown()),
            },
            ["plane", p] => Ok(Target::Plane(plane(p)?)),
            ["switch", p, switch] => match node(plane(p)?, switch)? {
                Node::Host(_) => Err(unknown()),
                node => Ok(Target::Switch(node)),
            },
            ["loss", place, share] => {
                let share = quantity::ratio(share).map_err(|e| format!("`{text}`: {}; {}", e.what, e.remedy))?;
                if !(share > 0.0 && share <= 1.0) {
                    return Err(format!("`{text}`: loss is above 0% and at most 100%; {FORMS}"));
                }
                Ok(Target::Loss(if place == "all" { None } else { Some(plane(place)?) }, (share * 1e6).round() as u32))
            }
            // Enough to heal it.
            ["loss", place] => Ok(Target::Loss(if place == "all" { None } else { Some(plane(place)?) }, 0)),
            _ => Err(unknown()),
        }
    }

    /// Are these the same thing, with whatever loss?
    fn same(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Loss(a, _), Target::Loss(b, _)) => a == b,
            _ => self == other,
        }
    }
}

/// Everything that is broken at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(pub Vec<Target>);

/// What failures mean for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortState {
    /// What it sends is lost, and it does not know.
    pub(crate) silent: bool,
    /// It is down and knows it.
    pub(crate) down: bool,
    /// Of what comes in, so many millionths are dropped.
    pub(crate) loss_ppm: u32,
}

impl Failures {
    /// The same, with this failure; a loss replaces another one of the same place.
    #[must_use]
    pub fn with(&self, target: Target) -> Failures {
        if self.0.contains(&target) {
            return self.clone();
        }
        let mut failures = self.without(Some(target));
        failures.0.push(target);
        failures
    }

    /// The same, without this failure, or without any.
    #[must_use]
    pub fn without(&self, target: Option<Target>) -> Failures {
        Failures(target.map_or(Vec::new(), |t| self.0.iter().filter(|f| !f.same(&t)).copied().collect()))
    }

    /// What they mean for a port.
    pub(crate) fn state(&self, port: &Port) -> PortState {
        let mut state = PortState::default();
        let ends = [port.node, port.peer];
        for failure in &self.0 {
            match *failure {
                Target::Link(a, b) => state.silent |= ends.contains(&a) && ends.contains(&b),
                Target::Switch(node) => state.silent |= ends.contains(&node),
                Target::Plane(plane) => state.silent |= port.plane == plane,
                Target::Port(host, plane) => state.down |= port.node == Node::Host(host) && port.plane == plane,
                Target::Loss(plane, ppm) => {
                    if !matches!(port.node, Node::Host(_)) && plane.is_none_or(|p| p == port.plane) {
                        state.loss_ppm = state.loss_ppm.max(ppm);
                    }
                }
            }
        }
        state
    }
}
