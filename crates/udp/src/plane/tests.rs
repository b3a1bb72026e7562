//! The queues of a plane.

use super::*;
use proptest::prelude::*;

/// A plane to ourselves that sends nothing until it is flushed, and the lengths of the datagrams in its batches.
fn lengths(plane: &Plane) -> Vec<Vec<usize>> {
    let each = plane.batches.iter().map(|(_, batch)| batch.bytes().chunks(batch.segment).map(<[u8]>::len).collect());
    each.collect()
}

#[test]
fn short_ends_of_messages_share_a_system_call_unless_they_must_stay_in_order() {
    let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
    let config = Config::new(&[7; 32]).expect("long enough").plane(address);
    let push = |plane: &mut Plane, length: usize, number: u8, late| {
        let owner = Owner::Peer(address);
        let destination = Destination { to: address, source: 0, shard: 0, owner, late };
        plane.push(destination, Class::Data, length, |out| out.fill(number));
    };
    for late in [true, false] {
        let mut plane = Plane::open(address, &config).expect("a socket");
        let mut number = 0;
        for _ in 0..3 {
            for length in [1_000, 1_000, 70] {
                push(&mut plane, length, number, late);
                number += 1;
            }
        }
        if late {
            assert_eq!(lengths(&plane), [vec![1_000; 6], vec![70; 3]]);
            let firsts = |batch: &Batch| batch.bytes().chunks(batch.segment).map(|one| one[0]).collect::<Vec<_>>();
            assert_eq!(firsts(&plane.batches[0].1), [0, 1, 3, 4, 6, 7]);
            assert_eq!(firsts(&plane.batches[1].1), [2, 5, 8]);
        } else {
            assert_eq!(lengths(&plane), [[1_000, 1_000, 70], [1_000, 1_000, 70], [1_000, 1_000, 70]]);
        }
    }
    // A message that is alone leaves with one call, its end included.
    let mut plane = Plane::open(address, &config).expect("a socket");
    [1_000, 1_000, 70].into_iter().for_each(|length| push(&mut plane, length, 0, true));
    assert_eq!(lengths(&plane), [[1_000, 1_000, 70]]);
}

proptest! {
    /// Whatever is pushed leaves once, in batches that the kernel accepts.
    #[test]
    fn batches_have_equal_datagrams_but_for_the_last(
        pushes in prop::collection::vec((1usize..6, any::<bool>(), any::<bool>(), 0u16..2), 1..80),
    ) {
        let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
        let config = Config::new(&[7; 32]).expect("long enough").plane(address);
        let mut plane = Plane::open(address, &config).expect("a socket");
        let mut pushed = Vec::new();
        for (number, (length, late, control, port)) in pushes.into_iter().enumerate() {
            let to = SocketAddrV6::new(*address.ip(), 9 + port, 0, 0);
            let class = if control { Class::Control } else { Class::Data };
            let length = 100 * length;
            let before = plane.counters.send_calls;
            let destination = Destination { to, source: 0, shard: 0, owner: Owner::Peer(to), late };
            plane.push(destination, class, length, |out| out.fill(number as u8));
            if plane.counters.send_calls > before {
                pushed.clear();
            }
            pushed.push((number as u8, length));
            let mut waiting = Vec::new();
            for (_, batch) in &plane.batches {
                let each: Vec<&[u8]> = batch.bytes().chunks(batch.segment).collect();
                prop_assert_eq!(each.len(), batch.count);
                for one in each {
                    prop_assert!(one.iter().all(|byte| *byte == one[0]), "a datagram is one piece");
                    waiting.push((one[0], one.len()));
                }
            }
            waiting.sort_unstable();
            prop_assert_eq!(&waiting, &pushed);
        }
    }
}

#[test]
fn refusals_are_remembered_by_peer_and_bounded() {
    let address: SocketAddrV6 = "[::1]:0".parse().expect("an address");
    let config = Config::new(&[7; 32]).expect("long enough").plane(address);
    let mut plane = Plane::open(address, &config).expect("a socket");
    // Loopback does not accept a datagram of this length.
    let send = |plane: &mut Plane, port: u16, peer: bool| {
        let to = SocketAddrV6::new(*address.ip(), port, 0, 0);
        let owner = if peer { Owner::Peer(to) } else { Owner::Nobody };
        let destination = Destination { to, source: 0, shard: 0, owner, late: false };
        plane.push(destination, Class::Data, 70_000, |out| out.fill(0));
        plane.flush();
    };
    send(&mut plane, 9, false);
    assert_eq!((plane.take_failure(), plane.counters.refused), (None, 1), "it concerns no peer");
    (1..1_000).for_each(|port| send(&mut plane, port, true));
    assert_eq!((plane.failures.len(), plane.counters.refused), (FAILURES_MAX, 1_000));
    assert!(matches!(plane.take_failure(), Some((_, Failure::TooLarge))));
}
