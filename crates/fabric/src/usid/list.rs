//! Lists of stops, and the addresses that stand for them.

use super::{Clos, DOWNLINK, T0, T1, T1_NEUTRAL, T2, join, split};
use crate::topology::SitesShape;
use core::net::Ipv6Addr;

/// A stop of a path, by its number in its plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stop {
    /// A T0 switch.
    T0(u16),
    /// A T1 switch.
    T1(u16),
    /// A T2 switch.
    T2(u16),
    /// The host behind this downlink of the T0 before it.
    Downlink(u16),
}

/// The stops of a path, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The plane.
    pub plane: u8,
    /// All switches from the first T0 on, and the downlink to the host.
    pub stops: Vec<Stop>,
}

impl Clos {
    /// The path from one host to another that an entropy value selects ([`Clos::path`]).
    ///
    /// # Panics
    /// If the hosts do not fit ([`Clos::holds`]).
    pub fn way(&self, plane: u8, from: u32, to: u32, entropy: u32) -> Way {
        let (first, last) = (self.t0_of(from), self.t0_of(to));
        let mut stops = vec![Stop::T0(first)];
        if first != last {
            let bits = self.first_bits();
            let ways = u32::from(self.paths_between_t0s());
            let up = ((entropy & ((1 << bits) - 1)) % ways) as u16;
            let (pod, far) = (self.pod_of(first), self.pod_of(last));
            let pair = if self.per_pair == 0 { 0 } else { SitesShape::pair(first.into(), last.into()) as u16 };
            stops.push(Stop::T1(pod * self.t1s + pair * self.per_pair + up));
            if let Some(pods) = self.pods.filter(|_| pod != far) {
                let over = ((entropy >> bits) % u32::from(pods.t2s_per_t1)) as u16;
                stops.extend([Stop::T2(up * pods.t2s_per_t1 + over), Stop::T1(far * self.t1s + up)]);
            }
            stops.push(Stop::T0(last));
        }
        stops.push(Stop::Downlink(self.downlink_of(to)));
        Way { plane, stops }
    }

    /// The smallest entropy value that selects the same path between these hosts, in either direction.
    ///
    /// # Panics
    /// If the hosts do not fit ([`Clos::holds`]).
    pub fn least_entropy(&self, from: u32, to: u32, entropy: u32) -> u32 {
        let (first, last) = (self.t0_of(from), self.t0_of(to));
        if first == last {
            return 0;
        }
        let bits = self.first_bits();
        let up = (entropy & ((1 << bits) - 1)) % u32::from(self.paths_between_t0s());
        let pods = self.pods.filter(|_| self.pod_of(first) != self.pod_of(last));
        up | pods.map_or(0, |pods| ((entropy >> bits) % u32::from(pods.t2s_per_t1)) << bits)
    }

    /// The path of a probe that a host sends to itself over a T1 that its T0 is linked to. With it a sender can test
    /// half of a path without a peer.
    ///
    /// # Panics
    /// If the host does not fit ([`Clos::holds`]).
    pub fn probe_way(&self, plane: u8, from: u32, t1: u16) -> Way {
        let t0 = Stop::T0(self.t0_of(from));
        Way { plane, stops: vec![t0, Stop::T1(t1), t0, Stop::Downlink(self.downlink_of(from))] }
    }

    /// The address of a probe to this T1 and back to the sender ([`Clos::probe_way`]).
    ///
    /// # Panics
    /// If plane, host or T1 do not fit ([`Clos::holds`]).
    pub fn probe(&self, plane: u8, from: u32, t1: u16) -> Ipv6Addr {
        self.address(&self.probe_way(plane, from, t1))
    }

    /// The address of a probe to the sender's own T0 and back: the T0 removes its word from the front, and finds it
    /// again behind. Its sender must omit the UDP checksum, since the list has no compensator.
    ///
    /// # Panics
    /// If plane or host do not fit ([`Clos::holds`]).
    pub fn probe_t0(&self, plane: u8, from: u32) -> Ipv6Addr {
        let t0 = self.t0(plane, self.t0_of(from));
        join(self.block, &[t0, t0, self.downlink(plane, self.downlink_of(from))])
    }

