//! The memory of a collective's rank on a real node: its numbers, its result, and where messages rest that arrive.

use std::collections::HashMap;
use std::ops::Range;
use strandway_collective::buffer::{Layout, Number, contributions, expected, settle};
use strandway_collective::{Algorithm, Group, Rank};
use strandway_udp::{Error, Node, Region};

/// One rank's memory in a collective of messages, with numbers of which every rank knows what they add up to.
pub struct RankSpace {
    /// The collective.
    pub group: Group,
    rank: Rank,
    number: Number,
    layout: Layout,
    /// What it sends from, and but for an all-to-all receives into.
    buffer: Region,
    result: Region,
    /// What its peers write into.
    pub staging: Region,
    /// The layouts of the ranks that it sends to.
    peers: HashMap<Rank, Layout>,
}

impl RankSpace {
    /// Memory of a rank, its numbers filled in.
    pub fn new(node: &mut Node, group: &Group, rank: Rank) -> RankSpace {
        let number = Number::of(group);
        let layout = Layout::new(&group.schedule, rank);
        let buffer = node.register(contributions(&group.schedule, rank, number));
        let result = match group.schedule.algorithm() {
            Algorithm::AllToAll { .. } => {
                // A rank's own block needs no network.
                let (whole, numbers) = expected(&group.schedule, rank, number);
                let block = group.schedule.block(rank);
                let length = (block.end - block.start) as usize;
                let own = rank.0 as usize * length..(rank.0 as usize + 1) * length;
                let mut result = vec![0xaa; whole.end as usize];
                result[own.clone()].copy_from_slice(&numbers[own]);
                node.register(result)
            }
            _ => buffer,
        };
        let staging = node.register(vec![0; layout.staging() as usize]);
        RankSpace { group: group.clone(), rank, number, layout, buffer, result, staging, peers: HashMap::new() }
    }

    /// Memory for the same collective once more, `group`, whose messages have other numbers: it shares buffer and result with this one, and
    /// has a staging area of its own.
    pub fn twin(&self, node: &mut Node, group: &Group) -> RankSpace {
        RankSpace {
            group: group.clone(),
            rank: self.rank,
            number: self.number,
            layout: self.layout.clone(),
            buffer: self.buffer,
            result: self.result,
            staging: node.register(vec![0; self.staged()]),
            peers: HashMap::new(),
        }
    }

    /// Fills the rank's numbers in again.
    ///
    /// # Errors
    /// If its memory is not registered any more.
    pub fn refill(&self, node: &mut Node) -> Result<(), Error> {
        let numbers = contributions(&self.group.schedule, self.rank, self.number);
        node.memory_mut(self.buffer)?.copy_from_slice(&numbers);
        Ok(())
    }

    /// What it sends from.
    pub(crate) fn buffer_mut<'a>(&self, node: &'a mut Node) -> Result<&'a mut [u8], Error> {
        node.memory_mut(self.buffer)
    }

    /// Its result.
    pub(crate) fn result<'a>(&self, node: &'a Node) -> Result<&'a [u8], Error> {
        node.memory(self.result)
    }

    /// Gives its memory back; that which it shares with a twin only if `whole`.
    ///
    /// # Errors
    /// If unfinished operations use it.
    pub fn release(self, node: &mut Node, whole: bool) -> Result<(), Error> {
        node.deregister(self.staging)?;
        if whole {
            node.deregister(self.buffer)?;
            if self.result != self.buffer {
                node.deregister(self.result)?;
            }
        }
        Ok(())
    }

    /// Bytes of the memory that its peers write into.
    pub fn staged(&self) -> usize {
        self.layout.staging() as usize
    }

    /// What a piece of a message is read from, and where it goes in the receiver's staging area.
    pub fn source(&mut self, number: u32) -> Option<(Region, Range<usize>, u64)> {
        let (_, index, piece) = self.group.piece_of(number)?;
        let send = self.group.schedule.send(self.rank, index);
        let (first, length) = self.group.part(send.bytes, piece);
        let schedule = &self.group.schedule;
        let layout = self.peers.entry(send.to).or_insert_with(|| Layout::new(schedule, send.to));
        let from = (send.first_byte + first) as usize;
        Some((self.buffer, from..from + length as usize, layout.offset(index) + first))
    }

    /// A piece of a message is here: adds it up, or puts it into its place.
    ///
    /// # Errors
    /// If its memory is not registered any more.
    pub fn settle(&self, node: &mut Node, number: u32) -> Result<(), Error> {
        let Some(piece) = self.group.piece_of(number) else { return Ok(()) };
        // The two regions of one node cannot be borrowed at once: the piece is copied out.
        let receive = self.group.schedule.receive(self.rank, piece.1);
        let (first, length) = self.group.part(receive.bytes, piece.2);
        let at = (self.layout.offset(piece.1) + first) as usize;
        let news = node.memory(self.staging)?[at..at + length as usize].to_vec();
        let result = node.memory_mut(self.result)?;
        settle(&self.group, self.rank, self.number, piece, &news, result);
        Ok(())
    }

    /// The first byte of the result that is not what arithmetic says.
    ///
    /// # Errors
    /// If its memory is not registered any more.
    pub fn first_wrong(&self, node: &Node) -> Result<Option<u64>, Error> {
        let (range, right) = expected(&self.group.schedule, self.rank, self.number);
        let result = node.memory(self.result)?;
        let mut places = range.start as usize..range.end as usize;
        Ok(places.find(|&byte| result[byte] != right[byte]).map(|byte| byte as u64))
    }
}
