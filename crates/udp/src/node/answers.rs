//! Answered hellos. A repeated hello gets the same answer again, in case the welcome was lost, and never a second
//! connection.

use crate::clock::earlier;
use crate::frame::{NOISE_HELLO, NOISE_WELCOME};
use crate::handshake::COOKIE_SECONDS;
use std::collections::{BTreeMap, HashMap};
use strandway_proto::{Span, Time};

/// How long an answer is kept: the life of the cookie in its hello, which is in whole seconds, and one second more.
/// After that the hello is refused because of its cookie.
const LIFE: Span = Span::from_ms(1_000 * (COOKIE_SECONDS + 1));

struct Answered {
    number: u64,
    welcome: [u8; NOISE_WELCOME],
}

/// At most `most` answers; a new one replaces the oldest.
pub(super) struct Answers {
    by_hello: HashMap<[u8; NOISE_HELLO], Answered>,
    /// In the order in which they were given.
    order: BTreeMap<u64, (Time, [u8; NOISE_HELLO])>,
    count: u64,
    most: usize,
}

impl Answers {
    pub(super) fn new(most: usize) -> Answers {
        Answers { by_hello: HashMap::new(), order: BTreeMap::new(), count: 0, most }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_hello.len().max(self.order.len())
    }

    pub(super) fn get(&self, hello: &[u8; NOISE_HELLO]) -> Option<&[u8; NOISE_WELCOME]> {
        self.by_hello.get(hello).map(|answered| &answered.welcome)
    }

    pub(super) fn insert(&mut self, now: Time, hello: [u8; NOISE_HELLO], welcome: [u8; NOISE_WELCOME]) {
        while let Some((_, (at, oldest))) = self.order.first_key_value()
            && (self.order.len() >= self.most || now.since(*at) > LIFE)
        {
            let oldest = *oldest;
            self.forget(&oldest);
        }
        self.forget(&hello);
        self.count += 1;
        self.by_hello.insert(hello, Answered { number: self.count, welcome });
        self.order.insert(self.count, (now, hello));
    }

    /// The clock was set back.
    pub(super) fn go_back(&mut self, back: Span) {
        self.order.values_mut().for_each(|(at, _)| *at = earlier(*at, back));
    }

    /// Forgets a hello: if it comes again, it counts as a new one.
    pub(super) fn forget(&mut self, hello: &[u8; NOISE_HELLO]) {
        if let Some(answered) = self.by_hello.remove(hello) {
            self.order.remove(&answered.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_bounded_and_the_oldest_go_first() {
        let mut answers = Answers::new(3);
        let now = Time::ZERO + Span::from_ms(60_000);
        let hello = |i: u8| [i; NOISE_HELLO];
        for i in 0..5 {
            answers.insert(now, hello(i), [i; NOISE_WELCOME]);
        }
        assert!((0..2).all(|i| answers.get(&hello(i)).is_none()));
        assert!((2..5).all(|i| answers.get(&hello(i)) == Some(&[i; NOISE_WELCOME])));
        answers.forget(&hello(3));
        answers.insert(now, hello(4), [9; NOISE_WELCOME]);
        assert_eq!((answers.by_hello.len(), answers.order.len()), (2, 2));
        // When a cookie's life is over, all of them are dropped.
        answers.insert(now + Span::from_ms(12_000), hello(7), [7; NOISE_WELCOME]);
        assert_eq!((answers.by_hello.len(), answers.order.len()), (1, 1));
    }
}
