//! Multicast as a workload: the traffic on cables agrees with arithmetic, losses cost no more than they must, a dead
//! rank is named, and invalid settings are explained.

use strandway_import::Problems;
use strandway_lab::{Experiment, Outcome, run};
use strandway_scenario::parse;
use strandway_sim::Control;

const CHUNK: u64 = 4096;

fn check(text: &str, sets: &[&str]) -> Result<Experiment, Problems> {
    let mut scenario = parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).unwrap_or_else(|e| panic!("{e}"));
    }
    strandway_lab::check(&scenario)
}

fn outcome(text: &str, sets: &[&str]) -> Outcome {
    run(&check(text, sets).unwrap_or_else(|e| panic!("{e}")), &Control::new())
}

/// 64 hosts, four per leaf. With `k`: a fat tree of 128 hosts, four per leaf and 16 per pod.
const LEAVES: &str =
    "[fabric]\nhosts = 64\nhosts_per_leaf = 4\n[profile]\nname = \"uec\"\n[workload]\nkind = \"all-gather\"\n";
const PODS: &str =
    "[fabric]\nkind = \"fat-tree\"\nk = 8\n[profile]\nname = \"uec\"\n[workload]\nkind = \"all-gather\"\n";

/// Number of links that one share crosses, by the sheet's formulas (section 8.3).
fn crossings(algorithm: &str, ranks: u64, leaf: u64, pod: u64) -> u64 {
    let hop = |a: u64, b: u64| match () {
        () if a / leaf == b / leaf => 2,
        () if a / pod == b / pod => 4,
        () => 6,
    };
    let pairs = || (0..ranks).flat_map(|a| (0..ranks).filter(move |b| *b != a).map(move |b| (a, b)));
    match algorithm {
        "multicast" => {
            let more = |size: u64| if ranks > size { ranks.div_ceil(size) } else { 0 };
            ranks * (ranks + more(leaf) + more(pod))
        }
        "ring" => (ranks - 1) * (0..ranks).map(|a| hop(a, (a + 1) % ranks)).sum::<u64>(),
        "linear" => pairs().map(|(a, b)| hop(a, b)).sum(),
        _ => (0..ranks).flat_map(|a| (0..ranks.ilog2()).map(move |j| (1 << j) * hop(a, a ^ (1 << j)))).sum(),
    }
}

/// A rank that lacks a share answers its neighbour's request when it has the share, and not only when asked again.
#[test]
fn requests_of_the_ring_are_remembered() {
    let lossy = format!(
        "{LEAVES}algorithm = \"multicast\"\nsize = \"16 MiB\"\n[[faults]]\ntier = \"host->leaf\"\ncount = 64\nkind = \"loss\"\n\
         probability = 0.01\n"
    );
    let time = |recovery: &str| {
        let report = outcome(&lossy, &[&format!("workload.recovery={recovery}")]).report;
        report.collectives[0].time_us.expect("it ends")
    };
    let (fast, ring) = (time("fast"), time("ring"));
    assert!(ring < 8.0 * fast, "{ring} us around the ring, {fast} us by the root");
}

#[test]
fn every_algorithm_crosses_exactly_as_many_cables_as_the_formulas_say() {
    for (text, leaf, pod) in [(LEAVES, 4, 64), (PODS, 4, 16)] {
        for ranks in [2u64, 4, 7, 16, 64] {
            for algorithm in ["ring", "linear", "recursive-doubling", "multicast"] {
                if algorithm == "recursive-doubling" && !ranks.is_power_of_two() {
                    continue;
                }
                let sets = [
                    format!("workload.ranks={ranks}"),
                    format!("workload.algorithm={algorithm}"),
                    format!("workload.size={} B", ranks * CHUNK * 3),
                ];
                let report = outcome(text, &sets.each_ref().map(String::as_str)).report;
                assert_eq!(report.head.end, "finished");
                let expected = crossings(algorithm, ranks, leaf, pod) * CHUNK * 3;
                let what = format!("{algorithm}, {ranks} ranks, {leaf} to a leaf");
                assert_eq!(report.packets.retransmitted + report.packets.coded.repairs, 0, "{what}");
                assert_eq!(report.packets.payload_link_bytes, Some(expected), "{what}");
            }
        }
    }
}

