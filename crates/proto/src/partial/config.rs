//! Partial completion as a reliability of its own: nothing is acknowledged and nothing sent again; a program sees to that.

use super::{Busy, Placed, Progress, ReceiveTable, SendTable, Stretch, extend, truncated};
use crate::environment::{Environment, TransportConfig};
use crate::letter::Letter;
use crate::message::{Message, Segment};
use crate::packet::{Ack, Data, Flags, Header, MessageId, Nack, Part, PathId};
use crate::parameters;
use crate::reliability::{
    AnyReceiver, AnyReliability, Arrival, Invalid, Lost, Receiver, Reliability, ReliabilityPolicy, Settled,
};
use crate::units::{Bytes, Span, Time};
use std::collections::VecDeque;
use std::ops::Range;

parameters! {
    /// One-way connections that acknowledge nothing: a program looks at bitmaps and decides what to do about holes.
    pub struct PartialConfig {
        /// Packets of a chunk: the bitmap that programs look at has a bit for each chunk.
        chunk: u32 = 16, 1.0..=65535.0, "SDR-RDMA's benchmark: 64 KiB, 16 packets of 4 KiB";
    }
}

impl ReliabilityPolicy for PartialConfig {
    fn build(&self, transport: &TransportConfig, environment: &Environment) -> AnyReliability {
        AnyReliability::Partial(Box::new(PartialSender::new(self, transport, environment)))
    }
    fn build_receiver(&self, transport: &TransportConfig, _environment: &Environment) -> AnyReceiver {
        AnyReceiver::Partial(Box::new(PartialReceiver::new(self, transport)))
    }
    fn timeout(&self, environment: &Environment) -> Span {
        environment.timeout_min()
    }
    fn is_one_way(&self) -> bool {
        true
    }
}

/// A sender asks after a receive for the first time after so many round trips, and then after twice the time, up to
/// [`ASK_MAX`]. SDR-RDMA does not say; ours: its selective-repeat timeout.
const ASK_ROUND_TRIPS: u64 = 3;
const ASK_MAX: Span = Span::from_ms(1_000);

/// The sender of a one-way connection without repair.
#[derive(Debug)]
pub struct PartialSender {
    table: SendTable,
    chunk: u32,
    /// Messages that wait for a receive.
    waiting: VecDeque<Message>,
    /// Messages whose packets leave once, in order.
    one_shots: VecDeque<(u64, Message)>,
    /// A stream could not begin, since no receive is posted for it as far as we know.
    refused: bool,
    /// When to ask whether a receive has been posted, and how long to wait after that.
    ask_at: Time,
    patience: Span,
    first_patience: Span,
    ask: Option<Letter>,
    /// A message's last packet has left.
    injected: bool,
}

impl PartialSender {
    pub(crate) fn new(config: &PartialConfig, transport: &TransportConfig, environment: &Environment) -> PartialSender {
        let first_patience = environment.base_rtt * ASK_ROUND_TRIPS;
        PartialSender {
            table: SendTable::new(transport.mtu, 0),
            chunk: config.chunk,
            waiting: VecDeque::new(),
            one_shots: VecDeque::new(),
            refused: false,
            ask_at: Time::NEVER,
            patience: first_patience,
            first_patience,
            ask: None,
            injected: false,
        }
    }

    /// Opens a stream for a message: nothing leaves until it is pushed.
    ///
    /// # Errors
    /// If no receive is posted for it, or its slot is taken. The peer is asked after its receive until one is posted.
    pub fn begin(&mut self, message: Message) -> Result<u64, Busy> {
        if !self.waiting.is_empty() {
            return Err(Busy);
        }
        self.refused = !self.table.is_cleared();
        if self.refused {
            self.want_receive();
        }
        self.table.begin(self.stretch(message))
    }

    /// Something waits for a receive: unless it comes in time, the peer is asked.
    fn want_receive(&mut self) {
        if self.ask_at == Time::NEVER {
            // At once: whoever has no time yet is told it by the first timeout.
            self.ask_at = Time::ZERO;
        }
    }

    /// All of a message as one stretch.
    fn stretch(&self, message: Message) -> Stretch {
        let (packets, tail) = self.table.cut(message.bytes);
        Stretch { message: message.id, parity: false, plan: 0, first: 0, packets, whole: packets, tail }
    }

    /// These chunks of a stream are to leave; `again` if they did before, so that they go first.
    pub fn push(&mut self, sequence: u64, chunks: Range<u32>, again: bool) {
        let packet = |chunk: u32| chunk.saturating_mul(self.chunk);
        self.table.push(sequence, packet(chunks.start), packet(chunks.end), again);
    }

