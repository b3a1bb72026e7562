//! Random tests: a seed selects fabric, faults, workloads, profiles and settings. The rules below must hold for every
//! seed.
//!
//! Every run is made with one thread and with three, and must give the same digest. A flow that ends has begun, arrived
//! and been acknowledged, in this order. Every byte is delivered once. Packet counts balance over the whole run and,
//! without faults, at every switch. If a flow does not finish, there is a fault. Connections that opened at first use
//! are closed at the end.
//!
//! A failure prints a command that replays it. `WANDER=FROM..TO` selects the seeds: `WANDER=0..50000` takes an hour.

use std::fmt::Write;
use std::ops::Range;
use strandway_collective::Operation;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::measure::{End, Measurements};
use strandway_fabric::topology::NodeKind;
use strandway_fabric::{LinkId, NodeId};
use strandway_lab::{Experiment, Scenario, simulate};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::{Span, Time};
use strandway_sim::{Control, simulate_programs};

/// The seeds of every test run.
const SEEDS: Range<u64> = 0..500;
/// Seeds of a walk of 50,000 that once failed. Digests differed between one thread and three, because several events of
/// one instant and link were put in order by an unstable sort; a switch whose program made packets on its own paused a
/// port of another node; and a connection that carried only letters and then slept closed at one end only; in 34,657
/// ATP's workers met in one full queue for ever.
const FOUND: [u64; 17] = [
    4889, 5269, 8213, 8692, 12_076, 13_993, 16_793, 18_457, 2985, 10_377, 21_677, 825, 5011, 10_429, 13_600, 15_616,
    34_657,
];

struct Wanderer {
    random: Random,
    text: String,
}

