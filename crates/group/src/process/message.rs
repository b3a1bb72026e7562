//! Messages between processes about collectives: short, big-endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | kind |
//! | 1 | version |
//! | 3 | of a collective: its job, element and reduction |
//! | 3 | zero |
//! | 4 | of a collective: its root |
//! | 4 | tag |
//! | 8 | group |
//! | 8 | number: of the collective, or of a sender's offer |
//! | rest | by kind: payload, a text, numbers, or 4 bytes landing and 16 bytes of a key and a length |

use super::element::{Element, Reduction};
use strandway_collective::plan::CollectiveCall;
use strandway_udp::RemoteRegion;

/// Bytes before the rest.
pub(super) const HEAD: usize = 32;
/// The version of this table; processes of different versions do not talk.
const VERSION: u8 = 2;

const HELLO: u8 = 1;
const BYTES: u8 = 2;
const OPEN: u8 = 3;
const TOLD: u8 = 4;
const PARCEL: u8 = 5;
const OFFER: u8 = 6;
const ACCEPT: u8 = 7;
const NUDGE: u8 = 8;
const READY: u8 = 9;
const PULL: u8 = 10;
const PULLED: u8 = 11;
const CREDIT: u8 = 12;
const WITHDRAW: u8 = 13;
const REFUSE: u8 = 14;
const BYE: u8 = 15;
const HELLO_BY_LINK: u8 = 16;

/// The name of a process; no other process has it.
pub(super) type Id = [u8; 16];

/// The target of a write: its number at the receiver, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Landing {
    pub(super) number: u32,
    pub(super) region: RemoteRegion,
}

/// The call of a collective, which each of its messages names, so that ranks notice that they disagree. Zero for other
/// messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signature {
    /// [`CollectiveCall::code`].
    pub(super) job: u8,
    /// [`super::element::Element::code`].
    pub(super) element: u8,
    /// [`super::element::Reduction::code`]; 0 if the job does not reduce.
    pub(super) reduction: u8,
    /// Rank of the root; 0 if the job has none.
    pub(super) root: u32,
}

