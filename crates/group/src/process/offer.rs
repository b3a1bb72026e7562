//! The text with which a rank joins: the addresses by which it could be reached, or the reason why it cannot come.
//! Lines of text.

use super::host::{host_name, label};
use super::record::lines;
use crate::error::GroupError;
use std::collections::HashMap;
use std::fs;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use strandway_udp::address::{is_ipv4, kept, local_for, shown};
use strandway_udp::{Interface, interfaces};

/// The most addresses of an offer: ours.
const ADDRESSES_MAX: usize = 64;
/// The most characters of a reason: ours.
const REASON_MAX: usize = 1_000;
/// Hosts that stand for all others when the kernel is asked for the default route: addresses for documentation (RFC
/// 5737, RFC 3849), to which nothing is sent.
const ANYWHERE: [&str; 2] = ["192.0.2.1:9", "[2001:db8::1]:9"];

/// Interfaces that a user has named, in the syntax of NCCL and Gloo: `eth0,eth1`, or `^docker0,lo` for all but these. A
/// name stands for the interface with just that name or, if there is none, for all whose names begin with it. `=eth0`
/// stands only for the interface `eth0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    text: String,
    all_but: bool,
    names: Vec<String>,
}

impl Names {
    pub(super) fn parse(text: &str) -> Names {
        let (all_but, list) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let names = list.split(',').map(|name| name.trim().to_string()).filter(|name| !name.is_empty()).collect();
        Names { text: text.into(), all_but, names }
    }

    /// The place of an interface's name in the list.
    fn place(&self, all: &[Interface], name: &str) -> Option<usize> {
        self.names.iter().position(|wanted| match wanted.strip_prefix('=') {
            Some(exact) => exact == name,
            None if all.iter().any(|one| one.name == *wanted) => name == wanted,
            None => name.starts_with(wanted.as_str()),
        })
    }

    /// The interfaces that may be used, in the order of the list.
    fn choose(&self, all: &[Interface]) -> Vec<Interface> {
        if self.names.is_empty() {
            return all.iter().filter(|one| one.aside.is_none()).cloned().collect();
        }
        if self.all_but {
            let kept = all.iter().filter(|one| self.place(all, &one.name).is_none());
            return kept.filter(|one| one.aside.is_none()).cloned().collect();
        }
        let mut chosen: Vec<(usize, &Interface)> =
            all.iter().filter_map(|one| Some((self.place(all, &one.name)?, one))).collect();
        // The sort is stable: addresses of one interface stay in the kernel's order.
        chosen.sort_by_key(|(place, _)| *place);
        chosen.into_iter().map(|(_, one)| one.clone()).collect()
    }
}

/// The addresses of a rank that joins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Host name and process number, for messages.
    pub(super) host: String,
    /// A text that is equal at all processes that share a network stack.
    pub(super) place: String,
    /// The address on each plane, if the user has given them, or the process has them already.
    pub(super) given: Vec<SocketAddrV6>,
    /// Its interfaces were named by the user, in this order.
    pub(super) named: bool,
    /// It gives the others other addresses than its own (`STRANDWAY_ADVERTISE`).
    pub(super) advertises: bool,
    /// The addresses from which it reaches the place where ranks meet or, if that is not known, hosts elsewhere; the
    /// preferred family first.
    pub(super) ways: Vec<Ipv6Addr>,
    /// The addresses of its interfaces.
    pub(super) addresses: Vec<Interface>,
}

impl Offer {
    /// The offer of this host. `towards`: the host where ranks meet, if they meet at a host.
    pub(super) fn of_host(towards: Option<&str>, names: &Names, given: &[SocketAddrV6]) -> Result<Offer, GroupError> {
        let host = label();
        let mut offer = Offer { host, place: place(), given: given.to_vec(), ..Offer::default() };
        if !given.is_empty() {
            return Ok(offer);
        }
        let all = interfaces();
        offer.named = !names.names.is_empty() && !names.all_but;
        offer.addresses = names.choose(&all);
        offer.addresses.truncate(ADDRESSES_MAX);
        if offer.addresses.is_empty() {
            return Err(GroupError::Config(if names.names.is_empty() {
                "this host has no address that ranks could use: set STRANDWAY_PLANES or STRANDWAY_IFNAME".into()
            } else {
                let has: Vec<String> = all.iter().map(text_of).collect();
                let has = if has.is_empty() { "none that is up".into() } else { has.join(", ") };
                format!("STRANDWAY_IFNAME is {:?}: no interface is left of {has}", names.text)
            }));
        }
        offer.ways =
            ways(towards).into_iter().filter(|way| offer.addresses.iter().any(|one| one.address == *way)).collect();
        Ok(offer)
    }

