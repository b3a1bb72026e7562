//! Every mistake in a scenario is reported with key, value and remedy, all at once, before the run.

use strandway_lab::{Scenario, run};
use strandway_sim::Control;

/// The problems of a scenario, one per line.
fn problems(text: &str) -> String {
    match Scenario::from_text("x.toml", text).and_then(|s| strandway_lab::check(&s).map(drop)) {
        Ok(()) => "nothing is wrong".to_string(),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn every_mistake_names_key_value_and_remedy() {
    let cases: &[(&str, &[&str])] = &[
        // Syntax.
        ("[fabric\nhosts = 4", &["x.toml:1: not valid TOML"]),
        ("fabric = 4", &["x.toml: fabric = 4: must be a table; write a section [fabric]"]),
        ("[fabrik]\nhosts = 4", &["fabrik = {...}: unknown section; did you mean `fabric`?"]),
        // Unknown keys name the nearest known one.
        ("[fabric]\nhots = 4", &["fabric.hots = 4: unknown key; did you mean `hosts`?"]),
        ("[workload]\nkind = \"permutation\"\nsise = \"2 MB\"", &["workload.sise", "did you mean `size`?"]),
        ("[run]\nseeds = 4", &["run.seeds = 4: unknown key; did you mean `seed`?"]),
        ("[profile]\nname = \"uec\"\npaht = \"reps\"", &["profile.paht", "did you mean `path`?"]),
        ("[profile.nscc]\ngama = 0.5", &["profile.nscc.gama = 0.5: unknown parameter; did you mean `gamma`?"]),
        ("[expect]\n\"fct_us.maximum\" = \"< 5\"", &["the report has no such value; did you mean `fct_us.max`?"]),
        ("[expect]\n\"flow.0->99999.fct_us\" = \"< 5\"", &["there is no flow \"0->99999\""]),
        // Units.
        ("[fabric]\nrate = \"400\"", &["fabric.rate = \"400\": a rate needs a unit; write \"400 Gbps\""]),
        ("[fabric]\nrate = 400", &["fabric.rate = 400: needs a unit; write \"400 Gbps\""]),
        ("[fabric]\nrate = \"50 GBps\"", &["in bits per second"]),
        ("[fabric]\nlatency = \"1 parsec\"", &["`parsec` is no unit of time; units: us, ms, ns, ps, s"]),
        ("[workload]\nsize = \"2 Mb\"", &["`Mb` is no unit", "units: MB"]),
        ("[workload]\nsize = 2000000", &["needs a unit; write \"2000000 B\" or \"2 MB\" if that is what you mean"]),
        // Numbers that cannot be parsed, are negative or too large.
        ("[fabric]\nhosts = 0", &["fabric.hosts = 0: must be at least 1"]),
        ("[fabric]\nhosts = 1000000000000", &["fabric.hosts = 1000000000000: must be at most 1048576"]),
        ("[fabric]\nhosts = -4", &["fabric.hosts = -4: cannot be negative"]),
        ("[fabric]\nhosts = 4.5", &["must be a whole number"]),
        ("[fabric]\nhosts = nan", &["must be a whole number"]),
        ("[fabric]\noversubscription = nan", &["fabric.oversubscription = NaN: must be a finite number"]),
        ("[fabric]\nlatency = nan", &["must be a finite number with a unit"]),
        ("[fabric]\nlatency = \"nan us\"", &["must be a finite number"]),
        ("[fabric]\nlatency = \"-1 us\"", &["cannot be negative"]),
        ("[fabric]\nlatency = \"0 us\"", &["propagation delay of one link; write a time from \"1 ns\""]),
        ("[fabric]\nrate = \"0 Gbps\"", &["a rate must be above zero"]),
        ("[workload]\nsize = \"-2 MB\"", &["workload.size = \"-2 MB\": a size cannot be negative"]),
        ("[workload]\nsize = \"0 B\"", &["is not a message that can be sent"]),
        ("[workload]\nsize = \"99999999999999999999 TB\"", &["more than a run can hold"]),
        ("[profile.nscc]\ngamma = 1e308", &["profile.nscc.gamma", "is out of range; write a value from"]),
        ("[profile.transport]\nack_every = 16384", &["profile.transport.ack_every = 16384: needs a unit"]),
        ("[profile.transport]\nmtu = \"big\"", &["must be a whole number; its default is 4096"]),
        // HPCC reads acknowledgements, which one-way connections do not have.
        (
            "[profile]\nname = \"sdr_nack\"\ncongestion = \"hpcc\"",
            &["profile.congestion = \"hpcc\"", "`sdr_nack` has none", "such as `rocev2/hpcc`"],
        ),
        // Fabrics with contradictions.
        ("[fabric]\nkind = \"fat-tree\"\nk = 5", &["needs an even number of switch ports; write 4 or 6"]),
        ("[fabric]\nkind = \"fat-tree\"\nk = 4\nhosts = 17", &["more than a fat tree of k = 4 holds, 16"]),
        (
            "[fabric]\nkind = \"ring\"",
            &[
                "fabric.kind = \"ring\": is not known; known: leaf-spine, fat-tree, multi-plane, sites, dragonfly, torus, hyperx, graph, htsim",
            ],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nhosts = 4096\nplanes = 16\nrouting = \"source\"",
            &[
                "fabric.routing = \"source\": 16 planes do not fit a micro segment, which can distinguish 8; make the fabric smaller",
            ],
        ),
        ("[[faults]]\nkind = \"loss\"\nplane = 0\nprobability = 0.1\nburst = 0", &["faults.burst = 0"]),
        ("[fabric]\nspines = 4\noversubscription = 2", &["given together with `spines`"]),
        ("[fabric]\noversubscription = 3\nhosts_per_leaf = 16", &["comes out even at 3.2"]),
        // Planes, paths and micro segments.
        (
            "[fabric]\nplanes = 64",
            &[
                "x.toml: fabric.planes = 64: must be at most 32: a NIC has one port for each plane, and at most 32 ports; \
                 write a whole number from 1 to 32",
            ],
        ),
        ("[fabric]\nkind = \"fat-tree\"\nk = 4\nplanes = 33", &["fabric.planes = 33: must be at most 32"]),
        ("[fabric]\nplanes = 0", &["fabric.planes = 0: must be at least 1"]),
        (
            "[fabric]\nkind = \"multi-plane\"\nplanes = 3",
            &[
                "x.toml: fabric.planes = 3: do not divide the NIC's rate of 400 Gbps, which its ports share evenly; write 2 or 4, \
                 or a rate that is a multiple of 3 bits per second",
            ],
        ),
        ("[fabric]\nplanes = 7\nrate = \"800 Gbps\"", &["fabric.planes = 7: do not divide", "write 5 or 8"]),
        (
            "[fabric]\nkind = \"multi-plane\"\nhosts = 16384\nhosts_per_leaf = 8\nplanes = 8\nrouting = \"source\"",
            &[
                "fabric.routing = \"source\": 2048 leaves of a plane do not fit a micro segment, which can distinguish 2047",
            ],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nspines = 8\n[profile]\nname = \"mrc\"\n[profile.mrc]\nactive = 33",
            &[
                "x.toml: profile.mrc.active = 33: is more than the fabric has: 32 paths between distant hosts (4 planes of 8); write at \
                 most 32, leave it out to use them all, or raise fabric.spines or fabric.planes",
            ],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nspines = 8\n[profile]\nname = \"mrc\"\n[profile.mrc]\nactive = 20\nbackup = 13",
            &[
                "x.toml: profile.mrc.backup = 13: is too many: 20 are in use of the fabric's 32 paths between distant hosts (4 \
                 planes of 8); write at most 12, leave it out to use the default, lower profile.mrc.active, or raise fabric.spines",
            ],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nspines = 8\n[profile]\nname = \"mrc\"\n[profile.mrc]\nbackup = 128",
            &["profile.mrc.backup = 128: is too many: 32 are in use", "write at most 0"],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\n[profile]\nname = \"mrc\"\n[profile.mrc]\nactive = 3",
            &["profile.mrc.active = 3: is less than one for each of the 4 planes; write at least 4"],
        ),
        (
            "[fabric]\nkind = \"fat-tree\"\nk = 8\n[profile]\nname = \"mrc\"\n[profile.mrc]\nactive = 17",
            &[
                "16 paths between distant hosts (one plane of 4 x 4)",
                "raise fabric.aggs_per_pod or fabric.cores_per_agg",
            ],
        ),
        ("[fabric]\nqueue = \"100 B\"", &["does not hold one packet"]),
        ("[fabric]\necn_low = \"2 BDP\"", &["is above ecn_high"]),
        ("[fabric]\npfc = true\npfc_headroom = \"1 kB\"", &["fewer bytes than can still arrive after a pause"]),
        ("[fabric]\npfc = true\npfc_xon = \"1 MB\"", &["is above pfc_xoff"]),
        ("[fabric]\nkind = \"htsim\"", &["fabric.topo: is missing; name an htsim topology file"]),
        ("[fabric]\nkind = \"htsim\"\ntopo = \"none.topo\"", &["none.topo: cannot be read", "check the path"]),
        // Profiles.
        ("[profile]\nname = \"uex\"", &["`uex` is no profile; did you mean `uec`?"]),
        ("[profile]\npath = \"repz\"", &["did you mean \"reps\"?"]),
        ("[profile]\nname = \"rocev2\"\n[profile.nscc]\ngamma = 0.5", &["does not use `nscc`"]),
        // Workloads that do not fit the fabric.
        ("[workload]\nkind = \"incast\"\ndestination = 128", &["there are only 128 hosts, numbered from 0 to 127"]),
        (
            "[workload]\nkind = \"incast\"\nsenders = 128",
            &["workload.senders = 128: there are only 127 hosts to pick from"],
        ),
        ("[workload]\nkind = \"all-to-all\"\ngroup = 7", &["does not divide the 128 hosts"]),
        ("[workload]\nkind = \"flows\"", &["workload.flows: is missing"]),
        ("[workload]\nkind = \"flows\"\nflows = []", &["a list with at least one flow"]),
        ("[workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 0 }]", &["cannot send to itself"]),
        (
            "[workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 500 }]",
            &["workload.flows[0].to = 500: there are only 128 hosts"],
        ),
        ("[workload]\nkind = \"flows\"\nflows = [{ from = 0 }]", &["workload.flows[0].to: is missing"]),
        ("[workload]\nkind = \"matrix\"", &["workload.file: is missing"]),
        ("[workload]\nkind = \"matrix\"\nfile = \"none.cm\"", &["none.cm: cannot be read"]),
        ("[workload]\nkind = \"matrix\"\nfile = \"/dev/zero\"", &["/dev/zero: is neither a file nor a pipe"]),
        ("[workload]\nkind = \"poisson\"\nsizes = \"webserch\"", &["is no distribution of sizes"]),
        ("[workload]\nkind = \"poisson\"\nload = 0", &["workload.load = 0: is out of range"]),
        ("[workload]\nkind = \"poisson\"\nduration = \"1 ns\"", &["no flow arrives within 1 ns"]),
        ("[workload]\nkind = \"all-to-all\"\n[fabric]\nhosts = 65536", &["makes more than 4 billion messages"]),
        ("[workload]\nmessages = 1000000", &["makes more than 4194304 flows"]),
        // Collectives.
        (
            "[workload]\nkind = \"all-reduce\"\nalgorithm = \"bush\"",
            &[
                "workload.algorithm = \"bush\": is not known; known: ring, tree, halving-doubling, in-network, direct, auto, msccl",
            ],
        ),
        (
            "[workload]\nkind = \"all-gather\"\nalgorithm = \"halving-doubling\"",
            &["workload.algorithm = \"halving-doubling\": is not known; known: ring"],
        ),
        (
            "[workload]\nkind = \"all-reduce\"\nalgorithm = \"halving-doubling\"\nranks = 96",
            &[
                "workload.ranks = 96: recursive halving needs a power of two of ranks; write 64, or algorithm = \"ring\"",
            ],
        ),
        (
            "[fabric]\nhosts = 48\n[workload]\nkind = \"all-reduce\"\nalgorithm = \"halving-doubling\"",
            &["workload.ranks = 48: recursive halving needs a power of two of ranks; write 32"],
        ),
        (
            "[workload]\nkind = \"all-reduce\"\nalgorithm = \"halving-doubling\"\ngroup = 2\nranks = 127",
            &["workload.group = 2: does not divide the 127 hosts; choose a divisor, or set `ranks`"],
        ),
        (
            "[workload]\nkind = \"all-reduce\"\nranks = 129",
            &["workload.ranks = 129: there are only 128 hosts in the fabric; write fewer"],
        ),
        ("[workload]\nkind = \"all-reduce\"\nranks = 1", &["workload.ranks = 1: must be at least 2"]),
        ("[workload]\nkind = \"all-reduce\"\ngroup = 1", &["workload.group = 1: must be between 2 and the 128 hosts"]),
        (
            "[workload]\nkind = \"all-to-all\"\nhosts = 8\nranks = 8",
            &["workload.hosts = 8: is given together with `ranks`; write one of the two"],
        ),
        ("[workload]\nkind = \"all-to-all\"\npipeline = 2", &["workload.pipeline = 2: unknown key"]),
        ("[workload]\nkind = \"all-reduce\"\njitter = \"1 us\"", &["workload.jitter = \"1 us\": unknown key"]),
        ("[workload]\nkind = \"permutation\"\nranks = 8", &["workload.ranks = 8: unknown key"]),
        (
            "[workload]\nkind = \"all-reduce\"\nplacement = \"rndom\"",
            &["workload.placement = \"rndom\": is no placement; write \"contiguous\", \"random\" or a file"],
        ),
        ("[workload]\nkind = \"all-reduce\"\nplacement = 3", &["workload.placement = 3: must be text"]),
        ("[workload]\nkind = \"all-reduce\"\nplacement = \"none.txt\"", &["none.txt: cannot be read"]),
        (
            "[workload]\nkind = \"all-reduce\"\n[fabric]\nhosts = 65536",
            &["makes more than 4 billion messages; lower hosts, ranks"],
        ),
        (
            "[workload]\nkind = \"all-to-all\"\nsize = \"200 TB\"\n[fabric]\nhosts = 131072",
            &["workload.size", "takes longer than a run can last; write less"],
        ),
        (
            "[workload]\nkind = \"all-reduce\"\n[expect]\n\"collectives.all-reduce.busbw\" = \"> 5\"",
            &["did you mean `collectives.all-reduce.busbw_GBps`?"],
        ),
        (
            "[workload]\nsize = \"1 GB\"\n[fabric]\nrate = \"1 kbps\"",
            &["workload: keeps a NIC of 1 kbps busy for longer than a run can last; send less, or raise the rate"],
        ),
        // Mixed fabrics.
        ("[workload]\nordered = \"110 %\"", &["workload.ordered = \"110 %\": is out of range"]),
        ("[workload]\nordered = \"some\"", &["workload.ordered = \"some\""]),
        (
            "[workload]\nprofile = \"rocev3\"",
            &["workload.profile = \"rocev3\": `rocev3` is no profile; did you mean", "strandway explain"],
        ),
        ("[workload]\nprofile = \"uec/repps\"", &["`repps` is no path selector, congestion control or reliability"]),
        // Faults.
        ("[[faults]]\nkind = \"down\"", &["has no target; write exactly one of link, between"]),
        ("[[faults]]\nswitch = \"spine0\"\nplane = 0\nkind = \"down\"", &["has switch and plane"]),
        (
            "[[faults]]\nswitch = \"spine99\"\nkind = \"down\"",
            &[
                "x.toml: faults.switch = \"spine99\": there is no \"spine99\" in this fabric; did you mean \"spine9\"? It has 128 \
                 hosts (host0 to host127), 8 leaves (leaf0 to leaf7), 16 spines (spine0 to spine15)",
            ],
        ),
        ("[[faults]]\nlink = \"leaf0-spine0\"\nkind = \"down\"", &["is no link; write, say, \"leaf0->spine1\""]),
        (
            "[[faults]]\nbetween = [\"host0\", \"spine1\"]\nkind = \"down\"",
            &["no link joins host0 and spine1; neighbours of host0: leaf0"],
        ),
        ("[[faults]]\nlink = \"leaf0->spine0#3\"\nkind = \"down\"", &["there is only one such link, number 0"]),
        (
            "[fabric]\nbundle = 2\n[[faults]]\nlink = \"leaf0->spine0#2\"\nkind = \"down\"",
            &["there are 2 parallel links, numbered from 0; correct the number after #"],
        ),
        (
            "[[faults]]\nport = \"host0.p7\"\nkind = \"down\"",
            &[
                "faults.port = \"host0.p7\": \"host0.p7\" is no port of a NIC; write, say, \"host0.p0\"; there are 128 hosts with one \
                 port each",
            ],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nplanes = 8\n[[faults]]\nport = \"host0.p8\"\nkind = \"down\"",
            &["write, say, \"host0.p7\"; there are 128 hosts with 8 ports each, numbered from 0 to 7"],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nplanes = 8\n[[faults]]\nport = \"host200.p1\"\nkind = \"down\"",
            &["there is no \"host200\" in this fabric", "It has 128 hosts (host0 to host127)"],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nspines = 4\n[[faults]]\nswitch = \"spine4.p1\"\nkind = \"down\"",
            &["there is no \"spine4.p1\" in this fabric", "16 spines (spine0.p0 to spine3.p3)"],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nspines = 4\n[[faults]]\nlink = \"leaf0.p4->spine0.p4\"\nkind = \"down\"",
            &["there is no \"leaf0.p4\" in this fabric", "32 leaves (leaf0.p0 to leaf7.p3)"],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\nspines = 4\n[[faults]]\nlink = \"leaf*->spine0\"\nkind = \"down\"",
            &["no link matches \"leaf*->spine0\"; there are 1280 links, with names like \"leaf0.p0->spine0.p0\""],
        ),
        (
            "[fabric]\nkind = \"multi-plane\"\n[[faults]]\nplane = 4\nkind = \"down\"",
            &["x.toml: faults.plane = 4: there are only 4 planes, numbered from 0 to 3; write one of them"],
        ),
        ("[[faults]]\nplane = 1\nkind = \"down\"", &["faults.plane = 1: there is only one plane; write 0"]),
        (
            "[fabric]\nspines = 4\n[[faults]]\ntier = \"leaf->spine\"\ncount = 33\nkind = \"down\"",
            &["faults.count = 33: must be at most 32; write a whole number from 1 to 32"],
        ),
        ("[[faults]]\ntier = \"leaf->spines\"\ncount = 1\nkind = \"down\"", &["did you mean \"leaf->spine\"?"]),
        ("[[faults]]\nswitch = \"spine0\"", &["faults.kind: is missing; write down, flap, degrade, loss or deny"]),
        ("[[faults]]\nswitch = \"spine0\"\nkind = \"degrade\"", &["faults.fraction: is missing"]),
        ("[[faults]]\nswitch = \"spine0\"\nkind = \"degrade\"\nfraction = 1.5", &["is out of range"]),
        ("[[faults]]\nswitch = \"spine0\"\nkind = \"loss\"", &["faults.probability: is missing"]),
        (
            "[[faults]]\nswitch = \"spine0\"\nkind = \"down\"\nat = \"5 us\"\nuntil = \"4 us\"",
            &["is not after the start, 5 us"],
        ),
        ("[[faults]]\nswitch = \"spine0\"\nkind = \"flap\"\nperiod = \"1 ps\"", &["more than 100000 times"]),
        (
            "[[faults]]\nswitch = \"spine0\"\nkind = \"down\"\nsilent = true\nreconverge = \"1 ms\"",
            &["never learns of a silent fault"],
        ),
        // Run, sweep and bounds.
        ("[run]\nthreads = 0", &["run.threads = 0: must be at least 1"]),
        ("[run]\ntime_limit = \"0 us\"", &["must be above zero"]),
        ("[workload]\nstart = \"2 ms\"\n[run]\ntime_limit = \"1 ms\"", &["ends before the last flow starts, at 2 ms"]),
        (
            "[workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 5, size = \"1 MB\" }]\n[run]\nwatch = \"5->0\"",
            &[
                "x.toml: run.watch = \"5->0\": there is no flow \"5->0\"; write a flow's name, or its id in a matrix; there are 1: \
                 host0->host5",
            ],
        ),
        ("[run]\nwatch = 3", &["run.watch = 3: must be text; put it between quotes"]),
        ("[run]\ncapture = \"host999\"", &["run.capture = \"host999\": there is no \"host999\""]),
        ("[sweep]\n\"profile.path\" = \"reps\"", &["must be a list that is not empty"]),
        ("[sweep]\n\"speed\" = [1]", &["is no key of a scenario"]),
        ("[expect]\n\"fct_us.max\" = \"fast\"", &["is no bound; write \"<= 210\""]),
        ("[expect]\n\"fct_us.max\" = \"<= nan\"", &["must be finite"]),
    ];
    let mut failures = Vec::new();
    for (text, fragments) in cases {
        let said = problems(text);
        for fragment in *fragments {
            if !said.contains(fragment) {
                failures.push(format!("{text:?}\n  said: {said}\n  want: {fragment}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn all_problems_are_said_at_once() {
    let said = problems("[fabric]\nhots = 4\nrate = \"400\"\n[run]\nseed = -1\n[workload]\nsize = \"x\"\n");
    assert_eq!(said.lines().count(), 4, "{said}");
    let said =
        problems("[expect]\n\"fct_us.max\" = \"fast\"\n\"fct.max\" = \"<= 3\"\n\"flow.9->8.fct_us\" = \"<= 3\"\n");
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn a_mistake_makes_no_other_key_unknown() {
    for (text, lines) in [
        ("[fabric]\nhosts = -4\nrate = \"-400 Gbps\"\necn = true\nspines = 4\n", 1),
        ("[fabric]\nkind = \"fat-tree\"\nk = 3\noversubscription = 2.0\nlatency = \"1 us\"\n", 1),
        ("[[faults]]\ntier = \"leaf->spien\"\ncount = 3\nkind = \"degrade\"\nfraction = 0.5\n", 1),
        ("[[faults]]\nplane = 0\nkind = \"degrade\"\nat = \"5 us\"\nuntil = \"4 us\"\nfraction = 0.5\n", 1),
        ("[workload]\nkind = \"all-reduce\"\nplacement = 3\ngroup = 4\n", 1),
        ("[workload]\nkind = \"poisson\"\nload = \"x\"\nduration = \"1 us\"\nsizes = \"websearch\"\n", 1),
    ] {
        let said = problems(text);
        assert!(!said.contains("unknown key"), "{text}: {said}");
        assert_eq!(said.lines().count(), lines, "{text}: {said}");
    }
    // A key that no kind has is unknown in any case.
    let said = problems("[fabric]\nhosts = -4\nhots = 3\n");
    assert!(said.contains("fabric.hots = 3: unknown key; did you mean `hosts`?"), "{said}");
}

#[test]
fn settings_without_effect_are_named() {
    for (text, note) in [
        ("[fabric]\npfc = true\ntrimming = true\n", "fabric.trimming = true has no effect here"),
        ("[fabric]\nqueue = \"100 kB\"\necn_high = \"200 kB\"\n", "fabric.ecn_high = 200 kB is never reached here"),
        (
            "[workload]\nkind = \"poisson\"\nload = 5\nflows = 10\n",
            "workload.load = 5 offers 5 times what the NICs carry",
        ),
    ] {
        let experiment =
            strandway_scenario::parse(text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
        assert!(experiment.notes.iter().any(|n| n.contains(note)), "{text}: {:?}", experiment.notes);
    }
}

#[test]
fn a_flow_that_waits_in_a_circle_tells_for_what() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("circle.cm");
    let text = "Nodes 16\nConnections 2\nTriggers 2\n0->1 id 1 trigger 5 size 1000 send_done_trigger 6\n\
                1->2 id 2 trigger 6 size 1000 send_done_trigger 5\ntrigger id 5 oneshot\ntrigger id 6 oneshot\n";
    std::fs::write(&file, text).expect("written");
    let experiment =
        strandway_lab::Scenario::load(&file).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
    let report = strandway_lab::run(&experiment, &strandway_sim::Control::new()).report;
    assert_eq!(report.head.end, "stalled");
    assert_eq!(report.flows.waiting, ["1: host0->host1 waits for trigger 5", "2: host1->host2 waits for trigger 6"]);
    assert!(strandway_report::text::report(&report).contains("waits for trigger 6"));
}

#[test]
fn six_lines_are_a_scenario_and_so_are_none() {
    let experiment = strandway_scenario::parse("").and_then(|s| strandway_lab::check(&s)).expect("all defaults");
    assert_eq!(experiment.plan.topology.hosts(), 128);
    assert_eq!(experiment.messages.len(), 128);
    let text = "[fabric]\nhosts = 16\n[profile]\nname = \"uec\"\n[workload]\nkind = \"incast\"\n";
    let experiment = strandway_scenario::parse(text).and_then(|s| strandway_lab::check(&s)).expect("six lines");
    assert_eq!(experiment.messages.len(), 8);
}

#[test]
fn a_matrix_larger_than_the_fabric_is_refused_and_without_a_fabric_gets_one() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let matrix = folder.join("chain.cm");
    let experiment = Scenario::load(&matrix).and_then(|s| strandway_lab::check(&s)).expect("the smallest fat tree");
    assert_eq!((experiment.plan.topology.hosts(), experiment.plan.topology.tiers()), (16, 3));
    assert_eq!(experiment.derived.rate.as_gbps(), 100.0);
    let mut scenario = Scenario::load(&matrix).expect("readable");
    scenario.set("fabric.kind=leaf-spine").expect("set");
    scenario.set("fabric.hosts=8").expect("set");
    let said = strandway_lab::check(&scenario).expect_err("too small").to_string();
    assert!(said.contains("is for 16 hosts, the fabric has 8; enlarge the fabric"), "{said}");
}

#[test]
fn files_are_checked_with_their_lines() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (file, fragment) in [
        ("truncated.cm", "truncated.cm:4: `the size`: has no number after it; the line is incomplete"),
        ("out_of_range.cm", "out_of_range.cm:3: `9`: there are only 4 hosts, numbered from 0 to 3"),
        ("empty.cm", "empty.cm: the matrix is empty"),
        ("duplicate.cm", "duplicate.cm:4: `1`: this flow id is on line 3 already"),
    ] {
        let said =
            Scenario::load(&folder.join(file)).and_then(|s| strandway_lab::check(&s)).expect_err(file).to_string();
        assert!(said.contains(fragment), "{file}: {said}");
    }
}

#[test]
fn no_rate_and_size_is_so_extreme_that_arithmetic_overflows() {
    let kinds = [
        "kind = \"permutation\"\nconnections = 3",
        "kind = \"incast\"\nsenders = 3",
        "kind = \"all-to-all\"",
        "kind = \"all-reduce\"\npipeline = 3",
        "kind = \"all-reduce\"\nalgorithm = \"halving-doubling\"",
        "kind = \"all-gather\"\nconnections = 3",
    ];
    let mut refused = 0;
    for rate in ["1 bps", "1 kbps", "1 Mbps", "400 Gbps"] {
        for size in ["1 B", "1 GB", "256 TiB"] {
            for kind in kinds {
                let text = format!("[fabric]\nhosts = 16\nrate = \"{rate}\"\n[workload]\nsize = \"{size}\"\n{kind}\n");
                let said = problems(&text);
                refused += usize::from(said.contains("longer than a run can last"));
            }
        }
    }
    assert!(refused > 6, "{refused}");
}

#[test]
fn placements_are_checked_with_their_lines() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (file, fragment) in [
        ("placement_twice.txt", "placement_twice.txt:4: `1`: this host has a rank already; name every host once"),
        ("placement_outside.txt", "placement_outside.txt:2: `500`: there are only 128 hosts, numbered from 0 to 127"),
        ("placement_garbage.txt", "placement_garbage.txt:2: `host1`: is not the number of a host; write one number"),
        ("placement_empty.txt", "placement_empty.txt: names no host; write the number of a host per line"),
        ("placement.txt", "x.toml: workload.ranks = 9: there are only 8 hosts in the placement; write fewer"),
    ] {
        let path = folder.join(file);
        let ranks = if file == "placement.txt" { "ranks = 9\n" } else { "" };
        let text = format!("[workload]\nkind = \"all-reduce\"\nplacement = \"{}\"\n{ranks}", path.display());
        let said = problems(&text);
        assert!(said.contains(fragment), "{file}: {said}");
    }
}

#[test]
fn a_seed_changes_the_permutation_and_nothing_else_does() {
    let check = |set: &str| {
        let mut scenario = strandway_scenario::parse("").expect("empty");
        scenario.set(set).expect("set");
        let plan = strandway_lab::check(&scenario).expect("sound").plan;
        plan.connections.iter().map(|c| c.destination.0).collect::<Vec<_>>()
    };
    assert_eq!(check("run.seed=1"), check("run.threads=7"));
    assert_ne!(check("run.seed=1"), check("run.seed=2"));
}

#[test]
fn more_paths_than_a_small_fabric_has_are_an_error_only_if_asked_for() {
    let small = "[fabric]\nkind = \"multi-plane\"\nspines = 8\n[profile]\nname = \"mrc\"\n";
    for set in
        ["", "[profile.mrc]\nbackup = 0\n", "[profile.mrc]\nactive = 32\n", "[profile.mrc]\nactive = 20\nbackup = 12\n"]
    {
        assert_eq!(problems(&format!("{small}{set}")), "nothing is wrong", "{set}");
    }
}

/// Packets inside a switch when it sends the pause still join its ports. With a long latency inside the switch, they
/// are most of the headroom.
#[test]
fn a_fabric_that_pauses_drops_nothing_however_slow_its_switches_are() {
    for (latency, inside) in [("100 ns", "0 ns"), ("100 ns", "2 us"), ("1 us", "250 ns")] {
        let text = format!(
            "[fabric]\nkind = \"leaf-spine\"\nhosts = 32\nhosts_per_leaf = 8\nspines = 2\npfc = true\nlatency = \"{latency}\"\n\
             switch_latency = \"{inside}\"\n[profile]\nname = \"rocev2\"\ncongestion = \"fixed\"\n\
             [workload]\nkind = \"incast\"\nsenders = 31\nsize = \"400 kB\""
        );
        let experiment = Scenario::from_text("x.toml", &text)
            .and_then(|s| strandway_lab::check(&s))
            .unwrap_or_else(|e| panic!("{e}"));
        let packets = run(&experiment, &Control::new()).report.packets;
        assert!(packets.pauses > 0, "{inside}: nothing was paused");
        assert_eq!(packets.dropped, 0, "latency {latency}, inside {inside}");
    }
}
