//! Wire formats: decoding gives the encoded packet, no bytes from the network cause a panic, and checksums are correct.

use proptest::prelude::*;
use strandway_proto::control_message::{ControlMessage, Have, Heard, Missing};
use strandway_proto::packet::{
    Ack, Answer, Data, Flags, Header, Nack, NackReason, Offset, Operation, Part, Psn, SackBits, Wait,
};
use strandway_proto::partial::SEQUENCES;
use strandway_proto::profile::WireFormat;
use strandway_proto::{ConnectionId, HostId, MessageId, Packet, PathId};
use strandway_wire as wire;
use strandway_wire::{Outer, WireError, frame};

const FORMATS: [WireFormat; 4] = [WireFormat::Rocev2, WireFormat::Uec, WireFormat::Strack, WireFormat::Mrc];

fn psn() -> impl Strategy<Value = Psn> {
    prop_oneof![Just(0), Just(Psn::MODULUS - 1), any::<u64>()].prop_map(Psn::new)
}

fn path() -> impl Strategy<Value = PathId> {
    (any::<u8>(), any::<u32>()).prop_map(|(port, entropy)| PathId::new(port, entropy))
}

fn reason() -> impl Strategy<Value = NackReason> {
    prop_oneof![
        3 => Just(NackReason::Missing),
        1 => Just(NackReason::NoTracker),
        1 => Just(NackReason::NoBuffer),
        1 => Just(NackReason::NoResource),
        1 => Just(NackReason::BeyondWindow),
        1 => Just(NackReason::Fatal),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    let offset = prop_oneof![Just(0), any::<u64>()];
    prop_oneof![
        3 => (psn(), any::<u32>(), offset, 0u16..60_000).prop_map(|(psn, message, offset, length)| {
            Header::Data(Data { psn, message: MessageId(message), offset: Offset::new(offset), length, target: 0, wait: Wait::default() })
        }),
        3 => (psn(), psn(), any::<u64>(), psn(), path(), any::<u32>(), any::<u16>(), any::<u8>()).prop_map(
            |(cumulative, sack_base, sack, acked, path, received, out_of_order, range)| {
                let sack = SackBits::new(sack);
                Header::Ack(Ack { cumulative, sack_base, sack, acked, path, received, out_of_order, range })
            }
        ),
        2 => (psn(), psn(), path(), reason()).prop_map(|(psn, cumulative, path, reason)| {
            Header::Nack(Nack { psn, cumulative, path, reason })
        }),
        1 => (any::<u16>(), any::<Option<u32>>()).prop_map(|(number, mask)| {
            let operation = mask.map_or(Operation::PathProbe, Operation::PortStatus);
            Header::Operation { number, operation }
        }),
        1 => (any::<bool>(), any::<u16>(), path())
            .prop_map(|(port_status, number, path)| Header::Answer(Answer { port_status, number, path })),
        1 => Just(Header::Cnp),
        1 => any::<u32>().prop_map(|number| Header::Probe { number }),
        2 => control().prop_map(Header::Control),
        2 => part().prop_map(Header::Part),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let sequence = prop_oneof![Just(0), Just(SEQUENCES - 1), 0..SEQUENCES];
    (sequence, any::<[u32; 3]>(), any::<u16>(), 0u16..60_000, any::<(bool, u8)>()).prop_map(
        |(sequence, [message, packet, packets], tail, length, (parity, plan))| {
            let (message, wait) = (MessageId(message), Wait::default());
            Part { sequence, message, packet, packets, tail, length, wait, parity, plan }
        },
    )
}

fn control() -> impl Strategy<Value = ControlMessage> {
    let have = || {
        (any::<[u32; 4]>(), any::<u64>(), any::<u16>()).prop_map(
            |([sequence, cumulative, base, newest], bits, held)| Have {
                sequence,
                cumulative,
                base,
                bits: SackBits::new(bits),
                newest,
                held,
            },
        )
    };
    prop_oneof![
        (any::<u16>(), any::<[u32; 4]>()).prop_map(|(kind, words)| ControlMessage::Custom { kind, words }),
        any::<[u32; 2]>().prop_map(|[first, count]| ControlMessage::Clear { first, count }),
        have().prop_map(ControlMessage::Have),
        have().prop_map(ControlMessage::Recovered),
        (any::<u32>(), any::<[u32; 3]>(), any::<[u16; 3]>())
            .prop_map(|(sequence, starts, lengths)| ControlMessage::Missing(Missing { sequence, starts, lengths })),
        any::<u32>().prop_map(|sequence| ControlMessage::Ask { sequence }),
        any::<u32>().prop_map(|sequence| ControlMessage::Unknown { sequence }),
        (any::<u32>(), any::<bool>()).prop_map(|(sequence, whole)| ControlMessage::Over { sequence, whole }),
        (any::<[u32; 4]>(), any::<u16>()).prop_map(|([sequence, packet, before, received], held)| {
            ControlMessage::Heard(Heard { sequence, packet, before, received, held })
        }),
    ]
}

/// The packet, reduced to the values that fit a format.
fn fit(format: WireFormat, packet: Packet) -> Packet {
    let Packet { connection, mut flags, mut header, .. } = packet;
    match header {
        Header::Control(ControlMessage::Custom { .. } | ControlMessage::Clear { .. }) => flags.0 &= Flags::CE.0,
        Header::Control(_) => flags.0 &= Flags::CE.with(Flags::MARKED).0,
        Header::Part(_) => {
            let own = Flags::LAST.with(Flags::RETRANSMITTED).with(Flags::ACK_REQUEST);
            flags.0 &= own.with(Flags::CE).with(Flags::TRIMMED).with(Flags::TRIMMED_AT_LAST_HOP).0;
        }
        _ => {}
    }
    if let Header::Control(_) | Header::Part(_) = header {
        return Packet { flags, ..packet };
    }
    if format != WireFormat::Mrc {
        flags.0 &= !Flags::ALWAYS_SKIP.0;
        match &mut header {
            Header::Ack(ack) => ack.range = 0,
            Header::Nack(nack) => nack.reason = NackReason::Missing,
            Header::Operation { .. } | Header::Answer(_) => header = Header::Cnp,
            _ => {}
        }
        return Packet { flags, header, ..packet };
    }
    match &mut header {
        Header::Ack(ack) => {
            let cumulative = u64::from({ ack.cumulative }.get());
            let near = |psn: Psn| Psn::new(cumulative + u64::from(psn.get() & 0x7ff));
            ack.sack_base = near(ack.sack_base);
            ack.acked = if flags.has(Flags::PROBE_ANSWER) {
                Psn::new(u64::from({ ack.acked }.get() & 0xffff))
            } else {
                near(ack.acked)
            };
            ack.received &= 0xff_ffff;
            ack.out_of_order &= 0x7fff;
        }
        Header::Nack(nack) => {
            nack.cumulative =
                Psn::new(u64::from(nack.psn.get()) + Psn::MODULUS - u64::from(nack.cumulative.get() & 0xffff));
        }
        Header::Probe { number } => *number &= 0xffff,
        _ => {}
    }
    Packet { connection, flags, header, ..packet }
}

/// Every packet that fits some format, see [`fit`].
fn packet() -> impl Strategy<Value = Packet> {
    // A frame's lowest queue pairs are reserved.
    (any::<[u32; 2]>(), 0u32..(1 << 24) - 3, path(), any::<u16>(), 0..=Flags::ALL.0, header()).prop_map(
        |([source, destination], connection, path, size, flags, header)| {
            let mut flags = Flags(flags);
            if header.has_payload() && !flags.has(Flags::TRIMMED) {
                flags.0 &= !Flags::TRIMMED_AT_LAST_HOP.0;
            }
            let (source, destination) = (HostId(source), HostId(destination));
            Packet { source, destination, connection: ConnectionId(connection), path, size, flags, header }
        },
    )
}

proptest! {
    #[test]
    fn a_transport_header_is_read_as_it_was_written(packet in packet(), payload in prop::collection::vec(any::<u8>(), 0..40)) {
        for format in FORMATS {
            let packet = fit(format, packet);
            let mut bytes = vec![7; 3];
            wire::encode(format, &packet, &mut bytes).expect("a packet with room");
            prop_assert_eq!(&bytes[..3], &[7; 3]);
            let length = wire::header_bytes(format, &packet);
            prop_assert_eq!(bytes.len(), 3 + length);
            for cut in 0..length {
                prop_assert_eq!(wire::decode(format, &bytes[3..3 + cut]), Err(WireError::Short));
            }
            bytes.extend_from_slice(&payload);
            let bare = wire::decode(format, &bytes[3..]).expect("a header");
            prop_assert_eq!(Outer::of(&bare), Outer::default());
            prop_assert_eq!(Outer::of(&packet).complete(bare), packet);
        }
    }

    #[test]
    fn a_frame_is_read_as_it_was_written(packet in packet()) {
        for format in FORMATS {
            let packet = fit(format, packet);
            let mut bytes = Vec::new();
            let whole = frame::write(format, &packet, &mut bytes).expect("a packet with room");
            prop_assert!(bytes.len() <= whole);
            let expect = Packet { size: whole as u16, ..packet };
            prop_assert_eq!(frame::read(format, &bytes), Ok(expect));
            for other in FORMATS.into_iter().filter(|&other| other != format) {
                // RoCEv2 and MRC share a port and no opcode.
                let same = frame::udp_port(other) == frame::udp_port(format);
                if same && matches!(packet.header, Header::Control(_) | Header::Part(_)) {
                    // Control messages and parts are the same in every format; only the padding of their frames
                    // differs.
                    continue;
                }
                let expect = if same { WireError::Unknown } else { WireError::Foreign };
                prop_assert_eq!(frame::read(other, &bytes), Err(expect));
            }
            // With a payload of zeros, an independent receiver finds the checksum correct.
            bytes.resize(whole, 0);
            let udp_length = u16::from_be_bytes([bytes[58], bytes[59]]);
            prop_assert_eq!(usize::from(udp_length), bytes.len() - 54);
            let mut sum = u32::from(udp_length) + 17;
            for pair in bytes[22..].chunks(2) {
                sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            }
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            prop_assert_eq!(sum, 0xffff);
            prop_assert_eq!(frame::read(format, &bytes), Ok(expect));
        }
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..160)) {
        for format in FORMATS {
            let _ = wire::decode(format, &bytes);
            let _ = frame::read(format, &bytes);
        }
    }

    #[test]
    fn damage_is_noticed_or_harmless(packet in packet(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        for format in FORMATS {
            let packet = fit(format, packet);
            let mut bytes = Vec::new();
            wire::encode(format, &packet, &mut bytes).expect("a packet with room");
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if let Ok(read) = wire::decode(format, &bytes) {
                // A decoded packet can be encoded again and gives the same bytes, except for fields that MRC does not
                // read.
                let mut again = Vec::new();
                wire::encode(format, &read, &mut again).expect("a packet that was read");
                prop_assert!(format == WireFormat::Mrc || again[..] == bytes[..again.len()]);
                prop_assert_eq!(wire::decode(format, &again), Ok(read));
            }
            let mut bytes = Vec::new();
            frame::write(format, &packet, &mut bytes).expect("a packet with room");
            let at = 14 + 8 + at % (bytes.len() - 22);
            let before = bytes.clone();
            bytes[at] ^= flip;
            if let Ok(read) = frame::read(format, &bytes) {
                // All bytes under the checksum are protected; the ICRC after them is not checked here.
                prop_assert!(at >= 62 + wire::header_bytes(format, &packet), "{read:?} from {before:?}");
            }
        }
    }
}

fn data(offset: u64, flags: Flags) -> Packet {
    Packet {
        source: HostId(3),
        destination: HostId(0x0102_0304),
        connection: ConnectionId(0x00ab_cdef),
        path: PathId::new(1, 0xbeef),
        size: 4160,
        flags,
        header: Header::Data(Data {
            psn: Psn::new(0x123456),
            message: MessageId(9),
            offset: Offset::new(offset),
            length: 4096,
            target: 0,
            wait: Wait::default(),
        }),
    }
}

fn bytes_of(format: WireFormat, packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode(format, packet, &mut bytes).expect("a packet with room");
    bytes
}

#[test]
fn a_rocev2_write_looks_as_the_standard_has_it() {
    let bytes = bytes_of(WireFormat::Rocev2, &data(0, Flags::ACK_REQUEST));
    #[rustfmt::skip]
    assert_eq!(bytes, [
        0x06, 0x40, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0x80, 0x12, 0x34, 0x56, // BTH: WRITE First, ack request
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0x10, 0, // RETH: offset, message, length
    ]);
    for (offset, flags, opcode) in
        [(0, Flags::NONE, 0x06), (4096, Flags::NONE, 0x07), (4096, Flags::LAST, 0x08), (0, Flags::LAST, 0x0a)]
    {
        assert_eq!(bytes_of(WireFormat::Rocev2, &data(offset, flags))[0], opcode);
    }
}

#[test]
fn a_cnp_looks_as_the_standard_has_it() {
    let packet = Packet { header: Header::Cnp, flags: Flags::NONE, size: 64, ..data(0, Flags::NONE) };
    let bytes = bytes_of(WireFormat::Rocev2, &packet);
    assert_eq!(bytes[..12], [0x81, 0x40, 0xff, 0xff, 0x40, 0xab, 0xcd, 0xef, 0, 0, 0, 0]);
    assert_eq!(bytes[12..], [0; 16]);
}

fn mrc(header: Header, flags: Flags) -> Packet {
    Packet { header, flags, ..data(0, Flags::NONE) }
}

#[test]
fn an_mrc_write_looks_as_the_specification_has_it() {
    let bytes = bytes_of(WireFormat::Mrc, &data(0x1_0000_1000, Flags::ACK_REQUEST.with(Flags::RETRANSMITTED)));
    #[rustfmt::skip]
    assert_eq!(bytes, [
        0xc7, 0x01, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0xb0, 0x12, 0x34, 0x56, // BTH: middle; ack request, again, timestamp
        0, 9, 0, 9, // METH: RQMSN, MSN
        0, 0, 0, 1, // TSETH: type 1
        0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 9, 0, 0, 0x10, 0, // RETH: offset, message, length
    ]);
    for (offset, flags, opcode, length) in [
        (0, Flags::NONE, 0xc6, 36),
        (4096, Flags::NONE, 0xc7, 36),
        (4096, Flags::LAST, 0xc9, 40),
        (0, Flags::LAST, 0xcb, 40),
    ] {
        let bytes = bytes_of(WireFormat::Mrc, &data(offset, flags));
        assert_eq!((bytes[0], bytes.len()), (opcode, length));
        // The immediate of the last packet is the message's number.
        assert_eq!(bytes[36..], [0u8, 0, 0, 9][..length - 36]);
    }
}

#[test]
fn an_mrc_sack_looks_as_the_specification_has_it() {
    let ack = |acked: u64| {
        Header::Ack(Ack {
            cumulative: Psn::new(0x1000),
            sack_base: Psn::new(0x1002),
            sack: SackBits::new(0x8000_0000_0000_0005),
            acked: Psn::new(acked),
            path: PathId::new(3, 0x51),
            received: 0x0a_0b0c,
            out_of_order: 7,
            range: 5,
        })
    };
    #[rustfmt::skip]
    let mut expected = vec![
        0xdc, 0x01, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0x00, 0x00, 0x0f, 0xff, // BTH: PSN is the last one below the hole
        0x00, 0x20, 0x00, 0x06, // skip once; the packet that caused it is six above that
        0x03, 0x00, 0x00, 0x51, // entropy
        0x00, 0x00, 0xcd, 0xef, // source and destination context
        0x00, 0x00, 0x0f, 0xff, // cumulative
        0x00, 0x05, 0x00, 0x03, // CC type and flags, MPR, where the bitmap begins
        0x80, 0, 0, 0, 0, 0, 0, 0x05,
        0, 0, 0, 7, // timestamp, packets held
        0x00, 0x0a, 0x0b, 0x0c, // no penalty, received in 256 B
    ];
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(ack(0x1005), Flags::MARKED)), expected);
    // An answer to a probe has the probe's number there; a PSN below the cumulative one has a negative offset.
    expected[13..16].copy_from_slice(&[0x02, 0x80, 0x01]);
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(ack(0x8001), Flags::PROBE_ANSWER)), expected);
    expected[13..16].copy_from_slice(&[0x40, 0xff, 0xff]);
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(ack(0x0ffe), Flags::ALWAYS_SKIP)), expected);
    let far = mrc(ack(0x1000 + (1 << 15)), Flags::NONE);
    assert_eq!(wire::encode(WireFormat::Mrc, &far, &mut Vec::new()), Err(WireError::Unencodable));
}

