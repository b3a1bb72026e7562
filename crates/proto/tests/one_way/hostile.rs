//! Parts and control messages that no honest peer sends. They must be counted or ignored, and must never cause a panic
//! or take much memory.

use super::wire::{ONLY, Pair};
use proptest::prelude::*;
use strandway_proto::congestion::CongestionConfig;
use strandway_proto::control_message::{Have, Heard, Missing};
use strandway_proto::packet::{Flags, Header, Part, SackBits, Wait};
use strandway_proto::partial::SEQUENCES;
use strandway_proto::{ControlMessage, HostId, MessageId, Packet, PathId, Profile, Span};

/// Mostly small numbers, which may be valid; sometimes any other number.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..70, 1 => any::<u32>(), 1 => (u32::MAX - 3)..=u32::MAX]
}

fn header() -> impl Strategy<Value = Header> {
    let sequence = || prop_oneof![4 => 0u32..20, 1 => 0..SEQUENCES];
    let length = prop_oneof![3 => Just(4096u16), 1 => any::<u16>()];
    let part = (sequence(), number(), number(), number(), any::<u16>(), length, any::<bool>(), 0u8..8).prop_map(
        |(sequence, message, packet, packets, tail, length, parity, plan)| {
            let (message, wait) = (MessageId(message), Wait::default());
            Header::Part(Part { sequence, message, packet, packets, tail, length, wait, parity, plan })
        },
    );
    let have = || {
        (sequence(), number(), number(), any::<u64>(), number(), any::<u16>()).prop_map(
            |(sequence, cumulative, base, bits, newest, held)| Have {
                sequence,
                cumulative,
                base,
                bits: SackBits::new(bits),
                newest,
                held,
            },
        )
    };
    let control = prop_oneof![
        have().prop_map(ControlMessage::Have),
        have().prop_map(ControlMessage::Recovered),
        (sequence(), [number(), number(), number()], any::<[u16; 3]>())
            .prop_map(|(sequence, starts, lengths)| ControlMessage::Missing(Missing { sequence, starts, lengths })),
        (number(), number()).prop_map(|(first, count)| ControlMessage::Clear { first, count }),
        number().prop_map(|sequence| ControlMessage::Ask { sequence }),
        number().prop_map(|sequence| ControlMessage::Unknown { sequence }),
        (number(), any::<bool>()).prop_map(|(sequence, whole)| ControlMessage::Over { sequence, whole }),
        (sequence(), [number(), number(), number()], any::<u16>()).prop_map(
            |(sequence, [packet, before, received], held)| {
                ControlMessage::Heard(Heard { sequence, packet, before, received, held })
            }
        ),
    ];
    prop_oneof![part, control.prop_map(Header::Control)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_comes_from_the_network_does_harm(
        scheme in 0usize..5,
        counted in any::<bool>(),
        headers in prop::collection::vec((header(), 0usize..2, 0u64..3), 1..120),
    ) {
        let name = ["sdr_sr", "sdr_nack", "sdr_xor", "sdr_mds", "sdr_auto"][scheme];
        let mut profile = Profile::preset(name).expect("a preset");
        if counted {
            profile.congestion = CongestionConfig::named("longhaul").expect("a name");
        }
        let mut pair = Pair::new(&profile);
        pair.post(0, 0, 300_000);
        pair.post(1, 1, 50_000);
        for (header, end, steps) in headers {
            let packet = Packet {
                source: HostId(1 - end as u32),
                destination: HostId(end as u32),
                connection: ONLY,
                path: PathId(0),
                size: 64,
                flags: Flags::NONE,
                header,
            };
            pair.inject(end, &packet);
            for _ in 0..steps * 20 {
                pair.step(pair.now + Span::from_ms(50), &mut |_, _, _| vec![Span::ZERO]);
            }
        }
    }
}
