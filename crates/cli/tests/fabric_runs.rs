//! Runs on fabrics of namespaces: the simulated and the built fabric are the same, and runs do not disturb each other.
//! The tests need root; without it, each one prints why it is skipped.

use super::namespaces::{Fabric, SCENARIO, said, strandway};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Two hosts on one plane at 20 Mb/s, with one flow of this many bytes.
fn small(bytes: &str) -> String {
    format!(
        "[fabric]\nkind = \"multi-plane\"\nhosts = 2\nhosts_per_leaf = 1\nplanes = 1\nspines = 1\nrate = \"20 Mbps\"\n\
         [profile]\nname = \"mrc\"\n[profile.transport]\nmtu = 1344\n\
         [workload]\nkind = \"flows\"\nflows = [{{ from = 0, to = 1, size = \"{bytes}\" }}]\n[run]\ntime_limit = \"100 s\"\n"
    )
}

fn file(fabric: &Fabric, text: &str) -> String {
    let path = fabric.scratch().join("scenario.toml");
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

/// Waits until a run has the fabric and its nodes communicate.
fn until_up(fabric: &Fabric) {
    let began = Instant::now();
    while !fabric.folder().join("h0.toml").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the fabric does not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn both_worlds_run_at_the_rate_that_was_asked_for() {
    let Some(fabric) = Fabric::named() else { return };
    let scenario = file(&fabric, &small("500 kB"));
    let output = fabric.run(&["run", &scenario, "--rate", "10Mbps", "--both", "--json", "-", "--quiet"]);
    let both: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    // 500 kB take 0.4 s at 10 Mb/s; at the scenario's own rate, 0.2 s.
    for row in both["rows"].as_array().expect("rows") {
        let report = &row["report"];
        assert_eq!(report["fabric"]["rate_gbps"].as_f64(), Some(0.01), "{}", row["label"]);
        assert!(
            report["fct_us"]["max"].as_f64().expect("a time") > 390_000.0,
            "{}: {}",
            row["label"],
            report["fct_us"]
        );
        assert_eq!(report["origin"]["set"]["fabric.rate"].as_str(), Some("\"10000000 bps\""));
    }
    // The report has the counters of the ports. A value that is not measured is not shown as zero.
    let real = &both["rows"][1]["report"];
    assert_eq!((real["world"].as_str(), real["digest"].as_str()), (Some("namespaces"), Some("")));
    let carried = real["links"].as_array().expect("links").iter().map(|l| l["bytes"].as_u64().unwrap_or(0)).min();
    assert!(carried.expect("links") > 0, "{}", real["links"]);
    assert!(real["notes"].to_string().contains("not as simulated: latency"), "{}", real["notes"]);

    let text = said(&fabric.run(&["run", &scenario, "--unshaped", "--both"]));
    assert!(text.contains("cannot be simulated; give --rate, or leave --both out"), "{text}");
    fabric.assert_gone();
}

#[test]
fn a_standing_fabric_that_differs_or_is_broken_is_refused() {
    let Some(fabric) = Fabric::up() else { return };
    let slow = fabric.run(&["run", SCENARIO, "--rate", "100Mbps"]);
    assert_eq!(slow.status.code(), Some(1));
    assert!(said(&slow).contains("rate of a host's port 500 Mbps instead of 100 Mbps"), "{}", said(&slow));
    fabric.good(&["fail", "spine1.p0"]);
    let broken = fabric.run(&["run", SCENARIO, "--both"]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(said(&broken).contains("failures that the simulation does not have: switch:p0:t1-1"), "{}", said(&broken));
}

#[test]
fn names_of_scenarios_are_names_of_namespaces() {
    let Some(fabric) = Fabric::up() else { return };
    for (name, same) in [
        ("spine1.p0", "switch:p0:t1-1"),
        ("host0.p1", "port:h0:p1"),
        ("leaf0.p1-spine1.p1", "link:p1:t0-0:t1-1"),
        ("loss:p0:leaf0:spine1:2%", "loss:p0:t0-0:t1-1:2%"),
    ] {
        fabric.good(&["fail", name]);
        assert_eq!(fabric.status(&[])["failures"][0].as_str(), Some(same), "{name}");
        fabric.good(&["heal"]);
    }
    let link = fabric.good(&["exec", "host1", "--", "ip", "-br", "link"]);
    assert!(link.contains("p0@"), "{link}");
    for (name, why) in [
        ("spine7.p0", "there is no spine7.p0"),
        ("spine1", "there are 2 planes; write spine1.p0"),
        ("leaf0.p0-spine1.p1", "no link joins switches of two planes"),
        ("leaf0.p0->spine1.p0", "break in both directions; write leaf0.p0-spine1.p0"),
    ] {
        let wrong = fabric.run(&["fail", name]);
        assert!(said(&wrong).contains(why), "{name}: {}", said(&wrong));
    }
    assert!(
        strandway(&["fabric", "list"])
            .output()
            .is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(&fabric.name))
    );
}

#[test]
fn a_fabric_is_held_by_one_run_and_sigterm_gives_it_back() {
    let Some(fabric) = Fabric::named() else { return };
    let scenario = file(&fabric, &small("100 MB"));
    let mut first = fabric
        .command(&["run", &scenario, "--quiet"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    until_up(&fabric);
    for arguments in [&["run", &scenario][..], &["down"]] {
        let second = fabric.run(arguments);
        assert_eq!(second.status.code(), Some(1), "{arguments:?}");
        assert!(said(&second).contains("is running a scenario (process"), "{arguments:?}: {}", said(&second));
    }
    std::thread::sleep(Duration::from_secs(1));
    let killed = Command::new("kill").args(["-TERM", &first.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let began = Instant::now();
    while first.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "SIGTERM does not end the run");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = first.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("interrupted"), "{}", said(&output));
    fabric.assert_gone();
}

#[test]
fn one_program_executes_collectives_in_both_worlds() {
    let Some(fabric) = Fabric::named() else { return };
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/collective.toml");
    for (algorithm, messages) in [("ring", 24), ("halving-doubling", 16)] {
        let set = format!("workload.algorithm={algorithm}");
        let output = fabric.run(&["run", scenario, "--set", &set, "--both", "--json", "-", "--quiet"]);
        // A wrong sum at any rank makes the run fail.
        let both: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
        let rows = both["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 2);
        for row in rows {
            let report = &row["report"];
            assert_eq!(report["flows"]["finished"].as_u64(), Some(messages), "{algorithm}, {}", row["label"]);
            let collective = &report["collectives"][0];
            assert_eq!(collective["algorithm"].as_str(), Some(algorithm), "{collective}");
            // Every host sends three quarters of 4 MB twice, at 1 Gb/s.
            assert!(collective["time_us"].as_f64().expect("a time") > 48_000.0, "{algorithm}: {collective}");
        }
    }
}

#[test]
fn chunks_are_copied_lost_and_fetched_in_both_worlds() {
    let Some(fabric) = Fabric::named() else { return };
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/wire/multicast.toml");
    for (kind, parity) in [("broadcast", None), ("all-gather", None), ("all-gather", Some("16+4"))] {
        let set = format!("workload.kind={kind}");
        // The rate is low, so that a debug build on a busy machine keeps up.
        let sets = ["--set", &set, "--set", "workload.size=2 MB", "--set", "faults.0.probability=0.02"];
        let run = ["run", scenario, "--rate", "20Mbps", "--both", "--json", "-", "--quiet"];
        // Receivers fetch late: the tuned timer expires before chunks that a busy machine only delays, and their copies
        // are fetched as well.
        let run = [&run[..], &["--set", "workload.cutoff=artifact"]].concat();
        let coded = parity.map(|parity| format!("workload.parity={parity}"));
        let parity: Vec<&str> = coded.iter().flat_map(|set| ["--set", set]).collect();
        let output = fabric.run(&[&run[..], &sets, &parity].concat());
        // A wrong byte at any rank makes the run fail.
        let both: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
        let [simulated, real] = [0, 1].map(|row| &both["rows"][row]["report"]);
        let bytes = |report: &Value| -> u64 {
            let links = report["links"].as_array().expect("links").iter();
            links.map(|link| link["bytes"].as_u64().unwrap_or(0)).sum()
        };
        for report in [simulated, real] {
            assert_eq!(report["flows"]["finished"].as_u64(), Some(8), "{kind}: {report}");
            let packets = &report["packets"];
            let [repairs, rebuilt, lost] =
                ["repairs", "rebuilt", "lost"].map(|name| packets[name].as_u64().unwrap_or(0));
            assert!(lost > 0, "{kind}: {packets}");
            // With parity, only a few chunks are fetched.
            assert!(
                if coded.is_some() { rebuilt > 4 * repairs } else { repairs > 0 && rebuilt == 0 },
                "{kind}: {packets}"
            );
            // 2 MB at 40 Mb/s (two ports) take 0.4 s; in an all-gather a rank receives seven eighths of them.
            let time = report["collectives"][0]["time_us"].as_f64().expect("a time");
            assert!(time > 350_000.0, "{kind}: {time}");
        }
        let more = bytes(real) as f64 / bytes(simulated) as f64;
        assert!((0.98..1.10).contains(&more), "{kind}: {more} of the simulated bytes");
    }
    fabric.assert_gone();
}

#[test]
fn workloads_that_only_the_simulator_runs_are_refused_before_anything_is_built() {
    let Some(fabric) = Fabric::named() else { return };
    let job = small("1 MB").replace(
        "kind = \"flows\"\nflows = [{ from = 0, to = 1, size = \"1 MB\" }]",
        "kind = \"fsdp\"\nsize = \"1 MB\"\nlayers = 2",
    );
    let output = fabric.run(&["run", &file(&fabric, &job)]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("is of kind = \"fsdp\", which runs in the simulator only"), "{text}");
    assert!(text.contains("or use `strandway run`"), "{text}");
    fabric.assert_gone();
}
