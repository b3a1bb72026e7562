//! Two sites joined by a delay line, for real: built, run, counted and removed. Needs root, iproute2 and ethtool; elsewhere every
//! test says why it does nothing.

use namespaces::{Fabric, said};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

mod namespaces;

const LONG_LINK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/long_link.toml");

/// A fabric of a name of its own; `None`, with the reason, where long links cannot be made.
fn named() -> Option<Fabric> {
    let fabric = Fabric::named()?;
    if Command::new("ethtool").arg("--version").output().is_err() {
        eprintln!("skipped: there is no ethtool");
        return None;
    }
    Some(fabric)
}

/// The process that carries the long links.
fn carrier(fabric: &Fabric) -> u32 {
    let text = std::fs::read_to_string(fabric.folder().join("lines.pid")).expect("a process carries");
    text.trim().parse().expect("its number")
}

fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that has ended and that nobody has asked for is a zombie.
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn long_links_stand_with_their_fabric_and_end_with_it() {
    let Some(fabric) = named() else { return };
    fabric.good(&["up", LONG_LINK]);
    let pid = carrier(&fabric);
    assert!(is_running(pid));
    for (_, t1, wanted, refused, arrived) in fabric.probe() {
        assert_eq!((refused, arrived), (0, wanted), "T1 {t1}");
    }
    let status = fabric.status(&[]);
    let line = &status["lines"][0];
    assert_eq!(line["name"].as_str(), Some("site0->site1"));
    // Two probes each way crossed, and perhaps a report of the kernel's about multicast; nothing was lost on the way.
    for way in 0..2 {
        let number = |key: &str| line["ways"][way][key].as_u64();
        assert!(number("taken") >= Some(2) && number("taken") == number("delivered"), "{line}");
        assert_eq!((number("lost"), number("dropped"), number("failed")), (Some(0), Some(0), Some(0)), "{line}");
    }
    assert!(fabric.good(&["up", LONG_LINK]).contains("is up already"));
    fabric.good(&["down"]);
    fabric.assert_gone();
    assert!(!is_running(pid));
}

#[test]
fn flows_cross_a_long_link_that_loses_in_one_direction_and_its_counters_are_reported() {
    let Some(fabric) = named() else { return };
    let json = ["--json", "-", "--quiet"];
    let sets = ["--set", "fabric.loss=0.05", "--set", "fabric.long_latency=10ms"];
    let output = fabric.run(&[&["run", LONG_LINK][..], &json, &sets].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    assert_eq!(report["flows"]["finished"].as_u64(), Some(2));
    let [there, back] = [0, 1].map(|n| report["long_links"][n].clone());
    assert_eq!((there["name"].as_str(), back["name"].as_str()), (Some("site0->site1"), Some("site1->site0")));
    let number = |link: &Value, key: &str| link[key].as_u64().expect("a number");
    // 2 x 489 packets of data and those sent again: one in twenty is lost.
    assert!(number(&there, "packets") > 978 && (20..200).contains(&number(&there, "lost")), "{there}");
    assert_eq!((number(&back, "lost"), number(&back, "dropped")), (0, 0), "{back}");
    assert!(number(&back, "packets") > 0, "{back}");
    assert!(report["packets"]["lost"].as_u64() >= Some(number(&there, "lost")));
    // Twice 10 ms of a round trip cannot be had in less.
    assert!(report["fct_us"]["min"].as_f64().expect("a time") > 20_000.0, "{}", report["fct_us"]);
    fabric.assert_gone();
}

#[test]
fn a_long_link_that_nobody_carries_any_more_is_an_error() {
    let Some(fabric) = named() else { return };
    fabric.good(&["up", LONG_LINK, "--reorder", "5%:1ms"]);
    assert!(fabric.good(&["status"]).contains("overtake each other"));
    let pid = carrier(&fabric);
    let killed = Command::new("kill").args(["-KILL", &pid.to_string()]).status().expect("kill");
    assert!(killed.success());
    while is_running(pid) {
        std::thread::yield_now();
    }
    let status = fabric.run(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    let text = said(&status);
    assert!(text.contains("long links are not carried any more") && text.contains("fabric down --name"), "{text}");
    fabric.good(&["down"]);
    fabric.assert_gone();
    assert!(Path::new("/run/strandway").exists());
}
