//! Source routes as IPv6 addresses: SRv6 micro segments (uSIDs) of a two-tier, multi-plane Clos.
//!
//! A destination address is a block of 32 bits and up to six words of 16 bits: one for each switch, and one for the
//! host. A switch whose own word is in front removes it, shifts the remaining words forward, and sends the packet to
//! the port of the next word. Its table never changes (uN: RFC 8986, section 4.1, with the NEXT-C-SID flavour of RFC
//! 9800, section 4.1). So the address that a sender writes fixes the whole path, and only [`Clos::path`] makes such
//! addresses.
//!
//! | word | owner | effect at its owner |
//! |---|---|---|
//! | `1pii` | T0 switch `ii` of plane `p` | consumed |
//! | `9pii` | the same switch | consumed together with the next word |
//! | `2pjj` | T1 switch `jj` of plane `p` | consumed |
//! | `3hhh` | host `hhh` | `block:3hhh::/48` belongs to the host, on every plane |
//!
//! The layout is ours: no standard and no paper gives one (Araujo et al., arXiv 2605.04333, section 2.2, says only that
//! the words exist and that tables are static).
//!
//! A UDP checksum covers the destination address. The sender computes it over the full address; the receiver checks it
//! over the address without the consumed words. *Neutral* addresses therefore contain a compensator, the word after
//! `9pii`: with it the consumed words add up to zero in one's complement, so the same checksum is right at both ends
//! (the method of RFC 6296, section 3.2).
//!
//! Usually every T1 is linked to every T0 of its plane. Between sites, each pair of T0s has its own T1s
//! ([`Clos::of_sites`]), one for each parallel long link. No other T0 is linked to them.
//!
//! ```
//! use strandway_fabric::usid::Clos;
//!
//! let clos = Clos::new(2, 2).expect("two T1s per plane, two hosts below a T0");
//! let path = clos.path(0, 0, 2, 1);
//! assert_eq!(path.to_string(), "fcbb:bb00:9000:3ffd:2001:1001:3002:0");
//! assert_eq!(clos.describe(path), "plane 0, T0 0 -> T1 1 -> T0 1 -> host 2");
//! ```

use crate::topology::SitesShape;
use core::fmt;
use core::net::Ipv6Addr;

/// The default block of addresses: `fcbb:bb00::/32`, private addresses (RFC 4193), as in the uSID examples of RFC 9800.
pub const BLOCK: u32 = 0xfcbb_bb00;

/// Number of planes that a word can distinguish.
pub const PLANES_MAX: u16 = 16;

/// Number of T0 switches of a plane that a word can distinguish; the same number holds for T1 switches.
pub const SWITCHES_MAX: u16 = 256;

/// Number of hosts that a word can distinguish.
pub const HOSTS_MAX: u16 = 4096;

/// Words of an address after the block.
const WORDS: usize = 6;

const T0: u16 = 0x1000;
const T0_NEUTRAL: u16 = 0x9000;
const T1: u16 = 0x2000;
const HOST: u16 = 0x3000;

/// The parameters from which senders and switches of a fabric make and read addresses. All must use the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clos {
    /// The first 32 bits of every address.
    pub block: u32,
    /// T1 switches of each plane, 1 to [`SWITCHES_MAX`].
    pub t1s: u16,
    /// T1 switches that belong to one pair of T0s, numbered in the order of [`SitesShape::pairs`]; 0 if every T1 is
    /// linked to every T0.
    pub per_pair: u16,
    /// Hosts below each T0 switch; host `h` is below T0 `h / hosts_per_t0` of every plane.
    pub hosts_per_t0: u16,
    /// True: paths are checksum-neutral. False: senders must omit UDP checksums.
    pub neutral: bool,
}

