//! Turns of a node: receiving, timers, sending, waiting.

use super::{Completion, Node, Shard, State, Waker};
use crate::clock::{earlier, span};
use crate::config::{Config, Waiting};
use crate::deadlines::Deadlines;
use crate::error::{Error, Reason};
use crate::handshake::Cookies;
use crate::plane::{Failure, Plane};
use crate::session::NodeContext;
use crate::socket::{Arrival, Inbox};
use crate::watch::INTERVAL;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::time::Duration;
use strandway_proto::{Span, Time};

/// The most receiving calls per plane and turn, so that sending has its turn; ours.
const CALLS_PER_TURN: usize = 16;
/// The most datagrams of MRC's layout per plane and turn; ours, as many as those calls return at least if they are
/// full.
const INNER_PER_TURN: usize = 256;
/// A receiving call that returned fewer bytes has nearly emptied its socket; ours: two packets of 4 KiB.
const BULK: usize = 8_192;
/// The events of a socket that has something to read, or an error.
const READABLE: PollFlags = PollFlags::IN.union(PollFlags::ERR).union(PollFlags::HUP);
/// If the application posts within this time after its last completion, the post counts as an answer; ours: less than a
/// wake-up costs.
const ANSWER: Span = Span::from_us(20);

/// Whose turn it is, and when.
pub(super) struct Turns {
    /// Slots whose connection has something to do in the next turn, each once, in the order of turns.
    pub(super) ready: VecDeque<u32>,
    /// When to look at the connections that are not ready, by slot.
    pub(super) deadlines: Deadlines,
    /// When the last turn was.
    pub(super) last: Time,
    /// The latest time that was given to an engine.
    pub(super) latest: Time,
    /// If two turns are further apart, the node itself may be the reason why it heard nothing.
    pub(super) absence_max: Span,
    /// Datagrams stay queued in the planes until the application had its chance to answer the last completion.
    pub(super) held: bool,
    /// Planes whose own sockets were empty when the node woke up, one bit each. The next turn does not read them.
    pub(super) empty: u32,
}

impl Turns {
    pub(super) fn new(now: Time, config: &Config) -> Turns {
        Turns {
            ready: VecDeque::new(),
            deadlines: Deadlines::default(),
            last: now,
            latest: now,
            absence_max: span(config.timeouts.plane).min(Span(span(config.timeouts.peer).0 / 2)),
            held: false,
            empty: 0,
        }
    }
}

/// Moving packets.
impl Node {
    /// The oldest completion, if there is one; if not, moves packets once and looks again. Never waits.
    ///
    /// Packets move only when no completion is left. If the application takes no completions, its peers have to wait,
    /// and memory does not grow.
    pub fn poll(&mut self) -> Option<Completion> {
        self.let_go();
        if self.completions.is_empty() {
            self.work();
        }
        self.completions.pop_front()
    }

    /// Sleeps at once, whatever [`Waiting`] says, unless there is a completion or another thread has woken the node.
    /// Returns when packets were moved, after `timeout`, or when a descriptor of [`Node::watch`] can be read.
    ///
    /// # Errors
    /// If the system cannot wait for sockets.
    pub fn doze(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        if let Some(completion) = self.poll() {
            return Ok(Some(completion));
        }
        let now = self.clock.now();
        self.sleep(now, now + span(timeout))?;
        Ok(self.poll())
    }

