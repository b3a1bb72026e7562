//! The scheme between two nodes on real sockets, with a wire between them that loses datagrams.

use crate::courier::{Courier, End};
use crate::{BYTES, LOSS, ROUND_TRIP, profile};
use std::net::{SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::time::{Duration, Instant};
use strandway_proto::partial::Progress;
use strandway_proto::{ControlMessage, Rate, Time};
use strandway_udp::impair::{Impairment, Wire};
use strandway_udp::{Completion, Config, Connection, Error, Node, Region};

/// A node, its only connection, and the memory of the message.
struct Here {
    node: Node,
    connection: Connection,
    region: Region,
}

impl End for Here {
    fn expect(&mut self) -> u64 {
        self.node.expect(self.connection, self.region, 0..BYTES).expect("a slot")
    }
    fn begin(&mut self) -> Option<u64> {
        let stream = self.node.begin_stream(self.connection, self.region, 0..BYTES, 42).ok()?;
        self.node.push_stream(self.connection, stream, 0..u32::MAX, false).ok()?;
        Some(stream)
    }
    fn again(&mut self, stream: u64, chunks: Range<u32>) {
        self.node.push_stream(self.connection, stream, chunks, true).expect("it is open");
    }
    fn end(&mut self, stream: u64) {
        self.node.end_stream(self.connection, stream).expect("it is open");
    }
    fn progress(&self, receive: u64) -> &Progress {
        self.node.progress(self.connection, receive).expect("it is open")
    }
    fn send(&mut self, control: ControlMessage) {
        self.node.send_control(self.connection, control).expect("it is connected");
    }
}

fn config() -> Result<Config, Error> {
    let mut config = Config::new(b"both sides share this key")?.plane("[::1]:0".parse().expect("an address"));
    config.profile = profile();
    config.rate = Rate::from_gbps(1);
    config.base_rtt = ROUND_TRIP;
    Ok(config)
}

/// Waits for the connection, then registers the memory.
fn here(mut node: Node, memory: Vec<u8>) -> Result<Here, Error> {
    let connection = match node.wait(Duration::from_secs(5))? {
        Some(Completion::Connected { connection } | Completion::Accepted { connection, .. }) => connection,
        other => panic!("no connection: {other:?}"),
    };
    let region = node.register(memory);
    Ok(Here { node, connection, region })
}

/// The receiver's loop: returns the bytes when the sender has closed the connection.
fn receive(node: Node) -> Result<Vec<u8>, Error> {
    let mut here = here(node, vec![0; BYTES])?;
    let (began, mut courier) = (Instant::now(), Courier::receiver(&mut here, ROUND_TRIP));
    loop {
        let now = Time(began.elapsed().as_nanos() as u64 * 1_000);
        if courier.look_at <= now {
            courier.handle_timeout(&mut here, now);
        }
        let pause = Duration::from_nanos(courier.look_at.since(now).0 / 1_000 + 1);
        if let Some(Completion::Closed { .. }) = here.node.wait(pause)? {
            return here.node.deregister(here.region);
        }
    }
}

/// One message over a wire that loses datagrams.
pub fn run() -> Result<(), Error> {
    let message: Vec<u8> = (0..BYTES as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let receiver = Node::bind(config()?)?;
    let delay = Duration::from_nanos(ROUND_TRIP.0 / 2_000);
    let wire = Wire::to(v6(receiver.addresses()?[0]), Impairment { loss: LOSS, delay, ..Impairment::default() }, 7)?;
    let thread = std::thread::spawn(move || receive(receiver));
    let mut node = Node::bind(config()?)?;
    node.connect(&[wire.front()])?;
    let mut here = here(node, message.clone())?;
    let (began, mut courier) = (Instant::now(), Courier::sender(ROUND_TRIP));
    while !courier.done && began.elapsed() < Duration::from_secs(20) {
        courier.send(&mut here);
        if let Some(Completion::Control { control, .. }) = here.node.wait(Duration::from_millis(1))? {
            courier.handle_control(&mut here, control);
        }
    }
    let took = began.elapsed();
    here.node.close(here.connection)?;
    // If that datagram is lost, the receiver gives the sender up after its `peer_timeout`.
    let got = thread.join().expect("the receiver goes on")?;
    assert!(courier.done && got == message, "the message did not get through");
    let lost = wire.counters().lost;
    println!("over sockets: {BYTES} bytes are there after {took:.1?}; {lost} datagrams were lost");
    Ok(())
}

fn v6(address: SocketAddr) -> SocketAddrV6 {
    strandway_udp::address::kept(address)
}
