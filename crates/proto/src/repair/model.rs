//! The cost of reliability: the completion time of a message over a long link that loses chunks, retransmitted or
//! coded.
//!
//! This is the model of SDR-RDMA (arXiv 2505.05366), section 4 and appendix, with the staircase of whole rounds and an
//! exact sum over failed groups. It knows chunks, not bytes: a message of `M` chunks, each of which takes the time `T`
//! to send and is lost with probability `p`. Times are numbers in any one unit; results come in the same.
//!
//! All calculations use `+ - * /` only; the probability for many chunks is computed by repeated squaring. So every
//! machine gets the same bits, an engine may base decisions on them, and `1e-25` is as exact as `0.5`.
//!
//! ```
//! use strandway_proto::repair::Code;
//! use strandway_proto::repair::model::{Effort, Fallback, Transfer};
//!
//! // 128 MiB in chunks of 4 KiB over 3,750 km at 400 Gb/s; one chunk in 100,000 is lost. Times in milliseconds.
//! let transfer = Transfer { chunks: 32_768, chunk_time: 81.92e-6, rtt: 25.0, loss: 1e-5 };
//! let retransmitted = transfer.retransmitted(3.0 * transfer.rtt, Effort::FINE);
//! let code = Code::mds(32, 8).expect("a code");
//! let coded = transfer.coded(code, &Fallback::new(3.0 * transfer.rtt), Effort::FINE);
//! assert!((retransmitted.mean() / transfer.ideal() - 1.744).abs() < 0.01);
//! assert!((coded.mean() / transfer.ideal() - 1.024).abs() < 0.001);
//! ```

use super::{Code, CodeKind};

/// The largest number of parts of a [`Completion`].
const PARTS_MAX: usize = 64;

/// The largest loss probability that is calculated. A larger one is replaced by this, because then no message arrives
/// in useful time.
pub const LOSS_MAX: f64 = 0.9;

/// The largest number of retransmission rounds that are calculated; with a loss of 0.9, a million chunks need about 140
/// on average.
const ROUNDS_MAX: u32 = 2_000;

/// A message and its link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Chunks of the message, `M`.
    pub chunks: u64,
    /// The time to send a chunk, `T`: its bytes on the wire divided by the rate.
    pub chunk_time: f64,
    /// The round trip.
    pub rtt: f64,
    /// The probability that a chunk is lost, `p`, up to [`LOSS_MAX`]. See [`chunk_loss`] for chunks of several packets.
    pub loss: f64,
}

/// The precision of a result, and so its cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// The number of parts into which the outcomes of a coded transfer are grouped, at most 64.
    parts: usize,
    /// The number of points per round at which a distribution is evaluated.
    points: u32,
    /// Outcomes with a probability below this are left out.
    negligible: f64,
}

impl Effort {
    /// For tables: exact to about a thousandth. A result takes up to some milliseconds.
    pub const FINE: Effort = Effort { parts: PARTS_MAX, points: 64, negligible: 1e-12 };
    /// For decisions while messages wait: exact to about a hundredth. A result takes microseconds, or about a tenth of
    /// a millisecond with heavy loss.
    pub const QUICK: Effort = Effort { parts: 12, points: 16, negligible: 1e-6 };
}

/// The retransmission that follows when a code does not suffice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fallback {
    /// The timeout of the retransmissions that follow.
    pub rto: f64,
    /// The receiver asks for more `beta` round trips after the message should have been over. `beta` is 1 for a timeout
    /// of three round trips. SDR-RDMA §4.2.
    pub beta: f64,
    /// True: a failed group is sent again whole, as in the paper. False: only its missing chunks are.
    pub whole_groups: bool,
}

impl Fallback {
    /// As in the paper: `beta` is one, and whole groups are sent again.
    pub const fn new(rto: f64) -> Fallback {
        Fallback { rto, beta: 1.0, whole_groups: true }
    }
}

/// The probability that a chunk of `packets` packets is lost, that is, that at least one of them is. SDR-RDMA §4.3.
pub fn chunk_loss(packet_loss: f64, packets: u64) -> f64 {
    any_of(packet_loss, packets)
}

/// The probability that at least one of two independent events happens: `1 - (1 - a)(1 - b)`, calculated without a
/// difference of almost equal numbers.
fn either(a: f64, b: f64) -> f64 {
    a + b - a * b
}

/// The probability that at least one of `count` independent events happens, each with the probability `one`.
fn any_of(one: f64, mut count: u64) -> f64 {
    let (mut any, mut square) = (0.0, one);
    while count > 0 {
        if count % 2 == 1 {
            any = either(any, square);
        }
        square = either(square, square);
        count /= 2;
    }
    any
}

