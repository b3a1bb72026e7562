//! Descriptors: what a message of data is for, and where its payload belongs.

use super::{DESCRIPTOR_MAX, FrameError, REQUEST_MAX, array, u64_at};
use crate::error::Refusal;

/// Where the payload of a message belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// Into the receive of this number.
    Send {
        /// Counts the sends of a connection's direction, wrapping.
        number: u32,
    },
    /// Into registered memory.
    Write {
        /// The key that the memory's owner gave out.
        key: u64,
        /// Where the message starts, in bytes from the start of the range that the key opens.
        start: u64,
        /// A number for the memory's owner, which is told of the message only if there is one.
        immediate: Option<u32>,
    },
    /// Asks for bytes of registered memory.
    Read {
        /// The number of the request.
        number: u32,
        /// The key that the memory's owner gave out.
        key: u64,
        /// Where the bytes start, from the start of the range that the key opens.
        start: u64,
        /// How many.
        bytes: u64,
    },
    /// Asks for a change of a word of registered memory.
    Atomic {
        /// The number of the request.
        number: u32,
        /// The key that the memory's owner gave out.
        key: u64,
        /// Where the word starts, in bytes from the start of the range that the key opens.
        start: u64,
        /// The change.
        change: Change,
    },
    /// Into the memory that waits for the answer to a request.
    Answer {
        /// The number of the request.
        number: u32,
    },
    /// The word as it was before a change.
    Word {
        /// The number of the request.
        number: u32,
        /// The word.
        word: u64,
    },
    /// A request is refused.
    Refusal {
        /// The number of the request.
        number: u32,
        /// Why.
        refusal: Refusal,
    },
}

/// A change of a word of 64 bits, which happens once and at once. The word has the byte order of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This number is added; the sum wraps.
    Add(u64),
    /// If it is `expected`, it becomes `new`.
    Swap {
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        new: u64,
    },
}

impl Change {
    /// The word after the change.
    pub const fn apply(self, word: u64) -> u64 {
        match self {
            Change::Add(number) => word.wrapping_add(number),
            Change::Swap { expected, new } => {
                if word == expected {
                    new
                } else {
                    word
                }
            }
        }
    }
}

impl Descriptor {
    /// Its length in bytes.
    pub const fn bytes(&self) -> usize {
        match self {
            Descriptor::Send { .. } | Descriptor::Answer { .. } | Descriptor::Refusal { .. } => 8,
            Descriptor::Write { .. } => DESCRIPTOR_MAX,
            Descriptor::Word { .. } => 16,
            Descriptor::Read { .. } | Descriptor::Atomic { change: Change::Add(_), .. } => 32,
            Descriptor::Atomic { change: Change::Swap { .. }, .. } => REQUEST_MAX,
        }
    }

    /// May its message have payload?
    pub const fn has_payload(&self) -> bool {
        matches!(self, Descriptor::Send { .. } | Descriptor::Write { .. } | Descriptor::Answer { .. })
    }

