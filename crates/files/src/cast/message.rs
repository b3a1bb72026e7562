//! The messages between the two sides of a cast, over the connection between them, as bytes. Reading checks every
//! length and allocates no more than was received.

use crate::copy::{FileError, MESSAGE_MAX, Malformed, flag};
use std::net::{Ipv6Addr, SocketAddrV6};
use strandway_wire::Reader;

/// The protocol's version; both sides must have the same.
pub(super) const VERSION: u16 = 5;
/// The version of casts that keep more of files than contents, modes and times.
pub(super) const VERSION_MORE: u16 = 6;

/// A team that is being formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// The receiver's rank; the sender has rank 0.
    pub(super) rank: u32,
    pub(super) team: u16,
    /// The UDP port of group addresses; `None` without multicast (0 on the wire).
    pub(super) port: Option<u16>,
    pub(super) trees: u16,
    pub(super) secret: [u8; 32],
    /// The rate at which the slowest member receives, in bits per second.
    pub(super) rate: u64,
    /// The share of that rate at which the sender sends, in millionths.
    pub(super) pace: u32,
    /// A round trip, in microseconds.
    pub(super) rtt_us: u32,
    /// The longest wait for a silent member, in milliseconds.
    pub(super) patience_ms: u32,
    /// Do members trust each other? If not, hashes of its chunks come before each buffer.
    pub(super) trusting: bool,
    /// Chunks of data and of parity in a group; zeros without parity.
    pub(super) parity: [u16; 2],
    /// Payload bytes of a chunk.
    pub(super) payload: u16,
    /// The addresses of all members, plane by plane.
    pub(super) members: Vec<Vec<SocketAddrV6>>,
}

/// A file batch that is cast now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileBatch {
    /// Its slot.
    pub(super) slot: u16,
    /// Its length.
    pub(super) bytes: u32,
    /// The hash of its list of hashes; zeros if members trust each other.
    pub(super) hash: [u8; 32],
    /// The list came with the file batch before.
    pub(super) listed: bool,
    /// Bytes of the next file batch's list, which follows from the next chunk on; zero if it does not.
    pub(super) next: u32,
}

/// A message of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CastMessage {
    /// The sender's first message: blocks of `2^block_log2` bytes, and at most `slots` file batches under way.
    Hello { version: u16, block_log2: u8, slots: u16 },
    /// The receiver takes part.
    Welcome,
    /// The receiver does not take part.
    Refused(FileError),
    /// A message of the copy protocol, in its own encoding.
    Copy(Vec<u8>),
    /// The sender: join this team.
    Form(Form),
    /// The receiver has joined.
    Joined,
    /// The receiver cannot join: the port of group addresses is taken there.
    Taken,
    /// The sender: all have joined; test which planes carry multicast.
    Try,
    /// The receiver has heard all others on these planes.
    Heard(u32),
    /// The sender: these planes are used.
    Planes(u32),
    /// The sender: this file batch is cast now.
    Parcel(FileBatch),
    /// The sender: the cast is over.
    Over,
}

impl Form {
    fn read(reader: &mut Reader<'_>) -> Result<Form, Malformed> {
        let (rank, team, port, trees) = (reader.u32()?, reader.u16()?, reader.u16()?, reader.u16()?);
        let port = Some(port).filter(|port| *port > 0);
        let (secret, rate, pace, rtt_us, patience_ms) =
            (reader.array()?, reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let trusting = flag(reader)?;
        let parity = [reader.u16()?, reader.u16()?];
        let payload = reader.u16()?;
        let planes = usize::from(reader.u8()?);
        let mut members = Vec::new();
        while !reader.is_empty() {
            let mut addresses = Vec::with_capacity(planes);
            for _ in 0..planes {
                addresses.push(SocketAddrV6::new(Ipv6Addr::from(reader.array::<16>()?), reader.u16()?, 0, 0));
            }
            if planes == 0 {
                return Err(Malformed);
            }
            members.push(addresses);
        }
        let form = Form {
            rank,
            team,
            port,
            trees,
            secret,
            rate,
            pace,
            rtt_us,
            patience_ms,
            trusting,
            parity,
            payload,
            members,
        };
        Ok(form)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rank.to_be_bytes());
        [self.team, self.port.unwrap_or(0), self.trees]
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        out.extend_from_slice(&self.secret);
        out.extend_from_slice(&self.rate.to_be_bytes());
        [self.pace, self.rtt_us, self.patience_ms].iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        out.push(u8::from(self.trusting));
        self.parity.iter().chain([&self.payload]).for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
        out.push(self.members.first().map_or(0, Vec::len) as u8);
        for address in self.members.iter().flatten() {
            out.extend_from_slice(&address.ip().octets());
            out.extend_from_slice(&address.port().to_be_bytes());
        }
    }
}

