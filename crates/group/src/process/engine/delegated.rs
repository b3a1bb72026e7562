//! Calls that a delegate performs: which ones, the messages by which the ranks find that they agree, and the life of a
//! group's delegates.
//!
//! The first such call of a group makes the delegate. Its plan sends each rank the ports of the delegate's node. Later
//! calls send a short message to the next rank: if each rank agrees with the one before it, all agree.

use super::super::delegate::{Ended, Job, Kind, Lent, Order, Request, TeamOffer};
use super::super::element::Element;
use super::super::failure::Failure;
use super::super::memory::Bytes;
use super::super::message::Signature;
use super::super::task::{Call, Stage, Task};
use super::delegates::Running;
use super::{Begin, Engine, Outcome, PeerConnection, What};
use crate::error::GroupError;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandway_collective::plan::{BufferRange, CollectiveCall, Hosts, PlannedReceive, PlannedSend, RankPlan, Target};
use strandway_proto::units::Rate;

/// The tags of the messages of such calls, which no plan of messages uses; the number of the kind is added.
const TAG: u32 = 0x4000_0000;
/// The messages that make a delegate.
const MEETING: u32 = 0x100;

/// A call that a delegate performs, in its task.
pub(in super::super) struct Delegated {
    pub(in super::super) order: Arc<Order>,
    kind: Kind,
    bytes: u64,
    /// The call makes the delegate.
    meets: bool,
    /// Messages of other ranks that were compared.
    compared: usize,
    /// The delegate has performed it.
    performed: bool,
    /// The delegate could not perform it: messages will, as soon as those of the delegate's plan have left and come.
    returned: Option<Box<(CollectiveCall, Lent)>>,
}

impl Delegated {
    /// Does the delegate still work on it?
    pub(in super::super) fn is_pending(&self) -> bool {
        !self.performed && self.returned.is_none()
    }

    /// May messages with this tag be for the plan that takes the delegate's place? Another rank may be ahead.
    pub(in super::super) fn defers(&self, tag: u32) -> bool {
        self.kind == Kind::InNetwork && tag & !(MEETING | 0xff) != TAG
    }
}

/// The message of a rank about a call: the bytes of its buffer. If the call makes the delegate, it also has the rate at
/// which the rank receives, in bits per second, and the ports of its node.
struct Claim {
    bytes: u64,
    rate: u64,
    ports: Vec<u16>,
}

impl Claim {
    fn encode(&self, meets: bool) -> Vec<u8> {
        let mut out = self.bytes.to_be_bytes().to_vec();
        if meets {
            out.extend_from_slice(&self.rate.to_be_bytes());
            out.extend(self.ports.iter().flat_map(|port| port.to_be_bytes()));
        }
        out
    }

    /// Reads what [`Claim::encode`] has written; the length was checked.
    fn decode(text: &[u8]) -> Claim {
        let word = |at: usize| {
            text.get(at..at + 8).and_then(|word| word.first_chunk()).map_or(0, |word| u64::from_be_bytes(*word))
        };
        let ports =
            text.get(16..).unwrap_or_default().chunks_exact(2).map(|port| u16::from_be_bytes([port[0], port[1]]));
        Claim { bytes: word(0), rate: word(8), ports: ports.collect() }
    }
}

/// The messages of a call: to all ranks if it makes the delegate, else around a ring. The first buffer has this rank's
/// message; each received one has a buffer of its own.
fn plan_of(kind: Kind, meets: bool, (rank, ranks): (u32, u32), length: usize) -> RankPlan {
    let tag = TAG + kind as u32 + if meets { MEETING } else { 0 };
    let mut plan = RankPlan { scratch: vec![length], ..RankPlan::default() };
    for step in 1..if meets { ranks } else { 2 } {
        let (to, from) = ((rank + step) % ranks, (rank + ranks - step) % ranks);
        plan.sends.push(PlannedSend { to, tag, from: BufferRange::whole(0, length), after: Vec::new() });
        let into = Target::Place(BufferRange::whole(plan.scratch.len(), length));
        plan.receives.push(PlannedReceive { from, tag, length, into, after: Vec::new() });
        plan.scratch.push(length);
    }
    plan
}

