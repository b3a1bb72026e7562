//! The search for the largest packets that pass to a peer on all planes: path MTU discovery by probes (RFC 8899), with
//! many sizes at once, so that it ends after three round trips.
//!
//! It begins with the smallest size and the largest one, since most paths take what their interfaces take. If the
//! largest does not pass, the usual sizes between the two follow, then sizes between the largest that passed and the next
//! one.

use strandway_proto::{Span, Time};

/// Packet sizes that networks usually have below those of their interfaces, IP headers included: jumbo frames, Ethernet,
/// and Ethernet less the headers of PPPoE, VXLAN, GRE, WireGuard and several tunnels; the last is the least that IPv6
/// allows. Ascending.
pub const USUAL_PACKETS: [u32; 11] = [1_280, 1_360, 1_400, 1_420, 1_450, 1_492, 1_500, 2_048, 4_352, 8_900, 9_000];
/// The smallest packet that is asked for: every path of IPv6 takes it.
pub(crate) const LEAST: u32 = USUAL_PACKETS[0];
/// Rounds of questions: ours.
const ROUNDS: u32 = 3;
/// Sizes between two others that one round asks for: ours.
const BETWEEN: u32 = 12;
/// A size is near enough to the next one that does not pass: ours.
const NEAR: u32 = 16;
/// After the first answer of a round, the others have this time, or a quarter of a round trip if that is longer: ours.
/// They were sent together, and a busy host may pause between them.
const SETTLE: Span = Span::from_ms(20);
/// The first questions are repeated if nothing was answered for this time, then for twice the time, and so on: ours.
const AGAIN: Span = Span::from_ms(50);
/// The number of times that the first questions are asked: ours.
const TRIES: u32 = 3;

/// The next thing that a search wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask on all planes for packets of these sizes, ascending.
    Ask(Vec<u32>),
    /// Nothing until this time, unless an answer comes.
    Wait(Time),
    /// It is over: the largest packet that passes on every plane that answered. `None` if no plane answered.
    Done(Option<u32>),
}

/// A search to one peer.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    widest: u32,
    /// By plane: the largest size that passed; 0 before the first answer.
    passed: Vec<u32>,
    /// All sizes that were asked for.
    asked: Vec<u32>,
    /// Rounds that have begun, and how often the first one was asked.
    round: u32,
    tries: u32,
    began_at: Time,
    asked_at: Time,
    /// When the first answer of this round came.
    heard_at: Option<Time>,
    /// The time from the first question to the first answer.
    trip: Span,
}

impl Search {
    /// A search over this number of planes, for packets of at most `widest` bytes.
    pub(crate) fn new(planes: usize, widest: u32) -> Search {
        Search {
            widest,
            passed: vec![0; planes],
            asked: Vec::new(),
            round: 0,
            tries: 0,
            began_at: Time::ZERO,
            asked_at: Time::ZERO,
            heard_at: None,
            trip: Span::ZERO,
        }
    }

    /// A packet of this size has passed there and back.
    pub(crate) fn handle_answer(&mut self, now: Time, plane: usize, size: u32) {
        if let Some(passed) = self.passed.get_mut(plane) {
            *passed = (*passed).max(size);
            self.heard_at.get_or_insert(now);
            if self.trip == Span::ZERO {
                self.trip = now.since(self.began_at);
            }
        }
    }

    /// The next step. Call it after each answer, and when the time of [`Step::Wait`] has come.
    pub(crate) fn step(&mut self, now: Time) -> Step {
        if self.round == 0 {
            (self.round, self.began_at) = (1, now);
            return self.ask(now, vec![LEAST.min(self.widest), self.widest]);
        }
        if self.passed.iter().all(|passed| *passed >= self.widest) {
            return Step::Done(Some(self.widest));
        }
        match self.heard_at {
            None if self.round == 1 => {
                let until = self.asked_at + Span(AGAIN.0 << (self.tries - 1));
                if now < until {
                    Step::Wait(until)
                } else if self.tries < TRIES {
                    self.ask(now, self.asked.clone())
                } else {
                    Step::Done(None)
                }
            }
            heard => {
                // In later rounds perhaps no size passes, or a late answer of an earlier round is the first one.
                let first = if self.round == 1 { self.asked_at } else { self.asked_at + self.trip };
                let until = heard.map_or(first, |heard| heard.max(first)) + SETTLE.max(Span(self.trip.0 / 4));
                if now < until { Step::Wait(until) } else { self.go_on(now) }
            }
        }
    }

    /// A round has ended.
    fn go_on(&mut self, now: Time) -> Step {
        let planes = self.passed.iter().copied().filter(|passed| *passed > 0);
        let Some(passed) = planes.min() else { return Step::Done(None) };
        let fails = self.asked.iter().copied().filter(|asked| *asked > passed).min();
        let Some(fails) = fails.filter(|fails| self.round < ROUNDS && fails - passed > NEAR) else {
            return Step::Done(Some(passed));
        };
        let between = |size: &u32| *size > passed && *size < fails;
        let mut sizes: Vec<u32> = USUAL_PACKETS.into_iter().filter(between).collect();
        if sizes.is_empty() {
            sizes = (1..=BETWEEN).map(|i| passed + (fails - passed) * i / (BETWEEN + 1)).filter(between).collect();
            sizes.dedup();
        }
        self.round += 1;
        self.ask(now, sizes)
    }

