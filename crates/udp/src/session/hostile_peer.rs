//! A malicious peer that has the keys: its datagrams are genuine, and break the protocol.

mod partial;
mod reads;

use super::*;
use crate::error::Reason;
use crate::frame::{Kind, Sealed, encode_sealed};
use crate::layout::Protection;
use crate::memory::Region;
use crate::peer_monitor::Found;
use crate::secure::Sealer;
use crate::socket::Arrival;
use std::time::Duration;
use strandway_proto::packet::{Data, Flags, Header, Offset, Psn, Wait};
use strandway_proto::{MessageId, Packet, PathId};
use strandway_wire as wire;

/// A session, and a peer that sends arbitrary datagrams. The peer's address has no reader.
struct Peer {
    session: Session,
    memory: Memory,
    planes: Vec<Plane>,
    completions: VecDeque<Completion>,
    sealer: Sealer,
    from: SocketAddrV6,
    format: WireFormat,
    inbox: Region,
    key: u64,
    now: Time,
    monitors: PeerMonitors,
    windows: Windows,
}

const INBOX: usize = 4_096;

impl Peer {
    fn new(change: impl FnOnce(&mut Config)) -> Peer {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let mut config = Config::new(&[1; 32]).expect("long enough").plane(address);
        config.protection = Protection::Authenticated;
        change(&mut config);
        let planes = vec![Plane::open(address, &config).expect("a socket")];
        let mut memory = Memory::default();
        let inbox = memory.register(vec![0; INBOX]);
        let key = memory.expose(inbox, &(0..INBOX), Connection::test(0)).expect("a key").key;
        let profile = Arc::new(config.wire_profile());
        let environment = config.environment(&profile, 1 << 20);
        let secrets = Secrets { from_caller: [1; 32], to_caller: [2; 32] };
        let from = planes[0].address().expect("bound");
        let opening = SessionParams {
            handle: Connection::test(0),
            local: 1,
            remote: 1,
            secrets: &secrets,
            calls: false,
            peers: vec![Some(from)],
            ports: &[],
            profile: profile.clone(),
            environment,
            burst: None,
            seed: 1,
        };
        let timeouts = [config.timeouts.plane, config.timeouts.peer].map(crate::clock::span);
        let mut monitors = PeerMonitors::new(timeouts[0], timeouts[1]);
        let session = Session::new(Time::ZERO, &config, &mut monitors, opening);
        let sealer = Sealer::new(&secrets.from_caller, Protection::Authenticated);
        let completions = VecDeque::new();
        let format = profile.wire;
        Peer {
            session,
            memory,
            planes,
            completions,
            sealer,
            from,
            format,
            inbox,
            key,
            now: Time::ZERO,
            monitors,
            windows: Windows::default(),
        }
    }

    fn says(&mut self, kind: Kind, body: &[u8]) -> Result<(), Reason> {
        let counter = self.sealer.next();
        let sealed = Sealed { kind, urgent: false, path: PathId(0), credits: 0, connection: 1, counter };
        let mut bytes = Vec::new();
        encode_sealed(&sealed, &mut bytes);
        bytes.extend_from_slice(body);
        self.sealer.seal(&mut bytes, 0);
        self.now = self.now + Span::from_ns(100);
        let arrival = Arrival { from: self.from, class: 0, age: Duration::ZERO };
        let routes = Routes::default();
        let mut around = NodeContext {
            now: self.now,
            routes: &routes,
            denied: &[],
            planes: &mut self.planes,
            memory: &mut self.memory,
            completions: &mut self.completions,
            monitors: &mut self.monitors,
            windows: &mut self.windows,
            requests: &mut crate::requests::Requests::default(),
        };
        self.session.handle(&mut around, 0, &arrival, &sealed, &mut bytes)
    }

    /// A packet of data; the last of its message or not.
    fn sends(
        &mut self,
        psn: u64,
        message: u32,
        offset: u64,
        last: bool,
        descriptor: Descriptor,
        payload: &[u8],
    ) -> Result<(), Reason> {
        let header = Header::Data(Data {
            psn: Psn::new(psn),
            message: MessageId(message),
            offset: Offset::new(offset),
            length: payload.len() as u16,
            target: 0,
            wait: Wait::default(),
        });
        let mut body = self.encoded(Flags::NONE.with_if(last, Flags::LAST), header);
        descriptor.encode(&mut body);
        body.extend_from_slice(payload);
        self.says(Kind::Data, &body)
    }

