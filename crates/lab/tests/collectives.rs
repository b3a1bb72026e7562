//! Collectives as workloads: their times agree with arithmetic on an ideal fabric, no message starts before the
//! messages that it waits for, and reports list each collective.

use strandway_collective::{Group, Rank};
use strandway_lab::{Experiment, Outcome, run};
use strandway_proto::units::{Span, Time};
use strandway_report as report;
use strandway_report::CollectiveFacts;
use strandway_scenario::parse;
use strandway_sim::Control;

/// Sixteen hosts under one leaf, and a window that never limits the rate.
const IDEAL: &str = "[fabric]\nhosts = 16\nhosts_per_leaf = 16\n[profile]\nname = \"uec\"\ncongestion = \"fixed\"\n\
                     [profile.fixed]\nwindow_bdp = 4\n[workload]\nkind = \"all-reduce\"\n";

/// Eight leaves of eight hosts, full bisection.
const LEAVES: &str = "[fabric]\nhosts = 64\nhosts_per_leaf = 8\n[profile]\nname = \"uec\"\ncongestion = \"fixed\"\n\
                      [profile.fixed]\nwindow_bdp = 4\n[workload]\nkind = \"all-reduce\"\n";

/// The time of an acknowledgement on a link of 400 Gb/s.
const ACK: Span = Span(64 * 20);

fn experiment(text: &str, sets: &[&str]) -> Experiment {
    let mut scenario = parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"))
}

fn outcome(text: &str, sets: &[&str]) -> (Experiment, Outcome) {
    let experiment = experiment(text, sets);
    let outcome = run(&experiment, &Control::new());
    (experiment, outcome)
}

/// The only collective of a run.
fn facts(text: &str, sets: &[&str]) -> CollectiveFacts {
    let mut collectives = outcome(text, sets).1.report.collectives;
    assert_eq!(collectives.len(), 1);
    collectives.remove(0)
}

#[test]
fn with_one_packet_per_step_the_time_is_exact() {
    // From the second step on, every rank acknowledges a block before it forwards it.
    for (sets, steps) in [
        (&["workload.size=65536 B"][..], 30),
        (&["workload.size=65536 B", "workload.algorithm=halving-doubling"], 8),
        (&["workload.size=65536 B", "workload.kind=all-gather"], 15),
        (&["workload.size=65536 B", "workload.kind=reduce-scatter"], 15),
        // One byte more: one of sixteen blocks takes two packets, and its way around the ring is the longest.
        (&["workload.size=65537 B", "workload.kind=all-gather"], 15),
    ] {
        let (experiment, outcome) = outcome(IDEAL, sets);
        let c = &outcome.report.collectives[0];
        let plan = &experiment.collectives[0];
        assert_eq!(experiment.operations[0].group().and_then(Group::schedule).expect("a schedule").steps(), steps);
        let expected = plan.bound + ACK * u64::from(steps - 1);
        assert_eq!(c.time_us, Some(expected.as_us()), "{sets:?}");
    }
}

#[test]
fn the_bound_is_the_one_of_the_books() {
    // The number of steps, times the sum of: a block at line rate with headers, two links of 1 us, and the time of a
    // full packet on the second link.
    let c = facts(IDEAL, &["workload.size=16 MB"]);
    let wire = 1_000_000 + 1_000_000_u64.div_ceil(4096) * 64;
    assert_eq!(c.bound_us, Span(30 * ((wire + 4160) * 20 + 2_000_000)).as_us());
    assert_eq!((c.kind.as_str(), c.algorithm.as_str(), c.ranks, c.bytes), ("allreduce", "ring", 16, 16_000_000));
    assert_eq!(c.started_us, Some(0.0));
    assert_eq!((c.messages, c.received), (480, 480));
    let time = c.time_us.expect("finished");
    assert!((c.algbw.expect("a rate") - 16e3 / time).abs() < 1e-9);
    assert!((c.busbw.expect("a rate") - 16e3 / time * 2.0 * 15.0 / 16.0).abs() < 1e-9);
}

#[test]
fn large_collectives_come_within_two_percent_of_the_bound() {
    for (text, sets) in [
        (IDEAL, &["workload.size=16 MB"][..]),
        (IDEAL, &["workload.size=16 MB", "workload.algorithm=halving-doubling"]),
        (IDEAL, &["workload.size=16 MB", "workload.kind=reduce-scatter"]),
        (IDEAL, &["workload.size=16 MB", "workload.kind=all-gather"]),
        (IDEAL, &["workload.size=16 MB", "workload.pipeline=4"]),
        (IDEAL, &["workload.size=16 MB", "workload.connections=4"]),
        (LEAVES, &["workload.size=64 MB"]),
        (LEAVES, &["workload.size=64 MB", "workload.algorithm=halving-doubling"]),
    ] {
        let c = facts(text, sets);
        let over = c.time_us.expect("finished") / c.bound_us;
        assert!((1.0..1.02).contains(&over), "{sets:?}: {over} times the bound");
    }
}

