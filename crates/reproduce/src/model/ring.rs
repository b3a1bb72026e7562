//! An all-reduce around a ring of sites. Each step is a message whose time the model computes. SDR-RDMA §4.4.

use strandway_proto::repair::model::Completion;
use strandway_proto::rng::{Random, StreamKind};

/// The mean and the 99.9th percentile of the time until all sites have done `2 N - 2` steps. A site begins a step when
/// it and the site before it have done the previous step. At the sender, a step is done when the last acknowledgement
/// has arrived.
pub(super) fn all_reduce(step: &Completion, sites: u32, samples: u32, seed: u64) -> (f64, f64) {
    let sampler = step.sampler();
    let mut random = Random::new(seed, StreamKind::Workload, u64::from(sites));
    let mut times: Vec<f64> = (0..samples)
        .map(|_| {
            let mut done = vec![0.0_f64; sites as usize];
            for _ in 0..2 * (sites - 1) {
                // The last site is before the first one in the ring.
                let mut before = done[done.len() - 1];
                for site in &mut done {
                    let begins = site.max(before);
                    before = std::mem::replace(site, begins + sampler.draw(random.unit(), random.unit()));
                }
            }
            done.into_iter().fold(0.0, f64::max)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    // The smallest time that is at least as long as 999 of 1,000 samples.
    let rank = (times.len() * 999).div_ceil(1000).max(1);
    (mean, times[rank - 1])
}
