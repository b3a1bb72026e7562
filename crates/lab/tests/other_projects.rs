//! Files and figures of other projects: parts of traces, slowdowns, sizes, names and groups mean the same here as
//! there.

mod support;

use strandway_import::{describe_file, describe_file_for, simai_topology};
use strandway_report::{JobFacts, Report};
use support::*;

const KIB: u64 = 1024;

fn job_of(report: &Report) -> &JobFacts {
    assert_eq!(report.jobs.len(), 1);
    &report.jobs[0]
}

fn part(job: &JobFacts, name: &str) -> f64 {
    job.parts.iter().find(|part| part.name == name).and_then(|part| part.us).unwrap_or(0.0)
}

fn waited(job: &JobFacts) -> Vec<(&str, f64)> {
    job.exposed.iter().map(|exposed| (exposed.name.as_str(), exposed.us)).collect()
}

#[test]
fn time_between_a_collective_and_the_next_computation_counts_for_what_it_was() {
    let folder = Folder::new("parts-of-chakra");
    // A collective, 20 us on the CPU, a second collective, a node without time, and 5 us of computation.
    let nodes = || {
        vec![
            Node::new(0, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 64 * KIB),
            Node::new(1, COMPUTE, &[0]).int("is_cpu_op", 1).lasting(20),
            Node::new(2, COLLECTIVE, &[1]).int("comm_type", 2).int("comm_size", 16 * KIB),
            Node::new(3, COMPUTE, &[2]).int("num_ops", 0),
            Node::new(4, COMPUTE, &[3]).lasting(5),
        ]
    };
    (0..4).for_each(|rank| drop(folder.write(&format!("set.{rank}.et"), trace(&nodes()))));
    let report = outcome(&job(&folder.0.join("set")), &[]).report;
    let job = job_of(&report);
    let (first, second) = (6.0 * message(16 * KIB), 3.0 * message(16 * KIB));
    let names: Vec<&str> = waited(job).iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["allreduce", "allgather"]);
    near(waited(job)[0].1, first, 0.03);
    near(waited(job)[1].1, second, 0.03);
    near(job.computed_us, 25.0, 1e-6);
    assert!(part(job, "waiting") < 0.01, "{:?}", job.parts);
    near(part(job, "compute"), 25.0, 1e-6);
    near(part(job, "collectives"), first + second, 0.03);
}

#[test]
fn messages_that_wait_for_messages_are_exposed_messages() {
    let folder = Folder::new("parts-of-goal");
    // Rank 1 is free from the start: no rank waits for another.
    let text = "num_ranks 2\nrank 0 {\na: send 65536b to 1 tag 1\nb: calc 4000 cpu 1\nb requires a\nc: send 65536b to 1 tag 2\n\
                c requires b\nd: calc 1000\nd requires c\n}\nrank 1 {\na: recv 65536b from 0 tag 1\nb: recv 65536b from 0 tag 2\n\
                b requires a\n}\n";
    let path = folder.write("two.goal", text);
    let report = outcome(&job(&path), &[]).report;
    let job = job_of(&report);
    assert!(
        job.exposed.iter().all(|exposed| ["sending", "receiving"].contains(&exposed.name.as_str())),
        "{:?}",
        job.exposed
    );
    let sent = waited(job).iter().find(|(name, _)| *name == "sending").map_or(0.0, |(_, us)| *us);
    near(sent, 2.0 * acknowledged(64 * KIB) / 2.0, 0.02);
}

#[test]
fn a_flow_alone_has_a_slowdown_of_one_on_its_own_path() {
    for (fabric, profile) in [
        ("planes = 2\n", "rocev2"),
        ("uplink_rate = \"200 Gbps\"\nspines = 4\n", "rocev2"),
        ("planes = 4\nswitching = \"cut-through\"\n", "rocev2_sr"),
        (
            "kind = \"fat-tree\"\nk = 8\ncore_rate = \"100 Gbps\"\ncores_per_agg = 4\nswitch_latency = \"300 ns\"\n",
            "rocev2",
        ),
    ] {
        let leaf = if fabric.contains("fat-tree") { "" } else { "hosts_per_leaf = 8\n" };
        for size in ["100 B", "5 kB", "2 MB"] {
            let text = format!(
                "[fabric]\n{fabric}{leaf}hosts = 128\nrate = \"400 Gbps\"\nlatency = \"500 ns\"\n[profile]\nname = \"{profile}\"\n\
                 [workload]\nkind = \"flows\"\nflows = [{{ from = 0, to = 125, size = \"{size}\" }}]\n"
            );
            let slowdown = outcome(&text, &[]).report.times.slowdown.max.expect("it ended");
            assert!((0.9999..1.02).contains(&slowdown), "{profile} of {size}: {slowdown}\n{text}");
        }
    }
}

