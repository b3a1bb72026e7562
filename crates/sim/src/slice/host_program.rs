//! The interface between a host and its program: events, actions, and the time accounts of its flows.

use super::Slice;
use super::crossing::News;
use super::hosts::Pending;
use crate::road::Transit;
use std::sync::Arc;
use strandway_fabric::measure::FlowTime;
use strandway_fabric::tally::Tally;
use strandway_proto::ConnectionStats;
use strandway_proto::account::{Spent, Waits};
use strandway_proto::application::{Account, Action, Application, Channel, Event, Stage};
use strandway_proto::packet::Header;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Span, Time};
use strandway_proto::{ConnectionId, Event as Notice, HostId, Message, MessageId, OpenConnection, Packet};

/// Limit on the open connections of a host whose packets' waits are read message by message: ours.
const HEARD_MAX: usize = 1024;

/// A message in progress that has no row in the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenMessage {
    message: u32,
    at: u64,
    /// Its connection's time account when it was posted.
    spent: Spent,
}

/// A flow in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Posted {
    at: u64,
    /// The time that it waited for earlier flows of its connection.
    waited: Span,
    /// Its connection's time account when it was posted, or when its first packet was sent. When its last packet has
    /// been sent for the first time: its time until then, in a form of [`Spent::turn_to_tail`].
    spent: Spent,
    /// The other part of that form.
    sent: Span,
    stage: Progress,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// It waits for earlier flows of its connection.
    #[default]
    Behind,
    Sending,
    /// Its last packet has been sent for the first time.
    Sent,
}

/// The kinds of events in a fingerprint.
const STARTED: u64 = 0;
const RECEIVED: u64 = 1;
const FINISHED: u64 = 2;
const FAILED: u64 = 3;
const LETTER: u64 = 4;
pub(super) const CHUNK: u64 = 5;
const STAGE: u64 = 6;
pub(super) const FRAGMENT: u64 = 7;

