//! Replays the fuzzing corpora as ordinary tests, so that every input that once found a fault is tried again.

use super::operations;
use std::path::PathBuf;
use strandway_proto::control_message::{Have, Missing};
use strandway_proto::packet::{
    Ack, Answer, Data, Flags, Header, Nack, NackReason, Offset, Operation, Part, Psn, SackBits, Wait,
};
use strandway_proto::partial::SEQUENCES;
use strandway_proto::profile::WireFormat;
use strandway_proto::{ConnectionId, ControlMessage, HostId, MessageId, Packet, PathId};
use strandway_wire as wire;
use strandway_wire::{frame, ocp, uet};

fn corpus(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", target].iter().collect()
}

/// The inputs that fuzzing starts from, by file name: one packet of each kind, in each format, bare and in a frame.
fn wire_seeds() -> Vec<(String, Vec<u8>)> {
    let data = |offset, length| {
        Header::Data(Data {
            psn: Psn::new(0xff_fffe),
            message: MessageId(7),
            offset: Offset::new(offset),
            length,
            target: 0,
            wait: Wait::default(),
        })
    };
    let ack = Header::Ack(Ack {
        cumulative: Psn::new(0),
        sack_base: Psn::new(64),
        sack: SackBits::new(0xffff_0000_8000_0001),
        acked: Psn::new(99),
        path: PathId::new(3, 0x1234),
        received: 1000,
        out_of_order: 17,
        range: 0,
    });
    let nack = Header::Nack(Nack {
        psn: Psn::new(5),
        cumulative: Psn::new(4),
        path: PathId::new(0, 0xffff),
        reason: NackReason::Missing,
    });
    let have = Have {
        sequence: SEQUENCES - 1,
        cumulative: 64,
        base: 128,
        bits: SackBits::new(0x8000_0000_0000_0003),
        newest: 191,
        held: 1000,
    };
    let missing = Missing { sequence: 7, starts: [3, 9, 0], lengths: [1, 4, 0] };
    let part = Part {
        sequence: SEQUENCES - 1,
        message: MessageId(9),
        packet: (1 << 18) - 1,
        packets: 1 << 18,
        tail: 1,
        length: 1,
        wait: Wait::default(),
        parity: false,
        plan: 0,
    };
    let kinds = [
        ("data_first", data(0, 4096), Flags::ACK_REQUEST),
        ("data_last", data(1 << 33, 1), Flags::LAST.with(Flags::RETRANSMITTED)),
        ("data_trimmed", data(4096, 4096), Flags::TRIMMED.with(Flags::CE)),
        ("ack", ack, Flags::MARKED.with(Flags::HOLE)),
        ("nack", nack, Flags::TRIMMED_AT_LAST_HOP),
        ("cnp", Header::Cnp, Flags::NONE),
        ("probe", Header::Probe { number: 1 }, Flags::NONE),
        ("letter", Header::Control(ControlMessage::Custom { kind: 3, words: [1, 0x8000_0000, 2, 3] }), Flags::NONE),
        ("have", Header::Control(ControlMessage::Have(have)), Flags::MARKED),
        ("missing", Header::Control(ControlMessage::Missing(missing)), Flags::NONE),
        ("part_last", Header::Part(part), Flags::LAST.with(Flags::RETRANSMITTED)),
    ];
    let refusal =
        Nack { psn: Psn::new(3), cumulative: Psn::new(3), path: PathId::new(1, 7), reason: NackReason::NoBuffer };
    let answer = Answer { port_status: false, number: 9, path: PathId::new(1, 77) };
    let mrc_kinds = [
        ("refusal", Header::Nack(refusal), Flags::NONE),
        ("ack_always_skip", ack, Flags::ALWAYS_SKIP),
        ("port_status", Header::Operation { number: 8, operation: Operation::PortStatus(0b1101) }, Flags::NONE),
        ("path_probe", Header::Operation { number: 9, operation: Operation::PathProbe }, Flags::NONE),
        ("answer", Header::Answer(answer), Flags::NONE),
    ];
    let mut seeds = Vec::new();
    for (format, format_name, bit) in [
        (WireFormat::Rocev2, "rocev2", 0),
        (WireFormat::Uec, "uec", 1),
        (WireFormat::Strack, "strack", 4),
        (WireFormat::Mrc, "mrc", 5),
    ] {
        let only = if format == WireFormat::Mrc { &mrc_kinds[..] } else { &[] };
        for &(name, header, flags) in kinds.iter().chain(only) {
            let packet = Packet {
                source: HostId(1),
                destination: HostId(0x0102_0304),
                connection: ConnectionId(0x00_abcd),
                path: PathId::new(2, 0x5678),
                size: 0,
                flags,
                header,
            };
            let mut bytes = vec![bit];
            wire::encode(format, &packet, &mut bytes).expect("a packet with room");
            seeds.push((format!("{format_name}_{name}"), bytes));
            let mut bytes = vec![bit | 2];
            frame::write(format, &packet, &mut bytes).expect("a packet with room");
            seeds.push((format!("{format_name}_{name}_frame"), bytes));
        }
    }
    seeds
}

