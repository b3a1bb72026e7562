//! Partial completion over real sockets: every packet is written to its receive's place, bitmaps agree with the bytes,
//! and nothing is written into a buffer that was given back.

use super::support::{self, PATIENCE, Pair, pattern};
use std::time::{Duration, Instant};
use strandway_proto::partial::SLOTS;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::{ControlMessage, Profile, Rate};
use strandway_udp::impair::Impairment;
use strandway_udp::{Completion, Config, Error, Reason, Region};

const CHUNK: u32 = 4;

fn config(planes: usize) -> Config {
    let mut config = support::config("sdr_sr", planes);
    config.profile.reliability = ReliabilityConfig::named("partial").expect("a name");
    let chunk = strandway_proto::parameter::Value::Count(u64::from(CHUNK));
    config.profile.reliability.parameters().set("chunk", chunk).expect("a parameter");
    config.profile.path = Profile::preset("uec").expect("a preset").path;
    config.rate = Rate::from_gbps(2);
    config
}

const BAD: Impairment = Impairment {
    loss: 0.05,
    duplicate: 0.05,
    reorder: 0.1,
    hold: Duration::from_millis(3),
    delay: Duration::ZERO,
    corrupt: 0.01,
    mark: 0.0,
    trim: 0.0,
    widest: 0,
};

/// Moves packets until `is_so` holds.
fn until(pair: &mut Pair, mut is_so: impl FnMut(&mut Pair) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so(pair) {
        assert!(Instant::now() < end, "not within {PATIENCE:?}");
        pair.pump();
        std::thread::yield_now();
    }
}

