//! The peer's address on each plane. The peer moves to a new address only after it has answered from there. Until then
//! an address from which genuine datagrams come is a candidate: it gets a ping with random bytes and few other bytes.

use super::{NodeContext, Session};
use crate::frame::{HEADER, Kind, PROOF};
use crate::routes::Routes;
use crate::secure::random;
use std::net::SocketAddrV6;
use strandway_proto::{PathId, Span, Time};

/// Bytes that may go to a candidate for each byte that came from there: RFC 9000, section 8.1.
const AMPLIFICATION: u64 = 3;
/// Bytes of a ping's body.
const NUMBER: usize = 8;

/// An address that may be the peer's.
pub(super) struct Candidate {
    pub(super) at: SocketAddrV6,
    /// The number of the ping that it must answer. Its top bit is set, so no ordinary ping has it.
    challenge: u64,
    received: u64,
    sent: u64,
    /// The earliest time of the next ping, which is sent when something comes from there.
    again: Time,
}

impl Candidate {
    fn new(at: SocketAddrV6) -> Option<Candidate> {
        let challenge = u64::from_be_bytes(random().ok()?) | 1 << 63;
        Some(Candidate { at, challenge, received: 0, sent: 0, again: Time::ZERO })
    }

    /// May `bytes` bytes go there? If so, counts them.
    fn spend(&mut self, bytes: usize) -> bool {
        let sent = self.sent + bytes as u64;
        let may = sent <= AMPLIFICATION * self.received;
        if may {
            self.sent = sent;
        }
        may
    }

    /// Does the pong with this number, from this address, show that the peer is there?
    pub(super) fn is_proved_by(&self, routes: &Routes, from: SocketAddrV6, number: u64) -> bool {
        self.challenge == number && !routes.has_moved(self.at, from)
    }
}

impl Session {
    /// A genuine datagram of `bytes` bytes came in by `plane` from an address at which the peer expects answers.
    /// `newest`: no datagram with a higher counter has come.
    pub(super) fn watch_address(
        &mut self,
        around: &mut NodeContext<'_>,
        plane: usize,
        from: SocketAddrV6,
        newest: bool,
        bytes: usize,
    ) {
        let side = &mut self.paths.planes[plane];
        if side.peer.is_some_and(|known| !newest || !around.routes.has_moved(known, from)) {
            return;
        }
        if side.candidate.as_ref().is_none_or(|candidate| around.routes.has_moved(candidate.at, from)) {
            side.candidate = Candidate::new(from);
        }
        let ping = HEADER + NUMBER + self.crypto.sealer.tag_bytes();
        let Some(candidate) = &mut side.candidate else { return };
        candidate.received += bytes as u64;
        if candidate.again <= around.now && candidate.spend(ping) {
            candidate.again = around.now + Span(self.paths.timeouts.plane.0 / crate::peer_monitor::PINGS);
            let (to, number) = (candidate.at, candidate.challenge);
            self.send_number(around, to, PathId::new(plane as u8, 0), Kind::Ping, number, None);
        }
    }

    /// Answers a ping: to the peer's known address, or else to the candidate that sent the ping.
    pub(super) fn answer_ping(
        &mut self,
        around: &mut NodeContext<'_>,
        from: SocketAddrV6,
        path: PathId,
        number: u64,
        proof: Option<&[u8; PROOF]>,
    ) {
        let proof = proof.and_then(|proof| {
            let member = (self.paths.monitor, self.handle.index);
            around.monitors.recognise(member, &self.peers(), number, proof, (self.local, self.remote))
        });
        let length = HEADER + NUMBER + self.crypto.sealer.tag_bytes();
        let Some(side) = self.paths.planes.get_mut(usize::from(path.port())) else { return };
        let candidate = side.candidate.as_mut().filter(|candidate| candidate.at == from);
        // A pong is no longer than its ping, and to a candidate it carries no proof.
        let proof = proof.filter(|_| side.peer.is_some());
        let to = side.peer.or_else(|| candidate.and_then(|c| c.spend(length).then_some(c.at)));
        // If the socket is full, the answer is dropped, so that answers do not pile up.
        if let Some(to) = to
            && around.planes[usize::from(path.port())].has_room()
        {
            self.send_number(around, to, path, Kind::Pong, number, proof);
        }
    }
}

#[cfg(test)]
impl Session {
    /// Bytes received from and sent to the candidate of a plane.
    pub(super) fn candidate(&self, plane: usize) -> Option<(u64, u64)> {
        self.paths.planes[plane].candidate.as_ref().map(|candidate| (candidate.received, candidate.sent))
    }

    /// The number of the ping that the candidate of a plane must answer.
    pub(super) fn challenge(&self, plane: usize) -> Option<u64> {
        self.paths.planes[plane].candidate.as_ref().map(|candidate| candidate.challenge)
    }
}
