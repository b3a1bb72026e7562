//! Graphs of switches: each kind runs alike on any number of threads, arithmetic holds, and paths are those of the
//! policy.

use strandway_fabric::topology::{LinkId, NodeKind};
use strandway_import::Problems;
use strandway_lab::{Experiment, check, run};
use strandway_proto::HostId;
use strandway_proto::units::Bytes;
use strandway_scenario::parse;
use strandway_sim::Control;

fn read(fabric: &str, rest: &str) -> Result<Experiment, Problems> {
    check(&parse(&format!("[fabric]\n{fabric}\n[profile]\nname = \"uec\"\n{rest}"))?)
}

fn sound(fabric: &str, rest: &str) -> Experiment {
    read(fabric, rest).unwrap_or_else(|problems| panic!("{fabric}\n{problems}"))
}

fn one_packet(from: u32, to: u32) -> String {
    format!("[workload]\nkind = \"flows\"\nflows = [{{ from = {from}, to = {to}, size = \"4096 B\" }}]\n")
}

const KINDS: [&str; 7] = [
    "kind = \"dragonfly\"\nhosts = 72\nplanes = 2",
    "kind = \"dragonfly\"\nhosts = 72\npaths = \"valiant\"",
    "kind = \"dragonfly\"\nhosts = 70\npaths = \"ugal\"",
    "kind = \"torus\"\ndims = [4, 4, 2]\nrouting = \"adaptive\"",
    "kind = \"hyperx\"\ndims = [3, 4]\nbundle = 2\npfc = true",
    "kind = \"torus\"\ndims = [5]\nhosts_per_leaf = 2",
    // Most switches have no hosts.
    "kind = \"torus\"\ndims = [4, 4]\nhosts_per_leaf = 5\nhosts = 10",
];

#[test]
fn each_kind_gives_one_digest_on_any_number_of_threads() {
    for fabric in KINDS {
        let whole = sound(fabric, "");
        let topology = &whole.plan.topology;
        let is_switch = |node| topology.describe(node).0 != NodeKind::Host;
        let between =
            |link: &LinkId| topology.ends(*link).is_some_and(|ends| is_switch(ends.from) && is_switch(ends.to));
        let link = topology.link_name((0..topology.links()).map(LinkId).find(between).expect("switches with links"));
        let flap =
            format!("[[faults]]\nlink = \"{link}\"\nkind = \"flap\"\nperiod = \"20 us\"\nreconverge = \"2 us\"\n");
        let mut experiment = sound(fabric, &format!("[workload]\nkind = \"permutation\"\nsize = \"200 kB\"\n{flap}"));
        let digests: Vec<String> = [1, 2, 7]
            .into_iter()
            .map(|threads| {
                experiment.plan.threads = threads;
                let report = run(&experiment, &Control::new()).report;
                assert_eq!(report.head.end, "finished", "{fabric}");
                assert!(report.fabric.is_graph(), "{fabric}");
                report.head.digest
            })
            .collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{fabric}: {digests:?}");
    }
}

#[test]
fn a_lone_packet_takes_the_time_of_its_links_and_switches() {
    for fabric in KINDS.map(|kind| kind.replace("valiant", "minimal")) {
        for to in [1, 3, 9] {
            let experiment = sound(&fabric, &one_packet(0, to));
            let topology = &experiment.plan.topology;
            let measured = run(&experiment, &Control::new()).measurements;
            let expected = topology.one_way_between(Bytes(4160), HostId(0), HostId(to));
            assert_eq!(measured.flows[0].received.map(|at| at.0), Some(expected.0), "{fabric}: host 0 to {to}");
        }
    }
}

#[test]
fn packets_go_around_a_link_that_routing_knows_to_be_dead() {
    // In a ring of five switches the other way from the first to the second one has four links instead of one.
    let fault = "[[faults]]\nlink = \"switch0->switch1\"\nkind = \"down\"\nreconverge = \"0 us\"\n";
    for routing in ["hashed", "adaptive"] {
        let fabric = format!("kind = \"torus\"\ndims = [5]\nrouting = \"{routing}\"");
        let experiment = sound(&fabric, &format!("{}{fault}", one_packet(0, 1)));
        let measured = run(&experiment, &Control::new()).measurements;
        let each = 83_200 + 1_000_000;
        assert_eq!(measured.flows[0].received.map(|at| at.0), Some(6 * each), "{routing}");
    }
}

