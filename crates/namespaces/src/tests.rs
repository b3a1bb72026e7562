//! Tests of the steps, without executing them.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Four hosts below two T0s and two T1s in each of two planes, whose ports neither mark nor trim.
pub(crate) fn fabric() -> LinuxFabric {
    LinuxFabric {
        name: "sw".into(),
        scenario: "two_planes.toml".into(),
        planes: 2,
        hosts: 4,
        hosts_per_t0: 2,
        t1s: 2,
        mtu: 9000,
        host_rate: Some(500_000_000),
        uplink_rate: Some(500_000_000),
        core_rate: None,
        queue: 65_536,
        marking: None,
        trimming: false,
        mrc_layout: false,
        profile: "mrc".into(),
        payload: 4096,
        node_rate: 1_000_000_000,
        base_rtt_ns: 370_000,
        notes: Vec::new(),
        pods: None,
        lines: Vec::new(),
        ways: Vec::new(),
        teams: Team::of_groups(4, &[]),
        copying: Copying::Filters,
    }
}

/// The lines for a namespace and a tool.
fn lines(steps: &[Step], namespace: &str, tool: Tool) -> Vec<String> {
    let space = Some(namespace.to_string());
    steps.iter().filter(|s| s.namespace == space && s.tool == tool).flat_map(|s| s.lines.clone()).collect()
}

#[test]
fn switches_get_the_tables_that_the_simulator_walks() {
    let steps = build(&fabric());
    let t0 = lines(&steps, "sw-t0-p1-0", Tool::Ip);
    for line in [
        "route replace blackhole fcbb:bb00::/32 metric 4096",
        "route replace fcbb:bb00:801::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev sid0",
        "route replace fcbb:bb00:801:8802::/64 via fe80::8802 dev h1 metric 100",
        "route replace fcbb:bb00:4802::/48 via fe80::4802 dev u1 metric 100",
        "route replace fcbb:bb00:e402::/48 via fe80::4802 dev u1 metric 100",
        "neigh replace fe80::4802 lladdr 02:00:48:02:08:01 dev u1 nud permanent",
    ] {
        assert!(t0.iter().any(|l| l == line), "{line} in {t0:#?}");
    }
    assert_eq!(t0.iter().filter(|l| l.starts_with("route replace fcbb")).count(), 1 + 2 + 2 * 2);
    let t1 = lines(&steps, "sw-t1-p1-0", Tool::Ip);
    for line in [
        "route replace fcbb:bb00:4801::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev sid0",
        "route replace fcbb:bb00:e401::/48 encap seg6local action End flavors next-csid lblen 32 nflen 32 dev sid0",
        "route replace fcbb:bb00:802::/48 via fe80::802 dev d1 metric 100",
    ] {
        assert!(t1.iter().any(|l| l == line), "{line} in {t1:#?}");
    }
    let host = lines(&steps, "sw-h2", Tool::Ip);
    for line in [
        "route replace unreachable fcbb:bb00::/32 metric 4096",
        "addr replace fcbb:bb00:802:8801::/128 dev lo nodad",
        "route replace local fcbb:bb00:2:8001::/64 dev lo table local",
        "route replace fcbb:bb00:800::/37 via fe80::802 dev p1 metric 100",
        "route replace fcbb:bb00:e400::/38 via fe80::802 dev p1 metric 100",
    ] {
        assert!(host.iter().any(|l| l == line), "{line} in {host:#?}");
    }
    assert!(lines(&steps, "sw-h2", Tool::Sysctl).iter().all(|l| !l.contains("forwarding")));
    assert!(lines(&steps, "sw-t1-p0-0", Tool::Sysctl).contains(&"net/ipv6/conf/all/forwarding 1".to_string()));
}

/// Eight hosts in two pods of two T0s and two T1s, with four T2s, in one plane.
fn three_tiers() -> LinuxFabric {
    let pods = Some(PodShape { t0s: 2, t1s: 2, t2s_per_t1: 2 });
    let rates = LinuxFabric { core_rate: Some(250_000_000), ..fabric() };
    LinuxFabric { planes: 1, hosts: 8, t1s: 4, pods, teams: Team::of_groups(8, &[]), ..rates }
}

