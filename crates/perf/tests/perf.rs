//! The measurement itself: its report agrees with the traffic.

use super::support::{self, PATIENCE, config, over_ipv4, v6};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use strandway_perf as perf;
use strandway_perf::{Mode, Options, PerfError, Served, Stretch};
use strandway_udp::{Completion, Config, Node, Reason};

fn measure(planes: usize, options: Options) -> Result<(Stretch, Vec<Stretch>), PerfError> {
    let mut server = Node::bind(config("uec", planes)).expect("sockets");
    let addresses: Vec<_> = server.addresses().expect("bound").into_iter().map(v6).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| perf::serve(&mut server, || stop.load(Ordering::Relaxed), |_| {}).expect("it serves"));
        let mut client = Node::bind(config("uec", planes)).expect("sockets");
        let mut seconds = Vec::new();
        let result = perf::run(&mut client, &addresses, &options, || false, |second| seconds.push(second.clone()));
        stop.store(true, Ordering::Relaxed);
        result.map(|stretch| (stretch, seconds))
    })
}

const OPTIONS: Options = Options {
    size: 100_000,
    connections: 2,
    duration: Duration::from_millis(1_300),
    depth: 4,
    mode: Mode::Bandwidth,
    interval: Duration::from_secs(1),
    messages: None,
    bulk: 0,
};

#[test]
fn bandwidth_counts_what_arrived_and_names_the_planes_that_carried_it() {
    let (whole, seconds) = measure(2, OPTIONS).expect("it runs");
    assert_eq!(seconds.len(), 1, "one second passed whole");
    assert!(whole.messages > 0 && whole.goodput_gbps > 0.0, "{whole:?}");
    let bits = whole.messages as f64 * 100_000.0 * 8.0 / 1e9;
    assert!((whole.goodput_gbps * whole.to_s - bits).abs() < 0.05 * bits, "{whole:?}");
    assert_eq!(whole.plane_gbps.len(), 2);
    assert!(whole.plane_gbps.iter().all(|&rate| rate > 0.0), "{whole:?}");
    assert!(whole.plane_gbps.iter().sum::<f64>() >= whole.goodput_gbps * 0.95, "{whole:?}");
    assert!(whole.rtt_p50_us > 0.0 && whole.rtt_p50_us <= whole.rtt_p99_us, "{whole:?}");
}

#[test]
fn bandwidth_over_ipv4_counts_what_arrived() {
    over_ipv4(bandwidth_counts_what_arrived_and_names_the_planes_that_carried_it);
}

#[test]
fn the_last_interval_is_told_of_although_the_time_is_up() {
    let options = Options { duration: Duration::from_millis(600), interval: Duration::from_millis(300), ..OPTIONS };
    let (whole, intervals) = measure(1, options).expect("it runs");
    let last = intervals.last().expect("one at the least");
    assert!(whole.to_s - last.to_s < 0.25, "{intervals:?} of {whole:?}");
    let (_, intervals) = measure(1, Options { interval: Duration::from_secs(600), ..options }).expect("it runs");
    assert!(intervals.is_empty(), "hardly begun");
}

/// Relays between a client and a server, and drops the client's datagrams that `loses` selects.
fn relay(
    client: &mut Node,
    server: SocketAddr,
    time: Duration,
    loses: fn(u8) -> bool,
    each: impl Fn(&mut Node, Completion),
) {
    let socket = || {
        let socket = UdpSocket::bind(support::local()).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        socket
    };
    let (front, back) = (socket(), socket());
    client.connect(&[v6(front.local_addr().expect("bound"))]).expect("a call");
    let (mut from, mut bytes) = (None, [0; 65_536]);
    let until = Instant::now() + time;
    while Instant::now() < until {
        if let Some(completion) = client.poll() {
            each(client, completion);
        }
        while let Ok((length, at)) = front.recv_from(&mut bytes) {
            from = Some(at);
            if !loses(bytes[0] & 15) {
                back.send_to(&bytes[..length], server).expect("loopback takes it");
            }
        }
        while let Ok(length) = back.recv(&mut bytes) {
            from.map(|from| front.send_to(&bytes[..length], from).expect("loopback takes it"));
        }
    }
}