#[test]
fn a_group_that_sends_to_the_next_shares_one_link_and_valiant_gives_it_more() {
    let flows: Vec<String> =
        (0..72).map(|from| format!("{{ from = {from}, to = {}, size = \"1 MB\" }}", (from + 8) % 72)).collect();
    let rest = format!("[workload]\nkind = \"flows\"\nflows = [{}]\n", flows.join(", "));
    let rate = |paths: &str| {
        let fabric = format!("kind = \"dragonfly\"\nhosts = 72\npaths = \"{paths}\"");
        let report = run(&sound(&fabric, &rest), &Control::new()).report;
        report.times.goodput_gbps.mean_per_host
    };
    let (minimal, valiant, ugal) = (rate("minimal"), rate("valiant"), rate("ugal"));
    // Eight hosts share a link of 400 Gb/s (Kim et al., ISCA 2008, section 4): 50 Gb/s with headers, minus the first
    // round trip.
    assert!((40.0..50.0).contains(&minimal), "{minimal} Gb/s");
    assert!(valiant > 2.0 * minimal && ugal > 1.3 * minimal, "{minimal}, {valiant}, {ugal} Gb/s");
}

#[test]
fn a_torus_carries_its_bisection_and_no_more() {
    // A ring of eight switches: each host sends to the opposite one, half of the packets either way. Each of the 16
    // directed links carries 8 x 4 / 16 = 2 flows' worth, so each host has half of the line rate.
    let flows: Vec<String> =
        (0..8).map(|from| format!("{{ from = {from}, to = {}, size = \"4 MB\" }}", (from + 4) % 8)).collect();
    let rest = format!("[workload]\nkind = \"flows\"\nflows = [{}]\n", flows.join(", "));
    let report = run(&sound("kind = \"torus\"\ndims = [8]", &rest), &Control::new()).report;
    let rate = report.times.goodput_gbps.mean_per_host;
    let bound = 200.0 * 4096.0 / 4160.0;
    assert!(rate <= bound && rate > 0.8 * bound, "{rate} of {bound} Gb/s");
}

#[test]
fn mistakes_are_named_with_a_remedy() {
    for (fabric, rest, said) in [
        ("kind = \"torus\"", "", "fabric.dims"),
        ("kind = \"torus\"\ndims = [1, 4]", "", "one to eight whole numbers"),
        ("kind = \"torus\"\ndims = [64, 65]", "", "more than 4096 switches"),
        ("kind = \"dragonfly\"\nhosts_per_leaf = 2\ngroups = 10", "", "at most 9 groups"),
        ("kind = \"dragonfly\"\nrouting = \"direct\"", "", "choose \"hashed\""),
        ("kind = \"torus\"\ndims = [4]\nhosts = 9", "", "hold 4"),
        ("kind = \"graph\"", "", "fabric.edges"),
        ("kind = \"torus\"\ndims = [4]\nspines = 3", "", "fabric.spines"),
        (
            "kind = \"torus\"\ndims = [4]",
            "[workload]\nkind = \"all-gather\"\nalgorithm = \"multicast\"\nsize = \"1 MB\"",
            "this fabric is a graph",
        ),
        (
            "kind = \"torus\"\ndims = [4]",
            "[workload]\nkind = \"fsdp\"\nlayers = 2\nsize = \"1 MB\"\ngather = \"multicast\"",
            "this fabric is a graph",
        ),
    ] {
        let problems = read(fabric, rest).map(|_| ()).expect_err(fabric).to_string();
        assert!(problems.contains(said), "{fabric}: {problems}");
    }
}

#[test]
fn a_list_of_links_is_read_and_its_mistakes_have_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = |edges: &str, more: &str| {
        std::fs::write(folder.path().join("e.csv"), edges).expect("a file");
        let file = folder.path().join("s.toml");
        std::fs::write(&file, format!("[fabric]\nkind = \"graph\"\nedges = \"e.csv\"\n{more}\n{}", one_packet(0, 1)))
            .expect("a file");
        strandway_lab::Scenario::load(&file).and_then(|scenario| check(&scenario))
    };
    let leaf_spine =
        "from,to,rate,latency,count,cost\n# two leaves\nleaf0,spine0,,2 us,2,\nleaf1,spine0,200 Gbps,,,2\n";
    let experiment =
        load(leaf_spine, "hosts_at = [\"leaf0\", \"leaf1\"]").unwrap_or_else(|problems| panic!("{problems}"));
    let topology = &experiment.plan.topology;
    let links = topology.links_of_path(HostId(0), HostId(1));
    let shown: Vec<String> = links.iter().map(|link| format!("{} {}", link.rate, link.latency)).collect();
    assert_eq!(shown, ["400 Gbps 1 us", "400 Gbps 2 us", "200 Gbps 1 us", "400 Gbps 1 us"]);
    assert_eq!(topology.node_name(strandway_fabric::NodeId(4)), "spine0");
    for (edges, more, said) in [
        ("", "", "has no columns `from` and `to`"),
        ("from,to,speed\n", "", "is no column"),
        ("from,to\na\n", "", "e.csv:2"),
        ("from,to,rate\na,b,fast\n", "", "e.csv:2"),
        ("from,to,count\na,b,0\n", "", "from 1 to 1024"),
        ("from,to\na,host3\n", "", "cannot be the name of a switch"),
        ("from,to\na,b\nc,d\n", "", "links must join all switches"),
        ("from,to\na,a\n", "", "to itself"),
        ("from,to\na,b\n", "hosts_at = [\"z\"]", "no link has a switch \"z\""),
    ] {
        let problems = load(edges, more).map(|_| ()).expect_err(edges).to_string();
        assert!(problems.contains(said), "{edges}{more}: {problems}");
    }
}

