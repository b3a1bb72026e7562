//! A small world with real integers: switches, servers and workers. At each hop, packets may be lost, doubled and
//! overtaken.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use strandway_fabric::Topology;
use strandway_fabric::topology::{Level, Shape as Fabric};
use strandway_proto::aggregate::{Counts, Fragment, Kind, key_of};
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Elements, Fate, Program};
use strandway_proto::rng::{Random, StreamKind, mix64};
use strandway_proto::units::{Rate, Span, Time};
use strandway_proto::{HostId, Packet};
use strandway_switch::{
    AtpProgram, EsaProgram, Exponents, Index, Job, Recovery, Rules, SelfClocked, Server, Shape, Sharing,
    SwitchMlProgram, System, Worker, WorkerSettings,
};

/// The number of integers in a fragment.
const LANES: usize = 3;

/// The settings of a world.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) system: System,
    pub(crate) jobs: u16,
    /// Workers of each job, one entry per rack.
    pub(crate) racks: Vec<u32>,
    /// True if the servers are below the first rack's switch, and not below a switch of their own.
    pub(crate) near: bool,
    pub(crate) slots: u32,
    pub(crate) window: u32,
    pub(crate) keys: u64,
    pub(crate) first: u64,
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    /// True if packets between two hops stay in order.
    pub(crate) fifo: bool,
    /// The share of fragments that would overflow.
    pub(crate) overflow: f64,
    pub(crate) flush_timer: bool,
    pub(crate) priorities: Vec<u8>,
    pub(crate) scatter: bool,
    pub(crate) retain: u64,
    pub(crate) exponents: bool,
    pub(crate) per_key: bool,
    pub(crate) seed: u64,
}

impl Setting {
    pub(crate) fn new(system: System) -> Setting {
        Setting {
            system,
            jobs: 1,
            racks: vec![2],
            near: true,
            slots: 4,
            window: 4,
            keys: 8,
            first: 0,
            loss: 0.0,
            duplication: 0.0,
            fifo: false,
            overflow: 0.0,
            flush_timer: true,
            priorities: vec![2, 1],
            scatter: false,
            retain: 1 << 20,
            exponents: false,
            per_key: false,
            seed: 1,
        }
    }
}

/// A place that a packet leaves or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Switch(usize),
    Host(u32),
}

/// A packet on its way to the next hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) to: Place,
    pub(crate) from: Place,
    pub(crate) packet: Packet,
    pub(crate) elements: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Engine {
    Esa(EsaProgram),
    Atp(AtpProgram),
    SwitchMl(SwitchMlProgram),
    Server(Server),
    Worker(Worker),
    SelfClocked(SelfClocked),
}

impl Engine {
    pub(crate) fn program(&mut self) -> &mut dyn Program {
        match self {
            Engine::Esa(engine) => engine,
            Engine::Atp(engine) => engine,
            Engine::SwitchMl(engine) => engine,
            Engine::Server(engine) => engine,
            Engine::Worker(engine) => engine,
            Engine::SelfClocked(engine) => engine,
        }
    }
}

/// An engine, its place, and its registers.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) engine: Engine,
    pub(crate) job: u16,
    pub(crate) worker: u16,
    pub(crate) produced: u64,
    registers: BTreeMap<u32, Vec<i64>>,
    results: BTreeMap<u64, Vec<i64>>,
    /// The keys that are done, in the order in which they were completed.
    pub(crate) taken: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) topology: Topology,
    pub(crate) jobs: Vec<Arc<Job>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) flying: Vec<Flight>,
    pub(crate) now: Time,
    pub(crate) random: Random,
    /// One line of text for each wrong sum.
    pub(crate) wrong: Vec<String>,
    pub(crate) failed: bool,
    /// For each packet that was sent: where it came from, where it went, and its header. Tests compare these traces.
    pub(crate) trace: Option<Vec<(Place, Place, Fragment)>>,
}

/// A worker's number for a key, small enough that no sum of 1,000 overflows.
pub(crate) fn gradient(job: u16, worker: u16, key: u64) -> Vec<i64> {
    let of = |element: usize| {
        let mixed = mix64(u64::from(job) << 48 | u64::from(worker) << 32 | key << 3 | element as u64);
        (mixed % 2001) as i64 - 1000
    };
    (0..LANES).map(of).collect()
}

pub(crate) fn expected(job: &Job, key: u64) -> Vec<i64> {
    let mut sum = vec![0; LANES];
    for worker in (0..job.workers().len() as u16).filter(|&worker| job.contributes(worker, key)) {
        add(&mut sum, &gradient(job.shape.number, worker, key));
    }
    sum
}

