//! Bytes sent onto every link over time, in a bounded number of intervals.

use strandway_proto::units::{Span, Time};

/// With more links than this, a run records no frames: ours, for memory and time.
pub const LINKS_MAX: u32 = 4096;

/// Limit on the frames. Beyond it, neighbouring frames are merged, and each covers twice the time. Ours: a slider has
/// no more steps that one can tell apart.
const FRAMES_MAX: usize = 64;

/// Bytes by link and interval. Frame `i` covers the time from `i * every` to `(i + 1) * every`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    every: Span,
    links: usize,
    /// By frame, then by link.
    bytes: Vec<Vec<u64>>,
}

impl Frames {
    /// No frames yet, for this number of links; the first frames have the length `every`. Without links, nothing is
    /// recorded.
    pub fn new(every: Span, links: u32) -> Frames {
        Frames { every: Span(every.0.max(1)), links: links as usize, bytes: Vec::new() }
    }

    /// The length of a frame.
    pub fn every(&self) -> Span {
        self.every
    }

    /// The frames: bytes by link.
    pub fn bytes(&self) -> &[Vec<u64>] {
        &self.bytes
    }

    /// A packet has begun to leave onto a link.
    pub fn note(&mut self, at: Time, link: u32, bytes: u64) {
        if link as usize >= self.links {
            return;
        }
        let mut frame = at.0 / self.every.0;
        while frame >= FRAMES_MAX as u64 {
            self.fold();
            frame = at.0 / self.every.0;
        }
        let frame = frame as usize;
        if frame >= self.bytes.len() {
            self.bytes.resize(frame + 1, vec![0; self.links]);
        }
        self.bytes[frame][link as usize] += bytes;
    }

    /// Merges neighbouring frames in pairs.
    pub fn fold(&mut self) {
        self.every = Span(self.every.0.saturating_mul(2));
        let pairs = self.bytes.chunks(2).map(|pair| match pair {
            [a, b] => a.iter().zip(b).map(|(a, b)| a + b).collect(),
            rest => rest.concat(),
        });
        self.bytes = pairs.collect();
    }

    /// Adds the frames of another part of the fabric. Both began with frames of the same length.
    pub fn merge(&mut self, mut other: Frames) {
        if self.links == 0 {
            *self = other;
            return;
        }
        while self.every < other.every {
            self.fold();
        }
        while other.every < self.every {
            other.fold();
        }
        let frames = self.bytes.len().max(other.bytes.len());
        self.bytes.resize(frames, vec![0; self.links]);
        for (all, one) in self.bytes.iter_mut().zip(&other.bytes) {
            all.iter_mut().zip(one).for_each(|(all, one)| *all += one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packets_make_frames_longer_and_lose_no_byte() {
        let (mut early, mut late) = (Frames::new(Span(10), 2), Frames::new(Span(10), 2));
        early.note(Time(5), 0, 100);
        early.note(Time(15), 1, 7);
        early.note(Time(15), 2, 1); // no link of these
        late.note(Time(10 * FRAMES_MAX as u64 * 3), 1, 50);
        assert_eq!((early.every(), late.every()), (Span(10), Span(40)));
        early.merge(late);
        assert_eq!(early.every(), Span(40));
        assert_eq!(early.bytes().len(), FRAMES_MAX * 3 / 4 + 1);
        assert_eq!(early.bytes()[0], [100, 7]);
        assert_eq!(early.bytes().iter().flatten().sum::<u64>(), 157);
        let mut none = Frames::default();
        none.merge(early.clone());
        assert_eq!(none, early);
        none.note(Time(0), 9, 1);
        assert_eq!(none, early);
    }
}
