//! Finds the causes that limited the slowest flows, each class and each collective: shares of their time, by cause.
//!
//! It joins two accounts. The sender's account says what the sender waited for ([`Doing`]): its port, its window,
//! acknowledgements. The packets' account says where queues were ([`Waits`]): at the receiver's own link, at one other
//! link, or at many links. If packets met queues, the time in which a sender waited for its window or for
//! acknowledgements is charged to the fabric.

mod chain;

use super::capacity::Capacity;
use std::collections::BTreeMap;
use strandway_fabric::measure::FlowTime;
use strandway_fabric::{LinkId, Measurements};
use strandway_proto::account::{Doing, Wait, Waits};
use strandway_proto::units::{Bytes, Span, Time};
use strandway_report::numbers::{percent, us};
use strandway_report::{Cause, WhyFacts};
use strandway_scenario::{Experiment, Message};

/// Number of flows with an entry of their own.
const FLOWS: usize = 10;

/// Queues count as a cause if the mean of the packets' longest waits is at least this share of the base RTT; shorter
/// queues limit no flow.
const QUEUED: f64 = 0.1;

/// One link is the cause if its lead in the packets' vote is at least this share of all waits. Then more than half of
/// the waits are at this link.
const STANDS_OUT: f64 = 0.2;

/// Time by cause, with the links and hosts that belong to it.
#[derive(Clone, Debug, Default)]
struct Account {
    time: [f64; Cause::COUNT],
    /// Time spent waiting for the window, by the last cause of a cut: never cut, marks, delay, loss.
    cuts: [f64; 4],
    /// Time by link of a collision or slow link; and time by host of an incast.
    links: BTreeMap<u32, f64>,
    hosts: BTreeMap<u32, f64>,
    /// Index of the profile.
    profile: usize,
}

impl Account {
    fn add(&mut self, cause: Cause, time: f64) {
        self.time[cause as usize] += time;
    }

    fn total(&self) -> f64 {
        self.time.iter().sum()
    }

    fn merge(&mut self, other: &Account) {
        let add = |all: &mut [f64], more: &[f64]| all.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        add(&mut self.time, &other.time);
        add(&mut self.cuts, &other.cuts);
        for (link, time) in &other.links {
            *self.links.entry(*link).or_default() += time;
        }
        for (host, time) in &other.hosts {
            *self.hosts.entry(*host).or_default() += time;
        }
        self.profile = other.profile;
    }

    /// The account of `part` of the time. The rest is taken first from propagation, then from all causes alike.
    fn shortened(&self, part: f64) -> Account {
        let mut account = self.clone();
        let back = &mut account.time[Cause::Propagation as usize];
        let spare = (self.total() - part).clamp(0.0, *back);
        *back -= spare;
        let rest = account.total();
        let scale = if rest > 0.0 { part / rest } else { 0.0 };
        account.time.iter_mut().chain(&mut account.cuts).for_each(|t| *t *= scale);
        account
    }
}

/// The data from which all accounts of a run are made.
struct Accounts<'a> {
    experiment: &'a Experiment,
    measured: &'a Measurements,
    capacity: Capacity<'a>,
    /// Per host: how many hosts send to it.
    sources: Vec<u32>,
    /// Per host: how many connections send from it.
    outgoing: Vec<u32>,
}