    fn encoded(&self, flags: Flags, header: Header) -> Vec<u8> {
        let packet = Packet {
            source: HostId(0),
            destination: HostId(0),
            connection: ConnectionId(0),
            path: PathId(0),
            size: 0,
            flags,
            header,
        };
        let mut body = Vec::new();
        wire::encode(self.format, &packet, &mut body).expect("it fits");
        body
    }

    fn write(&self, start: u64) -> Descriptor {
        Descriptor::Write { key: self.key, start, immediate: Some(7) }
    }

    /// Room for one send of 16 bytes.
    fn receives(&mut self) {
        let place = self.memory.place(self.inbox, &(0..16)).expect("within");
        self.memory.hold(place);
        self.session.receive(Operation(0), place);
    }
}

#[test]
fn messages_that_have_begun_are_bounded() {
    for most in [1, 1_000] {
        let mut peer = Peer::new(|config| config.limits.incoming = most as usize);
        let write = peer.write(0);
        for i in 0..most {
            assert_eq!(peer.sends(i, i as u32, 0, false, write, &[]), Ok(()));
        }
        assert_eq!(peer.session.receiving.incoming.len(), most as usize);
        assert_eq!(peer.sends(most, u32::MAX, 0, false, write, &[]), Err(Reason::Violation), "one too many");
    }
}

#[test]
fn messages_that_end_make_room_for_others() {
    let mut peer = Peer::new(|config| config.limits.incoming = 1);
    let write = peer.write(0);
    for i in 0..100 {
        assert_eq!(peer.sends(2 * i, i as u32, 0, false, write, &[1; 8]), Ok(()));
        assert_eq!(peer.sends(2 * i + 1, i as u32, 8, true, write, &[1; 8]), Ok(()));
    }
    assert_eq!(peer.completions.len(), 101, "an acceptance and a hundred writes");
}

