//! Ranks without a common plane. Chunks go from each rank to the next one, on the planes that these two share.
//!
//! Ours; multicast sheet, section 16: "unicast tree, said so". Every rank casts its share to the next rank and passes on what it gets,
//! unless the next one is where that came from. A rank fetches what it lacks from the rank before it.

use super::Caster;
use crate::multicast::letters::Word;
use strandway_proto::HostId;
use strandway_proto::application::{Action, Stage};

impl Caster<'_> {
    /// All ranks have told their planes: if none is common to all, there will be a chain.
    pub(super) fn choose_way(&mut self) {
        if self.planes != 0 || self.op.ranks.count() == 1 {
            return;
        }
        self.chained = true;
        self.fetching.upstream = Some(self.behind(1));
        self.serving.one_asks = true;
        self.stage(Stage::Chained);
        let planes = self.op.planes & !self.up;
        self.say(self.behind(1), Word::Deaf { planes });
        // Where one barrier is enough, chunks may have come before this rank knew of the chain.
        let shares = (0..self.op.layout.shares()).filter(|&share| self.op.root_of(share) != self.rank);
        let chunks = shares.flat_map(|share| {
            let first = self.op.layout.first(share);
            first..first + self.op.layout.chunks(share)
        });
        let here: Vec<u32> = chunks.filter(|&chunk| self.progress.has_packet(chunk)).collect();
        here.into_iter().for_each(|chunk| self.pass_on(chunk));
    }

    /// Does the operation end with a barrier? In a chain the next rank fetches from this one, and last words go the other way.
    pub(super) fn has_close(&self) -> bool {
        self.op.recovery.close || self.chained
    }

    /// To whom this rank casts: the group, or the next rank.
    pub(super) fn audience(&self) -> HostId {
        if self.chained { self.op.ranks.host(self.ahead(1)) } else { HostId::group(self.op.group) }
    }

    /// The planes that this rank may cast by; those of the group, or those that the next rank hears.
    pub(super) fn planes_heard(&self) -> u32 {
        let planes = if self.chained { self.up } else { self.planes };
        match planes & !self.shunned {
            0 => planes,
            heard => heard,
        }
    }

    /// A chunk has come for the first time: the next rank may want it.
    pub(super) fn pass_on(&mut self, chunk: u32) {
        let share = self.op.layout.share_of(chunk);
        if !self.chained || self.op.root_of(share) == self.ahead(1) {
            return;
        }
        let to = self.audience();
        // Neighbours in one go, as long as they wait.
        if let Some(Action::Cast(last)) = self.out.back_mut()
            && last.to == to
            && last.first + last.count == chunk
            && self.op.layout.share_of(last.first) == share
        {
            last.count += 1;
            return;
        }
        self.cast(self.op.cast(to, share, chunk, 1, self.planes_heard(), 1));
    }
}
