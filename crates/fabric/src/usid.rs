//! Source routes as IPv6 addresses: SRv6 micro segments (uSIDs) of a multi-plane Clos with two or three tiers.
//!
//! A destination address is a block of 32 bits and up to six words of 16 bits: one for each switch, and one for the
//! downlink to the host. A switch whose own word is in front removes it, shifts the remaining words forward, and sends
//! the packet to the port of the next word. Its table never changes (uN: RFC 8986, section 4.1, with the NEXT-C-SID
//! flavour of RFC 9800, section 4.1). So the address that a sender writes fixes the whole path, and only [`Clos::path`]
//! makes such addresses.
//!
//! A word is a kind (2 bits), the plane (`b` bits) and a number that begins at 1 (the other bits), so no word is zero.
//! With two tiers `b` is 3. With three tiers it is the smallest number of bits that tells the planes apart.
//!
//! | word (`b` = 3) | owner | effect at its owner |
//! |---|---|---|
//! | `0x0000`, plane, `i + 1` | T0 switch `i` | consumed; but kept if the word of one of its downlinks follows |
//! | `0x4000`, plane, `j + 1` | T1 switch `j` | consumed |
//! | `0x8000`, plane, `d + 1` | downlink `d` of the T0 whose word is in front | selects the port; stays |
//! | `0xc000`, plane, `m + 1` | T2 switch `m`, below `0xe000` | consumed |
//! | `0xe000`, plane, `j + 1` | the same T1 switch `j` | consumed together with the next word |
//!
//! With three tiers, T0s and T1s are numbered through the whole plane, pod by pod. T1 `a` of every pod is linked to the
//! T2s from `a` times [`Pods::t2s_per_t1`] on.
//!
//! The words of the last T0 and of the downlink arrive at the host. They are the host's own address in that plane, so
//! every port of a NIC has exactly one address: 512 T0s with 256 downlinks have 131,072 of them in each plane. The
//! layout is ours: no standard and no paper gives one (Araujo et al., arXiv 2605.04333, section 2.2, says only that the
//! words exist and that tables are static). In OCP MRC 1.0's example, too, a word is a tier and a number.
//!
//! A UDP checksum covers the destination address. The sender computes it over the full address; the receiver checks it
//! over the address without the consumed words. *Neutral* addresses therefore begin with the T1's second word and a
//! compensator: with it the consumed words add up to zero in one's complement, so the same checksum is right at both
//! ends (the method of RFC 6296, section 3.2). They leave out the word of the first T0, which forwards by the word of
//! the T1 behind it. *Plain* addresses name the first T0, too: a packet on a wrong cable is dropped. Their senders must
//! omit UDP checksums.
//!
//! Usually every T1 is linked to every T0 of its plane or pod. Between sites, each pair of T0s has its own T1s
//! ([`Clos::of_sites`]), one for each parallel long link. No other T0 is linked to them.
//!
//! ```
//! use strandway_fabric::usid::Clos;
//!
//! let clos = Clos::new(2, 2).expect("two T1s per plane, two hosts below a T0");
//! let path = clos.path(0, 0, 2, 1);
//! assert_eq!(path.to_string(), "fcbb:bb00:e002:1ffd:2:8001::");
//! assert_eq!(clos.describe(path), "plane 0, T1 1 -> T0 1 -> host 2");
//! let plain = Clos { neutral: false, ..clos }.path(0, 0, 2, 1);
//! assert_eq!(plain.to_string(), "fcbb:bb00:1:4002:2:8001::");
//! ```

mod element;
mod hop;
mod list;
mod table;

pub use element::Element;
pub use hop::{End, Hop};
pub use list::{Stop, Way};
pub use table::{DropReason, SwitchTable};

use core::fmt;
use core::net::Ipv6Addr;

/// The default block of addresses: `fcbb:bb00::/32`, private addresses (RFC 4193), as in the uSID examples of RFC 9800.
pub const BLOCK: u32 = 0xfcbb_bb00;

/// Bits of a word that name the plane, at most; a fabric of two tiers always has this many.
pub const PLANE_BITS_MAX: u8 = 3;

/// Number of planes that a word can distinguish.
pub const PLANES_MAX: u16 = 1 << PLANE_BITS_MAX;

/// Number of T0 switches of a plane that a word can distinguish with 3 bits for the plane; the same for downlinks.
pub const SWITCHES_MAX: u16 = (1 << 11) - 1;

/// Number of T1 switches of a plane that a word can distinguish with 3 bits for the plane. Their second words have one
/// bit less.
pub const T1S_MAX: u16 = (1 << 10) - 1;

/// Number of hosts that two words can distinguish with 3 bits for the plane.
pub const HOSTS_MAX: u32 = SWITCHES_MAX as u32 * SWITCHES_MAX as u32;