/// `base` to a whole power.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result *= base;
        }
        base *= base;
        exponent /= 2;
    }
    result
}

/// Calls `visit` with each number that has a relevant probability in a binomial distribution, in ascending order. The
/// probabilities are computed from the most probable number outwards, by the ratio of neighbours, so that small ones
/// are exact too.
fn binomial(count: u64, probability: f64, mut visit: impl FnMut(u64, f64)) {
    if probability >= 1.0 {
        return visit(count, 1.0);
    }
    let odds = probability / (1.0 - probability);
    let mode = (((count + 1) as f64 * probability) as u64).min(count);
    let up = |i: u64| (count - i) as f64 / (i + 1) as f64 * odds;
    // Weights relative to the mode: from the mode down to the first number, and the sum of all weights.
    let (mut first, mut weight, mut sum) = (mode, 1.0, 1.0);
    while first > 0 && weight > TINY {
        weight /= up(first - 1);
        first -= 1;
        sum += weight;
    }
    let lowest = weight;
    let (mut i, mut weight) = (mode, 1.0);
    while i < count && weight > TINY {
        weight *= up(i);
        i += 1;
        sum += weight;
    }
    let mut weight = lowest / sum;
    for number in first..=i {
        visit(number, weight);
        if number < count {
            weight *= up(number);
        }
    }
}

/// A binomial distribution is cut off at this share of its mode.
const TINY: f64 = 1e-60;

/// A sum ends when all further terms together are below this share of it.
const RELATIVE: f64 = 1e-15;

/// The probability that a code fails, and how many pieces of data are missing on average when it does.
pub fn failure(code: &Code, loss: f64) -> (f64, f64) {
    let (mut fails, mut missing) = (0.0, 0.0);
    let (k, m, all) = (code.data(), code.parity(), code.pieces());
    match code.kind() {
        CodeKind::Mds => binomial(all as u64, loss, |lost, probability| {
            if lost > m as u64 {
                fails += probability;
                missing += probability * lost as f64 * k as f64 / all as f64;
            }
        }),
        CodeKind::Xor => {
            // For each residue: its number of data chunks, and the probability that two or more are lost among these
            // and their parity chunk.
            let residues = (0..m).map(|residue| {
                let data = k / m + usize::from(residue < k % m);
                let mut two = 0.0;
                binomial(data as u64 + 1, loss, |lost, probability| two += if lost > 1 { probability } else { 0.0 });
                (data, two)
            });
            fails = residues.clone().fold(0.0, |any, (_, two)| either(any, two));
            // A data chunk of a residue is missing and the group can be repaired only if it is the residue's only loss
            // and no other residue fails.
            for (residue, (data, _)) in residues.clone().enumerate() {
                let others = residues.clone().enumerate().filter(|(other, _)| *other != residue);
                let elsewhere = others.fold(0.0, |any, (_, (_, two))| either(any, two));
                missing += data as f64 * loss * either(any_of(loss, data as u64), elsewhere);
            }
        }
    }
    (fails, if fails > 0.0 { missing / fails } else { 0.0 })
}

impl Transfer {
    /// The completion time without any loss: the sending time of all chunks, and one round trip for the last
    /// acknowledgement.
    pub fn ideal(&self) -> f64 {
        self.chunks as f64 * self.chunk_time + self.rtt
    }

    fn bounded(&self) -> Transfer {
        Transfer { loss: self.loss.clamp(0.0, LOSS_MAX), ..*self }
    }

    /// Selective repeat: each lost chunk is sent again `rto` after it was sent, until it arrives. In the paper, `rto`
    /// is three round trips with timeouts, and (at best) one with negative acknowledgements. Exact if the message takes
    /// no longer than `rto` to send, else a lower bound.
    pub fn retransmitted(&self, rto: f64, effort: Effort) -> Completion {
        let mut completion = Completion::new(self.bounded(), rto, effort);
        completion.push(Part { probability: 1.0, start: 0.0, chunks: self.chunks });
        completion
    }

