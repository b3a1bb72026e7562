//! The key that both sides of a connection know beforehand.

use crate::cipher::{expand, extract};
use crate::error::Error;

/// A key that both sides know beforehand.
#[derive(Clone)]
pub struct Secret(pub(crate) [u8; 32]);

impl Secret {
    /// Makes a secret from at least 16 bytes that cannot be guessed, such as those of `head -c 32 /dev/urandom`. A
    /// password is not good enough: an attacker who records a handshake can try any number of passwords later.
    ///
    /// # Errors
    /// If there are fewer than 16 bytes.
    pub fn new(bytes: &[u8]) -> Result<Secret, Error> {
        if bytes.len() < 16 {
            let length = bytes.len();
            return Err(Error::Config(format!(
                "the key has {length} bytes, but needs at least 16: `head -c 32 /dev/urandom > key`"
            )));
        }
        Ok(Secret(expand(&extract(b"strandway 1 shared key", bytes), &[b"psk"])))
    }

    /// Shows that a probe or an echo was made with this key.
    pub(crate) fn proof_of_probe(&self, echo: bool, number: u64, length: u32) -> [u8; 16] {
        let key = blake3::derive_key("strandway 2026 probes of path lengths", &self.0);
        let mut text = [0; 13];
        text[0] = u8::from(echo);
        text[1..9].copy_from_slice(&number.to_be_bytes());
        text[9..].copy_from_slice(&length.to_be_bytes());
        *blake3::keyed_hash(&key, &text).as_bytes().first_chunk().expect("32 bytes")
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}
