//! Makes the connections, flows and triggers of workloads.
//!
//! A flow in reports is one message of the workload. If a message is striped over several connections, each piece is a
//! flow of the simulator. All pieces are posted together, and the message is finished when its last piece is.

use super::maker::{Common, Context, Maker, Traffic};
use super::plans::Message;
use super::sizes::Sizes;
use super::switch;
use super::workload::{FlowKeys, Kind, Pick, Workload, arrivals};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandway_collective::server::ORDERS;
use strandway_collective::{FlowTable, Operation};
use strandway_fabric::plan::{Start, TriggerPlan};
use strandway_import::htsim::{Matrix, MatrixStart};
use strandway_proto::path::PathConfig;
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Bytes, Span};
use strandway_proto::{HostId, Profile};
use strandway_serving::plan::Class;

pub(crate) fn generate(context: &Context<'_>, workloads: &[Workload]) -> Traffic {
    let mut traffic = Traffic { profiles: vec![Arc::clone(context.profile)], ..Traffic::default() };
    // The index of each further profile, by name and by whether it is the variant with a single path.
    let mut known: BTreeMap<(Option<&str>, bool), u16> = BTreeMap::from([((None, false), 0)]);
    for (i, workload) in workloads.iter().enumerate() {
        let named = workload.head.profile.as_ref().map(|p| p.name.as_str());
        let profile = *known.entry((named, false)).or_insert_with(|| {
            traffic.profiles.extend(workload.head.profile.clone().map(Arc::new));
            traffic.profiles.len() as u16 - 1
        });
        let class = traffic.class(&workload.head.class);
        let random = Random::new(context.seed, StreamKind::Workload, i as u64);
        let (pairs, placed) = (Vec::new(), Vec::new());
        let (workload, kind) = (&workload.head, &workload.kind);
        let mut maker =
            Maker { context, workload, traffic: &mut traffic, class, profile, random, pairs, placed, full: false };
        let first = maker.traffic.messages.len();
        maker.make(kind);
        if let Some(share) = workload.ordered {
            let single = *known.entry((named, true)).or_insert_with(|| {
                let single = one_path(&maker.traffic.profiles[usize::from(profile)]);
                maker.traffic.profiles.push(Arc::new(single));
                maker.traffic.profiles.len() as u16 - 1
            });
            maker.keep_order(share, single, first);
        }
    }
    // Messages without entries are numbered after those with entries.
    let mut next = traffic.flows.len() as u32;
    let in_network = |operation: &&mut Operation| matches!(operation, Operation::InNetwork(_));
    for plan in traffic.collectives.iter().filter(|plan| plan.tallied) {
        let operation = plan.operation.map(|place| &mut traffic.operations[place]);
        if let Some(operation) = operation.filter(|operation| !in_network(operation)) {
            operation.number_from(&mut next);
        }
    }
    let (first_order, mut word) = (FlowTable::orders_of(traffic.flows.len()), 0);
    for operation in &mut traffic.operations {
        let Operation::Job(job) = operation else { continue };
        (job.first_order, job.first_word) = (first_order, word);
        word += job.locals.len() as u32;
        operation.number_from(&mut next);
    }
    traffic.operations.iter_mut().filter(in_network).for_each(|operation| operation.number_from(&mut next));
    traffic.aggregation = switch::assemble(context, &traffic);
    // Likewise, channels that open at first use are numbered after the connections of the plan.
    let mut channel = traffic.connections.len() as u32;
    for operation in &mut traffic.operations {
        if let Operation::Messages(group) = operation
            && group.on_demand
        {
            group.first_channel = channel;
            channel = channel.wrapping_add(group.channels() as u32);
        }
    }
    for operation in &mut traffic.operations {
        if let Operation::Multicast(multicast) = operation {
            multicast.channel = channel;
            channel = channel.wrapping_add(2);
        }
    }
    number_services(&mut traffic, next, channel);
    traffic
}