fn add(to: &mut [i64], from: &[i64]) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
}

impl World {
    pub(crate) fn new(setting: &Setting) -> World {
        let leaf = 32;
        let leaves = setting.racks.len() as u32 + 1;
        let fabric =
            Fabric { hosts: leaf * leaves, planes: 1, hosts_per_leaf: leaf, spines: 1, leaf_bundle: 1, pods: None };
        let level = Level { rate: Rate::from_gbps(100), latency: Span::from_ns(500) };
        let topology = Topology::new(fabric, [level; 3], [Span::ZERO; 3]).expect("a valid fabric");
        let mut random = Random::new(setting.seed, StreamKind::Workload, 77);
        let mut jobs = Vec::new();
        let most = setting.racks.iter().copied().max().unwrap_or(1);
        for number in 0..setting.jobs {
            let mut workers = Vec::new();
            for (rack, &count) in setting.racks.iter().enumerate() {
                let first = rack as u32 * leaf + u32::from(number) * most;
                workers.extend((first..first + count).map(HostId));
            }
            let server = if setting.near { 31 } else { leaf * (leaves - 1) };
            let server = if setting.near { server - u32::from(number) } else { server + u32::from(number) };
            let total = workers.len() as u64;
            let shape = Shape {
                number: number + 1,
                group: u32::from(number),
                elements: LANES as u16,
                data_bytes: 330,
                control_bytes: 84,
                window: setting.window,
                slots: setting.slots,
                index: if setting.per_key { Index::PerKey } else { Index::List },
                sharing: match setting.scatter {
                    true => Sharing::Scatter { per_share: setting.keys.div_ceil(total), chains: 1 },
                    false => Sharing::All,
                },
                first: setting.first,
                rtt: Span::from_us(10),
            };
            jobs.push(Arc::new(Job::new(shape, &topology, workers, HostId(server)).expect("a job")));
        }
        let mut nodes = Vec::new();
        let node = |place, engine, job, worker| Node {
            place,
            engine,
            job,
            worker,
            produced: setting.first,
            registers: BTreeMap::new(),
            results: BTreeMap::new(),
            taken: Vec::new(),
        };
        let rtt = Span::from_us(10);
        for number in 0..leaves {
            let engine = match setting.system {
                System::Esa(esa) => Engine::Esa(EsaProgram::new(&jobs, number, setting.slots, esa, rtt, Span::ZERO)),
                System::Atp => Engine::Atp(AtpProgram::new(&jobs, number, setting.slots, rtt, Span::ZERO)),
                System::SwitchMl { strict_order } => {
                    Engine::SwitchMl(SwitchMlProgram::new(&jobs, number, setting.slots, strict_order, Span::ZERO))
                }
            };
            nodes.push(node(Place::Switch(number as usize), engine, 0, 0));
        }
        for job in &jobs {
            let number = job.shape.number;
            let rules = match setting.system {
                System::Atp => Rules::Discard { readdress: true },
                _ => Rules::Cover { flush_timer: setting.flush_timer },
            };
            if !matches!(setting.system, System::SwitchMl { .. }) {
                nodes.push(node(Place::Host(job.server().0), Engine::Server(Server::new(job, rules, 5)), number, 0));
            }
            for (worker, host) in (0u16..).zip(job.workers()) {
                let settings = WorkerSettings {
                    recovery: if setting.system == System::Atp { Recovery::Resend } else { Recovery::Remind },
                    window: setting.window,
                    out_of_order: 3,
                    halves: false,
                    timeout: Span::from_ms(1),
                    retain: setting.retain,
                };
                let engine = match setting.system {
                    System::SwitchMl { .. } => {
                        let exponents = setting.exponents.then(|| Exponents {
                            per_round: setting.keys,
                            own: (0..setting.keys).map(|key| [exponent(worker, key), -exponent(worker, key)]).collect(),
                        });
                        Engine::SelfClocked(SelfClocked::new(job, worker, Span::from_ms(10), exponents))
                    }
                    _ => {
                        let mut engine = Worker::new(job, worker, settings);
                        for key in (setting.first..setting.first + setting.keys).filter(|_| setting.overflow > 0.0) {
                            if random.chance(setting.overflow) && job.contributes(worker, key) {
                                engine.overflow(key);
                            }
                        }
                        Engine::Worker(engine)
                    }
                };
                nodes.push(node(Place::Host(host.0), engine, number, worker));
            }
        }
        World {
            setting: setting.clone(),
            topology,
            jobs,
            nodes,
            flying: Vec::new(),
            now: Time::ZERO,
            random,
            wrong: Vec::new(),
            failed: false,
            trace: None,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.setting.first + self.setting.keys
    }

    fn leaf_of(&self, host: HostId) -> usize {
        self.topology.leaf_of(host.place()) as usize
    }

    /// Gives a worker its data for all keys below `end`.
    pub(crate) fn produce(&mut self, node: usize, end: u64) {
        let priority = {
            let node = &self.nodes[node];
            let among = &self.setting.priorities;
            among[usize::from(node.job - 1) % among.len()]
        };
        let now = self.now;
        // A single job's keys take the priorities of the list in turn. With several jobs, each job has one priority.
        let (from, own) = (self.nodes[node].produced, self.setting.jobs == 1);
        let priorities = self.setting.priorities.clone();
        self.nodes[node].produced = end;
        match &mut self.nodes[node].engine {
            Engine::Worker(worker) => {
                for key in from..end {
                    let turn = priorities[(key - self.setting.first) as usize % priorities.len()];
                    worker.produce(now, key + 1, if own { turn } else { priority });
                }
            }
            Engine::SelfClocked(worker) => worker.produce(now, end),
            _ => unreachable!("only workers produce"),
        }
        self.act(node, &[]);
    }

    pub(crate) fn workers(&self) -> Vec<usize> {
        let is = |node: &Node| matches!(node.engine, Engine::Worker(_) | Engine::SelfClocked(_));
        (0..self.nodes.len()).filter(|&n| is(&self.nodes[n])).collect()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.workers().into_iter().all(|n| self.nodes[n].taken.len() as u64 == self.setting.keys)
    }

    pub(crate) fn server(&mut self, job: u16) -> &mut Server {
        let found = self.nodes.iter_mut().find(|n| n.job == job && matches!(n.engine, Engine::Server(_)));
        match found.map(|node| &mut node.engine) {
            Some(Engine::Server(server)) => server,
            _ => panic!("the job has a server"),
        }
    }

    /// Changes the registers of a node, as if another run had left its numbers there.
    pub(crate) fn spoil(&mut self, node: usize) {
        self.nodes[node].registers.values_mut().flatten().for_each(|element| *element += 1);
    }

    /// Executes the acts that an engine asks for.
    pub(crate) fn act(&mut self, node: usize, incoming: &[i64]) {
        let mut acts = Vec::new();
        while let Some(act) = self.nodes[node].engine.program().poll_act() {
            acts.push(act);
        }
        for act in acts {
            self.do_act(node, act, incoming);
        }
    }

    fn elements(&self, node: usize, from: Elements, incoming: &[i64]) -> Vec<i64> {
        let node = &self.nodes[node];
        match from {
            Elements::None => Vec::new(),
            Elements::Incoming => incoming.to_vec(),
            Elements::Register(register) => node.registers.get(&register).cloned().unwrap_or_default(),
            Elements::Own(key) => gradient(node.job, node.worker, key),
            Elements::Result(key) => node.results[&key].clone(),
        }
    }

    fn do_act(&mut self, at: usize, act: Act, incoming: &[i64]) {
        match act {
            Act::Store { to, from } => {
                let elements = self.elements(at, from, incoming);
                self.nodes[at].registers.insert(to, elements);
            }
            Act::Add { to, from } => {
                let elements = self.elements(at, from, incoming);
                add(self.nodes[at].registers.entry(to).or_default(), &elements);
            }
            Act::Take { key, here } => {
                let node = &mut self.nodes[at];
                node.taken.push(key);
                let want = expected(&self.jobs[usize::from(node.job - 1)], key);
                if here {
                    if incoming != want {
                        self.wrong.push(format!("job {} worker {} key {key}: {incoming:?}", node.job, node.worker));
                    }
                    node.results.insert(key, incoming.to_vec());
                }
            }
            Act::Fail { .. } => self.failed = true,
            Act::Send { packet, elements } => {
                let elements = self.elements(at, elements, incoming);
                self.check_header(&packet, &elements);
                let from = self.nodes[at].place;
                match from {
                    Place::Switch(leaf) => self.forward(leaf, packet, elements),
                    Place::Host(host) => {
                        self.fly(Flight { to: Place::Switch(self.leaf_of(HostId(host))), from, packet, elements });
                    }
                }
            }
        }
    }

    /// Checks that a packet's integers are the sum over the workers that its header names.
    fn check_header(&mut self, packet: &Packet, elements: &[i64]) {
        let Header::Fragment(fragment) = packet.header else { panic!("a fragment") };
        let strict = !matches!(self.setting.system, System::SwitchMl { .. });
        if !fragment.kind.has_elements() || !strict || fragment.elements == 0 {
            return;
        }
        let job = &self.jobs[usize::from(fragment.job - 1)];
        let key = key_of(fragment.number, self.setting.first).expect("a key");
        let want = if matches!(fragment.kind, Kind::Result | Kind::ResultCopy) {
            expected(job, key)
        } else {
            let who = job.who(&fragment, key).unwrap_or_else(|| panic!("{fragment:?} names strangers"));
            let mut sum = vec![0; LANES];
            for worker in (0..job.workers().len() as u16).filter(|&worker| who.has(job.place(worker))) {
                add(&mut sum, &gradient(fragment.job, worker, key));
            }
            sum
        };
        if want != elements {
            self.wrong.push(format!("{fragment:?} carries {elements:?}, not {want:?}"));
        }
    }

    fn fly(&mut self, flight: Flight) {
        if let Some(trace) = &mut self.trace
            && let Header::Fragment(fragment) = flight.packet.header
        {
            trace.push((flight.from, flight.to, fragment));
        }
        self.flying.push(flight);
    }

    /// A switch sends a packet on.
    fn forward(&mut self, leaf: usize, packet: Packet, elements: Vec<i64>) {
        let from = Place::Switch(leaf);
        match packet.destination.as_group() {
            None => {
                let home = self.leaf_of(packet.destination);
                let to = if home == leaf { Place::Host(packet.destination.0) } else { Place::Switch(home) };
                self.fly(Flight { to, from, packet, elements });
            }
            Some(group) => {
                let job = Arc::clone(&self.jobs[group as usize]);
                let mut beyond = Vec::new();
                for &host in job.workers() {
                    let of = self.leaf_of(host);
                    if of == leaf {
                        self.fly(Flight { to: Place::Host(host.0), from, packet, elements: elements.clone() });
                    } else if self.leaf_of(packet.source) == leaf && !beyond.contains(&of) {
                        beyond.push(of);
                    }
                }
                for of in beyond {
                    self.fly(Flight { to: Place::Switch(of), from, packet, elements: elements.clone() });
                }
            }
        }
    }

    /// A packet has come to the end of a hop.
    pub(crate) fn arrive(&mut self, flight: Flight) {
        self.now = self.now + Span(1);
        let now = self.now;
        match flight.to {
            Place::Switch(leaf) => {
                let fate = self.nodes[leaf].engine.program().handle_packet(now, &flight.packet);
                if let Engine::Esa(program) = &self.nodes[leaf].engine {
                    program.check();
                }
                self.act(leaf, &flight.elements);
                if fate == Fate::Forward {
                    self.forward(leaf, flight.packet, flight.elements);
                }
            }
            Place::Host(_) => {
                for node in 0..self.nodes.len() {
                    if self.nodes[node].place == flight.to {
                        self.nodes[node].engine.program().handle_packet(now, &flight.packet);
                        self.act(node, &flight.elements);
                    }
                }
            }
        }
    }

    pub(crate) fn counts(&mut self) -> BTreeMap<u16, Counts> {
        let now = self.now;
        let mut all = BTreeMap::new();
        self.nodes.iter_mut().for_each(|node| node.engine.program().count(now, &mut all));
        all
    }

    /// A fingerprint of all state that decides what can happen next.
    pub(crate) fn state(&self) -> (u64, u64) {
        let mut flights: Vec<u64> = Vec::new();
        for flight in &self.flying {
            let mut hasher = DefaultHasher::new();
            flight.hash(&mut hasher);
            flights.push(hasher.finish());
        }
        flights.sort_unstable();
        let of = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            flights.hash(&mut hasher);
            for node in &self.nodes {
                node.engine.hash(&mut hasher);
                let mut taken = node.taken.clone();
                taken.sort_unstable();
                taken.hash(&mut hasher);
            }
            hasher.finish()
        };
        (of(1), of(2))
    }
}

/// A worker's exponent for a block.
pub(crate) fn exponent(worker: u16, key: u64) -> i8 {
    (mix64(u64::from(worker) << 32 | key) % 100) as i8
}

/// Matches fragments of this kind.
pub(crate) fn is(kind: Kind) -> impl Fn(Place, &Fragment) -> bool {
    move |_, fragment| fragment.kind == kind
}
