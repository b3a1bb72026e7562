//! The client of a measurement.

use super::{BULK_SIZE, DIGEST, Mode, Options, PerfError, REQUEST, SIZE_MAX, Stretch, request};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::time::{Duration, Instant};
use strandway_proto::rng::{Random, StreamKind};
use strandway_udp::{Completion, Connection, Node, Operation, Region, RemoteRegion, SessionCounters};

/// One connection, as the client sees it.
struct Stream {
    connection: Connection,
    /// The quantity that it measures. Connections that only fill the wire beside round trips have [`Mode::Bandwidth`].
    mode: Mode,
    size: u64,
    /// Does it count, or only fill the wire?
    counts: bool,
    inbox: Region,
    control: Region,
    remote: Option<RemoteRegion>,
    /// The time at which each message under way was posted.
    posted: VecDeque<(Operation, Instant)>,
    /// Messages posted.
    count: u64,
    /// Messages finished.
    done: u64,
    last: SessionCounters,
}

struct Run {
    streams: Vec<Stream>,
    outbox: Region,
    options: Options,
    /// Messages finished, in all.
    messages: u64,
    /// Messages finished by connections that only fill the wire.
    bulk: u64,
    /// Contents of messages to verify, and the digest that the server must return for the present one.
    random: Random,
    digest: Vec<u8>,
    /// Round trips of the present stretch, and of the whole measurement, in microseconds.
    rtts: [Vec<f64>; 2],
}

/// The most round trips that are kept: ours, 8 MB; the first ones are kept.
const RTTS_MAX: usize = 1 << 20;

/// Measures against the server at `peer` (its address on each plane). `each` gets every interval as it ends. The result
/// covers the whole time. The measurement ends early when `stop` returns true; it is asked at least once per interval.
///
/// # Errors
/// If options are out of range, or a connection fails.
pub fn run(
    node: &mut Node,
    peer: &[SocketAddrV6],
    options: &Options,
    stop: impl Fn() -> bool,
    each: impl FnMut(&Stretch),
) -> Result<Stretch, PerfError> {
    measure(node, peer, options, stop, each, || true, (0, 1))
}

/// Measures as [`run`] does, with all connections to one shard of the server ([`Node::connect_to_shard`]).
///
/// # Errors
/// As for [`run`].
pub fn run_to_shard(
    node: &mut Node,
    peer: &[SocketAddrV6],
    shard: u8,
    options: &Options,
    stop: impl Fn() -> bool,
    each: impl FnMut(&Stretch),
) -> Result<Stretch, PerfError> {
    measure(node, peer, options, stop, each, || true, (shard.into(), 0))
}

/// Measures as [`run`] does, but connections stay open until `may_close` returns true; it is asked repeatedly.
/// Connection `i` asks for shard `first + i * step` of the server.
pub(super) fn measure(
    node: &mut Node,
    peer: &[SocketAddrV6],
    options: &Options,
    stop: impl Fn() -> bool,
    mut each: impl FnMut(&Stretch),
    may_close: impl Fn() -> bool,
    (first_shard, step): (usize, usize),
) -> Result<Stretch, PerfError> {
    check(options)?;
    let largest = if options.bulk > 0 { options.size.max(BULK_SIZE) } else { options.size };
    let outbox = node.register(vec![0x5a; largest as usize]);
    let mut run = Run {
        streams: Vec::new(),
        outbox,
        options: *options,
        messages: 0,
        bulk: 0,
        random: Random::new(0, StreamKind::Connection, 0),
        digest: Vec::new(),
        rtts: Default::default(),
    };
    for i in 0..options.connections + options.bulk {
        let counts = i < options.connections;
        let (mode, size) = if counts { (options.mode, options.size) } else { (Mode::Bandwidth, BULK_SIZE) };
        let connection = node.connect_to_shard(peer, (first_shard + i * step) as u8)?;
        let back = matches!(mode, Mode::Latency | Mode::Bidirectional);
        let inbox = node.register(vec![0; if back { size as usize } else { 0 }]);
        let control = node.register(vec![0; REQUEST]);
        let stream = Stream {
            connection,
            mode,
            size,
            counts,
            inbox,
            control,
            remote: None,
            posted: VecDeque::new(),
            count: 0,
            done: 0,
            last: Default::default(),
        };
        run.streams.push(stream);
    }
    while run.streams.iter().any(|stream| stream.remote.is_none()) {
        let completion = node.wait(Duration::from_secs(10))?.ok_or(PerfError::Stalled)?;
        run.take(node, completion, false)?;
    }
    let began = Instant::now();
    for i in 0..run.streams.len() {
        run.streams[i].last = node.observe().connection_counters(run.streams[i].connection)?;
        let depth = match run.streams[i].mode {
            Mode::Bandwidth | Mode::Bidirectional => options.depth,
            Mode::Latency | Mode::Verify => 1,
        };
        for _ in 0..depth {
            run.post(node, i)?;
        }
    }
    let first: Vec<SessionCounters> = run.streams.iter().map(|stream| stream.last.clone()).collect();
    let mut second = Instant::now();
    let (mut messages, mut last_progress) = (0, began);
    while began.elapsed() < options.duration && !stop() && !run.is_through() {
        let next = second + options.interval;
        let left = next.min(began + options.duration).saturating_duration_since(Instant::now());
        if let Some(completion) = node.wait(left)? {
            run.take(node, completion, true)?;
            last_progress = Instant::now();
        } else if last_progress.elapsed() > run.timeout() {
            return Err(PerfError::Stalled);
        }
        if second.elapsed() >= options.interval {
            let before: Vec<SessionCounters> = run.streams.iter().map(|stream| stream.last.clone()).collect();
            let stretch = run.stretch(node, began, second, &before, messages, 0)?;
            each(&stretch);
            (second, messages) = (Instant::now(), run.messages);
        }
    }
    // The last interval is seldom complete; if less than half of it has passed, it gets no line of its own.
    if second.elapsed() > options.interval / 2 {
        let before: Vec<SessionCounters> = run.streams.iter().map(|stream| stream.last.clone()).collect();
        each(&run.stretch(node, began, second, &before, messages, 0)?);
    }
    let whole = run.stretch(node, began, began, &first, 0, 1)?;
    while !may_close() {
        // Completions of messages still under way are ignored.
        node.wait(Duration::from_millis(10))?;
    }
    for stream in &run.streams {
        node.close(stream.connection)?;
        node.deregister(stream.inbox)?;
        node.deregister(stream.control)?;
    }
    node.deregister(outbox)?;
    Ok(whole)
}

