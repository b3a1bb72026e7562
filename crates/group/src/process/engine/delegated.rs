//! Calls that a delegate performs: which ones, the messages by which the ranks find that they agree, and the life of a
//! group's delegates.
//!
//! The first such call of a group makes the delegate. Its plan sends each rank the ports of the delegate's node. Later
//! calls send a short message to the next rank: if each rank agrees with the one before it, all agree.

use super::super::delegate::{Delegate, Ended, Job, Kind, Lent, Meeting, Order, Request};
use super::super::element::Element;
use super::super::failure::Failure;
use super::super::memory::Bytes;
use super::super::message::Signature;
use super::super::task::{Call, Stage, Task};
use super::super::{PATIENCE, ProcessOptions};
use super::{Begin, Engine, Outcome, PeerConnection, What};
use crate::error::GroupError;
use crate::team::Options;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use strandway_collective::plan::{BufferRange, CollectiveCall, PlannedReceive, PlannedSend, RankPlan, Target};
use strandway_proto::units::Rate;
use strandway_udp::address::kept;
use strandway_udp::{Config, Node, Waker, interfaces};

/// The tags of the messages of such calls, which no plan of messages uses; the number of the kind is added.
const TAG: u32 = 0x4000_0000;
/// The messages that make a delegate.
const MEETING: u32 = 0x100;
/// Group ports of teams with one number begin at this many places: ours.
const PORT_PLACES: u64 = 64;

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

/// The engine's side of a delegate.
pub(super) struct Running {
    requests: Option<Sender<Request>>,
    meeting: Option<Sender<Meeting>>,
    /// By plane: the port of its node.
    ports: Vec<u16>,
    ends: Arc<AtomicBool>,
    /// Multicast passes, or the switch has added in the last call.
    works: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn request(&self, request: Request) {
        // A request that is not taken is dropped, and then the engine hears that it has failed.
        if let Some(requests) = &self.requests {
            drop(requests.send(request));
        }
        self.waker.wake();
    }

    /// Gives the team up.
    fn stop(&mut self) {
        self.ends.store(true, Ordering::Release);
        (self.meeting, self.requests) = (None, None);
        self.waker.wake();
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic was told to those that waited.
            let _ = thread.join();
        }
    }
}

/// What delegates of a process need, and the delegates whose groups have ended.
pub(in super::super) struct Delegates {
    options: ProcessOptions,
    config: Config,
    secret: [u8; 32],
    /// Sums by switches that are under way.
    sums: Arc<AtomicUsize>,
    leaving: Vec<Running>,
}

impl Delegates {
    pub(in super::super) fn new(options: &ProcessOptions, config: &Config, secret: [u8; 32]) -> Delegates {
        Delegates {
            options: options.clone(),
            config: config.clone(),
            secret,
            sums: Arc::default(),
            leaving: Vec::new(),
        }
    }

