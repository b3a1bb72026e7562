//! A collective as a list of messages: which rank sends which blocks to which rank, and what it waits for.
//!
//! [`crate::Schedule`] computes the messages of algorithms in which every rank does the same. A [`Recipe`] is a table,
//! so it can hold any algorithm: trees, in which ranks send different numbers of messages, and algorithms from files.

mod planned;
mod trees;
mod verify;

pub use planned::PlanCarriage;
pub use verify::RecipeFault;

use crate::schedule::Collective;
use std::collections::BTreeMap;
use std::fmt;
use strandway_proto::units::Span;

/// Limit on the messages of a recipe: ours.
pub const MESSAGES_MAX: usize = 1 << 24;

/// One thing that a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Sends the message with this number. It has happened as soon as the message is handed out.
    Send(u32),
    /// Waits for the message with this number.
    Receive(u32),
    /// Something that no other rank notices and that takes no time, such as a copy.
    Nothing,
}

/// A message of a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecipeMessage {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The number of the channel that it takes: an index into [`Recipe::channels`].
    pub channel: u32,
    /// True: the receiver adds the blocks to its own. False: it replaces them.
    pub reduces: bool,
    /// Its blocks: a range of the recipe's list.
    blocks: (u32, u32),
    /// The number of the sender's and of the receiver's node, among the nodes of that rank.
    pub(crate) nodes: [u32; 2],
}

impl RecipeMessage {
    /// The place of its first block in the list of blocks of all messages: no other message has this number.
    pub(crate) const fn first_block(&self) -> u32 {
        self.blocks.0
    }
}

/// A node: an action of a rank, and the actions of the same rank that it waits for.
#[derive(Clone, Copy, Debug)]
struct Node {
    does: Does,
    /// A range of `needs`.
    after: (u32, u32),
}

/// A collective as a list of messages.
#[derive(Clone, Debug)]
pub struct Recipe {
    name: String,
    collective: Collective,
    ranks: u32,
    /// The number of equal blocks into which the buffer is cut.
    blocks: u32,
    messages: Vec<RecipeMessage>,
    /// The blocks of all messages.
    lists: Vec<u32>,
    /// The nodes of all ranks, rank by rank, and the index of the first node of each rank.
    nodes: Vec<Node>,
    first: Vec<u32>,
    needs: Vec<u32>,
    channels: Vec<(u32, u32)>,
    /// The length of each message, of a recipe that was made for one length of the buffer.
    lengths: Option<Vec<u64>>,
}

/// Why a recipe cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipeError {
    /// A collective needs two ranks.
    TooFewRanks,
    /// A rank, a node, a block or a message does not exist, or a rank sends to itself; the number of the rank.
    Unknown(u32),
    /// A message is sent or received twice, or never; the number of the message.
    Unmatched(u32),
    /// Nodes wait for each other in a circle; a rank, and one of its nodes that is part of it or waits for it.
    Circle(u32, u32),
    /// More than [`MESSAGES_MAX`] messages, or as many other parts.
    TooLong,
}

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecipeError::TooFewRanks => f.write_str("a collective needs two ranks"),
            RecipeError::Unknown(rank) => write!(f, "rank {rank} names a rank or a block that does not exist"),
            RecipeError::Unmatched(message) => write!(f, "message {message} is not sent once and received once"),
            RecipeError::Circle(rank, node) => write!(f, "step {node} of rank {rank} waits for itself in a circle"),
            RecipeError::TooLong => write!(f, "an algorithm of more than {MESSAGES_MAX} messages"),
        }
    }
}

impl std::error::Error for RecipeError {}

/// Collects the messages and nodes of a recipe.
#[derive(Clone, Debug)]
pub struct RecipeBuilder {
    ranks: u32,
    blocks: u32,
    messages: Vec<RecipeMessage>,
    lists: Vec<u32>,
    nodes: Vec<Vec<(Does, Vec<u32>)>>,
    channels: BTreeMap<(u32, u32, u32), u32>,
    error: Option<RecipeError>,
}

impl RecipeBuilder {
    /// No messages yet. The buffer of a rank is cut into `blocks` equal blocks.
    pub fn new(ranks: u32, blocks: u32) -> RecipeBuilder {
        let error = match () {
            () if ranks < 2 => Some(RecipeError::TooFewRanks),
            () if blocks == 0 => Some(RecipeError::Unknown(0)),
            () => None,
        };
        let nodes = if error.is_none() { vec![Vec::new(); ranks as usize] } else { Vec::new() };
        let (messages, lists, channels) = (Vec::new(), Vec::new(), BTreeMap::new());
        RecipeBuilder { ranks, blocks, messages, lists, nodes, channels, error }
    }

    fn wrong(&mut self, error: RecipeError) {
        self.error.get_or_insert(error);
    }

