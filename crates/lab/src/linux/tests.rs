//! What would be done, looked at without doing it.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const TWO_PLANES: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 4\nplanes = 2\nhosts_per_leaf = 2\nspines = 2\n\
    rate = \"1 Gbps\"\nqueue = \"64 KiB\"\n[profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";
/// Ports that neither mark nor trim.
const PLAIN: [&str; 2] = ["fabric.trimming=false", "fabric.ecn=false"];

fn fabric() -> LinuxFabric {
    of(TWO_PLANES, &PLAIN, &Options::default()).expect("a fabric")
}

fn of(text: &str, sets: &[&str], options: &Options) -> Result<LinuxFabric, Problems> {
    let mut scenario = crate::scenario::parse(text).expect("TOML");
    for set in sets {
        scenario.set(set).expect("a key");
    }
    LinuxFabric::of(&scenario, "sw", options)
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
    // Four packets of 4,096 B and headers at 500 Mb/s take 270 us, acknowledgements back a little, software 100 us.
    assert!((350_000..400_000).contains(&fabric.base_rtt_ns), "{}", fabric.base_rtt_ns);
    assert_eq!(fabric.nodes().len(), 12);
    let names: Vec<String> = fabric.nodes().iter().map(|n| fabric.namespace(*n)).collect();
    assert_eq!(names[3..8], ["sw-h3", "sw-t0-p0-0", "sw-t0-p0-1", "sw-t1-p0-0", "sw-t1-p0-1"]);
    for node in fabric.nodes() {
        assert_eq!(Node::named(&node.to_string()), Some(node));
    }
    for other in ["", "h", "h01", "h-1", "t0-p0", "t2-p0-0", "t0-p300-0", "x"] {
        assert_eq!(Node::named(other), None, "{other}");
    }
}

#[test]
fn a_rate_on_the_command_line_replaces_all_rates_and_what_follows_from_them() {
    let options = Options { rate: Some("100Mbps".into()), unshaped: false, reorder: None };
    let slow = of(TWO_PLANES, &["fabric.queue=1 BDP", "fabric.uplink_rate=400 Mbps"], &options).expect("a fabric");
    assert_eq!((slow.host_rate, slow.uplink_rate, slow.node_rate), (Some(100_000_000), Some(100_000_000), 200_000_000));
    let fast = of(TWO_PLANES, &["fabric.queue=1 BDP"], &Options::default()).expect("a fabric");
    assert!(slow.base_rtt_ns > fast.base_rtt_ns * 3);
    let free = of(TWO_PLANES, &["fabric.rate=800 Gbps"], &Options { rate: None, unshaped: true, reorder: None })
        .expect("a fabric");
    assert_eq!((free.host_rate, free.uplink_rate, free.node_rate), (None, None, 10_000_000_000));
    assert!(build(&free).iter().all(|step| step.tool != Tool::Tc));
}

#[test]
fn what_namespaces_cannot_be_is_said_with_a_remedy() {
    let no = Options::default;
    for (sets, options, said) in [
        (vec!["fabric.rate=800 Gbps"], no(), "faster than software carries; 1 Gbps is the most; pass --rate 500Mbps"),
        (vec!["fabric.hosts=65", "fabric.spines=1"], no(), "at most 64 hosts as namespaces; add --set fabric.hosts=8"),
        (vec!["fabric.hosts=64", "fabric.spines=80"], no(), "would be 288 namespaces; 200 is the most"),
        (vec!["fabric.planes=10", "fabric.routing=hashed"], no(), "a node has at most 8 planes"),
        (vec!["fabric.bundle=2"], no(), "parallel links cannot be told apart"),
        (vec!["fabric.hots=3"], no(), "did you mean `hosts`?"),
        (
            vec![],
            Options { rate: Some("500".into()), unshaped: false, reorder: None },
            "--rate = 500: a rate needs a unit",
        ),
        (
            vec![],
            Options { rate: Some("2 Gbps".into()), unshaped: false, reorder: None },
            "faster than software carries",
        ),
    ] {
        let problems = of(TWO_PLANES, &sets, &options).expect_err(said);
        assert!(problems.to_string().contains(said), "{sets:?}: {problems}");
    }
    let tree = of("[fabric]\nkind = \"fat-tree\"\nk = 4\nrate = \"1 Gbps\"\n", &[], &no()).expect_err("three tiers");
    assert!(tree.to_string().contains("has three tiers"), "{tree}");
    let scenario = crate::scenario::parse(TWO_PLANES).expect("TOML");
    for name in ["", "a/b", "..", "a b", "abcdefghijklmnopqrstu"] {
        assert!(LinuxFabric::of(&scenario, name, &no()).is_err(), "{name}");
        assert!(down(name).is_err() && status(name).is_err() && fail(name, "plane:p0").is_err(), "{name}");
    }
}