pub(super) fn check(options: &Options) -> Result<(), PerfError> {
    let wrong = |what: String| Err(PerfError::Option(what));
    if !(1..=SIZE_MAX).contains(&options.size) {
        return wrong(format!("a size of {} bytes: take 1 byte to 1 GiB", options.size));
    }
    if !(1..=256).contains(&options.connections) {
        return wrong(format!("{} connections: take 1 to 256", options.connections));
    }
    if !(1..=1_024).contains(&options.depth) {
        return wrong(format!("{} messages under way: take 1 to 1024", options.depth));
    }
    if options.bulk > 64 || (options.bulk > 0 && options.mode != Mode::Latency) {
        return wrong(format!("{} bulk connections: take 0 to 64, beside round trips only", options.bulk));
    }
    if options.mode == Mode::Verify && options.connections > 1 {
        return wrong("messages are verified one at a time: take one connection".into());
    }
    if !(Duration::from_millis(1)..=Duration::from_secs(3_600)).contains(&options.interval) {
        return wrong("the interval between lines: take 1 ms to an hour".into());
    }
    if options.duration < Duration::from_millis(10) {
        return wrong("a duration below 10 ms is too short to measure: take at least a second".into());
    }
    Ok(())
}

impl Run {
    /// Has every connection finished its number of messages?
    fn is_through(&self) -> bool {
        self.options
            .messages
            .is_some_and(|most| self.streams.iter().all(|stream| stream.done >= most || !stream.counts))
    }

