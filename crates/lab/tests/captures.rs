//! Captures as a packet analyser reads them: lengths of frames in every run, fields if tshark is installed.

use std::path::PathBuf;
use std::process::Command;
use strandway_fabric::measure::Captured;
use strandway_lab::{Experiment, pcap, run};
use strandway_proto::ControlMessage;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::profile::WireFormat;
use strandway_scenario::parse;
use strandway_sim::Control;

/// One profile for each wire format.
const PROFILES: [&str; 4] = ["rocev2", "uec", "strack", "mrc"];

/// An incast over two planes with marks, trims, and losses on one link. Last packets have odd lengths.
const BUSY: &str = "[fabric]\nhosts = 16\nplanes = 2\nrate = \"100 Gbps\"\nqueue = \"40 kB\"\necn_low = \"10 kB\"\n\
    ecn_high = \"30 kB\"\n[workload]\nkind = \"incast\"\nsenders = 12\nsize = \"300001 B\"\n\
    [[faults]]\nbetween = [\"leaf1.p0\", \"spine0.p0\"]\nkind = \"down\"\nat = \"5 us\"\nuntil = \"200 us\"\nsilent = true\n";

/// Two sites, and a flow over a link with losses between them. Its last packet has an odd length.
const LONG: &str = "[fabric]\nkind = \"sites\"\nlong_latency = \"1 ms\"\nrate = \"10 Gbps\"\nloss = 0.02\n\
    [workload]\nkind = \"flows\"\nflows = [{ from = 0, to = 1, size = \"5000001 B\" }]\n";

/// A run with one profile, recorded at its first host.
struct Recorded {
    experiment: Experiment,
    packets: Vec<Captured>,
    file: Vec<u8>,
}

impl Recorded {
    fn new(profile: &str, more: &str) -> Recorded {
        Recorded::of(BUSY, profile, more)
    }

    fn of(scenario: &str, profile: &str, more: &str) -> Recorded {
        let text = format!("{scenario}[profile]\nname = \"{profile}\"\n{more}");
        let mut experiment = parse(&text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
        experiment.with_capture();
        let measured = run(&experiment, &Control::new()).measurements;
        let mut file = Vec::new();
        let capture = pcap::write(&experiment, &measured, &mut file).expect("memory takes it");
        assert_eq!((capture.packets, capture.skipped), (measured.captured.len(), 0), "{profile}");
        assert!(capture.packets > 1000, "{profile}: {} packets", capture.packets);
        Recorded { experiment, packets: measured.captured, file }
    }

    fn format(&self) -> WireFormat {
        self.experiment.plan.profiles[0].wire
    }

    /// The bytes of each frame in the file, and the bytes that it had on the wire.
    fn lengths(&self) -> Vec<(usize, usize)> {
        let mut lengths = Vec::new();
        let mut rest = &self.file[24..];
        while !rest.is_empty() {
            let word = |i: usize| u32::from_le_bytes(rest[i..i + 4].try_into().expect("four bytes")) as usize;
            lengths.push((word(8), word(12)));
            rest = &rest[16 + word(8)..];
        }
        lengths
    }

    /// The output lines of tshark for `arguments`; `None` if it is not installed. `name` is the name of the test.
    fn tshark(&self, name: &str, lua: bool, arguments: &[&str]) -> Option<Vec<String>> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(format!("{name}.pcap"));
        std::fs::write(&file, &self.file).expect("a file can be written");
        let mut command = Command::new("tshark");
        command.arg("-n").arg("-r").arg(&file).args(["-o", "udp.check_checksum:TRUE"]);
        if lua {
            let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/wireshark/strandway.lua"].iter().collect();
            command.arg("-X").arg(format!("lua_script:{}", script.display()));
        }
        let output = command.args(arguments).output();
        let Ok(output) = output else {
            eprintln!("skipped: tshark is not installed");
            return None;
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !complaint.contains("Lua"), "{complaint}");
        Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
    }

    /// One line per packet, with these fields separated by tabs.
    fn fields(&self, name: &str, lua: bool, fields: &[&str]) -> Option<Vec<Vec<String>>> {
        let mut arguments = vec!["-T", "fields"];
        for field in fields {
            arguments.extend(["-e", *field]);
        }
        let lines = self.tshark(name, lua, &arguments)?;
        assert_eq!(lines.len(), self.packets.len());
        Some(lines.iter().map(|line| line.split('\t').map(str::to_string).collect()).collect())
    }
}

