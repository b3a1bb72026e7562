//! The settings of a node, as Python gives them: those of the command line, by the same names.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::{SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;
use strandway_lab::{parse_rate, parse_span};
use strandway_testbed::NodeFile;
use strandway_udp::{Config, Protection, address};

/// The command line's key on loopback; it is public.
const LOOPBACK_KEY: &[u8] = b"strandway on loopback, where anyone may look";

/// A dict's values of the keyword arguments that all calls with a node have.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    planes: Vec<String>,
    key: Option<Vec<u8>>,
    node: Option<PathBuf>,
    profile: Option<String>,
    payload: Option<u32>,
    protection: String,
    pub(crate) rate: Option<String>,
    pub(crate) rtt: Option<String>,
}

/// A node's configuration, and the node file that it came from.
pub(crate) struct Settled {
    pub(crate) config: Config,
    file: Option<NodeFile>,
}

fn wrong(what: impl ToString) -> PyErr {
    PyValueError::new_err(what.to_string())
}

impl Settings {
    /// The configuration. `port`: that of planes without one; `peers`: hosts from which the planes follow if none are
    /// given; `profile`: the default one.
    pub(crate) fn settle(&self, port: u16, peers: &[String], profile: Option<&str>) -> PyResult<Settled> {
        let file = match &self.node {
            Some(path) => Some(NodeFile::load(path).map_err(wrong)?),
            None => None,
        };
        let mut config = match &file {
            Some(file) => file.config(self.key.as_deref()).map_err(wrong)?,
            None => {
                let planes = match (self.planes.as_slice(), peers) {
                    ([], []) => vec![SocketAddrV6::new(address::loopback(), port, 0, 0)],
                    ([], peers) => addresses(peers, 0, &[])?.into_iter().map(local_for).collect::<PyResult<_>>()?,
                    (planes, _) => addresses(planes, port, &[])?,
                };
                let key = match &self.key {
                    Some(key) => key.as_slice(),
                    None if planes.iter().all(|plane| address::is_loopback(*plane.ip())) => LOOPBACK_KEY,
                    None => return Err(wrong("beyond loopback both sides need the same key=: 32 bytes of os.urandom")),
                };
                Config { planes, ..Config::new(key).map_err(wrong)? }
            }
        };
        if let Some(name) = self.profile.as_deref().or(profile.filter(|_| file.is_none())) {
            config = config.profile(name).map_err(wrong)?;
        }
        config.payload = self.payload.unwrap_or(config.payload);
        config.protection = Protection::named(&self.protection).ok_or_else(|| {
            wrong(format!("protection is {:?}: take encrypted, authenticated or none", self.protection))
        })?;
        if let Some(rate) = &self.rate {
            config.rate = parse_rate(rate).map_err(|error| wrong(format!("rate: {error}")))?;
        }
        if let Some(rtt) = &self.rtt {
            config.base_rtt = parse_span(rtt).map_err(|error| wrong(format!("rtt: {error}")))?;
        }
        Ok(Settled { config, file })
    }
}

impl Settings {
    /// Does each connection have the payload that its path takes? It does unless the settings name one.
    pub(crate) fn finds_payloads(&self, settled: &Settled) -> bool {
        self.payload.is_none() && settled.file.as_ref().is_none_or(|file| file.payload.is_none())
    }
}

impl Settled {
    /// Did a node file say rate and round trip?
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// The addresses of another host, one per plane; with a node file also its name, such as `h2`.
    pub(crate) fn peer(&self, names: &[String], port: u16) -> PyResult<Vec<SocketAddrV6>> {
        if let (Some(file), [name]) = (&self.file, names) {
            let number = name.strip_prefix('h').unwrap_or(name).parse().ok();
            if let Some(number) = number {
                return file.peer(number).ok_or_else(|| wrong(format!("{name}: the fabric has no such host")));
            }
        }
        addresses(names, port, &self.config.planes)
    }
}

/// The addresses of hosts, one for each plane, of either family and with or without a port, or names. A name is looked
/// up in the family of the plane, if `ours` has its address.
pub(crate) fn addresses(texts: &[String], port: u16, ours: &[SocketAddrV6]) -> PyResult<Vec<SocketAddrV6>> {
    let one = |(i, text): (usize, &String)| address::find(text, port, ours.get(i).map(|ours| *ours.ip()));
    texts.iter().enumerate().map(one).collect::<Result<_, _>>().map_err(wrong)
}

/// Addresses as people write them.
pub(crate) fn texts(node: &[SocketAddr]) -> Vec<String> {
    node.iter().map(|&one| address::shown(one).to_string()).collect()
}

/// The local address from which this host reaches another one.
fn local_for(peer: SocketAddrV6) -> PyResult<SocketAddrV6> {
    address::local_for(peer).map_err(|error| {
        let ip = address::shown(peer).ip();
        wrong(format!("no way to {ip}: {error}; name the local addresses with planes="))
    })
}

/// Timeouts of nodes whose path has this round trip: as for copies of the command line.
pub(crate) fn be_patient(config: &mut Config, peer_timeout: Duration) {
    let trips = Duration::from_nanos(config.base_rtt.0 / 1_000) * 4;
    config.timeouts.plane = config.timeouts.plane.max(trips);
    (config.timeouts.peer, config.timeouts.handshake) = (peer_timeout.max(trips * 4), peer_timeout.max(trips * 4));
}
