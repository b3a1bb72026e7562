//! Ranks agree on the result of an operation: each votes to rank 0, and rank 0 sends all of them the verdict.
//!
//! A vote, and a verdict, has three words: a code and two words of details. A single `FAILED` decides the verdict at
//! once; otherwise all must have voted, with the same details. Control messages may be lost: ranks repeat their vote
//! until they get the verdict, and rank 0 answers late votes.
//!
//! A rank at work says that it is, and rank 0 passes this on to ranks that have voted: they wait as long as all others
//! vote or work, and their patience begins when one of them is heard no more.

use crate::error::GroupError;
use crate::team::Team;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use strandway_proto::ControlMessage;

/// The kinds of control messages, which no program uses.
const VOTE: u16 = 0x4dfc;
const VERDICT: u16 = 0x4dfb;
const WORKING: u16 = 0x4dfa;
/// The time after which a rank without a verdict repeats its vote.
pub(crate) const AGAIN: Duration = Duration::from_millis(5);
/// The interval at which a rank at work repeats that it is, and rank 0 that others are: ours.
pub(crate) const BEGUN_AGAIN: Duration = Duration::from_millis(250);
/// A rank that was not heard for this time may have ended: ours, room for a few lost control messages.
const FRESH: Duration = Duration::from_millis(1_000);
/// The number of verdicts that are remembered; ranks are at most one operation apart.
const KEPT: usize = 4;

/// The operation has succeeded; a verdict has two words from rank 0.
pub(crate) const DONE: u32 = 0;
/// The operation has failed; a verdict has the rank that said so, and its word.
pub(crate) const FAILED: u32 = 1;
/// The operation is under way; not a verdict. With it, ranks that call with different arguments are found even if they
/// cannot end.
pub(crate) const BEGUN: u32 = 3;
/// Ranks voted with different details; the verdict has the first rank that differs from rank 0.
pub(crate) const DIFFERS: u32 = 2;

/// The votes and verdicts about operations.
#[derive(Default)]
pub(crate) struct Ballots {
    /// By rank: its newest vote, with the number of the operation.
    votes: Vec<Option<(u32, [u32; 3])>>,
    verdicts: VecDeque<(u32, [u32; 3])>,
    /// By rank: when its newest vote came; at other ranks than 0, when rank 0 said last that ranks are at work.
    heard: Vec<Option<(u32, Instant)>>,
    /// By rank: when it was told that others are at work.
    told: Vec<Option<Instant>>,
}

impl Ballots {
    pub(crate) fn new(ranks: usize) -> Ballots {
        Ballots {
            votes: vec![None; ranks],
            verdicts: VecDeque::new(),
            heard: vec![None; ranks],
            told: vec![None; ranks],
        }
    }

    fn verdict(&self, operation: u32) -> Option<[u32; 3]> {
        self.verdicts.iter().find(|(of, _)| *of == operation).map(|(_, verdict)| *verdict)
    }

    fn note(&mut self, operation: u32, verdict: [u32; 3]) {
        if self.verdict(operation).is_none() {
            self.verdicts.truncate(KEPT - 1);
            self.verdicts.push_front((operation, verdict));
        }
    }

    /// Has a rank said how an operation ended there?
    fn has_voted(&self, rank: usize, operation: u32) -> bool {
        self.votes[rank].is_some_and(|(of, [code, ..])| of > operation || of == operation && code != BEGUN)
    }

    /// When a rank was heard last about an operation.
    fn heard_at(&self, rank: usize, operation: u32) -> Option<Instant> {
        self.heard[rank].filter(|(of, _)| *of == operation).map(|(_, at)| at)
    }

    /// Rank 0: the rank without a vote that has been silent for longest, and since when; `None` if it was never heard.
    fn most_silent(&self, operation: u32) -> Option<(usize, Option<Instant>)> {
        let missing = (0..self.votes.len()).filter(|rank| !self.has_voted(*rank, operation));
        missing.map(|rank| (rank, self.heard_at(rank, operation))).min_by_key(|(_, at)| *at)
    }

