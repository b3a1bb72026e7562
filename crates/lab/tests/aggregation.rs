//! Sums in switches under loss, and behind ports whose queues are longer than a round trip.

mod support;

use support::*;

/// Two jobs of eight workers, each with its own server, at a switch; ports of 100 Gb/s that drop.
const TWO_JOBS: &str = "[fabric]\nkind = \"leaf-spine\"\nhosts = 18\nhosts_per_leaf = 18\nspines = 1\nrate = \"100 Gbps\"\n\
                        latency = \"1.5 us\"\nswitch_latency = \"800 ns\"\nqueue = \"1 MB\"\necn = true\necn_low = \"80 KB\"\n\
                        ecn_high = \"80 KB\"\necn_last_hop = true\ntrimming = false\n[profile]\nname = \"uec\"\n\
                        [switch]\nsystem = \"esa\"\nmemory = \"5 MiB\"\n[workload]\nkind = \"training\"\nranks = 16\ngroup = 8\n\
                        size = \"2 MB\"\nlayers = 10\ncompute = \"160 us\"\nstragglers = 0.1\niterations = 2\n";

/// Two jobs of four workers behind ports of 25 Mb/s with queues of 1 MiB: a full one holds 335 ms. Windows are longer
/// than the queues, and workers compute up to twice as long as others.
const SLOW_PORTS: &str = "[fabric]\nkind = \"leaf-spine\"\nhosts = 10\nhosts_per_leaf = 10\nspines = 1\nrate = \"25 Mbps\"\n\
                          queue = \"1 MiB\"\nlatency = \"20 us\"\necn = true\necn_low = \"80 KB\"\necn_high = \"80 KB\"\n\
                          ecn_last_hop = true\ntrimming = false\n[switch]\nsystem = \"esa\"\nslots = 4096\nlanes = 256\n\
                          header = \"120 B\"\ncontrol = \"120 B\"\nwindow = 4096\nwindow_start = 200\npriority = \"constant\"\n\
                          [profile]\nname = \"uec\"\n[workload]\nkind = \"training\"\nranks = 8\ngroup = 4\nsize = \"4 MiB\"\n\
                          layers = 1\ncompute = \"160 ms\"\nstragglers = 1\nnoise = 0\niterations = 3\n[run]\n\
                          time_limit = \"60 s\"\n";

/// The mean completion time of the jobs in microseconds, and packets dropped by full queues.
fn mean(text: &str, sets: &[&str]) -> (f64, u64) {
    let report = outcome(text, sets).report;
    let jobs = report.switch.expect("a switch adds");
    let unfinished = jobs.jobs.iter().filter(|job| job.jct_us.is_none()).count();
    assert_eq!(unfinished, 0, "{sets:?}");
    (jobs.jct_mean_us.expect("all have ended"), report.packets.dropped)
}

#[test]
fn losses_cost_round_trips_and_not_timers() {
    let losing = |probability: f64| {
        format!("faults=[{{ tier = \"host->leaf\", count = 18, kind = \"loss\", probability = {probability} }}]")
    };
    // ATP keeps sums in slots until the server's answer, and its server drops parts that overlap.
    for (system, bounds) in [("esa", [2.0, 10.0]), ("atp", [3.0, 15.0])] {
        let system = format!("switch.system={system}");
        let (ideal, _) = mean(TWO_JOBS, &[&system]);
        for (probability, most) in [0.001, 0.01].into_iter().zip(bounds) {
            for seed in ["run.seed=1", "run.seed=2"] {
                let (time, _) = mean(TWO_JOBS, &[&system, &losing(probability), seed]);
                assert!(time < most * ideal, "{system}, {probability}, {seed}: {time} us, {ideal} us without loss");
            }
        }
    }
}

#[test]
fn questions_do_not_fill_a_queue_that_is_longer_than_a_round_trip() {
    // The bytes of all fragments at the rate of a port, in us, and the longest computation.
    let ideal = 3.0 * (4_194_304.0 * (1024.0 + 120.0) / 1024.0 * 8.0 / 25.0 + 2.0 * 160e3);
    for seed in 1..=3 {
        let (time, dropped) = mean(SLOW_PORTS, &[&format!("run.seed={seed}")]);
        // Each job sends 4,096 fragments from each of four workers in each of three iterations.
        assert!(
            time < 1.1 * ideal && dropped < 2 * 4 * 3 * 4_096 / 10,
            "{seed}: {time} us, {ideal}, {dropped} dropped"
        );
    }
}