#[test]
fn three_tiers_are_built_of_the_tables_that_walks_test() {
    let fabric = three_tiers();
    let steps = build(&fabric);
    assert_eq!((fabric.t0s(), fabric.t2s(), fabric.nodes().len()), (4, 4, 8 + 4 + 4 + 4));
    let names = |node| fabric.ports(node).into_iter().map(|port| port.name).collect::<Vec<_>>();
    assert_eq!(names(Node::T0(0, 3)), ["h6", "h7", "u2", "u3"]);
    assert_eq!(names(Node::T1(0, 3)), ["d2", "d3", "u2", "u3"]);
    assert_eq!(names(Node::T2(0, 3)), ["d1", "d3"]);
    let cables = steps.iter().filter(|s| s.namespace.is_none()).flat_map(|s| &s.lines);
    assert_eq!(cables.filter(|l| l.starts_with("link add")).count(), 8 + 4 * 2 + 4 * 2);
    for (space, line) in [
        ("sw-t0-p0-3", "route replace fcbb:bb00:4:8002::/64 via fe80::8002 dev h7 metric 100"),
        ("sw-t0-p0-3", "route replace fcbb:bb00:e004::/48 via fe80::4004 dev u3 metric 100"),
        ("sw-t1-p0-3", "route replace fcbb:bb00:4::/48 via fe80::4 dev d3 metric 100"),
        ("sw-t1-p0-3", "route replace fcbb:bb00:c004::/48 via fe80::c004 dev u3 metric 100"),
        ("sw-t2-p0-3", "route replace fcbb:bb00:4002::/48 via fe80::4002 dev d1 metric 100"),
        (
            "sw-t2-p0-3",
            "route replace fcbb:bb00:c004::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev sid0",
        ),
        ("sw-h7", "route replace fcbb:bb00::/34 via fe80::4 dev p0 metric 100"),
        ("sw-h7", "route replace fcbb:bb00:e000::/35 via fe80::4 dev p0 metric 100"),
    ] {
        let found = lines(&steps, space, Tool::Ip);
        assert!(found.iter().any(|l| l == line), "{line} in {found:#?}");
    }
    let shaper = lines(&steps, "sw-t2-p0-0", Tool::Tc);
    assert!(shaper[0].contains("dev d0 root handle 1: tbf rate 250000000bit"), "{shaper:?}");
    for node in fabric.nodes() {
        assert_eq!(fabric.named(&node.to_string()), Some(node));
    }
    assert_eq!((fabric.named("agg1.0"), fabric.named("core3.p0")), (Some(Node::T1(0, 2)), Some(Node::T2(0, 3))));
    assert_eq!((fabric.named("agg2.0"), fabric.named("agg1.2"), fabric.named("core4")), (None, None, None));
    for (text, target) in [
        ("agg1.0-core1", "link:p0:t1-2:t2-1"),
        ("link:p0:t0-3:t1-2", "link:p0:t0-3:t1-2"),
        ("core3", "switch:p0:t2-3"),
        ("loss:p0:agg0.1:to:core2:2%", "loss:p0:t1-1:to:t2-2:2%"),
    ] {
        assert_eq!(Target::parse(&fabric, text).expect(text).to_string(), target);
    }
    for (text, said) in [
        ("agg0.0-core2", "all T1s of their pod (and T1s to their own T2s)"),
        ("agg9.0", "agg0.0 to agg1.1, core0 to core3"),
        ("link:p0:t0-0:t2-9", "t2-0 to t2-3"),
    ] {
        let problem = Target::parse(&fabric, text).expect_err(text);
        assert!(problem.contains(said), "{text}: {problem}");
    }
    // Along each of the four trees every member is reached once; one core carries copies to the other pod.
    assert_eq!(fabric.trees(), 4);
    let team = &fabric.teams[0];
    for tree in 0..4 {
        let (reached, crossed) = cast(&fabric, team, 1, 0, tree);
        assert_eq!((reached, crossed.len()), (vec![0, 2, 3, 4, 5, 6, 7], 2));
    }
}

