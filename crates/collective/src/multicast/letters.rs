//! The letters that ranks of a multicast operation send each other.

use strandway_proto::Letter;

/// Letters of multicast operations have kinds from this number on. Custom programs on the same host use other kinds.
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

/// A letter between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The previous rank has sent its share; the receiver of this letter casts next.
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
        /// The round: the letter goes to the rank `2^round` ahead.
        round: u8,
        /// The planes that all ranks have, as far as the sender knows.
        planes: u32,
        /// Bytes of the sender's buffer, modulo 2^56.
        bytes: u64,
    },
    /// Acknowledges a letter that its sender repeats until it is acknowledged: the letter's name ([`Word::name`]).
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

impl Word {
    /// A name that differs from the names of all other letters that the same sender repeats.
    pub fn name(&self) -> u16 {
        match *self {
            Word::Token => 0x100,
            Word::Fin => 0x200,
            Word::Barrier { barrier, round, .. } => 0x300 + barrier as u16 * 0x40 + u16::from(round),
            Word::Abort { .. } => 0x400,
            Word::Differ { .. } => 0x500,
            Word::Fetch(_)
            | Word::NotYet(_)
            | Word::Deaf { .. }
            | Word::Ack(_)
            | Word::Probe
            | Word::Alive
            | Word::DeafTree { .. }
            | Word::Over => 0,
        }
    }

    /// True if it answers another letter, or accompanies an answer.
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Word::Ack(_) | Word::Alive | Word::NotYet(_) | Word::Deaf { .. } | Word::DeafTree { .. } | Word::Over
        )
    }

    /// The answer of a rank that has closed the operation and freed its data. Such a rank has passed the closing
    /// barrier, so all ranks have all chunks; perhaps an acknowledgement of the last letter was lost.
    pub fn answer_when_over(&self) -> Option<Word> {
        match self {
            Word::Ack(_)
            | Word::Alive
            | Word::NotYet(_)
            | Word::Deaf { .. }
            | Word::DeafTree { .. }
            | Word::Over
            | Word::Abort { .. }
            | Word::Differ { .. } => None,
            Word::Token | Word::Fetch(_) | Word::Fin | Word::Barrier { .. } | Word::Probe => Some(Word::Over),
        }
    }

    /// The letter as it is sent, for the operation `task`.
    pub fn letter(&self, task: u32) -> Letter {
        let (kind, [a, b, c]) = match *self {
            Word::Token => (0, [0; 3]),
            Word::Fetch(runs) => (1, pack(runs)),
            Word::NotYet(runs) => (2, pack(runs)),
            Word::Fin => (3, [0; 3]),
            Word::Barrier { barrier, round, planes, bytes } => {
                let high = (bytes >> 32) as u32;
                (4, [barrier as u32 | u32::from(round) << 2 | high << 8, bytes as u32, planes])
            }
            Word::Ack(name) => (5, [u32::from(name), 0, 0]),
            Word::Probe => (6, [0; 3]),
            Word::Alive => (7, [0; 3]),
            Word::Abort { dead } => (8, [dead, 0, 0]),
            Word::Deaf { planes } => (9, [planes, 0, 0]),
            Word::Over => (10, [0; 3]),
            Word::Differ { ranks: [a, b] } => (11, [a, b, 0]),
            Word::DeafTree { plane, tree } => (12, [u32::from(plane), tree, 0]),
        };
        Letter::Custom { kind: FIRST_KIND + kind, words: [task, a, b, c] }
    }

    /// The operation and the word in a letter; `None` if the letter is not from a multicast operation.
    pub fn read(letter: &Letter) -> Option<(u32, Word)> {
        let Letter::Custom { kind, words: [task, a, b, c] } = *letter else { return None };
        let word = match kind.checked_sub(FIRST_KIND)? {
            0 => Word::Token,
            1 => Word::Fetch(unpack([a, b, c])),
            2 => Word::NotYet(unpack([a, b, c])),
            3 => Word::Fin,
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
                Word::Barrier { barrier, round, planes: c, bytes: u64::from(a >> 8) << 32 | u64::from(b) }
            }
            5 => Word::Ack(u16::try_from(a).ok()?),
            6 => Word::Probe,
            7 => Word::Alive,
            8 => Word::Abort { dead: a },
            9 => Word::Deaf { planes: a },
            10 => Word::Over,
            11 => Word::Differ { ranks: [a, b] },
            12 => Word::DeafTree { plane: u8::try_from(a).ok()?, tree: b },
            _ => return None,
        };
        Some((task, word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_travel_and_odd_letters_are_nobodys() {
        let runs = [(7, 3), (u32::MAX, u16::MAX)];
        let words = [
            Word::Token,
            Word::Fetch(runs),
            Word::NotYet(runs),
            Word::Fin,
            Word::Barrier { barrier: Barrier::Close, round: 31, planes: u32::MAX, bytes: (1 << 56) - 1 },
            Word::Barrier { barrier: Barrier::Here, round: 0, planes: 1, bytes: 0x12_3456_789a },
            Word::Ack(0x3bf),
            Word::Probe,
            Word::Alive,
            Word::Abort { dead: 9 },
            Word::Deaf { planes: 5 },
            Word::Over,
            Word::Differ { ranks: [3, u32::MAX] },
            Word::DeafTree { plane: 255, tree: u32::MAX },
        ];
        for word in words {
            assert_eq!(Word::read(&word.letter(5)), Some((5, word)));
        }
        let odd = |kind, a, b| Word::read(&Letter::Custom { kind: FIRST_KIND + kind, words: [0, a, b, 0] });
        assert_eq!((odd(4, 3, 0), odd(4, 32 << 2, 0), odd(5, 1 << 16, 0), odd(13, 0, 0)), (None, None, None, None));
        assert_eq!(Word::read(&Letter::Custom { kind: 0, words: [0; 4] }), None);
        assert_eq!(Word::read(&Letter::Ask { sequence: 0 }), None);
    }

    #[test]
    fn names_of_repeated_letters_differ() {
        let barriers = [Barrier::Here, Barrier::Armed, Barrier::Close];
        let mut names: Vec<u16> = barriers
            .iter()
            .flat_map(|&barrier| (0..32).map(move |round| Word::Barrier { barrier, round, planes: 0, bytes: 0 }.name()))
            .chain(
                [Word::Token, Word::Fin, Word::Abort { dead: 0 }, Word::Differ { ranks: [0; 2] }]
                    .map(|word| word.name()),
            )
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