#[test]
fn switches_get_the_tables_that_the_simulator_walks() {
    let steps = build(&fabric());
    let t0 = lines(&steps, "sw-t0-p1-0", Tool::Ip);
    for line in [
        "route replace blackhole fcbb:bb00::/32 metric 4096",
        "route replace fcbb:bb00:1100::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev sid0",
        "route replace fcbb:bb00:9100::/48 encap seg6local action End flavors next-csid lblen 32 nflen 32 dev sid0",
        "route replace fcbb:bb00:3001::/48 via fe80::3001 dev h1 metric 100",
        "route replace fcbb:bb00:2101::/48 via fe80::2101 dev u1 metric 100",
        "neigh replace fe80::2101 lladdr 02:00:21:01:11:00 dev u1 nud permanent",
    ] {
        assert!(t0.iter().any(|l| l == line), "{line} in {t0:#?}");
    }
    assert_eq!(t0.iter().filter(|l| l.starts_with("route replace fcbb")).count(), 2 + 2 + 2);
    let host = lines(&steps, "sw-h2", Tool::Ip);
    for line in [
        "route replace unreachable fcbb:bb00::/32 metric 4096",
        "route replace local fcbb:bb00:3002::/48 dev lo table local",
        "route replace fcbb:bb00:1100::/40 via fe80::1101 dev p1 metric 100",
        "route replace fcbb:bb00:9100::/40 via fe80::1101 dev p1 metric 100",
    ] {
        assert!(host.iter().any(|l| l == line), "{line} in {host:#?}");
    }
    assert!(lines(&steps, "sw-h2", Tool::Sysctl).iter().all(|l| !l.contains("forwarding")));
    assert!(lines(&steps, "sw-t1-p0-0", Tool::Sysctl).contains(&"net/ipv6/conf/all/forwarding 1".to_string()));
}

#[test]
fn ports_are_shaped_to_the_scenario_and_hosts_never_drop_at_their_own() {
    let steps = build(&fabric());
    let shaper = |limit| format!("qdisc replace dev p0 root handle 1: tbf rate 500000000bit burst 20000 limit {limit}");
    assert_eq!(lines(&steps, "sw-h0", Tool::Tc)[0], shaper(64 << 20));
    assert_eq!(lines(&steps, "sw-t1-p0-0", Tool::Tc)[0], shaper(65_536).replace("p0", "d0"));
    let sets = [&PLAIN[..], &["fabric.rate=2 Gbps"]].concat();
    let gigabit = of(TWO_PLANES, &sets, &Options::default()).expect("a fabric");
    assert!(lines(&build(&gigabit), "sw-h0", Tool::Tc)[0].contains("burst 125000"), "a millisecond's worth");
}

