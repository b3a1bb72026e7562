//! Rights to memory, and the key to a range that its owner gives to a peer.

use std::ops::BitOr;

/// The things that a peer may do with a range of memory. Each right is separate: who may write may not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// It may write ([`crate::Node::write`]).
    pub const WRITE: Rights = Rights(1);
    /// It may read ([`crate::Node::read`]).
    pub const READ: Rights = Rights(2);
    /// It may add to words of 64 bits, and compare and swap them ([`crate::Node::fetch_add`]).
    pub const ATOMIC: Rights = Rights(4);

    /// Are all of these rights among ours?
    pub const fn has(self, others: Rights) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, others: Rights) -> Rights {
        Rights(self.0 | others.0)
    }
}

/// The data with which a peer reads or writes a region of ours: a key that cannot be guessed, the number of bytes that
/// it opens, and the rights to them.
///
/// Only the peer whose connection it was made for can use it. Send it with [`crate::Node::send`], or in any other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// The key.
    pub key: u64,
    /// Bytes that it opens.
    pub bytes: u64,
    /// The rights of the peer. This copy only tells the peer; the owner's node has its own.
    pub rights: Rights,
}

/// The rights are in the topmost bits of the length, the right to write inverted: a key to write has the form that it
/// had before there were rights.
const RIGHTS: u32 = 61;

impl RemoteRegion {
    /// A range that a key opens for writing.
    pub const fn to_write(key: u64, bytes: u64) -> RemoteRegion {
        RemoteRegion { key, bytes, rights: Rights::WRITE }
    }

    /// As 16 bytes, big-endian: key, length and rights.
    pub fn to_bytes(self) -> [u8; 16] {
        let rights = u64::from(self.rights.0 ^ Rights::WRITE.0) << RIGHTS;
        (u128::from(self.key) << 64 | u128::from(self.bytes | rights)).to_be_bytes()
    }

    /// Reads the bytes that [`RemoteRegion::to_bytes`] wrote. A wrong value does no harm: a write that does not fit the
    /// exposed range ends the connection, and a read is refused.
    pub fn from_bytes(bytes: [u8; 16]) -> RemoteRegion {
        let both = u128::from_be_bytes(bytes);
        let rights = Rights((both as u64 >> RIGHTS) as u8 ^ Rights::WRITE.0);
        RemoteRegion { key: (both >> 64) as u64, bytes: both as u64 & ((1 << RIGHTS) - 1), rights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_to_write_has_the_bytes_that_it_always_had() {
        let remote = RemoteRegion::to_write(7, 1 << 40);
        assert_eq!(remote.to_bytes(), (7u128 << 64 | 1 << 40).to_be_bytes());
        for rights in (0..8).map(Rights) {
            let remote = RemoteRegion { rights, ..remote };
            assert_eq!(RemoteRegion::from_bytes(remote.to_bytes()), remote);
        }
    }
}
