//! The planes of a group: rank 0 chooses the address of each rank on each plane, from what the ranks offer.

use super::offer::Offer;
use std::collections::HashSet;
use std::net::{Ipv6Addr, SocketAddrV6};
use strandway_udp::address::{is_ipv4, is_loopback, shown};
use strandway_udp::{Interface, PLANES_MAX};

/// The rate that is assumed for an interface whose driver does not report it, in Mb/s: ours.
const USUAL_RATE: u32 = 10_000;
/// An interface is not used if the fastest one is more than `SLOW` times as fast: ours.
const SLOW: u32 = 2;

const REMEDY: &str =
    "set STRANDWAY_IFNAME to the interfaces, or STRANDWAY_PLANES to the addresses, that ranks shall use";

/// The addresses of all ranks on each plane, with port 0 unless one was given; or the reason why there are none.
pub(super) fn choose(offers: &[Offer]) -> Result<Vec<Vec<SocketAddrV6>>, String> {
    if let Some(first) = offers.iter().position(|offer| !offer.given.is_empty()) {
        return other_planes(offers, first);
    }
    let one_host = offers.iter().all(|offer| offer.place == offers[0].place && !offer.advertises);
    if one_host && let Some(planes) = on_loopback(offers) {
        return Ok(planes);
    }
    if let Some(planes) = by_subnets(offers).or_else(|| by_order(offers)).or_else(|| by_ways(offers)) {
        return Ok(planes);
    }
    Err(no_common(offers))
}

const fn any_port(ip: Ipv6Addr) -> SocketAddrV6 {
    SocketAddrV6::new(ip, 0, 0, 0)
}

/// The two families in the order of preference. The first one is that of the way to the place where ranks meet. Rank 0
/// is there, so another rank's offer decides.
fn families(offers: &[Offer]) -> [bool; 2] {
    let way = offers.iter().skip(1).chain(offers).find_map(|offer| offer.ways.first());
    let four = way.is_some_and(|way| is_ipv4(*way));
    [four, !four]
}

/// The loopback address, if all ranks have it in one family.
fn on_loopback(offers: &[Offer]) -> Option<Vec<Vec<SocketAddrV6>>> {
    [false, true].into_iter().find_map(|family| {
        let of = |offer: &Offer| {
            let one = offer.addresses.iter().find(|one| one.loopback && is_ipv4(one.address) == family)?;
            Some(vec![any_port(one.address)])
        };
        offers.iter().map(of).collect()
    })
}

/// May ranks have these addresses together? If two hosts have one address, it is that of a bridge that each host has
/// for itself.
fn are_distinct(offers: &[Offer], addresses: &[Ipv6Addr]) -> bool {
    let mut seen: Vec<(Ipv6Addr, &str)> =
        addresses.iter().zip(offers).filter(|(_, o)| !o.advertises).map(|(ip, o)| (*ip, o.place.as_str())).collect();
    seen.sort_unstable();
    seen.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1 == two[1].1)
}

/// A plane for each subnet that all ranks have.
fn by_subnets(offers: &[Offer]) -> Option<Vec<Vec<SocketAddrV6>>> {
    let mut found: Vec<Vec<&Interface>> = Vec::new();
    for family in families(offers) {
        for ours in offers[0].addresses.iter().filter(|one| !one.loopback && is_ipv4(one.address) == family) {
            let of = |offer: &'_ Offer| offer.addresses.iter().position(|one| !one.loopback && one.shares_subnet(ours));
            let places: Option<Vec<usize>> = offers.iter().map(of).collect();
            let Some(places) = places else { continue };
            let row: Vec<&Interface> = places.iter().zip(offers).map(|(at, offer)| &offer.addresses[*at]).collect();
            // An interface is one plane, even if it has several addresses.
            let is_new = found.iter().all(|known| known.iter().zip(&row).all(|(known, one)| known.name != one.name));
            let ips: Vec<Ipv6Addr> = row.iter().map(|one| one.address).collect();
            if is_new && are_distinct(offers, &ips) {
                found.push(row);
            }
        }
    }
    if !offers[0].named {
        let rate = |row: &[&Interface]| row.iter().map(|one| one.rate.unwrap_or(USUAL_RATE)).min().unwrap_or(0);
        let fastest = found.iter().map(|row| rate(row)).max().unwrap_or(0);
        found.retain(|row| rate(row) >= fastest / SLOW);
        // The planes are in the kernel's order, which both families share.
        let order = |row: &Vec<&Interface>| offers[0].addresses.iter().position(|one| one.name == row[0].name);
        found.sort_by_key(order);
    }
    found.truncate(PLANES_MAX);
    by_rank(offers.len(), &found)
}

