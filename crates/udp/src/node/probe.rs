//! Probes: do datagrams of some length pass between two nodes, there and back? Asked without a connection, so before
//! the payload of connections is chosen.

use super::sizes::Sizes;
use super::{Completion, Node};
use crate::error::Error;
use crate::frame::{self, PROBE};
use crate::handshake::Terms;
use crate::plane::{Class, Destination, Owner, Plane};
use crate::ways::Ways;
use std::collections::BTreeSet;
use std::net::SocketAddrV6;
use strandway_proto::{PathId, Time};

/// Addresses whose probes have come that are remembered: ours.
const ASKERS_MAX: usize = 4_096;
/// Bytes of a probe at the most: what UDP over either family carries.
const LENGTH_MAX: u32 = 65_487;

/// The probes that a node has sent and got.
#[derive(Default)]
pub(super) struct Probing {
    /// The nodes that have sent a probe here: plane and address.
    askers: BTreeSet<(usize, SocketAddrV6)>,
    /// Present if payloads are found.
    pub(super) sizes: Option<Box<Sizes>>,
}

impl Node {
    /// Asks whether a datagram of `length` bytes (without IP and UDP headers) passes to a node with our key, and back.
    /// [`Completion::Probed`] with this number follows if it does. A probe may be lost; ask again then. `number` should
    /// be random.
    ///
    /// # Errors
    /// If there is no such plane, or `length` is not from 32 to 65,487.
    pub fn probe(&mut self, plane: usize, to: SocketAddrV6, number: u64, length: u32) -> Result<(), Error> {
        if plane >= self.planes.len() || !(PROBE as u32..=LENGTH_MAX).contains(&length) {
            let planes = self.planes.len();
            return Err(Error::Config(format!(
                "a probe of {length} bytes on plane {plane} of {planes}: {PROBE} to {LENGTH_MAX} bytes are possible"
            )));
        }
        self.send_probe(plane, to, (false, number, length));
        self.flush();
        Ok(())
    }

    /// Has a probe of a node with our key come from this address?
    pub fn was_probed_by(&self, plane: usize, from: SocketAddrV6) -> bool {
        self.probing.askers.contains(&(plane, from))
    }

    /// Changes the payload of full packets. Both sides of a connection must have the same, so it is for the time before
    /// connections are opened. A node that finds payloads ([`Node::find_payloads`]) may change it at any time, since it
    /// is that of groups only: call it before [`Node::join`], at all members.
    ///
    /// # Errors
    /// If connections are open or wanted and have it, or the payload is not possible.
    pub fn set_payload(&mut self, payload: u32) -> Result<(), Error> {
        if payload == self.config.payload {
            return Ok(());
        }
        if self.table.open > 0 && !self.finds_payloads() {
            return Err(Error::Config("the payload changes only while no connection is open".into()));
        }
        let before = std::mem::replace(&mut self.config.payload, payload);
        if let Err(error) = self.config.check() {
            self.config.payload = before;
            return Err(error);
        }
        let config = &self.config;
        self.greeting.terms = Terms::new(&config.profile, payload, self.planes.len(), config.protection, config.layout);
        self.ways = Ways::new(config, self.planes.iter().map(Plane::buffer).min().unwrap_or(0));
        Ok(())
    }

    /// From now on the node accepts connections that others begin, or does not: their hellos are then dropped without
    /// an answer, and repeated by their callers. See [`crate::Config::accept`].
    pub fn accept(&mut self, accept: bool) {
        self.config.accept = accept;
    }

    pub(super) fn handle_probe(
        &mut self,
        now: Time,
        plane: usize,
        from: SocketAddrV6,
        (echo, number, length): (bool, u64, u32),
        proof: &[u8; 16],
    ) {
        let wanted = self.config.secret.proof_of_probe(echo, number, length);
        // Hashes are compared in a time that does not depend on where the proofs differ.
        if blake3::hash(&wanted) != blake3::hash(proof) {
            self.counters.malformed += 1;
            return;
        }
        if echo {
            // Answers to questions of the node's own are not the application's.
            if !self.handle_size(now, plane, number) {
                self.completions.push_back(Completion::Probed { plane, number, length });
            }
            return;
        }
        if self.probing.askers.len() < ASKERS_MAX {
            self.probing.askers.insert((plane, from));
        }
        // The answer is as long as the question, so a stranger that repeats an old question gains nothing.
        self.send_probe(plane, from, (true, number, length));
    }

