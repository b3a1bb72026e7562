//! Partial completion by itself: slots, generations, holes, and packets that belong to no receive.

use super::wire::{ONLY, Pair, faithful};
use proptest::prelude::*;
use strandway_proto::packet::{Flags, Header, Part, Wait};
use strandway_proto::partial::{Busy, SLOTS};
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::{ControlMessage, Handled, HostId, Message, MessageId, Packet, PathId, Profile, Span, Time};

fn profile() -> Profile {
    let reliability = ReliabilityConfig::named("partial").expect("a name");
    Profile { reliability, ..Profile::preset("sdr_sr").expect("a preset") }
}

fn part(sequence: u32, message: u32, packet: u32, packets: u32, tail: u16) -> Packet {
    let length = if packet + 1 == packets { tail } else { 4096 };
    let part = Part {
        sequence,
        message: MessageId(message),
        packet,
        packets,
        tail,
        length,
        wait: Wait::default(),
        parity: false,
        plan: 0,
    };
    Packet {
        source: HostId(0),
        destination: HostId(1),
        connection: ONLY,
        path: PathId(0),
        size: 64 + length,
        flags: Flags::NONE,
        header: Header::Part(part),
    }
}

#[test]
fn a_message_waits_for_its_receive_and_its_bitmap_fills() {
    let mut pair = Pair::new(&profile());
    pair.post(0, 77, 40 * 4096 + 5);
    while pair.step(Time::ZERO + Span::from_us(900), &mut faithful) {}
    assert_eq!(pair.parts(0).count(), 0, "no receive is posted yet");
    let receive = pair.ends[1].expect(pair.now, ONLY, 1 << 20).expect("a slot");
    assert_eq!(pair.ends[1].immediate(ONLY, receive), None);
    pair.run(&mut faithful);
    assert_eq!(pair.finished(0).len(), 1, "all of it has left");
    let progress = pair.ends[1].progress(ONLY, receive).expect("it is open");
    assert!(progress.is_whole(), "a send may be shorter than its receive");
    assert_eq!((progress.packets(), progress.chunks(), progress.bitmap()), (41, 3, &[0b111][..]));
    assert_eq!(pair.ends[1].immediate(ONLY, receive), Some(MessageId(77)));
    assert_eq!(pair.received(1), [], "what is complete, its program decides");
    assert!(pair.ends[1].complete(pair.now, ONLY, receive).is_some_and(|progress| progress.is_whole()));
    assert_eq!(pair.ends[1].complete(pair.now, ONLY, receive), None, "once");
    pair.run(&mut faithful);
    assert_eq!(pair.controls(1).count(), 1, "one letter: clear to send");
}

#[test]
fn a_lost_clear_to_send_is_asked_for() {
    let mut pair = Pair::new(&profile());
    pair.ends[1].expect(Time::ZERO, ONLY, 1 << 20).expect("a slot");
    pair.post(0, 1, 4096);
    let mut lost = 0;
    pair.run(&mut |_, _, packet| {
        let hit = matches!(packet.header, Header::Control(ControlMessage::Clear { .. })) && lost < 2;
        lost += u32::from(hit);
        if hit { vec![] } else { vec![Span::ZERO] }
    });
    assert_eq!((pair.finished(0).len(), lost), (1, 2));
}

/// A program with streams also learns of the receive if the control message about it is lost.
#[test]
fn a_lost_clear_to_send_is_asked_for_when_a_stream_was_refused() {
    let mut pair = Pair::new(&profile());
    pair.ends[1].expect(Time::ZERO, ONLY, 1 << 20).expect("a slot");
    pair.run(&mut |_, _, packet| match packet.header {
        Header::Control(ControlMessage::Clear { .. }) => vec![],
        _ => vec![Span::ZERO],
    });
    let message = Message { id: MessageId(5), bytes: 4096 };
    assert_eq!(pair.ends[0].begin_stream(pair.now, ONLY, message), Err(Busy));
    pair.run(&mut faithful);
    assert!(pair.ends[0].begin_stream(pair.now, ONLY, message).is_ok());
    pair.run(&mut faithful);
    assert!(!pair.step(Time::NEVER, &mut faithful), "nothing is asked for any more");
}