impl<'a> Accounts<'a> {
    fn new(experiment: &'a Experiment, measured: &'a Measurements) -> Accounts<'a> {
        let plan = &experiment.plan;
        let hosts = plan.topology.hosts() as usize;
        let mut pairs: Vec<(u32, u32)> = plan.connections.iter().map(|c| (c.destination.0, c.source.0)).collect();
        let mut outgoing = vec![0; hosts];
        pairs.iter().for_each(|(_, source)| outgoing[*source as usize] += 1);
        pairs.sort_unstable();
        pairs.dedup();
        let mut sources = vec![0; hosts];
        pairs.iter().for_each(|(destination, _)| sources[*destination as usize] += 1);
        Accounts { experiment, measured, capacity: Capacity::new(plan, measured), sources, outgoing }
    }

    /// The piece of a message that ended last. All pieces begin together.
    fn last_piece(&self, message: &Message) -> usize {
        let pieces = message.first..message.first + message.pieces;
        let end = |f: u32| self.measured.flows[f as usize].finished.unwrap_or(Time::NEVER);
        pieces.max_by_key(|f| (end(*f), std::cmp::Reverse(*f))).unwrap_or(message.first) as usize
    }

    /// The account of one flow of the plan.
    fn account(&self, flow: usize) -> Account {
        let plan = &self.experiment.plan;
        let index = plan.flows[flow].connection as usize;
        let connection = &plan.connections[index];
        let (times, waits) = (&self.measured.times[flow], &self.measured.waits[index]);
        let mut account = Account { profile: usize::from(connection.profile), ..Account::default() };
        let profile = &plan.profiles[account.profile];
        let transport = &profile.transport;
        let on = |doing: Doing| times.spent.on(doing).0 as f64;
        account.add(Cause::Behind, times.behind.0 as f64);
        account.add(Cause::Paused, on(Doing::Paused));
        account.add(Cause::Recovery, on(Doing::Recovery));
        account.add(Cause::Timeout, on(Doing::Timeout));
        account.add(Cause::Dependency, on(Doing::Idle));

        // Time of the flow's own packets at the port, and of other flows' packets.
        let bytes = plan.flows[flow].bytes;
        let packets = bytes.div_ceil(u64::from(transport.mtu)).max(1);
        let wire = Bytes(bytes + packets * u64::from(transport.header));
        let port = plan.topology.level(0).rate;
        let planes = if profile.path.name() == "single" { 1 } else { u64::from(plan.topology.planes()) };
        let own = port.time_for(wire).0 as f64 / planes as f64;
        let line = on(Doing::Line);
        let alone = self.outgoing[connection.source.0 as usize] < 2;
        let mine = if alone { line } else { line.min(own) };
        account.add(Cause::Line, mine);
        account.add(Cause::Nic, line - mine);

        // Time of the last packet and its acknowledgement on their way.
        let last = Bytes(bytes - (packets - 1) * u64::from(transport.mtu) + u64::from(transport.header));
        let (from, to) = (connection.source, connection.destination);
        let way = plan.topology.rtt_between(last, Bytes(transport.control.into()), from, to);
        let tail = on(Doing::Tail);
        let on_the_way = tail.min(way.0 as f64);
        account.add(Cause::Propagation, on_the_way);

        // The remaining time is charged to queues if packets met queues, otherwise to the window or the packet range.
        account.cuts = [Doing::Window, Doing::WindowMarks, Doing::WindowDelay, Doing::WindowLoss].map(on);
        let cut: f64 = account.cuts[1..].iter().sum();
        let (never, range, late) = (account.cuts[0], on(Doing::Range), tail - on_the_way);
        match self.queue(connection.destination.0, connection.source.0, waits, way) {
            Some((cause, share, place)) => {
                let queued = cut + late + (never + range) * share;
                account.add(cause, queued);
                account.add(Cause::Window, never * (1.0 - share));
                account.add(Cause::Psn, range * (1.0 - share));
                match cause {
                    Cause::Incast => *account.hosts.entry(place).or_default() += queued,
                    Cause::Collision | Cause::SlowLink => *account.links.entry(place).or_default() += queued,
                    _ => {}
                }
            }
            None => {
                account.add(Cause::Window, never + cut);
                account.add(Cause::Psn, range);
                // Acknowledgements that were sent together, or that took another path.
                account.add(Cause::Propagation, late);
            }
        }
        account
    }

    /// The queues that a connection's packets met: the cause, their share of a round trip, and the link or host.
    fn queue(&self, to: u32, from: u32, waits: &Waits, way: Span) -> Option<(Cause, f64, u32)> {
        let all = (waits.last_hop + waits.elsewhere).0 as f64;
        let mean = all / waits.packets.max(1) as f64;
        let way = way.0 as f64;
        if mean < QUEUED * way {
            return None;
        }
        let share = mean / (mean + way);
        if waits.last_hop > waits.elsewhere {
            let several = self.sources[to as usize] > 1;
            let slow = self.slow_link_to(to);
            return match slow {
                Some(link) => Some((Cause::SlowLink, share, link)),
                None if several => Some((Cause::Incast, share, to)),
                None => Some((Cause::Fabric, share, from)),
            };
        }
        let link = waits.link & !Wait::LAST_HOP;
        if (waits.lead as f64) < STANDS_OUT * waits.elsewhere.0 as f64 {
            return Some((Cause::Fabric, share, from));
        }
        let cause = if self.capacity.is_slowed(LinkId(link)) { Cause::SlowLink } else { Cause::Collision };
        Some((cause, share, link))
    }

    /// A link to this host that a fault slows down.
    fn slow_link_to(&self, host: u32) -> Option<u32> {
        let topology = &self.experiment.plan.topology;
        let planes = u32::from(topology.planes());
        let reverse = |link: u32| topology.ends(LinkId(link)).map(|e| e.reverse);
        (host * planes..(host + 1) * planes).filter_map(reverse).find(|l| self.capacity.is_slowed(*l)).map(|l| l.0)
    }

    fn facts(&self, name: String, what: String, kind: &str, account: &Account) -> WhyFacts {
        let total = account.total();
        let shares = Cause::ALL.map(|(cause, name)| {
            let share = (total > 0.0).then(|| account.time[cause as usize] / total);
            (name.to_string(), share)
        });
        let top = |times: &BTreeMap<u32, f64>| times.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(n, _)| *n);
        let topology = &self.experiment.plan.topology;
        let cut =
            (1..4).max_by(|a, b| account.cuts[*a].total_cmp(&account.cuts[*b])).filter(|i| account.cuts[*i] > 0.0);
        let mut facts = WhyFacts {
            name,
            what,
            kind: kind.to_string(),
            time_us: (total > 0.0).then_some(total / 1e6),
            shares: shares.into_iter().collect(),
            link: top(&account.links).map(|l| topology.link_name(LinkId(l))),
            host: top(&account.hosts).map(|h| format!("host{h}")),
            control: self.experiment.plan.profiles[account.profile].congestion.name().to_string(),
            cut: cut.map(|i| ["never", "marks", "delay", "loss"][i].to_string()),
            ..WhyFacts::default()
        };
        if total > 0.0 {
            words(&mut facts, account, self.experiment.plan.ports.pfc.is_some());
        }
        facts
    }
}

