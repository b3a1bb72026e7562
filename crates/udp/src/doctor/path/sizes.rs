//! The search for the largest packet that passes, each way by itself.

use super::message::{HEAD, Request, Wish};
use super::probe_socket::ProbeSocket;
use super::{PathFacts, answer_timeout};
use crate::address::shown;
use crate::error::Error;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv6Addr};

/// Sizes of a round. Ours: a range of 9,000 bytes is down to one byte after four rounds.
const SIZES: usize = 15;
/// Datagrams of each size, since some may be lost.
const COPIES: usize = 3;
/// Rounds: 16 to the power of four is more than any MTU.
const ROUNDS: usize = 5;

/// The direction of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    There,
    Back,
}

/// The outcome of a search. All sizes are of whole packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The largest packet that passed.
    pub(super) largest: usize,
    /// The largest one that was tried.
    pub(super) tried: usize,
    /// The MTU in an ICMP "packet too big", and its sender, if that is known.
    pub(super) told: Option<(usize, Option<IpAddr>)>,
    /// The sending host's own kernel refuses more.
    pub(super) own: bool,
}

/// Looks for the largest packet of at most `most` bytes that passes.
pub(super) fn search(line: &mut ProbeSocket, way: Direction, most: usize, facts: &PathFacts) -> Result<Found, Error> {
    let least = (HEAD + facts.headers).min(most);
    let mut found = Found { largest: least, tried: most, told: None, own: false };
    let mut fails = most + 1;
    let mut tries = vec![most];
    for _ in 0..=ROUNDS {
        let passed = probe(line, way, &tries, facts, &mut found)?;
        for (&size, passed) in tries.iter().zip(&passed) {
            if *passed {
                found.largest = found.largest.max(size);
            }
        }
        fails = tries.iter().copied().filter(|size| *size > found.largest).chain([fails]).min().unwrap_or(fails);
        if fails <= found.largest + 1 {
            break;
        }
        tries = between(found.largest, fails, found.told.map(|(mtu, _)| mtu));
    }
    Ok(found)
}

/// The next sizes to try between one that passes and one that does not.
fn between(passes: usize, fails: usize, told: Option<usize>) -> Vec<usize> {
    let gap = fails - passes;
    let even = (1..=SIZES).map(|i| passes + gap * i / (SIZES + 1));
    // A size that a router told is most likely exact.
    let hints = told.into_iter().flat_map(|mtu| [mtu, mtu + 1]);
    let mut tries: Vec<usize> = even.chain(hints).filter(|size| (passes + 1..fails).contains(size)).collect();
    tries.sort_unstable();
    tries.dedup();
    tries
}

/// Which of these packets pass?
fn probe(
    line: &mut ProbeSocket,
    way: Direction,
    tries: &[usize],
    facts: &PathFacts,
    found: &mut Found,
) -> Result<Vec<bool>, Error> {
    line.next_train();
    let mut passed = vec![false; tries.len()];
    let payload = |size: usize| size.saturating_sub(facts.headers).max(HEAD);
    for _ in 0..COPIES {
        for (number, &size) in (0..).zip(tries) {
            let length = if way == Direction::Back { payload(size) as u16 } else { HEAD as u16 };
            let request = Request { number, length, ..line.request(Wish::Echo) };
            found.own |= !line.send(&request, payload(size), 0) && line.refusal == Some(Errno::EMSGSIZE);
        }
    }
    let mut missing = tries.len();
    line.receive(answer_timeout(facts.rtt), |heard| {
        let at = heard.answer.number as usize;
        let whole = way == Direction::There || tries.get(at).is_some_and(|&size| heard.bytes == payload(size));
        if let Some(passed) = passed.get_mut(at).filter(|passed| whole && !**passed) {
            *passed = true;
            missing -= 1;
        }
        missing > 0
    })?;
    for error in line.errors.iter().filter(|error| error.errno == Errno::EMSGSIZE && error.mtu > 0) {
        if way == Direction::There {
            let by = error.by.map(|by: Ipv6Addr| shown((by, 0)).ip());
            found.told = Some((error.mtu as usize, by));
        }
    }
    if missing > 0 {
        let counts = line.report(facts.rtt)?.unwrap_or_default();
        match way {
            // The way back is short of nothing: a request that arrived has passed.
            Direction::There => {
                for (at, passed) in passed.iter_mut().enumerate() {
                    *passed |= counts.seen >> at & 1 == 1;
                }
            }
            Direction::Back => {
                found.own |= counts.refused > 0;
                if counts.too_big > 0 {
                    found.told = Some((counts.too_big as usize, None));
                }
            }
        }
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounds that a path with this MTU takes, and the size that they find.
    fn rounds(mtu: usize, most: usize, told: Option<usize>) -> (usize, usize) {
        let (mut passes, mut fails) = (128, most);
        for round in 0..20 {
            if fails <= passes + 1 {
                return (round, passes);
            }
            let tries = between(passes, fails, told);
            assert!(tries.len() <= SIZES + 2 && tries.iter().all(|size| (passes + 1..fails).contains(size)));
            passes = tries.iter().copied().filter(|size| *size <= mtu).max().unwrap_or(passes);
            fails = tries.iter().copied().find(|size| *size > mtu).unwrap_or(fails);
        }
        panic!("no end");
    }

    #[test]
    fn every_mtu_is_found_to_the_byte_in_four_rounds_and_one_that_a_router_told_in_one() {
        for mtu in (128..9_000).chain([65_000, 65_534]) {
            let most = if mtu < 9_000 { 9_001 } else { 65_536 };
            let (took, found) = rounds(mtu, most, None);
            assert!(took <= ROUNDS - usize::from(most == 9_001) && found == mtu, "{mtu}: {found} in {took}");
            assert_eq!(rounds(mtu, most, Some(mtu)), (usize::from(mtu > 128 || mtu + 1 < most), mtu));
        }
    }
}
