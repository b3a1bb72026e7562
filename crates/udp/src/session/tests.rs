//! What a peer with the keys can do, and what it cannot.

use super::*;
use crate::config::Protection;
use proptest::prelude::*;
use std::net::SocketAddrV6;
use std::time::Duration;
use strandway_proto::packet::{Ack, Data, Nack, Offset, Psn, SackBits};
use strandway_proto::{PathId, Rate};

const GUARD: usize = 32;
const WINDOW: usize = 256;

/// What a peer that knows the keys, and means harm, may put into a datagram.
#[derive(Clone, Debug)]
enum Body {
    Noise(Vec<u8>),
    Data { data: Data, flags: u16, descriptor: Descriptor, length: usize },
    Control { header: Header, flags: u16 },
}

fn near_or_any() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..400, any::<u64>(), (0u64..400).prop_map(|n| u64::MAX - n)]
}

/// Key 0 stands for the real one.
fn descriptors() -> impl Strategy<Value = Descriptor> {
    prop_oneof![
        (0u32..4).prop_map(|number| Descriptor::Send { number }),
        any::<u32>().prop_map(|number| Descriptor::Send { number }),
        (0u64..3, near_or_any(), any::<Option<u32>>()).prop_map(|(key, start, immediate)| Descriptor::Write {
            key,
            start,
            immediate
        }),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    let data = (0u64..70, 0u32..4, near_or_any(), 0usize..400, 0u16..512, descriptors(), any::<bool>());
    let data = data.prop_map(|(psn, message, offset, length, flags, descriptor, honest)| Body::Data {
        data: Data {
            psn: Psn::new(psn),
            message: MessageId(message),
            offset: Offset::new(offset),
            length: if honest { length as u16 } else { 77 },
        },
        flags,
        descriptor,
        length,
    });
    let ack = (0u64..1 << 24, 0u64..1 << 24, any::<u64>(), 0u64..1 << 24, any::<u32>(), any::<u32>(), any::<u16>());
    let ack = ack.prop_map(|(cumulative, base, sack, acked, path, received, out_of_order)| {
        Header::Ack(Ack {
            cumulative: Psn::new(cumulative % 5 * (1 + cumulative / 5)),
            sack_base: Psn::new(base),
            sack: SackBits::new(sack),
            acked: Psn::new(acked),
            path: PathId(path),
            received,
            out_of_order,
        })
    });
    let nack = (0u64..1 << 24, 0u64..1 << 24, any::<u32>()).prop_map(|(psn, cumulative, path)| {
        Header::Nack(Nack {
            psn: Psn::new(psn),
            cumulative: Psn::new(cumulative),
            path: PathId(path),
            reason: Default::default(),
        })
    });
    let other = prop_oneof![Just(Header::Cnp), any::<u32>().prop_map(|number| Header::Probe { number })];
    let control = (prop_oneof![ack, nack, other], 0u16..512);
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Body::Noise),
        4 => data,
        2 => control.prop_map(|(header, flags)| Body::Control { header, flags }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The peer has the keys, so everything it says is genuine; still it writes where it may and nowhere else.
    #[test]
    fn a_malicious_peer_writes_into_its_window_and_its_receives_only(
        steps in prop::collection::vec((bodies(), 0usize..5, any::<u32>(), any::<u16>()), 1..60),
        profile in prop::sample::select(vec!["uec", "strack_fast", "rocev2", "rocev2_sr"]),
    ) {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let mut config = Config::new(&[1; 32]).expect("long enough").profile(profile).expect("a preset").plane(address);
        config.protection = Protection::Authenticated;
        let mut planes = vec![Plane::open(address, &config).expect("a socket")];
        let mut memory = Memory::default();
        let buffer = memory.register(vec![0; 4 * GUARD + 2 * WINDOW]);
        let (ours, theirs) = (GUARD..GUARD + WINDOW, 3 * GUARD + WINDOW..3 * GUARD + 2 * WINDOW);
        let handle = Connection::test(0);
        let remote = memory.expose(buffer, &ours, handle).expect("a key");
        let wire_profile = Arc::new(config.wire_profile());
        let environment = Environment { rate: Rate::from_gbps(10), ..config.environment(&wire_profile, 1 << 20) };
        let secrets = Secrets { from_caller: [1; 32], to_caller: [2; 32] };
        let opening = Opening {
            handle, remote: 1, secrets: &secrets, calls: false, peers: vec![None],
            profile: wire_profile.clone(), environment, seed: 1,
        };
        let mut session = Session::new(Time::ZERO, &config, opening);
        let place = memory.place(buffer, &theirs).expect("within");
        memory.hold(place);
        session.receive(Operation(0), place);
        let source = memory.place(buffer, &(0..8)).expect("within");
        memory.hold(source);
        session.post(Time::ZERO, Operation(1), source, Descriptor::Write { key: 1, start: 0, immediate: None });
        let mut sealer = Sealer::new(&secrets.from_caller, Protection::Authenticated);
        let mut completions = VecDeque::new();
        // Nobody reads it.
        let from = planes[0].address().expect("bound");
        let arrival = Arrival { from, class: 0, age: Duration::ZERO };
        let routes = Routes::default();
        for (step, (body, kind, path, credits)) in steps.into_iter().enumerate() {
            let mut bytes = Vec::new();
            let header = |connection| Packet {
                source: HostId(0), destination: HostId(0), connection: ConnectionId(connection), path: PathId(0),
                size: 0, flags: Flags(0), header: Header::Cnp,
            };
            let kind = match &body {
                Body::Noise(_) => [Kind::Data, Kind::Control, Kind::Ping, Kind::Pong, Kind::Close][kind],
                Body::Data { .. } => Kind::Data,
                Body::Control { .. } => Kind::Control,
            };
            let sealed = Sealed { kind, path: PathId(path), credits, connection: 1, counter: sealer.next() };
            encode_sealed(&sealed, &mut bytes);
            match body {
                Body::Noise(noise) => bytes.extend(noise),
                Body::Data { data, flags, descriptor, length } => {
                    let packet = Packet { header: Header::Data(data), flags: Flags(flags), ..header(0) };
                    wire::encode(wire_profile.wire, &packet, &mut bytes).expect("it fits");
                    let descriptor = match descriptor {
                        Descriptor::Write { key: 0, start, immediate } => {
                            Descriptor::Write { key: remote.key, start, immediate }
                        }
                        other => other,
                    };
                    descriptor.encode(&mut bytes);
                    bytes.extend(vec![0xee; length]);
                }
                Body::Control { header: control, flags } => {
                    let packet = Packet { header: control, flags: Flags(flags), ..header(0) };
                    wire::encode(wire_profile.wire, &packet, &mut bytes).expect("it fits");
                }
            }
            sealer.seal(&mut bytes, 0);
            let now = Time::ZERO + Span::from_us(step as u64 + 1);
            let mut around =
                Surroundings { now, routes: &routes, planes: &mut planes, memory: &mut memory, completions: &mut completions };
            let alive = session.handle(&mut around, 0, &arrival, &sealed, &mut bytes).is_ok()
                && session.work(&mut around, Span::ZERO).is_ok();
            let all = memory.bytes(buffer).expect("registered");
            for (i, &byte) in all.iter().enumerate() {
                prop_assert!(byte == 0 || ours.contains(&i) || theirs.contains(&i), "byte {} after step {}", i, step);
            }
            if !alive {
                break;
            }
        }
    }
}
