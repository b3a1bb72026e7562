//! Tests of draining by simulation.

use super::*;
use crate::run_all;
use strandway_fabric::Topology;

const MRC: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 8\nplanes = 2\nhosts_per_leaf = 2\nspines = 4\nrate = \"100 Gbps\"\n\
    [profile]\nname = \"mrc\"\n[workload]\nkind = \"permutation\"\nsize = \"4 MB\"\n";

fn ask(text: &str, parts: &[&str], state: Option<&str>, bound: f64) -> Result<Drained, Problems> {
    let scenario = strandway_scenario::parse(text).expect("TOML");
    let parts = parts.iter().map(|part| part.to_string()).collect();
    let question = DrainQuestion { parts, state: state.map(String::from), bound };
    drain_study(&scenario, &question, |variants| run_all(variants, 2, false, || false, |_, _, _| ()))
}

fn topology(text: &str) -> Topology {
    check(&strandway_scenario::parse(text).expect("TOML")).expect("right").plan.topology
}

#[test]
fn a_drained_spine_carries_nothing_and_costs_what_arithmetic_says() {
    for profile in ["mrc", "uec", "rocev2"] {
        let text = MRC.replace("\"mrc\"", &format!("\"{profile}\""));
        // Half of the switches between leaves: at least as much traffic on each of the others.
        let drained = ask(&text, &["T1-0", "T1-1"], None, 10.0).expect("an answer");
        let [within, out] = [&drained.runs[0], &drained.runs[1]];
        assert!(within.finished && out.finished, "{profile}");
        let slowdown = out.slowdown.expect("both have a time");
        assert!((0.9..4.5).contains(&slowdown), "{profile}: {slowdown}");
        let busy: Vec<&str> = out.limits.iter().map(|(name, _)| &name[..]).collect();
        assert!(busy.iter().all(|name| !name.contains("spine0") && !name.contains("spine1")), "{profile}: {busy:?}");
        assert_eq!(drained.waves.len(), 1, "{profile}: under a wide bound all may go at once");
    }
    let one = ask(&MRC.replace("spines = 4", "spines = 2"), &["p0:t1-0", "p1:t1-0"], None, 10.0).expect("an answer");
    // Two ports of 50 Gb/s per host, two hosts per leaf: one spine of each plane carries half of the traffic.
    let slowdown = one.runs[1].slowdown.expect("a time");
    assert!((1.2..2.2).contains(&slowdown), "{slowdown}");
}

#[test]
fn waves_keep_below_the_bound_and_parts_above_it_are_named() {
    let drained = ask(MRC, &["spine0.p0", "spine0.p1", "p1"], None, 1.6).expect("an answer");
    assert!(drained.waves.iter().all(|wave| wave.slowdown <= 1.6), "{drained:?}");
    assert_eq!(drained.above, ["p1"], "half of the rate is gone: {drained:?}");
    let text = drained.text();
    assert!(text.contains("p1 alone is above the bound") && text.contains("1. spine0"), "{text}");
}

#[test]
fn the_baseline_is_the_fabric_as_it_is() {
    let status = r#"{"failures": ["degrade:p0:25%", "loss:p1:t0-0:t1-1:1%", "port:h3:p1"], "denied": ["p1:t1-2"]}"#;
    let drained = ask(MRC, &["T1-3"], Some(status), 2.0).expect("an answer");
    assert_eq!(drained.state.len(), 4, "{:?}", drained.state);
    let whole = ask(MRC, &["T1-3"], None, 2.0).expect("an answer");
    assert!(drained.runs[0].time_us > whole.runs[0].time_us.map(|time| time * 1.2), "{drained:?} {whole:?}");
    let findings = r#"{"format": 1, "suspicions": [{"parts": ["p0:t0-1:t1-1"], "lost": 1.0}], "untested": []}"#;
    let drained = ask(MRC, &["T1-3"], Some(findings), 2.0).expect("an answer");
    assert_eq!(drained.state, ["p0:t0-1:t1-1 loses 100.00 %"]);
}

#[test]
fn parts_are_read_by_all_their_names_and_wrong_ones_have_a_remedy() {
    let two = topology(MRC);
    let one = |topology: &Topology, name: &str| {
        let part = Part::read(topology, name).unwrap_or_else(|problem| panic!("{name}: {problem:?}"));
        part.targets.iter().map(toml::to_string).collect::<Result<Vec<_>, _>>().expect("TOML").join("")
    };
    for (names, wanted) in [
        (&["p0:t1-3", "switch:p0:t1-3", "spine3.p0", "t1-p0-3", "p0:T1-3"][..], "switch = \"spine3.p0\"\n"),
        (&["T1-3", "spine3", "t1-3"], "switch = \"spine3.p0\"\nswitch = \"spine3.p1\"\n"),
        (&["p1:t0-0:t1-2", "link:p1:t0-0:t1-2", "leaf0.p1-spine2.p1"], "between = [\"leaf0.p1\", \"spine2.p1\"]\n"),
        (&["p1:h3", "port:h3:p1", "host3.p1", "link:p1:h3:t0-1"], "port = \"host3.p1\"\n"),
        (&["p1", "plane:p1"], "plane = 1\n"),
    ] {
        for name in names {
            assert_eq!(one(&two, name), wanted, "{name}");
        }
    }
    let three = "[fabric]\nkind = \"fat-tree\"\nk = 4\n[workload]\nsize = \"1 MB\"\n";
    assert_eq!(one(&topology(three), "T1-3"), "switch = \"agg1.1\"\n");
    for (name, said) in
        [("T1-9", "no node `spine9.p0`"), ("p7:t1-0", "p0 to p1"), ("host99", "host0 to host7"), ("x", "T1-3")]
    {
        let problem = Part::read(&two, name).expect_err("it is wrong");
        assert!(format!("{} {}", problem.what, problem.remedy).contains(said), "{name}: {problem:?}");
    }
    let wrong = ask(MRC, &["T1-0"], Some("{}"), 2.0).expect_err("no state");
    assert!(wrong.to_string().contains("fabric status --json"), "{wrong}");
}
