//! The control messages of a rank: answers to requests, questions to ranks that it waits for, and the report of a dead
//! rank.

use super::{MulticastRank, Phase, Probe, Turn};
use crate::multicast::StartBarriers;
use crate::multicast::messages::{Barrier, MulticastMessage, Run};
use crate::multicast::owed::Due;
use crate::multicast::repair::Given;
use strandway_proto::HostId;
use strandway_proto::application::{Action, Stage};
use strandway_proto::cast::{Cast, LeftOut};
use strandway_proto::units::Time;

/// The report of a dead rank is sent at most this many times to a rank that does not acknowledge it. Ours.
const ABORT_MAX: u32 = 10;

/// Channels stay open for this many times the patience for an acknowledgement; otherwise each answer to a late question
/// would open a channel. Ours.
const LINGER: u64 = 3;

impl MulticastRank<'_> {
    /// Another rank asks for chunks.
    pub(super) fn serve(&mut self, now: Time, from: u32, runs: [Run; 2]) {
        if matches!(self.phase, Phase::Idle | Phase::Here) {
            return self.send_message(from, MulticastMessage::Alive);
        }
        let mut lacks: Vec<Run> = Vec::new();
        let known = |run: &Run| run.1 > 0 && run.0 < self.op.layout.numbers();
        for (first, count) in runs.into_iter().filter(known) {
            let share = self.op.layout.share_of(first);
            let (op, rank, run) = (self.op, self.rank, (first, u32::from(count)));
            for given in self.serving.answer(now, op, &self.progress, rank, from, run) {
                let (to, first, count) = match given {
                    Given::NotYet(first, count) => {
                        let run = (first, count.min(u32::from(u16::MAX)) as u16);
                        self.serving.remember(op, from, run);
                        lacks.push(run);
                        continue;
                    }
                    Given::One(first, count) => {
                        self.counts.repaired += u64::from(count);
                        (op.ranks.host(from), first, count)
                    }
                    Given::All(first, count) => {
                        self.counts.again += u64::from(count);
                        (HostId::group(op.group), first, count)
                    }
                };
                self.cast(op.cast(to, share, first, count, self.planes_heard(), 1));
            }
        }
        if lacks.is_empty() {
            // The chunks may have to wait for their turn; this control message shows that the rank is alive.
            self.send_message(from, MulticastMessage::Alive);
        }
        for pair in lacks.chunks(2) {
            self.send_message(from, MulticastMessage::NotYet([pair[0], pair.get(1).copied().unwrap_or((0, 0))]));
        }
    }

    /// Answers the remembered requests whose shares are complete now.
    pub(super) fn serve_waiting(&mut self, now: Time) {
        while let Some((from, run)) = self.serving.take_complete(self.op, &self.progress) {
            self.serve(now, from, [run, (0, 0)]);
        }
    }

    /// Casts on the trees that other ranks receive.
    pub(super) fn cast(&mut self, cast: Cast) {
        let left_out = if cast.to.as_group().is_some() { self.left_out } else { LeftOut::NONE };
        self.out.push_back(Action::Cast(Cast { left_out, ..cast }));
    }

    pub(super) fn handle_word(&mut self, now: Time, from: u32, word: MulticastMessage) {
        self.heard[from as usize] = now;
        if let Phase::Aborted(why) = self.phase {
            match word {
                MulticastMessage::Ack(name) => self.owed.acknowledge(from, name),
                MulticastMessage::Abort { .. } | MulticastMessage::Differ { .. } => {
                    self.send_message(from, MulticastMessage::Ack(word.name()))
                }
                _ => self.send_message(from, why),
            }
            return;
        }
        if word.name() != 0 {
            self.send_message(from, MulticastMessage::Ack(word.name()));
        }
        match word {
            MulticastMessage::Token => self.casting.token |= from == self.behind(1),
            MulticastMessage::Fetch(runs) => self.serve(now, from, runs),
            MulticastMessage::Fin => self.fin |= from == self.behind(1),
            MulticastMessage::Barrier { barrier: Barrier::Here, bytes, .. } if bytes != self.op.layout.bytes() => {
                self.abort(now, MulticastMessage::Differ { ranks: [from, self.rank] }, true);
            }
            MulticastMessage::Barrier { barrier, round, planes, .. } => {
                self.barriers.heard[barrier as usize] |= 1u32.checked_shl(u32::from(round)).unwrap_or(0);
                if barrier == Barrier::Here {
                    self.planes.common &= planes;
                }
            }
            MulticastMessage::Ack(name) => self.owed.acknowledge(from, name),
            MulticastMessage::Probe => self.send_message(from, MulticastMessage::Alive),
            MulticastMessage::NotYet(runs) => self.fetching.deny(now, self.op, from, runs),
            MulticastMessage::Deaf { planes } => self.planes.shunned |= planes,
            MulticastMessage::DeafTree { plane, tree } => {
                self.left_out.insert(plane, tree);
            }
            MulticastMessage::Alive => {}
            MulticastMessage::Abort { .. } | MulticastMessage::Differ { .. } => self.abort(now, word, false),
            MulticastMessage::Over => self.end(),
        }
    }

    /// Another rank has passed the last barrier, so all ranks have all chunks.
    fn end(&mut self) {
        if self.phase == Phase::Closing {
            self.stage(Stage::Closed);
            self.phase = Phase::Closed;
        }
        if self.phase == Phase::Closed {
            self.owed.clear();
        }
    }

    /// Gives the operation up; `why` is the reason. The rank that found the reason (`found`) tells all other ranks. The
    /// others tell each rank that asks them.
    pub(super) fn abort(&mut self, now: Time, why: MulticastMessage, found: bool) {
        let ranks = self.op.ranks.count();
        let dead = match why {
            MulticastMessage::Abort { dead } if dead == self.rank || dead >= ranks => return,
            MulticastMessage::Abort { dead } => Some(dead),
            _ => None,
        };
        if matches!(self.phase, Phase::Closed | Phase::Aborted(_)) {
            return;
        }
        self.phase = Phase::Aborted(why);
        self.owed.clear();
        self.probe = None;
        if let Some(dead) = dead {
            self.stage(Stage::Aborted { dead: self.op.ranks.host(dead) });
        }
        if found {
            let own = self.rank;
            for rank in (0..ranks).filter(|&rank| Some(rank) != dead && rank != own) {
                self.owe(now, rank, why);
            }
        }
    }

    /// The rank whose control message this one waits for, if it waits for one certain rank.
    fn awaited(&self) -> Option<u32> {
        let barrier = match self.phase {
            Phase::Here => Barrier::Here,
            Phase::Armed if self.op.opening == StartBarriers::TwoBarriers => Barrier::Armed,
            Phase::Closing if self.has_close() => Barrier::Close,
            Phase::Closing if !self.fin => return Some(self.behind(1)),
            Phase::Moving if self.casting.turn == Turn::Waits => return Some(self.behind(1)),
            _ => return None,
        };
        let round = (!self.barriers.heard[barrier as usize]).trailing_zeros();
        (round < u32::from(self.rounds())).then(|| self.behind(1 << round))
    }

    /// Asks the awaited rank whether it is alive.
    pub(super) fn check_awaited(&mut self, now: Time) {
        let every = self.op.rtt * 4;
        let Some(of) = self.awaited() else {
            self.probe = None;
            return;
        };
        match self.probe {
            Some(probe) if probe.of == of && now < probe.at => {}
            Some(probe) if probe.of == of => {
                let silent = if self.heard[of as usize] >= probe.sent { 0 } else { probe.silent + 1 };
                if silent >= self.op.silent_max {
                    return self.abort(now, MulticastMessage::Abort { dead: of }, true);
                }
                self.repeat_message(of, MulticastMessage::Probe, silent);
                self.probe = Some(Probe { of, at: now + every, sent: now, silent });
            }
            _ => self.probe = Some(Probe { of, at: now + every, sent: now, silent: 0 }),
        }
    }

    /// Repeats a control message. Control messages take planes in turn. If ranks have different planes, every second
    /// repetition is sent twice; otherwise each repetition might take a plane that the receiver does not have.
    fn repeat_message(&mut self, to: u32, word: MulticastMessage, silent: u32) {
        self.send_message(to, word);
        if self.planes.common != self.op.planes && silent % 2 == 1 {
            self.send_message(to, word);
        }
    }

    /// Repeats control messages that were not acknowledged in time.
    pub(super) fn repeat(&mut self, now: Time) {
        let again = self.answer_timeout();
        let most = if let Phase::Aborted(_) = self.phase { ABORT_MAX } else { self.op.silent_max };
        loop {
            let heard = &self.heard;
            match self.owed.due(now, again, most, |rank| heard[rank as usize]) {
                None => return,
                Some(Due::Again(to, word, silent)) => self.repeat_message(to, word, silent),
                Some(Due::Silent(to)) => self.abort(now, MulticastMessage::Abort { dead: to }, true),
            }
        }
    }

    /// When it closes its channels: it has no more control messages to send, and no rank has asked for some time.
    pub(super) fn hangs_up_at(&self) -> Time {
        let over = matches!(self.phase, Phase::Closed | Phase::Aborted(_)) && self.owed.is_empty();
        if over && !self.spoken.is_empty() { self.spoke_at + self.answer_timeout() * LINGER } else { Time::NEVER }
    }

    /// Closes its channels. A later question opens one again.
    pub(super) fn hang_up(&mut self, now: Time) {
        if self.hangs_up_at() <= now {
            let op = self.op;
            let close = std::mem::take(&mut self.spoken).into_iter();
            self.out.extend(close.map(|(rank, answers)| Action::Close { channel: op.channel_to(rank, answers) }));
        }
    }
}
