//! Connections spread over threads: each of them carries data, and all bytes arrive.

mod support;

use std::net::{SocketAddrV6, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strandway_udp::perf::{self, Mode, Options, PerfError, Served};
use strandway_udp::{Config, Error, Node, Shards, shard_addresses};
use support::executor::block_on;
use support::{PATIENCE, config, local, pattern, v6};

/// `count` consecutive ports that are free at the moment.
fn ports(count: usize) -> SocketAddrV6 {
    loop {
        let first = UdpSocket::bind(local()).expect("a port");
        let mut address = v6(first.local_addr().expect("bound"));
        drop(first);
        // Below the range from which the system chooses ports, so that no other test gets them meanwhile.
        address.set_port(10_000 + address.port() % 20_000);
        let row = (0..count).map(|i| SocketAddrV6::new(*address.ip(), address.port() + i as u16, 0, 0));
        if row.map(UdpSocket::bind).collect::<Result<Vec<_>, _>>().is_ok() {
            return address;
        }
    }
}

#[test]
fn four_connections_over_two_threads_deliver_everything_and_both_threads_carry() {
    let first = ports(4);
    let second = SocketAddrV6::new(*first.ip(), first.port() + 1, 0, 0);
    let there = Config { planes: vec![first, second], ..config("uec", 2) };
    let server = Shards::spawn(&there, 2).expect("sockets");
    let client = Shards::spawn(&config("uec", 2), 2).expect("sockets");
    for turn in 0..4_usize {
        block_on(async {
            let here = client.connect(&there.planes, 2)?.await?;
            let there = server.accept().await?;
            let shard = server.nodes().iter().position(|node| node.addresses() == there.node().addresses());
            assert_eq!(shard, Some(turn % 2), "in turn");
            let bytes = pattern(turn as u64, 200_000);
            let inbox = there.register(vec![0; 200_000]).await?;
            let remote = there.expose(inbox, 0..200_000).await?;
            let outbox = here.register(bytes.clone()).await?;
            here.write(outbox, 0..200_000, remote, 0, None).await?;
            assert!(there.node().read(inbox, 0..200_000).await? == bytes);
            Ok::<(), strandway_udp::asynchronous::AsyncError>(())
        })
        .expect("delivered");
    }
    for node in server.nodes().iter().chain(client.nodes()) {
        let planes = block_on(node.plane_counters()).expect("it runs");
        let carried: u64 = planes.iter().map(|plane| plane.received + plane.sent).sum();
        assert!(carried > 250, "a shard carried nothing: {planes:?}");
    }
}

#[test]
fn shards_have_ports_in_a_row_while_there_are_any() {
    let planes: Vec<SocketAddrV6> = ["[::1]:65530", "[::1]:0", "[::1]:65531"].map(|a| a.parse().expect("valid")).into();
    let ports = |shard| -> Result<Vec<u16>, Error> {
        Ok(shard_addresses(&planes, shard)?.iter().map(SocketAddrV6::port).collect())
    };
    assert_eq!(ports(0).expect("there are"), [65_530, 0, 65_531]);
    assert_eq!(ports(1).expect("there are"), [65_533, 0, 65_534]);
    assert!(matches!(ports(2), Err(Error::Config(_))));
    assert!(matches!(Shards::spawn(&config("uec", 1), 0), Err(Error::Config(_))));
}

#[test]
fn a_measurement_on_two_threads_adds_up() {
    let mut servers: Vec<Node> = (0..2).map(|_| Node::bind(config("uec", 1)).expect("sockets")).collect();
    let peers: Vec<Vec<SocketAddrV6>> =
        servers.iter().map(|node| node.addresses().expect("bound").into_iter().map(v6).collect()).collect();
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
        assert!(node.plane_counters()[0].received > 100, "a thread carried nothing");
    }
    let received: u64 = servers.iter().map(|node| node.counters().ended_received_bytes).sum();
    assert!(received >= 400 * 50_000, "{received}");
}
