//! A pass of a cast: the sender's team gets the files, batch by batch, and goes on without members that are lost.

use super::{Casting, LOOK, State, Status};
use crate::cast::message::{CastMessage, FileBatch};
use crate::cast::ready::{Ready, Step, hasher};
use crate::cast::receiver_group::ReceiverGroup;
use crate::cast::{CastError, Hashes, broadcast, step_back, with_list};
use crate::copy::parts::{Order, Outcome, Sender, Tree, parcel_bytes};
use crate::copy::{CopyError, Message};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use strandway_group::GroupError;

impl<S: Fn() -> bool> Casting<'_, S> {
    /// Casts a tree to these receivers.
    pub(super) fn pass(
        &mut self,
        tree: Tree,
        mut members: Vec<usize>,
        each: &mut impl FnMut(&Status),
    ) -> Result<Outcome, CastError> {
        members.iter().for_each(|&who| self.peers[who].state = State::Receives);
        self.form(&mut members, each)?;
        let mut group = ReceiverGroup::new(members.iter().copied());
        let (orders, list) = mpsc::channel();
        let (inbox, heard) = mpsc::channel();
        let waker = self.role.node().waker()?;
        let sender = Sender::new(tree, (self.options.block, self.options.slots), false, orders);
        let cut = (!self.options.trusting).then(|| (self.role.node().payload() as u16, self.options.team.parity));
        let (list, hashing) = hasher(list, cut, self.role.node().waker()?)?;
        let thread = std::thread::Builder::new().name("cast".into()).spawn(move || {
            step_back();
            let ended = sender.run(&heard, || waker.wake());
            waker.wake();
            ended
        });
        let thread = thread.map_err(|error| CastError::Option(format!("no thread for the disk: {error}")))?;
        let pumped = self.pump(&list, &inbox, &mut group, &mut members, each);
        drop((list, inbox));
        // The hashing thread ends with its channels.
        let _ = hashing.join();
        let ended = thread.join().unwrap_or(Err(None));
        for who in group.members().collect::<Vec<_>>() {
            self.peers[who].failures = group.result(who).map_or_else(Vec::new, |result| result.failures.clone());
            self.peers[who].state = State::Done;
        }
        pumped?;
        Ok(ended.map_err(|error| error.unwrap_or(CopyError::Stopped))?)
    }

    /// Moves messages and file batches until the disk thread has no more orders.
    fn pump(
        &mut self,
        orders: &mpsc::Receiver<Step>,
        inbox: &mpsc::Sender<(usize, Message)>,
        group: &mut ReceiverGroup,
        members: &mut Vec<usize>,
        each: &mut impl FnMut(&Status),
    ) -> Result<(), CastError> {
        let mut batches: VecDeque<Ready> = VecDeque::new();
        loop {
            loop {
                match orders.try_recv() {
                    Ok(Step::Other(Order::Say(message))) => {
                        if let Ok(said) = Message::decode(&message) {
                            group.record_sent(&said);
                        }
                        members.iter().for_each(|&who| {
                            // A lost receiver is noticed below.
                            let _ = self.send_message(who, &CastMessage::Copy(message.clone()));
                        });
                    }
                    Ok(Step::Parcel(ready)) => batches.push_back(ready?),
                    Ok(Step::Other(Order::Write(..) | Order::Heard(_))) => {}
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
                }
            }
            // The disk thread wakes the node. During an operation this has no effect.
            let nap = match batches.pop_front() {
                Some(batch) => {
                    self.cast(batch, batches.front_mut(), (group, inbox), members, each)?;
                    Duration::ZERO
                }
                None => LOOK,
            };
            self.turn(nap, each)?;
            for who in members.clone() {
                self.listen(who, group, inbox);
            }
            self.leave_behind(group, inbox, members)?;
        }
    }

    /// Handles a receiver's messages about its copy.
    fn listen(&mut self, who: usize, group: &mut ReceiverGroup, inbox: &mpsc::Sender<(usize, Message)>) {
        while let Some(at) = self.peers[who].messages.iter().position(|message| matches!(message, CastMessage::Copy(_)))
        {
            let Some(CastMessage::Copy(message)) = self.peers[who].messages.remove(at) else { return };
            let heard = Message::decode(&message).and_then(|message| group.handle_message(who, message));
            match heard {
                // If the disk thread has ended, the channel of its orders is closed, and `pump` notices that.
                Ok(all) => all.into_iter().for_each(|message| drop(inbox.send((0, message)))),
                Err(malformed) => return self.give_up(who, &malformed.to_string()),
            }
            if let Some(result) = group.result(who) {
                (self.peers[who].bytes, self.peers[who].files) = (result.bytes, result.files);
            }
        }
    }

    /// Goes on without receivers that are lost.
    fn leave_behind(
        &mut self,
        group: &mut ReceiverGroup,
        inbox: &mpsc::Sender<(usize, Message)>,
        members: &mut Vec<usize>,
    ) -> Result<(), CastError> {
        for who in members.clone() {
            if self.peers[who].state == State::Receives {
                continue;
            }
            if self.options.all_or_nothing {
                return Err(CastError::Lost(self.peers[who].listener.name.clone()));
            }
            members.retain(|&member| member != who);
            let (said, result) = group.lose(who);
            self.peers[who].failures = result.failures;
            said.into_iter().for_each(|message| drop(inbox.send((0, message))));
        }
        if members.is_empty() { Err(CastError::Nobody(self.reasons())) } else { Ok(()) }
    }

    /// Casts a file batch to all members, and with it the list of the next one, if there is one. A member that dies is
    /// left behind, and the others get the file batch in a new team.
    fn cast(
        &mut self,
        ready: Ready,
        next: Option<&mut Ready>,
        (group, inbox): (&mut ReceiverGroup, &mpsc::Sender<(usize, Message)>),
        members: &mut Vec<usize>,
        each: &mut impl FnMut(&Status),
    ) -> Result<(), CastError> {
        let Ready { slot, bytes: mut buffer, list, listed } = ready;
        let bytes = buffer.len();
        debug_assert!(bytes as u64 <= parcel_bytes(self.options.block));
        // Chunks of a list are not checked one by one, so no parity may combine them with chunks that are.
        let next = next.filter(|_| self.options.team.parity.is_none());
        let behind = next.as_ref().and_then(|next| next.list.as_ref()).map_or(&[][..], |list| &list.hashes);
        if !behind.is_empty() {
            let chunk = self.role.node().payload() as usize;
            buffer.resize(with_list(bytes, behind.len(), chunk) - behind.len(), 0);
            buffer.extend_from_slice(behind);
        }
        let hash = list.as_ref().map_or([0; 32], |list| list.hash);
        let batch = FileBatch { slot, bytes: bytes as u32, hash, listed, next: behind.len() as u32 };
        let hashes = match list {
            None => Hashes::None,
            Some(list) if listed => Hashes::Here(list),
            Some(list) => Hashes::Apart(list),
        };
        loop {
            self.leave_behind(group, inbox, members)?;
            let formed = self.role.team().is_some_and(|team| team.ranks() as usize == members.len() + 1);
            if !formed {
                self.form(members, each)?;
                continue;
            }
            members.iter().for_each(|&who| {
                // The team notices a lost receiver.
                let _ = self.send_message(who, &CastMessage::Parcel(batch));
            });
            let (stop, began, looked) = (self.stop, self.began, Cell::new(Instant::now()));
            let (status, told) = (self.status(), RefCell::new(&mut *each));
            // A file batch may take seconds. The caller is told meanwhile, too.
            let stop = || {
                if looked.get().elapsed() >= LOOK {
                    looked.set(Instant::now());
                    told.borrow_mut()(&Status { seconds: began.elapsed().as_secs_f64(), ..status.clone() });
                }
                stop()
            };
            let Some(team) = self.role.team() else { continue };
            match broadcast(team, buffer, (bytes, batch.next as usize), &hashes, &stop) {
                Ok(_) => {
                    self.cast_bytes += bytes as u64;
                    group.cast(slot, bytes as u64);
                    if let Some(next) = next.filter(|_| batch.next > 0) {
                        next.listed = true;
                    }
                    return Ok(());
                }
                Err((back, GroupError::Dead { rank })) => {
                    buffer = back;
                    if let Some(&who) = members.get((rank as usize).wrapping_sub(1)) {
                        self.give_up(who, "it was silent for too long");
                    }
                }
                // All have the sender's number over their own connections.
                Err((back, GroupError::Sizes { ranks })) => {
                    buffer = back;
                    let wrong =
                        ranks.into_iter().filter_map(|rank| members.get((rank as usize).wrapping_sub(1)).copied());
                    let wrong: Vec<usize> = wrong.collect();
                    if wrong.is_empty() {
                        return Err(GroupError::Sizes { ranks }.into());
                    }
                    wrong.into_iter().for_each(|who| self.give_up(who, "it has another size of a parcel"));
                }
                Err((_, error)) => return Err(error.into()),
            }
        }
    }
}
