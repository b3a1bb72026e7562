//! One host of a run between real nodes: its node, its connections, its program.

use super::casts::Casting;
use super::{SETUP_TIMEOUT, Shared, Signal, WireError, duration, read_stamp, stamp};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use strandway_collective::{AnyApplication, Group, Programs, Rank};
use strandway_fabric::fault::FaultKind;
use strandway_fabric::measure::PathRow;
use strandway_fabric::plan::{FlowPlan, Start};
use strandway_group::RankSpace;
use strandway_group::driver::{Driver, World, unless_busy};
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::path::PathEvent;
use strandway_proto::units::{Bytes, Time};
use strandway_proto::{HostId, Message, MessageId};
use strandway_udp::{Completion, Connection, Error, Node, Operation, Reason, Region, RemoteRegion};

/// The longest sleep of a host while other hosts may send it signals.
const NAP: Duration = Duration::from_micros(200);

/// Bytes of the first message of a connection; the message is the connection's number in the plan.
const NUMBER: usize = 4;

struct Host<'a> {
    shared: &'a Shared<'a>,
    host: HostId,
    node: Node,
    /// The memory of its ranks of collectives.
    ranks: Vec<RankSpace>,
    /// Its part in multicasts.
    casting: Casting<'a>,
    /// The planes with working ports, one bit each, as last reported to the program.
    up: u32,
    /// Memory from which flows are sent; as long as the longest flow.
    outbox: Region,
    /// The plan's connections that begin here, with the node's connection for each.
    ours: HashMap<u32, Connection>,
    /// The node's connections that end here, with the plan's number of each, known once its first message has arrived.
    theirs: HashMap<Connection, u32>,
    /// The memory in which the number arrives.
    numbers: HashMap<Connection, Region>,
    /// Signals whose time has not come.
    signals: BinaryHeap<Reverse<Signal>>,
    /// Denials of the controller that have not begun or ended yet, the next one last: time, fault of the plan, and
    /// whether it begins.
    orders: Vec<(Time, usize, bool)>,
}

/// The orders of the plan's denials, the next one last.
fn orders(shared: &Shared<'_>) -> Vec<(Time, usize, bool)> {
    let faults = shared.plan.faults.iter().enumerate().filter(|(_, fault)| fault.kind == FaultKind::Denied);
    let mut orders: Vec<_> = faults.flat_map(|(i, fault)| [(fault.from, i, true), (fault.until, i, false)]).collect();
    orders.retain(|(at, ..)| *at != Time::NEVER);
    orders.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    orders
}

/// Runs a host on its own thread, from start to end.
pub(super) fn live(shared: &Shared<'_>, host: HostId, open: &(impl Fn(u32) -> Result<Node, String> + Sync)) {
    let opened = open(host.0).map_err(|what| WireError::Open { host: host.0, what });
    let (node, casting, early) = match opened.and_then(|node| prepare(shared, host, node)) {
        Ok(prepared) => prepared,
        Err(error) => return shared.fail(error),
    };
    let operations = shared.teams.operations(shared.operations, node.chunk_overhead());
    let own = operations.as_ref().map(|operations| Programs::new(shared.plan, operations));
    let mut program = own.as_ref().unwrap_or(shared.programs).at(host);
    let mut host = Host::new(shared, host, node, casting);
    // Dropping a node closes its connections. The failure must be stored before peers see that.
    if let Err(error) = host.live(early, &mut program) {
        shared.fail(error);
    }
}

/// Publishes the node's addresses, joins the host's teams, and finds out which planes carry multicast. Also returns
/// completions that arrived meanwhile.
fn prepare<'a>(
    shared: &'a Shared<'a>,
    host: HostId,
    mut node: Node,
) -> Result<(Node, Casting<'a>, Vec<Completion>), WireError> {
    let wrong = |error| WireError::Node { host: host.0, error };
    let addresses: Vec<SocketAddrV6> = node
        .addresses()
        .map_err(wrong)?
        .into_iter()
        .filter_map(|address| if let SocketAddr::V6(v6) = address { Some(v6) } else { None })
        .collect();
    // Only this thread sets this slot.
    let _ = shared.addresses[host.0 as usize].set(addresses);
    shared.meet(0)?;
    let casting = Casting::join(shared, host, &mut node).map_err(wrong)?;
    // All hosts must listen before any host tries.
    shared.meet(1)?;
    let early = casting.try_planes(&mut node).map_err(wrong)?;
    shared.meet(2)?;
    Ok((node, casting, early))
}