#[test]
fn a_document_of_infragraph_is_a_clos_or_a_graph() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = |document: &str, more: &str| {
        std::fs::write(folder.path().join("d.yaml"), document).expect("a file");
        let file = folder.path().join("s.toml");
        let text = format!("[fabric]\nkind = \"infragraph\"\ntopo = \"d.yaml\"\n{more}\n{}", one_packet(0, 3));
        std::fs::write(&file, text).expect("a file");
        strandway_lab::Scenario::load(&file).and_then(|scenario| check(&scenario))
    };
    let parts = "devices:\n- name: h\n  components:\n  - {name: gpu, count: 2, choice: xpu}\n  - {name: nic, count: 1, choice: nic}\n\
        - name: s\n  components:\n  - {name: port, count: 8, choice: port}\n\
        links:\n- {name: low, physical: {bandwidth: {gigabits_per_second: 100}, latency: {us: 2}}}\n- name: high\n\
        instances:\n- {name: host, device: h, count: 4}\n- {name: leaf, device: s, count: 2}\n- {name: top, device: s, count: 2}\n\
        edges:\n\
        - {ep1: {instance: 'host[0:2]', component: nic}, ep2: {instance: 'leaf[0]', component: 'port[0:2]'}, link: low, scheme: one2one}\n\
        - {ep1: {instance: 'host[2:4]', component: nic}, ep2: {instance: 'leaf[1]', component: 'port[0:2]'}, link: low, scheme: one2one}\n";
    let edge = |leaf: u32, top: u32| {
        format!(
            "- {{ep1: {{instance: 'leaf[{leaf}]', component: 'port[{}]'}}, ep2: {{instance: 'top[{top}]', component: 'port[{leaf}]'}}, link: high, scheme: one2one}}\n",
            2 + top
        )
    };
    // Two spines: the same fabric as the one written by hand.
    let clos = [edge(0, 0), edge(0, 1), edge(1, 0), edge(1, 1)].concat();
    let made = load(&format!("{parts}{clos}"), "latency = \"2 us\"").unwrap_or_else(|problems| panic!("{problems}"));
    let by_hand = "[fabric]\nhosts = 4\nhosts_per_leaf = 2\nspines = 2\nrate = \"100 Gbps\"\nuplink_rate = \"400 Gbps\"\nlatency = \"2 us\"\n";
    let wanted = parse(&format!("{by_hand}{}", one_packet(0, 3))).and_then(|scenario| check(&scenario)).expect("sound");
    assert_eq!(made.plan.topology, wanted.plan.topology);
    // One spine above the other: a graph.
    let chain = [edge(0, 0), edge(1, 1)].concat()
        + "- {ep1: {instance: 'top[0]', component: 'port[7]'}, ep2: {instance: 'top[1]', component: 'port[7]'}, link: high, scheme: one2one}\n";
    let made = load(&format!("{parts}{chain}"), "").unwrap_or_else(|problems| panic!("{problems}"));
    let links = made.plan.topology.links_of_path(HostId(0), HostId(3));
    let shown: Vec<String> = links.iter().map(|link| format!("{} {}", link.rate, link.latency)).collect();
    assert_eq!(shown, ["100 Gbps 2 us", "400 Gbps 1 us", "400 Gbps 1 us", "400 Gbps 1 us", "100 Gbps 2 us"]);
    for (document, more, said) in [
        ("devices: []\ninstances: []\n", "", "has no link of a host"),
        (parts, "", "links must join all switches"),
        (&format!("{parts}{clos}"), "spines = 3", "fabric.spines"),
        (&format!("{parts}{chain}"), "routing = \"direct\"", "fabric.routing"),
    ] {
        let problems = load(document, more).map(|_| ()).expect_err(said).to_string();
        assert!(problems.contains(said), "{more}: {problems}");
    }
}

