//! The measurement itself: what it reports is what happened.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_udp::Node;
use strandway_udp::perf::{self, Mode, Options, PerfError, Stretch};
use support::{config, v6};

fn measure(planes: usize, options: Options) -> Result<(Stretch, u32), PerfError> {
    let mut server = Node::bind(config("uec", planes)).expect("sockets");
    let addresses: Vec<_> = server.addresses().expect("bound").into_iter().map(v6).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| perf::serve(&mut server, || stop.load(Ordering::Relaxed), |_| {}).expect("it serves"));
        let mut client = Node::bind(config("uec", planes)).expect("sockets");
        let mut seconds = 0;
        let result = perf::run(&mut client, &addresses, &options, || false, |_| seconds += 1);
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
};

#[test]
fn bandwidth_counts_what_arrived_and_names_the_planes_that_carried_it() {
    let (whole, seconds) = measure(2, OPTIONS).expect("it runs");
    assert_eq!(seconds, 1, "one second passed whole");
    assert!(whole.messages > 0 && whole.goodput_gbps > 0.0, "{whole:?}");
    let bits = whole.messages as f64 * 100_000.0 * 8.0 / 1e9;
    assert!((whole.goodput_gbps * whole.to_s - bits).abs() < 0.05 * bits, "{whole:?}");
    assert_eq!(whole.plane_gbps.len(), 2);
    assert!(whole.plane_gbps.iter().all(|&rate| rate > 0.0), "{whole:?}");
    assert!(whole.plane_gbps.iter().sum::<f64>() >= whole.goodput_gbps * 0.95, "{whole:?}");
    assert!(whole.rtt_p50_us > 0.0 && whole.rtt_p50_us <= whole.rtt_p99_us, "{whole:?}");
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
fn options_out_of_range_are_named() {
    for (options, word) in [
        (Options { size: 0, ..OPTIONS }, "1 byte to 1 GiB"),
        (Options { connections: 0, ..OPTIONS }, "1 to 256"),
        (Options { depth: 0, ..OPTIONS }, "1 to 1024"),
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
    // Ten megabytes and their digests take more than a millisecond on any machine.
    assert!(intervals >= 1 && whole.to_s < 60.0);
}
