//! Compares reliability schemes for a link: evaluates the model of long, lossy links (`strandway_proto::repair::model`)
//! for given quantities.
//!
//! An [`Inquiry`] holds texts as a user writes them. [`ask`] returns [`Answers`]: one row, or one row for each value of
//! the varied quantity. SDR-RDMA (arXiv 2505.05366), section 4.

mod question;
mod ring;

use question::Question;
use std::fmt;
use strandway_import::Problems;
use strandway_proto::repair::{Code, CodeError, ENCODE_RATE};
use strandway_report::answers::{Answers, Best, SchemeFacts, Vary};
use strandway_scenario::propagation::Rule;

/// A way to repair losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Selective repeat with timeouts of `1 + alpha` round trips.
    SrRto,
    /// Selective repeat with negative acknowledgements: at best, a lost packet is sent again after one round trip.
    SrNack,
    /// An erasure code; where it cannot repair all losses, selective repeat with timeouts.
    Coded(Code),
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::SrRto => f.write_str("SR-RTO"),
            Scheme::SrNack => f.write_str("SR-NACK"),
            Scheme::Coded(code) => code.fmt(f),
        }
    }
}

impl Scheme {
    /// Its name on the command line.
    fn flag(self) -> String {
        match self {
            Scheme::SrRto => "sr_rto".into(),
            Scheme::SrNack => "sr_nack".into(),
            Scheme::Coded(code) => {
                let name = match code.kind() {
                    strandway_proto::repair::CodeKind::Xor => "xor",
                    strandway_proto::repair::CodeKind::Mds => "mds",
                };
                format!("{name}:{},{}", code.data(), code.parity())
            }
        }
    }
}

impl std::str::FromStr for Scheme {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Scheme, CodeError> {
        match text.to_ascii_lowercase().replace('-', "_").as_str() {
            "sr_rto" => Ok(Scheme::SrRto),
            "sr_nack" => Ok(Scheme::SrNack),
            _ => text.parse().map(Scheme::Coded),
        }
    }
}

/// A question with its quantities as texts. The default is that of most of the paper's figures: a message of 128 MiB
/// over 3,750 km of vacuum at 400 Gb/s.
#[derive(Clone, Debug, PartialEq)]
pub struct Inquiry {
    /// Bytes of the message, or of the buffer of an all-reduce: `"128 MiB"`.
    pub size: String,
    /// The link's rate: `"400 Gbps"`.
    pub rate: String,
    /// The round trip: `"25 ms"`.
    pub rtt: Option<String>,
    /// One-way distance, instead of a round trip: `"3750 km"`.
    pub distance: Option<String>,
    /// The speed of light for the distance.
    pub rule: Rule,
    /// The share of lost packets: `"1e-5"` or `"0.1 %"`.
    pub loss: String,
    /// Payload of a packet: `"4096 B"`.
    pub payload: String,
    /// Bytes of a packet on the wire besides its payload: `"170 B"`.
    pub header: String,
    /// Packets per chunk.
    pub chunk: u64,
    /// The timeout is `1 + alpha` round trips.
    pub alpha: f64,
    /// With a code: the receiver waits `beta` round trips for missing chunks before it requests them.
    pub beta: f64,
    /// If a code cannot repair a group: true sends the whole group again, false only the missing chunks.
    pub whole_groups: bool,
    /// Sites of a ring all-reduce; `None` for a single message.
    pub sites: Option<String>,
    /// Data that one core encodes per second: `"85 Gbps"`.
    pub encode_rate: String,
    /// Cores that may encode: a code that needs more of them is not the best one. `None` for no limit.
    pub cores: Option<u32>,
    /// Threads of the receiver that take the packets; `None` if receiving takes no time.
    pub receive_threads: Option<u32>,
    /// Million packets a second that a receiving thread takes alone, with chunks of 16 packets.
    pub receive_mpps: f64,
    /// The number of receiving threads with which each takes half as many; zero: they never stand in each other's way.
    pub receive_knee: f64,
    /// The schemes to compare.
    pub schemes: Vec<Scheme>,
    /// The quantity to vary.
    pub vary: Option<Vary>,
    /// The values of the varied quantity; empty for the default values.
    pub values: Vec<String>,
    /// Number of random samples of an all-reduce.
    pub samples: u32,
    /// The seed of the samples.
    pub seed: u64,
}

impl Default for Inquiry {
    fn default() -> Inquiry {
        let schemes = ["sr_rto", "sr_nack", "xor:32,8", "mds:32,2", "mds:32,4", "mds:32,8", "mds:32,16"];
        Inquiry {
            size: "128 MiB".into(),
            rate: "400 Gbps".into(),
            rtt: None,
            distance: None,
            rule: Rule::Glass,
            loss: "1e-5".into(),
            payload: "4096 B".into(),
            header: "0 B".into(),
            chunk: 1,
            alpha: 2.0,
            beta: 1.0,
            whole_groups: true,
            sites: None,
            encode_rate: format!("{} Gbps", ENCODE_RATE.0 / 1_000_000_000),
            cores: None,
            receive_threads: None,
            receive_mpps: 1.456,
            receive_knee: 124.0,
            schemes: schemes.into_iter().filter_map(|name| name.parse().ok()).collect(),
            vary: None,
            values: Vec::new(),
            samples: 20_000,
            seed: 1,
        }
    }
}

/// The probability that of `samples` completion times the largest (rank 1) or the second largest (rank 2) is at least
/// `slowdown` times the time without losses, with the first scheme of an inquiry. A p99.9 of a thousand samples is one of
/// the two.
pub(super) fn reach(inquiry: &Inquiry, slowdown: f64, samples: u32, rank: u32) -> Option<f64> {
    Some(Question::read(inquiry).ok()?.reach(*inquiry.schemes.first()?, slowdown, samples, rank))
}

