//! One rank's part in a collective as a state machine. Its caller reports which messages arrived and ended, and asks
//! which message to send.

use crate::schedule::{Place, Rank, Schedule, Send};
use std::collections::VecDeque;
use std::fmt;

/// One rank of a collective. It moves no data and knows no network: its caller does both.
///
/// ```
/// use strandway_collective::{Algorithm, Member, Rank, Schedule};
/// let ring = Schedule::new(Algorithm::RingAllGather, 2, 1_000, 1).unwrap();
/// let mut member = Member::new(ring, Rank(0));
/// let send = member.poll_send().unwrap();
/// assert_eq!((send.to, send.bytes), (Rank(1), 500));
/// member.handle_sent(send.place).unwrap();
/// member.handle_received(Rank(1), send.place).unwrap();
/// assert!(member.finished());
/// ```
#[derive(Clone, Debug)]
pub struct Member {
    schedule: Schedule,
    rank: Rank,
    /// Four bits per message index: the state of the message that this rank sends with this index, and of the message
    /// that it receives with the same index.
    states: Vec<u8>,
    /// Messages that may be sent now, in the order in which they became ready.
    ready: VecDeque<u32>,
    /// Number of messages that have not arrived yet.
    missing: u32,
    /// Number of sends that have not ended yet.
    owed: u32,
}

/// The four events of a message, as bits.
const RECEIVED: u8 = 1;
const READY: u8 = 2;
const POSTED: u8 = 4;
const SENT: u8 = 8;

/// An event for a message that the schedule does not have, or that comes from another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexpected;

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the collective has no such message")
    }
}

impl std::error::Error for Unexpected {}

impl Member {
    /// A rank (below the schedule's number of ranks) at the start of a collective.
    pub fn new(schedule: Schedule, rank: Rank) -> Member {
        assert!(rank.0 < schedule.ranks(), "rank {} of {}", rank.0, schedule.ranks());
        let messages = schedule.messages();
        let mut member = Member {
            schedule,
            rank,
            states: vec![0; messages.div_ceil(2) as usize],
            ready: VecDeque::new(),
            missing: messages,
            owed: messages,
        };
        // Messages that need not wait for another one come first.
        for index in 0..messages {
            if !member.consider(index) {
                break;
            }
        }
        member
    }

    /// A whole message has arrived. Reporting it twice changes nothing.
    ///
    /// # Errors
    /// If this rank expects no such message; nothing has changed then.
    pub fn handle_received(&mut self, from: Rank, place: Place) -> Result<(), Unexpected> {
        let index = self.index(place)?;
        if self.schedule.receive(self.rank, index).from != from {
            return Err(Unexpected);
        }
        if !self.set(index, RECEIVED) {
            self.missing -= 1;
            self.consider_some(self.schedule.released_by_receipt(index));
        }
        Ok(())
    }

    /// A message of this rank has arrived at its receiver. Reporting it twice changes nothing.
    ///
    /// # Errors
    /// If this rank has not handed out such a message; nothing has changed then.
    pub fn handle_sent(&mut self, place: Place) -> Result<(), Unexpected> {
        let index = self.index(place)?;
        if !self.is(index, POSTED) {
            return Err(Unexpected);
        }
        if !self.set(index, SENT) {
            self.owed -= 1;
            self.consider_some(self.schedule.released_by_end(index));
        }
        Ok(())
    }

    /// The next message that may be sent now, if there is one.
    pub fn poll_send(&mut self) -> Option<Send> {
        let index = self.ready.pop_front()?;
        self.set(index, POSTED);
        self.consider_some(self.schedule.released_by_posting(index));
        Some(self.schedule.send(self.rank, index))
    }

    /// How many messages may be sent now.
    pub fn ready(&self) -> u32 {
        self.ready.len() as u32
    }

    /// True if every message of this rank's result has arrived.
    pub fn received(&self) -> bool {
        self.missing == 0
    }

    /// True if every message has arrived, here and at the receivers. Then the application may use the buffer again.
    pub fn finished(&self) -> bool {
        self.missing == 0 && self.owed == 0
    }

    fn index(&self, place: Place) -> Result<u32, Unexpected> {
        if place.step >= self.schedule.steps() || place.part >= self.schedule.parts() {
            return Err(Unexpected);
        }
        Ok(self.schedule.index(place))
    }

