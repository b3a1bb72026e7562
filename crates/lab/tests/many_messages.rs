//! Collectives with more messages than entries: the run is the same, and the report is nearly the same.

use strandway_lab::{Outcome, Scenario, run};
use strandway_sim::Control;

fn outcome(rows: bool) -> Outcome {
    // 1,026 ranks with 1,025 messages each: 3,074 more than the limit on entries.
    let text = format!(
        "[fabric]\nkind = \"leaf-spine\"\nhosts = 1026\nhosts_per_leaf = 54\n[profile]\nname = \"uec\"\n\
         [workload]\nname = \"gather\"\nkind = \"all-gather\"\nsize = \"1026 kB\"\n[run]\nrows = {rows}\nwhy = false\n"
    );
    let scenario = Scenario::from_text("test", &text).expect("TOML");
    run(&strandway_lab::check(&scenario).unwrap_or_else(|problems| panic!("{problems}")), &Control::new())
}

#[test]
fn a_run_without_rows_is_the_run_with_rows() {
    let (with, without) = (outcome(true), outcome(false));
    assert_eq!((with.measurements.flows.len(), without.measurements.flows.len()), (1_051_650, 0));
    assert_eq!(with.measurements.digest, without.measurements.digest);
    let (with, without) = (with.report, without.report);
    assert_eq!((without.flows.total, without.flows.finished), (1_051_650, 1_051_650));
    assert_eq!(without.flows.bytes, with.flows.bytes);
    assert_eq!(without.collectives[0].time_us, with.collectives[0].time_us);
    assert_eq!(without.classes[0].total, with.classes[0].total);
    assert_eq!(without.times.goodput_gbps.mean_per_host, with.times.goodput_gbps.mean_per_host);
    let (a, b) = (&with.times.fct_us, &without.times.fct_us);
    for (exact, found) in [(a.p50, b.p50), (a.p90, b.p90), (a.p99, b.p99), (a.p999, b.p999), (a.mean, b.mean)] {
        let (exact, found) = (exact.expect("all finished"), found.expect("all finished"));
        assert!((exact - found).abs() <= 0.004 * exact, "{found} for {exact}");
    }
    assert_eq!((a.min, a.max), (b.min, b.max));
    let slowest = |report: &strandway_report::Report| -> Vec<(String, u64)> {
        report.flows.slowest.iter().map(|s| (format!("{} {:.6}", s.name, s.fct_us), s.bytes)).collect()
    };
    assert_eq!(slowest(&with), slowest(&without));
    assert!(without.notes.iter().any(|n| n.contains("have no row each")), "{:?}", without.notes);
}
