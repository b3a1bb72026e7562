//! The same on a connection whose reliability is `partial`.

use super::*;
use proptest::prelude::*;
use strandway_proto::packet::Part;
use strandway_proto::partial::SLOTS;

const PAYLOAD: u16 = 64;

impl Peer {
    fn partial() -> Peer {
        Peer::new(|config| {
            config.profile.reliability = ReliabilityConfig::named("partial").expect("a name");
            config.payload = u32::from(PAYLOAD);
        })
    }

    fn sends_part(&mut self, part: Part, payload: &[u8]) -> Result<(), Reason> {
        let mut body = self.encoded(Flags::NONE, Header::Part(part));
        body.extend_from_slice(payload);
        self.says(Kind::Data, &body)
    }

    fn writes(&mut self, control: ControlMessage) -> Result<(), Reason> {
        let body = self.encoded(Flags::NONE, Header::Control(control));
        self.says(Kind::Control, &body)
    }

    /// Lets the session have a turn.
    fn works(&mut self) -> Result<bool, Reason> {
        self.now = self.now + Span::from_us(50);
        let (now, routes) = (self.now, Routes::default());
        let (planes, memory, completions) = (&mut self.planes, &mut self.memory, &mut self.completions);
        let (monitors, windows) = (&mut self.monitors, &mut self.windows);
        let mut around = NodeContext {
            now,
            routes: &routes,
            denied: &[],
            planes,
            memory,
            completions,
            monitors,
            windows,
            requests: &mut crate::requests::Requests::default(),
        };
        let worked = self.session.work(&mut around, Span::ZERO, false);
        planes.iter_mut().for_each(Plane::flush);
        worked
    }
}

/// A part as an honest peer would send it.
fn part(sequence: u32, message: u32, packet: u32, packets: u32, tail: u16) -> Part {
    let length = if packet.checked_add(1) == Some(packets) { tail } else { PAYLOAD };
    let message = MessageId(message);
    Part { sequence, message, packet, packets, tail, length, wait: Wait::default(), parity: false, plan: 0 }
}

/// An action of the application or of its peer.
#[derive(Clone, Debug)]
enum Step {
    Expect(usize),
    Complete(u64),
    BeginStream(usize),
    Push(u64, u32, u32),
    EndStream(u64),
    SendOnce(usize),
    Part(Part),
    Control(ControlMessage),
}

