//! `kind = "sites"` in scenario files: the meaning of its keys, and the errors for wrong ones.

use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_import::Problems;
use strandway_lab::{Experiment, check, run};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Rate, Span};
use strandway_scenario::parse;
use strandway_sim::Control;

fn read(fabric: &str) -> Result<Experiment, Problems> {
    let flow = "[workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 1, size = \"4 MB\" }]\n";
    check(&parse(&format!("[fabric]\nkind = \"sites\"\n{fabric}\n{flow}"))?)
}

fn sound(fabric: &str) -> Experiment {
    read(fabric).unwrap_or_else(|problems| panic!("{fabric}\n{problems}"))
}

#[test]
fn a_distance_is_a_latency_in_glass_unless_the_papers_rule_is_named() {
    let latency = |fabric: &str| sound(fabric).plan.topology.long_link(0, 1).expect("two sites").level.latency;
    assert_eq!(latency("distance = \"3750 km\""), Span(18_762_980_355));
    assert_eq!(latency("distance = \"3750 km\"\nrule = \"paper\""), Span(12_500_000_000));
    assert_eq!(latency("long_latency = \"40 ms\""), Span::from_ms(40));
}

#[test]
fn each_pair_may_differ_and_inherits_the_rest() {
    let e = sound(
        "sites = 3\nhosts_per_site = 2\ndistance = \"100 km\"\nlong_rate = \"100 Gbps\"\nlong_queue = \"2 ms\"\nloss = 0.001\n\
         [[fabric.long_links]]\nbetween = [2, 0]\nlong_latency = \"9 ms\"\nlong_queue = \"3 MB\"\nloss = \"1 %\"\n\
         burst = \"50 us\"\nloss_one_way = true",
    );
    let topology = &e.plan.topology;
    assert_eq!((topology.sites(), topology.hosts()), (3, 6));
    let (near, far) = (topology.long_link(0, 1).expect("a pair"), topology.long_link(0, 2).expect("a pair"));
    assert_eq!((near.level.rate, near.queue), (Rate::from_gbps(100), Bytes(25_000_000)));
    assert_eq!(
        (far.level.rate, far.level.latency, far.queue),
        (Rate::from_gbps(100), Span::from_ms(9), Bytes(3_000_000))
    );
    let struck: Vec<(Vec<String>, FaultKind)> =
        e.plan.faults.iter().map(|f| (f.links.iter().map(|l| topology.link_name(*l)).collect(), f.kind)).collect();
    let independent = FaultKind::Loss { probability: 0.001, burst: Burst::NONE };
    let bursts = FaultKind::Loss { probability: 0.01, burst: Burst::Time(Span::from_us(50)) };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        struck,
        [
            (names(&["site0->site1", "site1->site0"]), independent),
            (names(&["site2->site0"]), bursts),
            (names(&["site1->site2", "site2->site1"]), independent),
        ]
    );
    assert_eq!(e.faults[1].what, "site2->site0 loses 1 % of packets, for 50 us at a time on average");
}

#[test]
fn queues_are_one_bdp_of_their_link_and_may_be_bytes_or_a_time() {
    let queue = |fabric: &str| sound(fabric).plan.topology.long_link(0, 1).expect("two sites").queue;
    assert_eq!(queue("long_latency = \"12.5 ms\""), Bytes(1_250_000_000));
    assert_eq!(queue("long_latency = \"12.5 ms\"\nlong_queue = \"0.5 BDP\""), Bytes(625_000_000));
    assert_eq!(queue("long_latency = \"12.5 ms\"\nlong_queue = \"1 ms\""), Bytes(50_000_000));
    assert_eq!(queue("long_latency = \"12.5 ms\"\nlong_queue = \"8 MB\""), Bytes(8_000_000));
}

