//! What `strandway model` is asked with.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::path::PathBuf;
use strandway_lab::model::{Inquiry, Rule, Scheme, Vary};

const SDR_EXAMPLES: &str = "\
A message is cut into chunks; a lost chunk goes again, or parity makes up for it. The table has the mean and the 99.9th
percentile of the completion time, both over that without losses, the probability that parity does not suffice
somewhere, and what goes over the wire beyond the data. No congestion, no cost of coding: docs/protocols/sdr.md.

Schemes: sr_rto (timeouts of 1 + alpha round trips), sr_nack (repairs after one round trip, at best), xor:K,M and
mds:K,M (M pieces of parity per K of data).

Examples:
  strandway model sdr                                           128 MiB over 3,750 km at 400 Gb/s, loss 1e-5
  strandway model sdr --loss 0.1% --rtt 50ms --rate 10Gbps      your link
  strandway model sdr --distance '1200 km' --size '4 MiB'       glass fibre; --rule paper for light in vacuum
  strandway model sdr --vary size                               a row per size; also loss, distance, rate, sites
  strandway model sdr --vary loss --values 1e-3,1e-2            these values only
  strandway model sdr --payload 1344B --header 170B --chunk 48 --rate 1Gbps    chunks of 48 packets in frames of 1,514 B
  strandway model sdr --sites 4 --vary size                     a ring all-reduce between four sites
  strandway model sdr --scheme sr_nack --scheme mds:32,4 --vary rate --html rate.html";

#[derive(Debug, ClapArgs)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) of: ModelOf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelOf {
    /// Completion times over a long link that loses packets: retransmission, XOR and MDS codes (SDR-RDMA's model)
    #[command(after_help = SDR_EXAMPLES)]
    Sdr(Box<SdrArgs>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SdrArgs {
    /// Bytes of the message; of the buffer, with --sites
    #[arg(long, value_name = "BYTES", default_value_t = Inquiry::default().size)]
    size: String,
    /// The link's rate
    #[arg(long, value_name = "RATE", default_value_t = Inquiry::default().rate)]
    rate: String,
    /// The round trip [default: 25 ms]
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// One way, instead of a round trip, such as '3750 km'
    #[arg(long, value_name = "DISTANCE", conflicts_with = "rtt")]
    distance: Option<String>,
    /// How long light takes for a distance: glass (5.003 us per km) or paper (3.333 us per km, as the SDR-RDMA paper has it)
    /// [default: glass]
    #[arg(long, value_name = "RULE")]
    rule: Option<RuleName>,
    /// The share of packets that is lost, such as 1e-5 or 0.1%
    #[arg(long, value_name = "SHARE", default_value_t = Inquiry::default().loss)]
    loss: String,
    /// Payload of a packet
    #[arg(long, value_name = "BYTES", default_value_t = Inquiry::default().payload)]
    payload: String,
    /// What a packet has on the wire besides its payload: headers, frame, gap
    #[arg(long, value_name = "BYTES", default_value_t = Inquiry::default().header)]
    header: String,
    /// Packets of a chunk; a chunk is lost with any of them
    #[arg(long, value_name = "PACKETS", default_value_t = Inquiry::default().chunk)]
    chunk: u64,
    /// A timeout is 1 + ALPHA round trips
    #[arg(long, default_value_t = Inquiry::default().alpha)]
    alpha: f64,
    /// A code's receiver waits BETA round trips for the rest of a message before it asks
    #[arg(long, default_value_t = Inquiry::default().beta)]
    beta: f64,
    /// Where parity does not suffice: send the whole group again, as the paper does (true), or only what is missing (false)
    #[arg(long, value_name = "BOOL", default_value_t = Inquiry::default().whole_groups, action = clap::ArgAction::Set)]
    faithful: bool,
    /// A ring all-reduce between so many sites, instead of a single message
    #[arg(long, value_name = "N")]
    sites: Option<String>,
    /// A scheme to compare; may be repeated [default: sr_rto, sr_nack, xor:32,8 and mds:32,2 to mds:32,16]
    #[arg(long, value_name = "SCHEME")]
    scheme: Vec<Scheme>,
    /// What to vary, a row for each value
    #[arg(long, value_name = "WHAT")]
    vary: Option<VaryName>,
    /// The values of what is varied, with commas between; by default a range that shows what matters
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', requires = "vary")]
    values: Vec<String>,
    /// All-reduces that are drawn with --sites
    #[arg(long, value_name = "N", default_value_t = Inquiry::default().samples)]
    samples: u32,
    /// Seed of those draws
    #[arg(long, value_name = "N", default_value_t = Inquiry::default().seed)]
    seed: u64,
    /// Write the answers as JSON; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<PathBuf>,
    /// Write charts and tables as one self-contained HTML page
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<PathBuf>,
    /// Print no tables
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RuleName {
    Glass,
    Paper,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum VaryName {
    Size,
    Loss,
    Distance,
    Rate,
    Sites,
}

impl SdrArgs {
    /// The same as the lab asks it.
    pub(crate) fn inquiry(&self) -> Inquiry {
        let usual = Inquiry::default();
        Inquiry {
            size: self.size.clone(),
            rate: self.rate.clone(),
            rtt: self.rtt.clone(),
            distance: self.distance.clone(),
            rule: match self.rule {
                None => usual.rule,
                Some(RuleName::Glass) => Rule::Glass,
                Some(RuleName::Paper) => Rule::Paper,
            },
            loss: self.loss.clone(),
            payload: self.payload.clone(),
            header: self.header.clone(),
            chunk: self.chunk,
            alpha: self.alpha,
            beta: self.beta,
            whole_groups: self.faithful,
            sites: self.sites.clone(),
            schemes: if self.scheme.is_empty() { usual.schemes } else { self.scheme.clone() },
            vary: self.vary.map(|vary| match vary {
                VaryName::Size => Vary::Size,
                VaryName::Loss => Vary::Loss,
                VaryName::Distance => Vary::Distance,
                VaryName::Rate => Vary::Rate,
                VaryName::Sites => Vary::Sites,
            }),
            values: self.values.clone(),
            samples: self.samples,
            seed: self.seed,
        }
    }
}
