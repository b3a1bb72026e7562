//! Files of other tools that run without a scenario.

use std::process::{Command, Output};

fn strandway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_strandway")).args(arguments).output().expect("the command runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const WORKLOAD: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 checkpoints: 0 \
    checkpoint_initiates: 0\n1\nlayer\t-1\t1000\tALLREDUCE\t4096\t1\tNONE\t0\t1\tNONE\t0\t1\n";

#[test]
fn a_workload_runs_with_a_number_of_gpus() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("w.txt");
    std::fs::write(&path, WORKLOAD).expect("a file");
    let path = path.display().to_string();
    let without = strandway(&["run", &path]);
    assert!(!without.status.success() && said(&without).contains("write --gpus N"), "{}", said(&without));
    let run = strandway(&["run", &path, "--gpus", "16", "--set", "profile.name=mrc"]);
    assert!(run.status.success(), "{}", said(&run));
    assert!(said(&run).contains("16 GPUs with a NIC each, 8 in a server"), "{}", said(&run));
    let out = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(out.starts_with("w · profile mrc") && out.contains("16 hosts at 400 Gb/s"), "{out}");
}

#[test]
fn other_files_are_named_instead_of_read_as_scenarios() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("infra.yaml");
    std::fs::write(&path, "devices: []\ninstances: []\n").expect("a file");
    let run = strandway(&["run", &path.display().to_string()]);
    assert!(said(&run).contains("is an InfraGraph, and no scenario; `strandway import FILE`"), "{}", said(&run));
    let scenario = folder.path().join("s.toml");
    std::fs::write(&scenario, "[fabric]\nhosts = 8\n").expect("a file");
    let run = strandway(&["run", &scenario.display().to_string(), "--gpus", "8"]);
    assert!(said(&run).contains("--gpus is for files of other tools"), "{}", said(&run));
}
