//! Which ranks of a group share a host.

use crate::schedule::Collective;
use std::collections::BTreeSet;
use std::ops::Range;

/// The hosts of a group's ranks. The ranks of a host follow each other, as launchers number them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The first rank of each host, and at the end the number of ranks; empty if no ranks share a host.
    first: Vec<u32>,
}

impl Hosts {
    /// The hosts of ranks at these places; `None` is a host of its own. If the ranks of a host do not follow each
    /// other, no ranks count as sharing a host: sums in the order of ranks could not stay inside hosts.
    pub fn of<T: Ord>(places: &[Option<T>]) -> Hosts {
        let (mut first, mut seen) = (Vec::new(), BTreeSet::new());
        for (rank, place) in (0..).zip(places) {
            if let Some(place) = place {
                if rank > 0 && places[rank as usize - 1].as_ref() == Some(place) {
                    continue;
                }
                if !seen.insert(place) {
                    return Hosts::default();
                }
            }
            first.push(rank);
        }
        let count = first.len();
        first.push(places.len() as u32);
        let hosts = Hosts { first };
        if count > 1 && count < places.len() { hosts } else { Hosts::default() }
    }

    /// Are there several hosts, and at least one with several ranks?
    pub fn are_shared(&self) -> bool {
        !self.first.is_empty()
    }

    /// Does the [hierarchical](super::hierarchical) algorithm send fewer bytes between hosts than the direct one? With
    /// `h` hosts of `l` ranks each, the direct one sends `l (h - 1) / h` times the buffer out of each host, twice for
    /// an all-reduce; the hierarchical one at most once, twice for an all-reduce among three hosts or more.
    pub fn spares(&self, collective: Collective) -> bool {
        let (hosts, ranks) = (u64::from(self.count()), u64::from(self.first.last().copied().unwrap_or(0)));
        match collective {
            Collective::AllGather => self.are_shared(),
            Collective::AllReduce if hosts == 2 => true,
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::ReduceScatter => {
                ranks * hosts.saturating_sub(1) > hosts * hosts
            }
            _ => false,
        }
    }

    /// The number of hosts; 0 if no ranks share one.
    pub(super) fn count(&self) -> u32 {
        self.first.len().saturating_sub(1) as u32
    }

    /// The ranks of a host.
    pub(super) fn ranks(&self, host: u32) -> Range<u32> {
        self.first[host as usize]..self.first[host as usize + 1]
    }

    /// The host of a rank.
    pub(super) fn host(&self, rank: u32) -> u32 {
        self.first.partition_point(|first| *first <= rank) as u32 - 1
    }

    /// The number of ranks of the largest host.
    pub(super) fn largest(&self) -> u32 {
        self.first.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }

    /// The rank of a host that passes on the bytes of a lane. Lanes spread the bytes over the ranks of each host.
    pub(super) fn carrier(&self, host: u32, lane: u32) -> u32 {
        let ranks = self.ranks(host);
        ranks.start + lane % (ranks.end - ranks.start)
    }

    /// The place of a rank among those of its host.
    pub(super) fn place(&self, rank: u32) -> u32 {
        rank - self.ranks(self.host(rank)).start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_follow_each_other_share_a_host() {
        let hosts = Hosts::of(&[Some("a"), Some("a"), Some("b"), Some("c"), Some("c"), Some("c")]);
        assert!(hosts.are_shared());
        assert_eq!((hosts.count(), hosts.largest()), (3, 3));
        assert_eq!((0..6).map(|rank| hosts.host(rank)).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 2]);
        assert_eq!((0..6).map(|rank| hosts.place(rank)).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 2]);
        assert_eq!((0..3).map(|host| hosts.carrier(host, 2)).collect::<Vec<_>>(), [0, 2, 5]);
    }

    #[test]
    fn without_two_hosts_or_two_ranks_of_one_nothing_is_shared() {
        for places in [&[Some(1), Some(1)][..], &[Some(1), Some(2)], &[None, None], &[Some(1), Some(2), Some(1)], &[]] {
            assert!(!Hosts::of(places).are_shared(), "{places:?}");
        }
        assert!(Hosts::of(&[Some(1), Some(1), None]).are_shared());
    }

    #[test]
    fn the_hierarchy_pays_where_hosts_have_enough_ranks() {
        let of = |hosts: u32, ranks: u32| {
            let places: Vec<Option<u32>> = (0..hosts * ranks).map(|rank| Some(rank / ranks)).collect();
            let hosts = Hosts::of(&places);
            let all = [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll];
            all.map(|collective| hosts.spares(collective))
        };
        assert_eq!(of(2, 2), [true, true, false, false]);
        assert_eq!(of(2, 3), [true, true, true, false]);
        assert_eq!(of(4, 2), [true, true, true, false]);
        assert_eq!(of(4, 1), [false; 4]);
    }
}
