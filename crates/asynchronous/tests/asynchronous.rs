//! Futures over nodes with threads of their own: nothing is lost when futures are dropped, connections closed or nodes
//! ended.

use super::executor::{block_on, join, poll_once};
use super::support::{config, pattern, v6};
use proptest::prelude::*;
use std::net::SocketAddrV6;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;
use strandway_asynchronous::{AsyncError, AsyncNode, Peer, Pending};
use strandway_udp::{Config, Error, Limits, Node, Reason, Region, RemoteRegion, Timeouts};

fn addresses(node: &AsyncNode) -> Vec<SocketAddrV6> {
    node.addresses().iter().copied().map(v6).collect()
}

fn pair(config: Config) -> (Peer, Peer) {
    let server = AsyncNode::spawn(config.clone()).expect("sockets");
    let client = AsyncNode::spawn(config).expect("sockets");
    let here = block_on(client.connect(&addresses(&server))).expect("a connection");
    let there = block_on(server.accept()).expect("its other end");
    assert!(there.from().is_some() && here.from().is_none());
    (here, there)
}

/// Memory of `peer`'s node, exposed to its peer.
fn exposed(peer: &Peer, bytes: usize) -> (Region, RemoteRegion) {
    let region = block_on(peer.register(vec![0; bytes])).expect("registered");
    (region, block_on(peer.expose(region, 0..bytes)).expect("a key"))
}

/// Keeps the thread of `node` busy until the returned sender is dropped, so that the node answers nothing meanwhile.
fn held(node: &AsyncNode, region: Region) -> mpsc::Sender<()> {
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut busy = node.with_memory(region, move |_| {
        begin.send(()).expect("the test waits for it");
        // It ends when the sender is dropped.
        let _ = released.recv();
    });
    assert!(poll_once(&mut busy).is_pending());
    begun.recv().expect("the node's thread is there");
    release
}

fn closed<T>(outcome: Result<T, AsyncError>) -> Reason {
    match outcome {
        Err(AsyncError::Closed(reason)) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it went well"),
    }
}

#[test]
fn writes_messages_and_control_messages_arrive() {
    let (here, there) = pair(config("uec", 2));
    let (inbox, remote) = exposed(&there, 100_000);
    let bytes = pattern(1, 100_000);
    block_on(async {
        let outbox = here.register(bytes.clone()).await?;
        here.write(outbox, 0..100_000, remote, 0, Some(7)).await?;
        assert_eq!(there.written().await?, (7, 100_000));
        assert_eq!(there.node().read(inbox, 0..100_000).await?, bytes);
        assert_eq!(there.node().with_memory(inbox, |memory| memory.len()).await?, 100_000);

        let controls = there.register(vec![0; 8]).await?;
        let mut receive = there.recv(controls, 2..8);
        assert!(poll_once(&mut receive).is_pending());
        here.send(outbox, 0..5).await?;
        assert_eq!(receive.await?, 5);
        assert_eq!(there.node().deregister(controls).await?[2..7], bytes[..5]);
        assert!(here.counters().await?.fresh_bytes >= 100_005);

        let range = there.node().read(inbox, 1..100_001).await;
        assert!(matches!(range, Err(AsyncError::Call(Error::Range { .. }))));
        assert!(matches!(here.write(outbox, 0..9, remote, 99_999, None).await, Err(AsyncError::Call(_))));
        Ok::<(), AsyncError>(())
    })
    .expect("all of it works");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each operation writes a part of its own; some futures are dropped at once, some later. All parts arrive.
    #[test]
    fn dropped_futures_lose_nothing_that_was_posted(
        parts in prop::collection::vec((1_usize..6_000, 0..4_u8), 1..120),
        room in 1_usize..200,
        planes in 1_usize..3,
    ) {
        let (here, there) = pair(Config { limits: Limits { operations: room, ..Limits::default() }, ..config("uec", planes) });
        let total: usize = parts.iter().map(|(bytes, _)| bytes).sum();
        let (inbox, remote) = exposed(&there, total);
        let bytes = pattern(total as u64, total);
        let outbox = block_on(here.register(bytes.clone())).expect("registered");
        let (mut kept, mut dropped, mut at) = (Vec::new(), 0, 0);
        for (index, (length, fate)) in parts.into_iter().enumerate() {
            let mut write = here.write(outbox, at..at + length, remote, at as u64, Some(index as u32));
            let first = poll_once(&mut write);
            at += length;
            match fate {
                // A dropped future's operation continues only if there was room for it.
                0 if kept.len() + dropped < room => dropped += 1,
                _ => kept.push((first, write)),
            }
        }
        let waiting: Vec<Pending<()>> =
            kept.into_iter().filter(|(first, _)| first.is_pending()).map(|(_, write)| write).collect();
        prop_assert!(join(waiting).into_iter().all(|outcome| outcome.is_ok()));
        // Writes complete in order, so all operations posted before this one are there.
        block_on(here.write(outbox, 0..0, remote, 0, Some(u32::MAX))).expect("written");
        let mut expected = 0;
        loop {
            match block_on(there.written()).expect("written") {
                (u32::MAX, 0) => break,
                (immediate, _) => prop_assert_eq!(immediate, expected),
            }
            expected += 1;
        }
        prop_assert!(block_on(there.node().read(inbox, 0..total)).expect("read") == bytes);
        // No operation uses the region any more.
        prop_assert!(block_on(here.node().deregister(outbox)).expect("free") == bytes);
    }
}

