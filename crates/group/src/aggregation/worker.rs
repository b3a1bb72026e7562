//! A worker with real numbers: the engine of its system, a socket, and the numbers of the operation under way.

use super::cut::{Cut, Numbers, Sums};
use super::elements::{Scale, exponents_of_block, half, read_elements};
use super::message::{Join, Refusal, Welcome};
use super::switch_connection::{Apart, SwitchAccess, SwitchConnection};
use super::terms::{self, Terms};
use crate::error::GroupError;
use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandway_proto::Packet;
use strandway_proto::aggregate::{Counts, Fragment, Kind, Marks};
use strandway_proto::packet::{Flags, Header};
use strandway_proto::program::{Act, Elements, Program};
use strandway_proto::units::Time;
use strandway_switch::training::AnyWorker;
use strandway_switch::window::START;
use strandway_switch::{Exponents, Job, SelfClocked, Sharing, System, Worker, WorkerSettings};
use strandway_udp::PlaneCounters;
use strandway_udp::fragments::{FragmentOpener, FragmentSocket, From, Received, Sealing, channel_of};

/// Calls of the socket between two checks of timers: ours.
const CALLS: usize = 8;

/// The numbers of one operation: those of this worker, later the sums.
pub struct Operation<'a> {
    input: Numbers<'a>,
    /// The first key.
    first: u64,
    cut: Cut,
    /// For each key: the numbers that this worker sends; later the result.
    numbers: Vec<i32>,
    /// For each key: is its result in floats?
    floats: Vec<bool>,
    /// With exponents, for each key: the exponents that all workers have agreed on, from the time when this worker has
    /// sent its numbers.
    exponents: Vec<[i8; 2]>,
    /// The number of workers, whose integers are added.
    workers: u32,
    /// A result had a wrong number of elements.
    odd: bool,
    /// The number of missing results.
    left: u64,
    scratch: Vec<i32>,
}

impl Operation<'_> {
    /// Are all results here?
    pub const fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The number of missing results.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Fragments that were added as floats.
    pub(super) fn floats(&self) -> u64 {
        self.floats.iter().filter(|float| **float).count() as u64
    }

    /// Writes the sums; false if one of them has overflowed, which does not happen with honest workers. `into` has room
    /// for the sums that this worker gets, and is of the kind of the numbers.
    pub fn restore(&self, scale: Scale, into: Sums<'_>) -> bool {
        match (into, self.input) {
            (Sums::Floats(into), Numbers::Floats(input)) => self.restore_floats(scale, input, into),
            (Sums::Integers(into), Numbers::Integers(input)) => self.restore_integers(input, into),
            _ => false,
        }
    }

    fn restore_floats(&self, scale: Scale, input: &[f32], into: &mut [f32]) -> bool {
        let (elements, mut sound) = (self.cut.elements, !self.odd);
        if !self.exponents.is_empty() {
            let results = into.chunks_mut(elements).zip(self.numbers.chunks(elements)).zip(&self.exponents);
            for ((into, sums), exponents) in results {
                let (first, second) = into.split_at_mut(half(elements).min(into.len()));
                let (of_first, of_second) = sums.split_at(half(elements));
                let [a, b] = exponents.map(|exponent| Scale::of_block(self.workers, exponent));
                sound &= a.restore(&of_first[..first.len()], first) & b.restore(&of_second[..second.len()], second);
            }
            return sound;
        }
        let mut own = vec![0; elements];
        for at in (0..self.cut.keys()).filter(|at| self.cut.owns(*at)) {
            let into = &mut into[self.cut.result(at)];
            let sums = &self.numbers[at as usize * elements..][..into.len()];
            let input = &input[self.cut.range(at)];
            // The owner of a share has not sent its own numbers.
            let added = self.cut.is_shared() && scale.quantise(input, &mut own[..input.len()]);
            match self.floats[at as usize] {
                true => into.iter_mut().zip(sums).for_each(|(to, &bits)| *to = f32::from_bits(bits as u32)),
                false if added => {
                    own.iter_mut().zip(sums).for_each(|(own, sum)| *own = own.saturating_add(*sum));
                    sound &= scale.restore(&own[..into.len()], into);
                }
                false => sound &= scale.restore(sums, into),
            }
            if self.cut.is_shared() && (self.floats[at as usize] || !added) {
                into.iter_mut().zip(input).for_each(|(sum, own)| *sum += *own);
            }
        }
        sound
    }

    fn restore_integers(&self, input: &[i32], into: &mut [i32]) -> bool {
        let mut sound = !self.odd;
        for at in (0..self.cut.keys()).filter(|at| self.cut.owns(*at)) {
            let into = &mut into[self.cut.result(at)];
            into.copy_from_slice(&self.numbers[at as usize * self.cut.elements..][..into.len()]);
            sound &= !self.floats[at as usize] && into.iter().all(|sum| *sum != i32::MAX && *sum != i32::MIN);
            if self.cut.is_shared() {
                let own = &input[self.cut.range(at)];
                into.iter_mut().zip(own).for_each(|(sum, own)| *sum = sum.wrapping_add(*own));
            }
        }
        sound
    }

    /// The memory of its numbers, for the next operation.
    pub(super) fn into_memory(self) -> Vec<i32> {
        self.numbers
    }

    fn place(&self, key: u64) -> Option<std::ops::Range<usize>> {
        let at = key.checked_sub(self.first).filter(|&at| at < self.cut.keys())? as usize;
        Some(at * self.cut.elements..(at + 1) * self.cut.elements)
    }

    /// Turns our own fragment of a key into integers, by the exponents of its block.
    fn quantise(&mut self, key: u64, exponents: [i8; 2]) {
        let (Some(place), Numbers::Floats(input)) = (self.place(key), self.input) else { return };
        self.exponents[(key - self.first) as usize] = exponents;
        let (from, to) = (&input[self.cut.range(key - self.first)], &mut self.numbers[place]);
        let (first, second) = from.split_at(half(self.cut.elements).min(from.len()));
        let (to_first, to_second) = to.split_at_mut(half(self.cut.elements));
        for (exponent, from, to) in [(exponents[0], first, to_first), (exponents[1], second, to_second)] {
            // The agreed exponents are at least our own, so all numbers fit.
            Scale::of_block(self.workers, exponent).quantise(from, to);
        }
    }

    /// Our own fragment of a key, as floats.
    fn own_floats(&mut self, key: u64) -> &[i32] {
        self.scratch.clear();
        if let (Numbers::Floats(input), Some(at)) = (self.input, key.checked_sub(self.first)) {
            self.scratch.extend(input[self.cut.range(at)].iter().map(|x| x.to_bits() as i32));
        }
        self.scratch.resize(self.cut.elements, 0);
        &self.scratch
    }
}

