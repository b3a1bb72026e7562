//! One end of a conversation in Ultra Ethernet Transport, for tests against other implementations of it: it sends or
//! writes messages of known contents, or receives and checks them, and prints the rate.
//!
//! ```text
//! cargo run --release -p strandway-udp --example uet_peer -- --listen 127.0.0.1:4793 --bytes 1048576 --count 256
//! cargo run --release -p strandway-udp --example uet_peer -- --connect 127.0.0.1:4793 --bytes 1048576 --count 256
//! ```
//!
//! Both ends need the same `--op`, `--bytes`, `--count` and `--slots`. Message `i` consists of words of 8 bytes, least
//! significant byte first: word `w` of it is `w * 0x9E3779B97F4A7C15 ^ (i * 0xD1B54A32D192ED03 + 0x1234567)`, modulo
//! 2^64, with `i` modulo `--slots`. A write goes to memory key 0x42, offset `(i % slots) * bytes`, and brings `i` as
//! header data; a tagged send has the tag `i`; a read gets what a write would put there. At the end a tagged send of 8 bytes with tag 0xD0E follows, once all
//! others have arrived. `bench/interop/README.md` has the runs against others. `--seal` seals all datagrams with a key
//! that is no secret, to measure what that costs; both ends need it, with different numbers.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_proto::{Rate, Span};
use strandway_udp::uet::{Acks, Config, Control, Event, Mode, Node, Security};
use strandway_udp::uet_security::{Domain, Mode as DomainMode, Rekey};

/// The key of the memory that is written.
const KEY: u64 = 0x42;
/// The tag of the last message.
const END: u64 = 0xD0E;
/// How long a target waits for the close of its peer.
const LINGER: Duration = Duration::from_secs(2);
/// A peer that has been silent for this long after its close has got the answer.
const SILENCE: Duration = Duration::from_millis(300);

const USAGE: &str =
    "usage: uet_peer --listen ADDRESS | --connect ADDRESS [--from ADDRESS] [--op write|send|tagged|read]
  [--bytes N] [--count N] [--slots N] [--under-way N] [--mode rud|rod] [--acks plain|selective] [--window N]
  [--payload N] [--check yes|no] [--seal IDENTIFIER] [--timeout-us N] [--limit-s N]
  [--control fixed|nscc] [--rate-gbps N] [--rtt-us N] [--probes yes|no]";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Write,
    Send,
    Tagged,
    Read,
}

/// The terms of both ends.
struct Plan {
    op: Op,
    bytes: usize,
    count: u64,
    slots: u64,
    under_way: u64,
    limit: Duration,
    checks: bool,
}

impl Plan {
    /// The words of a message.
    fn words(&self, number: u64) -> impl Iterator<Item = [u8; 8]> + use<> {
        let key = (number % self.slots).wrapping_mul(0xD1B5_4A32_D192_ED03).wrapping_add(0x123_4567);
        (0u64..).map(move |word| (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ key).to_le_bytes())
    }

    /// The contents of a message.
    fn contents(&self, number: u64) -> Arc<Vec<u8>> {
        let mut bytes: Vec<u8> = self.words(number).take(self.bytes.div_ceil(8)).flatten().collect();
        bytes.truncate(self.bytes);
        Arc::new(bytes)
    }

    fn place(&self, number: u64) -> usize {
        (number % self.slots) as usize * self.bytes
    }

