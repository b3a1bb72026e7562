//! All plans of a call together: messages match, any order of events ends, and the results are right, the same bits in
//! every order.

use super::*;
use crate::schedule::Collective;
use std::collections::BTreeMap;

const ELEMENT: usize = 4;

/// All ranks of a call, with their buffers of 32-bit floating-point numbers.
struct World {
    plans: Vec<RankPlan>,
    buffers: Vec<Vec<Vec<u8>>>,
    executors: Vec<Executor<'static>>,
    posted: Vec<Vec<bool>>,
    /// Operands of sums by rank, sum and sender.
    came: BTreeMap<(usize, usize, u32), Vec<u8>>,
    /// Messages under way: sender, receiver, tag.
    under_way: BTreeMap<(u32, u32, u32), Vec<u8>>,
}

/// Adds 32-bit floating-point numbers.
fn add(one: &[u8], other: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().expect("whole numbers"));
    let pairs = one.chunks(ELEMENT).zip(other.chunks(ELEMENT));
    pairs.flat_map(|(a, b)| (number(a) + number(b)).to_ne_bytes()).collect()
}

impl World {
    fn new(plans: Vec<RankPlan>, callers: Vec<Vec<Vec<u8>>>) -> World {
        let mut buffers = callers;
        for (plan, buffers) in plans.iter().zip(&mut buffers) {
            buffers.extend(plan.scratch.iter().map(|bytes| vec![0; *bytes]));
        }
        let posted = plans.iter().map(|plan| vec![false; plan.sends.len()]).collect();
        let executors = plans.iter().map(Executor::of_plan).collect();
        let mut world = World { plans, buffers, executors, posted, came: BTreeMap::new(), under_way: BTreeMap::new() };
        for rank in 0..world.plans.len() {
            world.copy_all(rank, |plan| &plan.copies);
            world.executors[rank].begin();
            for sum in 0..world.plans[rank].sums.len() {
                world.add_all(rank, sum);
            }
        }
        world
    }

    fn read(&self, rank: usize, range: &BufferRange) -> Vec<u8> {
        match range.is_empty() {
            true => Vec::new(),
            false => self.buffers[rank][range.buffer][range.bytes.clone()].to_vec(),
        }
    }

    fn write(&mut self, rank: usize, range: &BufferRange, data: &[u8]) {
        if !range.is_empty() {
            self.buffers[rank][range.buffer][range.bytes.clone()].copy_from_slice(data);
        }
    }

    fn copy_all(&mut self, rank: usize, of: fn(&RankPlan) -> &Vec<(BufferRange, BufferRange)>) {
        for (from, to) in of(&self.plans[rank]).clone() {
            let data = self.read(rank, &from);
            self.write(rank, &to, &data);
        }
    }

