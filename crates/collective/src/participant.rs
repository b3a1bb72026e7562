//! A rank of a collective as the program of a host.

use crate::group::Group;
use crate::member::Member;
use crate::schedule::{Rank, Send};
use std::collections::VecDeque;
use strandway_proto::application::{Action, Application, Event, Mark, Note};
use strandway_proto::message::Message;
use strandway_proto::{MessageId, Time};

/// One rank: posts what its [`Member`] hands out, piece by piece, and tells it what ended.
///
/// A rank that has not begun takes what arrives and posts nothing.
#[derive(Debug)]
pub struct Participant<'a> {
    group: &'a Group,
    rank: Rank,
    member: Member,
    /// The message whose pieces are being posted, and the next piece.
    posting: Option<(Send, u32)>,
    /// Pieces that wait for nothing but the start and have not been posted.
    free: u32,
    /// Of those, the ones that may be posted now: each has a turn of its own.
    allowed: u32,
    begun: bool,
    /// Pieces that have arrived, and that have been acknowledged, of messages that are not whole: message and count.
    arrived: Vec<(u32, u32)>,
    acknowledged: Vec<(u32, u32)>,
    /// Pieces that were the last on their channels, which are to be closed.
    closing: VecDeque<(u32, u32)>,
    notes: VecDeque<Mark>,
    received: bool,
    finished: bool,
}

/// Counts one more piece of a message. True if that makes it whole.
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

impl<'a> Participant<'a> {
    /// A rank at its beginning.
    pub fn new(group: &'a Group, rank: Rank) -> Participant<'a> {
        let member = Member::new(group.schedule, rank);
        let free = member.ready() * group.pieces();
        Participant {
            group,
            rank,
            member,
            posting: None,
            free,
            allowed: 0,
            begun: false,
            arrived: Vec::new(),
            acknowledged: Vec::new(),
            closing: VecDeque::new(),
            notes: VecDeque::new(),
            received: false,
            finished: false,
        }
    }

    /// The rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    fn mark(&mut self) {
        if !self.received && self.member.received() {
            self.received = true;
            self.notes.push_back(Mark::Received);
        }
        if !self.finished && self.member.finished() {
            self.finished = true;
            let schedule = &self.group.schedule;
            if self.group.on_demand && !schedule.is_last_to_peer(schedule.messages() - 1) {
                let firsts = (0..schedule.peers()).map(|peer| peer * schedule.parts());
                let pieces = self.group.pieces();
                self.closing.extend(firsts.flat_map(|index| (0..pieces).map(move |piece| (index, piece))));
            }
            self.notes.push_back(Mark::Finished);
        }
    }
}

impl Application for Participant<'_> {
    fn handle_event(&mut self, _now: Time, event: &Event) {
        let pieces = self.group.pieces();
        match *event {
            Event::Sent { message } => {
                let Some((_, index, _)) = self.group.piece_of(message.0).filter(|p| p.0 == self.rank) else { return };
                if count(pieces, &mut self.acknowledged, index) {
                    if self.group.on_demand && self.group.schedule.is_last_to_peer(index) {
                        self.closing.extend((0..pieces).map(|piece| (index, piece)));
                    }
                    // A message that this rank has not posted is nobody's: it changes nothing.
                    let _ = self.member.handle_sent(self.group.schedule.place(index));
                }
            }
            Event::Received { message, .. } => {
                let Some((from, index, _)) = self.group.piece_of(message.0) else { return };
                if count(pieces, &mut self.arrived, index) {
                    // A message that this rank does not wait for changes nothing, either.
                    let _ = self.member.handle_received(from, self.group.schedule.place(index));
                }
            }
            Event::Failed { .. } | Event::Letter { .. } | Event::Signal { .. } => {}
        }
        self.mark();
    }

    fn handle_timeout(&mut self, now: Time) {
        if now < self.group.starts[self.rank.0 as usize] {
            return;
        }
        if !self.begun {
            self.begun = true;
            self.notes.push_back(Mark::Begun);
        }
        // One at a time: what the first one sends leaves before the next one is posted.
        if self.free > 0 {
            self.allowed = 1;
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        if let Some(mark) = self.notes.pop_front() {
            return Some(Action::Note(Note { program: self.group.number, member: self.rank.0, mark }));
        }
        if let Some((index, piece)) = self.closing.pop_front() {
            let send = self.group.schedule.send(self.rank, index);
            return Some(Action::Close { channel: self.group.channel(self.rank, &send, piece) });
        }
        if !self.begun || (self.free > 0 && self.allowed == 0) {
            return None;
        }
        let (send, piece) = match self.posting.take() {
            Some(posting) => posting,
            None => (self.member.poll_send()?, 0),
        };
        if self.free > 0 {
            self.free -= 1;
            self.allowed = 0;
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
        if self.begun && self.free == 0 { Time::NEVER } else { self.group.starts[self.rank.0 as usize] }
    }

    fn is_done(&self) -> bool {
        self.finished
    }
}
