//! Two nodes of ours, one per side, and a transfer between them.

use crate::goodput::Meter;
use crate::network::Role;
use std::time::{Duration, Instant};
use strandway_proto::{Rate, Span};
use strandway_udp::{Completion, Config, Connection, Error, Node, Protection, Reason, Region, RemoteRegion};

const PORT: u16 = 47_810;
/// Bytes of a message.
pub(crate) const MESSAGE: usize = 1 << 20;
/// Messages under way.
pub(crate) const DEPTH: usize = 8;
/// Bytes of a key to remote memory.
const KEY: usize = 16;
/// The interval at which the receiver reports arrived bytes.
pub(crate) const TELL: Duration = Duration::from_millis(1);
const START: Duration = Duration::from_secs(10);
/// Ethernet's header, which a shaper counts.
const ETHERNET: u32 = 14;

/// The settings of our nodes, except for their addresses.
#[derive(Clone)]
pub(crate) struct Ours {
    /// The configuration, with no planes yet.
    pub(crate) config: Config,
    pub(crate) planes: usize,
}

impl Ours {
    /// One plane and the defaults, with that profile and payload.
    pub(crate) fn new(profile: &str, payload: u32) -> Result<Ours, String> {
        // The key need not be secret, since no other host is on this wire.
        let mut config = Config::new(&[0x5a; 32]).and_then(|config| config.profile(profile)).map_err(text)?;
        config.payload = payload;
        Ok(Ours { config, planes: 1 })
    }

    /// One plane and the defaults, with that profile and protection, and packets as large as the MTU allows.
    pub(crate) fn fitting(profile: &str, protection: Protection, mtu: u32) -> Result<Ours, String> {
        let mut ours = Ours::new(profile, 0)?;
        ours.config.protection = protection;
        ours.config = ours.config.mtu(mtu).map_err(text)?;
        Ok(ours)
    }

    /// The same over `planes` planes, each of which is shaped to that rate.
    pub(crate) fn over(mut self, planes: usize, rate_mbps: u32, base_rtt: Span) -> Ours {
        self.planes = planes;
        self.config.rate = Rate(u64::from(rate_mbps) * 1_000_000 * planes as u64);
        self.config.base_rtt = base_rtt;
        self
    }

    /// The payload that a wire carries when it is full of our packets, as a share of its rate.
    pub(crate) fn payload_share(&self) -> f64 {
        let payload = self.config.payload;
        f64::from(payload) / f64::from(payload + self.config.overhead() + ETHERNET)
    }

    /// The node of one side, which the calling thread has entered. `pair`: its number, if there are several.
    pub(crate) fn node(&self, side: Role, pair: u16) -> Result<Node, String> {
        let mut config = self.config.clone();
        config.planes = side.addresses(self.planes, if side == Role::Sender { 0 } else { PORT + pair });
        Node::bind(config).map_err(text)
    }

    /// Nodes of the receiver that share the address of its first pair.
    pub(crate) fn shards(&self, shards: usize) -> Result<Vec<Node>, String> {
        let config = Config { planes: self.peer(0), ..self.config.clone() };
        Node::bind_shards(&config, shards).map_err(text)
    }

    /// The receiver's addresses.
    pub(crate) fn peer(&self, pair: u16) -> Vec<std::net::SocketAddrV6> {
        Role::Receiver.addresses(self.planes, PORT + pair)
    }