/// Bytes of a data packet's frame besides payload and padding.
fn headers(format: WireFormat, is_last: bool) -> usize {
    // Ethernet, IPv6 and UDP; the transport header; the ICRC.
    14 + 40
        + 8
        + match format {
            WireFormat::Rocev2 => 12 + 16 + 4,
            WireFormat::Uec | WireFormat::Strack => 24,
            WireFormat::Mrc => 12 + 4 + 4 + 16 + 4 + if is_last { 4 } else { 0 },
        }
}

#[test]
fn a_frame_has_the_payload_of_the_simulated_packet_and_real_headers() {
    for profile in PROFILES {
        let recorded = Recorded::new(profile, "");
        let format = recorded.format();
        for (packet, (present, whole)) in recorded.packets.iter().map(|c| &c.packet).zip(recorded.lengths()) {
            assert!(present <= whole);
            assert!(format != WireFormat::Rocev2 || present == whole, "RoCEv2's frames are whole");
            match packet.header {
                Header::Data(data) if !packet.flags.has(Flags::TRIMMED) => {
                    let payload = usize::from(data.length);
                    let filled = match format {
                        WireFormat::Rocev2 | WireFormat::Mrc => payload.next_multiple_of(4),
                        WireFormat::Uec | WireFormat::Strack => payload,
                    };
                    assert_eq!(whole, headers(format, packet.flags.has(Flags::LAST)) + filled);
                    assert_eq!(usize::from(packet.size), 64 + payload);
                }
                _ => assert_eq!((packet.size, present), (64, whole), "control packets are complete"),
            }
        }
    }
}

#[test]
fn a_frame_is_as_long_as_a_simulated_packet_with_headers_of_its_length() {
    for (profile, header) in [("rocev2", 94), ("uec", 86), ("strack", 86), ("mrc", 102)] {
        let recorded = Recorded::new(profile, &format!("[profile.transport]\nheader = {header}\n"));
        let mut seen = 0;
        for (packet, (_, whole)) in recorded.packets.iter().map(|c| &c.packet).zip(recorded.lengths()) {
            // The last packet of a message is padded, and has four more bytes with MRC.
            let is_whole = matches!(packet.header, Header::Data(_)) && !packet.flags.has(Flags::TRIMMED);
            if is_whole && !packet.flags.has(Flags::LAST) {
                assert_eq!(whole, usize::from(packet.size), "{profile}");
                seen += 1;
            }
        }
        assert!(seen > 500, "{profile}: {seen}");
    }
}

#[test]
fn tshark_finds_nothing_malformed() {
    for profile in PROFILES {
        let recorded = Recorded::new(profile, "");
        for lua in [false, true] {
            let fields = ["_ws.expert.message", "udp.checksum.status", "_ws.col.Info", "udp.srcport"];
            let Some(lines) = recorded.fields("malformed", lua, &fields) else { return };
            for line in lines {
                assert_eq!(line[0], "", "{profile}: {line:?}");
                assert!(!line[2].contains("Malformed") && !line[2].contains("Invalid"), "{profile}: {line:?}");
                // "Good" if the payload is there; "unverified" if it is cut.
                assert_ne!(line[1], "0", "{profile}: a bad UDP checksum");
                assert!(line[3].parse::<u16>().is_ok_and(|port| port >= 0xf000), "{profile}: {line:?}");
            }
        }
    }
}

#[test]
fn tshark_takes_rocev2_for_that_of_a_nic() {
    let recorded = Recorded::new("rocev2", "");
    let names = ["opcode", "destqp", "psn", "padcnt"].map(|name| format!("infiniband.bth.{name}"));
    let mut fields: Vec<&str> = names.iter().map(String::as_str).collect();
    fields.push("infiniband.reth.dmalen");
    let Some(lines) = recorded.fields("rocev2", false, &fields) else { return };
    let mut firsts = 0;
    for (line, captured) in lines.iter().zip(&recorded.packets) {
        let number = |i: usize| match line[i].strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).expect("a number"),
            None => line[i].parse::<u64>().expect("a number"),
        };
        assert_eq!(number(1), u64::from(captured.packet.connection.0) + 2);
        if let Header::Data(data) = captured.packet.header {
            let opcode = match (data.offset.get(), captured.packet.flags.has(Flags::LAST)) {
                (0, _) => 6,
                (_, false) => 7,
                (_, true) => 8,
            };
            assert_eq!(number(0), opcode);
            assert_eq!(number(2), u64::from(data.psn.get()));
            assert_eq!(number(3), u64::from(data.length.wrapping_neg() % 4));
            if opcode == 6 {
                firsts += 1;
                assert_eq!(number(4), 300_001, "a First announces the whole message");
            }
        }
    }
    assert!(firsts >= 12, "{firsts}");
}

