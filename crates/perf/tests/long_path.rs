//! Paths whose window exceeds a socket's buffer: data leaves at the rate of the path, not in one burst per window.

use super::support::{local, v6};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandway_perf as perf;
use strandway_perf::{Mode, Options};
use strandway_proto::{Rate, Span};
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Config, Node};

/// 25 ms one way; 1 Gb/s carries 6 MB in a round trip, three times the bytes that the receiving socket may hold.
#[test]
fn a_long_path_carries_what_is_wanted_and_its_receiver_loses_little() {
    let gbps = std::env::var("GBPS").map_or(1, |text| text.parse().expect("a number"));
    let mut config = Config::new(&[7; 32]).expect("long enough");
    config.planes = vec![local()];
    config.payload = 4_096;
    config.rate = Rate::from_gbps(gbps);
    config.base_rtt = Span::from_ms(51);
    config.retransmit_min = Span::from_ms(200);
    let mut server = Node::bind(config.clone()).expect("sockets");
    let impairment = Impairment { delay: Duration::from_millis(25), ..Impairment::default() };
    let wire = Wire::to(v6(server.addresses().expect("bound")[0]), impairment, 1).expect("sockets");
    let mut client = Node::bind(config).expect("sockets");
    let options = Options {
        size: 8 << 20,
        connections: 1,
        duration: Duration::from_secs(3),
        depth: 4,
        bulk: 0,
        mode: Mode::Bandwidth,
        interval: Duration::from_millis(500),
        messages: None,
    };
    let stop = AtomicBool::new(false);
    let mut lines = Vec::new();
    let whole = std::thread::scope(|scope| {
        scope.spawn(|| perf::serve(&mut server, || stop.load(Ordering::Relaxed), |_| {}).expect("it serves"));
        let whole = perf::run(&mut client, &[wire.front()], &options, || false, |line| lines.push(line.clone()));
        stop.store(true, Ordering::Relaxed);
        whole.expect("it runs")
    });
    let each: Vec<_> = lines.iter().map(|line| format!("{:.2}", line.goodput_gbps)).collect();
    let sent = (whole.plane_gbps.iter().sum::<f64>() * whole.to_s * 1e9 / 8.0 / 4_096.0) as u64;
    let again = whole.retransmitted;
    println!(
        "{gbps} Gb/s wanted: {:.3} Gb/s ({}), {again} of {sent} packets again",
        whole.goodput_gbps,
        each.join(" ")
    );
    // A busy machine carries less. A rate limited by the socket's buffer would be a third.
    assert!(whole.goodput_gbps > 0.0 && again * 5 < sent, "{lines:?}");
}
