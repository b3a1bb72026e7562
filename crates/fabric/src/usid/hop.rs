//! Links with a direction, as the packets of a path cross them.

use super::{Clos, Element, Stop, Way};
use core::fmt;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A host's port.
    Host(u32),
    /// A switch.
    Switch(Stop),
}

/// One direction of a link, or both. In text: `p0:t0-0:to:t1-1`, `p0:h3:to:t0-0`, as for failures of namespaces; and
/// `p0:t0-0:t1-1` for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// Both directions; then `from` is the smaller end.
    pub both: bool,
    /// The plane.
    pub plane: u8,
    /// The end at which packets leave.
    pub from: End,
    /// The end at which they arrive.
    pub to: End,
}

impl Hop {
    /// Both directions of its link.
    pub fn both(&self) -> Hop {
        Hop { both: true, plane: self.plane, from: self.from.min(self.to), to: self.from.max(self.to) }
    }

    /// The link without its direction; `None` if both ends are hosts.
    pub fn cable(&self) -> Option<Element> {
        match (self.from, self.to) {
            (End::Switch(a), End::Switch(b)) => Some(Element::Link(self.plane, a.min(b), a.max(b))),
            (End::Host(host), End::Switch(_)) | (End::Switch(_), End::Host(host)) => {
                Some(Element::Port(self.plane, host))
            }
            (End::Host(_), End::Host(_)) => None,
        }
    }
}

impl Clos {
    /// The links of a path, from the sending host to the receiving one.
    pub fn hops(&self, from: u32, to: u32, way: &Way) -> Vec<Hop> {
        let switches = way.stops.iter().filter(|stop| !matches!(stop, Stop::Downlink(_)));
        let mut ends = vec![End::Host(from)];
        ends.extend(switches.map(|stop| End::Switch(*stop)));
        ends.push(End::Host(to));
        ends.windows(2).map(|pair| Hop { both: false, plane: way.plane, from: pair[0], to: pair[1] }).collect()
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Host(host) => write!(f, "h{host}"),
            End::Switch(stop) => write!(f, "{stop}"),
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = if self.both { "" } else { "to:" };
        write!(f, "p{}:{}:{to}{}", self.plane, self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hops_of_a_path_are_its_links_in_order() {
        let clos = Clos::new(2, 2).expect("fits");
        let hops = |from, to| clos.hops(from, to, &clos.way(1, from, to, 1));
        let texts = |hops: &[Hop]| hops.iter().map(Hop::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&hops(0, 3)), ["p1:h0:to:t0-0", "p1:t0-0:to:t1-1", "p1:t1-1:to:t0-1", "p1:t0-1:to:h3"]);
        assert_eq!(texts(&hops(0, 1)), ["p1:h0:to:t0-0", "p1:t0-0:to:h1"]);
        assert_eq!(texts(&[hops(0, 3)[2].both()]), ["p1:t0-1:t1-1"]);
        let cables: Vec<String> = hops(0, 3).iter().filter_map(Hop::cable).map(|cable| cable.to_string()).collect();
        assert_eq!(cables, ["p1:h0", "p1:t0-0:t1-1", "p1:t0-1:t1-1", "p1:h3"]);
    }
}
