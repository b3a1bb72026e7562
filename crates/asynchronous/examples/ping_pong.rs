//! Async form: two nodes on threads of their own, futures under an executor of ten lines; the same in blocking form
//! beside it. Prints the median round trip of 64 bytes, written there and back.
//!
//! ```text
//! cargo run --release -p strandway-udp --example ping_pong -- 20000 adaptive
//!          round trips; while nothing arrives: adaptive, spin or sleep
//! ```

use std::future::Future;
use std::net::SocketAddrV6;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};
use strandway_asynchronous::{AsyncError, AsyncNode, Peer};
use strandway_udp::address::kept;
use strandway_udp::{Completion, Config, Error, Node, RemoteRegion, Waiting};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Any executor works; this one parks its thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().unwrap_or("20000".into()).parse()?;
    let waiting = match arguments.next().as_deref() {
        Some("spin") => Waiting::Spin,
        Some("sleep") => Waiting::Sleep,
        _ => Config::new(&[7; 32])?.waiting,
    };
    let config = Config { waiting, planes: vec!["[::1]:0".parse()?], ..Config::new(&[7; 32])? };
    println!("async     median round trip {:.1} us", asynchronous(config.clone(), rounds)?);
    println!("blocking  median round trip {:.1} us", blocking(config, rounds)?);
    Ok(())
}

fn asynchronous(config: Config, rounds: usize) -> Result<f64, Failed> {
    let (server, client) = (AsyncNode::spawn(config.clone())?, AsyncNode::spawn(config)?);
    let address = kept(server.addresses()[0]);
    let serving = std::thread::spawn(move || {
        block_on(async {
            let peer = server.accept().await?;
            let remote = exchange(&peer, false).await?;
            let outbox = peer.register(vec![1; 64]).await?;
            for _ in 0..rounds {
                peer.written().await?;
                peer.write(outbox, 0..64, remote, 0, Some(0)).await?;
            }
            Ok::<(), AsyncError>(())
        })
    });
    let times = block_on(async {
        let peer = client.connect(&[address]).await?;
        let remote = exchange(&peer, true).await?;
        let outbox = peer.register(vec![1; 64]).await?;
        let mut times = Vec::new();
        for _ in 0..rounds {
            let began = Instant::now();
            peer.write(outbox, 0..64, remote, 0, Some(0)).await?;
            peer.written().await?;
            times.push(began.elapsed());
        }
        Ok::<_, AsyncError>(times)
    })?;
    serving.join().map_err(|_| "the server panicked")??;
    Ok(median(times))
}

/// Exposes 64 bytes to the peer and receives the key to the peer's. A send waits for its receive, so one side must
/// begin.
async fn exchange(peer: &Peer, begin: bool) -> Result<RemoteRegion, AsyncError> {
    let inbox = peer.register(vec![0; 64]).await?;
    let ours = peer.expose(inbox, 0..64).await?;
    let keys = peer.register(ours.to_bytes().to_vec()).await?;
    let theirs = peer.register(vec![0; 16]).await?;
    if begin {
        peer.send(keys, 0..16).await?;
    }
    peer.recv(theirs, 0..16).await?;
    if !begin {
        peer.send(keys, 0..16).await?;
    }
    Ok(RemoteRegion::from_bytes(peer.node().read(theirs, 0..16).await?.try_into().unwrap_or_default()))
}

fn blocking(config: Config, rounds: usize) -> Result<f64, Failed> {
    let (mut server, mut client) = (Node::bind(config.clone())?, Node::bind(config)?);
    let address = kept(server.addresses()?[0]);
    let serving = std::thread::spawn(move || drive(&mut server, None, rounds));
    let times = drive(&mut client, Some(address), rounds)?;
    drop(client);
    serving.join().map_err(|_| "the server panicked")??;
    Ok(median(times))
}

/// One side: with a server's address it is the client, which begins.
fn drive(node: &mut Node, server: Option<SocketAddrV6>, rounds: usize) -> Result<Vec<Duration>, Error> {
    let (inbox, keys, outbox) = (node.register(vec![0; 64]), node.register(vec![0; 32]), node.register(vec![1; 64]));
    if let Some(server) = server {
        node.connect(&[server])?;
    }
    let (mut remote, mut times, mut began) = (None, Vec::new(), Instant::now());
    while let Some(completion) = node.wait(Duration::from_secs(5))? {
        match completion {
            Completion::Connected { connection } | Completion::Accepted { connection, .. } => {
                let ours = node.expose(connection, inbox, 0..64)?;
                node.memory_mut(keys)?[..16].copy_from_slice(&ours.to_bytes());
                node.recv(connection, keys, 16..32)?;
                node.send(connection, keys, 0..16)?;
            }
            Completion::Received { connection, .. } => {
                let key = RemoteRegion::from_bytes(node.memory(keys)?[16..].try_into().unwrap_or_default());
                remote = Some(key);
                if server.is_some() {
                    began = Instant::now();
                    node.write(connection, outbox, 0..64, key, 0, Some(0))?;
                }
            }
            Completion::Written { connection, .. } => {
                times.push(began.elapsed());
                if server.is_some() && times.len() == rounds {
                    break;
                }
                began = Instant::now();
                if let Some(remote) = remote {
                    node.write(connection, outbox, 0..64, remote, 0, Some(0))?;
                }
            }
            Completion::Closed { .. } => break,
            _ => {}
        }
    }
    Ok(times)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}
