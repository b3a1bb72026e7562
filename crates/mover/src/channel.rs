//! The state of one connection: which sends and receives wait for each other, and what the node has.

use crate::event::EventKind;
use crate::record::{RECORD, Record};
use std::collections::{HashMap, VecDeque};
use std::time::Instant;
use strandway_udp::{Connection, Operation, Region};

/// Small messages under way to each side; ours.
pub(crate) const CONTROLS: usize = 16;
/// Bytes of a small message: it is urgent for the node, and fits one packet.
pub(crate) const CONTROL: usize = 1_024;
/// Records in a small message.
pub(crate) const RECORDS: usize = CONTROL / RECORD;
/// The most receives that a peer may have announced; ours: the most operations of a connection.
pub(crate) const OFFERS_MAX: usize = 16_384;
/// The bit of an immediate that tells messages from writes.
pub(crate) const MESSAGE: u32 = 1 << 31;

/// An operation of a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) context: u64,
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The tag, if it is a message.
    pub(crate) tag: Option<u64>,
}

impl Job {
    /// The event of a send or write.
    pub(crate) const fn kind(&self) -> EventKind {
        if self.tag.is_some() { EventKind::SendDone } else { EventKind::WriteDone }
    }
}

/// A receive that the peer has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) number: u32,
    pub(crate) key: u64,
    pub(crate) bytes: u64,
}

/// A receive of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) job: Job,
    pub(crate) key: u64,
}

pub(crate) struct Channel {
    pub(crate) connection: Connection,
    /// Did this side begin the connection?
    pub(crate) calls: bool,
    /// The service that this side asks for, or that the peer has asked for.
    pub(crate) service: u64,
    /// Has the peer's hello come?
    pub(crate) ready: bool,
    /// When the peer's hello must have come; `None` while the node still calls.
    pub(crate) hello_by: Option<Instant>,
    /// Memory of small messages: those to receive, then those to send.
    pub(crate) desk: Option<Region>,
    /// Small messages received, and sent.
    pub(crate) controls_in: usize,
    pub(crate) controls_out: usize,
    /// Small messages of ours under way.
    pub(crate) controls_flying: usize,
    /// Records that wait for a small message.
    pub(crate) records: VecDeque<Record>,
    /// Operations that the node has, in order; `None` for a small message.
    pub(crate) posted: VecDeque<(Operation, Option<Job>)>,
    /// How many of them are a caller's.
    pub(crate) writing: usize,
    /// Reads and atomic operations that the node has.
    pub(crate) asked: HashMap<Operation, (EventKind, Job)>,
    /// Announced receives of the peer, by tag.
    offers: HashMap<u64, VecDeque<Offer>>,
    offered: usize,
    /// Sends that wait for a receive of the peer, by tag.
    sends: HashMap<u64, VecDeque<Job>>,
    sending: usize,
    pub(crate) receives: HashMap<u32, Receive>,
    next_number: u32,
}

impl Channel {
    pub(crate) fn new(connection: Connection, calls: bool, service: u64) -> Channel {
        Channel {
            connection,
            calls,
            service,
            ready: false,
            hello_by: None,
            desk: None,
            controls_in: 0,
            controls_out: 0,
            controls_flying: 0,
            records: VecDeque::new(),
            posted: VecDeque::new(),
            writing: 0,
            asked: HashMap::new(),
            offers: HashMap::new(),
            offered: 0,
            sends: HashMap::new(),
            sending: 0,
            receives: HashMap::new(),
            next_number: 0,
        }
    }

    /// Unfinished operations of callers other than receives.
    pub(crate) fn unfinished(&self) -> usize {
        self.writing + self.sending + self.asked.len()
    }

    /// The oldest announced receive with a tag.
    pub(crate) fn offer(&self, tag: u64) -> Option<Offer> {
        self.offers.get(&tag).and_then(|offers| offers.front()).copied()
    }

    /// Takes the offer that [`Channel::offer`] returned.
    pub(crate) fn take_offer(&mut self, tag: u64) {
        self.offered -= usize::from(pop(&mut self.offers, tag).is_some());
    }

    /// A send waits for a receive.
    pub(crate) fn wait(&mut self, tag: u64, job: Job) {
        self.sends.entry(tag).or_default().push_back(job);
        self.sending += 1;
    }

    /// The peer has announced a receive; false if it has announced too many.
    pub(crate) fn add_offer(&mut self, tag: u64, offer: Offer) -> bool {
        if self.offered >= OFFERS_MAX {
            return false;
        }
        self.offers.entry(tag).or_default().push_back(offer);
        self.offered += 1;
        true
    }

    /// The oldest send that waits with this tag.
    pub(crate) fn take_send(&mut self, tag: u64) -> Option<Job> {
        let job = pop(&mut self.sends, tag);
        self.sending -= usize::from(job.is_some());
        job
    }

    /// A number for a receive; free ones exist, since receives are limited.
    pub(crate) fn fresh_number(&mut self) -> u32 {
        while self.receives.contains_key(&self.next_number) {
            self.next_number = (self.next_number + 1) % MESSAGE;
        }
        let number = self.next_number;
        self.next_number = (number + 1) % MESSAGE;
        number
    }

    /// All jobs that are not finished, with the kinds of their events, sends and writes first.
    pub(crate) fn unfinished_jobs(self) -> Vec<(EventKind, Job)> {
        let posted = self.posted.into_iter().filter_map(|(_, job)| job);
        let out = posted.chain(self.sends.into_values().flatten()).map(|job| (job.kind(), job));
        let mut asked: Vec<(Operation, (EventKind, Job))> = self.asked.into_iter().collect();
        asked.sort_by_key(|(operation, _)| *operation);
        let asked = asked.into_iter().map(|(_, job)| job);
        let receives = self.receives.into_values().map(|receive| (EventKind::ReceiveDone, receive.job));
        out.chain(asked).chain(receives).collect()
    }
}

/// Takes the first of a queue, and the queue if it was the last.
fn pop<T>(queues: &mut HashMap<u64, VecDeque<T>>, tag: u64) -> Option<T> {
    let queue = queues.get_mut(&tag)?;
    let first = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&tag);
    }
    first
}