    /// Writes messages into the receiver's memory: the first one again and again, or all of `memory` once.
    pub(crate) fn send(&self, meter: &Meter, memory: Vec<u8>, once: bool) -> Result<(), String> {
        let mut node = self.node(Role::Sender, 0)?;
        let (connection, remote) = self.meet(&mut node)?;
        let size = memory.len();
        let outbox = node.register(memory);
        let (mut at, mut under_way) = (0, 0);
        while !meter.is_over() {
            while under_way < DEPTH && at < size {
                let end = size.min(at + MESSAGE);
                let immediate = (once && end == size).then_some(1);
                node.write(connection, outbox, at..end, remote, at as u64, immediate).map_err(text)?;
                under_way += 1;
                at = if once { end } else { 0 };
            }
            match node.wait(Duration::from_millis(50)).map_err(text)? {
                Some(Completion::Sent { .. }) => under_way -= 1,
                // The receiver may notice the end first.
                Some(Completion::Closed { reason: Reason::ByPeer, .. }) if once || meter.is_over() => return Ok(()),
                Some(Completion::Closed { reason, .. }) => return Err(reason.to_string()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Connects, and waits for the key to the receiver's memory.
    fn meet(&self, node: &mut Node) -> Result<(Connection, RemoteRegion), String> {
        let connection = node.connect(&self.peer(0)).map_err(text)?;
        let control = node.register(vec![0; KEY]);
        let until = Instant::now() + START;
        while Instant::now() < until {
            match node.wait(Duration::from_millis(50)).map_err(text)? {
                Some(Completion::Connected { .. }) => drop(node.recv(connection, control, 0..KEY).map_err(text)?),
                Some(Completion::Received { .. }) => {
                    let key = node.memory(control).map_err(text)?.first_chunk().copied().unwrap_or_default();
                    return Ok((connection, RemoteRegion::from_bytes(key)));
                }
                Some(Completion::Closed { reason, .. }) => return Err(reason.to_string()),
                _ => {}
            }
        }
        Err("no key to the receiver's memory came".into())
    }

    /// Lets one sender write into `size` bytes of memory, and counts arriving bytes, until the measurement is over or
    /// the last message is here. Returns the memory, and whether the last message is here. `each` gets the bytes that
    /// arrived on each plane, at intervals.
    pub(crate) fn receive(
        &self,
        meter: &Meter,
        size: usize,
        every: Duration,
        mut each: impl FnMut(Instant, &[u64]),
    ) -> Result<(Vec<u8>, bool), String> {
        let mut node = self.node(Role::Receiver, 0)?;
        let (inbox, mut peer) = (node.register(vec![0; size]), None);
        let mut next = Instant::now() + every;
        while !meter.is_over() {
            let left = next.saturating_duration_since(Instant::now());
            match node.wait(left).map_err(text)? {
                Some(Completion::Accepted { connection, .. }) => {
                    admit(&mut node, connection, inbox, size)?;
                    peer = Some(connection);
                }
                Some(Completion::Written { immediate: 1, .. }) => {
                    return Ok((node.deregister(inbox).map_err(text)?, true));
                }
                Some(Completion::Closed { .. }) if meter.is_over() => break,
                Some(Completion::Closed { reason, .. }) => return Err(reason.to_string()),
                _ => {}
            }
            let now = Instant::now();
            if now >= next
                && let Some(connection) = peer
            {
                let counters = node.observe().connection_counters(connection).map_err(text)?;
                meter.set(&counters.received_bytes);
                each(now, &counters.received_bytes);
            }
            if now >= next {
                next = now + every;
            }
        }
        Ok((Vec::new(), false))
    }

    /// Writes messages until the measurement is over.
    pub(crate) fn send_on(&self, meter: &Meter) -> Result<(), String> {
        self.send(meter, vec![0x5a; MESSAGE], false)
    }

    /// Receives them, and reports rarely, so that the receiver sleeps as it would without the measurement.
    pub(crate) fn receive_on(&self, meter: &Meter) -> Result<(), String> {
        self.receive(meter, MESSAGE, Duration::from_millis(10), |_, _| {}).map(drop)
    }

    /// Goodput per plane, in Gb/s.
    pub(crate) fn goodput(&self, seconds: f64) -> Result<Vec<f64>, String> {
        let sender = |meter: &Meter| self.send(meter, vec![0x5a; MESSAGE], false);
        let receiver = |meter: &Meter| self.receive(meter, MESSAGE, TELL, |_, _| {}).map(drop);
        let planes = crate::goodput::goodput(seconds, sender, receiver)?;
        Ok(planes[..self.planes].to_vec())
    }
}

/// Exposes memory to a sender that has connected.
fn admit(node: &mut Node, connection: Connection, inbox: Region, size: usize) -> Result<(), String> {
    let key = node.expose(connection, inbox, 0..size).map_err(text)?;
    let control = node.register(key.to_bytes().to_vec());
    node.send(connection, control, 0..KEY).map_err(text)?;
    Ok(())
}

fn text(error: Error) -> String {
    error.to_string()
}

/// The name in tables.
pub(crate) fn name_of(protection: Protection) -> &'static str {
    match protection {
        Protection::None => "unprotected",
        Protection::Authenticated => "authenticated",
        Protection::Encrypted => "encrypted",
    }
}
