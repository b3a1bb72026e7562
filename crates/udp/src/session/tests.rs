//! Things that a peer with the keys can do, and things it cannot.

mod forged;

use super::*;
use crate::error::Refusal;
use crate::frame::{Change, Kind, Sealed, encode_sealed};
use crate::layout::Protection;
use crate::memory::Rights;
use crate::secure::Sealer;
use crate::socket::Arrival;
use proptest::prelude::*;
use std::net::SocketAddrV6;
use std::time::Duration;
use strandway_proto::packet::{self, Ack, Data, Flags, Header, Nack, NackReason, Offset, Psn, SackBits, Wait};
use strandway_proto::{MessageId, Packet, PathId, Rate};
use strandway_wire as wire;

const GUARD: usize = 32;
const WINDOW: usize = 256;

/// The contents of a datagram from a malicious peer that knows the keys.
#[derive(Clone, Debug)]
enum Body {
    Noise(Vec<u8>),
    Data { data: Data, flags: u16, descriptor: Descriptor, length: usize },
    Control { header: Header, flags: u16 },
}

fn near_or_any() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..400, any::<u64>(), (0u64..400).prop_map(|n| u64::MAX - n)]
}

/// Microseconds from one datagram to the next.
fn waits() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..5, 1u64..100_000]
}