    /// The addresses as a list for messages.
    pub(super) fn shown(&self) -> String {
        if !self.given.is_empty() {
            let given: Vec<String> = self.given.iter().map(|one| shown(*one).ip().to_string()).collect();
            return format!("{} (given)", given.join(", "));
        }
        self.addresses.iter().map(text_of).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn encode(&self, word: &str) -> Vec<u8> {
        let mut text = format!("{HEAD}\nword={word}\nhost={}\nplace={}\n", self.host, self.place);
        let mut add = |name: &str, value: String| text.push_str(&format!("{name}={value}\n"));
        self.given.iter().for_each(|address| add("given", address.to_string()));
        self.ways.iter().for_each(|way| add("way", way.to_string()));
        for (name, flag) in [("named", self.named), ("advertises", self.advertises)] {
            if flag {
                add(name, "1".into());
            }
        }
        for one in &self.addresses {
            let Interface { name, address, prefix, mtu, rate, loopback, .. } = one;
            add("address", format!("{address} {prefix} {mtu} {} {} {name}", rate.unwrap_or(0), u8::from(*loopback)));
        }
        text.into_bytes()
    }
}

/// An address with its interface, for messages.
fn text_of(one: &Interface) -> String {
    format!("{} ({})", shown(SocketAddrV6::new(one.address, 0, 0, 0)).ip(), one.name)
}

const HEAD: &str = "strandway join 1";

/// The word of a rank, and its offer or the reason why it cannot come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Join {
    pub(super) word: String,
    pub(super) offer: Result<Offer, (String, String)>,
}

impl Join {
    /// A rank that cannot come.
    pub(super) fn encode_failure(word: &str, reason: &str) -> Vec<u8> {
        let host = label();
        format!("{HEAD}\nword={word}\nhost={host}\nfailed={}\n", one_line(reason)).into_bytes()
    }

    pub(super) fn decode(text: &[u8]) -> Option<Join> {
        let (mut word, mut failed, mut offer) = (None, None, Offer::default());
        for (name, value) in lines(text, HEAD)? {
            match name {
                "word" => word = Some(value).filter(|word| word.len() <= 32 && word.chars().all(char::is_alphanumeric)),
                "host" => offer.host = value.chars().take(200).collect(),
                "place" => offer.place = value.chars().take(200).collect(),
                "failed" => failed = Some(value.chars().take(REASON_MAX).collect::<String>()),
                "named" => offer.named = true,
                "advertises" => offer.advertises = true,
                "given" if offer.given.len() < ADDRESSES_MAX => offer.given.push(value.parse().ok()?),
                "way" if offer.ways.len() < 2 => offer.ways.push(value.parse().ok()?),
                "address" if offer.addresses.len() < ADDRESSES_MAX => offer.addresses.push(read_address(value)?),
                _ => {}
            }
        }
        let offer = match failed {
            Some(why) => Err((offer.host, why)),
            None => Ok(offer),
        };
        Some(Join { word: word?.into(), offer })
    }
}

fn read_address(text: &str) -> Option<Interface> {
    let mut words = text.splitn(6, ' ');
    let address = words.next()?.parse().ok()?;
    let prefix = words.next()?.parse().ok().filter(|&bits| bits <= 128)?;
    let mtu = words.next()?.parse().ok()?;
    let rate = words.next()?.parse().ok().filter(|&rate| rate > 0);
    let loopback = words.next()? == "1";
    let name = words.next()?.chars().take(64).collect();
    Some(Interface { name, address, prefix, mtu, rate, loopback, aside: None })
}

/// A reason as one line of limited length.
pub(super) fn one_line(reason: &str) -> String {
    reason.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(REASON_MAX).collect()
}

/// A text that is equal at all processes that share a network stack: the boot of the kernel, and the network namespace.
pub(super) fn place() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/net").map(|link| link.display().to_string()).unwrap_or_default();
    if boot.is_empty() || namespace.is_empty() {
        // Without this knowledge, no other process may count as one that shares the stack.
        return format!("unknown {}", host_name());
    }
    format!("{} {namespace}", boot.trim())
}

