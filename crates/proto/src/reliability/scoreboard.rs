//! The state of every packet that was sent and is not yet acknowledged in order.

use crate::packet::PathId;
use crate::units::{Bytes, Time};

/// The state of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Sent, and neither acknowledged nor lost.
    InFlight,
    /// Found lost, waiting to be sent again.
    Lost,
    /// Acknowledged.
    Acked,
}

/// One packet's last transmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) at: Time,
    pub(super) path: PathId,
    pub(super) size: u16,
    pub(super) sends: u8,
    pub(super) state: State,
}

const _: () = assert!(size_of::<Sent>() == 16, "four entries to a cache line");

/// At most this many entries of the window are named for a prefetch: 32 cache lines.
const NAMED_MAX: u64 = 128;

/// The first length of the ring: a connection that sends one short message needs no more. Ours.
const FIRST: usize = 16;

/// A ring of [`Sent`] over `[una, next)`; `in_flight` is the sum of the sizes of those in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    ring: Vec<Sent>,
    una: u64,
    next: u64,
    in_flight: u64,
}

const EMPTY: Sent = Sent { at: Time::ZERO, path: PathId(0), size: 0, sends: 0, state: State::Acked };

impl Scoreboard {
    /// A scoreboard on which all packets below `psn` are acknowledged.
    pub(super) const fn starting_at(psn: u64) -> Scoreboard {
        Scoreboard { ring: Vec::new(), una: psn, next: psn, in_flight: 0 }
    }

    /// The first sequence number not acknowledged in order.
    #[inline]
    pub(super) const fn una(&self) -> u64 {
        self.una
    }

    /// The first sequence number never sent.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub(super) const fn in_flight(&self) -> Bytes {
        Bytes(self.in_flight)
    }

    #[inline]
    fn index(&self, psn: u64) -> usize {
        (psn & (self.ring.len() as u64 - 1)) as usize
    }

    /// Calls `fetch` with the addresses of the window's entries, one for each cache line: those that the next
    /// acknowledgement may read, and the one of the next packet.
    #[inline]
    pub(super) fn name_window(&self, fetch: impl Fn(*const u8)) {
        let mask = self.ring.len().saturating_sub(1);
        let address = |psn: u64| self.ring.as_ptr().wrapping_add(psn as usize & mask).cast();
        (self.una..self.next.min(self.una + NAMED_MAX)).step_by(4).for_each(|psn| fetch(address(psn)));
        fetch(address(self.next));
    }

    /// The entry of `psn`, if it lies in `[una, next)`.
    #[inline]
    pub(super) fn get(&self, psn: u64) -> Option<&Sent> {
        if psn < self.una || psn >= self.next {
            return None;
        }
        self.ring.get(self.index(psn))
    }

    fn grow(&mut self) {
        let old_len = self.ring.len() as u64;
        let old = core::mem::replace(&mut self.ring, vec![EMPTY; (old_len as usize * 2).max(FIRST)]);
        for psn in self.una..self.next {
            let to = self.index(psn);
            self.ring[to] = old[(psn & (old_len - 1)) as usize];
        }
    }

    /// Notes that `psn` is sent at `at`; it is sent for the first time if it equals `next`.
    #[inline]
    pub(super) fn send(&mut self, psn: u64, at: Time, path: PathId, size: u16) {
        let sends = if psn == self.next {
            if self.next - self.una == self.ring.len() as u64 {
                self.grow();
            }
            self.next += 1;
            1
        } else {
            let entry = self.get(psn).expect("a retransmission lies in the window");
            assert!(entry.state == State::Lost, "psn {psn} is sent again though it is not lost");
            entry.sends.saturating_add(1)
        };
        self.in_flight += u64::from(size);
        let index = self.index(psn);
        self.ring[index] = Sent { at, path, size, sends, state: State::InFlight };
    }

    /// Notes that `psn` is acknowledged. Returns its wire bytes, or `None` if it was acknowledged before.
    #[inline]
    pub(super) fn acknowledge(&mut self, psn: u64) -> Option<u16> {
        let index = self.index(psn);
        let entry = &mut self.ring[index];
        let was = entry.state;
        if was == State::Acked {
            return None;
        }
        entry.state = State::Acked;
        let size = entry.size;
        if was == State::InFlight {
            self.in_flight -= u64::from(size);
        }
        Some(size)
    }

    /// Notes that all packets below `psn` are acknowledged. Returns the wire bytes and packets that are newly
    /// acknowledged.
    pub(super) fn acknowledge_below(&mut self, psn: u64) -> (Bytes, u32) {
        let (from, to) = (self.index(self.una), self.index(psn));
        let (mut bytes, mut packets, mut landed) = (0u64, 0u32, 0u64);
        let mut take = |entries: &mut [Sent]| {
            for entry in entries {
                let size = u64::from(entry.size);
                bytes += if entry.state == State::Acked { 0 } else { size };
                packets += u32::from(entry.state != State::Acked);
                landed += if entry.state == State::InFlight { size } else { 0 };
                entry.state = State::Acked;
            }
        };
        if psn - self.una == self.ring.len() as u64 || to < from {
            take(&mut self.ring[from..]);
            take(&mut self.ring[..to]);
        } else {
            take(&mut self.ring[from..to]);
        }
        self.in_flight -= landed;
        (Bytes(bytes), packets)
    }

    /// Marks `psn` as lost if it was in flight, and returns its entry.
    #[inline]
    pub(super) fn lose(&mut self, psn: u64) -> Option<Sent> {
        if psn < self.una || psn >= self.next {
            return None;
        }
        let index = self.index(psn);
        let entry = &mut self.ring[index];
        if entry.state != State::InFlight {
            return None;
        }
        entry.state = State::Lost;
        self.in_flight -= u64::from(entry.size);
        Some(*entry)
    }

    /// Moves the start of the window to `psn`. The caller has acknowledged all packets below.
    #[inline]
    pub(super) fn advance(&mut self, psn: u64) {
        debug_assert!(psn >= self.una && psn <= self.next);
        self.una = psn;
        if self.una == self.next {
            assert!(self.in_flight == 0, "{} bytes in flight though all is settled", self.in_flight);
        }
    }

    /// Frees the memory if no packet is outstanding.
    pub(super) fn release(&mut self) {
        if self.una == self.next {
            self.ring = Vec::new();
        }
    }
}
