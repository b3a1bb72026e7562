//! The devices that NCCL sees, from the environment and the interfaces of the host.

use crate::handle::PLANES_MAX;
use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::net::SocketAddrV6;
use strandway_mover::{Options, Progress};
use strandway_proto::Rate;
use strandway_udp::address::{is_ipv4, loopback, parse};
use strandway_udp::{Config, Interface, Protection, interfaces};

/// The largest payload that is taken from an MTU: ours, what loopback and jumbo frames do best with.
const PAYLOAD_MAX: u32 = 4_096;
/// The rate of an interface that does not tell its own, in Mb/s: NCCL's guess for sockets.
const USUAL_RATE: u32 = 10_000;
/// An interface that is slower than the fastest by this factor is left out; ours, as process groups do.
const SLOW: u32 = 4;
/// Connections of a node: two for each peer and channel of a large job.
const CONNECTIONS_MAX: usize = 4_096;

/// A device: one or several planes.
pub(crate) struct Device {
    pub(crate) options: Options,
    pub(crate) name: CString,
    /// Its directory in /sys, if it has one.
    pub(crate) pci_path: Option<CString>,
    /// Mb/s of all its planes.
    pub(crate) speed: u32,
    /// Its number, if each plane is a device.
    pub(crate) plane: Option<i16>,
}

/// An interface that is to be a plane.
#[derive(Clone, Debug)]
struct Plane {
    device: String,
    address: SocketAddrV6,
    mtu: u32,
    rate: Option<u32>,
}

/// The devices that the variables of the environment and the interfaces give.
///
/// # Errors
/// A line on what is wrong, with the remedy.
pub(crate) fn devices(get: impl Fn(&str) -> Option<String>) -> Result<Vec<Device>, String> {
    let key = key(&get)?;
    let planes = planes(&get, &interfaces())?;
    let each = match get("STRANDWAY_NCCL_DEVICES").as_deref() {
        None | Some("one") => false,
        Some("each") => true,
        Some(other) => return Err(format!("STRANDWAY_NCCL_DEVICES is {other}: give one or each")),
    };
    let sets: Vec<Vec<Plane>> = if each { planes.into_iter().map(|plane| vec![plane]).collect() } else { vec![planes] };
    sets.iter().enumerate().map(|(at, set)| device(&get, &key, set, each.then_some(at as i16))).collect()
}

fn key(get: &impl Fn(&str) -> Option<String>) -> Result<Vec<u8>, String> {
    if let Some(path) = get("STRANDWAY_KEY_FILE") {
        return fs::read(&path).map_err(|error| format!("STRANDWAY_KEY_FILE is {path}: {error}"));
    }
    let remedy = "`head -c 32 /dev/urandom > key`, copy it to all hosts, and set STRANDWAY_KEY_FILE";
    let hex =
        get("STRANDWAY_KEY").ok_or_else(|| format!("no key: {remedy}; or STRANDWAY_KEY with hexadecimal digits"))?;
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| rest.is_empty()).ok_or_else(|| "STRANDWAY_KEY is not made of pairs of hexadecimal digits".into())
}

