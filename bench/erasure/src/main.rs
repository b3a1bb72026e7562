//! Measures erasure codes: ours with each kernel and those of other projects, in gigabytes of data per second on one
//! core.

mod codecs;

use codecs::{Codec, Operation};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// More bytes of data than any cache here holds.
const FAR: usize = 128 << 20;

/// The groups of pieces that a codec works on in turns: one for rates in cache, many for rates from memory.
pub(crate) struct Groups {
    /// Data and parity pieces of all groups, one after the other; they begin at `skip`, the start of a cache line.
    bytes: Vec<u8>,
    skip: usize,
    piece: usize,
    pieces: usize,
    next: usize,
}

impl Groups {
    fn new(piece: usize, pieces: usize, groups: usize) -> Groups {
        let mut state = 0x9e37_79b9_u32;
        let bytes = (0..piece * pieces * groups + 64).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        let bytes: Vec<u8> = bytes.collect();
        let skip = bytes.as_ptr().align_offset(64);
        Groups { bytes, skip, piece, pieces, next: 0 }
    }

    /// The pieces of the next group.
    pub(crate) fn turn(&mut self) -> Vec<&mut [u8]> {
        let group = self.piece * self.pieces;
        let at = self.next;
        self.next = if at + 2 * group + 64 > self.bytes.len() { 0 } else { at + group };
        self.bytes[self.skip + at..][..group].chunks_mut(self.piece).collect()
    }
}

/// The fastest and the median rate of 30 windows, in bytes of data per second.
fn measure(codec: &mut dyn Codec, operation: Operation, groups: &mut Groups, data: usize) -> (f64, f64) {
    let per_window = {
        let at = Instant::now();
        let mut count = 0_u32;
        while at.elapsed() < Duration::from_millis(5) {
            codec.run(operation, &mut groups.turn());
            count += 1;
        }
        count.max(4)
    };
    let mut rates: Vec<f64> = (0..30)
        .map(|_| {
            let at = Instant::now();
            for _ in 0..per_window {
                codec.run(operation, black_box(&mut groups.turn()));
            }
            f64::from(per_window) * (data * groups.piece) as f64 / at.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    (rates[29], rates[15])
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--help") {
        println!("usage: strandway-bench-erasure [PART OF A CODEC'S NAME]...");
        return;
    }
    println!("GB/s of data, one core: the fastest of 30 windows (their median)\n");
    for (k, m) in [(32, 8)] {
        for piece in [1344, 4096, 65536] {
            println!("({k},{m}), pieces of {piece} B\n");
            println!("| codec | where | encode | rebuild 1 | rebuild {m} |\n|---|---|---|---|---|");
            for codec in codecs::all(k, m).iter_mut() {
                if !arguments.is_empty() && !arguments.iter().any(|a| codec.name().contains(a.as_str())) {
                    continue;
                }
                for (place, count) in [("cache", 1), ("memory", FAR / (piece * k))] {
                    let mut groups = Groups::new(piece, k + m, count);
                    let mut cell = |operation| {
                        let (best, median) = measure(codec.as_mut(), operation, &mut groups, k);
                        format!("{:.1} ({:.1})", best / 1e9, median / 1e9)
                    };
                    let row = [Operation::Encode, Operation::Rebuild(1), Operation::Rebuild(m)].map(&mut cell);
                    println!("| {} | {place} | {} |", codec.name(), row.join(" | "));
                }
            }
            println!();
        }
    }
}
