//! Requests that break the protocol, and answers that nobody asked for.

use super::*;
use crate::error::Refusal;
use crate::frame::Change;
use crate::memory::Rights;
use crate::session::posted::Posted;

impl Peer {
    /// Opens the inbox for reading and atomic operations, too.
    fn opened(change: impl FnOnce(&mut Config)) -> Peer {
        let mut peer = Peer::new(change);
        let rights = Rights::READ | Rights::ATOMIC;
        peer.key =
            peer.memory.expose_for(peer.inbox, &(0..INBOX), Some(Connection::test(0)), rights).expect("a key").key;
        peer
    }

    fn asks(&mut self, psn: u64, descriptor: Descriptor) -> Result<(), Reason> {
        self.sends(psn, psn as u32, 0, true, descriptor, &[])
    }

    fn read(&self, number: u32, start: u64, bytes: u64) -> Descriptor {
        Descriptor::Read { number, key: self.key, start, bytes }
    }

    /// The refusals and answers that wait to leave, as the descriptors say.
    fn answers(&self) -> Vec<Descriptor> {
        self.session.sending.flying().iter().map(|posted| posted.descriptor).collect()
    }

    /// A read of ours into the whole inbox.
    fn reads(&mut self) {
        let into = self.memory.place(self.inbox, &(0..INBOX)).expect("within");
        self.memory.hold(into);
        self.session.ask_peer(self.now, Operation(5), Wanted::Bytes { key: 1, start: 0, into });
    }
}

#[test]
fn a_forged_key_or_a_range_that_overflows_is_refused_by_name() {
    let mut peer = Peer::opened(|_| {});
    let whole = INBOX as u64;
    let forged = Descriptor::Read { number: 0, key: peer.key ^ 1, start: 0, bytes: 1 };
    assert_eq!(peer.asks(0, forged), Ok(()));
    let ranges = [
        (0, whole + 1),
        (whole, 1),
        (1, whole),
        (u64::MAX, 2),
        (2, u64::MAX),
        (u64::MAX, u64::MAX),
        (1 << 63, 1 << 63),
    ];
    for (number, (start, bytes)) in (1..).zip(ranges) {
        assert_eq!(peer.asks(u64::from(number), peer.read(number, start, bytes)), Ok(()));
    }
    for (number, start) in (8..).zip([whole - 7, u64::MAX, u64::MAX - 7]) {
        let atomic = Descriptor::Atomic { number, key: peer.key, start, change: Change::Add(1) };
        assert_eq!(peer.asks(u64::from(number), atomic), Ok(()));
    }
    let refusals = (0..11).map(|number| {
        let refusal = if number == 0 { Refusal::NoKey } else { Refusal::Range };
        Descriptor::Refusal { number, refusal }
    });
    assert_eq!(peer.answers(), refusals.collect::<Vec<_>>());
    assert!(peer.memory.bytes(peer.inbox).expect("registered").iter().all(|&byte| byte == 0));
    assert_eq!(peer.asks(11, peer.read(11, 0, whole)), Ok(()), "the connection goes on");
    assert_eq!(peer.answers().last(), Some(&Descriptor::Answer { number: 11 }));
}

#[test]
fn a_request_that_is_repeated_ten_thousand_times_is_answered_once() {
    // As copies of a packet, it is the engine that drops them; as messages of their own, they break the protocol.
    let mut peer = Peer::opened(|_| {});
    let add = Descriptor::Atomic { number: 0, key: peer.key, start: 0, change: Change::Add(1) };
    for _ in 0..10_000 {
        assert_eq!(peer.asks(0, add), Ok(()));
    }
    assert_eq!(peer.answers(), [Descriptor::Word { number: 0, word: 0 }]);
    assert_eq!(peer.memory.bytes(peer.inbox).expect("registered")[..8], 1u64.to_ne_bytes());
    assert_eq!(peer.asks(1, add), Err(Reason::Violation));
    assert_eq!(peer.memory.bytes(peer.inbox).expect("registered")[..8], 1u64.to_ne_bytes());
}

