//! The rate and the round trip that engines assume for each peer.

use crate::config::Config;
use crate::distance::Distance;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::sync::Arc;
use strandway_proto::{Environment, Profile, Rate, Span};

/// A way to peers, as engines see it.
#[derive(Debug)]
pub(crate) struct PathSettings {
    pub(crate) profile: Arc<Profile>,
    pub(crate) environment: Environment,
    /// Bytes that a connection may send at once, if a window is larger.
    pub(crate) burst: Option<u64>,
}

impl PathSettings {
    fn new(config: &Config, buffer: usize, rate: Rate, base_rtt: Span) -> PathSettings {
        let profile = config.profile_over(rate, base_rtt);
        let environment = config.environment_over(rate, base_rtt, &profile, buffer);
        PathSettings { burst: config.burst_limit(&environment, buffer), profile: Arc::new(profile), environment }
    }
}

/// The ways of a node, for packets of one size.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Payload bytes of a full packet.
    pub(crate) payload: u32,
    /// Bytes that a receiving socket holds.
    buffer: usize,
    usual: PathSettings,
    others: Vec<(RangeInclusive<Ipv6Addr>, PathSettings)>,
}

impl Ways {
    /// The ways in a configuration. `buffer`: bytes that a receiving socket holds.
    pub(crate) fn new(config: &Config, buffer: usize) -> Ways {
        let other = |d: &Distance| {
            let (rate, base_rtt) = (d.rate.min(config.rate), d.base_rtt.min(config.base_rtt));
            (d.peers.clone(), PathSettings::new(config, buffer, rate, base_rtt))
        };
        Ways {
            payload: config.payload,
            buffer,
            usual: PathSettings::new(config, buffer, config.rate, config.base_rtt),
            others: config.distances.iter().map(other).collect(),
        }
    }

    /// The same ways for packets with another payload.
    pub(crate) fn with_payload(&self, config: &Config, payload: u32) -> Ways {
        Ways::new(&Config { payload, ..config.clone() }, self.buffer)
    }

    /// The way to a peer with these addresses.
    pub(crate) fn to(&self, peer: &[Option<SocketAddrV6>]) -> &PathSettings {
        let is_there = |range: &RangeInclusive<Ipv6Addr>| peer.iter().flatten().any(|at| range.contains(at.ip()));
        self.others.iter().find(|(range, _)| is_there(range)).map_or(&self.usual, |(_, way)| way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_told_of_the_way_to_their_peer() {
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let mut config = Config::new(&[7; 32]).expect("a key");
        config.planes = vec![SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)];
        (config.rate, config.base_rtt) = (Rate::from_gbps(1), Span::from_ms(40));
        let (rate, base_rtt) = (Rate(50_000_000), Span::from_ms(30));
        config.distances = vec![Distance { peers: address("fc00::2")..=address("fc00::3"), rate, base_rtt }];
        assert!(config.check().is_ok());
        let ways = Ways::new(&config, 4 << 20);
        let to = |text: &str| {
            let environment = ways.to(&[None, Some(SocketAddrV6::new(address(text), 9, 0, 0))]).environment;
            (environment.rate, environment.base_rtt)
        };
        assert_eq!(to("fc00::1"), (config.rate, config.base_rtt));
        assert_eq!((to("fc00::2"), to("fc00::3")), ((rate, base_rtt), (rate, base_rtt)));
        assert_eq!(to("fc00::4"), (config.rate, config.base_rtt));
        // A command-line flag may set lower values than the node file has for the way.
        (config.rate, config.base_rtt) = (Rate(40_000_000), Span::from_ms(20));
        let environment = Ways::new(&config, 4 << 20).others[0].1.environment;
        assert_eq!((environment.rate, environment.base_rtt), (config.rate, config.base_rtt));
        config.distances[0].base_rtt = Span::ZERO;
        assert!(config.check().expect_err("no distance").to_string().contains("distances"));
    }
}