#[test]
fn holes_stay_until_chunks_are_pushed_again_and_a_receive_may_end_with_them() {
    let mut pair = Pair::new(&profile());
    let receive = pair.ends[1].expect(Time::ZERO, ONLY, 1 << 20).expect("a slot");
    pair.run(&mut faithful);
    let stream = pair.ends[0].begin_stream(pair.now, ONLY, Message { id: MessageId(5), bytes: 64 * 4096 });
    let stream = stream.expect("a receive is posted");
    assert!(pair.ends[0].has_stream(ONLY, stream));
    pair.ends[0].push_stream(pair.now, ONLY, stream, 0..4, false);
    pair.run(&mut |_, _, packet| match packet.header {
        Header::Part(part) if part.packet == 20 => vec![],
        _ => vec![Span::ZERO],
    });
    let bits = |pair: &Pair| pair.ends[1].progress(ONLY, receive).map(|progress| progress.bitmap()[0]);
    assert_eq!(bits(&pair), Some(0b1101), "one packet of chunk 1 is missing");
    pair.ends[0].push_stream(pair.now, ONLY, stream, 1..2, true);
    pair.run(&mut |_, _, packet| match packet.header {
        Header::Part(part) if part.packet == 20 => vec![],
        _ => vec![Span::ZERO],
    });
    assert_eq!(bits(&pair), Some(0b1101), "it is lost again");
    let had = pair.ends[1].complete(pair.now, ONLY, receive).expect("it is open");
    assert_eq!((had.packets_present(), had.chunks_complete()), (63, 3));
    pair.run(&mut faithful);
    assert!(
        pair.controls(1).any(|(_, control)| control == ControlMessage::Over { sequence: 0, whole: false }),
        "the sender learns that nothing more is wanted"
    );
    assert!(!pair.ends[0].has_stream(ONLY, stream), "its stream is over");
    pair.ends[0].push_stream(pair.now, ONLY, stream, 1..2, true);
    pair.run(&mut faithful);
    assert_eq!(pair.stats(0).retransmitted, 16, "nothing of it leaves any more");
}

#[test]
fn slots_run_out_and_nothing_is_overwritten() {
    let mut pair = Pair::new(&profile());
    let all: Vec<_> = (0..=SLOTS).map(|_| pair.ends[1].expect(Time::ZERO, ONLY, 4096)).collect();
    assert_eq!(all.last(), Some(&Err(Busy)));
    assert!(all[..SLOTS as usize].iter().zip(0..).all(|(got, number)| *got == Ok(number)));
    // The second slot becomes free. But the first slot is the next one to be used, and it is not free.
    pair.ends[1].complete(pair.now, ONLY, 1);
    assert_eq!(pair.ends[1].expect(pair.now, ONLY, 4096), Err(Busy), "slots are used in order");
    pair.ends[1].complete(pair.now, ONLY, 0);
    assert_eq!(pair.ends[1].expect(pair.now, ONLY, 4096), Ok(SLOTS));
}

