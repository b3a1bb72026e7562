//! Places of messages that have begun to arrive, and ticks that acknowledgements echo.

use super::super::incoming::Incoming;
use crate::error::Reason;
use std::collections::BTreeMap;

/// The facts of a message that each of its packets carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The key of its memory.
    pub(super) key: u32,
    /// Bytes of the whole message.
    pub(super) bytes: u32,
    /// The receive that it fills, if it is a send.
    pub(super) receive: Option<u32>,
}

/// The peer's messages that have begun to arrive.
pub(super) struct Claims {
    begun: Incoming<Claim>,
    /// The immediates of those whose last packet has arrived.
    immediates: BTreeMap<u32, u32>,
    /// Messages that are complete; the next one has this number.
    pub(super) completed: u64,
}

impl Claims {
    pub(super) const fn new(most: usize) -> Claims {
        Claims { begun: Incoming::new(most), immediates: BTreeMap::new(), completed: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begun.is_empty()
    }

    /// The full number of the message of which a packet says `low` were before it.
    pub(super) const fn message(&self, low: u16) -> u64 {
        let ahead = low.wrapping_sub(self.completed as u16) as i16;
        self.completed.saturating_add_signed(ahead as i64)
    }

    /// A packet of a message has arrived for the first time.
    ///
    /// # Errors
    /// If it contradicts an earlier packet of the message, or the message was complete.
    pub(super) fn add(
        &mut self,
        message: u64,
        claim: Claim,
        immediate: Option<u32>,
        bytes: usize,
    ) -> Result<(), Reason> {
        if message < self.completed {
            return Err(Reason::Violation);
        }
        self.begun.add(message as u32, claim, bytes)?;
        if let Some(immediate) = immediate {
            self.immediates.insert(message as u32, immediate);
        }
        Ok(())
    }

    /// The next message is complete; its last packet says that it has `bytes` bytes.
    ///
    /// # Errors
    /// If another number of bytes arrived.
    pub(super) fn finish(&mut self, bytes: u64) -> Result<(Claim, Option<u32>), Reason> {
        let message = self.completed as u32;
        self.completed += 1;
        let claim = self.begun.finish(message, bytes)?;
        Ok((claim, self.immediates.remove(&message)))
    }
}

/// Things that a number on the wire counts, beside packets: each has a sequence of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// Probes of one connection.
    Probe,
    /// A NIC's probes of paths.
    Path,
    /// A NIC's port statuses.
    Status,
}

/// The ticks of the latest packets, by PSN or by the number of a probe or request. An acknowledgement of an older
/// packet echoes zero.
pub(super) struct Ticks {
    packets: Box<[(u32, u16)]>,
    probes: [[(u32, u16); PROBES]; 3],
}

/// Packets whose ticks are kept: ours, more than arrive before their acknowledgement leaves.
const PACKETS: usize = 256;
const PROBES: usize = 8;
/// No PSN and no number of a probe.
const NOBODY: u32 = u32::MAX;

impl Default for Ticks {
    fn default() -> Ticks {
        Ticks { packets: vec![(NOBODY, 0); PACKETS].into(), probes: [[(NOBODY, 0); PROBES]; 3] }
    }
}

impl Ticks {
    pub(super) fn note_packet(&mut self, psn: u32, tick: u16) {
        self.packets[psn as usize % PACKETS] = (psn, tick);
    }

    pub(super) fn of_packet(&self, psn: u32) -> u16 {
        let (known, tick) = self.packets[psn as usize % PACKETS];
        if known == psn { tick } else { 0 }
    }

    pub(super) fn note_probe(&mut self, asks: Asks, number: u16, tick: u16) {
        self.probes[asks as usize][usize::from(number) % PROBES] = (u32::from(number), tick);
    }

    pub(super) fn of_probe(&self, asks: Asks, number: u16) -> u16 {
        let (known, tick) = self.probes[asks as usize][usize::from(number) % PROBES];
        if known == u32::from(number) { tick } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_wire_is_the_nearest_one() {
        let mut claims = Claims::new(4);
        assert_eq!(claims.message(3), 3);
        assert_eq!(claims.message(u16::MAX), 0, "before the first: nothing to the application");
        claims.completed = 70_000;
        let low = 70_000_u64 as u16;
        assert_eq!(claims.message(low), 70_000);
        assert_eq!(claims.message(low.wrapping_add(9)), 70_009);
        assert_eq!(claims.message(low.wrapping_sub(1)), 69_999);
    }

    #[test]
    fn packets_of_a_message_must_agree_and_add_up() {
        let claim = Claim { key: 7, bytes: 10, receive: None };
        let mut claims = Claims::new(2);
        claims.add(0, claim, None, 6).expect("the first");
        assert_eq!(claims.add(0, Claim { bytes: 11, ..claim }, None, 4), Err(Reason::Violation));
        claims.add(0, claim, Some(3), 4).expect("the last");
        assert_eq!(claims.finish(10), Ok((claim, Some(3))));
        assert_eq!(claims.add(0, claim, None, 1), Err(Reason::Violation), "it is complete");
        claims.add(1, claim, None, 9).expect("the next");
        assert_eq!(claims.finish(10), Err(Reason::Violation), "a byte is missing");
        claims.add(2, claim, None, 1).expect("one");
        claims.add(3, claim, None, 1).expect("two");
        assert_eq!(claims.add(4, claim, None, 1), Err(Reason::Violation), "too many have begun");
    }

    #[test]
    fn a_tick_is_echoed_for_its_own_packet_only() {
        let mut ticks = Ticks::default();
        ticks.note_packet(5, 77);
        ticks.note_probe(Asks::Probe, 5, 88);
        ticks.note_probe(Asks::Path, 5, 99);
        ticks.note_probe(Asks::Status, 13, 66);
        let of_probes = |number| [Asks::Probe, Asks::Path, Asks::Status].map(|asks| ticks.of_probe(asks, number));
        assert_eq!((ticks.of_packet(5), of_probes(5), of_probes(13)), (77, [88, 99, 0], [0, 0, 66]));
        assert_eq!(ticks.of_packet(5 + PACKETS as u32), 0);
    }
}
