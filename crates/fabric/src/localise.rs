//! Finds broken and lossy links from probes over known paths, as Clustermapper does (Araujo et al., arXiv 2605.04333,
//! sections 2.4 and 3).
//!
//! A probe that arrives every time clears all links of its path. Each other probe accuses the links of its path that no
//! probe clears: at least one of them is broken. An accusation that contains a smaller one says nothing new. So an
//! accusation of one link names it; the links of a longer one cannot be told apart.

use crate::usid::{Clos, Element, Stop, Way};
use core::net::Ipv6Addr;
use std::collections::{BTreeMap, BTreeSet};

/// The datagrams that were sent over one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The links of the path, those to hosts included.
    pub links: Vec<Element>,
    /// Datagrams sent.
    pub sent: u32,
    /// Those that arrived.
    pub arrived: u32,
}

/// Parts of a fabric of which at least one is broken.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspicion {
    /// The parts, in order. If there are several, the probes cannot tell them apart.
    pub parts: Vec<Element>,
    /// The share of datagrams that were lost on the paths across them; for a link that a probe crosses twice, the loss
    /// of both crossings.
    pub lost: f64,
}

/// The result of [`localise`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The suspicions, in order of their parts.
    pub suspicions: Vec<Suspicion>,
    /// Links that no probe has cleared or accused by itself: all their probes cross a suspected part, too.
    pub untested: Vec<Element>,
}

/// Finds the links that explain which probes were lost. `clos` is the fabric's address plan.
pub fn localise(clos: &Clos, probes: &[Probe]) -> Findings {
    let cleared: BTreeSet<Element> =
        probes.iter().filter(|probe| probe.arrived >= probe.sent).flat_map(|probe| probe.links.clone()).collect();
    let lost = |probe: &&Probe| probe.arrived < probe.sent;
    let accused = |probe: &Probe| -> BTreeSet<Element> {
        probe.links.iter().copied().filter(|link| !cleared.contains(link)).collect()
    };
    // A probe whose links are all cleared met a loss that is too rare to be placed.
    let all: BTreeSet<BTreeSet<Element>> =
        probes.iter().filter(lost).map(accused).filter(|accused| !accused.is_empty()).collect();
    let smallest: Vec<&BTreeSet<Element>> =
        all.iter().filter(|set| !all.iter().any(|other| other != *set && other.is_subset(set))).collect();
    let share = |parts: &BTreeSet<Element>| {
        let over = probes.iter().filter(|probe| probe.links.iter().any(|link| parts.contains(link)));
        // The paths with the fewest other suspects tell the most about these.
        let least = over.clone().map(|probe| accused(probe).len()).min().unwrap_or(0);
        let (sent, arrived) = over
            .filter(|probe| accused(probe).len() == least)
            .fold((0, 0), |(sent, arrived), probe| (sent + probe.sent, arrived + probe.arrived.min(probe.sent)));
        if sent == 0 { 0.0 } else { f64::from(sent - arrived) / f64::from(sent) }
    };
    let mut found: Vec<Suspicion> =
        smallest.iter().map(|set| Suspicion { parts: set.iter().copied().collect(), lost: share(set) }).collect();
    let named: BTreeSet<Element> = found.iter().flat_map(|suspicion| suspicion.parts.clone()).collect();
    let seen: BTreeSet<Element> = probes.iter().flat_map(|probe| probe.links.clone()).collect();
    let untested: BTreeSet<Element> =
        seen.iter().copied().filter(|link| !cleared.contains(link) && !named.contains(link)).collect();
    gather(&mut found, &seen, &untested, &|host| clos.t0_of(host));
    found.sort_by(|a, b| a.parts.cmp(&b.parts));
    Findings { suspicions: found, untested: untested.into_iter().collect() }
}