#[test]
fn every_input_of_the_wire_corpus_passes() {
    let mut count = 0;
    for entry in std::fs::read_dir(corpus("wire_decode")).expect("the corpus is part of the repository") {
        let path = entry.expect("a file").path();
        operations::check_wire(&std::fs::read(&path).expect("a file"));
        count += 1;
    }
    assert!(count >= 20, "{count} inputs");
}

/// The seeds are also the formats' golden files. After an intended change, run this once with `UPDATE_CORPUS=1`.
#[test]
fn the_wire_formats_are_what_they_were() {
    let directory = corpus("wire_decode");
    for (name, bytes) in wire_seeds() {
        let path = directory.join(&name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::write(&path, &bytes).expect("a file can be written");
        }
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(stored, bytes, "{name}");
    }
}

/// A datagram of each kind in MRC's published layout.
fn ocp_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let stamp = ocp::Stamp { tick: 0xbeef, coarse: false };
    let write = |place, immediate, length: usize| {
        let write = ocp::Write {
            place,
            immediate,
            immediates: 3,
            messages: 7,
            stamp: Some(stamp),
            address: 0x1000,
            key: 0x1122_3344,
            message_bytes: 9_000,
        };
        (ocp::Body::Write(write), length)
    };
    let sack = ocp::Sack {
        skip: ocp::Skip::Once,
        cause: ocp::Cause::Packet(-3),
        entropy: 0x0002_1003,
        queues: [0x123, 0x456],
        cumulative: Psn::new(0x28),
        range: 8,
        base: 2,
        bits: 0x8000_0000_0000_0001,
        tick: 0xbeef,
        out_of_order: 17,
        restore: true,
        penalty: 64,
        received: 0x456,
    };
    let nack = ocp::Nack {
        reason: NackReason::Missing,
        at_last_hop: true,
        entropy: 0x1003,
        queues: [0x123, 0x456],
        psn: Psn::new(0x28),
        tick: 5,
    };
    let bodies = [
        ("first", write(ocp::Place::First, None, 40)),
        ("last", write(ocp::Place::Last, None, 41)),
        ("only_immediate", write(ocp::Place::Only, Some(77), 3)),
        ("transport_ack", (ocp::Body::TransportAck(ocp::TransportAck { syndrome: 0x1f, completed: 9 }), 0)),
        ("sack", (ocp::Body::Sack(sack), 0)),
        ("probe_answer", (ocp::Body::Sack(ocp::Sack { cause: ocp::Cause::Probe(9), ..sack }), 0)),
        ("nack", (ocp::Body::Nack(nack), 0)),
        ("probe", (ocp::Body::Probe(ocp::Probe { number: 9, queues: [1, 2], stamp }), 0)),
        ("port_status", (ocp::Body::Request(ocp::Request { ports: Some(0b101), stamp }), 0)),
        ("path_probe", (ocp::Body::Request(ocp::Request { ports: None, stamp }), 0)),
        ("response", (ocp::Body::Response(ocp::Response { port_status: false, tick: 5 }), 0)),
    ];
    let bytes = |(body, length): (ocp::Body, usize)| {
        let datagram = ocp::Datagram {
            source: [0xfd; 16],
            destination: [0xfc; 16],
            class: 42,
            entropy: 0x0002_1003,
            queue: 0x123,
            psn: Psn::new(0x28),
            ack_request: true,
            retransmission: false,
            body,
        };
        let mut out = Vec::new();
        ocp::write(&datagram, ocp::PORT, &vec![0xaa; length], &mut out).expect("it fits");
        out
    };
    bodies.into_iter().map(|(name, body)| (name, bytes(body))).collect()
}

