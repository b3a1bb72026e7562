//! The entropy values of one connection, plane by plane: those in use, those in reserve, and the state of each.

use super::MrcConfig;
use crate::packet::PathId;
use crate::path::{PathState, PathStatus as State, PlaneStates};
use crate::rng::Random;
use std::ops::Range;
use std::sync::OnceLock;

/// The number of paths of a plane if the fabric does not tell it; as sprays have.
const UNKNOWN: u32 = 64;

/// The paths of this many planes are brought into the cache before a host sends. Ours: in one visit it seldom sends
/// more packets on its next connection.
const PLANES_AHEAD: usize = 3;

/// A place of the set: a path's entropy and its state in one word, so that a packet reads one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot(u32);

impl Slot {
    /// A place without a path; controllers never allow it.
    const EMPTY: Slot = Slot(1 << 31 | (State::Denied as u32) << PathId::ENTROPY_LIMIT.trailing_zeros());

    const fn new(entropy: u32, state: State) -> Slot {
        Slot((state as u32) << PathId::ENTROPY_LIMIT.trailing_zeros() | entropy)
    }

    const fn is_empty(self) -> bool {
        self.0 >> 31 == 1
    }

    const fn entropy(self) -> u32 {
        self.0 & (PathId::ENTROPY_LIMIT - 1)
    }

    const fn state(self) -> State {
        match self.0 >> PathId::ENTROPY_LIMIT.trailing_zeros() & 3 {
            0 => State::Good,
            1 => State::Skip,
            2 => State::AssumedBad,
            _ => State::Denied,
        }
    }

    /// This path in another state; an empty place stays empty.
    const fn with(self, state: State) -> Slot {
        Slot(Slot::new(self.entropy(), state).0 | self.0 & 1 << 31)
    }

    /// Does it hold the path of this entropy?
    const fn is(self, entropy: u32) -> bool {
        self.0 & (1 << 31 | (PathId::ENTROPY_LIMIT - 1)) == entropy
    }
}

/// The slots of a set. Where all entropies are small, as in most fabrics, a slot takes 16 bits: one of emptiness, two of
/// state, 13 of entropy.
#[derive(Clone, Debug)]
enum Slots {
    Narrow(Box<[u16]>),
    Wide(Box<[Slot]>),
}

impl Slots {
    const ENTROPY_BITS: u32 = 13;

    fn new(slots: &[Slot]) -> Slots {
        if slots.iter().any(|&slot| Slots::narrow(slot).is_none()) {
            return Slots::Wide(slots.into());
        }
        let mut narrow = Vec::with_capacity(slots.len());
        narrow.extend(slots.iter().filter_map(|&slot| Slots::narrow(slot)));
        Slots::Narrow(narrow.into())
    }

    /// A slot in 16 bits, if its entropy is small enough.
    #[inline]
    fn narrow(slot: Slot) -> Option<u16> {
        let upper = u32::from(slot.is_empty()) << 15 | (slot.state() as u32) << Slots::ENTROPY_BITS;
        (slot.entropy() >> Slots::ENTROPY_BITS == 0).then_some((upper | slot.entropy()) as u16)
    }

    #[inline]
    fn widen(narrow: u16) -> Slot {
        let narrow = u32::from(narrow);
        let state = narrow >> Slots::ENTROPY_BITS & 3;
        let entropy = narrow & ((1 << Slots::ENTROPY_BITS) - 1);
        Slot((narrow >> 15) << 31 | state << PathId::ENTROPY_LIMIT.trailing_zeros() | entropy)
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Slots::Narrow(slots) => slots.len(),
            Slots::Wide(slots) => slots.len(),
        }
    }

    #[inline]
    fn get(&self, at: usize) -> Slot {
        match self {
            Slots::Narrow(slots) => Slots::widen(slots[at]),
            Slots::Wide(slots) => slots[at],
        }
    }

    #[inline]
    fn set(&mut self, at: usize, slot: Slot) {
        match (&mut *self, Slots::narrow(slot)) {
            (Slots::Narrow(slots), Some(narrow)) => slots[at] = narrow,
            (Slots::Wide(slots), _) => slots[at] = slot,
            (Slots::Narrow(slots), None) => {
                let mut wide: Box<[Slot]> = slots.iter().map(|&narrow| Slots::widen(narrow)).collect();
                wide[at] = slot;
                *self = Slots::Wide(wide);
            }
        }
    }

    #[inline]
    fn swap(&mut self, a: usize, b: usize) {
        match self {
            Slots::Narrow(slots) => slots.swap(a, b),
            Slots::Wide(slots) => slots.swap(a, b),
        }
    }

    /// The slot in `row` that holds the path of this entropy.
    #[inline]
    fn find(&self, row: Range<usize>, entropy: u32) -> Option<usize> {
        let start = row.start;
        let at = match self {
            Slots::Narrow(slots) => slots[row].iter().position(|&narrow| Slots::widen(narrow).is(entropy)),
            Slots::Wide(slots) => slots[row].iter().position(|slot| slot.is(entropy)),
        };
        at.map(|at| start + at)
    }

    /// The address of a slot.
    #[inline]
    fn address(&self, at: usize) -> *const u8 {
        match self {
            Slots::Narrow(slots) => slots.as_ptr().wrapping_add(at).cast(),
            Slots::Wide(slots) => slots.as_ptr().wrapping_add(at).cast(),
        }
    }
}

