//! How many chunks of a group one thread receives per second: opened, checked against the bitmap, copied to their
//! places.
//!
//! ```text
//! cargo run --release -p strandway-udp --example chunk_rate        # a second for each row
//! cargo run --release -p strandway-udp --example chunk_rate -- 3   # three
//! ```
//!
//! One node casts chunks to another one over loopback as fast as it can, each on its own thread. Chunks leave in trains
//! of one system call. Chunks that the receiver does not read in time are lost and not fetched. Its rate is given by
//! the clock and per second of its processor time; the latter is the rate of a thread that never waits for chunks.

use rustix::time::{ClockId, clock_gettime};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use strandway_proto::cast::{Cast, Layout, LeftOut};
use strandway_proto::{HostId, Rate};
use strandway_udp::{Completion, Config, Error, Group, Incoming, Membership, Node, Protection, Region, Waiting};

/// Chunks of an operation.
const CHUNKS: u32 = 16_384;
/// The UDP port of the group's addresses; no datagram goes there in this example.
const PORT: u16 = 47_991;

fn node(payload: u16, protection: Protection) -> Result<Node, Error> {
    let mut config = Config::new(&[7; 32])?.plane("[::1]:0".parse().expect("an address"));
    config.payload = payload.into();
    config.protection = protection;
    config.rate = Rate::from_gbps(100);
    config.waiting = Waiting::Spin;
    config.socket_buffer = 16 << 20;
    Node::bind(config)
}

fn addresses(node: &Node) -> Result<Vec<SocketAddrV6>, Error> {
    let v6 = |address| if let SocketAddr::V6(v6) = address { Some(v6) } else { None };
    Ok(node.addresses()?.into_iter().filter_map(v6).collect())
}

fn open(node: &mut Node, group: Group, task: u32, layout: Layout, region: Region) -> Result<(), Error> {
    let range = 0..layout.bytes() as usize;
    node.open_task(group, &Incoming { task, layout, region, range, present: Vec::new(), parity: None, hashes: None })
}

/// Casts one operation after the other until `stop`; each one only after the receiver has opened it.
fn send(mut node: Node, group: Group, layout: Layout, stop: &AtomicBool, opened: &AtomicU32) -> Result<(), Error> {
    let region = node.register(vec![1; layout.bytes() as usize]);
    let mut task = 0;
    while !stop.load(Ordering::Relaxed) {
        open(&mut node, group, task, layout, region)?;
        node.cast(
            group,
            Cast {
                to: HostId(1),
                task,
                first: 0,
                count: CHUNKS,
                bytes: layout.chunk_bytes(),
                last: CHUNKS - 1,
                tail: layout.tail(0),
                header: node.chunk_overhead() as u16,
                rate: Cast::UNPACED,
                planes: 1,
                trees: 0,
                left_out: LeftOut::NONE,
            },
        )?;
        while !matches!(node.wait(Duration::from_millis(1))?, Some(Completion::Cast { .. }))
            && !stop.load(Ordering::Relaxed)
        {}
        node.close_task(group, task)?;
        task += 1;
        while opened.load(Ordering::Acquire) < task && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// Processor time of this thread, in seconds.
fn worked() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Receives for this time: chunks per second, and per second of processor time.
fn receive(
    mut node: Node,
    group: Group,
    layout: Layout,
    time: Duration,
    opened: &AtomicU32,
) -> Result<[f64; 2], Error> {
    let region = node.register(vec![0; layout.bytes() as usize]);
    // The operation that is cast, and the one after it.
    let mut newest = 1;
    (0..=newest).try_for_each(|task| open(&mut node, group, task, layout, region))?;
    let (began, before) = (Instant::now(), worked());
    while began.elapsed() < time {
        if let Some(Completion::Chunk { task, .. }) = node.wait(Duration::from_millis(1))? {
            while task >= newest {
                node.close_task(group, newest - 1)?;
                newest += 1;
                open(&mut node, group, newest, layout, region)?;
                opened.store(newest, Ordering::Release);
            }
        }
    }
    let placed = node.observe().group_counters(group)?.placed as f64;
    Ok([placed / began.elapsed().as_secs_f64(), placed / (worked() - before)])
}

fn measure(payload: u16, protection: Protection, time: Duration) -> Result<[f64; 2], Error> {
    let mut nodes = [node(payload, protection)?, node(payload, protection)?];
    let members = vec![addresses(&nodes[0])?, addresses(&nodes[1])?];
    let layout = Layout::new(u64::from(CHUNKS) * u64::from(payload), 1, payload).expect("32 bits count them");
    let mut groups = Vec::new();
    for (rank, node) in (0..).zip(&mut nodes) {
        let membership =
            Membership { team: 1, secret: [9; 32], rank, members: members.clone(), port: Some(PORT), trees: 1 };
        groups.push(node.join(&membership)?);
    }
    let [sender, receiver] = nodes;
    let (stop, opened) = (AtomicBool::new(false), AtomicU32::new(1));
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(sender, groups[0], layout, &stop, &opened));
        let received = receive(receiver, groups[1], layout, time, &opened);
        stop.store(true, Ordering::Relaxed);
        sending.join().expect("no panic")?;
        received
    })
}

fn main() -> Result<(), Error> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:>6} {:>14} {:>16} {:>22} {:>12}",
        "bytes", "protection", "chunks/s", "chunks/s of its core", "Gb/s of it"
    );
    for payload in [64, 1_344, 4_096] {
        for protection in [Protection::None, Protection::Encrypted] {
            let [by_clock, by_core] = measure(payload, protection, time)?;
            let name = format!("{protection:?}").to_lowercase();
            let rate = by_core * f64::from(payload) * 8.0 / 1e9;
            println!("{payload:>6} {name:>14} {by_clock:>16.0} {by_core:>22.0} {rate:>12.2}");
        }
    }
    Ok(())
}