    /// 1 if these contents are wrong, and are to be checked.
    fn wrong(&self, number: u64, bytes: &[u8]) -> u64 {
        if !self.checks {
            return 0;
        }
        let mut pairs = bytes.chunks(8).zip(self.words(number));
        u64::from(bytes.len() != self.bytes || pairs.any(|(chunk, word)| chunk != &word[..chunk.len()]))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut listen, mut connect, mut from, mut identifier) = (None, None, None, None);
    let mut config = Config { timeout: Span::from_ms(5), patience: Span::from_ms(20_000), ..Config::default() };
    config.incoming_max = 5 << 30;
    let (op, limit) = (Op::Write, Duration::from_secs(60));
    let mut plan = Plan { op, bytes: 1 << 20, count: 64, slots: 0, under_way: 16, limit, checks: true };
    let (mut nscc, mut rate, mut base_rtt) = (false, Rate::from_gbps(40), Span::from_us(100));
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(format!("{flag} needs a value\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{flag} {value}: not a whole number"));
        let address = || value.parse::<SocketAddr>().map_err(|_| format!("{flag} {value}: write 10.0.0.1:4793"));
        match (flag.as_str(), value.as_str()) {
            ("--listen", _) => listen = Some(address()?),
            ("--connect", _) => connect = Some(address()?),
            ("--from", _) => from = Some(address()?),
            ("--op", "write") => plan.op = Op::Write,
            ("--op", "send") => plan.op = Op::Send,
            ("--op", "tagged") => plan.op = Op::Tagged,
            ("--op", "read") => plan.op = Op::Read,
            ("--control", "fixed" | "nscc") => nscc = value == "nscc",
            ("--rate-gbps", _) => rate = Rate::from_gbps(number()?),
            ("--rtt-us", _) => base_rtt = Span::from_us(number()?),
            ("--probes", "yes" | "no") => config.probes = value == "yes",
            ("--bytes", _) => plan.bytes = number()? as usize,
            ("--count", _) => plan.count = number()?,
            ("--slots", _) => plan.slots = number()?,
            ("--under-way", _) => plan.under_way = number()?.max(1),
            ("--check", "yes" | "no") => plan.checks = value == "yes",
            ("--mode", "rud") => config.mode = Mode::Unordered,
            ("--mode", "rod") => config.mode = Mode::Ordered,
            ("--acks", "plain") => config.acks = Acks::Plain,
            ("--acks", "selective") => config.acks = Acks::Selective,
            ("--window", _) => config.window = number()? as u32,
            ("--seal", _) => identifier = Some(number()? as u32),
            ("--payload", _) => config.payload = number()? as u16,
            ("--timeout-us", _) => config.timeout = Span::from_us(number()?),
            ("--limit-s", _) => plan.limit = Duration::from_secs(number()?),
            _ => return Err(format!("{flag} {value}: no such flag or value\n{USAGE}").into()),
        }
    }
    plan.slots = if plan.slots == 0 { plan.count } else { plan.slots.min(plan.count) };
    config.seed = std::process::id().into();
    config.control = if nscc { Control::Nscc { rate, base_rtt } } else { Control::Fixed };
    let bind = |at| match identifier {
        Some(identifier) => Node::bind_sealed(at, config, security(identifier)),
        None => Node::bind(at, config),
    };
    match (listen, connect) {
        (Some(at), None) => receive(bind(at)?, &plan),
        (None, Some(to)) => {
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            send(bind(from.unwrap_or(any.parse()?))?, to, &plan)
        }
        _ => Err(format!("give --listen or --connect, one of them\n{USAGE}").into()),
    }
}

/// A domain for measurements: its key is no secret, and every start has the same epoch.
fn security(identifier: u32) -> Security {
    let domain = Domain { number: 1, key: [7; 32], mode: DomainMode::Cluster, rekey: Rekey::default() };
    Security { domain, identifier, association: false, epoch: 0 }
}

