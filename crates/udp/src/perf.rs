//! How fast, how late: bandwidth and latency between two nodes, in the conventions of perftest and iperf3.
//!
//! The client writes into the server's memory, over and over (bandwidth), or writes a message and waits until the server has
//! written it back (latency). [`serve`] answers any number of clients.

use crate::error::{Error, Reason};
use crate::node::{Completion, Connection, Node, Operation};
use crate::session::SessionCounters;
use crate::{Region, RemoteRegion};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddrV6;
use std::time::{Duration, Instant};

/// The largest message that a server takes, in bytes: 1 GiB.
pub const SIZE_MAX: u64 = 1 << 30;
/// Memory that a server gives to all its clients together, in bytes: 4 GiB. It counts what they asked for.
const MEMORY_MAX: u64 = 4 << 30;
const REQUEST: usize = 32;
const BACK_AND_FORTH: u8 = 1;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of one message, 1 to [`SIZE_MAX`].
    pub size: u64,
    /// Connections, 1 to 256.
    pub connections: usize,
    /// How long.
    pub duration: Duration,
    /// Messages under way per connection, for bandwidth.
    pub depth: usize,
    /// Measure round trips of messages, one at a time, instead of bandwidth.
    pub latency: bool,
}

/// A stretch of the measurement, or all of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stretch {
    /// From when, in seconds since the start.
    pub from_s: f64,
    /// To when.
    pub to_s: f64,
    /// Payload that was delivered and acknowledged, in Gb/s.
    pub goodput_gbps: f64,
    /// Payload that each plane carried, retransmissions included, in Gb/s.
    pub plane_gbps: Vec<f64>,
    /// Is each plane in use at the end of the stretch, on every connection?
    pub planes_up: Vec<bool>,
    /// Messages that were finished.
    pub messages: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Median of the round trips: of messages (latency), else of pings; in microseconds, 0 if there was none.
    pub rtt_p50_us: f64,
    /// 99th percentile of the same.
    pub rtt_p99_us: f64,
}

/// Why there is no result.
#[derive(Debug)]
pub enum PerfError {
    /// A call failed.
    Call(Error),
    /// A connection ended.
    Closed(Reason),
    /// The server stopped answering.
    Stalled,
    /// An option is out of its range: which, and what the range is.
    Option(String),
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PerfError::Call(error) => error.fmt(f),
            PerfError::Closed(reason) => reason.fmt(f),
            PerfError::Stalled => {
                f.write_str("the server stopped answering: is `strandway perf server` running there?")
            }
            PerfError::Option(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PerfError {}

impl From<Error> for PerfError {
    fn from(error: Error) -> PerfError {
        PerfError::Call(error)
    }
}

/// What a client asks for: kind 1, zero 7, size 8, and where to write back to 16.
fn request(options: &Options, back: RemoteRegion) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    bytes[0] = if options.latency { BACK_AND_FORTH } else { 0 };
    bytes[8..16].copy_from_slice(&options.size.to_be_bytes());
    bytes[16..].copy_from_slice(&back.to_bytes());
    bytes
}

/// One client, as the server sees it.
struct Client {
    control: Region,
    memory: Option<Region>,
    size: u64,
    back: Option<RemoteRegion>,
}

/// What a server tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A client has come, from this address.
    Came(std::net::SocketAddr),
    /// A client has gone, for this reason.
    Gone(Reason),
}