#[test]
fn futures_wait_for_room_and_those_dropped_before_are_withdrawn() {
    let (here, there) = pair(Config { limits: Limits { operations: 2, ..Limits::default() }, ..config("uec", 1) });
    let outbox = block_on(here.register(b"abcde".to_vec())).expect("registered");
    // The peer posts no receive, so two are under way and three wait.
    let mut sends: Vec<Pending<()>> = (0..5).map(|i| here.send(outbox, i..i + 1)).collect();
    assert!(sends.iter_mut().all(|send| poll_once(send).is_pending()));
    // The first has been posted and continues; the fourth has not.
    drop(sends.remove(3));
    drop(sends.remove(0));
    let controls = block_on(there.register(vec![0; 4])).expect("registered");
    let mut receives: Vec<Pending<u64>> = (0..4).map(|i| there.recv(controls, i..i + 1)).collect();
    let busy = held(there.node(), controls);
    assert!(receives.iter_mut().all(|receive| poll_once(receive).is_pending()));
    drop(busy);
    assert!(join(sends).into_iter().all(|outcome| outcome.is_ok()));
    assert!(join(receives).into_iter().all(|outcome| outcome.expect("received") == 1));
    assert_eq!(block_on(there.node().read(controls, 0..4)).expect("read"), b"abce");
}

#[test]
fn when_the_peer_goes_everything_says_so() {
    let (here, there) = pair(config("uec", 1));
    let region = block_on(here.register(vec![0; 8])).expect("registered");
    let (mut send, mut receive, mut written) = (here.send(region, 0..4), here.recv(region, 4..8), here.written());
    assert!(poll_once(&mut send).is_pending() && poll_once(&mut receive).is_pending());
    assert!(poll_once(&mut written).is_pending());
    drop(there);
    assert_eq!(closed(block_on(send)), Reason::ByPeer);
    assert_eq!(closed(block_on(receive)), Reason::ByPeer);
    assert_eq!(closed(block_on(written)), Reason::ByPeer);
    assert_eq!(closed(block_on(here.send(region, 0..4))), Reason::ByPeer, "later ones as well");
    assert_eq!(closed(block_on(here.expose(region, 0..4))), Reason::ByPeer);
    assert!(matches!(here.ended(), Some(AsyncError::Closed(Reason::ByPeer))));
    block_on(here.node().deregister(region)).expect("nothing uses it");
}

#[test]
fn a_peer_that_dies_without_a_word_is_noticed() {
    let quick =
        Config { timeouts: Timeouts { peer: Duration::from_millis(300), ..Timeouts::default() }, ..config("uec", 1) };
    let mut server = Node::bind(quick.clone()).expect("sockets");
    let there: Vec<SocketAddrV6> = server.addresses().expect("bound").into_iter().map(v6).collect();
    let client = AsyncNode::spawn(quick).expect("sockets");
    let mut connecting = client.connect(&there);
    assert!(poll_once(&mut connecting).is_pending());
    while server.wait(Duration::from_secs(5)).expect("it waits").is_none() {}
    let peer = block_on(connecting).expect("connected");
    // From here on the server's node is not driven any more.
    let region = block_on(peer.register(vec![0; 8])).expect("registered");
    assert_eq!(closed(block_on(peer.send(region, 0..8))), Reason::PeerSilent);
}

#[test]
fn a_missing_listener_is_an_answer() {
    let client = AsyncNode::spawn(Config {
        timeouts: Timeouts { handshake: Duration::from_millis(100), ..Timeouts::default() },
        ..config("uec", 1)
    });
    let client = client.expect("sockets");
    let nobody = "[::1]:9".parse().expect("an address");
    assert_eq!(closed(block_on(client.connect(&[nobody]))), Reason::NoAnswer);
    assert!(matches!(block_on(client.connect(&[])), Err(AsyncError::Call(Error::Config(_)))));
}

