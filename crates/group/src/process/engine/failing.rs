//! Calls that fail: what becomes of their sends and receives, and who is told.

use super::super::failure::Failure;
use super::super::message::{Message, PeerMessage, Signature};
use super::super::task::{Stage, Task};
use super::remains::Remains;
use super::{About, Engine, FAILED_MAX, Outcome, cost};
use std::sync::PoisonError;
use strandway_udp::Error;

impl Engine {
    /// Ends a task without a result. Its caller hears of it and, unless the failure is this rank's own doing, so do the
    /// other ranks.
    pub(super) fn fail(&mut self, id: u64, failure: &Failure) -> Outcome {
        let Some(mut task) = self.remove(id) else { return Ok(()) };
        // The wire may still use its memory for a while, but the caller gets it back now.
        let regions = std::mem::take(&mut task.call.regions);
        for region in &regions {
            self.node.take_over(*region)?;
        }
        if task.uses == 0 {
            for region in regions {
                self.node.deregister(region)?;
            }
        } else {
            let lengths = regions.iter().map(|region| self.node.memory(*region).map(<[u8]>::len));
            let bytes = lengths.sum::<Result<usize, Error>>()?;
            self.remains.insert(id, Remains { regions, uses: task.uses, bytes });
        }
        self.settle_pair(id, &task)?;
        task.call.owners.clear();
        if let Some(group) = self.groups.get_mut(&task.call.group) {
            group.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| failure.clone());
            if let Some(number) = task.call.number {
                group.note_failed(number);
                // Ranks of a team cannot end without each other.
                let is_of_team = task.delegated.is_some() && !matches!(failure, Failure::Told { .. });
                if is_of_team || matches!(failure, Failure::Gone { .. } | Failure::Mismatch(_)) {
                    self.notify_all(task.call.group, number, &failure.to_string())?;
                }
            }
        }
        match task.delegated {
            // The work ends when the delegate has given the memory back.
            Some(_) => {
                drop(self.take_early((task.call.group, task.call.number.unwrap_or_default()))?);
                self.give_up_delegate(&mut task, failure);
            }
            None => task.call.work.end(Err(failure.clone())),
        }
        Ok(())
    }

    /// After a failed send or receive the peer must not wait for the other half, and no later call may match it.
    fn settle_pair(&mut self, id: u64, task: &Task) -> Outcome {
        let (group, signature) = (task.call.group, Signature::default());
        if task.call.number.is_some() {
            return Ok(());
        }
        if let Some(receive) = task.call.plan.receives.first() {
            // The receive had taken an offer; now it refuses it.
            return match task.offer {
                Some((peer, number)) => self.send_message(
                    peer,
                    &Message { signature, tag: receive.tag, group, number, said: PeerMessage::Refuse },
                ),
                None => Ok(()),
            };
        }
        let Some((send, peer)) =
            task.call.plan.sends.first().and_then(|send| Some((send, self.peer_of(group, send.to)?)))
        else {
            return Ok(());
        };
        let one = &mut self.peers[peer];
        if let Some(at) = one.backlog.iter().position(|control| control.about == (About::Send { task: id })) {
            // The message has not left.
            one.backlog.remove(at);
            one.owed = one.owed.saturating_sub(cost(send.from.len()));
            return Ok(());
        }
        match task.sent[0] {
            Stage::Waiting => self.send_message(
                peer,
                &Message { signature, tag: send.tag, group, number: id, said: PeerMessage::Withdraw },
            ),
            _ => Ok(()),
        }
    }

    pub(super) fn fail_group(&mut self, group: u64, failure: &Failure) -> Outcome {
        let ids: Vec<u64> = self.tasks.iter().filter(|(_, task)| task.call.group == group).map(|(id, _)| *id).collect();
        ids.into_iter().try_for_each(|id| self.fail(id, failure))
    }

    /// A use of a task's memory has ended. If the task has failed, the last use frees the memory.
    pub(super) fn clear(&mut self, id: u64) -> Outcome {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.uses -= 1;
            return Ok(());
        }
        for region in self.remains.end_use(id) {
            self.node.deregister(region)?;
        }
        Ok(())
    }
}

impl super::Group {
    pub(super) fn note_failed(&mut self, number: u64) {
        self.failed.insert(number);
        if self.failed.len() > FAILED_MAX {
            self.failed.pop_first();
        }
    }
}
