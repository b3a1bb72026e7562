//! Credit that receivers give to senders, as Ultra Ethernet's RCCC does: the counts of both ends of a connection.
//!
//! Both ends count credit from the start of the connection, in units of 256 B. The sender writes into each data packet
//! up to where it wants credit (its *target*); the receiver says up to where it has given credit (the *grant*). Both
//! are cumulative, so a lost packet is repaired by the next one. The receiving host hands out credit at nearly its line
//! rate, to one connection at a time (`endpoint/credits.rs`).

use crate::environment::Environment;
use crate::packet::{PathId, nearest};
use crate::units::{Bytes, Span, Time};

/// Bytes of a unit of credit. Source: the UEC simulator's pull quantum.
const UNIT: u64 = 256;
/// Both counts start here, so that a target may lie below the grant. Ours: more than any sender holds.
const START: u64 = 1 << 20;
/// Targets are written modulo this.
const TARGET_MODULUS: u64 = 1 << 16;
/// Grants are written modulo this.
const GRANT_MODULUS: u64 = 1 << 32;
/// The most units that a sender holds or asks for, so that a target is never ambiguous: 7.7 MB. Ours.
const HELD_MAX: u64 = 30_000;
/// A sender that waits for credit asks again after this many base round trips, then after twice as long, and so on.
/// Ours; UEC's simulator loses no grant.
const PATIENCE: u64 = 16;
/// The time between two requests doubles this many times. Ours.
const DOUBLINGS: u32 = 6;

/// How a congestion control uses credit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreditTerms {
    /// The most credit that a sender holds or asks for, as a multiple of the bandwidth-delay product.
    pub window_max_bdp: f64,
    /// The rate of a host's credit, as a share of its line rate.
    pub pace: f64,
    /// The number of full packets that one grant allows.
    pub grant_packets: u32,
    /// The sender also has a window and asks for no more credit than its window and one packet.
    pub follows_window: bool,
}

impl CreditTerms {
    /// The most credit that a sender holds or asks for, in bytes.
    fn held_max(&self, environment: &Environment) -> u64 {
        let most = (environment.bdp().0 as f64 * self.window_max_bdp) as u64;
        most.max(environment.packet.0).min(HELD_MAX * UNIT)
    }

    /// Units of one grant.
    fn grant(&self, environment: &Environment) -> u64 {
        (u64::from(self.grant_packets) * environment.packet.0 / UNIT).max(1)
    }
}

/// Credit on both directions of a connection.
#[derive(Debug)]
pub(crate) struct Credit {
    pub(crate) sender: CreditSender,
    pub(crate) receiver: CreditReceiver,
}

impl Credit {
    pub(crate) fn new(terms: &CreditTerms, environment: &Environment) -> Credit {
        let held_max = terms.held_max(environment);
        Credit {
            sender: CreditSender {
                bytes: held_max as i64,
                held_max: held_max as i64,
                grant: START,
                speculates: true,
                follows_window: terms.follows_window,
                rivals: 0,
                packet: environment.packet.0,
                ask_at: Time::NEVER,
                patience: environment.base_rtt * PATIENCE,
                asked: 0,
            },
            receiver: CreditReceiver {
                target: START,
                granted: START,
                unit: terms.grant(environment),
                idle_max: held_max / UNIT,
                path: PathId(0),
                queue: CreditQueue::None,
                wanted: false,
            },
        }
    }
}

/// The sender's half.
#[derive(Debug)]
pub(crate) struct CreditSender {
    /// Bytes that may be sent; the last packet may overdraw them.
    bytes: i64,
    held_max: i64,
    /// The highest grant that has arrived, in units.
    grant: u64,
    /// It spends the credit of its start: no grant or loss has arrived yet.
    speculates: bool,
    follows_window: bool,
    /// The number of the host's other connections that have something to send.
    pub(crate) rivals: u32,
    packet: u64,
    /// When to ask for credit.
    ask_at: Time,
    patience: Span,
    asked: u32,
}

