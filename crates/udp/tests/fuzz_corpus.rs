//! Replays the fuzzing corpus as an ordinary test; its seeds pin the layout of the datagram.

use super::operations;
use std::path::PathBuf;
use strandway_proto::aggregate::{Fragment, Kind as FragmentKind, Marks};
use strandway_proto::packet::{Data, Flags, Header, MessageId, Offset, Psn, Wait};
use strandway_proto::profile::WireFormat;
use strandway_proto::{ConnectionId, HostId, Packet, PathId};
use strandway_udp::Refusal;
use strandway_udp::frame::{
    Change, Descriptor, HELLO, Kind, REFUSAL, RETRY, Sealed, TAG, TRIMMED, VERSION, WELCOME, encode_sealed,
};
use strandway_wire as wire;

fn corpus() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "frame_decode"].iter().collect()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let sealed = |kind, body: usize| {
        let mut bytes = Vec::new();
        let path = PathId::new(2, 0x5678);
        encode_sealed(
            &Sealed { kind, urgent: false, path, credits: 7, connection: 0x1122, counter: 1 << 33 },
            &mut bytes,
        );
        bytes.resize(bytes.len() + body + TAG, 0xaa);
        bytes
    };
    let opening = |kind, length| {
        let mut bytes = vec![VERSION << 4 | kind, 0, 0, 0];
        bytes.resize(length, 0x55);
        bytes
    };
    let descriptor = |descriptor: Descriptor| {
        let mut bytes = Vec::new();
        descriptor.encode(&mut bytes);
        bytes
    };
    let swap = Change::Swap { expected: 1, new: 2 };
    vec![
        ("data", sealed(Kind::Data, 60)),
        ("control", sealed(Kind::Control, 40)),
        ("ping", sealed(Kind::Ping, 8)),
        ("pong", sealed(Kind::Pong, 8)),
        ("close", sealed(Kind::Close, 1)),
        ("hello", opening(1, HELLO)),
        ("retry", opening(2, RETRY)),
        ("welcome", opening(3, WELCOME)),
        ("refusal", opening(9, REFUSAL)),
        ("send", descriptor(Descriptor::Send { number: 9 })),
        ("write", descriptor(Descriptor::Write { key: 1, start: 1 << 40, immediate: None })),
        ("read", descriptor(Descriptor::Read { number: 9, key: 1, start: 1 << 40, bytes: u64::MAX })),
        ("fetch_add", descriptor(Descriptor::Atomic { number: 9, key: 1, start: 8, change: Change::Add(7) })),
        ("compare_swap", descriptor(Descriptor::Atomic { number: 9, key: 1, start: 8, change: swap })),
        ("answer", descriptor(Descriptor::Answer { number: 9 })),
        ("word", descriptor(Descriptor::Word { number: 9, word: 1 << 63 })),
        ("refused", descriptor(Descriptor::Refusal { number: 9, refusal: Refusal::NoRight })),
        ("write_immediate", descriptor(Descriptor::Write { key: 1, start: 1 << 40, immediate: Some(0) })),
    ]
}

/// Trimmed data on the friend's connection: of a missing packet, and of one that is not missing.
fn cuts() -> Vec<(&'static str, Vec<u8>)> {
    let cut = |bits: u16, psn: u64| {
        let mut bytes = Vec::new();
        let path = PathId::new(0, 5);
        encode_sealed(
            &Sealed { kind: Kind::Data, urgent: false, path, credits: 0, connection: 0, counter: 77 },
            &mut bytes,
        );
        let data = Data {
            psn: Psn::new(psn),
            message: MessageId(0),
            offset: Offset::new(0),
            length: 1_000,
            target: 0,
            wait: Wait::default(),
        };
        let packet = Packet {
            source: HostId(0),
            destination: HostId(0),
            connection: ConnectionId(0),
            path,
            size: 0,
            flags: Flags::LAST,
            header: Header::Data(data),
        };
        wire::encode(WireFormat::Mrc, &packet, &mut bytes).expect("it fits");
        assert_eq!(bytes.len(), TRIMMED);
        [&(bytes.len() as u16 | operations::FRIEND | operations::URGENT | bits).to_be_bytes()[..], &bytes].concat()
    };
    vec![("cut", cut(0, 0)), ("cut_last_hop", cut(operations::LAST_HOP, 3)), ("cut_beyond", cut(0, 1 << 20))]
}