#[test]
fn every_cable_joins_two_ports_that_know_each_other() {
    let fabric = fabric();
    let steps = build(&fabric);
    let (mut owners, mut cables) = (BTreeMap::new(), 0);
    for line in steps.iter().filter(|s| s.namespace.is_none()).flat_map(|s| &s.lines) {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "link" {
            cables += 1;
            let ends: Vec<(&str, &str, &str)> =
                [2, 13].map(|at| (words[at], words[at + 4], words[at + 6])).into_iter().collect();
            for (port, mac, space) in ends {
                assert!(owners.insert((space, port), mac).is_none(), "{line}");
            }
        }
    }
    assert_eq!(cables, 4 * 2 + 2 * 2 * 2);
    assert_eq!(owners.values().collect::<BTreeSet<_>>().len(), 2 * cables, "no two ports have the same address");
    for port in fabric.nodes().into_iter().flat_map(|node| fabric.ports(node)) {
        let far = fabric.ports(port.peer).into_iter().find(|p| p.peer == port.node && p.plane == port.plane);
        let far = far.expect("there is another end");
        let mac = owners[&(fabric.namespace(far.node).as_str(), far.name.as_str())];
        let known = lines(&steps, &fabric.namespace(port.node), Tool::Ip);
        let wanted = format!("lladdr {mac} dev {} nud permanent", port.name);
        assert!(known.iter().any(|l| l.ends_with(&wanted)), "{wanted} in {known:#?}");
    }
}

fn failures(fabric: &LinuxFabric, targets: &[&str]) -> Failures {
    let parse = |text: &&str| Target::parse(fabric, text).expect(text);
    targets.iter().map(parse).fold(Failures::default(), |all, target| all.with(target))
}

#[test]
fn targets_are_read_as_they_are_written_and_wrong_ones_explained() {
    let fabric = fabric();
    for text in [
        "link:p0:t0-0:t1-1",
        "link:p1:h2:t0-1",
        "port:h0:p1",
        "plane:p1",
        "switch:p0:t1-1",
        "loss:p0:2%",
        "loss:all:0.5%",
        "loss:p0:2%:8",
        "loss:p1:h2:t0-1:2%:2.5",
        "loss:p0:t1-1:to:t0-0:100%",
        "degrade:all:50%",
        "degrade:p1:12.5%",
        "degrade:p0:t0-0:t1-1:25%",
        "degrade:p0:t0-0:to:h1:25%",
    ] {
        assert_eq!(Target::parse(&fabric, text).expect(text).to_string(), text);
    }
    assert_eq!(Target::parse(&fabric, "link:p0:t1-1:t0-0").expect("either order").to_string(), "link:p0:t0-0:t1-1");
    for (text, said) in [
        ("nonsense", "nothing that can fail; write link:p0:t0-0:t1-1, port:h0:p1"),
        ("plane:p2", "there is no plane 2; planes are p0 to p1"),
        ("switch:p0:t1-2", "there is no t1-2; there are t0-0 to t0-1, t1-0 to t1-1, h0 to h3"),
        ("switch:p0:h0", "nothing that can fail"),
        ("link:p0:t0-0:t0-1", "no link joins these two"),
        ("link:p0:h0:t0-1", "no link joins these two"),
        ("link:p0:t0-0", "nothing that can fail"),
        ("port:t0-0:p0", "nothing that can fail"),
        ("loss:p0:101%", "above 0% and at most 100%"),
        ("loss:p0:2 apples", "no unit of a plain number"),
        ("loss:p0:2%:0.5", "runs of losses have a mean length of 1 or more"),
        ("loss:p0:2%:8:9", "nothing that can fail"),
        ("loss:p0:t0-0:to:t0-1:2%", "no link joins these two"),
        ("loss", "nothing that can fail"),
        ("degrade:p0:100%", "more than 0% and less than 100% of its rate"),
        ("degrade:p0:0%", "more than 0% and less than 100% of its rate"),
        ("degrade:p0:50%:8", "nothing that can fail"),
    ] {
        let problem = Target::parse(&fabric, text).expect_err(text);
        assert!(problem.contains(said), "{text}: {problem}");
    }
}

