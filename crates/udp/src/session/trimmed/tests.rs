//! Datagrams that were cut on their way, by a switch or by a forger.

use super::*;
use crate::config::Config;
use crate::frame::encode_sealed;
use crate::handles::Connection;
use crate::handshake::Secrets;
use crate::layout::Protection;
use crate::memory::{Memory, Region};
use crate::peer_monitor::PeerMonitors;
use crate::plane::Plane;
use crate::requests::Requests;
use crate::routes::Routes;
use crate::secure::Sealer;
use crate::session::{NodeContext, SessionParams};
use crate::windows::Windows;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;
use strandway_proto::packet::{Data, Header, Offset, Psn, Wait};
use strandway_proto::{ConnectionId, HostId, MessageId, Packet, PathId, Profile, Span};

/// The DSCP of control packets, and so of packets that a switch has trimmed. The last switch of a path gives the next
/// one.
const TRIMMED_DSCP: u8 = 48;
/// Bytes of a packet's payload.
const PAYLOAD: usize = 200;

/// A session that a peer has called over one plane, and what that peer needs to write two packets into its window.
struct Called {
    session: Session,
    planes: Vec<Plane>,
    memory: Memory,
    monitors: PeerMonitors,
    windows: Windows,
    buffer: Region,
    key: u64,
    from: SocketAddrV6,
    profile: Arc<Profile>,
    sealer: Sealer,
    now: Time,
}

impl Called {
    fn new(profile: &str, protection: Protection) -> Called {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let mut config = Config::new(&[1; 32]).expect("long enough").profile(profile).expect("a preset").plane(address);
        (config.protection, config.trimming, config.control_dscp) = (protection, true, TRIMMED_DSCP);
        let planes = vec![Plane::open(address, &config).expect("a socket")];
        let mut memory = Memory::default();
        let buffer = memory.register(vec![0; 2 * PAYLOAD]);
        let handle = Connection::test(0);
        let key = memory.expose(buffer, &(0..2 * PAYLOAD), handle).expect("a key").key;
        let profile = Arc::new(config.wire_profile());
        let environment = config.environment(&profile, 1 << 20);
        let secrets = Secrets { from_caller: [1; 32], to_caller: [2; 32] };
        let from = planes[0].address().expect("bound");
        let opening = SessionParams {
            handle,
            local: 1,
            remote: 1,
            ports: &[],
            secrets: &secrets,
            calls: false,
            peers: vec![Some(from)],
            profile: profile.clone(),
            environment,
            burst: None,
            seed: 1,
        };
        let mut monitors = PeerMonitors::new(Span::from_ms(40), Span::from_ms(3_000));
        let session = Session::new(Time::ZERO, &config, &mut monitors, opening);
        let sealer = Sealer::new(&secrets.from_caller, protection);
        let (windows, now) = (Windows::default(), Time::ZERO);
        Called { session, planes, memory, monitors, windows, buffer, key, from, profile, sealer, now }
    }

    /// A datagram of the peer with packet 0 or 1 of a message, which it believes to leave by this plane.
    fn genuine(&mut self, psn: u64, plane: u8) -> Vec<u8> {
        let path = PathId::new(plane, 0);
        let sealed =
            Sealed { kind: Kind::Data, urgent: false, path, credits: 0, connection: 1, counter: self.sealer.next() };
        let mut bytes = Vec::new();
        encode_sealed(&sealed, &mut bytes);
        let data = Data {
            psn: Psn::new(psn),
            message: MessageId(0),
            offset: Offset::new(PAYLOAD as u64 * psn),
            length: PAYLOAD as u16,
            target: 0,
            wait: Wait::default(),
        };
        let packet = Packet {
            source: HostId(0),
            destination: HostId(0),
            connection: ConnectionId(0),
            path: PathId(0),
            size: 0,
            flags: Flags::NONE.with_if(psn == 1, Flags::LAST),
            header: Header::Data(data),
        };
        wire::encode(self.profile.wire, &packet, &mut bytes).expect("it fits");
        Descriptor::Write { key: self.key, start: 0, immediate: None }.encode(&mut bytes);
        bytes.extend([0xee; PAYLOAD]);
        self.sealer.seal(&mut bytes, 0);
        bytes
    }