#[test]
fn a_cut_datagram_of_a_friend_is_asked_for_again_and_a_strangers_too() {
    let mut live = operations::Live::new();
    for (i, (name, bytes)) in cuts().into_iter().enumerate() {
        live.check(&bytes);
        assert_eq!(live.trimmed(), i as u64 + 1, "{name} reaches the engine");
    }
}

#[test]
fn every_input_of_the_corpus_passes() {
    let mut count = 0;
    for entry in std::fs::read_dir(corpus()).expect("the corpus is part of the repository") {
        operations::check_frame(&std::fs::read(entry.expect("a file").path()).expect("a file"));
        count += 1;
    }
    assert!(count >= 12, "{count} inputs");
}

/// After an intended change of the layout, run it once with `UPDATE_CORPUS=1`.
#[test]
fn the_datagram_is_what_it_was() {
    for (name, bytes) in seeds() {
        let path = corpus().join(name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::write(&path, &bytes).expect("a file can be written");
        }
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(stored, bytes, "{name}");
    }
}

/// A body of each kind of fragment, and a datagram of a channel.
fn fragment_seeds() -> Vec<(String, Vec<u8>)> {
    let body = |kind: FragmentKind| {
        let lanes = if kind.has_elements() { 3 } else { 0 };
        let fragment = Fragment {
            kind,
            marks: Marks::RESEND.with(Marks::FLOAT),
            priority: 200,
            job: 7,
            fan_in: [4, 1],
            number: 0x0102_0304,
            workers: 0b1010,
            racks: 1,
            slot: 99,
            watermark: 0x0102_0000,
            elements: lanes,
            sender: 3,
        };
        let mut bytes = Vec::new();
        wire::aggregate::encode(&fragment, &mut bytes);
        (0..lanes).for_each(|lane| bytes.extend_from_slice(&(i32::from(lane) - 1).to_le_bytes()));
        (format!("{kind:?}").to_lowercase(), bytes)
    };
    let mut all: Vec<(String, Vec<u8>)> = FragmentKind::ALL.into_iter().map(body).collect();
    let mut datagram = Vec::new();
    let path = PathId::new(1, 0);
    encode_sealed(
        &Sealed { kind: Kind::Fragment, urgent: false, path, credits: 0, connection: 0x1122, counter: 9 },
        &mut datagram,
    );
    datagram.resize(datagram.len() + 32 + 12 + TAG, 0xaa);
    all.push(("datagram".into(), datagram));
    all
}

/// After an intended change of the layout, run it once with `UPDATE_CORPUS=1`.
#[test]
fn fragments_are_what_they_were_and_their_corpus_passes() {
    let folder: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "fragment_decode"].iter().collect();
    for (name, bytes) in fragment_seeds() {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&path, &bytes).expect("a file can be written");
        }
        let stored = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(stored, bytes, "{}", path.display());
    }
    for entry in std::fs::read_dir(&folder).expect("the corpus is part of the repository") {
        operations::check_fragment(&std::fs::read(entry.expect("a file").path()).expect("a file"));
    }
}

#[test]
fn a_live_node_survives_the_corpus() {
    let mut live = operations::Live::new();
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", "live_node"].iter().collect();
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        std::fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in seeds() {
            let length = (bytes.len() as u16).to_be_bytes();
            // Twice, since the second one must be recognised as a copy.
            let twice = [&length[..], &bytes, &length, &bytes].concat();
            std::fs::write(folder.join(name), twice).expect("a file can be written");
        }
        for (name, bytes) in cuts() {
            std::fs::write(folder.join(name), bytes).expect("a file can be written");
        }
    }
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is part of the repository") {
        live.check(&std::fs::read(entry.expect("a file").path()).expect("a file"));
        count += 1;
    }
    assert!(count >= 12, "{count} inputs");
}
