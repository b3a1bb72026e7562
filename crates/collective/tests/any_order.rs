//! Every collective finishes with the right data for any order of delivery.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use strandway_collective::schedule::Receive;
use strandway_collective::{Algorithm, Collective, Executor, Plans, Rank, Schedule};
use strandway_proto::rng::{Random, StreamKind};

/// A message in flight: data to a receiver, or the report of an arrival to a sender.
enum News {
    Data { message: u32, data: Vec<u64> },
    Sent { message: u32 },
}

/// A different number for each byte of each rank; sums of such numbers differ, too.
fn own(rank: u32, byte: u64) -> u64 {
    (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ byte.wrapping_mul(0x1_0001)
}

/// A schedule on a network that delivers messages in random order.
struct Toy<'a> {
    plans: &'a Plans,
    schedule: Schedule,
    ranks: Vec<Executor<'a>>,
    /// The buffers that ranks send from. Except in an all-to-all, they also receive into them.
    buffers: Vec<Vec<u64>>,
    /// The receive buffers of an all-to-all.
    received: Vec<Vec<u64>>,
    on_the_way: Vec<News>,
    random: Random,
}

impl<'a> Toy<'a> {
    fn new(plans: &'a Plans, schedule: Schedule, seed: u64) -> Toy<'a> {
        let ranks = schedule.ranks();
        let buffer = |rank: u32| {
            let mut buffer: Vec<u64> = (0..schedule.bytes()).map(|b| own(rank, b)).collect();
            if schedule.algorithm().collective() == Collective::AllGather {
                // A rank knows only its own block: the block of its first send.
                let mine = schedule.sends(Rank(rank)).filter(|s| schedule.step_of(s.index) == 0);
                let mine: Vec<_> = mine.map(|s| s.first_byte..s.first_byte + s.bytes).collect();
                for (b, value) in buffer.iter_mut().enumerate() {
                    if !mine.iter().any(|range| range.contains(&(b as u64))) {
                        *value = 0;
                    }
                }
            }
            buffer
        };
        Toy {
            plans,
            schedule,
            ranks: (0..ranks).map(|rank| Executor::new(plans, Rank(rank))).collect(),
            buffers: (0..ranks).map(buffer).collect(),
            received: vec![vec![0; 2 * schedule.bytes() as usize + ranks as usize]; ranks as usize],
            on_the_way: Vec::new(),
            random: Random::new(seed, StreamKind::Fault, 0),
        }
    }

    fn post(&mut self, rank: u32) {
        while let Some(message) = self.ranks[rank as usize].poll_send() {
            let send = self.schedule.send(Rank(rank), message % self.schedule.messages());
            let from = send.first_byte as usize;
            let data = self.buffers[rank as usize][from..from + send.bytes as usize].to_vec();
            self.on_the_way.push(News::Data { message, data });
        }
    }

    fn run(&mut self) {
        // Ranks start one by one, at random times.
        let mut asleep: Vec<u32> = (0..self.schedule.ranks()).collect();
        let mut awake = vec![false; asleep.len()];
        self.random.shuffle(&mut asleep);
        loop {
            let choices = self.on_the_way.len() + usize::from(!asleep.is_empty());
            if choices == 0 {
                break;
            }
            let pick = self.random.below(choices as u32) as usize;
            let rank = if pick == self.on_the_way.len() {
                let rank = asleep.pop().expect("somebody sleeps");
                awake[rank as usize] = true;
                self.ranks[rank as usize].begin();
                rank
            } else {
                self.deliver(pick)
            };
            if awake[rank as usize] {
                self.post(rank);
            }
        }
    }

    fn deliver(&mut self, pick: usize) -> u32 {
        match self.on_the_way.swap_remove(pick) {
            News::Data { message, data } => {
                let to = self.plans.message(message).to;
                let (at, index) = (to.0 as usize, message % self.schedule.messages());
                let Receive { first_byte, bytes, reduces, .. } = self.schedule.receive(to, index);
                assert_eq!(bytes as usize, data.len());
                let apart = self.schedule.algorithm().collective() == Collective::AllToAll;
                let buffer = if apart { &mut self.received[at] } else { &mut self.buffers[at] };
                for (there, value) in buffer[first_byte as usize..].iter_mut().zip(&data) {
                    *there = if reduces { there.wrapping_add(*value) } else { *value };
                }
                assert!(self.ranks[at].handle_received(message), "a message of the schedule");
                self.on_the_way.push(News::Sent { message });
                to.0
            }
            News::Sent { message } => {
                let from = self.plans.message(message).from;
                assert!(self.ranks[from.0 as usize].handle_sent(message), "a message of the schedule");
                from.0
            }
        }
    }

    fn check(&self) {
        let (n, bytes) = (self.schedule.ranks(), self.schedule.bytes());
        let start = |i: u32| bytes / u64::from(n) * u64::from(i) + (bytes % u64::from(n)).min(u64::from(i));
        let sum = |b: u64| (0..n).fold(0u64, |sum, r| sum.wrapping_add(own(r, b)));
        for rank in 0..n {
            let buffer = &self.buffers[rank as usize];
            assert!(self.ranks[rank as usize].is_finished(), "rank {rank} did not finish");
            let mine = start(rank)..start(rank + 1);
            match self.schedule.algorithm().collective() {
                Collective::AllReduce => (0..bytes).for_each(|b| assert_eq!(buffer[b as usize], sum(b), "{rank} {b}")),
                Collective::ReduceScatter => mine.for_each(|b| assert_eq!(buffer[b as usize], sum(b), "{rank} {b}")),
                Collective::AllGather => {
                    for owner in 0..n {
                        for b in start(owner)..start(owner + 1) {
                            assert_eq!(buffer[b as usize], own(owner, b), "{rank} {b}");
                        }
                    }
                }
                Collective::Broadcast
                | Collective::Reduce
                | Collective::Gather
                | Collective::Scatter
                | Collective::SendReceive => unreachable!("no schedule has a root"),
                Collective::AllToAll => {
                    let length = mine.end - mine.start;
                    for from in (0..n).filter(|f| *f != rank) {
                        for i in 0..length {
                            let got = self.received[rank as usize][(u64::from(from) * length + i) as usize];
                            assert_eq!(got, own(from, mine.start + i), "{from} to {rank}, {i}");
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
    #[test]
    fn any_order_of_delivery_gives_the_right_data(
        which in 0usize..7, ranks in 2u32..17, bytes in 0u64..300, parts in 1u32..4, window in 1u32..6, seed in any::<u64>(),
    ) {
        let (algorithm, ranks) = match which {
            0 => (Algorithm::RingAllReduce, ranks),
            1 => (Algorithm::RingReduceScatter, ranks),
            2 => (Algorithm::RingAllGather, ranks),
            3 => (Algorithm::HalvingDoubling, ranks.next_power_of_two()),
            4 => (Algorithm::RecursiveDoubling, ranks.next_power_of_two()),
            5 => (Algorithm::LinearAllGather, ranks),
            _ => (Algorithm::AllToAll { window }, ranks),
        };
        let parts = if algorithm == Algorithm::RecursiveDoubling { 1 } else { parts };
        let schedule = Schedule::new(algorithm, ranks, bytes, parts).expect("a schedule");
        let plans = Plans::Computed(schedule);
        let mut toy = Toy::new(&plans, schedule, seed);
        toy.run();
        toy.check();
    }

    #[test]
    fn sends_and_receives_are_two_views_of_the_same_messages(
        which in 0usize..7, ranks in 2u32..40, bytes in 0u64..100_000, parts in 1u32..4, window in 1u32..6,
    ) {
        let (algorithm, ranks) = match which {
            0 => (Algorithm::RingAllReduce, ranks),
            1 => (Algorithm::RingReduceScatter, ranks),
            2 => (Algorithm::RingAllGather, ranks),
            3 => (Algorithm::HalvingDoubling, ranks.next_power_of_two()),
            4 => (Algorithm::RecursiveDoubling, ranks.next_power_of_two()),
            5 => (Algorithm::LinearAllGather, ranks),
            _ => (Algorithm::AllToAll { window }, ranks),
        };
        let parts = if algorithm == Algorithm::RecursiveDoubling { 1 } else { parts };
        let schedule = Schedule::new(algorithm, ranks, bytes, parts).expect("a schedule");
        let mut total = 0;
        for rank in 0..ranks {
            for send in schedule.sends(Rank(rank)) {
                let receive = schedule.receive(send.to, send.index);
                prop_assert_eq!(receive.from, Rank(rank));
                prop_assert_eq!(receive.bytes, send.bytes);
                prop_assert_ne!(send.to, Rank(rank));
                total += send.bytes;
            }
        }
        let factor = if algorithm.collective() == Collective::AllReduce { 2 } else { 1 };
        prop_assert_eq!(total, factor * u64::from(ranks - 1) * bytes);
    }
}