#[test]
fn mrcs_other_packets_look_as_the_specification_has_them() {
    let nack = |reason| {
        let (psn, cumulative) = (Psn::new(0x0002_0304), Psn::new(0x0002_0301));
        Header::Nack(Nack { psn, cumulative, path: PathId::new(1, 2), reason })
    };
    #[rustfmt::skip]
    let mut expected = vec![
        0xdd, 0x01, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0x00, 0x02, 0x03, 0x04, // BTH: PSN is the one wanted
        0x00, 0x00, 0x01, 0x00, // trimmed
        0x01, 0x00, 0x00, 0x02, // entropy
        0x00, 0x00, 0xcd, 0xef, // source and destination context
        0x00, 0x02, 0x03, 0x04, // PSN
        0x20, 0x03, 0x00, 0x00, // CC type 2; ours: three above the cumulative; timestamp
    ];
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(nack(NackReason::Missing), Flags::NONE)), expected);
    for (reason, flags, code) in [
        (NackReason::Missing, Flags::TRIMMED_AT_LAST_HOP, 0x02),
        (NackReason::NoTracker, Flags::NONE, 0x06),
        (NackReason::NoBuffer, Flags::NONE, 0x07),
        (NackReason::NoResource, Flags::NONE, 0x0a),
        (NackReason::BeyondWindow, Flags::NONE, 0x0b),
        (NackReason::Fatal, Flags::NONE, 0x19),
    ] {
        expected[14] = code;
        assert_eq!(bytes_of(WireFormat::Mrc, &mrc(nack(reason), flags)), expected);
    }
    #[rustfmt::skip]
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(Header::Probe { number: 0x8001 }, Flags::NONE)), [
        0xde, 0x01, 0xff, 0xff, 0x00, 0xab, 0xcd, 0xef, 0, 0, 0, 0, // BTH: no PSN
        0, 0, 0, 0, 0x80, 0x01, 0, 0, 0, 0, 0xcd, 0xef, 0, 0, 0, 1, // PETH: number, contexts, timestamp of type 1
    ]);
    #[rustfmt::skip]
    let mut request = vec![
        0xd8, 0x01, 0xff, 0xff, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x01, 0x02, // BTH: to QP 2; PSN is the number
        0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xfb, // ERTH: port status, all but the third
        0x00, 0xab, 0xcd, 0xef, 0x00, 0x00, 0x00, 0x01, // ours: the connection; timestamp of type 1
    ];
    let operation = |operation| Header::Operation { number: 0x102, operation };
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(operation(Operation::PortStatus(!4)), Flags::NONE)), request);
    request[13] = 1;
    request[16..20].fill(0);
    assert_eq!(bytes_of(WireFormat::Mrc, &mrc(operation(Operation::PathProbe), Flags::NONE)), request);
    let answer = Header::Answer(Answer { port_status: false, number: 0x102, path: PathId::new(1, 0x77) });
    let bytes = bytes_of(WireFormat::Mrc, &mrc(answer, Flags::NONE));
    assert_eq!(bytes[..12], [0xd9, 0x01, 0xff, 0xff, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x01, 0x02]);
    assert_eq!(bytes[12..24], [0, 4, 0, 0, 0x00, 0xab, 0xcd, 0xef, 0x01, 0x00, 0x00, 0x77]);
    assert_eq!(bytes[24..], [0; 24]);
    // Seen from outside: on RoCEv2's port.
    let mut frame = Vec::new();
    frame::write(WireFormat::Mrc, &mrc(answer, Flags::NONE), &mut frame).expect("a packet with room");
    assert_eq!(frame[56..58], 4791u16.to_be_bytes());
}

