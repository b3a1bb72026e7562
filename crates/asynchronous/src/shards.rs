//! One host on several threads: connections are spread over nodes that share nothing.

use crate::{Accepting, AsyncError, AsyncNode, Connecting, Peer};
use std::future::Future;
use std::net::SocketAddrV6;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use strandway_udp::{Config, Error, Node};

/// Several [`AsyncNode`]s as one; each has a thread, sockets, memory and connections of its own. They share the
/// configured addresses ([`Node::bind_shards`]), so a peer needs one address per plane.
///
/// A connection belongs to one shard for its life. Its operations use memory of that shard: register it with
/// [`Peer::register`] or with [`Peer::node`], never with another peer's.
#[derive(Clone)]
pub struct Shards {
    nodes: Arc<[AsyncNode]>,
    /// Connections that we have begun so far; the next one goes to the next shard.
    begun: Arc<AtomicUsize>,
}

impl Shards {
    /// Opens `shards` nodes. [`strandway_udp::Limits::connections`] and all other settings hold for each of them.
    ///
    /// # Errors
    /// As for [`Node::bind_shards`] and [`AsyncNode::spawn`].
    pub fn spawn(config: &Config, shards: usize) -> Result<Shards, Error> {
        let nodes: Result<Vec<AsyncNode>, Error> =
            Node::bind_shards(config, shards)?.into_iter().map(AsyncNode::drive).collect();
        Ok(Shards { nodes: nodes?.into(), begun: Arc::default() })
    }

    /// The shards, in order.
    pub fn nodes(&self) -> &[AsyncNode] {
        &self.nodes
    }

    /// Connects to a host: its address on each plane, in the order of ours. Successive connections go to successive
    /// shards, both ours and theirs.
    ///
    /// Errors: as for [`AsyncNode::connect`].
    pub fn connect(&self, peer: &[SocketAddrV6]) -> Connecting {
        let turn = self.begun.fetch_add(1, Ordering::Relaxed);
        self.nodes[turn % self.nodes.len()].connect_to(peer, Some(turn as u8))
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