impl Wanderer {
    fn below(&mut self, n: u32) -> u32 {
        self.random.below(n)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    fn line(&mut self, line: impl std::fmt::Display) {
        writeln!(self.text, "{line}").expect("text grows");
    }

    /// A scenario, and true if it has faults.
    fn scenario(seed: u64) -> (String, bool) {
        let mut w = Wanderer { random: Random::new(seed, StreamKind::Workload, 77), text: String::new() };
        let profile = if seed % 5 == 3 {
            w.pick(&["sdr_sr", "sdr_nack", "sdr_xor", "sdr_mds", "sdr_auto"])
        } else {
            w.pick(&["uec", "uec", "strack", "strack_fast", "prime", "mrc", "rocev2", "rocev2_sr"])
        };
        // Every seventh seed has sites.
        let hosts = if seed % 7 == 6 { w.sites(profile) } else { w.fabric(profile) };
        w.line(format_args!("[profile]\nname = \"{profile}\""));
        if w.one_in(3) && profile != "mrc" {
            let path = w.pick(&["single", "oblivious", "bitmap", "reps", "mixed"]);
            w.line(format_args!("path = \"{path}\""));
        }
        if w.one_in(6) && !matches!(profile, "mrc" | "rocev2") {
            let congestion = w.pick(&["nscc", "dctcp", "swift", "fixed"]);
            w.line(format_args!("congestion = \"{congestion}\""));
        }
        for _ in 0..1 + w.below(3) {
            w.workload(hosts);
        }
        // Every fourth seed has switches that add.
        if seed % 4 == 1 {
            w.in_network();
        }
        let lossy = w.text.contains("\nloss = ");
        let faults = if w.one_in(2) { 0 } else { 1 + w.below(3) };
        for _ in 0..faults {
            w.fault();
        }
        let seed = w.below(1000);
        // Without a fault a run must end by itself. With few slots over long links, switches that add take a round trip
        // for every few packets, up to seconds in all. ATP over two levels with few slots and small queues makes
        // progress mostly by timers.
        let limit = match (lossy || faults > 0, w.text.contains("[switch]")) {
            (false, _) => 8_000,
            (true, true) => 400,
            (true, false) => 60,
        };
        w.line(format_args!("[run]\nseed = {seed}\ntime_limit = \"{limit} ms\""));
        if w.one_in(4) {
            w.line("sample = \"3 us\"");
        }
        (w.text, lossy || faults > 0)
    }

    /// Writes `[fabric]`; returns the number of hosts.
    fn fabric(&mut self, profile: &str) -> u32 {
        let planes = if profile == "mrc" { self.pick(&[2, 4]) } else { self.pick(&[1, 1, 1, 2, 4]) };
        let hosts = if self.one_in(5) {
            self.line("[fabric]\nkind = \"fat-tree\"\nk = 4");
            16
        } else {
            let (hosts, per_leaf) = (3 + self.below(22), 1 + self.below(8));
            let spines = 1 + self.below(4);
            self.line(format_args!(
                "[fabric]\nkind = \"leaf-spine\"\nhosts = {hosts}\nhosts_per_leaf = {per_leaf}\nspines = {spines}"
            ));
            if self.one_in(5) {
                self.line("bundle = 2");
            }
            hosts
        };
        self.line(format_args!("planes = {planes}"));
        let rate = self.pick(&["100 Gbps", "400 Gbps", "800 Gbps"]);
        self.line(format_args!("rate = \"{rate}\""));
        let latency = self.pick(&["100 ns", "500 ns", "1 us", "1 us", "5 us", "50 us"]);
        self.line(format_args!("latency = \"{latency}\""));
        if self.one_in(4) {
            self.line("switch_latency = \"300 ns\"");
        }
        if self.one_in(3) {
            let queue = self.pick(&["20 packets", "60 packets", "1 MB"]);
            self.line(format_args!("queue = \"{queue}\""));
        }
        if self.one_in(4) {
            let trimming = self.one_in(2);
            self.line(format_args!("trimming = {trimming}"));
        }
        if self.one_in(8) {
            self.line("pfc = true");
        }
        if self.one_in(6) {
            self.line("priority = false");
        }
        hosts
    }

    /// Writes `[fabric]` with long links; returns the number of hosts.
    fn sites(&mut self, profile: &str) -> u32 {
        let (sites, each) = (2 + self.below(4), 1 + self.below(5));
        let planes = if profile == "mrc" { self.pick(&[2, 4]) } else { self.pick(&[1, 1, 2]) };
        self.line(format_args!(
            "[fabric]\nkind = \"sites\"\nsites = {sites}\nhosts_per_site = {each}\nplanes = {planes}"
        ));
        let rate = self.pick(&["100 Gbps", "400 Gbps"]);
        let (long_rate, far) = (self.pick(&["40 Gbps", "400 Gbps"]), self.pick(&["1 us", "20 us", "300 us", "1 ms"]));
        self.line(format_args!("rate = \"{rate}\"\nlong_rate = \"{long_rate}\"\nlong_latency = \"{far}\""));
        if self.one_in(2) {
            let bundle = 1 + self.below(4);
            self.line(format_args!("bundle = {bundle}"));
        }
        if self.one_in(3) {
            let queue = self.pick(&["20 us", "200 kB", "0.5 BDP"]);
            self.line(format_args!("long_queue = \"{queue}\""));
        }
        if self.one_in(2) {
            let loss = self.pick(&[0.001, 0.01, 0.05]);
            self.line(format_args!("loss = {loss}"));
            let burst = self.pick(&["", "burst = 3", "burst = \"2 us\"", "loss_one_way = true"]);
            self.line(burst);
        }
        if self.one_in(3) {
            self.line("[[fabric.long_links]]\nbetween = [1, 0]\nlong_latency = \"77 us\"");
        }
        sites * each
    }

    fn workload(&mut self, hosts: u32) {
        let size = self.pick(&["1 B", "4096 B", "20 kB", "100 kB", "300 kB"]);
        let kind = self.pick(&[
            "permutation",
            "incast",
            "outcast",
            "all-reduce",
            "all-gather",
            "all-to-all",
            "poisson",
            "all-gather",
            "broadcast",
        ]);
        self.line(format_args!("[[workload]]\nkind = \"{kind}\""));
        let name = format!("w{}", self.text.matches("[[workload]]").count());
        self.line(format_args!("name = \"{name}\""));
        match kind {
            "poisson" => self.line("size = \"30 kB\"\nload = 0.3\nflows = 40"),
            "incast" => self.line(format_args!("size = \"{size}\"\nsenders = {}", 1 + (hosts - 1).min(6) / 2)),
            "outcast" => self.line(format_args!("size = \"{size}\"\nreceivers = {}", 1 + (hosts - 1).min(6) / 2)),
            _ => self.line(format_args!("size = \"{size}\"")),
        }
        if matches!(kind, "permutation" | "incast" | "outcast") && self.one_in(3) {
            self.line("messages = 3\ngap = \"2 us\"");
        }
        if kind == "all-reduce" && hosts >= 8 && self.one_in(3) {
            self.line("ranks = 8\nalgorithm = \"halving-doubling\"");
        }
        let mut cast = false;
        if kind == "all-gather" && self.one_in(2) {
            let algorithm = self.pick(&["multicast", "multicast", "linear"]);
            self.line(format_args!("algorithm = \"{algorithm}\""));
            cast = algorithm == "multicast";
            if cast && self.one_in(2) {
                let chains = 1 + self.below(hosts);
                self.line(format_args!("chains = {chains}"));
            }
        }
        if kind == "broadcast" {
            let algorithm = self.pick(&["multicast", "multicast", "binomial", "k-nomial", "binary", "chain", "linear"]);
            let root = self.below(hosts);
            self.line(format_args!("algorithm = \"{algorithm}\"\nroot = {root}"));
            cast = algorithm == "multicast";
        }
        if cast {
            let more = self.pick(&["", "", "pace = 0", "trees = 1", "cutoff = \"artifact\"", "recovery = \"ring\""]);
            self.line(more);
        }
        if (kind.starts_with("all-") || kind == "broadcast") && self.one_in(3) {
            self.line("placement = \"random\"");
        }
        if !cast && self.one_in(4) {
            self.line("connections = 2");
        }
        if self.one_in(3) {
            let start = self.pick(&["1 us", "7 us", "100 us"]);
            self.line(format_args!("start = \"{start}\""));
        }
    }

    /// Writes jobs whose gradients switches add.
    fn in_network(&mut self) {
        let kind = self.pick(&["training", "training", "all-reduce", "reduce-scatter"]);
        let size = self.pick(&["1 B", "20 kB", "150 kB"]);
        self.line(format_args!("[[workload]]\nkind = \"{kind}\"\nname = \"added\"\nsize = \"{size}\""));
        match kind {
            "training" => {
                let stragglers = self.pick(&["0", "0.3", "[0, 1]"]);
                self.line(format_args!("layers = 3\niterations = 2\ncompute = \"20 us\"\nstragglers = {stragglers}"));
            }
            _ => self.line("algorithm = \"in-network\""),
        }
        if self.one_in(2) {
            self.line("placement = \"random\"");
        }
        if self.one_in(3) {
            self.line("ranks = 6\ngroup = 3");
        }
        let system = self.pick(&["esa", "esa", "atp", "switchml"]);
        // SwitchML has no congestion control: with many slots it overflows small queues.
        let slots = if system == "switchml" { self.pick(&[4, 30]) } else { self.pick(&[4, 30, 400, 20_000]) };
        self.line(format_args!("[switch]\nsystem = \"{system}\"\nslots = {slots}"));
        if system == "switchml" {
            self.line("timeout = \"500 us\"");
        }
        if system == "esa" {
            let results = self.pick(&["direct", "direct", "via_ps", "via_ps_free"]);
            let priority = self.pick(&["full", "random", "constant", "las"]);
            self.line(format_args!("results = \"{results}\"\npriority = \"{priority}\""));
        }
    }

    fn fault(&mut self) {
        let (below, up) = match () {
            () if self.text.contains("fat-tree") => ("host->leaf", "leaf->agg"),
            () if self.text.contains("\"sites\"") => ("host->site", "site->higher"),
            () => ("host->leaf", "leaf->spine"),
        };
        let tier = self.pick(&[below, up, up]);
        let (kind, count) = (self.pick(&["down", "down", "degrade", "loss"]), 1 + self.below(3));
        self.line(format_args!("[[faults]]\ntier = \"{tier}\"\ncount = {count}\npick = \"random\"\nkind = \"{kind}\""));
        if self.one_in(3) {
            self.line("one_way = true");
        }
        match kind {
            "down" if self.one_in(2) => self.line("silent = true"),
            "down" => {
                let reconverge = self.pick(&["0 us", "10 us", "1 ms"]);
                self.line(format_args!("reconverge = \"{reconverge}\""));
            }
            "degrade" => self.line("fraction = 0.25"),
            _ => {
                let probability = self.pick(&[0.001, 0.01, 0.1]);
                self.line(format_args!("probability = {probability}"));
            }
        }
        let from = self.pick(&["0 us", "3 us", "20 us", "100 us"]);
        self.line(format_args!("at = \"{from}\""));
        if self.one_in(2) {
            let until = self.pick(&["150 us", "1 ms"]);
            self.line(format_args!("until = \"{until}\""));
        }
    }
}

/// Checks all rules after a run.
fn check(experiment: &Experiment, m: &Measurements, faulty: bool) -> Result<(), String> {
    let plan = &experiment.plan;
    for (i, flow) in m.flows.iter().enumerate() {
        let ordered = flow.started.unwrap_or(Time::NEVER) <= flow.received.unwrap_or(Time::NEVER)
            && flow.received.unwrap_or(Time::NEVER) <= flow.finished.unwrap_or(Time::NEVER);
        if !ordered {
            return Err(format!("flow {i} has no order: {flow:?}"));
        }
    }
    let unfinished = m.flows.iter().filter(|f| f.finished.is_none()).count() as u64
        + m.tallies.iter().map(|t| t.started - t.finished).sum::<u64>();
    if m.end == End::Finished && unfinished > 0 {
        return Err(format!("finished, and {unfinished} messages are not"));
    }
    if m.end != End::Finished && !faulty {
        return Err(format!("{:?} without a fault, {unfinished} messages unfinished", m.end));
    }
    if m.packets.under_way() > 0 && m.end != End::TimeLimit {
        return Err(format!(
            "{:?}, {} packets are neither here nor there: {:?}",
            m.end,
            m.packets.under_way(),
            m.packets
        ));
    }
    if m.end != End::Finished {
        return Ok(());
    }
    let mut bytes = vec![0; plan.connections.len()];
    for flow in &plan.flows {
        bytes[flow.connection as usize] += flow.bytes;
    }
    for (c, (stats, bytes)) in m.connections.iter().zip(&bytes).enumerate() {
        if stats.delivered_bytes != *bytes {
            return Err(format!("connection {c} delivered {} bytes of {bytes}", stats.delivered_bytes));
        }
    }
    // A peer behind a dead link does not learn that a connection is closed.
    let cut_off = experiment.plan.faults.iter().any(|f| matches!(f.kind, FaultKind::Down { .. }));
    // Ranks of multicasts keep their connections for some round trips after their end.
    let time = m.simulated + Span::from_ms(50) < plan.time_limit
        || experiment.operations.iter().all(|operation| operation.multicast().is_none());
    // The time limit may also cut off an end that repeats its lost notice; its peer may still be open.
    let open = m.opened.left.saturating_sub(2 * m.opened.closing);
    if open > 0 && !cut_off && time {
        return Err(format!(
            "{open} ends of connections that opened at first use are left, at {}, and {} are closing",
            m.simulated, m.opened.closing
        ));
    }
    // Switches that add consume packets and make new ones.
    if faulty || experiment.aggregation.is_some() { Ok(()) } else { balance(experiment, m) }
}

/// Without faults, every packet that enters a switch leaves it or is dropped there.
fn balance(experiment: &Experiment, m: &Measurements) -> Result<(), String> {
    let topology = &experiment.plan.topology;
    let nodes = topology.node_bases()[4];
    let mut inward = vec![0u64; nodes as usize];
    let mut outward = vec![0u64; nodes as usize];
    for (i, link) in m.links.iter().enumerate() {
        let Some(ends) = topology.ends(LinkId(i as u32)) else { continue };
        inward[ends.to.0 as usize] += link.packets;
        outward[ends.from.0 as usize] += link.packets + u64::from(link.dropped);
    }
    let switches = || (0..nodes).map(NodeId).filter(|n| topology.describe(*n).0 != NodeKind::Host);
    let copies = m.packets.copies + m.packets.copies_trimmed;
    if copies > 0 {
        // Copies are counted over all switches together.
        let inward = copies + switches().map(|n| inward[n.0 as usize]).sum::<u64>();
        let outward = switches().map(|n| outward[n.0 as usize]).sum::<u64>();
        return match inward == outward {
            true => Ok(()),
            false => {
                Err(format!("{inward} packets came into switches or were made there, {outward} left or were dropped"))
            }
        };
    }
    for node in switches() {
        let (inward, outward) = (inward[node.0 as usize], outward[node.0 as usize]);
        if inward != outward {
            return Err(format!("{inward} packets came into node {}, {outward} left it or were dropped", node.0));
        }
    }
    Ok(())
}

/// A way to run a scenario, with or without faults, on this many threads. Returns its digest, or `None` if the scenario
/// is invalid.
type Way = fn(&str, bool, usize) -> Result<Option<u64>, String>;

/// Runs the scenario without changes.
fn walk(text: &str, faulty: bool, threads: usize) -> Result<Option<u64>, String> {
    let scenario = Scenario::from_text("wandering", text).map_err(|e| e.to_string())?;
    let Ok(mut experiment) = strandway_lab::check(&scenario) else { return Ok(None) };
    experiment.plan.threads = threads;
    let m = simulate(&experiment, &Control::new());
    check(&experiment, &m, faulty).map(|()| Some(m.digest))
}

/// Runs it with connections that open at first use, and messages without entries.
fn walk_on_demand(text: &str, faulty: bool, threads: usize) -> Result<Option<u64>, String> {
    let scenario = Scenario::from_text("wandering", text).map_err(|e| e.to_string())?;
    let Ok(mut experiment) = strandway_lab::check(&scenario) else { return Ok(None) };
    experiment.plan.threads = threads;
    let is_row = |start: &strandway_fabric::plan::Start| *start == strandway_fabric::plan::Start::Program;
    if !experiment.plan.flows.iter().all(|f| is_row(&f.start)) || experiment.aggregation.is_some() {
        return Ok(None);
    }
    let (mut message, mut channel) = (0, 0);
    experiment.plan.flows.clear();
    experiment.plan.connections.clear();
    for operation in &mut experiment.operations {
        match operation {
            Operation::Messages(group) => {
                (group.first_channel, group.on_demand) = (channel, true);
                channel += group.channels() as u32;
            }
            Operation::Multicast(multicast) => {
                multicast.channel = channel;
                channel += 2;
            }
            _ => continue,
        }
        operation.number_from(&mut message);
    }
    let m = simulate_programs(&experiment.plan, &experiment.programs(), &Control::new());
    check(&experiment, &m, faulty).map(|()| Some(m.digest))
}

fn seeds() -> Vec<u64> {
    let Ok(asked) = std::env::var("WANDER") else { return SEEDS.chain(FOUND).collect() };
    let (from, to) = asked.split_once("..").unwrap_or((&asked, ""));
    let from = from.parse().expect("WANDER=FROM..TO");
    (from..to.parse().unwrap_or(from + 1)).collect()
}

#[test]
fn every_seed_keeps_the_invariants() {
    let (mut walked, mut on_demand, mut failures) = (0, 0, Vec::new());
    let seeds = seeds();
    for &seed in &seeds {
        let (text, faulty) = Wanderer::scenario(seed);
        let ways: [Way; 2] = [walk, walk_on_demand];
        for (way, count) in ways.into_iter().zip([&mut walked, &mut on_demand]) {
            // A panic counts as a failure, too, so that it has a line that replays it.
            let both = || way(&text, faulty, 1).and_then(|one| Ok((one, way(&text, faulty, 3)?)));
            let both = std::panic::catch_unwind(both).unwrap_or_else(|_| Err("it panicked".to_string()));
            match both {
                Ok((one, three)) if one == three => *count += u64::from(one.is_some()),
                Ok((one, three)) => failures.push((seed, format!("digests differ: {one:x?} and {three:x?}"))),
                Err(what) => failures.push((seed, what)),
            }
        }
    }
    for (seed, what) in failures.iter().take(10) {
        if seeds.len() == 1 {
            eprintln!("{}", Wanderer::scenario(*seed).0);
        }
        eprintln!("WANDER={seed} cargo test -p strandway-lab --test wandering   # {what}");
    }
    assert!(failures.is_empty(), "{} of {} failed, the first: {:?}", failures.len(), seeds.len(), failures.first());
    // Most drawn scenarios must be valid.
    let all = seeds.len() as u64;
    assert!(all < 100 || (walked > all * 3 / 5 && on_demand > all / 20), "{walked} and {on_demand} of {all} walked");
}

/// Found by seed 1166: a program has a timer at the same instant at which its host's port goes down, and an earlier
/// timer was still pending when the fault was handled.
#[test]
fn a_flow_begins_before_a_fault_of_the_same_instant_on_any_number_of_threads() {
    let text = "[fabric]\nkind = 'leaf-spine'\nhosts = 17\nhosts_per_leaf = 3\nspines = 1\nbundle = 2\nrate = '100 Gbps'\n\
                latency = '5 us'\nswitch_latency = '300 ns'\n[profile]\nname = 'rocev2_sr'\n\
                [[workload]]\nkind = 'permutation'\nname = 'w1'\nsize = '1 B'\nmessages = 3\ngap = '2 us'\nstart = '100 us'\n\
                [[workload]]\nkind = 'permutation'\nname = 'w3'\nsize = '20 kB'\nmessages = 3\ngap = '2 us'\nconnections = 2\n\
                start = '1 us'\n[[faults]]\ntier = 'host->leaf'\ncount = 1\npick = 'random'\nkind = 'down'\n\
                reconverge = '10 us'\nat = '100 us'\n[run]\nseed = 723\ntime_limit = '60 ms'\n";
    let scenario = Scenario::from_text("instant.toml", text).unwrap_or_else(|e| panic!("{e}"));
    let digests = [1, 2, 3, 7].map(|threads| {
        let mut experiment = strandway_lab::check(&scenario).unwrap_or_else(|e| panic!("{e}"));
        experiment.plan.threads = threads;
        strandway_lab::run(&experiment, &Control::new()).report.head.digest
    });
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}
