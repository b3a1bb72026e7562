//! The program that runs one rank of a collective of messages on a host.

use crate::group::Group;
use crate::plan::{Executor, PlannedMessage};
use crate::schedule::Rank;
use std::collections::VecDeque;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::message::Message;
use strandway_proto::{MessageId, Span, Time};

/// One rank. It posts the messages that its [`Executor`] makes ready, piece by piece, and reports to it which of them
/// ended.
///
/// Before its start it accepts arriving messages and posts nothing.
#[derive(Debug)]
pub struct CollectiveRank<'a> {
    group: &'a Group,
    rank: Rank,
    executor: Executor<'a>,
    /// The message whose pieces are being posted, its number, and the next piece.
    posting: Option<(PlannedMessage, u32, u32)>,
    /// Pieces that wait only for the start and have not been posted. Each call of `handle_timeout` allows one of them.
    free: u32,
    /// True if one of them may be posted now.
    allowed: bool,
    /// Start time; [`Time::NEVER`] until another program calls `begin`.
    start: Time,
    begun: bool,
    /// Pieces that have arrived, and pieces that have been acknowledged, of incomplete messages: message and count.
    arrived: Vec<(u32, u32)>,
    acknowledged: Vec<(u32, u32)>,
    /// News that count only after the group's pause: when, and what.
    held: VecDeque<(Time, Event)>,
    /// Channels to close, because their last piece has ended: message and piece.
    closing: VecDeque<(u32, u32)>,
}

/// Counts one more piece of a message. Returns true if the message is now complete.
fn count(pieces: u32, counts: &mut Vec<(u32, u32)>, message: u32) -> bool {
    if pieces == 1 {
        return true;
    }
    match counts.iter_mut().position(|c| c.0 == message) {
        Some(at) => {
            counts[at].1 += 1;
            if counts[at].1 < pieces {
                return false;
            }
            counts.swap_remove(at);
            true
        }
        None => {
            counts.push((message, 1));
            false
        }
    }
}