impl Engine {
    /// The delegate that performs a call; `None` if messages do.
    pub(super) fn delegate_for(
        &self,
        what: &What,
        begin: (Element, super::super::Reduction),
        group: u64,
    ) -> Option<Kind> {
        let (What::Call(call), Some(one)) = (what, self.groups.get(&group)) else { return None };
        Kind::of(self.plans.algorithm(call, one.members.len() as u32, &one.hosts), begin)
    }

    /// Begins a call that a delegate performs. Its number is taken.
    pub(super) fn begin_delegated(&mut self, kind: Kind, id: u64, begin: Begin) -> Outcome {
        let Begin { group, number, what, buffers, element, reduction, timeout, work } = begin;
        let (What::Call(call), Some(one)) = (what, self.groups.get(&group)) else { return Ok(()) };
        let (rank, ranks) = (one.rank, one.members.len() as u32);
        let meets = !one.delegates.contains_key(&kind);
        if meets {
            match self.delegates.start(group, kind, rank, self.node.payload(), &self.own.addresses) {
                Ok(running) => drop(self.groups.get_mut(&group).map(|one| one.delegates.insert(kind, running))),
                Err(error) => {
                    let what = format!("{} has no node of its own: {error}", kind.name());
                    if let (Some(number), Some(one)) = (number, self.groups.get_mut(&group)) {
                        one.tasks.remove(&number);
                        self.refuse(group, number, &what)?;
                    }
                    work.end(Err(Failure::Team(what)));
                    return Ok(());
                }
            }
        }
        let Some(running) = self.groups.get(&group).and_then(|one| one.delegates.get(&kind)) else { return Ok(()) };
        let rate = if meets { self.delegates.rate(&self.own.addresses) } else { Rate(0) };
        let bytes = call.bytes() as u64;
        let claim = Claim { bytes, rate: rate.0, ports: running.ports.clone() }.encode(meets);
        let order = Arc::new(Order::new(work.clone(), running.waker.clone()));
        let asked = Call {
            group,
            signature: Signature::of(&call, element, reduction),
            number,
            what: call.name(),
            work,
            timeout,
            rank,
            ranks,
            element,
            reduction,
            plan: plan_of(kind, meets, (rank, ranks), claim.len()),
            regions: Vec::new(),
            owners: Vec::new(),
        };
        let counted = (kind == Kind::InNetwork).then(|| Arc::clone(&self.delegates.sums));
        running.request(Request::Perform(Job::new(
            Arc::clone(&order),
            id,
            (element, reduction),
            call,
            Lent::new(buffers),
            counted,
        )));
        let mut task = Task::new(&mut self.node, &mut self.pool, asked)?;
        self.node.memory_mut(task.call.regions[0])?.copy_from_slice(&claim);
        task.left += 1;
        task.delegated = Some(Delegated { order, kind, bytes, meets, compared: 0, performed: false, returned: None });
        self.add_task(id, task)
    }

