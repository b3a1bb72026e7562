//! Marks arriving chunks, rebuilds lost chunks from parity, and decides when to fetch the remaining ones.

use super::{MulticastRank, Phase, Turn};
use crate::multicast::Cutoff;
use crate::multicast::messages::{MulticastMessage, Run};
use crate::multicast::repair::{Lacks, Look};
use crate::multicast::silence::Silent;
use strandway_proto::HostId;
use strandway_proto::application::Action;
use strandway_proto::partial::Inserted;
use strandway_proto::units::{Span, Time};

impl MulticastRank<'_> {
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
        self.times.last_chunk = now;
        if let Some(at) = self.times.last_by_plane.get_mut(usize::from(plane)) {
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
            // With parity, this chunk may be rebuilt instead of fetched.
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
        let end = match self.planes.chained {
            // A chain sends no parity, so the `last` mark is the end.
            true => last.then(|| (self.op.layout.share_of(chunk), Span::ZERO)),
            false => self.op.is_end(chunk, last),
        };
        if let Some((share, behind)) = end {
            let new = !std::mem::replace(&mut self.ends[share as usize], true);
            if let Some(silence) = &mut self.silence {
                silence.end(share);
            }
            // The multicast is over when the last root of each chain has finished; other roots do not count.
            if new && (self.planes.chained || self.op.link(self.op.root_of(share)).last) {
                settled = true;
                self.hurry(now + behind);
            }
        }
        self.serve_waiting(now);
        if settled || self.fetching.begun {
            self.go_on(now);
        }
    }

    /// Counts a chunk for the tree on which it arrived, and reports silent trees and planes to the root.
    pub(super) fn watch_trees(&mut self, from: HostId, chunk: u32, way: (u8, u32)) {
        let watching = self.phase == Phase::Moving && !self.fetching.begun;
        let Some(silence) = self.silence.as_mut().filter(|_| watching) else { return };
        let Some(root) = self.op.ranks.at(from).filter(|_| chunk < self.op.layout.numbers()) else { return };
        let share = self.op.layout.share_of(chunk);
        let way = (way.0, way.1 % self.op.trees_used());
        for silent in silence.handle_chunk(share, chunk - self.op.layout.first(share), way) {
            self.counts.silent += 1;
            let word = match silent {
                Silent::Plane(plane) => MulticastMessage::Deaf { planes: 1 << plane },
                Silent::Tree(plane, tree) => MulticastMessage::DeafTree { plane, tree },
            };
            self.send_message(root, word);
        }
    }

    /// Marks an arrived chunk. Returns true if the rank now has all chunks.
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

    /// Rebuilds lost chunks from parity: those that can be rebuilt and have not arrived in time.
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

    /// If all roots seem to have finished, missing chunks are lost unless they arrive within two round trips.
    pub(super) fn hurry(&mut self, now: Time) {
        let heard =
            |rank: u32| if rank == self.rank { self.casting.turn == Turn::Done } else { self.ends[rank as usize] };
        let over = match self.op.root {
            Some(_) => self.ends[0],
            None if self.planes.chained => (0..self.op.ranks.count()).all(heard),
            None => self.op.chains.ends().all(heard),
        };
        if over && self.op.cutoff == Cutoff::Tuned {
            self.times.over_at = self.times.over_at.min(now + self.op.rtt * 2);
        }
    }

    /// The time at which this rank stops waiting and fetches missing chunks, as far as it knows now.
    ///
    /// Chunks that arrive after the cutoff show that other traffic shares the links (ours). Fetching chunks that are
    /// only late would add to that traffic. So the rank waits until, for four round trips and 200 us, no chunk has
    /// arrived and none of its own has left.
    pub(super) fn stops_waiting_at(&self) -> Time {
        if self.op.cutoff != Cutoff::Tuned {
            return self.times.cutoff_at;
        }
        // Multicast sheet, section 6.3: 0.9 of the schedule has passed and chunks have stopped arriving.
        let pause = self.op.rtt * 4;
        let slack = pause + Span::from_us(200);
        let schedule = if self.planes.chained { self.op.chain_schedule() } else { self.op.schedule() };
        let nearly = self.times.moving_since + schedule.scaled(0.9 * self.slowdown());
        let stirred = self.times.last_chunk.max(self.times.last_cast);
        let quiet = nearly.max(stirred + pause.max(Span::from_ms(1)));
        self.times.over_at.min(quiet).min(self.times.cutoff_at.max(stirred + slack))
    }

    /// The factor by which the operation takes longer at most, because it does not use all planes of the hosts.
    pub(super) fn slowdown(&self) -> f64 {
        f64::from(self.op.planes.count_ones()) / f64::from((self.planes.common & self.op.planes).count_ones().max(1))
    }

    /// Planes on which no chunk has arrived for two round trips although others had arrivals.
    fn deaf(&self) -> u32 {
        if self.planes.chained {
            // All chunks come from one sender, and this rank knows the planes that it lacks.
            return self.op.planes & !self.planes.up;
        }
        let silent = |at: &Time| *at + self.op.rtt * 2 < self.times.last_chunk;
        let planes = self.times.last_by_plane.iter().zip(0..).filter(|(at, _)| silent(at));
        planes.fold(0, |deaf, (_, plane)| deaf | 1 << plane) & self.op.planes
    }

    fn fetch(&mut self, (of, runs): (u32, [Run; 2])) {
        self.counts.fetches += 1;
        let planes = self.deaf();
        if planes != 0 && (self.op.recovery.direct || self.planes.chained) {
            self.send_message(of, MulticastMessage::Deaf { planes });
        }
        self.send_message(of, MulticastMessage::Fetch(runs));
    }

    /// Begins to fetch if it is time.
    pub(super) fn check_clock(&mut self, now: Time) {
        let moving = self.phase == Phase::Moving && !self.progress.is_whole();
        self.fetching.begun |= moving && now >= self.stops_waiting_at();
    }

    /// Sends fetches for missing chunks, first and repeated ones.
    pub(super) fn check_missing(&mut self, now: Time) {
        if self.phase != Phase::Moving || self.progress.is_whole() {
            return;
        }
        let heard = |rank: u32| self.heard[rank as usize];
        let lacks = Lacks { progress: &self.progress, rebuilding: self.rebuilding.as_ref() };
        match self.fetching.find_missing(now, self.op, &lacks, heard) {
            Look::Send(controls) => controls.into_iter().for_each(|control| self.fetch(control)),
            Look::Silent(rank) => self.abort(now, MulticastMessage::Abort { dead: rank }, true),
        }
    }
}
