//! The static table of a switch.

use super::{Clos, WORDS, join, split};
use core::fmt;
use core::net::Ipv6Addr;

/// The static table of a switch: its own words, the downlinks behind its first word, and the port towards each
/// neighbour's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchTable {
    block: u32,
    /// Own words, each with the number of words to remove when it is in front.
    own: Vec<(u16, usize)>,
    /// Pairs of the own first word and a downlink's word, and the ports of the downlinks, in the order of the words.
    downlinks: Vec<([u16; 2], u16)>,
    /// Neighbours' words and the ports towards them, in the order of the words.
    routes: Vec<(u16, u16)>,
}

/// Why a switch drops a packet. It does not report the drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The address is not of the fabric's block.
    Foreign,
    /// The list ends at this switch, but a list must end at a host.
    Ends,
    /// No neighbour has the word that is now in front.
    Unknown(u16),
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DropReason::Foreign => write!(f, "the address is outside the fabric"),
            DropReason::Ends => write!(f, "the list of segments ends at a switch"),
            DropReason::Unknown(word) => write!(f, "no neighbour has the segment {word:04x}"),
        }
    }
}

impl SwitchTable {
    /// A T0 switch of a fabric of `hosts` hosts. Ports: its hosts in order, from 0; then the T1s that it is linked to,
    /// each at port [`Clos::hosts_per_t0`] plus the T1's number; with three tiers, its number in the pod.
    ///
    /// # Panics
    /// If plane or numbers do not fit ([`Clos::holds`]).
    pub fn t0(clos: &Clos, plane: u8, t0: u16, hosts: u32) -> SwitchTable {
        let own = clos.t0(plane, t0);
        let first = u32::from(t0) * u32::from(clos.hosts_per_t0);
        let here = hosts.saturating_sub(first).min(u32::from(clos.hosts_per_t0)) as u16;
        let downlinks = (0..here).map(|d| ([own, clos.downlink(plane, d)], d)).collect();
        let port = |t1: u16| clos.hosts_per_t0 + t1 % clos.t1s;
        let up = |t1: u16| [(clos.t1(plane, t1), port(t1)), (clos.t1_neutral(plane, t1), port(t1))];
        let mut routes: Vec<(u16, u16)> = clos.t1s_of(t0).flat_map(up).collect();
        routes.sort_unstable();
        SwitchTable { block: clos.block, own: vec![(own, 1)], downlinks, routes }
    }

    /// A T1 switch of a fabric of `t0s` T0s. Each T0 that it is linked to is at the port with the T0's number, counted
    /// from the first of its pod; with three tiers, the T2s follow, behind the ports of a whole pod.
    ///
    /// # Panics
    /// If plane or numbers do not fit ([`Clos::holds`]).
    pub fn t1(clos: &Clos, plane: u8, t1: u16, t0s: u16) -> SwitchTable {
        let per_pod = clos.pods.map_or(0, |pods| pods.t0s);
        let down = clos.t0s_of(t1, t0s).map(|t0| (clos.t0(plane, t0), t0.checked_rem(per_pod).unwrap_or(t0)));
        let up = clos.t2s_of(t1).zip(per_pod..).map(|(t2, port)| (clos.t2(plane, t2), port));
        let mut routes: Vec<(u16, u16)> = down.chain(up).collect();
        routes.sort_unstable();
        let own = vec![(clos.t1(plane, t1), 1), (clos.t1_neutral(plane, t1), 2)];
        SwitchTable { block: clos.block, own, downlinks: Vec::new(), routes }
    }

    /// A T2 switch of a fabric of `t0s` T0s in each plane. Its T1 of pod `p` is at port `p`.
    ///
    /// # Panics
    /// If plane or numbers do not fit ([`Clos::holds`]).
    pub fn t2(clos: &Clos, plane: u8, t2: u16, t0s: u16) -> SwitchTable {
        let mut routes: Vec<(u16, u16)> = clos.t1s_below(t2, t0s).map(|t1| clos.t1(plane, t1)).zip(0..).collect();
        routes.sort_unstable();
        SwitchTable { block: clos.block, own: vec![(clos.t2(plane, t2), 1)], downlinks: Vec::new(), routes }
    }

    /// Number of entries: own words, downlinks and neighbours.
    pub fn entries(&self) -> usize {
        self.own.len() + self.downlinks.len() + self.routes.len()
    }

    /// The switch's own words, each with how many words it consumes.
    pub fn own(&self) -> &[(u16, usize)] {
        &self.own
    }

    /// The switch's first word with each downlink's word, and the ports of the downlinks. Such a pair is not consumed.
    pub fn downlinks(&self) -> &[([u16; 2], u16)] {
        &self.downlinks
    }

    /// The neighbours' words and the ports towards them.
    pub fn routes(&self) -> &[(u16, u16)] {
        &self.routes
    }

    /// The output port of a packet, and its new destination address.
    ///
    /// The switch removes its own words from the front, one after the other, until its word and that of a downlink are
    /// in front, or a neighbour's word. These select the port: as the longest prefix does in a router.
    ///
    /// # Errors
    /// If the packet must be dropped.
    pub fn forward(&self, destination: Ipv6Addr) -> Result<(u16, Ipv6Addr), DropReason> {
        let (block, mut words) = split(destination);
        if block != self.block {
            return Err(DropReason::Foreign);
        }
        // Each round removes at least one word, and a list without words ends here.
        loop {
            if let Ok(at) = self.downlinks.binary_search_by_key(&[words[0], words[1]], |(pair, _)| *pair) {
                return Ok((self.downlinks[at].1, join(block, &words)));
            }
            let Some((_, taken)) = self.own.iter().find(|(word, _)| *word == words[0]) else { break };
            words.copy_within(taken.., 0);
            words[WORDS - taken..].fill(0);
            if words == [0; WORDS] {
                return Err(DropReason::Ends);
            }
        }
        match self.routes.binary_search_by_key(&words[0], |(word, _)| *word) {
            Ok(at) => Ok((self.routes[at].1, join(block, &words))),
            Err(_) => Err(DropReason::Unknown(words[0])),
        }
    }
}