/// After an intended change of the layout, run it once with `UPDATE_CORPUS=1`.
#[test]
fn mrcs_published_layout_is_what_it_was_and_its_corpus_passes() {
    for (name, bytes) in ocp_seeds() {
        let path = corpus("ocp_decode").join(name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus("ocp_decode")).expect("a folder");
            std::fs::write(&path, &bytes).expect("a file can be written");
        }
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(stored, bytes, "{name}");
    }
    for entry in std::fs::read_dir(corpus("ocp_decode")).expect("the corpus is part of the repository") {
        operations::check_ocp(&std::fs::read(entry.expect("a file").path()).expect("a file"));
    }
}

/// A datagram of UET of each kind, by hand; the headers' names are those of the sources.
const UET_SEEDS: [(&str, &str); 15] = [
    (
        "rud_write_syn",
        "118c ffff 12345678 0001 0000  01 0b 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042
        0000000000000000 00000008 4142434445464748",
    ),
    (
        "rod_write_later",
        "1990 fffe 12345679 0001 0002  01 0a 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042
        00000004 00000004 00000008 45464748",
    ),
    (
        "rod_atomic",
        "1980 ffff 12345678 0001 0002  03 0b 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042
        0000000000000000 00000008 00070000 4142434445464748",
    ),
    (
        "rud_compare_swap",
        "1180 ffff 12345678 0001 0002  04 0b 0001 00 000000 0000 0000 0000000000001000 00000000 0000000000000042
        0000000000000000 00000008 0d070000 00000000000000000000000000000001 00000000000000000000000000000002",
    ),
    (
        "rud_rendezvous",
        "1180 ffff 12345678 0001 0002  06 0b 0001 00 000000 0000 0000 0000000000000000 00000000 0000000000000007
        0000000000000000 00010000 00000002 00001002 0000000000002000 0000000000000043 0102",
    ),
    ("rud_small_read", "1080 ffff 12345678 0001 0002  02 03 0040 00 000000 0000 0000 0000000000001000"),
    (
        "rud_medium_send",
        "1108 ffff 12345678 0001 0002  09 07 0002 00 000001 0001 0002 1122334455667788 00000010 0000000000000007 0102",
    ),
    (
        "rud_credit_data_response",
        "6a80 ffff 00000001 0001 0002 05 000100  02 01 0009 00 000001 0001 0004 00000004 00000000 01020304",
    ),
    ("ack", "3a02 0000 12345678 0002 0001  41 01 0001 00 000000 00000008"),
    ("ack_small_data", "3b00 0000 12345678 0002 0001  02 01 0002 00 000001 12345678 0102"),
    (
        "ack_cc",
        "4220 0005 12345679 0002 0001 00 01 ffff 0000000000000058 0008 00 000051 0003  00 01 0002 00 000000 00007e40",
    ),
    ("ack_ccx_probe", "4808 0007 12345679 0002 0001 e0 01 ffff 0000000000000058 0000000000000001 0000000000000002"),
    ("nack", "5000 0100 1234567a 0002 0001 00000000"),
    ("control_close", "5a28 0000 12345679 0001 0002 00000000"),
    (
        "rudi",
        "2180 0000 00000009  01 0b 0001 00 000000 0000 0000 0000000000000000 00000000 0000000000000042
        0000000000000000 00000000",
    ),
];

#[test]
fn uets_layout_is_what_it_was_and_its_corpus_passes() {
    for (name, hex) in UET_SEEDS {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        assert!(uet::decode(&bytes).is_ok(), "{name}: {:?}", uet::decode(&bytes));
        let path = corpus("uet_decode").join(name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::create_dir_all(corpus("uet_decode")).expect("a folder");
            std::fs::write(&path, &bytes).expect("a file can be written");
        }
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(stored, bytes, "{name}");
    }
    for entry in std::fs::read_dir(corpus("uet_decode")).expect("the corpus is part of the repository") {
        operations::check_uet(&std::fs::read(entry.expect("a file").path()).expect("a file"));
    }
}