/// Key 0 is replaced by the real one.
fn descriptors() -> impl Strategy<Value = Descriptor> {
    prop_oneof![
        (0u32..4).prop_map(|number| Descriptor::Send { number }),
        any::<u32>().prop_map(|number| Descriptor::Send { number }),
        (0u64..3, near_or_any(), any::<Option<u32>>()).prop_map(|(key, start, immediate)| Descriptor::Write {
            key,
            start,
            immediate
        }),
        (0u32..3, 0u64..3, near_or_any(), near_or_any()).prop_map(|(number, key, start, bytes)| Descriptor::Read {
            number,
            key,
            start,
            bytes
        }),
        (0u32..3, 0u64..3, near_or_any(), any::<u64>()).prop_map(|(number, key, start, add)| Descriptor::Atomic {
            number,
            key,
            start,
            change: Change::Add(add)
        }),
        (0u32..3).prop_map(|number| Descriptor::Answer { number }),
        (0u32..3, any::<u64>()).prop_map(|(number, word)| Descriptor::Word { number, word }),
        (0u32..3).prop_map(|number| Descriptor::Refusal { number, refusal: Refusal::Range }),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    let psns = prop_oneof![0u64..70, 0u64..1 << 24];
    let messages = prop_oneof![0u32..4, any::<u32>()];
    let data = (psns, messages, near_or_any(), 0usize..400, 0u16..512, descriptors(), any::<bool>());
    let data = data.prop_map(|(psn, message, offset, length, flags, descriptor, honest)| Body::Data {
        data: Data {
            psn: Psn::new(psn),
            message: MessageId(message),
            offset: Offset::new(offset),
            length: if honest { length as u16 } else { 77 },
            target: 0,
            wait: Wait::default(),
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
            range: 0,
        })
    });
    let reasons = [NackReason::Missing, NackReason::BeyondWindow, NackReason::Fatal, NackReason::default()];
    let numbers = || prop_oneof![0u64..70, 0u64..1 << 24];
    let nack = (numbers(), numbers(), any::<u32>(), prop::sample::select(reasons.to_vec()));
    let nack = nack.prop_map(|(psn, cumulative, path, reason)| {
        Header::Nack(Nack { psn: Psn::new(psn), cumulative: Psn::new(cumulative), path: PathId(path), reason })
    });
    let operation = (any::<u16>(), any::<u32>(), any::<bool>()).prop_map(|(number, up, probe)| {
        let operation = if probe { packet::Operation::PathProbe } else { packet::Operation::PortStatus(up) };
        Header::Operation { number, operation }
    });
    let answer = (any::<bool>(), any::<u16>(), any::<u32>()).prop_map(|(port_status, number, path)| {
        Header::Answer(packet::Answer { port_status, number, path: PathId(path) })
    });
    let probe = any::<u32>().prop_map(|number| Header::Probe { number });
    let other = prop_oneof![Just(Header::Cnp), probe, operation, answer];
    let control = (prop_oneof![ack, nack, other], 0u16..512);
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(Body::Noise),
        4 => data,
        2 => control.prop_map(|(header, flags)| Body::Control { header, flags }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// The peer has the keys, so all its datagrams are genuine; still it can write only where it may.
    #[test]
    fn a_malicious_peer_writes_into_its_window_and_its_receives_only(
        steps in prop::collection::vec((bodies(), 0usize..5, any::<u32>(), any::<u16>(), waits()), 1..60),
        profile in prop::sample::select(vec!["uec", "strack_fast", "strack", "prime", "mrc", "rocev2", "rocev2_sr"]),
    ) {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let mut config = Config::new(&[1; 32]).expect("long enough").profile(profile).expect("a preset");
        config.planes = vec![address; 2];
        config.protection = Protection::Authenticated;
        let open = || Plane::open(address, &config).expect("a socket");
        let mut planes = vec![open(), open()];
        let mut memory = Memory::default();
        let buffer = memory.register(vec![0; 4 * GUARD + 2 * WINDOW]);
        let (ours, theirs) = (GUARD..GUARD + WINDOW, 3 * GUARD + WINDOW..3 * GUARD + 2 * WINDOW);
        let handle = Connection::test(0);
        let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
        let remote = memory.expose_for(buffer, &ours, Some(handle), rights).expect("a key");
        let wire_profile = Arc::new(config.wire_profile());
        let environment = Environment { rate: Rate::from_gbps(10), ..config.environment(&wire_profile, 1 << 20) };
        let secrets = Secrets { from_caller: [1; 32], to_caller: [2; 32] };
        let opening = SessionParams {
            handle, local: 1, remote: 1, ports: &[], secrets: &secrets, calls: false, peers: vec![None, None],
            profile: wire_profile.clone(), environment, burst: None, seed: 1,
        };
        let mut windows = Windows::default();
        let mut monitors = PeerMonitors::new(Span::from_ms(40), Span::from_ms(3_000));
        let mut session = Session::new(Time::ZERO, &config, &mut monitors, opening);
        let place = memory.place(buffer, &theirs).expect("within");
        memory.hold(place);
        session.receive(Operation(0), place);
        memory.hold(place);
        session.ask_peer(Time::ZERO, Operation(2), Wanted::Bytes { key: 1, start: 0, into: place });
        let source = memory.place(buffer, &(0..8)).expect("within");
        memory.hold(source);
        session.post(Time::ZERO, Operation(1), source, Descriptor::Write { key: 1, start: 0, immediate: None });
        let mut sealer = Sealer::new(&secrets.from_caller, Protection::Authenticated);
        let mut completions = VecDeque::new();
        // No one reads from this address.
        let from = planes[0].address().expect("bound");
        let arrival = Arrival { from, class: 0, age: Duration::ZERO };
        let routes = Routes::default();
        let mut now = Time::ZERO;
        for (step, (body, kind, path, credits, wait)) in steps.into_iter().enumerate() {
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
            let sealed = Sealed { kind, urgent: false, path: PathId(path), credits, connection: 1, counter: sealer.next() };
            encode_sealed(&sealed, &mut bytes);
            match body {
                Body::Noise(noise) => bytes.extend(noise),
                Body::Data { data, flags, descriptor, length } => {
                    let packet = Packet { header: Header::Data(data), flags: Flags(flags), ..header(0) };
                    if wire::encode(wire_profile.wire, &packet, &mut bytes).is_err() {
                        continue;
                    }
                    let descriptor = match descriptor {
                        Descriptor::Write { key: 0, start, immediate } => {
                            Descriptor::Write { key: remote.key, start, immediate }
                        }
                        Descriptor::Read { number, key: 0, start, bytes } => {
                            Descriptor::Read { number, key: remote.key, start, bytes }
                        }
                        Descriptor::Atomic { number, key: 0, start, change } => {
                            Descriptor::Atomic { number, key: remote.key, start, change }
                        }
                        other => other,
                    };
                    descriptor.encode(&mut bytes);
                    bytes.extend(vec![0xee; length]);
                }
                Body::Control { header: control, flags } => {
                    let packet = Packet { header: control, flags: Flags(flags), ..header(0) };
                    if wire::encode(wire_profile.wire, &packet, &mut bytes).is_err() {
                        continue;
                    }
                }
            }
            sealer.seal(&mut bytes, 0);
            now = now + Span::from_us(wait);
            let mut around =
                NodeContext { now, routes: &routes, denied: &[], planes: &mut planes, memory: &mut memory, completions: &mut completions, monitors: &mut monitors, windows: &mut windows, requests: &mut crate::requests::Requests::default() };
            let alive = session.handle(&mut around, (path >> 30 & 1) as usize, &arrival, &sealed, &mut bytes).is_ok()
                && session.work(&mut around, Span::ZERO, false).is_ok();
            let all = memory.bytes(buffer).expect("registered");
            for told in completions.drain(..) {
                if let Completion::Received { bytes, .. } | Completion::Written { bytes, .. } = told {
                    prop_assert!(bytes <= WINDOW as u64, "{:?} after step {}", told, step);
                }
            }
            prop_assert!(session.receiving.incoming.len() <= config.limits.incoming);
            prop_assert!(session.receiving.target.len() <= 2 * config.limits.reads.reads + (config.limits.reads.bytes / 4_096) as usize);
            for (i, &byte) in all.iter().enumerate() {
                prop_assert!(byte == 0 || ours.contains(&i) || theirs.contains(&i), "byte {} after step {}", i, step);
            }
            if !alive {
                break;
            }
        }
    }
}
