//! Two rings of bytes between two processes of one host, one for each direction.
//!
//! Each process makes one file of memory, which only it writes: the bytes that it sends, how many it has sent, and how
//! many of the other's it has taken. So neither can change what the other one has said.
//!
//! | bytes of the file | meaning |
//! |---|---|
//! | 0 | the number of bytes sent |
//! | 128 | the number of the other's bytes taken |
//! | 4,096 | the ring |
//!
//! Nothing that the other process says is trusted. Each number is read once, and checked.

use super::mapping::{Ours, Theirs};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const SENT: usize = 0;
/// In another pair of cache lines: processors fetch two at a time.
const TAKEN: usize = 128;
const RING: usize = 4_096;
/// Everything in a ring begins at a multiple of a cache line.
pub(super) const LINE: usize = 64;
/// The shortest and the longest ring: ours. A message fits the shortest one.
pub(super) const RING_MIN: usize = 1 << 16;
pub(super) const RING_MAX: usize = 1 << 20;

/// A peer has said something impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense(pub(super) &'static str);

/// The end of a ring that this process writes.
pub(super) struct Sender {
    memory: Ours,
    mask: u64,
    /// Bytes written, and those of them that the peer may see.
    written: u64,
    published: u64,
    /// Bytes that the peer has taken, as far as is known.
    taken: u64,
}

/// The end of a ring that this process reads.
pub(super) struct Receiver {
    memory: Theirs,
    mask: u64,
    /// Bytes that the peer has sent, as far as is known.
    sent: u64,
    taken: u64,
}

/// New memory for a ring of this length, a power of two, and its file for the peer.
pub(super) fn create(ring: usize) -> Result<(OwnedFd, Sender), Errno> {
    assert!(ring.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&ring), "a ring of {ring} bytes");
    let (file, memory) = Ours::new(RING + ring)?;
    Ok((file, Sender { memory, mask: ring as u64 - 1, written: 0, published: 0, taken: 0 }))
}

/// A peer's memory; `None` if it is none for a ring.
pub(super) fn open(file: &OwnedFd) -> Option<Receiver> {
    let fits = |length: usize| {
        let ring = length.checked_sub(RING);
        ring.is_some_and(|ring| ring.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&ring))
    };
    let memory = Theirs::open(file, fits)?;
    let mask = (memory.length() - RING) as u64 - 1;
    Some(Receiver { memory, mask, sent: 0, taken: 0 })
}

impl Sender {
    /// Bytes that fit now. `other`: the peer's ring, beside which it says how many it has taken.
    pub(super) fn room(&mut self, other: &Receiver, wanted: usize) -> Result<usize, Nonsense> {
        let room = self.mask + 1 - (self.written - self.taken);
        if room >= wanted as u64 {
            return Ok(room as usize);
        }
        self.read_taken(other)?;
        Ok((self.mask + 1 - (self.written - self.taken)) as usize)
    }

    /// Reads how many bytes the peer has taken.
    fn read_taken(&mut self, other: &Receiver) -> Result<(), Nonsense> {
        let taken = other.memory.word(TAKEN);
        if taken < self.taken || taken > self.published || !taken.is_multiple_of(LINE as u64) {
            return Err(Nonsense("it says that it has taken what it cannot have"));
        }
        self.taken = taken;
        Ok(())
    }

    /// Has the peer taken all bytes up to this number?
    pub(super) fn is_taken(&mut self, other: &Receiver, position: u64) -> Result<bool, Nonsense> {
        if self.taken < position {
            self.read_taken(other)?;
        }
        Ok(self.taken >= position)
    }

    /// Bytes that the peer has taken, as far as is known.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// The number of bytes written.
    pub(super) const fn position(&self) -> u64 {
        self.written
    }

