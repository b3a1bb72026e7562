//! A barrier among the ranks of a team: each tells rank 0 that it has called it, and rank 0 tells all when all have.

use crate::error::GroupError;
use crate::team::Team;
use std::time::{Duration, Instant};
use strandway_proto::Letter;
use strandway_udp::Completion;

/// The kind of a barrier's letters ("I am here" and "all are here"), which no program uses.
const KIND: u16 = 0x4dfe;
const HERE: u32 = 0;
const ALL: u32 = 1;
/// The time after which a rank without an answer repeats that it is here.
const AGAIN: Duration = Duration::from_millis(5);

impl Team {
    /// Returns when every rank has called it the same number of times as this one.
    ///
    /// # Errors
    /// If a rank is silent for longer than the team's patience.
    pub fn barrier(&mut self, stop: &impl Fn() -> bool) -> Result<(), GroupError> {
        self.barriers += 1;
        let number = self.barriers;
        let letter = |what: u32| Letter::Custom { kind: KIND, words: [what, number, 0, 0] };
        let until = Instant::now() + self.options.patience;
        let mut next = Instant::now();
        loop {
            let waits = match self.rank {
                0 => (1..self.ranks()).any(|rank| self.here[rank as usize] < number),
                _ => self.all < number,
            };
            if !waits {
                break;
            }
            let now = Instant::now();
            if now > until {
                let silent = (1..self.ranks()).find(|&rank| self.here[rank as usize] < number);
                return Err(GroupError::Dead { rank: if self.rank == 0 { silent.unwrap_or(0) } else { 0 } });
            }
            if stop() {
                return Err(GroupError::Stopped);
            }
            if self.rank != 0 && now >= next {
                self.node.say(self.group, 0, letter(HERE), false)?;
                next = now + AGAIN;
            }
            let nap = if self.rank == 0 { AGAIN } else { next.saturating_duration_since(now) };
            if let Some(completion) = self.node.wait(nap)? {
                self.set_aside(completion)?;
            }
        }
        if self.rank == 0 {
            self.all = number;
            for rank in 1..self.ranks() {
                self.node.say(self.group, rank, letter(ALL), true)?;
            }
        }
        Ok(())
    }

    /// Handles a letter of a barrier; false if it is none. Rank 0 answers late letters, since its own may have been
    /// lost.
    pub(crate) fn take_barrier(&mut self, from: u32, letter: &Letter) -> Result<bool, GroupError> {
        let Letter::Custom { kind: KIND, words: [what, number, ..] } = *letter else { return Ok(false) };
        if what == ALL && from == 0 {
            self.all = self.all.max(number);
        }
        if what == HERE && self.rank == 0 {
            let here = &mut self.here[from as usize];
            *here = (*here).max(number);
            if number <= self.all {
                self.node.say(self.group, from, Letter::Custom { kind: KIND, words: [ALL, number, 0, 0] }, true)?;
            }
        }
        Ok(true)
    }

    /// Sets a completion aside that does not belong to the operation under way: letters are handled or kept,
    /// completions of connections are kept.
    pub(crate) fn set_aside(&mut self, completion: Completion) -> Result<(), GroupError> {
        match completion {
            Completion::Word { from, letter, to_all: false, .. } => self.heed(from, &letter),
            Completion::Word { path, .. } => {
                self.hear_plane(path);
                Ok(())
            }
            Completion::Chunk { .. } | Completion::Cast { .. } => Ok(()),
            other => {
                self.others.push_back(other);
                Ok(())
            }
        }
    }
}