    /// The address of a path of at most six stops. Between hosts of one T0 it is the receiver's own address.
    ///
    /// # Panics
    /// If plane or stops do not fit ([`Clos::holds`]), or a neutral path does not begin with a T0 and a T1.
    pub fn address(&self, way: &Way) -> Ipv6Addr {
        let words: Vec<u16> = way.stops.iter().map(|stop| self.word_of(way.plane, *stop)).collect();
        if !self.neutral || words.len() == 2 {
            return join(self.block, &words);
        }
        let [Stop::T0(_), Stop::T1(t1), ..] = way.stops[..] else {
            panic!("a neutral path begins with a T0 and a T1, not {:?}", way.stops)
        };
        let first = self.t1_neutral(way.plane, t1);
        // The last T0 and the downlink arrive; all words before them are consumed.
        let consumed = &words[2..words.len() - 2];
        // A zero would end the list; 0xffff is a zero of one's complement, too.
        let compensator = match !consumed.iter().fold(first, |sum, word| add(sum, *word)) {
            0 => 0xffff,
            other => other,
        };
        join(self.block, &[&[first, compensator], &words[2..]].concat())
    }

    /// The path of an address, as its first switch finds it: without a compensator, and in neutral lists without the
    /// sender's T0. `None` if it is no list of one plane of this fabric that ends at a host.
    pub fn way_of(&self, address: Ipv6Addr) -> Option<Way> {
        let (block, words) = split(address);
        let (mut stops, mut plane) = (Vec::new(), None);
        let mut rest = words.as_slice();
        while let [word, behind @ ..] = rest {
            let (of, stop) = self.stop(*word)?;
            if plane.is_some_and(|plane| plane != of) {
                return None;
            }
            (plane, rest) = (Some(of), behind);
            if word & 0xe000 == T1_NEUTRAL {
                rest = behind.get(1..)?;
            }
            stops.push(stop);
            if let Stop::Downlink(_) = stop {
                let whole = block == self.block && stops.len() > 1 && rest.iter().all(|word| *word == 0);
                return whole.then_some(Way { plane: of, stops });
            }
        }
        None
    }

    /// The word of a stop.
    pub(super) fn word_of(&self, plane: u8, stop: Stop) -> u16 {
        match stop {
            Stop::T0(t0) => self.t0(plane, t0),
            Stop::T1(t1) => self.t1(plane, t1),
            Stop::T2(t2) => self.t2(plane, t2),
            Stop::Downlink(downlink) => self.downlink(plane, downlink),
        }
    }

    /// Plane and stop of a word; `None` if its number is zero.
    pub(super) fn stop(&self, word: u16) -> Option<(u8, Stop)> {
        type Kind = fn(u16) -> Stop;
        let (kind, most) = match word & 0xc000 {
            T0 => (Stop::T0 as Kind, self.long_max()),
            T1 => (Stop::T1 as Kind, self.long_max()),
            DOWNLINK => (Stop::Downlink as Kind, self.long_max()),
            _ if word & 0xe000 == T2 => (Stop::T2 as Kind, self.short_max()),
            _ => (Stop::T1 as Kind, self.short_max()),
        };
        let number = (word & most).checked_sub(1)?;
        let plane = u32::from(word / (most + 1)) & ((1 << self.plane_bits) - 1);
        Some((plane as u8, kind(number)))
    }

    /// An address in words: `plane 0, T0 0 -> T1 1 -> T0 1 -> host 2`. Words that were consumed on the way are missing.
    pub fn describe(&self, address: Ipv6Addr) -> String {
        let (block, words) = split(address);
        if block != self.block {
            return format!("{address}, outside the fabric");
        }
        let (mut plane, mut hops, mut rest) = (None, Vec::new(), words.as_slice());
        let mut last_t0 = None;
        while let [word, behind @ ..] = rest {
            if *word == 0 {
                break;
            }
            rest = behind;
            let Some((of, stop)) = self.stop(*word) else {
                hops.push(format!("unknown {word:04x}"));
                break;
            };
            plane = plane.or(Some(of));
            if word & 0xe000 == T1_NEUTRAL {
                rest = behind.get(1..).unwrap_or_default();
            }
            hops.push(match stop {
                Stop::T0(t0) => format!("T0 {t0}"),
                Stop::T1(t1) => format!("T1 {t1}"),
                Stop::T2(t2) => format!("T2 {t2}"),
                Stop::Downlink(downlink) => match last_t0 {
                    Some(t0) => format!("host {}", u32::from(t0) * u32::from(self.hosts_per_t0) + u32::from(downlink)),
                    None => format!("downlink {downlink}"),
                },
            });
            if let Stop::Downlink(_) = stop {
                break;
            }
            last_t0 = if let Stop::T0(t0) = stop { Some(t0) } else { None };
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
}

/// One's complement addition (RFC 1071).
fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u16::from(carry)
}