    /// One code word per group of `k` chunks, and selective repeat of the groups that the code cannot repair. The last
    /// group is shortened ([`Code::shortened`]).
    pub fn coded(&self, code: Code, fallback: &Fallback, effort: Effort) -> Completion {
        let transfer = self.bounded();
        let mut completion = Completion::new(transfer, fallback.rto, effort);
        let (groups, rest) = (self.chunks / code.data() as u64, (self.chunks % code.data() as u64) as usize);
        let last = (rest > 0).then(|| code.shortened(rest));
        let again = |code: &Code| {
            let (fails, missing) = failure(code, transfer.loss);
            (fails, if fallback.whole_groups { code.data() as f64 } else { missing })
        };
        let (fails, size) = again(&code);
        let (last_fails, last_size) = last.as_ref().map_or((0.0, 0.0), again);
        let parity = groups * code.parity() as u64 + last.map_or(0, |l| l.parity() as u64);
        completion.sent = self.chunks + parity;
        let sent = completion.sent as f64 * self.chunk_time;
        let repair = sent + (1.0 + fallback.beta) * self.rtt;
        completion.fallback = either(any_of(fails, groups), last_fails);
        completion.push(Part { probability: 1.0 - completion.fallback, start: sent, chunks: 0 });
        // Outcomes with similar numbers of failed groups are merged, so that there are at most `effort.parts` parts.
        let (mut lowest, mut highest) = (u64::MAX, 0);
        binomial(groups, fails, |failed, probability| {
            if probability > effort.negligible {
                (lowest, highest) = (lowest.min(failed), highest.max(failed));
            }
        });
        let room = (effort.parts - 1) / if last.is_some() { 2 } else { 1 };
        let step = (highest + 1).saturating_sub(lowest).div_ceil(room.max(1) as u64).max(1);
        for (last_failed, share) in [(0.0, 1.0 - last_fails), (1.0, last_fails)] {
            let (mut probability, mut sum, mut end) = (0.0, 0.0, lowest.saturating_add(step));
            let mut close = |probability: &mut f64, sum: &mut f64| {
                let chunks = *sum / *probability * size + last_failed * last_size;
                if *probability * share > effort.negligible {
                    let chunks = (chunks + 0.5) as u64;
                    completion.push(Part { probability: *probability * share, start: repair, chunks: chunks.max(1) });
                }
                (*probability, *sum) = (0.0, 0.0);
            };
            binomial(groups, fails, |failed, weight| {
                if failed < lowest || failed > highest || (failed == 0 && last_failed == 0.0) {
                    return;
                }
                if failed >= end {
                    close(&mut probability, &mut sum);
                    end += step;
                }
                probability += weight;
                sum += weight * failed as f64;
            });
            close(&mut probability, &mut sum);
        }
        completion
    }
}

/// One possible course of a transfer.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    probability: f64,
    /// When selective repeat begins.
    start: f64,
    /// The number of chunks that selective repeat has to bring.
    chunks: u64,
}

/// The distribution of a message's completion time, measured at the sender: from the first chunk sent to the last
/// acknowledgement.
#[derive(Clone, Debug)]
pub struct Completion {
    transfer: Transfer,
    /// The cost of a loss: the timeout, and sending the chunk again.
    round: f64,
    effort: Effort,
    fallback: f64,
    /// The number of chunks that are sent before any retransmission: data and parity of a code; zero without a code.
    sent: u64,
    parts: [Part; PARTS_MAX],
    used: usize,
}

impl Completion {
    fn new(transfer: Transfer, rto: f64, effort: Effort) -> Completion {
        let round = rto + transfer.chunk_time;
        Completion { transfer, round, effort, fallback: 0.0, sent: 0, parts: [Part::default(); PARTS_MAX], used: 0 }
    }

    fn push(&mut self, part: Part) {
        self.parts[self.used] = part;
        self.used += 1;
    }

    fn parts(&self) -> &[Part] {
        &self.parts[..self.used]
    }

    /// The probability that the code cannot repair some group, so that selective repeat begins; zero without a code.
    pub fn fallback(&self) -> f64 {
        self.fallback
    }

    /// The average number of chunks sent, parity and retransmissions included.
    pub fn chunks_sent(&self) -> f64 {
        let repaired: f64 = self.parts().iter().map(|part| part.probability * part.chunks as f64).sum();
        self.sent as f64 + repaired / (1.0 - self.transfer.loss)
    }

    /// The mean completion time.
    pub fn mean(&self) -> f64 {
        let parts = self.parts().iter();
        let sum: f64 =
            parts.clone().map(|part| part.probability * (self.first(part) + self.mean_delay(part.chunks))).sum();
        sum / parts.map(|part| part.probability).sum::<f64>()
    }

