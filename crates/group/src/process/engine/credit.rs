//! Credit: a limit on the bytes of short messages that a peer is sent before a call there asks for them. Also the tasks
//! that wait for credit.

use super::super::message::{Message, PeerMessage};
use super::super::task::Stage;
use super::{Engine, Outcome, Starved, TICK, cost};
use std::collections::BTreeSet;
use std::time::Instant;

impl Engine {
    /// Takes the cost of a short message from a peer's credit. Returns false if there is not enough.
    pub(super) fn spend(&mut self, peer: usize, length: usize) -> bool {
        let one = &mut self.peers[peer];
        let fits = one.owed + cost(length) <= self.credit;
        if fits {
            one.owed += cost(length);
        }
        fits
    }

    pub(super) fn handle_credit(&mut self, peer: usize, bytes: u64) -> Outcome {
        let one = &mut self.peers[peer];
        one.owed = one.owed.saturating_sub(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.resume(|engine| &mut engine.peers[peer].starved.tasks)?;
        let starved = &mut self.peers[peer].starved;
        if starved.tasks.is_empty() {
            *starved = Starved::default();
        }
        Ok(())
    }

    /// A short message of `length` bytes came unasked, and was taken, or no call will take it: its sender may send
    /// more.
    pub(super) fn give_back(&mut self, peer: usize, length: usize) -> Outcome {
        let one = &mut self.peers[peer];
        one.taken += cost(length);
        if one.taken < self.credit / 4 {
            return Ok(());
        }
        let bytes = std::mem::take(&mut one.taken) as u64;
        self.send_message(peer, &Message::of_process(PeerMessage::Credit(bytes)))
    }

    /// Tells a peer of a short message that waits for its credit.
    pub(super) fn announce(&mut self, id: u64, at: usize, peer: usize) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let (group, Some(number), tag) = (task.call.group, task.call.number, task.call.plan.sends[at].tag) else {
            return Ok(());
        };
        task.sent[at] = Stage::Announced;
        let signature = task.call.signature;
        self.send_message(peer, &Message { signature, tag, group, number, said: PeerMessage::Ready })
    }

    /// Tells a peer of the messages that have waited for its credit for a while.
    pub(super) fn announce_starved(&mut self, peer: usize, now: Instant) -> Outcome {
        while let Some(&(since, id)) = self.peers[peer].starved.untold.front() {
            if now.saturating_duration_since(since) < TICK {
                break;
            }
            self.peers[peer].starved.untold.pop_front();
            let Some(task) = self.tasks.get(&id) else { continue };
            let Some(to) = self.groups.get(&task.call.group).and_then(|group| group.ranks.get(&peer)).copied() else {
                continue;
            };
            let sends = task.call.plan.sends.iter().zip(&task.sent).enumerate();
            let waiting = sends.filter(|(_, (send, stage))| send.to == to && **stage == Stage::Starved);
            for at in waiting.map(|(at, _)| at).collect::<Vec<_>>() {
                self.peers[peer].starved.tells = true;
                self.announce(id, at, peer)?;
            }
        }
        Ok(())
    }

    /// Lets the tasks of a queue go on that wait for room, the oldest first, until one of them has to wait again.
    pub(super) fn resume(&mut self, queue: impl Fn(&mut Engine) -> &mut BTreeSet<u64>) -> Outcome {
        while let Some(id) = queue(self).pop_first() {
            self.progress(id)?;
            if queue(self).contains(&id) {
                break;
            }
        }
        Ok(())
    }
}
