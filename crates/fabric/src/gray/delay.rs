//! Which samples are slow.

use super::{GraySettings, PathSample, Within, stretches};

/// Marks the samples with long round trips: each compared with the median of its interval, or with that of all samples
/// ([`Within::Fabric`]). Of real nodes ([`Within::Pair`]) those with suspicions, too: a slow link's packets are late, and its
/// short queue loses some.
pub(super) fn mark<L>(left: &[&PathSample<L>], settings: &GraySettings) -> Vec<bool> {
    let mut hits: Vec<bool> = left.iter().map(|sample| sample.is_suspected(settings)).collect();
    for places in stretches(left, |a, b| settings.within == Within::Fabric || a.interval == b.interval) {
        let is_measured = |at: &usize| left[*at].measured >= settings.measured;
        let mut rtts: Vec<f64> = places.clone().filter(is_measured).map(|at| left[at].rtt).collect();
        rtts.sort_by(f64::total_cmp);
        let Some(median) = rtts.get(rtts.len().saturating_sub(1) / 2).copied() else { continue };
        for at in places.filter(is_measured) {
            hits[at] |= median > 0.0 && left[at].rtt > settings.slow * median;
        }
    }
    hits
}