    /// Adds a message with these blocks, and returns its number. Messages with the same sender, receiver and `lane`
    /// share a channel.
    pub fn message(&mut self, (from, to, lane): (u32, u32, u32), blocks: &[u32], reduces: bool) -> u32 {
        if from >= self.ranks || to >= self.ranks || from == to || blocks.iter().any(|&block| block >= self.blocks) {
            self.wrong(RecipeError::Unknown(from));
        }
        if self.messages.len() >= MESSAGES_MAX || self.lists.len() + blocks.len() > u32::MAX as usize {
            self.wrong(RecipeError::TooLong);
            return 0;
        }
        let channel = self.channel((from, to, lane));
        let at = self.lists.len() as u32;
        self.lists.extend(blocks);
        let blocks = (at, self.lists.len() as u32);
        self.messages.push(RecipeMessage { from, to, channel, reduces, blocks, nodes: [u32::MAX; 2] });
        self.messages.len() as u32 - 1
    }

    /// The number of the channel of this sender, receiver and `lane`: a new one has the next number.
    pub(crate) fn channel(&mut self, key: (u32, u32, u32)) -> u32 {
        let next = self.channels.len() as u32;
        *self.channels.entry(key).or_insert(next)
    }

    /// Adds a node of a rank, and returns its number among the nodes of the rank. `after` has numbers of nodes of the
    /// same rank, which may be added later.
    pub fn node(&mut self, rank: u32, does: Does, after: &[u32]) -> u32 {
        let Some(nodes) = self.nodes.get_mut(rank as usize) else {
            self.wrong(RecipeError::Unknown(rank));
            return 0;
        };
        let number = nodes.len() as u32;
        nodes.push((does, after.to_vec()));
        let (message, end) = match does {
            Does::Send(message) => (message, 0),
            Does::Receive(message) => (message, 1),
            Does::Nothing => return number,
        };
        let known = self.messages.get_mut(message as usize);
        match known.filter(|entry| [entry.from, entry.to][end] == rank) {
            None => self.wrong(RecipeError::Unknown(rank)),
            Some(entry) if entry.nodes[end] != u32::MAX => self.wrong(RecipeError::Unmatched(message)),
            Some(entry) => entry.nodes[end] = number,
        }
        number
    }

    /// The recipe.
    ///
    /// # Errors
    /// The first thing that is wrong with it. A recipe that is accepted always ends.
    pub fn finish(self, name: &str, collective: Collective) -> Result<Recipe, RecipeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if let Some(at) = self.messages.iter().position(|entry| entry.nodes.contains(&u32::MAX)) {
            return Err(RecipeError::Unmatched(at as u32));
        }
        let (mut nodes, mut first, mut needs) = (Vec::new(), vec![0], Vec::new());
        for (rank, mine) in (0u32..).zip(self.nodes) {
            let count = mine.len();
            for (does, after) in mine {
                if after.iter().any(|&node| node as usize >= count) {
                    return Err(RecipeError::Unknown(rank));
                }
                let at = needs.len();
                needs.extend(after);
                if needs.len() > u32::MAX as usize || nodes.len() >= u32::MAX as usize {
                    return Err(RecipeError::TooLong);
                }
                nodes.push(Node { does, after: (at as u32, needs.len() as u32) });
            }
            first.push(nodes.len() as u32);
        }
        let mut channels = vec![(0, 0); self.channels.len()];
        for ((from, to, _), channel) in self.channels {
            channels[channel as usize] = (from, to);
        }
        let recipe = Recipe {
            name: name.to_string(),
            collective,
            ranks: self.ranks,
            blocks: self.blocks,
            messages: self.messages,
            lists: self.lists,
            nodes,
            first,
            needs,
            channels,
            lengths: None,
        };
        match recipe.walk(|_, _| Span::ZERO, |_| ()).0 {
            None => Ok(recipe),
            Some((rank, node)) => Err(RecipeError::Circle(rank, node)),
        }
    }
}

impl Recipe {
    /// Its name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The collective that it computes.
    pub fn collective(&self) -> Collective {
        self.collective
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The number of blocks of the buffer.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// All messages.
    pub fn messages(&self) -> &[RecipeMessage] {
        &self.messages
    }

    /// The blocks of a message.
    pub fn blocks_of(&self, message: u32) -> &[u32] {
        let (from, until) = self.messages[message as usize].blocks;
        &self.lists[from as usize..until as usize]
    }

    /// Sender and receiver of each channel.
    pub fn channels(&self) -> &[(u32, u32)] {
        &self.channels
    }

    /// The length of a message if the buffer has `bytes` bytes: at least one. Recipes of plans have lengths of their
    /// own.
    pub fn length(&self, message: u32, bytes: u64) -> u64 {
        if let Some(lengths) = &self.lengths {
            return lengths[message as usize];
        }
        let cut = |block: u32| (u128::from(bytes) * u128::from(block) / u128::from(self.blocks)) as u64;
        let blocks = self.blocks_of(message).iter();
        blocks.map(|&block| cut(block + 1) - cut(block)).sum::<u64>().max(1)
    }

    /// The number of nodes of a rank.
    pub(crate) fn nodes_of(&self, rank: u32) -> u32 {
        self.first[rank as usize + 1] - self.first[rank as usize]
    }

    /// A node of a rank: what it does, and the nodes of the rank that it waits for.
    pub(crate) fn node(&self, rank: u32, node: u32) -> (Does, &[u32]) {
        let Node { does, after } = self.nodes[(self.first[rank as usize] + node) as usize];
        (does, &self.needs[after.0 as usize..after.1 as usize])
    }

    /// The place of each node of all ranks in an order in which each one comes behind those that it waits for, rank by
    /// rank.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let (mut places, mut next) = (vec![0; self.nodes.len()], 0);
        self.walk(
            |_, _| Span::ZERO,
            |node| {
                places[node as usize] = next;
                next += 1;
            },
        );
        places
    }

