//! Messages from one rank of a job to another that belong to no collective: activations and gradients between stages
//! of a pipeline.

use std::ops::Range;
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::message::Message;
use strandway_proto::units::Time;
use strandway_proto::{HostId, MessageId};

/// Messages of one length from one host to another, in order.
///
/// Each message is cut into `pieces`, one per connection, like messages of a [`Group`](crate::Group). The pieces of a
/// message have consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// The hosts of the sender and of the receiver.
    pub ends: [HostId; 2],
    /// The length of each message.
    pub bytes: u64,
    /// Number of messages.
    pub count: u32,
    /// Pieces of each message: at least one, at most its bytes.
    pub pieces: u32,
    /// The number of the first piece of the first message.
    pub first_message: u32,
    /// The connection of the first piece of each message. The other pieces have the next connections.
    pub first_channel: u32,
    /// The profile of all connections: an index into the plan's.
    pub profile: u16,
}

impl Pipe {
    /// Pieces of all messages.
    pub fn messages(&self) -> u64 {
        u64::from(self.count) * u64::from(self.pieces)
    }

    /// The numbers of all pieces.
    pub fn numbers(&self) -> Range<u32> {
        let end = u64::from(self.first_message) + self.messages();
        self.first_message..u32::try_from(end).unwrap_or(u32::MAX)
    }

    /// The numbers of the pieces of one message.
    pub fn numbers_of(&self, index: u32) -> Range<u32> {
        let first = self.first_message + index * self.pieces;
        first..first + self.pieces
    }

    /// The number of a piece within its message.
    pub fn piece_of(&self, number: u32) -> Option<u32> {
        let at = number.checked_sub(self.first_message).filter(|_| self.numbers().contains(&number))?;
        Some(at % self.pieces)
    }

    /// The length of a piece.
    pub fn length(&self, piece: u32) -> u64 {
        let (count, piece) = (u64::from(self.pieces), u64::from(piece));
        self.bytes / count + u64::from(piece < self.bytes % count)
    }
}

/// One end of one message of a pipe, as a program inside the program of a rank.
#[derive(Debug)]
pub struct Transfer<'a> {
    pipe: &'a Pipe,
    index: u32,
    sends: bool,
    begun: bool,
    /// The next piece to post.
    next: u32,
    /// Number of pieces that have arrived (at the receiver) or were acknowledged (at the sender).
    ended: u32,
}

impl<'a> Transfer<'a> {
    /// The sender's or the receiver's end of the message with this index in the pipe.
    pub fn new(pipe: &'a Pipe, index: u32, sends: bool) -> Transfer<'a> {
        Transfer { pipe, index, sends, begun: false, next: 0, ended: 0 }
    }
}

impl Application for Transfer<'_> {
    fn handle_event(&mut self, _now: Time, event: &Event) {
        let of = match *event {
            Event::Sent { message } if self.sends => message,
            Event::Received { message, .. } if !self.sends => message,
            _ => return,
        };
        if self.pipe.numbers_of(self.index).contains(&of.0) {
            self.ended += 1;
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        if !self.sends || !self.begun || self.next == self.pipe.pieces {
            return None;
        }
        let piece = self.next;
        self.next += 1;
        let number = self.pipe.first_channel + piece;
        let channel = Channel { peer: self.pipe.ends[1], number, profile: self.pipe.profile };
        let id = MessageId(self.pipe.numbers_of(self.index).start + piece);
        Some(Action::Post { channel, message: Message { id, bytes: self.pipe.length(piece) } })
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }

    fn owns(&self, message: MessageId) -> bool {
        self.pipe.numbers_of(self.index).contains(&message.0)
    }

    fn begin(&mut self, _now: Time) {
        self.begun = true;
    }

    fn is_complete(&self) -> bool {
        self.begun && self.ended == self.pipe.pieces
    }

    fn is_done(&self) -> bool {
        self.ended == self.pipe.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::units::Bytes;

    #[test]
    fn a_message_leaves_in_pieces_and_is_complete_with_the_last_one() {
        let pipe = Pipe {
            ends: [HostId(0), HostId(1)],
            bytes: 10,
            count: 2,
            pieces: 3,
            first_message: 100,
            first_channel: 7,
            profile: 0,
        };
        let (mut sender, mut receiver) = (Transfer::new(&pipe, 1, true), Transfer::new(&pipe, 1, false));
        assert_eq!(sender.poll_action(Time(0)), None, "it has not begun");
        sender.begin(Time(0));
        receiver.begin(Time(0));
        let mut lengths = Vec::new();
        while let Some(Action::Post { channel, message }) = sender.poll_action(Time(0)) {
            lengths.push(message.bytes);
            assert_eq!(channel.number, 6 + lengths.len() as u32);
            assert!(!receiver.is_complete() && !sender.is_complete());
            receiver.handle_event(Time(1), &Event::Received { message: message.id, bytes: Bytes(message.bytes) });
            sender.handle_event(Time(2), &Event::Sent { message: message.id });
        }
        assert_eq!(lengths, [4, 3, 3]);
        assert!(receiver.is_complete() && sender.is_complete() && sender.owns(MessageId(105)));
        assert!(!sender.owns(MessageId(102)), "that is the message before");
    }
}
