//! Packets for groups: every member gets its own copy, every link counts its packets, and the number of threads changes
//! nothing.

use super::support::{self, US, build, link, permutation, plain};
use std::sync::{Arc, Mutex};
use strandway_collective::Programs;
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::measure::{End, Measurements};
use strandway_fabric::multicast::Tree;
use strandway_fabric::plan::{PfcSettings, SharedSettings, TrimSettings};
use strandway_fabric::topology::{LinkId, NodeKind, Pods, Shape, Topology};
use strandway_fabric::{Members, Plan};
use strandway_proto::application::{Action, Application, Event};
use strandway_proto::cast::{Cast, LeftOut};
use strandway_proto::units::{Bytes, Rate, Time};
use strandway_proto::{HostId, Span};
use strandway_sim::{Control, simulate_programs};

const CHUNK: u16 = 4096;
const HEADER: u16 = 64;
const SHORT: u16 = 1000;

/// Casts its share to its group at the start, and writes down what arrives.
struct CastingHost {
    cast: Option<Cast>,
    done: bool,
    got: Arc<Mutex<Vec<Got>>>,
    host: u32,
}

impl Application for CastingHost {
    fn handle_event(&mut self, _: Time, event: &Event) {
        match *event {
            Event::Chunk { from, task, chunk, trimmed, last, .. } => {
                assert_eq!((task, last), (from.0, chunk % 1000 == COUNT - 1), "a chunk says what it is");
                self.got.lock().expect("nobody panics").push((self.host, from.0, chunk, trimmed));
            }
            Event::Cast { .. } => self.done = true,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_action(&mut self, _: Time) -> Option<Action> {
        self.cast.take().map(Action::Cast)
    }

    fn poll_timeout(&self) -> Time {
        if self.cast.is_some() { Time::ZERO } else { Time::NEVER }
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

/// Chunks of a share.
const COUNT: u32 = 40;

/// A chunk that has arrived: receiver, sender, number, and whether it was trimmed.
type Got = (u32, u32, u32, bool);

/// All `roots` cast their shares to group 0 at the same time, each at this rate.
fn cast(plan: &Plan, roots: &[u32], rate: Rate) -> (Measurements, Vec<Got>) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&got);
    let (roots, planes) = (roots.to_vec(), (1 << plan.topology.planes()) - 1);
    let make = move |host: HostId| -> Option<Box<dyn Application>> {
        let root = roots.contains(&host.0);
        let cast = Cast {
            to: HostId::group(0),
            task: host.0,
            first: host.0 * 1000,
            count: COUNT,
            bytes: CHUNK,
            last: host.0 * 1000 + COUNT - 1,
            tail: SHORT,
            header: HEADER,
            rate,
            planes,
            trees: 0,
            left_out: LeftOut::NONE,
        };
        Some(Box::new(CastingHost { cast: root.then_some(cast), done: !root, got: Arc::clone(&noted), host: host.0 }))
    };
    let programs = Programs::new(plan, &[]).with(&make);
    let measured = simulate_programs(plan, &programs, &Control::new());
    let mut got = got.lock().expect("nobody panics").clone();
    got.sort_unstable();
    (measured, got)
}

fn two_tiers(planes: u8) -> Topology {
    build(Shape { hosts: 24, planes, hosts_per_leaf: 4, spines: 3, leaf_bundle: 2, pods: None }, 400)
}

fn three_tiers() -> Topology {
    let pods = Some(Pods { leaves_per_pod: 2, cores_per_spine: 2, core_bundle: 1 });
    build(Shape { hosts: 24, planes: 2, hosts_per_leaf: 3, spines: 2, leaf_bundle: 2, pods }, 400)
}

const MEMBERS: [u32; 11] = [7, 0, 1, 2, 3, 6, 12, 13, 15, 22, 23];

fn group(topology: Topology) -> Plan {
    let mut plan = plain(topology, &[]);
    plan.multicast = vec![Members::new(&plan.topology, MEMBERS.map(HostId).to_vec())];
    plan
}

/// Every kind of port that a switch may have.
fn kinds(topology: &Topology) -> Vec<(&'static str, Plan)> {
    let classes = group(topology.clone());
    let mut plain = classes.clone();
    plain.ports.priority = false;
    let mut pfc = classes.clone();
    pfc.ports.pfc = Some(PfcSettings { xoff: Bytes(62_400), xon: Bytes(49_920), headroom: Bytes(250_000) });
    let mut shared = classes.clone();
    shared.ports.shared = Some(SharedSettings { buffer: Bytes(3_000_000), alpha: 4.0 });
    let mut both = pfc.clone();
    both.ports.shared = shared.ports.shared;
    vec![("two classes", classes), ("plain", plain), ("PFC", pfc), ("shared buffer", shared), ("PFC and shared", both)]
}

/// Bytes on every link if nothing is lost, by the trees.
fn expected(plan: &Plan, roots: &[u32]) -> Vec<u64> {
    let topology = &plan.topology;
    let mut bytes = vec![0; topology.links() as usize];
    for &root in roots {
        let mut turns = vec![root; usize::from(topology.planes())];
        let mut plane = 0;
        for chunk in 0..COUNT {
            plane = (plane + 1) % usize::from(topology.planes());
            let tree = Tree::numbered(topology, turns[plane]);
            turns[plane] += 1;
            let size = u64::from(HEADER + if chunk + 1 == COUNT { SHORT } else { CHUNK });
            for link in (0..topology.links()).map(LinkId) {
                let on_plane = topology.ends(link).is_some_and(|e| usize::from(e.plane) == plane);
                if on_plane && plan.multicast[0].crosses(topology, HostId(root), tree, link) {
                    bytes[link.0 as usize] += size;
                }
            }
        }
    }
    bytes
}

/// Every cast or copied packet arrived or was lost, and each switch sent on every packet that it got and did not lose.
fn assert_conserved(m: &Measurements, what: &str) {
    let p = &m.packets;
    let gone = p.trimmed + p.dropped - p.dropped_control + p.lost - p.lost_control;
    assert_eq!(p.chunks + p.copies, p.chunks_arrived + gone, "{what}: {p:?}");
    assert_eq!(p.under_way(), 0, "{what}");
}

#[test]
fn every_member_gets_every_chunk_and_every_link_carries_exactly_its_tree() {
    for topology in [two_tiers(1), two_tiers(2), three_tiers()] {
        for (name, mut plan) in kinds(&topology) {
            for roots in [vec![7], vec![0, 13, 23]] {
                let rate = Rate::from_gbps(if roots.len() == 1 { 400 } else { 120 });
                let (one, got) = cast(&plan, &roots, rate);
                assert_eq!(one.end, End::Finished, "{name}");
                let mut wanted: Vec<Got> = Vec::new();
                for (&to, &from) in MEMBERS.iter().flat_map(|to| roots.iter().map(move |from| (to, from))) {
                    wanted.extend((0..COUNT).filter(|_| to != from).map(|k| (to, from, from * 1000 + k, false)));
                }
                wanted.sort_unstable();
                assert_eq!(got, wanted, "{name}, roots {roots:?}");
                let carried: Vec<u64> = one.links.iter().map(|l| l.bytes).collect();
                assert_eq!(carried, expected(&plan, &roots), "{name}, roots {roots:?}");
                assert_eq!(one.packets.copies + one.packets.chunks, wanted.len() as u64, "{name}");
                assert_conserved(&one, name);
                for threads in [2, 7] {
                    plan.threads = threads;
                    let (many, others) = cast(&plan, &roots, rate);
                    assert_eq!(
                        (many.digest, &many.links, many.packets),
                        (one.digest, &one.links, one.packets),
                        "{name}"
                    );
                    assert_eq!(others, got, "{name} on {threads} threads");
                }
                plan.threads = 1;
            }
        }
    }
}

#[test]
fn a_packet_with_many_copies_takes_room_once_and_pauses_nobody() {
    // At line rate a switch holds two packets or so of one root; each has up to five copies.
    let mut tight = group(two_tiers(1));
    tight.ports.pfc = Some(PfcSettings { xoff: Bytes(3 * 4160), xon: Bytes(2 * 4160), headroom: Bytes(250_000) });
    let (measured, got) = cast(&tight, &[7], Cast::UNPACED);
    assert_eq!(got.len() as u32, COUNT * (MEMBERS.len() as u32 - 1));
    assert_eq!(measured.packets.pauses, 0);
}

#[test]
fn copies_are_marked_trimmed_dropped_and_paused_each_by_itself() {
    let roots = [0, 7, 13, 23];
    let (mut marked, mut trimmed, mut dropped, mut paused) = (0, 0, 0, 0);
    for topology in [two_tiers(1), three_tiers()] {
        for (name, mut plan) in kinds(&topology) {
            plan.ports.data_queue = Bytes(60_000);
            plan.ports.control_queue = Bytes(120_000);
            if let Some(shared) = &mut plan.ports.shared {
                *shared = SharedSettings { buffer: Bytes(200_000), alpha: 0.5 };
            }
            if let Some(pfc) = &mut plan.ports.pfc {
                (pfc.xoff, pfc.xon) = (Bytes(4 * 4160), Bytes(3 * 4160));
            }
            let ecn = strandway_fabric::plan::EcnSettings {
                low: Bytes(10_000),
                high: Bytes(50_000),
                probability: 1.0,
                at_dequeue: plan.ports.priority,
                last_hop: true,
            };
            plan.ports.ecn = Some(ecn);
            for trims in [false, true] {
                plan.ports.trim = (trims && plan.ports.priority).then_some(TrimSettings { size: 64 });
                let (one, got) = cast(&plan, &roots, Cast::UNPACED);
                assert_conserved(&one, name);
                let whole = got.iter().filter(|g| !g.3).count() as u64;
                assert_eq!(whole, one.packets.chunks_arrived, "{name}");
                let p = &one.packets;
                (marked, trimmed, dropped) = (marked + p.marked, trimmed + p.trimmed, dropped + p.dropped);
                paused += p.pauses;
                if plan.ports.pfc.is_some() {
                    assert_eq!((p.dropped, p.trimmed), (0, 0), "PFC loses nothing: {name}");
                    assert!(one.links.iter().any(|l| l.paused > Span::ZERO), "{name}");
                }
                plan.threads = 3;
                let (many, others) = cast(&plan, &roots, Cast::UNPACED);
                plan.threads = 1;
                assert_eq!((many.digest, &many.links, others), (one.digest, &one.links, got), "{name}");
            }
        }
    }
    assert!(marked > 100 && trimmed > 100 && dropped > 100 && paused > 10, "{marked} {trimmed} {dropped} {paused}");
}

#[test]
fn trees_avoid_links_that_are_visibly_broken_and_silent_faults_make_holes() {
    for (visible, expect_all) in [(Some(Span::ZERO), true), (None, false)] {
        let mut plan = group(two_tiers(1));
        let topology = &plan.topology;
        // A leaf of the root and one of the receivers lose an uplink each.
        let up = link(topology, "leaf1", "spine0");
        let down = link(topology, "spine2", "leaf5");
        let both = [up, down].map(|l| [l, topology.ends(l).expect("in use").reverse]).concat();
        let kind = FaultKind::Down { visible };
        plan.faults = vec![FaultPlan { links: both.clone(), kind, from: Time::ZERO, until: Time::NEVER }];
        let (measured, got) = cast(&plan, &[7], Rate::from_gbps(300));
        let all = COUNT as usize * (MEMBERS.len() - 1);
        assert_conserved(&measured, "broken links");
        if expect_all {
            // The first chunk leaves at the instant of the fault, before routing knows.
            assert!(got.len() + 2 * MEMBERS.len() > all, "{} of {all}", got.len());
        } else {
            assert!(got.len() < all * 9 / 10 && measured.packets.lost > 0, "{} of {all}", got.len());
        }
    }
}

#[test]
fn random_loss_strikes_single_copies_and_unicast_beside_goes_on() {
    let mut plan = support::plan(two_tiers(2), support::preset("uec"), &permutation(24, 200_000, 3));
    plan.multicast = vec![Members::new(&plan.topology, MEMBERS.map(HostId).to_vec())];
    let last = |l: &LinkId| {
        let ends = plan.topology.ends(*l);
        ends.is_some_and(|e| plan.topology.describe(e.to).0 == NodeKind::Host)
    };
    let links: Vec<LinkId> = (0..plan.topology.links()).map(LinkId).filter(last).collect();
    let kind = FaultKind::Loss { probability: 0.1, burst: Burst::NONE };
    plan.faults = vec![FaultPlan { links, kind, from: Time::ZERO, until: Time::NEVER }];
    plan.time_limit = Time(50_000 * US);
    let (one, got) = cast(&plan, &[0, 12], Rate::from_gbps(50));
    assert_eq!(one.end, End::Finished, "the permutation ends, too");
    let all = 2 * COUNT as usize * (MEMBERS.len() - 1);
    let whole = got.iter().filter(|g| !g.3).count();
    assert!(whole < all * 95 / 100 && whole > all * 80 / 100, "{whole} of {all}");
    for threads in [2, 5] {
        plan.threads = threads;
        let (many, others) = cast(&plan, &[0, 12], Rate::from_gbps(50));
        assert_eq!((many.digest, others), (one.digest, got.clone()));
    }
}
