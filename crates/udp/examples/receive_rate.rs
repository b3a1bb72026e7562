//! How many packets per second one thread receives and counts in bitmaps, by packets of a chunk: SDR-RDMA's figures 14
//! to 16.
//!
//! ```text
//! cargo run --release -p strandway-udp --example receive_rate        # a second for each number
//! cargo run --release -p strandway-udp --example receive_rate -- 3   # three
//! ```
//!
//! Packets carry 64 bytes, messages 1,024 packets. *Engine*: packets from memory; the header is decoded, the packet
//! counted, the payload copied to its place; no sockets, no protection. *Sockets*: one node sends over loopback as fast
//! as it can, another one receives, each on its own thread. Packets that the receiver does not read in time are lost
//! and not repaired. Its rate is given by the clock and per second of its processor time; the latter is the rate of a
//! thread that never waits for packets.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandway_proto::packet::{Flags, Header, Part, Wait};
use strandway_proto::parameter::Value;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{
    Bytes, ConnectionId, Endpoint, Environment, Handled, HostId, MessageId, OpenConnection, Packet, PathId, Ports,
    Profile, Rate, Span, Time,
};
use strandway_udp::{Completion, Config, Connection, Error, Node, Protection, Waiting};
use strandway_wire as wire;

const PAYLOAD: usize = 64;
const PACKETS: u32 = 1_024;
const MESSAGE: usize = PACKETS as usize * PAYLOAD;
/// Receives that are posted ahead.
const AHEAD: u64 = 64;
/// A receive is completed when the message this many places after its own has begun to arrive.
const BEHIND: u64 = 16;
const ONLY: ConnectionId = ConnectionId(0);

fn profile(chunk: u32) -> Profile {
    let mut reliability = ReliabilityConfig::named("partial").expect("a name");
    reliability.parameters().set("chunk", Value::Count(u64::from(chunk))).expect("a parameter");
    Profile { reliability, ..Profile::preset("sdr_sr").expect("a preset") }
}

/// Packets per second of an engine that gets packets from memory.
fn engine(chunk: u32, time: Duration) -> f64 {
    let mut profile = profile(chunk);
    profile.transport.mtu = PAYLOAD as u32;
    let environment = Environment {
        rate: Rate::from_gbps(100),
        ports: 1,
        base_rtt: Span::from_ms(1),
        packet: profile.packet_bytes(),
        trimming: false,
        uplinks: [1, 0],
        paths_in_order: 0,
        queue: Bytes(1 << 20),
        packet_life: Span::from_ms(100),
    };
    let format = profile.wire;
    let mut endpoint = Endpoint::new(HostId(1));
    let random = Random::new(1, StreamKind::Connection, 1);
    let (profile, peer, peer_connection) = (Arc::new(profile), HostId(0), Some(ONLY));
    endpoint.open(Time::ZERO, OpenConnection { profile, environment, peer, peer_connection, random });
    // The datagrams of one message, headers and payload.
    let datagrams: Vec<Vec<u8>> = (0..PACKETS)
        .map(|packet| {
            let (message, wait, length) = (MessageId(7), Wait::default(), PAYLOAD as u16);
            let part = Part {
                sequence: 0,
                message,
                packet,
                packets: PACKETS,
                tail: length,
                length,
                wait,
                parity: false,
                plan: 0,
            };
            let packet = Packet {
                source: HostId(0),
                destination: HostId(1),
                connection: ONLY,
                path: PathId(0),
                size: 128,
                flags: Flags::NONE,
                header: Header::Part(part),
            };
            let mut bytes = Vec::new();
            wire::encode(format, &packet, &mut bytes).expect("it fits");
            bytes.extend_from_slice(&[packet.size as u8; PAYLOAD]);
            bytes
        })
        .collect();
    let mut place = vec![0; MESSAGE];
    let (began, mut now, mut count) = (Instant::now(), Time::ZERO, 0u64);
    while began.elapsed() < time {
        now = now + Span::from_us(10);
        let receive = endpoint.expect(now, ONLY, MESSAGE as u64).expect("a slot");
        while endpoint.poll_transmit(now, Ports::first(1)).is_some() {}
        for datagram in &datagrams {
            let Ok(mut packet) = wire::decode(format, datagram) else { unreachable!("we have made it") };
            let Header::Part(part) = &mut packet.header else { unreachable!("it is a part") };
            // This message, sent again, takes the next slot.
            part.sequence = receive as u32;
            let at = part.packet as usize * PAYLOAD;
            if endpoint.handle_packet(now, &packet) == Handled::Fresh {
                place[at..at + PAYLOAD].copy_from_slice(&datagram[datagram.len() - PAYLOAD..]);
                count += 1;
            }
        }
        assert!(endpoint.complete(now, ONLY, receive).is_some_and(|progress| progress.is_whole()));
    }
    std::hint::black_box(&place);
    count as f64 / began.elapsed().as_secs_f64()
}

