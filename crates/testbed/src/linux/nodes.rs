//! The node files of a fabric's hosts, and the key that the hosts share.

use crate::linux::{LinuxError, LinuxFabric, Node, Up, Way};
use crate::node_file::{Far, NodeFile};
use std::ffi::OsString;
use std::net::SocketAddrV6;
use strandway_namespaces::{DENIED, set_denied};
use strandway_proto::{Rate, Span};
use strandway_udp::Layout;

/// The UDP port of plane 0; further planes use the following ports. 4791 is RoCEv2's port.
pub const PORT: u16 = 4791;

/// Builds a fabric with a node file for each host, unless it is up already. After an error or an interruption, nothing
/// remains. `program` is the words that start the `strandway` command; processes of it carry the long links.
///
/// # Errors
/// If another fabric has the name, or this machine lacks something; the message names the remedy.
pub fn up(fabric: &LinuxFabric, program: &[OsString], interrupted: &dyn Fn() -> bool) -> Result<Up, LinuxError> {
    let file = |host: u16| node_file(fabric, host).to_string();
    strandway_namespaces::up(fabric, &file, program, interrupted)
}

/// Denies a part of a fabric that is up: nodes that run obey within a fraction of a second, and those that start from now
/// on do not send over it at all. `allow` with `None` allows all parts again. Returns whether this changes anything.
///
/// # Errors
/// If there is no such fabric or part, or its file of orders cannot be written.
pub fn deny(name: &str, target: &str) -> Result<bool, LinuxError> {
    set_denied(name, Some(target), true)
}

/// See [`deny`].
///
/// # Errors
/// As for [`deny`].
pub fn allow(name: &str, target: Option<&str>) -> Result<bool, LinuxError> {
    set_denied(name, target, false)
}

/// The node file of a host.
pub fn node_file(fabric: &LinuxFabric, host: u16) -> NodeFile {
    let clos = fabric.clos();
    let plane = |p: u8| SocketAddrV6::new(clos.host(p, u32::from(host)), PORT + u16::from(p), 0, 0);
    NodeFile {
        name: Node::Host(host).to_string(),
        host: u32::from(host),
        hosts: Some(u32::from(fabric.hosts)),
        planes: (0..fabric.planes).map(plane).collect(),
        devices: fabric.ports(Node::Host(host)).into_iter().map(|port| port.name).collect(),
        key: Some("key".into()),
        profile: fabric.profile.clone(),
        layout: if fabric.mrc_layout { Layout::MRC } else { Layout::Frame },
        payload: Some(fabric.payload),
        rate: Rate(fabric.node_rate),
        base_rtt: Span(fabric.base_rtt_ns * 1000),
        trimming: fabric.trimming,
        denied: Vec::new(),
        denied_file: Some(DENIED.into()),
        srv6: Some(clos),
        distances: distances(fabric, clos.t0_of(u32::from(host))),
    }
}

/// Rate and round trip from this site to the hosts of each site.
fn distances(fabric: &LinuxFabric, site: u16) -> Vec<Far> {
    let far = |way: &Way| {
        let other = way.sites.into_iter().find(|other| *other != site).unwrap_or(site);
        let per_t0 = u32::from(fabric.hosts_per_t0);
        let first = u32::from(other) * per_t0;
        Far { hosts: [first, first + per_t0 - 1], rate: Rate(way.rate), base_rtt: Span(way.base_rtt_ns * 1000) }
    };
    fabric.ways.iter().filter(|way| way.sites.contains(&site)).map(far).collect()
}
