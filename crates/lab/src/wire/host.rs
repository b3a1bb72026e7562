//! One host of a run on the wire: its node, its connections, its flows.

use super::{SETUP_TIMEOUT, Shared, WireError, duration, stamp};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use strandway_fabric::plan::Start;
use strandway_proto::HostId;
use strandway_proto::units::Time;
use strandway_udp::{Completion, Connection, Error, Node, Operation, Region, RemoteRegion};

/// The longest that a host sleeps while others may have news for it.
const NAP: Duration = Duration::from_micros(200);

/// Bytes of the first message of a connection: its number in the plan.
const NUMBER: usize = 4;

struct Host<'a> {
    shared: &'a Shared<'a>,
    host: HostId,
    node: Node,
    /// What flows are read from; the longest one's bytes.
    outbox: Region,
    /// The plan's connections that begin here, and the node's for each.
    ours: HashMap<u32, Connection>,
    /// The plan's connection behind each of the node's that ends here, once it has told its number.
    theirs: HashMap<Connection, u32>,
    /// Where the number arrives.
    numbers: HashMap<Connection, Region>,
    /// Flows that wait for their time.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    /// Flows that wait for room among a connection's operations.
    stuck: VecDeque<u32>,
    posted: HashMap<Operation, u32>,
    /// Flows that a trigger has just released.
    released: Vec<(Time, u32)>,
}

/// A host's whole life, on its own thread.
pub(super) fn live(shared: &Shared<'_>, host: HostId, open: &(impl Fn(u32) -> Result<Node, String> + Sync)) {
    let opened = open(host.0).map_err(|what| WireError::Open { host: host.0, what });
    let lived = opened.and_then(|node| Host::new(shared, host, node)).and_then(Host::live);
    if let Err(error) = lived {
        shared.fail(error);
    }
}