#[test]
fn nics_send_their_share_once_and_receive_all_others() {
    let outcome = outcome(LEAVES, &["workload.algorithm=multicast", "workload.size=786432 B"]);
    let payload = |link: usize| {
        let l = &outcome.measurements.links[link];
        l.bytes - 64 * l.packets
    };
    assert!((0..64).all(|host| payload(host) == 786_432 / 64));
    let experiment = check(LEAVES, &["workload.algorithm=multicast", "workload.size=786432 B"]).expect("sound");
    let topology = &experiment.plan.topology;
    for host in 0..64 {
        let up = topology.ends(strandway_fabric::LinkId(host)).expect("in use");
        assert_eq!(payload(up.reverse.0 as usize), 786_432 / 64 * 63, "host {host}");
    }
}

#[test]
fn losses_at_receivers_are_fetched_on_any_number_of_threads() {
    let faults = "[[faults]]\ntier = \"leaf->host\"\ncount = 64\none_way = true\nkind = \"loss\"\nprobability = 0.01\n";
    let text = format!("{LEAVES}algorithm = \"multicast\"\nsize = \"4 MiB\"\n{faults}");
    for recovery in ["fast", "ring"] {
        let set = format!("workload.recovery={recovery}");
        let one = outcome(&text, &[&set]).report;
        assert_eq!((one.head.end.as_str(), one.flows.finished), ("finished", 64));
        // 1 % of 63 x 1,024 copies.
        assert!((400..1500).contains(&one.packets.coded.repairs), "{}", one.packets.coded.repairs);
        for threads in ["run.threads=2", "run.threads=7"] {
            assert_eq!(outcome(&text, &[&set, threads]).report.head.digest, one.head.digest, "{recovery}, {threads}");
        }
    }
}

#[test]
fn parity_crosses_the_same_cables_and_makes_up_for_losses_without_a_fetch() {
    let sets = |parity| ["workload.algorithm=multicast", "workload.ranks=16", "workload.size=2097152 B", parity];
    // Each of 16 shares has 32 chunks, and 8 more with parity.
    let whole = outcome(LEAVES, &sets("workload.parity=16+4")).report;
    assert_eq!(whole.packets.payload_link_bytes, Some(crossings("multicast", 16, 4, 64) * CHUNK * 40));
    assert_eq!((whole.packets.coded.chunks, whole.packets.coded.rebuilt, whole.packets.coded.repairs), (16 * 40, 0, 0));
    let faults = "[[faults]]\ntier = \"leaf->host\"\ncount = 64\none_way = true\nkind = \"loss\"\nprobability = 0.02\n";
    let text = format!("{LEAVES}{faults}");
    let lossy = outcome(&text, &sets("workload.parity=16+4")).report;
    assert_eq!((lossy.head.end.as_str(), lossy.flows.finished), ("finished", 16));
    // 2 % of 15 x 512 copies of data. One of 27,000 groups loses more than four of twenty chunks; there are 480 groups.
    assert!((90..220).contains(&lossy.packets.coded.rebuilt), "{}", lossy.packets.coded.rebuilt);
    assert_eq!(lossy.packets.coded.repairs, 0);
    for threads in ["run.threads=2", "run.threads=7"] {
        let again = outcome(&text, &[&sets("workload.parity=16+4")[..], &[threads]].concat()).report;
        assert_eq!(again.head.digest, lossy.head.digest, "{threads}");
    }
}