#[test]
fn requests_without_end_queue_up_to_a_limit() {
    let mut peer = Peer::opened(|config| (config.limits.reads.reads, config.limits.reads.bytes) = (8, 10_000));
    let ended = (0..10_000).position(|number| {
        let outcome = peer.asks(u64::from(number), peer.read(number, 0, INBOX as u64));
        let bytes: u64 = peer.session.sending.flying().iter().map(Posted::bytes).sum();
        assert!(bytes <= 10_000, "{bytes} bytes of answers under way");
        assert!(peer.session.receiving.target.len() <= 18);
        outcome == Err(Reason::Violation)
    });
    assert_eq!(ended, Some(18), "2 are under way, 8 wait, 8 more are refused, and one more is too much");
}

#[test]
fn an_answer_that_nobody_asked_for_ends_the_connection() {
    type Case = (&'static str, fn(&mut Peer) -> Result<(), Reason>, Reason);
    let answer = |number| Descriptor::Answer { number };
    let cases: [Case; 8] = [
        ("bytes", |p| p.sends(0, 0, 0, true, Descriptor::Answer { number: 7 }, &[1; 8]), Reason::Violation),
        ("a word", |p| p.asks(0, Descriptor::Word { number: 0, word: 3 }), Reason::Violation),
        (
            "a word for a read",
            |p| {
                p.reads();
                p.asks(0, Descriptor::Word { number: 0, word: 3 })
            },
            Reason::Violation,
        ),
        ("a refusal", |p| p.asks(0, Descriptor::Refusal { number: 0, refusal: Refusal::NoKey }), Reason::Violation),
        (
            "too few bytes",
            |p| {
                p.reads();
                p.sends(0, 0, 0, true, Descriptor::Answer { number: 0 }, &[1; 8])
            },
            Reason::Violation,
        ),
        (
            "too many bytes",
            |p| {
                p.reads();
                p.sends(0, 0, INBOX as u64 - 4, true, Descriptor::Answer { number: 0 }, &[1; 8])
            },
            Reason::TooLong,
        ),
        (
            "an offset that wraps",
            |p| {
                p.reads();
                p.sends(0, 0, u64::MAX - 2, true, Descriptor::Answer { number: 0 }, &[1; 8])
            },
            Reason::TooLong,
        ),
        ("a request that is left out", |p| p.asks(0, p.read(1, 0, 8)), Reason::Violation),
    ];
    for (name, lie, reason) in cases {
        let mut peer = Peer::opened(|_| {});
        assert_eq!(lie(&mut peer), Err(reason), "{name}");
        let told = peer.completions.iter().any(|c| !matches!(c, Completion::Accepted { .. }));
        assert!(!told, "{name}: {:?}", peer.completions);
    }
    // An honest one, and then the same again.
    let mut peer = Peer::opened(|_| {});
    peer.reads();
    for (psn, offset) in (0..4).zip((0..).step_by(INBOX / 4)) {
        assert_eq!(peer.sends(psn, 0, offset, psn == 3, answer(0), &[psn as u8 + 1; INBOX / 4]), Ok(()));
    }
    let read = Completion::Read { connection: Connection::test(0), operation: Operation(5), bytes: INBOX as u64 };
    assert_eq!(peer.completions.back(), Some(&read));
    assert_eq!(peer.sends(4, 1, 0, true, answer(0), &[9; 8]), Err(Reason::Violation));
    let bytes = peer.memory.bytes(peer.inbox).expect("registered");
    assert_eq!((bytes[0], bytes[INBOX - 1]), (1, 4));
}

#[test]
fn requests_with_payload_are_malformed() {
    let mut peer = Peer::opened(|_| {});
    assert_eq!(peer.sends(0, 0, 0, true, peer.read(0, 0, 8), &[1; 8]), Ok(()));
    assert_eq!((peer.session.counters.malformed, peer.answers().len()), (1, 0));
}