    pub(super) fn send_probe(&mut self, plane: usize, to: SocketAddrV6, (echo, number, length): (bool, u64, u32)) {
        let proof = self.config.secret.proof_of_probe(echo, number, length);
        let datagram = frame::probe(echo, number, length, &proof);
        // Like data, since it shows what data will meet. If the socket is full, a question counts as lost. An answer waits:
        // two nodes that ask at the same moment would else lose all answers behind their own questions that an interface
        // drops.
        let has_room = if echo { self.planes[plane].has_place() } else { self.planes[plane].has_room() };
        if has_room {
            let (to, _) = self.config.routes.resolve(to, PathId::new(plane as u8, number as u32));
            let destination = Destination { to, source: 0, shard: 0, owner: Owner::Nobody, late: false };
            self.planes[plane].push(destination, Class::Data, datagram.len(), |out| out.copy_from_slice(&datagram));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::net::{SocketAddr, UdpSocket};
    use std::time::{Duration, Instant};

    fn node(secret: u8, plane: &str) -> (Node, SocketAddrV6) {
        let config = Config::new(&[secret; 32]).expect("long enough").plane(plane.parse().expect("an address"));
        let node = Node::bind(config).expect("sockets");
        let SocketAddr::V6(address) = node.addresses().expect("bound")[0] else { panic!("an IPv6 address") };
        (node, address)
    }

    /// The answer to a probe, while the other node moves too.
    fn answer(asker: &mut Node, other: &mut Node) -> Option<Completion> {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            assert_eq!(other.wait(Duration::from_millis(1)).expect("works"), None);
            if let Some(completion) = asker.wait(Duration::from_millis(1)).expect("works") {
                return Some(completion);
            }
        }
        None
    }

    #[test]
    fn a_probe_of_any_length_is_answered_in_both_families() {
        for plane in ["[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let ((mut one, from), (mut other, to)) = (node(7, plane), node(7, plane));
            for length in [PROBE as u32, 1_452, 9_000, 64_000] {
                one.probe(0, to, 5, length).expect("sent");
                let completion = answer(&mut one, &mut other);
                assert_eq!(completion, Some(Completion::Probed { plane: 0, number: 5, length }), "{plane}");
            }
            assert!(other.was_probed_by(0, from) && !one.was_probed_by(0, to));
            assert!(one.probe(1, to, 5, 100).is_err() && one.probe(0, to, 5, 8).is_err());
        }
    }

    #[test]
    fn a_probe_without_the_key_gets_no_answer() {
        let (mut one, to) = node(7, "[::1]:0");
        let (mut stranger, _) = node(8, "[::1]:0");
        stranger.probe(0, to, 5, 1_000).expect("sent");
        let socket = UdpSocket::bind("[::1]:0").expect("a socket");
        for length in [0u32, 32, 1_000] {
            let mut forged = frame::probe(false, 9, length, &[3; 16]);
            socket.send_to(&forged, to).expect("sent");
            forged.truncate(20);
            socket.send_to(&forged, to).expect("sent");
        }
        for _ in 0..20 {
            assert_eq!(one.wait(Duration::from_millis(1)).expect("works"), None);
            assert_eq!(stranger.wait(Duration::from_millis(1)).expect("works"), None);
        }
        assert_eq!(one.observe().counters().malformed, 7);
        socket.set_nonblocking(true).expect("set");
        assert!(socket.recv(&mut [0; 100]).is_err(), "no answer");
    }

    #[test]
    fn the_payload_changes_until_a_connection_is_open() {
        let ((mut one, _), (mut other, to)) = (node(7, "[::1]:0"), node(7, "[::1]:0"));
        one.set_payload(512).expect("possible");
        other.set_payload(512).expect("possible");
        assert!(one.set_payload(1 << 20).is_err() && one.payload() == 512);
        let connection = one.connect(&[to]).expect("called");
        let until = Instant::now() + Duration::from_secs(5);
        let mut connected = false;
        while !connected && Instant::now() < until {
            let _ = other.wait(Duration::from_millis(1)).expect("works");
            connected =
                one.wait(Duration::from_millis(1)).expect("works") == Some(Completion::Connected { connection });
        }
        assert!(connected && one.set_payload(1_344).is_err() && one.set_payload(512).is_ok());
    }

    #[test]
    fn a_caller_is_heard_once_the_node_accepts() {
        let ((mut one, _), (mut other, to)) = (node(7, "[::1]:0"), node(7, "[::1]:0"));
        other.accept(false);
        let connection = one.connect(&[to]).expect("called");
        for _ in 0..100 {
            assert_eq!(other.wait(Duration::from_millis(1)).expect("works"), None);
            assert_eq!(one.wait(Duration::from_millis(1)).expect("works"), None);
        }
        // The payload may still change, since nothing was opened here.
        other.set_payload(512).expect("possible");
        other.set_payload(1_344).expect("possible");
        other.accept(true);
        let until = Instant::now() + Duration::from_secs(3);
        let mut connected = false;
        while !connected && Instant::now() < until {
            let _ = other.wait(Duration::from_millis(1)).expect("works");
            connected =
                one.wait(Duration::from_millis(1)).expect("works") == Some(Completion::Connected { connection });
        }
        assert!(connected, "the hello was repeated");
    }
}