/// One worker's part in a session of a job: its connection to the switch, its socket and the engine of its system.
pub struct Session {
    line: SwitchConnection,
    socket: FragmentSocket,
    received: Received,
    up: Vec<Sealing>,
    down: Vec<FragmentOpener>,
    to: Vec<Arc<[SocketAddrV6]>>,
    engine: AnyWorker,
    job: Arc<Job>,
    system: System,
    /// SwitchML: each block has exponents of its own.
    exponents: bool,
    /// The number of this worker.
    worker: u16,
    next: u64,
    began: Instant,
    elements: Vec<i32>,
    /// Datagrams that are not fragments of our switch.
    pub(super) strangers: u64,
}

impl Session {
    /// Joins a session. Waits at most the patience of `way`, or until `stop` returns true.
    ///
    /// # Errors
    /// The reason why the worker does not take part.
    pub fn join(way: &SwitchAccess<'_>, join: Join, stop: &dyn Fn() -> bool) -> Result<Session, Apart> {
        let (line, welcome) = SwitchConnection::open(way, join, stop)?;
        let odd = || Apart::Refused(Refusal::Differs);
        let terms = Terms::of(&welcome);
        let Welcome { system, elements, rack, window, slots, up, down, layout, ports, .. } = welcome;
        let system = System::of_number(system).ok_or(Apart::Refused(Refusal::Version))?;
        if elements != join.elements
            || !(1..=terms::SLOTS_MAX).contains(&slots)
            || !(1..=join.window.max(1)).contains(&window)
        {
            return Err(odd());
        }
        if layout.racks.len() != usize::from(join.workers) || layout.racks[usize::from(join.worker)] != rack {
            return Err(odd());
        }
        let numbers = 0..ports.len() as u16;
        let job = terms.job().map_err(|_| odd())?;
        let address = SocketAddrV6::new(way.ours, 0, 0, way.admission.scope_id());
        let mut socket =
            FragmentSocket::open(address, way.socket_buffer, terms::send_buffer(way.rate, way.socket_buffer))
                .map_err(|error| Apart::Failed(error.into()))?;
        socket.lose(way.loss, u64::from(join.worker) + 100);
        let to = ports.iter().map(|&port| {
            Arc::from([SocketAddrV6::new(*way.admission.ip(), port, 0, way.admission.scope_id())].as_slice())
        });
        if join.exponents && !system.has_exponents() {
            let said = format!("exponents for each block: the switch runs {}, only switchml has them", system.name());
            return Err(Apart::Failed(GroupError::Config(said)));
        }
        let timeout = terms::timeout(way.rate, elements, window);
        let engine = match system.recovery() {
            None => {
                let exponents = join.exponents.then(|| Exponents { per_round: 0, own: Vec::new() });
                AnyWorker::SelfClocked(SelfClocked::new(&job, join.worker, timeout, exponents))
            }
            Some(recovery) => {
                let settings = WorkerSettings {
                    recovery,
                    window: START,
                    out_of_order: 3,
                    timeout,
                    // Only results of the operation under way can come: all ranks have ended the one before.
                    retain: u64::MAX >> 1,
                };
                AnyWorker::Windowed(Worker::new(&job, join.worker, settings))
            }
        };
        Ok(Session {
            line,
            socket,
            received: Received::new(),
            up: numbers.clone().map(|port| Sealing::new(&up, port)).collect(),
            down: numbers.map(|port| FragmentOpener::new(&down, port)).collect(),
            to: to.collect(),
            engine,
            next: job.shape.first,
            job,
            system,
            exponents: join.exponents,
            worker: join.worker,
            began: Instant::now(),
            elements: Vec::new(),
            strangers: 0,
        })
    }

