//! The program of a host in a run whose messages come from outside.

use super::{Lab, LiveEvent, Order, State, What, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::units::Time;
use strandway_proto::{HostId, Message, MessageId};

/// The function that answers events.
pub(super) type Handler = Arc<Mutex<dyn FnMut(&Lab, &LiveEvent) + Send>>;

/// The word of the signals between these programs.
const WORD: u32 = u32::MAX;

/// The program of one host.
pub(super) struct HostProgram {
    pub(super) lab: Lab,
    pub(super) handler: Handler,
    /// The plan's connection between each two hosts.
    pub(super) channels: Arc<BTreeMap<(HostId, HostId), u32>>,
    pub(super) host: HostId,
}

/// The number in the simulator of the `n`-th message of a host. It does not depend on what other hosts post.
fn number_of(state: &State, host: HostId, n: usize) -> Option<u32> {
    let number = n as u64 * state.hosts.len() as u64 + u64::from(host.0) + u64::from(state.first);
    u32::try_from(number).ok()
}

/// The place in the state of the message with a number in the simulator.
fn place_of(state: &State, number: MessageId) -> Option<u64> {
    let (hosts, away) = (state.hosts.len() as u32, number.0.checked_sub(state.first)?);
    state.hosts[(away % hosts) as usize].posted.get((away / hosts) as usize).copied()
}

impl HostProgram {
    /// Tells the program outside what happened, and then of the timers that are due.
    fn notify(&self, now: Time, what: What) {
        let mut next = Some(what);
        while let Some(what) = next {
            {
                let mut state = lock(&self.lab.0.state);
                state.now = now;
                state.last = state.last.max(now);
                state.host = Some(self.host);
            }
            (lock(&self.handler))(&self.lab, &LiveEvent { at: now, host: self.host, what });
            lock(&self.lab.0.state).host = None;
            next = self.due(now);
        }
    }

    /// Takes a timer that is due.
    fn due(&self, now: Time) -> Option<What> {
        let mut state = lock(&self.lab.0.state);
        let timers = &mut state.hosts[self.host.0 as usize].timers;
        let first = timers.first_entry().filter(|first| first.key().0 <= now)?;
        Some(What::Timer { word: first.remove() })
    }

    /// Takes what events of other hosts asked for.
    fn collect(&self, now: Time) {
        let mut state = lock(&self.lab.0.state);
        while let Some(first) = state.hosts[self.host.0 as usize].inbox.first_entry().filter(|e| e.key().0 <= now) {
            let ((_, _, number), order) = first.remove_entry();
            let order = match order {
                Order::Timer { at, word } => Order::Timer { at: at.max(now), word },
                Order::Post(_) => order,
            };
            state.take(self.host, order, number);
        }
    }
}

impl Application for HostProgram {
    fn handle_event(&mut self, now: Time, event: &Event) {
        let place = |message: MessageId| place_of(&lock(&self.lab.0.state), message);
        match *event {
            Event::Sent { message } => {
                let Some(message) = place(message) else { return };
                {
                    let mut state = lock(&self.lab.0.state);
                    state.messages[message as usize].finished = Some(now);
                    state.hosts[self.host.0 as usize].unfinished -= 1;
                }
                self.notify(now, What::Sent { message });
            }
            Event::Received { message, .. } => {
                let Some(message) = place(message) else { return };
                lock(&self.lab.0.state).messages[message as usize].received = Some(now);
                self.notify(now, What::Received { message });
            }
            Event::Failed { peer } => self.notify(now, What::Failed { peer }),
            Event::Signal { word: WORD, order } if order == lock(&self.lab.0.state).order => {
                self.collect(now);
                if let Some(what) = self.due(now) {
                    self.notify(now, what);
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(what) = self.due(now) {
            self.notify(now, what);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        let mut state = lock(&self.lab.0.state);
        let state = &mut *state;
        let here = &mut state.hosts[self.host.0 as usize];
        if let Some((to, at)) = here.signals.pop_front() {
            return Some(Action::Signal { to, at, order: state.order, word: WORD });
        }
        let place = here.posts.pop_front()?;
        let n = here.posted.len();
        here.posted.push(place);
        here.unfinished += 1;
        // Beyond four billion messages the rest stays unposted, and the run ends unfinished.
        let number = number_of(state, self.host, n)?;
        let message = &mut state.messages[place as usize];
        message.started = Some(now);
        // A number above those of the plan's connections opens the channel.
        let number_of_channel = self.channels.get(&(message.from, message.to)).copied().unwrap_or(u32::MAX);
        let channel = Channel { peer: message.to, number: number_of_channel, profile: 0 };
        Some(Action::Post { channel, message: Message { id: MessageId(number), bytes: message.bytes } })
    }

    fn poll_timeout(&self) -> Time {
        let state = lock(&self.lab.0.state);
        let here = &state.hosts[self.host.0 as usize];
        if !here.posts.is_empty() {
            // Posted before the run.
            return Time::ZERO;
        }
        here.timers.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at)
    }

    fn owns(&self, message: MessageId) -> bool {
        message.0 >= lock(&self.lab.0.state).first
    }

    fn is_done(&self) -> bool {
        let state = lock(&self.lab.0.state);
        let here = &state.hosts[self.host.0 as usize];
        here.posts.is_empty() && here.timers.is_empty() && here.inbox.is_empty() && here.unfinished == 0
    }
}
