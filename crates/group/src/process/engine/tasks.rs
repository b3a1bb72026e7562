//! Tasks: how a collective, send or receive begins, moves on, and ends.

use super::super::failure::Failure;
use super::super::memory::Bytes;
use super::super::message::{Landing, Message, Said};
use super::super::plan::{Arriving, EAGER, Gate, Into, Outgoing, Plan, Span};
use super::super::task::{Call, Stage, Task};
use super::arriving::{early_bytes, parcel_bytes};
use super::{Begin, Early, Engine, Line, Opened, Outcome, Parcel, Remains, Sent, What};
use std::ops::Range;
use std::sync::PoisonError;
use strandway_udp::{Error, Region};

impl Engine {
    pub(super) fn begin(&mut self, begin: Begin) -> Outcome {
        let Begin { group, number, what, buffers, element, reduction, timeout, work } = begin;
        let Some(one) = self.groups.get_mut(&group).filter(|group| !group.aborted) else {
            work.end(Err(Failure::Aborted));
            return Ok(());
        };
        let (rank, ranks) = (one.rank, one.members.len() as u32);
        let id = self.next_task;
        self.next_task += 1;
        if let Some(number) = number {
            one.begun = number + 1;
            one.tasks.insert(number, id);
        }
        let (mut regions, mut owners) = (Vec::with_capacity(buffers.len()), Vec::new());
        for buffer in buffers {
            let (bytes, owner) = buffer.into_parts();
            owners.extend(owner);
            regions.push(match bytes {
                Bytes::Read(bytes) => self.node.show(bytes),
                Bytes::Write(bytes) => self.node.lend(bytes),
            });
        }
        let (name, plan) = match &what {
            What::Job(job) => (job.name(), Plan::new(job, (rank, ranks), element, regions.len(), &self.tuning)),
            What::Send { to, tag, at } => {
                let send = Outgoing { to: *to, tag: *tag, from: at.clone(), gate: Gate::Open };
                ("send", Plan { sends: vec![send], ..Plan::default() })
            }
            What::Receive { from, tag, at } => {
                let from = from.unwrap_or(u32::MAX);
                let receive = Arriving { from, tag: *tag, length: at.len(), into: Into::Place(at.clone()) };
                ("recv", Plan { receives: vec![receive], ..Plan::default() })
            }
        };
        let call =
            Call { group, number, what: name, work, timeout, rank, ranks, element, reduction, plan, regions, owners };
        let task = Task::new(&mut self.node, &mut self.pool, call)?;
        self.tasks.insert(id, task);
        match what {
            What::Job(_) => {
                let key = (group, number.unwrap_or_default());
                // This rank's blocks leave before anything is added to them in place.
                self.let_sends_leave(id)?;
                for (peer, early) in self.take_early(key) {
                    self.handle_early(id, peer, early)?;
                }
            }
            What::Send { to, tag, at } => self.begin_send(id, to, tag, &at)?,
            What::Receive { from, tag, .. } => self.begin_receive(id, from, tag)?,
        }
        if let Some(failure) = self.find_gone(id) {
            return self.fail(id, &failure);
        }
        self.progress(id)
    }

    pub(super) fn take_early(&mut self, key: (u64, u64)) -> Vec<(usize, Early)> {
        let early = self.early.remove(&key).unwrap_or_default();
        self.early_bytes -= early.iter().map(|(_, early)| early_bytes(early)).sum::<usize>();
        early
    }

    /// A rank that a task waits for and that is known to be gone.
    pub(super) fn find_gone(&self, id: u64) -> Option<Failure> {
        let task = self.tasks.get(&id)?;
        let group = self.groups.get(&task.call.group)?;
        task.waits_for().into_iter().find_map(|rank| {
            let peer = &self.peers[(*group.members.get(rank as usize)?)?];
            match &peer.line {
                Line::Gone(evidence) => {
                    Some(Failure::Gone { rank, host: peer.record.host.clone(), evidence: evidence.clone() })
                }
                _ => None,
            }
        })
    }