#[test]
fn a_plane_that_dies_silently_costs_a_cutoff_and_its_part_once_more() {
    let text = "[fabric]\nhosts = 64\nhosts_per_leaf = 8\nplanes = 2\n[profile]\nname = \"uec\"\n[workload]\nkind = \"broadcast\"\n\
                size = \"16 MiB\"\n";
    let whole = outcome(text, &[]).report;
    let time = |report: &strandway_report::Report| report.collectives[0].time_us.expect("all have everything");
    let fault = "[[faults]]\nplane = 1\nkind = \"down\"\nsilent = true\nat = \"200 us\"\n";
    let report = outcome(&format!("{text}{fault}"), &[]).report;
    assert_eq!((report.head.end.as_str(), report.flows.finished), ("finished", 64), "{:?}", report.notes);
    let experiment = check(text, &[]).expect("sound");
    let multicast = experiment.operations[0].multicast().expect("a multicast");
    // Half of the remaining chunks are missing. They are fetched over one plane instead of two, and every second
    // repetition is lost again.
    let again = 4.0 * time(&whole);
    let most = time(&whole) + multicast.cutoff().as_us() + again;
    assert!(time(&report) < most, "{} us, {most} us at the most", time(&report));
    assert!(report.packets.coded.chunks > whole.packets.coded.chunks);
}

#[test]
fn a_spine_that_dies_silently_is_left_out_by_the_root() {
    let text = "[fabric]\nhosts = 64\nhosts_per_leaf = 8\nspines = 8\n[profile]\nname = \"uec\"\n[workload]\nkind = \"broadcast\"\n\
                size = \"32 MiB\"\n";
    let fault = "[[faults]]\nswitch = \"spine3\"\nkind = \"down\"\nsilent = true\nat = \"100 us\"\n";
    let report = outcome(&format!("{text}{fault}"), &[]).report;
    assert_eq!((report.head.end.as_str(), report.flows.finished), ("finished", 64), "{:?}", report.notes);
    // Of 8,192 chunks, about 1,200 have left; 1/8 of the remaining ones is 870. 1/8 of three stretches of 256 chunks
    // and two batches is 128.
    let again = report.packets.coded.chunks - 8_192;
    assert!((90..300).contains(&again), "{again} chunks more than there are");
    for threads in ["run.threads=2", "run.threads=7"] {
        assert_eq!(outcome(&format!("{text}{fault}"), &[threads]).report.head.digest, report.head.digest, "{threads}");
    }
}

#[test]
fn hosts_without_a_common_plane_pass_chunks_on_and_the_report_says_so() {
    let ports = ["host0.p0", "host1.p1", "host2.p2"];
    let faults = ports.map(|port| format!("[[faults]]\nport = \"{port}\"\nkind = \"down\"\n")).concat();
    for (kind, chunks) in [("all-gather", 8 * 7), ("broadcast", 7)] {
        let text = format!(
            "[fabric]\nkind = \"multi-plane\"\nhosts = 8\nhosts_per_leaf = 4\nplanes = 3\nrate = \"300 Gbps\"\n[profile]\nname = \"uec\"\n[workload]\n\
             kind = \"{kind}\"\nalgorithm = \"multicast\"\nname = \"cast\"\nsize = \"8 MiB\"\nstart = \"20 us\"\n{faults}"
        );
        let report = outcome(&text, &[]).report;
        assert_eq!((report.head.end.as_str(), report.flows.finished), ("finished", 8), "{kind}: {:?}", report.notes);
        let said = "cast: no plane is common to all ranks, so chunks went from rank to rank";
        assert!(report.notes.iter().any(|note| note.starts_with(said)), "{:?}", report.notes);
        // Each chunk reaches each other rank once, by unicast; some chunks meet a dead port and are repeated.
        let share = if kind == "broadcast" { 2048 } else { 256 };
        assert_eq!(report.packets.coded.chunks, report.packets.coded.repairs, "nothing is cast to all");
        assert!(
            (chunks * share..chunks * share * 3 / 2).contains(&report.packets.coded.chunks),
            "{}",
            report.packets.coded.chunks
        );
        let whole = outcome(&text.replace(&faults, ""), &[]).report;
        assert!(
            whole.notes.iter().all(|note| !note.contains("no plane is common")) && whole.packets.coded.repairs == 0
        );
    }
}

