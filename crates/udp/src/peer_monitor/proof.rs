//! Codes that show that two connections lead to the same node: only the two ends of the older one can make them. Each
//! code is valid for one ping or pong of one connection, so repeating it elsewhere is useless.

use super::PeerMonitors;
use crate::cipher::{MacKey, expand, extract};
use crate::frame::PROOF;
use crate::handshake::Secrets;
use std::net::SocketAddrV6;

/// The most monitors at one address with which a proof is compared; ours. More than one are rare.
const COMPARED_MAX: usize = 8;

/// A key that only the two ends of a connection know.
pub(crate) fn key(secrets: &Secrets) -> MacKey {
    let secret = extract(b"strandway 1 same node", &[secrets.from_caller, secrets.to_caller].concat());
    MacKey::new(&expand(&secret, &[]))
}

/// The code in the ping or pong `number`, in a datagram that addresses its connection as `connection`.
fn proof(key: &MacKey, pong: bool, number: u64, connection: u64) -> [u8; PROOF] {
    key.code(&[&[u8::from(pong)], &number.to_be_bytes(), &connection.to_be_bytes()])
}

/// Do both keys belong to monitors of the same node?
pub(super) fn is_same(one: &MacKey, other: &MacKey) -> bool {
    proof(one, false, 0, 0) == proof(other, false, 0, 0)
}

impl PeerMonitors {
    /// The monitors for the addresses and the shard of a connection's own monitor, the oldest first.
    fn at(&self, monitor: u32, peers: &[Option<SocketAddrV6>]) -> &[u32] {
        let shard = self.get(monitor).map_or(0, |one| one.shard);
        let known = peers.iter().enumerate().find_map(|(plane, at)| at.map(|at| (plane, at, shard)));
        known.and_then(|place| self.by_address.get(&place)).map_or(&[][..], Vec::as_slice)
    }

    /// The proof for a ping of a connection that is alone in its monitor: it shows that the connection leads to the
    /// node of an older monitor, if there is one.
    pub(crate) fn offer(
        &self,
        monitor: u32,
        peers: &[Option<SocketAddrV6>],
        number: u64,
        remote: u64,
    ) -> Option<[u8; PROOF]> {
        let &first = self.at(monitor, peers).first()?;
        let older = self.get(first).filter(|one| first != monitor && self.is_alone(monitor) && one.fits(peers))?;
        Some(proof(&older.key, false, number, remote))
    }

    /// A ping for the connection that we call `local` and its peer `remote` carries a proof. Returns the proof for the
    /// pong, if it holds.
    pub(crate) fn recognise(
        &mut self,
        (monitor, member): (u32, u32),
        peers: &[Option<SocketAddrV6>],
        number: u64,
        given: &[u8; PROOF],
        (local, remote): (u64, u64),
    ) -> Option<[u8; PROOF]> {
        let others = self.at(monitor, peers).iter().take(COMPARED_MAX).copied();
        let is_same = |&other: &u32| {
            self.get(other).is_some_and(|one| one.fits(peers) && proof(&one.key, false, number, local) == *given)
        };
        let same = std::iter::once(monitor).chain(others).find(is_same)?;
        let answer = self.get(same).map(|one| proof(&one.key, true, number, remote));
        if same != monitor {
            self.joins.push((member, same));
        }
        answer
    }

    /// A pong for the connection that we call `local` carries a proof.
    pub(crate) fn handle_proof(
        &mut self,
        (monitor, member): (u32, u32),
        peers: &[Option<SocketAddrV6>],
        number: u64,
        given: &[u8; PROOF],
        local: u64,
    ) {
        if let Some(&first) = self.at(monitor, peers).first()
            && first != monitor
            && self.is_alone(monitor)
            && self.get(first).is_some_and(|one| one.fits(peers) && proof(&one.key, true, number, local) == *given)
        {
            self.joins.push((member, first));
        }
    }
}
