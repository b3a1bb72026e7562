//! Recorded packets as Ultra Ethernet Transport: the numbers of contexts, and other facts that a packet alone lacks.

use super::message_bytes;
use std::collections::BTreeMap;
use strandway_fabric::measure::Captured;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::{ConnectionId, HostId, MessageId, Packet};
use strandway_scenario::Experiment;
use strandway_wire::uet::pds::Mode;
use strandway_wire::uet::{Conversation, START_PSN};

/// A host and its number of a connection.
type End = (HostId, ConnectionId);

/// The contexts of a capture. A context is opened by the first data that the capture has.
pub(super) struct Contexts<'a> {
    experiment: &'a Experiment,
    /// Bytes of messages whose last packet was recorded, by sender and receiver.
    lengths: BTreeMap<(HostId, HostId, ConnectionId, MessageId), u64>,
    contexts: BTreeMap<End, Context>,
    /// How many numbers each host has given away.
    numbers: BTreeMap<HostId, u16>,
}

/// A context: first what the host with the lower number has, then what the other one has.
#[derive(Clone, Copy)]
struct Context {
    /// The context's numbers.
    numbers: [u16; 2],
    /// The first end sent the first data; `None`: nobody has sent any.
    opened_by_first: Option<bool>,
    /// The other side has answered.
    answered: bool,
    /// The number of packets that the other end has without a hole, as each end knows it.
    acknowledged: [u64; 2],
}

impl<'a> Contexts<'a> {
    pub(super) fn new(experiment: &'a Experiment, captured: &[Captured]) -> Contexts<'a> {
        let mut lengths = BTreeMap::new();
        for Captured { packet, .. } in captured {
            if let Header::Data(data) = packet.header
                && packet.flags.has(Flags::LAST)
            {
                lengths.insert((packet.source, packet.destination, packet.connection, data.message), data.end());
            }
        }
        Contexts { experiment, lengths, contexts: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    /// The facts of a packet for UET, besides the packet itself. Packets come in the order of their departure. `None`
    /// if the plan does not have the connection, the length of a message is not known, or a host has no number left.
    pub(super) fn conversation(&mut self, captured: &Captured) -> Option<Conversation> {
        let packet = &captured.packet;
        let (first, other) = ends(captured)?;
        let from_first = packet.source == first.0;
        if !self.contexts.contains_key(&first) {
            let numbers = [self.number(first.0)?, self.number(other)?];
            let context = Context { numbers, opened_by_first: None, answered: false, acknowledged: [0; 2] };
            self.contexts.insert(first, context);
        }
        let context = self.contexts.get_mut(&first).expect("inserted above");
        let [sender, receiver] = if from_first { [0, 1] } else { [1, 0] };
        match packet.header {
            Header::Data(_) => _ = context.opened_by_first.get_or_insert(from_first),
            Header::Ack(ack) => {
                let known = &mut context.acknowledged[receiver];
                *known = { ack.cumulative }.extend(*known);
            }
            _ => {}
        }
        context.answered |= context.opened_by_first == Some(!from_first);
        let context = *context;
        let message = match packet.header {
            Header::Data(data) => self.length(packet, data.message)?,
            _ => 0,
        };
        Some(Conversation {
            source: context.numbers[sender],
            target: context.numbers[receiver],
            opening: context.opened_by_first == Some(from_first) && !context.answered,
            acknowledged: context.acknowledged[sender],
            received: context.acknowledged[receiver],
            mode: Mode::Unordered,
            start: START_PSN,
            message,
        })
    }

    /// The next number of a host, from 1 on.
    fn number(&mut self, host: HostId) -> Option<u16> {
        let last = self.numbers.entry(host).or_default();
        *last = last.checked_add(1)?;
        Some(*last)
    }

    /// Bytes of a data packet's message.
    fn length(&self, packet: &Packet, message: MessageId) -> Option<u64> {
        let recorded = self.lengths.get(&(packet.source, packet.destination, packet.connection, message)).copied();
        recorded.or_else(|| message_bytes(self.experiment, packet))
    }
}

/// The end of the host with the lower number, and the other host. `None` for connections that the plan does not have.
fn ends(captured: &Captured) -> Option<(End, HostId)> {
    let (packet, number) = (&captured.packet, captured.sender?);
    let (source, destination) = (packet.source, packet.destination);
    if source < destination {
        Some(((source, number), destination))
    } else {
        Some(((destination, packet.connection), source))
    }
}
