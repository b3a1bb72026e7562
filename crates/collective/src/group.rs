//! A collective of a run: its schedule, the hosts of its ranks, and the numbers of its messages and connections.

use crate::schedule::{Rank, Schedule, Send};
use std::ops::Range;
use strandway_proto::application::Channel;
use strandway_proto::{HostId, Span, Time};

/// A collective, placed on hosts.
///
/// Each message is cut into [`Group::pieces`] pieces, which travel on different connections of a pair of ranks. To the
/// transport a piece is a message. Pieces are numbered rank by rank, in the order of the sender's schedule. Connections
/// are numbered rank by rank, then peer by peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The messages of all ranks, in order.
    pub schedule: Schedule,
    /// The host of each rank.
    pub hosts: Vec<HostId>,
    /// When each rank begins.
    pub starts: Vec<Time>,
    /// Connections from a rank to each of its peers.
    pub connections: u32,
    /// The number of the first piece of the first message of rank 0.
    pub first_message: u32,
    /// The number of the first channel from rank 0 to its first peer.
    pub first_channel: u32,
    /// True: a connection opens at its first use and closes after its last message. False: it is open from the start.
    pub on_demand: bool,
    /// The profile of all connections: an index into the plan's profiles.
    pub profile: u16,
    /// The collective's number in the run, shown in messages to users.
    pub number: u32,
    /// A shortened schedule only: a rank waits for this time after each step, for the latencies of steps that are left
    /// out.
    pub pause: Span,
}

impl Group {
    /// Pieces per message: one for each connection, or fewer if the shortest message has fewer bytes than there are
    /// connections.
    pub fn pieces(&self) -> u32 {
        u64::from(self.connections).min(self.schedule.shortest().max(1)) as u32
    }

    /// Pieces of all messages of all ranks.
    pub fn messages(&self) -> u64 {
        u64::from(self.schedule.ranks()) * u64::from(self.schedule.messages()) * u64::from(self.pieces())
    }

    /// The numbers of all pieces.
    pub fn numbers(&self) -> Range<u32> {
        let end = u64::from(self.first_message) + self.messages();
        self.first_message..u32::try_from(end).unwrap_or(u32::MAX)
    }

    /// The number of a piece of the message with this index in the rank's order.
    pub fn number_of(&self, rank: Rank, index: u32, piece: u32) -> u32 {
        self.first_message + (rank.0 * self.schedule.messages() + index) * self.pieces() + piece
    }

    /// The sender of the piece with this number, the message's index in the sender's order, and the piece's number
    /// within the message.
    pub fn piece_of(&self, number: u32) -> Option<(Rank, u32, u32)> {
        if !self.numbers().contains(&number) {
            return None;
        }
        let (at, pieces) = (number - self.first_message, self.pieces());
        let (message, piece) = (at / pieces, at % pieces);
        let each = self.schedule.messages();
        Some((Rank(message / each), message % each, piece))
    }

    /// First byte and length of a piece of a message of `bytes` bytes.
    pub fn part(&self, bytes: u64, piece: u32) -> (u64, u64) {
        let (count, piece) = (u64::from(self.pieces()), u64::from(piece));
        let (each, rest) = (bytes / count, bytes % count);
        (each * piece + piece.min(rest), each + u64::from(piece < rest))
    }

    /// The channel that a piece of a rank's message takes.
    pub fn channel(&self, rank: Rank, send: &Send, piece: u32) -> Channel {
        let peers = self.schedule.peers();
        let pair = rank.0 * peers + self.schedule.peer(send.place.step);
        Channel {
            peer: self.hosts[send.to.0 as usize],
            number: self.first_channel + pair * self.connections + piece,
            profile: self.profile,
        }
    }

    /// Channels from all ranks to all of their peers.
    pub fn channels(&self) -> u64 {
        u64::from(self.schedule.ranks()) * u64::from(self.schedule.peers()) * u64::from(self.connections)
    }
}