/// Words of an address after the block.
const WORDS: usize = 6;

const T0: u16 = 0x0000;
const T1: u16 = 0x4000;
const DOWNLINK: u16 = 0x8000;
const T2: u16 = 0xc000;
const T1_NEUTRAL: u16 = 0xe000;

/// The parameters from which senders and switches of a fabric make and read addresses. All must use the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clos {
    /// The first 32 bits of every address.
    pub block: u32,
    /// Bits of a word that name the plane, at most [`PLANE_BITS_MAX`].
    pub plane_bits: u8,
    /// T1 switches of each plane; with three tiers, of each pod.
    pub t1s: u16,
    /// T1 switches that belong to one pair of T0s, numbered in the order of
    /// [`SitesShape::pairs`](crate::topology::SitesShape::pairs); 0 if every T1 is linked to every T0.
    pub per_pair: u16,
    /// Hosts below each T0 switch; host `h` is below T0 `h / hosts_per_t0` of every plane.
    pub hosts_per_t0: u16,
    /// The third tier; `None` with two tiers.
    pub pods: Option<Pods>,
    /// True: paths are checksum-neutral. False: senders must omit UDP checksums.
    pub neutral: bool,
}

/// The third tier of a plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pods {
    /// T0 switches of a pod; the last pod may have fewer.
    pub t0s: u16,
    /// T2 switches that each T1 is linked to. T1 `a` of every pod is linked to T2s `a * t2s_per_t1 ..`.
    pub t2s_per_t1: u16,
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
    /// A fabric of two tiers with the usual block and neutral addresses. The fields may be changed afterwards.
    ///
    /// # Errors
    /// If a number is zero or does not fit its words.
    pub fn new(t1s: u16, hosts_per_t0: u16) -> Result<Clos, ClosError> {
        let clos = Clos {
            block: BLOCK,
            plane_bits: PLANE_BITS_MAX,
            t1s,
            per_pair: 0,
            hosts_per_t0,
            pods: None,
            neutral: true,
        };
        clos.check()?;
        Ok(clos)
    }

    /// A fabric of `sites` sites with one T0 per plane each, and `per_pair` T1s between any two sites.
    ///
    /// # Errors
    /// If a number is zero or does not fit its words.
    pub fn of_sites(sites: u16, per_pair: u16, hosts_per_t0: u16) -> Result<Clos, ClosError> {
        within("T1 switches of a pair", u32::from(per_pair), T1S_MAX)?;
        let pairs = u32::from(sites) * u32::from(sites.saturating_sub(1)) / 2;
        let t1s = pairs.saturating_mul(u32::from(per_pair));
        within("T1 switches of a plane", t1s, T1S_MAX)?;
        Ok(Clos { per_pair, ..Clos::new(t1s as u16, hosts_per_t0)? })
    }

    /// A fabric of three tiers with this number of planes: pods with `t1s` T1s each.
    ///
    /// # Errors
    /// If a number is zero or does not fit its words.
    pub fn of_pods(planes: u16, t1s: u16, hosts_per_t0: u16, pods: Pods) -> Result<Clos, ClosError> {
        within("planes", u32::from(planes), PLANES_MAX)?;
        let plane_bits = planes.next_power_of_two().ilog2() as u8;
        let clos = Clos { plane_bits, t1s, per_pair: 0, hosts_per_t0, pods: Some(pods), block: BLOCK, neutral: true };
        clos.check()?;
        Ok(clos)
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
        if self.plane_bits > PLANE_BITS_MAX {
            let (count, most) = (u32::from(self.plane_bits), u16::from(PLANE_BITS_MAX));
            return Err(ClosError::TooMany { what: "bits for the plane", count, most });
        }
        within("T1 switches of a plane", u32::from(self.t1s), self.short_max())?;
        within("hosts below a T0", u32::from(self.hosts_per_t0), self.long_max())?;
        if let Some(pods) = self.pods {
            within("T0 switches of a pod", u32::from(pods.t0s), self.long_max())?;
            within("T2 switches of a T1", u32::from(pods.t2s_per_t1), self.short_max())?;
            within("T2 switches of a plane", u32::from(self.t1s) * u32::from(pods.t2s_per_t1), self.short_max())?;
        }
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
        within("planes", planes, 1 << self.plane_bits)?;
        if hosts == 0 {
            return Err(ClosError::None("hosts"));
        }
        let t0s = hosts.div_ceil(u32::from(self.hosts_per_t0));
        within("T0 switches of a plane", t0s, self.t0s_max())?;
        match self.pods {
            Some(pods) => {
                let t1s = t0s.div_ceil(u32::from(pods.t0s)) * u32::from(self.t1s);
                within("T1 switches of a plane", t1s, self.short_max())
            }
            None => Ok(()),
        }
    }

    /// The largest number that fits a word's number: of T0s and downlinks.
    fn long_max(&self) -> u16 {
        (1 << (14 - self.plane_bits)) - 1
    }

    /// The largest number that fits a T2's word or the second word of a T1; both are of one kind.
    fn short_max(&self) -> u16 {
        (1 << (13 - self.plane_bits)) - 1
    }

    /// Limit on the T0 switches of a plane: the number that words can distinguish, or the number that T1s of pairs
    /// join.
    fn t0s_max(&self) -> u16 {
        self.joined(self.t1s.saturating_sub(1)).map_or(self.long_max(), |(_, high)| high + 1)
    }

    /// The two T0s that a T1 joins; `None` if every T1 is linked to every T0 of its plane or pod.
    pub fn joined(&self, t1: u16) -> Option<(u16, u16)> {
        let mut low = t1.checked_div(self.per_pair)?;
        let mut high = 1;
        while low >= high {
            low -= high;
            high += 1;
        }
        Some((low, high))
    }

    /// The pod of a T0; 0 with two tiers.
    pub fn pod_of(&self, t0: u16) -> u16 {
        self.pods.map_or(0, |pods| t0 / pods.t0s)
    }

    /// The T1s that a T0 is linked to.
    pub fn t1s_of(&self, t0: u16) -> impl Iterator<Item = u16> + '_ {
        let first = self.pod_of(t0) * self.t1s;
        let linked = move |t1: &u16| self.joined(*t1).is_none_or(|(low, high)| t0 == low || t0 == high);
        (first..first + self.t1s).filter(linked)
    }

    /// The T0s, among the first `t0s` of the plane, that a T1 is linked to.
    pub fn t0s_of(&self, t1: u16, t0s: u16) -> impl Iterator<Item = u16> + '_ {
        let joined = self.joined(t1);
        let pod = t1 / self.t1s;
        let linked = move |t0: &u16| match joined {
            Some((low, high)) => *t0 == low || *t0 == high,
            None => self.pod_of(*t0) == pod,
        };
        (0..t0s).filter(linked)
    }

    /// The T2s that a T1 is linked to; none with two tiers.
    pub fn t2s_of(&self, t1: u16) -> core::ops::Range<u16> {
        let each = self.pods.map_or(0, |pods| pods.t2s_per_t1);
        let first = t1 % self.t1s * each;
        first..first + each
    }

    /// The T1s that a T2 is linked to in a plane of `t0s` T0s: one of each pod.
    pub fn t1s_below(&self, t2: u16, t0s: u16) -> impl Iterator<Item = u16> + '_ {
        let pods = if t0s == 0 { 0 } else { self.pod_of(t0s - 1) + 1 };
        let position = self.pods.map_or(0, |pods| t2 / pods.t2s_per_t1);
        (0..pods).map(move |pod| pod * self.t1s + position)
    }

    /// Number of T2 switches of a plane; 0 with two tiers.
    pub fn t2s(&self) -> u16 {
        self.pods.map_or(0, |pods| self.t1s * pods.t2s_per_t1)
    }

    /// Number of ways between two T0s of a plane; with three tiers, of a pod.
    pub fn paths_between_t0s(&self) -> u16 {
        if self.per_pair == 0 { self.t1s } else { self.per_pair }
    }

    /// The number of choices at each tier on the way up: at the T0, and at the T1 (0 with two tiers).
    pub fn uplinks(&self) -> [u16; 2] {
        [self.paths_between_t0s(), self.pods.map_or(0, |pods| pods.t2s_per_t1)]
    }

    /// A host's own address in a plane: the destination of packets when they arrive, and the address of the host's
    /// socket in that plane.
    ///
    /// # Panics
    /// If plane or host do not fit ([`Clos::holds`]).
    pub fn host(&self, plane: u8, host: u32) -> Ipv6Addr {
        join(self.block, &[self.t0(plane, self.t0_of(host)), self.downlink(plane, self.downlink_of(host))])
    }

    /// The host that owns an address in any plane, with or without words after its own two; `None` if no host does.
    pub fn host_of(&self, address: Ipv6Addr) -> Option<u32> {
        let (block, words) = split(address);
        let (Some((plane, Stop::T0(t0))), Some((same, Stop::Downlink(downlink)))) =
            (self.stop(words[0]), self.stop(words[1]))
        else {
            return None;
        };
        let there = block == self.block && plane == same && t0 < self.t0s_max() && downlink < self.hosts_per_t0;
        there.then(|| u32::from(t0) * u32::from(self.hosts_per_t0) + u32::from(downlink))
    }

    /// The T0 switch of a host (the same number in every plane).
    pub fn t0_of(&self, host: u32) -> u16 {
        (host / u32::from(self.hosts_per_t0)) as u16
    }

    /// The number of a host among those of its T0.
    pub fn downlink_of(&self, host: u32) -> u16 {
        (host % u32::from(self.hosts_per_t0)) as u16
    }

    /// Number of ways from one host to another within a plane: one under the same T0, otherwise one for each T1 that is
    /// linked to both T0s, or for each T2 between two pods.
    pub fn paths(&self, from: u32, to: u32) -> u32 {
        let (a, b) = (self.t0_of(from), self.t0_of(to));
        let [first, second] = self.uplinks().map(u32::from);
        match (a == b, self.pod_of(a) == self.pod_of(b)) {
            (true, _) => 1,
            (false, true) => first,
            (false, false) => first * second,
        }
    }

    /// The entropy value of the way number `way`, below [`Clos::paths`], between two hosts.
    pub fn entropy(&self, way: u32) -> u32 {
        let first = u32::from(self.paths_between_t0s());
        (way % first) | ((way / first) << self.first_bits())
    }

    /// Bits of an entropy value that select the T0's uplink; those above select the T1's.
    fn first_bits(&self) -> u32 {
        self.paths_between_t0s().next_power_of_two().ilog2()
    }

    /// The address to send to, on this plane and over the switches that the entropy value selects: its lowest bits the
    /// T1 (modulo the number of T1s), the bits above them the T2 (modulo the number of T2s). The simulator selects the
    /// same switches.
    ///
    /// # Panics
    /// If plane or hosts do not fit ([`Clos::holds`]). Hosts that [`Clos::host_of`] returned always fit.
    pub fn path(&self, plane: u8, from: u32, to: u32, entropy: u32) -> Ipv6Addr {
        self.address(&self.way(plane, from, to, entropy))
    }

    /// The word of a T0 switch.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t0(&self, plane: u8, t0: u16) -> u16 {
        self.word(T0, plane, t0, self.long_max())
    }

    /// The word of a T1 switch.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t1(&self, plane: u8, t1: u16) -> u16 {
        self.word(T1, plane, t1, self.long_max())
    }

    /// The second word of a T1 switch; it is consumed together with the word after it.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t1_neutral(&self, plane: u8, t1: u16) -> u16 {
        self.word(T1_NEUTRAL, plane, t1, self.short_max())
    }

    /// The word of a T2 switch.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn t2(&self, plane: u8, t2: u16) -> u16 {
        self.word(T2, plane, t2, self.short_max())
    }

    /// The word of a downlink of any T0.
    ///
    /// # Panics
    /// If plane or number do not fit.
    pub fn downlink(&self, plane: u8, downlink: u16) -> u16 {
        self.word(DOWNLINK, plane, downlink, self.long_max())
    }

    fn word(&self, kind: u16, plane: u8, number: u16, most: u16) -> u16 {
        assert!(u32::from(plane) < 1 << self.plane_bits, "plane {plane} does not fit a micro segment");
        assert!(number < most, "number {number} does not fit a micro segment");
        kind | (u16::from(plane) * (most + 1)) | (number + 1)
    }

    /// The address with only this word. Tables hold `locator(word)/48`.
    pub fn locator(&self, word: u16) -> Ipv6Addr {
        join(self.block, &[word])
    }

    /// The address with only these two words. Tables hold `pair(words)/64` for a T0 and its downlink.
    pub fn pair(&self, words: [u16; 2]) -> Ipv6Addr {
        join(self.block, &words)
    }

    /// The prefixes of all addresses that a host sends into a plane, each with its length in bits: lists that begin
    /// with a T0's word, and neutral ones.
    pub fn plane_prefixes(&self, plane: u8) -> [(Ipv6Addr, u8); 2] {
        let prefix = |kind: u16, most: u16| join(self.block, &[kind | (u16::from(plane) * (most + 1))]);
        [
            (prefix(T0, self.long_max()), 34 + self.plane_bits),
            (prefix(T1_NEUTRAL, self.short_max()), 35 + self.plane_bits),
        ]
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

fn split(address: Ipv6Addr) -> (u32, [u16; WORDS]) {
    let [a, b, words @ ..] = address.segments();
    (u32::from(a) << 16 | u32::from(b), words)
}

/// The address of a block and at most six words.
fn join(block: u32, words: &[u16]) -> Ipv6Addr {
    let mut all = [0; WORDS];
    all[..words.len()].copy_from_slice(words);
    let [a, b, c, d, e, f] = all;
    Ipv6Addr::new((block >> 16) as u16, block as u16, a, b, c, d, e, f)
}