/// If all links of a switch are suspected by themselves, or cannot be tested, the switch takes their place: one broken
/// switch is likelier than several broken links. `t0_of`: the T0 of each host.
fn gather(
    found: &mut Vec<Suspicion>,
    seen: &BTreeSet<Element>,
    untested: &BTreeSet<Element>,
    t0_of: &dyn Fn(u32) -> u16,
) {
    let mut switches: BTreeMap<(u8, Stop), Vec<Element>> = BTreeMap::new();
    for link in seen {
        let ends = match *link {
            Element::Link(plane, a, b) => vec![(plane, a), (plane, b)],
            Element::Port(plane, host) => vec![(plane, Stop::T0(t0_of(host)))],
            Element::Plane(_) | Element::Switch(..) => Vec::new(),
        };
        for end in ends {
            switches.entry(end).or_default().push(*link);
        }
    }
    for ((plane, switch), links) in switches {
        let alone = |link: &Element| found.iter().position(|suspicion| suspicion.parts == [*link]);
        let suspected: Vec<usize> = links.iter().filter_map(alone).collect();
        let all = links.iter().all(|link| alone(link).is_some() || untested.contains(link));
        if !all || suspected.is_empty() || links.len() < 2 {
            continue;
        }
        let (whole, lost) =
            (Element::Switch(plane, switch), suspected.iter().map(|at| found[*at].lost).fold(0.0, f64::max));
        let gone: Vec<Vec<Element>> = suspected.iter().map(|at| found[*at].parts.clone()).collect();
        found.retain(|suspicion| !gone.contains(&suspicion.parts));
        // With one suspected link, that link may be broken as well.
        let parts = if gone.len() == 1 { [&gone[0][..], &[whole]].concat() } else { vec![whole] };
        found.push(Suspicion { parts, lost });
    }
}

