//! Addresses that are source routes: exact bytes, and walks through the static tables of every switch.

use proptest::prelude::*;
use std::collections::HashSet;
use std::net::Ipv6Addr;
use strandway_fabric::usid::{BLOCK, Clos, ClosError, DropReason, Pods, Stop, SwitchTable, Way};

/// A whole fabric: one table per switch.
struct Fabric {
    clos: Clos,
    hosts: u32,
    t0: Vec<Vec<SwitchTable>>,
    t1: Vec<Vec<SwitchTable>>,
    t2: Vec<Vec<SwitchTable>>,
}

impl Fabric {
    fn new(clos: Clos, planes: u8, hosts: u32) -> Fabric {
        clos.holds(u32::from(planes), hosts).expect("a fabric that fits");
        let t0s = hosts.div_ceil(u32::from(clos.hosts_per_t0)) as u16;
        let t1s = clos.t1s * (clos.pod_of(t0s - 1) + 1);
        let t0 = (0..planes).map(|p| (0..t0s).map(|i| SwitchTable::t0(&clos, p, i, hosts)).collect()).collect();
        let t1 = (0..planes).map(|p| (0..t1s).map(|j| SwitchTable::t1(&clos, p, j, t0s)).collect()).collect();
        let t2 = (0..planes).map(|p| (0..clos.t2s()).map(|m| SwitchTable::t2(&clos, p, m, t0s)).collect()).collect();
        Fabric { clos, hosts, t0, t1, t2 }
    }

    /// The stops of a packet that a host sends on a plane, and the address with which it arrives.
    fn walk(&self, plane: u8, from: u32, address: Ipv6Addr) -> Result<(Vec<Stop>, Ipv6Addr), DropReason> {
        let (mut stops, mut address) = (Vec::new(), address);
        let clos = &self.clos;
        let mut at = Stop::T0(clos.t0_of(from));
        loop {
            assert!(stops.len() < 12, "a loop: {stops:?}");
            stops.push(at);
            let tables = [&self.t0, &self.t1, &self.t2].map(|tables| &tables[usize::from(plane)]);
            let port;
            at = match at {
                Stop::T0(t0) => {
                    (port, address) = tables[0][usize::from(t0)].forward(address)?;
                    match port.checked_sub(clos.hosts_per_t0) {
                        Some(up) => Stop::T1(clos.pod_of(t0) * clos.t1s + up),
                        None => {
                            let host = u32::from(t0) * u32::from(clos.hosts_per_t0) + u32::from(port);
                            assert!(host < self.hosts, "no host is attached to this port");
                            stops.push(Stop::Downlink(port));
                            return Ok((stops, address));
                        }
                    }
                }
                Stop::T1(t1) => {
                    (port, address) = tables[1][usize::from(t1)].forward(address)?;
                    let below = clos.pods.map_or(u16::MAX, |pods| pods.t0s);
                    let first = t1 / clos.t1s * clos.pods.map_or(0, |pods| pods.t0s);
                    match port.checked_sub(below) {
                        Some(up) => Stop::T2(clos.t2s_of(t1).start + up),
                        None => Stop::T0(first + port),
                    }
                }
                Stop::T2(t2) => {
                    (port, address) = tables[2][usize::from(t2)].forward(address)?;
                    Stop::T1(port * clos.t1s + t2 / clos.pods.map_or(1, |pods| pods.t2s_per_t1))
                }
                Stop::Downlink(_) => unreachable!("the walk has ended"),
            };
        }
    }
}

fn address(text: &str) -> Ipv6Addr {
    text.parse().expect("an address")
}

/// The sum of an address in one's complement, as in a checksum; 0 and 0xffff both mean zero.
fn sum(address: Ipv6Addr) -> u32 {
    address.segments().iter().map(|w| u32::from(*w)).sum::<u32>() % 0xffff
}

/// Three tiers of switches with 4 ports: 2 hosts below each of 8 T0s in 4 pods, 4 T2s.
fn fat_tree(planes: u16) -> Clos {
    Clos::of_pods(planes, 2, 2, Pods { t0s: 2, t2s_per_t1: 2 }).expect("fits")
}