/// The set. Each plane has a row of slots, the active ones first, then those in reserve.
#[derive(Clone, Debug)]
pub(super) struct EvSet {
    /// Drawn at the first use, or at the second one if the first only asked for a random path. So an end that receives a
    /// short message has none.
    slots: OnceLock<Slots>,
    /// A random path was asked for.
    asked: bool,
    /// The stream from which the slots are drawn, as it was when the set was made.
    random: Random,
    /// The number of paths of a plane.
    paths: u32,
    planes: Box<[Plane]>,
    /// Slots of a row.
    row: u16,
    /// Active ones among them.
    active: u16,
    /// No path is taken out if at most this many good ones are left.
    pub(super) active_min: u32,
}

#[derive(Clone, Copy, Debug)]
struct Plane {
    /// The active slot that is checked next.
    cursor: u16,
    /// The number of active slots in state `Good` or `Skip`.
    good: u16,
    /// The number of these in state `Skip`.
    skip: u16,
}

impl EvSet {
    pub(super) fn new(config: &MrcConfig, uplinks: [u16; 2], ports: u8, random: &mut Random) -> EvSet {
        let first = u32::from(uplinks[0]);
        let second = u32::from(uplinks[1]).max(1);
        let paths = if first == 0 { UNKNOWN } else { first * second };
        let share = |count: u32, least: u32| (count / u32::from(ports)).max(least);
        let active = share(config.active, 1).min(paths);
        let row = (active + share(config.backup, 0)).min(paths).min(u32::from(u16::MAX));
        let before = *random;
        skip_all(paths, row, ports, random);
        let all_active = active * u32::from(ports);
        let active_min = ((f64::from(row * u32::from(ports)) * config.active_min) as u32).clamp(1, all_active);
        EvSet {
            slots: OnceLock::new(),
            asked: false,
            random: before,
            paths,
            planes: vec![Plane { cursor: 0, good: active as u16, skip: 0 }; usize::from(ports)].into(),
            row: row as u16,
            active: active as u16,
            active_min,
        }
    }

    #[inline]
    fn slots(&self) -> &Slots {
        self.slots.get_or_init(|| {
            let drawn = self.entropies().into_iter();
            Slots::new(&drawn.map(|entropy| Slot::new(entropy, State::Good)).collect::<Vec<_>>())
        })
    }

    /// The entropies that are drawn at first.
    fn entropies(&self) -> Vec<u32> {
        draw_all(self.paths, u32::from(self.row), self.planes.len() as u8, &mut { self.random })
    }

    #[inline]
    fn slots_mut(&mut self) -> &mut Slots {
        self.slots();
        match self.slots.get_mut() {
            Some(slots) => slots,
            None => unreachable!("they were drawn just now"),
        }
    }

