//! Algorithms of NCCL and MSCCL between servers: trees and PAT by name, the choice of jobs, algorithms and servers from
//! files, and AICB's lists. Times agree with arithmetic.

mod support;

use support::*;

const KIB: u64 = 1024;

/// Eight ranks below one leaf.
fn workload(keys: &str) -> String {
    format!("{FABRIC}[workload]\n{keys}")
}

fn collective(outcome: &strandway_lab::Outcome) -> &strandway_report::CollectiveFacts {
    assert_eq!(outcome.report.collectives.len(), 1);
    &outcome.report.collectives[0]
}

#[test]
fn trees_and_pat_take_the_time_of_arithmetic() {
    // Up and down a binary tree of eight: 7 -> 6 -> 4 -> 0 and back, with half of 64 KiB; both trees share each NIC.
    let text = workload("kind = \"all-reduce\"\nalgorithm = \"tree\"\nranks = 8\nsize = \"64 KiB\"\n");
    let outcome = outcome(&text, &[]);
    let tree = collective(&outcome);
    let time = tree.time_us.expect("it ended");
    assert!(time >= tree.bound_us, "{time} us below {}", tree.bound_us);
    let least = 6.0 * message(32 * KIB);
    assert!((1.0..1.6).contains(&(time / least)), "{time} us, and the longest way alone takes {least} us");
    assert_eq!((tree.algorithm.as_str(), tree.ranks), ("tree", 8));
    // Three steps of 4, 2 and 1 blocks... of 8 KiB, the longest to the nearest.
    for (kind, steps) in [("all-gather", [1, 2, 4]), ("reduce-scatter", [4, 2, 1])] {
        let text = workload(&format!("kind = \"{kind}\"\nalgorithm = \"pat\"\nranks = 8\nsize = \"64 KiB\"\n"));
        let outcome = support::outcome(&text, &[]);
        let arithmetic: f64 = steps.iter().map(|blocks| message(blocks * 8 * KIB)).sum();
        near(collective(&outcome).time_us.expect("it ended"), arithmetic, 0.02);
    }
    // Any number of ranks.
    let text = workload("kind = \"all-gather\"\nalgorithm = \"pat\"\nranks = 7\nsize = \"56 KiB\"\n");
    let arithmetic: f64 = [1, 2, 3].iter().map(|blocks| message(blocks * 8 * KIB)).sum();
    near(collective(&support::outcome(&text, &[])).time_us.expect("it ended"), arithmetic, 0.02);
}

const STAR: &str = r#"<algo name="star" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="3" coll="allreduce" inplace="1">
<gpu id="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="0" hasdep="0"/>
<step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/></tb>
<tb id="1" send="2" recv="2" chan="0">
<step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
<step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="0" deps="1" hasdep="0"/></tb></gpu>
<gpu id="1"><tb id="0" send="0" recv="0" chan="0"><step s="0" type="s" cnt="1"/><step s="1" type="r" cnt="1"/></tb></gpu>
<gpu id="2"><tb id="0" send="0" recv="0" chan="0"><step s="0" type="s" cnt="1"/><step s="1" type="r" cnt="1"/></tb></gpu>
</algo>"#;

#[test]
fn an_algorithm_of_msccl_is_a_workload() {
    let folder = Folder::new("msccl");
    let path = folder.write("star.xml", STAR);
    let keys = |kind: &str, ranks: u32| {
        let path = path.display().to_string();
        workload(&format!(
            "kind = \"{kind}\"\nalgorithm = \"msccl\"\nfile = {path:?}\nranks = {ranks}\nsize = \"64 KiB\"\n"
        ))
    };
    // Two messages arrive at one NIC, then two leave it.
    let outcome = outcome(&keys("all-reduce", 3), &[]);
    near(collective(&outcome).time_us.expect("it ended"), 2.0 * message(128 * KIB), 0.02);
    let said = |text: &str| check(text, &[]).expect_err("a problem").to_string();
    assert!(said(&keys("all-reduce", 4)).contains("is not the number of GPUs in the file, 3"));
    assert!(said(&keys("all-gather", 3)).contains("computes allreduce, and the workload is all-gather"));
    assert!(strandway_import::describe_file(&path).expect("sound").contains("`star`, Simple"));
}

/// Servers of two GPUs, one rail each; 16 ranks of data parallelism.
fn data_parallel(more: &str) -> String {
    format!(
        "{FABRIC}[servers]\ngpus = 2\nwiring = \"rail-optimised\"\n[job]\nlayers = 2\nhidden = 64\nsequence = 64\ngpus = 16\n\
         zero = 0\ncompute = \"1 us\"\nbuckets = 1\n{more}"
    )
}

