//! Reads beside writes, between two nodes on loopback: rates of messages of 1 MiB, and times of 64 bytes. The two take
//! turns, so that other work of the machine meets both.
//!
//! ```text
//! cargo run --release -p strandway-udp --example reads -- uec 4096 1 5 encrypted
//!          profile, payload, planes, rounds, protection: encrypted, authenticated or none
//! ```

use std::error::Error;
use std::net::SocketAddrV6;
use std::time::{Duration, Instant};
use strandway_udp::address::kept;
use strandway_udp::{Completion, Config, Connection, Node, Operation, Protection, Region, RemoteRegion, Rights};

const LARGE: usize = 1 << 20;
const SMALL: usize = 64;
/// Large messages under way.
const UNDER_WAY: usize = 8;
/// How long the large messages of a round take.
const STRETCH: Duration = Duration::from_millis(700);
/// Small messages of a round, one at a time.
const SMALLS: usize = 2_000;

#[derive(Clone, Copy)]
struct Link {
    connection: Connection,
    ours: Region,
    remote: RemoteRegion,
}

fn post(node: &mut Node, link: Link, reads: bool, bytes: usize) -> Result<Operation, strandway_udp::Error> {
    match reads {
        true => node.read(link.connection, link.ours, 0..bytes, link.remote, 0),
        false => node.write(link.connection, link.ours, 0..bytes, link.remote, 0, None),
    }
}

/// Waits until an operation has ended.
fn end(node: &mut Node) -> Result<(), Box<dyn Error>> {
    match node.wait(Duration::from_secs(5))?.ok_or("nothing happens")? {
        Completion::Sent { .. } | Completion::Read { .. } => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Gb/s of large messages.
fn rate(node: &mut Node, link: Link, reads: bool) -> Result<f64, Box<dyn Error>> {
    let began = Instant::now();
    let (mut posted, mut ended) = (0, 0);
    while began.elapsed() < STRETCH || ended < posted {
        while posted - ended < UNDER_WAY && began.elapsed() < STRETCH {
            post(node, link, reads, LARGE)?;
            posted += 1;
        }
        if ended < posted {
            end(node)?;
            ended += 1;
        }
    }
    Ok((ended * LARGE * 8) as f64 / began.elapsed().as_secs_f64() / 1e9)
}

/// The median time of a small message, in microseconds.
fn time(node: &mut Node, link: Link, reads: bool) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::with_capacity(SMALLS);
    for _ in 0..SMALLS {
        let began = Instant::now();
        post(node, link, reads, SMALL)?;
        end(node)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[SMALLS / 2].as_secs_f64() * 1e6)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let profile = arguments.next().unwrap_or("uec".into());
    let payload: u32 = arguments.next().unwrap_or("4096".into()).parse()?;
    let planes: usize = arguments.next().unwrap_or("1".into()).parse()?;
    let rounds: usize = arguments.next().unwrap_or("5".into()).parse()?;
    let protection = match arguments.next().as_deref() {
        Some("none") => Protection::None,
        Some("authenticated") => Protection::Authenticated,
        _ => Protection::Encrypted,
    };
    let config = || -> Result<Config, Box<dyn Error>> {
        let mut config = Config::new(&[7; 32])?.profile(&profile)?;
        (config.payload, config.protection) = (payload, protection);
        config.planes = vec!["[::1]:0".parse::<SocketAddrV6>()?; planes];
        Ok(config)
    };
    let (mut server, mut client) = (Node::bind(config()?)?, Node::bind(config()?)?);
    let addresses: Vec<SocketAddrV6> = server.addresses()?.into_iter().map(kept).collect();
    let region = server.register(vec![5; LARGE]);
    let remote = server.expose_to_all(region, 0..LARGE, Rights::READ | Rights::WRITE)?;
    let serving = std::thread::spawn(move || -> Result<(), strandway_udp::Error> {
        // Reads and writes are no news here.
        while !matches!(server.wait(Duration::from_secs(1))?, Some(Completion::Closed { .. })) {}
        Ok(())
    });
    let connection = client.connect(&addresses)?;
    while !matches!(client.wait(Duration::from_secs(5))?, Some(Completion::Connected { .. })) {}
    let link = Link { connection, ours: client.register(vec![7; LARGE]), remote };
    rate(&mut client, link, false)?;
    let mut ratios = Vec::new();
    println!("round  write Gb/s  read Gb/s  ratio  64 B write us  64 B read us  ratio");
    for round in 0..rounds {
        // Reads and writes take turns at the beginning of a round.
        let [first, second] = [round % 2 == 1, round % 2 == 0];
        let (a, b) = (rate(&mut client, link, first)?, rate(&mut client, link, second)?);
        let (writes, reads) = if first { (b, a) } else { (a, b) };
        let (a, b) = (time(&mut client, link, first)?, time(&mut client, link, second)?);
        let (write, read) = if first { (b, a) } else { (a, b) };
        ratios.push((reads / writes, read / write));
        println!(
            "{round:5} {writes:11.2} {reads:10.2} {:6.2} {write:14.1} {read:13.1} {:6.2}",
            reads / writes,
            read / write
        );
    }
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = ratios.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!(
        "medians: reads at {:.2} of the rate of writes, 64 B in {:.2} of the time",
        median(|r| r.0),
        median(|r| r.1)
    );
    drop(client);
    serving.join().map_err(|_| "the server panicked")??;
    Ok(())
}
