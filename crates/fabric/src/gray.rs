//! Finds gray parts of a fabric: links that are up but lose packets, or are slow. The evidence is the senders' own
//! traffic, path by path: packets sent and lost, and round trips.
//!
//! **Loss.** For each link, the packets of all paths across it are compared with all others. The score is the logarithm
//! of a likelihood ratio: two loss shares (one across the link, one elsewhere) against one share for all. The best link
//! is named if its score passes [`GraySettings::doubt`]; all paths of the connections that cross it are then left out,
//! and the search goes on. By chance,
//! a healthy link passes with a probability below `exp(-doubt)` per look, so 64 links that are looked at every second
//! of an hour give fewer than `230,400 * exp(-doubt)` false names: one in 2,000 hours with a doubt of 20.
//!
//! **Full queues.** A link with a part of its rate trims most packets of a load that it used to carry. The same comparison
//! is made with trimmed packets, with a larger least share. Where all hosts send to one, its link is full, too, and is
//! named: congestion and a slow link are told apart by what the link should carry.
//!
//! **Delay.** A path is slow if its mean round trip is above [`GraySettings::slow`] times the median of all paths. A
//! link is named if nearly all paths across it are slow, and paths elsewhere are not.
//!
//! Links that the same paths cross cannot be told apart, and are named together. The method is ours; Clustermapper's
//! ([`crate::localise`]) needs probes, and finds what loses everything.

use std::collections::{BTreeMap, BTreeSet};

/// The fate of the packets of one path in some time.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSample<L> {
    /// The connection, or another number for paths whose packets suffer together: a timeout that one lossy path causes
    /// may count packets of the connection's other paths as lost.
    pub group: u32,
    /// The links of the path, in order.
    pub links: Vec<L>,
    /// Data packets sent.
    pub sent: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Those that a switch trimmed, because a queue on their way was full.
    pub trimmed: u64,
    /// Round trips measured.
    pub measured: u64,
    /// Their mean, in picoseconds.
    pub rtt: f64,
}

/// When a part is named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraySettings {
    /// The logarithm of the likelihood ratio from which a part is named.
    pub doubt: f64,
    /// The smallest share of lost packets that counts.
    pub loss: f64,
    /// The smallest share of trimmed packets that counts: under load, a few are trimmed everywhere.
    pub trimmed: f64,
    /// A lossy part loses at least this many times the share of the rest: congestion loses everywhere.
    pub contrast: f64,
    /// A path is slow above this multiple of the median round trip.
    pub slow: f64,
    /// Round trips of a path before it is judged.
    pub measured: u64,
}

