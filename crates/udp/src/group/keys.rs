//! The keys of a team: a number and a secret for each member, by HKDF from the team's secret.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};

/// Bytes of a member's number and secret.
const BYTES: usize = 8 + 32;

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        BYTES
    }
}

/// The number in a member's datagrams, and the secret that seals them.
pub(super) fn member(secret: &[u8; 32], rank: u32) -> (u64, [u8; 32]) {
    let rank = rank.to_be_bytes();
    let info = [b"strandway 1 group".as_slice(), rank.as_slice()];
    let mut bytes = [0; BYTES];
    Prk::new_less_safe(HKDF_SHA256, secret)
        .expand(&info, Length)
        .and_then(|okm| okm.fill(&mut bytes))
        .expect("40 bytes are within HKDF's limit");
    let (id, secret) = bytes.split_first_chunk::<8>().expect("40 bytes");
    (u64::from_be_bytes(*id), *secret.first_chunk().expect("32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn members_and_teams_differ() {
        let all: BTreeSet<_> = (0..4).flat_map(|rank| [member(&[1; 32], rank), member(&[2; 32], rank)]).collect();
        assert_eq!(all.len(), 8);
        assert_eq!(member(&[1; 32], 3), member(&[1; 32], 3));
    }
}
