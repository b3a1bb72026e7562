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

/// Where shard `shard` of a host is whose first shard has these addresses, one per plane: as many ports further on as the
/// shards before it have planes. Port 0, any free one, stays.
///
/// # Errors
/// If that is beyond the last port.
pub fn shard_addresses(first: &[SocketAddrV6], shard: usize) -> Result<Vec<SocketAddrV6>, Error> {
    let further = shard * first.len();
    let shift = |address: &SocketAddrV6| {
        let mut address = *address;
        if address.port() != 0 {
            let port = u16::try_from(usize::from(address.port()) + further).map_err(|_| {
                Error::Config(format!(
                    "shard {shard} of {address} is {further} ports further on: there is no such port"
                ))
            })?;
            address.set_port(port);
        }
        Ok(address)
    };
    first.iter().map(shift).collect()
}

/// Several [`AsyncNode`]s as one: a thread, sockets, memory and connections each.
///
/// A connection belongs to one shard for its life. Its operations use memory of that shard: register it with
/// [`Peer::register`], or with [`Peer::node`], never with another peer's. Which shard of a host a peer reaches is a matter of
/// where it connects to: shard `k` has the configured addresses, `k` times the number of planes further on
/// ([`shard_addresses`]).
#[derive(Clone)]
pub struct Shards {
    nodes: Arc<[AsyncNode]>,
    /// Connections that we have begun so far.
    begun: Arc<AtomicUsize>,
}

impl Shards {
    /// Opens `shards` nodes. [`Config::connections_max`] and all else hold for each of them.
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

    /// Connects to a host that has `shards` shards, of which the first has these addresses, one for each plane. Connections are
    /// dealt out in turn, over our shards and over theirs.
    ///
    /// # Errors
    /// If the host has no shards, or one of them would be beyond the last port. The future's errors: as for
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

    /// The next connection that a peer begins, with any shard; which one, [`Peer::node`] says.
    ///
    /// Errors: [`AsyncError::Stopped`] once all shards have.
    pub fn accept(&self) -> AcceptingAny {
        AcceptingAny { accepting: self.nodes.iter().map(AsyncNode::accept).collect(), first: 0 }
    }
}

/// Waits for a peer to connect to any shard.
#[must_use = "futures do nothing unless they are awaited"]
pub struct AcceptingAny {
    accepting: Vec<Accepting>,
    /// Who is asked first, so that everybody has a turn.
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