impl Default for GraySettings {
    /// Ours: see the module's arithmetic for the doubt. A tenth of a per cent is below what repair schemes notice.
    fn default() -> GraySettings {
        GraySettings { doubt: 20.0, loss: 1e-3, trimmed: 0.1, contrast: 4.0, slow: 2.0, measured: 8 }
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
    /// The logarithm of the likelihood ratio.
    pub score: f64,
}

/// The gray parts that explain the samples, the surest first: full ones, then lossy ones, then those with long round
/// trips. A full link also delays and times out what else its connections have under way, so these are left out of the
/// search for losses, and so on.
pub fn find<L: Ord + Copy>(samples: &[PathSample<L>], settings: &GraySettings) -> Vec<GrayPart<L>> {
    let mut left: Vec<&PathSample<L>> = samples.iter().collect();
    let mut found = shares(&mut left, settings, settings.trimmed, &|sample| sample.trimmed, &Symptom::Full);
    found.extend(shares(&mut left, settings, settings.loss, &|sample| sample.lost, &Symptom::Loss));
    left.retain(|sample| sample.measured >= settings.measured);
    found.extend(slow(&left, settings));
    found
}

/// The samples across each link, by their places.
fn crossings<'a, L: Ord + Copy + 'a>(samples: impl Iterator<Item = &'a PathSample<L>>) -> BTreeMap<L, Vec<usize>> {
    let mut across: BTreeMap<L, Vec<usize>> = BTreeMap::new();
    for (at, sample) in samples.enumerate() {
        for link in &sample.links {
            let places = across.entry(*link).or_default();
            // A probe to oneself crosses a link twice.
            if places.last() != Some(&at) {
                places.push(at);
            }
        }
    }
    across
}

/// The logarithm of the likelihood that `lost` of `sent` are lost, at the likeliest share.
fn likelihood(lost: f64, sent: f64) -> f64 {
    let term = |part: f64| if part > 0.0 { part * (part / sent).ln() } else { 0.0 };
    term(lost) + term(sent - lost)
}

/// The links across which more packets have met something than elsewhere: at least the share `least`. The paths
/// that they explain are taken out of `left`.
fn shares<L: Ord + Copy>(
    left: &mut Vec<&PathSample<L>>,
    settings: &GraySettings,
    least: f64,
    met: &dyn Fn(&PathSample<L>) -> u64,
    symptom: &dyn Fn(f64) -> Symptom,
) -> Vec<GrayPart<L>> {
    let mut found: Vec<GrayPart<L>> = Vec::new();
    loop {
        let count = |places: &[usize]| {
            let each = places.iter().map(|at| (met(left[*at]).min(left[*at].sent) as f64, left[*at].sent as f64));
            each.fold((0.0, 0.0), |(x, n), (lost, sent)| (x + lost, n + sent))
        };
        let all: Vec<usize> = (0..left.len()).collect();
        let (lost, sent) = count(&all);
        let across = crossings(left.iter().copied());
        let mut best: Option<(f64, f64, Vec<usize>)> = None;
        // A link that all paths cross is blamed only if no smaller set of paths explains the losses.
        let mut links: Vec<&Vec<usize>> = across.values().collect();
        links.sort_by_key(|places| places.len() == left.len());
        for places in links {
            let (x, n) = count(places);
            let (rest_lost, rest_sent) = (lost - x, sent - n);
            if rest_sent == 0.0 && best.is_some() {
                break;
            }
            if n == 0.0 || x / n < least {
                continue;
            }
            // Without any other path there is nothing to compare with: the share must speak for itself.
            let rest = if rest_sent > 0.0 { rest_lost / rest_sent } else { 0.0 };
            if x / n < rest * settings.contrast {
                continue;
            }
            let score = match rest_sent > 0.0 {
                true => likelihood(x, n) + likelihood(rest_lost, rest_sent) - likelihood(lost, sent),
                false => likelihood(x, n) - x * least.ln() - (n - x) * (1.0 - least).ln(),
            };
            if score > best.as_ref().map_or(settings.doubt, |best| best.0) {
                best = Some((score, x / n, places.clone()));
            }
        }
        let Some((score, share, places)) = best else { return found };
        let links = across.iter().filter(|(_, other)| **other == places).map(|(link, _)| *link).collect();
        found.push(GrayPart { links, symptom: symptom(share), score });
        let gone: BTreeSet<u32> = places.iter().map(|at| left[*at].group).collect();
        left.retain(|sample| !gone.contains(&sample.group));
    }
}

/// The share of a link's paths that must be slow: ours, nearly all.
const NEARLY: f64 = 0.9;

fn slow<L: Ord + Copy>(samples: &[&PathSample<L>], settings: &GraySettings) -> Vec<GrayPart<L>> {
    let (mut found, mut left): (Vec<GrayPart<L>>, Vec<&PathSample<L>>) = (Vec::new(), samples.to_vec());
    let mut rtts: Vec<f64> = left.iter().map(|sample| sample.rtt).collect();
    rtts.sort_by(f64::total_cmp);
    let Some(median) = rtts.get(rtts.len() / 2).copied().filter(|median| *median > 0.0) else { return found };
    loop {
        let is_slow = |at: usize| left[at].rtt > settings.slow * median;
        let all = (0..left.len()).filter(|at| is_slow(*at)).count() as f64;
        let across = crossings(left.iter().copied());
        let mut best: Option<(f64, f64, Vec<usize>)> = None;
        for places in across.values() {
            let (n, x) = (places.len() as f64, places.iter().filter(|at| is_slow(**at)).count() as f64);
            let (rest, rest_slow) = (left.len() as f64 - n, all - x);
            if x < n * NEARLY || rest == 0.0 || rest_slow / rest > x / n / settings.contrast {
                continue;
            }
            let score = likelihood(x, n) + likelihood(rest_slow, rest) - likelihood(all, left.len() as f64);
            if score > best.as_ref().map_or(settings.doubt, |best| best.0) {
                let mean = places.iter().map(|at| left[*at].rtt).sum::<f64>() / n;
                best = Some((score, mean / median, places.clone()));
            }
        }
        let Some((score, factor, places)) = best else { return found };
        let links = across.iter().filter(|(_, other)| **other == places).map(|(link, _)| *link).collect();
        found.push(GrayPart { links, symptom: Symptom::Delay(factor), score });
        let gone: Vec<bool> = (0..left.len()).map(|at| places.contains(&at)).collect();
        left = left.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(sample, _)| sample).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::rng::{Random, StreamKind};

    /// Four leaves, four spines, four hosts below each leaf: links are (kind, a, b); up and down separately.
    type Link = (u8, u32, u32);

    fn samples(random: &mut Random, packets: u32, gray: Option<(Link, f64, f64)>) -> Vec<PathSample<Link>> {
        let mut all = Vec::new();
        for (from, to, spine) in (0..16).flat_map(|a| (0..16).flat_map(move |b| (0..4).map(move |s| (a, b, s)))) {
            let (a, b) = (from / 4, to / 4);
            if a == b {
                continue;
            }
            let links = vec![(0, from, a), (1, a, spine), (2, spine, b), (3, b, to)];
            let is_gray = gray.is_some_and(|(link, ..)| links.contains(&link));
            let (share, factor) = gray.filter(|_| is_gray).map_or((0.0, 1.0), |(_, share, factor)| (share, factor));
            // Some losses everywhere, as of cosmic rays.
            let lost = (0..packets).filter(|_| random.below(1_000_000) < (share * 1e6) as u32 + 20).count() as u64;
            let rtt = 1e7 * factor * (0.9 + f64::from(random.below(1000)) / 5000.0);
            all.push(PathSample {
                group: from * 16 + to,
                links,
                sent: packets.into(),
                lost,
                trimmed: 0,
                measured: 20,
                rtt,
            });
        }
        all
    }

    #[test]
    fn one_lossy_or_slow_link_of_64_is_named_alone() {
        let mut random = Random::new(1, StreamKind::Workload, 0);
        for link in [(0, 5, 1), (1, 2, 3), (2, 0, 1), (3, 3, 14)] {
            for (share, factor) in [(0.01, 1.0), (0.0, 8.0)] {
                let found = find(&samples(&mut random, 400, Some((link, share, factor))), &GraySettings::default());
                assert_eq!(found.len(), 1, "{link:?}: {found:?}");
                assert_eq!(found[0].links, [link]);
                match found[0].symptom {
                    Symptom::Loss(found) => assert!((0.005..0.02).contains(&found) && share > 0.0, "{found}"),
                    Symptom::Full(share) => panic!("nothing was trimmed: {share}"),
                    Symptom::Delay(found) => assert!((6.0..10.0).contains(&found) && factor > 1.0, "{found}"),
                }
            }
        }
    }

    #[test]
    fn an_hour_without_a_fault_names_nobody() {
        let mut random = Random::new(2, StreamKind::Workload, 0);
        // A look per second for an hour: few packets per look make chance largest.
        for _ in 0..3_600 {
            assert_eq!(find(&samples(&mut random, 50, None), &GraySettings::default()), []);
        }
    }

    #[test]
    fn links_that_the_same_paths_cross_are_named_together() {
        let path = |links: &[u32], lost: u64| PathSample {
            group: links[1],
            links: links.to_vec(),
            sent: 1000,
            lost,
            trimmed: 0,
            measured: 0,
            rtt: 0.0,
        };
        let found = find(&[path(&[1, 2, 3], 30), path(&[1, 4, 5], 0)], &GraySettings::default());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].links, [2, 3]);
        assert_eq!(find(&[path(&[1, 2], 0)], &GraySettings::default()), []);
        // Congestion loses everywhere.
        assert_eq!(
            find(&[path(&[1, 2], 31), path(&[1, 3], 30)], &GraySettings { contrast: 4.0, ..GraySettings::default() })
                .iter()
                .flat_map(|part| part.links.clone())
                .filter(|link| *link != 1)
                .count(),
            0
        );
    }
}