impl<'a> Host<'a> {
    fn new(shared: &'a Shared<'a>, host: HostId, mut node: Node, casting: Casting<'a>) -> Host<'a> {
        let mine = |f: &FlowPlan| shared.plan.connections[f.connection as usize].source == host;
        let of_flows = |f: &FlowPlan| f.start != Start::Program && mine(f);
        let longest = shared.plan.flows.iter().filter(|f| of_flows(f)).map(|f| f.bytes).max().unwrap_or(0);
        let placed =
            |group: &'a Group| group.hosts.iter().position(|&h| h == host).map(|rank| (group, Rank(rank as u32)));
        // No collective of the run follows a recipe.
        let ranks = shared
            .operations
            .iter()
            .filter_map(|operation| operation.group())
            .filter_map(placed)
            .filter_map(|(group, rank)| Some(RankSpace::new(&mut node, group, *group.schedule()?, rank)));
        let ranks = ranks.collect();
        let outbox = node.register(vec![0x5a; longest as usize]);
        Host {
            shared,
            host,
            node,
            ranks,
            casting,
            up: u32::MAX,
            outbox,
            ours: HashMap::new(),
            theirs: HashMap::new(),
            numbers: HashMap::new(),
            signals: BinaryHeap::new(),
            orders: orders(shared),
        }
    }

    fn error(&self, error: Error) -> WireError {
        WireError::Node { host: self.host.0, error }
    }

    fn live(&mut self, early: Vec<Completion>, program: &mut AnyApplication<'_>) -> Result<(), WireError> {
        let shared = self.shared;
        let mut driver = Driver::default();
        let hosts = shared.addresses.len();
        let began = Instant::now();
        for completion in early {
            driver.take(self, program, completion)?;
        }
        for (i, connection) in shared.plan.connections.iter().enumerate() {
            if connection.source == self.host {
                self.call(i as u32)?;
            }
        }
        let remotes = |host: &Host<'_>| host.ours.keys().all(|&i| shared.remotes[i as usize].get().is_some());
        while !remotes(self) {
            self.setup_turn(&mut driver, program, began)?;
        }
        // This host's connections are open; it polls its node until those of all hosts are.
        shared.ready[3].fetch_add(1, Ordering::AcqRel);
        while shared.ready[3].load(Ordering::Acquire) < hosts {
            self.setup_turn(&mut driver, program, began)?;
        }
        self.apply_faults(Time::ZERO)?;
        shared.start.get_or_init(Instant::now);
        let mut done = false;
        while !shared.is_over() && !shared.stops() {
            self.turn(&mut driver, program)?;
            if !done && (program.is_done() || self.casting.gave_up(shared.now())) {
                done = true;
                shared.undone.fetch_sub(1, Ordering::AcqRel);
            }
        }
        if shared.left.load(Ordering::Acquire) == 0 {
            self.check_results()?;
        }
        let mut stats = shared.stats.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (&i, &connection) in self.ours.iter().chain(self.theirs.iter().map(|(c, i)| (i, c))) {
            let counted = self.node.observe().connection_counters(connection).map_err(|e| self.error(e))?.engine;
            stats[i as usize] += counted;
        }
        drop(stats);
        self.casting.count(&self.node).map_err(|e| self.error(e))?;
        // Dropping a node closes its connections, and peers would lose their counters.
        shared.ready[4].fetch_add(1, Ordering::AcqRel);
        while shared.ready[4].load(Ordering::Acquire) < hosts && !shared.failed() {
            self.node.wait(Duration::from_millis(1)).map_err(|e| self.error(e))?;
        }
        Ok(())
    }

    /// The plan's number of a connection that begins here.
    fn number_of(&self, connection: Connection) -> Option<u32> {
        self.ours.iter().find(|(_, ours)| **ours == connection).map(|(number, _)| *number)
    }

    /// Connects to the destination of a connection of the plan.
    fn call(&mut self, number: u32) -> Result<(), WireError> {
        let destination = self.shared.plan.connections[number as usize].destination;
        let peer = self.shared.addresses[destination.0 as usize].get().cloned().unwrap_or_default();
        let opened = self.node.connect(&peer).map_err(|error| self.error(error))?;
        self.ours.insert(number, opened);
        Ok(())
    }

    fn setup_turn(
        &mut self,
        driver: &mut Driver,
        program: &mut AnyApplication<'_>,
        began: Instant,
    ) -> Result<(), WireError> {
        if self.shared.stops() || began.elapsed() > SETUP_TIMEOUT {
            return Err(WireError::NotConnected);
        }
        match self.next(Duration::from_millis(1))? {
            Some(completion) => driver.take(self, program, completion),
            None => Ok(()),
        }
    }

    /// Denies or allows the paths of all connections across the links of a fault.
    fn apply_fault(&mut self, fault: usize, denied: bool) -> Result<(), WireError> {
        let plan = self.shared.plan;
        let links = &plan.faults[fault].links;
        let ends = |number: &u32| plan.connections[*number as usize];
        let begun = self.ours.iter().map(|(number, connection)| (*connection, ends(number).destination));
        let accepted = self.theirs.iter().map(|(connection, number)| (*connection, ends(number).source));
        for (connection, peer) in begun.chain(accepted).collect::<Vec<_>>() {
            for state in self.node.observe().path_states(connection).map_err(|e| self.error(e))? {
                let route = plan.topology.source_route(self.host, peer, state.path);
                if route.iter().any(|link| links.contains(link)) {
                    let done = match denied {
                        true => self.node.deny_path(connection, state.path),
                        false => self.node.allow_path(connection, state.path),
                    };
                    done.map_err(|e| self.error(e))?;
                }
            }
        }
        Ok(())
    }

    /// Obeys the controller's orders up to now.
    fn apply_faults(&mut self, now: Time) -> Result<(), WireError> {
        while let Some((_, fault, denied)) = self.orders.pop_if(|(at, ..)| *at <= now) {
            self.apply_fault(fault, denied)?;
        }
        Ok(())
    }

    /// The host at the other end of a connection, if it is known yet.
    fn peer_of(&self, connection: Connection) -> Option<HostId> {
        let ends = &self.shared.plan.connections;
        match self.theirs.get(&connection) {
            Some(&i) => Some(ends[i as usize].source),
            None => self.number_of(connection).map(|i| ends[i as usize].destination),
        }
    }

    fn turn(&mut self, driver: &mut Driver, program: &mut AnyApplication<'_>) -> Result<(), WireError> {
        if self.shared.has_mail[self.host.0 as usize].swap(false, Ordering::AcqRel)
            && let Ok(mut mail) = self.shared.mail[self.host.0 as usize].lock()
        {
            self.signals.extend(mail.drain(..).map(Reverse));
        }
        let now = self.shared.now();
        self.apply_faults(now)?;
        let up = self.node.observe().planes_up();
        if up != self.up {
            self.up = up;
            driver.handle_event(self, program, &Event::Ports { up })?;
        }
        while let Some(&Reverse((at, order, word))) = self.signals.peek()
            && at <= now
        {
            self.signals.pop();
            driver.handle_event(self, program, &Event::Signal { order, word })?;
        }
        let signal = self.signals.peek().map_or(Time::NEVER, |&Reverse((at, ..))| at);
        driver.turn(self, program, NAP.min(duration(signal.since(now))))
    }

    /// Compares the results of all collectives with arithmetic.
    fn check_results(&self) -> Result<(), WireError> {
        for space in &self.ranks {
            if let Some(byte) = space.first_wrong(&self.node).map_err(|e| self.error(e))? {
                return Err(WireError::WrongResult { host: self.host.0, collective: space.group.number, byte });
            }
        }
        Ok(())
    }

    /// A connection that ends here has sent its number: gives its sender memory to write into.
    fn introduce(&mut self, connection: Connection) -> Result<(), WireError> {
        let Some(region) = self.numbers.remove(&connection) else { return Ok(()) };
        let bytes = self.node.deregister(region).map_err(|e| self.error(e))?;
        let number = bytes.first_chunk().map_or(u32::MAX, |b| u32::from_be_bytes(*b));
        let Some(slot) = self.shared.remotes.get(number as usize) else { return Ok(()) };
        let mut flows =
            self.shared.plan.flows.iter().zip(0u32..).filter(|(flow, _)| flow.connection == number).peekable();
        let first = flows.peek().map_or(u32::MAX, |(_, index)| *index);
        let (inbox, length) = match self.ranks.iter().find(|space| space.group.numbers().contains(&first)) {
            Some(space) => (space.staging, space.staged()),
            None => {
                let longest = flows.map(|(flow, _)| flow.bytes).max().unwrap_or(0) as usize;
                (self.node.register(vec![0; longest]), longest)
            }
        };
        let remote = self.node.expose(connection, inbox, 0..length).map_err(|e| self.error(e))?;
        // A connection sends its number once.
        let _: Result<(), RemoteRegion> = slot.set(remote);
        self.theirs.insert(connection, number);
        Ok(())
    }
}

impl World for Host<'_> {
    type Error = WireError;