    fn begin_send(&mut self, id: u64, to: u32, tag: u32, at: &Span) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let group = task.call.group;
        let Some(Some(peer)) = self.groups.get(&group).and_then(|group| group.members.get(to as usize)).copied() else {
            return Ok(());
        };
        if at.len() <= EAGER {
            let bytes = self.node.memory(task.call.regions[at.buffer])?[at.bytes.clone()].to_vec();
            task.sent[0] = Stage::Done;
            task.left -= 1;
            self.say(peer, &Message { tag, group, number: id, said: Said::Parcel(&bytes) })
        } else {
            self.say(peer, &Message { tag, group, number: id, said: Said::Offer(at.len() as u64) })
        }
    }

    fn begin_receive(&mut self, id: u64, from: Option<u32>, tag: u32) -> Outcome {
        let Some(group) = self.tasks.get(&id).map(|task| task.call.group) else { return Ok(()) };
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        let fits = |of: u32, with: u32| with == tag && from.is_none_or(|from| from == of);
        match one.parcels.iter().position(|(of, with, _)| fits(*of, *with)) {
            Some(at) => {
                let Some((of, _, parcel)) = one.parcels.remove(at) else { return Ok(()) };
                self.early_bytes -= parcel_bytes(&parcel);
                self.deliver(id, of, parcel)
            }
            None => {
                one.wanted.push_back((id, from, tag));
                Ok(())
            }
        }
    }

    /// A message and the receive that it is for have met.
    pub(super) fn deliver(&mut self, id: u64, from: u32, parcel: Parcel) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.source = Some(from);
        task.call.plan.receives[0].from = from;
        let length = match &parcel {
            Parcel::Bytes(bytes) => bytes.len() as u64,
            Parcel::Offer { length, .. } => *length,
        };
        if length != task.call.plan.receives[0].length as u64 {
            let room = task.call.plan.receives[0].length;
            let what =
                format!("rank {from} sends {length} bytes, and the receive has room for {room}: give both the same");
            return self.fail(id, &Failure::Mismatch(what));
        }
        match parcel {
            Parcel::Bytes(bytes) => {
                task.take(&mut self.node, &mut self.pool, 0, bytes)?;
                self.progress(id)
            }
            Parcel::Offer { number, .. } => {
                let (group, tag) = (task.call.group, task.call.plan.receives[0].tag);
                let Some(peer) = self.peer_of(group, from) else { return Ok(()) };
                if let Some(landing) = self.open(id, 0, peer)? {
                    self.say(peer, &Message { tag, group, number, said: Said::Accept(landing) })?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn peer_of(&self, group: u64, rank: u32) -> Option<usize> {
        self.groups.get(&group)?.members.get(rank as usize).copied().flatten()
    }

    /// Opens memory for a receive to the peer that fills it; not if the line to it is not there yet.
    fn open(&mut self, id: u64, receive: usize, peer: usize) -> Result<Option<Landing>, Error> {
        let (Line::Open(connection), Some(task)) = (&self.peers[peer].line, self.tasks.get_mut(&id)) else {
            return Ok(None);
        };
        let connection = *connection;
        let arriving = &task.call.plan.receives[receive];
        let (region, range, staging): (Region, Range<usize>, _) = match &arriving.into {
            Into::Place(span) => (task.call.regions[span.buffer], span.bytes.clone(), None),
            Into::Sum(_) => {
                let region = self.node.register(self.pool.take(arriving.length));
                (region, 0..arriving.length, Some(region))
            }
        };
        let number = self.next_landing;
        self.next_landing = self.next_landing.wrapping_add(1);
        let landing = Landing { number, region: self.node.expose(connection, region, range)? };
        task.received[receive] = Stage::Begun;
        self.landings.insert((connection, number), Opened { task: id, receive, landing, staging });
        Ok(Some(landing))
    }

    /// Sends and opens what may be sent and opened; ends a task that has nothing left.
    pub(super) fn progress(&mut self, id: u64) -> Outcome {
        self.open_receives(id)?;
        self.let_sends_leave(id)?;
        let Some(task) = self.tasks.get(&id).filter(|task| task.left == 0) else { return Ok(()) };
        let source = task.source;
        let Some(mut task) = self.remove(id) else { return Ok(()) };
        for region in std::mem::take(&mut task.call.regions) {
            self.node.deregister(region)?;
        }
        // The caller's memory is its own again before it hears of the end.
        task.call.owners.clear();
        task.call.work.end(Ok(source));
        Ok(())
    }

    /// Takes a task off all lists.
    fn remove(&mut self, id: u64) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&task.call.group) {
            match task.call.number {
                Some(number) => drop(group.tasks.remove(&number)),
                None => group.wanted.retain(|(wanted, _, _)| *wanted != id),
            }
        }
        Some(task)
    }

    fn open_receives(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let Some(number) = task.call.number else { return Ok(()) };
        let (group, mut at, end) = (task.call.group, task.first_receive, task.call.plan.receives.len());
        let mut first = None;
        while at < end {
            let task = &self.tasks[&id];
            let receive = &task.call.plan.receives[at];
            if task.received[at] == Stage::Waiting && receive.length > EAGER {
                let (from, tag) = (receive.from, receive.tag);
                if !task.may_receive(at) {
                    first.get_or_insert(at);
                    break;
                }
                let Some(peer) = self.peer_of(group, from) else { return Ok(()) };
                match self.open(id, at, peer)? {
                    Some(landing) => self.say(peer, &Message { tag, group, number, said: Said::Open(landing) })?,
                    None => drop(first.get_or_insert(at)),
                }
            }
            at += 1;
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.first_receive = first.unwrap_or(at);
        }
        Ok(())
    }

    fn let_sends_leave(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let (group, number) = (task.call.group, task.call.number);
        let (mut at, end) = (task.first_send, task.call.plan.sends.len());
        let mut first = None;
        while at < end {
            let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
            if task.sent[at] == Stage::Waiting && !self.send_one(id, at, group, number)? {
                first.get_or_insert(at);
            }
            at += 1;
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.first_send = first.unwrap_or(at);
        }
        Ok(())
    }

    /// Lets one send leave; false if it has to wait.
    fn send_one(&mut self, id: u64, at: usize, group: u64, number: Option<u64>) -> Result<bool, Error> {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_open(at)) else { return Ok(false) };
        let Outgoing { to, tag, from, .. } = task.call.plan.sends[at].clone();
        let Some(Some(peer)) = self.groups.get(&group).and_then(|group| group.members.get(to as usize)).copied() else {
            return Ok(false);
        };
        if let Some(number) = number
            && from.len() <= EAGER
        {
            let bytes = match from.is_empty() {
                true => Vec::new(),
                false => self.node.memory(task.call.regions[from.buffer])?[from.bytes].to_vec(),
            };
            task.sent[at] = Stage::Done;
            task.left -= 1;
            self.say(peer, &Message { tag, group, number, said: Said::Bytes(&bytes) })?;
            return Ok(true);
        }
        let (Some(landing), Line::Open(connection)) = (task.opened.get(&(to, tag)).copied(), &self.peers[peer].line)
        else {
            return Ok(false);
        };
        if landing.region.bytes != from.len() as u64 {
            let (theirs, ours) = (landing.region.bytes, from.len());
            let what = format!("rank {to} expects {theirs} bytes where this rank sends {ours}: call all ranks alike");
            self.fail(id, &Failure::Mismatch(what))?;
            return Ok(true);
        }
        let (connection, region) = (*connection, task.call.regions[from.buffer]);
        match self.node.write(connection, region, from.bytes, landing.region, 0, Some(landing.number)) {
            Ok(operation) => {
                task.opened.remove(&(to, tag));
                task.sent[at] = Stage::Begun;
                self.sent.insert(operation, (connection, Sent::Long { task: id, send: at }));
                Ok(true)
            }
            // It is tried again when something of the task has ended.
            Err(Error::Busy { .. } | Error::NoConnection | Error::NotConnected) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A task has no result: says so to its caller and, unless it is this rank's own doing, to the others.
    pub(super) fn fail(&mut self, id: u64, failure: &Failure) -> Outcome {
        let Some(mut task) = self.remove(id) else { return Ok(()) };
        // The wire may use its memory for a while; the caller has it back now.
        let mut regions = std::mem::take(&mut task.call.regions);
        for region in &regions {
            self.node.take_over(*region)?;
        }
        let uses = self.landings.values().filter(|opened| opened.task == id).count()
            + self.sent.values().filter(|(_, sent)| matches!(sent, Sent::Long { task, .. } if *task == id)).count();
        if uses == 0 {
            for region in regions.drain(..) {
                self.node.deregister(region)?;
            }
        } else {
            self.remains.insert(id, Remains { regions, uses });
        }
        task.call.owners.clear();
        if let Some(group) = self.groups.get(&task.call.group) {
            group.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| failure.clone());
            if let (Some(number), Failure::Gone { .. } | Failure::Mismatch(_)) = (task.call.number, failure) {
                let text: String = failure.to_string().chars().take(2_000).collect();
                let members: Vec<usize> = group.members.iter().flatten().copied().collect();
                for peer in members {
                    let told = Message { tag: 0, group: task.call.group, number, said: Said::Told(&text) };
                    self.say(peer, &told)?;
                }
            }
        }
        task.call.work.end(Err(failure.clone()));
        Ok(())
    }

    pub(super) fn fail_group(&mut self, group: u64, failure: &Failure) -> Outcome {
        let ids: Vec<u64> = self.tasks.iter().filter(|(_, task)| task.call.group == group).map(|(id, _)| *id).collect();
        ids.into_iter().try_for_each(|id| self.fail(id, failure))
    }

    /// A use of a failed task's memory has ended.
    pub(super) fn clear(&mut self, id: u64) -> Outcome {
        let Some(remains) = self.remains.get_mut(&id) else { return Ok(()) };
        remains.uses -= 1;
        if remains.uses == 0
            && let Some(remains) = self.remains.remove(&id)
        {
            for region in remains.regions {
                self.node.deregister(region)?;
            }
        }
        Ok(())
    }
}