#[test]
fn known_addresses_come_out_byte_by_byte() {
    let neutral = Clos::new(2, 2).expect("fits");
    let plain = Clos { neutral: false, ..neutral };
    let tree = fat_tree(1);
    let plain_tree = Clos { neutral: false, ..tree };
    for (made, expected) in [
        (plain.path(0, 0, 2, 1), "fcbb:bb00:1:4002:2:8001::"),
        (neutral.path(0, 0, 2, 1), "fcbb:bb00:e002:1ffd:2:8001::"),
        // Below the same T0 both forms are the receiver's own address.
        (plain.path(0, 0, 1, 7), "fcbb:bb00:1:8002::"),
        (neutral.path(0, 0, 1, 7), "fcbb:bb00:1:8002::"),
        (plain.probe(0, 0, 1), "fcbb:bb00:1:4002:1:8001::"),
        (neutral.probe(0, 0, 1), "fcbb:bb00:e002:1ffd:1:8001::"),
        (neutral.probe_t0(0, 0), "fcbb:bb00:1:1:8001::"),
        (plain.path(1, 3, 0, 0), "fcbb:bb00:802:4801:801:8801::"),
        (neutral.path(1, 3, 0, 0), "fcbb:bb00:e401:1bfe:801:8801::"),
        (neutral.host(1, 2), "fcbb:bb00:802:8801::"),
        // Three tiers: pod 0 to pod 3 over T1 1, its second T2, and T1 1 of that pod. The plain list fills the address.
        (plain_tree.path(0, 0, 15, 0b11), "fcbb:bb00:1:4002:c004:4008:8:8002"),
        (tree.path(0, 0, 15, 0b11), "fcbb:bb00:e002:1ff0:c004:4008:8:8002"),
        (plain_tree.path(0, 0, 3, 0b11), "fcbb:bb00:1:4002:2:8002::"),
    ] {
        assert_eq!(made, address(expected), "{made}");
    }
}

#[test]
fn descriptions_name_every_stop() {
    let clos = Clos::new(2, 2).expect("fits");
    for (written, said) in [
        ("fcbb:bb00:e002:1ffd:2:8001::", "plane 0, T1 1 -> T0 1 -> host 2"),
        ("fcbb:bb00:1:4002:2:8001::", "plane 0, T0 0 -> T1 1 -> T0 1 -> host 2"),
        ("fcbb:bb00:801:8802::", "plane 1, T0 0 -> host 1"),
        ("fcbb:bb00:8802::", "plane 1, downlink 1"),
        ("fcbb:bb00:2:8001:beef::", "plane 0, T0 1 -> host 2, tail beef:0000:0000:0000"),
        ("fcbb:bb00:1:8800::", "plane 0, T0 0 -> unknown 8800"),
        ("fcbb:bb00::", "nowhere"),
        ("::1", "::1, outside the fabric"),
    ] {
        assert_eq!(clos.describe(address(written)), said);
    }
    assert_eq!(
        fat_tree(1).describe(address("fcbb:bb00:1:4002:c004:4008:8:8002")),
        "plane 0, T0 0 -> T1 1 -> T2 3 -> T1 7 -> T0 7 -> host 15"
    );
}

#[test]
fn the_least_entropy_selects_the_same_path_in_both_directions() {
    for clos in [Clos::new(3, 2).expect("fits"), fat_tree(1), Clos::of_sites(3, 2, 2).expect("fits")] {
        for (from, to, entropy) in (0..6).flat_map(|a| (0..6).flat_map(move |b| (0..300).map(move |e| (a, b, e)))) {
            let least = clos.least_entropy(from, to, entropy);
            assert!(least <= entropy && least == clos.least_entropy(to, from, entropy));
            assert_eq!(clos.way(0, from, to, least), clos.way(0, from, to, entropy));
            assert_eq!(clos.way(0, to, from, least), clos.way(0, to, from, entropy));
        }
    }
}

