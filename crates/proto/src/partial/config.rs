//! Partial completion as a reliability: it acknowledges nothing and sends nothing again; a program must do this.

use super::{Busy, Placed, Progress, ReceiveTable, SendTable, Stretch, extend, truncated};
use crate::control_message::ControlMessage;
use crate::environment::{Environment, TransportConfig};
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
    /// One-way connections without acknowledgements: a program reads the bitmaps and decides what to do about missing
    /// chunks.
    pub struct PartialConfig {
        /// Packets of a chunk: the bitmap for programs has one bit for each chunk.
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

/// A sender asks whether a receive is posted after this number of round trips, and then again, each time after twice
/// the time, up to [`ASK_MAX`]. Ours, as SDR-RDMA does not say: its selective-repeat timeout.
const ASK_ROUND_TRIPS: u64 = 3;
const ASK_MAX: Span = Span::from_ms(1_000);

/// The sender of a one-way connection without repair.
#[derive(Debug)]
pub struct PartialSender {
    table: SendTable,
    chunk: u32,
    /// Messages that wait for a receive.
    waiting: VecDeque<Message>,
    /// Messages that were posted as a whole; each packet is sent once, in order.
    one_shots: VecDeque<(u64, Message)>,
    /// A stream could not begin, because the sender knows of no receive that is posted for it.
    refused: bool,
    /// The time of the next question whether a receive is posted, and the interval to the question after that.
    ask_at: Time,
    patience: Span,
    first_patience: Span,
    ask: Option<ControlMessage>,
    /// The last packet of a message was sent.
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

    /// Opens a stream for a message. Chunks are sent only when they are pushed.
    ///
    /// # Errors
    /// If no receive is posted for it, or its slot is taken. The sender then asks the peer until a receive is posted.
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

    /// Starts the timer after which the peer is asked for a receive.
    fn want_receive(&mut self) {
        if self.ask_at == Time::NEVER {
            // The time is not known here; `on_timeout`, which follows at once, sets it.
            self.ask_at = Time::ZERO;
        }
    }

    /// All of a message as one stretch.
    fn stretch(&self, message: Message) -> Stretch {
        let (packets, tail) = self.table.cut(message.bytes);
        Stretch { message: message.id, parity: false, plan: 0, first: 0, packets, whole: packets, tail }
    }

    /// Queues chunks of a stream to be sent; `again`: they were sent before, and go first now.
    pub fn push(&mut self, sequence: u64, chunks: Range<u32>, again: bool) {
        let packet = |chunk: u32| chunk.saturating_mul(self.chunk);
        self.table.push(sequence, packet(chunks.start), packet(chunks.end), again);
    }

    /// Is a stream open? An open stream was neither ended here nor completed by the peer.
    pub fn is_open(&self, sequence: u64) -> bool {
        self.table.stretch(sequence).is_some()
    }

    /// Ends a stream and frees its slot.
    pub fn end(&mut self, sequence: u64) {
        self.table.release(sequence);
    }

    /// Begins waiting messages while there are receives and slots for them.
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
    fn on_control(&mut self, _: Time, control: &ControlMessage, _: Flags) -> Result<Settled, Invalid> {
        match *control {
            ControlMessage::Clear { first, count } if u64::from(count) <= super::SLOTS => {
                let next = self.table.next_sequence();
                self.table.clear(extend(first, next) + u64::from(count));
                self.begin_waiting();
            }
            ControlMessage::Over { sequence, .. } => self.table.release(extend(sequence, self.table.next_sequence())),
            _ => return Err(Invalid::BeyondSent),
        }
        Ok(Settled::default())
    }
    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        self.ask.take().map(|control| (control, Flags::NONE))
    }
    fn on_timeout(&mut self, now: Time) {
        if now >= self.ask_at {
            if self.ask_at > Time::ZERO {
                self.ask = Some(ControlMessage::Ask { sequence: truncated(self.table.next_sequence()) });
            }
            self.ask_at = now + self.patience;
            self.patience = (self.patience * 2).min(ASK_MAX.max(self.first_patience));
        }
    }
    fn deadline(&self) -> Time {
        // The program must get the event at once.
        if self.injected { Time::ZERO } else { self.ask_at }
    }
    fn take_lost(&mut self) -> Option<Lost> {
        None
    }
    /// A message that was posted as a whole is finished when its last packet was sent.
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
    /// The lengths of each receive and of its message, by slot.
    lengths: Vec<Lengths>,
    /// The range of receives that the sender has not been told about.
    untold: Range<u64>,
    controls: VecDeque<ControlMessage>,
}

/// The bytes of a receive, and of the message in it.
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
            controls: VecDeque::new(),
        }
    }

    /// Posts a receive for a message of at most `bytes` bytes, and tells the sender.
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

    /// The progress of a receive, if it is open.
    pub fn progress(&self, sequence: u64) -> Option<&Progress> {
        self.table.progress(sequence)
    }

    /// The sender's number for the message of a receive (SDR's user immediate), after its first packet.
    pub fn message(&self, sequence: u64) -> Option<MessageId> {
        self.table.message(sequence)
    }

    /// The bytes of the message in a receive, after its first packet.
    pub fn length(&self, sequence: u64) -> Option<u64> {
        self.table.progress(sequence)?;
        self.lengths.get(Self::slot(sequence))?.message
    }

    /// Ends a receive, and tells the sender if packets are missing. Returns its progress, or `None` if it was not open.
    pub fn complete(&mut self, sequence: u64) -> Option<Progress> {
        let whole = self.table.progress(sequence)?.is_whole();
        if !whole {
            self.controls.push_back(ControlMessage::Over { sequence: truncated(sequence), whole });
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
    fn on_control(&mut self, _: Time, control: &ControlMessage) -> Result<(), Invalid> {
        let ControlMessage::Ask { sequence } = *control else { return Err(Invalid::BeyondWindow) };
        let asked = extend(sequence, self.table.posted());
        // All receives are reported again, from the one on that the sender waits for.
        self.untold.start = self.untold.start.min(asked.max(self.table.posted().saturating_sub(super::SLOTS)));
        Ok(())
    }
    fn take_control(&mut self) -> Option<(ControlMessage, Flags)> {
        if self.untold.start < self.untold.end {
            let (first, count) = (truncated(self.untold.start), (self.untold.end - self.untold.start) as u32);
            self.untold.start = self.untold.end;
            return Some((ControlMessage::Clear { first, count }, Flags::NONE));
        }
        self.controls.pop_front().map(|control| (control, Flags::NONE))
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
