//! Two nodes in one process, on loopback: moves bytes for a few seconds and prints the rate and the counters.
//!
//! ```text
//! cargo run --release -p strandway-udp --example transfer -- uec 4096 1 3 encrypted
//!          profile, payload, planes, seconds, protection: encrypted, authenticated or none
//! ```

use std::net::SocketAddrV6;
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Config, Node, Protection, RemoteRegion};

const MESSAGE: usize = 1 << 20;
const UNDER_WAY: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let profile = arguments.next().unwrap_or("uec".into());
    let payload: u32 = arguments.next().unwrap_or("4096".into()).parse()?;
    let planes: usize = arguments.next().unwrap_or("1".into()).parse()?;
    let seconds: u64 = arguments.next().unwrap_or("3".into()).parse()?;
    let protection = match arguments.next().as_deref() {
        Some("none") => Protection::None,
        Some("authenticated") => Protection::Authenticated,
        _ => Protection::Encrypted,
    };
    let config = || -> Result<Config, Box<dyn std::error::Error>> {
        let mut config = Config::new(&[7; 32])?.profile(&profile)?;
        config.payload = payload;
        config.protection = protection;
        config.planes = vec!["[::1]:0".parse::<SocketAddrV6>()?; planes];
        Ok(config)
    };
    let mut server = Node::bind(config()?)?;
    let mut client = Node::bind(config()?)?;
    let addresses: Vec<SocketAddrV6> =
        server.addresses()?.iter().map(|a| a.to_string().parse()).collect::<Result<_, _>>()?;

    // A connecting client may write into one buffer, and gets its key at once. Runs until the client closes the
    // connection.
    let serving = std::thread::spawn(move || -> Result<(), strandway_udp::Error> {
        let inbox = server.register(vec![0; MESSAGE]);
        let keys = server.register(vec![0; 16]);
        while let Some(completion) = server.wait(Duration::from_secs(10))? {
            match completion {
                Completion::Accepted { connection, .. } => {
                    let remote = server.expose(connection, inbox, 0..MESSAGE)?;
                    server.memory_mut(keys)?.copy_from_slice(&remote.to_bytes());
                    server.send(connection, keys, 0..16)?;
                }
                Completion::Closed { .. } => break,
                _ => {}
            }
        }
        Ok(())
    });

    let connection = client.connect(&addresses)?;
    let keys = client.register(vec![0; 16]);
    let outbox = client.register(vec![7; MESSAGE]);
    let mut remote = None;
    let mut began = Instant::now();
    let mut done = 0_u64;
    while began.elapsed() < Duration::from_secs(seconds) {
        match client.wait(Duration::from_secs(5))?.ok_or("nothing happens")? {
            Completion::Connected { .. } => drop(client.recv(connection, keys, 0..16)?),
            Completion::Received { .. } => {
                let key = RemoteRegion::from_bytes(client.memory(keys)?.try_into()?);
                for _ in 0..UNDER_WAY {
                    client.write(connection, outbox, 0..MESSAGE, key, 0, None)?;
                }
                remote = Some(key);
                began = Instant::now();
            }
            Completion::Sent { .. } => {
                done += MESSAGE as u64;
                if let Some(key) = remote {
                    client.write(connection, outbox, 0..MESSAGE, key, 0, None)?;
                }
            }
            other => return Err(format!("{other:?}").into()),
        }
    }
    let gigabits = done as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
    let counters = client.observe().connection_counters(connection)?;
    println!("{gigabits:.2} Gb/s of payload with {profile}, {planes} plane(s), packets of {payload} bytes");
    println!("{:#?}", counters);
    println!("{:#?}", client.observe().plane_counters());
    drop(client);
    serving.join().map_err(|_| "the server panicked")??;
    Ok(())
}