    /// The completion time that the given share of all messages (for example 0.999) does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut low = self.parts().iter().map(|part| self.first(part)).fold(f64::INFINITY, f64::min);
        if self.at_most(low) >= share {
            return low;
        }
        // The step doubles until the share is reached; then bisection.
        let (mut step, mut high) = (self.round, low + self.round);
        while self.at_most(high) < share && step.is_finite() {
            step *= 2.0;
            (low, high) = (high, high + step);
        }
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            if self.at_most(middle) >= share { high = middle } else { low = middle }
        }
        high
    }

    /// The probability that the message is complete at this time.
    pub fn at_most(&self, time: f64) -> f64 {
        let reached = self.parts().iter().filter(|part| time >= self.first(part));
        reached.map(|part| part.probability * (1.0 - self.later_than(part.chunks, time - self.first(part)))).sum()
    }

    /// Draws from the distribution.
    pub fn sampler(&self) -> Sampler {
        let mut reached = 0.0;
        let parts = self.parts().iter().map(|part| {
            reached += part.probability;
            let mut delays = Vec::new();
            self.walk(part.chunks, |start, _, later| delays.push((1.0 - later, start)));
            Branch { reached, first: self.first(part), delays }
        });
        Sampler { branches: parts.collect() }
    }

    /// The completion time of a part without further losses.
    fn first(&self, part: &Part) -> f64 {
        part.start + part.chunks as f64 * self.transfer.chunk_time + self.transfer.rtt
    }

    /// The average delay of selective repeat by losses.
    fn mean_delay(&self, chunks: u64) -> f64 {
        let mut mean = 0.0;
        self.walk(chunks, |_, length, later| mean += length * later);
        mean
    }

    /// Visits the intervals of the delay by losses: calls `visit` with the start of each interval, its length, and the
    /// probability that the delay exceeds its middle.
    fn walk(&self, chunks: u64, mut visit: impl FnMut(f64, f64, f64)) {
        if chunks == 0 {
            return;
        }
        // The chunk `d` places before the last one was sent `d T` earlier. So the probability changes only in the last
        // `window` of each round.
        let all = (chunks - 1) as f64 * self.transfer.chunk_time;
        let window = if all < self.round { all } else { self.round };
        let flat = self.round - window;
        let points =
            if all < self.round { u64::from(self.effort.points).min(chunks - 1) as u32 } else { self.effort.points };
        for round in 0..ROUNDS_MAX {
            let start = f64::from(round) * self.round;
            let later = self.later_than(chunks, start);
            if later < self.effort.negligible {
                // Add an interval of length zero, so that a certain outcome has an interval too.
                return visit(start, 0.0, 0.0);
            }
            if flat > 0.0 {
                visit(start, flat, later);
            }
            for point in 0..points {
                let cell = window / f64::from(points);
                let at = start + flat + f64::from(point) * cell;
                visit(at, cell, self.later_than(chunks, at + cell / 2.0));
            }
        }
    }

    /// The probability that losses delay selective repeat of `chunks` chunks by more than `delay`.
    fn later_than(&self, chunks: u64, delay: f64) -> f64 {
        if chunks == 0 {
            return 0.0;
        }
        // The chunk `d` places before the last one has had `floor((delay + d T) / round)` rounds. `counted` chunks are
        // included in `later` so far.
        let chunk_time = self.transfer.chunk_time;
        let mut rounds = (delay / self.round) as u64;
        let mut lost = power(self.transfer.loss, rounds + 1);
        let (mut later, mut counted) = (0.0, 0);
        while counted < chunks {
            // The first chunk that has had more rounds.
            let next = ((rounds + 1) as f64 * self.round - delay) / chunk_time;
            let mut end = next as u64;
            end += u64::from((end as f64) < next);
            let end = end.clamp(counted, chunks);
            let group = any_of(lost, end - counted);
            later = either(later, group);
            if lost * (chunks - end) as f64 <= RELATIVE * later {
                break;
            }
            (counted, rounds, lost) = (end, rounds + 1, lost * self.transfer.loss);
        }
        later
    }
}

/// Draws completion times.
#[derive(Clone, Debug)]
pub struct Sampler {
    branches: Vec<Branch>,
}

/// A part of a [`Completion`], prepared for drawing.
#[derive(Clone, Debug)]
struct Branch {
    /// The probability of this branch or one before it.
    reached: f64,
    /// The completion time without further losses.
    first: f64,
    /// Pairs of a probability, in ascending order, and the delay that is not exceeded with this probability.
    delays: Vec<(f64, f64)>,
}

impl Sampler {
    /// A completion time. `outcome` and `delay` are two random numbers, uniform in [0, 1).
    pub fn draw(&self, outcome: f64, delay: f64) -> f64 {
        // Rounding may leave the last branch a little short of one.
        let branch = self.branches.iter().find(|b| outcome < b.reached).unwrap_or(&self.branches[0]);
        let at = branch.delays.partition_point(|(reached, _)| *reached <= delay);
        branch.first + branch.delays.get(at).or(branch.delays.last()).map_or(0.0, |(_, delay)| *delay)
    }
}