#[test]
fn the_size_of_an_all_to_all_of_msccl_is_one_message() {
    let folder = Folder::new("msccl-all-to-all");
    let gpu = |id: u32| {
        let other = 1 - id;
        format!(
            "<gpu id=\"{id}\"><tb id=\"0\" send=\"{other}\" recv=\"{other}\" chan=\"0\">\
             <step s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"{other}\" dstbuf=\"o\" dstoff=\"{id}\" cnt=\"1\"/>\
             <step s=\"1\" type=\"r\" srcbuf=\"i\" srcoff=\"{id}\" dstbuf=\"o\" dstoff=\"{other}\" cnt=\"1\"/></tb></gpu>"
        )
    };
    let xml = format!(
        "<algo name=\"swap\" proto=\"Simple\" nchunksperloop=\"2\" ngpus=\"2\" coll=\"alltoall\">{}{}</algo>",
        gpu(0),
        gpu(1)
    );
    let path = folder.write("swap.xml", xml);
    let text = format!(
        "{FABRIC}[workload]\nkind = \"all-to-all\"\nalgorithm = \"msccl\"\nranks = 2\nsize = \"1 MB\"\nfile = {:?}\n",
        path.display().to_string()
    );
    let report = outcome(&text, &[]).report;
    assert_eq!(report.flows.bytes, 2_000_000);
    assert_eq!(report.collectives[0].bytes, 2_000_000, "as the native one counts it");
    let native =
        text.replace("algorithm = \"msccl\"\n", "").replace(&format!("file = {:?}\n", path.display().to_string()), "");
    assert_eq!(outcome(&native, &[]).report.collectives[0].bytes, 2_000_000);
}

#[test]
fn collectives_of_weights_keep_their_names() {
    let folder = Folder::new("names-of-layers");
    let text = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 checkpoints: 0\n\
                2\nup -1 1 NONE 0 1 NONE 0 1 ALLTOALL 4194304 100\ndown -1 1 NONE 0 1 NONE 0 1 BROADCAST 4194304 100\n";
    let path = folder.write("names.txt", text);
    let report = outcome(&job(&path), &[]).report;
    let job = job_of(&report);
    let names: Vec<&str> = job.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert!(names.contains(&"all-to-all") && names.contains(&"broadcast") && names.len() == 2, "{names:?}");
    assert!(part(job, "dp") > 0.0 && part(job, "collectives") == 0.0, "{:?}", job.parts);
}

#[test]
fn collectives_on_servers_have_the_figures_of_nccl_tests() {
    let text = "[fabric]\nhosts = 16\nhosts_per_leaf = 16\nrate = \"200 Gbps\"\nlatency = \"500 ns\"\n[profile]\nname = \"uec\"\n\
                congestion = \"fixed\"\n[profile.fixed]\nwindow_bdp = 8\n[servers]\ngpus = 8\nrate = \"2400 Gbps\"\n[job]\n\
                layers = 1\nhidden = 8192\nheads = 64\nsequence = 64\ngpus = 16\nzero = 0\ncompute = \"1 us\"\nbuckets = 1\n";
    let report = outcome(text, &[]).report;
    let job = job_of(&report);
    let (rails, whole) = (&job.operations[0], &job.on_servers[0]);
    assert_eq!((rails.count, whole.count, whole.ended), (8, 1, 1));
    assert!(whole.algorithm.contains("on 8 rails"), "{whole:?}");
    assert_eq!(whole.bytes, 8 * rails.bytes);
    // 15/16 of the buffer, twice, in the time that 7/8 of it, twice, take at 300 GB/s inside a server.
    near(whole.busbw.expect("it ended"), 300.0 * 15.0 / 16.0 / (7.0 / 8.0), 0.03);
    // All of them inside a server: there are no messages, and the row is there.
    let report = outcome(text, &["job.gpus=8"]).report;
    let job = job_of(&report);
    assert!(job.operations.is_empty(), "{:?}", job.operations);
    assert_eq!(job.on_servers[0].algorithm, "inside a server");
    near(job.on_servers[0].busbw.expect("it ended"), 300.0, 0.03);
}

#[test]
fn goal_has_as_many_cpus_as_a_byte_numbers() {
    let folder = Folder::new("goal-cpus");
    let text = "num_ranks 2\nrank 0 {\na: calc 3000 cpu 255\nb: calc 3000 cpu 254\nc: calc 3000 cpu 14\nd: send 4096b to 1 tag 1\n\
                d requires a\nd requires b\nd requires c\n}\nrank 1 {\na: recv 4096b from 0 tag 1\n}\n";
    let path = folder.write("cpus.goal", text);
    // All three compute at the same time.
    near(time(&outcome(&job(&path), &[])), 3.0 + acknowledged(4096), 1e-6);
    let said = describe_file(&folder.write("more.goal", text.replace("cpu 255", "cpu 256"))).expect_err("no byte");
    assert!(said.to_string().contains("`256`: is no CPU: a whole number up to 255"), "{said}");
}