    /// Appends it.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Descriptor::Send { number } => {
                let [n0, n1, n2, n3] = number.to_be_bytes();
                out.extend_from_slice(&[0, 0, 0, 0, n0, n1, n2, n3]);
            }
            Descriptor::Write { key, start, immediate } => {
                let mut bytes = [0; DESCRIPTOR_MAX];
                bytes[0] = 1 + u8::from(immediate.is_some());
                bytes[4..8].copy_from_slice(&immediate.unwrap_or(0).to_be_bytes());
                bytes[8..16].copy_from_slice(&key.to_be_bytes());
                bytes[16..24].copy_from_slice(&start.to_be_bytes());
                out.extend_from_slice(&bytes);
            }
            Descriptor::Read { number, key, start, bytes } => request(out, 3, 0, number, &[key, start, bytes]),
            Descriptor::Atomic { number, key, start, change: Change::Add(add) } => {
                request(out, 4, 0, number, &[key, start, add]);
            }
            Descriptor::Atomic { number, key, start, change: Change::Swap { expected, new } } => {
                request(out, 5, 0, number, &[key, start, expected, new]);
            }
            Descriptor::Answer { number } => request(out, 6, 0, number, &[]),
            Descriptor::Word { number, word } => request(out, 7, 0, number, &[word]),
            Descriptor::Refusal { number, refusal } => request(out, 8, refusal.code(), number, &[]),
        }
    }

    /// Reads one from the start of `bytes`; payload follows it.
    ///
    /// # Errors
    /// If `bytes` does not start with one.
    pub fn decode(bytes: &[u8]) -> Result<Descriptor, FrameError> {
        let &[operation, a, b, c] = array::<4>(bytes, 0)?;
        if [b, c] != [0; 2] || (a != 0 && operation != 8) {
            return Err(FrameError::Inconsistent);
        }
        let word = u32::from_be_bytes(*array(bytes, 4)?);
        let number = word;
        match operation {
            0 => Ok(Descriptor::Send { number: word }),
            1 | 2 => {
                if operation == 1 && word != 0 {
                    return Err(FrameError::Inconsistent);
                }
                let immediate = (operation == 2).then_some(word);
                Ok(Descriptor::Write { key: u64_at(bytes, 8)?, start: u64_at(bytes, 16)?, immediate })
            }
            3..=5 => {
                let (key, start, third) = (u64_at(bytes, 8)?, u64_at(bytes, 16)?, u64_at(bytes, 24)?);
                let change = match operation {
                    3 => return Ok(Descriptor::Read { number, key, start, bytes: third }),
                    4 => Change::Add(third),
                    _ => Change::Swap { expected: third, new: u64_at(bytes, 32)? },
                };
                Ok(Descriptor::Atomic { number, key, start, change })
            }
            6 => Ok(Descriptor::Answer { number }),
            7 => Ok(Descriptor::Word { number, word: u64_at(bytes, 8)? }),
            8 => Ok(Descriptor::Refusal { number, refusal: Refusal::of_code(a).ok_or(FrameError::Unknown)? }),
            _ => Err(FrameError::Unknown),
        }
    }
}

/// Appends a request or the answer to one.
fn request(out: &mut Vec<u8>, operation: u8, reason: u8, number: u32, words: &[u64]) {
    out.extend_from_slice(&[operation, reason, 0, 0]);
    out.extend_from_slice(&number.to_be_bytes());
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn descriptors() -> impl Strategy<Value = Descriptor> {
        prop_oneof![
            any::<u32>().prop_map(|number| Descriptor::Send { number }),
            (any::<u64>(), any::<u64>(), any::<Option<u32>>()).prop_map(|(key, start, immediate)| Descriptor::Write {
                key,
                start,
                immediate
            }),
            (any::<u32>(), any::<[u64; 4]>(), 0usize..6).prop_map(|(number, [key, start, first, second], kind)| {
                let refusals = [Refusal::NoKey, Refusal::NoRight, Refusal::Range, Refusal::TooMany];
                let swap = Change::Swap { expected: first, new: second };
                [
                    Descriptor::Read { number, key, start, bytes: first },
                    Descriptor::Atomic { number, key, start, change: Change::Add(first) },
                    Descriptor::Atomic { number, key, start, change: swap },
                    Descriptor::Answer { number },
                    Descriptor::Word { number, word: first },
                    Descriptor::Refusal { number, refusal: refusals[(first % 4) as usize] },
                ][kind]
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_descriptor_survives_the_wire(descriptor in descriptors(), behind in prop::collection::vec(any::<u8>(), 0..9)) {
            let mut bytes = Vec::new();
            descriptor.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), descriptor.bytes());
            bytes.extend(behind);
            prop_assert_eq!(Descriptor::decode(&bytes), Ok(descriptor));
            prop_assert_eq!(Descriptor::decode(&bytes[..descriptor.bytes() - 1]), Err(FrameError::Short));
        }
    }
}