#[test]
fn ports_are_shaped_to_the_scenario_and_hosts_never_drop_at_their_own() {
    let steps = build(&fabric());
    let shaper = |limit| format!("qdisc replace dev p0 root handle 1: tbf rate 500000000bit burst 20000 limit {limit}");
    assert_eq!(lines(&steps, "sw-h0", Tool::Tc)[0], shaper(64 << 20));
    assert_eq!(lines(&steps, "sw-t1-p0-0", Tool::Tc)[0], shaper(65_536).replace("p0", "d0"));
    let gigabit = LinuxFabric { host_rate: Some(1_000_000_000), ..fabric() };
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
    // Packets that arrive at either end are removed without being counted (4), unicast and copies alike.
    let stolen = |port| {
        format!(
            "sw-{port}: tc qdisc replace dev {dev} clsact\n\
             sw-{port}: tc filter replace dev {dev} ingress pref 1 handle 1 protocol ipv6 bpf bytecode '1,6 0 0 4' da",
            dev = if port == "t0-p0-0" { "u1" } else { "d0" }
        )
    };
    assert_eq!(text, [stolen("t0-p0-0"), stolen("t1-p0-1")]);
    let back = change(&fabric, &link, &whole);
    assert_eq!(back[0].lines[2], "filter del dev u1 ingress pref 1");
    assert!(change(&fabric, &link, &link).is_empty());

    // The settings that a port loses when it goes down come back with it. Other failures stay.
    let port = failures(&fabric, &["port:h0:p1", "plane:p1"]);
    let broken = change(&fabric, &whole, &port);
    assert_eq!(lines(&broken, "sw-h0", Tool::Ip), ["link set p1 down"]);
    assert_eq!(lines(&broken, "sw-h0", Tool::Tc).len(), 2);
    let healed = port.without(Some(Target::Port(0, 1)));
    let steps = change(&fabric, &port, &healed);
    let back = lines(&steps, "sw-h0", Tool::Ip);
    assert_eq!(back[0], "link set p1 up");
    assert!(
        back[2].starts_with("neigh replace") && back[3].starts_with("route replace fcbb:bb00:800::/37"),
        "{back:#?}"
    );
    assert!(lines(&steps, "sw-h0", Tool::Tc).is_empty());
    // A loss takes effect again when the silence ends.
    let both = failures(&fabric, &["loss:p0:5%", "plane:p0"]);
    let loud = lines(&change(&fabric, &both, &both.without(Some(Target::Plane(0)))), "sw-t1-p0-0", Tool::Tc);
    assert_eq!(loud.iter().filter(|line| line.contains("53 1 0 214748364,")).count(), 2, "{loud:?}");
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
    let marking = Marking { low: 20_000, high: 40_000, chance_ppm: 800_000, last_hop: false };
    LinuxFabric { marking: Some(marking), trimming: true, ..fabric() }
}

#[test]
fn ports_that_mark_and_trim_have_classes_and_a_program_made_for_their_numbers() {
    let fabric = trimming();
    let steps = build(&fabric);
    let objects = steps.iter().find(|step| step.tool == Tool::Clang).expect("programs are compiled");
    // Ports to hosts give the DSCP of the last hop to trimmed packets, and mark only if the scenario wants it.
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
    // A host's own port keeps its single queue, and sends only packets that a switch can trim.
    assert!(lines(&steps, "sw-h0", Tool::Tc).iter().all(|line| line.contains("tbf")));
    assert!(lines(&steps, "sw-h0", Tool::Ip).contains(&"link set p1 gso_max_segs 1".to_string()));
    // If programs are not available, a note says so.
    let plain = fabric.without_program("there is no clang");
    assert!(plain.notes.contains(&"trimming: off, there is no clang".to_string()), "{:?}", plain.notes);
    assert!(build(&plain).iter().all(|step| step.tool != Tool::Clang));
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
    assert!(lines.iter().all(|line| !line.contains("root")), "waiting packets stay in their queue: {lines:?}");
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
    assert_eq!(at, ["sw-h0", "sw-t0-p0-0"], "both ends lose arriving packets");
    let one = change(&fabric, &Failures::default(), &failures(&fabric, &["loss:p0:t0-0:to:h0:2%"]));
    assert_eq!(one.iter().filter_map(|step| step.namespace.as_deref()).collect::<Vec<_>>(), ["sw-h0"]);
    // Healing one direction leaves the program of the other direction alone.
    let healed =
        lines(&change(&fabric, &failures(&fabric, &["loss:p0:2%"]), &Failures::default()), "sw-t1-p0-0", Tool::Tc);
    assert!(healed.iter().all(|line| !line.contains("del dev d0 clsact")), "{healed:?}");
}

