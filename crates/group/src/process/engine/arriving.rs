//! Messages of peers, for tasks that have begun here and for those that have not.

use super::super::element::{Element, Reduction};
use super::super::failure::Failure;
use super::super::message::{Message, PeerMessage, Signature};
use super::super::task::{Stage, Task};
use super::{About, Counts, Early, Engine, NOTES_MAX, Opened, Outcome, QueuedMessage};
use std::sync::PoisonError;
use strandway_collective::plan::CollectiveCall;
use strandway_udp::{Connection, Error};

impl Engine {
    pub(super) fn handle(&mut self, peer: usize, message: &Message<'_>) -> Outcome {
        let &Message { signature, tag, group, number, said } = message;
        if matches!(said, PeerMessage::Bytes(_) | PeerMessage::Pulled(_) | PeerMessage::Parcel(_)) {
            self.peers[peer].accepted.messages += 1;
        }
        match said {
            PeerMessage::Credit(bytes) => return self.handle_credit(peer, bytes),
            PeerMessage::Bye { messages, writes } => {
                self.peers[peer].bye = Some(Counts { messages, writes });
                return Ok(());
            }
            _ => {}
        }
        if self.ended.0.contains(&group) {
            return match said {
                PeerMessage::Bytes(bytes) | PeerMessage::Parcel(bytes) => self.give_back(peer, bytes.len()),
                PeerMessage::Offer(length) => self.reject(peer, group, tag, &QueuedMessage::Offer { number, length }),
                _ => Ok(()),
            };
        }
        let key = (group, number);
        match said {
            PeerMessage::Bytes(bytes) => {
                let length = bytes.len();
                match self.handle_collective(peer, key, Early::Bytes(tag, signature, bytes.to_vec()))? {
                    true => Ok(()),
                    false => self.give_back(peer, length),
                }
            }
            PeerMessage::Pulled(bytes) => {
                let Some(id) = self.task_of(key) else { return Ok(()) };
                self.handle_early(id, peer, Early::Bytes(tag, signature, bytes.to_vec()))?;
                self.progress(id)
            }
            PeerMessage::Ready => self.handle_collective(peer, key, Early::Ready(tag, signature)).map(drop),
            PeerMessage::Open(landing) => {
                self.handle_collective(peer, key, Early::Open(tag, signature, landing)).map(drop)
            }
            PeerMessage::Told(text) => self.handle_collective(peer, key, Early::Told(text.into())).map(drop),
            PeerMessage::Pull => self.handle_pull(peer, key, tag),
            PeerMessage::Parcel(bytes) => self.handle_queued(peer, group, tag, QueuedMessage::Bytes(bytes.to_vec())),
            PeerMessage::Offer(length) => self.handle_queued(peer, group, tag, QueuedMessage::Offer { number, length }),
            PeerMessage::Accept(landing) => {
                if let Some(to) = self.sends_to(number, group, peer) {
                    if let Some(task) = self.tasks.get_mut(&number) {
                        task.opened.insert((to, tag), landing);
                    }
                    return self.progress(number);
                }
                Ok(())
            }
            PeerMessage::Refuse => match self.sends_to(number, group, peer) {
                Some(by) => {
                    let what = "its receive for this send was given up".into();
                    self.fail(number, &Failure::Told { by, what })
                }
                None => Ok(()),
            },
            PeerMessage::Withdraw => self.handle_withdrawal(peer, group, tag, number),
            PeerMessage::Hello(_)
            | PeerMessage::HelloByLink(_)
            | PeerMessage::Nudge
            | PeerMessage::Credit(_)
            | PeerMessage::Bye { .. } => Ok(()),
        }
    }

    fn task_of(&self, key: (u64, u64)) -> Option<u64> {
        self.groups.get(&key.0)?.tasks.get(&key.1).copied()
    }

    /// The rank to which a task of ours sends, if it is a send of that group to that peer.
    fn sends_to(&self, task: u64, group: u64, peer: usize) -> Option<u32> {
        let call = &self.tasks.get(&task)?.call;
        let to = call.plan.sends.first().filter(|_| call.group == group && call.number.is_none())?.to;
        (self.peer_of(group, to) == Some(peer)).then_some(to)
    }

    /// A message of a collective. True if it was stored for a call that has not begun here.
    fn handle_collective(&mut self, peer: usize, key: (u64, u64), early: Early) -> Result<bool, Error> {
        if let Some(id) = self.task_of(key).filter(|id| !self.is_deferred(*id, &early)) {
            self.handle_early(id, peer, early)?;
            self.progress(id)?;
            return Ok(false);
        }
        if self.task_of(key).is_none()
            && let Some(group) = self.groups.get_mut(&key.0)
            && key.1 < group.begun
        {
            if let (Some(&from), false) = (group.ranks.get(&peer), group.failed.contains(&key.1)) {
                self.handle_disagreement(from, key, early)?;
            }
            return Ok(false);
        }
        if !self.store(peer, early.bytes())? {
            return Ok(true);
        }
        self.early.entry(key).or_default().push((peer, early));
        Ok(true)
    }

