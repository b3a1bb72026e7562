//! What would be done, looked at without doing it.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const TWO_PLANES: &str = "[fabric]\nkind = \"multi-plane\"\nhosts = 4\nplanes = 2\nhosts_per_leaf = 2\nspines = 2\n\
    rate = \"1 Gbps\"\nqueue = \"64 KiB\"\n[profile]\nname = \"mrc\"\n[workload]\nsize = \"1 MB\"\n";

fn fabric() -> LinuxFabric {
    of(TWO_PLANES, &[], &Options::default()).expect("a fabric")
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
    let options = Options { rate: Some("100Mbps".into()), unshaped: false };
    let slow = of(TWO_PLANES, &["fabric.queue=1 BDP", "fabric.uplink_rate=400 Mbps"], &options).expect("a fabric");
    assert_eq!((slow.host_rate, slow.uplink_rate, slow.node_rate), (Some(100_000_000), Some(100_000_000), 200_000_000));
    let fast = of(TWO_PLANES, &["fabric.queue=1 BDP"], &Options::default()).expect("a fabric");
    assert!(slow.base_rtt_ns > fast.base_rtt_ns * 3);
    let free = of(TWO_PLANES, &["fabric.rate=800 Gbps"], &Options { rate: None, unshaped: true }).expect("a fabric");
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
        (vec!["fabric.planes=10"], no(), "a node has at most 8 planes"),
        (vec!["fabric.bundle=2"], no(), "parallel links cannot be told apart"),
        (vec!["fabric.hots=3"], no(), "did you mean `hosts`?"),
        (vec![], Options { rate: Some("500".into()), unshaped: false }, "--rate = 500: a rate needs a unit"),
        (vec![], Options { rate: Some("2 Gbps".into()), unshaped: false }, "faster than software carries"),
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
    let gigabit = of(TWO_PLANES, &["fabric.rate=2 Gbps"], &Options::default()).expect("a fabric");
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
    assert_eq!(one.0, [Target::Loss(None, 10_000), Target::Loss(Some(0), 50_000)]);
    let steps = change(&fabric, &Failures::default(), &one);
    let of = |space| lines(&steps, space, Tool::Tc).join("\n");
    // 5 % and 1 % of 2^32, at every port of both T1s, and at no host.
    assert_eq!(of("sw-t1-p0-0").matches("53 1 0 214748364,").count(), 2);
    assert_eq!(of("sw-t1-p1-0").matches("53 1 0 42949672,").count(), 2);
    assert_eq!(of("sw-h0"), "");
    let rest = one.without(Some(Target::parse(&fabric, "loss:p0").expect("enough to heal it")));
    assert_eq!(rest.0, [Target::Loss(None, 10_000)]);
    assert_eq!(rest.without(None), Failures::default());
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