/// Sends all messages, waits for their arrival, and closes.
fn send(mut node: Node, to: SocketAddr, plan: &Plan) -> Result<(), Box<dyn Error>> {
    let contents: Vec<Arc<Vec<u8>>> = (0..plan.slots).map(|slot| plan.contents(slot)).collect();
    let began = Instant::now();
    let (mut posted, mut arrived, mut refused, mut wrong) = (0, 0, 0, 0);
    while arrived < plan.count {
        while posted < plan.count && posted - arrived < plan.under_way {
            let (now, bytes) = (node.now(), contents[(posted % plan.slots) as usize].clone());
            match plan.op {
                Op::Write => node.uet().write(now, to, KEY, plan.place(posted) as u64, Some(posted), bytes),
                Op::Send => node.uet().send(now, to, None, bytes),
                Op::Tagged => node.uet().send(now, to, Some(posted), bytes),
                Op::Read => node.uet().read(now, to, KEY, plan.place(posted) as u64, plan.bytes as u32),
            };
            posted += 1;
        }
        node.turn(Duration::from_millis(10))?;
        while let Some(event) = node.uet().poll_event() {
            match event {
                Event::Completed { .. } => arrived += 1,
                Event::Read { operation, bytes } => {
                    wrong += plan.wrong(operation.0 - 1, &bytes);
                    arrived += 1;
                }
                Event::Refused { .. } => (arrived, refused) = (arrived + 1, refused + 1),
                other => return Err(format!("after {arrived} messages: {other:?}").into()),
            }
        }
        if began.elapsed() > plan.limit {
            return Err(format!("time is up: {arrived} of {} arrived", plan.count).into());
        }
    }
    let took = began.elapsed().as_secs_f64();
    let counters = node.uet().counters();
    let rate = plan.bytes as f64 * plan.count as f64 / took / 1e6;
    println!("sent {} x {} in {took:.4} s: {rate:.1} MB/s, refused {refused}, {counters:?}", plan.count, plan.bytes);
    if wrong > 0 {
        return Err(format!("{wrong} reads with wrong contents").into());
    }
    let now = node.now();
    node.uet().send(now, to, Some(END), vec![0; 8]);
    node.uet().close(to);
    let closing = Instant::now();
    loop {
        node.turn(Duration::from_millis(10))?;
        match node.uet().poll_event() {
            Some(Event::Closed { .. }) => break println!("closed"),
            Some(Event::Completed { .. }) | None => {}
            Some(other) => return Err(format!("at the end: {other:?}").into()),
        }
        if closing.elapsed() > LINGER * 5 {
            return Err("no close".into());
        }
    }
    if refused > 0 { Err("the peer refused messages".into()) } else { Ok(()) }
}

/// Receives all messages, checks them, and waits for the close.
fn receive(mut node: Node, plan: &Plan) -> Result<(), Box<dyn Error>> {
    let mut memory = vec![0; plan.slots as usize * plan.bytes];
    let reads = plan.op == Op::Read;
    for (slot, place) in memory.chunks_mut(plan.bytes).enumerate().filter(|_| reads) {
        place.copy_from_slice(&plan.contents(slot as u64));
    }
    node.uet().register(KEY, 0, memory);
    println!("listening at {}", node.address()?);
    let (began, mut first) = (Instant::now(), None);
    let (mut arrived, mut wrong, mut ended, mut unordered) = (0, 0, false, 0);
    while (arrived < plan.count && !reads) || !ended {
        node.turn(Duration::from_millis(10))?;
        while let Some(event) = node.uet().poll_event() {
            first.get_or_insert_with(Instant::now);
            match event {
                Event::Message { tag: Some(END), .. } => {
                    ended = true;
                    continue;
                }
                Event::Message { tag, bytes, .. } => {
                    wrong += plan.wrong(tag.unwrap_or(arrived), &bytes);
                    unordered += u64::from(tag.is_some_and(|tag| tag != arrived));
                }
                Event::Written { header_data, .. } => {
                    let number = header_data.unwrap_or(arrived);
                    let (at, memory) = (plan.place(number), node.uet().memory(KEY).expect("it is registered"));
                    let written = &memory[at..at + plan.bytes];
                    wrong += plan.wrong(number, written);
                    unordered += u64::from(number != arrived);
                }
                other => return Err(format!("after {arrived} messages: {other:?}").into()),
            }
            arrived += 1;
        }
        if began.elapsed() > plan.limit {
            return Err(format!("time is up: {arrived} of {} arrived, end: {ended}", plan.count).into());
        }
    }
    let took = first.map_or(0.0, |first| first.elapsed().as_secs_f64());
    let counters = node.uet().counters();
    println!("received {arrived} x {} in {took:.4} s, wrong {wrong}, unordered {unordered}, {counters:?}", plan.bytes);
    let (closing, mut heard) = (Instant::now(), Instant::now());
    while closing.elapsed() < LINGER && (node.uet().contexts() != [0, 0] || heard.elapsed() < SILENCE) {
        if node.turn(Duration::from_millis(10))? {
            heard = Instant::now();
        }
    }
    println!("contexts left: {:?}", node.uet().contexts());
    if wrong > 0 { Err("wrong contents".into()) } else { Ok(()) }
}
