//! Peers that have the key, say something, and leave at a random moment, for tests.
#![allow(dead_code, reason = "each crate uses its part")]

use std::net::{SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};
use strandway_udp::{Completion, Config, Connection, Node, Region};

/// The longest that one round may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most connections that are left open in silence: fewer than a node accepts.
const SILENT_MAX: usize = 16;

/// The most turns that a peer waits for its moment.
const TURNS_MAX: u32 = 1_000;

/// The number in a variable of the environment.
fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The number of rounds of such a test: `few`, or the value of `LEAVERS`. Another `LEAVERS_SEED` gives other rounds, so
/// several processes can share a long run.
pub(crate) fn rounds(few: u32) -> u32 {
    number("LEAVERS").unwrap_or(few)
}

/// The moment at which a peer leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// When it has connected, without a word.
    AtOnce,
    /// When its last byte has left: its goodbye arrives together with its words.
    SentAway,
    /// When its words have arrived.
    Arrived,
    /// When it has an answer, or after some turns.
    Answered,
    /// Never: the connection falls silent.
    Silent,
}

const MOMENTS: [Moment; 8] = [
    Moment::AtOnce,
    Moment::SentAway,
    Moment::SentAway,
    Moment::SentAway,
    Moment::Arrived,
    Moment::Answered,
    Moment::Answered,
    Moment::Silent,
];

/// Calls `serve`; the round goes on.
fn serve_on(serve: &mut dyn FnMut()) -> bool {
    serve();
    false
}

/// The addresses of a node, plane by plane.
pub(crate) fn addresses(node: &Node) -> Vec<SocketAddrV6> {
    let v6 = |address| if let SocketAddr::V6(address) = address { Some(address) } else { None };
    node.addresses().expect("bound").into_iter().filter_map(v6).collect()
}

/// Bytes that are nearly right: the message as it is, or with some of its bytes changed, or cut off, or too long, or
/// anything.
pub(crate) fn spoiled(random: &mut Random, mut message: Vec<u8>, most: usize) -> Vec<u8> {
    match random.below(8) {
        0 => {
            for _ in 0..=random.below(4) {
                let at = random.below(message.len() as u32) as usize;
                message[at] = random.next_u64() as u8;
            }
        }
        1 => message.truncate(1 + random.below(message.len() as u32) as usize),
        2 if random.chance(0.2) => message.resize(most + 1, 0),
        3 => message = (0..=random.below(most as u32)).map(|_| random.next_u64() as u8).collect(),
        _ => {}
    }
    message
}

/// One end of a connection that leaves.
pub(crate) struct Leaver {
    node: Node,
    pub(crate) random: Random,
    silent: Vec<Connection>,
    /// May it leave connections open, and say nothing more?
    pub(crate) may_be_silent: bool,
    /// Rounds in which words have left.
    pub(crate) spoke: u32,
}

/// A connection of a round, and the memory of its words.
struct Round {
    connection: Connection,
    moment: Moment,
    inbox: Region,
    out: Vec<Region>,
    bytes: u64,
    arrived: usize,
    turns: u32,
    spoke: bool,
}

