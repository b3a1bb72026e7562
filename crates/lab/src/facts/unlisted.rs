//! Messages without an entry in the plan: those of jobs and of large collectives. Their tallies have the times of each,
//! or, if there are too many, only counts and histograms.

use super::life::Life;
use strandway_collective::Operation;
use strandway_fabric::Measurements;
use strandway_fabric::tally::{Histogram, Reached, Slow, Tally};
use strandway_proto::HostId;
use strandway_report::spread::place;
use strandway_report::{SlowFlow, Spread};
use strandway_scenario::{CollectivePlan, Experiment};
use strandway_switch::Plan;

/// A message whose times its tally has kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loose {
    pub(super) class: u16,
    /// Index of its profile.
    pub(super) profile: u16,
    pub(super) ends: (HostId, HostId),
    pub(super) bytes: u64,
    pub(super) life: Life,
}

impl Loose {
    /// Its name in reports.
    pub(super) fn name(&self) -> String {
        format!("host{}->host{}", self.ends.0.0, self.ends.1.0)
    }
}

/// The messages of one collective.
pub(super) struct Part<'a> {
    class: u16,
    pub(super) total: u64,
    pub(super) bytes: u64,
    /// Counts and times; `None` if the run did not take place.
    tally: Option<&'a Tally>,
    /// The owner of the messages. A multicast has one per rank, the data that it gathers or receives; sums in switches
    /// have one per worker.
    of: &'a Operation,
    /// The sizes of sums in switches.
    sums: Option<&'a Plan>,
}

/// All such messages of an experiment.
pub(super) struct Crowd<'a> {
    /// Collectives that have only counts and histograms.
    parts: Vec<Part<'a>>,
    /// The messages of all others.
    rows: Vec<Loose>,
}

impl<'a> Crowd<'a> {
    pub(super) fn new(experiment: &'a Experiment, measured: &'a Measurements) -> Crowd<'a> {
        let part = |plan: &'a CollectivePlan| {
            let of = experiment.operation_of(plan)?;
            let sums = match of {
                Operation::InNetwork(network) => Some(&**experiment.aggregated(network)?),
                _ => None,
            };
            let total = of.messages();
            let bytes = of.bytes().unwrap_or_else(|| plan.bytes.saturating_mul(total));
            Some(Part { class: plan.class, total, bytes, tally: experiment.tally_of(plan, measured), of, sums })
        };
        let (mut parts, mut rows) = (Vec::new(), Vec::new());
        for part in experiment.collectives.iter().filter(|plan| plan.tallied).filter_map(part) {
            match loose(&part) {
                Some(known) => rows.extend(known),
                None => parts.push(part),
            }
        }
        Crowd { parts, rows }
    }

    /// The messages whose times are known one by one.
    pub(super) fn rows(&self) -> &[Loose] {
        &self.rows
    }

    /// Gives up the messages whose times are known one by one.
    pub(super) fn into_rows(self) -> Vec<Loose> {
        self.rows
    }

    /// The parts of one class.
    pub(super) fn of_class(&self, class: usize) -> impl Iterator<Item = &Part<'a>> {
        self.parts.iter().filter(move |p| usize::from(p.class) == class)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Part<'a>> {
        self.parts.iter()
    }

    /// True if the times of every message are known.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The slowest messages by completion time.
    pub(super) fn slowest(&self) -> Vec<SlowFlow> {
        let of = |part: &Part<'a>| -> Vec<SlowFlow> {
            let slow = part.tally.map_or(&[][..], |t| &t.slowest);
            slow.iter().filter_map(|slow| named(part, slow)).collect()
        };
        self.parts.iter().flat_map(of).collect()
    }
}

impl Part<'_> {
    pub(super) fn finished(&self) -> u64 {
        self.tally.map_or(0, |t| t.finished)
    }

    pub(super) fn started(&self) -> u64 {
        self.tally.map_or(0, |t| t.started)
    }

    pub(super) fn completion(&self) -> Option<&Histogram> {
        self.tally.map(|t| &t.completion)
    }
}

