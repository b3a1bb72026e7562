//! Random headers of every type survive the wire, and random bytes make nothing panic.

use super::*;
use crate::uet::pds::{CreditRequest, NackState, Rudi};
use crate::uet::ses::{DataResponse, Medium, MediumWord, Rendezvous, Small, SmallDataResponse};
use proptest::prelude::*;

fn contexts() -> impl Strategy<Value = Context> {
    let opening = (0u8..16, 0u16..4096).prop_map(|(info, psn_offset)| Context::Opening { info, psn_offset });
    prop_oneof![any::<u16>().prop_map(Context::Known), opening]
}

fn modes() -> impl Strategy<Value = Mode> {
    any::<bool>().prop_map(|ordered| if ordered { Mode::Ordered } else { Mode::Unordered })
}

fn requests() -> impl Strategy<Value = Pds> {
    let credit = (any::<u8>(), 0u32..1 << 24).prop_map(|(context, target)| CreditRequest { context, target });
    let fixed = any::<(bool, bool, i16, u32, u16)>();
    (modes(), fixed, contexts(), prop::option::of(credit)).prop_map(|(mode, fixed, target, credit)| {
        let (retransmitted, ack_request, clear_offset, psn, source) = fixed;
        Pds::Request(Request { mode, retransmitted, ack_request, clear_offset, psn, source, target, credit })
    })
}

fn states() -> impl Strategy<Value = State> {
    let nscc = (any::<(u16, bool, u16)>(), 0u8..128, 0u32..1 << 24).prop_map(|(fixed, penalty, received)| {
        let (service_time, restore, out_of_order) = fixed;
        State::Nscc(Nscc { service_time, restore, penalty, received, out_of_order })
    });
    let credit =
        (0u32..1 << 24, any::<u16>()).prop_map(|(credit, out_of_order)| State::Credit { credit, out_of_order });
    let other = (2u8..16, any::<u64>()).prop_map(|(kind, state)| State::Other { kind, state });
    let extended = (0u8..16, any::<[u64; 2]>()).prop_map(|(kind, state)| State::Extended { kind, state });
    prop_oneof![nscc, credit, other, extended]
}

fn acks() -> impl Strategy<Value = Pds> {
    let congestion = (0u8..16, any::<(u8, i16, u64)>(), states()).prop_map(|(flags, fixed, state)| {
        let (range, base_offset, bitmap) = fixed;
        Congestion { flags, range, base_offset, bitmap, state }
    });
    let more = prop_oneof![
        any::<Option<u32>>().prop_map(|expected| (None, expected)),
        congestion.prop_map(|congestion| (Some(congestion), None)),
    ];
    let causes = prop_oneof![any::<i16>().prop_map(Cause::Packet), any::<u16>().prop_map(Cause::Probe)];
    let wishes = prop_oneof![Just(Wish::None), Just(Wish::Clear), Just(Wish::Close)];
    (any::<(bool, bool, u32, u16, u16)>(), causes, wishes, more).prop_map(
        |(fixed, cause, wish, (congestion, expected))| {
            let (marked, retransmitted, cumulative, source, target) = fixed;
            Pds::Ack(Ack { marked, retransmitted, cause, wish, cumulative, source, target, congestion, expected })
        },
    )
}

fn nacks() -> impl Strategy<Value = Pds> {
    let packets = any::<(u32, u16, u16)>().prop_map(|(psn, source, target)| Refused::Packet { psn, source, target });
    let about = prop_oneof![packets, any::<u32>().prop_map(|packet| Refused::Rudi { packet })];
    let states = (0u8..16, 0u64..1 << 60, any::<u64>())
        .prop_map(|(kind, first, second)| NackState { kind, state: [first, second] });
    (any::<(bool, bool, u8, u8, u32)>(), about, prop::option::of(states)).prop_map(|(fixed, about, extended)| {
        let (marked, retransmitted, code, vendor, payload) = fixed;
        let code = NackCode(code);
        Pds::Nack(Nack { marked, retransmitted, code, vendor, about, payload, extended })
    })
}

