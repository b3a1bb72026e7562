//! Traces of all ranks as jobs: Chakra and GOAL. Times agree with arithmetic; odd files are explained.

mod support;

use std::path::PathBuf;
use strandway_import::{chakra, describe_file, goal};
use support::*;

const KIB: u64 = 1024;

/// A set of traces of `ranks` ranks.
fn set(folder: &Folder, ranks: u64, of: impl Fn(u64) -> Vec<Node>) -> PathBuf {
    (0..ranks).for_each(|rank| drop(folder.write(&format!("set.{rank}.et"), trace(&of(rank)))));
    folder.0.join("set")
}

fn said(path: &std::path::Path, sets: &[&str]) -> String {
    check(&job(path), sets).expect_err("a problem").to_string()
}

#[test]
fn a_collective_of_eight_ranks_takes_the_time_of_arithmetic() {
    let folder = Folder::new("chakra-collective");
    let collective =
        |kind: u64| move |_| vec![Node::new(0, COLLECTIVE, &[]).int("comm_type", kind).int("comm_size", 1024 * KIB)];
    // A ring: 14 steps of 128 KiB.
    let path = set(&folder, 8, collective(0));
    near(time(&outcome(&job(&path), &[])), 14.0 * message(128 * KIB), 0.02);
    // Seven messages of 128 KiB leave each NIC one behind the other.
    let path = set(&folder, 8, collective(6));
    near(time(&outcome(&job(&path), &[])), message(7 * 128 * KIB), 0.02);
    // Every rank gives 1 MiB.
    let path = set(&folder, 8, collective(2));
    near(time(&outcome(&job(&path), &[])), 7.0 * message(1024 * KIB), 0.02);
    let path = set(&folder, 8, collective(7));
    near(time(&outcome(&job(&path), &[])), 7.0 * message(128 * KIB), 0.02);
    // A chain of two parts of 512 KiB: the second one follows the first, and seven ranks forward.
    let path = set(&folder, 8, collective(5));
    near(time(&outcome(&job(&path), &[])), 8.0 * message(512 * KIB), 0.02);
    // The root sends seven blocks of 128 KiB.
    let path = set(&folder, 8, collective(4));
    near(time(&outcome(&job(&path), &[])), message(7 * 128 * KIB), 0.02);
    // Seven ranks send 1 MiB to one: an incast, whose queue costs some packets.
    let path = set(&folder, 8, collective(3));
    let took = time(&outcome(&job(&path), &[])) / message(7 * 1024 * KIB);
    assert!((1.0..1.2).contains(&took), "{took}");
    // A barrier moves almost nothing.
    let path = set(&folder, 8, collective(9));
    near(time(&outcome(&job(&path), &[])), 14.0 * message(1), 0.02);
}

/// A ring of messages: each waits for the one before it at the same rank to be acknowledged, and for the one that
/// arrived.
#[test]
fn a_ring_of_messages_takes_the_time_of_arithmetic() {
    let folder = Folder::new("chakra-ring");
    let ring = |rank: u64| {
        let mut nodes = Vec::new();
        for step in 0..6u64 {
            let id = 3 * step;
            let before: Vec<u64> = id.checked_sub(1).into_iter().collect();
            nodes.push(
                Node::new(id, SEND, &before)
                    .int("comm_dst", (rank + 1) % 4)
                    .int("comm_tag", 7)
                    .int("comm_size", 64 * KIB),
            );
            nodes.push(
                Node::new(id + 1, RECEIVE, &[id])
                    .int("comm_src", (rank + 3) % 4)
                    .int("comm_tag", 7)
                    .int("comm_size", 64 * KIB),
            );
            nodes.push(Node::new(id + 2, COMPUTE, &[id + 1]).lasting(5));
        }
        nodes
    };
    let path = set(&folder, 4, ring);
    let outcome = outcome(&job(&path), &[]);
    near(time(&outcome), 6.0 * (acknowledged(64 * KIB) + 5.0), 0.01);
    let told = describe_file(&path).expect("sound");
    assert!(told.contains("4 ranks") && told.contains("24 messages sent") && told.contains("0.120 ms"), "{told}");
    // On servers of two GPUs every second message stays inside; the others bound the ring.
    let servers = "[servers]\ngpus = 2\nrate = \"800 Gbps\"\nlatency = \"600 ns\"\n";
    let inside = support::outcome(&format!("{servers}{}", job(&path)), &[]);
    assert!(time(&inside) < time(&outcome));
    let delivered: u64 = inside.measurements.connections.iter().map(|c| c.delivered_bytes).sum();
    assert_eq!(delivered, 6 * 2 * 64 * KIB);
    // One message inside a server: 64 KiB at 100 B/ns and 1 us of a link.
    let pair = |rank: u64| {
        vec![match rank {
            0 => Node::new(0, SEND, &[]).int("comm_dst", 1).int("comm_size", 64 * KIB),
            _ => Node::new(0, RECEIVE, &[]).int("comm_src", 0).int("comm_size", 64 * KIB),
        }]
    };
    let folder = Folder::new("chakra-inside");
    let path = set(&folder, 2, pair);
    near(time(&support::outcome(&format!("{servers}{}", job(&path)), &[])), 65.536 * 0.01 + 0.6, 1e-6);
}

