//! The pauses of a NIC's ports by PFC, for timers that stop during pauses.

use crate::units::{Span, Time};
use std::collections::VecDeque;

/// Limit on the pauses that a port remembers one by one: ours. Older ones are added up.
const KEPT: usize = 64;

/// The pauses of one port.
#[derive(Clone, Debug, Default)]
struct Port {
    /// When the present pause began.
    since: Option<Time>,
    /// Earlier pauses, oldest first: the end and the length. The oldest entry may stand for several pauses.
    past: VecDeque<(Time, Span)>,
}

/// The pauses of all ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses(Vec<Port>);

impl Pauses {
    /// A port is paused, or it is not.
    pub(super) fn set(&mut self, now: Time, port: u8, paused: bool) {
        if self.0.len() <= usize::from(port) {
            self.0.resize_with(usize::from(port) + 1, Port::default);
        }
        let port = &mut self.0[usize::from(port)];
        match (paused, port.since) {
            (true, None) => port.since = Some(now),
            (false, Some(since)) => {
                port.since = None;
                if port.past.len() == KEPT
                    && let Some((_, older)) = port.past.pop_front()
                    && let Some((_, oldest)) = port.past.front_mut()
                {
                    *oldest += older;
                }
                port.past.push_back((now, now.since(since)));
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// The time from `from` to `now` in which the port was paused.
    pub(super) fn within(&self, port: u8, from: Time, now: Time) -> Span {
        let Some(port) = self.0.get(usize::from(port)) else { return Span::ZERO };
        let present = port.since.map_or(Span::ZERO, |since| now.since(since.max(from).min(now)));
        let past = port.past.iter().rev().take_while(|(end, _)| *end > from);
        past.fold(present, |sum, (end, length)| sum + (*length).min(end.since(from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_count_from_the_time_that_is_asked_for() {
        let mut pauses = Pauses::default();
        for (at, paused) in [(10, true), (20, false), (30, true), (31, true), (50, false), (60, true)] {
            pauses.set(Time(at), 2, paused);
        }
        let within = |from: u64, now: u64| pauses.within(2, Time(from), Time(now)).0;
        assert_eq!(within(0, 60), 30);
        assert_eq!(within(15, 64), 5 + 20 + 4);
        assert_eq!(within(45, 64), 5 + 4);
        assert_eq!(within(62, 64), 2);
        assert_eq!(pauses.within(0, Time(0), Time(64)), Span::ZERO);
    }

    #[test]
    fn many_pauses_are_added_up() {
        let mut pauses = Pauses::default();
        for n in 0..1000 {
            pauses.set(Time(10 * n), 0, true);
            pauses.set(Time(10 * n + 3), 0, false);
        }
        assert_eq!(pauses.within(0, Time(0), Time(10_000)), Span(3000));
        assert_eq!(pauses.within(0, Time(9900), Time(10_000)), Span(30));
        assert_eq!(pauses.0[0].past.len(), KEPT);
    }
}
