//! Numbers of a set that a model calculates; they need no run.

use crate::model::{Inquiry, Scheme, ask};
use strandway_report::answers::SchemeFacts;
use strandway_scenario::propagation::Rule;

/// A question to the model.
#[derive(Clone, Debug)]
pub(super) struct Modelled {
    /// The command line of the inquiry, which is about one scheme. Models are ordered by it.
    command: String,
    inquiry: Inquiry,
    wanted: Wanted,
}

/// The number of the answer that is wanted.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// A number of the scheme, with its name in the answer's JSON.
    Facts(&'static str, fn(&SchemeFacts) -> f64),
    /// The probability that of this number of times the largest (1) or the second largest (2) is at least this slowdown.
    Reach(f64, u32, u32),
    /// The payload that the receiver's threads take, in Gb/s.
    Received,
    /// The share of lost chunks.
    ChunkLoss,
    /// The distance in kilometres beyond which the second scheme is faster on average than the first one.
    Crossover,
}

impl PartialEq for Modelled {
    fn eq(&self, other: &Modelled) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Modelled {}

impl PartialOrd for Modelled {
    fn partial_cmp(&self, other: &Modelled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Modelled {
    fn cmp(&self, other: &Modelled) -> std::cmp::Ordering {
        (&self.command, self.key()).cmp(&(&other.command, other.key()))
    }
}

/// The longest distance to consider: half of the equator.
const KM_MAX: f64 = 20_000.0;

impl Modelled {
    fn new(inquiry: Inquiry, wanted: Wanted) -> Modelled {
        Modelled { command: inquiry.command(), inquiry, wanted }
    }

    /// The mean completion time of one scheme.
    pub(super) fn mean(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("mean_us", |s| s.mean_us))
    }

    /// The 99.9th percentile of the completion time of one scheme.
    pub(super) fn p999(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("p999_us", |s| s.p999_us))
    }

    /// The mean, divided by the time without losses.
    pub(super) fn mean_slowdown(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("mean_slowdown", |s| s.mean_slowdown))
    }

    /// The 99.9th percentile, divided by the time without losses.
    pub(super) fn p999_slowdown(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("p999_slowdown", |s| s.p999_slowdown))
    }

    /// The cores that encode at the link's rate, for one scheme with a code.
    pub(super) fn encode_cores(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Facts("encode_cores", |s| s.encode_cores.unwrap_or(f64::NAN)))
    }

    /// The share of lost chunks.
    pub(super) fn chunk_loss(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::ChunkLoss)
    }

    /// The payload that the receiver's threads take, in Gb/s.
    pub(super) fn received(inquiry: Inquiry) -> Modelled {
        Modelled::new(inquiry, Wanted::Received)
    }

    /// The probability that of `samples` times of one scheme the largest (rank 1) or the second largest (rank 2) is at
    /// least `slowdown` times the time without losses.
    pub(super) fn reach(inquiry: Inquiry, slowdown: f64, samples: u32, rank: u32) -> Modelled {
        Modelled::new(inquiry, Wanted::Reach(slowdown, samples, rank))
    }

    /// The distance in kilometres, by the paper's rule, beyond which the second of two schemes is faster than the first
    /// one.
    pub(super) fn crossover(inquiry: Inquiry) -> Modelled {
        Modelled::new(Inquiry { rule: Rule::Paper, ..inquiry }, Wanted::Crossover)
    }

    /// The command line that prints the number.
    pub(super) fn command(&self) -> String {
        match self.wanted {
            Wanted::Facts(..) | Wanted::Reach(..) | Wanted::Received | Wanted::ChunkLoss => self.command.clone(),
            Wanted::Crossover => format!("{} --vary distance", self.command),
        }
    }

    /// The number's name in the answer.
    pub(super) fn key(&self) -> &'static str {
        match self.wanted {
            Wanted::Facts(key, _) => key,
            // The command prints the mean and a percentile of the same distribution.
            Wanted::Reach(_, _, 1) => "reach",
            Wanted::Reach(..) => "reach_twice",
            Wanted::Received => "receive_gbps",
            Wanted::ChunkLoss => "chunk_loss",
            Wanted::Crossover => "crossover_km",
        }
    }

    /// The number; `None` if the inquiry is wrong, which a test excludes.
    pub(super) fn calculate(&self) -> Option<f64> {
        match self.wanted {
            Wanted::Facts(_, of) => Some(of(ask(&self.inquiry).ok()?.rows.first()?.schemes.first()?)),
            Wanted::Reach(slowdown, samples, rank) => crate::model::reach(&self.inquiry, slowdown, samples, rank),
            Wanted::ChunkLoss => Some(ask(&self.inquiry).ok()?.rows.first()?.chunk_loss),
            Wanted::Received => ask(&self.inquiry).ok()?.rows.first()?.receive_gbps,
            Wanted::Crossover => {
                // Positive if the second scheme is faster.
                let gain = |km: f64| -> Option<f64> {
                    let distance = Some(format!("{:.0} m", km * 1e3));
                    let answers = ask(&Inquiry { distance, ..self.inquiry.clone() }).ok()?;
                    let [first, second] = &answers.rows.first()?.schemes[..] else { return None };
                    Some(first.mean_us - second.mean_us)
                };
                let (mut low, mut high) = (1.0, KM_MAX);
                if gain(low)? > 0.0 || gain(high)? < 0.0 {
                    return None;
                }
                while high - low > 1.0 {
                    let middle = (low + high) / 2.0;
                    if gain(middle)? > 0.0 { high = middle } else { low = middle }
                }
                Some(high)
            }
        }
    }
}

/// The schemes that the paper compares.
pub(super) fn scheme(name: &str) -> Scheme {
    name.parse().unwrap_or_else(|_| panic!("`{name}` is a scheme"))
}
