//! Data in MRC's published layout: two nodes in a namespace of their own, on raw sockets.

use super::support::{self, Pair, in_mrc_namespace, pattern, v6};
use std::net::SocketAddrV6;
use std::process::{Child, Command, Stdio};
use strandway_proto::Span;
use strandway_udp::{Completion, Config, Error, Layout, Node, Protection, Routes};

const BYTES: usize = 300_001;

fn config(planes: u8, host: u8) -> Config {
    let mut config = Config { layout: Layout::MRC, protection: Protection::None, ..support::config("mrc", 1) };
    // Nothing is lost here; on a busy machine a short timeout would count late packets as lost.
    config.retransmit_min = Span::from_ms(500);
    config.planes = (0..planes).map(|plane| format!("[fd00:{plane}::{host}]:0").parse().expect("an address")).collect();
    config
}

/// Two nodes, each with addresses of its own.
fn pair(planes: u8) -> Pair {
    let server = Node::bind(config(planes, 2)).expect("raw sockets");
    let mut client = Node::bind(config(planes, 1)).expect("raw sockets");
    let addresses: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
    let connection = client.connect(&addresses).expect("a call");
    Pair::of(client, server, connection)
}

#[test]
fn writes_and_sends_arrive_over_every_plane() {
    if !in_mrc_namespace("writes_and_sends_arrive_over_every_plane") {
        return;
    }
    let mut pair = pair(2);
    let (inbox, remote) = pair.exposed(BYTES);
    assert!(remote.key > 0 && remote.key <= u64::from(u32::MAX), "RETH has 32 bits for a key");
    for round in 0..4u32 {
        let source = pattern(u64::from(round), BYTES);
        let outbox = pair.client.register(source.clone());
        // The first half without an immediate, then the second with one, which comes when both are there.
        let half = BYTES / 2;
        pair.client.write(pair.ends[0], outbox, 0..half, remote, 0, None).expect("posted");
        pair.client.write(pair.ends[0], outbox, half..BYTES, remote, half as u64, Some(round)).expect("posted");
        let Completion::Written { immediate, bytes, .. } = pair.next(1) else { panic!("only writes come") };
        assert_eq!((immediate, bytes), (round, (BYTES - half) as u64));
        assert!(pair.server.memory(inbox).expect("registered") == source, "round {round}");
        assert!(matches!(pair.next(0), Completion::Sent { .. }));
        assert!(matches!(pair.next(0), Completion::Sent { .. }));
    }
    // Sends go the other way, into receives of several lengths.
    let landing = pair.client.register(vec![0; 10_000]);
    let source = pattern(9, 5_000);
    let outbox = pair.server.register(source.clone());
    for (at, length) in [(0, 5_000), (5_000, 1), (6_000, 0)] {
        pair.client.recv(pair.ends[0], landing, at..10_000).expect("posted");
        pair.server.send(pair.ends[1], outbox, 0..length).expect("posted");
        let Completion::Received { bytes, .. } = pair.next(0) else { panic!("only receives come") };
        assert_eq!(bytes, length as u64);
        assert!(matches!(pair.next(1), Completion::Sent { .. }));
        assert_eq!(pair.client.memory(landing).expect("registered")[at..at + length], source[..length]);
    }
    pair.run(std::time::Duration::from_millis(50));
    let [client, server] = [
        pair.client.observe().connection_counters(pair.ends[0]).expect("open"),
        pair.server.observe().connection_counters(pair.ends[1]).expect("open"),
    ];
    assert_eq!(server.received_bytes.iter().sum::<u64>(), 4 * BYTES as u64, "every byte counts once");
    assert!(server.received_bytes.iter().all(|&bytes| bytes > BYTES as u64), "{:?}", server.received_bytes);
    assert_eq!((client.malformed, server.malformed), (0, 0));
    assert!(server.transport_acks_sent > 0, "{server:?}");
    assert_eq!(client.transport_acks_received, server.transport_acks_sent);
    assert_eq!(server.transport_acks_received, client.transport_acks_sent);
    for counters in [pair.client.observe().counters(), pair.server.observe().counters()] {
        assert_eq!((counters.malformed, counters.wrong_icrc), (0, 0));
    }
}