/// Names the main cause and writes the sentence. `pauses` is true if switches send pause frames.
fn words(facts: &mut WhyFacts, account: &Account, pauses: bool) {
    let total = account.total();
    let mut order: Vec<(Cause, f64)> =
        Cause::ALL.iter().map(|(cause, _)| (*cause, account.time[*cause as usize] / total)).collect();
    // Causes with equal shares keep their order.
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    facts.cause = order[0].0.name().to_string();
    let told: Vec<(Cause, f64)> = order.into_iter().filter(|(_, share)| *share >= 0.05).take(3).collect();
    let parts: Vec<String> = told
        .iter()
        .enumerate()
        .map(|(i, (cause, share))| {
            let of = if i == 0 { format!(" of {}", us(facts.time_us)) } else { String::new() };
            let share = percent(*share).replace(".0 %", " %");
            format!("{share}{of} {}", phrase(facts, *cause, pauses))
        })
        .collect();
    facts.sentence = format!("{} spent {}", facts.what, parts.join(", "));
}

/// The activity of a flow while this cause limited it, in words.
fn phrase(facts: &WhyFacts, cause: Cause, pauses: bool) -> String {
    let control = &facts.control;
    let cut = match facts.cut.as_deref() {
        Some("marks") if control == "dcqcn" => Some("marks cut its rate".to_string()),
        Some("marks") if control == "hpcc" => Some("reports of switches cut its window".to_string()),
        Some("loss") => Some("losses cut its window".to_string()),
        Some(cut) => Some(format!("{cut} cut its window")),
        None => None,
    };
    let why = cut.as_ref().map_or(String::new(), |cut| format!(" ({control}: {cut})"));
    let place = |name: &Option<String>| name.clone().unwrap_or_default();
    match cause {
        Cause::Line => "at line rate".to_string(),
        Cause::Nic => "waiting while its NIC sent other flows".to_string(),
        Cause::Window => match cut {
            Some(cut) => format!("waiting for its window ({control}: {cut})"),
            // A control from outside does not say why it cuts.
            None if control == "custom" => "waiting for its window (custom)".to_string(),
            None => format!("waiting for its window ({control}, never cut)"),
        },
        Cause::Psn => "waiting with its range of packet numbers used up".to_string(),
        Cause::Paused if pauses => "with its NIC paused (PFC)".to_string(),
        Cause::Paused => "with its NIC's ports down".to_string(),
        Cause::Dependency => "waiting for flows that had to end first".to_string(),
        Cause::Behind => "behind earlier messages of its connection".to_string(),
        Cause::Incast => format!("in an incast at {}{why}", place(&facts.host)),
        Cause::Collision => format!("in the queue of {}{why}", place(&facts.link)),
        Cause::SlowLink => format!("behind the slow link {}{why}", place(&facts.link)),
        Cause::Fabric => format!("in queues all over the fabric{why}"),
        Cause::Recovery => "sending packets again and waiting for those".to_string(),
        Cause::Timeout => "waiting for retransmission timeouts".to_string(),
        Cause::Propagation => "on the way".to_string(),
    }
}