#[test]
fn failing_and_healing_undo_each_other_line_by_line() {
    let fabric = fabric();
    let whole = Failures::default();
    let link = failures(&fabric, &["link:p0:t0-0:t1-1"]);
    let steps = change(&fabric, &whole, &link);
    let text: Vec<String> = steps.iter().map(|step| step.to_string().trim().to_string()).collect();
    assert_eq!(
        text,
        [
            "sw-t0-p0-0: ip neigh replace fe80::2001 lladdr 02:00:00:00:de:ad dev u1 nud permanent",
            "sw-t1-p0-1: ip neigh replace fe80::1000 lladdr 02:00:00:00:de:ad dev d0 nud permanent",
        ]
    );
    let back = change(&fabric, &link, &whole);
    assert_eq!(back[0].lines, ["neigh replace fe80::2001 lladdr 02:00:20:01:10:00 dev u1 nud permanent"]);
    assert!(change(&fabric, &link, &link).is_empty());

    // What a port loses when it goes down comes back with it, except what something else still breaks.
    let port = failures(&fabric, &["port:h0:p1", "plane:p1"]);
    assert_eq!(lines(&change(&fabric, &whole, &port), "sw-h0", Tool::Ip), ["link set p1 down"]);
    let healed = port.without(Some(Target::Port(0, 1)));
    let back = lines(&change(&fabric, &port, &healed), "sw-h0", Tool::Ip);
    assert_eq!(back[0], "link set p1 up");
    assert!(back[2].contains("de:ad") && back[3].starts_with("route replace fcbb:bb00:1100::/40"), "{back:#?}");
    let whole_again = lines(&change(&fabric, &healed, &whole), "sw-h0", Tool::Ip);
    assert_eq!(whole_again, ["neigh replace fe80::1100 lladdr 02:00:11:00:30:00 dev p1 nud permanent"]);
}

#[test]
fn losses_replace_each_other_and_the_larger_one_counts() {
    let fabric = fabric();
    let one = failures(&fabric, &["loss:p0:2%", "loss:all:1%", "loss:p0:5%"]);
    let alone = |place, ppm| Target::Loss(place, Loss { ppm, run: 1_000 });
    assert_eq!(one.0, [alone(Place::All, 10_000), alone(Place::Plane(0), 50_000)]);
    let steps = change(&fabric, &Failures::default(), &one);
    let of = |space| lines(&steps, space, Tool::Tc).join("\n");
    // 5 % and 1 % of 2^32, at every port of both T1s, and at no host.
    assert_eq!(of("sw-t1-p0-0").matches("53 1 0 214748364,").count(), 2);
    assert_eq!(of("sw-t1-p1-0").matches("53 1 0 42949672,").count(), 2);
    assert_eq!(of("sw-h0"), "");
    let rest = one.without(Some(Target::parse(&fabric, "loss:p0").expect("enough to heal it")));
    assert_eq!(rest.0, [alone(Place::All, 10_000)]);
    assert_eq!(rest.without(None), Failures::default());
}

/// The small fabric with ports that mark and trim.
fn trimming() -> LinuxFabric {
    let sets = ["fabric.trimming=true", "fabric.ecn=true", "fabric.ecn_low=20 KB", "fabric.ecn_high=40 KB"];
    of(TWO_PLANES, &sets, &Options::default()).expect("a fabric")
}

