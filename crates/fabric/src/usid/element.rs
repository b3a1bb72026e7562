//! Parts of a fabric that a controller can deny, or a search can blame: planes, switches, links, and hosts' ports.

use super::{Clos, Stop, Way};
use core::fmt;

/// A part of a plane. In text: `p0` (the plane), `p0:t1-3` (a switch), `p0:t0-2:t1-3` (a link), `p0:h7` (the link
/// between a host's port and its T0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// A whole plane.
    Plane(u8),
    /// A switch.
    Switch(u8, Stop),
    /// A link between two switches, the lower one first.
    Link(u8, Stop, Stop),
    /// The link between a host and its T0.
    Port(u8, u32),
}

impl Element {
    /// Its plane.
    pub fn plane(&self) -> u8 {
        let (Element::Plane(plane) | Element::Switch(plane, _) | Element::Link(plane, ..) | Element::Port(plane, _)) =
            self;
        *plane
    }

    /// Reads the text form; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Element> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| n.to_string() == text);
        let stop = |text: &str| {
            let (tier, at) = text.split_once('-')?;
            let at = u16::try_from(number(at)?).ok()?;
            match tier {
                "t0" => Some(Stop::T0(at)),
                "t1" => Some(Stop::T1(at)),
                "t2" => Some(Stop::T2(at)),
                _ => None,
            }
        };
        let parts: Vec<&str> = text.split(':').collect();
        let plane = u8::try_from(number(parts[0].strip_prefix('p')?)?).ok()?;
        match parts[1..] {
            [] => Some(Element::Plane(plane)),
            [one] if one.starts_with('h') => Some(Element::Port(plane, number(&one[1..])?)),
            [one] => Some(Element::Switch(plane, stop(one)?)),
            [a, b] => {
                let (a, b) = (stop(a)?, stop(b)?);
                (a != b).then(|| Element::Link(plane, a.min(b), a.max(b)))
            }
            _ => None,
        }
    }

    /// Does a path of this host cross it?
    pub fn is_on(&self, clos: &Clos, from: u32, way: &Way) -> bool {
        if way.plane != self.plane() {
            return false;
        }
        match self {
            Element::Plane(_) => true,
            Element::Switch(_, switch) => way.stops.contains(switch),
            Element::Link(_, a, b) => way.stops.windows(2).any(|pair| pair == [*a, *b] || pair == [*b, *a]),
            Element::Port(_, host) => {
                let last = [Stop::T0(clos.t0_of(*host)), Stop::Downlink(clos.downlink_of(*host))];
                *host == from || way.stops.ends_with(&last)
            }
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Plane(plane) => write!(f, "p{plane}"),
            Element::Switch(plane, switch) => write!(f, "p{plane}:{switch}"),
            Element::Link(plane, a, b) => write!(f, "p{plane}:{a}:{b}"),
            Element::Port(plane, host) => write!(f, "p{plane}:h{host}"),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::T0(t0) => write!(f, "t0-{t0}"),
            Stop::T1(t1) => write!(f, "t1-{t1}"),
            Stop::T2(t2) => write!(f, "t2-{t2}"),
            Stop::Downlink(downlink) => write!(f, "d{downlink}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written_and_lie_on_the_paths_that_cross_them() {
        for text in ["p0", "p7:t1-3", "p1:t0-2:t1-3", "p0:t1-2:t2-0", "p0:h12"] {
            assert_eq!(Element::parse(text).map(|element| element.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Element::parse("p0:t1-3:t0-2"), Element::parse("p0:t0-2:t1-3"));
        for wrong in ["", "p", "0", "p0:", "p0:t3-1", "p0:t0-1:t0-1", "p0:h", "p300", "p0:t0-01", "p0:t0-1:t1-1:t2-1"] {
            assert_eq!(Element::parse(wrong), None, "{wrong}");
        }
        let clos = Clos::new(2, 2).expect("fits");
        let way = clos.way(0, 0, 3, 1);
        for (text, is_on) in [
            ("p0", true),
            ("p1", false),
            ("p0:t1-1", true),
            ("p0:t1-0", false),
            ("p1:t1-1", false),
            ("p0:t0-0:t1-1", true),
            ("p0:t0-1:t1-1", true),
            ("p0:t0-1:t1-0", false),
            ("p0:h0", true),
            ("p0:h3", true),
            ("p0:h1", false),
        ] {
            assert_eq!(Element::parse(text).expect(text).is_on(&clos, 0, &way), is_on, "{text}");
        }
    }
}