#[test]
fn connections_know_the_round_trip_and_the_rate_of_their_own_way() {
    let e = sound("hosts_per_site = 2\nlong_latency = \"10 ms\"\nlong_rate = \"10 Gbps\"");
    let (plan, control) = (&e.plan, Control::new());
    let profile = &plan.profiles[0];
    let all = strandway_fabric::plan::environment(&plan.topology, &plan.ports, profile);
    let between =
        |a, b| strandway_fabric::plan::environment_between(&plan.topology, &all, profile, HostId(a), HostId(b));
    assert_eq!((between(0, 1).rate, between(0, 2).rate), (Rate::from_gbps(400), Rate::from_gbps(10)));
    assert!(between(0, 1).base_rtt < Span::from_us(5) && between(0, 2).base_rtt > Span::from_ms(20));
    // Within one site no flow takes as long as a long link.
    let report = run(&e, &control).report;
    assert!(report.times.fct_us.max.expect("it finished") < 200.0, "{:?}", report.times.fct_us);
}

#[test]
fn a_report_tells_of_every_long_link_and_of_ranges_that_are_too_short() {
    let e = sound("long_latency = \"5 ms\"\nloss = 0.01");
    let report = run(&e, &Control::new()).report;
    let names: Vec<&str> = report.load.long_links.iter().map(|l| l.link.name.as_str()).collect();
    assert_eq!(names, ["site0->site1", "site1->site0"]);
    let there = &report.load.long_links[0];
    assert_eq!((there.latency_us, there.rate_gbps), (5000.0, 400.0));
    assert!(there.link.lost > 0 && there.lost_share > 0.0, "{there:?}");
    assert!(report.notes.iter().any(|n| n.contains("uec has at most 16,384 packets under way")), "{:?}", report.notes);
    let wide = sound("long_latency = \"5 ms\"\nlong_rate = \"10 Gbps\"");
    assert!(wide.notes.is_empty(), "{:?}", wide.notes);
}

#[test]
fn wrong_keys_of_sites_name_the_key_and_a_remedy() {
    let cases = [
        ("sites = 2", "fabric.distance", "write distance = \"1000 km\" or long_latency = \"5 ms\""),
        ("distance = \"1000\"", "fabric.distance", "needs a unit; write \"1000 km\""),
        ("distance = \"900000 km\"", "fabric.distance", "from \"1 ns\" to \"1 s\""),
        ("distance = \"10 km\"\nlong_latency = \"1 ms\"", "fabric.long_latency", "together with `distance`"),
        ("long_latency = \"1 ms\"\nrule = \"paper\"", "fabric.rule", "write a `distance`"),
        ("sites = 17\ndistance = \"10 km\"", "fabric.sites", "must be at most 16"),
        ("sites = 3\nhosts = 4\ndistance = \"10 km\"", "fabric.hosts", "do not divide into 3 sites"),
        ("distance = \"10 km\"\nloss = 1.5", "fabric.loss", "number from 0 to 1"),
        ("distance = \"10 km\"\nloss = 0.1\nburst = \"0 us\"", "fabric.burst", "must be above zero"),
        ("distance = \"10 km\"\nlong_queue = \"5 s\"", "fabric.long_queue", "write at most \"4 s\""),
        ("distance = \"10 km\"\nlong_queue = \"5 packets\"", "fabric.long_queue", "say, \"1 BDP\""),
        ("distance = \"10 km\"\npfc = true", "fabric.pfc", "does not work over long links"),
        ("distance = \"10 km\"\nshared_buffer = \"9 MB\"", "fabric.shared_buffer", "does not work over long links"),
        ("distance = \"10 km\"\nswitching = \"cut-through\"", "fabric.switching", "store and forward"),
        ("distance = \"10 km\"\nspines = 4", "fabric.spines", "unknown key"),
        ("distance = \"10 km\"\n[[fabric.long_links]]\nbetween = [0, 2]", "fabric.long_links[0].between", "0 to 1"),
        ("distance = \"10 km\"\n[[fabric.long_links]]\nlatency = \"1 ms\"", "fabric.long_links[0]", "is missing"),
    ];
    for (fabric, key, fragment) in cases {
        let said = read(fabric).expect_err(fabric).to_string();
        assert!(said.contains(key) && said.contains(fragment), "{fabric}\n said {said}\n want {key}: {fragment}");
    }
}