impl CreditSender {
    /// May a packet be sent?
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.bytes > 0
    }

    /// A packet of `bytes` was sent; `unsent` wire bytes still wait, `window` is the congestion window.
    pub(crate) fn spend(&mut self, now: Time, bytes: u64, unsent: u64, window: u64) -> u16 {
        self.bytes -= bytes as i64;
        if self.bytes <= 0 {
            self.wait_from(now);
        }
        self.target(unsent, window)
    }

    /// The credit that it wants, as data packets carry it. Source: `computePullTarget` of the UEC simulator.
    pub(crate) fn target(&self, unsent: u64, window: u64) -> u16 {
        let mut wanted = unsent.min(self.held_max as u64);
        if self.follows_window {
            wanted = wanted.min(window + self.packet);
        }
        let mut more = wanted as i64 - self.bytes;
        // It always asks for a packet, whatever it holds, so that a short message does not wait.
        if self.speculates && more < self.packet as i64 && unsent > 0 {
            more = self.packet as i64;
        }
        if self.rivals > 1 {
            more /= i64::from(self.rivals);
        }
        let target = (self.grant as i64 + more.div_euclid(UNIT as i64) + i64::from(more % UNIT as i64 != 0)) as u64;
        // Zero stands for "no target".
        ((target % TARGET_MODULUS) as u16).max(1)
    }

    /// The credit of the start ends: the receiver is known to be busy.
    pub(crate) fn stop_speculating(&mut self, now: Time) {
        if self.speculates {
            self.speculates = false;
            self.bytes = self.bytes.min(0);
            self.wait_from(now);
        }
    }

    /// A grant arrived.
    pub(crate) fn on_grant(&mut self, now: Time, grant: u32) {
        self.stop_speculating(now);
        let grant = nearest(grant, self.grant, GRANT_MODULUS);
        if grant > self.grant {
            let more = (grant - self.grant).min(HELD_MAX) * UNIT;
            self.bytes = (self.bytes + more as i64).min(self.held_max);
            self.grant = grant;
            self.asked = 0;
            self.wait_from(now);
        }
    }

    /// A retransmission timeout: whatever it sent may be lost, and the receiver may not know that it waits.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        self.stop_speculating(now);
        self.ask_at = self.ask_at.min(now);
    }

    fn wait_from(&mut self, now: Time) {
        self.ask_at = now + self.patience * (1 << self.asked);
    }

    /// When it asks for credit; `waits`: it has something to send.
    pub(crate) fn deadline(&self, waits: bool) -> Time {
        if waits && !self.is_open() { self.ask_at } else { Time::NEVER }
    }

    /// Does it ask now?
    pub(crate) fn asks(&mut self, now: Time, waits: bool) -> bool {
        let asks = self.deadline(waits) <= now;
        if asks {
            self.asked = (self.asked + 1).min(DOUBLINGS);
            self.wait_from(now);
        }
        asks
    }
}

/// The list of a host's credit pace in which a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreditQueue {
    /// None.
    None,
    /// The list of those whose sender wants credit.
    Active,
    /// The list of those that may get credit in advance while no one wants any.
    Idle,
}

/// The receiver's half.
#[derive(Debug)]
pub(crate) struct CreditReceiver {
    /// The highest target that has arrived, in units.
    target: u64,
    /// Units granted.
    granted: u64,
    /// Units of one grant.
    unit: u64,
    /// The most units granted beyond the target.
    idle_max: u64,
    /// The path of the last data packet.
    pub(crate) path: PathId,
    pub(crate) queue: CreditQueue,
    /// It is to join the list of those that want credit.
    wanted: bool,
}

impl CreditReceiver {
    /// A data packet or a request arrived with this target. `forced`: it wants a grant even if it wants no more credit.
    pub(crate) fn on_target(&mut self, path: PathId, target: u16, forced: bool) {
        self.path = path;
        let target = if target == 0 { self.target } else { nearest(target.into(), self.target, TARGET_MODULUS) };
        self.wanted |= target > self.target || forced;
        // A faulty peer cannot want more than a sender may hold.
        self.target = self.target.max(target).min(self.granted + HELD_MAX);
    }

    /// Is it to join the list of those that want credit? Asked once.
    pub(crate) fn take_wanted(&mut self) -> bool {
        std::mem::take(&mut self.wanted) && self.queue != CreditQueue::Active
    }

