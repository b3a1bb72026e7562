//! The host of each rank.

use std::fmt;
use strandway_proto::HostId;
use strandway_proto::rng::Random;

/// How ranks are spread over hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Rank `r` on host `r`: neighbours in the ring are neighbours in the fabric.
    Contiguous,
    /// Each rank on a different random host, as a scheduler does that does not know the fabric.
    Random,
    /// Rank `r` on the `r`-th host of this list.
    List(Vec<HostId>),
}

/// Why ranks cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// Fewer hosts than ranks: this many hosts.
    TooFew(u32),
    /// This entry of the list (from 0 on) names a host that does not exist.
    Outside(usize),
    /// This entry of the list (from 0 on) names a host that an earlier entry names.
    Twice(usize),
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::TooFew(hosts) => write!(f, "there are only {hosts} hosts"),
            PlacementError::Outside(entry) => write!(f, "entry {entry} names a host that is not there"),
            PlacementError::Twice(entry) => write!(f, "entry {entry} names a host a second time"),
        }
    }
}

impl std::error::Error for PlacementError {}

impl Placement {
    /// The host of every rank, in a fabric of `hosts` hosts. Only [`Placement::Random`] draws from `random`.
    ///
    /// # Errors
    /// If there are fewer hosts than ranks, or a list names a host twice or a host that does not exist.
    pub fn hosts(&self, ranks: u32, hosts: u32, random: &mut Random) -> Result<Vec<HostId>, PlacementError> {
        let there = match self {
            Placement::List(list) => list.len() as u32,
            _ => hosts,
        };
        if ranks > there {
            return Err(PlacementError::TooFew(there));
        }
        match self {
            Placement::Contiguous => Ok((0..ranks).map(HostId).collect()),
            Placement::Random => {
                let mut all: Vec<HostId> = (0..hosts).map(HostId).collect();
                random.shuffle(&mut all);
                all.truncate(ranks as usize);
                Ok(all)
            }
            Placement::List(list) => {
                let mut taken = vec![false; hosts as usize];
                for (entry, host) in list.iter().enumerate() {
                    let taken = taken.get_mut(host.0 as usize).ok_or(PlacementError::Outside(entry))?;
                    if std::mem::replace(taken, true) {
                        return Err(PlacementError::Twice(entry));
                    }
                }
                Ok(list[..ranks as usize].to_vec())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandway_proto::rng::StreamKind;

    fn place(placement: &Placement, ranks: u32) -> Result<Vec<u32>, PlacementError> {
        let mut random = Random::new(1, StreamKind::Workload, 0);
        placement.hosts(ranks, 8, &mut random).map(|hosts| hosts.into_iter().map(|h| h.0).collect())
    }

    #[test]
    fn every_rank_has_a_host_of_its_own() {
        assert_eq!(place(&Placement::Contiguous, 3), Ok(vec![0, 1, 2]));
        let mut random = place(&Placement::Random, 8).expect("placed");
        assert_ne!(random, (0..8).collect::<Vec<_>>());
        random.sort_unstable();
        assert_eq!(random, (0..8).collect::<Vec<_>>());
        assert_eq!(place(&Placement::List(vec![HostId(5), HostId(2)]), 2), Ok(vec![5, 2]));
    }

    #[test]
    fn lists_are_checked() {
        let list = |hosts: &[u32]| Placement::List(hosts.iter().copied().map(HostId).collect());
        assert_eq!(place(&list(&[1, 2, 1]), 2), Err(PlacementError::Twice(2)));
        assert_eq!(place(&list(&[1, 8]), 2), Err(PlacementError::Outside(1)));
        assert_eq!(place(&list(&[1]), 2), Err(PlacementError::TooFew(1)));
        assert_eq!(place(&Placement::Random, 9), Err(PlacementError::TooFew(8)));
    }
}
