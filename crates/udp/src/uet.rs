//! Ultra Ethernet Transport between this process and others, without a handshake of ours.
//!
//! [`Uet`] is a state machine in the manner of an engine: datagrams and time go in, datagrams and events come out; it
//! owns no socket. [`Node`] is the loop around it with a UDP socket. Reliability and congestion control (NSCC, or a
//! fixed window) are those of [`strandway_proto::Endpoint`], one for each end of a delivery context. This module has
//! UET's own part around it: opening by the first packet, messages, responses, clearing and closing.
//!
//! A context goes one way, as SUET has it: who sends first opens one, and the peer opens another for its own messages;
//! only the data of reads go back in it. Sends need no receive that is posted before: a message arrives whole, as an
//! event. Atomic operations, rendezvous and credit are answered with "not supported". Nothing is authenticated unless
//! the node is bound with [`Node::bind_sealed`].
//!
//! Driven in both directions against a running SUET: `bench/interop/README.md`; by recorded datagrams of it in tests.
//! `docs/protocols/uet.md` says what is unproven.

mod configured;
mod datagram;
mod flow;
mod initiator;
mod node;
mod observe;
mod sealed;
mod shared;
mod target;
#[cfg(test)]
mod tests;
mod timer;
mod types;

pub use node::Node;
pub use sealed::Security;
pub use strandway_wire::uet::codes::{NackCode, ReturnCode};
pub use strandway_wire::uet::pds::Mode;
pub use types::{Acks, Arrival, Config, Control, Counters, Event, Operation};

use datagram::{nack, write, written};
use flow::Flow;
use initiator::Initiator;
use shared::{Region, Shared};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{ConnectionId, Span, Time};
use strandway_wire::uet::pds::{Context, Nack, Refused};
use strandway_wire::uet::{self, Datagram, Pds};
use target::Target;

/// The engine's number for the only connection of its endpoint.
const ONLY: ConnectionId = ConnectionId(0);
/// Closed contexts whose last acknowledgement can be repeated; ours.
const CLOSED_MAX: usize = 64;
/// A context that was silent for this long may be opened anew with another first sequence number; ours. It is longer
/// than a datagram is late, and SUET repeats its first packet for much longer.
const RESTART: Span = Span::from_ms(100);
/// Answers that wait for the socket; ours. Further ones are dropped, and their causes come again.
const ANSWERS_MAX: usize = 1_024;

/// A context of a peer that is closed.
struct Closed {
    peer: SocketAddr,
    /// The peer's number.
    number: u16,
    start: u32,
    /// The acknowledgement of the close.
    answer: Vec<u8>,
}

/// Where a datagram goes, and its bytes.
type Outgoing = (SocketAddr, Vec<u8>);

/// A node of UET without its socket.
///
/// Inputs: [`Uet::send`], [`Uet::write`], [`Uet::read`], [`Uet::close`], [`Uet::handle_arrival`], [`Uet::handle_timeout`]. Then poll:
/// [`Uet::poll_transmit`] until it has nothing, [`Uet::poll_event`] until it has nothing, and [`Uet::poll_timeout`] for
/// the time of the next [`Uet::handle_timeout`].
pub struct Uet {
    shared: Shared,
    random: Random,
    operations: u64,
    initiators: BTreeMap<u16, Initiator>,
    /// The context to each peer that takes operations.
    open: BTreeMap<SocketAddr, u16>,
    targets: BTreeMap<u16, Target>,
    /// Contexts of peers, by address and the peer's number.
    known: BTreeMap<(SocketAddr, u16), u16>,
    closed: VecDeque<Closed>,
    answers: VecDeque<Outgoing>,
    /// The last number that a context got.
    last: u16,
    /// The context that sent last.
    turn: u16,
    /// The data of a read left last, so messages of this end are next.
    read_was_last: bool,
    /// The latest time that a context was given.
    latest: Time,
}

impl Uet {
    /// A node without peers.
    pub fn new(config: Config) -> Uet {
        let random = Random::new(config.seed, StreamKind::Connection, 0);
        let shared = Shared::new(config);
        Uet {
            shared,
            random,
            operations: 0,
            initiators: BTreeMap::new(),
            open: BTreeMap::new(),
            targets: BTreeMap::new(),
            known: BTreeMap::new(),
            closed: VecDeque::new(),
            answers: VecDeque::new(),
            last: 0,
            turn: 0,
            read_was_last: false,
            latest: Time::ZERO,
        }
    }

    /// Lets peers write and read `bytes` of memory with `key`. Their offsets count from `base`. Memory of the same key goes.
    pub fn register(&mut self, key: u64, base: u64, bytes: Vec<u8>) {
        self.shared.regions.insert(key, Region { base, bytes });
    }