fn config(chunk: u32, protection: Protection) -> Result<Config, Error> {
    let mut config = Config::new(&[7; 32])?.plane("[::1]:0".parse().expect("an address"));
    config.profile = profile(chunk);
    config.payload = PAYLOAD as u32;
    config.protection = protection;
    config.rate = Rate::from_gbps(100);
    config.waiting = Waiting::Spin;
    config.socket_buffer = 16 << 20;
    Ok(config)
}

fn connected(node: &mut Node) -> Result<Connection, Error> {
    match node.wait(Duration::from_secs(5))? {
        Some(Completion::Connected { connection } | Completion::Accepted { connection, .. }) => Ok(connection),
        other => panic!("no connection: {other:?}"),
    }
}

/// Sends one-shots until it is told to stop.
fn send(mut node: Node, stop: &AtomicBool) -> Result<(), Error> {
    let connection = connected(&mut node)?;
    let region = node.register(vec![1; MESSAGE]);
    let mut under_way = 0;
    while !stop.load(Ordering::Relaxed) {
        while under_way < AHEAD {
            node.send_once(connection, region, 0..MESSAGE, 0)?;
            under_way += 1;
        }
        while let Some(completion) = node.poll() {
            under_way -= u64::from(matches!(completion, Completion::Injected { .. }));
        }
    }
    Ok(())
}

/// Processor time of this thread.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Packets per second of a receiving node, by the clock and by its processor time.
fn receive(mut node: Node, time: Duration) -> Result<[f64; 2], Error> {
    let here = connected(&mut node)?;
    let region = node.register(vec![0; MESSAGE * AHEAD as usize]);
    let room = |receive: u64| {
        let at = (receive % AHEAD) as usize * MESSAGE;
        at..at + MESSAGE
    };
    for receive in 0..AHEAD {
        node.expect(here, region, room(receive))?;
    }
    let (mut first, mut count, mut began) = (0, 0u64, None);
    let end = Instant::now() + time + Duration::from_millis(100);
    while Instant::now() < end {
        while node.poll().is_some() {}
        // The first tenth of a second warms up.
        if began.is_none() && Instant::now() + time >= end {
            began = Some((Instant::now(), cpu()));
            count = 0;
        }
        while node.progress(here, first)?.is_whole() || node.arriving(here, first + BEHIND)?.is_some() {
            count += u64::from(node.complete(here, first)?.packets_present());
            node.expect(here, region, room(first))?;
            first += 1;
        }
    }
    let (began, before) = began.expect("it is over");
    Ok([count as f64 / began.elapsed().as_secs_f64(), count as f64 / (cpu() - before)])
}

fn sockets(chunk: u32, protection: Protection, time: Duration) -> Result<[f64; 2], Error> {
    let receiver = Node::bind(config(chunk, protection)?)?;
    let address = strandway_udp::address::kept(receiver.addresses()?[0]);
    let mut sender = Node::bind(config(chunk, protection)?)?;
    sender.connect(&[address])?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send(sender, &stop).expect("it sends"));
        let rates = receive(receiver, time);
        stop.store(true, Ordering::Relaxed);
        rates
    })
}

fn main() -> Result<(), Error> {
    let seconds = std::env::args().nth(1).map_or(1.0, |seconds| seconds.parse().expect("seconds"));
    let time = Duration::from_secs_f64(seconds);
    println!("million packets of {PAYLOAD} B per second and thread");
    println!(
        "| packets of a chunk | engine | sockets, no protection (per CPU second) | sockets, encrypted (per CPU second) |"
    );
    println!("|---|---|---|---|");
    for chunk in [1, 2, 4, 8, 16, 32, 64] {
        let engine = engine(chunk, time) / 1e6;
        let [open, sealed] = [Protection::None, Protection::Encrypted]
            .map(|protection| sockets(chunk, protection, time).map(|rates| rates.map(|rate| rate / 1e6)));
        let ([open, open_cpu], [sealed, sealed_cpu]) = (open?, sealed?);
        println!("| {chunk} | {engine:.1} | {open:.2} ({open_cpu:.2}) | {sealed:.2} ({sealed_cpu:.2}) |");
    }
    Ok(())
}