    /// Writes bytes for which there is room; what follows begins at the next line.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.put(self.written, bytes);
        self.written += bytes.len().next_multiple_of(LINE) as u64;
    }

    /// Writes two runs of bytes without a gap.
    pub(super) fn write_two(&mut self, one: &[u8], two: &[u8]) {
        self.put(self.written, one);
        self.put(self.written + one.len() as u64, two);
        self.written += (one.len() + two.len()).next_multiple_of(LINE) as u64;
    }

    fn put(&mut self, position: u64, bytes: &[u8]) {
        let at = (position & self.mask) as usize;
        let (one, two) = bytes.split_at(bytes.len().min(self.mask as usize + 1 - at));
        self.memory.write(RING + at, one);
        self.memory.write(RING, two);
    }

    /// Lets the peer see everything that was written.
    pub(super) fn publish(&mut self) {
        self.published = self.written;
        self.memory.publish(SENT, self.published);
    }
}

impl Receiver {
    /// Bytes that are here.
    pub(super) fn available(&mut self) -> Result<usize, Nonsense> {
        let sent = self.memory.word(SENT);
        if sent < self.sent || sent - self.taken > self.mask + 1 || !sent.is_multiple_of(LINE as u64) {
            return Err(Nonsense("it says that it has sent what it cannot have"));
        }
        self.sent = sent;
        Ok((sent - self.taken) as usize)
    }

    /// Copies bytes out that are here, `ahead` bytes after those that were taken, a multiple of 8.
    pub(super) fn read(&self, ahead: usize, into: &mut [u8]) {
        debug_assert!((ahead + into.len()) as u64 <= self.sent - self.taken, "here");
        let at = ((self.taken + ahead as u64) & self.mask) as usize;
        let cut = into.len().min(self.mask as usize + 1 - at);
        let (one, two) = into.split_at_mut(cut);
        self.memory.read(RING + at, one);
        self.memory.read(RING, two);
    }

    /// Gives the room of the next bytes back, up to the next line. `other`: our ring, beside which the peer reads it.
    pub(super) fn take(&mut self, bytes: usize, other: &Sender) {
        self.taken += bytes.next_multiple_of(LINE) as u64;
        other.memory.publish(TAKEN, self.taken);
    }
}

#[cfg(test)]
impl Sender {
    /// Publishes numbers that need not be true.
    pub(super) fn lie(&self, sent: u64, taken: u64) {
        self.memory.publish(SENT, sent);
        self.memory.publish(TAKEN, taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Both ends of two rings, of two processes.
    fn pair(ring: usize) -> [(Sender, Receiver); 2] {
        let ((one, from_one), (two, from_two)) = (create(ring).expect("memory"), create(ring).expect("memory"));
        [(from_one, open(&two).expect("a ring")), (from_two, open(&one).expect("a ring"))]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn bytes_arrive_in_order_whatever_their_lengths(lengths in prop::collection::vec(1usize..30_000, 1..60)) {
            let [mut one, mut two] = pair(RING_MIN);
            let mut waiting = std::collections::VecDeque::new();
            for (number, length) in lengths.into_iter().enumerate() {
                while one.0.room(&one.1, length).expect("sense") < length.next_multiple_of(LINE) {
                    let sent: Vec<u8> = waiting.pop_front().expect("something fills it");
                    let mut got = vec![0; sent.len()];
                    prop_assert!(two.1.available().expect("sense") >= sent.len());
                    two.1.read(0, &mut got);
                    prop_assert!(got == sent);
                    two.1.take(got.len(), &two.0);
                }
                let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + number) as u8).collect();
                one.0.write(&bytes);
                one.0.publish();
                waiting.push_back(bytes);
            }
        }

        #[test]
        fn any_numbers_of_a_peer_are_taken_or_refused(sent: u64, taken: u64, near in 0u64..200_000) {
            for (sent, taken) in [(sent, taken), (near, near / 2), (near & !63, near & !63)] {
                let [mut one, two] = pair(RING_MIN);
                two.0.lie(sent, taken);
                let here = one.1.available();
                prop_assert_eq!(here.is_ok(), sent <= RING_MIN as u64 && sent % 64 == 0);
                if let Ok(here) = here {
                    one.1.read(0, &mut vec![0; here]);
                }
                prop_assert_eq!(one.0.is_taken(&one.1, 1).is_ok(), taken == 0, "nothing was sent");
            }
        }
    }
}
