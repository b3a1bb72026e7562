//! Engines' packets in UET's headers, and back.

use super::*;
use proptest::prelude::*;
use strandway_proto::packet::{
    self, ConnectionId, Data, Flags, Header, HostId, MessageId, NackReason, Offset, Packet, PathId, Psn, SackBits, Wait,
};

const START: u32 = 0xffff_fff0;

fn conversation(acknowledged: u64, received: u64) -> Conversation {
    Conversation {
        source: 3,
        target: 4,
        mode: Mode::Unordered,
        start: START,
        opening: false,
        acknowledged,
        received,
        message: 1 << 31,
    }
}

fn packet(header: Header, flags: Flags) -> Packet {
    Packet {
        source: HostId(0),
        destination: HostId(0),
        connection: ConnectionId(0),
        path: PathId(0),
        size: 0,
        flags,
        header,
    }
}

fn data(full: u64, offset: u64, length: u16) -> Header {
    let (psn, offset) = (Psn::new(full), Offset::new(offset));
    Header::Data(Data { psn, message: MessageId(9), offset, length, target: 0, wait: Wait::default() })
}

/// The bytes of a packet, read again.
fn through(packet: &Packet, conversation: &Conversation) -> Result<(Packet, Pds), WireError> {
    let (pds, ses, length) = translate(packet, conversation)?;
    let mut bytes = Vec::new();
    encode(&Datagram { pds, ses, payload: &vec![0; length] }, &mut bytes)?;
    let datagram = decode(&bytes).expect("what was written can be read");
    let cumulative = Psn::new(conversation.received);
    let read = interpret(&datagram.pds, &datagram.ses, length, conversation.start, MessageId(9), cumulative);
    Ok((read.expect("an engine's packet"), pds))
}

#[test]
fn sequence_numbers_go_on_above_those_of_an_engine() {
    // An engine's numbers have 24 bits; a context has 32, and begins anywhere.
    for full in [0, 15, 16, (1 << 24) - 1, 1 << 24, 5 << 24] {
        let (read, pds) = through(&packet(data(full, 0, 8), Flags::NONE), &conversation(full, 0)).expect("it fits");
        let Pds::Request(request) = pds else { panic!("a request") };
        assert_eq!(request.psn, START.wrapping_add(full as u32));
        assert_eq!((request.clear_offset, request.target), (-1, Context::Known(4)));
        assert_eq!(read.header, data(full, 0, 8));
    }
}

#[test]
fn the_first_packets_open_and_trailing_ones_clear_what_they_can() {
    for (full, opening, expected) in [
        (0, true, Context::Opening { info: 0, psn_offset: 0 }),
        (4_095, true, Context::Opening { info: 0, psn_offset: 4_095 }),
        (4_096, true, Context::Known(4)),
        (7, false, Context::Known(4)),
    ] {
        let conversation = Conversation { opening, ..conversation(0, 0) };
        let (_, pds) = through(&packet(data(full, 0, 8), Flags::NONE), &conversation).expect("it fits");
        let Pds::Request(request) = pds else { panic!("a request") };
        assert_eq!((request.target, request.clear_psn()), (expected, START.wrapping_sub(1)));
    }
    let (_, pds) = through(&packet(data(40_000, 0, 8), Flags::NONE), &conversation(0, 0)).expect("it fits");
    assert!(matches!(pds, Pds::Request(Request { clear_offset: i16::MIN, .. })));
}

#[test]
fn packets_that_uet_lacks_and_numbers_that_do_not_fit_are_refused() {
    let ack = packet::Ack {
        cumulative: Psn::new(40_000),
        sack_base: Psn::new(0),
        sack: SackBits::new(1),
        acked: Psn::new(40_000),
        path: PathId(0),
        received: 0,
        out_of_order: 0,
        range: 0,
    };
    let fatal = packet::Nack { psn: Psn::new(0), cumulative: Psn::new(0), path: PathId(0), reason: NackReason::Fatal };
    for header in [Header::Cnp, Header::Ack(ack), Header::Nack(fatal), data(0, 1 << 32, 8), data(0, 8, 1 << 14)] {
        assert_eq!(through(&packet(header, Flags::NONE), &conversation(0, 40_000)), Err(WireError::Unencodable));
    }
    let long = Conversation { message: 1 << 32, ..conversation(0, 0) };
    assert_eq!(through(&packet(data(0, 0, 8), Flags::NONE), &long), Err(WireError::Unencodable));
}

