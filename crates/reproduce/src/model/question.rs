//! Turns an inquiry into quantities, quantities into the model's transfer, and the transfer into an answer.

use super::{Inquiry, Scheme, best_of, ring};
use strandway_fabric::plan::ReceiveSettings;
use strandway_fabric::quantity::{self, QuantityError};
use strandway_import::{Problem, Problems};
use strandway_proto::repair::encode_cores;
use strandway_proto::repair::model::{Completion, Effort, Fallback, LOSS_MAX, Transfer, chunk_loss};
use strandway_proto::units::Rate;
use strandway_report::answers::{Answer, SchemeFacts, Vary};

/// The default round trip: 3,750 km by the paper's rule.
const RTT_US: f64 = 25_000.0;

/// Limit on the share of lost packets.
const PACKET_LOSS_MAX: f64 = 0.5;

/// Limit on the chunks of a message: more would take seconds, and need no model.
const CHUNKS_MAX: u64 = 1_000_000_000_000;

/// Limit on the sites of a ring.
const SITES_MAX: u32 = 64;

/// A checked inquiry about one link and one message.
#[derive(Clone, Debug)]
pub(super) struct Question {
    bytes: u64,
    rate_bps: u64,
    metres: Option<u64>,
    rtt_us: f64,
    packet_loss: f64,
    payload: u64,
    sites: Option<u32>,
    /// The message, or the message of one step; times in microseconds.
    pub(super) transfer: Transfer,
    fallback: Fallback,
    schemes: Vec<Scheme>,
    /// The rate of the data on the link, and the rate at which one core encodes.
    data: Rate,
    one_core: Rate,
    cores: Option<u32>,
    /// The payload that the receiver's threads take, in Gb/s.
    receive_gbps: Option<f64>,
    samples: u32,
    seed: u64,
}

impl Question {
    /// Reads an inquiry, or returns all its problems.
    pub(super) fn read(inquiry: &Inquiry) -> Result<Question, Problems> {
        let mut problems = Problems::default();
        let bytes = take(&mut problems, "--size", &inquiry.size, |t| quantity::bytes(t).map(|b| b.0));
        let rate = take(&mut problems, "--rate", &inquiry.rate, |t| at_least(1, quantity::rate(t).map(|r| r.0)));
        let rtt = inquiry.rtt.as_ref().map(|t| take(&mut problems, "--rtt", t, |t| quantity::span(t).map(|s| s.0)));
        let metres = inquiry.distance.as_ref().map(|t| take(&mut problems, "--distance", t, quantity::distance));
        let packet_loss = take(&mut problems, "--loss", &inquiry.loss, loss);
        let payload =
            take(&mut problems, "--payload", &inquiry.payload, |t| at_least(1, quantity::bytes(t).map(|b| b.0)));
        let header = take(&mut problems, "--header", &inquiry.header, |t| quantity::bytes(t).map(|b| b.0));
        let one_core =
            take(&mut problems, "--encode-rate", &inquiry.encode_rate, |t| at_least(1, quantity::rate(t).map(|r| r.0)));
        let sites = inquiry.sites.as_ref().map(|t| take(&mut problems, "--sites", t, sites));
        let mut refuse = |key: &str, what: &str, remedy: &str| {
            problems.0.push(Problem {
                file: String::new(),
                line: None,
                key: String::new(),
                value: key.to_string(),
                what: what.to_string(),
                remedy: remedy.to_string(),
            });
        };
        if rtt.is_some() && metres.is_some() {
            refuse("--rtt", "is given together with --distance", "give one of the two");
        }
        if inquiry.chunk == 0 {
            refuse("--chunk 0", "a chunk has at least one packet", "write, say, --chunk 1");
        }
        if !(inquiry.alpha >= 0.0 && inquiry.alpha.is_finite()) {
            refuse("--alpha", "must be a number from zero on", "write, say, --alpha 2");
        }
        if !(inquiry.beta >= 0.0 && inquiry.beta.is_finite()) {
            refuse("--beta", "must be a number from zero on", "write, say, --beta 1");
        }
        if let Some((key, what, remedy)) = receive_problem(inquiry) {
            refuse(key, what, remedy);
        }
        if inquiry.samples == 0 {
            refuse("--samples 0", "at least one all-reduce must be drawn", "write, say, --samples 20000");
        }
        if inquiry.schemes.is_empty() {
            refuse("--scheme", "names no scheme", "write, say, --scheme sr_rto --scheme mds:32,8");
        }
        if !problems.0.is_empty() {
            return Err(problems);
        }
        let rtt_us = match (rtt, metres) {
            (Some(rtt), _) => rtt as f64 / 1e6,
            (None, Some(metres)) => 2.0 * inquiry.rule.latency(metres).0 as f64 / 1e6,
            (None, None) => RTT_US,
        };
        // In each step of a ring, a site sends one part of the buffer; there is one part per site. Even a message
        // without bytes is one packet.
        let step = bytes.div_ceil(u64::from(sites.unwrap_or(1))).max(1);
        let chunk = u128::from(payload) * u128::from(inquiry.chunk);
        let sent = (payload + header) as f64 * 8e6 / rate as f64;
        let received = inquiry.receive_threads.map(|threads| receive_us(inquiry, threads));
        let transfer = Transfer {
            chunks: u128::from(step).div_ceil(chunk) as u64,
            chunk_time: inquiry.chunk as f64 * sent.max(received.unwrap_or(0.0)),
            rtt: rtt_us,
            loss: chunk_loss(packet_loss, inquiry.chunk),
        };
        if transfer.chunks > CHUNKS_MAX {
            let what = format!("{} chunks are more than {CHUNKS_MAX}", transfer.chunks);
            return Err(Problems::with_file("", what, "ask for a smaller --size, or more --payload or --chunk"));
        }
        if transfer.loss > LOSS_MAX {
            let what = format!(
                "with {} packets per chunk, a share of {:.2} of the chunks is lost",
                inquiry.chunk, transfer.loss
            );
            return Err(Problems::with_file(
                "",
                what,
                format!("ask for a smaller --chunk, so that it is at most {LOSS_MAX}"),
            ));
        }
        let rto = (1.0 + inquiry.alpha) * rtt_us;
        Ok(Question {
            bytes,
            rate_bps: rate,
            metres,
            rtt_us,
            packet_loss,
            payload,
            sites,
            transfer,
            fallback: Fallback { beta: inquiry.beta, whole_groups: inquiry.whole_groups, ..Fallback::new(rto) },
            schemes: inquiry.schemes.clone(),
            data: Rate(rate).scaled(payload as f64 / (payload + header) as f64),
            one_core: Rate(one_core),
            cores: inquiry.cores,
            receive_gbps: received.map(|us| payload as f64 * 8.0 / us / 1e3),
            samples: inquiry.samples,
            seed: inquiry.seed,
        })
    }

