//! Packet hops per second of whole runs: `cargo bench -p strandway-sim`.
//!
//! divan prints items per second; an item is a packet hop, that is, a packet leaving one port onto one link.
#![allow(missing_docs, reason = "a bench has no public items")]

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use divan::counter::ItemsCount;
use support::{leaf_spine, permutation, plan, preset, run};

fn main() {
    divan::main();
}

/// Runs a permutation and counts its packet hops.
fn permute(bencher: Bencher<'_, '_>, hosts: u32, per_leaf: u32, bytes: u64, profile: &str, threads: usize) {
    let mut plan = plan(leaf_spine(hosts, per_leaf, per_leaf), preset(profile), &permutation(hosts, bytes, 1));
    plan.threads = threads;
    let hops = run(&plan).packet_hops;
    bencher.counter(ItemsCount::new(hops)).bench_local(|| run(&plan));
}

#[divan::bench(sample_count = 10)]
fn uec_128_hosts(bencher: Bencher<'_, '_>) {
    permute(bencher, 128, 16, 2_000_000, "uec", 1);
}

#[divan::bench(sample_count = 10)]
fn uec_1024_hosts(bencher: Bencher<'_, '_>) {
    permute(bencher, 1024, 32, 2_000_000, "uec", 1);
}

#[divan::bench(sample_count = 3, args = [1, 2])]
fn uec_8192_hosts(bencher: Bencher<'_, '_>, threads: usize) {
    permute(bencher, 8192, 64, 1_000_000, "uec", threads);
}

#[divan::bench(sample_count = 5)]
fn rocev2_pfc_1024_hosts(bencher: Bencher<'_, '_>) {
    permute(bencher, 1024, 32, 2_000_000, "rocev2", 1);
}
