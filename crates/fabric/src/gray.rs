//! Finds gray parts of a fabric: links that are up but lose packets, or are slow. The evidence is the senders' own
//! traffic, path by path: packets sent and lost, and round trips.
//!
//! **Hits.** A path is hit if it lost a packet in an interval, however many: a burst that takes a whole train of packets
//! counts once. A path with trimmed packets is hit from a share on ([`GraySettings::trimmed`]), and one with long round
//! trips if its mean is above [`GraySettings::slow`] times the median of all paths in the interval. Packets of a slow link
//! are often *late*: they arrive after their sender took them for lost, and have no round trip. So a suspicion is a hit, too,
//! and a link is slow if half of its paths are hit.
//!
//! **Strata.** A healthy link is hit in proportion to the packets across it. On real hosts that holds only within a
//! *stratum*: the paths of one pair of hosts, in one plane and one interval (Cochran-Mantel-Haenszel). A busy host loses what
//! it sends or receives, in any plane, but it does not choose among the switches of a plane. Links that all paths of the
//! plane share, those to hosts, are compared across planes. In the simulator, hosts lose nothing, and the whole fabric is
//! one stratum.
//!
//! **Score.** Per interval, `x` is the share of hits that lie on a link, and `p` the share that its packets let expect. The
//! factor `(1 + (k - 1) x) / (1 + (k - 1) p)` has mean 1 for a healthy link, however hits of one interval depend on each
//! other. The score is the logarithm of the product of all intervals' factors, averaged over some odds `k`. By chance, a healthy
//! link reaches [`GraySettings::doubt`] with a probability below `exp(-doubt)` (Ville's inequality), and no interval counts for
//! more than `-ln p`. So 128 directions of links, looked at every second of an hour, give fewer than `460,800 * exp(-doubt)`
//! false names: one in 1,000 hours with a doubt of 20.
//!
//! **Explaining away.** Of the links that pass, the one with the most hits beyond those to expect is named, and its paths are left out, with what else their pairs lost
//! in the same intervals, since a timeout may count packets of other paths as lost. The search goes on with the rest. So a link is named only for
//! paths that no other name explains, in the direction that they take.
//!
//! Links that the same paths cross cannot be told apart, and are named together. The method is ours; Clustermapper's
//! ([`crate::localise`]) needs probes, and finds what loses everything.

mod delay;
mod score;
#[cfg(test)]
mod tests;
mod window;

pub use window::GrayWindow;

use score::{Comparison, compare};
use std::collections::{BTreeMap, BTreeSet};

/// The fate of the packets of one path in some interval.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSample<L> {
    /// The interval of time. In the simulator the whole run is one.
    pub interval: u32,
    /// The sending host.
    pub source: u32,
    /// The receiving host.
    pub destination: u32,
    /// The plane.
    pub plane: u8,
    /// The links of the path, in order, each with its direction.
    pub links: Vec<L>,
    /// Data packets sent.
    pub sent: u64,
    /// The packets that could have suffered in the interval, as far as they can be known before it: those sent shortly
    /// before. (A path that lost a packet may be used less in the same interval.) In the simulator: `sent`.
    pub weight: f64,
    /// Those that were lost.
    pub lost: u64,
    /// Those that the sender took for lost, and that arrived: 0 if that is unknown.
    pub late: u64,
    /// Those that a switch trimmed, because a queue on their way was full.
    pub trimmed: u64,
    /// Round trips measured.
    pub measured: u64,
    /// Their mean, in picoseconds.
    pub rtt: f64,
}

impl<L> PathSample<L> {
    /// Paths whose packets suffer together: those of a pair of hosts in an interval.
    fn group(&self) -> (u32, u32, u32) {
        (self.interval, self.source, self.destination)
    }

    /// Is it known whether the path is slow?
    fn is_timed(&self, settings: &GraySettings) -> bool {
        self.is_suspected(settings) || self.measured >= settings.measured
    }

    /// Has a sender taken some of its packets for lost, rightly or not, in a fabric where that may be a slow link?
    fn is_suspected(&self, settings: &GraySettings) -> bool {
        settings.within == Within::Pair && self.late + self.lost > 0
    }
}

/// Paths that may be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// All paths of the fabric. Only where hosts lose nothing: in the simulator.
    Fabric,
    /// Those of one pair of hosts in one interval.
    Pair,
}