impl Signature {
    /// The description of a call, which each of its messages carries.
    pub(super) fn of(call: &CollectiveCall, element: Element, reduction: Reduction) -> Signature {
        let element = if matches!(call, CollectiveCall::Barrier) { 0 } else { element.code() };
        let reduction = if call.reduces() { reduction.code() } else { 0 };
        Signature { job: call.code(), element, reduction, root: call.root() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerMessage<'a> {
    /// The first message on a connection: the name of the process that began it.
    Hello(Id),
    /// As [`PeerMessage::Hello`]; later messages and writes go by the link with that process, in both directions.
    HelloByLink(Id),
    /// A short message of a collective. It costs credit until the receiver has asked for it.
    Bytes(&'a [u8]),
    /// A short message of a collective is ready, but the sender has no credit to send it unasked.
    Ready,
    /// The receiver asks for a message that is ready.
    Pull,
    /// A short message of a collective that the receiver has asked for.
    Pulled(&'a [u8]),
    /// The receiver has used this number of bytes of messages, so the sender gets that credit back.
    Credit(u64),
    /// An offer is withdrawn: its sender has given up.
    Withdraw,
    /// The receive for an offer was given up.
    Refuse,
    /// The sender of this message ends. The numbers of messages and writes that it has accepted from the receiver.
    Bye { messages: u64, writes: u64 },
    /// Memory is open for a long message of a collective.
    Open(Landing),
    /// The collective has failed at the sender, for this reason.
    Told(&'a str),
    /// A short message for a receive. It costs credit until a receive takes it.
    Parcel(&'a [u8]),
    /// A long message for a receive: its length.
    Offer(u64),
    /// Memory is open for the message of an offer.
    Accept(Landing),
    /// Nothing. Its acknowledgement shows that the receiver lives.
    Nudge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub(super) signature: Signature,
    pub(super) tag: u32,
    pub(super) group: u64,
    pub(super) number: u64,
    pub(super) said: PeerMessage<'a>,
}

impl<'a> Message<'a> {
    /// A message that belongs to no group.
    pub(super) fn of_process(said: PeerMessage<'a>) -> Message<'a> {
        Message { signature: Signature::default(), tag: 0, group: 0, number: 0, said }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, rest): (u8, &[u8]) = match &self.said {
            PeerMessage::Hello(id) => (HELLO, id),
            PeerMessage::HelloByLink(id) => (HELLO_BY_LINK, id),
            PeerMessage::Bytes(bytes) => (BYTES, bytes),
            PeerMessage::Parcel(bytes) => (PARCEL, bytes),
            PeerMessage::Told(text) => (TOLD, text.as_bytes()),
            PeerMessage::Open(_) => (OPEN, &[]),
            PeerMessage::Accept(_) => (ACCEPT, &[]),
            PeerMessage::Offer(_) => (OFFER, &[]),
            PeerMessage::Nudge => (NUDGE, &[]),
            PeerMessage::Ready => (READY, &[]),
            PeerMessage::Pull => (PULL, &[]),
            PeerMessage::Pulled(bytes) => (PULLED, bytes),
            PeerMessage::Credit(_) => (CREDIT, &[]),
            PeerMessage::Withdraw => (WITHDRAW, &[]),
            PeerMessage::Refuse => (REFUSE, &[]),
            PeerMessage::Bye { .. } => (BYE, &[]),
        };
        let Signature { job, element, reduction, root } = self.signature;
        let mut out = Vec::with_capacity(HEAD + rest.len().max(20));
        out.extend_from_slice(&[kind, VERSION, job, element, reduction, 0, 0, 0]);
        out.extend_from_slice(&root.to_be_bytes());
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&self.group.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
        out.extend_from_slice(rest);
        match &self.said {
            PeerMessage::Open(landing) | PeerMessage::Accept(landing) => {
                out.extend_from_slice(&landing.number.to_be_bytes());
                out.extend_from_slice(&landing.region.to_bytes());
            }
            PeerMessage::Offer(number) | PeerMessage::Credit(number) => out.extend_from_slice(&number.to_be_bytes()),
            PeerMessage::Bye { messages, writes } => {
                out.extend_from_slice(&messages.to_be_bytes());
                out.extend_from_slice(&writes.to_be_bytes());
            }
            _ => {}
        }
        out
    }

    /// Reads a message; `None` if the bytes are not a message.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let &[kind, VERSION, job, element, reduction, 0, 0, 0] = head.first_chunk::<8>()? else { return None };
        let landing = || -> Option<Landing> {
            let (number, region) = rest.split_first_chunk::<4>()?;
            let region = RemoteRegion::from_bytes(region.try_into().ok()?);
            Some(Landing { number: u32::from_be_bytes(*number), region })
        };
        let number = || -> Option<u64> { Some(u64::from_be_bytes(rest.try_into().ok()?)) };
        let said = match kind {
            HELLO => PeerMessage::Hello(rest.try_into().ok()?),
            HELLO_BY_LINK => PeerMessage::HelloByLink(rest.try_into().ok()?),
            BYTES => PeerMessage::Bytes(rest),
            OPEN => PeerMessage::Open(landing()?),
            TOLD => PeerMessage::Told(std::str::from_utf8(rest).ok()?),
            PARCEL => PeerMessage::Parcel(rest),
            OFFER => PeerMessage::Offer(number()?),
            ACCEPT => PeerMessage::Accept(landing()?),
            PULLED => PeerMessage::Pulled(rest),
            CREDIT => PeerMessage::Credit(number()?),
            BYE => {
                let (messages, writes) = rest.split_first_chunk::<8>()?;
                let writes = u64::from_be_bytes(writes.try_into().ok()?);
                PeerMessage::Bye { messages: u64::from_be_bytes(*messages), writes }
            }
            NUDGE | READY | PULL | WITHDRAW | REFUSE if !rest.is_empty() => return None,
            NUDGE => PeerMessage::Nudge,
            READY => PeerMessage::Ready,
            PULL => PeerMessage::Pull,
            WITHDRAW => PeerMessage::Withdraw,
            REFUSE => PeerMessage::Refuse,
            _ => return None,
        };
        let half = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().expect("32 bytes"));
        let word = |at: usize| u64::from_be_bytes(*head[at..].first_chunk().expect("32 bytes"));
        let signature = Signature { job, element, reduction, root: half(8) };
        Some(Message { signature, tag: half(12), group: word(16), number: word(24), said })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use strandway_collective::recipe::PlanCarriage;

    #[test]
    fn every_message_is_decoded_as_it_was_encoded() {
        let landing = Landing { number: 7, region: RemoteRegion::to_write(1 << 63, 5) };
        let all = [
            PeerMessage::Hello([3; 16]),
            PeerMessage::HelloByLink([4; 16]),
            PeerMessage::Bytes(b"abc"),
            PeerMessage::Open(landing),
            PeerMessage::Told("why"),
            PeerMessage::Parcel(b""),
            PeerMessage::Offer(1 << 40),
            PeerMessage::Accept(landing),
            PeerMessage::Nudge,
            PeerMessage::Ready,
            PeerMessage::Pull,
            PeerMessage::Pulled(b"xyz"),
            PeerMessage::Credit(1 << 41),
            PeerMessage::Withdraw,
            PeerMessage::Refuse,
            PeerMessage::Bye { messages: 5, writes: u64::MAX },
        ];
        let signature = Signature { job: 1, element: 200, reduction: 3, root: 1 << 31 };
        for said in all {
            let message = Message { signature, tag: 9, group: u64::MAX, number: 2, said };
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn lengths_are_those_that_simulated_groups_have() {
        let landing = Landing { number: 7, region: RemoteRegion::to_write(1, 5) };
        let length =
            |said| Message { signature: Signature::default(), tag: 0, group: 0, number: 0, said }.encode().len();
        assert_eq!(length(PeerMessage::Bytes(&[])), PlanCarriage::GROUPS.head);
        assert_eq!(length(PeerMessage::Open(landing)), PlanCarriage::GROUPS.open);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0u8..18) {
            let _ = Message::decode(&bytes);
            if bytes.len() >= 8 {
                bytes[..2].copy_from_slice(&[kind, VERSION]);
                bytes[5..8].fill(0);
                if let Some(message) = Message::decode(&bytes) {
                    prop_assert_eq!(message.encode(), bytes);
                }
            }
        }
    }
}
