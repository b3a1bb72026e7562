//! Measurements between two nodes of Ultra Ethernet Transport, without a protocol of ours: the client writes into memory
//! whose key both know, reads from it, and sends tagged messages, which the server answers by their tag.

use super::client::check;
use super::server::{Interval, LOOK, PlaneInterval, Served};
use super::{Mode, Options, PerfError, SIZE_MAX, Stretch};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};
use strandway_udp::Reason;
use strandway_udp::uet::{Counters, Event, Node, Operation};

/// The key of the memory that a server lets others write and read: [`SIZE_MAX`] bytes from offset 0.
pub const KEY: u64 = 0x42;
/// A tagged message with this tag comes back.
pub const ECHO: u64 = 0x5357_0001;
/// The digest (SHA-256) of a tagged message with this tag comes back.
pub const DIGEST: u64 = 0x5357_0002;
/// The largest message that is sent and not written, which nodes hold as a whole: ours, as
/// [`strandway_udp::uet::Config::incoming_max`].
pub const MESSAGE_MAX: u64 = 1 << 28;
/// A measurement in which nothing has finished for this long has failed; ours.
const STALL: Duration = Duration::from_secs(10);
/// A server that has not answered for this long is not there; ours.
const SILENCE: Duration = Duration::from_secs(3);
/// How long a client waits for the end of its context; ours.
const FAREWELL: Duration = Duration::from_secs(1);
/// The most round trips that are kept; ours, 8 MB.
const RTTS_MAX: usize = 1 << 20;

/// Serves clients until `stop` returns true; it is asked at least twenty times a second. `tell` gets peers that come
/// and go, and every `interval` if there is one.
///
/// # Errors
/// If the socket fails.
pub fn serve(
    node: &mut Node,
    interval: Option<Duration>,
    stop: impl Fn() -> bool,
    mut tell: impl FnMut(Served),
) -> Result<(), PerfError> {
    // The system gives memory where it is written.
    node.uet().register(KEY, 0, vec![0; SIZE_MAX as usize]);
    let began = Instant::now();
    let (mut last, mut peers) = ((began, Counters::default()), BTreeMap::new());
    loop {
        let over = stop();
        let next = interval.map(|interval| last.0 + interval);
        if over || next.is_some_and(|next| Instant::now() >= next) {
            let now = (Instant::now(), node.uet().counters());
            if interval.is_some() {
                tell(Served::Passed(Box::new(passed(node.uet().contexts()[1], began, last, now))));
            }
            last = now;
        }
        if over {
            return Ok(());
        }
        let left = next.map_or(LOOK, |next| next.saturating_duration_since(Instant::now()).min(LOOK));
        node.turn(left)?;
        while let Some(event) = node.uet().poll_event() {
            answer(node, event);
        }
        report_peers(node, &mut peers, &mut tell);
    }
}

/// Answers the messages that ask for it.
fn answer(node: &mut Node, event: Event) {
    let Event::Message { from, tag, bytes, .. } = event else { return };
    let now = node.now();
    match tag {
        Some(ECHO) => node.uet().send(now, from, Some(ECHO), bytes),
        Some(DIGEST) => node.uet().send(now, from, Some(DIGEST), Sha256::digest(&bytes).to_vec()),
        _ => return,
    };
}

/// Reports peers whose first context has opened, or whose last one is gone.
fn report_peers(node: &mut Node, known: &mut BTreeMap<SocketAddr, usize>, tell: &mut impl FnMut(Served)) {
    if node.uet().contexts()[1] == known.values().sum() {
        return;
    }
    let mut present = BTreeMap::new();
    for peer in node.uet().peers() {
        *present.entry(peer).or_insert(0) += 1;
    }
    present.keys().filter(|peer| !known.contains_key(peer)).for_each(|peer| tell(Served::Came(*peer)));
    for peer in known.keys().filter(|peer| !present.contains_key(peer)) {
        // Our answers to it have an end, too.
        node.uet().close(*peer);
        tell(Served::Gone(Reason::ByPeer));
    }
    *known = present;
}

fn gbps(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / time.as_secs_f64().max(1e-9) / 1e9
}

fn passed(contexts: usize, began: Instant, last: (Instant, Counters), now: (Instant, Counters)) -> Interval {
    let (time, [last, now], at) = (now.0 - last.0, [last.1, now.1], [last.0, now.0]);
    let [from_s, to_s] = at.map(|at| (at - began).as_secs_f64());
    let (received, sent) = (now.received - last.received, now.sent - last.sent);
    let again = now.sent_again - last.sent_again;
    Interval {
        from_s,
        to_s,
        connections: contexts,
        in_gbps: gbps(received, time),
        out_gbps: gbps(sent - again, time),
        retransmitted: now.retransmissions - last.retransmissions,
        planes: vec![PlaneInterval { up: true, in_bytes: received, out_bytes: sent, active_paths: None }],
    }
}