/// Serves clients until `stop` says so, which is asked at least twenty times a second. `tell` hears of clients.
///
/// # Errors
/// If the node cannot wait for its sockets.
pub fn serve(node: &mut Node, stop: impl Fn() -> bool, mut tell: impl FnMut(Served)) -> Result<(), Error> {
    let mut clients: HashMap<Connection, Client> = HashMap::new();
    let mut promised = 0;
    while !stop() {
        let Some(completion) = node.wait(Duration::from_millis(50))? else { continue };
        match completion {
            Completion::Accepted { connection, from } => {
                let control = node.register(vec![0; REQUEST]);
                node.recv(connection, control, 0..REQUEST)?;
                clients.insert(connection, Client { control, memory: None, size: 0, back: None });
                tell(Served::Came(from));
            }
            Completion::Received { connection, .. } => {
                let Some(client) = clients.get_mut(&connection) else { continue };
                let bytes = node.memory(client.control)?;
                let field = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                let (kind, size) = (bytes[0], field(8));
                let back = RemoteRegion { key: field(16), bytes: field(24) };
                if client.memory.is_some() || size == 0 || size > SIZE_MAX || promised + size > MEMORY_MAX {
                    node.close(connection)?;
                    promised -= leave(node, clients.remove(&connection));
                    tell(Served::Gone(Reason::Violation));
                    continue;
                }
                promised += size;
                let memory = node.register(vec![0; size as usize]);
                client.memory = Some(memory);
                client.size = size;
                client.back = (kind == BACK_AND_FORTH).then_some(back);
                let remote = node.expose(connection, memory, 0..size as usize)?;
                node.memory_mut(client.control)?[..16].copy_from_slice(&remote.to_bytes());
                node.send(connection, client.control, 0..16)?;
            }
            Completion::Written { connection, immediate, .. } => {
                if let Some(Client { memory: Some(memory), size, back: Some(back), .. }) = clients.get(&connection) {
                    // A client that asks for more than it has room for, or does not wait for answers, goes without.
                    let _ = node.write(connection, *memory, 0..*size as usize, *back, 0, Some(immediate));
                }
            }
            Completion::Closed { connection, reason } => {
                promised -= leave(node, clients.remove(&connection));
                tell(Served::Gone(reason));
            }
            Completion::Connected { .. } | Completion::Sent { .. } => {}
        }
    }
    Ok(())
}

/// Gives a client's memory back; how much was promised to it.
fn leave(node: &mut Node, client: Option<Client>) -> u64 {
    let Some(client) = client else { return 0 };
    for region in [Some(client.control), client.memory].into_iter().flatten() {
        // Its connection is gone, so nothing uses it.
        let _ = node.deregister(region);
    }
    client.size
}

/// One connection, as the client sees it.
struct Stream {
    connection: Connection,
    inbox: Region,
    control: Region,
    remote: Option<RemoteRegion>,
    /// When each message under way was posted.
    posted: VecDeque<(Operation, Instant)>,
    last: SessionCounters,
}

struct Run {
    streams: Vec<Stream>,
    outbox: Region,
    options: Options,
    /// Messages finished, in all.
    messages: u64,
    /// Round trips of the present stretch and of all, in microseconds.
    rtts: [Vec<f64>; 2],
}

/// Round trips that are kept at the most: ours, 8 MB; the first ones.
const RTTS_MAX: usize = 1 << 20;

/// Measures against the server at `peer` (its address on each plane). `each` hears of every second as it passes; the result
/// is about the whole time, which ends early when `stop`, asked at least once a second, says so.
///
/// # Errors
/// If options are out of range, or a connection fails.
pub fn run(
    node: &mut Node,
    peer: &[SocketAddrV6],
    options: &Options,
    stop: impl Fn() -> bool,
    mut each: impl FnMut(&Stretch),
) -> Result<Stretch, PerfError> {
    check(options)?;
    let size = options.size as usize;
    let outbox = node.register(vec![0x5a; size]);
    let mut run = Run { streams: Vec::new(), outbox, options: *options, messages: 0, rtts: Default::default() };
    for _ in 0..options.connections {
        let connection = node.connect(peer)?;
        let inbox = node.register(vec![0; if options.latency { size } else { 0 }]);
        let control = node.register(vec![0; REQUEST]);
        let stream =
            Stream { connection, inbox, control, remote: None, posted: VecDeque::new(), last: Default::default() };
        run.streams.push(stream);
    }
    while run.streams.iter().any(|stream| stream.remote.is_none()) {
        let completion = node.wait(Duration::from_secs(10))?.ok_or(PerfError::Stalled)?;
        run.take(node, completion, false)?;
    }
    let began = Instant::now();
    for i in 0..run.streams.len() {
        run.streams[i].last = node.connection_counters(run.streams[i].connection)?;
        for _ in 0..if options.latency { 1 } else { options.depth } {
            run.post(node, i)?;
        }
    }
    let first: Vec<SessionCounters> = run.streams.iter().map(|stream| stream.last.clone()).collect();
    let mut second = Instant::now();
    let (mut messages, mut last_progress) = (0, began);
    while began.elapsed() < options.duration && !stop() {
        let next = second + Duration::from_secs(1);
        let left = next.min(began + options.duration).saturating_duration_since(Instant::now());
        if let Some(completion) = node.wait(left)? {
            run.take(node, completion, true)?;
            last_progress = Instant::now();
        } else if last_progress.elapsed() > Duration::from_secs(30) {
            return Err(PerfError::Stalled);
        }
        if second.elapsed() >= Duration::from_secs(1) {
            let before: Vec<SessionCounters> = run.streams.iter().map(|stream| stream.last.clone()).collect();
            let stretch = run.stretch(node, began, second, &before, messages, 0)?;
            each(&stretch);
            (second, messages) = (Instant::now(), run.messages);
        }
    }
    let whole = run.stretch(node, began, began, &first, 0, 1)?;
    for stream in &run.streams {
        node.close(stream.connection)?;
        node.deregister(stream.inbox)?;
        node.deregister(stream.control)?;
    }
    node.deregister(outbox)?;
    Ok(whole)
}

