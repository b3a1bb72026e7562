//! Messages of peers, for tasks that have begun here and for those that have not.

use super::super::failure::Failure;
use super::super::message::{Message, Said};
use super::{EARLY_MAX, Early, Engine, Outcome, Parcel};

impl Engine {
    pub(super) fn handle(&mut self, peer: usize, message: &Message<'_>) -> Outcome {
        let &Message { tag, group, number, said } = message;
        if self.ended.0.contains(&group) {
            return Ok(());
        }
        match said {
            Said::Bytes(bytes) => self.handle_collective(peer, (group, number), Early::Bytes(tag, bytes.to_vec())),
            Said::Open(landing) => self.handle_collective(peer, (group, number), Early::Open(tag, landing)),
            Said::Told(text) => self.handle_collective(peer, (group, number), Early::Told(text.into())),
            Said::Parcel(bytes) => self.handle_parcel(peer, group, tag, Parcel::Bytes(bytes.to_vec())),
            Said::Offer(length) => self.handle_parcel(peer, group, tag, Parcel::Offer { number, length }),
            Said::Accept(landing) => {
                let Some(task) = self.tasks.get_mut(&number) else { return Ok(()) };
                if task.call.group == group && task.call.number.is_none() && !task.call.plan.sends.is_empty() {
                    let to = task.call.plan.sends[0].to;
                    if self.groups.get(&group).and_then(|one| one.ranks.get(&peer)) == Some(&to) {
                        task.opened.insert((to, tag), landing);
                        return self.progress(number);
                    }
                }
                Ok(())
            }
            Said::Hello(_) | Said::Nudge => Ok(()),
        }
    }

    fn handle_collective(&mut self, peer: usize, key: (u64, u64), early: Early) -> Outcome {
        if let Some(group) = self.groups.get(&key.0) {
            if let Some(&id) = group.tasks.get(&key.1) {
                self.handle_early(id, peer, early)?;
                return self.progress(id);
            }
            if key.1 < group.begun {
                // It has failed here.
                return Ok(());
            }
        }
        let bytes = early_bytes(&early);
        if self.early_bytes + bytes > EARLY_MAX {
            return self.cut_off_peer(peer, "it sends more than anybody here has asked for");
        }
        self.early_bytes += bytes;
        self.early.entry(key).or_default().push((peer, early));
        Ok(())
    }

    /// A message of a collective that has begun here.
    pub(super) fn handle_early(&mut self, id: u64, peer: usize, early: Early) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let Some(&from) = self.groups.get(&task.call.group).and_then(|group| group.ranks.get(&peer)) else {
            return Ok(());
        };
        match early {
            Early::Bytes(tag, bytes) => match task.receive_of(from, tag) {
                Some(receive) if task.call.plan.receives[receive].length == bytes.len() => {
                    task.take(&mut self.node, &mut self.pool, receive, bytes)
                }
                Some(receive) => {
                    let (theirs, ours) = (bytes.len(), task.call.plan.receives[receive].length);
                    let what = format!(
                        "rank {from} sends {theirs} bytes where this rank expects {ours}: call all ranks alike"
                    );
                    self.fail(id, &Failure::Mismatch(what))
                }
                None => {
                    let what = format!(
                        "rank {from} sends {} bytes that {} does not expect: call all ranks alike",
                        bytes.len(),
                        task.call.what
                    );
                    self.fail(id, &Failure::Mismatch(what))
                }
            },
            Early::Open(tag, landing) => {
                if !task.call.plan.sends.iter().any(|send| send.to == from && send.tag == tag) {
                    let what = format!(
                        "rank {from} expects bytes that {} does not send: call all ranks alike",
                        task.call.what
                    );
                    return self.fail(id, &Failure::Mismatch(what));
                }
                task.opened.insert((from, tag), landing);
                Ok(())
            }
            Early::Told(what) => self.fail(id, &Failure::Told { by: from, what }),
        }
    }

    pub(super) fn handle_parcel(&mut self, peer: usize, group: u64, tag: u32, parcel: Parcel) -> Outcome {
        let bytes = parcel_bytes(&parcel);
        if self.early_bytes + bytes > EARLY_MAX {
            return self.cut_off_peer(peer, "it sends more than anybody here has asked for");
        }
        let Some(one) = self.groups.get_mut(&group) else {
            self.early_bytes += bytes;
            self.unknown.entry(group).or_default().push((peer, tag, parcel));
            return Ok(());
        };
        let Some(&from) = one.ranks.get(&peer) else { return Ok(()) };
        match one.wanted.iter().position(|(_, of, with)| *with == tag && of.is_none_or(|of| of == from)) {
            Some(at) => match one.wanted.remove(at) {
                Some((id, _, _)) => self.deliver(id, from, parcel),
                None => Ok(()),
            },
            None => {
                self.early_bytes += bytes;
                one.parcels.push_back((from, tag, parcel));
                Ok(())
            }
        }
    }
}

pub(super) fn parcel_bytes(parcel: &Parcel) -> usize {
    match parcel {
        Parcel::Bytes(bytes) => bytes.len() + 64,
        Parcel::Offer { .. } => 64,
    }
}

pub(super) fn early_bytes(early: &Early) -> usize {
    match early {
        Early::Bytes(_, bytes) => bytes.len() + 64,
        Early::Open(..) | Early::Told(_) => 128,
    }
}
