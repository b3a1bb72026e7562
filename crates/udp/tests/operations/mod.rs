//! The operations of fuzzing on an input, shared by the fuzz target and the tests that replay its corpus.

#![allow(dead_code, reason = "each target uses its part")]

use nix::sys::socket::{setsockopt, sockopt};
use std::net::{SocketAddr, UdpSocket};
use strandway_proto::packet::Header;
use strandway_proto::profile::WireFormat;
use strandway_udp::address::kept;
use strandway_udp::fragments::{self, FragmentOpener};
use strandway_udp::frame::{self, Descriptor, Frame, HEADER, TRIMMED};
use strandway_udp::{CONTROL_DSCP, Completion, Config, Connection, Node, Protection, Region};
use strandway_wire as wire;
use strandway_wire::aggregate;

/// Reads the bytes as a datagram and as a descriptor; a value that can be read must be written as the same bytes.
pub(crate) fn check_frame(bytes: &[u8]) {
    if let Ok(Frame::Sealed(sealed)) = frame::decode(bytes) {
        let mut again = Vec::new();
        frame::encode_sealed(&sealed, &mut again);
        assert_eq!(again, bytes[..HEADER], "a header is encoded as it was decoded");
        // The start of data that a switch leaves must be read like the whole.
        for format in [WireFormat::Rocev2, WireFormat::Uec, WireFormat::Strack, WireFormat::Mrc] {
            if let Ok(whole) = wire::decode(format, &bytes[HEADER..])
                && matches!(whole.header, Header::Data(_))
            {
                assert_eq!(wire::decode(format, &bytes[HEADER..bytes.len().min(TRIMMED)]), Ok(whole));
            }
        }
    }
    if let Ok(descriptor) = Descriptor::decode(bytes) {
        let mut again = Vec::new();
        descriptor.encode(&mut again);
        assert_eq!(again.len(), descriptor.bytes());
        assert_eq!(again, bytes[..again.len()], "a descriptor is encoded as it was decoded");
    }
}

/// Reads the bytes as the opened body of a fragment's datagram, and as a datagram of a channel; a value that can be
/// read must be written as the same bytes.
pub(crate) fn check_fragment(bytes: &[u8]) {
    if let Some((fragment, lanes)) = fragments::decode_body(bytes) {
        let mut again = Vec::new();
        aggregate::encode(&fragment, &mut again);
        again.extend_from_slice(lanes);
        assert_eq!(again, bytes, "a fragment is encoded as it was decoded");
    }
    let mut opening = FragmentOpener::new(&[1; 32], 0);
    assert!(opening.open(&mut bytes.to_vec()).is_err(), "a guessed tag is wrong");
    let _ = fragments::channel_of(bytes);
}

/// The datagram is for the friend's connection.
pub(crate) const FRIEND: u16 = 1 << 11;
/// It has the DSCP of control, as a trimmed datagram has.
pub(crate) const URGENT: u16 = 1 << 12;
/// ... or the next higher one, as after trimming by the last switch.
pub(crate) const LAST_HOP: u16 = 1 << 13;

/// A node with an open connection and memory that its friend may write to, and a stranger on the path between them that
/// sends arbitrary datagrams.
pub(crate) struct Live {
    server: Node,
    client: Node,
    inbox: Region,
    stranger: UdpSocket,
    path: Path,
    ends: [Connection; 2],
}

/// Relays the datagrams of the two, and reads them.
struct Path {
    front: UdpSocket,
    back: UdpSocket,
    client: Option<SocketAddr>,
    /// The number by which the server is addressed.
    number: [u8; 8],
}

impl Path {
    fn to(server: SocketAddr) -> Path {
        let socket = || {
            let socket = UdpSocket::bind("[::1]:0").expect("a socket");
            socket.set_nonblocking(true).expect("a socket");
            socket
        };
        let (front, back) = (socket(), socket());
        back.connect(server).expect("loopback");
        Path { front, back, client: None, number: [0; 8] }
    }

    fn carry(&mut self) {
        let mut buffer = [0; 65_536];
        while let Ok((length, from)) = self.front.recv_from(&mut buffer) {
            self.client = Some(from);
            if let Ok(Frame::Sealed(sealed)) = frame::decode(&buffer[..length]) {
                self.number = sealed.connection.to_be_bytes();
            }
            let _ = self.back.send(&buffer[..length]);
        }
        while let (Ok(length), Some(client)) = (self.back.recv(&mut buffer), self.client) {
            let _ = self.front.send_to(&buffer[..length], client);
        }
    }
}

impl Live {
    /// Two connected nodes on loopback.
    pub(crate) fn new() -> Live {
        let node = || {
            let address = "[::1]:0".parse().expect("an address");
            let mut config = Config::new(&[7; 32]).expect("long enough").profile("mrc").expect("a preset");
            // The node can read trimmed datagrams of any sender.
            (config.protection, config.trimming) = (Protection::Authenticated, true);
            Node::bind(config.plane(address)).expect("a socket")
        };
        let (mut server, mut client) = (node(), node());
        let address = server.addresses().expect("bound")[0];
        let mut path = Path::to(address);
        let peer = kept(path.front.local_addr().expect("bound"));
        let connection = client.connect(&[peer]).expect("a call");
        let accepted = loop {
            client.poll();
            path.carry();
            if let Some(Completion::Accepted { connection, .. }) = server.poll() {
                break connection;
            }
        };
        let inbox = server.register(vec![0; 4_096]);
        server.expose(accepted, inbox, 0..4_096).expect("a key");
        let stranger = UdpSocket::bind("[::1]:0").expect("a socket");
        stranger.connect(address).expect("loopback");
        Live { server, client, inbox, stranger, path, ends: [connection, accepted] }
    }

    /// Sends the bytes as datagrams, each behind a word of two bytes (cut at the end), and lets the node work on them.
    /// The word: its length in 11 bits, then [`FRIEND`], [`URGENT`] and [`LAST_HOP`].
    pub(crate) fn check(&mut self, mut bytes: &[u8]) {
        while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
            let word = u16::from_be_bytes(*length);
            let length = usize::from(word % 2_048).min(rest.len());
            let (datagram, rest) = rest.split_at(length);
            let mut datagram = datagram.to_vec();
            if word & FRIEND != 0 && length >= HEADER {
                datagram[8..16].copy_from_slice(&self.path.number);
            }
            let dscp = if word & URGENT == 0 { 0 } else { CONTROL_DSCP + u8::from(word & LAST_HOP != 0) };
            setsockopt(&self.stranger, sockopt::Ipv6TClass, &i32::from(dscp << 2)).expect("no privilege is needed");
            // If the socket has no room, the datagram counts as dropped.
            let _ = self.stranger.send(&datagram);
            bytes = rest;
        }
        for _ in 0..4 {
            assert_eq!(self.server.poll(), None, "strangers cause no completions");
            self.path.carry();
            assert_eq!(self.client.poll(), None);
        }
        assert!(
            self.server.memory(self.inbox).expect("registered").iter().all(|&byte| byte == 0),
            "no byte is written"
        );
        assert!(self.server.observe().connection_counters(self.ends[1]).is_ok(), "the friend's connection is open");
        assert_eq!(self.server.observe().counters().handshakes, 1, "the friend's");
    }

    /// Trimmed datagrams that reached the server's engine.
    pub(crate) fn trimmed(&self) -> u64 {
        self.server.observe().connection_counters(self.ends[1]).expect("open").engine.trimmed
    }
}