#[test]
fn closing_here_ends_what_is_under_way_and_the_last_clone_closes() {
    let (here, there) = pair(config("uec", 1));
    let region = block_on(here.register(vec![0; 8])).expect("registered");
    let mut receive = here.recv(region, 0..8);
    assert!(poll_once(&mut receive).is_pending());
    block_on(here.close()).expect("closed");
    assert!(matches!(block_on(receive), Err(AsyncError::Call(Error::NoConnection))));
    block_on(here.close()).expect("twice is harmless");
    assert_eq!(closed(block_on(there.written())), Reason::ByPeer);

    let again = block_on(here.node().connect(&addresses(there.node()))).expect("another connection");
    let other = block_on(there.node().accept()).expect("its other end");
    let mut written = again.clone().written();
    assert!(poll_once(&mut written).is_pending());
    drop(again);
    assert!(other.ended().is_none(), "the future holds it open");
    drop(written);
    assert_eq!(closed(block_on(other.written())), Reason::ByPeer);
}

#[test]
fn the_result_of_a_dropped_future_is_not_lost_or_leaked() {
    let (here, there) = pair(config("uec", 1));
    // An accept that is dropped after its connection has come leaves the connection to the next accept.
    let mut accept = there.node().accept();
    assert!(poll_once(&mut accept).is_pending());
    let second = block_on(here.node().connect(&addresses(there.node()))).expect("connected");
    drop(accept);
    let other = block_on(there.node().accept()).expect("still there");
    // A connect that is dropped gives its connection up.
    let region = block_on(there.register(vec![0; 8])).expect("registered");
    let mut connect = here.node().connect(&addresses(there.node()));
    let busy = held(there.node(), region);
    assert!(poll_once(&mut connect).is_pending());
    drop(busy);
    let third = block_on(there.node().accept()).expect("it comes about");
    drop(connect);
    assert_eq!(closed(block_on(third.written())), Reason::ByPeer);
    // A buffer whose future was dropped is freed: the next one gets its number.
    let first = block_on(here.register(vec![0; 8])).expect("registered");
    let mut register = here.register(vec![1; 8]);
    let busy = held(here.node(), first);
    assert!(poll_once(&mut register).is_pending());
    drop(busy);
    // Calls are answered in order, so the buffer is registered by now.
    assert_eq!(block_on(here.node().read(first, 0..8)).expect("read"), [0; 8]);
    drop(register);
    let region = block_on(here.register(vec![2; 8])).expect("registered");
    assert!(format!("{region:?}").contains("generation: 1"), "{region:?}");
    drop((second, other));
}

#[test]
fn a_closure_that_panics_ends_the_node_and_nobody_waits_in_vain() {
    let (here, there) = pair(config("uec", 1));
    let region = block_on(here.register(vec![0; 8])).expect("registered");
    let mut receive = here.recv(region, 0..8);
    let mut accept = here.node().accept();
    assert!(poll_once(&mut receive).is_pending() && poll_once(&mut accept).is_pending());
    let panicked = block_on(here.node().with_memory(region, |_| -> u8 { panic!("on purpose") }));
    assert!(matches!(panicked, Err(AsyncError::Stopped)));
    assert!(matches!(block_on(receive), Err(AsyncError::Stopped)));
    assert!(matches!(block_on(accept), Err(AsyncError::Stopped)));
    assert!(matches!(block_on(here.send(region, 0..8)), Err(AsyncError::Stopped)));
    assert!(matches!(block_on(here.register(vec![])), Err(AsyncError::Stopped)));
    assert_eq!(closed(block_on(there.written())), Reason::ByPeer, "a node that unwinds says goodbye");
}

#[test]
fn tasks_on_many_threads_share_a_node() {
    let (here, there) = pair(config("uec", 1));
    let (inbox, remote) = exposed(&there, 8 * 1_000);
    std::thread::scope(|scope| {
        for task in 0..8_usize {
            let here = here.clone();
            scope.spawn(move || {
                let outbox = block_on(here.register(vec![task as u8 + 1; 1_000])).expect("registered");
                for part in 0..50 {
                    let at = part * 20;
                    let write = here.write(outbox, at..at + 20, remote, (task * 1_000 + at) as u64, None);
                    block_on(write).expect("written");
                }
                block_on(here.node().deregister(outbox)).expect("free");
            });
        }
    });
    let memory = block_on(there.node().read(inbox, 0..8_000)).expect("read");
    assert!(memory.chunks(1_000).enumerate().all(|(task, part)| part.iter().all(|&byte| byte == task as u8 + 1)));
    assert!(matches!(poll_once(&mut there.written()), Poll::Pending), "no write carried an immediate");
}