    /// Rank 0: are all ranks without a vote at work, as far as is known?
    fn is_worked_on(&self, operation: u32, now: Instant) -> bool {
        let fresh = |at: Instant| now.saturating_duration_since(at) < FRESH;
        self.most_silent(operation).is_some_and(|(_, at)| at.is_some_and(fresh))
    }

    /// The verdict that follows from the votes about an operation, if any does. `words` go with the verdict `DONE`.
    fn count(&self, operation: u32, words: [u32; 2]) -> Option<[u32; 3]> {
        let of = |vote: &Option<(u32, [u32; 3])>| vote.filter(|(of, _)| *of == operation).map(|(_, vote)| vote);
        let votes: Vec<Option<[u32; 3]>> = self.votes.iter().map(of).collect();
        let failed = votes.iter().position(|vote| vote.is_some_and(|[code, ..]| code == FAILED));
        if let Some(rank) = failed {
            return Some([FAILED, rank as u32, votes[rank].map_or(0, |[_, why, _]| why)]);
        }
        let first = votes[0]?;
        let differs = |vote: &Option<[u32; 3]>| vote.is_some_and(|vote| vote[1..] != first[1..]);
        if let Some(rank) = votes.iter().position(differs) {
            return Some([DIFFERS, rank as u32, 0]);
        }
        let done = votes.iter().all(|vote| vote.is_some_and(|[code, ..]| code == DONE));
        done.then_some([DONE, words[0], words[1]])
    }
}

impl Team {
    /// Votes, or repeats a vote, about how an operation ended here.
    pub(crate) fn vote(&mut self, operation: u32, vote: [u32; 3]) -> Result<(), GroupError> {
        let rank = self.rank as usize;
        self.ballots.votes[rank] = Some((operation, vote));
        if rank == 0 {
            self.ballots.heard[0] = Some((operation, Instant::now()));
        }
        if rank != 0 {
            let [code, a, b] = vote;
            let control = ControlMessage::Custom { kind: VOTE, words: [operation, code, a, b] };
            self.node.send_control_to_member(self.group, 0, control, false)?;
        }
        Ok(())
    }

    /// The verdict about an operation, once it is known. Rank 0's `words` go with the verdict `DONE`.
    pub(crate) fn verdict(&mut self, operation: u32, words: [u32; 2]) -> Result<Option<[u32; 3]>, GroupError> {
        if self.rank == 0
            && self.ballots.verdict(operation).is_none()
            && let Some(verdict) = self.ballots.count(operation, words)
        {
            self.ballots.note(operation, verdict);
            for rank in 1..self.ranks() {
                self.send_verdict(rank, operation, verdict)?;
            }
        }
        Ok(self.ballots.verdict(operation))
    }

    /// The rank that keeps this one from a verdict, as far as it knows, and when that rank was heard last.
    pub(crate) fn silent_voter(&self, operation: u32) -> (u32, Option<Instant>) {
        match self.rank {
            0 => self.ballots.most_silent(operation).map_or((0, None), |(rank, at)| (rank as u32, at)),
            _ => (0, self.ballots.heard_at(0, operation)),
        }
    }

    /// Rank 0 answers a vote before there is a verdict, if it knows that there will be one.
    fn send_working(&mut self, rank: u32, operation: u32) -> Result<(), GroupError> {
        let now = Instant::now();
        let told = &mut self.ballots.told[rank as usize];
        if told.is_some_and(|at| now.saturating_duration_since(at) < BEGUN_AGAIN) {
            return Ok(());
        }
        *told = Some(now);
        if self.ballots.is_worked_on(operation, now) {
            let control = ControlMessage::Custom { kind: WORKING, words: [operation, 0, 0, 0] };
            self.node.send_control_to_member(self.group, rank, control, false)?;
        }
        Ok(())
    }

    fn send_verdict(&mut self, rank: u32, operation: u32, [code, a, b]: [u32; 3]) -> Result<(), GroupError> {
        let control = ControlMessage::Custom { kind: VERDICT, words: [operation, code, a, b] };
        Ok(self.node.send_control_to_member(self.group, rank, control, true)?)
    }