    /// The longest time without a finished message before the server counts as stalled: longer than a large message
    /// over a slow network takes.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30) + Duration::from_micros(self.options.size / 10)
    }

    fn post(&mut self, node: &mut Node, i: usize) -> Result<(), PerfError> {
        let stream = &mut self.streams[i];
        let Some(remote) = stream.remote else { return Ok(()) };
        if stream.counts && self.options.messages.is_some_and(|most| stream.count >= most) {
            return Ok(());
        }
        let range = 0..stream.size as usize;
        if stream.mode == Mode::Verify {
            let random = &mut self.random;
            let bytes = node.memory_mut(self.outbox)?;
            bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_be_bytes()[..word.len()]));
            self.digest = Sha256::digest(bytes).to_vec();
            node.recv(stream.connection, stream.control, 0..DIGEST)?;
        }
        let immediate = matches!(stream.mode, Mode::Latency | Mode::Verify).then_some(i as u32);
        let operation = node.write(stream.connection, self.outbox, range, remote, 0, immediate)?;
        stream.posted.push_back((operation, Instant::now()));
        stream.count += 1;
        Ok(())
    }

    /// A message is finished.
    fn finish(&mut self, node: &mut Node, i: usize) -> Result<(), PerfError> {
        self.streams[i].done += 1;
        *(if self.streams[i].counts { &mut self.messages } else { &mut self.bulk }) += 1;
        self.post(node, i)
    }

    fn take(&mut self, node: &mut Node, completion: Completion, running: bool) -> Result<(), PerfError> {
        let of = |streams: &[Stream], connection| streams.iter().position(|stream| stream.connection == connection);
        match completion {
            Completion::Connected { connection } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                let stream = &self.streams[i];
                let room = node.memory(stream.inbox)?.len();
                let back = node.expose(connection, stream.inbox, 0..room)?;
                let bytes = request(stream.mode, stream.size, back);
                node.memory_mut(stream.control)?.copy_from_slice(&bytes);
                node.send(connection, stream.control, 0..REQUEST)?;
            }
            Completion::Received { connection, .. } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                let told = node.memory(self.streams[i].control)?;
                if self.streams[i].remote.is_some() {
                    if told[..DIGEST] != *self.digest {
                        return Err(PerfError::Corrupt(self.streams[i].done));
                    }
                    self.streams[i].posted.clear();
                    return self.finish(node, i);
                }
                let key = told.first_chunk().copied().unwrap_or_default();
                self.streams[i].remote = Some(RemoteRegion::from_bytes(key));
            }
            Completion::Sent { connection, operation } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                let stream = &mut self.streams[i];
                if stream.remote.is_none() && !running {
                    // The server has the request; the same buffer receives the answer.
                    node.recv(connection, stream.control, 0..REQUEST)?;
                } else if matches!(stream.mode, Mode::Bandwidth | Mode::Bidirectional)
                    && stream.posted.front().is_some_and(|(posted, _)| *posted == operation)
                {
                    stream.posted.pop_front();
                    self.finish(node, i)?;
                }
            }
            Completion::Written { connection, .. } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                if let Some((_, at)) = self.streams[i].posted.pop_front() {
                    let rtt = at.elapsed().as_secs_f64() * 1e6;
                    self.keep(rtt);
                    self.finish(node, i)?;
                }
            }
            Completion::Control { .. } | Completion::Injected { .. } | Completion::Whole { .. } => {}
            Completion::Path { .. } | Completion::Probed { .. } => {}
            Completion::Read { .. } | Completion::Fetched { .. } | Completion::Refused { .. } => {}
            // Completions of groups.
            Completion::Chunk { .. } | Completion::Cast { .. } | Completion::Word { .. } => {}
            Completion::Closed { connection, reason } => {
                if of(&self.streams, connection).is_some() {
                    return Err(PerfError::Closed(reason));
                }
            }
            Completion::Accepted { .. } => {}
        }
        Ok(())
    }

    fn keep(&mut self, rtt: f64) {
        for rtts in &mut self.rtts {
            if rtts.len() < RTTS_MAX {
                rtts.push(rtt);
            }
        }
    }

    /// The stretch from `since` until now. `which`: the list of round trips that it reports and clears.
    fn stretch(
        &mut self,
        node: &mut Node,
        began: Instant,
        since: Instant,
        before: &[SessionCounters],
        messages_before: u64,
        which: usize,
    ) -> Result<Stretch, PerfError> {
        let seconds = since.elapsed().as_secs_f64();
        let rate = |bytes: u64| bytes as f64 * 8.0 / seconds / 1e9;
        let planes = before.first().map_or(0, |counters| counters.sent_bytes.len());
        let (mut sent, mut up, mut retransmitted) = (vec![0; planes], vec![true; planes], 0);
        let (mut fresh, mut back) = (0, 0);
        for (i, before) in before.iter().enumerate() {
            let now = node.observe().connection_counters(self.streams[i].connection)?;
            for rtt in node.take_round_trips(self.streams[i].connection)? {
                if self.options.mode != Mode::Latency {
                    self.keep(rtt.as_us());
                }
            }
            retransmitted += now.engine.retransmitted - before.engine.retransmitted;
            fresh += now.fresh_bytes - before.fresh_bytes;
            back += now.received_bytes.iter().sum::<u64>() - before.received_bytes.iter().sum::<u64>();
            for plane in 0..planes {
                sent[plane] += now.sent_bytes[plane] - before.sent_bytes[plane];
                up[plane] &= now.up[plane];
            }
            self.streams[i].last = now;
        }
        let messages = self.messages - messages_before;
        let mut rtts = std::mem::take(&mut self.rtts[which]);
        rtts.sort_by(f64::total_cmp);
        let quantile =
            |share: f64| rtts.get(((rtts.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or(0.0);
        Ok(Stretch {
            from_s: since.duration_since(began).as_secs_f64(),
            to_s: began.elapsed().as_secs_f64(),
            goodput_gbps: rate(if which == 0 { fresh } else { messages * self.options.size + self.bulk * BULK_SIZE }),
            back_gbps: if self.options.mode == Mode::Bidirectional { rate(back) } else { 0.0 },
            active_paths: self.streams.first().map_or(Vec::new(), |stream| stream.last.active_paths.clone()),
            plane_gbps: sent.into_iter().map(rate).collect(),
            planes_up: up,
            messages,
            retransmitted,
            rtt_p50_us: quantile(0.5),
            rtt_p99_us: quantile(0.99),
            rtt_p999_us: quantile(0.999),
            payload: match self.streams.first() {
                Some(stream) => node.observe().payload(stream.connection)?,
                None => 0,
            },
        })
    }
}