    /// Compares what other ranks have told about a call. If all have come of a call that makes a delegate, its team can
    /// form.
    pub(super) fn advance_delegated(&mut self, id: u64) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let Some(delegated) = &mut task.delegated else { return Ok(()) };
        if task.left == 1
            && let Some(returned) = delegated.returned.take()
        {
            let (call, lent) = *returned;
            return self.restart(id, &call, lent);
        }
        let came = task.received.iter().filter(|stage| **stage == Stage::Done).count();
        if came == std::mem::replace(&mut delegated.compared, came) {
            return Ok(());
        }
        let (kind, meets, bytes, group) = (delegated.kind, delegated.meets, delegated.bytes, task.call.group);
        let mut claims = Vec::with_capacity(came);
        for (at, receive) in task.call.plan.receives.iter().enumerate() {
            if task.received[at] == Stage::Done {
                claims.push((receive.from, Claim::decode(self.node.memory(task.call.regions[at + 1])?)));
            }
        }
        if let Some((from, claim)) = claims.iter().find(|(_, claim)| claim.bytes != bytes) {
            let (theirs, what) = (claim.bytes, task.call.what);
            let what = format!(
                "rank {from} calls {what} of {theirs} bytes where this rank calls it of {bytes}: call all ranks alike"
            );
            return self.disagree(id, what);
        }
        if !meets || came < task.received.len() {
            return Ok(());
        }
        let rate = claims.iter().map(|(_, claim)| Rate(claim.rate)).min().unwrap_or(self.delegates.options.rate);
        let rate = rate.min(self.delegates.rate(&self.own.addresses));
        let options = self.delegates.options(group, kind, task.call.ranks, rate);
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        let Some(running) = one.delegates.get_mut(&kind) else { return Ok(()) };
        let with = |addresses: &[SocketAddrV6], ports: &[u16]| -> Vec<SocketAddrV6> {
            let at = |(one, port): (&SocketAddrV6, &u16)| SocketAddrV6::new(*one.ip(), *port, 0, one.scope_id());
            addresses.iter().zip(ports).map(at).collect()
        };
        let mut members = vec![with(&self.own.addresses, &running.ports); one.members.len()];
        for (from, claim) in claims {
            if let Some(&Some(peer)) = one.members.get(from as usize) {
                members[from as usize] = with(&self.peers[peer].record.addresses, &claim.ports);
            }
        }
        if let Some(offer) = running.offer.take() {
            // If the delegate has ended, its call has failed.
            drop(offer.send(TeamOffer { members, options }));
        }
        Ok(())
    }

    /// A delegate has given back the memory of a task.
    pub(super) fn handle_delegated(&mut self, id: u64, outcome: Result<Ended, GroupError>) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        match outcome {
            Ok(ended) => {
                if let Some(delegated) = &mut task.delegated {
                    match ended {
                        Ended::Done => {
                            delegated.performed = true;
                            task.left -= 1;
                        }
                        Ended::ByMessages(returned) => delegated.returned = Some(returned),
                    }
                }
                self.progress(id)
            }
            Err(error) => {
                let failure = self.failure_of(id, &error);
                self.fail(id, &failure)
            }
        }
    }

    /// Lets messages perform a call that a delegate could not perform.
    fn restart(&mut self, id: u64, call: &CollectiveCall, lent: Lent) -> Outcome {
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        for region in std::mem::take(&mut task.call.regions) {
            self.node.deregister(region)?;
        }
        let (buffers, owners) = lent.into_parts();
        let buffers = buffers.into_iter().map(|bytes| match bytes {
            Bytes::Read(bytes) => self.node.show(bytes),
            Bytes::Write(bytes) => self.node.register_static(bytes),
        });
        let Call { rank, ranks, element, .. } = task.call;
        (task.call.regions, task.call.owners) = (buffers.collect(), owners);
        // The rules choose the delegate, for which the maker has the direct plan.
        let apart = Hosts::default();
        let hosts = self.groups.get(&task.call.group).map_or(&apart, |one| &one.hosts);
        task.call.plan = self.plans.plan(call, (rank, ranks), hosts, element.bytes(), task.call.regions.len());
        task.delegated = None;
        task.restart(&mut self.node, &mut self.pool)?;
        let key = (task.call.group, task.call.number.unwrap_or_default());
        self.start_messages(id, key)
    }

    fn failure_of(&self, id: u64, error: &GroupError) -> Failure {
        let host = |rank: u32| {
            let peer = self.tasks.get(&id).and_then(|task| self.peer_of(task.call.group, rank));
            peer.map_or_else(|| "this host".into(), |peer| self.peers[peer].record.host.clone())
        };
        match error {
            GroupError::Dead { rank } => {
                Failure::Gone { rank: *rank, host: host(*rank), evidence: "it does not answer its team".into() }
            }
            GroupError::Sizes { .. } | GroupError::Differs { .. } => Failure::Mismatch(error.to_string()),
            other => Failure::Team(format!("the team of the group has failed: {other}")),
        }
    }

    /// A call has failed that a delegate performs: the delegate cannot be used any more. The next such call makes
    /// another one.
    pub(super) fn give_up_delegate(&mut self, task: &mut Task, failure: &Failure) {
        let Some(delegated) = &mut task.delegated else { return };
        delegated.returned = None;
        delegated.order.stop(failure);
        self.delegates.leaving.retain(|running| !running.is_finished());
        let one = self.groups.get_mut(&task.call.group);
        if let Some(mut running) = one.and_then(|one| one.delegates.remove(&delegated.kind)) {
            running.stop();
            self.delegates.leaving.push(running);
        }
    }

    /// Does a group's delegate of this kind work as it should: by multicast, or by the switch?
    pub(super) fn uses_team(&self, group: u64, kind: Kind) -> bool {
        let running = self.groups.get(&group).and_then(|one| one.delegates.get(&kind));
        running.is_some_and(|running| running.works.load(Ordering::Acquire))
    }

    /// A rank that the delegate of a task waits for, and that is gone. A rank that has left in good order has done its
    /// part, or its neighbour would wait for it.
    pub(super) fn find_gone_from_team(&self, task: &Task) -> Option<Failure> {
        task.delegated.as_ref().filter(|delegated| delegated.is_pending())?;
        let group = self.groups.get(&task.call.group)?;
        (0..).zip(&group.members).find_map(|(rank, peer)| {
            let peer = &self.peers[(*peer)?];
            match &peer.line {
                PeerConnection::Gone(evidence) if peer.bye.is_none() => {
                    Some(Failure::Gone { rank, host: peer.record.host.clone(), evidence: evidence.clone() })
                }
                _ => None,
            }
        })
    }

    /// The delegates of a group leave their teams.
    pub(super) fn leave_teams(&mut self, group: u64) {
        let all = self.groups.get_mut(&group).map(|one| std::mem::take(&mut one.delegates)).unwrap_or_default();
        for running in all.into_values() {
            running.request(Request::Leave(self.delegates.options.linger));
            self.delegates.leaving.push(running);
        }
        self.delegates.leaving.retain(|running| !running.is_finished());
    }

    /// The delegates of all groups leave their teams.
    pub(super) fn leave_all_teams(&mut self) {
        let groups: Vec<u64> = self.groups.keys().copied().collect();
        groups.into_iter().for_each(|group| self.leave_teams(group));
    }

    /// Do all delegates have ended that were told to?
    pub(super) fn are_teams_left(&self) -> bool {
        self.delegates.leaving.iter().all(Running::is_finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_as_they_were_written() {
        let claim = Claim { bytes: 1 << 40, rate: 200_000_000, ports: vec![1, 65_535] };
        for meets in [false, true] {
            let read = Claim::decode(&claim.encode(meets));
            assert_eq!(read.bytes, claim.bytes);
            if meets {
                assert_eq!((read.rate, read.ports), (claim.rate, claim.ports.clone()));
            }
        }
    }

    #[test]
    fn every_message_of_a_call_has_its_receiver() {
        for (meets, ranks) in [(false, 2), (false, 5), (true, 2), (true, 5)] {
            let plans: Vec<RankPlan> =
                (0..ranks).map(|rank| plan_of(Kind::Multicast, meets, (rank, ranks), 20)).collect();
            for (rank, plan) in (0..).zip(&plans) {
                assert_eq!(plan.sends.len(), if meets { ranks as usize - 1 } else { 1 });
                assert_eq!(plan.scratch.len(), plan.receives.len() + 1);
                for send in &plan.sends {
                    let found = plans[send.to as usize].receives.iter();
                    assert_eq!(found.filter(|receive| receive.from == rank && receive.tag == send.tag).count(), 1);
                }
            }
        }
    }
}