#[test]
fn the_dissector_reads_the_fields_that_were_sent() {
    for profile in PROFILES {
        let recorded = Recorded::new(profile, "");
        let names = [
            "source",
            "destination",
            "plane",
            "ev",
            "connection",
            "simulated",
            "type",
            "psn",
            "message",
            "offset",
            "length",
            "cumulative",
            "acked",
            "sack",
            "received",
            "flags.ce",
            "flags.trimmed",
            "flags.last",
            "flags.marked",
        ]
        .map(|name| format!("strandway.{name}"));
        let fields: Vec<&str> = names.iter().map(String::as_str).collect();
        let Some(lines) = recorded.fields("dissector", true, &fields) else { return };
        let mut trimmed = 0;
        for (line, captured) in lines.iter().zip(&recorded.packets) {
            let packet = &captured.packet;
            let number = |i: usize| match line[i].strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => line[i].parse().ok(),
            };
            // Depending on the version, true is printed as 1 or "True".
            let flag = |i: usize| line[i] == "1" || line[i] == "True";
            let expect = |i: usize, value: u64| assert_eq!(number(i), Some(value), "{profile}: {}, {line:?}", names[i]);
            expect(0, u64::from(packet.source.0));
            expect(1, u64::from(packet.destination.0));
            expect(2, u64::from(packet.path.port()));
            expect(3, u64::from(packet.path.entropy()));
            expect(4, u64::from(packet.connection.0));
            expect(5, u64::from(packet.size));
            assert_eq!(flag(15), packet.flags.has(Flags::CE));
            let kind = match packet.header {
                Header::Data(data) => {
                    let is_trimmed = packet.flags.has(Flags::TRIMMED);
                    expect(7, u64::from(data.psn.get()));
                    expect(8, u64::from(data.message.0));
                    expect(9, data.offset.get());
                    // A trimmed RoCEv2 packet does not say how many bytes were removed.
                    if !(is_trimmed && recorded.format() == WireFormat::Rocev2) {
                        expect(10, u64::from(data.length));
                    }
                    assert_eq!((flag(16), flag(17)), (is_trimmed, packet.flags.has(Flags::LAST)));
                    trimmed += u32::from(is_trimmed);
                    "data"
                }
                Header::Ack(ack) => {
                    let is_answer = packet.flags.has(Flags::PROBE_ANSWER);
                    expect(11, u64::from({ ack.cumulative }.get()));
                    if !is_answer {
                        expect(12, u64::from({ ack.acked }.get()));
                    }
                    expect(13, { ack.sack }.get());
                    expect(14, u64::from(ack.received));
                    assert_eq!(flag(18), packet.flags.has(Flags::MARKED));
                    "ack"
                }
                Header::Nack(nack) => {
                    expect(7, u64::from(nack.psn.get()));
                    expect(11, u64::from(nack.cumulative.get()));
                    "nack"
                }
                Header::Cnp => "cnp",
                Header::Probe { .. } => "probe",
                Header::Operation { .. } => "operation",
                Header::Answer(_) => "answer",
                Header::Control(_) => "letter",
                Header::Part(_) | Header::Chunk(_) | Header::Fragment(_) => {
                    panic!("no one-way connection and no multicast is captured here")
                }
            };
            assert_eq!(line[6], kind);
        }
        let trims = recorded.experiment.plan.profiles[0].switch.trimming;
        assert_eq!(trimmed > 0, trims, "{profile}: {trimmed} trimmed");
    }
}

