//! The part of a mover behind its lock: the node, memory, connections, events.

use crate::channel::{CONTROL, CONTROLS, Channel, Job, MESSAGE, Offer, RECORDS, Receive};
use crate::code::{Code, MoverError, code_of, code_of_refusal};
use crate::event::{Event, EventKind};
use crate::interests::{Interests, Sleeper};
use crate::memory::Memories;
use crate::options::Level;
use crate::record::{Malformed, RECORD, Record};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddrV6;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandway_udp::{Completion, Connection, Node, RemoteRegion, Rights};

/// Packets rest while this many events wait to be taken; ours.
const EVENTS_MAX: usize = 16_384;

/// Numbers of handles. No number is used twice in a process, so a handle of one node is none of another.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

pub(crate) fn fresh() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) memories: Memories,
    channels: HashMap<u64, Channel>,
    numbers: HashMap<Connection, u64>,
    /// Connections whose hello is due.
    greeting: Vec<u64>,
    /// Connections with records to send.
    speaking: Vec<u64>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) logs: Vec<(Level, String)>,
    pub(crate) interests: Interests,
    operations_max: usize,
    handshake_timeout: Duration,
    has_log: bool,
    /// Threads that sleep on the descriptor, or are about to.
    pub(crate) sleepers: usize,
    /// Operations were posted since the last turn.
    pub(crate) posted: bool,
}

impl State {
    pub(crate) fn new(node: Node, operations_max: u32, handshake_timeout: Duration, has_log: bool) -> State {
        State {
            node,
            memories: Memories::default(),
            channels: HashMap::new(),
            numbers: HashMap::new(),
            greeting: Vec::new(),
            speaking: Vec::new(),
            events: VecDeque::new(),
            logs: Vec::new(),
            interests: Interests::default(),
            operations_max: operations_max as usize,
            handshake_timeout,
            has_log,
            sleepers: 0,
            posted: false,
        }
    }

    fn log(&mut self, level: Level, text: impl FnOnce() -> String) {
        if self.has_log {
            self.logs.push((level, text()));
        }
    }

    pub(crate) fn connect(&mut self, peer: &[SocketAddrV6], service: u64) -> Result<u64, MoverError> {
        let connection = self.node.connect(peer)?;
        let number = fresh();
        self.channels.insert(number, Channel::new(connection, true, service));
        self.numbers.insert(connection, number);
        Ok(number)
    }

    /// A connection whose peer has said hello.
    pub(crate) fn ready(&mut self, number: u64) -> Result<&mut Channel, MoverError> {
        match self.channels.get_mut(&number) {
            Some(channel) if channel.ready => Ok(channel),
            Some(_) => Err(MoverError::of(Code::NotConnected)),
            None => Err(MoverError::of(Code::NoConnection)),
        }
    }

    pub(crate) fn close(&mut self, number: u64) -> Result<(), MoverError> {
        let channel = self.channels.get(&number).ok_or_else(|| MoverError::of(Code::NoConnection))?;
        let _ = self.node.close(channel.connection);
        self.end(number, Code::ClosedHere);
        Ok(())
    }

    /// `number`: a connection, or 0 for all.
    pub(crate) fn expose(
        &mut self,
        number: u64,
        memory: u64,
        (offset, length): (u64, u64),
        rights: Rights,
    ) -> Result<RemoteRegion, MoverError> {
        let (region, range) = self.memories.place(memory, offset, length, rights != Rights::READ)?;
        let remote = if number == 0 {
            self.node.expose_to_all(region, range, rights)?
        } else {
            let connection = self.ready(number)?.connection;
            self.node.expose_for(connection, region, range, rights)?
        };
        self.memories.add_key(memory, remote.key, number);
        Ok(remote)
    }

    pub(crate) fn revoke(&mut self, remote: RemoteRegion) -> bool {
        self.memories.remove_key(remote.key) && self.node.revoke(remote)
    }

    pub(crate) fn write(
        &mut self,
        number: u64,
        job: Job,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
    ) -> Result<(), MoverError> {
        if immediate.is_some_and(|immediate| immediate >= MESSAGE) {
            return Err(MoverError::new(Code::Invalid, "an immediate has 31 bits: take a number below 2147483648"));
        }
        self.room(number)?;
        self.post(number, job, remote, at, immediate)
    }