#[test]
fn a_write_beyond_what_is_exposed_is_refused_at_the_transport() {
    if !in_mrc_namespace("a_write_beyond_what_is_exposed_is_refused_at_the_transport") {
        return;
    }
    let mut pair = pair(1);
    let (inbox, remote) = pair.exposed(1_000);
    assert!(pair.server.revoke(remote));
    let outbox = pair.client.register(vec![7; 1_000]);
    pair.client.write(pair.ends[0], outbox, 0..1_000, remote, 0, None).expect("posted");
    use strandway_udp::Reason::RemoteAccess;
    assert!(matches!(pair.next(0), Completion::Closed { reason: RemoteAccess, .. }));
    assert!(matches!(pair.next(1), Completion::Closed { reason: RemoteAccess, .. }));
    assert_eq!(pair.server.memory(inbox).expect("registered"), [0; 1_000]);
}

#[test]
fn nodes_at_one_address_tell_their_packets_apart_by_queue_pair() {
    if !in_mrc_namespace("nodes_at_one_address_tell_their_packets_apart_by_queue_pair") {
        return;
    }
    let server = Node::bind(config(1, 1)).expect("raw sockets");
    let mut client = Node::bind(config(1, 1)).expect("raw sockets");
    let addresses: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
    let connection = client.connect(&addresses).expect("a call");
    let mut pair = Pair::of(client, server, connection);
    let (inbox, remote) = pair.exposed(BYTES);
    let source = pattern(3, BYTES);
    let outbox = pair.client.register(source.clone());
    pair.client.write(pair.ends[0], outbox, 0..BYTES, remote, 0, Some(1)).expect("posted");
    assert!(matches!(pair.next(1), Completion::Written { immediate: 1, .. }));
    assert!(pair.server.memory(inbox).expect("registered") == source);
    assert!(pair.client.observe().counters().strays > 0, "each node reads the packets of both");
}

#[test]
fn messages_that_the_layout_cannot_carry_are_refused_with_a_remedy() {
    let said = |change: fn(&mut Config)| {
        let mut config = config(1, 1);
        change(&mut config);
        match Node::bind(config) {
            Err(Error::Config(said)) => said,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was accepted"),
        }
    };
    let encrypted = said(|config| config.protection = Protection::Encrypted);
    assert!(encrypted.contains("no room for a seal") && encrypted.contains("protection none"), "{encrypted}");
    assert!(said(|config| config.protection = Protection::Authenticated).contains("no room for a seal"));
    let other = said(|config| *config = config.clone().profile("uec").expect("a preset"));
    assert!(other.contains("uec") && other.contains("take mrc"), "{other}");
    assert!(said(|config| config.payload = 1_342).contains("take 1340"));
    assert!(said(|config| config.routes = Routes::SourcePorts(4)).contains("entropy value"));
    assert!(said(|config| config.layout = Layout::Mrc { port: 0 }).contains("UDP port"));
}

#[test]
fn the_two_sides_must_have_the_same_layout() {
    if !in_mrc_namespace("the_two_sides_must_have_the_same_layout") {
        return;
    }
    let mut server = Node::bind(Config { layout: Layout::Frame, ..config(1, 2) }).expect("sockets");
    let mut client = Node::bind(config(1, 1)).expect("raw sockets");
    let addresses: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
    client.connect(&addresses).expect("a call");
    loop {
        server.poll();
        match client.poll() {
            Some(Completion::Closed { reason, .. }) => {
                assert_eq!(reason, strandway_udp::Reason::OtherProfile);
                return;
            }
            Some(other) => panic!("{other:?}"),
            None => std::thread::yield_now(),
        }
    }
}

/// A capture of everything on the loopback, while it lives.
struct Capture {
    child: Child,
    file: std::path::PathBuf,
}

impl Capture {
    /// Starts a capture. Returns `None` without dumpcap.
    fn begin() -> Option<Capture> {
        let file = std::env::temp_dir().join(format!("strandway-mrc-{}.pcapng", std::process::id()));
        let mut dumpcap = Command::new("dumpcap");
        dumpcap.args(["-q", "-i", "lo", "-w"]).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let child = dumpcap.spawn().ok()?;
        let capture = Capture { child, file };
        capture.wait_for(b"strandway: the capture has begun");
        Some(capture)
    }