/// Why these parameters do not define a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosError {
    /// The number of these is zero.
    None(&'static str),
    /// The number of these is larger than 16-bit words can distinguish.
    TooMany {
        /// Their name.
        what: &'static str,
        /// Their number.
        count: u32,
        /// The largest allowed number.
        most: u16,
    },
    /// The number of T1 switches does not give every pair of T0 switches `per_pair` of them.
    Pairs {
        /// T1 switches of a plane.
        t1s: u16,
        /// The T1 switches that each pair should have.
        per_pair: u16,
    },
    /// Addresses of this block have another meaning: unspecified, loopback, link-local or multicast.
    Block(u32),
}

impl fmt::Display for ClosError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClosError::None(what) => write!(f, "a fabric needs at least one of: {what}"),
            ClosError::TooMany { what, count, most } => {
                write!(f, "{count} {what} do not fit a micro segment, which can distinguish {most}")
            }
            ClosError::Pairs { t1s, per_pair } => {
                write!(
                    f,
                    "{t1s} T1 switches of a plane are not {per_pair} for each pair of T0 switches (1, 3, 6, 10 ... pairs)"
                )
            }
            ClosError::Block(block) => {
                write!(f, "{:x}:{:x}::/32 cannot be a block of micro segments", block >> 16, block & 0xffff)
            }
        }
    }
}

impl core::error::Error for ClosError {}

impl Clos {
    /// A fabric with the usual block and neutral addresses. The fields may be changed afterwards.
    ///
    /// # Errors
    /// If a number is zero or does not fit its words.
    pub fn new(t1s: u16, hosts_per_t0: u16) -> Result<Clos, ClosError> {
        let clos = Clos { block: BLOCK, t1s, per_pair: 0, hosts_per_t0, neutral: true };
        clos.check()?;
        Ok(clos)
    }

    /// A fabric of `sites` sites with one T0 per plane each, and `per_pair` T1s between any two sites.
    ///
    /// # Errors
    /// If a number is zero or does not fit its words.
    pub fn of_sites(sites: u16, per_pair: u16, hosts_per_t0: u16) -> Result<Clos, ClosError> {
        within("T1 switches of a pair", u32::from(per_pair), SWITCHES_MAX)?;
        let pairs = u32::from(sites) * u32::from(sites.saturating_sub(1)) / 2;
        let t1s = pairs.saturating_mul(u32::from(per_pair));
        within("T1 switches of a plane", t1s, SWITCHES_MAX)?;
        Ok(Clos { per_pair, ..Clos::new(t1s as u16, hosts_per_t0)? })
    }