    pub(crate) fn send(&mut self, number: u64, tag: u64, job: Job) -> Result<(), MoverError> {
        self.room(number)?;
        self.memories.place(job.memory, job.offset, job.bytes, false)?;
        let channel = self.ready(number)?;
        let Some(offer) = channel.offer(tag) else {
            channel.wait(tag, job);
            self.memories.hold(job.memory);
            return Ok(());
        };
        if offer.bytes < job.bytes {
            let text = format!("a message of {} bytes, but the receive with tag {tag} has {}", job.bytes, offer.bytes);
            return Err(MoverError::new(Code::TooLong, text));
        }
        channel.take_offer(tag);
        self.answer(number, job, offer)
    }

    /// May the connection have another send or write?
    pub(crate) fn room(&mut self, number: u64) -> Result<(), MoverError> {
        let most = self.operations_max;
        match self.ready(number)?.unfinished() < most {
            true => Ok(()),
            false => Err(MoverError::new(Code::Busy, format!("{most} operations are unfinished: take events"))),
        }
    }

    /// Writes a message into the receive that waits for it.
    fn answer(&mut self, number: u64, job: Job, offer: Offer) -> Result<(), MoverError> {
        let remote = RemoteRegion::to_write(offer.key, offer.bytes);
        self.post(number, job, remote, 0, Some(MESSAGE | offer.number))
    }

    fn post(
        &mut self,
        number: u64,
        job: Job,
        remote: RemoteRegion,
        at: u64,
        immediate: Option<u32>,
    ) -> Result<(), MoverError> {
        let (region, range) = self.memories.place(job.memory, job.offset, job.bytes, false)?;
        let connection = self.ready(number)?.connection;
        let operation = self.node.write(connection, region, range, remote, at, immediate)?;
        self.memories.hold(job.memory);
        let channel = self.ready(number)?;
        channel.posted.push_back((operation, Some(job)));
        channel.writing += 1;
        Ok(())
    }

    pub(crate) fn receive(&mut self, number: u64, tag: u64, job: Job) -> Result<(), MoverError> {
        let most = self.operations_max;
        let (region, range) = self.memories.place(job.memory, job.offset, job.bytes, true)?;
        let channel = self.ready(number)?;
        if channel.receives.len() >= most {
            return Err(MoverError::new(Code::Busy, format!("{most} receives are unfinished: take events")));
        }
        let connection = channel.connection;
        let remote = self.node.expose(connection, region, range)?;
        self.memories.hold(job.memory);
        let channel = self.ready(number)?;
        let receive = channel.fresh_number();
        channel.receives.insert(receive, Receive { job, key: remote.key });
        self.send_record(number, Record::Offer { number: receive, tag, key: remote.key, bytes: remote.bytes });
        self.flush(number);
        Ok(())
    }

    fn send_record(&mut self, number: u64, record: Record) {
        if let Some(channel) = self.channels.get_mut(&number) {
            if channel.records.is_empty() {
                self.speaking.push(number);
            }
            channel.records.push_back(record);
        }
    }

