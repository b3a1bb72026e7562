//! A measurement on several threads, over the shards of a server.

use super::support::{PATIENCE, config, v6};
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strandway_perf as perf;
use strandway_perf::{Mode, Options, PerfError, Served};
use strandway_udp::Node;

fn addresses(node: &Node) -> Vec<SocketAddrV6> {
    node.addresses().expect("bound").into_iter().map(v6).collect()
}

#[test]
fn a_measurement_on_two_threads_adds_up() {
    let mut servers = Node::bind_shards(&config("uec", 1), 2).expect("sockets");
    let peers: Vec<Vec<SocketAddrV6>> = servers.iter().map(addresses).collect();
    let mut clients: Vec<Node> = (0..2).map(|_| Node::bind(config("uec", 1)).expect("sockets")).collect();
    let mut options = Options {
        size: 50_000,
        connections: 4,
        duration: Duration::from_secs(20),
        depth: 2,
        mode: Mode::Bandwidth,
        // Twenty megabytes take longer than this on every machine.
        interval: Duration::from_millis(1),
        messages: Some(100),
        bulk: 0,
    };
    let (over, gone, mut came, mut intervals) = (AtomicBool::new(false), AtomicUsize::new(0), 0, 0);
    let whole = std::thread::scope(|scope| {
        scope.spawn(|| {
            let stop = || over.load(Ordering::Relaxed);
            perf::serve_all(&mut servers, stop, |served| match served {
                Served::Came(_) => came += 1,
                Served::Gone(_) => drop(gone.fetch_add(1, Ordering::Relaxed)),
                Served::Passed(_) | Served::Refused(..) => {}
            })
        });
        let whole = perf::run_all(&mut clients, &peers, &options, || false, |_| intervals += 1);
        options.connections = 1;
        let refused = perf::run_all(&mut clients, &peers, &options, || false, |_| {});
        assert!(matches!(refused, Err(PerfError::Option(_))), "fewer connections than threads");
        let until = Instant::now() + PATIENCE;
        while gone.load(Ordering::Relaxed) < 4 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        over.store(true, Ordering::Relaxed);
        whole
    });
    let whole = whole.expect("it runs");
    assert_eq!((whole.messages, came), (400, 4));
    assert!(intervals > 0 && whole.goodput_gbps > 0.0 && whole.planes_up == [true], "{whole:?}");
    for node in clients.iter().chain(&servers) {
        assert!(node.observe().plane_counters()[0].received > 100, "a thread carried nothing");
    }
    let received: u64 = servers.iter().map(|node| node.observe().counters().ended_received_bytes).sum();
    assert!(received >= 400 * 50_000, "{received}");
}