    fn now(&self) -> Time {
        self.shared.now()
    }

    fn note_sent(&mut self, now: Time, message: MessageId) {
        if let Some(finished) = self.shared.finished.get(message.0 as usize) {
            stamp(finished, now);
        }
        self.shared.left.fetch_sub(1, Ordering::AcqRel);
    }

    fn next(&mut self, timeout: Duration) -> Result<Option<Completion>, WireError> {
        self.node.wait(timeout).map_err(|error| self.error(error))
    }

    fn post(&mut self, channel: Channel, message: &Message) -> Result<Option<Operation>, WireError> {
        let (Some(&connection), Some(&remote)) =
            (self.ours.get(&channel.number), self.shared.remotes[channel.number as usize].get())
        else {
            unreachable!("programs post on channels of the plan, which are all set up")
        };
        let number = message.id.0;
        if let Some(started) = self.shared.started.get(number as usize).filter(|slot| read_stamp(slot).is_none()) {
            stamp(started, self.shared.now());
        }
        let space = self.ranks.iter_mut().find(|space| space.group.numbers().contains(&number));
        let (region, range, at) = match space.and_then(|space| space.source(number)) {
            Some(source) => source,
            None => (self.outbox, 0..message.bytes as usize, 0),
        };
        let written = self.node.write(connection, region, range, remote, at, Some(number));
        unless_busy(written).map_err(|error| self.error(error))
    }

