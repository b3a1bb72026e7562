//! The wire's effects on packets, by script or by chance.

use super::Chance;
use std::collections::BTreeMap;
use strandway_proto::packet::{Flags, Header};
use strandway_proto::rng::Random;
use strandway_proto::{Packet, Span};

pub(super) fn parse_range(text: &str) -> (u64, u64) {
    let number = |t: &str| t.parse().unwrap_or_else(|_| panic!("{t:?} is not a number"));
    match text.split_once("..") {
        Some((low, "")) => (number(low), u64::MAX),
        Some((low, high)) => (number(low), number(high)),
        None => (number(text), number(text)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Drop,
    Duplicate,
    Mark,
    Trim,
    Delay(Span),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    action: Action,
    kind: usize,
    from: u64,
    to: u64,
    times: u32,
}

const KINDS: [&str; 8] = ["data", "ack", "nack", "cnp", "probe", "operation", "answer", "letter"];

fn kind_of(packet: &Packet) -> usize {
    match packet.header {
        Header::Data(_) | Header::Part(_) | Header::Chunk(_) | Header::Fragment(_) => 0,
        Header::Ack(_) => 1,
        Header::Nack(_) => 2,
        Header::Cnp => 3,
        Header::Probe { .. } => 4,
        Header::Operation { .. } => 5,
        Header::Answer(_) => 6,
        Header::Control(_) => 7,
    }
}

pub(super) fn parse_rule(text: &str) -> Rule {
    let mut words = text.split_whitespace().peekable();
    let action = words.next().expect("an action");
    let kind = words.peek().and_then(|w| KINDS.iter().position(|k| k == w));
    if kind.is_some() {
        words.next();
    }
    let (from, to) = parse_range(words.next().expect("which packets"));
    let mut times = 1;
    let mut late = Span::ZERO;
    while let Some(word) = words.next() {
        match word.strip_prefix('x') {
            Some(n) => times = n.parse().expect("how often"),
            None => late = Span::from_us(words.next().expect("by how much").parse().expect("microseconds")),
        }
    }
    let action = match action {
        "drop" => Action::Drop,
        "dup" => Action::Duplicate,
        "mark" => Action::Mark,
        "trim" => Action::Trim,
        "delay" => Action::Delay(late),
        other => panic!("the wire cannot {other:?}"),
    };
    Rule { action, kind: kind.unwrap_or(0), from, to, times }
}

pub(super) struct Wire {
    pub(super) rules: Vec<Rule>,
    pub(super) chance: Chance,
    pub(super) random: Random,
    /// Packets other than data seen so far, by kind.
    pub(super) seen: [u64; 8],
    /// How often each data packet was seen, by side, connection and PSN.
    pub(super) times: BTreeMap<(usize, u32, u32), u32>,
    pub(super) trimming: bool,
}

impl Wire {
    /// The copies of a packet that arrive, each with its extra delay.
    pub(super) fn carry(&mut self, side: usize, packet: &Packet) -> Vec<(Span, Packet)> {
        let kind = kind_of(packet);
        let (number, times) = match packet.header {
            Header::Data(data) => {
                let times = self.times.entry((side, packet.connection.0, data.psn.get())).or_default();
                *times += 1;
                (u64::from(data.psn.get()), *times)
            }
            _ => {
                self.seen[kind] += 1;
                (self.seen[kind] - 1, 1)
            }
        };
        let mut actions: Vec<Action> = self
            .rules
            .iter()
            .filter(|r| r.kind == kind && (r.from..=r.to).contains(&number) && times <= r.times)
            .map(|r| r.action)
            .collect();
        let chance = self.chance;
        let late = Span(u64::from(self.random.below((chance.late.0 / 1000) as u32 + 1)) * 1000);
        for (probability, action) in [
            (chance.drop, Action::Drop),
            (chance.duplicate, Action::Duplicate),
            (chance.mark, Action::Mark),
            (chance.trim, Action::Trim),
            (chance.delay, Action::Delay(late)),
        ] {
            if self.random.chance(probability) {
                actions.push(action);
            }
        }
        let mut packet = *packet;
        let (mut copies, mut later) = (1, Span::ZERO);
        for action in actions {
            let data = kind == 0;
            match action {
                Action::Drop => copies = 0,
                Action::Duplicate => copies *= 2,
                Action::Mark if data || kind == 4 || kind == 5 => packet.flags = packet.flags.with(Flags::CE),
                Action::Trim if data && self.trimming => {
                    packet.size = 64;
                    let last_hop = self.random.chance(0.5);
                    packet.flags = packet.flags.with(Flags::TRIMMED).with_if(last_hop, Flags::TRIMMED_AT_LAST_HOP);
                }
                Action::Mark | Action::Trim => {}
                Action::Delay(by) => later += by,
            }
        }
        (0..copies).map(|copy| (later + Span::from_ns(100) * copy, packet)).collect()
    }
}
