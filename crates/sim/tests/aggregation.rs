//! Aggregating switches: jobs end, sums are counted, upper limits hold, and the number of threads changes nothing.

use super::support::{self, plan as plan_of};
use std::sync::Arc;
use strandway_collective::{InNetwork, Operation, Programs};
use strandway_fabric::fault::{FaultKind, FaultPlan};
use strandway_fabric::loss::Burst;
use strandway_fabric::measure::{End, Measurements};
use strandway_fabric::plan::{EcnSettings, PfcSettings, PortSettings, Start};
use strandway_fabric::topology::{Level, Shape as Fabric, Topology};
use strandway_fabric::{Members, NodeId, Plan};
use strandway_proto::HostId;
use strandway_proto::units::{Bytes, Rate, Span, Time};
use strandway_sim::{Control, simulate_programs};
use strandway_switch::{
    Aggregation, Esa, Index, Job, Layer, Plan as Training, Priorities, ResultPath, Settings, Shape, Sharing, System,
};

/// A fabric at 100 Gb/s with the sheet's delays: 1 us of stack and 0.5 us of cable per link to a host, 0.8 us per
/// switch.
fn fabric(hosts: u32, hosts_per_leaf: u32, planes: u8) -> Topology {
    let shape = Fabric { hosts, planes, hosts_per_leaf, spines: 2, leaf_bundle: 1, pods: None };
    let level = |us: u64| Level { rate: Rate::from_gbps(100), latency: Span(us * 1_500_000) };
    Topology::new(shape, [level(1); 3], [Span::from_ns(800); 3]).expect("a valid fabric")
}

fn ports() -> PortSettings {
    let ecn =
        EcnSettings { low: Bytes(80_000), high: Bytes(80_000), probability: 1.0, at_dequeue: false, last_hop: true };
    PortSettings {
        priority: true,
        data_queue: Bytes(1_000_000),
        control_queue: Bytes(1_000_000),
        trim: None,
        ecn: Some(ecn),
        pfc: None,
        cbfc: None,
        llr: false,
        receive: None,
        message_cost: Span::ZERO,
        shared: None,
        adaptive_queue: Bytes(0),
    }
}

/// Jobs of workers at these hosts, each with its server.
struct Case {
    plan: Plan,
    aggregation: Aggregation,
}

fn case(topology: Topology, settings: Settings, jobs: &[(Vec<u32>, u32)], keys: u64, iterations: u32) -> Case {
    let mut plan = plan_of(topology.clone(), support::preset("uec"), &[]);
    plan.ports = ports();
    plan.time_limit = Time(2_000_000_000_000);
    let share = match settings.system {
        System::SwitchMl { .. } => strandway_switch::SwitchMlProgram::share(settings.slots, jobs.len() as u32),
        _ => 1024,
    };
    let mut plans = Vec::new();
    let mut first_message = 0;
    for (number, (workers, server)) in (1u16..).zip(jobs) {
        let workers: Vec<HostId> = workers.iter().copied().map(HostId).collect();
        plan.multicast.push(Members::new(&topology, workers.clone()));
        let shape = Shape {
            number,
            group: u32::from(number) - 1,
            elements: 62,
            data_bytes: 330,
            control_bytes: 84,
            window: share,
            slots: settings.slots,
            index: Index::List,
            sharing: Sharing::All,
            first: 0,
            rtt: Span::from_us(11),
        };
        let count = workers.len() as u32;
        let job = Job::new(shape, &topology, workers, HostId(*server)).expect("a job");
        let compute = if iterations > 1 { Span::from_us(20) } else { Span::ZERO };
        let layer = Layer { keys: keys / 4, forward: compute, backward: compute * 2 };
        plans.push(Arc::new(Training {
            job: Arc::new(job),
            layers: vec![layer; 4],
            iterations,
            start: Time(u64::from(number) * 1_000_000),
            jitter: 0.1,
            noise: 0.02,
            priorities: Priorities::default(),
            communication: Span::from_us(100),
            seed: 7,
            turns: None,
            first_message,
        }));
        first_message += count;
    }
    Case { plan, aggregation: Aggregation { settings, plans } }
}

impl Case {
    fn run(&self) -> Measurements {
        let hosts = |host: HostId| self.aggregation.host(host);
        let switches = |node: NodeId| self.aggregation.switch(&self.plan.topology, node);
        let operation = |plan: &Arc<Training>| {
            let (number, hosts) = (plan.job.shape.number, plan.job.workers().to_vec());
            Operation::InNetwork(InNetwork { number, hosts, first_message: plan.first_message })
        };
        let operations: Vec<Operation> = self.aggregation.plans.iter().map(operation).collect();
        let programs = Programs::new(&self.plan, &operations).with(&hosts).with_switches(&switches);
        simulate_programs(&self.plan, &programs, &Control::new())
    }
}