    /// Sends datagrams with this mark until one of them is in the file. A capture keeps the order of packets, so the
    /// file then has all packets that were sent before.
    fn wait_for(&self, mark: &[u8]) {
        let socket = std::net::UdpSocket::bind("[::1]:0").expect("a socket");
        for _ in 0..1_000 {
            socket.send_to(mark, "[::1]:9").ok();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let bytes = std::fs::read(&self.file).unwrap_or_default();
            if bytes.windows(mark.len()).any(|window| window == mark) {
                return;
            }
        }
        panic!("the capture shows no packet with {:?}", String::from_utf8_lossy(mark));
    }

    /// One line per MRC packet, with these fields separated by tabs.
    fn end(mut self, fields: &[&str]) -> Vec<Vec<String>> {
        self.wait_for(b"strandway: the capture may end");
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("it runs").success());
        self.child.wait().expect("it ends");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wireshark/strandway.lua");
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-r"]).arg(&self.file).args(["-X", &format!("lua_script:{script}")]);
        // The source port is the lower part of an EV, and may be the port of another protocol.
        tshark.args(["-o", "udp.try_heuristic_first:TRUE"]);
        tshark.args(["-Y", "strandway.format == \"MRC as published\"", "-T", "fields"]);
        for field in fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().expect("it runs");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !complaint.contains("Lua"), "{complaint}");
        let text = String::from_utf8_lossy(&output.stdout).to_string();
        text.lines().map(|line| line.split('\t').map(str::to_string).collect()).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}

#[test]
fn tshark_reads_a_capture_of_the_wire() {
    if !in_mrc_namespace("tshark_reads_a_capture_of_the_wire") {
        return;
    }
    if Command::new("tshark").arg("-v").output().is_err() {
        return eprintln!("skipped: tshark is not installed");
    }
    let Some(capture) = Capture::begin() else { return eprintln!("skipped: dumpcap is not installed") };
    let mut pair = pair(2);
    let (_, remote) = pair.exposed(20_001);
    let outbox = pair.client.register(pattern(1, 20_001));
    pair.client.write(pair.ends[0], outbox, 0..20_001, remote, 0, Some(77)).expect("posted");
    assert!(matches!(pair.next(1), Completion::Written { immediate: 77, .. }));
    assert!(matches!(pair.next(0), Completion::Sent { .. }));
    pair.run(std::time::Duration::from_millis(20));
    let names = ["type", "icrc", "psn", "address", "key", "length", "message_length", "immediate", "msn", "plane"];
    let names = names.map(|name| format!("strandway.{name}"));
    let mut fields: Vec<&str> = names.iter().map(String::as_str).collect();
    fields.extend(["_ws.expert.message", "ipv6.src", "strandway.cumulative", "strandway.syndrome"]);
    let lines = capture.end(&fields);
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).expect("a number"),
        None => text.parse::<u64>().expect("a number"),
    };
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    let mut bytes = std::collections::BTreeMap::new();
    for line in &lines {
        *seen.entry(line[0].as_str()).or_default() += 1;
        assert_eq!(line[1], "good", "{line:?}");
        // Wireshark asks for a UDP checksum over IPv6; MRC's inner datagrams have none.
        assert!(line[10].is_empty() || line[10] == "Illegal checksum value (0)", "{line:?}");
        if line[0] == "data" {
            let (psn, address, length) = (number(&line[2]), number(&line[3]), number(&line[5]));
            assert_eq!(address, psn * 1_344, "a range begins at address 0: {line:?}");
            assert_eq!((number(&line[4]), number(&line[6]), number(&line[8])), (remote.key, 20_001, 0));
            assert_eq!(line[7], if psn == 14 { "77" } else { "" }, "{line:?}");
            assert!(line[11].starts_with(&format!("fd00:{}::1", line[9]).replace(":0::", "::")), "{line:?}");
            bytes.insert(psn, length);
        }
        if line[0] == "transport_ack" {
            assert_eq!((number(&line[12]), number(&line[13])), (15, 0x1f), "{line:?}");
            assert_eq!(line[8], "1", "one message is complete");
        }
    }
    assert_eq!(bytes.len(), 15, "{lines:#?}");
    assert_eq!(bytes.values().sum::<u64>(), 20_001);
    assert!(seen["ack"] >= 2 && seen["transport_ack"] >= 1, "{seen:?}");
}
