//! Measures the lengths at which collectives change their algorithm, and the algorithms.

use super::launch::prepare;
use super::{Failure, Group, GroupOptions, Launch, Prefixed, ProcessOptions, Reduction};
use crate::error::GroupError;
use std::time::{Duration, Instant};
use strandway_collective::plan::direct::EAGER;
use strandway_collective::plan::{PlanAlgorithm, Tuning};

/// One value of one key, and the time that collectives took with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// `whole`, `tree` or `part`, or the name of a collective.
    pub key: &'static str,
    /// The length in bytes.
    pub bytes: usize,
    /// The algorithm, where the key is a collective.
    pub algorithm: Option<&'static str>,
    /// The sum over the measured sizes of the median time at the slowest rank.
    pub time: Duration,
}

/// The candidates of each key, the collective that it decides, and sizes in bytes.
const CANDIDATES: [(&str, &[usize], &str, &[usize]); 3] = [
    ("whole", &[1_024, 4_096, 8_192, EAGER], "all_reduce", &[2_048, 6_144, 12_288]),
    (
        "tree",
        &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
        "broadcast",
        &[32 << 10, 128 << 10, 512 << 10, 2 << 20],
    ),
    (
        "part",
        &[64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20],
        "all_reduce",
        &[1 << 20, 4 << 20, 16 << 20],
    ),
];

/// The collectives with several algorithms, and those algorithms; the direct one is the first. The hierarchical one
/// counts only where ranks share hosts, multicast where a plane carries it, and a switch where it adds.
const ALGORITHMS: [(&str, &[&str]); 4] = [
    ("all_reduce", &["direct", "ring", "halving-doubling", "tree", HIERARCHICAL, "in-network"]),
    ("all_gather", &["direct", "ring", "halving-doubling", "pat", HIERARCHICAL, "multicast"]),
    ("reduce_scatter", &["direct", "ring", "pat", HIERARCHICAL, "in-network"]),
    ("broadcast", &["direct", "ring", HIERARCHICAL, "multicast"]),
];
const HIERARCHICAL: &str = PlanAlgorithm::Hierarchical.name();

/// The sizes in bytes at which algorithms are compared.
const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// Another algorithm than the direct one has to take at most this part of its time: ours, more than chance makes.
const BETTER: f64 = 0.9;

/// Measures all candidates between the ranks that a launcher has started, and takes the fastest of each key. All ranks
/// call it, and have the same result. `each` gets every candidate.
///
/// # Errors
/// If ranks do not meet, or one ends.
pub fn tune(launch: &Launch, runs: u32, mut each: impl FnMut(&Candidate)) -> Result<Tuning, GroupError> {
    let options = GroupOptions::default();
    let (mut store, towards) = launch.open(&options)?;
    let (offer, wire) = prepare(towards.as_deref(), &options, &[])?;
    let mut best = wire.tuning.clone();
    for (key, lengths, collective, sizes) in CANDIDATES {
        let mut fastest: Option<Candidate> = None;
        for &bytes in lengths {
            let mut tuning = best.clone();
            tuning.set(key, &bytes.to_string()).map_err(GroupError::Config)?;
            let mut part = Prefixed(&mut store, format!("{key}{bytes}"));
            let (wire, ranks) = (ProcessOptions { tuning, ..wire.clone() }, (launch.rank, launch.ranks));
            let (_, group) = Group::form_by(&mut part, ranks, options, &offer, &wire, |_| None)?;
            let measured =
                sizes.iter().map(|size| measure(&group, collective, *size, runs)).sum::<Result<Duration, _>>();
            let time = measured.map_err(|failure| GroupError::Config(failure.to_string()))?;
            let candidate = Candidate { key, bytes, algorithm: None, time };
            each(&candidate);
            if fastest.as_ref().is_none_or(|fastest| time < fastest.time) {
                fastest = Some(candidate);
            }
        }
        if let Some(fastest) = fastest {
            best.set(key, &fastest.bytes.to_string()).map_err(GroupError::Config)?;
        }
    }
    let (mut rules, mut is_shared) = (Vec::new(), false);
    for (collective, algorithms) in ALGORITHMS {
        let mut times = Vec::new();
        for &algorithm in algorithms {
            let mut tuning = best.clone();
            tuning.set("algorithm", &format!("{collective}={algorithm}")).map_err(GroupError::Config)?;
            let mut part = Prefixed(&mut store, format!("{collective}{algorithm}"));
            let (wire, ranks) = (ProcessOptions { tuning, ..wire.clone() }, (launch.rank, launch.ranks));
            let (_, group) = Group::form_by(&mut part, ranks, options, &offer, &wire, |_| None)?;
            is_shared = group.hosts.are_shared();
            if algorithm == HIERARCHICAL && !is_shared {
                continue;
            }
            // The longest size shows whether the team works as it should; the ranks agree on that.
            let largest = SIZES[SIZES.len() - 1];
            let failed = |failure: Failure| GroupError::Config(failure.to_string());
            if let Some(by_team) = PlanAlgorithm::named(algorithm).filter(|one| one.is_of_team()) {
                measure(&group, collective, largest, 0).map_err(failed)?;
                if !everywhere(&group, group.uses_team(by_team)).map_err(failed)? {
                    continue;
                }
            }
            for bytes in SIZES {
                let time = measure(&group, collective, bytes, runs).map_err(failed)?;
                each(&Candidate { key: collective, bytes, algorithm: Some(algorithm), time });
                times.push((bytes, algorithm, time));
            }
        }
        rules.extend(rules_of(collective, &times, is_shared));
    }
    if !rules.is_empty() {
        best.set("algorithm", &rules.join(",")).map_err(GroupError::Config)?;
    }
    // The store's server is needed until the last rank has read it.
    std::mem::forget(store);
    Ok(best)
}

