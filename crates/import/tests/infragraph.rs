//! Documents of InfraGraph: what they become, and what is refused.

use strandway_fabric::topology::Level;
use strandway_import::infragraph::{Document, Infrastructure, is_infragraph, parse, parse_protobuf};
use strandway_import::switch_graph::Fabric;
use strandway_import::{Importer, describe_file};
use strandway_proto::units::{Rate, Span};

/// Four servers of two GPUs and two NICs, below two leaves and two spines.
const CLOS: &str = "name: small
devices:
- name: server
  components:
  - {choice: cpu, count: 1, name: cpu}
  - {choice: xpu, count: 2, name: gpu}
  - {choice: nic, count: 2, name: nic}
  - {choice: switch, count: 2, name: nvswitch}
  - {choice: custom, count: 1, custom: {type: mgmt-nic}, name: mgmt}
  links:
  - name: nvlink
    physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 225}, latency: {ns: 300}}
  - name: pcie
  edges:
  - {ep1: {component: gpu}, ep2: {component: nic}, link: pcie, scheme: one2one}
  - {ep1: {component: gpu}, ep2: {component: nvswitch}, link: nvlink, scheme: many2many}
- name: box
  components:
  - {choice: cpu, count: 1, name: asic}
  - {choice: port, count: 8, name: port}
links:
- {name: low, physical: {bandwidth: {gigabits_per_second: 200}, latency: {us: 0.5}}}
- {name: high, physical: {bandwidth: {gigabits_per_second: 400}, latency: {ns: 500}}}
- {name: control}
instances:
- {name: host, device: server, count: 4}
- {name: leaf, device: box, count: 2}
- {name: spine, device: box, count: 2}
- {name: office, device: box, count: 1}
edges:
- {ep1: {instance: 'host[0:2]', component: nic}, ep2: {instance: 'leaf[0]', component: 'port[0:4]'}, link: low, scheme: one2one}
- {ep1: {instance: 'host[2:4]', component: nic}, ep2: {instance: 'leaf[1]', component: 'port[:4]'}, link: low, scheme: one2one}
- {ep1: {instance: 'leaf[0]', component: 'port[4:6]'}, ep2: {instance: spine, component: 'port[0]'}, link: high, scheme: one2one}
- {ep1: {instance: 'leaf[1]', component: 'port[4:6]'}, ep2: {instance: spine, component: 'port[1]'}, link: high, scheme: one2one}
- {ep1: {instance: host, component: mgmt}, ep2: {instance: office, component: 'port[0:4]'}, link: control, scheme: one2one}
";

fn made(text: &str) -> Infrastructure {
    parse("a.yaml", text, None).expect("sound")
}

fn refused(text: &str) -> String {
    parse("a.yaml", text, None).expect_err("refused").to_string()
}

#[test]
fn equal_servers_below_leaves_and_spines_become_a_fabric_and_servers() {
    let made = made(CLOS);
    let Fabric::LeafSpine(fabric) = &made.fabric else { panic!("a leaf-spine fabric: {made:?}") };
    assert_eq!(
        (fabric.gpus, fabric.gpus_per_server, fabric.hosts_per_leaf, fabric.spines, fabric.bundle, fabric.planes),
        (8, 2, 4, 2, 1, 1)
    );
    assert_eq!((fabric.rate, fabric.uplink), (Rate::from_gbps(200), Rate::from_gbps(400)));
    assert_eq!(fabric.latency, Span::from_ns(500));
    // Two NVSwitches of 225 GB/s each.
    assert_eq!(fabric.inside, Some((Rate::from_gbps(3600), Span::from_ns(300))));
    assert_eq!(made.servers.map(|servers| (servers.gpus, servers.nics, servers.rails)), Some((2, 2, false)));
    let notes = ["links \"control\" end at parts of hosts that are no NICs: they are not part of the fabric"];
    assert_eq!(made.notes, notes);
    let said = made.describe();
    assert!(said.contains("kind = \"infragraph\"") && said.contains("[servers]\ngpus = 2\n"), "{said}");
    assert_eq!(Importer::of(CLOS).map(|importer| importer.name), Some("an InfraGraph"));
    assert!(is_infragraph(CLOS) && !is_infragraph("devices: none"));
}