    /// The next completion; `None` if none comes within `timeout`, if another thread wakes the node ([`Node::waker`]),
    /// or if a descriptor of [`Node::watch`] can be read. [`Waiting`] configures how the node waits.
    ///
    /// # Errors
    /// If the system cannot wait for sockets.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        self.let_go();
        if let Some(completion) = self.completions.pop_front() {
            return Ok(Some(completion));
        }
        let began = self.clock.now();
        let until = began + span(timeout);
        let mut idle_since = began;
        loop {
            let moved = self.work();
            if let Some(completion) = self.completions.pop_front() {
                if let Waiting::Adaptive(longest) = self.config.waiting
                    && idle_since != began
                {
                    // Something came while the node was spinning, so it spins longer next time.
                    self.waits.spin = Span((self.waits.spin.0 * 2).min(span(longest).0));
                }
                return Ok(Some(completion));
            }
            if self.waits.waker.as_ref().is_some_and(Waker::answer) {
                return Ok(None);
            }
            let now = self.clock.now();
            if now >= until {
                return Ok(None);
            }
            if moved {
                idle_since = now;
                continue;
            }
            if now.since(idle_since) < self.waits.spin {
                if let Waiting::Adaptive(_) = self.config.waiting {
                    std::thread::yield_now();
                }
                continue;
            }
            if let Waiting::Adaptive(longest) = self.config.waiting {
                self.waits.spin = Span((self.waits.spin.0 / 2).max(span(longest).0 / 16));
            }
            if self.sleep(now, until)? {
                return Ok(None);
            }
            idle_since = self.clock.now();
        }
    }

    /// Sleeps until a socket can be read or a deadline has come. True if a descriptor that is watched can be read.
    fn sleep(&mut self, now: Time, until: Time) -> Result<bool, Error> {
        let at = until.min(self.turns.deadlines.first()).min(self.monitors.deadline()).min(self.groups.due());
        // Those who watch this node see that it is alive.
        let at = if self.watching.is_some() { at.min(now + span(INTERVAL)) } else { at };
        let at = self.orders.as_ref().map_or(at, |orders| at.min(orders.due.max(now)));
        // After a turn, the connections still ready are those with packets that no plane takes at present.
        let sends = !self.turns.ready.is_empty() || self.groups.wait();
        if at <= now {
            return Ok(false);
        }
        let nanoseconds = at.since(now).0.div_ceil(1000);
        let timeout =
            Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 };
        let mut sockets: Vec<PollFd<'_>> = self
            .planes
            .iter()
            .map(|plane| {
                let full = plane.is_blocked() || (sends && !plane.is_free());
                PollFd::new(plane, if full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN })
            })
            .collect();
        sockets.extend(self.planes.iter().filter_map(|plane| {
            let flags = if plane.is_tunnel_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            plane.tunnel_fd().map(|fd| PollFd::from_borrowed_fd(fd, flags))
        }));
        sockets.extend(self.groups.sockets().map(|socket| PollFd::new(socket, PollFlags::IN)));
        let others = sockets.len();
        sockets.extend(
            self.planes.iter().filter_map(Plane::urgent_fd).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        let urgent = others..sockets.len();
        let links = self.ports.links.as_ref().map(|links| {
            sockets.push(PollFd::new(links, PollFlags::IN));
            sockets.len() - 1
        });
        // Other threads wake the node, and other shards of its ports.
        let bells: Vec<&Waker> = self.waits.waker.iter().chain(self.shard.as_ref().map(Shard::bell)).collect();
        if !bells.iter().all(|bell| bell.lie_down()) {
            bells.iter().for_each(|bell| bell.get_up());
            return Ok(false);
        }
        let first = sockets.len();
        sockets.extend(bells.iter().map(|bell| PollFd::new(*bell, PollFlags::IN)));
        let watched = sockets.len();
        sockets.extend(self.waits.watched.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)));
        let outcome = rustix::event::poll(&mut sockets, Some(&timeout));
        let is_watched = sockets[watched..].iter().any(|polled| !polled.revents().is_empty());
        // The caller looks at a watched descriptor before the next turn, which may then be much later.
        let is_fresh = outcome.is_ok() && !is_watched;
        let empty = |(plane, polled): (usize, &PollFd<'_>)| u32::from(!polled.revents().intersects(READABLE)) << plane;
        self.turns.empty = if is_fresh { sockets[..self.planes.len()].iter().enumerate().map(empty).sum() } else { 0 };
        let with_urgent = (0..self.planes.len()).filter(|&plane| self.planes[plane].urgent_fd().is_some());
        for (plane, polled) in with_urgent.zip(&sockets[urgent]) {
            let arrived = !polled.revents().is_empty();
            if arrived || is_fresh {
                self.urgent.notify(plane, arrived);
            }
        }
        for (bell, polled) in bells.iter().zip(&sockets[first..]) {
            bell.get_up();
            if !polled.revents().is_empty() {
                bell.drain();
            }
        }
        let ports_changed = links.is_some_and(|links| !sockets[links].revents().is_empty());
        if let Some(links) = self.ports.links.as_mut().filter(|_| ports_changed) {
            links.read();
        }
        // The node listened while it slept, so the silence of a peer counts.
        self.turns.last = self.clock.now();
        match outcome {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(is_watched),
            Err(error) => Err(Error::Wait(error.into())),
        }
    }

    /// Receives, lets connections work, sends; true if anything moved.
    pub(super) fn work(&mut self) -> bool {
        let mut now = self.clock.now();
        if let Some(back) = self.clock.set_back(now) {
            self.go_back(back);
            now = self.clock.now();
        }
        let absence = now.since(self.turns.last);
        self.turns.last = now;
        let mut moved = false;
        let mut inbox = self.inbox.take().unwrap_or_else(Inbox::new);
        let empty = std::mem::take(&mut self.turns.empty);
        for plane in 0..self.planes.len() {
            let is_empty = empty >> plane & 1 == 1 && !self.urgent.is_told(plane);
            let Some(received) = (if is_empty { Some(false) } else { self.receive(now, plane, &mut inbox) }) else {
                // The application answers an urgent message first.
                self.inbox = Some(inbox);
                return true;
            };
            moved |= received;
            moved |= self.receive_inner(now, plane, &mut inbox);
        }
        moved |= self.receive_from_shards(|node, plane, arrival, datagram| node.arrive(now, plane, arrival, datagram));
        moved |= self.receive_of_groups(now, &mut inbox);
        self.inbox = Some(inbox);
        self.urgent.end_turn();
        self.watch_ports();
        self.handle_orders(now);
        moved |= self.let_connections_work(absence);
        moved |= self.let_groups_work();
        let arrived = |c: &Completion| {
            use Completion::{Fetched, Read, Received, Written};
            matches!(c, Received { .. } | Written { .. } | Read { .. } | Fetched { .. })
        };
        if self.answers && self.completions.iter().any(arrived) {
            // The application is likely to answer at once, in the same datagrams.
            self.turns.held = true;
            self.answers = false;
        } else {
            self.flush();
        }
        self.publish();
        moved
    }

    /// Receives datagrams of a plane, urgent ones first; true if there were any. `None` if the turn ends here, because
    /// an urgent message has come for the application.
    pub(super) fn receive(&mut self, now: Time, plane: usize, inbox: &mut Inbox) -> Option<bool> {
        let mut moved = false;
        for _ in 0..CALLS_PER_TURN {
            let urgent = self.urgent.is_due(now, plane) && self.planes[plane].receive_urgent(inbox);
            if urgent {
                self.urgent.receive(now);
                self.take_in(now, plane, inbox);
                if !self.completions.is_empty() && self.urgent.may_end_early() {
                    return None;
                }
            }
            let others = self.planes[plane].receive(inbox);
            let bytes = if others { inbox.size().0 } else { 0 };
            self.urgent.pass(plane, bytes);
            if others {
                self.take_in(now, plane, inbox);
            }
            moved |= urgent || others;
            // Nothing came; or the application has a completion to answer, and little came, or something urgent.
            if !(urgent || others) || ((urgent || bytes < BULK) && !self.completions.is_empty()) {
                break;
            }
        }
        Some(moved)
    }

    /// Takes in the datagrams of one receiving call.
    fn take_in(&mut self, now: Time, plane: usize, inbox: &mut Inbox) {
        inbox.each(|arrival, datagram| {
            if !self.hand_over(plane, arrival, datagram) {
                self.arrive(now, plane, arrival, datagram);
            }
        });
    }

    /// Receives datagrams of MRC's layout, which come one by one.
    fn receive_inner(&mut self, now: Time, plane: usize, inbox: &mut Inbox) -> bool {
        let mut moved = false;
        for _ in 0..INNER_PER_TURN {
            if !self.planes[plane].receive_inner(inbox) {
                break;
            }
            moved = true;
            inbox.each(|arrival, datagram| {
                let at = Time(now.0.saturating_sub(span(arrival.age).0)).max(self.turns.latest);
                self.turns.latest = at;
                self.handle_inner(at, plane, arrival, datagram);
            });
        }
        moved
    }

    /// A datagram for this node arrived.
    fn arrive(&mut self, now: Time, plane: usize, arrival: &Arrival, datagram: &mut [u8]) {
        // The time at which the kernel received it, so that round trips exclude the time that this node slept.
        let at = Time(now.0.saturating_sub(span(arrival.age).0)).max(self.turns.latest);
        self.turns.latest = at;
        self.handle(at, plane, arrival, datagram);
    }

    /// The clock was set back.
    fn go_back(&mut self, back: Span) {
        (self.turns.last, self.turns.latest) = (earlier(self.turns.last, back), earlier(self.turns.latest, back));
        self.greeting.answered.go_back(back);
        if let Some(sizes) = &mut self.probing.sizes {
            sizes.forget();
        }
        // With the clock set back, an old cookie could seem fresh again: new keys make it invalid.
        if let Ok(cookies) = Cookies::new() {
            self.greeting.cookies = cookies;
        }
        for slot in &mut self.table.slots {
            match &mut slot.state {
                Some(State::Open(session)) => session.go_back(back),
                Some(State::Calling(calling)) => calling.go_back(back),
                None => {}
            }
        }
        self.urgent.go_back(self.clock.now());
        if let Some(orders) = &mut self.orders {
            orders.due = Time::ZERO;
        }
        self.monitors.go_back(self.clock.now(), back);
        self.make_all_ready();
    }

    /// Sends the datagrams that were held back for an answer of the application that did not come. [`Node::poll`] and
    /// [`Node::wait`] do it as well; call it if the application has no answer and calls neither for a while.
    pub fn let_go(&mut self) {
        if self.turns.held {
            self.flush();
        }
    }

    /// The application posts something. If it does so soon after its last completion, the next acknowledgements wait
    /// for its answer.
    pub(super) fn handle_answer(&mut self, now: Time) {
        self.answers = now.since(self.turns.latest) < ANSWER;
    }

    /// Tells connections which of our own ports went down or came back.
    fn watch_ports(&mut self) {
        let now = self.turns.latest;
        for plane in 0..self.planes.len() {
            let up = !self.planes[plane].dead && self.ports.links.as_ref().is_none_or(|links| links.is_up(plane));
            if std::mem::replace(&mut self.ports.up[plane], up) == up {
                continue;
            }
            for slot in &mut self.table.slots {
                if let Some(State::Open(session)) = &mut slot.state {
                    session.handle_port(now, plane, up);
                }
            }
            self.monitors.set_port(now, plane, up);
            self.make_all_ready();
        }
    }

    fn let_connections_work(&mut self, absence: Span) -> bool {
        let now = self.clock.now();
        self.turns.latest = now;
        self.handle_failures();
        self.watch_peers(now, absence);
        while let Some(index) = self.turns.deadlines.pop(now) {
            self.make_ready(index);
        }
        let mut moved = false;
        self.counters.turns += 1;
        for _ in 0..self.turns.ready.len() {
            let Some(index) = self.turns.ready.pop_front() else { break };
            self.table.slots[index as usize].ready = false;
            self.counters.visits += 1;
            moved |= self.let_one_work(index as usize, now, absence);
        }
        if self.turns.ready.len() > 1 {
            // The next turn begins with another connection.
            self.turns.ready.rotate_left(1);
        }
        moved
    }

    pub(super) fn make_all_ready(&mut self) {
        (0..self.table.slots.len() as u32).for_each(|index| self.make_ready(index));
    }

    /// A packet that the kernel refused to send concerns only the connections with that peer.
    fn handle_failures(&mut self) {
        for plane in 0..self.planes.len() {
            while let Some((peer, failure)) = self.planes[plane].take_failure() {
                for index in 0..self.table.slots.len() {
                    match (&mut self.table.slots[index].state, failure) {
                        (Some(State::Open(session)), Failure::NoRoute) if session.is_at(plane, peer) => {
                            self.monitors.lose_route(session.monitor(), plane);
                        }
                        (Some(State::Open(session)), Failure::TooLarge) if session.is_at(plane, peer) => {
                            // An interface whose MTU shrinks costs its plane, not the connection, while another one
                            // works.
                            if self.monitors.has_way_beside(session.monitor(), plane) {
                                self.monitors.set_narrow(self.turns.latest, session.monitor(), plane);
                            } else {
                                self.end(index, Reason::PayloadTooLarge, true);
                            }
                        }
                        (Some(State::Calling(calling)), Failure::TooLarge) if calling.is_peer(plane, peer) => {
                            self.end(index, Reason::PayloadTooLarge, true);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Timers and packets of the connection in a slot; true if it sent anything.
    pub(super) fn let_one_work(&mut self, index: usize, now: Time, absence: Span) -> bool {
        let slot = index as u32;
        let brisk = self.urgent.is_expected(now);
        match &mut self.table.slots[index].state {
            Some(State::Open(session)) => {
                let mut around = node_context!(self, now);
                let confirmed = session.is_confirmed();
                match session.work(&mut around, absence, brisk) {
                    Err(reason) => self.end(index, reason, confirmed),
                    Ok(sent) => {
                        session.count(now, &mut self.monitors);
                        self.turns.deadlines.set(slot, session.deadline(&self.monitors));
                        if session.wants_transmit() {
                            self.make_ready(slot);
                        }
                        self.wake_waiting();
                        return sent;
                    }
                }
            }
            Some(State::Calling(_)) => {
                self.call(index, now);
                if let Some(State::Calling(calling)) = &self.table.slots[index].state {
                    self.turns.deadlines.set(slot, calling.deadline(span(self.config.timeouts.handshake)));
                }
            }
            None => {}
        }
        false
    }

    pub(super) fn flush(&mut self) {
        self.turns.held = false;
        for plane in &mut self.planes {
            plane.flush();
        }
    }
}
