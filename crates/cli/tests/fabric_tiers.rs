//! Namespaces with three tiers: paths, broken links that `fabric localise` finds, and parts that are denied to nodes.
//! These fabrics take a second to build and lock others out meanwhile, so they are not beside tests whose faults must
//! strike in time.

use super::namespaces::{Fabric, said};

const THREE_TIERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/three_tiers.toml");

/// The parts that `localise` suspects, and its exit status.
fn suspects(fabric: &Fabric) -> (Vec<String>, Option<i32>) {
    let output = fabric.run(&["localise", "--json", "-"]);
    let found: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    let parts =
        found["suspicions"].as_array().expect("a list").iter().flat_map(|s| s["parts"].as_array().expect("a list"));
    (parts.map(|part| part.as_str().expect("a name").to_string()).collect(), output.status.code())
}

#[test]
fn each_silent_link_of_three_tiers_is_found_and_every_path_is_probed() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", THREE_TIERS]);
    let probed = fabric.probe();
    // Same T0; and each of four T2s from each of four pods.
    assert_eq!(probed.len(), 1 + 16);
    assert!(probed.iter().all(|(.., wanted, refused, arrived)| *refused == 0 && wanted == arrived), "{probed:?}");
    assert_eq!(suspects(&fabric), (vec![], Some(0)));
    for (target, named) in [
        ("link:p0:t0-3:t1-2", vec!["p0:t0-3:t1-2"]),
        ("agg1.0-core1", vec!["p0:t1-2:t2-1"]),
        ("link:p0:h5:t0-2", vec!["p0:h5"]),
        ("core3", vec!["p0:t2-3"]),
        ("loss:p0:t0-1:to:t1-1:50%", vec!["p0:t0-1:t1-1"]),
    ] {
        fabric.good(&["fail", target]);
        let named: Vec<String> = named.into_iter().map(String::from).collect();
        assert_eq!(suspects(&fabric), (named, Some(3)), "{target}");
        fabric.good(&["heal"]);
    }
    fabric.good(&["fail", "link:p0:t0-3:t1-2"]);
    fabric.good(&["fail", "agg0.1-core2"]);
    assert_eq!(suspects(&fabric).0, ["p0:t0-3:t1-2", "p0:t1-1:t2-2"]);
}

#[test]
fn flows_cross_three_tiers_and_avoid_what_is_denied() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", THREE_TIERS]);
    assert!(fabric.good(&["deny", "core1"]).contains("is denied"));
    assert!(fabric.good(&["deny", "core1"]).contains("was denied already"));
    assert!(fabric.good(&["status"]).contains("denied to nodes: p0:t2-1"));
    let sent = |node: &str| -> u64 {
        let status = fabric.status(&[]);
        let ports = status["ports"].as_array().expect("ports").iter();
        ports.filter(|port| port["node"] == node).filter_map(|port| port["sent_bytes"].as_u64()).sum()
    };
    let output = fabric.run(&["run", THREE_TIERS, "--quiet", "--json", "-"]);
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    assert_eq!(report["flows"]["finished"], 16);
    // Both ends of every connection between pods deny the one path of four over that core.
    let denied = report["ev_events"]["counts"]["denied"].as_u64();
    assert!(denied.is_some_and(|count| count >= 8), "{}", report["ev_events"]);
    // Handshakes and pings still cross it, but no data.
    let (core1, core0) = (sent("t2-p0-1"), sent("t2-p0-0"));
    assert!(core1 * 10 < core0, "{core1} bytes over the denied core, {core0} over another one");
    assert!(fabric.good(&["allow"]).contains("is allowed again"));
    assert!(fabric.good(&["allow", "core1"]).contains("was not denied"));
    let wrong = fabric.run(&["deny", "loss:p0:2%"]);
    assert!(said(&wrong).contains("nodes avoid links, switches, planes"), "{}", said(&wrong));
}
