//! Two movers in one process.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strandway_mover::{Code, Event, EventKind, Level, LogSink, Mover, Options, Progress};
use strandway_udp::address::{kept, loopback};
use strandway_udp::{RemoteRegion, Rights};

const LONG: Duration = Duration::from_secs(30);

fn options() -> Options {
    Options { planes: vec![kept((loopback(), 0))], ..Options::new(&[9; 32]) }
}

/// Memory of a test, which lives as long as the process.
fn memory(mover: &Mover, bytes: Vec<u8>) -> u64 {
    let bytes: &'static mut [u8] = bytes.leak();
    mover.register(bytes.as_ptr().addr(), bytes.len(), || bytes).expect("registered")
}

/// Bytes of a receive: they are sent on to another mover, which checks them, since the tests have no `unsafe`.
struct Party {
    mover: Mover,
    connection: u64,
    early: Vec<Event>,
}

impl Party {
    /// The next event of a kind; others are kept.
    fn until(&mut self, kind: EventKind) -> Event {
        let began = Instant::now();
        loop {
            if let Some(at) = self.early.iter().position(|event| event.kind == kind) {
                return self.early.remove(at);
            }
            assert!(began.elapsed() < LONG, "no {kind:?}");
            self.early.extend(self.mover.wait(16, Duration::from_millis(100)).expect("works"));
        }
    }
}

fn pair(options: &Options) -> [Party; 2] {
    let [a, b] = [(); 2].map(|()| Mover::open(options).expect("sockets"));
    let to: Vec<_> = b.addresses().expect("bound").into_iter().map(kept).collect();
    let connection = a.connect(&to, 77).expect("a call");
    let mut a = Party { mover: a, connection, early: Vec::new() };
    let mut b = Party { mover: b, connection: 0, early: Vec::new() };
    // Movers without threads move only while their callers wait.
    let began = Instant::now();
    let accepted = loop {
        a.early.extend(a.mover.wait(16, Duration::from_millis(1)).expect("works"));
        if let Some(event) = b.mover.wait(1, Duration::from_millis(1)).expect("works").pop() {
            break event;
        }
        assert!(began.elapsed() < LONG, "no call arrives");
    };
    assert_eq!((accepted.kind, accepted.service), (EventKind::Accepted, 77));
    b.connection = accepted.connection;
    let connected = loop {
        b.mover.progress().expect("works");
        if let Some(event) = a.early.pop().or_else(|| a.mover.wait(1, Duration::from_millis(1)).expect("works").pop()) {
            break event;
        }
    };
    assert_eq!((connected.kind, connected.connection), (EventKind::Connected, a.connection));
    [a, b]
}

#[test]
fn messages_meet_by_tag_in_the_order_of_posting() {
    let [mut a, mut b] = pair(&options());
    let out = memory(&a.mover, (0..100u8).collect());
    let into = memory(&b.mover, vec![0; 100]);
    for (context, tag) in [(1, 5), (2, 6), (3, 5)] {
        a.mover.send(a.connection, out, context * 10, 10 - context, tag, context).expect("posted");
    }
    for (context, tag, at) in [(11, 6, 0), (12, 5, 20), (13, 5, 40)] {
        b.mover.receive(b.connection, into, at, 10, tag, context).expect("posted");
    }
    let mut received: Vec<_> = (0..3).map(|_| b.until(EventKind::ReceiveDone)).collect();
    received.sort_by_key(|event| event.context);
    let seen: Vec<_> = received.iter().map(|event| (event.context, event.tag, event.bytes)).collect();
    assert_eq!(seen, [(11, 6, 8), (12, 5, 9), (13, 5, 7)]);
    let mut sent: Vec<_> = (0..3).map(|_| a.until(EventKind::SendDone).context).collect();
    sent.sort_unstable();
    assert_eq!(sent, [1, 2, 3]);
    // A receive that is posted first, and a message of no bytes.
    b.mover.receive(b.connection, into, 0, 0, u64::MAX, 21).expect("posted");
    a.mover.send(a.connection, out, 100, 0, u64::MAX, 22).expect("posted");
    assert_eq!((b.until(EventKind::ReceiveDone).bytes, a.until(EventKind::SendDone).context), (0, 22));
    b.mover.release(into).expect("unused");
}