/// When a part is named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraySettings {
    /// The paths that are compared.
    pub within: Within,
    /// The score from which a part is named.
    pub doubt: f64,
    /// The smallest share of lost packets that counts.
    pub loss: f64,
    /// The smallest share of trimmed packets that counts: under load, a few are trimmed everywhere.
    pub trimmed: f64,
    /// A gray part suffers at least this many times the share of the rest: congestion is everywhere.
    pub contrast: f64,
    /// A path is slow above this multiple of the median round trip.
    pub slow: f64,
    /// Round trips of a path before it is judged.
    pub measured: u64,
    /// Rounds in which a part was hit, at least: intervals, or paths with [`Within::Fabric`].
    pub rounds: u32,
    /// The same for a slow part.
    pub slow_rounds: u32,
}

impl Default for GraySettings {
    /// For the simulator. Ours: see the module's arithmetic for the doubt. A tenth of a per cent is below what repair
    /// schemes notice.
    fn default() -> GraySettings {
        GraySettings {
            within: Within::Fabric,
            doubt: 20.0,
            loss: 1e-3,
            trimmed: 0.1,
            contrast: 4.0,
            slow: 2.0,
            measured: 8,
            rounds: 4,
            slow_rounds: 4,
        }
    }
}

impl GraySettings {
    /// For real nodes, whose hosts lose packets, too. Ours: a contrast of two, because the strata take care of hosts; one
    /// round trip, because a path has few in an interval of a tenth of a second; two seconds of slow paths, because bursts fill
    /// queues for shorter times; and a doubt of 16, by which a search each second over 64 cables (128 directions,
    /// and 64 with both) names a healthy one in 12 hours at most.
    pub fn of_nodes() -> GraySettings {
        GraySettings {
            within: Within::Pair,
            doubt: 16.0,
            contrast: 2.0,
            measured: 1,
            rounds: 8,
            slow_rounds: 20,
            ..GraySettings::default()
        }
    }
}

/// The fault of a part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Symptom {
    /// It loses this share of packets.
    Loss(f64),
    /// Its queue is full: switches trim this share of the packets across it.
    Full(f64),
    /// Round trips across it last this many times as long as elsewhere.
    Delay(f64),
}

/// A part that is suspected.
#[derive(Clone, Debug, PartialEq)]
pub struct GrayPart<L> {
    /// Links, in order, of which at least one is gray.
    pub links: Vec<L>,
    /// Its fault.
    pub symptom: Symptom,
    /// The score: the logarithm of how many times likelier the hits are if it is gray.
    pub score: f64,
    /// The evidence.
    pub evidence: Evidence,
}

/// The packets and hits behind a name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Data packets that crossed the part.
    pub sent: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those that arrived after their sender took them for lost.
    pub late: u64,
    /// Mean round trip across the part, divided by the mean elsewhere; 0 if none was measured.
    pub delay: f64,
    /// Intervals in which a path across it was hit; paths with [`Within::Fabric`].
    pub rounds: u32,
    /// Pairs of hosts with such a path.
    pub pairs: u32,
}

/// The kinds of faults, in the order of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    Loss,
    Delay,
}

/// The gray parts that explain the samples, the surest first: full ones, then lossy ones, then those with long round
/// trips. A full link also delays and times out what else its pairs have under way, so it is explained away before losses
/// are looked at, and so on.
pub fn find<L: Ord + Copy>(samples: &[PathSample<L>], settings: &GraySettings) -> Vec<GrayPart<L>> {
    let mut left: Vec<&PathSample<L>> = samples.iter().collect();
    left.sort_by_key(|sample| sample.group());
    let mut found = Vec::new();
    for kind in [Kind::Full, Kind::Loss, Kind::Delay] {
        while let Some((part, hits)) = best(&left, kind, settings) {
            let crosses = |sample: &PathSample<L>| part.links.iter().any(|link| sample.links.contains(link));
            let hit = left.iter().zip(&hits).filter(|(sample, hit)| **hit && crosses(sample));
            let gone: BTreeSet<(u32, u32, u32)> = hit.map(|(sample, _)| sample.group()).collect();
            left.retain(|sample| !crosses(sample) && !gone.contains(&sample.group()));
            found.push(part);
        }
    }
    found
}