#[test]
fn a_nic_with_several_switches_has_a_port_in_each_plane() {
    // Each NIC has a port below each leaf; nothing joins the leaves.
    let edges = CLOS.find("\nedges:\n").expect("edges") + 1;
    let both = "edges:\n\
        - {ep1: {instance: host, component: nic}, ep2: {instance: leaf, component: 'port[0]'}, link: low, scheme: many2many}\n";
    let Fabric::LeafSpine(fabric) = made(&format!("{}{both}", &CLOS[..edges])).fabric else { panic!("leaves") };
    assert_eq!((fabric.planes, fabric.hosts_per_leaf, fabric.spines), (2, 8, 0));
    assert_eq!(fabric.rate, Rate::from_gbps(400), "of a NIC, both planes together");
}

/// Four switches in a ring, a host with one NIC on each.
fn ring() -> String {
    let mut text = String::from(
        "name: ring\ndevices:\n- name: one\n  components:\n  - {choice: nic, count: 1, name: nic}\n- name: box\n  components:\n  \
         - {choice: port, count: 3, name: port}\nlinks:\n- name: wire\ninstances:\n- {name: host, device: one, count: 4}\n\
         - {name: leaf, device: box, count: 4}\nedges:\n\
         - {ep1: {instance: host, component: nic}, ep2: {instance: leaf, component: 'port[0]'}, link: wire, scheme: one2one}\n",
    );
    for at in 0..4 {
        text.push_str(&format!(
            "- {{ep1: {{instance: 'leaf[{at}]', component: 'port[1]'}}, ep2: {{instance: 'leaf[{}]', component: 'port[2]'}}, link: wire, scheme: one2one}}\n",
            (at + 1) % 4
        ));
    }
    text
}

#[test]
fn other_graphs_become_switches_and_links() {
    let usual = Level { rate: Rate::from_gbps(100), latency: Span::from_us(2) };
    let made = parse("a.yaml", &ring(), Some(usual)).expect("sound");
    let Fabric::Graph(graph) = &made.fabric else { panic!("a graph: {made:?}") };
    assert_eq!((graph.hosts, graph.hosts_per_switch, graph.nic), (4, 1, usual));
    assert_eq!(graph.names, ["leaf-0", "leaf-1", "leaf-2", "leaf-3"]);
    let links: Vec<(u32, u32, Level)> = graph.links.iter().map(|link| (link.a, link.b, link.level)).collect();
    assert_eq!(links, [(0, 1, usual), (0, 3, usual), (1, 2, usual), (2, 3, usual)]);
    assert_eq!(made.notes, ["link \"wire\" has no bandwidth: 100 Gbps is assumed"]);
}

#[test]
fn json_and_protobuf_say_the_same() {
    let text = r#"{"name": "j", "devices": [{"name": "h", "components": [{"name": "nic", "count": 1, "choice": "nic"}]},
        {"name": "s", "components": [{"name": "port", "count": 4, "choice": "port"}]}],
        "links": [{"name": "l", "physical": {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 100.0}}}],
        "instances": [{"name": "a", "device": "h", "count": 2}, {"name": "b", "device": "s", "count": 1}],
        "edges": [{"ep1": {"instance": "a", "component": "nic"}, "ep2": {"instance": "b", "component": "port[0:2]"},
                   "scheme": "one2one", "link": "l"}]}"#;
    let wanted = made(text);
    // The same message, written by hand: field numbers of the package's schema.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }
    let component =
        |name: &str, count: u8, choice: u8| [field(1, name.as_bytes()), vec![0x18, count, 0x20, choice]].concat();
    let device = |name: &str, part: Vec<u8>| field(3, &[field(1, name.as_bytes()), field(3, &part)].concat());
    let width = [vec![0x08, 1, 0x15], 100f32.to_le_bytes().to_vec()].concat();
    let instance = |name: &str, of: &str, count: u8| {
        field(5, &[field(1, name.as_bytes()), field(3, of.as_bytes()), vec![0x20, count]].concat())
    };
    let end = |number, name: &str, part: &str| {
        field(number, &[field(1, name.as_bytes()), field(2, part.as_bytes())].concat())
    };
    let edge = [end(1, "a", "nic"), end(2, "b", "port[0:2]"), vec![0x18, 1], field(4, b"l")].concat();
    let bytes = [
        field(1, b"j"),
        device("h", component("nic", 1, 5)),
        device("s", component("port", 4, 7)),
        field(4, &[field(1, b"l"), field(3, &field(1, &width))].concat()),
        instance("a", "h", 2),
        instance("b", "s", 1),
        field(6, &edge),
    ]
    .concat();
    assert_eq!(parse_protobuf("a.pb", &bytes, None).expect("sound"), wanted);
    for cut in 0..bytes.len() {
        let _ = parse_protobuf("a.pb", &bytes[..cut], None);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pb");
    std::fs::write(&path, &bytes).expect("written");
    assert_eq!(describe_file(&path).expect("sound"), wanted.describe());
}

