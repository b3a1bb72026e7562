//! The keys of a team: a number and a secret for each member, by HKDF from the team's secret.

use crate::cipher::channel;

/// The number in a member's datagrams, and the secret that seals them.
pub(super) fn member(secret: &[u8; 32], rank: u32) -> (u64, [u8; 32]) {
    channel(secret, &[b"strandway 1 group", &rank.to_be_bytes()])
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