#[test]
fn a_fabric_that_is_written_as_infragraph_is_read_as_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    for (fabric, servers, is_clos) in [
        ("hosts = 32\nhosts_per_leaf = 8\nspines = 4\nuplink_rate = \"800 Gbps\"", "gpus = 4", true),
        (
            "hosts = 32\nhosts_per_leaf = 8\nbundle = 2\nspines = 2",
            "gpus = 8\nnics = 4\nwiring = \"rail-optimised\"",
            true,
        ),
        ("kind = \"multi-plane\"\nhosts = 16\nplanes = 4\nhosts_per_leaf = 4", "gpus = 4\nrate = \"900 Gbps\"", true),
        ("hosts = 8\nhosts_per_leaf = 8\nspines = 1\nlatency = \"700 ns\"", "", true),
        ("kind = \"fat-tree\"\nk = 4", "gpus = 2", false),
        ("kind = \"torus\"\ndims = [3, 3]\nhosts_per_leaf = 2", "gpus = 2", false),
        ("kind = \"dragonfly\"", "", false),
    ] {
        let rest =
            format!("[servers]\n{servers}\n[[workload]]\nname = \"f\"\nkind = \"permutation\"\nsize = \"64 KiB\"\n");
        let written = parse(&format!("[fabric]\n{fabric}\n{rest}")).expect("sound");
        let exported = written.to_infragraph().unwrap_or_else(|problems| panic!("{fabric}: {problems}"));
        std::fs::write(folder.path().join("d.yaml"), exported.document.to_yaml()).expect("a file");
        let file = folder.path().join("s.toml");
        let workload = rest.split_once("[[").map_or("", |(_, workload)| workload);
        // The servers come from the document, and so does all of the fabric.
        let text = format!("[fabric]\nkind = \"infragraph\"\ntopo = \"d.yaml\"\n[[{workload}");
        std::fs::write(&file, text).expect("a file");
        let read = strandway_lab::Scenario::load(&file).and_then(|scenario| Ok((scenario.clone(), check(&scenario)?)));
        let (scenario, read) = read.unwrap_or_else(|problems| panic!("{fabric}: {problems}"));
        let written = check(&written).expect("sound");
        let (one, other) = (&written.plan.topology, &read.plan.topology);
        if is_clos {
            // Where there is one leaf, nothing goes up: the rate of uplinks is free.
            assert_eq!(one.shape().hosts_per_leaf, other.shape().hosts_per_leaf, "{fabric}");
            assert!(one == other || one.leaves() == 1, "{fabric}: {one:?} {other:?}");
        }
        for (a, b) in [(0, 1), (0, one.hosts() - 1), (one.hosts() / 2, 0)] {
            let path = |topology: &strandway_fabric::Topology| topology.links_of_path(HostId(a), HostId(b));
            assert_eq!(path(one), path(other), "{fabric}: {a} to {b}");
        }
        // A second document says the same.
        let again = scenario.to_infragraph().expect("sound").document;
        assert_eq!(again.instances[0], exported.document.instances[0], "{fabric}");
        assert_eq!(again.devices[0], exported.document.devices[0], "{fabric}");
        assert_eq!(again.edges.len(), exported.document.edges.len(), "{fabric}");
    }
}

/// Four switches in a ring, a server of two GPUs with NVSwitch on each: no leaf-spine fabric.
#[test]
fn a_topology_of_simai_that_is_no_leaf_spine_fabric_is_a_graph() {
    let mut links = Vec::new();
    for gpu in 0..8 {
        links.push(format!("{gpu} {} 2880Gbps 0.000025ms 0", 8 + gpu / 2));
        links.push(format!("{gpu} {} 400Gbps 0.0005ms 0", 12 + gpu / 2));
    }
    links.extend((0..4).map(|switch| format!("{} {} 800Gbps 0.001ms 0", 12 + switch, 12 + (switch + 1) % 4)));
    let text = format!("16 2 4 4 {} H100\n8 9 10 11 12 13 14 15\n{}\n", links.len(), links.join("\n"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("topo"), text).expect("a file");
    let file = folder.path().join("s.toml");
    let job = "[job]\nlayers = 2\nhidden = 64\nheads = 2\nsequence = 64\ntp = 2\ngpus = 8\n";
    std::fs::write(&file, format!("[fabric]\nkind = \"simai\"\ntopo = \"topo\"\n{job}")).expect("a file");
    let made = strandway_lab::Scenario::load(&file).and_then(|scenario| check(&scenario));
    let made = made.unwrap_or_else(|problems| panic!("{problems}"));
    let links = made.plan.topology.links_of_path(HostId(0), HostId(4));
    let shown: Vec<String> = links.iter().map(|link| format!("{} {}", link.rate, link.latency)).collect();
    assert_eq!(shown, ["400 Gbps 500 ns", "800 Gbps 1 us", "800 Gbps 1 us", "400 Gbps 500 ns"]);
    // GPUs 0 and 1 share a server, so they send nothing over the fabric.
    assert!(
        made.plan.connections.iter().all(|one| one.source.0 / 2 != one.destination.0 / 2),
        "tensor parallelism stays inside"
    );
    assert!(run(&made, &Control::new()).report.flows.finished > 0);
}
