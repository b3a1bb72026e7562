//! Chooses the paths of acknowledgements: an entropy value holds for one direction, so the reverse direction needs its
//! own.
//!
//! There is one path per plane. Acknowledgements of our own data confirm it; if we send no data, a probe of a random
//! path does, at most once per round trip and per 25 acknowledgements. A path that was not confirmed for long is not
//! used; the acknowledgement then takes the path by which the data arrived.

use super::probes::OURS;
use super::set::EvSet;
use crate::packet::PathId;
use crate::path::spread::next_port;
use crate::rng::Random;
use crate::units::{Span, Time};

/// At most one probe per this many answers. Ours: with four packets per acknowledgement, that is 1 % of the packets.
/// With more probes, their answers would take much of the congested link in an incast.
const ANSWERS_PER_PROBE: u8 = 25;

/// The number of latest probes whose answers are used. Ours: with one probe per round trip, an answer may take eight
/// round trips.
const ASKED: usize = 8;

/// The mask of their numbers; larger numbers belong to probes of paths assumed bad.
const NUMBERS: u16 = OURS as u16 - 1;

/// Not the number of a probe: the probe in this place was answered, or there was none.
const NO_PROBE: u16 = u16::MAX;

#[derive(Clone, Debug)]
pub(super) struct Reverse {
    /// For each plane: the entropy of a path that worked, and when this was confirmed.
    planes: Box<[(u32, Time)]>,
    base_rtt: Span,
    enabled: bool,
    /// A probe is due, because data arrives and nothing else confirms paths.
    due: bool,
    probe_at: Time,
    /// The number of answers to send before the next probe.
    spare: u8,
    number: u16,
    /// The latest probes, by number: their paths, and the numbers.
    asked: [PathId; ASKED],
    numbers: [u16; ASKED],
    /// The plane that is probed next.
    turn: u8,
}

impl Reverse {
    pub(super) fn new(enabled: bool, ports: u8, base_rtt: Span) -> Reverse {
        Reverse {
            planes: vec![(0, Time::NEVER); usize::from(ports)].into(),
            base_rtt,
            enabled,
            due: false,
            probe_at: Time::ZERO,
            spare: 0,
            number: 0,
            asked: [PathId(0); ASKED],
            numbers: [NO_PROBE; ASKED],
            turn: 0,
        }
    }

    /// A packet of ours arrived by `path`. Stores the path, at most once per round trip and plane.
    #[inline]
    pub(super) fn confirm(&mut self, now: Time, path: PathId, set: &EvSet) {
        let Some(&(_, since)) = self.planes.get(usize::from(path.port())) else { return };
        if self.enabled && (since == Time::NEVER || now >= since + self.base_rtt) && set.find(path).is_some() {
            self.planes[usize::from(path.port())] = (path.entropy(), now);
            self.probe_at = now + self.base_rtt;
        }
    }

    /// The path for the answer to a packet that arrived by `arrived`.
    #[inline]
    pub(super) fn path(&mut self, now: Time, arrived: PathId) -> PathId {
        if !self.enabled {
            return arrived;
        }
        if now >= self.probe_at && self.spare == 0 {
            self.due = true;
            self.probe_at = now + self.base_rtt;
            self.spare = ANSWERS_PER_PROBE;
        }
        self.spare = self.spare.saturating_sub(1);
        let believed = self.base_rtt * (2 * (self.planes.len() as u64 + 1));
        match self.planes.get(usize::from(arrived.port())) {
            Some(&(entropy, since)) if since != Time::NEVER && now < since + believed => {
                PathId::new(arrived.port(), entropy)
            }
            _ => arrived,
        }
    }

    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// Takes a probe that is due, of a random path by one of these ports. Also returns the path of a probe that can
    /// have no answer any more: eight probes are sent in eight round trips or more.
    pub(super) fn take(
        &mut self,
        free: u32,
        set: &mut EvSet,
        random: &mut Random,
    ) -> Option<(PathId, u16, Option<PathId>)> {
        if !self.due || free == 0 {
            return None;
        }
        self.due = false;
        let port = next_port(free, self.turn);
        self.turn = if usize::from(port) + 1 < self.planes.len() { port + 1 } else { 0 };
        let path = set.draw(port, random);
        self.number = self.number.wrapping_add(1) & NUMBERS;
        let at = usize::from(self.number) % ASKED;
        let before = std::mem::replace(&mut self.numbers[at], self.number);
        let unanswered = std::mem::replace(&mut self.asked[at], path);
        Some((path, self.number, (before != NO_PROBE).then_some(unanswered)))
    }

    /// A probe was answered.
    pub(super) fn answered(&mut self, now: Time, path: PathId, number: u16) {
        let at = usize::from(number) % ASKED;
        if number != NO_PROBE && self.numbers[at] == number && self.asked[at] == path {
            self.numbers[at] = NO_PROBE;
            self.planes[usize::from(path.port())] = (path.entropy(), now);
        }
    }
}