/// The messages of a collective, if its tally has the times of each. Messages that were never posted are among them.
fn loose(part: &Part<'_>) -> Option<Vec<Loose>> {
    let log = part.tally?.log.as_ref()?;
    if !matches!(part.of, Operation::Messages(_) | Operation::PointToPoint(_)) {
        return None;
    }
    let (numbers, profile) = (part.of.numbers(), part.of.profile());
    let first = numbers.start;
    let of = |number: u32| -> Option<Loose> {
        let (ends, bytes) = ends(part.of, number)?;
        Some(Loose { class: part.class, profile, ends, bytes, life: Life::default() })
    };
    let mut rows: Vec<Loose> = numbers.map(of).collect::<Option<_>>()?;
    for noted in log {
        let life = &mut rows.get_mut(noted.message.checked_sub(first)? as usize)?.life;
        let time = match noted.reached {
            Reached::Started => &mut life.started,
            Reached::Received => &mut life.received,
            Reached::Finished => &mut life.finished,
        };
        *time = Some(noted.at);
    }
    Some(rows)
}

/// Sender, receiver and length of a message between two hosts.
fn ends(of: &Operation, number: u32) -> Option<((HostId, HostId), u64)> {
    match of {
        Operation::Messages(group) => group.ends(number),
        Operation::PointToPoint(pipe) => Some((pipe.ends.into(), pipe.length(pipe.piece_of(number)?))),
        Operation::Multicast(_) | Operation::InNetwork(_) | Operation::Job(_) => None,
    }
}

/// One of the slowest messages of a collective, with its name.
fn named(part: &Part<'_>, slow: &Slow) -> Option<SlowFlow> {
    let rank = slow.message.checked_sub(part.of.numbers().start)?;
    let host = || part.of.hosts().get(rank as usize).map(|host| host.0);
    let (name, bytes) = match part.of {
        Operation::Messages(_) | Operation::PointToPoint(_) => {
            let ((from, to), bytes) = ends(part.of, slow.message)?;
            (format!("host{}->host{}", from.0, to.0), bytes)
        }
        Operation::Multicast(multicast) => {
            let own = multicast.share_of(rank).map_or(0, |share| multicast.layout.share(share).1);
            (format!("multicast->host{}", host()?), multicast.layout.bytes() - own)
        }
        Operation::InNetwork(network) => {
            let sums = part.sums?;
            let bytes = 4 * u64::from(sums.job.shape.elements) * sums.keys() * u64::from(sums.iterations);
            (format!("job{}->host{}", network.number, host()?), bytes)
        }
        Operation::Job(_) => return None,
    };
    Some(SlowFlow { name, bytes, start_us: slow.started.as_us(), fct_us: slow.took.as_us() })
}

/// The spread of all completion times: `values` (microseconds) of messages with entries, and the histograms of `parts`.
/// Percentiles are at most 0.4 % off.
pub(super) fn spread<'a>(
    values: &[f64],
    unfinished: u64,
    parts: impl Iterator<Item = &'a Part<'a>>,
) -> (Spread, Vec<[f64; 2]>) {
    let mut all = Histogram::default();
    for us in values {
        all.add(strandway_proto::Span((us * 1e6).round() as u64));
    }
    let mut missing = unfinished;
    for part in parts {
        missing += part.total - part.finished();
        if let Some(completion) = part.completion() {
            all.merge(completion);
        }
    }
    let count = all.len() + missing;
    let whole = missing == 0 && count > 0;
    let rank = |share: f64| all.nth(place(count, share)).map(|t| t.as_us());
    let mut behind = 0;
    let curve = all.buckets().map(|(time, more)| {
        behind += more;
        [time.as_us(), behind as f64 / count as f64]
    });
    let curve = curve.collect();
    let spread = Spread {
        min: all.min().map(|t| t.as_us()),
        mean: all.mean().map(|ps| ps / 1e6).filter(|_| whole),
        p50: rank(0.5),
        p90: rank(0.9),
        p99: rank(0.99),
        p999: rank(0.999),
        max: all.max().map(|t| t.as_us()).filter(|_| whole),
        unfinished: missing,
    };
    (spread, curve)
}