/// The addresses from which this host reaches `towards`, one per family. If a family has none, or if the way leads to
/// this host itself, the address from which it reaches hosts elsewhere.
fn ways(towards: Option<&str>) -> Vec<Ipv6Addr> {
    use std::net::{IpAddr, ToSocketAddrs};
    let named: Vec<SocketAddrV6> = towards.map_or_else(Vec::new, |host| match host.parse::<IpAddr>() {
        Ok(ip) => vec![kept(SocketAddr::new(ip, 9))],
        Err(_) => (host, 9).to_socket_addrs().map(|all| all.map(kept).collect()).unwrap_or_default(),
    });
    let anywhere = ANYWHERE.iter().filter_map(|text| text.parse::<SocketAddr>().ok()).map(kept);
    // IPv6 first where nothing is preferred: its paths may be source routes.
    let (four, six): (Vec<_>, Vec<_>) = anywhere.partition(|at| is_ipv4(*at.ip()));
    let mut found: HashMap<bool, Ipv6Addr> = HashMap::new();
    let mut order = Vec::new();
    for to in named.into_iter().chain(six).chain(four) {
        let family = is_ipv4(*to.ip());
        let Ok(ours) = local_for(to) else { continue };
        if strandway_udp::address::is_loopback(*ours.ip()) || found.contains_key(&family) {
            continue;
        }
        found.insert(family, *ours.ip());
        order.push(*ours.ip());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(name: &str, aside: Option<&'static str>) -> Interface {
        let address = "fd00::1".parse().expect("an address");
        Interface { name: name.into(), address, prefix: 64, mtu: 1_500, rate: Some(10_000), loopback: false, aside }
    }

    fn chosen(text: &str) -> Vec<String> {
        let all = ["lo", "eth1", "eth0", "eth10", "docker0"]
            .map(|name| named(name, (name == "docker0").then_some("a bridge")));
        Names::parse(text).choose(&all).into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn names_of_interfaces_are_read_as_nccl_and_gloo_read_them() {
        assert_eq!(chosen(""), ["lo", "eth1", "eth0", "eth10"]);
        assert_eq!(chosen("eth0,eth1"), ["eth0", "eth1"], "in the order of the list, and not eth10");
        assert_eq!(chosen("eth"), ["eth1", "eth0", "eth10"]);
        assert_eq!(chosen("=eth"), Vec::<String>::new());
        assert_eq!(chosen("^eth1,lo"), ["eth0", "eth10"]);
        assert_eq!(chosen("docker"), ["docker0"], "a bridge that is named is used");
        assert_eq!(chosen("^=eth0"), ["lo", "eth1", "eth10"]);
    }

    #[test]
    fn an_offer_and_a_failure_are_read_as_they_were_written() {
        let offer = Offer {
            host: "a (process 3)".into(),
            place: "boot net:[4026531840]".into(),
            given: vec!["[fd00::2]:77".parse().expect("an address")],
            named: true,
            advertises: true,
            ways: vec!["fd00::1".parse().expect("an address"), "::ffff:10.0.0.1".parse().expect("an address")],
            addresses: vec![named("eth0", None), Interface { rate: None, loopback: true, ..named("a b=c", None) }],
        };
        let join = Join::decode(&offer.encode("00ff")).expect("well-formed");
        assert_eq!((join.word.as_str(), join.offer), ("00ff", Ok(offer)));
        let failed = Join::decode(&Join::encode_failure("00ff", "no\nway")).expect("well-formed");
        assert_eq!(failed.offer.expect_err("a failure").1, "no way");
    }

    #[test]
    fn this_host_offers_addresses_and_knows_its_place() {
        let offer = Offer::of_host(None, &Names::default(), &[]).expect("it has loopback");
        assert!(offer.addresses.iter().any(|one| one.loopback), "{offer:?}");
        assert_eq!(offer.place, place());
        let refused = Offer::of_host(None, &Names::parse("nothing7"), &[]).expect_err("no such interface");
        assert!(refused.to_string().contains("nothing7") && refused.to_string().contains("lo"), "{refused}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: Vec<u8>, value: String) {
            let _ = Join::decode(&text);
            for line in ["word", "given", "way", "address", "failed"] {
                let _ = Join::decode(format!("{HEAD}\nword=a\n{line}={value}\n").as_bytes());
            }
        }
    }
}
