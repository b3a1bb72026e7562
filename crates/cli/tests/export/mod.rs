//! `strandway fabric export`: files that do not change by themselves, SONiC's models, FRR's forwarding, refusals.

use super::namespaces::{Fabric, SCENARIO, TRIMMING, said, strandway};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export");

fn export(scenario: &str, system: &str, more: &[&str]) -> Output {
    let all = [&["fabric", "export", scenario, "--to", system], more].concat();
    strandway(&all).output().expect("it runs")
}

/// The files of an export, by their paths below its folder.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("below").display().to_string();
            found.insert(name, std::fs::read_to_string(&path).expect("text"));
        }
    }
    found
}

fn exported(scenario: &str, system: &str, more: &[&str]) -> (tempfile::TempDir, BTreeMap<String, String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display().to_string();
    let made = export(scenario, system, &[more, &["--out", &path]].concat());
    assert!(made.status.success(), "{}", said(&made));
    let files = files(folder.path());
    (folder, files)
}

/// One file per kind is kept beside this test. `STRANDWAY_WRITE_GOLDEN=1` writes them anew.
#[test]
fn files_of_every_system_are_the_kept_ones() {
    for (system, scenario, names) in [
        ("sonic", TRIMMING, &["t0-p0-0/config_db.json", "h0/netplan.yaml", "h0/node.toml"][..]),
        ("frr", SCENARIO, &["t0-p1-1/frr.conf", "t1-p1-0/frr.conf", "t1-p1-0/links.ip"]),
        ("eos", TRIMMING, &["t0-p0-0.cfg"]),
        ("containerlab", SCENARIO, &["sw.clab.yml", "h3/links.ip"]),
    ] {
        let (_folder, files) = exported(scenario, system, &[]);
        for name in names {
            let kept = PathBuf::from(HERE).join("golden").join(format!("{system}-{}", name.replace('/', "-")));
            if std::env::var_os("STRANDWAY_WRITE_GOLDEN").is_some() {
                std::fs::write(&kept, &files[*name]).expect("it can be written");
            }
            let wanted = std::fs::read_to_string(&kept).expect("a kept file");
            assert!(files[*name] == wanted, "{system}: {name} differs from {}:\n{}", kept.display(), files[*name]);
        }
        assert_eq!(exported(scenario, system, &[]).1, files, "{system}: the same bytes again");
    }
}

#[test]
fn every_switch_and_host_has_its_files_and_a_later_export_removes_those_that_are_gone() {
    let (folder, files) = exported(SCENARIO, "sonic", &[]);
    let report: Value = serde_json::from_str(&files["export.json"]).expect("JSON");
    assert_eq!((report["switches"].as_u64(), report["hosts"].as_u64()), (Some(8), Some(4)));
    let count = |end: &str| files.keys().filter(|name| name.ends_with(end)).count();
    assert_eq!((count("config_db.json"), count("netplan.yaml"), count("node.toml")), (8, 4, 4));
    let gaps = report["gaps"].to_string();
    assert!(gaps.contains("checksum-neutral") && gaps.contains("lanes"), "{gaps}");
    std::fs::write(folder.path().join("t1-p1-1/mine.txt"), "kept").expect("it can be written");
    let path = folder.path().display().to_string();
    let smaller = export(SCENARIO, "sonic", &["--out", &path, "--set", "fabric.planes=1"]);
    assert!(smaller.status.success(), "{}", said(&smaller));
    let left: Vec<String> = self::files(folder.path()).into_keys().filter(|name| name.contains("-p1-")).collect();
    assert_eq!(left, ["t1-p1-1/mine.txt"], "files of others stay");
    // Without a folder nothing is written.
    let shown = export(SCENARIO, "sonic", &[]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("not written; name a folder: --out DIR"));
}

#[test]
fn a_fabric_of_400_gigabit_ports_is_exported_although_namespaces_could_not_carry_it() {
    let scenario = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    let text = "[fabric]\nkind = \"multi-plane\"\nhosts = 512\nplanes = 4\nhosts_per_leaf = 32\nspines = 16\n\
        rate = \"1600 Gbps\"\n[profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";
    std::fs::write(scenario.path(), text).expect("it can be written");
    let (_folder, files) = exported(&scenario.path().display().to_string(), "sonic", &[]);
    let config: Value = serde_json::from_str(&files["t0-p3-15/config_db.json"]).expect("JSON");
    let port = &config["PORT"]["Ethernet0"];
    assert_eq!((port["speed"].as_str(), port["lanes"].as_str()), (Some("400000"), Some("1,2,3,4")));
    assert_eq!(config["PORT"].as_object().map(serde_json::Map::len), Some(48));
}

