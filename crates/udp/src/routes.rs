//! The meaning of a path on this network: the address that a packet is sent to and its source port, for the plane and
//! the entropy value that the engine has chosen.

use crate::address::is_ipv4;
use crate::error::Error;
use std::net::SocketAddrV6;
use strandway_fabric::usid::{Clos, Element};
use strandway_proto::PathId;

/// The most source ports of [`Routes::SourcePorts`].
pub const SOURCE_PORTS_MAX: u16 = 64;

/// How the engine's paths map to the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Routes {
    /// A plane has one path: the peer's address on that plane. This is plain multi-homing, which any fabric supports.
    #[default]
    Addresses,
    /// Each plane sends from this many source ports, 2 to [`SOURCE_PORTS_MAX`], which switches with ECMP hash to
    /// different paths, over IPv6 and IPv4. Acknowledgements and all other small datagrams leave from the plane's own
    /// port.
    SourcePorts(u16),
    /// An SRv6 fabric: the destination address is a list of uSIDs, which the switches consume. All planes are bound to
    /// the own address of our host number in that plane ([`Clos::host`]), each with its own port.
    Srv6 {
        /// The fabric's address plan.
        clos: Clos,
        /// Our number in the fabric.
        host: u32,
    },
}

impl Routes {
    /// Checks the values.
    pub(crate) fn check(&self, planes: &[SocketAddrV6]) -> Result<(), Error> {
        match self {
            Routes::Addresses => Ok(()),
            Routes::SourcePorts(count) if (2..=SOURCE_PORTS_MAX).contains(count) => Ok(()),
            Routes::SourcePorts(count) => {
                Err(Error::Config(format!("{count} source ports: take 2 to {SOURCE_PORTS_MAX} for each plane")))
            }
            Routes::Srv6 { .. } if planes.iter().any(|plane| is_ipv4(*plane.ip())) => Err(Error::Config(
                "SRv6 source routes are IPv6 addresses: give planes the host's IPv6 addresses".into(),
            )),
            Routes::Srv6 { clos, host } => clos
                .holds(planes.len() as u32, host.saturating_add(1))
                .map_err(|error| Error::Config(format!("SRv6 address plan: {error}"))),
        }
    }

    /// The number of sockets for sending that a plane needs beside its own.
    pub(crate) fn more_sources(&self) -> u16 {
        match self {
            Routes::SourcePorts(count) => count - 1,
            Routes::Addresses | Routes::Srv6 { .. } => 0,
        }
    }

    /// Choices at each tier on the way up within a plane, if the fabric's address plan says how many there are.
    pub(crate) fn uplinks(&self) -> [u16; 2] {
        match self {
            Routes::Addresses => [0; 2],
            Routes::SourcePorts(count) => [*count, 0],
            Routes::Srv6 { clos, .. } => clos.uplinks(),
        }
    }

    /// Does a path to this peer cross one of these parts of the fabric?
    pub(crate) fn crosses(&self, peer: SocketAddrV6, path: PathId, parts: &[Element]) -> bool {
        let Routes::Srv6 { clos, host } = self else { return false };
        let Some(to) = clos.host_of(*peer.ip()) else { return false };
        let way = clos.way(path.port(), *host, to, path.entropy());
        parts.iter().any(|part| part.is_on(clos, *host, &way))
    }

    /// A path of the same plane that avoids the denied parts: the next one of those that differ. The path itself, if it
    /// avoids them, or if all cross them.
    pub(crate) fn detour(&self, peer: SocketAddrV6, path: PathId, denied: &[Element]) -> PathId {
        if denied.is_empty() || !self.crosses(peer, path, denied) {
            return path;
        }
        let distinct = u32::from(self.distinct());
        let next = (1..distinct).map(|step| PathId::new(path.port(), (path.entropy() % distinct + step) % distinct));
        next.into_iter().find(|other| !self.crosses(peer, *other, denied)).unwrap_or(path)
    }

    /// The number of entropy values that name paths of a plane: an entropy value modulo this names one. Each path keeps
    /// its packets in order.
    pub(crate) fn distinct(&self) -> u16 {
        match self.uplinks() {
            [first, 0 | 1] => first.max(1),
            // The choice at the second tier is in the bits above those of the first.
            [first, second] => first.next_power_of_two().saturating_mul(second),
        }
    }

    /// The destination of a packet to `peer`: the address, and the number of the socket to send from.
    #[inline]
    pub(crate) fn resolve(&self, peer: SocketAddrV6, path: PathId) -> (SocketAddrV6, u16) {
        match self {
            Routes::Addresses => (peer, 0),
            Routes::SourcePorts(count) => (peer, (path.entropy() % u32::from(*count)) as u16),
            Routes::Srv6 { clos, host } => match clos.host_of(*peer.ip()) {
                Some(to) => {
                    let address = clos.path(path.port(), *host, to, path.entropy());
                    (SocketAddrV6::new(address, peer.port(), 0, 0), 0)
                }
                // The peer is not in this fabric: its own address is used.
                None => (peer, 0),
            },
        }
    }

    /// The destination of an acknowledgement, a ping or another small datagram. Peers learn from its source address
    /// where to answer.
    pub(crate) fn resolve_small(&self, peer: SocketAddrV6, path: PathId) -> (SocketAddrV6, u16) {
        match self {
            Routes::SourcePorts(_) => (peer, 0),
            Routes::Addresses | Routes::Srv6 { .. } => self.resolve(peer, path),
        }
    }

    /// Is the source address of data the one at which its sender expects answers?
    pub(crate) fn data_tells_peer(&self) -> bool {
        !matches!(self, Routes::SourcePorts(_))
    }

    /// Does a datagram from `from` show that a peer has moved there from `known`? Another source port of the same
    /// address does not.
    pub(crate) fn has_moved(&self, known: SocketAddrV6, from: SocketAddrV6) -> bool {
        match self {
            Routes::SourcePorts(_) => known.ip() != from.ip(),
            Routes::Addresses | Routes::Srv6 { .. } => known != from,
        }
    }
}