fn steps() -> impl Strategy<Value = Step> {
    let near =
        || prop_oneof![8 => 0u32..6, 1 => (1u32 << 10)..(1 << 10) + 3, 1 => any::<u32>().prop_map(|n| n % (1 << 26))];
    let parts = (near(), 0u32..2, 0u32..5, 0u32..5, 0u16..70, 0u8..20).prop_map(
        |(sequence, message, packet, packets, tail, odd)| {
            let honest = part(sequence, message, packet, packets, tail);
            Step::Part(Part {
                parity: odd == 0,
                plan: u8::from(odd == 1),
                length: honest.length ^ u16::from(odd == 2),
                ..honest
            })
        },
    );
    let controls = prop_oneof![
        4 => (near(), 0u16..9).prop_map(|(first, count)| ControlMessage::Clear { first, count: count.into() }),
        1 => (near(), any::<u32>()).prop_map(|(first, count)| ControlMessage::Clear { first, count }),
        2 => (near(), any::<bool>()).prop_map(|(sequence, whole)| ControlMessage::Over { sequence, whole }),
        2 => near().prop_map(|sequence| ControlMessage::Ask { sequence }),
        1 => any::<[u32; 4]>().prop_map(|words| ControlMessage::Custom { kind: 7, words }),
    ];
    prop_oneof![
        3 => (0usize..300).prop_map(Step::Expect),
        2 => (0u64..8).prop_map(Step::Complete),
        2 => (0usize..300).prop_map(Step::BeginStream),
        2 => (0u64..8, 0u32..4, any::<u32>()).prop_map(|(stream, from, to)| Step::Push(stream, from, to)),
        2 => (0u64..8).prop_map(Step::EndStream),
        2 => (0usize..300).prop_map(Step::SendOnce),
        8 => parts,
        4 => controls.prop_map(Step::Control),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// For all datagrams of the peer, in any order: bytes change only in open receives, and completions match the
    /// application's calls.
    #[test]
    fn a_peer_writes_into_open_receives_and_nowhere_else(steps in prop::collection::vec(steps(), 1..120)) {
        let mut peer = Peer::partial();
        // Ten places, each a tenth of the region.
        let place = |peer: &Peer, at: usize, bytes: usize| {
            let start = at % 10 * 400;
            peer.memory.place(peer.inbox, &(start..start + bytes)).expect("within")
        };
        let mut open: Vec<(u64, usize, usize)> = Vec::new();
        let (mut posted, mut injected, mut at) = (Vec::new(), Vec::new(), 0);
        for (step, what) in steps.into_iter().enumerate() {
            let before = peer.memory.bytes(peer.inbox).expect("registered").to_vec();
            match what {
                Step::Expect(bytes) if open.len() < 5 => {
                    // A place that no open receive uses.
                    let free = (0..10).find(|i| open.iter().all(|(_, start, _)| start / 400 != *i)).expect("five are free");
                    let room = place(&peer, free, bytes);
                    let now = peer.now;
                    let receive = peer.session.expect(now, &mut peer.memory, room).expect("a slot");
                    open.push((receive, free * 400, bytes));
                }
                Step::Complete(receive) => {
                    let now = peer.now;
                    let done = peer.session.complete(now, &mut peer.memory, receive);
                    prop_assert_eq!(done.is_ok(), open.iter().any(|one| one.0 == receive));
                    open.retain(|one| one.0 != receive);
                }
                Step::Expect(_) => {}
                Step::BeginStream(bytes) => {
                    at += 1;
                    let (now, from) = (peer.now, place(&peer, at, bytes));
                    let _ = peer.session.begin_stream(now, &mut peer.memory, from, 3);
                }
                Step::Push(stream, from, to) => drop(peer.session.push_stream(peer.now, stream, from..to, to % 2 == 0)),
                Step::EndStream(stream) => {
                    let now = peer.now;
                    let _ = peer.session.end_stream(now, &mut peer.memory, stream);
                }
                Step::SendOnce(bytes) => {
                    at += 1;
                    let (now, from, operation) = (peer.now, place(&peer, at, bytes), Operation(posted.len() as u64));
                    peer.session.post_once(now, &mut peer.memory, operation, from, 4).expect("it is partial");
                    posted.push(operation);
                }
                Step::Part(part) => {
                    let payload = vec![1 + step as u8; usize::from(part.length)];
                    prop_assert_eq!(peer.sends_part(part, &payload), Ok(()));
                }
                Step::Control(control) => prop_assert_eq!(peer.writes(control), Ok(())),
            }
            prop_assert!(peer.works().is_ok());
            let after = peer.memory.bytes(peer.inbox).expect("registered");
            for (i, (before, after)) in before.iter().zip(after).enumerate() {
                let is_open = open.iter().any(|(_, start, bytes)| (*start..start + bytes).contains(&i));
                prop_assert!(before == after || is_open, "byte {} in step {}", i, step);
            }
            for told in peer.completions.drain(..) {
                match told {
                    Completion::Injected { operation, .. } => injected.push(operation),
                    Completion::Whole { receive, bytes, .. } => {
                        prop_assert!(open.iter().any(|one| one.0 == receive && bytes <= one.2 as u64));
                    }
                    Completion::Accepted { .. } | Completion::Control { .. } | Completion::Path { .. } => {}
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert!(posted.starts_with(&injected), "{:?} of {:?}", injected, posted);
        }
        // All memory is released.
        let Peer { session, mut memory, inbox, .. } = peer;
        session.release(&mut memory);
        prop_assert!(memory.deregister(inbox).is_ok());
    }
}

#[test]
fn receives_take_slots_in_turn_and_are_bounded() {
    let mut peer = Peer::partial();
    for round in 0..3 {
        for i in 0..SLOTS {
            let place = peer.memory.place(peer.inbox, &(0..10)).expect("within");
            assert_eq!(peer.session.expect(peer.now, &mut peer.memory, place).expect("a slot"), round * SLOTS + i);
        }
        let place = peer.memory.place(peer.inbox, &(0..10)).expect("within");
        assert!(matches!(peer.session.expect(peer.now, &mut peer.memory, place), Err(crate::error::Error::NoSlot)));
        for i in 0..SLOTS {
            peer.session.complete(peer.now, &mut peer.memory, round * SLOTS + i).expect("open");
        }
    }
}

/// Datagrams that break the protocol or belong to no receive write nothing, and the connection stays open.
#[test]
fn parts_that_lie_are_written_nowhere() {
    let mut peer = Peer::partial();
    // Room for 100 bytes, which are two packets, in the middle of the region.
    let place = peer.memory.place(peer.inbox, &(1_000..1_100)).expect("within");
    assert_eq!(peer.session.expect(peer.now, &mut peer.memory, place).expect("a slot"), 0);
    let good = part(0, 9, 0, 2, 36);
    let lies = [
        ("a byte more than there is room for", Part { packet: 1, tail: 37, length: 37, ..good }),
        ("a packet more than there is room for", Part { packets: 3, ..good }),
        ("as many packets as a count holds", Part { packets: u32::MAX, packet: u32::MAX - 1, ..good }),
        ("a packet behind the last one", Part { packet: 2, ..good }),
        ("no packets", Part { packets: 0, ..good }),
        ("a short packet in the middle", Part { length: 63, ..good }),
        ("a receive that was never posted", Part { sequence: 1, ..good }),
        ("the same slot of another generation", Part { sequence: 1 << 10, ..good }),
        ("the same slot, counts ago", Part { sequence: (1 << 26) - (1 << 10), ..good }),
        ("parity", Part { parity: true, ..good }),
        ("another plan", Part { plan: 3, ..good }),
    ];
    for (what, part) in lies {
        assert_eq!(peer.sends_part(part, &vec![1; usize::from(part.length)]), Ok(()), "{what}");
        assert!(peer.memory.bytes(peer.inbox).expect("registered").iter().all(|&byte| byte == 0), "{what}");
    }
    let malformed = peer.session.counters().malformed;
    assert_eq!(peer.sends_part(good, &[1; 63]), Ok(()), "less payload than it says");
    assert_eq!(peer.sends(0, 0, 0, true, Descriptor::Send { number: 0 }, &[1; 8]), Ok(()), "data of other connections");
    assert_eq!(peer.session.counters().malformed, malformed + 2);
    assert_eq!(peer.session.progress(0).expect("open").packets_present(), 0);
    assert_eq!(peer.completions.len(), 1, "it was accepted: {:?}", peer.completions);
    // Correct parts are written, in any order; after that no part that differs from them is.
    let tail = Part { packet: 1, length: 36, ..good };
    assert_eq!(peer.sends_part(tail, &[2; 36]), Ok(()));
    for other in [Part { message: MessageId(8), ..good }, Part { packets: 1, tail: 64, ..good }, tail] {
        assert_eq!(peer.sends_part(other, &vec![3; usize::from(other.length)]), Ok(()), "{other:?}");
    }
    assert_eq!(peer.sends_part(good, &[1; 64]), Ok(()));
    let got = peer.memory.bytes(peer.inbox).expect("registered");
    let expected: Vec<u8> = [(1_000, 0), (64, 1), (36, 2), (INBOX - 1_100, 0)]
        .into_iter()
        .flat_map(|(count, byte)| std::iter::repeat_n(byte, count))
        .collect();
    assert!(got == expected);
    assert!(matches!(peer.completions[1], Completion::Whole { receive: 0, immediate: 9, bytes: 100, .. }));
    // The receive is completed: the same packets are late now.
    assert!(peer.session.complete(peer.now, &mut peer.memory, 0).expect("open").is_whole());
    peer.memory.bytes_mut(peer.inbox).expect("registered").fill(0);
    assert_eq!(peer.sends_part(good, &[1; 64]), Ok(()));
    assert!(peer.memory.bytes(peer.inbox).expect("registered").iter().all(|&byte| byte == 0));
}