#[test]
fn a_message_that_is_too_long_ends_and_its_receive_waits_for_the_next() {
    let [mut a, mut b] = pair(&options());
    let (out, into) = (memory(&a.mover, vec![1; 100]), memory(&b.mover, vec![0; 100]));
    a.mover.send(a.connection, out, 0, 11, 1, 1).expect("posted");
    b.mover.receive(b.connection, into, 0, 10, 1, 2).expect("posted");
    let sent = a.until(EventKind::SendDone);
    assert_eq!((sent.code, sent.context), (Code::TooLong, 1));
    assert_eq!(a.mover.send(a.connection, out, 0, 11, 1, 3).expect_err("still too long").code, Code::TooLong);
    a.mover.send(a.connection, out, 0, 10, 1, 4).expect("posted");
    assert_eq!(b.until(EventKind::ReceiveDone).bytes, 10);
}

#[test]
fn writes_go_where_memory_is_exposed_and_nowhere_else() {
    let [mut a, mut b] = pair(&options());
    let (out, into) = (memory(&a.mover, vec![1; 100]), memory(&b.mover, vec![0; 100]));
    let remote = b.mover.expose(b.connection, into, 50, 50).expect("a key");
    a.mover.write(a.connection, out, 0, 50, remote, 0, Some(7), 1).expect("posted");
    let written = b.until(EventKind::Written);
    assert_eq!((written.immediate, written.bytes), (7, 50));
    assert_eq!(a.until(EventKind::WriteDone).context, 1);
    assert_eq!(a.mover.write(a.connection, out, 0, 50, remote, 1, None, 1).expect_err("beyond").code, Code::Range);
    assert_eq!(
        a.mover.write(a.connection, out, 0, 1, remote, 0, Some(1 << 31), 1).expect_err("too large").code,
        Code::Invalid
    );
    assert_eq!(b.mover.revoke(remote), Ok(true));
    assert_eq!(b.mover.revoke(remote), Ok(false));
    a.mover.write(a.connection, out, 0, 50, remote, 0, None, 2).expect("posted");
    let failed = a.until(EventKind::WriteDone);
    assert_eq!((failed.code, failed.context), (Code::RemoteAccess, 2));
    assert_eq!(a.until(EventKind::Closed).code, Code::RemoteAccess);
    assert_eq!(b.until(EventKind::Closed).code, Code::RemoteAccess);
}

#[test]
fn each_operation_has_its_event_when_a_connection_ends() {
    let [mut a, mut b] = pair(&options());
    let (out, into) = (memory(&a.mover, vec![1; 1 << 20]), memory(&b.mover, vec![0; 1 << 20]));
    for context in 0..10 {
        a.mover.send(a.connection, out, 0, 1 << 20, context, context).expect("posted");
        b.mover.receive(b.connection, into, 0, 10, 100 + context, context).expect("posted");
    }
    assert_eq!(a.mover.release(out).expect_err("in use").code, Code::InUse);
    assert_eq!(b.mover.release(into).expect_err("in use").code, Code::InUse);
    a.mover.close(a.connection).expect("open");
    assert_eq!(a.mover.close(a.connection).expect_err("closed").code, Code::NoConnection);
    for _ in 0..10 {
        assert_eq!(a.until(EventKind::SendDone).code, Code::ClosedHere);
        assert_eq!(b.until(EventKind::ReceiveDone).code, Code::ClosedByPeer);
    }
    assert_eq!(a.until(EventKind::Closed).code, Code::ClosedHere);
    assert_eq!(b.until(EventKind::Closed).code, Code::ClosedByPeer);
    a.mover.release(out).expect("unused");
    b.mover.release(into).expect("unused");
    assert_eq!(a.mover.send(a.connection, out, 0, 1, 0, 0).expect_err("closed").code, Code::NoConnection);
}

#[test]
fn a_limit_of_operations_is_kept_and_ends_with_them() {
    let mut few = options();
    few.operations_max = 4;
    let [mut a, mut b] = pair(&few);
    let (out, into) = (memory(&a.mover, vec![1; 100]), memory(&b.mover, vec![0; 100]));
    for _ in 0..100 {
        for context in 0..4 {
            a.mover.send(a.connection, out, 0, 100, 1, context).expect("posted");
        }
        assert_eq!(a.mover.send(a.connection, out, 0, 100, 1, 4).expect_err("one too many").code, Code::Busy);
        for context in 0..4 {
            b.mover.receive(b.connection, into, 0, 100, 1, context).expect("posted");
        }
        for _ in 0..4 {
            assert_eq!(a.until(EventKind::SendDone).code, Code::Ok);
            assert_eq!(b.until(EventKind::ReceiveDone).code, Code::Ok);
        }
    }
}