/// Numbers the messages and channels of services, after all others.
fn number_services(traffic: &mut Traffic, first: u32, channel: u32) {
    let count = traffic.services.len() as u32;
    let order = FlowTable::orders_of(traffic.flows.len()) + ORDERS - 1;
    for (plan, number) in traffic.services.iter_mut().zip(0..) {
        let service = &mut plan.service;
        service.width = (u32::MAX - first) / (count * Class::COUNT);
        service.first_message = first + number * Class::COUNT * service.width;
        service.first_channel = channel;
        service.order = order;
    }
}

/// A protocol changed to one path per connection, which the switches' hash chooses.
fn one_path(profile: &Profile) -> Profile {
    let path = PathConfig::Single(Default::default());
    Profile { name: format!("{}/{}", profile.name, path.name()), path, ..profile.clone() }
}

impl Maker<'_> {
    fn make(&mut self, kind: &Kind) {
        let common = &self.workload.common;
        let fabric = self.context.topology.hosts();
        let hosts = common.hosts.unwrap_or(fabric);
        if hosts > fabric {
            return self.complain("hosts", hosts, format!("are more than the fabric's {fabric}"), "write fewer");
        }
        match kind {
            Kind::Permutation => self.permutation(hosts),
            Kind::Incast { destination, senders, pick } => self.star(*destination, *senders, *pick, hosts, true),
            Kind::Outcast { source, receivers, pick } => self.star(*source, *receivers, *pick, hosts, false),
            Kind::Collective(written) => self.collectives(written, common.hosts),
            Kind::Job(written) => self.job(written),
            Kind::Service(written) => self.service(written),
            Kind::Poisson { load, sizes, duration, flows } => self.poisson(hosts, *load, sizes, *duration, *flows),
            Kind::Matrix { matrix, file, .. } => self.matrix(matrix, file),
            Kind::Flows(flows) => self.written(flows),
        }
    }

    /// Gives a random share of all pairs the profile with a single path; their messages (from `first` on) get a class
    /// of their own.
    fn keep_order(&mut self, share: f64, single: u16, first: usize) {
        let count = (share * self.pairs.len() as f64).round() as usize;
        self.random.shuffle(&mut self.pairs);
        for connection in self.pairs.iter().take(count).cloned().flatten() {
            self.traffic.connections[connection as usize].profile = single;
        }
        let class = self.traffic.class(&format!("{}-ordered", self.workload.class));
        let Traffic { connections, flows, messages, .. } = &mut *self.traffic;
        for message in &mut messages[first..] {
            if connections[flows[message.first as usize].connection as usize].profile == single {
                message.class = class;
            }
        }
    }

    /// A trigger that fires when the sender, or the reader, knows that the whole `message` has arrived.
    fn after(&mut self, message: usize) -> u32 {
        let Message { first, pieces, .. } = self.traffic.messages[message];
        let trigger = self.traffic.triggers.len() as u32;
        self.traffic.triggers.push(TriggerPlan { needed: pieces });
        for flow in first..first + pieces {
            let flow = &mut self.traffic.flows[flow as usize];
            let on = if self.workload.reads { &mut flow.on_received } else { &mut flow.on_sent };
            *on = Some(trigger);
        }
        trigger
    }

    /// All messages of one pair; each is posted when the previous one is complete.
    fn pair(&mut self, source: u32, destination: u32, size: Bytes, start: Span, id: Option<u32>) {
        let Common { messages, gap, connections, .. } = self.workload.common;
        let each = 1 + u64::from(self.workload.reads);
        if !self.room(u64::from(messages) * u64::from(connections) * each) {
            return;
        }
        let over = self.open(source, destination);
        let mut at = Start::At(self.moment(start));
        for i in 0..messages {
            let message = self.post(over.clone(), size, at, id);
            if i + 1 < messages {
                at = Start::On(self.after(message), gap);
            }
        }
    }

    fn permutation(&mut self, hosts: u32) {
        if hosts < 2 {
            return self.complain("hosts", hosts, "a permutation needs two hosts", "enlarge the fabric");
        }
        let Common { size, start, .. } = self.workload.common;
        for (source, destination) in derangement(&mut self.random, hosts) {
            self.pair(source, destination, size, start, None);
        }
    }

    fn star(&mut self, centre: u32, others: Option<u32>, pick: Pick, hosts: u32, incast: bool) {
        let (centre_key, others_key) = if incast { ("destination", "senders") } else { ("source", "receivers") };
        if centre >= hosts {
            let what = format!("there are only {hosts} hosts, numbered from 0 to {}", hosts - 1);
            return self.complain(centre_key, centre, what, "name one of them");
        }
        let topology = self.context.topology;
        let mut candidates: Vec<u32> = (0..hosts)
            .filter(|&h| h != centre && (pick != Pick::Remote || topology.hops(HostId(h), HostId(centre)) > 2))
            .collect();
        if pick != Pick::First {
            self.random.shuffle(&mut candidates);
        }
        let count = others.map_or(candidates.len().min(8), |n| n as usize);
        if count > candidates.len() || count == 0 {
            let what = format!("there are only {} hosts to pick from", candidates.len());
            return self.complain(others_key, count, what, "write fewer or enlarge the fabric");
        }
        candidates.truncate(count);
        candidates.sort_unstable();
        let Common { size, start, .. } = self.workload.common;
        for other in candidates {
            let (from, to) = if incast { (other, centre) } else { (centre, other) };
            self.pair(from, to, size, start, None);
        }
    }

    fn poisson(&mut self, hosts: u32, load: f64, sizes: &Sizes, duration: Option<Span>, flows: Option<u64>) {
        if hosts < 2 {
            return self.complain("hosts", hosts, "needs two hosts", "enlarge the fabric");
        }
        let per_second = arrivals(load, self.context.rate, sizes, hosts);
        let duration = duration.unwrap_or(if flows.is_some() { Span(u64::MAX) } else { Span::from_ms(1) });
        let limit = flows.unwrap_or(u64::MAX);
        let mean_gap = 1e12 / per_second;
        let mut at = self.workload.common.start.0 as f64;
        let end = at + duration.0 as f64;
        let mut made = 0;
        let before = self.traffic.messages.len();
        while made < limit {
            at += -ln(1.0 - self.random.unit()) * mean_gap;
            if at >= end {
                break;
            }
            let each = 1 + u64::from(self.workload.reads);
            if !self.room(u64::from(self.workload.common.connections) * each) || at > 9e15 {
                return;
            }
            let source = self.random.below(hosts);
            let other = self.random.below(hosts - 1);
            let destination = if other >= source { other + 1 } else { other };
            let bytes = sizes.draw(&mut self.random);
            let over = self.open(source, destination);
            let start = self.moment(Span(at as u64));
            self.post(over, Bytes(bytes), Start::At(start), None);
            made += 1;
        }
        if self.traffic.messages.len() == before {
            let what =
                format!("no flow arrives within {duration}: at this load one comes every {}", Span(mean_gap as u64));
            self.complain("duration", duration, what, "write a longer duration or `flows = N`");
        }
    }

    fn matrix(&mut self, matrix: &Matrix, file: &str) {
        let hosts = self.context.topology.hosts();
        if matrix.nodes > hosts {
            let what = format!("the matrix {file} is for {} hosts, the fabric has {hosts}", matrix.nodes);
            return self.complain(
                "file",
                "",
                what,
                "enlarge the fabric, or leave [fabric] out to get a fat tree that fits",
            );
        }
        let connections = self.workload.common.connections;
        if !self.room(matrix.flows.len() as u64 * u64::from(connections)) {
            return;
        }
        let triggers = self.traffic.triggers.len() as u32;
        self.traffic.triggers.extend(matrix.triggers.iter().map(|t| TriggerPlan { needed: t.needed * connections }));
        let names = &mut self.traffic.trigger_names;
        names.resize(triggers as usize, String::new());
        names.extend(matrix.triggers.iter().map(|t| t.id.to_string()));
        for flow in &matrix.flows {
            let start = match flow.start {
                MatrixStart::At(at) => Start::At(self.moment(Span(at.0))),
                MatrixStart::On(trigger) => Start::On(triggers + trigger, Span::ZERO),
            };
            let over = self.open(flow.source, flow.destination);
            let message = self.post(over, Bytes(flow.bytes), start, flow.id);
            let Message { first, pieces, .. } = self.traffic.messages[message];
            for piece in first..first + pieces {
                let plan = &mut self.traffic.flows[piece as usize];
                plan.on_sent = flow.on_sent.map(|t| triggers + t);
                plan.on_received = flow.on_received.map(|t| triggers + t);
            }
        }
    }

    fn written(&mut self, flows: &[FlowKeys]) {
        let hosts = self.context.topology.hosts();
        let base = self.workload.common.start;
        for flow in flows {
            let bad = |key: &str, value: u32, what: String, remedy: &str| {
                self.context.sink.add(&format!("{}.{key}", flow.key), value, what, remedy);
            };
            if flow.from == flow.to {
                bad("to", flow.to, "a host cannot send to itself".into(), "name two hosts");
                continue;
            }
            let out: Vec<_> = [("from", flow.from), ("to", flow.to)].into_iter().filter(|(_, h)| *h >= hosts).collect();
            for (key, host) in &out {
                bad(
                    key,
                    *host,
                    format!("there are only {hosts} hosts, numbered from 0 to {}", hosts - 1),
                    "name one of them",
                );
            }
            if out.is_empty() {
                self.pair(flow.from, flow.to, flow.size, Span(base.0 + flow.start.0), None);
            }
        }
    }
}