/// A client at work.
struct Run<'a> {
    node: &'a mut Node,
    to: SocketAddr,
    options: Options,
    bytes: Arc<Vec<u8>>,
    random: Random,
    digest: Vec<u8>,
    /// Writes, or messages that wait for their answers, with the time at which they were posted.
    posted: VecDeque<(Operation, Instant)>,
    /// Reads under way.
    reads: usize,
    count: u64,
    messages: u64,
    read: u64,
    /// When something has finished last.
    heard: Instant,
    /// Round trips of the present stretch, and of the whole measurement, in microseconds.
    rtts: [Vec<f64>; 2],
}

/// Measures against the server at `to`, by one context. `each` gets every interval as it ends. The result covers the
/// whole time. The measurement ends early when `stop` returns true. [`Mode::Bidirectional`] reads what it writes;
/// [`Mode::Latency`] and [`Mode::Verify`] send tagged messages and wait for the server's.
///
/// # Errors
/// If options are out of range or have no place here, the server does not answer, or the socket fails.
pub fn run(
    node: &mut Node,
    to: SocketAddr,
    options: &Options,
    stop: impl Fn() -> bool,
    mut each: impl FnMut(&Stretch),
) -> Result<Stretch, PerfError> {
    check(options)?;
    let sends = matches!(options.mode, Mode::Latency | Mode::Verify);
    for (wrong, what) in [
        (
            options.connections != 1,
            "connections: layout uet has one context from a node to another: take 1".to_string(),
        ),
        (options.bulk != 0, "bulk: layout uet has one context from a node to another: leave it out".to_string()),
        (
            sends && options.size > MESSAGE_MAX,
            format!("size: layout uet answers messages of at most {MESSAGE_MAX} bytes: take fewer"),
        ),
    ] {
        if wrong {
            return Err(PerfError::Option(what));
        }
    }
    // Memory of a gigabyte takes a while.
    let bytes = Arc::new(vec![0x5a; options.size as usize]);
    let began = Instant::now();
    let mut run = Run {
        node,
        to,
        options: *options,
        bytes,
        random: Random::new(0, StreamKind::Connection, 0),
        digest: Vec::new(),
        posted: VecDeque::new(),
        reads: 0,
        count: 0,
        messages: 0,
        read: 0,
        heard: began,
        rtts: Default::default(),
    };
    let first = (began, run.node.uet().counters(), 0, 0);
    let mut last = first;
    let mut moved = (run.moves(), began);
    loop {
        let now = Instant::now();
        let is_silent = !run.node.uet().has_answered(to);
        // A short measurement waits for the server's first answer.
        let is_late = now - began >= if is_silent { options.duration.max(SILENCE) } else { options.duration };
        let over = stop() || is_late || options.messages.is_some_and(|most| run.messages >= most);
        if over || now - last.0 >= options.interval {
            let next = (now, run.node.uet().counters(), run.messages, run.read);
            if !over {
                each(&run.stretch(0, began, last, next));
            }
            run.rtts[0].clear();
            last = next;
        }
        if is_silent && (over || now - began > SILENCE) && !stop() {
            return Err(PerfError::Silent);
        }
        if over {
            break;
        }
        if run.moves() != moved.0 {
            moved = (run.moves(), now);
        }
        if now - run.heard > STALL || now - moved.1 > SILENCE && !run.posted.is_empty() {
            return Err(PerfError::Stalled);
        }
        run.post();
        let left = (last.0 + options.interval).min(began + options.duration).saturating_duration_since(now);
        run.node.turn(left.min(LOOK))?;
        run.take_events()?;
    }
    let mut whole = run.stretch(1, began, first, last);
    let took = last.0 - began;
    whole.goodput_gbps = gbps(run.messages * options.size, took);
    run.node.uet().close(to);
    let (before, mut is_there) = (run.moves(), stop());
    while run.node.uet().contexts()[0] > 0 && last.0.elapsed() < if is_there { FAREWELL } else { SILENCE } {
        run.node.turn(Duration::from_millis(10))?;
        is_there |= run.moves() != before;
    }
    // A server that is there answers the end, or takes what is under way.
    if run.node.uet().contexts()[0] > 0 && !is_there { Err(PerfError::Stalled) } else { Ok(whole) }
}