    /// Checks that addresses can be made from the block and the numbers.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), ClosError> {
        let first = self.block >> 16;
        if first == 0 || first & 0xffc0 == 0xfe80 || first & 0xff00 == 0xff00 {
            return Err(ClosError::Block(self.block));
        }
        within("T1 switches of a plane", u32::from(self.t1s), SWITCHES_MAX)?;
        within("hosts below a T0", u32::from(self.hosts_per_t0), HOSTS_MAX)?;
        let last = self.joined(self.t1s - 1);
        if last.is_some_and(|(low, high)| high - low != 1 || !self.t1s.is_multiple_of(self.per_pair)) {
            return Err(ClosError::Pairs { t1s: self.t1s, per_pair: self.per_pair });
        }
        Ok(())
    }

    /// Checks that this number of planes and hosts fits the words.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn holds(&self, planes: u32, hosts: u32) -> Result<(), ClosError> {
        self.check()?;
        within("planes", planes, PLANES_MAX)?;
        within("hosts", hosts, HOSTS_MAX)?;
        within("T0 switches of a plane", hosts.div_ceil(u32::from(self.hosts_per_t0)), self.t0s_max())
    }

    /// Limit on the T0 switches of a plane: the number that words can distinguish, or the number that T1s of pairs
    /// join.
    fn t0s_max(&self) -> u16 {
        self.joined(self.t1s.saturating_sub(1)).map_or(SWITCHES_MAX, |(_, high)| high + 1)
    }

    /// The two T0s that a T1 joins; `None` if every T1 is linked to every T0.
    pub fn joined(&self, t1: u16) -> Option<(u16, u16)> {
        let mut low = t1.checked_div(self.per_pair)?;
        let mut high = 1;
        while low >= high {
            low -= high;
            high += 1;
        }
        Some((low, high))
    }

    /// The T1s that a T0 is linked to.
    pub fn t1s_of(&self, t0: u16) -> impl Iterator<Item = u16> + '_ {
        (0..self.t1s).filter(move |&t1| self.joined(t1).is_none_or(|(low, high)| t0 == low || t0 == high))
    }

    /// The T0s, among the first `t0s`, that a T1 is linked to.
    pub fn t0s_of(&self, t1: u16, t0s: u16) -> impl Iterator<Item = u16> + '_ {
        let joined = self.joined(t1);
        (0..t0s).filter(move |&t0| joined.is_none_or(|(low, high)| t0 == low || t0 == high))
    }

    /// Number of ways between two T0s of a plane.
    pub fn paths_between_t0s(&self) -> u16 {
        if self.per_pair == 0 { self.t1s } else { self.per_pair }
    }

    /// A host's own address: the destination of packets when they arrive, and the address of the host's sockets.
    ///
    /// # Panics
    /// If the number is not below [`HOSTS_MAX`].
    pub fn host(&self, host: u16) -> Ipv6Addr {
        self.locator(self.host_word(host))
    }

    /// The host that owns an address, with or without words after the host's word; `None` if no host does.
    pub fn host_of(&self, address: Ipv6Addr) -> Option<u16> {
        let (block, words) = split(address);
        let host = words[0] & 0x0fff;
        let fits = host / self.hosts_per_t0.max(1) < self.t0s_max();
        (block == self.block && words[0] & 0xf000 == HOST && fits).then_some(host)
    }

    /// The T0 switch of a host (the same number in every plane).
    pub fn t0_of(&self, host: u16) -> u16 {
        host / self.hosts_per_t0
    }

    /// Number of ways from one host to another within a plane: one under the same T0, otherwise one for each T1 that is
    /// linked to both T0s.
    pub fn paths(&self, from: u16, to: u16) -> u16 {
        if self.t0_of(from) == self.t0_of(to) { 1 } else { self.paths_between_t0s() }
    }

    /// The T1 switch that an entropy value selects for this pair; `None` if both hosts are under the same T0.
    pub fn t1_of(&self, from: u16, to: u16, entropy: u32) -> Option<u16> {
        let (a, b) = (self.t0_of(from), self.t0_of(to));
        if a == b {
            return None;
        }
        let first = if self.per_pair == 0 { 0 } else { SitesShape::pair(a.into(), b.into()) as u16 * self.per_pair };
        Some(first + (entropy % u32::from(self.paths_between_t0s())) as u16)
    }

    /// The address to send to, on this plane and over the T1 that the entropy value selects (modulo the number of
    /// paths).
    ///
    /// # Panics
    /// If plane or hosts do not fit ([`Clos::holds`]). Hosts that [`Clos::host_of`] returned always fit.
    pub fn path(&self, plane: u8, from: u16, to: u16, entropy: u32) -> Ipv6Addr {
        let (first, last) = (self.t0_of(from), self.t0_of(to));
        match self.t1_of(from, to, entropy) {
            Some(t1) => self.list(plane, first, &[self.t1(plane, t1), self.t0(plane, last)], to),
            None => self.list(plane, first, &[], to),
        }
    }

    /// The address of a packet to this T1 and back to the sender. The T1 must be linked to the sender's T0. With it a
    /// sender can test half of a path without a peer.
    ///
    /// # Panics
    /// If plane, host or T1 do not fit ([`Clos::holds`]).
    pub fn probe(&self, plane: u8, from: u16, t1: u16) -> Ipv6Addr {
        let t0 = self.t0_of(from);
        self.list(plane, t0, &[self.t1(plane, t1), self.t0(plane, t0)], from)
    }

    /// The word of a T0 switch.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t0(&self, plane: u8, t0: u16) -> u16 {
        switch(T0, plane, t0)
    }

    /// The second word of a T0 switch; it is consumed together with the word after it.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t0_neutral(&self, plane: u8, t0: u16) -> u16 {
        switch(T0_NEUTRAL, plane, t0)
    }

    /// The word of a T1 switch.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t1(&self, plane: u8, t1: u16) -> u16 {
        switch(T1, plane, t1)
    }

    /// The word of a host.
    ///
    /// # Panics
    /// If the number does not fit.
    pub fn host_word(&self, host: u16) -> u16 {
        assert!(host < HOSTS_MAX, "host {host} does not fit a micro segment");
        HOST | host
    }

    /// The address with only this word. Tables hold `locator(word)/48`.
    pub fn locator(&self, word: u16) -> Ipv6Addr {
        join(self.block, [word, 0, 0, 0, 0, 0])
    }

    /// An address in words: `plane 0, T0 0 -> T1 1 -> T0 1 -> host 2`. Words that were consumed on the way are missing.
    pub fn describe(&self, address: Ipv6Addr) -> String {
        let (block, words) = split(address);
        if block != self.block {
            return format!("{address}, outside the fabric");
        }
        let (mut plane, mut hops, mut rest) = (None, Vec::new(), words.as_slice());
        while let [word, behind @ ..] = rest {
            let number = word & 0xff;
            rest = behind;
            match word & 0xf000 {
                0 if *word == 0 => break,
                T0 => hops.push(format!("T0 {number}")),
                T0_NEUTRAL => {
                    hops.push(format!("T0 {number}"));
                    rest = behind.get(1..).unwrap_or_default();
                }
                T1 => hops.push(format!("T1 {number}")),
                HOST => {
                    hops.push(format!("host {}", word & 0x0fff));
                    break;
                }
                _ => {
                    hops.push(format!("unknown {word:04x}"));
                    break;
                }
            }
            plane = plane.or(Some(word >> 8 & 0xf));
        }
        let mut text = plane.map_or(String::new(), |p| format!("plane {p}, ")) + &hops.join(" -> ");
        if hops.is_empty() {
            text.push_str("nowhere");
        }
        let tail: Vec<String> = rest.iter().map(|w| format!("{w:04x}")).collect();
        if rest.iter().any(|w| *w != 0) {
            text.push_str(&format!(", tail {}", tail.join(":")));
        }
        text
    }

    /// The address for the way over a first T0 and then these words to a host.
    fn list(&self, plane: u8, first: u16, way: &[u16], host: u16) -> Ipv6Addr {
        let mut words = [0; WORDS];
        let mut at = 1;
        words[0] = self.t0(plane, first);
        if self.neutral {
            words[0] = self.t0_neutral(plane, first);
            // No list of this layout adds up to 0xffff, so the compensator is never zero; a zero would end the list.
            words[1] = !way.iter().fold(words[0], |sum, word| add(sum, *word));
            at = 2;
        }
        words[at..at + way.len()].copy_from_slice(way);
        words[at + way.len()] = self.host_word(host);
        join(self.block, words)
    }
}