#[test]
fn a_document_that_was_written_is_read_again() {
    for text in [CLOS.to_string(), ring()] {
        let document = Document::of_text("a.yaml", &text).expect("sound");
        let written = document.to_yaml();
        assert_eq!(Document::of_text("b.yaml", &written).expect("sound"), document, "{written}");
    }
}

#[test]
fn wrong_documents_are_explained() {
    for (from, to, wanted) in [
        ("count: 4}", "count: 0}", "instances = \"host\": has count = 0"),
        ("count: 4}", "count: 99999999}", "instances = \"host\": has count = 99999999"),
        (
            "device: server",
            "device: sever",
            "instances = \"sever\": is no device of this document; did you mean `server`?",
        ),
        (
            "instance: spine",
            "instance: spin",
            "edges = \"spin\": is no instance of this document; did you mean `spine`?",
        ),
        ("link: high", "link: hihg", "edges = \"hihg\": is no link of this document; did you mean `high`?"),
        (
            "component: 'port[0]'",
            "component: 'prot[0]'",
            "names `prot`, which is no component of device \"box\"; did you mean `port`?",
        ),
        ("component: 'port[0]'", "component: 'port[9]'", "edges = \"port[9]\": has index 9, and there are 8"),
        (
            "scheme: one2one}\n- {ep1: {instance: 'host[2:4]'",
            "scheme: ring}\n- {ep1: {instance: 'host[2:4]'",
            "\"ring\": is a scheme",
        ),
        ("gigabits_per_second: 200", "gigatransfers_per_second: 200", "links = \"low\": gives its bandwidth in GT/s"),
        ("gigabits_per_second: 200", "gigabits_per_second: -1", "links = \"low\": has a bandwidth that no link has"),
        ("us: 0.5", "us: .nan", "links = \"low\": has a latency that no link has"),
        (
            "instance: 'host[2:4]', component: nic",
            "instance: 'host[2:4]', component: 'nic[0]'",
            "has 2 linked NICs in host host.0, and 1 in host host.2",
        ),
    ] {
        let text = CLOS.replacen(from, to, 1);
        assert_ne!(text, CLOS, "{from}");
        let said =
            parse("a.yaml", &text, None).map_or_else(|problems| problems.to_string(), |made| format!("{made:?}"));
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(refused("devices: [").starts_with("a.yaml:"), "{}", refused("devices: ["));
    assert!(refused("{\"devices\": 3}").starts_with("a.yaml:1: is no InfraGraph in JSON"));
    assert!(refused("devices: []\ninstances: []").contains("has no link of a host"));
    // A device inside itself.
    let nested = "devices:\n- name: d\n  components:\n  - {choice: device, count: 1, name: d}\ninstances:\n- {name: a, device: d, count: 1}";
    assert!(refused(nested).contains("let no device hold itself"), "{}", refused(nested));
}

#[test]
fn no_cut_or_change_of_a_document_panics() {
    for end in (0..CLOS.len()).step_by(5) {
        let _ = parse("a.yaml", &CLOS[..end], None);
    }
    for (at, _) in CLOS.match_indices(|c: char| c.is_ascii_digit()) {
        for absurd in ["-7", "18446744073709551615", "x", "0", "99"] {
            let _ = parse("a.yaml", &format!("{}{absurd}{}", &CLOS[..at], &CLOS[at + 1..]), None);
        }
    }
    // Aliases of aliases, which grow without bound when they are expanded.
    let mut bomb = String::from("devices: &a0 [x, x]\n");
    for depth in 1..40 {
        bomb.push_str(&format!("k{depth}: &a{depth} [*a{}, *a{}]\n", depth - 1, depth - 1));
    }
    let _ = parse("a.yaml", &format!("{bomb}instances: *a39\n"), None).expect_err("refused");
}