#[test]
fn a_length_that_was_not_placed_ends_the_connection() {
    type Case = (&'static str, fn(&mut Peer) -> Result<(), Reason>, Reason);
    let cases: [Case; 8] = [
        ("a key that opens nothing", |p| p.sends(0, 0, 0, true, no_key(), &[]), Reason::RemoteAccess),
        ("an offset beyond the window", |p| p.sends(0, 0, 1 << 63, true, p.write(0), &[]), Reason::RemoteAccess),
        ("a start beyond the window", |p| p.sends(0, 0, 0, true, p.write(INBOX as u64 + 1), &[]), Reason::RemoteAccess),
        ("a start that wraps", |p| p.sends(0, 0, 2, true, p.write(u64::MAX), &[]), Reason::RemoteAccess),
        ("bytes that never came", |p| p.sends(0, 0, 64, true, p.write(0), &[]), Reason::Violation),
        (
            "a send beyond its receive",
            |p| p.sends(0, 0, 17, true, Descriptor::Send { number: 0 }, &[]),
            Reason::TooLong,
        ),
        (
            "bytes that came twice",
            |p| {
                p.sends(0, 0, 0, false, p.write(0), &[1; 8])?;
                p.sends(1, 0, 0, true, p.write(0), &[1; 8])
            },
            Reason::Violation,
        ),
        ("no receive", |p| p.sends(0, 0, 0, true, Descriptor::Send { number: 1 }, &[]), Reason::Violation),
    ];
    for (name, lie, reason) in cases {
        let mut peer = Peer::new(|_| {});
        peer.receives();
        assert_eq!(lie(&mut peer), Err(reason), "{name}");
        let told = peer.completions.iter().any(|c| !matches!(c, Completion::Accepted { .. }));
        assert!(!told, "{name}: {:?}", peer.completions);
    }
}

fn no_key() -> Descriptor {
    Descriptor::Write { key: 0, start: 0, immediate: Some(7) }
}

#[test]
fn a_message_belongs_to_one_place() {
    for other in [Descriptor::Send { number: 1 }, no_key()] {
        let mut peer = Peer::new(|_| {});
        peer.receives();
        assert_eq!(peer.sends(0, 0, 0, false, Descriptor::Send { number: 0 }, &[1; 8]), Ok(()));
        assert_eq!(peer.sends(1, 0, 8, true, other, &[]), Err(Reason::Violation), "{other:?}");
    }
    let mut peer = Peer::new(|_| {});
    let (first, second) = (peer.write(0), peer.write(100));
    assert_eq!(peer.sends(0, 0, 0, false, first, &[1; 8]), Ok(()));
    assert_eq!(peer.sends(1, 0, 8, true, second, &[1; 8]), Err(Reason::Violation), "another start");
    assert!(peer.memory.bytes(peer.inbox).expect("registered")[8..].iter().all(|&byte| byte == 0));
}

#[test]
fn placed_bytes_are_reported() {
    let mut peer = Peer::new(|_| {});
    peer.receives();
    let write = peer.write(100);
    assert_eq!(peer.sends(0, 0, 0, false, Descriptor::Send { number: 0 }, &[1; 8]), Ok(()));
    assert_eq!(peer.sends(1, 0, 8, true, Descriptor::Send { number: 0 }, &[1; 4]), Ok(()));
    assert_eq!(peer.sends(2, 1, 0, true, write, &[]), Ok(()));
    let told: Vec<_> = peer.completions.iter().skip(1).collect();
    assert!(
        matches!(told[..], [Completion::Received { bytes: 12, .. }, Completion::Written { bytes: 0, .. }]),
        "{told:?}"
    );
}

#[test]
fn answers_to_pings_do_not_pile_up_behind_a_full_socket() {
    let mut peer = Peer::new(|_| {});
    peer.planes[0].fill_socket();
    for i in 0..10_000_u64 {
        assert_eq!(peer.says(Kind::Ping, &i.to_be_bytes()), Ok(()));
    }
    assert!(peer.planes[0].waiting() < 64 << 10, "{} bytes wait", peer.planes[0].waiting());
}

#[test]
fn pings_wait_behind_data_for_a_full_socket() {
    let mut peer = Peer::new(|config| config.timeouts.peer = Duration::from_secs(3_600));
    assert_eq!(peer.says(Kind::Ping, &[0; 8]), Ok(()));
    peer.planes[0].fill_socket();
    let mut pings = 0;
    for i in 1..10_000_u64 {
        peer.now = Time::ZERO + Span::from_ms(10 * i);
        let routes = Routes::default();
        let (now, planes) = (peer.now, &mut peer.planes);
        let (memory, completions, monitors) = (&mut peer.memory, &mut peer.completions, &mut peer.monitors);
        let windows = &mut peer.windows;
        let mut around = NodeContext {
            now,
            routes: &routes,
            denied: &[],
            planes,
            memory,
            completions,
            monitors,
            windows,
            requests: &mut crate::requests::Requests::default(),
        };
        while let Some(monitor) = around.monitors.pop(now) {
            assert!(matches!(around.monitors.check(now, monitor), Found::Due(1)), "it lives");
            let number = around.monitors.ping(now, monitor, 0);
            peer.session.ping_for_monitor(&mut around, 0, number);
            around.monitors.settle(now, monitor);
            pings += 1;
        }
        peer.session.work(&mut around, Span::ZERO, false).expect("it lives");
    }
    assert!(pings > 1_000, "{pings} pings");
    assert!(peer.planes[0].waiting() < 64 << 10, "{} bytes wait", peer.planes[0].waiting());
}

#[test]
fn a_new_address_is_sent_little_until_it_answers() {
    let mut peer = Peer::new(|_| {});
    let (home, victim) = (peer.from, SocketAddrV6::new(*peer.from.ip(), 9, 0, 0));
    assert_eq!(peer.says(Kind::Ping, &[0; 8]), Ok(()));
    peer.from = victim;
    for i in 0..1_000_u64 {
        assert_eq!(peer.says(Kind::Ping, &i.to_be_bytes()), Ok(()));
        assert!(peer.session.is_at(0, home), "the peer is where it was");
    }
    let (received, sent) = peer.session.candidate(0).expect("a candidate");
    assert!(received >= 48_000 && sent <= 3 * received && sent > 0, "{sent} of {received}");
    // A pong with a guessed number does not move the peer; nor does one with the right number from another address.
    assert_eq!(peer.says(Kind::Pong, &u64::MAX.to_be_bytes()), Ok(()));
    let number = peer.session.challenge(0).expect("a candidate");
    peer.from = home;
    assert_eq!(peer.says(Kind::Pong, &number.to_be_bytes()), Ok(()));
    assert!(peer.session.is_at(0, home));
    // One with the right number from that address does.
    peer.from = victim;
    assert_eq!(peer.says(Kind::Pong, &number.to_be_bytes()), Ok(()));
    assert!(peer.session.is_at(0, victim));
}
