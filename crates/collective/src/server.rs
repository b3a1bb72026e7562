//! Operations among GPUs of one server over the links inside it (NVLink). There are no packets, only a rate and a
//! latency.
//!
//! A collective whose ranks share servers has two parts at the same time. Each rank takes part in a collective of
//! messages with the ranks of its rail on other servers. And the ranks of a server exchange their results inside it. A
//! rank has everything when all ranks of its server have ended their collectives of messages, and the links inside have
//! had enough time for their bytes. Ranks of one server inform each other by signals, which take the latency of these
//! links.

use crate::collective_rank::CollectiveRank;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::units::{Span, Time};
use strandway_proto::{HostId, MessageId};

/// Number of orders of signals between ranks of servers: the limit on GPUs times the limit on streams.
pub const ORDERS: u32 = GPUS_MAX * crate::script::STREAMS_MAX as u32;

/// Limit on the GPUs of a server: ours. The largest NVLink domain on sale has 72, announced ones have 576.
pub const GPUS_MAX: u32 = 1024;

/// A team: the ranks of a group of a job that are in one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Number of ranks.
    pub ranks: u32,
    /// Their hosts, each listed once: several GPUs may share a NIC.
    pub hosts: Vec<HostId>,
}

/// One operation of a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// An index into [`ScriptedJob::teams`](crate::ScriptedJob::teams).
    pub team: u32,
    /// The time for which the links inside the server are busy with it.
    pub span: Span,
}

/// One rank in such an operation, as a program inside the program of the rank.
#[derive(Debug)]
pub struct IntraServer<'a> {
    team: &'a Team,
    local: Local,
    /// Latency of a signal.
    latency: Span,
    /// The word of its signals.
    word: u32,
    /// The rank's program in the collective of messages, if there is one.
    messages: Option<CollectiveRank<'a>>,
    begun: Option<Time>,
    /// The index of the next host that gets the signal that this rank is ready; `None` before it is ready.
    telling: Option<usize>,
    /// Number of ranks that have sent their signal.
    heard: u32,
    /// End time of the operation, once it is known.
    ends: Time,
    complete: bool,
}

impl<'a> IntraServer<'a> {
    /// A rank at the start of the operation.
    pub fn new(
        team: &'a Team,
        local: Local,
        latency: Span,
        word: u32,
        messages: Option<CollectiveRank<'a>>,
    ) -> IntraServer<'a> {
        IntraServer {
            team,
            local,
            latency,
            word,
            messages,
            begun: None,
            telling: None,
            heard: 0,
            ends: Time::NEVER,
            complete: false,
        }
    }

    /// Begins to send signals when the rank's part of messages has ended.
    fn advance(&mut self) {
        let over = self.messages.as_ref().is_none_or(Application::is_complete);
        if self.begun.is_some() && over && self.telling.is_none() {
            self.telling = Some(0);
        }
    }
}

impl Application for IntraServer<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        if let Event::Signal { word, .. } = *event {
            if word != self.word {
                return;
            }
            self.heard += 1;
            let Some(begun) = self.begun.filter(|_| self.heard == self.team.ranks) else { return };
            self.ends = match self.messages {
                // The links inside were busy while messages travelled.
                Some(_) => now.max(begun + self.local.span),
                // The last rank began when it sent its signal.
                None => now.max(Time(now.0.saturating_sub(self.latency.0)) + self.local.span),
            };
            self.complete = self.ends <= now;
            return;
        }
        if let Some(messages) = &mut self.messages {
            messages.handle_event(now, event);
        }
        self.advance();
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.ends <= now {
            self.complete = true;
        } else if let Some(messages) = &mut self.messages {
            messages.handle_timeout(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        if let Some(&to) = self.telling.and_then(|at| self.team.hosts.get(at)) {
            self.telling = self.telling.map(|at| at + 1);
            // The program of the rank sets the order.
            return Some(Action::Signal { to, at: now + self.latency, order: 0, word: self.word });
        }
        self.messages.as_mut()?.poll_action(now)
    }

    fn poll_timeout(&self) -> Time {
        let own = if self.complete { Time::NEVER } else { self.ends };
        self.messages.as_ref().map_or(own, |messages| own.min(messages.poll_timeout()))
    }

    fn owns(&self, message: MessageId) -> bool {
        self.messages.as_ref().is_some_and(|messages| messages.owns(message))
    }

    fn begin(&mut self, now: Time) {
        self.begun = Some(now);
        if let Some(messages) = &mut self.messages {
            messages.begin(now);
        }
        self.advance();
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn is_done(&self) -> bool {
        self.complete && self.messages.as_ref().is_none_or(Application::is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the ranks of one server, each from its start time, and returns their end times.
    fn ends(begins: &[u64], span: u64, latency: u64) -> Vec<u64> {
        let team = Team { ranks: begins.len() as u32, hosts: vec![HostId(0)] };
        let local = Local { team: 0, span: Span(span) };
        let mut ranks: Vec<IntraServer<'_>> =
            begins.iter().map(|_| IntraServer::new(&team, local, Span(latency), 5, None)).collect();
        let mut signals = Vec::new();
        let mut ends = vec![0; begins.len()];
        for now in 0..1000 {
            for (rank, _) in ranks.iter_mut().zip(begins).filter(|(_, begin)| **begin == now) {
                rank.begin(Time(now));
            }
            for _ in signals.iter().filter(|at| **at == Time(now)) {
                ranks.iter_mut().for_each(|r| r.handle_event(Time(now), &Event::Signal { order: 0, word: 5 }));
            }
            for (rank, end) in ranks.iter_mut().zip(&mut ends) {
                if rank.poll_timeout() <= Time(now) {
                    rank.handle_timeout(Time(now));
                }
                while let Some(Action::Signal { at, .. }) = rank.poll_action(Time(now)) {
                    signals.push(at);
                }
                if rank.is_complete() && *end == 0 {
                    *end = now;
                }
            }
        }
        ends
    }

    #[test]
    fn ranks_of_a_server_end_together_behind_the_last_one() {
        assert_eq!(ends(&[10, 10, 10], 100, 20), [110; 3]);
        assert_eq!(ends(&[10, 50, 10], 100, 20), [150; 3]);
        assert_eq!(ends(&[10, 50], 5, 20), [70; 2], "nothing is faster than a signal");
    }
}
