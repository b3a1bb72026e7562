//! How a team of nodes multicasts: what measurements and casts share.

use clap::Args as ClapArgs;
use std::time::Duration;
use strandway_collective::multicast::PACE;
use strandway_group::Options;
use strandway_lab::parse_span;
use strandway_proto::cast::Parity;
use strandway_proto::repair::Code;

/// How a team of nodes multicasts.
#[derive(Debug, ClapArgs)]
pub(crate) struct TeamArgs {
    /// The team's number in group addresses: fabrics copy for the teams that they know; 0 is all hosts of a fabric of namespaces
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) team: u16,
    /// The UDP port of group addresses
    #[arg(long, value_name = "PORT", default_value_t = Options::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) group_port: u16,
    /// Multicast trees of each plane [default: 1, or as many as the node file's fabric has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) trees: Option<u16>,
    /// The share of the rate at which multicast roots send
    #[arg(long, value_name = "SHARE", default_value_t = PACE)]
    pub(crate) pace: f64,
    /// Cast K+M: M chunks of parity behind every K of data, such as 32+4; receivers rebuild from them what is lost
    #[arg(long, value_name = "K+M", value_parser = Parity::read)]
    pub(crate) parity: Option<Code>,
    /// How long to wait for others to come, and for one that is silent, such as 20s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = patience)]
    pub(crate) patience: Duration,
    /// Do not try multicast
    #[arg(long)]
    pub(crate) no_multicast: bool,
}

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    let span = parse_span(text)?;
    Ok(Duration::from_nanos(span.0 / 1_000).max(Duration::from_millis(10)))
}
