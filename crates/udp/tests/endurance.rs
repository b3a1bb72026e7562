//! Endurance tests with short defaults; `STRANDWAY_SOAK_S=600` and `STRANDWAY_STORM=10000000` make them long.

mod support;

use std::net::UdpSocket;
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};
use strandway_udp::Completion;
use strandway_udp::frame::{Kind, Sealed, VERSION, encode_sealed};
use strandway_udp::impair::Impairment;
use support::{Pair, config, local, pattern};

/// A number from the environment, or a default that suits a test run.
fn wanted(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

/// Bytes of memory that this process occupies.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("statm's second word");
    pages * 4_096
}

/// Random impairments for the next rounds, and whether the wire is silent.
fn weather(random: &mut Random) -> (Impairment, bool) {
    let mut share = |most: f64| if random.unit() < 0.5 { random.unit() * most } else { 0.0 };
    let impairment = Impairment {
        loss: share(0.1),
        duplicate: share(0.05),
        reorder: share(0.3),
        corrupt: share(0.02),
        mark: share(0.3),
        hold: Duration::from_micros(500),
        delay: Duration::ZERO,
        trim: share(0.1),
        widest: 0,
    };
    (impairment, random.unit() < 0.2)
}

#[test]
fn transfers_under_random_faults_arrive_whole_and_memory_stays_flat() {
    let seconds = wanted("STRANDWAY_SOAK_S", 4);
    let seed = wanted("STRANDWAY_SEED", 1);
    let mut random = Random::new(seed, StreamKind::Fault, 0);
    let mut half = 0;
    let until = Instant::now() + Duration::from_secs(seconds);
    let begin = Instant::now();
    let mut rounds = 0u32;
    for profile in ["mrc", "uec", "strack_fast"].iter().cycle() {
        // A third of the time each; long runs alternate every minute.
        let turn = Instant::now() + Duration::from_millis((seconds * 1_000 / 3).min(60_000));
        let mut config = config(profile, 3);
        config.trimming = true;
        let mut pair = Pair::new(config, Some(Impairment::default()), seed);
        let bytes = 400_000;
        let (inbox, remote) = pair.exposed(bytes);
        while Instant::now() < turn.min(until) {
            // One wire always works to some degree, or nothing could arrive.
            let steady = (random.unit() * 3.0) as usize;
            for (plane, wire) in pair.wires.iter().enumerate() {
                let (impairment, silent) = weather(&mut random);
                wire.change(impairment);
                wire.silence(silent && plane != steady);
            }
            let source = pattern(u64::from(rounds) + 7, bytes);
            let outbox = pair.client.register(source.clone());
            pair.client.write(pair.ends[0], outbox, 0..bytes, remote, 0, Some(rounds)).expect("posted");
            let Completion::Written { immediate, .. } = pair.next(1) else { panic!("seed {seed}: only writes come") };
            assert_eq!(immediate, rounds, "seed {seed}: once, in order");
            assert!(pair.server.memory(inbox).expect("registered") == source, "seed {seed}, {profile}, round {rounds}");
            assert!(matches!(pair.next(0), Completion::Sent { .. }));
            pair.client.deregister(outbox).expect("free again");
            rounds += 1;
        }
        if begin.elapsed() > Duration::from_secs(seconds) / 2 && half == 0 {
            half = resident();
        }
        if Instant::now() >= until {
            break;
        }
    }
    println!(
        "{rounds} rounds of 400 kB in {seconds} s; resident {} kB at half time, {} kB now",
        half >> 10,
        resident() >> 10
    );
    assert!(rounds > 0);
    assert!(half == 0 || resident() < half + (32 << 20), "memory grows: {half} bytes at half time, {} now", resident());
}

#[test]
fn a_storm_of_strange_datagrams_changes_nothing() {
    let count = wanted("STRANDWAY_STORM", 100_000);
    let mut pair = Pair::new(config("mrc", 1), None, 0);
    let (inbox, remote) = pair.exposed(4_096);
    let address = pair.server.addresses().expect("bound")[0];
    let stranger = UdpSocket::bind(local()).expect("a socket");
    stranger.connect(address).expect("loopback");
    let mut random = Random::new(wanted("STRANDWAY_SEED", 1), StreamKind::Fault, 1);
    let mut datagram = Vec::new();
    let (mut before, mut sent) = (0, 0);
    while sent < count {
        for _ in 0..32 {
            let word = random.next_u64();
            datagram.clear();
            let kinds = [Kind::Data, Kind::Control, Kind::Ping, Kind::Pong, Kind::Close];
            if word & 3 == 0 {
                // A well-formed datagram, for a connection that may even exist.
                let kind = kinds[(word >> 8) as usize % kinds.len()];
                let sealed = Sealed {
                    kind,
                    urgent: kind == Kind::Data && word >> 4 & 1 == 1,
                    path: strandway_proto::PathId(random.next_u64() as u32),
                    credits: (word >> 16) as u16,
                    connection: random.next_u64() >> (word >> 32 & 63),
                    counter: random.next_u64() >> (word >> 40 & 63),
                };
                encode_sealed(&sealed, &mut datagram);
            } else {
                datagram.push(if word & 4 == 0 { VERSION << 4 | (word >> 8) as u8 & 15 } else { (word >> 8) as u8 });
            }
            let length = (word >> 48) as usize % 300;
            while datagram.len() < length {
                datagram.extend(random.next_u64().to_be_bytes());
            }
            // If the socket has no room, the datagram counts as dropped.
            let _ = stranger.send(&datagram);
            sent += 1;
        }
        // Often enough for all of them to be read.
        for _ in 0..4 {
            assert_eq!(pair.server.poll(), None, "strangers cause no completions");
        }
        pair.client.poll();
        if before == 0 && sent * 4 > count {
            before = resident();
        }
    }
    let after = resident();
    println!(
        "{sent} datagrams: {:?}; resident {} kB, {} kB",
        pair.server.observe().counters(),
        before >> 10,
        after >> 10
    );
    assert!(pair.server.memory(inbox).expect("registered").iter().all(|&byte| byte == 0), "no byte was written");
    assert!(after < before + (8 << 20), "memory grows: {before} to {after}");
    assert_eq!(pair.server.observe().counters().handshakes, 1, "the friend's");
    // The friend is served as before.
    let outbox = pair.client.register(pattern(1, 4_096));
    pair.client.write(pair.ends[0], outbox, 0..4_096, remote, 0, Some(1)).expect("posted");
    assert!(matches!(pair.next(1), Completion::Written { immediate: 1, bytes: 4_096, .. }));
}
