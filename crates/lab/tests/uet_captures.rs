//! Captures in the bytes of Ultra Ethernet Transport: every packet says in UET what the engine's packet says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use strandway_fabric::measure::Captured;
use strandway_lab::{pcap, run};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::{HostId, PathId};
use strandway_scenario::parse;
use strandway_sim::Control;
use strandway_wire::uet::codes::{ControlKind, NackCode, Opcode};
use strandway_wire::uet::pds::{Cause, Context, Refused, Request, State};
use strandway_wire::uet::ses::Place;
use strandway_wire::uet::{self, Datagram, Pds, START_PSN, Ses};

/// An incast over two planes with marks, trims, and losses on one link. Last packets have odd lengths.
const BUSY: &str = "[fabric]\nhosts = 16\nplanes = 2\nrate = \"100 Gbps\"\nqueue = \"40 kB\"\necn_low = \"10 kB\"\n\
    ecn_high = \"30 kB\"\n[workload]\nkind = \"incast\"\nsenders = 12\nsize = \"300001 B\"\n\
    [[faults]]\nbetween = [\"leaf1.p0\", \"spine0.p0\"]\nkind = \"down\"\nat = \"5 us\"\nuntil = \"200 us\"\n\
    silent = true\n";

/// Bytes before the transport header: Ethernet, IPv6 and UDP.
const AROUND: usize = 14 + 40 + 8;

/// A frame of a capture file: what is there of it, and its length on the wire.
fn frames(file: &[u8]) -> Vec<(&[u8], usize)> {
    let mut found = Vec::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let word = |i: usize| u32::from_le_bytes(rest[i..i + 4].try_into().expect("four bytes")) as usize;
        found.push((&rest[16..16 + word(8)], word(12)));
        rest = &rest[16 + word(8)..];
    }
    found
}

struct Recorded {
    packets: Vec<Captured>,
    skipped: usize,
    file: Vec<u8>,
}

fn record(scenario: &str) -> Recorded {
    let text = format!("{scenario}\n[run]\ncapture_layout = \"uet\"\n");
    let mut experiment = parse(&text).and_then(|s| strandway_lab::check(&s)).unwrap_or_else(|e| panic!("{e}"));
    experiment.with_capture();
    let measured = run(&experiment, &Control::new()).measurements;
    let mut file = Vec::new();
    let capture = pcap::write(&experiment, &measured, &mut file).expect("memory takes it");
    assert_eq!(capture.packets + capture.skipped, measured.captured.len());
    Recorded { packets: measured.captured, skipped: capture.skipped, file }
}

/// Numbers of a context at its sender, and at its receiver if a request names it.
type Numbers = BTreeSet<(u16, Option<u16>)>;

/// Counts of packets by kind, and the contexts' numbers.
#[derive(Default)]
struct Seen {
    kinds: BTreeMap<&'static str, usize>,
    /// By sender and receiver.
    contexts: BTreeMap<(HostId, HostId), Numbers>,
}

impl Seen {
    fn add(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }
}

/// The datagram of a frame with a payload of zeros, which the file lacks.
fn whole(frame: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    bytes.resize(length, 0);
    bytes.split_off(AROUND)
}

fn check_request(captured: &Captured, request: &Request, seen: &mut Seen) {
    let Header::Data(data) = captured.packet.header else { panic!("a request for {:?}", captured.packet) };
    assert_eq!(request.psn, START_PSN + data.psn.get());
    assert_eq!(request.retransmitted, captured.packet.flags.has(Flags::RETRANSMITTED));
    assert_eq!(request.ack_request, captured.packet.flags.has(Flags::ACK_REQUEST));
    assert!(request.clear_offset < 0, "a request clears what came before it");
    let target = match request.target {
        Context::Opening { info, psn_offset } => {
            assert_eq!((info, u32::from(psn_offset)), (0, data.psn.get()));
            assert_eq!(request.start_psn(), Some(START_PSN));
            seen.add("opening");
            None
        }
        Context::Known(target) => Some(target),
    };
    seen.add("request");
    let ends = (captured.packet.source, captured.packet.destination);
    seen.contexts.entry(ends).or_default().insert((request.source, target));
}

