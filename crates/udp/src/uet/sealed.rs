//! The security of a node: all its datagrams are sealed, and what it receives is opened, once.

use crate::error::Error;
use crate::secure::Window;
use crate::uet_security::{Domain, Mode, Opener, Refusal, Sealer};
use std::collections::BTreeMap;

/// The security of a node. All nodes of a domain have the same `domain`, and trust each other.
#[derive(Clone)]
pub struct Security {
    /// The domain, with [`Mode::Direct`] or [`Mode::Cluster`].
    pub domain: Domain,
    /// This node's number in the domain. No other node has it.
    pub identifier: u32,
    /// Which of two keys: it changes when the domain's key does.
    pub association: bool,
    /// A node that starts again under the same key needs a higher epoch, or it would seal with nonces that it has used.
    pub epoch: u16,
}

/// Seals and opens the datagrams of a node.
pub(super) struct Guard {
    sealer: Sealer,
    opener: Opener,
    /// Time stamps that were seen, by sender. The windows have the smallest size there is, 32,704: many times SUET's
    /// window of packets. A datagram that is later counts as repeated.
    seen: BTreeMap<u32, Window>,
    /// Senders that it remembers.
    senders_max: usize,
}

impl Guard {
    pub(super) fn new(security: Security, senders_max: usize) -> Result<Guard, Error> {
        let Security { domain, identifier, association, epoch } = security;
        if !matches!(domain.mode, Mode::Direct | Mode::Cluster) {
            let remedy = "nodes over UDP have identifiers: take Mode::Cluster or Mode::Direct";
            return Err(Error::Config(format!("domain.mode = {:?}: {remedy}", domain.mode)));
        }
        let sealer = Sealer::new(domain.clone(), Some(identifier), association, epoch)?;
        Ok(Guard { sealer, opener: Opener::new(domain, association)?, seen: BTreeMap::new(), senders_max })
    }

    /// Begins a datagram at the end of `out`.
    pub(super) fn begin(&self, out: &mut Vec<u8>) {
        self.sealer.begin_over_udp(out);
    }

    /// Seals the datagram that began at `start`.
    pub(super) fn end(&mut self, out: &mut Vec<u8>, start: usize) -> Result<(), Refusal> {
        self.sealer.end_over_udp(out, start)
    }

    /// Opens a datagram in place; `None` if it is forged or repeated, or of one sender too many.
    pub(super) fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let (sender, stamp, plain) = self.opener.open_over_udp(datagram).ok()?;
        if !self.seen.contains_key(&sender) && self.seen.len() >= self.senders_max {
            return None;
        }
        let window = self.seen.entry(sender).or_insert_with(|| Window::new(0));
        // The very last stamp has no successor.
        if stamp == u64::MAX || !window.is_fresh(stamp) {
            return None;
        }
        window.insert(stamp);
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uet::{Config, Counters, Event, Node};
    use crate::uet_security::Rekey;
    use std::net::SocketAddr;
    use std::time::Duration;

    fn security(identifier: u32, mode: Mode) -> Security {
        let domain = Domain { number: 9, key: [3; 32], mode, rekey: Rekey { mask: 0xff00, shift: 8 } };
        Security { domain, identifier, association: false, epoch: 1 }
    }

    fn sealed(guard: &mut Guard, plain: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 2, 3];
        guard.begin(&mut bytes);
        bytes.extend_from_slice(plain);
        guard.end(&mut bytes, 3).expect("a counter is left");
        bytes.split_off(3)
    }

    #[test]
    fn a_sealed_datagram_opens_once_and_no_byte_of_it_may_change() {
        for mode in [Mode::Direct, Mode::Cluster] {
            let [mut a, mut b] = [1, 2].map(|number| Guard::new(security(number, mode), 1).expect("AES"));
            let first = sealed(&mut a, b"one");
            assert_eq!(first.len(), 16 + 3 + 16);
            for at in 0..first.len() {
                let mut changed = first.clone();
                changed[at] ^= 1;
                assert_eq!(b.open(&mut changed), None, "byte {at}");
            }
            // More than one key's worth of datagrams, in any order.
            let others: Vec<Vec<u8>> = (0..600u32).map(|i| sealed(&mut a, &i.to_be_bytes())).collect();
            for (i, other) in others.iter().enumerate().rev() {
                assert_eq!(b.open(&mut other.clone()), Some(&(i as u32).to_be_bytes()[..]));
                assert_eq!(b.open(&mut other.clone()), None);
            }
            assert_eq!(b.open(&mut first.clone()), Some(&b"one"[..]));
            // It remembers one sender.
            let mut c = Guard::new(security(3, mode), 1).expect("AES");
            assert_eq!(b.open(&mut sealed(&mut c, b"two")), None);
            for end in 0..first.len() {
                assert_eq!(b.open(&mut first[..end].to_vec()), None);
            }
        }
        let refused = Guard::new(security(1, Mode::Client), 1).err().expect("keys of addresses").to_string();
        assert!(refused.contains("Client") && refused.contains("Mode::Cluster"), "{refused}");
    }

    /// Turns both nodes until the sender has an event; returns the receiver's events and both counters.
    fn exchange(mut from: Node, mut to: Node, patient: bool) -> (Vec<Event>, [Counters; 2]) {
        let (now, address) = (from.now(), to.address().expect("an address"));
        from.uet().send(now, address, Some(5), vec![7; 100_000]);
        let (mut events, mut turns) = (Vec::new(), 0);
        while from.uet().poll_event().is_none() && (patient || to.uet().counters() == Counters::default()) {
            // A turn waits for at most a millisecond.
            turns += 1;
            assert!(turns < 30_000, "{:?}", to.uet().counters());
            for node in [&mut from, &mut to] {
                node.turn(Duration::from_millis(1)).expect("a socket");
            }
            events.extend(std::iter::from_fn(|| to.uet().poll_event()));
        }
        (events, [from, to].map(|mut node| node.uet().counters()))
    }

    #[test]
    fn sealed_nodes_exchange_messages_with_each_other_only() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plain = || Node::bind(any, Config::default()).expect("a free port");
        let sealed = |number| {
            let security = security(number, Mode::Cluster);
            Node::bind_sealed(any, Config { payload: 1_384, ..Config::default() }, security).expect("a free port")
        };
        let (events, counters) = exchange(sealed(1), sealed(2), true);
        assert!(matches!(&events[..], [Event::Message { bytes, .. }] if *bytes == vec![7; 100_000]), "{events:?}");
        assert_eq!(counters.map(|c| c.forged + c.malformed), [0, 0]);
        let (events, counters) = exchange(plain(), sealed(1), false);
        assert!(events.is_empty() && counters[1].forged > 0, "{events:?} {counters:?}");
        let (events, counters) = exchange(sealed(1), plain(), false);
        assert!(events.is_empty() && counters[1].malformed > 0, "{events:?} {counters:?}");
    }
}
