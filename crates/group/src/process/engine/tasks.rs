//! Tasks: how a collective, send or receive begins, moves on, and ends.

use super::super::failure::Failure;
use super::super::memory::Bytes;
use super::super::message::{Landing, Message, PeerMessage, Signature};
use super::super::task::{Call, Stage, Task};
use super::{About, Begin, Early, Engine, Opened, Outcome, PeerConnection, QueuedMessage, Sent, What, while_connected};
use std::ops::Range;
use std::time::Instant;
use strandway_collective::plan::direct::EAGER;
use strandway_collective::plan::{BufferRange, Hosts, PlannedReceive, PlannedSend, RankPlan, Target};
use strandway_udp::{Error, Node, Region};

impl Engine {
    pub(super) fn begin(&mut self, begin: Begin) -> Outcome {
        let Begin { group, number, what, buffers, element, reduction, timeout, work } = begin;
        let Some(one) = self.groups.get_mut(&group).filter(|group| !group.aborted) else {
            work.end(Err(Failure::Aborted));
            return Ok(());
        };
        if let (Some(number), Some(broken)) = (number, one.broken.clone()) {
            // The others must not wait for this rank.
            self.refuse(group, number, &broken.to_string())?;
            work.end(Err(broken));
            return Ok(());
        }
        let (rank, ranks) = (one.rank, one.members.len() as u32);
        work.started();
        let id = self.next_task;
        self.next_task += 1;
        if let Some(number) = number {
            one.begun = number + 1;
            one.tasks.insert(number, id);
        }
        if let Some(kind) = self.delegate_for(&what, (element, reduction), group) {
            let begin = Begin { group, number, what, buffers, element, reduction, timeout, work };
            return self.begin_delegated(kind, id, begin);
        }
        let (mut regions, mut owners) = (Vec::with_capacity(buffers.len()), Vec::new());
        for buffer in buffers {
            let (bytes, owner) = buffer.into_parts();
            owners.extend(owner);
            regions.push(match bytes {
                Bytes::Read(bytes) => self.node.show(bytes),
                Bytes::Write(bytes) => self.node.register_static(bytes),
            });
        }
        let apart = Hosts::default();
        let (name, plan) = match &what {
            What::Call(call) => {
                let hosts = self.groups.get(&group).map_or(&apart, |one| &one.hosts);
                (call.name(), self.plans.plan(call, (rank, ranks), hosts, element.bytes(), regions.len()))
            }
            What::Send { to, tag, at } => {
                let send = PlannedSend { to: *to, tag: *tag, from: at.clone(), after: Vec::new() };
                ("send", RankPlan { sends: vec![send], ..RankPlan::default() })
            }
            What::Receive { from, tag, at } => {
                let from = from.unwrap_or(u32::MAX);
                let (length, into) = (at.len(), Target::Place(at.clone()));
                let receive = PlannedReceive { from, tag: *tag, length, into, after: Vec::new() };
                ("recv", RankPlan { receives: vec![receive], ..RankPlan::default() })
            }
        };
        let signature = match &what {
            What::Call(call) => Signature::of(call, element, reduction),
            _ => Signature::default(),
        };
        let call = Call {
            group,
            signature,
            number,
            what: name,
            work,
            timeout,
            rank,
            ranks,
            element,
            reduction,
            plan,
            regions,
            owners,
        };
        let mut task = Task::new(&mut self.node, &mut self.pool, call)?;
        match what {
            What::Call(_) => return self.add_task(id, task),
            What::Send { to, tag, at } => {
                self.insert_task(id, task);
                self.begin_send(id, to, tag, &at)?;
            }
            What::Receive { from, tag, .. } => {
                task.asked = from;
                self.insert_task(id, task);
                self.begin_receive(id, from, tag)?;
            }
        }
        self.progress_unless_gone(id)
    }

    fn insert_task(&mut self, id: u64, task: Task) {
        self.deadlines.extend(task.deadline().map(|deadline| (deadline, id)));
        self.tasks.insert(id, task);
    }

