//! Sends one datagram over every path between pairs of hosts and reports which ones arrived.

mod copies;

pub use copies::{Copied, probe_copies};

use crate::LinuxFabric;
use crate::run::LinuxError;
use serde::Serialize;
use std::time::Duration;

/// The result of the datagrams over one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probed {
    /// The plane.
    pub plane: u8,
    /// The T1; `None` for pairs below the same T0.
    pub t1: Option<u16>,
    /// Datagrams that hosts tried to send.
    pub wanted: u32,
    /// Those that a host's own port refused.
    pub refused: u32,
    /// Those that arrived at the other host's own address, as they were sent.
    pub arrived: u32,
}

/// Every host sends to the next host below its own T0, and to the host that is half the fabric further on; with sites, to a
/// host of every other site. It sends over every plane and every T1 that is linked to both.
///
/// # Errors
/// If the fabric is not up or its namespaces cannot be entered.
pub fn probe(name: &str) -> Result<Vec<Probed>, LinuxError> {
    use std::collections::BTreeMap;
    use std::net::SocketAddrV6;
    use std::time::Instant;

    let fabric = crate::state::State::standing(name)?.fabric;
    let silence = silence(&fabric);
    let clos = fabric.clos();
    let sockets: Vec<_> = (0..fabric.hosts).map(|h| socket(&fabric, h)).collect::<Result<_, _>>()?;
    let port = |host: u16| sockets[usize::from(host)].local_addr().map(|a| a.port()).unwrap_or(0);
    let mut ways: BTreeMap<(u8, Option<u16>), Probed> = BTreeMap::new();
    for from in 0..fabric.hosts {
        let t0 = clos.t0_of(from);
        let below = (0..fabric.hosts).filter(|h| clos.t0_of(*h) == t0);
        let neighbour = below.clone().find(|h| *h > from).or_else(|| below.clone().next());
        let far = (from + (fabric.t0s() / 2).max(1) * fabric.hosts_per_t0) % (fabric.t0s() * fabric.hosts_per_t0);
        let far = (far..fabric.hosts).next().filter(|h| clos.t0_of(*h) != t0).or_else(|| (t0 != 0).then_some(0));
        let site = |t0: u16| t0 * fabric.hosts_per_t0 + from % fabric.hosts_per_t0;
        let far: Vec<u16> = match fabric.lines.is_empty() {
            true => far.into_iter().collect(),
            false => (0..fabric.t0s()).filter(|other| *other != t0).map(site).collect(),
        };
        for to in neighbour.into_iter().chain(far).filter(|to| *to != from) {
            for plane in 0..fabric.planes {
                for entropy in 0..u32::from(clos.paths(from, to)) {
                    let t1 = clos.t1_of(from, to, entropy);
                    let fresh = Probed { plane, t1, wanted: 0, refused: 0, arrived: 0 };
                    let way = ways.entry((plane, t1)).or_insert(fresh);
                    way.wanted += 1;
                    let text = format!("{from} {to} {plane} {}", t1.map_or(-1, i32::from));
                    let path = SocketAddrV6::new(clos.path(plane, from, to, entropy), port(to), 0, 0);
                    if sockets[usize::from(from)].send_to(text.as_bytes(), path).is_err() {
                        way.refused += 1;
                    }
                }
            }
        }
    }
    let sent: u32 = ways.values().map(|way| way.wanted - way.refused).sum();
    let (mut arrived, mut last) = (0, Instant::now());
    while arrived < sent && last.elapsed() < silence {
        std::thread::sleep(Duration::from_millis(1));
        for (socket, to) in sockets.iter().zip(0..) {
            let mut buffer = [0; 64];
            while let Ok((length, source)) = socket.recv_from(&mut buffer) {
                let Some(way) = read(&clos, to, &buffer[..length], source.ip()).and_then(|way| ways.get_mut(&way))
                else {
                    continue;
                };
                way.arrived += 1;
                (arrived, last) = (arrived + 1, Instant::now());
            }
        }
    }
    Ok(ways.into_values().collect())
}

/// After this time without an arrival, no more datagrams are expected: 200 ms, thousands of times a packet's time, and the
/// longest line's latency.
fn silence(fabric: &LinuxFabric) -> Duration {
    let longest = fabric.lines.iter().map(|line| line.latency_ns).max().unwrap_or(0);
    Duration::from_millis(200) + Duration::from_nanos(longest)
}

/// The path of a probe, if its text names this host and the sender's address.
fn read(
    clos: &strandway_fabric::usid::Clos,
    to: u16,
    text: &[u8],
    source: std::net::IpAddr,
) -> Option<(u8, Option<u16>)> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let mut number = || words.next()?.parse::<i32>().ok();
    let (from, there, plane, t1) = (number()?, number()?, number()?, number()?);
    let std::net::IpAddr::V6(source) = source else { return None };
    let right = there == i32::from(to) && clos.host_of(source).map(i32::from) == Some(from);
    right.then_some((u8::try_from(plane).ok()?, u16::try_from(t1).ok()))
}

/// A socket of a host, bound to its own address, so that it receives only datagrams to exactly this address.
fn socket(fabric: &crate::LinuxFabric, host: u16) -> Result<std::net::UdpSocket, LinuxError> {
    use crate::Node;
    use crate::state::netns;

    let path = netns(&fabric.namespace(Node::Host(host)));
    let address = fabric.clos().host(host);
    // A thread that enters a namespace stays there; a socket stays in the namespace in which it was made.
    let made = std::thread::spawn(move || -> std::io::Result<std::net::UdpSocket> {
        crate::state::move_into(&path)?;
        let socket = std::net::UdpSocket::bind((address, 0))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    let made = made.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread ended")));
    made.map_err(|e| LinuxError(format!("h{host} has no socket: {e}; run it as root")))
}
