//! The account of a connection's time, and of the waits of its packets.
//!
//! The account changes nothing: no engine reads it. Times add up exactly: the times spent on all kinds of [`Doing`]
//! between two instants add up to the time between them.

use crate::congestion::Cut;
use crate::units::{Span, Time};

/// A sender's activity at an instant, or the thing that it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// Nothing is posted.
    #[default]
    Idle,
    /// It may send, but its port is busy with its own or other packets.
    Line,
    /// It waits for the congestion window or for the rate. The window was never cut.
    Window,
    /// As `Window`, and the latest cut was by marks.
    WindowMarks,
    /// As `Window`, and the latest cut was by delay.
    WindowDelay,
    /// As `Window`, and the latest cut was by a lost or trimmed packet.
    WindowLoss,
    /// There is something to send, but the range of PSNs or a cap on bytes in flight is used up.
    Range,
    /// All is sent, and acknowledgements are on their way.
    Tail,
    /// It retransmits, or all is sent and the last packet was a retransmission.
    Recovery,
    /// It waited for a retransmission timeout. This is known only when the timeout fires.
    Timeout,
    /// It may send, but all its ports are paused (PFC) or down.
    Paused,
}

impl Doing {
    /// The number of kinds.
    pub const COUNT: usize = 11;

    /// All of them, in the order of [`Spent`].
    pub const ALL: [Doing; Doing::COUNT] = [
        Doing::Idle,
        Doing::Line,
        Doing::Window,
        Doing::WindowMarks,
        Doing::WindowDelay,
        Doing::WindowLoss,
        Doing::Range,
        Doing::Tail,
        Doing::Recovery,
        Doing::Timeout,
        Doing::Paused,
    ];

    /// The kind of waiting for a window whose latest cut had this reason.
    #[inline]
    pub(crate) const fn window(cut: Cut) -> Doing {
        match cut {
            Cut::Never => Doing::Window,
            Cut::Marks => Doing::WindowMarks,
            Cut::Delay => Doing::WindowDelay,
            Cut::Loss => Doing::WindowLoss,
        }
    }

    /// Does it count for a message all of whose packets have been sent?
    const fn lasts(self) -> bool {
        matches!(self, Doing::Recovery | Doing::Timeout)
    }

    /// Does it use a port, or wait for one?
    #[inline]
    pub(crate) const fn is_sending(self) -> bool {
        matches!(self, Doing::Line | Doing::Recovery)
    }
}

/// The time spent on each kind of activity, in the order of [`Doing::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent(pub [Span; Doing::COUNT]);

impl Spent {
    /// The time spent on `doing`.
    pub const fn on(&self, doing: Doing) -> Span {
        self.0[doing as usize]
    }

    /// The sum of all times.
    pub fn total(&self) -> Span {
        Span(self.0.iter().map(|s| s.0).sum())
    }

    /// Called on the reading at a message's beginning, when its last packet has been sent for the first time; `sent` is
    /// the reading of that moment. From then on, all its times but recovery and timeout count as waiting for
    /// acknowledgements ([`Doing::Tail`]). The rest here, and the span that is returned, are enough for
    /// [`Spent::with_tail`]: one reading is kept instead of two.
    pub fn turn_to_tail(&mut self, sent: &Spent) -> Span {
        let mut others = Span::ZERO;
        for (doing, (begin, sent)) in Doing::ALL.into_iter().zip(self.0.iter_mut().zip(&sent.0)) {
            if !doing.lasts() {
                *begin = Span(sent.0 - begin.0);
                others += *sent;
            }
        }
        others
    }

    /// The times of a message until the reading `now`: see [`Spent::turn_to_tail`].
    pub fn with_tail(&self, sent: Span, now: &Spent) -> Spent {
        let mut spent = *self;
        let mut others = Span::ZERO;
        for (doing, (time, now)) in Doing::ALL.into_iter().zip(spent.0.iter_mut().zip(&now.0)) {
            if doing.lasts() {
                *time = Span(now.0 - time.0);
            } else {
                others += *now;
            }
        }
        spent.0[Doing::Tail as usize] += Span(others.0 - sent.0);
        spent
    }

    /// The times spent since an earlier reading.
    pub fn since(&self, earlier: &Spent) -> Spent {
        let mut spent = *self;
        for (all, before) in spent.0.iter_mut().zip(&earlier.0) {
            *all -= *before;
        }
        spent
    }
}

impl core::ops::AddAssign for Spent {
    fn add_assign(&mut self, one: Spent) {
        for (all, more) in self.0.iter_mut().zip(&one.0) {
            *all += *more;
        }
    }
}

/// A sender's clock: its present activity, and since when.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Clock {
    spent: Spent,
    since: Time,
    /// When a packet was last sent or acknowledged.
    pub(crate) heard: Time,
    pub(crate) doing: Doing,
}

impl Clock {
    /// Changes the activity at `now`.
    #[inline]
    pub(crate) fn turn_to(&mut self, now: Time, doing: Doing) {
        if self.doing != doing {
            self.spent.0[self.doing as usize] += now.since(self.since);
            self.since = now;
            self.doing = doing;
        }
    }

