//! The bodies of a group's datagrams, as bytes.

use crate::frame::FrameError;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::profile::WireFormat;
use strandway_proto::{ConnectionId, ControlMessage, HostId, Packet, PathId};
use strandway_wire as wire;

/// The flag of the last chunk of a share.
const LAST: u8 = 1;
/// The flag of a chunk that goes to all, along the tree that its datagram names.
const TO_ALL: u8 = 2;

/// The header before the payload of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    /// The operation.
    pub(crate) task: u32,
    /// The chunk's number in the operation.
    pub(crate) chunk: u32,
    /// Payload bytes.
    pub(crate) length: u16,
    /// Is it the last one of its sender's share?
    pub(crate) last: bool,
    /// Does it go to all members?
    pub(crate) to_all: bool,
}

impl ChunkHead {
    /// Its length in bytes.
    pub(crate) const BYTES: usize = 12;

    /// It as the first bytes of a body.
    pub(crate) fn to_bytes(self) -> [u8; ChunkHead::BYTES] {
        let mut bytes = [0; ChunkHead::BYTES];
        bytes[..4].copy_from_slice(&self.task.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.chunk.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.length.to_be_bytes());
        bytes[10] = (u8::from(self.last) * LAST) | (u8::from(self.to_all) * TO_ALL);
        bytes
    }

    /// Reads it from the start of a body, whose payload may be trimmed. Returns it and the rest of the body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(ChunkHead, &[u8]), FrameError> {
        let (head, payload) = bytes.split_first_chunk::<{ ChunkHead::BYTES }>().ok_or(FrameError::Short)?;
        let &[t0, t1, t2, t3, c0, c1, c2, c3, l0, l1, flags, zero] = head;
        if flags & !(LAST | TO_ALL) != 0 || zero != 0 {
            return Err(FrameError::Inconsistent);
        }
        let head = ChunkHead {
            task: u32::from_be_bytes([t0, t1, t2, t3]),
            chunk: u32::from_be_bytes([c0, c1, c2, c3]),
            length: u16::from_be_bytes([l0, l1]),
            last: flags & LAST != 0,
            to_all: flags & TO_ALL != 0,
        };
        Ok((head, payload))
    }
}

/// A control message from member to member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WordBody {
    /// Did it go to all members?
    pub(crate) to_all: bool,
    /// The control message.
    pub(crate) control: ControlMessage,
}

impl WordBody {
    /// Appends it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[u8::from(self.to_all), 0]);
        let packet = Packet {
            source: HostId(0),
            destination: HostId(0),
            connection: ConnectionId(0),
            path: PathId(0),
            size: 0,
            flags: Flags::NONE,
            header: Header::Control(self.control),
        };
        // Control messages have the same bytes in every format.
        let encoded = wire::encode(WireFormat::Uec, &packet, out);
        debug_assert!(encoded.is_ok(), "letters without flags can be written");
    }

    /// Reads a whole body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<WordBody, FrameError> {
        let (&[to_all, zero], control) = bytes.split_first_chunk().ok_or(FrameError::Short)?;
        if to_all > 1 || zero != 0 {
            return Err(FrameError::Inconsistent);
        }
        match wire::decode(WireFormat::Uec, control).map(|packet| packet.header) {
            Ok(Header::Control(control)) => Ok(WordBody { to_all: to_all == 1, control }),
            Ok(_) => Err(FrameError::Unknown),
            Err(_) => Err(FrameError::Inconsistent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bodies_survive_the_wire(task: u32, chunk: u32, length: u16, last: bool, to_all: bool, kind: u16, words: [u32; 4]) {
            let head = ChunkHead { task, chunk, length, last, to_all };
            let mut bytes = head.to_bytes().to_vec();
            bytes.push(7);
            prop_assert_eq!(ChunkHead::decode(&bytes), Ok((head, &[7][..])));
            let word = WordBody { to_all, control: ControlMessage::Custom { kind, words } };
            let mut bytes = Vec::new();
            word.encode(&mut bytes);
            prop_assert_eq!(WordBody::decode(&bytes), Ok(word));
            for length in 0..bytes.len() {
                prop_assert!(WordBody::decode(&bytes[..length]).is_err());
            }
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = ChunkHead::decode(&bytes);
            let _ = WordBody::decode(&bytes);
        }
    }
}
