//! Keys of an established connection: sealing, opening, and the window that refuses repeated counters.

use crate::cipher::{Key, expand};
use crate::error::Error;
use crate::frame::HEADER;
use crate::layout::Protection;

/// A key seals 2^23 datagrams, then the next one is derived: RFC 9001, section 6.6, the limit of AES-GCM in QUIC.
const EPOCH_BITS: u32 = 23;
/// The number of keys that are kept: those of the present epoch and its neighbours.
const KEYS: usize = 4;
/// The least number of counters that a datagram may be behind the highest one; ours: 512 words, of which the newest is
/// not full.
const WINDOW_MIN: u64 = 511 * 64;

/// The keys of one direction, one per epoch, derived when they are needed.
struct Keys {
    secret: [u8; 32],
    keys: [Option<(u64, Key)>; KEYS],
}

impl Keys {
    fn new(secret: &[u8; 32]) -> Keys {
        Keys { secret: *secret, keys: [const { None }; KEYS] }
    }

    #[inline]
    fn of(&mut self, epoch: u64) -> &Key {
        if self.keys[(epoch % KEYS as u64) as usize].as_ref().is_none_or(|(of, _)| *of != epoch) {
            self.derive(epoch);
        }
        let (_, key) = self.keys[(epoch % KEYS as u64) as usize].as_ref().expect("derived above");
        key
    }

    #[cold]
    fn derive(&mut self, epoch: u64) {
        let key = expand(&self.secret, &[b"strandway 1 data", &epoch.to_be_bytes()]);
        self.keys[(epoch % KEYS as u64) as usize] = Some((epoch, Key::new(&key)));
    }
}

fn nonce(counter: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    bytes
}

/// The sending half.
pub(crate) struct Sealer {
    keys: Keys,
    counter: u64,
    protection: Protection,
}

impl Sealer {
    pub(crate) fn new(secret: &[u8; 32], protection: Protection) -> Sealer {
        Sealer { keys: Keys::new(secret), counter: 0, protection }
    }

    /// Bytes behind a body.
    pub(crate) fn tag_bytes(&self) -> usize {
        self.protection.tag_bytes()
    }

    /// The counter of the next datagram.
    pub(crate) fn next(&self) -> u64 {
        self.counter
    }

    /// Fills a datagram that carries the counter [`Sealer::next`]. It has its final length; its first `head` bytes, the
    /// header and the start of the body, are written. `payload` is the rest of the body: it is copied behind the head,
    /// and encrypted there if the connection is encrypted. The tag follows.
    ///
    /// # Panics
    /// If the datagram is not as long as these parts together.
    pub(crate) fn seal_from(&mut self, datagram: &mut [u8], head: usize, payload: &[u8]) {
        let counter = self.counter;
        self.counter += 1;
        let tag = self.protection.tag_bytes();
        assert_eq!(datagram.len(), head + payload.len() + tag, "a datagram is as long as its parts");
        let (signed, tag) = datagram.split_at_mut(head + payload.len());
        signed[head..].copy_from_slice(payload);
        if self.protection == Protection::None {
            return;
        }
        let key = self.keys.of(counter >> EPOCH_BITS);
        let encrypted_from = if self.protection == Protection::Encrypted { HEADER } else { signed.len() };
        let (signed, body) = signed.split_at_mut(encrypted_from);
        tag.copy_from_slice(&key.seal(&nonce(counter), signed, body));
    }

    /// Appends the tag to the datagram from `start` of `out` on, whose header and body are there.
    pub(crate) fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let head = out.len() - start;
        out.resize(out.len() + self.tag_bytes(), 0);
        self.seal_from(&mut out[start..], head, &[]);
    }
}

/// The receiving half.
pub(crate) struct Opener {
    keys: Keys,
    window: Window,
    protection: Protection,
}

/// Why a sealed datagram is not what it claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its counter was seen already, or is too old to tell whether it was.
    Repeated,
    /// Its tag is wrong, or its counter is implausibly high.
    Forged,
}

impl Opener {
    /// `window`: the number of counters that a datagram may be behind the highest one; rounded up.
    pub(crate) fn new(secret: &[u8; 32], protection: Protection, window: u64) -> Opener {
        Opener { keys: Keys::new(secret), window: Window::new(window), protection }
    }

    /// Bytes behind a body.
    pub(crate) fn tag_bytes(&self) -> usize {
        self.protection.tag_bytes()
    }

    /// Is `counter` higher than all counters of opened datagrams?
    pub(crate) fn is_newest(&self, counter: u64) -> bool {
        counter >= self.window.next
    }

    /// The epoch of a counter, if the counter is new and not implausibly high.
    fn epoch(&self, counter: u64) -> Result<u64, Refused> {
        if !self.window.is_fresh(counter) {
            return Err(Refused::Repeated);
        }
        // At most one key beyond that of the newest datagram; otherwise a forger could make us derive keys again and
        // again.
        let epoch = counter >> EPOCH_BITS;
        if epoch > (self.window.next >> EPOCH_BITS) + 1 {
            return Err(Refused::Forged);
        }
        Ok(epoch)
    }

