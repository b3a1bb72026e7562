//! UET: a conversation of our own, and recorded datagrams of SUET, a public implementation.
//!
//! The recordings are no part of the repository: they are read from `uet` in the directory that `STRANDWAY_DATA` names,
//! or next to the repository. Without them their test is skipped, and prints that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strandway_wire::uet::codes::{ControlKind, Opcode};
use strandway_wire::uet::pds::{Context, Mode, Wish};
use strandway_wire::uet::{self, Pds, Ses};

/// Datagrams by kind, and flags, in the words of the recordings' table.
type Counts = BTreeMap<String, usize>;

/// Reads a datagram, writes it to the same bytes, and counts it. Every beginning of its headers is refused.
fn count(bytes: &[u8], counts: &mut Counts) {
    let datagram = uet::decode(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"));
    let mut again = Vec::new();
    uet::encode(&datagram, &mut again).expect("what was read fits");
    assert_eq!(again, bytes, "{datagram:?}");
    for end in 0..bytes.len() - datagram.payload.len() {
        assert!(uet::decode(&bytes[..end]).is_err(), "{end} bytes of {datagram:?}");
    }
    let mut add = |kind: String| *counts.entry(kind).or_default() += 1;
    match datagram.pds {
        Pds::Request(request) => {
            let Ses::Standard(standard) = datagram.ses else { panic!("SUET sends standard headers only") };
            let mode = if request.mode == Mode::Ordered { "ROD_REQ" } else { "RUD_REQ" };
            let operation = match standard.common.opcode {
                Opcode::SEND => "SEND",
                Opcode::TAGGED_SEND => "TSEND",
                Opcode::WRITE => "WRITE",
                Opcode::ATOMIC => "ATOMIC",
                other => panic!("operation {other:?}"),
            };
            add(format!("{mode} {operation}"));
            if matches!(request.target, Context::Opening { .. }) {
                add("SYN".into());
            }
            if request.retransmitted {
                add("RETX".into());
            }
        }
        Pds::Ack(ack) => {
            let kind = if ack.congestion.is_some() { "ACK_CC" } else { "ACK" };
            let response = match datagram.ses {
                Ses::None => "-".to_string(),
                Ses::Response(response) => format!("r{}", response.answer.opcode.0),
                other => panic!("{other:?} behind an acknowledgement"),
            };
            add(format!("{kind} {response}"));
            if ack.wish == Wish::Clear {
                add("REQ=1".into());
            }
            if ack.congestion.is_some_and(|congestion| congestion.bitmap != 0) {
                add("SACK".into());
            }
        }
        Pds::Nack(nack) => add(format!("NACK {:02x}", nack.code.0)),
        Pds::Control(control) => match control.kind {
            ControlKind::CLEAR => add("CP clear".into()),
            ControlKind::CLOSE => add("CP close".into()),
            other => panic!("control packet {other:?}"),
        },
        other => panic!("SUET sends no {other:?}"),
    }
}

/// The counts in columns of the table: "NAME NUMBER, NAME NUMBER, ...".
fn listed(columns: &[&str]) -> Counts {
    let entries = columns.iter().flat_map(|column| column.split(", "));
    entries
        .map(|entry| {
            let (name, number) = entry.rsplit_once(' ').expect("a name and a number");
            (name.to_string(), number.parse().expect("a number"))
        })
        .collect()
}

/// The UDP payloads of a capture file: microseconds, Ethernet, IPv4 without options.
fn payloads(file: &[u8]) -> Vec<&[u8]> {
    assert_eq!(file[..4], [0xd4, 0xc3, 0xb2, 0xa1], "a capture with microseconds");
    let mut rest = &file[24..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes(rest[8..12].try_into().expect("four bytes")) as usize;
        let frame = &rest[16..16 + length];
        assert_eq!((frame[14], frame[23]), (0x45, 17), "UDP over IPv4");
        let udp = usize::from(u16::from_be_bytes([frame[38], frame[39]]));
        assert_eq!(34 + udp, length, "a whole frame");
        found.push(&frame[42..]);
        rest = &rest[16 + length..];
    }
    found
}

fn recordings() -> Option<PathBuf> {
    let folder = match std::env::var_os("STRANDWAY_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let folder = folder.join("uet");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no recordings in {}; set STRANDWAY_DATA to the folder above them", folder.display());
    None
}

#[test]
fn every_recorded_datagram_is_written_to_the_same_bytes_and_the_counts_are_those_of_the_table() {
    let Some(folder) = recordings() else { return };
    let table = std::fs::read_to_string(folder.join("README.md")).expect("readable");
    let (mut files, mut datagrams) = (0, 0);
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, _, _, packets, flags, _] = cells[..] else { continue };
        if !name.ends_with(".pcap") {
            continue;
        }
        let file = std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut counts = Counts::new();
        for payload in payloads(&file) {
            count(payload, &mut counts);
            datagrams += 1;
        }
        assert_eq!(counts, listed(&[packets, flags]), "{name}");
        files += 1;
    }
    let present = std::fs::read_dir(&folder).expect("readable").filter_map(Result::ok);
    let present = present.filter(|entry| entry.path().extension().is_some_and(|e| e == "pcap")).count();
    assert_eq!(files, present, "the table has every recording");
    println!("{datagrams} datagrams in {files} recordings");
    assert!(datagrams > 1_500, "{datagrams} datagrams");
}

/// A conversation of two contexts in the manner of SUET: a send that waits for its buffer, a write of three packets of
/// which the second is lost, an atomic operation, and the end.
const CONVERSATION: &str = "
1184 ffff 00010000 0001 0000  05 0b 0000 00 000000 0000 0000 0000000000000000 00000000
    0000000000000000 0000000000000000 00000004 01020304;
3a02 0000 00010000 0002 0001  03 00 0000 00 000000 00000000;
5920 0000 00000000 0001 0002 00010000;
3a02 0000 00010000 0002 0001  41 01 0000 00 000000 00000004;
1180 fffe 00010001 0001 0002  01 0d 0001 00 000000 0000 0000 0000000000001000 00000000
    0000000000000042 0123456789abcdef 0000000a 01020304;
1180 fffd 00010003 0001 0002  01 0e 0001 00 000000 0000 0000 0000000000001000 00000000
    0000000000000042 00000002 00000008 0000000a 090a;
4200 0002 00010001 0002 0001  00 01 ffff 0000000000000008 0000000000000000  00 01 0001 00 000000 0000000a;
1190 fffe 00010002 0001 0002  01 0c 0001 00 000000 0000 0000 0000000000001000 00000000
    0000000000000042 00000004 00000004 0000000a 05060708;
5000 0100 00010002 0002 0001 00000000;
1980 fffe 00010004 0001 0002  03 0b 0002 00 000000 0000 0000 0000000000001000 00000000
    0000000000000042 0000000000000000 00000008 00070000 0000000000000001;
5a20 0000 00010005 0001 0002 00000000;
3800 0000 00010005 0002 0001;";

#[test]
fn a_conversation_of_our_own_is_written_to_the_same_bytes() {
    let mut counts = Counts::new();
    for datagram in CONVERSATION.split_terminator(';') {
        let digits: Vec<u8> = datagram.chars().filter_map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        count(&bytes, &mut counts);
    }
    let expected = "RUD_REQ SEND 1, RUD_REQ WRITE 3, ROD_REQ ATOMIC 1, ACK r3 1, ACK r1 1, ACK - 1, ACK_CC r0 1, \
        NACK 01 1, CP clear 1, CP close 1, SYN 1, RETX 1, REQ=1 2, SACK 1";
    assert_eq!(counts, listed(&[expected]));
}