    /// Handles a vote or a verdict; false if the control message is neither.
    pub(crate) fn take_ballot(&mut self, from: u32, control: &ControlMessage) -> Result<bool, GroupError> {
        let ControlMessage::Custom { kind, words: [operation, code, a, b] } = *control else { return Ok(false) };
        match kind {
            VOTE if self.rank == 0 => {
                if let Some(verdict) = self.ballots.verdict(operation) {
                    self.send_verdict(from, operation, verdict)?;
                }
                if let Some(vote) = self.ballots.votes.get_mut(from as usize)
                    && vote.is_none_or(|(of, before)| of < operation || of == operation && before[0] == BEGUN)
                {
                    *vote = Some((operation, [code, a, b]));
                }
                if let Some(heard) = self.ballots.heard.get_mut(from as usize)
                    && heard.is_none_or(|(of, _)| of <= operation)
                {
                    *heard = Some((operation, Instant::now()));
                }
                if code != BEGUN && from < self.ranks() && self.ballots.verdict(operation).is_none() {
                    self.send_working(from, operation)?;
                }
            }
            VERDICT if from == 0 => self.ballots.note(operation, [code, a, b]),
            WORKING if from == 0 => self.ballots.heard[0] = Some((operation, Instant::now())),
            VOTE | VERDICT | WORKING => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Handles the node's waiting completions, without waiting for more.
    pub(crate) fn take_controls(&mut self) -> Result<(), GroupError> {
        while let Some(completion) = self.node.poll() {
            self.set_aside(completion)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_enough_and_otherwise_all_must_have_said_the_same() {
        let mut ballots = Ballots::new(3);
        ballots.votes = vec![Some((7, [DONE, 5, 0])), None, Some((6, [FAILED, 9, 0]))];
        assert_eq!(ballots.count(7, [1, 2]), None, "a vote about another operation is none");
        ballots.votes[2] = Some((7, [FAILED, 9, 0]));
        assert_eq!(ballots.count(7, [1, 2]), Some([FAILED, 2, 9]));
        ballots.votes[2] = Some((7, [DONE, 5, 0]));
        ballots.votes[1] = Some((7, [BEGUN, 5, 0]));
        assert_eq!(ballots.count(7, [1, 2]), None, "one is at work");
        ballots.votes[1] = Some((7, [BEGUN, 4, 0]));
        assert_eq!(ballots.count(7, [1, 2]), Some([DIFFERS, 1, 0]));
        ballots.votes[1] = Some((7, [DONE, 5, 0]));
        assert_eq!(ballots.count(7, [1, 2]), Some([DONE, 1, 2]));
    }

    #[test]
    fn a_vote_is_passed_on_as_long_as_all_others_vote_or_work() {
        let (begun, mut ballots) = (Instant::now(), Ballots::new(3));
        let after = |ms: u64| begun + Duration::from_millis(ms);
        ballots.votes = vec![Some((7, [DONE, 5, 0])), Some((7, [BEGUN, 5, 0])), None];
        ballots.heard = vec![Some((7, after(10))), Some((7, after(500))), Some((6, after(900)))];
        assert_eq!(ballots.most_silent(7), Some((2, None)), "it was heard about another operation");
        assert!(!ballots.is_worked_on(7, after(900)));
        (ballots.votes[2], ballots.heard[2]) = (Some((7, [BEGUN, 5, 0])), Some((7, after(800))));
        assert_eq!(ballots.most_silent(7), Some((1, Some(after(500)))), "rank 0 has voted");
        assert!(ballots.is_worked_on(7, after(1_400)) && !ballots.is_worked_on(7, after(1_600)));
        ballots.votes[1] = Some((7, [DONE, 5, 0]));
        assert!(ballots.is_worked_on(7, after(1_600)));
    }

    #[test]
    fn the_first_verdict_about_an_operation_stays() {
        let mut ballots = Ballots::new(1);
        for operation in 0..10 {
            ballots.note(operation, [DONE, operation, 0]);
        }
        ballots.note(9, [FAILED, 0, 0]);
        assert_eq!(
            (ballots.verdict(9), ballots.verdict(6), ballots.verdict(5)),
            (Some([0, 9, 0]), Some([0, 6, 0]), None)
        );
    }
}
