//! A first look at speed and figures.
mod support;
use support::*;

#[test]
fn look() {
    for (name, topology, flows) in [
        ("perm128", leaf_spine(128, 16, 16), permutation(128, 2_000_000, 1)),
        ("perm1024", leaf_spine(1024, 32, 32), permutation(1024, 2_000_000, 1)),
        ("perm8192", leaf_spine(8192, 64, 64), permutation(8192, 1_000_000, 1)),
    ] {
        for threads in [1,1,1] {
            let mut plan = plan(topology.clone(), preset("uec"), &flows);
            plan.threads = threads;
            let at = std::time::Instant::now();
            let m = run(&plan);
            let s = at.elapsed().as_secs_f64();
            println!(
                "{name} {threads} {:?} {:?} hops {} events/hop {:.3} wall {s:.3} Mhops/s {:.2} digest {:x} {:?}",
                m.end, completions(&m), m.packet_hops, m.events as f64 / m.packet_hops as f64,
                m.packet_hops as f64 / s / 1e6, m.digest, m.packets
            );
        }
    }
}