    /// Does its sender want more credit than it has?
    pub(crate) fn wants_more(&self) -> bool {
        self.target > self.granted
    }

    /// May it get credit in advance?
    pub(crate) fn may_idle(&self) -> bool {
        self.granted.saturating_sub(self.target) < self.idle_max
    }

    /// Gives credit; `ahead`: beyond what its sender wants. Returns the grant and its bytes.
    pub(crate) fn give(&mut self, ahead: bool) -> (u32, Bytes) {
        let before = self.granted;
        let most = if ahead { u64::MAX } else { self.target.max(before) };
        self.granted = (before + self.unit).min(most);
        ((self.granted % GRANT_MODULUS) as u32, Bytes((self.granted - before) * UNIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    fn credit(follows_window: bool) -> Credit {
        let environment = Environment {
            rate: Rate::from_gbps(100),
            ports: 1,
            base_rtt: Span::from_us(10),
            packet: Bytes(4160),
            trimming: true,
            uplinks: [0; 2],
            paths_in_order: 0,
            queue: Bytes(125_000),
            packet_life: Span::from_ms(10),
        };
        let terms = CreditTerms { window_max_bdp: 1.5, pace: 0.99, grant_packets: 4, follows_window };
        Credit::new(&terms, &environment)
    }

    /// The grants and targets of a sender with 10 MB to send, which spends all its credit before each grant.
    #[test]
    fn a_sender_gets_what_it_asks_for_in_grants_of_four_packets() {
        let Credit { mut sender, mut receiver } = credit(false);
        let (mut now, mut unsent, mut sent) = (Time::ZERO, 10_000_000u64, 0u64);
        let mut spend = |sender: &mut CreditSender, receiver: &mut CreditReceiver, now| {
            while sender.is_open() && unsent > 0 {
                unsent -= 4160;
                sent += 4160;
                let target = sender.spend(now, 4160, unsent, u64::MAX / 2);
                receiver.on_target(PathId(0), target, false);
            }
            sent
        };
        // A first window on trust: 1.5 times 125,000 B, and the packet that overdraws.
        assert_eq!(spend(&mut sender, &mut receiver, now), 46 * 4160);
        assert!(receiver.take_wanted() && receiver.wants_more());
        for round in 1..100 {
            now = now + Span::from_us(1);
            let (grant, bytes) = receiver.give(false);
            assert_eq!(bytes, Bytes(4 * 4160 / 256 * 256));
            sender.on_grant(now, grant);
            let sent = spend(&mut sender, &mut receiver, now);
            assert!(sent <= 46 * 4160 + round * 4 * 4160, "round {round}: {sent}");
            assert!(receiver.wants_more());
        }
    }

    #[test]
    fn a_window_limits_what_a_sender_asks_for() {
        let (alone, both) = (credit(false).sender, credit(true).sender);
        let ask = |sender: &CreditSender| sender.target(10_000_000, 20_000);
        // Both still hold the first window, so each asks for the one packet of its start.
        assert_eq!(ask(&alone), ask(&both));
        let (mut alone, mut both) = (alone, both);
        alone.stop_speculating(Time::ZERO);
        both.stop_speculating(Time::ZERO);
        let start = (START % TARGET_MODULUS) as u16;
        assert_eq!(ask(&alone) - start, (187_500u64).div_ceil(256) as u16);
        assert_eq!(ask(&both) - start, (20_000u64 + 4160).div_ceil(256) as u16);
    }

    #[test]
    fn a_sender_without_credit_asks_ever_more_rarely_until_a_grant_comes() {
        let mut sender = credit(false).sender;
        sender.stop_speculating(Time::ZERO);
        let mut asked = Vec::new();
        for us in 0..2_000 {
            let now = Time::ZERO + Span::from_us(us);
            if sender.asks(now, true) {
                asked.push(us);
            }
        }
        assert_eq!(asked, [160, 480, 1120]);
        assert_eq!(sender.deadline(false), Time::NEVER);
        sender.on_grant(Time::ZERO + Span::from_us(2_000), (START + 10) as u32);
        assert!(sender.is_open());
    }
}