    /// Does a message wait until a delegate has returned its call? Another rank may be ahead.
    pub(super) fn is_deferred(&self, id: u64, early: &Early) -> bool {
        let Some(task) = self.tasks.get(&id) else { return false };
        let (Early::Bytes(tag, theirs, _) | Early::Ready(tag, theirs) | Early::Open(tag, theirs, _)) = early else {
            return false;
        };
        *theirs == task.call.signature && task.delegated.as_ref().is_some_and(|delegated| delegated.defers(*tag))
    }

    /// A message arrives for a call that has ended well here: the other rank has called something else, or has failed
    /// in it. The ranks no longer agree on the results, so no later call can be right.
    fn handle_disagreement(&mut self, from: u32, key: (u64, u64), early: Early) -> Outcome {
        let failure = match early {
            Early::Told(what) => Failure::Told { by: from, what },
            Early::Ready(..) => return Ok(()),
            Early::Bytes(_, theirs, _) | Early::Open(_, theirs, _) => Failure::Mismatch(format!(
                "rank {from} calls {} where the call of this rank has ended (call {} of the group): call all ranks alike",
                describe(theirs),
                key.1
            )),
        };
        self.break_group(key.0, &failure)
    }

    /// The ranks of a group do not agree on their calls, so it is no longer known which calls belong together. The
    /// calls under way fail, and so do all later ones.
    fn break_group(&mut self, id: u64, failure: &Failure) -> Outcome {
        let Some(group) = self.groups.get_mut(&id) else { return Ok(()) };
        group.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| failure.clone());
        if group.broken.is_some() {
            return Ok(());
        }
        group.broken = Some(failure.clone());
        let later: Vec<(u64, u64)> = group.tasks.iter().map(|(number, task)| (*number, *task)).collect();
        for (number, task) in later {
            self.fail(task, failure)?;
            self.notify_all(id, number, &failure.to_string())?;
        }
        Ok(())
    }

    /// Another rank has made another call than the one of this task.
    pub(super) fn disagree(&mut self, id: u64, what: String) -> Outcome {
        match self.tasks.get(&id).map(|task| task.call.group) {
            Some(group) => self.break_group(group, &Failure::Mismatch(what)),
            None => Ok(()),
        }
    }

    /// Counts bytes that wait here for a call. If they are more than the peer may send, disconnects the peer and
    /// returns false.
    fn store(&mut self, peer: usize, bytes: usize) -> Result<bool, Error> {
        if self.peers[peer].early + bytes > 2 * self.credit + NOTES_MAX {
            self.cut_off_peer(peer, "it sends more than anybody here has asked for")?;
            return Ok(false);
        }
        self.peers[peer].early += bytes;
        Ok(true)
    }

    /// A message of a collective that has begun here.
    pub(super) fn handle_early(&mut self, id: u64, peer: usize, early: Early) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let Some(&from) = self.groups.get(&task.call.group).and_then(|group| group.ranks.get(&peer)) else {
            return Ok(());
        };
        if let Early::Bytes(_, theirs, _) | Early::Ready(_, theirs) | Early::Open(_, theirs, _) = &early
            && *theirs != task.call.signature
        {
            let what = format!(
                "rank {from} calls {} where this rank calls {} (call {} of the group): call all ranks alike",
                describe(*theirs),
                describe(task.call.signature),
                task.call.number.unwrap_or_default()
            );
            return self.disagree(id, what);
        }
        match early {
            Early::Bytes(tag, _, bytes) => match task.receive_of(from, tag) {
                Some(receive) if task.call.plan.receives[receive].length == bytes.len() => {
                    task.take(&mut self.node, &mut self.pool, receive, bytes)
                }
                Some(receive) => {
                    let (theirs, ours) = (bytes.len(), task.call.plan.receives[receive].length);
                    let what = format!(
                        "rank {from} sends {theirs} bytes where this rank expects {ours}: call all ranks alike"
                    );
                    self.disagree(id, what)
                }
                None => {
                    let what = format!(
                        "rank {from} sends {} bytes that {} does not expect: call all ranks alike",
                        bytes.len(),
                        task.call.what
                    );
                    self.disagree(id, what)
                }
            },
            Early::Ready(tag, _) => match task.receive_of(from, tag) {
                Some(_) => {
                    let (signature, group) = (task.call.signature, task.call.group);
                    let number = task.call.number.unwrap_or_default();
                    self.send_message(peer, &Message { signature, tag, group, number, said: PeerMessage::Pull })
                }
                // Its bytes are here already.
                None => Ok(()),
            },
            Early::Open(tag, _, landing) => {
                if !task.call.plan.sends.iter().any(|send| send.to == from && send.tag == tag) {
                    let what = format!(
                        "rank {from} expects bytes that {} does not send: call all ranks alike",
                        task.call.what
                    );
                    return self.disagree(id, what);
                }
                task.opened.insert((from, tag), landing);
                Ok(())
            }
            Early::Told(what) => self.fail(id, &Failure::Told { by: from, what }),
        }
    }

    /// A peer asks for a short message that was announced.
    fn handle_pull(&mut self, peer: usize, key: (u64, u64), tag: u32) -> Outcome {
        let (Some(id), Some(&to)) =
            (self.task_of(key), self.groups.get(&key.0).and_then(|group| group.ranks.get(&peer)))
        else {
            return Ok(());
        };
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let sends = task.call.plan.sends.iter().zip(&task.sent);
        let waiting = sends.enumerate().find_map(|(at, (send, stage))| {
            (send.to == to && send.tag == tag && *stage == Stage::Announced).then_some(at)
        });
        let Some(at) = waiting else { return Ok(()) };
        let bytes = Engine::bytes_of(&self.node, task, at)?;
        task.sent[at] = Stage::Done;
        task.left -= 1;
        let message = Message {
            signature: task.call.signature,
            tag,
            group: key.0,
            number: key.1,
            said: PeerMessage::Pulled(&bytes),
        };
        self.post(peer, &message, About::Call { group: key.0, number: key.1 })?;
        self.progress(id)
    }

    pub(super) fn handle_queued(&mut self, peer: usize, group: u64, tag: u32, message: QueuedMessage) -> Outcome {
        if !self.groups.contains_key(&group) {
            if self.store(peer, message.bytes())? {
                self.unknown.entry(group).or_default().push((peer, tag, message));
            }
            return Ok(());
        }
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        let Some(&from) = one.ranks.get(&peer) else { return Ok(()) };
        let list = one.wanted.get_mut(&tag);
        let found = list.and_then(|list| {
            let at = list.iter().position(|(_, of)| of.is_none_or(|of| of == from))?;
            list.remove(at)
        });
        match found {
            Some((id, _)) => {
                if let QueuedMessage::Bytes(bytes) = &message {
                    self.give_back(peer, bytes.len())?;
                }
                self.deliver(id, from, message)
            }
            None => {
                if self.store(peer, message.bytes())?
                    && let Some(one) = self.groups.get_mut(&group)
                {
                    one.messages.entry(tag).or_default().push_back((from, message));
                }
                Ok(())
            }
        }
    }

    /// A peer has given up a send that it had offered.
    fn handle_withdrawal(&mut self, peer: usize, group: u64, tag: u32, number: u64) -> Outcome {
        let Some(one) = self.groups.get_mut(&group) else {
            let list = self.unknown.get_mut(&group);
            let gone = list.and_then(|list| {
                let of = |(by, _, message): &(usize, u32, QueuedMessage)| *by == peer && message.is_offer(number);
                list.iter().position(of).map(|at| list.remove(at))
            });
            if let Some((_, _, message)) = gone {
                self.peers[peer].early -= message.bytes();
            }
            return Ok(());
        };
        let Some(&from) = one.ranks.get(&peer) else { return Ok(()) };
        if let Some(list) = one.messages.get_mut(&tag)
            && let Some(at) = list.iter().position(|(of, message)| *of == from && message.is_offer(number))
            && let Some((_, message)) = list.remove(at)
        {
            self.peers[peer].early -= message.bytes();
            return Ok(());
        }
        // A receive has accepted it, and its key will not be used.
        let accepted = |((of, _), opened): &(&(Connection, u32), &Opened)| {
            opened.offer == Some(number) && self.peers.of(*of) == Some(peer)
        };
        let landing = self.landings.open.iter().find(accepted).map(|(key, _)| *key);
        if let Some(opened) = landing.and_then(|key| self.landings.open.remove(&key)) {
            self.node.revoke(opened.landing.region);
            self.clear(opened.task)?;
        }
        // If the receive still waits, it now waits for the next message.
        let of = |task: &Task| task.call.group == group && task.offer == Some((peer, number));
        let Some((&id, task)) = self.tasks.iter_mut().find(|(_, task)| of(task)) else { return Ok(()) };
        (task.offer, task.source, task.received[0]) = (None, None, Stage::Waiting);
        let asked = task.asked;
        task.call.plan.receives[0].from = asked.unwrap_or(u32::MAX);
        self.begin_receive(id, asked, tag)
    }
}

impl QueuedMessage {
    fn is_offer(&self, with: u64) -> bool {
        matches!(self, QueuedMessage::Offer { number, .. } if *number == with)
    }
}

/// A call in words: "all_reduce of float32 by sum".
fn describe(call: Signature) -> String {
    let mut words = CollectiveCall::name_of(call.job).to_string();
    if call.element != 0 {
        words.push_str(&format!(" of {}", Element::name_of(call.element)));
    }
    if call.reduction != 0 {
        words.push_str(&format!(" by {}", Reduction::name_of(call.reduction)));
    }
    if ["reduce", "broadcast", "gather", "scatter"].contains(&CollectiveCall::name_of(call.job)) {
        words.push_str(&format!(" with root {}", call.root));
    }
    words
}
