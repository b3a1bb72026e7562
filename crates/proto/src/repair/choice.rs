//! Chooses the scheme for each message (`sdr_auto`): it measures loss, bursts and round trip on the connection, and
//! asks the model.
//!
//! SDR-RDMA (section 4.3) has the model and leaves the choice to an operator; the automatic choice for each message is
//! ours.

use super::model::{Completion, Effort, Fallback, Transfer, chunk_loss};
use super::{Code, Plan, SdrAutoConfig};
use crate::units::{Rate, Span};

/// The number of plans to choose from; every packet carries its plan's number.
pub const PLANS: usize = 6;

/// Packets of a chunk, and parity of 32 data chunks; ours: the splits that SDR-RDMA's figure 10 compares.
const MENU: [(u32, u32); PLANS] = [(1, 0), (16, 0), (1, 2), (1, 4), (1, 8), (1, 16)];

/// Data chunks of a submessage.
const K: u32 = 32;

/// Before the first measurement, the assumed loss is one packet in 2,000. Ours.
const PRIOR_LOST: f64 = 0.5;
const PRIOR_SENT: f64 = 1_000.0;
/// The smallest loss probability that is used.
const LOSS_MIN: f64 = 1e-7;
/// When this many packets have been counted, all counts are halved, so that older losses weigh less. Ours.
const MEMORY: f64 = 262_144.0;
/// The plan changes only if the best score is below the present plan's score times this factor. Ours.
const BETTER: f64 = 0.95;

/// Data that one core encodes with MDS(32,8), pieces of 4,096 B from memory: 10.6 GB/s with GFNI and AVX-512
/// (`docs/measurements/erasure-codes.md`). With fewer pieces of parity, and by XOR, memory limits it to about the same.
pub const ENCODE_RATE: Rate = Rate(85_000_000_000);

/// Pieces of parity up to which memory and not arithmetic limits the rate.
const PARITY_BY_MEMORY: f64 = 8.0;

/// The number of cores that encode data at `rate` if one of them encodes `one_core` with up to eight pieces of parity.
pub fn encode_cores(code: &Code, rate: Rate, one_core: Rate) -> f64 {
    rate.0 as f64 / one_core.0 as f64 * (code.parity() as f64 / PARITY_BY_MEMORY).max(1.0)
}

/// The plan with this number: `reorder` chunks may overtake, `group` submessages make a group.
pub(super) fn plan(number: u8, reorder: u32, group: u32) -> Option<Plan> {
    let &(chunk, m) = MENU.get(usize::from(number))?;
    let code = if m > 0 { Code::mds(K as usize, m as usize).ok() } else { None };
    let striped = code.is_some();
    Some(Plan { chunk, reorder: code.is_none().then_some(reorder), code, group, striped })
}

/// The choices so far on a connection, and the measurements behind them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    /// The number of messages with each plan.
    pub messages: [u64; PLANS],
    /// The measured share of packets that are lost.
    pub loss: f64,
    /// The measured average number of packets lost in a row.
    pub burst: f64,
    /// The measured round trip.
    pub rtt: Span,
    /// The plan of the last message, and the mean and the 99.9th percentile of the completion time that the model
    /// expected.
    pub last: Option<(u8, Span, Span)>,
    /// The best other plan for that message, with the same two times.
    pub next: Option<(u8, Span, Span)>,
}

impl Choices {
    /// The name of a plan, for reports.
    pub fn name(plan: u8) -> String {
        match plan_code(plan) {
            Some(code) => code.to_string(),
            None if plan == 0 => "NACKs".to_string(),
            None => format!("NACKs, {} packets a chunk", MENU.get(usize::from(plan)).map_or(1, |p| p.0)),
        }
    }
}

fn plan_code(number: u8) -> Option<Code> {
    plan(number, 0, 1)?.code
}

/// A connection's measurements.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// The number of packets sent once whose arrival or loss is known.
    sent: f64,
    lost: f64,
    /// Runs of lost packets.
    runs: f64,
}

/// A message and its link, rounded. If the next message gives the same question, the same plan is used without asking
/// the model again.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Question {
    packets: u32,
    loss: f64,
    burst: u32,
    rtt: u64,
}

/// A number rounded down to its leading binary digits: the exponent and two bits of the fraction.
fn rough(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & !((1 << 50) - 1))
}

/// Chooses plans for the messages of one connection.
#[derive(Debug)]
pub(super) struct Chooser {
    measured: Measured,
    config: SdrAutoConfig,
    /// Payload of a full packet.
    mtu: u32,
    current: u8,
    answered: Option<(Question, u8)>,
    choices: Choices,
}