#[test]
fn bus_bandwidth_approaches_the_payload_rate_of_the_nic() {
    // 50 GB/s, minus headers of 64 B per 4,160 B.
    let payload = 50.0 * 4096.0 / 4160.0;
    for (sets, share) in [
        (&["workload.size=64 MB", "workload.pipeline=8"][..], 0.98),
        (&["workload.size=64 MB", "workload.algorithm=halving-doubling", "workload.pipeline=8"], 0.98),
        (&["workload.size=4 MB", "workload.kind=all-to-all", "workload.window=8"], 0.95),
    ] {
        let bus = facts(IDEAL, sets).busbw.expect("finished");
        assert!((share * payload..=payload).contains(&bus), "{sets:?}: {bus} of {payload} GB/s");
    }
}

/// Every message starts exactly when the last message that it waits for has arrived.
#[test]
fn every_message_starts_with_the_last_thing_it_waits_for() {
    let unfair = "[fabric]\nhosts = 16\nhosts_per_leaf = 2\n[profile]\nname = \"uec\"\n\
                  [workload]\nkind = \"all-reduce\"\nsize = \"1 MB\"\nplacement = \"random\"\n\
                  [[faults]]\nswitch = \"spine0\"\nkind = \"loss\"\nprobability = 0.05\n";
    for sets in [
        &["workload.algorithm=ring"][..],
        &["workload.algorithm=ring", "workload.pipeline=3", "workload.connections=2"],
        &["workload.algorithm=halving-doubling"],
        &["workload.algorithm=halving-doubling", "workload.pipeline=2", "workload.connections=3"],
        &["workload.kind=all-to-all", "workload.window=3", "workload.size=100 kB"],
        &["workload.algorithm=halving-doubling", "workload.group=8"],
    ] {
        for threads in ["run.threads=1", "run.threads=3"] {
            let (experiment, outcome) = outcome(unfair, &[sets, &[threads]].concat());
            assert!(outcome.report.packets.lost > 0);
            for index in 0..experiment.collectives.len() {
                check_starts(&experiment, &outcome, index);
            }
        }
    }
}

fn check_starts(experiment: &Experiment, outcome: &Outcome, index: usize) {
    let plan = &experiment.collectives[index];
    let schedule = experiment.operations[index].group().and_then(Group::schedule).expect("a schedule");
    let flows = |rank: Rank, i: u32| {
        let at = plan.messages.start + (rank.0 * schedule.messages() + i) as usize;
        let message = &experiment.messages[at];
        &outcome.measurements.flows[message.first as usize..(message.first + message.pieces) as usize]
    };
    let mut overtaken = 0;
    for rank in (0..schedule.ranks()).map(Rank) {
        for (i, send) in (0u32..).zip(schedule.sends(rank)) {
            let mut expected = Time::ZERO;
            let mut wait = |time: Option<Time>| {
                let time = time.expect("finished");
                overtaken += u32::from(time < expected);
                expected = expected.max(time);
            };
            if let Some(place) = send.after.posted {
                wait(flows(rank, place)[0].started);
            }
            if let Some((from, place)) = send.after.received {
                flows(from, place).iter().for_each(|f| wait(f.received));
            }
            if let Some(place) = send.after.sent {
                flows(rank, place).iter().for_each(|f| wait(f.finished));
            }
            for piece in flows(rank, i) {
                assert_eq!(piece.started, Some(expected), "{:?}, rank {}, {:?}", plan.name, rank.0, send.index);
            }
        }
    }
    // Otherwise the test would not check the order.
    if schedule.algorithm().name() == "halving-doubling" && schedule.parts() == 1 {
        assert!(overtaken > 0, "nothing ever arrived before what it had to wait for");
    }
}

#[test]
fn an_all_to_all_counts_a_block_for_every_rank() {
    let c = facts(IDEAL, &["workload.kind=all-to-all", "workload.size=100 kB"]);
    assert_eq!((c.kind.as_str(), c.bytes, c.messages), ("alltoall", 1_600_000, 240));
}