    fn hash(&self, group: u64, kind: Kind) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_derive_key("strandway 2026 team of a process group");
        hasher.update(&self.secret).update(&group.to_be_bytes()).update(&[kind as u8]);
        hasher.finalize()
    }

    /// Starts a delegate.
    fn start(
        &self,
        group: u64,
        kind: Kind,
        rank: u32,
        payload: u32,
        ours: &[SocketAddrV6],
    ) -> Result<Running, GroupError> {
        let hash = self.hash(group, kind);
        let secret = strandway_udp::Secret::new(hash.as_bytes())?;
        // The ports of the process are taken; its delegate takes others.
        let planes = ours.iter().map(|one| SocketAddrV6::new(*one.ip(), 0, 0, one.scope_id())).collect();
        let options = ProcessOptions { planes, ..self.options.clone() };
        let config = Config { secret, payload, accept: true, hear_refusals: false, ..self.config.clone() };
        let mut node: Node = options.bind(&config)?;
        let ports = node.addresses()?.into_iter().map(|address| kept(address).port()).collect();
        let waker = node.waker()?;
        let ((requests, requested), (meeting, met)) = (channel(), channel());
        let (ends, works) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let switch = self.options.switch.clone();
        let shared = (Arc::clone(&ends), Arc::clone(&works));
        let delegate = Delegate {
            node,
            rank,
            kind,
            switch,
            beside: Arc::clone(&self.sums),
            meeting: met,
            requests: requested,
            shared,
        };
        let thread = std::thread::Builder::new().name(format!("strandway-{}", kind.short_name()));
        let thread = thread
            .spawn(move || delegate.run())
            .map_err(|error| GroupError::Config(format!("no thread for {}: {error}", kind.name())))?;
        Ok(Running {
            requests: Some(requests),
            meeting: Some(meeting),
            ports,
            ends,
            works,
            waker,
            thread: Some(thread),
        })
    }

    /// The rate at which this host receives, as far as it is known.
    fn rate(&self, ours: &[SocketAddrV6]) -> Rate {
        let all = interfaces();
        let rate = |one: &SocketAddrV6| all.iter().find(|known| known.address == *one.ip())?.rate;
        let known: Option<u64> = ours.iter().map(|one| rate(one).map(u64::from)).sum();
        let devices = known.map(|mbps| Rate::from_gbps(1).scaled(mbps as f64 / 1e3));
        devices.map_or(self.options.rate, |devices| devices.min(self.options.rate))
    }

    /// The settings of a team whose slowest rank receives at this rate.
    fn options(&self, group: u64, kind: Kind, ranks: u32, rate: Rate) -> Options {
        let number = u64::from_be_bytes(*self.hash(group, kind).as_bytes().first_chunk().expect("32 bytes"));
        let usual = Options::new(rate);
        let (team, port) = match self.options.team {
            // Teams with the number of others take other ports.
            Some(team) => (team, usual.port + Options::PORTS * (number % PORT_PLACES) as u16),
            None => ((1 + number % u64::from(TEAM_MAX)) as u16, usual.port),
        };
        Options {
            team,
            port,
            // The engine finds out which ranks are gone.
            patience: PATIENCE,
            rtt: Options::RTT.max(self.options.base_rtt),
            no_multicast: kind != Kind::Multicast,
            chains: ranks.min(CHAINS),
            ..usual
        }
    }
}

/// The highest number of a team that fabrics of namespaces can forward.
const TEAM_MAX: u16 = 65_000;

/// The most ranks that cast at the same time in an all-gather: ours. If all ranks cast at once, each port receives all
/// the time, and what a port sends leaves room for the sums of a reduce-scatter. Among more ranks, a port that casts
/// alone for a while receives nothing for less than a sixteenth of the time.
const CHAINS: u32 = 16;

/// What a rank tells others about a call: the bytes of its buffer and, if the call makes the delegate, the rate in bits
/// per second at which it receives, and the ports of its node.
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
        ranks: u32,
    ) -> Option<Kind> {
        let What::Call(call) = what else { return None };
        Kind::of(self.plans.algorithm(call, ranks), begin)
    }

    /// Begins a call that a delegate performs. Its number is taken.
    pub(super) fn begin_delegated(&mut self, kind: Kind, id: u64, begin: Begin) -> Outcome {
        let Begin { group, number, what, buffers, element, reduction, timeout, work } = begin;
        let (What::Call(call), Some(one)) = (what, self.groups.get(&group)) else { return Ok(()) };
        let (rank, ranks) = (one.rank, one.members.len() as u32);
        let meets = !one.delegates.contains_key(&kind);
        if meets {
            match self.delegates.start(group, kind, rank, self.node.payload(), &self.ours) {
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
        let rate = if meets { self.delegates.rate(&self.ours) } else { Rate(0) };
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
        let rate = rate.min(self.delegates.rate(&self.ours));
        let options = self.delegates.options(group, kind, task.call.ranks, rate);
        let Some(one) = self.groups.get_mut(&group) else { return Ok(()) };
        let Some(running) = one.delegates.get_mut(&kind) else { return Ok(()) };
        let with = |addresses: &[SocketAddrV6], ports: &[u16]| -> Vec<SocketAddrV6> {
            let at = |(one, port): (&SocketAddrV6, &u16)| SocketAddrV6::new(*one.ip(), *port, 0, one.scope_id());
            addresses.iter().zip(ports).map(at).collect()
        };
        let mut members = vec![with(&self.ours, &running.ports); one.members.len()];
        for (from, claim) in claims {
            if let Some(&Some(peer)) = one.members.get(from as usize) {
                members[from as usize] = with(&self.peers[peer].record.addresses, &claim.ports);
            }
        }
        if let Some(meeting) = running.meeting.take() {
            // If the delegate has ended, its call has failed.
            drop(meeting.send(Meeting { members, options }));
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
                        Ended::ByMessages(call, lent) => delegated.returned = Some(Box::new((call, lent))),
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
        task.call.plan = self.plans.plan(call, (rank, ranks), element.bytes(), task.call.regions.len());
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