#[test]
fn a_host_owns_everything_behind_its_words_and_nothing_else() {
    let clos = Clos::new(2, 2).expect("fits");
    assert_eq!(clos.host_of(address("fcbb:bb00:2:8001::")), Some(2));
    assert_eq!(clos.host_of(address("fcbb:bb00:1002:9002:beef::1")), Some(3), "its port in plane 2");
    for other in [
        "fcbb:bb00:8001::",
        "fcbb:bb01:2:8001::",
        "::1",
        "fcbb:bb00:2:8801::",
        "fcbb:bb00:2:8003::",
        "fcbb:bb00:4002:8001::",
    ] {
        assert_eq!(clos.host_of(address(other)), None, "{other}");
    }
    let sites = Clos::of_sites(3, 1, 2).expect("fits");
    assert_eq!((sites.host_of(sites.host(0, 5)), sites.host_of(clos.host(0, 6))), (Some(5), None), "three sites");
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let clos = Clos::new(256, 256).expect("as in the largest fabric of two tiers");
    assert_eq!(clos.holds(8, 131_072), Ok(()));
    let said = |result: Result<(), ClosError>| result.expect_err("too much").to_string();
    assert_eq!(said(clos.holds(9, 1)), "9 planes do not fit a micro segment, which can distinguish 8");
    assert!(said(clos.holds(1, 256 * 2047 + 1)).starts_with("2048 T0 switches"));
    assert!(said(clos.holds(1, 0)).contains("at least one of: hosts"));
    assert!(Clos::new(1024, 1).is_err() && Clos::new(0, 1).is_err() && Clos::new(1, 0).is_err());
    assert!(Clos::new(1, 2048).is_err() && Clos::new(1, 2047).is_ok());
    let sites = Clos::of_sites(16, 2, 4).expect("240 T1s");
    assert_eq!((sites.holds(1, 64), sites.t1s_of(3).count()), (Ok(()), 30));
    assert!(said(sites.holds(1, 65)).contains("17 T0 switches of a plane do not fit"), "there are 16 sites");
    assert!(said(Clos { t1s: 239, ..sites }.check()).contains("are not 2 for each pair"));
    assert!(said(Clos { t1s: 238, ..sites }.check()).contains("are not 2 for each pair"));
    assert!(Clos::of_sites(16, 9, 4).is_err() && Clos::of_sites(1, 1, 4).is_err() && Clos::of_sites(3, 0, 4).is_err());
    // Three tiers of 64-port switches: 65,536 NICs in one plane; with two planes their words have a bit less, and fit.
    let pods = Pods { t0s: 32, t2s_per_t1: 32 };
    let large = Clos::of_pods(1, 32, 32, pods).expect("fits");
    assert_eq!((large.plane_bits, large.holds(1, 65_536)), (0, Ok(())));
    assert_eq!(Clos::of_pods(2, 32, 32, pods).map(|clos| clos.holds(2, 65_536)), Ok(Ok(())));
    assert!(said(Clos::of_pods(4, 32, 32, pods).expect("fits").holds(4, 65_536)).starts_with("2048 T1 switches"));
    assert!(said(large.holds(2, 65_536)).starts_with("2 planes"));
    assert!(Clos::of_pods(1, 100, 1, Pods { t0s: 1, t2s_per_t1: 100 }).is_err(), "10,000 T2s");
    for block in [0, 1, 0xfe80_0000, 0xff1e_0000] {
        assert_eq!(Clos { block, ..clos }.check(), Err(ClosError::Block(block)));
    }
}

/// Every port of every NIC has an address that no other port has, and that leads back to its NIC.
fn check_own_addresses(clos: &Clos, planes: u8, hosts: u32) {
    clos.holds(u32::from(planes), hosts).expect("fits");
    let mut seen = HashSet::new();
    for (plane, host) in (0..planes).flat_map(|plane| (0..hosts).map(move |host| (plane, host))) {
        let own = clos.host(plane, host);
        assert!(seen.insert(own), "{own} twice");
        assert_eq!(clos.host_of(own), Some(host));
        // It is a path, from the T0 on.
        let stops = vec![Stop::T0(clos.t0_of(host)), Stop::Downlink(clos.downlink_of(host))];
        assert_eq!(clos.way_of(own), Some(Way { plane, stops }));
    }
    assert_eq!(seen.len(), usize::from(planes) * hosts as usize);
}

#[test]
fn every_nic_of_the_largest_fabrics_has_one_address_in_each_plane() {
    // 8 planes of 512-port switches: 512 T0s with 256 hosts each.
    check_own_addresses(&Clos::new(256, 256).expect("fits"), 8, 131_072);
    // Three tiers of 64-port switches: 2,048 T0s with 32 hosts each.
    let pods = Pods { t0s: 32, t2s_per_t1: 32 };
    check_own_addresses(&Clos::of_pods(1, 32, 32, pods).expect("fits"), 1, 65_536);
}

