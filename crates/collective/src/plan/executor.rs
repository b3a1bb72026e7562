//! Executes the plan of one rank. Its caller reports which messages arrived and ended, and asks which message to send.

use crate::lists::Lists;
use crate::plan::{Condition, Plans, RankPlan};
use crate::recipe::{Does, Recipe};
use crate::schedule::{Rank, Schedule};
use std::collections::VecDeque;

/// One rank of a collective. It moves no data and knows no network: its caller does both. Messages have the numbers of
/// [`Plans`].
///
/// ```
/// use strandway_collective::{Algorithm, Executor, Plans, Rank, Schedule};
/// let ring = Plans::Computed(Schedule::new(Algorithm::RingAllGather, 2, 1_000, 1).unwrap());
/// let mut ranks = [0, 1].map(|rank| Executor::new(&ring, Rank(rank)));
/// ranks.iter_mut().for_each(Executor::begin);
/// let (first, second) = (ranks[0].poll_send().unwrap(), ranks[1].poll_send().unwrap());
/// assert_eq!((ring.message(first).to, ring.message(first).bytes), (Rank(1), 500));
/// assert!(ranks[0].handle_received(second) && ranks[0].handle_sent(first));
/// assert!(ranks[0].is_finished());
/// ```
#[derive(Clone, Debug)]
pub struct Executor<'a> {
    steps: Steps<'a>,
    /// For each step, the number of events that it waited for and that have happened; or, for a message that was handed
    /// out and has not ended, the largest number.
    happened: Counters,
    /// Messages that may be sent now, in the order in which they became ready.
    ready: VecDeque<u32>,
    /// Receives that have not happened.
    missing: u32,
    /// Sends that have not ended.
    owed: u32,
    /// Steps that are to be released; empty between calls.
    released: Vec<u32>,
}

impl<'a> Executor<'a> {
    /// A rank (below the number of ranks) at the start of a collective.
    pub fn new(plans: &'a Plans, rank: Rank) -> Executor<'a> {
        assert!(rank.0 < plans.ranks(), "rank {} of {}", rank.0, plans.ranks());
        let mut executor = Executor::of(Steps::new(plans, rank));
        if let Steps::Computed { schedule, first, .. } = executor.steps {
            // Messages that need not wait for another one come first.
            let free = (0..schedule.messages()).take_while(|&index| schedule.waits_of(index) == 0);
            executor.ready.extend(free.map(|index| first + index));
        }
        executor
    }

    /// A rank at the start of a plan, whose messages have the numbers of their places in its lists. The caller asks
    /// which conditions [hold](Executor::holds), and reports receives and sums that are complete.
    pub fn of_plan(plan: &RankPlan) -> Executor<'static> {
        Executor::of(Steps::planned(plan))
    }