#[test]
fn fewer_bytes_than_ranks_are_summed_up_all_the_same() {
    let c = facts(IDEAL, &["workload.size=5 B"]);
    assert_eq!((c.messages, c.received), (480, 480));
}

#[test]
fn groups_are_told_apart_and_the_slowest_counts() {
    let sets = ["workload.group=8", "workload.size=1 MB", "workload.name=dp", "workload.placement=random"];
    let report = outcome(LEAVES, &sets).1.report;
    let names: Vec<&str> = report.collectives.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["dp/0", "dp/1", "dp/2", "dp/3", "dp/4", "dp/5", "dp/6", "dp/7"]);
    let times: Vec<f64> = report.collectives.iter().filter_map(|c| c.time_us).collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    assert!(times.len() == 8 && times.iter().any(|t| *t < slowest));
    let values = report.values();
    assert_eq!(values["collectives.dp.time_us"], Some(slowest));
    assert_eq!(values["collectives.dp/0.time_us"], Some(times[0]));
    assert!(values["collectives.dp.busbw_GBps"] <= values["collectives.dp/0.busbw_GBps"]);
}

#[test]
fn an_unfinished_collective_is_shown_as_such() {
    let text = format!(
        "{IDEAL}size = \"1 MB\"\n[[faults]]\nport = \"host3.p0\"\nkind = \"down\"\nsilent = true\n\
         [run]\ntime_limit = \"1 ms\"\n[expect]\n\"collectives.all-reduce.time_us\" = \"< 1000\"\n"
    );
    let (_, outcome) = outcome(&text, &[]);
    let report = &outcome.report;
    let c = &report.collectives[0];
    assert_eq!((c.time_us, c.algbw, c.busbw), (None, None, None));
    assert!(c.received < c.messages && c.started_us == Some(0.0));
    assert!(!report.met());
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert!(json["collectives"][0]["busbw_GBps"].is_null());
    let partial = format!("{} of 480", c.received);
    for page in [report::text::report(report), report::markdown::report(report)] {
        assert!(page.contains(&partial), "{page}");
    }
    assert!(report::html::report(report).contains("of\u{a0}480"));
}

#[test]
fn every_rendering_has_the_table() {
    let report = outcome(IDEAL, &["workload.size=1 MB", "workload.name=gradients"]).1.report;
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    for key in ["kind", "ranks", "bytes", "time_us", "algbw_GBps", "busbw_GBps", "bound_us", "started_us"] {
        assert!(!json["collectives"][0][key].is_null(), "{key}");
    }
    for page in [report::text::report(&report), report::markdown::report(&report), report::html::report(&report)] {
        assert!(page.contains("bus bandwidth") && page.contains("gradients") && page.contains("GB/s"), "{page}");
    }
}

#[test]
fn many_groups_are_summed_up_and_runs_are_compared() {
    let mut scenario = parse(LEAVES).expect("TOML");
    for set in ["workload.group=2", "workload.size=8 kB", "workload.name=pairs"] {
        scenario.set(set).expect("set");
    }
    let report = run(&strandway_lab::check(&scenario).expect("sound"), &Control::new()).report;
    assert_eq!(report.collectives.len(), 32);
    assert!(report::text::report(&report).contains("pairs, slowest of 32 groups: allreduce, ring"));
    let row =
        |label: &str| strandway_report::Row { label: label.into(), set: Default::default(), report: report.clone() };
    let rows = [row("left"), row("right")];
    for page in
        [report::text::rows(&rows, None), report::markdown::rows("x", &rows), report::html::rows("x", &rows, "")]
    {
        let page = page.replace('\u{a0}', " ");
        assert!(page.contains("left: pairs: allreduce, ring") && page.contains("right: pairs: allreduce"), "{page}");
    }
}

#[test]
fn placement_decides_who_is_whose_neighbour() {
    let hosts = |set: &str| -> Vec<u32> {
        let experiment = experiment(LEAVES, &["workload.ranks=8", "workload.size=8 kB", set]);
        experiment.plan.connections.iter().map(|c| c.source.0).collect()
    };
    assert_eq!(hosts("workload.placement=contiguous"), (0..8).collect::<Vec<_>>());
    let random = hosts("workload.placement=random");
    assert_ne!(random, (0..8).collect::<Vec<_>>());
    assert_eq!(random, hosts("workload.placement=random"));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let file = folder.join("placement.txt");
    assert_eq!(hosts(&format!("workload.placement=\"{}\"", file.display())), [0, 8, 16, 24, 32, 40, 48, 56]);
}

