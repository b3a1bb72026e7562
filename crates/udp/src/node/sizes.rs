//! Payloads that are found: a call that has a cookie asks its peer, by probes on every plane, which packets pass, and
//! says in its hello which payload the connection has.

use super::{Node, State};
use crate::address::local_for;
use crate::config::{Config, IP_UDP};
use crate::error::{Error, Reason};
use crate::frame::COOKIE;
use crate::interfaces::mtu_of;
use crate::links;
use crate::search::{LEAST, Search, Step};
use crate::secure::random;
use crate::ways::Ways;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV6;
use strandway_proto::{Span, Time};

/// The largest payload that is found: ours. Four such packets fill a system call. On loopback, encrypted, payloads of 12
/// to 21 kB take the least processor time of 4 to 32 kB, 3 to 5 % less than 8 kB.
pub(crate) const FOUND_MAX: u32 = 15_900;
/// Sends of each probe, since some may be lost: ours.
const COPIES: usize = 2;
/// Peers whose payload is remembered, and searches: ours.
const KNOWN_MAX: usize = 1_024;
/// How long it is remembered: `PMTU_RAISE_TIMER` of RFC 8899, section 5.1.1.
const KNOWN_FOR: Span = Span::from_ms(600_000);

/// The searches of a node.
pub(crate) struct Sizes {
    /// The largest packet that is tried, whatever the interfaces take.
    widest: u32,
    /// The upper half of the numbers of its probes, and the number of probes so far.
    prefix: u32,
    count: u32,
    /// By the addresses of the peer: searches, and probes that are not answered yet. Those whose callers have given up
    /// stay until the next call to the peer.
    searches: HashMap<Vec<SocketAddrV6>, Search>,
    probes: HashMap<u64, (Vec<SocketAddrV6>, usize, u32)>,
    /// Payloads that were found, and when; the newest last.
    known: VecDeque<(Vec<SocketAddrV6>, u32, Time)>,
    /// The ways of the last payload that was not that of the configuration.
    ways: Option<Ways>,
}

impl Sizes {
    /// The search to a peer: the one under way, or a new one. It begins with the MTUs of interfaces, since those of
    /// routes can be lowered by forged ICMP.
    fn search(&mut self, config: &Config, peers: &[SocketAddrV6]) -> &mut Search {
        if self.searches.len() >= KNOWN_MAX {
            // Those under way begin again.
            self.searches.clear();
            self.probes.clear();
        }
        let widest = self.widest;
        let search = || {
            let mtu = |(plane, peer): (usize, &SocketAddrV6)| match links::index_of(config, plane) {
                Some(interface) => links::mtu_of(interface),
                // It has every address of this host.
                None => mtu_of(*local_for(*peer).ok()?.ip()),
            };
            let widest = peers.iter().enumerate().filter_map(mtu).fold(widest, u32::min);
            Search::new(peers.len(), widest)
        };
        self.searches.entry(peers.to_vec()).or_insert_with(search)
    }

    /// Removes a search, whose result is known or wanted by nobody.
    fn end_search(&mut self, peers: &[SocketAddrV6]) {
        self.searches.remove(peers);
        self.probes.retain(|_, (of, ..)| of != peers);
    }

    fn known(&self, now: Time, peers: &[SocketAddrV6]) -> Option<u32> {
        let (_, payload, at) = self.known.iter().rev().find(|(of, ..)| of == peers)?;
        (now.since(*at) < KNOWN_FOR).then_some(*payload)
    }

    fn remember(&mut self, now: Time, peers: &[SocketAddrV6], payload: u32) {
        self.known.retain(|(of, ..)| of != peers);
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back((peers.to_vec(), payload, now));
    }

    /// The ways of connections with this payload; `usual`: those of the configuration's.
    pub(super) fn ways<'a>(&'a mut self, usual: &'a Ways, config: &Config, payload: u32) -> &'a Ways {
        if payload == usual.payload {
            return usual;
        }
        if self.ways.as_ref().is_none_or(|ways| ways.payload != payload) {
            self.ways = None;
        }
        self.ways.get_or_insert_with(|| usual.with_payload(config, payload))
    }