    fn of(steps: Steps<'a>) -> Executor<'a> {
        let [missing, owed] = steps.messages();
        let happened = Counters::new(steps.count(), steps.longest_wait());
        Executor { steps, happened, ready: VecDeque::new(), missing, owed, released: Vec::new() }
    }

    /// The collective begins at this rank. Steps of a recipe and of a plan wait for that. The first messages of a
    /// schedule are ready from the start, and it is for the caller to hold them back.
    pub fn begin(&mut self) {
        if !matches!(self.steps, Steps::Computed { .. }) {
            (0..self.steps.count()).for_each(|step| self.release(step));
        }
    }

    /// Does a condition of a [plan](Executor::of_plan) hold?
    pub fn holds(&self, condition: Condition) -> bool {
        let step = self.steps.of_condition(condition);
        self.happened.get(step) >= self.steps.waits_of(step)
    }

    /// Do all conditions of a receive of a [plan](Executor::of_plan) hold?
    pub fn is_due(&self, receive: usize) -> bool {
        let step = self.steps.of_condition(Condition::Received(receive));
        self.happened.get(step) + 1 >= self.steps.waits_of(step)
    }

    /// A receive or a sum of a [plan](Executor::of_plan) is complete. Each one is reported once.
    pub fn complete(&mut self, condition: Condition) {
        self.release(self.steps.of_condition(condition));
    }

    /// A whole message has arrived. Each message is reported once. False if this rank expects no such message; nothing
    /// has changed then.
    pub fn handle_received(&mut self, message: u32) -> bool {
        let step = self.steps.of_receive(message);
        step.into_iter().for_each(|step| self.release(step));
        step.is_some()
    }

    /// A message of this rank has arrived at its receiver. False if this rank has not handed out such a message, or it
    /// has ended; nothing has changed then.
    pub fn handle_sent(&mut self, message: u32) -> bool {
        let handed_out = self.happened.largest();
        let step = self.steps.of_send(message).filter(|&step| self.happened.get(step) == handed_out);
        let Some(step) = step else { return false };
        self.happened.set(step, 0);
        self.owed -= 1;
        self.steps.after_end(step).into_iter().for_each(|next| self.release(next));
        true
    }

    /// The number of the next message that may be sent now, if there is one.
    pub fn poll_send(&mut self) -> Option<u32> {
        let message = self.ready.pop_front()?;
        let step = self.steps.of_send(message).expect("a message of this rank");
        self.happened.set(step, self.happened.largest());
        self.steps.after_posting(step).into_iter().for_each(|next| self.release(next));
        Some(message)
    }

    /// The number of messages that may be sent now.
    pub fn ready(&self) -> u32 {
        self.ready.len() as u32
    }

    /// True if every message of this rank's result has arrived.
    pub fn has_received(&self) -> bool {
        self.missing == 0
    }

    /// True if every message has arrived, here and at the receivers. Then the application may use the buffer again.
    pub fn is_finished(&self) -> bool {
        self.missing == 0 && self.owed == 0
    }

    /// One more of the events that a step waits for has happened.
    fn release(&mut self, step: u32) {
        let mut next = Some(step);
        while let Some(step) = next.take().or_else(|| self.released.pop()) {
            let (happened, needed) = (self.happened.get(step), self.steps.waits_of(step));
            // More events than needed: a message was reported twice.
            if happened >= needed {
                continue;
            }
            self.happened.set(step, happened + 1);
            if happened + 1 < needed {
                continue;
            }
            match self.steps.does(step) {
                // The caller of a plan asks for its sends.
                Does::Send(_) if matches!(self.steps, Steps::Planned { .. }) => {}
                Does::Send(message) => self.ready.push_back(message),
                Does::Receive(_) => self.missing -= 1,
                Does::Nothing => {}
            }
            next = self.steps.next_of(step);
            if let Steps::Tabled { next, .. } | Steps::Planned { next, .. } = &self.steps {
                self.released.extend(next.of(step).iter().rev());
            }
        }
    }
}

/// The steps of one rank, and their order.
#[derive(Clone, Debug)]
enum Steps<'a> {
    /// Computed: step `2 i` receives the message with index `i`, and step `2 i + 1` sends the one with index `i`.
    Computed {
        schedule: Schedule,
        rank: Rank,
        /// The number of the rank's first message.
        first: u32,
    },
    /// The nodes of a recipe. They wait for the begin, too; a send has happened as soon as it is ready.
    Tabled {
        recipe: &'a Recipe,
        rank: u32,
        /// The steps that wait for each step.
        next: Box<Lists>,
    },
    /// The receives, sends and sums of a plan, in this order. They are like the nodes of a recipe.
    Planned {
        receives: u32,
        sends: u32,
        /// The number of events that each step waits for.
        waits: Vec<u32>,
        next: Box<Lists>,
    },
}

impl<'a> Steps<'a> {
    fn new(plans: &'a Plans, rank: Rank) -> Steps<'a> {
        let recipe = match plans {
            Plans::Computed(schedule) => {
                return Steps::Computed { schedule: *schedule, rank, first: rank.0 * schedule.messages() };
            }
            Plans::Tabled { recipe, .. } => recipe,
        };
        let (rank, count) = (rank.0, recipe.nodes_of(rank.0));
        let before = |step| recipe.node(rank, step).1.iter().map(move |&before| (before, step));
        Steps::Tabled { recipe, rank, next: Box::new(Lists::new(count as usize, (0..count).flat_map(before))) }
    }

    fn planned(plan: &RankPlan) -> Steps<'static> {
        let (receives, sends) = (plan.receives.len() as u32, plan.sends.len() as u32);
        let of_receives = plan.receives.iter().map(|receive| (&receive.after[..], 2));
        let of_sends = plan.sends.iter().map(|send| (&send.after[..], 1));
        // Each step waits for the begin; a receive and a sum also wait until they are complete.
        let steps = of_receives.chain(of_sends).chain(plan.sums.iter().map(|_| (&[][..], 2)));
        let waits = steps.clone().map(|(after, more)| after.len() as u32 + more).collect();
        let pairs = (0..).zip(steps).flat_map(|(step, (after, _))| {
            after.iter().map(move |&condition| (place(condition, receives, sends), step))
        });
        let count = (receives + sends) as usize + plan.sums.len();
        Steps::Planned { receives, sends, waits, next: Box::new(Lists::new(count, pairs)) }
    }

    fn of_condition(&self, condition: Condition) -> u32 {
        let Steps::Planned { receives, sends, .. } = self else { unreachable!("only plans have conditions") };
        place(condition, *receives, *sends)
    }