fn systems() -> [System; 5] {
    let esa = |results| System::Esa(Esa { results, ..Esa::default() });
    [
        esa(ResultPath::Direct),
        esa(ResultPath::ViaServerFree),
        esa(ResultPath::ViaServer),
        System::Atp,
        System::SwitchMl { strict_order: true },
    ]
}

#[test]
fn one_job_alone_runs_at_the_rate_that_its_payload_has_of_the_link() {
    // ESA sheet, section 13.7: 248 bytes of 330 on the wire at 100 Gb/s.
    for system in systems() {
        let keys = 40_000;
        let case = case(fabric(9, 9, 1), Settings::new(system, 19_859), &[((0..8).collect(), 8)], keys, 1);
        let measured = case.run();
        assert_eq!(measured.end, End::Finished, "{system:?}");
        let tally = &measured.tallies[0];
        let took = tally.last.expect("it ended").since(tally.first.expect("it began"));
        let goodput = keys as f64 * 248.0 * 8.0 / took.0 as f64 * 1000.0;
        assert!((goodput - 75.15).abs() < 1.4, "{system:?}: {goodput} Gb/s");
        let counts = measured.aggregation[&1];
        assert_eq!((counts.sent, counts.completed), (8 * keys, keys), "{system:?}: {counts:?}");
        assert_eq!((counts.refused, counts.resent, counts.merged), (0, 0, 8 * keys), "{system:?}");
    }
}

#[test]
fn jobs_that_share_few_slots_end_and_every_fragment_is_somewhere() {
    for system in systems() {
        let jobs: Vec<(Vec<u32>, u32)> = (0..3).map(|job| ((job * 4..job * 4 + 4).collect(), 12 + job)).collect();
        let case = case(fabric(15, 15, 1), Settings::new(system, 400), &jobs, 2000, 4);
        let measured = case.run();
        assert_eq!(measured.end, End::Finished, "{system:?}");
        for (job, counts) in &measured.aggregation {
            assert_eq!(counts.sent, 4 * 4 * 2000, "{system:?}, job {job}");
            let done = counts.completed + counts.server_completed;
            assert!(done >= 4 * 2000, "{system:?}, job {job}: {counts:?}");
        }
        let refused: u64 = measured.aggregation.values().map(|c| c.refused + c.preemptions).sum();
        assert_eq!(refused > 100, !matches!(system, System::SwitchMl { .. }), "{system:?}: {refused}");
    }
}

#[test]
fn threads_and_windows_change_nothing_over_two_levels_and_planes_with_losses() {
    for (n, system) in systems().into_iter().enumerate() {
        let topology = fabric(24, 4, 1 + (n % 2) as u8);
        // Two jobs over four racks; the second one's server is below a rack of its own workers.
        let jobs = [(vec![0, 1, 4, 5, 8, 9, 12], 20), (vec![2, 3, 6, 7, 10, 13], 11)];
        let mut case = case(topology, Settings::new(system, 512), &jobs, 1200, 3);
        if n % 3 == 0 {
            case.plan.ports.pfc =
                Some(PfcSettings { xoff: Bytes(100_000), xon: Bytes(80_000), headroom: Bytes(200_000) });
        }
        let links = (0..case.plan.topology.links()).step_by(3).map(strandway_fabric::LinkId).collect();
        case.plan.faults = vec![FaultPlan {
            links,
            kind: FaultKind::Loss { probability: 0.002, burst: Burst::Packets(1.0) },
            from: Time::ZERO,
            until: Time(u64::MAX),
        }];
        let measured = [1, 2, 7].map(|threads| {
            case.plan.threads = threads;
            case.run()
        });
        assert_eq!(measured[0].end, End::Finished, "{system:?}");
        assert!(measured[0].packets.lost > 20, "{system:?}");
        for other in &measured[1..] {
            assert_eq!(measured[0].digest, other.digest, "{system:?}");
            assert_eq!(measured[0].aggregation, other.aggregation, "{system:?}");
            assert_eq!(measured[0].links, other.links, "{system:?}");
        }
    }
}

#[test]
fn a_fabric_whose_switches_run_programs_does_the_same_with_all_other_packets() {
    // Flows that begin after a job has ended behave as without programs.
    let topology = fabric(12, 4, 1);
    let mut case = case(topology.clone(), Settings::new(systems()[0], 512), &[(vec![0, 4, 8], 11)], 40, 1);
    let flows = support::plan(topology, support::preset("uec"), &[(1, 5, 200_000)]);
    (case.plan.connections, case.plan.flows) = (flows.connections, flows.flows);
    case.plan.flows[0].start = Start::At(Time(9_000_000_000));
    let with = case.run();
    case.plan.multicast.clear();
    let without = simulate_programs(&case.plan, &Programs::new(&case.plan, &[]), &Control::new());
    assert_eq!(with.flows, without.flows);
    assert_eq!(with.flows[0].completion().map(|c| c.0 > 0), Some(true));
}