#[test]
fn fabrics_above_the_limits_or_the_space_of_segments_are_refused_with_the_numbers() {
    let refused = export(SCENARIO, "sonic", &["--limit", "routes=4", "--limit", "ports=3"]);
    assert_eq!(refused.status.code(), Some(2));
    let text = said(&refused);
    assert!(text.contains("routes") && text.contains("t0-p0-0 needs 5"), "{text}");
    assert!(text.contains("ports") && text.contains("t0-p0-0 needs 4") && text.contains("fewer hosts"), "{text}");
    let many = ["--set", "fabric.spines=1100", "--set", "fabric.hosts=4"];
    let refused = export(SCENARIO, "frr", &many);
    let text = said(&refused);
    assert!(refused.status.code() == Some(2) && text.contains("1100") && text.contains("1023"), "{text}");
    for (limit, remedy) in [("route=4", "did you mean `routes`"), ("routes=x", "write, say"), ("routes", "KEY=NUMBER")]
    {
        let refused = export(SCENARIO, "eos", &["--limit", limit]);
        assert!(refused.status.code() == Some(2) && said(&refused).contains(remedy), "{}", said(&refused));
    }
    let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    std::fs::write(file.path(), "mtu = 1500\n").expect("it can be written");
    let path = file.path().display().to_string();
    let refused = export(SCENARIO, "eos", &["--limits", &path]);
    let text = said(&refused);
    assert!(text.contains(&path) && text.contains("mtu") && text.contains("1500") && text.contains("9000"), "{text}");
    let fits = export(SCENARIO, "eos", &["--limits", &path, "--limit", "mtu=9214"]);
    assert!(fits.status.success(), "a flag replaces the file's number: {}", said(&fits));
}

/// Small checks of our own, for machines without SONiC's models: every reference of a table leads to an entry.
#[test]
fn every_reference_in_a_config_db_leads_to_an_entry() {
    for scenario in [SCENARIO, TRIMMING] {
        let (_folder, files) = exported(scenario, "sonic", &[]);
        for (name, text) in files.iter().filter(|(name, _)| name.ends_with("config_db.json")) {
            let config: Value = serde_json::from_str(text).expect("JSON");
            let rows = |table: &str| config[table].as_object().cloned().unwrap_or_default();
            let has = |table: &str, key: &str| assert!(!config[table][key].is_null(), "{name}: no {table}|{key}");
            for table in ["INTERFACE", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP"] {
                rows(table).keys().for_each(|key| has("PORT", key.split('|').next().unwrap_or(key)));
            }
            for (table, field, to) in [
                ("QUEUE", "scheduler", "SCHEDULER"),
                ("QUEUE", "wred_profile", "WRED_PROFILE"),
                ("BUFFER_QUEUE", "profile", "BUFFER_PROFILE"),
                ("BUFFER_PG", "profile", "BUFFER_PROFILE"),
                ("BUFFER_PROFILE", "pool", "BUFFER_POOL"),
                ("STATIC_ROUTE", "ifname", "PORT"),
                ("PORT_QOS_MAP", "dscp_to_tc_map", "DSCP_TO_TC_MAP"),
                ("PORT_QOS_MAP", "tc_to_queue_map", "TC_TO_QUEUE_MAP"),
                ("PORT_QOS_MAP", "tc_to_dscp_map", "TC_TO_DSCP_MAP"),
            ] {
                rows(table).values().filter_map(|row| row[field].as_str()).for_each(|key| has(to, key));
            }
            rows("SRV6_MY_SIDS").keys().for_each(|key| {
                has("SRV6_MY_LOCATORS", key.split('|').next().unwrap_or(key));
            });
        }
    }
}

