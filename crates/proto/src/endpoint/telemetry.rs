//! The calls of a world whose switches add records to packets ([`Telemetry`]). A receiver sends the records of a data
//! packet back with its answer; the sender's congestion control reads them.

use super::{CONTROL_MAX, Endpoint, Handled};
use crate::packet::{ConnectionId, Header, HostId, Packet};
use crate::telemetry::Telemetry;
use crate::units::Time;
use std::collections::VecDeque;

/// The records of answers that wait for a port, in the order of the answers.
pub(super) type Echoes = VecDeque<Echo>;

/// An answer, and the records that it takes along.
pub(super) struct Echo {
    answer: (HostId, ConnectionId, Header),
    telemetry: Telemetry,
}

/// The fields of a packet that tell an answer from all others. Its path changes if the port of its path is busy.
fn answer(packet: &Packet) -> Option<(HostId, ConnectionId, Header)> {
    let is_answer = matches!(packet.header, Header::Ack(_) | Header::Nack(_));
    is_answer.then_some((packet.destination, packet.connection, packet.header))
}

impl Endpoint {
    /// As [`Endpoint::handle_packet`], for a packet that came with records of switches.
    pub fn handle_packet_with(&mut self, now: Time, packet: &Packet, telemetry: &Telemetry) -> Handled {
        match packet.header {
            Header::Data(_) => {
                let waiting = self.control.len();
                let handled = self.handle_packet(now, packet);
                if let Some(answer) = self.control.get(waiting).and_then(answer)
                    && self.reads_telemetry(packet)
                {
                    let echoes = self.echoes.get_or_insert_default();
                    if echoes.len() >= CONTROL_MAX {
                        echoes.pop_front();
                    }
                    echoes.push_back(Echo { answer, telemetry: *telemetry });
                }
                handled
            }
            Header::Ack(_) | Header::Nack(_) => {
                if let Some(slot) = self.connections.named_by(packet.source, packet.connection)
                    && let Some(connection) = self.connections.get_mut(slot)
                    && connection.kind().reads_telemetry
                    && !telemetry.records().is_empty()
                {
                    connection.handle_telemetry(now, telemetry);
                }
                self.handle_packet(now, packet)
            }
            _ => self.handle_packet(now, packet),
        }
    }

    /// The records that a packet of [`Endpoint::poll_transmit`] takes along. Call it at most once per packet.
    pub fn take_telemetry(&mut self, packet: &Packet) -> Telemetry {
        let Some(echoes) = &mut self.echoes else { return Telemetry::NONE };
        let place = answer(packet).and_then(|answer| echoes.iter().position(|echo| echo.answer == answer));
        place.and_then(|place| echoes.remove(place)).map_or(Telemetry::NONE, |echo| echo.telemetry)
    }

    /// Does the congestion control of a packet's connection read records?
    fn reads_telemetry(&self, packet: &Packet) -> bool {
        let slot = self.connections.named_by(packet.source, packet.connection);
        slot.and_then(|slot| self.connections.get(slot)).is_some_and(|connection| connection.kind().reads_telemetry)
    }
}
