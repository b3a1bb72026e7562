//! A relay between a client and a server that loses, delays and doubles datagrams of UDP, in both directions: a bad wire
//! for tests on hosts without netem.
//!
//! ```text
//! cargo run --release -p strandway-udp --example lossy_relay -- 127.0.0.1:9500 127.0.0.1:4793 0.01 0.05 0.01 1
//!          address for the client, address of the server, chances of loss, of delay, of doubling, seed
//! ```
//!
//! Delays are up to 2 ms, so that delayed datagrams are overtaken. The client is whoever sent last to the first address;
//! the server sees the relay's second socket. Runs until it is killed.

use std::error::Error;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};

/// The longest delay in microseconds.
const DELAY_MAX_US: u32 = 2_000;
/// Datagrams that are held at a time; further ones are not delayed.
const HELD_MAX: usize = 4_096;
/// Datagrams of one direction that are taken in a row.
const BATCH: usize = 64;
/// Chances are drawn in millionths.
const MILLION: u32 = 1_000_000;

/// A datagram that is held until a time: the side that it leaves by, and its bytes.
type Held = (Instant, usize, Vec<u8>);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [ours, server, loss, delay, double, seed] = &arguments[..] else {
        return Err("usage: lossy_relay OURS SERVER LOSS DELAY DOUBLE SEED, such as 127.0.0.1:9500 127.0.0.1:4793 \
                    0.01 0.05 0.01 1"
            .into());
    };
    let chance = |text: &String| -> Result<u32, String> {
        let value: f64 = text.parse().map_err(|_| format!("{text}: write a chance between 0 and 1, such as 0.01"))?;
        Ok((value.clamp(0.0, 1.0) * f64::from(MILLION)) as u32)
    };
    let server: SocketAddr = server.parse()?;
    let any: SocketAddr = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse()?;
    let sides = [UdpSocket::bind(ours)?, UdpSocket::bind(any)?];
    for side in &sides {
        side.set_nonblocking(true)?;
    }
    let (loss, delay, double) = (chance(loss)?, chance(delay)?, chance(double)?);
    let mut random = Random::new(seed.parse()?, StreamKind::Connection, 0);
    let (mut client, mut held, mut buffer) = (None, Vec::<Held>::new(), vec![0; 65_536]);
    loop {
        let mut moved = false;
        for from in [0, 1] {
            for _ in 0..BATCH {
                let Some((length, sender)) = receive(&sides[from], &mut buffer)? else { break };
                moved = true;
                if from == 0 {
                    client = Some(sender);
                }
                if random.below(MILLION) < loss {
                    continue;
                }
                let copies = 1 + usize::from(random.below(MILLION) < double);
                for copy in 0..copies {
                    let is_late = copy > 0 || random.below(MILLION) < delay;
                    if is_late && held.len() < HELD_MAX {
                        let wait = Duration::from_micros(random.below(DELAY_MAX_US).into());
                        held.push((Instant::now() + wait, 1 - from, buffer[..length].to_vec()));
                    } else {
                        forward(&sides, 1 - from, client, server, &buffer[..length]);
                    }
                }
            }
        }
        let now = Instant::now();
        for index in (0..held.len()).rev() {
            if held[index].0 <= now {
                let (_, side, bytes) = held.swap_remove(index);
                forward(&sides, side, client, server, &bytes);
            }
        }
        if !moved {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// A datagram and its sender, if there is one.
fn receive(side: &UdpSocket, buffer: &mut [u8]) -> Result<Option<(usize, SocketAddr)>, std::io::Error> {
    match side.recv_from(buffer) {
        Ok(got) => Ok(Some(got)),
        // Refused: the answer to an earlier datagram.
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends to the client by side 0, to the server by side 1. Datagrams for which the socket has no room are lost.
fn forward(sides: &[UdpSocket; 2], side: usize, client: Option<SocketAddr>, server: SocketAddr, bytes: &[u8]) {
    let to = if side == 0 { client } else { Some(server) };
    if let Some(to) = to {
        let _ = sides[side].send_to(bytes, to);
    }
}
