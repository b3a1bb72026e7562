//! Queues of gigabytes are counted, limited and marked like small queues.

use strandway_lab::{Scenario, run};
use strandway_report::Report;
use strandway_sim::Control;

/// Twelve hosts send 600 MB each to one host at the same time, without congestion control: 6.6 GB wait for its link
/// after 13 ms.
fn incast(fabric: &str) -> Report {
    let text = format!(
        "[fabric]\nhosts = 13\nhosts_per_leaf = 13\nspines = 1\nlatency = \"100 us\"\ntrimming = false\n{fabric}\n\
         [profile]\nname = \"uec/single/fixed\"\n\
         [profile.transport]\nmtu = 60000\n\
         [profile.fixed]\nwindow_bdp = 200\n\
         [profile.selective_repeat]\nwindow_psn = 4194304\nrto = \"1 s\"\n\
         [workload]\nkind = \"incast\"\nsenders = 12\nsize = \"600 MB\"\n\
         [run]\ntime_limit = \"13 ms\"\n"
    );
    let experiment = Scenario::from_text("deep.toml", &text)
        .and_then(|s| strandway_lab::check(&s))
        .unwrap_or_else(|e| panic!("{e}"));
    run(&experiment, &Control::new()).report
}

/// Bytes that the host's link carries from about 200 us on: 50 per nanosecond.
const CARRIED: f64 = 50.0 * 12.8e6;

fn longest(report: &Report) -> f64 {
    report.load.links.iter().map(|g| g.queue_max_bytes).max().unwrap_or_default() as f64
}

#[test]
fn a_queue_longer_than_32_bits_tell_is_counted() {
    let r = incast("queue = \"12.5 GB\"\necn = false");
    assert_eq!(r.packets.dropped, 0);
    let expected = 12.0 * 600e6 * 60064.0 / 60000.0 - CARRIED;
    assert!((longest(&r) - expected).abs() < 0.02 * expected, "{} of about {expected} bytes", longest(&r));
}

#[test]
fn a_limit_above_4_gib_drops_what_is_beyond() {
    let r = incast("queue = \"5 GB\"\necn = false");
    assert!(longest(&r) <= 5e9 && longest(&r) > 4.99e9, "{} bytes", longest(&r));
    let expected = (12.0 * 600e6 * 60064.0 / 60000.0 - CARRIED - 5e9) / 60064.0;
    let dropped = r.packets.dropped as f64;
    assert!((dropped - expected).abs() < 0.05 * expected, "{dropped} packets dropped, expected {expected}");
}

#[test]
fn a_threshold_above_4_gib_marks_what_is_beyond() {
    let r = incast("queue = \"12.5 GB\"\necn_low = \"4.5 GB\"\necn_high = \"4.5 GB\"");
    // The queue grows by 550 bytes per nanosecond from 0.2 ms on. Packets that leave while 4.5 GB or more wait, until
    // 13 ms, are marked.
    let expected = (12.8e6 - 4.5e9 / 550.0) * 50.0 / 60064.0;
    let marked = r.packets.marked as f64;
    assert!((marked - expected).abs() < 0.05 * expected, "{marked} packets marked, expected {expected}");
}

#[test]
fn a_shared_buffer_and_pfc_count_beyond_4_gib() {
    let r = incast("shared_buffer = \"100 GB\"\nalpha = 8\necn = false");
    assert_eq!(r.packets.dropped, 0);
    assert!(longest(&r) > 6e9);
    // One ingress port holds at most 600 MB here: a pause threshold of 4 GB is never reached, a threshold of 300 MB is.
    let r = incast("pfc = true\npfc_xoff = \"5 GB\"\necn = false");
    assert_eq!((r.packets.dropped, r.packets.pauses), (0, 0));
    let r = incast("pfc = true\npfc_xoff = \"300 MB\"\necn = false");
    assert_eq!(r.packets.dropped, 0);
    assert!(r.packets.pauses >= 12);
}
