//! A node with the settings of all other nodes, [`crate::Config`], as far as this layout has them.

use super::{Config, Control, Node, Security};
use crate::config::Config as NodeConfig;
use crate::error::Error;
use crate::layout::{Layout, Protection};
use crate::routes::Routes;
use crate::secure::random;
use crate::uet_security::{Domain, Mode, Rekey};

/// Packets in flight between nodes of this kind, if NSCC allows them; ours: half of the responses that a target keeps.
const WINDOW: u32 = 512;
/// The number of the secure domain; ours: a network with several keys has several domains of this number.
const DOMAIN: u32 = 1;

impl Node {
    /// A node with the address, profile, payload, rate, round trip, timeout, key and protection of `config`, whose layout is
    /// [`Layout::Uet`]. With [`Protection::Encrypted`] all datagrams are sealed; the key of the domain comes from
    /// [`NodeConfig::secret`], and the node's number and epoch are random: 48 bits, which must not come twice under one
    /// key. [`Protection::None`] is for peers without security, as SUET.
    ///
    /// # Errors
    /// For settings that this layout lacks; the message names setting, value and remedy. Also if the address cannot be
    /// had.
    pub fn configured(config: &NodeConfig) -> Result<Node, Error> {
        check(config)?;
        let own = Config {
            payload: config.payload as u16,
            probes: true,
            timeout: config.retransmit_min,
            window: WINDOW,
            control: Control::Nscc { rate: config.rate, base_rtt: config.base_rtt },
            ..Config::default()
        };
        let address = crate::address::shown(config.planes[0]);
        let failed = |source| Error::Socket { address, source };
        if config.protection == Protection::None {
            return Node::bind(address, own).map_err(failed);
        }
        let key = blake3::derive_key("strandway 2026 domain of Ultra Ethernet", &config.secret.0);
        let domain = Domain { number: DOMAIN, key, mode: Mode::Cluster, rekey: Rekey::default() };
        let [a, b, c, d, e, f] = random()?;
        let (identifier, epoch) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        Node::bind_sealed(address, own, Security { domain, identifier, association: false, epoch }).map_err(failed)
    }
}

/// Has this layout these settings?
fn check(config: &NodeConfig) -> Result<(), Error> {
    let wrong = |what: String| Err(Error::Config(format!("layout uet: {what}")));
    if config.layout != Layout::Uet {
        return wrong(format!("the node's layout is {:?}: take Layout::Uet", config.layout));
    }
    let most = (1 << 14) - 1;
    match (&config.planes[..], &config.routes) {
        ([_], Routes::Addresses) => {}
        ([_], Routes::SourcePorts(count)) => {
            return wrong(format!("{count} source ports: peers are told apart by address and port, so take one"));
        }
        ([_], Routes::Srv6 { .. }) => return wrong("its nodes have no SRv6 paths: leave [srv6] out".into()),
        (planes, _) => return wrong(format!("{} planes: its nodes have one, so give one address", planes.len())),
    }
    if config.profile.name != "uec" {
        return wrong(format!("profile {}: its nodes have uec only, so take that", config.profile.name));
    }
    if !(64..=most).contains(&config.payload) {
        return wrong(format!("a payload of {} bytes: take 64 to {most}", config.payload));
    }
    if config.protection == Protection::Authenticated {
        return wrong("protection authenticated: its seals encrypt, so take encrypted or none".into());
    }
    if config.trimming {
        return wrong("trimming = true: its nodes do not read trimmed packets, so leave it out".into());
    }
    if !config.denied.parts.is_empty() || config.denied.file.is_some() || !config.distances.is_empty() {
        return wrong("denied parts and distances belong to paths, which its nodes have not: leave them out".into());
    }
    if config.rate.0 == 0 || config.base_rtt == strandway_proto::Span::ZERO {
        return wrong("rate and base_rtt must not be zero: give those of the network".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv6Addr, SocketAddrV6};

    fn said(change: impl Fn(&mut NodeConfig)) -> String {
        let plane = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0);
        let mut config = NodeConfig { layout: Layout::Uet, ..NodeConfig::new(&[7; 32]).expect("a key").plane(plane) };
        change(&mut config);
        Node::configured(&config).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn settings_that_the_layout_lacks_are_refused_with_a_remedy() {
        let profile = |name: &str| strandway_proto::Profile::named(name).expect("a profile");
        for (expected, message) in [
            ("take Layout::Uet", said(|config| config.layout = Layout::Frame)),
            ("2 planes", said(|config| config.planes.push(config.planes[0]))),
            ("0 planes", said(|config| config.planes.clear())),
            ("4 source ports", said(|config| config.routes = Routes::SourcePorts(4))),
            ("profile mrc", said(|config| config.profile = profile("mrc"))),
            ("take 64 to 16383", said(|config| config.payload = 16_384)),
            ("take encrypted or none", said(|config| config.protection = Protection::Authenticated)),
            ("trimmed packets", said(|config| config.trimming = true)),
            ("base_rtt", said(|config| config.base_rtt = strandway_proto::Span::ZERO)),
        ] {
            assert!(message.starts_with("layout uet: ") && message.contains(expected), "{expected}: {message}");
        }
        // And nodes of the other layouts refuse this one.
        let config = NodeConfig::new(&[7; 32]).expect("a key").plane(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0));
        let error = crate::Node::bind(NodeConfig { layout: Layout::Uet, ..config }).err().expect("another program");
        assert!(error.to_string().contains("layout uet: "), "{error}");
    }
}