/// SONiC's own models judge. Needs a copy of `src/sonic-yang-models` of sonic-net/sonic-buildimage in
/// `STRANDWAY_SONIC_YANG`, and a Python with `libyang` and `jinja2` in `STRANDWAY_PYTHON`.
#[test]
fn sonic_s_yang_models_accept_every_switch_and_refuse_a_wrong_one() {
    let Some(models) = std::env::var_os("STRANDWAY_SONIC_YANG") else {
        eprintln!("skipped: STRANDWAY_SONIC_YANG names no copy of sonic-buildimage's src/sonic-yang-models");
        return;
    };
    let python = std::env::var_os("STRANDWAY_PYTHON").unwrap_or("python3".into());
    let check = |files: &[PathBuf]| {
        Command::new(&python).arg(Path::new(HERE).join("yang.py")).arg(&models).args(files).output().expect("it runs")
    };
    let rocev2 = ["--set", "profile.name=rocev2"];
    for (scenario, more) in [(SCENARIO, &[][..]), (TRIMMING, &[]), (TRIMMING, &rocev2)] {
        let (folder, files) = exported(scenario, "sonic", more);
        let configs = files.keys().filter(|name| name.ends_with("config_db.json"));
        let configs: Vec<PathBuf> = configs.map(|name| folder.path().join(name)).collect();
        let judged = check(&configs);
        assert!(judged.status.success(), "{}", said(&judged));
        let wrong = files["t0-p0-0/config_db.json"].replace("\"profile\": \"data_group\"", "\"profile\": \"nothing\"");
        std::fs::write(&configs[0], wrong).expect("it can be written");
        assert!(!check(&configs[..1]).status.success(), "a dangling reference is found");
    }
}

/// FRR forwards as our own tables do: every probe over every path arrives, and the counters of spines are equal. Needs
/// FRR 10.3 or later, in the root folder that `STRANDWAY_FRR_ROOT` names (`/` without it).
#[test]
fn frr_forwards_as_the_tables_of_namespaces_do() {
    let root = std::env::var("STRANDWAY_FRR_ROOT").unwrap_or("/".into());
    let staticd = Path::new(&root).join("usr/lib/frr/staticd");
    let has_sids = std::fs::read(&staticd).is_ok_and(|bytes| bytes.windows(11).any(|part| part == b"static-sids"));
    if !has_sids {
        eprintln!("skipped: {} is no FRR with static-sids (10.3 or later)", staticd.display());
        return;
    }
    let Some(fabric) = Fabric::up() else { return };
    let counted = || {
        let before = fabric.t1_packets();
        let probes = fabric.probe();
        let grown = fabric.t1_packets().into_iter().zip(before).map(|((t1, now), (_, then))| (t1, now - then));
        (probes, grown.collect::<Vec<_>>())
    };
    // The kernel's own packets (multicast reports) end a moment after the build.
    let rounds: Vec<_> = (0..8).map(|_| counted()).collect();
    let ours = rounds.last().expect("a round").clone();
    assert!(ours.0.iter().all(|(_, _, wanted, _, arrived)| wanted == arrived));
    let (folder, _) = exported(SCENARIO, "frr", &[]);
    let script = |what: &Path| {
        let script = Path::new(HERE).join("frr.sh");
        Command::new("bash").arg(script).arg(&root).arg(&fabric.name).arg(what).output().expect("it runs")
    };
    let started = script(folder.path());
    // It may take a moment until the last route is in the kernel, and until FRR's own packets (duplicate addresses) end.
    let same = (0..50).map(|_| counted()).find(|theirs| *theirs == ours);
    let routes = |switch: &str| {
        let shown = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}-{switch}", fabric.name))
            .args(["ip", "-6", "route", "show", "proto", "196"])
            .output();
        String::from_utf8_lossy(&shown.expect("it runs").stdout).lines().count()
    };
    let by_frr = ["t0-p0-0", "t1-p1-1"].map(routes);
    script(Path::new("stop"));
    assert!(started.status.success(), "{}", said(&started));
    assert_eq!(by_frr, [8, 4], "the kernel's routes are FRR's");
    assert!(same.is_some(), "the same probes arrive, over the same spines, packet by packet: {ours:?}");
}

/// The document is read again, and describes the fabric of the scenario.
#[test]
fn a_document_of_infragraph_is_read_again() {
    let (folder, files) = exported(SCENARIO, "infragraph", &[]);
    assert_eq!(files.keys().map(String::as_str).collect::<Vec<_>>(), ["export.json", "sw.yaml"]);
    let path = folder.path().join("sw.yaml").display().to_string();
    let read = strandway(&["import", &path]).output().expect("it runs");
    let out = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(
        out.contains("4 GPUs, a NIC each, 1 per server; 2 below a leaf, 2 spines, 2 planes"),
        "{out}{}",
        said(&read)
    );
    let refused = export(SCENARIO, "infragraph", &["--limit", "routes=4"]);
    assert!(said(&refused).contains("a document of InfraGraph has no tables"), "{}", said(&refused));
}