    /// Begins the task of a collective call.
    pub(super) fn add_task(&mut self, id: u64, task: Task) -> Outcome {
        let key = (task.call.group, task.call.number.unwrap_or_default());
        self.insert_task(id, task);
        self.start_messages(id, key)
    }

    /// Lets the messages of a collective call leave, and takes those that have come.
    pub(super) fn start_messages(&mut self, id: u64, key: (u64, u64)) -> Outcome {
        // This rank's blocks leave before anything is added to them in place.
        self.let_sends_leave(id)?;
        let early = self.early.remove(&key).unwrap_or_default();
        let (later, early): (Vec<_>, Vec<_>) = early.into_iter().partition(|(_, one)| self.is_deferred(id, one));
        if !later.is_empty() {
            self.early.insert(key, later);
        }
        self.note_taken(&early)?;
        for (peer, early) in early {
            self.handle_early(id, peer, early)?;
        }
        self.progress_unless_gone(id)
    }

    fn progress_unless_gone(&mut self, id: u64) -> Outcome {
        match self.find_gone(id) {
            Some(failure) => self.fail(id, &failure),
            None => self.progress(id),
        }
    }

    /// Takes the messages of a call that have come before it began here. Their senders may send more now.
    pub(super) fn take_early(&mut self, key: (u64, u64)) -> Result<Vec<(usize, Early)>, Error> {
        if self.early.is_empty() {
            return Ok(Vec::new());
        }
        let early = self.early.remove(&key).unwrap_or_default();
        self.note_taken(&early)?;
        Ok(early)
    }

    fn note_taken(&mut self, early: &[(usize, Early)]) -> Outcome {
        for (peer, early) in early {
            self.peers[*peer].early -= early.bytes();
            if let Early::Bytes(_, _, bytes) = early {
                self.give_back(*peer, bytes.len())?;
            }
        }
        Ok(())
    }

    /// A call was refused at this rank: it takes its number, and the other ranks hear the reason.
    pub(super) fn refuse(&mut self, group: u64, number: u64, text: &str) -> Outcome {
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        one.begun = one.begun.max(number + 1);
        one.note_failed(number);
        drop(self.take_early((group, number))?);
        self.notify_all(group, number, text)
    }

    /// Tells the other ranks that a call has failed here.
    pub(super) fn notify_all(&mut self, group: u64, number: u64, text: &str) -> Outcome {
        let Some(one) = self.groups.get(&group) else { return Ok(()) };
        let text: String = text.chars().take(2_000).collect();
        let members: Vec<usize> = one.members.iter().flatten().copied().collect();
        let signature = Signature::default();
        let told = Message { signature, tag: 0, group, number, said: PeerMessage::Told(&text) };
        members.into_iter().try_for_each(|peer| self.send_message(peer, &told))
    }

    /// A rank that a task waits for, and that is known to be gone.
    pub(super) fn find_gone(&self, id: u64) -> Option<Failure> {
        let task = self.tasks.get(&id)?;
        let group = self.groups.get(&task.call.group)?;
        let gone = |rank: u32| {
            let peer = &self.peers[(*group.members.get(rank as usize)?)?];
            match &peer.line {
                PeerConnection::Gone(evidence) => {
                    Some(Failure::Gone { rank, host: peer.record.host.clone(), evidence: evidence.clone() })
                }
                _ => None,
            }
        };
        task.waits_for_messages()
            .into_iter()
            .find_map(|rank| match rank {
                // A receive from any rank can be filled as long as one rank is left.
                u32::MAX => {
                    let others = (0..group.members.len() as u32).filter(|other| *other != group.rank);
                    let all: Option<Vec<Failure>> = others.map(gone).collect();
                    all.and_then(|all| all.into_iter().next())
                }
                rank => gone(rank),
            })
            .or_else(|| self.find_gone_from_team(task))
    }