#[test]
fn switches_drop_what_their_tables_do_not_know() {
    let clos = Clos::new(2, 2).expect("fits");
    let t0 = SwitchTable::t0(&clos, 0, 0, 4);
    for (to, why) in [
        ("fcbb:bb01:1:8001::", DropReason::Foreign),
        ("fcbb:bb00:1::", DropReason::Ends),
        ("fcbb:bb00:1:1:1:1:1:1", DropReason::Ends),
        ("fcbb:bb00:801:4801:802:8801::", DropReason::Unknown(0x801)),
        ("fcbb:bb00:2:8001::", DropReason::Unknown(2)),
        ("fcbb:bb00:1:8003::", DropReason::Unknown(0x8003)),
        ("fcbb:bb00:1:0:8001::", DropReason::Unknown(0)),
    ] {
        assert_eq!(t0.forward(address(to)), Err(why), "{to}");
    }
    // Consecutive own words count as one stop; the words of the downlink arrive.
    for to in ["fcbb:bb00:1:1:1:8002::", "fcbb:bb00:1:8002::"] {
        assert_eq!(t0.forward(address(to)), Ok((1, clos.host(0, 1))), "{to}");
    }
    // The tables have few entries: own words, two hosts, two words for each of two T1s.
    assert_eq!((t0.entries(), SwitchTable::t1(&clos, 0, 0, 2).entries()), (7, 4));
    let large = Clos::new(256, 256).expect("fits");
    assert_eq!(SwitchTable::t0(&large, 7, 511, 131_072).entries(), 1 + 256 + 2 * 256);
    assert_eq!(SwitchTable::t1(&large, 7, 255, 512).entries(), 2 + 512);
}

#[test]
fn no_compensator_is_the_zero_that_ends_a_list() {
    let clos = Clos::new(1023, 16).expect("fits");
    for (plane, entropy) in (0..8).flat_map(|plane| (0..1023).map(move |entropy| (plane, entropy))) {
        assert_ne!(clos.path(plane, 0, 4095, entropy).segments()[3], 0);
    }
    // T1 4095, T2 4094 and T1 4095 of another pod would add up to zero in one's complement.
    let pods = Pods { t0s: 1, t2s_per_t1: 2 };
    let tree = Clos::of_pods(1, 2048, 1, pods).expect("fits");
    let all = (0..2048 * 2).map(|way| tree.path(0, 0, 1, tree.entropy(way)));
    assert!(all.into_iter().all(|to| to.segments()[3] != 0));
}