/// Checks the datagram against the engine's packet.
fn check(captured: &Captured, frame: &[u8], length: usize, size: u64, seen: &mut Seen) {
    let packet = &captured.packet;
    assert_eq!(u16::from_be_bytes([frame[56], frame[57]]), uet::PORT);
    let port = u16::from_be_bytes([frame[54], frame[55]]);
    let echoes = |path: PathId| assert_eq!(u32::from(port), 0xf000 | path.entropy() & 0xfff);
    let bytes = whole(frame, length);
    if packet.flags.has(Flags::TRIMMED) && packet.header.has_payload() {
        // A switch left the headers, and their lengths as they were.
        check_request(captured, &uet::decode_trimmed(&bytes).expect("a request"), seen);
        let dscp = (frame[14] << 4 | frame[15] >> 4) >> 2;
        assert_eq!((frame.len(), matches!(dscp, 44 | 45)), (length, true), "a whole frame of the class of trims");
        seen.add("trimmed");
        return;
    }
    let Datagram { pds, ses, payload } = uet::decode(&bytes).unwrap_or_else(|error| panic!("{error}: {packet:?}"));
    match (packet.header, pds, ses) {
        (Header::Data(data), Pds::Request(request), Ses::Standard(standard)) => {
            echoes(packet.path);
            check_request(captured, &request, seen);
            let offset = match standard.place {
                Place::First { header_data } => {
                    assert_eq!(header_data, 0);
                    0
                }
                Place::Later { offset } => u64::from(offset),
            };
            assert_eq!((offset, payload.len()), (data.offset.get(), usize::from(data.length)));
            assert_eq!(u64::from(standard.length), size);
            assert_eq!(standard.last, data.end() == size);
            assert_eq!(standard.common.opcode, Opcode::WRITE);
            assert_eq!((u32::from(standard.message), standard.key), (data.message.0, data.message.0.into()));
            if offset == 0 {
                seen.add("first");
            }
        }
        (Header::Ack(ack), Pds::Ack(uet), Ses::None) => {
            echoes(ack.path);
            assert_eq!(uet.cumulative.wrapping_add(1), START_PSN + { ack.cumulative }.get());
            assert_eq!(uet.base_psn(), Some(START_PSN + { ack.sack_base }.get()));
            let congestion = uet.congestion.expect("an ACK_CC");
            assert_eq!(congestion.bitmap, { ack.sack }.get());
            let State::Nscc(nscc) = congestion.state else { panic!("NSCC's state") };
            assert_eq!((nscc.received, nscc.out_of_order), (ack.received, ack.out_of_order));
            assert_eq!(uet.marked, packet.flags.has(Flags::MARKED));
            if packet.flags.has(Flags::PROBE_ANSWER) {
                assert_eq!(uet.cause, Cause::Probe({ ack.acked }.get() as u16));
                seen.add("probe answer");
            } else {
                assert_eq!(uet.acked_psn(), Some(START_PSN + { ack.acked }.get()));
                seen.add("ack");
            }
        }
        (Header::Nack(nack), Pds::Nack(uet), Ses::None) => {
            echoes(nack.path);
            let at_last_hop = packet.flags.has(Flags::TRIMMED_AT_LAST_HOP);
            let code = if at_last_hop { NackCode::TRIMMED_LAST_HOP } else { NackCode::TRIMMED };
            assert_eq!(uet.code, code);
            assert!(matches!(uet.about, Refused::Packet { psn, .. } if psn == START_PSN + nack.psn.get()));
            seen.add("nack");
        }
        (Header::Probe { number }, Pds::Control(control), Ses::None) => {
            assert_eq!((control.kind, control.opaque), (ControlKind::PROBE, number as u16));
            seen.add("probe");
        }
        other => panic!("{other:?}"),
    }
}

fn check_all(recorded: &Recorded, size: u64) -> Seen {
    assert_eq!(recorded.skipped, 0);
    let mut seen = Seen::default();
    let frames = frames(&recorded.file);
    assert_eq!(frames.len(), recorded.packets.len());
    for (captured, (frame, length)) in recorded.packets.iter().zip(frames) {
        check(captured, frame, length, size, &mut seen);
    }
    seen
}