    /// The memory of a key.
    pub fn memory(&self, key: u64) -> Option<&[u8]> {
        self.shared.regions.get(&key).map(|region| &region.bytes[..])
    }

    /// Sends a message, with a tag if there is one. The bytes may be shared (`Arc<Vec<u8>>`), so that nothing is copied.
    pub fn send(&mut self, now: Time, to: SocketAddr, tag: Option<u64>, bytes: impl Into<Arc<Vec<u8>>>) -> Operation {
        let opcode = if tag.is_some() { uet::codes::Opcode::TAGGED_SEND } else { uet::codes::Opcode::SEND };
        self.post(now, to, initiator::Posted::new(opcode, tag.unwrap_or(0), 0, None, bytes.into()))
    }

    /// Writes `bytes` into the peer's memory of a key. The bytes may be shared (`Arc<Vec<u8>>`), so that nothing is
    /// copied.
    pub fn write(
        &mut self,
        now: Time,
        to: SocketAddr,
        key: u64,
        offset: u64,
        header_data: Option<u64>,
        bytes: impl Into<Arc<Vec<u8>>>,
    ) -> Operation {
        let opcode = uet::codes::Opcode::WRITE;
        self.post(now, to, initiator::Posted::new(opcode, key, offset, header_data, bytes.into()))
    }

    /// Reads `length` bytes of the peer's memory of a key: [`Event::Read`]. A read that follows a write to the same peer
    /// finds what was written.
    pub fn read(&mut self, now: Time, to: SocketAddr, key: u64, offset: u64, length: u32) -> Operation {
        self.post(now, to, initiator::Posted::read(key, offset, length))
    }

    fn post(&mut self, now: Time, to: SocketAddr, posted: initiator::Posted) -> Operation {
        self.operations += 1;
        let operation = Operation(self.operations);
        let Some(number) = self.open.get(&to).copied().or_else(|| self.open_context(now, to)) else {
            self.shared.events.push_back(Event::Refused { operation, code: ReturnCode::UNDELIVERABLE });
            return operation;
        };
        let initiator = self.initiators.get_mut(&number).expect("an open context is there");
        if !initiator.post(now, operation, posted) {
            self.shared.events.push_back(Event::Refused { operation, code: ReturnCode::UNDELIVERABLE });
        }
        operation
    }

    /// The number of a new context of ours; `None` if all are in use.
    fn open_context(&mut self, now: Time, to: SocketAddr) -> Option<u16> {
        // At least 2^16 from any other first number, with room before the end of the range.
        let start = (1 << 16) + (self.random.next_u64() as u32 >> 1);
        self.open_at(now, to, start)
    }

    /// Opens a context with this first sequence number.
    fn open_at(&mut self, now: Time, to: SocketAddr, start: u32) -> Option<u16> {
        let number = self.free_number()?;
        let seed = self.random.next_u64();
        let flow = Flow::new(now, self.shared.endpoint(now, 0, seed), start, self.shared.config.timeout);
        self.initiators.insert(number, Initiator::new(now, to, number, flow));
        self.open.insert(to, number);
        Some(number)
    }

    /// Contexts get their numbers from a random one on.
    fn skip_numbers(&mut self) {
        self.last = self.random.next_u64() as u16;
    }

    /// The next number that no context has. Both directions share the numbers, so a datagram names one context.
    fn free_number(&mut self) -> Option<u16> {
        for _ in 0..u16::MAX {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.initiators.contains_key(&self.last) && !self.targets.contains_key(&self.last) {
                return Some(self.last);
            }
        }
        None
    }

    /// Closes the context to a peer, once all operations have arrived. A later operation opens another one.
    pub fn close(&mut self, to: SocketAddr) {
        if let Some(initiator) = self.open.remove(&to).and_then(|number| self.initiators.get_mut(&number)) {
            initiator.close();
        }
    }

