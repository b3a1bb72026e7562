//! The peers of a process: their places, and by what they are found.

use super::super::message::Id;
use super::super::record::Record;
use super::local::LocalMap;
use super::state::{Peer, PeerConnection};
use super::{DEPARTED_BYTES_MAX, DEPARTED_MAX};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddrV6;
use std::ops::{Index, IndexMut};
use strandway_udp::Connection;

/// All peers. A peer's place is the index of [`Peers`]; it stays until the peer has departed.
#[derive(Default)]
pub(super) struct Peers {
    all: Vec<Peer>,
    by_id: HashMap<Id, usize>,
    by_connection: LocalMap<Connection, usize>,
    by_address: HashMap<SocketAddrV6, usize>,
    /// Accepted connections whose peer has not said its name yet.
    strangers: HashSet<Connection>,
    /// Peers that have left and are in no group here, the oldest first; and the free places of such peers.
    departed: VecDeque<usize>,
    vacant: Vec<usize>,
}

impl Peers {
    /// The number of places.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.all.iter()
    }

    /// Gives a peer a place.
    pub(super) fn add(&mut self, record: Record) -> usize {
        let (id, peer) = (record.id, self.vacant.pop().unwrap_or(self.all.len()));
        self.note_addresses(&record, peer);
        let one = Peer::new(record, PeerConnection::Expected);
        match self.all.get_mut(peer) {
            Some(place) => *place = one,
            None => self.all.push(one),
        }
        self.by_id.insert(id, peer);
        peer
    }

    /// A peer connected before its record was known; here it is.
    pub(super) fn complete(&mut self, peer: usize, record: Record) {
        self.note_addresses(&record, peer);
        self.all[peer].record = record;
    }

    fn note_addresses(&mut self, record: &Record, peer: usize) {
        self.by_address.extend(record.addresses.iter().map(|address| (plain(address), peer)));
    }

    /// The peer of this name.
    pub(super) fn named(&self, id: &Id) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The peer at this address.
    pub(super) fn at(&self, address: &SocketAddrV6) -> Option<usize> {
        self.by_address.get(&plain(address)).copied()
    }

    /// The peer of this connection.
    pub(super) fn of(&self, connection: Connection) -> Option<usize> {
        self.by_connection.get(&connection).copied()
    }

    /// A connection is this peer's.
    pub(super) fn connect(&mut self, connection: Connection, peer: usize) {
        self.by_connection.insert(connection, peer);
    }

    /// A connection was accepted; its peer has not said its name yet.
    pub(super) fn accept(&mut self, connection: Connection) {
        self.strangers.insert(connection);
    }

    /// Takes a connection from those whose peer has not said its name. False if it was none of them.
    pub(super) fn introduce(&mut self, connection: Connection) -> bool {
        self.strangers.remove(&connection)
    }

    /// A connection has ended. Returns its peer.
    pub(super) fn disconnect(&mut self, connection: Connection) -> Option<usize> {
        self.strangers.remove(&connection);
        self.by_connection.remove(&connection)
    }

    /// A peer has left before a group here had it. Its messages are kept for that group, within limits, because a
    /// process that has the key may come and leave as often as it likes. Returns those of whom nothing is to be kept:
    /// their places are free now.
    pub(super) fn depart(&mut self, peer: usize) -> HashSet<usize> {
        self.departed.push_back(peer);
        // Peers that a group here has named since then are members like others.
        let all = &mut self.all;
        self.departed.retain(|peer| all[*peer].record.addresses.is_empty());
        let mut left = self.departed.iter().map(|peer| all[*peer].early).sum::<usize>();
        let mut gone = HashSet::new();
        while self.departed.len() > DEPARTED_MAX || left > DEPARTED_BYTES_MAX {
            let Some(oldest) = self.departed.pop_front() else { break };
            left -= std::mem::take(&mut all[oldest].early);
            self.by_id.remove(&all[oldest].record.id);
            self.vacant.push(oldest);
            gone.insert(oldest);
        }
        gone
    }
}

impl Index<usize> for Peers {
    type Output = Peer;

    fn index(&self, peer: usize) -> &Peer {
        &self.all[peer]
    }
}

impl IndexMut<usize> for Peers {
    fn index_mut(&mut self, peer: usize) -> &mut Peer {
        &mut self.all[peer]
    }
}

/// An address without its scope, which the kernel writes as it likes.
fn plain(address: &SocketAddrV6) -> SocketAddrV6 {
    SocketAddrV6::new(*address.ip(), address.port(), 0, 0)
}