    fn count(&self) -> u32 {
        match self {
            Steps::Computed { schedule, .. } => 2 * schedule.messages(),
            Steps::Tabled { recipe, rank, .. } => recipe.nodes_of(*rank),
            Steps::Planned { waits, .. } => waits.len() as u32,
        }
    }

    /// The numbers of messages that the rank receives and sends.
    fn messages(&self) -> [u32; 2] {
        match self {
            Steps::Computed { schedule, .. } => [schedule.messages(); 2],
            Steps::Planned { receives, sends, .. } => [*receives, *sends],
            Steps::Tabled { .. } => (0..self.count()).fold([0; 2], |[receives, sends], step| match self.does(step) {
                Does::Receive(_) => [receives + 1, sends],
                Does::Send(_) => [receives, sends + 1],
                Does::Nothing => [receives, sends],
            }),
        }
    }

    fn does(&self, step: u32) -> Does {
        match self {
            Steps::Computed { first, .. } if step % 2 == 1 => Does::Send(first + step / 2),
            Steps::Computed { .. } => Does::Receive(step / 2),
            Steps::Tabled { recipe, rank, .. } => recipe.node(*rank, step).0,
            Steps::Planned { receives, .. } if step < *receives => Does::Receive(step),
            Steps::Planned { receives, sends, .. } if step < receives + sends => Does::Send(step - receives),
            Steps::Planned { .. } => Does::Nothing,
        }
    }

    /// The number of events that a step waits for.
    fn waits_of(&self, step: u32) -> u32 {
        match self {
            Steps::Computed { schedule, .. } if step % 2 == 1 => schedule.waits_of(step / 2),
            Steps::Computed { .. } => 1,
            Steps::Tabled { recipe, rank, .. } => {
                let (does, after) = recipe.node(*rank, step);
                after.len() as u32 + 1 + u32::from(matches!(does, Does::Receive(_)))
            }
            Steps::Planned { waits, .. } => waits[step as usize],
        }
    }

    fn longest_wait(&self) -> u32 {
        match self {
            Steps::Computed { .. } => 2,
            _ => (0..self.count()).map(|step| self.waits_of(step)).max().unwrap_or(0),
        }
    }

    /// The step that receives a message.
    fn of_receive(&self, message: u32) -> Option<u32> {
        match self {
            Steps::Computed { schedule, rank, .. } => {
                let (from, index) = (message / schedule.messages(), message % schedule.messages());
                (schedule.source(*rank, schedule.step_of(index)).0 == from).then_some(2 * index)
            }
            Steps::Tabled { recipe, rank, .. } => {
                let entry = recipe.messages().get(message as usize).filter(|entry| entry.to == *rank)?;
                Some(entry.nodes[1])
            }
            Steps::Planned { receives, .. } => Some(message).filter(|message| message < receives),
        }
    }

    /// The step that sends a message.
    fn of_send(&self, message: u32) -> Option<u32> {
        match self {
            Steps::Computed { schedule, first, .. } => {
                message.checked_sub(*first).filter(|&index| index < schedule.messages()).map(|index| 2 * index + 1)
            }
            Steps::Tabled { recipe, rank, .. } => {
                let entry = recipe.messages().get(message as usize).filter(|entry| entry.from == *rank)?;
                Some(entry.nodes[0])
            }
            Steps::Planned { receives, sends, .. } => Some(receives + message).filter(|_| message < *sends),
        }
    }

    /// The step of a schedule that waits for a step.
    fn next_of(&self, step: u32) -> Option<u32> {
        let Steps::Computed { schedule, .. } = self else { return None };
        let receives = step.is_multiple_of(2);
        Some(2 * schedule.released_by_receipt(step / 2).filter(|_| receives)? + 1)
    }

    /// The step that waits until a message is handed out.
    fn after_posting(&self, step: u32) -> Option<u32> {
        let Steps::Computed { schedule, .. } = self else { return None };
        Some(2 * schedule.released_by_posting(step / 2)? + 1)
    }

    /// The step that waits until a message has ended.
    fn after_end(&self, step: u32) -> Option<u32> {
        let Steps::Computed { schedule, .. } = self else { return None };
        Some(2 * schedule.released_by_end(step / 2)? + 1)
    }
}

/// The step of a condition in a plan with these numbers of receives and sends.
fn place(condition: Condition, receives: u32, sends: u32) -> u32 {
    match condition {
        Condition::Received(receive) => receive as u32,
        Condition::Posted(send) => receives + send as u32,
        Condition::Added(sum) => receives + sends + sum as u32,
    }
}

