//! Sends one datagram over every path between pairs of hosts and reports which ones arrived.

mod copies;

pub use copies::{Copied, probe_copies};

use crate::command::LinuxError;
use crate::namespace::{move_into, netns};
use crate::state::State;
use crate::{LinuxFabric, Node};
use nix::sys::socket::setsockopt;
use nix::{libc, setsockopt_impl, sockopt_impl};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use strandway_fabric::usid::{Stop, Way};

/// The result of the datagrams over one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probed {
    /// The plane.
    pub plane: u8,
    /// The first T1; `None` for pairs below the same T0.
    pub t1: Option<u16>,
    /// The T2; `None` for pairs in the same pod, and with two tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t2: Option<u16>,
    /// Datagrams that hosts tried to send.
    pub wanted: u32,
    /// Those that a host's own port refused.
    pub refused: u32,
    /// Those that arrived at the other host's own address, as they were sent.
    pub arrived: u32,
}

/// Every host sends to the next host below its own T0, and to the host that is half the fabric further on; with sites,
/// to a host of every other site. It sends over every plane, and every T1 and T2 that connect both.
///
/// # Errors
/// If the fabric is not up or its namespaces cannot be entered.
pub fn probe(name: &str) -> Result<Vec<Probed>, LinuxError> {
    let fabric = State::standing(name)?.fabric;
    let silence = silence(&fabric);
    let clos = fabric.clos();
    let hosts: Vec<Vec<UdpSocket>> = (0..fabric.hosts).map(|h| sockets(&fabric, h)).collect::<Result<_, _>>()?;
    let socket = |host: u32, plane: u8| &hosts[host as usize][usize::from(plane)];
    let port = |host: u32, plane: u8| socket(host, plane).local_addr().map(|a| a.port()).unwrap_or(0);
    let mut ways: BTreeMap<(u8, Option<u16>, Option<u16>), Probed> = BTreeMap::new();
    let mut sent: BTreeMap<String, (u8, Option<u16>, Option<u16>)> = BTreeMap::new();
    for (from, to) in pairs(&fabric) {
        for (plane, number) in (0..fabric.planes).flat_map(|plane| (0..clos.paths(from, to)).map(move |n| (plane, n))) {
            let entropy = clos.entropy(number);
            let key = through(&clos.way(plane, from, to, entropy));
            let fresh = Probed { plane, t1: key.1, t2: key.2, wanted: 0, refused: 0, arrived: 0 };
            let way = ways.entry(key).or_insert(fresh);
            way.wanted += 1;
            let text = format!("{from} {to} {plane} {number}");
            let path = SocketAddrV6::new(clos.path(plane, from, to, entropy), port(to, plane), 0, 0);
            if socket(from, plane).send_to(text.as_bytes(), path).is_err() {
                way.refused += 1;
            }
            sent.insert(text, key);
        }
    }
    let wanted: u32 = ways.values().map(|way| way.wanted - way.refused).sum();
    let (mut arrived, mut last) = (0, Instant::now());
    let mut late = false;
    while arrived < wanted && !late {
        std::thread::sleep(Duration::from_millis(1));
        // The clock is read first: datagrams that came while this thread could not run are read in any case.
        late = last.elapsed() >= silence;
        for (to, (plane, socket)) in
            hosts.iter().zip(0..).flat_map(|(h, to)| h.iter().zip(0..).map(move |(s, p)| (to, (p, s))))
        {
            let mut buffer = [0; 64];
            while let Ok((length, source)) = socket.recv_from(&mut buffer) {
                let std::net::IpAddr::V6(source) = source.ip() else { continue };
                let text = String::from_utf8_lossy(&buffer[..length]);
                let begins = clos.host_of(source).map(|from| format!("{from} {to} {plane} "));
                // It must be for this host and plane, and from the host that it names. Each counts once.
                if !begins.is_some_and(|begins| text.starts_with(&begins)) {
                    continue;
                }
                let Some(way) = sent.remove(&*text).and_then(|key| ways.get_mut(&key)) else { continue };
                way.arrived += 1;
                (arrived, last, late) = (arrived + 1, Instant::now(), false);
            }
        }
    }
    Ok(ways.into_values().collect())
}