/// Which samples are hit.
fn hits<L>(left: &[&PathSample<L>], kind: Kind, settings: &GraySettings) -> Vec<bool> {
    match kind {
        Kind::Loss => left.iter().map(|sample| sample.lost > 0).collect(),
        Kind::Full => left
            .iter()
            .map(|sample| sample.trimmed > 0 && sample.trimmed as f64 >= settings.trimmed * sample.sent as f64)
            .collect(),
        Kind::Delay => delay::mark(left, settings),
    }
}

/// The link with the highest score, if it passes, with the hits that it was judged by.
fn best<L: Ord + Copy>(
    left: &[&PathSample<L>],
    kind: Kind,
    settings: &GraySettings,
) -> Option<(GrayPart<L>, Vec<bool>)> {
    let hits = hits(left, kind, settings);
    if !hits.contains(&true) {
        return None;
    }
    let weigh = |at: usize| match (kind, settings.within) {
        (Kind::Delay, Within::Fabric) => f64::from(u8::from(left[at].is_timed(settings))),
        _ => left[at].weight,
    };
    let compared = compare(left, &hits, &weigh, settings.within);
    let rounds = if kind == Kind::Delay { settings.slow_rounds } else { settings.rounds };
    let mut best: Option<(f64, f64, L, &Comparison)> = None;
    for (link, comparison) in &compared {
        let (score, excess) = (comparison.score(), comparison.excess());
        if score > settings.doubt
            && comparison.rounds() >= rounds
            && best.is_none_or(|best| excess > best.0)
            && has_several_witnesses(left, &hits, *link)
            && stands_out(left, &hits, kind, *link, settings)
        {
            best = Some((excess, score, *link, comparison));
        }
    }
    let (_, score, link, comparison) = best?;
    let crossing = |link: &L| -> Vec<usize> { (0..left.len()).filter(|at| left[*at].links.contains(link)).collect() };
    let places = crossing(&link);
    // The others of its paths' links are on every one of them, or are told apart by a path.
    let beside = places.first().map_or(&[][..], |at| &left[*at].links[..]);
    let mut links: Vec<L> = beside.iter().copied().filter(|other| crossing(other) == places).collect();
    links.sort();
    links.dedup();
    let of = |share: fn(&PathSample<L>) -> u64| {
        let sums = places.iter().fold((0, 0), |(x, n), at| (x + share(left[*at]), n + left[*at].sent));
        sums.0 as f64 / sums.1.max(1) as f64
    };
    let evidence = evidence(left, &hits, &places, comparison);
    let symptom = match kind {
        Kind::Full => Symptom::Full(of(|sample| sample.trimmed)),
        Kind::Loss => Symptom::Loss(of(|sample| sample.lost.min(sample.sent.max(1)))),
        Kind::Delay => Symptom::Delay(evidence.delay),
    };
    Some((GrayPart { links, symptom, score, evidence }, hits))
}

/// Are there hits across a link from more than one sender and to more than one receiver, if it has several? One host
/// alone may be the cause itself.
fn has_several_witnesses<L: Ord + Copy>(left: &[&PathSample<L>], hits: &[bool], link: L) -> bool {
    let crossing = left.iter().zip(hits).filter(|(sample, _)| sample.links.contains(&link));
    let mut ends: [BTreeMap<u32, u32>; 2] = Default::default();
    for (sample, hit) in crossing {
        for (ends, host) in ends.iter_mut().zip([sample.source, sample.destination]) {
            *ends.entry(host).or_default() += u32::from(*hit);
        }
    }
    // Two hits beside those of the host with the most.
    let several = |hits: &BTreeMap<u32, u32>| {
        let (all, most) = (hits.values().sum::<u32>(), hits.values().max().copied().unwrap_or(0));
        hits.len() < 2 || all - most >= 2
    };
    ends.iter().all(several)
}

/// The share of a slow link's measured paths that are slow, at least: ours. A queue is not full all the time.
const SLOW_SHARE: f64 = 0.5;

