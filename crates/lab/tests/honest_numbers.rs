//! The counts of a report add up, and no table looks better because of flows that did not finish.

use std::path::Path;
use strandway_lab::{Experiment, Scenario, pcap, run};
use strandway_report::Report;
use strandway_sim::Control;

fn experiment(text: &str) -> Experiment {
    Scenario::from_text("honest.toml", text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"))
}

fn report(text: &str) -> Report {
    run(&experiment(text), &Control::new()).report
}

#[test]
fn a_capture_holds_the_first_packets_up_to_its_limit() {
    let text = |limit: &str| {
        format!(
            "[fabric]\nhosts = 8\nhosts_per_leaf = 2\n[workload]\nkind = \"permutation\"\nsize = \"400 kB\"\n\
             [run]\n{limit}\n"
        )
    };
    let recorded = |limit: &str, threads: usize| {
        let mut experiment = experiment(&text(limit));
        experiment.plan.threads = threads;
        experiment.with_capture();
        let outcome = run(&experiment, &Control::new());
        (
            outcome.measurements.captured.clone(),
            pcap::write(&experiment, &outcome.measurements, &mut std::io::sink()).expect("nothing fails").packets,
        )
    };
    for what in ["", "capture = \"spine0\"\n"] {
        let (all, _) = recorded(what, 1);
        assert!(all.len() > 150, "{} packets", all.len());
        for threads in [1, 2, 3] {
            for limit in [1, 10, 137] {
                let (some, written) = recorded(&format!("{what}capture_limit = {limit}"), threads);
                assert_eq!((some.len(), written), (limit, limit));
                assert_eq!(some, all[..limit], "{limit} on {threads} threads");
            }
        }
    }
}

#[test]
fn a_slow_link_leads_the_hottest() {
    let r = report(
        "[fabric]\nhosts = 8\nhosts_per_leaf = 2\nspines = 2\n\
         [workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 7, size = \"20 MB\" }]\n\
         [profile]\nname = \"uec/single\"\n\
         [[faults]]\nkind = \"degrade\"\nlink = \"leaf0->spine*\"\nfraction = 0.25\n",
    );
    assert!(r.load.hottest[0].name.starts_with("leaf0->spine"), "{:?}", r.load.hottest[0]);
    assert!(r.load.hottest[0].utilisation > 0.9 && r.load.hottest[0].utilisation <= 1.0, "{:?}", r.load.hottest[0]);
    let host = r.load.hottest.iter().find(|l| l.name == "host0->leaf0").expect("the sender's link");
    assert!(host.utilisation < 0.3, "{host:?}");
}

#[test]
fn time_down_is_no_time_to_carry_in() {
    // Full speed, then down for most of the run, then full speed again.
    let r = report(
        "[fabric]\nhosts = 2\nhosts_per_leaf = 2\nspines = 1\n\
         [workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 1, size = \"40 MB\" }]\n\
         [[faults]]\nkind = \"down\"\nlink = \"host0->leaf0\"\nat = \"100 us\"\nuntil = \"4 ms\"\n",
    );
    assert_eq!(r.head.end, "finished");
    let link = r.load.hottest.iter().find(|l| l.name == "host0->leaf0").expect("the sender's link");
    assert!(link.utilisation > 0.85 && link.utilisation <= 1.0, "{link:?} of {} us", r.run.simulated_us);
}

/// Host 3 dies silently; the flows of other hosts finish.
const DEAD_HOST: &str =
    "[fabric]\nhosts = 64\nhosts_per_leaf = 8\n[workload]\nkind = \"permutation\"\nsize = \"2 MB\"\n";
const DEATH: &str = "[[faults]]\nkind = \"down\"\nswitch = \"host3\"\nsilent = true\nat = \"5 us\"\n";

#[test]
fn flows_that_never_end_make_no_table_look_better() {
    let healthy = report(DEAD_HOST);
    let r = report(&format!("{DEAD_HOST}{DEATH}"));
    assert_eq!((r.head.end.as_str(), r.flows.finished, r.flows.total), ("time limit", 62, 64));
    assert_eq!(
        (r.times.fct_us.unfinished, r.times.fct_us.p99, r.times.fct_us.max, r.times.fct_us.mean),
        (2, None, None, None)
    );
    assert!(r.times.fct_us.p50.is_some() && r.times.slowdown.p999.is_none() && r.times.received_us.max.is_none());
    assert_eq!(r.times.goodput_gbps.per_flow.min, Some(0.0));
    assert!(r.curves.fct_cdf.last().is_some_and(|p| (p[1] - 62.0 / 64.0).abs() < 1e-9));
    // Goodput and utilisation are calculated over the time in which data arrived, not over the time limit.
    let (now, before) = (r.times.goodput_gbps.mean_per_host, healthy.times.goodput_gbps.mean_per_host);
    assert!(now > 0.7 * before && now < 1.1 * before, "{now} of {before} Gb/s");
    for (now, before) in r.load.links.iter().zip(&healthy.load.links) {
        assert!(
            now.utilisation > 0.6 * before.utilisation,
            "{}: {} of {}",
            now.name,
            now.utilisation,
            before.utilisation
        );
        assert!(now.utilisation_max <= 1.0 + 1e-9, "{}: {}", now.name, now.utilisation_max);
    }
}

/// Checks that every data packet and chunk, and every copy by a switch, is counted once at its end.
fn balance(r: &Report, what: &str) {
    let p = &r.packets;
    let data = [p.dropped - p.dropped_control, p.lost - p.lost_control];
    let sum = p.delivered + p.duplicates + p.discarded + p.trimmed + data[0] + data[1] + p.under_way;
    assert_eq!(p.sent + p.coded.chunks + p.coded.copies, sum + p.coded.chunks_arrived, "{what}: {p:?}");
    if r.head.end == "finished" {
        // A run ends only when no packet is in flight.
        assert_eq!(p.under_way, 0, "{what}: {p:?}");
    }
}

#[test]
fn packets_add_up() {
    let mut discarded = 0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    for folder in ["smoke", "wire"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder of scenarios") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "toml") {
                let experiment =
                    Scenario::load(&path).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
                let r = run(&experiment, &Control::new()).report;
                balance(&r, &path.display().to_string());
            }
        }
    }
    for profile in ["uec", "strack", "strack_fast", "rocev2", "rocev2_sr", "mrc", "prime", "uec/go_back_n"] {
        for switches in [
            "",
            "pfc = false\ntrimming = false\nqueue = \"20 packets\"\n",
            "pfc = false\ntrimming = true\nqueue = \"20 packets\"\npriority = false\n",
        ] {
            for faults in ["", "[[faults]]\nkind = \"loss\"\nlink = \"leaf*->*\"\nprobability = 0.01\n", DEATH] {
                let text = format!(
                    "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n{switches}[profile]\nname = \"{profile}\"\n\
                     [[workload]]\nkind = \"incast\"\nsize = \"300 kB\"\ndestination = 1\n\
                     [[workload]]\nkind = \"permutation\"\nsize = \"500 kB\"\n{faults}\n[run]\ntime_limit = \"20 ms\"\n"
                );
                let r = report(&text);
                balance(&r, &text);
                discarded += r.packets.discarded;
            }
        }
    }
    assert!(discarded > 1000, "go-back-N throws away: {discarded}");
}

#[test]
fn a_note_says_what_a_workload_misses() {
    let r = report(
        "[fabric]\nhosts = 16\n[profile]\nname = \"uec\"\n\
         [[workload]]\nkind = \"permutation\"\nsize = \"100 kB\"\n\
         [[workload]]\nkind = \"incast\"\nsize = \"100 kB\"\nprofile = \"rocev2\"\n",
    );
    assert_eq!(r.notes.len(), 1, "{:?}", r.notes);
    assert!(r.notes[0].starts_with("rocev2 flows run without PFC here"), "{}", r.notes[0]);
    assert!(strandway_report::text::report(&r).contains("note: rocev2 flows run without PFC here"));
    assert!(report("[workload]\nkind = \"permutation\"\n[fabric]\nhosts = 4\n").notes.is_empty());
}
