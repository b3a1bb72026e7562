//! The program that posts a plan's flows: at their start times, or when a trigger releases them.

use crate::server::ORDERS;
use std::collections::{BTreeMap, VecDeque};
use strandway_fabric::Plan;
use strandway_fabric::plan::Start;
use strandway_proto::application::{Action, Application, Channel, Event};
use strandway_proto::message::Message;
use strandway_proto::read::{ReadLimits, Reader, Target, Verdict};
use strandway_proto::{HostId, MessageId, Span, Time};

/// A plan's flows, sorted by host and by trigger. The programs of all hosts share one table.
#[derive(Debug)]
pub struct FlowTable<'a> {
    plan: &'a Plan,
    /// Flows with a start time: host by host, within a host in order of time and then of number.
    starts: Vec<u32>,
    /// Where each host's part of `starts` begins; one more entry than hosts.
    bounds: Vec<u32>,
    /// Flows that wait for a trigger, sorted by trigger; and the index at which each trigger's flows begin.
    waiting: Vec<u32>,
    waiting_bounds: Vec<u32>,
    /// How many flows start at each host, at a time, by a trigger or by a request.
    counts: Vec<u32>,
    /// The answer to each request to read.
    answers: BTreeMap<u32, u32>,
}

/// Sorts the numbers of items by group. Returns the numbers, and the index at which each group begins.
fn grouped(groups: usize, items: impl Iterator<Item = (usize, u32)> + Clone) -> (Vec<u32>, Vec<u32>) {
    let mut bounds = vec![0u32; groups + 1];
    for (group, _) in items.clone() {
        bounds[group + 1] += 1;
    }
    for i in 0..groups {
        bounds[i + 1] += bounds[i];
    }
    let mut next = bounds.clone();
    let mut sorted = vec![0; bounds[groups] as usize];
    for (group, item) in items {
        sorted[next[group] as usize] = item;
        next[group] += 1;
    }
    (sorted, bounds)
}