    /// Makes the start of a body readable whose end, tag included, was cut off. This authenticates nothing: anyone who
    /// saw the datagram may have changed it. The counter is not marked as seen. A counter that was opened before is
    /// refused.
    pub(crate) fn peek(&mut self, counter: u64, start: &mut [u8]) -> Result<(), Refused> {
        let epoch = self.epoch(counter)?;
        if self.protection == Protection::Encrypted {
            let key = self.keys.of(epoch);
            // GCM encrypts in counter mode, so encrypting a second time decrypts. The tag is not used.
            let _tag = key.seal(&nonce(counter), &[], start);
        }
        Ok(())
    }

    /// Checks a whole datagram and returns its body, decrypted in place. If the datagram is refused, its bytes mean
    /// nothing any more.
    #[inline]
    pub(crate) fn open<'a>(&mut self, counter: u64, datagram: &'a mut [u8]) -> Result<&'a mut [u8], Refused> {
        let (protection, tag) = (self.protection, self.tag_bytes());
        let epoch = self.epoch(counter)?;
        let body_end = datagram.len().checked_sub(tag).filter(|&end| end >= HEADER).ok_or(Refused::Forged)?;
        // Without protection, every sender that knows the connection's number is believed, and the processor may be one
        // that has no instructions for keys.
        if protection != Protection::None {
            let key = self.keys.of(epoch);
            let (signed, tag) = datagram.split_at_mut(body_end);
            let encrypted_from = if protection == Protection::Encrypted { HEADER } else { body_end };
            let (signed, body) = signed.split_at_mut(encrypted_from);
            key.open(&nonce(counter), signed, body, tag).map_err(|_| Refused::Forged)?;
        }
        self.window.insert(counter);
        Ok(&mut datagram[HEADER..body_end])
    }
}

/// Which of the last counters were seen; RFC 6479's ring of words.
pub(crate) struct Window {
    /// One more than the highest counter seen.
    next: u64,
    /// The number of counters that it remembers.
    size: u64,
    /// As many as a power of two, so that a counter's word is found without a division.
    words: Box<[u64]>,
}

impl Window {
    /// A window of at least `size` counters. No counter was seen yet.
    pub(crate) fn new(size: u64) -> Window {
        // One word more than the window needs, since the newest word is cleared as a whole.
        let words = (size.max(WINDOW_MIN).div_ceil(64) + 1).next_power_of_two();
        Window { next: 0, size: (words - 1) * 64, words: vec![0; words as usize].into() }
    }

    #[inline]
    fn slot(&self, counter: u64) -> (usize, u64) {
        ((counter / 64) as usize & (self.words.len() - 1), 1 << (counter % 64))
    }

    /// Was `counter` not seen, and is it recent enough to tell?
    #[inline]
    pub(crate) fn is_fresh(&self, counter: u64) -> bool {
        let (word, bit) = self.slot(counter);
        counter >= self.next || (self.next - counter <= self.size && self.words[word] & bit == 0)
    }

    /// Marks a counter as seen; its datagram was authenticated.
    #[inline]
    pub(crate) fn insert(&mut self, counter: u64) {
        if counter >= self.next {
            let (old, new) = (self.next.div_ceil(64), counter / 64);
            for word in old.max((new + 1).saturating_sub(self.words.len() as u64))..=new {
                let (at, _) = self.slot(word * 64);
                self.words[at] = 0;
            }
            self.next = counter + 1;
        }
        let (word, bit) = self.slot(counter);
        self.words[word] |= bit;
    }
}

/// A secret that cannot be guessed, from the operating system: for [`crate::Membership::secret`].
///
/// # Errors
/// If the system gives no random numbers.
pub fn random_secret() -> Result<[u8; 32], Error> {
    random()
}