#[test]
fn ports_that_mark_and_trim_have_classes_and_a_program_made_for_their_numbers() {
    let fabric = trimming();
    assert_eq!(fabric.marking.map(|m| (m.low, m.high, m.last_hop)), Some((20_000, 40_000, false)));
    let steps = build(&fabric);
    let objects = steps.iter().find(|step| step.tool == Tool::Clang).expect("programs are compiled");
    // Ports to hosts tell that they are the last that trim, and mark only where a scenario says so.
    let [last, other] = &objects.lines[..] else { panic!("{objects:?}") };
    for (line, high, trimmed) in [(last, 0, 49), (other, 40_000, 48)] {
        assert!(line.starts_with("/run/strandway/sw/port-65536-"), "{line}");
        for wanted in ["-DLIMIT=65536", &format!("-DHIGH={high}"), &format!("-DTRIMMED={trimmed}"), "-DKEEP=64"] {
            assert!(line.split(' ').any(|word| word == wanted), "{wanted} in {line}");
        }
    }
    let t0 = lines(&steps, "sw-t0-p0-0", Tool::Tc);
    let object = |line: &str| line.split(' ').next().expect("a path").to_string();
    for line in [
        "qdisc replace dev h0 root handle 1: htb default 20".to_string(),
        "class replace dev h0 parent 1:1 classid 1:10 htb rate 245000000bit ceil 500000000bit burst 20000 cburst 20000 \
         quantum 9014 prio 0"
            .to_string(),
        "qdisc replace dev h0 parent 1:20 handle 20: bfifo limit 101592".to_string(),
        format!("filter replace dev h0 egress pref 1 handle 1 protocol ipv6 bpf da obj {} sec tc/port", object(last)),
        format!("filter replace dev u1 egress pref 1 handle 1 protocol ipv6 bpf da obj {} sec tc/port", object(other)),
    ] {
        assert!(t0.contains(&line), "{line} in {t0:#?}");
    }
    // A host's own port keeps its one queue, and lets out nothing that a switch could not cut.
    assert!(lines(&steps, "sw-h0", Tool::Tc).iter().all(|line| line.contains("tbf")));
    assert!(lines(&steps, "sw-h0", Tool::Ip).contains(&"link set p1 gso_max_segs 1".to_string()));
    assert!(fabric.node_file(0).trimming);
    // Where that cannot be had it is said, and nodes are told.
    let plain = fabric.without_program("there is no clang");
    assert!(plain.notes.contains(&"trimming: off, there is no clang".to_string()), "{:?}", plain.notes);
    assert!(!plain.node_file(0).trimming && build(&plain).iter().all(|step| step.tool != Tool::Clang));
    // And so it is where nothing can wait.
    let free = Options { rate: None, unshaped: true, reorder: None };
    let free = of(TWO_PLANES, &["fabric.trimming=true", "fabric.ecn=true"], &free).expect("a fabric");
    assert!(!free.has_program() && free.notes.iter().any(|note| note.starts_with("trimming: off")));
}

#[test]
fn a_degraded_link_is_slower_with_smaller_queues_both_ways_or_one_way() {
    let (plain, whole) = (fabric(), Failures::default());
    let slow = failures(&plain, &["degrade:p0:t0-0:t1-1:25%"]);
    let line = "qdisc replace dev u1 root handle 1: tbf rate 125000000bit burst 20000 limit 16384";
    assert_eq!(lines(&change(&plain, &whole, &slow), "sw-t0-p0-0", Tool::Tc), [line]);
    assert_eq!(change(&plain, &whole, &slow).len(), 2, "at both ends, and nowhere else");
    let back = line.replace("125000000bit", "500000000bit").replace("16384", "65536");
    assert_eq!(lines(&change(&plain, &slow, &whole), "sw-t0-p0-0", Tool::Tc), [back]);
    let tiny = failures(&plain, &["degrade:p0:t0-0:to:t1-1:1%"]);
    let tiny = change(&plain, &whole, &tiny);
    assert!(tiny.len() == 1 && tiny[0].lines[0].ends_with("limit 9014"), "a packet always fits: {tiny:?}");
    // With a program its numbers change, too.
    let fabric = trimming();
    let steps = change(&fabric, &whole, &failures(&fabric, &["degrade:p0:50%"]));
    assert_eq!((steps[0].tool, steps[0].lines.len()), (Tool::Clang, 2));
    assert!(steps[0].lines.iter().any(|l| l.contains("-DLIMIT=32768 -DLOW=10000 -DHIGH=20000")), "{steps:?}");
    let lines = lines(&steps, "sw-t0-p0-0", Tool::Tc);
    assert!(lines.iter().all(|line| !line.contains("root")), "what waits goes on waiting: {lines:?}");
    assert!(lines.iter().any(|line| line.contains("dev u0 parent 1: classid 1:1 htb rate 250000000bit")), "{lines:?}");
}

