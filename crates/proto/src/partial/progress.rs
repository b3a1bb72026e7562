//! The progress of a stretch: a bit for each packet that has arrived, and a bit for each complete chunk.

use super::chunks_of;

/// The packets and chunks of a stretch that have arrived.
///
/// A chunk is complete when all its packets have arrived. Chunk `c` consists of the packets from `c * chunk` to before
/// the next chunk's first; the last chunk may be shorter. SDR-RDMA, section 3.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    packets: u32,
    chunk: u32,
    /// A bit for each packet.
    present: Vec<u64>,
    /// The number of present packets of each chunk; empty if a chunk is one packet.
    counts: Vec<u32>,
    /// A bit for each complete chunk; empty if a chunk is one packet.
    complete: Vec<u64>,
    chunks_complete: u32,
    packets_present: u32,
}

/// The result of inserting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It was already present.
    Duplicate,
    /// It is new.
    Packet,
    /// It is new, and the last one of this chunk.
    Chunk(u32),
}

#[inline]
fn has(bits: &[u64], bit: u32) -> bool {
    bits.get(bit as usize / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
}

impl Progress {
    /// The empty progress of `packets` packets in chunks of `chunk` packets; zero counts as one.
    pub fn new(packets: u32, chunk: u32) -> Progress {
        let (packets, chunk) = (packets.max(1), chunk.max(1));
        let chunks = chunks_of(packets, chunk);
        let coarse = chunk > 1;
        Progress {
            packets,
            chunk,
            present: vec![0; packets.div_ceil(64) as usize],
            counts: if coarse { vec![0; chunks as usize] } else { Vec::new() },
            complete: if coarse { vec![0; chunks.div_ceil(64) as usize] } else { Vec::new() },
            chunks_complete: 0,
            packets_present: 0,
        }
    }

    /// Shortens the progress to `packets` packets, because the stretch is shorter than its receive. Must be called
    /// before the first packet is inserted.
    pub(super) fn shorten(&mut self, packets: u32) {
        debug_assert_eq!(self.packets_present, 0);
        if packets < self.packets {
            *self = Progress::new(packets, self.chunk);
        }
    }

    /// Inserts a packet.
    ///
    /// # Panics
    /// If there is no such packet.
    #[inline]
    pub fn insert(&mut self, packet: u32) -> Inserted {
        assert!(packet < self.packets, "packet {packet} of {}", self.packets);
        let (word, bit) = (packet as usize / 64, 1u64 << (packet % 64));
        if self.present[word] & bit != 0 {
            return Inserted::Duplicate;
        }
        self.present[word] |= bit;
        self.packets_present += 1;
        if self.chunk == 1 {
            self.chunks_complete += 1;
            return Inserted::Chunk(packet);
        }
        let chunk = packet / self.chunk;
        self.counts[chunk as usize] += 1;
        if self.counts[chunk as usize] < self.packets_of(chunk) {
            return Inserted::Packet;
        }
        self.complete[chunk as usize / 64] |= 1 << (chunk % 64);
        self.chunks_complete += 1;
        Inserted::Chunk(chunk)
    }

    /// The number of packets of a chunk.
    #[inline]
    pub fn packets_of(&self, chunk: u32) -> u32 {
        self.chunk.min(self.packets.saturating_sub(chunk * self.chunk))
    }

    /// The number of packets of the stretch.
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// The number of packets that have arrived.
    pub const fn packets_present(&self) -> u32 {
        self.packets_present
    }

    /// Has this packet arrived?
    #[inline]
    pub fn has_packet(&self, packet: u32) -> bool {
        has(&self.present, packet)
    }

    /// The number of chunks of the stretch.
    pub const fn chunks(&self) -> u32 {
        chunks_of(self.packets, self.chunk)
    }

    /// The number of complete chunks.
    pub const fn chunks_complete(&self) -> u32 {
        self.chunks_complete
    }

    /// A bit for each chunk, in words of 64.
    #[inline]
    pub fn bitmap(&self) -> &[u64] {
        if self.chunk == 1 { &self.present } else { &self.complete }
    }

    /// Is this chunk complete?
    #[inline]
    pub fn has_chunk(&self, chunk: u32) -> bool {
        has(self.bitmap(), chunk)
    }

    /// Have all packets arrived?
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.packets_present == self.packets
    }

    /// The first chunk from `from` on that is not complete; the number of chunks if there is none.
    pub fn first_missing(&self, from: u32) -> u32 {
        let end = self.chunks();
        let mut at = from;
        while at < end {
            let word = self.bitmap()[at as usize / 64] >> (at % 64);
            let run = word.trailing_ones().min(64 - at % 64);
            at += run;
            if run < 64 && !at.is_multiple_of(64) || run == 0 {
                break;
            }
        }
        at.min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bit_is_set_when_all_its_packets_have_come(
            packets in 1u32..400,
            chunk in 1u32..70,
            order in prop::collection::vec(0u32..400, 0..600),
        ) {
            let mut progress = Progress::new(packets, chunk);
            let mut model = vec![false; packets as usize];
            for packet in order.into_iter().filter(|&p| p < packets) {
                let was = std::mem::replace(&mut model[packet as usize], true);
                let of = packet / chunk;
                let range = (of * chunk) as usize..((of + 1) * chunk).min(packets) as usize;
                let whole = model[range].iter().all(|&p| p);
                let expected = match (was, whole) {
                    (true, _) => Inserted::Duplicate,
                    (false, true) => Inserted::Chunk(of),
                    (false, false) => Inserted::Packet,
                };
                prop_assert_eq!(progress.insert(packet), expected);
            }
            let chunks: Vec<bool> = model.chunks(chunk as usize).map(|c| c.iter().all(|&p| p)).collect();
            prop_assert_eq!(progress.chunks() as usize, chunks.len());
            for (c, &is) in chunks.iter().enumerate() {
                prop_assert_eq!(progress.has_chunk(c as u32), is);
                let next = (c..chunks.len()).find(|&c| !chunks[c]).unwrap_or(chunks.len());
                prop_assert_eq!(progress.first_missing(c as u32) as usize, next);
            }
            prop_assert_eq!(progress.chunks_complete() as usize, chunks.iter().filter(|&&c| c).count());
            prop_assert_eq!(progress.is_whole(), model.iter().all(|&p| p));
        }
    }
}
