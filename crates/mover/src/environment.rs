//! Settings of a mover from variables of the environment and the interfaces of the host, for programs whose users give no
//! others.

use crate::options::{Options, Progress};
use std::collections::HashSet;
use std::fs;
use std::net::SocketAddrV6;
use strandway_proto::{Rate, Span};
use strandway_udp::address::{is_ipv4, loopback, parse};
use strandway_udp::{Config, Interface, Protection, interfaces};

/// The largest payload that is taken from an MTU: ours, what loopback and jumbo frames do best with.
const PAYLOAD_MAX: u32 = 4_096;
/// The rate of an interface that does not tell its own, in Mb/s: NCCL's guess for sockets.
const USUAL_RATE: u32 = 10_000;
/// An interface that is slower than the fastest by this factor is left out; ours, as process groups do.
const SLOW: u32 = 4;

/// The value of a variable, if it is set.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// An interface that is to be a plane.
#[derive(Clone, Debug)]
pub struct PlaneInterface {
    /// Its name, such as `eth0`; of one that is not known here its address.
    pub device: String,
    /// Its address, with port 0 unless a variable gives one.
    pub address: SocketAddrV6,
    /// Bytes of the largest packet that it takes.
    pub mtu: u32,
    /// Mb/s, if it says so.
    pub rate: Option<u32>,
}

impl PlaneInterface {
    /// Mb/s: what it says, or the usual rate.
    pub fn mbps(&self) -> u32 {
        self.rate.unwrap_or(USUAL_RATE)
    }
}

/// The key that `STRANDWAY_KEY_FILE` or `STRANDWAY_KEY` gives.
///
/// # Errors
/// If the file cannot be read, or the digits are none.
pub fn key(get: Variables<'_>) -> Result<Option<Vec<u8>>, String> {
    if let Some(path) = get("STRANDWAY_KEY_FILE") {
        return fs::read(&path).map(Some).map_err(|error| format!("STRANDWAY_KEY_FILE is {path}: {error}"));
    }
    let Some(hex) = get("STRANDWAY_KEY") else { return Ok(None) };
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    let bytes = bytes.filter(|_| rest.is_empty());
    bytes.map(Some).ok_or_else(|| "STRANDWAY_KEY is not made of pairs of hexadecimal digits".into())
}

/// The interfaces of the planes: those that `STRANDWAY_PLANES` or `STRANDWAY_IFNAME` names, or all that lead to other
/// hosts, or else loopback.
///
/// # Errors
/// If an address or interface that is named is none of this host's.
pub fn planes(get: Variables<'_>) -> Result<Vec<PlaneInterface>, String> {
    planes_among(get, &interfaces())
}

fn planes_among(get: Variables<'_>, all: &[Interface]) -> Result<Vec<PlaneInterface>, String> {
    let plane = |one: &Interface| PlaneInterface {
        device: one.name.clone(),
        address: SocketAddrV6::new(one.address, 0, 0, 0),
        mtu: one.mtu,
        rate: one.rate,
    };
    let mut found: Vec<PlaneInterface> = match (get("STRANDWAY_PLANES"), get("STRANDWAY_IFNAME")) {
        (Some(list), _) => {
            let one = |text: &str| {
                let wanted = "give this host's address on each plane, with commas between them";
                let address = parse(text.trim(), 0).ok_or_else(|| format!("STRANDWAY_PLANES has {text}: {wanted}"))?;
                let known = all.iter().find(|one| one.address == *address.ip());
                Ok(known.map_or_else(
                    || PlaneInterface {
                        device: address.ip().to_canonical().to_string(),
                        address,
                        mtu: 1_500,
                        rate: None,
                    },
                    |one| PlaneInterface { address, ..plane(one) },
                ))
            };
            list.split(',').map(one).collect::<Result<_, String>>()?
        }
        (None, Some(names)) => {
            let one = |name: &str| {
                let of: Vec<&Interface> = all.iter().filter(|one| one.name == name.trim()).collect();
                of.first()
                    .map(|_| of.clone())
                    .ok_or_else(|| format!("STRANDWAY_IFNAME has {name}: no such interface is up"))
            };
            let named = names.split(',').map(one).collect::<Result<Vec<_>, _>>()?.concat();
            of_one_family(&named).into_iter().map(plane).collect()
        }
        (None, None) => {
            let usable: Vec<&Interface> = all.iter().filter(|one| !one.loopback && one.aside.is_none()).collect();
            let fastest = usable.iter().filter_map(|one| one.rate).max().unwrap_or(0);
            let fast = |one: &&Interface| one.rate.unwrap_or(USUAL_RATE) >= fastest / SLOW;
            of_one_family(&usable.into_iter().filter(fast).collect::<Vec<_>>()).into_iter().map(plane).collect()
        }
    };
    if found.is_empty() {
        found.push(PlaneInterface {
            device: "lo".into(),
            address: SocketAddrV6::new(loopback(), 0, 0, 0),
            mtu: 65_536,
            rate: None,
        });
    }
    Ok(found)
}