#[test]
fn movers_without_threads_move_while_their_callers_wait() {
    let mut by_hand = options();
    by_hand.progress = Progress::Callers;
    let [mut a, mut b] = pair(&by_hand);
    let (out, into) = (memory(&a.mover, vec![1; 1 << 20]), memory(&b.mover, vec![0; 1 << 20]));
    b.mover.receive(b.connection, into, 0, 1 << 20, 1, 1).expect("posted");
    a.mover.send(a.connection, out, 0, 1 << 20, 1, 2).expect("posted");
    let began = Instant::now();
    while a.early.is_empty() || b.early.is_empty() {
        for side in [&mut a, &mut b] {
            side.mover.progress().expect("works");
            side.early.extend(side.mover.poll(8).expect("works"));
        }
        assert!(began.elapsed() < LONG, "nothing arrives");
    }
    assert_eq!(b.until(EventKind::ReceiveDone).bytes, 1 << 20);
    assert_eq!(a.until(EventKind::SendDone).context, 2);
}

#[test]
fn a_wrong_key_and_an_absent_peer_are_told_apart() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let mut other = options();
    other.key = vec![8; 32];
    other.handshake_timeout = Duration::from_millis(300);
    other.log = Some(LogSink(Arc::new(move |level, text| sink.lock().expect("whole").push((level, text.to_string())))));
    let (a, b) = (Mover::open(&other).expect("sockets"), Mover::open(&options()).expect("sockets"));
    let to: Vec<_> = b.addresses().expect("bound").into_iter().map(kept).collect();
    let mut a = Party { connection: a.connect(&to, 0).expect("a call"), mover: a, early: Vec::new() };
    assert_eq!(a.until(EventKind::Closed).code, Code::WrongKey);
    drop(b);
    a.connection = a.mover.connect(&to, 0).expect("a call");
    assert_eq!(a.mover.send(a.connection, 1, 0, 1, 0, 0).expect_err("not yet").code, Code::NotConnected);
    assert_eq!(a.until(EventKind::Closed).code, Code::NoAnswer);
    let log = log.lock().expect("whole");
    assert_eq!(log.iter().map(|(level, _)| *level).collect::<Vec<_>>(), [Level::Warning; 2]);
    assert!(log[0].1.contains("key"), "{log:?}");
}

#[test]
fn a_node_that_is_no_mover_is_let_go() {
    let mut quick = options();
    quick.handshake_timeout = Duration::from_millis(300);
    let mover = Mover::open(&quick).expect("sockets");
    let to = kept(mover.addresses().expect("bound")[0]);
    let plane = kept((loopback(), 0));
    let config = strandway_udp::Config::new(&quick.key).expect("long enough").plane(plane);
    let mut node = strandway_udp::Node::bind(config).expect("a socket");
    node.connect(&[to]).expect("a call");
    let began = Instant::now();
    loop {
        if let Some(strandway_udp::Completion::Closed { .. }) = node.wait(Duration::from_millis(10)).expect("works") {
            break;
        }
        assert!(began.elapsed() < LONG, "the connection stays");
    }
    assert_eq!(mover.poll(8).expect("works"), [], "the application never heard of it");
}

#[test]
fn many_threads_share_a_mover() {
    let [a, b] = pair(&options());
    let (a, b) = (Arc::new(a), Arc::new(b));
    let rounds = 200;
    let into = memory(&b.mover, vec![0; 1 << 16]);
    let out = memory(&a.mover, vec![1; 1 << 16]);
    std::thread::scope(|scope| {
        for tag in 0..4u64 {
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            scope.spawn(move || {
                for round in 0..rounds {
                    b.mover.receive(b.connection, into, tag * 100, 100, tag, round).expect("posted");
                    a.mover.send(a.connection, out, 0, round % 101, tag, round).expect("posted");
                }
            });
        }
        for side in [&a, &b] {
            scope.spawn(move || {
                let (mut seen, began) = (0, Instant::now());
                while seen < 4 * rounds {
                    let events = side.mover.wait(64, Duration::from_millis(100)).expect("works");
                    assert!(events.iter().all(|event| event.code == Code::Ok), "{events:?}");
                    seen += events.len() as u64;
                    assert!(began.elapsed() < LONG, "{seen} events");
                }
            });
        }
    });
    assert_eq!(a.mover.revoke(RemoteRegion::to_write(1, 1)), Ok(false));
}