#[test]
fn other_datagrams_tell_an_engine_nothing() {
    for hex in [
        "5920 0000 00000000 0001 0002 12345678",
        "5000 0e00 12345678 0000 0001 00000000",
        "5008 0100 12345678 00000000 00000000",
        "3000 0000",
        "1008 ffff 12345678 0001 0002",
    ] {
        let datagram = bytes(hex);
        let Datagram { pds, ses, payload } = decode(&datagram).expect("a datagram");
        assert_eq!(interpret(&pds, &ses, payload.len(), 0, MessageId(0), Psn::new(0)), None, "{hex}");
    }
    // SUET without selective repeat: neither bitmap nor state.
    let plain = bytes("3a00 0000 00000105 0002 0001 00 01 0000 00 000000 00000004");
    let Datagram { pds, ses, .. } = decode(&plain).expect("a datagram");
    let read = interpret(&pds, &ses, 0, 0x100, MessageId(0), Psn::new(0)).expect("an acknowledgement");
    let Header::Ack(ack) = read.header else { panic!("an acknowledgement") };
    let numbers = ({ ack.cumulative }.get(), { ack.sack_base }.get(), { ack.acked }.get(), { ack.sack }.get());
    assert_eq!((numbers, ack.received), ((6, 6, 5, 0), 6));
}

fn flags(of: &'static [Flags]) -> impl Strategy<Value = Flags> {
    any::<u8>().prop_map(|bits| {
        of.iter().enumerate().fold(Flags::NONE, |flags, (i, flag)| flags.with_if(bits >> i & 1 == 1, *flag))
    })
}

/// Headers with everything that UET has a field for.
fn packets() -> impl Strategy<Value = (Packet, u64, u64)> {
    let near = 0u64..1 << 30;
    let datas =
        (near.clone(), 0u64..3_000, 0u64..1 << 30, 0u16..5_000, flags(&[Flags::ACK_REQUEST, Flags::RETRANSMITTED]))
            .prop_map(|(base, ahead, offset, length, flags)| {
                (packet(data(base + ahead, offset, length), flags), base, 0)
            });
    let acks = (
        near.clone(),
        0u64..3_000,
        0u64..3_000,
        any::<(u64, u16)>(),
        1u32..1 << 24,
        flags(&[Flags::MARKED, Flags::RETRANSMITTED, Flags::PROBE_ANSWER]),
    )
        .prop_map(|(next, base, acked, (sack, out_of_order), received, flags)| {
            let acked = if flags.has(Flags::PROBE_ANSWER) { acked } else { next + acked };
            let header = packet::Ack {
                cumulative: Psn::new(next),
                sack_base: Psn::new(next + base),
                sack: SackBits::new(sack),
                acked: Psn::new(acked),
                path: PathId(0),
                received,
                out_of_order,
                range: 0,
            };
            (packet(Header::Ack(header), flags), 0, next)
        });
    let nacks =
        (near, 0u64..3_000, flags(&[Flags::TRIMMED_AT_LAST_HOP, Flags::MARKED])).prop_map(|(next, ahead, flags)| {
            let (psn, cumulative) = (Psn::new(next + ahead), Psn::new(next));
            let header = packet::Nack { psn, cumulative, path: PathId(0), reason: NackReason::Missing };
            (packet(Header::Nack(header), flags), 0, next)
        });
    let probes = any::<u16>().prop_map(|number| (packet(Header::Probe { number: number.into() }, Flags::NONE), 0, 0));
    prop_oneof![datas, acks, nacks, probes]
}

proptest! {
    #[test]
    fn an_engines_packet_survives_the_wire((packet, acknowledged, received) in packets()) {
        let conversation = conversation(acknowledged, received);
        let read = through(&packet, &conversation).map(|(read, _)| read);
        prop_assert_eq!(read, Ok(packet));
    }
}
