//! Ranks agree on the result of an operation: each votes to rank 0, and rank 0 sends all of them the verdict.
//!
//! A vote, and a verdict, has three words: a code and two words of details. A single `FAILED` decides the verdict at
//! once; otherwise all must have voted, with the same details. Letters may be lost: ranks repeat their vote until they
//! get the verdict, and rank 0 answers late votes.

use crate::error::GroupError;
use crate::team::Team;
use std::collections::VecDeque;
use std::time::Duration;
use strandway_proto::Letter;

/// The kinds of letters, which no program uses.
const VOTE: u16 = 0x4dfc;
const VERDICT: u16 = 0x4dfb;
/// The time after which a rank without a verdict repeats its vote.
pub(crate) const AGAIN: Duration = Duration::from_millis(5);
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
}

impl Ballots {
    pub(crate) fn new(ranks: usize) -> Ballots {
        Ballots { votes: vec![None; ranks], verdicts: VecDeque::new() }
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
        if rank != 0 {
            let [code, a, b] = vote;
            let letter = Letter::Custom { kind: VOTE, words: [operation, code, a, b] };
            self.node.say(self.group, 0, letter, false)?;
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
                self.tell_verdict(rank, operation, verdict)?;
            }
        }
        Ok(self.ballots.verdict(operation))
    }

    /// A rank whose vote about an operation is missing, as far as this rank knows.
    pub(crate) fn silent_voter(&self, operation: u32) -> u32 {
        let voted = |vote: &Option<(u32, [u32; 3])>| {
            vote.is_some_and(|(of, [code, ..])| of > operation || of == operation && code != BEGUN)
        };
        match self.rank {
            0 => self.ballots.votes.iter().position(|vote| !voted(vote)).unwrap_or(0) as u32,
            _ => 0,
        }
    }

    fn tell_verdict(&mut self, rank: u32, operation: u32, [code, a, b]: [u32; 3]) -> Result<(), GroupError> {
        let letter = Letter::Custom { kind: VERDICT, words: [operation, code, a, b] };
        Ok(self.node.say(self.group, rank, letter, true)?)
    }

    /// Handles a vote or a verdict; false if the letter is neither.
    pub(crate) fn take_ballot(&mut self, from: u32, letter: &Letter) -> Result<bool, GroupError> {
        let Letter::Custom { kind, words: [operation, code, a, b] } = *letter else { return Ok(false) };
        match kind {
            VOTE if self.rank == 0 => {
                if let Some(verdict) = self.ballots.verdict(operation) {
                    self.tell_verdict(from, operation, verdict)?;
                }
                if let Some(vote) = self.ballots.votes.get_mut(from as usize)
                    && vote.is_none_or(|(of, before)| of < operation || of == operation && before[0] == BEGUN)
                {
                    *vote = Some((operation, [code, a, b]));
                }
            }
            VERDICT if from == 0 => self.ballots.note(operation, [code, a, b]),
            VOTE | VERDICT => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Handles the node's waiting completions, without waiting for more.
    pub(crate) fn take_letters(&mut self) -> Result<(), GroupError> {
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