impl<'a> FlowTable<'a> {
    /// The table of a plan's flows.
    pub fn new(plan: &'a Plan) -> FlowTable<'a> {
        let numbered = || plan.flows.iter().zip(0u32..);
        let starting = numbered().filter_map(|(flow, index)| match flow.start {
            Start::At(_) => Some((plan.connections[flow.connection as usize].source.0 as usize, index)),
            Start::On(..) | Start::Asked(_) | Start::Program => None,
        });
        let hosts = plan.topology.hosts() as usize;
        let (mut starts, bounds) = grouped(hosts, starting);
        for host in 0..hosts {
            starts[bounds[host] as usize..bounds[host + 1] as usize].sort_by_key(|&flow| {
                match plan.flows[flow as usize].start {
                    Start::At(at) => (at, flow),
                    Start::On(..) | Start::Asked(_) | Start::Program => (Time::NEVER, flow),
                }
            });
        }
        let released = numbered().filter_map(|(flow, index)| match flow.start {
            Start::On(trigger, _) => Some((trigger as usize, index)),
            Start::At(_) | Start::Asked(_) | Start::Program => None,
        });
        let answers = numbered().filter_map(|(flow, index)| match flow.start {
            Start::Asked(request) => Some((request, index)),
            _ => None,
        });
        let answers = answers.collect();
        let (waiting, waiting_bounds) = grouped(plan.triggers.len(), released);
        let mut counts = vec![0; hosts];
        for flow in &plan.flows {
            let posted = flow.start != Start::Program;
            counts[plan.connections[flow.connection as usize].source.0 as usize] += u32::from(posted);
        }
        FlowTable { plan, starts, bounds, waiting, waiting_bounds, counts, answers }
    }

    /// The flows that wait for a trigger.
    fn waiting(&self, trigger: u32) -> &[u32] {
        let bounds = &self.waiting_bounds;
        &self.waiting[bounds[trigger as usize] as usize..bounds[trigger as usize + 1] as usize]
    }

    fn source(&self, flow: u32) -> HostId {
        self.plan.connections[self.plan.flows[flow as usize].connection as usize].source
    }

    /// The time that a signal takes from one host to another.
    fn news(&self, from: HostId, to: HostId) -> Span {
        self.plan.topology.news_between(from, to)
    }

    /// The host that counts a trigger: the source of the first flow that waits for it.
    fn home(&self, trigger: u32) -> Option<HostId> {
        self.waiting(trigger).first().map(|&flow| self.source(flow))
    }

    /// True if the host posts no flow and the plan has no triggers.
    pub(crate) fn starts_nothing_at(&self, host: HostId) -> bool {
        self.counts[host.0 as usize] == 0 && self.plan.triggers.is_empty()
    }

    /// True if a program at one host ever signals another host: a trigger is counted at another host than it is fired
    /// at, or it starts a flow at another host.
    pub fn signals(&self) -> bool {
        let elsewhere = |trigger: u32| {
            let home = self.home(trigger);
            self.waiting(trigger).iter().any(|&flow| Some(self.source(flow)) != home)
        };
        (0..self.plan.triggers.len() as u32).any(elsewhere)
            || self.plan.flows.iter().any(|flow| {
                let connection = &self.plan.connections[flow.connection as usize];
                [(flow.on_sent, connection.source), (flow.on_received, connection.destination)]
                    .into_iter()
                    .any(|(on, host)| on.and_then(|t| self.home(t)).is_some_and(|home| home != host))
            })
    }

    /// Upper limit of the `order` of any signal in a run of this plan.
    pub fn orders(plan: &Plan) -> u32 {
        FlowTable::orders_of(plan.flows.len()) + ORDERS
    }

    /// Upper limit of the orders of signals of `flows` flows. Signals of servers have higher orders.
    pub fn orders_of(flows: usize) -> u32 {
        3 * flows as u32
    }
}

/// Posts the flows of one host and counts the triggers whose home is this host.
///
/// The home of a trigger is the source of the first flow that waits for it. A signal from another host to the home, and
/// from the home to another host, takes one [`news_between`](strandway_fabric::Topology::news_between) each.
#[derive(Debug)]
pub struct Flows<'a> {
    table: &'a FlowTable<'a>,
    host: HostId,
    /// The next flow with a start time, and the end of this host's range of such flows.
    next: u32,
    end: u32,
    /// `None` until a trigger fires.
    triggers: Option<Box<Triggers>>,
    actions: VecDeque<Action>,
    /// Flows of this host that have not finished.
    left: u32,
    /// `None` until there is a request.
    reads: Option<Box<Reads>>,
}

/// The triggers that a host knows.
#[derive(Debug, Default)]
struct Triggers {
    /// Triggers that have fired at least once: the number of the trigger, and how many more times it must fire.
    counts: Vec<(u32, u32)>,
    /// Flows that a trigger has released, with the time at which each is posted, in order.
    released: Vec<(Time, u32)>,
}

/// The reads of a host.
#[derive(Debug, Default)]
struct Reads {
    /// This host's requests to read, by their connection, with the number of each.
    reading: BTreeMap<u32, (Reader<u32>, BTreeMap<u32, u32>)>,
    /// Requests to read from this host, by their connection, with the number of the next.
    answering: BTreeMap<u32, (Target<u32>, u32)>,
}