#[test]
fn a_dead_host_is_named_and_nobody_waits_for_it_for_ever() {
    for algorithm in
        ["[workload]\nkind = \"all-gather\"\nalgorithm = \"multicast\"\n", "[workload]\nkind = \"broadcast\"\n"]
    {
        for (at, silent) in [("0 us", true), ("30 us", true), ("30 us", false)] {
            let text = format!(
                "[fabric]\nhosts = 16\nhosts_per_leaf = 4\n[profile]\nname = \"uec\"\n{algorithm}size = \"2 MiB\"\n[[faults]]\n\
                 switch = \"host5\"\nkind = \"down\"\nsilent = {silent}\nat = \"{at}\"\n"
            );
            let report = outcome(&text, &[]).report;
            let what = format!("{algorithm} at {at}: {:?}", report.notes);
            assert_ne!(report.head.end, "finished", "{what}");
            let named =
                report.notes.iter().any(|note| note.contains("15 of 16 ranks gave up, since host5 did not answer"));
            assert!(named, "{what}");
        }
    }
}

#[test]
fn broadcasts_by_trees_pass_every_byte_on_once() {
    let text = LEAVES.replace("all-gather", "broadcast");
    for (algorithm, depth) in [("binomial", 6), ("k-nomial", 3), ("binary", 6), ("chain", 63), ("linear", 1)] {
        let set = format!("workload.algorithm={algorithm}");
        let report = outcome(&text, &[&set, "workload.size=40960 B", "workload.root=9", "workload.pipeline=2"]).report;
        assert_eq!(
            (report.head.end.as_str(), report.flows.finished, report.flows.bytes),
            ("finished", 126, 63 * 40_960)
        );
        let c = &report.collectives[0];
        assert_eq!((c.kind.as_str(), c.algorithm.as_str(), c.ranks), ("broadcast", algorithm, 64));
        let time = c.time_us.expect("all have everything");
        assert!(time >= c.bound_us, "{algorithm}: {time} us, at least {}", c.bound_us);
        // Each message on the longest path takes at least two links of 1 us.
        assert!(c.bound_us >= 2.0 * f64::from(depth), "{algorithm}: {}", c.bound_us);
    }
}

#[test]
fn settings_without_sense_are_explained() {
    let broadcast = LEAVES.replace("all-gather", "broadcast");
    for (text, sets, fragments) in [
        (broadcast.as_str(), &["workload.root=64"][..], ["workload.root = 64", "only 64 ranks", "name one of them"]),
        (
            &broadcast,
            &["workload.root=2", "workload.ranks=2", "workload.algorithm=chain"],
            ["workload.root = 2", "only 2 ranks", ""],
        ),
        (&broadcast, &["workload.pipeline=2"], ["workload.pipeline", "unknown key", "keys here"]),
        (&broadcast, &["workload.algorithm=tree"], ["workload.algorithm", "known: multicast, binomial", ""]),
        (
            LEAVES,
            &["workload.algorithm=multicast", "workload.connections=2"],
            ["connections", "multicast has no connections", "leave it out"],
        ),
        (
            LEAVES,
            &["workload.algorithm=multicast", "workload.ordered=0.5"],
            ["ordered", "all trees in turn", "trees = 1"],
        ),
        (
            LEAVES,
            &["workload.algorithm=multicast", "workload.chains=0"],
            ["workload.chains", "write a whole number from 1", ""],
        ),
        (
            LEAVES,
            &["workload.algorithm=recursive-doubling", "workload.ranks=48"],
            ["workload.ranks", "power of two", "write 32"],
        ),
        (LEAVES, &["workload.algorithm=multicast", "workload.recovery=slow"], ["workload.recovery", "fast, ring", ""]),
        (LEAVES, &["workload.algorithm=multicast", "workload.parity=32,4"], ["workload.parity", "is no code", "32+4"]),
        (
            LEAVES,
            &["workload.algorithm=multicast", "workload.parity=250+9"],
            ["workload.parity", "at most 256", "32+4"],
        ),
    ] {
        let said = check(text, sets).map(|_| ()).expect_err("no sense").to_string();
        assert!(fragments.iter().all(|fragment| said.contains(fragment)), "{sets:?}: {said}");
    }
}