#[test]
fn a_server_outlives_clients_that_leave_at_once_and_tells_of_those_that_it_refuses() {
    let mut server = Node::bind(config("uec", 1)).expect("sockets");
    let address = server.addresses().expect("bound")[0];
    let (stop, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            perf::serve(
                &mut server,
                || stop.load(Ordering::Relaxed),
                |served| {
                    if let Served::Refused(Reason::WrongKey, count) = served {
                        refused.fetch_add(count as usize, Ordering::Relaxed);
                    }
                },
            )
        });
        let close = |client: &mut Node, completion: Completion| {
            if let Completion::Connected { connection } = completion {
                client.close(connection).expect("open");
            }
        };
        for _ in 0..3 {
            // All pings are lost, so the first datagram that gets through closes the connection.
            let mut client = Node::bind(config("uec", 1)).expect("sockets");
            relay(&mut client, address, Duration::from_millis(200), |kind| kind == 6, close);
        }
        // A request, and the end of the connection right after it.
        for _ in 0..3 {
            let mut client = Node::bind(config("uec", 1)).expect("sockets");
            relay(
                &mut client,
                address,
                Duration::from_millis(200),
                |_| false,
                |client, completion| match completion {
                    Completion::Connected { connection } => {
                        let request = client.register(vec![0; 32]);
                        client.memory_mut(request).expect("registered")[15] = 1;
                        client.send(connection, request, 0..32).expect("posted");
                    }
                    Completion::Sent { connection, .. } => client.close(connection).expect("open"),
                    _ => {}
                },
            );
        }
        let secret = strandway_udp::Secret::new(&[9; 32]).expect("long enough");
        let mut stranger = Node::bind(Config { secret, ..config("uec", 1) }).expect("sockets");
        stranger.connect(&[v6(address)]).expect("a call");
        let until = Instant::now() + PATIENCE;
        while refused.load(Ordering::Relaxed) == 0 {
            stranger.poll();
            assert!(Instant::now() < until, "the server is told of no stranger");
        }
        assert!(!serving.is_finished());
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("no panic").expect("it served to the end");
    });
}

#[test]
fn latency_counts_one_message_at_a_time() {
    let options =
        Options { size: 64, connections: 1, duration: Duration::from_millis(300), mode: Mode::Latency, ..OPTIONS };
    let (whole, _) = measure(1, options).expect("it runs");
    assert!(whole.messages > 0 && whole.rtt_p50_us > 0.0, "{whole:?}");
    assert!(whole.messages as f64 * whole.rtt_p50_us * 0.3 < whole.to_s * 1e6, "they do not overlap: {whole:?}");
}

#[test]
fn round_trips_are_measured_beside_bulk() {
    let options = Options {
        size: 64,
        connections: 1,
        bulk: 2,
        duration: Duration::from_millis(300),
        mode: Mode::Latency,
        ..OPTIONS
    };
    let (whole, _) = measure(1, options).expect("it runs");
    assert!(whole.messages > 0 && whole.rtt_p50_us > 0.0, "{whole:?}");
    assert!(whole.rtt_p50_us <= whole.rtt_p99_us && whole.rtt_p99_us <= whole.rtt_p999_us, "{whole:?}");
    let trips = whole.messages as f64 * 64.0 * 8.0 / whole.to_s / 1e9;
    assert!(whole.goodput_gbps > 10.0 * trips, "the wire was full meanwhile: {whole:?}");
}

#[test]
fn options_out_of_range_are_named() {
    for (options, word) in [
        (Options { size: 0, ..OPTIONS }, "1 byte to 1 GiB"),
        (Options { connections: 0, ..OPTIONS }, "1 to 256"),
        (Options { depth: 0, ..OPTIONS }, "1 to 1024"),
        (Options { bulk: 1, ..OPTIONS }, "beside round trips only"),
        (Options { duration: Duration::ZERO, ..OPTIONS }, "at least a second"),
    ] {
        let said = measure(1, options).expect_err("out of range").to_string();
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn both_directions_at_a_time_carry_about_as_much() {
    let (whole, _) = measure(2, Options { mode: Mode::Bidirectional, ..OPTIONS }).expect("it runs");
    assert!(whole.back_gbps > whole.goodput_gbps / 4.0 && whole.goodput_gbps > whole.back_gbps / 4.0, "{whole:?}");
}

#[test]
fn verified_messages_are_counted_and_end_the_run() {
    let options = Options {
        mode: Mode::Verify,
        connections: 1,
        messages: Some(100),
        duration: Duration::from_secs(60),
        interval: Duration::from_millis(1),
        ..OPTIONS
    };
    let (whole, intervals) = measure(2, options).expect("every digest agrees");
    assert_eq!(whole.messages, 100);
    // Ten megabytes and their digests take more than a millisecond on every machine.
    assert!(!intervals.is_empty() && whole.to_s < 60.0);
}
