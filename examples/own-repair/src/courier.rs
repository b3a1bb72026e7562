//! The scheme: the receiver looks at the bitmap four times in a round trip; whatever is missing after the first packet came it asks for
//! by letter, a run of chunks at a time. The sender sends what it is asked for.

use strandway_proto::partial::Progress;
use strandway_proto::{Letter, Span, Time};

const ASK: u16 = 1;
const DONE: u16 = 2;

/// One end of a one-way connection, in whichever world: `strandway_proto::Endpoint` or `strandway_udp::Node`.
pub trait End {
    /// Makes room for the message: the number of the receive.
    fn expect(&mut self) -> u64;
    /// Begins the message and sends all of it once: the number of the stream, if there is room for it.
    fn begin(&mut self) -> Option<u64>;
    /// These chunks once more.
    fn again(&mut self, stream: u64, chunks: std::ops::Range<u32>);
    /// No more of the stream.
    fn end(&mut self, stream: u64);
    /// What has come.
    fn progress(&self, receive: u64) -> &Progress;
    /// Writes to the other end.
    fn tell(&mut self, letter: Letter);
}

/// What one end knows: the number of its stream or receive, when to look next, and whether all is done.
pub struct Courier {
    pub number: Option<u64>,
    pub look_at: Time,
    pub done: bool,
    round_trip: Span,
}

impl Courier {
    /// The sender's end.
    pub fn sender(round_trip: Span) -> Courier {
        Courier { number: None, look_at: Time::NEVER, done: false, round_trip }
    }

    /// The receiver's end: makes room.
    pub fn receiver(end: &mut impl End, round_trip: Span) -> Courier {
        Courier { number: Some(end.expect()), look_at: Time::ZERO, ..Courier::sender(round_trip) }
    }

    /// The sender begins as soon as there is room.
    pub fn send(&mut self, end: &mut impl End) {
        self.number = self.number.or_else(|| end.begin());
    }

    /// A letter is here: the sender sends again what it is asked for, and stops when it may.
    pub fn handle_letter(&mut self, end: &mut impl End, letter: Letter) {
        let (Letter::Custom { kind, words }, Some(stream), false) = (letter, self.number, self.done) else { return };
        if kind == ASK {
            return end.again(stream, words[0]..words[0].saturating_add(words[1]));
        }
        end.end(stream);
        self.done = true;
    }

    /// The receiver looks at the bitmap: asks for the first run of chunks that is missing, or says that it has all.
    pub fn look(&mut self, end: &mut impl End, now: Time) {
        let Some(receive) = self.number else { return };
        let progress = end.progress(receive);
        let begun = progress.packets_present() > 0;
        self.look_at = now + Span(if begun { self.round_trip.0 * 5 / 4 } else { self.round_trip.0 / 4 });
        if begun {
            let (first, chunks) = (progress.first_missing(0), progress.chunks());
            let run = (first..chunks).take_while(|&chunk| !progress.has_chunk(chunk)).count() as u32;
            self.done = first == chunks;
            let (kind, words) = if self.done { (DONE, [0; 4]) } else { (ASK, [first, run, 0, 0]) };
            end.tell(Letter::Custom { kind, words });
        }
    }
}
