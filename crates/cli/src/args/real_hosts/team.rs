//! The multicast options that measurements and casts share.

use clap::Args as ClapArgs;
use std::time::Duration;
use strandway_collective::multicast::PACE;
use strandway_group::Options;
use strandway_lab::parse_span;
use strandway_proto::cast::Parity;
use strandway_proto::repair::Code;

/// Multicast options of a team of nodes.
#[derive(Debug, ClapArgs)]
pub(crate) struct TeamArgs {
    /// The team's number in group addresses. Fabrics copy only for known teams; team 0 has all hosts of a fabric of
    /// namespaces
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) team: u16,
    /// The UDP port of group addresses; if it is taken at a member, all members take the next free one
    #[arg(long, value_name = "PORT", default_value_t = Options::PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) group_port: u16,
    /// Multicast trees per plane [default: 1, or the number in the node file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) trees: Option<u16>,
    /// The share of the rate at which multicast roots send
    #[arg(long, value_name = "SHARE", default_value_t = PACE)]
    pub(crate) pace: f64,
    /// Send M parity chunks after every K data chunks, such as 32+4; receivers rebuild lost chunks from them
    #[arg(long, value_name = "K+M", value_parser = Parity::read)]
    pub(crate) parity: Option<Code>,
    /// Time to wait for other members to arrive, and for a silent member, such as 20s
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = patience)]
    pub(crate) patience: Duration,
    /// Do not use multicast
    #[arg(long)]
    pub(crate) no_multicast: bool,
}

pub(super) fn patience(text: &str) -> Result<Duration, String> {
    let span = parse_span(text)?;
    Ok(Duration::from_nanos(span.0 / 1_000).max(Duration::from_millis(10)))
}
