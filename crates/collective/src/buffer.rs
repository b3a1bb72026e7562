//! Collectives on real bytes: the numbers in a rank's buffer, the staging area for arriving messages, and the expected
//! sums.
//!
//! A message first arrives in a staging area, in which every message has its own place. It needs one because a sender
//! may be one step ahead of a receiver that has not added the previous message yet. From there it is added to the
//! buffer, or copied into it.

use crate::group::Group;
use crate::schedule::{Algorithm, Collective, Rank, Schedule};
use std::ops::Range;

/// The kind of number that a buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Little-endian IEEE 754 numbers of 32 bits.
    F32,
    /// Bytes that are added modulo 256: for buffers whose messages do not begin and end at multiples of four bytes.
    Byte,
}

impl Number {
    /// 32-bit numbers if no message of the collective splits one of them; otherwise bytes.
    pub fn of(group: &Group, schedule: &Schedule) -> Number {
        let whole = |rank: u32, index: u32| {
            let send = schedule.send(Rank(rank), index);
            (0..group.pieces()).all(|piece| {
                let (from, length) = group.part(send.bytes, piece);
                (send.first_byte + from).is_multiple_of(4) && length.is_multiple_of(4)
            })
        };
        let all = (0..schedule.ranks()).all(|rank| (0..schedule.messages()).all(|index| whole(rank, index)));
        if all && schedule.bytes().is_multiple_of(4) { Number::F32 } else { Number::Byte }
    }

    fn bytes(self) -> u64 {
        match self {
            Number::F32 => 4,
            Number::Byte => 1,
        }
    }

    /// Writes a small whole number. Sums of such numbers over 65,536 ranks are exact.
    fn write(self, to: &mut [u8], value: u32) {
        match self {
            Number::F32 => to.copy_from_slice(&(value as f32).to_le_bytes()),
            Number::Byte => to[0] = value as u8,
        }
    }
}

/// The number that a rank contributes at a place. Every rank can compute it, so results can be checked.
fn contribution(rank: u32, place: u64) -> u32 {
    ((place % 251 * 7 + u64::from(rank) * 13) % 251) as u32
}

/// A rank's buffer at the start: its contributions in the part that the collective reads, and 0xaa in the rest.
pub fn contributions(schedule: &Schedule, rank: Rank, number: Number) -> Vec<u8> {
    let mut buffer = vec![0xaa; schedule.bytes() as usize];
    let mine = match schedule.algorithm().collective() {
        Collective::AllGather => schedule.block(rank),
        Collective::AllReduce
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Broadcast
        | Collective::Reduce
        | Collective::Gather
        | Collective::Scatter
        | Collective::SendReceive => 0..schedule.bytes(),
    };
    fill(&mut buffer, mine, number, |place| contribution(rank.0, place));
    buffer
}

fn fill(buffer: &mut [u8], range: Range<u64>, number: Number, value: impl Fn(u64) -> u32) {
    let size = number.bytes();
    for place in range.start / size..range.end / size {
        let at = (place * size) as usize;
        number.write(&mut buffer[at..at + size as usize], value(place));
    }
}

/// The range of the result that the collective defines for this rank, and its expected bytes, by arithmetic.
pub fn expected(schedule: &Schedule, rank: Rank, number: Number) -> (Range<u64>, Vec<u8>) {
    let ranks = schedule.ranks();
    let size = number.bytes();
    let mut buffer = vec![0; schedule.result() as usize];
    // Contributions repeat every 251 places, so sums repeat too.
    let sums: Vec<u32> = (0..251).map(|place| (0..ranks).map(|r| contribution(r, place)).sum()).collect();
    let sum = |place: u64| sums[(place % 251) as usize];
    let range = match schedule.algorithm().collective() {
        Collective::AllReduce => {
            fill(&mut buffer, 0..schedule.bytes(), number, sum);
            0..schedule.bytes()
        }
        Collective::ReduceScatter => {
            fill(&mut buffer, schedule.block(rank), number, sum);
            schedule.block(rank)
        }
        Collective::AllGather => {
            for from in (0..ranks).map(Rank) {
                fill(&mut buffer, schedule.block(from), number, |place| contribution(from.0, place));
            }
            0..schedule.bytes()
        }
        Collective::Broadcast
        | Collective::Reduce
        | Collective::Gather
        | Collective::Scatter
        | Collective::SendReceive => unreachable!("no schedule has a root"),
        Collective::AllToAll => {
            let block = schedule.block(rank);
            let length = block.end - block.start;
            for from in 0..ranks {
                let at = u64::from(from) * length;
                let shift = (block.start / size).wrapping_sub(at / size);
                fill(&mut buffer, at..at + length, number, |place| contribution(from, place.wrapping_add(shift)));
            }
            0..length * u64::from(ranks)
        }
    };
    (range, buffer)
}

/// The offset of each message in a rank's staging area, by index in the schedule. The last entry is the end of the area.
pub fn staging_offsets(schedule: &Schedule, rank: Rank) -> Vec<u64> {
    let lengths = schedule.receives(rank).map(|receive| receive.bytes);
    let ends = lengths.scan(0, |end, bytes| {
        *end += bytes;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

impl Schedule {
    /// The bytes of the buffer that a rank contributes to an all-gather, or keeps of a reduce-scatter or an all-to-all.
    pub fn block(&self, rank: Rank) -> Range<u64> {
        self.cut_at(rank.0)..self.cut_at(rank.0 + 1)
    }

    /// Bytes of a rank's result. Usually this is the buffer itself; an all-to-all has a separate receive buffer. That
    /// buffer has the same length at every rank, though some blocks are one byte shorter.
    pub fn result(&self) -> u64 {
        match self.algorithm() {
            Algorithm::AllToAll { .. } => self.cut_at(1) * u64::from(self.ranks()),
            _ => self.bytes(),
        }
    }
}
