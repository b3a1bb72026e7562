//! The program that runs one rank of a collective on a host.

use crate::group::Group;
use crate::member::Member;
use crate::schedule::{Rank, Send};
use std::collections::VecDeque;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::message::Message;
use strandway_proto::{MessageId, Span, Time};

/// One rank. It posts the messages that its [`Member`] makes ready, piece by piece, and reports to the member which of
/// them ended.
///
/// Before its start it accepts arriving messages and posts nothing.
#[derive(Debug)]
pub struct CollectiveRank<'a> {
    group: &'a Group,
    rank: Rank,
    member: Member,
    /// The message whose pieces are being posted, and the next piece.
    posting: Option<(Send, u32)>,
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
fn count(pieces: u32, counts: &mut Vec<(u32, u32)>, index: u32) -> bool {
    if pieces == 1 {
        return true;
    }
    match counts.iter_mut().position(|c| c.0 == index) {
        Some(at) => {
            counts[at].1 += 1;
            if counts[at].1 < pieces {
                return false;
            }
            counts.swap_remove(at);
            true
        }
        None => {
            counts.push((index, 1));
            false
        }
    }
}

impl<'a> CollectiveRank<'a> {
    /// A rank before its start.
    pub fn new(group: &'a Group, rank: Rank) -> CollectiveRank<'a> {
        let member = Member::new(group.schedule, rank);
        let free = member.ready() * group.pieces();
        CollectiveRank {
            group,
            rank,
            member,
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

    /// The rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Marks the channels of a message for closing.
    fn close(&mut self, index: u32) {
        self.closing.extend((0..self.group.pieces()).map(|piece| (index, piece)));
    }
}

impl CollectiveRank<'_> {
    /// Does a step end with this event? Around a ring, it ends when a message has arrived; the next transfer of an
    /// all-to-all waits until one has ended.
    fn ends_step(&self, event: &Event) -> bool {
        match event {
            Event::Received { .. } => self.group.schedule.peers() == 1,
            Event::Sent { .. } => self.group.schedule.peers() > 1,
            _ => false,
        }
    }

    /// Counts a message.
    fn count_event(&mut self, event: &Event) {
        let group = self.group;
        let schedule = &group.schedule;
        let had_finished = self.member.finished();
        match *event {
            Event::Sent { message } => {
                let Some((_, index, _)) = group.piece_of(message.0).filter(|p| p.0 == self.rank) else { return };
                if count(group.pieces(), &mut self.acknowledged, index) {
                    if group.on_demand && schedule.is_last_to_peer(index) {
                        self.close(index);
                    }
                    // If this rank has not posted this message, the report changes nothing.
                    let _ = self.member.handle_sent(schedule.place(index));
                }
            }
            Event::Received { message, .. } => {
                let Some((from, index, _)) = group.piece_of(message.0) else { return };
                if count(group.pieces(), &mut self.arrived, index) {
                    // If this rank does not expect this message, the report changes nothing.
                    let _ = self.member.handle_received(from, schedule.place(index));
                }
            }
            Event::Failed { .. }
            | Event::Control { .. }
            | Event::Signal { .. }
            | Event::Chunk { .. }
            | Event::Fragment(_)
            | Event::Cast { .. }
            | Event::Ports { .. } => {}
        }
        let finishes = self.member.finished() && !had_finished;
        if finishes && group.on_demand && !schedule.is_last_to_peer(schedule.messages() - 1) {
            (0..schedule.peers()).for_each(|peer| self.close(peer * schedule.parts()));
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
        self.begun = true;
        // One piece per call: its packets leave before the next piece is posted.
        self.allowed = self.free > 0;
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        if let Some((index, piece)) = self.closing.pop_front() {
            let send = self.group.schedule.send(self.rank, index);
            return Some(Action::Close { channel: self.group.channel(self.rank, &send, piece) });
        }
        if !self.begun || (self.free > 0 && !self.allowed) {
            return None;
        }
        let (send, piece) = match self.posting.take() {
            Some(posting) => posting,
            None => (self.member.poll_send()?, 0),
        };
        if self.free > 0 {
            self.free -= 1;
            self.allowed = false;
        }
        if piece + 1 < self.group.pieces() {
            self.posting = Some((send, piece + 1));
        }
        let number = self.group.number_of(self.rank, self.group.schedule.index(send.place), piece);
        let (_, bytes) = self.group.part(send.bytes, piece);
        let message = Message { id: MessageId(number), bytes };
        Some(Action::Post { channel: self.group.channel(self.rank, &send, piece), message })
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
        self.begun && self.member.received()
    }

    fn is_done(&self) -> bool {
        self.member.finished()
    }
}
