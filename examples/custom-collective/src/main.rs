//! A collective algorithm of your own: an all-gather in both directions of a ring, in half the steps of a ring.
//!
//! `cargo run -p custom-collective` compares it with the ring in the simulator.

use std::sync::Arc;
use strandway_fabric::plan::ConnectionPlan;
use strandway_import::Problems;
use strandway_lab::{Experiment, Scenario, check, run};
use strandway_sim::Control;

// snippet: begin
use strandway_collective::recipe::Does;
use strandway_collective::{Collective, Operation, Plans, Recipe, RecipeBuilder, RecipeError};

/// All-gather in both directions of a ring: in each step a rank passes one block to its right and one to its left, so
/// the last block arrives after half as many steps as in a ring.
fn two_way_ring(ranks: u32) -> Result<Recipe, RecipeError> {
    let mut recipe = RecipeBuilder::new(ranks, ranks);
    // With an even number of ranks, the block of the opposite rank comes from the left only.
    for (direction, steps) in [(1, ranks / 2), (ranks - 1, (ranks - 1) / 2)] {
        // The node in which a rank received the block that it passes on next.
        let mut received: Vec<Option<u32>> = vec![None; ranks as usize];
        for step in 0..steps {
            let mut next = received.clone();
            for rank in 0..ranks {
                let to = (rank + direction) % ranks;
                let block = (rank + step * (ranks - direction)) % ranks;
                let message = recipe.message((rank, to, 0), &[block], false);
                recipe.node(rank, Does::Send(message), received[rank as usize].as_slice());
                next[to as usize] = Some(recipe.node(to, Does::Receive(message), &[]));
            }
            received = next;
        }
    }
    recipe.finish("two-way ring", Collective::AllGather)
}

/// Every rank receives each block of the others once. `finish` has checked that no rank waits for itself.
fn check_blocks(recipe: &Recipe) {
    for rank in 0..recipe.ranks() {
        let messages = (0u32..).zip(recipe.messages()).filter(|(_, message)| message.to == rank);
        let mut blocks: Vec<u32> = messages.flat_map(|(number, _)| recipe.blocks_of(number)).copied().collect();
        blocks.sort_unstable();
        let others: Vec<u32> = (0..recipe.ranks()).filter(|block| *block != rank).collect();
        assert_eq!(blocks, others, "blocks of rank {rank}");
    }
}
// snippet: end

/// Sixteen hosts at 400 Gb/s, which gather blocks of 4 KiB. A recipe takes the place of `pat`, which is a recipe, too.
const SCENARIO: &str = r#"
[fabric]
kind = "leaf-spine"
hosts = 16
hosts_per_leaf = 4
[profile]
name = "uec"
[workload]
kind = "all-gather"
size = "64 KiB"
algorithm = "ALGORITHM"
"#;

fn experiment(algorithm: &str) -> Result<Experiment, Problems> {
    check(&Scenario::from_text("scenario", &SCENARIO.replace("ALGORITHM", algorithm))?)
}

/// The experiment's only collective follows this recipe, over connections between the recipe's ranks.
fn follow(experiment: &mut Experiment, recipe: Recipe) {
    let Operation::Messages(collective) = &mut experiment.operations[0] else { return };
    let connection = |&(from, to): &(u32, u32)| ConnectionPlan {
        source: collective.hosts[from as usize],
        destination: collective.hosts[to as usize],
        profile: collective.profile,
    };
    experiment.plan.connections = recipe.channels().iter().map(connection).collect();
    experiment.collectives[0].algorithm = recipe.name().to_string();
    **collective = collective.with(Plans::Tabled { recipe: Arc::new(recipe), bytes: experiment.collectives[0].bytes });
}

/// The time of the collective in microseconds.
fn time(experiment: &Experiment) -> f64 {
    let report = run(experiment, &Control::new()).report;
    let collective = &report.collectives[0];
    let time = collective.time_us.expect("it ends");
    println!("{:12} {time:6.1} us", collective.algorithm);
    time
}

fn main() -> Result<(), Problems> {
    for ranks in 2..=17 {
        check_blocks(&two_way_ring(ranks).expect("a recipe"));
    }
    let ring = time(&experiment("ring")?);
    let mut ours = experiment("pat")?;
    follow(&mut ours, two_way_ring(16).expect("a recipe"));
    let ours = time(&ours);
    // Eight steps instead of fifteen. A step takes about 2.7 us, most of it on the links.
    assert!(ours < 0.65 * ring, "{ours} us, the ring {ring} us");
    Ok(())
}