#[test]
fn groups_of_chakra_lie_beside_the_traces_and_dimensions_are_refused() {
    let folder = Folder::new("chakra-beside");
    let reduce = || Node::new(0, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 64 * KIB);
    for rank in 0..4 {
        let group = if rank < 2 { "7" } else { "8" };
        folder.write(&format!("work.{rank}.et"), trace(&[reduce().with("pg_name", Value::Text(group.into()))]));
    }
    folder.write("work.json", "{\"7\": [0, 1], \"8\": [2, 3]}");
    near(time(&outcome(&job(&folder.0.join("work")), &[])), 2.0 * message(32 * KIB), 0.02);
    assert!(describe_file(&folder.0.join("work")).expect("sound").contains("2 groups of ranks"));
    // Two dimensions, of which the second is left out.
    let mut all = trace(&[reduce()]);
    let node_length = all.len();
    let mut attribute = Vec::new();
    bytes(1, b"involved_dim", &mut attribute);
    let (mut list, mut node) = (Vec::new(), Vec::new());
    number(1, 1, &mut list);
    number(1, 0, &mut list);
    bytes(28, &list, &mut attribute);
    number(1, 1, &mut node);
    bytes(2, b"some", &mut node);
    number(3, COLLECTIVE, &mut node);
    for (name, value) in [("comm_type", 0), ("comm_size", 4096)] {
        let mut plain = Vec::new();
        bytes(1, name.as_bytes(), &mut plain);
        number(9, value, &mut plain);
        bytes(10, &plain, &mut node);
    }
    bytes(10, &attribute, &mut node);
    all.push(node.len() as u8);
    all.extend(node);
    assert!(all.len() > node_length);
    let said = describe_file(&folder.write("one.et", all)).expect_err("dimensions").to_string();
    assert!(said.contains("node 1 (`some`) is among some dimensions of a network (involved_dim)"), "{said}");
}

#[test]
fn files_of_htsim_and_lists_without_a_rank_count_are_described() {
    let folder = Folder::new("described");
    let matrix = "# two pairs\n\nNodes 4\nConnections 2\n0->1 start 0 size 1000\n2->3 start 0 size 1000\n";
    let told = describe_file(&folder.write("a.cm", matrix)).expect("sound");
    assert!(told.contains("an htsim traffic matrix: 4 hosts, 2 flows"), "{told}");
    let endless = matrix.replace("size 1000", "size 0");
    let said = describe_file(&folder.write("b.cm", endless)).expect_err("no end").to_string();
    assert!(said.contains("b.cm:5: `size 0`: a flow of 0 bytes runs without end in htsim"), "{said}");
    let topology = include_str!("../../../scenarios/smoke/tiny.topo");
    let path = folder.write("c.topo", topology);
    let told = describe_file(&path).expect("sound");
    assert!(told.contains("an htsim topology of") && told.contains("kind = \"htsim\""), "{told}");
    let micro = "comm_type,comm_group,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count\n\
                 CommType.all_gather,CommGroup.dp_group,4096,warmup,None,None,,None,None,None,1\n\
                 CommType.reduce_scatter,CommGroup.dp_group,4096,warmup,None,None,,None,None,None,1\n";
    let path = folder.write("micro.csv", micro);
    assert!(describe_file(&path).expect_err("no ranks").to_string().contains("--gpus N"));
    let told = describe_file_for(&path, Some(8)).expect("sound");
    // Both move the same bytes.
    assert!(
        told.contains("8 x all-gather, 0.033 MB in all") && told.contains("8 x reduce-scatter, 0.033 MB in all"),
        "{told}"
    );
    let time = time(&outcome(&job(&path), &["job.gpus=8"]));
    near(time, 14.0 * message(512), 0.02);
}

#[test]
fn a_topology_of_simai_by_name_and_its_sections_are_one_fabric() {
    // Four servers of two GPUs on two rails of four, and two spines.
    let mut links = Vec::new();
    for gpu in 0..8 {
        links.push(format!("{gpu} {} 2880Gbps 0.000025ms 0", 8 + gpu / 2));
        links.push(format!("{gpu} {} 400Gbps 0.0005ms 0", 12 + gpu % 2));
    }
    for leaf in [12, 13] {
        links.extend([14, 15].map(|spine| format!("{leaf} {spine} 800Gbps 0.0005ms 0")));
    }
    let rails = format!("16 2 4 4 {} H100\n8 9 10 11 12 13 14 15\n{}\n", links.len(), links.join("\n"));
    let made = simai_topology::parse("topo", &rails).expect("sound");
    let folder = Folder::new("simai-topology");
    let path = folder.write("topo", &rails);
    let named = format!("[fabric]\nkind = \"simai\"\ntopo = {:?}\n", path.display().to_string());
    let job = "[job]\nlayers = 2\nhidden = 64\nheads = 2\nsequence = 64\ntp = 2\ngpus = 8\n";
    let [written, read] = [made.sections(), named].map(|fabric| {
        let text = format!("{fabric}{job}");
        check(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"))
    });
    assert_eq!(read.plan.topology, written.plan.topology);
    let jobs = [&read, &written].map(|made| made.script_of(&made.jobs[0]));
    assert_eq!(jobs[0], jobs[1]);
    // Rank 1 is GPU 1 of the first server, below the second leaf.
    assert_eq!(jobs[0].hosts[1].0, 4);
}
