//! One window per destination: many connections between two hosts take the same share of a fabric as one connection.

use super::support::{leaf_spine, link, plan, preset, run};
use strandway_fabric::measure::{FlowRecord, Measurements};
use strandway_proto::Profile;
use strandway_proto::congestion::{CongestionConfig, NsccConfig};

const SENDERS: u32 = 7;
const BYTES: u64 = 8_000_000;

/// Seven hosts send to host 0, each over `connections` connections; host 8 also sends one flow over one connection.
fn incast(connections: u32, shared: bool) -> Measurements {
    let congestion = CongestionConfig::Nscc(NsccConfig { per_destination: shared, ..NsccConfig::default() });
    let profile = Profile { congestion, ..preset("mrc") };
    let mut flows = vec![(8, 0, BYTES)];
    for sender in 9..9 + SENDERS {
        flows.extend((0..connections).map(|_| (sender, 0, BYTES / u64::from(connections))));
    }
    run(&plan(leaf_spine(32, 8, 8), profile, &flows))
}

/// When the flow over one connection was done, and the last of all, in microseconds; and the packets trimmed at the
/// last hop.
fn outcome(m: &Measurements) -> (f64, f64, u32) {
    let done = |f: &FlowRecord| f.completion().map_or(f64::INFINITY, |c| c.as_us());
    let last = link(&leaf_spine(32, 8, 8), "leaf0", "host0");
    (done(&m.flows[0]), m.flows.iter().map(done).fold(0.0, f64::max), m.links[last.0 as usize].trimmed)
}

#[test]
fn sixteen_connections_to_one_host_behave_as_one_in_an_incast() {
    let (one, shared, apart) = (incast(1, true), incast(16, true), incast(16, false));
    let [(alone, end, trims), (beside, shared_end, shared_trims), (crowded, _, apart_trims)] =
        [&one, &shared, &apart].map(outcome);
    println!(
        "{alone:.0} {end:.0} us {trims}, {beside:.0} {shared_end:.0} us {shared_trims}, {crowded:.0} us {apart_trims}"
    );
    assert!((beside / alone - 1.0).abs() < 0.05, "done after {beside} us, beside single connections after {alone} us");
    assert!((shared_end / end - 1.0).abs() < 0.05, "all done after {shared_end} us, with single connections {end} us");
    assert!(shared_trims <= trims + trims / 4, "{shared_trims} packets trimmed, with single connections {trims}");
    assert!(apart_trims > 4 * trims, "{apart_trims} packets trimmed with a window each, {trims} with one");
}

#[test]
fn one_connection_per_destination_behaves_as_ever() {
    assert_eq!(incast(1, true).digest, incast(1, false).digest);
}
