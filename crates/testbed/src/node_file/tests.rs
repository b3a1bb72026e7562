//! Tests of node files.

use super::*;

const GOOD: &str = r#"
[node]
name = "h2"
host = 2
planes = ["[fcbb:bb00:2:8001::]:4791", "[fcbb:bb00:802:8801::]:4792"]
devices = ["p0", "p1"]
key = "key"
profile = "mrc"
payload = 4096
rate = "1 Gbps"
base_rtt = "250 us"
trimming = true

[srv6]
block = "fcbb:bb00::/32"
t1s = 2
hosts_per_t0 = 2
neutral = true
"#;

#[test]
fn a_node_file_survives_being_written_and_read() {
    let node = NodeFile::from_text("h2.toml", GOOD).expect("all is right");
    assert_eq!((node.name.as_str(), node.host, node.planes.len()), ("h2", 2, 2));
    assert_eq!((node.rate, node.base_rtt), (Rate(1_000_000_000), Span::from_us(250)));
    assert_eq!(node.srv6, Some(Clos::new(2, 2).expect("fits")));
    assert_eq!(NodeFile::from_text("again", &node.to_string()), Ok(node.clone()));
    let few = NodeFile { hosts: Some(4), ..node.clone() };
    assert!(few.peer(3).is_some() && few.peer(4).is_none(), "there are four hosts");
    assert_eq!(NodeFile::from_text("h2.toml", &few.to_string()).expect("its own text"), few);
    let rtt = Span::from_us(120);
    let far =
        NodeFile { distances: vec![Far { hosts: [0, 1], rate: Rate(50_000_000), base_rtt: rtt }], ..node.clone() };
    assert_eq!(NodeFile::from_text("h2.toml", &far.to_string()).expect("its own text"), far);
    let told = far.config(Some(&[1; 32])).expect("a key").distances;
    let peers = "fcbb:bb00:1:8001::".parse().expect("host 0")..="fcbb:bb00:1:8002::".parse().expect("host 1");
    assert_eq!(told[0], Distance { peers, rate: Rate(50_000_000), base_rtt: rtt });
    assert_eq!((told.len(), told[1].peers.start().to_string().as_str()), (2, "fcbb:bb00:801:8801::"));
    let pods = Some(Pods { t0s: 2, t2s_per_t1: 2 });
    let tree = Clos { pods, plane_bits: 1, ..Clos::new(2, 2).expect("fits") };
    let planes = [0, 1].map(|p| SocketAddrV6::new(tree.host(p, 2), 4791 + u16::from(p), 0, 0)).to_vec();
    let three = NodeFile { srv6: Some(tree), planes, ..node.clone() };
    assert_eq!(NodeFile::from_text("h2.toml", &three.to_string()).expect("its own text"), three);
    let denied = vec![Element::parse("p0:t1-1").expect("a switch"), Element::parse("p1").expect("a plane")];
    let told = NodeFile { denied: denied.clone(), ..node.clone() };
    assert_eq!(NodeFile::from_text("h2.toml", &told.to_string()).expect("its own text"), told);
    assert_eq!(told.config(Some(&[1; 32])).expect("a key").denied.parts, denied);
    let obeys = NodeFile { denied_file: Some("denied".into()), ..node.clone() };
    assert_eq!(NodeFile::from_text("h2.toml", &obeys.to_string()).expect("its own text"), obeys);
    assert_eq!(obeys.config(Some(&[1; 32])).expect("a key").denied.file, Some("denied".into()));
    let plain = NodeFile { srv6: None, ..node };
    assert_eq!(NodeFile::from_text("plain", &plain.to_string()), Ok(plain.clone()));
    let planes = ["10.0.0.2:4791", "10.1.0.2:4791"].map(|text| with_port(text).expect("an address")).to_vec();
    let ipv4 = NodeFile { planes, ..plain };
    assert!(ipv4.to_string().contains("planes = [\"10.0.0.2:4791\", \"10.1.0.2:4791\"]"), "{ipv4}");
    assert_eq!(NodeFile::from_text("ipv4", &ipv4.to_string()), Ok(ipv4));
}

