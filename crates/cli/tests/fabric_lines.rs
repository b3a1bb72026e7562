//! Sites joined by delay lines, for real: built, run, counted and removed. The tests need root, iproute2 and ethtool;
//! without these, each one prints why it is skipped.

use super::namespaces::{Fabric, said};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LONG_LINK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/long_link.toml");

const THREE_SITES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/three_sites.toml");

/// A fabric with a unique name; `None`, with a printed reason, if long links are not possible here.
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
    // A process that has ended, but was not waited for, is a zombie.
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
    // The kernel sends multicast reports over the line at any time: one may be on the line now.
    let is_empty = |line: &Value| (0..2).all(|way| line["ways"][way]["taken"] == line["ways"][way]["delivered"]);
    let looks = std::iter::repeat_with(|| fabric.status(&[])["lines"][0].clone()).take(20);
    let line =
        &looks.inspect(|_| std::thread::sleep(Duration::from_millis(50))).find(is_empty).expect("a line that empties");
    assert_eq!(line["name"].as_str(), Some("site0->site1"));
    // Two probes in each direction, and perhaps such a report, crossed the line. None was lost.
    for way in 0..2 {
        let number = |key: &str| line["ways"][way][key].as_u64();
        assert!(number("taken") >= Some(2) && number("taken") == number("delivered"), "{line}");
        assert_eq!((number("lost"), number("dropped"), number("failed")), (Some(0), Some(0), Some(0)), "{line}");
    }
    // Copies of multicast use the same line: for each cast, one copy in each direction for the two hosts of the other
    // site.
    let taken = |status: &Value| [0, 1].map(|way| status["lines"][0]["ways"][way]["taken"].as_u64().expect("a count"));
    let before = taken(&fabric.status(&[]));
    for [team, _, _, refused, wanted, arrived] in fabric.probe_copies() {
        assert_eq!((team, refused, arrived), (0, 0, wanted));
    }
    let after = taken(&fabric.status(&[]));
    assert!(after[0] > before[0] + 2 && after[1] > before[1] + 2, "{before:?} {after:?}");
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
    // 2 x 489 data packets, and retransmissions: one packet in twenty is lost.
    assert!(number(&there, "packets") > 978 && (20..200).contains(&number(&there, "lost")), "{there}");
    assert_eq!((number(&back, "lost"), number(&back, "dropped")), (0, 0), "{back}");
    assert!(number(&back, "packets") > 0, "{back}");
    assert!(report["packets"]["lost"].as_u64() >= Some(number(&there, "lost")));
    // The minimum time is the round trip, twice 10 ms.
    assert!(report["fct_us"]["min"].as_f64().expect("a time") > 20_000.0, "{}", report["fct_us"]);
    fabric.assert_gone();
}

#[test]
fn three_sites_reach_each_other_over_the_long_link_of_each_pair() {
    let Some(fabric) = named() else { return };
    fabric.good(&["up", THREE_SITES]);
    for (_, t1, wanted, refused, arrived) in fabric.probe().into_iter().filter(|way| way.1 >= 0) {
        // Each end has two hosts. A link with losses may lose a probe.
        assert_eq!((wanted, refused), (4, 0), "T1 {t1}");
        assert!(arrived == wanted || t1 != 1, "T1 {t1}: {arrived}");
    }
    let status = fabric.status(&[]);
    let names: Vec<&str> =
        status["lines"].as_array().expect("lines").iter().filter_map(|l| l["name"].as_str()).collect();
    assert_eq!(names, ["site0->site1", "site0->site2", "site1->site2"]);
    fabric.good(&["down"]);
    fabric.assert_gone();
}

#[test]
fn messages_cross_each_pair_of_three_sites_and_each_link_loses_as_it_should() {
    let Some(fabric) = named() else { return };
    let json = ["--json", "-", "--quiet"];
    let sets = ["fabric.long_links.0.loss=0.05", "fabric.long_links.2.loss=0.05"].map(|set| ["--set", set]).concat();
    let output = fabric.run(&[&["run", THREE_SITES][..], &json, &sets].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    assert_eq!(report["flows"]["finished"].as_u64(), Some(3));
    let links = report["long_links"].as_array().expect("links");
    let number = |name: &str, key: &str| {
        let link = links.iter().find(|link| link["name"] == name).unwrap_or_else(|| panic!("no {name}"));
        link[key].as_u64().expect("a number")
    };
    // 4 MB are 977 data packets, 2 MB are 489. On each link, data has one direction, and acknowledgements the other.
    for (name, data, loses) in [
        ("site0->site1", 977, true),
        ("site1->site0", 0, true),
        ("site1->site2", 977, true),
        ("site2->site1", 0, false),
        ("site2->site0", 489, false),
        ("site0->site2", 0, false),
    ] {
        let (packets, lost) = (number(name, "packets"), number(name, "lost"));
        assert!(packets > data && (data > 0 || packets < 977), "{name}: {packets} packets");
        assert_eq!(number(name, "dropped"), 0, "{name}");
        // One in twenty is lost; between sites 1 and 2 in bursts of about 5. The bounds are three standard deviations
        // away, for 200 packets, and for 977 packets in bursts.
        let share = lost as f64 / packets as f64;
        assert!(if loses { (0.005..0.15).contains(&share) } else { lost == 0 }, "{name}: {lost} of {packets}");
    }
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