    /// Makes a set of exactly these paths, each plane in random order: as many of them active as before, the others in
    /// reserve. A plane that has fewer paths than the plane with the most has denied slots without a path.
    pub(super) fn fill(&mut self, paths: &[PathId], random: &mut Random) {
        let share = self.active;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.planes.len()];
        for path in paths {
            if let Some(row) = rows.get_mut(usize::from(path.port())) {
                row.push(path.entropy());
            }
        }
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0).clamp(1, usize::from(u16::MAX));
        let wanted = u32::from(share) * self.planes.len() as u32;
        (self.row, self.active) = (longest as u16, share.min(longest as u16));
        let mut slots = vec![Slot::EMPTY; longest * rows.len()];
        for (plane, row) in rows.iter_mut().enumerate() {
            random.shuffle(row);
            let start = plane * longest;
            for (slot, &entropy) in slots[start..].iter_mut().zip(&*row) {
                *slot = Slot::new(entropy, State::Good);
            }
            let good = row.len().min(usize::from(self.active)) as u16;
            self.planes[plane] = Plane { cursor: 0, good, skip: 0 };
        }
        self.slots = Slots::new(&slots).into();
        let active: u32 = self.planes.iter().map(|plane| u32::from(plane.good)).sum();
        let floor = (u64::from(self.active_min) * u64::from(active)).div_ceil(u64::from(wanted.max(1)));
        self.active_min = (floor as u32).clamp(1, active.max(1));
    }

    /// Gives a slot another path of its plane, in the slot's state.
    pub(super) fn rename(&mut self, slot: usize, path: PathId) {
        let state = self.state(slot);
        self.slots_mut().set(slot, Slot::new(path.entropy(), state));
    }

    /// Calls `fetch` with the addresses of the next active slots of some planes, from `turn` on.
    #[inline]
    pub(super) fn name_paths(&self, turn: u8, fetch: impl Fn(*const u8)) {
        let Some(slots) = self.slots.get() else { return };
        let (row, count) = (usize::from(self.row), self.planes.len());
        for number in usize::from(turn)..usize::from(turn) + PLANES_AHEAD.min(count) {
            let number = if number < count { number } else { number - count };
            let slot = number * row + usize::from(self.planes[number].cursor);
            fetch(slots.address(slot));
        }
    }

    fn start(&self, port: u8) -> usize {
        usize::from(port) * usize::from(self.row)
    }

    /// The slot of a path; `None` if the set has no such path, because a peer may name any path.
    #[inline]
    pub(super) fn find(&self, path: PathId) -> Option<usize> {
        if usize::from(path.port()) >= self.planes.len() {
            return None;
        }
        let start = self.start(path.port());
        self.slots().find(start..start + usize::from(self.row), path.entropy())
    }

    pub(super) fn state(&self, slot: usize) -> State {
        self.slots().get(slot).state()
    }

    /// All of them, plane by plane.
    pub(super) fn states(&self) -> impl Iterator<Item = PathState> + '_ {
        let slots = (0..self.slots().len()).map(|slot| (slot, self.slots().get(slot)));
        slots.filter(|(_, content)| !content.is_empty()).map(|(slot, content)| PathState {
            path: PathId::new((slot / usize::from(self.row)) as u8, content.entropy()),
            status: content.state(),
            active: self.is_active(slot),
        })
    }

    pub(super) fn is_active(&self, slot: usize) -> bool {
        slot % usize::from(self.row) < usize::from(self.active)
    }

    /// Active slots of a plane that packets may take.
    pub(super) fn good(&self, port: u8) -> u32 {
        u32::from(self.planes[usize::from(port)].good)
    }

    pub(super) fn set_state(&mut self, slot: usize, state: State) {
        let usable = |state: State| matches!(state, State::Good | State::Skip);
        let content = self.slots().get(slot);
        let before = content.state();
        self.slots_mut().set(slot, content.with(state));
        if self.is_active(slot) {
            let plane = &mut self.planes[slot / usize::from(self.row)];
            plane.good -= u16::from(usable(before));
            plane.good += u16::from(usable(state));
            plane.skip -= u16::from(before == State::Skip);
            plane.skip += u16::from(state == State::Skip);
        }
    }

    /// Exchanges two slots of one plane, an active one and one in reserve.
    fn swap(&mut self, active: usize, backup: usize) {
        let (a, b) = (self.slots().get(active), self.slots().get(backup));
        self.set_state(active, b.state());
        self.set_state(backup, a.state());
        self.slots_mut().set(active, b);
        self.slots_mut().set(backup, a);
    }

    /// Replaces an unusable active slot by a good one in reserve on the same plane, if there is one.
    pub(super) fn replace(&mut self, slot: usize) {
        if !self.is_active(slot) {
            return;
        }
        let start = slot - slot % usize::from(self.row);
        let reserve = start + usize::from(self.active)..start + usize::from(self.row);
        if let Some(backup) = reserve.into_iter().find(|&b| self.state(b) == State::Good) {
            self.swap(slot, backup);
        }
    }

    /// Exchanges a reserve slot that is good again with an unusable active slot of its plane, if there is one.
    pub(super) fn promote(&mut self, slot: usize) {
        let start = slot - slot % usize::from(self.row);
        let active = start..start + usize::from(self.active);
        let lame = |s: &usize| matches!(self.state(*s), State::AssumedBad | State::Denied);
        if !self.is_active(slot)
            && let Some(lame) = active.into_iter().find(lame)
        {
            self.swap(lame, slot);
        }
    }

    /// The next active path of a plane whose state is `wanted`; each round has a new random order. The first path in
    /// state `Skip` that the search passes becomes `Good`, and packets take it from its next turn on. If all good paths
    /// are in state `Skip`, that path is used at once.
    #[inline]
    pub(super) fn pick(&mut self, port: u8, wanted: State, random: &mut Random) -> Option<PathId> {
        let start = self.start(port);
        let Plane { good, skip, .. } = self.planes[usize::from(port)];
        if wanted == State::Good && good == 0 {
            return None;
        }
        let all_skip = good == skip;
        let mut restored = None;
        // The rest of the present round, and one further round that visits every slot.
        for _ in 0..2 * u32::from(self.active) {
            let cursor = self.planes[usize::from(port)].cursor;
            let slot = start + usize::from(cursor);
            let content = self.slots().get(slot);
            let path = PathId::new(port, content.entropy());
            let state = content.state();
            if state == State::Skip && wanted == State::Good && restored.is_none() {
                self.set_state(slot, State::Good);
                restored = Some(path);
            }
            if cursor + 1 < self.active {
                self.planes[usize::from(port)].cursor = cursor + 1;
            } else {
                self.planes[usize::from(port)].cursor = 0;
                self.shuffle(start, random);
            }
            if (state == wanted && restored != Some(path)) || (state == State::Skip && all_skip) {
                return Some(path);
            }
        }
        None
    }

    /// A new order for the next round.
    fn shuffle(&mut self, start: usize, random: &mut Random) {
        for i in (1..usize::from(self.active)).rev() {
            let j = random.below(i as u32 + 1) as usize;
            self.slots_mut().swap(start + i, start + j);
        }
    }

    /// A random path of a plane that the controller does not deny, in any other state; a denied one if all are.
    pub(super) fn draw(&mut self, port: u8, random: &mut Random) -> PathId {
        if self.slots.get().is_none() && !std::mem::replace(&mut self.asked, true) {
            // All paths are good, so the first one is taken.
            let slot = self.start(port) + random.below(u32::from(self.row)) as usize;
            return PathId::new(port, self.entropies()[slot]);
        }
        self.draw_known(port, random)
    }

    fn draw_known(&self, port: u8, random: &mut Random) -> PathId {
        let (start, row) = (self.start(port), usize::from(self.row));
        let first = random.below(u32::from(self.row)) as usize;
        let slots = (0..row).map(|i| start + (first + i) % row);
        let real = slots.clone().find(|&slot| self.state(slot) != State::Denied);
        let real = real.or_else(|| slots.into_iter().find(|&slot| !self.slots().get(slot).is_empty()));
        PathId::new(port, real.map_or(0, |slot| self.slots().get(slot).entropy()))
    }

    /// A path of a plane that packets may take.
    pub(super) fn draw_good(&self, port: u8, random: &mut Random) -> Option<PathId> {
        if usize::from(port) >= self.planes.len() {
            return None;
        }
        let start = self.start(port);
        let first = random.below(u32::from(self.active)) as usize;
        let slots = (0..usize::from(self.active)).map(|i| start + (first + i) % usize::from(self.active));
        let good = slots.into_iter().find(|&s| matches!(self.state(s), State::Good | State::Skip));
        Some(
            good.map_or_else(
                || self.draw_known(port, random),
                |slot| PathId::new(port, self.slots().get(slot).entropy()),
            ),
        )
    }

    /// The number of a plane's paths in each state.
    pub(super) fn count(&self, port: u8) -> PlaneStates {
        let start = self.start(port);
        let mut counts = PlaneStates { port, usable: true, ..PlaneStates::default() };
        for i in 0..usize::from(self.row) {
            let slot = self.slots().get(start + i);
            if slot.is_empty() {
                continue;
            }
            match (slot.state(), i < usize::from(self.active)) {
                (State::Good, true) => counts.good += 1,
                (State::Skip, true) => counts.skip += 1,
                (State::Good | State::Skip, false) => counts.backup += 1,
                (State::AssumedBad, _) => counts.assumed_bad += 1,
                (State::Denied, _) => counts.denied += 1,
            }
        }
        counts
    }
}