    /// Sends records, as many as small messages have room. The rest follows when one has arrived.
    fn flush(&mut self, number: u64) {
        while let Some(channel) = self.channels.get_mut(&number) {
            let Some(desk) = channel.desk.filter(|_| !channel.records.is_empty()) else { return };
            if channel.controls_flying == CONTROLS {
                return;
            }
            let count = channel.records.len().min(RECORDS);
            let start = (CONTROLS + channel.controls_out % CONTROLS) * CONTROL;
            let range = start..start + count * RECORD;
            let connection = channel.connection;
            let bytes = channel.records.drain(..count).flat_map(Record::encode).collect::<Vec<u8>>();
            let Ok(room) = self.node.memory_mut(desk) else { return };
            room[range.clone()].copy_from_slice(&bytes);
            // A connection that has ended gets its event with the next turn.
            let Ok(operation) = self.node.send(connection, desk, range) else { return };
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.posted.push_back((operation, None));
                channel.controls_out += 1;
                channel.controls_flying += 1;
            }
        }
    }

    /// Moves packets once; true if there may be more to do at once.
    pub(crate) fn turn(&mut self) -> bool {
        if self.events.len() >= EVENTS_MAX {
            return false;
        }
        self.posted = false;
        let moved = self.node.turn();
        while let Some(completion) = self.node.take_completion() {
            self.handle(completion);
        }
        for number in std::mem::take(&mut self.speaking) {
            self.flush(number);
            if self.channels.get(&number).is_some_and(|channel| !channel.records.is_empty()) {
                self.speaking.push(number);
            }
        }
        self.end_silent();
        moved
    }

    /// How long to sleep if no socket reports anything.
    pub(crate) fn rest(&mut self) -> Duration {
        if self.events.len() >= EVENTS_MAX {
            return Duration::from_millis(10);
        }
        if self.posted {
            return Duration::ZERO;
        }
        let rest = self.node.rest();
        let due = self.greeting.iter().filter_map(|number| self.channels.get(number)?.hello_by).min();
        due.map_or(rest, |due| rest.min(due.saturating_duration_since(Instant::now())))
    }

    /// Makes the descriptor report the node's sockets.
    pub(crate) fn arm(&mut self, sleeper: &Sleeper) {
        self.interests.set(sleeper, &self.node.wait_for());
    }

    fn end_silent(&mut self) {
        if self.greeting.is_empty() {
            return;
        }
        let now = Instant::now();
        for number in std::mem::take(&mut self.greeting) {
            let Some(channel) = self.channels.get(&number).filter(|channel| !channel.ready) else { continue };
            if channel.hello_by.is_some_and(|by| by <= now) {
                let _ = self.node.close(channel.connection);
                self.end(number, Code::WrongVersion);
            } else {
                self.greeting.push(number);
            }
        }
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Connected { connection } => self.open(connection),
            Completion::Accepted { connection, from } => {
                let number = fresh();
                self.log(Level::Info, || format!("a node at {from} has called: connection {number}"));
                self.channels.insert(number, Channel::new(connection, false, 0));
                self.numbers.insert(connection, number);
                self.open(connection);
            }
            Completion::Sent { connection, operation } => {
                let Some((number, channel)) = self.channel(connection) else { return };
                let Some((posted, job)) = channel.posted.pop_front() else { return };
                debug_assert_eq!(posted, operation, "operations of a connection end in order");
                let Some(job) = job else {
                    channel.controls_flying -= 1;
                    return self.flush(number);
                };
                channel.writing -= 1;
                self.finish(number, job, Code::Ok);
            }
            Completion::Read { connection, operation, .. } => self.finish_asked(connection, operation, Code::Ok, 0),
            Completion::Fetched { connection, operation, word } => {
                self.finish_asked(connection, operation, Code::Ok, word);
            }
            Completion::Refused { connection, operation, refusal } => {
                self.finish_asked(connection, operation, code_of_refusal(refusal), 0);
            }
            Completion::Received { connection, bytes, .. } => self.handle_control(connection, bytes),
            Completion::Written { connection, immediate, bytes } => self.handle_written(connection, immediate, bytes),
            Completion::Closed { connection, reason } => {
                if let Some(&number) = self.numbers.get(&connection) {
                    self.end(number, code_of(reason));
                }
            }
            // Those of groups, parts, probes and paths, which a mover does not ask for; control messages are not ours.
            _ => {}
        }
    }

    pub(crate) fn channel(&mut self, connection: Connection) -> Option<(u64, &mut Channel)> {
        let number = *self.numbers.get(&connection)?;
        Some((number, self.channels.get_mut(&number)?))
    }

    /// A connection of the node is established: both sides say hello.
    fn open(&mut self, connection: Connection) {
        let desk = self.node.register(vec![0; 2 * CONTROLS * CONTROL]);
        let posted = (0..CONTROLS).all(|at| {
            let range = at * CONTROL..(at + 1) * CONTROL;
            self.node.recv(connection, desk, range).is_ok()
        });
        let by = Instant::now() + self.handshake_timeout;
        let Some((number, channel)) = self.channel(connection) else { return };
        channel.desk = Some(desk);
        channel.hello_by = Some(by);
        let service = if channel.calls { channel.service } else { 0 };
        self.greeting.push(number);
        if posted {
            self.send_record(number, Record::Hello { service });
            self.flush(number);
        }
    }

    /// A small message of the peer is here.
    fn handle_control(&mut self, connection: Connection, bytes: u64) {
        let Some((number, channel)) = self.channel(connection) else { return };
        let Some(desk) = channel.desk else { return };
        let start = channel.controls_in % CONTROLS * CONTROL;
        channel.controls_in += 1;
        let length = (bytes as usize).min(CONTROL);
        let Ok(memory) = self.node.memory(desk) else { return };
        let message = memory[start..start + length].to_vec();
        let (records, rest) = message.as_chunks::<RECORD>();
        if !rest.is_empty() || records.is_empty() {
            return self.refuse(number, Code::Violation);
        }
        for record in records {
            let outcome = match Record::decode(record) {
                Ok(Record::Hello { service }) => self.handle_hello(number, service),
                Ok(Record::Offer { number: receive, tag, key, bytes }) => {
                    self.handle_offer(number, tag, Offer { number: receive, key, bytes })
                }
                Err(Malformed::Version) => Err(Code::WrongVersion),
                Err(Malformed::Unknown) => Err(Code::Violation),
            };
            if let Err(code) = outcome {
                return self.refuse(number, code);
            }
        }
        // An error here is the end of the connection, whose completion follows.
        let _ = self.node.recv(connection, desk, start..start + CONTROL);
    }

    fn handle_hello(&mut self, number: u64, service: u64) -> Result<(), Code> {
        let channel = self.channels.get_mut(&number).filter(|channel| !channel.ready).ok_or(Code::Violation)?;
        channel.ready = true;
        let kind = if channel.calls {
            EventKind::Connected
        } else {
            channel.service = service;
            EventKind::Accepted
        };
        let service = channel.service;
        self.greeting.retain(|one| *one != number);
        self.events.push_back(Event { service, ..Event::new(kind, number) });
        Ok(())
    }

    fn handle_offer(&mut self, number: u64, tag: u64, offer: Offer) -> Result<(), Code> {
        let ready = self.channels.get(&number).is_some_and(|channel| channel.ready);
        if !ready || offer.number >= MESSAGE {
            return Err(Code::Violation);
        }
        // A send that is too long for it ends, and the receive waits for the next one.
        while let Some(job) = self.channels.get_mut(&number).and_then(|channel| channel.take_send(tag)) {
            self.memories.let_go(job.memory);
            if offer.bytes < job.bytes {
                self.notify_end(number, job, EventKind::SendDone, Code::TooLong);
                continue;
            }
            // A connection that has ended meanwhile has its completion still to come.
            if let Err(error) = self.answer(number, job, offer) {
                self.notify_end(number, job, EventKind::SendDone, error.code);
            }
            return Ok(());
        }
        match self.channels.get_mut(&number).is_none_or(|channel| channel.add_offer(tag, offer)) {
            true => Ok(()),
            false => Err(Code::Violation),
        }
    }

    /// All bytes of a write or of a message are here.
    fn handle_written(&mut self, connection: Connection, immediate: u32, bytes: u64) {
        let Some((number, channel)) = self.channel(connection) else { return };
        if immediate < MESSAGE {
            self.events.push_back(Event { bytes, immediate, ..Event::new(EventKind::Written, number) });
            return;
        }
        let receive = channel.receives.remove(&(immediate - MESSAGE));
        let Some(Receive { job, key }) = receive.filter(|receive| bytes <= receive.job.bytes) else {
            return self.refuse(number, Code::Violation);
        };
        self.node.revoke(RemoteRegion::to_write(key, 0));
        self.memories.let_go(job.memory);
        self.notify_end(number, Job { bytes, ..job }, EventKind::ReceiveDone, Code::Ok);
    }

    /// A send or write has ended.
    fn finish(&mut self, number: u64, job: Job, code: Code) {
        self.memories.let_go(job.memory);
        self.notify_end(number, job, job.kind(), code);
    }

    fn notify_end(&mut self, number: u64, job: Job, kind: EventKind, code: Code) {
        let (context, tag, bytes) = (job.context, job.tag.unwrap_or(0), job.bytes);
        self.events.push_back(Event { code, context, tag, bytes, ..Event::new(kind, number) });
    }

    /// The peer breaks the rules.
    fn refuse(&mut self, number: u64, code: Code) {
        if let Some(channel) = self.channels.get(&number) {
            let _ = self.node.close(channel.connection);
        }
        self.end(number, code);
    }

    /// A connection has ended, and so have its operations.
    fn end(&mut self, number: u64, code: Code) {
        let Some(channel) = self.channels.remove(&number) else { return };
        self.numbers.remove(&channel.connection);
        self.memories.remove_keys_of(number);
        if let Some(desk) = channel.desk {
            let _ = self.node.deregister(desk);
        }
        let known = channel.ready || channel.calls;
        for (kind, job) in channel.unfinished_jobs() {
            self.memories.let_go(job.memory);
            let bytes = if kind == EventKind::ReceiveDone { 0 } else { job.bytes };
            self.notify_end(number, Job { bytes, ..job }, kind, code);
        }
        if known {
            self.events.push_back(Event { code, ..Event::new(EventKind::Closed, number) });
        }
        let level = if matches!(code, Code::ClosedHere | Code::ClosedByPeer) { Level::Info } else { Level::Warning };
        self.log(level, || format!("connection {number} has ended: {}", code.text()));
    }
}
