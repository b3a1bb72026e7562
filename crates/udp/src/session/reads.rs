//! Reads and atomic operations of a connection, both ways. [`strandway_proto::read`] has their numbers and limits; here
//! are memory, keys and completions.

use super::{NodeContext, Purpose, Session};
use crate::completion::Completion;
use crate::error::{Reason, Refusal};
use crate::frame::{Change, Descriptor};
use crate::handles::Operation;
use crate::memory::{Place, Rights};
use strandway_proto::Time;
use strandway_proto::read::Verdict;

/// A request of ours that is not answered.
pub(super) struct Reading {
    operation: Operation,
    /// Where the bytes go; `None` for an atomic operation.
    pub(super) place: Option<Place>,
    /// Has the peer the request? Until then it is among the messages that the engine has.
    arrived: bool,
}

/// The content of a request of the peer.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    number: u32,
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    /// These bytes. Their key is looked up when the answer leaves: a key that was taken back in between opens nothing.
    Bytes { key: u64, start: u64, bytes: u64 },
    /// The word before a change, which was made when the request came.
    Word(u64),
    /// Nothing.
    Refusal(Refusal),
}

/// The content of a read or an atomic operation of ours, without its number.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// Bytes of the peer, as many as the place has.
    Bytes { key: u64, start: u64, into: Place },
    /// A change of a word.
    Change { key: u64, start: u64, change: Change },
}

impl Session {
    /// Posts a read or an atomic operation. It takes its turn behind earlier operations.
    pub(crate) fn ask_peer(&mut self, now: Time, operation: Operation, wanted: Wanted) {
        let now = self.own(now);
        let place = match wanted {
            Wanted::Bytes { into, .. } => Some(into),
            Wanted::Change { .. } => None,
        };
        let number = self.sending.reader.ask(Reading { operation, place, arrived: false });
        let descriptor = match wanted {
            Wanted::Bytes { key, start, into } => Descriptor::Read { number, key, start, bytes: into.len() as u64 },
            Wanted::Change { key, start, change } => Descriptor::Atomic { number, key, start, change },
        };
        self.sending.push(Purpose::Request(number), None, descriptor);
        self.sending.admit(now, &mut self.endpoint);
    }

    /// The peer has a request of ours.
    pub(super) fn note_arrival(&mut self, number: u32) {
        if let Some(reading) = self.sending.reader.get_mut(number) {
            reading.arrived = true;
            self.sending.unanswered += 1;
        }
    }

    /// Where a range of an answer's bytes belongs.
    pub(super) fn place_of_answer(&self, number: u32, offset: u64, length: usize) -> Result<Place, Reason> {
        let place = self.sending.reader.get(number).and_then(|reading| reading.place).ok_or(Reason::Violation)?;
        place.part(offset, length).ok_or(Reason::TooLong)
    }

    /// The answer to a request of ours is complete: `bytes` bytes, a word, or a refusal.
    pub(super) fn finish_request(
        &mut self,
        around: &mut NodeContext<'_>,
        number: u32,
        answer: Descriptor,
        bytes: u64,
    ) -> Result<(), Reason> {
        let Reading { operation, place, arrived } = self.sending.reader.finish(number).ok_or(Reason::Violation)?;
        self.sending.unanswered -= usize::from(arrived);
        let connection = self.handle;
        let completion = match (answer, place) {
            (Descriptor::Answer { .. }, Some(place)) if bytes == place.len() as u64 => {
                Completion::Read { connection, operation, bytes }
            }
            (Descriptor::Word { word, .. }, None) => Completion::Fetched { connection, operation, word },
            (Descriptor::Refusal { refusal, .. }, _) => Completion::Refused { connection, operation, refusal },
            _ => return Err(Reason::Violation),
        };
        if let Some(place) = place {
            around.memory.release(place);
        }
        around.completions.push_back(completion);
        self.sending.admit(around.now, &mut self.endpoint);
        Ok(())
    }

    /// A request of the peer is here.
    pub(super) fn handle_read_request(
        &mut self,
        around: &mut NodeContext<'_>,
        request: Descriptor,
    ) -> Result<(), Reason> {
        let (number, bytes) = match request {
            Descriptor::Read { number, bytes, .. } => (number, bytes),
            Descriptor::Atomic { number, .. } => (number, 0),
            _ => return Err(Reason::Violation),
        };
        let answer = match (self.receiving.target.handle_request(number), request) {
            (Verdict::Violation, _) => return Err(Reason::Violation),
            (Verdict::Refuse, _) => Answer::Refusal(Refusal::TooMany),
            (Verdict::Answer, Descriptor::Atomic { key, start, change, .. }) => {
                match around.memory.open_for(Rights::ATOMIC, key, self.handle, start, size_of::<u64>() as u64) {
                    Ok(place) => Answer::Word(around.memory.change(place, |word| change.apply(word))),
                    Err(refusal) => Answer::Refusal(refusal),
                }
            }
            (Verdict::Answer, Descriptor::Read { key, start, bytes, .. }) => {
                // A request that is refused anyway must not wait, or count as bytes.
                match around.memory.open_for(Rights::READ, key, self.handle, start, bytes) {
                    Ok(_) => Answer::Bytes { key, start, bytes },
                    Err(refusal) => Answer::Refusal(refusal),
                }
            }
            (Verdict::Answer, _) => return Err(Reason::Violation),
        };
        let bytes = if let Answer::Bytes { .. } = answer { bytes } else { 0 };
        self.receiving.target.push(bytes, Asked { number, answer });
        self.answer_requests(around);
        Ok(())
    }

    /// The peer has an answer of ours.
    pub(super) fn finish_answer(&mut self, around: &mut NodeContext<'_>, bytes: u64) {
        self.receiving.target.finish(bytes);
        self.answer_requests(around);
    }

    /// Hands the engine the answers that may leave. They do not wait behind sends, which wait for receives of the peer.
    fn answer_requests(&mut self, around: &mut NodeContext<'_>) {
        while let Some(Asked { number, answer }) = self.receiving.target.poll_answer() {
            let (mut place, mut claimed) = (None, 0);
            let descriptor = match answer {
                Answer::Word(word) => Descriptor::Word { number, word },
                Answer::Refusal(refusal) => Descriptor::Refusal { number, refusal },
                Answer::Bytes { key, start, bytes: length } => {
                    claimed = length;
                    match around.memory.open_for(Rights::READ, key, self.handle, start, length) {
                        Ok(opened) => {
                            around.memory.hold(opened);
                            place = Some(opened);
                            Descriptor::Answer { number }
                        }
                        Err(refusal) => Descriptor::Refusal { number, refusal },
                    }
                }
            };
            self.sending.answer(around.now, &mut self.endpoint, claimed, place, descriptor);
        }
    }
}
