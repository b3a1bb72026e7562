//! Tests of exports without files.

use super::*;
use crate::PodShape;
use crate::tests::fabric;
use strandway_proto::Bytes;

fn files(fabric: &LinuxFabric, system: System) -> BTreeMap<String, String> {
    let made = export(fabric, &Buffers::default(), system, &Limits::default(), &|host, _| format!("node {host}\n"));
    made.expect("no limits").files
}

#[test]
fn every_route_of_a_namespace_is_a_route_of_every_system() {
    let three = LinuxFabric {
        planes: 1,
        hosts: 16,
        t1s: 8,
        pods: Some(PodShape { t0s: 2, t1s: 2, t2s_per_t1: 2 }),
        core_rate: Some(500_000_000),
        ..fabric()
    };
    for fabric in [fabric(), three] {
        let steps = crate::build(&fabric);
        for (system, neutral) in [(System::Sonic, false), (System::Frr, true), (System::Eos, false)] {
            let files = files(&fabric, system);
            for node in fabric.nodes().into_iter().filter(|node| !matches!(node, Node::Host(_))) {
                let own: String = files
                    .iter()
                    .filter(|(name, _)| name.split(['/', '.']).next() == Some(&node.to_string()))
                    .map(|(_, text)| &text[..])
                    .collect();
                let space = Some(fabric.namespace(node));
                let lines = steps.iter().filter(|step| step.namespace == space).flat_map(|step| &step.lines);
                let routes = lines.filter_map(|line| line.strip_prefix("route replace fcbb:"));
                for route in routes.filter_map(|line| line.split(' ').next()) {
                    let is_neutral = route.starts_with("bb00:e");
                    let is_own = system == System::Eos && !route.ends_with("/64") && !own.contains(route);
                    // EOS names its own locator by its number alone.
                    let said = own.contains(route) || is_own && own.contains("end usid");
                    assert!(said || is_neutral && !neutral, "{system:?}: {node} has no route to fcbb:{route}");
                }
            }
        }
    }
}

#[test]
fn needs_are_those_of_the_neediest_switch_and_the_limit_itself_fits() {
    let fabric = fabric();
    let buffers = Buffers { control_queue: 1000, ..Buffers::default() };
    let of = |limits: &Limits| export(&fabric, &buffers, System::Sonic, limits, &|_, _| String::new());
    let needs = of(&Limits::default()).expect("no limits").needs;
    let numbers: Vec<(&str, u64)> = needs.iter().map(|need| (need.key, need.needs)).collect();
    assert_eq!(numbers, [("ports", 4), ("sids", 1), ("routes", 5), ("buffer", 4 * 66_536), ("mtu", 9000)]);
    assert!(of(&Limits { routes: Some(5), ..Limits::default() }).is_ok());
    let excess = of(&Limits { routes: Some(4), ports: Some(4), ..Limits::default() }).expect_err("too few");
    assert_eq!(excess.iter().map(Need::to_string).collect::<Vec<_>>(), ["routes: t0-p0-0 needs 5, the switch has 4"]);
}

#[test]
fn pauses_and_a_shared_buffer_become_thresholds_and_odd_numbers_are_named() {
    let pfc = PfcSettings { xoff: Bytes(60_000), xon: Bytes(40_000), headroom: Bytes(100_000) };
    let shared = SharedSettings { buffer: Bytes(8_000_000), alpha: 0.3 };
    let fabric = LinuxFabric { host_rate: Some(250_000_000_000), ..fabric() };
    let of = |buffers: Buffers| {
        let made = export(&fabric, &buffers, System::Sonic, &Limits::default(), &|_, _| String::new());
        let made = made.expect("no limits");
        let config: serde_json::Value = serde_json::from_str(&made.files["t0-p0-0/config_db.json"]).expect("JSON");
        (config, made.gaps)
    };
    let (config, _) = of(Buffers { pfc: Some(pfc), ..Buffers::default() });
    let group = &config["BUFFER_PROFILE"]["data_group"];
    assert_eq!((group["static_th"].as_str(), group["xon"].as_str()), (Some("60000"), Some("40000")));
    assert_eq!(config["BUFFER_POOL"]["ingress_pool"]["xoff"].as_str(), Some("400000"));
    assert_eq!(config["PORT_QOS_MAP"]["Ethernet0"]["pfc_enable"].as_str(), Some("3"));
    let (config, gaps) = of(Buffers { pfc: Some(pfc), shared: Some(shared), ..Buffers::default() });
    let group = &config["BUFFER_PROFILE"]["data_group"];
    assert_eq!((group["dynamic_th"].as_str(), group["xon_offset"].as_str()), (Some("-2"), Some("40000")));
    assert_eq!(config["BUFFER_POOL"]["ingress_pool"]["size"].as_str(), Some("8000000"));
    for what in ["a dynamic threshold of 0.3 times", "ports of 250000 Mb/s"] {
        assert!(gaps.iter().any(|gap| gap.what.contains(what)), "{what} in {gaps:?}");
    }
    assert_eq!(config["PORT"]["Ethernet0"]["speed"].as_str(), Some("400000"));
    assert_eq!(config["SCHEDULER"]["rate_250000000000"]["pir"].as_str(), Some("31250000000"));
}