/// Turns the ranks of each plane into the planes of each rank; nothing if there are none.
fn by_rank(ranks: usize, planes: &[Vec<&Interface>]) -> Option<Vec<Vec<SocketAddrV6>>> {
    let of = |rank: usize| planes.iter().map(|row| any_port(row[rank].address)).collect();
    (!planes.is_empty()).then(|| (0..ranks).map(of).collect())
}

/// Interfaces that were named at all ranks, in that order: a routed network has a subnet for each host.
fn by_order(offers: &[Offer]) -> Option<Vec<Vec<SocketAddrV6>>> {
    if !offers.iter().all(|offer| offer.named) {
        return None;
    }
    let names = |offer: &Offer| {
        let mut names: Vec<String> = Vec::new();
        for one in offer.addresses.iter().filter(|one| !one.loopback) {
            if !names.contains(&one.name) {
                names.push(one.name.clone());
            }
        }
        names
    };
    let all: Vec<Vec<String>> = offers.iter().map(names).collect();
    let planes = all[0].len().min(PLANES_MAX);
    if all.iter().any(|names| names.len() != all[0].len()) {
        return None;
    }
    let mut found = Vec::new();
    for plane in 0..planes {
        let row = families(offers).into_iter().find_map(|family| {
            let of = |(offer, names): (&'_ Offer, &Vec<String>)| {
                let fits = |one: &Interface| one.name == names[plane] && is_ipv4(one.address) == family;
                offer.addresses.iter().position(fits)
            };
            let places: Vec<usize> = offers.iter().zip(&all).map(of).collect::<Option<_>>()?;
            Some(places.iter().zip(offers).map(|(at, offer)| &offer.addresses[*at]).collect::<Vec<_>>())
        })?;
        let ips: Vec<Ipv6Addr> = row.iter().map(|one| one.address).collect();
        if !are_distinct(offers, &ips) {
            return None;
        }
        found.push(row);
    }
    by_rank(offers.len(), &found)
}

/// One plane, of the addresses on the way to the place where ranks meet.
fn by_ways(offers: &[Offer]) -> Option<Vec<Vec<SocketAddrV6>>> {
    families(offers).into_iter().find_map(|family| {
        let ips: Vec<Ipv6Addr> = offers.iter().map(|offer| way_of(offer, family)).collect::<Option<_>>()?;
        are_distinct(offers, &ips).then(|| ips.iter().map(|ip| vec![any_port(*ip)]).collect())
    })
}

/// The address of a rank in this family by which hosts elsewhere reach it.
fn way_of(offer: &Offer, family: bool) -> Option<Ipv6Addr> {
    let fits = |ip: &&Ipv6Addr| is_ipv4(**ip) == family;
    let interfaces = || offer.addresses.iter().filter(|one| !one.loopback).map(|one| &one.address);
    offer.ways.iter().find(fits).or_else(|| interfaces().find(fits)).copied()
}

