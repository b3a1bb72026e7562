//! How the sender handles the receiver's control messages, and when it asks the receiver a question.

use super::{Post, RepairSender};
use crate::congestion::LossKind;
use crate::control_message::{ControlMessage, Have, Heard, Missing};
use crate::partial::truncated;
use crate::reliability::{Invalid, Settled};
use crate::units::{Span, Time};

impl RepairSender {
    pub(super) fn on_have(&mut self, now: Time, have: &Have, settled: &mut Settled) {
        let sequence = self.named(have.sequence);
        let Some(sending) = self.get(sequence) else { return };
        if let Some(newest) = sending.states.get(have.newest as usize)
            && newest.tries == 1
            && !newest.is_there
        {
            let sample = now.since(newest.sent_at).0.saturating_sub(u64::from(have.held) * 1_000_000);
            let sample = Span(sample).max(Span::from_us(1));
            self.timing.measured(sample);
            self.rounds = 0;
            settled.rtt = Some(sample);
        }
        let Some(sending) = self.get(sequence) else { return };
        let chunks = sending.chunks;
        let (known, below) = (sending.below, have.cumulative.min(chunks));
        for chunk in known..below {
            self.settle(sequence, chunk, settled);
        }
        if let Some(sending) = self.get_mut(sequence) {
            sending.below = known.max(below);
        }
        let bits = { have.bits }.get();
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            if let Some(chunk) = { have.base }.checked_add(bit).filter(|&chunk| chunk < chunks) {
                self.settle(sequence, chunk, settled);
            }
        }
        if self.get(sequence).is_some_and(|s| s.count == s.chunks && !s.states.is_empty())
            && let Some((post, group)) = self.post_of(sequence)
        {
            self.finish_group(post, group, settled);
        }
    }

    /// The receiver reports how many packets have arrived.
    pub(super) fn on_heard(&mut self, now: Time, heard: &Heard) -> Result<Settled, Invalid> {
        let sequence = self.named(heard.sequence);
        let Some(flight) = &mut self.flight else { return Err(Invalid::BeyondSent) };
        let settled = flight.handle_report(now, heard, sequence)?;
        if let Some(rtt) = settled.rtt {
            self.timing.measured(rtt);
            self.rounds = 0;
        }
        self.heard = self.heard.max(now);
        Ok(settled)
    }

    /// The receiver reports that groups of a message are over.
    pub(super) fn on_recovered(&mut self, have: &Have, settled: &mut Settled) {
        let first = self.named(have.sequence);
        let Some(at) = self.posts.iter().position(|post| post.begun > 0 && post.first == first) else { return };
        let number = self.first_post + at as u64;
        let post = &mut self.posts[at];
        // In this control message, `newest` is the number of packets that the groups so far have lacked, and `held` the
        // number of runs that they form.
        let (lost, runs) = (have.newest, u32::from(have.held));
        if lost > post.lost
            && let Some(chooser) = &mut self.chooser
        {
            chooser.learn(0, lost - post.lost, runs.saturating_sub(post.runs));
            (post.lost, post.runs) = (lost, runs);
        }
        let (post, groups) = (number, post.layout.groups());
        let bits = { have.bits }.get();
        let base = have.base;
        let below = have.cumulative.min(groups);
        let named = (0..64).filter(|bit| bits >> bit & 1 == 1).filter_map(|bit| base.checked_add(bit));
        for group in (0..below).chain(named.filter(|&group| group < groups)) {
            if self.first_post > post {
                return;
            }
            self.finish_group(post, group, settled);
        }
    }

    /// The receiver reports lost chunks: they are sent again, unless they are already queued or were sent just now.
    pub(super) fn on_missing(&mut self, now: Time, missing: &Missing) {
        let sequence = self.named(missing.sequence);
        let Some(chunks) = self.get(sequence).filter(|s| !s.parity).map(|s| s.chunks) else { return };
        for (start, length) in missing.runs() {
            for chunk in start.min(chunks)..start.saturating_add(length).min(chunks) {
                self.send_again(now, sequence, chunk, LossKind::Inferred);
            }
        }
    }

    /// The receiver has nothing of a message: all of its chunks that were sent are sent again.
    pub(super) fn on_unknown(&mut self, now: Time, sequence: u64) {
        let Some((post, _)) = self.post_of(sequence) else { return };
        let &mut Post { first, layout, begun, .. } = self.post_mut(post);
        for group in 0..layout.groups() {
            let place = layout.place(group, false);
            let data = first + u64::from(place);
            let Some(chunks) = self.get(data).filter(|_| place < begun).map(|s| s.chunks) else { continue };
            for chunk in 0..chunks {
                self.send_again(now, data, chunk, LossKind::Inferred);
            }
        }
    }

    /// The receiver accepts no more packets of a stretch.
    pub(super) fn on_over(&mut self, sequence: u64, whole: bool, settled: &mut Settled) {
        let Some((post, group)) = self.post_of(sequence) else { return };
        if whole {
            self.finish_group(post, group, settled);
        } else {
            self.fail();
        }
    }

    /// Asks the receiver about messages whose last packet was sent long ago.
    pub(super) fn ask(&mut self, now: Time) {
        let again = now + self.timing.rto();
        self.ask_at = Time::NEVER;
        for at in 0..self.begun {
            let post = &mut self.posts[at];
            if post.ask_at > now {
                self.ask_at = self.ask_at.min(post.ask_at);
                continue;
            }
            post.ask_at = again;
            self.ask_at = self.ask_at.min(again);
            let (first, layout) = (post.first, post.layout);
            let waits = |place: &u64| self.get(first + place).is_some();
            let place = (0..layout.groups()).map(|group| u64::from(layout.place(group, false))).find(waits);
            if let Some(place) = place {
                self.controls.push_back(ControlMessage::Ask { sequence: truncated(first + place) });
            }
        }
    }
}