impl CastMessage {
    /// As bytes: a kind, then its fields.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            CastMessage::Hello { version, block_log2, slots } => {
                out.push(1);
                out.extend_from_slice(&version.to_be_bytes());
                out.push(*block_log2);
                out.extend_from_slice(&slots.to_be_bytes());
            }
            CastMessage::Welcome => out.push(2),
            CastMessage::Refused(file_error) => {
                out.push(3);
                out.extend_from_slice(&file_error.number().to_be_bytes());
            }
            CastMessage::Copy(message) => {
                out.push(4);
                out.extend_from_slice(message);
            }
            CastMessage::Form(form) => {
                out.push(5);
                form.put(&mut out);
            }
            CastMessage::Joined => out.push(6),
            CastMessage::Try => out.push(7),
            CastMessage::Heard(planes) | CastMessage::Planes(planes) => {
                out.push(if matches!(self, CastMessage::Heard(_)) { 8 } else { 9 });
                out.extend_from_slice(&planes.to_be_bytes());
            }
            CastMessage::Parcel(FileBatch { slot, bytes, hash, listed, next }) => {
                out.push(10);
                out.extend_from_slice(&slot.to_be_bytes());
                out.extend_from_slice(&bytes.to_be_bytes());
                out.extend_from_slice(hash);
                out.push(u8::from(*listed));
                out.extend_from_slice(&next.to_be_bytes());
            }
            CastMessage::Over => out.push(11),
            CastMessage::Taken => out.push(12),
        }
        out
    }

    /// Reads a message that [`CastMessage::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<CastMessage, Malformed> {
        if bytes.len() > MESSAGE_MAX {
            return Err(Malformed);
        }
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            1 => CastMessage::Hello { version: reader.u16()?, block_log2: reader.u8()?, slots: reader.u16()? },
            2 => CastMessage::Welcome,
            3 => CastMessage::Refused(FileError::numbered(reader.u16()?).ok_or(Malformed)?),
            4 => CastMessage::Copy(reader.rest().to_vec()),
            5 => CastMessage::Form(Form::read(&mut reader)?),
            6 => CastMessage::Joined,
            7 => CastMessage::Try,
            8 => CastMessage::Heard(reader.u32()?),
            9 => CastMessage::Planes(reader.u32()?),
            10 => CastMessage::Parcel(FileBatch {
                slot: reader.u16()?,
                bytes: reader.u32()?,
                hash: reader.array()?,
                listed: flag(&mut reader)?,
                next: reader.u32()?,
            }),
            11 => CastMessage::Over,
            12 => CastMessage::Taken,
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> impl Strategy<Value = CastMessage> {
        let address = (any::<u128>(), any::<u16>()).prop_map(|(ip, port)| SocketAddrV6::new(ip.into(), port, 0, 0));
        let members = prop::collection::vec(prop::collection::vec(address, 2), 0..5);
        let words = (any::<u32>(), any::<u16>(), any::<u16>(), any::<u16>(), any::<[u8; 32]>());
        let more = (any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>());
        let form = (words, more, members).prop_map(|(words, more, members)| {
            let (rank, team, port, trees, secret) = words;
            let (rate, pace, rtt_us, patience_ms, trusting) = more;
            CastMessage::Form(Form {
                rank,
                team,
                port: Some(port).filter(|port| *port > 0),
                trees,
                secret,
                rate,
                pace,
                rtt_us,
                patience_ms,
                trusting,
                parity: [port, trees],
                payload: team,
                members,
            })
        });
        prop_oneof![
            (any::<u16>(), any::<u8>(), any::<u16>()).prop_map(|(version, block_log2, slots)| CastMessage::Hello {
                version,
                block_log2,
                slots
            }),
            Just(CastMessage::Welcome),
            (1u16..20).prop_map(|number| CastMessage::Refused(FileError::numbered(number).expect("a number of one"))),
            prop::collection::vec(any::<u8>(), 0..50).prop_map(CastMessage::Copy),
            form,
            Just(CastMessage::Joined),
            Just(CastMessage::Taken),
            Just(CastMessage::Try),
            any::<u32>().prop_map(CastMessage::Heard),
            any::<u32>().prop_map(CastMessage::Planes),
            (any::<u16>(), any::<u32>(), any::<[u8; 32]>(), any::<bool>(), any::<u32>()).prop_map(
                |(slot, bytes, hash, listed, next)| CastMessage::Parcel(FileBatch { slot, bytes, hash, listed, next })
            ),
            Just(CastMessage::Over),
        ]
    }

    proptest! {
        #[test]
        fn written_files_are_read_back(message in message()) {
            prop_assert_eq!(CastMessage::decode(&message.encode()), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(message in message(), at: prop::sample::Index, byte: u8, noise: Vec<u8>) {
            let mut bytes = message.encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = CastMessage::decode(&bytes);
            bytes.truncate(at);
            let _ = CastMessage::decode(&bytes);
            let _ = CastMessage::decode(&noise);
        }
    }
}