#[test]
fn losses_in_runs_are_those_of_the_simulator_and_strike_where_they_are_said_to() {
    let loss = Loss { ppm: 20_000, run: 8_000 };
    let [none, lost] = loss.after().expect("in runs");
    // The share of time in the lossy state, and its mean length.
    assert!((none / (none + 1.0 - lost) - 0.02).abs() < 1e-9 && (1.0 / (1.0 - lost) - 8.0).abs() < 1e-9);
    assert_eq!(Loss { run: 1_000, ..loss }.after(), None, "one by one needs no compiler");
    let fabric = fabric();
    let steps = change(&fabric, &Failures::default(), &failures(&fabric, &["loss:p0:h0:t0-0:2%:8"]));
    assert_eq!(steps[0].tool, Tool::Clang);
    assert_eq!(
        steps[0].lines,
        ["/run/strandway/sw/burst-10956549-3758096384.o -DAFTER_NONE=10956549 -DAFTER_LOSS=3758096384"]
    );
    let at: Vec<&str> = steps[1..].iter().filter_map(|step| step.namespace.as_deref()).collect();
    assert_eq!(at, ["sw-h0", "sw-t0-p0-0"], "both ends lose of what comes in");
    let one = change(&fabric, &Failures::default(), &failures(&fabric, &["loss:p0:t0-0:to:h0:2%"]));
    assert_eq!(one.iter().filter_map(|step| step.namespace.as_deref()).collect::<Vec<_>>(), ["sw-h0"]);
    // What is healed leaves the program of the other direction alone.
    let healed =
        lines(&change(&fabric, &failures(&fabric, &["loss:p0:2%"]), &Failures::default()), "sw-t1-p0-0", Tool::Tc);
    assert!(healed.iter().all(|line| !line.contains("del dev d0 clsact")), "{healed:?}");
}

#[test]
fn faults_of_a_scenario_become_failures_of_links_and_directions() {
    let text = format!(
        "{TWO_PLANES}[[faults]]\nlink = \"leaf0.p0->spine1.p0\"\nkind = \"degrade\"\nfraction = 0.25\nat = \"1 ms\"\nuntil = \"3 ms\"\n\
         [[faults]]\nbetween = [\"leaf1.p0\", \"spine0.p0\"]\nkind = \"loss\"\nprobability = 0.02\nburst = 8\nat = \"2 ms\"\n"
    );
    let experiment =
        crate::scenario::parse(&text).expect("TOML").check().unwrap_or_else(|problems| panic!("{problems}"));
    let moments = moments(&fabric(), &experiment.plan.topology, &experiment.plan.faults).expect("all can happen");
    let broken: Vec<(u64, Vec<String>)> =
        moments.iter().map(|m| (m.at.0 / 1_000_000_000, m.broken.0.iter().map(Target::to_string).collect())).collect();
    let (slow, lossy) = ("degrade:p0:t0-0:to:t1-1:25%".to_string(), "loss:p0:t0-1:t1-0:2%:8".to_string());
    assert_eq!(broken, [(1, vec![slow.clone()]), (2, vec![slow, lossy.clone()]), (3, vec![lossy])]);
}

#[test]
fn node_files_are_what_a_node_needs() {
    let fabric = fabric();
    let node = fabric.node_file(3);
    assert_eq!(NodeFile::from_text("h3.toml", &node.to_string()), Ok(node.clone()));
    let planes: Vec<String> = node.planes.iter().map(|p| p.to_string()).collect();
    assert_eq!(planes, ["[fcbb:bb00:3003::]:4791", "[fcbb:bb00:3003::]:4792"]);
    assert_eq!((node.profile.as_str(), node.payload, node.srv6), ("mrc", 4096, Some(fabric.clos())));
}

#[test]
fn the_scenario_of_the_repository_can_be_built() {
    let path = std::path::Path::new("../../scenarios/wire/two_planes.toml");
    let scenario = Scenario::load(path).expect("it is there");
    let fabric = LinuxFabric::of(&scenario, "sw", &Options::default()).expect("a fabric");
    assert_eq!((fabric.nodes().len(), fabric.host_rate), (12, Some(500_000_000)));
    assert!(!fabric.notes.iter().any(|note| note.starts_with("ECN")), "it asks for none: {:?}", fabric.notes);
    // And the simulator runs it.
    let experiment = scenario.check().expect("it is right");
    let report = crate::run(&experiment, &strandway_sim::Control::new()).report;
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
    // 25 ms there and back, and short cables.
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
    assert!(lines(&steps, "sw-t1-p0-0", Tool::Tc).is_empty(), "the line shapes");
}

