//! Forged datagrams: whatever is changed in a datagram that was seen on the path, no byte of registered memory changes
//! by it.

use super::super::*;
use crate::frame::{Kind, Sealed};
use crate::layout::Protection;
use crate::memory::Memory;
use crate::plane::Plane;
use crate::secure::Sealer;
use crate::socket::Arrival;
use proptest::prelude::*;
use std::time::Duration;
use strandway_proto::packet::{Data, Flags, Offset, Psn, Wait};
use strandway_proto::{MessageId, Packet, PathId};
use strandway_wire as wire;

/// Packets of the message, and bytes of each: some are sealed in one pass, some after a copy.
const PACKETS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    /// The genuine packet of this number arrives.
    Genuine(usize),
    /// A packet arrives with changed bytes and another length.
    Forged { of: usize, changes: Vec<(prop::sample::Index, u8)>, length: Option<prop::sample::Index> },
}

fn steps() -> impl Strategy<Value = Step> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4);
    prop_oneof![
        (0..PACKETS).prop_map(Step::Genuine),
        (0..PACKETS, changes, any::<Option<prop::sample::Index>>()).prop_map(|(of, changes, length)| Step::Forged {
            of,
            changes,
            length
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_forged_datagram_changes_no_byte_of_registered_memory(
        steps in prop::collection::vec(steps(), 1..60),
        length in prop::sample::select(vec![40usize, 300, 1_000]),
        protection in prop::sample::select(vec![Protection::Authenticated, Protection::Encrypted]),
    ) {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let mut config = Config::new(&[1; 32]).expect("long enough").plane(address);
        (config.protection, config.trimming) = (protection, true);
        let mut planes = vec![Plane::open(address, &config).expect("a socket")];
        let mut memory = Memory::default();
        // The application's own bytes are there before.
        let mut expected = vec![0x11; PACKETS * length];
        let buffer = memory.register(expected.clone());
        let handle = Connection::test(0);
        let remote = memory.expose(buffer, &(0..expected.len()), handle).expect("a key");
        let wire_profile = Arc::new(config.wire_profile());
        let environment = config.environment(&wire_profile, 1 << 20);
        let secrets = Secrets { from_caller: [1; 32], to_caller: [2; 32] };
        let from = planes[0].address().expect("bound");
        let opening = SessionParams {
            handle, local: 1, remote: 1, ports: &[], secrets: &secrets, calls: false, peers: vec![Some(from)],
            profile: wire_profile.clone(), environment, burst: None, seed: 1,
        };
        let mut windows = Windows::default();
        let mut monitors = PeerMonitors::new(Span::from_ms(40), Span::from_ms(3_000));
        let mut session = Session::new(Time::ZERO, &config, &mut monitors, opening);
        let mut sealer = Sealer::new(&secrets.from_caller, protection);
        let datagrams: Vec<Vec<u8>> = (0..PACKETS).map(|i| {
            let sealed = Sealed { kind: Kind::Data, urgent: false, path: PathId(0), credits: 0, connection: 1, counter: sealer.next() };
            let mut bytes = sealed.to_bytes().to_vec();
            let offset = Offset::new((i * length) as u64);
            let data = Data { psn: Psn::new(i as u64), message: MessageId(0), offset, length: length as u16, target: 0, wait: Wait::default() };
            let packet = Packet {
                source: HostId(0), destination: HostId(0), connection: ONLY, path: PathId(0), size: 0,
                flags: Flags::NONE.with_if(i == PACKETS - 1, Flags::LAST), header: Header::Data(data),
            };
            wire::encode(wire_profile.wire, &packet, &mut bytes).expect("it fits");
            Descriptor::Write { key: remote.key, start: 0, immediate: Some(7) }.encode(&mut bytes);
            bytes.extend(vec![0xa0 + i as u8; length]);
            sealer.seal(&mut bytes, 0);
            bytes
        }).collect();
        let (mut completions, mut there) = (VecDeque::new(), [false; PACKETS]);
        let (routes, mut now) = (Routes::default(), Time::ZERO);
        let all = steps.into_iter().chain((0..PACKETS).map(Step::Genuine));
        for (number, step) in all.enumerate() {
            let mut bytes = match &step {
                Step::Genuine(of) => datagrams[*of].clone(),
                Step::Forged { of, changes, length } => {
                    let mut bytes = datagrams[*of].clone();
                    changes.iter().for_each(|(at, bits)| *at.get_mut(&mut bytes) ^= bits);
                    bytes.truncate(length.map_or(bytes.len(), |length| length.index(bytes.len())));
                    if bytes == datagrams[*of] {
                        continue;
                    }
                    bytes
                }
            };
            let Ok(crate::frame::Frame::Sealed(sealed)) = crate::frame::decode(&bytes) else { continue };
            now = now + Span::from_us(1);
            let arrival = Arrival { from, class: 2, age: Duration::ZERO };
            let mut around = NodeContext {
                now, routes: &routes, denied: &[], planes: &mut planes, memory: &mut memory, completions: &mut completions,
                monitors: &mut monitors, windows: &mut windows,
                requests: &mut crate::requests::Requests::default(),
            };
            session.handle(&mut around, 0, &arrival, &sealed, &mut bytes).expect("it stays open");
            session.work(&mut around, Span::ZERO, false).expect("it stays open");
            if let Step::Genuine(of) = step {
                expected[of * length..(of + 1) * length].fill(0xa0 + of as u8);
                there[of] = true;
            }
            prop_assert!(memory.bytes(buffer).expect("registered") == expected, "after step {number}: {step:?}");
            let written = completions.drain(..).filter(|told| matches!(told, Completion::Written { .. })).count();
            prop_assert!(written == 0 || there == [true; PACKETS], "told of a message that is not there");
        }
        prop_assert_eq!(session.counters().engine.delivered, PACKETS as u64);
    }
}
