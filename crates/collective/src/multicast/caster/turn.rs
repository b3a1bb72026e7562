//! What a rank casts, and when: its turn, its share batch by batch, and the end of it.

use super::{Caster, Turn};
use crate::multicast::letters::Word;
use strandway_proto::units::Time;

impl Caster<'_> {
    /// Casts its share if its turn has come, and hands the turn on when all of it has left.
    pub(super) fn take_turn(&mut self, now: Time) {
        if self.turn == Turn::Waits && (self.token || self.chained) && now >= self.cast_at {
            self.turn = Turn::Casts { next: 0, end: 0 };
            self.cast_batch();
        }
        let hands_on = self.op.root.is_none() && !self.chained && !self.op.chains.link(self.rank).last;
        if self.turn == Turn::Done && !std::mem::replace(&mut self.handed_on, true) {
            if hands_on {
                self.owe(now, self.ahead(1), Word::Token);
            }
            self.hurry(now);
        }
    }

    /// Hands out the next chunks of its share, and their parity behind them; after the last ones, or alone, it is done.
    fn cast_batch(&mut self) {
        let (Turn::Casts { next, .. }, Some(share)) = (self.turn, self.op.share_of(self.rank)) else { return };
        let count = (self.op.layout.chunks(share) - next).min(self.op.batch());
        if count == 0 || self.op.ranks.count() == 1 {
            self.turn = Turn::Done;
            return;
        }
        let sharing = if self.chained { 1 } else { self.op.sharing(self.rank) };
        let first = self.op.layout.first(share) + next;
        let to = self.audience();
        let mut end = first + count;
        let planes = self.planes_heard();
        self.cast(self.op.cast(to, share, first, count, planes, sharing));
        if let Some(parity) = self.op.parity.filter(|_| !self.chained) {
            let run = parity.of_run(first, count);
            end = run.end;
            self.cast(self.op.cast_parity(share, run, planes, sharing));
        }
        self.turn = Turn::Casts { next: next + count, end };
    }

    /// The last chunk of something cast to all has left: of its present batch, or of chunks that were cast again.
    pub(super) fn handle_cast(&mut self, left: u32) {
        if let Turn::Casts { end, .. } = self.turn
            && left == end
        {
            self.cast_batch();
        }
    }
}
