//! Answers of the model of long, lossy links. `strandway-reproduce` calculates them.

use crate::report::to_json;
use serde::Serialize;

/// The answers to an inquiry.
#[derive(Clone, Debug, Serialize)]
pub struct Answers {
    /// Version of this format.
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// The quantity that was varied.
    pub vary: Option<Vary>,
    /// One row, or one row per value.
    pub rows: Vec<Answer>,
}

impl Answers {
    /// As JSON.
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

/// The schemes for one link and one message.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Answer {
    /// The varied value as written; empty if nothing is varied.
    pub at: String,
    /// The varied value as a number: bytes, a share, metres, bits per second or sites.
    pub value: f64,
    /// Bytes of the message or buffer.
    pub bytes: u64,
    /// The link's rate in bits per second.
    pub rate_bps: u64,
    /// The round trip.
    pub rtt_us: f64,
    /// The share of lost packets.
    pub packet_loss: f64,
    /// Payload of a packet in bytes.
    pub payload: u64,
    /// Chunks of a message; with several sites, of one step.
    pub chunks: u64,
    /// The share of lost chunks.
    pub chunk_loss: f64,
    /// Sites of the all-reduce; absent for a single message.
    pub sites: Option<u32>,
    /// The payload that the receiver's threads take, in Gb/s; absent if receiving takes no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_gbps: Option<f64>,
    /// The time without losses.
    pub ideal_us: f64,
    /// One entry for each scheme.
    pub schemes: Vec<SchemeFacts>,
    /// The best scheme by mean.
    pub best_mean: Best,
    /// The best scheme by 99.9th percentile.
    pub best_p999: Best,
}

/// The times of one scheme.
#[derive(Clone, Debug, Serialize)]
pub struct SchemeFacts {
    /// Its name.
    pub scheme: String,
    /// The mean completion time.
    pub mean_us: f64,
    /// The 99.9th percentile of the completion time.
    pub p999_us: f64,
    /// The mean, divided by the time without losses.
    pub mean_slowdown: f64,
    /// The 99.9th percentile, divided by the time without losses.
    pub p999_slowdown: f64,
    /// The probability that the code cannot repair some group; absent for schemes without a code.
    pub fallback: Option<f64>,
    /// Parity and retransmissions on the wire, divided by the data.
    pub overhead: f64,
    /// The cores that encode at the link's rate; absent for schemes without a code.
    pub encode_cores: Option<f64>,
}

/// The best scheme and its lead.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Best {
    /// The best scheme; among equal ones, the first.
    pub scheme: String,
    /// The next best scheme; absent if there is no other.
    pub next: Option<String>,
    /// The share by which the next best scheme takes longer.
    pub margin: f64,
}

/// The quantities that can be varied, with a row for each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Vary {
    /// Bytes of the message.
    Size,
    /// The share of lost packets.
    Loss,
    /// Kilometres.
    Distance,
    /// Bits per second.
    Rate,
    /// Sites of a ring all-reduce.
    Sites,
}

impl Vary {
    /// The name of its axis, and the divisor of values on that axis.
    pub(crate) fn axis(self) -> (&'static str, f64) {
        match self {
            Vary::Size => ("size, MiB", 1_048_576.0),
            Vary::Loss => ("packets lost per million", 1e-6),
            Vary::Distance => ("distance, km", 1e3),
            Vary::Rate => ("rate, Gb/s", 1e9),
            Vary::Sites => ("sites", 1.0),
        }
    }

    /// Its name in headings.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Vary::Size => "size",
            Vary::Loss => "loss",
            Vary::Distance => "distance",
            Vary::Rate => "rate",
            Vary::Sites => "sites",
        }
    }
}