#[test]
fn jobs_choose_their_algorithms() {
    let folder = Folder::new("tuner");
    let of = |more: &str| {
        let outcome = outcome(&data_parallel(more), &[]);
        let job = &outcome.report.jobs[0];
        let made = &job.operations[0];
        let sent: u64 = outcome.measurements.connections.iter().map(|c| c.delivered_bytes).sum();
        (made.algorithm.clone(), made.time_us.expect("it ended"), sent, made.bytes)
    };
    let (ring, ring_time, ring_bytes, bytes) = of("");
    let (tree, tree_time, tree_bytes, _) = of("algorithm = \"tree\"\n");
    assert_eq!((ring.as_str(), tree.as_str(), ring_bytes), ("ring", "tree", tree_bytes));
    // A few kilobytes: what counts is the number of steps, 14 and 6.
    assert!(tree_time < ring_time);
    assert_eq!(of("algorithm = \"nccl\"\n").0, "tree");
    // Large gradients: a ring uses each NIC fully, a tree sends everything up and down.
    let large = "algorithm = \"nccl\"\ngradient_bytes = 8\n[expect]\n".replace("[expect]\n", "");
    let outcome = outcome(&data_parallel(&large), &["job.hidden=2048", "job.heads=16"]);
    assert_eq!(outcome.report.jobs[0].operations[0].algorithm, "ring");
    // A tuner's file decides by size, servers and ranks; LL doubles the bytes.
    let tuner = format!("allreduce,0,{},tree,simple,-1,8,16\nallreduce,0,99999999999,ring,ll,2,-1,-1\n", 2 * bytes);
    let path = folder.write("tuner.conf", tuner);
    let named = format!("tuner = {:?}\n", path.display().to_string());
    assert_eq!((of(&named).0, of(&named).2), ("tree".to_string(), tree_bytes));
    folder.write("tuner.conf", "allreduce,0,99999999999,ring,ll,2,-1,-1\n");
    assert_eq!((of(&named).0, of(&named).2), ("ring".to_string(), 2 * ring_bytes));
    folder.write("tuner.conf", "allreduce,0,1,bush,ll,2,-1,-1\n");
    let said = check(&data_parallel(&named), &[]).expect_err("a problem").to_string();
    assert!(said.contains("tuner.conf:1: `bush`: is no algorithm"), "{said}");
    // Sharded gradients by PAT.
    let outcome = support::outcome(&data_parallel("algorithm = \"pat\"\n"), &["job.zero=1"]);
    let made: Vec<&str> = outcome.report.jobs[0].operations.iter().map(|made| made.algorithm.as_str()).collect();
    assert!(made.contains(&"pat") && !made.contains(&"ring"), "{made:?}");
}

#[test]
fn servers_come_from_a_topology_of_nccl() {
    let folder = Folder::new("nccl-topo");
    let gpu = "<pci class=\"0x030200\"><gpu sm=\"90\"><nvlink count=\"9\"/></gpu></pci>";
    let nic = |rail: u32| format!("<pci class=\"0x020700\"><nic><net speed=\"400000\" rail=\"{rail}\"/></nic></pci>");
    let text = format!("<system version=\"1\"><cpu numaid=\"0\">{gpu}{}{gpu}{}</cpu></system>", nic(0), nic(1));
    let path = folder.write("topo.xml", text);
    let text = |more: &str| {
        let job = "[job]\nlayers = 2\nhidden = 64\nheads = 2\nsequence = 64\ntp = 2\ngpus = 32\n";
        format!("{FABRIC}[servers]\ntopo = {:?}\n{more}{job}", path.display().to_string())
    };
    let experiment = check(&text(""), &[]).unwrap_or_else(|e| panic!("{e}"));
    // Rank 1 is GPU 1 of the first server; its rail is the second leaf.
    assert_eq!(
        (
            experiment.operations[experiment.jobs[0].operation].hosts()[0].0,
            experiment.operations[experiment.jobs[0].operation].hosts()[1].0
        ),
        (0, 8)
    );
    let experiment = check(&text("wiring = \"by-server\"\n"), &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(experiment.operations[experiment.jobs[0].operation].hosts()[1].0, 1);
    folder.write("topo.xml", "<system version=\"1\"><cpu/></system>");
    assert!(check(&text(""), &[]).expect_err("empty").to_string().contains("has no GPU"));
}

#[test]
fn a_list_of_aicb_is_a_job() {
    let folder = Folder::new("aicb");
    let head =
        "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n";
    let line = |kind: &str, group: &str, size: u32, bytes: u64, ms: &str| {
        format!("CommType.{kind},CommGroup.{group},{size},{bytes},stage,None,None,,{ms},None,None,1\n")
    };
    let text = format!(
        "[rank0 ~ rank7]\n{head}{}{}{}",
        line("all_reduce", "dp_group", 4, 64 * KIB, "None"),
        line("computation", "all", 1, 0, "0.25"),
        line("all_gather", "tp_group", 2, 128 * KIB, "None"),
    );
    let path = folder.write("list.csv", &text);
    let arithmetic = 6.0 * message(16 * KIB) + 250.0 + message(64 * KIB);
    near(time(&outcome(&job(&path), &[])), arithmetic, 0.02);
    let told = strandway_import::describe_file(&path).expect("sound");
    assert!(told.contains("a list of AICB (.csv): 8 ranks, 6 groups of ranks"), "{told}");
    // Tensor groups inside servers: only the all-reduce leaves them.
    let servers = format!("[servers]\ngpus = 2\n{}", job(&path));
    let outcome = support::outcome(&servers, &[]);
    let sent: u64 = outcome.measurements.connections.iter().map(|c| c.delivered_bytes).sum();
    assert_eq!(sent, 2 * 2 * 3 * 64 * KIB);
}
