//! Measures the lengths at which collectives change their algorithm.

use super::launch::prepare;
use super::tuning::{EAGER, Tuning};
use super::{Group, GroupOptions, Launch, Prefixed, ProcessOptions, Reduction};
use crate::error::GroupError;
use std::time::{Duration, Instant};

/// One length of one key, and the time that collectives took with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// `whole`, `tree` or `part`.
    pub key: &'static str,
    /// The length in bytes.
    pub bytes: usize,
    /// The sum over the measured sizes of the median time at the slowest rank.
    pub time: Duration,
}

/// The candidates of each key, and the collectives that it decides: true for all-reduce, false for broadcast, and their
/// sizes in bytes.
const CANDIDATES: [(&str, &[usize], bool, &[usize]); 3] = [
    ("whole", &[1_024, 4_096, 8_192, EAGER], true, &[2_048, 6_144, 12_288]),
    ("tree", &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20], false, &[32 << 10, 128 << 10, 512 << 10, 2 << 20]),
    ("part", &[64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20], true, &[1 << 20, 4 << 20, 16 << 20]),
];

/// Measures all candidates between the ranks that a launcher has started, and takes the fastest of each key. All ranks
/// call it, and have the same result. `each` gets every candidate.
///
/// # Errors
/// If ranks do not meet, or one ends.
pub fn tune(launch: &Launch, runs: u32, mut each: impl FnMut(&Candidate)) -> Result<Tuning, GroupError> {
    let options = GroupOptions::default();
    let (mut store, towards) = launch.open(&options)?;
    let (offer, wire) = prepare(towards.as_deref(), &options, &[])?;
    let mut best = wire.tuning;
    for (key, lengths, reduces, sizes) in CANDIDATES {
        let mut fastest: Option<Candidate> = None;
        for &bytes in lengths {
            let mut tuning = best;
            tuning.set(key, &bytes.to_string()).map_err(GroupError::Config)?;
            let mut part = Prefixed(&mut store, format!("{key}{bytes}"));
            let (wire, ranks) = (ProcessOptions { tuning, ..wire.clone() }, (launch.rank, launch.ranks));
            let (_, group) = Group::form_by(&mut part, ranks, options, &offer, &wire, |_| None)?;
            let measured = sizes.iter().map(|size| measure(&group, reduces, *size, runs)).sum::<Result<Duration, _>>();
            let time = measured.map_err(|failure| GroupError::Config(failure.to_string()))?;
            let candidate = Candidate { key, bytes, time };
            each(&candidate);
            if fastest.is_none_or(|fastest| time < fastest.time) {
                fastest = Some(candidate);
            }
        }
        if let Some(fastest) = fastest {
            best.set(key, &fastest.bytes.to_string()).map_err(GroupError::Config)?;
        }
    }
    // The store's server is needed until the last rank has read it.
    std::mem::forget(store);
    Ok(best)
}

/// The median of some runs, at the slowest rank.
fn measure(group: &Group, reduces: bool, size: usize, runs: u32) -> Result<Duration, super::Failure> {
    let mut numbers = vec![0f32; size / 4];
    let mut times = Vec::new();
    for run in 0..runs + 2 {
        group.barrier()?;
        let began = Instant::now();
        match reduces {
            true => group.all_reduce(&mut numbers, Reduction::Sum)?,
            false => group.broadcast(&mut numbers, 0)?,
        }
        // The first two warm up.
        if run >= 2 {
            times.push(began.elapsed().as_secs_f64());
        }
    }
    group.all_reduce(&mut times, Reduction::Max)?;
    times.sort_by(f64::total_cmp);
    Ok(Duration::from_secs_f64(times[times.len() / 2]))
}
