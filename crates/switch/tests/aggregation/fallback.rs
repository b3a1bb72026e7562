//! E12 of the ESA sheet: without preemption, a pool of random slots refuses a / (1 + a) of all keys. Here `a` is the
//! rate of keys times the time for which each key holds its slot, divided by the number of slots. Each slot is a loss
//! system with one server, so only the mean of the times matters.

use std::collections::BinaryHeap;
use std::sync::Arc;
use strandway_fabric::Topology;
use strandway_fabric::topology::{Level, Shape as Fabric};
use strandway_proto::aggregate::{Fragment, Kind, Marks};
use strandway_proto::packet::Header;
use strandway_proto::program::{Act, Program};
use strandway_proto::rng::{Random, StreamKind};
use strandway_proto::units::{Rate, Span, Time};
use strandway_proto::{HostId, Packet};
use strandway_switch::{AtpProgram, Index, Job, Shape, Sharing};

const SLOTS: u32 = 500;

fn job() -> Arc<Job> {
    let fabric = Fabric { hosts: 3, planes: 1, hosts_per_leaf: 3, spines: 1, leaf_bundle: 1, pods: None };
    let level = Level { rate: Rate::from_gbps(100), latency: Span::from_ns(500) };
    let topology = Topology::new(fabric, [level; 3], [Span::ZERO; 3]).expect("a valid fabric");
    let shape = Shape {
        number: 1,
        group: 0,
        elements: 62,
        data_bytes: 330,
        control_bytes: 84,
        window: 1 << 20,
        slots: SLOTS,
        index: Index::PerKey,
        sharing: Sharing::All,
        first: 0,
        rtt: Span::from_us(10),
    };
    Arc::new(Job::new(shape, &topology, vec![HostId(0), HostId(1)], HostId(2)).expect("a job"))
}

/// The share of keys that are refused.
fn refused(load: f64, seed: u64) -> f64 {
    let job = job();
    let mut program = AtpProgram::new(&[Arc::clone(&job)], 0, SLOTS, Span::from_us(10), Span::ZERO);
    let mut random = Random::new(seed, StreamKind::Workload, 12);
    let mut answers: BinaryHeap<std::cmp::Reverse<(u64, u64)>> = BinaryHeap::new();
    let (mut now, mut keys, mut refused) = (0.0, 0, 0);
    let mean_hold = 1e6;
    for key in 0..60_000u64 {
        now += -(1.0 - random.unit()).ln() * mean_hold / (load * f64::from(SLOTS));
        while let Some(&std::cmp::Reverse((at, done))) = answers.peek().filter(|a| a.0.0 <= now as u64) {
            answers.pop();
            let fragment = Fragment { marks: Marks::FROM_SERVER, ..job.fragment(Kind::Result, done) };
            let packet = job.packet(HostId(2).near(), HostId::group(0), 0, fragment);
            program.handle_packet(Time(at), &packet);
        }
        // All fragments of a key at one instant: it is refused as a whole, or not at all.
        let mut collided = false;
        for worker in 0..2u16 {
            let (rack, bit) = job.place(worker);
            let fragment = Fragment {
                fan_in: job.fan_in(0, key),
                workers: 1 << bit,
                racks: 1 << rack,
                sender: worker,
                ..job.fragment(Kind::Data, key)
            };
            let packet: Packet = job.packet(HostId(u32::from(worker)), HostId(2), 0, fragment);
            program.handle_packet(Time(now as u64), &packet);
            while let Some(act) = program.poll_act() {
                if let Act::Send { packet, .. } = act
                    && let Header::Fragment(out) = packet.header
                {
                    collided |= out.marks.has(Marks::COLLIDED);
                }
            }
        }
        keys += 1;
        refused += u32::from(collided);
        if !collided {
            // Half of the keys hold their slots for nine times as long as the others.
            let hold = mean_hold * if random.chance(0.5) { 0.2 } else { 1.8 };
            answers.push(std::cmp::Reverse(((now + hold) as u64, key)));
        }
    }
    f64::from(refused) / f64::from(keys)
}

#[test]
fn the_share_of_refused_keys_is_that_of_a_loss_system() {
    for (load, expected) in [(0.05, 0.048), (0.1, 0.091), (0.25, 0.2), (0.5, 0.333), (1.0, 0.5)] {
        let share = refused(load, 7);
        assert!((share - load / (1.0 + load)).abs() < 0.02, "a = {load}: {share}, not {expected}");
    }
}