impl<'a> CollectiveRank<'a> {
    /// A rank before its start.
    pub fn new(group: &'a Group, rank: Rank) -> CollectiveRank<'a> {
        let executor = Executor::new(group.plans(), rank);
        let free = executor.ready() * group.pieces();
        CollectiveRank {
            group,
            rank,
            executor,
            posting: None,
            free,
            allowed: false,
            start: group.starts[rank.0 as usize],
            begun: false,
            arrived: Vec::new(),
            acknowledged: Vec::new(),
            held: VecDeque::new(),
            closing: VecDeque::new(),
        }
    }

    /// Marks the channels of a message for closing.
    fn close(&mut self, message: u32) {
        self.closing.extend((0..self.group.pieces()).map(|piece| (message, piece)));
    }

    /// Does a step end with this event? Around a ring, it ends when a message has arrived; the next transfer of an
    /// all-to-all waits until one has ended.
    fn ends_step(&self, event: &Event) -> bool {
        let peers = self.group.schedule().map_or(0, |schedule| schedule.peers());
        match event {
            Event::Received { .. } => peers == 1,
            Event::Sent { .. } => peers > 1,
            _ => false,
        }
    }

    /// Counts a message. The executor refuses messages that are not of this rank, and nothing changes.
    fn count_event(&mut self, event: &Event) {
        let group = self.group;
        let had_finished = self.executor.is_finished();
        match *event {
            Event::Sent { message } => {
                let Some((message, _)) = group.piece_of(message.0) else { return };
                if count(group.pieces(), &mut self.acknowledged, message) && self.executor.handle_sent(message) {
                    self.close_if_last(message);
                }
            }
            Event::Received { message, .. } => {
                let Some((message, _)) = group.piece_of(message.0) else { return };
                if count(group.pieces(), &mut self.arrived, message) {
                    self.executor.handle_received(message);
                }
            }
            _ => return,
        }
        if self.group.on_demand && self.executor.is_finished() && !had_finished {
            self.close_all();
        }
    }

    /// Marks the channels of a message for closing that has ended, if it was the last one to its peer.
    fn close_if_last(&mut self, message: u32) {
        if let Some(schedule) = self.group.schedule().filter(|_| self.group.on_demand)
            && schedule.is_last_to_peer(message % schedule.messages())
        {
            self.close(message);
        }
    }

    /// Marks all channels of the rank for closing, unless each was closed after its last message.
    fn close_all(&mut self) {
        let Some(schedule) = self.group.schedule() else { return };
        let first = self.rank.0 * schedule.messages();
        if !schedule.is_last_to_peer(schedule.messages() - 1) {
            (0..schedule.peers()).for_each(|peer| self.close(first + peer * schedule.parts()));
        }
    }
}

impl Application for CollectiveRank<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        match self.group.pause {
            Span::ZERO => self.count_event(event),
            pause if self.ends_step(event) => self.held.push_back((now + pause, *event)),
            _ => self.count_event(event),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while self.held.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, event)) = self.held.pop_front()
        {
            self.count_event(&event);
        }
        if now < self.start {
            return;
        }
        if !self.begun {
            self.begun = true;
            self.executor.begin();
        }
        // One piece per call: its packets leave before the next piece is posted.
        self.allowed = self.free > 0;
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        let group = self.group;
        if let Some((message, piece)) = self.closing.pop_front() {
            return Some(Action::Close { channel: group.channel(&group.plans().message(message), piece) });
        }
        if !self.begun || (self.free > 0 && !self.allowed) {
            return None;
        }
        let (message, number, piece) = match self.posting.take() {
            Some(posting) => posting,
            None => {
                let number = self.executor.poll_send()?;
                (group.plans().message(number), number, 0)
            }
        };
        if self.free > 0 {
            self.free -= 1;
            self.allowed = false;
        }
        if piece + 1 < group.pieces() {
            self.posting = Some((message, number, piece + 1));
        }
        let (_, bytes) = group.part(message.bytes, piece);
        let id = MessageId(group.number_of(number, piece));
        Some(Action::Post { channel: group.channel(&message, piece), message: Message { id, bytes } })
    }

    fn poll_timeout(&self) -> Time {
        let held = self.held.front().map_or(Time::NEVER, |(at, _)| *at);
        if self.begun && self.free == 0 { held } else { self.start.min(held) }
    }

    fn owns(&self, message: MessageId) -> bool {
        self.group.numbers().contains(&message.0)
    }

    fn begin(&mut self, now: Time) {
        self.start = now;
        self.handle_timeout(now);
    }

    fn is_complete(&self) -> bool {
        self.begun && self.executor.has_received()
    }

    fn is_done(&self) -> bool {
        self.executor.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plans, Recipe};
    use std::sync::Arc;
    use strandway_proto::HostId;
    use strandway_proto::units::Bytes;

    #[test]
    fn a_chain_forwards_whole_parts_only() {
        let plans = Plans::Tabled { recipe: Arc::new(Recipe::chain(3, 2, 0).expect("a chain")), bytes: 1001 };
        let mut group = Group::new(plans, vec![HostId(4), HostId(5), HostId(6)], 2);
        (group.first_message, group.first_channel) = (100, 10);
        assert_eq!((group.pieces(), group.messages()), (2, 8));
        let mut middle = CollectiveRank::new(&group, Rank(1));
        middle.begin(Time(0));
        assert_eq!(middle.poll_action(Time(0)), None);
        let mut first = CollectiveRank::new(&group, Rank(0));
        first.begin(Time(0));
        let mut posted = Vec::new();
        while let Some(Action::Post { channel, message }) = first.poll_action(Time(0)) {
            assert_eq!((channel.peer, channel.number), (HostId(5), 10 + posted.len() as u32 % 2));
            posted.push(message);
        }
        assert_eq!(posted.iter().map(|message| message.bytes).collect::<Vec<_>>(), [250, 250, 251, 250]);
        assert!(first.is_complete() && !first.is_done());
        for (at, message) in posted.iter().enumerate() {
            middle.handle_event(Time(1), &Event::Received { message: message.id, bytes: Bytes(message.bytes) });
            first.handle_event(Time(2), &Event::Sent { message: message.id });
            let mut sent = 0;
            while middle.poll_action(Time(1)).is_some() {
                sent += 1;
            }
            assert_eq!(sent, if at % 2 == 1 { 2 } else { 0 });
        }
        assert!(first.is_done() && middle.is_complete() && !middle.is_done());
    }
}