    /// Lets everything happen, in an order that `seed` chooses.
    fn run(&mut self, seed: u64) {
        let mut state = seed;
        for rank in 0..self.plans.len() {
            for at in 0..self.plans[rank].sends.len() {
                if self.plans[rank].sends[at].after.is_empty() {
                    self.post(rank, at);
                }
            }
        }
        loop {
            let mut can = Vec::new();
            for (rank, plan) in self.plans.iter().enumerate() {
                let executor = &self.executors[rank];
                let free = |at: &usize| !self.posted[rank][*at] && executor.holds(Condition::Posted(*at));
                can.extend((0..plan.sends.len()).filter(free).map(|at| (rank, at, true)));
                for (at, receive) in plan.receives.iter().enumerate() {
                    let key = (receive.from, rank as u32, receive.tag);
                    if self.under_way.contains_key(&key) && executor.is_due(at) {
                        can.push((rank, at, false));
                    }
                }
            }
            if can.is_empty() {
                break;
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (rank, at, is_send) = can[(state >> 33) as usize % can.len()];
            if is_send {
                self.post(rank, at);
            } else {
                self.receive(rank, at);
            }
        }
        assert!(self.posted.iter().flatten().all(|done| *done), "something never leaves");
        assert!(self.executors.iter().all(Executor::has_received), "something never arrives");
        for (plan, executor) in self.plans.iter().zip(&self.executors) {
            assert!((0..plan.sums.len()).all(|sum| executor.holds(Condition::Added(sum))), "a sum is never complete");
        }
        assert!(self.under_way.is_empty(), "a message has no receiver");
        (0..self.plans.len()).for_each(|rank| self.copy_all(rank, |plan| &plan.last_copies));
    }

    fn post(&mut self, rank: usize, at: usize) {
        let PlannedSend { to, tag, from, .. } = self.plans[rank].sends[at].clone();
        let data = self.read(rank, &from);
        assert_eq!(self.under_way.insert((rank as u32, to, tag), data), None, "a message leaves once");
        self.posted[rank][at] = true;
    }

    /// Completes a sum if all its operands are there.
    fn add_all(&mut self, rank: usize, sum: usize) {
        let ranks = self.plans.len() as u32;
        let planned = self.plans[rank].sums[sum].clone();
        let order: Vec<u32> = (0..planned.operands(ranks)).map(|at| planned.operand(at)).collect();
        if order.iter().any(|from| *from != rank as u32 && !self.came.contains_key(&(rank, sum, *from))) {
            return;
        }
        let mine = self.read(rank, &planned.own);
        let operand = |of: &u32| self.came.get(&(rank, sum, *of)).unwrap_or(&mine);
        let total = order[1..].iter().fold(operand(&order[0]).clone(), |sum, of| add(&sum, operand(of)));
        self.write(rank, &planned.out, &total);
        self.executors[rank].complete(Condition::Added(sum));
    }

    fn receive(&mut self, rank: usize, at: usize) {
        let PlannedReceive { from, tag, length, into, after } = self.plans[rank].receives[at].clone();
        for condition in after {
            // The bytes of a send are those of the moment from which on it may leave.
            if let Condition::Posted(send) = condition
                && !self.posted[rank][send]
            {
                self.post(rank, send);
            }
        }
        let data = self.under_way.remove(&(from, rank as u32, tag)).expect("it is under way");
        assert_eq!(data.len(), length);
        self.executors[rank].complete(Condition::Received(at));
        match into {
            Target::Place(range) => self.write(rank, &range, &data),
            Target::Combine(range) => {
                let old = self.read(rank, &range);
                self.write(rank, &range, &add(&old, &data));
            }
            Target::Sum(sum) => {
                self.came.insert((rank, sum, from), data);
                self.add_all(rank, sum);
            }
        }
    }
}

/// The number of a rank at a place: of very different sizes, so that another order of additions gives other bits.
fn number(rank: u32, at: usize) -> f32 {
    let mixed = (u64::from(rank) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (mixed as f32 + 1.0) * [1e-6, 1.0, 1e6][(mixed % 3) as usize]
}

const COLLECTIVES: [Collective; 8] = [
    Collective::AllReduce,
    Collective::Reduce,
    Collective::Broadcast,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::Gather,
    Collective::Scatter,
];

fn call(collective: Collective, count: usize, rank: (u32, u32), root: u32) -> CollectiveCall {
    CollectiveCall::of_size(collective, count * ELEMENT, ELEMENT, rank, root).expect("a call")
}

/// The buffer that a rank has at the end, and its numbers, as the definition of the collective says; sums within
/// rounding.
fn expected(collective: Collective, count: usize, (rank, ranks): (u32, u32), root: u32) -> (usize, Vec<f64>) {
    let cut = |rank: u32| direct::cut(count * ELEMENT, ELEMENT, ranks, rank) / ELEMENT;
    let (first, end) = (cut(rank), cut(rank + 1));
    let of = |rank: u32, at: usize| f64::from(number(rank, at));
    let sum = |at: usize| (0..ranks).map(|rank| of(rank, at)).sum::<f64>();
    match collective {
        Collective::AllReduce => (0, (0..count).map(sum).collect()),
        Collective::Reduce if rank == root => (0, (0..count).map(sum).collect()),
        Collective::Reduce => (0, (0..count).map(|at| of(rank, at)).collect()),
        Collective::Broadcast => (0, (0..count).map(|at| of(root, at)).collect()),
        Collective::AllGather => {
            (1, (0..ranks).flat_map(|from| (0..cut(from + 1) - cut(from)).map(move |at| of(from, at))).collect())
        }
        Collective::ReduceScatter => (1, (first..end).map(sum).collect()),
        Collective::AllToAll => (1, (0..ranks).flat_map(|from| (first..end).map(move |at| of(from, at))).collect()),
        Collective::Gather if rank == root => {
            (1, (0..ranks).flat_map(|from| (0..cut(from + 1) - cut(from)).map(move |at| of(from, at))).collect())
        }
        Collective::Gather => (0, (0..end - first).map(|at| of(rank, at)).collect()),
        Collective::Scatter => (1, (first..end).map(|at| of(root, at)).collect()),
        Collective::SendReceive => unreachable!("it is no call"),
    }
}

/// The bits of the results of all ranks.
type Bits = Vec<Vec<u32>>;

/// Performs a call with plans of a maker in some orders, and checks what every rank has at the end.
fn check(collective: Collective, maker: &mut PlanMaker, ranks: u32, hosts: &Hosts, count: usize, root: u32) -> Bits {
    let mut bits: Option<Bits> = None;
    for seed in 0..4 {
        let calls: Vec<CollectiveCall> = (0..ranks).map(|rank| call(collective, count, (rank, ranks), root)).collect();
        let plans = (0..).zip(&calls).map(|(rank, call)| maker.plan(call, (rank, ranks), hosts, ELEMENT, 2)).collect();
        let longest = count * if collective == Collective::AllToAll { 2 } else { 1 } + ranks as usize;
        let own = |rank: u32| {
            vec![(0..longest).flat_map(|at| number(rank, at).to_ne_bytes()).collect(), vec![0; longest * ELEMENT]]
        };
        let mut world = World::new(plans, (0..ranks).map(own).collect());
        world.run(seed);
        let mut all = Vec::new();
        for rank in 0..ranks {
            let (buffer, wanted) = expected(collective, count, (rank, ranks), root);
            let got = world.buffers[rank as usize][buffer][..wanted.len() * ELEMENT].chunks(ELEMENT);
            let got: Vec<f32> = got.map(|bytes| f32::from_ne_bytes(bytes.try_into().expect("4 bytes"))).collect();
            for (at, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                let error = (f64::from(*got) - wanted).abs();
                assert!(error <= wanted.abs() * 1e-5, "{collective:?}, {ranks} ranks, {count}: rank {rank} at {at}");
            }
            all.push(got.iter().map(|number| number.to_bits()).collect());
        }
        assert_eq!(*bits.get_or_insert_with(|| all.clone()), all, "{collective:?}: one order gives other bits");
    }
    let bits = bits.expect("it was performed");
    if collective == Collective::AllReduce {
        assert!(bits.iter().all(|rank| *rank == bits[0]), "all ranks have the same bits");
    }
    bits
}

#[test]
fn every_algorithm_gives_every_rank_its_result_in_any_order() {
    // Short buffers are cut as long ones are.
    let lengths = DirectLengths { whole: 64, tree: 128, part: 256 };
    for algorithm in ["direct", "ring", "halving-doubling", "tree", "pat"] {
        let mut maker = PlanMaker::new(algorithm.parse().expect("a rule"), lengths);
        for collective in COLLECTIVES {
            for ranks in [2, 3, 4, 7, 8] {
                for count in [0, 1, 5, 100, 1_000] {
                    check(collective, &mut maker, ranks, &Hosts::default(), count, ranks - 1);
                }
            }
        }
    }
}

/// The hosts with these numbers of ranks.
fn hosts_of(counts: &[u32]) -> Hosts {
    let places = (0..).zip(counts).flat_map(|(host, count)| (0..*count).map(move |_| Some(host)));
    Hosts::of::<u32>(&places.collect::<Vec<_>>())
}

#[test]
fn ranks_that_share_hosts_have_the_bits_of_the_direct_algorithm() {
    let lengths = DirectLengths { whole: 64, tree: 128, part: 256 };
    let maker = |rule: &str| PlanMaker::new(rule.parse().expect("a rule"), lengths);
    let (mut direct, mut hierarchical) = (maker("direct"), maker("hierarchical"));
    for counts in [&[2, 2][..], &[1, 2], &[3, 1, 2], &[2, 2, 2, 2], &[1, 1, 1, 4]] {
        let (ranks, hosts) = (counts.iter().sum(), hosts_of(counts));
        for collective in COLLECTIVES {
            for count in [0, 1, 5, 100, 1_000] {
                for root in [0, ranks - 1] {
                    let wanted = check(collective, &mut direct, ranks, &hosts, count, root);
                    let bits = check(collective, &mut hierarchical, ranks, &hosts, count, root);
                    assert!(bits == wanted, "{collective:?} of {count} on {counts:?}, root {root}");
                }
            }
        }
    }
}

#[test]
fn between_hosts_each_byte_passes_once_per_host() {
    let (ranks, hosts, bytes) = (12, hosts_of(&[4, 4, 4]), 1_200_000);
    // By collective: bytes that leave each host. On the way to a sum the first host sends all blocks, the second one as
    // well, and the last one sends sums to where they are wanted.
    for (collective, sent) in [
        (Collective::AllReduce, [bytes, 2 * bytes, bytes]),
        (Collective::Reduce, [bytes, bytes, bytes]),
        (Collective::Broadcast, [bytes, bytes, 0]),
        (Collective::AllGather, [2 * bytes / 3; 3]),
        (Collective::ReduceScatter, [bytes, bytes, 2 * bytes / 3]),
    ] {
        let mut maker = PlanMaker::new(Algorithms::default(), DirectLengths::default());
        let left = [0, 1, 2].map(|host| {
            let of_host = (4 * host..4 * host + 4).map(|rank| {
                let call = call(collective, bytes / ELEMENT, (rank, ranks), 0);
                assert_eq!(maker.algorithm(&call, ranks, &hosts), PlanAlgorithm::Hierarchical);
                let plan = maker.plan(&call, (rank, ranks), &hosts, ELEMENT, 2);
                plan.sends.iter().filter(|send| send.to / 4 != host).map(|send| send.from.len()).sum::<usize>()
            });
            of_host.sum::<usize>()
        });
        assert_eq!(left, sent, "{collective:?}");
    }
}

#[test]
fn short_calls_and_ranks_with_hosts_of_their_own_are_direct_unless_a_rule_says_otherwise() {
    let name = |rule: &str, hosts: &Hosts, count| {
        let maker = PlanMaker::new(rule.parse().expect("a rule"), DirectLengths::default());
        maker.algorithm(&call(Collective::AllReduce, count, (0, 4), 0), 4, hosts).name()
    };
    let shared = hosts_of(&[2, 2]);
    assert_eq!(name("auto", &shared, 100_000), "hierarchical");
    assert_eq!(name("auto", &shared, 1_000), "direct");
    assert_eq!(name("direct", &shared, 100_000), "direct");
    assert_eq!(name("hierarchical", &shared, 1_000), "hierarchical");
    assert_eq!(name("hierarchical", &Hosts::default(), 100_000), "direct");
}

#[test]
fn a_rule_changes_the_messages_of_the_collectives_that_it_names() {
    let sends = |rules: &str, collective: Collective| {
        let mut maker = PlanMaker::new(rules.parse().expect("rules"), DirectLengths::default());
        let plan = maker.plan(&call(collective, 1_000, (2, 8), 0), (2, 8), &Hosts::default(), ELEMENT, 2);
        plan.sends.iter().map(|send| send.to).collect::<Vec<u32>>()
    };
    assert_eq!(sends("auto", Collective::AllReduce), [3, 4, 5, 6, 7, 0, 1]);
    assert_eq!(sends("ring", Collective::AllReduce), [3; 14]);
    assert_eq!(sends("all_reduce=halving-doubling", Collective::AllReduce), [3, 0, 6, 6, 0, 3]);
    assert_eq!(sends("all_reduce=halving-doubling", Collective::AllGather), [3, 4, 5, 6, 7, 0, 1]);
    assert_eq!(sends("ring>4000", Collective::AllReduce), [3, 4, 5, 6, 7, 0, 1]);
    assert_eq!(sends("ring", Collective::Broadcast), [3]);
    assert_eq!(sends("pat", Collective::AllGather).into_iter().collect::<std::collections::BTreeSet<u32>>().len(), 3);
}

#[test]
fn blocks_of_several_lengths_take_the_direct_algorithm() {
    let mut maker = PlanMaker::new("ring".parse().expect("a rule"), DirectLengths::default());
    let outputs = vec![BufferRange { buffer: 1, bytes: 0..40 }, BufferRange { buffer: 1, bytes: 40..44 }];
    let plan = maker.plan(&CollectiveCall::AllGather { input: None, outputs }, (0, 2), &Hosts::default(), ELEMENT, 2);
    assert_eq!(plan.sends.len(), 1);
    assert_eq!(plan.sends[0].from.len(), 40);
}

#[test]
fn halving_needs_a_power_of_two_and_reports_say_what_runs_instead() {
    let maker = PlanMaker::new("halving-doubling".parse().expect("a rule"), DirectLengths::default());
    let name =
        |ranks| maker.algorithm(&call(Collective::AllReduce, 1_000, (0, ranks), 0), ranks, &Hosts::default()).name();
    assert_eq!([3, 4, 6, 8].map(name), ["direct", "halving-doubling", "direct", "halving-doubling"]);
}

#[test]
fn every_rank_waits_for_all_ranks_in_a_barrier() {
    for ranks in 2..=9u32 {
        let plans = (0..ranks)
            .map(|rank| RankPlan::direct(&CollectiveCall::Barrier, (rank, ranks), 1, 0, &DirectLengths::default()));
        let mut world = World::new(plans.collect(), vec![Vec::new(); ranks as usize]);
        world.run(u64::from(ranks));
    }
}