/// The planes of all ranks if some ranks have given theirs: equally many for each, in the same subnets or families.
fn other_planes(offers: &[Offer], first: usize) -> Result<Vec<Vec<SocketAddrV6>>, String> {
    let model = &offers[first];
    let of = |(rank, offer): (usize, &Offer)| -> Result<Vec<SocketAddrV6>, String> {
        if !offer.given.is_empty() {
            let (ours, theirs) = (model.given.len(), offer.given.len());
            if ours != theirs {
                return Err(format!(
                    "rank {rank} at {} has {theirs} planes, rank {first} at {} has {ours}: give all ranks the same number \
                     in STRANDWAY_PLANES",
                    offer.host, model.host
                ));
            }
            if let Some(plane) = (0..ours).find(|&p| is_ipv4(*offer.given[p].ip()) != is_ipv4(*model.given[p].ip())) {
                return Err(format!(
                    "plane {plane} is {} at rank {rank}, {} at rank {first}: take addresses of one family",
                    shown(offer.given[plane]).ip(),
                    shown(model.given[plane]).ip()
                ));
            }
            return Ok(offer.given.clone());
        }
        let mut used = HashSet::new();
        let planes = model.given.iter().map(|given| {
            let like = like(offer, *given.ip(), model, &used)?;
            used.insert(like);
            Some(any_port(like))
        });
        planes.collect::<Option<Vec<_>>>().ok_or_else(|| {
            format!(
                "rank {rank} at {} has {}; rank {first} at {} has {}: {REMEDY}",
                offer.host,
                offer.shown(),
                model.host,
                model.shown()
            )
        })
    };
    offers.iter().enumerate().map(of).collect()
}

/// The address of a rank on the plane on which another one has `given`.
fn like(offer: &Offer, given: Ipv6Addr, model: &Offer, used: &HashSet<Ipv6Addr>) -> Option<Ipv6Addr> {
    let family = is_ipv4(given);
    let free = |one: &&Interface| is_ipv4(one.address) == family && !used.contains(&one.address);
    if is_loopback(given) {
        let loopback = || offer.addresses.iter().filter(|one| one.loopback && is_ipv4(one.address) == family);
        return (offer.place == model.place).then(|| loopback().next()).flatten().map(|one| one.address);
    }
    let in_subnet = |one: &&Interface| Interface { address: given, ..(*one).clone() }.shares_subnet(one);
    let all = || offer.addresses.iter().filter(|one| !one.loopback).filter(free);
    let by_subnet = all().find(in_subnet).map(|one| one.address);
    // Several planes must not be guessed, because ranks could guess them in different orders.
    by_subnet.or_else(|| way_of(offer, family).filter(|way| model.given.len() == 1 && !used.contains(way)))
}

