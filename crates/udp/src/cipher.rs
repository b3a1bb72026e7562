//! The cipher and the hashes of a node: AES-GCM by `graviola`, HMAC and HKDF with SHA-256 and AES-CMAC by RustCrypto.
//! No C compiler is needed. `docs/security.md`, section "The cipher's libraries", says why these.

use crate::error::Error;
use aes::Aes256;
use cmac::Cmac;
use graviola::aead::AesGcm;
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Bytes of a key of AES-128.
pub(crate) const KEY: usize = 16;
/// Bytes of the tag behind a body.
pub const TAG: usize = 16;

/// Can this processor seal packets? Every one of a server since 2014 can.
///
/// # Errors
/// [`Error::Config`] if it has no instructions for AES.
pub(crate) fn check() -> Result<(), Error> {
    if graviola::util::is_cpu_supported() {
        return Ok(());
    }
    let needed =
        if cfg!(target_arch = "x86_64") { "aes, pclmulqdq, avx2, bmi1 and adx" } else { "aes, pmull and sha2" };
    Err(Error::Config(format!(
        "this processor cannot seal packets: it needs {needed}; without sealing (protection none) it can still send them"
    )))
}

/// A tag is wrong.
#[derive(Debug)]
pub(crate) struct Forged;

/// A key of AES-GCM.
pub(crate) struct Key(AesGcm);

impl Key {
    pub(crate) fn new(key: &[u8; KEY]) -> Key {
        Key(AesGcm::new(key))
    }

    /// A key of AES-256.
    pub(crate) fn wide(key: &[u8; 32]) -> Key {
        Key(AesGcm::new(key))
    }

    /// Encrypts `body` in place, and returns the tag of `signed` and `body`. A nonce is never used twice with one key.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; 12], signed: &[u8], body: &mut [u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        self.0.encrypt(nonce, signed, body, &mut tag);
        tag
    }

    /// Decrypts `body` in place. If the tag is wrong, the bytes of the body mean nothing any more.
    #[inline]
    pub(crate) fn open(&self, nonce: &[u8; 12], signed: &[u8], body: &mut [u8], tag: &[u8]) -> Result<(), Forged> {
        self.0.decrypt(nonce, signed, body, tag).map_err(|_| Forged)
    }
}

/// AES-256-CMAC (NIST SP 800-38B) of these parts, joined.
pub(crate) fn cmac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Cmac::<Aes256>::new_from_slice(key).expect("32 bytes are a key of AES-256");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// HKDF-Expand (RFC 5869): `N` bytes from a secret that is uniformly random. The parts of `info` are joined.
pub(crate) fn expand<const N: usize>(secret: &[u8; 32], info: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let secret = Hkdf::<Sha256>::from_prk(secret).expect("32 bytes are enough for SHA-256");
    secret.expand_multi_info(info, &mut bytes).expect("so few bytes are within HKDF's limit");
    bytes
}

/// The number and the key of a channel, from the secret of all channels of its kind.
pub(crate) fn channel(secret: &[u8; 32], info: &[&[u8]]) -> (u64, [u8; 32]) {
    let bytes: [u8; 40] = expand(secret, info);
    let (id, key) = bytes.split_first_chunk::<8>().expect("40 bytes");
    (u64::from_be_bytes(*id), *key.first_chunk().expect("32 bytes"))
}

/// HKDF-Extract (RFC 5869): a secret that is uniformly random, from `bytes` that have enough randomness.
pub(crate) fn extract(salt: &[u8], bytes: &[u8]) -> [u8; 32] {
    Hkdf::<Sha256>::extract(Some(salt), bytes).0.into()
}

/// A key for HMAC with SHA-256.
#[derive(Clone)]
pub(crate) struct MacKey(Hmac<Sha256>);

impl MacKey {
    pub(crate) fn new(key: &[u8; 32]) -> MacKey {
        MacKey(Hmac::new_from_slice(key).expect("a key of any length will do"))
    }

    /// The first `N` bytes of the code of these parts, joined.
    pub(crate) fn code<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        let mut code = self.0.clone();
        for part in parts {
            code.update(part);
        }
        *code.finalize().into_bytes().first_chunk().expect("at most 32 bytes are asked for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).expect("ASCII"));
        digits.map(|two| u8::from_str_radix(two, 16).expect("a byte")).collect()
    }

    #[test]
    fn the_cipher_gives_the_published_results() {
        // The Galois/Counter Mode of Operation (McGrew, Viega), appendix B, test case 4.
        let key = Key::new(&bytes("feffe9928665731c6d6a8f9467308308").try_into().expect("16 bytes"));
        let nonce = bytes("cafebabefacedbaddecaf888").try_into().expect("12 bytes");
        let signed = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let plain = bytes(concat!(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72",
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
        ));
        let mut body = plain.clone();
        let tag = key.seal(&nonce, &signed, &mut body);
        assert_eq!(tag.to_vec(), bytes("5bc94fbc3221a5db94fae95ae7121a47"));
        assert_eq!(body[..16], bytes("42831ec2217774244b7221b784d0d49c"));
        assert!(key.open(&nonce, &signed, &mut body.clone(), &[0; TAG]).is_err());
        key.open(&nonce, &signed, &mut body, &tag).expect("it is genuine");
        assert_eq!(body, plain);
    }

    #[test]
    fn secrets_are_derived_as_published() {
        // RFC 5869, appendix A.1.
        let secret = extract(&bytes("000102030405060708090a0b0c"), &[0x0b; 22]);
        assert_eq!(secret.to_vec(), bytes("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"));
        let info = bytes("f0f1f2f3f4f5f6f7f8f9");
        let expected = bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
        assert_eq!(expand::<42>(&secret, &[&info[..3], &info[3..]]).to_vec(), expected);
    }
}
