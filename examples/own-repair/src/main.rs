//! Your own reliability scheme on top of partial completion (SDR-RDMA): all of it is in `courier.rs`. It runs in both
//! worlds, between two endpoints without sockets (`simulated.rs`) and between two nodes over loopback (`nodes.rs`), on
//! wires that lose one packet in twenty.

mod courier;
mod nodes;
mod simulated;

use strandway_proto::parameter::Value;
use strandway_proto::reliability::ReliabilityConfig;
use strandway_proto::{Profile, Span};

/// Bytes of the message.
const BYTES: usize = 3_000_000;
const ROUND_TRIP: Span = Span::from_ms(10);
/// Share of packets that the wires lose, in both directions.
const LOSS: f64 = 0.05;

/// Partial completion with eight packets to a chunk, at a fixed rate.
fn profile() -> Profile {
    let mut reliability = ReliabilityConfig::named("partial").expect("a name");
    reliability.parameters().set("chunk", Value::Count(8)).expect("a parameter");
    Profile { reliability, ..Profile::preset("sdr_sr").expect("a preset") }
}

fn main() -> Result<(), strandway_udp::Error> {
    simulated::run();
    nodes::run()
}