    fn act(&mut self, now: Time, action: Action) -> Result<(), WireError> {
        match action {
            Action::Signal { to, at, order, word } => self.shared.signal(to, (at, order, word)),
            Action::Control { channel, control } => {
                let of_group = self.casting.send_control(&mut self.node, channel.number, channel.peer, control);
                if !of_group.map_err(|e| self.error(e))?
                    && let Some(&connection) = self.ours.get(&channel.number)
                {
                    self.node.send_control(connection, control).map_err(|e| self.error(e))?;
                }
            }
            // Channels of the plan stay open for the whole run, and messages are the driver's.
            Action::Close { .. } | Action::Post { .. } => {}
            Action::Stage { message, stage } => self.casting.note(&mut self.node, message, stage, now)?,
            Action::Cast(cast) => self.casting.cast(&mut self.node, cast).map_err(|e| self.error(e))?,
            Action::Rebuild(rebuild) => {
                self.casting.rebuild(&mut self.node, &rebuild).map_err(|e| self.error(e))?;
            }
            Action::Fragment(_) => return Err(super::no_switch_programs()),
        }
        Ok(())
    }

    fn event(&mut self, completion: Completion) -> Result<Option<Event>, WireError> {
        match completion {
            Completion::Connected { connection } => {
                let Some(number) = self.number_of(connection) else { return Ok(None) };
                let region = self.node.register(number.to_be_bytes().to_vec());
                self.node.send(connection, region, 0..NUMBER).map_err(|e| self.error(e))?;
            }
            Completion::Accepted { connection, .. } => {
                let region = self.node.register(vec![0; NUMBER]);
                self.numbers.insert(connection, region);
                self.node.recv(connection, region, 0..NUMBER).map_err(|e| self.error(e))?;
            }
            Completion::Received { connection, .. } => self.introduce(connection)?,
            Completion::Written { immediate: number, bytes, .. } => {
                let Some(received) = self.shared.received.get(number as usize) else { return Ok(None) };
                stamp(received, self.shared.now());
                if let Some(space) = self.ranks.iter().find(|space| space.group.numbers().contains(&number)) {
                    let settled = space.settle(&mut self.node, number);
                    settled.map_err(|error| WireError::Node { host: self.host.0, error })?;
                }
                self.shared.left.fetch_sub(1, Ordering::AcqRel);
                return Ok(Some(Event::Received { message: MessageId(number), bytes: Bytes(bytes) }));
            }
            Completion::Control { connection, control } => {
                // A control message that arrives before its connection's number is dropped.
                return Ok(self.peer_of(connection).map(|from| Event::Control { from, control }));
            }
            Completion::Closed { connection, reason } => {
                // The peer may have been too busy with other callers: call it again while there is time.
                let gave_up = matches!(reason, Reason::NoAnswer | Reason::ByPeer) && self.shared.start.get().is_none();
                let number = self.number_of(connection);
                if let Some(number) = number.filter(|i| gave_up && self.shared.remotes[*i as usize].get().is_none()) {
                    self.call(number)?;
                    return Ok(None);
                }
                let known = self.theirs.contains_key(&connection) || number.is_some();
                // Other hosts may close connections when everything has finished.
                if known && !self.shared.is_over() && !self.shared.stops() {
                    return Err(WireError::Closed { host: self.host.0, reason });
                }
            }
            Completion::Path { connection, event } => {
                let at = self.shared.now();
                if let (Some(peer), Ok(mut rows)) = (self.peer_of(connection), self.shared.path_events.lock()) {
                    rows.push(PathRow { host: self.host, peer, event: PathEvent { at, ..event } });
                }
            }
            Completion::Chunk { .. } | Completion::Cast { .. } | Completion::Word { .. } => {
                return Ok(self.casting.event(&completion));
            }
            // Sends of connections' numbers, and completions of partial completion and of reads, which no workload uses.
            Completion::Sent { .. }
            | Completion::Injected { .. }
            | Completion::Whole { .. }
            | Completion::Probed { .. }
            | Completion::Read { .. }
            | Completion::Fetched { .. }
            | Completion::Refused { .. } => {}
        }
        Ok(None)
    }
}