    /// A retransmission timeout has fired: the time since the last packet was sent or acknowledged counts as `Timeout`.
    pub(crate) fn timed_out(&mut self, now: Time) {
        if self.doing == Doing::Idle {
            return;
        }
        let from = self.since.max(self.heard.min(now));
        self.spent.0[self.doing as usize] += from.since(self.since);
        self.spent.0[Doing::Timeout as usize] += now.since(from);
        self.since = now;
    }

    /// The times up to `now`. A timeout that fires later does not change a time that was read before.
    pub(crate) fn read(&mut self, now: Time) -> Spent {
        if now > self.since {
            self.spent.0[self.doing as usize] += now.since(self.since);
            self.since = now;
        }
        self.spent
    }
}

/// A packet's longest wait at any port, and the link of that port. The world writes it into each packet; no wire format
/// has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wait {
    /// In units of 1,024 ps ([`Wait::SHIFT`]), rounded down; saturates.
    pub length: u32,
    /// The number of the port's link, with [`Wait::LAST_HOP`] set if the link leads to the receiver.
    pub link: u32,
}

impl Wait {
    /// `length << SHIFT` is picoseconds.
    pub const SHIFT: u32 = 10;

    /// This bit of [`Wait::link`] is set if the link leads to the receiver.
    pub const LAST_HOP: u32 = 1 << 31;
}

/// The waits of a connection's data packets, as its receiver sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Waits {
    /// Data packets that arrived, trimmed ones included.
    pub packets: u64,
    /// When new payload last arrived.
    pub last_arrival: Time,
    /// The sum of the longest waits of packets that waited longest at the link to the receiver.
    pub last_hop: Span,
    /// The sum of the longest waits of all other packets.
    pub elsewhere: Span,
    /// The link, other than the last one, at which packets waited most, and its lead over all others in picoseconds
    /// (`lead`). It is the winner of a majority vote: every packet votes for the link of its longest wait, and the wait
    /// is the weight of the vote. The winner is certain if one link has more than half of all weight; `lead` is zero if
    /// there was no wait.
    pub link: u32,
    /// See [`Waits::link`].
    pub lead: u64,
}

impl Waits {
    /// A data packet has arrived.
    #[inline]
    pub(crate) fn arrived(&mut self, wait: Wait) {
        self.packets += 1;
        if wait.length == 0 {
            return;
        }
        let ps = u64::from(wait.length) << Wait::SHIFT;
        if wait.link & Wait::LAST_HOP != 0 {
            self.last_hop += Span(ps);
            return;
        }
        self.elsewhere += Span(ps);
        if self.link == wait.link {
            self.lead += ps;
        } else if ps <= self.lead {
            self.lead -= ps;
        } else {
            self.link = wait.link;
            self.lead = ps - self.lead;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The times of a message since its last packet was sent.
    fn awaiting(since: &Spent) -> Spent {
        let mut spent = Spent::default();
        for (doing, span) in Doing::ALL.into_iter().zip(since.0) {
            spent.0[if doing.lasts() { doing } else { Doing::Tail } as usize] += span;
        }
        spent
    }

    proptest! {
        #[test]
        fn one_reading_is_enough_for_the_time_after_the_last_packet(
            readings in prop::collection::vec(prop::array::uniform11(0u64..1_000_000), 3)
        ) {
            let mut sum = Spent::default();
            let readings = readings.into_iter().map(|more| {
                sum += Spent(more.map(Span));
                sum
            });
            let [begin, sent, now]: [Spent; 3] = readings.collect::<Vec<_>>().try_into().expect("three");
            let mut right = sent.since(&begin);
            right += awaiting(&now.since(&sent));
            let mut kept = begin;
            let others = kept.turn_to_tail(&sent);
            prop_assert_eq!(kept.with_tail(others, &now), right);
        }

        #[test]
        fn times_add_up(steps in prop::collection::vec((0u64..1000, 0usize..Doing::COUNT, 0u8..4), 1..200)) {
            let mut clock = Clock::default();
            let mut now = Time::ZERO;
            let mut readings = vec![(now, clock.read(now))];
            for (delay, doing, what) in steps {
                now = now + Span(delay);
                match what {
                    0 => clock.heard = now,
                    1 => clock.timed_out(now),
                    2 => readings.push((now, clock.read(now))),
                    _ => clock.turn_to(now, Doing::ALL[doing]),
                }
            }
            let end = clock.read(now);
            prop_assert_eq!(end.total(), now.since(Time::ZERO));
            for (at, reading) in readings {
                prop_assert_eq!(end.since(&reading).total(), now.since(at));
            }
        }

        #[test]
        fn a_majority_wins_the_vote(others in prop::collection::vec((1u32..5, 1u32..100), 0..50), at in 0usize..50) {
            let sum: u32 = others.iter().map(|(_, length)| length).sum();
            let mut packets: Vec<Wait> = others.iter().map(|&(link, length)| Wait { length, link }).collect();
            packets.insert(at.min(packets.len()), Wait { length: sum + 1, link: 7 });
            let mut waits = Waits::default();
            packets.iter().for_each(|wait| waits.arrived(*wait));
            prop_assert_eq!(waits.link, 7);
            prop_assert_eq!(waits.elsewhere, Span(u64::from(2 * sum + 1) << Wait::SHIFT));
        }
    }
}
