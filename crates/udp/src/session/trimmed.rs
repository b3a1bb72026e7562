//! Datagrams that a switch has trimmed instead of dropped: the rest says which packet to request again.
//!
//! The tag went with the payload, so nothing here is authenticated. The only effect may be a NACK, which goes to the
//! peer, not to the datagram's source address. No byte is written, nothing is acknowledged, no counter is marked as
//! seen, no address is learnt, and the datagram does not count as a sign of life (docs/security.md).

use super::arriving::complete;
use super::{Piece, Session};
use crate::frame::{Descriptor, FrameError, HEADER, Kind, REQUEST_MAX, Sealed, TRIMMED};
use crate::socket::Arrival;
use strandway_proto::Time;
use strandway_proto::packet::Flags;
use strandway_wire as wire;

/// The part of a body that is read: the longest transport header of data, and a descriptor if it is there.
const START: usize = TRIMMED - HEADER + REQUEST_MAX;

impl Session {
    /// If this datagram was trimmed on its way, requests its packet again; false if it was not.
    pub(super) fn handle_trimmed(&mut self, now: Time, arrival: &Arrival, sealed: &Sealed, datagram: &[u8]) -> bool {
        let above = self.crypto.trimmed_dscp.and_then(|dscp| arrival.dscp().checked_sub(dscp));
        let Some(above @ (0 | 1)) = above else { return false };
        // The answer could not leave by a plane that does not exist. A connection that repairs nothing treats trimmed
        // packets as lost.
        if sealed.kind != Kind::Data
            || self.is_partial()
            || !self.phase.is_confirmed()
            || usize::from(sealed.path.port()) >= self.paths.planes.len()
        {
            return false;
        }
        let body = &datagram[HEADER..];
        let mut start = [0; START];
        let start = &mut start[..body.len().min(START)];
        start.copy_from_slice(&body[..start.len()]);
        if self.crypto.opener.peek(sealed.counter, start).is_err() {
            return false;
        }
        let Ok(packet) = wire::decode(self.format, start) else { return false };
        let Some(piece) = Piece::of(&packet.header, self.mtu) else { return false };
        let header = wire::header_bytes(self.format, &packet);
        let is_whole = match Descriptor::decode(&start[header..]) {
            Ok(descriptor) => header + descriptor.bytes() + piece.length + self.crypto.opener.tag_bytes() <= body.len(),
            Err(error) => error != FrameError::Short,
        };
        if is_whole {
            return false;
        }
        let flags =
            Flags::TRIMMED.with_if(arrival.is_marked(), Flags::CE).with_if(above == 1, Flags::TRIMMED_AT_LAST_HOP);
        self.endpoint.handle_packet(now, &complete(packet, sealed, flags, datagram.len()));
        true
    }
}

#[cfg(test)]
mod tests;