impl<'a> Host<'a> {
    fn new(shared: &'a Shared<'a>, host: HostId, mut node: Node) -> Result<Host<'a>, WireError> {
        let wrong = |error| WireError::Node { host: host.0, error };
        let addresses: Vec<SocketAddrV6> = node
            .addresses()
            .map_err(wrong)?
            .into_iter()
            .filter_map(|address| if let SocketAddr::V6(v6) = address { Some(v6) } else { None })
            .collect();
        // Nobody else fills this slot.
        let _ = shared.addresses[host.0 as usize].set(addresses);
        let mine = |i: u32| shared.plan.connections[i as usize].source == host;
        let longest = shared.plan.flows.iter().filter(|f| mine(f.connection)).map(|f| f.bytes).max().unwrap_or(0);
        let outbox = node.register(vec![0x5a; longest as usize]);
        Ok(Host {
            shared,
            host,
            node,
            outbox,
            ours: HashMap::new(),
            theirs: HashMap::new(),
            numbers: HashMap::new(),
            due: BinaryHeap::new(),
            stuck: VecDeque::new(),
            posted: HashMap::new(),
            released: Vec::new(),
        })
    }

    fn wrong(&self, error: Error) -> WireError {
        WireError::Node { host: self.host.0, error }
    }

    fn live(mut self) -> Result<(), WireError> {
        let shared = self.shared;
        let hosts = shared.addresses.len();
        let began = Instant::now();
        self.meet(0, began, hosts)?;
        for (i, connection) in shared.plan.connections.iter().enumerate() {
            if connection.source == self.host {
                let peer = shared.addresses[connection.destination.0 as usize].get().cloned().unwrap_or_default();
                let opened = self.node.connect(&peer).map_err(|error| self.wrong(error))?;
                self.ours.insert(i as u32, opened);
            }
        }
        let remotes = |host: &Host<'_>| host.ours.keys().all(|&i| shared.remotes[i as usize].get().is_some());
        while !remotes(&self) {
            self.setup_turn(began)?;
        }
        self.meet(1, began, hosts)?;
        shared.start.get_or_init(Instant::now);
        for (i, flow) in shared.plan.flows.iter().enumerate() {
            if let Start::At(at) = flow.start
                && shared.source(i as u32) == self.host
            {
                self.due.push(Reverse((at, i as u32)));
            }
        }
        while shared.left.load(Ordering::Acquire) > 0 && !shared.stops() {
            self.turn()?;
        }
        let mut stats = shared.stats.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (&i, &connection) in self.ours.iter().chain(self.theirs.iter().map(|(c, i)| (i, c))) {
            let counted = self.node.connection_counters(connection).map_err(|e| self.wrong(e))?.engine;
            stats[i as usize] += counted;
        }
        drop(stats);
        // A node that goes says goodbye, and others would lose their counters.
        shared.ready[2].fetch_add(1, Ordering::AcqRel);
        while shared.ready[2].load(Ordering::Acquire) < hosts && !shared.failed() {
            self.node.wait(Duration::from_millis(1)).map_err(|e| self.wrong(e))?;
        }
        Ok(())
    }

    /// Tells that this phase is over here, and goes on as a node until it is over everywhere.
    fn meet(&mut self, phase: usize, began: Instant, hosts: usize) -> Result<(), WireError> {
        self.shared.ready[phase].fetch_add(1, Ordering::AcqRel);
        while self.shared.ready[phase].load(Ordering::Acquire) < hosts {
            self.setup_turn(began)?;
        }
        Ok(())
    }

    fn setup_turn(&mut self, began: Instant) -> Result<(), WireError> {
        if self.shared.stops() || began.elapsed() > SETUP_TIMEOUT {
            return Err(WireError::NotConnected);
        }
        if let Some(completion) = self.node.wait(Duration::from_millis(1)).map_err(|e| self.wrong(e))? {
            self.take(completion)?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), WireError> {
        if self.shared.has_mail[self.host.0 as usize].swap(false, Ordering::AcqRel)
            && let Ok(mut mail) = self.shared.mail[self.host.0 as usize].lock()
        {
            self.due.extend(mail.drain(..).map(Reverse));
        }
        self.due.extend(self.released.drain(..).map(Reverse));
        let now = self.shared.now();
        while let Some(&Reverse((at, flow))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            stamp(&self.shared.started[flow as usize], now);
            self.stuck.push_back(flow);
        }
        for _ in 0..self.stuck.len() {
            if let Some(flow) = self.stuck.pop_front()
                && !self.post(flow)?
            {
                self.stuck.push_back(flow);
            }
        }
        let nap = self.due.peek().map_or(NAP, |&Reverse((at, _))| NAP.min(duration(at.since(now))));
        if let Some(completion) = self.node.wait(nap).map_err(|e| self.wrong(e))? {
            self.take(completion)?;
        }
        Ok(())
    }

    /// Posts a flow; false if its connection has no room for one more operation.
    fn post(&mut self, flow: u32) -> Result<bool, WireError> {
        let plan = self.shared.plan.flows[flow as usize];
        let (Some(&connection), Some(&remote)) =
            (self.ours.get(&plan.connection), self.shared.remotes[plan.connection as usize].get())
        else {
            unreachable!("flows start where their connection does, after it was set up")
        };
        match self.node.write(connection, self.outbox, 0..plan.bytes as usize, remote, 0, Some(flow)) {
            Ok(operation) => {
                self.posted.insert(operation, flow);
                Ok(true)
            }
            Err(Error::Busy { .. }) => Ok(false),
            Err(error) => Err(self.wrong(error)),
        }
    }

    fn take(&mut self, completion: Completion) -> Result<(), WireError> {
        match completion {
            Completion::Connected { connection } => {
                let Some(number) = self.ours.iter().find(|(_, c)| **c == connection).map(|(i, _)| *i) else {
                    return Ok(());
                };
                let region = self.node.register(number.to_be_bytes().to_vec());
                self.node.send(connection, region, 0..NUMBER).map_err(|e| self.wrong(e))?;
            }
            Completion::Accepted { connection, .. } => {
                let region = self.node.register(vec![0; NUMBER]);
                self.numbers.insert(connection, region);
                self.node.recv(connection, region, 0..NUMBER).map_err(|e| self.wrong(e))?;
            }
            Completion::Received { connection, .. } => self.introduce(connection)?,
            Completion::Written { immediate: flow, .. } => {
                let now = self.shared.now();
                let Some(plan) = self.shared.plan.flows.get(flow as usize) else { return Ok(()) };
                stamp(&self.shared.received[flow as usize], now);
                if let Some(trigger) = plan.on_received {
                    self.shared.fire(trigger, self.host, now, &mut self.released);
                }
            }
            Completion::Sent { operation, .. } => {
                let now = self.shared.now();
                let Some(flow) = self.posted.remove(&operation) else { return Ok(()) };
                stamp(&self.shared.finished[flow as usize], now);
                if let Some(trigger) = self.shared.plan.flows[flow as usize].on_sent {
                    self.shared.fire(trigger, self.host, now, &mut self.released);
                }
                self.shared.left.fetch_sub(1, Ordering::AcqRel);
            }
            Completion::Closed { connection, reason } => {
                let known = self.theirs.contains_key(&connection) || self.ours.values().any(|c| *c == connection);
                // Others leave when everything has finished.
                if known && self.shared.left.load(Ordering::Acquire) > 0 && !self.shared.stops() {
                    return Err(WireError::Closed { host: self.host.0, reason });
                }
            }
        }
        Ok(())
    }

    /// A connection that ends here has told its number: gives its sender memory to write into.
    fn introduce(&mut self, connection: Connection) -> Result<(), WireError> {
        let Some(region) = self.numbers.remove(&connection) else { return Ok(()) };
        let bytes = self.node.deregister(region).map_err(|e| self.wrong(e))?;
        let number = bytes.first_chunk().map_or(u32::MAX, |b| u32::from_be_bytes(*b));
        let Some(slot) = self.shared.remotes.get(number as usize) else { return Ok(()) };
        let flows = self.shared.plan.flows.iter().filter(|flow| flow.connection == number);
        let longest = flows.map(|flow| flow.bytes).max().unwrap_or(0) as usize;
        let inbox = self.node.register(vec![0; longest]);
        let remote = self.node.expose(connection, inbox, 0..longest).map_err(|e| self.wrong(e))?;
        // A connection tells its number once.
        let _: Result<(), RemoteRegion> = slot.set(remote);
        self.theirs.insert(connection, number);
        Ok(())
    }
}
