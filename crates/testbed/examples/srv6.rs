//! SRv6 between two hosts of a fabric, each from its node file: the destination address of every packet is its path.
//!
//! ```text
//! cargo build --release -p strandway-testbed --example srv6
//! strandway fabric up scenarios/wire/two_planes.toml
//! strandway fabric exec h2 -- target/release/examples/srv6 /run/strandway/sw/h2.toml &
//! strandway fabric exec h0 -- target/release/examples/srv6 /run/strandway/sw/h0.toml 2
//!          a node file; the number of the host to write to (without one, the program receives)
//! ```

use std::path::Path;
use std::time::{Duration, Instant};
use strandway_testbed::NodeFile;
use strandway_udp::{Completion, Node, RemoteRegion};

const MESSAGE: usize = 16 << 20;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let file = NodeFile::load(Path::new(&arguments.next().ok_or("which node file?")?)).map_err(|e| e.to_string())?;
    // Addresses, key, profile, rate, and how addresses encode paths.
    let mut node = Node::bind(file.config(None)?)?;
    match arguments.next() {
        None => serve(&mut node),
        Some(host) => write(&mut node, &file, host.parse()?),
    }
}

/// Receives one message from the first peer.
fn serve(node: &mut Node) -> Result<(), Failed> {
    let inbox = node.register(vec![0; MESSAGE]);
    let keys = node.register(vec![0; 16]);
    loop {
        match node.wait(Duration::from_secs(60))?.ok_or("nobody came")? {
            Completion::Accepted { connection, from } => {
                println!("a peer came from {from}");
                let remote = node.expose(connection, inbox, 0..MESSAGE)?;
                node.memory_mut(keys)?.copy_from_slice(&remote.to_bytes());
                node.send(connection, keys, 0..16)?;
            }
            Completion::Written { bytes, .. } => println!("{bytes} bytes are here"),
            Completion::Closed { reason, .. } => {
                println!("{reason}");
                return Ok(());
            }
            _ => {}
        }
    }
}

fn write(node: &mut Node, file: &NodeFile, host: u32) -> Result<(), Failed> {
    let addresses = file.peer(host).ok_or("the node file's address plan has no such host")?;
    let peer = node.connect(&addresses)?;
    let keys = node.register(vec![0; 16]);
    let outbox = node.register(vec![7; MESSAGE]);
    let mut began = Instant::now();
    loop {
        match node.wait(Duration::from_secs(60))?.ok_or("nothing happens")? {
            Completion::Connected { .. } => drop(node.recv(peer, keys, 0..16)?),
            Completion::Received { .. } => {
                let remote = RemoteRegion::from_bytes(node.memory(keys)?.try_into()?);
                began = Instant::now();
                node.write(peer, outbox, 0..MESSAGE, remote, 0, Some(1))?;
            }
            Completion::Sent { .. } => break,
            other => return Err(format!("{other:?}").into()),
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let counters = node.observe().connection_counters(peer)?;
    println!("{:.3} Gb/s; bytes per plane {:?}", MESSAGE as f64 * 8.0 / seconds / 1e9, counters.sent_bytes);
    println!("sent again: {} packets", counters.engine.retransmitted);
    Ok(())
}
