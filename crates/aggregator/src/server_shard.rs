//! A parameter server with real numbers: the engine and its registers.

use crate::registers::Registers;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Marks};
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Program};
use strandway_proto::units::Time;
use strandway_switch::{Job, Server, System};

/// The most bytes of one job's sums at its parameter server, per port: ours.
const SERVER_BYTES: usize = 64 << 20;
/// A server keeps no key that is more than this number of windows above the watermark: ours. Workers that are a window
/// apart, with watermarks every four windows, need a quarter of it.
const REACH: u64 = 24;

/// The parameter server of a job for the keys of one port.
pub(crate) struct ServerShard {
    server: Server,
    registers: Registers,
    registers_max: usize,
}

impl ServerShard {
    /// The server of a job, after `begins`; `None` if the system has none.
    pub(crate) fn new(job: &Arc<Job>, system: System, begins: impl FnOnce(Server) -> Server) -> Option<ServerShard> {
        let rules = system.rules(true, true)?;
        let reach = REACH * u64::from(job.shape.window);
        Some(ServerShard {
            server: begins(Server::new(job, rules, u64::from(job.shape.number)).within(reach)),
            registers: Registers::new(job.shape.elements, 0),
            registers_max: SERVER_BYTES / (4 * usize::from(job.shape.elements).max(1)),
        })
    }

    /// Handles a packet with its numbers; `send` gets each answer with its numbers.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        packet: &Packet,
        elements: &[i32],
        send: &mut dyn FnMut(Packet, &[i32]),
    ) {
        let Header::Fragment(fragment) = packet.header else { return };
        if !elements.is_empty() && self.server.held() >= self.registers_max {
            // The fragment counts as lost: this job's workers have too many unfinished keys.
            return;
        }
        self.server.handle_packet(now, packet);
        self.act(elements, fragment.marks.has(Marks::FLOAT), send);
    }

    /// The time of [`ServerShard::poll_timeout`] has come.
    pub(crate) fn handle_timeout(&mut self, now: Time, send: &mut dyn FnMut(Packet, &[i32])) {
        self.server.handle_timeout(now);
        self.act(&[], false, send);
    }

    pub(crate) fn poll_timeout(&self) -> Time {
        self.server.poll_timeout()
    }

    /// Registers in use.
    pub(crate) fn held(&self) -> usize {
        self.server.held()
    }

    pub(crate) fn count(&self, now: Time, into: &mut BTreeMap<u16, Counts>) {
        self.server.count(now, into);
    }

    fn act(&mut self, incoming: &[i32], float: bool, send: &mut dyn FnMut(Packet, &[i32])) {
        while let Some(act) = self.server.poll_act() {
            match act {
                Act::Store { to, from } => self.registers.store(to, from, incoming, float),
                Act::Add { to, from } => self.registers.add(to, from, incoming),
                Act::Send { packet, elements } => send(packet, self.registers.get(elements, incoming)),
                Act::Take { .. } | Act::Fail { .. } => {}
            }
        }
    }
}
