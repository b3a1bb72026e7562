//! The last seconds of samples, for a search that never ends.

use super::{GraySettings, Kind, PathSample, hits};
use std::collections::{BTreeMap, VecDeque};

/// Samples of the last intervals, within a bound. Packets of pairs that met nothing are added up.
#[derive(Clone, Debug)]
pub struct GrayWindow<L> {
    settings: GraySettings,
    /// The most spans that are kept.
    spans: usize,
    kept: VecDeque<Span<L>>,
}

/// Intervals per span: ours, a second of intervals of a tenth.
const INTERVALS: u32 = 10;

#[derive(Clone, Debug)]
struct Span<L> {
    number: u32,
    /// The samples of pairs that were hit, and the round trips of all others.
    hit: Vec<PathSample<L>>,
    /// The sums of all others without round trips, path by path.
    quiet: BTreeMap<(u32, u32, u8, Vec<L>), PathSample<L>>,
}

impl<L: Ord + Copy> GrayWindow<L> {
    /// A window of the last `intervals` intervals.
    pub fn new(settings: GraySettings, intervals: u32) -> GrayWindow<L> {
        GrayWindow { settings, spans: intervals.div_ceil(INTERVALS).max(1) as usize, kept: VecDeque::new() }
    }

    /// Adds all samples of the next interval. Numbers of intervals begin at 1 and grow. Samples of one pair must come
    /// together; those of paths without a packet belong to it, as they say which paths there are.
    pub fn add(&mut self, samples: Vec<PathSample<L>>) {
        let mut samples = samples;
        samples.sort_by_key(|sample| sample.group());
        let hit = {
            let all: Vec<&PathSample<L>> = samples.iter().collect();
            let of = |kind| hits(&all, kind, &self.settings);
            let (full, lost, slow) = (of(Kind::Full), of(Kind::Loss), of(Kind::Delay));
            let is_hit = |at: usize| full[at] || lost[at] || slow[at];
            let groups = (0..all.len()).filter(|at| is_hit(*at)).map(|at| all[at].group());
            groups.collect::<std::collections::BTreeSet<_>>()
        };
        for sample in samples {
            let number = sample.interval / INTERVALS;
            if self.kept.back().is_none_or(|span| span.number < number) {
                self.kept.push_back(Span { number, hit: Vec::new(), quiet: BTreeMap::new() });
            }
            let Some(span) = self.kept.back_mut() else { continue };
            if hit.contains(&sample.group()) {
                span.hit.push(sample);
                continue;
            }
            let key = (sample.source, sample.destination, sample.plane, sample.links.clone());
            // No interval has the number of the sums.
            let sum = span.quiet.entry(key).or_insert_with(|| PathSample {
                interval: 0,
                sent: 0,
                weight: 0.0,
                lost: 0,
                late: 0,
                trimmed: 0,
                measured: 0,
                rtt: 0.0,
                ..sample.clone()
            });
            sum.sent += sample.sent;
            sum.trimmed += sample.trimmed;
            if sample.measured > 0 {
                span.hit.push(PathSample { sent: 0, weight: 0.0, lost: 0, trimmed: 0, ..sample });
            }
        }
        while self.kept.len() > self.spans {
            self.kept.pop_front();
        }
    }

    /// The gray parts that explain the window.
    pub fn find(&self) -> Vec<super::GrayPart<L>> {
        let mut all: Vec<PathSample<L>> = self.kept.iter().flat_map(|span| &span.hit).cloned().collect();
        let mut quiet: BTreeMap<&(u32, u32, u8, Vec<L>), PathSample<L>> = BTreeMap::new();
        for (key, sample) in self.kept.iter().flat_map(|span| &span.quiet) {
            let Some(sum) = quiet.get_mut(key) else {
                quiet.insert(key, sample.clone());
                continue;
            };
            sum.sent += sample.sent;
            sum.trimmed += sample.trimmed;
        }
        all.extend(quiet.into_values());
        super::find(&all, &self.settings)
    }

    /// Forgets everything, for instance after a repair.
    pub fn clear(&mut self) {
        self.kept.clear();
    }
}
