//! The same scenarios between real nodes over loopback.

use std::time::Duration;
use strandway_lab::{Experiment, Scenario};
use strandway_testbed::wire::{self, Copying, WireError};
use strandway_udp::{Config, Node, Waiting};

fn experiment(text: &str) -> Experiment {
    strandway_lab::check(&Scenario::from_text("test", text).expect("TOML"))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn open(experiment: &Experiment) -> impl Fn(u32) -> Result<Node, String> + Sync + '_ {
    |_| {
        let mut config = Config::new(&[3; 32]).map_err(|e| e.to_string())?;
        config.profile = (*experiment.plan.profiles[0]).clone();
        config.planes = vec!["[::1]:0".parse().expect("an address"); 2];
        config.waiting = Waiting::Sleep;
        // Eight hosts, their handshakes in a debug build, and other programs share the processors: a host may wait for
        // seconds.
        (config.timeouts.peer, config.timeouts.handshake) = (Duration::from_secs(30), Duration::from_secs(30));
        Node::bind(config).map_err(|e| e.to_string())
    }
}

/// A ring all-reduce; its time limit is long enough for a busy machine.
const RING: &str = r#"
    [fabric]
    kind = "leaf-spine"
    hosts = 4
    hosts_per_leaf = 2
    rate = "100 Gbps"
    [profile]
    name = "uec"
    [workload]
    kind = "all-reduce"
    algorithm = "ring"
    size = "256 KB"
    [run]
    time_limit = "60 s"
"#;

#[test]
fn a_ring_all_reduce_runs_between_real_nodes() {
    let experiment = experiment(RING);
    let measured =
        wire::run(&experiment, &Copying::default(), open(&experiment), |_, since| since < Duration::from_secs(60))
            .expect("it runs");
    assert_eq!(measured.end, strandway_fabric::measure::End::Finished);
    let flows = &measured.flows;
    // Four ranks with six steps each; each step waits for the previous one.
    assert_eq!(flows.len(), 24);
    for flow in flows {
        let (started, received) = (flow.started.expect("posted"), flow.received.expect("arrived"));
        assert!(started <= received && received <= measured.simulated);
    }
    let bytes: u64 = measured.connections.iter().map(|c| c.delivered_bytes).sum();
    let introductions = 4 * experiment.plan.connections.len() as u64;
    assert_eq!(bytes, experiment.plan.flows.iter().map(|f| f.bytes).sum::<u64>() + introductions, "every byte once");
    let report = strandway_lab::facts::report(&experiment, &measured, 0.1);
    assert_eq!(report.flows.finished, report.flows.total);
    assert!(report.collectives[0].busbw.is_some_and(|b| b > 0.0), "the same report is made of it");
}

#[test]
fn reads_run_between_real_nodes() {
    let workload = "kind = \"permutation\"\n    read = true\n    messages = 5\n    size = \"40 KB\"";
    let (head, _) = RING.split_once("kind = \"all-reduce\"").expect("a workload");
    let experiment = experiment(&format!("{head}{workload}\n    [run]\n    time_limit = \"60 s\"\n"));
    let measured =
        wire::run(&experiment, &Copying::default(), open(&experiment), |_, since| since < Duration::from_secs(60))
            .expect("it runs");
    assert_eq!(measured.end, strandway_fabric::measure::End::Finished);
    let report = strandway_lab::facts::report(&experiment, &measured, 0.1);
    assert_eq!((report.flows.finished, report.flows.total), (20, 20), "a read is one row, without its request");
    let bytes: u64 = measured.connections.iter().map(|c| c.delivered_bytes).sum();
    let introductions = 4 * experiment.plan.connections.len() as u64;
    assert_eq!(bytes, 20 * (40_000 + 32) + introductions, "every byte once");
}

#[test]
fn a_host_that_cannot_open_its_node_ends_the_run_with_its_reason() {
    let experiment = experiment(RING);
    let usual = open(&experiment);
    let outcome = wire::run(
        &experiment,
        &Copying::default(),
        |host| if host == 2 { Err("no such namespace".into()) } else { usual(host) },
        |_, since| since < Duration::from_secs(60),
    );
    let Err(WireError::Open { host: 2, what }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(what, "no such namespace");
}

/// Runs a collective of eight ranks between real nodes; the runner checks the results.
fn collective(workload: &str) {
    let text = format!(
        r#"
        [fabric]
        kind = "leaf-spine"
        hosts = 8
        hosts_per_leaf = 4
        rate = "100 Gbps"
        [profile]
        name = "uec"
        [workload]
        {workload}
        [run]
        time_limit = "60 s"
        "#
    );
    let experiment = experiment(&text);
    let measured =
        wire::run(&experiment, &Copying::default(), open(&experiment), |_, since| since < Duration::from_secs(60))
            .expect("right results");
    assert_eq!(measured.end, strandway_fabric::measure::End::Finished);
    assert!(measured.flows.iter().all(|f| f.received.is_some() && f.finished.is_some()));
}

#[test]
fn halving_and_doubling_adds_up_in_two_pieces() {
    collective("kind = \"all-reduce\"\nalgorithm = \"halving-doubling\"\nsize = \"256 KB\"\nconnections = 2");
}

#[test]
fn every_block_of_an_all_to_all_gets_to_its_place() {
    collective("kind = \"all-to-all\"\nsize = \"10001 B\"\nwindow = 3");
}

#[test]
fn bytes_that_are_no_multiple_of_four_add_up_too() {
    collective("kind = \"reduce-scatter\"\nsize = \"100003 B\"\npipeline = 3");
    collective("kind = \"all-gather\"\nsize = \"100003 B\"");
}
