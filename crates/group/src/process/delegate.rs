//! Delegates: the team of a process group that computes some of its collectives, on a thread and a node of its own.
//!
//! The engine hands a call to a delegate as an [`Order`], and lends it the caller's memory. The delegate performs its
//! orders one after another. Memory is given back before the engine, or the caller, hears of the end.

mod in_network;
mod multicast;
mod settings;

pub(super) use settings::switch_from;

use super::element::{Element, Reduction};
use super::failure::Failure;
use super::memory::{Buffer, Bytes};
use super::work::Work;
use crate::aggregation::NetworkOptions;
use crate::error::GroupError;
use crate::team::{Options, Team};
use std::any::Any;
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strandway_collective::plan::{CollectiveCall, PlanAlgorithm};
use strandway_udp::{Node, Waker};

/// The kinds of delegates; a group has at most one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Multicast = 0,
    InNetwork = 1,
}

impl Kind {
    /// The delegate that performs a call of this algorithm on such numbers; `None` if messages do.
    pub(super) fn of(algorithm: PlanAlgorithm, (element, reduction): (Element, Reduction)) -> Option<Kind> {
        Kind::of_algorithm(algorithm).filter(|kind| *kind == Kind::Multicast || in_network::adds(element, reduction))
    }

    /// The delegate for this algorithm; `None` if messages perform it.
    pub(super) const fn of_algorithm(algorithm: PlanAlgorithm) -> Option<Kind> {
        match algorithm {
            PlanAlgorithm::Multicast => Some(Kind::Multicast),
            PlanAlgorithm::InNetwork => Some(Kind::InNetwork),
            _ => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::Multicast => PlanAlgorithm::Multicast.name(),
            Kind::InNetwork => PlanAlgorithm::InNetwork.name(),
        }
    }

    /// The name of its thread, which has room for 15 letters.
    pub(super) const fn short_name(self) -> &'static str {
        match self {
            Kind::Multicast => "cast",
            Kind::InNetwork => "sum",
        }
    }
}

/// The longest sleep of a delegate without orders; the engine wakes it.
const QUIET: Duration = Duration::from_secs(60);

/// The memory of a caller, while a delegate has it.
pub(super) struct Lent {
    pub(super) buffers: Vec<Bytes>,
    owners: Vec<Box<dyn Any + Send>>,
}

impl Lent {
    pub(super) fn new(buffers: Vec<Buffer>) -> Lent {
        let mut lent = Lent { buffers: Vec::with_capacity(buffers.len()), owners: Vec::new() };
        for buffer in buffers {
            let (bytes, owner) = buffer.into_parts();
            lent.buffers.push(bytes);
            lent.owners.extend(owner);
        }
        lent
    }

    /// Takes a buffer that is written; nothing if it may only be read.
    fn take_writable(&mut self, buffer: usize) -> Option<&'static mut [u8]> {
        match std::mem::replace(&mut self.buffers[buffer], Bytes::Read(&[])) {
            Bytes::Write(bytes) => Some(bytes),
            read => {
                self.buffers[buffer] = read;
                None
            }
        }
    }

    /// The buffers, and their owners.
    pub(super) fn into_parts(self) -> (Vec<Bytes>, Vec<Box<dyn Any + Send>>) {
        (self.buffers, self.owners)
    }

    fn bytes(&self, buffer: usize) -> &[u8] {
        match &self.buffers[buffer] {
            Bytes::Read(bytes) => bytes,
            Bytes::Write(bytes) => bytes,
        }
    }
}

/// The place of an order's memory.
enum Place {
    /// The delegate.
    Lent,
    /// The delegate, and the engine has given the call up for this reason.
    Stopped(Failure),
    /// The caller, once the work has ended.
    Back,
}

/// The state of a call that a delegate performs, which the engine and the delegate share.
pub(super) struct Order {
    place: Mutex<Place>,
    stop: AtomicBool,
    waker: Waker,
    work: Work,
}

