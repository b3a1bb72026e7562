//! The namespaces and steps for scenarios, without building them.

use super::*;
use crate::NodeFile;
use std::collections::BTreeSet;

const TWO_PLANES: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 4\nplanes = 2\nhosts_per_leaf = 2\nspines = 2\n\
    rate = \"1 Gbps\"\nqueue = \"64 KiB\"\n[profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";
/// Ports that neither mark nor trim.
const PLAIN: [&str; 2] = ["fabric.trimming=false", "fabric.ecn=false"];

fn fabric() -> LinuxFabric {
    of(TWO_PLANES, &PLAIN, &Options::default()).expect("a fabric")
}

fn of(text: &str, sets: &[&str], options: &Options) -> Result<LinuxFabric, Problems> {
    let mut scenario = strandway_scenario::parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).expect("a key");
    }
    fabric_of(&scenario, "sw", options)
}

/// The lines for a namespace and a tool.
fn lines(steps: &[Step], namespace: &str, tool: Tool) -> Vec<String> {
    let space = Some(namespace.to_string());
    steps.iter().filter(|s| s.namespace == space && s.tool == tool).flat_map(|s| s.lines.clone()).collect()
}

#[test]
fn a_scenario_becomes_hosts_switches_and_rates() {
    let fabric = fabric();
    assert_eq!((fabric.planes, fabric.hosts, fabric.t0s(), fabric.t1s, fabric.hosts_per_t0), (2, 4, 2, 2, 2));
    assert_eq!(
        (fabric.host_rate, fabric.uplink_rate, fabric.node_rate),
        (Some(500_000_000), Some(500_000_000), 1_000_000_000)
    );
    assert_eq!((fabric.queue, fabric.mtu, fabric.payload), (65_536, 9000, 4096));
    // Four times the serialisation of a packet of 4,096 B with headers at 500 Mb/s takes 270 us, the acknowledgement
    // takes little, and software takes 100 us.
    assert!((350_000..400_000).contains(&fabric.base_rtt_ns), "{}", fabric.base_rtt_ns);
    assert_eq!(fabric.nodes().len(), 12);
    let names: Vec<String> = fabric.nodes().iter().map(|n| fabric.namespace(*n)).collect();
    assert_eq!(names[3..8], ["sw-h3", "sw-t0-p0-0", "sw-t0-p0-1", "sw-t1-p0-0", "sw-t1-p0-1"]);
}

#[test]
fn a_rate_on_the_command_line_replaces_all_rates_and_what_follows_from_them() {
    let options = Options { rate: Some("100Mbps".into()), ..Options::default() };
    let slow = of(TWO_PLANES, &["fabric.queue=1 BDP", "fabric.uplink_rate=400 Mbps"], &options).expect("a fabric");
    assert_eq!((slow.host_rate, slow.uplink_rate, slow.node_rate), (Some(100_000_000), Some(100_000_000), 200_000_000));
    let fast = of(TWO_PLANES, &["fabric.queue=1 BDP"], &Options::default()).expect("a fabric");
    assert!(slow.base_rtt_ns > fast.base_rtt_ns * 3);
    let free =
        of(TWO_PLANES, &["fabric.rate=800 Gbps"], &Options { unshaped: true, ..Options::default() }).expect("a fabric");
    assert_eq!((free.host_rate, free.uplink_rate, free.node_rate), (None, None, 10_000_000_000));
    assert!(build(&free).iter().flat_map(|step| &step.lines).all(|line| !shapes(line)));
}

/// True if a line for `tc` shapes a port.
fn shapes(line: &str) -> bool {
    line.starts_with("qdisc") && line.contains(" root ")
}