/// Answers an inquiry.
///
/// # Errors
/// All problems of the inquiry.
pub fn ask(inquiry: &Inquiry) -> Result<Answers, Problems> {
    let mut rows = Vec::new();
    match inquiry.vary {
        None => rows.push(Question::read(inquiry)?.answer(String::new(), 0.0)),
        Some(vary) => {
            let usual = || usual_values(vary).iter().map(ToString::to_string).collect();
            let values: Vec<String> = if inquiry.values.is_empty() { usual() } else { inquiry.values.clone() };
            for value in values {
                let mut one = inquiry.clone();
                *one.place(vary) = value.clone();
                if vary == Vary::Distance {
                    one.rtt = None;
                }
                let question = Question::read(&one)?;
                let number = question.number(vary);
                rows.push(question.answer(value, number));
            }
        }
    }
    Ok(Answers { format: 1, version: env!("CARGO_PKG_VERSION").to_string(), vary: inquiry.vary, rows })
}

impl Inquiry {
    /// The command line of this inquiry, without the varied quantity.
    pub fn command(&self) -> String {
        let usual = Inquiry::default();
        let mut command = "strandway model sdr".to_string();
        let mut add = |differs: bool, flag: &str, value: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:,".contains(c);
            let quote = if value.chars().all(plain) { "" } else { "'" };
            if differs {
                command.push_str(&format!(" --{flag} {quote}{value}{quote}"));
            }
        };
        add(self.size != usual.size, "size", &self.size);
        add(self.rate != usual.rate, "rate", &self.rate);
        for (flag, value) in [("rtt", &self.rtt), ("distance", &self.distance), ("sites", &self.sites)] {
            add(value.is_some(), flag, value.as_deref().unwrap_or_default());
        }
        add(self.rule != usual.rule, "rule", self.rule.name());
        add(self.loss != usual.loss, "loss", &self.loss);
        add(self.payload != usual.payload, "payload", &self.payload);
        add(self.header != usual.header, "header", &self.header);
        add(self.chunk != usual.chunk, "chunk", &self.chunk.to_string());
        add(self.alpha != usual.alpha, "alpha", &self.alpha.to_string());
        add(self.beta != usual.beta, "beta", &self.beta.to_string());
        add(self.whole_groups != usual.whole_groups, "faithful", &self.whole_groups.to_string());
        add(self.encode_rate != usual.encode_rate, "encode-rate", &self.encode_rate);
        add(self.cores.is_some(), "cores", &self.cores.unwrap_or_default().to_string());
        let threads = self.receive_threads.unwrap_or_default();
        add(self.receive_threads.is_some(), "receive-threads", &threads.to_string());
        add(self.receive_mpps != usual.receive_mpps, "receive-mpps", &self.receive_mpps.to_string());
        add(self.receive_knee != usual.receive_knee, "receive-knee", &self.receive_knee.to_string());
        add(self.samples != usual.samples, "samples", &self.samples.to_string());
        add(self.seed != usual.seed, "seed", &self.seed.to_string());
        for scheme in self.schemes.iter().filter(|_| self.schemes != usual.schemes) {
            add(true, "scheme", &scheme.flag());
        }
        command
    }

    /// The field of the varied quantity.
    fn place(&mut self, vary: Vary) -> &mut String {
        match vary {
            Vary::Size => &mut self.size,
            Vary::Loss => &mut self.loss,
            Vary::Rate => &mut self.rate,
            Vary::Distance => self.distance.get_or_insert_default(),
            Vary::Sites => self.sites.get_or_insert_default(),
        }
    }
}

/// The values of a quantity to use if the user names none.
fn usual_values(vary: Vary) -> &'static [&'static str] {
    match vary {
        Vary::Size => {
            &["128 KiB", "1 MiB", "8 MiB", "32 MiB", "128 MiB", "512 MiB", "2 GiB", "8 GiB", "32 GiB", "128 GiB"]
        }
        Vary::Loss => &["1e-6", "1e-5", "1e-4", "1e-3", "3e-3", "1e-2", "2e-2", "3e-2", "5e-2", "1e-1"],
        Vary::Distance => {
            &["75 km", "750 km", "1500 km", "2250 km", "3000 km", "3750 km", "4500 km", "6000 km", "7500 km"]
        }
        Vary::Rate => &["100 Gbps", "200 Gbps", "400 Gbps", "800 Gbps", "1.6 Tbps"],
        Vary::Sites => &["2", "4", "8", "16"],
    }
}

/// Times that differ by less than this share count as equal. Then the scheme that is named first wins: it is the
/// simpler one.
const EQUAL: f64 = 1e-6;

/// The best scheme by `time`, and its lead.
fn best_of(schemes: &[&SchemeFacts], time: impl Fn(&SchemeFacts) -> f64) -> Best {
    if schemes.is_empty() {
        return Best { scheme: "none".into(), ..Best::default() };
    }
    let better = |a: &SchemeFacts, b: &SchemeFacts| time(b) < time(a) * (1.0 - EQUAL);
    let first = (1..schemes.len()).fold(0, |best, i| if better(schemes[best], schemes[i]) { i } else { best });
    let others = schemes.iter().enumerate().filter(|(i, _)| *i != first).map(|(_, s)| *s);
    let next = others.reduce(|best, s| if better(best, s) { s } else { best });
    let margin = next.map_or(0.0, |n| (time(n) / time(schemes[first]) - 1.0).max(0.0));
    Best { scheme: schemes[first].scheme.clone(), next: next.map(|n| n.scheme.clone()), margin }
}

#[cfg(test)]
mod tests;
