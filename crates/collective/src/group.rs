//! A collective of messages in a run: the plans of its ranks, their hosts, and the numbers of messages and connections.

use crate::plan::{PlannedMessage, Plans};
use crate::schedule::{Rank, Schedule};
use std::ops::Range;
use strandway_proto::application::Channel;
use strandway_proto::{HostId, Span, Time};

/// A collective of messages, placed on hosts.
///
/// Each message is cut into [`Group::pieces`] pieces, which travel on different connections of a pair of ranks. To the
/// transport a piece is a message. Pieces are numbered message by message, connections channel by channel, both in the
/// order of [`Plans`].
#[derive(Clone, Debug)]
pub struct Group {
    plans: Plans,
    /// The host of each rank.
    pub hosts: Vec<HostId>,
    /// When each rank begins; [`Time::NEVER`] if a job begins it.
    pub starts: Vec<Time>,
    /// Connections of each channel.
    connections: u32,
    pieces: u32,
    /// The number of the first piece of the first message.
    pub first_message: u32,
    /// The number of the first connection of the first channel.
    pub first_channel: u32,
    /// True: a connection opens at its first use and closes after its last message. False: it is open from the start.
    /// Only for schedules.
    pub on_demand: bool,
    /// The profile of all connections: an index into the plan's profiles.
    pub profile: u16,
    /// Its index among the run's operations, shown in messages to users.
    pub number: u32,
    /// A shortened schedule only: a rank waits for this time after each step, for the latencies of steps that are left
    /// out.
    pub pause: Span,
}

impl Group {
    /// A collective on these hosts, with a number of connections for each channel. Its ranks never start by themselves,
    /// and its messages and channels are numbered from 0.
    pub fn new(plans: Plans, hosts: Vec<HostId>, connections: u32) -> Group {
        let mut group = Group {
            starts: vec![Time::NEVER; hosts.len()],
            hosts,
            connections,
            pieces: 1,
            first_message: 0,
            first_channel: 0,
            on_demand: false,
            profile: 0,
            number: 0,
            pause: Span::ZERO,
            plans,
        };
        group.pieces = group.pieces_now();
        group
    }

    /// The same ranks and channels with other messages.
    #[must_use]
    pub fn with(&self, plans: Plans) -> Group {
        let mut group = Group { plans, ..self.clone() };
        group.pieces = group.pieces_now();
        group
    }

    fn pieces_now(&self) -> u32 {
        u64::from(self.connections).min(self.plans.shortest().max(1)) as u32
    }

    /// The messages of all ranks.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// The schedule, if the messages are computed.
    pub fn schedule(&self) -> Option<&Schedule> {
        self.plans.schedule()
    }

    /// Pieces per message: one for each connection, or fewer if the shortest message has fewer bytes than there are
    /// connections.
    pub fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Pieces of all messages of all ranks.
    pub fn messages(&self) -> u64 {
        self.plans.messages() * u64::from(self.pieces)
    }

    /// The numbers of all pieces.
    pub fn numbers(&self) -> Range<u32> {
        let end = u64::from(self.first_message) + self.messages();
        self.first_message..u32::try_from(end).unwrap_or(u32::MAX)
    }

    /// The number of a piece of a message.
    pub fn number_of(&self, message: u32, piece: u32) -> u32 {
        self.first_message + message * self.pieces + piece
    }

    /// The message that the piece with this number belongs to, and the piece's number within the message.
    pub fn piece_of(&self, number: u32) -> Option<(u32, u32)> {
        let at = number.checked_sub(self.first_message).filter(|&at| u64::from(at) < self.messages())?;
        Some((at / self.pieces, at % self.pieces))
    }

    /// First byte and length of a piece of a message of `bytes` bytes.
    pub fn part(&self, bytes: u64, piece: u32) -> (u64, u64) {
        let (count, piece) = (u64::from(self.pieces), u64::from(piece));
        let (each, rest) = (bytes / count, bytes % count);
        (each * piece + piece.min(rest), each + u64::from(piece < rest))
    }

    /// The hosts of sender and receiver of the piece with this number, and its length.
    pub fn ends(&self, number: u32) -> Option<((HostId, HostId), u64)> {
        let (message, piece) = self.piece_of(number)?;
        let PlannedMessage { from, to, bytes, .. } = self.plans.message(message);
        Some(((self.host(from), self.host(to)), self.part(bytes, piece).1))
    }

    /// The host of a rank.
    pub fn host(&self, rank: Rank) -> HostId {
        self.hosts[rank.0 as usize]
    }

    /// The channel that a piece of a message takes.
    pub fn channel(&self, message: &PlannedMessage, piece: u32) -> Channel {
        Channel {
            peer: self.host(message.to),
            number: self.first_channel + message.channel * self.connections + piece,
            profile: self.profile,
        }
    }

    /// Connections of all channels.
    pub fn channels(&self) -> u64 {
        self.plans.channels() * u64::from(self.connections)
    }
}