#[test]
fn a_node_is_opened_with_what_its_file_says() {
    let node = NodeFile::from_text("h2.toml", GOOD).expect("all is right");
    let config = node.config(Some(&[1; 32])).expect("a key");
    assert_eq!(config.routes, Routes::Srv6 { clos: Clos::new(2, 2).expect("fits"), host: 2 });
    assert_eq!((config.planes.len(), config.devices[1].as_str(), config.payload), (2, "p1", 4096));
    assert!(config.trimming);
    let peer = node.peer(5).expect("a host of the fabric");
    assert_eq!(peer[1].to_string(), "[fcbb:bb00:803:8802::]:4792");
    assert!(node.config(None).expect_err("no such file").contains("/dev/urandom"));
}

#[test]
fn every_mistake_is_named_at_once_with_its_remedy() {
    for (from, to, said) in [
        ("host = 2", "hots = 2", "node.hots = 2: unknown key; did you mean `host`?"),
        ("host = 2", "", "node.host: is missing; write, say, host = 0"),
        (
            "host = 2",
            "host = 3",
            "fcbb:bb00:2:8001:: is not the address of host 3 in plane 0; write \"[fcbb:bb00:2:8002::]:PORT\"",
        ),
        ("host = 2", "host = 6000", "has no address: 3001 T0 switches of a plane do not fit"),
        (
            "fcbb:bb00:802:8801::]:4792",
            "fcbb:bb00:2:8001::]:4791",
            "is in the list twice; give each plane a port of its own",
        ),
        ("]:4792", "", "is no address with a port"),
        ("[fcbb:bb00:802:8801::]:4792", "10.0.0.1:4792", "10.0.0.1 is an IPv4 address, and SRv6 source routes"),
        ("mrc", "mrq", "`mrq` is no profile; did you mean `mrc`?"),
        ("mrc", "rocev2/hpcc", "`hpcc` needs records of switches, which only the simulator has; take another"),
        ("\"1 Gbps\"", "1", "node.rate = 1: needs a unit"),
        ("250 us", "0 us", "must be above zero"),
        ("::/32", "::/33", "is no block of 32 bits"),
        ("\"fcbb:bb00::/32\"", "\"ff02:0::/32\"", "cannot be a block of micro segments"),
        ("t1s = 2", "t1s = 1024", "srv6.t1s = 1024: must be at most 1023"),
        ("t1s = 2", "t1s = 2\nt0s_per_pod = 2", "srv6.t2s_per_t1: is missing; write, say, t2s_per_t1 = 2"),
        ("t1s = 2", "", "srv6.t1s: is missing"),
        (
            "[srv6]",
            "[[distance]]\nfirst = 0\nrate = \"1 Gbps\"\n[srv6]",
            "distance[0].last: is missing; write, say, last = 3",
        ),
        ("[srv6]", "[[distance]]\nrate = \"2 Gbps\"\n[srv6]", "is zero, or more than node.rate"),
        ("[srv6]", "[distance]\nrate = \"2 Gbps\"\n[srv6]", "must be a list of tables; write [[distance]] above each"),
        (
            "t1s = 2",
            "t1s = 2\nt1s_per_pair = 1",
            "srv6.t1s_per_pair = 1: 2 T1 switches of a plane are not 1 for each pair",
        ),
        ("[\"p0\", \"p1\"]", "[\"p0\"]", "must name 2 interfaces; write one for each plane, in order"),
        ("trimming = true", "denied = [\"spine1\"]", "is no list of parts of the fabric; write [\"p0:t1-3\""),
        ("[srv6]", "[srv5]", "srv5 = {...}: unknown section; did you mean `srv6`?"),
        ("[node]", "[node", "not valid TOML"),
    ] {
        let problems = NodeFile::from_text("h2.toml", &GOOD.replacen(from, to, 1)).expect_err(said);
        assert!(problems.to_string().contains(said), "{to}: {problems}");
    }
    let problems = NodeFile::from_text("x", "[node]\nrate = 3\n[srv6]\n").expect_err("much is wrong");
    assert_eq!(problems.0.len(), 5, "{problems}");
}