/// Does the link suffer enough to matter, and more than the rest of the fabric?
fn stands_out<L: Ord + Copy>(
    left: &[&PathSample<L>],
    hits: &[bool],
    kind: Kind,
    link: L,
    settings: &GraySettings,
) -> bool {
    let (mut sums, mut rtts, mut suspected) = ([(0.0, 0.0); 2], [(0.0, 0.0); 2], 0);
    let since = if kind == Kind::Delay { since(left, hits, link, settings) } else { 0 };
    for (sample, hit) in left.iter().zip(hits).filter(|(sample, _)| sample.interval >= since) {
        let (suffered, of) = match kind {
            Kind::Full => (sample.trimmed as f64, sample.sent as f64),
            Kind::Loss => (sample.lost.min(sample.sent.max(1)) as f64, sample.sent.max(u64::from(*hit)) as f64),
            Kind::Delay if !sample.is_timed(settings) => continue,
            Kind::Delay => (f64::from(u8::from(*hit)), 1.0),
        };
        let crosses = usize::from(sample.links.contains(&link));
        let (sum, rtt) = (&mut sums[crosses], &mut rtts[crosses]);
        *sum = (sum.0 + suffered, sum.1 + of);
        suspected += if crosses == 1 { u32::from(sample.is_suspected(settings)) } else { 0 };
        *rtt = (rtt.0 + sample.rtt * sample.measured as f64, rtt.1 + sample.measured as f64);
    }
    let share = |(suffered, of): (f64, f64)| if of > 0.0 { suffered / of } else { 0.0 };
    let (rest, across) = (share(sums[0]), share(sums[1]));
    let least = match kind {
        Kind::Full => settings.trimmed,
        Kind::Loss => settings.loss,
        Kind::Delay => SLOW_SHARE,
    };
    // Hosts poll their planes in some order: a difference that is systematic, and small, is no fault. Late packets
    // have no round trips.
    let is_slow = kind != Kind::Delay
        || 2.0 * f64::from(suspected) > sums[1].0
        || share(rtts[1]) >= settings.slow * share(rtts[0]);
    across >= least && across >= rest * settings.contrast && is_slow
}

/// The places of samples that follow each other and are alike.
fn stretches<L>(
    left: &[&PathSample<L>],
    alike: impl Fn(&PathSample<L>, &PathSample<L>) -> bool,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    left.chunk_by(move |a, b| alike(a, b)).scan(0, |end, stretch| {
        let start = *end;
        *end += stretch.len();
        Some(start..*end)
    })
}

/// The first of the last intervals in which a link was hit, [`GraySettings::slow_rounds`] of them: a link that has become
/// slow just now was fast before. 0 with [`Within::Fabric`].
fn since<L: Ord + Copy>(left: &[&PathSample<L>], hits: &[bool], link: L, settings: &GraySettings) -> u32 {
    if settings.within == Within::Fabric {
        return 0;
    }
    let hit = left.iter().zip(hits).filter(|(sample, hit)| **hit && sample.links.contains(&link));
    let intervals: BTreeSet<u32> = hit.map(|(sample, _)| sample.interval).collect();
    let last = settings.slow_rounds.saturating_sub(1) as usize;
    intervals.iter().nth_back(last).or(intervals.first()).copied().unwrap_or(0)
}

/// The numbers behind a name.
fn evidence<L: Ord + Copy>(
    left: &[&PathSample<L>],
    hits: &[bool],
    places: &[usize],
    comparison: &Comparison,
) -> Evidence {
    let mut evidence = Evidence { rounds: comparison.rounds(), ..Evidence::default() };
    let mut rtts = [(0.0, 0.0); 2];
    let mut pairs = BTreeSet::new();
    let mut crossing = places.iter().copied().peekable();
    for (at, (sample, hit)) in left.iter().zip(hits).enumerate() {
        let crosses = crossing.next_if_eq(&at).is_some();
        let sum = &mut rtts[usize::from(crosses)];
        *sum = (sum.0 + sample.rtt * sample.measured as f64, sum.1 + sample.measured as f64);
        if crosses {
            evidence.sent += sample.sent;
            evidence.lost += sample.lost;
            evidence.late += sample.late;
            if *hit {
                pairs.insert((sample.source, sample.destination));
            }
        }
    }
    let mean = |(sum, count): (f64, f64)| if count > 0.0 { sum / count } else { 0.0 };
    let (elsewhere, here) = (mean(rtts[0]), mean(rtts[1]));
    evidence.delay = if elsewhere > 0.0 { here / elsewhere } else { 0.0 };
    evidence.pairs = pairs.len() as u32;
    evidence
}
