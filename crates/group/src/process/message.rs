//! Messages between processes about collectives: short, big-endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | kind |
//! | 3 | zero |
//! | 4 | tag |
//! | 8 | group |
//! | 8 | number: of the collective, or of a sender's offer |
//! | rest | by kind: payload, a text, or 4 bytes landing and 16 bytes of a key and a length |

use strandway_udp::RemoteRegion;

/// Bytes before the rest.
pub(super) const HEAD: usize = 24;
/// The version of this table; processes of different versions do not talk.
const VERSION: u8 = 1;

const HELLO: u8 = 1;
const BYTES: u8 = 2;
const OPEN: u8 = 3;
const TOLD: u8 = 4;
const PARCEL: u8 = 5;
const OFFER: u8 = 6;
const ACCEPT: u8 = 7;
const NUDGE: u8 = 8;

/// A name of a process that nobody else has.
pub(super) type Id = [u8; 16];

/// Where a write goes: what the receiver calls it, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landing {
    pub(super) number: u32,
    pub(super) region: RemoteRegion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// The first message of who began a connection: its name.
    Hello(Id),
    /// A short message of a collective.
    Bytes(&'a [u8]),
    /// Memory is open for a long message of a collective.
    Open(Landing),
    /// The collective has failed at the sender: why.
    Told(&'a str),
    /// A short message for a receive.
    Parcel(&'a [u8]),
    /// A long message for a receive: its length.
    Offer(u64),
    /// Memory is open for the message of an offer.
    Accept(Landing),
    /// Nothing: that it arrives shows that the receiver lives.
    Nudge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) tag: u32,
    pub(super) group: u64,
    pub(super) number: u64,
    pub(super) said: Said<'a>,
}

impl<'a> Message<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, rest): (u8, &[u8]) = match &self.said {
            Said::Hello(id) => (HELLO, id),
            Said::Bytes(bytes) => (BYTES, bytes),
            Said::Parcel(bytes) => (PARCEL, bytes),
            Said::Told(text) => (TOLD, text.as_bytes()),
            Said::Open(_) => (OPEN, &[]),
            Said::Accept(_) => (ACCEPT, &[]),
            Said::Offer(_) => (OFFER, &[]),
            Said::Nudge => (NUDGE, &[]),
        };
        let mut out = Vec::with_capacity(HEAD + rest.len().max(20));
        out.extend_from_slice(&[kind, 0, 0, VERSION]);
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&self.group.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(rest);
        match &self.said {
            Said::Open(landing) | Said::Accept(landing) => {
                out.extend_from_slice(&landing.number.to_be_bytes());
                out.extend_from_slice(&landing.region.to_bytes());
            }
            Said::Offer(length) => out.extend_from_slice(&length.to_be_bytes()),
            _ => {}
        }
        out
    }

    /// `None` if it makes no sense.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        if head[1..4] != [0, 0, VERSION] {
            return None;
        }
        let landing = || -> Option<Landing> {
            let (number, region) = rest.split_first_chunk::<4>()?;
            let region = RemoteRegion::from_bytes(region.try_into().ok()?);
            Some(Landing { number: u32::from_be_bytes(*number), region })
        };
        let said = match head[0] {
            HELLO => Said::Hello(rest.try_into().ok()?),
            BYTES => Said::Bytes(rest),
            OPEN => Said::Open(landing()?),
            TOLD => Said::Told(std::str::from_utf8(rest).ok()?),
            PARCEL => Said::Parcel(rest),
            OFFER => Said::Offer(u64::from_be_bytes(rest.try_into().ok()?)),
            ACCEPT => Said::Accept(landing()?),
            NUDGE if rest.is_empty() => Said::Nudge,
            _ => return None,
        };
        let word = |at: usize| u64::from_be_bytes(*head[at..].first_chunk().expect("24 bytes"));
        let tag = u32::from_be_bytes(*head[4..].first_chunk().expect("24 bytes"));
        Some(Message { tag, group: word(8), number: word(16), said })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_understood() {
        let landing = Landing { number: 7, region: RemoteRegion { key: 1 << 63, bytes: 5 } };
        let all = [
            Said::Hello([3; 16]),
            Said::Bytes(b"abc"),
            Said::Open(landing),
            Said::Told("why"),
            Said::Parcel(b""),
            Said::Offer(1 << 40),
            Said::Accept(landing),
            Said::Nudge,
        ];
        for said in all {
            let message = Message { tag: 9, group: u64::MAX, number: 2, said };
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes: Vec<u8>, kind in 0u8..10) {
            let _ = Message::decode(&bytes);
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[kind, 0, 0, VERSION]);
                if let Some(message) = Message::decode(&bytes) {
                    prop_assert_eq!(message.encode(), bytes);
                }
            }
        }
    }
}