/// Checks that a number is at least one and at most `most`.
fn within(what: &'static str, count: u32, most: u16) -> Result<(), ClosError> {
    match count {
        0 => Err(ClosError::None(what)),
        _ if count > u32::from(most) => Err(ClosError::TooMany { what, count, most }),
        _ => Ok(()),
    }
}

fn switch(kind: u16, plane: u8, number: u16) -> u16 {
    assert!(u16::from(plane) < PLANES_MAX, "plane {plane} does not fit a micro segment");
    assert!(number < SWITCHES_MAX, "switch {number} does not fit a micro segment");
    kind | u16::from(plane) << 8 | number
}

/// One's complement addition (RFC 1071).
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}

fn split(address: Ipv6Addr) -> (u32, [u16; WORDS]) {
    let [a, b, words @ ..] = address.segments();
    (u32::from(a) << 16 | u32::from(b), words)
}

fn join(block: u32, [a, b, c, d, e, f]: [u16; WORDS]) -> Ipv6Addr {
    Ipv6Addr::new((block >> 16) as u16, block as u16, a, b, c, d, e, f)
}

/// The static table of a switch: its own words, and the port towards each neighbour's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchTable {
    block: u32,
    /// Own words, each with the number of words to remove when it is in front.
    own: Vec<(u16, usize)>,
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
    /// A switch with its own words (each with the number of 16-bit words that it consumes, 1 or 2) and its neighbours
    /// (word and port).
    pub fn new(block: u32, own: Vec<(u16, usize)>, mut routes: Vec<(u16, u16)>) -> SwitchTable {
        routes.sort_unstable();
        SwitchTable { block, own, routes }
    }

    /// A T0 switch of a fabric of `hosts` hosts. Ports: its hosts in order, from 0; then the T1s that it is linked to,
    /// each at port [`Clos::hosts_per_t0`] plus the T1's number.
    ///
    /// # Panics
    /// If plane or numbers do not fit ([`Clos::holds`]).
    pub fn t0(clos: &Clos, plane: u8, t0: u16, hosts: u16) -> SwitchTable {
        let below = (0..hosts).filter(|h| clos.t0_of(*h) == t0);
        let hosts = below.map(|h| (clos.host_word(h), h % clos.hosts_per_t0));
        let up = clos.t1s_of(t0).map(|t1| (clos.t1(plane, t1), clos.hosts_per_t0 + t1));
        let routes = hosts.chain(up).collect();
        SwitchTable::new(clos.block, vec![(clos.t0(plane, t0), 1), (clos.t0_neutral(plane, t0), 2)], routes)
    }

    /// A T1 switch of a fabric of `t0s` T0s. Each T0 that it is linked to is at the port with the T0's number.
    ///
    /// # Panics
    /// If plane or numbers do not fit ([`Clos::holds`]).
    pub fn t1(clos: &Clos, plane: u8, t1: u16, t0s: u16) -> SwitchTable {
        let routes = clos.t0s_of(t1, t0s).map(|t0| (clos.t0(plane, t0), t0)).collect();
        SwitchTable::new(clos.block, vec![(clos.t1(plane, t1), 1)], routes)
    }

    /// Number of entries: own words and neighbours.
    pub fn entries(&self) -> usize {
        self.own.len() + self.routes.len()
    }

    /// The switch's own words, each with how many words it consumes.
    pub fn own(&self) -> &[(u16, usize)] {
        &self.own
    }

    /// The neighbours' words and the ports towards them.
    pub fn routes(&self) -> &[(u16, u16)] {
        &self.routes
    }

    /// The output port of a packet, and its new destination address.
    ///
    /// The switch removes its own words from the front, one after the other. Then the first word selects the port.
    ///
    /// # Errors
    /// If the packet must be dropped.
    pub fn forward(&self, destination: Ipv6Addr) -> Result<(u16, Ipv6Addr), DropReason> {
        let (block, mut words) = split(destination);
        if block != self.block {
            return Err(DropReason::Foreign);
        }
        // Each round removes at least one word, and a list without words ends here.
        while let Some((_, taken)) = self.own.iter().find(|(word, _)| *word == words[0]) {
            words.copy_within(taken.., 0);
            words[WORDS - taken..].fill(0);
            if words == [0; WORDS] {
                return Err(DropReason::Ends);
            }
        }
        match self.routes.binary_search_by_key(&words[0], |(word, _)| *word) {
            Ok(at) => Ok((self.routes[at].1, join(block, words))),
            Err(_) => Err(DropReason::Unknown(words[0])),
        }
    }
}
