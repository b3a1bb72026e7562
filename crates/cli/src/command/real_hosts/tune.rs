//! `strandway perf tune`.

use crate::Failure;
use crate::args::PerfTuneArgs;
use crate::outputs::print;
use strandway_group::process::{Launch, tune as measure};

pub(super) fn tune(args: &PerfTuneArgs) -> Result<(), Failure> {
    let launch = Launch::from_env()?;
    let first = launch.rank == 0;
    if first {
        print(&format!("# {} ranks, {} run(s) of each size; sum of the medians\n", launch.ranks, args.iterations));
        print(&format!("#{:>14} {:>10} {:>16} {:>12}\n", "key", "bytes", "algorithm", "time (us)"));
    }
    let table = measure(&launch, args.iterations, |candidate| {
        if first {
            let us = candidate.time.as_secs_f64() * 1e6;
            let algorithm = candidate.algorithm.unwrap_or("-");
            print(&format!(" {:>14} {:>10} {algorithm:>16} {us:>12.1}\n", candidate.key, candidate.bytes));
        }
    })?;
    if first {
        print(&table.to_string());
        if let Some(path) = &args.write {
            let text = format!("# strandway perf tune, {} ranks\n{table}", launch.ranks);
            std::fs::write(path, text)
                .map_err(|error| Failure::Usage(format!("--write {}: {error}", path.display())))?;
        }
    }
    Ok(())
}