    /// A path may have become narrower, or the clock was set back.
    pub(super) fn forget(&mut self) {
        self.searches.clear();
        self.probes.clear();
        self.known.clear();
    }
}

impl Node {
    /// From now on, connections have the payload that their path takes instead of the configuration's. Before a
    /// connection begins, the caller asks the peer by probes which packets pass there and back on every plane (RFC
    /// 8899), from 1,280 bytes to what our interfaces take, and at most 15,900 bytes of payload. It takes the largest
    /// that pass on all planes that answer. That takes one round trip if the largest packets pass, else up to three,
    /// each with 20 ms or a quarter of a round trip to settle. If the peer answers no probe, the payload is that of the
    /// configuration. The payload is the connection's for its life, and is remembered for ten minutes for further
    /// connections to these addresses.
    ///
    /// The node accepts the payload of any caller. A peer that does not find payloads says its own to the caller, which
    /// takes that. Groups have the payload of [`Node::set_payload`].
    ///
    /// # Errors
    /// If connections are open or wanted.
    pub fn find_payloads(&mut self) -> Result<(), Error> {
        if self.table.open > 0 {
            return Err(Error::Config("payloads are found for all connections: say so before the first one".into()));
        }
        let widest = FOUND_MAX + self.config.overhead();
        self.probing.sizes = Some(Box::new(Sizes {
            widest,
            prefix: u32::from_be_bytes(random()?),
            count: 0,
            searches: HashMap::new(),
            probes: HashMap::new(),
            known: VecDeque::new(),
            ways: None,
        }));
        Ok(())
    }

    /// Do connections have the payload that their path takes?
    pub const fn finds_payloads(&self) -> bool {
        self.probing.sizes.is_some()
    }

    /// Bytes to which a hello is padded: a full datagram, and no more than the smallest probe while the payload is not
    /// found yet.
    pub(super) fn hello_bytes(&self, payload: Option<u32>) -> usize {
        let full = self.config.datagram_of(payload.unwrap_or(self.config.payload));
        let is_found = self.probing.sizes.is_none() || payload.is_some();
        if is_found { full } else { full.min((LEAST - IP_UDP) as usize) }
    }

    /// Does a call that has a cookie wait for its payload first?
    pub(super) fn keep_cookie(&mut self, now: Time, index: usize, plane: usize, cookie: &[u8; COOKIE]) -> bool {
        if self.probing.sizes.is_none() {
            return false;
        }
        let Some(State::Calling(calling)) = &self.table.slots[index].state else { return false };
        if calling.payload.is_some() {
            return false;
        }
        let peers = calling.peers.clone();
        if let (None, Some(sizes)) = (self.waiting_for(&peers), &mut self.probing.sizes) {
            // A search whose callers have given up is old.
            sizes.end_search(&peers);
        }
        if let Some(State::Calling(calling)) = &mut self.table.slots[index].state {
            calling.cookie = Some((plane, *cookie));
        }
        self.find_payload(now, index);
        true
    }

    /// The slot of a call to a peer that waits for its payload.
    fn waiting_for(&self, peers: &[SocketAddrV6]) -> Option<usize> {
        let waits =
            |state: &Option<State>| matches!(state, Some(State::Calling(one)) if one.waits() && one.peers == peers);
        self.table.slots.iter().position(|slot| waits(&slot.state))
    }

    /// Goes on with the search of a call that has a cookie.
    pub(super) fn find_payload(&mut self, now: Time, index: usize) {
        let Some(State::Calling(calling)) = &mut self.table.slots[index].state else { return };
        let Some(sizes) = &mut self.probing.sizes else { return };
        let peers = calling.peers.clone();
        if let Some(payload) = sizes.known(now, &peers) {
            return self.settle_payload(now, &peers, payload);
        }
        loop {
            let Some(sizes) = &mut self.probing.sizes else { return };
            match sizes.search(&self.config, &peers).step(now) {
                Step::Ask(wanted) => self.send_questions(&peers, &wanted),
                Step::Wait(until) => {
                    if let Some(State::Calling(calling)) = &mut self.table.slots[index].state {
                        calling.look = until;
                    }
                    return self.make_ready(index as u32);
                }
                Step::Done(size) => {
                    sizes.end_search(&peers);
                    let found = size.map(|size| self.config.payload_within(size));
                    let found = found.filter(|payload| self.config.takes_payload(*payload));
                    if let Some(payload) = found {
                        sizes.remember(now, &peers, payload);
                    }
                    return self.settle_payload(now, &peers, found.unwrap_or(self.config.payload));
                }
            }
        }
    }