/// Two collectives of PyTorch's trace, launched one after the other on one stream, without a dependency between them.
#[test]
fn kernels_of_a_stream_follow_each_other() {
    let folder = Folder::new("chakra-streams");
    let kernel = |id: u64, stream: u64| {
        Node::new(id, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 1024 * KIB).int("tid", stream)
    };
    let one = 14.0 * message(128 * KIB);
    let took = |nodes: &[Node]| {
        let path = set(&folder, 8, |_| nodes.to_vec());
        (time(&outcome(&job(&path), &[])), describe_file(&path).expect("sound"))
    };
    let (together, told) = took(&[kernel(0, 7), kernel(1, 8)]);
    assert!(together < 1.9 * one && !told.contains("on their stream"), "{together} {told}");
    let (apart, told) = took(&[kernel(0, 7), kernel(1, 7)]);
    near(apart, 2.0 * one, 0.02);
    assert!(told.contains("8 kernels wait for the one before them on their stream"), "{told}");
    // Start times say which comes first, and `stream` goes before `tid`. A dependency of the trace goes before both.
    let computing = |id: u64, needs: &[u64], start: u64| {
        Node::new(id, COMPUTE, needs).lasting(100).starting(start).int("stream", 7).int("tid", id)
    };
    let first = |nodes: &[Node]| {
        let path = set(&folder, 1, |_| nodes.to_vec());
        let trace = chakra::files_of(&path).and_then(|set| set.read("set", chakra::Options::default(), None));
        let trace = trace.expect("no circle");
        trace.ranks[0].operations.iter().map(|operation| operation.id).collect::<Vec<u64>>()
    };
    assert_eq!(first(&[computing(1, &[], 30), computing(2, &[], 20), computing(3, &[], 10)]), [3, 2, 1]);
    assert_eq!(first(&[computing(1, &[], 30), computing(2, &[1], 20), computing(3, &[], 10)]), [3, 1, 2]);
    assert_eq!(first(&[computing(1, &[], 30), computing(2, &[], 0), computing(3, &[], 10)]), [1, 2, 3]);
    // Calls on the CPU have threads, which are no streams.
    let call = |id: u64| Node::new(id, COMPUTE, &[]).lasting(9).int("tid", 1).with("is_cpu_op", Value::Varint(27, 1));
    let folder = Folder::new("chakra-threads");
    let path = set(&folder, 2, |_| vec![call(0), call(1)]);
    assert!(!describe_file(&path).expect("sound").contains("on their stream"));
}

#[test]
fn computations_of_a_trace_are_scaled() {
    let folder = Folder::new("chakra-scaled");
    let path = set(&folder, 2, |_| {
        vec![Node::new(0, COMPUTE, &[]).lasting(200), Node::new(1, COLLECTIVE, &[0]).int("comm_type", 9)]
    });
    let run = |sets: &[&str]| time(&outcome(&job(&path), sets));
    near(run(&["job.compute_scale=0.25"]) - run(&[]), -150.0, 1e-6);
    assert!(said(&path, &["job.compute_scale=0"]).contains("job.compute_scale"));
}

