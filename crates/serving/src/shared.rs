//! The messages between the processes of a service, and the memory that their programs share during a run.
//!
//! A world moves messages without contents. So a sender writes the contents here before it posts the message, under the
//! message's number, and the receiver takes them when the message has arrived. Nothing is read before the message that
//! carries it has arrived, so results do not depend on threads.

use crate::plan::{Class, Service};
use crate::timing::Work;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandway_fabric::requests::{LoadPoint, RequestTimes, ServiceTimes};
use strandway_fabric::tally::Histogram;
use strandway_proto::units::{Span, Time};

/// The contents of a message or of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Router to a prefill replica: a request, and the replica that will decode it.
    Request { request: u32, decode: u32 },
    /// Prefill to decode replica: reserve memory for a request.
    Reserve { request: u32, prefill: u32 },
    /// Decode to prefill replica: it is reserved.
    Grant { request: u32 },
    /// Prefill replica to router: a prompt is computed.
    Computed { request: u32 },
    /// A replica to the router: a request has ended.
    Done { request: u32 },
    /// A leader to the NICs of its replica: a part of a KV cache is being computed, from `start` for `span`, and its
    /// layers are sent in `groups` messages.
    Send { request: u32, decode: u32, tokens: u32, start: Time, span: Span, groups: u32, last: bool },
    /// A leader to the NICs of its replica: the memory of a request is reserved.
    Granted { request: u32 },
    /// A NIC to its leader: all that it had to send of a KV cache has arrived.
    LaneSent { request: u32 },
    /// A NIC to its leader: a lane of a KV cache has arrived completely.
    LaneArrived { request: u32 },
    /// Prefill to decode NIC: a piece of a KV cache. `pieces`: with the last one, the number of all pieces of the lane.
    Cache { request: u32, lane: u32, pieces: u32 },
    /// Prefill to decode NIC: a piece can be read.
    Ready { request: u32, lane: u32, piece: u32 },
    /// Decode to prefill NIC: a request to read it.
    Read { request: u32, lane: u32, piece: u32 },
    /// The leader of a stage to its NICs: a step begins.
    Begin { step: u32, work: Work, span: Span },
    /// A NIC to the leader of its stage: a step has ended there.
    Ended { step: u32 },
    /// Between NICs of a stage: what one sends the other in a round.
    Round { step: u32, round: u32 },
    /// The leader of a stage to its NICs: send the activations of a step to the next stage.
    Forward { step: u32, work: Work },
    /// A NIC to one of the next stage: activations.
    Activations { step: u32, work: Work },
    /// A NIC to the leader of its stage: activations have arrived.
    Arrived { step: u32, work: Work },
    /// The leader of the last stage to the replica's: a step has ended.
    Stepped { step: u32 },
}

/// Contents that are due at a host of the same server: by time, sender, and the sender's count.
type Inbox = BTreeMap<(Time, u32, u64), Content>;

/// The memory that the programs of a service share during a run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    /// By sender: contents of messages under way, by number.
    contents: Vec<Mutex<BTreeMap<u32, Content>>>,
    inboxes: Vec<Mutex<Inbox>>,
    /// By request. Each time is written once, by one host.
    requests: Vec<Mutex<RequestTimes>>,
    /// By replica: written by its leader.
    load: Vec<Mutex<Vec<LoadPoint>>>,
    gaps: Vec<Mutex<Histogram>>,
}

pub(crate) fn lock<T: ?Sized>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A vector of `count` locks.
fn locks<T: Default>(count: usize) -> Vec<Mutex<T>> {
    (0..count).map(|_| Mutex::default()).collect()
}

impl Shared {
    pub(crate) fn new(service: Arc<Service>) -> Shared {
        let (hosts, replicas) = (service.hosts.len(), service.replicas.len());
        let requests =
            service.requests.iter().map(|request| Mutex::new(RequestTimes::new(request.input, request.output)));
        Shared {
            contents: locks(hosts),
            inboxes: locks(hosts),
            requests: requests.collect(),
            load: locks(replicas),
            gaps: locks(replicas),
            service,
        }
    }

    /// Stores the contents of a host's `n`-th message of a class, and returns the message's number. Numbers of ended
    /// messages are used again.
    pub(crate) fn store(&self, from: u32, class: Class, n: u64, content: Content) -> u32 {
        let service = &self.service;
        let hosts = service.hosts.len() as u64;
        let slot = n % (u64::from(service.width) / hosts).max(1);
        let number = service.numbers(class).start + (slot * hosts) as u32 + from;
        lock(&self.contents[from as usize]).insert(number, content);
        number
    }

    /// Takes the contents of a message that has arrived, with its sender; `None` if it arrived before.
    pub(crate) fn take(&self, number: u32) -> Option<(u32, Content)> {
        let service = &self.service;
        let away = number.checked_sub(service.first_message)? % service.width;
        let from = away % service.hosts.len() as u32;
        let content = lock(&self.contents[from as usize]).remove(&number)?;
        Some((from, content))
    }

    /// The contents of a message that has not been taken.
    pub(crate) fn peek(&self, number: u32) -> Option<Content> {
        let away = number.checked_sub(self.service.first_message)? % self.service.width;
        let from = away % self.service.hosts.len() as u32;
        lock(&self.contents[from as usize]).get(&number).copied()
    }

    /// Puts contents into the inbox of a host of the same server.
    pub(crate) fn signal(&self, to: u32, at: Time, from: u32, n: u64, content: Content) {
        lock(&self.inboxes[to as usize]).insert((at, from, n), content);
    }

    /// Takes the next contents that are due at a host.
    pub(crate) fn due(&self, host: u32, now: Time) -> Option<(u32, Content)> {
        let mut inbox = lock(&self.inboxes[host as usize]);
        let first = inbox.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, from, _), content) = first.remove_entry();
        Some((from, content))
    }

    /// Are contents on their way to this host, inside its server?
    pub(crate) fn expects(&self, host: u32) -> bool {
        !lock(&self.inboxes[host as usize]).is_empty()
    }

    /// Notes something about a request.
    pub(crate) fn note(&self, request: u32, what: impl FnOnce(&mut RequestTimes)) {
        what(&mut lock(&self.requests[request as usize]));
    }

    /// Notes the load of a replica.
    pub(crate) fn note_load(&self, replica: u32, point: LoadPoint) {
        let mut points = lock(&self.load[replica as usize]);
        if points.last().is_none_or(|last| last.at + self.service.sample <= point.at) {
            points.push(point);
        }
    }

    /// Notes the time between two tokens of a request.
    pub(crate) fn note_gap(&self, replica: u32, gap: Span) {
        lock(&self.gaps[replica as usize]).add(gap);
    }

    /// The measurements so far.
    pub(crate) fn times(&self) -> ServiceTimes {
        let mut gaps = Histogram::default();
        self.gaps.iter().for_each(|replica| gaps.merge(&lock(replica)));
        ServiceTimes {
            requests: self.requests.iter().map(|request| lock(request).clone()).collect(),
            load: self.load.iter().map(|points| lock(points).clone()).collect(),
            gaps,
        }
    }
}