    /// A datagram arrives with this DSCP, and the session works.
    fn take(&mut self, dscp: u8, mut bytes: Vec<u8>) {
        let arrival = Arrival { from: self.from, class: dscp << 2 | 2, age: Duration::ZERO };
        self.now = self.now + Span::from_ns(1);
        let mut around = NodeContext {
            now: self.now,
            routes: &Routes::default(),
            denied: &[],
            planes: &mut self.planes,
            memory: &mut self.memory,
            completions: &mut VecDeque::new(),
            monitors: &mut self.monitors,
            windows: &mut self.windows,
            requests: &mut Requests::default(),
        };
        if let Ok(crate::frame::Frame::Sealed(sealed)) = crate::frame::decode(&bytes) {
            self.session.handle(&mut around, 0, &arrival, &sealed, &mut bytes).expect("it stays open");
        }
        self.session.work(&mut around, Span::ZERO, false).expect("it stays open");
        self.planes.iter_mut().for_each(Plane::flush);
    }

    fn window(&self) -> &[u8] {
        self.memory.bytes(self.buffer).expect("registered")
    }

    fn sent(&self) -> u64 {
        self.planes[0].counters.sent
    }
}

/// How a forger changes a datagram that it has seen: length, flipped bits, DSCP.
fn forgeries() -> impl Strategy<Value = (usize, Vec<usize>, u8)> {
    let bits = prop::collection::vec(0usize..64 * 8, 0..6);
    let dscps = prop_oneof![Just(TRIMMED_DSCP), Just(TRIMMED_DSCP + 1), Just(TRIMMED_DSCP + 2), Just(0)];
    (prop_oneof![0usize..90, Just(TRIMMED)], bits, dscps)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// An attacker that can read datagrams but has no key can cut and change them, again and again. Each costs a NACK
    /// at the most; the genuine datagram is accepted as if there had been no forgery.
    #[test]
    fn a_forger_of_cut_datagrams_gets_a_packet_sent_again_and_nothing_else(
        forgeries in prop::collection::vec(forgeries(), 1..40),
        profile in prop::sample::select(vec!["uec", "strack_fast", "rocev2", "rocev2_sr", "mrc"]),
        protection in prop::sample::select(vec![Protection::Authenticated, Protection::Encrypted]),
    ) {
        let mut called = Called::new(profile, protection);
        // The first datagram proves that the peer has the keys; the forger changes the second one.
        let first = called.genuine(0, 0);
        called.take(0, first);
        let second = called.genuine(1, 0);
        let (before, sent, heard) = (called.session.counters().engine, called.sent(), called.session.phase);
        let count = forgeries.len() as u64;
        for (length, bits, dscp) in forgeries {
            let mut bytes = second.clone();
            for bit in bits {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            bytes.truncate(length);
            called.take(dscp, bytes);
        }
        let engine = called.session.counters().engine;
        prop_assert_eq!((engine.delivered, engine.acks, called.session.phase), (before.delivered, before.acks, heard));
        prop_assert!(called.sent() - sent <= count, "an answer each at the most");
        prop_assert!(called.window()[PAYLOAD..].iter().all(|&byte| byte == 0), "nothing is written");
        called.take(0, second);
        prop_assert!(called.window().iter().all(|&byte| byte == 0xee), "then the genuine one is");
        prop_assert_eq!(called.session.counters().engine.delivered, 2);
    }
}

/// A cut datagram with each DSCP, from each plane.
#[test]
fn a_cut_datagram_is_answered_only_if_a_switch_of_a_known_plane_trimmed_it() {
    for protection in [Protection::Authenticated, Protection::Encrypted] {
        for (dscp, plane, answers) in [
            (TRIMMED_DSCP, 0, 1),
            (TRIMMED_DSCP + 1, 0, 1),
            (TRIMMED_DSCP + 2, 0, 0),
            (TRIMMED_DSCP - 1, 0, 0),
            (0, 0, 0),
            // The session has one plane.
            (TRIMMED_DSCP, 1, 0),
        ] {
            let mut called = Called::new("uec", protection);
            let first = called.genuine(0, 0);
            called.take(0, first);
            let (sent, mut second) = (called.sent(), called.genuine(1, plane));
            second.truncate(TRIMMED);
            called.take(dscp, second);
            assert_eq!(called.sent() - sent, answers, "{protection:?}, DSCP {dscp}, plane {plane}");
        }
    }
}

/// Until a whole datagram has proved that the caller has the keys, cut ones leave no trace, not even a later answer.
#[test]
fn cut_datagrams_before_the_first_whole_one_leave_no_trace() {
    let sent = [0, 5].map(|cut| {
        let mut called = Called::new("uec", Protection::Authenticated);
        let (first, mut second) = (called.genuine(0, 0), called.genuine(1, 0));
        second.truncate(TRIMMED);
        for _ in 0..cut {
            called.take(TRIMMED_DSCP, second.clone());
        }
        assert_eq!(called.sent(), 0);
        called.take(0, first);
        called.sent()
    });
    assert_eq!(sent[0], sent[1]);
}