/// The interfaces of the planes: those that are named, or all that lead to other hosts, or else loopback.
fn planes(get: &impl Fn(&str) -> Option<String>, all: &[Interface]) -> Result<Vec<Plane>, String> {
    let plane = |one: &Interface| Plane {
        device: one.name.clone(),
        address: SocketAddrV6::new(one.address, 0, 0, 0),
        mtu: one.mtu,
        rate: one.rate,
    };
    let mut found: Vec<Plane> = match (get("STRANDWAY_PLANES"), get("STRANDWAY_IFNAME")) {
        (Some(list), _) => {
            let one = |text: &str| {
                let wanted = "give this host's address on each plane, with commas between them";
                let address = parse(text.trim(), 0).ok_or_else(|| format!("STRANDWAY_PLANES has {text}: {wanted}"))?;
                let known = all.iter().find(|one| one.address == *address.ip());
                Ok(known.map_or_else(
                    || Plane { device: address.ip().to_canonical().to_string(), address, mtu: 1_500, rate: None },
                    |one| Plane { address, ..plane(one) },
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
        found.push(Plane {
            device: "lo".into(),
            address: SocketAddrV6::new(loopback(), 0, 0, 0),
            mtu: 65_536,
            rate: None,
        });
    }
    if found.len() > PLANES_MAX {
        return Err(format!(
            "{} planes, but a handle of NCCL has room for {PLANES_MAX}: set STRANDWAY_IFNAME",
            found.len()
        ));
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

fn device(
    get: &impl Fn(&str) -> Option<String>,
    key: &[u8],
    planes: &[Plane],
    number: Option<i16>,
) -> Result<Device, String> {
    let mut options = Options::new(key);
    options.planes = planes.iter().map(|plane| plane.address).collect();
    options.connections_max = CONNECTIONS_MAX;
    options.progress = Progress::Thread;
    let speed: u32 = planes.iter().map(|plane| plane.rate.unwrap_or(USUAL_RATE)).sum();
    let any_known = planes.iter().any(|plane| plane.rate.is_some());
    options.rate = any_known.then(|| mbps(speed.into()));
    if let Some(rate) = get("STRANDWAY_RATE") {
        let gbps: f64 = rate.parse().unwrap_or(0.0);
        if !(gbps > 0.0 && gbps < 1e6) {
            return Err(format!("STRANDWAY_RATE is {rate}: give Gb/s of all planes together"));
        }
        options.rate = Some(mbps(gbps * 1_000.0));
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
    options.payload = Some(payload(get, key, &options, planes)?);
    let first: &str = planes.first().map_or("", |plane| plane.device.as_str());
    let pci = fs::canonicalize(format!("/sys/class/net/{first}/device")).ok();
    let names: Vec<&str> = planes.iter().map(|plane| plane.device.as_str()).collect();
    Ok(Device {
        options,
        name: CString::new(names.join("+")).unwrap_or_default(),
        pci_path: pci.and_then(|path| CString::new(path.to_string_lossy().into_owned()).ok()),
        speed,
        plane: number,
    })
}

fn mbps(mbps: f64) -> Rate {
    Rate::from_gbps(1).scaled(mbps / 1_000.0)
}

/// The largest payload that fits the smallest MTU, and no more than is useful.
fn payload(
    get: &impl Fn(&str) -> Option<String>,
    key: &[u8],
    options: &Options,
    planes: &[Plane],
) -> Result<u32, String> {
    if let Some(payload) = get("STRANDWAY_PAYLOAD") {
        return payload.parse().map_err(|_| format!("STRANDWAY_PAYLOAD is {payload}: give bytes"));
    }
    let mtu = planes.iter().map(|plane| plane.mtu).min().unwrap_or(1_500);
    let config = Config::new(key).and_then(|config| config.profile(&options.profile));
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
        let found = planes(&get, all)?;
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
        let many = ["10.0.0.1"; 7].join(",");
        assert!(chosen(&[("STRANDWAY_PLANES", &many)], &all).expect_err("too many").contains("room for 6"));
    }

    #[test]
    fn devices_without_a_key_are_refused_with_a_remedy() {
        let with = |name: &'static str, value: &'static str| move |of: &str| (of == name).then(|| value.to_string());
        assert!(devices(|_| None).err().expect("no key").contains("STRANDWAY_KEY_FILE"));
        assert!(devices(with("STRANDWAY_KEY", "0g")).err().expect("no digits").contains("hexadecimal"));
        assert!(devices(with("STRANDWAY_KEY", "012")).err().expect("odd").contains("hexadecimal"));
        assert!(devices(with("STRANDWAY_KEY", "00")).err().expect("short").contains("16"));
        assert!(devices(with("STRANDWAY_KEY_FILE", "/no/such")).err().expect("no file").contains("/no/such"));
        let get = |name: &str| match name {
            "STRANDWAY_KEY" => Some("0123456789abcdefABCDEF0123456789".to_string()),
            "STRANDWAY_PLANES" => Some("127.0.0.1,127.0.0.2".to_string()),
            "STRANDWAY_NCCL_DEVICES" => Some("each".to_string()),
            _ => None,
        };
        let found = devices(get).expect("two devices");
        assert_eq!(
            found.iter().map(|one| (one.plane, one.speed)).collect::<Vec<_>>(),
            [(Some(0), 10_000), (Some(1), 10_000)]
        );
    }
}