/// Integers of any type, texts, and missing attributes.
#[test]
fn any_type_of_number_is_read() {
    let folder = Folder::new("chakra-types");
    let sizes = [
        Value::Varint(7, 4096),
        Value::Varint(9, 4096),
        Value::Varint(11, 4096),
        Value::Varint(13, 4096),
        Value::Varint(15, 8192),
        Value::Varint(17, 8192),
        Value::Fixed64(21, 4096),
        Value::Fixed64(25, 4096),
        Value::Fixed64(3, 4096f64.to_bits()),
        Value::Text("4096".into()),
    ];
    for size in sizes {
        let node = Node::new(0, COLLECTIVE, &[]).int("comm_type", 0).with("comm_size", size);
        let path = folder.write("one.et", trace(&[node]));
        let told = describe_file(&path).expect("sound");
        assert!(told.contains("1 x all-reduce, 0.004 MB"), "{told}");
    }
    for (size, what) in [(Value::Text("much".into()), "no whole number"), (Value::Varint(9, u64::MAX), "from 0 to")] {
        let node = Node::new(0, COLLECTIVE, &[]).int("comm_type", 0).with("comm_size", size);
        let path = folder.write("one.et", trace(&[node]));
        let said = describe_file(&path).expect_err("odd").to_string();
        assert!(said.contains("one.et: message 1 has an attribute comm_size") && said.contains(what), "{said}");
    }
    // num_ops at 495 TFLOP/s: half of an h100's peak.
    let node = Node::new(0, COMPUTE, &[]).int("num_ops", 989_000_000_000).int("tensor_size", 10);
    let all = Node::new(1, COLLECTIVE, &[0]).int("comm_type", 9);
    let path = folder.write("roof.et", trace(&[node, all]));
    let time = time(&outcome(&job(&path), &["job.gpus=2"]));
    near(time, 2000.0 + 2.0 * message(1), 0.001);
}