/// The causes for the slowest flows, the classes and the collectives.
pub(super) fn why(experiment: &Experiment, measured: &Measurements) -> Vec<WhyFacts> {
    let books = Accounts::new(experiment, measured);
    let mut facts = Vec::new();
    if measured.times.is_empty() {
        // No accounts were recorded: the entries exist, but are empty.
        let none = Account::default();
        facts.push(books.facts("slowest".into(), String::new(), "flow", &none));
        for class in &experiment.classes {
            facts.push(books.facts(format!("class.{class}"), class.clone(), "class", &none));
        }
        for (name, what, kind) in chain::names(experiment) {
            facts.push(books.facts(name, what, kind, &none));
        }
        return facts;
    }
    // The slowest flows. A flow that did not finish counts as slower than any flow that did.
    let time = |m: &Message| {
        let flow = books.last_piece(m);
        let total = FlowTime::total(&measured.times[flow]);
        (measured.flows[flow].finished.is_none(), total)
    };
    let mut order: Vec<(bool, Span, usize)> = experiment
        .messages
        .iter()
        .enumerate()
        .map(|(i, m)| {
            let (unfinished, total) = time(m);
            (unfinished, total, i)
        })
        .collect();
    order.retain(|(_, total, _)| *total > Span::ZERO);
    order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
    for (rank, (unfinished, _, i)) in order.iter().take(FLOWS).enumerate() {
        let message = &experiment.messages[*i];
        let what = experiment.message_name(message);
        let name = if rank == 0 { "slowest".to_string() } else { what.clone() };
        let mut one = books.facts(name, what.clone(), "flow", &books.account(books.last_piece(message)));
        if *unfinished {
            one.sentence = one.sentence.replacen(" spent ", " did not finish and spent ", 1);
        }
        facts.push(one);
    }
    if order.is_empty() {
        facts.push(books.facts("slowest".into(), String::new(), "flow", &Account::default()));
    }
    let mut classes = vec![Account::default(); experiment.classes.len()];
    for (_, _, i) in &order {
        let message = &experiment.messages[*i];
        classes[usize::from(message.class)].merge(&books.account(books.last_piece(message)));
    }
    for (class, account) in experiment.classes.iter().zip(&classes) {
        let what = format!("the flows of {class}");
        facts.push(books.facts(format!("class.{class}"), what, "class", account));
    }
    facts.extend(chain::facts(&books));
    facts
}
