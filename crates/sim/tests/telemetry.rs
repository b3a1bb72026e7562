//! The records that switches add to packets, against times and bytes that can be calculated by hand.
//!
//! A packet is 4,096 B of payload and 64 B of headers; at 400 Gb/s it takes 83.2 ns. Every link takes 1 us.

use super::support::*;
use std::sync::{Arc, Mutex};
use strandway_fabric::plan::PfcSettings;
use strandway_fabric::{Measurements, Plan};
use strandway_proto::congestion::{AckSample, Congestion, CongestionConfig, FixedConfig, LossSample};
use strandway_proto::telemetry::{HopRecord, Telemetry};
use strandway_proto::{Bytes, HostId, Profile, Rate, Time};

const PACKET: u64 = 4160;
const TX: u64 = PACKET * 20;

/// The records that each sender got: the arrival of the answer, and the records.
type Heard = Arc<Mutex<Vec<(Time, Vec<HopRecord>)>>>;

/// A window that never changes, and a copy of every record.
struct Listener(Heard);

impl Congestion for Listener {
    fn on_telemetry(&mut self, now: Time, telemetry: &Telemetry) {
        self.0.lock().expect("no panic").push((now, telemetry.records().to_vec()));
    }
    fn on_ack(&mut self, _: &AckSample) {}
    fn on_loss(&mut self, _: &LossSample) {}
    fn window(&self) -> Bytes {
        Bytes(1 << 24)
    }
}

/// A plan whose senders listen, with an answer for every packet.
fn listening(mut plan: Plan) -> (Plan, Heard) {
    let heard = Heard::default();
    let shared = Arc::clone(&heard);
    let profile = Arc::make_mut(&mut plan.profiles[0]);
    profile.congestion = CongestionConfig::Custom(Arc::new(move |_| Box::new(Listener(Arc::clone(&shared)))));
    profile.transport.ack_every = Bytes(1);
    (plan, heard)
}

/// The records of a run, in order of the times and links of their last hops.
fn records(plan: Plan) -> (Measurements, Vec<Vec<HopRecord>>) {
    let (plan, heard) = listening(plan);
    let m = run(&plan);
    let mut all: Vec<Vec<HopRecord>> = heard.lock().expect("no panic").iter().map(|(_, r)| r.clone()).collect();
    all.sort_by_key(|records| records.last().map(|r| (r.time, r.link)));
    (m, all)
}

fn rocev2() -> Profile {
    preset("rocev2")
}

#[test]
fn every_switch_on_the_way_tells_its_time_its_bytes_its_queue_and_its_rate() {
    // Three switches: leaf, spine, leaf. A packet is sent when it is complete, so it leaves the nth switch after n
    // times TX and n links; behind it comes the next one.
    let topology = leaf_spine(8, 2, 1);
    let route = topology.source_route(HostId(0), HostId(7), Default::default());
    let (_, all) = records(plan(topology, rocev2(), &[(0, 7, 5 * 4096)]));
    assert_eq!(all.len(), 5);
    for (packet, records) in (0..).zip(&all) {
        assert_eq!(records.len(), 3);
        for (hop, record) in (1..).zip(records) {
            let time = Time((packet + hop) * TX + hop * US);
            let expect = HopRecord {
                link: route[hop as usize].0,
                queue: 0,
                time,
                sent: packet * PACKET,
                rate: Rate::from_gbps(400),
            };
            assert_eq!(*record, expect, "packet {packet}, hop {hop}");
        }
    }
}

/// Three hosts send to a fourth one, four packets each.
fn incast() -> Plan {
    plan(leaf_spine(4, 4, 1), rocev2(), &[(0, 3, 4 * 4096), (1, 3, 4 * 4096), (2, 3, 4 * 4096)])
}

#[test]
fn a_queue_counts_the_bytes_that_wait_behind_the_packet() {
    let mut lazy = incast();
    lazy.ports.pfc = None;
    let mut eager = incast();
    eager.ports.pfc = Some(PfcSettings { xoff: Bytes(1 << 20), xon: Bytes(1 << 20), headroom: Bytes(1 << 20) });
    let mut classless = lazy.clone();
    (classless.ports.priority, classless.ports.trim, classless.ports.ecn) = (false, None, None);
    for (name, plan) in [("lazy", lazy), ("eager", eager), ("one class", classless)] {
        let (_, all) = records(plan);
        // Three packets arrive every TX, from TX + LINK on, and one leaves. At the start of packet n, 3 (n + 1) have
        // arrived until twelve have.
        for (n, records) in (0..).zip(&all) {
            let waiting = (3 * (n + 1)).min(12) - (n + 1);
            // The first packet finds an idle port and leaves before its rivals of the same instant join.
            let waiting = if n == 0 { 0 } else { waiting };
            let expect = (Time((n + 1) * TX + US), n * PACKET, (waiting * PACKET) as u32);
            assert_eq!((records[0].time, records[0].sent, records[0].queue), expect, "{name}, packet {n}");
        }
        assert_eq!(all.len(), 12, "{name}");
    }
}

#[test]
fn records_cross_slices_and_change_no_run() {
    let flows = permutation(32, 200_000, 5);
    let make = |threads| Plan { threads, ..plan(leaf_spine(32, 4, 4), rocev2(), &flows) };
    let silent = {
        let (mut plan, _) = listening(make(1));
        Arc::make_mut(&mut plan.profiles[0]).congestion = CongestionConfig::Fixed(FixedConfig { window_bdp: 1000.0 });
        run(&plan)
    };
    let mut all = Vec::new();
    for threads in [1, 2, 7] {
        let (m, records) = records(make(threads));
        assert_eq!((&silent.flows, silent.digest), (&m.flows, m.digest), "with records, on {threads} threads");
        all.push(records);
    }
    assert!(all[0].iter().any(|records| records.len() == 3));
    assert!(all[0] == all[1] && all[0] == all[2], "records differ by threads");
}
