//! Programs of switches that see all packets: they see each packet once per switch, and watching changes nothing.

use super::support::{leaf_spine, permutation, plan, preset, run};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use strandway_collective::Programs;
use strandway_fabric::measure::End;
use strandway_fabric::{Measurements, NodeId, Plan};
use strandway_proto::program::{Act, Fate, Program, Scope};
use strandway_proto::{HostId, Packet, Time};
use strandway_sim::{Control, simulate_programs};

/// Packets by switch: all of them, and those of the control class.
type Seen = Arc<Mutex<BTreeMap<u32, (u64, u64)>>>;

/// Counts packets, and consumes those to one host.
struct Counter {
    switch: u32,
    scope: Scope,
    refused: Option<HostId>,
    seen: Seen,
}

impl Program for Counter {
    fn scope(&self) -> Scope {
        self.scope
    }

    fn handle_packet(&mut self, _: Time, packet: &Packet) -> Fate {
        let mut seen = self.seen.lock().expect("no thread panics");
        let (all, control) = seen.entry(self.switch).or_default();
        *all += 1;
        *control += u64::from(packet.is_control());
        if self.refused == Some(packet.destination) { Fate::Consume } else { Fate::Forward }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_act(&mut self) -> Option<Act> {
        None
    }

    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

/// Runs a plan with a counter at every switch.
fn watched(plan: &Plan, scope: Scope, refused: Option<HostId>) -> (Measurements, BTreeMap<u32, (u64, u64)>) {
    let seen = Seen::default();
    let counter = |switch: NodeId| -> Option<Box<dyn Program>> {
        Some(Box::new(Counter { switch: switch.0, scope, refused, seen: Arc::clone(&seen) }))
    };
    let programs = Programs::new(plan, &[]).with_switches(&counter);
    let measured = simulate_programs(plan, &programs, &Control::new());
    let seen = seen.lock().expect("no thread panics").clone();
    (measured, seen)
}

/// Sixteen hosts in a permutation. With PFC, ports of switches are eager.
fn crowded(name: &str, threads: usize) -> Plan {
    let mut plan = plan(leaf_spine(16, 4, 2), preset(name), &permutation(16, 300_000, 3));
    plan.rows = true;
    plan.threads = threads;
    plan
}

#[test]
fn a_program_that_only_watches_changes_no_result() {
    for name in ["uec", "rocev2", "strack"] {
        let alone = run(&crowded(name, 1));
        assert_eq!(alone.end, End::Finished, "{name}");
        let mut first = None;
        for threads in [1, 2, 7] {
            let (measured, seen) = watched(&crowded(name, threads), Scope::All, None);
            assert_eq!((measured.digest, measured.end), (alone.digest, alone.end), "{name} on {threads} threads");
            assert_eq!(measured.packets, alone.packets, "{name} on {threads} threads");
            assert_eq!(measured.packet_hops, alone.packet_hops, "{name} on {threads} threads");
            assert_eq!(*first.get_or_insert_with(|| seen.clone()), seen, "{name} on {threads} threads");
            // Each hop but the last one of a packet ends at a switch.
            let (all, control) = seen.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            assert!(
                all > measured.packet_hops / 2 && all < measured.packet_hops,
                "{name}: {all} of {} hops",
                measured.packet_hops
            );
            assert!(control > 0 && control < all, "{name}: {control} of {all}");
            assert_eq!(seen.len(), 6, "four leaves and two spines");
        }
    }
}

#[test]
fn a_program_for_fragments_sees_nothing_else() {
    let (measured, seen) = watched(&crowded("uec", 2), Scope::Fragments, None);
    assert_eq!((measured.end, seen.len()), (End::Finished, 0));
}

#[test]
fn consumed_packets_are_lost() {
    let mut plan = crowded("uec", 1);
    plan.time_limit = Time(3_000_000_000);
    let refused = HostId(5);
    let (measured, _) = watched(&plan, Scope::All, Some(refused));
    assert!(measured.packets.lost > 70, "{:?}", measured.packets);
    for (flow, record) in plan.flows.iter().zip(&measured.flows) {
        let ends = plan.connections[flow.connection as usize];
        let touches = [ends.source, ends.destination].contains(&refused);
        assert_eq!(record.completion().is_none(), touches, "{ends:?}");
    }
}