/// The hosts that one host's cast along a tree reaches, by the lines of the switches, and the number of times that it
/// crosses each T1.
fn cast(fabric: &LinuxFabric, team: &Team, from: u16, plane: u8, tree: u16) -> (Vec<u16>, BTreeMap<Node, u32>) {
    let copies = fabric.copies(team, plane, tree);
    let (mut reached, mut crossed) = (Vec::new(), BTreeMap::new());
    let mut at = vec![(Node::Host(from), Node::T0(plane, from / fabric.hosts_per_t0))];
    while let Some((last, here)) = at.pop() {
        match here {
            Node::Host(host) => reached.push(host),
            Node::T1(..) => *crossed.entry(here).or_default() += 1,
            Node::T0(..) | Node::T2(..) => {}
        }
        let next = copies.get(&(here, last)).into_iter().flatten();
        at.extend(next.map(|&next| (here, next)));
        assert!(at.len() + reached.len() < 1000, "a packet goes in circles");
    }
    reached.sort_unstable();
    (reached, crossed)
}

#[test]
fn a_cast_reaches_every_other_member_once_over_the_t1_of_its_tree() {
    let one_t0 = LinuxFabric { hosts_per_t0: 4, ..fabric() };
    let line = crate::line::Line {
        name: "a".into(),
        latency_ns: 1,
        rate: None,
        queue: 1,
        loss: [crate::line::Losses::new(0.0, strandway_fabric::loss::Burst::NONE); 2],
        reorder: None,
        seed: 1,
    };
    // Three sites of two hosts, joined by two links each in both planes.
    let sites = LinuxFabric { hosts: 6, t1s: 6, lines: vec![line; 12], ..fabric() };
    assert_eq!([fabric().trees(), one_t0.trees(), sites.trees()], [2, 2, 2]);
    for fabric in [fabric(), one_t0, sites] {
        let all: Vec<u16> = (0..fabric.hosts).collect();
        for members in [&all[..], &all[1..], &[0, 3], &[0, 1]] {
            let team = Team { number: 7, hosts: members.to_vec() };
            for (plane, tree) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                for &from in members {
                    let (reached, crossed) = cast(&fabric, &team, from, plane, tree);
                    let others: Vec<u16> = members.iter().copied().filter(|&host| host != from).collect();
                    assert_eq!(reached, others, "from h{from} along tree {tree} of {members:?}");
                    let t0s: BTreeSet<u16> = members.iter().map(|host| host / fabric.hosts_per_t0).collect();
                    let t1s = match fabric.lines.is_empty() {
                        true => usize::from(t0s.len() > 1),
                        false => t0s.len() - 1,
                    };
                    assert_eq!(crossed.len(), t1s, "{crossed:?}");
                    let right = |node: &Node| matches!(node, Node::T1(p, j) if *p == plane && j % 2 == tree);
                    assert!(crossed.keys().all(right) && crossed.values().all(|&count| count == 1), "{crossed:?}");
                }
                let (reached, _) = cast(&fabric, &Team { number: 7, hosts: vec![0, 3] }, 1, plane, tree);
                assert_eq!(reached, Vec::<u16>::new(), "a host that is not a member reaches no host");
            }
        }
    }
}