impl Chooser {
    pub(super) fn new(config: SdrAutoConfig, mtu: u32) -> Chooser {
        let measured = Measured { sent: PRIOR_SENT, lost: PRIOR_LOST, runs: PRIOR_LOST };
        let (loss, burst) = (PRIOR_LOST / PRIOR_SENT, 1.0);
        let choices = Choices { messages: [0; PLANS], loss, burst, rtt: Span::ZERO, last: None, next: None };
        Chooser { measured, config, mtu, current: 0, answered: None, choices }
    }

    /// Adds a measurement: of `packets` packets, `lost` were lost, in `runs` runs.
    pub(super) fn learn(&mut self, packets: u32, lost: u32, runs: u32) {
        let Measured { sent, lost: all_lost, runs: all_runs } = &mut self.measured;
        *sent += f64::from(packets);
        *all_lost += f64::from(lost);
        *all_runs += f64::from(runs);
        if *sent > MEMORY {
            (*sent, *all_lost, *all_runs) = (*sent / 2.0, *all_lost / 2.0, *all_runs / 2.0);
        }
    }

    /// The plan for a message of `packets` packets, each of which takes the time `packet` to send.
    pub(super) fn choose(&mut self, packets: u32, packet: Span, rtt: Span) -> u8 {
        let Measured { sent, lost, runs } = self.measured;
        let loss = (lost / sent).clamp(LOSS_MIN, 0.9);
        let burst = if runs > 0.0 { (lost / runs).max(1.0) } else { 1.0 };
        (self.choices.loss, self.choices.burst, self.choices.rtt) = (loss, burst, rtt);
        let question = Question {
            packets: (rough(f64::from(packets)) as u32).max(1),
            loss: rough(loss),
            burst: burst as u32,
            rtt: rough(rtt.0 as f64) as u64,
        };
        let known = self.answered.filter(|(asked, _)| *asked == question);
        let plan = known.map_or_else(|| self.think(packets, packet, rtt, loss, burst), |(_, plan)| plan);
        self.answered = Some((question, plan));
        self.current = plan;
        self.choices.messages[usize::from(plan)] += 1;
        plan
    }

    /// Asks the model.
    fn think(&mut self, packets: u32, packet: Span, rtt: Span, loss: f64, burst: f64) -> u8 {
        let mut scores = [f64::INFINITY; PLANS];
        let mut times = [(Span::ZERO, Span::ZERO); PLANS];
        for number in 0..PLANS as u8 {
            let Some(completion) = self.expect(number, packets, packet, rtt, loss, burst) else { continue };
            let (mean, tail) = (completion.mean(), completion.quantile(0.999));
            scores[usize::from(number)] = mean + self.config.tail * (tail - mean);
            times[usize::from(number)] = (Span(mean as u64), Span(tail as u64));
        }
        let by_score = |&a: &u8, &b: &u8| scores[usize::from(a)].total_cmp(&scores[usize::from(b)]);
        let best = (0..PLANS as u8).min_by(by_score).unwrap_or(0);
        let stays = scores[usize::from(self.current)] * BETTER <= scores[usize::from(best)];
        let plan = if stays { self.current } else { best };
        let next = (0..PLANS as u8).filter(|&other| other != plan).min_by(by_score);
        let told = |plan: u8| (plan, times[usize::from(plan)].0, times[usize::from(plan)].1);
        (self.choices.last, self.choices.next) = (Some(told(plan)), next.map(told));
        plan
    }

    /// The completion time that the model expects with a plan; `None` if bursts are longer than its parity, or if the
    /// cores cannot encode it at the link's rate.
    fn expect(&self, number: u8, packets: u32, packet: Span, rtt: Span, loss: f64, burst: f64) -> Option<Completion> {
        let SdrAutoConfig { alpha, beta, reorder, group, encode_rate, encode_cores: cores, .. } = self.config;
        let plan = plan(number, reorder, group)?;
        let chunks = u64::from(packets.div_ceil(plan.chunk));
        let chunk_time = packet.0 as f64 * f64::from(plan.chunk);
        let rtt = rtt.0 as f64;
        let Some(code) = plan.code else {
            let transfer = Transfer { chunks, chunk_time, rtt, loss: chunk_loss(loss, u64::from(plan.chunk)) };
            return Some(transfer.retransmitted(rtt + f64::from(reorder) * chunk_time, Effort::QUICK));
        };
        let data = f64::from(self.mtu) * 8.0e12 / (packet.0 as f64).max(1.0);
        if encode_cores(&code, Rate(data as u64), encode_rate) > f64::from(cores) {
            return None;
        }
        // A burst hits neighbouring chunks, which belong to different submessages. The chunks of one submessage that a
        // burst hits together count as one loss of a code that is smaller by this number. Twice the average burst is
        // used, because bursts vary.
        let submessages = (packets.div_ceil(code.data() as u32)).min(group).max(1);
        let together = ((2.0 * burst / f64::from(submessages)) as usize).max(1);
        let code = code.resized(code.data() / together, code.parity() / together)?;
        let count = together as u64;
        let transfer = Transfer { chunks: chunks.div_ceil(count), chunk_time: chunk_time * together as f64, rtt, loss };
        let fallback = Fallback { rto: rtt * (1.0 + alpha), beta, whole_groups: false };
        Some(transfer.coded(code, &fallback, Effort::QUICK))
    }