/// The pairs of hosts between which every path is probed.
fn pairs(fabric: &LinuxFabric) -> Vec<(u32, u32)> {
    let clos = fabric.clos();
    let (hosts, per_t0, t0s) = (u32::from(fabric.hosts), u32::from(fabric.hosts_per_t0), u32::from(fabric.t0s()));
    let mut pairs = Vec::new();
    for from in 0..hosts {
        let t0 = clos.t0_of(from);
        let below = (0..hosts).filter(|h| clos.t0_of(*h) == t0);
        let neighbour = below.clone().find(|h| *h > from).or_else(|| below.clone().next());
        let far = (from + (t0s / 2).max(1) * per_t0) % (t0s * per_t0);
        let far = (far..hosts).next().filter(|h| clos.t0_of(*h) != t0).or_else(|| (t0 != 0).then_some(0));
        let site = |t0: u32| t0 * per_t0 + from % per_t0;
        let far: Vec<u32> = match fabric.lines.is_empty() {
            true => far.into_iter().collect(),
            false => (0..t0s).filter(|other| *other != u32::from(t0)).map(site).collect(),
        };
        pairs.extend(neighbour.into_iter().chain(far).filter(|to| *to != from).map(|to| (from, to)));
    }
    pairs
}

/// Plane, first T1 and T2 of a path.
fn through(way: &Way) -> (u8, Option<u16>, Option<u16>) {
    let t1 = way.stops.iter().find_map(|stop| if let Stop::T1(t1) = stop { Some(*t1) } else { None });
    let t2 = way.stops.iter().find_map(|stop| if let Stop::T2(t2) = stop { Some(*t2) } else { None });
    (way.plane, t1, t2)
}

/// After this time without an arrival, no more datagrams are expected: 200 ms, thousands of times a packet's time, and
/// the longest line's latency.
pub(crate) fn silence(fabric: &LinuxFabric) -> Duration {
    let longest = fabric.lines.iter().map(|line| line.latency_ns).max().unwrap_or(0);
    Duration::from_millis(200) + Duration::from_nanos(longest)
}

sockopt_impl!(
    /// Sends datagrams without a checksum, whose destination switches may shift.
    NoCheck6Tx,
    SetOnly,
    libc::SOL_UDP,
    libc::UDP_NO_CHECK6_TX,
    bool
);

sockopt_impl!(
    /// Accepts datagrams without a checksum.
    NoCheck6Rx,
    SetOnly,
    libc::SOL_UDP,
    libc::UDP_NO_CHECK6_RX,
    bool
);

/// The sockets of a host for datagrams without checksums, to addresses without a compensator.
pub(crate) fn plain_sockets(fabric: &LinuxFabric, host: u16) -> Result<Vec<UdpSocket>, LinuxError> {
    let sockets = sockets(fabric, host)?;
    for socket in &sockets {
        let set = setsockopt(socket, NoCheck6Tx, &true).and_then(|()| setsockopt(socket, NoCheck6Rx, &true));
        set.map_err(|e| LinuxError(format!("h{host} cannot send without checksums: {e}; Linux 3.16 or later can")))?;
    }
    Ok(sockets)
}

/// The sockets of a host, plane by plane, each bound to its own address there, so that it receives only datagrams to
/// exactly this address.
fn sockets(fabric: &LinuxFabric, host: u16) -> Result<Vec<UdpSocket>, LinuxError> {
    let path = netns(&fabric.namespace(Node::Host(host)));
    let addresses: Vec<_> = (0..fabric.planes).map(|plane| fabric.clos().host(plane, u32::from(host))).collect();
    // A thread that enters a namespace stays there; a socket stays in the namespace in which it was made.
    let made = std::thread::spawn(move || -> std::io::Result<Vec<UdpSocket>> {
        move_into(&path)?;
        let open = |address| {
            let socket = UdpSocket::bind((address, 0))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        addresses.into_iter().map(open).collect()
    });
    let made = made.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")));
    made.map_err(|e| LinuxError(format!("h{host} has no socket: {e}; run it as root")))
}
