//! Casts a rank's share, batch by batch, when the rank has the token.

use super::{MulticastRank, Turn};
use crate::multicast::messages::MulticastMessage;
use strandway_proto::units::Time;

impl MulticastRank<'_> {
    /// Casts the share if the rank has the token, and passes the token on when the whole share has left.
    pub(super) fn take_turn(&mut self, now: Time) {
        if self.casting.turn == Turn::Waits && (self.casting.token || self.planes.chained) && now >= self.times.cast_at
        {
            self.casting.turn = Turn::Casts { next: 0, end: 0 };
            self.cast_batch();
        }
        let hands_on = self.op.root.is_none() && !self.planes.chained && !self.op.chains.link(self.rank).last;
        if self.casting.turn == Turn::Done && !std::mem::replace(&mut self.casting.handed_on, true) {
            if hands_on {
                self.owe(now, self.ahead(1), MulticastMessage::Token);
            }
            self.hurry(now);
        }
    }

    /// Hands out the next chunks of the share, followed by their parity. Marks the share as done after its last chunk,
    /// or if there is only one rank.
    fn cast_batch(&mut self) {
        let (Turn::Casts { next, .. }, Some(share)) = (self.casting.turn, self.op.share_of(self.rank)) else { return };
        let count = (self.op.layout.chunks(share) - next).min(self.op.batch());
        if count == 0 || self.op.ranks.count() == 1 {
            self.casting.turn = Turn::Done;
            return;
        }
        let sharing = if self.planes.chained { 1 } else { self.op.sharing(self.rank) };
        let first = self.op.layout.first(share) + next;
        let to = self.audience();
        let mut end = first + count;
        let planes = self.planes_heard();
        self.cast(self.op.cast(to, share, first, count, planes, sharing));
        if let Some(parity) = self.op.parity.filter(|_| !self.planes.chained) {
            let run = parity.of_run(first, count);
            end = run.end;
            self.cast(self.op.cast_parity(share, run, planes, sharing));
        }
        self.casting.turn = Turn::Casts { next: next + count, end };
    }

    /// A cast has left; `left` is the number after its last chunk. If it was the present batch, the next batch follows.
    pub(super) fn handle_cast(&mut self, left: u32) {
        if let Turn::Casts { end, .. } = self.casting.turn
            && left == end
        {
            self.cast_batch();
        }
    }
}