    /// Has the switch or the session ended?
    pub(super) fn is_lost(&self) -> bool {
        self.line.is_lost()
    }

    /// The system that the switch runs.
    pub(super) const fn system(&self) -> System {
        self.system
    }

    /// Does only the owner of a key get its sum?
    pub(super) fn scatters(&self) -> bool {
        self.job.shape.sharing != Sharing::All
    }

    /// The counters of the socket.
    pub(super) const fn counters(&self) -> PlaneCounters {
        self.socket.counters()
    }

    /// The counters of the engine.
    pub(super) fn counts(&mut self) -> Counts {
        let mut all = std::collections::BTreeMap::new();
        let now = self.now();
        self.engine.count(now, &mut all);
        all.into_values().next().unwrap_or_default()
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 1_000).saturating_mul(1_000))
    }

    /// Begins to add up buffers, in the memory of the operation before. In a session that scatters, the numbers are the
    /// equal shares of all workers. `None` if numbers would overflow and the system cannot add them in another way.
    pub fn begin<'a>(
        &mut self,
        input: Numbers<'a>,
        scale: Scale,
        priority: u8,
        mut numbers: Vec<i32>,
    ) -> Option<Operation<'a>> {
        if self.exponents && matches!(input, Numbers::Integers(_)) {
            return None;
        }
        let elements = usize::from(self.job.shape.elements);
        let workers = self.job.workers().len();
        let cut = match self.scatters() {
            true => Cut::shares(input.len(), elements, usize::from(self.worker), workers),
            false => Cut::whole(input.len(), elements),
        };
        let keys = cut.keys();
        numbers.clear();
        numbers.resize(keys as usize * elements, 0);
        let first = self.next;
        if let (true, Numbers::Floats(input), AnyWorker::SelfClocked(worker)) =
            (self.exponents, input, &mut self.engine)
        {
            let own: Option<Vec<[i8; 2]>> =
                input.chunks(elements).map(|block| exponents_of_block(block, elements)).collect();
            worker.begin_round(own?);
        } else {
            for (at, to) in (0..).zip(numbers.chunks_mut(elements)) {
                if input.write(cut.range(at), scale, to) || cut.is_shared() && cut.owns(at) {
                    continue;
                }
                match (&mut self.engine, input) {
                    (AnyWorker::Windowed(worker), Numbers::Floats(_)) => worker.overflow(first + at),
                    _ => return None,
                }
            }
            if cut.is_shared()
                && let Numbers::Integers(input) = input
                && !(0..keys).filter(|at| cut.owns(*at)).all(|at| scale.has_room(&input[cut.range(at)]))
            {
                return None;
            }
        }
        self.next += keys;
        let (now, end) = (self.now(), self.next);
        self.engine.produce(now, end, priority);
        let mut operation = Operation {
            input,
            first,
            cut,
            numbers,
            floats: vec![false; keys as usize],
            exponents: if self.exponents { vec![[0; 2]; keys as usize] } else { Vec::new() },
            workers: workers as u32,
            odd: false,
            left: cut.owned(),
            scratch: Vec::new(),
        };
        self.act(&mut operation, None);
        self.socket.flush();
        Some(operation)
    }

    /// Receives, runs timers, sends; if nothing came, sleeps for at most `at_most`.
    pub fn turn(&mut self, operation: &mut Operation<'_>, at_most: Duration) {
        let mut moved = false;
        let mut received = std::mem::take(&mut self.received);
        for _ in 0..CALLS {
            if !self.socket.receive(&mut received) {
                break;
            }
            moved = true;
            let now = self.now();
            received.each(|from, datagram| self.handle_datagram(now, operation, from, datagram));
        }
        self.received = received;
        let now = self.now();
        if self.engine.poll_timeout() <= now {
            self.engine.handle_timeout(now);
            self.act(operation, None);
        }
        self.socket.flush();
        if !moved {
            let at = self.engine.poll_timeout();
            let nap = if at == Time::NEVER {
                at_most
            } else {
                at_most.min(Duration::from_nanos(at.since(now.min(at)).0 / 1_000))
            };
            self.socket.wait(nap);
        }
    }

    /// Tells the server that all ranks have all results, so that it may forget them.
    pub fn end(&mut self) {
        if let AnyWorker::Windowed(worker) = &mut self.engine {
            worker.send_watermark();
        }
        let nothing = &mut Operation {
            input: Numbers::Floats(&[]),
            first: self.next,
            cut: Cut::whole(0, 1),
            numbers: Vec::new(),
            floats: Vec::new(),
            exponents: Vec::new(),
            workers: 1,
            odd: false,
            left: 0,
            scratch: Vec::new(),
        };
        self.act(nothing, None);
        self.socket.flush();
    }

    fn handle_datagram(&mut self, now: Time, operation: &mut Operation<'_>, from: From, datagram: &mut [u8]) {
        let channel = channel_of(datagram);
        let port = self.down.iter().position(|down| Some(down.id()) == channel);
        let opened = port.map(|port| (port, self.down[port].open(datagram)));
        let Some((port, Ok((fragment, bytes)))) = opened else {
            self.strangers += 1;
            return;
        };
        let alone = self.exponents && { fragment.elements } == 0;
        let whole = !fragment.kind.has_elements() || { fragment.elements } == self.job.shape.elements || alone;
        if !whole || { fragment.job } != self.job.shape.number {
            self.strangers += 1;
            return;
        }
        let mut copy = std::mem::take(&mut self.elements);
        let elements = read_elements(bytes, &mut copy);
        let mut packet = self.job.packet(self.job.server(), self.job.server(), port as u8, fragment);
        packet.flags = if from.marked { Flags::CE } else { Flags::NONE };
        self.engine.handle_packet(now, &packet);
        self.act(operation, Some((&fragment, elements)));
        self.elements = copy;
    }

    fn act(&mut self, operation: &mut Operation<'_>, incoming: Option<(&Fragment, &[i32])>) {
        while let Some(act) = self.engine.poll_act() {
            match act {
                // The sums of other owners.
                Act::Take { here: false, .. } => {}
                Act::Take { key, .. } => {
                    let (Some((fragment, elements)), Some(place)) = (incoming, operation.place(key)) else { continue };
                    operation.floats[(key - operation.first) as usize] = fragment.marks.has(Marks::FLOAT);
                    operation.left -= 1;
                    match elements.len() == operation.cut.elements {
                        true => operation.numbers[place].copy_from_slice(elements),
                        false => operation.odd = true,
                    }
                }
                Act::Send { packet, elements } => self.send(operation, &packet, elements),
                // Only switches have registers.
                Act::Store { .. } | Act::Add { .. } | Act::Fail { .. } => {}
            }
        }
    }

    fn send(&mut self, operation: &mut Operation<'_>, packet: &Packet, elements: Elements) {
        let Header::Fragment(mut fragment) = packet.header else { return };
        let port = usize::from(packet.path.port()) % self.up.len();
        let (to, up, socket) = (&self.to[port], &mut self.up[port], &mut self.socket);
        match elements {
            Elements::Own(key) => {
                // For keys of an operation that has ended, all ranks have the result.
                let Some(place) = operation.place(key) else { return };
                if let (true, AnyWorker::SelfClocked(worker)) = (self.exponents, &self.engine) {
                    operation.quantise(key, worker.agreed(key).unwrap_or_default());
                }
                match fragment.marks.has(Marks::FLOAT) {
                    true => socket.push(to, up, &fragment, operation.own_floats(key)),
                    false => socket.push(to, up, &fragment, &operation.numbers[place]),
                }
            }
            Elements::Result(key) => {
                let Some(place) = operation.place(key) else { return };
                debug_assert_eq!(fragment.kind, Kind::ResultCopy, "only copies carry a result");
                let float = operation.floats[(key - operation.first) as usize];
                fragment.marks = fragment.marks.with_if(float, Marks::FLOAT);
                socket.push(to, up, &fragment, &operation.numbers[place]);
            }
            Elements::None | Elements::Incoming | Elements::Register(_) => socket.push(to, up, &fragment, &[]),
        }
    }
}
