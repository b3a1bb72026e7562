//! Datagrams that a switch has cut rather than dropped: what is left says which packet to ask for again.
//!
//! The tag went with the rest, so nothing here is authenticated. It may cause a NACK, and that goes to the peer, wherever the
//! datagram came from; no byte is written, nothing is acknowledged, no counter is taken for seen, no address is learnt and no
//! silence is broken by it (docs/security.md).

use super::arriving::complete;
use super::{Piece, Session};
use crate::frame::{DESCRIPTOR_MAX, Descriptor, FrameError, HEADER, Kind, Sealed, TRIMMED};
use crate::socket::Arrival;
use strandway_proto::packet::Flags;
use strandway_proto::{Time, wire};

/// The part of a body that is read: the longest transport header of data and a descriptor, if it was left.
const START: usize = TRIMMED - HEADER + DESCRIPTOR_MAX;

impl Session {
    /// Asks for the packet of this datagram again, if it was cut on its way; false if it is no such datagram.
    pub(super) fn handle_trimmed(&mut self, now: Time, arrival: &Arrival, sealed: &Sealed, datagram: &[u8]) -> bool {
        let above = self.trimmed_dscp.and_then(|dscp| arrival.dscp().checked_sub(dscp));
        let Some(above @ (0 | 1)) = above else { return false };
        // A path that does not exist would leave the answer waiting for ever.
        // On a connection that repairs nothing, what is cut is lost.
        if sealed.kind != Kind::Data
            || self.is_partial()
            || !self.confirmed
            || usize::from(sealed.path.port()) >= self.sides.len()
        {
            return false;
        }
        let body = &datagram[HEADER..];
        let mut start = [0; START];
        let start = &mut start[..body.len().min(START)];
        start.copy_from_slice(&body[..start.len()]);
        if self.opener.peek(sealed.counter, start).is_err() {
            return false;
        }
        let Ok(packet) = wire::decode(self.format, start) else { return false };
        let Some(piece) = Piece::of(&packet.header, self.mtu) else { return false };
        let header = wire::header_bytes(self.format, &packet);
        let is_whole = match Descriptor::decode(&start[header..]) {
            Ok(descriptor) => header + descriptor.bytes() + piece.length + self.opener.tag_bytes() <= body.len(),
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