    /// Is a stream open: neither ended here nor completed by the peer?
    pub fn is_open(&self, sequence: u64) -> bool {
        self.table.stretch(sequence).is_some()
    }

    /// A stream ends: its slot is free.
    pub fn end(&mut self, sequence: u64) {
        self.table.release(sequence);
    }

    /// Messages that wait begin as far as receives and slots allow.
    fn begin_waiting(&mut self) {
        while self.table.has_slot()
            && let Some(message) = self.waiting.pop_front()
        {
            let stretch = self.stretch(message);
            let Ok(sequence) = self.table.begin(stretch) else { unreachable!("there is a slot") };
            self.table.push(sequence, 0, stretch.packets, false);
            self.one_shots.push_back((sequence, message));
        }
        self.refused &= !self.table.is_cleared();
        if self.waiting.is_empty() && !self.refused {
            (self.ask_at, self.patience) = (Time::NEVER, self.first_patience);
        }
    }
}

impl Reliability for PartialSender {
    fn open(&mut self, message: Message) {
        self.waiting.push_back(message);
        self.want_receive();
        self.begin_waiting();
    }
    fn has_next(&self) -> bool {
        self.table.has_next()
    }
    fn is_held(&self) -> bool {
        !self.waiting.is_empty()
    }
    fn next(&mut self, _now: Time) -> Option<Segment> {
        self.table.take_next()
    }
    fn on_sent(&mut self, _: Time, _: &Segment, _: PathId, _: Bytes) {
        self.injected |= self.one_shots.front().is_some_and(|&(sequence, _)| self.table.is_injected(sequence));
    }
    fn on_ack(&mut self, _: Time, _: &Ack, _: Flags, _: Bytes) -> Result<Settled, Invalid> {
        Err(Invalid::BeyondSent)
    }
    fn on_nack(&mut self, _: Time, _: &Nack, _: Flags) -> Result<Settled, Invalid> {
        Err(Invalid::BeyondSent)
    }
    fn on_letter(&mut self, _: Time, letter: &Letter, _: Flags) -> Result<Settled, Invalid> {
        match *letter {
            Letter::Clear { first, count } if u64::from(count) <= super::SLOTS => {
                let next = self.table.next_sequence();
                self.table.clear(extend(first, next) + u64::from(count));
                self.begin_waiting();
            }
            Letter::Over { sequence, .. } => self.table.release(extend(sequence, self.table.next_sequence())),
            _ => return Err(Invalid::BeyondSent),
        }
        Ok(Settled::default())
    }
    fn take_letter(&mut self) -> Option<(Letter, Flags)> {
        self.ask.take().map(|letter| (letter, Flags::NONE))
    }
    fn on_timeout(&mut self, now: Time) {
        if now >= self.ask_at {
            if self.ask_at > Time::ZERO {
                self.ask = Some(Letter::Ask { sequence: truncated(self.table.next_sequence()) });
            }
            self.ask_at = now + self.patience;
            self.patience = (self.patience * 2).min(ASK_MAX.max(self.first_patience));
        }
    }
    fn deadline(&self) -> Time {
        // The program is to hear of it at once.
        if self.injected { Time::ZERO } else { self.ask_at }
    }
    fn take_lost(&mut self) -> Option<Lost> {
        None
    }
    /// A message that is posted rather than streamed is finished when its last packet has left.
    fn take_finished(&mut self) -> Option<Message> {
        self.injected = false;
        let &(sequence, message) = self.one_shots.front()?;
        if !self.table.is_injected(sequence) {
            return None;
        }
        self.one_shots.pop_front();
        self.table.release(sequence);
        self.begin_waiting();
        Some(message)
    }
    fn in_flight(&self) -> Bytes {
        Bytes::ZERO
    }
}

/// The receiver of a one-way connection without repair.
#[derive(Debug)]
pub struct PartialReceiver {
    table: ReceiveTable,
    mtu: u32,
    /// How long each receive and its message are, by slot.
    lengths: Vec<Lengths>,
    /// Receives that the sender has not been told of: the first, and the one behind the last.
    untold: Range<u64>,
    letters: VecDeque<Letter>,
}

/// Bytes of a receive, and of the message that it takes.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    room: u64,
    /// Known with the first packet.
    message: Option<u64>,
}