    /// The index of the first node of a rank among those of all ranks.
    pub(crate) fn first_node(&self, rank: u32) -> u32 {
        self.first[rank as usize]
    }

    /// Visits all nodes in an order in which each one comes behind those that it waits for. Returns a node that was
    /// never reached, if there is one, and the time of the last one; a message takes `transfer(message)`.
    fn walk(
        &self,
        transfer: impl Fn(u32, &RecipeMessage) -> Span,
        mut visit: impl FnMut(u32),
    ) -> (Option<(u32, u32)>, Span) {
        let mut waits = vec![0u32; self.nodes.len()];
        let mut followers: Vec<(u32, u32)> = Vec::with_capacity(self.needs.len() + self.messages.len());
        for rank in 0..self.ranks {
            let base = self.first[rank as usize];
            for node in 0..self.nodes_of(rank) {
                let (does, after) = self.node(rank, node);
                waits[(base + node) as usize] = after.len() as u32 + u32::from(matches!(does, Does::Receive(_)));
                followers.extend(after.iter().map(|before| (base + before, base + node)));
            }
        }
        followers.sort_unstable();
        let mut at = vec![0u64; self.nodes.len()];
        let mut free: Vec<u32> = (0..self.nodes.len() as u32).filter(|node| waits[*node as usize] == 0).collect();
        let (mut seen, mut last) = (0, 0);
        while let Some(node) = free.pop() {
            seen += 1;
            visit(node);
            let now = at[node as usize];
            last = last.max(now);
            let mut reach = |to: u32, time: u64| {
                at[to as usize] = at[to as usize].max(time);
                waits[to as usize] -= 1;
                if waits[to as usize] == 0 {
                    free.push(to);
                }
            };
            let mine = followers.partition_point(|&(before, _)| before < node);
            followers[mine..].iter().take_while(|(before, _)| *before == node).for_each(|&(_, to)| reach(to, now));
            if let Does::Send(message) = self.nodes[node as usize].does {
                let entry = &self.messages[message as usize];
                let to = self.first[entry.to as usize] + entry.nodes[1];
                reach(to, now.saturating_add(transfer(message, entry).0));
            }
        }
        let stuck = (seen < self.nodes.len()).then(|| waits.iter().position(|left| *left > 0)).flatten();
        let named = stuck.map(|node| {
            let rank = self.first.partition_point(|&first| first as usize <= node) as u32 - 1;
            (rank, node as u32 - self.first[rank as usize])
        });
        (named, Span(last))
    }

    /// Lower bound of the time of a collective of `bytes` bytes: the longest chain of messages that wait for each
    /// other, or the time in which the busiest NIC sends or receives all its messages. `busy` and `transfer` as in
    /// [`Schedule::bound`](crate::Schedule::bound).
    pub fn bound(&self, bytes: u64, busy: impl Fn(u64) -> Span, transfer: impl Fn(u32, u32, u64) -> Span) -> Span {
        let length = |message: u32| self.length(message, bytes);
        let (_, chain) = self.walk(|message, entry| transfer(entry.from, entry.to, length(message)), |_| ());
        let mut sums = vec![[0u64; 2]; self.ranks as usize];
        let mut way = u64::MAX;
        for (message, entry) in (0u32..).zip(&self.messages) {
            let alone = busy(length(message)).0;
            way = way.min(transfer(entry.from, entry.to, length(message)).0.saturating_sub(alone));
            for (rank, end) in [(entry.from, 0), (entry.to, 1)] {
                let sum = &mut sums[rank as usize][end];
                *sum = sum.saturating_add(alone);
            }
        }
        let most = sums.iter().flatten().max().copied().unwrap_or(0);
        Span(chain.0.max(if most == 0 { 0 } else { most.saturating_add(way) }))
    }

    /// Bytes of all messages together, of a collective of `bytes` bytes.
    pub fn volume(&self, bytes: u64) -> u64 {
        (0..self.messages.len() as u32).fold(0u64, |sum, message| sum.saturating_add(self.length(message, bytes)))
    }
}
