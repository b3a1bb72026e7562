//! Traffic matrices and topologies of other projects, if there is a copy: in the directory that `STRANDWAY_DATA` names,
//! or next to the repository. Without a copy the tests are skipped, and print that.

use std::path::{Path, PathBuf};
use strandway_import::htsim::{parse_cm_named, parse_topo_named};
use strandway_lab::{Experiment, Scenario, run};
use strandway_report::Report;
use strandway_sim::Control;

mod support;

fn htsim() -> Option<PathBuf> {
    let folder = match std::env::var_os("STRANDWAY_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let folder = folder.join("htsim");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no htsim files in {}; set STRANDWAY_DATA to the folder above them", folder.display());
    None
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("readable");
    entries.map(|e| e.expect("an entry").path()).filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
}

#[test]
fn every_matrix_and_topology_is_understood() {
    let Some(folder) = htsim() else { return };
    for path in files(&folder, "cm") {
        let text = std::fs::read_to_string(&path).expect("readable");
        let matrix = parse_cm_named(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"));
        assert!(!matrix.flows.is_empty() && matrix.nodes >= 16);
    }
    for path in files(&folder, "topo") {
        let text = std::fs::read_to_string(&path).expect("readable");
        let topology = parse_topo_named(&path.display().to_string(), &text).unwrap_or_else(|e| panic!("{e}"));
        assert!(topology.hosts() >= 32);
    }
}

/// Runs a matrix with `uec` and 128 entropy values, as the reference project does.
fn slowest(folder: &Path, matrix: &str, fabric: &str, entropies: u32, faults: &str) -> Report {
    let file = folder.join(matrix);
    let text = format!(
        "[fabric]\n{fabric}\n[profile]\nname = \"uec\"\n[profile.bitmap]\nentropies = {entropies}\n\
         [workload]\nkind = \"matrix\"\nfile = {:?}\n{faults}",
        file.display().to_string()
    );
    let scenario = Scenario::from_text(matrix, &text).unwrap_or_else(|e| panic!("{e}"));
    let experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
    let report = run(&experiment, &Control::new()).report;
    assert_eq!(report.head.end, "finished", "{matrix}");
    report
}

/// One core cable in each of the first `pods` pods has a tenth of its rate.
fn slow_cores(pods: u32) -> String {
    let fault =
        |pod| format!("[[faults]]\nbetween = [\"agg{pod}.0\", \"core0\"]\nkind = \"degrade\"\nfraction = 0.1\n");
    (0..pods).map(fault).collect()
}

const PERMUTATION: &str = "perm_1024n_1024c_0u_2000000b.cm";

#[test]
fn the_matrices_finish_within_their_projects_own_limits() {
    let Some(folder) = htsim() else { return };
    let tree = |k: u32| format!("kind = \"fat-tree\"\nk = {k}\nrate = \"100 Gbps\"");
    let oversubscribed =
        format!("kind = \"htsim\"\ntopo = {:?}", folder.join("leaf_spine_1024_oversub.topo").display());
    let rows: [(&str, String, u32, String, f64); 10] = [
        ("one.cm", tree(4), 128, String::new(), 190.0),
        ("bidir.cm", tree(4), 128, String::new(), 190.0),
        ("incast.cm", tree(4), 128, String::new(), 2_550.0),
        ("incast_128.cm", tree(8), 128, String::new(), 23_000.0),
        ("perm_16n_16c_2MB.cm", tree(4), 128, String::new(), 210.0),
        ("perm_16n_16c_2MB.cm", tree(4), 1, String::new(), 1_300.0),
        (PERMUTATION, tree(16), 128, String::new(), 220.0),
        (PERMUTATION, tree(16), 1, String::new(), 1_300.0),
        (PERMUTATION, tree(16), 128, slow_cores(8), 220.0),
        (PERMUTATION, oversubscribed, 128, String::new(), 880.0),
    ];
    for (matrix, fabric, entropies, faults, limit) in rows {
        let slowest = slowest(&folder, matrix, &fabric, entropies, &faults).times.fct_us.max.expect("flows finished");
        println!("{matrix}, {entropies} paths: {slowest:.1} us, limit {limit} us");
        assert!(slowest <= limit, "{matrix}, {entropies} paths: {slowest} us, limit {limit}");
    }
}

#[test]
fn an_outcast_does_not_hold_back_its_neighbour() {
    let Some(folder) = htsim() else { return };
    let report = slowest(&folder, "outcast_incast.cm", "kind = \"fat-tree\"\nk = 8\nrate = \"100 Gbps\"", 128, "");
    assert!(report.times.fct_us.max.expect("flows finished") <= 2_500.0);
    // The flow from host 1 is the only one of its sender, and it finishes first.
    assert!(report.times.fct_us.min.expect("flows finished") <= 215.0);
}

/// The project's limit for this row is 210 us. Every pod of the small tree sends four flows of 2,031,296 wire bytes
/// each to other pods, over four core cables. With one cable at a tenth of its rate, the cables have 310 Gb/s together.
/// With a round trip of 14 us, the lower bound for every transport is 223.7 us.
#[test]
fn a_slow_core_cable_of_the_small_tree_cannot_be_hidden() {
    let Some(folder) = htsim() else { return };
    let fabric = "kind = \"fat-tree\"\nk = 4\nrate = \"100 Gbps\"";
    let slowest =
        slowest(&folder, "perm_16n_16c_2MB.cm", fabric, 128, &slow_cores(1)).times.fct_us.max.expect("finished");
    let least = 4.0 * 2_031_296.0 * 8.0 / 310_000.0 + 14.0;
    println!("16 hosts, one slow core cable: {slowest:.1} us, at least {least:.1} us, limit 210 us");
    assert!(slowest >= least && slowest <= least * 1.2, "{slowest} us, least {least} us");
}

/// The largest public workload of SimAI: read in time, and one micro-batch of one stage is a job of 768 ranks.
#[test]
fn workloads_of_simai_are_understood() {
    let Some(folder) = htsim().map(|folder| folder.with_file_name("simai")).filter(|folder| folder.is_dir()) else {
        return;
    };
    for path in files(&folder, "txt") {
        let began = std::time::Instant::now();
        let told = strandway_import::describe_file(&path).unwrap_or_else(|e| panic!("{e}"));
        assert!(told.contains("SimAI") && began.elapsed().as_secs() < 2, "{told}");
    }
    let file = folder.join("moe_9216gpu_tp2_ep16_pp12.txt");
    let text = format!(
        "[fabric]\nhosts = 768\nhosts_per_leaf = 32\n[servers]\nwiring = \"rail-optimised\"\n\
         [job]\nfile = {:?}\npp = 1\nmicro_batches = 1\n",
        file.display().to_string()
    );
    let experiment =
        Scenario::from_text("moe", &text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(experiment.script_of(&experiment.jobs[0]).hosts.len(), 768);
}

/// A folder of the shared data.
fn shared(name: &str) -> Option<PathBuf> {
    htsim().map(|folder| folder.with_file_name(name)).filter(|folder| folder.is_dir())
}

/// The public sets of eight ranks within 2 % of arithmetic, and a rank of PyTorch to the end.
#[test]
fn traces_of_chakra_run() {
    let Some(folder) = shared("chakra") else { return };
    let time = |name: &str, sets: &[&str]| support::time(&support::outcome(&support::job(&folder.join(name)), sets));
    let block = 128 * 1024;
    support::near(time("all_reduce_8npus_1MB", &[]), 14.0 * support::message(block), 0.02);
    support::near(time("all_to_all_8npus_1MB", &[]), support::message(7 * block), 0.02);
    // Each message waits for the acknowledgement of the one before; seven additions take 7 us each.
    let ring = 14.0 * support::acknowledged(block) + 7.0 * 7.0;
    support::near(time("custom_ring_allreduce_8npus_1MB", &[]), ring, 0.02);
    assert!(time("pytorch_rank0.et", &["job.gpus=16"]) > 0.0);
}

/// The public schedules: messages of 80 MB, a computation of 8 us, and a tree of messages of one byte.
#[test]
fn schedules_of_goal_run() {
    let Some(folder) = shared("goal") else { return };
    let time = |name: &str| {
        let sets = ["fabric.hosts_per_leaf=32", "fabric.spines=1"];
        support::time(&support::outcome(&support::job(&folder.join(name)), &sets))
    };
    let long = 80_000_000;
    support::near(time("comp1.goal"), 8.0, 1e-9);
    support::near(time("one_send.goal"), support::acknowledged(long), 0.001);
    support::near(time("comp.goal"), 8.0 + support::acknowledged(long), 0.001);
    // There, and back.
    support::near(time("incast_8_1_2MiB.goal"), support::message(long) + support::acknowledged(long), 0.001);
    // Rank 0 sends to 1, 2, 4, 8 and 16 at once; five generations follow each other down to rank 31. The packets of a
    // rank leave one behind the other, so the message to the first child is never delayed.
    let generations = 4.0 * support::message(1) + support::acknowledged(1);
    support::near(time("binary_tree_32.goal"), generations, 0.01);
}

/// AICB's lists, and its layers without a number of GPUs, run; files of NCCL and MSCCL are understood.
#[test]
fn files_of_aicb_nccl_and_msccl_are_understood() {
    let fabric = "[fabric]\nhosts = 128\nhosts_per_leaf = 16\n[profile]\nname = \"uec\"\n[servers]\ngpus = 8\n";
    if let Some(folder) = shared("aicb") {
        let job = |name: &str, more: &str| {
            let file = folder.join(name).display().to_string();
            let text = format!("{fabric}[job]\nfile = {file:?}\n{more}");
            support::check(&text, &[]).unwrap_or_else(|e| panic!("{e}"))
        };
        let ranks_of = |experiment: &Experiment| experiment.script_of(&experiment.jobs[0]).hosts.len();
        for (name, ranks) in [
            ("G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv", 128),
            ("L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv", 128),
        ] {
            assert_eq!(ranks_of(&job(name, "")), ranks);
        }
        for path in files(&folder, "txt") {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            assert_eq!(ranks_of(&job(&name, "gpus = 128\n")), 128);
        }
    }
    if let Some(folder) = shared("nccl") {
        for (name, told) in [
            ("ndv4-topo.xml", "8 GPUs, 8 NICs, 4 CPUs"),
            ("ndv5-topo.xml", "8 GPUs, 8 NICs, 2 CPUs"),
            ("ncv4-graph.xml", "ring: 2 channels"),
        ] {
            let said = strandway_import::describe_file(&folder.join(name)).unwrap_or_else(|e| panic!("{e}"));
            assert!(said.contains(told), "{said}");
        }
    }
    if let Some(folder) = shared("msccl") {
        let path = folder.join("custom_allreduce_8npus.xml").display().to_string();
        let text = format!(
            "{}[workload]\nkind = \"all-reduce\"\nalgorithm = \"msccl\"\nfile = {path:?}\nranks = 8\nsize = \"1 MiB\"\n",
            support::FABRIC
        );
        // It is a ring.
        let outcome = support::outcome(&text, &[]);
        support::near(
            outcome.report.collectives[0].time_us.expect("it ended"),
            14.0 * support::message(128 * 1024),
            0.02,
        );
    }
}
