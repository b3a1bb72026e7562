//! Chunks that arrive are marked and used to rebuild others. Chunks that do not arrive are fetched: here is decided when.

use super::{Caster, Phase, Turn};
use crate::multicast::Cutoff;
use crate::multicast::letters::{Run, Word};
use crate::multicast::repair::{Lacks, Look};
use crate::multicast::silence::Silent;
use strandway_proto::HostId;
use strandway_proto::application::Action;
use strandway_proto::partial::Inserted;
use strandway_proto::units::{Span, Time};

impl Caster<'_> {
    pub(super) fn handle_chunk(
        &mut self,
        now: Time,
        from: HostId,
        (chunk, plane): (u32, u8),
        trimmed: bool,
        last: bool,
    ) {
        if !self.armed() {
            self.counts.unready += u64::from(matches!(self.phase, Phase::Idle | Phase::Here));
            return;
        }
        let parity = chunk >= self.op.layout.numbers();
        if parity && self.op.parity.is_none_or(|parity| chunk >= parity.numbers()) {
            return;
        }
        self.last_chunk = now;
        if let Some(at) = self.last_by_plane.get_mut(usize::from(plane)) {
            *at = now;
        }
        if self.fetching.begun
            && let Some(rank) = self.op.ranks.at(from)
        {
            self.heard[rank as usize] = now;
        }
        let mut settled = false;
        if trimmed {
            self.counts.trimmed += 1;
            // Where there is parity, it may make up for this one.
            if self.op.parity.is_none()
                && !self.progress.has_packet(chunk)
                && !self.op.recovery.blocking
                && self.phase == Phase::Moving
                && let Some(ask) = self.fetching.ask_for(now, self.op, chunk)
            {
                self.fetch(ask);
                settled = true;
            }
        } else {
            settled = self.mark(now, chunk, parity);
        }
        let end = match self.chained {
            // Parity is for all at once.
            true => last.then(|| (self.op.layout.share_of(chunk), Span::ZERO)),
            false => self.op.is_end(chunk, last),
        };
        if let Some((share, behind)) = end {
            let new = !std::mem::replace(&mut self.ends[share as usize], true);
            if let Some(silence) = &mut self.silence {
                silence.end(share);
            }
            // Only the last roots of chains tell that the multicast is over.
            if new && (self.chained || self.op.link(self.op.root_of(share)).last) {
                settled = true;
                self.hurry(now + behind);
            }
        }
        if settled || self.fetching.begun {
            self.go_on(now);
        }
    }

    /// Notes the tree that a chunk came along, and tells its root of those by which nothing comes.
    pub(super) fn watch_trees(&mut self, from: HostId, chunk: u32, way: (u8, u32)) {
        let watching = self.phase == Phase::Moving && !self.fetching.begun;
        let Some(silence) = self.silence.as_mut().filter(|_| watching) else { return };
        let Some(root) = self.op.ranks.at(from).filter(|_| chunk < self.op.layout.numbers()) else { return };
        let share = self.op.layout.share_of(chunk);
        let way = (way.0, way.1 % self.op.trees_used());
        for silent in silence.hear(share, chunk - self.op.layout.first(share), way) {
            self.counts.silent += 1;
            let word = match silent {
                Silent::Plane(plane) => Word::Deaf { planes: 1 << plane },
                Silent::Tree(plane, tree) => Word::DeafTree { plane, tree },
            };
            self.say(root, word);
        }
    }

    /// Marks a chunk that is here. True if that makes something to be done.
    fn mark(&mut self, now: Time, chunk: u32, parity: bool) -> bool {
        if parity {
            let rebuilding = self.rebuilding.as_mut();
            let new = rebuilding.is_some_and(|r| r.take_parity(now, self.op, chunk, &self.progress));
            self.counts.duplicates += u64::from(!new);
            return false;
        }
        let inserted = self.progress.insert(chunk);
        if inserted == Inserted::Duplicate {
            self.counts.duplicates += 1;
            return false;
        }
        self.pass_on(chunk);
        if let Some(rebuilding) = &mut self.rebuilding {
            rebuilding.take_data(now, self.op, chunk, &self.progress);
        }
        self.progress.is_whole()
    }

    /// Rebuilds what parity gives back and what does not seem to come any more.
    pub(super) fn rebuild(&mut self, now: Time) {
        let Some(rebuilding) = &mut self.rebuilding else { return };
        while let Some(rebuild) = rebuilding.due(now, self.fetching.begun, self.op, &self.progress) {
            for chunk in rebuild.missing() {
                self.progress.insert(chunk);
                self.counts.rebuilt += 1;
            }
            self.out.push_back(Action::Rebuild(rebuild));
        }
    }

    /// All roots have been heard to the end, perhaps: what is missing then is lost, or will be here within two round trips.
    pub(super) fn hurry(&mut self, now: Time) {
        let heard = |rank: u32| if rank == self.rank { self.turn == Turn::Done } else { self.ends[rank as usize] };
        let over = match self.op.root {
            Some(_) => self.ends[0],
            None if self.chained => (0..self.op.ranks.count()).all(heard),
            None => self.op.chains.ends().all(heard),
        };
        if over && self.op.cutoff == Cutoff::Tuned {
            self.over_at = self.over_at.min(now + self.op.rtt * 2);
        }
    }

    /// When this rank stops waiting and fetches what it lacks, as far as is known.
    ///
    /// Chunks that come after the cutoff show that others use the links too (ours). To fetch what is only late would add to that, so it waits
    /// until nothing has come, and nothing of its own has left, for four round trips and 200 us.
    pub(super) fn stops_waiting_at(&self) -> Time {
        if self.op.cutoff != Cutoff::Tuned {
            return self.cutoff_at;
        }
        // Multicast sheet, section 6.3: 0.9 of the schedule is over, and nothing comes any more.
        let pause = self.op.rtt * 4;
        let slack = pause + Span::from_us(200);
        let schedule = if self.chained { self.op.chain_schedule() } else { self.op.schedule() };
        let nearly = self.moving_since + schedule.scaled(0.9 * self.slowdown());
        let stirred = self.last_chunk.max(self.last_cast);
        let quiet = nearly.max(stirred + pause.max(Span::from_ms(1)));
        self.over_at.min(quiet).min(self.cutoff_at.max(stirred + slack))
    }

    /// How many times longer all takes at the most, since not all planes are used that every host has.
    pub(super) fn slowdown(&self) -> f64 {
        f64::from(self.op.planes.count_ones()) / f64::from((self.planes & self.op.planes).count_ones().max(1))
    }

    /// Planes by which nothing has come for two round trips while others brought something.
    fn deaf(&self) -> u32 {
        if self.chained {
            // There is one sender, and the planes that this rank has not are known.
            return self.op.planes & !self.up;
        }
        let silent = |at: &Time| *at + self.op.rtt * 2 < self.last_chunk;
        let planes = self.last_by_plane.iter().zip(0..).filter(|(at, _)| silent(at));
        planes.fold(0, |deaf, (_, plane)| deaf | 1 << plane) & self.op.planes
    }

    fn fetch(&mut self, (of, runs): (u32, [Run; 2])) {
        self.counts.fetches += 1;
        let planes = self.deaf();
        if planes != 0 && (self.op.recovery.direct || self.chained) {
            self.say(of, Word::Deaf { planes });
        }
        self.say(of, Word::Fetch(runs));
    }

    /// Is it time to fetch what is missing?
    pub(super) fn look_at_clock(&mut self, now: Time) {
        let moving = self.phase == Phase::Moving && !self.progress.is_whole();
        self.fetching.begun |= moving && now >= self.stops_waiting_at();
    }

    /// Fetches on.
    pub(super) fn look_for_missing(&mut self, now: Time) {
        if self.phase != Phase::Moving || self.progress.is_whole() {
            return;
        }
        let heard = |rank: u32| self.heard[rank as usize];
        let lacks = Lacks { progress: &self.progress, rebuilding: self.rebuilding.as_ref() };
        match self.fetching.look(now, self.op, &lacks, heard) {
            Look::Send(letters) => letters.into_iter().for_each(|letter| self.fetch(letter)),
            Look::Silent(rank) => self.abort(now, Word::Abort { dead: rank }, true),
        }
    }
}