#[test]
fn a_ring_of_a_thousand_ranks_fits() {
    let text = "[fabric]\nhosts = 1024\n[workload]\nkind = \"all-reduce\"\nsize = \"16 MB\"\n";
    let tallied = experiment(text, &[]);
    assert_eq!((tallied.plan.flows.len(), tallied.operations[0].messages()), (0, 2 * 1023 * 1024));
    let experiment = experiment(text, &["run.rows=true"]);
    assert_eq!(experiment.plan.flows.len(), 2 * 1023 * 1024);
    assert_eq!(experiment.plan.connections.len(), 1024);
    // The report of an unfinished run with two million messages is small and is made quickly.
    let report = strandway_lab::facts::report(&experiment, &Default::default(), 0.0);
    assert!(report.to_json().len() < 100_000);
}

#[test]
fn ordered_connections_keep_to_one_path_and_are_a_class_of_their_own() {
    let text = "[fabric]\nhosts = 64\nhosts_per_leaf = 8\n[profile]\nname = \"uec\"\n\
                [workload]\nname = \"rdma\"\nordered = \"10 %\"\nsize = \"500 kB\"\nconnections = 2\nmessages = 3\n";
    let (experiment, outcome) = outcome(text, &[]);
    let names: Vec<&str> = experiment.plan.profiles.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["uec", "uec/single"]);
    assert_eq!(experiment.plan.profiles[1].path.name(), "single");
    // Six of 64 pairs, with all their queue pairs.
    assert_eq!(experiment.plan.connections.iter().filter(|c| c.profile == 1).count(), 12);
    let classes: Vec<(&str, u64, u64)> =
        outcome.report.classes.iter().map(|c| (c.name.as_str(), c.total, c.finished)).collect();
    assert_eq!(classes, [("rdma", 58 * 3, 58 * 3), ("rdma-ordered", 6 * 3, 6 * 3)]);
    assert_eq!(outcome.report.other_profiles, ["uec/single"]);
    // The pairs are the same as without ordered connections.
    let plain = self::experiment(&text.replace("ordered = \"10 %\"\n", ""), &[]);
    let pairs = |e: &Experiment| e.plan.connections.iter().map(|c| (c.source, c.destination)).collect::<Vec<_>>();
    assert_eq!(pairs(&plain), pairs(&experiment));
}

#[test]
fn a_workload_may_have_a_profile_of_its_own() {
    let text = "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n[profile]\nname = \"uec\"\n[profile.transport]\nmtu = 2048\n\
                [[workload]]\nname = \"new\"\nsize = \"500 kB\"\n\
                [[workload]]\nname = \"old\"\nprofile = \"rocev2\"\nsize = \"500 kB\"\nordered = 0.5\n\
                [[workload]]\nname = \"older\"\nprofile = \"rocev2\"\nsize = \"500 kB\"\n[run]\ncapture = \"host0\"\n";
    let (experiment, outcome) = outcome(text, &[]);
    let names: Vec<&str> = experiment.plan.profiles.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["uec", "rocev2", "rocev2/single"]);
    assert_eq!(outcome.report.head.end, "finished");
    // A message's time alone is calculated with its own profile: no flow is faster.
    assert!(outcome.report.times.slowdown.min.expect("flows") >= 1.0);
    let count = |class: &str| outcome.report.classes.iter().find(|c| c.name == class).map(|c| c.finished);
    assert_eq!(
        [count("new"), count("old"), count("old-ordered"), count("older")],
        [Some(16), Some(8), Some(8), Some(16)]
    );
    // The capture contains packets of both wire formats.
    let mut bytes = Vec::new();
    let capture = strandway_lab::pcap::write(&experiment, &outcome.measurements, &mut bytes).expect("memory takes it");
    assert!(capture.packets > 0 && capture.skipped == 0, "{} {}", capture.packets, capture.skipped);
}

#[test]
fn collectives_of_process_groups_are_simulated() {
    for kind in ["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast"] {
        for (size, most) in [("4 KiB", 2.5), ("4 MiB", 1.15)] {
            let sets = [
                format!("workload.kind={kind}"),
                format!("workload.size={size}"),
                "workload.algorithm=direct".into(),
                "workload.ranks=8".into(),
            ];
            let facts = facts(IDEAL, &sets.iter().map(String::as_str).collect::<Vec<&str>>());
            assert_eq!((facts.algorithm.as_str(), facts.ranks), ("direct", 8), "{kind}");
            let (time, bound) = (facts.time_us.expect("it ends"), facts.bound_us);
            assert!(bound <= time && time <= bound * most, "{kind} of {size}: {time} us, bound {bound}");
        }
    }
}