    fn ask(&mut self, now: Time, mut sizes: Vec<u32>) -> Step {
        sizes.dedup();
        self.tries += 1;
        (self.asked_at, self.heard_at) = (now, None);
        self.asked.extend(sizes.iter().filter(|size| !self.asked.contains(size)).copied().collect::<Vec<_>>());
        Step::Ask(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome on planes that carry packets of these sizes (0: nothing passes), and the rounds and milliseconds that
    /// it takes, with round trips of `trip`.
    fn found(widest: u32, planes: &[u32], trip: Span) -> (Option<u32>, u32, u64) {
        let mut search = Search::new(planes.len(), widest);
        let (mut now, mut asks) = (Time::ZERO, 0);
        let mut arriving: Vec<(Time, usize, u32)> = Vec::new();
        loop {
            match search.step(now) {
                Step::Ask(sizes) => {
                    assert!(sizes.is_sorted() && sizes.last() <= Some(&widest), "{sizes:?}");
                    asks += 1;
                    let passes = |plane: usize| sizes.iter().filter(move |size| **size <= planes[plane]);
                    arriving.extend((0..planes.len()).flat_map(|p| passes(p).map(move |size| (now + trip, p, *size))));
                }
                Step::Wait(until) => {
                    let next = arriving.iter().map(|(at, ..)| *at).min().filter(|at| *at <= until);
                    now = next.unwrap_or(until);
                    let (due, later) = arriving.into_iter().partition(|(at, ..)| *at <= now);
                    arriving = later;
                    let due: Vec<(Time, usize, u32)> = due;
                    due.into_iter().for_each(|(at, plane, size)| search.handle_answer(at, plane, size));
                }
                Step::Done(size) => return (size, asks, now.since(Time::ZERO).0 / Span::from_ms(1).0),
            }
        }
    }

    #[test]
    fn paths_as_wide_as_their_interfaces_take_one_round_trip() {
        for widest in [1_280, 1_500, 9_000, 65_536] {
            for trip in [1, 100] {
                let (size, asks, ms) = found(widest, &[widest; 2], Span::from_ms(trip));
                // The first questions are repeated meanwhile.
                assert!(size == Some(widest) && ms == trip && asks <= 2, "{widest}: {size:?}, {asks}, {ms} ms");
            }
        }
    }

    #[test]
    fn a_narrow_hop_is_found_within_three_round_trips_and_the_waits_after_them() {
        for hop in 1_280..9_000 {
            let (size, asks, ms) = found(9_000, &[hop], Span::from_ms(10));
            let size = size.expect("small packets pass");
            let near = if hop < 1_500 { 16 } else { (hop / 8).max(16) };
            assert!(size <= hop && hop - size <= near, "{hop}: {size}");
            assert!(asks <= 3 && ms <= 3 * (10 + 20), "{hop}: {asks} rounds, {ms} ms");
        }
        for hop in [1_500, 4_352, 8_900] {
            assert_eq!(found(9_000, &[hop], Span::from_ms(10)).0, Some(hop), "a usual size is found exactly");
        }
        let (size, _, ms) = found(9_000, &[4_000], Span::from_ms(200));
        assert!(size > Some(3_800) && ms <= 3 * 250 + 150, "{size:?} in {ms} ms");
    }

    #[test]
    fn the_narrowest_plane_decides_and_a_silent_one_does_not() {
        let trip = Span::from_ms(1);
        assert_eq!(found(9_000, &[9_000, 1_500], trip).0, Some(1_500));
        assert_eq!(found(9_000, &[0, 9_000], trip).0, Some(9_000));
        assert_eq!(found(9_000, &[1_500, 0, 9_000], trip).0, Some(1_500));
        assert_eq!(found(9_000, &[0, 0], trip), (None, TRIES, 350), "nobody answers");
        assert_eq!(found(9_000, &[1_000], trip).0, None);
    }

    #[test]
    fn a_late_answer_of_an_earlier_round_counts() {
        let mut search = Search::new(1, 9_000);
        let at = |ms: u64| Time::ZERO + Span::from_ms(ms);
        assert_eq!(search.step(at(0)), Step::Ask(vec![1_280, 9_000]));
        search.handle_answer(at(1), 0, 1_280);
        assert_eq!(search.step(at(1)), Step::Wait(at(21)));
        assert!(matches!(search.step(at(21)), Step::Ask(sizes) if sizes.contains(&1_500)));
        search.handle_answer(at(22), 0, 9_000);
        assert_eq!(search.step(at(22)), Step::Done(Some(9_000)));
    }
}
