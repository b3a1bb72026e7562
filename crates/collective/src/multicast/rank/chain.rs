//! Ranks without a common plane. Each rank sends chunks to the next rank on the planes that both have.
//!
//! Ours; multicast sheet, section 16: "unicast tree, said so". Every rank casts its share to the next rank and forwards
//! the chunks that it receives. It forwards no chunk to the rank that multicast it. A rank fetches missing chunks from
//! the rank before it.

use super::MulticastRank;
use crate::multicast::messages::MulticastMessage;
use strandway_proto::HostId;
use strandway_proto::application::{Action, Stage};

impl MulticastRank<'_> {
    /// Called when all ranks have told their planes. If no plane is common to all, the ranks form a chain.
    pub(super) fn choose_way(&mut self) {
        if self.planes.common != 0 || self.op.ranks.count() == 1 {
            return;
        }
        self.planes.chained = true;
        self.fetching.upstream = Some(self.behind(1));
        self.serving.one_asks = true;
        self.stage(Stage::Chained);
        let planes = self.op.planes & !self.planes.up;
        self.send_message(self.behind(1), MulticastMessage::Deaf { planes });
        // With one barrier, chunks may have arrived before this rank knew of the chain: forward them now.
        let shares = (0..self.op.layout.shares()).filter(|&share| self.op.root_of(share) != self.rank);
        let chunks = shares.flat_map(|share| {
            let first = self.op.layout.first(share);
            first..first + self.op.layout.chunks(share)
        });
        let here: Vec<u32> = chunks.filter(|&chunk| self.progress.has_packet(chunk)).collect();
        here.into_iter().for_each(|chunk| self.pass_on(chunk));
    }

    /// True if the operation ends with a barrier. A chain always does: in it the next rank fetches from this one, but
    /// the closing control message of the handshake would come from the rank before.
    pub(super) fn has_close(&self) -> bool {
        self.op.recovery.close || self.planes.chained
    }

    /// The receiver of this rank's casts: the group, or the next rank of a chain.
    pub(super) fn audience(&self) -> HostId {
        if self.planes.chained { self.op.ranks.host(self.ahead(1)) } else { HostId::group(self.op.group) }
    }

    /// The planes on which this rank may cast: those of the group, or those that the next rank of the chain hears.
    pub(super) fn planes_heard(&self) -> u32 {
        let planes = if self.planes.chained { self.planes.up } else { self.planes.common };
        match planes & !self.planes.shunned {
            0 => planes,
            heard => heard,
        }
    }

    /// Forwards a chunk that arrived for the first time, if the ranks form a chain.
    pub(super) fn pass_on(&mut self, chunk: u32) {
        let share = self.op.layout.share_of(chunk);
        if !self.planes.chained || self.op.root_of(share) == self.ahead(1) {
            return;
        }
        let to = self.audience();
        // Consecutive chunks that have not left yet share one action.
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