    /// The varied quantity as a number.
    pub(super) fn number(&self, vary: Vary) -> f64 {
        match vary {
            Vary::Size => self.bytes as f64,
            Vary::Loss => self.packet_loss,
            Vary::Distance => self.metres.unwrap_or(0) as f64,
            Vary::Rate => self.rate_bps as f64,
            Vary::Sites => f64::from(self.sites.unwrap_or(1)),
        }
    }

    fn completion(&self, scheme: Scheme) -> Completion {
        match scheme {
            Scheme::SrRto => self.transfer.retransmitted(self.fallback.rto, Effort::FINE),
            Scheme::SrNack => self.transfer.retransmitted(self.rtt_us, Effort::FINE),
            Scheme::Coded(code) => self.transfer.coded(code, &self.fallback, Effort::FINE),
        }
    }

    /// The probability that of `samples` completion times the largest (rank 1) or the second largest (rank 2) is at least
    /// `slowdown` times the ideal one.
    pub(super) fn reach(&self, scheme: Scheme, slowdown: f64, samples: u32, rank: u32) -> f64 {
        let below = self.completion(scheme).at_most(slowdown * self.transfer.ideal());
        let samples = f64::from(samples);
        let once = if rank > 1 { samples * (1.0 - below) * below.powf(samples - 1.0) } else { 0.0 };
        1.0 - below.powf(samples) - once
    }