fn check(options: &Options) -> Result<(), PerfError> {
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
    if options.duration < Duration::from_millis(10) {
        return wrong("a duration below 10 ms measures nothing: take at least a second".into());
    }
    Ok(())
}

impl Run {
    fn post(&mut self, node: &mut Node, i: usize) -> Result<(), PerfError> {
        let stream = &mut self.streams[i];
        let Some(remote) = stream.remote else { return Ok(()) };
        let immediate = self.options.latency.then_some(i as u32);
        let range = 0..self.options.size as usize;
        let operation = node.write(stream.connection, self.outbox, range, remote, 0, immediate)?;
        stream.posted.push_back((operation, Instant::now()));
        Ok(())
    }

    fn take(&mut self, node: &mut Node, completion: Completion, running: bool) -> Result<(), PerfError> {
        let of = |streams: &[Stream], connection| streams.iter().position(|stream| stream.connection == connection);
        match completion {
            Completion::Connected { connection } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                let stream = &self.streams[i];
                let room = node.memory(stream.inbox)?.len();
                let back = node.expose(connection, stream.inbox, 0..room)?;
                let bytes = request(&self.options, back);
                node.memory_mut(stream.control)?.copy_from_slice(&bytes);
                node.send(connection, stream.control, 0..REQUEST)?;
            }
            Completion::Received { connection, .. } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                let key = node.memory(self.streams[i].control)?.first_chunk().copied().unwrap_or_default();
                self.streams[i].remote = Some(RemoteRegion::from_bytes(key));
            }
            Completion::Sent { connection, operation } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                let stream = &mut self.streams[i];
                if stream.remote.is_none() && !running {
                    // The request is there; its buffer takes the answer.
                    node.recv(connection, stream.control, 0..REQUEST)?;
                } else if !self.options.latency && stream.posted.front().is_some_and(|(posted, _)| *posted == operation)
                {
                    stream.posted.pop_front();
                    self.messages += 1;
                    self.post(node, i)?;
                }
            }
            Completion::Written { connection, .. } => {
                let Some(i) = of(&self.streams, connection) else { return Ok(()) };
                if let Some((_, at)) = self.streams[i].posted.pop_front() {
                    let rtt = at.elapsed().as_secs_f64() * 1e6;
                    self.keep(rtt);
                    self.messages += 1;
                    self.post(node, i)?;
                }
            }
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

    /// From `since` until now; `which` round trips to report and forget.
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
        for (i, before) in before.iter().enumerate() {
            let now = node.connection_counters(self.streams[i].connection)?;
            for rtt in node.take_round_trips(self.streams[i].connection)? {
                if !self.options.latency {
                    self.keep(rtt.as_us());
                }
            }
            retransmitted += now.engine.retransmitted - before.engine.retransmitted;
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
            goodput_gbps: rate(messages * self.options.size),
            plane_gbps: sent.into_iter().map(rate).collect(),
            planes_up: up,
            messages,
            retransmitted,
            rtt_p50_us: quantile(0.5),
            rtt_p99_us: quantile(0.99),
        })
    }
}