#[test]
fn multicasts_of_a_scenario_are_teams_that_switches_copy_for() {
    let numbers = |sets: &[&str]| {
        let all = ["workload.kind=broadcast", "fabric.hosts=8", "fabric.hosts_per_leaf=4"];
        let fabric = of(TWO_PLANES, &[&PLAIN[..], &all, sets].concat(), &Options::default()).expect("a fabric");
        fabric.teams.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    let everyone = "0 (h0 h1 h2 h3 h4 h5 h6 h7)";
    assert_eq!(fabric().teams.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0 (h0 h1 h2 h3)"]);
    assert_eq!(numbers(&[]), [everyone]);
    assert_eq!(numbers(&["workload.ranks=4"]), [everyone, "1 (h0 h1 h2 h3)"]);
    assert_eq!(numbers(&["workload.algorithm=binomial"]), [everyone]);
}

#[test]
fn fabrics_beyond_namespaces_are_refused_with_a_remedy() {
    let no = Options::default;
    for (sets, options, said) in [
        (vec!["fabric.rate=800 Gbps"], no(), "faster than software carries; 1 Gbps is the most; pass --rate 500Mbps"),
        (vec!["fabric.hosts=65", "fabric.spines=1"], no(), "at most 64 hosts as namespaces; add --set fabric.hosts=8"),
        (vec!["fabric.hosts=64", "fabric.spines=80"], no(), "would be 288 namespaces; 200 is the most"),
        (vec!["fabric.planes=10", "fabric.routing=hashed"], no(), "a node has at most 8 planes"),
        (vec!["fabric.bundle=2"], no(), "parallel links cannot be told apart"),
        (vec!["fabric.hots=3"], no(), "did you mean `hosts`?"),
        (vec![], Options { rate: Some("500".into()), ..Options::default() }, "--rate = 500: a rate needs a unit"),
        (vec![], Options { rate: Some("2 Gbps".into()), ..Options::default() }, "faster than software carries"),
    ] {
        let problems = of(TWO_PLANES, &sets, &options).expect_err(said);
        assert!(problems.to_string().contains(said), "{sets:?}: {problems}");
    }
    const TREE: &str = "[fabric]\nkind = \"fat-tree\"\nk = 4\nrate = \"1 Gbps\"\n";
    for (set, said) in [
        ("fabric.core_bundle=2", "parallel links cannot be told apart"),
        ("fabric.core_rate=2 Gbps", "faster than software carries"),
        ("fabric.k=8", "at most 64 hosts as namespaces"),
        ("fabric.cores_per_agg=90", "would be 212 namespaces; 200 is the most"),
    ] {
        let problems = of(TREE, &[set], &no()).expect_err(said);
        assert!(problems.to_string().contains(said), "{set}: {problems}");
    }
    let scenario = strandway_scenario::parse(TWO_PLANES).expect("TOML");
    for name in ["", "a/b", "..", "a b", "abcdefghijklmnopqrstu"] {
        assert!(fabric_of(&scenario, name, &no()).is_err(), "{name}");
    }
}

#[test]
fn faults_of_a_scenario_become_failures_of_links_and_directions() {
    let text = format!(
        "{TWO_PLANES}[[faults]]\nlink = \"leaf0.p0->spine1.p0\"\nkind = \"degrade\"\nfraction = 0.25\nat = \"1 ms\"\nuntil = \"3 ms\"\n\
         [[faults]]\nbetween = [\"leaf1.p0\", \"spine0.p0\"]\nkind = \"loss\"\nprobability = 0.02\nburst = 8\nat = \"2 ms\"\n"
    );
    let experiment = strandway_lab::check(&strandway_scenario::parse(&text).expect("TOML"))
        .unwrap_or_else(|problems| panic!("{problems}"));
    let moments = moments(&fabric(), &experiment.plan.topology, &experiment.plan.faults).expect("all can happen");
    let broken: Vec<(u64, Vec<String>)> =
        moments.iter().map(|m| (m.at.0 / 1_000_000_000, m.broken.0.iter().map(Target::to_string).collect())).collect();
    let (slow, lossy) = ("degrade:p0:t0-0:to:t1-1:25%".to_string(), "loss:p0:t0-1:t1-0:2%:8".to_string());
    assert_eq!(broken, [(1, vec![slow.clone()]), (2, vec![slow, lossy.clone()]), (3, vec![lossy])]);
}

#[test]
fn nodes_are_told_whether_ports_trim() {
    let sets = ["fabric.trimming=true", "fabric.ecn=true", "fabric.ecn_low=20 KB", "fabric.ecn_high=40 KB"];
    let fabric = of(TWO_PLANES, &sets, &Options::default()).expect("a fabric");
    assert_eq!(fabric.marking.map(|m| (m.low, m.high, m.last_hop)), Some((20_000, 40_000, false)));
    assert!(node_file(&fabric, 0).trimming);
    assert!(!node_file(&fabric.without_program("there is no clang"), 0).trimming);
    // No port trims if no packet can wait.
    let free = Options { unshaped: true, ..Options::default() };
    let free = of(TWO_PLANES, &["fabric.trimming=true", "fabric.ecn=true"], &free).expect("a fabric");
    assert!(!free.has_program() && free.notes.iter().any(|note| note.starts_with("trimming: off")));
}

#[test]
fn node_files_are_what_a_node_needs() {
    let fabric = fabric();
    let node = node_file(&fabric, 3);
    assert_eq!(NodeFile::from_text("h3.toml", &node.to_string()), Ok(node.clone()));
    let planes: Vec<String> = node.planes.iter().map(|p| p.to_string()).collect();
    assert_eq!(planes, ["[fcbb:bb00:2:8002::]:4791", "[fcbb:bb00:802:8802::]:4792"]);
    assert_eq!((node.profile.as_str(), node.payload, node.srv6), ("mrc", Some(4096), Some(fabric.clos())));
}

#[test]
fn three_tiers_are_a_fabric_whose_nodes_know_its_paths() {
    let path = std::path::Path::new("../../scenarios/wire/three_tiers.toml");
    let fabric = fabric_of(&Scenario::load(path).expect("it is there"), "sw", &Options::default()).expect("a fabric");
    assert_eq!((fabric.hosts, fabric.t0s(), fabric.t1s, fabric.t2s(), fabric.nodes().len()), (16, 8, 8, 4, 36));
    assert_eq!(
        (fabric.host_rate, fabric.uplink_rate, fabric.core_rate),
        (Some(100_000_000), Some(100_000_000), Some(100_000_000))
    );
    let node = node_file(&fabric, 15);
    assert_eq!(NodeFile::from_text("h15.toml", &node.to_string()), Ok(node.clone()));
    let clos = node.srv6.expect("addresses are paths");
    assert_eq!((clos.plane_bits, clos.paths(0, 15), clos.paths(0, 3), clos.uplinks()), (0, 4, 2, [2, 2]));
    // Six links at 100 Mb/s instead of four at most.
    assert!(node.base_rtt > Span::from_us(2_000), "{}", node.base_rtt);
}

#[test]
fn the_scenario_of_the_repository_can_be_built() {
    let path = std::path::Path::new("../../scenarios/wire/two_planes.toml");
    let scenario = Scenario::load(path).expect("it is there");
    let fabric = fabric_of(&scenario, "sw", &Options::default()).expect("a fabric");
    assert_eq!((fabric.nodes().len(), fabric.host_rate), (12, Some(500_000_000)));
    assert!(!fabric.notes.iter().any(|note| note.starts_with("ECN")), "it asks for none: {:?}", fabric.notes);
    // And the simulator runs it.
    let experiment = strandway_lab::check(&scenario).expect("it is right");
    let report = strandway_lab::run(&experiment, &strandway_sim::Control::new()).report;
    assert!(report.expect.iter().all(|bound| bound.met), "{:?}", report.expect);
}

const TWO_SITES: &str = "[fabric]\nkind = \"sites\"\nhosts_per_site = 2\nplanes = 2\nbundle = 2\nrate = \"200 Mbps\"\n\
    long_latency = \"25 ms\"\nlong_rate = \"50 Mbps\"\nlong_queue = \"20 ms\"\nloss = 0.01\nburst = \"2 ms\"\nloss_one_way = true\n\
    [profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";

#[test]
fn two_sites_become_delay_lines_in_the_switches_between_them() {
    let fabric = of(TWO_SITES, &PLAIN, &Options::default()).expect("a fabric");
    assert_eq!((fabric.planes, fabric.hosts, fabric.t0s(), fabric.t1s), (2, 4, 2, 2));
    assert_eq!((fabric.host_rate, fabric.uplink_rate, fabric.node_rate), (Some(100_000_000), None, 200_000_000));
    // 25 ms in each direction, and short cables.
    assert!((50_000_000..52_000_000).contains(&fabric.base_rtt_ns), "{}", fabric.base_rtt_ns);
    let names: Vec<&str> = fabric.lines.iter().map(|line| line.name.as_str()).collect();
    let wanted = ["site0.p0->site1.p0", "site0.p0->site1.p0#1", "site0.p1->site1.p1", "site0.p1->site1.p1#1"];
    assert_eq!(names, wanted);
    let line = &fabric.lines[3];
    assert_eq!((line.latency_ns, line.rate, line.queue), (25_000_000, Some(50_000_000), 125_000));
    assert_eq!((line.loss[0].share, line.loss[0].burst_ns, line.loss[1].share), (0.01, Some(2_000_000), 0.0));

    let steps = build(&fabric);
    let cables: Vec<String> = steps.iter().filter(|s| s.namespace.is_none()).flat_map(|s| s.lines.clone()).collect();
    let at = |device: &str| cables.iter().filter(|line| line.contains(&format!(" {device} mtu 9000 netns "))).count();
    assert_eq!((at("x"), at("y")), (4, 4), "{cables:#?}");
    assert!(
        cables.iter().any(|l| l.starts_with("link add u1 ") && l.ends_with("peer name y mtu 9000 netns sw-t1-p0-1"))
    );
    assert_eq!(lines(&steps, "sw-t1-p1-1", Tool::Ethtool), ["-K d1 tx off sg off tso off gso off gro off"]);
    assert_eq!(lines(&steps, "sw-t0-p1-1", Tool::Ethtool).len(), 2);
    assert_eq!(lines(&steps, "sw-t0-p1-0", Tool::Ethtool), Vec::<String>::new());
    assert!(!lines(&steps, "sw-t1-p0-0", Tool::Tc).iter().any(|line| shapes(line)), "the line shapes");
}

/// Three sites with two parallel links between any two. The links between sites 1 and 2 have other settings.
const THREE_SITES: &str = "[fabric]\nkind = \"sites\"\nsites = 3\nhosts_per_site = 1\nbundle = 2\nrate = \"200 Mbps\"\n\
    long_latency = \"10 ms\"\nlong_rate = \"50 Mbps\"\nloss = 0.01\n[[fabric.long_links]]\nbetween = [2, 1]\nlong_rate = \"80 Mbps\"\n\
    long_latency = \"20 ms\"\nloss = 0.02\nburst = \"2 ms\"\nloss_one_way = true\n[profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";

#[test]
fn every_pair_of_three_sites_has_switches_and_lines_of_its_own() {
    let fabric = of(THREE_SITES, &PLAIN, &Options::default()).expect("a fabric");
    assert_eq!((fabric.hosts, fabric.t0s(), fabric.t1s, fabric.nodes().len()), (3, 3, 6, 12));
    // The fastest way has two links of 80 Mb/s.
    assert_eq!((fabric.host_rate, fabric.node_rate), (Some(200_000_000), 160_000_000));
    let lines_of = |t1: u16| {
        let line = &fabric.lines[usize::from(t1)];
        (line.name.as_str(), line.latency_ns / 1_000_000, line.loss.map(|loss| (loss.share, loss.burst_ns)))
    };
    assert_eq!(lines_of(0), ("site0->site1", 10, [(0.01, None); 2]));
    assert_eq!(lines_of(3), ("site0->site2#1", 10, [(0.01, None); 2]));
    // Losses in one direction begin at the site that is named first.
    assert_eq!(lines_of(4), ("site1->site2", 20, [(0.0, None), (0.02, Some(2_000_000))]));
    let names = |node| fabric.ports(node).into_iter().map(|port| port.name).collect::<Vec<_>>();
    assert_eq!(names(Node::T0(0, 0)), ["h0", "u0", "u1", "u2", "u3"]);
    assert_eq!(names(Node::T0(0, 2)), ["h2", "u2", "u3", "u4", "u5"]);
    assert_eq!(
        (names(Node::T1(0, 3)), names(Node::T1(0, 5))),
        (vec!["d0".into(), "d2".into()], vec!["d1".into(), "d2".into()])
    );
    let steps = build(&fabric);
    let site1 = lines(&steps, "sw-t0-p0-1", Tool::Ip);
    assert!(site1.iter().any(|line| line == "route replace fcbb:bb00:4005::/48 via fe80::4005 dev u4 metric 100"));
    assert!(
        site1.iter().all(|line| !line.contains("fcbb:bb00:4003::")),
        "no link leads to the switch of others: {site1:#?}"
    );
    // Segmentation offload must be off at the ends of delay lines: in the switch of the site where the line ends, and
    // in the switch of the link at its other end.
    assert_eq!(lines(&steps, "sw-t0-p0-1", Tool::Ethtool).len(), 2);
    assert_eq!(lines(&steps, "sw-t0-p0-2", Tool::Ethtool).len(), 4);
    assert_eq!(lines(&steps, "sw-t1-p0-3", Tool::Ethtool), ["-K d2 tx off sg off tso off gso off gro off"]);
    let node = node_file(&fabric, 2);
    assert_eq!(NodeFile::from_text("h2.toml", &node.to_string()), Ok(node.clone()));
    assert_eq!(node.srv6.map(|clos| (clos.per_pair, clos.paths(0, 2))), Some((2, 2)));
    // To site 0: two links of 50 Mb/s, 10 ms away. To site 1: two links of 80 Mb/s, 20 ms away. Within the own site: no
    // entry.
    let far: Vec<_> = node
        .distances
        .iter()
        .map(|far| (far.hosts[0], far.rate.0 / 1_000_000, far.base_rtt.0 / 1_000_000_000))
        .collect();
    assert_eq!(far, [(0, 100, 21), (1, 160, 40), (2, 160, 0)]);
    let said = Target::parse(&fabric, "link:p0:t0-0:t1-5").expect_err("of sites 1 and 2");
    assert!(said.contains("the T1s of their own long links"), "{said}");
    assert!(Target::parse(&fabric, "link:p0:t0-2:t1-5").is_ok());
}

#[test]
fn sixteen_sites_are_a_fabric() {
    let fabric = of(THREE_SITES, &["fabric.sites=16", "fabric.bundle=1"], &Options::default()).expect("a fabric");
    assert_eq!((fabric.nodes().len(), fabric.lines.len()), (16 + 16 + 120, 120));
    let named: BTreeSet<&str> = fabric.lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(named.len(), 120);
    for (t1, line) in (0..).zip(&fabric.lines) {
        let (low, high) = fabric.clos().joined(t1).expect("a pair");
        assert_eq!(line.name, format!("site{low}->site{high}"));
    }
}

#[test]
fn impossible_delay_lines_are_refused() {
    let reorder = |text: &str| Options { reorder: Some(text.into()), ..Options::default() };
    let cases = [
        (
            TWO_SITES,
            "fabric.sites=10",
            Options::default(),
            "would be 220 namespaces; 200 is the most; write fewer sites",
        ),
        (TWO_SITES, "fabric.long_rate=40 Gbps", Options::default(), "faster than a delay line carries; 2 Gbps"),
        (TWO_SITES, "fabric.loss=0", reorder("often"), "is no share and time; write a share and a time, say 1%:200us"),
        (TWO_SITES, "fabric.loss=0", reorder("2:1 ms"), "is no share"),
        (TWO_PLANES, "fabric.hosts=4", reorder("1%:1ms"), "is for long links; this fabric has none"),
    ];
    for (text, set, options, wanted) in cases {
        let said = of(text, &[set], &options).expect_err(wanted).to_string();
        assert!(said.contains(wanted), "{set}: {said}");
    }
    let fabric = of(TWO_SITES, &[], &reorder("1 %:200 us")).expect("a fabric");
    assert!(fabric.lines.iter().all(|line| line.reorder == Some(line::Reorder { ppm: 10_000, by_ns: 200_000 })));
    assert!(fabric.notes.iter().any(|note| note.starts_with("order: ")), "{:?}", fabric.notes);
}

#[test]
fn losses_of_long_links_are_the_lines_business_and_other_faults_there_are_refused() {
    let scenario = strandway_scenario::parse(TWO_SITES).expect("TOML");
    let plan = strandway_lab::check(&scenario).expect("a scenario").plan;
    assert!(plan.faults.iter().all(|fault| is_carried(&plan.topology, fault)) && !plan.faults.is_empty());
    let down = format!("{TWO_SITES}\n[[faults]]\nlink = \"site0.p0->site1.p0\"\nkind = \"down\"\n");
    let plan = strandway_lab::check(&strandway_scenario::parse(&down).expect("TOML")).expect("a scenario").plan;
    let fabric = of(TWO_SITES, &[], &Options::default()).expect("a fabric");
    let said = moments(&fabric, &plan.topology, &plan.faults[..1]).expect_err("no such fault");
    assert!(said.contains("site0.p0->site1.p0 is a long link"), "{said}");
}