fn controls() -> impl Strategy<Value = Pds> {
    (0u8..16, modes(), any::<(bool, bool, u16, u32, u16, u32)>(), contexts()).prop_map(|(kind, mode, fixed, target)| {
        let (retransmitted, ack_request, opaque, psn, source, payload) = fixed;
        let kind = ControlKind(kind);
        Pds::Control(Control { kind, mode, retransmitted, ack_request, opaque, psn, source, target, payload })
    })
}

fn rudis() -> impl Strategy<Value = Pds> {
    any::<(bool, bool, bool, u32)>().prop_map(|(response, marked, retransmitted, packet)| {
        Pds::Rudi(Rudi { response, marked: marked && response, retransmitted, packet })
    })
}

fn commons(opcodes: impl Strategy<Value = u8>) -> impl Strategy<Value = Common> {
    let small = (0u32..1 << 24, 0u16..1 << 12, 0u16..1 << 12);
    (opcodes, any::<(bool, bool, bool, u8)>(), small).prop_map(|(opcode, fixed, (job, process, index))| {
        let (delivery_complete, initiator_error, relative, generation) = fixed;
        let opcode = Opcode(opcode);
        Common { opcode, delivery_complete, initiator_error, relative, generation, job, process, index }
    })
}

/// Operations without an extension.
fn plain() -> impl Strategy<Value = u8> {
    (0u8..0x10).prop_filter("an extension", |opcode| !matches!(opcode, 3 | 4 | 6 | 0xa | 0xd | 0xe))
}

fn extensions(opcode: u8, first: bool) -> BoxedStrategy<Extension> {
    let atomic = |opcodes: core::ops::Range<u8>| {
        (opcodes, any::<(u8, u8)>()).prop_map(|(opcode, (datatype, semantics))| Atomic {
            opcode: AtomicOpcode(opcode),
            datatype: Datatype(datatype),
            semantics,
        })
    };
    match opcode {
        3 | 4 | 0xd | 0xe => {
            let compare = (atomic(0xd..0x14), any::<(u128, u128)>())
                .prop_map(|(atomic, (compare, swap))| Extension::Compare { atomic, compare, swap });
            prop_oneof![atomic(0..0xd).prop_map(Extension::Atomic), compare].boxed()
        }
        6 | 0xa if first => (any::<(u32, u8, u64, u64)>(), 0u16..1 << 12, 0u16..1 << 12)
            .prop_map(|((eager, generation, offset, key), process, index)| {
                Extension::Rendezvous(Rendezvous { eager, generation, process, index, offset, key })
            })
            .boxed(),
        0x10 => any::<(u16, u16)>().prop_map(|(group, count)| Extension::Sync { group, count }).boxed(),
        _ => Just(Extension::None).boxed(),
    }
}

/// A header, and bytes of payload that fit it.
fn standards() -> impl Strategy<Value = (Ses, usize)> {
    let places = prop_oneof![
        any::<u64>().prop_map(|header_data| Place::First { header_data }),
        (0u32..1 << 30).prop_map(|offset| Place::Later { offset }),
    ];
    (commons(0u8..0x11), places, any::<(u16, bool, bool, u64, u32, u64)>(), 0usize..80).prop_flat_map(
        |(common, place, fixed, payload)| {
            let (message, has_header_data, last, offset, initiator, key) = fixed;
            let (first, at) = match place {
                Place::First { .. } => (true, 0),
                Place::Later { offset } => (false, offset),
            };
            let payload = if common.opcode == Opcode::READ && first && last { 0 } else { payload };
            let length = at + payload as u32;
            extensions(common.opcode.0, first).prop_map(move |extension| {
                let standard = Standard {
                    common,
                    message,
                    has_header_data,
                    last,
                    offset,
                    initiator,
                    key,
                    place,
                    length,
                    extension,
                };
                (Ses::Standard(standard), payload)
            })
        },
    )
}