/// One address of each interface: of IPv4 if all have one, otherwise of IPv6.
fn of_one_family<'a>(all: &[&'a Interface]) -> Vec<&'a Interface> {
    let names: HashSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let family = |four: bool| {
        let mut seen = HashSet::new();
        let first = |one: &&&'a Interface| is_ipv4(one.address) == four && seen.insert(one.name.as_str());
        all.iter().filter(first).copied().collect::<Vec<_>>()
    };
    let four = family(true);
    if four.len() == names.len() { four } else { family(false) }
}

/// Options with this key on these planes; the rest as `STRANDWAY_RATE`, `STRANDWAY_BASE_RTT_US`, `STRANDWAY_PROFILE`,
/// `STRANDWAY_PROTECTION` and `STRANDWAY_PAYLOAD` say, or by default: the rate of the planes, and the largest useful payload that fits their MTU.
///
/// # Errors
/// If a variable has no valid value, or the key is too short.
pub fn options(get: Variables<'_>, key: &[u8], planes: &[PlaneInterface]) -> Result<Options, String> {
    let mut options = Options::new(key);
    options.planes = planes.iter().map(|plane| plane.address).collect();
    options.progress = Progress::Thread;
    let speed: u32 = planes.iter().map(PlaneInterface::mbps).sum();
    let any_known = planes.iter().any(|plane| plane.rate.is_some());
    options.rate = any_known.then(|| mbps(speed.into()));
    if let Some(rate) = get("STRANDWAY_RATE") {
        let gbps: f64 = rate.parse().unwrap_or(0.0);
        if !(gbps > 0.0 && gbps < 1e6) {
            return Err(format!("STRANDWAY_RATE is {rate}: give Gb/s of all planes together"));
        }
        options.rate = Some(mbps(gbps * 1_000.0));
    }
    if let Some(rtt) = get("STRANDWAY_BASE_RTT_US") {
        let micros: f64 = rtt.parse().unwrap_or(0.0);
        if !(1.0..=1e7).contains(&micros) {
            return Err(format!("STRANDWAY_BASE_RTT_US is {rtt}: give the round trip without queues, in microseconds"));
        }
        options.base_rtt = Some(Span::from_us(1).scaled(micros));
    }
    if let Some(profile) = get("STRANDWAY_PROFILE") {
        options.profile = profile;
    }
    options.protection = match get("STRANDWAY_PROTECTION").as_deref() {
        None | Some("encrypted") => Protection::Encrypted,
        Some("authenticated") => Protection::Authenticated,
        Some("none") => Protection::None,
        Some(other) => {
            return Err(format!("STRANDWAY_PROTECTION is {other}: give encrypted, authenticated or none"));
        }
    };
    options.payload = Some(payload(get, &options, planes)?);
    Ok(options)
}

fn mbps(mbps: f64) -> Rate {
    Rate::from_gbps(1).scaled(mbps / 1_000.0)
}

/// The largest payload that fits the smallest MTU, and no more than is useful.
fn payload(get: Variables<'_>, options: &Options, planes: &[PlaneInterface]) -> Result<u32, String> {
    if let Some(payload) = get("STRANDWAY_PAYLOAD") {
        return payload.parse().map_err(|_| format!("STRANDWAY_PAYLOAD is {payload}: give bytes"));
    }
    let mtu = planes.iter().map(|plane| plane.mtu).min().unwrap_or(1_500);
    let config = Config::new(&options.key).and_then(|config| config.profile(&options.profile));
    let config = config.and_then(|config| Config { protection: options.protection, ..config }.mtu(mtu));
    config.map(|config| config.payload.min(PAYLOAD_MAX)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn interface(name: &str, address: &str, rate: Option<u32>) -> Interface {
        let address: Ipv6Addr = *parse(address, 0).expect("an address").ip();
        Interface { name: name.into(), address, prefix: 24, mtu: 9_000, rate, loopback: name == "lo", aside: None }
    }

    fn chosen(variables: &[(&str, &str)], all: &[Interface]) -> Result<Vec<String>, String> {
        let get = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_string());
        let found = planes_among(&get, all)?;
        Ok(found.iter().map(|plane| format!("{} {}", plane.device, plane.address.ip().to_canonical())).collect())
    }

    #[test]
    fn planes_are_the_fast_interfaces_in_one_family() {
        let all = [
            interface("lo", "127.0.0.1", None),
            interface("eth0", "10.0.0.1", Some(1_000)),
            interface("p0", "10.1.0.1", Some(100_000)),
            interface("p0", "fd00:1::1", Some(100_000)),
            interface("p1", "10.2.0.1", Some(100_000)),
        ];
        assert_eq!(chosen(&[], &all), Ok(vec!["p0 10.1.0.1".into(), "p1 10.2.0.1".into()]));
        assert_eq!(chosen(&[("STRANDWAY_IFNAME", "eth0")], &all), Ok(vec!["eth0 10.0.0.1".into()]));
        assert_eq!(
            chosen(&[("STRANDWAY_PLANES", "10.2.0.1, ::1")], &all),
            Ok(vec!["p1 10.2.0.1".into(), "::1 ::1".into()])
        );
        assert!(chosen(&[("STRANDWAY_IFNAME", "p7")], &all).expect_err("not there").contains("p7"));
        assert!(chosen(&[("STRANDWAY_PLANES", "p0")], &all).expect_err("no address").contains("STRANDWAY_PLANES"));
        assert_eq!(chosen(&[], &all[..1]).expect("loopback").len(), 1);
    }
}
