//! A collective that follows a [`Recipe`]: its hosts, its messages' numbers, and the program of a rank.

use crate::recipe::{Does, Recipe};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::message::Message;
use strandway_proto::units::Time;
use strandway_proto::{HostId, MessageId};

/// A collective that follows a recipe, placed on hosts.
///
/// Each message is cut into [`RecipeCollective::pieces`] pieces, which travel on different connections, like messages
/// of a [`Group`](crate::Group). Pieces are numbered message by message, connections channel by channel.
#[derive(Clone, Debug)]
pub struct RecipeCollective {
    /// The messages of all ranks.
    pub recipe: Arc<Recipe>,
    /// The length of the buffer.
    pub bytes: u64,
    /// The host of each rank.
    pub hosts: Vec<HostId>,
    /// When each rank begins; [`Time::NEVER`] if a job begins it.
    pub starts: Vec<Time>,
    /// Connections of each of the recipe's channels.
    pub connections: u32,
    /// The number of the first piece of the first message.
    pub first_message: u32,
    /// The number of the first connection of the first channel.
    pub first_channel: u32,
    /// The profile of all connections: an index into the plan's profiles.
    pub profile: u16,
    /// Pieces per message: at least one, and not more than connections or the bytes of the shortest message.
    pub pieces: u32,
}

impl PartialEq for RecipeCollective {
    fn eq(&self, other: &RecipeCollective) -> bool {
        let key =
            |l: &RecipeCollective| (l.bytes, l.connections, l.first_message, l.first_channel, l.profile, l.pieces);
        Arc::ptr_eq(&self.recipe, &other.recipe)
            && key(self) == key(other)
            && (&self.hosts, &self.starts) == (&other.hosts, &other.starts)
    }
}

impl RecipeCollective {
    /// The number of pieces per message with this many connections.
    pub fn pieces_for(recipe: &Recipe, bytes: u64, connections: u32) -> u32 {
        let shortest = (0..recipe.messages().len() as u32).map(|message| recipe.length(message, bytes)).min();
        u64::from(connections).min(shortest.unwrap_or(1)).max(1) as u32
    }

    /// Pieces of all messages.
    pub fn messages(&self) -> u64 {
        self.recipe.messages().len() as u64 * u64::from(self.pieces)
    }

    /// The numbers of all pieces.
    pub fn numbers(&self) -> Range<u32> {
        let end = u64::from(self.first_message) + self.messages();
        self.first_message..u32::try_from(end).unwrap_or(u32::MAX)
    }

    /// The message that a piece belongs to, and the piece's number in it.
    pub fn piece_of(&self, number: u32) -> Option<(u32, u32)> {
        let at = number.checked_sub(self.first_message).filter(|_| self.numbers().contains(&number))?;
        Some((at / self.pieces, at % self.pieces))
    }

    /// The length of a piece of a message.
    pub fn length(&self, message: u32, piece: u32) -> u64 {
        let (bytes, pieces) = (self.recipe.length(message, self.bytes), u64::from(self.pieces));
        bytes / pieces + u64::from(u64::from(piece) < bytes % pieces)
    }

    /// The hosts of sender and receiver of a message.
    pub fn ends(&self, message: u32) -> (HostId, HostId) {
        let entry = self.recipe.messages()[message as usize];
        (self.hosts[entry.from as usize], self.hosts[entry.to as usize])
    }
}

/// One rank of such a collective.
#[derive(Debug)]
pub struct RecipeRank<'a> {
    listed: &'a RecipeCollective,
    rank: u32,
    start: Time,
    begun: bool,
    /// For each node of the rank: the nodes that it waits for, the nodes that wait for it, and the number of its pieces
    /// that have arrived.
    waits: Vec<u32>,
    next: Vec<Vec<u32>>,
    arrived: Vec<u32>,
    /// Messages that may be sent, and the piece of the first one that is next.
    ready: VecDeque<u32>,
    piece: u32,
    /// Nodes that have not happened, and pieces sent that have not been acknowledged.
    left: u32,
    owed: u64,
}

