//! Which connections may join which monitor.

use super::*;
use crate::handshake::Secrets;

const HOME: &str = "[fd00::1]:1000";
const AWAY: &str = "[fd00::2]:1000";

fn at(address: &str) -> Vec<Option<SocketAddrV6>> {
    vec![Some(address.parse().expect("an address")), None]
}

fn secrets(number: u8) -> Secrets {
    Secrets { from_caller: [number; 32], to_caller: [!number; 32] }
}

/// A node's monitors: one connection for each number, all to the peer at this address.
fn node(numbers: &[u8], address: &str) -> (PeerMonitors, Vec<u32>) {
    let mut monitors = PeerMonitors::new(Span::from_ms(40), Span::from_ms(3_000));
    let begin = |(slot, &number): (usize, &u8)| {
        monitors.begin(Time::ZERO, (key(&secrets(number)), 0), at(address).into_iter(), &[], slot as u32, true)
    };
    let begun = numbers.iter().enumerate().map(begin).collect();
    (monitors, begun)
}

/// The caller calls its second connection 1,000; its peer calls the same connection 2,000.
#[test]
fn the_owner_of_both_connections_alone_can_prove_it() {
    let (ours, monitor) = node(&[1, 2], HOME);
    let offered = ours.offer(monitor[1], &at(HOME), 7, 2_000).expect("an older one is there");
    assert!(ours.offer(monitor[0], &at(HOME), 7, 2_000).is_none(), "the older one offers nothing");
    let (mut theirs, their) = node(&[1, 2], AWAY);
    let answer = theirs.recognise((their[1], 1), &at(AWAY), 7, &offered, (2_000, 1_000)).expect("it is the same");
    assert_eq!(theirs.joins, [(1, their[0])]);
    let (mut ours, monitor) = node(&[1, 2], HOME);
    ours.handle_proof((monitor[1], 1), &at(HOME), 7, &answer, 1_000);
    assert_eq!(ours.joins, [(1, monitor[0])]);
    // A node that has the second connection but not the first; another ping; another connection; another address.
    type Case = (&'static [u8], &'static str, u64, u64);
    let cases: [Case; 4] =
        [(&[3, 2], AWAY, 7, 2_000), (&[1, 2], AWAY, 8, 2_000), (&[1, 2], AWAY, 7, 2_001), (&[1, 2], HOME, 7, 2_000)];
    for (numbers, place, number, local) in cases {
        let (mut theirs, their) = node(numbers, AWAY);
        let answer = theirs.recognise((their[1], 1), &at(place), number, &offered, (local, 1_000));
        assert!(answer.is_none() && theirs.joins.is_empty(), "{numbers:?} {place} {number} {local}");
    }
    // A ping's proof that is thrown back is not valid in a pong.
    let (mut ours, monitor) = node(&[1, 2], HOME);
    ours.handle_proof((monitor[1], 1), &at(HOME), 7, &offered, 2_000);
    assert!(ours.joins.is_empty());
}

#[test]
fn connections_that_move_one_after_the_other_find_each_other_again() {
    let (mut monitors, begun) = node(&[1, 2], HOME);
    monitors.leave(begun[1], 1, false);
    monitors.join(Time::ZERO, begun[0], 1, true);
    let first = monitors.handle_move(Time::ZERO, begun[0], (0, false), 0, &at(AWAY));
    assert_ne!(first, begun[0], "the other one has not moved yet");
    let second = monitors.handle_move(Time::ZERO, begun[0], (1, true), 0, &at(AWAY));
    assert_eq!((first, monitors.count_peers()), (second, 1));
    let one = monitors.get(first).expect("it is there");
    assert_eq!((&one.members[..], one.active), (&[0, 1][..], 1));
    monitors.leave(first, 0, false);
    monitors.leave(first, 1, true);
    assert_eq!((monitors.count_peers(), monitors.by_address.len(), monitors.deadlines.len()), (0, 0, 0));
}
