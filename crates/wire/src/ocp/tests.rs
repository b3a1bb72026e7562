//! The reference packets, round trips, and bytes that are no datagrams.

use super::*;
use proptest::prelude::*;
use strandway_proto::packet::NackReason;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter_map(|c| char::from(c).to_digit(16).map(|d| d as u8)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const fn address(last: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// A WRITE of "hello" from QP 0x456 to QP 0x123, and the SACK for its marked arrival. The ICRCs were computed by
/// another project's RoCE library.
fn references() -> [(Vec<u8>, Datagram, &'static [u8]); 2] {
    let write =
        "62a00002 00381140 fd000000000000000000000000000001 fd000000000000000000000000000002 1003 12b7 0038 0000
        ca30ffff 00000123 9000002a 00000007 beef0001 0000000000001000 11223344 00000005 68656c6c6f000000 8081c747";
    let sack = "6b800000 003c1140 fd000000000000000000000000000002 fd000000000000000000000000000001 2001 12b7 003c 0000
        dc00ffff 00000456 00000028 0020 0002 00021003 0123 0456 00000028 00 00 0002 0000000000000001 beef 0001 00 000456
        67ac2e2b";
    let body = Body::Write(Write {
        place: Place::Only,
        immediate: None,
        immediates: 0,
        messages: 7,
        stamp: Some(Stamp { tick: 0xbeef, coarse: false }),
        address: 0x1000,
        key: 0x1122_3344,
        message_bytes: 5,
    });
    let first = Datagram {
        source: address(1),
        destination: address(2),
        class: 10 << 2 | 2,
        entropy: 0x0002_1003,
        queue: 0x123,
        psn: Psn::new(0x2a),
        ack_request: true,
        retransmission: false,
        body,
    };
    let body = Body::Sack(Sack {
        skip: Skip::Once,
        cause: Cause::Packet(2),
        entropy: 0x0002_1003,
        queues: [0x123, 0x456],
        cumulative: Psn::new(0x28),
        range: 0,
        base: 2,
        bits: 1,
        tick: 0xbeef,
        out_of_order: 1,
        restore: false,
        penalty: 0,
        received: 0x456,
    });
    let second = Datagram {
        source: address(2),
        destination: address(1),
        class: 46 << 2,
        entropy: 0x2001,
        queue: 0x456,
        psn: Psn::new(0x28),
        ack_request: false,
        retransmission: false,
        body,
    };
    [(bytes(write), first, b"hello"), (bytes(sack), second, b"")]
}

#[test]
fn the_reference_packets_are_written_and_read_byte_for_byte() {
    for (reference, datagram, payload) in references() {
        let mut out = Vec::new();
        write(&datagram, PORT, payload, &mut out).expect("every number fits");
        assert_eq!(out, reference);
        assert_eq!(read(&reference, PORT), Ok((datagram, payload)));
        let covered = &reference[..reference.len() - ICRC];
        assert_eq!(icrc(covered).expect("long enough")[..], reference[covered.len()..]);
    }
}

#[test]
fn one_changed_byte_makes_a_wrong_icrc_unless_switches_may_change_it() {
    for (reference, datagram, payload) in references() {
        for at in 0..reference.len() {
            let mut changed = reference.clone();
            changed[at] ^= 4;
            match read(&changed, PORT) {
                // Traffic class, flow label, hop limit, UDP checksum and the BTH's reserved byte.
                Ok((other, same)) => {
                    assert!(matches!(at, 0..=3 | 7 | 46 | 47 | 52), "byte {at}");
                    assert_eq!((other.psn, other.body, same), (datagram.psn, datagram.body, payload));
                }
                Err(_) => assert!(!matches!(at, 2 | 3 | 7 | 46 | 47 | 52), "byte {at}"),
            }
        }
    }
}

#[test]
fn both_forms_of_doubtful_fields_are_read() {
    let [(write_bytes, datagram, payload), (sack_bytes, ..)] = references();
    // Transport version 1, and partition 0.
    let mut other = write_bytes[..write_bytes.len() - ICRC].to_vec();
    other[FIXED - BTH + 1] |= 1;
    other[FIXED - BTH + 2..][..2].fill(0);
    let sum = icrc(&other).expect("long enough");
    other.extend(sum);
    assert_eq!(read(&other, PORT), Ok((datagram, payload)));
    // The reserved verdict says nothing.
    let mut other = sack_bytes[..sack_bytes.len() - ICRC].to_vec();
    other[FIXED + 1] = 3 << 5;
    let sum = icrc(&other).expect("long enough");
    other.extend(sum);
    let Ok((Datagram { body: Body::Sack(sack), .. }, _)) = read(&other, PORT) else { panic!("a SACK") };
    assert_eq!(sack.skip, Skip::None);
    // A response has its operation in bits 3:2, or in 5:4.
    let response = Datagram { body: Body::Response(Response { port_status: false, tick: 9 }), ..datagram };
    let mut out = Vec::new();
    write(&response, PORT, &[], &mut out).expect("fits");
    assert_eq!(out[FIXED + 1], 1 << 2);
    out.truncate(out.len() - ICRC);
    out[FIXED + 1] = 1 << 4;
    let sum = icrc(&out).expect("long enough");
    out.extend(sum);
    assert_eq!(read(&out, PORT).map(|(datagram, _)| datagram), Ok(response));
}

#[test]
fn the_header_of_a_trimmed_write_names_the_packet_and_its_path() {
    let [(reference, datagram, _), (sack, ..)] = references();
    let expected = Trimmed {
        source: datagram.source,
        destination: datagram.destination,
        entropy: datagram.entropy,
        queue: datagram.queue,
        psn: datagram.psn,
        retransmission: false,
        stamp: Some(Stamp { tick: 0xbeef, coarse: false }),
    };
    assert_eq!(read_trimmed(&reference[..TRIMMED], PORT), Ok(expected));
    assert_eq!(read_trimmed(&reference[..TRIMMED - 1], PORT), Err(WireError::Short));
    assert_eq!(read(&reference[..TRIMMED], PORT), Err(WireError::Length));
    assert_eq!(read_trimmed(&sack, PORT), Err(WireError::Unknown));
}

#[test]
fn an_entropy_value_is_plane_uplink_and_the_rest_of_the_paths_number() {
    assert_eq!(entropy_of(PathId::new(1, 3)), 0x1003);
    assert_eq!(entropy_of(PathId::new(1, 0x2003)), 0x0002_1003);
    assert_eq!(path_of(0x0002_1003), PathId::new(1, 0x2003));
    assert_eq!(path_of(0x2003_0000).port(), 0x20, "no plane of ours");
}

fn stamps() -> impl Strategy<Value = Stamp> {
    any::<(u16, bool)>().prop_map(|(tick, coarse)| Stamp { tick, coarse })
}

fn psns() -> impl Strategy<Value = Psn> {
    (0..Psn::MODULUS).prop_map(Psn::new)
}

fn places() -> impl Strategy<Value = (Place, Option<u32>)> {
    prop_oneof![
        Just((Place::First, None)),
        Just((Place::Middle, None)),
        any::<Option<u32>>().prop_map(|immediate| (Place::Last, immediate)),
        any::<Option<u32>>().prop_map(|immediate| (Place::Only, immediate)),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    let writes = (places(), any::<(u16, u16, u64, u32, u32)>(), prop::option::of(stamps())).prop_map(
        |((place, immediate), (immediates, messages, address, key, message_bytes), stamp)| {
            Body::Write(Write { place, immediate, immediates, messages, stamp, address, key, message_bytes })
        },
    );
    let acks = (any::<u8>(), 0u32..1 << 24)
        .prop_map(|(syndrome, completed)| Body::TransportAck(TransportAck { syndrome, completed }));
    let skips = prop_oneof![Just(Skip::None), Just(Skip::Once), Just(Skip::Always)];
    let causes = prop_oneof![any::<i16>().prop_map(Cause::Packet), any::<u16>().prop_map(Cause::Probe)];
    let rest = (any::<(u32, [u16; 2], u8, i16, u64, u16, bool)>(), 0u16..1 << 15, 0u8..1 << 7, 0u32..1 << 24);
    let sacks = (skips, causes, psns(), rest).prop_map(|(skip, cause, cumulative, rest)| {
        let ((entropy, queues, range, base, bits, tick, restore), out_of_order, penalty, received) = rest;
        Body::Sack(Sack {
            skip,
            cause,
            entropy,
            queues,
            cumulative,
            range,
            base,
            bits,
            tick,
            out_of_order,
            restore,
            penalty,
            received,
        })
    });
    let reasons = prop_oneof![
        any::<bool>().prop_map(|at_last_hop| (NackReason::Missing, at_last_hop)),
        Just((NackReason::NoTracker, false)),
        Just((NackReason::NoBuffer, false)),
        Just((NackReason::NoResource, false)),
        Just((NackReason::BeyondWindow, false)),
        Just((NackReason::Fatal, false)),
    ];
    let nacks = (reasons, psns(), any::<(u32, [u16; 2], u16)>()).prop_map(
        |((reason, at_last_hop), psn, (entropy, queues, tick))| {
            Body::Nack(Nack { reason, at_last_hop, entropy, queues, psn, tick })
        },
    );
    let probes = (any::<(u16, [u16; 2])>(), stamps())
        .prop_map(|((number, queues), stamp)| Body::Probe(Probe { number, queues, stamp }));
    let requests =
        (prop::option::of(0u32..1 << 31), stamps()).prop_map(|(ports, stamp)| Body::Request(Request { ports, stamp }));
    let responses = any::<(bool, u16)>().prop_map(|(port_status, tick)| Body::Response(Response { port_status, tick }));
    prop_oneof![writes, acks, sacks, nacks, probes, requests, responses]
}

fn datagrams() -> impl Strategy<Value = Datagram> {
    let fixed = (any::<([u8; 16], [u8; 16], u8, u32)>(), 0u32..1 << 24, psns(), any::<(bool, bool)>());
    (fixed, bodies()).prop_map(|((ends, queue, psn, (ack_request, retransmission)), body)| {
        let (source, destination, class, entropy) = ends;
        Datagram { source, destination, class, entropy, queue, psn, ack_request, retransmission, body }
    })
}

proptest! {
    #[test]
    fn a_datagram_survives_the_wire(datagram in datagrams(), payload in prop::collection::vec(any::<u8>(), 0..70), before: u8) {
        let payload = if matches!(datagram.body, Body::Write(_)) { &payload[..] } else { &[] };
        let mut out = vec![before];
        write(&datagram, PORT, payload, &mut out).expect("every number fits");
        prop_assert_eq!(out[0], before);
        prop_assert_eq!(out.len() - 1, FIXED + datagram.body.bytes() + payload.len().next_multiple_of(4) + ICRC);
        prop_assert!(!matches!(datagram.body, Body::Write(_)) || FIXED + datagram.body.bytes() + ICRC <= WRITE_MAX);
        prop_assert_eq!(read(&out[1..], PORT), Ok((datagram, payload)));
        prop_assert_eq!(read(&out[1..], PORT + 1), Err(WireError::Foreign));
        for end in 1..out.len() {
            prop_assert!(read(&out[1..end], PORT).is_err());
        }
    }

    #[test]
    fn a_datagram_with_one_wrong_bit_is_refused_or_differs_only_where_switches_write(
        datagram in datagrams(), bit in 0usize..8 * FIXED,
    ) {
        let mut out = Vec::new();
        write(&datagram, PORT, &[], &mut out).expect("every number fits");
        out[bit / 8] ^= 1 << (bit % 8);
        if let Ok((other, _)) = read(&out, PORT) {
            let masked = Datagram { class: other.class, entropy: other.entropy, ..datagram };
            prop_assert_eq!(other, masked);
            prop_assert_eq!(other.entropy as u16, datagram.entropy as u16);
        }
    }

    #[test]
    fn every_entropy_value_has_a_path_and_every_path_an_entropy_value(number: u32) {
        prop_assert_eq!(entropy_of(path_of(number)), number);
        prop_assert_eq!(path_of(entropy_of(PathId(number))), PathId(number));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..160), opcode in 0xc6u8..0xdf) {
        let _ = (read(&bytes, PORT), read_trimmed(&bytes, PORT));
        // Headers are made right, so that the bodies are read, too.
        if bytes.len() >= FIXED + ICRC {
            let length = (bytes.len() - IPV6) as u16;
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            bytes[6] = NEXT_HEADER_UDP;
            bytes[42..44].copy_from_slice(&PORT.to_be_bytes());
            bytes[44..46].copy_from_slice(&length.to_be_bytes());
            (bytes[48], bytes[49]) = (opcode, bytes[49] & 0x30);
            let at = bytes.len() - ICRC;
            let sum = icrc(&bytes[..at]).expect("long enough");
            bytes[at..].copy_from_slice(&sum);
            if let Ok((datagram, payload)) = read(&bytes, PORT) {
                let mut out = Vec::new();
                // Port 31 of a status has no bit, and reserved fields are written as zero: the rest says the same.
                if write(&datagram, PORT, payload, &mut out).is_ok() {
                    prop_assert_eq!(read(&out, PORT), Ok((datagram, payload)));
                }
            }
            let _ = read_trimmed(&bytes, PORT);
        }
    }
}