    pub(super) fn choices(&self) -> &Choices {
        &self.choices
    }
}

/// Counts runs of lost chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    last: Option<(u64, u32)>,
}

impl Runs {
    /// A chunk of a stretch is lost. True if it is the first of a run.
    pub(super) fn begins(&mut self, sequence: u64, chunk: u32) -> bool {
        let follows = self.last.is_some_and(|(at, last)| at == sequence && chunk == last + 1);
        self.last = Some((sequence, chunk));
        !follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over 3,750 km at 400 Gb/s.
    fn choice(bytes: u64, loss: f64, burst: f64) -> String {
        with_cores(bytes, loss, burst, 10, Span::from_ns(82))
    }

    /// With this number of cores that encode, and packets that take this time.
    fn with_cores(bytes: u64, loss: f64, burst: f64, encode_cores: u32, packet: Span) -> String {
        let mut chooser = Chooser::new(SdrAutoConfig { encode_cores, ..SdrAutoConfig::default() }, 4096);
        let lost = 1_000_000.0 * loss;
        chooser.learn(1_000_000, lost as u32, (lost / burst) as u32);
        let plan = chooser.choose((bytes / 4096) as u32, packet, Span::from_ms(25));
        Choices::name(plan)
    }

    #[test]
    fn a_code_that_the_cores_cannot_encode_at_the_links_rate_is_not_chosen() {
        // (32,8) at 400 Gb/s takes 4.7 cores, (32,16) 9.4.
        let at = |cores, nanoseconds| with_cores(128 << 20, 2e-2, 1.0, cores, Span::from_ns(nanoseconds));
        assert_eq!(at(5, 82), "MDS(32,8)");
        assert!(at(4, 82).starts_with("NACKs"));
        assert_eq!(at(1, 820), "MDS(32,8)", "one core is enough at 40 Gb/s");
        let bursts = |cores| with_cores(128 << 20, 1e-3, 64.0, cores, Span::from_ns(82));
        assert_eq!(bursts(10), "MDS(32,16)");
        assert_ne!(bursts(9), "MDS(32,16)");
        let mds = |m| Code::mds(32, m).expect("a code");
        let cores = |m| encode_cores(&mds(m), Rate::from_gbps(400), ENCODE_RATE);
        assert!((cores(8) - 4.706).abs() < 1e-3 && cores(2) == cores(8) && (cores(16) - 9.412).abs() < 1e-3);
    }

    #[test]
    fn choices_are_those_of_the_papers_figures() {
        // Figure 9: codes from 128 KiB to a gibibyte where losses are likely, retransmission for long messages and for
        // rare losses.
        assert_eq!(choice(128 << 20, 1e-4, 1.0), "MDS(32,2)");
        assert_eq!(choice(128 << 20, 1e-3, 1.0), "MDS(32,4)");
        assert_eq!(choice(128 << 20, 2e-2, 1.0), "MDS(32,8)");
        assert!(choice(64 << 30, 1e-5, 1.0).starts_with("NACKs"));
        assert!(choice(64 << 10, 0.0, 1.0).starts_with("NACKs"));
    }

    #[test]
    fn long_bursts_take_more_parity() {
        assert_eq!(choice(128 << 20, 1e-3, 64.0), "MDS(32,16)");
    }

    #[test]
    fn one_loss_does_not_change_a_mind() {
        let mut chooser = Chooser::new(SdrAutoConfig::default(), 4096);
        chooser.learn(100_000, 100, 100);
        let choose = |chooser: &mut Chooser| chooser.choose(32_768, Span::from_ns(82), Span::from_ms(25));
        let first = choose(&mut chooser);
        for _ in 0..20 {
            chooser.learn(10_000, 11, 11);
            assert_eq!(choose(&mut chooser), first);
        }
        chooser.learn(200_000, 6_000, 6_000);
        assert!(choose(&mut chooser) > first, "three percent are another matter");
    }
}
