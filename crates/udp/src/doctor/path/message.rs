//! The datagrams of a path's examination: requests, and answers that are never longer.

use strandway_wire::Reader;

/// The first bytes of every request and of every answer.
const REQUEST: [u8; 4] = *b"SwDq";
const ANSWER: [u8; 4] = *b"SwDa";
/// The version of both; the doctors of two hosts must have the same.
const VERSION: u8 = 1;

/// The bytes of an answer, and the fewest of a request, so that an answer is never longer.
pub(super) const HEAD: usize = 80;

/// The wish of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A cookie, which proves that the asking host receives answers.
    Hello,
    /// An answer as long as the request says.
    Echo,
    /// The counters of this train of requests.
    Report,
    /// A datagram from another port to another port of the asking host.
    Call,
}

const WISHES: [Wish; 4] = [Wish::Hello, Wish::Echo, Wish::Report, Wish::Call];

/// A request. It is padded with zeros to any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) wish: Wish,
    /// DSCP and ECN of the answer.
    pub(super) class: u8,
    /// The measurement that it belongs to: the listener counts for each anew.
    pub(super) train: u8,
    /// The number of the asking process, chosen at random.
    pub(super) token: u64,
    /// The listener's, from its answer to a hello.
    pub(super) cookie: u64,
    /// Its number in the train; of a hello, the number of those before it.
    pub(super) number: u32,
    /// Bytes of the answer.
    pub(super) length: u16,
    /// Of a call: the port to call.
    pub(super) port: u16,
}

/// Counters of a train at the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Requests that arrived, and answers that left.
    pub(super) received: u32,
    pub(super) answered: u32,
    /// Requests that arrived after one with a higher number.
    pub(super) late: u32,
    /// Bytes of requests after the first one, and the microseconds in which they came.
    pub(super) bytes: u64,
    pub(super) micros: u32,
    /// Bit `i`: a request with number `i` arrived.
    pub(super) seen: u32,
    /// The least MTU in a "packet too big" that answers have met, or 0.
    pub(super) too_big: u32,
    /// Answers that the listener's own kernel found too long.
    pub(super) refused: u32,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) wish: Wish,
    /// DSCP and ECN of the request, as it arrived.
    pub(super) class: u8,
    pub(super) train: u8,
    pub(super) token: u64,
    pub(super) cookie: u64,
    /// The request's number.
    pub(super) number: u32,
    /// The number of answers in the train before it.
    pub(super) order: u32,
    /// Of a call: the port that has called.
    pub(super) port: u16,
    pub(super) counts: Counts,
}

/// Magic, version, wish, class and train.
fn read_head(reader: &mut Reader<'_>, magic: [u8; 4]) -> Option<(Wish, u8, u8)> {
    if reader.array().ok()? != magic || reader.u8().ok()? != VERSION {
        return None;
    }
    Some((*WISHES.get(usize::from(reader.u8().ok()?))?, reader.u8().ok()?, reader.u8().ok()?))
}

/// Writes what [`read_head`] reads.
fn begin(into: &mut Vec<u8>, magic: [u8; 4], wish: Wish, class: u8, train: u8) {
    into.clear();
    into.extend(magic);
    into.extend([VERSION, wish as u8, class, train]);
}

impl Request {
    /// Writes it with this length, at least [`HEAD`].
    pub(super) fn encode(&self, length: usize, into: &mut Vec<u8>) {
        begin(into, REQUEST, self.wish, self.class, self.train);
        into.extend(self.token.to_be_bytes());
        into.extend(self.cookie.to_be_bytes());
        into.extend(self.number.to_be_bytes());
        into.extend(self.length.to_be_bytes());
        into.extend(self.port.to_be_bytes());
        into.resize(length.max(HEAD), 0);
    }

    /// Reads it. `None` for anything else, and for a request that is shorter than its answer would be.
    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        if bytes.len() < HEAD {
            return None;
        }
        let mut reader = Reader::new(bytes);
        let (wish, class, train) = read_head(&mut reader, REQUEST)?;
        Some(Request {
            wish,
            class,
            train,
            token: reader.u64().ok()?,
            cookie: reader.u64().ok()?,
            number: reader.u32().ok()?,
            length: reader.u16().ok()?,
            port: reader.u16().ok()?,
        })
    }
}

impl Answer {
    /// Writes it with this length, at least [`HEAD`].
    pub(super) fn encode(&self, length: usize, into: &mut Vec<u8>) {
        begin(into, ANSWER, self.wish, self.class, self.train);
        into.extend(self.token.to_be_bytes());
        into.extend(self.cookie.to_be_bytes());
        let Counts { received, answered, late, bytes, micros, seen, too_big, refused } = self.counts;
        let port = u32::from(self.port);
        for word in [self.number, self.order, port, received, answered, late, micros, seen, too_big, refused] {
            into.extend(word.to_be_bytes());
        }
        into.extend(bytes.to_be_bytes());
        into.resize(length.max(HEAD), 0);
    }

    /// Reads it; `None` for anything else.
    pub(super) fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut reader = Reader::new(bytes);
        let (wish, class, train) = read_head(&mut reader, ANSWER)?;
        let (token, cookie) = (reader.u64().ok()?, reader.u64().ok()?);
        let (number, order, port) = (reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()? as u16);
        let (received, answered, late) = (reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?);
        let (micros, seen, too_big, refused) =
            (reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?, reader.u32().ok()?);
        let counts = Counts { received, answered, late, bytes: reader.u64().ok()?, micros, seen, too_big, refused };
        Some(Answer { wish, class, train, token, cookie, number, order, port, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_and_answers_are_read_as_written_and_other_bytes_never_panic(
            numbers in any::<(u8, u8, u64, u64, u32, u16, u16)>(),
            counts in any::<(u32, u32, u32, u64, u32, u32, u32)>(),
            wish in 0..4_usize,
            length in 0..2_000_usize,
            cut in 0..100_usize,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let (class, train, token, cookie, number, size, port) = numbers;
            let wish = WISHES[wish];
            let request = Request { wish, class, train, token, cookie, number, length: size, port };
            let mut wire = Vec::new();
            request.encode(length, &mut wire);
            prop_assert_eq!(wire.len(), length.max(HEAD));
            prop_assert_eq!(Request::decode(&wire), Some(request));
            prop_assert_eq!(Answer::decode(&wire), None);
            prop_assert_eq!(Request::decode(&wire[..cut.min(HEAD - 1)]), None);
            let (received, answered, late, bytes_, micros, seen, too_big) = counts;
            let counts = Counts { received, answered, late, bytes: bytes_, micros, seen, too_big, refused: late };
            let answer = Answer { wish, class, train, token, cookie, number, order: number, port, counts };
            answer.encode(length, &mut wire);
            prop_assert_eq!(Answer::decode(&wire), Some(answer));
            prop_assert_eq!(Answer::decode(&wire[..cut.min(HEAD - 9)]), None);
            let mut forged = wire[..8].to_vec();
            forged.extend(&bytes);
            let _ = (Answer::decode(&forged), Request::decode(&bytes), Answer::decode(&bytes));
        }
    }
}