impl Run<'_> {
    /// Counters that change while the server takes something or sends something.
    fn moves(&mut self) -> (u64, u64) {
        let counters = self.node.uet().counters();
        (counters.received, counters.sent - counters.sent_again)
    }

    /// Posts operations until enough are under way.
    fn post(&mut self) {
        let Options { size, mode, depth, messages, .. } = self.options;
        let single = matches!(mode, Mode::Latency | Mode::Verify);
        let depth = if single { 1 } else { depth };
        // Messages under way have places of their own, as far as there is room.
        let places = (SIZE_MAX / size).clamp(1, depth as u64);
        while self.posted.len() < depth && messages.is_none_or(|most| self.count < most) {
            let (now, at) = (self.node.now(), self.count % places * size);
            if mode == Mode::Verify {
                let mut bytes = vec![0; size as usize];
                bytes.chunks_mut(8).for_each(|chunk| {
                    chunk.copy_from_slice(&self.random.next_u64().to_le_bytes()[..chunk.len()]);
                });
                self.digest = Sha256::digest(&bytes).to_vec();
                self.bytes = Arc::new(bytes);
            }
            let (uet, bytes) = (self.node.uet(), self.bytes.clone());
            let operation = match mode {
                Mode::Bandwidth | Mode::Bidirectional => uet.write(now, self.to, KEY, at, None, bytes),
                Mode::Latency => uet.send(now, self.to, Some(ECHO), bytes),
                Mode::Verify => uet.send(now, self.to, Some(DIGEST), bytes),
            };
            self.posted.push_back((operation, Instant::now()));
            self.count += 1;
        }
        while mode == Mode::Bidirectional && self.reads < depth {
            let now = self.node.now();
            self.node.uet().read(now, self.to, KEY, 0, size as u32);
            self.reads += 1;
        }
    }

    fn take_events(&mut self) -> Result<(), PerfError> {
        let writes = matches!(self.options.mode, Mode::Bandwidth | Mode::Bidirectional);
        while let Some(event) = self.node.uet().poll_event() {
            match event {
                Event::Completed { operation } if writes => self.finish(Some(operation)),
                Event::Read { bytes, .. } => {
                    self.reads = self.reads.saturating_sub(1);
                    self.read += bytes.len() as u64;
                    self.heard = Instant::now();
                }
                Event::Message { from, tag: Some(ECHO), bytes, .. } if from == self.to => {
                    if bytes.len() as u64 != self.options.size {
                        return Err(PerfError::Corrupt(self.messages));
                    }
                    self.finish(None);
                }
                Event::Message { from, tag: Some(DIGEST), bytes, .. } if from == self.to => {
                    if bytes != self.digest {
                        return Err(PerfError::Corrupt(self.messages));
                    }
                    self.finish(None);
                }
                Event::Refused { code, .. } => {
                    let why = code.text().unwrap_or("for a reason of its own");
                    return Err(PerfError::Refused(why));
                }
                Event::Broken { code, .. } => {
                    return match code.and_then(|code| code.text()) {
                        Some(why) => Err(PerfError::Refused(why)),
                        None => Err(PerfError::Stalled),
                    };
                }
                Event::Completed { .. } | Event::Message { .. } | Event::Written { .. } | Event::Closed { .. } => {}
            }
        }
        Ok(())
    }

    /// A message has finished: this one, or the one that waits for its answer.
    fn finish(&mut self, operation: Option<Operation>) {
        let Some((posted, at)) = self.posted.pop_front() else { return };
        if operation.is_none() && self.options.mode == Mode::Latency && self.rtts[1].len() < RTTS_MAX {
            let took = at.elapsed().as_secs_f64() * 1e6;
            self.rtts.iter_mut().for_each(|rtts| rtts.push(took));
        }
        debug_assert!(operation.is_none_or(|operation| operation == posted), "messages finish in order");
        self.messages += 1;
        self.heard = Instant::now();
    }

    /// A stretch between two moments: time, counters, messages, bytes read.
    fn stretch(
        &mut self,
        rtts: usize,
        began: Instant,
        last: (Instant, Counters, u64, u64),
        now: (Instant, Counters, u64, u64),
    ) -> Stretch {
        let time = now.0 - last.0;
        let (sent, again) = (now.1.sent - last.1.sent, now.1.sent_again - last.1.sent_again);
        let rtts = &mut self.rtts[rtts];
        rtts.sort_by(f64::total_cmp);
        let quantile =
            |share: f64| rtts.get(((rtts.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or(0.0);
        Stretch {
            from_s: (last.0 - began).as_secs_f64(),
            to_s: (now.0 - began).as_secs_f64(),
            goodput_gbps: gbps(sent - again, time),
            back_gbps: gbps(now.3 - last.3, time),
            plane_gbps: vec![gbps(sent, time)],
            planes_up: vec![true],
            active_paths: Vec::new(),
            messages: now.2 - last.2,
            retransmitted: now.1.retransmissions - last.1.retransmissions,
            rtt_p50_us: quantile(0.5),
            rtt_p99_us: quantile(0.99),
            rtt_p999_us: quantile(0.999),
            payload: 0,
        }
    }
}