    fn begin_send(&mut self, id: u64, to: u32, tag: u32, at: &BufferRange) -> Outcome {
        let Some(group) = self.tasks.get(&id).map(|task| task.call.group) else { return Ok(()) };
        let Some(peer) = self.peer_of(group, to) else { return Ok(()) };
        let signature = Signature::default();
        // Beyond the credit, even a short message is announced first.
        if at.len() <= EAGER && self.spend(peer, at.len()) {
            let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
            task.sent[0] = Stage::Begun;
            let bytes = Engine::bytes_of(&self.node, task, 0)?;
            let message = Message { signature, tag, group, number: id, said: PeerMessage::Parcel(&bytes) };
            self.post(peer, &message, About::Send { task: id })
        } else {
            self.send_message(
                peer,
                &Message { signature, tag, group, number: id, said: PeerMessage::Offer(at.len() as u64) },
            )
        }
    }

    /// The bytes of a short message of a task.
    pub(super) fn bytes_of(node: &Node, task: &mut Task, send: usize) -> Result<Vec<u8>, Error> {
        if let Some(bytes) = task.kept.remove(&send) {
            return Ok(bytes);
        }
        let from = &task.call.plan.sends[send].from;
        match from.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(node.memory(task.call.regions[from.buffer])?[from.bytes.clone()].to_vec()),
        }
    }

    pub(super) fn begin_receive(&mut self, id: u64, from: Option<u32>, tag: u32) -> Outcome {
        let Some(group) = self.tasks.get(&id).map(|task| task.call.group) else { return Ok(()) };
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        let found = one.messages.get_mut(&tag).and_then(|list| {
            let at = list.iter().position(|(of, _)| from.is_none_or(|from| from == *of))?;
            list.remove(at)
        });
        match found {
            Some((of, message)) => {
                if let Some(peer) = self.peer_of(group, of) {
                    self.peers[peer].early -= message.bytes();
                    if let QueuedMessage::Bytes(bytes) = &message {
                        self.give_back(peer, bytes.len())?;
                    }
                }
                self.deliver(id, of, message)
            }
            None => {
                // The list is in the order of calls. A receive that waits again was called before later ones.
                let list = one.wanted.entry(tag).or_default();
                let at = list.partition_point(|(other, _)| *other < id);
                list.insert(at, (id, from));
                Ok(())
            }
        }
    }

    /// A message has met its receive.
    pub(super) fn deliver(&mut self, id: u64, from: u32, message: QueuedMessage) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.source = Some(from);
        task.call.plan.receives[0].from = from;
        let length = match &message {
            QueuedMessage::Bytes(bytes) => bytes.len() as u64,
            QueuedMessage::Offer { length, .. } => *length,
        };
        if length != task.call.plan.receives[0].length as u64 {
            let room = task.call.plan.receives[0].length;
            let what =
                format!("rank {from} sends {length} bytes, and the receive has room for {room}: give both the same");
            let (group, tag) = (task.call.group, task.call.plan.receives[0].tag);
            if let (QueuedMessage::Offer { .. }, Some(peer)) = (&message, self.peer_of(group, from)) {
                self.reject(peer, group, tag, &message)?;
            }
            return self.fail(id, &Failure::Mismatch(what));
        }
        match message {
            QueuedMessage::Bytes(bytes) => {
                task.take(&mut self.node, &mut self.pool, 0, bytes)?;
                self.progress(id)
            }
            QueuedMessage::Offer { number, .. } => {
                let group = task.call.group;
                if let Some(peer) = self.peer_of(group, from)
                    && let Some(task) = self.tasks.get_mut(&id)
                {
                    task.offer = Some((peer, number));
                }
                self.accept(id)
            }
        }
    }

    /// Opens memory for the offer that a receive has taken.
    fn accept(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get(&id).filter(|task| task.call.number.is_none()) else { return Ok(()) };
        let (Some((peer, number)), Some(Stage::Waiting)) = (task.offer, task.received.first()) else { return Ok(()) };
        let (group, tag) = (task.call.group, task.call.plan.receives[0].tag);
        match self.open(id, 0, peer)? {
            Some(landing) => {
                let signature = Signature::default();
                self.send_message(peer, &Message { signature, tag, group, number, said: PeerMessage::Accept(landing) })
            }
            None => Ok(()),
        }
    }

    /// All peers of a group.
    pub(super) fn members_of(&self, group: u64) -> Vec<usize> {
        self.groups.get(&group).map_or(Vec::new(), |group| group.members.iter().flatten().copied().collect())
    }

    pub(super) fn peer_of(&self, group: u64, rank: u32) -> Option<usize> {
        self.groups.get(&group)?.members.get(rank as usize).copied().flatten()
    }

    /// Opens memory for a receive to the peer that fills it; `None` if there is no connection to it yet.
    fn open(&mut self, id: u64, receive: usize, peer: usize) -> Result<Option<Landing>, Error> {
        let (PeerConnection::Open(connection), Some(task)) = (&self.peers[peer].line, self.tasks.get_mut(&id)) else {
            return Ok(None);
        };
        let connection = *connection;
        let length = task.call.plan.receives[receive].length;
        let (region, range, staging): (Region, Range<usize>, _) = match task.open_place(receive) {
            Some(place) => (task.call.regions[place.buffer], place.bytes.clone(), None),
            None => {
                let region = self.node.register(self.pool.take(length));
                (region, 0..length, Some(region))
            }
        };
        let exposed = match while_connected(self.node.expose(connection, region, range)) {
            Err(Error::TooManyKeys { .. }) => {
                self.keyless.insert(id);
                None
            }
            other => other?,
        };
        let Some(region) = exposed else {
            if let Some(staging) = staging {
                let area = self.node.deregister(staging)?;
                self.pool.keep(area);
            }
            return Ok(None);
        };
        let number = self.landings.number();
        let landing = Landing { number, region };
        task.received[receive] = Stage::Begun;
        task.uses += 1;
        let offer = task.offer.map(|(_, number)| number);
        self.landings.open.insert((connection, number), Opened { task: id, receive, landing, staging, offer });
        Ok(Some(landing))
    }

    /// Sends the messages and opens the receives that may go on. Ends a task that has nothing left.
    pub(super) fn progress(&mut self, id: u64) -> Outcome {
        self.accept(id)?;
        if let Some(task) = self.tasks.get_mut(&id) {
            task.take_held(&mut self.node, &mut self.pool)?;
        }
        self.advance_delegated(id)?;
        self.open_receives(id)?;
        self.let_sends_leave(id)?;
        let Some(task) = self.tasks.get(&id).filter(|task| task.left == 0) else { return Ok(()) };
        let source = task.source;
        let Some(mut task) = self.remove(id) else { return Ok(()) };
        task.finish(&mut self.node)?;
        if let Some(watching) = &mut self.watching {
            watching.note_finished(&task);
        }
        for region in std::mem::take(&mut task.call.regions) {
            self.node.deregister(region)?;
        }
        // The caller gets its memory back before it hears of the end.
        task.call.owners.clear();
        task.call.work.end(Ok(source));
        Ok(())
    }

    /// Takes a task off all lists.
    pub(super) fn remove(&mut self, id: u64) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(deadline) = task.deadline() {
            self.deadlines.remove(&(deadline, id));
        }
        if let Some(group) = self.groups.get_mut(&task.call.group) {
            match (task.call.number, task.call.plan.receives.first()) {
                (Some(number), _) => drop(group.tasks.remove(&number)),
                (None, Some(receive)) => {
                    if let Some(list) = group.wanted.get_mut(&receive.tag) {
                        if let Ok(at) = list.binary_search_by_key(&id, |(wanted, _)| *wanted) {
                            list.remove(at);
                        }
                        if list.is_empty() {
                            group.wanted.remove(&receive.tag);
                        }
                    }
                }
                (None, None) => {}
            }
            for (send, stage) in task.call.plan.sends.iter().zip(&task.sent) {
                if matches!(stage, Stage::Starved | Stage::Announced)
                    && let Some(&Some(peer)) = group.members.get(send.to as usize)
                {
                    self.peers[peer].starved.tasks.remove(&id);
                }
            }
        }
        Some(task)
    }

    fn open_receives(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let Some(number) = task.call.number else { return Ok(()) };
        let (group, mut at, end) = (task.call.group, task.first_receive, task.call.plan.receives.len());
        let signature = task.call.signature;
        let mut first = None;
        while at < end {
            let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
            let receive = &task.call.plan.receives[at];
            if task.received[at] == Stage::Waiting && receive.length > EAGER {
                let (from, tag, is_sum) = (receive.from, receive.tag, matches!(receive.into, Target::Sum(_)));
                if !task.may_receive(at) {
                    first.get_or_insert(at);
                    at += 1;
                    // Sums are in order, so later ones have to wait, too.
                    if is_sum {
                        break;
                    }
                    continue;
                }
                let Some(peer) = self.peer_of(group, from) else { return Ok(()) };
                match self.open(id, at, peer)? {
                    Some(landing) => {
                        self.send_message(
                            peer,
                            &Message { signature, tag, group, number, said: PeerMessage::Open(landing) },
                        )?;
                    }
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
            if matches!(task.sent[at], Stage::Waiting | Stage::Starved | Stage::Announced)
                && !self.send_one(id, at, group, number)?
            {
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
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(false) };
        if !task.is_open(at) {
            return Ok(false);
        }
        let planned = &task.call.plan.sends[at];
        // Each event of a task looks at all of its sends, so those without a target cost little.
        let is_long = number.is_none() || planned.from.len() > EAGER;
        if is_long && (task.opened.is_empty() || !task.opened.contains_key(&(planned.to, planned.tag))) {
            return Ok(false);
        }
        let PlannedSend { to, tag, from, after } = planned.clone();
        let signature = task.call.signature;
        let Some(peer) =
            self.peer_of(group, to).filter(|peer| !matches!(self.peers[*peer].line, PeerConnection::Gone(_)))
        else {
            return Ok(false);
        };
        if let Some(number) = number
            && from.len() <= EAGER
        {
            let enough = self.spend(peer, from.len());
            let Some(task) = self.tasks.get_mut(&id) else { return Ok(false) };
            if !enough {
                let starved = &mut self.peers[peer].starved;
                starved.tasks.insert(id);
                if task.sent[at] == Stage::Waiting {
                    task.sent[at] = Stage::Starved;
                    // This rank's own numbers may become a sum before they leave.
                    if after.is_empty() && !task.call.plan.sums.is_empty() {
                        task.keep(&mut self.node, at)?;
                    }
                    if starved.tells {
                        self.announce(id, at, peer)?;
                    } else {
                        starved.untold.push_back((Instant::now(), id));
                    }
                }
                return Ok(false);
            }
            let bytes = Engine::bytes_of(&self.node, task, at)?;
            task.sent[at] = Stage::Done;
            task.left -= 1;
            let message = Message { signature, tag, group, number, said: PeerMessage::Bytes(&bytes) };
            self.post(peer, &message, About::Call { group, number })?;
            return Ok(true);
        }
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(false) };
        let (Some(landing), PeerConnection::Open(connection)) =
            (task.opened.get(&(to, tag)).copied(), &self.peers[peer].line)
        else {
            return Ok(false);
        };
        if landing.region.bytes != from.len() as u64 {
            let (theirs, ours) = (landing.region.bytes, from.len());
            let what = format!("rank {to} expects {theirs} bytes where this rank sends {ours}: call all ranks alike");
            self.disagree(id, what)?;
            return Ok(true);
        }
        let (connection, region) = (*connection, task.call.regions[from.buffer]);
        match self.node.write(connection, region, from.bytes, landing.region, landing.number) {
            Ok(operation) => {
                task.opened.remove(&(to, tag));
                task.sent[at] = Stage::Begun;
                task.uses += 1;
                self.peers[peer].posted.writes += 1;
                self.sent.insert(operation, (connection, Sent::Long { task: id, send: at }));
                Ok(true)
            }
            // The write is tried again when an operation of the connection has ended.
            Err(Error::Busy { .. }) => {
                self.peers[peer].crowded.insert(id);
                Ok(false)
            }
            Err(Error::NoConnection | Error::NotConnected) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