fn no_common(offers: &[Offer]) -> String {
    for family in [false, true] {
        let ips: Option<Vec<Ipv6Addr>> = offers.iter().map(|offer| way_of(offer, family)).collect();
        let Some(ips) = ips else { continue };
        for (rank, (ip, offer)) in ips.iter().zip(offers).enumerate() {
            if let Some(other) = (0..rank).find(|&other| ips[other] == *ip && offers[other].place != offer.place) {
                let ip = shown(any_port(*ip)).ip();
                return format!(
                    "ranks {other} and {rank} both have the address {ip}, at {} and at {}: containers behind bridges of \
                     their own hosts cannot reach each other; use the hosts' network, or set STRANDWAY_ADVERTISE and \
                     STRANDWAY_PORTS to what the hosts forward",
                    offers[other].host, offer.host
                );
            }
        }
    }
    // A rank has no family in common with rank 0.
    let has = |offer: &Offer, family| way_of(offer, family).is_some();
    let differs = |offer: &&Offer| [false, true].iter().all(|&f| !(has(offer, f) && has(&offers[0], f)));
    let rank = offers.iter().skip(1).position(|offer| differs(&offer)).map_or(offers.len() - 1, |at| at + 1);
    let (one, other) = (&offers[0], &offers[rank]);
    let list = |offer: &Offer| {
        let beyond: Vec<Interface> = offer.addresses.iter().filter(|one| !one.loopback).cloned().collect();
        let text = Offer { addresses: beyond, ..offer.clone() }.shown();
        if text.is_empty() { "only loopback".to_string() } else { text }
    };
    format!(
        "rank {rank} at {} and rank 0 at {} have no network in common: rank {rank} has {}; rank 0 has {}; {REMEDY}",
        other.host,
        one.host,
        list(other),
        list(one)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_udp::address::parse;

    fn ip(text: &str) -> Ipv6Addr {
        *parse(text, 0).unwrap_or_else(|| panic!("{text}")).ip()
    }

    /// `eth0 10.0.0.1/24 1500 @100`: name, address, MTU and perhaps a rate in Gb/s.
    fn interface(text: &str) -> Interface {
        let mut words = text.split(' ');
        let name = words.next().expect("a name").to_string();
        let (address, prefix) = words.next().and_then(|word| word.split_once('/')).expect("an address");
        let rate = words.find_map(|word| word.strip_prefix('@')).map(|rate| rate.parse::<u32>().expect("Gb/s") * 1_000);
        let (address, prefix) = (ip(address), prefix.parse().expect("bits"));
        Interface { loopback: name == "lo", name, address, prefix, mtu: 1_500, rate, aside: None }
    }

    fn offer(place: &str, addresses: &[&str], ways: &[&str]) -> Offer {
        let mut addresses: Vec<Interface> = addresses.iter().map(|text| interface(text)).collect();
        addresses.extend(["lo ::1/128", "lo 127.0.0.1/8"].map(interface));
        let ways = ways.iter().map(|way| ip(way)).collect();
        Offer { host: format!("host {place}"), place: place.into(), addresses, ways, ..Offer::default() }
    }

    fn chosen(offers: &[Offer]) -> Vec<Vec<String>> {
        let planes = choose(offers).expect("planes");
        planes.iter().map(|row| row.iter().map(|one| shown(*one).ip().to_string()).collect()).collect()
    }

    #[test]
    fn ranks_of_one_host_meet_on_loopback_and_others_do_not() {
        let (a, b) =
            (offer("a", &["eth0 10.0.0.1/24"], &["10.0.0.1"]), offer("b", &["eth0 10.0.0.2/24"], &["10.0.0.2"]));
        assert_eq!(chosen(&[a.clone(), a.clone()]), [["::1"], ["::1"]]);
        assert_eq!(chosen(&[a, b]), [["10.0.0.1"], ["10.0.0.2"]]);
        let mut no_six = offer("a", &[], &[]);
        no_six.addresses.retain(|one| is_ipv4(one.address));
        assert_eq!(chosen(&[no_six.clone(), no_six]), [["127.0.0.1"], ["127.0.0.1"]]);
    }

    #[test]
    fn planes_are_matched_by_subnet_and_each_interface_is_one() {
        // The second host has its interfaces the other way round.
        let a = offer(
            "a",
            &["eth0 10.0.1.1/24", "eth0 fd00:1::1/64", "eth1 10.0.2.1/24", "eth1 fd00:2::1/64"],
            &["10.0.1.1"],
        );
        let b = offer(
            "b",
            &["eth0 10.0.2.2/24", "eth0 fd00:2::2/64", "eth1 10.0.1.2/24", "eth1 fd00:1::2/64"],
            &["10.0.1.2"],
        );
        assert_eq!(chosen(&[a.clone(), b.clone()]), [["10.0.1.1", "10.0.2.1"], ["10.0.1.2", "10.0.2.2"]]);
        let six = |offer: &Offer, way: &str| Offer { ways: vec![ip(way)], ..offer.clone() };
        let planes = chosen(&[six(&a, "fd00:1::1"), six(&b, "fd00:1::2")]);
        assert_eq!(planes, [["fd00:1::1", "fd00:2::1"], ["fd00:1::2", "fd00:2::2"]]);
        // One of the two families only at one host.
        let four = offer("c", &["net 10.0.1.3/24"], &["10.0.1.3"]);
        assert_eq!(chosen(&[six(&a, "fd00:1::1"), four]), [["10.0.1.1"], ["10.0.1.3"]]);
    }

    #[test]
    fn a_slow_network_is_not_used_beside_a_fast_one_and_docker_is_not_used() {
        let a = offer("a", &["eth0 10.0.0.1/24 @1", "p0 10.1.0.1/24 @100", "d 172.17.0.1/16 @100"], &["10.0.0.1"]);
        let b = offer("b", &["eth0 10.0.0.2/24 @1", "p0 10.1.0.2/24 @100", "d 172.17.0.1/16 @100"], &["10.0.0.2"]);
        assert_eq!(chosen(&[a.clone(), b.clone()]), [["10.1.0.1"], ["10.1.0.2"]]);
        let named = |offer: Offer| Offer { named: true, ..offer };
        assert_eq!(chosen(&[named(a), named(b)]), [["10.0.0.1", "10.1.0.1"], ["10.0.0.2", "10.1.0.2"]]);
    }

    #[test]
    fn a_routed_network_takes_the_ways_or_the_order_of_names() {
        let a = offer("a", &["eth0 10.0.1.1/31", "eth1 10.1.1.1/31"], &["10.0.1.1"]);
        let b = offer("b", &["eth0 10.0.2.1/31", "eth1 10.1.2.1/31"], &["10.0.2.1"]);
        assert_eq!(chosen(&[a.clone(), b.clone()]), [["10.0.1.1"], ["10.0.2.1"]]);
        let named = |offer: Offer| Offer { named: true, ..offer };
        assert_eq!(chosen(&[named(a), named(b)]), [["10.0.1.1", "10.1.1.1"], ["10.0.2.1", "10.1.2.1"]]);
        // The host where ranks meet knows itself as 127.0.1.1, and so has only the way to hosts elsewhere.
        let home = offer("a", &["eth0 10.9.1.2/24", "eth0 fd00:1::2/64"], &["fd00:1::2", "10.9.1.2"]);
        let away = offer("b", &["eth0 10.9.2.2/24", "eth0 fd00:2::2/64"], &["10.9.2.2", "fd00:2::2"]);
        assert_eq!(chosen(&[home, away]), [["10.9.1.2"], ["10.9.2.2"]]);
    }

    #[test]
    fn ranks_without_a_common_network_are_named_with_both_lists() {
        let a = offer("a", &["eth0 10.0.1.1/24"], &["10.0.1.1"]);
        let b = offer("b", &["eth0 fd00:2::1/64"], &["fd00:2::1"]);
        let said = choose(&[a.clone(), a.clone(), b]).expect_err("no network");
        assert!(said.starts_with("rank 2 at host b and rank 0 at host a have no network in common"), "{said}");
        assert!(said.contains("10.0.1.1 (eth0)") && said.contains("fd00:2::1 (eth0)"), "{said}");
        // Containers behind Docker's bridge on two hosts.
        let of = |place: &str| offer(place, &["eth0 172.17.0.2/16"], &["172.17.0.2"]);
        let said = choose(&[of("a"), of("b")]).expect_err("one address twice");
        assert!(said.contains("both have the address 172.17.0.2") && said.contains("STRANDWAY_ADVERTISE"), "{said}");
        let advertised = |place: &str| Offer { advertises: true, ..of(place) };
        assert_eq!(chosen(&[advertised("a"), advertised("b")]), [["172.17.0.2"], ["172.17.0.2"]]);
    }

    #[test]
    fn given_planes_decide_for_ranks_without_any() {
        let given = |text: &[&str]| text.iter().map(|one| parse(one, 0).expect("an address")).collect::<Vec<_>>();
        let a = Offer { given: given(&["10.0.2.1", "10.0.1.1"]), ..offer("a", &[], &[]) };
        let b = offer("b", &["eth0 10.0.1.2/24", "eth1 10.0.2.2/24"], &["10.0.1.2"]);
        assert_eq!(chosen(&[a.clone(), b.clone()]), [["10.0.2.1", "10.0.1.1"], ["10.0.2.2", "10.0.1.2"]]);
        let away = offer("b", &["eth0 10.7.1.2/24", "eth1 10.7.2.2/24"], &["10.7.1.2"]);
        assert!(choose(&[a.clone(), away.clone()]).expect_err("crossed planes").contains("STRANDWAY_PLANES"));
        let single = Offer { given: given(&["10.0.1.1"]), ..a.clone() };
        assert_eq!(chosen(&[single.clone(), away]), [["10.0.1.1"], ["10.7.1.2"]]);
        assert!(choose(&[single, a.clone()]).expect_err("other numbers").contains("the same number"));
        let six = Offer { given: given(&["fd00::1", "fd00::2"]), ..b };
        assert!(choose(&[a, six]).expect_err("two families").contains("one family"));
        let alone = Offer { given: given(&["::1"]), ..offer("a", &[], &[]) };
        assert_eq!(chosen(&[alone.clone(), offer("a", &[], &[])]), [["::1"], ["::1"]]);
        assert!(
            choose(&[alone, offer("b", &["eth0 fd00::1/64"], &[])]).is_err(),
            "loopback does not lead to another host"
        );
    }
}