/// Small numbers, packed: those of a schedule have two bits each, since a rank of a large ring has thousands of steps.
#[derive(Clone, Debug)]
struct Counters {
    bits: u32,
    words: Vec<u64>,
}

impl Counters {
    fn new(count: u32, largest: u32) -> Counters {
        // One more than the largest count must fit: it has a meaning of its own.
        let bits = (u32::BITS - (largest + 1).leading_zeros()).next_power_of_two();
        Counters { bits, words: vec![0; (u64::from(count) * u64::from(bits)).div_ceil(64) as usize] }
    }

    fn largest(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    fn place(&self, at: u32) -> (usize, u32) {
        let bit = u64::from(at) * u64::from(self.bits);
        ((bit / 64) as usize, (bit % 64) as u32)
    }

    fn get(&self, at: u32) -> u32 {
        let (word, shift) = self.place(at);
        (self.words[word] >> shift) as u32 & self.largest()
    }

    fn set(&mut self, at: u32, value: u32) {
        let ((word, shift), mask) = (self.place(at), u64::from(self.largest()));
        self.words[word] = self.words[word] & !(mask << shift) | u64::from(value) << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    fn computed(algorithm: Algorithm, ranks: u32, bytes: u64, parts: u32) -> Plans {
        Plans::Computed(Schedule::new(algorithm, ranks, bytes, parts).expect("a schedule"))
    }

    #[test]
    fn an_unexpected_message_is_refused_and_changes_nothing() {
        let ring = computed(Algorithm::RingAllReduce, 3, 30, 1);
        let mut rank = Executor::new(&ring, Rank(0));
        // Each rank has four messages: those of rank 1 are 4 to 7, those of rank 2 are 8 to 11.
        assert_eq!([4, 12].map(|message| rank.handle_received(message)), [false; 2]);
        assert_eq!([1, 4].map(|message| rank.handle_sent(message)), [false; 2]);
        assert_eq!((rank.poll_send(), rank.poll_send()), (Some(0), None));
        for _ in 0..2 {
            assert!(rank.handle_received(8));
        }
        assert_eq!((rank.poll_send(), rank.poll_send()), (Some(1), None));
        assert_eq!([0, 0].map(|message| rank.handle_sent(message)), [true, false]);
    }

    #[test]
    fn halving_waits_for_all_steps_before() {
        let plans = computed(Algorithm::HalvingDoubling, 8, 80, 1);
        let mut rank = Executor::new(&plans, Rank(0));
        assert_eq!(rank.poll_send(), Some(0));
        // The second partner is fast, the first one slow. Each rank has six messages.
        assert!(rank.handle_received(2 * 6 + 1));
        assert_eq!(rank.poll_send(), None);
        assert!(rank.handle_received(6));
        assert_eq!((rank.poll_send(), rank.poll_send()), (Some(1), Some(2)));
    }

    #[test]
    fn shortened_schedules_are_performed_to_their_end_and_reach_spread_peers() {
        for (algorithm, steps) in [
            (Algorithm::RingAllReduce, 5),
            (Algorithm::RingReduceScatter, 3),
            (Algorithm::RingAllGather, 15),
            (Algorithm::AllToAll { window: 2 }, 4),
        ] {
            let schedule = Schedule::new(algorithm, 16, 16_000, 2).expect("a schedule").shortened(steps);
            assert_eq!(schedule.messages(), steps * 2);
            let plans = Plans::Computed(schedule);
            let mut ranks: Vec<Executor<'_>> = (0..16).map(|rank| Executor::new(&plans, Rank(rank))).collect();
            let mut sent = 0;
            while let Some((rank, number)) = (0..16).find_map(|rank| Some((rank, ranks[rank].poll_send()?))) {
                let message = plans.message(number);
                assert!(ranks[message.to.0 as usize].handle_received(number));
                assert!(ranks[rank].handle_sent(number));
                sent += message.bytes;
            }
            assert!(ranks.iter().all(Executor::is_finished), "{algorithm:?}");
            assert_eq!(sent, schedule.volume(), "{algorithm:?}");
        }
        let spread = Schedule::new(Algorithm::AllToAll { window: 2 }, 16, 16_000, 1).expect("a schedule").shortened(5);
        assert_eq!(spread.sends(Rank(14)).map(|send| send.to.0).collect::<Vec<u32>>(), [15, 2, 5, 8, 11]);
    }

    #[test]
    fn a_large_ring_has_half_a_byte_for_each_message_of_a_rank() {
        let plans = computed(Algorithm::RingAllReduce, 8_192, 1 << 30, 1);
        let rank = Executor::new(&plans, Rank(5));
        assert_eq!(rank.happened.words.len() as u32 * 8, (2 * 8_191_u32).div_ceil(16) * 8);
    }
}
