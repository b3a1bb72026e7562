//! The server of a measurement.

use super::{BACK_DEPTH, DIGEST, MEMORY_MAX, Mode, REQUEST, SIZE_MAX};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use strandway_udp::address::shown;
use strandway_udp::{Completion, Connection, Error, Node, PlaneCounters, Reason, Region, RemoteRegion};

/// The longest time between two questions of `stop`.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// The shortest time between two reports of refused hellos.
const REFUSALS: Duration = Duration::from_secs(1);

/// One client, as the server sees it.
struct Client {
    control: Region,
    memory: Option<Region>,
    size: u64,
    mode: Mode,
    back: RemoteRegion,
}

/// Events that a server reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Served {
    /// A client has come, from this address.
    Came(std::net::SocketAddr),
    /// A client has gone, for this reason.
    Gone(Reason),
    /// This many hellos were refused for this reason since the last report; reported at most once a second.
    Refused(Reason, u64),
    /// An interval has passed.
    Passed(Box<Interval>),
}

/// The traffic of a node in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// Its begin, in seconds since the serving began.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Clients at its end.
    pub connections: usize,
    /// Payload that arrived for the first time, in Gb/s.
    pub in_gbps: f64,
    /// Payload that left for the first time, in Gb/s.
    pub out_gbps: f64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// The traffic of each plane.
    pub planes: Vec<PlaneInterval>,
}

/// The traffic of one plane in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaneInterval {
    /// Is its port up, and does every connection use it, at the end of the interval?
    pub up: bool,
    /// Bytes of datagrams received, without UDP and IP headers.
    pub in_bytes: u64,
    /// Bytes of datagrams sent.
    pub out_bytes: u64,
    /// Paths in use at the end, of all connections together; `None` if the profile keeps no list of paths or no client
    /// is connected.
    pub active_paths: Option<u32>,
}

/// Counters at one moment.
struct Totals {
    at: Instant,
    received: u64,
    fresh: u64,
    retransmitted: u64,
    planes: Vec<PlaneCounters>,
}

