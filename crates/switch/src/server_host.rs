//! A parameter server as the program of a host, with a service time for each packet.

use crate::server::Server;
use std::collections::{BTreeMap, VecDeque};
use strandway_proto::Packet;
use strandway_proto::aggregate::Counts;
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Program};
use strandway_proto::units::{Span, Time};

/// The speed of a server. ESA sheet, section 13.2: 40 million packets per second, and 3 us from a packet to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPace {
    /// The shortest time between two packets.
    pub service: Span,
    /// The time from the end of a packet's service to its effect.
    pub turnaround: Span,
}

impl Default for ServerPace {
    fn default() -> ServerPace {
        ServerPace { service: Span(25_000), turnaround: Span::from_us(3) }
    }
}

/// The server of one job at its host.
#[derive(Debug)]
pub struct ServerHost {
    server: Server,
    job: u16,
    pace: ServerPace,
    /// Packets in service, each with the time of its effect.
    queue: VecDeque<(Time, Packet)>,
    free_at: Time,
    out: VecDeque<Action>,
}

impl ServerHost {
    /// A server for the job of this number.
    pub fn new(server: Server, job: u16, pace: ServerPace) -> ServerHost {
        ServerHost { server, job, pace, queue: VecDeque::new(), free_at: Time::ZERO, out: VecDeque::new() }
    }

    fn relay(&mut self) {
        while let Some(act) = self.server.poll_act() {
            if let Act::Send { packet, .. } = act {
                self.out.push_back(Action::Fragment(packet));
            }
        }
    }
}

impl Application for ServerHost {
    fn handle_event(&mut self, now: Time, event: &Event) {
        let Event::Fragment(packet) = event else { return };
        let Header::Fragment(fragment) = packet.header else { return };
        if fragment.job != self.job || !Server::hears(fragment.kind) {
            return;
        }
        self.free_at = self.free_at.max(now) + self.pace.service;
        self.queue.push_back((self.free_at + self.pace.turnaround, *packet));
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, packet)) = self.queue.front()
            && at <= now
        {
            self.queue.pop_front();
            self.server.handle_packet(now, &packet);
            self.relay();
        }
        if self.server.poll_timeout() <= now {
            self.server.handle_timeout(now);
            self.relay();
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Time {
        self.queue.front().map_or(Time::NEVER, |served| served.0).min(self.server.poll_timeout())
    }

    fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.server.count(now, into);
    }

    fn is_done(&self) -> bool {
        true
    }
}
