//! One-sided reads: the numbers of requests, and the limits of those who ask and those who answer.
//!
//! A read is two messages of one connection. The reader sends a *request*, a message without payload; the target
//! answers with an *answer*, a message whose payload goes where the reader wants it. Both are ordinary messages, so
//! paths, pace, retransmission and congestion control are those of writes. The worlds know what a request asks for
//! (memory and keys on sockets, a flow in the simulator); the two engines here know how many may be under way:
//!
//! - A [`Reader`] has at most `reads` requests under way. Further ones wait at the reader.
//! - A [`Target`] has answers of at most `bytes` bytes under way; each counts as [`ANSWER_MIN`] bytes or more. At most
//!   `reads` requests wait for that. A request beyond them is refused, which the reader is told. A peer that ignores
//!   refusals, or repeats a request, breaks the protocol.
//!
//! A target never refuses a request of a reader with the same limits: the requests that wait at the target are among
//! those that the reader has under way.

use std::collections::{BTreeMap, VecDeque};

/// Bytes of a request: operation, number, key, start and length of the memory to read.
pub const REQUEST_BYTES: u64 = 32;

/// Bytes as which an answer counts if it has fewer. Ours: it bounds the number of answers under way, too.
pub const ANSWER_MIN: u64 = 4_096;

/// The limits of reads on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// The reader's most requests under way, and the target's most requests that wait.
    pub reads: usize,
    /// The target begins no further answer while answers of this many bytes are under way. One answer always is,
    /// whatever its length.
    pub bytes: u64,
}

impl ReadLimits {
    /// Those of nodes and of the simulator. Ours: a read of 64 KiB each keeps 64 MiB under way, enough for 10 Gb/s over
    /// 50 ms.
    pub const DEFAULT: ReadLimits = ReadLimits { reads: 1_024, bytes: 64 << 20 };
}

/// The side that reads: requests of a connection that are not answered. `T` is what the caller keeps for each.
#[derive(Clone, Debug)]
pub struct Reader<T> {
    most: usize,
    /// The number of the next request.
    next: u32,
    /// The number of the next request to send.
    unsent: u32,
    /// The requests that are not answered, by number, sent or not.
    asked: BTreeMap<u32, T>,
}

impl<T> Reader<T> {
    /// A side without requests.
    pub const fn new(limits: ReadLimits) -> Reader<T> {
        Reader { most: limits.reads, next: 0, unsent: 0, asked: BTreeMap::new() }
    }

    /// The caller wants to read. Returns the number of the request, which [`Reader::poll_request`] returns when the
    /// request may leave. Numbers count upwards from 0 and wrap.
    pub fn ask(&mut self, what: T) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.asked.insert(number, what);
        number
    }

    /// Requests that wait for others to be answered.
    fn waiting(&self) -> usize {
        self.next.wrapping_sub(self.unsent) as usize
    }

    /// The number of the next request to send, unless too many are under way. Requests leave in the order of asking.
    pub fn poll_request(&mut self) -> Option<u32> {
        let under_way = self.asked.len() - self.waiting();
        if self.waiting() == 0 || under_way >= self.most {
            return None;
        }
        let number = self.unsent;
        self.unsent = number.wrapping_add(1);
        Some(number)
    }

    /// The request with this number, if it was sent and is not answered.
    pub fn get(&self, number: u32) -> Option<&T> {
        if self.next.wrapping_sub(number) as usize <= self.waiting() { None } else { self.asked.get(&number) }
    }

    /// The request with this number, to change what the caller keeps for it; `None` if it was not sent or is answered.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.get(number)?;
        self.asked.get_mut(&number)
    }

    /// Takes the request with this number, if it was sent and is not answered: it is answered now.
    pub fn finish(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        self.asked.remove(&number)
    }

    /// Requests that are not answered, sent or not.
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Is every request answered?
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// All requests that are not answered.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.asked.values()
    }
}

/// The treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer it.
    Answer,
    /// Tell the reader that it asks for too much at a time.
    Refuse,
    /// The peer repeats a request, leaves one out, or ignores refusals: it breaks the protocol.
    Violation,
}

/// The side that is read from: requests of a connection that are not answered. `T` is what the caller keeps for each.
#[derive(Clone, Debug)]
pub struct Target<T> {
    limits: ReadLimits,
    /// The number of the next request.
    next: u32,
    /// Answers that wait, with the bytes as which they count.
    waiting: VecDeque<(u64, T)>,
    /// Answers under way, and the bytes as which they count.
    under_way: usize,
    bytes: u64,
}

impl<T> Target<T> {
    /// A side without requests.
    pub const fn new(limits: ReadLimits) -> Target<T> {
        Target { limits, next: 0, waiting: VecDeque::new(), under_way: 0, bytes: 0 }
    }

    /// A request has arrived. Unless it is a violation, the caller must [`Target::push`] an answer or a refusal for it.
    pub fn handle_request(&mut self, number: u32) -> Verdict {
        let waiting = self.waiting.len();
        if number != self.next || waiting >= 2 * self.limits.reads {
            return Verdict::Violation;
        }
        self.next = number.wrapping_add(1);
        if waiting < self.limits.reads { Verdict::Answer } else { Verdict::Refuse }
    }

    /// An answer, or a refusal, of this many bytes waits to leave.
    pub fn push(&mut self, bytes: u64, answer: T) {
        self.waiting.push_back((bytes.max(ANSWER_MIN), answer));
    }