#[test]
fn the_dissector_reads_parts_and_controls() {
    let mut controls = std::collections::BTreeMap::new();
    let counted = "congestion = \"longhaul\"\n";
    for (profile, more) in [("sdr_sr", ""), ("sdr_nack", ""), ("sdr_mds", ""), ("sdr_nack", counted)] {
        let recorded = Recorded::of(LONG, profile, more);
        let names = [
            "type",
            "connection",
            "simulated",
            "sequence",
            "message",
            "packet",
            "packets",
            "tail",
            "length",
            "plan",
            "letter",
            "first",
            "count",
            "chunks.below",
            "chunks.base",
            "chunks",
            "newest",
            "held",
            "missing",
            "flags.parity",
            "flags.last",
            "flags.retransmitted",
            "whole",
            "parts.before",
            "parts",
        ]
        .map(|name| format!("strandway.{name}"));
        let mut fields: Vec<&str> = names.iter().map(String::as_str).collect();
        fields.push("_ws.expert.message");
        let Some(lines) = recorded.fields("one-way", true, &fields) else { return };
        let (mut parity, mut again) = (0, 0);
        for (line, captured) in lines.iter().zip(&recorded.packets) {
            let packet = &captured.packet;
            let number = |i: usize| match line[i].strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => line[i].parse().ok(),
            };
            let flag = |i: usize| line[i] == "1" || line[i] == "True";
            let expect = |i: usize, value: u64| assert_eq!(number(i), Some(value), "{profile}: {}, {line:?}", names[i]);
            expect(1, u64::from(packet.connection.0));
            expect(2, u64::from(packet.size));
            let kind = match packet.header {
                Header::Part(part) => {
                    expect(3, u64::from(part.sequence));
                    expect(4, u64::from({ part.message }.0));
                    expect(5, u64::from(part.packet));
                    expect(6, u64::from(part.packets));
                    expect(7, u64::from(part.tail));
                    expect(8, u64::from(part.length));
                    expect(9, u64::from(part.plan));
                    let sent = [part.parity, packet.flags.has(Flags::LAST), packet.flags.has(Flags::RETRANSMITTED)];
                    assert_eq!([19, 20, 21].map(flag), sent, "{profile}: {line:?}");
                    parity += u32::from(sent[0]);
                    again += u32::from(sent[2]);
                    "part"
                }
                Header::Control(control) => {
                    *controls.entry(line[10].clone()).or_insert(0) += 1;
                    match control {
                        ControlMessage::Clear { first, count } => {
                            assert_eq!(line[10], "clear");
                            expect(11, u64::from(first));
                            expect(12, u64::from(count));
                        }
                        ControlMessage::Have(have) | ControlMessage::Recovered(have) => {
                            let is_have = matches!(control, ControlMessage::Have(_));
                            assert_eq!(line[10], if is_have { "have" } else { "recovered" });
                            expect(3, u64::from(have.sequence));
                            expect(13, u64::from(have.cumulative));
                            expect(14, u64::from(have.base));
                            expect(15, { have.bits }.get());
                            expect(16, u64::from(have.newest));
                            expect(17, u64::from(have.held));
                        }
                        ControlMessage::Missing(missing) => {
                            assert_eq!(line[10], "missing");
                            expect(3, u64::from(missing.sequence));
                            let runs: Vec<String> =
                                missing.runs().map(|(start, length)| format!("{start}+{length}")).collect();
                            assert_eq!(line[18], runs.join(" "));
                        }
                        ControlMessage::Heard(heard) => {
                            assert_eq!(line[10], "heard");
                            expect(3, u64::from(heard.sequence));
                            expect(5, u64::from(heard.packet));
                            expect(23, u64::from(heard.before));
                            expect(24, u64::from(heard.received));
                            expect(17, u64::from(heard.held));
                        }
                        ControlMessage::Over { sequence, whole } => {
                            assert_eq!(line[10], "over");
                            expect(3, u64::from(sequence));
                            assert_eq!(flag(22), whole);
                        }
                        ControlMessage::Ask { sequence } | ControlMessage::Unknown { sequence } => {
                            expect(3, u64::from(sequence))
                        }
                        ControlMessage::Credit { .. } | ControlMessage::CreditRequest { .. } => {
                            panic!("no connection uses credit")
                        }
                        ControlMessage::Custom { .. } => panic!("no program writes any"),
                    }
                    "letter"
                }
                other => panic!("{other:?} on a one-way connection"),
            };
            assert_eq!((line[0].as_str(), line[25].as_str()), (kind, ""), "{profile}: {line:?}");
        }
        let is_coded = profile == "sdr_mds";
        assert_eq!(parity > 0, is_coded, "{profile}: {parity} of parity");
        assert!(again > 0 || is_coded, "{profile}: something is lost, and goes again");
    }
    for wanted in ["have", "recovered", "missing", "over", "heard"] {
        assert!(controls.contains_key(wanted), "no {wanted} among {controls:?}");
    }
}