#[test]
fn a_table_of_algorithms_decides_as_it_does_for_process_groups() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("tuning");
    let sets = |kind: &str, size: &str| {
        [
            format!("workload.kind={kind}"),
            format!("workload.size={size}"),
            "workload.algorithm=auto".into(),
            format!("workload.tuning={}", table.display()),
        ]
    };
    std::fs::write(&table, "part=1048576\nalgorithm=ring,all_reduce=tree>100000\n").expect("written");
    for (kind, size, algorithm) in [
        ("all-reduce", "100 kB", "ring"),
        ("all-reduce", "200 kB", "tree"),
        ("all-gather", "1 MiB", "ring"),
        ("all-to-all", "1 kB", "direct"),
    ] {
        let facts = facts(IDEAL, &sets(kind, size).iter().map(String::as_str).collect::<Vec<&str>>());
        assert_eq!(facts.algorithm, algorithm, "{kind} of {size}");
        assert!(facts.time_us.is_some_and(|time| time >= facts.bound_us));
    }
    // A file of MSCCL, by its path from the folder of the scenario: two ranks reduce a half each and exchange the halves.
    let steps = |gpu: u32| {
        let step = |(at, (kind, chunk)): (usize, (&str, u32))| {
            format!("<step s=\"{at}\" type=\"{kind}\" srcoff=\"{chunk}\" dstoff=\"{chunk}\" cnt=\"1\"/>")
        };
        let other = 1 - gpu;
        [("s", gpu), ("rrc", other), ("s", other), ("r", gpu)].into_iter().enumerate().map(step).collect::<String>()
    };
    let gpu = |gpu: u32| {
        let other = 1 - gpu;
        format!("<gpu id=\"{gpu}\"><tb id=\"0\" send=\"{other}\" recv=\"{other}\" chan=\"0\">{}</tb></gpu>", steps(gpu))
    };
    let halves = format!("<algo ngpus=\"2\" nchunksperloop=\"2\" coll=\"allreduce\">{}{}</algo>", gpu(0), gpu(1));
    let file = folder.path().join("halves.xml");
    std::fs::write(&file, &halves).expect("written");
    std::fs::write(&table, format!("algorithm=all_reduce={}\n", file.display())).expect("written");
    for (ranks, algorithm) in [(2, "file"), (3, "direct")] {
        let mut sets = sets("all-reduce", "1 MiB").to_vec();
        sets.push(format!("workload.ranks={ranks}"));
        let facts = facts(IDEAL, &sets.iter().map(String::as_str).collect::<Vec<&str>>());
        assert_eq!(facts.algorithm, algorithm);
        assert!(facts.time_us.is_some_and(|time| time >= facts.bound_us && time < 1.2 * facts.bound_us));
    }
    std::fs::write(&file, halves.replacen("rrc", "r", 1)).expect("written");
    let naming = format!("algorithm=all_reduce={}\n", file.display());
    for (text, said, remedy) in [
        (naming.as_str(), "its steps do not compute allreduce", "correct the file"),
        ("part=7\n", "line 1: part is", "perf tune"),
        ("algorithm=all_reduce=ring,all_gather=multicast\n", "the algorithm multicast", "remove these rules"),
    ] {
        std::fs::write(&table, text).expect("written");
        let mut scenario = parse(IDEAL).expect("TOML");
        sets("all-reduce", "1 MiB").iter().for_each(|set| scenario.set(set).expect("a key"));
        let error = strandway_lab::check(&scenario).expect_err("a wrong table").to_string();
        assert!(error.contains("tuning") && error.contains(said) && error.contains(remedy), "{error}");
    }
}

/// The same plans in a job, between servers with several GPUs and between ranks that are hosts.
#[test]
fn jobs_run_what_process_groups_run() {
    let job = "[fabric]\nhosts = 8\nhosts_per_leaf = 8\n[profile]\nname = \"uec\"\n[job]\nmodel = \"llama-7b\"\n\
               dp = 8\nlayers = 2\ngpu = \"h100\"\n";
    let time = |algorithm: &str| {
        let (_, outcome) = outcome(job, &[&format!("job.algorithm={algorithm}")]);
        outcome.report.jobs[0].iteration_us.expect("it ends")
    };
    let (ring, direct) = (time("ring"), time("direct"));
    assert!((0.8..1.6).contains(&(direct / ring)), "ring {ring} us, direct {direct} us");
}
