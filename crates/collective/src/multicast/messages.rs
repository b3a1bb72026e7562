//! The control messages that ranks of a multicast operation send each other.

use strandway_proto::ControlMessage;

/// Control messages of multicast operations have kinds from this number on. Custom programs on the same host use other
/// kinds.
const FIRST_KIND: u16 = 0x4d40;

/// A run of chunks: the first one, and their number.
pub type Run = (u32, u16);

/// A barrier of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Barrier {
    /// Every rank is present and has closed the previous operation.
    Here = 0,
    /// Every rank is ready to receive.
    Armed = 1,
    /// Every rank has all chunks.
    Close = 2,
}

/// A control message between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastMessage {
    /// The previous rank has sent its share; the receiver of this control message casts next.
    Token,
    /// Send me these chunks.
    Fetch([Run; 2]),
    /// I do not have these chunks yet, either.
    NotYet([Run; 2]),
    /// I receive nothing on these planes any more, one bit each: answer on other planes.
    Deaf {
        /// The planes.
        planes: u32,
    },
    /// I have all chunks, and will not fetch from you any more.
    Fin,
    /// The sender has reached this round of a barrier.
    Barrier {
        /// Which barrier.
        barrier: Barrier,
        /// The round: the control message goes to the rank `2^round` ahead.
        round: u8,
        /// The planes that all ranks have, as far as the sender knows.
        planes: u32,
        /// Bytes of the sender's buffer, modulo 2^56.
        bytes: u64,
    },
    /// Acknowledges a control message that its sender repeats until it is acknowledged: the control message's name
    /// ([`MulticastMessage::name`]).
    Ack(u16),
    /// Are you there?
    Probe,
    /// Yes.
    Alive,
    /// The operation is given up: this rank does not answer.
    Abort {
        /// The silent rank.
        dead: u32,
    },
    /// The operation is over at the sender: all ranks had all chunks.
    Over,
    /// I receive none of your chunks along this tree.
    DeafTree {
        /// The plane of the tree.
        plane: u8,
        /// The tree's number in its plane.
        tree: u32,
    },
    /// The operation is given up: the buffers of these two ranks differ in size.
    Differ {
        /// The ranks.
        ranks: [u32; 2],
    },
}

fn pack([a, b]: [Run; 2]) -> [u32; 3] {
    [a.0, b.0, u32::from(a.1) | u32::from(b.1) << 16]
}

fn unpack([a, b, lengths]: [u32; 3]) -> [Run; 2] {
    [(a, lengths as u16), (b, (lengths >> 16) as u16)]
}

impl MulticastMessage {
    /// A name that differs from the names of all other control messages that the same sender repeats.
    pub fn name(&self) -> u16 {
        match *self {
            MulticastMessage::Token => 0x100,
            MulticastMessage::Fin => 0x200,
            MulticastMessage::Barrier { barrier, round, .. } => 0x300 + barrier as u16 * 0x40 + u16::from(round),
            MulticastMessage::Abort { .. } => 0x400,
            MulticastMessage::Differ { .. } => 0x500,
            MulticastMessage::Fetch(_)
            | MulticastMessage::NotYet(_)
            | MulticastMessage::Deaf { .. }
            | MulticastMessage::Ack(_)
            | MulticastMessage::Probe
            | MulticastMessage::Alive
            | MulticastMessage::DeafTree { .. }
            | MulticastMessage::Over => 0,
        }
    }