/// The rules that follow from times by size and algorithm. Between two sizes the algorithm changes at their geometric
/// mean. Ranks that share hosts need a rule for the direct algorithm, too.
fn rules_of(collective: &str, times: &[(usize, &str, Duration)], is_shared: bool) -> Vec<String> {
    let (mut rules, mut before) = (Vec::new(), if is_shared { "" } else { "direct" });
    for (at, bytes) in SIZES.into_iter().enumerate() {
        let of_size = || times.iter().filter(|(of, ..)| *of == bytes);
        let direct = of_size().find(|(_, algorithm, _)| *algorithm == "direct").map(|(.., time)| *time);
        let fastest = of_size().min_by_key(|(.., time)| *time);
        let chosen = match (direct, fastest) {
            (Some(direct), Some((_, algorithm, time))) if *time < direct.mul_f64(BETTER) => algorithm,
            _ => "direct",
        };
        if chosen != before {
            let above = match at.checked_sub(1) {
                Some(at) => format!(">{}", ((SIZES[at] as f64) * (bytes as f64)).sqrt() as usize),
                None => String::new(),
            };
            rules.push(format!("{collective}={chosen}{above}"));
            before = chosen;
        }
    }
    rules
}

/// Is it so at all ranks?
fn everywhere(group: &Group, here: bool) -> Result<bool, Failure> {
    let mut all = [i32::from(here)];
    group.all_reduce(&mut all, Reduction::Min)?;
    Ok(all[0] == 1)
}

/// The median of some runs, at the slowest rank; zero if there are none. `size`: bytes of the longest buffer of a rank.
fn measure(group: &Group, collective: &str, size: usize, runs: u32) -> Result<Duration, Failure> {
    let ranks = group.ranks() as usize;
    let mut numbers = vec![0f32; size / 4 / ranks * ranks];
    let mut block = vec![0f32; numbers.len() / ranks];
    let mut times = Vec::new();
    for run in 0..runs + 2 {
        group.barrier()?;
        let began = Instant::now();
        match collective {
            "all_reduce" => group.all_reduce(&mut numbers, Reduction::Sum)?,
            "all_gather" => group.all_gather(&block, &mut numbers)?,
            "reduce_scatter" => group.reduce_scatter(&numbers, &mut block, Reduction::Sum)?,
            _ => group.broadcast(&mut numbers, 0)?,
        }
        // The first two warm up.
        if run >= 2 {
            times.push(began.elapsed().as_secs_f64());
        }
    }
    group.all_reduce(&mut times, Reduction::Max)?;
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).map_or(Duration::ZERO, |median| Duration::from_secs_f64(*median)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_is_taken_from_the_size_on_where_it_is_clearly_faster() {
        let ms = Duration::from_millis;
        let mut times = Vec::new();
        for (bytes, direct, ring) in
            [(SIZES[0], 10, 30), (SIZES[1], 20, 19), (SIZES[2], 100, 50), (SIZES[3], 1_000, 995)]
        {
            times.extend([(bytes, "direct", ms(direct)), (bytes, "ring", ms(ring))]);
        }
        assert_eq!(rules_of("all_reduce", &times, false), ["all_reduce=ring>262144", "all_reduce=direct>4194304"]);
        assert!(rules_of("broadcast", &times[..2], false).is_empty());
        assert_eq!(rules_of("broadcast", &times[..2], true), ["broadcast=direct"]);
        times.iter_mut().for_each(|(.., time)| *time = ms(5) + *time / 100);
        assert!(rules_of("all_reduce", &times, false).is_empty());
    }
}
