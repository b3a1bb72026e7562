//! The heads of what goes through a ring: one half of a cache line, little-endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | kind: 1 message, 2 write |
//! | 4 | of a write: the number of its landing |
//! | 8 | length of what follows |
//! | 8 | of a write: the key of its landing |
//! | 8 | zero |
//!
//! A message follows its head at once. The bytes of a write begin at the next line, and come in pieces.

/// Bytes of a head.
pub(super) const HEAD: usize = 32;

const MESSAGE: u32 = 1;
const WRITE: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    Message { length: u64 },
    Write { landing: u32, key: u64, length: u64 },
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEAD] {
        let (kind, landing, length, key) = match self {
            Head::Message { length } => (MESSAGE, 0, length, 0),
            Head::Write { landing, key, length } => (WRITE, landing, length, key),
        };
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&landing.to_le_bytes());
        bytes[8..16].copy_from_slice(&length.to_le_bytes());
        bytes[16..24].copy_from_slice(&key.to_le_bytes());
        bytes
    }

    /// Reads a head; `None` if the bytes are none.
    pub(super) fn decode(bytes: &[u8; HEAD]) -> Option<Head> {
        let half = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("32 bytes"));
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("32 bytes"));
        let head = match half(0) {
            MESSAGE => Head::Message { length: word(8) },
            WRITE => Head::Write { landing: half(4), key: word(16), length: word(8) },
            _ => return None,
        };
        (head.encode() == *bytes).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes: [u8; HEAD], kind in 0u32..4, landing: u32, key: u64, length: u64) {
            let _ = Head::decode(&bytes);
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            if let Some(head) = Head::decode(&bytes) {
                prop_assert_eq!(head.encode(), bytes);
            }
            for head in [Head::Message { length }, Head::Write { landing, key, length }] {
                prop_assert_eq!(Head::decode(&head.encode()), Some(head));
            }
        }
    }
}
