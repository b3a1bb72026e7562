//! The common part of a host's program: actions, timers, messages under way, and how processes reach each other.

use crate::plan::{CONTROL_BYTES, Class, Service};
use crate::shared::{Content, Shared};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use strandway_proto::application::{Action, Channel};
use strandway_proto::units::Time;
use strandway_proto::{Message, MessageId};

/// The reason for which a host wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The next request arrives at the router.
    Arrival,
    /// A stage has computed a step.
    Computed { step: u32 },
    /// Layers of a KV cache are computed.
    Piece { request: u32, lane: u32, bytes: u64, last: bool },
    /// The computation before a round of messages is over.
    Exchange,
    /// The links inside the server have done their part of a round.
    Inside,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) to: u32,
    pub(crate) bytes: u64,
    pub(crate) content: Content,
}

/// The common part.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) service: Arc<Service>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) me: u32,
    pub(crate) actions: VecDeque<Action>,
    /// Letters to this host itself.
    pub(crate) local: VecDeque<(u32, Content)>,
    timers: BTreeMap<(Time, u64), Timer>,
    /// Messages of each class so far.
    posted: [u64; Class::COUNT as usize],
    /// Timers and signals so far.
    count: u64,
    pub(crate) sending: BTreeMap<u32, Sending>,
    /// Connections to a host that have failed.
    failed: BTreeMap<u32, u32>,
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, me: u32) -> Core {
        Core {
            service: Arc::clone(&shared.service),
            shared,
            me,
            actions: VecDeque::new(),
            local: VecDeque::new(),
            timers: BTreeMap::new(),
            posted: [0; Class::COUNT as usize],
            count: 0,
            sending: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Tells another process of the service: inside a server by a signal, otherwise by a message.
    pub(crate) fn notify(&mut self, now: Time, to: u32, content: Content) {
        if to == self.me {
            self.local.push_back((to, content));
        } else if self.service.servers[to as usize] == self.service.servers[self.me as usize] {
            let at = now + self.service.inside.latency;
            self.count += 1;
            self.shared.signal(to, at, self.me, self.count, content);
            let (to, order) = (self.service.hosts[to as usize], self.service.order);
            self.actions.push_back(Action::Signal { to, at, order, word: u32::MAX });
        } else {
            self.post(to, Class::Control, CONTROL_BYTES, content);
        }
    }

    /// Tells another process something that has a length, whether or not they share a server.
    pub(crate) fn send(&mut self, now: Time, to: u32, class: Class, bytes: u64, content: Content) {
        if self.service.servers[to as usize] == self.service.servers[self.me as usize] {
            self.notify(now, to, content);
        } else {
            self.post(to, class, bytes, content);
        }
    }

    /// Posts a message to another host.
    pub(crate) fn post(&mut self, to: u32, class: Class, bytes: u64, content: Content) {
        let n = &mut self.posted[class as usize];
        let number = self.shared.store(self.me, class, *n, content);
        let turn = (*n % u64::from(self.service.connections)) as u32;
        *n += 1;
        self.sending.insert(number, Sending { to, bytes, content });
        self.leave(number, to, bytes, turn);
    }

    fn leave(&mut self, number: u32, to: u32, bytes: u64, turn: u32) {
        let failed = self.failed.get(&to).copied().unwrap_or(0);
        let service = &self.service;
        let channel = Channel {
            peer: service.hosts[to as usize],
            number: service.first_channel.wrapping_add(failed * service.connections + turn),
            profile: service.profile,
        };
        self.actions.push_back(Action::Post { channel, message: Message { id: MessageId(number), bytes } });
    }

    /// A connection to a host was given up: its messages leave again over a new one.
    pub(crate) fn begin_again(&mut self, to: u32) {
        *self.failed.entry(to).or_default() += 1;
        let lost: Vec<(u32, u64)> =
            self.sending.iter().filter(|(_, one)| one.to == to).map(|(number, one)| (*number, one.bytes)).collect();
        for (number, bytes) in lost {
            self.leave(number, to, bytes, 0);
        }
    }

    /// Sets a timer.
    pub(crate) fn at(&mut self, time: Time, timer: Timer) {
        self.count += 1;
        self.timers.insert((time, self.count), timer);
    }

    /// Takes the next timer that is due.
    pub(crate) fn due(&mut self, now: Time) -> Option<Timer> {
        let first = self.timers.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// The time of the next timer.
    pub(crate) fn next_timer(&self) -> Time {
        self.timers.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    /// Is nothing under way at this host?
    pub(crate) fn is_idle(&self) -> bool {
        self.timers.is_empty() && self.sending.is_empty() && self.actions.is_empty() && !self.shared.expects(self.me)
    }
}