impl Slice<'_> {
    /// Passes the events of a host's endpoint to its program, and executes the program's actions. False if there was no
    /// event.
    #[inline]
    pub(super) fn notify(&mut self, h: usize, now: u64) -> bool {
        let any = self.hosts.all[h].endpoint.has_events();
        if any {
            self.notify_all(h, now);
        }
        any
    }

    fn notify_all(&mut self, h: usize, now: u64) {
        while let Some(told) = self.hosts.all[h].endpoint.poll_event() {
            if let Some(event) = self.witness(h, now, told) {
                self.hosts.programs[h].handle_event(Time(now), &event);
            }
        }
        self.act(h, now);
    }

    /// Records an endpoint's event, and returns the event for its program.
    fn witness(&mut self, h: usize, now: u64, notice: Notice) -> Option<Event> {
        Some(match notice {
            Notice::Sent { connection, message } => {
                self.hosts.fingerprints[h].add([FINISHED, u64::from(message.0), now]);
                if self.has_row(message) {
                    self.recorder.records.finish(message.0, Time(now));
                    self.end_flow(h, message.0, now);
                } else {
                    let open = &mut self.hosts.open[h];
                    let at = open.iter().position(|o| o.message == message.0);
                    let began = at.map(|at| open.swap_remove(at));
                    let spent = match &began {
                        Some(began) if self.config.plan.accounts => self.spent_since(h, connection, &began.spent, now),
                        _ => Spent::default(),
                    };
                    if self.config.plan.accounts {
                        self.hosts.programs[h].note_account(message, &Account::Sent(&spent));
                    }
                    if let Some(tally) = self.tally_of(message) {
                        tally.finish(message.0, Time(began.map_or(now, |began| began.at)), Time(now));
                        tally.spent += spent;
                    }
                }
                self.recorder.finished += 1;
                self.recorder.finished_at = self.recorder.finished_at.max(now);
                Event::Sent { message }
            }
            Notice::Received { connection, message, bytes } => {
                self.hosts.fingerprints[h].add([RECEIVED, u64::from(message.0), now]);
                if self.has_row(message) {
                    self.recorder.records.receive(message.0, Time(now));
                } else {
                    let waits = if self.config.plan.accounts { self.waits_since(h, connection) } else { None };
                    if let Some((now, before)) = &waits {
                        self.hosts.programs[h].note_account(message, &Account::Received { now, before });
                    }
                    if let Some(tally) = self.tally_of(message) {
                        tally.receive(message.0, Time(now));
                        if let Some((waits, before)) = waits {
                            tally.waited.add(&waits, &before);
                        }
                    }
                }
                Event::Received { message, bytes }
            }
            Notice::Failed { connection } => {
                self.hosts.fingerprints[h].add([FAILED, u64::from(connection.0), now]);
                Event::Failed { peer: self.hosts.all[h].endpoint.observe().peer(connection) }
            }
            Notice::Control { connection, control } => {
                self.hosts.fingerprints[h].add([LETTER, u64::from(connection.0), now]);
                Event::Control { from: self.hosts.all[h].endpoint.observe().peer(connection), control }
            }
            Notice::Cast { to, task, end } => Event::Cast { to, task, end },
            Notice::Closed { connection } => {
                self.hosts.heard[h].remove(&connection);
                return None;
            }
        })
    }

    /// Time of a sender by activity since an earlier reading; zero if its connection has been closed or put to sleep
    /// since then.
    fn spent_since(&mut self, h: usize, connection: ConnectionId, before: &Spent, now: u64) -> Spent {
        let spent = self.hosts.all[h].endpoint.spent(Time(now), connection);
        let whole = spent.0.iter().zip(&before.0).all(|(now, before)| now >= before);
        if whole { spent.since(before) } else { Spent::default() }
    }

    /// The waits of the packets that arrived at a connection, and their last reading; `None` if the host has too many
    /// connections to remember their readings.
    fn waits_since(&mut self, h: usize, connection: ConnectionId) -> Option<(Waits, Waits)> {
        let heard = &mut self.hosts.heard[h];
        if heard.len() >= HEARD_MAX && !heard.contains_key(&connection) {
            return None;
        }
        let waits = self.hosts.all[h].endpoint.observe().waits(connection);
        let before = heard.insert(connection, waits).unwrap_or_default();
        Some((waits, before))
    }

    /// Does the plan keep a row for a message?
    #[inline]
    fn has_row(&self, message: MessageId) -> bool {
        (message.0 as usize) < self.config.plan.flows.len()
    }

    /// The tally of a message's collective.
    fn tally_of(&mut self, message: MessageId) -> Option<&mut Tally> {
        self.hosts.all_programs.operation_of(message.0).and_then(|place| self.recorder.tallies.get_mut(place))
    }

    /// Executes the present actions of a host's program. True if there were any.
    pub(super) fn act(&mut self, h: usize, now: u64) -> bool {
        let mut any = false;
        while let Some(action) = self.hosts.programs[h].poll_action(Time(now)) {
            any = true;
            match action {
                Action::Cast(cast) => self.hosts.all[h].endpoint.cast(cast),
                Action::Rebuild(rebuild) => self.recorder.packets.rebuilt += rebuild.missing().count() as u64,
                Action::Fragment(packet) => self.hosts.all[h].endpoint.send_fragment(packet),
                Action::Stage { message, stage } => self.note_stage(h, message, stage, now),
                Action::Post { channel, message } => self.work_for(h, channel, Some(message), now),
                Action::Signal { to, at, order, word } => {
                    let target = self.config.cut.slice_of_host(to);
                    if target == self.config.index {
                        self.send_signal(at.0, to.0, order, word);
                    } else {
                        self.fabric.outboxes[target].send_news(News::Signal { time: at.0, to: to.0, order, word });
                    }
                }
                Action::Close { channel } => self.work_for(h, channel, None, now),
                Action::Control { channel, control } => {
                    let connection = self.connection(h, channel, now);
                    self.hosts.all[h].endpoint.send_control(Time(now), connection, control);
                }
            }
        }
        let host = &mut self.hosts.all[h];
        host.wake_at = self.hosts.programs[h].poll_timeout().0;
        if any {
            host.ask_again_at = 0;
        }
        any
    }

    /// Records a stage of a host's part in a collective without own messages; the part counts like a message.
    fn note_stage(&mut self, h: usize, message: MessageId, stage: Stage, now: u64) {
        let word = match stage {
            Stage::Begun => 0,
            Stage::Complete => 1,
            Stage::Closed => 2,
            Stage::Aborted { dead } => 3 + u64::from(dead.0),
            Stage::Chained => u64::MAX,
        };
        self.hosts.fingerprints[h].add([STAGE, u64::from(message.0), word, now]);
        if let Stage::Closed = stage {
            self.recorder.finished += 1;
            self.recorder.finished_at = self.recorder.finished_at.max(now);
        }
        let since = match stage {
            Stage::Begun => {
                self.hosts.open[h].push(OpenMessage { message: message.0, at: now, spent: Spent::default() });
                now
            }
            Stage::Closed => {
                let open = &mut self.hosts.open[h];
                open.iter().position(|o| o.message == message.0).map_or(now, |at| open.swap_remove(at).at)
            }
            Stage::Complete | Stage::Chained | Stage::Aborted { .. } => now,
        };
        if let Some(tally) = self.tally_of(message) {
            tally.note(message.0, stage, Time(since), Time(now));
        }
    }

    /// Sends a signal to the program of a host of this slice.
    pub(super) fn send_signal(&mut self, time: u64, to: u32, order: u32, word: u32) {
        self.clock.calendar.note(time, self.config.host_stop(to), self.config.sources.signal + order, word);
    }

    /// Our end of a channel; opens it if it is not open.
    fn connection(&mut self, h: usize, channel: Channel, now: u64) -> ConnectionId {
        if let Some(&(ours, _)) = self.config.cut.ends.get(channel.number as usize) {
            return ours;
        }
        if let Some(&ours) = self.hosts.opened[h].get(&channel) {
            return ours;
        }
        let open = self.opening(h, channel.peer, channel.profile, None);
        let ours = self.hosts.all[h].endpoint.open(Time(now), open);
        self.hosts.opened[h].insert(channel, ours);
        if !self.config.plan.faults.is_empty() {
            self.apply_faults(h, ours, channel.peer, now);
        }
        ours
    }

    /// The data to open an end of a connection that is not in the plan.
    fn opening(
        &mut self,
        h: usize,
        peer: HostId,
        profile: u16,
        peer_connection: Option<ConnectionId>,
    ) -> OpenConnection {
        let host = self.config.host(h);
        let profile = usize::from(profile).min(self.config.plan.profiles.len() - 1);
        // The random streams of the plan's connections have much lower numbers.
        let stream = 1 << 62 | u64::from(host.0) << 32 | u64::from(self.hosts.openings[h]);
        self.hosts.openings[h] += 1;
        OpenConnection {
            profile: Arc::clone(&self.config.plan.profiles[profile]),
            environment: self.hosts.environments[profile].between(&self.config.plan.topology, host, peer),
            peer,
            peer_connection,
            random: Random::new(self.config.plan.seed, StreamKind::Connection, stream),
        }
    }

    /// The first packet of a connection that a peer has opened has arrived: opens our end with the profile of the
    /// program that sent it.
    #[cold]
    pub(super) fn accept(&mut self, h: usize, now: u64, packet: &Packet, transit: &Transit) {
        let profile = match packet.header {
            Header::Data(data) => self.hosts.all_programs.profile_of(data.message.0),
            Header::Part(part) => self.hosts.all_programs.profile_of({ part.message }.0),
            // Programs from outside use the run's first profile for channels that they open.
            _ => 0,
        };
        let open = self.opening(h, packet.source, profile, Some(packet.connection));
        let endpoint = &mut self.hosts.all[h].endpoint;
        endpoint.accept(Time(now), open);
        endpoint.handle_packet_with(Time(now), packet, self.fabric.carried.of(transit));
    }

    /// A program closes a channel that opened at first use.
    fn close(&mut self, h: usize, channel: Channel, now: u64) {
        if let Some(ours) = self.hosts.opened[h].remove(&channel) {
            self.hosts.all[h].endpoint.close(Time(now), ours);
        }
    }

    /// A program posts a message, or closes a channel. The host works for one message after the other, if that takes
    /// time, and a channel is closed behind the messages that were posted before.
    fn work_for(&mut self, h: usize, channel: Channel, message: Option<Message>, now: u64) {
        let cost = if message.is_some() { self.config.plan.ports.message_cost.0 } else { 0 };
        if let Some(posting) = &mut self.hosts.posting
            && (cost > 0 || !posting[h].is_empty())
        {
            let free = posting[h].back().map_or(now, |last| last.due.max(now));
            posting[h].push_back(Pending { due: free.saturating_add(cost), asked: now, channel, message });
            return;
        }
        match message {
            Some(message) => self.post(h, channel, message, (now, now)),
            None => self.close(h, channel, now),
        }
    }

    /// When the host's work for the next message is done; `u64::MAX` if there is none.
    #[inline]
    pub(super) fn next_post(&self, h: usize) -> u64 {
        let Some(posting) = &self.hosts.posting else { return u64::MAX };
        posting[h].front().map_or(u64::MAX, |pending| pending.due)
    }

    /// The host's work for a message is done: it goes to the endpoint.
    #[cold]
    pub(super) fn finish_post(&mut self, h: usize, now: u64) {
        if let Some(pending) = self.hosts.posting.as_mut().and_then(|posting| posting[h].pop_front()) {
            match pending.message {
                Some(message) => self.post(h, pending.channel, message, (pending.asked, now)),
                None => self.close(h, pending.channel, now),
            }
            self.hosts.all[h].ask_again_at = 0;
        }
    }

    /// The endpoint gets a message that its program posted at `asked`.
    fn post(&mut self, h: usize, channel: Channel, message: Message, (asked, now): (u64, u64)) {
        let flow = message.id.0;
        let has_row = self.has_row(message.id);
        if has_row {
            self.recorder.records.start(flow, Time(asked));
        } else {
            self.hosts.open[h].push(OpenMessage { message: flow, at: asked, spent: Spent::default() });
            if let Some(tally) = self.tally_of(message.id) {
                tally.start(flow, Time(asked));
            }
        }
        self.hosts.fingerprints[h].add([STARTED, u64::from(flow), now]);
        let connection = self.connection(h, channel, now);
        let host = &mut self.hosts.all[h];
        let accounts = self.config.plan.accounts;
        let behind = accounts && has_row && host.endpoint.observe().has_unsent(connection);
        host.endpoint.post(Time(now), connection, message);
        if !accounts {
            return;
        }
        let spent = host.endpoint.spent(Time(now), connection);
        if !has_row {
            if let Some(open) = self.hosts.open[h].last_mut() {
                open.spent = spent;
            }
            return;
        }
        let waited = Span(now - asked);
        let stage = if behind { Progress::Behind } else { Progress::Sending };
        self.hosts.under_way.insert(flow, Posted { at: asked, waited, spent, sent: Span::ZERO, stage });
    }

    /// The first or the last packet of a flow is sent for the first time. Until its first packet, a flow may have
    /// waited for earlier flows of its connection; after its last packet, the connection works for later flows.
    pub(super) fn note_progress(&mut self, h: usize, flow: u32, now: u64, last: bool) {
        let Some(posted) = self.hosts.under_way.get_mut(flow) else { return };
        let connection = self.config.cut.ends[self.config.plan.flows[flow as usize].connection as usize].0;
        let spent = self.hosts.all[h].endpoint.spent(Time(now), connection);
        if posted.stage == Progress::Behind {
            posted.stage = Progress::Sending;
            posted.waited = Span(now - posted.at);
            posted.spent = spent;
        }
        if last && posted.stage == Progress::Sending {
            posted.stage = Progress::Sent;
            posted.sent = posted.spent.turn_to_tail(&spent);
        }
    }

    /// Records the time account of a flow that has finished at `now`, or is still in progress.
    fn end_flow(&mut self, h: usize, flow: u32, now: u64) {
        let Some(posted) = self.hosts.under_way.remove(flow) else { return };
        let connection = self.config.cut.ends[self.config.plan.flows[flow as usize].connection as usize].0;
        let mut spent = || self.hosts.all[h].endpoint.spent(Time(now), connection);
        let time = match posted.stage {
            Progress::Behind => FlowTime { behind: Span(now.saturating_sub(posted.at)), spent: Spent::default() },
            Progress::Sending => FlowTime { behind: posted.waited, spent: spent().since(&posted.spent) },
            Progress::Sent => FlowTime { behind: posted.waited, spent: posted.spent.with_tail(posted.sent, &spent()) },
        };
        debug_assert_eq!(time.total(), Span(now - posted.at), "the time of flow {flow} adds up");
        self.recorder.times.push(flow, &time);
    }

    /// Ends the accounts of all flows that are not finished at `now`.
    pub(crate) fn close_accounts(&mut self, now: u64) {
        for flow in self.hosts.under_way.flows() {
            let source = self.config.plan.connections[self.config.plan.flows[flow as usize].connection as usize].source;
            let h = self.config.cut.place_of(source.0) as usize;
            self.end_flow(h, flow, now.max(self.hosts.all[h].now));
        }
    }

    /// The counters of connections that opened at first use. Every host's part goes into its fingerprint.
    pub(crate) fn count_opened(&mut self) -> ConnectionStats {
        let mut sum = ConnectionStats::NONE;
        for h in (0..self.hosts.all.len()).filter(|&h| self.hosts.openings[h] > 0) {
            let planned = self.config.cut.planned[self.config.hosts[h] as usize];
            let s = self.hosts.all[h].endpoint.observe().stats_from(planned);
            let counters =
                [s.sent, s.retransmitted, s.acks, s.delivered_bytes, s.duplicates, s.marked, s.trimmed, s.timeouts];
            self.hosts.fingerprints[h].add(counters);
            sum += s;
        }
        sum
    }

    /// The number of ends of connections that opened at first use and are not closed, and the number of those that
    /// still tell their peers that they close.
    pub(crate) fn opened_left(&self) -> (u64, u64) {
        let hosts = self.hosts.all.iter().zip(&self.hosts.openings).enumerate().filter(|(_, (_, n))| **n > 0);
        let left = hosts.map(|(h, (host, _))| {
            let planned = self.config.cut.planned[self.config.hosts[h] as usize] as usize;
            let census = host.endpoint.observe().census();
            let left = (census.awake + census.asleep + census.closing).saturating_sub(planned);
            (left as u64, census.closing as u64)
        });
        left.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Have the programs of all hosts finished their work?
    pub(crate) fn is_done(&self) -> bool {
        self.hosts.programs.iter().all(Application::is_done)
    }
}