impl Order {
    pub(super) fn new(work: Work, waker: Waker) -> Order {
        Order { place: Mutex::new(Place::Lent), stop: AtomicBool::new(false), waker, work }
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the call up. Its work ends with this failure as soon as the delegate has given the memory back.
    pub(super) fn stop(&self, failure: &Failure) {
        let mut place = self.lock();
        match *place {
            Place::Lent => *place = Place::Stopped(failure.clone()),
            Place::Stopped(_) => return,
            Place::Back => {
                drop(place);
                return self.work.end(Err(failure.clone()));
            }
        }
        drop(place);
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The memory is the caller's again. If the engine has given the call up, the work ends.
    fn give_back(&self) {
        let before = std::mem::replace(&mut *self.lock(), Place::Back);
        if let Place::Stopped(failure) = before {
            self.work.end(Err(failure));
        }
    }
}

/// How a delegate has performed a call.
pub(super) enum Performed {
    /// The result is in its place.
    Done,
    /// The memory is unchanged: the ranks shall send messages instead.
    ByMessages,
}

/// The end of a call at a delegate.
pub(super) enum Ended {
    /// The result is in its place.
    Done,
    /// The memory is unchanged: the ranks send messages instead.
    ByMessages(Box<(CollectiveCall, Lent)>),
}

/// A call for a delegate. However it goes away, its memory is given back first, and the engine hears how it ended.
pub(super) struct Job {
    pub(super) order: Arc<Order>,
    /// The engine's task.
    pub(super) task: u64,
    pub(super) numbers: (Element, Reduction),
    work: Option<(CollectiveCall, Lent)>,
    /// Counts the sums by switches of the process, if this is one.
    counted: Option<Arc<AtomicUsize>>,
    /// How it has ended.
    outcome: Option<Result<Performed, GroupError>>,
}

impl Job {
    pub(super) fn new(
        order: Arc<Order>,
        task: u64,
        numbers: (Element, Reduction),
        call: CollectiveCall,
        lent: Lent,
        counted: Option<Arc<AtomicUsize>>,
    ) -> Job {
        if let Some(counted) = &counted {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Job { order, task, numbers, work: Some((call, lent)), counted, outcome: None }
    }

    /// Ends the call.
    fn end(mut self, outcome: Result<Performed, GroupError>) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let unused = || Err(GroupError::Config("an earlier call of the group has failed".into()));
        if let Some(counted) = &self.counted {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
        let (work, outcome) = (self.work.take(), self.outcome.take().unwrap_or_else(unused));
        let ended = match (outcome, work) {
            (Ok(Performed::ByMessages), Some(work)) if !self.order.is_stopped() => {
                Ok(Ended::ByMessages(Box::new(work)))
            }
            (outcome, work) => {
                drop(work);
                outcome.map(|_| Ended::Done)
            }
        };
        self.order.give_back();
        // The engine hears of it in any case: the thread that drives it may wait for this work.
        self.order.work.note_delegated(self.task, ended);
    }
}

/// A request of the engine to a delegate.
pub(super) enum Request {
    Perform(Job),
    /// The group ends: the delegate leaves its team, within this time.
    Leave(Duration),
}

/// The ranks of a team, and its settings, once the engine knows them.
pub(super) struct TeamOffer {
    pub(super) members: Vec<Vec<SocketAddrV6>>,
    pub(super) options: Options,
}

/// A delegate's side of the connection to its engine.
pub(super) struct Delegate {
    pub(super) node: Node,
    pub(super) rank: u32,
    pub(super) kind: Kind,
    /// The switch of this rank, if it has one.
    pub(super) switch: Option<NetworkOptions>,
    /// The sums by switches of the process that are under way.
    pub(super) beside: Arc<AtomicUsize>,
    pub(super) offer: Receiver<TeamOffer>,
    pub(super) requests: Receiver<Request>,
    /// The engine has ended, or has given the team up; and for the engine: the team works by multicast or the switch.
    pub(super) shared: (Arc<AtomicBool>, Arc<AtomicBool>),
}

impl Delegate {
    /// Forms the team and performs requests. Returns when the group has ended or a call has failed: after that the team
    /// cannot be used any more.
    pub(super) fn run(self) {
        let Delegate { node, rank, kind, switch, beside, offer, requests, shared: (ends, works) } = self;
        let Ok(TeamOffer { members, options }) = offer.recv() else { return };
        let Ok(Request::Perform(first)) = requests.recv() else { return };
        let ends = || ends.load(Ordering::Acquire);
        let formed = {
            let order = &first.order;
            Team::form(node, rank, members, options, &|| ends() || order.is_stopped())
        };
        let mut performer = match formed {
            Ok(mut team) => {
                team.beside = beside;
                let switch = (kind == Kind::InNetwork).then(|| in_network::BySwitch::new(switch));
                Performer { team, staging: Vec::new(), switch, works }
            }
            Err(error) => return first.end(Err(error)),
        };
        if kind == Kind::Multicast {
            performer.note_planes();
        }
        if !performer.perform(first, &ends) {
            return;
        }
        loop {
            match requests.try_recv() {
                Ok(Request::Perform(job)) => {
                    if !performer.perform(job, &ends) {
                        return;
                    }
                }
                Ok(Request::Leave(longest)) => {
                    let until = Instant::now() + longest;
                    // The others go on without this rank if that fails.
                    let _ = performer.team.end(&|| ends() || Instant::now() > until);
                    return;
                }
                Err(TryRecvError::Empty) if !ends() => {
                    if performer.wait().is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

/// A formed team and what it needs for calls.
struct Performer {
    team: Team,
    /// Memory for buffers that are not in one piece.
    staging: Vec<u8>,
    /// `None` for multicast.
    switch: Option<in_network::BySwitch>,
    /// Set while the team works by multicast, or by the switch.
    works: Arc<AtomicBool>,
}

impl Performer {
    /// Performs a call; false if it failed.
    fn perform(&mut self, mut job: Job, ends: &impl Fn() -> bool) -> bool {
        let Some((call, mut lent)) = job.work.take() else { return true };
        let order = Arc::clone(&job.order);
        let stop = || ends() || order.is_stopped();
        let outcome = match &mut self.switch {
            Some(switch) => switch.perform(&mut self.team, &call, job.numbers, &mut lent, &stop),
            None => {
                let done = multicast::perform(&mut self.team, &mut self.staging, &call, &mut lent, &stop);
                done.map(|()| Performed::Done)
            }
        };
        let works = match &outcome {
            Ok(Performed::Done) => self.switch.is_some() || self.team.multicast_planes() != 0,
            _ => false,
        };
        self.works.store(works, Ordering::Release);
        job.work = Some((call, lent));
        let ended = outcome.is_ok();
        job.end(outcome);
        ended
    }

    /// Waits for a request. Meanwhile answers the other ranks.
    fn wait(&mut self) -> Result<(), GroupError> {
        match self.team.node_mut().wait(QUIET)? {
            Some(completion) => self.team.set_aside(completion),
            None => Ok(()),
        }
    }

    /// Says once if no plane carries multicast.
    fn note_planes(&self) {
        if self.team.rank() == 0 && self.team.multicast_planes() == 0 && self.team.ranks() > 1 {
            eprintln!(
                "strandway: multicast does not pass between the {} ranks of this group on any plane; chunks go from \
                 rank to rank in a chain. Let switches forward it (IGMP or MLD snooping with a querier), name the team \
                 that they know (STRANDWAY_TEAM), or take multicast out of STRANDWAY_ALGORITHM",
                self.team.ranks()
            );
        }
    }
}
