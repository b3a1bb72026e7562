//! Times collectives between processes through the Rust interface. `bench/collectives/run.py --backend rust` starts it,
//! a process per rank, and `table.py` has it as a column. By hand, one process per rank:
//!
//! ```sh
//! cargo build --release -p strandway-group --example collectives
//! for RANK in 0 1; do
//!     RANK=$RANK WORLD_SIZE=2 STRANDWAY_STORE=127.0.0.1:29501 target/release/examples/collectives all_reduce,broadcast 1024,1048576 1 &
//! done; wait
//! ```
//!
//! Arguments: operations, sizes in bytes (as in nccl-tests: of the tensor, of the whole output of all_gather, of the
//! whole input of reduce_scatter and all_to_all), and seconds for each row. `gather_and_scatter` is an all_gather and a
//! reduce_scatter of that size at the same time, in two groups. Numbers are f32, reductions are sums. Each row has three
//! batches; a batch counts as slow as its slowest rank. Rank 0 writes the rows as JSON into the file
//! `BENCH_RESULT`, or prints them.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::time::Instant;
use strandway_group::process::{Failure, Group, GroupOptions, Launch, Reduction};

/// The name of an all-gather and a reduce-scatter at the same time.
const BOTH: &str = "gather_and_scatter";
/// Batches of a row; the median counts.
const BATCHES: usize = 3;

/// The buffers of one operation.
struct Buffers {
    input: Vec<f32>,
    output: Vec<f32>,
    /// Those of the operation beside it.
    beside: Option<Box<Buffers>>,
}

impl Buffers {
    /// For a whole of `size` bytes, filled with `value`.
    fn new(name: &str, size: usize, ranks: usize, value: f32) -> Buffers {
        let part = (size / 4 / ranks).max(1);
        let beside = (name == BOTH).then(|| Box::new(Buffers::new("reduce_scatter", size, ranks, value)));
        let (input, output) = match name {
            "all_gather" | BOTH => (part, part * ranks),
            "reduce_scatter" => (part * ranks, part),
            "all_to_all" => (part * ranks, part * ranks),
            _ => (part * ranks, 0),
        };
        Buffers { input: vec![value; input], output: vec![-1.0; output], beside }
    }

    fn run(&mut self, name: &str, (group, twin): (&Group, &Group)) -> Result<(), Failure> {
        if let Some(beside) = &mut self.beside {
            return std::thread::scope(|scope| {
                let scatter = scope.spawn(|| beside.run("reduce_scatter", (twin, twin)));
                let gathered = group.all_gather(&self.input, &mut self.output);
                scatter.join().expect("no panic").and(gathered)
            });
        }
        match name {
            "all_reduce" => group.all_reduce(&mut self.input, Reduction::Sum),
            "broadcast" => group.broadcast(&mut self.input, 0),
            "all_gather" => group.all_gather(&self.input, &mut self.output),
            "reduce_scatter" => group.reduce_scatter(&self.input, &mut self.output, Reduction::Sum),
            _ => group.all_to_all(&self.input, &mut self.output),
        }
    }

    /// Did rank `r` contribute `r + 1`, and is the result right?
    fn is_right(&self, name: &str, ranks: usize) -> bool {
        let total = (ranks * (ranks + 1) / 2) as f32;
        if self.beside.as_ref().is_some_and(|beside| !beside.is_right("reduce_scatter", ranks)) {
            return false;
        }
        match name {
            "all_reduce" => self.input.iter().all(|number| *number == total),
            "reduce_scatter" => self.output.iter().all(|number| *number == total),
            "broadcast" => self.input.iter().all(|number| *number == 1.0),
            _ => {
                let part = self.output.len() / ranks;
                self.output.iter().enumerate().all(|(at, number)| *number == (at / part + 1) as f32)
            }
        }
    }
}

/// The largest of the times of all ranks, for one operation of a batch.
fn batch(buffers: &mut Buffers, name: &str, groups: (&Group, &Group), count: usize) -> Result<f64, Failure> {
    let group = groups.0;
    group.barrier()?;
    let began = Instant::now();
    for _ in 0..count {
        buffers.run(name, groups)?;
    }
    let mut time = [began.elapsed().as_secs_f64() / count as f64];
    group.all_reduce(&mut time, Reduction::Max)?;
    Ok(time[0])
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [operations, sizes, seconds] = arguments.as_slice() else {
        return Err(
            "give operations, sizes in bytes, and seconds for each row: all_reduce,broadcast 1024,1048576 1".into()
        );
    };
    let seconds: f64 = seconds.parse()?;
    let sizes: Vec<usize> = sizes.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let launch = Launch::from_env()?;
    let group = launch.form(GroupOptions::default())?;
    let twin = group.twin(0);
    let groups = (&group, &twin);
    let ranks = launch.ranks as usize;
    let mut rows = Vec::new();
    for name in operations.split(',') {
        if !["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", BOTH].contains(&name) {
            return Err(format!(
                "{name}: no operation; take all_reduce, broadcast, all_gather, reduce_scatter, all_to_all, {BOTH}"
            )
            .into());
        }
        for &size in &sizes {
            let mut first = Buffers::new(name, size, ranks, (launch.rank + 1) as f32);
            first.run(name, groups)?;
            if !first.is_right(name, ranks) {
                return Err(format!("rank {}: wrong result of {name} at {size} bytes", launch.rank).into());
            }
            let mut buffers = Buffers::new(name, size, ranks, 0.0);
            batch(&mut buffers, name, groups, 2)?;
            let one = batch(&mut buffers, name, groups, 3)?;
            let count = (seconds / BATCHES as f64 / one).clamp(3.0, 20_000.0) as usize;
            let times = (0..BATCHES).map(|_| batch(&mut buffers, name, groups, count)).collect::<Result<Vec<f64>, _>>();
            let mut times = times?;
            times.sort_by(f64::total_cmp);
            let other = (ranks - 1) as f64 / ranks as f64;
            let factor = match name {
                "all_reduce" => 2.0 * other,
                "broadcast" => 1.0,
                // Bytes of both operations.
                BOTH => 2.0 * other,
                _ => other,
            };
            let us = |at: usize| times[at] * 1e6;
            let gbps = size as f64 * 8.0 / times[BATCHES / 2] / 1e9;
            let mut row = String::new();
            write!(
                row,
                "{{\"operation\": \"{name}\", \"bytes\": {size}, \"ranks\": {ranks}, \"iterations\": {}, ",
                BATCHES * count
            )?;
            write!(
                row,
                "\"median_us\": {:.3}, \"min_us\": {:.3}, \"max_us\": {:.3}, ",
                us(BATCHES / 2),
                us(0),
                us(BATCHES - 1)
            )?;
            write!(row, "\"algbw_gbps\": {gbps:.4}, \"busbw_gbps\": {:.4}}}", gbps * factor)?;
            rows.push(row);
        }
    }
    if launch.rank == 0 {
        let version = env!("CARGO_PKG_VERSION");
        let text = format!("{{\"version\": \"strandway {version}, Rust\", \"rows\": [\n{}\n]}}\n", rows.join(",\n"));
        match env::var_os("BENCH_RESULT") {
            Some(path) => std::fs::write(path, text)?,
            None => print!("{text}"),
        }
    }
    group.barrier()?;
    if let Err(failure) = strandway_group::process::close_all() {
        eprintln!("{failure}");
        std::process::exit(1);
    }
    Ok(())
}