impl<'a> Flows<'a> {
    /// The program of a host.
    pub fn new(table: &'a FlowTable<'a>, host: HostId) -> Flows<'a> {
        let next = table.bounds[host.0 as usize];
        let end = table.bounds[host.0 as usize + 1];
        let left = table.counts[host.0 as usize];
        Flows { table, host, next, end, triggers: None, actions: VecDeque::new(), left, reads: None }
    }

    /// The start time of the next flow that waits only for its time.
    fn next_start(&self) -> Time {
        if self.next == self.end {
            return Time::NEVER;
        }
        match self.table.plan.flows[self.table.starts[self.next as usize] as usize].start {
            Start::At(at) => at,
            Start::On(..) | Start::Asked(_) | Start::Program => Time::NEVER,
        }
    }

    /// When the next flow is posted that a trigger has released.
    fn released_at(&self) -> Time {
        let first = self.triggers.as_ref().and_then(|triggers| triggers.released.first());
        first.map_or(Time::NEVER, |released| released.0)
    }

    fn post(&self, flow: u32) -> Action {
        let plan = &self.table.plan.flows[flow as usize];
        let connection = &self.table.plan.connections[plan.connection as usize];
        let channel = Channel { peer: connection.destination, number: plan.connection, profile: connection.profile };
        Action::Post { channel, message: Message { id: MessageId(flow), bytes: plan.bytes } }
    }

    /// A flow begins. A request to read may have to wait for answers to others.
    fn begin_flow(&mut self, flow: u32) {
        if !self.table.answers.contains_key(&flow) {
            let action = self.post(flow);
            return self.actions.push_back(action);
        }
        let connection = self.table.plan.flows[flow as usize].connection;
        let reading = &mut self.reads.get_or_insert_default().reading;
        let (reader, numbers) =
            reading.entry(connection).or_insert_with(|| (Reader::new(ReadLimits::DEFAULT), BTreeMap::new()));
        let number = reader.ask(flow);
        numbers.insert(flow, number);
        self.send_requests(connection);
    }

    /// This host's requests to read on a connection, with their numbers.
    fn reading(&mut self, connection: u32) -> Option<&mut (Reader<u32>, BTreeMap<u32, u32>)> {
        self.reads.as_mut()?.reading.get_mut(&connection)
    }

    /// The requests to read from this host on a connection, with the number of the next.
    fn answering(&mut self, connection: u32) -> Option<&mut (Target<u32>, u32)> {
        self.reads.as_mut()?.answering.get_mut(&connection)
    }

    fn send_requests(&mut self, connection: u32) {
        while let Some((reader, _)) = self.reading(connection)
            && let Some(&request) = reader.poll_request().and_then(|number| reader.get(number))
        {
            let action = self.post(request);
            self.actions.push_back(action);
        }
    }

    /// The answer to a request of this host is here.
    fn finish_read(&mut self, request: u32) {
        let connection = self.table.plan.flows[request as usize].connection;
        if let Some((reader, numbers)) = self.reading(connection)
            && let Some(number) = numbers.remove(&request)
        {
            reader.finish(number);
            self.send_requests(connection);
        }
    }

    /// A request is here, which this flow answers.
    fn handle_request(&mut self, request: u32, answer: u32) {
        let flows = &self.table.plan.flows;
        let connection = flows[request as usize].connection;
        let answering = &mut self.reads.get_or_insert_default().answering;
        let (target, next) = answering.entry(connection).or_insert_with(|| (Target::new(ReadLimits::DEFAULT), 0));
        let verdict = target.handle_request(*next);
        assert!(verdict == Verdict::Answer, "readers keep to the same limits");
        *next = next.wrapping_add(1);
        target.push(flows[answer as usize].bytes, answer);
        self.send_answers(connection);
    }

    fn send_answers(&mut self, connection: u32) {
        while let Some((target, _)) = self.answering(connection)
            && let Some(answer) = target.poll_answer()
        {
            let action = self.post(answer);
            self.actions.push_back(action);
        }
    }

    /// The reader has an answer of this host.
    fn finish_answer(&mut self, request: u32, bytes: u64) {
        let connection = self.table.plan.flows[request as usize].connection;
        if let Some((target, _)) = self.answering(connection) {
            target.finish(bytes);
            self.send_answers(connection);
        }
    }

    /// A flow that ended here fires a trigger. `order` gives simultaneous signals a fixed order.
    fn pull(&mut self, now: Time, trigger: u32, order: u32) {
        match self.table.home(trigger) {
            Some(home) if home == self.host => self.fire(now, trigger),
            Some(home) => {
                let at = now + self.table.news(self.host, home);
                self.actions.push_back(Action::Signal { to: home, at, order, word: trigger });
            }
            None => {}
        }
    }

    /// A trigger was fired. After the last firing that it needs, its flows begin.
    fn fire(&mut self, now: Time, trigger: u32) {
        let plan = self.table.plan;
        let triggers = self.triggers.get_or_insert_default();
        let at = match triggers.counts.binary_search_by_key(&trigger, |c| c.0) {
            Ok(at) => at,
            Err(at) => {
                triggers.counts.insert(at, (trigger, plan.triggers[trigger as usize].needed.max(1)));
                at
            }
        };
        let needed = &mut triggers.counts[at].1;
        if *needed == 0 {
            return;
        }
        *needed -= 1;
        if *needed > 0 {
            return;
        }
        for &flow in self.table.waiting(trigger) {
            let Start::On(_, delay) = plan.flows[flow as usize].start else { continue };
            let source = self.table.source(flow);
            if source == self.host {
                let due = (now + delay, flow);
                let place = triggers.released.partition_point(|r| *r < due);
                triggers.released.insert(place, due);
            } else {
                let at = now + delay + self.table.news(self.host, source);
                let order = 2 * plan.flows.len() as u32 + flow;
                self.actions.push_back(Action::Signal { to: source, at, order, word: flow });
            }
        }
    }
}