#[test]
fn switches_copy_by_filters_behind_those_that_lose() {
    let fabric = fabric();
    let t0 = lines(&build(&fabric), "sw-t0-p1-0", Tool::Tc);
    for line in [
        "qdisc replace dev h1 clsact",
        "filter add dev h1 ingress pref 2 protocol ipv6 u32 match ip6 src fcbb:bb00:801:8802::/128 \
         match ip6 dst ff1e::8401:0/128 action mirred egress mirror dev h0 pipe action mirred egress redirect dev u1",
        "filter add dev u1 ingress pref 2 protocol ipv6 u32 match ip6 dst ff1e::8401:0/128 \
         action mirred egress mirror dev h0 pipe action mirred egress redirect dev h1",
    ] {
        assert!(t0.iter().any(|l| l == line), "{line} in {t0:#?}");
    }
    // The filter of one tree is at one uplink.
    assert_eq!(t0.iter().filter(|l| l.contains("dev u1 ingress")).count(), 1, "{t0:#?}");
    let pair = Team::parse(&fabric, 300, "h3, host0").expect("two hosts");
    assert_eq!(pair, Team { number: 300, hosts: vec![0, 3] });
    let new = regroup(&fabric, &[], std::slice::from_ref(&pair));
    assert_eq!(
        lines(&new, "sw-t1-p0-1", Tool::Tc)[2..],
        [
            "filter add dev d0 ingress pref 302 protocol ipv6 u32 match ip6 dst ff1e::8001:12c/128 action mirred egress redirect dev d1",
            "filter add dev d1 ingress pref 302 protocol ipv6 u32 match ip6 dst ff1e::8001:12c/128 action mirred egress redirect dev d0",
        ]
    );
    let gone = regroup(&fabric, std::slice::from_ref(&pair), &[]);
    let dels = ["d0", "d1"].map(|port| format!("filter del dev {port} ingress pref 302 protocol ipv6"));
    assert_eq!(lines(&gone, "sw-t1-p0-1", Tool::Tc), dels);
    assert!(regroup(&fabric, &fabric.teams, &fabric.teams).is_empty());
    for (hosts, said) in
        [("h0,h4", "`h4` is no host; hosts are h0 to h3"), ("h0,h0", "named twice"), ("h0", "two hosts")]
    {
        let problem = Team::parse(&fabric, 1, hosts).expect_err(hosts);
        assert!(problem.contains(said), "{hosts}: {problem}");
    }
}

#[test]
fn more_copies_than_a_filter_makes_are_shared_by_several() {
    let fabric = LinuxFabric { hosts: 64, hosts_per_t0: 64, teams: Team::of_groups(64, &[]), ..fabric() };
    let t0 = lines(&build(&fabric), "sw-t0-p0-0", Tool::Tc);
    let of_h5: Vec<&String> =
        t0.iter().filter(|l| l.contains("dev h5 ingress") && l.contains("ff1e::8000:0/")).collect();
    let [first, second] = of_h5[..] else { panic!("{of_h5:#?}") };
    assert_eq!([first, second].map(|line| line.matches(" action ").count()), [32, 31]);
    assert!(first.ends_with("mirror dev h32 continue") && second.ends_with("redirect dev h63"), "{first}\n{second}");
}

#[test]
fn the_scenarios_groups_are_teams_each_set_of_hosts_once() {
    use strandway_fabric::Members;
    use strandway_fabric::topology::{Level, Shape, Topology};
    use strandway_proto::units::{Rate, Span};

    let level = Level { rate: Rate::from_gbps(1), latency: Span::from_us(1) };
    let shape = Shape { hosts: 4, planes: 2, hosts_per_leaf: 2, spines: 2, leaf_bundle: 1, pods: None };
    let topology = Topology::new(shape, [level; 3], [Span::ZERO; 3]).expect("a valid shape");
    let group = |hosts: &[u32]| Members::new(&topology, hosts.iter().map(|&h| strandway_proto::HostId(h)).collect());
    let groups = [group(&[3, 0]), group(&[0, 1, 2, 3]), group(&[0, 3]), group(&[1, 2])];
    let fabric = LinuxFabric { teams: Team::of_groups(4, &groups), ..fabric() };
    let teams: Vec<String> = fabric.teams.iter().map(Team::to_string).collect();
    assert_eq!(teams, ["0 (h0 h1 h2 h3)", "1 (h0 h3)", "2 (h1 h2)"]);
    assert_eq!(groups.each_ref().map(|group| fabric.team_of(group)), [Some(1), Some(0), Some(1), Some(2)]);
    assert_eq!(fabric.team_of(&group(&[0, 1])), None);
    let without = fabric.without_copies("there is no mirred");
    assert!(without.teams.is_empty() && without.notes == ["multicast: off, there is no mirred"], "{:?}", without.notes);
}

#[test]
fn names_of_nodes_are_read_as_they_are_written() {
    for node in fabric().nodes() {
        assert_eq!(Node::named(&node.to_string()), Some(node));
    }
    for other in ["", "h", "h01", "h-1", "t0-p0", "t3-p0-0", "t0-p300-0", "x"] {
        assert_eq!(Node::named(other), None, "{other}");
    }
    for name in ["", "a/b", "..", "a b", "abcdefghijklmnopqrstu"] {
        assert!(down(name, true).is_err() && status(name).is_err() && fail(name, "plane:p0").is_err(), "{name}");
    }
}