/// Casts that share their links with a ring arrive at half the rate. No chunk is lost, so no chunk is fetched.
#[test]
fn receivers_wait_for_casts_that_other_traffic_slows_down() {
    let text = "[fabric]\nhosts = 8\nhosts_per_leaf = 8\npfc = true\n[profile]\nname = \"uec\"\n\
                [[workload]]\nkind = \"all-gather\"\nname = \"gather\"\nalgorithm = \"multicast\"\nchains = 1\nsize = \"16 MiB\"\n\
                [[workload]]\nkind = \"reduce-scatter\"\nname = \"scatter\"\nsize = \"16 MiB\"\n";
    let report = outcome(text, &[]).report;
    assert_eq!(report.packets.dropped, 0);
    assert_eq!(report.packets.coded.repairs, 0);
    // 2 x 16 MiB x 7/8 arrive at every host; that is the minimum.
    let bytes = 2.0 * 16.0 * 1048576.0 * 7.0 / 8.0;
    let least = bytes * 8.0 / (report.fabric.rate_gbps * 1e3);
    let took = report.run.simulated_us;
    assert!(took < 1.35 * least, "{took} us, of which bytes need {least}");
}

/// An all-gather by multicast beside a reduce-scatter by switches, 16 hosts below one leaf.
const BESIDE: &str = "[fabric]\nhosts = 17\nhosts_per_leaf = 17\nrate = \"400 Gbps\"\ntrimming = false\necn = false\n\
                      queue = \"16 MB\"\n[profile]\nname = \"uec\"\n[switch]\nsystem = \"esa\"\nslots = 40000\nwindow = 64\n\
                      lanes = 1024\nheader = \"64 B\"\ncontrol = \"64 B\"\n\
                      [[workload]]\nkind = \"all-gather\"\nname = \"gather\"\nalgorithm = \"multicast\"\nchains = 1\npace = 0\n\
                      ranks = 16\nsize = \"64 MiB\"\n\
                      [[workload]]\nkind = \"reduce-scatter\"\nname = \"scatter\"\nalgorithm = \"in-network\"\nranks = 16\n\
                      size = \"64 MiB\"\n";

/// While a root casts, its port has no room for fragments. If the root is the owner of the sums, it has none to send.
#[test]
fn owners_that_keep_step_with_roots_fill_all_ports() {
    let took = |sets: &[&str]| outcome(BESIDE, sets).report.run.simulated_us;
    // All shares pass each port once, in either direction.
    let least = 64.0 * 1048576.0 * 8.0 / 400e3;
    let (apart, beside) = (took(&[]), took(&["workload.scatter.beside=gather"]));
    assert!(beside < 1.1 * least, "{beside} us, of which bytes need {least}");
    assert!(apart > 1.2 * beside, "{apart} us apart, {beside} us in step");
    let beside = took(&["workload.scatter.beside=gather", "workload.gather.chains=3", "workload.gather.pace=0.97"]);
    assert!(beside < 1.2 * least, "{beside} us with chains of unequal length, of which bytes need {least}");
}

/// Lost chunks and lost fragments delay a step, and end no run.
#[test]
fn owners_that_keep_step_with_roots_survive_losses() {
    let faults =
        "[[faults]]\ntier = \"leaf->host\"\ncount = 17\none_way = true\nkind = \"loss\"\nprobability = 0.00003\n";
    let report = outcome(&format!("{BESIDE}{faults}"), &["workload.scatter.beside=gather"]).report;
    assert!(report.packets.coded.repairs > 0);
    assert!(report.collectives.iter().all(|one| one.time_us.is_some()), "{:?}", report.collectives);
}

#[test]
fn beside_names_an_all_gather_of_the_same_hosts() {
    for (sets, fragments) in [
        (&["workload.scatter.beside=nothing"][..], ["workload", "beside", "is not the name"]),
        (&["workload.scatter.beside=gather", "workload.gather.ranks=8"], ["workload", "beside", "other hosts"]),
        (&["workload.scatter.beside=gather", "workload.scatter.chains=2"], ["workload", "chains", "write 1"]),
        (&["workload.scatter.beside=gather", "workload.scatter.algorithm=ring"], ["workload", "beside", "unknown key"]),
    ] {
        let said = check(BESIDE, sets).map(|_| ()).expect_err("no sense").to_string();
        assert!(fragments.iter().all(|fragment| said.contains(fragment)), "{sets:?}: {said}");
    }
}
