//! The arguments of `strandway model`.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::path::PathBuf;
use strandway_report::answers::Vary;
use strandway_reproduce::model::{Inquiry, Scheme};
use strandway_scenario::propagation::Rule;

const SDR_EXAMPLES: &str = "\
A message is cut into chunks. A lost chunk is sent again, or rebuilt from parity. The table has the mean and the 99.9th percentile of
the completion time, each divided by the time without losses; the probability that parity cannot repair some group; and the bytes on
the wire besides the data. cores: how many encode at the link's rate. The model has no congestion and no time of coding: docs/protocols/sdr.md.

Schemes: sr_rto (timeouts of 1 + alpha round trips), sr_nack (repairs after one round trip, at best), xor:K,M and
mds:K,M (M pieces of parity per K of data).

Examples:
  strandway model sdr                                           128 MiB over 3,750 km at 400 Gb/s, loss 1e-5
  strandway model sdr --loss 0.1% --rtt 50ms --rate 10Gbps      your link
  strandway model sdr --distance '1200 km' --size '4 MiB'       glass fibre; --rule paper for light in vacuum
  strandway model sdr --vary size                               a row per size; also loss, distance, rate, sites
  strandway model sdr --vary loss --values 1e-3,1e-2            only these values
  strandway model sdr --payload 1344B --header 170B --chunk 48 --rate 1Gbps    chunks of 48 packets in frames of 1,514 B
  strandway model sdr --chunk 16 --receive-threads 4            four threads take the packets of 400 Gb/s
  strandway model sdr --sites 4 --vary size                     a ring all-reduce between four sites
  strandway model sdr --scheme sr_nack --scheme mds:32,4 --vary rate --html rate.html";

#[derive(Debug, ClapArgs)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    pub(crate) of: ModelOf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelOf {
    /// Completion times over a long, lossy link: retransmission, XOR codes and MDS codes (SDR-RDMA's model)
    #[command(after_help = SDR_EXAMPLES)]
    Sdr(Box<SdrArgs>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SdrArgs {
    /// Bytes of the message; with --sites, of the buffer
    #[arg(long, value_name = "BYTES", default_value_t = Inquiry::default().size)]
    size: String,
    /// The link's rate
    #[arg(long, value_name = "RATE", default_value_t = Inquiry::default().rate)]
    rate: String,
    /// The round trip [default: 25 ms]
    #[arg(long, value_name = "TIME")]
    rtt: Option<String>,
    /// One-way distance instead of a round trip, such as '3750 km'
    #[arg(long, value_name = "DISTANCE", conflicts_with = "rtt")]
    distance: Option<String>,
    /// Propagation time for --distance: glass (5.003 us per km) or paper (3.333 us per km, as in the SDR-RDMA paper)
    /// [default: glass]
    #[arg(long, value_name = "RULE")]
    rule: Option<RuleName>,
    /// Share of lost packets, such as 1e-5 or 0.1%
    #[arg(long, value_name = "SHARE", default_value_t = Inquiry::default().loss)]
    loss: String,
    /// Payload of a packet
    #[arg(long, value_name = "BYTES", default_value_t = Inquiry::default().payload)]
    payload: String,
    /// Bytes of a packet on the wire besides its payload: headers, frame, gap
    #[arg(long, value_name = "BYTES", default_value_t = Inquiry::default().header)]
    header: String,
    /// Packets per chunk; a chunk is lost if one of its packets is
    #[arg(long, value_name = "PACKETS", default_value_t = Inquiry::default().chunk)]
    chunk: u64,
    /// A timeout is 1 + ALPHA round trips
    #[arg(long, default_value_t = Inquiry::default().alpha)]
    alpha: f64,
    /// With a code: the receiver waits BETA round trips for the rest of a message before it requests it
    #[arg(long, default_value_t = Inquiry::default().beta)]
    beta: f64,
    /// If parity cannot repair a group: send the whole group again, as in the paper (true), or only the missing chunks
    /// (false)
    #[arg(long, value_name = "BOOL", default_value_t = Inquiry::default().whole_groups, action = clap::ArgAction::Set)]
    faithful: bool,
    /// Number of sites of a ring all-reduce; without it, a single message
    #[arg(long, value_name = "N")]
    sites: Option<String>,
    /// Data that one core encodes per second, with up to eight pieces of parity; the default is measured
    #[arg(long, value_name = "RATE", default_value_t = Inquiry::default().encode_rate)]
    encode_rate: String,
    /// Cores that may encode: a code that needs more of them is never the best scheme [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=4096))]
    cores: Option<u32>,
    #[command(flatten)]
    receive: ReceiveArgs,
    /// A scheme to compare; may be repeated [default: sr_rto, sr_nack, xor:32,8 and mds:32,2 to mds:32,16]
    #[arg(long, value_name = "SCHEME")]
    scheme: Vec<Scheme>,
    /// The quantity to vary, with one row per value
    #[arg(long, value_name = "WHAT")]
    vary: Option<VaryName>,
    /// The values of the varied quantity, separated by commas [default: a suitable range]
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', requires = "vary")]
    values: Vec<String>,
    /// With --sites: number of random samples
    #[arg(long, value_name = "N", default_value_t = Inquiry::default().samples)]
    samples: u32,
    /// Seed of the samples
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

/// The receiver's threads.
#[derive(Debug, ClapArgs)]
struct ReceiveArgs {
    /// Threads of the receiver that take its packets: they may be slower than the link [default: receiving takes no time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    receive_threads: Option<u32>,
    /// Million packets a second that a receiving thread takes alone, with chunks of 16 packets
    #[arg(long, value_name = "MPPS", default_value_t = Inquiry::default().receive_mpps, requires = "receive_threads")]
    receive_mpps: f64,
    /// Receiving threads with which each takes half as many packets as alone; 0: never
    #[arg(long, value_name = "N", default_value_t = Inquiry::default().receive_knee, requires = "receive_threads")]
    receive_knee: f64,
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
    /// The arguments as an inquiry of the lab.
    pub(crate) fn inquiry(&self) -> Inquiry {
        let usual = Inquiry::default();
        Inquiry {
            size: self.size.clone(),
            rate: self.rate.clone(),
            encode_rate: self.encode_rate.clone(),
            cores: self.cores,
            receive_threads: self.receive.receive_threads,
            receive_mpps: self.receive.receive_mpps,
            receive_knee: self.receive.receive_knee,
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
