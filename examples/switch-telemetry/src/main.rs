//! A program of your own at every switch: in-band telemetry. Each switch reports the arrival of each data packet, and a
//! collector joins the reports of a packet into its path and its times.
//!
//! `cargo run -p switch-telemetry` compares the slowest links between switches for sprayed and for hashed packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use strandway_fabric::NodeId;
use strandway_import::Problems;
use strandway_lab::{Experiment, Scenario, check, simulate};
use strandway_sim::{Control, simulate_programs};

// snippet: begin
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Fate, Program, Scope};
use strandway_proto::{HostId, Packet, Time};

/// A report of one switch about one packet, as INT's mode "XD" exports it: the packet, and when it arrived.
struct Postcard {
    packet: (HostId, HostId, u32),
    at: Time,
}

/// Reports each whole data packet, and forwards every packet.
struct Telemetry {
    postcards: Arc<Mutex<Vec<Postcard>>>,
}

impl Program for Telemetry {
    /// The default, `Scope::Fragments`, is for switches that add gradients.
    fn scope(&self) -> Scope {
        Scope::All
    }

    fn handle_packet(&mut self, now: Time, packet: &Packet) -> Fate {
        if let Header::Data(data) = &packet.header
            && !packet.is_control()
        {
            let packet = (packet.source, packet.destination, data.psn.get());
            self.postcards.lock().expect("no thread panics").push(Postcard { packet, at: now });
        }
        Fate::Forward
    }

    /// It sends nothing and sets no timer.
    fn poll_act(&mut self) -> Option<Act> {
        None
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}
// snippet: end

/// Sixty-four hosts at 400 Gb/s, each of which sends 1 MB to another one.
const SCENARIO: &str = r#"
[fabric]
kind = "leaf-spine"
hosts = 64
hosts_per_leaf = 8
[profile]
name = "PROFILE"
[workload]
kind = "permutation"
size = "1 MB"
"#;

/// The mean and the longest time in microseconds from the arrival at one switch to the arrival at the next.
struct Delay {
    from: u32,
    to: u32,
    packets: u64,
    mean: f64,
    max: f64,
}

/// Joins the postcards of each packet, and sorts pairs of switches by their mean delay, the slowest first. A packet
/// that was sent again has the number of the first one, so its postcards are left out.
fn join(postcards: &BTreeMap<u32, Arc<Mutex<Vec<Postcard>>>>) -> Vec<Delay> {
    let mut paths: BTreeMap<(HostId, HostId, u32), Vec<(Time, u32)>> = BTreeMap::new();
    for (&switch, cards) in postcards {
        for card in cards.lock().expect("no thread panics").iter() {
            paths.entry(card.packet).or_default().push((card.at, switch));
        }
    }
    let mut delays: BTreeMap<(u32, u32), (u64, u64, u64)> = BTreeMap::new();
    for path in paths.values_mut().filter(|path| path.len() <= 3) {
        path.sort();
        for hop in path.windows(2) {
            let delay = hop[1].0.since(hop[0].0).0;
            let (packets, sum, max) = delays.entry((hop[0].1, hop[1].1)).or_default();
            (*packets, *sum, *max) = (*packets + 1, *sum + delay, delay.max(*max));
        }
    }
    let us = |ps: f64| ps / 1e6;
    let delay = |((from, to), (packets, sum, max)): ((u32, u32), (u64, u64, u64))| Delay {
        from,
        to,
        packets,
        mean: us(sum as f64 / packets as f64),
        max: us(max as f64),
    };
    let mut delays: Vec<Delay> = delays.into_iter().map(delay).collect();
    delays.sort_by(|a, b| b.mean.total_cmp(&a.mean));
    delays
}

/// Runs a profile with telemetry at every switch.
fn delays(profile: &str) -> Result<(Experiment, Vec<Delay>), Problems> {
    let experiment = check(&Scenario::from_text("scenario", &SCENARIO.replace("PROFILE", profile))?)?;
    let topology = &experiment.plan.topology;
    let switches = (topology.hosts()..topology.nodes()).map(|switch| (switch, Arc::default()));
    let postcards: BTreeMap<u32, Arc<Mutex<Vec<Postcard>>>> = switches.collect();
    let telemetry = |switch: NodeId| -> Option<Box<dyn Program>> {
        Some(Box::new(Telemetry { postcards: Arc::clone(&postcards[&switch.0]) }))
    };
    let programs = experiment.programs().with_switches(&telemetry);
    let watched = simulate_programs(&experiment.plan, &programs, &Control::new());
    assert_eq!(watched.digest, simulate(&experiment, &Control::new()).digest, "watching changes nothing");
    let delays = join(&postcards);
    Ok((experiment, delays))
}

fn main() -> Result<(), Problems> {
    let mut slowest = Vec::new();
    for profile in ["uec", "rocev2"] {
        let (experiment, delays) = delays(profile)?;
        println!("{profile}: {} links between switches, the slowest:", delays.len());
        for delay in &delays[..3] {
            let name = |switch| experiment.plan.topology.node_name(NodeId(switch));
            let (from, to) = (name(delay.from), name(delay.to));
            println!("  {from} -> {to}: {} packets, mean {:.2} us, max {:.2} us", delay.packets, delay.mean, delay.max);
        }
        slowest.push(delays[0].mean);
    }
    // `uec` sprays each flow over all spines; `rocev2` hashes several whole flows to one uplink.
    assert!(slowest[1] > 2.0 * slowest[0], "hashed flows wait longer than sprayed ones: {slowest:?} us");
    Ok(())
}
