//! Links as long as a continent: results are right, and the same on any number of threads, for any latency.

use strandway_lab::{Scenario, run};
use strandway_report::Report;
use strandway_sim::Control;

fn report(text: &str, threads: usize) -> Report {
    let mut experiment =
        Scenario::from_text("long.toml", text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
    experiment.plan.threads = threads;
    run(&experiment, &Control::new()).report
}

const FABRICS: [&str; 3] = [
    "hosts = 8\nhosts_per_leaf = 2\nspines = 2\n",
    "kind = \"fat-tree\"\nk = 4\n",
    "kind = \"multi-plane\"\nhosts = 8\nplanes = 2\nhosts_per_leaf = 4\nswitch_latency = \"3 ms\"\n",
];

const LATENCIES: [&str; 7] = ["1 us", "60 us", "4.29 ms", "4.3 ms", "50 ms", "300 ms", "1 s"];

#[test]
fn latencies_up_to_a_second_give_one_digest_on_any_number_of_threads() {
    for fabric in FABRICS {
        for latency in LATENCIES {
            for loss in [false, true] {
                let fault = "[[faults]]\nkind = \"loss\"\nlink = \"host*->leaf*\"\nprobability = 0.003\n";
                let fault = if loss { fault } else { "" };
                let text = format!(
                    "[fabric]\n{fabric}latency = \"{latency}\"\nrate = \"10 Gbps\"\n\
                     [workload]\nkind = \"permutation\"\nsize = \"300 kB\"\n{fault}"
                );
                let reports = [1, 2, 3].map(|threads| report(&text, threads));
                for r in &reports {
                    assert_eq!(r.head.end, "finished", "{fabric}{latency} loss {loss}: {:?}", r.flows.unfinished);
                    assert_eq!(r.head.digest, reports[0].head.digest, "{fabric}{latency} loss {loss}");
                    let least = r.fabric.base_rtt_us / 3.0;
                    let min = r.times.fct_us.min.unwrap_or_default();
                    assert!(min >= least, "{latency}: {min} us is less than light takes, {least} us");
                    if !loss {
                        assert_eq!(r.packets.retransmitted, 0, "{fabric}{latency}");
                    }
                }
            }
        }
    }
}

/// A run over an idle path with `latency` per link, whose queues hold at most 1 MB.
fn sent_again(profile: &str, latency: &str) -> Report {
    report(
        &format!(
            "[fabric]\nhosts = 4\nhosts_per_leaf = 2\nspines = 1\nlatency = \"{latency}\"\nqueue = \"1 MB\"\n\
             [profile]\nname = \"{profile}\"\n\
             [workload]\nkind = \"flows\"\nflows = [{{ from = 0, to = 2, size = \"1 MB\" }}]\n"
        ),
        1,
    )
}

#[test]
fn so_do_fabrics_that_pause() {
    for latency in LATENCIES {
        let text = format!(
            "[fabric]\n{}latency = \"{latency}\"\nrate = \"10 Gbps\"\n[profile]\nname = \"rocev2\"\n\
             [workload]\nkind = \"incast\"\nsenders = 4\nsize = \"300 kB\"\n",
            FABRICS[0]
        );
        let reports = [1, 2, 3].map(|threads| report(&text, threads));
        for r in &reports {
            assert_eq!((r.head.end.as_str(), r.packets.dropped), ("finished", 0), "{latency}");
            assert_eq!(r.head.digest, reports[0].head.digest, "{latency}");
        }
        assert!(reports[0].packets.pauses > 0, "{latency}");
    }
}

#[test]
fn no_timeout_is_shorter_than_the_way_there_and_back() {
    for profile in ["uec", "strack", "strack_fast", "prime", "rocev2_sr", "rocev2", "mrc"] {
        for latency in ["60 us", "600 us", "6.25 ms", "100 ms"] {
            let r = sent_again(profile, latency);
            let p = &r.packets;
            assert_eq!((p.retransmitted, p.timeouts), (0, 0), "{profile} at {latency}: {} sent", p.sent);
            assert_eq!(r.head.end, "finished", "{profile} at {latency} within the default time limit");
        }
    }
}

#[test]
fn a_lost_packet_under_pfc_costs_milliseconds_not_minutes() {
    // Two hosts. Every tenth packet is lost, so single packets wait for a timeout. Queues have no limit of their own.
    let text = "[fabric]\nhosts = 2\npfc = true\n[profile]\nname = \"uec\"\n\
                [workload]\nkind = \"permutation\"\nsize = \"1 kB\"\nmessages = 100\n\
                [[faults]]\ntier = \"host->leaf\"\ncount = 2\nkind = \"loss\"\nprobability = 0.1\n\
                [run]\ntime_limit = \"1 s\"\n";
    let scenario = Scenario::from_text("test", text).expect("TOML");
    let experiment = strandway_lab::check(&scenario).unwrap_or_else(|problems| panic!("{problems}"));
    let report = run(&experiment, &Control::new()).report;
    assert_eq!(report.head.end, "finished", "{} of {} flows", report.flows.finished, report.flows.total);
    assert!(report.packets.timeouts > 0, "some packet waited for a timeout");
}
