//! What ranks of a multicast tell each other, as letters.

use strandway_proto::Letter;

/// The first kind of letter of multicasts. Programs of one's own at the same host use others.
const FIRST_KIND: u16 = 0x4d40;

/// A run of chunks: the first, and how many.
pub type Run = (u32, u16);

/// A barrier of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Barrier {
    /// Everybody is here and has closed the operation before.
    Here = 0,
    /// Everybody is ready to receive.
    Armed = 1,
    /// Everybody has everything.
    Close = 2,
}

/// A letter between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The rank before has sent its share: it is the receiver's turn.
    Token,
    /// Send me these chunks.
    Fetch([Run; 2]),
    /// I do not have these either.
    NotYet([Run; 2]),
    /// I hear nothing on these planes any more, one bit each: answer me by others.
    Deaf {
        /// The planes.
        planes: u32,
    },
    /// I have everything, and fetch no more of you.
    Fin,
    /// A barrier has come to this round here.
    Barrier {
        /// Which barrier.
        barrier: Barrier,
        /// The round: the letter goes to the rank `2^round` ahead.
        round: u8,
        /// The planes that all ranks have that this one knows of.
        planes: u32,
        /// Bytes of the sender's buffer, modulo 2^56.
        bytes: u64,
    },
    /// A letter is here that its sender repeats until it knows: its name ([`Word::name`]).
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
    /// The operation is over here: all ranks had everything.
    Over,
    /// I hear nothing along this tree of what you cast.
    DeafTree {
        /// Its plane.
        plane: u8,
        /// Its number among the trees of the plane.
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
    /// A name that tells this letter from others that its sender repeats until they are acknowledged.
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

    /// Does it answer another letter, or accompany one?
    pub fn is_answer(&self) -> bool {
        matches!(
            self,
            Word::Ack(_) | Word::Alive | Word::NotYet(_) | Word::Deaf { .. } | Word::DeafTree { .. } | Word::Over
        )
    }

    /// The answer of a rank that has closed the operation and keeps nothing of it. Its barrier at the end was passed, so that all ranks
    /// have everything; an acknowledgement of the last letter may have been lost.
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

    /// As it travels, for the operation `task`.
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

    /// The operation and the word that a letter carries; `None` if it is no word of ours.
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