impl Application for Flows<'_> {
    fn handle_event(&mut self, now: Time, event: &Event) {
        let flows = &self.table.plan.flows;
        match *event {
            Event::Sent { message } => {
                self.left = self.left.saturating_sub(1);
                if let Some(flow) = flows.get(message.0 as usize)
                    && let Start::Asked(request) = flow.start
                {
                    self.finish_answer(request, flow.bytes);
                }
                if let Some(trigger) = flows.get(message.0 as usize).and_then(|f| f.on_sent) {
                    self.pull(now, trigger, 2 * message.0);
                }
            }
            Event::Received { message, .. } => {
                if let Some(&answer) = self.table.answers.get(&message.0) {
                    self.handle_request(message.0, answer);
                }
                if let Some(&Start::Asked(request)) = flows.get(message.0 as usize).map(|flow| &flow.start) {
                    self.finish_read(request);
                }
                if let Some(trigger) = flows.get(message.0 as usize).and_then(|f| f.on_received) {
                    self.pull(now, trigger, 2 * message.0 + 1);
                }
            }
            // Ranks that share a server.
            Event::Signal { order, .. } if order >= FlowTable::orders_of(flows.len()) => {}
            Event::Signal { order, word } if order >= 2 * flows.len() as u32 => {
                self.begin_flow(word);
            }
            Event::Signal { word, .. } => self.fire(now, word),
            // A flow that failed stays unfinished, and the report says so.
            Event::Failed { .. }
            | Event::Control { .. }
            | Event::Chunk { .. }
            | Event::Fragment(_)
            | Event::Cast { .. }
            | Event::Ports { .. } => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        // One flow per call: its packets leave before the next flow is posted.
        if self.next_start() <= now && self.released_at() > now {
            let flow = self.table.starts[self.next as usize];
            self.next += 1;
            self.begin_flow(flow);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                if self.actions.is_empty() {
                    // Flows begin seldom, and a fabric has many hosts.
                    self.actions = VecDeque::new();
                }
                return Some(action);
            }
            let released = &mut self.triggers.as_mut()?.released;
            let &(at, flow) = released.first()?;
            if at > now {
                return None;
            }
            released.remove(0);
            self.begin_flow(flow);
        }
    }

    fn poll_timeout(&self) -> Time {
        self.next_start().min(self.released_at())
    }

    fn owns(&self, message: MessageId) -> bool {
        self.table.plan.flows.get(message.0 as usize).is_some_and(|flow| flow.start != Start::Program)
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }
}