/// The client opens a stream as soon as the server has posted a receive.
fn begin(pair: &mut Pair, region: Region, range: std::ops::Range<usize>, immediate: u32) -> u64 {
    let until = Instant::now() + PATIENCE;
    loop {
        match pair.client.begin_stream(pair.ends[0], region, range.clone(), immediate) {
            Ok(stream) => return stream,
            Err(Error::NoSlot) if Instant::now() < until => pair.run(Duration::from_micros(200)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Pushes missing chunks until none is missing. The test reads the receiver's bitmap directly.
fn repair(pair: &mut Pair, stream: u64, receive: u64) {
    let until = Instant::now() + PATIENCE;
    pair.client.push_stream(pair.ends[0], stream, 0..u32::MAX, false).expect("open");
    loop {
        pair.run(Duration::from_millis(5));
        assert!(Instant::now() < until, "nothing gets through");
        let progress = pair.server.progress(pair.ends[1], receive).expect("open");
        if progress.is_whole() {
            return;
        }
        if progress.packets_present() == 0 {
            pair.client.push_stream(pair.ends[0], stream, 0..1, true).expect("open");
        }
        let missing: Vec<u32> = (0..progress.chunks()).filter(|&chunk| !progress.has_chunk(chunk)).collect();
        for chunk in missing {
            pair.client.push_stream(pair.ends[0], stream, chunk..chunk + 1, true).expect("open");
        }
    }
}

#[test]
fn messages_that_a_program_repairs_arrive_byte_for_byte_over_a_bad_wire() {
    for planes in [1, 2] {
        let mut pair = Pair::new(config(planes), Some(BAD), 5);
        let payload = 1_344;
        for (i, bytes) in
            [0, 1, payload - 1, payload, payload + 1, 4 * payload, 4 * payload + 1, 300_000].into_iter().enumerate()
        {
            let source = pattern(i as u64, bytes + 20);
            let outbox = pair.client.register(source.clone());
            // A receive in the middle of a region, and longer than its message.
            let inbox = pair.server.register(vec![0xEE; bytes + 120]);
            let receive = pair.server.expect(pair.ends[1], inbox, 10..bytes + 70).expect("a slot");
            assert_eq!(receive, i as u64);
            assert_eq!(pair.server.arriving(pair.ends[1], receive).expect("open"), None);
            let stream = begin(&mut pair, outbox, 20..bytes + 20, 0xC0FF_EE00 + i as u32);
            assert!(matches!(pair.client.deregister(outbox), Err(Error::RegionInUse)));
            repair(&mut pair, stream, receive);
            let told = (0xC0FF_EE00 + i as u32, bytes as u64);
            assert_eq!(pair.server.arriving(pair.ends[1], receive).expect("open"), Some(told));
            let whole = pair.next(1);
            let connection = pair.ends[1];
            assert_eq!(whole, Completion::Whole { connection, receive, immediate: told.0, bytes: told.1 });
            assert!(matches!(pair.server.deregister(inbox), Err(Error::RegionInUse)));
            let progress = pair.server.complete(pair.ends[1], receive).expect("open");
            assert_eq!(progress.packets() as usize, bytes.div_ceil(payload).max(1));
            assert_eq!(progress.chunks(), progress.packets().div_ceil(CHUNK));
            pair.client.end_stream(pair.ends[0], stream).expect("open");
            let got = pair.server.deregister(inbox).expect("free");
            assert!(got[10..bytes + 10] == source[20..], "{bytes} bytes");
            assert!(got[..10].iter().chain(&got[bytes + 10..]).all(|&byte| byte == 0xEE), "and none beyond");
            assert!(pair.client.deregister(outbox).is_ok());
        }
        let wire = pair.wires[0].counters();
        assert!(wire.lost > 0 && wire.duplicated > 0 && wire.held > 0, "the wire was bad: {wire:?}");
        let client = pair.client.observe().connection_counters(pair.ends[0]).expect("open");
        assert!(client.sent_bytes.iter().all(|&bytes| bytes > 100_000), "all planes are used: {client:?}");
    }
}

/// A bit is set if and only if its bytes are there, at any time.
#[test]
fn the_bitmap_of_a_message_tells_at_any_time_which_bytes_are_there() {
    let mut pair = Pair::new(config(1), Some(BAD), 7);
    let bytes = 500_000;
    let (source, payload) = (pattern(3, bytes), 1_344);
    assert!(source.chunks(payload).all(|packet| packet.iter().any(|&byte| byte != 0)));
    let outbox = pair.client.register(source.clone());
    let inbox = pair.server.register(vec![0; bytes]);
    let receive = pair.server.expect(pair.ends[1], inbox, 0..bytes).expect("a slot");
    let stream = begin(&mut pair, outbox, 0..bytes, 1);
    pair.client.push_stream(pair.ends[0], stream, 0..u32::MAX, false).expect("open");
    let (mut seen, mut between) = (0, 0);
    // About 355 of 373 packets arrive.
    until(&mut pair, |pair| {
        let progress = pair.server.progress(pair.ends[1], receive).expect("open");
        if progress.packets_present() == seen {
            return false;
        }
        seen = progress.packets_present();
        between += 1;
        let got = pair.server.memory(inbox).expect("registered");
        let mut count = 0;
        for (packet, (ours, theirs)) in (0..).zip(got.chunks(payload).zip(source.chunks(payload))) {
            let there = progress.has_packet(packet);
            assert!(
                if there { ours == theirs } else { ours.iter().all(|&byte| byte == 0) },
                "packet {packet}: {there}"
            );
            count += u32::from(there);
        }
        assert_eq!(count, seen);
        for chunk in 0..progress.chunks() {
            let packets = chunk * CHUNK..progress.packets().min((chunk + 1) * CHUNK);
            assert_eq!(progress.has_chunk(chunk), packets.clone().all(|packet| progress.has_packet(packet)));
        }
        seen > 300
    });
    assert!(between > 1, "it was seen while it arrived");
    let progress = pair.server.complete(pair.ends[1], receive).expect("open");
    assert!(!progress.is_whole(), "nothing is sent again by itself");
    // The sender learns that a receive ended with holes; like any control message, this one may be lost.
    pair.wires[0].change(Impairment::default());
    let receive = pair.server.expect(pair.ends[1], inbox, 0..bytes).expect("a slot");
    let second = begin(&mut pair, outbox, 0..bytes, 2);
    pair.client.push_stream(pair.ends[0], second, 0..2, false).expect("open");
    until(&mut pair, |pair| pair.server.progress(pair.ends[1], receive).expect("open").packets_present() > 0);
    assert!(pair.client.has_stream(pair.ends[0], second).expect("open"));
    pair.server.complete(pair.ends[1], receive).expect("open");
    until(&mut pair, |pair| !pair.client.has_stream(pair.ends[0], second).expect("open"));
    assert!(matches!(pair.client.push_stream(pair.ends[0], second, 0..2, true), Err(Error::NotOpen)));
    pair.client.end_stream(pair.ends[0], second).expect("its memory is ours until now");
    assert!(matches!(pair.client.end_stream(pair.ends[0], second), Err(Error::NotOpen)));
    assert!(matches!(pair.server.complete(pair.ends[1], receive), Err(Error::NotOpen)));
}

/// Half of all packets come 30 ms late, when their buffer belongs to another message, or to none.
#[test]
fn late_packets_never_touch_a_buffer_that_was_completed_or_posted_again() {
    let late = Impairment { reorder: 0.5, hold: Duration::from_millis(30), duplicate: 0.3, ..Impairment::default() };
    let mut pair = Pair::new(config(1), Some(late), 9);
    let (bytes, payload) = (100_000, 1_344);
    let inbox = pair.server.register(vec![0; bytes]);
    let mut late_packets = 0;
    for round in 0..12u64 {
        let source = pattern(100 + round, bytes);
        pair.server.memory_mut(inbox).expect("registered").fill(0);
        let receive = pair.server.expect(pair.ends[1], inbox, 0..bytes).expect("a slot");
        let outbox = pair.client.register(source.clone());
        let stream = begin(&mut pair, outbox, 0..bytes, round as u32);
        pair.client.push_stream(pair.ends[0], stream, 0..u32::MAX, false).expect("open");
        pair.run(Duration::from_millis(12));
        let progress = pair.server.complete(pair.ends[1], receive).expect("open");
        let had = pair.server.memory(inbox).expect("registered").to_vec();
        for (packet, (ours, theirs)) in (0..).zip(had.chunks(payload).zip(source.chunks(payload))) {
            let there = progress.has_packet(packet);
            assert!(
                if there { ours == theirs } else { ours.iter().all(|&byte| byte == 0) },
                "round {round}, packet {packet}: bytes of another message"
            );
        }
        late_packets += progress.packets() - progress.packets_present();
        if round % 3 == 0 {
            // The buffer belongs to no receive for a while.
            pair.run(Duration::from_millis(40));
            assert!(pair.server.memory(inbox).expect("registered") == had, "round {round}: it was written into");
        }
        pair.client.end_stream(pair.ends[0], stream).expect("open");
        pair.client.deregister(outbox).expect("free");
    }
    assert!(late_packets > 100, "{late_packets} packets came after their receive had ended");
    assert!(pair.server.deregister(inbox).is_ok());
}

#[test]
fn a_one_shot_waits_for_its_receive_leaves_once_and_gives_its_memory_back() {
    let mut pair = Pair::new(config(1), None, 1);
    let source = pattern(1, 9_000);
    let outbox = pair.client.register(source.clone());
    let posted: Vec<_> = (0..3)
        .map(|i| pair.client.send_once(pair.ends[0], outbox, i * 3_000..(i + 1) * 3_000, i as u32).expect("posted"))
        .collect();
    assert_eq!(pair.within(0, Duration::from_millis(30)), None, "no receive is posted");
    assert!(matches!(pair.client.begin_stream(pair.ends[0], outbox, 0..1, 0), Err(Error::NoSlot)), "they come first");
    let inbox = pair.server.register(vec![0; 9_000]);
    for i in 0..3 {
        assert_eq!(pair.server.expect(pair.ends[1], inbox, i * 3_000..(i + 1) * 3_000).expect("a slot"), i as u64);
    }
    let connection = pair.ends[0];
    for operation in posted {
        assert_eq!(pair.next(0), Completion::Injected { connection, operation });
    }
    assert!(pair.client.deregister(outbox).is_ok());
    for receive in 0..3 {
        let connection = pair.ends[1];
        let immediate = receive as u32;
        assert_eq!(pair.next(1), Completion::Whole { connection, receive, immediate, bytes: 3_000 });
        pair.server.complete(connection, receive).expect("open");
    }
    assert!(pair.server.deregister(inbox).expect("free") == source);
    let client = pair.client.observe().connection_counters(connection).expect("open");
    assert_eq!((client.engine.retransmitted, client.fresh_bytes), (0, 9_000));
    let control = ControlMessage::Custom { kind: 3, words: [1, 2, 3, 4] };
    pair.server.send_control(pair.ends[1], control).expect("open");
    assert_eq!(pair.next(0), Completion::Control { connection, control });
}

#[test]
fn calls_that_do_not_fit_the_reliability_or_the_slots_say_so() {
    let mut pair = Pair::new(config(1), None, 1);
    let region = pair.server.register(vec![0; 100]);
    let here = pair.ends[1];
    assert!(matches!(pair.server.send(here, region, 0..1), Err(Error::IsPartial)));
    assert!(matches!(pair.server.recv(here, region, 0..1), Err(Error::IsPartial)));
    assert!(matches!(pair.server.expect(here, region, 0..101), Err(Error::Range { .. })));
    assert!(matches!(pair.server.progress(here, 0), Err(Error::NotOpen)));
    for receive in 0..SLOTS {
        assert_eq!(pair.server.expect(here, region, 0..100).expect("a slot"), receive);
    }
    assert!(matches!(pair.server.expect(here, region, 0..100), Err(Error::NoSlot)));
    assert_eq!(pair.server.complete(here, 0).expect("open").packets_present(), 0);
    assert_eq!(pair.server.expect(here, region, 0..100).expect("it is free"), SLOTS);
    let mut reliable = Pair::new(support::config("sdr_sr", 1), None, 1);
    let region = reliable.server.register(vec![0; 100]);
    assert!(matches!(reliable.server.expect(reliable.ends[1], region, 0..1), Err(Error::OnlyPartial)));
    assert!(matches!(reliable.server.send_once(reliable.ends[1], region, 0..1, 0), Err(Error::OnlyPartial)));
    assert!(matches!(reliable.server.progress(reliable.ends[1], 0), Err(Error::OnlyPartial)));
    assert!(matches!(reliable.server.has_stream(reliable.ends[1], 0), Err(Error::OnlyPartial)));
}

/// Slots are used again and again: counts on the wire wrap within them, and each message finds its own receive.
#[test]
fn ten_thousand_messages_go_through_a_thousand_slots() {
    let mut pair = Pair::new(config(1), None, 1);
    let outbox = pair.client.register((0..=255).collect());
    let inbox = pair.server.register(vec![0; 512]);
    let (mut posted, mut sent, mut done, until) = (0usize, 0usize, 0, Instant::now() + PATIENCE);
    while done < 10_000 {
        while posted < done + 512 && posted < 10_000 {
            let at = posted % 512;
            pair.server.expect(pair.ends[1], inbox, at..at + 1).expect("a slot");
            posted += 1;
        }
        while sent < posted && sent < done + 256 {
            let at = sent % 256;
            pair.client.send_once(pair.ends[0], outbox, at..at + 1, sent as u32).expect("posted");
            sent += 1;
        }
        pair.pump();
        while let Some(completion) = pair.within(1, Duration::ZERO) {
            let Completion::Whole { receive, immediate, .. } = completion else { panic!("{completion:?}") };
            assert_eq!(u64::from(immediate), receive);
            assert_eq!(pair.server.memory(inbox).expect("registered")[receive as usize % 512], receive as u8);
            pair.server.complete(pair.ends[1], receive).expect("open");
            done += 1;
        }
        assert!(Instant::now() < until, "{done} of {sent} messages are there");
    }
}

#[test]
fn a_peer_that_dies_is_reported_and_all_memory_is_free() {
    let mut config = config(1);
    config.timeouts.peer = Duration::from_millis(300);
    let mut pair = Pair::new(config, Some(Impairment::default()), 1);
    let (outbox, inbox) = (pair.client.register(vec![1; 1_000]), pair.server.register(vec![0; 1_000]));
    pair.server.expect(pair.ends[1], inbox, 0..1_000).expect("a slot");
    let stream = begin(&mut pair, outbox, 0..1_000, 0);
    pair.client.send_once(pair.ends[0], outbox, 0..1_000, 1).expect("posted");
    pair.wires[0].silence(true);
    pair.client.push_stream(pair.ends[0], stream, 0..1, false).expect("open");
    for side in [0, 1] {
        assert_eq!(pair.next(side), Completion::Closed { connection: pair.ends[side], reason: Reason::PeerSilent });
    }
    assert!(pair.client.deregister(outbox).is_ok() && pair.server.deregister(inbox).is_ok());
}