#[test]
fn reads_and_atomic_operations_end_with_events_of_their_own() {
    for progress in [Progress::Thread, Progress::Callers] {
        let [mut a, mut b] = pair(&Options { progress, ..options() });
        let (into, there) =
            (memory(&a.mover, vec![0; 70_000]), memory(&b.mover, (0..70_000).map(|i| i as u8).collect()));
        let shown: &'static [u8] = vec![5; 100].leak();
        let shown = b.mover.show(shown.as_ptr().addr(), 100, || shown).expect("registered");
        let remote = b.mover.expose_for(b.connection, there, 0, 70_000, Rights::READ).expect("a key");
        for (context, at) in [(1, 0), (2, 30_000), (3, 69_999)] {
            a.mover.read(a.connection, into, at, 70_000 - at, remote, at, context).expect("posted");
        }
        let mut ended = Vec::new();
        while ended.len() < 3 {
            b.mover.progress().expect("works");
            ended.extend(a.mover.wait(4, Duration::from_millis(1)).expect("works"));
        }
        let ended: Vec<_> = ended.into_iter().map(|e| (e.kind, e.code, e.context, e.bytes)).collect();
        let done = |context, bytes| (EventKind::ReadDone, Code::Ok, context, bytes);
        assert_eq!(ended, [done(1, 70_000), done(2, 40_000), done(3, 1)]);
        // The bytes go on to b, which adds to the first word.
        let words = b.mover.expose_for(0, there, 8, 16, Rights::ATOMIC | Rights::WRITE).expect("a key for all");
        a.mover.write(a.connection, into, 0, 8, words, 8, None, 4).expect("posted");
        a.mover.fetch_add(a.connection, words, 8, 10, 5).expect("posted");
        a.mover.compare_swap(a.connection, words, 8, 1, 2, 6).expect("posted");
        let mut fetched = Vec::new();
        while fetched.len() < 3 {
            b.mover.progress().expect("works");
            fetched.extend(a.mover.wait(4, Duration::from_millis(1)).expect("works"));
        }
        let first = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        let fetched: Vec<_> = fetched.into_iter().map(|e| (e.kind, e.context, e.word)).collect();
        let atomic = |context, word| (EventKind::AtomicDone, context, word);
        assert_eq!(fetched, [(EventKind::WriteDone, 4, 0), atomic(5, first), atomic(6, first + 10)]);
        // Mistakes that this side sees, and mistakes that the peer refuses.
        let refused =
            |a: &Party, remote, at| a.mover.read(a.connection, into, 0, 10, remote, at, 7).expect_err("wrong").code;
        assert_eq!(refused(&a, words, 0), Code::NoRight);
        assert_eq!(refused(&a, remote, 69_991), Code::Range);
        assert_eq!(a.mover.fetch_add(a.connection, remote, 0, 1, 7).expect_err("wrong").code, Code::NoRight);
        assert_eq!(b.mover.expose_for(0, shown, 0, 100, Rights::WRITE).expect_err("shown").code, Code::ReadOnly);
        let shown = b.mover.expose_for(0, shown, 0, 100, Rights::READ).expect("a key");
        assert_eq!(b.mover.revoke(shown), Ok(true));
        let wide = RemoteRegion { bytes: 1 << 40, ..remote };
        let wrong = RemoteRegion { rights: Rights::READ, ..words };
        for (claimed, at, code) in
            [(shown, 0, Code::NoKey), (wide, 69_991, Code::RemoteRange), (wrong, 0, Code::NoRight)]
        {
            a.mover.read(a.connection, into, 0, 10, claimed, at, 8).expect("posted");
            let ended = loop {
                b.mover.progress().expect("works");
                if let Some(event) = a.mover.wait(1, Duration::from_millis(1)).expect("works").pop() {
                    break event;
                }
            };
            assert_eq!((ended.kind, ended.code, ended.context), (EventKind::ReadDone, code, 8));
        }
        // The end of the connection ends reads, too.
        a.mover.read(a.connection, into, 0, 70_000, remote, 0, 9).expect("posted");
        a.mover.close(a.connection).expect("open");
        let ended = a.until(EventKind::ReadDone);
        assert_eq!((ended.code, ended.context), (Code::ClosedHere, 9));
        a.mover.release(into).expect("unused");
        b.until(EventKind::Closed);
        b.mover.release(there).expect("unused");
    }
}
