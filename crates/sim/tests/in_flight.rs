//! Two ways to count the bytes in flight: by the packets that acknowledgements report, as our senders do, and by the
//! receiver's count of bytes, which is in every acknowledgement. This test computes both from captured packets.
//!
//! A declared loss is subtracted in both ways, so they differ by the bytes that the receiver has counted and that no
//! acknowledgement has reported yet. `cargo test -p strandway-sim --test all in_flight:: -- --nocapture` prints the
//! table of `docs/protocols/strack.md`.

use super::support::*;
use std::collections::BTreeMap;
use strandway_fabric::fault::FaultKind;
use strandway_fabric::loss::Burst;
use strandway_fabric::plan::CapturePlan;
use strandway_fabric::{LinkId, Plan};
use strandway_proto::HostId;
use strandway_proto::packet::{Flags, Header};

const PACKET: u64 = 4096;

/// One sender, as its captured packets show it. All bytes are payload.
#[derive(Default)]
struct Sender {
    /// The length of each packet that was sent; zero once an acknowledgement has reported it.
    unreported: BTreeMap<u64, u64>,
    sent: u64,
    reported: u64,
    /// The largest count of the receiver in any acknowledgement.
    counted: u64,
}

impl Sender {
    fn report(&mut self, psn: u64) {
        if let Some(length) = self.unreported.get_mut(&psn) {
            self.reported += std::mem::take(length);
        }
    }
}

/// The differences at all acknowledgements of a run.
#[derive(Debug, Default)]
struct Apart {
    acks: u64,
    /// In payload bytes.
    sum: u64,
    most: u64,
    in_flight: u64,
    /// Acknowledgements that arrive when the two ways agree.
    equal: u64,
}

/// A permutation of 2 MB among 128 hosts, with losses between leaves and spines.
fn lossy(name: &str, probability: f64) -> Plan {
    let topology = leaf_spine(128, 16, 16);
    let mut plan = plan(topology, preset(name), &permutation(128, 2_000_000, 1));
    let between: Vec<LinkId> = (0..plan.topology.links())
        .map(LinkId)
        .filter(|&l| plan.topology.ends(l).is_some_and(|e| e.level == 1))
        .collect();
    assert_eq!(between.len(), 2 * 8 * 16);
    if probability > 0.0 {
        plan.faults = vec![fault(&between, FaultKind::Loss { probability, burst: Burst::NONE }, 0, u64::MAX)];
    }
    plan
}

fn apart(mut plan: Plan) -> Apart {
    let topology = &plan.topology;
    let nics: Vec<LinkId> =
        (0..128).map(|h| topology.source_route(HostId(h), HostId((h + 64) % 128), Default::default())[0]).collect();
    let into: Vec<LinkId> = nics.iter().map(|&nic| topology.ends(nic).expect("a NIC's link").reverse).collect();
    plan.capture = Some(CapturePlan { links: [nics.clone(), into.clone()].concat(), limit: 10_000_000 });
    let m = run(&plan);
    let mut senders: Vec<Sender> = (0..128).map(|_| Sender::default()).collect();
    let mut apart = Apart::default();
    for c in &m.captured {
        match c.packet.header {
            Header::Data(data) if c.link == nics[c.packet.source.0 as usize] => {
                let sender = &mut senders[c.packet.source.0 as usize];
                let psn = u64::from(data.psn.get());
                if let std::collections::btree_map::Entry::Vacant(new) = sender.unreported.entry(psn) {
                    new.insert(u64::from(data.length));
                    sender.sent += u64::from(data.length);
                }
            }
            Header::Ack(ack) if c.link == into[c.packet.destination.0 as usize] => {
                let sender = &mut senders[c.packet.destination.0 as usize];
                let (base, sack) = (u64::from({ ack.sack_base }.get()), { ack.sack }.get());
                (0..u64::from({ ack.cumulative }.get())).for_each(|psn| sender.report(psn));
                (0..64).filter(|bit| sack >> bit & 1 == 1).for_each(|bit| sender.report(base + bit));
                if !c.packet.flags.has(Flags::PROBE_ANSWER) {
                    sender.report(u64::from({ ack.acked }.get()));
                }
                // The count is rounded up to 256 B; only the last packet of a message is no multiple of that.
                sender.counted = sender.counted.max((u64::from(ack.received) * 256).min(sender.sent));
                assert!(sender.counted >= sender.reported, "a packet is reported and not counted");
                let difference = sender.counted - sender.reported;
                apart.acks += 1;
                apart.sum += difference;
                apart.most = apart.most.max(difference);
                apart.in_flight += sender.sent - sender.reported;
                apart.equal += u64::from(difference == 0);
            }
            _ => {}
        }
    }
    apart
}

#[test]
fn the_receivers_count_is_ahead_of_reported_packets_by_few_of_them() {
    println!("| profile | losses | acknowledgements | equal | mean | most | mean, of bytes in flight |");
    for name in ["strack", "strack_fast", "uec"] {
        for probability in [0.0, 1e-4, 1e-3] {
            let a = apart(lossy(name, probability));
            let packets = |bytes: u64| bytes as f64 / PACKET as f64;
            let (mean, share) = (packets(a.sum) / a.acks as f64, a.sum as f64 / a.in_flight.max(1) as f64);
            let equal = a.equal as f64 / a.acks as f64;
            println!(
                "| `{name}` | {probability} | {} | {:.0} % | {mean:.2} packets | {:.0} packets | {:.1} % |",
                a.acks,
                100.0 * equal,
                packets(a.most),
                100.0 * share
            );
            assert!(a.acks > 10_000, "{name}: {a:?}");
            assert!(share < 0.05, "{name}, {probability}: {a:?}");
        }
    }
}