#[test]
fn groups_come_from_files_and_from_nodes() {
    let folder = Folder::new("chakra-groups");
    let all_reduce = |id: u64, group: &str| {
        let node = Node::new(id, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 64 * KIB);
        if group.is_empty() { node } else { node.with("pg_name", Value::Text(group.to_string())) }
    };
    let of = |rank: u64| vec![all_reduce(0, if rank < 2 { "low" } else { "high" })];
    let path = set(&folder, 4, of);
    assert!(said(&path, &[]).contains("a group without a list of ranks"));
    folder.write("comm_group.json", r#"{"low": [0, 1], "high": [2, 3]}"#);
    let outcome = outcome(&job(&path), &[]);
    // Two rings of two ranks at the same time: two steps of 32 KiB.
    near(time(&outcome), 2.0 * message(32 * KIB), 0.02);
    assert_eq!(outcome.report.jobs[0].operations[0].count, 2);
    let other = folder.write("groups.json", r#"{"low": [0, 2], "high": [1, 3]}"#);
    let wrong = said(&path, &[&format!("job.groups={:?}", other.display().to_string())]);
    assert!(wrong.contains("node 0 of rank 1 is not in the group"), "{wrong}");
    // PyTorch's node: JSON in the values of its inputs.
    let folder = Folder::new("chakra-pytorch-groups");
    let of = |rank: u64| {
        let mut init = Node::new(0, 1, &[]);
        init.name = "## process_group:init ##".into();
        let json =
            r#"[{"pg_name": "0", "ranks": [], "group_size": 4}, {"pg_name": "7", "ranks": [1, 3], "group_size": 2}]"#;
        init.inputs = format!("['{}']", json.replace('"', "\\\""));
        let mut nodes = vec![init, all_reduce(1, "0")];
        nodes.extend((rank % 2 == 1).then(|| all_reduce(2, "7")));
        nodes
    };
    let outcome = support::outcome(&job(&set(&folder, 4, of)), &[]);
    assert_eq!(outcome.report.jobs[0].operations[0].count, 2);
}

#[test]
fn lists_that_cannot_end_or_do_not_fit_are_explained() {
    let folder = Folder::new("chakra-wrong");
    let circle =
        |_| vec![Node::new(4, COMPUTE, &[6]).lasting(1), Node::new(5, COMPUTE, &[4]), Node::new(6, COMPUTE, &[5])];
    let wrong = said(&set(&folder, 2, circle), &[]);
    assert!(wrong.contains("nodes of rank 0 wait for each other in a circle: 4 before 5 before 6 before 4"), "{wrong}");
    // A circle of control dependencies only counts if they are read.
    let control = |_| {
        let mut node = Node::new(3, COMPUTE, &[]).lasting(1);
        node.control.push(3);
        vec![node, Node::new(4, COLLECTIVE, &[3]).int("comm_type", 9)]
    };
    let path = set(&folder, 2, control);
    assert!(check(&job(&path), &[]).is_ok());
    assert!(said(&path, &["job.control_dependencies=true"]).contains("in a circle: 3 before 3"));
    let lonely = |rank| match rank {
        0 => vec![Node::new(9, RECEIVE, &[]).int("comm_src", 1).int("comm_size", 8)],
        _ => vec![Node::new(9, COMPUTE, &[]).lasting(1)],
    };
    assert!(said(&set(&folder, 2, lonely), &[]).contains("node 9 of rank 0 waits for a message that is never sent"));
    let each_other = |rank: u64| {
        vec![
            Node::new(0, RECEIVE, &[]).int("comm_src", 1 - rank).int("comm_size", 8),
            Node::new(1, SEND, &[0]).int("comm_dst", 1 - rank).int("comm_size", 8),
        ]
    };
    assert!(said(&set(&folder, 2, each_other), &[]).contains("node 0 of rank 0 waits for a message"));
    let differ = |rank: u64| vec![Node::new(0, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 8 + rank)];
    assert!(said(&set(&folder, 2, differ), &[]).contains("node 0 of rank 1 is another collective, or has other bytes"));
    let fewer = |rank: u64| match rank {
        0 => vec![Node::new(0, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 8)],
        _ => vec![Node::new(0, COMPUTE, &[]).lasting(2)],
    };
    assert!(said(&set(&folder, 2, fewer), &[]).contains("takes part in 1 collectives of a group, and rank 1 in 0"));
    let far = |_| vec![Node::new(0, SEND, &[]).int("comm_dst", 5).int("comm_size", 8)];
    assert!(said(&set(&folder, 2, far), &[]).contains("node 0 of rank 0 names rank 5 of 2"));
    let nameless = |_| vec![Node::new(0, SEND, &[]).int("comm_size", 8)];
    assert!(said(&set(&folder, 2, nameless), &[]).contains("node 0 (`node0`) has no comm_dst"));
    let path = folder.0.join("set.1.et");
    std::fs::remove_file(&path).expect("removed");
    folder.write("set.2.et", "");
    assert!(said(&folder.0.join("set"), &[]).contains("has 2 files, and none called set.1.et"));
    let single = folder.write("single.et", trace(&[Node::new(0, COLLECTIVE, &[]).int("comm_type", 9)]));
    assert!(said(&single, &[]).contains("job.gpus"));
    assert!(said(&single, &["job.gpus=4", "job.tp=2"]).contains("job.tp"));
}

/// A converter that leaves nodes out keeps their ids; the CPU and the GPU of a rank work side by side.
#[test]
fn a_rank_that_stands_for_all_computes_on_two_lanes() {
    let folder = Folder::new("chakra-lanes");
    let nodes = [
        Node::new(1, COMPUTE, &[99]).int("is_cpu_op", 1).lasting(100),
        Node::new(2, COMPUTE, &[]).lasting(150),
        Node::new(3, COMPUTE, &[]).lasting(150),
        Node::new(4, COLLECTIVE, &[1]).int("is_cpu_op", 1).lasting(30),
        Node::new(5, COLLECTIVE, &[3, 4]).int("comm_type", 0).int("comm_size", 64 * KIB),
    ];
    let path = folder.write("one.et", trace(&nodes));
    let outcome = outcome(&job(&path), &["job.gpus=4"]);
    near(time(&outcome), 300.0 + 6.0 * message(16 * KIB), 0.001);
    let job = &outcome.report.jobs[0];
    assert_eq!(job.ranks, 4);
    let exposed = job.parts.iter().find(|part| part.name == "collectives").and_then(|part| part.us).expect("a part");
    near(exposed, 6.0 * message(16 * KIB), 0.01);
}

/// The groups of one rank stand for groups of the same shape among all ranks.
#[test]
fn a_rank_that_stands_for_all_has_groups_of_one_shape() {
    let folder = Folder::new("chakra-shape");
    let node = |id: u64, group: &str| {
        let size = Node::new(id, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 64 * KIB);
        size.with("pg_name", Value::Text(group.into()))
    };
    let path = folder.write("one.et", trace(&[node(0, "tensor"), node(1, "data")]));
    let groups = folder.write("groups.json", r#"{"tensor": [0, 1], "data": [6, 2, 0, 4]}"#);
    let named = format!("job.groups={:?}", groups.display().to_string());
    let outcome = outcome(&job(&path), &["job.gpus=16", &named]);
    // Eight pairs, and four groups of four: every rank is in one of each.
    assert_eq!(outcome.report.jobs[0].operations[0].count, 8 + 4);
    let sent: u64 = outcome.measurements.connections.iter().map(|c| c.delivered_bytes).sum();
    assert_eq!(sent, 8 * 2 * 64 * KIB + 4 * 2 * 3 * 64 * KIB);
    let wrong = said(&path, &["job.gpus=12", &named]);
    assert!(wrong.contains("node 1 of rank 0 has a group like which 12 ranks cannot be divided"), "{wrong}");
}

const TREE: &str = "// three ranks\nnum_ranks 3\n\nrank 0 { /* the\n root */\na: calc 1000 cpu 1\nb: send 8192b to 1 tag 5 cpu 0 nic 0\nb requires a\nc: send 8192 b to 2\nc irequires b\n}\n\
    rank 1 {\nr: recv 8192b from -1 tag -1\nx: calc 2000\nx requires r\ns: send 100b to 2 tag 1\ns requires x\n}\n\
    rank 2 {\np: recv 8192b from 0 tag 0\nq: recv 100b from 1 tag 1\n}\n";

#[test]
fn goal_takes_the_time_of_arithmetic() {
    let folder = Folder::new("goal-text");
    let path = folder.write("tree.goal", TREE);
    // 1 us on another CPU, a message (a packet of `c` goes out between its two), 2 us, and another message; the sender
    // hears of its end last.
    let expected = 1.0 + message(8192) + PACKET + 2.0 + acknowledged(100);
    near(time(&outcome(&job(&path), &[])), expected, 0.002);
    let told = describe_file(&path).expect("sound");
    assert!(told.contains("a GOAL schedule (text): 3 ranks"), "{told}");
    assert!(told.contains("2 computations, 0.003 ms") && told.contains("1 of them from any rank"), "{told}");
    // This schedule takes the same time as a binary file.
    let binary = binary();
    let path = folder.write("tree.bin", &binary);
    near(time(&outcome(&job(&path), &[])), expected, 0.002);
    assert!(describe_file(&path).expect("sound").contains("a GOAL schedule (binary): 3 ranks"));
}

/// `TREE` as txt2bin writes it.
fn binary() -> Vec<u8> {
    struct Op(u32, u8, u32, u64, u32, u8, Vec<u32>, Vec<u32>);
    let any = u32::MAX;
    let ranks = [
        vec![
            Op(0, 3, 0, 1000, 0, 1, vec![1], vec![]),
            Op(1, 1, 1, 8192, 5, 0, vec![], vec![2]),
            Op(1, 1, 2, 8192, 0, 0, vec![], vec![]),
        ],
        vec![
            Op(0, 2, any, 8192, any, 0, vec![1], vec![]),
            Op(1, 3, 0, 2000, 0, 0, vec![2], vec![]),
            Op(1, 1, 2, 100, 1, 0, vec![], vec![]),
        ],
        vec![Op(0, 2, 0, 8192, 0, 0, vec![], vec![]), Op(0, 2, 1, 100, 1, 0, vec![], vec![])],
    ];
    let mut body = Vec::new();
    let mut table = Vec::new();
    let head = 6 + 16 * ranks.len();
    for rank in &ranks {
        let start = head + body.len();
        let roots: Vec<u32> = (0u32..).zip(rank).filter(|(_, op)| op.0 == 0).map(|(at, _)| at).collect();
        body.extend((rank.len() as u32).to_le_bytes());
        body.extend((roots.len() as u32).to_le_bytes());
        roots.iter().for_each(|root| body.extend(root.to_le_bytes()));
        let mut listed = 0u32;
        for Op(waits, kind, peer, size, tag, cpu, ends, begins) in rank {
            body.extend(waits.to_le_bytes());
            body.push(*kind);
            body.extend(peer.to_le_bytes());
            body.extend(size.to_le_bytes());
            body.extend(tag.to_le_bytes());
            body.extend([*cpu, 0]);
            for list in [ends, begins] {
                body.extend((list.len() as u32).to_le_bytes());
                body.extend(listed.to_le_bytes());
                listed += list.len() as u32;
            }
        }
        for op in rank {
            op.6.iter().chain(&op.7).for_each(|later| body.extend(later.to_le_bytes()));
        }
        table.extend([(start as u64).to_le_bytes(), ((head + body.len()) as u64).to_le_bytes()].concat());
    }
    let mut out = 4223u64.to_le_bytes().to_vec();
    out.extend((ranks.len() as u32).to_le_bytes());
    out.extend([2, 1]);
    out.extend(table);
    out.extend(body);
    out
}

/// A rank that waits for any sender gets the messages in the order in which they are sent.
#[test]
fn any_sender_is_the_first_one() {
    let folder = Folder::new("goal-any");
    let text = "num_ranks 3\nrank 0 {\na: recv 8b from -1 tag 3\nb: calc 10000\nb requires a\nc: recv 8b from -1 tag 3\nc requires b\n\
        d: send 8b to 1\nd requires c\n}\nrank 1 {\na: calc 50000\nb: send 8b to 0 tag 3\nb requires a\nc: recv 8b from 0\n}\n\
        rank 2 {\na: send 8b to 0 tag 3\n}\n";
    let path = folder.write("any.goal", text);
    // Rank 2 is first; rank 1 computes for 50 us, is heard at once, and answered.
    near(time(&outcome(&job(&path), &[])), 50.0 + message(8) + acknowledged(8), 0.002);
}

#[test]
fn cut_and_absurd_files_are_explained() {
    let folder = Folder::new("absurd");
    let name = |error: String, wanted: &str| assert!(error.starts_with(wanted) && error.contains("; "), "{error}");
    for end in 0..TREE.len() {
        if let Err(problems) = goal::parse("a.goal", &TREE.as_bytes()[..end]) {
            name(problems.to_string(), "a.goal");
        }
    }
    let mut words = 0;
    for (at, _) in TREE.match_indices(|c: char| c.is_ascii_digit()) {
        let end = at + TREE[at..].find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        for absurd in ["-7", "18446744073709551615", "", "x", "0", "4294967295", "281474976710656", "1125899906842624"]
        {
            let changed = format!("{}{absurd}{}", &TREE[..at], &TREE[end..]);
            if let Err(problems) = goal::parse("a.goal", changed.as_bytes()) {
                name(problems.to_string(), "a.goal");
                words += 1;
                continue;
            }
            let path = folder.write("absurd.goal", changed);
            let _ = check(&job(&path), &[]);
        }
    }
    assert!(words > 60, "{words}");
    let whole = binary();
    assert!(goal::parse("a.bin", &whole[..]).is_ok());
    for end in 0..whole.len() {
        let problems = goal::parse("a.bin", &whole[..end]).expect_err("it is cut");
        name(problems.to_string(), "a.bin");
    }
    let node = |id: u64| Node::new(id, COLLECTIVE, &[]).int("comm_type", 0).int("comm_size", 4096).int("comm_tag", 1);
    let et = trace(&[node(0), Node::new(1, COMPUTE, &[0]).lasting(7), node(2)]);
    let read = |bytes: &[u8]| {
        let mut reader = chakra::Reader::new("a.et", chakra::Options::default());
        reader.rank("a.et", bytes).and_then(|()| reader.finish(true))
    };
    assert!(read(&et).is_ok());
    for end in 0..et.len() {
        if let Err(problems) = read(&et[..end]) {
            name(problems.to_string(), "a.et: ");
        }
    }
    for (file, bytes) in [("a.bin", &whole), ("a.et", &et)] {
        for at in 0..bytes.len() {
            for absurd in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = absurd;
                let result = if file == "a.et" { read(&changed) } else { goal::parse(file, &changed[..]) };
                if let Err(problems) = result {
                    name(problems.to_string(), file);
                }
            }
        }
    }
    for (from, to, wanted) in [
        ("calc 1000 cpu 1", "calc 1000 cpu 256", "a.goal:6: `256`: is no CPU: a whole number up to 255"),
        ("to 1 tag", "to 3 tag", "a.goal:7: `3`: is no rank"),
        ("b requires a", "b requires z", "a.goal:8: `z`: is a label that this rank does not have"),
        ("b requires a", "b requires c", "wait for each other in a circle: 7 before 9 before 7"),
        ("rank 1 {", "rank 2 {", "the next one is 1"),
        ("x: calc 2000", "r: calc 2000", "is the label of another operation"),
        ("num_ranks 3", "num_ranks 4", "the file ends after 3 of 4 ranks"),
    ] {
        let said = goal::parse("a.goal", TREE.replacen(from, to, 1).as_bytes()).expect_err(to).to_string();
        assert!(said.contains(wanted), "{said}");
    }
    let endless = TREE.replace("calc 2000", "calc 1125899906842623");
    let path = folder.write("endless.goal", endless);
    assert!(said(&path, &[]).contains("makes rank 1 compute and send for longer than a run can last"));
    let path = folder.write("odd.txt", "what is this\n");
    assert!(describe_file(&path).expect_err("unknown").to_string().contains("is of no kind that is known"));
}

/// The fixture of SimAI's format: the same digest on 1, 2 and 7 threads.
#[test]
fn a_workload_of_simai_has_one_digest() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/simai.txt");
    let servers = format!("[servers]\ngpus = 4\nwiring = \"rail-optimised\"\n{}", job(&file));
    assert!(time(&outcome(&servers, &[])) > 0.0);
}

/// A recording of two ranks: 100 us of computation, an all-reduce of 64 KiB, for which the program waits, and 50 us
/// more.
#[test]
fn a_recording_is_replayed_and_its_times_stand_beside_the_predicted_ones() {
    let folder = Folder::new("recording");
    for rank in 0..2 {
        let head = format!(
            "{{\"strandway_recording\":1,\"rank\":{rank},\"ranks\":2,\"process\":\"p{rank}\",\"unix_us\":0}}\n"
        );
        let barrier = "\"group\":\"g\",\"what\":\"all_reduce\",\"bytes\":65536,\"root\":0,\"algorithm\":\"direct\"";
        let text = format!(
            "{head}{{\"group\":\"g\",\"members\":[\"p0\",\"p1\"]}}\n{{\"post\":0,\"us\":0.0,{barrier}}}\n{{\"start\":0,\"us\":0.0}}\n\
             {{\"end\":0,\"us\":20.0,\"failed\":false}}\n{{\"wait\":0,\"us\":100.0,\"until_us\":100.0,\"ended\":true}}\n\
             {{\"post\":1,\"us\":150.0,{barrier}}}\n{{\"start\":1,\"us\":150.0}}\n{{\"end\":1,\"us\":180.0,\"failed\":false}}\n"
        );
        folder.write(&format!("rank-{rank}.jsonl"), text);
    }
    let outcome = outcome(&job(&folder.0), &["job.algorithm=direct"]);
    let replayed = &outcome.report.jobs[0];
    assert_eq!((replayed.recorded_us, replayed.operations[0].recorded_us), (Some(180.0), Some(25.0)));
    assert_eq!((replayed.operations[0].count, replayed.operations[0].algorithm.as_str()), (2, "direct"));
    // The first all-reduce ends while the program computes; the second one is waited for by nothing but the end.
    let predicted = replayed.operations[0].time_us.expect("it ends");
    near(time(&outcome), 150.0 + predicted, 0.01);
    let text = strandway_report::text::report(&outcome.report);
    assert!(text.contains("replayed") && text.contains("predicted / recorded") && text.contains("180.0 us"), "{text}");
}