    /// A datagram arrived, just now and without a mark.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, bytes: &[u8]) {
        self.handle_arrival(now, from, Arrival::default(), bytes);
    }

    /// A datagram arrived.
    pub fn handle_arrival(&mut self, now: Time, from: SocketAddr, arrival: Arrival, bytes: &[u8]) {
        let Ok(datagram) = uet::decode(bytes) else {
            self.shared.counters.malformed += 1;
            return;
        };
        // When the kernel received it, so that round trips do not contain the sleep of this host.
        let now = Time(now.0.saturating_sub(arrival.age.0)).max(self.latest);
        self.latest = now;
        match datagram.pds {
            Pds::Request(request) => {
                let numbers = (request.source, request.target);
                self.handle_of_source(now, from, arrival, numbers, request.psn, &datagram);
            }
            Pds::Control(control) => {
                let numbers = (control.source, control.target);
                self.handle_of_source(now, from, arrival, numbers, control.psn, &datagram);
            }
            Pds::Ack(ack) => self.handle_reply(now, from, ack.target, &datagram),
            Pds::Nack(Nack { about: Refused::Packet { target, .. }, .. }) => {
                self.shared.counters.nacks_received += 1;
                self.handle_reply(now, from, target, &datagram);
            }
            Pds::Nack(_) | Pds::Rudi(_) | Pds::Uud => self.shared.counters.malformed += 1,
        }
    }

    /// An acknowledgement or a NACK of what the end with this number has sent.
    fn handle_reply(&mut self, now: Time, from: SocketAddr, number: u16, datagram: &Datagram<'_>) {
        if let Some(initiator) = self.initiators.get_mut(&number).filter(|initiator| initiator.peer == from) {
            initiator.handle(now, Arrival::default(), datagram, &mut self.shared);
            self.remove_ended(number);
        } else if let Some(target) = self.targets.get_mut(&number).filter(|target| target.peer == from) {
            target.handle_reply(now, datagram, &mut self.shared);
        } else {
            self.shared.counters.strays += 1;
        }
    }

    /// A request or a control packet: of the target of a context of ours, or of the initiator of another one.
    fn handle_of_source(
        &mut self,
        now: Time,
        from: SocketAddr,
        arrival: Arrival,
        numbers: (u16, Context),
        psn: u32,
        datagram: &Datagram<'_>,
    ) {
        if let (source, Context::Known(number)) = numbers
            && let Some(initiator) = self.initiators.get_mut(&number)
            && initiator.is_of(from, source)
        {
            return initiator.handle(now, arrival, datagram, &mut self.shared);
        }
        self.handle_for_target(now, from, arrival, numbers, psn, datagram);
    }

    fn remove_ended(&mut self, number: u16) {
        if let Some(initiator) = self.initiators.get(&number).filter(|initiator| initiator.has_ended()) {
            let peer = initiator.peer;
            self.initiators.remove(&number);
            if self.open.get(&peer) == Some(&number) {
                self.open.remove(&peer);
            }
        }
    }

    fn handle_for_target(
        &mut self,
        now: Time,
        from: SocketAddr,
        arrival: Arrival,
        (source, context): (u16, Context),
        psn: u32,
        datagram: &Datagram<'_>,
    ) {
        self.forget_earlier(now, from, source, context, psn);
        let known = self.known.get(&(from, source)).copied();
        let number = match (known, context) {
            (Some(number), Context::Known(named)) if named == number => number,
            (Some(number), Context::Opening { .. }) => number,
            (None, Context::Opening { psn_offset, .. }) => {
                let start = psn.wrapping_sub(psn_offset.into());
                if self.closed(from, source).is_some_and(|closed| closed.start == start) {
                    // A late packet opens nothing again.
                    self.shared.counters.strays += 1;
                    return;
                }
                match self.accept(now, from, source, start, datagram) {
                    Ok(number) => number,
                    Err(code) => return self.refuse(from, source, psn, code),
                }
            }
            _ => return self.handle_unknown(from, source, psn, datagram),
        };
        let target = self.targets.get_mut(&number).expect("a known context is there");
        let answer = target.handle(now, arrival, datagram, &mut self.shared);
        let ended = target.has_ended();
        if let Some(answer) = answer {
            if ended {
                self.forget(number, from, source, &answer);
            }
            self.answer(from, answer);
        }
    }

    /// A first packet with another first sequence number, to a context that has been silent: the peer has started again
    /// and counts its contexts anew, so that context is gone. If the context was not silent, the packet is late.
    fn forget_earlier(&mut self, now: Time, from: SocketAddr, source: u16, context: Context, psn: u32) {
        let Context::Opening { psn_offset, .. } = context else { return };
        let Some(number) = self.known.get(&(from, source)).copied() else { return };
        let start = psn.wrapping_sub(psn_offset.into());
        let is_other = |target: &&Target| target.start() != start && now.since(target.heard()) >= RESTART;
        if self.targets.get(&number).filter(is_other).is_some() {
            self.remove_target(number);
        }
    }

    /// A closed context can still repeat its last acknowledgement; others do not exist.
    fn handle_unknown(&mut self, from: SocketAddr, source: u16, psn: u32, datagram: &Datagram<'_>) {
        match (self.closed(from, source), datagram.pds) {
            (Some(closed), Pds::Control(_)) => {
                let answer = closed.answer.clone();
                self.answer(from, answer);
            }
            _ => self.refuse(from, source, psn, NackCode::UNKNOWN_CONTEXT),
        }
    }

    fn closed(&self, peer: SocketAddr, number: u16) -> Option<&Closed> {
        self.closed.iter().find(|closed| (closed.peer, closed.number) == (peer, number))
    }

    fn accept(
        &mut self,
        now: Time,
        from: SocketAddr,
        source: u16,
        start: u32,
        datagram: &Datagram<'_>,
    ) -> Result<u16, NackCode> {
        // A control packet could open a context only to close it.
        let Pds::Request(request) = datagram.pds else { return Err(NackCode::UNKNOWN_CONTEXT) };
        if self.targets.len() >= self.shared.config.contexts_max {
            // A peer that has been silent for long may be gone.
            let oldest = self.targets.iter().min_by_key(|(_, target)| target.heard());
            let silent = oldest.filter(|(_, target)| now.since(target.heard()) >= self.shared.config.patience);
            let number = *silent.ok_or(NackCode::NO_CONTEXT)?.0;
            self.remove_target(number);
        }
        let number = self.free_number().ok_or(NackCode::NO_CONTEXT)?;
        let seed = self.random.next_u64();
        let flow = Flow::new(now, self.shared.endpoint(now, 1, seed), start, self.shared.config.timeout);
        self.closed.retain(|closed| (closed.peer, closed.number) != (from, source));
        self.targets.insert(number, Target::new(now, [number, source], from, request.mode, flow));
        self.known.insert((from, source), number);
        Ok(number)
    }

    fn refuse(&mut self, from: SocketAddr, source: u16, psn: u32, code: NackCode) {
        self.shared.counters.strays += 1;
        let bytes = nack(psn, [0, source], code);
        self.shared.counters.nacks_sent += 1;
        self.answer(from, bytes);
    }

    fn answer(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back((to, bytes));
        }
    }

    fn forget(&mut self, number: u16, peer: SocketAddr, source: u16, answer: &[u8]) {
        let start = self.targets.get(&number).map_or(0, Target::start);
        self.remove_target(number);
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(Closed { peer, number: source, start, answer: answer.to_vec() });
    }

    fn remove_target(&mut self, number: u16) {
        if let Some(target) = self.targets.remove(&number) {
            self.shared.incoming -= target.held();
        }
        self.known.retain(|_, known| *known != number);
    }

    /// Runs the timers that have ended.
    pub fn handle_timeout(&mut self, now: Time) {
        self.latest = self.latest.max(now);
        for initiator in self.initiators.values_mut() {
            initiator.handle_timeout(now, &mut self.shared);
        }
        let ended: Vec<u16> =
            self.initiators.iter().filter(|(_, initiator)| initiator.has_ended()).map(|(number, _)| *number).collect();
        for number in ended {
            self.remove_ended(number);
        }
        let patience = self.shared.config.patience;
        let is_gone = |target: &Target| target.is_busy() && now.since(target.heard()) >= patience;
        let gone: Vec<u16> =
            self.targets.iter().filter(|(_, target)| is_gone(target)).map(|(number, _)| *number).collect();
        for number in gone {
            self.remove_target(number);
        }
        for target in self.targets.values_mut() {
            target.handle_timeout(now);
        }
    }

    /// The next datagram to send. Contexts take turns.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Outgoing> {
        let mut bytes = Vec::new();
        self.poll_transmit_into(now, &mut bytes).map(|to| (to, bytes))
    }

    /// Appends the next datagram to send, and returns where it goes. Contexts take turns.
    pub fn poll_transmit_into(&mut self, now: Time, out: &mut Vec<u8>) -> Option<SocketAddr> {
        self.latest = self.latest.max(now);
        if let Some((to, answer)) = self.answers.pop_front() {
            out.extend_from_slice(&answer);
            return Some(to);
        }
        // Acknowledgements before messages, but messages between data of reads.
        let late = std::mem::take(&mut self.read_was_last);
        let first = late.then(|| self.poll_initiators(now, out)).flatten();
        first.or_else(|| self.poll_targets(now, out)).or_else(|| self.poll_initiators(now, out))
    }

    fn poll_targets(&mut self, now: Time, out: &mut Vec<u8>) -> Option<SocketAddr> {
        for target in self.targets.values_mut() {
            if let Some(is_data) = target.poll_transmit(now, &mut self.shared, out) {
                self.read_was_last = is_data;
                return Some(target.peer);
            }
        }
        None
    }

    fn poll_initiators(&mut self, now: Time, out: &mut Vec<u8>) -> Option<SocketAddr> {
        let turn = self.turn;
        let later = |number: &u16| *number > turn;
        for is_later in [true, false] {
            for (number, initiator) in self.initiators.iter_mut().filter(|(number, _)| later(number) == is_later) {
                if initiator.poll_transmit(now, &mut self.shared, out) {
                    self.turn = *number;
                    return Some(initiator.peer);
                }
            }
        }
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// When the next timer ends.
    pub fn poll_timeout(&self) -> Option<Time> {
        let initiators = self.initiators.values().filter_map(|initiator| initiator.poll_timeout(&self.shared));
        initiators.chain(self.targets.values().filter_map(|target| target.poll_timeout(&self.shared))).min()
    }
}