impl<'a> RecipeRank<'a> {
    /// A rank before its start.
    pub fn new(listed: &'a RecipeCollective, rank: u32) -> RecipeRank<'a> {
        let recipe = &listed.recipe;
        let count = recipe.nodes_of(rank);
        let mut next = vec![Vec::new(); count as usize];
        let mut waits = Vec::with_capacity(count as usize);
        let mut sends = 0;
        for node in 0..count {
            let (does, after) = recipe.node(rank, node);
            after.iter().for_each(|&before| next[before as usize].push(node));
            // A node waits for the begin, too.
            waits.push(after.len() as u32 + 1 + u32::from(matches!(does, Does::Receive(_))));
            sends += u64::from(matches!(does, Does::Send(_)));
        }
        let (start, owed) = (listed.starts[rank as usize], sends * u64::from(listed.pieces));
        let arrived = vec![0; count as usize];
        RecipeRank {
            listed,
            rank,
            start,
            begun: false,
            waits,
            next,
            arrived,
            ready: VecDeque::new(),
            piece: 0,
            left: count,
            owed,
        }
    }

    /// Something that this node waits for has happened.
    fn release(&mut self, node: u32) {
        let mut released = vec![node];
        while let Some(node) = released.pop() {
            let left = &mut self.waits[node as usize];
            *left -= 1;
            if *left > 0 {
                continue;
            }
            self.left -= 1;
            if let (Does::Send(message), _) = self.listed.recipe.node(self.rank, node) {
                self.ready.push_back(message);
            }
            released.extend(self.next[node as usize].iter().rev());
        }
    }
}

impl Application for RecipeRank<'_> {
    fn handle_event(&mut self, _now: Time, event: &Event) {
        match *event {
            Event::Sent { message } => {
                let mine =
                    self.listed.piece_of(message.0).map(|(message, _)| self.listed.recipe.messages()[message as usize]);
                if mine.is_some_and(|entry| entry.from == self.rank) {
                    self.owed = self.owed.saturating_sub(1);
                }
            }
            Event::Received { message, .. } => {
                let Some((message, _)) = self.listed.piece_of(message.0) else { return };
                let entry = self.listed.recipe.messages()[message as usize];
                if entry.to != self.rank {
                    return;
                }
                let node = entry.nodes[1];
                self.arrived[node as usize] += 1;
                if self.arrived[node as usize] == self.listed.pieces {
                    self.release(node);
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if now >= self.start && !self.begun {
            self.begun = true;
            (0..self.waits.len() as u32).for_each(|node| self.release(node));
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        let &message = self.ready.front()?;
        let piece = self.piece;
        self.piece += 1;
        if self.piece == self.listed.pieces {
            self.piece = 0;
            self.ready.pop_front();
        }
        let entry = self.listed.recipe.messages()[message as usize];
        let number = self.listed.first_channel + entry.channel * self.listed.connections + piece;
        let peer = self.listed.hosts[entry.to as usize];
        let id = MessageId(self.listed.first_message + message * self.listed.pieces + piece);
        let channel = Channel { peer, number, profile: self.listed.profile };
        Some(Action::Post { channel, message: Message { id, bytes: self.listed.length(message, piece) } })
    }

    fn poll_timeout(&self) -> Time {
        if self.begun { Time::NEVER } else { self.start }
    }

    fn owns(&self, message: MessageId) -> bool {
        self.listed.numbers().contains(&message.0)
    }

    fn begin(&mut self, now: Time) {
        self.start = now;
        self.handle_timeout(now);
    }

    fn is_complete(&self) -> bool {
        self.begun && self.left == 0
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.owed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::units::Bytes;

    #[test]
    fn a_chain_forwards_whole_parts_only() {
        let recipe = Arc::new(Recipe::chain(3, 2, 0).expect("a chain"));
        let listed = RecipeCollective {
            pieces: RecipeCollective::pieces_for(&recipe, 1001, 2),
            recipe,
            bytes: 1001,
            hosts: vec![HostId(4), HostId(5), HostId(6)],
            starts: vec![Time(0); 3],
            connections: 2,
            first_message: 100,
            first_channel: 10,
            profile: 0,
        };
        assert_eq!((listed.pieces, listed.messages()), (2, 8));
        let mut middle = RecipeRank::new(&listed, 1);
        middle.begin(Time(0));
        assert_eq!(middle.poll_action(Time(0)), None);
        let mut first = RecipeRank::new(&listed, 0);
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
