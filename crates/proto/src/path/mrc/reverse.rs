//! By which path acknowledgements go: an entropy value is directional, so the way back needs some of its own.
//!
//! One path per plane, confirmed by acknowledgements of our own data or, where we send none, by a probe of a random path
//! once per round trip and hundred packets. What was not confirmed for long is not believed: then the way the data came is
//! the better guess.

use super::probes::OURS;
use super::set::EvSet;
use crate::packet::PathId;
use crate::path::spread::next_port;
use crate::rng::Random;
use crate::units::{Span, Time};

/// Of so many answers one may be followed by a probe. Ours: at four packets to an acknowledgement, 1 % of the packets; or in an
/// incast the probes' answers would take a good part of the link that is congested.
const ANSWERS_PER_PROBE: u8 = 25;

/// Probes whose answers still mean something. Ours: at one per round trip, answers may take eight.
const ASKED: usize = 8;

/// Their numbers: those above are of probes of paths that are assumed bad.
const NUMBERS: u16 = OURS as u16 - 1;

#[derive(Clone, Debug)]
pub(super) struct Reverse {
    /// For each plane: the entropy of a path that worked, and when that was known.
    planes: Box<[(u32, Time)]>,
    base_rtt: Span,
    enabled: bool,
    /// A probe is due: data arrives and nothing else confirms paths.
    due: bool,
    probe_at: Time,
    /// Answers that still have to leave before the next one.
    spare: u8,
    number: u16,
    /// The latest probes, by number.
    asked: [Option<(u16, PathId)>; ASKED],
    /// The plane whose turn to be probed it is.
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
            asked: [None; ASKED],
            turn: 0,
        }
    }

    /// A packet of ours got through by `path`. Looked into once per round trip and plane.
    #[inline]
    pub(super) fn confirm(&mut self, now: Time, path: PathId, set: &EvSet) {
        let Some(&(_, since)) = self.planes.get(usize::from(path.port())) else { return };
        if self.enabled && (since == Time::NEVER || now >= since + self.base_rtt) && set.find(path).is_some() {
            self.planes[usize::from(path.port())] = (path.entropy(), now);
            self.probe_at = now + self.base_rtt;
        }
    }

    /// The way back for what `arrived` calls for.
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

    /// Takes a probe that is due, of a random path by one of these ports.
    pub(super) fn take(&mut self, free: u32, set: &EvSet, random: &mut Random) -> Option<(PathId, u16)> {
        if !self.due || free == 0 {
            return None;
        }
        self.due = false;
        let port = next_port(free, self.turn);
        self.turn = if usize::from(port) + 1 < self.planes.len() { port + 1 } else { 0 };
        let path = set.draw(port, random);
        self.number = self.number.wrapping_add(1) & NUMBERS;
        self.asked[usize::from(self.number) % ASKED] = Some((self.number, path));
        Some((path, self.number))
    }

    /// A probe was answered.
    pub(super) fn answered(&mut self, now: Time, path: PathId, number: u16) {
        let asked = &mut self.asked[usize::from(number) % ASKED];
        if *asked == Some((number, path)) {
            *asked = None;
            self.planes[usize::from(path.port())] = (path.entropy(), now);
        }
    }
}