/// Serves on several nodes, each with a thread, until `stop` returns true; `tell` gets the events of all clients.
///
/// # Errors
/// If a node cannot wait for its sockets.
pub fn serve_all(
    nodes: &mut [Node],
    stop: impl Fn() -> bool + Sync,
    tell: impl FnMut(Served) + Send,
) -> Result<(), Error> {
    let (failed, tell, share) = (AtomicBool::new(false), Mutex::new(tell), MEMORY_MAX / nodes.len().max(1) as u64);
    let stop = || stop() || failed.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let serving = nodes.iter_mut().map(|node| {
            scope.spawn(|| {
                let tell = |served| tell.lock().unwrap_or_else(PoisonError::into_inner)(served);
                let outcome = work(node, None, share, stop, tell);
                failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            })
        });
        let serving: Vec<_> = serving.collect();
        serving.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Serves clients until `stop` returns true; it is asked at least twenty times a second. `tell` gets the events of
/// clients.
///
/// # Errors
/// If the node cannot wait for its sockets.
pub fn serve(node: &mut Node, stop: impl Fn() -> bool, tell: impl FnMut(Served)) -> Result<(), Error> {
    work(node, None, MEMORY_MAX, stop, tell)
}

/// Serves clients as [`serve`] does. `tell` also gets every `interval` that has passed, and at the end the rest of one.
///
/// # Errors
/// As for [`serve`].
pub fn serve_every(
    node: &mut Node,
    interval: Duration,
    stop: impl Fn() -> bool,
    tell: impl FnMut(Served),
) -> Result<(), Error> {
    work(node, Some(interval), MEMORY_MAX, stop, tell)
}

fn work(
    node: &mut Node,
    interval: Option<Duration>,
    memory_max: u64,
    stop: impl Fn() -> bool,
    mut tell: impl FnMut(Served),
) -> Result<(), Error> {
    let mut server = Server { clients: HashMap::new(), promised: 0, memory_max };
    let (began, mut last) = (Instant::now(), totals(node, &server.clients));
    let mut refusals = (began, node.observe().counters().refused());
    loop {
        let over = stop();
        let next = interval.map(|interval| last.at + interval);
        if over || next.is_some_and(|next| Instant::now() >= next) {
            let now = totals(node, &server.clients);
            if interval.is_some() {
                tell(Served::Passed(Box::new(passed(node, &server.clients, began, &last, &now))));
            }
            last = now;
        }
        if over || refusals.0.elapsed() >= REFUSALS {
            let before = std::mem::replace(&mut refusals, (Instant::now(), node.observe().counters().refused())).1;
            let each = refusals.1.iter().zip(before).map(|((reason, now), (_, before))| (*reason, now - before));
            each.filter(|(_, count)| *count > 0).for_each(|(reason, count)| tell(Served::Refused(reason, count)));
        }
        if over {
            return Ok(());
        }
        let left = next.map_or(LOOK, |next| next.saturating_duration_since(Instant::now()).min(LOOK));
        let Some(completion) = node.wait(left)? else { continue };
        match server.take(node, completion, &mut tell) {
            // The connection has ended meanwhile: the next completions report it.
            Ok(()) | Err(Error::NoConnection) => {}
            Err(error) => return Err(error),
        }
    }
}

struct Server {
    clients: HashMap<Connection, Client>,
    /// Bytes of memory of all clients together.
    promised: u64,
    memory_max: u64,
}

impl Server {
    fn take(&mut self, node: &mut Node, completion: Completion, tell: &mut impl FnMut(Served)) -> Result<(), Error> {
        match completion {
            Completion::Accepted { connection, from } => {
                let control = node.register(vec![0; REQUEST]);
                let back = RemoteRegion::to_write(0, 0);
                let client = Client { control, memory: None, size: 0, mode: Mode::Bandwidth, back };
                self.clients.insert(connection, client);
                tell(Served::Came(shown(from)));
                node.recv(connection, control, 0..REQUEST)?;
            }
            Completion::Received { connection, .. } => {
                let Some(client) = self.clients.get_mut(&connection) else { return Ok(()) };
                let bytes = node.memory(client.control)?;
                let field = |at: usize| bytes[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                let (mode, size) = (Mode::numbered(bytes[0]), field(8));
                let back = RemoteRegion::to_write(field(16), field(24));
                let fits = (1..=SIZE_MAX).contains(&size) && self.promised + size <= self.memory_max;
                let Some(mode) = mode.filter(|_| client.memory.is_none() && fits) else {
                    node.close(connection)?;
                    self.promised -= leave(node, self.clients.remove(&connection));
                    tell(Served::Gone(Reason::Violation));
                    return Ok(());
                };
                self.promised += size;
                let memory = node.register(vec![0; size as usize]);
                client.memory = Some(memory);
                (client.size, client.mode, client.back) = (size, mode, back);
                let remote = node.expose(connection, memory, 0..size as usize)?;
                node.memory_mut(client.control)?[..16].copy_from_slice(&remote.to_bytes());
                node.send(connection, client.control, 0..16)?;
                if mode == Mode::Bidirectional {
                    for _ in 0..BACK_DEPTH {
                        write_back(node, connection, client, None);
                    }
                }
            }
            Completion::Written { connection, immediate, .. } => {
                let Some(client) = self.clients.get(&connection) else { return Ok(()) };
                match (client.mode, client.memory) {
                    (Mode::Latency, _) => write_back(node, connection, client, Some(immediate)),
                    (Mode::Verify, Some(memory)) => {
                        let digest = Sha256::digest(node.memory(memory)?);
                        node.memory_mut(client.control)?.copy_from_slice(&digest);
                        // The answer is dropped if the client lets too many of them wait.
                        let _ = node.send(connection, client.control, 0..DIGEST);
                    }
                    _ => {}
                }
            }
            Completion::Sent { connection, .. } => {
                let client = self.clients.get(&connection).filter(|client| client.mode == Mode::Bidirectional);
                if let Some(client) = client {
                    write_back(node, connection, client, None);
                }
            }
            Completion::Control { .. } | Completion::Injected { .. } | Completion::Whole { .. } => {}
            Completion::Path { .. } | Completion::Probed { .. } => {}
            Completion::Read { .. } | Completion::Fetched { .. } | Completion::Refused { .. } => {}
            // Completions of groups.
            Completion::Chunk { .. } | Completion::Cast { .. } | Completion::Word { .. } => {}
            Completion::Closed { connection, reason } => {
                self.promised -= leave(node, self.clients.remove(&connection));
                tell(Served::Gone(reason));
            }
            Completion::Connected { .. } => {}
        }
        Ok(())
    }
}

fn totals(node: &Node, clients: &HashMap<Connection, Client>) -> Totals {
    let ended = node.observe().counters();
    let mut totals = Totals {
        at: Instant::now(),
        received: ended.ended_received_bytes,
        fresh: ended.ended_fresh_bytes,
        retransmitted: ended.ended_retransmitted,
        planes: node.observe().plane_counters(),
    };
    for counters in clients.keys().filter_map(|&connection| node.observe().connection_counters(connection).ok()) {
        totals.received += counters.received_bytes.iter().sum::<u64>();
        totals.fresh += counters.fresh_bytes;
        totals.retransmitted += counters.engine.retransmitted;
    }
    totals
}

fn passed(node: &Node, clients: &HashMap<Connection, Client>, began: Instant, last: &Totals, now: &Totals) -> Interval {
    let open: Vec<_> =
        clients.keys().filter_map(|&connection| node.observe().connection_counters(connection).ok()).collect();
    let rate = |bytes: u64| bytes as f64 * 8.0 / now.at.duration_since(last.at).as_secs_f64().max(1e-9) / 1e9;
    let planes = now.planes.iter().zip(&last.planes).enumerate().map(|(plane, (now, last))| PlaneInterval {
        up: node.observe().ports_up()[plane] && open.iter().all(|counters| counters.up[plane]),
        in_bytes: now.received_bytes - last.received_bytes,
        out_bytes: now.sent_bytes - last.sent_bytes,
        active_paths: open.iter().filter_map(|counters| counters.active_paths.get(plane).copied()).reduce(|a, b| a + b),
    });
    Interval {
        from_s: last.at.duration_since(began).as_secs_f64(),
        to_s: now.at.duration_since(began).as_secs_f64(),
        connections: open.len(),
        in_gbps: rate(now.received - last.received),
        out_gbps: rate(now.fresh - last.fresh),
        retransmitted: now.retransmitted - last.retransmitted,
        planes: planes.collect(),
    }
}

/// Gives a client's memory back; returns the number of its bytes.
fn leave(node: &mut Node, client: Option<Client>) -> u64 {
    let Some(client) = client else { return 0 };
    for region in [Some(client.control), client.memory].into_iter().flatten() {
        // Its connection is gone, so nothing uses it.
        let _ = node.deregister(region);
    }
    client.size
}

/// Writes a message into the client's memory; if the client has too little room, nothing is written.
fn write_back(node: &mut Node, connection: Connection, client: &Client, immediate: Option<u32>) {
    if let Some(memory) = client.memory {
        let _ = node.write(connection, memory, 0..client.size as usize, client.back, 0, immediate);
    }
}