    /// The times of all schemes, and the best scheme.
    pub(super) fn answer(&self, at: String, value: f64) -> Answer {
        let steps = self.sites.map_or(1, |n| 2 * (n - 1));
        let ideal_us = f64::from(steps) * self.transfer.ideal();
        let facts = |scheme: &Scheme| {
            let completion = self.completion(*scheme);
            let (mean_us, p999_us) = match self.sites {
                None => (completion.mean(), completion.quantile(0.999)),
                Some(sites) => ring::all_reduce(&completion, sites, self.samples, self.seed),
            };
            // The code may fail at every step of every site.
            let messages = u64::from(steps * self.sites.unwrap_or(1));
            SchemeFacts {
                scheme: scheme.to_string(),
                mean_us,
                p999_us,
                mean_slowdown: mean_us / ideal_us,
                p999_slowdown: p999_us / ideal_us,
                fallback: matches!(scheme, Scheme::Coded(_)).then(|| chunk_loss(completion.fallback(), messages)),
                overhead: completion.chunks_sent() / self.transfer.chunks as f64 - 1.0,
                encode_cores: match scheme {
                    Scheme::Coded(code) => Some(encode_cores(code, self.data, self.one_core)),
                    Scheme::SrRto | Scheme::SrNack => None,
                },
            }
        };
        let schemes: Vec<SchemeFacts> = self.schemes.iter().map(facts).collect();
        let enough = |s: &&SchemeFacts| self.cores.zip(s.encode_cores).is_none_or(|(all, one)| one <= f64::from(all));
        let able: Vec<&SchemeFacts> = schemes.iter().filter(enough).collect();
        Answer {
            at,
            value,
            bytes: self.bytes,
            rate_bps: self.rate_bps,
            rtt_us: self.rtt_us,
            packet_loss: self.packet_loss,
            payload: self.payload,
            chunks: self.transfer.chunks,
            chunk_loss: self.transfer.loss,
            sites: self.sites,
            receive_gbps: self.receive_gbps,
            ideal_us,
            best_mean: best_of(&able, |s| s.mean_us),
            best_p999: best_of(&able, |s| s.p999_us),
            schemes,
        }
    }
}

/// A mistake in the values of the receiver's threads: the flag, the reason and the remedy.
fn receive_problem(inquiry: &Inquiry) -> Option<(&'static str, &'static str, &'static str)> {
    let (mpps, knee) = (inquiry.receive_mpps, inquiry.receive_knee);
    if inquiry.receive_threads == Some(0) {
        return Some(("--receive-threads 0", "no thread receives anything", "write, say, --receive-threads 16"));
    }
    if !(mpps > 0.0 && mpps.is_finite()) {
        return Some(("--receive-mpps", "must be a number above zero", "write, say, --receive-mpps 1.456"));
    }
    let wrong = !(knee >= 0.0 && knee.is_finite());
    wrong.then_some(("--receive-knee", "must be a number from zero on", "write, say, --receive-knee 124"))
}

/// The time in microseconds from one packet to the next at the receiver's threads.
fn receive_us(inquiry: &Inquiry, threads: u32) -> f64 {
    let chunk = u32::try_from(inquiry.chunk).unwrap_or(u32::MAX);
    ReceiveSettings::new(threads, inquiry.receive_mpps, inquiry.receive_knee, chunk, 1).per_packet.0 as f64 / 1e6
}

/// Reads one quantity; a mistake is added to the problems.
fn take<T: Default>(
    problems: &mut Problems,
    flag: &str,
    text: &str,
    read: impl Fn(&str) -> Result<T, QuantityError>,
) -> T {
    read(text).unwrap_or_else(|error| {
        problems.0.push(Problem {
            file: String::new(),
            line: None,
            key: String::new(),
            value: format!("{flag} {text}"),
            what: error.what,
            remedy: error.remedy,
        });
        T::default()
    })
}

fn at_least(least: u64, read: Result<u64, QuantityError>) -> Result<u64, QuantityError> {
    let small = || QuantityError { what: "must be more than zero".into(), remedy: "write a larger number".into() };
    read.and_then(|value| if value >= least { Ok(value) } else { Err(small()) })
}

/// A share: a number, perhaps with a power of ten, or a percentage.
fn loss(text: &str) -> Result<f64, QuantityError> {
    let value = text.trim().parse().or_else(|_| quantity::ratio(text))?;
    if (0.0..=PACKET_LOSS_MAX).contains(&value) {
        return Ok(value);
    }
    let what = format!("the share of lost packets must be between 0 and {PACKET_LOSS_MAX}");
    Err(QuantityError { what, remedy: "write, say, 1e-5 or 0.1%".into() })
}

fn sites(text: &str) -> Result<u32, QuantityError> {
    text.trim().parse().ok().filter(|n| (2..=SITES_MAX).contains(n)).ok_or_else(|| QuantityError {
        what: format!("a ring has 2 to {SITES_MAX} sites"),
        remedy: "write, say, 4".into(),
    })
}
