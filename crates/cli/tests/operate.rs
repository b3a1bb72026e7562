//! The day of docs/operate.md on a fabric of namespaces: export, bring up, watch, a gray link, drain, repair. It needs
//! root; without it, the test prints why it is skipped.

use super::namespaces::{Fabric, SCENARIO, said, strandway};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_day_from_the_export_to_the_repair() {
    let Some(fabric) = Fabric::named() else { return };
    let scratch = fabric.scratch().display().to_string();
    let good = |arguments: &[&str]| {
        let output = strandway(arguments).output().expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Export and bring up: the files and the namespaces have the same switches.
    good(&["fabric", "export", SCENARIO, "--to", "sonic", "--out", &format!("{scratch}/sonic")]);
    fabric.good(&["up", SCENARIO]);
    assert!(fabric.probe().iter().all(|way| way.2 == way.4));
    // A gray link: lossy, and up. Probes name it, and its state is written down.
    fabric.good(&["fail", "loss:p0:t0-0:t1-1:20%"]);
    let (state, findings) = (format!("{scratch}/state.json"), format!("{scratch}/findings.json"));
    let named = fabric.run(&["localise", "--rounds", "200", "--json", &findings]);
    assert_eq!(named.status.code(), Some(3), "{}", said(&named));
    let found: Value = serde_json::from_str(&std::fs::read_to_string(&findings).expect("findings")).expect("JSON");
    assert_eq!(found["suspicions"][0]["parts"][0].as_str(), Some("p0:t0-0:t1-1"), "{found}");
    fabric.good(&["status", "--json", &state]);
    // The cost of draining the switch above it, with the fabric as it is now, and after the findings.
    for from in [&state, &findings] {
        let text =
            good(&["what-if", SCENARIO, "--drain", "p0:t1-1", "--from", from, "--bound", "3", "--json", "-", "-q"]);
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer["state"].as_array().map(Vec::len), Some(1), "{answer}");
        assert!(answer["runs"][1]["finished"] == true && answer["waves"][0]["parts"][0] == "p0:t1-1", "{answer}");
    }
    // Drain: nodes that start from now on keep away from the switch.
    fabric.good(&["deny", "spine1.p0"]);
    let before = fabric.t1_packets();
    let (report, fault) = (format!("{scratch}/report.json"), "faults=[{switch=\"spine1.p0\",kind=\"deny\"}]");
    let run = fabric.run(&["run", SCENARIO, "--set", fault, "-q", "--json", &report]);
    // All flows end. Their goodput, which the scenario bounds too, is that of a machine which may be busy.
    assert!(matches!(run.status.code(), Some(0 | 3)), "{}", said(&run));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&report).expect("a report")).expect("JSON");
    assert_eq!((&report["end"], &report["flows"]["finished"]), (&"finished".into(), &4.into()), "{}", said(&run));
    for ((t1, now), (_, then)) in fabric.t1_packets().into_iter().zip(before) {
        // Nodes send nothing over a denied switch; the kernel's own reports are a few packets.
        let grown = now - then;
        assert!(if t1 == (0, 1) { grown < 30 } else { grown > 100 }, "{t1:?}: {grown} packets");
    }
    // Repair, and back to work.
    fabric.good(&["heal"]);
    fabric.good(&["allow"]);
    let whole = fabric.run(&["localise", "--rounds", "50"]);
    assert!(whole.status.success(), "{}", said(&whole));
    assert!(fabric.good(&["down"]).contains("12 namespaces removed"));
}

/// A program that is ended with its test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Packets that the T1 to be drained received, and the fewest that another one did, while each of the others received
/// `least` or more.
fn growth(fabric: &Fabric, drained: (u64, u64), least: u64) -> (u64, u64) {
    let before = fabric.t1_packets();
    let mut others = Vec::new();
    for _ in 0..1_200 {
        std::thread::sleep(Duration::from_millis(50));
        let grown = fabric.t1_packets().into_iter().zip(&before).map(|((t1, now), (_, then))| (t1, now - then));
        let ours: Vec<_>;
        (ours, others) = grown.partition(|(t1, _)| *t1 == drained);
        let fewest = others.iter().map(|(_, packets)| *packets).min().unwrap_or(0);
        if fewest >= least {
            return (ours[0].1, fewest);
        }
    }
    panic!("the others carry too little: {others:?}");
}

