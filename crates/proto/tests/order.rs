//! Losses found by the order of a single path, when the world says that paths keep their order.

use super::pair_support::{Outcome, PACKET, RTT, World, check};
use strandway_proto::Span;
use strandway_proto::reliability::ReliabilityConfig;

/// The number of round trips that lateness alone needs, as between kernels, whose paths differ by this much.
const PATIENCE: u64 = 4;

/// Two paths per port, each in order.
fn world(preset: &str) -> World {
    let mut world =
        World::new(preset).without_trimming().packets(2_000).with(|profile| match &mut profile.reliability {
            ReliabilityConfig::SelectiveRepeat(config) => config.late = PATIENCE as f64,
            ReliabilityConfig::MrcSack(config) => config.reorder_min = RTT * PATIENCE,
            _ => panic!("it repeats everything, or knows no order"),
        });
    world.environment.paths_in_order = 2;
    world
}

/// The time from the first sending of `psn` to the second.
fn mended(outcome: &Outcome, psn: u32) -> Span {
    outcome.left(psn, 1) - outcome.left(psn, 0)
}

#[test]
fn a_packet_overtaken_on_its_own_path_is_lost_long_before_it_is_late() {
    for preset in ["strack_fast", "mrc"] {
        let mut world = world(preset);
        let quick = mended(&check(&world, "drop 600", "again 1, timeouts 0, duplicates 0"), 600);
        // The slack and a round trip, the path's turn, and acknowledgements that report 64 packets at a time.
        assert!(quick > RTT * 2 && quick < RTT * 3 + PACKET * 64, "{preset}: {quick}");
        world.environment.paths_in_order = 0;
        let slow = mended(&check(&world, "drop 600", "again 1, timeouts 0, duplicates 0"), 600);
        assert!(slow > RTT * (PATIENCE + 1), "{preset}: {slow} by lateness");
    }
}

#[test]
fn copies_are_judged_like_originals() {
    for preset in ["strack_fast", "mrc"] {
        let outcome = check(&world(preset), "drop 600 x3; drop 700..720", "again 24, timeouts 0, duplicates 0");
        assert!(outcome.left(600, 3) - outcome.left(600, 0) < RTT * 11, "{preset}");
    }
}

#[test]
fn a_path_that_falls_behind_the_others_loses_nothing() {
    for preset in ["strack_fast", "mrc"] {
        // Packets on one of the two paths take three round trips longer; each path keeps its order.
        let mut world = world(preset);
        world.detour = |packet| if packet.path.entropy() % 2 == 1 { RTT * 3 } else { Span::ZERO };
        check(&world, "", "again 0, timeouts 0, duplicates 0");
        world.environment.paths_in_order = 1;
        let outcome = check(&world, "", "timeouts 0, delivered 2000");
        assert!(outcome.stats.duplicates > 50, "taken for one path they seem to: {}", outcome.stats.duplicates);
    }
}