impl PartialReceiver {
    pub(crate) fn new(config: &PartialConfig, transport: &TransportConfig) -> PartialReceiver {
        PartialReceiver {
            table: ReceiveTable::new(transport.mtu, config.chunk),
            mtu: transport.mtu,
            lengths: Vec::new(),
            untold: 0..0,
            letters: VecDeque::new(),
        }
    }

    /// Posts a receive of at most so many bytes, and tells the sender.
    ///
    /// # Errors
    /// If all slots are taken.
    pub fn expect(&mut self, bytes: u64) -> Result<u64, Busy> {
        let packets = bytes.div_ceil(u64::from(self.mtu)).clamp(1, u64::from(u32::MAX)) as u32;
        let sequence = self.table.expect(packets)?;
        let (slot, lengths) = (Self::slot(sequence), Lengths { room: bytes, message: None });
        match self.lengths.get_mut(slot) {
            Some(known) => *known = lengths,
            // Slots are used in order.
            None => self.lengths.push(lengths),
        }
        self.untold.end = sequence + 1;
        Ok(sequence)
    }

    const fn slot(sequence: u64) -> usize {
        (sequence % super::SLOTS) as usize
    }

    /// What has come of a receive, if it is open.
    pub fn progress(&self, sequence: u64) -> Option<&Progress> {
        self.table.progress(sequence)
    }

    /// The sender's number for the message of a receive (SDR's user immediate), once a packet of it has come.
    pub fn message(&self, sequence: u64) -> Option<MessageId> {
        self.table.message(sequence)
    }

    /// Bytes of the message that a receive takes, once a packet of it has come.
    pub fn length(&self, sequence: u64) -> Option<u64> {
        self.table.progress(sequence)?;
        self.lengths.get(Self::slot(sequence))?.message
    }

    /// Ends a receive, and tells the sender if there are holes. What had come; `None` if it was not open.
    pub fn complete(&mut self, sequence: u64) -> Option<Progress> {
        let whole = self.table.progress(sequence)?.is_whole();
        if !whole {
            self.letters.push_back(Letter::Over { sequence: truncated(sequence), whole });
        }
        self.table.complete(sequence, whole)
    }
}

impl Receiver for PartialReceiver {
    fn on_data(&mut self, _: &Data, _: Flags, _: PathId, _: &mut Option<(Header, Flags)>) -> Result<Arrival, Invalid> {
        Err(Invalid::BeyondWindow)
    }
    fn on_part(&mut self, _: Time, part: &Part, flags: Flags) -> Result<Arrival, Invalid> {
        self.table.check(part)?;
        if part.parity || part.plan > 0 || flags.has(Flags::TRIMMED) {
            return Ok(Arrival::default());
        }
        let sequence = self.table.full(part.sequence);
        let bytes = u64::from(part.packets - 1) * u64::from(self.mtu) + u64::from(part.tail);
        let open = self.table.progress(sequence).and_then(|_| self.lengths.get_mut(Self::slot(sequence)));
        if let Some(lengths) = &open
            && (bytes > lengths.room || lengths.message.is_some_and(|known| known != bytes))
        {
            return Err(Invalid::BeyondWindow);
        }
        let placed = self.table.place(sequence, part.packet, part.packets, part.message)?;
        if let Some(lengths) = open {
            lengths.message = Some(bytes);
        }
        Ok(Arrival { fresh: matches!(placed, Placed::Fresh { .. }), duplicate: placed == Placed::Duplicate })
    }
    fn on_letter(&mut self, _: Time, letter: &Letter) -> Result<(), Invalid> {
        let Letter::Ask { sequence } = *letter else { return Err(Invalid::BeyondWindow) };
        let asked = extend(sequence, self.table.posted());
        // All receives that are posted from the one on that the sender waits for.
        self.untold.start = self.untold.start.min(asked.max(self.table.posted().saturating_sub(super::SLOTS)));
        Ok(())
    }
    fn take_letter(&mut self) -> Option<(Letter, Flags)> {
        if self.untold.start < self.untold.end {
            let (first, count) = (truncated(self.untold.start), (self.untold.end - self.untold.start) as u32);
            self.untold.start = self.untold.end;
            return Some((Letter::Clear { first, count }, Flags::NONE));
        }
        self.letters.pop_front().map(|letter| (letter, Flags::NONE))
    }
    fn on_probe(&mut self, _: u32, path: PathId, _: bool) -> (Ack, Flags) {
        (super::nothing_acknowledged(path), Flags::PROBE_ANSWER)
    }
    fn take_received(&mut self) -> Option<(MessageId, u64)> {
        None
    }
    fn cumulative(&self) -> u64 {
        0
    }
}