    /// Sends probes of these sizes on all planes.
    fn send_questions(&mut self, peers: &[SocketAddrV6], wanted: &[u32]) {
        let shard = u64::from(self.shard());
        let mut questions = Vec::new();
        if let Some(sizes) = &mut self.probing.sizes {
            for (plane, to) in peers.iter().enumerate() {
                for &size in wanted {
                    sizes.count = sizes.count.wrapping_add(1) & 0xff_ffff;
                    // The lowest byte leads the answer to this shard.
                    let number = u64::from(sizes.prefix) << 32 | u64::from(sizes.count) << 8 | shard;
                    sizes.probes.insert(number, (peers.to_vec(), plane, size));
                    questions.push((plane, *to, (false, number, size.saturating_sub(IP_UDP))));
                }
            }
        }
        for _ in 0..COPIES {
            // The smallest first: an interface that drops a packet may hold up those behind it. Each copy leaves by
            // itself, so that two large ones do not share a system call that the kernel refuses.
            questions.iter().for_each(|&(plane, to, question)| self.send_probe(plane, to, question));
            self.flush();
        }
    }

    /// An answer to a probe has come. Was it one of ours?
    pub(super) fn handle_size(&mut self, now: Time, plane: usize, number: u64) -> bool {
        let Some(sizes) = &mut self.probing.sizes else { return false };
        if (number >> 32) as u32 != sizes.prefix {
            return false;
        }
        let Some((peers, asked, size)) = sizes.probes.remove(&number) else { return true };
        if let Some(search) = sizes.searches.get_mut(&peers).filter(|_| asked == plane) {
            search.handle_answer(now, plane, size);
            if let Some(index) = self.waiting_for(&peers) {
                self.find_payload(now, index);
            }
        }
        true
    }

    /// A peer takes its own payload only: the call says hello with it, unless such packets do not pass.
    pub(super) fn take_their_payload(&mut self, now: Time, index: usize, plane: usize, theirs: u64) {
        let theirs = u32::try_from(theirs).ok().filter(|payload| self.config.takes_payload(*payload));
        let Some(State::Calling(calling)) = &mut self.table.slots[index].state else { return };
        let (cookie, found) = (calling.used_cookie(plane), calling.payload.unwrap_or(0));
        let (Some(payload), Some(cookie), false) = (theirs, cookie, calling.told) else {
            return self.end(index, Reason::OtherPayload, true);
        };
        // Larger packets than the largest that are tried may pass, too.
        if payload > found && found < FOUND_MAX {
            return self.end(index, Reason::PayloadTooLarge, true);
        }
        (calling.payload, calling.told) = (Some(payload), true);
        calling.wait_for_welcome(now);
        let peers = calling.peers.clone();
        if let Some(sizes) = &mut self.probing.sizes {
            sizes.remember(now, &peers, payload);
        }
        self.answer_retry(now, index, plane, &cookie);
        self.make_ready(index as u32);
    }

    /// All calls to a peer that wait for it have this payload.
    fn settle_payload(&mut self, now: Time, peers: &[SocketAddrV6], payload: u32) {
        for index in 0..self.table.slots.len() {
            let Some(State::Calling(calling)) = &mut self.table.slots[index].state else { continue };
            if calling.peers != peers {
                continue;
            }
            if let Some((plane, cookie)) = calling.cookie.take() {
                calling.payload = Some(payload);
                calling.wait_for_welcome(now);
                self.answer_retry(now, index, plane, &cookie);
                self.make_ready(index as u32);
            }
        }
    }
}
