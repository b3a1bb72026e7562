//! One host on several threads: connections are spread over nodes that share nothing.

use crate::asynchronous::{Accepting, AsyncError, AsyncNode, Connecting, Peer};
use crate::config::Config;
use crate::error::Error;
use std::future::Future;
use std::net::SocketAddrV6;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// The addresses of shard `shard` of a host whose first shard has these addresses, one per plane. Each shard has the ports
/// after those of the shard before: port + `shard` * planes. Port 0, any free one, stays.
///
/// # Errors
/// If a port would be greater than 65,535.
pub fn shard_addresses(first: &[SocketAddrV6], shard: usize) -> Result<Vec<SocketAddrV6>, Error> {
    let further = shard * first.len();
    let shift = |address: &SocketAddrV6| {
        let mut address = *address;
        if address.port() != 0 {
            let port = u16::try_from(usize::from(address.port()) + further).map_err(|_| {
                Error::Config(format!(
                    "shard {shard} of {address} needs a port higher by {further}, beyond 65535: begin with a lower port"
                ))
            })?;
            address.set_port(port);
        }
        Ok(address)
    };
    first.iter().map(shift).collect()
}

/// Several [`AsyncNode`]s as one; each has a thread, sockets, memory and connections of its own.
///
/// A connection belongs to one shard for its life. Its operations use memory of that shard: register it with
/// [`Peer::register`] or with [`Peer::node`], never with another peer's. The address that a peer connects to determines the
/// shard: shard `k` has the configured addresses, with ports higher by `k` times the number of planes ([`shard_addresses`]).
#[derive(Clone)]
pub struct Shards {
    nodes: Arc<[AsyncNode]>,
    /// Connections that we have begun so far; the next one goes to the next shard.
    begun: Arc<AtomicUsize>,
}

impl Shards {
    /// Opens `shards` nodes. [`Config::connections_max`] and all other settings hold for each of them.
    ///
    /// # Errors
    /// As for [`AsyncNode::spawn`]; also if there are no shards, or no ports left for them.
    pub fn spawn(config: &Config, shards: usize) -> Result<Shards, Error> {
        if shards == 0 {
            return Err(Error::Config("no shards: take at least one".into()));
        }
        let spawn = |shard| {
            let planes = shard_addresses(&config.planes, shard)?;
            AsyncNode::spawn(Config { planes, ..config.clone() })
        };
        let nodes: Result<Vec<AsyncNode>, Error> = (0..shards).map(spawn).collect();
        Ok(Shards { nodes: nodes?.into(), begun: Arc::default() })
    }

    /// The shards, in order.
    pub fn nodes(&self) -> &[AsyncNode] {
        &self.nodes
    }

    /// Connects to a host that has `shards` shards, of which the first has these addresses, one for each plane. Successive
    /// connections go to successive shards, both ours and theirs.
    ///
    /// # Errors
    /// If the host has no shards, or one of them would have a port above 65,535. The future's errors: as for
    /// [`AsyncNode::connect`].
    pub fn connect(&self, peer: &[SocketAddrV6], shards: usize) -> Result<Connecting, Error> {
        if shards == 0 {
            return Err(Error::Config(
                "a peer without shards: give the number of its shards, 1 for a plain node".into(),
            ));
        }
        let turn = self.begun.fetch_add(1, Ordering::Relaxed);
        let peer = shard_addresses(peer, turn % shards)?;
        Ok(self.nodes[turn % self.nodes.len()].connect(&peer))
    }

    /// The next connection that a peer begins with any shard; [`Peer::node`] is the shard.
    ///
    /// Errors: [`AsyncError::Stopped`] once all shards have stopped.
    pub fn accept(&self) -> AcceptingAny {
        AcceptingAny { accepting: self.nodes.iter().map(AsyncNode::accept).collect(), first: 0 }
    }
}

/// Waits for a peer to connect to any shard.
#[must_use = "futures do nothing unless they are awaited"]
pub struct AcceptingAny {
    accepting: Vec<Accepting>,
    /// The shard that is asked first, another one each time.
    first: usize,
}

impl Future for AcceptingAny {
    type Output = Result<Peer, AsyncError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let count = self.accepting.len();
        self.first += 1;
        let mut stopped = 0;
        for i in 0..count {
            let index = (self.first + i) % count;
            match Pin::new(&mut self.accepting[index]).poll(context) {
                Poll::Ready(Ok(peer)) => return Poll::Ready(Ok(peer)),
                Poll::Ready(Err(_)) => stopped += 1,
                Poll::Pending => {}
            }
        }
        if stopped == count { Poll::Ready(Err(AsyncError::Stopped)) } else { Poll::Pending }
    }
}
