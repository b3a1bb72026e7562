//! The memory of a collective's rank on a real node: its numbers, its result, and the staging area for arriving
//! messages.

use crate::process::element::{Element, Reduction, combine};
use std::collections::HashMap;
use std::ops::Range;
use strandway_collective::buffer::{Number, contributions, expected, staging_offsets};
use strandway_collective::{Algorithm, Group, Rank, Schedule};
use strandway_udp::{Error, Node, Region};

/// One rank's memory in a collective of messages. Every rank knows the expected sums of its numbers.
pub struct RankSpace {
    /// The collective.
    pub group: Group,
    schedule: Schedule,
    rank: Rank,
    number: Number,
    /// The offsets of messages in its staging area.
    offsets: Vec<u64>,
    /// The memory that it sends from; except in an all-to-all, also the result.
    buffer: Region,
    result: Region,
    /// The staging area that its peers write into.
    pub staging: Region,
    /// Those of the ranks that it sends to.
    peers: HashMap<Rank, Vec<u64>>,
}

impl RankSpace {
    /// The memory of a rank of a collective that follows a schedule, with its numbers filled in.
    pub fn new(node: &mut Node, group: &Group, schedule: Schedule, rank: Rank) -> RankSpace {
        let number = Number::of(group, &schedule);
        let offsets = staging_offsets(&schedule, rank);
        let buffer = node.register(contributions(&schedule, rank, number));
        let result = match schedule.algorithm() {
            Algorithm::AllToAll { .. } => {
                // A rank sends its own block to itself without the network.
                let (whole, numbers) = expected(&schedule, rank, number);
                let block = schedule.block(rank);
                let length = (block.end - block.start) as usize;
                let own = rank.0 as usize * length..(rank.0 as usize + 1) * length;
                let mut result = vec![0xaa; whole.end as usize];
                result[own.clone()].copy_from_slice(&numbers[own]);
                node.register(result)
            }
            _ => buffer,
        };
        let staging = node.register(vec![0; offsets[offsets.len() - 1] as usize]);
        let peers = HashMap::new();
        RankSpace { group: group.clone(), schedule, rank, number, offsets, buffer, result, staging, peers }
    }

    /// Memory for the same collective with other message numbers, `group`: it shares buffer and result with this one,
    /// and has its own staging area.
    pub fn twin(&self, node: &mut Node, group: &Group) -> RankSpace {
        RankSpace {
            group: group.clone(),
            schedule: self.schedule,
            rank: self.rank,
            number: self.number,
            offsets: self.offsets.clone(),
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
        let numbers = contributions(&self.schedule, self.rank, self.number);
        node.memory_mut(self.buffer)?.copy_from_slice(&numbers);
        Ok(())
    }

    /// The memory that it sends from.
    pub(crate) fn buffer_mut<'a>(&self, node: &'a mut Node) -> Result<&'a mut [u8], Error> {
        node.memory_mut(self.buffer)
    }

    /// Its result.
    pub(crate) fn result<'a>(&self, node: &'a Node) -> Result<&'a [u8], Error> {
        node.memory(self.result)
    }

    /// Releases its memory; the part that it shares with a twin only if `whole`.
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

    /// Bytes of its staging area.
    pub fn staged(&self) -> usize {
        self.offsets[self.offsets.len() - 1] as usize
    }

    /// The source of a piece of a message, and its offset in the receiver's staging area.
    pub fn source(&mut self, number: u32) -> Option<(Region, Range<usize>, u64)> {
        let schedule = &self.schedule;
        let (message, piece) = self.group.piece_of(number)?;
        let index = message % schedule.messages();
        let send = schedule.send(self.rank, index);
        let (first, length) = self.group.part(send.bytes, piece);
        let offsets = self.peers.entry(send.to).or_insert_with(|| staging_offsets(schedule, send.to));
        let from = (send.first_byte + first) as usize;
        Some((self.buffer, from..from + length as usize, offsets[index as usize] + first))
    }

    /// A piece of a message has arrived: adds it to the result, or copies it to its place. Does nothing if the rank
    /// expects no such piece.
    ///
    /// # Errors
    /// If its memory is not registered any more.
    pub fn settle(&self, node: &mut Node, number: u32) -> Result<(), Error> {
        let Some((message, piece)) = self.group.piece_of(number) else { return Ok(()) };
        let index = message % self.schedule.messages();
        let receive = self.schedule.receive(self.rank, index);
        let (first, length) = self.group.part(receive.bytes, piece);
        if receive.from.0 != message / self.schedule.messages() || length == 0 {
            return Ok(());
        }
        let at = (self.offsets[index as usize] + first) as usize;
        // The two regions of a node cannot be borrowed at the same time, so the piece is copied.
        let news = node.memory(self.staging)?[at..at + length as usize].to_vec();
        let place = (receive.first_byte + first) as usize;
        let place = &mut node.memory_mut(self.result)?[place..place + news.len()];
        match (receive.reduces, self.number) {
            (false, _) => place.copy_from_slice(&news),
            (true, Number::F32) => combine(Element::F32, Reduction::Sum, place, &news),
            (true, Number::Byte) => combine(Element::U8, Reduction::Sum, place, &news),
        }
        Ok(())
    }

    /// The first byte of the result that differs from the expected one.
    ///
    /// # Errors
    /// If its memory is not registered any more.
    pub fn first_wrong(&self, node: &Node) -> Result<Option<u64>, Error> {
        let (range, right) = expected(&self.schedule, self.rank, self.number);
        let result = node.memory(self.result)?;
        let mut places = range.start as usize..range.end as usize;
        Ok(places.find(|&byte| result[byte] != right[byte]).map(|byte| byte as u64))
    }
}
