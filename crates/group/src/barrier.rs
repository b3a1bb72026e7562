//! A barrier among the ranks of a team: each tells rank 0 that it has called it, and rank 0 tells all when all have.
//! And the end of a team: rank 0 stays until the others need no answers of it.

use crate::error::GroupError;
use crate::team::Team;
use std::time::{Duration, Instant};
use strandway_proto::ControlMessage;
use strandway_udp::Completion;

/// The kind of a barrier's control messages ("I am here" and "all are here"), which no program uses.
const KIND: u16 = 0x4dfe;
const HERE: u32 = 0;
const ALL: u32 = 1;
/// "I have all that I was told of, and leave", and rank 0's answer.
const LEAVES: u32 = 2;
const LEFT: u32 = 3;
/// The time after which a rank without an answer repeats that it is here.
const AGAIN: Duration = Duration::from_millis(5);
/// A rank leaves without rank 0's answer after this time: ours, many repetitions.
const FAREWELL: Duration = Duration::from_millis(200);
/// Rank 0 leaves ranks behind that have not said anything for this time: ours. A rank that waits for an answer of rank
/// 0 repeats its control message every few milliseconds.
const LINGER: Duration = Duration::from_secs(2);

impl Team {
    /// Returns when every rank has called it the same number of times as this one.
    ///
    /// # Errors
    /// If a rank is silent for longer than the team's patience.
    pub fn barrier(&mut self, stop: &impl Fn() -> bool) -> Result<(), GroupError> {
        self.barriers += 1;
        let number = self.barriers;
        let control = |what: u32| ControlMessage::Custom { kind: KIND, words: [what, number, 0, 0] };
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
                self.node.send_control_to_member(self.group, 0, control(HERE), false)?;
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
                self.node.send_control_to_member(self.group, rank, control(ALL), true)?;
            }
        }
        Ok(())
    }

    /// Ends this rank's part in the team, after its last operation. Control messages may be lost: a rank that has not
    /// heard yet how the last operation or barrier ended asks rank 0 for it. So rank 0 stays until all others have
    /// called this, too, or say nothing any more for two seconds. The other ranks leave at once, or a fifth of a second
    /// later if rank 0 does not answer.
    ///
    /// # Errors
    /// If the node fails, or the caller asked it to stop.
    pub fn end(mut self, stop: &impl Fn() -> bool) -> Result<(), GroupError> {
        let began = Instant::now();
        let (mut next, mut heard) = (began, began);
        loop {
            let over = match self.rank {
                _ if self.dead.is_some() || self.ranks() == 1 => true,
                0 => self.left[1..].iter().all(|left| *left) || heard.elapsed() > LINGER,
                _ => self.left[0] || began.elapsed() > FAREWELL,
            };
            if over {
                return Ok(());
            }
            if stop() {
                return Err(GroupError::Stopped);
            }
            if self.rank != 0 && Instant::now() >= next {
                let control = ControlMessage::Custom { kind: KIND, words: [LEAVES, 0, 0, 0] };
                self.node.send_control_to_member(self.group, 0, control, false)?;
                next = Instant::now() + AGAIN;
            }
            if let Some(completion) = self.node.wait(AGAIN)? {
                if matches!(completion, Completion::Word { .. }) {
                    heard = Instant::now();
                }
                self.set_aside(completion)?;
            }
        }
    }

    /// Handles a control message of a barrier; false if it is none. Rank 0 answers late control messages, since its own
    /// may have been lost.
    pub(crate) fn take_barrier(&mut self, from: u32, control: &ControlMessage) -> Result<bool, GroupError> {
        let ControlMessage::Custom { kind: KIND, words: [what, number, ..] } = *control else { return Ok(false) };
        if what == ALL && from == 0 {
            self.all = self.all.max(number);
        }
        if what == LEAVES && self.rank == 0 {
            self.left[from as usize] = true;
            self.node.send_control_to_member(
                self.group,
                from,
                ControlMessage::Custom { kind: KIND, words: [LEFT, 0, 0, 0] },
                true,
            )?;
        }
        if what == LEFT && from == 0 {
            self.left[0] = true;
        }
        if what == HERE && self.rank == 0 {
            let here = &mut self.here[from as usize];
            *here = (*here).max(number);
            if number <= self.all {
                self.node.send_control_to_member(
                    self.group,
                    from,
                    ControlMessage::Custom { kind: KIND, words: [ALL, number, 0, 0] },
                    true,
                )?;
            }
        }
        Ok(true)
    }

    /// Sets a completion aside that does not belong to the operation under way: control messages are handled or kept,
    /// completions of connections are kept.
    pub(crate) fn set_aside(&mut self, completion: Completion) -> Result<(), GroupError> {
        match completion {
            Completion::Word { from, control, to_all: false, .. } => self.handle_control(from, &control),
            Completion::Word { path, .. } => {
                self.handle_trial(path);
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