/// A random permutation in which each host sends to one other host, made like in the UEC simulator: sources and
/// destinations are shuffled independently, and a host that got itself swaps with the next one.
fn derangement(random: &mut Random, hosts: u32) -> Vec<(u32, u32)> {
    let mut sources: Vec<u32> = (0..hosts).collect();
    let mut destinations = sources.clone();
    random.shuffle(&mut sources);
    random.shuffle(&mut destinations);
    let n = hosts as usize;
    for i in 0..n {
        if sources[i] == destinations[i] {
            destinations.swap(i, (i + 1) % n);
        }
    }
    // The last swap may have paired the first host with itself; a second pass mends that.
    for i in 0..n {
        if sources[i] == destinations[i] {
            destinations.swap(i, (i + 1) % n);
        }
    }
    let mut pairs: Vec<(u32, u32)> = sources.into_iter().zip(destinations).collect();
    pairs.sort_unstable();
    pairs
}

/// The natural logarithm of a number in (0, 1], with arithmetic that gives the same result on every machine.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let mut sum = 0.0;
    let mut k = 31;
    while k >= 1 {
        sum = sum * square + 1.0 / f64::from(k);
        k -= 2;
    }
    exponent as f64 * std::f64::consts::LN_2 + 2.0 * z * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_logarithm_is_one() {
        for x in [1.0, 0.5, 0.999_999, 1e-3, 1e-16, 0.7, 0.1] {
            assert!((ln(x) - f64::ln(x)).abs() < 1e-12, "{x}: {} {}", ln(x), f64::ln(x));
        }
    }

    proptest! {
        #[test]
        fn a_permutation_has_no_fixed_point(seed in any::<u64>(), hosts in 2u32..200) {
            let pairs = derangement(&mut Random::new(seed, StreamKind::Workload, 0), hosts);
            let mut seen = vec![false; hosts as usize];
            for (i, &(source, destination)) in pairs.iter().enumerate() {
                prop_assert_eq!(source as usize, i);
                prop_assert_ne!(source, destination);
                prop_assert!(!std::mem::replace(&mut seen[destination as usize], true));
            }
        }
    }
}