/// The entropies of all slots of a set, plane by plane.
fn draw_all(paths: u32, row: u32, ports: u8, random: &mut Random) -> Vec<u32> {
    let mut entropies = Vec::with_capacity(row as usize * usize::from(ports));
    for _ in 0..ports {
        draw(paths, row, random, &mut entropies);
    }
    entropies
}

/// Leaves the stream as [`draw_all`] does.
fn skip_all(paths: u32, row: u32, ports: u8, random: &mut Random) {
    if is_shuffled(paths, row) {
        // A shuffle draws one number per item but the first.
        random.skip(u64::from(paths - 1) * u64::from(ports));
    } else {
        draw_all(paths, row, ports, random);
    }
}

/// Does a draw of this many paths shuffle all of them? Where there are many more, it draws until it has enough.
const fn is_shuffled(paths: u32, count: u32) -> bool {
    paths <= 4 * count
}

/// Appends `count` different numbers below `paths` in random order.
fn draw(paths: u32, count: u32, random: &mut Random, out: &mut Vec<u32>) {
    let first = out.len();
    if is_shuffled(paths, count) {
        let mut all: Vec<u32> = (0..paths).collect();
        random.shuffle(&mut all);
        out.extend_from_slice(&all[..count as usize]);
        return;
    }
    while out.len() - first < count as usize {
        let path = random.below(paths);
        if !out[first..].contains(&path) {
            out.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATES: [State; 4] = [State::Good, State::Skip, State::AssumedBad, State::Denied];

    fn slot() -> impl Strategy<Value = Slot> {
        let entropy = prop_oneof![0u32..1 << Slots::ENTROPY_BITS, 0u32..PathId::ENTROPY_LIMIT];
        (entropy, 0usize..4, any::<bool>()).prop_map(|(entropy, state, full)| {
            if full { Slot::new(entropy, STATES[state]) } else { Slot::EMPTY.with(STATES[state]) }
        })
    }

    #[test]
    fn slots_that_are_drawn_later_are_those_that_were_drawn_at_once() {
        for (uplinks, ports) in [([256, 0], 8), ([16, 16], 1), ([0, 0], 4), ([4, 0], 2)] {
            let mut random = Random::new(7, crate::rng::StreamKind::Connection, 12);
            let mut at_once = random;
            let mut set = EvSet::new(&MrcConfig::default(), uplinks, ports, &mut random);
            let drawn = draw_all(set.paths, u32::from(set.row), ports, &mut at_once);
            let (mut early, mut late) = (random, random);
            let path = set.draw(ports - 1, &mut early);
            assert!(set.slots.get().is_none(), "nobody has used them");
            assert_eq!(path, set.draw(ports - 1, &mut late), "the second time from slots");
            assert!(set.slots.get().is_some());
            let slots = set.slots();
            assert_eq!((0..slots.len()).map(|at| slots.get(at).entropy()).collect::<Vec<_>>(), drawn);
            assert_eq!(random.below(1 << 30), at_once.below(1 << 30), "the stream goes on from there");
        }
    }

    proptest! {
        #[test]
        fn slots_keep_their_contents_in_either_width(
            first in prop::collection::vec(slot(), 1..40),
            steps in prop::collection::vec((any::<usize>(), any::<usize>(), prop::option::of(slot())), 0..40),
        ) {
            let mut slots = Slots::new(&first);
            let mut model = first;
            for (a, b, content) in steps {
                let (a, b) = (a % model.len(), b % model.len());
                match content {
                    Some(content) => {
                        slots.set(a, content);
                        model[a] = content;
                    }
                    None => {
                        slots.swap(a, b);
                        model.swap(a, b);
                    }
                }
                let row = a.min(b)..model.len();
                let entropy = model[b].entropy();
                let found = model[row.clone()].iter().position(|slot| slot.is(entropy)).map(|at| row.start + at);
                prop_assert_eq!(slots.find(row, entropy), found);
                prop_assert_eq!((0..slots.len()).map(|at| slots.get(at)).collect::<Vec<_>>(), model.clone());
            }
        }
    }
}
