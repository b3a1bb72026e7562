//! Requests between NICs of which a node waits for the answers, in MRC's layout.

use crate::handles::Connection;
use std::collections::VecDeque;
use strandway_proto::PathId;
use strandway_proto::packet::Answer;

/// The most requests that wait for an answer; the oldest is forgotten first. Ours.
const REQUESTS_MAX: usize = 1_024;
/// A request that this node has sent.
struct Asked {
    wire: u16,
    from: Connection,
    number: u16,
    port_status: bool,
    path: PathId,
}

/// Requests between NICs: a node has one sequence of numbers for port statuses and one for probes, and each
/// connection's engine has its own. The two are apart because a receiver ignores a status with an older number, and
/// probes are frequent.
#[derive(Default)]
pub(crate) struct Requests {
    asked: VecDeque<Asked>,
    next_status: u16,
    next_probe: u16,
}

impl Requests {
    /// The number on the wire of an engine's request. Copies of a port status over several paths have the same.
    pub(crate) fn ask(&mut self, from: Connection, number: u16, port_status: bool, path: PathId) -> u16 {
        let same = |asked: &&Asked| {
            asked.from == from
                && asked.number == number
                && asked.port_status == port_status
                && (port_status || asked.path == path)
        };
        if let Some(asked) = self.asked.iter().rev().find(same) {
            return asked.wire;
        }
        if self.asked.len() >= REQUESTS_MAX {
            self.asked.pop_front();
        }
        let next = if port_status { &mut self.next_status } else { &mut self.next_probe };
        let wire = *next;
        *next = next.wrapping_add(1);
        self.asked.push_back(Asked { wire, from, number, port_status, path });
        wire
    }

    /// The connection whose engine asked, and the answer in its numbers. The entry stays for answers of further copies.
    pub(crate) fn answer(&self, wire: u16, port_status: bool) -> Option<(Connection, Answer)> {
        let asked = self.asked.iter().rev().find(|asked| asked.wire == wire && asked.port_status == port_status)?;
        Some((asked.from, Answer { port_status, number: asked.number, path: asked.path }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_status_have_one_number_and_answers_go_to_who_asked() {
        let mut requests = Requests::default();
        let (a, b) = (Connection::test(1), Connection::test(2));
        let [p, q] = [0, 1].map(|port| PathId::new(port, 5));
        let first = requests.ask(a, 9, true, p);
        assert_eq!(requests.ask(a, 9, true, q), first);
        let second = requests.ask(b, 9, true, p);
        let third = requests.ask(a, 9, false, q);
        assert_eq!([first, second, third], [0, 1, 0]);
        assert_eq!(requests.answer(second, true).map(|(from, _)| from), Some(b));
        let answer = Answer { port_status: false, number: 9, path: q };
        assert_eq!(requests.answer(third, false), Some((a, answer)));
        assert_eq!(requests.answer(second, false), None, "the status has that number, no probe");
        for number in 0..2_000 {
            requests.ask(b, number, false, p);
        }
        assert_eq!(requests.asked.len(), REQUESTS_MAX);
        assert_eq!(requests.answer(first, true), None, "forgotten");
    }
}