#[test]
fn malformed_datagrams_are_counted_and_stored_nowhere() {
    let mut pair = Pair::new(&profile());
    let receive = pair.ends[1].expect(Time::ZERO, ONLY, 9 * 4096 + 50).expect("a slot");
    let odd = [
        ("a short packet in the middle", {
            let mut packet = part(0, 1, 3, 10, 50);
            let Header::Part(part) = &mut packet.header else { unreachable!("a part") };
            part.length = 100;
            packet
        }),
        ("a packet behind the message's end", part(0, 1, 10, 10, 50)),
        ("a message a byte longer than its receive", part(0, 1, 0, 10, 51)),
        ("a message longer than its receive", part(0, 1, 0, 11, 4096)),
        ("a message without packets", part(0, 1, 0, 0, 0)),
        ("a tail longer than a packet", part(0, 1, 0, 10, 5000)),
    ];
    for (count, (what, packet)) in odd.iter().enumerate() {
        assert_eq!(pair.inject(1, packet), Handled::Here, "{what}");
        assert_eq!(pair.stats(1).invalid, count as u64 + 1, "{what}");
    }
    let untouched = pair.ends[1].progress(ONLY, receive).expect("it is open");
    assert_eq!((untouched.packets_present(), pair.ends[1].length(ONLY, receive)), (0, None));
    assert_eq!(pair.inject(1, &part(0, 1, 3, 10, 49)), Handled::Fresh);
    assert_eq!(pair.ends[1].length(ONLY, receive), Some(9 * 4096 + 49));
    for (what, packet) in [
        ("another message", part(0, 2, 4, 10, 49)),
        ("another length", part(0, 1, 4, 9, 49)),
        ("another length by a byte", part(0, 1, 4, 10, 48)),
    ] {
        assert_eq!(pair.inject(1, &packet), Handled::Here, "{what} in the same slot");
    }
    for (what, packet) in [("nothing is expected there", part(1, 1, 0, 1, 5)), ("far away", part(1 << 25, 1, 0, 1, 5))]
    {
        assert_eq!(pair.inject(1, &packet), Handled::Here, "{what}");
    }
    assert_eq!(pair.ends[1].progress(ONLY, receive).map(|p| p.packets_present()), Some(1));
}

proptest! {
    /// SDR-RDMA's sheet, checklist 2: packets that are late, repeated, out of order or of another generation never
    /// touch a receive that is complete, or one that was posted again.
    #[test]
    fn late_packets_touch_nothing(
        operations in prop::collection::vec((0u8..4, 0u32..3000, 0u32..6), 1..200),
    ) {
        let mut pair = Pair::new(&profile());
        // The expected packets of each open receive, by its number; all receives have six packets.
        let mut open: std::collections::BTreeMap<u64, u8> = Default::default();
        let mut next = 0u64;
        for (what, number, packet) in operations {
            match what {
                0 => {
                    let expected = if open.contains_key(&next.wrapping_sub(SLOTS)) { Err(Busy) } else { Ok(next) };
                    let got = pair.ends[1].expect(pair.now, ONLY, 6 * 4096);
                    prop_assert_eq!(got, expected);
                    if got.is_ok() {
                        open.insert(next, 0);
                        next += 1;
                    }
                }
                1 => {
                    // Many receives at once, so that slots are used again.
                    for _ in 0..700 {
                        open.remove(&next);
                        if open.contains_key(&next.wrapping_sub(SLOTS)) {
                            break;
                        }
                        prop_assert_eq!(pair.ends[1].expect(pair.now, ONLY, 6 * 4096), Ok(next));
                        prop_assert!(pair.ends[1].complete(pair.now, ONLY, next).is_some());
                        next += 1;
                    }
                }
                2 if !open.is_empty() => {
                    let at = *open.keys().nth(number as usize % open.len()).expect("an open one");
                    let had = open.remove(&at).expect("it is open");
                    let got = pair.ends[1].complete(pair.now, ONLY, at).expect("it is open");
                    prop_assert_eq!(got.packets_present(), had.count_ones());
                }
                _ => {
                    let sequence = if what == 3 && !open.is_empty() {
                        *open.keys().nth(number as usize % open.len()).expect("an open one")
                    } else {
                        u64::from(number)
                    };
                    let handled = pair.inject(1, &part(sequence as u32, 9, packet, 6, 4096));
                    let fresh = open.get_mut(&sequence).is_some_and(|had| {
                        let new = *had >> packet & 1 == 0;
                        *had |= 1 << packet;
                        new
                    });
                    prop_assert_eq!(handled == Handled::Fresh, fresh);
                }
            }
            for (&at, had) in &open {
                let progress = pair.ends[1].progress(ONLY, at).expect("it is open");
                prop_assert_eq!(progress.packets_present(), had.count_ones());
            }
        }
    }
}