fn shorts() -> impl Strategy<Value = (Ses, usize)> {
    let payload = |common: &Common, length: u16| if common.opcode == Opcode::READ { 0 } else { length.into() };
    let small = (commons(plain()), 0u16..80, any::<u64>()).prop_map(move |(common, length, offset)| {
        (Ses::Small(Small { common, length, offset }), payload(&common, length))
    });
    let words = prop_oneof![any::<u64>().prop_map(MediumWord::HeaderData), any::<u64>().prop_map(MediumWord::Offset)];
    let medium = (commons(plain()), 0u16..80, words, any::<(u32, u64)>()).prop_map(
        move |(common, length, word, (initiator, key))| {
            (Ses::Medium(Medium { common, length, word, initiator, key }), payload(&common, length))
        },
    );
    prop_oneof![small, medium]
}

fn responses() -> impl Strategy<Value = (Ses, usize)> {
    let answers = || {
        (0u8..4, 0u8..64, 0u8..64, 0u32..1 << 24).prop_map(|(list, opcode, code, job)| Answer {
            list,
            opcode: ResponseOpcode(opcode),
            code: ReturnCode(code),
            job,
        })
    };
    let plain = (answers(), any::<(u16, u8, u32)>()).prop_map(|(answer, (message, generation, length))| {
        (Ses::Response(Response { answer, message, generation, length }), 0)
    });
    let data = (answers(), any::<(u16, u8, u16, u32, u32)>(), 0usize..80).prop_map(|(answer, fixed, payload)| {
        let (message, generation, request, length, offset) = fixed;
        (Ses::DataResponse(DataResponse { answer, message, generation, request, length, offset }), payload)
    });
    let small = (answers(), any::<u32>(), 0usize..80).prop_map(|(answer, request_psn, payload)| {
        (Ses::SmallDataResponse(SmallDataResponse { answer, request_psn }), payload)
    });
    prop_oneof![plain, data, small]
}

fn headers() -> impl Strategy<Value = (Pds, Ses, usize)> {
    let carriers = prop_oneof![4 => requests(), 2 => acks(), 1 => rudis(), 1 => Just(Pds::Uud)];
    let carried = prop_oneof![Just((Ses::None, 0)), standards(), shorts(), responses()];
    let alone = prop_oneof![nacks(), controls()];
    prop_oneof![
        3 => (carriers, carried).prop_map(|(pds, (ses, payload))| (pds, ses, payload)),
        1 => alone.prop_map(|pds| (pds, Ses::None, 0)),
    ]
}

proptest! {
    #[test]
    fn a_datagram_survives_the_wire((pds, ses, payload) in headers(), fill: u8, before: u8) {
        let payload = vec![fill; payload];
        let datagram = Datagram { pds, ses, payload: &payload };
        let mut out = vec![before];
        encode(&datagram, &mut out).expect("every number fits");
        prop_assert_eq!(out[0], before);
        prop_assert_eq!(decode(&out[1..]), Ok(datagram));
        let mut only = Vec::new();
        encode_headers(&pds, &ses, payload.len(), &mut only).expect("every number fits");
        prop_assert_eq!(&only[..], &out[1..out.len() - payload.len()]);
        for end in 1..1 + only.len() {
            prop_assert!(decode(&out[1..end]).is_err());
        }
    }

    #[test]
    fn bytes_that_are_a_datagram_are_written_alike(
        (pds, ses, payload) in headers(), flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..4),
    ) {
        let mut bytes = Vec::new();
        encode(&Datagram { pds, ses, payload: &vec![0; payload] }, &mut bytes).expect("every number fits");
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Ok(datagram) = decode(&bytes) {
            let mut again = Vec::new();
            encode(&datagram, &mut again).expect("what was read fits");
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 2u8..15, next in 0u8..8,
    ) {
        let _ = (decode(&bytes), decode_trimmed(&bytes));
        if bytes.len() >= 2 {
            bytes[0] = kind << 3 | next >> 1;
            bytes[1] = bytes[1] & 0x7f | next << 7;
            let _ = decode_trimmed(&bytes);
            if let Ok(datagram) = decode(&bytes) {
                let mut again = Vec::new();
                encode(&datagram, &mut again).expect("what was read fits");
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