    fn consider_some(&mut self, index: Option<u32>) {
        if let Some(index) = index {
            self.consider(index);
        }
    }

    /// Makes a message ready if it need not wait any more. Returns false if it must still wait.
    fn consider(&mut self, index: u32) -> bool {
        let after = self.schedule.send(self.rank, index).after;
        let is = |place: Place, what: u8| self.is(self.schedule.index(place), what);
        let free = after.received.is_none_or(|(_, p)| is(p, RECEIVED))
            && after.posted.is_none_or(|p| is(p, POSTED))
            && after.sent.is_none_or(|p| is(p, SENT));
        if free && !self.set(index, READY) {
            self.ready.push_back(index);
        }
        free
    }

    fn is(&self, index: u32, what: u8) -> bool {
        self.states[index as usize / 2] >> (4 * (index % 2)) & what != 0
    }

    /// Records an event of a message. Returns true if it was recorded before.
    fn set(&mut self, index: u32, what: u8) -> bool {
        let before = self.is(index, what);
        self.states[index as usize / 2] |= what << (4 * (index % 2));
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    #[test]
    fn odd_news_is_refused_and_changes_nothing() {
        let ring = Schedule::new(Algorithm::RingAllReduce, 3, 30, 1).expect("a ring");
        let mut member = Member::new(ring, Rank(0));
        let place = |step, part| Place { step, part };
        assert_eq!(member.handle_received(Rank(1), place(0, 0)), Err(Unexpected));
        assert_eq!(member.handle_received(Rank(2), place(4, 0)), Err(Unexpected));
        assert_eq!(member.handle_received(Rank(2), place(0, 1)), Err(Unexpected));
        assert_eq!(member.handle_sent(place(1, 0)), Err(Unexpected));
        assert!(member.poll_send().is_some());
        assert!(member.poll_send().is_none());
        for _ in 0..2 {
            assert_eq!(member.handle_received(Rank(2), place(0, 0)), Ok(()));
        }
        assert!(member.poll_send().is_some());
        assert!(member.poll_send().is_none());
    }

    #[test]
    fn halving_waits_for_all_steps_before() {
        let schedule = Schedule::new(Algorithm::HalvingDoubling, 8, 80, 1).expect("a schedule");
        let mut member = Member::new(schedule, Rank(0));
        let place = |step| Place { step, part: 0 };
        assert_eq!(member.poll_send().map(|s| s.place.step), Some(0));
        // The second partner is fast, the first one slow.
        assert_eq!(member.handle_received(Rank(2), place(1)), Ok(()));
        assert_eq!(member.poll_send(), None);
        assert_eq!(member.handle_received(Rank(1), place(0)), Ok(()));
        assert_eq!(member.poll_send().map(|s| s.place.step), Some(1));
        assert_eq!(member.poll_send().map(|s| s.place.step), Some(2));
    }

    #[test]
    fn shortened_schedules_are_performed_to_their_end_and_reach_spread_peers() {
        for (algorithm, steps) in [
            (Algorithm::RingAllReduce, 5),
            (Algorithm::RingReduceScatter, 3),
            (Algorithm::RingAllGather, 15),
            (Algorithm::AllToAll { window: 2 }, 4),
        ] {
            let schedule = Schedule::new(algorithm, 16, 16_000, 2).expect("a schedule").shortened(steps);
            assert_eq!(schedule.messages(), steps * 2);
            let mut members: Vec<Member> = (0..16).map(|rank| Member::new(schedule, Rank(rank))).collect();
            let mut sent = 0;
            while let Some((rank, send)) = (0..16).find_map(|rank| Some((rank, members[rank as usize].poll_send()?))) {
                assert_eq!(members[send.to.0 as usize].handle_received(Rank(rank), send.place), Ok(()));
                assert_eq!(members[rank as usize].handle_sent(send.place), Ok(()));
                sent += send.bytes;
            }
            assert!(members.iter().all(Member::finished), "{algorithm:?}");
            assert_eq!(sent, schedule.volume(), "{algorithm:?}");
        }
        let spread = Schedule::new(Algorithm::AllToAll { window: 2 }, 16, 16_000, 1).expect("a schedule").shortened(5);
        assert_eq!(spread.sends(Rank(14)).map(|send| send.to.0).collect::<Vec<u32>>(), [15, 2, 5, 8, 11]);
    }
}