    /// The next answer to send, in the order of requests, if the limit of bytes allows it.
    pub fn poll_answer(&mut self) -> Option<T> {
        let &(bytes, _) = self.waiting.front()?;
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > self.limits.bytes {
            return None;
        }
        self.under_way += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.waiting.pop_front().map(|(_, answer)| answer)
    }

    /// The reader has an answer that [`Target::poll_answer`] returned, and that was pushed with this many bytes.
    ///
    /// # Panics
    /// If no answer of that length is under way.
    pub fn finish(&mut self, bytes: u64) {
        let bytes = bytes.max(ANSWER_MIN);
        assert!(self.under_way > 0 && bytes <= self.bytes, "an answer that was under way");
        self.under_way -= 1;
        self.bytes -= bytes;
    }

    /// Requests that are not answered.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.under_way
    }

    /// Is every request answered?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: ReadLimits = ReadLimits { reads: 3, bytes: 10_000 };

    #[test]
    fn a_reader_has_a_few_requests_under_way_and_the_others_wait() {
        let mut reader = Reader::new(LIMITS);
        for i in 0..5 {
            assert_eq!(reader.ask(i), i);
        }
        let sent: Vec<u32> = std::iter::from_fn(|| reader.poll_request()).collect();
        assert_eq!(sent, [0, 1, 2]);
        assert_eq!((reader.get(2), reader.get(3)), (Some(&2), None), "request 3 was not sent");
        assert_eq!(reader.finish(4), None, "neither was request 4");
        assert_eq!(reader.finish(1), Some(1));
        assert_eq!(reader.finish(1), None, "answered once");
        assert_eq!(std::iter::from_fn(|| reader.poll_request()).collect::<Vec<_>>(), [3]);
        assert_eq!(reader.len(), 4);
    }

    #[test]
    fn a_target_keeps_to_its_bytes_and_answers_in_order() {
        let mut target = Target::new(LIMITS);
        for (number, bytes) in [(0, 50_000), (1, 6_000), (2, 4_001)] {
            assert_eq!(target.handle_request(number), Verdict::Answer);
            target.push(bytes, number);
        }
        assert_eq!(target.poll_answer(), Some(0), "one answer may be longer than the limit");
        assert_eq!(target.poll_answer(), None);
        target.finish(50_000);
        assert_eq!(target.poll_answer(), Some(1));
        assert_eq!(target.poll_answer(), None, "a byte too much, even as it counts as 4,096");
        target.finish(6_000);
        assert_eq!(target.poll_answer(), Some(2));
        target.finish(4_001);
        assert!(target.is_empty());
    }

    #[test]
    fn requests_that_come_again_or_without_end_are_a_violation() {
        let mut target = Target::new(LIMITS);
        for number in 0..6 {
            let expected = if number < 3 { Verdict::Answer } else { Verdict::Refuse };
            assert_eq!(target.handle_request(number), expected);
            target.push(0, number);
        }
        assert_eq!(target.handle_request(6), Verdict::Violation, "twice the limit");
        assert_eq!((target.poll_answer(), target.poll_answer()), (Some(0), Some(1)));
        assert_eq!(target.poll_answer(), None, "answers without bytes count as some");
        for _ in 0..10_000 {
            assert_eq!(target.handle_request(5), Verdict::Violation, "it came before");
        }
        assert_eq!(target.handle_request(7), Verdict::Violation, "6 was left out");
        assert_eq!(target.handle_request(6), Verdict::Refuse);
        assert_eq!(target.len(), 6);
    }

    proptest! {
        /// A reader and a target with any limits, and any order of events between them.
        #[test]
        fn each_request_is_answered_once(
            reads in 1usize..5,
            bytes in 1u64..30_000,
            lengths in prop::collection::vec(0u64..20_000, 0..40),
            order in prop::collection::vec(0usize..5, 0..400),
        ) {
            let limits = ReadLimits { reads, bytes };
            let (mut reader, mut target) = (Reader::new(limits), Target::new(limits));
            let mut wanted = lengths.iter();
            let (mut requests, mut answers, mut acks) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
            let mut answered = Vec::new();
            let rest = std::iter::repeat_n(0..5, 50 * (lengths.len() + 1)).flatten();
            for step in order.into_iter().chain(rest) {
                match step {
                    0 => drop(wanted.next().map(|&bytes| reader.ask(bytes))),
                    1 => requests.extend(reader.poll_request()),
                    2 => if let Some(number) = requests.pop_front() {
                        let bytes = *reader.get(number).expect("sent");
                        prop_assert_eq!(target.handle_request(number), Verdict::Answer, "equal limits refuse nothing");
                        target.push(bytes, (number, bytes));
                    },
                    3 => {
                        answers.extend(target.poll_answer());
                        let under_way = || answers.iter().map(|&(_, bytes)| bytes).chain(acks.iter().copied());
                        let sum: u64 = under_way().map(|bytes| bytes.max(ANSWER_MIN)).sum();
                        prop_assert!(sum <= limits.bytes || under_way().count() == 1);
                        if let Some((number, bytes)) = answers.pop_front() {
                            prop_assert_eq!(reader.finish(number), Some(bytes));
                            answered.push(number);
                            acks.push_back(bytes);
                        }
                    }
                    // The target knows it later than the reader.
                    _ => if let Some(bytes) = acks.pop_front() {
                        target.finish(bytes);
                    }
                }
            }
            prop_assert_eq!(answered, (0..lengths.len() as u32).collect::<Vec<_>>());
            prop_assert!(reader.is_empty() && target.is_empty());
        }
    }
}