/// Random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(Error::Random),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, Sealed, encode_sealed};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sealed(sealer: &mut Sealer, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let header = Sealed {
            kind: Kind::Ping,
            urgent: false,
            path: strandway_proto::PathId(1),
            credits: 2,
            connection: 3,
            counter: sealer.next(),
        };
        encode_sealed(&header, &mut out);
        out.extend_from_slice(body);
        sealer.seal(&mut out, 0);
        out
    }

    #[test]
    fn a_datagram_opens_once_and_only_unchanged() {
        for protection in [Protection::Authenticated, Protection::Encrypted] {
            let (mut sealer, mut opener) = (Sealer::new(&[7; 32], protection), Opener::new(&[7; 32], protection, 0));
            let encrypt = protection == Protection::Encrypted;
            let whole = sealed(&mut sealer, b"payload");
            assert_eq!(encrypt, !whole.windows(7).any(|w| w == b"payload"), "encryption hides the body");
            for i in 0..whole.len() {
                let mut changed = whole.clone();
                changed[i] ^= 1;
                assert_eq!(opener.open(0, &mut changed), Err(Refused::Forged), "byte {i}");
            }
            for length in 0..whole.len() {
                assert_eq!(opener.open(0, &mut whole.clone()[..length]), Err(Refused::Forged));
            }
            assert_eq!(opener.open(1, &mut whole.clone()), Err(Refused::Forged), "the counter is part of the nonce");
            assert_eq!(opener.open(0, &mut whole.clone()).map(|b| b.to_vec()), Ok(b"payload".to_vec()));
            assert_eq!(opener.open(0, &mut whole.clone()), Err(Refused::Repeated));
        }
    }

    proptest! {
        #[test]
        fn a_payload_is_sealed_from_its_place_as_if_it_had_been_copied_first(
            body in prop::collection::vec(any::<u8>(), 0..4_300),
            head in 0usize..80,
            before: u8,
        ) {
            for protection in [Protection::None, Protection::Authenticated, Protection::Encrypted] {
                let (mut apart, mut whole) = (Sealer::new(&[7; 32], protection), Sealer::new(&[7; 32], protection));
                let mut opener = Opener::new(&[7; 32], protection, 0);
                let expected = sealed(&mut whole, &body);
                // The buffer holds an older datagram.
                let mut datagram = vec![before; expected.len()];
                let (start, payload) = body.split_at(head.min(body.len()));
                datagram[..HEADER].copy_from_slice(&expected[..HEADER]);
                datagram[HEADER..HEADER + start.len()].copy_from_slice(start);
                apart.seal_from(&mut datagram, HEADER + start.len(), payload);
                prop_assert!(datagram == expected, "{protection:?}, {} B behind {}", payload.len(), start.len());
                let opened = opener.open(0, &mut datagram.clone()).map(|opened| opened.to_vec());
                prop_assert_eq!(opened, Ok(body.clone()));
                let again = opener.open(0, &mut datagram).map(|opened| opened.to_vec());
                prop_assert_eq!(again, Err(Refused::Repeated));
            }
        }
    }

    #[test]
    fn a_new_key_takes_over_without_a_word() {
        let (mut sealer, mut opener) =
            (Sealer::new(&[7; 32], Protection::Encrypted), Opener::new(&[7; 32], Protection::Encrypted, 0));
        let edge = 1 << EPOCH_BITS;
        for counter in [edge - 1, edge, 2 * edge - 1, 2 * edge] {
            sealer.counter = counter;
            let mut whole = sealed(&mut sealer, b"x");
            assert_eq!(opener.open(counter, &mut whole).map(|b| b.to_vec()), Ok(b"x".to_vec()), "counter {counter}");
        }
        sealer.counter = 9 * edge;
        let mut whole = sealed(&mut sealer, b"x");
        assert_eq!(opener.open(9 * edge, &mut whole), Err(Refused::Forged), "a counter must not skip a key");
    }

    #[test]
    fn the_start_of_a_body_can_be_read_until_all_of_it_was_and_nothing_is_remembered() {
        for protection in [Protection::None, Protection::Authenticated, Protection::Encrypted] {
            let (mut sealer, mut opener) = (Sealer::new(&[7; 32], protection), Opener::new(&[7; 32], protection, 0));
            let whole = sealed(&mut sealer, b"a header and much payload");
            for length in 0..25 {
                let mut start = whole[HEADER..][..length].to_vec();
                assert_eq!(opener.peek(0, &mut start), Ok(()), "again and again");
                assert_eq!(start, b"a header and much payload"[..length]);
            }
            assert_eq!(
                opener.peek(2 << EPOCH_BITS, &mut [0; 8]),
                Err(Refused::Forged),
                "a counter must not skip a key"
            );
            assert!(opener.open(0, &mut whole.clone()).is_ok(), "the whole may still come");
            assert_eq!(opener.peek(0, &mut [0; 8]), Err(Refused::Repeated), "and then nothing is missing");
        }
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(
            wanted in prop::sample::select(vec![0, WINDOW_MIN, 2 * 20_001, 2 * 262_144]),
            steps in prop::collection::vec((0u64..3 * 524_288, any::<bool>()), 1..300),
        ) {
            let mut window = Window::new(wanted);
            prop_assert!(window.size >= wanted && window.size >= WINDOW_MIN);
            let mut set = BTreeSet::new();
            for (step, ahead) in steps {
                let counter = if ahead { window.next + step % 200 } else { window.next.saturating_sub(step) };
                let counter = if step % 17 == 0 { window.next + step } else { counter };
                let fresh = !set.contains(&counter) && counter + window.size >= window.next;
                prop_assert_eq!(window.is_fresh(counter), fresh, "counter {} at {}", counter, window.next);
                if fresh {
                    window.insert(counter);
                    set.insert(counter);
                }
            }
        }
    }
}