#[test]
fn requests_acknowledgements_and_nacks_say_what_the_engine_says() {
    for profile in ["uec", "prime"] {
        let recorded = record(&format!("{BUSY}[profile]\nname = \"{profile}\"\n"));
        let seen = check_all(&recorded, 300_001);
        for kind in ["opening", "request", "first", "trimmed", "ack", "nack"] {
            assert!(seen.kinds.contains_key(kind), "{profile}: no {kind} among {:?}", seen.kinds);
        }
        assert!(seen.kinds["opening"] < seen.kinds["request"] / 2, "{profile}: {:?}", seen.kinds);
        // Twelve senders, each with a context of its own; the receiver numbers them 1 to 12.
        let targets: BTreeSet<u16> = seen.contexts.values().flatten().filter_map(|(_, target)| *target).collect();
        assert_eq!((seen.contexts.len(), targets), (12, (1..=12).collect()), "{profile}");
        assert!(seen.contexts.values().flatten().all(|(source, _)| *source == 1), "{profile}");
    }
}

#[test]
fn probes_and_their_answers_are_control_packets_and_acks() {
    let scenario = BUSY.replace("planes = 2\n", "planes = 2\ntrimming = false\n");
    let seen = check_all(&record(&format!("{scenario}[profile]\nname = \"uec\"\n")), 300_001);
    for kind in ["probe", "probe answer"] {
        assert!(seen.kinds.contains_key(kind), "no {kind} among {:?}", seen.kinds);
    }
}

#[test]
fn both_ends_of_a_context_use_its_numbers_alike() {
    let scenario = "[fabric]\nhosts = 8\nrate = \"100 Gbps\"\n[workload]\nkind = \"all-reduce\"\nsize = \"1 MB\"\n";
    let recorded = record(&format!("{scenario}[profile]\nname = \"uec\"\n"));
    assert!(recorded.packets.len() > 1_000 && recorded.skipped == 0, "{} skipped", recorded.skipped);
    let (mut requests, mut answers) = (BTreeSet::new(), BTreeSet::new());
    for (captured, (frame, length)) in recorded.packets.iter().zip(frames(&recorded.file)) {
        let bytes = whole(frame, length);
        let ends = (captured.packet.source, captured.packet.destination);
        match uet::decode(&bytes).expect("a datagram").pds {
            Pds::Request(Request { source, target: Context::Known(target), .. }) => {
                requests.insert((ends, source, target));
            }
            Pds::Ack(ack) => {
                answers.insert(((ends.1, ends.0), ack.target, ack.source));
            }
            _ => {}
        }
    }
    // The first host sends to one neighbour in the ring, and receives from the other one.
    assert_eq!((requests.len(), &requests), (2, &answers));
}

#[test]
fn packets_without_a_uet_header_are_counted_and_left_out() {
    let multicast = "[fabric]\nhosts = 8\nrate = \"100 Gbps\"\n[workload]\nkind = \"all-gather\"\nsize = \"1 MB\"\n\
        algorithm = \"multicast\"\n[profile]\nname = \"uec\"\n";
    let recorded = record(multicast);
    assert_eq!((recorded.skipped, recorded.file.len()), (recorded.packets.len(), 24));
    assert!(recorded.skipped > 100);
}

#[test]
fn other_profiles_are_refused_with_a_remedy() {
    for profile in ["rocev2", "mrc", "sdr_sr"] {
        let text = format!("{BUSY}[profile]\nname = \"{profile}\"\n[run]\ncapture_layout = \"uet\"\n");
        let error = parse(&text).and_then(|s| strandway_lab::check(&s)).map(|_| ()).expect_err("no UET").to_string();
        assert!(error.contains("run.capture_layout") && error.contains(profile), "{error}");
        assert!(error.contains("use the profiles uec or prime"), "{error}");
    }
}

#[test]
fn tshark_and_the_dissector_leave_the_port_of_uet_to_uet() {
    let recorded = record(&format!("{BUSY}[profile]\nname = \"uec\"\n"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("uet.pcap");
    std::fs::write(&file, &recorded.file).expect("a file can be written");
    let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/wireshark/strandway.lua"].iter().collect();
    let output = Command::new("tshark")
        .arg("-n")
        .arg("-r")
        .arg(&file)
        .args(["-o", "udp.check_checksum:TRUE", "-X", &format!("lua_script:{}", script.display())])
        .args(["-T", "fields", "-e", "udp.dstport", "-e", "udp.checksum.status", "-e", "strandway.type"])
        .args(["-e", "_ws.malformed"])
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: tshark is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), recorded.packets.len());
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        assert_eq!((fields[0], fields[2], fields[3]), ("4793", "", ""), "{line}");
        assert_ne!(fields[1], "0", "a bad UDP checksum: {line}");
    }
}
