//! What fuzzing does with an input, shared by the fuzz target and the tests that replay its corpus.

#![allow(dead_code, reason = "each target uses its part")]

use std::net::{SocketAddr, UdpSocket};
use strandway_udp::frame::{self, Descriptor, Frame, HEADER};
use strandway_udp::{Completion, Config, Connection, Node, Region};

/// Reads the bytes as a datagram and as a descriptor; what can be read must be what was written.
pub(crate) fn check_frame(bytes: &[u8]) {
    if let Ok(Frame::Sealed(sealed)) = frame::decode(bytes) {
        let mut again = Vec::new();
        frame::encode_sealed(&sealed, &mut again);
        assert_eq!(again, bytes[..HEADER], "a header is encoded as it was decoded");
    }
    if let Ok(descriptor) = Descriptor::decode(bytes) {
        let mut again = Vec::new();
        descriptor.encode(&mut again);
        assert_eq!(again.len(), descriptor.bytes());
        assert_eq!(again, bytes[..again.len()], "a descriptor is encoded as it was decoded");
    }
}

/// A node with an open connection and memory that its friend may write into, and a stranger who sends what it likes.
pub(crate) struct Live {
    server: Node,
    client: Node,
    inbox: Region,
    stranger: UdpSocket,
    ends: [Connection; 2],
}

impl Live {
    /// Two connected nodes on loopback.
    pub(crate) fn new() -> Live {
        let node = || {
            let address = "[::1]:0".parse().expect("an address");
            let config = Config::new(&[7; 32]).expect("long enough").profile("mrc").expect("a preset");
            Node::bind(config.plane(address)).expect("a socket")
        };
        let (mut server, mut client) = (node(), node());
        let address = server.addresses().expect("bound")[0];
        let SocketAddr::V6(peer) = address else { panic!("nodes have IPv6 addresses") };
        let connection = client.connect(&[peer]).expect("a call");
        let accepted = loop {
            client.poll();
            if let Some(Completion::Accepted { connection, .. }) = server.poll() {
                break connection;
            }
        };
        let inbox = server.register(vec![0; 4_096]);
        server.expose(accepted, inbox, 0..4_096).expect("a key");
        let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
        stranger.connect(address).expect("loopback");
        Live { server, client, inbox, stranger, ends: [connection, accepted] }
    }

    /// Sends the bytes as datagrams, each behind its length in two bytes (cut at the end), and lets the node work on them.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) {
        while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length) % 2_048).min(rest.len());
            let (datagram, rest) = rest.split_at(length);
            // What the socket has no room for is as good as dropped.
            let _ = self.stranger.send(datagram);
            bytes = rest;
        }
        for _ in 0..4 {
            assert_eq!(self.server.poll(), None, "strangers cause no completions");
            assert_eq!(self.client.poll(), None);
        }
        assert!(
            self.server.memory(self.inbox).expect("registered").iter().all(|&byte| byte == 0),
            "no byte is written"
        );
        assert!(self.server.connection_counters(self.ends[1]).is_ok(), "the friend's connection is open");
        assert_eq!(self.server.counters().handshakes, 1, "the friend's");
    }
}