    /// True if it answers another control message, or accompanies an answer.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            MulticastMessage::Ack(_)
                | MulticastMessage::Alive
                | MulticastMessage::NotYet(_)
                | MulticastMessage::Deaf { .. }
                | MulticastMessage::DeafTree { .. }
                | MulticastMessage::Over
        )
    }

    /// The answer of a rank that has closed the operation and freed its data. Such a rank has passed the closing
    /// barrier, so all ranks have all chunks; perhaps an acknowledgement of the last control message was lost.
    pub fn answer_when_over(&self) -> Option<MulticastMessage> {
        match self {
            MulticastMessage::Ack(_)
            | MulticastMessage::Alive
            | MulticastMessage::NotYet(_)
            | MulticastMessage::Deaf { .. }
            | MulticastMessage::DeafTree { .. }
            | MulticastMessage::Over
            | MulticastMessage::Abort { .. }
            | MulticastMessage::Differ { .. } => None,
            MulticastMessage::Token
            | MulticastMessage::Fetch(_)
            | MulticastMessage::Fin
            | MulticastMessage::Barrier { .. }
            | MulticastMessage::Probe => Some(MulticastMessage::Over),
        }
    }

    /// The control message as it is sent, for the operation `task`.
    pub fn control(&self, task: u32) -> ControlMessage {
        let (kind, [a, b, c]) = match *self {
            MulticastMessage::Token => (0, [0; 3]),
            MulticastMessage::Fetch(runs) => (1, pack(runs)),
            MulticastMessage::NotYet(runs) => (2, pack(runs)),
            MulticastMessage::Fin => (3, [0; 3]),
            MulticastMessage::Barrier { barrier, round, planes, bytes } => {
                let high = (bytes >> 32) as u32;
                (4, [barrier as u32 | u32::from(round) << 2 | high << 8, bytes as u32, planes])
            }
            MulticastMessage::Ack(name) => (5, [u32::from(name), 0, 0]),
            MulticastMessage::Probe => (6, [0; 3]),
            MulticastMessage::Alive => (7, [0; 3]),
            MulticastMessage::Abort { dead } => (8, [dead, 0, 0]),
            MulticastMessage::Deaf { planes } => (9, [planes, 0, 0]),
            MulticastMessage::Over => (10, [0; 3]),
            MulticastMessage::Differ { ranks: [a, b] } => (11, [a, b, 0]),
            MulticastMessage::DeafTree { plane, tree } => (12, [u32::from(plane), tree, 0]),
        };
        ControlMessage::Custom { kind: FIRST_KIND + kind, words: [task, a, b, c] }
    }

    /// The operation and the word in a control message; `None` if the control message is not from a multicast
    /// operation.
    pub fn read(control: &ControlMessage) -> Option<(u32, MulticastMessage)> {
        let ControlMessage::Custom { kind, words: [task, a, b, c] } = *control else { return None };
        let word = match kind.checked_sub(FIRST_KIND)? {
            0 => MulticastMessage::Token,
            1 => MulticastMessage::Fetch(unpack([a, b, c])),
            2 => MulticastMessage::NotYet(unpack([a, b, c])),
            3 => MulticastMessage::Fin,
            4 => {
                let barrier = match a & 3 {
                    0 => Barrier::Here,
                    1 => Barrier::Armed,
                    2 => Barrier::Close,
                    _ => return None,
                };
                let round = (a >> 2 & 0x3f) as u8;
                if round >= 32 {
                    return None;
                }
                MulticastMessage::Barrier { barrier, round, planes: c, bytes: u64::from(a >> 8) << 32 | u64::from(b) }
            }
            5 => MulticastMessage::Ack(u16::try_from(a).ok()?),
            6 => MulticastMessage::Probe,
            7 => MulticastMessage::Alive,
            8 => MulticastMessage::Abort { dead: a },
            9 => MulticastMessage::Deaf { planes: a },
            10 => MulticastMessage::Over,
            11 => MulticastMessage::Differ { ranks: [a, b] },
            12 => MulticastMessage::DeafTree { plane: u8::try_from(a).ok()?, tree: b },
            _ => return None,
        };
        Some((task, word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_travel_and_odd_control_messages_are_nobodys() {
        let runs = [(7, 3), (u32::MAX, u16::MAX)];
        let words = [
            MulticastMessage::Token,
            MulticastMessage::Fetch(runs),
            MulticastMessage::NotYet(runs),
            MulticastMessage::Fin,
            MulticastMessage::Barrier { barrier: Barrier::Close, round: 31, planes: u32::MAX, bytes: (1 << 56) - 1 },
            MulticastMessage::Barrier { barrier: Barrier::Here, round: 0, planes: 1, bytes: 0x12_3456_789a },
            MulticastMessage::Ack(0x3bf),
            MulticastMessage::Probe,
            MulticastMessage::Alive,
            MulticastMessage::Abort { dead: 9 },
            MulticastMessage::Deaf { planes: 5 },
            MulticastMessage::Over,
            MulticastMessage::Differ { ranks: [3, u32::MAX] },
            MulticastMessage::DeafTree { plane: 255, tree: u32::MAX },
        ];
        for word in words {
            assert_eq!(MulticastMessage::read(&word.control(5)), Some((5, word)));
        }
        let odd = |kind, a, b| {
            MulticastMessage::read(&ControlMessage::Custom { kind: FIRST_KIND + kind, words: [0, a, b, 0] })
        };
        assert_eq!((odd(4, 3, 0), odd(4, 32 << 2, 0), odd(5, 1 << 16, 0), odd(13, 0, 0)), (None, None, None, None));
        assert_eq!(MulticastMessage::read(&ControlMessage::Custom { kind: 0, words: [0; 4] }), None);
        assert_eq!(MulticastMessage::read(&ControlMessage::Ask { sequence: 0 }), None);
    }

    #[test]
    fn names_of_repeated_control_messages_differ() {
        let barriers = [Barrier::Here, Barrier::Armed, Barrier::Close];
        let mut names: Vec<u16> = barriers
            .iter()
            .flat_map(|&barrier| {
                (0..32).map(move |round| MulticastMessage::Barrier { barrier, round, planes: 0, bytes: 0 }.name())
            })
            .chain(
                [
                    MulticastMessage::Token,
                    MulticastMessage::Fin,
                    MulticastMessage::Abort { dead: 0 },
                    MulticastMessage::Differ { ranks: [0; 2] },
                ]
                .map(|word| word.name()),
            )
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