#[test]
fn nodes_that_run_leave_a_denied_switch_and_come_back_when_it_is_allowed() {
    let Some(fabric) = Fabric::named() else { return };
    fabric.good(&["up", SCENARIO, "--rate", "100Mbps"]);
    let mut run = fabric.command(&["run", SCENARIO, "--rate", "100Mbps", "--set", "workload.size=2GB", "-q"]);
    let _run = Running(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    let (drained, fewest) = growth(&fabric, (0, 1), 2_000);
    assert!(drained * 4 > fewest, "all switches carry packets: {drained} and {fewest}");
    fabric.good(&["deny", "spine1.p0"]);
    // Nodes look four times a second, and packets under way arrive.
    let obeyed = (0..20).map(|_| growth(&fabric, (0, 1), 2_000)).find(|(drained, fewest)| drained * 100 < *fewest);
    assert!(obeyed.is_some(), "its packets end");
    fabric.good(&["allow"]);
    let back = (0..20).map(|_| growth(&fabric, (0, 1), 2_000)).find(|(drained, fewest)| drained * 4 > *fewest);
    assert!(back.is_some(), "its packets return");
}

/// Eight hosts below two T0s, with two planes of four T1s; every host sends about 50 packets per second to every other one.
fn all_to_all(fabric: &Fabric) -> String {
    let pairs = (0..8).flat_map(|from| (0..8).map(move |to| (from, to))).filter(|(from, to)| from != to);
    let flows = pairs.map(|(from, to)| format!("  {{ from = {from}, to = {to}, size = \"1 KiB\" }},\n"));
    let text = format!(
        "[fabric]\nkind = \"multi-plane\"\nhosts = 8\nplanes = 2\nhosts_per_leaf = 4\nspines = 4\nrate = \"20 Mbps\"\n\
         latency = \"10 us\"\nqueue = \"128 KiB\"\nrouting = \"source\"\ntrimming = false\necn = false\n\
         [profile]\nname = \"uec\"\ntransport.mtu = 1024\n\
         [workload]\nkind = \"flows\"\nmessages = 60000\ngap = \"15 ms\"\njitter = \"15 ms\"\nflows = [\n{}]\n",
        flows.collect::<String>()
    );
    let path = fabric.scratch().join("all.toml");
    std::fs::write(&path, text).expect("a scenario");
    path.display().to_string()
}

/// Looks of ten seconds until the nodes' packets name something, at most `rounds` of them. The last one's findings.
fn named_by_nodes(fabric: &Fabric, rounds: usize) -> Value {
    let mut last = Value::Null;
    for _ in 0..rounds {
        let look = fabric.run(&["localise", "--nodes", "--json", "-"]);
        last = serde_json::from_slice(&look.stdout).unwrap_or_else(|_| panic!("{}", said(&look)));
        assert!(last["sent"].as_u64() > Some(0) && last["nodes"] == 8, "{last}");
        let names = last["suspicions"].as_array().map_or(0, Vec::len);
        assert_eq!(look.status.code(), Some(if names > 0 { 3 } else { 0 }), "{}", said(&look));
        if names > 0 {
            break;
        }
    }
    last
}

#[test]
fn running_nodes_name_lossy_cables_and_nothing_without_a_fault() {
    let Some(fabric) = Fabric::named() else { return };
    let scenario = all_to_all(&fabric);
    fabric.good(&["up", &scenario]);
    let places = fabric.folder().join("metrics");
    std::fs::create_dir_all(&places).expect("a folder");
    let mut run = fabric.command(&["run", &scenario, "-q"]);
    run.env("STRANDWAY_METRICS", format!("{}/", places.display())).stdout(Stdio::null()).stderr(Stdio::null());
    let _run = Running(run.spawn().expect("it runs"));
    // The nodes open their connections first.
    let serves = (0..1_200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        fabric.run(&["localise", "--nodes", "--seconds", "1"]).status.code() == Some(0)
    });
    assert!(serves, "nodes serve their counts");
    let healthy = named_by_nodes(&fabric, 1);
    assert_eq!(healthy["suspicions"], serde_json::json!([]), "{healthy}");
    // A cable between switches, and a host's cable.
    for (fault, cable) in [("loss:p0:t0-0:t1-1:5%", "p0:t0-0:t1-1"), ("loss:p1:h2:t0-0:10%", "p1:h2")] {
        fabric.good(&["fail", fault]);
        let found = named_by_nodes(&fabric, 12);
        assert_eq!(found["suspicions"][0]["parts"][0].as_str(), Some(cable), "{found}");
        fabric.good(&["heal"]);
    }
}
