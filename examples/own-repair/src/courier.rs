//! The scheme: the receiver looks at the bitmap four times in a round trip. After the first packet has come, it
//! requests missing chunks by control message, one run of chunks at a time. The sender sends the requested chunks.

use strandway_proto::partial::Progress;
use strandway_proto::{ControlMessage, Span, Time};

const ASK: u16 = 1;
const DONE: u16 = 2;

/// One end of a one-way connection in either world: `strandway_proto::Endpoint` or `strandway_udp::Node`.
pub trait End {
    /// Posts a receive for the message; returns the number of the receive.
    fn expect(&mut self) -> u64;
    /// Begins the message and sends all of it once; returns the number of the stream, if the peer has room for it.
    fn begin(&mut self) -> Option<u64>;
    /// Sends these chunks once more.
    fn again(&mut self, stream: u64, chunks: std::ops::Range<u32>);
    /// Ends the stream.
    fn end(&mut self, stream: u64);
    /// The packets of a receive that have come.
    fn progress(&self, receive: u64) -> &Progress;
    /// Sends a control message to the other end.
    fn send(&mut self, control: ControlMessage);
}

/// The state of one end: the number of its stream or receive, the time of the next look, and whether all is done.
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

    /// The receiver's end: posts a receive.
    pub fn receiver(end: &mut impl End, round_trip: Span) -> Courier {
        Courier { number: Some(end.expect()), look_at: Time::ZERO, ..Courier::sender(round_trip) }
    }

    /// The sender begins as soon as there is room.
    pub fn send(&mut self, end: &mut impl End) {
        self.number = self.number.or_else(|| end.begin());
    }

    /// Handles a control message: the sender sends the requested chunks again, and stops when the receiver has all.
    pub fn handle_control(&mut self, end: &mut impl End, control: ControlMessage) {
        let (ControlMessage::Custom { kind, words }, Some(stream), false) = (control, self.number, self.done) else {
            return;
        };
        if kind == ASK {
            return end.again(stream, words[0]..words[0].saturating_add(words[1]));
        }
        end.end(stream);
        self.done = true;
    }

    /// The receiver looks at the bitmap: it requests the first run of missing chunks, or reports that it has all.
    pub fn handle_timeout(&mut self, end: &mut impl End, now: Time) {
        let Some(receive) = self.number else { return };
        let progress = end.progress(receive);
        let begun = progress.packets_present() > 0;
        self.look_at = now + Span(if begun { self.round_trip.0 * 5 / 4 } else { self.round_trip.0 / 4 });
        if begun {
            let (first, chunks) = (progress.first_missing(0), progress.chunks());
            let run = (first..chunks).take_while(|&chunk| !progress.has_chunk(chunk)).count() as u32;
            self.done = first == chunks;
            let (kind, words) = if self.done { (DONE, [0; 4]) } else { (ASK, [first, run, 0, 0]) };
            end.send(ControlMessage::Custom { kind, words });
        }
    }
}