/// Three sites with two parallel links between each two; that between 1 and 2 is another one.
const THREE_SITES: &str = "[fabric]\nkind = \"sites\"\nsites = 3\nhosts_per_site = 1\nbundle = 2\nrate = \"200 Mbps\"\n\
    long_latency = \"10 ms\"\nlong_rate = \"50 Mbps\"\nloss = 0.01\n[[fabric.long_links]]\nbetween = [2, 1]\nlong_rate = \"80 Mbps\"\n\
    long_latency = \"20 ms\"\nloss = 0.02\nburst = \"2 ms\"\nloss_one_way = true\n[profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";

#[test]
fn every_pair_of_three_sites_has_switches_and_lines_of_its_own() {
    let fabric = of(THREE_SITES, &PLAIN, &Options::default()).expect("a fabric");
    assert_eq!((fabric.hosts, fabric.t0s(), fabric.t1s, fabric.nodes().len()), (3, 3, 6, 12));
    // The widest way: two links of 80 Mb/s.
    assert_eq!((fabric.host_rate, fabric.node_rate), (Some(200_000_000), 160_000_000));
    let lines_of = |t1: u16| {
        let line = &fabric.lines[usize::from(t1)];
        (line.name.as_str(), line.latency_ns / 1_000_000, line.loss.map(|loss| (loss.share, loss.burst_ns)))
    };
    assert_eq!(lines_of(0), ("site0->site1", 10, [(0.01, None); 2]));
    assert_eq!(lines_of(3), ("site0->site2#1", 10, [(0.01, None); 2]));
    // Losses of one direction begin at the site that is named first.
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
    assert!(site1.iter().any(|line| line == "route replace fcbb:bb00:2004::/48 via fe80::2004 dev u4 metric 100"));
    assert!(
        site1.iter().all(|line| !line.contains("fcbb:bb00:2002::")),
        "no link leads to the switch of others: {site1:#?}"
    );
    // A site's switch hands lines whole frames where they are at its end, and so does the switch of the link at the other one.
    assert_eq!(lines(&steps, "sw-t0-p0-1", Tool::Ethtool).len(), 2);
    assert_eq!(lines(&steps, "sw-t0-p0-2", Tool::Ethtool).len(), 4);
    assert_eq!(lines(&steps, "sw-t1-p0-3", Tool::Ethtool), ["-K d2 tx off sg off tso off gso off gro off"]);
    let node = fabric.node_file(2);
    assert_eq!(NodeFile::from_text("h2.toml", &node.to_string()), Ok(node.clone()));
    assert_eq!(node.srv6.map(|clos| (clos.per_pair, clos.paths(0, 2))), Some((2, 2)));
    // To site 0 two links of 50 Mb/s, 10 ms away; to site 1 two of 80 Mb/s, 20 ms away; at home neither.
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
fn what_delay_lines_cannot_be_is_refused() {
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
    let scenario = crate::scenario::parse(TWO_SITES).expect("TOML");
    let plan = scenario.check().expect("a scenario").plan;
    assert!(plan.faults.iter().all(|fault| is_carried(&plan.topology, fault)) && !plan.faults.is_empty());
    let down = format!("{TWO_SITES}\n[[faults]]\nlink = \"site0.p0->site1.p0\"\nkind = \"down\"\n");
    let plan = crate::scenario::parse(&down).expect("TOML").check().expect("a scenario").plan;
    let fabric = of(TWO_SITES, &[], &Options::default()).expect("a fabric");
    let said = moments(&fabric, &plan.topology, &plan.faults[..1]).expect_err("no such fault");
    assert!(said.contains("site0.p0->site1.p0 is a long link"), "{said}");
}
