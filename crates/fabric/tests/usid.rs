//! Addresses that are source routes: exact bytes, and walks through the static tables of every switch.

use proptest::prelude::*;
use std::net::Ipv6Addr;
use strandway_fabric::usid::{BLOCK, Clos, ClosError, DropReason, SwitchTable};

/// A whole fabric: one table per switch.
struct Fabric {
    clos: Clos,
    hosts: u16,
    t0: Vec<Vec<SwitchTable>>,
    t1: Vec<Vec<SwitchTable>>,
}

/// A switch or host on the way of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    T0(u16),
    T1(u16),
    Host(u16),
}

impl Fabric {
    fn new(clos: Clos, planes: u8, hosts: u16) -> Fabric {
        clos.holds(u32::from(planes), u32::from(hosts)).expect("a fabric that fits");
        let t0s = hosts.div_ceil(clos.hosts_per_t0);
        let t0 = (0..planes).map(|p| (0..t0s).map(|i| SwitchTable::t0(&clos, p, i, hosts)).collect()).collect();
        let t1 = (0..planes).map(|p| (0..clos.t1s).map(|j| SwitchTable::t1(&clos, p, j, t0s)).collect()).collect();
        Fabric { clos, hosts, t0, t1 }
    }

    /// The stops of a packet that a host sends on a plane, and the address with which it arrives.
    fn walk(&self, plane: u8, from: u16, address: Ipv6Addr) -> Result<(Vec<Stop>, Ipv6Addr), DropReason> {
        let (mut stops, mut address) = (Vec::new(), address);
        let mut t0 = self.clos.t0_of(from);
        loop {
            assert!(stops.len() < 8, "a loop: {stops:?}");
            stops.push(Stop::T0(t0));
            let port;
            (port, address) = self.t0[usize::from(plane)][usize::from(t0)].forward(address)?;
            let Some(t1) = port.checked_sub(self.clos.hosts_per_t0) else {
                let host = t0 * self.clos.hosts_per_t0 + port;
                assert!(host < self.hosts, "no host is attached to this port");
                stops.push(Stop::Host(host));
                return Ok((stops, address));
            };
            stops.push(Stop::T1(t1));
            (t0, address) = self.t1[usize::from(plane)][usize::from(t1)].forward(address)?;
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

#[test]
fn known_addresses_come_out_byte_by_byte() {
    let neutral = Clos::new(2, 2).expect("fits");
    let plain = Clos { neutral: false, ..neutral };
    for (made, expected) in [
        (neutral.path(0, 0, 2, 1), "fcbb:bb00:9000:3ffd:2001:1001:3002::"),
        (plain.path(0, 0, 2, 1), "fcbb:bb00:1000:2001:1001:3002::"),
        (plain.path(0, 0, 1, 7), "fcbb:bb00:1000:3001::"),
        (neutral.path(0, 0, 1, 7), "fcbb:bb00:9000:6fff:3001::"),
        (plain.probe(0, 0, 1), "fcbb:bb00:1000:2001:1000:3000::"),
        (neutral.probe(0, 0, 1), "fcbb:bb00:9000:3ffe:2001:1000:3000::"),
        (neutral.path(1, 3, 0, 0), "fcbb:bb00:9101:3cfe:2100:1100:3000::"),
        (neutral.host(2), "fcbb:bb00:3002::"),
    ] {
        assert_eq!(made, address(expected), "{made}");
    }
    assert_eq!(
        neutral.path(0, 0, 2, 1).octets(),
        [0xfc, 0xbb, 0xbb, 0, 0x90, 0, 0x3f, 0xfd, 0x20, 1, 0x10, 1, 0x30, 2, 0, 0]
    );
}

#[test]
fn descriptions_name_every_stop() {
    let clos = Clos::new(2, 2).expect("fits");
    for (written, said) in [
        ("fcbb:bb00:9000:3ffd:2001:1001:3002::", "plane 0, T0 0 -> T1 1 -> T0 1 -> host 2"),
        ("fcbb:bb00:1100:3001::", "plane 1, T0 0 -> host 1"),
        ("fcbb:bb00:2001:1001:3002::", "plane 0, T1 1 -> T0 1 -> host 2"),
        ("fcbb:bb00:3002::", "host 2"),
        ("fcbb:bb00:3002:beef::", "host 2, tail beef:0000:0000:0000:0000"),
        ("fcbb:bb00:1000:7777::", "plane 0, T0 0 -> unknown 7777"),
        ("fcbb:bb00::", "nowhere"),
        ("::1", "::1, outside the fabric"),
    ] {
        assert_eq!(clos.describe(address(written)), said);
    }
}

#[test]
fn a_host_owns_everything_behind_its_word_and_nothing_else() {
    let clos = Clos::new(2, 2).expect("fits");
    assert_eq!(clos.host_of(address("fcbb:bb00:3002::")), Some(2));
    assert_eq!(clos.host_of(address("fcbb:bb00:3002:beef::1")), Some(2));
    for other in ["fcbb:bb00:2002::", "fcbb:bb01:3002::", "::1", "fcbb:bb00:9000:3002::"] {
        assert_eq!(clos.host_of(address(other)), None, "{other}");
    }
    // Two hosts per T0 and 256 T0s give 512 hosts: host 512 has no path, so its address has no number.
    assert_eq!(clos.host_of(address("fcbb:bb00:31ff::")), Some(511));
    assert_eq!(clos.host_of(address("fcbb:bb00:3200::")), None);
}

#[test]
fn what_does_not_fit_is_refused() {
    let clos = Clos::new(256, 16).expect("as many as fit");
    assert_eq!(clos.holds(16, 4096), Ok(()));
    let said = |result: Result<(), ClosError>| result.expect_err("too much").to_string();
    assert_eq!(said(clos.holds(17, 1)), "17 planes do not fit a micro segment, which can distinguish 16");
    assert!(said(clos.holds(1, 4097)).starts_with("4097 hosts"));
    assert!(said(Clos { hosts_per_t0: 1, ..clos }.holds(1, 257)).starts_with("257 T0 switches"));
    assert!(Clos::new(257, 1).is_err() && Clos::new(0, 1).is_err() && Clos::new(1, 0).is_err());
    let sites = Clos::of_sites(16, 2, 4).expect("240 T1s");
    assert_eq!((sites.holds(1, 64), sites.t1s_of(3).count()), (Ok(()), 30));
    assert!(said(sites.holds(1, 65)).contains("17 T0 switches of a plane do not fit"), "there are 16 sites");
    assert!(said(Clos { t1s: 239, ..sites }.check()).contains("are not 2 for each pair"));
    assert!(said(Clos { t1s: 238, ..sites }.check()).contains("are not 2 for each pair"));
    assert!(Clos::of_sites(16, 3, 4).is_err() && Clos::of_sites(1, 1, 4).is_err() && Clos::of_sites(3, 0, 4).is_err());
    for block in [0, 1, 0xfe80_0000, 0xff1e_0000] {
        assert_eq!(Clos { block, ..clos }.check(), Err(ClosError::Block(block)));
    }
}

#[test]
fn switches_drop_what_their_tables_do_not_know() {
    let clos = Clos::new(2, 2).expect("fits");
    let t0 = SwitchTable::t0(&clos, 0, 0, 4);
    for (to, why) in [
        ("fcbb:bb01:1000:3001::", DropReason::Foreign),
        ("fcbb:bb00:1000::", DropReason::Ends),
        ("fcbb:bb00:9000:3ffd::", DropReason::Ends),
        ("fcbb:bb00:1000:1000:1000:1000:1000:1000", DropReason::Ends),
        ("fcbb:bb00:1100:2100:1101:3002::", DropReason::Unknown(0x1100)),
        ("fcbb:bb00:1000:3002::", DropReason::Unknown(0x3002)),
        ("fcbb:bb00:1000:0:3001::", DropReason::Unknown(0)),
    ] {
        assert_eq!(t0.forward(address(to)), Err(why), "{to}");
    }
    // Consecutive own words count as one stop, and words of other switches need not be there.
    for to in ["fcbb:bb00:1000:1000:3001::", "fcbb:bb00:9000:6fff:1000:3001::", "fcbb:bb00:3001::"] {
        assert_eq!(t0.forward(address(to)), Ok((1, clos.host(1))), "{to}");
    }
    // The tables have few entries: own words, two hosts, two T1s.
    assert_eq!((t0.entries(), SwitchTable::t1(&clos, 0, 0, 2).entries()), (6, 3));
}

#[test]
fn no_compensator_is_the_zero_that_ends_a_list() {
    let clos = Clos::new(256, 16).expect("fits");
    for plane in 0..16 {
        for (from, to) in [(0, 4095), (4095, 0), (4080, 4095), (0, 1)] {
            for entropy in 0..256 {
                assert_ne!(clos.path(plane, from, to, entropy).segments()[3], 0);
            }
        }
    }
}

proptest! {
    #[test]
    fn every_path_visits_what_it_names_and_arrives_neutral(
        t1s in 1u16..=256, hosts_per_t0 in 1u16..=64, wanted in 2u16..=4096, planes in 1u8..=3, plane in 0u8..3,
        a: u16, b: u16, entropy: u32, neutral: bool, low in 0u32..0x200_0000,
    ) {
        let block = if low % 2 == 0 { BLOCK } else { 0xfc00_0000 | low };
        let clos = Clos { block, t1s, per_pair: 0, hosts_per_t0, neutral };
        let hosts = wanted.min(hosts_per_t0 * 256);
        let (plane, from, to) = (plane % planes, a % hosts, b % hosts);
        let fabric = Fabric::new(clos, planes, hosts);
        let sent = clos.path(plane, from, to, entropy);
        let (stops, arrived) = fabric.walk(plane, from, sent).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut expected = vec![Stop::T0(from / hosts_per_t0)];
        if from / hosts_per_t0 != to / hosts_per_t0 {
            expected.push(Stop::T1((entropy % u32::from(t1s)) as u16));
            expected.push(Stop::T0(to / hosts_per_t0));
        }
        expected.push(Stop::Host(to));
        prop_assert_eq!(stops, expected);
        prop_assert_eq!(arrived, clos.host(to));
        prop_assert_eq!(clos.host_of(arrived), Some(to));
        prop_assert_eq!(clos.host_of(sent), None);
        if neutral {
            prop_assert_eq!(sum(sent), sum(arrived));
        }
        for other in (0..planes).filter(|p| *p != plane) {
            prop_assert!(fabric.walk(other, from, sent).is_err(), "plane {}'s address works on plane {}", plane, other);
        }
    }

    #[test]
    fn sites_reach_each_other_over_the_t1s_of_their_pair(
        sites in 2u16..=16, per_pair in 1u16..=2, hosts_per_site in 1u16..=5, plane in 0u8..2, a: u16, b: u16, entropy: u32,
    ) {
        let clos = Clos::of_sites(sites, per_pair, hosts_per_site).expect("fits");
        let hosts = sites * hosts_per_site;
        let (from, to) = (a % hosts, b % hosts);
        let sent = clos.path(plane, from, to, entropy);
        let walk = Fabric::new(clos, 2, hosts).walk(plane, from, sent);
        let (stops, arrived) = walk.map_err(|e| TestCaseError::fail(e.to_string()))?;
        let (here, there) = (from / hosts_per_site, to / hosts_per_site);
        prop_assert_eq!((&stops[0], stops.last()), (&Stop::T0(here), Some(&Stop::Host(to))));
        if here != there {
            let (low, high) = (here.min(there), here.max(there));
            let t1 = (high * (high - 1) / 2 + low) * per_pair + (entropy % u32::from(per_pair)) as u16;
            prop_assert_eq!(clos.joined(t1), Some((low, high)));
            prop_assert_eq!(&stops[1..3], &[Stop::T1(t1), Stop::T0(there)]);
        }
        prop_assert_eq!((arrived, clos.host_of(arrived)), (clos.host(to), Some(to)));
        // A host of a site that does not exist has no path, so its address has no number.
        prop_assert_eq!(clos.host_of(clos.host(hosts)), None);
    }

    #[test]
    fn probes_come_back_over_the_t1_that_they_name(
        t1s in 1u16..=64, hosts_per_t0 in 1u16..=16, hosts in 1u16..=256, plane in 0u8..2, a: u16, b: u16, neutral: bool,
    ) {
        let clos = Clos { block: BLOCK, t1s, per_pair: 0, hosts_per_t0, neutral };
        let (from, t1) = (a % hosts, b % t1s);
        let sent = clos.probe(plane, from, t1);
        let walk = Fabric::new(clos, 2, hosts).walk(plane, from, sent);
        let (stops, arrived) = walk.map_err(|e| TestCaseError::fail(e.to_string()))?;
        let t0 = from / hosts_per_t0;
        prop_assert_eq!(stops, vec![Stop::T0(t0), Stop::T1(t1), Stop::T0(t0), Stop::Host(from)]);
        prop_assert_eq!(arrived, clos.host(from));
        if neutral {
            prop_assert_eq!(sum(sent), sum(arrived));
        }
    }

    #[test]
    fn no_address_confuses_a_switch(bits: u128, near: bool) {
        let clos = Clos::new(2, 2).expect("fits");
        let bits = if near { bits >> 32 | u128::from(BLOCK) << 96 } else { bits };
        let address = Ipv6Addr::from(bits);
        for table in [SwitchTable::t0(&clos, 0, 0, 4), SwitchTable::t1(&clos, 0, 0, 2)] {
            if let Ok((port, left)) = table.forward(address) {
                prop_assert!(port < 4);
                prop_assert!(!table.own().iter().any(|(word, _)| *word == left.segments()[2]));
            }
        }
        let _ = (clos.describe(address), clos.host_of(address));
    }
}