proptest! {
    #[test]
    fn every_path_visits_what_it_names_and_arrives_neutral(
        t1s in 1u16..=256, hosts_per_t0 in 1u16..=64, wanted in 2u32..=4096, planes in 1u8..=3, plane in 0u8..3,
        a: u32, b: u32, entropy: u32, neutral: bool, low in 0u32..0x200_0000,
    ) {
        let block = if low % 2 == 0 { BLOCK } else { 0xfc00_0000 | low };
        let clos = Clos { block, neutral, ..Clos::new(t1s, hosts_per_t0).expect("fits") };
        let hosts = wanted.min(u32::from(hosts_per_t0) * 64);
        check_path(&Fabric::new(clos, planes, hosts), planes, plane % planes, a % hosts, b % hosts, entropy)?;
    }

    #[test]
    fn paths_of_three_tiers_do_so_too(
        t1s in 1u16..=5, hosts_per_t0 in 1u16..=4, t0s in 1u16..=4, t2s_per_t1 in 1u16..=5, wanted in 2u32..=96,
        planes in 1u8..=4, plane in 0u8..4, a: u32, b: u32, entropy: u32, neutral: bool,
    ) {
        let clos = Clos::of_pods(u16::from(planes), t1s, hosts_per_t0, Pods { t0s, t2s_per_t1 }).expect("fits");
        let clos = Clos { neutral, ..clos };
        check_path(&Fabric::new(clos, planes, wanted), planes, plane % planes, a % wanted, b % wanted, entropy)?;
    }

    #[test]
    fn sites_reach_each_other_over_the_t1s_of_their_pair(
        sites in 2u16..=16, per_pair in 1u16..=2, hosts_per_site in 1u16..=5, plane in 0u8..2, a: u32, b: u32, entropy: u32,
    ) {
        let clos = Clos::of_sites(sites, per_pair, hosts_per_site).expect("fits");
        let hosts = u32::from(sites * hosts_per_site);
        let (from, to) = (a % hosts, b % hosts);
        let sent = clos.path(plane, from, to, entropy);
        let walk = Fabric::new(clos, 2, hosts).walk(plane, from, sent);
        let (stops, arrived) = walk.map_err(|e| TestCaseError::fail(e.to_string()))?;
        let (here, there) = (clos.t0_of(from), clos.t0_of(to));
        prop_assert_eq!((&stops[0], stops.last()), (&Stop::T0(here), Some(&Stop::Downlink(clos.downlink_of(to)))));
        if here != there {
            let (low, high) = (here.min(there), here.max(there));
            let t1 = (high * (high - 1) / 2 + low) * per_pair + (entropy & (per_pair as u32 - 1)) as u16;
            prop_assert_eq!(clos.joined(t1), Some((low, high)));
            prop_assert_eq!(&stops[1..3], &[Stop::T1(t1), Stop::T0(there)]);
        }
        prop_assert_eq!((arrived, clos.host_of(arrived)), (clos.host(plane, to), Some(to)));
    }

    #[test]
    fn probes_come_back_over_the_t1_that_they_name(
        t1s in 1u16..=64, hosts_per_t0 in 1u16..=16, hosts in 1u32..=256, plane in 0u8..2, a: u32, b: u16, neutral: bool,
    ) {
        let clos = Clos { neutral, ..Clos::new(t1s, hosts_per_t0).expect("fits") };
        let (from, t1) = (a % hosts, b % t1s);
        let fabric = Fabric::new(clos, 2, hosts);
        let sent = clos.probe(plane, from, t1);
        let (stops, arrived) = fabric.walk(plane, from, sent).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let (t0, end) = (Stop::T0(clos.t0_of(from)), Stop::Downlink(clos.downlink_of(from)));
        prop_assert_eq!(stops, vec![t0, Stop::T1(t1), t0, end]);
        prop_assert_eq!(arrived, clos.host(plane, from));
        if neutral {
            prop_assert_eq!(sum(sent), sum(arrived));
        }
        let near = fabric.walk(plane, from, clos.probe_t0(plane, from)).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(near, (vec![t0, end], clos.host(plane, from)));
    }

    #[test]
    fn no_address_confuses_a_switch(bits: u128, near: bool) {
        let (clos, tree) = (Clos::new(2, 2).expect("fits"), fat_tree(1));
        let bits = if near { bits >> 32 | u128::from(BLOCK) << 96 } else { bits };
        let address = Ipv6Addr::from(bits);
        for table in [
            SwitchTable::t0(&clos, 0, 0, 4), SwitchTable::t1(&clos, 0, 0, 2),
            SwitchTable::t0(&tree, 0, 3, 16), SwitchTable::t1(&tree, 0, 3, 8), SwitchTable::t2(&tree, 0, 3, 8),
        ] {
            if let Ok((port, left)) = table.forward(address) {
                prop_assert!(port < 4);
                let [_, _, first, second, ..] = left.segments();
                let kept = table.downlinks().iter().any(|(pair, _)| *pair == [first, second]);
                prop_assert!(kept || !table.own().iter().any(|(word, _)| *word == first));
            }
        }
        for clos in [clos, tree] {
            let _ = (clos.describe(address), clos.host_of(address), clos.way_of(address));
        }
    }
}

/// A path leads over the stops that it names, in its own plane only, and can be read back from its address.
fn check_path(fabric: &Fabric, planes: u8, plane: u8, from: u32, to: u32, entropy: u32) -> Result<(), TestCaseError> {
    let clos = &fabric.clos;
    let way = clos.way(plane, from, to, entropy);
    let sent = clos.path(plane, from, to, entropy);
    let (stops, arrived) = fabric.walk(plane, from, sent).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&stops, &way.stops);
    prop_assert_eq!(arrived, clos.host(plane, to));
    prop_assert_eq!(clos.host_of(arrived), Some(to));
    // Address, path, address: a neutral one leaves out the sender's own T0, if it has a compensator.
    let read = clos.way_of(sent).expect("a list of this fabric");
    let left_out = usize::from(clos.neutral && way.stops.len() > 2);
    prop_assert_eq!((read.plane, &read.stops[..]), (plane, &way.stops[left_out..]));
    let whole = Way { plane, stops: [&way.stops[..left_out], &read.stops].concat() };
    prop_assert_eq!(clos.address(&whole), sent);
    if clos.neutral {
        prop_assert_eq!(sum(sent), sum(arrived));
    }
    // All ways between two hosts are different, and each has an entropy value.
    let ways: HashSet<Ipv6Addr> =
        (0..clos.paths(from, to)).map(|w| clos.path(plane, from, to, clos.entropy(w))).collect();
    prop_assert_eq!(ways.len(), clos.paths(from, to) as usize);
    prop_assert!(ways.contains(&sent));
    for other in (0..planes).filter(|p| *p != plane) {
        prop_assert!(fabric.walk(other, from, sent).is_err(), "plane {}'s address works on plane {}", plane, other);
    }
    Ok(())
}