/// The probes that a host's agent sends to itself, with their addresses: to its T0 and back, to each T1 above and back,
/// and to each T2 above these. Together they cross every link above the host's T0 that leads up from it. Senders must
/// omit UDP checksums.
pub fn self_probes(clos: &Clos, plane: u8, host: u32) -> Vec<(Ipv6Addr, Vec<Element>)> {
    let plain = Clos { neutral: false, ..*clos };
    let (t0, port) = (clos.t0_of(host), Element::Port(plane, host));
    let mut probes = vec![(plain.probe_t0(plane, host), vec![port])];
    for t1 in clos.t1s_of(t0) {
        let up = Element::Link(plane, Stop::T0(t0), Stop::T1(t1));
        probes.push((plain.probe(plane, host, t1), vec![port, up]));
        for t2 in clos.t2s_of(t1) {
            let [a, b] = [Stop::T0(t0), Stop::T1(t1)];
            let stops = vec![a, b, Stop::T2(t2), b, a, Stop::Downlink(clos.downlink_of(host))];
            let over = Element::Link(plane, b, Stop::T2(t2));
            probes.push((plain.address(&Way { plane, stops }), vec![port, up, over]));
        }
    }
    probes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usid::Pods;

    /// All probes of a fabric in which these parts are broken.
    fn probes(clos: &Clos, planes: u8, hosts: u32, broken: &[Element]) -> Vec<Probe> {
        let every = (0..planes).flat_map(|plane| (0..hosts).map(move |host| (plane, host)));
        let of = |(plane, host)| self_probes(clos, plane, host).into_iter().map(move |(_, links)| (host, links));
        let arrives = |host: u32, links: &[Element]| {
            let t0 = Stop::T0(clos.t0_of(host));
            let hit = |link: &Element| match *link {
                Element::Link(plane, a, b) => broken.iter().any(|part| match *part {
                    Element::Switch(p, switch) => p == plane && [a, b].contains(&switch),
                    Element::Plane(p) => p == plane,
                    other => other == *link,
                }),
                Element::Port(plane, _) => broken.iter().any(|part| match *part {
                    Element::Switch(p, switch) => p == plane && switch == t0,
                    Element::Plane(p) => p == plane,
                    other => other == *link,
                }),
                _ => false,
            };
            !links.iter().any(hit)
        };
        let probe = |(host, links): (u32, Vec<Element>)| Probe {
            sent: 4,
            arrived: 4 * u32::from(arrives(host, &links)),
            links,
        };
        every.flat_map(of).map(probe).collect()
    }

    fn fabrics() -> [(Clos, u8, u32); 3] {
        let two = Clos::new(2, 2).expect("fits");
        let three = Clos::of_pods(1, 2, 2, Pods { t0s: 2, t2s_per_t1: 2 }).expect("fits");
        [(two, 2, 4), (three, 1, 16), (Clos::of_sites(3, 2, 2).expect("fits"), 1, 6)]
    }

    fn links(clos: &Clos, planes: u8, hosts: u32) -> Vec<Element> {
        let seen: BTreeSet<Element> =
            probes(clos, planes, hosts, &[]).into_iter().flat_map(|probe| probe.links).collect();
        seen.into_iter().collect()
    }

    #[test]
    fn each_single_broken_link_is_named_alone() {
        for (clos, planes, hosts) in fabrics() {
            assert_eq!(localise(&clos, &probes(&clos, planes, hosts, &[])), Findings::default());
            for link in links(&clos, planes, hosts) {
                let found = localise(&clos, &probes(&clos, planes, hosts, &[link]));
                let parts: Vec<&[Element]> = found.suspicions.iter().map(|s| &s.parts[..]).collect();
                assert_eq!(parts, [&[link][..]], "{link}");
                assert_eq!(found.suspicions[0].lost, 1.0);
            }
        }
    }

    #[test]
    fn two_broken_links_are_both_named_or_among_those_that_cannot_be_told_apart_or_tested() {
        for (clos, planes, hosts) in fabrics() {
            let all = links(&clos, planes, hosts);
            for (at, a) in all.iter().enumerate() {
                for b in &all[at + 1..] {
                    let found = localise(&clos, &probes(&clos, planes, hosts, &[*a, *b]));
                    for link in [a, b] {
                        let named =
                            found.suspicions.iter().flat_map(|suspicion| &suspicion.parts).any(|part| match *part {
                                Element::Switch(plane, switch) => match *link {
                                    Element::Link(p, x, y) => p == plane && [x, y].contains(&switch),
                                    Element::Port(p, host) => p == plane && switch == Stop::T0(clos.t0_of(host)),
                                    _ => false,
                                },
                                part => part == *link,
                            });
                        assert!(named || found.untested.contains(link), "{link} of {a} and {b}: {found:?}");
                    }
                    let most = found.suspicions.iter().map(|suspicion| suspicion.parts.len()).max();
                    assert!((1..=2).contains(&found.suspicions.len()) && most <= Some(2), "{a} and {b}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn a_dead_switch_is_named_once_and_not_link_by_link() {
        for (clos, planes, hosts) in fabrics() {
            let switches: BTreeSet<Element> = links(&clos, planes, hosts)
                .into_iter()
                .flat_map(|link| match link {
                    Element::Link(plane, a, b) => vec![Element::Switch(plane, a), Element::Switch(plane, b)],
                    _ => vec![],
                })
                .collect();
            for switch in switches {
                let found = localise(&clos, &probes(&clos, planes, hosts, &[switch]));
                assert_eq!(found.suspicions.len(), 1, "{switch}: {found:?}");
                assert_eq!(found.suspicions[0].parts, [switch], "{found:?}");
            }
        }
    }

    #[test]
    fn a_lossy_link_is_named_with_its_share_and_rare_losses_elsewhere_are_not() {
        let clos = Clos::new(2, 2).expect("fits");
        let lossy = Element::parse("p0:t0-1:t1-0").expect("a link");
        let mut sent = probes(&clos, 2, 4, &[]);
        for probe in &mut sent {
            (probe.sent, probe.arrived) = (100, if probe.links.contains(&lossy) { 90 } else { 100 });
        }
        // One of the two hosts below T0 0 loses a single probe over a link that the other host clears.
        let once =
            sent.iter_mut().find(|probe| probe.links.len() == 2 && !probe.links.contains(&lossy)).expect("a probe");
        once.arrived = 99;
        let found = localise(&clos, &sent);
        assert_eq!(found, Findings { suspicions: vec![Suspicion { parts: vec![lossy], lost: 0.1 }], untested: vec![] });
    }
}