#[test]
fn a_frame_shows_where_a_packet_goes_and_how_it_fared() {
    let mut bytes = Vec::new();
    let whole = frame::write(WireFormat::Rocev2, &data(0, Flags::CE), &mut bytes).expect("a packet with room");
    assert_eq!(bytes.len(), 14 + 40 + 8 + 28);
    assert_eq!(whole, bytes.len() + 4096 + 4);
    assert_eq!(bytes[..14], [2, 1, 1, 2, 3, 4, 2, 1, 0, 0, 0, 3, 0x86, 0xdd]);
    // Version 6, DSCP 26, CE, flow label from the entropy value.
    assert_eq!(bytes[14..18], [0x66, 0xb0, 0x0b, 0xef]);
    assert_eq!(bytes[22..38], [0xfd, 0x53, 0x74, 0x72, 0x61, 0x6e, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(bytes[54..58], [0xfe, 0xef, 0x12, 0xb7]);

    let mut trimmed = Vec::new();
    let flags = Flags::TRIMMED.with(Flags::TRIMMED_AT_LAST_HOP);
    let whole = frame::write(WireFormat::Uec, &data(0, flags), &mut trimmed).expect("a packet with room");
    assert_eq!((whole, trimmed.len()), (14 + 40 + 8 + 24, 14 + 40 + 8 + 24));
    // DSCP 45, ECT(0).
    assert_eq!(trimmed[14..16], [0x6b, 0x60]);
}

#[test]
fn a_frame_has_the_queue_pairs_padding_and_message_length_of_a_nic() {
    let first = data(0, Flags::NONE);
    let mut bytes = Vec::new();
    let whole =
        frame::write_within(WireFormat::Rocev2, &first, Some(2_000_000), &mut bytes).expect("a packet with room");
    // After 62 bytes of other headers: queue pair of the BTH, then length of the RETH.
    assert_eq!(bytes[62 + 4..62 + 8], [0x00, 0xab, 0xcd, 0xf1]);
    assert_eq!(bytes[62 + 24..62 + 28], 2_000_000u32.to_be_bytes());
    assert_eq!(frame::read(WireFormat::Rocev2, &bytes), Ok(Packet { size: whole as u16, ..first }));

    let Header::Data(mut short) = first.header else { unreachable!("data") };
    short.length = 4093;
    let short = Packet { header: Header::Data(short), ..first };
    for (format, queue_pair, headers, version) in
        [(WireFormat::Rocev2, [0xab, 0xcd, 0xf1], 28, 0x40), (WireFormat::Mrc, [0xab, 0xcd, 0xf2], 36, 0x01)]
    {
        let mut bytes = Vec::new();
        let whole = frame::write(format, &short, &mut bytes).expect("a packet with room");
        assert_eq!(whole, 62 + headers + 4096 + 4, "three bytes of padding and the ICRC");
        assert_eq!(bytes[62 + 1], version | 3 << 4);
        assert_eq!(bytes[62 + 5..62 + 8], queue_pair);
        assert_eq!(frame::read(format, &bytes), Ok(Packet { size: whole as u16, ..short }));
        bytes[62 + 1] ^= 1 << 4;
        assert!(frame::read(format, &bytes).is_err(), "padding that the lengths contradict");
    }
}

#[test]
fn posts_that_do_not_fit_are_refused_and_leave_no_trace() {
    let far = Packet { connection: ConnectionId(1 << 24), ..data(0, Flags::NONE) };
    let contradiction = data(0, Flags::TRIMMED_AT_LAST_HOP);
    let unknown = data(0, Flags(1 << 12));
    let mut bytes = vec![1];
    assert_eq!(wire::encode(WireFormat::Rocev2, &far, &mut bytes), Err(WireError::Unencodable));
    assert_eq!(wire::encode(WireFormat::Uec, &far, &mut bytes.clone()), Ok(()));
    for format in FORMATS {
        assert_eq!(wire::encode(format, &unknown, &mut bytes), Err(WireError::Unencodable));
        assert_eq!(frame::write(format, &contradiction, &mut bytes), Err(WireError::Unencodable));
        assert_eq!(frame::write(format, &unknown, &mut bytes), Err(WireError::Unencodable));
    }
    assert_eq!(frame::write(WireFormat::Rocev2, &far, &mut bytes), Err(WireError::Unencodable));
    assert_eq!(bytes, [1]);
}

#[test]
fn addresses_name_plane_and_host() {
    let address = frame::address(5, HostId(0xdead_beef));
    assert_eq!(frame::host_of(address), Some((5, HostId(0xdead_beef))));
    let mut other = address;
    other[1] ^= 1;
    assert_eq!(frame::host_of(other), None);
    other = address;
    other[9] = 1;
    assert_eq!(frame::host_of(other), None);
}