impl Leaver {
    pub(crate) fn new(config: Config, seed: u64) -> Leaver {
        let node = Node::bind(config).expect("a node");
        let seed = seed + (u64::from(number("LEAVERS_SEED").unwrap_or(0)) << 8);
        Leaver {
            node,
            random: Random::new(seed, StreamKind::Workload, 3),
            silent: Vec::new(),
            may_be_silent: true,
            spoke: 0,
        }
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddrV6> {
        addresses(&self.node)
    }

    /// Connects, says these words and leaves. `serve` is called between its turns. Answers of up to `inbox` bytes are
    /// taken.
    pub(crate) fn call(&mut self, to: &[SocketAddrV6], words: &[Vec<u8>], inbox: usize, serve: &mut dyn FnMut()) {
        let calling = self.node.connect(to).expect("fewer than a node may have");
        self.live(words, inbox, &mut || serve_on(serve), Some(calling));
    }

    /// Waits for a caller, says these words and leaves.
    pub(crate) fn answer(&mut self, words: &[Vec<u8>], inbox: usize, serve: &mut dyn FnMut()) {
        self.live(words, inbox, &mut || serve_on(serve), None);
    }

    /// As [`Leaver::answer`], but it waits for a caller only until `over` says that none will come.
    pub(crate) fn answer_until(&mut self, words: &[Vec<u8>], inbox: usize, over: &mut dyn FnMut() -> bool) {
        self.live(words, inbox, over, None);
    }

    /// Connects, says these words, and stays until the peer closes or `over` says so.
    pub(crate) fn stay(
        &mut self,
        to: &[SocketAddrV6],
        words: &[Vec<u8>],
        inbox: usize,
        over: &mut dyn FnMut() -> bool,
    ) {
        let until = Instant::now() + PATIENCE;
        self.node.connect(to).expect("fewer than a node may have");
        while !over() {
            assert!(Instant::now() < until, "a round ends");
            match self.node.poll() {
                Some(Completion::Connected { connection }) => {
                    self.begin(connection, Moment::Answered, words, inbox);
                }
                Some(Completion::Closed { .. }) => return,
                _ => {}
            }
        }
    }

    /// Moves packets between two rounds. Connections that peers begin are closed.
    pub(crate) fn rest(&mut self) {
        while let Some(completion) = self.node.poll() {
            if let Completion::Accepted { connection, .. } = completion {
                let _ = self.node.close(connection);
            }
        }
    }

    fn live(&mut self, words: &[Vec<u8>], inbox: usize, over: &mut dyn FnMut() -> bool, calling: Option<Connection>) {
        let until = Instant::now() + PATIENCE;
        let moment = match MOMENTS[self.random.below(MOMENTS.len() as u32) as usize] {
            // A peer that is silent and alive is waited for without end.
            Moment::Silent if !self.may_be_silent || calling.is_none() => Moment::Answered,
            moment => moment,
        };
        let mut round: Option<Round> = None;
        loop {
            if over() && round.is_none() {
                return;
            }
            assert!(Instant::now() < until, "a round ends: {moment:?}");
            while let Some(completion) = self.node.poll() {
                match completion {
                    Completion::Connected { connection } if calling == Some(connection) => {
                        round = Some(self.begin(connection, moment, words, inbox));
                    }
                    Completion::Accepted { connection, .. } if calling.is_none() && round.is_none() => {
                        round = Some(self.begin(connection, moment, words, inbox));
                    }
                    Completion::Closed { connection, .. } => {
                        self.silent.retain(|silent| *silent != connection);
                        let ours = round.as_ref().map(|round| round.connection).or(calling);
                        if ours == Some(connection) {
                            return self.end(round.take());
                        }
                    }
                    Completion::Sent { connection, .. } => {
                        if let Some(now) = round.as_mut().filter(|now| now.connection == connection) {
                            now.arrived += 1;
                        }
                    }
                    Completion::Received { connection, .. } => {
                        if let Some(now) = round.as_mut().filter(|now| now.connection == connection) {
                            now.turns += TURNS_MAX / 2;
                            let _ = self.node.recv(connection, now.inbox, 0..inbox);
                        }
                    }
                    _ => {}
                }
            }
            let Some(now) = &mut round else { continue };
            now.turns += 1;
            let left =
                self.node.observe().connection_counters(now.connection).map_or(0, |counters| counters.fresh_bytes);
            let over = match now.moment {
                Moment::AtOnce => true,
                Moment::SentAway => left >= now.bytes || now.turns > TURNS_MAX,
                Moment::Arrived => now.arrived >= now.out.len() || now.turns > TURNS_MAX,
                Moment::Answered | Moment::Silent => now.turns > TURNS_MAX / 2,
            };
            if left > 0 && !std::mem::replace(&mut now.spoke, true) {
                self.spoke += 1;
            }
            if over {
                return self.end(round.take());
            }
        }
    }

    fn begin(&mut self, connection: Connection, moment: Moment, words: &[Vec<u8>], inbox: usize) -> Round {
        let words = if moment == Moment::AtOnce { &[] } else { words };
        let region = self.node.register(vec![0; inbox]);
        let _ = self.node.recv(connection, region, 0..inbox);
        let mut out = Vec::new();
        for words in words {
            let range: Range<usize> = 0..words.len();
            let memory = self.node.register(words.clone());
            out.push(memory);
            let _ = self.node.send(connection, memory, range);
        }
        let bytes = words.iter().map(|words| words.len() as u64).sum();
        Round { connection, moment, inbox: region, out, bytes, arrived: 0, turns: 0, spoke: false }
    }

    fn end(&mut self, round: Option<Round>) {
        let Some(round) = round else { return };
        if round.moment == Moment::Silent && self.node.observe().connection_counters(round.connection).is_ok() {
            self.silent.push(round.connection);
            if self.silent.len() <= SILENT_MAX {
                return;
            }
            let first = self.silent.remove(0);
            let _ = self.node.close(first);
            return;
        }
        let _ = self.node.close(round.connection);
        for region in round.out.into_iter().chain([round.inbox]) {
            let _ = self.node.deregister(region);
        }
    }
}
