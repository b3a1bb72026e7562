//! Probes every link of a fabric and names the broken ones.

use crate::command::LinuxError;
use crate::probe::{plain_sockets, silence};
use crate::state::State;
use std::net::{SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};
use strandway_fabric::localise::{Findings, Probe, self_probes};

/// Bytes of a probe. Switches do not trim packets this small.
const LENGTH: usize = 16;

/// Every host sends `rounds` datagrams to itself over each link of its T0, and over each link above these, in every
/// plane. No host needs another one. Returns the links that explain which datagrams were lost.
///
/// # Errors
/// If the fabric is not up or its namespaces cannot be entered.
pub fn localise(name: &str, rounds: u32) -> Result<Findings, LinuxError> {
    let fabric = State::standing(name)?.fabric;
    let (clos, silence) = (fabric.clos(), silence(&fabric));
    let hosts: Vec<Vec<UdpSocket>> =
        (0..fabric.hosts).map(|host| plain_sockets(&fabric, host)).collect::<Result<_, _>>()?;
    let mut probes: Vec<Probe> = Vec::new();
    let mut targets: Vec<(&UdpSocket, SocketAddrV6)> = Vec::new();
    for (sockets, host) in hosts.iter().zip(0..) {
        for (socket, plane) in sockets.iter().zip(0..) {
            let port = socket.local_addr().map(|address| address.port()).unwrap_or(0);
            for (address, links) in self_probes(&clos, plane, host) {
                targets.push((socket, SocketAddrV6::new(address, port, 0, 0)));
                probes.push(Probe { links, sent: 0, arrived: 0 });
            }
        }
    }
    let mut under_way = 0;
    for _ in 0..rounds {
        for (at, (socket, to)) in targets.iter().enumerate() {
            let mut text = [0; LENGTH];
            text[..8].copy_from_slice(&(at as u64).to_be_bytes());
            // A datagram that the host's own port refuses counts as lost.
            probes[at].sent += 1;
            under_way += u64::from(socket.send_to(&text, *to).is_ok());
        }
        under_way -= read(&hosts, &mut probes).min(under_way);
    }
    let mut last = Instant::now();
    while under_way > 0 && last.elapsed() < silence {
        std::thread::sleep(Duration::from_millis(1));
        let came = read(&hosts, &mut probes);
        if came > 0 {
            (under_way, last) = (under_way.saturating_sub(came), Instant::now());
        }
    }
    Ok(strandway_fabric::localise::localise(&clos, &probes))
}

/// Reads and counts the probes that have come back; returns their number.
fn read(hosts: &[Vec<UdpSocket>], probes: &mut [Probe]) -> u64 {
    let (mut buffer, mut count) = ([0; 64], 0);
    for socket in hosts.iter().flatten() {
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // Only its own datagrams come back to a socket.
            let own = socket.local_addr().is_ok_and(|own| own == from);
            let number: Option<[u8; 8]> = buffer[..length].get(..8).and_then(|bytes| bytes.try_into().ok());
            let probe = number.and_then(|bytes| probes.get_mut(u64::from_be_bytes(bytes) as usize));
            if let Some(probe) = probe.filter(|_| own && length == LENGTH) {
                probe.arrived += 1;
                count += 1;
            }
        }
    }
    count
}
